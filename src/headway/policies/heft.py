"""List scheduling of workflows by upward rank, on one site and without communication costs."""

from __future__ import annotations

from heapq import merge
from itertools import takewhile
from operator import attrgetter

from headway.model.instant import NEVER, Instant
from headway.model.job import Kind
from headway.model.plan import Plan, Reason
from headway.model.profile import Profile
from headway.model.slots import count, lowest, numbers
from headway.model.snapshot import JobView, NodeView, Snapshot
from headway.model.value import value
from headway.policies.backfill import start
from headway.policies.order import workflows_first, workflows_last


@value
class Heft:
    """HEFT: tasks of a workflow by falling upward rank, each where it ends first, in gaps where they fit.

    At every round the schedule of all tasks that have not started is computed again. While estimates are right it stays
    the same, so running it means following one schedule. Tasks that are due now start; the others are promised their
    starts. Workflows are served in order of submission. Bags and rigid jobs take, in that order, what is free now and
    fits.

    Args:
        per_instant: one round for all events of an instant, instead of one after each event.

    Source: Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
    computing", IEEE TPDS 13(3), 2002.
    """

    per_instant: bool = True
    task_rounds = True

    def __call__(self, view: Snapshot) -> Plan:
        plan, free = view.plan(), view.free
        workflows = list(takewhile(_is_workflow, view.in_order(workflows_first)))
        # `free` is what is free by then: once nothing is, only workflows are looked at, for their promises.
        others = takewhile(
            lambda job: bool(free or view.recording) and not _is_workflow(job), view.waiting_by(workflows_last)
        )
        nodes = [node for node in view.nodes.values() if node.slots & view.up] if workflows else []
        profiles = self._profiles(view, nodes)
        starting = set[int]()
        for job in merge(workflows, others, key=attrgetter("id")):
            if _is_workflow(job):
                for task, node, begin in self._schedule(view, job, nodes, profiles):
                    slots = node.spec.slots_for(job.graph[task].cores)
                    here = lowest(free & node.slots, slots)
                    if begin == view.now and job.missing[task] == 0 and count(here) == slots:
                        starting.add(job.id)
                        plan.place(job.id, task, here)
                        free &= ~here
                    else:
                        plan.promise(job.id, begin, slots, task)
                if job.ready and job.id not in starting:
                    plan.pass_over(job.id, Reason.NO_ROOM_NOW)
            elif free or view.recording:
                before = free
                free, needed = start(view, plan, job, free, [], count(free))
                if free != before:
                    for node, profile in zip(nodes, profiles, strict=True):
                        taken = count(before & ~free & node.slots)
                        if taken:
                            profile.take(view.now, max(1, view.time_of(job, 0, node.slots)), taken)
                if needed:
                    plan.pass_over(job.id, Reason.NO_ROOM_NOW)
        return plan

    def _profiles(self, view: Snapshot, nodes: list[NodeView]) -> list[Profile]:
        """For each of the nodes, how many of its slots are free from when on."""
        if not nodes:
            return []
        ends: dict[int, list[tuple[Instant, int]]] = {id(node): [] for node in nodes}
        for end, _, _, attempt in view.running:
            on = {id(node): node for node in (view.slot_nodes[slot] for slot in numbers(attempt.slots))}
            for its_id, node in on.items():
                if its_id in ends:
                    ends[its_id].append((max(end, view.now + 1), count(attempt.slots & node.slots)))
        return [Profile.build(view.now, count(view.free & node.slots), ends[id(node)]) for node in nodes]

    def _schedule(
        self, view: Snapshot, job: JobView, nodes: list[NodeView], profiles: list[Profile]
    ) -> list[tuple[int, NodeView, Instant]]:
        """Place every task that has not started: `(task, node, start)` in order of rank. Lowers the profiles."""
        tasks, finish = job.graph, dict[int, Instant]()
        done = settled(job)
        for task in done:
            finish[task] = view.now
        for task, attempt in job.attempts.items():
            finish[task] = max(attempt.expected_end, view.now + 1)
        placed = []
        lost = hopeless(job, done) if job.failed or job.dropped else set[int]()
        for task in by_rank(job, nodes):
            if task in finish or task in lost:
                continue
            ready = max((finish.get(before, NEVER) for before in tasks[task].after), default=view.now)
            best: tuple[Instant, Instant, int] | None = None
            for position, node in enumerate(nodes):
                slots = node.spec.slots_for(tasks[task].cores)
                length = max(
                    1, view.run_time(tasks[task].estimate, node.slots & -node.slots)
                )  # its slots are all alike
                begin = profiles[position].earliest(slots, length, ready) if ready < NEVER else NEVER
                if begin < NEVER and (best is None or begin + length < best[0]):
                    best = begin + length, begin, position
            if best is None:
                continue
            end, begin, position = best
            profiles[position].take(begin, end - begin, nodes[position].spec.slots_for(tasks[task].cores))
            finish[task] = end
            placed.append((task, nodes[position], begin))
        return placed


def _is_workflow(job: JobView) -> bool:
    return job.kind is Kind.WORKFLOW


def settled(job: JobView) -> set[int]:
    """The tasks of a workflow that have ended: neither running nor ready nor waiting for others."""
    ready = set(job.again)
    return {
        task for task in range(job.tasks) if not job.missing[task] and task not in ready and task not in job.attempts
    }


def hopeless(job: JobView, done: set[int]) -> set[int]:
    """The tasks of a workflow that can never start: they, or some before them, were cancelled, or one has failed."""
    found: set[int] = set()
    for task, spec in enumerate(job.graph):  # in order of number, so that what stands before has been judged
        before = set(spec.after)
        if task in job.dropped or job.missing[task] > len(before - done) or before & found:
            found.add(task)
    return found


def by_rank(job: JobView, nodes: list[NodeView]) -> list[int]:
    """Task numbers by falling upward rank: mean run time over the nodes plus the largest rank of what follows.

    Ties go to the lower number, which is never a successor's.
    """
    ranks = [0.0] * job.tasks
    for task in range(job.tasks - 1, -1, -1):
        estimate = job.graph[task].estimate
        mean = sum(estimate / node.spec.speed for node in nodes) / len(nodes) if nodes else float(estimate)
        ranks[task] = mean + max((ranks[follower] for follower in job.followers[task]), default=0.0)
    return sorted(range(job.tasks), key=lambda task: (-ranks[task], task))
