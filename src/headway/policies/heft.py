"""List scheduling of workflows: the order in which their tasks get places, and which place each gets."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import takewhile
from typing import Any, Final

import numpy as np

from headway.errors import InvalidInput, did_you_mean
from headway.model.instant import Duration
from headway.model.plan import Plan, Reason
from headway.model.seen import JobView
from headway.model.slots import Slots
from headway.model.snapshot import FreeSlots, Snapshot
from headway.model.value import value
from headway.policies.backfill import start
from headway.policies.holes import Holes
from headway.policies.improving import Find, Improving
from headway.policies.layout import (
    Agenda,
    Draft,
    Give,
    Layout,
    first_start,
    follow,
    lacking,
    layout_of,
    mend,
    to_mend,
)
from headway.policies.order import workflows_first, workflows_last

HOLES: Final = ("soonest", "best")
HEFT_ORDERS: Final = ("pooled", "workflow", "due")
AVERAGES: Final = ("distinct", "all")
MEND: Final = 100
"""Tasks that get new places at once, at most, if nothing else is said."""


@value
class Heft:
    """HEFT: tasks of workflows by falling upward rank, each where it ends first, in holes where they fit.

    The upward rank of a task is its mean run time over the nodes, plus the largest sum of what a task after it gets,
    sent over the mean line, and that task's rank. Each task is promised a start on a node, and a round follows these
    promises; only what has no place is planned. Bags and rigid jobs take what is free now and fits: those that came
    before all workflows before them, the others after them.

    Args:
        holes: where a task goes. soonest: where it ends first. best: into the hole that it fills best, its end
            disregarded; where it fits into none, to the node where it ends first (DN13).
        order: in which order tasks get places. pooled: those of all workflows together by rank. workflow: one workflow
            after the other, in order of submission. due: those of all workflows together by their latest start, which
            is the due date of the workflow less the rank of the task. Where the due date is later than the end of all
            work at the best, or there is none, that end counts instead, so that nothing long starts too late.
        average: the pairs of nodes over which lines are averaged. distinct: of two nodes; all: also of a node with
            itself, where sending takes no time.
        mend: how many tasks get new places at most where estimates were wrong, so that slots idle while tasks wait
            elsewhere; 0: what is planned once is kept.
        improve: how many other orders are tried at most whenever tasks get places. The last end counts, then the sum of
            the ends; with `order=due` the tardiness of the workflows first.
        per_instant: one round for all events of an instant, instead of one after each event.

    Source: Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
    computing", IEEE TPDS 13(3), 2002; best holes: DN13, section 4.2.
    """

    holes: str = "soonest"
    order: str = "pooled"
    average: str = "distinct"
    mend: int = MEND
    improve: int = 0
    per_instant: bool = True
    task_rounds = True

    def __post_init__(self) -> None:
        for field, given, allowed in (
            ("holes", self.holes, HOLES),
            ("order", self.order, HEFT_ORDERS),
            ("average", self.average, AVERAGES),
        ):
            if given not in allowed:
                raise InvalidInput(field, given, ", ".join(allowed), hint=did_you_mean(given, allowed))
        _check_least("mend", self.mend)
        _check_least("improve", self.improve)

    def __call__(self, view: Snapshot) -> Plan:
        return list_schedule(view, self._give, self.mend)

    def _give(self, layout: Layout, drafts: list[Draft]) -> None:
        line = layout.mean_line(distinct=self.average == "distinct")
        ranked = []
        ways = [upward_ranks(layout, draft.job, line) for draft in drafts]
        horizon = layout.best_end(drafts, ways) if self.order == "due" else 0.0
        for place, (draft, ranks) in enumerate(zip(drafts, ways, strict=True)):
            first = place if self.order == "workflow" else 0
            end = min(draft.job.due, horizon)
            ranked += [(first, end - ranks[task], place, task) for task in draft.missing]
        ranked.sort()
        if self.improve and ranked:
            improving = Improving(layout, drafts, self._find, line, minds_due=self.order == "due")
            improving.run([entry[2:] for entry in ranked], self.improve, layout.best_end(drafts, ways))
            return
        find = self._find(layout.holes)
        for _, _, place, task in ranked:
            draft = drafts[place]
            spec = draft.job.graph[task]
            layout.put(draft, task, find(spec.cores, layout.lasts(spec.estimate), layout.ready(draft, task)))

    def _find(self, holes: Holes) -> Find:
        return holes.best_hole if self.holes == "best" else holes.soonest


def _check_least(field: str, given: int) -> None:
    if given < 0:
        raise InvalidInput(field, given, "0 or more")


def upward_ranks(layout: Layout, job: JobView, line: tuple[float, float]) -> list[float]:
    """Of each task the longest way to the end of its workflow: mean run times, and mean times of sending between.

    Args:
        line: the mean latency in microseconds, and the mean time for a byte.

    Source: Topcuoglu, Hariri and Wu 2002, equation 8.
    """
    latency, byte = line
    ways = [0.0] * job.tasks
    for task in range(job.tasks - 1, -1, -1):  # what comes after it has been added already
        spec = job.graph[task]
        ways[task] = rank = layout.mean_of(spec.estimate) + ways[task]
        if job.sends and spec.sends:
            for before, size in zip(spec.after, spec.sends, strict=True):
                ways[before] = max(ways[before], rank + (latency + size * byte if size else 0.0))
        else:
            for before in spec.after:
                ways[before] = max(ways[before], rank)
    return ways


@value
class Peft:
    """PEFT: as HEFT, but each task goes where its end plus the optimistic cost of all that comes after it is least.

    The optimistic cost of a task on a node is the longest way from its end to that of its workflow if all that follows
    runs where that is shortest, with mean times of sending. Tasks whose predecessors have places get theirs by falling
    mean optimistic cost. Otherwise like `heft`.

    Args:
        mend: how many tasks get new places at most where estimates were wrong, as in `heft`.
        per_instant: one round for all events of an instant, instead of one after each event.

    Source: Arabnejad and Barbosa, "List scheduling algorithm for heterogeneous systems by an optimistic cost table",
    IEEE TPDS 25(3), 2014.
    """

    mend: int = MEND
    per_instant: bool = True
    task_rounds = True

    def __post_init__(self) -> None:
        _check_least("mend", self.mend)

    def __call__(self, view: Snapshot) -> Plan:
        return list_schedule(view, _give_by_optimistic_cost, self.mend)


def _give_by_optimistic_cost(layout: Layout, drafts: list[Draft]) -> None:
    line = layout.mean_line(distinct=True)
    costs = [optimistic_costs(layout, draft.job, line) for draft in drafts]
    ready: list[tuple[float, int, int]] = []
    left: list[dict[int, int]] = []

    def offer(place: int, task: int) -> None:
        ready.append((-float(layout.mean(costs[place][task])), place, task))

    for place, draft in enumerate(drafts):
        left.append({task: len(draft.missing & {*draft.job.graph[task].after}) for task in draft.missing})
        for task, before in left[place].items():
            if not before:
                offer(place, task)
    heapify(ready)
    while ready:
        _, place, task = heappop(ready)
        draft = drafts[place]
        spec = draft.job.graph[task]
        cost = layout.by_node(costs[place][task])
        fit = layout.holes.soonest(spec.cores, layout.lasts(spec.estimate), layout.ready(draft, task), cost)
        layout.put(draft, task, fit)
        for follower in draft.job.followers[task]:
            if follower in left[place]:
                left[place][follower] -= 1
                if not left[place][follower]:
                    heappush(ready, (-float(layout.mean(costs[place][follower])), place, follower))


def optimistic_costs(layout: Layout, job: JobView, line: tuple[float, float]) -> list[Any]:
    """Of each task, by class of speed: how long it takes at least from its end to that of its workflow.

    Source: Arabnejad and Barbosa 2014, equation 4.
    """
    latency, byte = line
    costs: list[Any] = [np.zeros(len(layout.speeds)) for _ in range(job.tasks)]
    for task in range(job.tasks - 1, -1, -1):
        spec = job.graph[task]
        here = costs[task] + spec.estimate / layout.speeds
        least = here.min()
        for number, before in enumerate(spec.after):
            size = spec.sends[number] if spec.sends else 0
            sent = latency + size * byte if size else 0.0
            costs[before] = np.maximum(costs[before], np.minimum(here, least + sent))
    return costs


def list_schedule(view: Snapshot, give: Give, most: int) -> Plan:
    """A round of a list scheduler: follow the plan that there is, plan what has no place, and mend what has strayed.

    Args:
        give: gives places.
        most: to how many tasks that had places it gives new ones at most.
    """
    plan, free = view.plan(), view.free_slots()
    first = next(takewhile(_is_workflow, view.in_order(workflows_first)), None)
    others = takewhile(lambda job: not _is_workflow(job), view.waiting_by(workflows_last))
    late = []
    taken: list[tuple[Slots, Duration]] = []
    for job in others:
        if first is not None and job.id > first.id:
            late.append(job)
        elif not (free.room or view.recording):
            break
        else:
            _start_other(view, plan, job, free, taken)
    agenda: Agenda = view.agenda
    drafts = lacking(view)
    if drafts:
        layout = layout_of(view, drafts, taken)
        give(layout, drafts)
        agenda = layout.agenda()
        layout.promise_all(plan)
    started = len(plan.allocations)
    rest = follow(view, plan, free.slots, agenda)
    window = [] if drafts else to_mend(view, plan, rest, most)
    if window:
        del plan.allocations[started:]
        plan.wake = None
        rest = follow(view, plan, free.slots, mend(view, plan, window, give, taken))
    free.leave(rest)
    for job in late:
        if not (free.room or view.recording):
            break
        _start_other(view, plan, job, free, taken)
    if drafts:
        layout.keep(plan, agenda)
    if view.recording:
        _explain(view, plan)
    return plan


def _start_other(
    view: Snapshot, plan: Plan, job: JobView, free: FreeSlots, taken: list[tuple[Slots, Duration]]
) -> None:
    """Start of a bag or rigid job what fits now."""
    before = free.slots
    needed = start(view, plan, job, free, [])
    gone = before & ~free.slots
    if gone:
        parts = [gone & node.slots for node in view.nodes.values() if gone & node.slots]
        taken += [(part, view.time_of(job, 0, part)) for part in parts]
    if needed:
        plan.pass_over(job.id, Reason.NO_ROOM_NOW)


def _explain(view: Snapshot, plan: Plan) -> None:
    """Say of the workflows that wait when they are to start."""
    starting = {wanted.job for wanted in plan.allocations}
    promised: dict[int, int] = {}
    for kept in plan.promises:
        promised[kept.job] = min(kept.start, promised.get(kept.job, kept.start))
    for job in view.asked(view.waiting):
        if _is_workflow(job) and job.ready and job.id not in starting:
            plan.pass_over(job.id, Reason.NO_ROOM_NOW, promised.get(job.id, first_start(job)))


def _is_workflow(job: JobView) -> bool:
    return bool(job.graph)
