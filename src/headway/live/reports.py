"""What callers are told of jobs and nodes.

It is read from the core while a job is open, and from the journal when it has ended.
"""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Final

from headway import __version__, wire
from headway.core.nodes import slot_statuses
from headway.live import checks
from headway.live.checker import Checker
from headway.live.driver import Driver
from headway.live.intake import NoSuchJob
from headway.live.journal import JobRow
from headway.model.actions import JobStatus
from headway.model.instant import NEVER, Instant
from headway.model.job import JobId
from headway.model.plan import TIER_WORDS
from headway.model.slots import count, numbers
from headway.model.snapshot import AttemptView, JobView, NodeView
from headway.model.tier import Tier

LOOKED_AT_ONCE: Final = 100
"""Jobs or ids of jobs, and nodes of a quarter as many, after which others take their turns."""


def row(driver: Driver, job: JobId) -> JobRow:
    """A job as the journal has it.

    Raises:
        NoSuchJob: none was accepted with this id.
    """
    found = driver.journal.job(job)
    if found is None:
        raise NoSuchJob(job)
    return found


def job_report(driver: Driver, row: JobRow) -> wire.JobReport:
    """A job and how far it is."""
    spec = row.spec
    kept, view = driver.open.get(row.id), driver.core.state.jobs.get(row.id)
    if kept is not None and view is not None:
        status, done, failed, running = driver.core.status(row.id), kept.done, kept.failed, len(running_of(view))
        started, priority, due = kept.started, view.priority, None if view.due >= NEVER else view.due
    else:
        # An end that is not durable yet is told as it will be.
        status, done, failed, running = row.status or JobStatus.RUNNING, row.done or 0, row.failed or 0, 0
        started, priority, due = row.started, spec.priority, spec.due
    return wire.JobReport(
        id=row.id,
        name=spec.name,
        user=spec.user,
        kind=spec.kind.name.lower(),
        status=status,
        tasks=spec.tasks,
        width=spec.width,
        done=done,
        failed=failed,
        running=running,
        priority=priority,
        rate=spec.rate,
        shape=spec.shape,
        estimate=spec.estimate,
        submitted=row.submitted,
        release=spec.release,
        due=due,
        started=started,
        ended=row.ended,
        cpu=spec.cpu,
        movable=spec.movable,
    )


def running_of(job: JobView) -> list[AttemptView]:
    """What runs of a job, in order of tasks; not what is queued behind it on the same slots."""
    return [attempt for _, attempt in sorted(job.attempts.items()) if not attempt.queued]


async def job_list(driver: Driver, status: str | None, user: str | None, after: JobId, limit: int) -> wire.JobList:
    """Jobs in order of their ids; each as it is when it is come to, for others take their turns meanwhile.

    Args:
        status: only of this status; `open` for those that have not ended; None for all.
    """
    reports: list[wire.JobReport] = []
    final = None if status in (None, "open") else JobStatus(status)
    if status is None or (final is not None and final.is_final):
        rows = _ended_or_all(driver, final, user, after)
    else:
        rows = _open(driver, final, user, after)
    async with aclosing(rows):
        async for row in rows:
            report = job_report(driver, row)
            if final is None or report.status is final:
                reports.append(report)
            if len(reports) > limit:
                break
    return wire.JobList(tuple(reports[:limit]), len(reports) > limit)


async def _ended_or_all(
    driver: Driver, status: JobStatus | None, user: str | None, after: JobId
) -> AsyncGenerator[JobRow, None]:
    """Rows of the journal, looked for among so many ids at a time that nobody waits for it."""
    _, _, last = driver.journal.last()
    while after < last:  # a caller may name numbers that the journal cannot look beyond
        until = after + LOOKED_AT_ONCE
        for row in driver.journal.jobs(after=after, until=until, status=status, user=user):
            yield row
        after = until
        if after < last:
            await asyncio.sleep(0)


