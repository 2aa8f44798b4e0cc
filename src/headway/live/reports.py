"""Reports to callers about jobs and nodes.

They are read from the core while a job is open, and from the journal when it has ended.
"""

from __future__ import annotations

import asyncio
import math
import os
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from functools import partial, reduce
from itertools import chain, islice
from operator import or_
from typing import Final

import msgspec

from headway import __version__, wire
from headway.core.counts import in_line
from headway.core.nodes import statuses_on
from headway.errors import NoSuchJob, in_short
from headway.live import prospects
from headway.live.checker import Checker
from headway.live.driver import Driver
from headway.live.forecasts import NO_OUTLOOK, Outlook
from headway.live.prospects import seconds
from headway.live.served import short_of
from headway.live.sites import LOCAL_ENGINE
from headway.live.store import checks
from headway.live.store.journal import JobRow
from headway.model.actions import JobStatus
from headway.model.events import Incident
from headway.model.forecast import Expected
from headway.model.instant import NEVER, SECOND, Instant, to_seconds
from headway.model.job import JobId, JobSpec, Kind
from headway.model.node import SlotStatus
from headway.model.plan import TIER_WORDS, Reason
from headway.model.power import POWER_WORDS, PowerState
from headway.model.renting import UNIT
from headway.model.seen import AttemptView, JobView, NodeView
from headway.model.slots import NO_SLOTS, count, numbers
from headway.model.tier import Tier

LOOKED_AT_ONCE: Final = 100
"""After this many jobs or ids, or a quarter as many nodes, other requests are served."""

COUNTED_AT_ONCE: Final = 10_000
"""Waiting jobs that are counted in one go, in about a millisecond; then other requests are served."""


SOON_BEGUN: Final = 2 * SECOND
"""An attempt that has not begun so long after it got its slots is hindered."""

HINDERED_SHOWN: Final = 8
"""Of at most so many tasks an explanation says what hinders them."""


def row(driver: Driver, job: JobId) -> JobRow:
    """A job as the journal has it.

    Raises:
        NoSuchJob: no job with this id was accepted.
    """
    found = driver.journal.job(job)
    if found is None:
        raise NoSuchJob(job)
    return found


def user_of(driver: Driver, job: JobId) -> str | None:
    """Whose a job is; None: no job with this id is known."""
    kept = driver.open.get(job)
    return driver.journal.user_of(job) if kept is None else kept.spec.user


def job_report(driver: Driver, row: JobRow, outlook: Outlook = NO_OUTLOOK) -> wire.JobReport:
    """A job, its progress, and what is expected of it."""
    spec = row.spec
    kept, view = driver.open.get(row.id), driver.core.state.jobs.get(row.id)
    if kept is not None and view is not None:
        status, there = driver.core.status(row.id), running_of(view)
        running, starting = len(there), sum([not attempt.running for attempt in there])
        done, failed, cancelled = kept.done, kept.failed, kept.cancelled
        started, priority, due = kept.started, view.priority, None if view.due >= NEVER else view.due
        prospect = prospects.of_open(view, outlook, driver.now())
    else:
        # An end that is not durable yet is reported as it will be.
        status, running, starting = row.status or JobStatus.RUNNING, 0, 0
        done, failed = row.done or 0, row.failed or 0
        # Of a workflow that failed, the other tasks could not run.
        others = row.done is None or (spec.kind is Kind.WORKFLOW and status is not JobStatus.CANCELLED)
        others = others or spec.endless  # most instances were never wanted
        cancelled = 0 if others else spec.tasks - (row.done or 0)
        started, priority, due = row.started, spec.priority, spec.due
        if spec.endless:
            prospect = prospects.of_ended_service(driver.journal.checks.penalty(row.id))
        else:
            prospect = prospects.of_ended(spec, status, due, row.ended)
    return wire.JobReport(
        id=row.id,
        name=spec.name,
        user=spec.user,
        kind=spec.kind.name.lower(),
        status=status,
        tasks=spec.tasks,
        width=spec.width,
        done=done - failed,
        failed=failed,
        cancelled=cancelled,
        running=running,
        priority=priority,
        rate=spec.rate,
        shape=spec.shape,
        estimate=seconds(spec.estimate),
        submitted=to_seconds(row.submitted),
        release=to_seconds(spec.release),
        due=seconds(due),
        started=seconds(started),
        ended=seconds(row.ended),
        cpu=spec.cpu,
        movable=spec.movable,
        pool="" if kept is None or view is None else view.pool.name,
        starting=starting,
        money=money_of(driver, row.id),
        **prospect.told(),
    )


