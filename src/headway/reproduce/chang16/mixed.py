"""Chang16's third experiment, figures 8 and 9: batch jobs and services on one cluster, by who shares out the units.

Readings: a request belongs to the window in which it comes, and is late while nobody answers it. A service expects as
many requests as came in the last window. A task holds its unit until it ends. The services last for an hour; batch jobs
that are left then have all units. Each service has one unit at least, for all of them "use some processing units".
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from headway import pictures
from headway.metrics import summarise
from headway.model.instant import HOUR, SECOND
from headway.model.schedule import Schedule
from headway.model.workload import FloatArray, IntArray, Workload
from headway.pictures import Curve, Mean
from headway.reproduce.chang16.bound import PER_WINDOW, STEP, UNITS_LEAST, Answered, Border, lower_bound
from headway.reproduce.chang16.experiment import Asked, Experiment
from headway.reproduce.chang16.samples import JOBS, cluster, draw
from headway.reproduce.experiment import Progress, Result, Statement, draws, range_of, ratio
from headway.reproduce.processes import done
from headway.reproduce.tables import Table
from headway.sim.experiment import ServiceLoad, run
from headway.traces.http import HttpLog, read_hourly, read_http_log
from headway.workloads.hours import superposed

HOURS: Final = 100
"""Consecutive hours of a service's log."""

GAPS: Final = 0.01
"""The factor on the times between requests."""

ROTATION: Final = 0.008
"""Seconds until a disk begins to read."""

BITS: Final = 1030e6
"""What it reads in a second."""

UNITS: Final = 64

OF_EACH: Final = 5
"""Services of a sample from either log."""

LOADS: Final[dict[str, float | None]] = {
    "as in the logs": None,
    "30 % of the units": 0.3,
    "60 % of the units": 0.6,
    "90 % of the units": 0.9,
}
"""What the services of a sample need in all. As in the logs that is less than 1 % of the units."""

TOPS: Final[dict[str, str]] = {
    "dp": "services:top=dp,model=fluid",
    "dp, with chance": "services:top=dp,model=queueing",
    "sf": "services:top=sf,model=fluid",
    "pp": "services:top=pp,model=fluid",
    "dp, atc": "services:top=dp,model=fluid,batch=atc",
    "ahead, greedy": "services:top=ahead,batch=greedy",
    "ahead": "services:top=ahead",
}
"""Who shares out the units, and in which order the batch jobs go. In the paper all expect what its fluid model does,
and the order is `greedy`."""

DRAWN: Final = ("dp", "sf", "pp", "ahead")
"""Whose units are drawn."""

COMPARED: Final = ("dp", "ahead, greedy", "dp, atc", "ahead")
"""Who is compared with the bound: two splits, with two orders of batch jobs."""

WINDOWS_BOUND: Final = "at least, border at windows"

BOUNDS: Final[dict[str, Border]] = {WINDOWS_BOUND: "windows", "at least": "any"}
"""What nobody can do better than; see `headway.reproduce.chang16.bound`."""

FRACTION: Final = 0.9
RATE: Final = 10_000.0
"""Of each service."""

MEASURES: Final = ("services_penalty", "total_penalty")
KINDS: Final = ("total", "services", "batch")
NEAR: Final = 0.1

PUBLISHED: Final = {
    ("total", "sf"): 0.19,
    ("total", "pp"): 0.19,
    ("batch", "pp"): 0.30,
    ("batch", "sf"): 0.46,
    ("services", "pp"): 0.10,
    ("services", "sf"): -0.30,
}
"""By how much `dp` is below the others; below 0: it is above."""

CALGARY: Final = ("calgary-1994-10.log.gz", "calgary-1994-11.log.gz", "calgary-1994-12.log.gz")
SASKATCHEWAN: Final = "hourly-saskatchewan.csv"
BROKEN_MAX: Final = 2_000
"""So many lines of the log may be unreadable; they are left out."""


class Requests(NamedTuple):
    """The requests of one service: when each comes and how long it takes, in seconds."""

    arrivals: FloatArray
    processing: FloatArray


class Logs(NamedTuple):
    """What services are drawn from.

    Attributes:
        log: requests with their sizes.
        hourly: how many requests came to another server, hour by hour.
        name: what to call them.
    """

    log: HttpLog
    hourly: IntArray
    name: str