async def _open(
    driver: Driver, status: JobStatus | None, user: str | None, after: JobId
) -> AsyncGenerator[JobRow, None]:
    """Jobs that have not ended, of those that may have a status."""
    core = driver.core
    if status is JobStatus.RUNNING:
        queued = (attempt for ahead in core.state.ahead.values() for attempt in ahead)
        runs = (*(entry[-1] for entry in core.state.running), *core.state.background, *queued)
        ids = sorted({attempt.job.id for attempt in runs})
    else:
        ids = list(driver.open)
    for place in range(bisect_right(ids, after), len(ids)):
        kept = driver.open.get(ids[place])
        fits = kept is not None and user in (None, kept.spec.user)
        if fits and (status is None or (kept and kept.view is not None and core.status(ids[place]) is status)):
            row = driver.journal.job(ids[place])
            if row is not None:
                yield row
        if place % LOOKED_AT_ONCE == 0:
            await asyncio.sleep(0)


def job_detail(driver: Driver, job: JobId) -> wire.JobDetail:
    """A job with what runs of it, what it holds, and the start it is promised."""
    report = job_report(driver, row(driver, job))
    view = driver.core.state.jobs.get(job)
    if view is None:
        tables = driver.journal.checks
        lost = tables.losses(job)
        times = tuple(map(_times, tables.statistics(job)))
        return wire.JobDetail(report, (), (), None, times, lost.lost if lost else 0, lost.kills if lost else 0)
    attempts = tuple(attempt_report(driver, attempt) for attempt in running_of(view))
    times = tuple(map(_times, checks.run_times(view, 0)))
    held, done = numbers(view.slots), (times, view.lost, view.kills, view.moves)
    return wire.JobDetail(report, attempts, slot_names(driver, held), view.promise, *done)


def _times(row: checks.StatisticsRow) -> wire.RunTimes:
    return wire.RunTimes(row.node_class, row.tasks, row.mean, row.spread)


def slot_names(driver: Driver, slots: Iterable[int]) -> tuple[str, ...]:
    """Slots as `NODE/SLOT`, counted from 0 on each node."""
    nodes = driver.core.state.slot_nodes
    return tuple(f"{nodes[slot].spec.name}/{nodes[slot].index_of(slot)}" for slot in slots)


def attempt_report(driver: Driver, attempt: AttemptView) -> wire.AttemptReport:
    """An attempt that runs."""
    goal = attempt.goal
    return wire.AttemptReport(
        attempt.job.id,
        attempt.task,
        attempt.number,
        slot_names(driver, attempt.seats or numbers(attempt.slots)),
        attempt.start,
        _expected_end(driver, attempt),
        TIER_WORDS[attempt.tier],
        () if goal is None else slot_names(driver, goal.seats or numbers(goal.slots)),
    )


def _expected_end(driver: Driver, attempt: AttemptView) -> Instant | None:
    """By what is believed now, where somebody said it or it was observed; the core's default tells nobody."""
    job = attempt.job
    if job.spec.estimate is None and not (job.spec.plan or job.spec.profile or job.ended):
        return None
    if attempt.tier is Tier.BACKGROUND:
        return None
    run_time = driver.core.state.time_of(job, attempt.task, attempt.slots)
    return attempt.since + max(0, run_time - job.kept.get(attempt.task, 0))


