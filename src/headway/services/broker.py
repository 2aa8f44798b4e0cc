"""The queues of all services, and the Unix socket on which their instances connect."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import msgspec

from headway.errors import Conflict, HeadwayError, NoSuchService, Unavailable, in_short
from headway.services import frames
from headway.services.queue import ConnectedInstance, Overseer, RequestQueue
from headway.services.terms import InstanceId, ServiceAnswer, ServiceSettings
from headway.sockets import short

log = logging.getLogger(__name__)

HELLO_SECONDS: Final = 5.0
"""From a new connection to the end of its `Hello`."""

FRAME_SECONDS: Final = 20.0
"""From the first byte of a frame to its last."""

STRANGERS_MAX: Final = 256
"""Connections that have not said who they are."""


class _WaitingCaller:
    """A caller that is a coroutine."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[ServiceAnswer] = asyncio.get_running_loop().create_future()

    def answered(self, answer: ServiceAnswer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def failed(self, error: HeadwayError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Broker:
    """Hands requests of callers to the instances of services.

    Everything happens in one event loop. Register the services before `open`: an instance of an unknown service is
    refused, and ends.

    Args:
        overseer: receives what becomes of instances, and measures.
        clock: tells seconds; never goes back.
        function: the pickled function that an instance is to load; empty: it knows what by name.
    """

    def __init__(
        self,
        overseer: Overseer,
        clock: Callable[[], float] = time.monotonic,
        function: Callable[[InstanceId], bytes] = lambda instance: b"",
    ) -> None:
        self._overseer = overseer
        self._clock = clock
        self._function = function
        self._services: dict[str, tuple[RequestQueue, bytes]] = {}  # with their keys
        self._connections: set[InstanceConnection] = set()
        self._strangers = 0
        self._servers: dict[Path, asyncio.AbstractServer] = {}
        self._closed = False

    async def open(self, path: Path, owner: tuple[int, int] | None = None, *, shared: bool = False) -> None:
        """Listen on a Unix socket at this path, too. What is left there of an earlier server is removed.

        Args:
            owner: user and group to whom it belongs, who alone can connect; None: those of this process.
            shared: everybody on this machine can connect.

        Raises:
            HeadwayError: that is not possible.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)
            with short(path) as address:
                listener.bind(address)
            os.chmod(path, 0o600)  # nobody connects before it listens
            if owner is not None:
                os.chown(path, *owner)
            listener.setblocking(False)
            self._servers[path] = await asyncio.get_running_loop().create_unix_server(self.connection, sock=listener)
            if shared:
                os.chmod(path, 0o666)
        except OSError as error:
            listener.close()
            raise HeadwayError(f"cannot listen on {path}: {error.strerror or error}") from error

    def abort(self) -> None:
        """All requests fail, now and from now on. Instances lose their connection, and look for the next server."""
        self._closed = True
        error = Unavailable("the server stops", "Send the request again when it is back.")
        for queue, _ in self._services.values():
            queue.abort(error)
        self._services.clear()
        for server in self._servers.values():
            server.close()
        for connection in list(self._connections):
            connection.abort()

    async def close(self) -> None:
        """The same, and listen no more."""
        self.abort()
        for path, server in self._servers.items():
            await server.wait_closed()
            path.unlink(missing_ok=True)

    def connection(self) -> InstanceConnection:
        """The broker's end of a new connection of an instance."""
        return InstanceConnection(self)

    def serve(self, name: str, key: str, version: str, settings: ServiceSettings) -> None:
        """Take on requests for a service from now on.

        Args:
            key: what its instances show; a secret of this service.
            version: of its handler.

        Raises:
            Conflict: there is one of this name.
            Unavailable: the broker is closed.
        """
        if self._closed:
            raise Unavailable("the server stops")
        if name in self._services:
            raise Conflict(f"there is a service {name!r}", "End it first, or replace its handler.")
        queue = RequestQueue(name, version, settings, self._overseer, self._clock, self._function)
        self._services[name] = queue, key.encode()

    def end(self, name: str) -> None:
        """End a service. Requests that wait fail; instances finish what they have, and end.

        Raises:
            NoSuchService: there is none of this name.
        """
        self.queue(name).end()
        del self._services[name]

    def replace(self, name: str, version: str, settings: ServiceSettings) -> None:
        """Let another version of a handler serve, with these settings, as soon as one of its instances is ready.

        Until then instances of the version before go on. Then these finish what they have, and end.

        Raises:
            NoSuchService: there is none of this name.
        """
        self.queue(name).replace(version, settings)

    def drain(self, name: str, instance: InstanceId) -> None:
        """Let an instance finish what it has, and end. Ignored if it is not connected.

        Raises:
            NoSuchService: there is none of this name.
        """
        self.queue(name).drain(instance)

    async def ask(self, name: str, body: bytes, kind: str = "") -> ServiceAnswer:
        """Have a request answered. If this is cancelled, the caller has gone: a request that waits is dropped.

        Args:
            kind: media type of the body.

        Raises:
            NoSuchService: there is none of this name.
            TooLarge: the body has too many bytes.
            ServiceFull: too many requests wait.
            RequestTimedOut: it waited, or was worked on, for too long.
            HandlerFailed: the handler failed.
            Malformed: the body is not what its media type says.
            InstanceDied: two instances died that had it.
            ServiceEnded: the service ended.
            Unavailable: the server stops.
        """
        queue, caller = self.queue(name), _WaitingCaller()
        request = queue.put(body, kind, caller)
        try:
            return await caller.answer
        except asyncio.CancelledError:
            queue.abandon(request)
            if caller.answer.done() and not caller.answer.cancelled():
                caller.answer.exception()  # it came at the same moment; asyncio would log an error that is not read
            raise

    def queue(self, name: str) -> RequestQueue:
        """The requests and instances of a service.

        Raises:
            NoSuchService: there is none of this name.
        """
        found = self._services.get(name)
        if found is None:
            raise Unavailable("the server stops") if self._closed else NoSuchService(name, self._services)
        return found[0]

    # For connections

    def connected(self, connection: InstanceConnection) -> bool:
        """A connection was made; returns whether there is room for it."""
        self._connections.add(connection)
        self._strangers += 1
        return self._strangers <= STRANGERS_MAX and not self._closed

    def known(self) -> None:
        """A connection has said who it is, or ended before that."""
        self._strangers -= 1

    def lost(self, connection: InstanceConnection) -> None:
        """A connection has ended."""
        self._connections.discard(connection)

    def welcome(
        self, hello: frames.Hello, connection: InstanceConnection
    ) -> tuple[RequestQueue, ConnectedInstance] | None:
        """Where an instance belongs; None: nowhere, and it has been told so."""
        found = self._services.get(hello.service)
        why = ""
        if hello.protocol != frames.PROTOCOL:
            why = f"it speaks version {hello.protocol} of the protocol, the server version {frames.PROTOCOL}"
        elif found is None or not hmac.compare_digest(hello.key.encode(), found[1]):
            why = f"there is no service {in_short(hello.service)!r}, or its key is another one"
        if why or found is None:
            log.warning("an instance of job %d, task %d was refused: %s", hello.job, hello.task, why)
            connection.send(frames.Goodbye(why))
            connection.close()
            return None
        instance = found[0].join(InstanceId(hello.job, hello.task, hello.attempt), hello.version, connection)
        return None if instance is None else (found[0], instance)


class InstanceConnection(asyncio.Protocol):
    """The broker's end of a connection. Whatever is no message of an instance at its place ends it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._transport: asyncio.Transport | None = None
        self._splitter = frames.Splitter(frames.AROUND)
        self._place: tuple[RequestQueue, ConnectedInstance] | None = None
        self._is_known = self._is_over = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It has begun."""
        self._transport = cast(asyncio.Transport, transport)
        if self._broker.connected(self):
            self._within(HELLO_SECONDS, "it did not say who it is")
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._end()
        self._broker.lost(self)
        if not self._is_known:
            self._is_known = True
            self._broker.known()
        if self._place is not None:
            queue, instance = self._place
            queue.lose(instance)

    def data_received(self, data: bytes) -> None:
        """The instance has sent something."""
        try:
            for body in self._splitter.feed(data):
                if self._is_over:
                    return
                self._take(frames.decode_from_instance(body))
        except (frames.Junk, msgspec.MsgspecError) as error:
            self._cut(str(error))
            return
        if self._is_over or self._place is None or not self._place[1].loaded:
            return
        if not self._splitter.halfway:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
        elif self._deadline is None:
            self._within(FRAME_SECONDS, "it sent half a message")

    def _take(self, message: frames.FromInstance) -> None:
        if self._place is None:
            if not isinstance(message, frames.Hello):
                raise frames.Junk("it did not say who it is")
            self._is_known = True
            self._broker.known()
            self._place = self._broker.welcome(message, self)
            if self._place is not None:
                settings = self._place[0].settings_of(message.version)
                self._splitter.longest = settings.answer_max + frames.AROUND
                self._within(settings.load_limit, f"it did not load its handler in {settings.load_limit:g} s")
            return
        queue, instance = self._place
        match message:
            case frames.AnswerFrame():
                queue.answered(instance, message)
            case frames.Failed():
                queue.failed(instance, message)
            case frames.Ready():
                queue.ready(instance)
                self._within(None, "")
            case frames.Broken(detail):
                queue.broken(instance, detail)
            case frames.Leaving():
                queue.leave(instance)
            case frames.Hello():
                raise frames.Junk("it says twice who it is")

    def send(self, message: frames.FromBroker) -> None:
        """Send a message."""
        if self._transport is not None and not self._is_over:
            self._transport.write(frames.frame(message))

    def close(self) -> None:
        """End it when everything is sent."""
        self._end()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End it at once."""
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        self._is_over = True
        self._within(None, "")

    def _within(self, seconds: float | None, why: str) -> None:
        """What is awaited must come within this time; None: nothing is awaited."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._late, why)

    def _late(self, why: str) -> None:
        self._deadline = None
        if self._place is not None and not self._place[1].loaded:
            queue, instance = self._place
            queue.is_stuck(instance, why)
        else:
            self._cut(why)

    def _cut(self, why: str) -> None:
        """End it because of what the other side did."""
        who = "an instance" if self._place is None else f"instance {tuple(self._place[1].id)}"
        log.warning("the connection of %s is ended: %s", who, in_short(why))
        self.abort()
        if self._place is not None:
            self._place[0].lose(self._place[1])
