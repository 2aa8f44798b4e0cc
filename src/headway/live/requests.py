"""Who asked for what: the events that callers wanted, as the journal has them."""

from __future__ import annotations

import asyncio
import re
from typing import Final, get_args

from headway import wire
from headway.live.store.journal import Journal
from headway.model.events import (
    Asked,
    DeciderChosen,
    Incident,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    NodeJoined,
    NodeResized,
    PeriodChosen,
    PolicyChosen,
    TasksCancelled,
)
from headway.model.instant import NEVER, Instant, to_seconds
from headway.times import clock_text

EVENT_WORDS = {kind.__name__: re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in get_args(Asked)}
"""What each kind of event is called in a report."""

NOTHING_CAME: Final = "nothing came of it: the job had ended"
"""What is said of a wish about a job that came after its end."""

EVENTS_LOOKED_AT_ONCE: Final = 250
"""After this many events, other requests are served."""

WITHOUT_CALLER_MAX: Final = 10_000
"""How many events without a caller are searched for those with one."""


EVENTS_SEARCHED_MAX: Final = 200_000
"""How many events are searched for those of one user."""


async def report(journal: Journal, after: int, limit: int) -> wire.Requests:
    """The latest requests with greater event numbers, at most `limit`, in order."""
    found: list[wire.RequestReport] = []
    before, left, part = None, limit + 1 + WITHOUT_CALLER_MAX, min(EVENTS_LOOKED_AT_ONCE, limit + 1)
    while left > 0 and len(found) <= limit:
        some = journal.asked(part, after, before=before)
        found[:0] = [
            wire.RequestReport(number, to_seconds(event.at), event.by, _kind(event), *_about(event, journal))
            for number, event in some
            if event.by
        ]
        if len(some) < part:
            break
        before, left = some[0][0], left - part
        await asyncio.sleep(0)
    return wire.Requests(tuple(found[-limit:]), more=len(found) > limit)


async def audit(journal: Journal, user: str | None, since: Instant | None, limit: int) -> wire.Audit:
    """The latest entries of what callers did, and what was refused them, at most `limit`, in order.

    Args:
        user: only of this one; empty: of callers without a valid token; None: of all.
        since: only from this instant on.
    """
    begin = 0 if since is None else since
    found: list[tuple[Instant, wire.AuditEntry]] = []
    before, looked, is_over = None, 0, user == ""
    while not is_over and len(found) <= limit:
        some = journal.asked(EVENTS_LOOKED_AT_ONCE, 0, before=before)
        found[:0] = [
            (event.at, wire.AuditEntry(to_seconds(event.at), event.by, _kind(event), *_about(event, journal)))
            for _, event in some
            if event.by and event.at >= begin and user in (None, event.by)
        ]
        looked += len(some)
        is_over = len(some) < EVENTS_LOOKED_AT_ONCE or some[0][1].at < begin or looked >= EVENTS_SEARCHED_MAX
        before = some[0][0] if some else before
        await asyncio.sleep(0)
    for row in journal.refusals.latest(user, begin, limit + 1):
        told = wire.AuditEntry(
            *(to_seconds(row.at), row.user, "refused", row.request, row.detail),
            *(row.peer, row.status, row.code, row.times),
        )
        found.append((row.at, told))
    found.sort(key=lambda one: one[0])
    entries = tuple(entry for _, entry in found)
    return wire.Audit(entries[-limit:], len(entries) > limit or looked >= EVENTS_SEARCHED_MAX)


def _kind(event: Asked) -> str:
    return event.kind if isinstance(event, Incident) else EVENT_WORDS[type(event).__name__]


def _about(event: Asked, journal: Journal) -> tuple[str, str]:
    """What the event is about, and what was wanted; of a job that had ended, that nothing came of it."""
    subject, wanted = _wanted(event)
    if isinstance(event, JobChanged | JobCancelled | TasksCancelled):
        ended = journal.when_ended(event.job)
        if ended is not None and ended < event.at:
            wanted = f"{wanted}; {NOTHING_CAME}" if wanted else NOTHING_CAME
    return subject, wanted


def _wanted(event: Asked) -> tuple[str, str]:
    """What the event is about, and what was wanted."""
    match event:
        case JobSubmitted(job=job):
            of = "" if job.user == event.by else f", for {job.user}"
            return f"job {job.id}", f"{job.name or 'without a name'}{of}"
        case JobCancelled(job=number, reason=reason):
            return f"job {number}", reason
        case TasksCancelled(job=number, tasks=tasks):
            return f"job {number}", f"tasks {', '.join(map(str, tasks[:10]))}{', ...' if len(tasks) > 10 else ''}"
        case JobChanged(job=number, due=due):
            terms: dict[str, object] = {
                "priority": event.priority,
                "due": "none" if due == NEVER else None if due is None else clock_text(to_seconds(due)),
                "rate": event.rate,
                "shape": None if event.shape is None else event.shape.value,
                "threshold": None if event.threshold is None else f"{to_seconds(event.threshold):g} s",
                "fraction": event.fraction,
                "least": event.least,
            }
            return f"job {number}", ", ".join(f"{name} {term}" for name, term in terms.items() if term is not None)
        case NodeJoined(node=node):
            return f"node {node.name}", f"slots {node.slots}, speed {node.speed:g}"
        case NodeResized(name=name, slots=slots, at_once=at_once):
            return f"node {name}", f"slots {slots}{', at once' if at_once else ''}"
        case PolicyChosen(policy=policy):
            return "what decides", policy
        case PeriodChosen(period=period):
            return "what decides", "period none" if period is None else f"period {to_seconds(period):g} s"
        case DeciderChosen(url=url):
            return "what decides", url or "no decider"
        case Incident(subject=subject, detail=detail):
            return subject, detail
    return f"node {event.name}", ""
