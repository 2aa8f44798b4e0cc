"""Clearing in small parts, for any order of acknowledgements, compared with a slow twin that visits every result."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headway import wire
from headway.live.store.journal import Batch, Journal, encode
from headway.live.store.retained import AFTER_ALL_TASKS
from headway.model.events import Outcome
from headway.testing import job

JOBS = range(1, 5)
TASKS = 6


class Acknowledged(NamedTuple):
    """A row of the table; `seen` is how many of the messages had been sent."""

    job: int
    first: int
    last: int
    seen: int
    at: int


acknowledgements = st.builds(
    Acknowledged,
    st.sampled_from(JOBS),
    st.integers(0, TASKS),
    st.one_of(st.just(AFTER_ALL_TASKS), st.integers(0, TASKS)),
    st.integers(0, 4 * (TASKS + 1)),
    st.integers(0, 10),
)


@given(
    order=st.permutations([(job, task) for job in JOBS for task in range(TASKS)]),
    ended=st.sets(st.sampled_from(JOBS)),
    rows=st.lists(acknowledgements, max_size=8),
    part=st.integers(1, 9),
    until=st.integers(0, 10),
)
def test_what_is_cleared_is_what_was_acknowledged(
    order: list[tuple[int, int]], ended: set[int], rows: list[Acknowledged], part: int, until: int
) -> None:
    messages: list[tuple[int, int | None]] = [*order, *((one, None) for one in sorted(ended))]
    rows = sorted(rows, key=lambda row: (row.at, row.seen))  # both only grow, as time does
    rows = [row._replace(seen=max(before.seen for before in rows[: place + 1])) for place, row in enumerate(rows)]
    batch = Batch()
    for number in JOBS:
        batch.jobs.append((number, 1, "", "me", 0, encode(job(number)), "", encode(wire.Commands(()))))
        if number in ended:
            batch.ended.append(("succeeded", 0, 0, TASKS, 0, False, None, number))
    for number, (whose, task) in enumerate(messages, 1):
        body = None if task is None else encode(wire.TaskResult(whose, task, 1, wire.TaskEnding(Outcome.SUCCEEDED)))
        batch.messages.append((number, 1, whose, task, 0, "succeeded", 0, body))
    batch.acknowledged += rows

    due = [row for row in rows if row.at <= until]
    gone = {
        (whose, task)
        for number, (whose, task) in enumerate(messages, 1)
        if task is not None
        and any(row.job == whose and row.first <= task < row.last and number <= row.seen for row in due)
    }
    left = [(whose, task) for whose, task in order if (whose, task) not in gone]
    through = {
        one
        for number, (one, task) in enumerate(messages, 1)
        if task is None
        and any(row.job == one and number <= row.seen for row in due)
        and not any(whose == one for whose, _ in left)
    }
    told = [
        (whose, task)
        for whose, task in messages
        if not (task is None and whose in through) and not (whose in ended and (whose, task) in gone)
    ]

    with tempfile.TemporaryDirectory() as folder, closing(Journal(Path(folder))) as journal:
        batch.events.append((1, 0, "Woke", b""))
        journal.write(batch)
        parts = 0
        while (oldest := journal.retained.oldest()) is not None and oldest <= until:
            journal.retained.clear_acknowledged(until, part)
            parts += 1
            assert parts <= len(order) + 2 * len(rows)
        assert [(row.job, row.task) for row in journal.messages(0, 1000).rows] == told
        kept = [
            (one, task)
            for one in JOBS
            for task in range(TASKS)
            if journal.results([wire.TaskRange(one, task, task + 1)], 1)[0]
        ]
        assert sorted(kept) == sorted(left)
        assert journal.last()[1] == len(messages)
        assert journal.progress() == {one: (TASKS, 0, 0) for one in JOBS if one not in ended}
