"""What all pictures share: figures without a screen, colours, scales of time, numbers as text, files."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from datetime import datetime
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headway.errors import HeadwayError, InvalidInput
from headway.model.instant import SECOND

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Neighbours in the list differ much in hue, because jobs that run side by side are mostly neighbours.
COLOURS: Final = (
    *("#4477aa", "#ee9944", "#55a868", "#cc6677", "#8a7fc4", "#c9b04a"),
    *("#66b5c9", "#a0603c", "#93b855", "#b36aa8", "#3d8f86", "#8c8f99"),
)
INK: Final = "#33383f"
SOFT: Final = "#6b7178"
FAINT: Final = "#d9dce1"
ALARM: Final = "#b3202c"

EPOCH_AXIS_LEAST: Final = 10**8 * SECOND
"""Later instants count from the Unix epoch (after March 1973), and their axis has dates. Earlier ones are on the clock
of a log."""

NAME_WIDTH: Final = 28
"""The longest line of a policy's name, in letters."""

_GAP: Final = 4
"""Pixels around the text of a tick that must stay free."""

_LETTER: Final = 0.0083
"""Width of a letter in inches, for each point of its size; a bit more than the mean of the font."""


class TimeUnit(NamedTuple):
    """The unit of time of a picture: its name, its length in microseconds, and whether the axis has dates."""

    name: str
    length: int
    dates: bool = False


def time_unit_for(span: int) -> TimeUnit:
    """The unit in which a span of microseconds is a number of few digits."""
    for unit, length, most in (("s", 1, 600), ("min", 60, 600 * 60), ("h", 3600, 5 * 86400)):
        if span <= most * SECOND:
            return TimeUnit(unit, length * SECOND)
    return TimeUnit("days", 86400 * SECOND)


def time_unit_of(begin: int, end: int) -> TimeUnit:
    """The unit of an axis between two instants; it has dates if they count from the Unix epoch."""
    return (
        TimeUnit("days", 86400 * SECOND, dates=True)
        if begin >= EPOCH_AXIS_LEAST
        else time_unit_for(max(end, end - begin))
    )


def time_words(span: int) -> str:
    """A span of microseconds, of either sign, in a suitable unit.

    >>> time_words(45_000_000), time_words(27_660_000_000), time_words(-300 * 3_600_000_000)
    ('45 s', '7.68 h', '-12.5 days')
    """
    for unit, length, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if abs(span) < most * SECOND:
            return f"{number(span / length / SECOND)} {unit}"
    return f"{number(span / 86400 / SECOND)} days"


def number(value: float) -> str:
    """A number for people: three significant digits, commas, never an exponent.

    >>> number(0.0985), number(4.625), number(44_641_610), number(0), number(0.0000012)
    ('0.0985', '4.62', '44,641,610', '0', '<0.001')
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞"
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    return "<0.001" if 0 < value < 0.001 else f"{value:.3g}"


def check_installed() -> None:
    """See that there is something to draw with.

    Raises:
        HeadwayError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise HeadwayError("pictures need matplotlib", "Install it with: pip install 'headway[plot]'")


def figure(width: float, height: float, rows: int = 1, columns: int = 1, **how: Any) -> tuple[Figure, Any]:
    """A figure of this size in inches, and its axes in an array of shape (rows, columns).

    Args:
        how: further arguments of matplotlib's `subplots`.

    Raises:
        HeadwayError: matplotlib is not installed.
    """
    check_installed()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, height), dpi=130, facecolor="white")
    drawn.set_layout_engine("constrained", w_pad=0.08, h_pad=0.06)
    FigureCanvasAgg(drawn)
    axes = drawn.subplots(rows, columns, squeeze=False, **how)
    for each in axes.flat:
        soften(each)
    return drawn, axes


def soften(axes: Axes) -> None:
    """Draw the frame and the ticks faintly, and numbers with commas, without powers of ten."""
    from matplotlib.ticker import FuncFormatter

    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(colors=INK, labelsize=9)
    axes.set_axisbelow(True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(tick))


def tick(value: float, _: int | None = None) -> str:
    """The text of a tick: all significant digits, with commas.

    >>> tick(20_000_000.0), tick(0.30000000000000004), tick(-2.5)
    ('20,000,000', '0.3', '-2.5')
    """
    return f"{round(value, 10) + 0.0:,.10g}"


