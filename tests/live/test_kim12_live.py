"""Kim12 live: real tasks at three sites, one of which rents machines, and the same in the simulator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.workload import BagTimes, Workload, workload_us
from headway.reproduce.children import Children, kill_below
from headway.reproduce.kim12.live import (
    DELAYED,
    GRID,
    LIVE,
    MEASURED,
    OURS,
    PERIOD,
    PRIVATE,
    PUBLIC,
    SIMULATED,
    TYPES,
    delayed,
    result,
    sample,
    twice,
)

from ..waiting import gone, paths_below, until


def test_a_sample_has_as_many_tasks_as_asked_for_and_two_that_are_delayed_and_is_the_same_for_its_seed() -> None:
    for tasks in (2, 3, 20, 100):
        jobs, again, other = sample(tasks, 1), sample(tasks, 1), sample(tasks, 2)
        assert jobs.tasks.sum() == tasks
        assert jobs.bags == again.bags != other.bags
        assert (jobs.due > jobs.release).all()
        assert len(delayed(jobs)) == min(DELAYED, len(jobs))


def small() -> Workload:
    """20 tasks: a job with time to spare, one that only rented machines can save, and one that nothing can.

    Every due date is seconds from when its job ends, so the outcome does not hang on how fast this machine is. The
    first job ends after about 20 of 60 s, the second 3 s after it is due. The third has tasks of 6 s, for seven of
    which there is no room at the first two sites; a rented machine has 13 s to join.
    """
    bags = (
        (0.0, 5.0, 60.0, (20.0, *[5.0] * 5)),
        (0.5, 3.0, 9.5, (3.0, 12.0)),
        (2.0, 6.0, 21.0, (6.0,) * 12),
    )
    return workload_us(
        release=[round(release * SECOND) for release, *_ in bags],
        runtime=[round(expected * SECOND) for _, expected, _, _ in bags],
        estimate=[round(expected * SECOND) for _, expected, _, _ in bags],
        due=[round(due * SECOND) for _, _, due, _ in bags],
        tasks=[len(times) for *_, times in bags],
        kind=int(Kind.BAG),
        bags={
            job: BagTimes(tuple(round(time * SECOND) for time in times), sizes=(1.0,) * len(times))
            for job, (*_, times) in enumerate(bags)
        },
    )


@pytest.mark.slow
def test_due_dates_missed_are_those_of_the_simulator_and_the_money_is_but_for_what_a_period_costs() -> None:
    """A machine is billed in whole periods. The runs differ by less than one, so each bill does by one at most."""
    pytest.importorskip("moto.server", reason="it is not installed (pip install 'moto[ec2,server]')")
    jobs, counted = small(), list[int]()
    assert delayed(jobs) == ["0.0", "1.1"]
    found = twice(OURS, jobs, counted.append)
    live = found.runs[LIVE]
    for name, ran in found.runs.items():
        assert list(ran.late_jobs) == [1], name
        assert [(one.job, one.task) for one in ran.late_tasks] == [(1, 1)], name
        assert ran.at_sites.total() == 20
        assert all(ran.at_sites[site] for site in (GRID, PRIVATE, PUBLIC)), name
        assert ran.rentals, name
    for name in (SIMULATED, MEASURED):
        other = found.runs[name]
        most = max(live.rentals, other.rentals, key=len)
        assert abs(live.money - other.money) <= sum(TYPES[one.type][1] for one in most) + 1e-9, name
    bills = {kind: price for kind, (_, price) in TYPES.items()}
    for one in live.rentals:
        periods = -(-(one.until - one.since) // round(PERIOD * SECOND))
        assert one.cost == pytest.approx(periods * bills[one.type] * 1e6, abs=1)
    assert max(counted) <= 20
    told = result({OURS: found}, jobs)
    assert [row[:3] for row in told.tables[0].rows[:3]] == [(OURS, name, "1") for name in (LIVE, SIMULATED, MEASURED)]
    assert sum(row[1] == LIVE and row[2] == "task" for row in told.rows) == 20
    assert sum(row[9] for row in told.rows if row[1] == LIVE and row[2] == "machine") == pytest.approx(live.money)


def below(folder: Path) -> list[int]:
    """The processes that have files of this folder, or tell of it."""
    found = []
    for process in psutil.process_iter():
        try:
            said = " ".join([*process.cmdline(), process.environ().get("TMPDIR", "")])
        except psutil.Error:
            continue
        if str(folder) in said:
            found.append(process.pid)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="ctrl-c"),
        pytest.param(signal.SIGTERM, id="term", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, id="kill", marks=pytest.mark.slow),
    ],
)
def test_no_process_and_no_file_is_left_when_the_experiment_is_interrupted(
    tmp_path: Path, number: signal.Signals
) -> None:
    pytest.importorskip("moto.server", reason="it is not installed (pip install 'moto[ec2,server]')")
    words = ["-m", "headway", "reproduce", "kim12", "live", "--tasks", "20"]
    experiment = subprocess.Popen(
        [sys.executable, *words], env=os.environ | {"TMPDIR": str(tmp_path)}, start_new_session=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        (log,) = until(lambda: list(tmp_path.glob("*/data/log")))
        until(lambda: paths_below(log.parent.parent / "machines" / "p1"))
        until(lambda: b"node" in log.read_bytes() or (log.parent / "token").exists())
        time.sleep(2)  # in the middle of the jobs, as a rule
        assert len(below(log.parent.parent)) > 5
        if number is signal.SIGINT:
            os.killpg(experiment.pid, number)  # as a terminal does
        else:
            experiment.send_signal(number)
        assert experiment.wait(60) in (130, -number)
        until(lambda: below(tmp_path) == [] == list(tmp_path.iterdir()))
    finally:
        kill_below(tmp_path)


@pytest.mark.long
def test_children_end_with_the_context_also_those_in_sessions_of_their_own(tmp_path: Path) -> None:
    """Each says which processes it has started: one in a session of its own, and one in its own session."""
    script = "setsid sleep 1000 & echo $!; sleep 1000 & echo $!; wait"
    with Children(tmp_path / "all") as children:
        for name in ("one", "other"):
            children.start(name, ["/bin/sh", "-c", script])
            until(lambda name=name: len(children.said(name).split()) == 2)  # type: ignore[misc]
        first, second = ([*map(int, children.said(name).split())] for name in ("one", "other"))
        assert not children.has_ended("one")
        children.kill("one")
        assert all(map(gone, first))
        assert not any(map(gone, second))
    assert all(map(gone, second))
    assert below(tmp_path) == []
