"""The orders in which jobs are looked at. Every key ends in `(release, id)` or `id`: equal input gives equal output."""

from __future__ import annotations

from typing import Any, Final

from headway.errors import InvalidInput, did_you_mean
from headway.model.instant import NEVER
from headway.model.queue import Key, by_order
from headway.model.seen import JobView


def by_estimate(job: JobView) -> Any:
    """Shortest task first."""
    return job.estimate, job.order


def by_width(job: JobView) -> Any:
    """Widest first."""
    return -job.width, job.order


def by_weight(job: JobView) -> Any:
    """Highest penalty rate per slot time first: weighted shortest processing time.

    One after the other on one machine, jobs in order of weight per time have the least weighted sum of completions. For
    jobs with several slots the time is the area: tasks times slots times estimate.

    Source: W. E. Smith, "Various optimizers for single-stage production", Naval Research Logistics Quarterly 3, 1956.
    """
    return -job.spec.rate / (max(1, job.estimate) * job.width * job.tasks), job.order


def by_due(job: JobView) -> Any:
    """Earliest due date first; jobs without one last."""
    return job.due, job.order


def by_priority(job: JobView) -> Any:
    """Highest priority first (Lin14, reading: equal priorities by submission, then id)."""
    return -job.priority, job.order


def with_due_date_by_priority(job: JobView) -> Any:
    """Jobs with a due date by priority, then the others by priority."""
    return job.due == NEVER, -job.priority, job.order


def without_due_date_by_priority(job: JobView) -> Any:
    """Jobs without a due date by priority, then the others by priority."""
    return job.due != NEVER, -job.priority, job.order


def workflows_first(job: JobView) -> Any:
    """Workflows in order of submission, then the other jobs."""
    return not job.graph, job.id


def workflows_last(job: JobView) -> Any:
    """Bags and rigid jobs in order of submission, then workflows."""
    return bool(job.graph), job.id


ORDERS: Final[dict[str, Key]] = {
    "release": by_order,
    "shortest": by_estimate,
    "widest": by_width,
    "weighted": by_weight,
    "due": by_due,
    "priority": by_priority,
}
"""The orders that users can name."""


def check_order(name: str, field: str = "order") -> None:
    """Raise `InvalidInput` unless it names an order."""
    if name not in ORDERS:
        raise InvalidInput(field, name, ", ".join(ORDERS), hint=did_you_mean(name, ORDERS))
