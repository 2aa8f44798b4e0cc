"""Inputs and outputs on this machine: what is reported when, and what is left when an attempt is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from headway import Input, Output
from headway.engines.base import Command, Started
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.host import node_folder
from headway.engines.trial import FilesInFolder, Trial
from headway.model.events import Outcome
from headway.model.node import NodeSpec

from ..waiting import LIMIT, becomes

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def trial(tmp_path: Path) -> AsyncIterator[Trial]:
    """An engine that is started, with a node of two slots."""
    async with Trial(LocalEngine(tmp_path / "engine"), LIMIT, FilesInFolder(tmp_path / "uploads")) as trial:
        await trial.start()
        yield trial


@pytest.fixture
def files() -> dict[str, object]:
    """The terms of an attempt that names files."""
    return {"files": True, "fetches": True}


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe: reading it waits until the test writes."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def scratch(tmp_path: Path, slot: int = 0) -> Path:
    return node_folder(tmp_path / "engine", "n") / f"slot-{slot}.files"


def fetching(tmp_path: Path, slot: int = 0) -> bool:
    """Whether a slot has begun to fetch."""
    return scratch(tmp_path, slot).exists()


def count(path: Path, out: Path) -> int:
    size = len(path.read_bytes())
    out.write_text(f"{size} bytes")
    return size


async def test_it_starts_when_its_input_is_there(
    trial: Trial, tmp_path: Path, files: dict[str, object], pipe: Path
) -> None:
    key = trial.call(count, Input(pipe), Output(tmp_path / "out"), **files)
    await becomes(lambda: fetching(tmp_path))
    plain = trial.command("true", slots=(1,))
    assert (await trial.ended(plain)).ending.outcome is Outcome.SUCCEEDED
    assert trial.unread == []
    pipe.write_text("12345")
    assert (await trial.told(Started)) == Started(*key)
    ending = (await trial.ended(key)).ending
    assert ending.outcome is Outcome.SUCCEEDED
    assert ending.outputs == {str(tmp_path / "out"): str(tmp_path / "out")}
    assert (tmp_path / "out").read_text() == "5 bytes"
    assert not scratch(tmp_path).exists()


async def test_a_command_finds_and_leaves_files_in_its_folder(
    trial: Trial, tmp_path: Path, files: dict[str, object]
) -> None:
    (tmp_path / "in").write_text("given")
    script = 'cat sub/in > out; pwd; echo "$HEADWAY_SCRATCH"'
    terms = {"inputs": {"sub/in": str(tmp_path / "in")}, "outputs": {"out": f"file://{tmp_path}/made/out"}}
    for cwd in ("", str(tmp_path)):
        words = script if not cwd else f'cd "$HEADWAY_SCRATCH"; {script}'
        key = trial.command("sh", "-c", words, cwd=cwd, **terms, **files)
        await trial.told(Started)
        ending = (await trial.ended(key)).ending
        assert ending.outcome is Outcome.SUCCEEDED
        assert ending.outputs == {"out": f"file://{tmp_path}/made/out"}
        assert ending.stdout is not None
        assert ending.stdout.tail.decode().split() == [str(scratch(tmp_path))] * 2
        assert (tmp_path / "made" / "out").read_text() == "given"
        (tmp_path / "made" / "out").unlink()


async def test_a_gang_starts_when_all_its_members_have_theirs(
    trial: Trial, tmp_path: Path, files: dict[str, object], pipe: Path
) -> None:
    (tmp_path / "in").write_text("")
    works = [Command(("true",), inputs={"in": str(path)}) for path in (tmp_path / "in", pipe)]
    key = trial.launch(*works, slots=(0, 1), **files)
    await becomes(lambda: fetching(tmp_path, 1))
    assert trial.unread == []
    pipe.write_text("")
    await trial.told(Started)
    assert (await trial.ended(key)).ending.outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("call", [False, True])
async def test_an_input_that_is_not_there_is_the_tasks_own_failure(
    trial: Trial, tmp_path: Path, files: dict[str, object], call: bool
) -> None:
    nope = str(tmp_path / "nope")
    if call:
        key, field = trial.call(count, Input(nope), Output(tmp_path / "out"), **files), "Input"
    else:
        key, field = trial.command("true", inputs={"in": nope}, **files), "inputs['in']"
    ending = (await trial.ended(key)).ending
    assert (ending.outcome, ending.detail) == (Outcome.REFUSED, f"input URL not found: {field} is {nope!r}")
    assert ending.outcome.is_own_doing
    assert not scratch(tmp_path).exists()
    again = trial.call(len, "abc")
    assert await trial.value(again) == 3


@pytest.mark.parametrize("program", ["exit 3", "kill -9 $$", "true"])
async def test_what_did_not_succeed_puts_nothing(
    trial: Trial, tmp_path: Path, files: dict[str, object], program: str
) -> None:
    words = program if program == "true" else f"echo half > out; {program}"
    key = trial.command("sh", "-c", words, outputs={"out": str(tmp_path / "out")}, **files)
    await trial.told(Started)
    ending = (await trial.ended(key)).ending
    assert ending.outcome is not Outcome.SUCCEEDED
    assert ending.outputs == {}
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "engine" / "fences").iterdir()) == []
    if program == "true":
        assert ending.outcome is Outcome.REFUSED
        assert ending.detail.startswith("output was not written: outputs['out'] is ")


async def test_what_is_killed_while_it_fetches_leaves_nothing(
    trial: Trial, tmp_path: Path, files: dict[str, object], pipe: Path
) -> None:
    key = trial.command("true", inputs={"in": str(pipe)}, outputs={"out": str(tmp_path / "out")}, **files)
    await becomes(lambda: fetching(tmp_path))
    trial.engine.kill(*key)
    assert (await trial.ended(key)).ending.outcome is Outcome.KILLED
    await becomes(lambda: not scratch(tmp_path).exists())
    assert await trial.value(trial.call(len, "ab")) == 2


async def test_fetching_is_limited_apart_from_running(
    trial: Trial, tmp_path: Path, files: dict[str, object], pipe: Path
) -> None:
    key = trial.command("true", inputs={"in": str(pipe)}, time_limit=0.2, **files)
    ending = (await trial.ended(key)).ending
    assert (ending.outcome, ending.detail) == (Outcome.OUT_OF_TIME, "fetched its inputs for longer than 0.2 s")
    (tmp_path / "in").write_text("")
    # The limit also holds for fetching, which a loaded machine may take a while to begin.
    key = trial.command("sleep", "60", inputs={"in": str(tmp_path / "in")}, time_limit=3, **files)
    await trial.told(Started)
    assert (await trial.ended(key)).ending.detail == "ran longer than 3 s"


async def test_an_overtaken_attempt_ends_without_its_outputs(
    trial: Trial, tmp_path: Path, files: dict[str, object], pipe: Path
) -> None:
    """As after a node counted as lost, its task was redone elsewhere, and then the node continued."""
    out = {"out": str(tmp_path / "out")}
    first = trial.command("sh", "-c", f"cat {pipe}; echo first > out", outputs=out, key=(1, 0, 1), slots=(0,), **files)
    await trial.told(Started)
    second = trial.command("sh", "-c", "echo second > out", outputs=out, key=(1, 0, 2), slots=(1,), **files)
    await trial.told(Started)
    assert (await trial.ended(second)).ending.outcome is Outcome.SUCCEEDED
    pipe.write_text("")
    ending = (await trial.ended(first)).ending
    assert (ending.outcome, ending.detail) == (
        Outcome.REFUSED,
        "a later attempt of this task has begun: its outputs count",
    )
    assert (tmp_path / "out").read_text() == "second\n"


# A driver that launches an attempt that waits for its input, then for a file.
DRIVER = """
import asyncio, sys
from pathlib import Path
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.trial import FilesInFolder, Trial

