"""What the journal deletes, in small parts, and what it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from headway import wire
from headway.live.store.journal import Batch, Journal, JournalFull, encode
from headway.live.store.retained import AFTER_ALL_TASKS, SIZE_MAX
from headway.model.events import Outcome, Woke
from headway.testing import job

from ...rows import event_row


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "data")) as journal:
        yield journal


class Rows:
    """Rows to be written, with message numbers in order."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.batch = Batch()
        self.number = journal.last()[1]

    def job(self, number: int, tasks: int = 0, *, ended: int | None = None, functions: str = "") -> None:
        work = encode(wire.Commands((wire.Command(("true",)),)))
        self.batch.jobs.append((number, 1, "", "me", 0, encode(job(number)), functions, work))
        for task in range(tasks):
            self.result(number, task)
        if ended is not None:
            self.end(number, ended)

    def result(self, job: int, task: int, **ending: str) -> None:
        self.number += 1
        body = encode(wire.TaskResult(job, task, 1, wire.TaskEnding(Outcome.SUCCEEDED, **ending)))
        self.batch.messages.append((self.number, 1, job, task, self.number, "succeeded", 100 * len(ending), body))

    def end(self, job: int, at: int) -> None:
        self.number += 1
        self.batch.messages.append((self.number, 1, job, None, at, "succeeded", 0, None))
        self.batch.ended.append(("succeeded", 0, at, 0, 0, False, None, job))

    def acknowledge(
        self, job: int, first: int = 0, last: int = AFTER_ALL_TASKS, *, at: int = 0, number: int | None = None
    ) -> None:
        self.batch.acknowledged.append((job, first, last, self.number if number is None else number, at))

    def write(self) -> None:
        self.journal.write(self.batch)
        self.batch = Batch()


@pytest.fixture
def rows(journal: Journal) -> Rows:
    return Rows(journal)


def kept(journal: Journal, job: int) -> list[int]:
    """Tasks of a job whose results are kept."""
    found, _ = journal.results([wire.TaskRange(job)], 1 << 20)
    return [msgspec.msgpack.decode(body, type=wire.TaskResult).task for body in found]


def told(journal: Journal) -> list[tuple[int, int | None]]:
    """Job and task of every message."""
    return [(row.job, row.task) for row in journal.messages(0, 1000).rows]


def test_only_what_was_acknowledged_long_enough_ago_goes(journal: Journal, rows: Rows) -> None:
    for number in (1, 2, 3):
        rows.job(number, 2, ended=9)
    rows.acknowledge(1, at=10)
    rows.acknowledge(2, at=20)
    rows.write()
    assert journal.retained.oldest() == 10
    journal.retained.clear_acknowledged(9, 100)
    assert len(told(journal)) == 9
    journal.retained.clear_acknowledged(10, 100)
    assert told(journal) == [(2, 0), (2, 1), (2, None), (3, 0), (3, 1), (3, None)]
    assert journal.retained.oldest() == 20
    journal.retained.clear_acknowledged(10**9, 100)
    assert told(journal) == [(3, 0), (3, 1), (3, None)]
    assert journal.retained.oldest() is None


def test_it_goes_in_small_parts(journal: Journal, rows: Rows) -> None:
    rows.job(1, 10, ended=9)
    rows.job(2, 3, ended=9)
    rows.acknowledge(1)
    rows.acknowledge(2)
    rows.write()
    left = [len(told(journal))]
    while journal.retained.oldest() is not None:
        journal.retained.clear_acknowledged(0, 4)
        left.append(len(told(journal)))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 5
    assert len(left) > 4


def test_what_came_after_the_acknowledgement_stays(journal: Journal, rows: Rows) -> None:
    """If a whole job is acknowledged while it runs, only results that were reported by then are meant."""
    rows.job(1, 2)
    rows.acknowledge(1)
    rows.result(1, 2)
    rows.end(1, 9)
    rows.write()
    journal.retained.clear_acknowledged(0, 100)
    assert kept(journal, 1) == [2]
    assert told(journal) == [(1, 2), (1, None)]
    rows.acknowledge(1)
    rows.write()
    journal.retained.clear_acknowledged(0, 100)
    assert told(journal) == []


