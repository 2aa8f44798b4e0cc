"""The tables of the status checker: pages of metrics, what is deleted, files made by an earlier Headway."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headway.live.store.checks import DROPPED_AT_ONCE, Checks, LossRow, MetricRow, StatisticsRow, StatusRow
from headway.live.store.journal import FILE, Journal, JournalFull
from headway.model.instant import Instant


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path)) as opened:
        yield opened


def write(
    checks: Checks, *metrics: MetricRow, statuses: tuple[StatusRow, ...] = (), since: Instant = 0, slots: Instant = 0
) -> None:
    checks.write(metrics, statuses, (), (), metrics_since=since, statuses_since=slots)


def rows(at: Instant, *nodes: str) -> list[MetricRow]:
    return [MetricRow(at, name, metric, 1.0) for name in nodes for metric in ("load", "rate")]


def test_pages_of_metrics_hold_all_of_an_instant_and_together_everything(journal: Journal) -> None:
    checks = journal.checks
    everything = [row for at in (10, 20, 30) for row in rows(at, "a", "b")]
    write(checks, *reversed(everything))
    assert checks.metrics(0, 12) == (everything, False)
    assert checks.metrics(0, 11) == (everything[:8], True)
    assert checks.metrics(0, 8) == (everything[:8], True)
    assert checks.metrics(0, 1) == (everything[:4], True), "what is found at once is never cut"
    for limit in range(1, 14):
        found: list[MetricRow] = []
        more, since = True, 0
        while more:
            page, more = checks.metrics(since, limit)
            found += page
            since = found[-1].at + 1
        assert found == everything
    assert checks.metrics(20, 100, node="b", metric="rate")[0] == [
        MetricRow(20, "b", "rate", 1.0),
        MetricRow(30, "b", "rate", 1.0),
    ]
    assert checks.metrics(31, 100) == ([], False)


def test_what_is_old_goes_but_not_so_much_at_once_that_others_wait(journal: Journal) -> None:
    checks, old = journal.checks, 2 * DROPPED_AT_ONCE + 5
    write(checks, *(MetricRow(at, "a", "load", 0.0) for at in range(old + 3)), statuses=(StatusRow(0, "a", 0, "busy"),))
    left = []
    for _ in range(4):
        write(checks, since=old, slots=0)
        left.append(len(checks.metrics(0, 10**6)[0]))
    assert left == [DROPPED_AT_ONCE + 8, 8, 3, 3]
    # If many are written, at least as many are deleted.
    write(checks, *(MetricRow(-at, "a", "load", 0.0) for at in range(1, 5001)), since=0)
    assert [row.at for row in checks.metrics(-(10**6), 10)[0]] == [old, old + 1, old + 2]
    write(checks, since=old + 1, slots=1)
    assert [row.at for row in checks.metrics(0, 100)[0]] == [old + 1, old + 2]
    with closing(sqlite3.connect(f"file:{journal.folder / FILE}?mode=ro", uri=True)) as other:
        assert other.execute("SELECT count(*) FROM slot_statuses").fetchone() == (0,)


def test_statistics_and_losses_of_a_job_are_its_last(journal: Journal) -> None:
    checks = journal.checks
    for tasks in (1, 2):
        checks.write(
            (),
            (),
            [StatisticsRow(7, "old", tasks, tasks, 5, 1), StatisticsRow(8, "old", 1, 1, 1, 0)],
            [LossRow(7, tasks, 10 * tasks, tasks)],
            metrics_since=0,
            statuses_since=0,
        )
    assert checks.statistics(7) == [(7, "old", 2, 2, 5, 1)]
    assert checks.losses(7) == (7, 2, 20, 2)
    assert (checks.statistics(9), checks.losses(9)) == ([], None)


def test_on_a_full_disk_nothing_is_written(journal: Journal) -> None:
    journal.limit_pages(1)
    with pytest.raises(JournalFull):
        write(journal.checks, *(MetricRow(at, "a", "m" * 50, 0.0) for at in range(1000)))
    assert journal.checks.metrics(0, 10) == ([], False)
