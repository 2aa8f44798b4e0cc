"""What is read from a journal is what happened: compared with the measures of a simulation of the same events."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError
from headway.live.store.history import held, history
from headway.live.store.journal import FILE, Batch, Journal
from headway.metrics import summarise
from headway.model.actions import JobStatus
from headway.model.events import (
    Event,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    NodeJoined,
    NodeLeft,
    NodeResized,
    TaskEnded,
    TasksCancelled,
)
from headway.model.instant import SECOND
from headway.model.job import Bag, Kind
from headway.model.node import NodeSpec
from headway.model.schedule import STATUSES, Attempts, Schedule, task_runs
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.faults import Outage
from headway.sim.kernel import Simulation
from headway.sim.world import World

from ...rows import event_row

CLUSTER = (NodeSpec("slow", 4), NodeSpec("fast", 3, speed=2.0))
OUTAGES = [Outage("fast", 20, 45), Outage("slow", 60, 61)]


def mixed(seed: int, jobs: int = 50) -> Workload:
    chance = np.random.default_rng(seed)
    rigid = chance.random(jobs) < 0.3
    return workload_us(
        release=np.sort(chance.integers(0, 90, jobs)) * SECOND,
        runtime=(run := chance.integers(1, 15, jobs)) * SECOND,
        estimate=run * SECOND,
        tasks=np.where(rigid, 1, chance.integers(1, 9, jobs)),
        width=np.where(rigid, chance.integers(1, 4, jobs), 1),
        kind=np.where(rigid, Kind.RIGID, Kind.BAG),
        due=chance.integers(10, 200, jobs) * SECOND,
        priority=chance.integers(0, 5, jobs).astype(float),
    )


def journal_of(folder: Path, policy: str, events: list[Event], *, first: int = 0) -> Path:
    journal = Journal(folder)
    journal.store_snapshot(first, Scheduler(registry.find, policy).dump(), ())
    rows = [event_row(seq, event.at, event) for seq, event in enumerate(events, first + 1)]
    journal.write(Batch(events=rows))
    journal.close()
    return folder


def story(schedule: Schedule) -> dict[str, Any]:
    """All that a journal can know of a run."""
    names = ("release", "start", "end", "slots", "status", "priority", "due", "rounds")
    columns = {name: getattr(schedule, name).tolist() for name in names}
    assert schedule.holdings is not None
    columns |= {name: getattr(schedule.holdings, name).tolist() for name in ("at", "job")}
    columns["held"] = schedule.holdings.slots.tolist()
    return columns | {
        name: getattr(schedule, name) for name in ("begin", "busy", "lost", "kills", "migrations", "decisions")
    }


@pytest.mark.parametrize("policy", ["deadline", "edf", "priority:emergency=4", "easy", "keasy", "reasy", "measy"])
def test_a_journal_tells_what_the_simulation_of_its_events_has_measured(policy: str, tmp_path: Path) -> None:
    workload, events = mixed(seed=3), list[Event]()
    simulated = Simulation(workload, CLUSTER, registry.find, policy, outages=OUTAGES, journal=events).run()
    found = history(journal_of(tmp_path, policy, events), registry.find)
    assert story(found) == story(simulated)
    assert found.offered == simulated.offered
    told, known = summarise(found), summarise(simulated)
    known_alone = simulated.alone is None
    assert known_alone is (policy not in ("keasy", "reasy", "measy"))
    assert (simulated.migrations > 0) is (policy == "measy")
    for name in known:
        # It does not contain how long rounds took, nor how long jobs would have taken in the foreground.
        if not name.startswith(("decision_",) if known_alone else ("decision_", "bounded_slowdown_")):
            assert told[name] == pytest.approx(known[name], nan_ok=True), name
    if "emergency" in policy:
        assert found.kills > 0


def test_a_task_has_its_slots_from_its_launch_to_its_end(tmp_path: Path) -> None:
    """Also those whose first attempts were lost: the last one counts."""
    workload, events = mixed(seed=3), list[Event]()
    world, nodes = World(decision_time=0.25), (NodeSpec("n", 4), NodeSpec("fast", 3))
    run = Simulation(workload, nodes, registry.find, "edf", outages=OUTAGES[:1], world=world, journal=events).run()
    assert run.kills + run.lost > 0
    found = held(journal_of(tmp_path, "edf", events), registry.find)
    assert found == {
        (job, task): workload.runtime[job] + SECOND // 4
        for job in range(len(workload))
        for task in range(workload.tasks[job])
    }


def test_jobs_that_were_changed_or_cancelled_have_their_last_terms(tmp_path: Path) -> None:
    workload, events = mixed(seed=4, jobs=6), list[Event]()
    Simulation(workload, CLUSTER, registry.find, "edf", journal=events).run()
    submitted = [position for position, event in enumerate(events) if type(event).__name__ == "JobSubmitted"]
    last = submitted[-1]
    at = events[last].at
    # The last job is changed and then cancelled at once. Events of its run are no longer fed.
    events[last + 1 :] = [JobChanged(at, 5, priority=77.0, rate=6.0), JobCancelled(at, 5)]
    found = history(journal_of(tmp_path, "edf", events), registry.find)
    assert found.priority.tolist()[:5] == workload.priority.tolist()[:5]
    assert (found.priority[5], found.rate[5]) == (77.0, 6.0)
    assert summarise(found)["jobs_cancelled"] == 1
    assert found.until == at  # other jobs continue: what is known ends with the last event


def test_cancelled_tasks_are_replayed(tmp_path: Path) -> None:
    workload, events = mixed(seed=4, jobs=6), list[Event]()
    Simulation(workload, CLUSTER, registry.find, "edf", journal=events).run()
    last = max(place for place, event in enumerate(events) if isinstance(event, JobSubmitted))
    submitted = events[last]
    assert isinstance(submitted, JobSubmitted)
    tasks = tuple(range(submitted.job.tasks))
    events[last + 1 :] = [TasksCancelled(submitted.at, submitted.job.id, tasks[1:])]
    found = history(journal_of(tmp_path / "part", "edf", events), registry.find)
    assert summarise(found)["jobs_cancelled"] == 0  # its first task is still to be done
    events[last + 1 :] = [TasksCancelled(submitted.at, submitted.job.id, tasks)]
    found = history(journal_of(tmp_path / "whole", "edf", events), registry.find)
    assert summarise(found)["jobs_cancelled"] == 1
    assert found.status[5] == STATUSES.index(JobStatus.CANCELLED)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match="cannot be read"):
        history(tmp_path, registry.find)
    with pytest.raises(HeadwayError, match="has no jobs"):
        history(journal_of(tmp_path / "empty", "edf", []), registry.find)
    with pytest.raises(HeadwayError, match="has no jobs that were submitted after event 7"):
        history(journal_of(tmp_path / "later", "edf", [], first=7), registry.find)
    (tmp_path / FILE).write_bytes(b"no database at all, but long enough to be looked at")
    with pytest.raises(HeadwayError, match="cannot be read") as failed:
        history(tmp_path, registry.find)
    assert isinstance(failed.value.__cause__, sqlite3.Error)


def test_where_attempts_ran_is_recorded_as_in_a_simulation(tmp_path: Path) -> None:
    workload, events = mixed(seed=4), list[Event]()
    simulated = Simulation(workload, CLUSTER, registry.find, "fcfs", outages=OUTAGES, journal=events, record=True).run()
    found = history(journal_of(tmp_path, "fcfs", events), registry.find, record=True)
    assert found.nodes == simulated.nodes == ((CLUSTER[0], 0b1111), (CLUSTER[1], 0b1110000))
    assert found.attempts is not None
    assert simulated.attempts is not None
    for name in Attempts.__slots__:
        assert getattr(found.attempts, name).tolist() == getattr(simulated.attempts, name).tolist()
    first, last = simulated.attempts.first, simulated.attempts.first + simulated.attempts.count - 1
    assert (first // 4 == simulated.attempts.node).all()
    assert (last // 4 == simulated.attempts.node).all()
    assert history(tmp_path, registry.find).nodes == ()


def test_slots_of_a_node_that_left_belong_to_its_heir(tmp_path: Path) -> None:
    def job(number: int, at: int) -> JobSubmitted:
        return JobSubmitted(at * SECOND, Bag(number, release=at * SECOND, estimate=SECOND, tasks=2))

    def ends(number: int, at: int) -> list[Event]:
        return [TaskEnded(at * SECOND, number, task, 1) for task in range(2)]

    a, b = NodeSpec("a", 2), NodeSpec("b", 2, speed=2.0)
    events: list[Event] = [
        NodeJoined(0, a),
        job(0, 1),
        *ends(0, 2),
        NodeLeft(3 * SECOND, "a"),
        NodeJoined(4 * SECOND, b),
    ]
    events += [job(1, 5), *ends(1, 6), NodeResized(7 * SECOND, "b", 3), job(2, 8), *ends(2, 9)]
    found = history(journal_of(tmp_path, "fcfs", events), registry.find, record=True)
    assert found.nodes == ((a, 0b11), (replace(b, slots=3), 0b111))
    told = [(run.job, run.nodes, run.start // SECOND, run.end // SECOND) for run in task_runs(found)]
    assert told == [(0, ("a",), 1, 2)] * 2 + [(1, ("b",), 5, 6)] * 2 + [(2, ("b",), 8, 9)] * 2
