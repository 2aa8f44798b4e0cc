"""Bounds that are too narrow hold once it is known what came of them."""

from __future__ import annotations

import numpy as np
import pytest

from headway.foresight.calibration import CORRECTED_LEVELS, SOON, Calibration


def test_bounds_that_are_too_narrow_are_widened_until_they_hold() -> None:
    rng = np.random.default_rng(1)
    told = Calibration()
    narrow = np.exp(np.log(5000) + np.array([-0.2, -0.1, 0.0, 0.1, 0.15, 0.2]))
    within = []
    for number in range(200):
        bounds = np.tile(narrow, (20, 1))
        came = np.exp(np.log(5000) + 0.8 * rng.standard_normal(20))
        corrected = told.correct(bounds)
        if number >= 100:
            within.append(np.mean((corrected[:, 0] <= came) & (came <= corrected[:, -1])))
        told.tell(len(bounds))
        told.judge(corrected, came, 0.0)
        told.learn(bounds, came)
    assert 0.87 < np.mean(within) < 0.93


def test_bounds_from_few_forecasts_hold_for_the_next_as_often_as_those_from_many() -> None:
    """After 25 forecasts that shared one fate each, the 26th is within them as often as it should be."""
    rng = np.random.default_rng(1)
    bounds = np.full((5, len(CORRECTED_LEVELS)), 5000.0)
    held = []
    for _ in range(500):
        told = Calibration()
        for came in 5000 * np.exp(rng.standard_normal(25)):
            told.learn(bounds, np.full(5, came))
        (corrected,) = told.correct(bounds[:1])
        held.append(bool(corrected[0] <= 5000 * np.exp(rng.standard_normal()) <= corrected[-1]))
    assert np.mean(held) > 0.88, "0.85 without the correction"


def test_a_due_date_of_90_percent_is_kept_where_one_job_in_eight_takes_ten_times_as_long() -> None:
    """Between what moves the bounds of 75 and of 95 %, which are right, lies a date that one job in eight misses."""
    rng = np.random.default_rng(1)
    told, levels = Calibration(), (np.arange(100) + 0.5) / 100
    expected, kept = np.full((20, 100), 5000.0), []
    for number in range(200):
        came = np.where(rng.random(20) < 1 / 8, 50_000, 5000) * np.exp(0.1 * rng.standard_normal(20))
        if number >= 100:
            kept.append(np.mean(came <= told.correct(expected, levels)[:, 90]))
        bounds = np.full((20, len(CORRECTED_LEVELS)), 5000.0)
        told.tell(20)
        told.judge(told.correct(bounds), came, 0.0)
        told.learn(bounds, came)
    assert np.mean(kept) > 0.9


@pytest.mark.parametrize("kinds", [1, 2])
def test_a_due_date_is_the_later_of_what_is_learnt_at_its_level_and_between_those_beside_it(kinds: int) -> None:
    """With one kind of jobs the time that they take above the expected one decays, and between is later."""
    rng = np.random.default_rng(1)
    longer = rng.exponential(size=(60, 50)) if kinds == 1 else (rng.random((60, 50)) < 1 / 8).astype(float)
    told = Calibration()
    bounds = np.full((50, len(CORRECTED_LEVELS)), 5000.0)
    for each in longer:
        told.learn(bounds, (5000 + SOON) * np.exp(each) - SOON)
    moves = np.log((told.correct(bounds)[0] + SOON) / (5000 + SOON))
    beside, itself = moves[3] + (moves[5] - moves[3]) * 0.75, np.quantile(longer, 0.9 * 61 / 60)
    assert bool(beside > itself) is (kinds == 1)
    assert moves[4] == pytest.approx(max(beside, itself))


def test_nothing_learnt_changes_nothing_and_bounds_stay_in_order() -> None:
    told = Calibration()
    bounds = np.array([[1.0, 2.0, 3.0, 4.0, 4.5, 5.0]])
    assert (told.correct(bounds) == bounds).all()
    told.tell(1)
    told.judge(bounds, np.array([0.0]), 0.0)
    told.learn(bounds, np.array([0.0]))
    corrected = told.correct(bounds)
    assert corrected.shape == (1, len(CORRECTED_LEVELS))
    assert (np.diff(corrected, axis=1) >= 0).all()
    assert (corrected >= 0).all()


def test_bounds_hold_for_jobs_and_not_only_for_forecasts() -> None:
    """Whenever many jobs are open all take four times as long as expected; that is one forecast in ten."""
    rng = np.random.default_rng(1)
    told = Calibration()
    usual = np.exp(np.log(5000) + np.array([-0.3, -0.1, 0.0, 0.1, 0.2, 0.3]))
    within = []
    for number in range(600):
        crowded = number % 10 == 0
        bounds = np.tile(usual, (100 if crowded else 10, 1))
        came = np.exp(np.log(20_000 if crowded else 5000) + 0.1 * rng.standard_normal(len(bounds)))
        corrected = told.correct(bounds)
        if number >= 300:
            within += ((corrected[:, 0] <= came) & (came <= corrected[:, -1])).tolist()
        told.tell(len(bounds))
        told.judge(corrected, came, 0.0)
        told.learn(bounds, came)
    assert np.mean(within) > 0.85


def test_what_is_near_narrows_nothing_that_is_far() -> None:
    """All that was soon came as expected. Nothing has come yet of what is days ahead."""
    told = Calibration()
    near, far = np.array([[60.0, 80.0, 100.0, 130.0, 150.0, 160.0]]), np.array([[6e4, 1.8e5, 2e5, 2.3e5, 2.8e5, 3e5]])
    for _ in range(40):
        told.learn(near, np.array([100.0]))
    (narrowed,) = told.correct(near)
    assert narrowed[0] > 90
    assert narrowed[-1] < 110
    assert told.correct(far)[0].tolist() == pytest.approx(far[0])


def test_what_was_missed_nearby_widens_what_is_far() -> None:
    told = Calibration()
    near, far = np.array([[60.0, 80.0, 100.0, 130.0, 150.0, 160.0]]), np.array([[6e4, 1.8e5, 2e5, 2.3e5, 2.8e5, 3e5]])
    for number in range(40):
        told.learn(near, np.array([30.0 if number % 2 else 300.0]))
    (widened,) = told.correct(far)
    assert widened[0] < far[0, 0]
    assert widened[-1] > far[0, -1]
