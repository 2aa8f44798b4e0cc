"""Commands that submit programs as jobs, and print their results."""

from __future__ import annotations

import contextlib
import math
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final

import click
from click.core import ParameterSource

from headway.cli import shell
from headway.cli.main import INTERRUPTED
from headway.cli.outlook import (
    DUE_AUTO,
    GLANCE_SECONDS,
    Wish,
    advice_lines,
    counter_offer,
    foreseen,
    grant,
    outlook_of,
    promise,
)
from headway.cli.paths import GivenPath
from headway.cli.progress import progress
from headway.cli.reach import Command, Reach, asks_server
from headway.cli.show import as_json, bytes_in, clock, counted, instant_in, limit_in, plain, print_json, seconds_in
from headway.cli.tasks import TaskProgram, WithFiles, absent, misplaced, too_wide, variables_in
from headway.cli.typed import Probability
from headway.client.client import Client
from headway.client.job import Job, variables
from headway.client.waiters import Waiter
from headway.errors import HeadwayError, InvalidInput, Refused
from headway.files import KEPT_SCHEME
from headway.model.actions import JobStatus
from headway.model.forecast import SURE
from headway.model.job import PenaltyShape
from headway.model.outcome import Outcome
from headway.wire import Explanation, TaskEnding, TaskResult

TASKS_MAX: Final = 10_000_000
"""Tasks of a job from the command line: few enough to fit in memory."""

ENDS_SOON_SECONDS: Final = 0.5
"""Of a job that ends sooner it is not said when it will."""


AS_GIVEN: Final = {"ignore_unknown_options": False, "allow_interspersed_args": False}
"""Words after the program are its own."""

TERMS: Final = (
    click.option("--name", default="", help="For people; default the program."),
    click.option(
        "--due",
        help="Wanted completion: 18:00, tomorrow 6:00, or 1h30m from now; auto: the earliest that is kept, see --sure.",
    ),
    click.option("--priority", default=0.0, help="Higher is more important; default 0."),
    click.option("--rate", default=1.0, help="What lateness costs, for each unit of its shape; default 1."),
    click.option(
        "--shape",
        type=click.Choice([shape.value for shape in PenaltyShape]),
        default=PenaltyShape.LINEAR.value,
        help="How the penalty grows with the seconds of lateness; default linear.",
    ),
    click.option(
        "--tasks", type=click.IntRange(1, TASKS_MAX), help="How often the program runs, one task each; default once."
    ),
    click.option(
        "--each",
        "files",
        metavar="FILE...",
        multiple=True,
        help="A task for each file, up to the next option or --; {file} is its path, {stem} its name without suffix.",
    ),
    click.option("--together", is_flag=True, help="All tasks start at once, each on a slot, or none does."),
    click.option(
        "--width",
        type=click.IntRange(min=1),
        help="One task with processes on this many slots at once; {i} is the number of the process.",
    ),
    click.option("--estimate", help="Expected run time of a task: 90s, 1h30m, ..."),
    click.option("--time-limit", help="A task that runs longer is ended: 90s, 1h30m, ..."),
    click.option("--memory-limit", help="A task that uses more is ended: 512M, 2G, ..."),
    click.option(
        *("--preemptible/--not-preemptible", "preemptible"),
        default=True,
        help="Whether running tasks may be killed to make room for another job; default: they may.",
    ),
    click.option(
        "--cpu",
        metavar="X[,X...]",
        help="Share of a processor that a process uses, 0 to 1: one value for all, or one for each process.",
    ),
    click.option(
        "--movable",
        is_flag=True,
        help="The program saves its work and ends on SIGTERM, so that it can continue on other slots.",
    ),
    click.option(
        "--after",
        metavar="ID",
        type=int,
        multiple=True,
        help="Start only when this job has succeeded. If it fails or is cancelled, the new job is cancelled too. "
        "May be given many times.",
    ),
    click.option(
        "--feature",
        "features",
        metavar="NAME=NUMBER",
        multiple=True,
        help="A number that describes it, such as mesh=1e6: predictions, forecasts and advice go by it, and `headway "
        "profile` tells how much it matters. May be given many times.",
    ),
    click.option("--retries", default=0, type=click.IntRange(min=0), help="How often a failed task is tried again."),
    click.option("--cwd", default="", metavar="DIR", help="Folder that it runs in; default: the current one."),
    click.option(
        "--env",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="A variable for the tasks; without VALUE it has the value that it has here. May be given many times. "
        "Tasks get PATH, HOME and the like from the server.",
    ),
    click.option("--fresh", is_flag=True, help="Start a new process for each task. For programs this is always so."),
    click.option("--stdin", default="", help="File that a task reads; {i} is its number."),
    click.option(
        "--stdout", default="", help="File for the output of a task; default: it is kept as the task's result."
    ),
    click.option("--stderr", default="", help="The same for stderr."),
    click.option(
        "--input",
        "inputs",
        metavar="PATH=URL",
        multiple=True,
        help="File fetched into each task's own folder, where it runs.",
    ),
    click.option(
        "--output",
        "outputs",
        metavar="PATH=URL",
        multiple=True,
        help="File of that folder, stored at a URL when the task has succeeded.",
    ),
    click.option(
        "--workflow",
        metavar="FILE",
        type=GivenPath(dir_okay=False),
        help="Submit the workflow of programs that this file describes: YAML, or WfFormat (.json). Without COMMAND; "
        "other options go before what the file says.",
    ),
    click.argument("command", metavar="-- COMMAND ARGUMENT...", nargs=-1, type=click.UNPROCESSED),
)
"""Options that say what a job is; `submit` and `advise` have them."""


