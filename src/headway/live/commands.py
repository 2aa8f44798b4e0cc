"""Runs an operator's commands as children of the server, with a limit of time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Sequence
from typing import Final

from headway.errors import HeadwayError
from headway.model.instant import Duration, to_seconds

log = logging.getLogger(__name__)

PRINTED_MAX: Final = 64 << 10
"""Bytes of what a command prints that are kept: its last ones."""

PRINTED_LINES: Final = 20
"""So many of its last lines are logged."""

LAST_LINE_MAX: Final = 300
"""Characters of its last line in an error."""


class CommandFailed(HeadwayError):
    """A command could not be run, failed, or took too long."""


async def run_command(command: Sequence[str], subject: str, limit: Duration, given: bytes = b"") -> None:
    """Run a command, and wait until it has ended.

    It has a session of its own, which is killed with it. What it prints is logged.

    Args:
        subject: what it is about, for the log.
        limit: how long it may take.
        given: what it reads from its input.

    Raises:
        CommandFailed: it cannot be started, ends with another exit code than 0, or takes longer than the limit.
    """
    try:
        child = await _start(command, reads=bool(given))
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{command[0]} cannot be run: {error}") from error
    assert child.stdout is not None
    if child.stdin is not None:
        child.stdin.write(given)
        child.stdin.close()  # it may end without reading
    printed = bytearray()

    async def read() -> None:
        assert child.stdout is not None
        while part := await child.stdout.read(PRINTED_MAX):
            printed.extend(part)
            del printed[:-PRINTED_MAX]

    reading = asyncio.create_task(read())
    code: int | None = None
    try:
        async with asyncio.timeout(to_seconds(limit)):
            code = await child.wait()
            await asyncio.wait((reading,), timeout=1.0)  # what it has left running may keep the pipe open
    except TimeoutError:
        pass
    finally:
        if code is None:
            await _kill(child)
        reading.cancel()
    lines = [line.strip() for line in printed.decode(errors="replace").splitlines() if line.strip()]
    told = lines if code == 0 else lines[:-1]  # else the last one is told with what is wrong
    for line in told[-PRINTED_LINES:]:
        log.info("%s %s: %s", command[0], subject, line)
    last = f": {lines[-1][-LAST_LINE_MAX:]}" if lines else ""
    if code is None:
        raise CommandFailed(f"{command[0]} has not ended within {to_seconds(limit):g} s{last}")
    if code:
        raise CommandFailed(f"{command[0]} ended with exit code {code}{last}")


async def _start(words: Sequence[str], *, reads: bool) -> asyncio.subprocess.Process:
    """Start a command. If that is cancelled, nothing of it is left running."""
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE if reads else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait((starting,))
        if starting.exception() is None:
            await _kill(starting.result())
        raise


async def _kill(child: asyncio.subprocess.Process) -> None:
    """End a command with all that it has started in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()
