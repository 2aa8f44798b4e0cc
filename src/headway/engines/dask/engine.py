"""The engine for Dask: each worker is a node, with a slot for each of its threads.

    driver --Dask comm (TCP, TLS)-- station in the worker --socket-- agent --socket-- process of a slot -- commands, ...

Dask has the processes, their membership, the transport and its encryption. What a worker runs is decided here, and
supervised by an agent as on this machine: Dask's own tasks are not used, because they cannot be killed. The scheduler
is asked which workers there are; the loss of one is noticed by its connection, or by its silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec
from distributed.comm.core import Comm, connect
from distributed.core import send_recv
from distributed.protocol.pickle import dumps
from distributed.security import Security

from headway import __version__
from headway.engines.base import Files, Found, NodeBack, NodeFound, NodeGone, Noticed, Report
from headway.engines.dask.carrying import MESSAGE_MAX, ChangedOnTheWayError, message, received
from headway.engines.dask.certified import look
from headway.engines.dask.keeper import Start
from headway.engines.dask.settings import DEFAULT_SITE, TLS_FILES, DaskSettings
from headway.engines.dask.sharing import SharedFolders, offer
from headway.engines.dask.started import StartedCluster
from headway.engines.dask.station import ATTACH, END_OPERATION, StationTerms, WorkerFacts, install
from headway.engines.fit import check_most
from headway.engines.kept_out import KeptOut, check_slots
from headway.engines.local.driver.attached import AgentLine
from headway.engines.local.shared.frames import VERSION, Body, Welcome, joined
from headway.engines.remote.engine import RemoteEngine
from headway.engines.remote.node import ATTACH_SECONDS, AgentAccess, RemoteNode
from headway.errors import EngineError, HeadwayError, NameTaken
from headway.model.instant import SECOND, to_seconds
from headway.model.node import Capabilities, NodeSpec

log = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = 5.0
_AT_ONCE: Final = 8
"""So many workers are attached at the same time."""

_BACKLOG: Final = 4 << 20
_NOT_IN_NAMES: Final = re.compile(r"[^\w.:/+-]", re.ASCII)


class DaskEngine(RemoteEngine):
    """Runs attempts on the workers of a Dask cluster. See `headway.engines.base.Engine` for its duties.

    Args:
        root: the engine's folder on this machine; made if it does not exist. One driver at a time.
        settings: see there.
    """

    def __init__(self, root: Path, settings: DaskSettings) -> None:
        super().__init__(root, settings.agents)
        self._terms = settings
        self._address = settings.address
        self._started: StartedCluster | None = None
        if settings.start:
            start = Start(settings.start, dict(settings.options), settings.workers, settings.agents.orphaned_after)
            self._started = StartedCluster(root / "cluster", start)
        self._scheduler: Comm | None = None
        self._watching: asyncio.Task[None] | None = None
        self._look = asyncio.Event()
        self._attaching: dict[str, asyncio.Task[None]] = {}
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._absent: dict[str, float] = {}
        self._kept_out = KeptOut(root)
        self._joining: set[str] = set()
        self._told: dict[str, str] = {}
        self._offered: SharedFolders | None = None
        self._not_sharing: dict[str, str] = {}
        self._arguments: dict[str, Any] = {}
        self._tls: Path | None = None
        self._checking: asyncio.Task[None] | None = None
        self._owner = ""

    @property
    def silence(self) -> str:
        """Why the scheduler does not answer now; empty: it does."""
        return self._told.get(self._whose, "")

    @property
    def _whose(self) -> str:
        """What incidents about the whole cluster are about."""
        return self._terms.address or self._terms.start

    @property
    def kept_out(self) -> frozenset[str]:
        """The workers that were told to leave, also those that were let in since."""
        return self._kept_out.known

    # Called by the driver

    async def start(self, nodes: Iterable[NodeSpec], report: Callable[[Report], None], files: Files) -> Found:
        """Adopt what runs on the workers that are there; the others are absent, and found later."""
        self._begin(report, files)
        self._offer(files)
        nodes = tuple(nodes)
        self._kept_out.load(spec.name for spec in nodes)
        await self._find_scheduler()
        self._owner = _owner(self._root)
        try:
            workers = await self._workers()
            named = {spec.name: spec for spec in nodes}
            here = {name: self._node(named[name], *workers[name]) for name in named.keys() & workers.keys()}
            answers = await asyncio.gather(
                *(self._attached(node, fresh=False) for node in here.values()), return_exceptions=True
            )
        except BaseException:
            self._leave_scheduler()
            raise
        welcomes = dict[RemoteNode, Welcome]()
        for node, answer in zip(here.values(), answers, strict=True):
            if isinstance(answer, Welcome) and node.spec.found and _is_other(node):
                node.let_go()  # it is found at once, as another node
            elif isinstance(answer, Welcome):
                self._nodes[node.spec.name] = node
                welcomes[node] = answer
            elif isinstance(answer, HeadwayError):
                self._cannot(node.spec.name, answer)
            else:
                raise answer
        found = self._adopt(welcomes)
        if self._offered is not None:
            self._take_down_fences(self._root, found.running)
        absent = named.keys() - self._nodes.keys()
        self._absent = dict.fromkeys(absent, self._loop.time())
        self._open_up()
        if self._tls is not None and self._started is None:
            self._checking = self._loop.create_task(self._check_host(self._tls))
        self._watching = self._loop.create_task(self._watch())
        return msgspec.structs.replace(found, absent=frozenset(absent))

    def check_fit(self, node: NodeSpec) -> None:
        """A node has at most a slot for each thread of its worker, as far as that has come."""
        super().check_fit(node)
        if (known := self._nodes.get(node.name)) is not None:
            threads = cast(_ToWorker, known.way).threads
            hint = "A worker that is started again with more of them (--nthreads) has more slots at once."
            check_most(node, threads, f"its worker has {threads} {'thread' if threads == 1 else 'threads'}", hint)

    async def join(self, node: NodeSpec) -> None:
        """Take a worker into service that was told to leave, or before it is found by itself.

        Raises:
            EngineError: there is no worker of this name.
        """
        name = node.name
        if name in self._nodes:
            raise NameTaken(name, "a node of this engine")
        self._joining.add(name)  # it is not found meanwhile
        try:
            workers = await self._workers()
            if name not in workers:
                hint = f"Start one: dask worker {self._address} --name {name}"
                raise EngineError(f"node {name!r} cannot be added: Dask has no worker of this name", hint)
            await self._end_attaching(name)
            if name in self._nodes:
                raise NameTaken(name, "a node of this engine")
            joining = self._node(node, *workers[name])
            await self._attached(joining, fresh=True)
            self._nodes[name] = joining
            self._kept_out.let_in(name)
        finally:
            self._joining.discard(name)

    async def leave(self, name: str) -> None:
        """It is not found again before it is let in."""
        node = self._nodes.get(name)
        self._kept_out.add(name, "" if node is None else cast(_ToWorker, node.way).address)
        self._absent.pop(name, None)
        await self._end_attaching(name)
        self._not_sharing.pop(name, None)
        await super().leave(name)

    async def let_in(self, name: str, slots: int | None = None) -> bool:
        """Find a worker again that was told to leave. If the scheduler does not answer, this comes later."""
        try:
            _, threads = (await self._workers()).get(name, ("", None))
        except EngineError:
            threads = None
        check_slots(name, slots, threads)
        was_out = self._kept_out.let_in(name)
        self._look.set()
        return was_out

    async def stop(self) -> None:
        """End every node with all its processes; the workers go on."""
        tasks = [*self._attaching.values(), *filter(None, (self._watching, self._checking))]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._watching = None
        self._attaching.clear()
        await super().stop()
        self._leave_scheduler()
        if self._started is not None:
            await self._started.end()

    # Internal

    async def _check_host(self, tls: Path) -> None:
        """Report a certificate that is for another host: Dask accepts it all the same."""
        seen = await asyncio.to_thread(look, self._address, tls)
        if seen.other_host:
            said = f"its certificate is of another host, and Dask does not look at that: {seen.other_host}"
            log.warning("%s: %s", self._address, said)
            self._tell(Noticed("certificate_doubtful", self._address, said))

    async def _why_not(self, address: str, error: Exception) -> str:
        """Why a scheduler or worker does not answer: why there is no connection, else what the error says."""
        seen = await asyncio.to_thread(look, address, self._tls)
        return seen.trouble or _said(error)

    async def _find_scheduler(self) -> None:
        """See where the scheduler is; first start the cluster, if that is wanted and it is not there.

        Raises:
            InvalidInput, EngineError: it cannot be started.
        """
        tls = self._terms.tls
        if self._started is not None:
            place = await self._started.place()
            self._address, tls = place.address, Path(place.tls) if place.tls else None
        self._leave_scheduler()
        self._tls = tls
        self._arguments = _security(tls).get_connection_args("client") or {}

    def _leave_scheduler(self) -> None:
        if self._scheduler is not None:
            self._scheduler.abort()
        self._scheduler = None

    def _offer(self, files: Files) -> None:
        """Let workers see whether they share what the server has, if their site says so.

        Raises:
            EngineError: they cannot: the server's files are in no folder, or its folder cannot be used.
        """
        if not self._terms.shared:
            return
        if files.folder is None:
            raise EngineError("the files that the server keeps are in no folder, so nothing of them can be shared")
        try:
            for name in ("checkpoints", "fences"):
                (self._root / name).mkdir(mode=0o700, exist_ok=True)
            self._offered = offer(self._root, files.folder)
        except OSError as error:
            raise EngineError(f"the folder {self._root} cannot be used: {error}") from error

    async def _end_attaching(self, name: str) -> None:
        if (attaching := self._attaching.pop(name, None)) is not None:
            attaching.cancel()
            await asyncio.wait((attaching,))

    async def _workers(self) -> dict[str, tuple[str, int]]:
        """Address and threads of each worker, by the name of its node.

        Raises:
            EngineError: the scheduler does not answer.
        """
        comm, self._scheduler = self._scheduler, None  # who asks meanwhile has a connection of their own
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                if comm is None or comm.closed():
                    comm = await self.connected(self._address)
                told = await send_recv(comm, op="identity")
        except (OSError, TimeoutError, ValueError, MemoryError) as error:
            where = f"site {self._terms.site!r} (`address` in its table, or --dask)"
            raise EngineError(
                f"no Dask scheduler answers at {self._address}: {await self._why_not(self._address, error)}",
                f"Start one with `dask scheduler`, or correct the address of {where} or its certificates.",
            ) from error
        finally:
            if comm is not None:
                self._leave_scheduler()
                self._scheduler = comm
        found = dict[str, tuple[str, int]]()
        for address, worker in told["workers"].items():
            name = node_name(worker.get("name", address), self._terms.site)
            if name in found:
                self._cannot(address, NameTaken(name, f"another worker, so that at {address} is not used"))
                continue
            found[name] = address, int(worker["nthreads"])
        return found

    async def _watch(self) -> None:
        """Look at which workers there are, from time to time and when one is lost."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._terms.period):
                    await self._look.wait()
            self._look.clear()
            try:
                if self._started is not None and not self._started.is_there:
                    await self._find_scheduler()
                workers = await self._workers()
                self._compare(workers)
            except HeadwayError as error:  # what runs goes on without a scheduler
                self._cannot(self._whose, error)
            except Exception:  # a scheduler that answers strangely may answer well the next time
                log.exception("the workers of %s are not known", self._whose)
            else:
                self._told.pop(self._whose, None)

    def _compare(self, workers: dict[str, tuple[str, int]]) -> None:
        """Attach what is new or back, resize what has changed, give up what has long been gone."""
        now = self._loop.time()
        for noticed in self._kept_out.news({name: address for name, (address, _) in workers.items()}):
            self._tell(noticed)
        for name, (address, slots) in workers.items():
            node = self._nodes.get(name)
            if node is not None:
                self._absent.pop(name, None)
            elif name in self._absent:  # the driver knows it, and it has not been taken into service yet
                self._absent[name] = now
            if any(name in known for known in (self._kept_out, self._joining, self._attaching)):
                continue
            if node is None or not node.up:
                self._attaching[name] = self._loop.create_task(self._find(name, address, slots))
            elif cast(_ToWorker, node.way).threads != slots or (node.spec.found and node.spec.slots > slots):
                cast(_ToWorker, node.way).threads = slots
                self._tell(NodeFound(replace(node.spec, slots=slots)))
        for name in {*self._nodes, *self._absent} - workers.keys():
            if now - self._absent.setdefault(name, now) > self._terms.gone_after:
                node = self._nodes.pop(name, None)
                self._owed.pop(name, None)
                self._not_sharing.pop(name, None)
                if node is not None:
                    self._drop(node)
                    self._hang_up(node)
                    node.let_go()
                del self._absent[name]
                self._tell(NodeGone(name, f"its worker has been gone for {self._terms.gone_after:g} s"))

    async def _find(self, name: str, address: str, slots: int) -> None:
        """Take a worker into service. Nothing that it ran for us before goes on."""
        before = self._nodes.get(name)
        same = before is not None and cast(_ToWorker, before.way).threads == slots
        spec = self._spec(name, slots) if before is None else before.spec
        node = self._node(spec if same else replace(spec, slots=slots), address, slots)
        try:
            async with self._few:
                await self._attached(node, fresh=True)
            if before is None or before.shares != node.shares:
                able = replace(spec.capabilities, shares_files=node.shares)
                node.spec, same = replace(node.spec, capabilities=able), False
        except HeadwayError as error:
            self._cannot(name, error)
            await asyncio.sleep(self._terms.period)
        else:
            self._told.pop(name, None)
            self._nodes[name] = node
            self._tell_owed(node)
            self._tell(NodeBack(name) if same else NodeFound(node.spec))
        finally:
            if self._attaching.get(name) is asyncio.current_task():
                del self._attaching[name]

    def _spec(self, name: str, slots: int) -> NodeSpec:
        ahead = self._terms.read_ahead
        return NodeSpec(name, slots, site=self._terms.site, capabilities=APART, read_ahead=ahead, short=WORTH_AHEAD)

    def _node(self, spec: NodeSpec, address: str, slots: int) -> RemoteNode:
        lease = self._settings.lease if spec.lease is None else to_seconds(spec.lease)
        return RemoteNode(spec, self, lease, _ToWorker(self, address, slots))

    async def _attached(self, node: RemoteNode, *, fresh: bool) -> Welcome:
        """Check the worker, and be the driver of its agent."""
        await self._install(node)
        welcome = await node.attach(fresh=fresh)
        if self._offered is not None:
            self._say_why_not(node.spec.name, "" if node.shares else cast(_ToWorker, node.way).why_not)
        return welcome

    def _say_why_not(self, name: str, why_not: str) -> None:
        """Say once why a node does not share what its site says that it does; empty: it does."""
        if not why_not:
            self._not_sharing.pop(name, None)
        elif self._not_sharing.get(name) != why_not:
            self._not_sharing[name] = why_not
            said = "its site says `shared = true`, and it does not share the server's folder, so files are sent"
            self._tell(Noticed("node_not_sharing", name, f"{said}: {why_not}"))

    async def _install(self, node: RemoteNode) -> None:
        """Have the worker run a station.

        Raises:
            EngineError: it has no Headway, another version of it, or another Python.
        """
        name = node.spec.name
        way = cast(_ToWorker, node.way)
        there = f"pip install headway=={__version__} where the worker runs, and start the worker again"
        comm: Comm | None = None
        try:
            async with asyncio.timeout(ATTACH_SECONDS):
                comm = await self.connected(way.address)
                answer = await send_recv(comm, op="run", function=dumps(install))
        except (OSError, TimeoutError) as error:
            why = await self._why_not(way.address, error)
            raise EngineError(f"the worker of node {name!r} does not answer at {way.address}: {why}") from error
        except Exception as error:  # whatever the worker raised when it looked for Headway
            raise EngineError(
                f"node {name!r} cannot be used: its worker has no Headway that works: {error}", there
            ) from error
        finally:
            if comm is not None:
                comm.abort()
        if answer["status"] != "OK":
            said = answer.get("exception_text") or answer.get("exception")
            raise EngineError(f"node {name!r} cannot be used: its worker has no Headway that works: {said}", there)
        try:
            facts = msgspec.convert(answer["result"], WorkerFacts)
        except msgspec.ValidationError as error:
            said = f"its worker has another version of Headway, here is {__version__}: {error}"
            raise EngineError(f"node {name!r} cannot be used: {said}", there) from error
        ours = (sys.version_info.major, sys.version_info.minor)
        if facts.python != ours:
            theirs = "Python {}.{}".format(*facts.python)
            hint = "Functions can only be sent between equal versions: start the worker with this one."
            raise EngineError(
                f"node {name!r} cannot be used: its worker has {theirs}, here is {ours[0]}.{ours[1]}", hint
            )
        if facts.frames != VERSION:
            said = f"its worker has Headway {facts.version}, whose messages have format {facts.frames}; "
            said += f"here is {__version__} with {VERSION}"
            raise EngineError(f"node {name!r} cannot be used: {said}", there)

    def on_lost(self, node: Any, detail: str) -> None:
        """Its worker may be back soon."""
        super().on_lost(node, detail)
        self._look.set()

    def _cannot(self, subject: str, error: HeadwayError) -> None:
        """Say once why something cannot be used. While a cluster is gone the reason may change; the log has each."""
        said = ". ".join(str(part).rstrip(".") for part in (error.args[0], error.hint) if part)
        before = self._told.get(subject)
        if before == said:
            return
        self._told[subject] = said
        log.warning("%s", said)
        if before is None or subject != self._whose:
            kind = "name_taken" if isinstance(error, NameTaken) else "node_not_started"
            self._tell(Noticed("engine_gone" if subject == self._whose else kind, subject, said))

    def wanted(self, spec: NodeSpec, *, fresh: bool) -> dict[str, Any]:
        """What a station is asked for."""
        settings = self._settings
        asked = StationTerms(
            self._owner,
            spec.name,
            spec.slots,
            settings.orphaned_after,
            settings.task_output_max,
            settings.pass_env,
            self._terms.folder,
            fresh,
            self._offered,
        )
        return cast(dict[str, Any], msgspec.to_builtins(asked))

    def usable(self, own: str, shares: bool | None) -> dict[str, str]:
        """What an agent may use, see `AgentAccess.uploads`.

        Args:
            own: the node's own folder of files of the server.
            shares: whether the node has the folders that are offered; None: it cannot say so now.
        """
        found = {} if shares else {"": own}
        if self._offered is not None and shares is not False:
            found[self._offered.engine] = self._offered.uploads
        return found

    async def connected(self, address: str) -> Comm:
        """A connection to a scheduler or worker.

        One that is not waited for any more is closed when it is there: Tornado loses a connection if it is given up in
        the moment in which its handshake ends.

        Raises:
            OSError: there is none; at once if the name of the host is not known, after which Dask would try again.
            MemoryError: what answers is not Dask: its first bytes are no length of a message.
        """
        place = urlsplit(address)
        await asyncio.get_running_loop().getaddrinfo(place.hostname, place.port)
        connecting = asyncio.ensure_future(connect(address, timeout=_CONNECT_SECONDS, **self._arguments))
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(_given_up)
            raise


