"""What an agent knows of its connections, its slots and what runs on them."""

from __future__ import annotations

import _socket
import math
import os
import select
import time
from collections import deque
from contextlib import suppress
from itertools import islice

from msgspec import Raw, structs

from headway.engines.local.agent.streams import OutputStream
from headway.engines.local.shared import descriptors
from headway.engines.local.shared.frames import LARGE_BODY, SEND_BUFFER, Body, Launch, Shelf, Splitter
from headway.engines.local.shared.processes import children
from headway.engines.local.shared.seal import Reader
from headway.engines.local.shared.terms import Account, Terms
from headway.model.outcome import Outcome
from headway.model.tier import Tier

_TICK_NS = 20_000_000
"""The clock of files advances with the kernel's ticks, so it is at most this much behind (nanoseconds)."""

_CHUNK = 1 << 16
_LARGE_CHUNK = 1 << 20
_PARTS_MAX = 64
"""So many of the parts that wait are sent at once."""


class Channel:
    """A socket that never blocks: what does not fit now is sent later.

    Attributes:
        closed: the other side is gone, everything it sent has been received.
        drained: there was nothing to receive the last time.
    """

    __slots__ = ("_epoll", "_rest", "_splitter", "closed", "drained", "socket")

    def __init__(self, connected: _socket.socket, epoll: select.epoll) -> None:
        connected.setblocking(False)
        connected.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, SEND_BUFFER)
        self.socket = connected
        self.closed = False
        self.drained = False
        self._epoll = epoll
        self._rest = deque[memoryview]()
        self._splitter = Splitter()
        epoll.register(connected, select.EPOLLIN)

    def read(self, missing: int = 0) -> bytes:
        """Bytes that have arrived.

        Args:
            missing: so many are missing at least until something is complete.
        """
        self.drained = False
        try:
            chunk = self.socket.recv(_CHUNK if missing <= _CHUNK else _LARGE_CHUNK)
        except BlockingIOError:
            self.drained = True
            return b""
        except OSError:
            chunk = b""
        if not chunk:
            self.closed = True
        return chunk

    def receive(self) -> list[Body]:
        """Bodies of frames that have arrived."""
        return self._splitter.feed(self.read(self._splitter.missing))

    def send(self, sent: Body) -> None:
        """Send, now or later. If the other side is gone, the reader notices it."""
        if not self._rest:
            try:
                done = self.socket.send(sent)
            except BlockingIOError:
                done = 0
            except OSError:
                return
            if done == len(sent):
                return
            self._epoll.modify(self.socket, select.EPOLLIN | select.EPOLLOUT)
            self._rest.append(memoryview(sent)[done:])
        else:
            self._rest.append(memoryview(sent))

    def send_file(self, sent: Body, file: int) -> None:
        """Send a descriptor with a few bytes; without it if there is no room just now."""
        if not self._rest:
            with suppress(OSError):  # the other side is gone, or is slow to receive
                descriptors.send(self.socket, sent, file)
                return
        self.send(sent)

    def resume(self) -> None:
        """Send more of what did not fit."""
        try:
            sent = self.socket.sendmsg(list(islice(self._rest, _PARTS_MAX)))
        except BlockingIOError:
            return
        except OSError:
            sent = 0
            self._rest.clear()
        while self._rest and sent >= len(self._rest[0]):
            sent -= len(self._rest.popleft())
        if sent:
            self._rest[0] = self._rest[0][sent:]
        if not self._rest:
            self._epoll.modify(self.socket, select.EPOLLIN)

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self.socket.fileno()

    def drop(self) -> None:
        """In a process that was just forked: close the socket here; its parent goes on with it."""
        self.socket.close()

    def close(self) -> None:
        """Close the socket."""
        self._epoll.unregister(self.socket)
        self.socket.close()


