"""One run by a seed: a real driver with its journal and core, clients, a site and a disk that fail; and the checks.

First faults, then calm. After every crash, and at the end: what was accepted is there, each result came once, and the
state equals what a replay of the journal gives. In the calm everything that was accepted ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import msgspec

from headway import wire
from headway.advice.language import plan_text, read_plan, read_question, write_question
from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.engines import base
from headway.errors import HeadwayError, NoAdvice
from headway.live import retry
from headway.live.driver import Driver
from headway.live.outside import OtherProcesses, Surroundings
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.live.store.messages import MessageRow
from headway.live.sweep import Keep
from headway.model.actions import JobStatus
from headway.model.instant import SECOND
from headway.model.job import JobId
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.plan import PlanRecord
from headway.model.policy import PolicySource
from headway.model.renting import Renting
from headway.policies import registry
from headway.testing import hear
from headway.web.decider import decide

from .disk import SimDisk
from .engine import Doing, Link, SimEngine, Site
from .virtual import Life, LoopClock, VirtualLoop

T = TypeVar("T")

FAULTY_SECONDS = 10.0
"""How long faults happen, in virtual time."""

CALM_SECONDS = 1800.0
"""In so much virtual time of calm everything must have ended."""

PATIENCE_SECONDS = 8.0
"""How long a client waits for an answer."""

NODES = (NodeSpec("a", 4, site="east"), NodeSpec("b", 3, speed=2.0, site="west", reports_start=True))
MORE = (NodeSpec("c", 2, site="east", lease=9 * SECOND), NodeSpec("d", 2, site="west", read_ahead=2))
POLICIES = (
    "tempo:strict=false",
    "easy",
    "measy",
    "keasy",
    "sites:top=rr,each=easy",
    "conservative",
    "workload",
    "proportion",
    "sites:top=rr,each=keasy",
)
DECIDER = "http://a-decider"


class Wrong(AssertionError):
    """A promise was broken."""


class NoAnswer(Exception):
    """A client got none: the request or the answer was lost, or the server died."""


@dataclass
class Told:
    """What a run did and found.

    Attributes:
        crashes: how often the driver died, and how: by cause.
        accepted: submissions that were acknowledged to their client.
        results: results that a client has.
        digest: of everything that happened.
    """

    seed: int
    crashes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    jobs: int = 0
    results: int = 0
    events: int = 0
    virtual_seconds: float = 0.0
    digest: str = ""


@dataclass
class Client:
    """A client: what it sent, what it was answered, and what it was told."""

    name: str
    cursor: int = 0
    accepted: dict[str, wire.Submitted] = field(default_factory=dict)
    sent: dict[str, wire.Submission] = field(default_factory=dict)
    messages: dict[int, tuple[JobId, int | None, str]] = field(default_factory=dict)
    results: dict[tuple[JobId, int], bytes | None] = field(default_factory=dict)
    let_go: set[JobId] = field(default_factory=set)


ESTIMATES = ("user", "predicted", "last-two")
"""What policies know of run times; they are taken in turn, by policy and by how often states are stored."""


class Rates:
    """How likely what is, by a seed: no two runs are alike, and some have none of a fault."""

    def __init__(self, random: Random) -> None:
        def some(most: float) -> float:
            return random.choice((0.0, most / 8, most))

        self.disk = {
            "full": some(0.01),
            "busy": some(0.05),
            "broken": some(0.01),
            "stall": some(0.05),
            "die": some(0.02),
            "mark": some(0.2),
        }
        self.link = {"loss": some(0.2), "repeat": some(0.3), "delay": random.choice((0.0, 0.05, 0.5))}
        self.answers_lost = some(0.3)
        self.crash_every = random.choice((0.5, 1.0, 3.0))
        self.node_dies_every = random.choice((4.0, 15.0, 60.0))
        self.down = random.choice((0.05, 0.5, 4.0))
        self.clock_steps = some(0.5)
        self.snapshot_every = random.choice((20, 100, 10_000))
        self.policy = random.choice(POLICIES)
        self.acknowledged = random.choice((5 * SECOND, 86_400 * SECOND))
        self.estimates = ESTIMATES[(POLICIES.index(self.policy) + self.snapshot_every) % len(ESTIMATES)]


class World:
    """Everything of one run.

    Args:
        seed: fixes it.
        faulty_seconds: how long faults happen.
        disk_type, engine_type, driver_type: for tests of the checks: one that breaks a promise.

    Attributes:
        find: finds a policy by its text.
        renting: what can be rented; None: nothing.
    """

    find: PolicySource = staticmethod(registry.find)
    renting: Renting | None = None

    def __init__(
        self,
        seed: int,
        *,
        faulty_seconds: float = FAULTY_SECONDS,
        disk_type: type[SimDisk] = SimDisk,
        engine_type: type[SimEngine] = SimEngine,
        driver_type: type[Driver] = Driver,
    ) -> None:
        self.seed = seed
        self.told = Told(seed)
        self._random = Random(f"headway {seed}")
        self._chances = Random(f"headway {seed} chances")
        self.rates = Rates(self._random)
        self._faulty_seconds = faulty_seconds
        self._engine_type, self._driver_type = engine_type, driver_type
        self.loop = VirtualLoop()
        self.disk = disk_type(self.loop, Random(f"headway {seed} disk"), self.rates.disk)
        self.disk.on_death = self._died_on_disk
        self.link = Link(Random(f"headway {seed} link"), **self.rates.link)
        self.site = Site(self._does)
        self.clients = [Client(f"client-{number}") for number in range(3)]
        self.calm = False
        self.life: Life | None = None
        self.driver: Driver | None = None
        self.clock: LoopClock | None = None
        self._offset = 0
        self._starts = 0
        self._down = asyncio.Event()
        self._up = asyncio.Event()
        self._story = hashlib.sha256()
        self._wrong: list[str] = []

    def run(self) -> Told:
        """Run it.

        Raises:
            Wrong: a promise was broken.
        """
        log = logging.getLogger("headway")
        level = log.level
        log.setLevel(logging.CRITICAL + 1)
        asyncio.set_event_loop(None)
        try:
            self.loop.run_until_complete(self._live())
            if self.loop.errors:
                self._must(False, f"something raised that nobody handled: {self.loop.errors[0]!r}")
        finally:
            log.setLevel(level)
            self.loop.clear()
            self.disk.crash()
            self.loop.close()
        told = self.told
        told.virtual_seconds = self.loop.time()
        told.faults.update(self.disk.faults)
        told.faults.update({f"message {kind}": count for kind, count in self.link.counts.items()})
        told.digest = self._story.hexdigest()
        return told

    def _must(self, true: object, said: str) -> None:
        if not true:
            raise Wrong(f"seed {self.seed}, at {self.loop.time():.6f} s: {said}")

    def _note(self, *what: object) -> None:
        self._story.update(f"{self.loop.time():.6f} {what!r}\n".encode())

    # What attempts do

    def _does(self, assignment: base.Assignment, member: base.Member) -> Doing:
        """It follows from the number of the attempt; a task that was tried often succeeds."""
        chance = Random(f"{self.seed} {assignment.key} {member.node} {member.slots}")
        kind = chance.random()
        seconds = chance.choice((0.0, 0.1, 1.0, 5.0)) * (0.5 + chance.random())
        if kind < 0.15 and assignment.attempt < 4:
            return Doing(seconds, base.Ending(Outcome.EXITED, detail="exit status 1", exit_code=1))
        if kind < 0.2 and assignment.attempt < 4:
            ending = base.Ending(Outcome.SIGNALLED, detail="signal 9 (SIGKILL)", exit_code=-9, outside=True)
            return Doing(seconds, ending)
        return Doing(seconds, base.Ending(Outcome.SUCCEEDED, exit_code=0), saves=chance.random() < 0.5)

    # The driver's lives

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        keeper = loop.create_task(self._keep_up())
        others = [loop.create_task(step) for step in self._troubles()]
        clients = [loop.create_task(self._submit(client, number)) for number, client in enumerate(self.clients)]
        listeners = [loop.create_task(self._listen(client)) for client in self.clients]
        everything = [keeper, *others, *clients, *listeners]
        calm = loop.create_task(self._calm([*others, *clients]))
        running = {calm, *everything}
        try:
            while not calm.done():
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in (calm, *everything):
                task.cancel()
            await asyncio.gather(calm, *everything, return_exceptions=True)
        await self._end()

    def _troubles(self) -> list[Coroutine[Any, Any, None]]:
        """What happens until the calm."""
        return [self._crash(), self._harm_nodes(), self._operate(), self._step()]

    async def _keep_up(self) -> None:
        """Start the driver whenever it is down."""
        while True:
            self._starts += 1
            self._down.clear()
            is_calm = self.disk.calm
            self.life = self.disk.life = self.loop.new_life(f"driver {self._starts}")
            starting = self.life.spawn(self._start(self.life))
            gone = asyncio.ensure_future(self._down.wait())
            await asyncio.wait((starting, gone), return_when=asyncio.FIRST_COMPLETED)
            error = starting.exception() if starting.done() and not starting.cancelled() else None
            if not self.life.dead and error is not None:
                # A full or locked disk ends a start; another promise is not at stake.
                self._must(_is_of_the_disk(error) and not is_calm, f"the driver does not start: {error!r}")
                self._note("start failed", type(error).__name__)
                self._kill("start failed")
                await asyncio.sleep(0.5)
            if not self.life.dead:
                self._check_started()
                self._up.set()
            await gone
            self._up.clear()
            await asyncio.sleep(0.01 if self.calm else self._random.random() * self.rates.down)

    async def _start(self, life: Life) -> None:
        journal = Journal(self.disk._name, disk=self.disk)
        self.clock = LoopClock(self.loop, self._offset)
        engine = self._engine_type(self.site, self.link, life)
        self.driver = self._driver_type(
            journal,
            engine,
            self.clock,
            self.find,
            DriverSettings(
                policy=self.rates.policy if journal.is_new else None,
                snapshot_every=self.rates.snapshot_every,
                keep=Keep(acknowledged=self.rates.acknowledged),
                estimates=self.rates.estimates,
            ),
            processes=OtherProcesses(asking=self._ask),
            surroundings=self._surroundings(),
        )
        self.driver.broken.add_done_callback(lambda broken: self._broke(life, broken))
        await self.driver.start(first=NODES, bounds=self._bounds(), renting=self.renting)

    def _bounds(self) -> dict[str, int] | None:
        """Those of a start: as before, none, or another one; enough for every job that is submitted."""
        most = Random(f"headway {self.seed} bounds {self._starts}").choice((None, 0, 3, 4, 6))
        return None if most is None else {"owner": most} if most else {}

    def _surroundings(self) -> Surroundings:
        """Where a driver is."""
        return Surroundings()

    def _broke(self, life: Life, broken: asyncio.Future[None]) -> None:
        error = broken.exception()
        self.loop.call_soon(self._after_break, life, error)

    def _after_break(self, life: Life, error: BaseException | None) -> None:
        if life is self.life and not life.dead:
            if not _is_of_the_disk(error):
                self._wrong.append(f"the driver broke: {error!r} {error.__cause__!r}")
            self._kill("broke")

    def _died_on_disk(self) -> None:
        self.told.crashes["within a commit"] += 1
        self._note("died within a commit")
        self.disk.crash()
        self._up.clear()
        self._down.set()

    def _kill(self, cause: str) -> None:
        """The driver's process dies, here and now."""
        life = self.life
        if life is None or life.dead:
            return
        self._check_state()
        life.die()
        self.told.crashes[cause] += 1
        self._note("crash", cause, self.disk.commits)
        self.disk.crash()
        self._up.clear()
        self._down.set()

    def _is_quiet(self) -> bool:
        """Whether everything that was fed to the core is durable."""
        driver = self.driver
        return (
            self._up.is_set()
            and driver is not None
            and driver._pending is None
            and driver._under_way is None
            and not driver.broken.done()
        )

    def _check_state(self) -> None:
        """The live core is what a replay of the journal gives."""
        if not self._is_quiet():
            return
        assert self.driver is not None
        self.driver.core.check()
        live = msgspec.json.encode(self.driver.core.dump())
        replayed = msgspec.json.encode(replay(self.driver.journal, self.find))
        self._must(live == replayed, f"the state differs from a replay:\n{live!r}\n{replayed!r}")
        self.told.done["states compared"] += 1

    def _check_started(self) -> None:
        """A driver has started from the disk: everything that was promised is there."""
        assert self.driver is not None
        journal = self.driver.journal
        for client in self.clients:
            for key, answer in client.accepted.items():
                found = journal.accepted("owner", key)
                self._must(found is not None, f"submission {key} was accepted and is lost")
                assert found is not None
                self._must(found.first == answer.jobs[0], f"submission {key} was accepted twice")
                for job in answer.jobs:
                    self._must(journal.job(job) is not None, f"job {job} was accepted and is lost")
            for number, (job, task, word) in client.messages.items():
                if job in client.let_go:
                    continue  # results that were acknowledged are deleted after a while, as the client knows
                rows = journal.messages(number - 1, 1, jobs=(job,)).rows
                same = rows and (rows[0].number, rows[0].task, rows[0].word) == (number, task, word)
                self._must(same, f"message {number} was told and is lost: job {job}, task {task}, {word}")
        self.driver.core.check()
        live = msgspec.json.encode(self.driver.core.dump())
        if self._is_quiet_now():
            replayed = msgspec.json.encode(replay(journal, self.find))
            self._must(live == replayed, f"after a start the state differs from a replay:\n{live!r}\n{replayed!r}")
            self.told.done["states compared"] += 1
        self._note("started", hashlib.sha256(live).hexdigest())

    def _is_quiet_now(self) -> bool:
        driver = self.driver
        assert driver is not None
        return driver._pending is None and driver._under_way is None and not driver.broken.done()

    # Calls of clients

    async def call(self, step: Callable[[Driver], Awaitable[T]]) -> T:
        """Ask the server something, over a network that loses requests and answers.

        Raises:
            NoAnswer: the request or its answer was lost.
            HeadwayError: the server refuses.
        """
        chance = self._chances
        if not self._up.is_set() or (not self.calm and chance.random() < self.rates.answers_lost / 2):
            await asyncio.sleep(0.1)
            raise NoAnswer
        await asyncio.sleep(0.0 if self.calm else chance.random() * 0.05)
        life, driver = self.life, self.driver
        if life is None or life.dead or driver is None or not self._up.is_set():
            raise NoAnswer
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        lost = not self.calm and chance.random() < self.rates.answers_lost / 2

        async def serve() -> None:
            try:
                found = await step(driver)
            except HeadwayError as error:
                if not answer.done() and not lost:
                    answer.set_exception(error)
            except TimeoutError:
                answer.cancel()  # nothing to tell
            except Exception as error:  # noqa: BLE001  # a request may be refused, and nothing else
                self._wrong.append(f"a request raised {error!r}")
                answer.cancel()
            else:
                if not answer.done() and not lost:
                    answer.set_result(found)

        life.spawn(serve())
        gone = asyncio.ensure_future(self._down.wait())
        try:
            await asyncio.wait((answer, gone), timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not answer.done():
                answer.cancel()
        if answer.cancelled():
            raise NoAnswer
        return answer.result()

    async def _submit(self, client: Client, number: int) -> None:
        """Submit again and again, each submission until it is answered."""
        random = Random(f"headway {self.seed} client {number}")
        count = 0
        while not self.calm:
            await asyncio.sleep(random.random() * 4)
            count += 1
            key = f"{client.name}/{count}"
            earlier = [job for answer in client.accepted.values() for job in answer.jobs]
            submission = wire.Submission(self._jobs(random, earlier), key, client.name)
            client.sent[key] = submission
            while True:
                try:
                    answer = await self.call(lambda driver, it=submission: driver.submit("owner", it))  # type: ignore[misc]
                except NoAnswer:
                    await asyncio.sleep(random.random())
                    continue
                except HeadwayError as error:
                    self._note("refused", key, type(error).__name__)
                    self.told.done[f"refused {type(error).__name__}"] += 1
                    if type(error).__name__ in ("JournalFull", "JournalBusy", "Unavailable", "NoRoom", "NotNow"):
                        await asyncio.sleep(0.2 + random.random())
                        continue
                    client.sent.pop(key)
                    break
                client.accepted[key] = answer
                self.told.done["repeated submissions"] += answer.repeated
                self._note("accepted", key, answer.jobs)
                if random.random() < 0.2:
                    with suppress(NoAnswer, HeadwayError):
                        again = await self.call(lambda driver, it=submission: driver.submit("owner", it))  # type: ignore[misc]
                        self._must(again.jobs == answer.jobs, f"submission {key} was accepted twice, as {again.jobs}")
                break

    def _jobs(self, random: Random, earlier: list[JobId]) -> tuple[wire.NewJob, ...]:
        """One job or some, of every kind; seldom so many that they are accepted part by part."""
        how_many = random.choice((1, 1, 1, 2, 3)) if random.random() < 0.99 else 110
        return tuple(self._job(random, earlier, small=how_many > 3) for _ in range(how_many))

    def _job(self, random: Random, earlier: list[JobId], *, small: bool) -> wire.NewJob:
        work = wire.Commands((wire.Command(("work",)),))
        terms: dict[str, Any] = {
            "estimate": random.choice((None, 1.0, 4.0)),
            "due": random.choice((None, 1_700_000_000 + random.random() * 100)),
            "priority": float(random.randrange(3)),
            "retries": random.randrange(3),
            "movable": random.random() < 0.3,
            "time_limit": random.choice((None, None, 4.0)),
        }
        if earlier and random.random() < 0.2:
            terms["after"] = (random.choice(earlier),)
        kind = random.random()
        if small or kind < 0.5:
            return wire.NewJob(work, "bag", 1 if small else random.randrange(1, 8), **terms)
        if kind < 0.8:
            return wire.NewJob(work, "rigid", 1, random.randrange(1, 4), **terms)
        estimate = terms.pop("estimate") or 1.0
        plan = tuple(
            wire.PlannedTask(estimate, random.choice((1, 1, 2)), tuple(range(max(0, task - 2), task)))
            for task in range(random.randrange(1, 6))
        )
        return wire.NewJob(work, "workflow", len(plan), plan=plan, **terms)

    async def _listen(self, client: Client) -> None:
        """Fetch messages for ever, and acknowledge some results."""
        random = Random(f"headway {self.seed} listens {client.name}")
        while True:
            await asyncio.sleep(0.05 + random.random() * (8 if self.calm else 3))
            try:
                await self._fetch(client)
                if random.random() < 0.3:
                    await self._acknowledge(client, random)
            except NoAnswer:
                continue
            except HeadwayError as error:
                self._note("not told", client.name, type(error).__name__)

    async def _fetch(self, client: Client) -> None:
        terms = {"client": client.name, "result_max": 1 << 20}
        rows, cursor = await self.call(lambda driver: asyncio.wait_for(hear(driver, client.cursor, 50, **terms), 5))
        self._take(client, rows)
        client.cursor = max(client.cursor, cursor)

    def _take(self, client: Client, rows: list[MessageRow]) -> None:
        for row in rows:
            self._must(row.number not in client.messages, f"message {row.number} was told twice")
            client.messages[row.number] = (row.job, row.task, row.word)
            if row.task is not None:
                place = (row.job, row.task)
                self._must(place not in client.results, f"two results of job {row.job}, task {row.task}")
                client.results[place] = row.result
                self._check_true(row)

    def _check_true(self, row: MessageRow) -> None:
        """A result tells what happened on the site."""
        if row.result is None:
            return
        result = msgspec.msgpack.decode(row.result, type=wire.TaskResult)
        ended = self.site.endings.get((row.job, result.task, result.attempt), [])
        if row.word == Outcome.SUCCEEDED.value:
            said = f"job {row.job}, task {row.task} is reported as a success of attempt {result.attempt}: {ended}"
            self._must(Outcome.SUCCEEDED in ended, said)
        self._must(len(ended) <= 1, f"an attempt at job {row.job}, task {row.task} ended {len(ended)} times")

    async def _acknowledge(self, client: Client, random: Random) -> None:
        known = sorted(client.results)
        if known:
            job, task = random.choice(known)
            ranges = (wire.TaskRange(job, task, task + 1),)
            client.let_go.add(job)
            await self.call(lambda driver: driver.retention.acknowledge(client.name, ranges))

    # What happens to them

    async def _crash(self) -> None:
        random = Random(f"headway {self.seed} crashes")
        while not self.calm:
            await asyncio.sleep(random.random() * 2 * self.rates.crash_every)
            for _ in range(random.randrange(4)):
                await asyncio.sleep(0)
            if not self.calm:
                self._kill("at " + ("rest" if self._is_quiet() else "work"))

    async def _harm_nodes(self) -> None:
        random = Random(f"headway {self.seed} nodes")
        while not self.calm:
            await asyncio.sleep(random.random() * 2 * self.rates.node_dies_every)
            names = sorted(self.site.nodes)
            if names and not self.calm:
                name = random.choice(names)
                if random.random() < 0.3:
                    self.site.nodes[name].cut = True
                    await asyncio.sleep(random.random() * 15)
                    if name in self.site.nodes:
                        self.site.nodes[name].cut = False
                    continue
                self._note("node dies", name)
                self.told.faults["nodes that died"] += 1
                self.site.die(name)
                await asyncio.sleep(random.random() * 3)
                self.site.revive(name)

    async def _step(self) -> None:
        """The machine's clock is set, while the driver runs or between two of its lives."""
        random = Random(f"headway {self.seed} clock")
        while not self.calm:
            await asyncio.sleep(5 + random.random() * 20)
            if random.random() < self.rates.clock_steps and self.clock is not None and not self.calm:
                by = round(random.choice((-30, -1, 1, 30)) * random.random() * SECOND)
                self.told.faults["clock steps"] += 1
                self._offset += by
                clock = self.clock
                if self._up.is_set() and self.life is not None:
                    self.life.call(clock.step, by)

    async def _operate(self) -> None:
        """Cancel, change, run again, resize, join, drain, remove, choose another policy."""
        random = Random(f"headway {self.seed} operator")
        number = 0
        while not self.calm:
            await asyncio.sleep(random.random() * 3)
            jobs = [job for client in self.clients for answer in client.accepted.values() for job in answer.jobs]
            number += 1
            name, step = self._operation(random, jobs, number)
            try:
                await self.call(step)
            except NoAnswer:
                self._note("operator unanswered", name)
            except HeadwayError as error:
                self._note("operator refused", name, type(error).__name__)
            else:
                self.told.done[name] += 1
                self._note("operator", name)

    def _operation(
        self, random: Random, jobs: list[JobId], number: int
    ) -> tuple[str, Callable[[Driver], Awaitable[Any]]]:
        what, job = random.randrange(10), random.choice(jobs) if jobs else 1
        node = random.choice((*NODES, *MORE))
        if what == 0:
            return "cancels", lambda driver: driver.cancel((job,))
        if what == 1:
            return "task cancels", lambda driver: driver.cancel_tasks(job, (0, 1))
        if what in (2, 3):
            change = wire.JobChange(priority=random.random() * 3)
            return "changes", lambda driver: driver.change(job, change)
        if what == 4:
            client = self.clients[0]
            wanted = wire.Retry(key=f"again {number}", client=client.name)
            return "retries", lambda driver: _run_again(driver, job, wanted)
        if what == 5:
            size = wire.NodeSize(random.randrange(2, 6), at_once=random.random() < 0.3)
            return "resizes", lambda driver: driver.nodes.resize(node.name, size)
        if what == 6:
            return "joins", lambda driver: driver.nodes.add(_new(node))
        if what == 7 and node in MORE:
            return "drains", lambda driver: driver.nodes.drain(node.name)
        if what == 8 and node in MORE:
            return "removals", lambda driver: driver.nodes.remove(node.name)
        if what == 9:
            policy, decider = random.choice(POLICIES), random.choice((None, None, DECIDER, ""))
            return "policies", lambda driver: driver.choose(policy, decider=decider)
        return "joins", lambda driver: driver.nodes.add(_new(MORE[0]))

    async def _ask(self, url: str, snapshot: StateRecord, *, explain: bool = False) -> PlanRecord:
        """The answer of a decider, late or never."""
        await asyncio.sleep(0 if self.calm else self._chances.random())
        if not self.calm and self._chances.random() < 0.2:
            raise NoAdvice("no answer")
        question = read_question(write_question(snapshot, policy=snapshot.policy, explain=explain))
        text = msgspec.json.encode(plan_text(decide(question, self.find, ""), snapshot.now))
        return read_plan(text, snapshot)

    # Calm, and the end

    async def _calm(self, faulty: list[asyncio.Task[None]]) -> None:
        await asyncio.sleep(self._faulty_seconds)
        self.calm = self.disk.calm = True
        self.link.calm()
        self._note("calm")
        for name in sorted(self.site.nodes):
            self.site.nodes[name].cut = False
            self.site.revive(name)
        for task in faulty:
            await task
        self._kill("before the calm")
        await self._up.wait()
        with suppress(NoAnswer):
            await self.call(lambda driver: _serve_all(driver))
        end = self.loop.time() + CALM_SECONDS
        while self.driver is None or self.driver.open or not self._up.is_set():
            if self.loop.time() > end:
                assert self.driver is not None
                self._must(False, f"jobs are stuck: {sorted(self.driver.open)[:10]}")
            await asyncio.sleep(5)
        for client in self.clients:
            while not self._has_all(client):
                self._must(self.loop.time() < end, f"{client.name} is not told of: {self._untold(client)}")
                await asyncio.sleep(1)

    def _expected(self, client: Client) -> set[tuple[JobId, int | None]]:
        assert self.driver is not None
        found: set[tuple[JobId, int | None]] = set()
        for answer in client.accepted.values():
            for job in answer.jobs:
                row = self.driver.journal.job(job)
                self._must(row is not None, f"job {job} was accepted and is lost")
                assert row is not None
                found.add((job, None))
                if row.status is JobStatus.SUCCEEDED:
                    found |= {(job, task) for task in range(row.spec.tasks)}
        return found

    def _has_all(self, client: Client) -> bool:
        return not self._untold(client)

    def _untold(self, client: Client) -> list[tuple[JobId, int | None]]:
        told = {(job, task) for job, task, _ in client.messages.values()}
        missing = self._expected(client) - told
        done = Counter(
            job for job, task, word in client.messages.values() if task is not None and word != Outcome.CANCELLED.value
        )
        assert self.driver is not None
        for job in {job for answer in client.accepted.values() for job in answer.jobs}:
            row = self.driver.journal.job(job)
            assert row is not None
            if row.done != done[job]:
                missing.add((job, -1))
        return sorted(missing, key=repr)[:10]

    async def _end(self) -> None:
        """An orderly end, and one more look at what is on the disk."""
        driver, told = self.driver, self.told
        assert driver is not None
        assert self.life is not None
        self._must(not self._wrong, "; ".join(self._wrong))
        self._check_state()
        events = hashlib.sha256()
        for seq, event in driver.journal.events():
            events.update(f"{seq} {event!r}\n".encode())
            told.events += 1
        told.accepted = sum(len(client.accepted) for client in self.clients)
        told.jobs = sum(len(answer.jobs) for client in self.clients for answer in client.accepted.values())
        told.results = sum(len(client.results) for client in self.clients)
        for client in self.clients:
            self._note(client.name, sorted(client.messages.items()))
        jobs = [row.id for row in driver.journal.jobs()]
        mine = [job for client in self.clients for answer in client.accepted.values() for job in answer.jobs]
        self._must(len(set(mine)) == len(mine), "two submissions have the same job")
        self._must(set(mine) <= set(jobs), "a job is lost")
        self._note("events", events.hexdigest())
        await self.life.spawn(driver.stop())
        self._note("stopped", hashlib.sha256(msgspec.json.encode(driver.core.dump())).hexdigest())


def replay(journal: Journal, find: PolicySource) -> StateRecord:
    """The state after all events of a journal, from its first snapshot."""
    stored = journal.snapshot(first=True)
    assert stored is not None
    core = Scheduler.restore(stored[1], find)
    for _ in journal.replay(core, stored[0]):
        pass
    core.check()
    return core.dump()


def _new(node: NodeSpec) -> wire.NewNode:
    lease = None if node.lease is None else node.lease / SECOND
    return wire.NewNode(node.name, node.slots, site=node.site, lease=lease)


async def _run_again(driver: Driver, job: JobId, wanted: wire.Retry) -> object:
    row = driver.journal.job(job)
    if row is None:
        raise HeadwayError("no such job")
    return await retry.retry(driver, "owner", row, wanted)


async def _serve_all(driver: Driver) -> None:
    """Nodes of a size on which everything can run, and a policy without a decider."""
    for node in NODES:
        if node.name in driver.core.state.nodes:
            await driver.nodes.resize(node.name, wire.NodeSize(6))
    await driver.choose("easy", decider="")


def _is_of_the_disk(error: BaseException | None) -> bool:
    """Whether an error comes of a disk that was full, locked or broken."""
    while error is not None:
        if type(error).__name__ in ("JournalFull", "JournalBusy", "OperationalError"):
            return True
        error = error.__cause__ or error.__context__
    return False
