"""What came of bounds teaches the next ones, however often somebody asks."""

from __future__ import annotations

import numpy as np
import pytest

from headway.foresight.chances import REMEMBERED_FORECASTS, TrackRecord
from headway.model.instant import SECOND, Instant

HOUR = 3600.0
BOUNDS = np.array([0.5, 0.8, 1.0, 1.2, 1.4, 1.5]) * HOUR


def after(hours: float) -> Instant:
    return round(hours * HOUR * SECOND)


def told_every(record: TrackRecord, seconds: float, *, takes: float, jobs: int) -> np.ndarray:
    """One job after the other is expected to take an hour and takes longer; meanwhile somebody asks again and again.

    Returns the bounds that are told at the end of a job that is expected to take an hour.
    """
    came: dict[int, Instant] = {}
    for job in range(jobs):
        begin = after(takes) * job
        for at in range(begin, begin + after(takes), round(seconds * SECOND)):
            record.learn(came, (), at)
            left = np.maximum(BOUNDS - (at - begin) / SECOND, 1.0)
            record.told(at, (job,), left[None, :])
        came[job] = begin + after(takes)
    record.learn(came, (), after(takes) * jobs)
    return record.told(after(takes) * (jobs + 100), (jobs,), BOUNDS[None, :])[0]


def test_jobs_that_take_longer_than_all_bounds_move_them_until_they_hold() -> None:
    corrected = told_every(TrackRecord(), 2 * HOUR, takes=2.0, jobs=100)
    assert np.allclose(corrected, 2 * HOUR, rtol=0.01)


def test_who_asks_all_the_time_is_told_about_the_same_as_who_asks_seldom() -> None:
    seldom = told_every(TrackRecord(), 1200, takes=1.2, jobs=40)
    often = told_every(TrackRecord(), 60, takes=1.2, jobs=40)
    assert np.allclose(np.log(often), np.log(seldom), atol=0.35)


def test_a_job_that_ends_early_counts_when_its_bounds_have_passed() -> None:
    """Those of its forecast that take long would come later, and until then the short ones would count alone."""
    record = TrackRecord()
    for job in range(40):
        at = after(job)
        record.told(at, (job,), BOUNDS[None, :])
        record.learn({job: at + after(0.6 + 0.02 * job)}, (), at + after(1.5))
    at, early = after(1000), after(1000.1)
    record.told(at, (100, 101), np.array([BOUNDS, 20 * BOUNDS]))
    before = record.moved(BOUNDS[None, :])
    record.learn({100: early}, (), after(1001))
    assert (record.moved(BOUNDS[None, :]) == before).all()
    record.learn({100: early}, (), after(1003))
    assert (record.moved(BOUNDS[None, :]) < before).any()


def test_of_bounds_that_nobody_is_told_it_is_not_counted_whether_they_hold() -> None:
    """What comes of them is learnt all the same, when all of it has come."""
    record = TrackRecord()
    for job in range(40):
        record.told(after(job), (job,), BOUNDS[None, :])
        record.learn({job: after(job + 0.6 + 0.02 * job)}, (), after(job + 1.5))
    before = record.moved(BOUNDS[None, :])
    record.told(after(1000), (100, 101), np.tile(BOUNDS, (2, 1)), rehearsed=True)
    record.learn({100: after(1001)}, (), after(1010))
    assert (record.moved(BOUNDS[None, :]) == before).all()
    record.learn({100: after(1001), 101: after(1030)}, (), after(1030))
    assert (record.moved(BOUNDS[None, :]) > before).any()
    assert record.open_jobs == set()
    record.told(after(2000), (102, 103), np.tile(BOUNDS, (2, 1)))
    before = record.moved(BOUNDS[None, :])
    record.learn({102: after(2001)}, (), after(2050))
    assert (record.moved(BOUNDS[None, :]) != before).any()


@pytest.mark.parametrize(("every", "share"), [(3.0, 0.9), (0.1, 0.92)])
def test_bounds_have_a_margin_where_forecasts_have_to_wait_for_what_comes(every: float, share: float) -> None:
    """Jobs take an hour or two: with a forecast in three hours none waits, with ten an hour there are always ten."""
    rng = np.random.default_rng(1)
    record, came, held = TrackRecord(), dict[int, Instant](), []
    for number in range(900):
        at, jobs = after(every * number), tuple(range(10 * number, 10 * number + 10))
        record.learn({job: end for job, end in came.items() if end <= at}, (), at)
        low, *_, high = record.told(at, jobs, np.tile(BOUNDS, (10, 1)))[0]
        takes = HOUR * np.exp(0.2 * rng.standard_normal(10))
        came = {job: end for job, end in came.items() if end > at - after(10.0)}
        came |= {job: at + round(took * SECOND) for job, took in zip(jobs, takes.tolist(), strict=True)}
        if number >= 300:
            held += ((low <= takes) & (takes <= high)).tolist()
    assert np.mean(held) == pytest.approx(share, abs=0.01)


def test_a_job_that_was_cancelled_teaches_nothing_and_is_not_asked_for() -> None:
    record = TrackRecord()
    record.told(0, (1, 2), np.tile(BOUNDS, (2, 1)))
    assert record.open_jobs == {1, 2}
    record.learn({}, {1}, after(0.1))
    assert record.open_jobs == {2}
    record.learn({2: after(1)}, (), after(1))
    assert record.open_jobs == set()


def test_what_is_never_resolved_is_forgotten() -> None:
    record = TrackRecord()
    for number in range(REMEMBERED_FORECASTS + 50):
        record.told(after(number), (number,), BOUNDS[None, :])
    assert len(record.open_jobs) == REMEMBERED_FORECASTS
