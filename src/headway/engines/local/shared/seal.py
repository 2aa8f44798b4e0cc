"""Seals on the messages of a slot's process, which are checked before anything else reads them.

A task can find the descriptor through which its process talks to the agent. It may write into it, by accident or not,
something that looks like the end of its run, or like nothing valid. So each launch comes with a seal, a few random
bytes, and each frame from the slot begins with the seal of its launch. A frame with another beginning, one that claims
to be longer than allowed, or one that cannot be read ends that run, and nothing else. The agent decodes and checks each
ending: it passes on to the driver only what the driver can read, and what names no files except the run's own.
"""

from __future__ import annotations

import math
import os
from typing import Any, Final

import msgspec

from headway.engines.base import TAIL_MAX, Ending, Output
from headway.engines.local.shared import output
from headway.engines.local.shared.frames import (
    LARGE_BODY,
    Body,
    FromSlot,
    Gathered,
    Launch,
    RunEnded,
    decode_call,
    decode_ending,
    decode_from_slot,
    encode,
    encoded,
    joined,
    led,
)
from headway.model.outcome import Outcome

SEAL_SIZE: Final = 8
"""Bytes."""

FOREIGN: Final = "wrote to a file descriptor that was not its own"
CLOSED: Final = "closed a file descriptor that was not its own"

ALONE_HEAD: Final = 4 + SEAL_SIZE + 1
"""The first bytes of what `to_slot` makes, from which `is_alone` reads."""

_ALONE: Final = b"\1"
_OTHERS: Final = b"\0"
_HEAD: Final = SEAL_SIZE + 4
_SLACK: Final = 4 << 20
"""Bytes of a frame besides its result: texts, paths, URLs, the last part of the output."""

_DETAIL_MAX: Final = 1 << 20
_CODES: Final = range(-64, 256)

_OF_A_SLOT: Final = frozenset(
    {
        *(Outcome.SUCCEEDED, Outcome.RAISED, Outcome.EXITED, Outcome.SIGNALLED, Outcome.OUT_OF_MEMORY),
        *(Outcome.TOO_LARGE, Outcome.REFUSED, Outcome.KILLED),
    }
)
"""The outcomes that a slot's process may report of its run; others may report the rest."""

_MAY_BE_OUTSIDE: Final = frozenset({Outcome.SIGNALLED, Outcome.REFUSED, Outcome.RAISED, Outcome.EXITED})
"""Those that need not be the task's own doing."""


def new_seal() -> bytes:
    """The seal of a launch."""
    return os.urandom(SEAL_SIZE)


def to_slot(seal: bytes, *body: Body, alone: bool = False) -> tuple[Body, ...]:
    """What an agent sends to a slot's process: the seal to answer under, whether it is the launch of a call that is
    `Launch.alone`, then a body; in parts, of which none that is large was copied.
    """
    return led(seal, _ALONE if alone else _OTHERS, *body)


def opened(received: Body) -> tuple[bytes, Body]:
    """Seal and body of what `to_slot` made."""
    return bytes(received[:SEAL_SIZE]), received[SEAL_SIZE + 1 :]


def is_alone(head: bytes) -> bool:
    """Whether what begins with this head is the launch of a call that is alone; nothing of the call is in the head."""
    return len(head) == ALONE_HEAD and head.endswith(_ALONE)


def sealed(seal: bytes, message: Any) -> bytes:
    """A message of a slot's process as it is sent."""
    body = encode(message)
    return b"".join((seal, len(body).to_bytes(4, "little"), body))


def sealed_end(seal: bytes, done: RunEnded) -> tuple[Body, ...]:
    """The end of a run as it is sent, in parts: a large result is not copied."""
    body = encoded(done)
    return joined((seal, sum(map(len, body)).to_bytes(4, "little"), *body))


def size_max(launch: Launch) -> int:
    """The most bytes that a frame about this run may have."""
    return _SLACK + _result_max(launch)


def _result_max(launch: Launch) -> int:
    return decode_call(launch.work).result_max if launch.function else 0


