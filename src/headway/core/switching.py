"""Nodes that are switched off while nothing needs them, and on in time: a rule beneath every policy.

A node that is off has no free slots. It is *needed* by what waits, by what is to come and by what is promised there:

- A job that waits needs its slots now, or when it is promised its start.
- A job that is released later needs them then. A job that comes after others needs them when these may have ended.
- A task of a workflow needs the node that it is promised, at that time. A workflow without such promises, a task that
  runs alone because it is suspected, a job that no pool has been dealt yet, and a service: these need every node.

An idle node goes off when it has been idle for `off_after`, if all that is needed until it could be on again, and
`off_after` longer, is there without it. A node comes on as long before it is needed as that takes. What runs is not
expected to end early, and slots that become free are not counted. So where a job waits for slots, every node that it
could use is on or coming on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from headway.core import leases
from headway.core.pool import Pool, pool_of
from headway.core.state import UNKNOWN, State
from headway.model.actions import SwitchOff, SwitchOn
from headway.model.instant import NEVER, Instant
from headway.model.job import JobId, Kind
from headway.model.plan import Switch
from headway.model.power import AT_ONCE, PowerState, Switching, settings_of
from headway.model.slots import NO_SLOTS, Slots, count, numbers
from headway.model.snapshot import JobView, NodeView

ON: Final = PowerState.ON
GOING_OFF: Final = PowerState.GOING_OFF
OFF: Final = PowerState.OFF
COMING_ON: Final = PowerState.COMING_ON

EVERYTHING: Final = 1 << 60
"""More slots than any cluster has."""


# What happens to nodes


def choose(state: State, settings: dict[str, Switching]) -> None:
    """From now on nodes are switched by these settings. Those that nothing switches any more come on."""
    state.switching = settings
    for pool in state.others:
        pool.switching = settings
    state.switches = True
    state.was_taken = UNKNOWN
    state.idle.clear()
    for node in state.nodes.values():
        node.idle_since = NEVER
        if node.power is not ON and settings_of(node.spec.site, settings) is None and not node.kept_off:
            begin_on(state, node)


def carry_out(state: State, switches: Iterable[Switch], refusals: Counter[str]) -> None:
    """Switch these nodes; what contradicts the state is refused, and counted under its rule."""
    for wanted in switches:
        rule = _switch(state, wanted)
        if rule is not None:
            refusals[rule] += 1


def _switch(state: State, wanted: Switch) -> str | None:
    """Switch a node as a plan wants it; the rule that refuses it, or None."""
    node = state.nodes.get(wanted.node)
    if node is None:
        return "node_unknown"
    if node.draining or not node.up:
        return "node_down"
    if settings_of(node.spec.site, state.switching) is None:
        return "node_not_switched"
    if node.kept_off:
        return "node_kept_off"
    if wanted.on:
        if node.power is ON or node.power is COMING_ON or node.comes_back:
            return "node_on"
        begin_on(state, node)
        return None
    if node.power is not ON:
        return "node_off"
    if not _is_idle(state, node):
        return "node_busy"
    begin_off(state, node)
    return None


def keep_off(state: State, node: NodeView) -> None:
    """An operator keeps a node off: nothing more starts there, and it goes off when nothing runs there."""
    state.switches = node.kept_off = True
    node.comes_back = False
    state.close_all(node.slots)
    if node.power is ON and _is_idle(state, node):
        begin_off(state, node)
    elif node.power is ON:
        node.power, node.power_until, state.draining = GOING_OFF, NEVER, True
        _close(state, node)


def let_on(state: State, node: NodeView) -> None:
    """An operator wants a node on."""
    node.kept_off = False
    if node.waits_to_go_off:
        _open(state, node)
    elif node.power is GOING_OFF or node.power is OFF:
        begin_on(state, node)
    state.look_at_everything()


def begin_off(state: State, node: NodeView) -> None:
    """A node on which nothing runs goes off."""
    node.power_until = state.now + _settings(state, node).off_time
    node.power, node.heard_until = GOING_OFF, NEVER
    _close(state, node)
    state.actions.append(SwitchOff(node.spec.name))


def begin_on(state: State, node: NodeView) -> None:
    """A node comes on; one that is going off, as soon as it is off."""
    if node.power is GOING_OFF and not node.waits_to_go_off:
        node.comes_back = True
    elif node.power is GOING_OFF:
        _open(state, node)
    elif node.power is OFF:
        node.power, node.comes_back = COMING_ON, False
        node.power_until = state.now + _settings(state, node).on_time
        state.actions.append(SwitchOn(node.spec.name))


def is_off(state: State, node: NodeView) -> bool:
    """A node is off. Returns whether that was expected."""
    if node.power is not GOING_OFF or node.waits_to_go_off:
        return False
    node.power, node.power_until = OFF, NEVER
    if node.comes_back:
        begin_on(state, node)
    return True


def is_on(state: State, node: NodeView) -> bool:
    """A node is on, or has not gone off. Returns whether that was expected."""
    if node.power is not COMING_ON and (node.power is not GOING_OFF or node.waits_to_go_off):
        return False
    if node.kept_off and node.power is COMING_ON:
        leases.forget_power(state, node)
        begin_off(state, node)
    else:
        node.kept_off = False
        _open(state, node)
    return True


def _close(state: State, node: NodeView) -> None:
    """Nothing starts on a node any more. What is planned there later stays planned."""
    state.dark[node.spec.name] = node
    state.idle.pop(node.spec.name, None)
    node.idle_since = NEVER
    for pool, part in state.parts(node.slots):
        pool.dim(part)


def _open(state: State, node: NodeView) -> None:
    """A node is on and runs nothing."""
    leases.forget_power(state, node)
    leases.heard(state, node)
    if node.is_open:
        for pool, part in state.parts(node.slots & ~node.closing):
            pool.light(part)
    state.was_taken = UNKNOWN


def _settings(state: State, node: NodeView) -> Switching:
    return settings_of(node.spec.site, state.switching) or AT_ONCE


# What policies see


def show(state: State) -> None:
    """Show every pool which of its nodes are not on, and when they could be."""
    for pool in state.each():
        pool.off, pool.coming = NO_SLOTS, []
    for node in state.dark.values():
        if node.kept_off or not node.up or node.draining or node.apart:
            continue
        for pool, part in state.parts(node.slots & ~node.closing):
            pool.off |= part
            pool.coming.append((pool.ready_at(node), count(part)))
    for pool in state.each():
        pool.coming.sort()


def prepare(state: State) -> None:
    """Before rounds: the same. When nodes that are off could be on moves on with time, so nothing is relied upon."""
    show(state)
    for pool in state.each():
        if pool.coming:
            pool.arrived = pool.profile = pool.layout = None


# The rule


def note_idle(state: State) -> None:
    """Note which nodes have become idle or busy since the last time."""
    taken = _taken(state)
    some: Iterable[NodeView] = ()
    if state.was_taken == UNKNOWN:
        some = state.nodes.values()
    elif taken != state.was_taken:
        changed = (state.slot_nodes[slot] for slot in numbers(taken ^ state.was_taken))
        some = {id(node): node for node in changed}.values()
    state.was_taken = taken
    for node in some:
        name = node.spec.name
        if not (node.is_open and state.nodes.get(name) is node and _is_idle(state, node)):
            state.idle.pop(name, None)
            node.idle_since = NEVER
        elif name not in state.idle and state.switching:
            node.idle_since = state.now
            state.idle[name] = node


class Lack(NamedTuple):
    """What is needed of a pool, soonest first: from when on how many slots more."""

    at: Instant
    slots: int


def look(state: State) -> tuple[list[Switch], Instant]:
    """What the rule wants switched now, and when it is to look again even if nothing happens."""
    now, again = state.now, NEVER
    ripe: list[NodeView] = []
    for node in state.idle.values():
        after = _settings(state, node).off_after
        if after is not None and node.idle_since + after <= now:
            ripe.append(node)
        elif after is not None:
            again = min(again, node.idle_since + after)
    dark = [node for node in state.dark.values() if _may_come_on(state, node)]
    if not ripe and not dark:
        return [], again
    lacks = _lacks(state)
    has = _room(state)
    found: list[Switch] = []
    on = Counter[str]()
    for node in state.nodes.values():
        if node.up and (node.power is ON or node.power is COMING_ON or node.comes_back):
            on[node.spec.site] += 1
    for node in sorted(dark, key=_by_slot):
        settings = _settings(state, node)
        lead = settings.on_time + 1  # so that it is on before slots become free that are needed with it
        if node.power is GOING_OFF:
            lead += max(0, node.power_until - now)
        at = min(_lacks_at(state, node, lacks, has), _planned_at(state, node))
        if at - lead <= now or on[node.spec.site] < settings.min_on:
            found.append(Switch(node.spec.name, True))
            on[node.spec.site] += 1
            _count(state, node, has, 1)
        elif at < NEVER:
            again = min(again, at - lead)
    for node in sorted(ripe, key=_by_slot, reverse=True):
        settings = _settings(state, node)
        until = now + settings.off_time + settings.on_time + (settings.off_after or 0)
        _count(state, node, has, -1)
        at = min(_lacks_at(state, node, lacks, has), _planned_at(state, node))
        if at <= until or on[node.spec.site] <= settings.min_on:
            _count(state, node, has, 1)
            continue
        found.append(Switch(node.spec.name, False))
        on[node.spec.site] -= 1
        if at < NEVER:
            again = min(again, at - settings.on_time - 1)
    return found, again


def _may_come_on(state: State, node: NodeView) -> bool:
    """Whether the rule may switch a node on."""
    if node.power not in (OFF, GOING_OFF) or node.comes_back or node.kept_off or node.waits_to_go_off:
        return False
    return node.up and not node.draining and settings_of(node.spec.site, state.switching) is not None


def _by_slot(node: NodeView) -> int:
    return node.places[0]


def _lacks_at(state: State, node: NodeView, lacks: dict[str, list[Lack]], has: Counter[tuple[str, str]]) -> Instant:
    """From when on a pool of a node has too few slots of its class without it."""
    at = NEVER
    for pool, _ in state.parts(node.slots):
        room = has[pool.name, _class_of(pool, node)]
        for lack in lacks[pool.name]:
            if lack.at >= at:
                break
            if room < lack.slots:
                at = lack.at
                break
    return at


def _planned_at(state: State, node: NodeView) -> Instant:
    """When the first task is promised a start on a node."""
    starts = [pool.agenda[node.spec.name][0][0] for pool in state.each() if node.spec.name in pool.agenda]
    return max(state.now, min(starts, default=NEVER))


def _room(state: State) -> Counter[tuple[str, str]]:
    """How many slots are free, or coming, by pool and class of nodes."""
    has = Counter[tuple[str, str]]()
    for pool in state.each():
        classes = {_class_of(pool, node) for node in pool.nodes.values()}
        for name in classes:
            has[pool.name, name] = count(pool.free) if len(classes) == 1 else 0
        for node in pool.nodes.values() if len(classes) > 1 else ():
            has[pool.name, _class_of(pool, node)] += count(pool.free & node.slots)
    for node in state.dark.values():
        if node.power is COMING_ON or node.comes_back:
            _count(state, node, has, 1)
    return has


def _count(state: State, node: NodeView, has: Counter[tuple[str, str]], sign: int) -> None:
    for pool, part in state.parts(node.slots & ~node.closing):
        has[pool.name, _class_of(pool, node)] += sign * count(part)


def _class_of(pool: Pool, node: NodeView) -> str:
    """Nodes on which tasks run alike, as far as is known."""
    return "" if pool.uniform else f"{node.spec.speed!r} {node.spec.kind}"


def _lacks(state: State) -> dict[str, list[Lack]]:
    """What is needed of each pool, soonest first, each with all that is needed until then."""
    wanted: dict[str, list[tuple[Instant, int]]] = {pool.name: [] for pool in state.each()}
    most, so_far = count(state.slots) + sum([count(pool.slots) for pool in state.others]), Counter[str]()
    for job in state.jobs.values():
        at, slots = _need(state, job)
        if not slots:
            continue
        name = pool_of(job).name
        if (state.others and not name) or job.kind is Kind.SERVICE or job.goes_to is not None:
            for each in wanted.values():
                each.append((at, EVERYTHING))
        else:
            wanted[name].append((at, slots))
        if at <= state.now:
            so_far[name] += slots
            if so_far[name] >= most and not state.others:
                break  # more than everything is not needed
    found: dict[str, list[Lack]] = {}
    for name, each in wanted.items():
        total, lacks = 0, list[Lack]()
        for at, slots in sorted(each):
            total += slots
            if lacks and lacks[-1].at == at:
                lacks[-1] = Lack(at, total)
            else:
                lacks.append(Lack(at, total))
        found[name] = lacks
    return found


def _need(state: State, job: JobView) -> tuple[Instant, int]:
    """From when on a job needs how many slots beyond those that it has; of a workflow only what has no promises."""
    now = state.now
    if job.kind is Kind.SERVICE or job.apart:
        return now, EVERYTHING
    if job.cancelled:
        return NEVER, 0
    at = job.release if not job.after else max([_over(state, before) for before in job.after])
    at = max(now, at)
    if job.kind is Kind.WORKFLOW:
        waiting = job.unfinished - len(job.attempts)
        return at, EVERYTHING if waiting > len(job.planned) else 0
    if not job.ready:
        return NEVER, 0
    if job.promise is not None:
        at = max(at, job.promise)
    return at, job.ready * job.width


def _over(state: State, number: JobId) -> Instant:
    """The earliest instant at which a job may have ended, by estimates."""
    job = state.jobs[number]
    if job.unfinished > len(job.attempts) or not job.attempts:
        known = pool_of(job).uniform and job.kind is not Kind.WORKFLOW and not job.sizes
        return min(NEVER, state.now + (job.estimate if known else 0))
    return max([attempt.expected_end for attempt in job.attempts.values()])


def _is_idle(state: State, node: NodeView) -> bool:
    """Whether nothing runs on a node, and its slots are neither allocated nor about to go to another pool."""
    if node.closing or state.taken(node.slots):
        return False
    for pool, part in state.parts(node.slots):
        if part & pool.allocated or any(part & slots for slots in pool.leaving.values()):
            return False
    return True


def _taken(state: State) -> Slots:
    """The slots on which something runs, or that are allocated, in whatever pool."""
    taken = NO_SLOTS
    for pool in state.each():
        taken |= pool.busy | pool.behind | pool.allocated
    return taken


def shed(state: State, node: NodeView) -> None:
    """A node that waits to go off goes off if nothing runs there."""
    if node.waits_to_go_off and _is_idle(state, node):
        begin_off(state, node)
