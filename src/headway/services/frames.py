"""The messages between the broker and the instances of services, and how they are cut into frames.

A frame is the length of its body (four bytes, little-endian), then the body: MessagePack of one of the types below.
Neither side trusts the other to keep to this: a length has a bound, and what cannot be decoded ends the connection.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

PROTOCOL: Final = 1
"""Version of these frames."""

AROUND: Final = 16 << 10
"""Bytes that a frame may have besides the body of its request or answer, and a first frame in all."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """Any message."""


class Hello(Frame, frozen=True, tag=1):
    """Instance to broker, first: who I am.

    Attributes:
        key: the secret of the service, which gives no other right.
        version: of the handler.
    """

    protocol: int
    service: str
    key: str
    version: str
    job: int
    task: int
    attempt: int


class Ready(Frame, frozen=True, tag=2):
    """Instance to broker: the handler is loaded."""


class Broken(Frame, frozen=True, tag=3):
    """Instance to broker: the handler cannot be loaded, for the reason in `detail`. Nothing follows."""

    detail: str


class AnswerFrame(Frame, frozen=True, tag=4):
    """Instance to broker: the answer to a request.

    Attributes:
        kind: media type of the body.
        spent: seconds that the request took here.
    """

    number: int
    kind: str
    body: bytes
    spent: float


class Failed(Frame, frozen=True, tag=5):
    """Instance to broker: a request has no answer.

    Attributes:
        malformed: the request is to blame: its body is not what its media type says.
        detail: why, in words.
        spent: seconds that the request took here.
    """

    number: int
    malformed: bool
    detail: str
    spent: float


class Leaving(Frame, frozen=True, tag=6):
    """Instance to broker: I shall end. I finish what I have; say `Goodbye` when nothing of mine is on its way."""


FromInstance = Hello | Ready | Broken | AnswerFrame | Failed | Leaving


class Welcome(Frame, frozen=True, tag=1):
    """Broker to instance, in answer to `Hello`.

    Attributes:
        answer_max: bytes that the body of an answer may have.
        function: the handler, made by cloudpickle; empty: the instance knows it by its name.
    """

    answer_max: int
    function: bytes = b""


class RequestFrame(Frame, frozen=True, tag=2):
    """Broker to instance, one at a time: answer this.

    Attributes:
        kind: media type of the body; may be empty.
    """

    number: int
    kind: str
    body: bytes


class Goodbye(Frame, frozen=True, tag=3):
    """Broker to instance: end. If `why` is not empty, it was refused."""

    why: str = ""


FromBroker = Welcome | RequestFrame | Goodbye

encode = msgspec.msgpack.Encoder().encode
decode_from_instance = msgspec.msgpack.Decoder(FromInstance).decode
decode_from_broker = msgspec.msgpack.Decoder(FromBroker).decode


class Junk(Exception):
    """What arrived is no frame, or a longer one than allowed. Its connection ends."""


def frame(message: Any) -> bytes:
    """A message as it is sent."""
    body = encode(message)
    return len(body).to_bytes(4, "little") + body


class Splitter:
    """Cuts what arrives into the bodies of frames.

    Args:
        longest: bytes that the body of a frame may have.

    Attributes:
        longest: may be changed between two chunks.
    """

    __slots__ = ("_rest", "_wanted", "longest")

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self._rest = bytearray()
        self._wanted = 4

    @property
    def halfway(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return bool(self._rest)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The bodies that are complete now, in order.

        Raises:
            Junk: a frame is too long.
        """
        if self._rest:
            self._rest += chunk
            if len(self._rest) < self._wanted:
                return []
            chunk = bytes(self._rest)
            self._rest.clear()
        bodies = []
        at, size, end = 0, len(chunk), 0
        while size - at >= 4:
            length = int.from_bytes(chunk[at : at + 4], "little")
            if length > self.longest:
                raise Junk(f"a frame of {length} bytes; allowed: at most {self.longest}")
            end = at + 4 + length
            if end > size:
                break
            bodies.append(chunk[at + 4 : end])
            at = end
        if at < size:
            self._rest += chunk[at:]
            self._wanted = 4 if size - at < 4 else end - at
        return bodies
