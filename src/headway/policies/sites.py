"""A top level for clusters of several sites: each site is a pool, and each job is dealt to one of them when it comes.

Source: the two levels of DN13, section 4, with its rule RR.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headway.errors import InvalidInput
from headway.model.job import Kind
from headway.model.plan import Plan, Reason
from headway.model.queue import by_order
from headway.model.slots import NO_SLOTS, Slots, count
from headway.model.snapshot import JobView, NodeView, Snapshot, all_slots, is_top_level, with_slots
from headway.model.value import value

TOPS: Final = ("rr",)
"""How jobs are dealt: in turn."""


@value
class Sites:
    """Each site has its own slots, jobs and policy; jobs are dealt to the sites when they come.

    A site is what nodes have in common that name the same `site`. A job goes only to a site that can hold it, and stays
    there. Jobs that can be held nowhere wait.

    Args:
        top: how jobs are dealt. rr: to the sites in turn.
        each: the policy of each site; its parameters are separated by semicolons, as in `easy:order=due;depth=2`.
        per_instant: one round for all events of an instant, here and at each site, instead of one after each event.
    """

    top: str = "rr"
    each: str = "easy"
    per_instant: bool = False

    def __post_init__(self) -> None:
        if self.top not in TOPS:
            raise InvalidInput("top", self.top, ", ".join(TOPS))
        from headway.policies.registry import find  # it knows this module

        if is_top_level(find(self.each.replace(";", ","))):
            raise InvalidInput("each", self.each, "a policy for one site")
        find(self.lower(""))

    def lower(self, pool: str) -> str:
        """The policy of a site."""
        text = self.each.replace(";", ",")
        if not self.per_instant:
            return text
        return text + (",per_instant=true" if ":" in text else ":per_instant=true")

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        lent = self._lend(view, plan) if view.slots else []
        names, last = list(dict.fromkeys((*view.pools, *lent))), view.last
        for job in view.in_order(by_order):  # also those of which no task is ready
            if job.attempts or job.held:
                continue
            found = self._next(view, names, last, job)
            if found is None:
                plan.pass_over(job.id, Reason.NEVER_FITS)
            else:
                plan.deal(found, job.id)
                last = found
        return plan

    def _lend(self, view: Snapshot, plan: Plan) -> list[str]:
        """Give the sites their slots, and the jobs that already run there. Returns the sites that get some.

        What spans sites, from a time without them, ends where it is, with all that shares a slot with it.
        """
        going: dict[str, Slots] = {}
        for node in view.nodes.values():
            here = node.slots & view.slots
            if here:
                site = _site_of(node)
                going[site] = going.get(site, NO_SLOTS) | here
        runs = {job.id: all_slots(job) for job in with_slots(view)}
        staying, before = NO_SLOTS, -1
        while staying != before:
            before = staying
            for number, slots in list(runs.items()):
                if slots & staying or not any(not slots & ~there for there in going.values()):
                    staying |= slots
                    del runs[number]
        for site, there in going.items():
            if there & ~staying:
                plan.lend(site, there & ~staying)
        for number, slots in runs.items():
            plan.deal(next(site for site, there in going.items() if not slots & ~there), number)
        return [site for site, there in going.items() if there & ~staying]

    def _next(self, view: Snapshot, names: Sequence[str], last: str, job: JobView) -> str | None:
        """The next site in turn that can hold a job."""
        first = names.index(last) + 1 if last in names else 0
        for site in (*names[first:], *names[:first]):
            if _holds(view, site, job):
                return site
        return None


def _site_of(node: NodeView) -> str:
    """The name of its pool, which is never empty."""
    return node.spec.site or "unnamed"


def _holds(view: Snapshot, site: str, job: JobView) -> bool:
    """Whether the nodes of a site could run a job if nothing else ran there."""
    if job.kind is Kind.BAG:
        return True
    nodes = [node for node in view.nodes.values() if _site_of(node) == site and not node.draining]
    if job.kind is Kind.RIGID:
        return job.width <= sum(node.spec.slots for node in nodes)
    return all(_is_held(nodes, task.cores) for task in job.graph)


def _is_held(nodes: Sequence[NodeView], cores: int) -> bool:
    return any(count(node.slots) >= node.spec.slots_for(cores) for node in nodes)
