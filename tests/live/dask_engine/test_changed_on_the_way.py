"""What the network between a server and a worker changes, where there is no TLS, is noticed, and nobody gets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest
from distributed.comm.core import Comm

from headway.engines.base import NodeBack, NodeFound, NodeLost
from headway.engines.dask.engine import DaskEngine
from headway.engines.trial import Trial

from ...dask_site import Processes

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]

LARGE = 6 << 20
"""Bytes: two messages."""

INSIDE = 1 << 20
"""At this byte of a connection there is nothing but what is large."""


def doubled(data: bytes) -> bytes:
    return data + data


class BadNetwork:
    """It changes one bit of what it carries.

    Attributes:
        changes: on which way, "there" or "back"; empty: nothing any more.
    """

    def __init__(self, changes: str) -> None:
        self.changes = changes
        self._far = ""

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[Callable[[str], str]]:
        """Gives the address that leads through it to another one."""
        async with await asyncio.start_server(self._connected, "127.0.0.1", 0) as near:
            port = near.sockets[0].getsockname()[1]

            def through(address: str) -> str:
                self._far = address
                return f"tcp://127.0.0.1:{port}"

            yield through

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far = urlsplit(self._far)
        far_reader, far_writer = await asyncio.open_connection(far.hostname, far.port)
        with suppress(asyncio.CancelledError):  # when the test is over
            await asyncio.gather(self._carry("there", reader, far_writer), self._carry("back", far_reader, writer))

    async def _carry(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passed = 0
        with suppress(OSError):
            while data := bytearray(await reader.read(1 << 16)):
                if self.changes == way and passed <= INSIDE < passed + len(data):
                    data[INSIDE - passed] ^= 1
                    self.changes = ""
                passed += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.mark.parametrize("way", ["there", "back"])
async def test_a_changed_bit_loses_the_node_and_never_a_result(
    site: Processes, make: Callable[..., DaskEngine], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    site.one(a=1)
    engine, network = make(), BadNetwork(way)
    data = bytes(range(256)) * (LARGE // 256)
    async with network.laid() as through, Trial(engine, 60.0) as trial:
        connected = engine.connected

        async def badly_connected(address: str) -> Comm:
            return await connected(address if address == site.address else through(address))

        monkeypatch.setattr(engine, "connected", badly_connected)
        await engine.start((), trial._take, trial._files)
        await trial.told(NodeFound)
        trial.call(doubled, data, node="a")
        lost = await trial.told(NodeLost)
        assert way == "there" or "are not what was sent: something on the way changed them" in lost.detail
        await trial.told(NodeBack)
        assert await trial.value(trial.call(doubled, data, node="a", key=(1, 0, 2))) == data + data
        assert network.changes == ""
