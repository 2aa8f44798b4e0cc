"""What tasks on this machine find in their process, and what they leave behind in it."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import psutil
import pytest

from headway import Client, HeadwayExecutor, Job, Task
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.trial import Trial, calling
from headway.errors import InvalidInput
from headway.model.events import Outcome
from headway.model.node import NodeSpec
from headway.model.tier import Tier

from ..waiting import becomes, gone, let_the_background_run, paths_below, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture
async def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Trial]:
    let_the_background_run(tmp_path / "site", monkeypatch)
    async with Trial(LocalEngine(tmp_path / "engine")) as trial:
        await trial.start()
        yield trial


def local(trial: Trial) -> LocalEngine:
    assert isinstance(trial.engine, LocalEngine)
    return trial.engine


def pid() -> int:
    import os

    return os.getpid()


async def value(trial: Trial, family: str, function: Callable[..., Any], *args: Any, **terms: Any) -> Any:
    return await trial.value(trial.launch(calling(function, *args, family=family), **terms))


def spoil() -> int:
    """Change everything in a process that could affect what runs in it later."""
    import builtins
    import math
    import os
    import resource
    import signal
    import sys
    import threading
    import time

    math.sqrt = lambda number: -1.0  # type: ignore[assignment]
    builtins.spoilt = True  # type: ignore[attr-defined]
    sys.modules["spoilt"] = sys
    sys.path.insert(0, "/spoilt")
    os.environ["SPOILT"] = "yes"
    os.umask(0o777)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (50, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    sys.setrecursionlimit(500)
    return os.getpid()


def found() -> dict[str, Any]:
    import builtins
    import math
    import os
    import resource
    import signal
    import sys
    import threading

    umask = os.umask(0)
    os.umask(umask)
    return {
        "sqrt": math.sqrt(4.0),
        "builtins": hasattr(builtins, "spoilt"),
        "modules": "spoilt" in sys.modules,
        "path": list(sys.path),
        "environ": {name: text for name, text in os.environ.items() if name != "HEADWAY_MARK"},
        "umask": umask,
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "limits": [resource.getrlimit(limit) for limit in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)],
        "threads": threading.active_count(),
        "recursion": sys.getrecursionlimit(),
    }


async def test_nothing_of_another_jobs_calls_is_left_in_the_process_of_a_slot(trial: Trial) -> None:
    clean = await value(trial, "job 1", found)
    spoilt = await value(trial, "job 2", spoil)
    assert await value(trial, "job 2", pid) == spoilt
    assert (await value(trial, "job 2", found))["sqrt"] == -1.0
    assert await value(trial, "job 3", found) == clean
    await becomes(lambda: gone(spoilt))


async def test_a_command_finds_nothing_of_calls_before_it_and_leaves_nothing_to_those_after(trial: Trial) -> None:
    say = "umask; ulimit -n; grep SigIgn /proc/self/status; echo $SPOILT."
    before = (await trial.ended(trial.command("bash", "-c", say))).ending
    await value(trial, "job 2", spoil)
    after = (await trial.ended(trial.command("bash", "-c", say))).ending
    assert before.stdout is not None
    assert after.stdout is not None
    assert after.stdout.tail == before.stdout.tail
    first = await value(trial, "job 3", pid)
    await trial.ended(trial.command("true"))
    assert await value(trial, "job 4", pid) != first


async def test_calls_of_a_family_share_the_process_of_a_slot(trial: Trial) -> None:
    first = await value(trial, "job 1", pid)
    assert await value(trial, "job 1", pid) == first
    second = await value(trial, "job 2", pid)
    assert second != first
    assert await value(trial, "job 1", pid) not in (first, second)


def only(function: Callable[..., Any], *args: Any, family: str) -> Any:
    """A call that is the only one of its family."""
    return msgspec.structs.replace(calling(function, *args, family=family), alone=True)


@pytest.mark.parametrize("tier", Tier)
async def test_a_clean_process_is_ready_when_the_only_call_of_its_family_has_ended(trial: Trial, tier: Tier) -> None:
    agent = psutil.Process(local(trial).pids()["n"])

    def children() -> list[int]:
        return [child.pid for child in agent.children(recursive=True)]

    places = 2 + tier  # the second tier gets its process at its first use
    first = await value(trial, "pool", pid, tier=tier)
    second = await trial.value(trial.launch(only(pid, family="job 1"), tier=tier))
    assert second != first
    await becomes(lambda: gone(second))  # nothing else was launched
    await becomes(lambda: len(found := children()) == places + 1 and second not in found)
    waiting = set(children())
    third = await value(trial, "job 2", pid, tier=tier)
    assert third in waiting  # it was there before its call came
    assert await value(trial, "job 2", pid, tier=tier) == third
    assert waiting == set(children())
    assert await value(trial, "job 3", pid, tier=tier) not in waiting
    await becomes(lambda: gone(third) and len(children()) == places)


async def test_only_calls_begin_in_processes_alike(trial: Trial) -> None:
    clean = await value(trial, "job 1", found)
    for number in range(2, 5):
        spoilt = await trial.value(trial.launch(only(spoil, family=f"job {number}")))
        await becomes(lambda spoilt=spoilt: gone(spoilt))
    assert await trial.value(trial.launch(only(found, family="job 5"))) == clean
    assert await value(trial, "job 6", found) == clean


@pytest.mark.parametrize(
    ("end", "outcome", "code"),
    [
        ("os._exit(0)", Outcome.EXITED, 0),
        ("os._exit(3)", Outcome.EXITED, 3),
        ("os.kill(os.getpid(), signal.SIGSEGV)", Outcome.SIGNALLED, -11),
        ("os.kill(os.getpid(), signal.SIGKILL)", Outcome.SIGNALLED, -9),
    ],
)
@pytest.mark.parametrize("before", [0, 1])
async def test_an_only_call_ends_as_its_process_does(
    trial: Trial, end: str, outcome: Outcome, code: int, before: int
) -> None:
    for number in range(before):
        await trial.value(trial.launch(only(pid, family=f"job {number}")))
    key = trial.launch(only(exec, f"import os, signal; {end}", family="job 10"))
    behind = trial.launch(only(pid, family="job 11"))
    ending = (await trial.ended(key)).ending
    assert (ending.outcome, ending.exit_code) == (outcome, code)
    assert await trial.value(behind)


async def test_an_only_call_leaves_no_processes(trial: Trial) -> None:
    def start() -> int:
        import subprocess

        return subprocess.Popen(["sleep", "600"], start_new_session=True).pid

    for number in range(2):
        await trial.value(trial.launch(only(pid, family=f"job {number}")))
        left = await trial.value(trial.launch(only(start, family=f"job {number + 10}")))
        await becomes(lambda left=left: gone(left))


async def test_a_program_after_an_only_call_is_asked_to_leave_and_its_process_is_not(
    trial: Trial, tmp_path: Path
) -> None:
    await trial.value(trial.launch(only(pid, family="job 1")))
    key = trial.command("sh", "-c", f"trap 'exit 7' TERM; touch {tmp_path}/on; while true; do sleep 0.01; done")
    await becomes((tmp_path / "on").exists)
    trial.engine.suspend(*key)
    ending = (await trial.ended(key)).ending
    assert (ending.outcome, ending.exit_code) == (Outcome.KILLED, None)
    assert ending.detail == "told to save and end, to go on elsewhere"


async def test_an_only_call_that_is_killed_makes_room_for_the_next(trial: Trial, tmp_path: Path) -> None:
    def wait(path: str) -> None:
        import time

        open(path, "w").close()
        time.sleep(600)

    for number in range(2):
        key = trial.launch(only(wait, str(tmp_path / str(number)), family=f"job {number}"))
        behind = trial.launch(only(pid, family=f"job {number + 10}"))
        await becomes((tmp_path / str(number)).exists)
        trial.engine.kill(*key)
        assert (await trial.ended(key)).ending.outcome is Outcome.KILLED
        assert await trial.value(behind)


async def test_a_slot_that_is_no_more_gets_no_other_process_for_the_one_that_was_used(trial: Trial) -> None:
    key = trial.launch(only(time.sleep, 0.5, family="job 1"), slots=(1,))
    trial.engine.resize("n", 1)
    assert (await trial.ended(key)).ending.outcome is Outcome.SUCCEEDED
    agent = psutil.Process(local(trial).pids()["n"])
    await becomes(lambda: len(agent.children()) == 1)
    await value(trial, "job 2", pid)
    assert len(agent.children()) == 1


async def test_a_family_in_the_background_does_not_disturb_another_in_the_foreground(trial: Trial) -> None:
    front = await value(trial, "job 1", pid)
    behind = await value(trial, "job 2", pid, tier=Tier.BACKGROUND)
    assert behind != front
    assert await value(trial, "job 1", pid) == front
    assert await value(trial, "job 2", pid, tier=Tier.BACKGROUND) == behind


async def test_what_waits_for_slots_with_others_gets_clean_processes(trial: Trial) -> None:
    """Several jobs for each slot, launched ahead of their turn; each call runs once."""
    keys = [
        trial.launch(calling(spoil, family=f"job {number}"), slots=(number % 2,), key=(number, 0, 1))
        for number in range(2, 22)
    ]
    pids = [await trial.value(key) for key in keys]
    assert len(set(pids)) == len(keys)


@pytest.mark.parametrize("timer", ["ITIMER_REAL", "ITIMER_PROF", "ITIMER_VIRTUAL"])
async def test_a_timer_that_a_call_leaves_does_not_end_the_next_one(trial: Trial, timer: str) -> None:
    def leave(timer: str) -> int:
        import os
        import signal

        signal.setitimer(getattr(signal, timer), 0.3)
        return os.getpid()

    def work(seconds: float) -> int:
        import os
        import time

        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
        return os.getpid()

    first = await value(trial, "job 1", leave, timer)
    ending = (await trial.ended(trial.launch(calling(work, 0.6, family="job 1")))).ending
    assert ending.outcome is Outcome.SUCCEEDED, ending.detail
    assert await value(trial, "job 1", pid) == first


# Environment


def environment() -> dict[str, str]:
    import os

    return dict(os.environ)


async def test_tasks_get_a_named_part_of_the_servers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name != "PYTHONPATH":
            monkeypatch.delenv(name)
    given = {"PATH": os.defpath, "HOME": "/home/x", "LC_TIME": "C", "TZ": "UTC", "AWS_KEY": "k", "AWS_REGION": "r"}
    own = {"HEADWAY_TOKEN": "secret", "HEADWAY_DECIDER_TOKEN": "secret", "OF_MINE": "1", "LCD": "2"}
    for name, text in {**given, **own}.items():
        monkeypatch.setenv(name, text)
    async with Trial(LocalEngine(tmp_path / "engine", LocalSettings(pass_env=("AWS_*", "HEADWAY_*")))) as trial:
        await trial.start()
        of_function = await value(trial, "job 1", environment)
        key = trial.command("env", env={"OF_THE_JOB": "3", "TZ": "CET"})
        ended = (await trial.ended(key)).ending
        of_processes = [
            dict(line.split("=", 1) for line in (Path("/proc") / str(pid) / "environ").read_text().split("\0") if line)
            for pid in [one.pid for one in psutil.Process(local(trial).pids()["n"]).parents()[:1]]
        ]
    assert ended.stdout is not None
    of_command = dict(line.split("=", 1) for line in ended.stdout.tail.decode().splitlines())
    for found in (of_function, of_command, *of_processes):
        told = ("MARK", "NODE", "JOB", "TASK", "ATTEMPT", "RANK", "WIDTH", "CHECKPOINT")
        ours = {"PYTHONPATH", "LC_CTYPE", *(f"HEADWAY_{name}" for name in told)}
        left = {name: text for name, text in found.items() if name not in ours}
        assert left == (given if found is not of_command else {**given, "OF_THE_JOB": "3", "TZ": "CET"})


@pytest.mark.parametrize("name", ["", "A=B", "A B", "HEADWAY_TOKEN"])
def test_what_cannot_be_passed_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="pass_env"):
        LocalEngine(tmp_path, LocalSettings(pass_env=[name]))


async def test_threads_processes_and_programs_within_a_function(trial: Trial) -> None:
    def use() -> tuple[int, list[int], str]:
        import multiprocessing
        import subprocess
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(2) as threads:
            first = sum(threads.map(len, ["a", "bc"]))
        with multiprocessing.get_context("fork").Pool(2) as pool:
            second = pool.map(abs, [-1, -2])
        third = subprocess.run(["sh", "-c", "echo said"], stdout=subprocess.PIPE, check=True, text=True).stdout
        return first, second, third

    for _ in range(2):
        assert await value(trial, "job 1", use) == (3, [1, 2], "said\n")


# Output


def chatter(door: str, size: int) -> int:
    """Write so much to stdout and more until a file is there, and a word to stderr."""
    import os
    import sys

    written = 0
    while written <= size or not os.path.exists(door):
        written += os.write(1, b"y\n" * 32768)
    print("last words", flush=True)
    print("to stderr", file=sys.stderr)
    return written


def disk_use(folder: Path) -> int:
    used = 0
    for path in paths_below(folder):
        with suppress(FileNotFoundError):  # it has just been removed
            used += path.stat().st_blocks * 512 * path.is_file()
    return used


async def test_what_a_task_writes_is_kept_up_to_a_bound_while_it_runs(tmp_path: Path) -> None:
    """Of a function and of a program. The task continues, and so does its node."""
    bound = 1 << 20
    root, door = tmp_path / "engine", tmp_path / "door"
    script = f"yes | head -c {10 * bound}; until [ -e {door} ]; do sleep 0.01; done; exit 3"
    async with Trial(LocalEngine(root, LocalSettings(task_output_max=bound))) as trial:
        await trial.start(NodeSpec("n", slots=3))
        function = trial.launch(calling(chatter, str(door), 10 * bound, family="job 1"), slots=(0,))
        program = trial.command("sh", "-c", script, slots=(1,))
        used = []
        while len(used) < 40 or max(used) < bound:
            assert await value(trial, "job 2", pid, slots=(2,))
            used.append(disk_use(root))
            await asyncio.sleep(0.02)
        assert max(used) < 3 * bound
        assert trial.unread == [], "both go on"
        door.touch()
        for key, last in ((function, b"last words\n"), (program, b"y\ny\n")):
            ending = (await trial.ended(key)).ending
            assert ending.stdout is not None
            assert ending.stdout.cut > 0
            assert ending.stdout.tail.endswith(last)
            kept = Path(ending.stdout.name).read_bytes()
            assert len(kept) <= bound
            assert kept.startswith(b"y\ny\n")
            assert kept.endswith(last)
            said = f"[{ending.stdout.cut} of {ending.stdout.size} bytes are left out here]"
            assert said.encode() in kept
        assert (ending.outcome, ending.exit_code) == (Outcome.EXITED, 3)
        after = (await trial.ended(trial.call(print, "as before"))).ending
        assert after.stdout is not None
        assert (after.stdout.tail, after.stdout.cut) == (b"as before\n", 0)


async def test_files_that_a_task_names_have_all_it_writes(tmp_path: Path) -> None:
    path = tmp_path / "named"
    async with Trial(LocalEngine(tmp_path / "engine", LocalSettings(task_output_max=64 << 10))) as trial:
        await trial.start()
        ending = (await trial.ended(trial.command("seq", "100000", stdout=str(path)))).ending
        assert ending.stdout is not None
        assert (ending.stdout.size, ending.stdout.cut) == (path.stat().st_size, 0)
        assert path.read_text().splitlines()[-1] == "100000"


async def test_what_a_task_wrote_before_it_was_killed_is_kept(trial: Trial, tmp_path: Path) -> None:
    script = f"seq 100000; echo >&2 words; touch {tmp_path}/wrote; sleep 600"
    key = trial.command("sh", "-c", script)
    await becomes((tmp_path / "wrote").exists)
    trial.engine.kill(*key)
    ending = (await trial.ended(key)).ending
    assert ending.stdout is not None
    assert ending.stderr is not None
    assert Path(ending.stdout.name).read_text().splitlines()[-1] == "100000"
    assert ending.stderr.tail == b"words\n"


async def test_what_a_thread_writes_that_a_call_has_left_is_nobodys(trial: Trial) -> None:
    def leave() -> None:
        import os
        import threading
        import time

        def write() -> None:
            while True:
                os.write(1, b"of nobody\n" * 1000)
                time.sleep(0.001)

        threading.Thread(target=write, daemon=True).start()

    await value(trial, "job 1", leave)
    await asyncio.sleep(0.2)
    ending = (await trial.ended(trial.launch(calling(print, "mine", family="job 2")))).ending
    assert ending.stdout is not None
    assert ending.stdout.tail == b"mine\n"


async def test_a_stream_that_a_call_has_replaced_is_there_for_the_next_one(trial: Trial) -> None:
    def replace() -> None:
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    await value(trial, "job 1", replace)
    ending = (await trial.ended(trial.launch(calling(print, "heard", family="job 1")))).ending
    assert ending.stdout is not None
    assert ending.stdout.tail == b"heard\n"


async def test_tasks_may_have_no_more_files_open_than_the_server_was_started_with(trial: Trial) -> None:
    def files() -> tuple[list[int], tuple[int, int]]:
        import os
        import resource

        return sorted(map(int, os.listdir("/proc/self/fd")))[:-1], resource.getrlimit(resource.RLIMIT_NOFILE)

    for _ in range(2):
        fds, limits = await value(trial, "job 1", files)
        assert limits == resource.getrlimit(resource.RLIMIT_NOFILE)
        assert len(fds) <= 6, fds  # three streams, the channel, its folder, that of the listing
        await value(trial, "job 2", pid, slots=(1,))


# Modules


def imported(name: str) -> Any:
    import importlib

    return importlib.import_module(name).answer


async def test_another_job_reads_a_module_that_was_edited(trial: Trial, tmp_path: Path) -> None:
    async def answer(family: str) -> Any:
        call = calling(imported, "edited", family=family, paths=(str(tmp_path),))
        return await trial.value(trial.launch(call))

    (tmp_path / "edited.py").write_text("answer = 'old'")
    assert await answer("job 1") == "old"
    (tmp_path / "edited.py").write_text("answer = 'edited'")
    assert await answer("job 1") == "old"
    assert await answer("job 2") == "edited"


async def test_folders_of_modules_are_those_of_the_call_ahead_of_the_engines_or_after(
    trial: Trial, tmp_path: Path
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"only_{folder}.py").write_text(f"answer = {folder!r}")
        (tmp_path / folder / "colorsys.py").write_text(f"answer = {folder!r}")  # the standard library has one
    (tmp_path / "a" / "both.py").write_text("answer = 'a'")
    (tmp_path / "b" / "both.py").write_text("answer = 'b'")

    def paths() -> list[str]:
        import sys

        return list(sys.path)

    async def path(*paths_of_call: str) -> list[str]:
        found: list[str] = await trial.value(trial.launch(calling(paths, family="f", paths=paths_of_call)))
        return found

    own = await path()
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert await path(a) == [a, *own]
    assert await path(a, "", b) == [a, *own, b]
    assert await path("", b) == [*own, b]
    assert await path(own[-1]) == [own[-1], *own[:-1]]
    assert await path() == own
    call = calling(imported, "colorsys", family="g", paths=(a, "", b))
    assert await trial.value(trial.launch(call)) == "a"
    call = calling(imported, "only_b", family="g", paths=(a, "", b))
    assert await trial.value(trial.launch(call)) == "b"


# From a client


@pytest.fixture
def client(up: Any) -> Iterator[Client]:
    """A client of a server on which this file cannot be imported, so functions are sent by value."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with Client(data=up.data) as client:
        yield client
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def one(client: Client, function: Callable[..., Any], *args: Any, **terms: Any) -> Any:
    return client.submit(Job("one", [Task(function, *args)], **terms)).result(60)[0]


