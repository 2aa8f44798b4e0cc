"""Commands that look at a server's jobs and nodes, and change what it does."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from headway.cli.ended import print_ended, ran, ranges, slots_in_short
from headway.cli.reach import Reach, asks_server
from headway.cli.show import (
    LIKELY,
    age,
    as_json,
    clock,
    counted,
    done,
    money,
    period_in,
    print_json,
    print_table,
    promised,
    share,
    shown,
    span,
    until,
    when,
)
from headway.client.client import Client
from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.model.actions import JobStatus
from headway.model.job import JobId
from headway.wire import AttemptReport, BoundsReport, Explanation, JobReport, NodeReport, SiteDetail, TaskState

STATUS_WORDS = ["open", *(status.value for status in JobStatus)]

NOT_COMPUTED = "not computed"
"""What stands where no end of an open job was found, and the reason is known."""

IN_STATUS = {"succeeded": "has succeeded", "failed": "has failed", "cancelled": "was cancelled"}
"""What a job with one of these statuses has done; with the others it `is` open, held, waiting or running."""

TIMES_COUNT = "These count from a launch until its end is known, as policies see them, and later tasks weigh more."
"""How the run times by class of nodes differ from those of ended tasks, which their nodes measure."""

SOON_SECONDS = 1.0
"""What may happen so soon is not said to happen after a while."""

OLD_SECONDS = 1.0
"""A forecast that is so old says so."""

JOBS_LISTED = 50
"""How many jobs a table has, unless it is said how many or which."""

TEXTS = ("name", "user", "done", "due", "outlook")
"""Columns of the list of jobs that may be folded."""

SPARE_COLUMNS = ("user", "priority", "penalty", "money", "since", "pool", "running")
"""Columns of the list of jobs that are left out where there is no room: the outlook stays."""

MARKS = {"available": "·", "occupied": "○", "busy": "●", "down": "×"}
"""How the status of a slot is drawn."""


@click.command()
@click.option("--status", type=click.Choice(STATUS_WORDS), help="Only these; open: those that have not ended.")
@click.option("--user", help="Only those of this user.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    help=f"How many: the latest.  [default: all with --status or --json, else {JOBS_LISTED}]",
)
@as_json
@asks_server
def jobs(reach: Reach, status: str | None, user: str | None, last: int | None, as_json: bool) -> None:
    """List jobs, the latest last."""
    with reach() as client:
        found = client.jobs(status=status, user=user)
    there = len(found)
    if last is None and status is None and not as_json:
        last = JOBS_LISTED
    found = found if last is None else found[max(0, there - last) :]
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo(no_jobs(status, user))
        return
    rows = [
        (
            str(job.id),
            " ".join(job.name.split()),  # a name may contain line ends
            job.user,
            job.pool,
            status_text(job),
            done(job),
            str(job.running or ""),
            f"{job.priority:g}" if job.priority else "",
            due(job),
            outlook(job) or ends(job),
            cost(job),
            money(job.money) if job.money else "",
            age(job.ended or job.started or job.submitted),
        )
        for job in found
    ]
    columns = (
        "job",
        "name",
        "user",
        "pool",
        "status",
        "done",
        "running",
        "priority",
        "due",
        "outlook",
        "penalty",
        "money",
        "since",
    )
    right = ("job", "done", "running", "priority", "penalty", "money")
    print_table(columns, rows, right=right, fold=TEXTS, spare=SPARE_COLUMNS)
    if len(found) < there:
        click.echo(f"These are the latest {len(found):,} of {there:,} jobs; `headway jobs --last N` lists more.")
    for lack in dict.fromkeys(job.lack for job in found if job.lack):
        click.echo(f"{NOT_COMPUTED.capitalize()}: {lack}.")
    oldest = min(
        (job for job in found if job.expected_at is not None), key=lambda job: job.expected_at or 0, default=None
    )
    if oldest is not None and (since := age_of_forecast(oldest)):
        click.echo(f"Outlooks are those of {since}.")


def status_text(job: JobReport) -> str:
    """The status of a job for people: of one that has slots, whether anything has begun there."""
    is_starting = job.starting and job.starting == job.running and job.status is JobStatus.RUNNING
    return "starting" if is_starting else job.status.value


def no_jobs(status: str | None, user: str | None) -> str:
    """What to say if no job is listed.

    >>> print(no_jobs("failed", "ann"))
    No job of user ann has failed. `headway jobs` lists all jobs.
    """
    if status is None and user is None:
        return "There are no jobs. `headway submit` submits one."
    whose = "" if user is None else f" of user {shown(user)}"
    said = f"There is no job{whose}" if status is None else f"No job{whose} {IN_STATUS.get(status, f'is {status}')}"
    return f"{said}. `headway jobs` lists all jobs."


@click.command()
@click.argument("number", metavar="ID", type=int)
@click.option("--tasks", "each", is_flag=True, help="Show each of its tasks: how far it is, and what it waits for.")
@as_json
@asks_server
def job(reach: Reach, number: int, each: bool, as_json: bool) -> None:
    """Show a job: its terms, its progress, and its running tasks."""
    with reach() as client:
        if each:
            print_tasks(client.tasks(number), as_json)
            return
        detail = client.job(number)
    if as_json:
        print_json(detail)
        return
    found = detail.job
    of = "the share in time that a window lacks" if found.kind == "service" else "tardiness"
    lines = {
        "job": f"{found.id} {found.name}".strip(),
        "status": status_text(found),
        "runs": ran(detail.ran),
        "in": detail.ran.cwd if detail.ran else "",
        "runs again": f"failed tasks of job {detail.retry_of}" if detail.retry_of else "",
        "kind": found.kind + (f", {found.width} slots at once" if found.kind == "rigid" else ""),
        "tasks done": done(found),
        "failed tasks": ranges(detail.failed) + (", ..." if found.failed > len(detail.failed) > 0 else ""),
        "user": found.user,
        "pool": found.pool,
        "priority": f"{found.priority:g}",
        "penalty": "; ".join(filter(None, (f"{found.rate:g} × {of}, {found.shape.value}", costs(found)))),
        "money": f"{money(found.money)} for rented machines" if found.money else "",
        "CPU use": ", ".join(f"{use:.0%}" for use in found.cpu)
        + (" each" if len(found.cpu) == 1 < found.width else ""),
        "movable": "it saves when it is asked to move" if found.movable else "",
        "estimate": "" if found.estimate is None else f"{span(found.estimate)} a task",
        "predicted": "" if detail.predicted is None else f"policies count {span(detail.predicted)} a task",
        "due": f"{clock(found.due)}  {due(found)}".strip(),
        "outlook": outlook(found),
        "expected start" if found.started is None else "next task": expected(found.expected_start, found.assumes),
        "expected end": f"{NOT_COMPUTED}: {found.lack}" if found.lack else expected(found.expected_end, found.assumes),
        "start within": bounds(found.chance.start) if found.chance and found.chance.start else "",
        "end within": bounds(found.chance.end) if found.chance and found.chance.end else "",
        "forecast": age_of_forecast(found),
        "submitted": clock(found.submitted),
        "after": ", ".join(
            f"job {one.job} ({one.status.value if one.status else 'not known any more'})" for one in detail.after
        ),
        "release": clock(found.release) if found.release > found.submitted else "",
        "started": clock(found.started),
        "ended": clock(found.ended),
        "slots": slots_in_short(detail.slots),
        "promised start": promised(detail.promise),
        "work lost": span(detail.lost) + " of slot time" if detail.lost else "",
        "killed and redone": str(detail.kills or ""),
        "moved": str(detail.moves or ""),
    }
    print_table(("", " "), [(name, text) for name, text in lines.items() if text], fold=(" ",))
    if detail.attempts:
        hindered = any(a.hindered for a in detail.attempts)
        columns = ("task", "attempt", "on", "tier", "started", "expected end", *(["hindered"] if hindered else []))
        rows = [
            (
                str(a.task),
                str(a.attempt),
                slots_in_short(a.slots) + (f", goes to {slots_in_short(a.goal)}" if a.goal else ""),
                a.tier,
                when(a.started),
                "unknown" if a.expected_end is None else promised(a.expected_end),
                *([a.hindered] if hindered else []),
            )
            for a in detail.attempts
        ]
        print_table(columns, rows, title="Running", right=("task", "attempt"), fold=("on", "hindered"))
    print_ended(detail)
    if detail.times:
        times = [(known.node_class, str(known.tasks), span(known.mean), span(known.spread)) for known in detail.times]
        title = "Run times by class of nodes"
        print_table(("nodes", "tasks", "mean", "spread"), times, title=title, right=("tasks", "mean", "spread"))
        click.echo(TIMES_COUNT)


@click.command()
@as_json
@asks_server
def nodes(reach: Reach, as_json: bool) -> None:
    """Show the nodes, their sites and engines, their slots and what runs on them."""
    with reach() as client:
        found = client.nodes()
        sites = [] if found or as_json else client.sites()
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo(no_nodes(sites))
        return
    rows = [
        (
            node.name,
            node.site,
            node.engine,
            node.kind,
            f"{node.speed:g}",
            node_status(node),
            " ".join(node.cannot),
            "".join(MARKS[status] for status in node.slots),
            ", ".join(f"{one.job}.{one.task}" for one in in_tier(node, "foreground")),
            ", ".join(behind(one, node) for one in in_tier(node, "background")),
        )
        for node in found
    ]
    runs = ("runs (job.task)", "in the background, on slots")
    columns = ("node", "site", "engine", "kind", "speed", "status", "cannot", "slots", *runs)
    width = len(columns) - (not any(row[-1] for row in rows))
    wide = ("cannot", "slots", *columns[-2:width])
    print_table(columns[:width], [row[:width] for row in rows], right=("speed",), fold=wide)
    click.echo("  ".join(f"{mark} {status}" for status, mark in MARKS.items()))
    for node in found:
        if node.trouble:
            click.echo(trouble_of(node))


def no_nodes(sites: Sequence[SiteDetail]) -> str:
    """That there are no nodes, and how some come: at some of these sites their engine finds them."""
    finding = ", ".join(f"{site.name} ({site.engine})" for site in sites if site.finds)
    added = not finding or not all(site.finds for site in sites)
    ways = ["`headway node add NAME` adds one"] if added else []
    if finding:
        ways.append(f"those of site {finding} are found as they come")
    said = "; ".join((*ways, "`headway status` says whether an engine is gone"))
    return f"There are no nodes. {said[0].upper()}{said[1:]}."


def in_tier(node: NodeReport, tier: str) -> list[AttemptReport]:
    """What runs in one tier of a node's slots, in order of the slots."""
    return sorted((one for one in node.attempts if one.tier == tier), key=lambda one: places(one, node))


