"""The two tiers on this machine: the scheduling policies of processes, and what the system refuses."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway.engines.base import Ended, Noticed
from headway.engines.local.agent import priorities
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.host import put_down
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.shared.processes import kill_trees, tree
from headway.engines.trial import Trial
from headway.model.events import Outcome
from headway.model.node import NodeSpec
from headway.model.tier import Tier

from ..waiting import LIMIT, becomes, let_the_background_run

pytestmark = pytest.mark.anyio

FG, BG = Tier.FOREGROUND, Tier.BACKGROUND


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "engine"
    yield root
    for folder in (root / "nodes").glob("*"):
        put_down(folder)


@pytest.fixture
async def trial(root: Path) -> AsyncIterator[Trial]:
    async with Trial(LocalEngine(root), LIMIT) as trial:
        yield trial


def write_pid_and_wait(path: str) -> None:
    """With a second thread, as in libraries for numbers."""
    import os
    import threading

    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    with open(path + ".draft", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".draft", path)
    time.sleep(600)


def policy() -> int:
    import os

    return os.sched_getscheduler(0)


def processors() -> list[int]:
    import os

    return sorted(os.sched_getaffinity(0))


async def pid_in(path: Path) -> int:
    await becomes(path.exists)
    return int(path.read_text())


def policies(pid: int) -> set[int]:
    """The scheduling policies of every thread of a process and of its descendants."""
    found = set()
    for one in tree(pid):
        for thread in priorities.threads(one):
            try:
                found.add(os.sched_getscheduler(thread))
            except ProcessLookupError:
                continue
    return found


async def test_every_thread_of_what_is_in_the_background_is_idle_and_of_what_is_not_is_not(
    trial: Trial, tmp_path: Path
) -> None:
    await trial.start()
    key = trial.call(write_pid_and_wait, str(tmp_path / "pid"), tier=BG)
    pid = await pid_in(tmp_path / "pid")
    assert len(priorities.threads(pid)) >= 2
    for tier, expected in ((BG, os.SCHED_IDLE), (FG, os.SCHED_OTHER), (BG, os.SCHED_IDLE)):
        trial.engine.change(*key, tier)
        await becomes(lambda expected=expected: policies(pid) == {expected})
    trial.engine.kill(*key)
    await trial.ended(key)


# Forks again and again; each child survives its parent.
STORM = """
import os, sys, time
with open(sys.argv[1] + ".draft", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".draft", sys.argv[1])
for _ in range(300):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.waitpid(-1, 0)
    time.sleep(0.001)
