"""Chang16's first experiment, figures 4 and 5: how well the penalty at the end is foreseen in the middle of a run.

A forecast of the state says when each open job is expected to end and what it costs then. It is the forecast that a
server gives, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from headway import pictures
from headway.errors import HeadwayError
from headway.metrics.measures import tardiness
from headway.model.instant import SECOND, from_seconds, to_seconds
from headway.model.workload import FloatArray, Workload
from headway.pictures import Mean
from headway.policies.registry import find
from headway.reproduce.chang16.experiment import Asked, Experiment
from headway.reproduce.chang16.samples import JOBS, cluster, draw
from headway.reproduce.experiment import Progress, Result, Statement, mean_of, range_of
from headway.reproduce.processes import done
from headway.reproduce.tables import Table
from headway.sim.experiment import run
from headway.sim.forecast import forecast
from headway.sim.kernel import Simulation

POLICY: Final = "greedy"

OVERHEADS: Final = (0.0, 1.7)
"""Seconds that each task takes longer than the policy is told.

reading: with exact run times a forecast is right from the start, so the paper's system must have known less than its
text says. A constant overhead of a start is the simplest such thing.
"""

PUBLISHED: Final = {0.0: (0.73, JOBS), 0.03: (0.80, 160), 0.06: (0.90, 100), 0.2: (0.95, 48)}
"""By share of the run: estimated to final penalty of the open jobs, and how many jobs are open."""

LASTS: Final = 1500.0
"""Seconds that the paper's run takes."""

SHARES: Final = (*PUBLISHED, 0.1, 0.4)
"""When every sample is forecast."""

