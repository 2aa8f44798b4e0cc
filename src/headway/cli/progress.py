"""Progress of long work: bars on the terminal, if the output is one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event, Thread
from typing import Final

DRAW_SECONDS: Final = 0.2
"""How often bars are drawn."""


@contextlib.contextmanager
def progress(totals: Mapping[str, int], look: Callable[[], Sequence[int]]) -> Iterator[None]:
    """Draw a bar for each total while the body runs, and remove them afterwards.

    Args:
        totals: the number to which each bar counts, by its name.
        look: the present number of each; called in another thread.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    over = Event()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        drawn = [bars.add_task(name, total=total) for name, total in totals.items()]

        def draw() -> None:
            while not over.wait(DRAW_SECONDS):
                for bar, completed in zip(drawn, look(), strict=True):
                    bars.update(bar, completed=completed)

        drawing = Thread(target=draw, daemon=True)
        drawing.start()
        try:
            yield
        finally:
            over.set()
            drawing.join()
