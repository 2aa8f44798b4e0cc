"""What server and runners write for each other into the folder that they share: values and records (`folder`).

A file is written beside its place and moved there, with its SHA-256 in front, so that half of it is never read. A
record has its length and its checksum in front. A record that is not whole has not arrived yet: on a network file
system the parts of a file may come in any order.
"""

# Annotations are values here, not text: msgspec compiles the text of each field when it first needs a type.

import os
import stat
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import msgspec

try:
    from _sha2 import sha256  # that of hashlib, without OpenSSL, which takes longer to load than all else here
except ImportError:
    try:
        from _sha256 import sha256  # before Python 3.12
    except ImportError:
        from hashlib import sha256

from headway.engines.base import AttemptKey
from headway.engines.local.shared.terms import NO_ROOM, ROOM_SECONDS, Terms

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")

_HEAD: Final = 8
_DIGEST: Final = 32
_ROOM_AGAIN_SECONDS: Final = 0.5


class Seat(msgspec.Struct, frozen=True):
    """Where a member of an attempt runs: node, slots there, and the part that it belongs to."""

    node: str
    slots: tuple[int, ...]
    part: int


class WrittenAttempt(msgspec.Struct, frozen=True):
    """An attempt, as a later server has to know it.

    Attributes:
        seats: of its members, by rank.
        starts: its start is to be reported.
    """

    job: int
    task: int
    attempt: int
    seats: tuple[Seat, ...]
    starts: bool

    @property
    def key(self) -> AttemptKey:
        """Job, task, attempt."""
        return (self.job, self.task, self.attempt)

    @property
    def parts(self) -> dict[int, tuple[int, ...]]:
        """The ranks of the members of each part."""
        found: dict[int, tuple[int, ...]] = {}
        for rank, seat in enumerate(self.seats):
            found[seat.part] = (*found.get(seat.part, ()), rank)
        return found


class Order(msgspec.Struct, frozen=True):
    """What a runner is told: what of an attempt it runs on its node.

    Attributes:
        number: of its part.
        terms: of its agent, as for a node of one machine.
        launches: bodies of frames `Launch`, one a member.
    """

    record: WrittenAttempt
    number: int
    terms: Terms
    launches: tuple[bytes, ...]


FILES_FOLDER: Final = "files"
"""In the engine's folder, that of the files that tasks have asked for, by part of an attempt."""

ANSWERS: Final = "answers"
"""What the server says there of each file, as `FileAnswer`."""


class FileAnswer(msgspec.Struct, frozen=True):
    """What becomes of a file that a runner has asked for.

    Attributes:
        name: of the file.
        here: it can be opened; if not, the server does not keep it, or has no room.
        no_room: the disk is full; the runner may ask again.
    """

    name: str
    here: bool
    no_room: bool = False


class DoorPlate(msgspec.Struct, frozen=True):
    """Where the server takes news of attempts, and the word that has to be said there."""

    host: str
    port: int
    word: str


class Torn(Exception):
    """A file is not what was written there."""


def write(path: "Path", value: Any) -> None:
    """Write a value so that it is there whole or not at all, also after a crash of the machine.

    Raises:
        OSError: it cannot be written.
    """
    body = msgspec.msgpack.encode(value)
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(sha256(body).digest() + body)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def _opened(path: "Path | str") -> BinaryIO:
    """A plain file to be read. Another user may have put something else in its place: a link, or a pipe.

    Raises:
        OSError: it cannot be opened, or is none.
    """
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is not a plain file")
    return open(file, "rb")


def end_of_text(path: "Path | str", size: int) -> str:
    """The last bytes of a plain file, as text.

    Raises:
        OSError: it cannot be read.
    """
    with _opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return file.read(size).decode("utf-8", "replace")


def read(path: "Path | str", kind: type[T]) -> T:
    """A value that was written.

    Raises:
        OSError: it cannot be read.
        Torn: something else is there.
    """
    with _opened(path) as file:
        whole = file.read()
    digest, body = whole[:_DIGEST], whole[_DIGEST:]
    if sha256(body).digest() != digest:
        raise Torn(f"{path} has been changed: its checksum is wrong")
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise Torn(f"{path} cannot be read: {error}") from error


def _checksum(head: bytes, body: bytes) -> bytes:
    """Of a record; that of one of zeros is not zero."""
    return zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "little")


def append(fd: int, bodies: list[bytes]) -> None:
    """Add records to a file; while the disk is full, wait for room.

    Raises:
        OSError: it cannot be written, or there was no room for `ROOM_SECONDS`.
    """
    heads = [len(body).to_bytes(4, "little") for body in bodies]
    whole = b"".join(head + _checksum(head, body) + body for head, body in zip(heads, bodies, strict=True))
    began, until = os.fstat(fd).st_size, time.monotonic() + ROOM_SECONDS
    while True:
        left = memoryview(whole)
        try:
            while left:
                left = left[os.write(fd, left) :]
            os.fsync(fd)
            return
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(fd, began)
            if error.errno not in NO_ROOM or time.monotonic() >= until:
                raise
        time.sleep(_ROOM_AGAIN_SECONDS)


def append_to(path: "Path | str", *values: Any) -> None:
    """The same with values, to a file by its name.

    Raises:
        OSError: it is not there, or as above.
    """
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        append(fd, [msgspec.msgpack.encode(value) for value in values])
    finally:
        os.close(fd)


def records(path: "Path | str", offset: int) -> tuple[list[bytes], int]:
    """The whole records from an offset on, and where the next one begins.

    Raises:
        OSError: the file cannot be read.
    """
    with _opened(path) as file:
        file.seek(offset)
        fresh = file.read()
    bodies, at = [], 0
    while len(fresh) - at >= _HEAD:
        end = at + _HEAD + int.from_bytes(fresh[at : at + 4], "little")
        body = fresh[at + _HEAD : end]
        if end > len(fresh) or fresh[at + 4 : at + _HEAD] != _checksum(fresh[at : at + 4], body):
            break
        bodies.append(body)
        at = end
    return bodies, offset + at