time.sleep(600)
"""


async def test_what_forks_all_the_time_is_moved_whole(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    key = trial.command(sys.executable, "-S", "-c", STORM, str(tmp_path / "pid"))
    slot = psutil.Process(await pid_in(tmp_path / "pid")).ppid()
    for last, expected in ((BG, os.SCHED_IDLE), (FG, os.SCHED_OTHER)):
        for tier in [FG, BG] * 10 + [last]:
            trial.engine.change(*key, tier)
            await trial.ended(trial.call(policy, slots=(1,)))
        await becomes(lambda expected=expected: policies(slot) == {expected})
    await becomes(lambda: len(tree(slot)) > 300)
    await becomes(lambda: policies(slot) == {os.SCHED_OTHER})
    trial.engine.kill(*key)
    await trial.ended(key)


async def test_a_warm_process_of_the_background_serves_the_foreground_at_full_right(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_the_background_run(tmp_path / "site", monkeypatch)
    let_the_background_run(tmp_path / "site", monkeypatch)
    await trial.start(NodeSpec("n"))
    assert await trial.value(trial.call(policy, tier=BG)) == os.SCHED_BATCH
    moved = trial.call(write_pid_and_wait, str(tmp_path / "pid"))
    await pid_in(tmp_path / "pid")
    trial.engine.change(*moved, BG)  # what was in the background is in the foreground now
    assert await trial.value(trial.call(policy)) == os.SCHED_OTHER
    trial.engine.kill(*moved)
    await trial.ended(moved)
    assert await trial.value(trial.call(policy, tier=BG)) == os.SCHED_BATCH
    assert await trial.value(trial.call(policy)) == os.SCHED_OTHER


@pytest.mark.skipif(not os.path.exists("/proc/self/autogroup"), reason="this kernel does not group by sessions")
async def test_a_session_of_its_own_is_put_behind_as_well(trial: Trial, tmp_path: Path) -> None:
    def own_session(path: str) -> None:
        import os
        import subprocess

        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        with open(path + ".draft", "w") as file:
            file.write(str(child.pid))
        os.rename(path + ".draft", path)
        time.sleep(600)

    def group(pid: int) -> str:
        return Path(f"/proc/{pid}/autogroup").read_text().split()[-1]

    await trial.start()
    key = trial.call(own_session, str(tmp_path / "pid"), tier=BG)
    pid = await pid_in(tmp_path / "pid")
    await becomes(lambda: group(pid) == "19")
    trial.engine.change(*key, FG)
    await becomes(lambda: group(pid) == "0")
    trial.engine.kill(*key)
    await trial.ended(key)


def count_until(path: str) -> int:
    """Work without a pause once the file is there, until the instant in it. Returns how far it came."""
    import os

    open(f"{path}.{os.getpid()}", "w").close()
    while not os.path.exists(path):
        time.sleep(0.001)
    with open(path) as file:
        end, number = float(file.read()), 0
    while time.monotonic() < end:
        number += 1
    return number


async def test_the_foreground_has_the_processor_and_the_background_what_it_leaves(root: Path, tmp_path: Path) -> None:
    async with Trial(LocalEngine(root, LocalSettings(pin=True))) as trial:
        await trial.start(NodeSpec("n"))
        door = tmp_path / "door"
        keys = [trial.call(count_until, str(door), tier=tier) for tier in Tier]
        await becomes(lambda: len(list(tmp_path.glob("door.*"))) == 2)
        draft = tmp_path / "draft"
        draft.write_text(str(time.monotonic() + 1.0))
        draft.rename(door)
        front, behind = [await trial.value(key) for key in keys]
        assert behind < front / 5


async def test_the_places_of_a_slot_share_a_processor_where_that_is_wanted(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_the_background_run(tmp_path / "site", monkeypatch)
    mine = sorted(os.sched_getaffinity(0))
    async with Trial(LocalEngine(root, LocalSettings(pin=True))) as trial:
        await trial.start(NodeSpec("a", slots=1), NodeSpec("b", slots=2))
        for turn, (node, slot) in enumerate([("a", 0), ("b", 0), ("b", 1)]):
            expected = [mine[turn % len(mine)]]
            for tier in Tier:
                assert await trial.value(trial.call(processors, node=node, slots=(slot,), tier=tier)) == expected
        lost = await trial.ended(trial.call(processors, node="b", slots=(2,)))
        assert lost.ending.outcome is Outcome.LOST
        wide = await trial.value(trial.call(processors, node="b", slots=(0, 1)))
        assert wide == sorted({mine[turn % len(mine)] for turn in (1, 2)})
        assert await trial.value(trial.call(processors, node="b")) == [mine[1 % len(mine)]]


async def test_without_a_wish_every_processor_is_everybodys(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_the_background_run(tmp_path / "site", monkeypatch)
    await trial.start()
    for tier in Tier:
        assert await trial.value(trial.call(processors, tier=tier)) == sorted(os.sched_getaffinity(0))


# What the system refuses

# A driver of an ordinary user: without the capability CAP_SYS_NICE, and without a limit that would replace it.
UNPRIVILEGED = """
import asyncio, ctypes, json, os, resource, sys
from pathlib import Path
from typing import Any

PR_CAPBSET_DROP, CAP_SYS_NICE = 24, 23
if sys.argv[1] == "drop":
    if ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0) == 0:
        try:
            resource.setrlimit(resource.RLIMIT_NICE, (0, int(sys.argv[3])))
        except ValueError:  # to raise a limit takes CAP_SYS_RESOURCE
            sys.exit(77)
    os.execv(sys.executable, [sys.executable, sys.argv[0], "run", *sys.argv[2:]])

from headway.engines.base import Ended, Noticed, TierRefused
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.trial import Trial, calling
from headway.model.node import NodeSpec
from headway.model.tier import Tier

