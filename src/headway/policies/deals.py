"""How jobs are dealt to the sites of a cluster: in turn, by numbers of jobs, or by the work that a site can do in time.

Source: `in_turn` and `fewest_jobs` are RR and LB of DN13, section 4. `efficient_first` is Headway's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from typing import Final, NamedTuple

from headway.model.graph import length_of
from headway.model.instant import SECOND, Duration
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.policy import ALL_KINDS, serves_of
from headway.model.seen import JobView, NodeView
from headway.model.snapshot import Snapshot

ROOM: Final = 1.02
"""`efficient_first` fills a site up to this share of what it can do until the horizon: a site that works a little
longer costs less than one more that works."""

ROOM_OF_WORKFLOWS: Final = 0.9
"""The same for a workflow of several tasks: while they wait for one another, slots stay empty."""

SIZES_MAX: Final = 8
"""So many sizes of tasks are told apart at most when it is counted what fits side by side."""


class Site:
    """What a site is, for dealing.

    Args:
        nodes: those that do not drain.
        pool: the pool of the site; None: it does not exist yet.
        serves: the kinds of jobs that its policy serves.
        apart: whether its nodes are of several sites, of which a rigid job needs one.

    Attributes:
        name, nodes, serves: as given.
        widest: so many slots a rigid job may need.
        dealt: how many jobs it was dealt so far.
        is_up: whether one of them is up.
        capacity: slots times speed factor.
        fastest: the speed factor of its fastest node.
        watts: what its nodes draw at their peak for each unit of capacity; 0 if that is not known.
        work: what is dealt to it and not done, in slot-microseconds at speed factor 1.
        weighed: the same, weighed in each of the ways of `weights`.
    """

    def __init__(
        self,
        name: str,
        nodes: Sequence[NodeView],
        pool: Snapshot | None,
        serves: frozenset[Kind] = ALL_KINDS,
        *,
        apart: bool = False,
    ) -> None:
        self.name = name
        self.nodes = nodes
        self.serves = serves
        self.is_up = any(node.may_start for node in nodes)
        specs = [node.spec for node in nodes]
        self._up = [node.spec for node in nodes if node.may_start]
        self.slots = sum(spec.slots for spec in specs)
        self.widest = _widest(specs, apart=apart)
        self._widest_up = _widest(self._up, apart=apart)
        self._is_whole = len(self._up) == len(specs) > 0
        self.capacity = sum(spec.slots * spec.speed for spec in specs)
        self.fastest = max((spec.speed for spec in specs), default=0.0)
        peaks = [spec.power.peak for spec in specs if spec.power is not None]
        self.watts = sum(peaks) / self.capacity if len(peaks) == len(specs) and self.capacity else 0.0
        half = max((spec.slots for spec in specs), default=0) // 2
        self._sizes = range(half, 1, -max(1, half // SIZES_MAX))
        self.begin(pool)
        self._holds: dict[int, bool] = {}
        self._blocks: dict[int, float] = {}
        self._weights: dict[int, tuple[float, ...]] = {}

    def begin(self, pool: Snapshot | None) -> None:
        """It has been dealt as many jobs as its pool was; its work is not known yet."""
        self.dealt = 0 if pool is None else pool.dealt
        self.work = 0.0
        self.weighed = [0.0] * (1 + len(self._sizes))

    def holds(self, job: JobView, cores: int) -> bool:
        """Whether its nodes could run a job if nothing else ran there, and its policy serves such jobs.

        Args:
            cores: see `cores_of`.
        """
        if job.kind not in self.serves:
            return False
        if job.rigid:
            return cores <= self.widest
        if cores not in self._holds:
            self._holds[cores] = any(node.spec.slots_for(cores) <= node.spec.slots for node in self.nodes)
        return self._holds[cores]

    def runs(self, job: JobView, cores: int) -> bool:
        """Whether those of its nodes that are up could run a job that it holds."""
        if self._is_whole:
            return True
        if job.rigid:
            return cores <= self._widest_up
        return any(spec.slots_for(cores) <= spec.slots for spec in self._up)

    def take(self, demand: Demand, share: int = 1) -> None:
        """Count the work of a job as its own; share -1: no more."""
        self.work += share * demand.work
        self.weighed = [one + share * more for one, more in zip(self.weighed, demand.weighed_at(self), strict=True)]

    def _fitting(self, cores: int) -> list[tuple[NodeSpec, int]]:
        """The nodes that such a task fits on, with the slots that it takes there."""
        wanted = [(node.spec, node.spec.slots_for(cores)) for node in self.nodes]
        return [(spec, slots) for spec, slots in wanted if slots <= spec.slots]

    def blocks(self, cores: int) -> float:
        """How many slots a task with so many cores blocks: those of a node, divided by how many such tasks it holds.

        A task of 3 cores blocks 4 slots of a node with 4, and 3 of a node with 6. The mean over the nodes by capacity.
        """
        if cores not in self._blocks:
            all_of_it = blocked = 0.0
            for spec, wanted in self._fitting(cores):
                all_of_it += spec.slots * spec.speed
                blocked += spec.slots * spec.speed * spec.slots / (spec.slots // wanted)
            self._blocks[cores] = blocked / all_of_it if all_of_it else float(cores)
        return self._blocks[cores]

    def weights(self, cores: int) -> tuple[float, ...]:
        """What work of tasks with so many cores counts for: first by itself, then beside tasks of each of some sizes.

        Beside a size, a task counts for all of its node if what it leaves over is less, for itself if it is as large,
        and for nothing if it is smaller. Whatever runs side by side, the weights together are no more than the node.

        Source: Fekete and Schepers, "New classes of fast lower bounds for bin packing problems", Mathematical
        Programming 91, 2001, the functions U.
        """
        if cores not in self._weights:
            fitting = self._fitting(cores)
            capacity = sum(spec.slots * spec.speed for spec, _ in fitting)
            found = [1.0]
            for size in self._sizes if capacity else ():
                counted = 0.0
                for spec, wanted in fitting:
                    if wanted > spec.slots - size:
                        counted += spec.slots * spec.speed * spec.slots / wanted
                    elif wanted >= size:
                        counted += spec.slots * spec.speed
                found.append(counted / capacity)
            self._weights[cores] = tuple(found)
        return self._weights[cores]


class Demand:
    """What a job asks for that is to be dealt.

    Attributes:
        job: as given.
        cores: the most slots that it needs at once on one node; of a rigid job, on one site.
        parts: of a workflow the work that is not done, by cores of its tasks; empty for other jobs.
        work: slot-microseconds at speed factor 1, of what is not done.
    """

    def __init__(self, job: JobView) -> None:
        self.job = job
        self.cores = cores_of(job)
        self.parts: dict[int, float] = {}
        share = job.unfinished / job.tasks
        for task in job.graph:
            self.parts[task.cores] = self.parts.get(task.cores, 0.0) + share * task.cores * task.estimate
        self.work = sum(self.parts.values()) if self.parts else job.left * job.estimate * job.width

    @cached_property
    def path(self) -> Duration:
        """Its critical path on a node of speed factor 1."""
        return length_of(self.job.graph) if self.job.graph else self.job.estimate

    def blocked_at(self, site: Site) -> float:
        """The slot-microseconds at speed factor 1 that it blocks on a site."""
        if not self.parts:
            return self.work
        return sum(work / cores * site.blocks(cores) for cores, work in self.parts.items())

    def weighed_at(self, site: Site) -> list[float]:
        """Its work, weighed in each of the ways of a site. That of bags and rigid jobs fits beside anything."""
        if not self.parts:
            return [self.work, *(0.0 for _ in site.weighed[1:])]
        found = [0.0] * len(site.weighed)
        for cores, work in self.parts.items():
            for place, weight in enumerate(site.weights(cores)):
                found[place] += work * weight
        return found


def cores_of(job: JobView) -> int:
    """The most slots that a job needs at once: of a workflow cores of one node, of a rigid job slots of one site."""
    if job.graph:
        return max(task.cores for task in job.graph)
    return job.width


@cache
def served_by(policy: str) -> frozenset[Kind]:
    """The kinds of jobs that a policy serves, by its text."""
    from headway.policies.registry import find  # it knows policies that deal

    return serves_of(find(policy))


@cache
def needs_one_site(policy: str) -> bool:
    """Whether a policy, by its text, runs a rigid job within one site only."""
    from headway.policies.registry import find  # it knows policies that deal

    found = find(policy)
    return bool(getattr(getattr(found, "policy", found), "needs_one_site", False))


Dealt = tuple[JobView, Site | None]
"""A job, and the site that gets it; None: no site can hold it."""

Deals = Callable[[Sequence[JobView], Sequence[Site], str], Iterable[Dealt]]
"""Deals jobs, in order of release, to sites. The text is the site that was dealt a job last."""


def candidates(job: JobView, cores: int, sites: Sequence[Site]) -> list[Site]:
    """The sites that can hold a job: those that can with the nodes that are up, or else those that may later."""
    holding = [site for site in sites if site.holds(job, cores)]
    able = [site for site in holding if site.runs(job, cores)]
    return able or [site for site in holding if site.is_up] or holding


def in_turn(jobs: Sequence[JobView], sites: Sequence[Site], last: str) -> Iterable[Dealt]:
    """RR: to the next site that can hold it, in the order of the sites (DN13, section 4)."""
    places = {site.name: place for place, site in enumerate(sites, 1)}
    for job in jobs:
        cores, first = cores_of(job), places.get(last, 0)
        turn = (*sites[first:], *sites[:first])
        found = next((site for site in turn if site.holds(job, cores) and site.runs(job, cores)), None)
        found = found or next(iter(candidates(job, cores, turn)), None)
        last = last if found is None else found.name
        yield job, found


def fewest_jobs(jobs: Sequence[JobView], sites: Sequence[Site], last: str) -> Iterable[Dealt]:
    """LB: those that need most cores first, each to the site with the fewest jobs so far (DN13, section 4)."""
    del last
    for cores, job in sorted([(cores_of(job), job) for job in jobs], key=lambda entry: (-entry[0], entry[1].order)):
        found = min(candidates(job, cores, sites), key=lambda site: site.dealt, default=None)
        if found is not None:
            found.dealt += 1
        yield job, found


def efficient_first(jobs: Sequence[JobView], sites: Sequence[Site], last: str) -> Iterable[Dealt]:
    """Those that need most cores first, then by critical path: to the site that takes the least energy for it, of those
    that have room for it until the horizon; if none has, to the one that would be done soonest.

    The *horizon* is how long all work takes at least (`horizon`). A site has room for a job if its critical path there
    ends by then, and if its work with that of the job takes at most `ROOM` of that time, or
    `ROOM_OF_WORKFLOWS`.
    """
    del last
    demands = sorted(map(Demand, jobs), key=lambda demand: (-demand.cores, -demand.path, demand.job.order))
    allowed = [candidates(demand.job, demand.cores, sites) for demand in demands]
    until = horizon(demands, allowed, sites)
    for demand, those in zip(demands, allowed, strict=True):
        if not those:
            yield demand.job, None
            continue
        found = best_of([Bid(demand, site, until) for site in those])
        found.site.take(demand)
        yield demand.job, found.site


class Bid:
    """What a site has for a job, for `efficient_first`.

    Attributes:
        site: as given.
        load: microseconds that its work takes with that of the job at least, by what fits side by side.
        in_time: whether the critical path of the job ends by the horizon.
        has_room: whether that is so, its load leaves room, and it says what it draws.
        energy: the joules that the job takes there; 0 if that is not known.
    """

    __slots__ = ("energy", "has_room", "in_time", "load", "site")

    def __init__(self, demand: Demand, site: Site, until: float) -> None:
        self.site = site
        # Where the job has no weight, it fits into what others leave over.
        both = [one + more for one, more in zip(site.weighed, demand.weighed_at(site), strict=True) if more]
        self.load = max(both, default=0.0) / site.capacity
        self.in_time = demand.path <= until * site.fastest
        room = ROOM_OF_WORKFLOWS if len(demand.job.graph) > 1 else ROOM
        self.has_room = self.in_time and bool(site.watts) and self.load <= room * until
        self.energy = site.watts * demand.blocked_at(site) / SECOND


def best_of(bids: Sequence[Bid]) -> Bid:
    """The one of least energy of those that have room, else the one where the work is done soonest."""
    room = [bid for bid in bids if bid.has_room]
    if room:
        return min(room, key=lambda bid: bid.energy)
    in_time = [bid for bid in bids if bid.in_time]
    return min(in_time or [max(bids, key=lambda bid: bid.site.fastest)], key=lambda bid: bid.load)


def horizon(demands: Sequence[Demand], allowed: Sequence[Sequence[Site]], sites: Sequence[Site]) -> float:
    """A lower bound, in microseconds, of how long the work takes that is to be dealt and that sites have.

    It is the largest of: critical paths on the fastest site that can hold the job; work that a site has over its
    capacity; and of each set of sites, what can be done only there over their capacity.
    """
    works: dict[frozenset[str], float] = {}
    until = max([site.work / site.capacity for site in sites if site.capacity], default=0.0)
    for demand, those in zip(demands, allowed, strict=True):
        if those:
            names = frozenset(site.name for site in those)
            works[names] = works.get(names, 0.0) + demand.work
            until = max(until, demand.path / max(site.fastest for site in those))
    for names in works:
        here = [site for site in sites if site.name in names]
        work = sum(work for subset, work in works.items() if subset <= names) + sum(site.work for site in here)
        until = max(until, work / sum(site.capacity for site in here))
    return until


class Rule(NamedTuple):
    """A rule by which jobs are dealt.

    Attributes:
        deals: the rule.
        words: what it does, for explanations.
        sorts: whether it sorts the jobs that come at once.
        counts: whether it needs to know how many jobs sites were dealt, or what work they have.
        weighs: whether it needs to know what work the sites have.
    """

    deals: Deals
    words: str
    sorts: bool = False
    counts: bool = False
    weighs: bool = False


DEAL_RULES: Final = {
    "rr": Rule(in_turn, "jobs go to the sites in turn"),
    "lb": Rule(fewest_jobs, "a job goes to the site that was dealt the fewest jobs so far", sorts=True, counts=True),
    "fill": Rule(
        efficient_first,
        "a job goes to the site where it takes the least energy of those that have room "
        f"(load with it up to {ROOM:.0%} of the time that all work takes at least, "
        f"{ROOM_OF_WORKFLOWS:.0%} for a workflow), else to where it is done soonest",
        sorts=True,
        counts=True,
        weighs=True,
    ),
}
"""The rules by name."""


def why(rule: str, job: JobView, sites: Sequence[Site]) -> str:
    """Why a job is at its site: what left no choice, or the rule, with its numbers as they are now.

    What the sites were like when the job was dealt is not kept, so the numbers may have changed since.

    Args:
        rule: one of `DEAL_RULES`.
        sites: with their work, of which this job is a part, if the rule weighs it.
    """
    demand, here = Demand(job), job.pool.name
    said = f"it is at site {here}, because "
    if job.dealt_from:
        said += f"site {job.dealt_from}, where it was before, could not run it any more, so it was dealt again: "
    holding = [site for site in sites if site.holds(job, demand.cores)]
    if [site.name for site in holding] == [here]:
        return said + "no other site can hold it"
    return f"{said}{DEAL_RULES[rule].words}. Now: " + "; ".join(_numbers(rule, demand, sites))


def _widest(specs: Sequence[NodeSpec], *, apart: bool) -> int:
    """So many slots a rigid job may need on these nodes; `apart`: it needs nodes of one site."""
    together = Counter[str]()
    for spec in specs:
        together[spec.site if apart else spec.together] += spec.slots
    return max(together.values(), default=0)


def _numbers(rule: str, demand: Demand, sites: Sequence[Site]) -> list[str]:
    """What each site is like for a job that it has, or might be dealt."""
    allowed = candidates(demand.job, demand.cores, sites)
    bids: dict[str, Bid] = {}
    until = 0.0
    if DEAL_RULES[rule].weighs:
        for site in sites:
            if site.name == demand.job.pool.name:  # as if it were dealt only now
                site.take(demand, -1)
        until = horizon([demand], [allowed], sites)
        bids = {site.name: Bid(demand, site, until) for site in allowed}
    return [f"{site.name}: {_state(demand.job, demand.cores, site, bids.get(site.name), until)}" for site in sites]


def _state(job: JobView, cores: int, site: Site, bid: Bid | None, until: float) -> str:
    if not site.holds(job, cores):
        return "cannot hold it"
    if not site.is_up:
        return "is down"
    if not site.runs(job, cores):
        return "too few of its slots are up"
    if bid is None:
        return f"was dealt {site.dealt}"
    energy = f"{bid.energy:.3g} J" if site.watts else "energy unknown"
    late = "" if bid.in_time else ", too slow for it"
    return f"{energy}, load {bid.load / until if until else 0.0:.0%}{late}"
