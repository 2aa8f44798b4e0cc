"""What a task does that notes when it runs: by itself, for the process of each task imports this file."""

from __future__ import annotations

import os
import time


def noted(number: int, log: str, seconds: float, gate: str = "") -> int:
    """Notes in one write that it runs, waits until there is a file if one is named, and takes a while."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{number}\n".encode())
    os.close(file)
    while gate and not os.path.exists(gate):
        time.sleep(0.01)
    time.sleep(seconds)
    return number
