"""Switches nodes off and on, as the core wants it: the engine's part of a node first, or last, and the site's command.

A node goes off: the engine ends its agent, then the site's `off_command` is run. It comes on: `on_command` is run, then
the engine starts an agent. Commands are children of this process, with a limit of time. Nothing here is waited for by
anything else. What fails is an incident with the last line that the command has printed:

- A node that cannot be switched off is taken into service again.
- A node that cannot be switched on is down, and it is tried again and again until it comes.

After a crash of this process the next start does again what was under way, so commands must be able to be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from headway.core.scheduler import Scheduler
from headway.engines import base
from headway.errors import HeadwayError, Unavailable, in_short
from headway.live.store.journal import NotNow
from headway.live.troubles import said
from headway.model.actions import SwitchOff, SwitchOn
from headway.model.events import Event, NodeDown, NodeOff, NodeOn, NodeUp
from headway.model.instant import SECOND, Duration, Instant, to_seconds
from headway.model.node import NodeSpec
from headway.model.power import AT_ONCE, PowerState, Switching, settings_of

log = logging.getLogger(__name__)

RETRY: Final[Duration] = 60 * SECOND
"""A node that has not come on is tried again after this time, or after the limit of its site if that is shorter."""

RECORD_AGAIN: Final = 1.0
"""Seconds after which it is tried again to record what has happened, while the journal takes nothing."""

PRINTED_MAX: Final = 64 << 10
"""Bytes of what a command prints that are kept: its last ones."""

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
        """Begin to switch a node, when what is under way there is over."""
        before = self._under_way.get(action.node)
        task = asyncio.get_running_loop().create_task(self._one_by_one(before, action))
        self._under_way[action.node] = task
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._is_over(action.node, task))

    def go_on(self, but: Collection[str]) -> None:
        """After a start: do again what was under way, but for these nodes, of which something has been asked since."""
        dark = self._recorder.core.state.dark
        for name, node in [(name, node) for name, node in dark.items() if name not in but]:
            if node.power is PowerState.COMING_ON:
                self.perform(SwitchOn(name))
            elif node.power is PowerState.GOING_OFF and not node.waits_to_go_off:
                self.perform(SwitchOff(name))

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
        if isinstance(action, SwitchOff):
            await self._off(action.node)
        else:
            await self._on(action.node)

    async def _off(self, name: str) -> None:
        spec = self._spec(name)
        if spec is None:
            return
        settings = self._settings(spec)
        await self._engine.leave(name)
        try:
            await run_command(settings.off_command, name, settings.limit)
        except NotSwitched as error:
            self._incident("node_not_off", name, f"{error.args[0]}; it is taken into service again")
            try:
                await self._join(spec, settings.limit)
            except NotSwitched as worse:
                self._incident("node_not_on", name, f"{worse.args[0]}; it is down until it comes on")
                await self._record(lambda now: [NodeDown(now, name, excused=True)])
                await self._until_on(name)
                return
            await self._record(lambda now: [NodeOn(now, name)])
            return
        log.info("node %s is off", name)
        if not await self._record(lambda now: [NodeOff(now, name)]):
            await self._until_on(name)  # it was lost before it was off

    async def _on(self, name: str) -> None:
        try:
            if not await self._switch_on(name):
                return
        except NotSwitched as error:
            self._incident("node_not_on", name, f"{error.args[0]}; it is down until it comes on")
            await self._record(lambda now: [NodeDown(now, name, excused=True)])
            await self._until_on(name)
            return
        log.info("node %s is on", name)
        if not await self._record(lambda now: [NodeOn(now, name)]) and not self._is_up(name):
            await self._record(lambda now: [NodeUp(now, name)])

    async def _until_on(self, name: str) -> None:
        """Try until a node that is down comes on, or nobody wants it any more."""
        while (spec := self._spec(name)) is not None:
            await asyncio.sleep(to_seconds(min(RETRY, self._settings(spec).limit)))
            if self._is_up(name):
                return
            try:
                if await self._switch_on(name):
                    await self._record(lambda now: [NodeUp(now, name)])
                return
            except NotSwitched as error:
                log.warning("node %s still does not come on: %s", name, error.args[0])

    async def _switch_on(self, name: str) -> bool:
        """Switch a node on and take it into service; returns whether it is still wanted.

        Raises:
            NotSwitched: it does not come.
        """
        spec = self._spec(name)
        if spec is None:
            return False
        settings = self._settings(spec)
        await run_command(settings.on_command, name, settings.limit)
        spec = self._spec(name)
        if spec is None:
            return False
        await self._join(spec, settings.limit)
        if self._spec(name) is None:  # it has left meanwhile
            await self._engine.leave(name)
            return False
        return True

    async def _join(self, spec: NodeSpec, limit: Duration) -> None:
        """Let the engine start the node's agent."""
        try:
            async with asyncio.timeout(to_seconds(limit)):
                await self._engine.join(spec)
        except TimeoutError:
            raise NotSwitched(f"its agent has not started within {to_seconds(limit):g} s") from None
        except HeadwayError as error:
            raise NotSwitched(str(error.args[0])) from error

    def _is_up(self, name: str) -> bool:
        node = self._recorder.core.state.nodes.get(name)
        return node is None or node.up

    def _spec(self, name: str) -> NodeSpec | None:
        node = self._recorder.core.state.nodes.get(name)
        return None if node is None else node.spec

    def _settings(self, spec: NodeSpec) -> Switching:
        return settings_of(spec.site, self._recorder.core.state.switching) or AT_ONCE

    def _incident(self, kind: str, name: str, detail: str) -> None:
        log.warning("%s: %s: %s", kind, name, detail)
        self._recorder.incident(kind, name, in_short(detail))

    async def _record(self, events: Callable[[Instant], Sequence[Event]]) -> bool:
        """Record what has happened; returns whether it counted. It has happened, so this is tried until it is done."""
        while True:
            try:
                return bool(await self._recorder.request(events))
            except Unavailable:
                return True  # the server ends; at its next start it looks again
            except NotNow:
                await asyncio.sleep(RECORD_AGAIN)


async def run_command(command: Sequence[str], name: str, limit: Duration) -> None:
    """Run a command with a node's name as its last argument, and wait until it has ended; no command is no error.

    It has a session of its own, which is killed with it. What it prints is logged.

    Raises:
        NotSwitched: it cannot be started, ends with another exit code than 0, or takes longer than the limit.
    """
    if not command:
        return
    words = (*command, name)
    try:
        child = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
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
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
        reading.cancel()
    lines = [line.strip() for line in printed.decode(errors="replace").splitlines() if line.strip()]
    for line in lines[-20:]:
        log.info("%s %s: %s", command[0], name, line)
    last = f": {lines[-1][-LINE_MAX:]}" if lines else ""
    if code is None:
        raise NotSwitched(f"{command[0]} has not ended within {to_seconds(limit):g} s{last}")
    if code:
        raise NotSwitched(f"{command[0]} ended with exit code {code}{last}")
