"""Kim12's second half: bags with due dates over grid, private and public cloud; due dates missed, and money.

The paper announces this experiment and prints no numbers. What it expects is held against what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from headway import pictures
from headway.metrics import summarise
from headway.model.instant import HOUR, SECOND
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.renting import UNIT, Offer, Renting
from headway.model.site import SiteTerms
from headway.model.workload import BagTimes, FloatArray, Workload, workload_us
from headway.pictures import Mean
from headway.reproduce.experiment import Progress, Result, draws, range_of
from headway.reproduce.kim12.eairs import draw
from headway.reproduce.processes import done
from headway.reproduce.samples import Log, open_log
from headway.reproduce.tables import Table
from headway.sim.experiment import run
from headway.sim.world import World
from headway.traces.transforms import with_load

GRID, PRIVATE, PUBLIC = "grid", "private", "public"

OWN: Final = (*(NodeSpec(f"g{number}", 2, site=GRID) for number in range(1, 5)), NodeSpec("p1", 4, site=PRIVATE))
"""Eight cores of a grid and four of a private cloud. reading: the paper says neither how many there are."""

SITES: Final = (SiteTerms(GRID), SiteTerms(PRIVATE, 30 * SECOND), SiteTerms(PUBLIC))
"""In the order in which they are preferred; in a private cloud a machine is started for each task."""

RENTING: Final = Renting(
    tuple(
        Offer(
            PUBLIC,
            name,
            slots,
            round(price * UNIT),
            speed,
            period=HOUR,
            minimum=HOUR,
            start_time=120 * SECOND,
            limit=50,
        )
        for name, slots, speed, price in (
            ("m1.small", 1, 0.5, 0.08),
            ("m1.large", 2, 1.0, 0.32),
            ("c1.medium", 2, 1.25, 0.165),
            ("c1.xlarge", 8, 1.25, 0.66),
        )
    )
)
"""Types and prices like those of Amazon EC2 in the year of the paper, billed by the hour; a speed is in the paper's
grid cores. reading: the paper names no types."""

REQUESTS: Final = 80
"""In a sample."""

RUNS: Final = 600
"""Sub-jobs in a sample of the stand-in: about as many as three a day in seven months."""

TOGETHER: Final = 12
"""A request has at most so many runs of one study."""


class Setting(NamedTuple):
    """What a sample is made of.

    Attributes:
        load: the work of all requests divided by what the grid can do meanwhile.
        tight: due dates are so many times as long after the release as the request takes on an empty grid.
        error: standard deviation of the logarithm of real run times divided by estimates.
    """

    load: float = 0.9
    tight: float = 3.0
    error: float = 0.3


BASE: Final = Setting()
SETTINGS: Final = (
    BASE,
    *(BASE._replace(load=load) for load in (0.5, 0.7, 1.1, 1.4)),
    *(BASE._replace(tight=tight) for tight in (1.5, 2.0, 5.0)),
    *(BASE._replace(error=error) for error in (0.0, 0.15, 0.6)),
)
"""One thing varies at a time."""

INITIAL, PAPER, OURS = "the paper's, initial", "the paper's, adaptive", "ours"

METHODS: Final[Mapping[str, tuple[str, bool, bool]]] = {
    "grid": ("sites:top=prefer,rent=no", False, False),
    "grid and private": ("sites:top=prefer,rent=no", True, False),
    INITIAL: ("sites:top=prefer,rent=each,adaptive=false", True, True),
    PAPER: ("sites:top=prefer,rent=each", True, True),
    OURS: ("sites:top=prefer,estimate=0.9,queue=due,rent=cheapest", True, True),
}
"""By name: the policy, whether there is the private cloud, and whether machines can be rented."""


SOURCES: Final = ("e-AIRS", "a log")

MEASURES: Final = ("missed", "money")

_RAW = tuple[str, int, float, float, float, str, float, float]
"""A row: source, seed, load, tightness, error, method, and the measures."""


class _Work(NamedTuple):
    """One sample in one setting. One process runs it under all methods."""

    jobs: Workload
    setting: Setting
    seed: int


def requests(seed: int) -> list[tuple[float, tuple[float, ...]]]:
    """Requests of a sample: the gap before each, relative to the mean, and how long its sub-jobs run, in seconds.

    Consecutive runs of one study are asked for together. reading: the paper says that a request has one or more.
    """
    chance = np.random.default_rng((seed, 1))
    found = list[tuple[float, tuple[float, ...]]]()
    for _, study in groupby(draw(seed, RUNS), key=lambda one: one.parameters["turbulence"]):
        times = [one.took for one in study]
        while times:
            several = 1 + int(chance.integers(0, TOGETHER))
            found.append((float(chance.exponential()), tuple(times[:several])))
            times = times[several:]
    return found


def requests_of(log: Log, seed: int) -> list[tuple[float, tuple[float, ...]]]:
    """The same of a log: consecutive jobs from a random start, each processor a sub-job with the job's run time."""
    jobs = log.workload
    first = int(np.random.default_rng((seed, 2)).integers(0, max(1, len(jobs) - REQUESTS)))
    part = slice(first, first + REQUESTS)
    gaps = np.diff(jobs.release[part], prepend=jobs.release[first])
    mean = max(1.0, float(gaps.mean()))
    widths, times = np.minimum(jobs.width[part], TOGETHER), np.maximum(jobs.runtime[part], SECOND) / SECOND
    return [
        (float(gap / mean), (float(time),) * int(width)) for gap, width, time in zip(gaps, widths, times, strict=True)
    ]


