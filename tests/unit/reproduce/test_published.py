"""How our numbers are compared with published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import pytest

from headway.reproduce.published import PENALTY, STATEMENTS, VIOLATION, Found, Statement, Verdict, found, told, verdict
from headway.reproduce.sweep import Row


def rows(measure: str, differ: bool, policies: Mapping[str, Sequence[float]]) -> list[Row]:
    return list(
        chain.from_iterable(
            [Row(policy, None, seed, differ, {measure: value}) for seed, value in enumerate(values)]
            for policy, values in policies.items()
        )
    )


def statement(published: float, within: float = 2, against: tuple[str, ...] = ("edf",)) -> Statement:
    return Statement("fig6.4", "priority", against, published, within, "")


def test_our_number_is_a_mean_or_a_ratio_of_means_with_what_other_samples_could_have_given() -> None:
    known = rows(PENALTY, False, {"priority": [10, 20, 60], "edf": [1, 2, 3]})
    ours = found(statement(1000), known)
    assert ours.value == 15
    assert 10 <= ours.low < 15 < ours.high <= 20
    mean = found(Statement("fig6.2", "priority", (), 0, 1, ""), rows(VIOLATION, False, {"priority": [0, 0.5]}))
    assert (mean.value, mean.low, mean.high) == (0.25, 0, 0.5)


def test_of_several_others_the_least_mean_counts() -> None:
    known = rows(PENALTY, False, {"priority": [3, 5], "edf": [9, 1], "fcfs": [2, 6]})
    assert found(statement(1, 0, ("edf", "fcfs")), known).value == 1
    assert found(statement(1, 0, ("edf",)), known).value == 0.8


def test_there_may_be_nothing_to_divide_by() -> None:
    nothing = found(statement(1000), rows(PENALTY, False, {"priority": [10, 20], "edf": [0, 0]}))
    assert nothing.value != nothing.value
    assert verdict(statement(1000), nothing) == "does not hold"


@pytest.mark.parametrize(
    ("published", "within", "ours", "expected"),
    [
        (0, 1, (0, 0, 0), "holds"),
        (0, 1, (0.009, 0, 0.02), "holds in part"),
        (0, 1, (0.01, 0, 0.02), "does not hold"),
        (0.25, 2, (0.125, 0.1, 0.2), "holds"),
        (0.25, 2, (0.5, 0.1, 1.2), "holds"),
        (0.25, 2, (0.1, 0.05, 0.2), "holds in part"),
        (0.25, 2, (0.9, 0.8, 0.99), "holds in part"),
        (0.25, 2, (0.9, 0.8, 1.01), "does not hold"),
        (1000, 3, (400, 300, 500), "holds"),
        (1000, 3, (9, 1.1, 20), "holds in part"),
        (1000, 3, (9, 0.9, 20), "does not hold"),
        (1, 2, (1.9, 1.1, 3), "holds"),
        (1, 2, (0.4, 0.3, 0.6), "holds in part"),
        (1, 2, (2.1, 1.9, 3), "does not hold"),
        (1, 0, (0.2, 0.1, 3), "holds"),
        (1, 0, (1.2, 0.9, 3), "holds in part"),
        (1, 0, (1.2, 1.1, 3), "does not hold"),
    ],
)
def test_a_number_holds_near_the_published_one_and_in_part_on_its_side(
    published: float, within: float, ours: tuple[float, float, float], expected: Verdict
) -> None:
    assert verdict(statement(published, within), Found(*ours)) == expected


def test_claims_are_told_by_figure() -> None:
    assert [one.published for one in told(["fig6.5", "fig6.2"])] == [0, 0, 0.25, 1, 1000, 1000, 0.002, 1]
    assert {one.figure for one in STATEMENTS} == {"fig6.2", "fig6.3", "fig6.4", "fig6.5"}