def places(attempt: AttemptReport, node: NodeReport) -> list[int]:
    """Which slots of a node an attempt has, rising."""
    found = (slot.rpartition("/") for slot in attempt.slots)
    return sorted(int(index) for name, _, index in found if name == node.name)


def behind(attempt: AttemptReport, node: NodeReport) -> str:
    """What runs in the background, and on which slots of this node."""
    return f"{attempt.job}.{attempt.task} on {' '.join(map(str, places(attempt, node)))}"


def node_status(node: NodeReport) -> str:
    """Whether a node is up and takes something new, and whether it or slots of it are about to leave; how often it
    could not be switched.
    """
    if node.draining:
        return "drains"
    if node.power != "on":
        said = f"{node.power}, kept off" if node.kept_off else node.power
    else:
        said = ("closed" if node.closed else "up" if node.up else "down") + (
            f", {node.closing} slots go" if node.closing else ""
        )
    return said + (f", failed {node.failures}x" if node.failures else "")


def trouble_of(node: NodeReport) -> str:
    """Why a node could not be switched, and when it is tried again."""
    wanted = "on" if node.power == "coming on" else "off"
    then = "it is tried again now" if node.again is None else f"it is tried again after {clock(node.again)}"
    return f"Node {node.name} could not be switched {wanted}: {node.trouble}; {then}."


