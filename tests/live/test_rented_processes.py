"""Processes of this machine as rented machines: one for each token, found again after any crash, ended whole."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import psutil
import pytest

from headway.renting.processes import RENTAL, Processes
from headway.renting.provider import NotRented, RentedMachine

from ..effort import seeds
from ..waiting import becomes

pytestmark = pytest.mark.anyio

COMMAND = ("/bin/sh", "-c", 'echo "$HEADWAY_NODE $HEADWAY_TYPE {token}" >> began; sleep 1000 & exec sleep 1000')
"""It says that it has begun, in the folder of the test, and starts another process."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Processes]:
    monkeypatch.chdir(tmp_path)
    provider = Processes(tmp_path / "machines", COMMAND, "c")
    yield provider
    for machine in await provider.machines():
        while not await provider.end(machine.token):
            await asyncio.sleep(0.01)
    await provider.close()


def began() -> list[str]:
    file = Path("began")
    return file.read_text().splitlines() if file.exists() else []


def running(folder: Path) -> list[psutil.Process]:
    """All processes of machines of a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(RENTAL, "").startswith(str(folder)):
                found.append(process)
        except psutil.Error:
            continue
    return found


async def test_a_machine_is_one_for_its_token_and_ends_with_all_it_has_started(here: Processes, tmp_path: Path) -> None:
    machine = await here.start("c-1", "small", "cloud-r1")
    assert machine == RentedMachine("cloud-r1", "c-1", "small")
    assert await here.start("c-1", "small", "cloud-r1") == machine
    await here.start("c-2", "large", "cloud-r2")
    await becomes(lambda: sorted(began()) == ["cloud-r1 small c-1", "cloud-r2 large c-2"])
    assert [one.token for one in await here.machines()] == ["c-1", "c-2"]
    await becomes(lambda: len(running(tmp_path)) == 4)
    while not await here.end("c-1"):
        await asyncio.sleep(0.01)
    assert [one.token for one in await here.machines()] == ["c-2"]
    assert len(running(tmp_path)) == 2
    assert await here.end("c-1"), "it never was there, or is gone"
    assert await here.reclaimed() == {}


async def test_a_machine_that_ends_by_itself_is_told_and_not_started_again(here: Processes, tmp_path: Path) -> None:
    short = Processes(tmp_path / "machines", ("/bin/sh", "-c", "echo done >> began"), "c")
    await short.start("c-1", "small", "cloud-r1")
    gone = [RentedMachine("cloud-r1", "c-1", "small", ended=True)]
    for _ in range(1000):
        if (found := await short.machines()) == gone:
            break
        await asyncio.sleep(0.01)
    assert found == gone
    assert await short.start("c-1", "small", "cloud-r1") == gone[0]
    assert began() == ["done"]
    assert await short.end("c-1")
    assert await short.machines() == []
    await short.close()


async def test_a_process_that_leaves_its_session_and_closes_everything_is_ended_too(
    here: Processes, tmp_path: Path
) -> None:
    daemon = "import os, time; os.setsid(); os.closerange(0, 64); time.sleep(1000)"
    line = f"{sys.executable} -c '{daemon}' & echo began >> began"
    leaving = Processes(tmp_path / "machines", ("/bin/sh", "-c", line), "c")
    await leaving.start("c-1", "small", "cloud-r1")
    await becomes(lambda: began() == ["began"])
    await becomes(lambda: bool(running(tmp_path)) and not _holds_files(running(tmp_path)[0]))
    assert [one.ended for one in await leaving.machines()] == [False]
    while not await leaving.end("c-1"):
        await asyncio.sleep(0.01)
    assert running(tmp_path) == []
    await leaving.close()


def _holds_files(process: psutil.Process) -> bool:
    return bool(os.listdir(f"/proc/{process.pid}/fd"))


async def test_machines_of_other_clusters_are_not_told(here: Processes, tmp_path: Path) -> None:
    other = Processes(tmp_path / "machines", COMMAND, "d")
    await other.start("d-1", "small", "cloud-r1")
    assert await here.machines() == []
    while not await other.end("d-1"):
        await asyncio.sleep(0.01)
    await other.close()


async def test_a_command_that_cannot_be_run_is_named(here: Processes, tmp_path: Path) -> None:
    wrong = Processes(tmp_path / "machines", ("/no/such/{type}",), "c")
    with pytest.raises(NotRented, match=r"/no/such/small cannot be run: .*No such file"):
        await wrong.start("c-1", "small", "cloud-r1")
    assert await wrong.machines() == []
    with pytest.raises(NotRented, match=r"token '../x' cannot name a file"):
        await wrong.start("../x", "small", "cloud-r1")


SERVER = """
import asyncio, sys
from headway.renting.processes import Processes
asyncio.run(Processes(sys.argv[1], sys.argv[2:], "c").start("c-1", "small", "cloud-r1"))
print("answered", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(range(6), range(6, 60)))
async def test_a_server_killed_at_any_instant_leaves_one_machine_that_the_next_one_finds(
    here: Processes, tmp_path: Path, seed: int
) -> None:
    """Between the request and its answer: before the lock, before the start, after it."""
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path / "machines"), *COMMAND])
    file = tmp_path / "machines" / "c-1.machine"
    while not file.exists() and server.poll() is None:
        time.sleep(0.0002)
    time.sleep(Random(seed).choice([0, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.02]))
    server.kill()
    server.wait()
    assert (await here.start("c-1", "small", "cloud-r1")).token == "c-1"
    await becomes(lambda: bool(began()))
    assert [one.ended for one in await here.machines()] == [False]
    await asyncio.sleep(0.05)
    assert began() == ["cloud-r1 small c-1"]
    while not await here.end("c-1"):
        await asyncio.sleep(0.01)
    assert running(tmp_path) == []
