"""Data directories of older formats are converted when they are opened. `journals` has a small one of each."""

from __future__ import annotations

import asyncio
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from headway import wire
from headway.errors import HeadwayError
from headway.live.driver import Driver
from headway.live.store.conversion import _free
from headway.live.store.history import history
from headway.live.store.journal import FILE, FORMAT, Journal
from headway.live.store.verification import flaws
from headway.model.actions import JobStatus
from headway.model.events import Outcome
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock

KEPT = Path(__file__).with_name("journals")
OLD = range(1, FORMAT)


def unpacked(folder: Path, old: int) -> Path:
    """The data directory of a server of that format: one that ended in order, or (format 2) was killed."""
    with tarfile.open(KEPT / f"format-{old}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def check_places(journal: Journal) -> None:
    """Each slot of each node of the stored states has its number."""
    bodies = journal._db.execute("SELECT body FROM snapshots").fetchall()
    nodes = [node for (body,) in bodies for node in msgspec.json.decode(body)["nodes"]]
    assert nodes
    for node in nodes:
        assert "first" not in node
        assert len(node["places"]) == node["spec"]["slots"]


@pytest.mark.parametrize("old", OLD)
def test_an_older_format_is_converted_and_goes_on(tmp_path: Path, old: int) -> None:
    unpacked(tmp_path, old)

    async def scenario() -> None:
        with closing(Journal(tmp_path)) as journal:
            assert [(row.id, row.spec.name, row.status, row.done, row.failed) for row in journal.jobs()] == [
                (1, "roots", JobStatus.SUCCEEDED, 5, 0),
                (2, "fails", JobStatus.FAILED, 1, 1),
                (3, "long", None, None, None),
            ]
            assert journal.last()[1:] == (10, 3)
            results = [
                msgspec.msgpack.decode(body, type=wire.TaskResult)
                for body in journal.results([wire.TaskRange(job) for job in (1, 2, 3)], 1 << 20)[0]
            ]
            assert [(result.job, result.task) for result in results] == [
                *((1, task) for task in range(5)),
                (2, 0),
                *((3, task) for task in (1, 2)),
            ]
            assert results[5].ending.stdout == b"no\n"
            engine = FakeEngine()
            driver = Driver(journal, engine, ManualClock(10**12), find)
            await driver.start()
            await asyncio.sleep(0)
            # In the one that continued, the task without a result is redone.
            assert [(key[0], key[1]) for key in engine.running] == [(3, 0)]
            engine.end(*next(iter(engine.running)), Outcome.SUCCEEDED)
            for _ in range(4):
                await asyncio.sleep(0)
            assert not driver.open
            assert [row.number for row in journal.messages(10, 5).rows] == [11, 12]
            await driver.stop()

    asyncio.run(scenario())
    assert list(flaws(tmp_path)) == []


@pytest.mark.parametrize("old", OLD)
def test_what_was_converted_is_kept_as_it_was(tmp_path: Path, old: int) -> None:
    unpacked(tmp_path, old)
    query = "SELECT seq, at, kind, body FROM events ORDER BY seq"
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        before = db.execute(query).fetchall()
    Journal(tmp_path).close()
    Journal(tmp_path).close()  # once is enough
    assert [path.name for path in tmp_path.glob("*.format-*")] == [f"journal.format-{old}.sqlite"]
    with closing(sqlite3.connect(tmp_path / f"journal.format-{old}.sqlite")) as db:
        assert db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone() == (old,)
        assert db.execute(query).fetchall() == before
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        assert db.execute(query).fetchall()[: len(before)] == before


@pytest.mark.parametrize("old", OLD)
def test_an_older_format_that_is_damaged_is_not_converted_but_on_request(tmp_path: Path, old: int) -> None:
    unpacked(tmp_path, old)
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'clients'").fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open(tmp_path / FILE, "r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(HeadwayError, match="is damaged") as refused:
        Journal(tmp_path)
    assert "--accept-loss" in refused.value.hint
    assert (tmp_path / FILE).read_bytes() == before
    with closing(Journal(tmp_path, accept_loss=True)) as journal:
        assert [row.id for row in journal.jobs()] == [1, 2, 3]
        assert journal.given_up
        if old == 1:
            check_places(journal)


def test_without_room_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked(tmp_path, 1)
    (tmp_path / ".accepted").mkdir()  # the mark cannot be made
    with pytest.raises(HeadwayError, match="cannot be converted"):
        Journal(tmp_path)
    (tmp_path / ".accepted").rmdir()
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        assert db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone() == (1,)
    Journal(tmp_path).close()


def test_slots_of_nodes_of_the_first_format_have_numbers(tmp_path: Path) -> None:
    with closing(Journal(unpacked(tmp_path, 1))) as journal:
        check_places(journal)


def test_each_old_file_that_is_kept_has_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "journal-format-1.sqlite"
    for name in ("journal-format-1", "journal-format-1-2", "journal-format-1-3"):
        assert _free(path).stem == name
        (tmp_path / f"{name}.sqlite").touch()


@pytest.mark.parametrize("old", OLD)
def test_what_happened_is_read_of_an_older_format_too(tmp_path: Path, old: int) -> None:
    unpacked(tmp_path, old)
    before = history(tmp_path, find)
    Journal(tmp_path).close()
    after = history(tmp_path, find)
    assert list(before.label) == list(after.label) == [1, 2, 3]
    assert list(before.end) == list(after.end)


def test_what_was_changed_is_not_told_as_what_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked(tmp_path, 1)
    Journal(tmp_path).close()
    monkeypatch.setattr("headway.live.store.rows.row_sum", lambda *values: 0)
    with pytest.raises(HeadwayError, match="the row of snapshots with seq 0 is not as it was written"):
        history(tmp_path, find)
