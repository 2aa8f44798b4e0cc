"""The messages about odd workloads, which are run as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headway.model.instant import SECOND
from headway.model.job import TaskSpec
from headway.model.workload import workload_us
from headway.traces import read_swf
from headway.traces.oddities import oddities
from headway.traces.transforms import first

DAY = 86_400 * SECOND


def test_nothing_is_said_of_what_is_not_odd() -> None:
    plan = {1: (TaskSpec(estimate=5 * SECOND),)}
    plain = workload_us(
        release=[0, 7 * DAY, 7 * DAY],
        runtime=[DAY, 5 * SECOND, 1],
        estimate=[365 * DAY, 0, -1],
        kind=[1, 2, 0],
        workflows=plan,
    )
    assert list(oddities(plain)) == []
    assert list(oddities(first(plain, 1))) == []


def test_estimates_below_the_run_time_absurd_ones_and_gaps_are_said() -> None:
    odd = workload_us(
        release=[0, 1, 8 * DAY, 48 * DAY],
        runtime=[5, 5, 5, 5],
        estimate=[0, 4, 366 * DAY, 2**60],
        label=[7, 8, 9, 10],
    )
    assert list(oddities(odd)) == [
        "jobs that run longer than their estimate: 2, 1 of them with an estimate of 0; --cut ends them there",
        (
            "jobs with an estimate of more than a year, kept as it is: 2, first job 9; "
            "promises to jobs behind them are as late"
        ),
        (
            "gaps of more than 7 days between releases: 2, the longest of 40 days after job 9; "
            "this time counts as capacity"
        ),
    ]


def test_users_of_curie_asked_for_68_years(shared_data: Callable[[str], Path]) -> None:
    """The only oddities of a log that is known for them; one estimate is 2147483647 s."""
    told = list(oddities(read_swf(shared_data("swf/CEA-Curie-2011-2.1-cln.swf.gz"))))
    assert [sentence.split(":")[0] for sentence in told] == ["jobs with an estimate of more than a year, kept as it is"]
    assert ": 3, " in told[0]
