"""A server over Dask while everything that can die dies, by seed: each result comes once, whatever ran twice."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import psutil
import pytest

from headway import Client, Job, Task
from headway.engines.local.driver.host import put_down
from headway.live.store.journal import FILE

from ...dask_site import Processes
from ...waiting import LIMIT
from ..conftest import Up

pytestmark = pytest.mark.thorough

TASKS = 200
WORKERS = ("a", "b", "c")


def noted(number: int, log: str) -> int:
    """Notes in one write that it runs, and takes a while."""
    import os
    import time

    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{number}\n".encode())
    os.close(file)
    time.sleep(0.1)
    return number


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the workers' agents keep their files; nothing runs there at the end."""
    folder = tmp_path / "there"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    for node in folder.glob("headway-*/*/*/nodes/*"):
        put_down(node)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
@pytest.mark.usefixtures("there")
def test_whatever_dies_each_result_comes_once(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    site = Processes(tmp_path / "dask").scheduler()
    port = int(site.address.rpartition(":")[2])
    for name in WORKERS:
        site.worker(name)
    up = Up(tmp_path)
    log = tmp_path / "ran"

    def kill_worker() -> None:
        name = chance.choice(WORKERS)
        site.kill(name)
        time.sleep(chance.random())
        site.worker(name)

    def stop_worker() -> None:
        name = chance.choice(WORKERS)
        site.kill(name, signal.SIGSTOP)
        time.sleep(3 + 2 * chance.random())
        site.kill(name, signal.SIGCONT)

    def kill_agent() -> None:
        until = time.monotonic() + LIMIT
        while not (there := [found for name in WORKERS if (found := agent_of(name)) is not None]):
            assert time.monotonic() < until, "no node has an agent"
            time.sleep(0.05)
        chance.choice(there).kill()

    def kill_server() -> None:
        up.kill()
        time.sleep(chance.random())
        up.start(cluster=False)

    def kill_scheduler() -> None:
        site.kill("scheduler")
        time.sleep(chance.random())
        site.scheduler(port)
        for name in WORKERS:  # Dask ended them with their scheduler
            site.worker(name)

    def agent_of(name: str) -> psutil.Process | None:
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):
                words = process.cmdline()
                ours = "headway.engines.local.agent.guard" in words and f'"name":"{name}"' in words[4]
                if ours and str(tmp_path) in words[4] and (children := process.children()):
                    return children[0]
        return None

    faults: list[Callable[[], None]] = [kill_worker, stop_worker, kill_agent, kill_server, kill_scheduler]
    chance.shuffle(faults)
    try:
        up.start("--dask", site.address, "--lease", "2s", cluster=False)
        with Client(data=up.data) as client:
            waiter = client.submit(Job("bag", [Task(noted, number, str(log)) for number in range(TASKS)], retries=0))
            for place, fault in enumerate(faults):
                until = time.monotonic() + LIMIT
                while waiter.progress[0] < TASKS * place // (len(faults) + 1) and time.monotonic() < until:
                    time.sleep(0.02)
                assert not waiter.done(), f"all had ended before {fault.__name__}"
                fault()
            assert waiter.result(2 * LIMIT) == list(range(TASKS))
        up.stop()
    finally:
        up.kill()
        site.end()
    with closing(sqlite3.connect(up.data / FILE)) as db:
        told = db.execute("SELECT count(*), count(DISTINCT task) FROM messages WHERE task IS NOT NULL").fetchone()
    assert told == (TASKS, TASKS)
    ran = Counter(log.read_text().split())
    assert len(ran) == TASKS
    # What ran on a node that was given up, or had read ahead there, runs again.
    assert sum(ran.values()) - TASKS <= len(faults) * 40
    print(f"seed {seed}: {sum(ran.values()) - TASKS} attempts ran again")
