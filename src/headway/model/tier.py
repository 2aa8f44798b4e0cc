"""The two places of a slot: what runs in the background uses what the foreground leaves of the processor (MEASY14)."""

from __future__ import annotations

from enum import IntEnum


class Tier(IntEnum):
    """In which of the two places of its slots an attempt runs."""

    FOREGROUND = 0
    """It has the processor whenever it needs it."""

    BACKGROUND = 1
    """It has the processor while the foreground leaves it idle."""
