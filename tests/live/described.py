"""Teaches schemathesis MessagePack; named by SCHEMATHESIS_HOOKS."""

from __future__ import annotations

from typing import Any

import msgspec
import schemathesis

from headway import wire

_BODIES = {(route.method, route.path): route.body for route in wire.ROUTES if route.body is not None}


@schemathesis.serializer(wire.MSGPACK)
def packed(ctx: Any, value: Any) -> bytes:
    """A body; what is base64 in JSON is bytes here, as far as the body is one."""
    operation = ctx.case.operation
    for kind in (_BODIES.get((operation.method.upper(), operation.path), Any), Any):
        try:
            return wire.encode(msgspec.convert(value, kind))
        except (msgspec.ValidationError, TypeError, OverflowError):
            continue  # it is not as it has to be, and shall be sent as far as it can be
    return b"\xc1"


@schemathesis.deserializer(wire.MSGPACK)
def unpacked(ctx: Any, response: Any) -> Any:
    """An answer as it would be in JSON."""
    return msgspec.to_builtins(msgspec.msgpack.decode(response.content))