async def node_list(driver: Driver) -> wire.NodeList:
    """The nodes in order of joining; each as it is when it is come to, for others take their turns meanwhile."""
    reports: list[wire.NodeReport] = []
    names = list(driver.core.state.nodes)
    on = await _attempts_by_node(driver)
    for first in range(0, len(names), LOOKED_AT_ONCE // 4):
        state = driver.core.state
        nodes = [state.nodes[name] for name in names[first : first + LOOKED_AT_ONCE // 4] if name in state.nodes]
        words = [status.value for status in slot_statuses(state)]
        for node in nodes:
            attempts = [one for one in on.get(node.spec.name, ()) if one.job.attempts.get(one.task) is one]
            reports.append(_node_report(driver, node, words, attempts))
        await asyncio.sleep(0)
    return wire.NodeList(tuple(reports))


async def _attempts_by_node(driver: Driver) -> dict[str, list[AttemptView]]:
    """What runs, soonest expected end first, then what runs in the background; by each node that it runs on."""
    state, found = driver.core.state, dict[str, list[AttemptView]]()
    for place, attempt in enumerate((*(entry[-1] for entry in state.running), *state.background)):
        if place % LOOKED_AT_ONCE == 0:
            await asyncio.sleep(0)
        for name in {state.slot_nodes[slot].spec.name: None for slot in numbers(attempt.slots)}:
            found.setdefault(name, []).append(attempt)
    return found


def _node_report(driver: Driver, node: NodeView, words: list[str], attempts: list[AttemptView]) -> wire.NodeReport:
    return wire.NodeReport(
        name=node.spec.name,
        site=node.spec.site,
        speed=node.spec.speed,
        cores=node.spec.cores,
        up=node.up,
        draining=node.draining,
        slots=tuple(words[slot] for slot in node.places[: node.spec.slots]),
        attempts=tuple(attempt_report(driver, attempt) for attempt in attempts),
        kind=node.spec.kind,
        closing=count(node.closing),
    )


async def explanation(driver: Driver, job: JobId) -> wire.Explanation:
    """Why a job waits; of one that has ended, how it did."""
    row(driver, job)  # whether there is such a job
    try:
        said, by, note = await driver.explain(job)
    except KeyError:  # it has ended, if only while a decider was asked
        status = row(driver, job).status or JobStatus.RUNNING
        return wire.Explanation(job, status, "ENDED", f"it has ended: {status.value}", None)
    status, reason = driver.core.status(job), said.reason
    return wire.Explanation(job, status, reason.name, said.text, said.start, by, note)


def deciding(driver: Driver) -> wire.PolicyText:
    """What decides."""
    core = driver.core
    return wire.PolicyText(core.policy, core.decider, core.decider_failed, core.period)


def metrics(checker: Checker, node: str | None, metric: str | None, since: Instant | None, limit: int) -> wire.Metrics:
    """Metrics of nodes: as they were found since an instant; where that is None, each as it was found last."""
    if since is not None:
        rows, more = checker.tables.metrics(since, limit, node=node, metric=metric)
    else:
        last = (row for row in checker.latest.values() if node in (None, row.node) and metric in (None, row.metric))
        rows, more = sorted(last, key=lambda row: (row.at, row.node, row.metric)), False
    return wire.Metrics(tuple(wire.Metric(*row) for row in rows), more)


def checker_report(checker: Checker) -> wire.CheckerReport:
    """The status checker and its collectors."""
    return wire.CheckerReport(
        checker.on,
        checker.every,
        tuple(
            wire.CollectorReport(
                watch.name,
                "hangs" if watch.late else "fails" if watch.detail else "works",
                watch.answered,
                watch.detail,
            )
            for watch in checker.watches.values()
        ),
    )


def incidents(driver: Driver, after: int, limit: int) -> wire.Incidents:
    """The latest incidents, in order."""
    found = driver.journal.incidents(limit + 1, after)
    kept = found[max(0, len(found) - limit) :]
    told = (
        wire.IncidentReport(number, told.at, told.kind, told.subject, told.detail, told.by) for number, told in kept
    )
    return wire.Incidents(tuple(told), len(found) > limit)


def statistics(driver: Driver) -> wire.Statistics:
    """How the server fares."""
    core, state, room = driver.core, driver.core.state, driver.room
    room.look()
    return wire.Statistics(
        version=__version__,
        pid=os.getpid(),
        started=driver.started,
        policy=core.policy,
        jobs=len(state.jobs),
        waiting=sum(job.ready for job in state.waiting),
        running=len(state.running),
        slots=count(state.up),
        free=count(state.free),
        busy=count(state.busy),
        rounds=core.rounds,
        refusals=dict(core.refusals),
        ignored=core.ignored,
        commits=driver.commits,
        recorded=driver.recorded,
        full=str(driver.full.args[0]) if driver.full is not None else "",
        listeners=driver.listeners,
        background=len(state.background),
        short=room.short or room.held or room.crowded,
        free_bytes=room.free,
        reserve_bytes=room.reserve,
        stored_bytes=room.stored,
        stored_max=room.outputs_max,
    )
