"""Commands for services: start one, ask it, list them."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from headway.cli.paths import GivenPath
from headway.cli.reach import Reach, asks_server
from headway.cli.show import as_json, bytes_in, print_json, print_table, seconds_in, when
from headway.cli.tasks import variables_in
from headway.client.client import Client
from headway.client.service import INSTANCES_MAX, RETRIES, Service
from headway.errors import HeadwayError, InvalidInput
from headway.model.job import Kind, PenaltyShape
from headway.model.policy import serves_of
from headway.policies.registry import find
from headway.wire import ServiceReport, WindowReport

READY_SECONDS: Final = 600.0
"""How long `--wait` waits for an instance."""

READY_LOOK_SECONDS: Final = 0.1


@click.command()
@click.argument("name")
@click.option("--handler", metavar="MODULE:FUNCTION", default="", help="The function that answers requests.")
@click.option(
    "--command",
    default="",
    help="A program with its arguments that answers them instead, in quotes. It reads the request on its stdin.",
)
@click.option("--threshold", default="1s", help="A later answer is late: 200ms, 2s, ...; default 1s.")
@click.option("--fraction", default=0.9, help="Share of the answers that are to be in time; default 0.9.")
@click.option("--rate", default=1.0, help="What it costs if no answer of a window is in time; default 1.")
@click.option(
    "--shape",
    type=click.Choice([shape.value for shape in PenaltyShape]),
    default=PenaltyShape.LINEAR.value,
    help="How the penalty grows with the share that is missing; default linear.",
)
@click.option("--min", "least", default=1, help="Instances that it has at least; default 1.")
@click.option("--max", "most", default=INSTANCES_MAX, help=f"Instances that it has at most; default {INSTANCES_MAX}.")
@click.option("--window", default="20s", help="How often answers are counted and slots dealt out; default 20s.")
@click.option("--time-limit", default="60s", help="An instance may work for so long on a request; default 60s.")
@click.option("--wait-limit", default="60s", help="A request may wait for an instance for so long; default 60s.")
@click.option("--load-limit", default="10m", help="An instance may take so long to load the handler; default 10m.")
@click.option("--queue", type=int, help="So many requests may wait; default 10000.")
@click.option("--request-max", help="Size of a request: 100K, 1M, ...; default 1M.")
@click.option("--answer-max", help="Size of an answer; default 8M.")
@click.option(
    "--retries", default=RETRIES, type=click.IntRange(min=0), help=f"Failures within a window; default {RETRIES}."
)
@click.option("--memory-limit", help="An instance that uses more is ended: 512M, 2G, ...")
@click.option("--priority", default=0.0, help="Higher is more important, to policies that know priorities.")
@click.option("--cwd", default="", metavar="DIR", help="Folder that instances run in; default: the current one.")
@click.option(
    "--env",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for the instances; without VALUE it has the value that it has here. May be given many times.",
)
@click.option("--replace", is_flag=True, help="Take the place of the service of this name, without losing a request.")
@click.option("--wait", is_flag=True, help="Return when an instance is ready.")
@as_json
@asks_server
def serve(
    reach: Reach,
    name: str,
    command: str,
    handler: str,
    threshold: str,
    window: str,
    env: tuple[str, ...],
    replace: bool,
    wait: bool,
    as_json: bool,
    **terms: Any,
) -> int:
    """Start a service. Requests are sent to it by its NAME; its job's id is printed.

    Its instances run until it is cancelled (`headway cancel ID`). A handler gets one argument and returns the answer.

    \b
    headway serve double --handler app:double --threshold 200ms --fraction 0.9 --rate 10000
    headway ask double 4
    """
    if bool(handler) == bool(command):
        raise InvalidInput("--handler", handler or "empty", "either --handler MODULE:FUNCTION or --command PROGRAM")
    for field in _LIMITS:
        terms[field] = seconds_in(terms[field], _option(field))
    for field, smallest in _SIZES.items():
        terms[field] = None if terms[field] is None else bytes_in(terms[field], _option(field), smallest)
    service = Service(
        name,
        handler or None,
        command=_words(command),
        threshold=seconds_in(threshold, "--threshold"),
        window=seconds_in(window, "--window"),
        env=variables_in(env, "--env"),
        **terms,
    )
    with reach() as client:
        waiter = client.serve(service, replace=replace)
        hint = unserved(client.policy())
        if not wait or hint:
            print_json({"job": waiter.job, "service": name}) if as_json else click.echo(waiter.job)
        if hint:
            click.echo(f"Hint: {hint}", err=True)
            return int(wait)
        if hint := crowded(client):
            click.echo(f"Hint: {hint}", err=True)
        if not wait:
            return 0
        ready = _await_instance(client, waiter.job, name)
        print_json({"job": waiter.job, "service": name, "ready": ready}) if as_json else click.echo(waiter.job)
        return 0 if ready else 1


_LIMITS: Final = ("time_limit", "wait_limit", "load_limit")
_SIZES: Final = {"request_max": "1K", "answer_max": "1K", "memory_limit": "1M"}
"""Sizes, and the smallest that each may be."""


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _words(command: str) -> list[str]:
    """A program and its arguments, as a shell splits them.

    Raises:
        InvalidInput: a quote is not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidInput("--command", command, f"a program and its arguments ({error})") from error
    if words and "/" in words[0]:
        words[0] = os.path.abspath(words[0])
    return words


