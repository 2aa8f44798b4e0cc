"""Jobs that come later: as they came in the recent past, from a random moment of it on.

Jobs that failed, or were cancelled while they ran, come too: others waited for their slots. They run for as long as
they had these, not for as long as they would have run. Jobs that were cancelled before they started do not come: in a
future nobody cancels them, so they would take slots that they never had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.live.store.past import PastJob
from headway.model.instant import NEVER, SECOND, Duration, Instant
from headway.model.workload import Workload, told_by, workload_us

PAST_SPAN: Final[Duration] = 7 * 24 * 3600 * SECOND
"""Jobs that come later are like those of so much of the recent past."""

COUNTED: Final = 500
"""About so many jobs that come are looked at one by one."""

COUNTED_SPAN: Final[Duration] = 24 * 3600 * SECOND
"""Jobs that come within a day at most are looked at one by one."""

DrawnArrivals = Callable[[np.random.Generator], Workload | None]
"""Draws jobs that come later."""


def coming(at: Instant, past: Workload, load: float = 1.0) -> DrawnArrivals | None:
    """Draws jobs that come after an instant as they came before it, at so many times their rate.

    The past is taken for a circle: a draw begins at any moment of it, and goes on at its beginning.

    Args:
        past: the jobs that came, with the run times that they had.
        load: more than 0; 1: as often as they came.

    Returns:
        None: fewer than two came in the last `PAST_SPAN`, but for those that came after others.
    """
    rows = _recent(at, past)
    if len(rows) < 2:
        return None
    came = past.take(rows)
    begin = int(came.release[0])
    length = max(1, at - begin)

    def draw(rng: np.random.Generator) -> Workload:
        offset = int(rng.integers(length))
        since = (came.release - begin - offset) % length
        order = np.argsort(since, kind="stable")
        shifted = came.take(order)
        release = at + 1 + np.rint(since[order] / load).astype(np.int64)
        moved = np.where(shifted.due >= NEVER, NEVER, shifted.due - shifted.release + release)
        return replace(shifted, release=release, due=moved)

    return draw


def _recent(at: Instant, past: Workload) -> NDArray[np.int64]:
    rows = np.flatnonzero((past.release > at - PAST_SPAN) & (past.release <= at))
    return np.array([row for row in rows.tolist() if not past.after.get(row)], dtype=np.int64)


def counted_for(at: Instant, past: Workload, load: float = 1.0) -> Duration:
    """For how long what comes is counted one by one, so that it can be compared with what comes at load 1.

    A draw has each job of the past once: what it lasts at the higher of both loads is the most.
    """
    rows = _recent(at, past)
    lasts = at - int(past.release[rows[0]])
    return round(min(COUNTED_SPAN, lasts * min(1.0, COUNTED / len(rows)) / max(1.0, load)))


def workload_of_past(jobs: Sequence[PastJob]) -> Workload:
    """Ended jobs that had slots, as a workload. Of a workflow the tasks are there, and not their order."""
    came = sorted((past for past in jobs if past.took), key=lambda past: (past.job.release, past.job.id))
    specs = [past.job for past in came]
    return workload_us(
        release=[spec.release for spec in specs],
        runtime=[past.took for past in came],
        due=[NEVER if spec.due is None else spec.due for spec in specs],
        priority=[spec.priority for spec in specs],
        **told_by(specs),
    )
