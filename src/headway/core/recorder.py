"""What a run was like: starts, ends and the use of slots, from the events of a core and the actions it asked for.

A simulation and the journal of a server are recorded by the same code, so both are measured alike. The recorder reads
the state after each event and changes nothing in it, except that it empties the list of jobs whose slots changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Final

from headway.core.lifecycle import ISOLATING
from headway.core.scheduler import Scheduler
from headway.core.state import State
from headway.model.actions import (
    Action,
    ChangeTier,
    Conclude,
    JobStatus,
    Kill,
    Launch,
    RentMachine,
    Suspend,
    SwitchOff,
    SwitchOn,
)
from headway.model.events import (
    Event,
    JobSubmitted,
    NodeDown,
    NodeJoined,
    NodeOff,
    NodeOn,
    NodeResized,
    NodesHeard,
    NodeSwitched,
    NodeUp,
    RentFailed,
    Returned,
    SwitchFailed,
    TaskEnded,
    TaskStarted,
    Woke,
)
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import JobId, JobSpec, Kind, TaskKey, Workflow
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.power import PowerState
from headway.model.renting import Money, Rental
from headway.model.schedule import (
    NOT_YET,
    STATUSES,
    AttemptRow,
    Course,
    PowerChange,
    RentalRow,
    Schedule,
    Totals,
    attempts_of,
    schedule_of,
)
from headway.model.seen import JobView
from headway.model.slots import NO_SLOTS, Slots, of_numbers
from headway.model.tier import Tier
from headway.model.workload import Workload, told_by, workload_us

# Module constants, because looking up a member of an enumeration is slow.
FOREGROUND: Final = Tier.FOREGROUND
BACKGROUND: Final = Tier.BACKGROUND
SUCCEEDED: Final = Outcome.SUCCEEDED
KILLED: Final = Outcome.KILLED
JOB_SUCCEEDED: Final = JobStatus.SUCCEEDED
BAG: Final = Kind.BAG
RIGID: Final = Kind.RIGID

NONE_HELD: Final = (0, 0)


class OpenAttempt:
    """An attempt under way.

    Attributes:
        number, slots, tier: which attempt, and where it is.
        start: when it began to run.
        since: from when on it counts in its tier.
        spent: microseconds in the foreground that counted before that.
        has_begun: whether it runs; else it has been launched, and waits for its input or its turn.
    """

    __slots__ = ("has_begun", "number", "since", "slots", "spent", "start", "tier")

    def __init__(self, number: int, start: Instant, slots: Slots, tier: Tier) -> None:
        self.number = number
        self.start = self.since = start
        self.slots = slots
        self.tier = tier
        self.spent = 0
        self.has_begun = True

    def come_to(self, tier: Tier, now: Instant) -> None:
        """From now on it is in this tier."""
        self.spent = self.in_foreground(now)
        self.tier, self.since = tier, max(now, self.since)

    def in_foreground(self, now: Instant) -> Duration:
        """For how long it was in the foreground."""
        return self.spent + (now - self.since if self.tier is FOREGROUND and now > self.since else 0)

    def to_wait(self, now: Instant) -> int:
        """The slot-microseconds of the foreground that it holds from now until it begins."""
        if self.since <= now or self.tier is not FOREGROUND:
            return 0
        return self.slots.bit_count() * (self.since - now)


class SeenNode:
    """A node that was there.

    Attributes:
        number: its position among those that were.
        spec: as it was last.
        slots: those that it has, also such as it is to lose.
        ever: those that it ever had.
        power: whether it was on last.
        since: since when it is up, with so many slots as now; None: it is not.
        size: how many slots it has, also such as it is to lose.
    """

    __slots__ = ("ever", "number", "power", "since", "size", "slots", "spec")

    def __init__(self, number: int) -> None:
        self.number = number
        self.power = PowerState.ON
        self.since: Instant | None = None
        self.spec: NodeSpec
        self.ever = self.slots = NO_SLOTS
        self.size = 0


class Recorder:
    """Records the jobs that come to a core from now on.

    Use of slots counts from the first job that comes. Slots that jobs have which came before count as busy; nothing
    else about these jobs is recorded, unless `take_over` says so.

    Args:
        core: the scheduler; every event that it handles must be noted.
        holdings: whether to record which job had how many slots when, and the instants of the rounds.
        attempts: whether to record which attempt ran on which slots (needed for a Gantt chart), and the nodes.
        run_times: whether to record how long the tasks of each job ran.

    Attributes:
        start, end: by job: when its first attempt started, and when it ended; jobs to which that has not happened are
            left out.
        failed: how jobs have ended that did not succeed.
        runs: the attempts under way.
        run_times: by job: how many of its tasks succeeded, and the sum of their run times in microseconds; None: not
            recorded.
    """

    def __init__(
        self, core: Scheduler, *, holdings: bool = True, attempts: bool = False, run_times: bool = False
    ) -> None:
        self._core = core
        self._state: State = core.state
        self._strangers: set[JobId] = set(core.state.jobs)
        self.start: dict[JobId, Instant] = {}
        self.end: dict[JobId, Instant] = {}
        self.failed: dict[JobId, JobStatus] = {}
        self.runs: dict[TaskKey, OpenAttempt] = {}
        self.run_times: dict[JobId, tuple[int, Duration]] | None = {} if run_times else None
        self._saving: set[TaskKey] = set()
        self._held: dict[JobId, tuple[int, int]] = {}
        self._most: dict[JobId, int] = {}
        self._holdings: tuple[list[int], list[int], list[int], list[int]] | None = None
        if holdings:
            self._holdings = ([], [], [], [])
            core.state.touched = []
        self._rows: list[AttemptRow] | None = [] if attempts else None
        self._nodes: dict[str, SeenNode] = {}
        self._power: list[PowerChange] = []
        self._rentals: list[tuple[Rental, Instant]] = []
        self._note_rentals()
        self._present: list[tuple[int, Instant, Instant, int]] = []
        for node in core.state.nodes:
            self._note_node(node)
        self._rounds: list[Instant] = []
        self._rounds_seen = core.rounds
        self._rounds_before = 0
        self._refused_before: Counter[str] = Counter()
        self._busy = self._offered = self._lost = self._kills = self._migrations = 0
        self._busy_at_end = self._offered_at_end = 0
        self._now: Instant = core.state.now
        for name in core.state.dark:
            self._note_power(name)
        self._has_begun = self._drains = False
        self._busy_slots = self._up_slots = 0
        self._look_at_slots()
        self._count_busy_slots()

    def leave_out(self, jobs: Iterable[JobId]) -> None:
        """Record nothing of these jobs but that their slots are busy."""
        self._strangers.update(jobs)

    def take_over(self) -> None:
        """Record the jobs in the system too, from now on, and with them the attempts that run."""
        state = self._state
        self._strangers = set()
        self._has_begun = True
        self._look_at_slots()
        self._rounds_before = self._core.rounds
        self._refused_before = Counter(self._core.refusals)
        for attempt in state.attempts():
            job = attempt.job.id
            run = OpenAttempt(attempt.number, attempt.start, attempt.slots, attempt.tier)
            run.since = state.now
            self.runs[job, attempt.task] = run
            if attempt.saving:
                self._saving.add((job, attempt.task))
            self.start[job] = min(attempt.start, self.start.get(job, attempt.start))
        if self._holdings is not None:
            self._note_holdings([job for job in state.jobs.values() if job.held or job.attempts])

    def note(self, event: Event, actions: list[Action], start: Instant) -> None:
        """Record what an event has changed. Call it when the core has handled the event, before the next one.

        Args:
            actions: what the core has asked for.
            start: when the attempts that are to be launched begin to run: now, or later if a decision takes time.
        """
        state, now = self._state, self._state.now
        if self._has_begun:
            if now != self._now:
                self._busy += self._busy_slots * (now - self._now)
                self._offered += self._up_slots * (now - self._now)
                self._now = now
        else:
            self._has_begun, self._now = type(event) is JobSubmitted, now
            if self._has_begun:
                self._look_at_slots()
        if type(event) is TaskEnded:
            key = event.job, event.task
            run = self.runs.get(key)
            if run is not None and run.number == event.attempt:
                self._close(key, run, event.outcome)
            if self._drains:
                self._look_at_slots()
        elif type(event) is not JobSubmitted and type(event) is not NodesHeard:
            if type(event) is not Woke or state.leased:
                self._close_what_is_lost()
                self._look_at_slots()
            if type(event) is TaskStarted:
                self._note_start(event)
            elif type(event) is NodeJoined:
                self._note_node(event.node.name)
                self._note_power(event.node.name)
            elif type(event) is NodeResized:
                self._note_node(event.name)
            elif isinstance(event, Returned | RentFailed):
                self._note_return(event.rental)
            elif isinstance(event, NodeOff | NodeOn | SwitchFailed | NodeDown | NodeUp | NodeSwitched):
                self._note_power(event.name)
        moved: set[TaskKey] | None = None  # made when an attempt changes its tier
        for action in actions:
            if type(action) is Launch:
                moved = None
                if not self._strangers or action.job not in self._strangers:
                    self._note_launch(action, start)
            elif type(action) is Conclude:
                if not self._strangers or action.job not in self._strangers:
                    self.conclude(action.job, now, action.status)
            elif type(action) is ChangeTier:
                if moved is None:
                    moved = set()
                self._note_change(action, moved)
            elif type(action) is Suspend:
                if action.job not in self._strangers:
                    self._saving.add((action.job, action.task))
            elif type(action) is Kill and self._saving:
                self._saving.discard((action.job, action.task))
            elif type(action) is SwitchOff or type(action) is SwitchOn:
                self._note_power(action.node)
            elif type(action) is RentMachine:
                self._rentals.append((state.market.rentals[action.rental], NEVER))
        if self._holdings is not None:
            touched = state.touched
            if touched:
                state.touched = []
                self._note_holdings(touched)
            if self._core.rounds != self._rounds_seen:
                self._rounds_seen = self._core.rounds
                self._rounds.append(now)
        self._count_busy_slots()

    def conclude(self, job: JobId, now: Instant, status: JobStatus) -> None:
        """Record the end of a job. Only for a job that the core never saw is this called from outside."""
        if now > self._now:
            if not self._has_begun:
                self._count_up_slots()
            self._busy += self._busy_slots * (now - self._now)
            self._offered += self._up_slots * (now - self._now)
            self._now = now
        self.end[job] = now
        if status is not JOB_SUCCEEDED:
            self.failed[job] = status
        # Slot time after the last end of a job belongs to no job's story.
        self._busy_at_end, self._offered_at_end = self._busy, self._offered

    def _look_at_slots(self) -> None:
        self._drains = self._state.draining
        if self._rows is not None:
            self._note_presence()
        if self._has_begun:  # until then thousands of nodes may join, one after another
            self._count_up_slots()

    def _count_up_slots(self) -> None:
        self._up_slots = sum([node.size for node in self._state.nodes.values() if node.up])

    def _count_busy_slots(self) -> None:
        state = self._state
        if state.others:
            self._busy_slots = sum([pool.busy_slots() for pool in state.each()])
        else:
            self._busy_slots = state.busy_slots()

    def _note_node(self, name: str) -> None:
        """A node is there, or has other slots; it may have come again under its name."""
        node = self._state.nodes.get(name)
        if node is None or self._rows is None:
            return
        seen = self._nodes.get(name)
        if seen is None:
            seen = self._nodes[name] = SeenNode(len(self._nodes))
        seen.spec, seen.slots = node.spec, of_numbers(node.places)
        if seen.since is None and node.up:
            seen.since, seen.size = self._state.now, node.slots.bit_count()
        seen.ever |= seen.slots

    def _note_presence(self) -> None:
        """Nodes may have come or gone, for good or for a while."""
        now, nodes = self._state.now, self._state.nodes
        for name, seen in self._nodes.items():
            node = nodes.get(name)
            size = node.size if node is not None and node.up else 0
            if size == seen.size:
                continue
            if seen.since is not None:
                self._present.append((seen.number, seen.since, now, seen.size))
            seen.since, seen.size = now if size else None, size

    def _note_power(self, name: str) -> None:
        """The power of a node may have changed."""
        node, seen = self._state.nodes.get(name), self._nodes.get(name)
        if node is not None and seen is not None:
            state = PowerState.ON if node.waits_to_go_off else node.power
            if state is not seen.power:
                seen.power = state
                self._power.append((self._state.now, seen.number, state))

    def _note_rentals(self) -> None:
        """Record the machines that are rented already."""
        self._rentals += [(rental, NEVER) for rental in self._state.market.rentals.values()]

    def _note_return(self, number: int) -> None:
        """A machine is gone; an answer that was not expected changes nothing."""
        for place, (rental, until) in enumerate(self._rentals):
            if rental.number == number and until == NEVER and number not in self._state.market.rentals:
                self._rentals[place] = rental, self._state.now

    def paid(self) -> Money:
        """What rented machines have cost until now, or would if they were given back now: those there were, and are."""
        return sum(row.cost for row in self._rental_rows(()))

    def _rental_rows(self, jobs: Sequence[JobId]) -> tuple[RentalRow, ...]:
        """The machines that were asked for."""
        place = {job: position for position, job in enumerate(jobs)} if self._rentals else {}
        found = list[RentalRow]()
        for rental, until in self._rentals:
            last = min(until, self._state.now)
            offer, job = rental.offer, None if rental.job is None else place.get(rental.job)
            cost = rental.cost(last)
            since, over = (rental.since, until) if rental.machine or until == NEVER else (last, last)
            found.append(
                RentalRow(
                    *(rental.number, rental.node, offer.site, offer.type, job, rental.user, rental.asked),
                    *(since, over, cost, rental.why),
                )
            )
        return tuple(found)

    def _note_launch(self, launch: Launch, start: Instant) -> None:
        state, job = self._state, launch.job
        run = self.runs[job, launch.task] = OpenAttempt(launch.attempt, start, launch.slots, launch.tier)
        view = state.jobs[job]
        if (state.starts_reported or view.spec.fetches) and state.rules >= ISOLATING:
            run.has_begun = view.attempts[launch.task].running
        if job not in self.start and (run.has_begun or not view.spec.fetches):
            self.start[job] = start
        if start > self._now:
            self._busy -= run.to_wait(self._now)

    def _note_start(self, event: TaskStarted) -> None:
        """It runs only now. After a restart, starts of running attempts are reported again."""
        run = self.runs.get((event.job, event.task))
        if run is not None and run.number == event.attempt and not run.has_begun:
            now = self._state.now
            run.has_begun, run.start, run.since, run.spent = True, now, now, 0
            self.start.setdefault(event.job, now)

    def _note_change(self, change: ChangeTier, moved: set[TaskKey]) -> None:
        """It goes to the other tier, and maybe back at once; that is one change."""
        key = change.job, change.task
        run = self.runs.get(key)
        if run is None:
            return
        now = self._state.now
        if key not in moved:
            moved.add(key)
            self._note_row(key, run, wasted=False)
        self._busy += run.to_wait(now)
        run.come_to(change.tier, now)
        self._busy -= run.to_wait(now)

    def _close_what_is_lost(self) -> None:
        """Close the attempts that the core has given up."""
        state = self._state
        for key, run in list(self.runs.items()):
            view = state.jobs.get(key[0])
            attempt = None if view is None else view.attempts.get(key[1])
            if attempt is None or attempt.number != run.number:
                self._close(key, run, None)

    def _close(self, key: TaskKey, run: OpenAttempt, outcome: Outcome | None) -> None:
        """An attempt has ended, with this outcome; None: the core has given it up."""
        del self.runs[key]
        wasted = False
        if outcome is SUCCEEDED:
            if self.run_times is not None:
                tasks, took = self.run_times.get(key[0], (0, 0))
                work = round((self._state.now - run.start) * self._state.slowest(run.slots))
                self.run_times[key[0]] = tasks + 1, took + work
        elif outcome is KILLED and key in self._saving:
            self._migrations += 1
        else:
            wasted = True
            self._lost += run.in_foreground(self._state.now) * run.slots.bit_count()
            self._kills += outcome is KILLED
        if self._saving:
            self._saving.discard(key)
        if run.since > self._now:
            self._busy += run.to_wait(self._now)
        if self._rows is not None:
            self._note_row(key, run, wasted=wasted)

    def _note_row(self, key: TaskKey, run: OpenAttempt, *, wasted: bool) -> None:
        """Record that an attempt leaves its tier."""
        if self._rows is not None:
            self._rows += self._rows_of(key, run, None, wasted=wasted)

    def _rows_of(self, key: TaskKey, run: OpenAttempt, until: Instant | None, *, wasted: bool) -> Iterator[AttemptRow]:
        """Where an attempt was in its tier until an instant; None: until now."""
        end = max(self._state.now if until is None else until, run.since)
        left, slot_nodes = run.slots, self._state.slot_nodes
        while left:
            seen = self._nodes[slot_nodes[left.bit_length() - 1].spec.name]
            part = left & seen.slots
            left &= ~part
            yield (*key, seen.number, part, run.since, end, wasted, run.tier is BACKGROUND)

    def _note_holdings(self, touched: list[JobView]) -> None:
        """Record the new counts of every job that is allocated, or runs on, more or fewer slots than before."""
        holdings, now = self._holdings, self._state.now
        assert holdings is not None
        for job in dict.fromkeys(touched):
            if job.id in self._strangers:
                continue
            counts = _holdings_of(job)
            if counts != self._held.get(job.id, NONE_HELD):
                self._held[job.id] = counts
                self._most[job.id] = max(self._most.get(job.id, 0), counts[0])
                for column, value in zip(holdings, (now, job.id, *counts), strict=True):
                    column.append(value)
                if counts == NONE_HELD:
                    del self._held[job.id]

    # What was recorded

    def schedule(
        self,
        workload: Workload,
        jobs: Sequence[JobId],
        *,
        begin: Instant | None = None,
        alone: Mapping[JobId, Duration] | None = None,
        decision_seconds: float = 0.0,
        until: Instant | None = None,
    ) -> Schedule:
        """What was recorded until now, as columns.

        Args:
            until: an instant, now or later; then what still runs is among the attempts, as if it ended then.
            workload: the jobs.
            jobs: their ids, in the order of the workload.
            begin: as in `Schedule`; None: the first release.
            alone: how long the work of rigid jobs takes on slots of their own, where it is not the time from start to
                end; None: it is that time for every job.
            decision_seconds: as in `Schedule`.
        """
        starts, ends = self.start, self.end
        start = list(map(starts.get, jobs, repeat(NOT_YET)))
        end = list(map(ends.get, jobs, repeat(NOT_YET)))
        is_over = len(ends) == len(jobs)
        holdings = self._holdings
        columns = None
        if holdings is not None:
            place = {job: position for position, job in enumerate(jobs)}
            columns = (holdings[0], [place[job] for job in holdings[1]], holdings[2], holdings[3])
        rows = list(self._rows or ())
        for where, run in self.runs.items() if until is not None else ():
            rows += self._rows_of(where, run, until, wasted=False)
        refused = Counter(self._core.refusals)
        refused.subtract(self._refused_before)
        return schedule_of(
            workload,
            Course(
                start,
                end,
                slots=None if holdings is None else [self._most.get(job, 0) for job in jobs],
                status=self._statuses(jobs),
                holdings=columns,
                alone=None if alone is None else self._alone_times(workload, jobs, alone),
                attempts=None if self._rows is None else attempts_of(self._placed_rows(jobs, rows)),
                nodes=tuple([(seen.spec, seen.ever) for seen in self._nodes.values()]),
                power=tuple(self._power),
                present=self._presence(),
                switching=dict(self._state.switching),
                rentals=self._rental_rows(jobs),
            ),
            0,
            Totals(
                rounds=self._rounds,
                begin=begin,
                until=None if is_over else self._now,
                busy=self._busy_at_end if is_over else self._busy,
                offered=self._offered_at_end if is_over else self._offered,
                lost=self._lost,
                kills=self._kills,
                migrations=self._migrations,
                decisions=self._core.rounds - self._rounds_before,
                decision_seconds=decision_seconds,
                refused={rule: times for rule, times in refused.items() if times},
            ),
        )

    def _presence(self) -> tuple[tuple[int, Instant, Instant, int], ...]:
        """When which node was up, and with how many slots."""
        up = [(seen.number, seen.since, NEVER, seen.size) for seen in self._nodes.values() if seen.since is not None]
        return (*self._present, *up)

    def _statuses(self, jobs: Sequence[JobId]) -> list[int]:
        open_jobs, ends, failed = self._state.jobs, self.end, self.failed
        if len(ends) == len(jobs) and not failed:
            return [STATUSES.index(JOB_SUCCEEDED)] * len(jobs)
        found = []
        for job in jobs:
            if job in ends:
                status = failed.get(job, JOB_SUCCEEDED)
            else:
                status = self._core.status(job) if job in open_jobs else JobStatus.HELD
            found.append(STATUSES.index(status))
        return found

    def _alone_times(self, workload: Workload, jobs: Sequence[JobId], alone: Mapping[JobId, Duration]) -> list[int]:
        lasted = [self.end.get(job, NOT_YET) - self.start.get(job, NOT_YET) for job in jobs]
        return [
            alone.get(job, time) if kind == RIGID else time
            for job, time, kind in zip(jobs, lasted, workload.kind.tolist(), strict=True)
        ]

    def _placed_rows(self, jobs: Sequence[JobId], rows: list[AttemptRow]) -> list[AttemptRow]:
        place = {job: position for position, job in enumerate(jobs)}
        return [(place[row[0]], *row[1:]) for row in rows]

    def schedule_by_release(
        self,
        specs: Mapping[JobId, JobSpec],
        due: Mapping[JobId, Instant],
        priority: Mapping[JobId, float],
        *,
        begin: Instant | None = None,
        alone: Mapping[JobId, Duration] | None = None,
        decision_seconds: float = 0.0,
        until: Instant | None = None,
    ) -> Schedule:
        """What was recorded until now of jobs that no workload told, in order of release.

        A job's label is its id, its `runtime` the mean run time of its attempts that succeeded.

        Args:
            specs: the jobs by their ids.
            due, priority: their terms now.
            begin, alone, decision_seconds, until: as of `schedule`.
        """
        # Stable order of release, as a workload has it; ids break ties.
        release = {job: spec.release for job, spec in sorted(specs.items())}
        for job, spec in sorted(specs.items()):  # it could not start before what it comes after was released
            release[job] = max([release[job], *(release[before] for before in spec.after if before in release)])
        jobs = sorted(specs, key=lambda job: (release[job], job))
        place = {job: position for position, job in enumerate(jobs)}
        run_times = self.run_times or {}
        after = {place[job]: tuple(place[it] for it in specs[job].after if it in place) for job in jobs}
        workload = workload_us(
            release=[release[job] for job in jobs],
            runtime=[took // tasks for tasks, took in (run_times.get(job, (1, 0)) for job in jobs)],
            due=[due[job] for job in jobs],
            priority=[priority[job] for job in jobs],
            after={position: before for position, before in after.items() if before},
            workflows={place[job]: spec.graph for job, spec in specs.items() if isinstance(spec, Workflow)},
            **told_by([specs[job] for job in jobs]),
        )
        return self.schedule(workload, jobs, begin=begin, alone=alone, decision_seconds=decision_seconds, until=until)


def _holdings_of(job: JobView) -> tuple[int, int]:
    """How many slots a job has, and on how many it runs in the foreground."""
    slots, used, alone = job.held, NO_SLOTS, 0
    attempts = job.attempts.values()
    for attempt in attempts if job.kind is BAG and not slots else ():
        alone += attempt.tier is FOREGROUND and not (attempt.fed or attempt.queued)
    if alone and alone == len(attempts):  # tasks of a bag that were placed one by one, each on a slot of its own
        return alone, alone
    for attempt in attempts:
        if not attempt.fed:
            slots |= attempt.slots
        if attempt.tier is FOREGROUND:
            used |= attempt.slots
    return slots.bit_count(), used.bit_count()
