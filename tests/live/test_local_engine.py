"""The local engine when processes die: tasks, slots' processes, agents, guards and drivers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import random
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from headway.engines import local_frames as frames
from headway.engines import local_node
from headway.engines.base import AttemptKey, Ended, EngineError, NameTaken, NodeBack, NodeLost, Noticed
from headway.engines.local import LocalEngine
from headway.engines.local_frames import Welcome
from headway.engines.local_node import node_folder, put_down
from headway.engines.trial import Trial, calling
from headway.errors import InvalidInput
from headway.model.events import Outcome
from headway.model.instant import from_seconds
from headway.model.node import NodeSpec

from ..waiting import LIMIT, becomes, gone

pytestmark = pytest.mark.anyio

LONG = 600.0

LEASE = 3.0
"""Seconds. No process waits that long for a processor, even on a busy machine."""

ONE = NodeSpec("n", slots=2)


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": request.param == "uvloop"})


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """An engine's folder. When the test is over, no process that belongs to it is left."""
    root = tmp_path / "engine"
    yield root
    left = [pid for folder in (root / "nodes").glob("*") for pid in processes_of(folder)]
    for folder in (root / "nodes").glob("*"):
        put_down(folder)
    assert left == []


@pytest.fixture
async def trial(root: Path) -> AsyncIterator[Trial]:
    async with Trial(LocalEngine(root), LIMIT) as trial:
        yield trial


def engine(trial: Trial) -> LocalEngine:
    assert isinstance(trial.engine, LocalEngine)
    return trial.engine


def processes_of(folder: Path) -> list[int]:
    from headway.engines.local_node import _mark
    from headway.engines.local_processes import marked

    return marked(_mark(folder))


def agent_of(trial: Trial, node: str = "n") -> psutil.Process:
    return psutil.Process(engine(trial).pids()[node])


def add(a: int, b: int) -> int:
    return a + b


def pid() -> int:
    import os

    return os.getpid()


def wait_for(path: str) -> str:
    import os
    import time

    open(path + ".waits", "w").close()
    while not os.path.exists(path):
        time.sleep(0.005)
    return "found"


# A program that starts a child, and a grandchild in a session of its own whose parent dies. It writes all their process
# ids and sleeps. The grandchild's environment is empty, so only its descent shows where it comes from.
FAMILY = """
import os, subprocess, sys, time
sleep = ["sleep", "600"]
middle = "from subprocess import *; print(Popen(['sleep', '600'], start_new_session=True, env={}, stdout=DEVNULL).pid)"
escaped = int(subprocess.run([sys.executable, "-c", middle], stdout=subprocess.PIPE).stdout)
child = subprocess.Popen(sleep)
with open(sys.argv[1] + ".draft", "w") as file:
    print(os.getpid(), child.pid, escaped, file=file)
os.rename(sys.argv[1] + ".draft", sys.argv[1])
if len(sys.argv) < 3:
    time.sleep(600)
"""


def family(path: str, *leave: str) -> None:
    """The same from within a function."""
    import sys

    sys.argv = ["family", path, *leave]
    exec(FAMILY)


