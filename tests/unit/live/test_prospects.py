"""On time, at risk, late: what callers get about a job, by its forecast."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway import wire
from headway.core.views import view_of
from headway.live.forecasts import NO_OUTLOOK, STILL_MADE, Outlook
from headway.live.prospects import Prospect, of_ended, of_open, told
from headway.model.actions import JobStatus
from headway.model.forecast import Awaited, Bounds, Chance, Expected, Forecast
from headway.model.instant import SECOND
from headway.model.job import PenaltyShape
from headway.model.seen import JobView
from headway.testing import job


def in_time(found: Prospect) -> Prospect:
    """Without what it costs, and as of when it is expected."""
    return found._replace(penalty=0.0, penalty_expected=None, expected_at=None)


def view(**terms: object) -> JobView:
    return view_of(job(1, **terms), SECOND)


def outlook(*expected: Expected, made: int = 0, until: int | None = None) -> Outlook:
    forecast = Forecast(made, until, SECOND, expected)
    return Outlook(forecast, {one.job: one for one in expected})


@pytest.mark.parametrize(
    ("end", "now", "word", "late"),
    [
        (80, 0, "on time", None),
        (90, 0, "on time", None),
        (91, 0, "at risk", None),
        (100, 0, "at risk", None),
        (101, 0, "late", 1),
        (101, 105, "late", 5),  # it should have ended
    ],
)
def test_by_its_expected_end(end: int, now: int, word: str, late: int | None) -> None:
    found = in_time(of_open(view(due=100), outlook(Expected(1, 0, end * SECOND)), now * SECOND))
    assert found == Prospect(word, 0, end * SECOND, None if late is None else late * SECOND)  # type: ignore[arg-type]


def test_without_a_due_date_there_is_nothing_to_keep() -> None:
    assert in_time(of_open(view(), outlook(Expected(1, 2, 3)), 0)) == Prospect(None, 2, 3)


def test_what_rests_on_assumptions_is_not_known_but_for_what_is_late_already() -> None:
    assumed = outlook(Expected(1, 2, 3, (), (7,), (7, 1)))
    assert in_time(of_open(view(due=99), assumed, 0)) == Prospect("unknown", 2, 3, None, (7, 1))
    assert in_time(of_open(view(due=99), assumed, 100 * SECOND)) == Prospect("late", 2, 3, SECOND, (7, 1))


def test_what_is_never_to_end_is_not_known_and_what_was_not_looked_at_not_computed() -> None:
    assert in_time(of_open(view(due=99), outlook(Expected(1)), 0)) == Prospect("unknown")
    assert in_time(of_open(view(due=99), outlook(Expected(1, 5), until=9), 0)) == Prospect("not computed", 5)
    assert in_time(of_open(view(due=99), outlook(Expected(1, 5), until=104 * SECOND), 0)) == Prospect(
        "late", 5, None, 5 * SECOND
    )
    assumed = outlook(Expected(1, 5, end_assumes=(7,)), until=104 * SECOND)
    assert in_time(of_open(view(due=99), assumed, 0)) == Prospect("unknown", 5, assumes=(7,))
    for nothing, lack in (
        (Outlook(lack="too many"), "too many"),
        (outlook(Expected(2, 0, 1)), STILL_MADE),
        (NO_OUTLOOK, ""),
    ):
        assert in_time(of_open(view(due=99), nothing, 0)) == Prospect("not computed", lack=lack)
        assert in_time(of_open(view(), nothing, 0)) == Prospect(lack=lack)
        assert in_time(of_open(view(due=99), nothing, 100 * SECOND)) == Prospect("late", late=SECOND, lack=lack)


def test_a_task_without_an_estimate_is_waited_for_nobody_knows_how_long() -> None:
    awaits = (Awaited(7, 0, 1 << 3, None, 8 * SECOND), Awaited(8, 1, 1 << 3, 8 * SECOND, 9 * SECOND))
    names = lambda slots: tuple(map(str, slots))  # noqa: E731
    known = (wire.AwaitedReport(7, 0, ("3",), None, 8.0), wire.AwaitedReport(8, 1, ("3",), 8.0, 9.0))
    assert told(Expected(1, 0, 0, awaits), names) == known
    unknown = wire.AwaitedReport(7, 0, ("3",), None, None)
    assert told(Expected(1, 0, 0, awaits, (7,)), names) == (unknown, known[1])


def test_it_is_said_as_of_when_that_is_expected_and_what_it_does_not_include() -> None:
    old = replace(outlook(Expected(1, 0, 80 * SECOND), made=7 * SECOND), behind=3)
    told = of_open(view(due=100), old, 9 * SECOND).told()
    assert (told["expected_at"], told["behind"]) == (7.0, 3)
    of_another = of_open(view(due=100), replace(outlook(Expected(2, 0, 1)), behind=3), 9 * SECOND).told()
    assert (of_another["expected_at"], of_another["behind"]) == (None, 0)


def test_what_has_begun_since_the_forecast_is_not_expected_to_start() -> None:
    wide, bag = (view_of(one, SECOND) for one in (job(1, width=2), job(1, tasks=2)))
    bounds = Bounds(*(6 * SECOND,) * 5)
    old = replace(outlook(Expected(1, 5 * SECOND, 80 * SECOND, chance=Chance(bounds, bounds, None, 40))), behind=3)
    for view, begun in ((wide, False), (bag, False), (wide, True), (bag, True)):
        view.attempts = {0: None} if begun else {}  # type: ignore[dict-item]
        found = of_open(view, old, 9 * SECOND)
        assert found.chance is not None
        assert found.chance.end == bounds
        left = not (begun and view is wide)  # one task of the bag still waits
        assert (found.expected_start, found.chance.start) == ((5 * SECOND, bounds) if left else (None, None))
    assert of_open(wide, replace(old, behind=0), 9 * SECOND).expected_start == 5 * SECOND


def test_when_its_due_date_has_passed_it_is_not_on_time_whatever_an_older_forecast_says() -> None:
    bounds = Bounds(*[101 * SECOND] * 5)
    found = outlook(Expected(1, 0, 101 * SECOND, chance=Chance(None, bounds, 0.4, 40)))
    for now, on_time in ((100, 0.4), (102, 0.0)):
        chance = of_open(view(due=100), found, now * SECOND).chance
        assert chance is not None
        assert (chance.on_time, chance.end) == (on_time, bounds)


def test_a_cancelled_job_is_neither() -> None:
    ending = view(due=99)
    ending.cancelled = True
    assert in_time(of_open(ending, outlook(Expected(1, None, 5)), 0)) == Prospect()


def test_an_ended_job_kept_its_due_date_or_not_only_if_it_succeeded() -> None:
    spec = job(1)
    assert in_time(of_ended(spec, JobStatus.SUCCEEDED, 5, 5)) == Prospect("on time")
    assert in_time(of_ended(spec, JobStatus.SUCCEEDED, 5, 8)) == Prospect("late", late=3)
    assert of_ended(spec, JobStatus.SUCCEEDED, None, 8) == Prospect()
    for status in (JobStatus.CANCELLED, JobStatus.FAILED):
        assert in_time(of_ended(spec, status, 5, 5)) == in_time(of_ended(spec, status, 5, 8)) == Prospect()


@pytest.mark.parametrize(
    ("shape", "so_far", "at_the_end"),
    [(PenaltyShape.LINEAR, 8.0, 50.0), (PenaltyShape.SQUARE_ROOT, 4.0, 10.0), (PenaltyShape.SQUARE, 32.0, 1250.0)],
)
def test_lateness_costs_the_rate_times_its_shape(shape: PenaltyShape, so_far: float, at_the_end: float) -> None:
    """Rate 2; due at 100 s, and now it is 104 s; it ends at 125 s."""
    late = view(due=100, rate=2.0, shape=shape)
    ends = outlook(Expected(1, 0, 125 * SECOND))
    found = of_open(late, ends, 104 * SECOND)
    assert (found.penalty, found.penalty_expected) == (so_far, at_the_end)
    assert of_open(late, ends, 50 * SECOND)[-2:] == (0.0, at_the_end)
    assert of_open(late, NO_OUTLOOK, 104 * SECOND)[-2:] == (so_far, None)
    assumed = outlook(Expected(1, 0, 125 * SECOND, (), (), (7,)))
    assert of_open(late, assumed, 104 * SECOND)[-2:] == (so_far, None), "nobody knows when it ends"
    assert of_open(view(rate=2.0), ends, 104 * SECOND)[-2:] == (0.0, None), "it has no due date"
    for status in (JobStatus.SUCCEEDED, JobStatus.FAILED):
        assert of_ended(late.spec, status, 100 * SECOND, 125 * SECOND)[-2:] == (at_the_end, at_the_end)
        assert of_ended(late.spec, status, 100 * SECOND, 99 * SECOND)[-2:] == (0.0, 0.0)
    assert of_ended(late.spec, JobStatus.CANCELLED, 100 * SECOND, 125 * SECOND)[-2:] == (0.0, None)
