"""The messages between driver, agent and slot processes of this machine, and how they are cut into frames.

A frame is the length of its body (four bytes, little-endian), then the body: MessagePack of one of the types below.
The agent stands between driver and slot and passes on unread what it need not know (`Raw`).

What may be large, the arguments of a call and its result, is the last field of its message (`encoded`). So it is sent
from where it is, and read where it has arrived: nobody on its way copies it.
"""

# Annotations are values here, not text: msgspec compiles the text of each field when it first needs a type.

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw

from headway.engines.base import Assignment, Call, Ending, Output
from headway.engines.local.shared.stores import Store
from headway.model.instant import to_seconds
from headway.model.tier import Tier

VERSION = 13
"""Version of these frames. A driver does not talk to an agent of another version."""


Body = bytes | memoryview
"""Of a frame, or a part of it."""

LARGE_BODY: Final = 1 << 17
"""The body of a longer frame is not copied."""


_HUGE: Final = 4 << 20
"""Bytes from which on memory in large pages, of 2 MiB, is worth asking for."""

SEND_BUFFER: Final = 4 << 20
"""So many bytes may wait in a socket, if the system allows it: fewer and longer turns for what is large."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """Any message."""


class Hello(Frame, frozen=True, tag=1):
    """Driver to agent, first: an agent only listens to a driver that knows the secret.

    Attributes:
        starts: report each member's start.
    """

    secret: bytes
    version: int
    starts: bool


class Launch(Frame, frozen=True, tag=2):
    """Driver to agent, and on to the slot's process: run one member.

    Attributes:
        rank, width: number of the member, and how many there are.
        slots: allocated while it runs; its process is that of the first.
        time_limit: seconds, from its start.
        function: name of the function to be called; empty for a command.
        pickled: the function, if the receiver does not have it yet (`Shelf`).
        work: a `CallFrame` or a `CommandFrame`.
        uploads: folder of the files that the server keeps, each under its SHA-256; empty if neither the command nor the
            arguments of the call name files.
        fetches, tier: see `headway.engines.base.Assignment`.
        processors: the only ones that it may use; none: any.
        family: of the call, see `headway.engines.base.Call`; None for a command.
        alone: see `headway.engines.base.Call`.
        account: see `headway.engines.base.Assignment`.
        arguments: of a call, see `headway.engines.base.Call`; None for a command.
    """

    job: int
    task: int
    attempt: int
    rank: int
    width: int
    slots: tuple[int, ...]
    time_limit: float | None
    memory_limit: int | None
    function: str
    pickled: bytes | None
    work: Raw
    uploads: str = ""
    fetches: bool = False
    tier: Tier = Tier.FOREGROUND
    processors: tuple[int, ...] = ()
    family: str | None = None
    alone: bool = False
    account: str = ""
    arguments: memoryview | None = None


class CallFrame(Frame, frozen=True):
    """A call without its function and its arguments: see `headway.engines.base.Call`."""

    result_max: int
    paths: tuple[str, ...] = ()
    cwd: str = ""
    anywhere: bool = False
    env: dict[str, str] = {}
    results: dict[int, bytes] = {}
    files: dict[str, str] = {}


class CommandFrame(Frame, frozen=True):
    """A command: see `headway.engines.base.Command`."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: str
    stdout: str
    stderr: str
    inputs: dict[str, str] = {}
    outputs: dict[str, str] = {}


class Go(Frame, frozen=True, tag=3):
    """Driver to agent: all members of the gang are ready, start them."""

    job: int
    task: int
    attempt: int


class Kill(Frame, frozen=True, tag=4):
    """Driver to agent: end all members of this attempt."""

    job: int
    task: int
    attempt: int


class Acknowledge(Frame, frozen=True, tag=5):
    """Driver to agent: these ends may be forgotten."""

    keys: list[tuple[int, int, int]]


class Ping(Frame, frozen=True, tag=6):
    """Driver to agent: I live, do you? Answered by `Pong`."""


class Stop(Frame, frozen=True, tag=7):
    """Driver to agent: end everything and exit."""


