"""Checks that the whole state agrees with itself; tests call this after every event."""

from __future__ import annotations

from headway.core import lifecycle, nodes
from headway.core.pool import Pool, pool_of
from headway.core.sorting import Sorting
from headway.core.state import State, room_in
from headway.model.instant import NEVER, Instant
from headway.model.job import JobId, Kind
from headway.model.power import PowerState
from headway.model.queue import by_order
from headway.model.ration import Ration, by_rank, uses_of
from headway.model.renting import RentalStage
from headway.model.seen import AttemptView, JobView
from headway.model.slots import NO_SLOTS, Slots, bounds, numbers, of_numbers
from headway.model.snapshot import Limits
from headway.model.tier import Tier


def check(state: State) -> None:
    """Derive every index again from jobs, attempts and nodes, and compare.

    Raises:
        AssertionError: an index disagrees; the message names it.
    """
    for job in state.jobs.values():
        check_job(state, job)
    check_pools(state)
    for pool in state.each():
        check_places(pool)
        check_orders(pool)
    check_successors(state)
    held_back = {job.id for job in state.jobs.values() if job.release > state.now}
    queued_ids = {job_id for _, job_id in state.release_queue}
    assert held_back == queued_ids & state.jobs.keys() | {job.id for job in state.jobs.values() if job.after}, "held"
    check_nodes(state)
    check_suspects(state)
    check_market(state)
    check_rations(state)
    uniform = [pool.uniform for pool in state.each()]
    nodes.compare(state)
    assert [pool.uniform for pool in state.each()] == uniform, "whether all nodes are alike"


def check_pools(state: State) -> None:
    """The same for what belongs to which pool."""
    assert list(state.pools.items()) == [(pool.name, pool) for pool in state.others], "pools"
    assert state.due == [pool for pool in state.due if pool.round_due], "due"
    assert {pool.name for pool in state.due} == {pool.name for pool in state.others if pool.round_due}, "due"
    exists = NO_SLOTS
    for pool in state.each():
        assert not exists & pool.slots, f"slots of pool {pool.name}"
        exists |= pool.slots
        assert pool.state is state, f"state of pool {pool.name}"
    for pool in state.others:
        assert pool.now == state.now, f"time of pool {pool.name}"
        assert pool.slot_nodes is state.slot_nodes, f"slot_nodes of pool {pool.name}"
        assert pool.speeds is state.speeds, f"speeds of pool {pool.name}"
        assert pool.routes is state.routes, f"routes of pool {pool.name}"
        assert pool.market is state.market, f"market of pool {pool.name}"
        assert pool.sites is state.sites, f"sites of pool {pool.name}"
        assert all(job.pool is pool and state.jobs[number] is job for number, job in pool.jobs.items()), "jobs"
        there = [(name, node) for name, node in state.nodes.items() if node.slots & pool.slots]
        assert list(pool.nodes.items()) == there, f"nodes of pool {pool.name}"
    dealt = sum(len(pool.jobs) for pool in state.others)
    assert dealt == sum(1 for job in state.jobs.values() if job.pool is not state), "jobs of pools"


