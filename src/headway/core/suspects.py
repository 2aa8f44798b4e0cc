"""Tasks that may be what kills the nodes they run on: they run alone until that is known. See `lifecycle`.

This is independent of the policy. It does not see the tasks that wait here as ready, nor the nodes set apart as up.
"""

from __future__ import annotations

from bisect import insort
from typing import Final

from headway.core.pool import Pool, pool_of
from headway.core.state import State
from headway.core.suspicion import Isolation, Suspicion
from headway.core.views import more
from headway.model.instant import NEVER, SECOND, Duration, Instant
from headway.model.power import PowerState
from headway.model.seen import AttemptView, JobView, NodeView
from headway.model.slots import NO_SLOTS, Slots, count, numbers

ALONE_MAX: Final = 5
"""A task may lose so many nodes while it runs alone; one more for each node that is lost elsewhere meanwhile."""

ALONE_CAP: Final = 15
"""At most so many: then it is given up, whatever is lost elsewhere."""

ALONE_LEAST: Final[Duration] = 2 * SECOND
"""A task is cleared when it has run alone this long, and twice as long as it ever had when a node was lost."""

ALONE_MOST: Final[Duration] = 60 * SECOND
"""It is cleared after this time at the latest; the next time after eight times as long, and so on.

So a task that runs for hours does not block a node for hours, and one that kills nodes after hours is found.
"""

SUSPECT_PATIENCE: Final[Duration] = 30 * SECOND
"""How long a suspected task waits for an empty node before one is emptied for it."""

PATIENCE_MOST: Final[Duration] = 300 * SECOND
"""How long it waits in all. Then it runs among others, until a node is lost there again."""

ONE_NODE_IN: Final = 4
"""At most one in so many nodes is set apart at a time, but always at least one."""


def note(state: State, slots: Slots) -> None:
    """A node with these slots is lost: record the tasks that were there, before their attempts are ended."""
    state.node_losses += 1
    number = state.node_losses
    there: list[AttemptView] = []
    pools = state.parts(slots)
    for pool, part in pools:
        there += pool.queued_on(part)
        there += [attempt for attempt in pool.attempts_on(part) if not attempt.struck]
    for suspicion in state.suspicions.values():
        if all(pool is not suspicion.job.pool for pool, _ in pools):
            continue
        attempt = suspicion.job.attempts.get(suspicion.task)
        runs_alone = attempt is not None and attempt.alone
        if (suspicion.alone or runs_alone) and (attempt is None or not attempt.slots & slots):
            suspicion.elsewhere += 1
    for there_was in there:
        _hold_against(state, there_was, number)


def _hold_against(state: State, attempt: AttemptView, number: int) -> None:
    """Record that a task was there when a node was lost."""
    job, task = attempt.job, attempt.task
    if job.cancelled or task in job.dropped:
        return
    job.losses = more(job.losses, task)
    suspicion = state.suspicions.get((job.id, task))
    if suspicion is None:
        suspicion = state.suspicions[job.id, task] = Suspicion(job, task)
    if not attempt.queued:
        suspicion.age = max(suspicion.age, state.now - attempt.start)
    suspicion.let_go = False
    if not attempt.alone:
        suspicion.losses.append(number)
        return
    suspicion.alone += 1
    if suspicion.alone >= min(ALONE_MAX + suspicion.elsewhere, ALONE_CAP):
        suspicion.guilty = True
        _explain(state, suspicion)


def _explain(state: State, guilty: Suspicion) -> None:
    """The cause of some losses is found: they no longer count against other tasks."""
    for suspicion in state.suspicions.values():
        if suspicion is guilty:
            continue
        waits = suspicion.task in suspicion.job.apart
        if waits:
            state.leave_apart(suspicion.job, suspicion.task)
        suspicion.losses = [number for number in suspicion.losses if number not in guilty.losses]
        if waits:
            _put(state, suspicion)


def _put(state: State, suspicion: Suspicion) -> None:
    """Let a task wait to run alone, or among others, as its suspicion now requires."""
    if suspicion.runs_alone:
        suspicion.job.apart = sorted([*suspicion.job.apart, suspicion.task])
        insort(state.suspects, suspicion.rank)
    else:
        pool = pool_of(suspicion.job)
        pool.give_back(suspicion.job, suspicion.task)
        pool.look_at_everything()


