"""The how-to on placement by your own metric, followed word for word: collector and policy, under real I/O."""

from __future__ import annotations

import importlib
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from headway import Client, Job, Task
from headway.core.scheduler import Scheduler
from headway.live.store.journal import Journal
from headway.model.events import JobSubmitted, NodeJoined, NodeMeasured, TaskEnded, Woke
from headway.model.instant import SECOND
from headway.model.plan import Reason
from headway.testing import job, node

from ..waiting import until
from .conftest import Up

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "place-by-io.md"
METRIC = "io.utilisation_share"

CLUSTER = """\
[[node]]
name = "n"
slots = 2
count = 2
"""

WRITER = """
import os, pathlib, sys, time
block = os.urandom(4 << 20)
with open(sys.argv[1], "wb") as file:
    while not pathlib.Path(sys.argv[2]).exists():
        file.seek(0)
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
        time.sleep(0.02)
"""
"""Writes without end, to a disk, until a file is there."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", HOW_TO.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package of the how-to is installed, with the entry points that it names."""
    folder = tmp_path_factory.mktemp("package")
    (source,), (offered,) = blocks("python"), blocks("toml")
    (folder / "quiet_disk.py").write_text(source, "utf-8")
    installed = folder / "quiet_disk-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: quiet-disk\nVersion: 1.0\n")
    groups = tomllib.loads(offered)["project"]["entry-points"]
    assert set(groups) == {"headway.collectors", "headway.policies"}
    text = "".join(
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in entries.items())
        for group, entries in groups.items()
    )
    (installed / "entry_points.txt").write_text(text)
    return folder


@pytest.fixture
def shown(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(package)
    monkeypatch.delitem(sys.modules, "quiet_disk", raising=False)
    yield importlib.import_module("quiet_disk")
    sys.modules.pop("quiet_disk", None)


class Cluster:
    """A core with two nodes of two slots under the policy of the how-to."""

    def __init__(self, policy: Any) -> None:
        self.now = 0
        self.core = Scheduler(lambda _: policy, "shown")
        for name in ("a", "b"):
            self.feed(NodeJoined(0, node(name, slots=2)))

    def feed(self, event: Any) -> None:
        self.core.handle(event)
        self.core.handle(Woke(self.now))
        self.core.check()

    def measure(self, **values: float) -> None:
        for name, value in values.items():
            self.feed(NodeMeasured(self.now, name, ((METRIC, value),)))

    def where(self, number: int) -> dict[int, str]:
        attempts = self.core.state.jobs[number].attempts
        return {
            task: self.core.state.slot_nodes[attempt.slots.bit_length() - 1].spec.name
            for task, attempt in attempts.items()
        }


def test_the_policy_prefers_the_quiet_disk_and_keeps_off_loud_ones(shown: ModuleType) -> None:
    cluster = Cluster(shown.QuietDisk(most=0.5))
    cluster.measure(a=0.4, b=0.1)
    cluster.feed(JobSubmitted(0, job(1, tasks=3)))
    assert cluster.where(1) == {0: "b", 1: "b", 2: "a"}
    cluster.measure(a=0.9)
    cluster.feed(JobSubmitted(0, job(2, tasks=2)))
    assert cluster.where(2) == {}
    assert cluster.core.explain(2).reason is Reason.NO_ROOM_NOW
    cluster.feed(TaskEnded(0, 1, 0, 1))
    assert cluster.where(2) == {0: "b"}
    # A slot of a is free, but its disk is too busy. When that is over, the policy looks again by itself.
    cluster.measure(a=0.2)
    assert cluster.where(2) == {0: "b"}
    cluster.now = 5 * SECOND
    cluster.feed(Woke(cluster.now))
    assert cluster.where(2) == {0: "b", 1: "a"}
    assert not cluster.core.refusals


def test_the_policy_leaves_other_kinds_of_jobs_alone(shown: ModuleType) -> None:
    cluster = Cluster(shown.QuietDisk())
    cluster.feed(JobSubmitted(0, job(1, width=2)))
    assert cluster.where(1) == {}
    assert cluster.core.explain(1).reason is Reason.NOT_SERVED


@pytest.mark.thorough
def test_new_tasks_go_where_the_disk_is_quiet_under_real_io(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not counts_writes(tmp_path / "probe"):
        pytest.skip(f"{tmp_path} is on no disk: what is written there is no I/O")
    monkeypatch.setenv("PYTHONPATH", str(package))
    up = Up(tmp_path, CLUSTER)
    up.start("--policy", "quiet_disk", "--check-every", "1s")
    try:
        with Client(data=str(up.data)) as client:
            placed = place_beside_a_writer(client, tmp_path)
    finally:
        up.stop()
    # What the policy saw is in the journal, before each round. It chose the node with less I/O.
    journal = Journal(up.data)
    try:
        events = [event for _, event in journal.events()]
    finally:
        journal.close()
    for number, chosen in placed.items():
        use = dict.fromkeys(("n-1", "n-2"), 0.0)
        for event in events:
            if isinstance(event, JobSubmitted) and event.job.id == number:
                break
            if isinstance(event, NodeMeasured):
                use[event.name] = dict(event.values).get(METRIC, use[event.name])
        assert chosen == min(use, key=lambda name: use[name]), f"job {number}: {use}"


def run_somewhere(client: Client) -> tuple[int, str]:
    """Run a task, and return its node."""
    waiter = client.submit(Job("where", [Task.command("sh", "-c", "echo $HEADWAY_NODE")]))
    (result,) = until(lambda: client.results(waiter.job))
    return waiter.job, result.ending.stdout.decode().strip()


def counts_writes(path: Path) -> bool:
    """Whether data that is written to a file goes to a disk."""
    before = psutil.Process().io_counters().write_bytes
    with path.open("wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    return bool(psutil.Process().io_counters().write_bytes > before)


def place_beside_a_writer(client: Client, folder: Path) -> dict[int, str]:
    """Submit tasks while another one writes. Returns the node of each."""
    assert [one.name for one in client.checker().collectors] == ["io", "machine", "node"]
    stop = folder / "stop"
    writer = client.submit(
        Job("writer", [Task.command(sys.executable, "-c", WRITER, str(folder / "written"), str(stop))])
    )
    ((slot,),) = until(lambda: [attempt.slots for attempt in client.job(writer.job).attempts])
    loud = slot.partition("/")[0]

    def use() -> dict[str, float]:
        return {one.node: one.value for one in client.metrics(metric=METRIC)}

    placed: dict[int, str] = {}
    for _ in range(3):
        until(lambda: use().get(loud, 0.0) > 0.02)
        number, place = run_somewhere(client)
        placed[number] = place
    assert set(placed.values()) == {"n-1", "n-2"} - {loud}, f"{loud} writes: {use()}"
    # Another policy takes the first free slot, which is beside the writer. So it was the metric that kept tasks away.
    client.choose_policy("fcfs")
    assert loud == "n-1"
    assert run_somewhere(client)[1] == loud
    stop.touch()
    until(lambda: client.job(writer.job).job.status.is_final)
    until(lambda: use().get(loud, 1.0) < 0.02)
    return placed
