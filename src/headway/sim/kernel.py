"""The loop of a simulation: the event heap around the core.

It feeds what happens in virtual time and performs what the core asks for. When attempts end, the `Machines` know; what
was, the `Recorder` knows.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from heapq import heapify, heappop, heappush
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from headway.core.recorder import Recorder
from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput, did_you_mean
from headway.history.predictions import Predictions
from headway.history.predictors import Predictor
from headway.model.actions import (
    Action,
    ChangeTier,
    Conclude,
    Consult,
    JobStatus,
    Kill,
    Launch,
    RentMachine,
    ReturnMachine,
    Settle,
    Suspend,
    SwitchOff,
    SwitchOn,
    Wake,
)
from headway.model.events import (
    Advised,
    DeciderChosen,
    Event,
    JobSubmitted,
    NetworkChosen,
    NodeDown,
    NodeJoined,
    NodeOff,
    NodeOn,
    NodeUp,
    PolicyChosen,
    Reclaimed,
    Rented,
    RentingChosen,
    Returned,
    SitesChosen,
    SlotsBounded,
    SwitchingChosen,
    TaskEnded,
    TaskSaved,
    Woke,
)
from headway.model.instant import NEVER, SECOND, Duration, Instant, from_seconds, to_seconds
from headway.model.job import JobId, JobSpec, Kind, Service, TaskKey
from headway.model.network import NO_NETWORK, Network
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.plan import PlanRecord
from headway.model.policy import Policy, PolicySource
from headway.model.power import PowerState, Switching
from headway.model.ration import most_slots_for
from headway.model.renting import RentalStage, Renting
from headway.model.schedule import Schedule
from headway.model.site import SiteTerms
from headway.model.workload import Workload, workload_us
from headway.sim.faults import Outage
from headway.sim.machines import Machines, RemainingWork
from headway.sim.served import Answering, Served
from headway.sim.specs import specs
from headway.sim.states import Origin, crowd, quiet_spec
from headway.sim.timed import TimedPolicy
from headway.sim.world import Estimates, Joined, Stopwatch, Timing, World

if TYPE_CHECKING:
    from headway.core.record import StateRecord

# Events of one instant are fed in this order: ends, then nodes' coming and going, then submissions, then windows of
# services, then wakes.
END: Final = 0
NODE: Final = 1
SUBMISSION: Final = 2
WINDOW: Final = 3
WAKE: Final = 4
STOP: Final = 5

# Module constants, because looking up a member of an enumeration is slow.
RIGID: Final = Kind.RIGID
KILLED: Final = Outcome.KILLED

Due = tuple[Instant, int, int, int, int, Event | None]
LAST_DUE: Final[Due] = (NEVER, WAKE, 0, 0, 0, None)
"""Later than everything in the heap."""

PROGRESS_EVERY: Final = 4096

MACHINE: Final = 3
"""What stands third in the entries of the heap about rented machines."""

NOTICE_TIME: Final = 120 * SECOND
"""So long before a spot machine is taken back, that is told; as on Amazon EC2."""

IDLE_WAKES_MAX: Final = 10_000
"""After this many wakes in a row, with nothing running and nothing else in the heap, the next release date comes. If
there is none, the simulation ends."""

IDLE_WAKES_OF_FUTURE: Final = 300
"""The same for a future of a state: there are many of them, and all end so if a job needs a node that is down."""

NOBODY_BOUNDED: Final[Mapping[str, int]] = {}
"""No user has a bound on slots."""

Progress = Callable[[int, int], None]
"""Called now and then with the number of jobs that have ended, and of all jobs."""


class RemoteDecider(Protocol):
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
        services: services beside the jobs, with ids that no job has.
        network: the lines between the nodes; default: sending costs nothing.
        switching: how the nodes are switched off and on; default: they stay on.
        renting: what can be rented, and within which bounds; default: nothing.
        slots_of: by user, how many slots the tasks of this user may have at once; default: any number.
        sites: what is known of sites, the preferred one first; default: nothing.
        predictor: predicts run times when jobs come, and learns them when jobs end; None: users' estimates count alone.

    Attributes:
        served: the services.
        scheduler: the core. Read it only, between two calls of `advance`.
        recorder: what was recorded until now.

    Raises:
        InvalidInput: the cluster has no slots, a job can never run on it, or an outage names a node it does not have.
    """

    served: Served | None

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
        decider: RemoteDecider | None = None,
        record: bool = False,
        audit: Callable[[Scheduler], None] | None = None,
        journal: list[Event] | None = None,
        services: Sequence[tuple[Service, Answering]] = (),
        network: Network = NO_NETWORK,
        switching: Sequence[Switching] = (),
        renting: Renting | None = None,
        slots_of: Mapping[str, int] = NOBODY_BOUNDED,
        sites: Sequence[SiteTerms] = (),
        predictor: Predictor | None = None,
    ) -> None:
        quiet_nodes = [quiet_spec(node) for node in nodes]
        check_nodes(quiet_nodes)
        check_jobs(workload, quiet_nodes)
        check_bounds(workload, quiet_nodes, slots_of)
        check_outages(outages, quiet_nodes)
        self._set_up(workload, world or World(), decider, audit, journal, predictor)
        self.scheduler = Scheduler(
            lambda text: self._time(policies(text)), policy, estimate_default=estimate_default, period=period
        )
        only_rigid = bool((workload.kind == RIGID).all())
        self.recorder = Recorder(self.scheduler, holdings=not only_rigid, attempts=record)
        self._machines = Machines(self._world, Stopwatch(self._world, workload), workload)
        self._jobs = len(workload)
        first = [spec.release for spec, _ in services] + ([int(workload.release[0])] if self._jobs else [])
        self._begin = min(first, default=0)
        if not network.is_free:
            self._first.append(NetworkChosen(self._begin, network))
        if sites:
            self._first.append(SitesChosen(self._begin, tuple(sites)))
        self._first += [NodeJoined(self._begin, node) for node in quiet_nodes]
        if switching:
            self._first.append(SwitchingChosen(self._begin, tuple(switching)))
        if renting is not None:
            self._first.append(RentingChosen(self._begin, renting))
        self._first += [SlotsBounded(self._begin, user, most) for user, most in slots_of.items()]
        if decider is not None:
            self._first.append(DeciderChosen(self._begin, decider.url))
        self._submissions = self._told(0)
        self._plan_outages(outages, -NEVER)
        if services:
            served = self.served = Served(services)
            self.recorder.leave_out(served.open)
            for number, event in enumerate(served.begin()):
                self._heap.append((event.at, WINDOW, -1, number, 0, event))
            for at, service in served.windows_end():
                self._heap.append((at, WINDOW, service, 0, 0, None))
        heapify(self._heap)

    @staticmethod
    def from_state(
        state: StateRecord | Origin,
        policies: PolicySource,
        policy: str | None = None,
        *,
        world: World | None = None,
        timing: Timing | Mapping[JobId, Duration] | None = None,
        left: Mapping[TaskKey, RemainingWork] | None = None,
        arrivals: Workload | None = None,
        first_id: JobId | None = None,
        outages: Sequence[Outage] = (),
        decider: RemoteDecider | None = None,
        record: bool = False,
        recorder: Callable[[Scheduler], Recorder] | None = None,
        audit: Callable[[Scheduler], None] | None = None,
        journal: list[Event] | None = None,
    ) -> Simulation:
        """One future of a state: a simulation that continues from it, with what runs, waits or is down there.

        The state is not changed, so that any number of futures can begin with it, each with other arguments. Use counts
        from the state's instant on. In the schedule, jobs are in order of release and labelled by their ids.

        Args:
            state: as `Scheduler.dump` gives it, of a simulation or of a server; where many futures begin with it, an
                `Origin` of it, which saves time.
            policies, policy: the source of policies, and the text that names the one to use from now on; None: the one
                of the state.
            world: the performance model. Its noise multiplies run times, unless `timing` is a `Timing`.
            timing: how long attempts at the jobs of the state run in all, those under way included: microseconds on a
                slot of speed factor 1 for each task of a job, by job, or a `Timing` of your own. Other jobs run as long
                as the core estimates when their tasks start. What has run for longer than that ends at once.
            left: what is left of tasks, by job and task, where it does not follow from `timing` and the time that they
                have run in the foreground; see `Simulation.left`.
            arrivals: jobs that come later; they run as long as this workload says.
            first_id: the id of the first of them; None: the next one after those in the state.
            outages: as of `Simulation`, in seconds on the clock of the state. What lies before its instant is skipped.
            decider, record, audit, journal: as of `Simulation`.
            recorder: makes the recorder; None: a `Recorder`.

        Raises:
            InvalidInput: a job can never run on these nodes, comes before the state's instant, or has an id of one in
                the state; or an outage names a node that is not there.
            HeadwayError: there is no such policy.
        """
        origin = Origin.of(state)
        state = origin.state
        nodes = [node.spec for node in state.nodes]
        later = workload_us(release=[], runtime=[]) if arrivals is None else arrivals
        if len(later):
            check_jobs(later, nodes)
        check_outages(outages, nodes)
        ids = [job.spec.id for job in state.jobs]
        next_id = max(ids, default=-1) + 1
        first = next_id if first_id is None else first_id
        if first < next_id:
            raise InvalidInput("first_id", first, f"{next_id} or more, because the state has a job {next_id - 1}")
        if len(later) and later.release[0] < state.now:
            raise InvalidInput(
                "release", to_seconds(int(later.release[0])), f"{to_seconds(state.now):g} or later, the state's instant"
            )
        made = _Future(later, world or World(), decider, audit, journal)
        with _uncollected():
            made.scheduler = Scheduler.restore(origin.quiet, lambda text: made._time(policies(text)), origin.fleet)
        if policy is not None:
            made._time(policies(policy))  # it must be there; that of the state need not be, then
        elif made.scheduler.absent is not None:
            raise made.scheduler.absent
        core = made.scheduler.state
        made.recorder = (
            Recorder(made.scheduler, attempts=record, run_times=True) if recorder is None else recorder(made.scheduler)
        )
        made.recorder.take_over()
        there: Timing
        if timing is None or isinstance(timing, Mapping):
            there = Estimates(made._world, timing)
        else:
            there = timing
        both = Joined(there, Stopwatch(made._world, later, first), first) if len(later) else there
        made._machines = Machines(made._world, both, crowd(state, later), [*ids, *range(first, first + len(later))])
        made._begin, made._idle_wakes_max = state.now, IDLE_WAKES_OF_FUTURE
        if policy is not None and policy != state.policy:
            made._first.append(PolicyChosen(state.now, policy))
        if decider is not None:
            made._first.append(DeciderChosen(state.now, decider.url))
        to_come = list(made._told(first))
        made._submissions = iter(to_come)
        made._specs = {job.spec.id: job.spec for job in state.jobs} | {job.id: job for job in to_come}
        made._due = {job.id: job.due for job in core.jobs.values()}
        made._priority = {job.id: job.priority for job in core.jobs.values()}
        made._endless = frozenset([job.spec.id for job in state.jobs if isinstance(job.spec, Service)])
        made._jobs = len(ids) - len(made._endless) + len(later)
        made._plan_outages(outages, state.now, {node.spec.name for node in state.nodes if not node.up})
        made._take_over(dict(left or {}), origin.begun)
        return made

    def _set_up(
        self,
        workload: Workload,
        world: World,
        decider: RemoteDecider | None,
        audit: Callable[[Scheduler], None] | None,
        journal: list[Event] | None,
        predictor: Predictor | None = None,
    ) -> None:
        self._workload = workload
        self._world = world
        self._idle_wakes_max = IDLE_WAKES_MAX
        told = world.decision_time
        self._decision_time = None if told is None else from_seconds(told)
        self._timed: list[TimedPolicy] = []
        self._decider = decider
        self._question: int | None = None
        self._advice_seconds = 0.0
        self._audit = audit
        self._journal = journal
        self._heap: list[Due] = []
        self.served = None
        self._endless: frozenset[JobId] = frozenset()  # services of a state: their instances end only if they are told
        self._stop = self._switched = 0
        self._next: JobSpec | None = None
        self._has_begun = False
        self._specs: dict[JobId, JobSpec] | None = None
        self._due: dict[JobId, Instant] = {}
        self._priority: dict[JobId, float] = {}
        self._first: list[Event] = []
        self._predictions = None if predictor is None else Predictions(predictor)

    def _time(self, policy: Policy) -> Policy:
        timed = TimedPolicy(policy)
        self._timed.append(timed)
        return timed

    def _told(self, first_id: JobId) -> Iterator[JobSpec]:
        """The jobs of the workload as they are submitted to the scheduler."""
        told, world = self._workload, self._world
        if world.cpu == "unknown":
            told = replace(told, cpu=np.full(len(told), np.nan), uses={})
        elif world.cpu == "drawn":
            told = replace(told, cpu=world.tiers.cpu_use(told, world.seed))
        return specs(told, movable=True, first_id=first_id)

    def _plan_outages(self, outages: Sequence[Outage], since: Instant, down: Collection[str] = ()) -> None:
        """Expect what has not happened: at the instant of a state, it tells which nodes are down already."""
        for position, outage in enumerate(outages):
            at, is_down = from_seconds(outage.at), outage.node in down
            if at > since or (at == since and not is_down):
                self._heap.append((at, NODE, position, 0, 0, NodeDown(at, outage.node)))
                is_down = True
            if outage.until is not None:
                back = from_seconds(outage.until)
                if back > since or (back == since and is_down):
                    self._heap.append((back, NODE, position, 1, 0, NodeUp(back, outage.node)))

    def _take_over(self, left: dict[TaskKey, RemainingWork], begun: Collection[TaskKey]) -> None:
        """Expect the ends of what runs in the state, and the wake that its core has asked for."""
        state, heap = self.scheduler.state, self._heap
        for running in self._machines.take_over(state, left, begun):
            if running.job not in self._endless:
                heap.append((running.end, END, running.job, running.task, running.number, None))
        for attempt in state.attempts():
            if attempt.ending:
                job, task, number = attempt.job.id, attempt.task, attempt.number
                heap.append((state.now, END, job, task, -number, TaskEnded(state.now, job, task, number, KILLED)))
        for node in state.dark.values():
            if node.is_switched:
                off = node.power is PowerState.GOING_OFF
                self._expect_power(max(state.now, node.power_until), node.spec.name, node.switch, is_off=off)
        for rental in state.market.rentals.values():
            if rental.stage is RentalStage.RETURNS:
                heap.append((state.now, NODE, rental.number, MACHINE, 2, Returned(state.now, rental.number)))
            elif rental.comes:
                at, number = max(state.now, self._world.joins_at(rental)), rental.number
                if not rental.machine:
                    heap.append((state.now, NODE, number, MACHINE, 0, Rented(state.now, number, rental.node)))
                heap.append((at, NODE, number, MACHINE, 1, NodeJoined(at, rental.offer.node(rental.node))))
        if self.scheduler.wake_at < NEVER:
            at = max(state.now, self.scheduler.wake_at)
            heap.append((at, WAKE, 0, 0, 0, Woke(at)))
        heapify(heap)

    def _expect_power(self, at: Instant, node: str, switch: int, *, is_off: bool) -> None:
        """A node will be off, or on."""
        number = self.scheduler.state.nodes[node].places[0]
        self._switched += 1
        event: Event = NodeOff(at, node, switch) if is_off else NodeOn(at, node, switch)
        heappush(self._heap, (at, NODE, number, 2, self._switched, event))

    def _expect_machine(self, action: RentMachine | ReturnMachine) -> None:
        """A machine is there at once, and a node after the time to start; it is gone at once when it is given back."""
        now, number = self.scheduler.state.now, action.rental
        if isinstance(action, ReturnMachine):
            heappush(self._heap, (now, NODE, number, MACHINE, 2, Returned(now, number)))
            return
        rental = self.scheduler.state.market.rentals[number]
        at = self._world.joins_at(rental)
        heappush(self._heap, (now, NODE, number, MACHINE, 0, Rented(now, number, rental.node)))
        heappush(self._heap, (at, NODE, number, MACHINE, 1, NodeJoined(at, rental.offer.node(rental.node))))
        life = self._world.life(number) if rental.offer.spot else None
        if life is not None:
            until = now + from_seconds(life)
            told = max(now, until - NOTICE_TIME)
            heappush(self._heap, (told, NODE, number, MACHINE, 3, Reclaimed(told, number, until)))
            heappush(self._heap, (until, NODE, number, MACHINE, 4, Returned(until, number)))

    def _is_awaited(self, event: Event, number: int) -> bool:
        """Whether what is to happen to a rented machine is still to happen."""
        rental = self.scheduler.state.market.rentals.get(number)
        return rental is not None and (isinstance(event, Returned) or not rental.is_over)

    def run(self, progress: Progress | None = None) -> Schedule:
        """Run to the last end and return what became of every job.

        Raises:
            Exception: whatever the policy or the decider raises.
        """
        self.advance(progress=progress)
        return self.schedule()

    def advance(self, until: Instant | None = None, progress: Progress | None = None) -> None:
        """Run until everything of an instant has happened. It can be called again, to go on from there.

        Args:
            until: microseconds; None: to the last end.
            progress: called now and then.

        Raises:
            Exception: whatever the policy or the decider raises.
        """
        if until is not None:
            self._stop += 1
            heappush(self._heap, (until, STOP, self._stop, 0, 0, None))
        with _uncollected():
            if not self._has_begun:
                self._has_begun = True
                for event in self._first:
                    self._feed(event)
                self._next = next(self._submissions, None)
            self._loop(progress)

    def left(self) -> dict[TaskKey, RemainingWork]:
        """What is left now of each task that runs or has saved its work; a dumped state does not tell that exactly."""
        return self._machines.left(self.scheduler.state.now)

    def _loop(self, progress: Progress | None) -> None:
        heap, submissions, jobs, job = self._heap, self._submissions, self._jobs, self._next
        machines, ended, rentals = self._machines, self.recorder.end, self.scheduler.state.market.rentals
        fed = idle = 0
        while heap or job is not None:
            first = heap[0] if heap else LAST_DUE
            if job is not None and (job.release < first[0] or (job.release == first[0] and first[1] > SUBMISSION)):
                if job.after and self._comes_in_vain(job):
                    self.recorder.conclude(job.id, job.release, JobStatus.CANCELLED)
                else:
                    self._feed(JobSubmitted(job.release, job))
                job = next(submissions, None)
            else:
                at, rank, number, task, attempt, event = heappop(heap)
                if rank == WINDOW and event is None:
                    self._end_window(number, at)
                elif rank != END:
                    if self._has_all_ended(jobs) and not rentals:
                        break  # only outages and wakes are left, and services of which nobody knows when they end
                    if rank == STOP:
                        if number == self._stop:
                            break
                        continue
                    assert event is not None
                    if task == MACHINE and not self._is_awaited(event, number):
                        continue  # it was given back before it came
                    self._feed(event)
                    idle = idle + 1 if rank == WAKE and machines.is_idle_but_for(self._endless) else 0
                    if idle > self._idle_wakes_max and job is None and all(entry[1] >= WAKE for entry in heap):
                        release = self.scheduler.state.next_release()
                        if release == NEVER:
                            break  # rounds change nothing any more: the jobs that are left can never run
                        heap[:] = [entry for entry in heap if entry[1] != WAKE]  # nor do they until a job is released
                        heapify(heap)
                        heappush(heap, (release, WAKE, 0, 0, 0, Woke(release)))
                        idle = 0
                elif event is None:
                    if not machines.is_due(number, task, attempt, at):
                        continue  # it was killed or lost before, or its speed has changed since
                    self._feed(TaskEnded(at, number, task, attempt))
                else:
                    if machines.saves(number, task):
                        self._feed(TaskSaved(at, number, task, -attempt))
                    self._feed(event)
            fed += 1
            if progress is not None and not fed % PROGRESS_EVERY:
                progress(len(ended), jobs)
        self._next = job
        if progress is not None:
            progress(len(ended), jobs)

    def _has_all_ended(self, jobs: int) -> bool:
        """Whether so many jobs and all services have ended. One of a state does not: it has its first instance then."""
        ended, open_jobs = self.recorder.end, self.scheduler.state.jobs
        if len(ended) - sum([service in ended for service in self._endless]) < jobs:
            return False
        if self.served is not None and self.served.open:
            return False
        return all(open_jobs[one].attempts for one in self._endless if one in open_jobs and one not in ended)

    def _end_window(self, service: JobId, at: Instant) -> None:
        """A window of a service ends."""
        served = self.served
        assert served is not None
        for event in served.end_window(service, at):
            self._feed(event)
        if service in served.open:
            heappush(self._heap, (served.next_window(service, at), WINDOW, service, 0, 0, None))

    def _comes_in_vain(self, job: JobSpec) -> bool:
        """Whether a job that this one comes after has ended without success. A server would not accept it then."""
        return any(before in self.recorder.failed for before in job.after)

    def _feed(self, event: Event, advice_seconds: float = 0.0) -> None:
        scheduler, machines, predictions = self.scheduler, self._machines, self._predictions
        if predictions is not None:
            event = predictions.told(event, scheduler)
        if self._journal is not None:
            self._journal.append(event)
        delay, thought = self._decision_time, self._timed[-1].seconds
        actions = scheduler.handle(event)
        if scheduler.failure is not None:
            raise scheduler.failure
        if predictions is not None:
            predictions.note(event, actions, scheduler)
        state = scheduler.state
        if delay is None:
            delay = round((self._timed[-1].seconds - thought + advice_seconds) * SECOND)
        self.recorder.note(event, actions, state.now + delay)
        if type(event) is TaskEnded:
            machines.end(event)
        elif type(event) is NodeDown:
            machines.lose(state)
            if self.served is not None:
                self.served.lose(scheduler)
        if actions:
            self._perform(actions, state.now + delay)
        if machines.shares:
            for running in machines.changed(state.now):
                if running.end >= 0 and running.job not in self._endless:
                    heappush(self._heap, (running.end, END, running.job, running.task, running.number, None))
        if self._audit is not None:
            self._audit(scheduler)
        question, self._question = self._question, None
        if question is not None and self._decider is not None:
            self._consult(self._decider, question)

    def _consult(self, decider: RemoteDecider, question: int) -> None:
        """Ask the decider, and feed its answer at this same instant."""
        began = perf_counter()
        plan = decider(self.scheduler.dump())
        seconds = perf_counter() - began
        self._advice_seconds += seconds
        self._feed(Advised(self.scheduler.state.now, question, plan), seconds)

    def _perform(self, actions: list[Action], start: Instant) -> None:
        """Do what the core asks for. Attempts that are to be launched begin to run at `start`."""
        state, machines, heap, served = self.scheduler.state, self._machines, self._heap, self.served
        changes: list[ChangeTier] | None = None
        for action in actions:
            if served is not None and served.has(action):
                for ended in served.perform(action, state.now):
                    heappush(heap, (ended.at, END, ended.job, ended.task, -ended.attempt, ended))
            elif type(action) is Launch:
                if changes is not None:
                    machines.change_tiers(changes, state)
                    changes = None
                running = machines.launch(action, start, state)
                if running is not None and action.job not in self._endless:
                    heappush(heap, (running.end, END, action.job, action.task, action.attempt, None))
            elif type(action) is Settle or type(action) is Conclude:
                pass
            elif type(action) is Wake:
                heappush(heap, (max(state.now, action.at), WAKE, 0, 0, 0, Woke(action.at)))
            elif type(action) is Kill or type(action) is Suspend:
                if type(action) is Suspend:
                    machines.suspend(action.job, action.task)
                else:
                    machines.kill(action.job, action.task)
                ended = TaskEnded(state.now, action.job, action.task, action.attempt, KILLED)
                # The minus sign tells this end from the attempt's own end, which may be at the same instant.
                heappush(heap, (state.now, END, action.job, action.task, -action.attempt, ended))
            elif type(action) is ChangeTier:
                if changes is None:
                    changes = []
                changes.append(action)
            elif isinstance(action, RentMachine | ReturnMachine):
                self._expect_machine(action)
            elif isinstance(action, SwitchOff | SwitchOn):
                until = state.nodes[action.node].power_until
                self._expect_power(until, action.node, action.switch, is_off=isinstance(action, SwitchOff))
            else:
                assert type(action) is Consult
                self._question = action.question
        if changes is not None:
            machines.change_tiers(changes, state)

    def schedule(self) -> Schedule:
        """What became of every job until now."""
        seconds, alone = sum(timed.seconds for timed in self._timed) + self._advice_seconds, self._machines.alone
        if self._specs is None:
            found = self.recorder.schedule(
                self._workload, range(self._jobs), begin=self._begin, alone=alone, decision_seconds=seconds
            )
            return found if self.served is None else replace(found, services=self.served.records())
        terms = self._specs.items()
        return self.recorder.schedule_by_release(
            self._specs,
            {job: NEVER if spec.due is None else spec.due for job, spec in terms} | self._due,
            {job: spec.priority for job, spec in terms} | self._priority,
            begin=self._begin,
            alone=alone,
            decision_seconds=seconds,
        )


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no cycles meanwhile: none that last are left, and the collector would look at everything many times."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class _Future(Simulation):
    """A simulation that begins with a state, see `Simulation.from_state`."""

    def __init__(
        self,
        workload: Workload,
        world: World,
        decider: RemoteDecider | None,
        audit: Callable[[Scheduler], None] | None,
        journal: list[Event] | None,
    ) -> None:
        self._set_up(workload, world, decider, audit, journal)


