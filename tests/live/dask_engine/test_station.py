"""What a Dask worker does for the server, without a cluster."""

from __future__ import annotations

import asyncio
import fcntl
import socket
from pathlib import Path

import pytest

from headway.engines.dask.station import Station, StationTerms, _digest
from headway.engines.local.driver.host import AgentHost
from headway.engines.local.shared.terms import Terms
from headway.sockets import short

from ...waiting import becomes

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]


async def test_an_agent_that_was_killed_is_not_taken_for_its_successor_while_it_ends(
    there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes the mark of a process that was killed from it before its files, and a busy machine waits."""
    station = Station("tcp://127.0.0.1:1")
    asked = StationTerms("server", "a", 1, 60.0, 1_000_000, (), str(there), fresh=True)
    tried = list[bool]()
    spawn = AgentHost.spawn

    def counted(host: AgentHost, terms: Terms) -> bool:
        tried.append(spawn(host, terms))
        return tried[-1]

    monkeypatch.setattr(AgentHost, "spawn", counted)
    with station._own(asked) as folder:
        node = station._host(asked, folder / _digest(asked.owner)).folder
        node.mkdir(parents=True)
        with (node / "lock").open("w") as lock, socket.socket(socket.AF_UNIX) as listener:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with short(node / "socket") as address:
                listener.bind(address)
            listener.listen()
            listener.setblocking(False)
            connecting = asyncio.ensure_future(station._connected(asked, folder, None))
            await becomes(lambda: len(tried) > 1)
            assert not any(tried)
            with pytest.raises(BlockingIOError):
                listener.accept()
        connected, _ = await connecting
        connected.close()
        assert tried.count(True) == 1
        station._put_down(asked, folder)