def money_of(driver: Driver, job: JobId) -> float:
    """What the machines have cost that were rented for a job, and cost if they are given back now."""
    state = driver.core.state
    if not state.rents:
        return 0.0
    now, there = driver.now(), [rental for rental in state.market.rentals.values() if rental.job == job]
    return (driver.journal.checks.money(job) + sum(rental.cost(now) for rental in there)) / UNIT


def running_of(job: JobView) -> list[AttemptView]:
    """What runs of a job, in order of tasks, without what is queued behind it on the same slots."""
    return [attempt for _, attempt in sorted(job.attempts.items()) if not attempt.queued]


async def job_list(driver: Driver, status: str | None, user: str | None, after: JobId, limit: int) -> wire.JobList:
    """Jobs in order of their ids; each as it is when its turn comes, because other requests are served meanwhile.

    Args:
        status: only of this status; `open` for those that have not ended; None for all.
    """
    reports: list[wire.JobReport] = []
    final = None if status in (None, "open") else JobStatus(status)
    outlook = NO_OUTLOOK if final is not None and final.is_final else await driver.forecasts.outlook()
    if status is None or (final is not None and final.is_final):
        rows = _ended_or_all(driver, final, user, after)
    else:
        rows = _open(driver, final, user, after)
    async with aclosing(rows):
        async for row in rows:
            report = job_report(driver, row, outlook)
            if final is None or report.status is final:
                reports.append(report)
            if len(reports) > limit:
                break
    return wire.JobList(tuple(reports[:limit]), len(reports) > limit)


async def _ended_or_all(
    driver: Driver, status: JobStatus | None, user: str | None, after: JobId
) -> AsyncGenerator[JobRow, None]:
    """Rows of the journal, searched in portions of ids, so that no other request has to wait long."""
    _, _, last = driver.journal.last()
    while after < last:  # a caller may name numbers that the journal cannot have
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
        state = core.state
        runs = chain(state.runs(), state.runs_behind(), state.waits_behind())
        ids = sorted({attempt.job.id for attempt in runs})
    else:
        ids = sorted(driver.open)  # a small submission may have passed a large one with lower numbers
    for place in range(bisect_right(ids, after), len(ids)):
        kept = driver.open.get(ids[place])
        fits = kept is not None and user in (None, kept.spec.user)
        if fits and (status is None or (kept and kept.view is not None and core.status(ids[place]) is status)):
            row = driver.journal.job(ids[place])
            if row is not None:
                yield row
        if place % LOOKED_AT_ONCE == 0:
            await asyncio.sleep(0)


async def costs(driver: Driver) -> wire.Costs:
    """What all jobs in the journal cost because they are late, so far and expected."""
    users, services = dict[str, wire.Cost](), dict[str, wire.Cost]()
    async with aclosing(_ended_or_all(driver, None, None, 0)) as rows:
        outlook = await driver.forecasts.outlook()
        async for row in rows:
            job = job_report(driver, row, outlook)
            users[job.user] = with_job(users.get(job.user, wire.Cost()), job)
            if row.spec.endless:
                services[job.name] = with_job(services.get(job.name, wire.Cost()), job)
    return wire.Costs(total_of(users), dict(sorted(users.items())), dict(sorted(services.items())))


