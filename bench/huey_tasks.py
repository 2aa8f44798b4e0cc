"""The task that huey's workers run; its queue is in the file that $HUEY_FILE names, each commit written to the disk."""

from __future__ import annotations

import os

from huey import SqliteHuey

huey = SqliteHuey(filename=os.environ["HUEY_FILE"], fsync=True)


@huey.task()
def same(value: int) -> int:
    """What it is given."""
    return value
