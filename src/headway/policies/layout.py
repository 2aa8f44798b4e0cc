"""Plans of workflows: a node and a start for every task, kept from round to round in the promises, and mended.

The plan is in the state: each task that has a place is promised its start on a node. A round follows these promises. It
only plans what has no place: new workflows, tasks that are to be tried again, what was planned on a node that is gone,
and all tasks that come after these. Where estimates were wrong, so that slots idle while tasks wait elsewhere, the next
tasks of the plan get new places.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import merge
from itertools import islice, takewhile
from typing import Any, Final

import numpy as np

from headway.model.instant import NEVER, SECOND, Duration, Instant
from headway.model.job import JobId
from headway.model.network import LinkTerms, NodePlace, place_of
from headway.model.plan import Plan
from headway.model.seen import JobView
from headway.model.slots import Slots, count, lowest
from headway.model.snapshot import Snapshot
from headway.policies.holes import Fit, Holes, Times

LONGEST_PLANNED: Final[Duration] = 2**45
"""Tasks count as no longer than this, more than a year, so that sums of many of them stay instants."""

Entry = tuple[Instant, JobId, int]
"""A start, a job and a task."""

Agenda = Mapping[str, Sequence[Entry]]
"""What is planned on each node, by its name, soonest first: the start, the job and the task."""


class Draft:
    """A workflow while it is laid out.

    Attributes:
        job: the workflow.
        end, place: of each task that has ended, runs or has a place: when it ends, and where it is then.
        missing: the tasks that need a place: they, or tasks before them, have none.
        lost: tasks that can never start, or not now: they, or tasks before them, are wider than every node that is up.
    """

    __slots__ = ("end", "job", "lost", "missing", "place")

    def __init__(self, job: JobView, now: Instant, fits: Callable[[int], bool]) -> None:
        """What is known of a workflow.

        Args:
            fits: whether a node that is up has so many cores.
        """
        self.job = job
        done = settled(job)
        self.end: dict[int, Instant] = dict.fromkeys(done, now)
        self.place: dict[int, int | NodePlace] = {}
        self.lost = hopeless(job, done) if job.failed or job.dropped else set[int]()
        for task, (where, at) in job.outputs.items():
            self.end[task], self.place[task] = at, where
        self.missing: set[int] = set()
        apart = set(job.apart)
        for task, spec in enumerate(job.graph):  # those before it have been looked at
            if task in done or task in job.attempts or task in self.lost:
                continue
            if task in apart:
                self.end[task] = now + max(1, spec.estimate)
            elif not fits(spec.cores) or any(before in self.lost for before in spec.after):
                self.lost.add(task)
            elif task not in job.planned or any(before in self.missing for before in spec.after):
                self.missing.add(task)

    @property
    def needs_places(self) -> bool:
        """Whether the plan lacks a task, or has one that cannot start."""
        return bool(self.missing) or any(task in self.job.planned for task in self.lost)


def settled(job: JobView) -> set[int]:
    """The tasks of a workflow that have ended: neither running nor ready nor waiting for others or to run alone."""
    waiting = {*job.again, *job.apart, *job.attempts}
    return {task for task in range(job.tasks) if not job.missing[task] and task not in waiting}


def hopeless(job: JobView, done: set[int]) -> set[int]:
    """The tasks of a workflow that can never start: they, or some before them, were cancelled, or one has failed."""
    found: set[int] = set()
    for task, spec in enumerate(job.graph):  # in order of number, so that what stands before has been judged
        before = set(spec.after)
        if task in job.dropped or job.missing[task] > len(before - done) or before & found:
            found.add(task)
    return found


def lacking(view: Snapshot) -> list[Draft]:
    """The workflows of which the plan lacks a task, or has one that cannot start; by id."""
    jobs = view.lacking_places()
    if not jobs:
        return []
    fits = _fits(view)
    drafts = []
    for _, job in sorted(jobs.items()):
        if job.may_lack_places and not job.cancelled:
            draft = Draft(job, view.now, fits)
            if draft.needs_places:
                drafts.append(draft)
    return drafts


def _fits(view: Snapshot) -> Callable[[int], bool]:
    """What says whether a node that is up has so many cores."""
    widths: dict[int, bool] = {}

    def fits(cores: int) -> bool:
        if cores not in widths:
            nodes = view.nodes.values()
            widths[cores] = any(
                count(node.slots & (view.up | view.off)) >= node.spec.slots_for(cores) for node in nodes
            )
        return widths[cores]

    return fits


def layout_of(view: Snapshot, drafts: list[Draft], taken: Sequence[tuple[Slots, Duration]]) -> Layout:
    """The plan so far, to which places for these workflows are added.

    As long as all goes as planned, that of the last round is taken up: then a new one would be the same.

    Args:
        taken: slots that this round has given to other jobs, and for how long.
    """
    kept = None if view.recording else view.take_layout()
    if isinstance(kept, Layout) and not taken and kept.is_true(view, drafts):
        kept.go_on(view, drafts)
        return kept
    return Layout(view, drafts, taken)


class Layout:
    """Nodes over time, with all that runs there and is planned; new tasks are laid out in it.

    Attributes:
        nodes: those that are up or may come on, in order of joining.
        speeds: the distinct speed factors of the nodes, rising: their classes.
        drafts: the workflows of which tasks need a place, by id.
        placed: for every task that has a place, new or kept: its start, its job and its number, by name of the node;
            where the plan goes on as it was, only for nodes on which something is new.
    """

    def __init__(
        self,
        view: Snapshot,
        drafts: list[Draft],
        taken: Sequence[tuple[Slots, Duration]],
        planned: Iterable[Entry] | None = None,
    ) -> None:
        """The plan so far, brought up to date: each task starts as soon as it can, in the order of the plan.

        Args:
            drafts: the workflows of which tasks need a place.
            taken: slots that this round has given to other jobs, and for how long.
            planned: which part of the plan to take up; None: all of it.
        """
        self._view = view
        usable = view.up | view.off
        self.nodes = [node for node in view.nodes.values() if node.slots & usable]
        self.drafts = {draft.job.id: draft for draft in drafts}
        self._others: dict[JobId, Draft] = {}
        self._numbers = {node.spec.name: number for number, node in enumerate(self.nodes)}
        self._sites = [place_of(node.spec) for node in self.nodes]
        self._speeds = np.array([node.spec.speed for node in self.nodes])
        self.speeds, self._class, found = np.unique(self._speeds, return_inverse=True, return_counts=True)
        self._share = found / max(1, len(self.nodes))
        self._mean = float((1 / self._speeds).mean())
        self._alike = bool((self._speeds == 1.0).all())
        self._rows: dict[int | NodePlace, tuple[Any, Any]] = {}
        self._lines: dict[int | NodePlace, LinkTerms | None] = {}
        kept = sorted(merge(*view.agenda.values()) if planned is None else planned)
        known = {number: self._draft_of(number) for number in dict.fromkeys(entry[1] for entry in kept)}
        widths = {draft.job.graph[task].cores for draft in drafts for task in draft.missing}
        widths |= {known[number].job.graph[task].cores for _, number, task in kept}
        needs = {cores: [node.spec.slots_for(cores) for node in self.nodes] for cores in sorted(widths)}
        self._needs = needs
        self.holes = Holes([count(node.slots & usable) for node in self.nodes], needs, view.now)
        for place, one in enumerate(self.nodes) if view.off else ():
            if one.slots & view.off:
                self.holes.take(place, view.now, view.ready_at(one), count(one.slots & usable))
        self.placed: dict[str, list[tuple[Instant, JobId, int]]] = {}
        self._take_what_runs(taken)
        latest: dict[str, Instant] = {}
        for _, number, task in kept:
            draft = known[number]
            if task in draft.missing or task in draft.lost:
                continue
            name = draft.job.planned[task][1]
            node = self._numbers[name]
            ready = max(self._ready_on(draft, task, node), latest.get(name, view.now))
            fit = self.holes.on(node, draft.job.graph[task].cores, self._lasts_on(draft, task, node), ready)
            latest[name] = fit[1]
            self.put(draft, task, fit)
        self._goes_on, self._is_part = False, planned is not None

    def is_true(self, view: Snapshot, drafts: list[Draft]) -> bool:
        """Whether all has gone as planned until now, and these workflows are new."""
        is_late = bool(view.running) and view.running[0][0] <= view.now
        is_late = is_late or any(planned[0][0] < view.now for planned in view.agenda.values())
        are_new = not any(draft.job.planned or draft.job.attempts for draft in drafts)
        widths = {draft.job.graph[task].cores for draft in drafts for task in draft.missing}
        return are_new and not is_late and self.holes.has(widths)

    def go_on(self, view: Snapshot, drafts: list[Draft]) -> None:
        """Lay out these workflows too."""
        self._view, self._goes_on = view, True
        self.drafts, self._others, self.placed = {draft.job.id: draft for draft in drafts}, {}, {}
        self.holes.advance(view.now)

    def agenda(self) -> Agenda:
        """What is planned on each node now, soonest first."""
        if self._goes_on:
            before = self._view.agenda
            new = {name: sorted([*before.get(name, ()), *planned]) for name, planned in self.placed.items()}
            return {**before, **new}
        for planned in self.placed.values():
            planned.sort()
        return self.placed

    def keep(self, plan: Plan, agenda: Agenda) -> None:
        """Keep this for the next round, if all that the plan starts is laid out to start now."""
        due = {entry[1:] for planned in agenda.values() for entry in takewhile(self._is_due, planned)}
        jobs = [draft.job for draft in self.drafts.values()]
        plain = not any(job.times or any(spec.estimate > LONGEST_PLANNED for spec in job.graph) for job in jobs)
        if plain and not self._view.recording and due.issuperset((to.job, to.task) for to in plan.allocations):
            self.drafts, self._others, self.placed = {}, {}, {}
            plan.layout = self

    def _is_due(self, entry: tuple[Instant, JobId, int]) -> bool:
        return entry[0] <= self._view.now

    def _draft_of(self, number: JobId) -> Draft:
        if number in self.drafts:
            return self.drafts[number]
        found = self._others[number] = Draft(self._view.jobs[number], self._view.now, lambda cores: True)
        return found

    def _take_what_runs(self, taken: Sequence[tuple[Slots, Duration]]) -> None:
        """Nothing else fits where attempts run, until they are expected to end."""
        view = self._view
        runs = [(attempt.slots, max(end, view.now + 1)) for end, _, _, attempt in view.running]
        for slots, end in [*runs, *((slots, view.now + max(1, lasts)) for slots, lasts in taken)]:
            last = view.slot_nodes[slots.bit_length() - 1]
            on = [last] if not slots & ~last.slots else self.nodes  # nearly always one node
            for node in on:
                here = count(slots & node.slots & view.up)
                number = self._numbers.get(node.spec.name)
                if here and number is not None:
                    self.holes.take(number, view.now, min(end, NEVER), here)
        for draft in (*self.drafts.values(), *self._others.values()):
            for task, attempt in draft.job.attempts.items():
                draft.end[task] = max(attempt.expected_end, view.now + 1)
                spec = view.slot_nodes[attempt.slots.bit_length() - 1].spec
                draft.place[task] = self._numbers.get(spec.name, place_of(spec))

    # What tasks take

    def lasts(self, estimate: Duration) -> Times:
        """How long a task of this estimate takes, by number of node."""
        estimate = max(1, min(estimate, LONGEST_PLANNED))
        if self._alike:
            return estimate
        times: Any = np.minimum(-np.floor_divide(-float(estimate), self._speeds), LONGEST_PLANNED).astype(np.int64)
        longer: Times = np.maximum(times, 1)
        return longer

    def _lasts_on(self, draft: Draft, task: int, node: int) -> Duration:
        times = self.lasts(draft.job.graph[task].estimate)
        return times if isinstance(times, int) else int(times[node])

    def ready(self, draft: Draft, task: int) -> Times:
        """When a task may start: when those before it have ended and sent what it needs, by number of node."""
        spec, view = draft.job.graph[task], self._view
        ends, latest = draft.end, view.now
        if view.routes.is_free or not draft.job.sends or not spec.sends:
            for before in spec.after:
                latest = max(latest, ends[before])
            return latest
        arrives: Any = None
        alike: list[tuple[int | NodePlace, Instant, Instant]] = []  # from where, when it is there, and when elsewhere
        for before, size in zip(spec.after, spec.sends, strict=True):
            if not size or before not in draft.place:
                latest = max(latest, ends[before])
                continue
            place, end = draft.place[before], ends[before]
            line = self._only_line(place)
            if line is not None:
                alike.append((place, end, end + min(line.time(size), LONGEST_PLANNED)))
            else:
                arrival = end + self._sending(place, size)
                arrives = arrival if arrives is None else np.maximum(arrives, arrival)
        if alike:
            arrival = np.full(len(self.nodes), max([later for _, _, later in alike]), dtype=np.int64)
            for place in {place for place, _, _ in alike if isinstance(place, int)}:
                arrival[place] = max([end if here == place else later for here, end, later in alike])
            arrives = arrival if arrives is None else np.maximum(arrives, arrival)
        return latest if arrives is None else np.maximum(arrives, latest)

    def _only_line(self, place: int | NodePlace) -> LinkTerms | None:
        """The line from a place to all other nodes; None if there are several."""
        if place not in self._lines:
            here = self._sites[place] if isinstance(place, int) else place
            lines = {self._view.routes.line(here, there) for there in self._sites if there[0] != here[0]}
            self._lines[place] = lines.pop() if len(lines) == 1 else None
        return self._lines[place]

    def _ready_on(self, draft: Draft, task: int, node: int) -> Instant:
        times = self.ready(draft, task)
        return times if isinstance(times, int) else int(times[node])

    def _sending(self, place: int | NodePlace, size: int) -> Any:
        """How long so many bytes take from a place to each node; as `Routes.time`."""
        found = self._rows.get(place)
        if found is None:
            here = self._sites[place] if isinstance(place, int) else place
            lines = [self._view.routes.line(here, there) for there in self._sites]
            found = self._rows[place] = (
                np.array([line.latency for line in lines], dtype=np.int64),
                np.array([np.inf if line.bandwidth is None else line.bandwidth for line in lines]),
            )
        latency, bandwidth = found
        sent = np.ceil(float(size * SECOND) / bandwidth)
        return latency + np.minimum(sent, LONGEST_PLANNED).astype(np.int64)

    def mean_of(self, estimate: Duration) -> float:
        """The mean run time of a task over the nodes, in microseconds."""
        return estimate * self._mean

    def best_end(self, drafts: Sequence[Draft], ways: Sequence[Sequence[float]]) -> float:
        """When all that is to be laid out has ended at the best: its work shared evenly, or its longest way.

        Where only the next tasks of the plan are laid out, it is not before the last start of the plan.

        Args:
            ways: of each workflow the upward rank of each task.
        """
        work = longest = 0.0
        for draft, ranks in zip(drafts, ways, strict=True):
            for task in draft.missing:
                spec = draft.job.graph[task]
                work += spec.estimate * self._needs[spec.cores][0]
                longest = max(longest, ranks[task])
        capacity = sum(node.spec.slots * node.spec.speed for node in self.nodes)
        last = max((planned[-1][0] for planned in self._view.agenda.values()), default=0) if self._is_part else 0
        return max(last, self._view.now + max(work / capacity, longest))

    def mean_line(self, *, distinct: bool) -> tuple[float, float]:
        """Latency and microseconds for a byte, averaged as `Routes.mean` does."""
        return self._view.routes.mean(self._sites, distinct=distinct)

    def by_node(self, values: Any) -> Any:
        """Values by class of speed, as values by node."""
        return values[self._class]

    def mean(self, values: Any) -> float:
        """The mean over the nodes of values by class of speed."""
        return float((values * self._share).sum())

    # Giving places

    @property
    def begin(self) -> Instant:
        """The instant from which on tasks are laid out."""
        return self._view.now

    def empty(self) -> Holes:
        """The nodes as if nothing ran, from 0 on."""
        usable = self._view.up | self._view.off
        return Holes([count(node.slots & usable) for node in self.nodes], self._needs, 0)

    def take(self, holes: Holes, fit: Fit, cores: int) -> None:
        """Take the slots of a task of so many cores out of holes."""
        node, start, end = fit
        holes.take(node, start, end, self._needs[cores][node])

    def put(self, draft: Draft, task: int, fit: Fit) -> None:
        """Give a task a place."""
        node, start, end = fit
        self.take(self.holes, fit, draft.job.graph[task].cores)
        draft.end[task], draft.place[task] = end, node
        self.placed.setdefault(self.nodes[node].spec.name, []).append((start, draft.job.id, task))

    def promise_all(self, plan: Plan) -> None:
        """Promise all tasks their places, where these are not what they are promised already."""
        jobs = self._view.jobs
        for name, agenda in self.placed.items():
            spec = self._view.nodes[name].spec
            for start, number, task in agenda:
                job = jobs[number]
                if job.planned.get(task) != (start, name) and start < NEVER:
                    plan.promise(number, start, spec.slots_for(job.graph[task].cores), task, name)
        for draft in self.drafts.values():
            for task in sorted(draft.lost):
                if task in draft.job.planned:
                    node = draft.job.planned[task][1]
                    plan.promise(draft.job.id, NEVER, 0, task, node)


def follow(view: Snapshot, plan: Plan, free: Slots, agenda: Agenda) -> Slots:
    """Start what is due: on each node the tasks in the order of the plan, each as soon as it can.

    Where all goes as planned, that is the promised start. A task whose promised start has passed, because one before it
    is late, lets others go first. Returns the slots that stay free.
    """
    now, jobs, wake = view.now, view.jobs, NEVER
    for name, node in view.nodes.items() if agenda and free else ():
        planned, here = agenda.get(name, ()), free & node.slots
        if not planned or not here:
            continue
        for start, number, task in planned:
            job = jobs[number]
            is_bounded = job.ration is not None and sum(one.job == number for one in plan.allocations) >= job.ready
            if job.missing[task] or task in job.apart or is_bounded:
                if start < now:
                    continue
                break
            arrival = view.inputs_at(job, task, node.spec) if job.outputs else now
            if arrival > now:
                wake = min(wake, arrival)
                if start < now:
                    continue
                break
            slots = node.spec.slots_for(job.graph[task].cores)
            place = lowest(here, slots)
            if count(place) < slots:
                break
            plan.place(number, task, place)
            free ^= place
            here ^= place
            if not here:
                break
    if wake == NEVER and agenda and not (view.running or plan.allocations or view.coming):
        wake = 1 + max(now, min(planned[0][0] for planned in agenda.values()))  # then those that wait let others go
    if wake < NEVER:
        plan.wake = wake
    return free


Give = Callable[[Layout, list[Draft]], None]
"""Gives all tasks that need one a place; what fits nowhere gets none."""


def to_mend(view: Snapshot, plan: Plan, free: Slots, most: int) -> list[Entry]:
    """The next tasks of the plan, if they should get new places; else none.

    They should if something has ended at another time than expected, or is late, and slots idle where a task that waits
    elsewhere might end sooner: as far as one can tell from when slots of its node become free, without sending.

    Args:
        plan: what this round starts.
        free: the slots that it leaves free.
        most: how many tasks there are at most.
    """
    is_late = bool(view.running) and view.running[0][0] < view.now
    if not (free and most and view.agenda and (view.strayed or is_late)):
        return []
    starting = {(to.job, to.task) for to in plan.allocations}
    until: dict[str, Instant] = {}
    for end, _, _, attempt in view.running:
        until.setdefault(view.slot_nodes[attempt.slots.bit_length() - 1].spec.name, max(end, view.now + 1))
    idle = [(node.spec, count(node.slots & free)) for node in view.nodes.values() if node.slots & free]
    speeds: dict[int, float] = {}
    window = list(islice(merge(*view.agenda.values()), most))
    for start, number, task in window:
        job = view.jobs[number]
        if job.missing[task] or (number, task) in starting or task in job.apart:
            continue
        spec = job.graph[task]
        if spec.cores not in speeds:
            speeds[spec.cores] = max(
                [node.speed for node, room in idle if room >= node.slots_for(spec.cores)], default=0.0
            )
        speed, name = speeds[spec.cores], job.planned[task][1]
        begin = max(start, until.get(name, view.now))
        if speed and view.now + spec.estimate / speed < begin + spec.estimate / view.nodes[name].spec.speed:
            return window
    return []


def mend(
    view: Snapshot, plan: Plan, window: list[Entry], give: Give, taken: Sequence[tuple[Slots, Duration]]
) -> Agenda:
    """Give the next tasks of the plan new places; the others follow in the order in which they were.

    Args:
        window: the next tasks, in order of start: so all tasks before them are among them, if they have not started.
        give: gives places.
        taken: slots that this round has given to other jobs, and for how long.

    Returns:
        What is planned on each node now.
    """
    fits, drafts = _fits(view), dict[JobId, Draft]()
    for _, number, task in window:
        if number not in drafts:
            drafts[number] = Draft(view.jobs[number], view.now, fits)
        drafts[number].missing.add(task)
    chosen = [draft for _, draft in sorted(drafts.items())]
    layout = Layout(view, chosen, taken, planned=())
    give(layout, chosen)
    layout.promise_all(plan)
    rest = _after(view, plan, window[-1], layout.placed)
    return {name: sorted([*layout.placed.get(name, ()), *rest[name]]) for name in (*layout.placed, *view.agenda)}


def _after(view: Snapshot, plan: Plan, last: Entry, placed: Agenda) -> dict[str, list[Entry]]:
    """What is planned on each node after an entry, which other tasks come before now.

    A task is promised no start before that of a task that it comes after, or that has a new place on its node.
    """
    ends = {name: max(entries)[0] for name, entries in placed.items()}
    starts = {entry[1:]: entry[0] for entries in placed.values() for entry in entries}
    latest = max(ends.values())
    rest: dict[str, list[Entry]] = {name: [] for name in (*placed, *view.agenda)}
    late: list[tuple[Entry, str]] = []
    for name, agenda in view.agenda.items():
        begin = bisect_left(agenda, (last[0], last[1], last[2] + 1))
        end = max(begin, bisect_left(agenda, (latest, 0, 0)))
        late += [(entry, name) for entry in agenda[begin:end]]
        rest[name] += agenda[end:]
    for (start, number, task), name in sorted(late):
        job = view.jobs[number]
        before = [starts[number, other] for other in job.graph[task].after if (number, other) in starts]
        later = max([start, ends.get(name, start), *before])
        starts[number, task] = later
        rest[name].append((later, number, task))
        if later != start:
            plan.promise(number, later, view.nodes[name].spec.slots_for(job.graph[task].cores), task, name)
    return rest


def first_start(job: JobView) -> Instant | None:
    """The first start that is promised to a task of a workflow."""
    return min((start for start, _ in job.planned.values()), default=None)