def terms_of_a_job(command: Command) -> Command:
    """Give a command the options that say what a job is, and the program that it runs."""
    for option in reversed(TERMS):
        command = option(command)
    return command


PROBABILITY: Final = Probability(0, 1, min_open=True, max_open=True)


@click.command(cls=WithFiles, context_settings=AS_GIVEN)
@terms_of_a_job
@click.option("--sure", type=PROBABILITY, help=f"How surely --due auto is kept; default {SURE:g}.")
@click.option(
    "--only-if",
    metavar="P",
    type=PROBABILITY,
    help="Submit nothing unless the due date is kept with at least this probability.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait for the end and print what the tasks wrote. The exit status is that of the worst task.",
)
@as_json
@asks_server
def submit(reach: Reach, sure: float | None, only_if: float | None, wait: bool, as_json: bool, **options: Any) -> int:
    """Submit a program as a job that runs in the current folder, or a workflow of programs.

    In the program's arguments, {i} is the number of the task, from 0. The job's id is printed at once. The job
    continues, whatever happens to this command.
    """
    is_auto = options["due"] == DUE_AUTO
    if sure is not None and not is_auto:
        raise HeadwayError(
            "--sure was given without --due auto",
            f"Add --due auto; --only-if {sure:g} submits nothing unless the due date that you name is as sure.",
        )
    wish = Wish((SURE if sure is None else sure) if is_auto else None, only_if)
    if only_if is not None and options["due"] is None and options["workflow"] is None:
        raise HeadwayError("--only-if was given without a due date", "Add --due, or --due auto.")
    with job_of(options) as made, reach() as client:
        return submitted(client, made(client), wish, wait=wait, as_json=as_json)


@click.command(cls=WithFiles, context_settings=AS_GIVEN)
@terms_of_a_job
@click.option("--sure", type=PROBABILITY, default=SURE, help=f"How surely a due date is to be kept; default {SURE:g}.")
@click.option("--job", "number", metavar="ID", type=int, help="An open job, instead of one to be submitted.")
@as_json
@asks_server
def advise(reach: Reach, sure: float, number: int | None, as_json: bool, **options: Any) -> int:
    """Say which due date a job would keep if it were submitted now; nothing is submitted.

    The options and the program are those of `headway submit`. The exit status is 1 if no date can be told.
    """
    due: Any
    if number is not None:
        with reach() as client:
            found, due = client.advise(number, sure=sure), client.job(number).job.due
    else:
        with job_of(options) as made, reach() as client:
            job = made(client)
            found, due = client.advise(job, sure=sure), job.due
    if as_json:
        print_json(found)
    else:
        for line in advice_lines(found, due, sure):
            click.echo(line)
    return 0 if found.due is not None else 1


