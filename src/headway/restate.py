"""The state of a server after one of its events, found by a separate process: `python -m headway.restate DATA EVENT`.

It reads the journal beside the server, restores the last stored state and feeds the core the events since. Because the
core is pure, the result is the state that the server has in memory, bit for bit. So the server never stops to write its
state, however large it is; and each time it is checked that the journal agrees with the server.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

from headway.core.scheduler import Scheduler
from headway.live.snapshots import Restated, fingerprint, pack
from headway.live.store.decisions import event_of, replay
from headway.live.store.journal import state_body, state_of
from headway.live.store.rows import Rows
from headway.live.store.schema import FILE, connect_to_read
from headway.policies.registry import find

NICE = 5
"""Requests to the server come first."""


def restate(folder: Path, event: int) -> Restated:
    """The state after an event.

    Raises:
        sqlite3.Error: the journal cannot be read, or events are missing from it.
        HeadwayError: a row of it was changed, or a policy is not installed.
    """
    with closing(connect_to_read(folder / FILE)) as db:
        db.execute("BEGIN")
        rows = Rows(db, folder / FILE)
        ((seq, _, body, *_),) = rows.of("snapshots", "WHERE seq <= ? ORDER BY seq DESC LIMIT 1", (event,))
        # Read at once, because a log that is being read cannot be restarted.
        events = list(rows.of("events", "WHERE seq > ? AND seq <= ? ORDER BY seq", (seq, event)))
    if len(events) != event - seq:
        raise sqlite3.DatabaseError(f"{event - seq - len(events)} of the events {seq + 1} to {event} are missing")
    core = Scheduler.restore(state_of(body), find)
    for _, _, kind, packed, *_ in events:
        replay(core, event_of(kind, packed), packed)
    return Restated(core.state.now, fingerprint(core), state_body(core.dump()))


def main() -> None:
    """Write the state to standard output."""
    os.nice(NICE)
    folder, event = sys.argv[1:]
    found = pack(restate(Path(folder), int(event)))
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as out:  # the server that asked may have been killed
        out.write(found)
    os._exit(0)  # taking everything apart would take as long again


if __name__ == "__main__":
    main()
