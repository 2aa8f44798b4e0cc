"""Nodes that are switched off while nothing needs them, and on in time: a rule beneath every policy.

A node that is off has no free slots. It is *needed* by what waits, by what is to come and by what is promised there:

- A job that waits needs its slots now, or when it is promised its start.
- A job that is released later needs them then. A job that comes after others needs them when these may have ended.
- A task of a workflow needs the node that it is promised, at that time. A workflow without such promises, a task that
  runs alone because it is suspected, a job that no pool has been dealt yet, and a service: these need every node. So
  does a rigid job that cannot have enough free slots together.

An idle node goes off when it has been idle for `off_after`, if all that is needed until it could be on again, and
`off_after` longer, is there without it. A node comes on as long before it is needed as that takes. What runs is not
expected to end early, and slots that become free are not counted. So where a job waits for slots, every node that it
could use is on or coming on.

Each switch has a number, and only an answer to the last one of a node counts. What fails is tried again, after a time
that grows (`again_after`). Until then:

- A node that has not gone off, and is in service, is used again. If an operator wants it off, nothing starts there.
- A node that has not come on, or has not gone off and is not in service, is down. It is neither on nor off for sure, so
  it comes on again by its command (or goes off, if an operator wants it off).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Final

from headway.core import leases
from headway.core.pool import Pool, pool_of
from headway.core.state import IDLE_UNKNOWN, State
from headway.model.actions import SwitchOff, SwitchOn
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import JobId
from headway.model.plan import Switch
from headway.model.power import PowerState, Switching, Trouble, again_after, settings_of
from headway.model.seen import JobView, NodeView
from headway.model.slots import NO_SLOTS, Slots, count, numbers

ON: Final = PowerState.ON
GOING_OFF: Final = PowerState.GOING_OFF
OFF: Final = PowerState.OFF
COMING_ON: Final = PowerState.COMING_ON

EVERYTHING: Final = 1 << 60
"""More slots than any cluster has."""


# What happens to nodes


def choose(state: State, settings: dict[str, Switching]) -> None:
    """From now on nodes are switched by these settings. Those that nothing switches any more come on, as they would
    have by the settings with which they went off.
    """
    state.switching, state.alike = settings, None
    for pool in state.others:
        pool.switching = settings
    state.switches = True
    state.was_taken = IDLE_UNKNOWN
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
    if node.spec.found or settings_of(node.spec.site, state.switching) is None:
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
    if node.is_put_off and node.trouble is not None and node.trouble.again > state.now:
        return "node_put_off"
    if not is_idle(state, node):
        return "node_busy"
    begin_off(state, node)
    return None


def keep_off(state: State, node: NodeView) -> None:
    """An operator keeps a node off: nothing more starts there, and it goes off when nothing runs there."""
    state.switches = node.kept_off = True
    node.comes_back, state.alike = False, None
    state.close_all(node.slots)
    if node.is_put_off and node.power is not ON:
        _forgive(state, node)
        begin_off(state, node)
    elif node.power is ON and is_idle(state, node):
        begin_off(state, node)
    elif node.power is ON:
        node.power, node.power_until, state.draining = GOING_OFF, NEVER, True
        _close(state, node)


def let_on(state: State, node: NodeView) -> None:
    """An operator wants a node on."""
    node.kept_off, state.alike = False, None
    if node.waits_to_go_off:
        _forgive(state, node)
        _open(state, node)
    elif node.is_put_off and node.power is not ON:
        _forgive(state, node)
        _start_on(state, node)
    elif node.power is GOING_OFF or node.power is OFF:
        begin_on(state, node)
    state.look_at_everything()


def by_hand(state: State, node: NodeView, *, on: bool) -> bool:
    """An operator has switched a node: what is under way is given up. Returns whether that changes anything.

    A node on which something runs is not off.
    """
    lit = node.power is ON or node.waits_to_go_off
    if not is_idle(state, node) or (on and node.up and node.power is ON):
        return False
    state.switches, node.kept_off, node.comes_back = True, not on, False
    _forgive(state, node)
    if on and node.up and lit:
        _open(state, node)
        state.look_at_everything()
        return True
    state.close_all(node.slots)
    if on:
        _close(state, node)
        _start_on(state, node, by_hand=True)
    else:
        begin_off(state, node, by_hand=True)
    return True


def begin_off(state: State, node: NodeView, *, by_hand: bool = False) -> None:
    """A node on which nothing runs goes off."""
    settings = settings_for(state, node)
    node.power_until, node.went_off = state.now + settings.off_time, settings
    node.power, node.heard_until = GOING_OFF, NEVER
    _close(state, node)
    state.actions.append(SwitchOff(node.spec.name, _begin(state, node, by_hand), by_hand))


def begin_on(state: State, node: NodeView) -> None:
    """A node comes on; one that is going off, as soon as it is off."""
    state.alike = None
    if node.is_put_off and node.power is not ON:
        return  # it is tried again in any case
    if node.power is GOING_OFF and not node.waits_to_go_off:
        node.comes_back = True
    elif node.power is GOING_OFF:
        _open(state, node)
    elif node.power is OFF:
        _start_on(state, node)


def _start_on(state: State, node: NodeView, *, by_hand: bool = False) -> None:
    """A node comes on from now on."""
    node.power, node.comes_back = COMING_ON, False
    node.power_until = state.now + (0 if by_hand else settings_for(state, node).on_time)
    state.actions.append(SwitchOn(node.spec.name, _begin(state, node, by_hand), by_hand))


def _begin(state: State, node: NodeView, by_hand: bool) -> int:
    """Something is under way from now on. Returns the number of this switch."""
    state.switched += 1
    state.alike = None
    node.switch, node.by_hand = state.switched, by_hand
    if node.trouble is not None:
        node.trouble = replace(node.trouble, again=NEVER)
        state.troubled.pop(node.spec.name, None)
    return state.switched


def _forgive(state: State, node: NodeView) -> None:
    """What failed before does not count any more."""
    node.trouble = None
    state.troubled.pop(node.spec.name, None)


def is_expected(node: NodeView, switch: int) -> bool:
    """Whether an answer is to the last switch of a node; those of older journals have no numbers (0)."""
    return switch in (0, node.switch)


def is_off(state: State, node: NodeView) -> bool:
    """A node is off. Returns whether that was expected."""
    if node.power is not GOING_OFF or not node.is_switched:
        return False
    _forgive(state, node)
    node.power, node.power_until, state.alike = OFF, NEVER, None
    node.up, node.by_hand = True, False
    if node.comes_back:
        begin_on(state, node)
    return True


def is_on(state: State, node: NodeView, *, is_answer: bool) -> bool:
    """A node is on; in older journals, whose answers have no number, also: it has not gone off.

    Returns:
        Whether that was expected.
    """
    if not node.is_switched or (is_answer and node.power is not COMING_ON):
        return False
    _forgive(state, node)
    if node.kept_off and node.power is COMING_ON:
        node.up = True
        begin_off(state, node)
    elif not node.up:
        leases.bring_up(state, node)
    else:
        node.kept_off = False
        _open(state, node)
    return True


def has_failed(state: State, node: NodeView, detail: str, *, serves: bool) -> bool:
    """A node could not be switched; `serves`: it is in service again. Returns whether that was expected."""
    if not node.is_switched:
        return False
    times = 1 if node.trouble is None else node.trouble.times + 1
    again = min(NEVER - 1, state.now + again_after(times, settings_for(state, node).limit))
    node.trouble, node.by_hand = Trouble(detail, times, again), False
    if serves and not node.kept_off:
        node.up = True
        _open(state, node)
        return True
    state.troubled[node.spec.name] = node
    node.comes_back, state.alike = False, None
    if serves:
        node.up, node.power_until, state.draining = True, NEVER, True
        leases.heard(state, node)
        return True
    node.up, node.heard_until = False, NEVER
    node.power, node.power_until = GOING_OFF if node.kept_off else COMING_ON, again
    state.close_all(node.slots)
    return True


def try_again(state: State) -> None:
    """Switch nodes again for which it is time."""
    for node in list(state.troubled.values()):
        if node.trouble is not None and node.trouble.again <= state.now:
            if node.power is COMING_ON:
                _start_on(state, node)
            elif not node.up or is_idle(state, node):
                begin_off(state, node)
            else:  # it goes off when nothing runs there
                node.trouble = replace(node.trouble, again=NEVER)
                del state.troubled[node.spec.name]


def next_try(state: State) -> Instant:
    """When a node is switched again that could not be."""
    return min([NEVER if one.trouble is None else one.trouble.again for one in state.troubled.values()], default=NEVER)


def _close(state: State, node: NodeView) -> None:
    """Nothing starts on a node any more. What is planned there later stays planned."""
    state.dark[node.spec.name] = node
    state.idle.get(node.spec.site, {}).pop(node.spec.name, None)
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
    state.was_taken = IDLE_UNKNOWN


def settings_for(state: State, node: NodeView) -> Switching:
    """How a node is switched. One that went off by a command comes on by that of the settings with which it went off,
    if those of its site have none any more.
    """
    before, now = node.went_off, settings_of(node.spec.site, state.switching)
    if now is None:
        return before
    if before.on_command and not now.on_command:
        return replace(now, on_command=before.on_command)
    return now


# What policies see


def show(state: State) -> None:
    """Show every pool which of its nodes are not on, and when they could be."""
    for pool in state.each():
        pool.off, pool.coming = NO_SLOTS, []
    if state.alike is None:
        alike = dict[tuple[str, int, Instant], tuple[NodeView, Slots]]()
        for node in state.dark.values():
            if node.kept_off or not node.may_start or node.apart:
                continue
            key = (node.spec.site, node.power, node.power_until)
            first, slots = alike.get(key, (node, NO_SLOTS))
            alike[key] = first, slots | (node.slots & ~node.closing)
        state.alike = list(alike.values())
    for node, slots in state.alike:
        at = state.ready_at(node)
        for pool, part in state.parts(slots):
            pool.off |= part
            pool.coming.append((at, count(part)))
    for pool in state.each():
        pool.coming.sort()


def prepare(state: State) -> None:
    """Before rounds: the same. When nodes that are off could be on moves on with time, so nothing is relied upon."""
    if state.dark or any(pool.coming for pool in state.each()):
        show(state)
    for pool in state.each():
        if pool.coming:
            pool.arrived = pool.profile = pool.layout = None


# The rule


def note_idle(state: State) -> None:
    """Note which nodes have become idle or busy since the last time."""
    taken = _taken(state)
    some: Iterable[NodeView] = ()
    if state.was_taken == IDLE_UNKNOWN:
        some = state.nodes.values()
    elif taken != state.was_taken:
        changed = (state.slot_nodes[slot] for slot in numbers(taken ^ state.was_taken))
        some = {id(node): node for node in changed}.values()
    state.was_taken = taken
    for node in some:
        idle = state.idle.setdefault(node.spec.site, {})
        name = node.spec.name
        if not (node.is_open and state.nodes.get(name) is node and is_idle(state, node)):
            idle.pop(name, None)
            node.idle_since = NEVER
        elif name not in idle and state.switching:
            node.idle_since = state.now
            idle[name] = node


Lack = tuple[Instant, int]
"""What is needed of a pool: from when on, and how many slots in all."""


def look(state: State) -> tuple[list[Switch], Instant]:
    """What the rule wants switched now, and when it is to look again even if nothing happens."""
    ripe, again = _ripe(state)
    if not (ripe or any(_may_come_on(state, node) for node in state.dark.values())):
        return [], again
    site = _Sight(state)
    now, found = state.now, list[Switch]()
    names: Iterable[str] = state.dark
    if site.is_all_planned and not site.has_least:
        names = {name for pool in state.each() for name in pool.agenda.keys() & state.dark.keys()}
    dark = [node for node in map(state.dark.__getitem__, names) if _may_come_on(state, node)]
    for node in sorted(dark, key=_by_slot):
        settings = settings_for(state, node)
        lead = settings.on_time + 1  # so that it is on before slots become free that are needed with it
        if node.power is GOING_OFF:
            lead += max(0, node.power_until - now)
        at = min(site.lacks_at(node), site.planned_at(node))
        if at - lead <= now or (settings.min_on and site.on(node.spec.site) < settings.min_on):
            found.append(Switch(node.spec.name, True))
            site.switch(node, on=True)
        elif at < NEVER:
            again = min(again, at - lead)
    for node in sorted(ripe, key=_by_slot, reverse=True):
        settings = settings_for(state, node)
        until = now + settings.off_time + settings.on_time + (settings.off_after or 0)
        at = site.planned_at(node)
        if at <= until or (settings.min_on and site.up(node.spec.site) <= settings.min_on):
            continue
        site.switch(node, on=False)
        at = min(at, site.lacks_at(node))
        if at <= until:
            site.switch(node, on=True)
            continue
        found.append(Switch(node.spec.name, False))
        if at < NEVER:
            again = min(again, at - settings.on_time - 1)
    return found, again


def _ripe(state: State) -> tuple[list[NodeView], Instant]:
    """The nodes that have been idle for long enough, and when the next one will have been."""
    ripe, again = list[NodeView](), NEVER
    for site, idle in state.idle.items():
        settings = settings_of(site, state.switching)
        if settings is None or settings.off_after is None:
            continue
        for node in idle.values():  # the one that has been idle longest comes first
            if node.spec.found:
                continue
            if node.idle_since + settings.off_after > state.now:
                again = min(again, node.idle_since + settings.off_after)
                break
            if node.trouble is not None and node.trouble.again > state.now:  # it could not be switched off
                again = min(again, node.trouble.again)
                continue
            ripe.append(node)
    return ripe, again


def _may_come_on(state: State, node: NodeView) -> bool:
    """Whether the rule may switch a node on."""
    if node.power is COMING_ON or node.comes_back or node.kept_off or node.waits_to_go_off or node.is_put_off:
        return False
    return node.up and not node.draining and settings_of(node.spec.site, state.switching) is not None


def _by_slot(node: NodeView) -> int:
    return node.places[0]


class _Sight:
    """What is needed and what is there, as the rule sees it while it decides.

    Attributes:
        is_all_planned: whether nothing is needed but what is planned on nodes.
        has_least: whether a site is to keep nodes on.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._lacks = _lacks(state)
        self.is_all_planned = not any(self._lacks.values())
        self.has_least = any(settings.min_on for settings in state.switching.values())
        self._has: Counter[tuple[str, str]] | None = None
        self._on: Counter[str] | None = None
        self._up: Counter[str] | None = None

    def lacks_at(self, node: NodeView) -> Instant:
        """From when on a pool of a node has too few slots of its class."""
        at = NEVER
        if self.is_all_planned:
            return at
        if self._has is None:
            self._has = _room(self._state)
        for pool, _ in self._state.parts(node.slots):
            room = self._has[pool.name, _class_of(pool, node)]
            for since, slots in self._lacks[pool.name]:
                if since >= at:
                    break
                if room < slots:
                    at = since
                    break
        return at

    def planned_at(self, node: NodeView) -> Instant:
        """When the first task is promised a start on a node."""
        name, state = node.spec.name, self._state
        starts = [pool.agenda[name][0][0] for pool in state.each() if name in pool.agenda]
        return max(state.now, min(starts)) if starts else NEVER

    def on(self, site: str) -> int:
        """How many nodes of a site are on or coming on."""
        if self._on is None:
            self._on = Counter[str]()
            for node in self._state.nodes.values():
                if node.up and (node.power is ON or node.power is COMING_ON or node.comes_back):
                    self._on[node.spec.site] += 1
        return self._on[site]

    def up(self, site: str) -> int:
        """How many nodes of a site are on. Those that are coming on may fail to, so they do not count."""
        if self._up is None:
            self._up = Counter(node.spec.site for node in self._state.nodes.values() if node.up and node.power is ON)
        return self._up[site]

    def switch(self, node: NodeView, *, on: bool) -> None:
        """Count a node as switched."""
        if self._on is not None:
            self._on[node.spec.site] += 1 if on else -1
        if self._up is not None and node.power is ON:
            self._up[node.spec.site] += 1 if on else -1
        if not self.is_all_planned:
            if self._has is None:
                self._has = _room(self._state)
            _count(self._state, node, self._has, 1 if on else -1)