def sample(asked: Sequence[tuple[float, tuple[float, ...]]], setting: Setting) -> Workload:
    """Bags with due dates, released so that the grid has this load."""
    grid = sum(node.slots for node in OWN if node.site == GRID)
    releases = np.cumsum([gap for gap, _ in asked]) * 1e4
    alone = [max(max(times), sum(times) / grid) for _, times in asked]
    means = [sum(times) / len(times) for _, times in asked]
    plain = workload_us(
        release=np.round((releases - releases[0]) * SECOND).astype(np.int64),
        runtime=[round(mean * SECOND) for mean in means],
        estimate=[round(mean * SECOND) for mean in means],
        tasks=[len(times) for _, times in asked],
        kind=int(Kind.BAG),
        bags={
            place: BagTimes(
                tuple(round(time * SECOND) for time in times),
                sizes=tuple(time / mean for time in times),
            )
            for place, ((_, times), mean) in enumerate(zip(asked, means, strict=True))
        },
    )
    loaded = with_load(plain, setting.load, grid)
    due = loaded.release + np.round(np.array(alone) * setting.tight * SECOND).astype(np.int64)
    return replace(loaded, due=due)


def runs(samples: int) -> int:
    """How many simulations it takes."""
    return samples * len(SETTINGS) * len(METHODS) + samples * len(METHODS)


def perform(seeds: range, progress: Progress, processes: int | None = None) -> Result:
    """Every method on every sample in every setting; of the log in the first setting only."""
    log = open_log()
    keys = [(SOURCES[0], setting, seed) for setting in SETTINGS for seed in seeds]
    keys += [(SOURCES[1], BASE, seed) for seed in seeds]
    works = [
        _Work(sample(requests(seed) if source == SOURCES[0] else requests_of(log, seed), setting), setting, seed)
        for source, setting, seed in keys
    ]
    found: dict[int, list[tuple[float, float]]] = {}
    for place, measured in done(_measured, works, processes):
        found[place] = measured
        progress(len(found) * len(METHODS))
    rows: list[_RAW] = [
        (source, seed, *setting, method, *measured)
        for place, (source, setting, seed) in enumerate(keys)
        for method, measured in zip(METHODS, found[place], strict=True)
    ]
    return result(rows, log.name)


def _measured(work: _Work) -> list[tuple[float, float]]:
    found = []
    for policy, has_private, rents in METHODS.values():
        nodes = [node for node in OWN if has_private or node.site == GRID]
        done_ = run(
            work.jobs,
            nodes,
            policy,
            world=World(noise=work.setting.error, seed=work.seed),
            sites=[site for site in SITES if site.name != PRIVATE or has_private],
            renting=RENTING if rents else None,
        )
        metrics = summarise(done_)
        found.append((float(metrics["deadline_miss_rate"]), float(metrics.get("money", 0.0))))
    return found


class Means:
    """The measures of all samples by source, setting and method, shape (samples, 2)."""

    def __init__(self, rows: Sequence[_RAW]) -> None:
        self._of: dict[tuple[str, Setting, str], FloatArray] = {}
        found: dict[tuple[str, Setting, str], list[tuple[float, float]]] = {}
        for source, _, load, tight, error, method, missed, money in rows:
            found.setdefault((source, Setting(load, tight, error), method), []).append((missed, money))
        self._of = {key: np.array(values, dtype=np.float64) for key, values in found.items()}
        self.samples = len(next(iter(self._of.values())))

    def settings(self, source: str) -> list[Setting]:
        """Those in which a source was run."""
        return [setting for setting in SETTINGS if (source, setting, OURS) in self._of]

    def of(self, source: str, setting: Setting, method: str, measure: str) -> tuple[float, float, float]:
        """The mean, and the range of 90 % of means of as many samples drawn again."""
        values = self._of[source, setting, method][:, MEASURES.index(measure)]
        return float(values.mean()), *range_of(values[draws(self.samples)].mean(axis=1))