def check_nodes(nodes: Sequence[NodeSpec]) -> None:
    """Refuse a cluster without slots, or with two nodes of one name.

    Raises:
        InvalidInput: it is so.
    """
    if sum(node.slots for node in nodes) == 0:
        raise InvalidInput("slots", 0, "1 or more")
    names: set[str] = set()
    for node in nodes:
        if node.name in names:
            raise InvalidInput("name of a node", node.name, "a name that no other node has")
        names.add(node.name)


def check_outages(outages: Iterable[Outage], nodes: Sequence[NodeSpec]) -> None:
    """Refuse outages of nodes that are not there.

    Raises:
        InvalidInput: there is one.
    """
    names = {node.name for node in nodes}
    for outage in outages:
        if outage.node not in names:
            hint = did_you_mean(outage.node, names)
            raise InvalidInput("node of an outage", outage.node, "a node of the cluster", hint=hint)


def check_bounds(workload: Workload, nodes: Sequence[NodeSpec], slots_of: Mapping[str, int]) -> None:
    """Refuse bounds of users that are no bounds, or within which a job of theirs could not run.

    Raises:
        InvalidInput: there is one.
    """
    for user, most in slots_of.items():
        if most < 1:
            raise InvalidInput(f"slots_of[{user!r}]", most, "1 or more")
        own = np.flatnonzero(workload.user.astype(str) == user)
        for place in own[(workload.width[own] > most) | (workload.kind[own] == Kind.WORKFLOW)].tolist():
            cores = [task.cores for task in workload.workflows.get(place, ())]
            slots = max([int(workload.width[place]), *[most_slots_for(each, nodes) for each in set(cores)]])
            if slots > most:
                raise InvalidInput(
                    "cores" if cores else "width",
                    slots,
                    f"at most {most}, the slots that user {user!r} may have at once",
                    source=f"job {workload.label[place]}",
                    hint=""
                    if cores
                    else "It could never run. Raise the bound, or make its processors tasks (--as bags).",
                )


def check_jobs(workload: Workload, nodes: Sequence[NodeSpec]) -> None:
    """Refuse jobs that can never run on these nodes.

    Raises:
        InvalidInput: there is one.
    """
    slots = sum(node.slots for node in nodes)
    too_wide = workload.width > slots
    if too_wide.any():
        job = int(too_wide.argmax())
        raise InvalidInput(
            "width",
            int(workload.width[job]),
            f"at most {slots}, the slots of the cluster",
            source=f"job {workload.label[job]}",
            hint="Give the cluster more slots, or read the log with its size, so that such jobs are dropped.",
        )
    wanted = {task.cores for plan in workload.workflows.values() for task in plan}
    held = {cores for cores in wanted if any(node.slots_for(cores) <= node.slots for node in nodes)}
    for position, plan in workload.workflows.items() if held < wanted else ():
        for number, task in enumerate(plan):
            if task.cores not in held:
                labels = workload.task_labels.get(position)
                field = f"plan[{number}].cores" if labels is None else f"cores of task {labels[number]}"
                most = max(node.slots if node.cores is None else node.cores for node in nodes)
                allowed = f"at most {most}, those of the largest node"
                raise InvalidInput(field, task.cores, allowed, source=f"job {workload.label[position]}")
