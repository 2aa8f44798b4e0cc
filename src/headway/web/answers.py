"""What a caller is answered, in the form that it reads: what was asked for, or why there is none."""

from __future__ import annotations

import logging
import math
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec
from starlette.responses import Response

from headway import wire
from headway.errors import (
    Conflict,
    Damaged,
    Forbidden,
    HandlerFailed,
    HeadwayError,
    InstanceDied,
    Malformed,
    MissingBlobs,
    NoRoom,
    NoSuchJob,
    NoSuchNode,
    NoSuchOutput,
    NoSuchService,
    NoSuchToken,
    NoSuchUpload,
    NotTheirs,
    QuotaExceeded,
    RequestTimedOut,
    ServiceEnded,
    ServiceFull,
    TooLarge,
    TooOften,
    Unauthorised,
    Unavailable,
)
from headway.live.store.journal import JournalFull, NotNow
from headway.live.store.messages import MessageRow
from headway.model.actions import JobStatus
from headway.model.outcome import Outcome
from headway.web.bodies import (
    broken,
    in_form,
    status_of,
)

log = logging.getLogger(__name__)

_STATUS: Final[tuple[tuple[type[HeadwayError], HTTPStatus], ...]] = (
    (Unauthorised, HTTPStatus.UNAUTHORIZED),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (QuotaExceeded, HTTPStatus.TOO_MANY_REQUESTS),
    (TooOften, HTTPStatus.TOO_MANY_REQUESTS),
    (NoSuchToken, HTTPStatus.NOT_FOUND),
    (NoSuchJob, HTTPStatus.NOT_FOUND),
    (NoSuchUpload, HTTPStatus.NOT_FOUND),
    (NoSuchOutput, HTTPStatus.NOT_FOUND),
    (NoSuchService, HTTPStatus.NOT_FOUND),
    (NotTheirs, HTTPStatus.FORBIDDEN),
    (NoSuchNode, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (MissingBlobs, HTTPStatus.UNPROCESSABLE_ENTITY),
    (TooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (NoRoom, HTTPStatus.INSUFFICIENT_STORAGE),
    (HandlerFailed, HTTPStatus.BAD_GATEWAY),
    (InstanceDied, HTTPStatus.BAD_GATEWAY),
    (RequestTimedOut, HTTPStatus.GATEWAY_TIMEOUT),
    (ServiceFull, HTTPStatus.SERVICE_UNAVAILABLE),
    (ServiceEnded, HTTPStatus.SERVICE_UNAVAILABLE),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (JournalFull, HTTPStatus.INSUFFICIENT_STORAGE),
    (NotNow, HTTPStatus.SERVICE_UNAVAILABLE),
    (Damaged, HTTPStatus.INTERNAL_SERVER_ERROR),
    (Malformed, HTTPStatus.BAD_REQUEST),
    (HeadwayError, HTTPStatus.UNPROCESSABLE_ENTITY),
)


def result_of(body: bytes, *, packed: bool) -> wire.TaskResult:
    """A result as it is stored, which in MessagePack is how it is sent."""
    if packed:
        return cast(wire.TaskResult, msgspec.Raw(body))
    return msgspec.msgpack.decode(body, type=wire.TaskResult)


def _message(row: MessageRow, *, packed: bool) -> wire.Message:
    if row.task is None:
        return wire.Message(row.number, row.job, status=JobStatus(row.word))
    result = None if row.result is None else result_of(row.result, packed=packed)
    return wire.Message(row.number, row.job, row.task, Outcome(row.word), result=result)


def messages_of(rows: list[MessageRow], cursor: int, *, forgotten: int, packed: bool) -> bytes:
    """The body that has these messages, and the cursor behind them."""
    answer = wire.Messages(tuple([_message(row, packed=packed) for row in rows]), cursor, forgotten)
    return wire.encode(answer) if packed else msgspec.json.encode(answer)


def answer_to_trouble(route: wire.Route, error: Exception, packed: bool, kind: str = wire.MSGPACK) -> Response:
    """The answer to a request that has led to an error; `kind` is the type of its body."""
    if isinstance(error, HeadwayError):
        return refuse(error, packed)
    if isinstance(error, msgspec.MsgspecError | RecursionError):
        hint = "" if kind.startswith((wire.JSON, wire.MSGPACK)) else f"JSON wants Content-Type: {wire.JSON}."
        return refuse(Malformed(f"the body of {route.name} is not valid: {error}", hint), packed)
    log.error("%s failed", route.name, exc_info=error)
    return answer_to_fault(route, error, packed)


def answer_to_fault(route: wire.Route, error: Exception, packed: bool) -> Response:
    """The answer where something is wrong with the server itself."""
    return respond(broken(route, error, "the server's log"), packed, HTTPStatus.INTERNAL_SERVER_ERROR)


def unanswered(error: Exception, packed: bool) -> Response:
    """Why a request to a service has no answer."""
    if isinstance(error, HeadwayError):
        return refuse(error, packed)
    log.error("%s failed", wire.REQUEST.name, exc_info=error)
    return answer_to_fault(wire.REQUEST, error, packed)


def respond(answer: Any, packed: bool, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """An answer as MessagePack, or as JSON."""
    body, form = in_form(answer, packed=packed)
    return Response(body, status, media_type=form)


def status_to(error: HeadwayError) -> HTTPStatus:
    """The status of the answer to a request that is refused."""
    if isinstance(error, QuotaExceeded) and error.retry_after is None:
        return HTTPStatus.FORBIDDEN  # it will never do
    return status_of(error, _STATUS)


def refuse(error: HeadwayError, packed: bool) -> Response:
    """The answer to a request that is refused: why, and when to ask again if that is known."""
    status = status_to(error)
    missing = error.names if isinstance(error, MissingBlobs) else ()
    response = respond(wire.ErrorBody(str(error.args[0]), error.hint, missing, error.code), packed, status)
    if status is HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, ServiceFull | TooOften | QuotaExceeded) and error.retry_after is not None:
        response.headers["Retry-After"] = str(math.ceil(error.retry_after))
    return response