def _room(state: State) -> Counter[tuple[str, str]]:
    """How many slots are free, or coming, by pool and class of nodes."""
    has = Counter[tuple[str, str]]()
    for pool in state.each():
        if pool.uniform:
            has[pool.name, ""] = count(pool.free)
            continue
        for node in pool.nodes.values():
            has[pool.name, _class_of(pool, node)] += count(pool.free & node.slots)
    for node in state.dark.values():
        if node.up and (node.power is COMING_ON or node.comes_back):
            _count(state, node, has, 1)
    return has


def _count(state: State, node: NodeView, has: Counter[tuple[str, str]], sign: int) -> None:
    for pool, part in state.parts(node.slots & ~node.closing):
        has[pool.name, _class_of(pool, node)] += sign * count(part)


def _class_of(pool: Pool, node: NodeView) -> str:
    """Nodes on which tasks run alike, as far as is known."""
    return "" if pool.uniform else f"{node.spec.speed!r} {node.spec.kind}"


def _jobs_in_need(state: State, pool: Pool) -> Iterator[JobView]:
    """The jobs of a pool that may need slots beyond those that they have, but for those that come later.

    Those that need most come first: of many, only the first few are looked at.
    """
    if pool is state:
        yield from state.services.values()
        for _, _, (_, number), _ in state.suspects:
            yield state.jobs[number]
    yield from pool.departing.values()
    flows: Iterable[JobView] = state.flows.values() if pool.unplanned is None else pool.unplanned.values()
    for job in flows:
        if job.pool is pool and not job.after and job.release <= state.now:
            yield job
    for job in pool.waiting:
        if not job.graph:
            yield job
    yield from pool.unserved