async def main(folder):
    trial = Trial(LocalEngine(Path(folder, "engine")), files=FilesInFolder(Path(folder, "uploads")))
    await trial.start()
    inputs = {"in": f"{folder}/pipe"}
    trial.command("cat", f"{folder}/door", inputs=inputs, files=True, fetches=True)
    await asyncio.sleep(0)
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_the_next_driver_hears_of_starts_that_the_last_one_missed(tmp_path: Path, pipe: Path) -> None:
    """The driver dies while an attempt fetches its input; the attempt starts while there is no driver."""
    os.mkfifo(tmp_path / "door")
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert await asyncio.to_thread(driver.stdout.readline) == b"up\n"
        await becomes(lambda: fetching(tmp_path))
        driver.kill()
    pipe.write_text("")
    await becomes(lambda: any(child.name() == "cat" for child in psutil.process_iter() if in_tree(child, tmp_path)))
    async with Trial(LocalEngine(tmp_path / "engine"), LIMIT) as trial:
        assert (await trial.start()).running == {(1, 0, 1)}
        assert await trial.told(Started) == Started(1, 0, 1)
        (tmp_path / "door").write_text("")
        assert (await trial.ended((1, 0, 1))).ending.outcome is Outcome.SUCCEEDED


def in_tree(process: psutil.Process, folder: Path) -> bool:
    """Whether the command line of a process contains this folder."""
    with contextlib.suppress(psutil.Error):
        return any(str(folder) in word for word in process.cmdline())
    return False


async def test_what_is_killed_leaves_no_fence(trial: Trial, tmp_path: Path, files: dict[str, object]) -> None:
    key = trial.command("sleep", "600", outputs={"out": str(tmp_path / "out")}, **files)
    await trial.told(Started)
    trial.engine.kill(*key)
    assert (await trial.ended(key)).ending.outcome is Outcome.KILLED
    assert list((tmp_path / "engine" / "fences").iterdir()) == []


async def test_fences_of_what_does_not_run_any_more_go_at_the_next_start(tmp_path: Path) -> None:
    async with Trial(LocalEngine(tmp_path / "engine"), LIMIT) as trial:
        (tmp_path / "engine" / "fences").mkdir(parents=True)
        (tmp_path / "engine" / "fences" / "9.0.0").write_text("1")
        await trial.start(NodeSpec("n", slots=1))
        assert list((tmp_path / "engine" / "fences").iterdir()) == []
