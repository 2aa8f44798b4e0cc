"""Numbers that describe a job."""

from __future__ import annotations

import pytest

from headway.history.features import features_of, numbers_of
from headway.model.instant import SECOND
from headway.model.job import Bag


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("solve",), {}),
        (("solve", "--mesh", "2e6", "-n", "4"), {"mesh": 2e6, "n": 4}),
        (("solve", "--mesh=3", "mach=0.8"), {"mesh": 3, "mach": 0.8}),
        (("solve", "7", "wing.cfg", "9"), {"word 1": 7, "word 3": 9}),
        (("solve", "--verbose", "--mesh", "x3", "5"), {"word 4": 5}),
        (("solve", "--mesh", "nan", "--limit=inf"), {}),
        (("solve", "--shift", "-2"), {"shift": -2}),
    ],
)
def test_numbers_of_a_command(argv: tuple[str, ...], expected: dict[str, float]) -> None:
    assert numbers_of(argv) == expected


def test_what_a_user_says_counts_before_what_is_found() -> None:
    job = Bag(1, release=26 * 3600 * SECOND, estimate=90 * SECOND, tasks=3, features=(("mesh", 5.0), ("tasks", 7.0)))
    assert features_of(job, numbers_of(("solve", "--mesh", "1", "--n", "2"))) == {
        "mesh": 5,
        "n": 2,
        "tasks": 7,
        "width": 1,
        "estimate": 90,
        "hour of the week": 26,
    }
    assert features_of(Bag(1), {}) == {"tasks": 1, "width": 1, "hour of the week": 0}
