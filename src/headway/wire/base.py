"""What bodies and routes are made of."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from headway.errors import InvalidInput
from headway.model.instant import NEVER, SECOND, from_seconds
from headway.model.job import BYTES_MAX, COUNT_MAX, FEATURES_MAX, NAME_MAX, SIZE_RANGE
from headway.model.node import NODE_NAME_MAX, SLOT_COUNT_MAX, SPEED_RANGE
from headway.wire.roles import Right

API: Final = "/v1"
MSGPACK: Final = "application/msgpack"
JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
TEXT: Final = "text/plain"

LIMIT_MAX: Final = 10_000
"""Jobs or messages that one answer may contain."""

JOBS_MAX: Final = 1000
"""Jobs that one question for messages may name."""

WAIT_MAX: Final = 60.0
"""Seconds that a long poll may wait."""

ANSWER_MAX: Final = 32 << 20
"""Bytes of the largest result that comes with its message. A server may cut answers sooner; one result is never cut."""

encode = msgspec.msgpack.Encoder().encode

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Of a job, a task or a message, as a caller names it: what the journal can look for."""


def _shown(**schema: object) -> msgspec.Meta:
    """The description of a value. It is checked where the errors have a readable message."""
    return msgspec.Meta(extra_json_schema=schema)


Limit = Annotated[int, _shown(minimum=1, maximum=LIMIT_MAX)]
"""Of the list in an answer."""

Bytes = Annotated[bytes, _shown(pattern=r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")]
"""Base64 in JSON."""

LONGEST_SECONDS: Final = NEVER // SECOND
"""No time that goes over HTTP is so many seconds."""

Time = Annotated[float, _shown(minimum=0, exclusiveMaximum=LONGEST_SECONDS)]
"""Seconds of a duration, exact to the microsecond."""

Date = Annotated[float, _shown(minimum=0, exclusiveMaximum=LONGEST_SECONDS, description="since the Unix epoch")]
"""Seconds of an instant since the Unix epoch, exact to the microsecond."""

Due = Annotated[float, _shown(exclusiveMinimum=-LONGEST_SECONDS, exclusiveMaximum=LONGEST_SECONDS)]
Span = Annotated[float, _shown(exclusiveMinimum=0, exclusiveMaximum=LONGEST_SECONDS)]
Bytes1 = Annotated[int, _shown(minimum=1, maximum=BYTES_MAX - 1)]
Sent = Annotated[int, _shown(minimum=0, maximum=BYTES_MAX)]
Count = Annotated[int, _shown(minimum=0, maximum=COUNT_MAX)]
Numeral = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,9})$")]
"""A number as the name of something, as JSON has names."""

Least1 = Annotated[int, _shown(minimum=1, maximum=COUNT_MAX)]
Cores = Annotated[int, _shown(minimum=1, maximum=SLOT_COUNT_MAX)]
CoresOfOne = Annotated[int, msgspec.Meta(ge=1, le=SLOT_COUNT_MAX)]
Share = Annotated[float, _shown(minimum=0, maximum=1)]
Probability = Annotated[float, _shown(exclusiveMinimum=0, exclusiveMaximum=1)]
Amount = Annotated[float, _shown(minimum=0)]
Size = Annotated[float, _shown(minimum=SIZE_RANGE[0], maximum=SIZE_RANGE[1])]
Speed = Annotated[float, _shown(minimum=SPEED_RANGE[0], maximum=SPEED_RANGE[1])]
JobText = Annotated[str, _shown(maxLength=NAME_MAX)]
Features = Annotated[
    dict[Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MAX)], float], msgspec.Meta(max_length=FEATURES_MAX)
]
NodeText = Annotated[str, msgspec.Meta(max_length=NODE_NAME_MAX, pattern=r"^[ -~]*$")]
NodeName = Annotated[str, _shown(minLength=1, maxLength=NODE_NAME_MAX, pattern=r"^[!--0-~][ -~]*$")]
"""Terms of jobs and nodes as `headway.model` has them; what it takes beyond ASCII is not described."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Anything a caller sends: unknown fields are refused."""


class Answer(msgspec.Struct, frozen=True):
    """Anything that comes back: a caller ignores fields that it does not know."""


def array_head(length: int) -> bytes:
    """What comes before the elements of an array in MessagePack.

    >>> array_head(3).hex(), array_head(1000).hex(), array_head(70000).hex()
    ('93', 'dc03e8', 'dd00011170')
    """
    return _head(length, 0x90, 0xDC)


def map_head(length: int) -> bytes:
    """What comes before the keys and values of a map in MessagePack.

    >>> map_head(3).hex(), map_head(1000).hex(), map_head(70000).hex()
    ('83', 'de03e8', 'df00011170')
    """
    return _head(length, 0x80, 0xDE)


def _head(length: int, short: int, long: int) -> bytes:
    """A length: within the byte `short`, or in two bytes after `long`, or in four after `long` + 1."""
    if length < 1 << 4:
        return bytes((short | length,))
    return bytes((long,)) + length.to_bytes(2) if length < 1 << 16 else bytes((long + 1,)) + length.to_bytes(4)


def microseconds(seconds: float, field: str) -> int:
    """A time that came over HTTP, as the core counts it.

    Raises:
        InvalidInput: it is not a number of seconds that the core can count.
    """
    try:
        return from_seconds(seconds)
    except ValueError:
        raise InvalidInput(field, seconds, f"a number of seconds below {LONGEST_SECONDS}") from None


def optional_microseconds(seconds: float | None, field: str) -> int | None:
    """As `microseconds`; None stays None."""
    return None if seconds is None else microseconds(seconds, field)


class Done(Answer, frozen=True):
    """What was asked for is durable; `changed` says how many jobs, or tasks, it concerned."""

    changed: int


class ErrorBody(Answer, frozen=True):
    """What is wrong and what to do next; `missing` names blobs that a submission has to bring.

    `code` is for programs, see `headway.errors`; empty for what is no error of Headway.
    """

    error: str
    hint: str = ""
    missing: tuple[str, ...] = ()
    code: str = ""


class Health(Answer, frozen=True):
    """The server answers; `accepts` says whether it accepts anything new, which it does not while its disk is full."""

    version: str
    accepts: bool = True


class Route(msgspec.Struct, frozen=True):
    """One thing that can be asked for.

    Attributes:
        name: what it is called in `/openapi.json`.
        path: with `{job}` where a job's id stands, `{node}` a node's name, `{upload}` the name of an upload,
            `{service}` that of a service.
        query: parameters of the query string: name, type, what it means; those of a list may come many times.
        body, answer: types of what is sent and of what comes back; `bytes`: a file as it is (`OCTETS`);
            `str`: text as it is (`TEXT`).
        right: who may ask for it. None: the interface knows no roles, as that of deciders; a server refuses to start
            with a route of which nothing is said.
    """

    name: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    answer: Any
    body: Any = None
    query: tuple[tuple[str, Any, str], ...] = ()
    summary: str = ""
    right: Right | None = None
