"""Tasks that run as another user than the server: what they can do, and what is kept from them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway import Client, Job, Task
from headway.engines.base import NodeBack, NodeLost, Saved, Started
from headway.engines.local.agent.porter import bring_in
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.host import put_down
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.shared import accounts
from headway.engines.local.shared.accounts import account_of
from headway.engines.local.shared.terms import dropped_name
from headway.engines.trial import FilesInFolder, FilesInMemory, Trial, calling
from headway.errors import EngineError, FileTrouble, HeadwayError, InvalidInput
from headway.files import Input, Output
from headway.model.events import Outcome
from headway.model.tier import Tier

from ..waiting import LIMIT, becomes, gone, let_the_background_run, paths_below
from .conftest import Up, python_for

USER = "nobody"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can have tasks run as another user"),
]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture(scope="module", autouse=True)
def _python_for_everybody() -> Iterator[None]:
    with python_for(USER):
        yield


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    place = Path(tempfile.mkdtemp(prefix="headway-test-", dir="/tmp"))
    place.chmod(0o711)
    yield place
    for folder in (place / "data" / "engine" / "nodes").glob("*"):
        put_down(folder)
    shutil.rmtree(place)


def engine_in(place: Path, run_as: str = USER) -> LocalEngine:
    (place / "data").mkdir(mode=0o700, exist_ok=True)
    return LocalEngine(place / "data" / "engine", LocalSettings(run_as=run_as, ground=place / "ground"))


def trial_in(place: Path, run_as: str = USER) -> Trial:
    return Trial(engine_in(place, run_as), files=FilesInFolder(place / "data" / "uploads"))


@pytest.fixture
async def trial(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Trial]:
    let_the_background_run(tmp_path / "site", monkeypatch)
    async with trial_in(place) as trial:
        await trial.start()
        yield trial


async def value(trial: Trial, function: Any, *args: Any, **terms: Any) -> Any:
    return await trial.value(trial.launch(calling(function, *args), **terms))


def who() -> dict[str, Any]:
    import os

    return {
        "ids": [*os.getresuid(), *os.getresgid()],
        "groups": os.getgroups(),
        "environ": {name: os.environ.get(name) for name in ("HOME", "USER", "LOGNAME", "SHELL")},
    }


async def test_functions_and_programs_run_as_the_user(trial: Trial) -> None:
    account = account_of(USER)
    wanted = {
        "ids": [account.uid] * 3 + [account.gid] * 3,
        "groups": sorted(account.groups),
        "environ": account.environment,
    }
    assert await value(trial, who) == wanted
    assert await value(trial, who, tier=Tier.BACKGROUND) == wanted
    ending = (await trial.ended(trial.command("sh", "-c", "id -u; id -g; id -G; echo $USER; touch $TMPDIR/x"))).ending
    assert ending.stdout is not None
    assert ending.stdout.tail.decode().split("\n")[:4] == [
        *(str(account.uid), str(account.gid), " ".join(map(str, account.groups)), USER)
    ]


class Spy:
    """An object that is unpickled with a call, before anything is called."""

    def __reduce__(self) -> Any:
        return eval, ("(__import__('os').getuid(), __import__('os').getpid())",)


async def test_nothing_of_a_task_is_read_as_root(trial: Trial) -> None:
    def given(found: tuple[int, int]) -> tuple[int, int]:
        return found

    uid, _ = await value(trial, given, Spy())
    assert uid == account_of(USER).uid


async def test_the_servers_files_are_not_to_be_read(trial: Trial, place: Path) -> None:
    """Neither by name, nor through what a slot's process has open, nor from its processes."""

    def pry(paths: list[str]) -> dict[str, str]:
        import os

        found = {}
        here = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        for path in (*paths, *here):
            try:
                if os.path.isdir(path):
                    found[path] = str(os.listdir(path))
                elif path not in here:
                    with open(path, "rb") as file:
                        found[path] = repr(file.read(100))
            except OSError:
                continue
        return found

    (place / "data" / "token").write_text("secret")
    (place / "data" / "token").chmod(0o644)  # even so: the folder is closed
    kept = await trial.ended(trial.call(print, "x" * 20_000))
    assert kept.ending.stdout is not None
    agent = psutil.Process(trial.engine.pids()["n"])  # type: ignore[attr-defined]
    processes = [os.getpid(), agent.pid, agent.ppid()]
    paths = [str(path) for path in paths_below(place / "data")] + [kept.ending.stdout.name]
    paths += [f"/proc/{pid}/{name}" for pid in processes for name in ("environ", "mem", "maps")]
    found = await value(trial, pry, [str(place / "data"), *paths])
    assert [path for path in found if not path.startswith("/proc/self/fd/")] == []
    assert not any("secret" in names or "engine" in names for names in found.values())
    said = f"for f in {' '.join(paths)}; do cat $f; done 2>/dev/null | wc -c"
    ending = (await trial.ended(trial.command("sh", "-c", said))).ending
    assert ending.stdout is not None
    assert ending.stdout.tail == b"0\n"