class Reader:
    """Cuts what a slot's process sends into bodies, as long as the seals are right.

    Attributes:
        seal: of the current launch; empty: none yet.
        last: of the launch before. What it left running may still send, which is not a forgery.
        size_max: the most bytes that a frame may have.
        broken: something else came. The rest is not read.
        missing: so many bytes are missing at least until something is complete.
    """

    __slots__ = ("_large", "_rest", "broken", "last", "missing", "seal", "size_max")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._large: Gathered | None = None
        self.seal = self.last = b""
        self.size_max = _SLACK
        self.missing = _HEAD
        self.broken = False

    def begin(self, seal: bytes, size_max: int) -> None:
        """From now on the process has this launch."""
        self.last, self.seal, self.size_max = self.seal, seal, size_max

    def feed(self, chunk: bytes) -> list[tuple[bool, Body]]:
        """The bodies that are complete now, in order, and whether each is about the current launch."""
        rest, bodies = self._rest, list[tuple[bool, Body]]()
        if self.broken:
            return []
        large, at = self._large, 0
        if large is None:
            rest += chunk
        else:  # the rest is its head
            if rest[:SEAL_SIZE] not in (self.seal, self.last):
                self.broken = True
                return []
            taken = large.add(chunk)
            self.missing = large.missing
            if self.missing:
                return []
            rest += memoryview(chunk)[taken:]
        while True:
            seal = bytes(rest[at : at + SEAL_SIZE])
            if seal and not any(known and known.startswith(seal) for known in (self.seal, self.last)):
                self.broken = True
                break
            if len(rest) - at < _HEAD:
                self.missing = _HEAD
                break
            size = int.from_bytes(rest[at + SEAL_SIZE : at + _HEAD], "little")
            if size > self.size_max:
                self.broken = True
                break
            if large is not None:
                bodies.append((seal == self.seal, large.whole))
                self._large, large, at = None, None, _HEAD
                continue
            if len(rest) - at - _HEAD < size:
                self.missing = size + _HEAD + at - len(rest)
                if size > LARGE_BODY:
                    self._large = Gathered(size)
                    with memoryview(rest) as view:
                        self._large.add(view[at + _HEAD :])
                    del rest[at + _HEAD :]
                break
            with memoryview(rest) as view:
                body = bytes(view[at + _HEAD : at + _HEAD + size])
            bodies.append((seal == self.seal, body))
            at += _HEAD + size
        del rest[:at]
        if self.broken:
            rest.clear()
        return bodies


class Forged(Exception):
    """A frame cannot come from a slot's process; the text says what it is."""


def read(body: Body) -> tuple[FromSlot, Ending | None]:
    """What a slot's process says, and the ending in it.

    Raises:
        Forged: it cannot be read.
    """
    try:
        said = decode_from_slot(body)
        return said, decode_ending(said.ending) if isinstance(said, RunEnded) else None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Forged(FOREIGN) from error


def flaw(ending: Ending, result: memoryview | None, launch: Launch, *, asked: bool) -> str | None:
    """What in an ending cannot be true of this run, as `field is value`; None: nothing.

    Args:
        result: that comes with it.
        asked: whether it was asked to save and end.
    """
    if ending.outcome not in _OF_A_SLOT or (ending.outcome is Outcome.KILLED and not asked):
        return f"outcome is {ending.outcome.value!r}"
    if ending.outside and ending.outcome not in _MAY_BE_OUTSIDE:
        return "outside is true"
    for name, seconds in (("seconds", ending.seconds), ("cpu_seconds", ending.cpu_seconds)):
        if not (math.isfinite(seconds) and seconds >= 0):
            return f"{name} is {seconds}"
    if ending.exit_code is not None and ending.exit_code not in _CODES:
        return "exit_code is out of range"
    if len(ending.detail) > _DETAIL_MAX:
        return f"detail has {len(ending.detail)} characters"
    if ending.result is not None:
        return "result is in it"
    if result is not None and len(result) > _result_max(launch):
        return f"result has {len(result)} bytes"
    for stream, suffix in zip((ending.stdout, ending.stderr), output.SUFFIXES, strict=True):
        if stream is not None and not _is_its_own(stream):
            return f"std{suffix} is not its own"
    return None


def _is_its_own(stream: Output) -> bool:
    """Whether it can describe a file that the task named; files of the engine are reported by the agent."""
    return (
        stream.name == "" and stream.size >= 0 and stream.cut == 0 and not stream.lost and len(stream.tail) <= TAIL_MAX
    )
