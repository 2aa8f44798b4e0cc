"""Switches nodes off and on, as the core wants it: the engine's part of a node first, or last, and the site's command.

A node goes off: the engine ends its agent, then the site's `off_command` is run. It comes on: `on_command` is run, then
the engine starts an agent. Commands are children of this process, with a limit of time. Nothing here is waited for by
anything else. What fails is reported to the core, which tries it again later (`headway.core.switching`), and is an
incident with the last line that the command has printed. What cannot be switched off is taken into service again.

What an operator has switched by hand needs no command, and ends what is under way.

After a crash of this process the next start does again what was under way, so commands must be able to be repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

from headway.core.scheduler import Scheduler
from headway.core.switching import settings_for
from headway.engines import base
from headway.errors import HeadwayError, in_short
from headway.live.commands import CommandFailed, run_command
from headway.live.happened import record
from headway.live.troubles import said
from headway.model.actions import SwitchOff, SwitchOn
from headway.model.events import Event, Incident, NodeOff, NodeOn, SwitchFailed
from headway.model.instant import Duration, Instant, to_seconds
from headway.model.power import PowerState, Switching
from headway.model.seen import NodeView

log = logging.getLogger(__name__)


class NotSwitched(HeadwayError):
    """A node could not be switched."""


class NeededBySwitches(Protocol):
    """What is needed of the driver."""

    @property
    def core(self) -> Scheduler:
        """The scheduler, for reading."""

    async def request(self, events: Callable[[Instant], Sequence[Event]], *, by: str = "") -> int:
        """Record events."""

    def incident(self, kind: str, subject: str, detail: str, by: str = "") -> None:
        """Record something that an operator should know."""


class Switches:
    """Performs what the core wants of the power of nodes: one thing after the other for each, nodes side by side.

    Args:
        recorder: records what came of it.
        engine: runs the nodes.
    """

    def __init__(self, recorder: NeededBySwitches, engine: base.Engine) -> None:
        self._recorder = recorder
        self._engine = engine
        self._under_way: dict[str, asyncio.Task[None]] = {}  # by node the last one; it waits for the one before
        self._tasks: set[asyncio.Task[None]] = set()

    def perform(self, action: SwitchOff | SwitchOn) -> None:
        """Begin to switch a node, when what is under way there is over; by hand, that is given up."""
        before = self._under_way.get(action.node)
        if before is not None and action.by_hand:
            before.cancel()
        task = asyncio.get_running_loop().create_task(self._one_by_one(before, action))
        self._under_way[action.node] = task
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._is_over(action.node, task))

    def go_on(self, but: Collection[str]) -> None:
        """After a start: do again what was under way, but for these nodes, of which something has been asked since."""
        dark = self._recorder.core.state.dark
        for name, node in [(name, node) for name, node in dark.items() if name not in but and node.is_switched]:
            kind = SwitchOn if node.power is PowerState.COMING_ON else SwitchOff
            self.perform(kind(name, node.switch, node.by_hand))

    async def close(self) -> None:
        """Stop: what is under way is done again after the next start."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_over(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._under_way.get(name) is task:
            del self._under_way[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the power of node %s is not known", name, exc_info=error)
            self._recorder.incident("node_not_switched", name, f"{said(error)}, which was not foreseen")

    async def _one_by_one(self, before: asyncio.Task[None] | None, action: SwitchOff | SwitchOn) -> None:
        if before is not None:
            await asyncio.wait((before,))
        if not self._is_wanted(action):
            return
        try:
            if isinstance(action, SwitchOff):
                await self._off(action)
            else:
                await self._on(action)
        except Exception as error:
            log.exception("it is not known how far node %s is switched", action.node)
            await self._failed(action, f"{said(error)}, which was not foreseen", serves=False)

    async def _off(self, action: SwitchOff) -> None:
        name, node = action.node, self._node(action.node)
        if node is None:
            return
        settings = self._settings(node)
        try:
            await self._within(settings.limit, self._engine.leave(name), "ended")
            if settings.off_command and not action.by_hand:
                await run_command((*settings.off_command, name), name, settings.limit)
        except (NotSwitched, CommandFailed) as error:
            detail, serves = str(error.args[0]), not action.by_hand
            if serves:
                try:
                    await self._within(settings.limit, self._engine.join(node.spec), "started")
                except NotSwitched as worse:
                    detail, serves = f"{detail}; and it is not in service again: {worse.args[0]}", False
            await self._failed(action, detail, serves=serves)
            return
        log.info("node %s is off", name)
        await record(self._recorder, lambda now: [NodeOff(now, name, action.switch)])

    async def _on(self, action: SwitchOn) -> None:
        name, node = action.node, self._node(action.node)
        if node is None:
            return
        settings = self._settings(node)
        try:
            if action.by_hand:  # whatever there was
                await self._within(settings.limit, self._engine.leave(name), "ended")
            elif settings.on_command:
                await run_command((*settings.on_command, name), name, settings.limit)
            node = self._node(name)
            if node is None:
                return
            await self._within(settings.limit, self._engine.join(node.spec), "started")
        except (NotSwitched, CommandFailed) as error:
            await self._failed(action, str(error.args[0]), serves=False)
            return
        if self._node(name) is None:  # it has left meanwhile
            await self._engine.leave(name)
            return
        log.info("node %s is on", name)
        await record(self._recorder, lambda now: [NodeOn(now, name, action.switch)])

    async def _within(self, limit: Duration, step: Awaitable[None], what: str) -> None:
        """Let the engine start or end a node's agent.

        Args:
            what: what the agent has done then: `started` or `ended`.

        Raises:
            NotSwitched: it cannot, or has not within this time.
        """
        try:
            async with asyncio.timeout(to_seconds(limit)):
                await step
        except TimeoutError:
            raise NotSwitched(f"its agent has not {what} within {to_seconds(limit):g} s") from None
        except HeadwayError as error:
            raise NotSwitched(str(error.args[0])) from error

    def _is_wanted(self, action: SwitchOff | SwitchOn) -> bool:
        """Whether an action is the last one of its node."""
        node = self._node(action.node)
        return node is not None and node.is_switched and node.switch == action.switch

    def _node(self, name: str) -> NodeView | None:
        return self._recorder.core.state.nodes.get(name)

    def _settings(self, node: NodeView) -> Switching:
        return settings_for(self._recorder.core.state, node)

    async def _failed(self, action: SwitchOff | SwitchOn, detail: str, *, serves: bool) -> None:
        """Record that a node could not be switched, and tell an operator."""
        if not self._is_wanted(action):
            return
        name = action.node
        told = in_short(f"{detail}; {'it is in service' if serves else 'it is down'}, and it is tried again later")
        why, is_off = in_short(detail), isinstance(action, SwitchOff)

        def events(now: Instant) -> list[Event]:
            failed = SwitchFailed(now, name, action.switch, serves=serves, detail=why)
            incident = Incident(now, "node_not_off", name, told) if is_off else Incident(now, "node_not_on", name, told)
            return [failed, incident]

        log.warning("%s: %s: %s", "node_not_off" if is_off else "node_not_on", name, told)
        await record(self._recorder, events)
