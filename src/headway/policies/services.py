"""A top level for batch jobs and services on one cluster (Chang16): who gets how many slots in the next window.

Batch jobs have a pool of their own, and so has each service. When a window has ended, the border between the pools
moves: a share of the slots changes its pool. Which share is decided in `headway.policies.provision`.

The services may have only some sites. Then the other sites are one more pool, with a policy of its own, and the border
never reaches it.

Source: T.-W. Chang et al., "Resource Provision for Batch and Interactive Workloads in Data Centers", HPCC 2016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from headway.errors import InvalidInput
from headway.model.instant import SECOND, Duration, Instant, from_seconds
from headway.model.job import Kind, Service
from headway.model.plan import Claim, Plan, Reason
from headway.model.policy import QUANTILE, Policy, quantile_of
from headway.model.queue import by_order
from headway.model.seen import AttemptView, JobView, all_slots
from headway.model.site import named_by
from headway.model.slots import NO_SLOTS, Slots, count, numbers
from headway.model.snapshot import Snapshot, with_slots
from headway.model.value import value
from headway.policies.arrivals import ArrivalForecast
from headway.policies.deals import Site, candidates, cores_of, needs_one_site, served_by
from headway.policies.listed import load_of, pace_of
from headway.policies.listing import Outcomes
from headway.policies.sequence import SEQUENCES, Load, Order, by_tardiness_cost, greedy
from headway.policies.serving import Agreement, Share, Traffic, fluid, queueing, shares, with_late

if TYPE_CHECKING:
    from headway.policies.ahead import TariffAhead
    from headway.policies.provision import Tariff  # they need numpy, which starts slowly

TOPS: Final = ("dp", "sf", "pp", "ahead")
"""How slots are shared out."""

AUTO: Final = "auto"
"""The policy of batch jobs that goes with how slots are dealt."""

MODELS: Final[dict[str, Share]] = {"queueing": queueing, "fluid": fluid}
"""What tells the share of answers in time."""

BATCH_POOL: Final = "batch"
"""The pool of batch jobs."""

SERVICE_POOL: Final = "service "
"""How the names of the pools of services begin; a number follows."""

BESIDE: Final = "beside"
"""The pool of the sites that services cannot have."""

BATCH_KINDS: Final = {"bag": Kind.BAG, "rigid": Kind.RIGID, "workflow": Kind.WORKFLOW}
"""The kinds of batch jobs by their words."""

WORDS: Final = {Kind.BAG: "bags", Kind.RIGID: "rigid jobs", Kind.WORKFLOW: "workflows"}
"""What people call several of them."""


def is_of_service(pool: str) -> bool:
    """Whether a pool of this name is that of a service."""
    return pool.startswith(SERVICE_POOL)


class Border:
    """Which pool each slot is of, or goes to; and how that is to change.

    Args:
        view: the first pool.
        sites: the sites between whose slots it runs; empty: all.

    Attributes:
        nodes: those of these sites.
        usable: the slots that count: those of these nodes that are up and take new work.
        goes_to: by name of a pool, its usable slots, those included that are still on their way to it.
        are_in: by name, its usable slots that are there, those included that are about to leave.
    """

    def __init__(self, view: Snapshot, sites: Sequence[str] = ()) -> None:
        self.view = view
        self.nodes = [node for node in view.nodes.values() if not sites or node.spec.site in sites]
        usable = NO_SLOTS
        for node in self.nodes:
            if node.is_open:
                usable |= node.slots & ~node.closing
        self.usable = usable
        self.are_in: dict[str, Slots] = {}
        self.goes_to: dict[str, Slots] = {}
        pools = [view, *view.pools.values()]
        for pool in pools:
            self.are_in[pool.name] = self.goes_to[pool.name] = pool.slots & usable
        for pool in pools:
            for name, leaving in pool.leaving.items():
                self.goes_to[pool.name] &= ~leaving
                self.goes_to[name] = self.goes_to.get(name, NO_SLOTS) | (leaving & usable)

    def let(self, slots: Slots, pool: str) -> None:
        """These slots go to a pool."""
        for name in self.goes_to:
            self.goes_to[name] &= ~slots
        self.goes_to[pool] = self.goes_to.get(pool, NO_SLOTS) | slots
        self.are_in.setdefault(pool, NO_SLOTS)

    def move(self, plan: Plan, wanted: Sequence[tuple[str, int]], *, kill: bool) -> None:
        """Lend slots so that each pool will have the number that is wanted; pools that are not named get none.

        With `kill`, batch jobs that may be killed lose slots at once. Instances always end by themselves.

        Slots leave a pool first where they cost least: those that have not arrived, then free ones, then those that are
        expected to be free soonest, or with `kill` those of batch jobs where least work is lost.
        """
        to_have = dict(wanted)
        spare = NO_SLOTS
        for name, slots in self.goes_to.items():
            excess = count(slots) - to_have.get(name, 0)
            if excess > 0:
                spare |= self._cheapest(name, slots, excess, kill)
        gains: dict[str, Slots] = {}
        short = {name: number - count(self.goes_to.get(name, NO_SLOTS)) for name, number in wanted}
        for name, number in short.items():  # first what would only have left
            gains[name] = _first(spare & self.are_in.get(name, NO_SLOTS), max(0, number))
            spare &= ~gains[name]
        for name, number in short.items():
            more = _first(spare, max(0, number - count(gains[name])))
            spare &= ~more
            gains[name] |= more
        for name, slots in gains.items():
            if slots:
                self.let(slots, name)
                at_once = slots & self._killable() if kill else NO_SLOTS
                for part, claim in ((at_once, Claim.KILL), (slots & ~at_once, Claim.AFTER)):
                    if part:
                        plan.lend(name, part, claim)

    def lost_if_killed(self) -> list[float]:
        """The work that batch jobs lose if 1, 2, ... of their slots are taken at once, in seconds of one slot."""
        pool, lost = self.view.pools.get(BATCH_POOL), 0.0
        if pool is None:
            return []
        there = self.goes_to[BATCH_POOL] & pool.slots
        found = [0.0] * count(there & ~pool.busy)
        for attempt in self._by_loss(pool):
            if slots := attempt.slots & there:
                lost += self._loss(attempt) * count(attempt.slots) / SECOND
                found += [lost] * count(slots)
        return found

    def _loss(self, attempt: AttemptView) -> Duration:
        """The run time that is lost if it is taken off its slots at once; without a checkpoint, all."""
        return self.view.now - attempt.saved if attempt.job.spec.preemptible and not attempt.ending else 0

    def _by_loss(self, pool: Snapshot) -> list[AttemptView]:
        """What runs in a pool: those that lose least if they are killed first, those that must not be killed last."""
        runs = [attempt for _, _, _, attempt in pool.running]
        return sorted(runs, key=lambda one: (not one.job.spec.preemptible, self._loss(one) * count(one.slots)))

    def _killable(self) -> Slots:
        """Slots of batch jobs that may be killed."""
        pool = self.view.pools.get(BATCH_POOL)
        if pool is None:
            return NO_SLOTS
        killable = pool.slots
        for _, _, _, attempt in pool.running:
            if not attempt.job.spec.preemptible:
                killable &= ~attempt.slots
        for attempt in pool.background:
            if not attempt.job.spec.preemptible:
                killable &= ~attempt.slots
        return killable

    def _cheapest(self, name: str, slots: Slots, number: int, kill: bool) -> Slots:
        pool = self.view if name == self.view.name else self.view.pools.get(name)
        found = _first(slots & ~self.are_in[name], number)
        if pool is None:
            return found
        found |= _first(slots & pool.free & ~found, number - count(found))
        runs = [attempt for _, _, _, attempt in pool.running]
        if is_of_service(name):
            runs.reverse()
        elif kill:
            runs = self._by_loss(pool)
        for group in (*[attempt.slots for attempt in runs], slots):
            found |= _first(slots & group & ~found, number - count(found))
        return found


def _first(slots: Slots, number: int) -> Slots:
    """The lowest of some slots, at most so many."""
    found = NO_SLOTS
    for slot in numbers(slots):
        if number <= 0:
            break
        found |= 1 << slot
        number -= 1
    return found


def pools_of(view: Snapshot) -> list[tuple[str, JobView | None]]:
    """The pools of services in order of making, and the service of each; None: it has ended."""
    found: list[tuple[str, JobView | None]] = []
    for name, pool in view.pools.items():
        if is_of_service(name):
            there = [job for job in pool.jobs.values() if not job.cancelled]
            found.append((name, there[0] if there else None))
    return found


class BatchPools:
    """Where batch jobs go: to the sites that they share with services, or to those beside.

    Args:
        policy: the top level.
        border: where services may be.

    Attributes:
        slots: those of the sites of the services; -1: all.
        sites: those of the services, then those beside; empty: there are none beside.
    """

    def __init__(self, policy: Services, view: Snapshot, border: Border) -> None:
        self.kept = policy.kept
        self.slots: Slots = -1
        self.sites: tuple[Site, ...] = ()
        if policy.beside:
            self.slots = NO_SLOTS
            for node in border.nodes:
                self.slots |= node.slots
            nodes = [node for node in view.nodes.values() if not node.draining]
            parts = (
                (BATCH_POOL, [node for node in nodes if node.slots & self.slots]),
                (BESIDE, [node for node in nodes if not node.slots & self.slots]),
            )
            self.sites = tuple(
                [
                    Site(name, there, None, served_by(policy.lower(name)), apart=needs_one_site(policy.lower(name)))
                    for name, there in parts
                ]
            )

    def of(self, job: JobView, slots: Slots) -> str | None:
        """The pool of a batch job; None: no pool can hold it.

        A job that runs within a part stays there if it is served there.

        Args:
            slots: that it has.
        """
        if not self.sites:
            return BATCH_POOL
        is_here, is_beside = slots & self.slots, slots & ~self.slots
        if slots and not (is_here and is_beside):
            found = self.sites[0] if is_here else self.sites[1]
            if job.kind in found.serves:
                return found.name
        holding = candidates(job, cores_of(job), self.sites if job.kind in self.kept else self.sites[::-1])
        return holding[0].name if holding else None


def deal(
    view: Snapshot, plan: Plan, border: Border, parts: BatchPools
) -> tuple[list[tuple[str, JobView]], list[JobView]]:
    """Deal what is in the first pool: each new service to a pool of its own, batch jobs to theirs.

    Slots go along with what runs there; the others go to the batch jobs, or to the pool beside. A job cannot always
    go along at once: it may share a slot, on the other tier, with a job that goes elsewhere. Then it goes when what
    runs of it has ended, as its slots do.

    Returns:
        The services and their pools, and the jobs that come to the pool of batch jobs.
    """
    known = pools_of(view)
    services = [(name, job) for name, job in known if job is not None]
    empty = [name for name, job in known if job is None]
    made, new = len(known), list[JobView]()
    there = {job.id: all_slots(job) for job in with_slots(view)}
    left = view.slots & parts.slots
    for job in view.in_order(by_order):
        slots = there.get(job.id, NO_SLOTS)
        if job.endless:
            if empty:
                name = empty.pop(0)
            else:
                made += 1
                name = f"{SERVICE_POOL}{made}"
            services.append((name, job))
            going = slots & left
            left &= ~going
            plan.lend(name, going, Claim.AFTER)
            border.let(going, name)
            plan.deal(name, job.id, Claim.AFTER)
            continue
        pool = parts.of(job, slots)
        if pool is None:
            plan.pass_over(job.id, Reason.NEVER_FITS)
            continue
        if pool == BATCH_POOL:
            new.append(job)
        plan.deal(pool, job.id, Claim.AFTER)
    if left or BATCH_POOL not in view.pools:
        plan.lend(BATCH_POOL, left, Claim.AFTER)
        border.let(left, BATCH_POOL)
    others = view.slots & ~parts.slots
    if parts.sites and (others or BESIDE not in view.pools):
        plan.lend(BESIDE, others, Claim.AFTER)
    return services, new


def replaced(jobs: Sequence[JobView], tariffs: Sequence[Tariff]) -> list[Tariff]:
    """The tariffs of services in order of their ids. One that a later one of its name replaces needs no instances."""
    latest = {job.spec.name: job.id for job in jobs if job.spec.name}
    return [
        tariff if latest.get(job.spec.name, job.id) == job.id else replace(tariff, least=0)
        for job, tariff in zip(jobs, tariffs, strict=True)
    ]


def tariff_of(job: JobView, share: Share, most: int) -> Tariff:
    """What a service costs in the next window, by the number of its instances.

    By the fluid model as much is expected as came in the last window, as in the paper; else what `ArrivalForecast`
    tells. Before the first window ends, one instance counts as enough.
    """
    from headway.policies.provision import Tariff

    spec = job.spec
    assert isinstance(spec, Service)
    most = max(1, min(spec.most, most))
    if not job.windows:
        return Tariff((spec.penalty(0.0), 0.0), spec.least, most)
    traffic = traffic_of(job, expects_last=share is fluid)
    found = shares(traffic, Agreement(spec.threshold, spec.fraction), spec.window, most, share)
    return Tariff(tuple([spec.penalty(one) for one in found]), spec.least, most)


def traffic_of(job: JobView, *, expects_last: bool) -> Traffic:
    """What a service that has had a window is expected to answer in the next one: as much as in the last, or as
    `ArrivalForecast` tells.
    """
    last, coming = job.windows[-1], ArrivalForecast()
    for window in job.windows:
        coming.add(window.arrivals)
    requests = float(last.arrivals) if expects_last else coming.mean()
    return Traffic(
        requests * SECOND / last.length,
        round(next((window.processing for window in reversed(job.windows) if window.processing), 0.0)),
        last.queued,
        last.arrival_variation,
        last.processing_variation,
    )


def warm_up_of(job: JobView, expected: float) -> float:
    """How long a new instance of a service takes until it answers, in seconds: as measured, else as expected."""
    return next((window.warm_up / SECOND for window in reversed(job.windows) if window.warm_up), expected)


def tariff_ahead_of(job: JobView, share: Share, most: int, has: int = 0, late: float = 0.0) -> TariffAhead:
    """What a service costs in the next window and behind it.

    Behind it, a window is so long that queues become as long as they will, and the variation of arrivals is the mean of
    the windows that are known.

    Args:
        has: how many instances it has.
        late: how long one more takes until it answers, in seconds.
    """
    from headway.policies.ahead import LONG_QUEUE, TariffAhead
    from headway.policies.provision import Tariff

    spec = job.spec
    assert isinstance(spec, Service)
    if not job.windows:
        tariff = tariff_of(job, share, most)
        return TariffAhead(tariff, tariff.costs, 0.0, 0.0, 0.0, has, late)
    most = max(1, min(spec.most, most))
    last = traffic_of(job, expects_last=False)
    variation = math.fsum([window.arrival_variation for window in job.windows]) / len(job.windows)
    agreement = Agreement(spec.threshold, spec.fraction)
    coming, later = replace(last, arrival_scv=variation), replace(last, arrival_scv=variation, queued=0)
    slowly = partial(with_late, share=share, has=has, late=from_seconds(late))
    costs = [
        tuple([spec.penalty(one) for one in shares(traffic, agreement, length, most, model)])
        for traffic, length, model in ((coming, spec.window, slowly), (later, LONG_QUEUE * spec.window, share))
    ]
    worst = spec.penalty(0.0) if last.rate else 0.0
    waiting = last.queued * last.processing / SECOND
    return TariffAhead(Tariff(costs[0], spec.least, most), costs[1], worst, last.load(), waiting, has, late)


def batch_jobs(view: Snapshot, new: Sequence[JobView]) -> list[JobView]:
    """The batch jobs that have been released: those of their pool, and those that come to it in this round."""
    pool = view.pools.get(BATCH_POOL)
    return [*(() if pool is None else pool.in_order(by_order)), *new]


def batch_loads(jobs: Sequence[JobView], pace: float) -> list[Load]:
    """What is left of the batch jobs. Tasks that run count as if they had not started: they need their slots."""
    return [load_of(job, pace, begun=True) for job in jobs if job.ready or job.attempts]


@value
class Services:
    """Batch jobs and services on one cluster; who gets how many slots is decided anew after each window.

    Args:
        top: how slots are shared out. dp: at the least penalty in the next window, by estimates. sf: half to services,
            half to batch jobs. pp: in proportion to their penalties in the last window, at least a tenth to each.
            ahead: as dp, with what is left to later windows in view.
        batch: the policy of batch jobs; its parameters are separated by semicolons, as in `easy:order=due;depth=2`.
            auto: atc if `top` is ahead, else greedy, as in the paper.
        model: how many answers are expected in time. queueing: with chance. fluid: as the paper has it, without.
        kill: whether batch jobs lose slots at once, so that their tasks are redone, instead of when a task ends.
        switching: whether ahead counts what it costs to move slots: instances that warm up, and tasks that are redone.
        warm: how long a new instance is expected to warm up, in seconds, as long as that has not been measured.
        on: names of the sites that services and batch jobs share, separated by slashes; empty: all.
        beside: with `on`, the policy of all other sites, which are one pool; its parameters are separated by
            semicolons, as in `sites:top=prefer;queue=due`.
        keeps: with `on`, the kinds of batch jobs that go to these sites if they can, separated by slashes: bag, rigid,
            workflow. The others go to the pool beside if they can. A job can go where it is served and fits.
        per_instant: one round for all events of an instant, instead of one after each event.
    """

    top: str = "dp"
    batch: str = AUTO
    model: str = "queueing"
    kill: bool = False
    switching: bool = True
    warm: float = 0.0
    on: str = ""
    beside: str = ""
    keeps: str = ""
    per_instant: bool = True

    def __post_init__(self) -> None:
        if self.top not in TOPS:
            raise InvalidInput("top", self.top, ", ".join(TOPS))
        if self.model not in MODELS:
            raise InvalidInput("model", self.model, ", ".join(MODELS))
        if not 0 <= self.warm < math.inf:
            raise InvalidInput("warm", self.warm, "seconds, 0 or more")
        from headway.policies.registry import find, find_below  # it knows this module

        if self.batch != AUTO:
            find_below("batch", self.batch, "a policy for one pool", AUTO)
        if self.beside:
            find_below("beside", self.beside, "a policy for one pool")
        find(self.lower(BATCH_POOL))
        if self.on:
            names = self.on.split("/")
            if len({*names, ""}) <= len(names):
                raise InvalidInput("on", self.on, "names of sites, each once, separated by slashes")
            if not self.beside:
                raise InvalidInput("beside", self.beside, "a policy of the other sites, because `on` names some")
            find(self.lower(BESIDE))
        for field in ("beside", "keeps"):
            if getattr(self, field) and not self.on:
                raise InvalidInput(field, getattr(self, field), "only with on=SITE")
        words = self.keeps.split("/") if self.keeps else []
        if len(set(words)) < len(words) or not set(words) <= BATCH_KINDS.keys():
            raise InvalidInput(
                "keeps", self.keeps, f"some of {', '.join(BATCH_KINDS)}, each once, separated by slashes"
            )

    @property
    def _batch(self) -> str:
        """The policy of batch jobs, as text."""
        if self.batch == AUTO:
            return "atc" if self.top == "ahead" else "greedy"
        return self.batch.replace(";", ",")

    @property
    def _order(self) -> Order:
        """The order by which batch jobs are estimated: greedy as in the paper, but for ahead that of their policy."""
        return SEQUENCES.get(self._batch.partition(":")[0], by_tardiness_cost) if self.top == "ahead" else greedy

    @property
    def kept(self) -> frozenset[Kind]:
        """The kinds of batch jobs that go to the sites of the services if they can."""
        return frozenset([BATCH_KINDS[word] for word in self.keeps.split("/")]) if self.keeps else frozenset()

    @property
    def named_sites(self) -> tuple[str, ...]:
        """The sites that it and the policy beside name; there should be such sites."""
        return tuple(dict.fromkeys([*self.service_sites, *(named_by(self._policy_beside) if self.beside else ())]))

    @property
    def quantile(self) -> float:
        """That of a prediction: bags and workflows may be beside, where it counts."""
        beside = self._policy_beside
        return QUANTILE if beside is None else quantile_of(beside)

    @property
    def service_sites(self) -> tuple[str, ...]:
        """The sites that services may have; empty: all."""
        return tuple(self.on.split("/")) if self.on else ()

    @property
    def _policy_beside(self) -> Policy | None:
        from headway.policies.registry import find  # it knows this module

        return find(self.lower(BESIDE)) if self.beside else None

    def lower(self, pool: str) -> str:
        """The policy of a pool."""
        text = "instances" if is_of_service(pool) else self._batch
        if pool == BESIDE:
            text = self.beside.replace(";", ",")
        if not self.per_instant:
            return text
        from headway.policies.registry import once_an_instant  # it knows this module

        return once_an_instant(text)

    def part(self, pool: str) -> str:
        """What its slots may move within: the sites of the services, or those beside."""
        return BESIDE if pool == BESIDE else ""

    @property
    def task_rounds(self) -> bool:
        """No: if a slot continues with the next task of its job, no round is needed."""
        return False

    @property
    def serves(self) -> frozenset[Kind]:
        """Services, and what the policies of the other pools serve."""
        beside = served_by(self.lower(BESIDE)) if self.beside else frozenset[Kind]()
        return frozenset([Kind.SERVICE]) | served_by(self.lower(BATCH_POOL)) | beside

    def why(self, view: Snapshot, job: JobView) -> str:
        """Why a batch job is on the sites of the services, or beside; empty: all sites are those of the services."""
        if not self.beside or job.endless:
            return ""
        parts = BatchPools(self, view, Border(view, self.service_sites))
        here, there = f"the sites of the services ({self.on})", "the sites beside those of the services"
        is_beside = job.pool.name == BESIDE
        said = f"it is on {there if is_beside else here}, because "
        holding = [site.name for site in parts.sites if site.holds(job, cores_of(job))]
        if holding == [job.pool.name]:
            said += "no other can hold it"
        elif (job.kind in self.kept) is not is_beside:
            said += f"{WORDS[job.kind]} are {f'not kept on {here}' if is_beside else 'kept there'}"
        else:
            said += "it ran there when this policy was chosen, or the others could not hold it then"
        says = getattr(self._policy_beside, "why", None) if is_beside else None
        more = says(view.pools[BESIDE], job) if callable(says) else ""
        return f"{said}; {more}" if more else said

    def __call__(self, view: Snapshot) -> Plan:
        plan, border = view.plan(), Border(view, self.service_sites)
        parts = BatchPools(self, view, border)
        is_due = self._is_due(view, border, parts)
        services, new = deal(view, plan, border, parts)
        if is_due:
            wanted = self._wanted(view, border, services, new)
            border.move(plan, wanted, kill=self.kill)
        return plan

    def _is_due(self, view: Snapshot, border: Border, parts: BatchPools) -> bool:
        """Whether the slots are to be shared out again.

        They are when a window has just ended, when a service or slots came or went, and for a batch job that has no
        room in the pool of batch jobs.
        """
        if view.slots or view.measured or BATCH_POOL not in view.pools:
            return True
        room = count(border.goes_to[BATCH_POOL])
        for new in view.in_order(by_order):
            if new.endless or (new.width > room and parts.of(new, all_slots(new)) == BATCH_POOL):
                return True
        return any(job is None and border.goes_to[name] for name, job in pools_of(view))

    def _wanted(
        self, view: Snapshot, border: Border, services: Sequence[tuple[str, JobView]], new: Sequence[JobView]
    ) -> list[tuple[str, int]]:
        """How many slots each pool is to have: the services in order of their ids, then the batch jobs.

        Args:
            new: the jobs that come to the pool of batch jobs.
        """
        from headway.policies.provision import Splits, batch_cost, dp, pp, sf, worth_a_look

        slots, services = count(border.usable), sorted(services, key=_by_id)
        there, jobs = [job for _, job in services], batch_jobs(view, new)
        loads = batch_loads(jobs, pace_of(view))
        needed = max([job.width for job in jobs], default=0)
        enough = [math.inf if some < needed else 0.0 for some in range(slots + 1)]
        batch = enough
        if self.top == "ahead" and services:
            tariffs, costs = self._ahead(view, border, services, loads, slots)
            batch = [max(two) for two in zip(enough, costs, strict=True)]
        else:
            tariffs = [tariff_of(job, MODELS[self.model], slots) for job in there]
        splits = Splits(replaced(there, tariffs), slots)
        if self.top == "dp" and needed and services:
            cost = batch_cost(Outcomes(loads, self._order, view.now), slots, _window(there), view.now)
            batch = worth_a_look(splits, lambda some: max(enough[some], cost(some)), slots)
        if self.top in ("dp", "ahead"):
            found = dp(splits, batch, slots)
        elif self.top == "sf":
            found = sf(splits, batch, slots)
        else:
            found = pp(splits, batch, slots, _paid(services), _owed(jobs, view.now))
        return [
            *[(name, some) for (name, _), some in zip(services, found.services, strict=True)],
            (BATCH_POOL, found.batch),
        ]

    def _ahead(
        self,
        view: Snapshot,
        border: Border,
        services: Sequence[tuple[str, JobView]],
        loads: Sequence[Load],
        slots: int,
    ) -> tuple[list[Tariff], list[float]]:
        """The tariffs of services and c_B, with the windows behind the next one in view."""
        from headway.policies.ahead import delays, prices, with_lost

        window = _window([job for _, job in services])
        tariffs_ahead = [
            tariff_ahead_of(
                *(job, MODELS[self.model], slots, count(border.goes_to.get(name, NO_SLOTS))),
                warm_up_of(job, self.warm) if self.switching else 0.0,
            )
            for name, job in services
        ]
        usual = max(1, slots - sum([one.tariff.least for one in tariffs_ahead]))
        backlogs = [one.backlog(usual, window, view.now) for one in tariffs_ahead if one.waiting]
        price = prices([*loads, *backlogs], usual, self._order, window, view.now)
        tariffs = [one.ahead(price, window) for one in tariffs_ahead]
        costs = delays(loads, slots, usual, self._order, window, view.now)
        if self.switching and self.kill:
            costs = with_lost(costs, border.lost_if_killed(), float(price[0]))
        return tariffs, costs


def _window(services: Sequence[JobView]) -> Duration:
    """The shortest window of some services."""
    return min([job.spec.window for job in services if isinstance(job.spec, Service)])


def _by_id(entry: tuple[str, JobView]) -> int:
    return entry[1].id


def _paid(services: Sequence[tuple[str, JobView]]) -> float:
    """What the last windows of the services have cost."""
    last = [(job.spec, job.windows[-1]) for _, job in services if job.windows]
    return math.fsum([spec.penalty(window.share) for spec, window in last if isinstance(spec, Service)])


def _owed(jobs: Sequence[JobView], now: Instant) -> float:
    """What the batch jobs that are late by now cost if they end now."""
    return math.fsum([job.spec.penalty_of(now - job.due) for job in jobs if job.due < now])