def advance(state: State) -> None:
    """Open nodes whose suspect is settled or cleared, set nodes apart for waiting ones, and start what can run
    alone.
    """
    for pool in state.each():
        _advance(state, pool)


def _advance(state: State, pool: Pool) -> None:
    """The same for the jobs of one pool, on its nodes."""
    usable = _usable(pool)
    for suspicion in _waiting(state, pool) if usable else ():
        if state.now >= suspicion.waits + PATIENCE_MOST:
            state.leave_apart(suspicion.job, suspicion.task)
            suspicion.let_go = True
            _put(state, suspicion)
    for isolation in list(state.isolations):
        if isolation.job.pool is pool and _is_over(state, isolation):
            _end(state, isolation)
    idle = loaded = None
    for suspicion in _waiting(state, pool):
        job, task = suspicion.job, suspicion.task
        pending = _isolation_of(state, job, task)
        if pending is not None and _is_idle(state, pending.nodes):
            continue
        if pending is None and not (_is_fair(pool, 1) and _has_room(job, job.width)):
            continue
        if idle is None:
            idle = _ranked(state, pool, idle_only=True)
        nodes = _enough(job, task, idle)
        if nodes and pending is not None:  # no need to wait for the others
            _end(state, pending)
        elif pending is not None:
            continue
        elif not nodes and state.now >= suspicion.waits + SUSPECT_PATIENCE:
            if loaded is None:
                loaded = _ranked(state, pool, idle_only=False)
            nodes = _enough(job, task, loaded)
        if nodes and _is_fair(pool, len(nodes)):
            idle = loaded = None
            state.isolations.append(Isolation(job, task, nodes))
            for node in nodes:
                node.apart = True
                state.close_all(node.slots)
    for isolation in state.isolations:
        job, nodes = isolation.job, isolation.nodes
        if job.pool is not pool or isolation.attempt is not None or not _is_idle(state, nodes):
            continue
        if _has_room(job, _need(job, isolation.task, nodes[0])):
            _launch(state, isolation)


def _waiting(state: State, pool: Pool) -> list[Suspicion]:
    """The suspected tasks that wait to run alone in a pool, in the order in which they are served."""
    ranked = [state.suspicions[order[1], task] for _, _, order, task in state.suspects]
    return [suspicion for suspicion in ranked if suspicion.job.pool is pool and suspicion.job.goes_to is None]


def _nodes(pool: Pool) -> list[NodeView]:
    """The nodes of which a pool has slots."""
    return [node for node in pool.nodes.values() if node.slots & pool.slots]


def next_look(state: State) -> Instant:
    """When `advance` has something to do even if nothing happens."""
    at = min((_cleared_at(state, isolation) for isolation in state.isolations), default=NEVER)
    for pool in state.each():
        for suspicion in _waiting(state, pool) if _usable(pool) else ():
            since = suspicion.waits
            at = min(at, since + (SUSPECT_PATIENCE if since + SUSPECT_PATIENCE > state.now else PATIENCE_MOST))
    return at


def wait_again(state: State) -> None:
    """A node comes back: if there was none to wait for, waiting begins only now."""
    for suspicion in state.suspicions.values():
        if not _usable(pool_of(suspicion.job)):
            suspicion.waits = state.now


def _isolation_of(state: State, job: JobView, task: int) -> Isolation | None:
    for isolation in state.isolations:
        if isolation.job is job and isolation.task == task:
            return isolation
    return None


def _is_over(state: State, isolation: Isolation) -> bool:
    """Whether the nodes of an isolation are no longer needed, or no longer usable."""
    job, task, attempt = isolation.job, isolation.task, isolation.attempt
    if attempt is None:
        usable = all(_is_usable(node) for node in isolation.nodes)
        has_room = _has_room(job, _need(job, task, isolation.nodes[0]))
        return task not in job.apart or not usable or not has_room or not _enough(job, task, isolation.nodes)
    if job.attempts.get(task) is not attempt:
        return True
    suspicion = state.suspicions.get((job.id, task))
    if suspicion is not None and suspicion.runs_alone and state.now < _cleared_at(state, isolation):
        return False
    if suspicion is not None:
        suspicion.cleared += suspicion.runs_alone
        suspicion.clear()
    attempt.alone = False
    state.displaced = state.displaced or job.endless
    return True


