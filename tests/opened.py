"""What this process has open."""

from __future__ import annotations

import gc
import os


def descriptors() -> list[str]:
    """The descriptors that are open; those of what an earlier test left to the collector are closed first."""
    gc.collect()
    return os.listdir("/proc/self/fd")