def titled(state: TaskState) -> str:
    """The number of a task, with its name if it has one."""
    return f"{state.task} {shown(state.name)}".rstrip()


def task_in(client: Client, job: JobId, text: str, option: str = "--task") -> int:
    """The number of a task that is given by its number or its name.

    Raises:
        InvalidInput: the job has no such task.
    """
    count = client.job(job).job.tasks
    if text.isdecimal() and int(text) < count:
        return int(text)
    names = {} if text.isdecimal() else {one.name: one.task for one in client.tasks(job) if one.name}
    if text not in names:
        named = ", or their names" if names else ""
        given = int(text) if text.isdecimal() else text
        numbers = "0, the only task" if count == 1 else f"0 to {count - 1}, the tasks"
        allowed = f"{numbers} of job {job}{named}"
        raise InvalidInput(option, given, allowed, hint=did_you_mean(text, names))
    return names[text]


def print_tasks(found: list[TaskState], as_json: bool) -> None:
    """Print how far each task of a job is."""
    if as_json:
        print_json(found)
        return
    hindered = any(one.hindered for one in found)
    rows = [
        (
            str(one.task) + (f" (was {one.number})" if one.number != one.task else ""),
            one.name,
            one.state,
            ranges(one.after),
            slots_in_short(one.slots) or one.node,
            when(one.start) if one.state == "running" else promised(one.start),
            *([one.hindered] if hindered else []),
        )
        for one in found
    ]
    columns = ("task", "name", "state", "because of tasks", "on", "start", *(["hindered"] if hindered else []))
    print_table(columns, rows, fold=("name", "because of tasks", "on", "hindered"))


