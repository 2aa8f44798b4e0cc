"""What columns of the journal hold as bytes: MessagePack; states as JSON; both compressed where they are long."""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from headway.core.record import StateRecord
from headway.wire import Work
from headway.wire.reading import any_form

_PLAIN_MAX: Final = 1 << 16
"""A state or work of at most this many bytes is stored uncompressed, so that one can look at it with `sqlite3`."""

_COMPRESSED: Final = b"\x78"
"""How what zlib has compressed begins; no work begins so."""

_work: msgspec.msgpack.Decoder[Work] = msgspec.msgpack.Decoder(Work)
_record = msgspec.json.Decoder(StateRecord, dec_hook=any_form)
encode = msgspec.msgpack.Encoder().encode


def state_body(record: StateRecord) -> bytes:
    """A state as the table has it: JSON; if it is long, compressed to about a tenth."""
    body = msgspec.json.encode(record)
    return body if len(body) < _PLAIN_MAX else zlib.compress(body, 6)


def state_of(body: bytes) -> StateRecord:
    """A state from the column `body` of the table."""
    return _record.decode(body if body[:1] == b"{" else zlib.decompress(body))


def work_of(body: bytes) -> Work:
    """The work of a job from the column `work` of the table."""
    return _work.decode(body if body[:1] != _COMPRESSED else zlib.decompress(body))


def work_body(body: bytes) -> bytes:
    """Encoded work as the table has it: if it is long, compressed."""
    return body if len(body) < _PLAIN_MAX else zlib.compress(body, 1)
