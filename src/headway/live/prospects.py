"""What reports say about when a job starts and ends, and whether that is in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from headway import wire
from headway.live.forecasts import STILL_MADE, Outlook
from headway.model.actions import JobStatus
from headway.model.forecast import AWAITED_MAX, Bounds, Chance, Expected, is_at_risk
from headway.model.instant import NEVER, Duration, Instant, to_seconds
from headway.model.job import JobId, JobSpec
from headway.model.seen import AttemptView, JobView
from headway.model.slots import numbers

SlotNames = Callable[[Iterable[int]], tuple[str, ...]]


class Prospect(NamedTuple):
    """What is expected of a job, with the fields of `wire.JobReport`, but in microseconds."""

    outlook: wire.OutlookWord | None = None
    expected_start: Instant | None = None
    expected_end: Instant | None = None
    late: Duration | None = None
    assumes: tuple[JobId, ...] = ()
    lack: str = ""
    chance: Chance | None = None
    expected_at: Instant | None = None
    behind: int = 0
    penalty: float = 0.0
    penalty_expected: float | None = None

    def told(self) -> dict[str, Any]:
        """The fields of a report, in seconds."""
        instants = ("expected_at", "expected_start", "expected_end", "late")
        times = {name: seconds(getattr(self, name)) for name in instants}
        others = ("outlook", "assumes", "behind", "lack", "penalty", "penalty_expected")
        return {**times, **{name: getattr(self, name) for name in others}, "chance": chance_report(self.chance)}


def seconds(microseconds: int | None) -> float | None:
    """A time as callers get it."""
    return None if microseconds is None else to_seconds(microseconds)


def chance_report(chance: Chance | None) -> wire.ChanceReport | None:
    """How sure it is when a job starts and ends, as callers get it."""
    if chance is None:
        return None
    return wire.ChanceReport(_bounds(chance.start), _bounds(chance.end), chance.on_time, chance.futures)


def _bounds(bounds: Bounds | None) -> wire.BoundsReport | None:
    if bounds is None:
        return None
    levels = bounds.low_90, bounds.low_50, bounds.median, bounds.high_50, bounds.high_90
    return wire.BoundsReport(*map(seconds, levels))


def of_open(job: JobView, outlook: Outlook, now: Instant) -> Prospect:
    """What is expected of a job that has not ended, and what its lateness costs."""
    if job.endless:
        return Prospect(penalty=job.cost)
    found = _of_open(job, outlook, now)
    expected = outlook.jobs.get(job.id)
    if expected is not None and not job.cancelled:
        assert outlook.forecast is not None
        chance = expected.chance
        if has_begun_since(job, outlook):
            found, chance = found._replace(expected_start=None), chance and replace(chance, start=None)
        if chance is not None and now > job.due:
            chance = replace(chance, on_time=0.0)  # the forecast may be older than that
        found = found._replace(chance=chance, expected_at=outlook.forecast.made, behind=outlook.behind)
    if job.cancelled or job.due >= NEVER:
        return found
    end = found.expected_end
    cost = None if end is None or found.assumes else job.spec.penalty_of(max(end, now) - job.due)
    return found._replace(penalty=job.spec.penalty_of(now - job.due), penalty_expected=cost)


def has_begun_since(job: JobView, outlook: Outlook) -> bool:
    """Whether all that is left of a job runs, so that no start of a forecast that is behind is still to come."""
    return outlook.behind > 0 and len(job.attempts) == job.unfinished


def _of_open(job: JobView, outlook: Outlook, now: Instant) -> Prospect:
    forecast, expected = outlook.forecast, outlook.jobs.get(job.id)
    if job.cancelled:
        return Prospect()
    if forecast is None or expected is None:
        word, late = _word(job.due, None, now, "not computed")
        lack = outlook.lack or ("" if forecast is None else STILL_MADE)  # the forecast may be older than the job
        return Prospect(word, late=late, lack=lack)
    start, end, assumes = expected.start, expected.end, expected.end_assumes
    if end is None:
        otherwise: wire.OutlookWord = "unknown" if assumes or forecast.until is None else "not computed"
        sure = now if assumes or forecast.until is None else max(now, forecast.until)  # it has not ended by then
        word, late = _word(job.due, None, sure, otherwise)
        return Prospect(word, start, None, late, assumes, outlook.lack)
    if assumes:
        word, late = _word(job.due, None, now, "unknown")
    else:
        word, late = _word(job.due, end, now, "at risk" if is_at_risk(forecast.made, end, job.due) else "on time")
    return Prospect(word, start, end, late, assumes)


def of_ended(spec: JobSpec, status: JobStatus, due: Instant | None, ended: Instant | None) -> Prospect:
    """What became of a job: if it succeeded, whether it kept its due date; and what it cost, unless it was cancelled.

    Args:
        spec, due: its terms as submitted, and the due date that it had at last.
    """
    if status is JobStatus.CANCELLED or due is None or ended is None:
        return Prospect()
    cost = spec.penalty_of(ended - due)
    if status is not JobStatus.SUCCEEDED:
        return Prospect(penalty=cost, penalty_expected=cost)
    late = ended - due if ended > due else None
    return Prospect("late" if late else "on time", late=late, penalty=cost, penalty_expected=cost)


def of_ended_service(cost: float) -> Prospect:
    """What the windows of a service have cost."""
    return Prospect(penalty=cost, penalty_expected=cost)


def _word(
    due: Instant, end: Instant | None, now: Instant, otherwise: wire.OutlookWord
) -> tuple[wire.OutlookWord | None, Duration | None]:
    """The outlook of a job with this end (None: not known), and by how much at least it is late."""
    if due >= NEVER:
        return None, None
    late = (now if end is None else max(end, now)) - due
    return ("late", late) if late > 0 else (otherwise, None)


def told(expected: Expected, names: SlotNames) -> tuple[wire.AwaitedReport, ...]:
    """What a job waits for by a forecast; with the end only if that has an estimate."""
    return tuple(
        wire.AwaitedReport(
            *(one.job, one.task, names(numbers(one.slots)), seconds(one.start)),
            None if one.job in expected.start_assumes else seconds(one.end),
        )
        for one in expected.awaits
    )


def on_held_slots(
    job: JobView, names: SlotNames, end: Callable[[AttemptView], Instant | None]
) -> tuple[wire.AwaitedReport, ...]:
    """What still runs on slots that are allocated to a job, soonest end first; used if there is no forecast."""
    runs = [entry[-1] for entry in job.pool.running if entry[-1].slots & job.held]
    return tuple(
        wire.AwaitedReport(one.job.id, one.task, names(numbers(one.slots & job.held)), None, seconds(end(one)))
        for one in runs[-AWAITED_MAX:]
    )
