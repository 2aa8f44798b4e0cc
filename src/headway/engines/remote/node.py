"""A node of another machine, as the driver sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from headway.engines.local.driver.attached import AgentLine, AgentNode, NodeOwner
from headway.engines.local.shared.frames import VERSION, Stop, Welcome, frame
from headway.errors import EngineError
from headway.model.node import NodeSpec

ATTACH_SECONDS = 30.0
"""So long an agent may take to start, or to answer."""


class AgentAccess(msgspec.Struct, frozen=True):
    """What a line to an agent begins with.

    Attributes:
        secret: what the agent demands.
        uploads: folders of the files of the server, by the folder of the driver's machine that the agent uses in place;
            empty: it uses none. One that uses another is ended, and another agent started.
    """

    secret: bytes
    uploads: Mapping[str, str]


class Way(Protocol):
    """How the agent of one node is reached."""

    async def open(self, line: AgentLine, spec: NodeSpec, *, fresh: bool) -> AgentAccess:
        """Find or start the agent, and connect the line to it (`line.connection_made`).

        Args:
            fresh: whatever runs on the node is ended first.

        Raises:
            NameTaken: another server has the node.
            EngineError: it cannot be reached, or its agent does not start.
        """
        ...

    async def end(self) -> None:
        """End everything on the node, if it can be reached."""
        ...

    async def drained(self) -> None:
        """Return when most of what was written has been sent."""
        ...


class RemoteNode(AgentNode):
    """A node of another machine.

    Attributes:
        way: how its agent is reached.
        shares: what runs there uses the files of the driver's machine in place, since it was attached.
    """

    ends = "the connection to it was closed"

    def __init__(self, spec: NodeSpec, owner: NodeOwner, lease: float, way: Way) -> None:
        super().__init__(spec, owner, lease)
        self.way = way
        self.shares = False

    async def attach(self, *, fresh: bool) -> Welcome:
        """Be the driver of the node's agent.

        Args:
            fresh: it runs nothing that it ran before.

        Raises:
            NameTaken: it has another driver.
            EngineError: it cannot be attached.
        """
        for again in (False, True):
            line = AgentLine(self)
            opened = await self.way.open(line, self.spec, fresh=fresh or again)
            welcome = await self._greet(line, opened.secret, ATTACH_SECONDS)
            if welcome is not None and _is_wanted(welcome, opened):
                self.uploads, self.shares = opened.uploads[welcome.common], bool(welcome.common)
                self._admit(welcome)
                return welcome
            line.transport.abort()  # its agent hangs, is of another version, or began when files were shared otherwise
        raise EngineError(f"node {self.spec.name!r} does not start: its agent does not answer")

    def _abandon(self) -> None:
        """Its agent is ended when the node is attached again, or by itself when it hears of no driver for long."""

    async def stop(self) -> None:
        """End everything of the node. One that cannot be reached ends by itself, as it hears of no driver."""
        if self.up and self.line is not None:
            self.up = False
            self.line.transport.write(frame(Stop()))
            await self.way.drained()
            await self.way.end()
        self.let_go()

    def let_go(self) -> None:
        """Stop being its driver."""
        self.up = False
        if self.line is not None:
            self.line.transport.abort()


def _is_wanted(welcome: Welcome, opened: AgentAccess) -> bool:
    return welcome.version == VERSION and not welcome.user and welcome.common in opened.uploads