async def test_the_token_of_the_server_is_in_no_environment_of_a_task(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_TOKEN", "f00d")
    async with trial_in(place) as trial:
        await trial.start()
        look = "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done 2>/dev/null | grep -c HEADWAY_TOKEN"
        ending = (await trial.ended(trial.command("sh", "-c", look))).ending
    assert ending.stdout is not None
    assert ending.stdout.tail == b"0\n"


async def test_output_limits_and_kills_are_the_servers_still(trial: Trial, place: Path) -> None:
    kept = (await trial.ended(trial.command("sh", "-c", "seq 10000; echo to it > /dev/stderr"))).ending
    assert kept.stdout is not None
    assert kept.stderr is not None
    assert kept.stderr.tail == b"to it\n"
    status = Path(kept.stdout.name).stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o600)

    def hoard() -> None:
        import time

        held = [b"x" * (10 << 20) for _ in range(40)]
        time.sleep(600 + len(held))

    over = (await trial.ended(trial.launch(calling(hoard), memory_limit=200 << 20))).ending
    assert over.outcome is Outcome.OUT_OF_MEMORY
    slow = (await trial.ended(trial.command("sleep", "600", time_limit=0.2))).ending
    assert slow.outcome is Outcome.OUT_OF_TIME
    script = f"sleep 600 & setsid sleep 600 & echo $! > {place}/ground/pid; sleep 600"
    (place / "ground" / "pid").touch()
    (place / "ground" / "pid").chmod(0o666)
    key = trial.command("sh", "-c", script)
    escaped = int(await becomes(lambda: (place / "ground" / "pid").read_text()))
    trial.engine.change(*key, Tier.BACKGROUND)
    trial.engine.kill(*key)
    assert (await trial.ended(key)).ending.outcome is Outcome.KILLED
    await becomes(lambda: gone(escaped))  # it has been sent the signal
    uid = account_of(USER).uid
    agent = psutil.Process(trial.engine.pids()["n"])  # type: ignore[attr-defined]

    def owners() -> set[int]:
        found = set()
        for child in agent.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                found.add(child.uids().real)
        return found

    await becomes(lambda: owners() == {uid})  # a process that was just forked is root's for a moment


async def test_the_processes_of_slots_die_with_their_agent(trial: Trial, place: Path) -> None:
    """Also those that run something and do not notice that the agent is gone."""

    def wait(path: str) -> None:
        import time

        open(path, "w").close()
        time.sleep(600)

    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    for slot in range(2):
        trial.launch(calling(wait, str(place / "open" / str(slot))), slots=(slot,))
    await becomes(lambda: len(list((place / "open").iterdir())) == 2)
    agent = psutil.Process(trial.engine.pids()["n"])  # type: ignore[attr-defined]
    slots = agent.children()
    guard = agent.parent()
    assert guard is not None
    guard.send_signal(signal.SIGSTOP)  # only the kernel may end them
    agent.kill()
    await becomes(lambda: all(gone(slot.pid) for slot in slots))
    guard.send_signal(signal.SIGCONT)
    await trial.told(NodeLost)
    await trial.told(NodeBack)


async def test_checkpoints_are_found_by_the_next_attempt_and_forgotten_with_their_job(
    trial: Trial, place: Path
) -> None:
    def count(to: int) -> int:
        import headway

        number: int = headway.resumed(0)
        headway.checkpoint(number + to)
        return number

    assert await value(trial, count, 5, key=(7, 0, 1)) == 0
    assert await value(trial, count, 5, key=(7, 0, 2), slots=(1,)) == 5
    script = "cat $HEADWAY_CHECKPOINT/f; echo more >> $HEADWAY_CHECKPOINT/f"
    outputs = []
    for attempt in (1, 2):
        ending = (await trial.ended(trial.command("sh", "-c", script, key=(8, 0, attempt)))).ending
        outputs.append(ending.stdout and ending.stdout.tail)
    assert outputs == [None, b"more\n"]
    trial.disregard(Saved)
    trial.engine.forget(7)
    await becomes(lambda: not (place / "ground" / "checkpoints" / "7").exists())
    assert (place / "ground" / "checkpoints" / "8").exists()


