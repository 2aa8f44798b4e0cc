"""The command that ends the server of a data directory."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from headway.cli.main import GOES_ON
from headway.cli.paths import GivenPath
from headway.cli.show import as_json, print_json, seconds_in
from headway.client.address import data_directory
from headway.client.client import Client
from headway.errors import HeadwayError, InvalidInput, Unreachable
from headway.live.store.opening import has_been_used, holder

LOCK_LOOK_SECONDS: Final = 0.02
"""How often the lock of the directory is looked at, where the process itself cannot be waited for."""


@click.command()
@click.option("--data", type=GivenPath(file_okay=False), help="Data directory of the server.")
@click.option("--timeout", metavar="SPAN", help="Wait no longer than this: 90s, 5m. The server still stops later.")
@as_json
def stop(data: str | None, timeout: str | None, as_json: bool) -> int:
    """Stop the server of this data directory cleanly, and wait until its process is gone.

    Running tasks are ended, and redone at the next start. Exit status: 0 it has stopped, or none ran; 3 not within
    --timeout.
    """
    seconds = None if timeout is None else seconds_in(timeout, "--timeout")
    folder = data_directory(data)
    pid = holder(folder)
    if pid is None:
        if not has_been_used(folder):
            raise InvalidInput("data", str(folder), "the data directory of a server")
        print_json({"stopped": False, "pid": None}) if as_json else click.echo(f"No server runs on {folder}.")
        return 0
    with gone(pid) as is_gone:
        ask_to_end(folder, pid)
        until = None if seconds is None else time.monotonic() + seconds
        while not (is_gone() and holder(folder) != pid):
            if until is not None and time.monotonic() > until:
                click.echo(f"Process {pid} has not ended within {timeout}; it is still stopping.", err=True)
                return GOES_ON
    print_json({"stopped": True, "pid": pid}) if as_json else click.echo(f"The server on {folder} has ended.")
    return 0


def ask_to_end(folder: Path, pid: int) -> None:
    """Ask the server of a data directory to end cleanly.

    Raises:
        HeadwayError: it does not answer.
    """
    try:
        with Client(data=folder, patience=0, acknowledge=False) as client:
            client.shut_down()
    except Unreachable as error:
        raise HeadwayError(
            f"process {pid} uses {folder} and does not answer: {error.args[0]}",
            f"It may be starting or ending: try again. `kill {pid}` ends a server cleanly, too.",
        ) from error


@contextlib.contextmanager
def gone(pid: int) -> Iterator[Callable[[], bool]]:
    """Give a function that says whether a process of this machine is gone. Each call waits a moment for its end."""
    try:
        process = os.pidfd_open(pid)
    except OSError:  # it is gone already, or is on another machine that shares the directory
        yield pause
        return
    poll = select.poll()
    poll.register(process, select.POLLIN)
    try:
        yield lambda: bool(poll.poll(LOCK_LOOK_SECONDS * 1000))
    finally:
        os.close(process)


def pause() -> bool:
    """Wait a moment, if the end cannot be observed."""
    time.sleep(LOCK_LOOK_SECONDS)
    return True
