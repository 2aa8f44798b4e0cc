"""Processes of this machine as rented machines: for demos and tests, and where another program does the renting.

A machine is a command in a session of its own. Its environment says what it is: `HEADWAY_NODE` is the name of the node
as which it is to join, `HEADWAY_TYPE` its type, `HEADWAY_RENTAL` its token.

Theory. Each machine has a file that is locked before the command is started. The lock is inherited by the command and
by all that it starts, so it is held exactly as long as something of the machine runs, also if this process dies between
the lock and the start, or between the start and the answer. A process that closes what it has inherited is found by
its environment. So no note of a process number is needed, which would not be there after a crash, or mean another one.

- The lock is free, and the file says that the machine had begun: it has ended.
- The lock is free, and it does not: a server died before the start; the command is started now.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from headway.errors import HeadwayError
from headway.renting.provider import NotRented, RentedMachine, Unsure

TOKEN_TEXT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""What a token may be: it names files."""

RENTAL: Final = "HEADWAY_RENTAL"
"""The variable of the environment that says whose process one is: the file of the machine."""

KILLS: Final = 100
"""So often, at most, processes are killed that were started meanwhile, before it is left for later."""


class Processes:
    """Runs a command for each machine.

    Args:
        folder: for the files of the machines, and what their commands print. Made if it is not there.
        command: words in which `{node}`, `{type}` and `{token}` are replaced.
        cluster: what the tokens of this cluster begin with.
    """

    def __init__(self, folder: str | Path, command: Sequence[str], cluster: str) -> None:
        self._folder = Path(folder).absolute()
        self._command = tuple(command)
        self._cluster = cluster
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._one = threading.Lock()  # who looks locks files, too
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HeadwayError(f"folder {self._folder} for rented processes: {error.strerror or error}") from error

    async def start(self, token: str, type: str, node: str) -> RentedMachine:
        """Start a command; see `Provider`."""
        return await asyncio.to_thread(self._start, token, type, node)

    async def end(self, token: str) -> bool:
        """Kill all processes of a machine; see `Provider`."""
        return await asyncio.to_thread(self._end, token)

    async def machines(self) -> list[RentedMachine]:
        """Those of this cluster; see `Provider`."""
        return await asyncio.to_thread(self._machines)

    async def reclaimed(self) -> dict[str, float]:
        """None: nobody takes a process back."""
        return {}

    async def close(self) -> None:
        """Leave the processes to themselves."""
        for child in self._children.values():
            if child.poll() is None:
                child.returncode = 0  # it goes on; otherwise Python warns that nobody waits for it
        self._children.clear()

    # In a thread

    def _file(self, token: str) -> Path:
        if not TOKEN_TEXT.fullmatch(token):
            raise NotRented(f"token {token!r} cannot name a file")
        return self._folder / f"{token}.machine"

    def _start(self, token: str, type: str, node: str) -> RentedMachine:
        file = self._file(token)
        with self._alone(), self._opened(file, create=True) as lock:
            if not _locked(lock):
                return RentedMachine(_said(lock).get("node", node), token, _said(lock).get("type", type))
            known = _said(lock)
            if known.get("begun") or self._processes(token):
                return RentedMachine(
                    known.get("node", node), token, known.get("type", type), ended=not self._processes(token)
                )
            note = {"node": node, "type": type}
            _write(lock, note)
            places = {"{node}": node, "{type}": type, "{token}": token}
            words = [_replaced(word, places) for word in self._command]
            own = {"HEADWAY_NODE": node, "HEADWAY_TYPE": type, RENTAL: str(file)}
            try:
                with (self._folder / f"{token}.log").open("ab") as log:
                    self._children[token] = subprocess.Popen(
                        words,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env={**os.environ, **own},
                        start_new_session=True,
                        pass_fds=(lock,),
                    )
            except (OSError, ValueError) as error:
                file.unlink()
                raise NotRented(f"{words[0]} cannot be run: {error}") from error
            _write(lock, {**note, "begun": True})
            return RentedMachine(node, token, type)

    def _end(self, token: str) -> bool:
        file = self._file(token)
        with self._alone():
            for _ in range(KILLS):
                found = self._processes(token)
                for process in found:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.send_signal(signal.SIGKILL)
                self._reap(token)
                if not found:
                    break
                psutil.wait_procs(found, timeout=0.05)
            if not file.exists():
                return not self._processes(token)
            with self._opened(file) as lock:
                if not _locked(lock) or self._processes(token):
                    return False
                file.unlink()
            (self._folder / f"{token}.log").unlink(missing_ok=True)
        return True

    def _machines(self) -> list[RentedMachine]:
        made = []
        with self._alone():
            for file in sorted(self._folder.glob("*.machine")):
                token = file.stem
                if not token.startswith(f"{self._cluster}-"):
                    continue
                self._reap(token)
                with contextlib.suppress(FileNotFoundError), self._opened(file) as lock:
                    ended = _locked(lock) and not self._processes(token)
                    known = _said(lock)
                    made.append(RentedMachine(known.get("node", token), token, known.get("type", ""), ended=ended))
        return made

    def _reap(self, token: str) -> None:
        child = self._children.get(token)
        if child is not None and child.poll() is not None:
            del self._children[token]

    def _processes(self, token: str) -> list[psutil.Process]:
        """What runs of a machine."""
        mine, found = str(self._file(token)), []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(RENTAL) == mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One at a time; a disk that does not answer as it should says nothing of the machines."""
        try:
            with self._one:
                yield
        except OSError as error:
            raise Unsure(f"folder {self._folder} of rented processes: {error.strerror or error}") from error

    @contextlib.contextmanager
    def _opened(self, file: Path, *, create: bool = False) -> Iterator[int]:
        lock = os.open(file, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
        try:
            yield lock
        finally:
            os.close(lock)


def _locked(lock: int) -> bool:
    """Lock a file, if nothing else has; it is free again when it is closed everywhere."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _said(lock: int) -> Mapping[str, Any]:
    """What is in the file of a machine; nothing, if a server died while it was written."""
    try:
        found = json.loads(os.pread(lock, 1 << 16, 0) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _write(lock: int, note: Mapping[str, object]) -> None:
    content = json.dumps(note).encode()
    os.pwrite(lock, content, 0)
    os.ftruncate(lock, len(content))


def _replaced(word: str, places: Mapping[str, str]) -> str:
    for place, text in places.items():
        word = word.replace(place, text)
    return word
