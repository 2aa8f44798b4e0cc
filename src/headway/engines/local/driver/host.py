"""The agent of a node, and its process, on the machine where they are: found, started, reached and put down."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import resource
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from headway.engines.local.driver.environment import of_this_process
from headway.engines.local.shared.accounts import hand_over
from headway.engines.local.shared.processes import MARK, children, kill_trees, marked
from headway.engines.local.shared.terms import Terms
from headway.errors import EngineError
from headway.sockets import short

SECRET_BYTES: Final = 32

_GUARD = "headway.engines.local.agent.guard"
_LOG_TAIL = 2000
_TRIES_MAX = 100

_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""How many files tasks may have open: as many as this process might when it began, whatever its own limit is later.

Programs that use `select` cannot handle more than they are used to.
"""


def node_folder(root: Path, name: str) -> Path:
    """The folder of a node: its name, as far as it fits a file name, and a digest of it."""
    readable = re.sub(r"[^\w-]", "_", name, flags=re.ASCII)[:40]
    return root / "nodes" / f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def put_down(folder: Path) -> None:
    """Kill every process of the node with this folder, whatever started it and whatever became of its parents."""
    for _ in range(_TRIES_MAX):
        if not (left := marked(mark_of(folder))):
            return
        kill_trees(left)


def agent_of(driver: int, name: str) -> int:
    """The process of a node's agent: the only child of the guard that a driver started for the node.

    Args:
        driver: process of a server on this machine.
        name: of the node.

    Raises:
        EngineError: the node has no process, or an earlier driver started it.
    """
    for child in children(driver):
        with contextlib.suppress(OSError):  # it has just ended
            words = Path(f"/proc/{child}/cmdline").read_text("utf-8").split("\0")
            if _GUARD in words and msgspec.json.decode(words[words.index(_GUARD) + 1], type=Terms).name == name:
                (agent,) = children(child)
                return agent
    raise EngineError(f"node {name} has no process that this server has started")


def mark_of(folder: Path) -> str:
    """What every process of the node with this folder has in its environment."""
    return hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()


def secret_in(root: Path) -> bytes:
    """The secret in the folder of an engine, which agents there demand of drivers; made if there is none.

    Several processes may ask at once: nodes of one machine can have a folder in common.
    """
    path = root / "secret"
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        secret = path.read_bytes() if path.exists() else b""
        if len(secret) != SECRET_BYTES:  # none yet, or the power failed before it was on the disk
            secret = secrets.token_bytes(SECRET_BYTES)
            draft = path.with_suffix(".draft")
            draft.touch(mode=0o600)
            draft.write_bytes(secret)
            draft.replace(path)
        return secret
    finally:
        os.close(folder)


class AgentHost:
    """The agent of one node, as a process of this machine.

    Args:
        folder: of the node.
        pass_env: names of variables of this process that tasks get besides `environment.PASSED`.

    Attributes:
        process: the guard, if this process started it.
        guard: a descriptor of the guard's process; -1: it is not known.
    """

    def __init__(self, folder: Path, pass_env: Iterable[str] = ()) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.guard = -1
        self._pass_env = tuple(pass_env)

    def spawn(self, terms: Terms) -> bool:
        """Start an agent unless there is one. What an earlier one may have left is killed first."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            put_down(self.folder)
            path = self.folder / "socket"
            path.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listener, (self.folder / "log").open("wb") as log:
                with short(path) as address:
                    listener.bind(address)
                listener.listen()
                if terms.account is not None:
                    hand_over(Path(terms.scratch), terms.account)
                words = (msgspec.json.encode(terms).decode(), listener.fileno(), lock, _FILES)
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _GUARD, *map(str, words)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**of_this_process(self._pass_env), MARK: mark_of(self.folder)},
                    pass_fds=(listener.fileno(), lock),
                    start_new_session=True,
                )
                self.guard = os.pidfd_open(self.process.pid)
        finally:
            os.close(lock)  # guard and agent have it from now on
        return True

    def connect(self) -> socket.socket | None:
        """Connect to the agent, if it listens."""
        connected = socket.socket(socket.AF_UNIX)
        connected.setblocking(False)
        try:
            with short(self.folder / "socket") as address:
                connected.connect(address)
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            connected.close()
            return None
        return connected

    def put_down(self) -> None:
        """Kill everything of the node."""
        put_down(self.folder)

    def close(self) -> None:
        """Close the descriptor of the guard's process."""
        os.close(self.guard)
        self.guard = -1

    def reap(self) -> None:
        """Wait for the guard, if this process started it."""
        if self.process:
            self.process.wait()
            self.process = None

    def log_tail(self) -> str:
        """The last lines that the agent wrote."""
        return (self.folder / "log").read_text("utf-8", "replace")[-_LOG_TAIL:].strip()
