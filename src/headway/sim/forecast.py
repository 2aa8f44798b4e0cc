"""What becomes of the jobs of a live state if every task takes as long as estimated: a simulation that begins there.

Core and policy are the real ones, restored from a record of the state; only the machines are simulated. So the forecast
of a job follows from the rules that will be applied to it, under every policy, and no rule is written twice.

Events from outside are left out: nodes stay as they are, and nobody submits or cancels anything. A decider is not asked
about the future; the policy runs instead, as it does when a decider fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from headway.core.record import StateRecord
from headway.core.recorder import OpenAttempt, Recorder
from headway.core.scheduler import Scheduler
from headway.errors import in_short
from headway.model.actions import Action, ChangeTier, Conclude, Launch
from headway.model.events import Event
from headway.model.forecast import ASSUMED_MAX, AWAITED_MAX, Awaited, Expected, Forecast
from headway.model.instant import NEVER, Instant
from headway.model.job import JobId, TaskKey
from headway.model.outcome import Outcome
from headway.model.policy import PolicySource
from headway.model.slots import NO_SLOTS, Slots, count, numbers, of_numbers, outside
from headway.model.tier import Tier
from headway.sim.kernel import Simulation
from headway.sim.states import Origin
from headway.sim.tiers import TwoTiers
from headway.sim.world import World

FORECAST_WORK_MAX: Final = 100_000
"""A forecast ends after this much work. Each event counts 1. Each round counts 1 for each 100 waiting jobs, and 1 for
each job that has a promise."""

WIDE: Final = 64
"""Which task has left a slot is noted slot by slot for those of fewer slots, and else for all of them together."""

WORLD: Final = World(
    tiers=TwoTiers(loss=(0.0225, 0.0225), single=(0.86, 0.86), several=(0.43, 0, 0.43, 0.43), cpu=(0.7, 0.7)),
    migration_cost=0,
)
"""Everything takes as long as estimated. The cost of two tiers is the middle of what MEASY14 measured."""


def forecast(
    state: StateRecord | Origin,
    policies: PolicySource,
    work_max: int = FORECAST_WORK_MAX,
    *,
    unknown: Collection[JobId] = (),
) -> Forecast:
    """What is expected of the open jobs of a state.

    The limit counts work, not seconds, so that the same state gives the same forecast everywhere.

    Args:
        state: as `Scheduler.dump` gives it, or its `Origin`.
        work_max: see `FORECAST_WORK_MAX`.
        unknown: jobs of which the past tells nothing, either. Of those without an estimate they are named first.

    Raises:
        HeadwayError: there is no such policy.
    """
    origin = Origin.of(state)
    record = origin.state
    told: list[_Prospects] = []

    def recorder(core: Scheduler) -> Recorder:
        told.append(_Prospects(core, work_max, unknown))
        return told[0]

    simulation = Simulation.from_state(origin, policies, world=WORLD, recorder=recorder)
    until, failure = None, ""
    try:
        simulation.advance()
    except _FarEnough:
        until = simulation.scheduler.state.now
    except Exception as raised:  # noqa: BLE001  # a policy, maybe a third party's, fails as it would in a round
        until, failure = simulation.scheduler.state.now, in_short(f"{record.policy} raised {raised!r}")
    expected = tuple(told[0].expected(job.spec.id for job in record.jobs))
    return Forecast(record.now, until, record.estimate_default, expected, failure)


class _FarEnough(Exception):
    """The limit of work is reached."""


class _Prospects(Recorder):
    """Records what jobs wait for, too, and ends the simulation when the limit of work is reached."""

    def __init__(self, core: Scheduler, work_max: int, unknown: Collection[JobId]) -> None:
        super().__init__(core, holdings=False)
        jobs = core.state.jobs.values()
        self._work_left = work_max
        self._noted = core.rounds
        self._unsaid = {job.id for job in jobs if not job.graph and not job.is_estimated(0)}
        self._unknown = frozenset(unknown)
        self._assumed_unknown: dict[JobId, None] = {}
        self._assumed: dict[JobId, None] = {}
        self._assumed_at_start: dict[JobId, tuple[JobId, ...]] = {}
        self._assumed_at_launch: dict[JobId, tuple[JobId, ...]] = {}  # the last one
        self._assumed_at_end: dict[JobId, tuple[JobId, ...]] = {}
        self._behind = {attempt.job.id for attempt in core.state.attempts() if attempt.tier is Tier.BACKGROUND}
        self._began: dict[TaskKey, Instant] = {}
        self._workflows = {job.id: job for job in jobs if job.graph}
        self._due = {job.id: (job.spec, job.due) for job in jobs}  # `change` may have set another than the spec's
        self._settled: dict[TaskKey, tuple[Awaited, Slots]] = {}
        self._first = _Leavers()
        self._last = _Leavers()
        self._awaits: dict[JobId, tuple[Awaited, ...]] = {}

    def take_over(self) -> None:
        """Record the jobs in the system. A start that is expected is that of the next task, not of those that run."""
        super().take_over()
        self.start.clear()

    def note(self, event: Event, actions: list[Action], start: Instant) -> None:
        """Record what an event has changed.

        Raises:
            _FarEnough: the limit of work is reached.
        """
        super().note(event, actions, start)
        core = self._core
        for action in actions:
            if type(action) is Launch:
                self._began[action.job, action.task] = core.state.now
                self._assumed_at_launch[action.job] = self._so_far()
                if action.tier is Tier.BACKGROUND:
                    self._behind.add(action.job)
                if action.job not in self._awaits:
                    self._awaits[action.job] = self._before(action)
                    self._assumed_at_start[action.job] = self._assumed_at_launch[action.job]
            elif type(action) is ChangeTier:
                self._behind.add(action.job)
            elif type(action) is Conclude:
                self._assumed_at_end[action.job] = self._assumed_of(action.job)
        self._work_left -= 1
        if core.rounds != self._noted:
            self._noted = core.rounds
            for pool in core.state.each():
                self._work_left -= len(pool.waiting) // 100 + len(pool.promised)
        if self._work_left <= 0:
            raise _FarEnough

    def _close(self, key: TaskKey, run: OpenAttempt, outcome: Outcome | None) -> None:
        job, task = key
        keeps_work = outcome is Outcome.SUCCEEDED or (outcome is Outcome.KILLED and key in self._saving)
        left = Awaited(job, task, NO_SLOTS, self._began.get(key), self._core.state.now)
        workflow = self._workflows.get(job)
        if keeps_work and (job in self._unsaid if workflow is None else not workflow.is_estimated(task)):
            (self._assumed_unknown if job in self._unknown else self._assumed)[job] = None
        if workflow is not None:
            self._settled[key] = left, run.slots
        if run.tier is Tier.FOREGROUND:
            self._last.note(left, run.slots)
            if left.start is None:
                self._first.note(left, run.slots)
        super()._close(key, run, outcome)

    def _so_far(self) -> tuple[JobId, ...]:
        """Jobs without an estimate of which tasks have ended."""
        return tuple(islice(chain(self._assumed_unknown, self._assumed), ASSUMED_MAX))

    def _assumed_of(self, job: JobId) -> tuple[JobId, ...]:
        """Those on which the end of a job rests that has ended now: others until its last task began, since that takes
        as long whatever becomes of them; in the background it does not.
        """
        own = (job,) if job in self._assumed or job in self._assumed_unknown else ()
        others = self._so_far() if job in self._behind else self._assumed_at_launch.get(job, ())
        return tuple(dict.fromkeys((*own, *others)))[:ASSUMED_MAX]

    def _before(self, launch: Launch) -> tuple[Awaited, ...]:
        """What the task waited for: tasks it comes after, and what ran on its slots first and last; ordered by end."""
        found: dict[Awaited, Slots] = {}
        workflow = self._workflows.get(launch.job)
        for task in () if workflow is None else workflow.graph[launch.task].after:
            if (launch.job, task) in self._settled:
                left, slots = self._settled[launch.job, task]
                found[left] = slots
        for leavers in (self._first, self._last):
            for left, slots in leavers.on(launch.slots):
                found[left] = found.get(left, NO_SLOTS) | slots
        by_end = sorted(found, key=lambda one: (one.end, one.job, one.task))
        return tuple(replace(one, slots=found[one]) for one in by_end[-AWAITED_MAX:])

    def expected(self, jobs: Iterable[JobId]) -> Iterator[Expected]:
        """The results of the forecast."""
        so_far = self._so_far()
        for job in jobs:
            yield Expected(
                job,
                self.start.get(job),
                self.end.get(job),
                self._awaits.get(job, ()),
                self._assumed_at_start.get(job, ()),
                self._assumed_at_end.get(job, so_far),
                self._penalty(job),
            )

    def _penalty(self, job: JobId) -> float:
        """What a job costs if it ends when it is expected to."""
        (spec, due), end = self._due[job], self.end.get(job)
        return 0.0 if end is None or due >= NEVER else spec.penalty_of(end - due)


class _Leavers:
    """Which task was the last to leave each slot. A task on all slots of a machine costs no more than one on a few."""

    def __init__(self) -> None:
        self._narrow: dict[int, Awaited] = {}
        self._of_narrow = NO_SLOTS
        self._wide: list[tuple[Awaited, Slots]] = []

    def note(self, left: Awaited, slots: Slots) -> None:
        """A task has left slots."""
        if count(slots) < WIDE:
            self._narrow |= dict.fromkeys(numbers(slots), left)
            self._of_narrow |= slots
            return
        rest = [(one, outside(there, slots)) for one, there in self._wide]
        self._wide = [(one, there) for one, there in rest if there]
        self._wide.append((left, slots))
        for slot in numbers(self._of_narrow & slots):
            del self._narrow[slot]
        self._of_narrow = outside(self._of_narrow, slots)

    def on(self, slots: Slots) -> Iterator[tuple[Awaited, Slots]]:
        """Who left these slots last, and which of them."""
        found: dict[Awaited, list[int]] = {}
        for slot in numbers(self._of_narrow & slots):
            found.setdefault(self._narrow[slot], []).append(slot)
        for left, there in found.items():
            yield left, of_numbers(there)
        others = outside(slots, self._of_narrow)
        for left, everywhere in self._wide:
            if everywhere & others:
                yield left, everywhere & others
