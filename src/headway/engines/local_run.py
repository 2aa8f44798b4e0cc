"""What an agent keeps of its connections, its slots and what runs on them."""

from __future__ import annotations

import select
import socket
import time

from headway.engines.local_frames import Launch, Shelf, Splitter
from headway.model.events import Outcome

_TICK_NS = 20_000_000
"""The clock of files goes by ticks of the kernel, so that it is this much behind at most (nanoseconds)."""

_CHUNK = 1 << 16


class Channel:
    """A socket that never blocks: what does not fit is sent when it does.

    Attributes:
        closed: the other side is gone, everything it sent has been received.
        drained: there was nothing to receive the last time.
    """

    __slots__ = ("_epoll", "_rest", "_splitter", "closed", "drained", "socket")

    def __init__(self, connected: socket.socket, epoll: select.epoll) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.closed = False
        self.drained = False
        self._epoll = epoll
        self._rest = bytearray()
        self._splitter = Splitter()
        epoll.register(connected, select.EPOLLIN)

    def receive(self) -> list[bytes]:
        """Bodies of frames that have arrived."""
        self.drained = False
        try:
            chunk = self.socket.recv(_CHUNK)
        except BlockingIOError:
            self.drained = True
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self.closed = True
        return self._splitter.feed(chunk)

    def send(self, sent: bytes) -> None:
        """Send, now or later. If nobody is there to receive, that is seen by who reads."""
        if not self._rest:
            try:
                done = self.socket.send(sent)
            except BlockingIOError:
                done = 0
            except OSError:
                return
            if done == len(sent):
                return
            sent = sent[done:]
            self._epoll.modify(self.socket, select.EPOLLIN | select.EPOLLOUT)
        self._rest += sent

    def resume(self) -> None:
        """Send more of what did not fit."""
        try:
            del self._rest[: self.socket.send(self._rest)]
        except BlockingIOError:
            return
        except OSError:
            self._rest.clear()
        if not self._rest:
            self._epoll.modify(self.socket, select.EPOLLIN)

    def close(self) -> None:
        """Be done with it."""
        self._epoll.unregister(self.socket)
        self.socket.close()


class Slot:
    """A slot and its process.

    Attributes:
        run: what holds the slot.
        dying: its process has been killed, or is to be replaced.
        used: its process has run something.
        functions: what its process holds.
    """

    __slots__ = ("channel", "dying", "functions", "number", "pid", "run", "stem", "used")

    def __init__(self, number: int, stem: str) -> None:
        self.number = number
        self.stem = stem
        self.run: Run | None = None
        self.renew(0, None)

    def renew(self, pid: int, channel: Channel | None) -> None:
        """Have another process, or none (0)."""
        self.pid = pid
        self.channel = channel
        self.dying = pid == 0
        self.used = False
        self.functions: Shelf[bool] = Shelf()


class Run:
    """A member of an attempt on this node.

    Attributes:
        slots: those it holds or waits for; its process is that of the first.
        pickled: the function it calls.
        body: its `Launch` as it came.
        ready: has its slots, waits for `Go` (gangs).
        since: when it was handed to its slot's process; None until then.
        started: it runs, and does not fetch its inputs any more.
        saved: when a command changed its checkpoint last, in nanoseconds of the clock of files.
        until: when its time is over; None: never.
        verdict: why it is being killed.
    """

    __slots__ = (
        *("body", "key", "launch", "pickled", "ready", "saved", "since", "slots", "started", "until", "verdict"),
    )

    def __init__(self, launch: Launch, body: bytes, slots: list[Slot], pickled: bytes | None) -> None:
        self.key = (launch.job, launch.task, launch.attempt)
        self.launch = launch
        self.body = body
        self.slots = slots
        self.pickled = pickled
        self.ready = False
        self.since: float | None = None
        self.started = False
        self.saved = time.time_ns() - _TICK_NS
        self.until: float | None = None
        self.verdict: tuple[Outcome, str] | None = None