async def test_files_are_fetched_and_put_with_the_users_rights_and_uploads_by_their_names(
    trial: Trial, place: Path
) -> None:
    uploads = place / "data" / "uploads"

    def keep(content: bytes) -> str:
        name = hashlib.sha256(content).hexdigest()
        (uploads / name).write_bytes(content)
        (uploads / name).chmod(0o600)
        return name

    def double(given: Path, there: Path, kept: Path) -> str:
        there.write_bytes(2 * given.read_bytes())
        kept.write_bytes(3 * given.read_bytes())
        return str(given.stat().st_uid)

    name = keep(b"input")
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    there = place / "open" / "there"
    call = calling(double, Input(f"headway:{name}/i"), Output(str(there)), Output("headway:o"))
    ended = await trial.ended(trial.launch(call, files=True, fetches=True))
    assert ended.ending.outcome is Outcome.SUCCEEDED, ended.ending.detail
    assert (there.read_bytes(), there.stat().st_uid) == (b"inputinput", account_of(USER).uid)
    made = hashlib.sha256(b"inputinputinput").hexdigest()
    assert ended.ending.outputs["headway:o"] == f"headway:{made}/o"
    status = (uploads / made).stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o600)
    assert (uploads / made).read_bytes() == b"inputinputinput"
    assert list((place / "ground" / "dropped").iterdir()) == []

    program = {"inputs": {"i": f"headway:{name}"}, "outputs": {"o": "headway:o"}, "files": True}
    ended = await trial.ended(trial.command("cp", "i", "o", fetches=True, **program))
    assert ended.ending.outputs == {"o": f"headway:{name}/o"}

    leaves_a_process = ("sh", "-c", "sleep 1000 & cp i o")
    ended = await trial.ended(trial.command(*leaves_a_process, fetches=True, **program))
    assert (ended.ending.outcome, ended.ending.outputs) == (Outcome.SUCCEEDED, {"o": f"headway:{name}/o"})

    absent = calling(double, Input(f"headway:{'0' * 64}"), Output(str(there)), Output("headway:o"))
    refused = (await trial.ended(trial.launch(absent, files=True, fetches=True))).ending
    assert (refused.outcome, "not found" in refused.detail) == (Outcome.REFUSED, True)
    (place / "data" / "roots").write_text("roots")
    (place / "data" / "roots").chmod(0o600)
    secret = calling(double, Input(str(place / "data" / "roots")), Output(str(there)), Output("headway:o"))
    refused = (await trial.ended(trial.launch(secret, files=True, fetches=True))).ending
    assert (refused.outcome, "Permission denied" in refused.detail) == (Outcome.REFUSED, True)
    trial.disregard(Started)


async def test_an_output_that_is_not_what_its_name_says_is_not_kept(trial: Trial, place: Path) -> None:
    """The folder for outputs belongs to the user, so any task may change what is in it."""

    def swap(out: Path) -> None:
        import os

        out.write_bytes(b"what is hashed")
        folder = os.path.join(os.path.dirname(os.environ["DROPPED"]), "dropped")
        replace = os.replace

        def replacing(source: str, target: str) -> None:
            replace(source, target)
            if target.startswith(folder):
                os.unlink(target)
                os.symlink("/etc/shadow", target)

        os.replace = replacing  # type: ignore[assignment]

    uploads = place / "data" / "uploads"

    def tell(path: str) -> None:
        import os

        os.environ["DROPPED"] = path

    await value(trial, tell, str(place / "ground" / "dropped"))
    ended = await trial.ended(trial.launch(calling(swap, Output("headway:o")), files=True))
    assert ended.ending.outcome is Outcome.REFUSED
    assert ended.ending.detail.startswith("outputs cannot be kept")
    assert list(uploads.iterdir()) == []
    assert await value(trial, abs, -1) == 1


def test_what_is_brought_in_is_a_file_with_the_bytes_of_its_name(tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    name = hashlib.sha256(b"content").hexdigest()
    source = tmp_path / dropped_name(name, 1, 0, 0)
    source.write_bytes(b"other")
    with pytest.raises(FileTrouble, match="changed"):
        bring_in(str(source), str(uploads), name)
    source.unlink()
    os.mkfifo(source)
    with pytest.raises(FileTrouble, match="not a plain file"):
        bring_in(str(source), str(uploads), name)
    source.unlink()
    source.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(b"content")
    with pytest.raises(OSError, match="symbolic links"):
        bring_in(str(source), str(uploads), name)
    assert list(uploads.iterdir()) == []
    source.unlink()
    source.write_bytes(b"content")
    bring_in(str(source), str(uploads), name)
    assert [(path.name, path.read_bytes()) for path in uploads.iterdir()] == [(name, b"content")]
    assert not source.exists()


async def test_a_link_in_the_place_of_a_named_file_shows_nothing_of_roots(trial: Trial, place: Path) -> None:
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "data" / "roots").write_text("roots")
    path = place / "open" / "out"
    script = f"echo mine; rm {path}; ln -s {place}/data/roots {path}; touch {place}/open/done; sleep 600"
    key = trial.command("sh", "-c", script, stdout=str(path))
    await becomes((place / "open" / "done").exists)
    trial.engine.kill(*key)
    ending = (await trial.ended(key)).ending
    assert (ending.outcome, ending.stdout) == (Outcome.KILLED, None)