@contextmanager
def job_of(options: dict[str, Any]) -> Iterator[Callable[[Client], Job]]:
    """What makes the job that options describe: a program, or the workflow of a file.

    What a server refuses within is said in the words of the options.

    Raises:
        HeadwayError: they describe none.
    """
    context = click.get_current_context()
    of_program = {name: options.pop(name) for name in ("tasks", "files", "width")}
    command, workflow = options.pop("command"), options.pop("workflow")
    env = variables_in(options.pop("env"), "--env")
    for name, read in (
        ("due", instant_in),
        ("estimate", seconds_in),
        ("time_limit", limit_in),
        ("memory_limit", bytes_in),
        ("cpu", shares_in),
    ):
        text = options[name]
        option = f"--{name.replace('_', '-')}"
        options[name] = None if text is None or (name == "due" and text == DUE_AUTO) else read(text, option)
    options["features"] = numbers_in(options["features"], "--feature")
    if workflow is not None:
        with flow_of(context, Path(workflow), {**options, "env": env}, command) as made:
            yield made
        return
    if not command:
        raise click.MissingParameter(ctx=context, param=next(p for p in context.command.params if p.name == "command"))
    places = {name: options.pop(name) for name in ("cwd", "stdin", "stdout", "stderr")}
    inputs, outputs = (pairs(options.pop(f"{kind}s"), f"--{kind}") for kind in ("input", "output"))
    program = TaskProgram(command, places, inputs, outputs, env)
    tasks, each, width = of_program.values()
    job = Job(options.pop("name") or command[0], program.tasks(tasks, each, width), width=width, **options)
    for said in filter(None, (shell.hint(command), misplaced(command, context), absent(places["cwd"]))):
        click.echo(f"Hint: {said}", err=True)
    try:
        yield lambda client: job
    except Refused as refusal:
        raise too_wide(refusal, tasks, len(each), width) or refusal from refusal


def submitted(client: Client, job: Job, wish: Wish, *, wait: bool, as_json: bool) -> int:
    """Submit a job and say how it will do, and on request wait for it. Returns the exit status.

    Raises:
        HeadwayError: it is refused, or is not to be submitted as it is.
    """
    sure = grant(client, job, wish)
    waiter = submit_now(client, job)
    try:
        if not as_json:  # it is submitted, however long a forecast takes
            click.echo(f"Job {waiter.job} is submitted." if wait else waiter.job, err=wait)
        found = None
        if job.due is not None:
            found = outlook_of(client, waiter.job)
        elif wait and not ends_soon(client, waiter):
            found = outlook_of(client, waiter.job, GLANCE_SECONDS)
        known = told(waiter.job, found) | ({} if sure is None else {"sure": sure})
        if not as_json and found is not None:
            for line in outlook_lines(client, found, wait=wait):
                click.echo(line, err=True)
        if not wait:
            if as_json:
                print_json(known)
            return 0
        status = await_end(client, waiter, as_json, known=known)
    except KeyboardInterrupt:
        return interrupted(waiter.job)
    if status != INTERRUPTED:
        with contextlib.suppress(HeadwayError):  # the results have been seen; keeping them does no harm
            client.acknowledge(waiter.job)
    return status


