"""Runs on a node of Slurm what a job was made for: a part of an attempt, by the same agent as on one machine.

As on one machine, the first process is a guard (`start`), which outlives the agent until nothing of it remains. The
agent has no driver here: a `DirectLine` stands in for it. It hands over what is in the file `part`, and writes down
what the agent reports in the file `told`.

When Slurm ends the job, it sends SIGTERM to every process of it. The guard ignores that. The agent kills what runs,
tells the ends, and exits; Slurm's SIGKILL comes seconds later, and finds nothing.

The parts of a gang meet before they begin: each writes down that it is ready, and begins when all others have done so.
"""

from __future__ import annotations

import _socket
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from headway.engines.base import AttemptKey
from headway.engines.local.agent.agent import Agent
from headway.engines.local.agent.run import MemberRun
from headway.engines.local.shared.frames import (
    VERSION,
    Body,
    FileWanted,
    Go,
    Hello,
    MemberEnded,
    MemberSaved,
    MemberStalled,
    MemberStarted,
    MemberUnreadable,
    Ready,
    Show,
    Splitter,
    ToDriver,
    decode_ending,
    encode,
    to_agent_decoder,
    to_driver_decoder,
)
from headway.engines.local.shared.terms import WANTED_MAX
from headway.engines.slurm.written import (
    ANSWERS,
    FILES_FOLDER,
    DoorPlate,
    FileAnswer,
    Order,
    Torn,
    append,
    read,
    records,
)
from headway.model.outcome import Outcome

WANTED_LOOK_SECONDS: Final = 5.0
"""How often a runner looks whether the server still wants what it runs."""

_MEET_SECONDS: Final = (0.01, 0.5)
"""The first and the longest pause between two looks at whether the other parts of a gang are ready."""


def make_decoders() -> None:
    """Let msgspec compile the types of all that is read here, if it has not yet (`frames`)."""
    to_agent_decoder()
    to_driver_decoder()
    for kind in (Order, DoorPlate, FileAnswer):
        msgspec.msgpack.Decoder(kind)


