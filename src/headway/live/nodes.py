"""The nodes in service: those that the engine runs and those that the core knows, kept in step while jobs run.

A node is started before its `NodeJoined` is recorded, and ended when its `NodeLeft`, or the end of its drain, is
durable. A resized node gets its slots before anything is launched on them. So the core never knows a node that the
engine does not have. Nodes that only the engine has after a crash are ended at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from headway import wire
from headway.core.scheduler import Scheduler
from headway.engines import base
from headway.errors import Conflict, HeadwayError, InvalidInput, NameTaken, NoSuchNode
from headway.live.sites import ONE_ENGINE, SiteEngines
from headway.model.events import (
    Event,
    NodeClosed,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeOpened,
    NodeResized,
    NodesHeard,
    NodeSwitched,
    NodeUp,
)
from headway.model.instant import Instant
from headway.model.job import JobId, Kind
from headway.model.node import NodeSpec, node_flaw
from headway.model.power import POWER_WORDS, PowerState
from headway.model.seen import NodeView
from headway.model.slots import of_numbers

log = logging.getLogger(__name__)

JOBS_LOOKED_AT_ONCE: Final = 5_000
"""After this many jobs, other requests are served."""


class NeededByNodes(Protocol):
    """What is needed of the driver."""

    @property
    def core(self) -> Scheduler:
        """The scheduler, for reading."""

    async def request(self, events: Callable[[Instant], Sequence[Event]], *, by: str = "") -> int:
        """Record events, and who asked for them."""

    def incident(self, kind: str, subject: str, detail: str, by: str = "") -> None:
        """Record something that an operator should know."""


class Nodes:
    """Adds, removes and resizes nodes, one change at a time.

    Args:
        recorder: records what happens.
        engine: runs the nodes.
        sites: what the engine is made of.
        read_ahead: for nodes that are added, see `NodeSpec`.
    """

    def __init__(
        self, recorder: NeededByNodes, engine: base.Engine, sites: SiteEngines = ONE_ENGINE, read_ahead: int = 0
    ) -> None:
        self._recorder = recorder
        self._engine = engine
        self._sites = sites
        self._read_ahead = read_ahead
        self._served: set[str] = set()
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._one = asyncio.Lock()

    # Called by the driver

    def serve(self, nodes: Iterable[NodeSpec]) -> None:
        """The engine has these nodes now."""
        self._served.update(node.name for node in nodes)

    def follow(self) -> None:
        """After a durable turn: end the nodes that the core no longer knows."""
        known = self._recorder.core.state.nodes
        if len(self._served) == len(known):  # every known node is served
            return
        for name in self._served - known.keys():
            self._served.discard(name)
            leaving = self._leaving[name] = asyncio.get_running_loop().create_task(self._engine.leave(name))
            leaving.add_done_callback(partial(self._has_left, name))

    def _has_left(self, name: str, task: asyncio.Task[None]) -> None:
        del self._leaving[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("node %s may not have ended", name, exc_info=error)

    async def settle(self) -> None:
        """Wait until every node that has left has ended."""
        if self._leaving:
            await asyncio.wait(list(self._leaving.values()))

    # Requests of operators

    async def add(self, new: wire.NewNode, *, by: str = "") -> wire.NodeChange:
        """Take a node into service; if it is in service with the same terms, nothing changes.

        One that an engine found, and that was drained or removed, is in service when its engine finds it again.

        Raises:
            Conflict: another node has its name, or it was drained or removed at several sites.
            HeadwayError: a term is wrong, the node does not start, or nothing can be recorded now.
        """
        spec = self._sites.as_run(new.spec(self._read_ahead))
        wrong = node_flaw(spec)
        if wrong is not None:
            raise HeadwayError(wrong)
        async with self._change(spec.name):
            known = self._recorder.core.state.nodes.get(spec.name)
            if known is not None:
                if known.draining or not _is_found_one(known.spec, new):
                    self._check_same(known, spec, by)
                return wire.NodeChange(spec.name, False)
            if places := [site for site in self._sites.kept_out(new.name) if new.site in (None, site)]:
                return await self._let_in(new, places)
            if self._recorder.core.state.market.may_name(spec.name):
                detail = f"the name {spec.name!r} is kept for a machine that is rented"
                self._recorder.incident("name_taken", spec.name, detail, by)
                raise Conflict(detail, "Choose a name that does not end in -r and a number.")
            try:
                await self._engine.join(spec)
            except NameTaken as taken:
                self._recorder.incident("name_taken", spec.name, str(taken.args[0]), by)
                raise Conflict(str(taken.args[0]), taken.hint) from taken
            try:
                await self._recorder.request(lambda now: [NodeJoined(now, spec)], by=by)
            except BaseException:
                await self._engine.leave(spec.name)
                raise
            self._served.add(spec.name)
            self.follow()  # the turn that recorded it may have ended another node
            return wire.NodeChange(spec.name, True)

    async def drain(self, name: str, *, by: str = "") -> wire.NodeChange:
        """Let a node start nothing more, and leave when what runs there has ended.

        Raises:
            NoSuchNode: it is not in service.
            Conflict: it is the last node.
        """
        async with self._change(name):
            if self._known(name).draining:
                return wire.NodeChange(name, False)
            self._check_another(name, by)
            await self._recorder.request(lambda now: [NodeDrained(now, name)], by=by)
            return wire.NodeChange(name, True, unfit=await self._unfit())

    async def remove(self, name: str, *, by: str = "") -> wire.NodeChange:
        """End a node at once; what runs there is redone elsewhere. Returns when all its processes have ended.

        Raises:
            NoSuchNode, Conflict: as `drain`.
        """
        async with self._change(name):
            node = self._known(name)
            self._check_another(name, by)
            redone = len(self._recorder.core.state.runs_on(node.slots))
            await self._recorder.request(lambda now: [NodeLeft(now, name)], by=by)
            self.follow()  # the turn may answer before it looks at the nodes
            if (leaving := self._leaving.get(name)) is not None:
                await asyncio.wait((leaving,))
            return wire.NodeChange(name, True, redone, await self._unfit())

    async def resize(self, name: str, size: wire.NodeSize, *, by: str = "") -> wire.NodeChange:
        """Give a node more or fewer slots.

        Raises:
            NoSuchNode: it is not in service.
            Conflict: the node is draining.
            InvalidInput: fewer than one slot, or more than the engine allows on a node.
        """
        if size.slots < 1:
            hint = f"A node without slots is one that is removed: `headway node drain {name}`."
            raise InvalidInput("slots", size.slots, "1 or more", hint=hint)
        async with self._change(name):
            node = self._known(name)
            if node.draining:
                raise Conflict(f"node {name!r} drains", "It leaves with the last task that runs there.")
            if node.spec.slots == size.slots:
                return wire.NodeChange(name, False)
            self._engine.check_fit(replace(node.spec, slots=size.slots))
            surplus = of_numbers(node.places[size.slots :]) & node.slots
            redone = len(self._recorder.core.state.runs_on(surplus)) if size.at_once else 0
            await self._recorder.request(lambda now: [NodeResized(now, name, size.slots, size.at_once)], by=by)
            return wire.NodeChange(name, True, redone, await self._unfit())

    async def switch(self, name: str, *, on: bool, by_hand: bool = False, by: str = "") -> wire.NodeChange:
        """Let a node go off when nothing runs there, and stay off; or let it come on again.

        Args:
            by_hand: whether it has been switched already: what is under way there is given up, and no command is run.

        Raises:
            NoSuchNode: it is not in service.
            Conflict: it drains, its engine finds it by itself, or it is the last node; it is lost and is to be on; or
                something runs there and it is off.
        """
        async with self._change(name):
            node = self._known(name)
            if node.draining:
                raise Conflict(f"node {name!r} drains", "It leaves with the last task that runs there.")
            if node.spec.found:
                raise Conflict(f"node {name!r} is found by its engine", "Switch it where it comes from.")
            if not on and not node.kept_off:
                self._check_another(name, by)
            if on and not by_hand and not node.up and node.power is PowerState.ON:
                hint = f"It is used again when it answers; `headway node on {name} --by-hand` starts its agent anew."
                raise Conflict(f"node {name!r} is down", hint)
            runs = len(self._recorder.core.state.runs_on(node.slots))
            if by_hand and not on and runs:
                hint = "Without --by-hand it goes off when they have ended."
                raise Conflict(f"{runs} attempts run on node {name!r}", hint)
            counted = await self._recorder.request(lambda now: [NodeSwitched(now, name, on, by_hand=by_hand)], by=by)
            known = self._recorder.core.state.nodes.get(name, node)
            words = "down" if not known.up and known.power is PowerState.ON else POWER_WORDS[known.power]
            return wire.NodeChange(
                *(name, bool(counted)),
                unfit=await self._unfit(),
                power=words,
                trouble="" if known.trouble is None else known.trouble.detail,
            )

    # Internal

    async def _let_in(self, new: wire.NewNode, places: Sequence[str]) -> wire.NodeChange:
        """Let the engine of a site find a node again."""
        if len(places) > 1:
            detail = f"nodes named {new.name!r} were drained or removed at sites {', '.join(places)}"
            raise Conflict(detail, "Name the site: `headway node add NAME --site SITE`.")
        for field, value, default in _own_terms(new):
            if value != default:
                said = f"none: the engine of site {places[0]!r} finds it, and says that"
                raise InvalidInput(f"{field} of node {new.name!r}", value, said)
        changed = await self._sites.let_in(places[0], new.name, new.slots)
        return wire.NodeChange(new.name, changed, awaited=True)

    @asynccontextmanager
    async def _change(self, name: str) -> AsyncIterator[None]:
        """Make one change at a time; if the last node of this name is still ending, wait for that first."""
        async with self._one:
            if (leaving := self._leaving.get(name)) is not None:
                await asyncio.wait((leaving,))
            yield

    def _known(self, name: str) -> NodeView:
        nodes = self._recorder.core.state.nodes
        if name not in nodes:
            raise NoSuchNode(name, nodes)
        return nodes[name]

    def _check_same(self, known: NodeView, spec: NodeSpec, by: str) -> None:
        """Check that the node with this name is the one that is asked for."""
        if known.spec == spec and not known.draining:
            return
        detail = f"the name {spec.name!r} is taken by a node " + (
            "that drains" if known.draining else f"of other terms: slots {known.spec.slots}, speed {known.spec.speed:g}"
        )
        self._recorder.incident("name_taken", spec.name, detail, by)
        hint = "Wait until it has left" if known.draining else "`headway node resize` changes its slots"
        raise Conflict(detail, f"{hint}; or choose another name.")

    def _check_another(self, name: str, by: str) -> None:
        """Check that slots remain without this node; a rented one may be given back all the same."""
        if name in self._recorder.core.state.market.nodes:
            return
        others = [node for node in self._recorder.core.state.nodes.values() if node.spec.name != name]
        if all(node.draining or node.kept_off for node in others):
            detail = f"node {name!r} is the last one" + (", for all others drain or are kept off" if others else "")
            self._recorder.incident("last_node", name, detail, by)
            raise Conflict(detail, "Add another first: `headway node add NAME --slots N`.")

    async def _unfit(self) -> tuple[JobId, ...]:
        """Jobs that wait, or will once their preempted runs have ended, and can never run on the cluster as it is.

        Others are served meanwhile.
        """
        found: list[JobId] = []
        ids = tuple(self._recorder.core.state.jobs)
        for first in range(0, len(ids), JOBS_LOOKED_AT_ONCE):
            if first:
                await asyncio.sleep(0)
            core = self._recorder.core
            extent, jobs = core.extent(), map(core.state.jobs.get, ids[first : first + JOBS_LOOKED_AT_ONCE])
            wide = (job for job in jobs if job is not None and job.kind is not Kind.BAG and not job.cancelled)
            waiting = (job for job in wide if job.all_ready or any(attempt.ending for attempt in job.attempts.values()))
            found += (job.id for job in waiting if extent.flaw_of_fit(job.spec) is not None)
        return tuple(found)


def _own_terms(new: wire.NewNode) -> tuple[tuple[str, object, object], ...]:
    """The terms that only a node can have which somebody adds: field, value, and the value if nobody says anything."""
    return (
        *(("speed", new.speed, 1.0), ("cores", new.cores, None)),
        *(("kind", new.kind, ""), ("lease", new.lease, None)),
    )


def _is_found_one(known: NodeSpec, new: wire.NewNode) -> bool:
    """Whether a node that an engine found is the one that somebody asks for, as far as they say."""
    wanted = new.site in (None, known.site) and new.slots in (None, known.slots)
    return known.found and wanted and all(value == default for _, value, default in _own_terms(new))


def changes_since(
    known: Mapping[str, NodeView],
    nodes: Iterable[NodeSpec],
    now: Instant,
    absent: Collection[str] = (),
    closed: Collection[str] = (),
) -> Iterator[Event]:
    """The events that bring the core's nodes to exactly those that are in service now.

    A node of another size is resized; with any other difference it becomes another node. A node that was draining
    continues to drain, unless no other node would be left.

    Args:
        known: the core's nodes; they change as the events are fed.
        absent: names of nodes that are in service and cannot be used now.
        closed: names of those that take nothing new now.
    """
    wanted = {node.name: node for node in nodes}
    for name, was in list(known.items()):
        if name not in wanted or replace(wanted[name], slots=was.spec.slots) != was.spec:
            yield NodeLeft(now, name)
    stays = any(name not in known or not known[name].draining for name in wanted)
    for name, node in wanted.items():
        view = known.get(name)
        if view is None:
            yield NodeJoined(now, node)
            if name in absent:
                yield NodeDown(now, name)
            elif name in closed:
                yield NodeClosed(now, name)
            continue
        if view.draining and not stays:
            yield NodeJoined(now, view.spec)
        if view.spec != node:
            yield NodeResized(now, name, node.slots)
        if known[name].up and name in absent:
            yield NodeDown(now, name)
        elif not known[name].up and known[name].power is PowerState.ON and name not in absent:
            yield NodeUp(now, name)
        if known[name].up and (name in closed) != known[name].closed:
            yield (NodeClosed if name in closed else NodeOpened)(now, name)
    leased = tuple(name for name, view in known.items() if view.spec.lease is not None)
    if leased:
        yield NodesHeard(now, leased)
