"""Tasks that each run as the account of their job's user: what one user's tasks cannot reach of another's."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway import Client, Job, Service, Task
from headway.engines.base import Saved, Started
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.host import put_down
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.shared.accounts import account_of
from headway.engines.trial import FilesInFolder, Trial, calling
from headway.errors import HeadwayError, InvalidInput, Refused
from headway.files import Input, Output
from headway.model.outcome import Outcome

from ..accounts import lacking, two_accounts
from ..waiting import becomes, paths_below
from .conftest import Up

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture(scope="module")
def users() -> Iterator[tuple[str, str]]:
    """Two real accounts of this machine."""
    with two_accounts() as made:
        yield made


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    place = Path(tempfile.mkdtemp(prefix="headway-test-", dir="/tmp"))
    place.chmod(0o711)
    yield place
    for folder in (place / "data" / "engine" / "nodes").glob("*"):
        put_down(folder)
    shutil.rmtree(place)


def trial_in(place: Path, **terms: Any) -> Trial:
    (place / "data").mkdir(mode=0o700, exist_ok=True)
    settings = LocalSettings(run_as_owner=True, ground=place / "ground", **terms)
    return Trial(LocalEngine(place / "data" / "engine", settings), files=FilesInFolder(place / "data" / "uploads"))


@pytest.fixture
async def trial(place: Path, users: tuple[str, str]) -> AsyncIterator[Trial]:
    async with trial_in(place) as trial:
        await trial.start()
        yield trial


async def value(trial: Trial, user: str, function: Any, *args: Any, **terms: Any) -> Any:
    return await trial.value(trial.launch(calling(function, *args), account=user, **terms))


def who() -> tuple[str, list[int], list[int], int]:
    import os

    ids = [*os.getresuid(), *os.getresgid()]
    return os.environ["USER"], ids, os.getgroups(), os.getpid()


async def test_each_task_runs_as_its_users_account_and_no_process_serves_two(
    trial: Trial, users: tuple[str, str]
) -> None:
    processes: dict[int, str] = {}
    for user in (*users, *users):
        account = account_of(user)
        name, ids, groups, pid = await value(trial, user, who)
        assert (name, ids, groups) == (user, [account.uid] * 3 + [account.gid] * 3, list(account.groups))
        assert processes.setdefault(pid, user) == user
        ending = (await trial.ended(trial.command("sh", "-c", "id -un; echo $HOME", account=user))).ending
        assert ending.stdout is not None
        assert ending.stdout.tail.decode() == f"{user}\n{account.home}\n"


async def test_a_process_has_nothing_in_its_memory_of_what_others_run(trial: Trial, users: tuple[str, str]) -> None:
    """Launches of another user that the agent has, running and waiting, with their arguments and functions."""
    ann, bob = users
    secret = b"the arguments " + b"of ann"

    def wait(_: bytes) -> None:
        import time

        time.sleep(600)

    def look(halves: tuple[bytes, bytes]) -> int:
        import ctypes
        import re

        found = 0
        wanted = b"".join(halves)  # not whole in the arguments, but here and where it is copied
        with open("/proc/self/maps") as maps:
            for line in maps:
                words = line.split()
                if not words[1].startswith("rw") or (len(words) > 5 and words[5].startswith("[v")):
                    continue
                begin, end = (int(word, 16) for word in words[0].split("-"))
                found += len(re.findall(re.escape(wanted), ctypes.string_at(begin, end - begin)))
        return found

    running, waiting = (
        trial.launch(calling(wait, secret), key=(50 + number, 0, 1), account=ann, slots=(1,)) for number in range(2)
    )
    found = [
        await value(trial, bob, look, halves, slots=(0,))
        for halves in ((secret[:14], secret[14:]), (b"of nobody, ", b"nothing"))
    ]
    assert found[0] == found[1]  # what the search itself makes
    for key in (running, waiting):
        trial.engine.kill(*key)
        await trial.ended(key)


async def test_nothing_of_anothers_can_be_read(trial: Trial, users: tuple[str, str], place: Path) -> None:
    ann, bob = users
    (place / "data" / "token").write_text("the token")
    (place / "data" / "tokens.json").write_text("{}")

    def leave(given: Path, kept: Path) -> str:
        import headway

        headway.checkpoint("ann's state")
        kept.write_bytes(given.read_bytes())
        print("x" * 20_000)
        return str(given)

    uploads = place / "data" / "uploads"

    name = hashlib.sha256(b"ann's input").hexdigest()
    (uploads / name).write_bytes(b"ann's input")
    (uploads / name).chmod(0o600)
    call = calling(leave, Input(f"headway:{name}/i"), Output("headway:o"))
    ended = await trial.ended(trial.launch(call, files=True, fetches=True, account=ann, key=(7, 0, 1)))
    assert ended.ending.outcome is Outcome.SUCCEEDED, ended.ending.detail
    assert ended.ending.outputs["headway:o"] == f"headway:{name}/o"
    folder = place / "ground" / str(account_of(ann).uid) / "checkpoints"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert paths_below(folder, "0.1*")
    paths = [str(path) for path in (*paths_below(place / "data"), *paths_below(place / "ground")) if path.is_file()]
    assert any("checkpoints" in path for path in paths)
    assert any("output" in path for path in paths)
    script = 'for f in "$@"; do if cat "$f" > /dev/null 2>&1; then echo "$f"; fi; done'
    spy = (await trial.ended(trial.command("sh", "-c", script, "sh", *paths, account=bob))).ending
    assert (spy.outcome, spy.stdout) == (Outcome.SUCCEEDED, None)
    forge = f"for s in {place}/data/engine/nodes/*/socket; do test -S $s && echo found; done; test -w {place}/ground"
    spy = (await trial.ended(trial.command("sh", "-c", forge, account=bob))).ending
    assert (spy.exit_code, spy.stdout) == (1, None)
    trial.disregard(Saved, Started)


async def test_checkpoints_are_their_users_and_go_with_their_job(
    trial: Trial, users: tuple[str, str], place: Path
) -> None:
    def count(to: int) -> int:
        import headway

        number: int = headway.resumed(0)
        headway.checkpoint(number + to)
        return number

    ann, bob = users
    assert await value(trial, ann, count, 5, key=(7, 0, 1)) == 0
    assert await value(trial, ann, count, 5, key=(7, 0, 2), slots=(1,)) == 5
    assert await value(trial, bob, count, 5, key=(8, 0, 1)) == 0
    trial.disregard(Saved)
    trial.engine.forget(7)
    grounds = [place / "ground" / str(account_of(user).uid) / "checkpoints" for user in users]
    await becomes(lambda: not (grounds[0] / "7").exists())
    assert (grounds[1] / "8").exists()


@pytest.mark.parametrize("name", ["root", "no-such-user", ""])
async def test_what_has_no_account_of_its_own_is_refused_by_the_node_too(trial: Trial, name: str) -> None:
    ending = (await trial.ended(trial.command("true", account=name))).ending
    assert ending.outcome is Outcome.REFUSED
    assert f"account is '{name}'; allowed: the name of a user of this machine, not root" in ending.detail


async def test_root_runs_tasks_where_that_is_said(place: Path, users: tuple[str, str]) -> None:
    async with trial_in(place, allow_root=True) as trial:
        await trial.start()
        assert (await value(trial, "root", who))[1] == [0] * 6
        assert (await value(trial, users[0], who))[0] == users[0]


async def test_a_node_of_one_account_does_not_run_what_names_its_own(place: Path, users: tuple[str, str]) -> None:
    async with Trial(LocalEngine(place / "plain", LocalSettings())) as trial:
        await trial.start()
        ending = (await trial.ended(trial.command("true", account=users[0]))).ending
        assert (ending.outcome, "runs everything as one account" in ending.detail) == (Outcome.REFUSED, True)


def test_users_of_a_server_run_as_their_accounts(place: Path, users: tuple[str, str]) -> None:
    """From `headway token create` to the result; one user has another name than the account."""
    ann, bob = users
    server = Up(place)
    server.start("--run-as-owner", "--ground", str(place / "ground"))
    try:
        with Client(data=server.data) as root:
            tokens = {
                ann: root.create_token(ann, "submitter").token,
                "bob": root.create_token("bob", "submitter", account=bob).token,
                "nobody-here": root.create_token("nobody-here", "submitter").token,
            }
            assert {one.user: one.account for one in root.tokens()} == {
                ann: ann,
                "bob": bob,
                "nobody-here": "nobody-here",
            }
            with pytest.raises(Refused, match="user is 'root'; allowed: a user whose tasks can run as"):
                root.submit(Job("roots", [Task.command("id", "-un")]))
            assert root.submit(Job("for", [Task.command("id", "-un")], user=ann)).result(60) == [f"{ann}\n"]
        for user, account in ((ann, ann), ("bob", bob)):
            with Client(server.url, token=tokens[user]) as client:
                pry = f"id -un; cat {server.data}/* {server.data}/*/* | wc -c"
                assert client.submit(Job("pry", [Task.command("sh", "-c", pry, cwd="/")])).result(60) == [
                    f"{account}\n0\n"
                ]

                def mine() -> int:
                    return os.getuid()

                assert client.submit(Job("call", [Task(mine)])).result(60) == [account_of(account).uid]
        with (
            Client(server.url, token=tokens["nobody-here"]) as client,
            pytest.raises(Refused, match="'nobody-here' cannot be that: account is 'nobody-here'"),
        ):
            client.submit(Job("none", [Task.command("true")]))
    finally:
        server.stop()


def test_a_server_of_root_runs_tasks_of_users_who_have_an_account_as_that(place: Path, users: tuple[str, str]) -> None:
    """Without an option: root's own tasks, and those of users without an account, run as root, as they always did."""
    ann, bob = users

    def who(user: str = "") -> Job:
        return Job("who", [Task.command("id", "-un", cwd="/")], user=user)

    server = Up(place, '[[node]]\nname = "n"\nslots = 8\n')
    server.start("--ground", str(place / "ground"), "--policy", "services:batch=tempo")
    try:
        with Client(data=server.data) as root:
            tokens = {user: root.create_token(user, "submitter").token for user in (ann, "nobody-here")}
            operators = {user: root.create_token(user, "operator").token for user in ("oper", bob)}
            found = {one.user: one.account for one in root.tokens()}
            assert found == {ann: ann, bob: bob, "nobody-here": "", "oper": ""}
            assert root.submit(who()).result(60) == ["root\n"]
            assert root.submit(who(bob)).result(60) == [f"{bob}\n"]
        with Client(server.url, token=operators["oper"]) as operator:
            assert operator.submit(who(ann)).result(60) == [f"{ann}\n"]
            assert operator.submit(who("nobody-here")).result(60) == ["root\n"], "as its own tasks do"
        with Client(server.url, token=operators[bob]) as operator:
            assert operator.submit(who(ann)).result(60) == [f"{ann}\n"]
            for user in ("root", "nobody-here"):
                with pytest.raises(Refused, match=f"user is '{user}', whose tasks run as the server's own account"):
                    operator.submit(who(user))
        with (
            Client(server.url, token=tokens["nobody-here"]) as submitter,
            pytest.raises(Refused, match=f"user is '{bob}'; allowed: 'nobody-here', or none, for a submitter"),
        ):
            submitter.submit(who(bob))
        for turn in range(2):
            for user, account in ((ann, ann), ("nobody-here", "root")):
                with Client(server.url, token=tokens[user], patience=30.0) as client:
                    number, service = account_of(account, allow_root=True).uid, f"{account}s-{turn}"
                    assert client.submit(who()).result(60) == [f"{account}\n"]
                    assert client.submit(Job("call", [Task(os.getuid)])).result(60) == [number]
                    client.serve(Service(service, lambda _: os.getuid(), cwd="/", window=1.0, most=1))
                    assert client.ask(service, None) == number
            server.kill()
            server.start("--ground", str(place / "ground"))
    finally:
        server.stop()


