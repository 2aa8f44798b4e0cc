"""A node of this machine: the driver starts or finds its agent, and notices the agent's death."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from pathlib import Path
from typing import NamedTuple

from headway.engines.local.driver.attached import AgentLine, AgentNode, NodeOwner
from headway.engines.local.driver.host import AgentHost, node_folder
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.shared.frames import VERSION, Stop, Welcome, frame
from headway.engines.local.shared.output import OUTPUT_FOLDER
from headway.engines.local.shared.terms import Account, Terms
from headway.errors import EngineError
from headway.model.instant import to_seconds
from headway.model.node import NodeSpec

_ATTACH_SECONDS = 30.0
_BURIAL_SECONDS = 5.0
_AGAIN_SECONDS = 0.02


class EngineFolders(NamedTuple):
    """Folders of an engine: its own; that of what tasks are given and save; those of what they are given and save who
    run as accounts of their own; that of the files that the server keeps.
    """

    root: Path
    ground: Path
    accounts: Path | None = None
    uploads: Path | None = None


class LocalNode(AgentNode):
    """A node of this machine as the driver sees it."""

    def __init__(
        self,
        spec: NodeSpec,
        owner: NodeOwner,
        secret: bytes,
        settings: LocalSettings,
        places: EngineFolders,
        account: Account | None = None,
    ) -> None:
        lease = settings.lease if spec.lease is None else to_seconds(spec.lease)
        super().__init__(spec, owner, lease, str(places.uploads or ""))
        self.folder = node_folder(places.root, spec.name)
        self._host = AgentHost(self.folder, settings.pass_env)
        self._output = places.root / OUTPUT_FOLDER
        self._secret = secret
        self._settings = settings
        self._ground, self._accounts = places.ground, places.accounts
        self._account = account
        self._agent = -1

    async def attach(self) -> Welcome:
        """Find the node's agent, or start one, and be its driver; a node of another size is resized.

        Raises:
            NameTaken: there is an agent, and it has another driver.
            EngineError: there is no agent and none can be started.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        start = self._loop.time()
        while True:
            fresh = self._host.spawn(self._terms())
            connected = self._host.connect()
            if connected:
                welcome = await self._greeted(connected, _ATTACH_SECONDS if fresh else self.lease)
                if welcome and welcome.version == VERSION and welcome.user == self._terms().user:
                    self._admit(welcome)
                    return welcome
            if fresh:
                await self.gone()
                raise EngineError(f"node {self.spec.name!r} does not start", self._host.log_tail())
            if connected or self._loop.time() > start + _ATTACH_SECONDS / 2:
                self._host.put_down()  # it hangs, has another version, has another user, or does not listen
            if self._loop.time() > start + _ATTACH_SECONDS:
                raise EngineError(f"node {self.spec.name!r} does not start: a process holds {self.folder / 'lock'}")
            await asyncio.sleep(_AGAIN_SECONDS)

    def _terms(self) -> Terms:
        return Terms(
            self.spec.name,
            str(self.folder.resolve()),
            str(self._output.resolve()),
            str(self._ground.resolve()),
            self.spec.slots,
            self._settings.orphaned_after,
            self._settings.task_output_max,
            self._account,
            str(Path(self.uploads).resolve()) if self.uploads else "",
            accounts=str(self._accounts.resolve()) if self._accounts else "",
            owners=self._settings.run_as_owner,
            allow_root=self._settings.allow_root,
        )

    async def _greeted(self, connected: socket.socket, patience: float) -> Welcome | None:
        line = AgentLine(self)
        await self._loop.create_unix_connection(lambda: line, sock=connected)
        return await self._greet(line, self._secret, patience)

    def _admit(self, welcome: Welcome) -> None:
        with contextlib.suppress(ProcessLookupError):  # then its connection is closed too
            self._agent = os.pidfd_open(welcome.pid)
            if self._host.guard < 0:
                self._host.guard = os.pidfd_open(welcome.guard)
        super()._admit(welcome)

    def _abandon(self) -> None:
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
        elif self._host.process:
            self._host.put_down()
        await self.gone()
        if self.line:
            self.line.transport.abort()

    async def let_go(self) -> None:
        """Stop being its driver; a node that this driver did not start continues."""
        if self._host.process:
            await self.stop()
        self.up = False
        if self.line:
            self.line.transport.abort()

    async def gone(self) -> None:
        """Wait until no process of the node is left; kill what remains."""
        if self._host.guard >= 0:
            ended: asyncio.Future[None] = self._loop.create_future()
            self._loop.add_reader(self._host.guard, ended.cancel)
            try:
                await asyncio.wait((ended,), timeout=_BURIAL_SECONDS)
                if not ended.done():
                    self._host.put_down()
            finally:
                self._loop.remove_reader(self._host.guard)
                self._host.close()
        self._host.reap()
        if self._agent >= 0:
            os.close(self._agent)
            self._agent = -1
