"""A top level for clusters of several sites: each site is a pool, and each job is dealt to one of them when it comes.

Source: the two levels of DN13, section 4. The rules by which jobs are dealt are in `headway.policies.deals`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from headway.errors import InvalidInput
from headway.model.job import Kind
from headway.model.plan import Plan, Reason
from headway.model.policy import Policy
from headway.model.queue import by_order
from headway.model.seen import JobView, NodeView, all_slots
from headway.model.slots import NO_SLOTS, Slots
from headway.model.snapshot import Snapshot, with_slots
from headway.model.value import value
from headway.policies.deals import RULES, Demand, Site, served_by, why
from headway.policies.prefer import MEAN, RELEASE, Prefer
from headway.policies.renting import CHEAPEST, SPARE

AT: Final = "SITE/POLICY[|SITE/POLICY...], the parameters of a POLICY separated by semicolons"
"""What names policies of single sites."""


@value
class Sites:
    """Each site has its own slots, jobs and policy; jobs are dealt to the sites when they come.

    A site is what nodes have in common that name the same `site`. A job goes only to a site that can hold it and whose
    policy serves its kind, and stays there. If all of a site is down, what has not started there is dealt anew. Jobs
    that can be held nowhere wait.

    Args:
        top: how jobs are dealt. rr: to the sites in turn; lb: to the site with the fewest jobs; fill: to the site that
            takes the least energy, as long as its work can be done in time.
        each: the policy of each site; its parameters are separated by semicolons, as in `easy:order=due;depth=2`.
        at: policies of single sites instead of that, as in `east/easy:order=due;depth=2|west/heft`. Of a site that does
            not exist it says what holds once a node names it.
        per_instant: one round for all events of an instant, here and at each site, instead of one after each event. lb
            and fill always do so, because they sort the jobs that come at once.
    """

    top: str = "rr"
    each: str = "easy"
    at: str = ""
    per_instant: bool = False

    def __post_init__(self) -> None:
        if self.top not in RULES:
            raise InvalidInput("top", self.top, ", ".join((*RULES, PREFER)))
        if RULES[self.top].sorts:
            object.__setattr__(self, "per_instant", True)
        _check("each", self.each, self.lower(""))
        named: set[str] = set()
        for part in self.at.split("|") if self.at else ():
            site, _, text = part.partition("/")
            if not (site and text):
                raise InvalidInput("at", part, AT)
            if site in named:
                raise InvalidInput("at", part, f"site {site} once")
            named.add(site)
            _check("at", text, self.lower(site))

    @property
    def serves(self) -> frozenset[Kind]:
        """What the policies of the sites serve together."""
        found = served_by(self.each.replace(";", ","))
        for part in self.at.split("|") if self.at else ():
            found |= served_by(part.partition("/")[2].replace(";", ","))
        return found

    def lower(self, pool: str) -> str:
        """The policy of a site."""
        named = {site: text for site, _, text in (part.partition("/") for part in self.at.split("|"))}
        text = (named.get(pool) or self.each).replace(";", ",")
        if not self.per_instant:
            return text
        return text + (",per_instant=true" if ":" in text else ":per_instant=true")

    def why(self, view: Snapshot, job: JobView) -> str:
        """Why a job is at its site, see `headway.policies.deals.why`."""
        sites = _sites(view, list(view.pools), self.lower, weigh=RULES[self.top].weighs)
        return why(self.top, job, sites)

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        lent = self._lend(view, plan) if view.slots else []
        names = list(dict.fromkeys((*view.pools, *lent)))
        jobs = [job for job in view.in_order(by_order) if not job.attempts and not job.held]  # also where none is ready
        stranded = _stranded(view)
        if jobs or stranded:
            sites = _sites(view, names, self.lower, weigh=RULES[self.top].weighs)
            for job, site in RULES[self.top].deals([*jobs, *stranded], sites, view.last):
                if site is None:
                    plan.pass_over(job.id, Reason.NEVER_FITS)
                elif site.name != job.pool.name and (site.is_up or not job.pool.name):
                    plan.deal(site.name, job.id)
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


def sites(
    top: str = "rr",
    each: str = "easy",
    at: str = "",
    per_instant: bool = False,
    estimate: str = MEAN,
    adaptive: bool = True,
    order: str = "",
    check: float = 0.0,
    queue: str = RELEASE,
    rent: str = CHEAPEST,
    spare: float = SPARE,
) -> Policy:
    """Clusters of several sites: jobs are dealt to pools, or tasks queued at sites in order of preference.

    Args:
        top: prefer: tasks are queued at the first site where they end in time, see `Prefer`, whose parameters are
            `estimate`, `adaptive`, `order`, `check`, `queue`, `rent` and `spare`. Otherwise jobs are dealt, see
            `Sites`, whose are the others.

    Raises:
        InvalidInput: a value is not allowed, or belongs to the other kind.
    """
    prefers = top == PREFER
    of_prefer = {
        "estimate": estimate,
        "order": order,
        "check": check,
        "queue": queue,
        "rent": rent,
        "spare": spare,
    }
    own = {"each": each, "at": at} if prefers else of_prefer
    for field, given in own.items():
        if given != _DEFAULTS[field]:
            allowed = f"nothing, with top={PREFER}: all sites have one queue" if prefers else f"only with top={PREFER}"
            raise InvalidInput(field, given, allowed)
    if prefers:
        return Prefer(estimate, adaptive, order, check, queue, rent, spare)
    return Sites(top, each, at, per_instant)


PREFER: Final = "prefer"
_DEFAULTS: Final = {
    "each": "easy",
    "at": "",
    "estimate": MEAN,
    "order": "",
    "check": 0.0,
    "queue": RELEASE,
    "rent": CHEAPEST,
    "spare": SPARE,
}


def _check(field: str, given: str, text: str) -> None:
    """See that a text names a policy for one site.

    Raises:
        InvalidInput: it does not.
    """
    from headway.policies.registry import find, find_below  # it knows this module

    find_below(field, given, "a policy for one site")
    find(text)


def _site_of(node: NodeView) -> str:
    """The name of its pool, which is never empty."""
    return node.spec.site or "unnamed"


def _stranded(view: Snapshot) -> list[JobView]:
    """The jobs of sites that are down of which nothing runs, is held or has ended."""
    return [
        job
        for pool in view.pools.values()
        if not any(node.may_start for node in pool.nodes.values())
        for job in pool.jobs.values()
        if not (job.attempts or job.held or job.ended or job.cancelled)
    ]


def _sites(view: Snapshot, names: Sequence[str], lower: Callable[[str], str], *, weigh: bool) -> list[Site]:
    """The sites in the order of their names, with the work that they have if that is to be weighed."""
    nodes: dict[str, list[NodeView]] = {name: [] for name in names}
    for node in view.nodes.values():
        if not node.draining and _site_of(node) in nodes:
            nodes[_site_of(node)].append(node)
    sites = []
    for name in names:
        pool = view.pools.get(name)
        sites.append(Site(name, nodes[name], pool, served_by(lower(name)) if pool is None else pool.serves))
    if weigh:
        for site in sites:
            pool = view.pools.get(site.name)
            for job in pool.jobs.values() if pool is not None else ():
                demand = Demand(job)
                site.take(demand)
    return sites
