"""The local engine when processes die: tasks, slots' processes, agents and guards."""

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
from pathlib import Path

import psutil
import pytest

from headway.engines.base import AttemptKey, Ended, NodeBack, NodeLost, Noticed
from headway.engines.local.driver.attached import AgentLine
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.host import node_folder
from headway.engines.local.shared import frames
from headway.engines.local.shared.frames import Welcome
from headway.engines.trial import FilesInMemory, Trial, calling
from headway.errors import EngineError, InvalidInput
from headway.model.events import Outcome
from headway.model.node import NodeSpec

from ...waiting import LIMIT, becomes, gone
from .conftest import ONE, add, agent_of, engine, wait_for

pytestmark = pytest.mark.anyio


def pid() -> int:
    import os

    return os.getpid()


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
    engine, take = LocalEngine(root), AgentLine._take
    stopping: list[asyncio.Task[None]] = []

    def taking(line: AgentLine, message: frames.ToDriver) -> None:
        take(line, message)
        if isinstance(message, Welcome):
            stopping.append(asyncio.ensure_future(engine.stop()))

    await engine.start([ONE], lambda _: None, FilesInMemory())
    monkeypatch.setattr(AgentLine, "_take", taking)
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


async def test_thousands_of_tasks_each_end_once(trial: Trial) -> None:
    await trial.start(NodeSpec("a", slots=2), NodeSpec("b"))
    works = [calling(add, number, number) for number in range(3)]
    places = (("a", 0), ("a", 1), ("b", 0))
    total = 3_000
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


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
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


# Nodes that leave or shrink


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


# Names and owners


async def test_a_node_has_one_agent_and_one_driver(trial: Trial, root: Path) -> None:
    await trial.start()
    before = agent_of(trial).pid
    with pytest.raises(EngineError, match="the name 'n' is taken by a process that has another driver"):
        await LocalEngine(root).start([ONE], lambda _: None, FilesInMemory())
    assert await trial.value(trial.call(add, 1, 1)) == 2
    assert agent_of(trial).pid == before


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
        await other.start([ONE], lambda _: None, FilesInMemory())
        is_taken.set()
        (pid,) = other.pids().values()
        noticed = await trial.told(Noticed)
        assert (noticed.kind, noticed.subject) == ("name_taken", "n")
        assert other.pids() == {"n": pid}
        await other.stop()
        await trial.told(NodeBack)
        assert await trial.value(trial.call(add, 1, 1)) == 2


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
        await LocalEngine(tmp_path / "file" / "engine").start([ONE], lambda _: None, FilesInMemory())


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
        await engine.start([NodeSpec("b"), NodeSpec("a", **terms)], lambda report: None, FilesInMemory())
    await engine.start([NodeSpec("b")], lambda report: None, FilesInMemory())
    try:
        with pytest.raises(InvalidInput, match=re.escape(words)):
            await engine.join(NodeSpec("a", **terms))
        assert set(engine.pids()) == {"b"}
    finally:
        await engine.stop()


async def test_nodes_that_do_not_start(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such luck\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(EngineError, match="node 'n' does not start\nno such luck"):
        await LocalEngine(root).start([ONE], lambda _: None, FilesInMemory())


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
