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
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Protocol

from headway.core.scheduler import Scheduler
from headway.core.switching import settings_for
from headway.engines import base
from headway.errors import HeadwayError, Unavailable, in_short
from headway.live.store.journal import NotNow
from headway.live.troubles import said
from headway.model.actions import SwitchOff, SwitchOn
from headway.model.events import Event, Incident, NodeOff, NodeOn, SwitchFailed
from headway.model.instant import Duration, Instant, to_seconds
from headway.model.power import PowerState, Switching
from headway.model.snapshot import NodeView

log = logging.getLogger(__name__)

RECORD_AGAIN: Final = 1.0
"""Seconds after which it is tried again to record what has happened, while the journal takes nothing."""

PRINTED_MAX: Final = 64 << 10
"""Bytes of what a command prints that are kept: its last ones."""

PRINTED_LINES: Final = 20
"""So many of its last lines are logged."""

LINE_MAX: Final = 300
"""Characters of its last line in an incident."""


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
            if not action.by_hand:
                await run_command(settings.off_command, name, settings.limit)
        except NotSwitched as error:
            detail, serves = str(error.args[0]), not action.by_hand
            if serves:
                try:
                    await self._within(settings.limit, self._engine.join(node.spec), "started")
                except NotSwitched as worse:
                    detail, serves = f"{detail}; and it is not in service again: {worse.args[0]}", False
            await self._failed(action, detail, serves=serves)
            return
        log.info("node %s is off", name)
        await self._record(lambda now: [NodeOff(now, name, action.switch)])

    async def _on(self, action: SwitchOn) -> None:
        name, node = action.node, self._node(action.node)
        if node is None:
            return
        settings = self._settings(node)
        try:
            if action.by_hand:  # whatever there was
                await self._within(settings.limit, self._engine.leave(name), "ended")
            else:
                await run_command(settings.on_command, name, settings.limit)
            node = self._node(name)
            if node is None:
                return
            await self._within(settings.limit, self._engine.join(node.spec), "started")
        except NotSwitched as error:
            await self._failed(action, str(error.args[0]), serves=False)
            return
        if self._node(name) is None:  # it has left meanwhile
            await self._engine.leave(name)
            return
        log.info("node %s is on", name)
        await self._record(lambda now: [NodeOn(now, name, action.switch)])

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
        await self._record(events)

    async def _record(self, events: Callable[[Instant], Sequence[Event]]) -> None:
        """Record what has happened. It has happened, so this is tried until it is done."""
        while True:
            try:
                await self._recorder.request(events)
            except Unavailable:
                return  # the server ends; at its next start it looks again
            except NotNow:
                await asyncio.sleep(RECORD_AGAIN)
            else:
                return


async def run_command(command: Sequence[str], name: str, limit: Duration) -> None:
    """Run a command with a node's name as its last argument, and wait until it has ended; no command is no error.

    It has a session of its own, which is killed with it. What it prints is logged.

    Raises:
        NotSwitched: it cannot be started, ends with another exit code than 0, or takes longer than the limit.
    """
    if not command:
        return
    try:
        child = await _start((*command, name))
    except (OSError, ValueError) as error:
        raise NotSwitched(f"{command[0]} cannot be run: {error}") from error
    assert child.stdout is not None
    printed = bytearray()

    async def read() -> None:
        assert child.stdout is not None
        while part := await child.stdout.read(PRINTED_MAX):
            printed.extend(part)
            del printed[:-PRINTED_MAX]

    reading = asyncio.create_task(read())
    code: int | None = None
    try:
        async with asyncio.timeout(to_seconds(limit)):
            code = await child.wait()
            await asyncio.wait((reading,), timeout=1.0)  # what it has left running may keep the pipe open
    except TimeoutError:
        pass
    finally:
        if code is None:
            await _kill(child)
        reading.cancel()
    lines = [line.strip() for line in printed.decode(errors="replace").splitlines() if line.strip()]
    told = lines if code == 0 else lines[:-1]  # else the last one is told with what is wrong
    for line in told[-PRINTED_LINES:]:
        log.info("%s %s: %s", command[0], name, line)
    last = f": {lines[-1][-LINE_MAX:]}" if lines else ""
    if code is None:
        raise NotSwitched(f"{command[0]} has not ended within {to_seconds(limit):g} s{last}")
    if code:
        raise NotSwitched(f"{command[0]} ended with exit code {code}{last}")


async def _start(words: Sequence[str]) -> asyncio.subprocess.Process:
    """Start a command. If that is cancelled, nothing of it is left running."""
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait((starting,))
        if starting.exception() is None:
            await _kill(starting.result())
        raise


async def _kill(child: asyncio.subprocess.Process) -> None:
    """End a command with all that it has started in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()
