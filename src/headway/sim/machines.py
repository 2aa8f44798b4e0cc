"""The performance model of a simulation: how far each attempt is, and when it ends.

It knows nothing of events to come and of what is measured. The loop tells it what is launched, moved and ended; it says
when attempts end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from headway.core.state import State
from headway.model.actions import ChangeTier, Launch
from headway.model.events import TaskEnded
from headway.model.instant import NEVER, Duration, Instant, from_seconds
from headway.model.job import JobId, TaskKey
from headway.model.outcome import Outcome
from headway.model.seen import AttemptView, JobView
from headway.model.slots import Slots, numbers
from headway.model.tier import Tier
from headway.model.value import value
from headway.model.workload import Workload
from headway.sim.tiers import FULL, RATE_UNKNOWN, ByJob, Occupancy, SimulatedAttempt
from headway.sim.world import Timing, World

# Module constants, because looking up a member of an enumeration is slow.
FOREGROUND: Final = Tier.FOREGROUND
BACKGROUND: Final = Tier.BACKGROUND
KILLED: Final = Outcome.KILLED
SUCCEEDED: Final = Outcome.SUCCEEDED

"""A job and a number of a task."""


@value
class RemainingWork:
    """What is left of a task at an instant.

    Attributes:
        work: millionths of microseconds that it still takes on its slots at full rate, >= 0.
        total: microseconds that all of it takes there, >= 0.
        begins: when it goes on, if it is to wait before that; 0: at once.
    """

    work: int
    total: Duration
    begins: Instant = 0


class Machines:
    """What runs in a simulation, and how fast.

    Args:
        world: the parameters.
        timing: how long attempts run.
        jobs: the jobs, for their width and the CPU use of their processes.
        ids: their ids; None: their positions.

    Attributes:
        shares: whether attempts may share slots, so that `changed` must be asked after every event.
    """

    def __init__(self, world: World, timing: Timing, jobs: Workload, ids: Sequence[JobId] | None = None) -> None:
        self._world = world
        self._timing = timing
        self._plain = timing.plain
        self._jobs = jobs
        self._ids = ids
        self._uses = jobs.uses if ids is None else {ids[position]: uses for position, uses in jobs.uses.items()}
        self._migration_cost = from_seconds(world.migration_cost)
        self._kill_cost = from_seconds(world.kill_cost)
        self._running: dict[TaskKey, SimulatedAttempt] = {}
        self._places: Occupancy | None = None  # made when the first job starts in the background
        self._saving: set[TaskKey] = set()
        self._saved: dict[TaskKey, tuple[int, int]] = {}
        self._killed: set[TaskKey] = set()
        self._alone: dict[JobId, Duration] = {}
        self.shares = False

    def is_idle_but_for(self, jobs: Collection[JobId]) -> bool:
        """Whether nothing runs, or only tasks of these jobs do."""
        return all(job in jobs for job, _ in self._running)

    @property
    def alone(self) -> dict[JobId, Duration] | None:
        """How long the work of each job takes on slots of its own, if jobs ran on two tiers; else None."""
        return None if self._places is None else self._alone

    def launch(self, launch: Launch, start: Instant, state: State) -> SimulatedAttempt | None:
        """An attempt begins to run at an instant. Returns it if its end is known; else `changed` says when that is.

        Args:
            start: when it begins. It holds its slots from then on, and works when its site lets it begin and its inputs
                have arrived.
            state: the core's.
        """
        job, task, slots = launch.job, launch.task, launch.slots
        plain = self._plain
        if plain is not None and state.uniform:
            lasts = plain[job]
        else:
            lasts = self._timing.run_time(job, task, launch.attempt, slots, state)
            if not state.routes.is_free:
                start = max(start, self._inputs_at(state.jobs[job], task, slots, state))
        if state.sites:
            start += startup_on(slots, state)
        running = SimulatedAttempt(job, task, launch.attempt, slots, launch.tier, start, lasts)
        self._running[job, task] = running
        if self._places is None and launch.tier is FOREGROUND and not self._saved and not self._killed:
            return running
        return self._place(running, launch.seats, state)

    def is_due(self, job: JobId, task: int, number: int, at: Instant) -> bool:
        """Whether this attempt ends by itself at this instant; not if it has ended, or its speed has changed since."""
        running = self._running.get((job, task))
        return running is not None and running.number == number and running.end == at

    def suspend(self, job: JobId, task: int) -> None:
        """An attempt is to end and keep its work."""
        self._saving.add((job, task))

    def kill(self, job: JobId, task: int) -> None:
        """An attempt is to end and lose its work."""
        self._saving.discard((job, task))

    def saves(self, job: JobId, task: int) -> bool:
        """Whether an attempt that is to end keeps its work."""
        return (job, task) in self._saving

    def end(self, event: TaskEnded) -> None:
        """An attempt has ended."""
        key = event.job, event.task
        running = self._running.get(key)
        if running is None or running.number != event.attempt:
            return
        if event.outcome is KILLED:
            if key in self._saving:
                running.go_on(event.at, running.rate)
                self._saved[key] = running.left, running.total
            elif self._kill_cost and key not in self._saved:
                self._killed.add(key)
        elif event.outcome is SUCCEEDED:
            if self._saved:
                self._saved.pop(key, None)
            if self._places is not None:
                self._alone[event.job] = running.total
        self._leave(key)

    def lose(self, state: State) -> None:
        """Forget the attempts that the core has given up."""
        for key, running in list(self._running.items()):
            view = state.jobs.get(key[0])
            attempt = None if view is None else view.attempts.get(key[1])
            if attempt is None or attempt.number != running.number:
                self._leave(key)

    def change_tiers(self, changes: list[ChangeTier], state: State) -> None:
        """Move attempts to the other tier of their slots. All leave before any enters, because they may swap."""
        places = self._places or self._open_background(state)
        tiers = {(change.job, change.task): change.tier for change in changes}  # the last one counts
        for key in tiers:
            places.leave(self._running[key])
        for key, tier in tiers.items():
            running = self._running[key]
            running.tier = tier
            places.enter(running)

    def changed(self, now: Instant) -> list[SimulatedAttempt]:
        """Let everything go on from now at its rate. Returns the attempts whose end has changed; -1: never."""
        return [] if self._places is None else self._places.changed(now)

    def left(self, now: Instant) -> dict[TaskKey, RemainingWork]:
        """What is left at an instant of the tasks that run, or continue later; see `take_over`."""
        found = {key: RemainingWork(left, total) for key, (left, total) in self._saved.items()}
        for key, running in self._running.items():
            done = running.rate * max(0, now - running.since)
            found[key] = RemainingWork(
                max(0, running.left - done), running.total, running.since if running.since > now else 0
            )
        return found

    def take_over(
        self, state: State, known: dict[TaskKey, RemainingWork], begun: Collection[TaskKey] = ()
    ) -> list[SimulatedAttempt]:
        """Let everything that runs in a state go on. Returns the attempts with the instants at which they end.

        Args:
            known: what is left of tasks that run or have saved their work. For others it follows from how long they
                run, and from the time that they have run in the foreground; progress in the background is not known
                and counts as none.
            begun: tasks of which it is known that they have begun since they were launched.
        """
        now = state.now
        for attempt in state.attempts():
            key = attempt.job.id, attempt.task
            left = known.get(key)
            self._running[key] = (
                self._begun(attempt, now, state, begun) if left is None else _going_on(attempt, now, left)
            )
            if attempt.saving:
                self._saving.add(key)
        for job in state.jobs.values():
            for task, kept in job.kept.items():
                if task not in job.attempts and (job.id, task) not in known:
                    whole = job.estimate_of(task)
                    self._saved[job.id, task] = max(0, whole - kept) * FULL, whole
        for key, left in known.items():
            if key[0] in state.jobs and key not in self._running:
                self._saved[key] = left.work, left.total
        if state.runs_behind():
            self._open_background(state).changed(now)
        return [running for running in self._running.values() if running.end >= 0]

    def _begun(self, attempt: AttemptView, now: Instant, state: State, begun: Collection[TaskKey]) -> SimulatedAttempt:
        """How an attempt continues whose progress follows from the time that it has run."""
        job, task, slots = attempt.job, attempt.task, attempt.slots
        lasts = self._timing.run_time(job.id, task, attempt.number, slots, state)
        left = max(0, lasts - job.kept.get(task, 0))
        if attempt.tier is FOREGROUND:
            begin = max(attempt.since, self._inputs_at(job, task, slots, state))
            if state.sites and (job.id, task) not in begun and attempt.since == attempt.start:
                begin += startup_on(slots, state)
            left = max(0, begin + left - now)
        return SimulatedAttempt(job.id, task, attempt.number, slots, attempt.tier, now, left)

    def _inputs_at(self, job: JobView, task: int, slots: Slots, state: State) -> Instant:
        """When a task has what other tasks send to it."""
        return state.inputs_at(job, task, state.slot_nodes[slots.bit_length() - 1].spec) if job.outputs else -NEVER

    def _place(self, running: SimulatedAttempt, seats: tuple[int, ...], state: State) -> SimulatedAttempt | None:
        """Start an attempt that shares its slots with others, or continues or repeats an earlier attempt."""
        key = running.job, running.task
        if key in self._saved:
            left, total = self._saved[key]
            running.left = -(-left * running.total // total) if total else 0
            running.since += self._migration_cost
        elif key in self._killed:
            self._killed.discard(key)
            running.since += self._kill_cost
        running.go_on(running.since, FULL)
        self._seat(running, seats)
        if self._places is None and running.tier is BACKGROUND:
            self._open_background(state, running)
        if self._places is None:
            return running
        running.rate = RATE_UNKNOWN
        running.bounds = state.jobs[running.job].attempts[running.task].bounds
        self._places.enter(running)
        return None

    def _leave(self, key: TaskKey) -> None:
        running = self._running.pop(key)
        if self._saving:
            self._saving.discard(key)
        if self._places is not None:
            self._places.leave(running)

    def _seat(self, running: SimulatedAttempt, seats: tuple[int, ...]) -> None:
        """Record the CPU use of each process by slot, if they differ."""
        uses = self._uses.get(running.job)
        if uses is not None:
            running.uses = dict(zip(seats or numbers(running.slots), uses, strict=True))

    def _open_background(self, state: State, first: SimulatedAttempt | None = None) -> Occupancy:
        """Create the places, with everything that runs already."""
        tiers, jobs, seed = self._world.tiers, self._jobs, self._world.seed
        self._places = Occupancy(
            self._by_job(tiers.cpu_use(jobs, seed).tolist()),
            self._by_job(tiers.losses(len(jobs), seed)),
            self._by_job(tiers.gains(jobs.width, seed)),
            alone=tiers.alone,
        )
        self.shares = True
        for (job, task), running in self._running.items():
            if running is not first:
                attempt = state.jobs[job].attempts[task]
                self._seat(running, attempt.seats)
                running.bounds = attempt.bounds
                self._places.enter(running)
        return self._places

    def _by_job(self, column: list[float]) -> ByJob:
        return column if self._ids is None else dict(zip(self._ids, column, strict=True))


def startup_on(slots: Slots, state: State) -> Duration:
    """How long an attempt holds these slots before it begins its work."""
    return max([state.startup_at(state.slot_nodes[slot].spec) for slot in numbers(slots)])


def _going_on(attempt: AttemptView, now: Instant, left: RemainingWork) -> SimulatedAttempt:
    """How an attempt continues of which it is known what is left."""
    begins = max(now, left.begins)
    running = SimulatedAttempt(
        attempt.job.id, attempt.task, attempt.number, attempt.slots, attempt.tier, begins, left.total
    )
    running.left = left.work
    running.go_on(begins, FULL)
    return running