def wait_for(path):
    import os, time
    open(f"{path}.{os.getpid()}", "w").close()
    while not os.path.exists(path):
        time.sleep(0.005)
    return os.sched_getscheduler(0)

def policy():
    return os.sched_getscheduler(0)

async def began(door, count):
    while len(list(door.parent.glob(f"{door.name}.*"))) < count:
        await asyncio.sleep(0.005)

async def main(root):
    door, found = root.parent / "door", {}
    async with Trial(LocalEngine(root), 150.0) as trial:
        await trial.start(NodeSpec("a"), NodeSpec("b"))
        single = trial.call(wait_for, str(door), node="a", tier=Tier.BACKGROUND)
        await began(door, 1)
        trial.engine.change(*single, Tier.FOREGROUND)
        if sys.argv[3] == "0":
            noticed = await trial.told(Noticed)
            found["noticed"] = [noticed.kind, noticed.subject, noticed.detail]
            refused = await trial.told(TierRefused)
            found["refused"] = [refused.job, refused.task, refused.attempt, int(refused.tier), refused.detail]
        found["beside"] = await trial.value(trial.call(policy, node="a", tier=1 - (sys.argv[3] == "0")))
        gang = trial.launch(*[calling(wait_for, str(door))] * 2, node=("a", "b"), slots=(0, 0))
        if sys.argv[3] == "0":
            await began(door, 3)
            trial.engine.change(*gang, Tier.BACKGROUND)
            trial.engine.change(*gang, Tier.FOREGROUND)
            refused = await trial.told(TierRefused)
            found["gang"] = [refused.job, refused.task, refused.attempt, int(refused.tier)]
        door.touch()
        found["single"] = await trial.value(single)
        await trial.ended(gang)
        found["after"] = [await trial.value(trial.call(policy, node="a", tier=tier)) for tier in Tier]
        trial.unread = [one for one in trial.unread if not (isinstance(one, Noticed) and one.subject == "b")]
    print(json.dumps(found))

asyncio.run(main(Path(sys.argv[2])))
"""


def unprivileged(root: Path, limit: int) -> dict[str, Any]:
    """The reports to a driver without privileges, with this limit of priorities."""
    script = root.parent / "driver.py"
    script.write_text(UNPRIVILEGED)
    words = [sys.executable, str(script), "drop", str(root), str(limit)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=3 * LIMIT, check=False)
    if done.returncode == 77:
        pytest.skip(f"this system does not let a test have a limit RLIMIT_NICE of {limit}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_who_may_not_leave_the_background_stays_there_and_it_is_told(root: Path) -> None:
    root.parent.mkdir(exist_ok=True)
    found = await asyncio.to_thread(unprivileged, root, 0)
    kind, subject, detail = found["noticed"]
    assert (kind, subject) == ("tier_refused", "a")
    assert "cannot be moved to the foreground" in detail
    assert "CAP_SYS_NICE" in detail
    *key, tier, said = found["refused"]
    assert (key, tier) == ([1, 0, 1], FG)
    assert said.startswith("node 'a': process ")
    assert "RLIMIT_NICE" in said
    assert found["gang"] == [1, 2, 1, FG]
    assert found["single"] == os.SCHED_IDLE, "it ran on where it was"
    assert found["beside"] == os.SCHED_OTHER
    assert found["after"] == [os.SCHED_OTHER, os.SCHED_IDLE]


async def test_a_limit_that_may_be_raised_is_enough(root: Path) -> None:
    found = await asyncio.to_thread(unprivileged, root, 20)
    assert found["single"] == os.SCHED_OTHER
    assert found["after"] == [os.SCHED_OTHER, os.SCHED_IDLE]


# What every process of a node finds if it was started in the background. Really started so, a node would hardly come up
# on a busy machine.
FOUND_IDLE = """
import os
os.sched_getscheduler = lambda pid: os.SCHED_IDLE
"""


async def test_a_node_that_was_started_in_the_background_serves_and_tells_that_its_tiers_are_alike(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FOUND_IDLE)
    folders = filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    await trial.start()
    moves = trial.call(write_pid_and_wait, str(tmp_path / "pid"), tier=BG)
    noticed = await trial.told(Noticed)
    assert (noticed.kind, noticed.subject) == ("tier_refused", "n")
    assert "its two tiers get the processor alike" in noticed.detail
    assert "Start it with normal priority" in noticed.detail
    await pid_in(tmp_path / "pid")
    for tier in (FG, BG, FG):
        trial.engine.change(*moves, tier)
    assert await trial.value(trial.call(int, "7", tier=BG)) == 7
    trial.engine.kill(*moves)
    await trial.ended(moves)
    assert await trial.value(trial.call(int, "8")) == 8


@contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end with all below it, whatever has failed by then."""
    with process:
        try:
            yield process
        finally:
            kill_trees([process.pid])