def main(arguments: list[str]) -> int:
    """Run a part of an attempt; returns the exit status of the job."""
    folder = arguments[0]
    part, claimed = os.path.join(folder, "part"), os.path.join(folder, "claim")
    try:
        order = read(part, Order)
    except FileNotFoundError:
        print(f"{part} is not there: nobody wants this any more", file=sys.stderr)
        return 0
    except (OSError, Torn) as error:
        print(error, file=sys.stderr)
        return 1
    try:
        claim = os.open(claimed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        with open(claimed, encoding="utf-8") as file:
            print(f"another job runs this: {file.read()}", file=sys.stderr)
        return 0
    os.write(claim, os.environ.get("SLURM_JOB_ID", "").encode())
    Runner(folder, order, claim).serve()
    return 0


def knock(root: str, key: AttemptKey, number: int) -> None:
    """Tell the server that there is something to read; if that is lost, it finds it when it looks by itself."""
    with suppress(OSError, Torn):
        plate = read(os.path.join(root, "door"), DoorPlate)
        host = plate.host.encode() if plate.host.isascii() else plate.host  # as text, Python imports what knows IDNA
        found = _socket.getaddrinfo(host, plate.port, 0, _socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        sender = _socket.socket(family, kind, protocol)
        sender.setblocking(False)
        sender.sendto("{} {} {} {} {}".format(plate.word, *key, number).encode(), address)
        sender.close()


class DirectLine:
    """Stands in for the driver: the line to an agent, without a connection.

    Attributes:
        closed: never, see `transport.Line`.

    Args:
        take: called with what the agent sends: each message, and its body.
    """

    def __init__(self, take: Callable[[list[tuple[ToDriver, bytes]]], None]) -> None:
        self.closed = False
        self._take = take
        self._batches: deque[list[bytes]] = deque()
        self._filled = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        self._splitter = Splitter()
        self._decode = to_driver_decoder().decode

    def put(self, *bodies: bytes) -> None:
        """Let the agent receive one more batch."""
        self._batches.append(list(bodies))
        os.eventfd_write(self._filled, 1)

    def fileno(self) -> int:
        """Readable when there is a batch."""
        return self._filled

    def receive(self) -> list[bytes]:
        """The next batch."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._filled)
        return self._batches.popleft() if self._batches else []

    def send(self, sent: Body) -> None:
        """Take what the agent sends."""
        self._take([(self._decode(body), bytes(body)) for body in self._splitter.feed(sent)])

    def resume(self) -> None:
        """Everything was taken at once."""

    def drop(self) -> None:
        """In a process that was just forked: close it."""
        os.close(self._filled)

    def close(self) -> None:
        """It stays as long as the agent."""


class DirectDoor:
    """Where the only driver of a runner connects, once: its line."""

    def __init__(self, line: DirectLine) -> None:
        self._line = line
        self._bell = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Readable until the line has connected."""
        return self._bell

    def accept(self, epoll: select.epoll) -> DirectLine | None:
        """The line, the first time."""
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            return None
        epoll.register(self._line.fileno(), select.EPOLLIN)
        return self._line

    def close(self) -> None:
        """Close it."""
        os.close(self._bell)


class Runner(Agent):
    """The agent of a part of an attempt: it ends when all members have ended.

    Args:
        folder: of the part.
        claim: a descriptor that nothing else needs.
    """

    def __init__(self, folder: str, order: Order, claim: int) -> None:
        self.folder = folder
        self.root = os.path.dirname(os.path.dirname(folder))
        self.order = order
        self.left = len(order.launches)
        self.ready: list[bytes] = []
        self.others = sorted(order.record.parts.keys() - {order.number})
        self.meets = False
        self.look_at = 0.0
        self.pause = _MEET_SECONDS[0]
        self.files = os.path.join(self.root, FILES_FOLDER, os.path.basename(folder))
        self.answers_read = 0
        self.told = os.open(os.path.join(folder, "told"), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.line = DirectLine(self.take)
        super().__init__(order.terms, DirectDoor(self.line), claim, os.urandom(16))
        self.line.put(encode(Hello(self.secret, VERSION, True)))
        self.line.put(*order.launches, encode(Show(*order.record.key)))

    def let_go(self) -> None:
        """In a process that was just forked: close what belongs to the agent alone."""
        super().let_go()
        os.close(self.told)

    def patience(self) -> float:
        """Seconds until something must be done even if nothing happens."""
        if self.outbox:
            return 0.0
        return max(0.0, min(super().patience(), self.look_at - time.monotonic()))

    def turn(self) -> None:
        """Do what follows, and look from time to time at what others have written."""
        super().turn()
        now = time.monotonic()
        if now < self.look_at:
            return
        self.heard = now
        if not os.path.exists(os.path.join(self.folder, "part")):
            print("its folder is gone: nobody wants this any more", file=sys.stderr, flush=True)
            self.stopping = True
        if self.meets and self.all_are_ready():
            self.meets = False
            self.begin_together()
        if self.missing:
            self.look_for_files()
        self.pause = min(2 * self.pause, _MEET_SECONDS[1])
        self.look_at = now + (self.pause if self.meets or self.missing else WANTED_LOOK_SECONDS)

    def on_signal(self, _: int) -> None:
        """A child has ended, or Slurm ends the job."""
        if signal.SIGTERM in self.wake.recv(4096):
            self.withdraw()
        self.staff.reap()

    def withdraw(self) -> None:
        """Kill what runs; the ends are told as soon as nothing of it is left."""
        for runs in tuple(self.runs.values()):
            for run in tuple(runs):
                self.kill(run, Outcome.KILLED, "")
        if not self.runs and not self.outbox:
            self.stopping = True

    def take(self, said: list[tuple[ToDriver, bytes]]) -> None:
        """Write down what is to be told, and let the server know."""
        bodies = []
        for message, body in said:
            match message:
                case Ready():
                    self.ready.append(body)
                    if len(self.ready) == self.left:
                        bodies += self.ready
                        self.meets, self.look_at = True, 0.0
                case MemberStarted() | MemberSaved() | MemberUnreadable() | MemberStalled():
                    bodies.append(body)
                case MemberEnded():
                    bodies.append(body)
                    self.left -= 1
                    if decode_ending(message.ending).outcome is not Outcome.SUCCEEDED:
                        self.withdraw()
        if bodies:
            append(self.told, bodies)
            knock(self.root, self.order.record.key, self.order.number)
        if self.left == 0:
            self.stopping = True

    def give(self, run: MemberRun, name: str) -> None:
        """Ask the server for a file, by its name, a digest of its bytes; that is what allows it."""
        run.wanted += 1
        if run.wanted > WANTED_MAX:
            return
        if name not in self.missing:
            append(self.told, [encode(FileWanted(name))])
            knock(self.root, self.order.record.key, self.order.number)
        self.missing.setdefault(name, []).append(run)
        self.look_at, self.pause = 0.0, _MEET_SECONDS[0]

    def look_for_files(self) -> None:
        """Hand over files that have come. They are not looked for before that is said, see `carrying`."""
        try:
            bodies, self.answers_read = records(os.path.join(self.files, ANSWERS), self.answers_read)
        except OSError:  # it is tried again
            return
        for answer in (msgspec.msgpack.decode(body, type=FileAnswer) for body in bodies):
            path = os.path.join(self.files, answer.name)
            for run in self.missing.pop(answer.name, ()):  # each reads by itself
                file = None
                if answer.here:
                    with suppress(OSError):  # then it has it not
                        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                self.hand(run, file, no_room=answer.no_room)
                if file is not None:
                    os.close(file)

    def all_are_ready(self) -> bool:
        """Whether each other part of the gang has written that it is."""
        for number in self.others:
            with suppress(FileNotFoundError):
                name = "{}.{}.{}.{}".format(*self.order.record.key, number)
                if records(os.path.join(os.path.dirname(self.folder), name, "told"), 0)[0]:
                    continue
            return False
        return True

    def begin_together(self) -> None:
        """All members of the gang are ready: begin."""
        key = self.order.record.key
        self.line.put(encode(Go(*key)), encode(Show(*key)))
