"""Headway on a Dask worker: it starts the agent of the worker's node, and carries bytes between it and the server.

The server has each worker run `install`, which adds a handler to the worker. Each line to an agent is then one
connection to the worker, with the worker's own encryption: the server names the node and gets a secret; what follows
goes unread to the agent's socket and back. The agent is a process of its own, below a guard. It outlives the line, so
that a server that was restarted finds what runs; and the worker, until the server attaches the node again or is silent
for long.

Runs in the event loop of the worker, which has nothing else to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from distributed.comm.core import Comm, CommClosedError
from distributed.core import Status

from headway import __version__
from headway.engines.dask.carrying import MESSAGE_MAX, ChangedOnTheWayError, message, received
from headway.engines.dask.sharing import PatientLooks, SharedFolders
from headway.engines.local.driver.host import AgentHost, node_folder, secret_in
from headway.engines.local.shared.frames import SEND_BUFFER, VERSION
from headway.engines.local.shared.output import OUTPUT_FOLDER
from headway.engines.local.shared.terms import Terms

log = logging.getLogger(__name__)

ATTACH: Final = "headway_attach"
"""The operation that opens a line."""

END_OPERATION: Final = "headway_end"
"""The operation that ends everything on the node."""

# Together less than `headway.engines.remote.node.ATTACH_SECONDS`, for which the server waits.
_LETTING_GO_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 5.0
_START_SECONDS: Final = 15.0
_AGAIN_SECONDS: Final = 0.02

_OWN_FOLDERS: Final = ("uploads", "fences", "checkpoints", OUTPUT_FOLDER)
"""What nodes that share nothing have in the folder of their server."""

_SHARES: Final = "shares"
"""A file in the folder of a node whose agent uses none of these."""

_LEFT: Final = "left"
"""The folder of what is being removed."""


class WorkerFacts(msgspec.Struct, frozen=True):
    """What a worker says of itself.

    Attributes:
        version: of Headway there.
        frames: version of the frames of its agents.
        python: of Python there, such as (3, 11).
        slots: threads that the worker offers.
    """

    version: str
    frames: int
    python: tuple[int, int]
    slots: int


class StationTerms(msgspec.Struct, frozen=True):
    """What the server asks of a station.

    Attributes:
        owner: who the server is: what another one left is ended first.
        name: of the node.
        slots, orphaned_after, output_max: see `headway.engines.local.shared.terms.Terms`.
        pass_env: names of variables of the worker that tasks get.
        folder: see `headway.engines.dask.settings.DaskSettings`.
        fresh: end whatever runs on the node.
        offered: folders of the server that the node uses in place, if they are there; None: it is not asked to.
    """

    owner: str
    name: str
    slots: int
    orphaned_after: float
    output_max: int
    pass_env: tuple[str, ...]
    folder: str
    fresh: bool
    offered: SharedFolders | None = None


def install(dask_worker: Any) -> dict[str, Any]:
    """Add the handlers to a worker, once; returns `WorkerFacts` as a dict."""
    if ATTACH not in dask_worker.handlers:
        station = Station(dask_worker.scheduler.address)
        dask_worker.handlers[ATTACH] = station.attach
        dask_worker.handlers[END_OPERATION] = station.end
    facts = WorkerFacts(
        __version__, VERSION, (sys.version_info.major, sys.version_info.minor), dask_worker.state.nthreads
    )
    return cast(dict[str, Any], msgspec.to_builtins(facts))


class Station:
    """The agents of one worker; as a rule it has one node.

    Args:
        cluster: address of the scheduler: workers of other clusters on this machine have folders of their own.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._hosts: dict[str, AgentHost] = {}
        self._lines: dict[str, tuple[str, Comm, asyncio.Event]] = {}
        self._looks = PatientLooks()

    async def attach(self, comm: Comm, wanted: dict[str, Any]) -> Status:
        """Start or find the agent, say so, and carry bytes until one of the two sides has had enough."""
        asked = msgspec.convert(wanted, StationTerms)
        ended = asyncio.Event()
        try:
            await self._make_way(asked)
            self._lines[asked.name] = (asked.owner, comm, ended)
            with self._own(asked) as folder:
                shares, why_not = await self._seen(asked.offered)
                connected, root = await self._connected(asked, folder, asked.offered if shares else None)
                uploads = str(root / "uploads")
                told = {"secret": secret_in(root), "uploads": uploads, "shares": shares, "why_not": why_not}
                with connected:
                    await comm.write(told)
                    await _carry(comm, connected)
        except OSError as error:
            with contextlib.suppress(OSError):  # nobody hears it any more
                await comm.write({"error": str(error), "taken": isinstance(error, _TakenError)})
        finally:
            ended.set()
            if self._lines.get(asked.name, (None, None, None))[2] is ended:
                del self._lines[asked.name]
            comm.abort()
        return Status.dont_reply

    async def end(self, wanted: dict[str, Any]) -> str:
        """End everything on the node, if this server has it."""
        asked = msgspec.convert(wanted, StationTerms)
        try:
            await self._make_way(asked)
            with self._own(asked) as folder:
                await asyncio.to_thread(self._put_down, asked, folder)
        except OSError as error:
            return str(error)
        return ""

    async def _seen(self, offered: SharedFolders | None) -> tuple[bool | None, str]:
        """Whether folders of the server are here, or why they are not; None: they do not answer now.

        An agent that runs then keeps what it began with. One that is started does without them.
        """
        if offered is None:
            return False, ""
        why_not = await self._looks.trouble(offered, _LOOK_SECONDS)
        if why_not is None:
            return None, f"{offered.engine} does not answer there within {_LOOK_SECONDS:g} s"
        return not why_not, why_not

    async def _make_way(self, asked: StationTerms) -> None:
        """End an earlier line of the same server, which may not know yet that it is closed.

        Raises:
            _TakenError: another server has the node.
        """
        owner, comm, ended = self._lines.get(asked.name, ("", None, None))
        if comm is None or ended is None:
            return
        if owner != asked.owner:
            raise _TakenError("another server of Headway")
        comm.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LETTING_GO_SECONDS):
                await ended.wait()

    @contextlib.contextmanager
    def _own(self, asked: StationTerms) -> Iterator[Path]:
        """Have the node while the body runs; gives the folder of all nodes of this cluster on this machine.

        Raises:
            _TakenError: another process has it.
            OSError: the folder cannot be used.
        """
        folder = _folder(asked.folder, self._cluster)
        held = os.open(f"{node_folder(folder, asked.name)}.owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _TakenError("another worker of its machine") from None
            before = os.pread(held, 200, 0).decode("ascii", "replace")
            if before != asked.owner:
                if before:
                    AgentHost(node_folder(folder / _digest(before), asked.name)).put_down()
                os.ftruncate(held, 0)
                os.pwrite(held, asked.owner.encode("ascii"), 0)
            yield folder
        finally:
            os.close(held)

    def _put_down(self, asked: StationTerms, folder: Path) -> None:
        host = self._host(asked, folder / _digest(asked.owner))
        host.put_down()
        if host.guard >= 0:
            host.close()
        host.reap()

    def _host(self, asked: StationTerms, root: Path) -> AgentHost:
        found = self._hosts.get(asked.name)
        folder = node_folder(root, asked.name)
        if found is None or found.folder != folder:
            found = self._hosts[asked.name] = AgentHost(folder, asked.pass_env)
        return found

    async def _connected(
        self, asked: StationTerms, folder: Path, shared: SharedFolders | None
    ) -> tuple[socket.socket, Path]:
        """A socket to the agent, and the folder of the server.

        Args:
            shared: those of the server that are here.

        Raises:
            OSError: no agent can be started.
        """
        root = folder / _digest(asked.owner)
        for name in ("nodes", *_OWN_FOLDERS):
            (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        secret_in(root)
        host = self._host(asked, root)
        terms = Terms(
            asked.name,
            str(host.folder),
            str((root if shared is None else Path(shared.engine)) / OUTPUT_FOLDER),
            str(root),
            asked.slots,
            asked.orphaned_after,
            asked.output_max,
            uploads=str(root / "uploads") if shared is None else "",
            apart=shared is None,
            common="" if shared is None else shared.engine,
        )
        loop = asyncio.get_running_loop()
        until = loop.time() + _START_SECONDS
        wanted = not asked.fresh
        if asked.fresh:
            await asyncio.to_thread(self._put_down, asked, folder)
        while loop.time() < until:
            if host.process is not None and host.process.poll() is not None:
                host.close()
                host.reap()
            if shared is None:
                (host.folder / _SHARES).unlink(missing_ok=True)
            if await asyncio.to_thread(host.spawn, terms):
                wanted = True
                if shared is not None:
                    await asyncio.to_thread(set_aside, root, host.folder)
                    loop.run_in_executor(None, partial(shutil.rmtree, root / _LEFT, ignore_errors=True))
            if wanted and (connected := host.connect()) is not None:  # one that was killed may listen for a moment
                return connected, root
            await asyncio.sleep(_AGAIN_SECONDS)
        raise OSError(f"its agent does not start: {host.log_tail()}")


class _TakenError(OSError):
    """Somebody else has the node."""


def set_aside(root: Path, node: Path) -> None:
    """Move into a folder of what is being removed what nodes here had before they shared the server's folders.

    As long as one runs that does not share them, everything stays. None of them can start meanwhile.

    Args:
        root: folder of the server.
        node: folder of one that shares them now.
    """
    with contextlib.suppress(OSError), contextlib.ExitStack() as held:  # what stays goes with the next start
        (node / _SHARES).touch()
        for lock in (root / "nodes").glob("*/lock"):
            file = held.enter_context(lock.open("rb+"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not lock.with_name(_SHARES).exists():
                    return
        (root / _LEFT).mkdir(mode=0o700, exist_ok=True)
        aside = tempfile.mkdtemp(dir=root / _LEFT)
        for name in _OWN_FOLDERS:
            (root / name).rename(Path(aside, name))
            (root / name).mkdir(mode=0o700)


async def _carry(comm: Comm, connected: socket.socket) -> None:
    """Carry bytes both ways until one side ends."""
    loop = asyncio.get_running_loop()
    connected.setblocking(False)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)

    async def to_agent() -> None:
        while True:
            await loop.sock_sendall(connected, received(comm, await comm.read()))

    async def to_server() -> None:
        while data := await loop.sock_recv(connected, MESSAGE_MAX):
            await comm.write(message(comm, data))

    ways = [asyncio.ensure_future(way()) for way in (to_agent, to_server)]
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in done:
            error = way.exception()
            if isinstance(error, ChangedOnTheWayError):
                log.warning("the connection to the server is closed: %s", error)
            elif error is not None and not isinstance(error, OSError | CommClosedError):
                raise error
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


def _folder(wanted: str, cluster: str) -> Path:
    """The folder of a cluster's nodes on this machine, which only this user can use.

    Raises:
        OSError: it belongs to somebody else, or cannot be made.
    """
    folder = Path(wanted or tempfile.gettempdir(), f"headway-{os.geteuid()}", _digest(cluster))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for one in (folder.parent, folder):
        status = one.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{one} is not a folder of this user")
        one.chmod(0o700)
    (folder / "nodes").mkdir(mode=0o700, exist_ok=True)
    return folder


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
