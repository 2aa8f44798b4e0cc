"""What to rent, when, for which jobs and why: the rule of Kim12, and one that looks ahead.

Both are pure functions of what is to be done, what is offered, what is there, and now.

**Kim12** takes for each task the cheapest type on which it is expected to end in time. Readings: by falling expected
run time, as everything there; what is rented already and free is used first; a task that needs a machine gets one of
its own; what is billed counts, not the price of the time that is used.

**Ours** (`cheapest`) looks at all tasks at once (`headway.renting.packing`): a machine that is paid for is shared,
types are mixed, and what there is is used as long as due dates allow. A machine is to be asked for as late as they
allow (`Hire.at`), for until then something cheaper may turn up. A machine that may be taken back is used for what could
still be done again elsewhere, from the beginning, if it is taken back at the last moment.

Run times are not known but likely: each task has some that are equally likely. A due date is to be kept with a chosen
probability, that of all tasks of a job together. Tasks are packed as if each took as long as it takes with some higher
probability, and what came of it is counted in the futures that the run times are of. Where that is too seldom in time,
more is allowed for; where effort is left, also less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.errors import InvalidInput
from headway.model.forecast import SURE
from headway.model.instant import SECOND, Duration, Instant
from headway.model.job import JobId, TaskKey
from headway.model.renting import UNIT, Money, Offer
from headway.model.value import value
from headway.renting.packing import EFFORT, AtHand, LoadedMachine, Packing, PackingPiece, undominated
from headway.times import span_text

TAKEN_BACK_RISK: Final = 0.05
"""So often a machine is taken back in an hour that may be, unless something else is known."""

PACKED_AGAIN_MAX: Final = 1000
"""Tasks that are packed again, in all, to find out whether less needs to be allowed for."""


@value
class OpenTask:
    """A task that is to be done, on one slot.

    Attributes:
        due: of its job.
        times: how long it may take on a slot of speed 1: run times that are equally likely. The first of all tasks
            belong to one future, the second to another, and so on.
    """

    job: JobId
    task: int
    due: Instant
    times: tuple[Duration, ...]


@dataclass(frozen=True, slots=True)
class Hire:
    """A machine that is to be rented.

    Attributes:
        at: when to ask for it at the latest. Until then something cheaper may turn up.
        until: when its last task ends, if all take as long as is allowed for and it is asked for now.
        tasks: what it is for.
        cost: what is billed then.
        why: in words.
    """

    offer: Offer
    at: Instant
    until: Instant
    tasks: tuple[TaskKey, ...]
    cost: Money
    why: str

    @property
    def jobs(self) -> list[JobId]:
        """For which jobs; the one with the most tasks first."""
        tasks = Counter(job for job, _ in self.tasks)
        return sorted(tasks, key=lambda job: (-tasks[job], job))


@dataclass(frozen=True, slots=True)
class Use:
    """What is to run on a machine that there is.

    Attributes:
        machine: its place among those that were given.
        until: when its last task ends.
        cost: what is billed more than is paid.
    """

    machine: int
    until: Instant
    tasks: tuple[TaskKey, ...]
    cost: Money


@dataclass(frozen=True, slots=True)
class Choice:
    """What to rent.

    Attributes:
        hires: those to be asked for first come first.
        uses: what is to run on what there is.
        missed: tasks that nothing lets end in time as surely as is wanted.
        chance: how likely each job is to be in time, of those without missed tasks; as long as no machine is taken
            back.
    """

    hires: tuple[Hire, ...] = ()
    uses: tuple[Use, ...] = ()
    missed: tuple[TaskKey, ...] = ()
    chance: Mapping[JobId, float] = field(default_factory=dict)

    @property
    def cost(self) -> Money:
        """What is to be paid, above what is paid already."""
        return sum(hire.cost for hire in self.hires) + sum(use.cost for use in self.uses)


def left_of(offers: Sequence[Offer], machines: Sequence[AtHand]) -> list[int]:
    """How many more of each offer can be rented, with these there."""
    taken = Counter((machine.offer.site, machine.offer.type) for machine in machines)
    return [max(0, offer.limit - taken[offer.site, offer.type]) for offer in offers]


def cheapest(
    tasks: Sequence[OpenTask],
    offers: Sequence[Offer],
    machines: Sequence[AtHand] = (),
    *,
    now: Instant,
    sure: float = SURE,
    left: Sequence[int] | None = None,
    reserve: Duration = 0,
    risk: float = TAKEN_BACK_RISK,
    effort: int = EFFORT,
) -> Choice:
    """The machines on which all tasks end in time, as surely as is wanted, for the least money that is found.

    Args:
        machines: what there is, also the cluster's own, at the price 0.
        sure: the probability with which each job is to be in time, more than 0, at most 1.
        left: how many more of each offer can be rented; None: as many as its limit says.
        reserve: machines are asked for so long before they must be, in case they do not come.
        risk: how often a machine is taken back in an hour that may be.
        effort: bounds what is tried, see `headway.renting.packing`.

    Raises:
        InvalidInput: `sure`, or the run times of a task, are not allowed.
    """
    _check(tasks, sure)
    free = left_of(offers, machines) if left is None else left
    futures = _RunTimeFutures(tasks, now)
    sizes = Counter(task.job for task in tasks)
    levels = {job: sure ** (1 / size) for job, size in sizes.items()}

    worth = undominated(offers, free, len(tasks))

    def packed(levels: Mapping[JobId, float]) -> tuple[Packing, dict[JobId, float]]:
        times = futures.at_level([levels[task.job] for task in tasks])
        packing = Packing(
            _pieces(tasks, times, offers), offers, free, machines, now, risk=risk, effort=effort, worth=worth
        )
        packing.run()
        return packing, futures.chances(packing, {})

    packing, chance = packed(levels)
    if futures.are_several:
        lost = {tasks[one].job for one in packing.missed}
        if lost:  # a task that is in time too seldom by itself is so in its job; others may be
            packing, chance = packed(levels | dict.fromkeys(lost, sure))
            found = lost - {tasks[one].job for one in packing.missed}
            levels |= dict.fromkeys(found, sure)
            lost -= found
        for more in (lambda level: (1 + level) / 2, lambda _: 1.0):
            short = [job for job in levels if job not in lost and chance[job] < sure]
            if not short:
                break
            levels |= {job: more(levels[job]) for job in short}
            packing, chance = packed(levels)
            lost = {tasks[one].job for one in packing.missed}
        for share in (0.5, 0.75, 0.25, 0.9)[: PACKED_AGAIN_MAX // max(1, len(tasks)) - 1]:
            fewer = {job: level * (1 - share) + share * min(level, 0.5) for job, level in levels.items()}
            other, kept = packed(fewer)
            if len(other.missed) > len(packing.missed) or other.cost >= packing.cost:
                continue
            gone = {tasks[one].job for one in other.missed}
            if all(kept[job] >= sure for job in levels if job not in gone):
                packing, chance = other, kept
    return _choice(tasks, packing, futures, now, sure, reserve, chance)


def cheapest_each(
    tasks: Sequence[OpenTask],
    offers: Sequence[Offer],
    machines: Sequence[AtHand] = (),
    *,
    now: Instant,
    left: Sequence[int] | None = None,
) -> Choice:
    """The rule of Kim12: for each task the cheapest machine on which it is expected to end in time.

    Raises:
        InvalidInput: the run times of a task are not allowed.
    """
    _check(tasks, 1.0)
    free = list(left_of(offers, machines) if left is None else left)
    expected = [-(-sum(task.times) // len(task.times)) for task in tasks]
    ends = [list(machine.free) for machine in machines]
    used: list[list[int]] = [[] for _ in machines]
    hires, missed = [], []
    for one in sorted(range(len(tasks)), key=lambda one: (-expected[one], tasks[one].job, tasks[one].task)):
        task = tasks[one]
        found = []
        for place, machine in enumerate(machines):
            slot = min(range(len(ends[place])), key=ends[place].__getitem__)
            end = ends[place][slot] + ceil(expected[one] / machine.offer.speed)
            if end <= min(task.due, machine.until, machine.paid):
                found.append((end, place, slot))
        if found:
            end, place, slot = min(found)
            ends[place][slot] = end
            used[place].append(one)
            continue
        fits = []
        for kind, offer in enumerate(offers):
            span = offer.start_time + ceil(expected[one] / offer.speed)
            if free[kind] > 0 and now + span <= task.due:
                fits.append((offer.bill(span), span, kind))
        if not fits:
            missed.append((task.job, task.task))
            continue
        cost, span, kind = min(fits)
        free[kind] -= 1
        why = f"the cheapest of {len(fits)} types on which task {task.task} of job {task.job} ends in time"
        hires.append(Hire(offers[kind], now, now + span, ((task.job, task.task),), cost, why))
    uses = [
        Use(place, max(ends[place]), tuple((tasks[one].job, tasks[one].task) for one in pieces), 0)
        for place, pieces in enumerate(used)
        if pieces
    ]
    return Choice(tuple(hires), tuple(uses), tuple(missed))


def _check(tasks: Sequence[OpenTask], sure: float) -> None:
    if not 0 < sure <= 1:
        raise InvalidInput("sure", sure, "a probability, more than 0 and at most 1")
    count = len(tasks[0].times) if tasks else 1
    for task in tasks:
        if not task.times or len(task.times) != count or min(task.times) < 0:
            allowed = "as many as of the other tasks, at least one, none less than 0"
            raise InvalidInput(f"times of task {task.task} of job {task.job}", task.times, allowed)


def _pieces(tasks: Sequence[OpenTask], times: Sequence[Duration], offers: Sequence[Offer]) -> list[PackingPiece]:
    """Tasks of known length, and how long it takes to do them again on a machine that is not taken back."""
    firm = sorted({(offer.start_time, offer.speed) for offer in offers if not offer.spot})
    if not any(offer.spot for offer in offers) or not firm:
        return [PackingPiece(task.due, time) for task, time in zip(tasks, times, strict=True)]
    return [
        PackingPiece(task.due, time, min(start + ceil(time / speed) for start, speed in firm))
        for task, time in zip(tasks, times, strict=True)
    ]


class _RunTimeFutures:
    """The run times of all tasks, in each of the futures that are equally likely."""

    def __init__(self, tasks: Sequence[OpenTask], now: Instant) -> None:
        self._tasks, self._now = tasks, now
        count = len(tasks[0].times) if tasks else 1
        self.are_several = count > 1
        self._times: NDArray[np.int64] = np.array([task.times for task in tasks], np.int64).reshape(len(tasks), count)
        self._sorted: NDArray[np.int64] = np.sort(self._times, axis=1)

    def at_level(self, levels: Sequence[float]) -> list[Duration]:
        """For each task how long it takes at most, with this probability."""
        count = self._sorted.shape[1]
        places = np.maximum(np.ceil(np.array(levels) * count - 1e-9).astype(np.int64) - 1, 0)
        found: list[Duration] = self._sorted[np.arange(len(self._tasks)), np.minimum(places, count - 1)].tolist()
        return found

    def chances(self, packing: Packing, delays: Mapping[int, Duration]) -> dict[JobId, float]:
        """In how many of the futures each job is in time; those with missed tasks are in none.

        Args:
            delays: for machines by their place among the loads, how much later they are asked for.
        """
        jobs = {job: place for place, job in enumerate(dict.fromkeys(task.job for task in self._tasks))}
        rows, limits = list[int](), list[Instant]()
        slots = list[tuple[int, int, Instant, float]]()  # its first row, how many, when it is free, its speed
        for place, load in enumerate(packing.loads):
            delay = delays.get(place, 0)
            for start, pieces in zip(load.free, load.slots, strict=True):
                if pieces:
                    slots.append((len(rows), len(pieces), start + delay, load.offer.speed))
                    rows += pieces
                    limits += [min(self._tasks[piece].due, load.until) for piece in pieces]
        good = np.ones((len(jobs), self._times.shape[1]), np.bool_)
        if rows:
            first, many, free, speed = (np.array(column) for column in zip(*slots, strict=True))
            times, speeds = self._times[rows], np.repeat(speed, many)[:, np.newaxis]
            ends = np.cumsum(np.where(speeds == 1, times, np.ceil(times / speeds).astype(np.int64)), axis=0)
            before = np.where(first[:, np.newaxis] > 0, ends[first - 1], 0)  # all slots are in one row
            ends += np.repeat(free[:, np.newaxis] - before, many, axis=0)
            is_good = ends <= np.array(limits)[:, np.newaxis]
            np.logical_and.at(good, [jobs[self._tasks[piece].job] for piece in rows], is_good)
        for piece in packing.missed:
            good[jobs[self._tasks[piece].job]] = False
        return dict(zip(jobs, good.mean(axis=1).tolist(), strict=True))


def _choice(
    tasks: Sequence[OpenTask],
    packing: Packing,
    futures: _RunTimeFutures,
    now: Instant,
    sure: float,
    reserve: Duration,
    at_once: Mapping[JobId, float],
) -> Choice:
    """What was found, and how long renting can wait.

    Args:
        at_once: how likely each job is to be in time if all is asked for now.
    """
    delays = {
        place: max(0, packing.slack(load) - reserve) for place, load in enumerate(packing.loads) if load.machine is None
    }
    chance = futures.chances(packing, delays)
    if any(kept < sure for kept in chance.values()):
        short = {job for job, kept in chance.items() if kept < min(sure, at_once[job])}
        for place, load in enumerate(packing.loads):
            if place in delays and any(tasks[piece].job in short for piece in load.pieces):
                delays[place] = 0
        chance = futures.chances(packing, delays)
    hires, uses = [], []
    for place, load in enumerate(packing.loads):
        keys = tuple((tasks[piece].job, tasks[piece].task) for piece in sorted(load.pieces))
        until = packing.end(load)
        if load.machine is None:
            cost = load.offer.bill(until - now)
            hires.append(Hire(load.offer, now + delays[place], until, keys, cost, _why(load, keys, until - now, cost)))
        else:
            before = load.offer.bill(load.machine.paid - load.machine.since)
            cost = max(0, load.offer.bill(until - load.since) - before)
            uses.append(Use(load.kind - packing.offered, until, keys, cost))
    hires.sort(key=lambda hire: (hire.at, hire.offer.site, hire.offer.type, hire.tasks))
    missed = tuple((tasks[piece].job, tasks[piece].task) for piece in sorted(packing.missed))
    gone = {job for job, _ in missed}
    return Choice(tuple(hires), tuple(uses), missed, {job: kept for job, kept in chance.items() if job not in gone})


def _why(load: LoadedMachine, keys: Sequence[TaskKey], span: Duration, cost: Money) -> str:
    jobs = sorted({job for job, _ in keys})
    named = ", ".join(map(str, jobs[:3])) + (f" and {len(jobs) - 3} more" if len(jobs) > 3 else "")
    count = "1 task" if len(keys) == 1 else f"{len(keys)} tasks"
    whose = f"job {named}" if len(jobs) == 1 else f"jobs {named}"
    again = ", which could still be done again elsewhere" if load.offer.spot else ""
    return f"{count} of {whose}{again}: {cost / UNIT:.4g} for {span_text(span / SECOND)}"
