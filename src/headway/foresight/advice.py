"""Due dates that can be kept: when a job ends with some probability, and what would make an earlier date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import ceil
from typing import Final, Protocol

import numpy as np

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.foresight.futures import Floats
from headway.model.events import Event, JobChanged, JobSubmitted, NodeJoined
from headway.model.forecast import Advice, Bounds, Chance, without_basis
from headway.model.instant import NEVER, SECOND, Duration, Instant
from headway.model.job import AnyJob, JobId
from headway.model.node import NodeSpec
from headway.model.plan import while_down
from headway.model.policy import PolicySource
from headway.sim.forecast import forecast

RUN_TIME_UNKNOWN: Final = (
    "neither an estimate nor earlier jobs of its user and name tell how long its tasks run, or those of a job before it"
)
TOO_FAR: Final = "it ends later than is looked ahead, or no known event gives it the slots that it needs"

PROBES: Final = 4
"""So many dates are tried where machines can be rented: who asks waits for each of them."""

SUBMITTED_WITHIN: Final[Duration] = SECOND
"""A date is kept if the job is submitted within so long after the answer: a job begins later by as much as it is
submitted later, so that much is added."""

ROUNDING: Final = 1e-9
"""What is closer to a whole number is that number."""

MORE_NODE: Final = "more"
"""The name of the node with the slots that would help, unless a node has it."""


class Foresees(Protocol):
    """Knows what may become of a state; a `Follower` does."""

    def unknown(self, state: StateRecord) -> AbstractSet[JobId]:
        """The open jobs of a state of which nothing tells how long their tasks run."""
        ...

    def outlook_on(self, state: StateRecord, job: JobId, due: Instant) -> tuple[Floats, Chance]:
        """When a job of a state ends, in order, one value for each future, in seconds from now on; and its chances."""
        ...


def tellable(futures: int) -> float:
    """The highest probability that so many futures tell: what comes is later than all of them in one case of n + 1.

    What comes is one more draw of the same kind, as likely as any of them to be the latest. So a date by which a job
    has ended in all futures is kept with n / (n + 1), and no date with more, as far as they tell. Nine tell 90 %.

    >>> tellable(9)
    0.9
    >>> round(tellable(40), 3)
    0.976
    """
    return futures / (futures + 1)


def needed(sure: float, futures: int) -> int:
    """In how many of the futures a job must have ended by a date that is chosen from their ends.

    >>> needed(0.9, 40), needed(0.9, 9), needed(0.9999, 40)
    (37, 9, 40)
    """
    return max(1, min(futures, ceil(sure * (futures + 1) - ROUNDING)))


def date_kept(ends: Floats, sure: float, since: Instant) -> Instant | None:
    """The first full second by which a job has ended with some probability; None: later than was looked ahead.

    Args:
        ends: when it ends, in order, one for each future, in seconds from `since` on; inf: not within reach.
        sure: the probability, above 0 and at most `tellable`.
    """
    at = float(ends[needed(sure, len(ends)) - 1])
    return None if np.isinf(at) else _full_second(since + round(at * SECOND))


def at_once() -> Duration:
    """The answer takes no time."""
    return 0


class Adviser:
    """Answers what a due date is worth, for a job that is open or that could be submitted now.

    A job that could be submitted is not there before the answer is. So its ends, and the date that it keeps, are later
    than in the simulations by as long as the answer took. That is an upper bound: where the job waits for others, it
    may lose less.

    Args:
        follower: what may become of a state.
        policies: finds a policy by its text.
        waited: how long ago the question was asked.
    """

    def __init__(self, follower: Foresees, policies: PolicySource, waited: Callable[[], Duration] = at_once) -> None:
        self._follower = follower
        self._policies = policies
        self._waited = waited

    def of(self, state: StateRecord, job: AnyJob | JobId, sure: float) -> Advice:
        """What is advised. A due date is later than the answer by `SUBMITTED_WITHIN` at least.

        Args:
            state: as it was when the question was asked.
            job: the terms of a job, or the id of an open one.
            sure: the probability that a due date is to be met with, between 0 and 1. If that is more than the futures
                tell, the answer is for the most that they do.

        Raises:
            HeadwayError: there is no such policy.
        """
        if not isinstance(job, int):
            due = job.due
        else:
            record = next((one for one in state.jobs if one.spec.id == job), None)
            if record is None:
                return Advice(sure, lack=f"job {job} has ended")
            due = record.spec.due if record.due is None else record.due
        wanted = NEVER if due is None else due
        if self._is_guess(state, job, wanted):
            return Advice(sure, lack=RUN_TIME_UNKNOWN)
        spare = 0 if isinstance(job, int) else SUBMITTED_WITHIN
        ends, chance = self._ends(state, job, wanted)
        sure = min(sure, tellable(len(ends)))
        kept = date_kept(ends, sure, state.now + spare)
        if kept is None:
            lack = TOO_FAR + while_down([node.spec.name for node in state.nodes if not node.up])
            return Advice(sure, chance=self._from_answer(state, job, wanted, ends, chance), lack=lack)
        sooner = date_kept(self._ends(state, job, kept)[0], sure, state.now + spare)
        if sooner is not None and sooner < kept and self._is_kept(state, job, sooner, sure):
            kept = sooner  # with a due date, it goes before others
        if state.market is not None and state.market.renting.offers:
            kept = self._rented_for(state, job, kept, sure)
        slots = None
        if wanted < NEVER and _share_by(ends, wanted - self._lost(job) - state.now) < sure:
            slots = self._slots(state, job, wanted - self._lost(job), sure)
        chance = self._from_answer(state, job, wanted, ends, chance)
        kept = max(kept + self._lost(job), state.now + self._waited() + SUBMITTED_WITHIN)
        return Advice(sure, _full_second(kept), chance, slots)

    def _lost(self, job: AnyJob | JobId) -> Duration:
        """How much later than in the simulations the job is there: an open one is there already."""
        return 0 if isinstance(job, int) else self._waited()

    def _from_answer(
        self, state: StateRecord, job: AnyJob | JobId, wanted: Instant, ends: Floats, chance: Chance
    ) -> Chance:
        """Its chances if it is submitted when the answer is there."""
        lost = self._lost(job)
        on_time = None if wanted >= NEVER else _share_by(ends, wanted - lost - state.now)
        return replace(chance, start=_moved(chance.start, lost), end=_moved(chance.end, lost), on_time=on_time)

    def _is_guess(self, state: StateRecord, job: AnyJob | JobId, due: Instant) -> bool:
        """Whether nothing tells how long the job runs, or another one that its end depends on."""
        supposed, number = self._supposed(state, job, due)
        unknown = self._follower.unknown(supposed)
        if not unknown:
            return False
        spec = next(one.spec for one in supposed.jobs if one.spec.id == number)
        if not unknown.isdisjoint((number, *spec.after)):
            return True
        return number in without_basis(forecast(supposed, self._policies, unknown=unknown).jobs, unknown)

    def _with(self, state: StateRecord, events: Sequence[Event]) -> StateRecord:
        core = Scheduler.restore(state, self._policies)
        for event in events:
            core.handle(event)
        return replace(core.dump(), now=state.now)

    def _ends(
        self, state: StateRecord, job: AnyJob | JobId, due: Instant, more: Sequence[Event] = ()
    ) -> tuple[Floats, Chance]:
        """When the job ends, in order, one for each future, in seconds from now on; and its chances."""
        supposed, number = self._supposed(state, job, due, more)
        return self._follower.outlook_on(supposed, number, due)

    def _supposed(
        self, state: StateRecord, job: AnyJob | JobId, due: Instant, more: Sequence[Event] = ()
    ) -> tuple[StateRecord, JobId]:
        """The state with the job and its due date, after more events; and the number of the job there."""
        event: Event
        if isinstance(job, int):
            number, event = job, JobChanged(state.now, job, due=due)
        else:
            # Its own number, if it has one: what is drawn for it depends on that, and is the same when it is there.
            number = max(job.id, max((one.spec.id for one in state.jobs), default=0) + 1)
            there = {one.spec.id for one in state.jobs}
            after = tuple(one for one in job.after if one in there)
            event = JobSubmitted(state.now, replace(job, id=number, due=None if due >= NEVER else due, after=after))
        return self._with(state, (*more, event)), number

    def _is_kept(
        self, state: StateRecord, job: AnyJob | JobId, due: Instant, sure: float, more: Sequence[Event] = ()
    ) -> bool:
        ends, _ = self._ends(state, job, due, more)
        spare = 0 if isinstance(job, int) else SUBMITTED_WITHIN
        return int(np.sum(ends <= (due - spare - state.now) / SECOND)) >= needed(sure, len(ends))

    def _rented_for(self, state: StateRecord, job: AnyJob | JobId, kept: Instant, sure: float) -> Instant:
        """An earlier date than `kept`, if there is one that is kept because machines are rented for it.

        What is rented depends on the date: nothing, if all is in time without, or if all is too late. So dates between
        now and `kept` are tried.
        """
        low = state.now
        for _ in range(PROBES):
            if kept - low <= max(SECOND, (kept - state.now) // 8):
                break
            tried = _full_second((low + kept) // 2)
            if tried >= kept:
                break
            if self._is_kept(state, job, tried, sure):
                kept = tried
            else:
                low = tried
        return kept

    def _slots(self, state: StateRecord, job: AnyJob | JobId, due: Instant, sure: float) -> int | None:
        """How many more slots, on a node like the largest one, would make the due date; None: no number up to as many
        as there are.
        """
        nodes = [node.spec for node in state.nodes]
        if not nodes:
            return None
        like = max(nodes, key=lambda node: (node.slots, node.speed))
        name = MORE_NODE
        while name in {node.name for node in nodes}:
            name += "-"

        def enough(slots: int) -> bool:
            one = NodeSpec(name, slots, like.speed, kind=like.kind, site=like.site, capabilities=like.capabilities)
            return self._is_kept(state, job, due, sure, (NodeJoined(state.now, one),))

        slots, most = 1, sum(node.slots for node in nodes)
        while not enough(slots):
            if slots >= most:
                return None
            slots = min(2 * slots, most)
        low = slots // 2
        while slots - low > max(1, slots // 8):  # to an eighth: more would not be sure either
            middle = (low + slots) // 2
            low, slots = (low, middle) if enough(middle) else (middle, slots)
        return slots


def _full_second(instant: Instant) -> Instant:
    """The first full second that is not before an instant."""
    return -(-instant // SECOND) * SECOND


def _share_by(ends: Floats, ahead: Duration) -> float:
    """In which share of the futures it has ended by so long after the instant of the state."""
    return float(np.mean(ends <= ahead / SECOND))


def _moved(bounds: Bounds | None, by: Duration) -> Bounds | None:
    """The same bounds, later by so much."""
    if bounds is None:
        return None
    levels = bounds.low_90, bounds.low_50, bounds.median, bounds.high_50, bounds.high_90
    return Bounds(*(None if instant is None else instant + by for instant in levels))
