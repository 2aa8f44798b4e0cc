"""What would be if something were otherwise, asked beside a server: nothing changes, unless it is applied."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.client.client import Client
from headway.client.job import Job, Task

from .conftest import ONE_NODE, Up


def whatif(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headway", "whatif", "--data", str(folder), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def answer(folder: Path, *options: str) -> Any:
    ran = whatif(folder, *options, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.long
def test_beside_a_server(tmp_path: Path) -> None:
    up = Up(tmp_path, ONE_NODE.replace("slots = 2", "slots = 1"))
    up.start("--policy", "fcfs")
    try:
        with Client(data=tmp_path / "data") as client:
            first, long, short = (
                client.submit(Job("one", [Task.command("sleep", str(seconds))], estimate=seconds, due=due)).job
                for seconds, due in ((600, None), (600, None), (60, "15m"))
            )
            before = client.jobs()
            found = answer(tmp_path / "data", "--policy", "edf")
            late = {job["job"]: job["on_time"] for job in found["now"]["jobs"]}
            then = {job["job"]: job for job in found["then"]["jobs"]}
            assert late[short] < 0.5 < then[short]["on_time"]
            assert late[first] is None
            assert then[short]["end"]["median"] < then[long]["end"]["median"]
            assert [job.priority for job in client.jobs()] == [job.priority for job in before]
            assert client.policy() == "fcfs"
            found = answer(tmp_path / "data", "--policy", "edf", "--apply")
            assert found["changes"] == ["policy edf"]
            assert client.policy() == "edf"
            ran = whatif(tmp_path / "data", "--first", str(short))
            assert "edf does not look at priorities, so --first changes nothing. Ask with --policy tempo" in ran.stderr
            ran = whatif(tmp_path / "data", "--first", str(short), "--policy", "fcfs")
            assert "Ask with --policy fcfs:order=priority" in ran.stderr
            ran = whatif(tmp_path / "data", "--first", str(short), "--policy", "fcfs:order=priority")
            assert (ran.returncode, ran.stderr) == (0, "")
            picture = tmp_path / "ends.svg"
            ran = whatif(tmp_path / "data", "--add-node", "b,slots=2", "--out", str(picture))
            assert ran.returncode == 0, ran.stderr
            assert "all have ended in" in ran.stdout
            assert picture.read_text("utf-8").startswith("<?xml")
            wide = tmp_path / "wide.csv"
            wide.write_text("release,runtime,width\n0,10,3\n", "utf-8")
            ran = whatif(tmp_path / "data", "--submit", str(wide), "--add-node", "b,slots=2")
            assert ran.returncode == 0, ran.stderr
            for wrong, said in (
                (("--remove-node", "x"), "a node of the cluster: " + ONE_NODE.split('"')[1]),
                (("--policy", "edf", "--out", "ends.txt"), "--out is 'ends.txt'; allowed: a name that ends in one of"),
                (("--submit", str(wide)), "allowed: at most 1, the slots of the cluster"),
                (("--submit", str(wide)), "wider than the cluster. --add-node adds slots."),
                (("--first", "99"), "the id of an open job"),
                (("--add-node", "b,slots=many"), "slots of --add-node is 'many'"),
                (("--add-node", "b,slots=0"), "slots is 0; allowed: 1 to"),
                (("--add-node", "b,slots=99999999"), "slots is 99999999; allowed: 1 to"),
                (("--add-node", "b,speed=0"), "speed is 0.0; allowed: "),
                (("--add-node", "b,speed=nan"), "speed is nan; allowed: "),
                (("--add-node", ",slots=2"), "name is ''; allowed: "),
                (("--remove-node", ONE_NODE.split('"')[1]), "allowed: a node that is not the last one"),
                (("--at", "2020-01-01 12:00", "--first", str(short)), "where the journal begins"),
                (("--load", "0"), "more than 0"),
                (("--load", "2"), "fewer than two have ended"),
                (("--policy", "edv"), "edf"),
                ((), "--policy"),
                (("--load", "2", "--apply"), "--apply cannot do --load"),
            ):
                ran = whatif(tmp_path / "data", *wrong)
                assert ran.returncode in {1, 2}, ran.stdout
                assert said in ran.stderr, wrong
                assert "Traceback" not in ran.stderr
    finally:
        up.stop()