def mark(name: str) -> list[str]:
    """Mark this process. Returns its earlier marks and this one."""
    import builtins

    marks: list[str] = getattr(builtins, "marks", [])
    builtins.marks = [*marks, name]  # type: ignore[attr-defined]
    return marks


def test_each_job_has_clean_processes_and_warm_ones_share_theirs_by_name(client: Client) -> None:
    assert [one(client, mark, "own") for _ in range(3)] == [[], [], []]
    for shared, other in ((True, "x"), ("name", True)):
        before: list[list[str]] = [one(client, mark, str(shared), warm=shared) for _ in range(5)]
        assert before[-1]  # two slots: one of them had an earlier one
        assert {name for marks in before for name in marks} == {str(shared)}
        assert one(client, mark, "z", warm=f"never {other}") == []


def test_the_process_of_a_job_of_one_call_ends_with_it_and_a_warm_one_stays(client: Client) -> None:
    used = one(client, pid)
    until(lambda: gone(used))
    warm = one(client, pid, warm=True)
    time.sleep(0.3)
    assert not gone(warm)


def test_an_executor_has_processes_of_its_own_that_stay_warm(client: Client) -> None:
    for _ in range(2):
        with HeadwayExecutor(client) as executor:
            seen = [executor.submit(mark, "mine").result(60) for _ in range(5)]
            assert {name for marks in seen for name in marks} == {"mine"}
            assert max(map(len, seen)) >= 2
            assert seen[0] == []
    with HeadwayExecutor(client, warm=False) as executor:
        assert [executor.submit(mark, "each").result(60) for _ in range(3)] == [[], [], []]