def total_of(costs: Mapping[str, wire.Cost]) -> wire.Cost:
    """The sum of costs."""
    return wire.Cost(
        sum(one.jobs for one in costs.values()),
        math.fsum(one.penalty for one in costs.values()),
        math.fsum(one.expected for one in costs.values()),
        sum(one.unknown for one in costs.values()),
    )


async def open_costs(driver: Driver) -> dict[str, wire.Cost]:
    """What the open jobs of each user cost so far and are expected to; those that come and go meanwhile may be missed.

    Users without a job that may cost something are left out.
    """
    outlook, users = await driver.forecasts.outlook(), dict[str, wire.Cost]()
    for place, view in enumerate(list(driver.core.state.jobs.values())):
        if place % LOOKED_AT_ONCE == 0:
            await asyncio.sleep(0)
        if view.due >= NEVER and not view.endless:
            continue
        found = prospects.of_open(view, outlook, driver.now())
        expected = found.penalty if found.penalty_expected is None else found.penalty_expected
        cost = users.get(view.spec.user, wire.Cost())
        users[view.spec.user] = wire.Cost(cost.jobs + 1, cost.penalty + found.penalty, cost.expected + expected)
    return users


def with_job(cost: wire.Cost, job: wire.JobReport) -> wire.Cost:
    """The cost of one more job."""
    unknown = job.penalty_expected is None and job.due is not None and not job.status.is_final
    expected = job.penalty if job.penalty_expected is None else job.penalty_expected
    return wire.Cost(cost.jobs + 1, cost.penalty + job.penalty, cost.expected + expected, cost.unknown + unknown)


def job_detail(driver: Driver, job: JobId, outlook: Outlook = NO_OUTLOOK) -> wire.JobDetail:
    """A job with its attempts, its slots, its promised start, and what is expected of it."""
    kept = row(driver, job)
    return msgspec.structs.replace(
        _job_detail(driver, kept, outlook),
        cursor=driver.journal.last()[1],
        after=_predecessors(driver, kept.spec),
        retry_of=kept.spec.retry_of,
    )


def _job_detail(driver: Driver, row: JobRow, outlook: Outlook) -> wire.JobDetail:
    report, job = job_report(driver, row, outlook), row.id
    view = driver.core.state.jobs.get(job)
    if view is None:
        tables = driver.journal.checks
        lost = tables.losses(job)
        times = tuple(map(_times, tables.statistics(job)))
        return wire.JobDetail(
            report, (), (), None, times, to_seconds(lost.lost) if lost else 0, lost.kills if lost else 0
        )
    attempts = tuple(attempt_report(driver, attempt) for attempt in running_of(view))
    times = tuple(map(_times, checks.run_times(view, 0)))
    held, done = numbers(view.slots), (times, to_seconds(view.lost), view.kills, view.moves)
    predicted = to_seconds(view.estimate) if view.predicted else None
    return wire.JobDetail(report, attempts, slot_names(driver, held), seconds(view.promise), *done, predicted=predicted)


def _predecessors(driver: Driver, spec: JobSpec) -> tuple[wire.Predecessor, ...]:
    """The status of the jobs that a job comes after."""
    return tuple(wire.Predecessor(job, _status(driver, job)) for job in spec.after)


def _status(driver: Driver, job: JobId) -> JobStatus | None:
    """The status of a job; None if it is no longer known."""
    found = driver.journal.job(job)
    return None if found is None else job_report(driver, found).status


async def outlook_of(driver: Driver, job: JobId, *, exact: bool = False, patience: float | None = None) -> Outlook:
    """What is expected, if this job is open; see `Forecasts.outlook`.

    Raises:
        NoSuchJob: no job with this id was accepted.
    """
    row(driver, job)
    if job not in driver.core.state.jobs:
        return NO_OUTLOOK
    return await driver.forecasts.outlook(job, exact=exact, patience=patience)


def _times(row: checks.StatisticsRow) -> wire.RunTimes:
    return wire.RunTimes(row.node_class, row.tasks, to_seconds(row.mean), to_seconds(row.spread))


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
        to_seconds(attempt.start),
        seconds(_expected_end(driver, attempt)),
        TIER_WORDS[attempt.tier],
        () if goal is None else slot_names(driver, goal.seats or numbers(goal.slots)),
        hindrance(driver, attempt.job, attempt.task),
    )