def unserved(policy: str) -> str:
    """What to do about a policy that gives services no slots; empty: it does."""
    try:
        if Kind.SERVICE in serves_of(find(policy)):
            return ""
    except HeadwayError:  # the server knows it, this program does not
        return ""
    inner = policy.replace(",", ";")
    return (
        f"the policy {policy} gives services no slots, so no instance starts: "
        f"`headway policy 'services:batch={inner}'` lets it have the batch jobs only"
    )


def crowded(client: Client) -> str:
    """What to do about services that want more instances than there are slots; empty: they do not."""
    wanted, slots = sum(service.least for service in client.services()), client.statistics().slots
    if wanted <= slots:
        return ""
    return (
        f"all services together are to have {wanted} instances at least, and the cluster has {slots} slots: the first "
        "get theirs, the others wait. Add slots, or give some service a lower --min"
    )


def _await_instance(client: Client, job: int, name: str) -> bool:
    """Wait until an instance of a service's job is ready; returns False if the job ends before that."""
    until, told = time.monotonic() + READY_SECONDS, ""
    while time.monotonic() < until:
        report = next((one for one in client.services() if one.name == name), None)
        if report is not None and report.job == job and report.ready:
            return True
        found = client.job(job)
        if found.job.status.is_final:
            why = next((one.stderr or one.detail for one in found.ended), "").strip()
            if why:
                said = "its handler cannot be loaded" if told else why.splitlines()[-1]
                why = f": {said}. `headway logs {job} --stream stderr` says more"
            click.echo(f"service {name} has ended, {found.job.status.value}{why}", err=True)
            return False
        if report is not None and report.trouble and (said := report.trouble.strip().splitlines()[-1]) != told:
            told = said
            click.echo(f"service {name} cannot load its handler: {said}", err=True)
        time.sleep(READY_LOOK_SECONDS)
    click.echo(f"no instance of service {name} was ready within {READY_SECONDS:.0f} s", err=True)
    return False


@click.command()
@click.argument("name")
@click.argument("request", metavar="[REQUEST]", required=False)
@click.option("--file", type=GivenPath(dir_okay=False, exists=True), help="Send this file, as bytes.")
@click.option("--timeout", metavar="SPAN", help="Wait no longer than this for the answer: 90s, 1h30m, ...")
@asks_server
def ask(reach: Reach, name: str, request: str | None, file: str | None, timeout: str | None) -> None:
    """Send a request to a service and print its answer.

    REQUEST is JSON, or any other text, which is sent as a JSON text. Without it, what comes on stdin is sent as bytes.
    """
    if request is not None and file is not None:
        raise InvalidInput("--file", file, "a request or a file, one of them")
    seconds = None if timeout is None else seconds_in(timeout, "--timeout")
    body: Any = None
    if request is not None:
        try:
            body = msgspec.json.decode(request)
        except msgspec.DecodeError:
            body = request
    else:
        body = sys.stdin.buffer.read() if file is None else Path(file).read_bytes()
    with reach() as client:
        answer = client.ask(name, body, timeout=seconds)
    if isinstance(answer, bytes):
        sys.stdout.buffer.write(answer)
    else:
        print_json(answer)


@click.command()
@click.argument("name", required=False)
@as_json
@asks_server
def services(reach: Reach, name: str | None, as_json: bool) -> None:
    """List the services, or show the last windows of one."""
    with reach() as client:
        found = client.services() if name is None else [client.service(name)]
    if as_json:
        print_json(found if name is None else found[0])
        return
    if not found:
        click.echo("There are no services. `headway serve` starts one.")
        return
    rows = [
        (
            service.name,
            str(service.job) + (f" → {service.next}" if service.next else ""),
            service.handler,
            f"{service.ready} of {service.least}–{service.most}",
            str(service.queued),
            *_told(service.windows[-1] if service.windows else None),
            f"{service.penalty:.4g}",
        )
        for service in found
    ]
    columns = ("service", "job", "answers", "ready", "waiting", "req/s", "in time", "mean", "penalty")
    right = ("waiting", "req/s", "in time", "mean", "penalty")
    print_table(columns, rows, right=right, fold=("service", "answers"))
    for service in found:
        if service.trouble:
            click.echo(f"{service.name} cannot load its handler: {service.trouble.strip().splitlines()[-1]}")
    if name is not None and found[0].windows:
        _print_windows(found[0])


def _told(window: WindowReport | None) -> tuple[str, str, str]:
    if window is None:
        return ("", "", "")
    mean = f"{window.response * 1000:.3g} ms" if window.answered else ""
    return (f"{window.arrivals / window.length:.4g}", f"{window.share:.1%}" if window.arrivals else "", mean)


def _print_windows(service: ServiceReport) -> None:
    rows = [
        (
            when(window.start),
            str(window.arrivals),
            f"{window.share:.1%}" if window.arrivals else "",
            str(window.queued),
            str(window.rejected),
            str(window.failed + window.timed_out),
            f"{window.instances:.3g}",
            f"{window.processing * 1000:.3g} ms" if window.processing else "",
            f"{window.response * 1000:.3g} ms" if window.answered else "",
            f"{window.penalty:.4g}",
        )
        for window in service.windows
    ]
    columns = ("window", "came", "in time", "waiting", "refused", "failed", "instances", "work", "mean", "penalty")
    wanted = f"{service.fraction:.0%} within {service.threshold:g} s"
    print_table(columns, rows, title=f"Windows of {service.window:g} s; wanted: {wanted}", right=columns[1:])