SCRIPT = """
import sys
from headway import Client, HeadwayExecutor, Job, Task
import beside

def twice(number):
    import beside
    return beside.double(number)

with Client(data=sys.argv[1]) as client:
    job = Job("beside", [Task(beside.double, 1), Task(twice, 2), Task(int, beside.Number(3))])
    print(client.submit(job).result(60))
    with HeadwayExecutor(client) as executor:
        print(list(executor.map(beside.double, [4, 5])))
"""

BESIDE = """
def double(number):
    return 2 * number

class Number:
    def __init__(self, number):
        self.number = number

    def __int__(self):
        return self.number
"""


@pytest.mark.parametrize("how", ["script", "-m", "-c", "PYTHONPATH"])
def test_modules_beside_the_calling_script_can_be_imported(up: Any, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "beside.py").write_text(BESIDE)
    (folder / "script.py").write_text(SCRIPT)
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    cwd = folder
    match how:
        case "script":
            words, cwd = [str(folder / "script.py")], tmp_path
        case "-m":
            words = ["-m", "script"]
        case "-c":
            words = ["-c", SCRIPT]
        case _:
            words, cwd = ["-P", "-c", SCRIPT], tmp_path
            environment["PYTHONPATH"] = str(folder)
    command = [sys.executable, *words, str(up.data)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("[2, 4, 3]\n[8, 10]\n", 0), done.stderr