_OVER: Final = 0
_RELEASED: Final = 1
_FREE: Final = 2


def _jobs_to_come(state: State) -> Iterator[tuple[JobView, Instant]]:
    """The jobs that are released later, or come after others, and when each may start at the earliest, soonest first.

    By estimates, as if there were slots for everything. Of many only the first few are looked at: what happens is found
    in its order, which is that of a heap of entries `(at, _OVER, job, how many that come after it were looked at)`,
    `(at, _RELEASED, place in the queue, 0)` and `(at, _FREE, job, 0)`, of a job that all before it are over.
    """
    queue = state.release_queue
    left = [(_over(state, job), _OVER, job.id, 0) for job in state.heads.values() if not job.cancelled]
    if queue:
        left.append((queue[0][0], _RELEASED, 0, 0))
    heapify(left)
    waits: dict[JobId, int] = {}  # after how many others, not over by then, jobs come
    while left:
        at, what, number, place = heappop(left)
        if what == _OVER:
            later = state.successors.get(number, [])
            if place >= len(later):
                continue
            heappush(left, (at, _OVER, number, place + 1))
            job = later[place]
            waits[job.id] = waits.get(job.id, len(job.after)) - 1
            if waits[job.id] or job.cancelled:
                continue
            if job.spec.release > at:
                heappush(left, (job.spec.release, _FREE, job.id, 0))
                continue
        elif what == _RELEASED:
            for child in (2 * number + 1, 2 * number + 2):
                if child < len(queue):
                    heappush(left, (queue[child][0], _RELEASED, child, 0))
            known = state.jobs.get(queue[number][1])
            if known is None:
                continue
            job = known
        else:
            job = state.jobs[number]
        yield job, at
        if job.id in state.successors:
            heappush(left, (min(NEVER, at + _length(job)), _OVER, job.id, 0))


