"""What sbatch is told of an attempt."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway.engines.base import Assignment, Call, Command, Function, Member
from headway.engines.local.shared.frames import Launch
from headway.engines.slurm.attempt import Attempt
from headway.engines.slurm.folder import SlurmFolder
from headway.engines.slurm.jobs import SlurmJob
from headway.engines.slurm.parsing import NodeStanding, Partition, SlurmNode
from headway.engines.slurm.settings import SlurmSettings
from headway.engines.slurm.written import Seat, WrittenAttempt
from headway.model.instant import from_seconds
from headway.model.tier import Tier

COMMAND = Command(("true",))
NODE = SlurmNode("n", NodeStanding.READY, "idle", 16, 8, 64000, "")


def job(*slots: tuple[int, ...], **terms: Any) -> SlurmJob:
    """A job for a member on each of these slots of the same node."""
    settings = terms.pop("settings", SlurmSettings("main", python="/opt/python"))
    partition, node = terms.pop("partition", Partition("main", None)), terms.pop("node", NODE)
    members = tuple(Member("n", some, COMMAND) for some in slots)
    attempt = Attempt(WrittenAttempt(1, 2, 3, tuple(Seat("n", some, 0) for some in slots), starts=False))
    folder = SlurmFolder(Path("/shared/hea%way"))
    folder.identity = "abc"
    assignment = Assignment(1, 2, 3, members, **terms)
    return SlurmJob(folder, settings, partition, node, attempt, attempt.parts[0], assignment)


def test_a_job_is_placed_by_name_and_runs_a_runner() -> None:
    folder = "/shared/hea%way/attempts/1.2.3.0"
    assert job((5,)).words() == (
        "--job-name=headway-abc-1.2.3.0",
        "--partition=main",
        "--nodelist=n",
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=2",
        "--no-requeue",
        "--open-mode=append",
        "--output=/shared/hea%%way/attempts/1.2.3.0/log",
        "--mem=8000M",
        "--time=UNLIMITED",
        "/shared/hea%way/run",
        *("/opt/python", "-P", "-m", "headway.engines.slurm.start", folder, "commands"),
    )


def test_a_part_with_a_function_has_a_runner_for_functions() -> None:
    members = (Member("n", (5,), COMMAND), Member("n", (6,), Call(Function.of(b"f"), b"a", "family")))
    mixed = replace(job((5,), (6,)), assignment=Assignment(1, 2, 3, members))
    assert mixed.words()[-3:] == ("-m", "headway.engines.slurm.start", "/shared/hea%way/attempts/1.2.3.0")


def test_the_python_of_the_server_starts_a_runner_of_commands_without_looking_for_what_is_installed(
    tmp_path: Path,
) -> None:
    *_, python, safely, bare, dash, program, folder, commands = job((5,), settings=SlurmSettings("main")).words()
    assert (python, safely, bare, dash, commands) == (sys.executable, "-P", "-S", "-c", "commands")
    words = [python, safely, bare, dash, program, str(tmp_path / "gone"), commands]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={})
    assert "gone/part is not there" in done.stderr
    places = re.sub(r"sys.path \+= .*", "sys.path += ('/nowhere',)", program)
    done = subprocess.run([*words[:4], places, *words[5:]], capture_output=True, text=True, check=True, env={})
    assert "gone/part is not there" in done.stderr, "Headway is elsewhere: then it is looked for"
    assert folder == "/shared/hea%way/attempts/1.2.3.0"


def test_a_job_may_wait_for_the_end_of_another_one() -> None:
    assert "--dependency=afterany:17" in replace(job((5,)), after=17).words()


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (job((0,), (1,), (2, 3)), "--cpus-per-task=8"),
        (job((0,), (1,)), "--mem=16000M"),
        (job((0,), settings=SlurmSettings("main", slots=4)), "--cpus-per-task=4"),
        (job((0,), settings=SlurmSettings("main", slots=5)), "--cpus-per-task=3"),
        (job((0,), settings=SlurmSettings("main", memory=100)), "--mem=100M"),
        (job((0,), settings=SlurmSettings("main", options=("--qos=a",))), "--qos=a"),
        (job((0,), memory_limit=10_000 << 20), "--mem=10128M"),
        (job((0,), memory_limit=100_000 << 20), "--mem=64000M"),
        (job((0,), time_limit=from_seconds(0.5)), "--time=3"),
        (job((0,), time_limit=from_seconds(600)), "--time=13"),
        (job((0,), time_limit=from_seconds(600), partition=Partition("main", 300.0)), "--time=5"),
        (job((0,), time_limit=from_seconds(600), fetches=True), "--time=UNLIMITED"),
        (job((0,), partition=Partition("main", 300.0)), "--time=5"),
        (job((0,), partition=Partition("main", 30.0)), "--time=1"),
    ],
)
def test_what_is_asked_for(made: SlurmJob, word: str) -> None:
    assert word in made.words()


@pytest.mark.parametrize(
    "made", [job((0,), settings=SlurmSettings("main", memory=0)), job((0,), node=NODE._replace(memory=1))]
)
def test_of_memory_nothing_is_said_where_nothing_is_known(made: SlurmJob) -> None:
    assert not [word for word in made.words() if word.startswith("--mem")]


def test_a_runner_is_told_of_as_many_slots_as_its_part_has_members() -> None:
    order = job((4, 5), (7,), tier=Tier.BACKGROUND).order()
    launches = [msgspec.msgpack.decode(body, type=Launch) for body in order.launches]
    assert order.terms.slots == 2
    assert [(launch.rank, launch.slots, launch.tier) for launch in launches] == [
        (0, (0,), Tier.FOREGROUND),
        (1, (1,), Tier.FOREGROUND),
    ]
