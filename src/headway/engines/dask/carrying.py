"""Bytes on a connection of Dask, between a server and a station.

TLS finds every byte that was changed on its way. A connection without it has the checksum of TCP, of 16 bits, which
lets one in 65,536 damaged packets through. So there each message has one of 32 bits of its own.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, cast

from distributed.comm.core import Comm
from distributed.protocol.serialize import to_serialize

from headway.engines.local.shared.frames import LARGE_BODY, Body

MESSAGE_MAX: Final = 4 << 20
"""So many bytes are sent as one message of Dask: the next are received while these go on."""

_GUARDED: Final = ("tls", "wss")
"""Protocols of Dask that find what was changed on its way."""


class ChangedOnTheWayError(OSError):
    """What came is not what was sent."""


def message(comm: Comm, data: Body) -> object:
    """Bytes as Dask sends them; many of them are not copied into the message."""
    body = to_serialize(memoryview(data)) if len(data) > LARGE_BODY else data
    return body if _is_guarded(comm) else [zlib.crc32(data), body]


def received(comm: Comm, told: Any) -> Body:
    """The bytes of a message.

    Raises:
        ChangedOnTheWayError: they are not what was sent. The connection has to end: who knows what they were?
    """
    if _is_guarded(comm):
        return cast(Body, told)
    checksum, data = told
    if zlib.crc32(data) != checksum:
        raise ChangedOnTheWayError(
            f"{len(data)} bytes from {comm.peer_address} are not what was sent: something on the way changed them"
        )
    return cast(Body, data)


def _is_guarded(comm: Comm) -> bool:
    return comm.peer_address.partition("://")[0] in _GUARDED