def _lacks(state: State) -> dict[str, list[Lack]]:
    """What is needed of each pool, soonest first, each with all that is needed until then."""
    wanted: dict[str, list[tuple[Instant, int]]] = {pool.name: [] for pool in state.each()}
    left = {pool.name: count(pool.slots) for pool in state.each()}  # what can be needed beside what was noted
    seen = set[JobId]()

    def note(job: JobView, at: Instant, *, is_next: bool) -> None:
        """Note what a job needs from an instant on; `is_next`: all that is needed sooner was noted."""
        slots = _need(state, job)
        if not slots or job.id in seen:
            return
        seen.add(job.id)
        names = [pool_of(job).name]
        if job.goes_to is not None or (state.others and not names[0]):
            names, slots = list(wanted), EVERYTHING
        for name in names:
            wanted[name].append((at, slots))
            left[name] -= slots if is_next else 0

    for pool in state.each():
        for job in _jobs_in_need(state, pool):
            if max(left.values() if pool is state else (left[pool.name],)) <= 0:
                break  # more than everything is not needed
            at = state.now if job.promise is None else max(state.now, job.promise)
            note(job, at, is_next=at <= state.now)
    for job, at in _jobs_to_come(state):
        if max(left.values()) <= 0:
            break
        note(job, at, is_next=True)
    found: dict[str, list[Lack]] = {}
    for name, each in wanted.items():
        total, lacks = 0, list[Lack]()
        for at, slots in sorted(each):
            total += slots
            if lacks and lacks[-1][0] == at:
                lacks[-1] = at, total
            else:
                lacks.append((at, total))
        found[name] = lacks
    return found


