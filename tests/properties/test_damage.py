"""A journal is damaged in every conceivable way. Either the damage is reported, or nothing is lost; no tracebacks."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway import wire
from headway.errors import Damaged, HeadwayError
from headway.live.driver import Driver
from headway.live.settings import DriverSettings
from headway.live.store.journal import FILE, Journal
from headway.live.store.mark import MARK_FILE
from headway.live.store.schema import connect_to_read
from headway.live.store.verification import NAMED_RANGES, flaws
from headway.live.store.vouching import GUARDED
from headway.model.actions import JobStatus
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission

from ..effort import seeds

NODES = (node("a", slots=3),)
TOLD = ("events", "jobs", "messages", "blobs", "submissions", "clients", "uploads", "outputs", "acknowledged")
SEEDS = seeds([*range(40), 1195], range(40, 1000))


async def settle() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def work(driver: Driver, engine: FakeEngine, most: int) -> None:
    """End running tasks, at most this many."""
    for _ in range(most):
        await settle()
        if not engine.running:
            return
        key = min(engine.running)
        engine.end(*key, result=b"%d.%d" % key[:2] * (1 if key[1] % 5 else 3000))
    await settle()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders: `early` and `crashed` after kill -9, `closed` after a stop in order. Half of the jobs have ended."""
    home = tmp_path_factory.mktemp("stored")

    async def scenario() -> None:
        data = home / "data"
        with closing(Journal(data)) as journal:
            engine = FakeEngine()
            driver = Driver(journal, engine, ManualClock(1000), find, DriverSettings(snapshot_every=40))
            await driver.start(NODES)
            for number in range(12):
                tasks = 1 + number % 7
                offer = submission(new_job(tasks=tasks), new_job(tasks=1), key=f"key {number}", client=f"c{number % 3}")
                submitted = asyncio.create_task(driver.submit("me", offer))
                await work(driver, engine, 4)
                await submitted
                if number == 7:
                    shutil.copytree(data, home / "early")
            shutil.copytree(data, home / "crashed")
            assert driver.open
            assert len(driver.open) < 24
        shutil.copytree(data, home / "closed")

    asyncio.run(scenario())
    for name in ("early", "crashed", "closed"):
        (home / name / "token").write_text("t\n")
        (home / name / "url").write_text("u\n")
    return home


def rows(folder: Path) -> dict[str, set[tuple[Any, ...]]]:
    with closing(connect_to_read(folder / FILE)) as db:
        found = {table: set(db.execute(f"SELECT {GUARDED[table]} FROM {table}")) for table in TOLD}
        found["results"] = set(db.execute("SELECT job, task, result FROM messages WHERE result IS NOT NULL"))
        return found