def result(rows: Sequence[_RAW], log: str) -> Result:
    """What the runs say."""
    means = Means(rows)
    tables = [_table(means, source, measure) for source in SOURCES for measure in MEASURES]
    tables.append(_expected(means))
    return Result(
        about=(
            f"{means.samples} samples of about {RUNS} runs of a made-up flow solver, asked for in bags with due dates; "
            f"and of {REQUESTS} consecutive jobs of a log ({log}). The grid has 8 cores, the private cloud 4, and "
            "machines can be rented by the hour. Missed is the share of bags that were late, money what machines cost: "
            "means over the samples, in brackets the range of 90 % if the samples are drawn again."
        ),
        tables=tuple(tables),
        statements=(),
        columns=("source", "seed", "load", "tightness", "error", "method", *MEASURES),
        rows=rows,
        pictures={"sites.png": partial(_draw, means)},
    )


def _named(setting: Setting) -> str:
    return f"load {setting.load:g}, due {setting.tight:g}, error {setting.error:g}"


def _table(means: Means, source: str, measure: str) -> Table:
    form = "{:.1%}" if measure == "missed" else "{:.2f}"
    methods = [name for name, (_, _, rents) in METHODS.items() if rents or measure == "missed"]

    def cell(setting: Setting, method: str) -> str:
        mean, low, high = map(form.format, means.of(source, setting, method, measure))
        return f"{mean} ({low} to {high})"

    cells = [(_named(setting), *(cell(setting, method) for method in methods)) for setting in means.settings(source)]
    title = "Due dates missed" if measure == "missed" else "Money"
    return Table(f"{title}, {source}", (source, *methods), cells)


def _expected(means: Means) -> Table:
    """What the paper expects, and the aim beyond it, setting by setting."""
    every = [(source, setting) for source in SOURCES for setting in means.settings(source)]

    def mean(method: str, measure: str, where: tuple[str, Setting]) -> float:
        return means.of(*where, method, measure)[0]

    def holds(words: str, holding: Sequence[bool], numbers: str) -> tuple[str, ...]:
        share = sum(holding)
        verdict = "holds" if share == len(holding) else "does not hold" if not share else "holds in part"
        return words, f"{share} of {len(holding)}", numbers, verdict

    def total(method: str, measure: str) -> float:
        return sum(mean(method, measure, where) for where in every) / len(every)

    return Table(
        "What the paper expects, and our aim",
        ("", "settings", "mean of all", "verdict"),
        [
            holds(
                "with the public cloud fewer due dates are missed than with grid and private cloud",
                [mean(PAPER, "missed", one) < mean("grid and private", "missed", one) for one in every],
                f"{total(PAPER, 'missed'):.1%} and {total('grid and private', 'missed'):.1%}",
            ),
            holds(
                "adaptive scheduling misses fewer than initial scheduling, or none more",
                [mean(PAPER, "missed", one) <= mean(INITIAL, "missed", one) for one in every],
                f"{total(PAPER, 'missed'):.1%} and {total(INITIAL, 'missed'):.1%}",
            ),
            holds(
                "and it costs no more",
                [mean(PAPER, "money", one) <= mean(INITIAL, "money", one) for one in every],
                f"{total(PAPER, 'money'):.2f} and {total(INITIAL, 'money'):.2f}",
            ),
            holds(
                "aim: ours misses no more than the paper's adaptive",
                [mean(OURS, "missed", one) <= mean(PAPER, "missed", one) for one in every],
                f"{total(OURS, 'missed'):.1%} and {total(PAPER, 'missed'):.1%}",
            ),
            holds(
                "aim: ours costs at most half",
                [2 * mean(OURS, "money", one) <= mean(PAPER, "money", one) for one in every],
                f"{total(OURS, 'money'):.2f} and {total(PAPER, 'money'):.2f}",
            ),
        ],
    )


def _draw(means: Means, path: Path) -> None:
    points = {
        method: [_point(means, setting, method) for setting in SETTINGS]
        for method, (_, _, rents) in METHODS.items()
        if rents
    }
    pictures.plane(
        {
            method: {_named(setting): point for setting, point in zip(SETTINGS, row, strict=True)}
            for method, row in points.items()
        },
        path,
        x="money",
        y="due dates missed",
        better="less",
        log=False,
        title=f"Kim12 on the stand-in for e-AIRS, {means.samples} samples",
    )


def _point(means: Means, setting: Setting, method: str) -> pictures.Point:
    money, missed = (means.of(SOURCES[0], setting, method, measure)[0] for measure in ("money", "missed"))
    return pictures.Point(Mean(money, 0.0), Mean(missed, 0.0))
