"""Sites in order of preference: each task is queued at the first site where it is expected to end in time.

The nodes of all sites are of one pool, because the tasks of one bag may go to several sites. Where a task waits is kept
as the promise of a start on a node, as for workflows; a round follows these promises and plans only what has none. If a
delay endangers a due date, everything that waits is planned anew.

Source: Kim12, 4.3 and 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush, heapreplace, merge, nsmallest
from statistics import NormalDist
from typing import Final, NamedTuple

from headway.errors import InvalidInput
from headway.model.instant import LONGEST, NEVER, SECOND, Duration, Instant, from_seconds
from headway.model.job import BATCH, JobId, Kind, TaskKey
from headway.model.node import NodeSpec
from headway.model.plan import Plan, Reason
from headway.model.seen import JobView, NodeView
from headway.model.slots import NO_SLOTS, Slots, count, lowest, numbers
from headway.model.snapshot import Snapshot
from headway.model.value import value
from headway.policies.order import by_due
from headway.policies.place import ready_tasks
from headway.policies.renting import CHEAPEST, RENTS, RENTS_NOTHING, SPARE, RentalPlan, rented
from headway.renting.choosing import OpenTask

BAG: Final = Kind.BAG  # looking up a member of an enumeration is slow

MEAN: Final = "mean"
RELEASE: Final = "release"
QUEUES: Final = (RELEASE, "due")
MEDIAN: Final = 0.5

NOTICED: Final = 16
"""A delay is looked at when it is a sixteenth of a run time, and each time that it has doubled."""

FEW_WAIT: Final = 100
"""While no more tasks wait, delays are looked for in each round."""

LOOKED_AT: Final = 25
"""While more wait, so many are looked at for each task that ends."""

PASSED_OVER_MAX: Final = 100
"""So many tasks of a site let later ones go first at most in a round, because a slot is too slow for them."""

DEVIATIONS: Final = 1.2533
"""Standard deviations in a mean absolute deviation of a normal distribution, the square root of pi over 2."""

Entry = tuple[Instant, JobId, int]
"""A promised start, a job and a task, as in `Snapshot.agenda`."""


class Fit(NamedTuple):
    """Where and when a task could run: on which slots, the first of which tells its node."""

    start: Instant
    end: Instant
    slots: tuple[int, ...]


@value
class Prefer:
    """Each task waits at the first site, in order of preference, where it is expected to end by its due date.

    The tasks of a job are placed in order of falling estimate, those of jobs that come first before those of others. A
    task that is in time nowhere goes where it ends first, and one without a due date to the first site. Within a site a
    slot that becomes free takes the next task that waits there. A rigid job has all its slots at one site, a task of a
    workflow on one node; it is placed when the tasks before it have ended.

    What can be rented counts as the last site. A task of a bag that is in time at no other waits for a machine, if one
    lets it end by its due date within the budgets.

    Args:
        estimate: how long a task is expected to run. mean: as long as those before it in the mean. A number between 0
            and 1: the quantile of what is known of run times, so that a task takes longer only with the rest of the
            probability.
        adaptive: whether all tasks that wait are placed anew when a delay endangers a due date.
        order: names of sites, separated by slashes, the preferred one first; the others come behind them. Without it
            they are preferred in the order of the cluster file, else in the order in which they have joined.
        check: delays are looked for so often, in seconds of the clock; 0: whenever something happens, and when a task
            runs longer than it was expected to. While more than 100 tasks wait, that is less often, so that for each
            task that ends no more than about 25 tasks are looked at.
        queue: in which order the tasks of different jobs are placed anew. release: those of the job that came first
            (Kim12). due: those of the job that is due first; and all is placed anew when a job comes that would be late
            behind the others.
        rent: how machines are chosen that are rented. each: for each task the cheapest one on which it ends in time, at
            once, as in the paper. cheapest: the cheapest set for all tasks, shared between them, and as late as due
            dates allow. no: none is rented.
        spare: with rent=cheapest, tasks may take so much longer than expected, as a share of that: machines are asked
            for early enough.

    Source: Kim12, 4.3. Reading: of a task in time nowhere the paper says nothing where no cloud is left.
    """

    estimate: str = MEAN
    adaptive: bool = True
    order: str = ""
    check: float = 0.0
    queue: str = RELEASE
    rent: str = CHEAPEST
    spare: float = SPARE

    def __post_init__(self) -> None:
        if self.estimate != MEAN:
            try:
                right = 0 < float(self.estimate) < 1
            except ValueError:
                right = False
            if not right:
                raise InvalidInput("estimate", self.estimate, "mean, or a number between 0 and 1")
        if not 0 <= self.check <= 1e9:
            raise InvalidInput("check", self.check, "seconds, 0 to 1e9")
        if self.queue not in QUEUES:
            raise InvalidInput("queue", self.queue, " or ".join(QUEUES))
        if not 0 <= self.spare <= 10:
            raise InvalidInput("spare", self.spare, "0 to 10")
        if self.rent not in RENTS:
            raise InvalidInput("rent", self.rent, ", ".join(RENTS))
        names = self.order.split("/") if self.order else []
        for place, name in enumerate(names):
            if not name or name in names[:place]:
                raise InvalidInput("order", self.order, "names of sites, each once, separated by slashes")

    @property
    def named_sites(self) -> tuple[str, ...]:
        """The sites that it names; there should be such sites, see `headway.model.site.check_sites`."""
        return tuple(self.order.split("/")) if self.order else ()

    @property
    def needs_one_site(self) -> bool:
        """Yes: a rigid job runs within one site."""
        return True

    @property
    def quantile(self) -> float:
        """That of a prediction. Of means history knows none; the median stands for them."""
        return MEDIAN if self.estimate == MEAN else float(self.estimate)

    @property
    def serves(self) -> frozenset[Kind]:
        """Jobs that end by themselves."""
        return BATCH

    @property
    def per_instant(self) -> bool:
        """Yes: jobs that come at once are placed together."""
        return True

    @property
    def task_rounds(self) -> bool:
        """No: each task has slots of its own, so that a round follows its end in any case."""
        return False

    def __call__(self, view: Snapshot) -> Plan:
        return PreferRound(self, view).plan()

    def why(self, view: Snapshot, job: JobView) -> str:
        """Why the tasks of a job are where they are, with the numbers as they are now; empty: none waits."""
        return PreferRound(self, view).why(job)


class Class:
    """The nodes of a site on which tasks run alike.

    Attributes:
        number: counted over all sites.
        spec: one of the nodes.
        heap: from when on each of their slots is free, as `(instant, slot)`; where that has passed,
            `SiteSlots.free` counts.
    """

    __slots__ = ("heap", "number", "spec")

    def __init__(self, number: int, spec: NodeSpec) -> None:
        self.number = number
        self.spec = spec
        self.heap: list[tuple[Instant, int]] = []


class SiteSlots:
    """A site with its nodes, and from when on each slot is expected to be free.

    Attributes:
        name: of the site.
        nodes: those that are up or may come on, in order of joining, with their classes.
        classes: of its nodes.
        slots: those that can be used, and `size` how many they are.
    """

    __slots__ = ("classes", "free", "name", "nodes", "size", "slots")

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[tuple[NodeView, Class]] = []
        self.classes: dict[tuple[float, str], Class] = {}
        self.slots: Slots = NO_SLOTS
        self.size = 0
        self.free: list[Instant] = []

    def begin(self, free: list[Instant]) -> None:
        """Take up from when on slots are free, by number; all sites share the list."""
        self.free = free
        for one in self.classes.values():
            one.heap = []
        for node, one in self.nodes:
            one.heap.extend([(free[slot], slot) for slot in numbers(node.slots & self.slots)])
        for one in self.classes.values():
            heapify(one.heap)

    def top(self, heap: list[tuple[Instant, int]]) -> tuple[Instant, int]:
        """The first entry of a heap that is true."""
        free = self.free
        at, slot = heap[0]
        while free[slot] != at:
            heapreplace(heap, (free[slot], slot))
            at, slot = heap[0]
        return at, slot

    def take(self, fit: Fit) -> None:
        """A task takes its slots."""
        for slot in fit.slots:
            self.free[slot] = fit.end

    def soonest_of_node(self, node: NodeView, wanted: int) -> list[tuple[Instant, int]]:
        """The slots of a node that are free first, as many as are wanted, or all that it has."""
        return sorted([(self.free[slot], slot) for slot in numbers(node.slots & self.slots)])[:wanted]

    def soonest(self, wanted: int) -> list[tuple[Instant, int]]:
        """The slots that are free first, as many as are wanted."""
        found = [(self.free[slot], slot) for slot in numbers(self.slots)]
        return nsmallest(wanted, found) if wanted < len(found) else sorted(found)


class PreferRound:
    """One round of `Prefer`.

    Attributes:
        sites: those with nodes, in order of preference.
    """

    def __init__(self, policy: Prefer, view: Snapshot) -> None:
        self.policy, self.view = policy, view
        usable = view.up | view.off
        found = {name: SiteSlots(name) for name in (*policy.named_sites, *view.sites)}
        self._of_node: dict[str, tuple[SiteSlots, Class]] = {}
        classes = 0
        for name, node in view.nodes.items():
            here, spec = node.slots & usable, node.spec
            if not here:
                continue
            site = found.get(spec.site)
            if site is None:
                site = found[spec.site] = SiteSlots(spec.site)
            one = site.classes.get((spec.speed, spec.kind))
            if one is None:
                one = site.classes[spec.speed, spec.kind] = Class(classes, spec)
                classes += 1
            site.nodes.append((node, one))
            site.slots |= here
            self._of_node[name] = site, one
        self.sites = [site for site in found.values() if site.nodes]
        for site in self.sites:
            site.size = count(site.slots)
        mean = policy.estimate == MEAN
        self._deviations = 0.0 if mean else DEVIATIONS * NormalDist().inv_cdf(policy.quantile)
        self._known: list[dict[JobId, Duration]] = [{} for _ in range(classes)]
        self._agenda: Mapping[str, Sequence[Entry]] = view.agenda
        self._rents = policy.rent != RENTS_NOTHING and view.market.is_used
        self._rented = RentalPlan()

    # What tasks take

    def lasts(self, job: JobView, task: int, one: Class) -> Duration:
        """How long a task is expected to hold its slots on a node of a class."""
        if job.graph:
            estimate, speed = job.graph[task].estimate, one.spec.speed
            run_time = estimate if speed == 1.0 else min(-int(-estimate // speed), LONGEST)
        else:
            known = self._known[one.number].get(job.id)
            if known is None:
                known = self._known[one.number][job.id] = self._expected(job, one.spec)
            run_time = job.sized(known, task) if job.mean_size else known
        if job.kept:
            run_time -= job.kept.get(task, 0)
        startup = self.view.startup_at(one.spec) if self.view.sites else 0
        return min(max(run_time, 1) + startup, LONGEST)

    def _expected(self, job: JobView, spec: NodeSpec) -> Duration:
        """How long a task of mean size runs: in the mean, or with some deviations more if a quantile is asked for.

        Of an estimate that nothing confirms yet half of it counts as the deviation (`RunTimes`). What was predicted is
        the quantile already.
        """
        run_time = job.time_on(spec)
        if self._deviations and not job.predicted:
            times = job.times.get(spec.node_class) or job.observed
            if times is not None and times.mean:
                run_time += round(self._deviations * times.spread * (run_time / times.mean))
        return max(run_time, 1)

    # The plan

    def plan(self) -> Plan:
        """Follow the plan that there is; plan what has no place, or all that waits if a due date is in danger."""
        view = self.view
        plan = view.plan()
        lacking = self._lacking()
        if view.agenda and self._looks_for_delays() and self._is_endangered():
            self._place_anew(plan, lacking)
        elif lacking:
            late = self._place_all(plan, [(job, _without_place(job)) for job in lacking], view.agenda)
            if late and view.agenda and self.policy.adaptive and self.policy.queue == "due":
                plan.promises.clear()
                self._place_anew(plan, lacking)
        plan.rents = self._rented.rents
        wake = self._follow(plan)
        plan.wake = self._next_look(plan, min(wake, self._rented.wake))
        if view.recording:
            self._explain(plan)
        return plan

    def _place_anew(self, plan: Plan, lacking: Iterable[JobView]) -> None:
        """Promise all tasks that wait other starts, those of jobs that have none yet among them."""
        view = self.view
        jobs = {number: view.jobs[number] for agenda in view.agenda.values() for _, number, _ in agenda}
        jobs |= {job.id: job for job in lacking}
        ordered = sorted(jobs.values(), key=by_due if self.policy.queue == "due" else _by_order)
        self._place_all(plan, [(job, list(ready_tasks(job, job.ready))) for job in ordered], {})

    def _lacking(self) -> list[JobView]:
        """The jobs with ready tasks that have no place, or a rigid one whose site is too small now; as submitted."""
        view = self.view
        found = [
            job
            for job in view.lacking_places(BATCH).values()
            if job.ready and len(job.planned) < job.ready and not job.cancelled
        ]
        for name, agenda in view.agenda.items():
            job = view.jobs[agenda[0][1]]
            if job.rigid and job.width > self._of_node[name][0].size:
                found.append(job)
        found.sort(key=_by_order)
        return found

    @cached_property
    def _ends(self) -> dict[int, Instant]:
        """By slot, when what runs there is expected to end; what is late takes as long again as it is late."""
        now, found = self.view.now, dict[int, Instant]()
        for end, _, _, attempt in self.view.running:
            until = end if end > now else now + max(1, now - end)
            for slot in numbers(attempt.slots):
                found[slot] = until
        return found

    def _free_at(self) -> list[Instant]:
        """From when on each slot is free, by number, as if nothing waited."""
        view = self.view
        free = [view.now] * len(view.slot_nodes)
        for slot, end in self._ends.items():
            free[slot] = end
        for node in view.nodes.values() if view.off else ():
            at = view.ready_at(node) if node.slots & view.off else 0
            for slot in numbers(node.slots & view.off):
                free[slot] = max(at, free[slot])
        return free

    # Delays

    def _period(self) -> Duration:
        """How often delays are looked for: at the multiples of a power of two of microseconds; 0: in each round.

        The number of tasks that wait, over how many may be looked at for each that ends, is how many end meanwhile.
        """
        if self.policy.check:
            return from_seconds(self.policy.check)
        running, waiting = self.view.running, sum([len(agenda) for agenda in self._agenda.values()])
        if waiting <= FEW_WAIT or not running:
            return 0
        run_times = sum([end - attempt.start for end, _, _, attempt in running])
        period: int = waiting * run_times // (LOOKED_AT * len(running) ** 2)
        return 1 << period.bit_length()

    def _looks_for_delays(self) -> bool:
        period = self._period() if self.policy.adaptive else 0
        return self.policy.adaptive and (not period or self.view.now % period == 0)

    def _is_endangered(self) -> bool:
        """Whether something that waits would end too late where it is, and would not if there were no delay."""
        free = self._free_at()
        for name, agenda in self.view.agenda.items():
            site, one = self._of_node[name]
            node = self.view.nodes[name]
            heap = [(free[slot]) for slot in numbers(node.slots & site.slots)]
            heapify(heap)
            heads = sorted(heap)
            if all(at <= entry[0] for at, entry in zip(heads, agenda, strict=False)):
                continue  # nothing is late here
            if self._is_late(agenda, heap, one):
                return True
        return False

    def _is_late(self, agenda: Sequence[Entry], heap: list[Instant], one: Class) -> bool:
        """Whether a delay makes something too late that waits on a node.

        It does not count that something would be too late anyhow, as long as it has hardly been delayed since it was
        placed: to place it again would change nothing.

        Args:
            heap: from when on its slots are free.
        """
        jobs, now = self.view.jobs, self.view.now
        for start, number, task in agenda:
            job = jobs[number]
            lasts = self.lasts(job, task, one)
            wanted = min(len(heap), _slots_of(job, task, one.spec))
            begin = heap[0]
            if wanted == 1:
                begin = max(begin, now)
                heapreplace(heap, begin + lasts)
            else:
                begin = max(now, *[heappop(heap) for _ in range(wanted)])
                for _ in range(wanted):
                    heappush(heap, begin + lasts)
            if begin + lasts > job.due and begin > start:
                was_in_time = start + lasts <= job.due
                if was_in_time or begin - start > lasts // NOTICED:
                    return True
        return False

    def _next_look(self, plan: Plan, wake: Instant) -> Instant | None:
        """When the next round is wanted even if nothing happens: when inputs arrive, or delays are to be looked for.

        Args:
            plan: what starts now.
            wake: when inputs arrive.
        """
        view, policy = self.view, self.policy
        waits = any(self._agenda.values())
        period = self._period() if waits and policy.adaptive else 0
        if period:
            wake = min(wake, (view.now // period + 1) * period)
        elif waits and policy.adaptive:
            for end, _, _, attempt in view.running:
                late = max(1, (end - attempt.start) // NOTICED)
                if end + late >= wake:
                    if end >= wake:
                        break
                    continue
                while end + late <= view.now:
                    late *= 2
                wake = min(wake, end + late)
            for one in plan.allocations:
                job, spec = view.jobs[one.job], view.slot_nodes[one.slots.bit_length() - 1].spec
                lasts = self.lasts(job, one.task or 0, self._of_node[spec.name][1])
                wake = min(wake, view.now + lasts + max(1, lasts // NOTICED))
        return wake if wake < NEVER else None

    # Places

    def _place_all(
        self, plan: Plan, work: list[tuple[JobView, list[int]]], kept: Mapping[str, Sequence[Entry]]
    ) -> bool:
        """Promise tasks of some jobs starts, in order; returns whether one is late.

        Args:
            kept: what keeps its place.
        """
        late, free = False, self._free_at()
        self._rented = RentalPlan()
        for site in self.sites:
            self._lay(site, free, kept)
            site.begin(free)
        agenda: dict[str, list[Entry]] = {}
        beyond = list[tuple[JobView, int]]()
        for job, tasks in work:
            may_rent = self._rents and job.kind is BAG and job.due < NEVER
            for task in _by_falling_estimate(job, tasks):
                fit = self._fit(job, task)
                if may_rent and (fit is None or fit[1].end > job.due):
                    beyond.append((job, task))
                    continue
                late = late or (fit is not None and fit[1].end > job.due)
                self._promise(plan, job, task, fit, agenda)
        if beyond:
            covered = self._rent(beyond)
            for job, task in beyond:
                held = (job.id, task) in covered
                fit = None if held else self._fit(job, task)
                late = late or not held
                self._promise(plan, job, task, fit, agenda, is_kept=job.id not in self._rented.denied)
        if kept:
            gone = {(job.id, task) for job, tasks in work if job.planned for task in tasks}
            for name, before in kept.items():
                rest = [entry for entry in before if entry[1:] not in gone] if gone else before
                agenda[name] = [*rest, *agenda.get(name, ())]
        for entries in agenda.values():
            entries.sort()
        self._agenda = agenda
        return late

    def _promise(
        self,
        plan: Plan,
        job: JobView,
        task: int,
        fit: tuple[SiteSlots, Fit] | None,
        agenda: dict[str, list[Entry]],
        *,
        is_kept: bool = True,
    ) -> None:
        """Promise a task its start; None: it has no place any more.

        Args:
            is_kept: whether it keeps its place; else it is looked for again in the next round.
        """
        if (fit is None or not is_kept) and task in job.planned:
            plan.promise(job.id, NEVER, 0, task, job.planned[task][1])
        if fit is None:
            return
        site, (start, _, slots) = fit
        name = self.view.slot_nodes[slots[0]].spec.name
        site.take(fit[1])
        agenda.setdefault(name, []).append((start, job.id, task))
        if is_kept and job.planned.get(task) != (start, name):
            plan.promise(job.id, start, len(slots), task, name)

    def _rent(self, late: Sequence[tuple[JobView, int]]) -> Collection[TaskKey]:
        """Rent machines on which these tasks end in time; returns the tasks that wait for one."""
        policy, plain = self.policy, NodeSpec("rented")
        expected: dict[JobId, Duration] = {}
        tasks = list[OpenTask]()
        for job, task in late:
            if job.id not in expected:
                expected[job.id] = self._expected(job, plain)
            time = job.sized(expected[job.id], task) if job.mean_size else expected[job.id]
            tasks.append(OpenTask(job.id, task, job.due, (max(1, time - job.kept.get(task, 0)),)))
        self._rented = rented(tasks, self.view.market, self.view.now, rule=policy.rent, spare=policy.spare)
        return self._rented.covered

    def _lay(self, site: SiteSlots, free: list[Instant], kept: Mapping[str, Sequence[Entry]]) -> None:
        """Let what keeps its place at a site take its slots, in order of the promised starts."""
        heaps: dict[str, list[tuple[Instant, int]]] = {}
        site.free = free
        for node, _ in site.nodes:
            name = node.spec.name
            if name in kept:
                heaps[name] = [(free[slot], slot) for slot in numbers(node.slots & site.slots)]
                heapify(heaps[name])
        jobs = self.view.jobs
        for _, number, task in merge(*[kept[name] for name in heaps]):
            job = jobs[number]
            name = job.planned[task][1]
            one = self._of_node[name][1]
            wanted = _slots_of(job, task, one.spec)
            if wanted == 1:
                at, slot = site.top(heaps[name])
                free[slot] = at + self.lasts(job, task, one)
                continue
            node = self.view.nodes[name]
            taken = site.soonest(wanted) if job.rigid else site.soonest_of_node(node, wanted)
            if len(taken) == wanted:
                end = taken[-1][0] + self.lasts(job, task, one)
                for _, slot in taken:
                    free[slot] = end

    def _fit(self, job: JobView, task: int) -> tuple[SiteSlots, Fit] | None:
        """The first site where a task ends in time, or else where it ends first; None: it fits nowhere."""
        best: tuple[SiteSlots, Fit] | None = None
        for site in self.sites:
            fit = self._fit_at(site, job, task)
            if fit is None:
                continue
            if fit.end <= job.due:
                return site, fit
            if best is None or fit.end < best[1].end:
                best = site, fit
        return best

    def _fit_at(self, site: SiteSlots, job: JobView, task: int) -> Fit | None:
        """Where a task ends first at a site; None: it does not fit there."""
        best: Fit | None = None
        if job.rigid:
            if job.width > site.size:
                return None
            taken = site.soonest(job.width)
            classes = {self._of_node[self.view.slot_nodes[slot].spec.name][1] for _, slot in taken}
            begin = taken[-1][0]
            longest = max([self.lasts(job, task, one) for one in classes])
            return Fit(begin, begin + longest, tuple(sorted([slot for _, slot in taken])))
        if job.kind is BAG:
            for one in site.classes.values():
                begin, slot = site.top(one.heap)
                end = begin + self.lasts(job, task, one)
                if best is None or (end, slot) < (best.end, best.slots[0]):
                    best = Fit(begin, end, (slot,))
            return best
        cores, view = job.graph[task].cores, self.view
        for node, one in site.nodes:
            wanted = node.spec.slots_for(cores)
            taken = site.soonest_of_node(node, wanted)
            if len(taken) < wanted:
                continue
            begin = taken[-1][0]
            if job.outputs:
                begin = max(begin, view.inputs_at(job, task, node.spec))
            end = begin + self.lasts(job, task, one)
            if best is None or end < best.end:
                best = Fit(begin, end, tuple(sorted([slot for _, slot in taken])))
        return best

    # Starts

    def _follow(self, plan: Plan) -> Instant:
        """Start what is due at each site; returns when the next inputs of a task arrive that could start else."""
        free, wake = self.view.free, NEVER
        for site in self.sites:
            here = free & site.slots
            if here and self._agenda:
                wake = min(wake, self._follow_at(site, here, plan))
        return wake

    def _follow_at(self, site: SiteSlots, free: Slots, plan: Plan) -> Instant:
        """Start what waits at a site, in the order of the promised starts, as long as it has free slots."""
        view, wake, passed_over = self.view, NEVER, 0
        queues = [self._agenda[node.spec.name] for node, _ in site.nodes if self._agenda.get(node.spec.name)]
        heads = [(queue[0], place, 0) for place, queue in enumerate(queues)]
        heapify(heads)
        names = [node.spec.name for node, _ in site.nodes if self._agenda.get(node.spec.name)]
        while heads and free and passed_over < PASSED_OVER_MAX:
            (start, number, task), place, position = heads[0]
            if position + 1 < len(queues[place]):
                heapreplace(heads, (queues[place][position + 1], place, position + 1))
            else:
                heappop(heads)
            job, node = view.jobs[number], view.nodes[names[place]]
            if job.apart and task in job.apart:
                continue
            if job.rigid:
                slots = lowest(free, job.width)
                if count(slots) < job.width:
                    break  # the slots are kept for it
                plan.hold(number, slots)
                free ^= slots
                continue
            wanted = _slots_of(job, task, node.spec)
            arrives = view.inputs_at(job, task, node.spec) if job.outputs else view.now
            if arrives > view.now:
                wake = min(wake, arrives)
                passed_over += 1
                continue
            slots = lowest(free & node.slots, wanted)
            if count(slots) < wanted and job.kind is BAG:
                slots = self._elsewhere(site, job, task, node, start, free)
            if count(slots) == wanted:
                plan.place(number, task, slots)
                free ^= slots
            else:
                passed_over += 1
                if job.kind is not BAG:
                    free &= ~node.slots  # they are kept for it
        return wake

    def _elsewhere(
        self, site: SiteSlots, job: JobView, task: int, node: NodeView, start: Instant, free: Slots
    ) -> Slots:
        """A free slot of another node of the site on which a task ends in time, or no later than where it waits."""
        if len(site.classes) == 1:
            return lowest(free, 1)
        view = self.view
        until = max(job.due if job.due < NEVER else 0, max(start, view.now) + self.lasts(job, task, self._of(node)))
        for other, one in site.nodes:
            here = free & other.slots
            if here and view.now + self.lasts(job, task, one) <= until:
                return lowest(here, 1)
        return NO_SLOTS

    def _of(self, node: NodeView) -> Class:
        return self._of_node[node.spec.name][1]

    # Reasons

    def _explain(self, plan: Plan) -> None:
        """Say of the jobs that wait when they are to start."""
        view = self.view
        starting = {wanted.job for wanted in plan.allocations}
        first: dict[JobId, Instant] = {}
        for agenda in self._agenda.values():
            for start, number, _ in agenda:
                first[number] = min(start, first.get(number, start))
        for job in view.asked(view.waiting):
            if job.id in starting:
                continue
            comes = self._rented.held.get(job.id, NEVER)
            if comes < first.get(job.id, NEVER):
                plan.pass_over(job.id, Reason.MACHINE_COMES, comes)
            elif job.id in self._rented.denied:
                plan.pass_over(job.id, Reason.NOT_TO_BE_RENTED, first.get(job.id))
            elif job.id in first:
                plan.pass_over(job.id, Reason.SITE_BUSY, max(view.now, first[job.id]))
            else:
                plan.pass_over(job.id, Reason.NEVER_FITS)

    def why(self, job: JobView) -> str:
        """Where the tasks of a job run and wait, and why those that wait do not wait at a site that is preferred."""
        runs, waits = Counter[str](), dict[str, list[tuple[Instant, int]]]()
        for attempt in job.attempts.values():
            runs[self.view.slot_nodes[attempt.slots.bit_length() - 1].spec.site] += 1
        for task, (start, name) in job.planned.items():
            waits.setdefault(self._of_node[name][0].name, []).append((start, task))
        parts = [f"{_tasks(number)} run{'s' * (number == 1)} at site {name}" for name, number in sorted(runs.items())]
        here = [site for site in self.sites if site.name in waits]
        parts += [self._why_at(job, site, sorted(waits[site.name])) for site in here]
        if not parts:
            return ""
        preferred = ", ".join(site.name for site in self.sites)
        return "; ".join(parts) + f". Sites by preference: {preferred}"

    def _why_at(self, job: JobView, chosen: SiteSlots, waiting: list[tuple[Instant, int]]) -> str:
        """Why tasks wait at a site: by when the last of them would end at the sites that come before it."""
        start, task = waiting[-1]
        said = f"{_tasks(len(waiting))} wait{'s' * (len(waiting) == 1)} at site {chosen.name}, "
        if chosen is self.sites[0]:
            return said + "which comes first"
        free, told = self._free_at(), []
        before = {
            name: [entry for entry in agenda if entry[0] < start and entry[1] != job.id]
            for name, agenda in self._agenda.items()
        }
        for site in self.sites:
            self._lay(site, free, before)
            site.begin(free)
            fit = self._fit_at(site, job, task)
            end = "it does not fit" if fit is None else f"it would end in {(fit.end - self.view.now) / SECOND:.3g} s"
            if site is chosen:
                break
            told.append(f"at {site.name} {end}")
        if job.due == NEVER:
            return said + f"because for task {task}, {'; '.join(told)}"
        left = (job.due - self.view.now) / SECOND
        due = f"in {left:.3g} s" if left >= 0 else f"{-left:.3g} s ago"
        return f"{said}because task {task} would be late before: {'; '.join(told)}, and it is due {due}"


def _by_order(job: JobView) -> tuple[Instant, JobId]:
    return job.order


def _without_place(job: JobView) -> list[int]:
    """The ready tasks of a job that have no place; of a rigid one with a place that is too small, that one."""
    if job.rigid or not job.planned:
        return list(ready_tasks(job, job.ready))
    return [task for task in ready_tasks(job, job.ready) if task not in job.planned]


def _by_falling_estimate(job: JobView, tasks: list[int]) -> Sequence[int]:
    """Tasks of a job, the longest first, of equals in order of number."""
    if job.sizes:
        return sorted(tasks, key=lambda task: (-job.sizes[task], task))
    if job.graph:
        return sorted(tasks, key=lambda task: (-job.graph[task].estimate, task))
    return tasks


def _slots_of(job: JobView, task: int, spec: NodeSpec) -> int:
    """How many slots a task takes on a node; a rigid job on all nodes together."""
    if job.kind is BAG:
        return 1
    return job.width if job.rigid else spec.slots_for(job.graph[task].cores)


def _tasks(number: int) -> str:
    return f"{number} task{'s' * (number != 1)}"
