"""Checks snapshots from outside, so that policies can rely on them as on the core's own."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from headway.core.record import AttemptRecord, JobRecord, NodeRecord, PoolRecord, StateRecord, blocked, placed
from headway.errors import Contradiction
from headway.model.instant import LONGEST, NEVER, Instant
from headway.model.job import JobId, Kind, Workflow, flaw
from headway.model.network import BANDWIDTH_RANGE, Network
from headway.model.node import node_flaw
from headway.model.power import Switching
from headway.model.renting import offer_flaw, renting_flaw

SNAPSHOT_SLOTS_MAX: Final = 100_000
"""The most slots in a snapshot."""

_TIME: Final = "an instant, less than 2**62 from zero"
_AMOUNT: Final = "0 or more, less than 2**62"


def check_snapshot(snapshot: StateRecord) -> None:
    """Check that a core could be in this state, and that the snapshot is not too large.

    Raises:
        Contradiction: it is not so; the message says why.
    """
    _must(-NEVER < snapshot.now < NEVER, "", "now", snapshot.now, _TIME)
    _must(0 <= snapshot.estimate_default < NEVER, "", "estimate_default", snapshot.estimate_default, _AMOUNT)
    exist, usable = _check_nodes(snapshot)
    _check_network(snapshot.network)
    dark = _check_power(snapshot, exist)
    _check_market(snapshot)
    up = _nodes_by_pool(snapshot, usable | _coming(snapshot))
    homes = {job: pool.name for pool in snapshot.pools for job in pool.jobs}
    busy, behind, owned, ids = set[int](), set[int](), set[int](), set[int]()
    for place, job in enumerate(snapshot.jobs):
        path = f"jobs[{place}]."
        wrong = flaw(job.spec)
        if wrong is not None:
            raise Contradiction(f"snapshot.{path}spec.{wrong}")
        _must(job.spec.id not in ids, path, "spec.id", job.spec.id, "an id that no other job has")
        ids.add(job.spec.id)
        _check_progress(job, path)
        _check_left(job, path)
        _check_planned(job, path, up.get(homes.get(job.spec.id, ""), ()))
        for number, attempt in enumerate(job.attempts):
            place_path = f"{path}attempts[{number}]."
            _check_attempt(job, attempt, place_path, exist, busy if attempt.tier == "foreground" else behind)
            _check_tier(job, attempt, place_path)
        _check_held(job, path, usable, owned)
    _must(
        dark.isdisjoint(busy | behind), "", "nodes", sorted(dark & (busy | behind)), "nothing runs where power is off"
    )
    for place, job in enumerate(snapshot.jobs):
        path = f"jobs[{place}]."
        goals = [attempt.goal for attempt in job.attempts if attempt.goal is not None]
        if job.spec.kind is Kind.BAG:
            kept = busy.union(*(goal.slots for goal in goals))
            _must(kept.issuperset(job.held), path, "held", job.held, "of a bag, slots on which something runs")
        for goal in goals:
            if goal.tier == "background":
                own = {slot for attempt in job.attempts for slot in attempt.slots if attempt.tier == "background"}
                free = exist.difference(behind - own)
                _must(free.issuperset(goal.slots), path, "goal", goal.slots, "slots behind which nothing else runs")
        for attempt in job.attempts:
            if attempt.queued:
                _must(attempt.slots[0] in busy, path, "attempts", attempt.slots, "queued where something runs")
        for number in job.after:
            _must(number in ids and number < job.spec.id, path, "after", number, "smaller ids, of jobs of the snapshot")
        waits = not job.after or not (job.attempts or job.held or job.cancelled)
        _must(waits, path, "after", job.after, "none, of a job that has slots, runs or is cancelled")
    _check_suspects(snapshot)
    _check_pools(snapshot, exist)
    for number in snapshot.arrived or ():
        _must(number in ids, "", "arrived", number, "ids of jobs of the snapshot")


def _check_network(network: Network) -> None:
    """Check that lines have sensible values, and that links name each pair once."""
    pairs = {frozenset((link.one, link.other)) for link in network.links}
    right = len(pairs) == len(network.links) and all(len(pair) == 2 for pair in pairs)
    _must(right, "network.", "links", len(network.links), "pairs of two names, each pair once")
    for line in (network.within, network.between, *(link.line for link in network.links)):
        _must(0 <= line.latency < NEVER, "network.", "latency", line.latency, _AMOUNT)
        right = line.bandwidth is None or BANDWIDTH_RANGE[0] <= line.bandwidth <= BANDWIDTH_RANGE[1]
        _must(right, "network.", "bandwidth", line.bandwidth, "{:g} to {:g}, or none".format(*BANDWIDTH_RANGE))


def _nodes_by_pool(snapshot: StateRecord, usable: set[int]) -> dict[str, set[str]]:
    """The names of the nodes that have slots that can be allocated, by the pool of these slots."""
    pools = {slot: pool.name for pool in snapshot.pools for slot in pool.slots}
    records: list[StateRecord | PoolRecord] = [snapshot, *snapshot.pools]
    leaving = {slot for pool in records for _, slots in pool.leaving for slot in slots}
    found: dict[str, set[str]] = {}
    for node, places in placed(snapshot):
        for slot in places:
            if slot in usable and slot not in leaving:
                found.setdefault(pools.get(slot, ""), set()).add(node.spec.name)
    return found


def _check_planned(job: JobRecord, path: str, up: Collection[str]) -> None:
    """Check what tasks are promised, and where those that have succeeded send from.

    Args:
        up: the names of the nodes of its pool that are up.
    """
    spec, running = job.spec, {attempt.task for attempt in job.attempts}
    tasks = spec.tasks if spec.kind is Kind.WORKFLOW else 0
    places = 0 if spec.endless else spec.tasks
    for kept in job.planned:
        can_wait = 0 <= kept.task < places and kept.task not in running and kept.task not in job.dropped
        _must(can_wait and not job.cancelled, path, "planned", kept.task, "tasks that wait")
        _must(-NEVER < kept.start < NEVER, path, "planned", kept.start, _TIME)
        _must(kept.node in up, path, "planned", kept.node, "names of nodes of its pool that are up")
    _must(len({kept.task for kept in job.planned}) == len(job.planned), path, "planned", len(job.planned), "one a task")
    for sent in job.outputs:
        _must(0 <= sent.task < tasks, path, "outputs", sent.task, "tasks of the workflow")
        _must(-NEVER < sent.at < NEVER, path, "outputs", sent.at, _TIME)


def _check_pools(snapshot: StateRecord, exist: set[int]) -> None:
    """Check that each slot and each job is of one pool at most, and that a job has its slots in its own."""
    jobs = {job.spec.id: job for job in snapshot.jobs}
    slots, dealt, names = set[int](), set[int](), {""}
    for number, pool in enumerate(snapshot.pools):
        path = f"pools[{number}]."
        _must(pool.name not in names, path, "name", pool.name, "a name that no other pool has, not empty")
        names.add(pool.name)
        _must(exist.difference(slots).issuperset(pool.slots), path, "slots", pool.slots, "slots of no other pool")
        slots.update(pool.slots)
        _must((jobs.keys() - dealt).issuperset(pool.jobs), path, "jobs", pool.jobs, "jobs of no other pool")
        dealt.update(pool.jobs)
        _must({*pool.jobs}.issuperset(pool.arrived or ()), path, "arrived", pool.arrived, "jobs of the pool")
        for job in pool.jobs:
            _must({*pool.slots}.issuperset(_places(jobs[job])), path, "slots", pool.slots, f"all those of job {job}")
    rest = {number: job for number, job in jobs.items() if number not in dealt}
    for number, kept in rest.items():
        _must(slots.isdisjoint(_places(kept)), "", "pools", number, f"no slots of job {number}, as it is of none")
    _check_moves(snapshot, snapshot.now, "", names - {""}, exist - slots, rest)
    for number, pool in enumerate(snapshot.pools):
        own = {job: jobs[job] for job in pool.jobs}
        _check_moves(pool, snapshot.now, f"pools[{number}].", names - {pool.name}, {*pool.slots}, own)


def _check_moves(
    pool: StateRecord | PoolRecord,
    now: Instant,
    path: str,
    others: set[str],
    slots: set[int],
    jobs: Mapping[JobId, JobRecord],
) -> None:
    """Check that what leaves a pool is of this pool, and goes to another one."""
    allowed = f"names of other pools: {', '.join(repr(name) for name in sorted(others)) or 'there are none'}"
    left = slots & {slot for job in jobs.values() for attempt in job.attempts for slot in _taken(attempt)}
    going = {number for number, job in jobs.items() if job.attempts and not job.held and _released(job) <= now}
    for name, places in pool.leaving:
        _must(name in others, path, "leaving", name, allowed)
        right = bool(places) and left.issuperset(places)
        _must(right, path, "leaving", places, "one slot or more of the pool on which something runs, each once")
        left.difference_update(places)
    for job, name in pool.departing:
        _must(name in others, path, "departing", name, allowed)
        _must(job in going, path, "departing", job, "jobs of the pool that run and hold no slots, each once")
        going.remove(job)


def _taken(attempt: AttemptRecord) -> tuple[int, ...]:
    """The slots that an attempt has, and those behind which it will run."""
    goal = attempt.goal
    return attempt.slots if goal is None or goal.tier != "background" else (*attempt.slots, *goal.slots)


def _released(job: JobRecord) -> Instant:
    return job.spec.release if job.release is None else job.release


def _places(job: JobRecord) -> set[int]:
    """All slots of a job."""
    goals = (attempt.goal.slots for attempt in job.attempts if attempt.goal is not None)
    return {*job.held}.union(*(attempt.slots for attempt in job.attempts), *goals)


def _check_suspects(snapshot: StateRecord) -> None:
    """Check that suspicions and nodes set apart name tasks that exist."""
    jobs = {job.spec.id: job for job in snapshot.jobs}
    known = {(kept.job, kept.task) for kept in snapshot.suspicions}
    _must(len(known) == len(snapshot.suspicions), "", "suspicions", len(known), "one a task")
    for number, kept in enumerate(snapshot.suspicions):
        path = f"suspicions[{number}]."
        _must(kept.job in jobs, path, "job", kept.job, "ids of jobs of the snapshot")
        _must(0 <= kept.task < jobs[kept.job].spec.tasks, path, "task", kept.task, "numbers of tasks of the job")
    for number, job in enumerate(snapshot.jobs):
        for task in job.apart:
            _must((job.spec.id, task) in known, f"jobs[{number}].", "apart", task, "tasks that are in `suspicions`")
    apart = {node.spec.name for node in snapshot.nodes if node.apart}
    for number, one in enumerate(snapshot.isolations):
        path = f"isolations[{number}]."
        _must(one.job in jobs, path, "job", one.job, "ids of jobs of the snapshot")
        job = jobs[one.job]
        there = {attempt.task for attempt in job.attempts} if one.runs else set(job.apart)
        _must(one.task in there, path, "task", one.task, "tasks that run, or are in `apart`, as `runs` says")
        _must(apart.issuperset(one.nodes), path, "nodes", one.nodes, "nodes that are set apart")


def _must(right: bool, path: str, field: str, value: object, allowed: str) -> None:
    if not right:
        raise Contradiction(f"snapshot.{path}{field} is {value!r}; allowed: {allowed}")


def _check_nodes(snapshot: StateRecord) -> tuple[set[int], set[int]]:
    """Check the nodes. Returns their slots, and those of them that can be allocated."""
    taken, exist, usable = set[int](), set[int](), set[int]()
    names: set[str] = set()
    gone = len(snapshot.departed)
    for number, (node, places) in enumerate(placed(snapshot)):
        path = f"departed[{number}]." if number < gone else f"nodes[{number - gone}]."
        wrong = node_flaw(node.spec)
        if wrong is not None:
            raise Contradiction(f"snapshot.{path}spec.{wrong}")
        _must(
            node.spec.slots <= SNAPSHOT_SLOTS_MAX - len(taken),
            path,
            "spec.slots",
            node.spec.slots,
            f"{SNAPSHOT_SLOTS_MAX} in all",
        )
        _must(len(places) >= node.spec.slots, path, "places", places, "as many numbers as it has slots, or more")
        for slot in places:
            _must(0 <= slot < SNAPSHOT_SLOTS_MAX, path, "places", slot, f"0 to {SNAPSHOT_SLOTS_MAX - 1}")
            _must(slot not in taken, path, "places", slot, "numbers that no other slot has")
            taken.add(slot)
        if number >= gone:
            _must(node.spec.name not in names, path, "spec.name", node.spec.name, "a name that no other node has")
            names.add(node.spec.name)
            _check_node(node, path, set(places[node.spec.slots :]))
            exist.update(places[: node.spec.slots], node.closing)
            if node.up and not (node.draining or node.closed or node.apart) and node.power == "on":
                usable.update(places[: node.spec.slots])
    return exist, usable


def _check_power(snapshot: StateRecord, exist: set[int]) -> set[int]:
    """Check which nodes are on, and how they are switched. Returns the slots of nodes on which nothing can run."""
    dark = set[int]()
    for number, (node, places) in enumerate(_there(snapshot)):
        path = f"nodes[{number}]."
        for name in ("power_until", "idle_since"):
            value = getattr(node, name)
            _must(-NEVER < value <= NEVER, path, name, value, "an instant, at most 2**62")
        allowed = "on, going off or coming on, of a node that is not up"
        _must(node.power != "off" or node.up, path, "power", node.power, allowed)
        _must(0 <= node.switch <= snapshot.switched, path, "switch", node.switch, "0 to the number of switches")
        if node.trouble is not None:
            _must(node.trouble.times > 0, path, "trouble.times", node.trouble.times, "1 or more")
            _must(-NEVER < node.trouble.again <= NEVER, path, "trouble.again", node.trouble.again, "an instant")
        _check_switching(node.went_off, f"{path}went_off.")
        waits = node.power == "going off" and node.power_until == NEVER
        if node.power != "on" and not waits:
            dark.update(places)
    for slot in snapshot.was_taken or ():
        _must(slot in exist, "", "was_taken", slot, "slots that the nodes have")
    for number, one in enumerate(snapshot.switching):
        _check_switching(one, f"switching[{number}].")
    for number, site in enumerate(snapshot.sites):
        _must(0 <= site.startup <= LONGEST, f"sites[{number}].", "startup", site.startup, _AMOUNT)
    names = [site.name for site in snapshot.sites]
    _must(len({*names}) == len(names), "", "sites", names, "no name twice")
    return dark


def _check_market(snapshot: StateRecord) -> None:
    """Check what can be rented, and what is."""
    market = snapshot.market
    if market is None:
        return
    wrong = renting_flaw(market.renting)
    if wrong is not None:
        raise Contradiction(f"snapshot.market.renting.{wrong}")
    for name in ("budget_day", "budget_job"):
        value = getattr(market.renting, name)
        _must(value is None or 0 <= value < NEVER, "market.renting.", name, value, _AMOUNT)
    for name in ("limit", "margin"):
        value = getattr(market.renting, name)
        _must(0 <= value < NEVER, "market.renting.", name, value, _AMOUNT)
    numbers = set[int]()
    for position, rental in enumerate(market.rentals):
        path = f"market.rentals[{position}]."
        _must(0 < rental.number <= market.count, path, "number", rental.number, "1 to `count`")
        _must(rental.number not in numbers, path, "number", rental.number, "one that no other rental has")
        numbers.add(rental.number)
        wrong = offer_flaw(rental.offer)
        if wrong is not None:
            raise Contradiction(f"snapshot.{path}offer.{wrong}")
        for name in ("asked", "since", "paid", "reclaimed"):
            value = getattr(rental, name)
            _must(-NEVER < value <= NEVER, path, name, value, "an instant, at most 2**62")
        _must(rental.since <= rental.paid, path, "paid", rental.paid, "`since` or later")


def _check_switching(settings: Switching, path: str) -> None:
    for name in ("off_after", "off_time", "on_time", "limit", "min_on"):
        value = getattr(settings, name)
        _must(value is None or 0 <= value < NEVER, path, name, value, _AMOUNT)
    for name in ("off_watts", "switch_joules"):
        value = getattr(settings, name)
        _must(0 <= value < math.inf, path, name, value, "a finite number, 0 or more")


def _coming(snapshot: StateRecord) -> set[int]:
    """The slots of nodes that are not on and may come on."""
    there = set[int]()
    for node, places in _there(snapshot):
        if node.power != "on" and node.up and not (node.draining or node.closed or node.apart or node.kept_off):
            there.update(places)
    return there


def _there(snapshot: StateRecord) -> list[tuple[NodeRecord, Sequence[int]]]:
    """The nodes that have not left, and the numbers of the slots that each has."""
    return [(node, places[: node.spec.slots]) for node, places in placed(snapshot)][len(snapshot.departed) :]


def _check_node(node: NodeRecord, path: str, beyond: Collection[int]) -> None:
    for slot in node.closing:
        _must(slot in beyond, path, "closing", slot, "places beyond the first `slots`")
    for name, value in node.measures:
        _must(math.isfinite(value), path, "measures", (name, value), "finite numbers")


def _check_progress(job: JobRecord, path: str) -> None:
    """Check that changed terms, counts and amounts are within their ranges."""
    for name in ("estimate", "fresh", "unfinished"):
        value = getattr(job, name)
        _must(value is None or 0 <= value < NEVER, path, name, value, _AMOUNT)
    left = job.size_left
    _must(left is None or 0 <= left < math.inf, path, "size_left", left, "a finite number, 0 or more")
    for name in ("ended", "spent", "lost", "kills", "moves"):
        value = getattr(job, name)
        _must(0 <= value < NEVER, path, name, value, _AMOUNT)
    _must(job.due is None or -NEVER < job.due <= NEVER, path, "due", job.due, "an instant, at most 2**62")
    right = job.release is None or -NEVER < job.release < NEVER
    _must(right, path, "release", job.release, _TIME)
    _must(job.priority is None or math.isfinite(job.priority), path, "priority", job.priority, "a finite number")
    for name in ("tries", "failures", "losses", "strikes", "kept"):
        for task, count in getattr(job, name):
            _must(0 <= task < job.spec.tasks, path, name, task, "numbers of tasks of the job")
            _must(0 <= count < NEVER, path, name, count, _AMOUNT)
    tries = dict(job.tries)
    for attempt in job.attempts:
        same = tries.get(attempt.task, attempt.number) == attempt.number
        _must(same, path, "tries", tries.get(attempt.task), "of a task that runs, the number of its attempt")
    for known in job.times:
        right = all(0 <= value < NEVER for value in (known.count, known.mean, known.spread))
        _must(right, path, "times", known, "counts and durations, 0 or more, less than 2**62")


def _check_left(job: JobRecord, path: str) -> None:
    """Check which tasks are ready, run, or wait for others. Each is at most one of these, and some task is."""
    spec, again = job.spec, job.again or ()
    workflow = spec.kind is Kind.WORKFLOW
    graph = spec.graph if isinstance(spec, Workflow) else ()
    missing = [len(set(task.after)) for task in graph] if job.missing is None else job.missing
    _must(len(missing) == len(graph), path, "missing", missing, "a count for each task of a workflow, else none")
    _must(min(missing, default=0) >= 0, path, "missing", missing, "counts, 0 or more")
    running = {attempt.task for attempt in job.attempts}
    _must(len(running) == len(job.attempts), path, "attempts", sorted(running), "one for each task")
    first = max(running, default=-1) + 1 if job.fresh is None else job.fresh
    if workflow:
        _must(job.fresh in (None, spec.tasks), path, "fresh", job.fresh, f"of a workflow its tasks, {spec.tasks}")
        first = spec.tasks
    _must(first <= spec.tasks, path, "fresh" if job.fresh else "attempts", first, "numbers of tasks of the job")
    if workflow and job.again is None:
        gone = {*running, *job.dropped}
        again = tuple(task for task, count in enumerate(missing) if not count and task not in gone)
    _must(len(set(again)) == len(again), path, "again", again, "each task once")
    for task in again:
        can_start = 0 <= task < first and task not in running and not (workflow and missing[task])
        _must(can_start, path, "again", task, "tasks that were launched before, or depend on none, and do not run")
    for task in running:
        can_run = 0 <= task < first and not (workflow and missing[task])
        _must(can_run, path, "attempts", task, "tasks of the job, below `fresh`, that depend on none")
    ready = spec.tasks - first + len(again)
    for task in job.dropped:
        was_there = 0 <= task < first and task not in again
        _must(was_there, path, "dropped", task, "tasks of the job, below `fresh`, that are not ready")
    for task in job.apart:
        waits = 0 <= task < first and task not in {*again, *running, *job.dropped} and not (workflow and missing[task])
        _must(waits, path, "apart", task, "tasks that were launched before, and neither run nor are ready")
    _must(len(set(job.apart)) == len(job.apart), path, "apart", job.apart, "each task once")
    left = ready + len(running) + len(job.apart) + blocked(missing, job.dropped)
    if job.cancelled:
        _must(not job.apart, path, "apart", job.apart, "none, of a job that is cancelled")
        _must(bool(running), path, "cancelled", True, "false where nothing runs any more: leave such jobs out")
    else:
        _must(job.unfinished in (None, left), path, "unfinished", job.unfinished, f"{left}, as follows from the rest")
        stuck = left == 0 or ((job.failed or bool(job.dropped)) and not ready and not running and not job.apart)
        _must(not stuck, path, "unfinished", left, "1 or more: leave out jobs of which nothing runs or can start")


def _check_attempt(job: JobRecord, attempt: AttemptRecord, path: str, exist: set[int], busy: set[int]) -> None:
    """Check that the job's attempts run on existing slots, no slot twice."""
    _must(attempt.number >= 1, path, "number", attempt.number, "1 or more")
    _must(-NEVER < attempt.start < NEVER, path, "start", attempt.start, _TIME)
    _must(-NEVER < attempt.expected_end < NEVER, path, "expected_end", attempt.expected_end, _TIME)
    _must(attempt.saved is None or -NEVER < attempt.saved < NEVER, path, "saved", attempt.saved, _TIME)
    most = 1 if job.spec.kind is Kind.BAG or attempt.queued else len(exist)
    _must(0 < len(attempt.slots) <= most, path, "slots", attempt.slots, "one slot or more; of a bag one")
    for slot in attempt.slots:
        _must(slot in exist, path, "slots", slot, "slots that the nodes have")
        if not attempt.queued:
            _must(slot not in busy, path, "slots", slot, "slots on which nothing else runs")
            busy.add(slot)


