"""History keeps what it needs of ended jobs, however long their rows are kept."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headway import wire
from headway.live.store import past
from headway.live.store.expiry import Walk
from headway.live.store.journal import FILE, Batch, Journal, encode
from headway.live.store.past import mean_unsuccessful, past_jobs
from headway.live.store.rows import Rows
from headway.live.store.schema import connect_to_read
from headway.live.store.verification import check_whole
from headway.live.store.vouching import row_sum
from headway.model.actions import JobStatus
from headway.model.instant import SECOND
from headway.model.job import Bag, JobSpec, Kind, Rigid, Service, TaskSpec, Workflow


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "data")) as journal:
        yield journal
    check_whole(tmp_path / "data")  # all rows were counted


def end(
    journal: Journal,
    jobs: dict[int, int],
    *,
    name: str = "",
    status: str = "succeeded",
    ran: tuple[tuple[str, int, int], ...] = (),
    spec: JobSpec | None = None,
    lasted: int | None = 1,
    words: tuple[str, ...] = (),
) -> None:
    """Jobs that ended at these instants, so many microseconds after they had started (None: they had not), whose first
    tasks ended with these words.
    """
    batch, work = Batch(), encode(wire.Commands((wire.Command(("solve", "--mesh", "3")),)))
    for number, at in jobs.items():
        terms = spec or Bag(number, name=name, user="me", estimate=9)
        batch.jobs.append((number, 1, terms.name, terms.user, 0, encode(terms), "f", work))
        batch.ended.append((status, None if lasted is None else at - lasted, at, 1, 0, False, work, number))
        for task, word in enumerate(words):
            batch.messages.append((100 * number + task, 1, number, task, at, word, 0, b""))
        for node_class, tasks, mean in ran:
            batch.statistics.append((number, node_class, at, tasks, mean, 1))  # type: ignore[arg-type]
    journal.write(batch)


def take_over(journal: Journal, most: int = 100, limit: int = 2) -> None:
    for _ in journal.past.take_over(most, limit):
        pass


def kept(journal: Journal) -> list[int]:
    return [job for (job,) in journal._db.execute("SELECT job FROM past_jobs ORDER BY job")]


def known(journal: Journal) -> list[int]:
    return [found.job.id for found in journal.past.jobs()]


def test_what_is_kept_tells_how_long_others_run(journal: Journal) -> None:
    end(journal, {1: 10}, ran=(("big", 3, 8), ("small", 1, 20)))
    before = list(journal.past.jobs())
    take_over(journal)
    assert list(journal.past.jobs()) == before
    (found,) = before
    assert (found.job, found.ended, found.took) == (Bag(1, name="", user="me", estimate=9), 10, 11)
    assert found.features == {"mesh": 3, "on big": 0.75, "on small": 0.25}


def test_it_stays_when_the_rows_of_jobs_are_deleted(journal: Journal) -> None:
    end(journal, {1: 1, 2: 2, 3: 3, 4: 9})
    assert known(journal) == [1, 2, 3, 4]
    take_over(journal)
    assert journal.expiry.drop_jobs(5, 100, Walk()) == [1, 2, 3]
    assert known(journal) == [1, 2, 3, 4]
    end(journal, {5: 12})
    assert known(journal) == [1, 2, 3, 4, 5], "also before it is taken over"


def test_those_that_end_at_one_instant_are_taken_over_in_parts(journal: Journal) -> None:
    end(journal, dict.fromkeys(range(1, 6), 7))
    steps = journal.past.take_over(100, 2)
    next(steps)
    assert kept(journal) == [1, 2]
    assert sorted(known(journal)) == [1, 2, 3, 4, 5], "each once"
    for _ in steps:
        pass
    assert kept(journal) == [1, 2, 3, 4, 5]


def test_the_next_start_goes_on_where_it_was(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        end(journal, {1: 1, 2: 2})
        take_over(journal)
    with closing(Journal(tmp_path)) as journal:
        journal._db.execute("DELETE FROM past_jobs WHERE job = 1")
        end(journal, {3: 3})
        take_over(journal)
        assert kept(journal) == [2, 3]


def test_jobs_that_tell_nothing_are_left_out(journal: Journal) -> None:
    end(journal, {1: 1}, lasted=None)
    end(journal, {2: 2}, status="failed", spec=Service(2, most=2))
    end(journal, {3: 3}, spec=Service(3, most=2))
    assert known(journal) == []
    take_over(journal)
    assert kept(journal) == []


def test_forms_of_jobs(journal: Journal) -> None:
    end(journal, {1: 1}, spec=Rigid(1, width=4, name="r", features=(("mesh", 2.0),)))
    end(journal, {2: 2}, spec=Workflow(2, graph=(TaskSpec(5), TaskSpec(6, after=(0,)))))
    take_over(journal)
    rigid, flow = [found.job for found in journal.past.jobs()]
    assert (rigid.kind, rigid.width, rigid.features) == (Kind.RIGID, 4, (("mesh", 2.0),))
    assert flow.tasks == 2


def test_programs_that_run_often_leave_room_for_others(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "OF_PROGRAM", 3)
    end(journal, {1: 1}, name="rare")
    end(journal, {number: number for number in range(2, 12)}, name="often")
    take_over(journal)
    assert kept(journal) == [1, 9, 10, 11]


def test_what_became_of_jobs_that_did_not_succeed_is_kept_too(journal: Journal) -> None:
    """Job 2 failed after 7 µs, 3 was cancelled after 5, and 4 before it started."""
    end(journal, {1: 10}, ran=(("big", 1, 8),))
    end(journal, {2: 20}, status="failed", lasted=7, words=("succeeded", "out of time", "exited"))
    end(journal, {3: 30}, status="cancelled", lasted=5, words=("cancelled",))
    end(journal, {4: 40}, status="cancelled", lasted=None)
    before = list(journal.past.jobs())
    take_over(journal)
    found = list(journal.past.jobs())
    assert found == before
    assert [(one.job.id, one.status, one.took, one.why, one.succeeded) for one in found] == [
        (1, JobStatus.SUCCEEDED, 8, "", True),
        (2, JobStatus.FAILED, 7, "out of time", False),
        (3, JobStatus.CANCELLED, 5, "", False),
        (4, JobStatus.CANCELLED, 0, "", False),
    ]
    journal._db.execute("DELETE FROM messages")
    assert journal.expiry.drop_jobs(50, 100, Walk()) == [1, 2, 3, 4]
    assert list(journal.past.jobs()) == found


def test_a_bag_that_did_not_succeed_used_what_its_tasks_did_until_then() -> None:
    """Of ten tasks four succeeded after 30 s each, or none did within 50 s."""
    bag = Bag(1, tasks=10)
    assert mean_unsuccessful(bag, 50 * SECOND, 4 * 30 * SECOND) == 12 * SECOND
    assert mean_unsuccessful(bag, 50 * SECOND, 0) == 5 * SECOND
    assert mean_unsuccessful(Rigid(1, width=8), 50 * SECOND, 0) == 50 * SECOND


def test_however_many_fail_those_that_tell_run_times_stay(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "OF_PROGRAM", 3)
    end(journal, {number: number for number in range(1, 6)})
    end(journal, {number: number for number in range(6, 20)}, status="failed")
    take_over(journal, 4)
    assert kept(journal) == [3, 4, 5]
    assert known(journal) == [3, 4, 5, 17, 18, 19]
    take_over(journal, 2)
    assert known(journal) == [4, 5, 18, 19]


def test_others_go_with_the_jobs_of_their_time(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would seem that a program had failed more often than it did."""
    monkeypatch.setattr(past, "DROPPED_AT_ONCE", 1)
    for number in range(1, 13):
        end(journal, {number: number}, name=f"n{number}", status="failed" if number % 3 == 0 else "succeeded")
    take_over(journal, 5)
    assert kept(journal) == [5, 7, 8, 10, 11]
    assert known(journal) == [5, 6, 7, 8, 9, 10, 11, 12]


