"""In which order jobs are looked at. Every key ends in `(release, id)`, so that equal input gives equal output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from headway.errors import InvalidInput
from headway.model.instant import NEVER
from headway.model.snapshot import JobView

Key = Callable[[JobView], Any]


def by_release(job: JobView) -> Any:
    """First come, first served."""
    return job.order


def by_estimate(job: JobView) -> Any:
    """Shortest task first."""
    return job.estimate, job.order


def by_width(job: JobView) -> Any:
    """Widest first."""
    return -job.width, job.order


def by_due(job: JobView) -> Any:
    """Earliest due date first; jobs without one last."""
    return job.due, job.order


def by_priority(job: JobView) -> Any:
    """Highest priority first (Lin14, reading: equal priorities by submission, then id)."""
    return -job.priority, job.order


def with_due_date_by_priority(job: JobView) -> Any:
    """Jobs with a due date by priority, then the others by priority."""
    return job.due == NEVER, -job.priority, job.order


ORDERS: Final[dict[str, Key]] = {
    "release": by_release,
    "shortest": by_estimate,
    "widest": by_width,
    "due": by_due,
    "priority": by_priority,
}
"""The orders a person can name."""


def require_order(name: str) -> None:
    """Raise `InvalidInput` unless it names an order."""
    if name not in ORDERS:
        raise InvalidInput("order", name, ", ".join(ORDERS))


def ordered(jobs: Iterable[JobView], order: str) -> list[JobView]:
    """The jobs in the named order; those that wait are in order of release already."""
    return list(jobs) if order == "release" else sorted(jobs, key=ORDERS[order])
