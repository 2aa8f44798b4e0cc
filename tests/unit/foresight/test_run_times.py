"""What earlier jobs tell of run times: those like a job, and not others of another kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headway import NodeSpec, workload_of
from headway.core.scheduler import Scheduler
from headway.foresight.futures import Exactly, RunTime
from headway.foresight.learning import RunTimesKnown, RunTimesOfLog, running_in
from headway.foresight.present import with_told
from headway.history.similar import LAST_RUNS
from headway.model.events import JobSubmitted, NodeJoined, TaskEnded, Woke
from headway.model.instant import SECOND
from headway.model.job import AnyJob, Service, TaskSpec, Workflow
from headway.policies.registry import find
from headway.sim.kernel import Simulation
from headway.testing import job, node

DEFAULT = 600 * SECOND


def like(name: str = "", estimate: float | None = None, user: str = "ann") -> AnyJob:
    return replace(job(1, estimate=estimate), name=name, user=user)


def bounds(run_time: RunTime) -> tuple[float, float]:
    return run_time.quantile(0.05), run_time.quantile(0.95)


def test_calls_without_estimate_tell_nothing_of_jobs_with_one() -> None:
    known = RunTimesKnown(DEFAULT)
    for _ in range(10_000):
        known.learn(like("noop"), 600)
    low, high = bounds(known(like("long", 60), 0))
    assert 20 < low < 60 < high < 140
    assert known(like("noop"), 0).quantile(0.9) < 0.001


def test_nor_do_those_of_a_log() -> None:
    """Of one user: 10,000 jobs of 600 microseconds without an estimate, then one of about a minute."""
    log = workload_of(release=[0] * 10_001, runtime=[0.0006] * 10_000 + [60], estimate=[np.nan] * 10_000 + [60])
    known = RunTimesOfLog(log)
    for position in range(10_000):
        known.learn(position)
    found = known.expected((0, 10_000), Simulation(log, [NodeSpec("a", 1)], find, "fcfs").scheduler.dump())
    assert found[10_000].quantile(0.5) > 30
    assert found[0].quantile(0.9) == pytest.approx(0.0006)


def test_what_runs_tells_of_what_waits() -> None:
    """Of ten jobs of a user three have failed at once. The others run: those that wait will hardly end so soon."""
    log = workload_of(release=[0] * 12, runtime=[1.0] * 3 + [5000.0] * 9, estimate=[10_000] * 12)
    known, simulation = RunTimesOfLog(log), Simulation(log, [NodeSpec("a", 10)], find, "fcfs")
    simulation.advance(1000 * SECOND)
    state = replace(simulation.scheduler.dump(), now=1000 * SECOND)
    for position in range(3):
        known.learn(position)
    by_the_ended, found = known._known(known._terms(11), 0), known.expected((11,), state)[11]
    assert by_the_ended.quantile(0.4) == 1.0
    assert found.quantile(0.1) < 2.0
    assert found.quantile(0.4) > 990
    assert 5000 < found.quantile(0.95) <= 22_000, "as long again in the median, or much longer"


def test_how_long_a_task_has_run_counts_by_the_speed_of_its_slot() -> None:
    log = workload_of(release=[0], runtime=[500.0], estimate=[1000])
    simulation = Simulation(log, [NodeSpec("idle", 1, speed=0.5), NodeSpec("a", 3, speed=2.0)], find, "edf")
    simulation.advance(10 * SECOND)
    state = replace(simulation.scheduler.dump(), now=100 * SECOND)
    (slots,) = [attempt.slots for job in state.jobs for attempt in job.attempts]
    assert slots[0] > 0, "on the fast node"
    assert [ran for _, ran in running_in(state)] == [200 * SECOND]


def test_jobs_of_one_name_tell_of_that_name_and_others_only_a_little() -> None:
    known = RunTimesKnown(DEFAULT)
    for _ in range(LAST_RUNS):
        known.learn(like("short", 100), 5 * SECOND)
    assert bounds(known(like("short", 100), 0)) == (5, 5)
    low, high = bounds(known(like("other", 100), 0))
    assert low == 5
    assert high > 100


def test_nothing_is_known_of_a_job_without_estimate_and_past() -> None:
    known = RunTimesKnown(DEFAULT)
    for took in (3, 4):
        known.learn(like("seen"), took * SECOND)
    assert [known.knows(like(name)) for name in ("seen", "")] == [False, False]
    known.learn(like("seen"), 5 * SECOND)
    assert known.knows(like("seen"))
    assert not known.knows(like("seen", user="bob"))
    assert not known.knows(like("other"))
    assert known.knows(like("other", 9))
    assert bounds(known(like(""), 0)) == (600, 600)


def test_of_a_bag_without_estimate_and_past_its_own_tasks_tell_of_the_others() -> None:
    """A slot of speed 2, and tasks that take it 8 s: when two have ended, each of the others is about 16 s of work."""
    core, known = Scheduler(find, "fcfs", estimate_default=DEFAULT), RunTimesKnown(DEFAULT)
    first, second = job(1, tasks=6), job(2, tasks=6)
    for event in (NodeJoined(0, node("a", speed=2.0)), JobSubmitted(0, first), JobSubmitted(0, second), Woke(0)):
        core.handle(event)
    assert known.unknown(core.dump()) == {1, 2}
    for task in range(2):
        core.handle(TaskEnded((task + 1) * 8 * SECOND, 1, task, 1))
    state = core.dump()
    assert known.unknown(state) == {2}
    run_times = known.at(state)
    low, high = bounds(run_times(first, 5))
    assert 16 / 3 < low < 16 < high < 3 * 16
    assert run_times(second, 0) == Exactly(600.0)


def test_what_is_told_is_known() -> None:
    known = with_told(RunTimesKnown(DEFAULT), {1: (7 * SECOND,)})
    assert [known(like("x", 60), task) for task in (0, 1)] == [Exactly(7.0)] * 2
    known = with_told(RunTimesKnown(DEFAULT), {1: (7 * SECOND, 8 * SECOND)})
    assert [known(like("x", 60), task) for task in (0, 1)] == [Exactly(7.0), Exactly(8.0)]


def test_of_a_service_it_is_not_asked_how_long_it_runs() -> None:
    core = Scheduler(find, "fcfs", estimate_default=DEFAULT)
    service = Service(1, name="s", user="ann", most=1)
    for event in (NodeJoined(0, node("a")), JobSubmitted(0, service), JobSubmitted(0, job(2)), Woke(0)):
        core.handle(event)
    assert RunTimesKnown(DEFAULT).unknown(core.dump()) == {2}


def workflow(*estimates: float, name: str = "flow", assumed: bool = False) -> AnyJob:
    graph = tuple(TaskSpec(round(estimate * SECOND), assumed=assumed) for estimate in estimates)
    return Workflow(1, name=name, user="ann", graph=graph)


def test_each_task_of_a_workflow_has_its_own_estimate() -> None:
    known, flow = RunTimesKnown(DEFAULT), workflow(3, 300)
    for task, estimate in enumerate((3, 300)):
        low, high = bounds(known(flow, task))
        assert estimate / 3 < low < estimate < high < 3 * estimate
    assert known.knows(flow)


def test_workflows_teach_shares_of_their_estimates() -> None:
    """Tasks that were to run for 5 s on average ran for 10: of another workflow, that of 100 s runs for about 200."""
    known = RunTimesKnown(DEFAULT)
    for _ in range(LAST_RUNS):
        known.learn(workflow(4, 6), 10 * SECOND)
    assert known(workflow(1, 100), 1).quantile(0.5) == pytest.approx(200)


def test_of_a_workflow_without_estimates_nothing_is_known_until_some_have_ended() -> None:
    """A client puts in the default for each task."""
    known, flow = RunTimesKnown(DEFAULT), workflow(600, 600, assumed=True)
    assert not known.knows(flow)
    assert known(flow, 0) == Exactly(600.0)
    for _ in range(3):
        known.learn(flow, 7 * SECOND)
    assert known.knows(flow)
    assert known(flow, 0).quantile(0.5) == pytest.approx(7)
