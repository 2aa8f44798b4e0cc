"""What of a damaged journal can be replayed, and what is given up."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import pytest

from headway.live.store.salvage import _let_go_of_gaps

WHOLE = range(1, 13)
TABLES = ("snapshots", "events")


def salvaged(snapshots: Iterable[int], events: Iterable[int]) -> tuple[list[int], list[int], int, list[str]]:
    """The states and events that are left, the last event, and what is said to be lost."""
    db, lost = sqlite3.connect(":memory:"), list[str]()
    db.execute("CREATE TABLE snapshots (seq INTEGER)")
    db.execute("CREATE TABLE events (seq INTEGER, kind TEXT)")
    db.executemany("INSERT INTO snapshots VALUES (?)", [(seq,) for seq in snapshots])
    db.executemany("INSERT INTO events VALUES (?, 'Woke')", [(seq,) for seq in events])
    end = _let_go_of_gaps(db, lost)
    left = [
        [seq for (seq,) in db.execute(f"SELECT seq FROM {table} ORDER BY seq")] for table in ("snapshots", "events")
    ]
    return left[0], left[1], end, lost


@pytest.mark.parametrize("first", [0, 4])
def test_a_whole_trace_between_two_states_is_kept(first: int) -> None:
    assert salvaged([first, 10], WHOLE) == ([first, 10], [*WHOLE], 12, [])


def test_a_trace_with_a_gap_is_given_up_but_not_what_follows_the_last_state() -> None:
    states, events, end, lost = salvaged([4, 10], [seq for seq in WHOLE if seq != 7])
    assert (states, events, end) == ([10], [11, 12], 12)
    assert lost == ["the events up to 10 are no whole trace any more and cannot be replayed"]


def test_events_after_a_gap_behind_the_last_state_are_given_up() -> None:
    states, events, end, lost = salvaged([4, 10], [seq for seq in WHOLE if seq != 11])
    assert (states, events, end) == ([4, 10], [*range(1, 11)], 10)
    assert lost == ["1 events are given up, for event 11 before them is missing"]


def test_events_without_any_state_are_given_up() -> None:
    assert salvaged([], WHOLE) == ([], [], 0, ["12 events are given up, for no state is there that they follow"])
