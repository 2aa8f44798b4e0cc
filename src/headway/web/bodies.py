"""What every HTTP interface here does with bodies, tokens and errors."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Annotated, Final, Protocol, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Scope

from headway import wire
from headway.errors import HeadwayError, InvalidInput, Malformed, TooLarge, Unauthorised
from headway.wire.base import array_head
from headway.wire.by_parts import ENCODED_AT_ONCE
from headway.wire.reading import LargeJobs, decoder

BODY_MAX: Final = 256 << 20
"""Bytes that a submission in MessagePack may bring."""

JSON_MAX: Final = 4 << 20
"""The same in JSON, which cannot be decoded in pieces."""

OTHERS_MAX: Final = 1 << 20
"""Bytes that any other request may bring."""

SUBMITTED_MAX: Final = 100_000
"""Jobs of one submission."""

WHOLE_MAX: Final = 64 << 10
"""A submission of this many bytes is decoded at once: that takes 5 ms at most."""

SLICE_SECONDS: Final = 0.005
"""A larger one is decoded for this long at a time; in between the server does other work."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def malformed(field: str, value: object, allowed: str, hint: str = "") -> Malformed:
    """One whose field is not."""
    return Malformed(str(InvalidInput(field, value, allowed).args[0]), hint)


class ArrivingBody:
    """The part of a body that is there."""

    __slots__ = ("_there",)

    def __init__(self, there: bytes = b"") -> None:
        self._there: bytes | bytearray = there

    def more(self, part: bytes) -> None:
        """A part has come."""
        if not self._there:
            self._there = part
        else:
            if isinstance(self._there, bytes):
                self._there = bytearray(self._there)  # parts may be a byte each
            self._there += part

    def take(self) -> bytes:
        """What is there; it is kept no longer."""
        there, self._there = bytes(self._there), b""
        return there


class _Pieces(wire.Request, frozen=True):
    """A `wire.Submission` whose jobs are not decoded yet."""

    jobs: Annotated[tuple[msgspec.Raw, ...], msgspec.Meta(max_length=SUBMITTED_MAX)]
    key: str = ""
    client: str = ""
    blobs: dict[str, bytes] = msgspec.field(default_factory=dict)


_WHOLE: Final = tuple(decoder(wire.Submission, is_json=is_json) for is_json in (False, True))
_PIECES: Final = tuple(decoder(_Pieces, is_json=is_json) for is_json in (False, True))
_LARGE: Final = tuple(LargeJobs(is_json=is_json) for is_json in (False, True))
_JOB: Final = tuple(decoder(wire.NewJob, is_json=is_json) for is_json in (False, True))


async def read_submission(body: bytes, *, is_json: bool) -> wire.Submission:
    """A submission. A large one is decoded job by job, a large job task by task, so that others do not wait for all.

    Raises:
        msgspec.MsgspecError: it is not a submission, or has more jobs than one may have.
    """
    if len(body) <= WHOLE_MAX:
        found: wire.Submission = _WHOLE[is_json](body)
        return found
    await asyncio.sleep(0)  # each look at the whole is a step of its own
    pieces, decode = _PIECES[is_json](body), _JOB[is_json]
    jobs: list[wire.NewJob] = []
    await asyncio.sleep(0)
    until = time.perf_counter() + SLICE_SECONDS
    for place, piece in enumerate(pieces.jobs):
        try:
            if len(memoryview(piece)) <= WHOLE_MAX:
                jobs.append(decode(piece))
            else:
                reading = _LARGE[is_json].read(piece)
                while True:
                    try:
                        is_long = next(reading)
                    except StopIteration as end:
                        jobs.append(end.value)
                        break
                    if is_long or time.perf_counter() > until:
                        await asyncio.sleep(0)
                        until = time.perf_counter() + SLICE_SECONDS
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$")
            raise msgspec.ValidationError(f"{what} - at `$.jobs[{place}]{where or '`'}") from None
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_SECONDS
    return wire.Submission(tuple(jobs), pieces.key, pieces.client, pieces.blobs)


async def read_body(request: Request, body_max: int, hint: str) -> bytes:
    """The body of a request.

    Raises:
        TooLarge: it has more than `body_max` bytes; `hint` says what to do then.
    """
    announced = request.headers.get("content-length", "")
    whole = bytearray()  # parts may be a byte each
    size = int(announced) if announced.isdigit() else 0
    if size <= body_max:
        async for part in request.stream():
            if len(whole) + len(part) > body_max:
                break
            whole += part
        else:
            return bytes(whole)
    raise TooLarge(f"the body has more than {body_max} bytes", hint)


