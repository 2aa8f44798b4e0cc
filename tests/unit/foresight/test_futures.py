"""Futures of a state agree with what follows where all is known, and spread where it is not."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np
import pytest

from headway import NodeSpec, workload_of
from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError, InvalidInput
from headway.foresight import trial as trials
from headway.foresight.chances import TrackRecord
from headway.foresight.futures import Exactly, Floats, draw_futures, futures_for
from headway.foresight.learning import RunTimesOfLog
from headway.foresight.trial import FEW_INSTANTS, error_by_instant, trial
from headway.model.events import JobSubmitted, NodeJoined, Woke
from headway.model.instant import SECOND
from headway.model.job import Bag, Service
from headway.policies.registry import find
from headway.sim.kernel import Simulation


@dataclass
class Evenly:
    """Runs from `low` to `high` seconds, each as likely."""

    low: float
    high: float

    def quantile(self, level: float) -> float:
        return self.low + level * (self.high - self.low)

    def below(self, seconds: float) -> float:
        return min(1.0, max(0.0, (seconds - self.low) / (self.high - self.low)))


class Doubles(TrackRecord):
    """Has learnt that all takes twice as long."""

    def moved(self, ordered: Floats) -> Floats:
        return 2 * ordered


def state() -> StateRecord:
    """Job 0 has run for 100 of 600 seconds on the only slot; job 1 waits."""
    log = workload_of(release=[0, 0], runtime=[600, 300], estimate=[600, 300])
    simulation = Simulation(log, [NodeSpec("a", 1)], find, "fcfs")
    simulation.advance(100 * SECOND)
    return replace(simulation.scheduler.dump(), now=100 * SECOND)


def test_known_run_times_give_the_one_future() -> None:
    run_times = {0: 600.0, 1: 300.0}
    found = draw_futures(state(), find, lambda job, task: Exactly(run_times[job.id]), count=3)
    assert found.end.tolist() == [[500.0, 800.0]] * 3
    assert np.isnan(found.start[:, 0]).all()
    assert found.start[:, 1].tolist() == [500.0] * 3


def test_what_has_run_for_a_while_runs_longer_than_that() -> None:
    found = draw_futures(state(), find, lambda job, task: Evenly(0, 200), count=40, seed=1)
    left = found.end[:, 0]
    assert (left > 0).all()
    assert left.max() < 100.001
    assert left.mean() == pytest.approx(50, abs=5)  # evenly from 100 to 200, of which 100 have passed
    assert (found.start[:, 1] == left).all()


def test_what_has_run_longer_than_anything_known_goes_on() -> None:
    found = draw_futures(state(), find, lambda job, task: Evenly(0, 50), count=40, seed=1)
    left = found.end[:, 0]  # it has run for 100 s
    assert (left > 0).all()
    assert np.median(left) == pytest.approx(100, abs=15), "as long again"
    assert left.max() == pytest.approx(500), "but not longer than its estimate of 600 s"


@pytest.mark.parametrize(("jobs", "expected"), [(1, 40), (500, 40), (1000, 15), (2000, 9), (3000, 9)])
def test_the_more_jobs_are_open_the_fewer_futures_are_drawn(jobs: int, expected: int) -> None:
    log = workload_of(release=[0] * jobs, runtime=[600] * jobs, estimate=[600] * jobs)
    simulation = Simulation(log, [NodeSpec("a", 1)], find, "fcfs")
    simulation.advance(0)
    assert futures_for(simulation.scheduler.dump()) == expected


def test_services_run_on_beside_the_jobs() -> None:
    """Their instances go on, and start again, however long; the jobs have the slots that are left."""
    core = Scheduler(find, "services:batch=fcfs")
    core.handle(NodeJoined(0, NodeSpec("a", 3)))
    core.handle(JobSubmitted(0, Service(1, most=2, window=10 * SECOND, threshold=SECOND)))
    core.handle(Woke(0))
    core.handle(JobSubmitted(SECOND, Bag(2, SECOND, 100 * SECOND)))
    core.handle(Woke(SECOND))
    assert core.state.jobs[1].attempts
    found = draw_futures(core.dump(), find, lambda job, task: Exactly(50.0), count=2)
    assert found.jobs == (2,)
    assert found.end.tolist() == [[50.0]] * 2


def test_it_does_not_matter_how_many_processes_draw() -> None:
    alone, shared = (
        draw_futures(state(), find, lambda job, task: Evenly(0, 500), count=7, seed=2, processes=number)
        for number in (1, 3)
    )
    assert (alone.end == shared.end).all()
    assert np.array_equal(alone.start, shared.start, equal_nan=True)


def test_a_process_that_is_killed_while_it_draws_is_said() -> None:
    def killed(job: object, task: int) -> Exactly:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    with pytest.raises(HeadwayError, match="status -9"):
        draw_futures(state(), find, killed, count=4, processes=2)


def test_what_a_process_raises_while_it_draws_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    def unknown(job: object, task: int) -> Exactly:
        raise KeyError("nobody knows")

    with pytest.raises(HeadwayError, match=r"raised KeyError: 'nobody knows' \(.*test_futures.py, line "):
        draw_futures(state(), find, unknown, count=4, processes=2)
    assert capfd.readouterr().err == ""


def test_the_seed_fixes_all_draws() -> None:
    one, same, other = (draw_futures(state(), find, lambda job, task: Evenly(0, 500), seed=seed) for seed in (1, 1, 2))
    assert (one.end == same.end).all()
    assert (one.end != other.end).any()


def test_a_trial_of_jobs_whose_run_times_are_known_holds_always() -> None:
    log = workload_of(release=list(range(0, 6000, 60)), runtime=[100] * 100, estimate=[100] * 100)
    found = trial(log, [NodeSpec("a", 2)], "fcfs", RunTimesOfLog(log), instants=5, seed=1, futures=4, rehearsals=2)
    assert found.end.whole.asked > 0
    assert found.end.whole.coverage_90 == 1
    assert found.end.whole.width_90_median == pytest.approx(0, abs=0.01)
    assert (found.due_90.asked, found.due_90.kept) == (found.end.whole.asked, 1)
    assert np.isnan(found.due_90.error), "five instants are too few"


def test_of_due_dates_that_are_to_be_kept_with_90_it_is_counted_how_many_are() -> None:
    """Nine futures tell 90 %: the date is their latest end, at the next full second. One future has no end of job 3."""
    futures = np.array([[1.0, 2, 3, 4, 5, 6, 7, 8, 8.5]] * 3 + [[1.0, 2, 3, 4, 5, 6, 7, 8, np.inf]])
    ended = np.array([5.0, 9.0, 9.1, 5.0])
    none, jobs = np.full((4, 5), np.nan), tuple(range(4))
    made = []
    for number, is_asked in enumerate([True] * 12 + [False]):
        asked = trials._Asked(number * 100 * SECOND, is_asked, jobs, none, Future())
        bounds = trials._ForecastBounds(none, none, futures, np.zeros(4), 0)
        made.append(trials._Foretold(asked, bounds, np.zeros(4), ended))
    due = trials._judged(made).due_90
    assert (due.asked, due.kept) == (3 * 12, pytest.approx(2 / 3))
    assert due.error == 0, "all instants were alike"
    assert [held for held, _ in trials._dates_held(made[0], Doubles())] == [True] * 3, "dates are corrected"
    assert trials._judged([]).due_90.asked == 0


def test_jobs_of_which_nothing_is_known_and_those_behind_them_count_apart() -> None:
    """No job has an estimate. Of each user's only job nothing is known; and one slot lets nobody pass."""
    strangers = workload_of(release=range(0, 600, 60), runtime=[100] * 10, user=list("abcdefghij"))
    found = trial(strangers, [NodeSpec("a", 1)], "fcfs", RunTimesOfLog(strangers), instants=9, futures=4, rehearsals=0)
    assert found.no_forecast > found.instants == 9
    assert (found.end.whole.asked, found.start.whole.asked, found.due_90.asked) == (0, 0, 0)
    known = replace(strangers, estimate=np.array([100 * SECOND] * 9 + [-1]))
    found = trial(known, [NodeSpec("a", 1)], "fcfs", RunTimesOfLog(known), instants=9, futures=4, rehearsals=0)
    assert found.no_forecast < found.end.whole.asked, "the last job holds nobody up"


