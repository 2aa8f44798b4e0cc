"""Runs a command beside the event loop and returns what it printed, at a small part of what asyncio spends for that.

A fork of a server copies the tables of all its memory, and the loop waits meanwhile. So the command begins by
`posix_spawn`, which shares that memory until the command is there. What it prints goes to memory files, which are read
when it has ended: so there are no pipes to serve. Its end is seen through a descriptor of the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

from headway.engines.local.shared.processes import NOT_IGNORED

log = logging.getLogger(__name__)

KILLED_SECONDS: Final = 5.0
"""So long the end of a command that was killed is waited for."""


class NotKilled(TimeoutError):
    """A command has not ended in time, and not when it was killed: it may wait for a file system that hangs."""


class Called(NamedTuple):
    """What became of a command; `code` as `subprocess` has it: negative for a signal."""

    code: int
    printed: str
    complained: str


async def called(
    program: str, words: Sequence[str], environment: Mapping[str, str], limit: float, given: str = ""
) -> Called:
    """Run a command in a session of its own to its end. If this is cancelled, the command is killed.

    One that has not ended `KILLED_SECONDS` after it was killed is left alone, and reaped when it ends.

    Args:
        program: path of it.
        limit: seconds after which it is killed.
        given: what it reads.

    Raises:
        OSError: it cannot be started.
        NotKilled: it has not ended in time, and not when it was killed.
        TimeoutError: it has not ended in time, and was killed.
    """
    loop = asyncio.get_running_loop()
    with ExitStack() as held:
        read, printed, complained = (_memory_file(name, held) for name in ("given", "printed", "complained"))
        os.write(read, given.encode())
        os.lseek(read, 0, os.SEEK_SET)
        pid = os.posix_spawn(
            program,
            (program, *words),
            environment,
            file_actions=(
                (os.POSIX_SPAWN_DUP2, read, 0),
                (os.POSIX_SPAWN_DUP2, printed, 1),
                (os.POSIX_SPAWN_DUP2, complained, 2),
            ),
            setsid=True,
            setsigmask=(),
            setsigdef=NOT_IGNORED,
        )
        try:
            process = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        over, status = asyncio.Event(), 0

        def reap() -> None:
            """It has ended. This comes even if nobody waits for that any more."""
            nonlocal status
            loop.remove_reader(process)
            os.close(process)
            _, status = os.waitpid(pid, 0)
            over.set()

        loop.add_reader(process, reap)

        async def kill() -> None:
            """Kill it, unless it has ended, and wait for its end."""
            if over.is_set():
                return
            signal.pidfd_send_signal(process, signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(KILLED_SECONDS):
                    await over.wait()
            if not over.is_set():
                log.warning("%s, process %d, was killed and has not ended after %g s", program, pid, KILLED_SECONDS)

        try:
            async with asyncio.timeout(limit):
                await over.wait()
        except TimeoutError:
            await kill()
            if not over.is_set():
                raise NotKilled(f"process {pid} was killed and has not ended") from None
            raise
        except asyncio.CancelledError:
            await kill()
            raise
        return Called(os.waitstatus_to_exitcode(status), _text(printed), _text(complained))


def _memory_file(name: str, held: ExitStack) -> int:
    """A file in memory, which is closed with the others; on disk if this Python was built without those."""
    if not hasattr(os, "memfd_create"):
        return held.enter_context(tempfile.TemporaryFile()).fileno()
    file = os.memfd_create(name)
    held.callback(os.close, file)
    return file


def _text(file: int) -> str:
    """All that was written to a memory file."""
    os.lseek(file, 0, os.SEEK_SET)
    with open(file, "rb", closefd=False) as written:
        return written.read().decode("utf-8", "replace")
