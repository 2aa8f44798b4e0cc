"""Collectors: the usable parts of an answer, rates, and Headway's own compared with what this machine really does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headway.collectors import registry
from headway.collectors.base import NAMES_MAX, Node, usable
from headway.collectors.machine import MachineUse, NodeProcesses, Rates

pytestmark = pytest.mark.long

NODES = (Node("a", 0), Node("b", 0))


def test_a_sound_answer_is_kept_whole() -> None:
    assert usable({"a": {"x": 1, "y_share": 0.5}, "b": {}}, NODES) == ({"a": {"x": 1.0, "y_share": 0.5}, "b": {}}, "")
    assert usable({"gone": {"x": 1.0}}, NODES) == ({}, "")


@pytest.mark.parametrize(
    ("answer", "kept", "wrong"),
    [
        (None, {}, "it answered NoneType; allowed: a mapping of nodes to metrics"),
        ([1], {}, "it answered list; allowed: a mapping of nodes to metrics"),
        ({"a": 3}, {}, "of node a it answered int; allowed: a mapping of metrics"),
        ({"a": {"x": "1", "y": 2}}, {"a": {"y": 2.0}}, "x of node a is '1'; allowed: a finite number"),
        (
            {"a": {"x": float("inf")}, "b": {"x": 1}},
            {"a": {}, "b": {"x": 1.0}},
            "x of node a is inf; allowed: a finite",
        ),
        ({"a": {"": 1}}, {"a": {}}, "a metric of node a is called ''; allowed: 1 to 60 letters, digits and _.-"),
        ({"a": {"x y": 1}}, {"a": {}}, "a metric of node a is called 'x y'"),
        ({"a": {3: 1}}, {"a": {}}, "a metric of node a is called 3"),
    ],
)
def test_of_an_unsound_answer_the_rest_is_kept(answer: Any, kept: dict[str, Any], wrong: str) -> None:
    found, said = usable(answer, NODES)
    assert found == kept
    assert said.startswith(wrong)


def test_a_collector_cannot_fill_the_memory_with_names() -> None:
    kept, wrong = usable({"a": {f"m{number}": number for number in range(NAMES_MAX + 5)}}, NODES)
    assert len(kept["a"]) == NAMES_MAX
    assert wrong == f"node a has more than {NAMES_MAX} metrics of this collector"


def test_rates_are_of_what_has_grown_since_the_last_look() -> None:
    rates = Rates()
    assert rates.per_second("a", {"x": 100.0}, 10.0) == {}
    assert rates.per_second("b", {"x": 7.0}, 10.0) == {}
    assert rates.per_second("a", {"x": 160.0, "new": 5.0}, 12.0) == {"x": 30.0}
    assert rates.per_second("a", {"x": 150.0, "new": 6.0}, 14.0) == {"x": 0.0, "new": 0.5}
    assert rates.per_second("a", {"x": 150.0}, 14.0) == {}
    rates.forget_all_but(["b"])
    assert rates.per_second("a", {"x": 999.0}, 15.0) == {}
    assert rates.per_second("b", {"x": 8.0}, 20.0) == {"x": 0.1}


def test_the_machine_is_measured_for_the_nodes_that_are_on_it() -> None:
    machine = MachineUse()
    first = machine([Node("here", os.getpid()), Node("far", 0)])
    assert set(first) == {"here"}
    assert set(first["here"]) == {"load", "memory_share", "memory_available_bytes"}
    time.sleep(0.05)
    second = machine([Node("here", os.getpid()), Node("beside", 1)])
    assert second["here"] == second["beside"]
    assert usable(second, [Node("here", 1), Node("beside", 1)])[1] == ""
    assert {"cpu_share", "network_received_bytes_per_second"} <= set(second["here"])
    for name, value in second["here"].items():
        assert 0 <= value <= (1 if name.endswith("_share") else float("inf")), name
    assert machine([Node("far", 0)]) == {}


SPENDS = """
import os, sys, time