def submit_now(client: Client, job: Job) -> Waiter:
    """Submit a job. A due date that has passed is warned of.

    Raises:
        HeadwayError: the server refuses it.
        click.exceptions.Exit: it was interrupted by ctrl-c.
    """
    if isinstance(job.due, float) and job.due < time.time():
        click.echo(f"Warning: {clock(job.due)} has passed; the job is late from the start.", err=True)
    try:
        return client.submit(job)
    except KeyboardInterrupt:
        click.echo("\nInterrupted while it was sent: `headway jobs` shows whether the job is submitted.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def ends_soon(client: Client, waiter: Waiter) -> bool:
    """Whether a job ends so soon that nobody wants to know when; it returns then."""
    try:
        client.wait(waiter, timeout=ENDS_SOON_SECONDS)
    except TimeoutError:
        return False
    return True


def outlook_lines(client: Client, found: Explanation, *, wait: bool) -> Iterator[str]:
    """How a job will do that was submitted, in sentences.

    Args:
        wait: it is waited for: also when it starts and ends.
    """
    if found.due is not None:
        yield promise(found)
    if wait and (when := foreseen(found)):
        yield when
    yield from counter_offer(client, found)


OF_PROGRAMS: Final = (
    "tasks",
    "files",
    "together",
    "width",
    "cpu",
    "cwd",
    "fresh",
    "stdin",
    "stdout",
    "stderr",
    "inputs",
    "outputs",
)
"""Options that say how one program runs: a file with a workflow says that of each of its tasks."""


@contextmanager
def flow_of(
    context: click.Context, file: Path, terms: dict[str, Any], command: tuple[str, ...]
) -> Iterator[Callable[[Client], Job]]:
    """What makes the workflow of a file; options that were given go before its terms.

    Raises:
        HeadwayError: the file cannot be read or used, or something was given besides that only programs have.
    """
    from headway.cli.workflow_file import read  # with all readers of workflows

    given = {
        param.name: param
        for param in context.command.params
        if context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
    }
    for name in OF_PROGRAMS:
        if name in given:
            raise HeadwayError(
                f"{given[name].opts[0]} and --workflow were both given", "The file says it of each task."
            )
    if command:
        raise HeadwayError(f"--workflow and the program {command[0]!r} were both given", "Submit them as two jobs.")
    flows = []

    def made(client: Client) -> Job:
        flow = read(file, client.upload)
        flows.append(flow)
        for name in given.keys() & terms.keys():
            setattr(flow, name, {**variables(flow.env), **terms[name]} if name == "env" else terms[name])
        return flow

    try:
        yield made
    except HeadwayError as refusal:
        located = flows[0].located(refusal, given.keys()) if flows else refusal
        if located is refusal:
            raise
        raise located from refusal


def told(job: int, found: Explanation | None) -> dict[str, Any]:
    """The JSON for a job that has been submitted."""
    if found is None:
        return {"job": job}
    names = "outlook", "expected_start", "expected_end", "late", "assumes", "chance"
    return {"job": job, **{name: plain(getattr(found, name)) for name in names}}


def shares_in(text: str, option: str) -> tuple[float, ...]:
    """Numbers with commas between them.

    Raises:
        InvalidInput: one is not a number.
    """
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise InvalidInput(option, text, "a number from 0 to 1, or one a process, as 0.5,0.9") from None


def numbers_in(given: tuple[str, ...], option: str) -> dict[str, float]:
    """Words `NAME=NUMBER` as numbers by name.

    Raises:
        InvalidInput: one has no `=`, what follows is no finite number, or a name comes twice.
    """
    found: dict[str, float] = {}
    for word in given:
        name, equals, text = word.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not equals or not name or not math.isfinite(value) or name in found:
            raise InvalidInput(option, word, "NAME=NUMBER, each NAME once", hint="Such as mesh=1e6")
        found[name] = value
    return found


def pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    """Words `PATH=URL` as URLs by path.

    Raises:
        InvalidInput: one has no `=`, or a path comes twice.
    """
    found: dict[str, str] = {}
    for word in given:
        path, equals, url = word.partition("=")
        if not equals or not path or not url or path in found:
            raise InvalidInput(option, word, "PATH=URL, each PATH once", hint="Such as data.csv=/home/me/data{i}.csv")
        found[path] = url
    return found


@click.command()
@click.argument("number", metavar="ID", type=int)
@click.option("--wait", is_flag=True, help="Wait for the end of the job first.")
@click.option(
    "--unpickle", is_flag=True, help="Show values of functions; this runs code of the person who submitted the job."
)
@as_json
@asks_server
def result(reach: Reach, number: int, wait: bool, unpickle: bool, as_json: bool) -> int:
    """Print the results of a job's tasks, in their order. The exit status is that of the worst task.

    The result of a program is what it wrote to stdout and stderr. For functions, --unpickle prints the values that they
    returned.
    """
    with reach() as client:
        if wait:
            return await_end(client, client.attach(number), as_json, unpickle=unpickle)
        found = client.job(number).job
        if not found.status.is_final:
            click.echo(
                f"Job {number} is {found.status.value}: {found.settled} of {found.tasks} tasks have ended.", err=True
            )
        status = print_results(client, number, found.status, as_json, found.done + found.failed, unpickle=unpickle)
    return status if found.status.is_final else max(status, 1)


def await_end(
    client: Client, waiter: Waiter, as_json: bool, *, known: Mapping[str, Any] | None = None, unpickle: bool = False
) -> int:
    """Wait for the end of a job, with progress on a terminal, and print its results. Returns the exit status.

    Ctrl-c prints how to follow the job.

    Args:
        known: what was known of it when it was submitted, for JSON.
    """
    try:
        with progress({f"job {waiter.job}": len(waiter)}, lambda: (waiter.progress[0],)):
            client.wait(waiter)
    except KeyboardInterrupt:
        return interrupted(waiter.job)
    if waiter.status is None:  # its end can no longer be received; the exception says why
        waiter.result()
    assert waiter.status is not None
    return print_results(client, waiter.job, waiter.status, as_json, known=known, unpickle=unpickle)


def interrupted(job: int) -> int:
    """Say after ctrl-c how to follow a job. Returns the exit status."""
    click.echo(
        f"\nJob {job} goes on: `headway result {job} --wait` waits for it again, `headway cancel {job}` ends it.",
        err=True,
    )
    return INTERRUPTED


def print_results(
    client: Client,
    job: int,
    status: JobStatus,
    as_json: bool,
    least: int = 0,
    *,
    known: Mapping[str, Any] | None = None,
    unpickle: bool = False,
) -> int:
    """Print the results. Returns the exit status of the worst.

    Args:
        least: how many tasks have succeeded or failed, at least.
        known: more about it, for JSON.
        unpickle: show values, which runs code of the person who submitted the job.

    Raises:
        HeadwayError: there are fewer results, so some have been cleared.
    """
    results = client.results(job)
    if len(results) < least:
        raise HeadwayError(f"the results of job {job} have been cleared")
    if as_json:
        ended = {"job": job, "status": status.value}
        print_json({**ended, **(known or {}), "results": [in_words(client, one, unpickle) for one in results]})
    else:
        for one in results:
            print_result(client, one, unpickle)
        if status is JobStatus.CANCELLED:
            click.echo(f"Job {job} was cancelled.", err=True)
        elif status is JobStatus.FAILED and (found := client.job(job).job).kind == "workflow":
            never = found.tasks - len(results)
            if never:
                said = f"{counted(never, 'task')} of job {job} never ran: `headway job {job} --tasks` says why."
                click.echo(said, err=True)
    worst = max((exit_status(one.ending) for one in results), default=0)
    return max(worst, 1) if status in (JobStatus.FAILED, JobStatus.CANCELLED) else worst


def print_result(client: Client, one: TaskResult, unpickle: bool) -> None:
    """Print the result of a task: its output unchanged, its value, and how it failed if it did."""
    for rank, ending in _endings(one):
        for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
            stream.flush()
            with written(client, one, rank, ending, name) as file:
                copyfileobj(file, stream.buffer)
            stream.flush()
        for name, cut, lost in (
            ("stdout", ending.stdout_cut, ending.stdout_lost),
            ("stderr", ending.stderr_cut, ending.stderr_lost),
        ):
            if cut:
                why = lost or "it wrote too much"
                click.echo(f"Task {one.task}: {cut} bytes of its {name} were not kept: {why}.", err=True)
        if ending.outcome is Outcome.SUCCEEDED and ending.value is not None:
            click.echo(value_text(ending.value, unpickle))
        for name, url in ending.outputs.items():
            if url.startswith(KEPT_SCHEME):
                click.echo(f"{name} of task {one.task} is kept: headway download {url} PATH", err=True)
    if one.ending.outcome is Outcome.CANCELLED:
        click.echo(f"Task {one.task} of job {one.job} was cancelled.", err=True)
    elif one.ending.outcome is not Outcome.SUCCEEDED:
        click.echo(f"Task {one.task} of job {one.job} failed: {failure(one.ending)}", err=True)


def _endings(one: TaskResult) -> list[tuple[int | None, TaskEnding]]:
    """The endings of a gang's members with their ranks, or that of a single task."""
    return list(enumerate(one.members)) if one.members else [(None, one.ending)]


@contextmanager
def written(client: Client, one: TaskResult, rank: int | None, ending: TaskEnding, name: str) -> Iterator[BinaryIO]:
    """All that was written to a stream; if the server has not kept all, the last part with a remark."""
    is_out = name == "stdout"
    tail, path = (ending.stdout, ending.stdout_path) if is_out else (ending.stderr, ending.stderr_path)
    with TemporaryFile() as file:
        if path:
            try:
                client.output(one.job, file, task=one.task, stream=name, rank=rank)
            except Refused as gone:
                tail = f"[what came before is gone: {gone.args[0]}]\n".encode() + tail
                path = ""
        if not path:
            file.truncate(0)
            file.seek(0)
            file.write(tail)
        file.seek(0)
        yield file


def in_words(client: Client, one: TaskResult, unpickle: bool) -> dict[str, Any]:
    """A result for JSON."""

    def text(rank: int | None, ending: TaskEnding, name: str) -> str:
        with written(client, one, rank, ending, name) as file:
            return file.read().decode("utf-8", "replace")

    ends = [
        {
            "outcome": ending.outcome.value,
            "exit_code": ending.exit_code,
            "detail": ending.detail,
            **{name: text(rank, ending, name) for name in ("stdout", "stderr")},
            "stdout_cut": ending.stdout_cut,
            "stderr_cut": ending.stderr_cut,
            "stdout_lost": ending.stdout_lost,
            "stderr_lost": ending.stderr_lost,
            "value": None if ending.value is None else value_text(ending.value, unpickle),
            "seconds": ending.seconds,
            "outputs": ending.outputs,
        }
        for rank, ending in ((None, one.ending), *enumerate(one.members))
    ]
    return {"task": one.task, "attempt": one.attempt, **ends[0], **({"ranks": ends[1:]} if one.members else {})}


def value_text(value: bytes, unpickle: bool) -> str:
    """What a function returned or raised, as text."""
    if not unpickle:
        return (
            f"<{len(value)} bytes, pickled; `headway result --unpickle` shows them, if you trust who submitted the job>"
        )
    try:
        return repr(pickle.loads(value))
    except Exception as error:  # noqa: BLE001  # unpickling runs code of any class
        return f"<{len(value)} bytes that cannot be read here: {error}>"


def failure(ending: TaskEnding) -> str:
    """How a task failed, in words."""
    return ending.detail.rstrip() or ending.outcome.value


def exit_status(ending: TaskEnding) -> int:
    """The exit status as in a shell: the program's, 128 and the number of its signal, or 1 for any other failure."""
    if ending.outcome is Outcome.SUCCEEDED:
        return 0
    if ending.exit_code is None:
        return 1
    return 128 - ending.exit_code if ending.exit_code < 0 else ending.exit_code or 1
