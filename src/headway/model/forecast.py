"""What is expected of open jobs: when each starts and ends, how sure that is, and what it waits for until then."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from headway.model.instant import Duration, Instant
from headway.model.job import JobId
from headway.model.slots import Slots
from headway.model.value import value

AWAITED_MAX: Final = 8
"""Attempts that are named of those a job waits for: the ones that end last."""

ASSUMED_MAX: Final = 8
"""Jobs without an estimate that are named; those of which nothing at all is known come first."""

CANNOT: Final = "no forecast can be made"

SURE: Final = 0.9
"""With this probability a due date is to be kept, unless another is asked for."""

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
    slots: Slots
    start: Instant | None
    end: Instant


@value
class Bounds:
    """Between which instants something happens, with which probability; None: later than was looked ahead.

    Attributes:
        low_90, high_90: with 90 %: with 5 % it is sooner, with 5 % later.
        low_50, high_50: with 50 %.
        median: it is as likely sooner as later.
    """

    low_90: Instant | None
    low_50: Instant | None
    median: Instant | None
    high_50: Instant | None
    high_90: Instant | None


@value
class Chance:
    """When a job starts and ends, over many futures in which run times differ as they did in the past.

    Attributes:
        start: its first start; None: it has started, or starts in none of them.
        end: when it ends.
        on_time: with which probability it ends by its due date, 0 to 1; None: it has none.
        futures: how many there were.
    """

    start: Bounds | None
    end: Bounds | None
    on_time: float | None
    futures: int


@value
class Expected:
    """What is expected of one job, by its estimates.

    Attributes:
        start: when the next of its tasks starts; None if none does.
        end: when the job ends; None if the forecast did not find it.
        awaits: what runs until then on the slots where it starts next, and tasks of its own that come before.
        start_assumes, end_assumes: jobs that gave no estimate and whose tasks were assumed to run as long as the core's
            default until this instant, or as far as the forecast goes; if there are any, the time is only an example.
        penalty: what the job costs if it ends at `end`, by its due date, rate and shape; 0 if `end` is None.
        chance: how sure that is; None: that is not known (yet).
    """

    job: JobId
    start: Instant | None = None
    end: Instant | None = None
    awaits: tuple[Awaited, ...] = ()
    start_assumes: tuple[JobId, ...] = ()
    end_assumes: tuple[JobId, ...] = ()
    penalty: float = 0.0
    chance: Chance | None = None


@value
class Forecast:
    """What is expected of the open jobs if nothing happens but what follows from what is there.

    Attributes:
        made: the instant of the state it was made from.
        until: how far it looked; None: until nothing more happens.
        assumed: what a task of a job without an estimate was assumed to run.
        jobs: every open job.
        failure: why it was broken off, where something went wrong.
        event: the number of the last event that it includes.
        is_sure: whether it tells how sure it is. A job without a chance then has none, because nothing tells how long
            it runs, or what it waits for; otherwise that may still come.
    """

    made: Instant
    until: Instant | None
    assumed: Duration
    jobs: tuple[Expected, ...]
    failure: str = ""
    event: int = 0
    is_sure: bool = False


@value
class Advice:
    """Which due date of a job can be kept.

    Attributes:
        sure: the probability that was asked for, between 0 and 1; or the most that the futures tell, if that is less.
        due: the earliest due date that is kept with it, by a job that is submitted within a second after the answer;
            None: that is not known.
        chance: when the job starts and ends, and with which probability it keeps the due date that it has.
        slots: how many more slots would keep that date with the probability asked for; None: they are not needed, or no
            number up to as many as there are would do.
        lack: why no date is known; empty: it is.
    """

    sure: float
    due: Instant | None = None
    chance: Chance | None = None
    slots: int | None = None
    lack: str = ""


def without_basis(jobs: Iterable[Expected], unknown: AbstractSet[JobId]) -> set[JobId]:
    """Those of the jobs whose ends nothing tells: they, or others that they depend on, are `unknown`.

    Args:
        jobs: as a forecast expects them that was told of the same unknown jobs.
        unknown: nothing is known of how long these run, neither from an estimate nor from the past.
    """
    return {one.job for one in jobs if one.job in unknown or not unknown.isdisjoint(one.end_assumes)}


def is_at_risk(made: Instant, end: Instant, due: Instant) -> bool:
    """Whether a job that is expected to end in time would be late if all took a little longer, see `RISK`."""
    return end + (end - made) // RISK > due
