"""The distribution of a job's run times, by those of jobs like it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headway.history import similar
from headway.history.prior import PRIOR
from headway.history.similar import (
    ALIKE_LEAST,
    FADES,
    LAST_RUNS,
    WIDER,
    Sample,
    Similar,
    running_of,
    runs_on,
    with_running,
)
from headway.model.instant import SECOND
from headway.model.job import JobSpec, Rigid


def job(**terms: Any) -> JobSpec:
    return Rigid(1, **{"user": "ann", "name": "flow", "estimate": 100 * SECOND, "width": 4, **terms})


def learn(known: Similar, *took: float, **terms: Any) -> None:
    for each in took:
        known.learn(job(**terms), round(each * SECOND))


def sample(known: Similar, **terms: Any) -> Sample:
    found = known.sample(job(**terms))
    assert found is not None
    return found


def naive(weighted: list[tuple[float, float]], level: float) -> float:
    """A quantile by its definition: along the middles of the weights, laid end to end."""
    whole, below, before = sum(weight for _, weight in weighted), 0.0, None
    for took, weight in sorted(weighted):
        middle = (below + weight / 2) / whole
        if middle >= level:
            if before is None:
                return took
            return before[1] + (took - before[1]) * (level - before[0]) / (middle - before[0])
        before, below = (middle, took), below + weight
    assert before is not None
    return before[1]


@pytest.mark.parametrize("seed", range(20))
def test_each_job_counts_less_than_the_one_after_it(seed: int) -> None:
    chance = Random(seed)
    took = [chance.choice([1.0, 5.0, chance.uniform(1, 90)]) for _ in range(LAST_RUNS)]
    known = Similar()
    learn(known, *took)
    weighted = [(each, FADES**age) for age, each in enumerate(reversed(took))]
    for level in (0.0, 0.05, 0.2, 0.5, 0.75, 0.95, 1.0):
        assert sample(known).quantile(level) == pytest.approx(naive(weighted, level))


def test_old_runs_are_forgotten() -> None:
    """A program that has become ten times as fast: after a few runs most of it is known, and then nothing else."""
    known = Similar()
    learn(known, *[90] * 100)
    learn(known, *[9] * 5)
    assert sample(known).quantile(0.5) == 9
    learn(known, *[9] * (LAST_RUNS - 5))
    assert sample(known).quantile(1.0) == 9


def test_jobs_that_all_have_names_of_their_own_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar, "LIKES_MAX", 50)
    known = Similar()
    for number in range(1000):
        learn(known, 5, name=f"job {number}")
    assert len(known._last) == 50
    assert known.sample(job(name="job 0"), guess=False) is not None, "its user is still known"
    assert known.sample(job(name="job 999"), guess=False) is not None


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({}, 1),
        ({"width": 5}, 2),
        ({"width": 5, "estimate": 50 * SECOND}, 1.5),
        ({"name": "new"}, 4),
        ({"user": "bob"}, 5),
    ],
    ids=["same", "width", "estimate", "name", "user"],
)
def test_the_most_alike_count_first(terms: dict[str, Any], expected: float) -> None:
    """What is less alike has run last, so that it would count if the narrower had not been asked first."""
    known = Similar()
    learn(known, *[1] * LAST_RUNS)
    learn(known, *[2] * LAST_RUNS, width=2)
    learn(known, *[6] * LAST_RUNS, estimate=200 * SECOND, width=2)
    learn(known, *[4] * LAST_RUNS, name="old")
    learn(known, *[5] * LAST_RUNS, name="old", user="carl")
    wanted = terms.get("name") or terms.get("user")
    level = 0.3 if wanted else 0.5  # others are counted beside what is expected of any estimate
    assert sample(known, **terms).quantile(level) == pytest.approx(expected)


def test_wider_likeness_counts_less() -> None:
    known = Similar()
    learn(known, 10, 10)
    learn(known, 50, width=1)
    weighted = [(10.0, 1.0), (10.0, FADES)]
    for times in (1, 2, 3, 4):  # of any width, of any estimate, of any name, of all
        weighted += [(took, WIDER**times * FADES**age) for age, took in enumerate((50.0, 10.0, 10.0))]
    found = known.sample(job(), guess=False)
    assert found is not None
    for level in (0.2, 0.7, 0.75, 0.8):
        assert found.quantile(level) == pytest.approx(naive(weighted, level))


def test_run_times_of_other_estimates_count_as_shares_of_theirs() -> None:
    known = Similar()
    learn(known, *[50] * LAST_RUNS, estimate=100 * SECOND)
    assert sample(known, estimate=10 * SECOND).quantile(0.5) == pytest.approx(5)


def test_what_runs_longer_than_some_have_counts_for_those_that_ran_longer() -> None:
    """Kaplan and Meier: of four equal jobs, 10, 20+, 30 and 40 s; what is cut short at 20 s ends like the last two."""
    found = dict(with_running([(10.0, 1.0), (30.0, 1.0), (40.0, 1.0)], [(20.0, 1.0)], None))
    assert found == {10.0: pytest.approx(1 / 4), 30.0: pytest.approx(3 / 8), 40.0: pytest.approx(3 / 8)}


def test_what_runs_longer_than_all_may_run_as_long_again() -> None:
    found = with_running([(10.0, 1.0)], [(50.0, 1.0)], 400.0)
    assert found[0] == (10.0, 0.5)
    assert [took for took, _ in found[1:]] == [pytest.approx(50 / (1 - level)) for level in (0.1, 0.3, 0.5, 0.7)] + [
        400
    ]
    assert sum(weight for _, weight in found) == pytest.approx(1.0)
    assert runs_on(50.0, 0.99, 20.0) == 100.0, "beyond its estimate"
    assert runs_on(50.0, 0.99, None) == 1000.0
    assert runs_on(50.0, 1.0, None) == 1000.0


def test_old_jobs_that_still_run_tell_little() -> None:
    """A user's jobs take 5 s. One of long ago still runs; another began after all that are known."""
    known = Similar()
    for number in range(100, 100 + LAST_RUNS):
        known.learn(Rigid(number, user="ann", name="flow", estimate=100 * SECOND, width=4), 5 * SECOND)

    def beside(number: int) -> Sample:
        one = Rigid(number, user="ann", name="flow", estimate=100 * SECOND, width=4)
        found = known.sample(job(), running=running_of([(one, 50 * SECOND)]))
        assert found is not None
        return found

    assert beside(1).quantile(1.0) == 5.0, "older than all that are remembered"
    assert beside(101).quantile(0.9) == 5.0
    assert beside(101).quantile(1.0) > 50
    assert beside(999).quantile(0.75) == 5.0
    assert beside(999).quantile(0.95) > 50


