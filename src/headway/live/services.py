"""Services live: their requests, which neither the core nor the journal sees, and what follows for them from both.

An instance is a task like any other. The broker (`headway.services`) knows which of them are connected. What it
measures becomes `WindowEnded` events. What the core decides reaches instances through the engine: a service that loses
a slot, or is cancelled, has its instance asked to end, which finishes the request that it has.

**A service is replaced** by a job of the same name that says so. The job's id is the version of its handler. From the
first instance of the new job on that is ready, the broker asks those of the old one for nothing more, and the old job
is cancelled. If the new job ends before that, because its handler cannot be loaded, the old one goes on.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from headway import wire
from headway.engines import base
from headway.errors import Unavailable, in_short
from headway.live.clock import Clock
from headway.live.ledger import Ledger
from headway.live.sites import LOCAL_ENGINE, SiteEngines
from headway.live.store.journal import Journal
from headway.live.troubles import Troubles
from headway.live.work import NotThere
from headway.model.events import Event, JobCancelled, WindowEnded
from headway.model.instant import Instant, to_seconds
from headway.model.job import JobId, JobSpec, Service
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.window import RESPONSE_BOUNDS, Window
from headway.services.broker import Broker
from headway.services.queue import RequestQueue
from headway.services.terms import InstanceId, InstanceTerms, ServiceAnswer, ServiceSettings
from headway.services.windows import Moments

NO_DOOR = "this server has no services"
"""Why a driver without a door has none."""

TROUBLE_MAX = 2000
"""Characters that are kept of why a handler could not be loaded: the end of a traceback."""


@dataclass(frozen=True, slots=True)
class BrokerDoor:
    """Where instances find the server.

    Attributes:
        socket: path of the Unix socket.
        secret: what the keys of services are made from; it stays the same when the server starts again.
        owner: user and group of the instances, if these are not those of this process.
        shared: path of the socket for instances that run as accounts of their users: every user of the machine may
            connect, their keys say which is whose. None: there are none.
    """

    socket: Path
    secret: bytes
    owner: tuple[int, int] | None = None
    shared: Path | None = None

    def key(self, service: str) -> str:
        """What the instances of a service show."""
        return hmac.new(self.secret, f"service {service}".encode(), hashlib.sha256).hexdigest()


@dataclass(slots=True)
class ServiceTotals:
    """What a service has done since the server started, as far as its windows have ended; see `Window`."""

    arrivals: int = 0
    in_time: int = 0
    rejected: int = 0
    answered: int = 0
    failed: int = 0
    timed_out: int = 0
    gone: int = 0
    response_seconds: float = 0.0
    responses: list[int] = field(default_factory=lambda: [0] * (len(RESPONSE_BOUNDS) + 1))

    def add(self, window: Window) -> None:
        """Count one more window."""
        for name in ("arrivals", "in_time", "rejected", "answered", "failed", "timed_out", "gone"):
            setattr(self, name, getattr(self, name) + getattr(window, name))
        self.response_seconds += to_seconds(round(window.response * window.answered))
        self.responses = [one + more for one, more in zip(self.responses, window.responses, strict=True)]


class WarmUps:
    """How long instances take from their launch until they answer requests, by service.

    Only those count that were launched since the server started: of others it is unknown when they were ready first.

    Args:
        since: when the server started.
    """

    def __init__(self, since: Instant) -> None:
        self._since = since
        self._found: dict[str, Moments] = {}
        self._counted: set[InstanceId] = set()

    def add(self, service: str, instance: InstanceId, launch: Instant, now: Instant) -> None:
        """An instance is ready. Once it has been, it counts no more: it has lost its connection and found it again."""
        if launch >= self._since and instance not in self._counted:
            self._counted.add(instance)
            self._found.setdefault(service, Moments()).add(float(now - launch))

    def mean(self, service: str) -> float:
        """In microseconds; 0: not known."""
        found = self._found.get(service)
        return 0.0 if found is None else found.mean

    def forget(self, open_jobs: Container[JobId]) -> None:
        """Forget the instances of jobs that have ended."""
        self._counted = {instance for instance in self._counted if instance.job in open_jobs}


class NeededByServices(Protocol):
    """What is needed of the driver."""

    @property
    def sites(self) -> SiteEngines:
        """What the engine is made of."""

    @property
    def troubles(self) -> Troubles:
        """Receives failures."""

    def feed(self, events: Callable[[Instant], Sequence[Event]]) -> None:
        """Make events durable for which nobody waits."""

    def incident(self, kind: str, subject: str, detail: str, by: str = "") -> None:
        """Record something that an operator should know."""
        ...

    def kill(self, job: JobId, task: int, attempt: int) -> None:
        """Let the engine end an attempt that the core does not want to end."""


class LiveServices:
    """The services of a server; the overseer of its broker.

    Args:
        driver: see there.
        ledger: knows the open services.
        door: or why this server has no services.
        account_of: as which account the tasks of a user run on a node; empty: as that of its engine.

    Attributes:
        totals: of each service there was since the start, by name.
        troubles: why an instance could not load its handler, of the latest that could not, by job.
    """

    def __init__(
        self,
        driver: NeededByServices,
        ledger: Ledger,
        journal: Journal,
        clock: Clock,
        door: BrokerDoor | str,
        account_of: Callable[[str, NodeSpec], str],
    ) -> None:
        self._driver = driver
        self._ledger = ledger
        self._journal = journal
        self._door = door
        self._account_of = account_of
        self._is_shared = False
        self._clock = clock
        self._warm_ups = WarmUps(clock.now())
        self._broker = Broker(self, lambda: to_seconds(clock.now()), self._function)
        self._followed: Mapping[str, tuple[JobId, ...]] = {}
        self._closed = False
        self.totals: dict[str, ServiceTotals] = {}
        self.troubles: dict[JobId, str] = {}
        self._late: dict[base.AttemptKey, str] = {}

    # Start and end

    async def open(self) -> None:
        """Let instances connect.

        Raises:
            HeadwayError: the socket cannot be used.
        """
        if isinstance(self._door, BrokerDoor):
            await self._broker.open(self._door.socket, self._door.owner)
            if self._door.shared is not None and self._door.shared.parent.exists():
                await self.open_to_accounts()

    async def open_to_accounts(self) -> None:
        """Let instances connect that run as accounts of their users.

        Raises:
            HeadwayError: the socket cannot be used.
        """
        if isinstance(self._door, BrokerDoor) and self._door.shared is not None and not self._is_shared:
            self._is_shared = True
            await self._broker.open(self._door.shared, shared=True)

    def refuse(self) -> None:
        """From now on all requests fail, those included that wait or are worked on."""
        self._closed = True
        self._broker.abort()

    async def close(self) -> None:
        """Let no instance connect any more."""
        self._closed = True
        await self._broker.close()

    # Jobs

    def check(self) -> None:
        """Check that this server has services.

        Raises:
            Unavailable: it has none.
        """
        if isinstance(self._door, str):
            raise Unavailable(self._door)

    def terms(self, spec: JobSpec, work: wire.Handling, node: NodeSpec) -> InstanceTerms:
        """What the instances of a service are told on a node.

        Raises:
            Unavailable: this server has no services.
            NotThere: it is a node of another machine.
        """
        if (engine := self._driver.sites.engines.get(node.site, LOCAL_ENGINE)) != LOCAL_ENGINE:
            said = (
                f"node {node.name!r} is at site {node.site!r}, of engine {engine}: no instance of a service runs there"
            )
            hint = (
                "They run on the server's own machine: a policy such as sites:at=local/instances keeps services there."
            )
            raise NotThere(said, hint)
        self.check()
        assert isinstance(self._door, BrokerDoor)
        socket = self._door.shared if self._account_of(spec.user, node) else self._door.socket
        assert socket is not None, "tasks have accounts, so there is one for their instances"
        return InstanceTerms(
            service=spec.name,
            socket=str(socket.absolute()),
            key=self._door.key(spec.name),
            version=str(spec.id),
            handler=work.handler,
            command=work.command,
            paths=work.paths,
        )

    def follow(self) -> None:
        """Let the broker have the services that are open; after each turn."""
        if self._closed or isinstance(self._door, str) or self._followed is self._ledger.services:
            return
        before, self._followed = self._followed, self._ledger.services
        for name in before.keys() - self._followed.keys():
            self._broker.end(name)
        for name, jobs in self._followed.items():
            first, last = jobs[0], jobs[-1]
            if name not in before:
                self._broker.serve(name, self._door.key(name), str(first), self._settings(first))
            queue, settings = self._broker.queue(name), self._settings(last)
            if queue.wanted != str(last) or queue.settings_of(str(last)) != settings:
                self._broker.replace(name, str(last), settings)
            self._cancel_replaced(name)
        self.troubles = {job: said for job, said in self.troubles.items() if job in self._ledger.open}
        self._late = {key: said for key, said in self._late.items() if key[0] in self._ledger.open}
        self._warm_ups.forget(self._ledger.open)

    def _settings(self, job: JobId) -> ServiceSettings:
        spec = self._ledger.open[job].spec
        assert isinstance(spec, Service)
        return wire.settings_of(to_seconds(spec.threshold), to_seconds(spec.window), self.work_of(job).limits)

    def work_of(self, job: JobId) -> wire.Handling:
        """What answers the requests of an open service."""
        kept = self._ledger.open[job]
        if kept.work is None:
            kept.work = self._journal.work(job)
        assert isinstance(kept.work, wire.Handling)
        return kept.work

    def _function(self, instance: InstanceId) -> bytes:
        """The pickled function of the service of an instance."""
        named = wire.functions_of(self.work_of(instance.job)) if instance.job in self._ledger.open else ()
        return self._journal.blob(named[0]) if named else b""

    def _cancel_replaced(self, name: str) -> None:
        """Cancel the jobs of a service that another one has replaced."""
        *replaced, last = self._ledger.services.get(name, (0,))
        if replaced and self._broker.queue(name).serving == str(last):
            self._driver.feed(lambda now: [JobCancelled(now, job) for job in replaced])

    @property
    def names(self) -> Mapping[str, tuple[JobId, ...]]:
        """The open jobs of each service, by name: the one that answers, and those that are to replace it.

        The broker follows a little later than a job begins and ends. So what only one of them knows is left out.
        """
        return {name: jobs for name, jobs in self._ledger.services.items() if name in self._followed}

    # Requests

    def queue(self, name: str) -> RequestQueue:
        """The requests of a service.

        Raises:
            NoSuchService: there is none of this name.
        """
        return self._broker.queue(name)

    async def ask(self, name: str, body: bytes, kind: str = "") -> ServiceAnswer:
        """Have a request answered, see `Broker.ask`."""
        return await self._broker.ask(name, body, kind)

    # What becomes of instances, for the broker

    def ready(self, service: str, instance: InstanceId) -> None:
        """An instance takes requests."""
        self.troubles.pop(instance.job, None)
        kept = self._ledger.open.get(instance.job)
        attempt = None if kept is None or kept.view is None else kept.view.attempts.get(instance.task)
        if attempt is not None and attempt.number == instance.attempt:
            self._warm_ups.add(service, instance, attempt.start, self._clock.now())
        self._cancel_replaced(service)

    def broken(self, service: str, instance: InstanceId, detail: str) -> None:
        """An instance could not load the handler."""
        self.troubles[instance.job] = detail[-TROUBLE_MAX:]
        why = in_short(detail.strip().splitlines()[-1] if detail.strip() else "it says nothing")
        self._driver.incident("handler_broken", f"service {service}, job {instance.job}", why)

    def stuck(self, service: str, instance: InstanceId, detail: str) -> None:
        """An instance works for longer than it may."""
        subject = f"service {service}, job {instance.job}, task {instance.task}"
        self._driver.incident("instance_stuck", subject, f"{detail}: it is killed")
        self._driver.kill(*instance)

    def late(self, service: str, instance: InstanceId, detail: str) -> None:
        """An instance has not loaded the handler in time."""
        self._late[instance.job, instance.task, instance.attempt] = detail
        self.broken(service, instance, detail)
        self._driver.kill(*instance)

    def judged(self, report: base.Report) -> base.Report:
        """What the engine reports. An instance that was killed because it was late has failed."""
        if not (self._late and isinstance(report, base.Ended)):
            return report
        detail = self._late.pop(report.key, None)
        if detail is None or report.ending.outcome is not Outcome.KILLED:
            return report
        failed = msgspec.structs.replace(report.ending, outcome=Outcome.OUT_OF_TIME, detail=detail)
        return msgspec.structs.replace(report, ending=failed)

    def left(self, service: str, instance: InstanceId) -> None:
        """An instance is connected no more; the engine reports its end."""

    def measured(self, service: str, window: Window) -> None:
        """The measures of a window: they count for the job that has served."""
        window = replace(window, warm_up=self._warm_ups.mean(service))
        self.totals.setdefault(service, ServiceTotals()).add(window)
        jobs = self._ledger.services.get(service)
        if jobs:
            self._driver.feed(lambda now: [WindowEnded(now, jobs[0], window)])
