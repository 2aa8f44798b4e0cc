"""For tests of engines: launches in few words, and everything that an engine reports, in order."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import pickle
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import cloudpickle

from headway.engines.base import (
    Assignment,
    AttemptKey,
    Call,
    Command,
    Ended,
    Engine,
    Files,
    Found,
    Function,
    Heard,
    Member,
    Pending,
    Report,
    Work,
)
from headway.errors import InvalidInput, NoSuchUpload
from headway.model.instant import from_seconds
from headway.model.node import NodeSpec

Kept = TypeVar("Kept", bound=Report)


def _check_digest(name: str, digest: str) -> None:
    """See that a file has its own name.

    Raises:
        InvalidInput: it has another one.
    """
    if name != digest:
        raise InvalidInput("upload", name, f"the SHA-256 of the bytes that were sent, {digest}")


class FilesInMemory:
    """Files of a server that engines can only have sent.

    Attributes:
        contents: by name.
    """

    folder: Path | None = None

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def add(self, content: bytes) -> str:
        """Keep one more; returns its name."""
        name = hashlib.sha256(content).hexdigest()
        self.contents[name] = content
        return name

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """A piece of it."""
        await asyncio.sleep(0)
        if name not in self.contents:
            raise NoSuchUpload(name)
        return self.contents[name][offset : offset + size]

    async def put(self, name: str, parts: AsyncIterator[bytes]) -> None:
        """Keep it, under its name."""
        _check_digest(name, self.add(b"".join([part async for part in parts])))


class FilesInFolder:
    """Files of a server on the same machine, which engines can open in their folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def add(self, content: bytes) -> str:
        """Keep one more; returns its name."""
        name = hashlib.sha256(content).hexdigest()
        self.folder.joinpath(name).write_bytes(content)
        return name

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """A piece of it."""
        try:
            return self.folder.joinpath(name).read_bytes()[offset : offset + size]
        except FileNotFoundError:
            raise NoSuchUpload(name) from None

    async def put(self, name: str, parts: AsyncIterator[bytes]) -> None:
        """Keep it, under its name."""
        _check_digest(name, self.add(b"".join([part async for part in parts])))


class Trial:
    """An engine and its reports. Leaving the context stops the engine and checks that no report is left unread.

    Args:
        engine: not yet started.
        patience: seconds to wait for a report before the test has failed.
        files: those that the server keeps; None: in memory.

    Attributes:
        unread: reports that the test has not read yet, without signs of life.
        pending: why attempts waited in the queue of the engine's system. A test may ignore them: how many there are
            depends on how fast that system is.
    """

    def __init__(self, engine: Engine, patience: float = 60.0, files: Files | None = None) -> None:
        self.engine = engine
        self._files = FilesInMemory() if files is None else files
        self.unread: list[Report] = []
        self.pending: list[Pending] = []
        self._patience = patience
        self._news = asyncio.Event()
        self._task = 0

    async def start(self, *nodes: NodeSpec) -> Found:
        """Start the engine with these nodes; if none is named, with one node `n` of two slots."""
        return await self.engine.start(nodes or (NodeSpec("n", slots=2),), self._take, self._files)

    def _take(self, report: Report) -> None:
        if isinstance(report, Pending):
            self.pending.append(report)
        elif not isinstance(report, Heard):
            self.unread.append(report)
            self._news.set()

    async def __aenter__(self) -> Trial:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.engine.stop()
        if error is None:
            assert self.unread == [], f"reports that were not expected: {self.unread}"

    def call(self, function: Callable[..., Any], *args: Any, **where: Any) -> AttemptKey:
        """Launch a call; see `launch` for the rest."""
        return self.launch(calling(function, *args), **where)

    def command(self, *argv: str, node: str = "n", slots: Sequence[int] = (0,), **terms: Any) -> AttemptKey:
        """Launch a command, with fields of `Command` and terms of `launch` by name."""
        names = ("cwd", "env", "stdin", "stdout", "stderr", "inputs", "outputs")
        fields = {name: terms.pop(name) for name in names if name in terms}
        return self.launch(Command(argv, **fields), node=node, slots=slots, **terms)

    def launch(
        self,
        *works: Work,
        node: str | Sequence[str] = "n",
        slots: Sequence[int] = (0,),
        key: AttemptKey | None = None,
        time_limit: float | None = None,
        **terms: Any,
    ) -> AttemptKey:
        """Launch one work on all of `slots`, or a gang of several, the i-th on the i-th of `slots` (and of nodes).

        Without a key it is the first attempt at a task of job 1 that was not launched before. Time in seconds.
        """
        if key is None:
            key = (1, self._task, 1)
            self._task += 1
        if len(works) == 1:
            assert isinstance(node, str)
            members: tuple[Member, ...] = (Member(node, tuple(slots), works[0]),)
        else:
            nodes = [node] * len(works) if isinstance(node, str) else node
            members = tuple(Member(name, (slot,), work) for name, slot, work in zip(nodes, slots, works, strict=True))
        limit = None if time_limit is None else from_seconds(time_limit)
        self.engine.launch(Assignment(*key, members, time_limit=limit, **terms))
        return key

    async def ended(self, key: AttemptKey, *, acknowledge: bool = True) -> Ended:
        """Wait for the end of an attempt."""
        ended = await self.told(Ended, lambda report: report.key == key)
        if acknowledge:
            self.engine.acknowledge(*key)
        return ended

    async def output(self, name: str, piece: int = 1 << 16) -> bytes:
        """All that the engine keeps under a name, read in pieces of this many bytes."""
        whole = b""
        while part := await self.engine.read(name, len(whole), piece):
            assert len(part) <= piece
            whole += part
        return whole

    async def value(self, key: AttemptKey) -> Any:
        """Wait for the end of a call; returns what it returned or raised."""
        ending = (await self.ended(key)).ending
        return None if ending.result is None else pickle.loads(ending.result)

    def disregard(self, *kinds: type[Report]) -> None:
        """Drop unread reports of these kinds: how many there are depends on how fast the machine is."""
        self.unread = [report for report in self.unread if not isinstance(report, kinds)]

    async def told(self, kind: type[Kept], which: Callable[[Kept], bool] = lambda _: True) -> Kept:
        """Wait for a report of this kind, and return it."""
        async with asyncio.timeout(self._patience):
            while True:
                for report in self.unread:
                    if isinstance(report, kind) and which(report):
                        self.unread.remove(report)
                        return report
                self._news.clear()
                await self._news.wait()


def calling(function: Callable[..., Any], *args: Any, family: str = "", paths: tuple[str, ...] = ()) -> Call:
    """A call of a function, which need not be importable where it runs; all are of one family unless it is named."""
    module = sys.modules.get(function.__module__) if inspect.isfunction(function) else None
    if module is not None:
        cloudpickle.register_pickle_by_value(module)
    try:
        return Call(Function.of(cloudpickle.dumps(function)), cloudpickle.dumps((args, {})), family, paths)
    finally:
        if module is not None:
            cloudpickle.unregister_pickle_by_value(module)
