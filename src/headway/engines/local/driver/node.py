"""The driver's side of one node of this machine: it starts or finds the agent, talks to it, and notices its death."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import msgspec

from headway.engines.base import AttemptKey
from headway.engines.local.driver.account import hand_over
from headway.engines.local.driver.environment import of_this_process
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.shared.frames import (
    VERSION,
    Acknowledge,
    Hello,
    Limited,
    MemberEnded,
    MemberSaved,
    MembersRefused,
    MemberStalled,
    MemberStarted,
    MemberUnreadable,
    Pong,
    Ready,
    Resize,
    Shelf,
    Splitter,
    Stop,
    Taken,
    ToDriver,
    Welcome,
    decode_ending,
    frame,
    to_driver_decoder,
)
from headway.engines.local.shared.output import OUTPUT_FOLDER
from headway.engines.local.shared.processes import MARK, children, kill_trees, marked
from headway.engines.local.shared.terms import Account, Terms
from headway.errors import EngineError, NameTaken
from headway.model.instant import to_seconds
from headway.model.node import NodeSpec
from headway.sockets import short

log = logging.getLogger(__name__)

_GUARD = "headway.engines.local.agent.guard"
_ATTACH_SECONDS = 30.0
_BURIAL_SECONDS = 5.0
_AGAIN_SECONDS = 0.02
_LOG_TAIL = 2000
_TRIES_MAX = 100

_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""How many files tasks may have open: as many as this process might when it began, whatever its own limit is later.

Programs that use `select` cannot handle more than they are used to.
"""


class NodeOwner(Protocol):
    """Receives what a node reports."""

    def on_ended(self, node: LocalNode, message: MemberEnded) -> None:
        """A member has ended."""

    def on_started(self, node: LocalNode, message: MemberStarted) -> None:
        """A member runs."""

    def on_saved(self, node: LocalNode, message: MemberSaved) -> None:
        """A member has saved a checkpoint."""

    def on_unreadable(self, message: MemberUnreadable) -> None:
        """A member has a checkpoint that cannot be read."""

    def on_stalled(self, message: MemberStalled) -> None:
        """A member waits for room on the disk, or goes on."""

    def on_refused(self, node: LocalNode, message: MembersRefused) -> None:
        """The members of an attempt cannot change to a tier."""

    def on_limited(self, node: LocalNode, message: Limited) -> None:
        """Processes in the background of a node cannot leave it."""

    def on_ready(self, node: LocalNode, message: Ready) -> None:
        """A member of a gang can start."""

    def on_lost(self, node: LocalNode, detail: str) -> None:
        """The agent is dead or silent."""


def node_folder(root: Path, name: str) -> Path:
    """The folder of a node: its name, as far as it fits a file name, and a digest of it."""
    readable = re.sub(r"[^\w-]", "_", name, flags=re.ASCII)[:40]
    return root / "nodes" / f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def put_down(folder: Path) -> None:
    """Kill every process of the node with this folder, whatever started it and whatever became of its parents."""
    for _ in range(_TRIES_MAX):
        if not (left := marked(_mark(folder))):
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


