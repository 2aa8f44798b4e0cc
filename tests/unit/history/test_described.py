"""Run times by the features of past runs."""

from __future__ import annotations

import numpy as np

from headway.history.described import FEATURE_SETS, RUNS_KEPT, RUNS_LEAST, Described
from headway.history.features import numbers_of, of_commands, with_found
from headway.history.similar import Similar
from headway.model.instant import SECOND
from headway.model.job import Bag


def learnt(runs: list[tuple[float, float, float]]) -> Described:
    """Runs with a mesh and a seed, and how long they took."""
    made = Described()
    for mesh, seed, took in runs:
        made.learn({"mesh": mesh, "seed": seed}, took)
    return made


def test_the_nearest_come_first_and_what_does_not_matter_does_not_count() -> None:
    rng = np.random.default_rng(3)
    meshes = rng.permutation(40).tolist()
    made = learnt([(10.0**mesh, float(rng.random()), mesh**2 + 1.0) for mesh in meshes])
    found = made.nearest({"mesh": 1e20, "seed": 0.0}, 3)
    assert found[0] == 401
    assert set(found[1:]) == {362, 442}


def test_of_equally_near_ones_the_last_comes_first() -> None:
    made = learnt([(float(mesh), 0.0, 10.0 * mesh + place) for place, mesh in enumerate([1, 2, 1, 2, 1, 2])])
    assert made.nearest({"mesh": 2.0, "seed": 0.0}, 2) == [25, 23]


def test_too_few_runs_tell_nothing() -> None:
    runs = [(float(mesh), 0.0, float(mesh)) for mesh in range(RUNS_LEAST - 1)]
    assert learnt(runs).nearest({"mesh": 1.0, "seed": 0.0}, 2) == []
    assert learnt([*runs, (9.0, 0.0, 9.0)]).nearest({"mesh": 1.0, "seed": 0.0}, 1) == [1]


def test_features_that_say_nothing_are_not_used() -> None:
    alike = learnt([(5.0, 0.0, float(took)) for took in range(10)])
    assert alike.nearest({"mesh": 5.0, "seed": 0.0}, 3) == []
    as_long = learnt([(float(mesh), 0.0, 7.0) for mesh in range(10)])
    assert as_long.nearest({"mesh": 5.0, "seed": 0.0}, 3) == []


def test_old_runs_are_forgotten() -> None:
    made = learnt([(float(place), 0.0, float(place)) for place in range(2 * RUNS_KEPT)])
    assert min(made.nearest({"mesh": 0.0, "seed": 0.0}, RUNS_KEPT)) == RUNS_KEPT


def test_what_was_found_has_to_agree_more_with_the_run_time_than_what_a_user_named() -> None:
    rng = np.random.default_rng(5)
    took = rng.permutation(30) + 1.0
    noisy = took + rng.normal(0, 22, 30)
    for name, tells in (("mesh", True), ("command mesh", False)):
        made = Described()
        for value, seconds in zip(noisy.tolist(), took.tolist(), strict=True):
            made.learn({name: value}, seconds)
        assert bool(made.nearest({name: 5.0}, 3)) == tells
    found = Described()
    for seconds in took.tolist():
        found.learn({"command mesh": seconds**2}, seconds)
    assert found.nearest({"command mesh": 25.0}, 1) == [5.0]


def test_numbers_that_have_nothing_to_do_with_the_run_time_hardly_ever_tell() -> None:
    rng, told = np.random.default_rng(1), 0
    for _ in range(200):
        made = Described()
        for _ in range(30):
            made.learn({f"command {number}": float(rng.random()) for number in range(8)}, float(rng.random()))
        told += bool(made.nearest({f"command {number}": 0.5 for number in range(8)}, 1))
    assert told < 20


