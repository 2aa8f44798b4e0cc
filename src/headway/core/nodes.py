"""Nodes that come, change their size and leave; what they can hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headway.core import lifecycle
from headway.core.state import State
from headway.model.job import JobSpec, Service, Workflow
from headway.model.node import NodeSpec, SlotStatus
from headway.model.outcome import Outcome
from headway.model.seen import AttemptView, NodeView
from headway.model.slots import NO_SLOTS, Slots, below, count, in_order, numbers, of_numbers, span


def add(state: State, spec: NodeSpec) -> NodeView:
    """Add a node: its slots get the numbers of a departed node of its site and size, or else the next ones.

    From a node of another site they would stand among those of its own in an order that they would not have alone.
    """
    anywhere = state.rules < lifecycle.REUSING_WITHIN_SITES
    fitting = (old for old in state.departed if len(old.places) == spec.slots)
    before = next((old for old in fitting if anywhere or old.spec.site == spec.site), None)
    if before is not None:
        state.departed.remove(before)
    node = NodeView(spec, () if before is None else before.places)
    state.starts_reported = state.starts_reported or spec.reports_start
    state.leased = state.leased or spec.lease is not None
    for slot in node.places:
        state.slot_nodes[slot], state.speeds[slot] = node, spec.speed
    _give_places(state, node)
    first = next(iter(state.nodes.values()), node)
    state.nodes[spec.name] = node
    state.uniform = state.uniform and spec.speed == 1.0 and spec.kind == first.spec.kind
    if spec.lease is not None:
        node.heard_until = state.now + spec.lease
    state.gain(node.slots)
    state.open_slots(node.slots)
    return node


def _give_places(state: State, node: NodeView) -> None:
    """Give the node its new number of slots: first the numbers it has or had, then new ones."""
    first, more = len(state.slot_nodes), max(0, node.spec.slots - len(node.places))
    slots = of_numbers(node.places[: node.spec.slots]) | span(first, more)
    if more:
        node.places = in_order((*node.places, *range(first, first + more)))
    state.slot_nodes += [node] * more
    state.speeds += [node.spec.speed] * more
    node.slots |= slots
    node.size = count(node.slots)
    state.limits.note(node.spec, node.slots)


def resize(state: State, node: NodeView, slots: int, *, at_once: bool) -> None:
    """Give a node more or fewer slots. Surplus slots go when they are idle, or at once with what runs there."""
    node.spec = replace(node.spec, slots=slots)
    wanted = of_numbers(node.places[:slots])
    surplus = node.slots & ~wanted
    node.closing = surplus
    if surplus:
        state.close_all(surplus)
        if at_once:
            state.lose_all(surplus, Outcome.KILLED)
        state.draining = True
        shed(state, node)
    had = node.slots
    _give_places(state, node)
    state.gain(node.slots & ~had)
    if node.is_open:
        for pool, part in state.parts(node.slots & ~node.closing):
            if part & ~pool.up:
                pool.open_slots(part & ~pool.up)


def shed(state: State, node: NodeView) -> None:
    """Drop idle slots that the node is to lose; drop the node itself if it drains and is idle."""
    taken = state.taken(node.slots)
    if node.draining and not taken:
        remove(state, node)
    elif node.closing:
        idle = node.closing & ~taken
        node.slots &= ~idle
        node.size = count(node.slots)
        node.closing &= ~idle
        state.limits.forget(idle)
        state.shed(idle)
        for pool in state.others:
            if node.spec.name in pool.nodes and not node.slots & pool.slots:
                del pool.nodes[node.spec.name]
        compare(state)


def close(state: State, node: NodeView) -> None:
    """Nothing more starts on a node until it opens. What was launched there and has not begun comes back."""
    node.closed, state.alike = True, None
    state.close_all(node.slots)
    for pool, part in state.parts(node.slots):
        for attempt in pool.attempts_on(part) + pool.queued_on(part):
            if attempt.queued or not attempt.running:
                pool.ask_to_end(attempt)


def reopen(state: State, node: NodeView) -> None:
    """A closed node can be used again."""
    node.closed, state.alike = False, None
    if node.is_open:
        state.open_all(node.slots & ~node.closing)


def remove(state: State, node: NodeView) -> None:
    """Drop a node on which nothing runs and whose slots are not allocated."""
    del state.nodes[node.spec.name]
    state.dark.pop(node.spec.name, None)
    state.troubled.pop(node.spec.name, None)
    state.idle.get(node.spec.site, {}).pop(node.spec.name, None)
    for pool in state.others:
        pool.nodes.pop(node.spec.name, None)
    state.shed(node.slots)
    state.limits.forget(node.slots)
    state.draining = any(known.draining or known.closing or known.waits_to_go_off for known in state.nodes.values())
    state.departed.append(node)
    compare(state)
    rental = state.market.nodes.get(node.spec.name) if state.rents else None
    if rental is not None:
        state.hand_back(rental)


def compare(state: State) -> None:
    """Determine for each pool whether all its nodes are alike."""
    for pool in state.each():
        pool.uniform = (
            all(known.spec.speed == 1.0 for known in pool.nodes.values())
            and len({known.spec.kind for known in pool.nodes.values()}) <= 1
        )


def slot_statuses(state: State) -> list[SlotStatus]:
    """The status of each slot, by slot number."""
    every = len(state.slot_nodes)
    found = statuses_on(state, below(every), state.runs())
    return [found[slot] for slot in range(every)]


def statuses_on(state: State, slots: Slots, attempts: Iterable[AttemptView]) -> dict[int, SlotStatus]:
    """The status of each of these slots, by slot number.

    Args:
        attempts: all that run there in the foreground; others may be among them.
    """
    statuses = dict.fromkeys(numbers(slots), SlotStatus.DOWN)
    totals = state.totals()
    launched = NO_SLOTS
    for attempt in attempts:
        if not attempt.running:
            launched |= attempt.slots
    for among, status in (
        (totals.up, SlotStatus.AVAILABLE),
        (totals.allocated, SlotStatus.OCCUPIED),
        (totals.busy, SlotStatus.BUSY),
        (launched, SlotStatus.OCCUPIED),
    ):
        for slot in numbers(slots & among):
            statuses[slot] = status
    return statuses


class Extent:
    """What a cluster can hold when nothing runs there.

    Args:
        groups: the nodes; of several groups a job needs one that holds it.
        for_rigid: the same for rigid jobs, if they need one site of a group; None: as the others.
    """

    def __init__(
        self, groups: Sequence[Sequence[NodeSpec]], for_rigid: Sequence[Sequence[NodeSpec]] | None = None
    ) -> None:
        self._groups = groups
        for_rigid = groups if for_rigid is None else for_rigid
        self._widest = max(sum(node.slots for node in nodes) for nodes in for_rigid)
        self._in_one = "the whole cluster" if len(for_rigid) == 1 else "the largest site"
        self._slots = [sum(node.slots for node in nodes) for nodes in self._groups]
        self._holds: dict[int, frozenset[int]] = {}

    def flaw_of_fit(self, job: JobSpec) -> str | None:
        """Why it can never run a job, as `field is value; allowed: ...`; None if it can."""
        if job.rigid and job.width > self._widest:
            return f"width is {job.width}; allowed: at most {self._widest}, the slots of {self._in_one}"
        whole = "the whole cluster" if len(self._groups) == 1 else "the largest site"
        if isinstance(job, Service) and job.least > max(self._slots):
            return f"least is {job.least}; allowed: at most {max(self._slots)}, the slots of {whole}"
        left = frozenset(range(len(self._groups)))
        for number, task in enumerate(job.graph if isinstance(job, Workflow) else ()):
            left &= self._holding(task.cores)
            if not left:
                nodes = [node for group in self._groups for node in group]
                widest = max((node.cores or node.slots for node in nodes), default=0)
                return f"plan[{number}].cores is {task.cores}; allowed: at most {widest}, those of the largest node"
        return None

    def _holding(self, cores: int) -> frozenset[int]:
        """The groups with a node that can run a task with so many cores; thousands of tasks may be alike."""
        if cores not in self._holds:
            self._holds[cores] = frozenset(
                number
                for number, nodes in enumerate(self._groups)
                if any(node.slots_for(cores) <= node.slots for node in nodes)
            )
        return self._holds[cores]
