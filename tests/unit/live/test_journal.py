"""The journal alone: what it keeps, what it deletes, and what it refuses to open."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from headway import wire
from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError
from headway.live import requests
from headway.live.store import opening
from headway.live.store.decisions import event_of
from headway.live.store.journal import (
    FILE,
    FORMAT,
    HURRY_MILLISECONDS,
    Batch,
    Journal,
    JournalBusy,
    JournalFull,
    encode,
)
from headway.live.store.schema import connect
from headway.model.actions import JobStatus
from headway.model.events import (
    Advised,
    ClockStepped,
    DeciderBack,
    DeciderChosen,
    DeciderFailed,
    Event,
    Incident,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    NetworkChosen,
    NodeClosed,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeMeasured,
    NodeOff,
    NodeOn,
    NodeOpened,
    NodeResized,
    NodesHeard,
    NodeSwitched,
    NodeUp,
    Outcome,
    PeriodChosen,
    PolicyChosen,
    Reclaimed,
    Rented,
    RentFailed,
    RentingChosen,
    Returned,
    RulesChosen,
    SitesChosen,
    SlotsBounded,
    SwitchFailed,
    SwitchingChosen,
    TaskEnded,
    TaskSaved,
    TasksCancelled,
    TaskStarted,
    TaskStruck,
    TierRefused,
    WindowEnded,
    Woke,
)
from headway.model.instant import HOUR
from headway.model.job import PenaltyShape, TaskSpec
from headway.model.network import Link, LinkTerms, Network
from headway.model.plan import Claim, Plan, PlanRecord
from headway.model.power import Switching
from headway.model.renting import Offer, Renting
from headway.model.site import SiteTerms
from headway.model.tier import Tier
from headway.model.window import Window
from headway.policies.registry import find
from headway.testing import job, node

from ...rows import event_row


def a_plan() -> PlanRecord:
    plan = Plan()
    plan.hold(1, 1 << 99, Claim.AFTER)
    plan.place(2, 3, 1)
    plan.promise(4, 5, 6)
    plan.wake = 7
    return PlanRecord.of(plan)


ALL_EVENTS: list[Event] = [
    JobSubmitted(
        1, job(1, graph=(TaskSpec(5), TaskSpec(6, 2, (0,), (3,))), due=9, shape=PenaltyShape.SQUARE, user="é\0")
    ),
    JobCancelled(2, 1),
    TasksCancelled(2, 1, (0, 7)),
    JobChanged(3, 1, priority=1.5),
    TaskStarted(4, 1, 0, 1),
    TaskEnded(5, 1, 0, 1, Outcome.OUT_OF_MEMORY),
    TaskStruck(5, 1, 0, 1),
    RulesChosen(5, 2),
    WindowEnded(5, 1, Window(0, 5, 9, 8, 1, 2.5, 0.5, 1.5, 0.25)),
    NodeJoined(6, node("n", slots=70, speed=1.5, cores=140, lease=10)),
    NodeDown(7, "n"),
    NodeUp(8, "n"),
    NodeClosed(8, "n"),
    NodeOpened(9, "n"),
    NodeDrained(9, "n"),
    NodeLeft(10, "n"),
    NodesHeard(11, ("n", "m")),
    PolicyChosen(12, "easy:depth=3"),
    Woke(13),
    TaskSaved(14, 1, 0, 1),
    TierRefused(14, 1, 0, 1, Tier.BACKGROUND),
    NodeResized(15, "n", 3, at_once=True),
    NodeMeasured(16, "n", (("load", 0.5), ("disk_read_bytes", 1e9))),
    NodeSwitched(16, "n", False, by_hand=True),
    NodeOff(16, "n", 7),
    NodeOn(16, "n", 8),
    SwitchFailed(16, "n", 9, serves=True, detail="no such plug"),
    SwitchingChosen(16, (Switching("s", 60_000_000, off_watts=2.5, on_command=("on", "-v")), Switching())),
    RentingChosen(16, Renting((Offer("s", "small", 2, 85_000, period=HOUR, spot=True),), 5_000_000, limit=7)),
    Rented(16, 1, "i-0abc"),
    RentFailed(16, 2, "no room"),
    Reclaimed(16, 1, 18),
    Returned(16, 1),
    SlotsBounded(16, "ann", 4),
    SlotsBounded(16, "bob", None),
    NetworkChosen(16, Network(LinkTerms(5), LinkTerms(7, 1e6), (Link("n", "m", LinkTerms(0, 0.5)),))),
    SitesChosen(16, (SiteTerms("grid"), SiteTerms("cloud", 30_000_000))),
    PeriodChosen(17, None),
    DeciderChosen(18, "http://127.0.0.1:1"),
    Advised(19, 7, a_plan()),
    DeciderFailed(20, 8, "no answer within 2 s"),
    DeciderBack(21),
    ClockStepped(21, 3600),
    Incident(22, "collector_failed", "disk", "it raised"),
]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "data")) as journal:
        yield journal


def add_job(batch: Batch, number: int, *, functions: str = "", client: int = 1, user: str = "me") -> None:
    spec = encode(job(number))
    work = encode(wire.Commands((wire.Command(("true",)),)))
    batch.jobs.append((number, client, "", user, 0, spec, functions, work))


def add_result(batch: Batch, number: int, job: int, task: int | None, *, size: int = 10, client: int = 1) -> None:
    result = None
    if task is not None:
        result = encode(wire.TaskResult(job, task, 1, wire.TaskEnding(Outcome.SUCCEEDED, b"r" * size)))
    batch.messages.append((number, client, job, task, 0, "succeeded", 0, result))


def empty_state() -> StateRecord:
    return Scheduler(find, "fcfs").dump()


def test_every_event_is_read_as_it_was_written(journal: Journal) -> None:
    assert {type(event) for event in ALL_EVENTS} == set(get_args(Event))
    journal.write(Batch(events=[event_row(seq, event.at, event) for seq, event in enumerate(ALL_EVENTS, 1)]))
    assert list(journal.events()) == list(enumerate(ALL_EVENTS, 1))
    assert list(journal.events(after=len(ALL_EVENTS) - 1)) == [(len(ALL_EVENTS), ALL_EVENTS[-1])]
    assert journal.last() == (len(ALL_EVENTS), 0, 0)


def test_events_of_before_callers_were_noted_are_read(journal: Journal) -> None:
    for event in ALL_EVENTS:
        fields = msgspec.msgpack.decode(encode(event))
        fields.pop("by", None)
        assert event_of(type(event).__name__, encode(fields)) == event


def test_the_latest_events_that_somebody_asked_for_are_found(journal: Journal) -> None:
    events = [JobCancelled(at, at, by="me" if at % 2 else "") for at in range(1, 8)]
    events.insert(3, Woke(3))
    journal.write(Batch([event_row(number, event.at, event) for number, event in enumerate(events, 1)]))
    assert [(number, event.at) for number, event in journal.asked(3)] == [(6, 5), (7, 6), (8, 7)]
    assert [number for number, _ in journal.asked(3, after=6)] == [7, 8]
    assert [number for number, _ in journal.asked(3, before=6)] == [2, 3, 5]


@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_requests_are_read_part_by_part(journal: Journal, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(requests, "EVENTS_LOOKED_AT_ONCE", at_once)
    events = [JobCancelled(at, at, by="me" if at % 2 else "") for at in range(1, 8)]
    journal.write(Batch([event_row(number, event.at, event) for number, event in enumerate(events, 1)]))

    def told(after: int, limit: int) -> tuple[list[int], bool]:
        found = asyncio.run(requests.report(journal, after, limit))
        return [one.number for one in found.requests], found.more

    assert told(0, 3) == ([3, 5, 7], True)
    assert told(0, 4) == ([1, 3, 5, 7], False)
    assert told(3, 10) == ([5, 7], False)


def test_a_state_is_read_as_it_was_stored(journal: Journal) -> None:
    core = Scheduler(find, "fcfs")
    for event in (NodeJoined(1, node("n", slots=100)), *(JobSubmitted(n, job(n, tasks=3)) for n in (2, 3))):
        core.handle(event)
    assert journal.snapshot() is None
    journal.store_snapshot(3, core.dump(), [])
    assert journal.snapshot() == (3, core.dump())


def test_first_launches_are_stored_with_the_state_and_the_first_stays(journal: Journal) -> None:
    batch = Batch()
    for number in (1, 2):
        add_job(batch, number)
    journal.write(batch)
    journal.store_snapshot(1, empty_state(), [(5, 2)])
    journal.store_snapshot(2, empty_state(), [(9, 2)])
    assert {row.id: row.started for row in journal.jobs()} == {1: None, 2: 5}


def test_a_batch_is_written_whole_or_not_at_all(journal: Journal) -> None:
    batch = Batch(events=[event_row(1, 1, Woke(1))])
    add_job(batch, 1)
    add_result(batch, 1, 1, 0)
    add_result(batch, 2, 1, 0)
    with pytest.raises(sqlite3.IntegrityError):
        journal.write(batch)
    assert journal.last() == (0, 0, 0)
    del batch.messages[1]
    journal.write(batch)
    assert journal.last() == (1, 1, 1)


def test_jobs_are_found_by_what_is_asked(journal: Journal) -> None:
    batch = Batch()
    for number in range(1, 6):
        add_job(batch, number, user="you" if number == 4 else "me")
    batch.ended.append(("failed", 5, 9, 1, 1, False, None, 2))
    journal.write(batch)
    assert [row.id for row in journal.jobs()] == [1, 2, 3, 4, 5]
    assert [row.id for row in journal.jobs(after=1, limit=2)] == [2, 3]
    assert [row.id for row in journal.jobs(open_only=True)] == [1, 3, 4, 5]
    assert [row.id for row in journal.jobs(status=JobStatus.FAILED)] == [2]
    assert [row.id for row in journal.jobs(user="you")] == [4]
    found = journal.job(2)
    assert found is not None
    assert (found.status, found.started, found.ended, found.done, found.failed) == (JobStatus.FAILED, 5, 9, 1, 1)
    assert journal.job(6) is None
    assert journal.work(1) == wire.Commands((wire.Command(("true",)),))


def test_results_are_cut_at_a_size_but_never_to_nothing(journal: Journal) -> None:
    batch = Batch()
    for task in range(5):
        add_result(batch, task + 1, 1, task, size=1000)
    journal.write(batch)

    def tasks(found: tuple[list[bytes], bool]) -> tuple[list[int], bool]:
        return [msgspec.msgpack.decode(body, type=wire.TaskResult).task for body in found[0]], found[1]

    assert tasks(journal.results([wire.TaskRange(1)], 10_000)) == ([0, 1, 2, 3, 4], False)
    assert tasks(journal.results([wire.TaskRange(1, 1, 3)], 10_000)) == ([1, 2], False)
    assert tasks(journal.results([wire.TaskRange(1, 3), wire.TaskRange(1, 0, 1)], 10_000)) == ([3, 4, 0], False)
    assert tasks(journal.results([wire.TaskRange(1)], 2500)) == ([0, 1], True)
    assert tasks(journal.results([wire.TaskRange(1, 2)], 1)) == ([2], True)
    assert tasks(journal.results([wire.TaskRange(2)], 1)) == ([], False)


def test_messages_bring_small_results_until_they_are_many_bytes(journal: Journal) -> None:
    batch = Batch()
    for number in range(1, 6):
        add_result(batch, number, 1, number, size=10 if number % 2 else 5000)
    journal.write(batch)
    rows = journal.messages(0, 100, result_max=1000).rows
    assert [(row.number, row.result is not None) for row in rows] == [
        (1, True),
        (2, False),
        (3, True),
        (4, False),
        (5, True),
    ]
    assert [row.number for row in journal.messages(0, 100, result_max=9000, size_max=6000).rows] == [1, 2, 3, 4]
    assert [row.number for row in journal.messages(3, 1).rows] == [4]


@pytest.mark.parametrize(
    ("limit", "size_max", "page"),
    [(1, 1 << 20, [1]), (2, 1 << 20, [1]), (3, 1 << 20, [1, 2, 3]), (9, 15, [1, 2, 3]), (9, 5, [1])],
)
def test_no_page_ends_between_the_last_result_of_a_job_and_its_end(
    journal: Journal, limit: int, size_max: int, page: list[int]
) -> None:
    batch = Batch()
    for number, which, task in [(1, 1, 0), (2, 1, 1), (3, 1, None), (4, 2, 0)]:
        add_result(batch, number, which, task)
    journal.write(batch)
    size = len(journal.messages(0, 1, result_max=1000).rows[0].result or b"")
    rows = journal.messages(0, limit, result_max=1000, size_max=size * size_max // 10).rows
    assert [row.number for row in rows] == page
    assert [row.number for row in journal.messages(2, 1).rows] == [3], "asked for alone it comes alone"


def test_cleared_message_numbers_are_not_used_again(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        batch = Batch()
        add_job(batch, 1)
        add_job(batch, 2)
        batch.ended.append(("succeeded", 0, 0, 1, 0, False, None, 1))
        for number, (which, task) in enumerate([(2, 0), (1, 0), (1, None)], 1):
            add_result(batch, number, which, task)
        journal.write(batch)
        assert journal.retained.clear([1, 2, 3], 100)[0] == 1
        assert [row.number for row in journal.messages(0, 10).rows] == [1]
    with closing(Journal(tmp_path)) as journal:
        assert journal.last()[1] == 3


def test_a_full_disk_is_said_so_and_changes_nothing(journal: Journal) -> None:
    journal.limit_pages(1)
    batch = Batch(events=[event_row(seq, 0, Woke(0)) for seq in range(1, 1000)])
    with pytest.raises(JournalFull, match=r"journal\.sqlite cannot grow: database or disk is full"):
        journal.write(batch)
    journal.limit_pages(10_000)
    journal.write(batch)
    assert journal.last()[0] == 999


OPEN = (
    "import sys; from pathlib import Path; from headway.live.store.journal import Journal; Journal(Path(sys.argv[1]))"
)


def test_what_another_program_locks_is_not_waited_for_and_can_be_tried_again(journal: Journal) -> None:
    batch = Batch(events=[event_row(1, 1, Woke(1))])
    journal.hurry()
    with closing(sqlite3.connect(journal.folder / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert journal._db.execute("PRAGMA busy_timeout").fetchone() == (HURRY_MILLISECONDS,)  # SQLite's are 5,000
        for attempt in (lambda: journal.write(batch), lambda: journal.note("x", 1)):
            with pytest.raises(JournalBusy, match=r"journal\.sqlite is locked by another program"):
                attempt()
        other.execute("ROLLBACK")
        with closing(other.execute("SELECT * FROM meta")) as reading:
            reading.fetchone()
            journal.write(batch)
    assert journal.last() == (1, 0, 0)
    assert journal.noted("x") is None


@pytest.mark.long
def test_an_older_journal_that_cannot_be_given_an_index_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Journal(tmp_path)) as made:
        made._db.execute("DROP INDEX jobs_kept")

    def full(path: Path) -> sqlite3.Connection:
        db = connect(path)
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        (free,) = db.execute("PRAGMA freelist_count").fetchone()
        db.execute(f"PRAGMA incremental_vacuum({free})").fetchall()
        db.execute(f"PRAGMA max_page_count = {pages - free}")
        return db

    with monkeypatch.context() as disk:
        disk.setattr(opening, "connect", full)
        with pytest.raises(JournalFull, match="cannot grow"):
            Journal(tmp_path)
    Journal(tmp_path).close()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)):
        second = subprocess.run([sys.executable, "-c", OPEN, tmp_path], capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert f"{tmp_path} is in use by the process {os.getpid()}\n" in second.stderr
    third = subprocess.run([sys.executable, "-c", OPEN, tmp_path], capture_output=True, text=True, check=False)
    assert third.returncode == 0, third.stderr


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.note("format", 99)
    with pytest.raises(HeadwayError, match=f"has format 99; this Headway reads formats up to {FORMAT}"):
        Journal(tmp_path)
    # The lock is not left behind.
    with pytest.raises(HeadwayError, match="has format 99"):
        Journal(tmp_path)


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\0" + b"\0" * 100])
def test_something_else_under_its_name_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(HeadwayError, match="cannot be used"):
        Journal(tmp_path)
    assert (tmp_path / FILE).read_bytes() == content


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "data")) as journal:
        journal.write(Batch(events=[event_row(1, 0, Woke(0))]))
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
        for file in (tmp_path / "data").iterdir():
            assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.parametrize("name", ["file", "file/below", "/proc/nowhere"])
def test_a_directory_that_cannot_be_had_is_an_error_with_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HeadwayError, match=rf"{name} cannot be used: .*\n.*--data"):
        Journal(tmp_path / name)


def test_answers_to_switches_of_older_journals_have_no_number() -> None:
    body = b"\x92" + encode({"at": 16, "name": "n"}) + b"\xc0"
    assert event_of("NodeOff", body) == NodeOff(16, "n", 0)
    assert event_of("NodeOn", body) == NodeOn(16, "n", 0)