def _check_tier(job: JobRecord, attempt: AttemptRecord, path: str) -> None:
    """Check the tier of an attempt, and where it goes."""
    slots, goal = set(attempt.slots), attempt.goal
    _must(attempt.since is None or -NEVER < attempt.since < NEVER, path, "since", attempt.since, _TIME)
    alone = attempt.tier == "foreground" or not (attempt.fed or attempt.queued)
    _must(alone, path, "tier", attempt.tier, "foreground, where it runs on a slot of the whole job or waits for one")
    seats = attempt.seats
    right = not seats or (len(seats) == job.spec.width and slots.issubset(seats) and len(set(seats)) == len(seats))
    _must(right, path, "seats", seats, "its slots, one a process, or none")
    if goal is None:
        return
    _must(attempt.ending, path, "goal", goal.slots, "none, unless it is asked to end")
    size = len(set(goal.slots)) == len(goal.slots) == max(job.spec.width, len(goal.slots))
    _must(bool(goal.slots) and size, path, "goal", goal.slots, "as many slots as it needs, each once")
    held = goal.tier == "background" or set(job.held).issuperset(goal.slots)
    _must(held, path, "goal", goal.slots, "slots that are allocated to the job")


def _check_held(job: JobRecord, path: str, usable: set[int], owned: set[int]) -> None:
    """Check the slots that are allocated to the job as a whole: they are up, no slot twice."""
    kind, held = job.spec.kind, job.held
    goals = {slot for attempt in job.attempts if attempt.goal is not None for slot in attempt.goal.slots}
    only = kind is not Kind.WORKFLOW or goals.issuperset(held)
    _must(only, path, "held", held, "none: a workflow's tasks are placed one by one")
    _must(
        kind is not Kind.RIGID or len(held) in (0, job.spec.width), path, "held", held, "none, or as many as its width"
    )
    _must(not job.seats or sorted(job.seats) == sorted(held), path, "seats", job.seats, "its allocated slots, or none")
    for slot in goals:
        _must(slot in usable, path, "goal", slot, "slots of nodes that are up")
    for slot in held:
        _must(slot in usable, path, "held", slot, "slots of nodes that are up")
        _must(slot not in owned, path, "held", slot, "slots that no other job holds")
        owned.add(slot)
