"""`headway up` with a wall clock that another process may set, and one of two event loops.

    python tests/chaos/up.py CLOCK uvloop|asyncio [OPTION OF HEADWAY UP]...

The file CLOCK contains eight bytes: how many nanoseconds the wall clock is ahead of the machine's, signed,
little-endian. Only the wall clock is set, as an operator or a time service would. The monotonic clock is not changed.
"""

from __future__ import annotations

import asyncio
import mmap
import sys
import time
from pathlib import Path

import uvloop


def main(offset: str, loop: str, words: list[str]) -> None:
    """Serve until stopped."""
    with Path(offset).open("rb") as file:
        step = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    true_ns = time.time_ns

    def time_ns() -> int:
        return true_ns() + int.from_bytes(step[:8], "little", signed=True)

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9
    from headway.cli.main import main as headway

    if loop == "asyncio":
        uvloop.run = asyncio.run
    sys.argv = ["headway", "up", *words]
    headway()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
