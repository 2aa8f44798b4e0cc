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
from headway.model.instant import NEVER, SECOND, Instant
from headway.model.job import JobId
from headway.model.plan import Allocation, Claim, Decision
from headway.model.policy import PolicySource
from headway.model.slots import numbers
from headway.model.tier import Tier
from headway.times import clock_text

NAMED_PARTS = 5
"""How many parts of a decision a sentence names at most."""


class Difference(NamedTuple):
    """A round that would decide otherwise today.

    Attributes:
        event: the number of the event that it followed, with its kind and its instant.
        pool: in which it was (a site, for example); empty: the only one, or what is not dealt to any other.
        policy: the text of the policy.
        then, today: what only the one of them decides.
    """

    event: int
    kind: str
    at: Instant
    pool: str
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
                for pool, policy, said in _all_apart(core, then, today):
                    yield RedecidedRound(said and Difference(seq, kind, core.state.now, pool, policy, *said))


class _Fact(NamedTuple):
    """A part of a decision: what it is, and the instant that ends the sentence."""

    said: str
    at: Instant | None = None

    @property
    def text(self) -> str:
        return self.said if self.at is None else f"{self.said} {clock_text(self.at / SECOND)}"

    @property
    def exactly(self) -> str:
        """With parts of a second."""
        return self.text if self.at is None else f"{self.text}.{self.at % SECOND:06}"


def _all_apart(core: Scheduler, then: Decision, today: Decision) -> Iterator[tuple[str, str, tuple[str, str] | None]]:
    """For each round of an event: the pool, the policy, and what then and today have alone."""
    policies = {pool.name: pool.text for pool in core.state.each()}
    for held, now in zip((then, *then.then), (today, *today.then), strict=True):
        text = policies.get(held.pool, core.policy)
        yield held.pool, text, _apart(core, held, now) if core.absent is None else ("a plan", str(core.absent))


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
    return None if one == other else (_said(one - other, other - one), _said(other - one, one - other))


def _order(decision: Decision) -> list[tuple[JobId, int | None]]:
    return [(wanted.job, wanted.task) for wanted in decision.allocations]


def _facts(core: Scheduler, decision: Decision) -> set[_Fact]:
    facts = {_Fact(_allocated(core, wanted)) for wanted in decision.allocations}
    if decision.wake is not None:
        facts.add(_Fact(f"the next round {(decision.wake - core.state.now) / SECOND:g} s later"))
    facts |= {_planned(*planned) for planned in decision.planned}
    facts |= {_Fact(f"job {deal.job} goes to pool {deal.pool}") for deal in decision.deals}
    for lend in decision.lends:
        slots = ", ".join(_place(core, slot) for slot in numbers(lend.slots))
        facts.add(_Fact(f"{slots} go to pool {lend.pool}"))
    facts |= {_Fact(f"node {one.node} is switched {'on' if one.on else 'off'}") for one in decision.switches}
    if decision.raised:
        facts.add(_Fact(f"the policy raises {decision.raised}"))
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


def _promised(job: JobId, start: Instant | None) -> _Fact:
    if start is None or start == NEVER:
        return _Fact(f"job {job}: no start promised")
    return _Fact(f"job {job}: a start promised for", start)


def _planned(job: JobId, task: int, start: Instant, node: str) -> _Fact:
    what = f"task {task} of job {job}"
    return _Fact(f"{what}: no start on {node}") if start >= NEVER else _Fact(f"{what}: a start on {node} for", start)


def _said(facts: Iterable[_Fact], others: Iterable[_Fact]) -> str:
    """What one side has alone; to the microsecond where the other has the same but for parts of a second."""
    alike = {fact.text for fact in others}
    said = sorted(fact.exactly if fact.text in alike else fact.text for fact in facts)
    more = f"; and {len(said) - NAMED_PARTS} more" if len(said) > NAMED_PARTS else ""
    return "; ".join(said[:NAMED_PARTS]) + more or "nothing of this"