def in_form(answer: object, *, packed: bool) -> tuple[bytes, str]:
    """An answer as bytes, and their media type: MessagePack or JSON."""
    return (wire.encode(answer), wire.MSGPACK) if packed else (msgspec.json.encode(answer), wire.JSON)


async def in_form_by_parts(answer: object, *, packed: bool) -> tuple[bytes, str]:
    """The same. A long list in the answer is encoded part by part, so that other requests do not wait for all of it."""
    if not isinstance(answer, msgspec.Struct):
        return in_form(answer, packed=packed)
    for name in answer.__struct_fields__:
        items = getattr(answer, name)
        if isinstance(items, tuple) and len(items) > ENCODED_AT_ONCE:
            parts = []
            for first in range(0, len(items), ENCODED_AT_ONCE):
                parts.append(_elements(items[first : first + ENCODED_AT_ONCE], packed=packed))
                await asyncio.sleep(0)
            whole = array_head(len(items)) + b"".join(parts) if packed else b"[%b]" % b",".join(parts)
            return in_form(msgspec.structs.replace(answer, **{name: msgspec.Raw(whole)}), packed=packed)
    return in_form(answer, packed=packed)


def _elements(items: tuple[object, ...], *, packed: bool) -> bytes:
    """The encoded elements of an array, without what stands around them."""
    body, _ = in_form(items, packed=packed)
    return body[len(array_head(len(items))) :] if packed else body[1:-1]


class Owners(Protocol[T_co]):
    """Knows who owns which token."""

    def owner(self, token: bytes) -> T_co | None:
        """Whose token it is; None: it is not known, or not valid any more."""
        ...

    def why_not(self, token: bytes) -> str:
        """Why a token is not taken."""
        ...


def owner_of_token(request: Request, owners: Owners[T], where: str) -> T:
    """The owner of the token that a request carries; `where` says in which file the token is.

    Raises:
        Unauthorised: it has no token, or one that is not valid.
    """
    given = request.headers.get("authorization", "").encode("latin-1")
    owner = owner_of(given, owners)
    if owner is not None:
        line = request.scope.get("line")
        if line is not None:
            line.trusted, line.owner = True, owner
        return owner
    if token := _token_in(given):
        raise Unauthorised(owners.why_not(token), f"It is in {where}.")
    raise Unauthorised("no token was sent", f"Send `Authorization: Bearer TOKEN` with the token of {where}.")


def owner_of(authorization: bytes, owners: Owners[T]) -> T | None:
    """The owner of the token in the value of a header `Authorization`; None: there is none that is valid."""
    token = _token_in(authorization)
    return owners.owner(token) if token else None


def _token_in(authorization: bytes) -> bytes:
    scheme, _, token = authorization.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def status_of(error: HeadwayError, statuses: Iterable[tuple[type[HeadwayError], HTTPStatus]]) -> HTTPStatus:
    """The status of the answer to an error: that of the first class that it belongs to."""
    return next(status for kind, status in statuses if isinstance(error, kind))


NoteUnread = Callable[[HTTPStatus, str, str], None]
"""Notes a request that is refused unread: the status of its answer, why, and its caller's address."""


def noted_nowhere(status: HTTPStatus, why: str, peer: str) -> None:
    """Where nobody notes it (`NoteUnread`)."""


def peer_of(scope: Scope) -> str:
    """The address of the caller of a request; empty: it is not known, as that of a caller of this machine may be."""
    client = scope.get("client")
    return client[0] if client else ""


def methods_at(path: str, routes: Iterable[wire.Route]) -> list[str]:
    """The methods of the routes at a path; if several paths match, those of the longest."""
    found: dict[str, list[str]] = {}
    for route in routes:
        pattern = re.escape(route.path).replace(r"\{node\}", ".+").replace(r"\{", "{").replace(r"\}", "}")
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", pattern), path, re.DOTALL):
            found.setdefault(route.path, []).append(route.method)
    return found[max(found, key=len)] if found else []


def unknown(request: Request, error: HTTPException) -> wire.ErrorBody:
    """The error for an unknown path, or for a method that it does not have."""
    what = f"{request.method} {request.url.path}"
    code = HTTPStatus(error.status_code).name.lower()
    return wire.ErrorBody(f"{what}: {error.detail}", f"GET {wire.OPENAPI.path} describes what there is.", code=code)


def broken(route: wire.Route, error: Exception, log: str) -> wire.ErrorBody:
    """The error for our own faults; `log` says whose log has more."""
    said = f"{route.name} failed: {type(error).__name__}: {error}"
    return wire.ErrorBody(said, f"See {log}.", code=HTTPStatus.INTERNAL_SERVER_ERROR.name.lower())
