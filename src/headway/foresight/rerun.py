"""The recorded past of a server under another policy: the same jobs, machines and run times, other decisions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

import numpy as np

from headway.core.nodes import Extent
from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError
from headway.live.store.decisions import event_of
from headway.live.store.history import ReplayRecorder, reading
from headway.live.store.redeciding import rounds
from headway.model import events
from headway.model.events import Event, JobSubmitted, NodeDown, NodeJoined, NodeLeft, NodeUp
from headway.model.instant import Duration, Instant, to_seconds
from headway.model.job import JobId, JobSpec, Kind, Service, Workflow
from headway.model.policy import PolicySource
from headway.model.schedule import Attempts, Holdings, Schedule
from headway.model.workload import BagTimes, Workload, told_by, workload_us
from headway.sim.faults import Outage
from headway.sim.kernel import Progress, Simulation
from headway.sim.world import World

LEFT_OUT: Final = {
    events.JobCancelled: "cancelled jobs, which are left out unless they had run",
    events.TasksCancelled: "cancelled tasks, which run for no time",
    events.JobChanged: "changes of jobs, whose last terms count from the beginning",
    events.NodeClosed: "closed nodes, which stay open",
    events.NodeDrained: "drained nodes, which stay",
    events.NodeResized: "nodes that got another number of slots, which keep their first",
    events.NodeSwitched: "nodes that were switched by hand, which stay on",
    events.Rented: "rented machines, of which each policy rents its own or none",
    events.RentFailed: "machines that could not be rented, which can be",
    events.Reclaimed: "machines that were taken back, which stay",
    events.PolicyChosen: "changes of the policy",
    events.Advised: "plans of a decider",
}
"""What is not repeated, by the event that tells of it."""


_JOB_COLUMNS: Final = (
    *("label", "release", "tasks", "width", "runtime", "due", "priority", "rate", "user", "shape"),
    *("start", "end", "slots", "status"),
)
"""Of a schedule, those that have a row for each job."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What a journal knows, as the beginning of a simulation.

    Attributes:
        done: what happened.
        policy: the policy at its end.
        alone: whether that policy has made all plans since the first job came: there was no other one, and no decider.
        state: the state before the first job came.
        workload: the jobs that came then and have run, with the run times that they had; labels are their ids.
        before: how long the tasks of jobs in the state ran.
        outages: when nodes were down; one that joined later was down until then. Rented machines are not among them.
        left_out: sentences about what is not repeated.
    """

    done: Schedule
    policy: str
    alone: bool
    state: StateRecord
    workload: Workload
    before: Mapping[JobId, Duration]
    outages: tuple[Outage, ...]
    left_out: tuple[str, ...]


def past(folder: Path, policies: PolicySource) -> Recording:
    """Read a journal; its server may run.

    Raises:
        HeadwayError: there is no journal, or no job in it has run.
    """
    state: StateRecord | None = None
    seen: Counter[type[Event]] = Counter()
    changes: list[Event] = []
    late: list[NodeJoined] = []
    rented: set[str] = set()
    planned_by: set[str] = set()
    predicted = 0
    with reading(folder) as beginning:
        told = ReplayRecorder(Scheduler.restore(beginning.state, policies), record=True)
        told.take_over()
        for kind, body in beginning.rows:
            event = event_of(kind, body)
            if isinstance(event, JobSubmitted):
                predicted += event.predicted is not None
                state = told.core.dump() if state is None else state
            if state is not None:
                seen[type(event)] += not _too_late(event, told.core)
                rented |= told.core.state.market.nodes.keys()
                if isinstance(event, NodeDown | NodeUp | NodeLeft | NodeJoined) and _node(event) not in rented:
                    changes.append(event)
                    if isinstance(event, NodeJoined):
                        late.append(event)
            told.take(event, body)
            if state is not None:
                planned_by.add(told.core.policy)
    if state is None:
        raise HeadwayError(f"{folder} has no jobs", "Nothing was submitted since its journal begins.")
    known = {node.spec.name for node in state.nodes}
    joining = [event for event in late if event.node.name not in known]
    if joining:
        core = Scheduler.restore(state, policies)
        for event in {event.node.name: event for event in reversed(joining)}.values():
            core.handle(replace(event, at=state.now))
        state = core.dump()
    done = told.schedule()
    workload, before, unknown = _workload(done, told.specs, state, told.core.state.jobs.keys())
    notes = [
        f"{'Once' if seen[kind] == 1 else f'{seen[kind]:,} times'}: {what}."
        for kind, what in LEFT_OUT.items()
        if seen[kind]
    ]
    if workload.workflows:
        notes.append("Tasks of workflows: their run times count as their estimates.")
    if predicted:
        notes.append(f"Predicted run times, of {_jobs(predicted)}: other policies go by what their users said.")
    if unknown:
        notes.append(f"{_jobs(unknown)}, left out: not run or not ended yet, a service, or in need of rented machines.")
    outages = _outages(changes, state.now, {event.node.name for event in joining})
    alone = len(planned_by) == 1 and not seen[events.Advised]
    return Recording(done, told.core.policy, alone, state, workload, before, outages, tuple(notes))


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _too_late(event: Event, core: Scheduler) -> bool:
    """Whether the event asks something of a job that has ended, so that nothing comes of it."""
    if isinstance(event, events.JobChanged | events.JobCancelled | events.TasksCancelled):
        return event.job not in core.state.jobs
    return False


def _node(event: NodeDown | NodeUp | NodeLeft | NodeJoined) -> str:
    return event.node.name if isinstance(event, NodeJoined) else event.name


@dataclass(frozen=True, slots=True)
class Rerun:
    """The past under a policy.

    Attributes:
        done: the schedule; labels are ids of jobs.
        repeated: it is the recorded one: the policy decided in each round as it did then.
    """

    done: Schedule
    repeated: bool


def rerun(
    folder: Path,
    policies: PolicySource,
    policy: str,
    told: Recording,
    *,
    record: bool = False,
    progress: Progress | None = None,
) -> Rerun:
    """Let a policy decide about the recorded past.

    If the policy has made all plans, it is asked again in the state of each round. If it decides as it did then, what
    happened is what would happen. Else the jobs are simulated from the first one on.

    Args:
        folder, told: the data directory, and what `past` read there.
        record: keep which attempt ran on which slots.
        progress: called now and then with the number of jobs that have ended, and of all jobs.

    Raises:
        HeadwayError: there is no such policy, or nothing is left to run.
    """
    policies(policy)
    if (
        told.alone
        and policy == told.policy
        and all(found.recorded and found.difference is None for found in rounds(folder, policies))
    ):
        return Rerun(told.done, repeated=True)
    if not len(told.workload):
        raise HeadwayError(f"no job in {folder} has run", "There is nothing to run again.")
    first = max((job.spec.id for job in told.state.jobs), default=-1) + 1
    simulation = Simulation.from_state(
        told.state,
        policies,
        policy,
        timing=told.before,
        arrivals=told.workload,
        first_id=first,
        outages=told.outages,
        record=record,
        world=World(migration_cost=0),
    )
    done = simulation.run(progress)
    ids = told.workload.label.tolist()
    labels = np.array([job if job < first else ids[job - first] for job in done.label.tolist()], dtype=np.int64)
    return Rerun(replace(done, label=labels), repeated=False)


def of_those_run(told: Recording) -> Schedule:
    """What happened to the jobs that are run again, up to the last of their ends: what other policies compare with.

    Open jobs, those that never ran, and services are left out, and so is the use of their slots.
    """
    done, ran = told.done, told.done.attempts
    assert ran is not None
    labels = {*told.workload.label.tolist(), *told.before}
    kept = np.flatnonzero([int(label) in labels for label in done.label.tolist()])
    place = np.full(len(done), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    until = int(done.end[kept].max()) if len(kept) else done.begin
    of_them = Attempts(**{name: getattr(ran, name)[place[ran.job] >= 0] for name in _columns(Attempts)})
    of_them = replace(of_them, job=place[of_them.job])
    slot_time = (of_them.end - of_them.start) * of_them.count * ~of_them.behind
    holdings = done.holdings
    if holdings is not None:
        rows = place[holdings.job] >= 0
        holdings = Holdings(**{name: getattr(holdings, name)[rows] for name in _columns(Holdings)})
        holdings = replace(holdings, job=place[holdings.job])
    return replace(
        done,
        **{name: getattr(done, name)[kept] for name in (*_JOB_COLUMNS, *(() if done.alone is None else ("alone",)))},
        holdings=holdings,
        rentals=tuple(
            row if row.job is None else replace(row, job=int(place[row.job]))
            for row in done.rentals
            if row.job is None or place[row.job] >= 0
        ),
        attempts=of_them,
        until=until,
        busy=int(slot_time.sum()),
        lost=int(slot_time[of_them.wasted].sum()),
        offered=sum([max(0, min(to, until) - max(since, done.begin)) * many for _, since, to, many in done.present]),
        services=(),
        workflows={int(place[job]): graph for job, graph in done.workflows.items() if place[job] >= 0},
        task_labels={int(place[job]): names for job, names in done.task_labels.items() if place[job] >= 0},
    )


def _columns(of: type[Attempts | Holdings]) -> list[str]:
    return [field.name for field in fields(of)]


def _work(done: Schedule) -> dict[JobId, dict[int, Duration]]:
    """How long each task of each job ran, in microseconds on a slot of speed factor 1: what it took in its last row.

    A task that moved with its work has several rows, which count together.
    """
    found: dict[JobId, dict[int, Duration]] = defaultdict(lambda: defaultdict(int))
    ran = done.attempts
    if ran is None:
        return found
    ids, speeds = done.label.tolist(), [spec.speed for spec, _ in done.nodes]
    counted: dict[tuple[int, int], Instant] = {}
    columns = (ran.job, ran.task, ran.node, ran.start, ran.end, ran.wasted)
    for job, task, node, start, end, wasted in zip(*(column.tolist() for column in columns), strict=True):
        if not wasted and counted.get((job, task)) != start:  # a rigid job has a row for each run of its slots
            counted[job, task] = start
            found[ids[job]][task] += round((end - start) * speeds[node])
    return found


def _workload(
    done: Schedule, specs: Mapping[JobId, JobSpec], state: StateRecord, still_open: Collection[JobId]
) -> tuple[Workload, dict[JobId, Duration], int]:
    """The jobs that have run, with their true run times: those that came after the state, and those in it.

    Returns:
        The jobs that came; the mean run time of tasks of jobs in the state; and how many are left out.
    """
    work = _work(done)
    due = dict(zip(done.label.tolist(), done.due.tolist(), strict=True))
    priority = dict(zip(done.label.tolist(), done.priority.tolist(), strict=True))
    release = dict(zip(done.label.tolist(), done.release.tolist(), strict=True))
    before = {job.spec.id for job in state.jobs}
    nodes = [node.spec for node in state.nodes]
    extent = Extent([nodes])
    known = [
        job
        for job in sorted(specs if any(node.slots for node in nodes) else ())
        if job in work and job not in still_open and not isinstance(specs[job], Service)
        if extent.flaw_of_fit(specs[job]) is None
    ]
    came = sorted((job for job in known if job not in before), key=lambda job: (release[job], job))
    place = {job: position for position, job in enumerate(came)}
    terms = [specs[job] for job in came]
    times = {job: [work[job].get(task, 0) for task in range(specs[job].tasks)] for job in known}
    means = {job: sum(times[job]) // len(times[job]) for job in known}
    workload = workload_us(
        release=[max(release[job], state.now) for job in came],
        runtime=[means[job] for job in came],
        due=[due[job] for job in came],
        priority=[priority[job] for job in came],
        after={
            place[job]: tuple(sorted(place[it] for it in specs[job].after if it in place))
            for job in came
            if specs[job].after
        },
        bags={
            place[job]: BagTimes(tasks=tuple(times[job]))
            for job in came
            if specs[job].kind is Kind.BAG and len(set(times[job])) > 1
        },
        workflows={
            place[job]: tuple(replace(task, estimate=took) for task, took in zip(spec.graph, times[job], strict=True))
            for job, spec in zip(came, terms, strict=True)
            if isinstance(spec, Workflow)
        },
        **told_by(terms),
    )
    return workload, {job: means[job] for job in known if job in before}, len(specs) - len(known)


def _outages(changes: Sequence[Event], begin: Instant, joining: Collection[str]) -> tuple[Outage, ...]:
    """When nodes were not there, in seconds on the clock of the journal."""
    down: dict[str, Instant] = dict.fromkeys(joining, begin)
    found = []
    for event in changes:
        if isinstance(event, NodeDown | NodeLeft):
            down.setdefault(event.name, event.at)
        elif isinstance(event, NodeUp | NodeJoined):
            name = _node(event)
            if name in down:
                found.append(Outage(name, to_seconds(down.pop(name)), to_seconds(event.at)))
    found += [Outage(name, to_seconds(since), None) for name, since in down.items()]
    return tuple(sorted(found, key=lambda outage: outage.at))
