"""The local engine when its driver dies: another one takes over the nodes."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.host import node_folder, put_down
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.trial import FilesInMemory, Trial
from headway.errors import NameTaken
from headway.model.events import Outcome
from headway.model.node import NodeSpec

from ...waiting import LIMIT, becomes, gone
from .conftest import LEASE, LONG, add, agent_of, engine

pytestmark = pytest.mark.anyio


DRIVER = """
import asyncio, sys
from pathlib import Path
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.trial import Trial, calling
from headway.model.node import NodeSpec

def add(a, b):
    return a + b

def wait_for(path, rank):
    import os, time
    print("waiting", rank)
    open(f"{path}.waits.{rank}", "w").close()
    while not os.path.exists(path):
        time.sleep(0.005)
    return rank

async def main(root, door, orphaned_after):
    trial = Trial(LocalEngine(Path(root), LocalSettings(orphaned_after=float(orphaned_after))))
    await trial.start(NodeSpec("a", slots=2), NodeSpec("b", slots=2))
    trial.call(wait_for, door, 0, node="a", slots=(0,))
    await trial.ended(trial.call(add, 1, 2, node="b", slots=(0,)), acknowledge=False)
    await trial.ended(trial.call(add, 1, 2, node="b", slots=(0,)))
    trial.launch(calling(wait_for, door, 1), calling(wait_for, door, 2), node=("a", "b"), slots=(1, 1))
    trial.call(add, 3, 4, node="a", slots=(0,))
    trial.launch(calling(add, 5, 6), calling(add, 7, 8), node=("a", "b"), slots=(1, 0))
    trial.command("sh", "-c", f"touch {door}.waits.3; sleep 600", node="b", slots=(0,))
    print("up", *engine.pids().values()) if (engine := trial.engine) else None
    sys.stdout.flush()
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""

# A driver that reads all reports, and acknowledges nothing.
READER = """
import asyncio, sys
from pathlib import Path
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.trial import Trial
from headway.model.node import NodeSpec

async def main(root):
    trial = Trial(LocalEngine(Path(root)))
    found = await trial.start(NodeSpec("a", slots=2), NodeSpec("b", slots=2))
    for key in found.running - {(1, 6, 1)}:
        await trial.ended(key, acknowledge=False)
    print("all told", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""

TWO = (NodeSpec("a", slots=2), NodeSpec("b", slots=2))


async def dead_driver(root: Path, door: Path, orphaned_after: float = LONG) -> list[int]:
    """Run a driver that launches tasks of all sorts, and kill it. Returns the processes of its nodes."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(root), str(door), str(orphaned_after)], stdout=subprocess.PIPE
    )
    assert driver.stdout is not None
    words = (await asyncio.to_thread(driver.stdout.readline)).split()
    assert words[0] == b"up"
    await becomes(lambda: all(Path(f"{door}.waits.{rank}").exists() for rank in range(3)))
    driver.kill()
    driver.wait()
    driver.stdout.close()
    agents = [psutil.Process(int(word)) for word in words[1:]]
    return [process.pid for agent in agents for process in (agent, *agent.children(recursive=True))]


async def test_a_new_driver_adopts_what_runs_and_what_has_ended(root: Path, tmp_path: Path) -> None:
    door = tmp_path / "door"
    pids = await dead_driver(root, door)
    async with Trial(LocalEngine(root), LIMIT) as trial:
        found = await trial.start(*TWO)
        assert set(engine(trial).pids().values()) <= set(pids)
        assert found.running == {(1, 0, 1), (1, 3, 1), (1, 4, 1), (1, 5, 1), (1, 6, 1)}
        assert [ended.key for ended in found.ended] == [(1, 1, 1)]
        assert pickle.loads(found.ended[0].ending.result or b"") == 3
        trial.engine.acknowledge(1, 1, 1)
        trial.engine.kill(1, 6, 1)
        assert (await trial.ended((1, 6, 1))).ending.outcome is Outcome.KILLED
        door.touch()
        single = await trial.ended((1, 0, 1))
        assert pickle.loads(single.ending.result or b"") == 0
        assert single.ending.stdout is not None
        assert single.ending.stdout.tail == b"waiting 0\n"
        gang = await trial.ended((1, 3, 1))
        assert [pickle.loads(member.result or b"") for member in gang.members] == [1, 2]
        assert await trial.value((1, 4, 1)) == 7
        gang = await trial.ended((1, 5, 1))
        assert [pickle.loads(member.result or b"") for member in gang.members] == [11, 15]
    assert all(gone(pid) for pid in pids)


