"""What an agent writes into its log."""

from __future__ import annotations

from contextlib import suppress


def say(text: str) -> None:
    """Write a line into the log, unless its disk is full: then what it tells of goes on all the same."""
    with suppress(OSError):
        print(text, flush=True)