def test_with_an_estimate_alone_it_may_be_half_or_double() -> None:
    found = sample(Similar())
    assert found.seconds == tuple(100 * share for share in PRIOR)
    assert found.quantile(0.5) == pytest.approx(100)


def test_without_estimate_only_the_same_name_counts() -> None:
    known = Similar()
    learn(known, *[5] * LAST_RUNS)
    assert known.sample(job(estimate=None)) is None
    assert not known.knows(job(estimate=None))
    learn(known, *[7] * ALIKE_LEAST, estimate=None)
    assert sample(known, estimate=None).quantile(0.9) == 7
    assert known.knows(job(estimate=None, width=1))
    assert not known.knows(job(estimate=None, name="other"))


@pytest.mark.parametrize("seed", range(20))
def test_levels_and_run_times_answer_each_other(seed: int) -> None:
    chance, known = Random(seed), Similar()
    learn(known, *[chance.choice([3.0, chance.uniform(0, 90)]) for _ in range(chance.randint(1, 30))])
    found = sample(known)
    levels = [chance.random() for _ in range(50)]
    assert [found.quantile(level) for level in sorted(levels)] == sorted(found.quantile(level) for level in levels)
    for level in levels:
        if found.levels[0] <= level <= found.levels[-1]:
            assert found.below(found.quantile(level) + 1e-6) >= level - 1e-9  # run times may differ in the last digit
    assert (found.below(-1), found.below(1e9)) == (0, 1)
