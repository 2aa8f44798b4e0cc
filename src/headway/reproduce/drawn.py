"""The experiments as pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from headway import pictures
from headway.pictures import Mean, Point
from headway.reproduce.failure import DOWN, DUE, MACHINES, PER_MACHINE, POLICY, Curve
from headway.reproduce.published import FIGURES, PENALTY, VIOLATION
from headway.reproduce.samples import WORKERS, Log
from headway.reproduce.sweep import Row, column, spread

ENVIRONMENTS: Final = {False: "homogeneous", True: "heterogeneous"}
"""The words of the thesis for workers of one speed, and of several."""

CLUSTERS: Final = {False: "workers of one speed", True: "workers of different speeds"}

NAMES: Final = {VIOLATION: "average priority violation rate (%)", PENALTY: "deadline miss penalty"}

_FACTORS: Final = {VIOLATION: 100.0, PENALTY: 1.0}

SPREAD: Final = "standard error of the mean"


def figure(name: str, rows: Sequence[Row], policies: Sequence[str], log: Log, path: Path) -> None:
    """One of figures 6.2 to 6.5, with standard errors."""
    measure, differ = FIGURES[name]
    title = f"Figure {name.removeprefix('fig')} of Lin14. {_about(rows, log)}"
    means = {policy: _mean(rows, measure, policy, None, differ) for policy in policies}
    pictures.bars(
        {CLUSTERS[differ]: means},
        path,
        measure=NAMES[measure],
        spread=SPREAD,
        better="less",
        log=measure == PENALTY,
        title=title,
    )


def sweep(rows: Sequence[Row], policies: Sequence[str], log: Log, folder: Path) -> list[str]:
    """Draw each measure over load, and one measure against the other for each cluster. Returns the file names."""
    loads, kinds = _loads(rows), _kinds(rows)
    written = []
    for measure, name in NAMES.items():
        panels = {
            CLUSTERS[differ]: {
                policy: {load: _mean(rows, measure, policy, load, differ) for load in loads} for policy in policies
            }
            for differ in kinds
        }
        written.append(f"sweep-{measure.replace('_', '-')}.png")
        pictures.lines(
            panels,
            folder / written[-1],
            over="offered load",
            measure=name,
            spread=SPREAD,
            better="less",
            log=measure == PENALTY,
            title=_about(rows, log),
        )
    for differ in kinds:
        points = {
            f"offered load {load:g}": {
                policy: Point(*(_mean(rows, measure, policy, load, differ) for measure in NAMES)) for policy in policies
            }
            for load in loads
        }
        written.append(f"sweep-plane-{ENVIRONMENTS[differ]}.png")
        x, y = NAMES.values()
        title = f"{_about(rows, log)}, {CLUSTERS[differ]}"
        pictures.plane(points, folder / written[-1], x=x, y=y, spread=SPREAD, better="less", title=title)
    return written


def failure(found: Mapping[str, Mapping[str, Curve]], path: Path) -> None:
    """Figure 6.1: the curves `normal` and `failure` of each run, `simulated` or `live`."""
    courses = {
        name: {run: (curves[name].at, curves[name].slots) for run, curves in found.items()}
        for name in ("normal", "failure")
    }
    title = f"Figure 6.1 of Lin14. One job on {MACHINES * PER_MACHINE} slots, due after {DUE:g} s, under {POLICY}"
    pictures.steps(courses, path, measure="slots allocated", shaded={"six slots are down": DOWN}, title=title)


def _about(rows: Iterable[Row], log: Log) -> str:
    """What was run: the log, the number of samples, the number of slots."""
    samples = len({row.seed for row in rows})
    return f"{log.name} as bags (Lin14 6.3): {samples} samples on {WORKERS} slots"


def _mean(rows: Iterable[Row], measure: str, policy: str, load: float | None, differ: bool) -> Mean:
    found = spread(column(rows, measure, policy, load, differ))
    return Mean(_FACTORS[measure] * found.mean, _FACTORS[measure] * found.error)


def _loads(rows: Iterable[Row]) -> list[float]:
    return sorted({row.load for row in rows if row.load is not None})


def _kinds(rows: Iterable[Row]) -> list[bool]:
    return sorted({row.heterogeneous for row in rows})
