"""What came of earlier bounds, kept in a file: where a process that makes forecasts ends, the next one goes on.

The file is `DATA/track-record`: a line with its format and the SHA-256 of what follows, which is MessagePack. It
belongs to one history of the journal, because it names jobs by their ids. Nothing that was promised depends on it. So
what cannot be used is set aside, and learnt from the beginning. One process writes it: that which makes forecasts for
the server.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from headway.foresight.chances import Chances, KeptTrackRecord, TrackRecord
from headway.live.store.layout import TRACK_RECORD
from headway.private import write_private

RECORD_FORMAT: Final = 2
"""Of the file. Where its numbers mean something else, as with other levels or horizons, it needs another one."""

RECORD_SIZE_MAX: Final = 32 << 20
"""A file with more bytes is no track record: one has 16 MB at most, see `calibration.MEMORY` and `chances.KEPT`."""

ASIDE: Final = ".aside"
"""What cannot be used has this at the end of its name; there is one such file at most, the last one."""

_HEAD: Final = re.compile(rb"headway track record (\d{1,9}) (.*)")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Content:
    """What follows the first line; `epoch` is the name of the journal's history."""

    epoch: str
    starts: KeptTrackRecord
    ends: KeptTrackRecord


_content: Final = msgspec.msgpack.Decoder(_Content)


class TrackRecordFile:
    """The file of a data directory.

    Args:
        folder: the data directory.
        epoch: the name of its journal's history.
    """

    def __init__(self, folder: Path, epoch: str) -> None:
        self._path = folder / TRACK_RECORD
        self._epoch = epoch
        self._written = b""

    def read(self) -> Chances:
        """What was kept; nothing, if there is no file. One that cannot be used is set aside, and the log says so."""
        try:
            return self._chances_of(_bytes_of(self._path))
        except FileNotFoundError:
            return Chances()
        except OSError as error:
            self._set_aside(f"it cannot be read: {error.strerror or error}")
        except ValueError as error:
            self._set_aside(str(error))
        return Chances()

    def write(self, chances: Chances) -> None:
        """Keep what has been learnt, unless it is as it was; whole or not at all, for this account alone.

        Raises:
            HeadwayError: the disk is full, or the folder takes no files.
        """
        body = msgspec.msgpack.encode(_Content(self._epoch, *chances.dump()))
        if body != self._written:
            write_private(self._path, b"headway track record %d %s\n" % (RECORD_FORMAT, _digest(body)) + body)
            self._written = body

    def _chances_of(self, file: bytes) -> Chances:
        line, _, body = file.partition(b"\n")
        head = _HEAD.fullmatch(line)
        if head is None:
            raise ValueError("it is no track record")
        if int(head[1]) != RECORD_FORMAT:
            raise ValueError(f"it has format {int(head[1])}, and this version of Headway reads {RECORD_FORMAT}")
        if head[2] != _digest(body):
            raise ValueError("it is damaged: its checksum is another one")
        try:
            content = _content.decode(body)
        except msgspec.MsgspecError as error:
            raise ValueError(f"its content is not that of a track record: {error}") from error
        if content.epoch != self._epoch:
            raise ValueError("it is of another history of the journal")
        return Chances(TrackRecord.restore(content.starts), TrackRecord.restore(content.ends))

    def _set_aside(self, why: str) -> None:
        aside = self._path.with_name(f"{TRACK_RECORD}{ASIDE}")
        try:
            self._path.replace(aside)
            where = f"it is now {aside.name}"
        except OSError as error:
            where = f"it cannot be renamed: {error.strerror or error}"
        log.warning("%s is not used: %s; %s. How good bounds are is learnt from the beginning", self._path, why, where)


def _digest(body: bytes) -> bytes:
    return sha256(body).hexdigest().encode()


def _bytes_of(path: Path) -> bytes:
    """The bytes of a plain file, which must not be too large.

    Raises:
        OSError: it cannot be read.
        ValueError: it is something else.
    """
    # Neither a link is followed, nor does a pipe block.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > RECORD_SIZE_MAX:
            raise ValueError("it is no track record")
        return file.read()