def test_a_trial_of_jobs_that_come_at_once_is_held_while_they_run() -> None:
    log = workload_of(release=[0] * 4, runtime=[100] * 4, estimate=[100] * 4)
    found = trial(log, [NodeSpec("a", 1)], "fcfs", RunTimesOfLog(log), instants=9, seed=1, futures=4, rehearsals=0)
    assert found.instants == 9
    assert found.start.whole.asked < found.end.whole.asked < 4 * 9
    nothing = workload_of(release=[0] * 4, runtime=[0] * 4, estimate=[100] * 4)
    with pytest.raises(InvalidInput, match=r"run time is 0; .*, because all come at once"):
        trial(nothing, [NodeSpec("a", 1)], "fcfs", RunTimesOfLog(nothing))


def test_a_trial_needs_instants() -> None:
    log = workload_of(release=[0, 60], runtime=[100] * 2, estimate=[100] * 2)
    with pytest.raises(InvalidInput, match="instants"):
        trial(log, [NodeSpec("a", 2)], "fcfs", RunTimesOfLog(log), instants=0)


def test_the_error_of_a_share_is_what_drawing_instants_again_gives() -> None:
    chance = np.random.default_rng(4)
    sizes = chance.integers(1, 60, 80)
    at = np.repeat(np.arange(80.0), sizes)
    held = chance.random(len(at)) < np.repeat(chance.beta(9, 1, 80), sizes)  # each instant has a chance of its own
    instants, error = error_by_instant(held, at)
    drawn = chance.integers(0, 80, (4000, 80))
    held_at = np.bincount(at.astype(int), weights=held)
    again = held_at[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    assert instants == 80
    assert error == pytest.approx(again.std(), rel=0.05)
    by_jobs = np.sqrt(held.mean() * (1 - held.mean()) / len(held))
    assert error > 1.5 * by_jobs


def test_the_error_of_jobs_of_an_instant_each_is_that_of_independent_ones_and_few_instants_tell_none() -> None:
    held = np.array([True] * 45 + [False] * 5)
    assert error_by_instant(held, np.arange(50.0)) == (50, pytest.approx(np.sqrt(0.9 * 0.1 / 49)))
    for few in (1, FEW_INSTANTS - 1):
        instants, error = error_by_instant(held, np.arange(50.0) % few)
        assert (instants, np.isnan(error)) == (few, True)
    assert not np.isnan(error_by_instant(held, np.arange(50.0) % FEW_INSTANTS)[1])