class Resize(Frame, frozen=True, tag=8):
    """Driver to agent: keep this many slots. The others go when they are idle, or at once with what runs there."""

    slots: int
    at_once: bool


class Change(Frame, frozen=True, tag=9):
    """Driver to agent: give all members of this attempt the places of this tier."""

    job: int
    task: int
    attempt: int
    tier: Tier


class Suspend(Frame, frozen=True, tag=10):
    """Driver to agent, and on to the slots' processes: let all members of this attempt save and end.

    Attributes:
        grace: seconds after which they are killed.
    """

    job: int
    task: int
    attempt: int
    grace: float


class Show(Frame, frozen=True, tag=11):
    """Driver to agent: the output of this attempt is followed, so write it to files from now on."""

    job: int
    task: int
    attempt: int


class FilePiece(Frame, frozen=True, tag=30):
    """Driver to agent: a part of a file of the server that it wanted, or of a checkpoint that its next launch needs.

    Attributes:
        name: of the file.
        data: what comes next of it.
        last: it is complete with this.
        detail: why it does not come; empty: it comes.
        sha256: of a whole checkpoint, with its last piece; an upload has it for a name.
        number: of this transfer of a checkpoint. Answered by `CheckpointTaken` after the last piece.
    """

    name: str
    data: bytes
    last: bool
    detail: str = ""
    store: Store = Store.UPLOAD
    sha256: str = ""
    number: int = 0


class Read(Frame, frozen=True, tag=31):
    """Driver to agent: send a part of a file. Answered by `ReadPart`.

    Attributes:
        number: of the question.
        size: at most so many bytes.
    """

    number: int
    store: Store
    name: str
    offset: int
    size: int


class Discard(Frame, frozen=True, tag=32):
    """Driver to agent: these files are not needed any more."""

    store: Store
    names: list[str]


ToAgent = (
    Hello
    | Launch
    | Go
    | Kill
    | Acknowledge
    | Ping
    | Stop
    | Resize
    | Change
    | Suspend
    | Show
    | FilePiece
    | Read
    | Discard
)


class Standing(Frame, frozen=True):
    """A member whose end an agent has not seen: it runs (`begun`), has its slots (`ready`), or waits for them.

    Attributes:
        started: its start was reported; an earlier driver may not have received it.
        asked: it has been asked to save and end.
    """

    job: int
    task: int
    attempt: int
    rank: int
    width: int
    ready: bool
    begun: bool
    started: bool
    tier: Tier
    asked: bool


class Ready(Frame, frozen=True, tag=12):
    """Agent to driver: a member of a gang has its slots and waits for `Go`."""

    job: int
    task: int
    attempt: int
    rank: int


class MemberStarted(Frame, frozen=True, tag=13):
    """Agent to driver: a member runs."""

    job: int
    task: int
    attempt: int
    rank: int


class MemberEnded(Frame, frozen=True, tag=14):
    """Agent to driver: a member has ended.

    Attributes:
        ending: an `Ending` from the process of the slot, without its result and the output that the engine has kept.
        stdout, stderr: that output; None if there is none.
        result: see `Ending`.
    """

    job: int
    task: int
    attempt: int
    rank: int
    width: int
    ending: Raw
    stdout: Output | None = None
    stderr: Output | None = None
    result: memoryview | None = None


class Welcome(Frame, frozen=True, tag=11):
    """Agent to driver, in answer to `Hello`: what I am and what I have.

    Attributes:
        guard: process that outlives the agent until nothing of the node remains.
        ended: frames `MemberEnded` that are not acknowledged.
        user: as which tasks run, see `headway.engines.local.shared.terms`.
        common: folder of the driver's machine that is used in place, see `headway.engines.local.shared.terms`.
    """

    version: int
    pid: int
    guard: int
    slots: int
    standing: list[Standing]
    ended: list[MemberEnded]
    user: str = ""
    common: str = ""


class Pong(Frame, frozen=True, tag=15):
    """Agent to driver: I live."""


class HasDriver(Frame, frozen=True, tag=16):
    """Agent to driver, in answer to `Hello`: I have a driver. Nothing follows."""