def whole(axis: Axis) -> None:
    """Put ticks only at whole numbers, for an axis of counts."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True))


def entitle(drawn: Figure, title: str, note: str = "") -> None:
    """Put a title above the whole figure and a note below it, in several lines if they are long."""
    width = drawn.get_figwidth() - 0.2
    if title:
        drawn.suptitle(wrap(title, width, 12), x=0.01, ha="left", color=INK, fontsize=12)
    if note:
        drawn.supxlabel(wrap(note, width, 8.5), x=0.01, ha="left", color=SOFT, fontsize=8.5)


def wrap(text: str, width: float, size: float) -> str:
    """Break a text into lines of at most this many inches, at a font size in points."""
    letters = max(10, int(width / (_LETTER * size)))
    return "\n".join("\n".join(textwrap.wrap(line, letters)) for line in text.splitlines())


def name_lines(name: str) -> str:
    """Break a policy's name into lines of at most `NAME_WIDTH` letters, after `:` and `,` if possible.

    >>> name_lines("deadline:spare=priority,emergency=0.25")
    'deadline:spare=priority,\\nemergency=0.25'
    """
    lines = [""]
    for part in name.replace(",", ",\n").replace(":", ":\n").split("\n"):
        if lines[-1] and len(lines[-1]) + len(part) > NAME_WIDTH:
            lines.append("")
        lines[-1] += part
    return "\n".join(piece for line in lines for piece in textwrap.wrap(line, NAME_WIDTH) or [""])


def time_axis(axes: Axes, time_unit: TimeUnit, begin: int, end: int) -> None:
    """Make the lower axis one of time, from one instant to another. An empty span is drawn one second long."""
    axes.set_xlim(begin / time_unit.length, max(end, begin + SECOND) / time_unit.length)
    if not time_unit.dates:
        axes.set_xlabel(f"time on the log's clock ({time_unit.name})", color=INK)
        return
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    zone = datetime.fromtimestamp(begin / SECOND).astimezone().tzinfo
    locator = AutoDateLocator(tz=zone, minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(  # type: ignore[no-untyped-call]
            locator,
            tz=zone,
            formats=["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S"],
            zero_formats=["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M:%S"],
            offset_formats=["", "%Y", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y"],
        )
    )
    axes.set_xlabel(f"time ({zone})", color=INK)


def _check_format(path: str | Path) -> None:
    """See that there is a format of pictures with the ending of a file.

    Raises:
        InvalidInput: there is none.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    formats = FigureCanvasBase.get_supported_filetypes()
    if Path(path).suffix.lower().removeprefix(".") not in formats:
        raise InvalidInput("picture", Path(path).name, f"a name that ends in one of {', '.join(sorted(formats))}")


def finish(drawn: Figure, path: str | Path | None) -> Figure:
    """Remove ticks whose texts would touch. If there is a path, write the figure in the format of its ending.

    Raises:
        InvalidInput: there is no such format.
        HeadwayError: the file cannot be written.
    """
    if path is not None:
        _check_format(path)
    thin_ticks(drawn)
    if path is not None:
        # Everything has its place by now. Finding it again takes as long as drawing.
        engine = drawn.get_layout_engine()
        drawn.set_layout_engine("none")
        try:
            drawn.savefig(path)
        except OSError as error:
            raise HeadwayError(f"cannot write {path}: {error.strerror or error}") from error
        finally:
            drawn.set_layout_engine(engine)
    return drawn


def thin_ticks(drawn: Figure) -> None:
    """Lay the figure out, and reduce the ticks on axes of numbers until the texts of neighbours do not touch."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    drawn.draw_without_rendering()
    fewer = False
    for axes in drawn.axes:
        for axis in (axes.xaxis, axes.yaxis) if axes.get_visible() else ():
            locator = axis.get_major_locator()
            for bins in (6, 5, 4, 3, 2, 1):
                if not isinstance(locator, MaxNLocator) or not _touch(axis):
                    break
                locator.set_params(nbins=bins)
                fewer = True
            while isinstance(locator, FixedLocator) and axis.get_scale() != "linear" and _touch(axis):
                locator = FixedLocator(axis.get_majorticklocs()[::2].tolist())
                axis.set_major_locator(locator)
                fewer = True
    if fewer:
        drawn.draw_without_rendering()


def _touch(axis: Axis) -> bool:
    """Whether the texts of neighbouring ticks touch, or nearly."""
    low, high = sorted(axis.get_view_interval())
    axis.get_majorticklabels()  # brings the ticks up to date
    texts = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [text.get_window_extent().padded(_GAP) for text in texts if text.get_visible() and text.get_text()]
    return any(one.overlaps(other) for one, other in pairwise(boxes))


def legend(axes: Axes, handles: Sequence[Any], *, inside: bool = False) -> None:
    """Draw the legend: inside axes that are kept for it, else to the right of the axes."""
    if handles:
        names = [name_lines(handle.get_label()) for handle in handles]
        axes.legend(
            handles,
            names,
            loc="upper left",
            bbox_to_anchor=(0 if inside else 1.01, 1),
            frameon=False,
            fontsize=8,
            labelcolor=INK,
        )
