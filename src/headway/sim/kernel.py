"""The event heap around the core: feeds what happens in virtual time, performs what the core asks for."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from time import perf_counter
from typing import Final, Protocol

import numpy as np

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput, did_you_mean
from headway.model.actions import Action, ChangeTier, Conclude, Consult, JobStatus, Kill, Launch, Settle, Suspend, Wake
from headway.model.events import (
    Advised,
    DeciderChosen,
    Event,
    JobSubmitted,
    NodeDown,
    NodeJoined,
    NodeUp,
    TaskEnded,
    TaskSaved,
    Woke,
)
from headway.model.instant import NEVER, SECOND, Duration, Instant, from_seconds
from headway.model.job import JobSpec, Kind
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.plan import PlanRecord
from headway.model.schedule import NOT_YET, STATUSES, Schedule, attempts_of, schedule_of
from headway.model.slots import NO_SLOTS, Slots, numbers
from headway.model.snapshot import Policy, PolicySource
from headway.model.tier import Tier
from headway.model.workload import Workload
from headway.sim.faults import Outage
from headway.sim.specs import specs
from headway.sim.tiers import FULL, UNKNOWN, Places, Running
from headway.sim.timed import TimedPolicy
from headway.sim.world import Stopwatch, Timing, World

# Events of one instant are fed in this order: ends, then nodes' coming and going, then submissions, then wakes.
END: Final = 0
NODE: Final = 1
SUBMIT: Final = 2
WAKE: Final = 3

# Module constants, because looking up a member of an enumeration is slow.
RIGID: Final = Kind.RIGID
FOREGROUND: Final = Tier.FOREGROUND
BACKGROUND: Final = Tier.BACKGROUND
KILLED: Final = Outcome.KILLED
SUCCEEDED: Final = Outcome.SUCCEEDED

Holdings = tuple[list[int], list[int], list[int], list[int]]
"""Columns of `schedule.Holdings` as they grow."""

NONE_HELD: Final = (0, 0)

Due = tuple[Instant, int, int, int, int, Event | None]
LAST: Final[Due] = (NEVER, WAKE, 0, 0, 0, None)
"""Later than everything in the heap."""

PROGRESS_EVERY: Final = 4096

IDLE_WAKES_MAX: Final = 10_000
"""After this many wakes in a row, with nothing running and nothing else in the heap, the simulation ends."""

Progress = Callable[[int, int], None]
"""Called now and then with the number of jobs that have ended, and of all jobs."""


class Decider(Protocol):
    """A decider somewhere else; virtual time stands still until it has answered."""

    @property
    def url(self) -> str:
        """Where it is."""
        ...

    def __call__(self, snapshot: StateRecord) -> PlanRecord: ...


class Simulation:
    """One run of a workload on a cluster under a policy.

    Args:
        workload: the jobs; a job's position is its id.
        nodes: the cluster.
        policies, policy: the source of policies, and the text that names the one to use.
        world: the performance model.
        outages: when nodes are down.
        estimate_default, period: as of `Scheduler`.
        decider: makes the plans instead of the policy; None: the policy makes them.
        record: whether to keep which attempt ran on which slots (needed for a Gantt chart).
        audit: called with the scheduler after every event; tests check the whole state there.
        journal: if given, every event is appended to it.

    Raises:
        InvalidInput: the cluster has no slots, a job can never run on it, or an outage names a node it does not have.
    """

    def __init__(
        self,
        workload: Workload,
        nodes: Sequence[NodeSpec],
        policies: PolicySource,
        policy: str,
        *,
        world: World | None = None,
        outages: Sequence[Outage] = (),
        estimate_default: Duration = 600 * SECOND,
        period: Duration | None = None,
        decider: Decider | None = None,
        record: bool = False,
        audit: Callable[[Scheduler], None] | None = None,
        journal: list[Event] | None = None,
    ) -> None:
        self.workload = workload
        # In virtual time messages take no time, so nothing is read ahead and no heartbeats are needed.
        self.nodes = [replace(node, read_ahead=0, lease=None, reports_start=False) for node in nodes]
        self.world = world or World()
        told = self.world.decision_time
        self._decision_time = None if told is None else from_seconds(told)
        self._migration_cost, self._kill_cost = (
            from_seconds(self.world.migration_cost),
            from_seconds(self.world.kill_cost),
        )
        self.outages = outages
        self._timed: list[TimedPolicy] = []
        self.scheduler = Scheduler(
            lambda text: self._time(policies(text)), policy, estimate_default=estimate_default, period=period
        )
        self._decider = decider
        self._question: int | None = None
        self._advice_seconds = 0.0
        self._audit = audit
        self._journal = journal
        self._check()
        jobs = len(workload)
        self.start = [NOT_YET] * jobs
        self.end = [NOT_YET] * jobs
        self.status = [0] * jobs
        self._concluded = 0
        self._heap: list[Due] = []
        self._running: dict[tuple[int, int], Running] = {}
        self._busy = self._work_lost = self._kills = self._migrations = 0
        self._places: Places | None = None  # made when the first job starts in the background
        self._saving: set[tuple[int, int]] = set()
        self._saved: dict[tuple[int, int], tuple[int, int]] = {}
        self._killed: set[tuple[int, int]] = set()
        self._alone: dict[int, int] = {}
        self._timing: Timing = Stopwatch(self.world, workload)
        self._runs: list[tuple[int, Slots, int, int, bool, bool]] | None = [] if record else None
        self._rounds: list[Instant] = []
        only_rigid = bool((workload.kind == RIGID).all())
        self._holdings: Holdings | None = None if only_rigid else ([], [], [], [])
        self._held: dict[int, tuple[int, int]] = {}
        self._most: list[int] = [] if only_rigid else [0] * jobs

    def _time(self, policy: Policy) -> Policy:
        timed = TimedPolicy(policy)
        self._timed.append(timed)
        return timed

    def _check(self) -> None:
        """Refuse outages of unknown nodes, and jobs that can never run on this cluster."""
        slots = sum(node.slots for node in self.nodes)
        if slots == 0:
            raise InvalidInput("slots", slots, "1 or more")
        names: set[str] = set()
        for node in self.nodes:
            if node.name in names:
                raise InvalidInput("name of a node", node.name, "a name that no other node has")
            names.add(node.name)
        for outage in self.outages:
            if outage.node not in names:
                hint = did_you_mean(outage.node, names)
                raise InvalidInput("node of an outage", outage.node, "a node of the cluster", hint=hint)
        too_wide = self.workload.width > slots
        if too_wide.any():
            job = int(too_wide.argmax())
            raise InvalidInput(
                "width",
                int(self.workload.width[job]),
                f"at most {slots}, the slots of the cluster",
                source=f"job {self.workload.label[job]}",
                hint="Give the cluster more slots, or read the log with its size, so that such jobs are dropped.",
            )
        wanted = {task.cores for plan in self.workload.workflows.values() for task in plan}
        held = {cores for cores in wanted if any(node.slots_for(cores) <= node.slots for node in self.nodes)}
        for position, plan in self.workload.workflows.items() if held < wanted else ():
            for number, task in enumerate(plan):
                if task.cores not in held:
                    source = f"job {self.workload.label[position]}"
                    raise InvalidInput(f"plan[{number}].cores", task.cores, "those of one node at most", source=source)

    def run(self, progress: Progress | None = None) -> Schedule:
        """Run to the last end and return what became of every job.

        Raises:
            Exception: whatever the policy or the decider raises.
        """
        state, jobs = self.scheduler.state, len(self.workload)
        begin = int(self.workload.release[0]) if jobs else 0
        for node in self.nodes:
            self._feed(NodeJoined(begin, node))
        if self._decider is not None:
            self._feed(DeciderChosen(begin, self._decider.url))
        for position, outage in enumerate(self.outages):
            at = from_seconds(outage.at)
            self._heap.append((at, NODE, position, 0, 0, NodeDown(at, outage.node)))
            if outage.until is not None:
                back = from_seconds(outage.until)
                self._heap.append((back, NODE, position, 1, 0, NodeUp(back, outage.node)))
        heapify(self._heap)
        if self._holdings is not None:
            state.touched = []
        collecting = gc.isenabled()
        gc.disable()  # no lasting cycles are formed here, and the collector would visit the whole log again and again
        try:
            self._loop(progress)
        finally:
            if collecting:
                gc.enable()
        return self._schedule(begin)

    def _loop(self, progress: Progress | None) -> None:
        heap, submissions, jobs = self._heap, self._submissions(), len(self.workload)
        job = next(submissions, None)
        fed = idle = 0
        while heap or job is not None:
            first = heap[0] if heap else LAST
            if job is not None and (job.release < first[0] or (job.release == first[0] and first[1] > SUBMIT)):
                if job.after and self._comes_in_vain(job):
                    self._conclude(job.id, job.release, JobStatus.CANCELLED)
                else:
                    self._feed(JobSubmitted(job.release, job))
                job = next(submissions, None)
            else:
                at, rank, number, task, attempt, event = heappop(heap)
                if rank != END:
                    if self._concluded == jobs:
                        break  # only outages and wakes are left
                    assert event is not None
                    self._feed(event)
                    idle = idle + 1 if rank == WAKE and not self._running else 0
                    if idle > IDLE_WAKES_MAX and job is None and all(entry[1] == WAKE for entry in heap):
                        break  # rounds change nothing any more: the jobs that are left can never run
                elif event is None:
                    running = self._running.get((number, task))
                    if running is None or running.number != attempt or running.end != at:
                        continue  # it was killed or lost before, or its speed has changed since
                    self._feed(TaskEnded(at, number, task, attempt))
                else:
                    if (number, task) in self._saving:
                        self._feed(TaskSaved(at, number, task, -attempt))
                    self._feed(event)
            fed += 1
            if progress is not None and not fed % PROGRESS_EVERY:
                progress(self._concluded, jobs)
        if progress is not None:
            progress(self._concluded, jobs)

    def _comes_in_vain(self, job: JobSpec) -> bool:
        """Whether a job that this one comes after has ended without success. A server would not accept it then."""
        ended = (before for before in job.after if before not in self.scheduler.state.jobs)
        return any(STATUSES[self.status[before]] is not JobStatus.SUCCEEDED for before in ended)

    def _conclude(self, job: int, now: Instant, status: JobStatus) -> None:
        self.end[job] = now
        self.status[job] = STATUSES.index(status)
        self._concluded += 1

    def _feed(self, event: Event, advice_seconds: float = 0.0) -> None:
        scheduler = self.scheduler
        rounds = scheduler.rounds
        if self._journal is not None:
            self._journal.append(event)
        thought = self._timed[-1].seconds
        actions = scheduler.handle(event)
        if scheduler.failure is not None:
            raise scheduler.failure
        if type(event) is TaskEnded:
            self._ended(event)
        elif type(event) is NodeDown:
            self._lost(event)
        if actions:
            self._perform(actions, self._timed[-1].seconds - thought + advice_seconds)
        if self._places is not None:
            for running in self._places.changed(scheduler.state.now):
                if running.end >= 0:
                    heappush(self._heap, (running.end, END, running.job, running.task, running.number, None))
        if self._holdings is not None:
            self._note_holdings(self._holdings)
            if scheduler.rounds != rounds:
                self._rounds.append(scheduler.state.now)
        if self._audit is not None:
            self._audit(scheduler)
        question, self._question = self._question, None
        if question is not None and self._decider is not None:
            self._consult(self._decider, question)

    def _consult(self, decider: Decider, question: int) -> None:
        """Ask the decider, and feed its answer at this same instant."""
        began = perf_counter()
        plan = decider(self.scheduler.dump())
        seconds = perf_counter() - began
        self._advice_seconds += seconds
        self._feed(Advised(self.scheduler.state.now, question, plan), seconds)

    def _perform(self, actions: list[Action], thought: float) -> None:
        now, state = self.scheduler.state.now, self.scheduler.state
        plain = self._timing.plain if state.uniform else None
        delay = self._decision_time
        start = now + (round(thought * SECOND) if delay is None else delay)
        changes: list[ChangeTier] = []
        for action in actions:
            if type(action) is Launch:
                if changes:
                    self._change_tiers(changes)
                    changes = []
                job, task, number, slots = action.job, action.task, action.attempt, action.slots
                lasts = (
                    plain[job]
                    if plain is not None
                    else self._timing.run_time(job, task, number, slots, state.slot_nodes)
                )
                if self.start[job] < 0:
                    self.start[job] = start
                running = self._running[job, task] = Running(job, task, number, slots, action.tier, start, lasts)
                if self._places is None and action.tier is FOREGROUND and not self._saved and not self._killed:
                    heappush(self._heap, (start + lasts, END, job, task, number, None))
                else:
                    self._place(running, action.seats)
            elif type(action) is Settle:
                pass
            elif type(action) is Conclude:
                self._conclude(action.job, now, action.status)
            elif type(action) is Wake:
                heappush(self._heap, (max(now, action.at), WAKE, 0, 0, 0, Woke(action.at)))
            elif type(action) is Kill or type(action) is Suspend:
                if type(action) is Suspend:
                    self._saving.add((action.job, action.task))
                else:
                    self._saving.discard((action.job, action.task))
                ended = TaskEnded(now, action.job, action.task, action.attempt, KILLED)
                # The minus sign tells this end from the attempt's own end, which may be at the same instant.
                heappush(self._heap, (now, END, action.job, action.task, -action.attempt, ended))
            elif type(action) is ChangeTier:
                changes.append(action)
            else:
                assert type(action) is Consult
                self._question = action.question
        if changes:
            self._change_tiers(changes)

    def _submissions(self) -> Iterator[JobSpec]:
        """The jobs as they are submitted to the scheduler."""
        told = self.workload
        if self.world.cpu == "unknown":
            told = replace(told, cpu=np.full(len(told), np.nan), uses={})
        elif self.world.cpu == "drawn":
            told = replace(told, cpu=self.world.tiers.cpu_use(told, self.world.seed))
        return specs(told, movable=True)

    def _place(self, running: Running, seats: tuple[int, ...]) -> None:
        """Start an attempt that shares its slots with others, or continues or repeats an earlier attempt."""
        place = running.job, running.task
        if place in self._saved:
            left, total = self._saved[place]
            running.left = -(-left * running.total // total) if total else 0
            running.since += self._migration_cost
        elif place in self._killed:
            self._killed.discard(place)
            running.since += self._kill_cost
        running.go_on(running.since, FULL)
        self._seat(running, seats)
        if self._places is None and running.tier is BACKGROUND:
            self._open_background(running)
        if self._places is not None:
            running.rate = UNKNOWN
            self._places.enter(running)
        else:
            heappush(self._heap, (running.end, END, running.job, running.task, running.number, None))

    def _seat(self, running: Running, seats: tuple[int, ...]) -> None:
        """Record the CPU use of each process by slot, if they differ."""
        uses = self.workload.uses.get(running.job)
        if uses is not None:
            running.uses = dict(zip(seats or numbers(running.slots), uses, strict=True))

    def _open_background(self, first: Running | None = None) -> Places:
        """Create the places, with everything that runs already."""
        world, workload = self.world, self.workload
        self._places = Places(
            world.tiers.cpu_use(workload, world.seed).tolist(),
            world.tiers.losses(len(workload), world.seed),
            world.tiers.gains(workload.width, world.seed),
            alone=world.tiers.alone,
        )
        for (job, task), running in self._running.items():
            if running is not first:
                self._seat(running, self.scheduler.state.jobs[job].attempts[task].seats)
                self._places.enter(running)
        return self._places

    def _change_tiers(self, actions: list[ChangeTier]) -> None:
        """Move attempts to the other tier of their slots. All leave before any enters, because they may swap."""
        places = self._places or self._open_background()
        now = self.scheduler.state.now
        changing = {(action.job, action.task): action.tier for action in actions}
        for place in changing:
            places.leave(self._running[place])
            self._note_run(self._running[place], now, wasted=False)
        for place, tier in changing.items():
            running = self._running[place]
            running.tier, running.start = tier, max(now, running.start)
            places.enter(running)

    def _ended(self, event: TaskEnded) -> None:
        place = event.job, event.task
        running = self._running.get(place)
        if running is None or running.number != event.attempt:
            return
        wasted = event.outcome is not SUCCEEDED
        if event.outcome is KILLED:
            if place in self._saving:
                running.go_on(event.at, running.rate)
                self._saved[place] = running.left, running.total
                self._migrations += 1
                wasted = False
            else:
                self._kills += 1
                if self._kill_cost and place not in self._saved:
                    self._killed.add(place)
        elif not wasted:
            self._saved.pop(place, None)
            if self._places is not None:
                self._alone[event.job] = running.total
        self._stop(event.job, event.task, event.at, wasted=wasted)

    def _lost(self, event: NodeDown) -> None:
        """Forget the attempts that the core gave up with the node."""
        state = self.scheduler.state
        for job, task in list(self._running):
            view = state.jobs.get(job)
            attempt = None if view is None else view.attempts.get(task)
            if attempt is None or attempt.number != self._running[job, task].number:
                self._stop(job, task, event.at, wasted=True)

    def _stop(self, job: int, task: int, at: Instant, *, wasted: bool) -> None:
        running = self._running.pop((job, task))
        if self._saving:
            self._saving.discard((job, task))
        if self._places is not None:
            self._places.leave(running)
        self._note_run(running, at, wasted=wasted)
        self._busy += running.spent
        self._work_lost += running.spent if wasted else 0

    def _note_run(self, running: Running, at: Instant, *, wasted: bool) -> None:
        """Record that an attempt has left its tier. Only time in the foreground counts as slot time."""
        end, behind = max(at, running.start), running.tier is BACKGROUND
        if not behind:
            running.spent += running.slots.bit_count() * (end - running.start)
        if self._runs is not None:
            self._runs.append((running.job, running.slots, running.start, end, wasted, behind))

    def _note_holdings(self, holdings: Holdings) -> None:
        """Record the new counts of every job that is allocated, or runs on, more or fewer slots than before."""
        state = self.scheduler.state
        touched = state.touched
        if not touched:
            return
        state.touched = []
        for job in dict.fromkeys(touched):
            slots, used = job.held, NO_SLOTS
            for attempt in job.attempts.values():
                if not attempt.fed:
                    slots |= attempt.slots
                if attempt.tier is FOREGROUND:
                    used |= attempt.slots
            counts = slots.bit_count(), used.bit_count()
            if counts != self._held.get(job.id, NONE_HELD):
                self._held[job.id] = counts
                self._most[job.id] = max(self._most[job.id], counts[0])
                for column, value in zip(holdings, (state.now, job.id, *counts), strict=True):
                    column.append(value)
                if counts == NONE_HELD:
                    del self._held[job.id]

    def _schedule(self, begin: Instant) -> Schedule:
        workload, until = self.workload, max(self.end, default=begin)
        for job in self.scheduler.state.jobs.values():
            self.status[job.id] = STATUSES.index(self.scheduler.status(job.id))
        if self.scheduler.state.jobs:
            until = max(until, self.scheduler.state.now)
        until = max(until, int(workload.release[-1]) if len(workload) else begin)
        return schedule_of(
            workload,
            start=self.start,
            end=self.end,
            capacity=sum(node.slots for node in self.nodes),
            slots=self._most or None,
            status=self.status,
            holdings=self._holdings,
            rounds=self._rounds,
            begin=begin,
            until=until,
            busy=self._busy,
            lost=self._work_lost,
            kills=self._kills,
            migrations=self._migrations,
            alone=self._alone_times(),
            offered=self._offered(begin, until),
            decisions=self.scheduler.rounds,
            decision_seconds=sum(timed.seconds for timed in self._timed) + self._advice_seconds,
            attempts=None if self._runs is None else attempts_of(self._runs),
            refused=self.scheduler.refusals,
        )

    def _alone_times(self) -> list[int] | None:
        """How long each job takes alone on its slots, if jobs ran on two tiers. None: from its start to its end."""
        if self._places is None:
            return None
        return [
            self._alone.get(job, end - start) if kind == RIGID else end - start
            for job, (start, end, kind) in enumerate(zip(self.start, self.end, self.workload.kind, strict=True))
        ]

    def _offered(self, begin: Instant, until: Instant) -> int:
        """The capacity: slot-microseconds that were up."""
        slots = {node.name: node.slots for node in self.nodes}
        offered = sum(slots.values()) * (until - begin)
        for outage in self.outages:
            end = until if outage.until is None else min(until, from_seconds(outage.until))
            offered -= slots[outage.node] * max(0, end - max(begin, from_seconds(outage.at)))
        return offered
