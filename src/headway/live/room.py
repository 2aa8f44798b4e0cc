"""Room on the disk: a reserve that nothing new may use, and a limit for all kept output.

When less than the reserve is free, no submission and no upload is accepted, and of output only what fits into a result
is kept. So the reserve is left for accepted jobs, whose results are still stored. The same holds for uploads and output
when everything that is kept together reaches its limit. Both states end by themselves when there is room again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from headway.errors import NoRoom
from headway.live.clock import Alarm, Clock
from headway.model.instant import SECOND, Duration, Instant

log = logging.getLogger(__name__)

RESERVE: Final = 256 << 20
"""The default reserve in bytes, ..."""

RESERVE_SHARE: Final = 20
"""... or the size of the disk divided by this, if that is less."""

OUTPUTS_SHARE: Final = 4
"""By default, all kept output takes at most the size of the disk divided by this."""

LOG_MAX: Final = 512 << 20
"""If the journal's write-ahead log has more bytes, nothing new is accepted."""

LOOK_COUNTS_FOR: Final[Duration] = SECOND // 100
"""So long a look at the disk counts for submissions: less is written meanwhile than the reserve is good for."""

DISK_LOOK_EVERY: Final[Duration] = 2 * SECOND
"""How often the disk is looked at, besides whenever something new comes."""

_MORE: Final = "Make room on it, or start the server with a smaller --reserve."
_FEWER: Final = (
    "Acknowledge or clear results that are not needed; uploads are deleted `--keep-uploads` after their last use. Or"
    " start the server with a larger --storage-max."
)

_BACK: Final = 8
"""There is room again when one part in this many more than the reserve is free; so incidents do not alternate."""


class Stored(Protocol):
    """What is kept for callers."""

    stored: int


class NeededByRoom(Protocol):
    """What is needed of the journal."""

    @property
    def retained(self) -> Stored:
        """How much is kept of output and uploads."""
        ...

    def log_size(self) -> int:
        """Bytes of the write-ahead log."""
        ...


class Free(NamedTuple):
    """A file system: its size in bytes, and how many of them this process may still use."""

    size: int
    free: int


