"""What all pictures share: a figure without a screen, colours, a scale of time, the way into a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headway.errors import HeadwayError, InvalidInput
from headway.model.instant import SECOND

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Neighbours in the list are far apart in hue, for jobs that run side by side are mostly neighbours.
COLOURS: Final = (
    *("#4477aa", "#ee9944", "#55a868", "#cc6677", "#8a7fc4", "#c9b04a"),
    *("#66b5c9", "#a0603c", "#93b855", "#b36aa8", "#3d8f86", "#8c8f99"),
)
INK: Final = "#33383f"
FAINT: Final = "#d9dce1"
ALARM: Final = "#b3202c"


class Clock(NamedTuple):
    """The unit of time that suits a picture: its name, and the microseconds it has."""

    unit: str
    length: int


def clock_for(span: int) -> Clock:
    """The unit in which a span of microseconds is a number of few digits."""
    for unit, length, most in (("s", 1, 600), ("min", 60, 600 * 60), ("h", 3600, 5 * 86400)):
        if span <= most * SECOND:
            return Clock(unit, length * SECOND)
    return Clock("days", 86400 * SECOND)


def figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """A figure of this size in inches, and its axes in an array of shape (rows, columns).

    Raises:
        HeadwayError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise HeadwayError("pictures need matplotlib", "Install it with: pip install 'headway[plot]'") from error
    drawn = Figure(figsize=(width, height), dpi=130, layout="constrained", facecolor="white")
    FigureCanvasAgg(drawn)
    axes = drawn.subplots(rows, columns, squeeze=False)
    for each in axes.flat:
        soften(each)
    return drawn, axes


def soften(axes: Axes) -> None:
    """Frame and ticks that do not compete with what is drawn."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(colors=INK, labelsize=9)
    axes.set_axisbelow(True)


def save(drawn: Figure, path: str | Path) -> None:
    """Write the figure in the format that the name ends in.

    Raises:
        InvalidInput: there is no such format.
        HeadwayError: the file cannot be written.
    """
    path = Path(path)
    formats = drawn.canvas.get_supported_filetypes()
    if path.suffix.lower().removeprefix(".") not in formats:
        raise InvalidInput("picture", path.name, f"a name that ends in one of {', '.join(sorted(formats))}")
    try:
        drawn.savefig(path)
    except OSError as error:
        raise HeadwayError(f"cannot write {path}: {error.strerror or error}") from error