async def test_what_ends_while_there_is_no_driver_is_kept_until_acknowledged(root: Path, tmp_path: Path) -> None:
    door = tmp_path / "door"
    await dead_driver(root, door)
    door.touch()
    reader = subprocess.Popen([sys.executable, "-c", READER, str(root)], stdout=subprocess.PIPE)
    assert reader.stdout is not None
    assert await asyncio.to_thread(reader.stdout.readline) == b"all told\n"
    reader.kill()
    reader.wait()
    reader.stdout.close()
    async with Trial(LocalEngine(root), LIMIT) as trial:
        found = await trial.start(*TWO)
        ended = {ended.key: ended for ended in found.ended}
        assert sorted(ended) == [(1, 0, 1), (1, 1, 1), (1, 3, 1), (1, 4, 1), (1, 5, 1)]
        assert [pickle.loads(member.result or b"") for member in ended[1, 5, 1].members] == [11, 15]
        assert found.running == {(1, 6, 1)}


async def test_a_gang_that_lost_a_node_while_there_was_no_driver_is_lost(root: Path, tmp_path: Path) -> None:
    door = tmp_path / "door"
    await dead_driver(root, door)
    put_down(node_folder(root, "b"))
    async with Trial(LocalEngine(root), LIMIT) as trial:
        found = await trial.start(*TWO)
        assert found.running == {(1, 0, 1), (1, 4, 1)}
        outcomes = {ended.key: ended.ending.outcome for ended in found.ended}
        assert outcomes == {(1, 3, 1): Outcome.LOST, (1, 5, 1): Outcome.LOST}
        assert await trial.value(trial.call(add, 1, 1, node="a", slots=(1,), key=(2, 0, 1))) == 2
        door.touch()
        assert await trial.value((1, 0, 1)) == 0
        assert await trial.value((1, 4, 1)) == 7


@pytest.mark.thorough
async def test_nodes_that_hear_of_no_driver_end_everything(root: Path, tmp_path: Path) -> None:
    pids = await dead_driver(root, tmp_path / "door", orphaned_after=2 * LEASE)
    await becomes(lambda: all(gone(pid) for pid in pids))
    async with Trial(LocalEngine(root), LIMIT) as trial:
        found = await trial.start(*TWO)
        assert (found.running, found.ended) == (frozenset(), ())


async def test_nodes_that_are_not_named_any_more_are_ended(root: Path, tmp_path: Path) -> None:
    pids = await dead_driver(root, tmp_path / "door")
    async with Trial(LocalEngine(root), LIMIT) as trial:
        found = await trial.start(NodeSpec("c"))
        assert (found.running, found.ended) == (frozenset(), ())
        await becomes(lambda: all(gone(pid) for pid in pids))


async def test_nodes_of_other_sizes_are_resized_and_what_runs_there_goes_on(root: Path, tmp_path: Path) -> None:
    door = tmp_path / "door"
    pids = await dead_driver(root, door)
    async with Trial(LocalEngine(root), LIMIT) as trial:
        found = await trial.start(NodeSpec("a", slots=3), NodeSpec("b", slots=1))
        assert set(engine(trial).pids().values()) <= set(pids)
        assert found.running == {(1, 0, 1), (1, 3, 1), (1, 4, 1), (1, 5, 1), (1, 6, 1)}
        assert await trial.value(trial.call(add, 1, 1, node="a", slots=(2,), key=(2, 0, 1))) == 2
        trial.engine.kill(1, 6, 1)
        for key in sorted(found.running):
            trial.engine.kill(*key) if key == (1, 6, 1) else door.touch()
            await trial.ended(key)
        # The second slot of b was removed with the gang's member that ran there.
        await becomes(lambda: len(agent_of(trial, "b").children()) == 1)
        assert len(agent_of(trial, "a").children()) == 3


async def test_a_name_under_which_another_process_lives_is_not_used(root: Path, tmp_path: Path) -> None:
    """A dead driver has left node `a`. The driver that takes over first gets it, and no other does."""
    pids = await dead_driver(root, tmp_path / "door")
    async with Trial(LocalEngine(root), LIMIT) as owner:
        await owner.start(*TWO)
        other = LocalEngine(root)
        with pytest.raises(NameTaken, match="the name 'a' is taken by a process that has another driver") as taken:
            await other.start([TWO[0]], lambda _: None, FilesInMemory())
        assert taken.value.name == "a"
        assert set(engine(owner).pids().values()) <= set(pids)
        for task in (0, 3, 4, 5, 6):
            owner.engine.kill(1, task, 1)
            await owner.ended((1, task, 1))


async def test_a_node_that_hung_while_there_was_no_driver_is_started_again(root: Path, tmp_path: Path) -> None:
    pids = await dead_driver(root, tmp_path / "door")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    async with Trial(LocalEngine(root, LocalSettings(lease=0.5)), LIMIT) as trial:
        found = await trial.start(*TWO)
        assert (found.running, found.ended) == (frozenset(), ())
        assert all(gone(pid) for pid in pids)
