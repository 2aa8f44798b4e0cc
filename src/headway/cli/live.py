"""Commands that look at a server's jobs and nodes, and change what it does."""

from __future__ import annotations

import click

from headway.cli.reach import Reach, asks_server
from headway.cli.show import as_json, clock, period_in, print_json, print_table, span, when
from headway.model.actions import JobStatus
from headway.model.instant import to_seconds
from headway.wire import AttemptReport, JobReport, NodeReport

STATUSES = ["open", *(status.value for status in JobStatus)]

FULLY_SERVED = ("RUNS", "RUNS_BEHIND", "TASKS_DEPEND", "STARTS_NOW")
"""Reasons of a job that runs of which no part waits for a decision."""

MARKS = {"available": "·", "occupied": "○", "busy": "●", "down": "×"}
"""How the status of a slot is drawn."""


@click.command()
@click.option("--status", type=click.Choice(STATUSES), help="Only these; open: those that have not ended.")
@click.option("--user", help="Only those of this user.")
@click.option("--last", default=50, show_default=True, type=click.IntRange(min=1), help="So many, the latest.")
@as_json
@asks_server
def jobs(reach: Reach, status: str | None, user: str | None, last: int, as_json: bool) -> None:
    """List jobs, the latest last."""
    with reach() as client:
        found = client.jobs(status=status, user=user, last=last)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            str(job.id),
            " ".join(job.name.split()),  # a name may hold line ends
            job.user,
            job.status.value,
            done(job),
            str(job.running or ""),
            f"{job.priority:g}" if job.priority else "",
            due(job),
            when(job.ended or job.started or job.submitted),
        )
        for job in found
    ]
    columns = ("job", "name", "user", "status", "done", "running", "priority", "due", "since")
    print_table(columns, rows, right=("job", "done", "running", "priority"), fold=("name",))


@click.command()
@click.argument("number", metavar="ID", type=int)
@as_json
@asks_server
def job(reach: Reach, number: int, as_json: bool) -> None:
    """Show a job: its terms, how far it is, and what runs of it."""
    with reach() as client:
        detail = client.job(number)
    if as_json:
        print_json(detail)
        return
    found = detail.job
    lines = {
        "job": f"{found.id} {found.name}".strip(),
        "status": found.status.value,
        "kind": found.kind + (f", {found.width} slots at once" if found.kind == "rigid" else ""),
        "tasks done": done(found),
        "user": found.user,
        "priority": f"{found.priority:g}",
        "penalty": f"{found.rate:g} × tardiness, {found.shape.value}",
        "CPU use": ", ".join(f"{use:.0%}" for use in found.cpu)
        + (" each" if len(found.cpu) == 1 < found.width else ""),
        "movable": "it saves when it is asked to move" if found.movable else "",
        "estimate": "" if found.estimate is None else f"{span(to_seconds(found.estimate))} a task",
        "due": f"{clock(found.due)}  {due(found)}".strip(),
        "submitted": clock(found.submitted),
        "release": clock(found.release) if found.release > found.submitted else "",
        "started": clock(found.started),
        "ended": clock(found.ended),
        "holds": ", ".join(detail.slots),
        "promised start": when(detail.promise),
        "work lost": span(to_seconds(detail.lost)) + " of slot time" if detail.lost else "",
        "killed and redone": str(detail.kills or ""),
        "moved": str(detail.moves or ""),
    }
    print_table(("", ""), [(name, text) for name, text in lines.items() if text], fold=("",))
    if detail.attempts:
        columns = ("task", "attempt", "on", "tier", "started", "expected end")
        rows = [
            (
                str(a.task),
                str(a.attempt),
                ", ".join(a.slots) + (f", goes to {', '.join(a.goal)}" if a.goal else ""),
                a.tier,
                when(a.started),
                "unknown" if a.expected_end is None else when(a.expected_end),
            )
            for a in detail.attempts
        ]
        print_table(columns, rows, title="Running", right=("task", "attempt"), fold=("on",))
    if detail.times:
        times = [
            (known.node_class, str(known.tasks), span(to_seconds(known.mean)), span(to_seconds(known.spread)))
            for known in detail.times
        ]
        title = "Run times by class of nodes"
        print_table(("nodes", "tasks", "mean", "spread"), times, title=title, right=("tasks", "mean", "spread"))


