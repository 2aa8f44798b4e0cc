"""Forecasts of a simulated log held against what came: do bounds hold, and how wide are they?"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from multiprocessing import get_context
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from headway import policy_files
from headway.core.record import StateRecord
from headway.errors import InvalidInput
from headway.foresight.advice import date_kept, tellable
from headway.foresight.calibration import AHEAD, CORRECTED_LEVELS, SAME, at_levels, horizon_of
from headway.foresight.chances import TrackRecord, reached
from headway.foresight.coming import PAST_SPAN, coming
from headway.foresight.futures import Exactly, RunTime, draw_futures, futures_for
from headway.model.forecast import SURE, without_basis
from headway.model.instant import NEVER, SECOND, Instant
from headway.model.job import JobId
from headway.model.node import NodeSpec
from headway.model.workload import Workload
from headway.sim.forecast import forecast
from headway.sim.kernel import Simulation

REHEARSALS: Final = 200
"""Forecasts beside those that are asked for; the bounds of later ones learn from what came of them."""

FEW_INSTANTS: Final = 10
"""Of fewer instants the error of a share is not told: they may all have ended alike by chance."""

WAITS: Final = 1000
"""Past waits that tell how long jobs will wait, as QBETS does."""

Floats = NDArray[np.float64]


class Learner(Protocol):
    """Knows run times from those of jobs that have ended."""

    def learn(self, position: int) -> None:
        """A job of the workload has ended."""
        ...

    def knows(self, position: int) -> bool:
        """Whether anything is known of the run time of a job: an estimate, or the past."""
        ...

    def expected(self, positions: Iterable[int], state: StateRecord) -> Mapping[int, RunTime]:
        """How long the tasks of jobs run, by what has been learnt and what runs in a state."""
        ...


@dataclass(frozen=True, slots=True)
class Held:
    """How bounds held.

    Attributes:
        asked: how many bounds there were.
        at_instants: at how many instants of the trial they were asked for.
        coverage_50, coverage_90: the share of outcomes within the bounds; nan if nothing was asked.
        error_90: the standard error of `coverage_90`, as jobs of one instant share their fate; nan for fewer than
            `FEW_INSTANTS` instants.
        width_90_median: seconds between the bounds that are to hold 90 %.
    """

    asked: int
    at_instants: int
    coverage_50: float
    coverage_90: float
    error_90: float
    width_90_median: float


@dataclass(frozen=True, slots=True)
class Horizon:
    """How bounds held of what was expected so far ahead, in seconds; `until` None: any farther."""

    since: float
    until: float | None
    held: Held


@dataclass(frozen=True, slots=True)
class Kept:
    """How one sort of bounds held, start or end.

    Attributes:
        whole: of all.
        ahead: by how far ahead the forecast's median was.
        uncorrected: of all, before earlier forecasts corrected them.
        other: of bounds as others make them: for ends, from now to the end that follows if all run to their estimates,
            as Slurm expects; for starts, quantiles of past waits, as QBETS.
    """

    whole: Held
    ahead: tuple[Horizon, ...]
    uncorrected: Held
    other: Held


@dataclass(frozen=True, slots=True)
class DatesKept:
    """How often the due dates were kept that advice names for jobs as they are.

    Attributes:
        asked: how many there were: those of jobs that end within reach in enough of the futures.
        kept: the share of jobs that ended by them; nan if nothing was asked.
        error: the standard error of `kept`, as `Held.error_90`.
    """

    asked: int
    kept: float
    error: float


@dataclass(frozen=True, slots=True)
class ForecastQuality:
    """How good the forecasts of a trial were.

    Attributes:
        instants: how many there were with open jobs.
        no_forecast: how many open jobs there were of which, as on a server, nothing was forecast: nothing told how long
            they, or others that they depend on, run. They count in none of the other figures.
        start, end: how bounds held.
        due_90: how due dates were kept that are to be kept with `SURE`.
    """

    instants: int
    no_forecast: int
    start: Kept
    end: Kept
    due_90: DatesKept


def trial(
    workload: Workload,
    nodes: Sequence[NodeSpec],
    policy: str,
    learner: Learner,
    *,
    instants: int = 100,
    seed: int = 0,
    futures: int | None = None,
    rehearsals: int = REHEARSALS,
    arrivals: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ForecastQuality:
    """Stop a simulated workload at random instants, forecast all open jobs, and compare with what came.

    Nothing is known at an instant that was not known then: run times are those of jobs that had ended, and bounds are
    corrected by forecasts whose jobs had ended.

    Args:
        learner: knows the run times of the workload as far as it has been told.
        instants: how many, >= 1; drawn evenly from the last nine tenths of the time in which jobs come, or, if all come
            at once, in which they run.
        futures: how many are simulated at each; None: as many as beside a server, see `futures_for`.
        rehearsals: forecasts beside them, >= 0; see `REHEARSALS`.
        arrivals: whether jobs come in the futures as they did before the instant; otherwise nobody submits anything.
        progress: called with the number of forecasts made.

    Raises:
        InvalidInput: there are no instants, no futures, or no time in which jobs come or run.
        HeadwayError: there is no such policy.
    """
    for name, value, least in (("instants", instants, 1), ("futures", futures, 2), ("rehearsals", rehearsals, 0)):
        if value is not None and value < least:
            raise InvalidInput(name, value, f"{least} or more")
    first, last = (int(workload.release[place]) for place in (0, -1))
    if last == first:
        last = int(Simulation(workload, nodes, policy_files.find, policy).run().end.max())
    if last == first:
        raise InvalidInput("run time", 0, "a job that runs for longer, because all come at once")
    rng = np.random.default_rng(seed)
    begin = first + (last - first) // 10
    asked = [(int(at), True) for at in rng.integers(begin, last, instants)]
    practised = [(int(at), False) for at in rng.integers(first, last, rehearsals)]
    made = _made(workload, nodes, policy, learner, sorted(asked + practised), seed, futures, arrivals, progress)
    return _judged(made)


@dataclass(frozen=True, slots=True)
class _ForecastBounds:
    """What a forecast says: rows are jobs, columns the levels; seconds ahead.

    Attributes:
        ends: the ends in all futures, in order; inf: not within reach.
        limits: the ends by the estimates.
        no_forecast: for how many jobs nothing is told; their bounds are nan, and their ends inf.
    """

    start: Floats
    end: Floats
    ends: Floats
    limits: Floats
    no_forecast: int


@dataclass(frozen=True, slots=True)
class _Asked:
    """A forecast that is being made."""

    at: Instant
    is_asked: bool
    jobs: tuple[JobId, ...]
    waits: Floats
    bounds: Future[_ForecastBounds]


@dataclass(frozen=True, slots=True)
class _Foretold:
    """A forecast and what came, in seconds ahead for each job."""

    asked: _Asked
    bounds: _ForecastBounds
    started: Floats
    ended: Floats


def _made(
    workload: Workload,
    nodes: Sequence[NodeSpec],
    policy: str,
    learner: Learner,
    instants: Sequence[tuple[Instant, bool]],
    seed: int,
    futures: int | None,
    arrivals: bool,
    progress: Callable[[int], None] | None,
) -> list[_Foretold]:
    """All forecasts, with what came."""
    simulation = Simulation(workload, nodes, policy_files.find, policy)
    recorder, known = simulation.recorder, 0
    asked: list[_Asked] = []
    processes = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(processes, mp_context=get_context("forkserver")) as pool:
        for number, (at, is_asked) in enumerate(instants):
            simulation.advance(at)
            for job in islice(recorder.end, known, None):
                learner.learn(job)
            known = len(recorder.end)
            state = replace(simulation.scheduler.dump(), now=at)  # the core has the time of its last event
            jobs = tuple(job.spec.id for job in state.jobs)
            if jobs:
                run_times = learner.expected(jobs, state)
                came = _came(workload, recorder.end, at) if arrivals else None
                count = futures or futures_for(state)
                unknown = frozenset(job for job in jobs if not learner.knows(job))
                bounds = pool.submit(_foretell, state, run_times, unknown, seed + number, count, came)
                waits = _past_waits(workload, recorder.start, jobs, at)
                asked.append(_Asked(at, is_asked, jobs, waits, bounds))
            if len(asked) > 2 * processes:
                asked[-2 * processes].bounds.result()  # no more states are kept than the processes soon take on
            if progress is not None:
                progress(number + 1)
        simulation.advance()
        return [
            _Foretold(
                *(one, one.bounds.result()),
                *(
                    np.array([(came.get(job, NEVER) - one.at) / SECOND for job in one.jobs])
                    for came in (recorder.start, recorder.end)
                ),
            )
            for one in asked
        ]


def _came(workload: Workload, ended: Mapping[JobId, Instant], at: Instant) -> Workload:
    """The jobs of the recent past whose run times are known at an instant."""
    first, last = np.searchsorted(workload.release, [at - PAST_SPAN, at], side="right").tolist()
    return workload.take(np.array([row for row in range(first, last) if row in ended], dtype=np.int64))


def _foretell(
    state: StateRecord,
    run_times: Mapping[JobId, RunTime],
    unknown: frozenset[JobId],
    seed: int,
    futures: int,
    came: Workload | None,
) -> _ForecastBounds:
    """Bounds of starts and ends, and the ends that follow from the estimates; in a process of its own."""
    drawn = draw_futures(
        state,
        policy_files.find,
        lambda job, task: run_times[job.id],
        seed=seed,
        count=futures,
        arrivals=None if came is None else coming(state.now, came),
    )
    default = state.estimate_default / SECOND
    limits = draw_futures(
        state,
        policy_files.find,
        lambda job, task: Exactly((job.estimate or 0) / SECOND or default),
        count=1,
    )
    guessed = without_basis(forecast(state, policy_files.find, unknown=unknown).jobs, unknown) if unknown else set()
    for columns in (drawn.start, drawn.end):
        columns[:, [place for place, job in enumerate(drawn.jobs) if job in guessed]] = np.nan
    ends = np.sort(reached(drawn.end), axis=0).T
    return _ForecastBounds(at_levels(drawn.start.T), at_levels(drawn.end.T), ends, limits.end[0], len(guessed))


def _past_waits(workload: Workload, started: dict[JobId, Instant], jobs: Sequence[JobId], at: Instant) -> Floats:
    """For each job that waits, the levels of what is left of the waits of jobs that waited as long."""
    last = deque(started.items(), WAITS)
    waits = np.array([(start - int(workload.release[job])) / SECOND for job, start in last])
    rows = []
    for job in jobs:
        so_far = (at - int(workload.release[job])) / SECOND
        longer = waits[waits > so_far] - so_far
        rows.append(np.quantile(longer, CORRECTED_LEVELS) if len(longer) else np.full(len(CORRECTED_LEVELS), 0.0))
    return np.array(rows).reshape(-1, len(CORRECTED_LEVELS))


def _judged(made: Sequence[_Foretold]) -> ForecastQuality:
    """How the bounds held: corrected one after the other, each by what was known at its instant."""
    shares = np.array([0.0, *CORRECTED_LEVELS[1:-1], 1.0])
    dates: list[tuple[bool, Instant]] = []

    def name_dates(number: int, record: TrackRecord) -> None:
        if made[number].asked.is_asked:
            dates.extend(_dates_held(made[number], record))

    starts = [(one.asked, one.bounds.start, one.started, one.asked.waits) for one in made]
    ends = [(one.asked, one.bounds.end, one.ended, one.bounds.limits[:, None] * shares) for one in made]
    asked = [one for one in made if one.asked.is_asked]
    no_forecast = sum(one.bounds.no_forecast for one in asked)
    return ForecastQuality(len(asked), no_forecast, _kept(starts), _kept(ends, name_dates), _dates_kept(dates))


def _dates_held(one: _Foretold, record: TrackRecord) -> Iterator[tuple[bool, Instant]]:
    """Whether jobs ended by the due dates that advice would name for them, and the instant at which it would."""
    at, ends = one.asked.at, record.moved(one.bounds.ends)
    sure = min(SURE, tellable(ends.shape[1]))
    for drawn, ended in zip(ends, one.ended.tolist(), strict=True):
        date = date_kept(drawn, sure, at)
        if date is not None:
            yield at + round(ended * SECOND) <= date, at


def _dates_kept(dates: Sequence[tuple[bool, Instant]]) -> DatesKept:
    """How many dates were kept, and how far chance may have moved that."""
    if not dates:
        return DatesKept(0, np.nan, np.nan)
    held, at = np.array([held for held, _ in dates], dtype=np.bool_), np.array([float(at) for _, at in dates])
    return DatesKept(len(held), float(np.mean(held)), error_by_instant(held, at)[1])


def _kept(
    made: Sequence[tuple[_Asked, Floats, Floats, Floats]], each: Callable[[int, TrackRecord], None] | None = None
) -> Kept:
    """How bounds held: for each forecast its bounds, what came, and the bounds of others.

    Args:
        each: is called for each forecast with its number, and with what has been learnt by then.
    """
    record, number = TrackRecord(), 0
    rows: list[tuple[Floats, Floats, Floats, Floats, Floats]] = []
    all_came = {
        job: one.at + int(ahead * SECOND)
        for one, _, came, _ in made
        for job, ahead in zip(one.jobs, came.tolist(), strict=True)
    }
    coming, known = sorted(all_came.items(), key=lambda job: job[1]), dict[JobId, Instant]()
    for place, (asked, bounds, came, others) in enumerate(made):
        while number < len(coming) and coming[number][1] <= asked.at:
            known.update([coming[number]])
            number += 1
        record.learn(known, (), asked.at)
        if each is not None:
            each(place, record)
        there = ~np.isnan(bounds).any(axis=1) & (came < NEVER / SECOND / 2)
        if not there.any():
            continue
        jobs = tuple(asked.jobs[row] for row in np.flatnonzero(there).tolist())
        corrected = record.told(asked.at, jobs, bounds[there], rehearsed=not asked.is_asked)
        if asked.is_asked:
            rows.append((bounds[there], corrected, came[there], others[there], np.full(len(jobs), float(asked.at))))
    raw, corrected, outcomes, compared, at = (
        (np.concatenate(parts) for parts in zip(*rows, strict=True)) if rows else _nothing()
    )
    where = horizon_of(raw[:, 2])
    return Kept(
        _held(corrected, outcomes, at),
        tuple(
            Horizon(since, until, _held(*(part[where == number] for part in (corrected, outcomes, at))))
            for number, (since, until) in enumerate(pairwise((0.0, *AHEAD, None)))
            if since is not None
        ),
        _held(raw, outcomes, at),
        _held(compared, outcomes, at),
    )


def _nothing() -> Iterator[Floats]:
    none, bounds = np.empty(0), np.empty((0, len(CORRECTED_LEVELS)))
    return iter((bounds, bounds, none, bounds, none))


def _held(bounds: Floats, came: Floats, at: Floats) -> Held:
    """How bounds held, of forecasts made at these instants."""
    if not len(came):
        return Held(0, 0, np.nan, np.nan, np.nan, np.nan)

    def within(low: int, high: int) -> NDArray[np.bool_]:
        held: NDArray[np.bool_] = (bounds[:, low] <= came + SAME) & (came <= bounds[:, high] + SAME)
        return held

    wide = within(0, -1)
    instants, error = error_by_instant(wide, at)
    width = float(np.median(bounds[:, -1] - bounds[:, 0]))
    return Held(len(came), instants, float(np.mean(within(1, 3))), float(np.mean(wide)), error, width)


def error_by_instant(held: NDArray[np.bool_], at: Floats) -> tuple[int, float]:
    """How many instants there are, and how far the share of what held is from that of many more instants.

    Jobs of one instant share their fate, so the standard error is that of a ratio of sums over instants (Cochran,
    Sampling Techniques, 1977, section 6.3), not that of so many jobs; nan for fewer than `FEW_INSTANTS`.
    """
    _, where = np.unique(at, return_inverse=True)
    sizes = np.bincount(where)
    count = len(sizes)
    if count < FEW_INSTANTS:
        return count, np.nan
    rest = np.bincount(where, weights=held) - held.mean() * sizes
    return count, float(np.sqrt(count / (count - 1) * (rest @ rest)) / len(held))
