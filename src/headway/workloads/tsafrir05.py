"""How long users say that their jobs will run: a few round values, far above the run times.

A histogram of estimates is made from the number of jobs and the largest estimate allowed: twenty "head" values have 89
% of the jobs, the rest is the tail. The estimates are then dealt to the jobs at random, none below its job's run time.

Source: Tsafrir, Etsion and Feitelson, "Modeling user runtime estimates", JSSPP 2005.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from headway.errors import HeadwayError, InvalidInput
from headway.model.instant import SECOND
from headway.model.workload import FloatArray, IntArray, Workload
from headway.traces.swf import LARGEST

HOUR_SECONDS: Final = 3600
JOBS_LEAST: Final = 200
LARGEST_LEAST: Final = 2 * HOUR_SECONDS
HEAD: Final = 20
HEAD_SHARE: Final = 89.0
HISTOGRAM_TRIES: Final = 100
"""How many histograms are drawn at most to find one that can be dealt."""

DISTINCT: Final = ((0, 20, 200, 1000, 10_000, 70_000, 250_000), (0, 10, 20, 35, 90, 340, 565))
"""How many distinct estimates so many jobs have; linear in between, constant beyond."""

COMMON: Final = (
    *(minutes * 60 for minutes in (5, 10, 15, 20, 30)),
    *(h * HOUR_SECONDS for h in (1, 2, 3, 4, 5, 6, 8, 10, 12, 18)),
)
UNITS: Final = (*(hours * HOUR_SECONDS for hours in (200, 100, 50, 10, 5, 2, 1)), 1200, 600, 300)

RANKS: Final = (
    *((3, 1, 1, 1), (1, 3, 4, 6), (4, 4, 10, 5), (17, 2, 14, 3), (13, 12, 20, 7)),
    *((7, 9, 2, 2), (8, 8, 3, 18), (18, 18, 7, 19), (2, 6, 12, 4), (6, 7, 6, 11)),
    *((16, 11, 19, 20), (10, 20, 5, 9), (5, 16, 18, 10), (15, 5, 16, 14), (14, 14, 9, 13)),
    *((19, 13, 17, 16), (11, 10, 15, 15), (12, 15, 13, 17), (9, 17, 8, 8), (20, 19, 11, 12)),
)
"""Popularity of the largest head value, then of the others from the smallest on: 1 the most popular; in four logs."""

LATEST: Final = {rank: max(at for at, row in enumerate(RANKS) if rank in row) for rank in range(1, HEAD + 1)}
TRIED_MOVES: Final = (0, 30, -30, 20, -20, 10, -10)


def with_estimates(
    workload: Workload,
    *,
    largest: float | None = None,
    hints: Mapping[int, int] | None = None,
    seed: int = 0,
    rng: np.random.Generator | None = None,
) -> Workload:
    """The workload with estimates from this model instead of its own.

    reading: if a histogram cannot be dealt, because there are more long jobs than long estimates, another one is drawn;
        the published program stops.

    Args:
        largest: the greatest estimate in seconds, 7200 or more; longer run times are cut to it, which is noted. None:
            the longest run time rounded up to a full hour.
        hints: how many jobs have an estimate of so many seconds, if that is known; at most 20 of them.
        seed: fixes the estimates; `rng` replaces it if given.

    Raises:
        InvalidInput: there are fewer than 200 jobs, or an argument is not allowed.
        HeadwayError: there are so many long jobs that no histogram could be dealt.
    """
    if len(workload) < JOBS_LEAST:
        hint = "Take more jobs, or other estimates."
        raise InvalidInput("jobs", len(workload), f"{JOBS_LEAST} or more for estimates by the Tsafrir model", hint=hint)
    if largest is None:
        longest = int(workload.runtime.max())
        largest = max(LARGEST_LEAST, -(-longest // (HOUR_SECONDS * SECOND)) * HOUR_SECONDS)
    if not LARGEST_LEAST <= largest <= LARGEST or largest != int(largest):
        raise InvalidInput("largest_estimate", largest, f"whole seconds, {LARGEST_LEAST} or more")
    largest = int(largest)
    rng = np.random.default_rng(seed) if rng is None else rng
    runtime = np.minimum(workload.runtime, largest * SECOND)
    order = np.argsort(-runtime, kind="stable")
    falling = runtime[order]
    for _ in range(HISTOGRAM_TRIES):
        times, counts = histogram(len(workload), largest, rng, hints)
        estimates = np.repeat(times[::-1], counts[::-1]) * SECOND
        if (falling <= estimates).all():
            break
    else:
        raise HeadwayError(
            f"more jobs run long than have a long estimate, with a largest estimate of {largest} s",
            "Give a larger one, or say how many jobs have it (a hint).",
        )
    estimate = np.empty_like(estimates)
    estimate[order] = deal(falling, estimates, rng)
    cut = int((workload.runtime > runtime).sum())
    note = (f"run times cut to the largest estimate, {largest} s: {cut}",) if cut else ()
    return replace(workload, runtime=runtime, estimate=estimate, notes=(*workload.notes, *note))


def deal(runtime: IntArray, estimates: IntArray, rng: np.random.Generator) -> IntArray:
    """The estimate of each job, drawn from those that are left and not below its run time.

    Args:
        runtime: falling; none above the estimate at its place.
        estimates: falling, as many.
    """
    jobs = len(runtime)
    last = np.searchsorted(-estimates, -runtime, side="right") - 1
    first = np.arange(jobs)
    drawn = first + (rng.random(jobs) * (last - first + 1)).astype(np.int64)
    left = estimates.tolist()
    dealt = []
    for job, at in enumerate(drawn.tolist()):
        dealt.append(left[at])
        left[at] = left[job]
    return np.array(dealt, dtype=np.int64)


def histogram(
    jobs: int, largest: int, rng: np.random.Generator, hints: Mapping[int, int] | None = None
) -> tuple[IntArray, IntArray]:
    """The estimates that occur, in seconds, rising, and how many jobs have each; together `jobs`.

    Raises:
        InvalidInput: a hint is not allowed.
    """
    hints = dict(hints or {})
    _check_hints(hints, jobs, largest)
    shares = _head(largest, {time: 100 * count / jobs for time, count in hints.items()}, rng)
    shares |= _tail(largest, shares, distinct_values(jobs) - HEAD, rng)
    counts = {time: max(1, math.floor(share * jobs / 100 + 0.5)) for time, share in shares.items()} | hints
    _repair(counts, jobs, hints)
    times = sorted(time for time, count in counts.items() if count)
    return np.array(times, dtype=np.int64), np.array([counts[time] for time in times], dtype=np.int64)


def distinct_values(jobs: int) -> int:
    """How many distinct estimates so many jobs have.

    >>> distinct_values(1000), distinct_values(50_000), distinct_values(10**6)
    (35, 257, 565)
    """
    return math.floor(float(np.interp(jobs, *DISTINCT)) + 0.5)


def head_times(largest: int, hints: Mapping[int, object] | None = None) -> list[int]:
    """The twenty most usual estimates: the largest, then the others rising; hinted ones replace the nearest.

    >>> head_times(18 * 3600)[:4], head_times(18 * 3600)[-1]
    ([64800, 300, 600, 900], 61200)
    """
    usual = [time for time in COMMON if time < largest]
    multiples = itertools.chain.from_iterable(range(largest // unit * unit, 0, -unit) for unit in UNITS)
    seen = {largest, *usual}
    filled: list[int] = []
    for time in multiples:
        if len(usual) + len(filled) == HEAD - 1:
            break
        if time not in seen:
            seen.add(time)
            filled.append(time)
    wanted = {time for time in hints or {} if time not in seen}
    while wanted:
        places = filled if set(filled) - set(hints or {}) else usual
        free = [time for time in places if time not in (hints or {})]
        hint, place = min(itertools.product(sorted(wanted), free), key=lambda pair: abs(pair[0] - pair[1]))
        places[places.index(place)] = hint
        wanted.remove(hint)
    return [largest, *sorted(usual + filled)]


def head_shares() -> FloatArray:
    """Per cent of the jobs that have the head value of each popularity, the most popular first; together 89."""
    falling = 14.0491 * np.exp(-0.177531 * np.arange(2, HEAD + 1)) + 0.462513
    return np.concatenate([[HEAD_SHARE - falling.sum()], falling])


def _check_hints(hints: Mapping[int, int], jobs: int, largest: int) -> None:
    if len(hints) > HEAD or (len(hints) == HEAD and largest not in hints):
        raise InvalidInput("hints", len(hints), f"at most {HEAD - 1} estimates below the largest")
    for time, count in hints.items():
        if time != int(time) or not 0 < time <= largest:
            raise InvalidInput("hint", time, f"whole seconds above 0, at most the largest estimate, {largest}")
        if count != int(count) or count < 1:
            raise InvalidInput(f"jobs with an estimate of {time} s", count, "a whole number, 1 or more")
    if sum(hints.values()) > jobs:
        raise InvalidInput("jobs in hints", sum(hints.values()), f"at most all jobs, {jobs}")


def _head(largest: int, hints: Mapping[int, float], rng: np.random.Generator) -> dict[int, float]:
    """Per cent of the jobs by head value; `hints` are per cent."""
    times = head_times(largest, hints)
    shares = dict(enumerate(head_shares().tolist(), 1))
    reserved = {largest: 1} if largest in hints else {}
    for time in sorted(set(hints) - {largest}, key=lambda time: (-hints[time], time)):
        open_ranks = [rank for rank in range(2, HEAD + 1) if rank not in reserved.values()]
        reserved[time] = min(open_ranks, key=lambda rank: abs(shares[rank] - hints[time]))
    given = sum(hints.values())
    others = sum(share for rank, share in shares.items() if rank not in reserved.values())
    scale = max(0.0, HEAD_SHARE - given) / others if others else 0.0
    fixed = {rank: hints[time] for time, rank in reserved.items()}
    shares = {rank: fixed.get(rank, share * scale) for rank, share in shares.items()}
    ranks = _popularity(times, reserved, rng)
    return {time: shares[rank] for time, rank in zip(times, ranks, strict=True)}


def _popularity(times: list[int], reserved: Mapping[int, int], rng: np.random.Generator) -> list[int]:
    """How popular each head value is, drawn from its popularity in four logs."""
    taken = set(reserved.values())
    pool: list[int] = []
    ranks = []
    for at, time in enumerate(times):
        pool = [rank for rank in (*pool, *RANKS[at]) if rank not in taken]
        overdue = [rank for rank, latest in LATEST.items() if latest <= at and rank not in taken]
        if time in reserved:
            rank = reserved[time]
        elif at == 0:
            rank = 1
        elif overdue:
            rank = min(overdue)
        elif pool:
            rank = min(pool[which] for which in rng.integers(0, len(pool), 2).tolist())
        else:
            rank = min(rank for rank in LATEST if rank not in taken)
        taken.add(rank)
        ranks.append(rank)
    return ranks


def _tail(largest: int, head: Mapping[int, float], values: int, rng: np.random.Generator) -> dict[int, float]:
    """Per cent of the jobs by value of the tail."""
    bend = 1 + 12.1039 * (values + HEAD) ** -0.6026
    taken = set(head)
    for at in range(1, values + 1):
        x = at / values
        time = math.floor((bend - 1) * x / (bend - x) * largest / 60 + 0.5) * 60
        near = (time + move for move in TRIED_MOVES)
        if (place := next((t for t in near if 0 < t < largest and t not in taken), None)) is not None:
            taken.add(place)
    times = np.array(sorted(taken - set(head)), dtype=np.int64)
    shares = np.arange(HEAD + 1, HEAD + 1 + len(times)) ** -2.267
    shares *= (100 - HEAD_SHARE) / max(shares.sum(), 1e-300)
    return dict(zip(rng.permutation(times).tolist(), rng.permutation(shares).tolist(), strict=True))


def _repair(counts: dict[int, int], jobs: int, hints: Mapping[int, int]) -> None:
    """Change the counts that are not hints, the largest first, until they sum to `jobs`."""
    free = sorted((time for time in counts if time not in hints), key=lambda time: (-counts[time], time))
    gap = jobs - sum(counts.values())
    sign, left = (1 if gap > 0 else -1), abs(gap)
    rate = left / max(1, sum(counts[time] for time in free))
    steps: tuple[Callable[[int], int], ...] = (
        lambda count: math.ceil(rate * count),
        lambda count: 1,
        lambda count: left if sign > 0 else count - 1,
        lambda count: left if sign > 0 else count,
    )
    for number, step in enumerate(steps):
        least = 0 if number == len(steps) - 1 else 1
        for time in free:
            change = min(left, step(counts[time]))
            if sign < 0:
                change = max(0, min(change, counts[time] - least))
            counts[time] += sign * change
            left -= change
    if left:
        raise InvalidInput("jobs in hints", sum(hints.values()), f"as many as make {jobs} jobs with the others")