class MemberSaved(Frame, frozen=True, tag=17):
    """Agent to driver: a member has saved a checkpoint."""

    job: int
    task: int
    attempt: int
    rank: int


class MemberUnreadable(Frame, frozen=True, tag=18):
    """Agent to driver: a member found a checkpoint that it cannot read."""

    job: int
    task: int
    detail: str


class MembersRefused(Frame, frozen=True, tag=19):
    """Agent to driver: the members of this attempt cannot change to this tier; the operating system refuses it."""

    job: int
    task: int
    attempt: int
    tier: Tier
    detail: str


class Limited(Frame, frozen=True, tag=20):
    """Agent to driver, once: the two tiers of this node are not what they should be, for the reason in `detail`."""

    detail: str


class MemberStalled(Frame, frozen=True, tag=27):
    """Agent to driver: a member waits for room on the disk of its node; without a detail, it goes on."""

    job: int
    task: int
    attempt: int
    detail: str


class FileWanted(Frame, frozen=True, tag=33):
    """Agent to driver: a run needs a file that the server keeps. Answered by `FilePiece`, one after the other."""

    name: str


class ReadPart(Frame, frozen=True, tag=34):
    """Agent to driver, in answer to `Read`.

    Attributes:
        data: nothing at the end of the file.
        detail: why it cannot be read; empty: it can.
        sha256: of a whole checkpoint as it was read from its start on, at its end.
    """

    number: int
    data: bytes
    detail: str = ""
    sha256: str = ""


class CheckpointTaken(Frame, frozen=True, tag=35):
    """Agent to driver, in answer to the last `FilePiece` of a checkpoint.

    Attributes:
        is_damaged: other bytes have arrived than were sent; they may be sent again.
        detail: why it is not there; empty: it is.
    """

    number: int
    is_damaged: bool = False
    detail: str = ""


ToDriver = (
    Welcome
    | HasDriver
    | Ready
    | MemberStarted
    | MemberEnded
    | Pong
    | MemberSaved
    | MemberUnreadable
    | MembersRefused
    | Limited
    | MemberStalled
    | FileWanted
    | ReadPart
    | CheckpointTaken
)


class Fetched(Frame, frozen=True, tag=21):
    """Slot to agent: the inputs are here, now it runs."""


class RunEnded(Frame, frozen=True, tag=22):
    """Slot to agent: my run has ended.

    Attributes:
        spent: something of it remains in the slot's process or below it, so the process must be replaced.
        ending: an `Ending` without its result.
        wrote: there is output in the pipes that the agent may not have read yet.
        result: see `Ending`.
    """

    spent: bool
    ending: Raw
    wrote: bool = True
    result: memoryview | None = None


class Saved(Frame, frozen=True, tag=23):
    """Slot to agent: my run has saved a checkpoint."""


class Unreadable(Frame, frozen=True, tag=24):
    """Slot to agent: my run found a checkpoint that it cannot read."""

    detail: str


class Stalled(Frame, frozen=True, tag=28):
    """Slot to agent: my run waits, because the disk has no room for its files; its time does not count meanwhile.

    Attributes:
        detail: what there is no room for; empty: it goes on.
    """

    detail: str


class Want(Frame, frozen=True, tag=25):
    """Slot to agent: open this file of the server for me, I may not. Answered by `FileGiven`."""

    name: str


class FileGiven(Frame, frozen=True, tag=26):
    """Agent to slot: the descriptor of the file comes with this, if the file exists.

    Attributes:
        no_room: it exists, and the disk of the node has no room for it now.
    """

    no_room: bool = False


FromSlot = Fetched | RunEnded | Saved | Unreadable | Want | Stalled

encode = msgspec.msgpack.Encoder().encode
decode_ending = msgspec.msgpack.Decoder(Ending).decode
decode_to_slot = msgspec.msgpack.Decoder(Launch | Suspend | FileGiven).decode
decode_call = msgspec.msgpack.Decoder(CallFrame).decode
decode_command = msgspec.msgpack.Decoder(CommandFrame).decode
decode_from_slot = msgspec.msgpack.Decoder(FromSlot).decode


