"""One node as its driver sees it, wherever its agent runs: the connection to the agent, and what is sent over it."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar, Protocol, cast

from headway.engines.base import AttemptKey
from headway.engines.local.shared.frames import (
    VERSION,
    Acknowledge,
    Body,
    CheckpointTaken,
    FileWanted,
    HasDriver,
    Hello,
    Limited,
    MemberEnded,
    MemberSaved,
    MembersRefused,
    MemberStalled,
    MemberStarted,
    MemberUnreadable,
    Pong,
    ReadPart,
    Ready,
    Resize,
    Shelf,
    Splitter,
    ToDriver,
    Welcome,
    decode_ending,
    frame,
    joined,
    to_driver_decoder,
)
from headway.errors import NameTaken
from headway.model.node import NodeSpec

log = logging.getLogger(__name__)


class NodeOwner(Protocol):
    """Receives what a node reports."""

    def on_ended(self, node: AgentNode, message: MemberEnded) -> None:
        """A member has ended."""

    def on_started(self, node: AgentNode, message: MemberStarted) -> None:
        """A member runs."""

    def on_saved(self, node: AgentNode, message: MemberSaved) -> None:
        """A member has saved a checkpoint."""

    def on_unreadable(self, message: MemberUnreadable) -> None:
        """A member has a checkpoint that cannot be read."""

    def on_stalled(self, node: AgentNode, message: MemberStalled) -> None:
        """A member waits for room on the disk, or goes on."""

    def on_refused(self, node: AgentNode, message: MembersRefused) -> None:
        """The members of an attempt cannot change to a tier."""

    def on_limited(self, node: AgentNode, message: Limited) -> None:
        """Processes in the background of a node cannot leave it."""

    def on_ready(self, node: AgentNode, message: Ready) -> None:
        """A member of a gang can start."""

    def on_lost(self, node: AgentNode, detail: str) -> None:
        """The agent is dead or silent."""

    def on_wanted(self, node: AgentNode, name: str) -> None:
        """The node needs a file that the server keeps."""

    def on_answer(self, node: AgentNode, answer: ReadPart | CheckpointTaken) -> None:
        """A piece of a file of the node that was asked for, or what became of a checkpoint that was sent there."""


class AgentNode(ABC):
    """A node with an agent.

    Attributes:
        up: attempts can be launched on it.
        lost: set when its agent is dead or silent, until it is attached again.
        pid: the agent's process; 0 before the first.
        line: the connection to its agent.
        lease: seconds of silence after which it is given up.
        missed: pings in a row without an answer.
        heard: it has answered since the last check.
        functions: the functions that the agent has.
        owner: receives what it reports.
        uploads: the folder there of the files that the server keeps; empty: there is none.
    """

    ends: ClassVar[str] = "its process died"
    """What the end of its line means."""

    def __init__(self, spec: NodeSpec, owner: NodeOwner, lease: float, uploads: str = "") -> None:
        self.spec = spec
        self.up = False
        self.lost = asyncio.Event()
        self.pid = 0
        self.missed = 0
        self.heard = False
        self.functions: Shelf[bool] = Shelf()
        self.owner = owner
        self.lease = lease
        self.uploads = uploads
        self.line: AgentLine | None = None
        self._loop = asyncio.get_running_loop()
        self._outbox: list[Body] = []
        self._acknowledged: list[AttemptKey] = []
        self._flushing = False
        self._why = ""

    @abstractmethod
    def _abandon(self) -> None:
        """End what can be ended of an agent that is given up: its attempts count as lost."""

    async def _greet(self, line: AgentLine, secret: bytes, patience: float) -> Welcome | None:
        """Introduce this driver over a line that has its transport; None if there is no answer.

        Raises:
            NameTaken: the agent has another driver.
        """
        self.line = line
        line.transport.write(frame(Hello(secret, VERSION, self.spec.reports_start)))
        try:
            async with asyncio.timeout(patience):  # unlike `wait_for`, it does not lose a cancellation in Python 3.11
                return await line.welcome
        except (TimeoutError, ConnectionError):
            line.transport.abort()
            return None

    def _admit(self, welcome: Welcome) -> None:
        """Take the node into service."""
        self.pid = welcome.pid
        self.missed = 0
        self.heard = True
        self.functions = Shelf()
        self._outbox.clear()
        self._acknowledged.clear()
        self._why = ""
        self.lost.clear()
        self.up = True
        if welcome.slots != self.spec.slots:
            self.send(frame(Resize(self.spec.slots, False)))

    def resize(self, slots: int, *, at_once: bool) -> None:
        """Have more or fewer slots, from now on or once it is attached."""
        self.spec = replace(self.spec, slots=slots)
        if self.up:
            self.send(frame(Resize(slots, at_once)))

    def close(self) -> None:
        """Its line is closed: the agent is dead, or useless."""
        if self.up:
            self.up = False
            self._abandon()
            self.lost.set()
            self.owner.on_lost(self, self._why or self.ends)

    def give_up(self, why: str) -> None:
        """It is silent, or sends nonsense: end it, because its attempts count as lost."""
        self._why = why
        self._abandon()
        if self.line:
            self.line.transport.abort()

    def send(self, *sent: Body) -> None:
        """Send a frame, in one part or several, together with all others of this turn of the loop."""
        self._outbox.extend(sent)
        self._flush_soon()

    def acknowledge(self, key: AttemptKey) -> None:
        """Let the agent forget an end. The message is sent with the rest of this turn."""
        self._acknowledged.append(key)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self.up and self.line:
            if self._acknowledged:
                self._outbox.append(frame(Acknowledge(self._acknowledged)))
            for sent in joined(self._outbox):
                self.line.transport.write(sent)
        self._acknowledged.clear()
        self._outbox.clear()


class AgentLine(asyncio.Protocol):
    """One connection to an agent."""

    transport: asyncio.Transport

    def __init__(self, node: AgentNode) -> None:
        self.welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._node = node
        self._owner = node.owner
        self._splitter = Splitter()
        self._decode = to_driver_decoder().decode

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It begins."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: Body) -> None:
        """Handle what the agent says."""
        if self.welcome.cancelled():  # nothing waits for the answer any more: the server ends, or it came too late
            self.transport.abort()
            return
        try:
            for body in self._splitter.feed(data):
                self._take(self._decode(body))
        except Exception as error:  # whatever an agent sends affects its node at most
            log.exception("node %s: its agent sent what cannot be taken in", self._node.spec.name)
            self.fail(f"its agent sent what cannot be taken in: {type(error).__name__}: {error}")

    def fail(self, why: str) -> None:
        """What comes over it cannot be taken in."""
        self.transport.abort()
        if self._node.line is self:
            self._node.give_up(why)

    def _take(self, message: ToDriver) -> None:
        node = self._node
        match message:
            case MemberEnded() as message:
                self._owner.on_ended(node, message)
            case MemberStarted() as message:
                self._owner.on_started(node, message)
            case MemberSaved() as message:
                self._owner.on_saved(node, message)
            case MemberUnreadable() as message:
                self._owner.on_unreadable(message)
            case MemberStalled() as message:
                self._owner.on_stalled(node, message)
            case MembersRefused() as message:
                self._owner.on_refused(node, message)
            case Limited() as message:
                self._owner.on_limited(node, message)
            case Ready() as message:
                self._owner.on_ready(node, message)
            case FileWanted():
                self._owner.on_wanted(node, message.name)
            case ReadPart() | CheckpointTaken() as message:
                self._owner.on_answer(node, message)
            case Pong():
                node.missed = 0
                node.heard = True
            case Welcome() as message:
                for ended in message.ended:
                    decode_ending(ended.ending)  # the code that handles them can then rely on it
                self.welcome.set_result(message)
            case HasDriver():
                self.welcome.set_exception(NameTaken(node.spec.name, "a process that has another driver"))

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended, and with it the node, if it was the node's line."""
        if not self.welcome.done():
            self.welcome.set_exception(ConnectionResetError("the agent hung up"))
        elif self._node.line is self:
            self._node.close()
