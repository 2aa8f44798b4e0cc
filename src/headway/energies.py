"""What a server's nodes took, found by a separate process: `python -m headway.energies DATA SINCE UNTIL`.

It replays the journal beside the server, as `headway history` does, and measures what ran by the same rule as a
simulation. SINCE and UNTIL are microseconds since the Unix epoch.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np

from headway.live.store.history import history, known_since
from headway.metrics.energy import energy_between
from headway.model.instant import Instant, to_seconds
from headway.policies.registry import find
from headway.wire import EnergyByModel, EnergyOfJob

NICE = 5
"""Requests to the server come first."""

JOBS_TOLD_MAX = 1000
"""So many jobs are told, those that took most."""


def energies(folder: Path, since: Instant, until: Instant) -> EnergyByModel:
    """The energy of a server's nodes from one instant to another.

    Raises:
        HeadwayError: there is no journal, or it cannot be read.
    """
    schedule = history(folder, find, record=True, until=until)
    found = energy_between(schedule, since, until)
    assert found is not None
    first = min(until, max(since, min((begin for _, begin, *_ in schedule.present), default=since)))
    users: dict[str, float] = {}
    for user, joules in zip(schedule.user.tolist(), found.jobs.tolist(), strict=True):
        users[user] = users.get(user, 0.0) + joules
    order = np.argsort(-found.jobs, kind="stable")[:JOBS_TOLD_MAX].tolist()
    known = known_since(folder)
    return EnergyByModel(
        to_seconds(first),
        to_seconds(until),
        found.joules,
        dict(found.nodes),
        dict(found.sites),
        {user: joules for user, joules in sorted(users.items()) if joules},
        tuple(
            EnergyOfJob(int(schedule.label[job]), str(schedule.user[job]), float(found.jobs[job]))
            for job in order
            if found.jobs[job] > 0
        ),
        found.unknown,
        None if known is None else to_seconds(known),
        dict(found.idle),
        found.idle_joules,
        float(found.jobs.sum() - found.jobs[order].sum()),
    )


def main() -> None:
    """Write what was found to standard output."""
    os.nice(NICE)
    folder, since, until = sys.argv[1:]
    found = msgspec.json.encode(energies(Path(folder), int(since), int(until)))
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as out:  # the server that asked may have been killed
        out.write(found)


if __name__ == "__main__":
    main()
