"""A Dask cluster that a server starts, through a process that keeps it; see `headway.engines.dask.keeper`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from headway.engines.dask.keeper import CLUSTER_FILE, END_LINE, KEEPER_LOG, SOCKET, ClusterPlace, Start
from headway.errors import EngineError, InvalidInput
from headway.sockets import short

_START_SECONDS: Final = 120.0
_END_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 0.1
_TRIES: Final = 3
_LOG_TAIL: Final = 2000


class StartedCluster:
    """The cluster of one site.

    Args:
        folder: where its process keeps what it needs; made if it does not exist.
        start: what is started.
    """

    def __init__(self, folder: Path, start: Start) -> None:
        self._folder = folder
        self._start = start
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_there(self) -> bool:
        """Whether the process is there that keeps the cluster."""
        return self._reader is not None and not self._reader.at_eof()

    async def place(self) -> ClusterPlace:
        """Where the cluster is: the one that an earlier server has started in the same way, or a new one.

        Raises:
            InvalidInput: there is no such class, or it does not take these options; the field is one of `Start`.
            EngineError: it cannot be started.
        """
        try:
            async with asyncio.timeout(_START_SECONDS):
                found = await self._told()
                if found.start != self._start:
                    await self.end()
                    found = await self._told()
        except TimeoutError:
            raise self._failed(f"it has not started within {_START_SECONDS:g} s") from None
        except OSError as error:
            raise self._failed(str(error)) from error
        if found.error:
            await self._hang_up()
            await self._reap()
            if found.wrong is not None:
                field, hint = (
                    found.wrong.field,
                    f"{found.wrong.hint}\n{self._folder / KEEPER_LOG} has all that it said.",
                )
                raise InvalidInput(field, getattr(self._start, field), found.wrong.allowed, hint=hint)
            raise self._failed(found.error)
        return found

    async def end(self) -> None:
        """End the cluster, and wait for that."""
        if self._writer is not None and self._reader is not None:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    self._writer.write(END_LINE)
                    await self._writer.drain()
                    await self._reader.read()
        await self._hang_up()
        await self._reap()

    async def _reap(self) -> None:
        """Wait until the process has ended that is about to, if we have started it."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, _END_SECONDS)
            self._process = None

    async def _hang_up(self) -> None:
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _told(self) -> ClusterPlace:
        """What the process says that keeps the cluster; if there is none, it is started."""
        await self._hang_up()
        tries = 0
        while True:
            try:
                with short(self._folder / SOCKET) as path:
                    self._reader, self._writer = await asyncio.open_unix_connection(path)
                line = await self._reader.readline()
            except OSError:
                line = b""
            if line:
                return msgspec.json.decode(line, type=ClusterPlace)
            await self._hang_up()
            if self._process is None or self._process.poll() is not None:
                if tries == _TRIES:
                    assert self._process is not None
                    raise OSError(f"the process that keeps it ends with status {self._process.returncode}")
                tries += 1
                self._spawn()
            await asyncio.sleep(_AGAIN_SECONDS)

    def _spawn(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._folder / f".{CLUSTER_FILE}"
        draft.write_bytes(msgspec.json.encode(self._start))
        draft.replace(self._folder / CLUSTER_FILE)
        with open(os.open(self._folder / KEEPER_LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headway.engines.dask.keeper", str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _failed(self, why: str) -> EngineError:
        try:
            tail = (self._folder / KEEPER_LOG).read_text("utf-8", "replace")[-_LOG_TAIL:].strip()
        except OSError:
            tail = ""
        last = f" Its last line: {tail.splitlines()[-1]}" if tail and why not in tail else ""
        return EngineError(
            f"the Dask cluster ({self._start.start}) does not start: {why}",
            f"{self._folder / KEEPER_LOG} has what it said.{last}",
        )
