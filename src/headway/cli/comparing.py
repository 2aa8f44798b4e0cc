"""Reports when a comparison of policies shows nothing, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from headway.model.instant import NEVER
from headway.model.job import Kind
from headway.model.policy import serves_of
from headway.model.schedule import NOT_YET, Schedule
from headway.model.workload import Workload

LITTLE: Final = 0.01
"""If jobs spend no larger share of their time waiting, policies differ by little."""


READ_AS: Final = {
    Kind.BAG: " Jobs of a log with several processors are rigid with --as rigid.",
    Kind.RIGID: " Jobs of a log are bags with --as bags.",
    Kind.SERVICE: " services:batch=POLICY serves them, with any policy for the jobs.",
}
"""What to do about kinds of jobs that a policy does not serve."""


BUSY: Final = 0.9
"""A load at which jobs wait."""


def without_due_dates(workload: Workload, policies: Sequence[str]) -> str:
    """Which of the policies depend on due dates although no job has one, and what to do; empty if none does."""
    from headway.policies.registry import needs_due_dates

    concerned = [text for text in policies if needs_due_dates(text)]
    if not concerned or (workload.due < NEVER).any():
        return ""
    decide = "decides" if len(concerned) == 1 else "decide"
    return (
        f"No job has a due date, and {_listed(concerned)} {decide} by due dates. What is missed or late cannot be "
        "measured. --due-factor 2 gives each job a due date, its release plus twice its run time; so does a column "
        "`due` in a table (.csv), or --recipe lin14."
    )


def unserved(workload: Workload, policies: Sequence[str], *, services: int = 0) -> Iterator[str]:
    """For each policy that does not serve all kinds of jobs in the workload: which it serves, and what to do.

    Args:
        services: how many there are beside the workload.
    """
    from headway.policy_files import find

    for text in policies:
        served = serves_of(find(text))
        there = {kind: int((workload.kind == kind).sum()) for kind in Kind} | {Kind.SERVICE: services}
        left_out = {kind: jobs for kind, jobs in there.items() if kind not in served}
        for kind, jobs in left_out.items():
            if jobs:
                serves = _listed([f"{known.name.lower()} jobs" for known in Kind if known in served]) or "no jobs"
                yield (
                    f"{text} serves only {serves}. The workload has {jobs:,} of the kind {kind.name.lower()}, "
                    f"which will never start.{READ_AS.get(kind, '')}"
                )


def undecided(workload: Workload, schedules: Mapping[str, Schedule], slots: int) -> Iterator[str]:
    """A message if these runs do not distinguish the policies: they did the same, or hardly any job had to wait."""
    from headway.traces.transforms import offered_load

    if len(schedules) < 2:
        return
    waiting = max(_share_of_waiting(done) for done in schedules.values())
    same = all(
        np.array_equal(one.start, other.start) and np.array_equal(one.end, other.end)
        for one, other in pairwise(schedules.values())
    )
    if not same and waiting > LITTLE:
        return
    has_length = workload.release[-1] > workload.release[0]
    load = offered_load(workload, slots) if has_length else 0.0
    at = f" The load is {load:.2f}." if has_length else ""
    raising = f"raise it to --load {BUSY} or " if 0 < load < BUSY else ""
    if waiting > LITTLE:
        who = "Both" if len(schedules) == 2 else f"All {len(schedules)}"
        low = f" At such a load they can hardly be told apart: {raising}give fewer --slots." if raising else ""
        yield f"{who} policies start and end every job at the same times: they decide alike here.{at}{low}"
        return
    said = f"Jobs spend only {waiting:.1%} of their time waiting" if waiting >= 0.0005 else "Hardly a job waits"
    yield (
        f"{said if waiting else 'No job waits'} under any policy, so this comparison says little about the policies."
        f"{at} To make jobs wait, {raising}give fewer --slots."
    )


def _share_of_waiting(done: Schedule) -> float:
    """The share of their time in the system that jobs wait; 1 if one never starts or ends."""
    if (done.start == NOT_YET).any() or (done.end == NOT_YET).any():
        return 1.0
    there = int((done.end - done.release).sum())
    return int((done.start - done.release).sum()) / there if there else 0.0


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