WORTH_AHEAD: Final = SECOND // 10
"""What runs shorter than this is worth launching ahead of its turn: on a busy machine an end takes a twentieth of a
second to come back from a worker."""


def _given_up(connecting: asyncio.Future[Comm]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().abort()


APART: Final = Capabilities(shares_files=False)
"""What every worker can do, whatever its machine shares."""


def _is_other(node: RemoteNode) -> bool:
    """Whether a node shares files now and did not when it was found, or the other way round."""
    return node.shares != node.spec.capabilities.shares_files


class _ToWorker:
    """The way to the agent of a worker.

    Attributes:
        address: of the worker.
        threads: that it offered last.
        why_not: why it did not share what it was asked to, when it was attached.
    """

    def __init__(self, engine: DaskEngine, address: str, threads: int) -> None:
        self.address = address
        self.threads = threads
        self.why_not = ""
        self._engine = engine
        self._spec: NodeSpec | None = None
        self._transport: _CommTransport | None = None

    async def open(self, line: AgentLine, spec: NodeSpec, *, fresh: bool) -> AgentAccess:
        self._spec = spec
        comm = await self._comm(spec.name)
        try:
            async with asyncio.timeout(ATTACH_SECONDS):
                await comm.write({"op": ATTACH, "wanted": self._engine.wanted(spec, fresh=fresh)})
                answer = await comm.read()
        except (OSError, TimeoutError) as error:
            comm.abort()
            raise EngineError(f"node {spec.name!r} does not start: {_said(error)}") from error
        except BaseException:
            comm.abort()
            raise
        if "error" in answer:
            comm.abort()
            if answer["taken"]:
                raise NameTaken(spec.name, answer["error"])
            raise EngineError(f"node {spec.name!r} does not start: {answer['error']}")
        self._transport = _CommTransport(comm, line)
        line.connection_made(self._transport)
        self.why_not = answer.get("why_not", "its Headway is of another version")
        return AgentAccess(answer["secret"], self._engine.usable(answer["uploads"], answer.get("shares", False)))

    async def end(self) -> None:
        if self._spec is None:
            return
        try:
            comm = await self._comm(self._spec.name)
            try:
                async with asyncio.timeout(ATTACH_SECONDS):
                    await comm.write({"op": END_OPERATION, "wanted": self._engine.wanted(self._spec, fresh=True)})
                    await comm.read()
            finally:
                comm.abort()
        except (EngineError, OSError, TimeoutError) as error:
            log.warning("node %s cannot be ended, it ends by itself: %s", self._spec.name, error)

    async def drained(self) -> None:
        if self._transport is not None:
            await self._transport.drained()

    async def _comm(self, name: str) -> Comm:
        try:
            return await self._engine.connected(self.address)
        except (OSError, TimeoutError) as error:
            raise EngineError(
                f"the worker of node {name!r} does not answer at {self.address}: {_said(error)}"
            ) from error


class _CommTransport(asyncio.Transport):
    """A connection of Dask, as a line needs it."""

    def __init__(self, comm: Comm, line: AgentLine) -> None:
        super().__init__()
        self._comm = comm
        self._line = line
        self._queue: list[Body] = []
        self._size = 0
        self._more = asyncio.Event()
        self._less = asyncio.Event()
        self._less.set()
        self._closed = False
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._write())]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send it, with what else waits."""
        if self._closed or not data:
            return
        self._queue.append(data if isinstance(data, bytes) else memoryview(data).toreadonly())
        self._size += len(data)
        self._more.set()
        if self._size > _BACKLOG:
            self._less.clear()

    def abort(self) -> None:
        """End the connection."""
        if not self._closed:
            self._closed = True
            self._comm.abort()
            self._less.set()
            for task in self._tasks:
                task.cancel()
            asyncio.get_running_loop().call_soon(self._line.connection_lost, None)

    async def drained(self) -> None:
        """Return when little waits to be sent."""
        await self._less.wait()

    async def _read(self) -> None:
        try:
            while not self._closed:
                self._line.data_received(received(self._comm, await self._comm.read()))
        except ChangedOnTheWayError as error:
            self._line.fail(str(error))
        except OSError:
            self.abort()

    async def _write(self) -> None:
        try:
            while not self._closed:
                await self._more.wait()
                self._more.clear()
                queue, self._queue, self._size = self._queue, [], 0
                for part in joined(queue):
                    data = memoryview(part)
                    for at in range(0, len(data), MESSAGE_MAX):
                        await self._comm.write(message(self._comm, data[at : at + MESSAGE_MAX]))
                self._less.set()
        except OSError:
            self.abort()


def _said(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return (
            "what answers there is not Dask; a scheduler listens at port 8786, as a rule, and its web pages are at 8787"
        )
    if isinstance(error, TimeoutError) and not str(error):
        return "it gives no answer in time"
    return str(error) or type(error).__name__


def node_name(name: object, site: str = DEFAULT_SITE) -> str:
    """The name of the node of a worker, by the worker's name.

    Those that Dask numbers, as in every cluster that it starts, get the name of their site.
    """
    text = _NOT_IN_NAMES.sub("_", str(name))[:200]
    if not text.isdecimal():
        return text or "worker"
    return f"worker-{text}" if site == DEFAULT_SITE else f"{site}-{text}"


def _security(tls: Path | None) -> Security:
    if tls is None:
        return Security()
    authority, certificate, key = (str(tls / name) for name in TLS_FILES)
    return Security(require_encryption=True, tls_ca_file=authority, tls_client_cert=certificate, tls_client_key=key)


def _owner(root: Path) -> str:
    """Who this server is to stations: a text that is made once."""
    path = root / "owner"
    owner = path.read_text("ascii") if path.exists() else ""
    if len(owner) != 32:  # none yet, or the power failed before it was on the disk
        owner = secrets.token_hex(16)
        draft = path.with_suffix(".draft")
        draft.write_text(owner, "ascii")
        draft.replace(path)
    return owner
