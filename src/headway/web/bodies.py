"""What every HTTP interface here does with bodies, tokens and errors."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from headway import wire
from headway.errors import HeadwayError
from headway.live.uploads import TooLarge

BODY_MAX: Final = 256 << 20
"""Bytes that a request may bring."""

T = TypeVar("T")


class Unauthorised(HeadwayError):
    """The token is missing or wrong."""


async def read_body(request: Request, body_max: int, hint: str) -> bytes:
    """The body of a request.

    Raises:
        TooLarge: it has more than `body_max` bytes; `hint` says what to do then.
    """
    announced = request.headers.get("content-length", "")
    parts: list[bytes] = []
    size = int(announced) if announced.isdigit() else 0
    if size <= body_max:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > body_max:
                break
            parts.append(part)
        else:
            return b"".join(parts)
    raise TooLarge(f"the body has more than {body_max} bytes", hint)


def owner_of_token(request: Request, owners: Mapping[bytes, T], where: str) -> T:
    """Who owns the token that a request carries; `where` says in which file it is.

    Raises:
        Unauthorised: it carries none, or one that nobody owns.
    """
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthorised("no token was sent", f"Send `Authorization: Bearer TOKEN` with the token of {where}.")
    given = token.strip().encode()
    for known, owner in owners.items():
        if hmac.compare_digest(known, given):
            return owner
    raise Unauthorised("the token is not the one of this server", f"It is in {where}.")


def status_of(error: HeadwayError, statuses: Iterable[tuple[type[HeadwayError], HTTPStatus]]) -> HTTPStatus:
    """The status of an answer that tells of an error: that of the first kind it is of."""
    return next(status for kind, status in statuses if isinstance(error, kind))


def unknown(request: Request, error: HTTPException) -> wire.ErrorBody:
    """What is said where there is no such path, or not with this method."""
    what = f"{request.method} {request.url.path}"
    return wire.ErrorBody(f"{what}: {error.detail}", f"GET {wire.OPENAPI.path} describes what there is.")


def broken(route: wire.Route, error: Exception, log: str) -> wire.ErrorBody:
    """What is said where the fault is ours; `log` says whose log has more."""
    return wire.ErrorBody(f"{route.name} failed: {type(error).__name__}: {error}", f"See {log}.")
