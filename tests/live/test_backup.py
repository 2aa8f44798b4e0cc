"""A backup is made while a server runs, and restored. Its jobs continue; earlier clients are refused."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from itertools import count
from pathlib import Path

import pytest

from headway import wire
from headway.client.client import Client
from headway.client.executor import HeadwayExecutor
from headway.client.job import Job, Task
from headway.errors import HeadwayError, OtherEpoch
from headway.live.store.backup import back_up, restore
from headway.live.store.journal import Journal
from headway.live.store.mark import MARK_FILE
from headway.live.store.verification import flaws
from headway.model.actions import JobStatus
from headway.wire import IncidentReport

from ..waiting import LIMIT, paths_below, until
from .conftest import ONE_NODE, Up, headway


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """A server for one test."""
    server = Up(tmp_path, ONE_NODE)
    server.start()
    yield server
    if server._process is not None and server._process.poll() is not None:
        server.start()  # a server that a test killed may have left nodes behind; a new server ends them with itself
    server.stop()


def chatter(number: int) -> int:
    print("x" * 200_000)  # more than a result contains
    return number


def test_what_a_backup_has_goes_on_and_clients_of_before_are_refused(up: Up, tmp_path: Path) -> None:
    goal = tmp_path / "backup"
    (tmp_path / "file").write_bytes(b"kept" * 1000)
    with Client(data=up.data, patience=LIMIT) as old, HeadwayExecutor(Client(data=up.data)) as executor:
        assert old.submit(Job("before", [Task(chatter, 1), Task(chatter, 2)])).result(LIMIT) == [1, 2]
        url = old.upload(tmp_path / "file")
        held = old.submit(Job("held", [Task(pow, 2, 5)], release=3600.0))
        assert held.job
        made = headway("backup", goal, "--data", up.data)
        assert made.returncode == 0, made.stderr
        assert headway("check", goal).returncode == 0
        lost = old.submit(Job("lost", [Task(pow, 2, 6)], release=3600.0))
        call = executor.submit(time.sleep, 3600)
        until(lambda: {"lost", "executor"} <= {job.name for job in old.jobs()})
        up.kill()
        put = headway("restore", goal, up.data)
        assert put.returncode == 0, put.stderr
        assert "Restart the clients that used it before." in put.stdout
        up.start()
        with Client(data=up.data) as new:
            other = new.submit(Job("other", [Task(pow, 2, 7)], release=3600.0))
            assert other.job > lost.job, "the number of a job that is waited for was given to another one"
            for waiter in (held, lost, call):
                with pytest.raises(OtherEpoch, match="restored from a backup"):
                    waiter.result(LIMIT)
            with pytest.raises(OtherEpoch):
                old.cancel(other.job)
            with pytest.raises(OtherEpoch):
                old.submit(Job("more", [Task(pow, 2, 7)])).result(LIMIT)
            assert {job.name: job.status for job in new.jobs()} == {
                "before": JobStatus.SUCCEEDED,
                "held": JobStatus.HELD,
                "other": JobStatus.HELD,
            }
            assert [result.ending.stdout[-2:] for result in new.results(1)] == [b"x\n"] * 2
            assert Path(new.download(url, tmp_path / "again")).read_bytes() == b"kept" * 1000
            assert new.cancel(held.job, other.job) == 2
    assert headway("check", up.data).returncode == 0


def test_a_backup_is_restored_elsewhere(up: Up, tmp_path: Path) -> None:
    goal, data = tmp_path / "backup", tmp_path / "elsewhere"
    with Client(data=up.data) as client:
        client.submit(Job("before", [Task(chatter, 1)])).result(LIMIT)
    back_up(up.data, goal)
    up.stop()
    transaction, aside = restore(goal, data)
    assert transaction > 0
    assert aside is None
    with closing(Journal(data)) as journal:
        (body,) = journal.results([wire.TaskRange(1)], 1 << 20)[0]
        assert str(data).encode() in body
        assert str(up.data).encode() + b"/" not in body
    assert headway("check", data).returncode == 0
    (output,) = paths_below(data / "engine", "*.out")
    content = output.read_bytes()
    output.write_bytes(content.replace(b"x", b"y", 1))
    said = headway("check", data)
    assert said.returncode == 1
    assert said.stdout == f"{output}: it was changed: its bytes have another SHA-256 (output of task 0 of job 1)\n"
    output.unlink()
    said = headway("check", data, "--json")
    assert said.returncode == 1
    (flaw,) = json.loads(said.stdout)["flaws"]
    assert flaw == {"file": str(output.relative_to(data)), "what": "it is missing (output of task 0 of job 1)"}


@pytest.mark.parametrize("how", ["moved", "by another name"])
def test_output_is_found_in_a_data_directory_with_another_path(up: Up, tmp_path: Path, how: str) -> None:
    there = tmp_path / "there"
    with Client(data=up.data) as client:
        client.submit(Job("before", [Task(chatter, 1)])).result(LIMIT)
    up.stop()
    if how == "moved":
        up.data.rename(there)
    else:
        there.symlink_to(up.data)
    assert headway("check", there).returncode == 0
    up.data = there
    up.start()
    with Client(data=there) as client:
        whole = BytesIO()
        client.output(1, whole)
        assert whole.getvalue() == b"x" * 200_000 + b"\n"
        back_up(there, tmp_path / "backup")
        assert client.clear(1) == 1
        assert not paths_below(there, "*.out")
    assert len(paths_below(tmp_path / "backup", "*.out")) == 1


def test_a_restore_that_was_cut_off_is_made_again_and_knows_the_numbers(
    up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal = tmp_path / "backup"
    with Client(data=up.data) as client:
        client.submit(Job("before", [Task(pow, 2, 5)])).result(LIMIT)
        back_up(up.data, goal)
        last = [client.submit(Job("after", [Task(pow, 2, 6)])) for _ in range(5)][-1]
        last.result(LIMIT)
    up.stop()
    names = ("rename", "replace", "unlink", "mkdir")

    class CutOff(BaseException):
        """An end as by `kill -9`: nothing continues, and nothing is tidied up."""

    def cut_off(after: int) -> bool:
        """Restore, but stop after this many changes of a folder. Returns whether it was cut off."""
        left = iter(range(after))

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def change(*words: object, **more: object) -> object:
                if next(left, None) is None:
                    raise CutOff
                return real(*words, **more)

            return change

        with monkeypatch.context() as patch:
            for name in names:
                patch.setattr(Path, name, counted(getattr(Path, name)))
            try:
                restore(goal, data)
            except CutOff:
                return True
        return False

    data = tmp_path / "cut off"
    for after in count():
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(up.data, data, ignore=shutil.ignore_patterns("engine"))
        if not cut_off(after):
            break
        restore(goal, data)
        assert list(flaws(data)) == [], after
        with closing(Journal(data)) as journal:
            assert journal.last()[2] >= last.job, after
    assert after > 10


def test_what_a_full_disk_does_not_take_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, goal = tmp_path / "a", tmp_path / "backup"
    Journal(data).close()
    (data / "token").write_text("t\n")
    back_up(data, goal)
    (data / MARK_FILE).write_bytes(b"damaged")
    before = {path: path.read_bytes() for path in paths_below(data)}

    def full(source: object, copy: object, *_: object) -> None:
        if isinstance(copy, Path):
            copy.write_bytes(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("copyfileobj", "copy2"):
        monkeypatch.setattr(shutil, name, full)
    with pytest.raises(HeadwayError, match="No space left on device"):
        Journal(data, accept_loss=True)
    with pytest.raises(HeadwayError, match="No space left on device"):
        restore(goal, data)
    lock = data / "lock"
    assert {path: path.read_bytes() for path in paths_below(data) if path != lock} == {
        path: content for path, content in before.items() if path != lock
    }


def test_a_damaged_backup_is_not_restored(up: Up, tmp_path: Path) -> None:
    goal = tmp_path / "backup"
    with Client(data=up.data) as client:
        client.submit(Job("before", [Task(chatter, 1)])).result(LIMIT)
    back_up(up.data, goal)
    with pytest.raises(HeadwayError, match="is there already"):
        back_up(up.data, goal)
    with pytest.raises(HeadwayError, match=f"in use by the process {up.pid}"):
        restore(goal, up.data)
    up.stop()
    (output,) = paths_below(goal, "*.out")
    content = bytearray(output.read_bytes())
    content[1000] ^= 1
    output.write_bytes(content)
    with pytest.raises(HeadwayError, match=r"\.out: it was changed: its bytes have another SHA-256"):
        restore(goal, up.data)
    with pytest.raises(HeadwayError, match="is no backup"):
        restore(up.data, tmp_path / "new")
    assert not os.path.exists(tmp_path / "new")


def test_a_start_tells_of_files_that_are_not_as_they_were(up: Up) -> None:
    with Client(data=up.data) as client:
        client.submit(Job("before", [Task(chatter, 1), Task(chatter, 2)])).result(LIMIT)
    up.stop()
    first, second = sorted(paths_below(up.data / "engine", "*.out"))
    first.write_bytes(first.read_bytes()[:-1])
    second.unlink()
    up.start()
    with Client(data=up.data) as client:

        def found() -> list[IncidentReport]:
            return [one for one in client.incidents() if one.kind == "file_damaged"]

        until(lambda: len(found()) == 2)
        assert {(one.subject, one.detail.split(":")[0].split(" (")[0]) for one in found()} == {
            (str(first), "it was changed"),
            (str(second), "it is missing"),
        }


def test_a_server_does_not_start_on_a_damaged_journal_and_says_what_to_do(up: Up) -> None:
    with Client(data=up.data) as client:
        assert client.submit(Job("before", [Task(pow, 2, number) for number in range(9)])).result(LIMIT)[-1] == 256
        up.kill()
        (up.data / "journal.sqlite-wal").unlink()
        refused = headway("up", "--data", up.data)
        assert refused.returncode == 2
        assert "Traceback" not in refused.stderr
        assert "journal.sqlite-wal: the end of the journal is missing: transactions" in refused.stderr
        assert "jobs 1" in refused.stderr
        assert f"`headway up --data {up.data} --accept-loss`" in refused.stderr
        before = time.time()
        up.start("--accept-loss")
        with pytest.raises(OtherEpoch):
            client.job(1)
    with Client(data=up.data) as client:
        told = [one for one in client.incidents() if one.kind == "loss_accepted"]
        assert told
        assert all(before <= one.at <= time.time() for one in told)
        assert client.submit(Job("after", [Task(pow, 2, 3)])).result(LIMIT) == [8]