def test_there_are_not_too_many_in_all(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "DROPPED_AT_ONCE", 2)
    for number in range(1, 10):
        end(journal, {number: number}, name=f"n{number}")
    take_over(journal, 4)
    assert kept(journal) == [6, 7, 8, 9]
    take_over(journal, 0)
    assert kept(journal) == []


def test_of_very_many_the_last_are_taken_over(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "BEHIND_MAX", 3)
    end(journal, {number: number for number in range(1, 10)})
    take_over(journal)
    assert kept(journal) == [7, 8, 9]


def test_a_row_that_was_changed_is_left_out_and_told(
    journal: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end(journal, {1: 1, 2: 2})
    take_over(journal)
    journal._db.execute("UPDATE past_jobs SET took = 10000 WHERE job = 1")
    with caplog.at_level(logging.WARNING):
        assert known(journal) == [2]
    assert "1 rows of past_jobs are not as they were written" in caplog.text


def test_a_job_that_failed_does_not_become_one_that_succeeded(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    end(journal, {1: 1, 2: 2, 3: 3}, status="failed")
    take_over(journal)
    journal._db.execute("UPDATE past_unsuccessful SET status = 'succeeded' WHERE job = 1")
    *values, _ = journal._db.execute("SELECT * FROM past_unsuccessful WHERE job = 2").fetchone()
    values[7] = "evaporated"
    changed = values[7], row_sum(*values)
    journal._db.execute("UPDATE past_unsuccessful SET status = ?, sum = ? WHERE job = 2", changed)
    with caplog.at_level(logging.WARNING):
        assert known(journal) == [3]
    assert "1 rows of past_unsuccessful are not as they were written" in caplog.text
    assert "1 rows of past_unsuccessful are of another version of Headway" in caplog.text


@pytest.mark.parametrize(
    ("terms", "features"),
    [
        ({"kind": 99, "id": 1, "release": 0}, {}),
        ({"id": "one", "release": 0}, {}),
        (["a", "list"], {}),
        (None, {"mesh": "fine"}),
        (None, [1, 2]),
        (b"packed otherwise", {}),
        (b"", {}),
    ],
    ids=["another kind", "another type", "another form", "text as number", "other features", "packed", "nothing"],
)
def test_a_row_of_another_version_is_left_out_and_told(
    journal: Journal, caplog: pytest.LogCaptureFixture, terms: object, features: object
) -> None:
    """It is as it was written, but what it says of the job cannot be read any more, or not yet."""
    end(journal, {1: 1, 2: 2})
    take_over(journal)
    *values, _ = journal._db.execute("SELECT * FROM past_jobs WHERE job = 1").fetchone()
    if terms is not None:
        values[5] = encode(terms) if terms else b""
    values[6] = encode(features)
    journal._db.execute("REPLACE INTO past_jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*values, row_sum(*values)))
    with caplog.at_level(logging.WARNING):
        assert known(journal) == [2]
    assert "1 rows of past_jobs are of another version of Headway, and are left out" in caplog.text


def test_nothing_is_learnt_from_the_row_of_a_job_that_was_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Journal(tmp_path)) as journal:
        end(journal, {1: 1, 2: 2})
        journal._db.execute("PRAGMA writable_schema = ON")
        journal._db.execute("DROP TRIGGER jobs_changed")
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        page = (tmp_path / FILE).read_bytes()
        assert page.count(b"--mesh") >= 2
        db.execute("PRAGMA journal_mode = DELETE")
    body = bytearray((tmp_path / FILE).read_bytes())
    place = body.index(b"--mesh")
    body[place + 2] ^= 1
    (tmp_path / FILE).write_bytes(body)
    with closing(connect_to_read(tmp_path / FILE)) as db:
        reader = past.PastTable(db, Rows(db, tmp_path / FILE), lambda: pytest.fail("nothing is written"))  # type: ignore[arg-type,return-value]
        with caplog.at_level(logging.WARNING):
            found = [reader._past_of(job) for job in (1, 2)]
    assert [one is None for one in found].count(True) == 1
    assert "nothing is learnt from job" in caplog.text


def test_a_journal_from_before_has_no_such_table(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        end(journal, {1: 1})
        journal._db.execute("DROP TABLE past_jobs")
        with closing(connect_to_read(tmp_path / FILE)) as db:
            assert [found.job.id for found in past_jobs(db, Rows(db, tmp_path / FILE))] == [1]
    check_whole(tmp_path)
    with closing(Journal(tmp_path)) as journal:
        take_over(journal)
        assert kept(journal) == [1]


def test_a_journal_from_before_knew_only_jobs_that_succeeded(tmp_path: Path) -> None:
    """Its rows count as such, before a server has opened it and after. What ends then is kept, whatever its end."""
    with closing(Journal(tmp_path)) as journal:
        end(journal, {1: 1}, status="failed")
        end(journal, {2: 2})
        take_over(journal)
        journal._db.execute("DROP TABLE past_unsuccessful")
        with closing(connect_to_read(tmp_path / FILE)) as db:
            found = list(past_jobs(db, Rows(db, tmp_path / FILE)))
    assert [(one.job.id, one.succeeded) for one in found] == [(2, True)]
    check_whole(tmp_path)
    with closing(Journal(tmp_path)) as journal:
        end(journal, {3: 3})
        end(journal, {4: 4}, status="failed")
        take_over(journal)
        assert kept(journal) == [2, 3]
        assert [one.job.id for one in journal.past.jobs() if not one.succeeded] == [4]
    check_whole(tmp_path)