@click.command()
@as_json
@asks_server
def nodes(reach: Reach, as_json: bool) -> None:
    """Show the nodes, their slots and what runs on them."""
    with reach() as client:
        found = client.nodes()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            node.name,
            node.site,
            node.kind,
            f"{node.speed:g}",
            node_status(node),
            "".join(MARKS[status] for status in node.slots),
            ", ".join(f"{one.job}.{one.task}" for one in in_tier(node, "foreground")),
            ", ".join(behind(one, node) for one in in_tier(node, "background")),
        )
        for node in found
    ]
    columns = ("node", "site", "kind", "speed", "status", "slots", "runs (job.task)", "in the background, on slots")
    shown = len(columns) - (not any(row[-1] for row in rows))
    wide = ("slots", *columns[-2:shown])
    print_table(columns[:shown], [row[:shown] for row in rows], right=("speed",), fold=wide)
    click.echo("  ".join(f"{mark} {status}" for status, mark in MARKS.items()))


def in_tier(node: NodeReport, tier: str) -> list[AttemptReport]:
    """What runs in one of the places of a node's slots, in order of the slots."""
    return sorted((one for one in node.attempts if one.tier == tier), key=lambda one: places(one, node))


def places(attempt: AttemptReport, node: NodeReport) -> list[int]:
    """Which slots of a node an attempt has, rising."""
    found = (slot.rpartition("/") for slot in attempt.slots)
    return sorted(int(index) for name, _, index in found if name == node.name)


def behind(attempt: AttemptReport, node: NodeReport) -> str:
    """What runs in the background, and of which slots of this node."""
    return f"{attempt.job}.{attempt.task} on {' '.join(map(str, places(attempt, node)))}"


def node_status(node: NodeReport) -> str:
    """Whether a node is up, and whether it or slots of it are about to leave."""
    if node.draining:
        return "drains"
    return ("up" if node.up else "down") + (f", {node.closing} slots go" if node.closing else "")


@click.command()
@click.argument("number", metavar="ID", type=int)
@as_json
@asks_server
def explain(reach: Reach, number: int, as_json: bool) -> None:
    """Say why a job waits, and when it is expected to start where the policy promises a start."""
    with reach() as client:
        found = client.explain(number)
    if as_json:
        print_json(found)
        return
    if found.status.is_final:
        click.echo(f"Job {found.job} {found.text.removeprefix('it ')}.")
    elif found.status is JobStatus.RUNNING and found.reason not in FULLY_SERVED:
        click.echo(f"Job {found.job} is running. Why not more of it: {found.text}.")
    else:
        click.echo(f"Job {found.job} is {found.status.value}: {found.text}.")
    if found.start is not None and found.reason != "STARTS_NOW":
        click.echo(f"Its start is promised at {clock(found.start)}, {when(found.start)}.")
    if found.note:
        click.echo(f"By policy {found.by}; {found.note}.")


@click.command()
@click.argument("numbers", metavar="ID...", type=int, nargs=-1, required=True)
@click.option(
    "--task", "tasks", metavar="N", type=int, multiple=True, help="Only this task of the job; may be given many times."
)
@as_json
@asks_server
def cancel(reach: Reach, numbers: tuple[int, ...], tasks: tuple[int, ...], as_json: bool) -> None:
    """End jobs, or tasks of one job: what waits of them is dropped, what runs is killed."""
    if tasks and len(numbers) > 1:
        raise click.UsageError("--task is of one job: name one ID.")
    with reach() as client:
        changed = client.cancel_task(numbers[0], *tasks) if tasks else client.cancel(*numbers)
    wanted = len(set(tasks or numbers))
    if as_json:
        print_json({"cancelled": changed})
    else:
        others = "" if changed == wanted else f" {changed} of {wanted}; what had ended stays as it was"
        click.echo(f"Cancelled{others}.")


@click.command()
@click.argument("text", metavar="[NAME[:KEY=VALUE,...]]", required=False)
@click.option("--decider", help="URL of a decider where plans come from, or none; the policy stands in for it.")
@click.option("--period", help="A round is held at least this often, as 30s or 5m, or none.")
@as_json
@asks_server
def policy(reach: Reach, text: str | None, decider: str | None, period: str | None, as_json: bool) -> None:
    """Show what decides, or let another policy or decider do so from now on. Nothing that runs is stopped."""
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
        how = "has failed, so the policy decides" if found.decider_failed else "decides, the policy stands in for it"
        click.echo(f"The decider at {found.decider} {how}.")
    if found.period is not None:
        click.echo(f"A round is held at least every {span(to_seconds(found.period))}.")


def done(job: JobReport) -> str:
    """How many tasks are done, and how many of them failed."""
    return f"{job.done}/{job.tasks}" + (f", {job.failed} failed" if job.failed else "")


def due(job: JobReport) -> str:
    """The due date of a job that goes on, seen from now; of one that has ended, whether it was kept."""
    if job.due is None or job.ended is None:
        return when(job.due)
    late = to_seconds(job.ended - job.due)
    return f"{span(late)} late" if late > 0 else "in time"
