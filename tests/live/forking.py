"""Processes that have loaded everything when they start.

To start Python and to load a server takes longer than all else that a start of one costs, and tests start hundreds.
So one process loads it all once, does nothing else, and is forked for each. What a fork does from then on, it does as
`python -m headway` would, which other tests run.
"""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

MESSAGE_MAX = 1 << 17
"""Bytes of a message to the process that forks."""


class Forked:
    """A process that runs `headway` with these words, with what `subprocess.Popen` has of it.

    Args:
        words: what would follow `headway`.
        stdout, stderr: where it writes to.

    Attributes:
        pid: its number.
        returncode: its exit status, negative where a signal ended it; None: it runs, as far as is known.
    """

    def __init__(self, words: list[str], *, stdout: int, stderr: int) -> None:
        self.returncode: int | None = None
        self._status, status = os.pipe()
        asked = {"words": words, "folder": str(Path.cwd()), "environment": dict(os.environ)}
        forker, _ = _forker()
        try:
            socket.send_fds(forker, [json.dumps(asked).encode()], [stdout, stderr, status])
        finally:
            os.close(status)
        self.pid = int(forker.recv(MESSAGE_MAX))

    def poll(self) -> int | None:
        """Its exit status if it has ended."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, for so many seconds."""
        status = self._wait(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return status

    def _wait(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            self.returncode = int(os.read(self._status, 20))
            os.close(self._status)
        return self.returncode


def can_fork() -> bool:
    """Whether a fork would be what a start is: not for another Python, or with other things to be imported."""
    _forker()
    return _surroundings() == _FIRST[0]


_FIRST: list[tuple[str, str | None]] = []


def _surroundings() -> tuple[str, str | None]:
    return sys.executable, os.environ.get("PYTHONPATH")


@cache
def _forker() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The process that forks, one for this process, and how it is asked. It ends with this one."""
    _FIRST.append(_surroundings())
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    plain = {name: value for name, value in os.environ.items() if name != "SLURM_CONF"}  # it is of no one cluster
    with its:
        command = [sys.executable, "-P", __file__, str(its.fileno())]
        process = subprocess.Popen(command, pass_fds=[its.fileno()], env=plain)
    return ours, process


def serve(channel: socket.socket) -> list[str]:
    """Fork when asked, until nobody can ask any more. Returns only in a fork: the words of its command."""
    children: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(channel, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is not channel:
                    pid, status = children.pop(key.fd)
                    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with suppress(BrokenPipeError):
                        os.write(status, str(ended).encode())
                    ready.unregister(key.fd)
                    os.close(key.fd)
                    os.close(status)
                    continue
                message, files, *_ = socket.recv_fds(channel, MESSAGE_MAX, 3)
                if not message:
                    os._exit(0)
                pid = os.fork()
                if pid == 0:
                    for place, file in enumerate(files[:2], start=1):
                        os.dup2(file, place)
                    for file in (*files, *children, *(status for _, status in children.values())):
                        os.close(file)
                    channel.close()
                    asked = json.loads(message)
                    os.chdir(asked["folder"])
                    os.environ.clear()
                    os.environ.update(asked["environment"])
                    return list(asked["words"])
                for file in files[:2]:
                    os.close(file)
                watched = os.pidfd_open(pid)
                children[watched] = pid, files[2]
                ready.register(watched, selectors.EVENT_READ)
                channel.send(str(pid).encode())


if __name__ == "__main__":
    import headway.cli.main
    import headway.cli.up
    import headway.config
    import headway.live.room
    import headway.server
    from headway.policies.registry import BUILT_IN

    for known in BUILT_IN.values():
        known.factory()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    headway.cli.main.main(serve(socket.socket(fileno=int(sys.argv[1]))))
