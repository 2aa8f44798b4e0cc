"""The status checker of a real server, by its commands and by another program that reads its tables."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway import Client, Job, Task
from headway.model.instant import to_seconds

from ..waiting import LIMIT, until
from .conftest import Up, headway

HOT = "node = 'n-1' AND metric = 'disks.hot_share'"

COLLECTORS = """\
import time


class Disks:
    def __call__(self, nodes):
        return {node.name: {"free_bytes": 2.5e9, "hot_share": 0.25, "spare": len(node.processes())} for node in nodes}


class Hangs:
    def __call__(self, nodes):
        time.sleep(3600)


class Raises:
    def __call__(self, nodes):
        raise OSError("the array is degraded")
"""

ENTRY_POINTS = """\
[headway.collectors]
disks = collecting:Disks
hangs = collecting:Hangs
raises = collecting:Raises
unloadable = collecting:Missing
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server with collectors of another package: a good one, and faulty ones."""
    folder = tmp_path_factory.mktemp("checked")
    (folder / "collecting.py").write_text(COLLECTORS)
    (folder / "collecting-1.dist-info").mkdir()
    (folder / "collecting-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: collecting\nVersion: 1\n")
    (folder / "collecting-1.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        server = Up(folder)
        server.start("--check-every", "0.2s")
        yield server
        server.stop()  # a collector that hangs does not hold up the end


def ask(up: Up, *words: str) -> str:
    done = headway(*words, "--data", up.data)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(up: Up, query: str) -> list[tuple[Any, ...]]:
    """Read the tables as another program does while the server runs."""
    with closing(sqlite3.connect(f"file:{up.data / 'journal.sqlite'}?mode=ro", uri=True)) as db:
        return db.execute(query).fetchall()


def test_metrics_are_shown_and_are_in_the_table(up: Up) -> None:
    until(lambda: read(up, "SELECT 1 FROM node_metrics WHERE metric = 'node.processors'"))
    until(lambda: read(up, f"SELECT count(*) FROM node_metrics WHERE {HOT}") > [(1,)])
    nothing = "Nothing was found of disks.heat yet; `headway metrics` shows what was.\n"
    assert ask(up, "metrics", "--metric", "disks.heat") == nothing
    table = ask(up, "metrics").splitlines()
    assert table[0].split() == ["metric", "n-1", "n-2"]
    shown = {words[0]: words[1:] for words in map(str.split, table[2:]) if words}
    assert shown["disks.free_bytes"] == ["2.5", "GB", "2.5", "GB"]
    assert shown["disks.hot_share"] == ["25", "%", "25", "%"]
    assert all(int(count) >= 2 for count in shown["disks.spare"]), "the node's process and that of its slot"
    assert {"machine.load", "machine.cpu_share", "node.memory_bytes", "node.disk_write_bytes_per_second"} <= set(shown)
    (one,) = json.loads(ask(up, "metrics", "n-2", "--metric", "disks.hot_share", "--json"))
    assert (one["node"], one["metric"], one["value"]) == ("n-2", "disks.hot_share", 0.25)
    assert abs(one["at"] - time.time()) < 60
    found = json.loads(ask(up, "metrics", "n-1", "--metric", "disks.hot_share", "--since", "1h", "--json"))
    stored = read(up, f"SELECT at FROM node_metrics WHERE {HOT} ORDER BY at")
    assert [one["at"] for one in found] == [to_seconds(at) for (at,) in stored[: len(found)]]
    assert len(found) > 1


def test_collectors_that_fail_are_incidents_and_hold_up_nobody(up: Up) -> None:
    def reported() -> dict[str, dict[str, Any]]:
        return {one["subject"]: one for one in json.loads(ask(up, "incidents", "--json"))}

    until(lambda: {"raises", "unloadable"} <= set(reported()))
    told = reported()
    assert set(told) <= {"raises", "unloadable", "hangs"}, "who hangs is told of after ten seconds"
    assert {one["kind"] for one in told.values()} == {"collector_failed"}
    assert told["raises"]["detail"].startswith("it raised OSError: the array is degraded (")
    assert "has no attribute 'Missing'" in told["unloadable"]["detail"]
    lines = ask(up, "incidents").splitlines()
    assert lines[0].split() == ["at", "kind", "of", "detail"]
    shown = json.loads(ask(up, "checker", "--json"))
    assert (shown["on"], shown["every"]) == (True, 0.2)
    by_name = {one["name"]: one for one in shown["collectors"]}
    assert sorted(by_name) == ["disks", "hangs", "machine", "node", "raises", "unloadable"]
    assert {name for name, one in by_name.items() if one["status"] == "fails"} == {"raises", "unloadable"}
    assert by_name["hangs"]["answered"] is None
    with Client(data=str(up.data)) as client:
        client.submit(Job("beside", [Task(abs, -3)])).result()


def test_it_is_switched_off_and_on_and_a_killed_server_goes_on_with_what_was_found(up: Up) -> None:
    assert ask(up, "checker", "off").startswith("It is off, with a period of 0.2 s.")
    before = read(up, "SELECT count(*), max(at) FROM node_metrics")
    time.sleep(0.5)
    assert read(up, "SELECT count(*), max(at) FROM node_metrics") == before
    assert ask(up, "checker", "on", "--every", "0.1s").startswith("It is on, with a period of 0.1 s.")
    until(lambda: read(up, "SELECT count(*) FROM node_metrics") > before[:1])
    up.kill()
    ((count, last),) = read(up, "SELECT count(*), max(at) FROM node_metrics")
    up.start()
    assert json.loads(ask(up, "checker", "--json"))["every"] == 0.1
    until(lambda: read(up, f"SELECT 1 FROM node_metrics WHERE at > {last} AND metric = 'node.processors'"))
    assert read(up, f"SELECT count(*) FROM node_metrics WHERE at <= {last}") == [(count,)]


def test_statuses_of_slots_and_run_times_of_jobs_are_in_the_tables(up: Up, tmp_path: Path) -> None:
    with Client(data=str(up.data)) as client:
        door = tmp_path / "door"
        script = f"sleep 0.5; until [ -e {door} ]; do sleep 0.01; done"
        waiter = client.submit(Job("timed", [Task.command("sh", "-c", script)] * 3))
        query = "SELECT node FROM slot_statuses WHERE status = 'busy' AND slot = 0 GROUP BY node ORDER BY node"
        until(lambda: read(up, query) == [("n-1",), ("n-2",)])
        door.touch()
        waiter.result(LIMIT)
        ((tasks, mean, spread),) = read(
            up, f"SELECT tasks, mean, spread FROM job_statistics WHERE job = {waiter.job} AND node_class = 'speed=1'"
        )
        assert tasks == 3
        assert 0.5 <= to_seconds(mean) < LIMIT
        (known,) = client.job(waiter.job).times
        assert (known.node_class, known.tasks) == ("speed=1", tasks)
        assert (known.mean, known.spread) == (to_seconds(mean), to_seconds(spread))
    shown = ask(up, "job", str(waiter.job))
    assert "Run times by class of nodes" in shown
    assert "These count from a launch until its end is known" in shown
    assert "speed=1" in shown