def at(instant: float) -> str:
    """An instant on the clock, and relative to now."""
    return f"at {clock(instant)}, {when(instant)}"


@click.command()
@click.argument("numbers", metavar="ID...", type=int, nargs=-1, required=True)
@click.option(
    *("--task", "named"),
    metavar="N",
    multiple=True,
    help="Only this task of the job, by its number, or its name in a workflow; may be given many times.",
)
@as_json
@asks_server
def cancel(reach: Reach, numbers: tuple[int, ...], named: tuple[str, ...], as_json: bool) -> None:
    """End jobs, or tasks of one job. Waiting tasks are dropped, running ones killed."""
    if named and len(numbers) > 1:
        raise HeadwayError(
            "--task goes with one ID", "Each job numbers its own tasks: cancel the tasks of one job at a time."
        )
    with reach() as client:
        tasks = [task_in(client, numbers[0], text) for text in named]
        changed = client.cancel_task(numbers[0], *tasks) if tasks else client.cancel(*numbers)
    wanted = len(set(tasks or numbers))
    if as_json:
        print_json({"cancelled": changed})
    else:
        others = "" if changed == wanted else f" {changed} of {wanted}; what had ended stays as it was"
        click.echo(f"Cancelled{others}.")


@click.command()
@click.argument("text", metavar="[NAME[:KEY=VALUE,...]]", required=False)
@click.option("--decider", help="URL of a decider that makes the plans, or none. If it fails, the policy makes them.")
@click.option("--period", help="Run the policy at least this often: 30s, 5m, or none.")
@as_json
@asks_server
def policy(reach: Reach, text: str | None, decider: str | None, period: str | None, as_json: bool) -> None:
    """Show the policy, decider and period, or change them. Running tasks are not stopped."""
    with reach() as client:
        if (text, decider, period) != (None, None, None):
            client.choose_policy(
                text or "",
                decider="" if decider == "none" else decider,
                period=period_in(period),
            )
        found = client.deciding()
    if as_json:
        print_json(found)
        return
    click.echo(found.policy)
    if found.decider:
        how = "has failed, so the policy makes the plans" if found.decider_failed else "makes the plans"
        click.echo(f"The decider at {found.decider} {how}.")
    if found.period is not None:
        click.echo(f"The policy runs at least every {span(found.period)}.")


def due(job: JobReport) -> str:
    """The due date of an open job, seen from now."""
    return when(job.due) if job.ended is None else ""


