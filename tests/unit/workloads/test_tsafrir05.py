"""Estimates of users: the histogram that the published program makes, and how estimates are assigned."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import HeadwayError, InvalidInput
from headway.model.instant import SECOND
from headway.model.workload import Workload, workload_us
from headway.workloads import with_estimates
from headway.workloads.tsafrir05 import RANKS, deal, distinct_values, head_shares, head_times, histogram

HOUR = 3600


def jobs_of(runtimes: list[float] | np.ndarray) -> Workload:
    return workload_us(release=range(len(runtimes)), runtime=[round(time * SECOND) for time in runtimes], width=2)


def some(jobs: int = 5000, mean: float = 1500.0) -> Workload:
    return jobs_of(np.random.default_rng(4).exponential(mean, jobs).clip(1, 18 * HOUR).round())


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_the_published_program(seed: int) -> None:
    times, counts = histogram(10_000, 18 * HOUR, np.random.default_rng(seed))
    assert (len(times), counts.sum()) == (90, 10_000)
    assert sorted(counts.tolist(), reverse=True)[:20] == [
        *(2172, 1031, 871, 737, 625, 530, 452, 386, 331, 284),
        *(246, 213, 186, 163, 144, 128, 115, 104, 94, 87),
    ]
    assert times[counts.argmax()] == 18 * HOUR


@pytest.mark.parametrize(
    ("jobs", "largest", "values", "share"), [(1000, 18 * HOUR, 35, 0.897), (50_000, 36 * HOUR, 257, 0.89)]
)
def test_other_numbers_of_jobs_have_their_number_of_values(jobs: int, largest: int, values: int, share: float) -> None:
    times, counts = histogram(jobs, largest, np.random.default_rng(0))
    assert (len(times), counts.sum()) == (values, jobs)
    assert np.sort(counts)[-20:].sum() / jobs == pytest.approx(share, abs=5e-4)


@pytest.mark.parametrize("jobs", [200, 201, 777, 70_000, 300_000])
@pytest.mark.parametrize("largest", [2 * HOUR, 7201, 50 * HOUR, 1000 * HOUR])
def test_a_histogram_is_of_all_jobs_and_round_values(jobs: int, largest: int) -> None:
    times, counts = histogram(jobs, largest, np.random.default_rng(1))
    assert (np.diff(times) > 0).all()
    assert (times[0] > 0, times[-1]) == (True, largest)
    assert counts.min() >= 1
    assert counts.sum() == jobs
    # In a narrow range some values find no free place.
    assert 0.7 * distinct_values(jobs) <= len(times) <= distinct_values(jobs)
    others = times[:-1]
    assert (others % 10 == 0).all() or largest % 10


def test_the_distinct_values_go_through_the_published_points() -> None:
    points = {200: 20, 1000: 35, 10_000: 90, 70_000: 340, 250_000: 565, 10_000_000: 565}
    assert {jobs: distinct_values(jobs) for jobs in points} == points


def test_head_values_are_the_published_examples() -> None:
    minutes = [60 * minutes for minutes in (5, 10, 15, 20, 30)]
    assert head_times(18 * HOUR) == [
        *(18 * HOUR, *minutes, *(HOUR * hours for hours in (1, 2, 3, 4, 5, 6, 8, 10, 12))),
        *(46_800, 50_400, 54_000, 57_600, 61_200),
    ]
    assert head_times(36 * HOUR) == [
        *(36 * HOUR, *minutes, *(HOUR * hours for hours in (1, 2, 3, 4, 5, 6, 8, 10, 12, 18))),
        *(72_000, 90_000, 108_000, 126_000),
    ]


def test_head_shares_are_the_published_ones() -> None:
    assert head_shares().round(3).tolist() == [
        *(21.733, 10.313, 8.71, 7.369, 6.245, 5.305, 4.517, 3.858, 3.305, 2.843),
        *(2.456, 2.131, 1.86, 1.633, 1.442, 1.283, 1.149, 1.038, 0.944, 0.866),
    ]


def test_every_log_has_every_rank_once() -> None:
    for log in zip(*RANKS, strict=True):
        assert sorted(log) == list(range(1, 21))


def test_popular_values_are_those_that_were_popular_in_the_logs() -> None:
    """The rank at a place is one that the logs have there, or an unused earlier one: 5 min is never rare."""
    places = [
        np.argsort(-counts[np.isin(times, head_times(18 * HOUR))]).tolist().index(0)
        for times, counts in (histogram(10_000, 18 * HOUR, np.random.default_rng(seed)) for seed in range(30))
    ]
    assert len(set(places)) > 1
    assert max(places) <= 5


def test_no_estimate_is_below_its_run_time_and_all_are_dealt() -> None:
    before = some()
    after = with_estimates(before, largest=18 * HOUR, seed=5)
    assert (after.estimate >= after.runtime).all()
    assert after.runtime.tolist() == before.runtime.tolist()
    counts = Counter((after.estimate // SECOND).tolist())
    assert len(counts) == pytest.approx(distinct_values(5000), rel=0.05)
    commonest = counts.most_common(20)
    assert commonest[0][0] == 18 * HOUR
    assert commonest[0][1] / 5000 == pytest.approx(0.217, abs=0.002)
    assert sum(count for _, count in commonest) / 5000 == pytest.approx(0.89, abs=0.002)
    assert all(seconds % 10 == 0 for seconds in counts)
    assert sum(count for seconds, count in counts.items() if seconds % 300 == 0) > 0.85 * 5000


def test_estimates_go_with_run_times_only_as_far_as_they_must() -> None:
    """Jobs under a minute get nearly any estimate, so their mean is nearly that of all."""
    after = with_estimates(some(20_000, 300.0), largest=18 * HOUR)
    short = after.runtime < 60 * SECOND
    assert after.estimate[short].mean() == pytest.approx(after.estimate.mean(), rel=0.1)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=40), st.integers(0, 1000))
def test_dealing_gives_each_estimate_once_and_none_below_a_run_time(pairs: list[tuple[int, int]], seed: int) -> None:
    estimates = np.sort(np.array([max(pair) for pair in pairs]))[::-1]
    runtimes = np.sort(np.array([min(pair) for pair in pairs]))[::-1]
    dealt = deal(runtimes, estimates, np.random.default_rng(seed))
    assert sorted(dealt.tolist(), reverse=True) == estimates.tolist()
    assert (dealt >= runtimes).all()


def test_every_way_of_dealing_happens() -> None:
    ways = {
        tuple(deal(np.array([5, 1, 1]), np.array([9, 7, 3]), np.random.default_rng(seed)).tolist())
        for seed in range(100)
    }
    assert ways == {(9, 7, 3), (9, 3, 7), (7, 9, 3), (7, 3, 9)}


def test_run_times_beyond_the_largest_estimate_are_cut_and_said() -> None:
    before = jobs_of([10.0] * 295 + [20 * HOUR] * 5)
    after = with_estimates(before, largest=18 * HOUR)
    assert after.runtime.max() == 18 * HOUR * SECOND
    assert after.notes == ("run times cut to the largest estimate, 64800 s: 5",)


def test_without_a_limit_the_longest_run_time_sets_it() -> None:
    assert with_estimates(jobs_of([10.0] * 299 + [19.5 * HOUR])).estimate.max() == 20 * HOUR * SECOND
    assert with_estimates(jobs_of([10.0] * 300)).estimate.max() == 2 * HOUR * SECOND


def test_the_same_seed_deals_the_same() -> None:
    one, same, other = (with_estimates(some(), largest=18 * HOUR, seed=seed).estimate.tolist() for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_hinted_estimates_have_their_jobs() -> None:
    hints = {18 * HOUR: 1500, 300: 900, 9000: 400}
    times, counts = histogram(5000, 18 * HOUR, np.random.default_rng(2), hints)
    found = dict(zip(times.tolist(), counts.tolist(), strict=True))
    assert {time: found[time] for time in hints} == hints
    assert counts.sum() == 5000
    assert np.sort(counts)[-20:].sum() / 5000 == pytest.approx(0.89, abs=0.005)


def test_a_hint_stands_in_for_the_nearest_round_value() -> None:
    """Of the values that fill up the head first: 13 h to 17 h with a limit of 18 h."""
    assert set(head_times(18 * HOUR)) - set(head_times(18 * HOUR, {9000: 1})) == {46_800}
    assert set(head_times(18 * HOUR)) - set(head_times(18 * HOUR, {9000: 1, 301: 1, 60_000: 1})) == {
        *(46_800, 50_400, 61_200)
    }
    many = {100 * number: 1 for number in range(190, 196)}
    assert len(set(head_times(18 * HOUR)) & {46_800, 50_400, 54_000, 57_600, 61_200} - set(many)) == 5
    assert not set(head_times(18 * HOUR, many)) & {46_800, 50_400, 54_000, 57_600, 61_200}


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        ({0: 3}, "hint is 0; allowed: whole seconds above 0, at most the largest estimate, 64800"),
        ({70_000: 3}, "hint is 70000"),
        ({300: 0}, "jobs with an estimate of 300 s is 0; allowed: a whole number, 1 or more"),
        ({300: 600}, "jobs in hints is 600; allowed: at most all jobs, 500"),
        ({300 * number: 1 for number in range(1, 22)}, "hints is 21; allowed: at most 19 estimates below the largest"),
    ],
)
def test_hints_that_cannot_be_are_refused(hints: dict[int, int], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        with_estimates(some(500), largest=18 * HOUR, hints=hints)


@pytest.mark.parametrize("largest", [7199, 0, -5, 7200.5, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(largest: float) -> None:
    with pytest.raises(InvalidInput, match=r"largest_estimate is .*; allowed: whole seconds, 7200 or more"):
        with_estimates(some(500), largest=largest)


def test_too_few_jobs_are_refused() -> None:
    with pytest.raises(InvalidInput, match="jobs is 199; allowed: 200 or more"):
        with_estimates(some(199))


def test_more_long_jobs_than_long_estimates_are_refused() -> None:
    with pytest.raises(HeadwayError, match="more jobs run long than have a long estimate") as refusal:
        with_estimates(jobs_of([18.0 * HOUR] * 300))
    assert "larger" in refusal.value.hint