def test_results_of_an_open_job_go_but_what_is_done_is_counted(journal: Journal, rows: Rows) -> None:
    rows.job(1, 5)
    rows.acknowledge(1, 1, 3)
    rows.write()
    journal.retained.clear_acknowledged(0, 100)
    assert kept(journal, 1) == [0, 3, 4]
    assert journal.progress() == {1: (5, 0, 0)}
    assert journal.retained.oldest() is None
    rows.end(1, 9)
    rows.acknowledge(1)
    rows.write()
    journal.retained.clear_acknowledged(0, 100)
    assert told(journal) == []


def test_results_that_other_tasks_may_still_get_are_looked_at_again_later(journal: Journal, rows: Rows) -> None:
    for number in (1, 2):
        rows.job(number, 3)
        rows.acknowledge(number)
    rows.write()
    journal.retained.clear_acknowledged(0, 100, 7, lambda number: number == 1)
    assert (kept(journal, 1), kept(journal, 2)) == ([0, 1, 2], [])
    assert journal.retained.oldest() == 7  # as if it had been acknowledged then
    journal.retained.clear_acknowledged(7, 100, 9)
    assert kept(journal, 1) == []


def test_paths_of_output_files_are_told(journal: Journal, rows: Rows) -> None:
    rows.job(1)
    rows.result(1, 0, stdout_path="/out", stderr_path="/err")
    rows.result(1, 1, stdout_path="/other")
    rows.end(1, 9)
    rows.acknowledge(1, 0, 1)
    rows.write()
    [(user,)] = journal._db.execute("SELECT user FROM jobs").fetchall()
    assert (journal.retained.stored, journal.retained.stored_of[user]) == (300, 300)
    assert journal.retained.clear_acknowledged(0, 100) == ["/out", "/err"]
    assert (journal.retained.stored, journal.retained.stored_of[user]) == (100, 100)
    assert journal.retained.clear([1, 2], 100) == (1, [], ["/other"])
    assert journal.retained.clear([1], 100) == (0, [], [])
    assert (journal.retained.stored, journal.retained.stored_of[user]) == (0, 0)