def check_job(state: State, job: JobView) -> None:
    """The same for what a job knows of itself."""
    pool = pool_of(job)
    for task, attempt in job.attempts.items():
        assert (attempt.job, attempt.task) == (job, task), f"attempt of job {job.id} task {task}"
        assert job.tries[task] == attempt.number, f"tries of job {job.id} task {task}"
        goal = attempt.goal
        assert goal is None or attempt.ending, f"job {job.id} is not asked to end and has a goal"
        if goal is not None:
            assert not goal.slots & ~pool.up, f"job {job.id} moves to slots that are not up"
            assert goal.tier is Tier.BACKGROUND or not goal.slots & ~job.held, f"goal of job {job.id} is not kept"
        owned = not job.endless or state.displaced or not attempt.slots & ~job.held
        assert owned or attempt.ending or attempt.alone, f"an instance of service {job.id} has lost its slot and stays"
    lowest = job.held & -job.held
    for slot in numbers(lowest if job.rigid else job.held):
        assert pool.owners.get(slot) is job, f"owner of slot {slot}"
    fresh = job.tasks - job.fresh
    assert fresh + len(job.again) == job.all_ready, f"all ready tasks of job {job.id}"
    assert job.cancelled or job.ration is not None or job.ready == job.all_ready, f"ready tasks of job {job.id}"
    blocked = sum(1 for task, missing in enumerate(job.missing) if missing and task not in job.dropped)
    left = job.all_ready + len(job.attempts) + len(job.apart) + blocked
    assert job.cancelled or job.unfinished == left, f"tasks of job {job.id}"
    assert not (job.cancelled and job.apart), f"tasks of cancelled job {job.id} wait to run alone"
    assert not set(job.apart) & {*job.again, *job.attempts, *job.dropped}, f"tasks of job {job.id} apart"
    assert all(0 <= task < job.tasks for task in job.dropped), f"cancelled tasks of job {job.id}"
    assert not job.dropped & set(job.again), f"cancelled tasks of job {job.id} are ready"
    assert not lifecycle.status(job, state.now).is_final, f"job {job.id} is done and still here"
    if job.rigid:
        assert job.held.bit_count() in (0, job.width), f"slots held by rigid job {job.id}"
    else:
        moving = [attempt.goal for attempt in job.attempts.values() if attempt.goal is not None]
        kept = of_numbers(slot for goal in moving for slot in numbers(goal.slots))
        assert not job.held & ~pool.busy & ~kept, f"idle slots held by job {job.id}"


def check_places(pool: Pool) -> None:
    """The same for what is where in a pool."""
    busy = behind = allocated = NO_SLOTS
    running, queued, background = [], [], []
    goals: list[tuple[AttemptView, Slots]] = []
    jobs = [job for job in pool.jobs.values() if job.pool is pool]
    for job in jobs:
        for task, attempt in job.attempts.items():
            if attempt.queued:
                queued.append(attempt)
            elif attempt.tier is Tier.BACKGROUND:
                assert not behind & attempt.slots, f"places held twice by attempts: {behind & attempt.slots:b}"
                behind |= attempt.slots
                background.append(attempt)
            else:
                assert not busy & attempt.slots, f"slots held twice by attempts: {busy & attempt.slots:b}"
                busy |= attempt.slots
                running.append((attempt.expected_end, job.id, task, attempt))
            if attempt.goal is not None and attempt.goal.tier is Tier.BACKGROUND:
                goals.append((attempt, attempt.goal.slots))
        assert not allocated & job.held, f"slots allocated twice: {allocated & job.held:b}"
        allocated |= job.held
    for attempt, slots in goals:
        assert not behind & slots & ~attempt.slots, f"places kept twice: {behind & slots:b}"
        behind |= slots
    assert busy == pool.busy, "busy"
    assert behind == pool.behind, "behind"
    assert not behind & pool.limits.one_tier, "background places of nodes that have none"
    for job in pool.jobs.values() if pool.limits.is_split else ():
        parts = [attempt.slots for attempt in job.attempts.values()] if job.rigid else []
        assert all(map(pool.limits.are_together, [*parts, job.held if job.rigid else NO_SLOTS])), f"job {job.id} spans"
    in_order = sorted(background, key=lambda attempt: (attempt.job.order, attempt.task))
    assert in_order == pool.background, "background"
    ahead = [attempt for slot, queue in sorted(pool.ahead.items()) for attempt in queue if attempt.slots == 1 << slot]
    assert sorted(queued, key=lambda attempt: (attempt.slots, attempt.task)) == ahead, "ahead"
    assert all(queue and busy >> slot & 1 for slot, queue in pool.ahead.items()), "queued where nothing runs"
    assert allocated == pool.allocated, "allocated"
    claimants = {job.id: job for job in jobs if job.held and job.rigid}
    assert pool.claimants == claimants, "claimants"
    owned = sum(job.held.bit_count() for job in jobs if not job.rigid)
    assert len(pool.owners) == owned + len(claimants), "owners"
    assert sorted(running, key=lambda entry: entry[:3]) == pool.running, "running"
    promised = {job.id: job for job in jobs if job.promise is not None}
    assert promised == pool.promised, "promised"
    agenda: dict[str, list[tuple[Instant, JobId, int]]] = {}
    for job in jobs:
        for task, (start, node) in job.planned.items():
            agenda.setdefault(node, []).append((start, job.id, task))
            assert task not in job.attempts, f"task {task} of job {job.id} runs and is planned"
    assert {node: sorted(planned) for node, planned in agenda.items()} == pool.agenda, "agenda"
    coming = {name for name, node in pool.state.dark.items() if node.up and not node.kept_off}
    there = all(node in coming or pool.nodes[node].slots & pool.up for node in agenda)
    assert there, "planned on nodes that are not up"
    if pool.unplanned is not None:
        assert all(pool.jobs[number] is job and job.pool is pool for number, job in pool.unplanned.items()), "unplanned"
        seen = [job for job in jobs if job.release <= pool.now and job.goes_to is None and not job.cancelled]
        lacking = {job.id for job in seen if job.kind in pool.placed and job.may_lack_places}
        assert lacking <= pool.unplanned.keys(), "unplanned"
    assert not pool.allocated & ~pool.up, "allocated slots that are not up"
    assert not (pool.busy | pool.behind) & ~pool.slots, "busy slots of no node"
    assert pool.free == pool.up & ~pool.busy & ~pool.allocated, "free"
    assert pool.counted in (-1, pool.free.bit_count()), "counted free slots"
    assert pool.count_busy in (-1, pool.busy.bit_count()), "counted busy slots"
    assert pool.kept_runs in (None, bounds(pool.free)), "runs of free slots"
    assert not pool.given, "slots that were given in a round that is over"
    assert pool.bare == bounds(pool.of_up & ~pool.of_behind), "runs of vacant background places"
    for _, _, _, attempt in running:
        assert attempt.bounds is None or attempt.bounds == bounds(attempt.slots), "runs of an attempt"
        assert attempt.frees in (-1, (attempt.slots & pool.up).bit_count()), "what an attempt frees"
    foreseen = {entry[:3] for entry in pool.state.predictions}
    assert all(entry[:3] in foreseen for entry in running if entry[3].job.predicted), "predictions"
    if pool.profile is not None:
        promises = [(job.id, job.promise) for job in promised.values() if job.promise is not None]
        pool.profile.check(pool.now, pool.free.bit_count(), pool.expected_ends(), promises)