class SlotPlace:
    """One of the two places of a slot, and its process.

    Attributes:
        number: of the slot.
        tier: which of the two it is.
        priority: the tier that its process is in; after an end in the background it stays there until it is needed.
        processors: the only ones that its process may use; none: any.
        run: the run that has the place.
        dying: its process has been killed, or is to be replaced; or it has none.
        keeps: its process runs nothing itself: it keeps a clean child ready, which does, and another one when that one
            has ended (`slot.slot`).
        keeping: where it says that there is another one, and sends the agent's end of the channel to that.
        clears: such a child has had its only call, and has not ended yet.
        exited: the run of such a child has ended it, with status 0.
        used: its process, or that child, has run something.
        family: of the calls that its process has run; None: it has run none, and is as it was forked.
        functions: the functions that its process has.
        reader: of what its process sends.
        account: of its process, if each launch names its own; empty: that of the agent, or of the node.
        terms: of its process.
        streams: what its process writes to stdout and stderr; none if it has no process.
    """

    __slots__ = (
        *(
            "account",
            "channel",
            "clears",
            "dying",
            "exited",
            "family",
            "functions",
            "keeping",
            "keeps",
            "number",
            "pid",
        ),
        *("priority", "processors", "reader", "run", "streams", "terms", "tier", "used", "word"),
    )

    def __init__(self, number: int, tier: Tier, word: str, terms: Terms) -> None:
        self.number = number
        self.tier = tier
        self.word = word
        self.account, self.terms = "", terms
        self.run: MemberRun | None = None
        self.renew(0, None, None, ())

    @property
    def stem(self) -> str:
        """Path of the folder for its runs, without its ending."""
        return os.path.join(self.terms.scratch, self.word)

    @property
    def is_free(self) -> bool:
        """Whether something can be run in it."""
        return self.run is None and not self.dying and not self.clears

    @property
    def runner(self) -> int:
        """The process that has the run: its own, or the child that this keeps."""
        return next(iter(children(self.pid)), self.pid) if self.keeps else self.pid

    def renew(
        self, pid: int, channel: Channel | None, keeping: _socket.socket | None, streams: tuple[OutputStream, ...]
    ) -> None:
        """Use another process, or none (0)."""
        self.pid = pid
        self.keeping = keeping
        self.streams = streams
        self.dying = pid == 0
        self.keeps = self.exited = False
        self.priority = Tier.FOREGROUND
        self.processors: tuple[int, ...] = ()
        self.clean(channel)

    def clean(self, channel: Channel | None) -> None:
        """What runs next finds a process in which nothing has run, at the other end of this channel."""
        self.channel = channel
        self.reader = Reader()
        self.clears = self.used = False
        self.family: str | None = None
        self.functions: Shelf[bool] = Shelf()


class MemberRun:
    """A member of an attempt on this node.

    Attributes:
        places: those that it has, none while it waits for them; its process is that of the first.
        tier: of its places.
        pickled: the function it calls.
        body: its `Launch` as it came.
        account: as which it runs, if it names one.
        ready: has its slots, waits for `Go` (gangs).
        since: when it was handed to its process; None until then.
        started: it runs, and no longer fetches its inputs.
        stalled: it waits for room on the disk.
        asked: it has been asked to save and end.
        saved: when a command last changed its checkpoint, in nanoseconds of the clock of files.
        told: when its process last said that it had saved, an instant of `time.monotonic`; `unreadable`: how many
            checkpoints it could not read. A process reports neither more often than is useful.
        wanted: how many files of the server it has asked for.
        until: when its time is over; None: never.
        verdict: why it is being killed.
    """

    __slots__ = (
        *(
            "account",
            "asked",
            "body",
            "key",
            "launch",
            "pickled",
            "places",
            "ready",
            "saved",
            "since",
            "stalled",
            "started",
        ),
        *("tier", "told", "unreadable", "until", "verdict", "wanted"),
    )

    def __init__(self, launch: Launch, body: Body, pickled: bytes | None, account: Account | None = None) -> None:
        self.key = (launch.job, launch.task, launch.attempt)
        self.launch = launch
        self.account = account
        self.tier = launch.tier
        self.body = body
        self.places: list[SlotPlace] = []
        self.pickled = pickled
        self.ready = False
        self.since: float | None = None
        self.started = self.stalled = False
        self.asked = False
        self.saved = time.time_ns() - _TICK_NS
        self.told = -math.inf
        self.unreadable = 0
        self.wanted = 0
        self.until: float | None = None
        self.verdict: tuple[Outcome, str] | None = None

    def lighten(self) -> None:
        """It has been handed to its process: forget what only that needs."""
        if len(self.body) > LARGE_BODY:  # the parts of its launch are views of it
            work = Raw(bytes(memoryview(self.launch.work)))
            self.launch = structs.replace(self.launch, work=work, pickled=None, arguments=None)
        self.body = b""
