"""What every HTTP interface here does with bodies and tokens."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TypeVar

from starlette.requests import Request

from headway.errors import HeadwayError

T = TypeVar("T")


class TooLarge(HeadwayError):
    """A request brings more than it may."""


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