async def start_families(trial: Trial, tmp_path: Path, *leave: str) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Run one family as a command and one as a function. Returns their keys, and the processes of both."""
    paths = [tmp_path / "command", tmp_path / "function"]
    keys = [
        trial.command(sys.executable, "-c", FAMILY, str(paths[0]), *leave, slots=(0,)),
        trial.call(family, str(paths[1]), *leave, slots=(1,)),
    ]
    await becomes(lambda: all(path.exists() for path in paths))
    return keys, [int(word) for path in paths for word in path.read_text().split()]


# Whole families of processes


async def test_killing_an_attempt_kills_whatever_it_started(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    keys, pids = await start_families(trial, tmp_path)
    assert not any(gone(pid) for pid in pids)
    for key in keys:
        trial.engine.kill(*key)
        assert (await trial.ended(key)).ending.outcome is Outcome.KILLED
    await becomes(lambda: all(gone(pid) for pid in pids))


async def test_what_an_attempt_leaves_behind_is_ended_with_it(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    keys, pids = await start_families(trial, tmp_path, "leave")
    for key in keys:
        assert (await trial.ended(key)).ending.outcome is Outcome.SUCCEEDED
    await becomes(lambda: all(gone(pid) for pid in pids))
    for slot in (0, 1):
        assert await trial.value(trial.call(add, 1, 1, slots=(slot,))) == 2


async def test_a_dead_agent_takes_everything_with_it(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    agent = agent_of(trial)
    ours = [agent.pid, *(child.pid for child in agent.children())]
    _, pids = await start_families(trial, tmp_path)
    os.kill(agent.pid, signal.SIGKILL)
    assert (await trial.told(NodeLost)).detail == "its process died"
    assert (await trial.told(NodeBack)).node == "n"
    assert all(gone(pid) for pid in [*ours, *pids]), "a node that is back runs nothing of before"
    assert agent_of(trial).pid != agent.pid


async def test_a_dead_guard_takes_everything_with_it(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    agent = agent_of(trial)
    guard = agent.ppid()
    _, pids = await start_families(trial, tmp_path)
    os.kill(guard, signal.SIGKILL)
    await trial.told(NodeLost)
    await trial.told(NodeBack)
    assert all(gone(pid) for pid in [guard, agent.pid, *pids])


async def test_processes_that_outlive_everything_end_before_the_node_is_back(trial: Trial, tmp_path: Path) -> None:
    """All of Headway's processes are killed at once. Children of a command remain; their environment marks them."""
    await trial.start()
    path = tmp_path / "pid"
    trial.command("sh", "-c", 'echo $$ > draft; mv draft "$0"; exec sleep 600', str(path), cwd=str(tmp_path))
    await becomes(path.exists)
    agent = agent_of(trial)
    stroke = [agent.ppid(), agent.pid, *(child.pid for child in agent.children())]
    for pid in stroke:
        os.kill(pid, signal.SIGSTOP)
    for pid in stroke:
        os.kill(pid, signal.SIGKILL)
    await trial.told(NodeLost)
    await trial.told(NodeBack)
    assert gone(int(path.read_text()))


# Slots' processes


