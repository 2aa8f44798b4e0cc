"""Run times by the features of past runs."""

from __future__ import annotations

import numpy as np

from headway.history.described import LEAST, RUNS_KEPT, Described
from headway.history.similar import Similar
from headway.model.instant import SECOND
from headway.model.job import Bag


def learnt(runs: list[tuple[float, float, float]]) -> Described:
    """Runs with a mesh and a seed, and how long they took."""
    made = Described()
    for mesh, seed, took in runs:
        made.learn((("mesh", mesh), ("seed", seed)), took)
    return made


def test_the_nearest_come_first_and_what_does_not_matter_does_not_count() -> None:
    rng = np.random.default_rng(3)
    meshes = rng.permutation(40).tolist()
    made = learnt([(10.0**mesh, float(rng.random()), mesh**2 + 1.0) for mesh in meshes])
    found = made.nearest((("mesh", 1e20), ("seed", 0.0)), 3)
    assert found[0] == 401
    assert set(found[1:]) == {362, 442}


def test_of_equally_near_ones_the_last_comes_first() -> None:
    made = learnt([(float(mesh), 0.0, 10.0 * mesh + place) for place, mesh in enumerate([1, 2, 1, 2, 1, 2])])
    assert made.nearest((("mesh", 2.0), ("seed", 0.0)), 2) == [25, 23]


def test_too_few_runs_tell_nothing() -> None:
    runs = [(float(mesh), 0.0, float(mesh)) for mesh in range(LEAST - 1)]
    assert learnt(runs).nearest((("mesh", 1.0), ("seed", 0.0)), 2) == []
    assert learnt([*runs, (9.0, 0.0, 9.0)]).nearest((("mesh", 1.0), ("seed", 0.0)), 1) == [1]


def test_features_that_say_nothing_are_not_used() -> None:
    alike = learnt([(5.0, 0.0, float(took)) for took in range(10)])
    assert alike.nearest((("mesh", 5.0), ("seed", 0.0)), 3) == []
    as_long = learnt([(float(mesh), 0.0, 7.0) for mesh in range(10)])
    assert as_long.nearest((("mesh", 5.0), ("seed", 0.0)), 3) == []


def test_old_runs_are_forgotten() -> None:
    made = learnt([(float(place), 0.0, float(place)) for place in range(2 * RUNS_KEPT)])
    assert min(made.nearest((("mesh", 0.0), ("seed", 0.0)), RUNS_KEPT)) == RUNS_KEPT


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
