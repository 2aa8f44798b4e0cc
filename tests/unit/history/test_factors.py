"""Which parameters matter, and which past runs are similar."""

from __future__ import annotations

import math
from importlib.util import find_spec
from random import Random

import numpy as np
import pytest

from headway.errors import HeadwayError
from headway.history import factors
from headway.history.described import RUNS_LEAST
from headway.history.factors import Factors

pytestmark = pytest.mark.skipif(
    find_spec("sklearn") is None, reason="scikit-learn is not installed (pip install headway[predict])"
)


def study(seed: int, runs: int = 200) -> tuple[list[dict[str, float]], list[float]]:
    """Run times that grow with the mesh, fall with the number of threads, and do not depend on a label."""
    chance = Random(seed)
    told = [
        {"mesh": chance.lognormvariate(10, 1), "threads": chance.uniform(1, 16), "label": chance.random()}
        for _ in range(runs)
    ]
    return told, [one["mesh"] / one["threads"] * chance.lognormvariate(0, 0.1) for one in told]


@pytest.mark.parametrize("seed", range(5))
def test_what_matters_is_told_from_what_does_not(seed: int) -> None:
    known = Factors(*study(seed))
    assert set(known.influence) == {"mesh", "threads", "label"}
    assert sum(known.influence.values()) == pytest.approx(1)
    assert known.influence["label"] < 0.1
    assert min(known.influence["mesh"], known.influence["threads"]) > 0.25
    assert list(known.influence) == sorted(known.influence, key=lambda name: -known.influence[name])


def test_components_are_those_of_the_matrix_of_correlations() -> None:
    """Found here without the library: eigenvalues of the ranks' correlations, and their directions."""
    runs, took = study(1)
    columns = [np.argsort(np.argsort([run[name] for run in runs])) for name in ("mesh", "threads", "label")]
    columns.append(np.argsort(np.argsort(took)))
    values, directions = np.linalg.eigh(np.corrcoef(np.array(columns, dtype=float)))
    known = Factors(runs, took)
    assert [one.explained for one in known.components] == pytest.approx((values[::-1] / values.sum()).tolist())
    for component, direction in zip(known.components, directions.T[::-1], strict=True):
        ours = [*component.loadings.values(), component.run_time]
        assert np.abs(ours) == pytest.approx(np.abs(direction))


def test_similar_runs_are_near_in_what_matters() -> None:
    runs, took = study(2)
    known = Factors(runs, took)
    asked = {"mesh": math.exp(10), "threads": 8.0, "label": 0.0}
    nearest = known.similar(asked, 10)
    assert len(nearest) == 10
    for number in nearest:
        assert 0.4 < runs[number]["mesh"] / asked["mesh"] < 2.5
        assert 4 < runs[number]["threads"] < 12
    sample = known.sample(asked)
    assert sample.quantile(0.5) == pytest.approx(math.exp(10) / 8, rel=0.4)
    assert sample.seconds == tuple(sorted(took[number] for number in known.similar(asked)))


def test_parameters_of_which_nothing_can_be_told_are_named() -> None:
    runs, took = study(3, 20)
    for number, run in enumerate(runs):
        run["same"] = 7.0
        run["odd"] = math.nan if number == 3 else 1.0
        if number % 2:
            run["some"] = 1.0
    known = Factors(runs, took)
    assert known.names == ("mesh", "threads", "label")
    assert known.left_out == {
        "same": "it is the same in all runs",
        "odd": "it is not a number in all runs",
        "some": "10 of 20 runs do not have it",
    }


def test_a_run_without_what_nearly_all_have_is_not_compared() -> None:
    runs, took = study(3, 40)
    whole = Factors(runs, took)
    asked = dict(runs[20])
    with_another = Factors([*runs[:30], {"label": 1.0}, *runs[30:]], [*took[:30], 1e6, *took[30:]])
    assert with_another.influence == whole.influence
    assert with_another.left_out == {}
    assert with_another.compared == [*range(30), *range(31, 41)]
    moved = [number + (number >= 30) for number in whole.similar(asked)]
    assert with_another.similar(asked) == moved
    assert with_another.sample(asked).seconds == whole.sample(asked).seconds


def test_runs_that_differ_in_nothing_are_all_similar() -> None:
    """The last ones count most, as for jobs without parameters."""
    known = Factors([{}] * 9, [10.0] * 8 + [50.0])
    assert known.influence == {}
    assert known.similar({}, 2) == [8, 7]
    assert known.sample({}).quantile(1.0) == 50


def test_run_times_that_are_all_alike_depend_on_nothing() -> None:
    runs, _ = study(4, 30)
    assert set(Factors(runs, [5.0] * 30).influence.values()) == {0.0}


def test_a_history_of_few_runs_tells_nothing() -> None:
    with pytest.raises(HeadwayError, match=f"there is 1 run; at least {RUNS_LEAST} are needed"):
        Factors([{"mesh": 1.0}], [3.0])


@pytest.mark.parametrize(
    ("run", "words"),
    [({"mesh": 1.0, "label": 1.0}, "threads is missing"), ({"mesh": 1.0, "threads": math.nan, "label": 1.0}, "is nan")],
)
def test_a_run_that_cannot_be_placed_is_refused(run: dict[str, float], words: str) -> None:
    with pytest.raises(HeadwayError, match=words):
        Factors(*study(5)).sample(run)


def test_without_scikit_learn_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factors, "find_spec", lambda name: None)
    with pytest.raises(HeadwayError, match="scikit-learn") as refused:
        Factors(*study(6))
    assert "headway[predict]" in refused.value.hint