def check_orders(pool: Pool) -> None:
    """The same for the orders in which a pool's policy sees its jobs."""
    released = [job for job in pool.jobs.values() if job.pool is pool and job.release <= pool.now]
    for number, job in pool.departing.items():
        assert pool.jobs.get(number) is job, f"job {number} departs from another pool"
        assert job.goes_to is not None, f"job {number} departs"
        assert job.attempts, f"job {number} could depart now"
        assert not job.held, f"job {number} departs and holds slots"
    going = [job.id for job in released if job.goes_to is not None]
    assert sorted(pool.departing) == sorted(going), "departing"
    released = [job for job in released if job.goes_to is None]
    unserved = [job for job in released if job.ready and job.kind not in pool.serves]
    assert sorted(unserved, key=by_order) == pool.unserved, "unserved"
    released = [job for job in released if job.kind in pool.serves]
    waiting = [job for job in released if job.ready]
    assert pool.waiting is pool.queues[by_order], "waiting is a queue of its own"
    for key, queue in pool.queues.items():
        assert isinstance(queue, Sorting) or sorted(waiting, key=key) == queue, f"waiting by {key}"
        queue.check()
    present = [job for job in released if not job.cancelled]
    for key, ranked in pool.orders.items():
        assert isinstance(ranked, Sorting) or ranked == sorted(present, key=key), f"order {key}"
    assert not (pool.waiting and min(job.release for job in pool.waiting) > pool.now), "start before release"


