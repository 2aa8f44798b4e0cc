"""The task that huey's workers run. Its queue is in the file $HUEY_FILE, with each commit written to the disk."""

from __future__ import annotations

import os

from huey import SqliteHuey

huey = SqliteHuey(filename=os.environ["HUEY_FILE"], fsync=True)


@huey.task()
def same(value: int) -> int:
    """Return the argument."""
    return value
