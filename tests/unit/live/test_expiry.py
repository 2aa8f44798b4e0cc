"""Rows whose time is over are deleted in small parts. What is still needed stays, and no number is used twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headway import wire
from headway.core.scheduler import Scheduler
from headway.live.store import expiry
from headway.live.store.expiry import PAGES_KEPT, Walk
from headway.live.store.journal import FILE, Batch, Journal, encode
from headway.live.store.verification import check_whole
from headway.model.events import Event, Incident, Woke
from headway.policies.registry import find
from headway.testing import job

from ...rows import event_row


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "data")) as journal:
        yield journal
    check_whole(tmp_path / "data")  # all deleted rows were counted


def snapshot(journal: Journal, seq: int, at: int) -> None:
    core = Scheduler(find, "easy")
    core.handle(Woke(at))
    journal.store_snapshot(seq, core.dump(), ())


def snapshots(journal: Journal) -> list[int]:
    return [seq for (seq,) in journal.expiry._db.execute("SELECT seq FROM snapshots ORDER BY seq")]


def happen(journal: Journal, *events: Event) -> None:
    first = journal.last()[0]
    journal.write(Batch(events=[event_row(first + place, event.at, event) for place, event in enumerate(events, 1)]))


def seqs(journal: Journal) -> list[int]:
    return [seq for seq, _ in journal.events()]


def add_jobs(journal: Journal, ended: dict[int, int | None], *, client: int = 1, told: tuple[int, ...] = ()) -> None:
    """Jobs that ended at these instants (None: not yet). Those in `told` have their last message."""
    batch, work = Batch(), encode(wire.Commands((wire.Command(("true",)),)))
    for number, at in ended.items():
        batch.jobs.append((number, client, "", "me", 0, encode(job(number)), "f", work))
        if at is not None:
            batch.ended.append(("succeeded", 0, at, 0, 0, False, None, number))
            batch.statistics.append((number, "x", at, 1, 1, 1))  # type: ignore[arg-type]  # as the table has it
        if number in told:
            batch.messages.append((number, client, number, None, at or 0, "succeeded", 0, None))
    journal.write(batch)


class TestEvents:
    def test_they_go_up_to_a_snapshot_from_which_the_rest_is_told(self, journal: Journal) -> None:
        for seq in range(0, 100, 10):
            if seq:
                happen(journal, *(Woke(at) for at in range(seq - 9, seq + 1)))
            snapshot(journal, seq, seq)
        assert journal.expiry.drop_snapshots(45, 90) == 40
        assert snapshots(journal) == [40, 60, 80, 90]  # the last two, the first that is needed, and every 11th
        while journal.expiry.drop_events(40, 7):
            pass
        assert seqs(journal) == list(range(41, 91))
        assert journal.expiry.drop_snapshots(45, 105) == 60
        assert snapshots(journal) == [60, 80, 90]

    def test_for_ever_means_from_the_first_on(self, journal: Journal) -> None:
        for seq in range(5):
            snapshot(journal, seq, seq)
        assert journal.expiry.drop_snapshots(None, 1000) == 0
        assert snapshots(journal) == [0, 3, 4]

    def test_none_at_all_means_from_the_last_but_one(self, journal: Journal) -> None:
        for seq in range(5):
            snapshot(journal, seq, seq)
        assert journal.expiry.drop_snapshots(0, 4) == 3
        assert snapshots(journal) == [3, 4]

    def test_there_are_not_too_many_however_young(self, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(expiry, "EVENTS_MAX", 40)
        for seq in range(0, 100, 10):
            snapshot(journal, seq, 1)
        assert journal.expiry.drop_snapshots(10**9, 2) == 40
        assert snapshots(journal) == [40, 50, 60, 70, 80, 90]

    def test_incidents_stay_longer(self, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
        events = [Incident(at, "kind", "subject", "") if at % 2 else Woke(at) for at in range(1, 21)]
        happen(journal, *events)
        while journal.expiry.drop_events(15, 4):
            pass
        assert seqs(journal) == [1, 3, 5, 7, 9, 11, 13, 15, 16, 17, 18, 19, 20]
        assert not journal.expiry.drop_incidents(15, 6, 10)
        assert seqs(journal) == [7, 9, 11, 13, 15, 16, 17, 18, 19, 20]
        monkeypatch.setattr(expiry, "INCIDENTS_MAX", 4)
        while journal.expiry.drop_incidents(15, 0, 1):
            pass
        assert seqs(journal) == [13, 15, 16, 17, 18, 19, 20]

    def test_their_numbers_are_not_used_again(self, tmp_path: Path) -> None:
        with closing(Journal(tmp_path)) as journal:
            happen(journal, *map(Woke, range(10)))
            add_jobs(journal, {1: 1, 2: 2})
            journal.expiry.drop_events(10, 100)
            assert journal.expiry.drop_jobs(9, 10, Walk()) == [1, 2]
            assert seqs(journal) == []
        with closing(Journal(tmp_path)) as journal:
            assert journal.last() == (10, 0, 2)


class TestJobs:
    def test_those_that_ended_long_ago_and_have_no_message_go(self, journal: Journal) -> None:
        add_jobs(journal, {1: 5, 2: 6, 3: None, 4: 7, 5: 20}, told=(2,))
        assert journal.expiry.drop_jobs(10, 100, Walk()) == [1, 4]
        assert [row.id for row in journal.jobs()] == [2, 3, 5]
        assert journal.checks.statistics(1) == []
        assert len(journal.checks.statistics(2)) == 1

    def test_a_step_looks_at_so_many_and_the_next_goes_on_behind(self, journal: Journal) -> None:
        add_jobs(journal, dict.fromkeys(range(1, 11), 1), told=(1, 2, 3, 4, 6))
        walk, steps = Walk(), []
        while True:
            steps.append(journal.expiry.drop_jobs(10, 3, walk))
            if walk.is_over:
                break
        assert steps == [[], [5], [7, 8, 9], [10]]
        assert [row.id for row in journal.jobs()] == [1, 2, 3, 4, 6]

    def test_an_acknowledgement_that_comes_late_harms_nothing(self, journal: Journal) -> None:
        add_jobs(journal, {1: 1})
        journal.write(Batch(acknowledged=[(1, 0, 5, 9, 3)]))
        journal.expiry.drop_jobs(10, 3, Walk())
        assert journal.retained.oldest() is None
        journal.write(Batch(acknowledged=[(1, 0, 5, 9, 3)]))
        assert journal.retained.clear_acknowledged(10, 10) == []
        assert journal.retained.oldest() is None


def test_keys_go_by_their_age(journal: Journal) -> None:
    keys = [("me", f"k{at}", b"", 1, 1, 0, at) for at in range(10)]
    journal.write(Batch(submissions=keys))
    assert journal.expiry.drop_keys(6, 4)
    assert not journal.expiry.drop_keys(6, 4)
    assert [journal.accepted("me", f"k{at}") is not None for at in range(10)] == [False] * 7 + [True] * 3


def test_clients_go_when_no_job_of_them_is_left(journal: Journal) -> None:
    numbers = {name: journal.clients.number(name) for name in ("jobs", "asks", "gone", "new")}
    recorded = [(numbers[name], name) for name in ("jobs", "asks", "gone")]
    add_jobs(journal, {1: None}, client=numbers["jobs"])
    journal.write(Batch(clients=recorded, events=[event_row(1, 1, Woke(1))]))
    walk, used = Walk(), {numbers["asks"]}
    gone = []
    while True:
        gone += journal.expiry.drop_clients(used.__contains__, 1, walk)
        if walk.is_over:
            break
    assert gone == ["gone"]
    assert journal._db.execute("SELECT name FROM clients ORDER BY id").fetchall() == [("jobs",), ("asks",)]
    journal.clients.forget(gone)
    assert journal.clients.known("gone") == 0
    assert journal.clients.known("asks") == numbers["asks"]
    assert journal.clients.number("gone") > max(numbers.values()), "somebody may still wait under the old one"


class TestClients:
    def test_who_only_asks_writes_nothing_and_is_forgotten(self, journal: Journal) -> None:
        before = journal._vouching.reached
        number = journal.clients.number("poller")
        assert journal.clients.name(number) == "poller"
        assert journal._vouching.reached == before
        journal.clients.forget_new(lambda which: which == number)
        assert journal.clients.known("poller") == number
        journal.clients.forget_new(lambda which: False)
        assert journal.clients.known("poller") == 0

    def test_who_submits_is_recorded_with_the_jobs(self, tmp_path: Path) -> None:
        with closing(Journal(tmp_path)) as journal:
            number = journal.clients.number("c")
            journal.write(Batch(clients=journal.clients.to_record(number), events=[event_row(1, 1, Woke(1))]))
            assert journal.clients.to_record(number) == []
        with closing(Journal(tmp_path)) as journal:
            assert (journal.clients.known("c"), journal.clients.name(number)) == (number, "c")

    def test_lately_reaches_back_to_the_look_before_the_last(self, journal: Journal) -> None:
        number = journal.clients.number("c")
        journal.clients.look_again()
        assert journal.clients.lately(number)
        journal.clients.look_again()
        assert not journal.clients.lately(number)


def test_functions_and_uploads_go_when_nobody_needs_or_used_them(journal: Journal) -> None:
    names = ["lately", "needed", "kept", "old"]
    used = {"lately": 200}
    journal.write(
        Batch(
            blobs=[(name, used.get(name, 1), b"") for name in names],
            uploads=[(name, used.get(name, 1), 5) for name in names],
            outputs=[(1, 0, "kept")],
            events=[event_row(1, 1, Woke(1))],
        )
    )
    walk = Walk()
    assert journal.expiry.drop_blobs(100, {"needed"}.__contains__, 10, walk) == ["kept", "old"]
    assert [journal.has_blob(name) for name in names] == [True, True, False, False]
    found = []
    while True:
        found += journal.expiry.unused_uploads(100, {"needed"}.__contains__, 1, walk)
        if walk.is_over:
            break
    assert found == ["old"]


def test_the_file_gives_back_what_is_empty(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        blobs = [(f"{number}", 1, bytes(20_000)) for number in range(500)]
        journal.write(Batch(blobs=blobs, events=[event_row(1, 1, Woke(1))]))
        walk = Walk()
        while journal.expiry.drop_blobs(10, lambda name: False, 250, walk) or not walk.is_over:
            pass
        steps = 0
        while journal.expiry.give_back(100):
            steps += 1
        assert steps > 10
        check_whole(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
    assert pages < PAGES_KEPT + 100