class _Work(NamedTuple):
    """One sample. One process runs it under all methods."""

    jobs: Workload
    services: tuple[Requests, ...]


class _Ran(NamedTuple):
    """One run.

    Attributes:
        penalties: as in `MEASURES`; of a bound only the last one, which is that of both kinds.
        units: how many units the services have, window by window; None: it is a bound.
    """

    penalties: tuple[float | None, ...]
    units: Curve | None


class Runs:
    """All runs.

    Args:
        penalties: by load, method and kind (`KINDS`) the penalty of each sample, shape (samples,).
        units: by load and method, how many units the services of the first sample have, over time.
    """

    def __init__(
        self, penalties: Mapping[tuple[str, str, str], FloatArray], units: Mapping[str, Mapping[str, Curve]]
    ) -> None:
        self.penalties = penalties
        self.units = units

    def has(self, bound: str) -> bool:
        """Whether this bound was computed."""
        return all((load, bound, "total") in self.penalties for load in LOADS)

    def relative(self, load: str, top: str, to: str, kind: str) -> tuple[float, FloatArray]:
        """The mean penalty of a method divided by that of another one: of the samples, and of draws of them."""
        ours, others = self.penalties[load, top, kind], self.penalties[load, to, kind]
        first = np.vstack((np.arange(len(ours)), draws(len(ours))))
        found = ratio(ours[first].mean(axis=1), others[first].mean(axis=1))
        return float(found[0]), found[1:]


def open_logs() -> Logs:
    """The logs in `http/` of the folder that `HEADWAY_DATA` names; without them, made-up ones.

    Raises:
        HeadwayError: the content is wrong.
    """
    folder = Path(os.environ.get("HEADWAY_DATA") or "-") / "http"
    if all((folder / name).is_file() for name in (*CALGARY, SASKATCHEWAN)):
        parts = [read_http_log(folder / name, broken_max=BROKEN_MAX) for name in CALGARY]
        first = parts[0]
        log = HttpLog(
            np.concatenate(
                [part.instants + round((part.start - first.start).total_seconds()) * SECOND for part in parts]
            ),
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.status for part in parts]),
            first.start,
        )
        return Logs(log, read_hourly(folder / SASKATCHEWAN), "Calgary 1994, and hours of Saskatchewan")
    return made_up()