def to_agent_decoder() -> msgspec.msgpack.Decoder[ToAgent]:
    """Decodes what an agent gets from its driver."""
    return msgspec.msgpack.Decoder(ToAgent)


def to_driver_decoder() -> msgspec.msgpack.Decoder[ToDriver]:
    """Decodes what a driver gets from its agents."""
    return msgspec.msgpack.Decoder(ToDriver)


def ending_of(ended: MemberEnded) -> Ending:
    """How a member has ended, with its result and the output that the engine has kept."""
    ending = decode_ending(ended.ending)
    if ended.stdout is None and ended.stderr is None and ended.result is None:
        return ending
    stdout, stderr = ended.stdout or ending.stdout, ended.stderr or ending.stderr
    result: bytes | memoryview | None = ended.result
    if result is None:
        result = ending.result
    elif len(result) <= LARGE_BODY:
        result = bytes(result)  # a view would keep all that came with it
    return msgspec.structs.replace(ending, stdout=stdout, stderr=stderr, result=result)


def encoded(message: Launch | RunEnded | MemberEnded) -> tuple[Body, ...]:
    """The body of the frame of a message, in one part, or in two if its last field is large: that is not copied."""
    name, last = ("arguments", message.arguments) if isinstance(message, Launch) else ("result", message.result)
    if last is None or len(last) <= LARGE_BODY:
        return (encode(message),)
    before = encode(msgspec.structs.replace(message, **{name: None}))
    return before[: -len(_NONE)] + _BYTES + len(last).to_bytes(4, "big"), last


def in_parts(message: Launch | MemberEnded) -> tuple[Body, ...]:
    """A message as it is sent, in one part or two."""
    return led(*encoded(message))


def led(*parts: Body) -> tuple[Body, ...]:
    """The parts of a body, preceded by its length; joined unless they are large."""
    return joined((sum(map(len, parts)).to_bytes(4, "little"), *parts))


def joined(parts: Sequence[Body]) -> tuple[Body, ...]:
    """The same bytes in fewer parts: neighbours are joined unless they are large."""
    if max(map(len, parts), default=0) <= LARGE_BODY:
        return (b"".join(parts),)
    found, small = list[Body](), list[Body]()
    for part in parts:
        if len(part) <= LARGE_BODY:
            small.append(part)
            continue
        if small:
            found.append(b"".join(small))
            small = []
        found.append(part)
    if small:
        found.append(b"".join(small))
    return tuple(found)


def framed(*parts: "Body") -> bytes:
    """A body, in one part or several, preceded by its length."""
    return b"".join((sum(map(len, parts)).to_bytes(4, "little"), *parts))


def frame(message: Any) -> bytes:
    """A message as it is sent."""
    return framed(encode(message))


def launch_of(
    assignment: Assignment, rank: int, pickled: bytes | None, uploads: str, processors: tuple[int, ...]
) -> Launch:
    """The message that launches a member on a node.

    Args:
        pickled: the function that it calls, if the node does not have it yet.
        uploads: folder of the files that the server keeps.
        processors: as in `Launch`.
    """
    member, limit = assignment.members[rank], assignment.time_limit
    work = member.work
    family, alone, arguments = None, False, None
    if isinstance(work, Call):
        family, alone = work.family, work.alone
        where = (work.paths, work.cwd, work.anywhere, work.env, work.results, work.files)
        name, raw = work.function.name, encode(CallFrame(assignment.result_max, *where))
        arguments = memoryview(work.arguments)
    else:
        paths = (work.stdin, work.stdout, work.stderr)
        name, raw = "", encode(CommandFrame(work.argv, work.cwd, work.env, *paths, work.inputs, work.outputs))
    return Launch(
        *assignment.key,
        rank,
        len(assignment.members),
        member.slots,
        None if limit is None else to_seconds(limit),
        assignment.memory_limit,
        name,
        pickled,
        Raw(raw),
        uploads if assignment.files else "",
        assignment.fetches,
        assignment.tier,
        processors,
        family,
        alone,
        assignment.account,
        arguments,
    )