def _end(state: State, isolation: Isolation) -> None:
    """Let the nodes of an isolation serve everybody again."""
    state.isolations.remove(isolation)
    for node in isolation.nodes:
        node.apart = False
        if _is_usable(node):
            state.open_all(node.slots & ~node.closing)


def _cleared_at(state: State, isolation: Isolation) -> Instant:
    """The instant at which a task that runs alone will have done so for long enough."""
    attempt = isolation.attempt
    suspicion = state.suspicions.get((isolation.job.id, isolation.task))
    if attempt is None or suspicion is None or not attempt.running:
        return NEVER
    most = ALONE_MOST << min(3 * suspicion.cleared, 30)
    return attempt.start + min(max(2 * suspicion.age, ALONE_LEAST), most)


def _is_usable(node: NodeView) -> bool:
    return node.may_start and node.power is PowerState.ON  # one that has left is not up


def _usable(pool: Pool) -> int:
    """How many nodes could start something if they were not set apart."""
    return sum(1 for node in _nodes(pool) if _is_usable(node))


def _is_idle(state: State, nodes: list[NodeView]) -> bool:
    return not any(state.taken(node.slots) for node in nodes)


def _is_fair(pool: Pool, more: int) -> bool:
    """Whether this many more nodes may be set apart now."""
    apart = sum(1 for node in _nodes(pool) if node.apart)
    return not apart or apart + more <= _usable(pool) // ONE_NODE_IN


def _ranked(state: State, pool: Pool, *, idle_only: bool) -> list[NodeView]:
    """Nodes that could be set apart, those with the least running first."""
    ranked: list[tuple[int, int, NodeView]] = []
    for position, node in enumerate(_nodes(pool)):
        if node.is_open:
            runs = count(state.taken(node.slots))
            if not (idle_only and runs):
                ranked.append((runs, position, node))
    ranked.sort(key=_by_load)
    return [node for _, _, node in ranked]


def _by_load(entry: tuple[int, int, NodeView]) -> tuple[int, int]:
    return entry[0], entry[1]


def _enough(job: JobView, task: int, nodes: list[NodeView]) -> list[NodeView]:
    """The first of these nodes with room for a task, or the first together for a rigid job; none if there is none."""
    for node in nodes:
        if count(_room(job, node)) >= _need(job, task, node):
            return [node]
    together: dict[str, list[NodeView]] = {}
    missing: dict[str, int] = {}
    for node in nodes if job.rigid else ():
        name = node.spec.together
        together.setdefault(name, []).append(node)
        missing[name] = missing.get(name, job.width) - count(_room(job, node))
        if missing[name] <= 0:
            return together[name]
    return []


def _room(job: JobView, node: NodeView) -> Slots:
    """The slots of a node that a task of the job could have if nothing ran there."""
    return node.slots & ~node.closing & job.pool.slots


def _need(job: JobView, task: int, node: NodeView) -> int:
    """Slots of a task on this node."""
    return node.spec.slots_for(job.graph[task].cores) if job.graph else job.width


def _has_room(job: JobView, slots: int) -> bool:
    """Whether the user of a job may have so many slots more."""
    return job.ration is None or slots <= job.ration.room


def _launch(state: State, isolation: Isolation) -> None:
    """Start the next attempt of a suspected task, on the lowest slots of the nodes set apart for it."""
    job, task = isolation.job, isolation.task
    missing, slots = _need(job, task, isolation.nodes[0]), NO_SLOTS
    for node in isolation.nodes:
        for slot in numbers(_room(job, node)):
            if missing:
                slots |= 1 << slot
                missing -= 1
    state.leave_apart(job, task)
    pool_of(job).launch(job, task, slots, fed=False)
    isolation.attempt = attempt = job.attempts[task]
    attempt.alone = True
