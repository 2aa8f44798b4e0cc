"""How much is expected of any job beside what others tell: as much as users differ from each other."""

from __future__ import annotations

from random import Random

import pytest

from headway.history.prior import COUNTS_AS, KERNEL, PRIOR, PRIOR_SHARE, PriorShare
from headway.history.similar import Similar
from headway.model.instant import SECOND
from headway.model.job import JobSpec, Rigid


def first_job(user: int, name: str = "flow") -> JobSpec:
    return Rigid(user, user=f"user {user}", name=name, estimate=100 * SECOND, width=1)


def after_users(*took: float) -> Similar:
    """What is known when each of so many users has run one job of an estimate of 100 seconds."""
    known = Similar()
    for user, seconds in enumerate(took):
        known.learn(first_job(user), round(seconds * SECOND))
    return known


def width_90(known: Similar) -> float:
    found = known.sample(first_job(1000))
    assert found is not None
    return found.quantile(0.95) - found.quantile(0.05)


def test_where_all_users_ask_for_three_times_what_they_need_so_does_a_new_one() -> None:
    chance = Random(1)
    ran = [100 / 3 * chance.uniform(0.97, 1.03) for _ in range(100)]
    few, many = (width_90(after_users(*ran[:users])) for users in (3, 100))
    assert few > 100, "a new one might need all"
    assert many < 5


def test_where_users_differ_a_new_one_may_differ_too() -> None:
    """In turn they need what is expected of any, and a hundredth of what they ask for, 20 at a time."""
    turns = [100 * share for _ in range(5) for share in (*PRIOR, *PRIOR, *[0.01] * 20)]
    assert width_90(after_users(*turns)) > 100


def test_only_the_first_jobs_of_a_name_teach_how_names_differ() -> None:
    known = after_users(33.0, 33.0)
    before = known._prior.share
    assert before < PRIOR_SHARE, "the second user was like the first"
    for _ in range(50):
        known.learn(first_job(0), 99 * SECOND)
        known.learn(Rigid(1, user="ann", name="other", width=1), SECOND)  # without an estimate, it has no share
    assert known._prior.share == before
    known.learn(first_job(0, name="other"), 33 * SECOND)
    assert known._prior.share != before


@pytest.mark.parametrize(("took", "says"), [(0.01, 1.0), (1.0, 0.0)])
def test_the_share_moves_to_what_foretold_better_and_stays_where_neither_did(took: float, says: float) -> None:
    prior = PriorShare()
    prior.learn(1000.0, [(took, 1.0)])
    assert prior.share == pytest.approx(PRIOR_SHARE), "a thousand times its estimate was foretold by neither"
    prior = PriorShare()
    prior.learn(took, [(0.01, 1.0)])
    drawn = PRIOR_SHARE + (prior.share - PRIOR_SHARE) * (COUNTS_AS + 1)
    assert drawn == pytest.approx(1 - says, abs=0.1)
    assert 0 < drawn < 1


def test_alike_is_what_differs_by_little() -> None:
    """By the definition of a normal kernel: one width away counts 0.61, three widths 0.01."""
    near, far = PriorShare(), PriorShare()
    near.learn(0.05 * (1 + KERNEL), [(0.05, 1.0)])
    far.learn(0.05 * (1 + KERNEL) ** 4, [(0.05, 1.0)])
    assert near.share < far.share < PRIOR_SHARE + 0.01
