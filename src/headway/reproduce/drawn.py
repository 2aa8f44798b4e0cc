"""The experiments as pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from headway import pictures
from headway.pictures import Mean, Point
from headway.reproduce.failure import DOWN, Curve
from headway.reproduce.published import FIGURES, PENALTY, VIOLATION
from headway.reproduce.sweep import Row, column, spread

ENVIRONMENTS: Final = {False: "homogeneous", True: "heterogeneous"}
"""The words of the thesis for workers of one speed, and of several."""

NAMES: Final = {VIOLATION: "average priority violation rate", PENALTY: "deadline miss penalty"}

SPREAD: Final = "standard error of the mean"


def figure(name: str, rows: Sequence[Row], policies: Sequence[str], path: Path) -> None:
    """One of figures 6.2 to 6.5, with standard errors."""
    measure, differ = FIGURES[name]
    samples = len({row.seed for row in rows})
    panel = f"figure {name.removeprefix('fig')}, {ENVIRONMENTS[differ]}, {samples} samples"
    means = {policy: _mean(rows, measure, policy, None, differ) for policy in policies}
    pictures.bars({panel: means}, path, measure=NAMES[measure], spread=SPREAD, log=measure == PENALTY)


def sweep(rows: Sequence[Row], policies: Sequence[str], folder: Path) -> list[str]:
    """Draw each measure over load, and one measure against the other for each cluster. Returns the file names."""
    loads, kinds = _loads(rows), _kinds(rows)
    written = []
    for measure, name in NAMES.items():
        panels = {
            ENVIRONMENTS[differ]: {
                policy: {load: _mean(rows, measure, policy, load, differ) for load in loads} for policy in policies
            }
            for differ in kinds
        }
        written.append(f"sweep-{measure.replace('_', '-')}.png")
        log = measure == PENALTY
        pictures.lines(panels, folder / written[-1], over="offered load", measure=name, spread=SPREAD, log=log)
    for differ in kinds:
        points = {
            f"load {load:g}": {
                policy: Point(*(_mean(rows, measure, policy, load, differ) for measure in NAMES)) for policy in policies
            }
            for load in loads
        }
        written.append(f"sweep-plane-{ENVIRONMENTS[differ]}.png")
        x, y = NAMES.values()
        pictures.plane(points, folder / written[-1], x=x, y=y, spread=SPREAD, title=ENVIRONMENTS[differ])
    return written


def failure(found: Mapping[str, Mapping[str, Curve]], path: Path) -> None:
    """Figure 6.1: the curves `normal` and `failure` of each run, `simulated` or `live`."""
    courses = {
        name: {run: (curves[name].at, curves[name].slots) for run, curves in found.items()}
        for name in ("normal", "failure")
    }
    pictures.steps(
        courses, path, measure="slots allocated", shaded={"six slots are down": DOWN}, title="Lin14, figure 6.1"
    )


def _mean(rows: Iterable[Row], measure: str, policy: str, load: float | None, differ: bool) -> Mean:
    found = spread(column(rows, measure, policy, load, differ))
    return Mean(found.mean, found.error)


def _loads(rows: Iterable[Row]) -> list[float]:
    return sorted({row.load for row in rows if row.load is not None})


def _kinds(rows: Iterable[Row]) -> list[bool]:
    return sorted({row.heterogeneous for row in rows})