_NONE: Final = encode(None)
_BYTES: Final = b"\xc6"
"""Begins bytes in MessagePack; their number follows in four bytes, then they themselves."""


class Gathered:
    """A large body of which a part has arrived. All its memory is taken at once, in large pages where there are any.

    Memory that is new comes a page at a time, when it is first written to. For 64 MiB in pages of 4 KiB this takes two
    thirds of the time in which they are received.
    """

    __slots__ = ("_at", "_view")

    def __init__(self, size: int) -> None:
        self._view = memoryview(_memory(size))
        self._at = 0

    @property
    def missing(self) -> int:
        """So many of its bytes have not arrived."""
        return len(self._view) - self._at

    def add(self, chunk: Body) -> int:
        """Take in what belongs to it; returns how many bytes of the chunk that was."""
        taken = min(len(chunk), self.missing)
        self._view[self._at : self._at + taken] = memoryview(chunk)[:taken]
        self._at += taken
        return taken

    @property
    def whole(self) -> memoryview:
        """All of it, where it has arrived."""
        return self._view


def _memory(size: int) -> Any:
    """So many bytes of new memory."""
    if size < _HUGE:
        return bytearray(size)
    import mmap  # by few programs

    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # the system has no large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def together(parts: Sequence[Body]) -> Body:
    """The same bytes in one part."""
    if len(parts) == 1:
        return parts[0]
    size = sum(map(len, parts))
    if size <= LARGE_BODY:
        return b"".join(parts)
    gathered = Gathered(size)
    for part in parts:
        gathered.add(part)
    return gathered.whole


class Splitter:
    """Cuts what arrives into the bodies of frames."""

    __slots__ = ("_large", "_rest", "_wanted")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._wanted = 4
        self._large: Gathered | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a frame waits for its rest."""
        return not self._rest and self._large is None

    @property
    def missing(self) -> int:
        """So many bytes are missing at least until something is complete."""
        return self._wanted - len(self._rest) if self._large is None else self._large.missing

    def feed(self, chunk: Body) -> list[Body]:
        """The bodies that are complete now, in order. A large one is a view of where it has arrived."""
        bodies: list[Body] = []
        if self._large is not None:
            taken = self._large.add(chunk)
            if self._large.missing:
                return []
            bodies.append(self._large.whole)
            self._large, chunk = None, chunk[taken:]
        elif self._rest:
            self._rest += chunk
            if len(self._rest) < self._wanted:
                return []
            chunk = bytes(self._rest)
            self._rest.clear()
        at, size = 0, len(chunk)
        while size - at >= 4:
            end = at + 4 + int.from_bytes(chunk[at : at + 4], "little")
            if end > size:
                break
            bodies.append(chunk[at + 4 : end])
            at = end
        if size - at >= 4 and end - at > LARGE_BODY:
            self._large = Gathered(end - at - 4)
            self._large.add(memoryview(chunk)[at + 4 :])
        elif at < size:
            self._rest += chunk[at:]
            self._wanted = 4 if size - at < 4 else end - at
        return bodies


Held = TypeVar("Held")


class Shelf(Generic[Held]):
    """The functions that one end of a connection has, and that the other end knows it to have.

    Both ends ask for the same names in the same order and add what is missing. So both drop the same functions: those
    that were not asked for the longest.
    """

    names_max = 64
    bytes_max = 64 << 20

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[int, Held]] = OrderedDict()
        self._bytes = 0

    def get(self, name: str) -> Held | None:
        """The function with this name, which counts as asked for."""
        entry = self._held.get(name)
        if entry is None:
            return None
        self._held.move_to_end(name)
        return entry[1]

    def put(self, name: str, size: int, held: Held) -> None:
        """Add something of this size under a missing name; the oldest may be dropped, but never this one."""
        self._held[name] = (size, held)
        self._bytes += size
        while len(self._held) > 1 and (len(self._held) > self.names_max or self._bytes > self.bytes_max):
            _, (gone, _) = self._held.popitem(last=False)
            self._bytes -= gone