def outlook(job: JobReport | Explanation) -> str:
    """Whether a job will keep its due date, or has kept it; empty if it ended without success.

    Where earlier run times tell otherwise than the estimates, they count: a job that is late by its estimates alone is
    said to be on time with the probability that it has.
    """
    if job.status is JobStatus.SUCCEEDED:
        return f"{span(job.late)} late" if job.late else "in time" if job.outlook else ""
    chance = chance_of(job)
    known = None if job.chance is None else job.chance.on_time
    has_passed = job.due is not None and job.due < time.time()
    if known is not None and job.outlook and not has_passed and (known >= LIKELY) == (job.outlook == "late"):
        return f"{chance} on time"
    if job.outlook == "unknown":
        if chance:
            return f"{chance} on time"
        return "not known, no estimate" if job.assumes else "not known"
    said: str = job.outlook or ""
    if has_passed:
        chance = ""  # it was told before
    if job.outlook == "late" and job.late:
        is_known = job.expected_end is not None and not job.assumes
        said = f"late by {'about' if is_known else 'more than'} {span(job.late)}"
    return f"{said} ({chance} on time)" if said and chance and not is_settled(chance, said) else said


def chance_of(job: JobReport | Explanation) -> str:
    """With which probability a job is on time; empty if that is not known."""
    known = None if job.chance is None else job.chance.on_time
    return "" if known is None else share(known)


def age_of_forecast(job: JobReport | Explanation) -> str:
    """How old what is expected of a job is, and what has come since; empty if it is of now."""
    if not job.behind or job.expected_at is None or time.time() - job.expected_at < OLD_SECONDS:
        return ""
    return f"{span(time.time() - job.expected_at)} ago; {counted(job.behind, 'event')} came since"


def is_settled(chance: str, outlook: str) -> bool:
    """Whether the probability says no more than the word before it."""
    return chance == ("< 1 %" if outlook.startswith("late") else "> 99 %")


def bounds(found: BoundsReport) -> str:
    """Between which instants something happens.

    >>> bounds(BoundsReport(None, None, None, None, None))
    'later than is looked ahead'
    """
    parts, now = [], time.time()
    for low, high, level, side in ((found.low_90, found.high_90, 90, 95), (found.low_50, found.high_50, 50, 75)):
        if low is None:
            continue
        if high is None:
            parts.append(f"not before {until(low)} ({side} %)")
        elif low > now + SOON_SECONDS and span(low - now) == span(high - now):
            parts.append(f"in {span(low - now)} ({level} %)")
            break  # what lies within is the same
        elif low <= now + SOON_SECONDS:
            parts.append(f"within {span(max(0.0, high - now))} ({level} %)")
        else:
            parts.append(f"in {span(low - now)} to {span(high - now)} ({level} %)")
    return ", ".join(parts) or "later than is looked ahead"


def cost(job: JobReport) -> str:
    """The penalty of a job, in a column: as it will be, or at least is; empty if it costs nothing."""
    amount = job.penalty if job.penalty_expected is None else job.penalty_expected
    return f"{amount:.4g}" if amount else ""


def costs(job: JobReport | Explanation) -> str:
    """The penalty of a job so far and as expected; empty if it costs nothing."""
    expected = job.penalty_expected
    if job.status.is_final:
        return f"{job.penalty:.4g}" if job.penalty else ""
    if not job.penalty and not expected:
        return ""
    return f"{job.penalty:.4g} so far" + ("" if expected is None else f", {expected:.4g} expected")


def ends(job: JobReport) -> str:
    """When a job without a due date is expected to end: with 90 %, or by its estimates where nothing tells how sure."""
    if job.lack:
        return NOT_COMPUTED
    if job.chance is not None and job.chance.end is not None:
        low, high = job.chance.end.low_90, job.chance.end.high_90
        return f"ends {bounds(BoundsReport(low, None, None, None, high))}"
    return f"ends {until(job.expected_end)}" if job.expected_end is not None and not job.assumes else ""


def expected(instant: float | None, assumes: tuple[int, ...]) -> str:
    """An expected instant, unless it depends on assumed run times."""
    return "" if instant is None or assumes else f"{clock(instant)}  {until(instant)}"