def made_up(days: int = 30, seed: int = 0) -> Logs:
    """Requests in bursts, more of them by day, with sizes like those of files."""
    chance = np.random.default_rng(seed)
    hour = np.arange(24 * days)
    hourly = chance.poisson(180 * (1.2 + np.sin((hour - 9) * np.pi / 12)) * chance.gamma(4, 0.25, len(hour)))
    starts = np.repeat(hour, np.maximum(1, hourly // 4)) * HOUR
    bursts = np.sort(starts + chance.integers(0, HOUR, len(starts)))
    instants = np.sort(np.repeat(bursts, 4) + chance.integers(0, 20 * SECOND, 4 * len(bursts)))
    sizes = np.minimum(1e8, chance.lognormal(8.5, 1.5, len(instants))).astype(np.int64)
    return Logs(
        HttpLog(instants, sizes, np.full(len(sizes), 200), datetime(1994, 10, 24, tzinfo=UTC)),
        (3 * hourly).astype(np.int64),
        "made-up logs of requests",
    )


def services(logs: Logs, seed: int, load: float | None) -> tuple[Requests, ...]:
    """The services of a sample.

    Args:
        load: which share of the units they need on average; None: what the logs say.
    """
    chance = np.random.default_rng(seed)
    found = []
    for number in range(2 * OF_EACH):
        if number < OF_EACH:
            begin = int(chance.integers(0, max(1, len(logs.log.per_hour()) - HOURS))) * HOUR
            low, high = np.searchsorted(logs.log.instants, [begin, begin + HOURS * HOUR])
            instants, sizes = logs.log.instants[low:high] - begin, logs.log.sizes[low:high]
        else:
            begin = int(chance.integers(0, len(logs.hourly) - HOURS))
            counts = logs.hourly[begin : begin + HOURS]
            instants, sizes = superposed(counts, logs.log.instants, logs.log.sizes, int(chance.integers(2**31)))
        found.append(Requests(instants * GAPS / SECOND, ROTATION + sizes * 8 / BITS))
    if load is None:
        return tuple(found)
    work = sum(float(one.processing.sum()) for one in found)
    factor = load * UNITS * HOURS * HOUR * GAPS / SECOND / work
    return tuple(Requests(one.arrivals, one.processing * factor) for one in found)


def runs(asked: Asked) -> int:
    """How many simulations it takes."""
    return len(asked.seeds) * len(LOADS) * len(TOPS)


def perform(asked: Asked, progress: Progress) -> Result:
    """Run every method on every sample, with the services as in the logs and with services that need much."""
    logs = open_logs()
    settings = list(product(LOADS, asked.seeds))
    works = [
        _Work(draw(asked.log, seed, "random", "logged"), services(logs, seed, LOADS[load])) for load, seed in settings
    ]
    found: dict[int, list[_Ran]] = {}
    for place, measured in done(_measured, works, asked.processes):
        found[place] = measured
        progress(len(found) * len(TOPS))
    rows = [
        (seed, load, top, *ran.penalties)
        for place, (load, seed) in enumerate(settings)
        for top, ran in zip((*TOPS, *BOUNDS), found[place], strict=True)
    ]
    units = {
        load: {top: ran.units for top, ran in zip(TOPS, found[place], strict=False) if ran.units is not None}
        for place, (load, seed) in enumerate(settings)
        if seed == asked.seeds[0]
    }
    return result(runs_of(rows, units), rows, logs.name)


def runs_of(rows: Sequence[tuple[object, ...]], units: Mapping[str, Mapping[str, Curve]]) -> Runs:
    """The runs by setting."""
    penalties: dict[tuple[str, str, str], FloatArray] = {}
    for load, top in product(LOADS, TOPS):
        both = np.array([row[3:5] for row in rows if row[1:3] == (load, top)], dtype=np.float64)
        penalties |= {
            (load, top, "services"): both[:, 0],
            (load, top, "batch"): both[:, 1],
            (load, top, "total"): both.sum(axis=1),
        }
    for load, bound in product(LOADS, BOUNDS):
        least = [row[4] for row in rows if row[1:3] == (load, bound)]
        if least:
            penalties[load, bound, "total"] = np.array(least, dtype=np.float64)
    return Runs(penalties, units)


def result(ran: Runs, rows: Sequence[Sequence[object]], name: str) -> Result:
    """What the runs say."""
    samples = len(next(iter(ran.penalties.values())))
    return Result(
        about=(
            f"{JOBS} batch jobs and {2 * OF_EACH} services for an hour on {UNITS} units, {samples} samples. Requests: "
            f"{name}. Penalties are means over the samples, divided by those of dp; in brackets is the range of 90 % "
            "if the samples are drawn again."
        ),
        tables=(
            *(_table(ran, load) for load in LOADS),
            _compared(ran),
            *(_above(ran, bound) for bound in BOUNDS if ran.has(bound)),
        ),
        statements=tuple(_statement(ran, kind, to) for kind, to in PUBLISHED),
        columns=("seed", "load", "method", *MEASURES),
        rows=rows,
        pictures={
            name: partial(_draw, ran, samples, load)
            for name, load in zip(("fig8.png", "fig8-30.png", "fig8-60.png", "fig8-90.png"), LOADS, strict=True)
        }
        | {
            name: partial(_draw_units, ran, load)
            for name, load in zip(("fig9.png", "fig9-30.png", "fig9-60.png", "fig9-90.png"), LOADS, strict=True)
        }
        | {"bound.png": partial(_draw_bound, ran, samples)},
    )


def offered(services: Sequence[Requests], warm_up: float = 0.0) -> list[ServiceLoad]:
    """The services of a sample with the terms of the paper.

    Args:
        warm_up: seconds that a new instance takes until it answers.
    """
    return [
        ServiceLoad(
            f"service {number}",
            *(one.arrivals, one.processing, 2 * float(one.processing.mean())),
            fraction=FRACTION,
            rate=RATE,
            least=UNITS_LEAST,
            warm_up=warm_up,
        )
        for number, one in enumerate(services)
    ]


def _measured(work: _Work) -> list[_Ran]:
    loads = offered(work.services)
    found: list[_Ran] = []
    for policy in TOPS.values():
        schedule = run(work.jobs, cluster(), policy, services=loads)
        metrics = summarise(schedule)
        found.append(_Ran(tuple(float(metrics[name]) for name in MEASURES), units_of(schedule)))
    known = min(sum(filter(None, ran.penalties)) for ran in found)
    answered = [Answered(*one, 2 * float(one.processing.mean()), FRACTION, RATE) for one in work.services]
    windows = round(HOURS * HOUR * GAPS / SECOND / (STEP * PER_WINDOW))
    for border in BOUNDS.values():
        least = lower_bound(work.jobs, answered, UNITS, windows, border, known=known)
        found.append(_Ran((None, least), None))
    return found


def units_of(schedule: Schedule) -> Curve:
    """How many units the services have, on average over each window; a service ends with its last request."""
    units: defaultdict[float, float] = defaultdict(float)
    for one in schedule.services:
        for window in one.windows:
            units[window.start / SECOND] += window.instances
    return np.array(sorted(units)), np.array([units[begin] for begin in sorted(units)])


def _table(ran: Runs, load: str) -> Table:
    columns = ("method", *KINDS)
    rows = [(top, *(_cell(*ran.relative(load, top, "dp", kind)) for kind in KINDS)) for top in TOPS]
    bounds = [bound for bound in BOUNDS if (load, bound, "total") in ran.penalties]
    rows += [(bound, _cell(*ran.relative(load, bound, "dp", "total")), "", "") for bound in bounds]
    means = (f"{float(ran.penalties[load, 'dp', kind].mean()):,.0f}" for kind in KINDS)
    rows.append(("dp is on average", *means))
    return Table(f"Penalty relative to dp; services need {load}", columns, rows)


def _compared(ran: Runs) -> Table:
    rows = [(top, *(_cell(*ran.relative(load, top, "dp", "total")) for load in LOADS)) for top in COMPARED]
    rows.append(("ahead, to dp, atc", *(_cell(*ran.relative(load, "ahead", "dp, atc", "total")) for load in LOADS)))
    return Table("Total penalty relative to dp, by what services need", ("method", *LOADS), rows)


def _above(ran: Runs, bound: str) -> Table:
    rows = [(top, *(_cell(*ran.relative(load, top, bound, "total")) for load in LOADS)) for top in COMPARED]
    return Table(f"Total penalty relative to the bound: {bound}; by what services need", ("method", *LOADS), rows)


def _cell(value: float, again: FloatArray) -> str:
    low, high = range_of(again)
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def _statement(ran: Runs, kind: str, to: str) -> Statement:
    value, again = ran.relative("as in the logs", "dp", to, kind)
    low, high = range_of(1 - again)
    words = f"{kind}: dp is below {to} by (figure 8)"
    return Statement(words, PUBLISHED[kind, to], 1 - value, low, high, NEAR, neutral=0.0)


def _draw(ran: Runs, samples: int, load: str, path: Path) -> None:
    def mean(top: str, kind: str) -> Mean:
        value, again = ran.relative(load, top, "dp", kind)
        return Mean(value, float(again.std()))

    pictures.bars(
        {kind: {top: mean(top, kind) for top in TOPS} for kind in KINDS},
        path,
        measure="penalty (dp: 1)",
        spread="standard error of the ratio, by drawing the samples again",
        better="less",
        title=f"Figure 8 of Chang16: batch jobs and services on {UNITS} units, services need {load}; {samples} samples",
    )


def _draw_bound(ran: Runs, samples: int, path: Path) -> None:
    def mean(top: str, load: str) -> Mean:
        value, again = ran.relative(load, top, WINDOWS_BOUND, "total")
        return Mean(value, float(again.std()))

    pictures.bars(
        {load: {top: mean(top, load) for top in COMPARED} for load in LOADS},
        path,
        measure="penalty (1: clairvoyant bound)",
        spread="standard error of the ratio, by drawing the samples again",
        better="less",
        title=f"Penalty above the bound of a clairvoyant, by what services need; {samples} samples",
    )


def _draw_units(ran: Runs, load: str, path: Path) -> None:
    pictures.steps(
        {top: {"": ran.units[load][top]} for top in DRAWN},
        path,
        measure=f"units of services, of {UNITS}",
        title=f"Figure 9 of Chang16: units that services have in the first sample; they need {load}",
    )


EXPERIMENT: Final = Experiment("mixed", "Batch jobs and services on one cluster (figures 8 and 9)", runs, perform)