def flip(path: Path, dice: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(dice.choice((1, 1, 5))):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


def cut(path: Path, dice: random.Random) -> None:
    with open(path, "r+b") as file:
        file.truncate(dice.randrange(path.stat().st_size))


def blank(path: Path, dice: random.Random) -> None:
    with open(path, "r+b") as file:
        file.seek(dice.randrange(path.stat().st_size) // 4096 * 4096)
        file.write(dice.choice((bytes(4096), dice.randbytes(4096))))


def delete(path: Path, dice: random.Random) -> None:
    path.unlink()


def empty(path: Path, dice: random.Random) -> None:
    path.write_bytes(b"")


WAYS: tuple[Callable[[Path, random.Random], None], ...] = (flip, flip, cut, blank, delete, empty)
WHAT = (FILE, FILE, FILE, FILE, f"{FILE}-wal", f"{FILE}-wal", f"{FILE}-shm", MARK_FILE, "token", "lock", "url")


def damage(stored: Path, data: Path, dice: random.Random) -> str:
    """Copy a folder and damage it. Returns what was done."""
    kind = dice.choice(("crashed", "crashed", "closed"))
    shutil.copytree(stored / kind, data)
    if dice.random() < 0.1:  # the journal of an earlier day
        for side in (FILE, f"{FILE}-wal"):
            shutil.copy(stored / "early" / side, data / side)
        return f"{kind}: an earlier journal"
    if dice.random() < 0.1:  # a page of an earlier day: each of its rows is valid
        with open(data / FILE, "r+b") as file, open(stored / "closed" / FILE, "rb") as other:
            place = dice.randrange(data.joinpath(FILE).stat().st_size // 4096) * 4096
            other.seek(place)
            file.seek(place)
            file.write(other.read(4096))
        return f"{kind}: a page of another day"
    there = [name for name in WHAT if (data / name).exists() and (data / name).stat().st_size]
    name, way = dice.choice(there), dice.choice(WAYS)
    way(data / name, dice)
    return f"{kind}: {way.__name__} {name}"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_journal_is_whole_or_says_what_it_lacks(stored: Path, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    data = tmp_path / "data"
    done = damage(stored, data, dice)
    right = rows(stored / "closed")
    refusal = None
    try:
        Journal(data).close()
    except HeadwayError as error:
        refusal = error
    if refusal is None:
        assert rows(data) == right, f"{done}: changed without a word"
        assert list(flaws(data)) == [], done
        return
    assert str(data) in str(refusal.args[0]), done
    assert "--accept-loss" in refusal.hint, done
    said = list(flaws(data))
    assert said or not (data / FILE).exists() or not (data / FILE).stat().st_size, done
    epochs = set[str]()
    for accept_loss in (True, False):
        with closing(Journal(data, accept_loss=accept_loss)) as journal:
            epochs.add(journal.epoch)
            assert bool(journal.given_up) is accept_loss, done
            asyncio.run(to_the_end(journal, right if accept_loss else {}))
        assert list(flaws(data)) == [], done
    (kept,) = data.glob("damaged-*")
    assert (kept / "given-up.txt").read_text(), done
    assert len(epochs) == 1
    with closing(connect_to_read(stored / "closed" / FILE)) as db:
        assert db.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()[0] not in epochs


async def to_the_end(journal: Journal, right: dict[str, set[tuple[Any, ...]]]) -> None:
    """Check that what was whole is unchanged and continues, and that no number is given twice."""
    engine = FakeEngine()
    driver = Driver(journal, engine, ManualClock(2000), find)
    before = {row.id: row for row in journal.jobs()}
    specs = {row[0] for row in right["jobs"]} if right else {*before}
    assert before.keys() <= specs
    kept, _ = journal.results([wire.TaskRange(job) for job in sorted(before)], 1 << 30)
    results = {(job, task): body for job, task, body in right.get("results", ())}
    for body in kept if right else ():
        found = msgspec.msgpack.decode(body, type=wire.TaskResult)
        assert body == results[found.job, found.task]
    await driver.start(NODES)
    driver.core.check()
    last = journal.last()
    answer = await driver.submit("me", submission(new_job(), client="new"))
    assert answer.jobs[0] > max(specs)
    assert answer.cursor >= max((row[0] for row in right.get("messages", ())), default=0)
    await work(driver, engine, 300)
    assert not driver.open
    assert journal.last() > last
    for row in journal.jobs():
        assert row.status in (JobStatus.SUCCEEDED, JobStatus.CANCELLED)
        if row.id in before and before[row.id].ended:
            assert row == before[row.id]
    assert {*kept} <= {*journal.results([wire.TaskRange(job) for job in sorted(before)], 1 << 30)[0]}
    await driver.stop()


def test_a_transaction_that_the_mark_lags_behind_is_not_lost(stored: Path, tmp_path: Path) -> None:
    """As after a loss of power: the mark may be of any earlier time."""
    data = tmp_path / "data"
    shutil.copytree(stored / "crashed", data)
    shutil.copy(stored / "early" / MARK_FILE, data / MARK_FILE)
    with closing(Journal(data)):
        pass
    assert rows(data) == rows(stored / "closed")


def test_another_journal_beside_the_mark_is_noticed(stored: Path, tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    shutil.copytree(stored / "closed", data)
    Journal(other).close()
    shutil.copy(other / MARK_FILE, data / MARK_FILE)
    with pytest.raises(HeadwayError, match="accepted: it belongs to another journal"):
        Journal(data)


def test_what_is_missing_is_named(stored: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(stored / "crashed", data)
    for side in (FILE, f"{FILE}-wal"):
        shutil.copy(stored / "early" / side, data / side)
    with closing(connect_to_read(stored / "early" / FILE)) as db:
        first = [db.execute(f"SELECT max({column}) FROM {table}").fetchone()[0] for table, column in NUMBERS]
    with closing(connect_to_read(stored / "closed" / FILE)) as db:
        last = [db.execute(f"SELECT max({column}) FROM {table}").fetchone()[0] for table, column in NUMBERS]
    lost = ", ".join(f"{table} {a + 1} to {b}" for (table, _), a, b in zip(NUMBERS, first, last, strict=True))
    with pytest.raises(HeadwayError, match=f"journal.sqlite-wal: the end of the journal is missing: .*, {lost}. "):
        Journal(data)


NUMBERS = (("events", "seq"), ("messages", "number"), ("jobs", "id"))


def test_a_changed_row_is_named_at_the_start_and_never_handed_out(stored: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(stored / "closed", data)
    with closing(Journal(data)) as journal:
        path, wanted = data / FILE, [wire.TaskRange(3, 1, 2)]  # a short result: within one page
        good, _ = journal.results(wanted, 1 << 20)
        journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        content = path.read_bytes()
        assert content.count(good[0]) == 1
        path.write_bytes(content.replace(good[0], good[0].replace(b"3.1", b"3.9")))
        journal._db.execute("PRAGMA cache_size = 0")
        journal._db.execute("PRAGMA shrink_memory")
        with pytest.raises(Damaged, match=r"the row of messages with number \d+ is not as it was written"):
            journal.results(wanted, 1 << 20)
        with pytest.raises(Damaged):
            journal.messages(0, 1000, result_max=1 << 20)
    with pytest.raises(HeadwayError, match=r"1 row of messages changed: number \d+"):
        Journal(data)


def change(data: Path, statement: str, *values: Any) -> None:
    """Change rows without their checksums, as only damage can."""
    with closing(sqlite3.connect(data / FILE)) as db:
        for name in ("row_sum", "body_sum"):
            db.create_function(name, -1, lambda *_: 0, deterministic=True)
        for (trigger,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {trigger}")
        assert db.execute(statement, values).rowcount > 0
        db.commit()


def test_a_text_that_is_none_any_more_costs_its_row_alone(stored: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(stored / "closed", data)
    content = (data / FILE).read_bytes()
    assert b"key 3" in content
    (data / FILE).write_bytes(content.replace(b"key 3", b"key \xff"))
    Journal(data, accept_loss=True).close()
    kept = {row for row in rows(stored / "closed")["submissions"] if "key 3" not in row}
    assert rows(data)["submissions"] == kept


def test_texts_that_are_none_any_more_cost_nothing_between_them(stored: Path, tmp_path: Path) -> None:
    """Reading from both ends would not find what is between them."""
    data = tmp_path / "data"
    shutil.copytree(stored / "closed", data)
    content = (data / FILE).read_bytes()
    for key in (b"key 3", b"key 7"):
        content = content.replace(key, key[:-1] + b"\xff")
    (data / FILE).write_bytes(content)
    Journal(data, accept_loss=True).close()
    before = rows(stored / "closed")["submissions"]
    assert rows(data)["submissions"] == {row for row in before if not {"key 3", "key 7"} & {*row}}
    assert any("key 5" in row for row in before)


def test_what_lies_behind_a_page_that_cannot_be_read_is_kept(stored: Path, tmp_path: Path) -> None:
    """One page is made unreadable in each try. Every message that can still be read by itself is kept."""
    content = (stored / "closed" / FILE).read_bytes()
    numbers = [row[0] for row in sorted(rows(stored / "closed")["messages"])]
    tried = 0
    for start in range(4096, len(content), 4096):
        data = tmp_path / f"data{start}"
        shutil.copytree(stored / "closed", data)
        (data / FILE).write_bytes(content[:start] + bytes(8) + content[start + 8 :])
        readable = set[int]()
        with closing(sqlite3.connect(data / FILE)) as db:
            for number in numbers:
                with suppress(sqlite3.DatabaseError):
                    db.execute("SELECT * FROM messages NOT INDEXED WHERE number = ?", (number,)).fetchall()
                    readable.add(number)
        if 0 < len(readable) < len(numbers):
            tried += 1
            Journal(data, accept_loss=True).close()
            assert {row[0] for row in rows(data)["messages"]} == readable, start
    assert tried > 3


def test_numbers_are_known_from_the_chain_where_the_mark_and_the_last_rows_are_lost(
    stored: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(stored / "closed", data)
    last = max(row[0] for row in rows(data)["jobs"])
    change(data, "UPDATE jobs SET spec = x'00' WHERE id = ?", last)
    (data / MARK_FILE).unlink()
    with closing(Journal(data, accept_loss=True)) as journal:
        assert journal.last()[2] == last
        assert journal.job(last) is None


def test_a_job_without_its_row_is_given_up_and_the_others_go_on(stored: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(stored / "closed", data)
    with closing(connect_to_read(data / FILE)) as db:
        are_open = [job for (job,) in db.execute("SELECT id FROM jobs WHERE ended IS NULL ORDER BY id")]
    assert len(are_open) > 2
    change(data, "UPDATE jobs SET user = 'nobody' WHERE id = ?", are_open[1])
    with closing(Journal(data, accept_loss=True)) as journal:
        asyncio.run(to_the_end(journal, {}))
        ended = {row.id: row.status for row in journal.jobs()}
    assert are_open[1] not in ended
    assert {ended[job] for job in are_open if job != are_open[1]} == {JobStatus.SUCCEEDED}


def test_a_mark_of_a_future_that_a_copy_has_not_had_is_noticed(tmp_path: Path) -> None:
    """Two servers continued from the same data directory, and the mark of one is beside the journal of the other."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with closing(Journal(ours)) as journal:
        journal.note("before", 1)
    shutil.copytree(ours, theirs)
    for folder in (ours, theirs):
        with closing(Journal(folder)) as journal:
            journal.note(folder.name, 1)
    shutil.copy(theirs / MARK_FILE, ours / MARK_FILE)
    with pytest.raises(HeadwayError, match="it belongs to another story"):
        Journal(ours)


def test_what_is_missing_is_counted_from_the_first_where_all_of_it_is(tmp_path: Path) -> None:
    data, empty = tmp_path / "data", tmp_path / "empty"

    async def scenario() -> None:
        with closing(Journal(data)) as journal:
            engine = FakeEngine()
            driver = Driver(journal, engine, ManualClock(1000), find)
            await driver.start(NODES)
            shutil.copytree(data, empty)
            await driver.submit("me", submission(new_job()))
            await work(driver, engine, 1)
            await driver.stop()

    asyncio.run(scenario())
    shutil.copy(data / MARK_FILE, empty / MARK_FILE)
    with pytest.raises(HeadwayError, match=r", messages 1 to 2, jobs 1\."):
        Journal(empty)


@pytest.mark.parametrize("changed", [NAMED_RANGES, NAMED_RANGES + 2])
def test_of_many_rows_that_were_changed_some_are_named_and_the_rest_counted(
    stored: Path, tmp_path: Path, changed: int
) -> None:
    data = tmp_path / "data"
    shutil.copytree(stored / "closed", data)
    with closing(connect_to_read(data / FILE)) as db:
        numbers = [seq for (seq,) in db.execute("SELECT seq FROM events ORDER BY seq LIMIT ?", (changed,))]
    change(data, "UPDATE events SET kind = 'Woke' WHERE seq <= ?", numbers[-1])
    named = ", ".join(map(str, numbers[:NAMED_RANGES])) + (" and 2 more" if changed > NAMED_RANGES else "")
    assert f"{changed} rows of events changed: seq {named}" in [flaw.what for flaw in flaws(data)]


def test_another_program_cannot_write_by_accident(stored: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(stored / "closed", data)
    with closing(sqlite3.connect(data / FILE)) as db, pytest.raises(sqlite3.OperationalError, match="no such function"):
        db.execute("DELETE FROM jobs")