def hindrance(driver: Driver, job: JobView, task: int) -> str:
    """What keeps a task from its work that is no fault of its own, and how often it was ended so; empty: nothing."""
    attempt, strikes = job.attempts.get(task), job.strikes.get(task, 0)
    stalled = "" if attempt is None else driver.stalled(attempt)
    waits = f"it waits for room on the disk of its node: {stalled}" if stalled else ""
    if (
        attempt is not None
        and not (stalled or attempt.running or attempt.queued)
        and (driver.now() - attempt.start >= SOON_BEGUN)
    ):
        why = f" ({said})" if (said := driver.pending(attempt)) else ", or fetches its inputs"
        waits = f"it has its slots and has not begun: it waits in the queue of its site{why}"
    struck = f"a signal from outside or a full disk ended {strikes} of its attempts" if strikes else ""
    return "; ".join(filter(None, (waits, struck)))


def _hindrances(driver: Driver, job: JobView) -> tuple[str, ...]:
    """The same of the first tasks of a job that are hindered."""
    said = ((task, hindrance(driver, job, task)) for task in sorted({*job.strikes, *job.attempts}))
    return tuple(islice((f"task {task}: {text}" for task, text in said if text), HINDERED_SHOWN))


def _expected_end(driver: Driver, attempt: AttemptView) -> Instant | None:
    """By the present estimate, if it was given or observed; the core's default estimate would tell nothing."""
    job = attempt.job
    if job.endless or not job.is_estimated(attempt.task) or attempt.tier is Tier.BACKGROUND:
        return None
    run_time = driver.core.state.time_said(job, attempt.task, attempt.slots)
    return attempt.since + max(0, run_time - job.kept.get(attempt.task, 0))


