"""Seeded faults in virtual time: whatever happens, each request ends once, and is answered by who had it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from headway.errors import HeadwayError, ServiceFull
from headway.services import frames
from headway.services.broker import Broker
from headway.services.queue import REQUEST_TRIES

from .acting import Actor, broker_of, virtual

REQUESTS = 300


class Faulty(Actor):
    """An instance that answers after a while; it may die, hang, fail, send junk, or leave instead.

    Attributes:
        calm: it only answers.
    """

    def __init__(self, broker: Broker, task: int, attempt: int, version: str, world: World) -> None:
        self.world = world
        super().__init__(broker, task, attempt, version)

    def receive(self, data: bytes) -> None:
        before = len(self.requests)
        super().receive(data)
        for request in self.requests[before:]:
            self.world.handed[request.body] += 1
            self.world.order.append(request.number)
            delay = self.world.random.choice((0.0, 0.01, 0.3))
            self._loop.call_later(delay, self.work, request)
        if self.let_go:
            self.die()

    def work(self, request: frames.RequestFrame) -> None:
        if not self.is_open:
            return
        what = "answer" if self.world.calm else self.world.random.choices(*FAULTS)[0]
        match what:
            case "die":
                self.die()
            case "junk":
                self.send_bytes(b"\xff" * 9)
            case "half":
                self.send_bytes(b"\x09\x00")
            case "fail":
                self.send(frames.Failed(request.number, False, "failed", 0.0))
            case "leave":
                self.send(frames.Leaving())
                self.reply(request)
            case "answer":
                self.reply(request)

    def reply(self, request: frames.RequestFrame) -> None:
        self.world.replied[request.body] += 1
        self.send(frames.AnswerFrame(request.number, "", request.body + b" by %d" % self.id.task, 0.0))


FAULTS = (("answer", "die", "hang", "junk", "half", "fail", "leave"), (85, 5, 2, 1, 1, 3, 3))


class World:
    """A broker, its instances, callers and faults, all from one seed.

    Attributes:
        handed: how often each request was handed out; replied: how often somebody tried to answer it.
        order: numbers of requests as they were handed out.
        outcome: what each caller got.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.calm = False
        self.handed: Counter[bytes] = Counter()
        self.replied: Counter[bytes] = Counter()
        self.order: list[int] = []
        self.outcome: dict[bytes, list[object]] = {}
        self.attempt = 0
        self.version = 1

    async def run(self) -> None:
        self.broker, self.noted = broker_of(
            window=1.0, threshold=0.5, time_limit=2.0, wait_limit=10.0, load_limit=5.0, queue_max=20
        )
        actors: list[Faulty] = []
        starting = asyncio.create_task(self.start_instances(actors))
        callers = [asyncio.create_task(self.call(b"%d" % number)) for number in range(REQUESTS)]
        await asyncio.wait(callers)
        self.calm = True
        await asyncio.sleep(5)
        for number in range(REQUESTS, REQUESTS + 10):  # in calm, everything is answered
            body = b"%d" % number
            assert (await self.broker.ask("s", body)).body.startswith(body + b" by ")
        starting.cancel()
        await asyncio.sleep(3)  # the last windows are told
        for caller in callers:
            assert caller.cancelled() or caller.exception() is None

    async def start_instances(self, actors: list[Faulty]) -> None:
        """Keep three of them; sometimes another version, or one is drained."""
        while True:
            actors[:] = [each for each in actors if each.is_open]
            while len(actors) < 3:
                self.attempt += 1
                task = self.random.randrange(5)
                actor = Faulty(self.broker, task, self.attempt, str(self.version), self)
                actor.hello()
                if self.calm or self.random.random() < 0.9:
                    actor.send(frames.Ready())
                actors.append(actor)
            await asyncio.sleep(self.random.expovariate(5.0))
            if not self.calm and self.random.random() < 0.05:
                self.version += 1
                self.broker.replace("s", str(self.version), self.broker.queue("s").settings)
                actors.clear()
            if not self.calm and self.random.random() < 0.05 and actors:
                self.broker.drain("s", self.random.choice(actors).id)

    async def call(self, body: bytes) -> None:
        await asyncio.sleep(self.random.uniform(0.0, 20.0))
        got = self.outcome[body] = list[Any]()
        asking = asyncio.ensure_future(self.broker.ask("s", body))
        if self.random.random() < 0.1:
            asyncio.get_running_loop().call_later(self.random.choice((0.0, 0.01, 0.5)), asking.cancel)
        try:
            got.append(await asking)
        except HeadwayError as error:
            got.append(error)
        except asyncio.CancelledError:
            got.append("gone")


@pytest.mark.parametrize("seed", range(20))
def test_no_request_is_lost_without_an_error_and_none_answered_twice(seed: int) -> None:
    world = World(seed)
    virtual(world.run)()
    assert len(world.outcome) == REQUESTS
    ends: Counter[str] = Counter()
    for body, got in world.outcome.items():
        (end,) = got
        kind = "answered" if isinstance(end, tuple) else end if isinstance(end, str) else type(end).__name__
        assert isinstance(kind, str)
        ends[kind] += 1
        assert world.handed[body] <= REQUEST_TRIES
        if isinstance(end, tuple):
            assert end[0].startswith(body + b" by ")
            assert world.replied[body] >= 1
        if isinstance(end, ServiceFull):
            assert world.handed[body] == 0
    assert ends["answered"] > REQUESTS / 3
    # In the order of arrival, but for those that are handed out again.
    firsts = list(dict.fromkeys(world.order))
    assert firsts == sorted(firsts)
    windows = world.noted.windows
    sums = {name: sum(getattr(window, name) for window in windows) for name in ENDS}
    assert sums["arrivals"] == REQUESTS + 10
    assert sums["answered"] == ends["answered"] + 10
    assert sums["rejected"] == ends["ServiceFull"]
    assert sums["timed_out"] == ends["RequestTimedOut"]
    assert sums["gone"] == ends["gone"]
    assert sums["failed"] == ends["HandlerFailed"] + ends["InstanceDied"]
    assert sum(map(sum, (window.responses for window in windows))) == sums["answered"]
    assert len(world.broker.queue("s")) == 0


ENDS = ("arrivals", "answered", "rejected", "timed_out", "gone", "failed")
