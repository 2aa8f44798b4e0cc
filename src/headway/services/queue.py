"""The requests and the instances of one service.

Requests are handed out in the order of their arrival. One whose instance has died goes back to its place. Of several
idle instances the one that has been idle the longest is next. So all of them do the same share, as the m equal servers
do that a plan counts on, all stay warm, and one that fails at once gets only its share of the requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import Final, Protocol

from headway.errors import (
    HandlerFailed,
    HeadwayError,
    InstanceDied,
    Malformed,
    RequestTimedOut,
    ServiceEnded,
    ServiceFull,
    TooLarge,
)
from headway.model.window import Window
from headway.services import frames
from headway.services.terms import InstanceId, ServiceAnswer, ServiceSettings
from headway.services.windows import OpenWindow, WindowMeter

log = logging.getLogger(__name__)

REQUEST_TRIES: Final = 2
"""How often a request is handed out: again only if its instance died."""

RETRY_LEAST: Final = 1.0
RETRY_MOST: Final = 600.0
RETRY_UNKNOWN: Final = 10.0
"""Seconds after which a caller that finds the queue full may come again; the last if nothing says when."""

STUCK_KEPT: Final = 1000
"""Attempts that are remembered because they got stuck, and may not come back."""

_RECENT: Final = 100
"""The pace of a service is that of about so many last requests."""


class Overseer(Protocol):
    """Receives what becomes of instances, and the measures of services. It must not raise."""

    def ready(self, service: str, instance: InstanceId) -> None:
        """An instance has loaded the handler and takes requests."""

    def broken(self, service: str, instance: InstanceId, detail: str) -> None:
        """An instance could not load the handler, and ends."""

    def stuck(self, service: str, instance: InstanceId, detail: str) -> None:
        """An instance works for longer than it may. It gets nothing more: kill it."""

    def late(self, service: str, instance: InstanceId, detail: str) -> None:
        """An instance has not loaded the handler in time: kill it. That counts as its failure."""

    def left(self, service: str, instance: InstanceId) -> None:
        """An instance is connected no more: it was let go, or it died."""

    def measured(self, service: str, window: Window) -> None:
        """The measures of a window."""


class InstanceLink(Protocol):
    """The way to an instance."""

    def send(self, message: frames.FromBroker) -> None:
        """Send a message."""

    def close(self) -> None:
        """End the connection when everything is sent."""

    def abort(self) -> None:
        """End the connection at once."""


class Requester(Protocol):
    """What waits for the answer to a request: a coroutine, or a connection. It is told once."""

    def answered(self, answer: ServiceAnswer) -> None:
        """This is the answer."""

    def failed(self, error: HeadwayError) -> None:
        """There is none."""


class OpenRequest:
    """A request that was accepted.

    Attributes:
        number: grows with each request.
        arrived: when.
        tally: the window in which it arrived.
        caller: who asked.
        tries: how often it was handed out.
        ended: it was answered, or will not be.
    """

    __slots__ = ("arrived", "body", "caller", "ended", "kind", "number", "tally", "tries")

    def __init__(
        self, number: int, kind: str, body: bytes, arrived: float, tally: OpenWindow, caller: Requester
    ) -> None:
        self.number = number
        self.kind = kind
        self.body = body
        self.arrived = arrived
        self.tally = tally
        self.caller = caller
        self.tries = 0
        self.ended = False


class ConnectedInstance:
    """An instance that is connected.

    Attributes:
        loaded: it has loaded the handler.
        leaving: it gets nothing more.
        request: what it works on.
        since: when it was given that.
    """

    __slots__ = ("id", "leaving", "link", "loaded", "request", "since", "version")

    def __init__(self, identity: InstanceId, version: str, link: InstanceLink) -> None:
        self.id = identity
        self.version = version
        self.link = link
        self.loaded = self.leaving = False
        self.request: OpenRequest | None = None
        self.since = 0.0


class RequestQueue:
    """The requests and instances of a service. Its methods are called in one event loop.

    Args:
        name: of the service.
        version: of the handler that is wanted.
        clock: tells seconds; never goes back.
        function: the pickled function that an instance is to load; empty: it knows what by name.

    Attributes:
        wanted: version of the handler that is to serve.
        serving: the version that serves; another one until the first instance of the wanted version is ready.
        settings: those of the version that serves.
        ended: nothing more is taken on.
    """

    def __init__(
        self,
        name: str,
        version: str,
        settings: ServiceSettings,
        overseer: Overseer,
        clock: Callable[[], float],
        function: Callable[[InstanceId], bytes],
    ) -> None:
        self.name = name
        self.wanted = self.serving = version
        self.settings = self._coming = settings
        self.ended = False
        self._overseer = overseer
        self._clock = clock
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._last = 0
        self._waiting: OrderedDict[int, OpenRequest] = OrderedDict()
        self._bytes = 0  # of the bodies of those
        self._instances: dict[tuple[int, int], ConnectedInstance] = {}  # by job and task
        self._idle: OrderedDict[ConnectedInstance, None] = OrderedDict()  # first the one that has been idle the longest
        self._busy: OrderedDict[ConnectedInstance, None] = OrderedDict()  # first the one that has worked the longest
        self._stuck: dict[tuple[int, int], int] = {}  # the last attempt that got stuck
        self._pace = 0.0  # seconds of a request, lately
        self._paced = 0
        self._meter = WindowMeter(settings, clock())
        self._timer: asyncio.TimerHandle | None = None
        self._armed = inf  # when it rings
        self._arm(self._meter.due)

    # Requests

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    @property
    def instances(self) -> list[InstanceId]:
        """Those that are ready, in order."""
        return sorted(each.id for each in self._instances.values() if each.loaded and not each.leaving)

    def put(self, body: bytes, kind: str, caller: Requester) -> OpenRequest:
        """Take a request on.

        Args:
            kind: media type of the body.
            caller: is told the answer, later.

        Raises:
            TooLarge: its body has too many bytes.
            ServiceEnded: the service has ended.
            ServiceFull: too many wait.
        """
        settings = self.settings
        if len(body) > settings.request_max:
            raise TooLarge(f"the request has {len(body)} bytes; allowed: at most {settings.request_max}")
        if self.ended:
            raise self._over()
        now = self._clock()
        if now >= self._meter.due:
            self._roll(now)
        tally = self._meter.arrived(now)
        if not self._idle and (
            len(self._waiting) >= settings.queue_max or self._bytes + len(body) > settings.queue_bytes_max
        ):
            tally.rejected += 1
            waiting = f"{len(self._waiting)} requests with {self._bytes} bytes wait for service {self.name!r}"
            raise ServiceFull(waiting, self._retry_after())
        self._last += 1
        request = OpenRequest(self._last, kind, body, now, tally, caller)
        if self._idle:
            self._hand(self._idle.popitem(last=False)[0], request, now)
        else:
            self._waiting[request.number] = request
            self._bytes += len(body)
            self._arm(now + settings.wait_limit)
        return request

    def abandon(self, request: OpenRequest) -> None:
        """The caller of a request has gone. An instance that works on it goes on; its answer is dropped."""
        if request.ended:
            return
        request.ended = True
        self._rolled()
        self._meter.current.gone += 1
        if self._waiting.pop(request.number, None) is not None:
            self._bytes -= len(request.body)

    def _settle(self, request: OpenRequest, error: HeadwayError) -> None:
        """A request ends without an answer."""
        if request.ended:
            return
        request.ended = True
        if isinstance(error, RequestTimedOut):
            self._meter.current.timed_out += 1
        else:
            self._meter.current.failed += 1
        request.caller.failed(error)

    def _hand(self, instance: ConnectedInstance, request: OpenRequest, now: float) -> None:
        request.tries += 1
        instance.request = request
        instance.since = now
        self._busy[instance] = None
        instance.link.send(frames.RequestFrame(request.number, request.kind, request.body))
        self._arm(now + self.settings.time_limit)

    def _next(self) -> OpenRequest:
        _, request = self._waiting.popitem(last=False)
        self._bytes -= len(request.body)
        return request

    def _give_back(self, request: OpenRequest) -> None:
        """A request waits again, at its place in the order of arrival. Only those given back can be before it."""
        before = []
        for number in self._waiting:
            if number > request.number:
                break
            before.append(number)
        for number in (request.number, *reversed(before)):
            self._waiting.setdefault(number, request)
            self._waiting.move_to_end(number, last=False)
        self._bytes += len(request.body)
        self._arm(request.arrived + self.settings.wait_limit)

    def _retry_after(self) -> float:
        """Seconds in which those that wait will have been served."""
        if not self._meter.ready or not self._paced:
            return RETRY_UNKNOWN
        return min(max(RETRY_LEAST, len(self._waiting) * self._pace / self._meter.ready), RETRY_MOST)

    # Instances

    def join(self, identity: InstanceId, version: str, link: InstanceLink) -> ConnectedInstance | None:
        """An instance has connected and loads its handler; None: it is not wanted and has been told so.

        A later attempt of its task takes its place, and so does a new connection of the same attempt.
        """
        key = identity[:2]
        known = self._instances.get(key)
        least = max(self._stuck.get(key, -1) + 1, 0 if known is None else known.id.attempt)
        if self.ended or identity.attempt < least or version not in (self.wanted, self.serving):
            link.send(frames.Goodbye())
            link.close()
            return None
        if known is not None:
            known.link.abort()
            self.lose(known)
        instance = self._instances[key] = ConnectedInstance(identity, version, link)
        link.send(frames.Welcome(self.settings_of(version).answer_max, self._function(identity)))
        return instance

    def settings_of(self, version: str) -> ServiceSettings:
        """The settings of a version that serves or is to serve."""
        return self.settings if version == self.serving else self._coming

    def ready(self, instance: ConnectedInstance) -> None:
        """It has loaded its handler.

        Raises:
            Junk: it has said so before.
        """
        if instance.loaded:
            raise frames.Junk("it is ready twice")
        instance.loaded = True
        now = self._rolled()
        if instance.leaving or instance.version not in (self.wanted, self.serving):
            self._part(instance)
            return
        if self.serving != self.wanted and instance.version == self.wanted:
            self._switch()
        self._overseer.ready(self.name, instance.id)
        self._free(instance, now)
        self._count_ready()

    def broken(self, instance: ConnectedInstance, detail: str) -> None:
        """It cannot load its handler."""
        self._overseer.broken(self.name, instance.id, detail)
        instance.link.close()
        self.lose(instance)

    def answered(self, instance: ConnectedInstance, message: frames.AnswerFrame) -> None:
        """It has answered.

        Raises:
            Junk: it was not asked.
        """
        request = instance.request
        if request is None or request.number != message.number:
            raise frames.Junk(f"an answer to request {message.number}, which it does not have")
        now = self._clock()
        if now >= self._meter.due:
            self._roll(now)
        body, kind = message.body, message.kind
        if len(body) > self.settings_of(instance.version).answer_max:
            raise frames.Junk(f"an answer of {len(body)} bytes")
        if not (kind.isascii() and kind.isprintable()):
            raise frames.Junk(f"an answer of type {kind!r}")
        spent = self._spent(instance, message.spent, now)
        if not request.ended:
            request.ended = True
            self._meter.answered(request.tally, now - request.arrived, spent)
            request.caller.answered(ServiceAnswer(body, kind))
        del self._busy[instance]
        self._free(instance, now)

    def failed(self, instance: ConnectedInstance, message: frames.Failed) -> None:
        """Its handler has failed.

        Raises:
            Junk: it was not asked.
        """
        request = instance.request
        if request is None or request.number != message.number:
            raise frames.Junk(f"a failure of request {message.number}, which it does not have")
        now = self._rolled()
        spent = self._spent(instance, message.spent, now)
        if not request.ended and message.malformed:  # the caller's fault: that it was said in time is what counts
            request.ended = True
            self._meter.answered(request.tally, now - request.arrived, spent)
            request.caller.failed(Malformed(message.detail))
        elif not request.ended:
            self._meter.current.processing.add(spent)
            self._settle(request, HandlerFailed(message.detail))
        del self._busy[instance]
        self._free(instance, now)

    def leave(self, instance: ConnectedInstance) -> None:
        """It wants to end: let it finish what it has."""
        self._let_go(instance)
        self._count_ready()

    def drain(self, identity: InstanceId) -> None:
        """Let an instance finish what it has, and end. Ignored if it is not connected."""
        instance = self._instances.get(identity[:2])
        if instance is not None and instance.id == identity:
            self.leave(instance)

    def lose(self, instance: ConnectedInstance) -> None:
        """It is connected no more. What it had is given to another, once. Ignored if it was let go."""
        if self._instances.get(instance.id[:2]) is not instance:
            return
        now = self._rolled()
        self._remove(instance)
        request, instance.request = instance.request, None
        if request is not None and not request.ended:
            if self.ended:
                self._settle(request, self._over())
            elif request.tries >= REQUEST_TRIES:
                what = f"{REQUEST_TRIES} instances of service {self.name!r} died while they had this request"
                self._settle(request, InstanceDied(what))
            elif self._idle:
                self._hand(self._idle.popitem(last=False)[0], request, now)
            else:
                self._give_back(request)
        self._count_ready()

    def is_stuck(self, instance: ConnectedInstance, detail: str) -> None:
        """It works, or loads, for longer than it may: it gets nothing more, and no answer of it counts."""
        self._rolled()
        self._stuck[instance.id[:2]] = instance.id.attempt
        if len(self._stuck) > STUCK_KEPT:
            del self._stuck[next(iter(self._stuck))]
        request, instance.request = instance.request, None
        if request is not None:
            self._settle(request, RequestTimedOut(f"service {self.name!r}: {detail}"))
        instance.link.abort()
        tell = self._overseer.stuck if instance.loaded else self._overseer.late
        tell(self.name, instance.id, detail)
        self.lose(instance)

    def _free(self, instance: ConnectedInstance, now: float) -> None:
        instance.request = None
        if instance.leaving:
            self._part(instance)
        elif self._waiting:
            self._hand(instance, self._next(), now)
        else:
            self._idle[instance] = None

    def _let_go(self, instance: ConnectedInstance) -> None:
        instance.leaving = True
        if instance.request is None:
            self._part(instance)

    def _part(self, instance: ConnectedInstance) -> None:
        instance.link.send(frames.Goodbye())
        instance.link.close()
        self._remove(instance)
        self._count_ready()

    def _remove(self, instance: ConnectedInstance) -> None:
        del self._instances[instance.id[:2]]
        self._idle.pop(instance, None)
        self._busy.pop(instance, None)
        self._overseer.left(self.name, instance.id)

    def _count_ready(self) -> None:
        now = self._rolled()
        self._meter.has_ready(len(self.instances), now)
        if self.ended and not self._instances:
            self._finish(now)

    def _spent(self, instance: ConnectedInstance, said: float, now: float) -> float:
        """How long a request took the instance: what it says, if that can be."""
        most = now - instance.since
        spent = said if 0.0 <= said <= most else max(0.0, most)
        if self._paced < _RECENT:
            self._paced += 1
        self._pace += (spent - self._pace) / self._paced
        return spent

    # The whole

    def replace(self, version: str, settings: ServiceSettings) -> None:
        """Let another version serve as soon as one of its instances is ready. The others end then.

        The version that serves may be given other settings: they are used at once, and a new window begins.
        """
        self.wanted, self._coming = version, settings
        for instance in list(self._instances.values()):
            if instance.version not in (self.wanted, self.serving):
                self._let_go(instance)
        if version == self.serving or any(
            each.version == version for each in (*self._idle, *self._busy) if not each.leaving
        ):
            self._switch()
        self._count_ready()

    def _switch(self) -> None:
        """From now on the version that was wanted serves."""
        self.serving = self.wanted
        for other in [each for each in self._instances.values() if each.version != self.wanted]:
            self._let_go(other)
        if self.settings != self._coming:
            self.settings, now = self._coming, self._rolled()
            for window in self._meter.rest(now):
                self._overseer.measured(self.name, window)
            self._meter = WindowMeter(self.settings, now)
            self._count_ready()
            self._arm(self._meter.due)

    def end(self) -> None:
        """Take nothing more on. Requests that wait fail; instances finish what they have, and end."""
        self._fail_all(self._over())
        for instance in list(self._instances.values()):
            self._let_go(instance)
        self._count_ready()

    def abort(self, error: HeadwayError) -> None:
        """Take nothing more on. All requests fail with this error. Instances are not let go: they look for a server."""
        self._fail_all(error)
        for instance in list(self._instances.values()):
            if instance.request is not None:
                self._settle(instance.request, error)
            instance.link.abort()
            self.lose(instance)
        self._count_ready()

    def _fail_all(self, error: HeadwayError) -> None:
        self._rolled()
        self.ended = True
        while self._waiting:
            self._settle(self._next(), error)

    def _over(self) -> ServiceEnded:
        return ServiceEnded(f"service {self.name!r} has ended")

    def _finish(self, now: float) -> None:
        """The service has ended, and its last instance is gone."""
        if self._armed == -inf:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed = -inf
        for window in self._meter.rest(now):
            self._overseer.measured(self.name, window)

    # Time

    def _rolled(self) -> float:
        """The time; the windows that are over are ended first."""
        now = self._clock()
        if now >= self._meter.due:
            self._roll(now)
        return now

    def _roll(self, now: float) -> None:
        self._meter.queued = len(self._waiting)
        for window in self._meter.roll(now):
            self._overseer.measured(self.name, window)

    def _arm(self, at: float) -> None:
        """Let the timer ring at this time, or earlier."""
        if at < self._armed:
            if self._timer is not None:
                self._timer.cancel()
            self._armed = at
            self._timer = self._loop.call_later(max(0.001, at - self._clock()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._armed = inf
        now = self._rolled()
        settings = self.settings
        while self._waiting and next(iter(self._waiting.values())).arrived + settings.wait_limit <= now:
            what = f"the request has waited for {settings.wait_limit:g} s for an instance of service {self.name!r}"
            self._settle(self._next(), RequestTimedOut(what))
        while self._busy and (first := next(iter(self._busy))).since + settings.time_limit <= now:
            self.is_stuck(first, f"the handler has worked for {settings.time_limit:g} s on a request")
        if self._armed == -inf:
            return
        due = self._meter.due
        if self._waiting:
            due = min(due, next(iter(self._waiting.values())).arrived + settings.wait_limit)
        if self._busy:
            due = min(due, next(iter(self._busy)).since + settings.time_limit)
        self._arm(due)