def check_nodes(state: State) -> None:
    """The same for nodes and their slots."""
    up = exists = NO_SLOTS
    limits = Limits()
    for node in state.nodes.values():
        limits.note(node.spec, node.slots)
        assert not exists & node.slots, f"slots of node {node.spec.name}"
        exists |= node.slots
        up |= node.slots & ~node.closing if node.is_open else NO_SLOTS
        taken = state.taken(node.slots)
        assert (node.power is not PowerState.ON) == (state.dark.get(node.spec.name) is node), (
            f"power of {node.spec.name}"
        )
        assert node.power is PowerState.ON or node.waits_to_go_off or not taken, f"{node.spec.name} is off and is busy"
        is_tried = node.is_put_off and node.power is not PowerState.ON
        assert is_tried == (state.troubled.get(node.spec.name) is node), f"{node.spec.name} is tried again"
        assert node.switch <= state.switched, f"number of the switch of {node.spec.name}"
        assert node.up or node.power is not PowerState.OFF, f"{node.spec.name} is off and is lost"
        assert (node.idle_since < NEVER) == (state.idle.get(node.spec.site, {}).get(node.spec.name) is node), (
            f"whether {node.spec.name} is idle"
        )
        assert not node.draining or taken, f"node {node.spec.name} drains and is still here"
        assert node.up or not node.closed, f"node {node.spec.name} is closed and is lost"
        assert not node.closing & ~taken, f"idle slots of node {node.spec.name} are still here"
        kept = of_numbers(node.places[: node.spec.slots])
        assert node.slots ^ node.closing == kept, f"slots of node {node.spec.name}"
        assert all(state.slot_nodes[slot] is node for slot in node.places), f"places of node {node.spec.name}"
    assert state.predicts or not any(job.predicted for job in state.jobs.values()), "predictions"
    known = state.limits
    assert (limits.one_tier, limits.fixed) == (known.one_tier, known.fixed), "limits"
    apart = [(one.spanning, list(one.separate.items()), one.is_split) for one in (limits, known)]
    assert apart[0] == apart[1], "slots of separate sites"
    for pool in state.each():
        assert pool.limits is state.limits, f"limits of pool {pool.name}"
        assert pool.predicts == state.predicts, f"predictions in pool {pool.name}"
        leaving = NO_SLOTS
        for name, slots in pool.leaving.items():
            assert slots, f"slots that go to {name}"
            assert not leaving & slots, "slots that go to two pools"
            assert not slots & ~(pool.busy | pool.behind), f"slots could go to {name} now"
            leaving |= slots
        assert not leaving & ~pool.slots, "slots of others leave"
        assert up & pool.slots & ~leaving == pool.up, "up"
        assert not pool.slots & ~exists, "slots of no node"
        exists &= ~pool.slots
    assert not exists, "slots of no pool"


def check_successors(state: State) -> None:
    """The same for jobs that come after others: they wait only for jobs in the system, and nothing of them runs
    meanwhile.
    """
    found = {(before, job.id) for before, jobs in state.successors.items() for job in jobs}
    assert found == {(before, job.id) for job in state.jobs.values() for before in job.after}, "successors"
    assert len(found) == sum(map(len, state.successors.values())), "successors twice"
    jobs = [state.jobs[before] for before, _ in found if before in state.jobs]
    assert {job.id: job for job in jobs if not job.after and job.release <= state.now} == state.heads, "heads"
    kinds = {kind: {job.id: job for job in state.jobs.values() if job.kind is kind} for kind in Kind}
    assert (kinds[Kind.SERVICE], kinds[Kind.WORKFLOW]) == (state.services, state.flows), "services and workflows"
    assert all(before in state.jobs for before, _ in found), "a job is waited for that has ended"
    for job in state.jobs.values():
        assert not job.after or (job.release == NEVER and not job.attempts and not job.held), f"job {job.id} is held"


def check_market(state: State) -> None:
    """The same for rented machines: each that serves is a node, and no budget is exceeded but by what is given back."""
    market = state.market
    assert state.rents or not market.is_used, "rents"
    assert {rental.node: rental for rental in market.rentals.values()} == market.nodes, "nodes of rentals"
    assert all(number <= market.count for number in market.rentals), "number of a rental"
    for rental in market.rentals.values():
        there = rental.node in state.nodes
        serves = rental.stage in (RentalStage.SERVES, RentalStage.ENDS)
        assert there == serves, f"whether rental {rental.number} is a node"
        assert rental.stage is not RentalStage.ENDS or state.nodes[rental.node].draining, f"rental {rental.number} ends"
    for offer in market.renting.offers:
        assert market.left(offer) >= 0, f"limit of {offer.type}"
    paying = {rental.job for rental in market.rentals.values()}
    assert market.by_job.keys() <= state.jobs.keys() | paying, "what machines cost by job"


