"""What is learnt from a core, and what is asked of a predictor for it."""

from __future__ import annotations

from typing import Any

from headway.core.scheduler import Scheduler
from headway.history.predictions import Predictions
from headway.model.events import (
    ClockStepped,
    Event,
    JobCancelled,
    JobSubmitted,
    NodeJoined,
    PolicyChosen,
    TaskEnded,
    Woke,
)
from headway.model.instant import Duration
from headway.model.job import Bag, JobSpec, Rigid, Service
from headway.model.outcome import Outcome
from headway.policies import registry
from headway.testing import node


class Noting:
    """A predictor that says 7, and writes down what it was asked and taught."""

    def __init__(self) -> None:
        self.learnt: list[tuple[int, Duration]] = []
        self.asked: list[float] = []

    def learn(self, job: JobSpec, took: Duration) -> None:
        self.learnt.append((job.id, took))

    def run_time(self, job: JobSpec, quantile: float) -> Duration | None:
        self.asked.append(quantile)
        return 7 if job.name else None


class Run:
    """A core with two slots, and predictions beside it."""

    def __init__(self, policy: str = "easy", **of_node: Any) -> None:
        self.noting = Noting()
        self.predictions = Predictions(self.noting)
        self.core = Scheduler(registry.find, policy)
        self.feed(NodeJoined(0, node("n", **{"slots": 2, **of_node})))

    def feed(self, *events: Event) -> None:
        for each in events:
            for event in (each, Woke(each.at)):
                told = self.predictions.told(event, self.core)
                self.predictions.note(told, self.core.handle(told), self.core)

    def submit(self, at: int, job: JobSpec) -> None:
        self.feed(JobSubmitted(at, job))  # type: ignore[arg-type]


def test_a_job_comes_with_what_is_predicted() -> None:
    run = Run()
    run.submit(0, Rigid(1, name="known", estimate=100))
    run.submit(0, Rigid(2, estimate=100))
    assert [run.core.state.jobs[job].estimate for job in (1, 2)] == [7, 100]


def test_each_policy_asks_for_its_quantile() -> None:
    run = Run("easy:quantile=0.3")
    run.submit(0, Rigid(1))
    run.feed(PolicyChosen(1, "easy"))
    run.submit(1, Rigid(2))
    run.feed(PolicyChosen(2, "deadline"))
    run.submit(2, Bag(3))
    assert run.noting.asked == [0.3, 0.2, 0.75]


def test_a_job_that_has_succeeded_tells_how_long_its_tasks_ran() -> None:
    run = Run("deadline")
    run.submit(0, Bag(1, tasks=2, estimate=100))
    run.feed(TaskEnded(10, 1, 0, 1, Outcome.SUCCEEDED))
    assert run.noting.learnt == []
    run.feed(TaskEnded(30, 1, 1, 1, Outcome.SUCCEEDED))
    assert run.noting.learnt == [(1, 20)]


def test_on_a_slow_node_it_ran_longer_than_on_others() -> None:
    run = Run(speed=0.5)
    run.submit(0, Rigid(1, width=2))
    run.feed(TaskEnded(40, 1, 0, 1, Outcome.SUCCEEDED))
    assert run.noting.learnt == [(1, 20)]


def test_nothing_is_learnt_from_failures_and_from_jobs_that_were_cancelled() -> None:
    run = Run("deadline")
    run.submit(0, Rigid(1))
    run.feed(TaskEnded(40, 1, 0, 1, Outcome.EXITED))
    run.submit(50, Bag(2, tasks=2))
    run.feed(TaskEnded(60, 2, 0, 1, Outcome.SUCCEEDED), JobCancelled(70, 2), TaskEnded(70, 2, 1, 1, Outcome.KILLED))
    assert run.core.state.jobs == {}
    assert run.noting.learnt == []


def test_nothing_is_learnt_from_what_ran_while_the_clock_stepped() -> None:
    run = Run()
    run.submit(0, Rigid(1))
    run.feed(ClockStepped(1000, 900), TaskEnded(1010, 1, 0, 1, Outcome.SUCCEEDED))
    assert run.noting.learnt == []


def test_nothing_is_learnt_from_services() -> None:
    run = Run("instances")
    run.submit(0, Service(1, most=1, threshold=5, window=10))
    run.feed(JobCancelled(50, 1), TaskEnded(60, 1, 0, 1, Outcome.SUCCEEDED))
    assert run.core.state.jobs == {}
    assert run.noting.learnt == []