def test_width_and_estimate_tell_nothing_alone_and_refine_what_another_feature_tells() -> None:
    made = Described()
    for place in range(40):
        made.learn({"width": float(place), "estimate": float(place), "command n": 4.0}, float(place))
    assert made.nearest({"width": 7.0, "estimate": 7.0, "command n": 4.0}, 1) == []
    made = Described()
    for place in range(64):
        mesh, width = place * 5 % 64 // 8, place * 5 % 8
        made.learn({"mesh": float(mesh), "width": float(width)}, float(mesh + width))
    narrow, wide = (made.nearest({"mesh": 4.0, "width": width}, 5) for width in (0.0, 7.0))
    assert max(narrow) <= 6 < 9 <= min(wide)


def test_runs_with_other_features_are_compared_over_those_they_share() -> None:
    made = Described()
    for mesh in range(1, 31):
        made.learn({"mesh": float(mesh)} | ({"seed": float(mesh % 3)} if mesh % 2 else {}), mesh * 10.0)
    expected = [80, 90, 70]
    assert made.nearest({"mesh": 8.0}, 3) == expected
    assert made.nearest({"mesh": 8.0, "mach": 0.8}, 3) == expected, "no run has mach"
    assert made.nearest({"mesh": 8.0, "seed": 2.0}, 3) == expected, "by the 15 runs that have both, seed tells nothing"
    assert made.nearest({"mash": 8.0}, 3) == []
    assert made.nearest({"seed": 1.0}, 3) == []


def test_a_number_that_few_commands_have_does_not_leave_only_those() -> None:
    made = Described()
    for mesh in range(1, 31):
        made.learn({"command mesh": float(mesh)} | ({"command j": 2.0} if mesh > 20 else {}), mesh * 10.0)
    assert made.nearest({"command mesh": 8.0, "command j": 2.0}, 1) == [80]


def test_what_is_asked_in_between_changes_no_answer() -> None:
    """What features tell depends on the runs alone, though it is not told anew after each of them."""
    rng = np.random.default_rng(7)
    once, often = Described(), Described()
    for _ in range(43):
        mesh = float(rng.integers(9))
        features, seconds = {"mesh": mesh, "command n": float(rng.random())}, mesh + float(rng.random())
        once.learn(features, seconds)
        often.learn(features, seconds)
        for number in range(FEATURE_SETS + 2):
            often.nearest({"mesh": 3.0, "command n": 0.5} | ({f"mach {number}": 1.0} if number else {}), 3)
        often.nearest({"mesh": 3.0}, 3)
    assert once.nearest({"mesh": 3.0}, 20) == often.nearest({"mesh": 3.0}, 20)


def test_a_prediction_goes_by_the_features() -> None:
    known = Similar()
    for mesh in range(1, 31):
        known.learn(Bag(mesh, name="flow", features=(("mesh", float(mesh)),)), mesh * mesh * SECOND)
    asked = Bag(99, name="flow", features=(("mesh", 4.0),))
    found = known.run_time(asked, 0.5)
    assert found is not None
    assert 4 <= found / SECOND <= 36, "by meshes of 2 to 6"
    without = known.run_time(Bag(99, name="flow"), 0.5)
    assert without is not None
    assert without / SECOND > 400, "by the last ones alone, which were large"
    assert known.run_time(Bag(99, name="flow", features=(("mash", 4.0),)), 0.5) == without


def test_a_prediction_goes_by_the_numbers_of_the_command() -> None:
    """A step takes a second, and nothing else is known of the jobs."""
    known = Similar()
    for place in range(60):
        steps = (place * 7) % 60 * 100 + 100
        features = with_found(Bag(place, name="solve"), of_commands(numbers := solve(steps), numbers)).features
        known.learn(Bag(place, name="solve", features=features), steps * SECOND)
    for steps in (350, 3000, 5500):
        asked = with_found(Bag(99, name="solve"), of_commands(numbers := solve(steps), numbers))
        found = known.run_time(asked, 0.5)
        assert found is not None
        assert abs(found / SECOND - steps) <= 300


def solve(steps: int) -> dict[str, float]:
    return numbers_of(("solve", "--steps", str(steps), f"--seed={steps % 7}", "4"))