@dataclass(frozen=True, slots=True)
class DiskBounds:
    """How much of the disk may be used, in bytes.

    Attributes:
        reserve: stays free for accepted jobs; None: `RESERVE`, or less on a small disk; 0: none.
        outputs: limit for kept output and uploads together; None: a quarter of the disk.
    """

    reserve: int | None = None
    outputs: int | None = None

    def on(self, size: int) -> tuple[int, int]:
        """Both, on a disk of this size."""
        reserve = min(RESERVE, size // RESERVE_SHARE) if self.reserve is None else self.reserve
        return reserve, size // OUTPUTS_SHARE if self.outputs is None else self.outputs


def free_on(folder: Path) -> Free:
    """The size and the free space of the disk that a folder is on.

    Raises:
        OSError: they cannot be found out.
    """
    found = os.statvfs(folder)
    return Free(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


class Room:
    """Says what there is room for, in the driver's event loop.

    Args:
        folder: its disk is looked at.
        bounds: what may be used of it.
        store: the journal: how much output it keeps, and how large its log is.
        incident: records what an operator should know, see `Driver.incident`.
        clock: the source of time.
        is_busy: whether there are jobs, which may write.
        measure: looks at a disk.

    Attributes:
        reserve, outputs_max: the bounds, in bytes.
        free: bytes that were free when it was last looked at.
        short: why nothing new is accepted; empty while it is.
        held: why nothing new is accepted although the disk has room; empty while it is accepted.
        crowded: why no upload is accepted, and no output kept whole; empty while they are.
    """

    def __init__(
        self,
        folder: Path,
        bounds: DiskBounds,
        store: NeededByRoom,
        incident: Callable[[str, str, str], None],
        clock: Clock,
        is_busy: Callable[[], bool],
        measure: Callable[[Path], Free] = free_on,
    ) -> None:
        self._folder = folder
        self._store = store
        self._incident = incident
        self._clock = clock
        self._is_busy = is_busy
        self._measure = measure
        self._alarm = Alarm(clock, self._ring)
        self._looked_at: Instant = -DISK_LOOK_EVERY
        self._is_blind = False
        size, self.free = measure(folder)
        self.reserve, self.outputs_max = bounds.on(size)
        self.short = self.crowded = self.held = ""

    def follow(self) -> None:
        """Look at the disk at intervals while there are jobs or room is short; called after each turn."""
        if self._alarm.at is None and (self._is_busy() or self.short or self.crowded or self.held):
            now = self._clock.now()
            if self._looked_at + DISK_LOOK_EVERY <= now:
                self.look()
            self._alarm.set(now + DISK_LOOK_EVERY)

    def stop(self) -> None:
        """Stop looking at the disk."""
        self._alarm.stop()

    def _ring(self) -> None:
        self.look()
        self.follow()

    @property
    def stored(self) -> int:
        """Bytes of the output and uploads that are kept."""
        return self._store.retained.stored

    def look(self) -> None:
        """Look at the disk; an incident says when room ends, and when it is back."""
        self._looked_at = self._clock.now()
        try:
            self.free = self._measure(self._folder).free
        except OSError as error:
            if not self._is_blind:
                log.warning("the free space on the disk of %s is not known: %s", self._folder, error.strerror or error)
            self._is_blind = True
            return
        self._is_blind = False
        place = str(self._folder)
        if not self.short and self.free < self.reserve:
            self.short = f"the disk of {place} has {_mib(self.free)} free, its reserve is {_mib(self.reserve)}"
            self._incident("disk_short", place, f"{self.short}: nothing new is taken on; what was accepted goes on")
        elif self.short and self.free >= self.reserve + self.reserve // _BACK:
            self.short = ""
            self._incident("disk_enough", place, f"{_mib(self.free)} are free: new work is accepted again")
        stored = self.stored
        if not self.crowded and stored >= self.outputs_max:
            self.crowded = f"output and uploads take {_mib(stored)}, allowed are {_mib(self.outputs_max)}"
            said = f"{self.crowded}: no upload is taken on, and of output the last part is kept"
            self._incident("outputs_full", place, said)
        elif self.crowded and stored <= self.outputs_max - self.outputs_max // _BACK:
            self.crowded = ""
            said = f"output and uploads take {_mib(stored)}: uploads are taken on and output is kept whole again"
            self._incident("outputs_fit", place, said)

        log_size = self._store.log_size()
        if not self.held and log_size > LOG_MAX:
            self.held = f"the log of the journal has {_mib(log_size)}, for another program has been reading it for long"
            said = f"{self.held}: nothing new is taken on until that ends; what was accepted goes on"
            self._incident("journal_held", place, said)
        elif self.held and log_size <= LOG_MAX // 2:
            self.held = ""
            self._incident("journal_free", place, "the journal is no longer locked: new work is accepted again")

    def check_work(self, gives: Callable[[], bool] = lambda: False) -> None:
        """Check that there is room for a submission; `gives` says whether its tasks give files to be kept.

        Raises:
            NoRoom: there is none.
        """
        if self._looked_at + LOOK_COUNTS_FOR <= self._clock.now():
            self.look()
        if self.short:
            raise NoRoom(f"{self.short}: no submission is taken on", f"{_MORE} What was accepted goes on meanwhile.")
        if self.held:
            raise NoRoom(f"{self.held}: no submission is taken on", "End that program; `fuser` names it.")
        if self.crowded and gives():
            raise NoRoom(f"{self.crowded}: no submission is taken on whose tasks give files to be kept", _FEWER)

    def check_file(self, size: int) -> None:
        """Check that there is room for a file of this many bytes, 0 if the size is not known.

        Raises:
            NoRoom: there is none.
        """
        self.look()
        it = f"an upload of {_mib(size)}" if size else "an upload"
        if self.short or self.free - size < self.reserve:
            said = f"the disk of {self._folder} has {_mib(self.free)} free, its reserve is {_mib(self.reserve)}"
            raise NoRoom(f"{said}: {it} is not taken on", _MORE)
        if self.crowded or self.stored + size > self.outputs_max:
            said = f"output and uploads take {_mib(self.stored)}, allowed are {_mib(self.outputs_max)}"
            raise NoRoom(f"{said}: {it} is not taken on", _FEWER)

    def keeps(self, size: int) -> bool:
        """Whether this many bytes of output are kept as a file, besides the last part in the result."""
        return not self.short and not self.crowded and self.stored + size <= self.outputs_max


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