def _mark(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()


class Places(NamedTuple):
    """Folders of an engine: its own; that of what tasks are given and save; that of the files that the server keeps."""

    root: Path
    ground: Path
    uploads: Path | None = None


class LocalNode:
    """A node as the driver sees it.

    Attributes:
        up: attempts can be launched on it.
        lost: set when its agent is dead or silent, until it is attached again.
        pid: the agent's process; 0 before the first.
        line: the connection to its agent.
        lease: seconds of silence after which it is given up.
        missed: pings in a row without an answer.
        heard: it has answered since the last check.
        functions: the functions that the agent has.
    """

    def __init__(
        self,
        spec: NodeSpec,
        owner: NodeOwner,
        secret: bytes,
        settings: LocalSettings,
        places: Places,
        account: Account | None = None,
    ) -> None:
        self.spec = spec
        self.up = False
        self.lost = asyncio.Event()
        self.pid = 0
        self.missed = 0
        self.heard = False
        self.functions: Shelf[bool] = Shelf()
        self.folder = node_folder(places.root, spec.name)
        self.owner = owner
        self._kept = places.root / OUTPUT_FOLDER
        self._secret = secret
        self.lease = settings.lease if spec.lease is None else to_seconds(spec.lease)
        self._settings = settings
        self._ground = places.ground
        self._account = account
        self._uploads = places.uploads
        self._loop = asyncio.get_running_loop()
        self.line: _Line | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = self._agent = -1
        self._outbox: list[bytes] = []
        self._acknowledged: list[AttemptKey] = []
        self._flushing = False
        self._why = ""

    async def attach(self) -> Welcome:
        """Find the node's agent, or start one, and be its driver; a node of another size is resized.

        Raises:
            NameTaken: there is an agent, and it has another driver.
            EngineError: there is no agent and none can be started.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        start = self._loop.time()
        while True:
            fresh = self._spawn()
            connected = self._connect()
            if connected:
                welcome = await self._greet(connected, _ATTACH_SECONDS if fresh else self.lease)
                if welcome and welcome.version == VERSION and welcome.user == self._terms().user:
                    self._admit(welcome)
                    return welcome
            if fresh:
                await self.gone()
                raise EngineError(f"node {self.spec.name!r} does not start", self._log_tail())
            if connected or self._loop.time() > start + _ATTACH_SECONDS / 2:
                put_down(self.folder)  # it hangs, has another version, runs tasks as another user, or does not listen
            if self._loop.time() > start + _ATTACH_SECONDS:
                raise EngineError(f"node {self.spec.name!r} does not start: a process holds {self.folder / 'lock'}")
            await asyncio.sleep(_AGAIN_SECONDS)

    def _spawn(self) -> bool:
        """Start an agent unless there is one. What an earlier one may have left is killed first."""
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            put_down(self.folder)
            terms = self._terms()
            path = self.folder / "socket"
            path.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listener, (self.folder / "log").open("wb") as log:
                with short(path) as address:
                    listener.bind(address)
                listener.listen()
                if self._account is not None:
                    hand_over(Path(terms.scratch), self._account)
                words = (msgspec.json.encode(terms).decode(), listener.fileno(), lock, _FILES)
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _GUARD, *map(str, words)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**of_this_process(self._settings.pass_env), MARK: _mark(self.folder)},
                    pass_fds=(listener.fileno(), lock),
                    start_new_session=True,
                )
                self._guard = os.pidfd_open(self._process.pid)
        finally:
            os.close(lock)  # guard and agent have it from now on
        return True

    def _terms(self) -> Terms:
        return Terms(
            self.spec.name,
            str(self.folder.resolve()),
            str(self._kept.resolve()),
            str(self._ground.resolve()),
            self.spec.slots,
            self._settings.orphaned_after,
            self._settings.task_output_max,
            self._account,
            str(self._uploads.resolve()) if self._uploads else "",
        )

    def _connect(self) -> socket.socket | None:
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

    async def _greet(self, connected: socket.socket, patience: float) -> Welcome | None:
        """Introduce this driver; None if there is no answer."""
        line = _Line(self)
        await self._loop.create_unix_connection(lambda: line, sock=connected)
        self.line = line
        line.transport.write(frame(Hello(self._secret, VERSION, self.spec.reports_start)))
        try:
            async with asyncio.timeout(patience):  # unlike `wait_for`, it does not lose a cancellation in Python 3.11
                return await line.welcome
        except (TimeoutError, ConnectionError):
            line.transport.abort()
            return None

    def _admit(self, welcome: Welcome) -> None:
        """Take the node into service."""
        self.pid = welcome.pid
        with contextlib.suppress(ProcessLookupError):  # then its connection is closed too
            self._agent = os.pidfd_open(welcome.pid)
            if self._guard < 0:
                self._guard = os.pidfd_open(welcome.guard)
        self.missed = 0
        self.heard = True
        self.functions = Shelf()
        self._outbox.clear()
        self._acknowledged.clear()
        self._why = ""
        self.lost.clear()
        self.up = True
        if welcome.slots != self.spec.slots:
            self.send(frame(Resize(self.spec.slots, False)))

    def resize(self, slots: int, *, at_once: bool) -> None:
        """Have more or fewer slots, from now on or once it is attached."""
        self.spec = replace(self.spec, slots=slots)
        if self.up:
            self.send(frame(Resize(slots, at_once)))

    def close(self) -> None:
        """Its line is closed: the agent is dead, or useless."""
        if self.up:
            self.up = False
            self._kill_agent()
            self.lost.set()
            self.owner.on_lost(self, self._why or "its process died")

    def give_up(self, why: str) -> None:
        """It is silent, or sends nonsense: end it, because its attempts count as lost."""
        self._why = why
        self._kill_agent()
        if self.line:
            self.line.transport.abort()

    def _kill_agent(self) -> None:
        if self._agent >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._agent, signal.SIGKILL)
            os.close(self._agent)
            self._agent = -1

    async def stop(self) -> None:
        """End everything of the node."""
        if self.up:
            self.up = False
            assert self.line is not None
            self.line.transport.write(frame(Stop()))
        elif self._process:
            put_down(self.folder)
        await self.gone()
        if self.line:
            self.line.transport.abort()

    async def let_go(self) -> None:
        """Stop being its driver; a node that this driver did not start continues."""
        if self._process:
            await self.stop()
        self.up = False
        if self.line:
            self.line.transport.abort()

    async def gone(self) -> None:
        """Wait until no process of the node is left; kill what remains."""
        if self._guard >= 0:
            ended: asyncio.Future[None] = self._loop.create_future()
            self._loop.add_reader(self._guard, ended.cancel)
            try:
                await asyncio.wait((ended,), timeout=_BURIAL_SECONDS)
                if not ended.done():
                    put_down(self.folder)
            finally:
                self._loop.remove_reader(self._guard)
                os.close(self._guard)
                self._guard = -1
        if self._process:
            self._process.wait()
            self._process = None
        if self._agent >= 0:
            os.close(self._agent)
            self._agent = -1

    def _log_tail(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")[-_LOG_TAIL:].strip()

    def send(self, sent: bytes) -> None:
        """Send a frame, together with all others of this turn of the loop."""
        self._outbox.append(sent)
        self._flush_soon()

    def acknowledge(self, key: AttemptKey) -> None:
        """Let the agent forget an end. The message is sent with the rest of this turn."""
        self._acknowledged.append(key)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self.up and self.line:
            if self._acknowledged:
                self._outbox.append(frame(Acknowledge(self._acknowledged)))
            self.line.transport.write(b"".join(self._outbox))
        self._acknowledged.clear()
        self._outbox.clear()


class _Line(asyncio.Protocol):
    """One connection to an agent."""

    transport: asyncio.Transport

    def __init__(self, node: LocalNode) -> None:
        self.welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._node = node
        self._owner = node.owner
        self._splitter = Splitter()
        self._decode = to_driver_decoder().decode

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.welcome.cancelled():  # nothing waits for the answer any more: the server ends, or it came too late
            self.transport.abort()
            return
        try:
            for body in self._splitter.feed(data):
                self._take(self._decode(body))
        except Exception as error:  # whatever an agent sends affects its node at most
            log.exception("node %s: its agent sent what cannot be taken in", self._node.spec.name)
            self.transport.abort()
            if self._node.line is self:
                self._node.give_up(f"its agent sent what cannot be taken in: {type(error).__name__}: {error}")

    def _take(self, message: ToDriver) -> None:
        """Handle what the agent says."""
        node = self._node
        match message:
            case MemberEnded() as message:
                self._owner.on_ended(node, message)
            case MemberStarted() as message:
                self._owner.on_started(node, message)
            case MemberSaved() as message:
                self._owner.on_saved(node, message)
            case MemberUnreadable() as message:
                self._owner.on_unreadable(message)
            case MemberStalled() as message:
                self._owner.on_stalled(message)
            case MembersRefused() as message:
                self._owner.on_refused(node, message)
            case Limited() as message:
                self._owner.on_limited(node, message)
            case Ready() as message:
                self._owner.on_ready(node, message)
            case Pong():
                node.missed = 0
                node.heard = True
            case Welcome() as message:
                for ended in message.ended:
                    decode_ending(ended.ending)  # the code that handles them can then rely on it
                self.welcome.set_result(message)
            case Taken():
                self.welcome.set_exception(NameTaken(node.spec.name, "a process that has another driver"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.welcome.done():
            self.welcome.set_exception(ConnectionResetError("the agent hung up"))
        elif self._node.line is self:
            self._node.close()