async def node_list(driver: Driver) -> wire.NodeList:
    """The nodes in order of joining; each as it is when its turn comes, because other requests are served meanwhile."""
    reports: list[wire.NodeReport] = []
    names = list(driver.core.state.nodes)
    on = await _attempts_by_node(driver)
    for first in range(0, len(names), LOOKED_AT_ONCE // 4):
        state = driver.core.state
        nodes = [state.nodes[name] for name in names[first : first + LOOKED_AT_ONCE // 4] if name in state.nodes]
        runs = {node.spec.name: _still_running(on.get(node.spec.name, ())) for node in nodes}
        slots = reduce(or_, [node.slots for node in nodes], NO_SLOTS)
        statuses = statuses_on(
            state, slots, [one for there in runs.values() for one in there if one.tier is Tier.FOREGROUND]
        )
        reports += [_node_report(driver, node, statuses, runs[node.spec.name]) for node in nodes]
        await asyncio.sleep(0)
    return wire.NodeList(tuple(reports))


async def _attempts_by_node(driver: Driver) -> dict[str, list[AttemptView]]:
    """What runs on each node, soonest expected end first; what runs in the background comes last."""
    state, found = driver.core.state, dict[str, list[AttemptView]]()
    for place, attempt in enumerate(chain(state.runs(), state.runs_behind())):
        if place % LOOKED_AT_ONCE == 0:
            await asyncio.sleep(0)
        for name in {state.slot_nodes[slot].spec.name: None for slot in numbers(attempt.slots)}:
            found.setdefault(name, []).append(attempt)
    return found


def _still_running(attempts: Iterable[AttemptView]) -> list[AttemptView]:
    """Those of some attempts that have not ended meanwhile."""
    return [one for one in attempts if one.job.attempts.get(one.task) is one]


def _node_report(
    driver: Driver, node: NodeView, statuses: Mapping[int, SlotStatus], attempts: list[AttemptView]
) -> wire.NodeReport:
    trouble = node.trouble
    return wire.NodeReport(
        name=node.spec.name,
        site=node.spec.site,
        speed=node.spec.speed,
        cores=node.spec.cores,
        up=node.up and (node.power is PowerState.ON or node.waits_to_go_off),
        draining=node.draining,
        closed=node.closed,
        slots=tuple(statuses[slot].value for slot in node.places[: node.spec.slots]),
        attempts=tuple(attempt_report(driver, attempt) for attempt in attempts),
        kind=node.spec.kind,
        closing=count(node.closing),
        cannot=node.spec.capabilities.lacking,
        power=POWER_WORDS[node.power],
        kept_off=node.kept_off,
        trouble="" if trouble is None else trouble.detail,
        failures=0 if trouble is None else trouble.times,
        again=None if trouble is None or trouble.again >= NEVER else seconds(trouble.again),
        engine=driver.sites.engines.get(node.spec.site, LOCAL_ENGINE),
        found=node.spec.found,
    )


async def explanation(driver: Driver, job: JobId, patience: float | None = None) -> wire.Explanation:
    """Why a job waits, for what, and how long; or how an ended job ended.

    Args:
        patience: see `Forecasts.outlook`.
    """
    outlook = await outlook_of(driver, job, exact=True, patience=patience)
    try:
        said, by, note = await driver.explain(job)
    except KeyError:  # it has ended, perhaps while a decider was asked
        kept = row(driver, job)
        status = kept.status or JobStatus.RUNNING
        return wire.Explanation(job, status, "ENDED", f"it has ended: {status.value}{why_ended(driver, kept)}", None)
    view, reason, text = driver.core.state.jobs[job], said.reason, said.text
    if reason is Reason.NO_SHARE and view.endless:
        text = short_of(driver, view) or text
    expected = outlook.jobs.get(job, Expected(job))
    prospect = prospects.of_open(view, outlook, driver.now())
    return wire.Explanation(
        job,
        driver.core.status(job),
        reason.name,
        text,
        seconds(said.start),
        by,
        note,
        () if prospects.has_begun_since(view, outlook) else _awaited(driver, view, expected),
        start_assumes=expected.start_assumes,
        assumed=to_seconds(driver.core.state.estimate_default),
        due=None if view.due >= NEVER else to_seconds(view.due),
        kind=view.kind.name.lower(),
        pool=view.pool.name,
        why_pool=_why_there(driver, job),
        hindered=_hindrances(driver, view),
        starting=bool(there := running_of(view)) and not any(attempt.running for attempt in there),
        **prospect.told(),
    )


def _why_there(driver: Driver, job: JobId) -> str:
    """Why a job is in its pool; of a top level that raises, what it raises."""
    try:
        return driver.core.why_there(job)
    except Exception as raised:  # noqa: BLE001  of whatever policy: the rest of the explanation is wanted all the same
        return f"it is not known why it is there: the policy raised {in_short(repr(raised))}"


def _awaited(driver: Driver, job: JobView, expected: Expected) -> tuple[wire.AwaitedReport, ...]:
    """What a job with ready tasks waits for: by the forecast, else what still runs on its slots."""
    names = partial(slot_names, driver)
    if job.endless:  # its own instances never end
        return ()
    if expected.awaits or not job.held:
        return prospects.told(expected, names)
    others = prospects.on_held_slots(job, names, partial(_expected_end, driver))
    return others if job.all_ready else ()


def why_ended(driver: Driver, row: JobRow) -> str:
    """If a job was cancelled because a job before it did not succeed: which one."""
    if row.status is JobStatus.CANCELLED:
        for before in map(driver.journal.job, row.spec.after):
            if before is not None and before.ended == row.ended and before.status is not JobStatus.SUCCEEDED:
                assert before.status is not None
                return f", because job {before.id}, which it comes after, has ended: {before.status.value}"
    return ""


def deciding(driver: Driver) -> wire.PolicyText:
    """The policy and the decider in use."""
    core = driver.core
    return wire.PolicyText(core.policy, core.decider, core.decider_failed, seconds(core.period))


def metrics(checker: Checker, node: str | None, metric: str | None, since: Instant | None, limit: int) -> wire.Metrics:
    """Metrics of nodes: all since an instant; if that is None, the latest of each."""
    if since is not None:
        rows, more = checker.tables.metrics(since, limit, node=node, metric=metric)
    else:
        last = (row for row in checker.latest.values() if node in (None, row.node) and metric in (None, row.metric))
        rows, more = sorted(last, key=lambda row: (row.at, row.node, row.metric)), False
    return wire.Metrics(tuple(wire.Metric(to_seconds(row.at), row.node, row.metric, row.value) for row in rows), more)


def checker_report(checker: Checker) -> wire.CheckerReport:
    """The status checker and its collectors."""
    return wire.CheckerReport(
        checker.on,
        to_seconds(checker.every),
        tuple(
            wire.CollectorReport(
                watch.name,
                "hangs" if watch.late else "fails" if watch.detail else "works",
                seconds(watch.answered),
                watch.detail,
            )
            for watch in checker.watches.values()
        ),
    )


async def incidents(driver: Driver, after: int, limit: int) -> wire.Incidents:
    """The latest incidents, in order; others are served while many are read."""
    found: list[tuple[int, Incident]] = []
    while len(found) <= limit:
        part = min(LOOKED_AT_ONCE * 10, limit + 1 - len(found))
        some = driver.journal.incidents(part, after, before=found[0][0] if found else None)
        found[:0] = some
        if len(some) < part:
            break
        await asyncio.sleep(0)
    kept = found[max(0, len(found) - limit) :]
    told = (
        wire.IncidentReport(number, to_seconds(told.at), told.kind, told.subject, told.detail, told.by)
        for number, told in kept
    )
    return wire.Incidents(tuple(told), len(found) > limit)


async def tasks_waiting(driver: Driver) -> int:
    """How many tasks wait for slots; jobs that come and go while they are counted may be missed."""
    total = place = first = 0
    while True:
        pools = driver.core.state.each()
        if place >= len(pools):
            return total + sum([job.all_ready - job.ready for job in in_line(driver.core.state)])
        waiting = pools[place].waiting
        some = waiting[first : first + COUNTED_AT_ONCE]
        total += sum([job.ready for job in some if not job.endless])
        first += COUNTED_AT_ONCE
        if first >= len(waiting):
            place, first = place + 1, 0
        if first:
            await asyncio.sleep(0)


async def statistics(driver: Driver) -> wire.Statistics:
    """How the server is doing."""
    waiting = await tasks_waiting(driver)
    core, state, room = driver.core, driver.core.state, driver.room
    totals = state.totals()
    room.look()
    return wire.Statistics(
        version=__version__,
        pid=os.getpid(),
        started=to_seconds(driver.started),
        policy=core.policy,
        jobs=len(state.jobs),
        waiting=waiting,
        running=sum(len(pool.running) for pool in state.each()),
        starting=sum([not attempt.running for attempt in state.runs()]),
        slots=count(totals.up),
        free=count(totals.free),
        busy=count(totals.busy),
        rounds=core.rounds,
        refusals=dict(core.refusals),
        ignored=core.ignored,
        commits=driver.commits,
        recorded=driver.recorded,
        full=str(driver.full.args[0]) if driver.full is not None else "",
        listeners=driver.listeners,
        background=len(state.runs_behind()),
        short=room.short or room.held or room.crowded,
        free_bytes=room.free,
        reserve_bytes=room.reserve,
        stored_bytes=room.stored,
        stored_max=room.outputs_max,
        sites=_sites(driver),
        users={user: wire.SlotsOfUser(one.used, one.most) for user, one in sorted(state.rations.items())},
    )


def _sites(driver: Driver) -> tuple[wire.SiteReport, ...]:
    """The sites that were declared, and what is wrong with their engines."""
    sites, gone = driver.sites, driver.sites.gone
    return tuple(wire.SiteReport(name, engine, gone.get(name, "")) for name, engine in sites.engines.items())
