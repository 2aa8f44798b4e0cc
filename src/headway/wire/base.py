"""What bodies and routes are made of."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

API: Final = "/v1"
MSGPACK: Final = "application/msgpack"
JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"

encode = msgspec.msgpack.Encoder().encode

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Of a job, a task or a message, as a caller names it: what the journal can look for."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Anything a caller sends: unknown fields are refused."""


class Answer(msgspec.Struct, frozen=True):
    """Anything that comes back: a caller reads past fields that it does not know."""


class Done(Answer, frozen=True):
    """What was asked for is durable; `changed` says how many jobs, or tasks, it concerned."""

    changed: int


class ErrorBody(Answer, frozen=True):
    """What is wrong and what to do next; `missing` names blobs that a submission has to bring."""

    error: str
    hint: str = ""
    missing: tuple[str, ...] = ()


class Health(Answer, frozen=True):
    """The server answers."""

    version: str


class Route(msgspec.Struct, frozen=True):
    """One thing that can be asked for.

    Attributes:
        name: what it is called in `/openapi.json`.
        path: with `{job}` where a job's id stands, `{node}` a node's name, `{upload}` where the name of an upload does.
        query: parameters of the query string: name, type, what it means; those of a list may come many times.
        body, answer: types of what is sent and of what comes back; `bytes`: a file as it is (`OCTETS`).
    """

    name: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    answer: Any
    body: Any = None
    query: tuple[tuple[str, Any, str], ...] = ()
    summary: str = ""
