"""Measures, compared with cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import did_you_mean
from headway.metrics import measures
from headway.metrics.measures import ShareSteps
from headway.model.job import PenaltyShape
from headway.model.schedule import NOT_YET


def test_near_names_are_offered_and_far_ones_are_not() -> None:
    assert did_you_mean("Prioritty", ["priority", "due"]) == "Did you mean priority?"
    assert did_you_mean("colour", ["priority", "due"]) == ""


@pytest.mark.parametrize(
    ("wait", "run", "floor"), [([1.0], [1.0, 2.0], 10), ([-1.0], [1.0], 10), ([1.0], [-1.0], 10), ([1.0], [1.0], 0)]
)
def test_a_slowdown_of_wrong_times_is_refused(wait: list[float], run: list[float], floor: float) -> None:
    with pytest.raises(ValueError, match=r"waits and|times must be"):
        measures.bounded_slowdown(wait, run, floor)


def test_a_slowdown_is_never_below_one() -> None:
    assert measures.bounded_slowdown([0, 0, 30], [0, 100, 10]).tolist() == [1, 1, 4]


@pytest.mark.parametrize(
    ("shape", "penalty"),
    [(PenaltyShape.LINEAR, 2 * 9 + 4), (PenaltyShape.SQUARE, 2 * 81 + 16), (PenaltyShape.SQUARE_ROOT, 2 * 3 + 2)],
)
def test_the_penalty_grows_in_its_shape(shape: PenaltyShape, penalty: float) -> None:
    late = [9.0, 4.0, 0.0]
    assert measures.total_penalty([2, 1, 50], late, shape) == penalty
    assert measures.total_penalty([2, 1, 50], late, shape) == sum(
        rate * shape.of(x) for rate, x in zip([2, 1, 50], late, strict=True)
    )


def test_without_jobs_there_is_nothing_to_measure() -> None:
    assert measures.deadline_miss_rate([]) == 0
    assert measures.makespan([], []) == 0
    assert np.isnan(measures.percentiles([])).all()
    assert np.isnan(measures.utilisation(0, 0))


def steps(
    priority: list[float],
    enter: list[int],
    leave: list[int],
    *changes: tuple[int, int, int],
) -> ShareSteps:
    """`changes` are rows of instant, job, and slots from then on."""
    at, job, held = np.array(changes, dtype=np.int64).reshape(-1, 3).T
    return measures.violated_share(np.array(priority), np.array(enter), np.array(leave), at, job, held)


def test_a_job_that_waits_while_a_lower_one_holds_a_slot_is_violated() -> None:
    """`low` has slots from 0 to 10; `high` comes at 4 and waits until 10: 6 of 16 s, one of two jobs."""
    seen = steps([1, 5], [0, 4], [10, 16], (0, 0, 1), (10, 1, 1))
    assert seen.at.tolist() == [0, 4, 10, 16]
    assert seen.share.tolist() == [0, 0.5, 0, 0]
    assert seen.present.tolist() == [1, 2, 1, 0]
    assert measures.over_time(seen, 16) == pytest.approx(0.5 * 6 / 16)


def test_waiting_behind_equal_or_higher_jobs_violates_nothing() -> None:
    assert steps([5, 5, 1], [0, 0, 0], [9, 9, 9], (0, 0, 1)).share.tolist() == [0, 0]


def test_one_slot_is_enough_not_to_be_violated() -> None:
    seen = steps([1, 5], [0, 0], [9, 9], (0, 0, 7), (0, 1, 1), (3, 1, 0), (6, 1, 2))
    assert dict(zip(seen.at.tolist(), seen.share.tolist(), strict=True)) == {0: 0, 3: 0.5, 6: 0, 9: 0}


def test_every_job_above_the_lowest_holder_counts() -> None:
    seen = steps([1, 2, 3, 4], [0] * 4, [9] * 4, (0, 1, 1), (5, 1, 0), (5, 0, 1))
    assert seen.share.tolist() == [0.5, 0.75, 0]


def test_what_happens_at_one_instant_counts_as_one_change() -> None:
    """A slot that passes from low to high within an instant violates nothing."""
    seen = steps([1, 5], [0, 3], [3, 9], (0, 0, 1), (3, 1, 1))
    assert seen.share.tolist() == [0, 0, 0]


def test_leaving_ends_a_hold_and_late_news_is_ignored() -> None:
    seen = steps([1, 5], [0, 0], [4, 9], (0, 0, 1), (5, 0, 1), (6, 0, 0))
    assert seen.share.tolist() == [0.5, 0, 0, 0, 0]
    assert seen.present.tolist() == [2, 1, 1, 1, 0]


def test_a_job_that_never_left_stays_to_the_end_of_the_run() -> None:
    seen = steps([1, 5], [0, 0], [NOT_YET, NOT_YET], (0, 0, 1))
    assert seen.share.tolist() == [0.5]
    assert measures.over_time(seen, 100) == 0.5


def test_equal_priorities_are_never_violated_and_still_counted() -> None:
    seen = steps([2, 2], [0, 5], [9, NOT_YET], (0, 1, 1))
    assert seen.share.tolist() == [0, 0, 0]
    assert seen.present.tolist() == [1, 2, 1]


def test_time_without_jobs_is_left_out_of_the_average() -> None:
    seen = steps([1, 5, 1], [0, 0, 50], [10, 10, 60], (0, 0, 1))
    assert measures.over_time(seen, 60) == pytest.approx(0.5 * 10 / 20)
    assert measures.over_time(steps([], [], []), 60) == 0


def test_rounds_without_jobs_are_left_out_of_the_average() -> None:
    seen = steps([1, 5], [5, 5], [10, 10], (5, 0, 1))
    assert measures.over_instants(seen, np.array([0, 5, 7, 10, 12])) == 0.5
    assert measures.over_instants(seen, np.array([0, 12])) == 0
    assert measures.over_instants(seen, np.array([], dtype=np.int64)) == 0


def test_very_large_violations_are_swept_quickly() -> None:
    """Each job has its own priority and gets slots in turn, lowest last. No change may visit all jobs."""
    jobs = 50_000
    job = np.arange(jobs)
    seen = measures.violated_share(
        (jobs - job).astype(float), np.zeros(jobs, np.int64), job + 2, job + 1, job, np.ones(jobs, np.int64)
    )
    assert seen.share.max() == 0
    assert len(seen.at) == jobs + 2


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=40))
def test_percentiles_are_numpys_to_the_last_bit(values: list[float]) -> None:
    shares = (0, 1, 50, 95, 99, 100)
    assert measures.percentiles(values, shares).tolist() == np.percentile(values, shares).tolist()
