"""Instances that do what a test tells them, on connections in memory and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headway.model.window import Window
from headway.services import frames
from headway.services.broker import Broker, InstanceConnection
from headway.services.terms import InstanceId, ServiceSettings

from ...faults.virtual import VirtualLoop

KEY = "secret"


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time, and check that no callback has raised."""

    def run() -> None:
        loop = VirtualLoop()
        try:
            loop.run_until_complete(asyncio.wait_for(test(), 1e6))
            assert loop.errors == []
        finally:
            loop.close()

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


class Noted:
    """A listener that notes what it hears.

    Attributes:
        heard: what, as (event, instance), in order.
        windows: the windows, in order.
    """

    def __init__(self) -> None:
        self.heard: list[tuple[str, InstanceId]] = []
        self.windows: list[Window] = []
        self.details: list[str] = []

    def ready(self, service: str, instance: InstanceId) -> None:
        self.heard.append(("ready", instance))

    def broken(self, service: str, instance: InstanceId, detail: str) -> None:
        self.heard.append(("broken", instance))
        self.details.append(detail)

    def stuck(self, service: str, instance: InstanceId, detail: str) -> None:
        self.heard.append(("stuck", instance))

    def late(self, service: str, instance: InstanceId, detail: str) -> None:
        self.heard.append(("late", instance))
        self.details.append(detail)

    def left(self, service: str, instance: InstanceId) -> None:
        self.heard.append(("left", instance))

    def measured(self, service: str, window: Window) -> None:
        self.windows.append(window)


class Pipe(asyncio.Transport):
    """The broker's side of a connection in memory."""

    def __init__(self, connection: InstanceConnection, actor: Actor) -> None:
        super().__init__()
        self._connection = connection
        self._actor = actor
        self._loop = asyncio.get_running_loop()
        self._closing = False

    def write(self, data: Any) -> None:
        if not self._closing:
            self._loop.call_soon(self._actor.receive, bytes(data))

    def deliver(self, data: bytes) -> None:
        """What the instance has sent arrives, unless the broker has closed its side."""
        if not self._closing:
            self._connection.data_received(data)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._actor.cut)
            self._loop.call_soon(self._connection.connection_lost, None)

    abort = close


class Actor:
    """An instance, as far as the broker can see.

    Attributes:
        got: what it has received, in order.
        is_open: whether its connection is.
    """

    def __init__(self, broker: Broker, task: int = 0, attempt: int = 1, version: str = "1") -> None:
        self.id = InstanceId(7, task, attempt)
        self.version = version
        self.got: list[frames.FromBroker] = []
        self.is_open = True
        self._loop = asyncio.get_running_loop()
        self._splitter = frames.Splitter(1 << 30)
        connection = broker.connection()
        self._pipe = Pipe(connection, self)
        connection.connection_made(self._pipe)

    @classmethod
    async def started(cls, broker: Broker, task: int = 0, attempt: int = 1, version: str = "1") -> Actor:
        """One that is ready."""
        actor = cls(broker, task, attempt, version)
        actor.hello()
        actor.send(frames.Ready())
        await settle()
        return actor

    @property
    def requests(self) -> list[frames.RequestFrame]:
        """Those that it has received."""
        return [each for each in self.got if isinstance(each, frames.RequestFrame)]

    @property
    def let_go(self) -> bool:
        """Whether it was told to end."""
        return frames.Goodbye() in self.got

    def hello(self, service: str = "s", key: str = KEY) -> None:
        self.send(frames.Hello(frames.PROTOCOL, service, key, self.version, *self.id))

    def send(self, message: frames.FromInstance) -> None:
        self.send_bytes(frames.frame(message))

    def send_bytes(self, data: bytes) -> None:
        self._loop.call_soon(self._pipe.deliver, data)

    def answer(self, body: bytes = b"done", spent: float = 0.0) -> None:
        """Answer the last request."""
        self.send(frames.AnswerFrame(self.requests[-1].number, "", body, spent))

    def die(self) -> None:
        self._loop.call_soon(self._pipe.close)

    def receive(self, data: bytes) -> None:
        self.got += map(frames.decode_from_broker, self._splitter.feed(data))

    def cut(self) -> None:
        self.is_open = False


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(10):
        await asyncio.sleep(0)


def broker_of(**settings: Any) -> tuple[Broker, Noted]:
    """A broker with the service `s`, in the time of the loop."""
    noted = Noted()
    broker = Broker(noted, asyncio.get_running_loop().time)
    broker.serve("s", KEY, "1", ServiceSettings(**settings))
    return broker, noted


def asked(broker: Broker, body: bytes = b"") -> asyncio.Task[Any]:
    """A caller that waits for its answer."""
    return asyncio.get_running_loop().create_task(broker.ask("s", body))