async def test_a_node_that_is_back_just_as_its_driver_stops_does_not_hold_up_the_stop(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, take = LocalEngine(root), local_node._Line._take
    stopping: list[asyncio.Task[None]] = []

    def taking(line: local_node._Line, message: frames.ToDriver) -> None:
        take(line, message)
        if isinstance(message, Welcome):
            stopping.append(asyncio.ensure_future(engine.stop()))

    await engine.start([ONE], lambda _: None)
    monkeypatch.setattr(local_node._Line, "_take", taking)
    os.kill(engine.pids()["n"], signal.SIGKILL)
    await becomes(lambda: stopping)
    async with asyncio.timeout(LIMIT):
        await stopping[0]


async def test_a_slot_whose_process_dies_idle_gets_another(trial: Trial) -> None:
    await trial.start()
    before = await trial.value(trial.call(pid))
    os.kill(before, signal.SIGKILL)

    def replaced() -> bool:
        found = [child.pid for child in agent_of(trial).children()]
        return len(found) == 2 and before not in found

    await becomes(replaced)
    assert await trial.value(trial.call(pid)) not in (before, None)


async def test_a_slots_process_killed_by_somebody_else(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    victim = await trial.value(trial.call(pid))
    key = trial.call(wait_for, str(tmp_path / "door"))
    await becomes((tmp_path / "door.waits").exists)
    behind = trial.call(pid)
    os.kill(victim, signal.SIGKILL)
    ending = (await trial.ended(key)).ending
    assert (ending.outcome, ending.exit_code) == (Outcome.SIGNALLED, -9)
    assert await trial.value(behind) != victim


@pytest.mark.parametrize("then_dies", [False, True])
async def test_a_task_that_writes_to_every_file_it_finds_open_harms_only_itself(trial: Trial, then_dies: bool) -> None:
    def scribble(then_dies: bool) -> None:
        import contextlib
        import os
        import time

        for number in (number for number in map(int, os.listdir("/proc/self/fd")) if number > 2):
            with contextlib.suppress(OSError):
                os.write(number, b"\1\0\0\0\xc1")
        if then_dies:
            os.kill(os.getpid(), 9)
        time.sleep(600)

    await trial.start()
    agent = agent_of(trial).pid
    ending = (await trial.ended(trial.call(scribble, then_dies))).ending
    assert ending.outcome in ((Outcome.EXITED, Outcome.SIGNALLED) if then_dies else (Outcome.EXITED,))
    assert await trial.value(trial.call(add, 1, 2)) == 3
    assert agent_of(trial).pid == agent


@pytest.mark.parametrize("limit", [None, 0.2])
async def test_a_stopped_slot_can_be_killed(trial: Trial, tmp_path: Path, limit: float | None) -> None:
    await trial.start()
    victim = await trial.value(trial.call(pid))
    key = trial.call(wait_for, str(tmp_path / "door"), time_limit=limit)
    await becomes((tmp_path / "door.waits").exists)
    os.kill(victim, signal.SIGSTOP)
    if limit is None:
        trial.engine.kill(*key)
    wanted = Outcome.OUT_OF_TIME if limit else Outcome.KILLED
    assert (await trial.ended(key)).ending.outcome is wanted
    assert await trial.value(trial.call(pid)) != victim


async def test_a_warm_process_is_kept_and_a_dirty_one_is_not(trial: Trial) -> None:
    """What others have left in a slot's process does not count against a task's memory limit."""

    def hoard(megabytes: int) -> int:
        import builtins
        import os

        builtins.hoard = b"x" * (megabytes << 20)  # type: ignore[attr-defined]
        return os.getpid()

    await trial.start()
    first = await trial.value(trial.call(hoard, 100))
    assert await trial.value(trial.call(pid)) == first
    assert await trial.value(trial.call(pid, memory_limit=1 << 30)) == first
    fresh = await trial.value(trial.call(pid, memory_limit=100 << 20))
    assert fresh != first
    assert await trial.value(trial.call(pid, memory_limit=100 << 20)) == fresh


async def test_the_text_of_a_crash_names_the_place(trial: Trial) -> None:
    def crash() -> None:
        import ctypes

        ctypes.string_at(0)

    await trial.start()
    ending = (await trial.ended(trial.call(crash))).ending
    assert (ending.outcome, ending.exit_code) == (Outcome.SIGNALLED, -signal.SIGSEGV)
    assert ending.stderr is not None
    assert b"Fatal Python error: Segmentation fault" in ending.stderr.tail
    assert b"in crash" in ending.stderr.tail


async def test_a_command_is_not_touched_by_functions_before_it(trial: Trial) -> None:
    def spoil() -> None:
        import os

        os.chdir("/")
        os.environ["SPOILT"] = "yes"

    await trial.start()
    await trial.ended(trial.call(spoil))
    ending = (await trial.ended(trial.command("sh", "-c", "pwd; echo $SPOILT."))).ending
    assert ending.stdout is not None
    assert ending.stdout.tail.decode() == f"{os.getcwd()}\n.\n"


async def test_functions_import_from_the_folder_the_driver_was_started_in(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use() -> object:
        import ours  # type: ignore[import-not-found]

        return ours.answer

    (tmp_path / "ours.py").write_text("answer = 42")
    (tmp_path / "select.py").write_text("raise ImportError('not what the agent means')")
    monkeypatch.chdir(tmp_path)
    await trial.start()
    assert await trial.value(trial.call(use)) == 42


# Many


async def test_ten_thousand_tasks_each_end_once(trial: Trial) -> None:
    await trial.start(NodeSpec("a", slots=2), NodeSpec("b"))
    works = [calling(add, number, number) for number in range(3)]
    places = (("a", 0), ("a", 1), ("b", 0))
    total = 10_000
    for number in range(total):
        node, slot = places[number % 3]
        trial.launch(works[number % 3], node=node, slots=(slot,))
    seen = {}
    while len(seen) < total:
        ended = await trial.told(Ended)
        assert ended.key not in seen
        trial.engine.acknowledge(*ended.key)
        seen[ended.key] = pickle.loads(ended.ending.result or b"")
    assert seen == {(1, number, 1): 2 * (number % 3) for number in range(total)}


async def test_more_functions_than_a_process_holds(trial: Trial) -> None:
    await trial.start()
    works = [calling(lambda given=number: given) for number in range(2 * frames.Shelf.names_max)]
    for _ in range(2):
        keys = [trial.launch(work, slots=(number % 2,)) for number, work in enumerate(works)]
        assert [await trial.value(key) for key in keys] == list(range(len(works)))


async def test_a_large_result(trial: Trial) -> None:
    await trial.start()
    assert len(await trial.value(trial.call(bytes, 60 << 20))) == 60 << 20


CHAOS = 200


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_happens_each_attempt_ends_once_or_is_lost_with_its_node(root: Path, seed: int) -> None:
    """Tasks of all sorts, killed by the driver, from outside, and with their nodes. A failure prints its seed."""
    print("seed", seed)
    chance = random.Random(seed)
    functions = [calling(random_deed, number) for number in range(DEEDS)]
    going: dict[AttemptKey, set[str]] = {}
    lost: set[AttemptKey] = set()
    outcomes: Counter[Outcome] = Counter()
    nodes = {"a": 2, "b": 1}
    places = [(name, slot) for name, slots in nodes.items() for slot in range(slots)]
    async with Trial(LocalEngine(root), LIMIT) as trial:

        async def hear() -> None:
            report = await trial.told(Ended | NodeLost | NodeBack)
            if isinstance(report, Ended):
                assert report.key in going, "ended before, lost before, or never launched"
                del going[report.key]
                trial.engine.acknowledge(*report.key)
                outcomes[report.ending.outcome] += 1
            elif isinstance(report, NodeLost):
                gone = [key for key, names in going.items() if report.node in names]
                lost.update(gone)
                for key in gone:
                    del going[key]

        def told() -> bool:
            return any(isinstance(report, Ended | NodeLost | NodeBack) for report in trial.unread)

        await trial.start(*(NodeSpec(name, slots=slots) for name, slots in nodes.items()))
        for task in range(CHAOS):
            while len(engine(trial).pids()) < len(nodes) and chance.random() < 0.95:
                await hear()
            while told():  # otherwise what is launched now would count as lost with a node that has long come back
                await hear()
            chosen = places if chance.random() < 0.2 else [chance.choice(places)]
            names, slots = zip(*chosen, strict=True)
            works = [chance.choice(functions) for _ in chosen]
            key = trial.launch(*works, node=names if len(chosen) > 1 else names[0], slots=slots, key=(1, task, 1))
            going[key] = set(names)
            agents = engine(trial).pids()
            if task % 50 == 25 and names[0] in agents:
                kill(agents[names[0]])
            match chance.randrange(20):
                case 0 | 1 | 2:
                    trial.engine.kill(*chance.choice(list(going)))
                case 5:
                    trial.engine.resize("a", chance.randint(1, 3), at_once=chance.random() < 0.5)
                case 3 | 4:
                    kill(chance.choice([0, *(child.pid for agent in agents.values() for child in children_of(agent))]))
            while len(going) > 20:
                await hear()
        while going or len(engine(trial).pids()) < len(nodes):
            await hear()
        trial.unread = [report for report in trial.unread if isinstance(report, Ended)]
        trial.engine.resize("a", nodes["a"])
        for task, (name, slot) in enumerate(places):
            assert await trial.value(trial.call(add, 1, 1, node=name, slots=(slot,), key=(2, task, 1))) == 2
    assert sum(outcomes.values()) + len(lost) == CHAOS
    assert {Outcome.SUCCEEDED, Outcome.RAISED, Outcome.EXITED, Outcome.KILLED} <= set(outcomes)
    assert lost


DEEDS = 7


def random_deed(number: int) -> object:
    import os
    import subprocess
    import time

    match number:
        case 0:
            print("x" * 10_000)
        case 1:
            time.sleep(0.01)
        case 2:
            raise ValueError("no")
        case 3:
            os._exit(3)
        case 4:
            subprocess.Popen(["sleep", "600"], start_new_session=True)
        case 5:
            return b"x" * 1_000_000
    return number


def children_of(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []


def kill(pid: int) -> None:
    """Kill a process; 0 is none."""
    if pid == 0:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


# Hanging


async def test_a_node_that_hangs_is_lost_killed_and_started_again(root: Path, tmp_path: Path) -> None:
    async with Trial(LocalEngine(root, lease=LEASE), LIMIT) as trial:
        await trial.start(NodeSpec("hangs", slots=2), NodeSpec("lives", lease=3600_000_000))
        agent = agent_of(trial, "hangs")
        spared = agent_of(trial, "lives").pid
        trial.call(wait_for, str(tmp_path / "door"), node="hangs")
        await becomes((tmp_path / "door.waits").exists)
        slots = [child.pid for child in agent.children()]
        agent.suspend()
        lost = await trial.told(NodeLost)
        assert (lost.node, lost.detail) == ("hangs", f"silent for {LEASE:g} s")
        await trial.told(NodeBack)
        assert all(gone(pid) for pid in [agent.pid, *slots])
        assert await trial.value(trial.call(add, 1, 1, node="hangs")) == 2
        assert agent_of(trial, "lives").pid == spared


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"slots": 1001}, "slots of node 'a' is 1001; allowed: 1 to 1000"),
        ({"lease": 1}, "lease of node 'a' is 1e-06; allowed: 0.5 to 3600 seconds, or none"),
        ({"lease": 3_600_000_001}, "lease of node 'a' is 3600.000001; allowed: 0.5 to"),
    ],
)
async def test_a_node_that_this_machine_cannot_run_is_not_started(
    root: Path, terms: dict[str, int], words: str
) -> None:
    engine = LocalEngine(root)
    with pytest.raises(InvalidInput, match=re.escape(words)):
        await engine.start([NodeSpec("b"), NodeSpec("a", **terms)], lambda report: None)
    await engine.start([NodeSpec("b")], lambda report: None)
    try:
        with pytest.raises(InvalidInput, match=re.escape(words)):
            await engine.join(NodeSpec("a", **terms))
        assert set(engine.pids()) == {"b"}
    finally:
        await engine.stop()