def test_root_can_have_all_tasks_run_as_itself(place: Path, users: tuple[str, str]) -> None:
    server = Up(place)
    server.start("--no-run-as-owner")
    try:
        with Client(data=server.data) as root:
            token = root.create_token(users[0], "submitter").token
        with Client(server.url, token=token) as client:
            assert client.submit(Job("who", [Task.command("id", "-un", cwd="/")])).result(60) == ["root\n"]
    finally:
        server.stop()


def test_services_of_users_run_as_their_accounts(place: Path, users: tuple[str, str]) -> None:
    """A function, a program, and a module that only its user can read; also when an instance or the server died."""
    ann, bob = users
    account = account_of(ann)
    server = Up(place, '[[node]]\nname = "n"\nslots = 4\n')
    words = ("--run-as-owner", "--ground", str(place / "ground"), "--policy", "services:batch=tempo")
    server.start(*words)
    private = place / "private"
    private.mkdir(mode=0o700)
    (private / "handlers_of_ann.py").write_text(
        "import os\n\ndef who(_):\n    return [os.getuid(), os.getgid(), os.environ['USER'], os.getpid()]\n"
    )
    for path in (private, private / "handlers_of_ann.py"):
        os.chown(path, account.uid, account.gid)
    try:
        with Client(data=server.data) as root:
            tokens = [root.create_token(user, "submitter").token for user in users]
        with Client(server.url, token=tokens[0], patience=30.0) as of_ann:
            with Client(server.url, token=tokens[1], patience=30.0) as of_bob:
                of_ann.serve(Service("of-ann", "handlers_of_ann:who", cwd=private, window=1.0, most=1))
                of_bob.serve(Service("of-bob", lambda _: os.getuid(), cwd="/", window=1.0, most=1))
                of_bob.serve(Service("program", command=["id", "-un"], cwd="/", window=1.0, most=1))
                *ids, pid = of_ann.ask("of-ann", None)
                assert ids == [account.uid, account.gid, ann]
                assert of_bob.ask("of-bob", None) == account_of(bob).uid
                assert of_bob.ask("program", b"") == f"{bob}\n".encode()
                look = f"cat /proc/{pid}/environ {private}/* | wc -c; kill -9 {pid} 2>/dev/null || echo alive"
                spied = of_bob.submit(Job("spy", [Task.command("sh", "-c", look, cwd="/")]))
                assert spied.result(60) == ["0\nalive\n"]
                os.kill(pid, signal.SIGKILL)
                *ids, another = of_ann.ask("of-ann", None)
                assert (ids, another != pid) == ([account.uid, account.gid, ann], True)
            server.kill()
            server.start(*words)
        with Client(server.url, token=tokens[0], patience=30.0) as of_ann:
            assert of_ann.ask("of-ann", None) == [*ids, another], "the same instance: it has found the new server"
    finally:
        server.stop()


# What is refused


def test_only_root_can_start_such_a_server(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HeadwayError, match="does not run as root"):
        trial_in(place)


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(InvalidInput, match="run_as"):
        LocalSettings(run_as="nobody", run_as_owner=True)
    with pytest.raises(InvalidInput, match="allow_root"):
        LocalSettings(allow_root=True)