async def test_a_driver_that_runs_tasks_as_somebody_else_starts_its_nodes_again(place: Path) -> None:
    async with trial_in(place) as first:
        await first.start()
        agent = first.engine.pids()["n"]  # type: ignore[attr-defined]
        node = first.engine._nodes["n"]  # type: ignore[attr-defined]
        node.up = False
        node.line.transport.abort()  # as if this driver had died
        async with trial_in(place, run_as="daemon") as second:
            await second.start()
            assert gone(agent)
            assert (await value(second, who))["environ"]["USER"] == "daemon"


def test_a_server_whose_tasks_run_as_another_user(place: Path) -> None:
    """From the client: a function sent by value, a program, and a file that only the server has."""
    server = Up(place)
    server.start("--run-as", USER, "--ground", str(place / "ground"))
    try:
        with Client(data=server.data) as client:
            (place / "given").write_bytes(b"given")

            def read(given: Path) -> tuple[int, bytes]:
                return os.getuid(), given.read_bytes()

            (place / "given").chmod(0o600)
            job = Job("read", [Task(read, client.upload(place / "given"))])
            assert client.submit(job).result(60) == [(account_of(USER).uid, b"given")]
            pry = f"id -un; cat {server.data}/* {server.data}/*/* | wc -c"
            job = Job("pry", [Task.command("sh", "-c", pry, cwd="/")])
            assert client.submit(job).result(60) == [f"{USER}\n0\n"]
    finally:
        server.stop()


async def test_what_killed_attempts_have_dropped_goes_after_an_hour(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = place / "ground" / "dropped"
    async with trial_in(place) as trial:
        await trial.start()
        (dropped / "left").write_bytes(b"x")
        (dropped / "link").symlink_to(place / "data")
    async with trial_in(place) as trial:
        await trial.start()
        assert len(list(dropped.iterdir())) == 2
    monkeypatch.setattr(accounts, "_STALE_SECONDS", -1.0)
    async with trial_in(place) as trial:
        await trial.start()
        assert list(dropped.iterdir()) == []
    assert (place / "data").is_dir()


# What is refused


@pytest.mark.parametrize("name", ["root", "no-such-user"])
def test_the_command_says_as_whom_tasks_cannot_run(place: Path, name: str) -> None:
    command = [sys.executable, "-m", "headway", "up", "--data", str(place / "data"), "--run-as", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 2
    assert f"--run-as is '{name}'; allowed: the name of a user of this machine, not root" in done.stderr


@pytest.mark.parametrize("name", ["", "no such user", "root", "x\0y"])
def test_users_that_tasks_cannot_run_as(name: str) -> None:
    with pytest.raises(InvalidInput, match="run_as"):
        account_of(name)


def test_a_server_that_is_not_roots_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HeadwayError, match="does not run as root"):
        account_of(USER)


async def test_a_ground_that_the_user_cannot_get_to_is_refused(place: Path) -> None:
    (place / "closed").mkdir(mode=0o700)
    engine = LocalEngine(place / "data" / "engine", LocalSettings(run_as=USER, ground=place / "closed" / "ground"))
    with pytest.raises(EngineError, match=f"'nobody': it cannot use .*{place.name}/closed/ground"):
        await engine.start((), print, FilesInMemory())


@pytest.mark.parametrize("what", ["a link", "another's", "open to others"])
async def test_a_ground_that_is_not_roots_alone_is_refused(place: Path, what: str) -> None:
    ground = place / "ground"
    if what == "a link":
        (place / "elsewhere").mkdir()
        ground.symlink_to(place / "elsewhere")
    else:
        ground.mkdir()
        if what == "another's":
            os.chown(ground, account_of(USER).uid, -1)
        else:
            ground.chmod(0o777)
    with pytest.raises(EngineError, match="only root can write to"):
        await engine_in(place).start((), print, FilesInMemory())
