"""Teaches schemathesis MessagePack. SCHEMATHESIS_HOOKS names this module."""

from __future__ import annotations

from typing import Any

import msgspec
import schemathesis

from headway import wire

_BODIES = {(route.method, route.path): route.body for route in wire.ROUTES if route.body is not None}


@schemathesis.serializer(wire.MSGPACK)
def packed(ctx: Any, value: Any) -> bytes:
    """A body in MessagePack. What is base64 in JSON becomes bytes, as far as the body is valid."""
    operation = ctx.case.operation
    for kind in (_BODIES.get((operation.method.upper(), operation.path), Any), Any):
        try:
            return wire.encode(msgspec.convert(value, kind))
        except (msgspec.ValidationError, TypeError, OverflowError):
            continue  # it is not valid, and is sent as it is as far as possible
    return b"\xc1"


@schemathesis.deserializer(wire.MSGPACK)
def unpacked(ctx: Any, response: Any) -> Any:
    """An answer in the form that it has in JSON."""
    return msgspec.to_builtins(msgspec.msgpack.decode(response.content))