def test_nice_does_where_there_is_no_idle_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: int, policy: int, parameters: os.sched_param) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with ending(subprocess.Popen(["sleep", "600"])) as process:
        for tier, nice in ((BG, priorities.NICEST), (FG, os.getpriority(os.PRIO_PROCESS, 0))):
            assert priorities.move([process.pid], tier) == ""
            assert os.getpriority(os.PRIO_PROCESS, process.pid) == nice


def test_what_is_refused_half_way_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with ending(subprocess.Popen(["sh", "-c", "sleep 600 & echo x; wait"], stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        shell, child = tree(process.pid)
        assert priorities.move([shell], BG) == ""
        real = os.sched_setscheduler

        def refuse(thread: int, policy: int, parameters: os.sched_param) -> None:
            if thread == child and policy != os.SCHED_IDLE:
                raise PermissionError(1, "Operation not permitted")
            real(thread, policy, parameters)

        monkeypatch.setattr(os, "sched_setscheduler", refuse)
        assert priorities.move([shell], FG) == f"process {child}: Operation not permitted"
        assert policies(shell) == {os.SCHED_IDLE}


# A driver that dies between two changes


HALF_WAY = """
import asyncio, sys
from pathlib import Path
from typing import Any
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.trial import Trial, calling
from headway.model.node import NodeSpec
from headway.model.tier import Tier

def wait_for(path):
    import os, time
    open(f"{path}.{os.getpid()}", "w").close()
    while not os.path.exists(path):
        time.sleep(0.005)

async def main(root, door):
    trial = Trial(LocalEngine(Path(root)))
    await trial.start(NodeSpec("a", slots=2), NodeSpec("b", slots=2))
    trial.call(wait_for, door, node="a", slots=(0,))
    trial.call(wait_for, door, node="a", slots=(0,), tier=Tier.BACKGROUND)
    trial.launch(calling(wait_for, door), calling(wait_for, door), node=("a", "b"), slots=(1, 1), tier=Tier.BACKGROUND)
    changed = trial.call(wait_for, door, node="b", slots=(0,))
    while len(list(Path(door).parent.glob("door.*"))) < 5:
        await asyncio.sleep(0.005)
    trial.engine.change(*changed, Tier.BACKGROUND)
    await trial.value(trial.call(int, node="b", slots=(1,)))
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_new_driver_is_told_what_is_in_the_background(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_the_background_run(tmp_path / "site", monkeypatch)
    door = tmp_path / "door"
    driver = subprocess.Popen([sys.executable, "-c", HALF_WAY, str(root), str(door)], stdout=subprocess.PIPE)
    assert driver.stdout is not None
    assert (await asyncio.to_thread(driver.stdout.readline)).strip() == b"up"
    driver.kill()
    driver.wait()
    driver.stdout.close()
    async with Trial(LocalEngine(root)) as trial:
        found = await trial.start(NodeSpec("a", slots=2), NodeSpec("b", slots=2))
        assert found.running == {(1, 0, 1), (1, 1, 1), (1, 2, 1), (1, 3, 1)}
        assert found.background == {(1, 1, 1), (1, 2, 1), (1, 3, 1)}
        trial.engine.change(1, 3, 1, FG)
        there = trial.call(policy, node="b", slots=(0,), tier=BG, key=(2, 0, 1))
        assert await trial.value(there) == os.SCHED_BATCH
        door.touch()
        for task in range(4):
            assert (await trial.ended((1, task, 1))).ending.outcome is Outcome.SUCCEEDED
        trial.unread = [one for one in trial.unread if not isinstance(one, Ended)]