async def test_nodes_with_a_lease_are_heard(root: Path) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    engine = LocalEngine(root)
    await engine.start([NodeSpec("a", lease=from_seconds(LEASE)), NodeSpec("b")], heard.put_nowait)
    try:
        async with asyncio.timeout(LIMIT):
            assert [str(await heard.get()) for _ in range(2)] == ["Heard(nodes=('a',))"] * 2
    finally:
        await engine.stop()


async def test_a_driver_that_was_busy_does_not_take_its_nodes_for_dead(root: Path) -> None:
    async with Trial(LocalEngine(root, lease=LEASE), LIMIT) as trial:
        await trial.start()
        before = agent_of(trial).pid
        subprocess.run(["sleep", str(LEASE + 1)], check=True)  # the loop is blocked for longer than the lease
        assert await trial.value(trial.call(add, 1, 1)) == 2
        await asyncio.sleep(1.5 * LEASE)  # and continues for as long as it takes to miss pings
        assert agent_of(trial).pid == before


async def test_a_node_with_a_long_lease_hears_of_its_driver_before_it_takes_it_for_dead(root: Path) -> None:
    trial = Trial(LocalEngine(root, lease=3600.0, orphaned_after=2 * LEASE), LIMIT)
    async with trial:
        await trial.start()
        before = agent_of(trial).pid
        await asyncio.sleep(3 * LEASE)
        assert agent_of(trial).pid == before
        assert await trial.value(trial.call(add, 1, 1)) == 2


