"""What the runners of an attempt have told: read from the shared folder, and what follows from it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from headway.engines.base import Report
from headway.engines.slurm.attempt import Attempt, NodePart
from headway.engines.slurm.folder import SlurmFolder
from headway.engines.slurm.written import records

log = logging.getLogger(__name__)

Told = list[tuple[NodePart, list[bytes], int]]
"""The new records of an attempt by part, and where the next ones begin."""


def fresh(folder: SlurmFolder, attempt: Attempt) -> Told:
    """Read the new records of an attempt; this may wait for a network file system."""
    found = []
    for part in attempt.parts:
        with suppress(OSError):  # it is written in this moment, or was removed, or can be read another time
            found.append((part, *records(folder.of(attempt.key, part.number) / "told", part.offset)))
    return found


def hear(attempt: Attempt, told: Told, now: float) -> Iterator[Report]:
    """What follows from new records."""
    for part, bodies, offset in told:
        part.offset = offset
        for body in bodies:
            try:
                yield from attempt.hear(part, body, now)
            except (msgspec.MsgspecError, ValueError) as error:  # whatever wrote there: its end is not known by it
                log.warning("job %d, task %d, attempt %d told what cannot be read: %s", *attempt.key, error)