def check_rations(state: State) -> None:
    """The same for the bounds of users: the slots of each user are within the bound."""
    assert not state.stale, "bounds that were not looked at"
    for user, ration in state.rations.items():
        jobs = [job for job in state.jobs.values() if job.spec.user == user]
        assert all(job.ration is ration for job in jobs), f"jobs of user {user}"
        assert ration.user == user, f"user {user}"
        assert all(job.uses == uses_of(job) for job in jobs), f"slots of jobs of user {user}"
        assert ration.used == sum(job.uses for job in jobs), f"slots of user {user}"
        assert ration.used <= max(ration.most, ration.allowed), f"user {user} has more slots than allowed"
        lines: dict[str, list[JobView]] = {}
        services: list[JobView] = []
        for job in sorted(jobs, key=by_rank):
            released = job.release <= state.now and job.goes_to is None and not job.cancelled
            served = job.kind in pool_of(job).serves
            if released and served and job.all_ready and not job.endless:
                lines.setdefault(job.pool.name, []).append(job)
            elif released and served and job.endless:
                assert job.ready == min(job.all_ready, ration.room), f"ready instances of service {job.id}"
                services.append(job)
            elif not job.cancelled:
                assert job.ready == job.all_ready, f"ready tasks of job {job.id}, for which its user's bound is nothing"
        assert lines == ration.lines, f"jobs in line of user {user}"
        for line in lines.values():
            check_line(ration, line)
        seen = {job.id: job.ready for job in (*ration.shown.values(), *services)}
        assert all(ration.seen[number] == ready for number, ready in seen.items()), f"what is seen of user {user}"
    bounded = (job for job in state.jobs.values() if job.ration is not None)
    assert all(job.spec.user in state.rations for job in bounded), "bounds of users that have none"
    assert all(job.ration is not None or not job.uses for job in state.jobs.values()), "slots that need not count"


def check_line(ration: Ration, line: list[JobView]) -> None:
    """The same for the jobs of a user that wait in one pool: the first of them share the room."""
    left, stopped = ration.room, False
    for job in line:
        gathers = job.rigid and bool(job.held)
        assert (ration.shown.get(job.id) is job) == bool(job.ready), f"whether job {job.id} is shown"
        if gathers:
            assert job.ready == 1, f"job {job.id} has slots and is not seen"
            continue
        pool = pool_of(job)
        ready, needs, blocks = room_in(pool, job, left, ration.most) if left and not stopped else (0, 0, True)
        assert job.ready == ready, f"ready tasks of job {job.id}: {job.ready} instead of {ready}"
        left, stopped = left - needs, stopped or blocks


def check_suspects(state: State) -> None:
    """The same for tasks that may kill nodes: tasks that wait to run alone are suspected, and others do not run
    alone.
    """
    waiting = [state.suspicions[job.id, task].rank for job in state.jobs.values() for task in job.apart]
    assert sorted(waiting) == state.suspects, "suspects"
    for (number, task), suspicion in state.suspicions.items():
        assert (suspicion.job, suspicion.task) == (state.jobs[number], task), f"suspicion of job {number} task {task}"
        assert task not in suspicion.job.apart or suspicion.runs_alone, f"job {number} task {task} is not suspected"
    apart = [node for isolation in state.isolations for node in isolation.nodes]
    assert len({id(node) for node in apart}) == len(apart), "nodes set apart for two tasks"
    for node in (*state.nodes.values(), *state.departed):
        assert node.apart == any(one is node for one in apart), f"node {node.spec.name} is set apart"
    alone = [attempt for attempt in state.attempts() if attempt.alone]
    for isolation in state.isolations:
        attempt = isolation.attempt
        if attempt is None:
            assert isolation.task in isolation.job.apart, f"nodes are set apart for job {isolation.job.id}"
            continue
        alone.remove(attempt)
        slots = of_numbers(slot for node in isolation.nodes for slot in numbers(node.slots))
        others = [one for one in state.attempts() if one is not attempt and one.slots & slots]
        assert not others, f"job {isolation.job.id} does not run alone"
    assert not alone, "an attempt runs alone on nodes that are not set apart"
