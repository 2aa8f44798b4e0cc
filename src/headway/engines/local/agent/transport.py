"""How an agent and its drivers reach each other: what the agent needs of a connection, and the Unix socket.

The agent waits with epoll, so whatever carries frames has a descriptor that can be read when there is something to
receive. It knows nothing else of the way: a test has a door in memory, an agent on another machine may have TCP.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from headway.engines.local.agent.run import Channel
from headway.engines.local.shared.frames import Body

if TYPE_CHECKING:
    import socket


class Line(Protocol):
    """A connection to a driver. It never blocks, and carries whole frames in order, or ends.

    Attributes:
        closed: the other side is gone, and everything that it sent has been received.
    """

    closed: bool

    def fileno(self) -> int:
        """What epoll waits for; it is registered."""
        ...

    def receive(self) -> Sequence[Body]:
        """Bodies of frames that have arrived."""
        ...

    def send(self, sent: Body) -> None:
        """Send frames, now or later. If the other side is gone, `closed` says so after the next `receive`."""
        ...

    def resume(self) -> None:
        """Send more of what did not fit: the descriptor can be written to."""
        ...

    def drop(self) -> None:
        """In a process that was just forked: close what this process has of it; the connection stays."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class Door(Protocol):
    """Where drivers connect."""

    def fileno(self) -> int:
        """What epoll waits for; the agent registers it."""
        ...

    def accept(self, epoll: select.epoll) -> Line | None:
        """The next driver that connects, registered for reading; None if none waits."""
        ...

    def close(self) -> None:
        """Let nobody in any more; also in a process that was just forked."""
        ...


class SocketDoor:
    """A Unix socket in the node's folder, on which the engine listened before it started the agent."""

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener

    def fileno(self) -> int:
        """That of the socket."""
        return self._listener.fileno()

    def accept(self, epoll: select.epoll) -> Line | None:
        """A channel of its own for each driver."""
        try:
            connected, _ = self._listener.accept()
        except BlockingIOError:
            return None
        return Channel(connected, epoll)

    def close(self) -> None:
        """Close the socket."""
        self._listener.close()