def test_numbers_of_messages_are_not_used_again(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        rows = Rows(journal)
        rows.job(1, 3, ended=9)
        rows.acknowledge(1)
        rows.write()
        journal.retained.clear_acknowledged(0, 100)
        assert told(journal) == []
    with closing(Journal(tmp_path)) as journal:
        assert journal.last()[1] == 4


def test_to_clear_a_job_costs_the_same_however_many_have_ended(journal: Journal, rows: Rows) -> None:
    def cost(cleared: int) -> int:
        """Instructions of SQLite, in hundreds."""
        counted = 0

        def count() -> int:
            nonlocal counted
            counted += 1
            return 0

        journal.retained._db.set_progress_handler(count, 100)
        assert journal.retained.clear([cleared], 100) == (1, [], [])
        journal.retained._db.set_progress_handler(None, 0)
        return counted

    rows.job(1, 1, ended=9)
    rows.job(2, 1, ended=9)
    rows.write()
    alone = cost(1)
    for number in range(3, 3000):
        rows.job(number, 1, ended=9)
        rows.acknowledge(number)
    rows.write()
    assert cost(2) <= alone + 3


def test_an_acknowledgement_of_what_was_cleared_by_hand_harms_nothing(journal: Journal, rows: Rows) -> None:
    rows.job(1, 2, ended=9)
    rows.job(2, 2, ended=9)
    rows.acknowledge(1)
    rows.write()
    assert journal.retained.clear([1], 100) == (1, [], [])
    assert journal.retained.oldest() is None
    rows.acknowledge(1)
    rows.acknowledge(2)
    rows.write()
    journal.retained.clear_acknowledged(0, 100)
    assert told(journal) == []


def test_a_large_job_is_cleared_in_parts_and_its_end_goes_last(journal: Journal, rows: Rows) -> None:
    rows.job(1, 10, ended=9)
    rows.job(2, 3)
    rows.job(3, 1, ended=9)
    rows.write()
    steps = []
    left: list[int] = [1, 2, 3]
    while left:
        cleared, left, _ = journal.retained.clear(left, 4)
        steps.append((cleared, len(told(journal))))
        if left and left[0] == 1:
            assert (1, None) in told(journal)
    assert sum(cleared for cleared, _ in steps) == 2
    assert max(before - after for (_, before), (_, after) in pairwise([(0, 16), *steps])) == 4
    assert told(journal) == [(2, 0), (2, 1), (2, 2)]  # it goes on


def test_jobs_of_which_nothing_is_left_count_as_one_row_each(journal: Journal) -> None:
    assert journal.retained.clear(range(1, 11), 10) == (0, [], [])
    assert journal.retained.clear(range(1, 13), 10) == (0, [11, 12], [])


def test_large_results_go_few_at_a_time(journal: Journal, rows: Rows) -> None:
    for number in (1, 2):
        rows.job(number)
        for task in range(6):
            rows.number += 1
            rows.batch.messages.append((rows.number, 1, number, task, 0, "succeeded", 0, bytes(SIZE_MAX // 2)))
        rows.end(number, 9)
    rows.acknowledge(1)
    rows.write()
    left = []
    while journal.retained.oldest() is not None:
        journal.retained.clear_acknowledged(0, 100)
        left.append(len(told(journal)))
    assert left == [12, 10, 7]
    jobs = [2]
    while jobs:
        cleared, jobs, _ = journal.retained.clear(jobs, 100)
        left.append(len(told(journal)))
    assert left[3:] == [5, 3, 1, 0]
    assert cleared == 1


def test_what_is_stored_is_known_again_after_a_start(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        rows = Rows(journal)
        rows.job(1)
        rows.result(1, 0, stdout_path="/out")
        rows.batch.uploads += [("a", 1, 7), ("b", 1, 5)]
        rows.write()
        rows.batch.uploads.append(("a", 2, 7))
        rows.result(1, 1)
        rows.write()
        journal.retained.keep_upload("b", 3, 5)
        journal.retained.keep_upload("c", 3, 3)
        assert journal.retained.stored == 115
        assert not journal.retained.drop_upload("b", 3)  # it was used at that instant
        assert journal.retained.stored == 115
        assert journal.retained.drop_upload("b", 4)
        assert journal.retained.stored == 110
    with closing(Journal(tmp_path)) as journal:
        assert journal.retained.stored == 110
        [(user,)] = journal._db.execute("SELECT user FROM jobs").fetchall()
        assert journal.retained.stored_of == {user: 100}


def test_jobs_that_ended_long_ago(journal: Journal, rows: Rows) -> None:
    for number, at in ((1, 30), (2, 10), (3, 20)):
        rows.job(number, 1, ended=at)
    rows.job(4, 1)
    rows.write()
    assert journal.retained.ended_until(20, 10) == [2, 3]
    assert journal.retained.ended_until(10**9, 2) == [2, 3]
    journal.retained.clear([2], 100)
    assert journal.retained.ended_until(20, 10) == [3]


def test_a_full_disk_keeps_everything(journal: Journal, rows: Rows) -> None:
    rows.job(1, 2, ended=9)
    rows.acknowledge(1)
    rows.write()
    journal.limit_pages(1)
    with pytest.raises(JournalFull):
        journal.write(
            Batch(events=[event_row(1, 1, Woke(1))], uploads=[(f"{number:064}", 1, 1) for number in range(1000)])
        )
    assert journal.retained.uploads() == set()
    assert kept(journal, 1) == [0, 1]
    journal.limit_pages(10_000)
    journal.retained.clear_acknowledged(0, 100)
    assert told(journal) == []