SHARES_SHOWN: Final = (*SHARES, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
"""When the first sample is forecast, for figure 4."""

SHOWN: Final = 8
"""As many jobs are in figure 4."""

NEAR: Final = {"ratio": 0.05, "open": 30.0, "lasts": 150.0}
"""How far from the published number ours counts as the same."""


@dataclass(frozen=True, slots=True)
class Look:
    """A forecast in the middle of a run.

    Attributes:
        share: of the run, from 0 to 1.
        at: seconds from its start.
        ends: when each open job is expected to end, in seconds, by position.
        penalties: what each open job is expected to cost then, by position.
    """

    share: float
    at: float
    ends: Mapping[int, float]
    penalties: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Course:
    """A run with its forecasts.

    Attributes:
        ends: when each job ended, in seconds, shape (jobs,).
        penalties: what each job cost, shape (jobs,).
        looks: forecasts, in order of time.
    """

    ends: FloatArray
    penalties: FloatArray
    looks: tuple[Look, ...]

    @property
    def lasts(self) -> float:
        """Seconds from start to end."""
        return float(self.ends.max())

    def at(self, share: float) -> Look:
        """The forecast at a share of the run."""
        return next(look for look in self.looks if look.share == share)

    def final(self, look: Look) -> float:
        """What the jobs that were open in a forecast cost at the end."""
        return float(self.penalties[[*look.penalties]].sum())

    def ratio(self, look: Look) -> float:
        """Estimated to final penalty of the open jobs; NaN if they cost nothing."""
        final = self.final(look)
        return sum(look.penalties.values()) / final if final else math.nan


class _Work(NamedTuple):
    jobs: Workload
    overhead: float
    shares: tuple[float, ...]


def course(jobs: Workload, overhead: float, shares: Sequence[float]) -> Course:
    """Run a sample, and forecast its state at shares of the run.

    Args:
        overhead: seconds that each task takes longer than its estimate.
        shares: from 0 to 1.

    Raises:
        HeadwayError: a forecast does not reach the end.
    """
    slower = replace(jobs, runtime=jobs.runtime + from_seconds(overhead))
    ended = run(slower, cluster(), POLICY)
    late = tardiness(ended.end, ended.due)
    simulation = Simulation(slower, cluster(), find, POLICY)
    looks = []
    for share in sorted(shares):
        at = round(share * int(ended.end.max()))
        simulation.advance(at)
        found = forecast(simulation.scheduler.dump(), find)
        if found.until is not None:
            raise HeadwayError(f"a forecast ends at {to_seconds(found.until):g} s: {found.failure or 'too much work'}")
        ends = {one.job: to_seconds(one.end) for one in found.jobs if one.end is not None}
        looks.append(Look(share, at / SECOND, ends, {one.job: one.penalty for one in found.jobs}))
    return Course(ended.end / SECOND, ended.rate * late / SECOND, tuple(looks))


def runs(asked: Asked) -> int:
    """How many runs it takes, each with its forecasts."""
    return len(asked.seeds) * len(OVERHEADS)


def perform(asked: Asked, progress: Progress) -> Result:
    """Forecast every sample with each overhead, all jobs at the start, random rates."""
    settings = list(product(asked.seeds, OVERHEADS))
    # The first sample is forecast most often, so it comes first.
    works = [
        _Work(
            draw(asked.log, seed, "random", "start"),
            overhead,
            SHARES_SHOWN if seed == asked.seeds[0] and overhead else SHARES,
        )
        for seed, overhead in settings
    ]
    found: dict[int, Course] = {}
    for place, ended in done(_course, works, asked.processes):
        found[place] = ended
        progress(len(found))
    courses = {setting: found[place] for place, setting in enumerate(settings)}
    return result({overhead: [courses[seed, overhead] for seed in asked.seeds] for overhead in OVERHEADS}, asked.seeds)


def _course(work: _Work) -> Course:
    return course(*work)


Courses = Mapping[float, Sequence[Course]]
"""The courses of all samples, by overhead."""


def result(courses: Courses, seeds: Sequence[int]) -> Result:
    """What the courses say."""
    statements = [statement for overhead in courses for statement in _statements(courses[overhead], overhead)]
    rows = [
        (seed, overhead, look.share, look.at, len(look.penalties), sum(look.penalties.values()), one.final(look))
        for overhead in courses
        for seed, one in zip(seeds, courses[overhead], strict=True)
        for look in one.looks
    ]
    last = courses[max(courses)]
    return Result(
        about=(
            f"{JOBS} jobs on 64 units, all there at the start, random rates, {POLICY}; {len(seeds)} samples. The ratio "
            "is that of the penalty that is expected of all open jobs to what they cost at the end."
        ),
        tables=(_ratios(courses), _jobs(last[0], max(courses))),
        statements=tuple(statements),
        columns=("seed", "overhead", "share", "seconds", "open", "estimated", "final"),
        rows=rows,
        pictures={
            "fig4.png": partial(
                draw_jobs,
                last[0],
                f"Figure 4 of Chang16: what is expected of single jobs as the run goes on; {_words(max(courses))}",
            ),
            "fig5.png": partial(
                draw_ratios,
                {_words(overhead): ran for overhead, ran in courses.items()},
                sorted(SHARES),
                f"Figure 5 of Chang16: how well the total penalty is foreseen; {JOBS} jobs on 64 units under {POLICY}",
                {100 * share: numbers for share, numbers in PUBLISHED.items()},
            ),
        },
    )


def _words(overhead: float) -> str:
    return f"tasks take {overhead:g} s longer than told" if overhead else "run times known"


def _statements(courses: Sequence[Course], overhead: float) -> list[Statement]:
    found = []
    for share, (ratio, left) in PUBLISHED.items():
        when = f"{_words(overhead)}, at {share:.0%} of the run"
        ratios = np.array([one.ratio(one.at(share)) for one in courses])
        numbers = mean_of(ratios), *range_of(ratios)
        said = Statement(f"{when}: estimated to final penalty", ratio, *numbers, NEAR["ratio"], 1.0, "{:.2f}")
        found.append(said)
        if share:
            still = np.array([float(len(one.at(share).penalties)) for one in courses])
            numbers = float(still.mean()), *range_of(still)
            found.append(Statement(f"{when}: open jobs", left, *numbers, NEAR["open"], form="{:.0f}"))
    lasts = np.array([one.lasts for one in courses])
    numbers = float(lasts.mean()), *range_of(lasts)
    found.append(Statement(f"{_words(overhead)}: the run takes", LASTS, *numbers, NEAR["lasts"], form="{:,.0f} s"))
    return found


def _ratios(courses: Courses) -> Table:
    rows = [("published", *(f"{PUBLISHED[share][0]:.2f}" if share in PUBLISHED else "" for share in sorted(SHARES)))]
    for overhead, ran in courses.items():
        spreads = [_spread([one.ratio(one.at(share)) for one in ran]) for share in sorted(SHARES)]
        rows.append((_words(overhead), *(f"{mean:.3f} ± {deviation:.3f}" for mean, deviation in spreads)))
    title = "Estimated to final penalty of open jobs, by share of the run; mean ± standard deviation of the samples"
    return Table(title, ("", *(f"{share:.0%}" for share in sorted(SHARES))), rows)


def _spread(values: Sequence[float]) -> Mean:
    """Mean and standard deviation of those that are numbers."""
    found = np.array(values)
    mean = mean_of(found)
    return Mean(mean, math.sqrt(mean_of((found - mean) ** 2)))


def shown(ran: Course) -> list[int]:
    """Late jobs whose ends are spread over a run, as positions in order of their ends."""
    late = [job for job in np.argsort(ran.ends, kind="stable").tolist() if ran.penalties[job] > 0]
    if not late:
        return []
    wanted = np.linspace(0.1, 1, SHOWN) * ran.lasts
    ends = [float(ran.ends[job]) for job in late]
    return list(dict.fromkeys(late[min(int(np.searchsorted(ends, end)), len(late) - 1)] for end in wanted))


def _jobs(ran: Course, overhead: float) -> Table:
    columns = ("job", *(f"{share:.0%}" for share in sorted(SHARES)), "end")

    def cell(end: float | None, penalty: float) -> str:
        return "" if end is None else f"{end:,.0f} s, {penalty:,.0f}"

    rows = [
        (
            str(job),
            *(cell(ran.at(share).ends.get(job), ran.at(share).penalties.get(job, 0.0)) for share in sorted(SHARES)),
            cell(float(ran.ends[job]), float(ran.penalties[job])),
        )
        for job in shown(ran)
    ]
    title = f"Expected end and penalty of {len(rows)} jobs of the first sample, by share of the run; {_words(overhead)}"
    return Table(title, columns, rows)


def draw_jobs(ran: Course, title: str, path: Path) -> None:
    """Figure 4: by time, what is expected of some late jobs; in the end it is what came."""
    ratios = {
        f"job {job}": {
            look.at: Mean(look.penalties[job] / float(ran.penalties[job]), 0.0)
            for look in ran.looks
            if job in look.penalties
        }
        | {float(ran.ends[job]): Mean(1.0, 0.0)}
        for job in shown(ran)
    }
    ends = {
        f"job {job}": {look.at: Mean(look.ends[job], 0.0) for look in ran.looks if job in look.ends}
        | {float(ran.ends[job]): Mean(float(ran.ends[job]), 0.0)}
        for job in shown(ran)
    }
    pictures.lines(
        {"expected to final penalty": ratios, "expected end (s)": ends},
        path,
        over="time (s)",
        measure="",
        title=title,
    )


def draw_ratios(
    courses: Mapping[str, Sequence[Course]],
    shares: Sequence[float],
    title: str,
    published: Mapping[float, tuple[float, float]],
    path: Path,
) -> None:
    """Figure 5: by share of the run, estimated to final penalty of the open jobs, and how many these are.

    Args:
        courses: by what distinguishes them, those of all samples.
        published: what the paper has of both, by percent of the run.
    """
    samples = len(next(iter(courses.values())))

    def lines(part: int) -> dict[str, dict[float, Mean]]:
        paper = {"published": {share: Mean(numbers[part], 0.0) for share, numbers in published.items()}}
        return (paper if published else {}) | {
            words: {
                100 * share: _spread(
                    [(one.ratio(look), len(look.penalties))[part] for one in ran for look in [one.at(share)]]
                )
                for share in shares
            }
            for words, ran in courses.items()
        }

    pictures.lines(
        {"estimated to final penalty of open jobs": lines(0), "open jobs": lines(1)},
        path,
        over="share of the run (%)",
        measure="",
        spread=f"standard deviation of {samples} samples" if samples > 1 else "",
        title=title,
    )


EXPERIMENT: Final = Experiment(
    "estimates", "How well the penalty is foreseen in the middle of a run (figures 4 and 5)", runs, perform
)
