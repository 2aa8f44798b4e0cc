"""A top level for clusters of several sites: each site is a pool, and each job is dealt to one of them when it comes.

Source: the two levels of DN13, section 4. The rules by which jobs are dealt are in `headway.policies.deals`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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
from headway.policies.deals import DEAL_RULES, Demand, Site, cores_of, served_by, why
from headway.policies.prefer import MEAN, RELEASE, Prefer
from headway.policies.renting import CHEAPEST, SPARE

AT: Final = "SITE/POLICY[|SITE/POLICY...], the parameters of a POLICY separated by semicolons"
"""What names policies of single sites."""


@value
class Sites:
    """Each site has its own slots, jobs and policy; jobs are dealt to the sites when they come.

    A site is what nodes have in common that name the same `site`. A job goes only to a site that can hold it and whose
    policy serves its kind, and stays there. If all of a site is down, or has become too small for a job, what has not
    started there is dealt anew. Jobs that can be held nowhere wait.

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
        if self.top not in DEAL_RULES:
            raise InvalidInput("top", self.top, ", ".join((*DEAL_RULES, PREFER)))
        if DEAL_RULES[self.top].sorts:
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
        from headway.policies.registry import once_an_instant  # it knows this module

        return once_an_instant(text)

    def why(self, view: Snapshot, job: JobView) -> str:
        """Why a job is at its site, see `headway.policies.deals.why`."""
        sites = self._known(view, list(view.pools))
        _count(view, sites, weigh=DEAL_RULES[self.top].weighs)
        return why(self.top, job, sites)

    def _known(self, view: Snapshot, names: list[str]) -> list[Site]:
        """The sites in the order of their names; what they have to do may be as it was in an earlier round."""
        kept = view.kept_of_slots((self, *names), partial(_sites, view, names, self.lower))
        assert isinstance(kept, list)
        return kept

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        lent = self._lend(view, plan) if view.slots else []
        names = list(dict.fromkeys((*view.pools, *lent)))
        jobs = [job for job in view.in_order(by_order) if not job.attempts and not job.held]  # also where none is ready
        sites = self._known(view, names)
        if view.slots or view.measured:
            jobs += _stranded(view, sites)
        if not jobs:
            return plan
        rule = DEAL_RULES[self.top]
        if rule.counts:
            _count(view, sites, weigh=rule.weighs)
        for job, dealt_to in rule.deals(jobs, sites, view.last):
            if dealt_to is None:
                if not job.pool.name:
                    plan.pass_over(job.id, Reason.NEVER_FITS)
            elif dealt_to.name != job.pool.name and (dealt_to.is_up or not job.pool.name):
                plan.deal(dealt_to.name, job.id)
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


def _stranded(view: Snapshot, sites: Sequence[Site]) -> list[JobView]:
    """The jobs of which nothing runs, is held or has ended, whose site is down or cannot hold them any more, if another
    one that is up can. Only if slots come or go may there be such jobs.
    """
    found = []
    up = [site for site in sites if site.is_up]
    for site in sites:
        for job in view.pools[site.name].jobs.values() if site.name in view.pools else ():
            if job.attempts or job.held or job.ended or job.cancelled:
                continue
            cores = cores_of(job)
            if not (site.is_up and site.holds(job, cores)) and any(other.holds(job, cores) for other in up):
                found.append(job)
    return found


def _sites(view: Snapshot, names: Sequence[str], lower: Callable[[str], str]) -> list[Site]:
    """The sites in the order of their names."""
    nodes: dict[str, list[NodeView]] = {name: [] for name in names}
    for node in view.nodes.values():
        if not node.draining and _site_of(node) in nodes:
            nodes[_site_of(node)].append(node)
    sites = []
    for name in names:
        pool = view.pools.get(name)
        sites.append(Site(name, nodes[name], pool, served_by(lower(name)) if pool is None else pool.serves))
    return sites


def _count(view: Snapshot, sites: Sequence[Site], *, weigh: bool) -> None:
    """Count how many jobs sites were dealt, and their work if that is to be weighed."""
    for site in sites:
        pool = view.pools.get(site.name)
        site.begin(pool)
        for job in pool.jobs.values() if weigh and pool is not None else ():
            site.take(Demand(job))
