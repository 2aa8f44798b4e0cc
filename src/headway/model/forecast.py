"""What is expected of open jobs by their estimates: when each starts and ends, and what it waits for until then."""

from __future__ import annotations

from typing import Final

from headway.model.instant import Duration, Instant
from headway.model.job import JobId
from headway.model.value import value

AWAITED_MAX: Final = 8
"""Attempts that are named of those a job waits for: the ones that end last."""

ASSUMED_MAX: Final = 8
"""Jobs without an estimate that are named."""

RISK: Final = 10
"""A job is at risk if it would be late should all that is left take one part in so many longer."""


@value
class Awaited:
    """A task that a job waits for: it runs on slots that the job is expected to get, or comes before its next task.

    Attributes:
        slots: where it runs, as far as the job is expected to run there too.
        start: when it is expected to start; None if it runs already.
        end: when it is expected to leave them.
    """

    job: JobId
    task: int
    slots: tuple[int, ...]
    start: Instant | None
    end: Instant


@value
class Expected:
    """What is expected of one job.

    Attributes:
        start: when the next of its tasks starts; None if none does.
        end: when the job ends; None if the forecast did not find it.
        awaits: what runs until then on the slots where it starts next, and tasks of its own that come before.
        start_assumes, end_assumes: jobs that gave no estimate and whose tasks were assumed to run as long as the core's
            default until this instant, or as far as the forecast goes; if there are any, the time is only an example.
        penalty: what the job costs if it ends at `end`, by its due date, rate and shape; 0 if `end` is None.
    """

    job: JobId
    start: Instant | None = None
    end: Instant | None = None
    awaits: tuple[Awaited, ...] = ()
    start_assumes: tuple[JobId, ...] = ()
    end_assumes: tuple[JobId, ...] = ()
    penalty: float = 0.0


@value
class Forecast:
    """What is expected of the open jobs if nothing happens but what follows from what is there.

    Attributes:
        made: the instant of the state it was made from.
        until: how far it looked; None: until nothing more happens.
        assumed: what a task of a job without an estimate was assumed to run.
        jobs: every open job.
        failure: why it was broken off, where something went wrong.
    """

    made: Instant
    until: Instant | None
    assumed: Duration
    jobs: tuple[Expected, ...]
    failure: str = ""


def is_at_risk(made: Instant, end: Instant, due: Instant) -> bool:
    """Whether a job that is expected to end in time would be late if all took a little longer, see `RISK`."""
    return end + (end - made) // RISK > due
