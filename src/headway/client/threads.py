"""What both kinds of threads of a client need."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread


def join(thread: Thread, most: float | None = None) -> None:
    """Wait until a thread has ended, or for `most` seconds.

    One whose start was interrupted by Ctrl-C may not run yet. Python cannot wait for such a thread; it sees by itself
    that it is to end.
    """
    with suppress(RuntimeError):
        thread.join(most)