def _need(state: State, job: JobView) -> int:
    """How many slots a job needs beyond those that it has; what has promises on nodes needs no others."""
    if job.endless or job.apart:
        return EVERYTHING
    if job.cancelled:
        return 0
    if job.graph:
        return EVERYTHING if job.unfinished - len(job.attempts) > len(job.planned) else 0
    ready = max(0, job.ready - len(job.planned))
    limits = pool_of(job).limits
    if ready and job.rigid and limits.is_split and limits.most_together(pool_of(job).free) < job.width:
        return EVERYTHING  # slots that are free in different places do not help
    return ready * job.width


def _over(state: State, job: JobView) -> Instant:
    """The earliest instant at which a job that waits or runs may have ended, by estimates."""
    if job.unfinished > len(job.attempts) or not job.attempts:
        return min(NEVER, state.now + _length(job))
    return max(state.now, max([attempt.expected_end for attempt in job.attempts.values()]))


def _length(job: JobView) -> Duration:
    """How long a job runs at least, by estimates; 0 if that is not known."""
    return job.estimate if pool_of(job).uniform and not job.graph and not job.sizes else 0


def is_idle(state: State, node: NodeView) -> bool:
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
    if node.waits_to_go_off and not node.is_put_off and is_idle(state, node):
        begin_off(state, node)
