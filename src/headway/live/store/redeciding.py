"""Whether today's policies would decide as it is recorded in a journal (`headway check --decide`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError
from headway.live.store.decisions import event_of, is_recorded, replay
from headway.live.store.history import opened
from headway.live.store.journal import state_of
from headway.live.store.rows import Rows
from headway.model.instant import NEVER, Instant
from headway.model.job import JobId
from headway.model.plan import Allocation, Claim, Decision
from headway.model.policy import PolicySource
from headway.model.slots import numbers
from headway.model.tier import Tier

NAMED = 5
"""How many parts of a decision a sentence names at most."""


class Difference(NamedTuple):
    """A round that would decide otherwise today.

    Attributes:
        event: the number of the event that it followed, with its kind and its instant.
        policy: the text of the policy.
        then, today: what only the one of them decides.
    """

    event: int
    kind: str
    at: Instant
    policy: str
    then: str
    today: str


class RedecidedRound(NamedTuple):
    """A round of the journal: how it differs, if it does; whether it is recorded, so that this is known."""

    difference: Difference | None
    recorded: bool = True


def rounds(folder: Path, policies: PolicySource) -> Iterator[RedecidedRound]:
    """Ask the policies again in each round of a journal, in the state it had then; nothing is changed.

    A server may run meanwhile. Rounds of deciders are left out.

    Args:
        folder: the data directory.
        policies: finds a policy by its text.

    Raises:
        HeadwayError: there is no journal, or it cannot be read.
    """
    with opened(folder) as (db, path):
        db.execute("BEGIN")
        rows = Rows(db, path)
        first = rows.one("snapshots", "ORDER BY seq LIMIT 1")
        if first is None:
            raise HeadwayError(f"{path} has no state", "No server has been started on it yet.")
        core = Scheduler.restore(state_of(first[2]), policies)
        for seq, _, kind, body, _ in rows.of("events", "WHERE seq > ? ORDER BY seq", (first[0],)):
            replay(core, event_of(kind, body), body, compare=True)
            then, today = core.decided, core.today
            if then is None or then.consults:
                continue
            if not is_recorded(body):
                yield RedecidedRound(None, recorded=False)
            elif today is not None:
                for policy, said in _all_apart(core, then, today):
                    yield RedecidedRound(said and Difference(seq, kind, core.state.now, policy, *said))


def _all_apart(core: Scheduler, then: Decision, today: Decision) -> Iterator[tuple[str, tuple[str, str] | None]]:
    """For each round of an event: the policy, and what then and today have alone."""
    policies = {pool.name: pool.text for pool in core.state.each()}
    for held, now in zip((then, *then.then), (today, *today.then), strict=True):
        text = policies.get(held.pool, core.policy)
        yield text, _apart(core, held, now) if core.absent is None else ("a plan", str(core.absent))


def _apart(core: Scheduler, then: Decision, today: Decision) -> tuple[str, str] | None:
    """What only the recorded decision has, and what only today's has; None if they are the same.

    A record has only the promises that changed. So today's promises are compared with those the jobs have since.
    """
    one, other = _facts(core, then), _facts(core, today)
    new = dict(today.promises)
    one |= {_promised(job, start) for job, start in then.promises if new.get(job, 0) != start}
    for job, start in today.promises:
        view = core.state.jobs.get(job)
        if view is not None and not view.attempts and view.promise != start:
            other.add(_promised(job, start))
    if one == other and _order(then) != _order(today):
        return "the same in another order", "the same in another order"
    return None if one == other else (_said(one - other), _said(other - one))


def _order(decision: Decision) -> list[tuple[JobId, int | None]]:
    return [(wanted.job, wanted.task) for wanted in decision.allocations]


def _facts(core: Scheduler, decision: Decision) -> set[str]:
    facts = {_allocated(core, wanted) for wanted in decision.allocations}
    if decision.wake is not None:
        facts.add(f"the next round {(decision.wake - core.state.now) / 1e6:g} s later")
    facts |= {_planned(*planned) for planned in decision.planned}
    facts |= {f"job {deal.job} goes to pool {deal.pool}" for deal in decision.deals}
    for lend in decision.lends:
        slots = ", ".join(_place(core, slot) for slot in numbers(lend.slots))
        facts.add(f"{slots} go to pool {lend.pool}")
    facts |= {f"node {one.node} is switched {'on' if one.on else 'off'}" for one in decision.switches}
    if decision.raised:
        facts.add(f"the policy raises {decision.raised}")
    return facts


def _allocated(core: Scheduler, wanted: Allocation) -> str:
    places = wanted.seats or (tuple(numbers(wanted.slots)) if wanted.slots >= 0 else ())
    said = ", ".join(_place(core, slot) for slot in places)
    what = f"job {wanted.job}" if wanted.task is None else f"task {wanted.task} of job {wanted.job}"
    claim = "" if wanted.claim is Claim.FREE else f", claim {wanted.claim.name.lower()}"
    tier = "" if wanted.tier is Tier.FOREGROUND else ", in the background"
    return f"{what}: {said or 'no slots'}{claim}{tier}"


def _place(core: Scheduler, slot: int) -> str:
    nodes = core.state.slot_nodes
    if 0 <= slot < len(nodes) and slot in nodes[slot].places:
        return f"{nodes[slot].spec.name}/{nodes[slot].index_of(slot)}"
    return f"slot {slot}"


def _promised(job: JobId, start: Instant | None) -> str:
    return f"job {job}: no start promised" if start in (None, NEVER) else f"job {job}: a start promised for {start}"


def _planned(job: JobId, task: int, start: Instant, node: str) -> str:
    return f"task {task} of job {job}: " + (
        f"no start on {node}" if start >= NEVER else f"a start on {node} for {start}"
    )


def _said(facts: Iterable[str]) -> str:
    said = sorted(facts)
    more = f"; and {len(said) - NAMED} more" if len(said) > NAMED else ""
    return "; ".join(said[:NAMED]) + more or "nothing of this"