# Drivers that die

DRIVER = """
import asyncio, sys
from pathlib import Path
from headway.engines.local import LocalEngine
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
    trial = Trial(LocalEngine(Path(root), orphaned_after=float(orphaned_after)))
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
from headway.engines.local import LocalEngine
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
            await other.start([TWO[0]], lambda _: None)
        assert taken.value.name == "a"
        assert set(engine(owner).pids().values()) <= set(pids)
        for task in (0, 3, 4, 5, 6):
            owner.engine.kill(1, task, 1)
            await owner.ended((1, task, 1))


async def test_a_node_whose_name_somebody_took_while_it_was_lost_is_said_to_be_and_comes_back_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Trial(LocalEngine(root), LIMIT) as trial:
        await trial.start()
        node = engine(trial)._nodes["n"]
        attach, is_taken = node.attach, asyncio.Event()

        async def late() -> Welcome:
            await is_taken.wait()
            return await attach()

        monkeypatch.setattr(node, "attach", late)
        agent_of(trial).kill()
        await trial.told(NodeLost)
        other = LocalEngine(root)
        await other.start([ONE], lambda _: None)
        is_taken.set()
        (pid,) = other.pids().values()
        noticed = await trial.told(Noticed)
        assert (noticed.kind, noticed.subject) == ("name_taken", "n")
        assert other.pids() == {"n": pid}
        await other.stop()
        await trial.told(NodeBack)
        assert await trial.value(trial.call(add, 1, 1)) == 2


async def test_slots_that_go_take_their_processes_with_them(trial: Trial, tmp_path: Path) -> None:
    await trial.start(NodeSpec("n", slots=4))
    agent = agent_of(trial)
    keys, pids = await start_families(trial, tmp_path)
    trial.engine.resize("n", 1)
    await becomes(lambda: len(agent.children()) == 2)
    trial.engine.resize("n", 1, at_once=True)
    assert (await trial.ended(keys[1])).ending.outcome is Outcome.KILLED
    await becomes(lambda: all(gone(pid) for pid in pids[3:]))
    await becomes(lambda: len(agent.children()) == 1)
    trial.engine.resize("n", 2)
    assert await trial.value(trial.call(add, 1, 1, slots=(1,), key=(2, 0, 1))) == 2
    trial.engine.kill(*keys[0])
    await trial.ended(keys[0])


async def test_a_node_that_leaves_takes_its_processes_with_it(trial: Trial, tmp_path: Path) -> None:
    await trial.start(NodeSpec("n", slots=2), NodeSpec("m"))
    agent = agent_of(trial)
    _, pids = await start_families(trial, tmp_path)
    await trial.engine.leave("n")
    assert all(gone(pid) for pid in [agent.pid, *pids])
    assert await trial.value(trial.call(add, 1, 1, node="m", key=(2, 0, 1))) == 2


async def test_a_node_that_joins_with_a_shorter_lease_is_heard_in_time(root: Path) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    engine = LocalEngine(root, lease=3600.0, orphaned_after=LONG)
    await engine.start([NodeSpec("a")], heard.put_nowait)
    try:
        await engine.join(NodeSpec("b", lease=from_seconds(LEASE)))
        async with asyncio.timeout(LIMIT):  # by the lease of the other node it would be minutes
            assert [str(await heard.get()) for _ in range(2)] == ["Heard(nodes=('b',))"] * 2
    finally:
        await engine.stop()


async def test_a_node_that_hung_while_there_was_no_driver_is_started_again(root: Path, tmp_path: Path) -> None:
    pids = await dead_driver(root, tmp_path / "door")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    async with Trial(LocalEngine(root, lease=0.5), LIMIT) as trial:
        found = await trial.start(*TWO)
        assert (found.running, found.ended) == (frozenset(), ())
        assert all(gone(pid) for pid in pids)


# Names and owners


async def test_a_node_has_one_agent_and_one_driver(trial: Trial, root: Path) -> None:
    await trial.start()
    before = agent_of(trial).pid
    with pytest.raises(EngineError, match="the name 'n' is taken by a process that has another driver"):
        await LocalEngine(root).start([ONE], lambda _: None)
    assert await trial.value(trial.call(add, 1, 1)) == 2
    assert agent_of(trial).pid == before


async def test_who_does_not_know_the_secret_is_not_heard(
    trial: Trial, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trial.start()
    folder = node_folder(root, "n")
    monkeypatch.chdir(folder)
    for said in (
        frames.frame(frames.Hello(b"guessed", frames.VERSION, False)),
        frames.frame(frames.Stop()),
        b"\5\0\0\0GET /",
        (1 << 20).to_bytes(4, "little"),
    ):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(LIMIT)
            stranger.connect("socket")
            stranger.sendall(said)
            assert stranger.recv(100) == b""
    assert await trial.value(trial.call(add, 1, 1)) == 2


async def test_the_folder_is_nobody_elses(trial: Trial, root: Path) -> None:
    await trial.start()
    await trial.ended(trial.call(print, "private"))
    assert root.stat().st_mode & 0o777 == 0o700
    assert (root / "secret").stat().st_mode & 0o777 == 0o600


async def test_folders_and_names_may_be_long_and_odd(tmp_path: Path) -> None:
    root = tmp_path / ("long" * 30) / "engine"
    names = ["../../n", "Ä name / with % everything", "x" * 300, "xx"]
    async with Trial(LocalEngine(root), LIMIT) as trial:
        await trial.start(*map(NodeSpec, names))
        for name in names:
            assert await trial.value(trial.call(add, 1, 1, node=name)) == 2
    assert len(list((root / "nodes").iterdir())) == len(names)


async def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match="engine cannot be used"):
        await LocalEngine(tmp_path / "file" / "engine").start([ONE], lambda _: None)


async def test_nodes_that_do_not_start(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such luck\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(EngineError, match="node 'n' does not start\nno such luck"):
        await LocalEngine(root).start([ONE], lambda _: None)


async def test_what_an_engine_with_two_slots_weighs(trial: Trial) -> None:
    await trial.start()
    guard = agent_of(trial).parent()
    assert guard is not None
    family = [guard, *guard.children(recursive=True)]
    assert len(family) == 4
    assert sum(process.memory_full_info().pss for process in family) < 40 << 20
    assert not [module for module in ("numpy", "asyncio") if await trial.value(trial.call(loaded, module))]


def loaded(module: str) -> bool:
    import sys

    return module in sys.modules