def spend(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

"""

SPENT = 0.3
"""Seconds of processor time."""


def worker(source: str) -> subprocess.Popen[str]:
    """A process that does something whenever it gets a line, and answers with the processor time it has used so far."""
    loop = f"{SPENDS}for line in sys.stdin:\n    {source}\n    print(sum(os.times()[:4]), flush=True)\n"
    return subprocess.Popen([sys.executable, "-c", loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def do(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return float(process.stdout.readline())


@dataclass(frozen=True)
class Measured:
    """The measures of a node that does something, and of another that does nothing.

    Attributes:
        least, most: bounds of the time between the two measurements, in seconds. On a busy machine they differ.
        spent: processor time that the first node used, by its own account, in seconds.
    """

    busy: dict[str, float]
    calm: dict[str, float]
    least: float
    most: float
    spent: float


def measured(source: str) -> Measured:
    busy, calm = worker(source), worker("pass")
    try:
        before = do(busy)
        do(calm)
        collector, nodes = NodeProcesses(), [Node("busy", busy.pid), Node("calm", calm.pid), Node("far", 0)]
        times = [time.monotonic()]
        first = collector(nodes)
        times.append(time.monotonic())
        assert set(first) == {"busy", "calm"}
        assert set(first["busy"]) == {"processes", "memory_bytes"}
        assert first["busy"]["memory_bytes"] > 1e6
        spent = do(busy) - before
        times.append(time.monotonic())
        second = collector(nodes)
        times.append(time.monotonic())
        return Measured(second["busy"], second["calm"], times[2] - times[1], times[3] - times[0], spent)
    finally:
        for process in (busy, calm):
            process.kill()
            process.communicate()


def test_nodes_on_one_machine_are_told_apart_by_their_processor_time() -> None:
    found = measured(f"spend({SPENT})")
    assert found.busy["processors"] * found.most >= SPENT - 0.02
    assert found.busy["processors"] * found.least <= found.spent + 0.05
    assert found.calm["processors"] * found.least <= 0.02


def test_processor_time_of_children_that_have_ended_counts() -> None:
    source = f"{SPENDS}spend({SPENT})"
    found = measured(f"import subprocess; subprocess.run([{sys.executable!r}, '-c', {source!r}])")
    assert found.busy["processors"] * found.most >= SPENT - 0.02
    assert found.busy["processors"] * found.least <= found.spent + 0.05
    assert found.busy["processes"] == 1
    assert found.calm["processors"] * found.least <= 0.02


@pytest.mark.parametrize("by", ["itself", "a child that has ended"])
def test_nodes_on_one_machine_are_told_apart_by_what_they_write(by: str, tmp_path: Path) -> None:
    size = 32 << 20
    write = (
        f"f = open({str(tmp_path / 'big')!r}, 'wb'); f.write(bytes({size})); f.flush(); os.fsync(f.fileno()); f.close()"
    )
    if by != "itself":
        write = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', {f'import os; {write}'!r}], check=True)"
    probe = tmp_path / "probe"
    if not counts_writes(probe):
        pytest.skip(f"the file system of {tmp_path} is none of a disk: nothing is counted that is written there")
    found = measured(write)
    rate = found.busy["disk_write_bytes_per_second"]
    assert rate * found.most > 0.9 * size
    assert rate * found.least < 2 * size
    assert found.calm["disk_write_bytes_per_second"] == 0


def counts_writes(path: Path) -> bool:
    import psutil

    before = psutil.Process().io_counters().write_bytes
    with path.open("wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    return bool(psutil.Process().io_counters().write_bytes > before)


def test_a_process_that_is_gone_is_left_out() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert NodeProcesses()([Node("n", gone.pid)]) == {"n": {"processes": 0.0, "memory_bytes": 0.0}}


class Entry:
    """An entry point of an installed package."""

    def __init__(self, name: str, load: Callable[[], Any]) -> None:
        self.name = name
        self.load = load


def test_added_collectors_are_had_by_name_and_loaded_when_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    class Own:
        def __call__(self, nodes: Any) -> dict[str, dict[str, float]]:
            return {}

    def load() -> type[Own]:
        loaded.append("own")
        return Own

    def broken() -> None:
        raise ImportError("no module named disks")

    entries = [Entry("own", load), Entry("broken", broken), Entry("machine", load)]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries if group == registry.COLLECTORS_GROUP else [])
    found = registry.installed()
    assert sorted(found) == ["broken", "machine", "node", "own"]
    assert not loaded
    assert isinstance(found["own"](), Own)
    assert isinstance(found["machine"](), MachineUse)
    with pytest.raises(ImportError):
        found["broken"]()
