"""For tests of programs that use Headway: builders with defaults, a clock set by hand, a fake engine.

Builders take seconds where the model has microseconds: `job(due=9)`, `node(slots=2)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count, groupby
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from headway import wire
from headway.engines import base
from headway.errors import EngineError, InvalidInput, NoSuchOutput
from headway.live.clock import Step
from headway.live.driver import Driver
from headway.live.listeners import MessagesWanted
from headway.live.store.messages import MessageRow
from headway.model.instant import SECOND, Duration, Instant, from_seconds
from headway.model.job import Bag, JobId, JobSpec, Rigid, Workflow
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.tier import Tier

_SECONDS = frozenset({"release", "estimate", "due", "time_limit", "lease"})

FAKE_SLOTS_MAX: Final = 1_000_000
"""Slots that a node of `FakeEngine` may have."""

_ids: Iterator[int] = count(1)


def _instants(terms: dict[str, Any]) -> dict[str, Any]:
    return {
        name: from_seconds(value) if name in _SECONDS and value is not None else value for name, value in terms.items()
    }


def job(id: JobId | None = None, **terms: Any) -> JobSpec:
    """A job of which only the named terms matter; times in seconds.

    A `width` makes it rigid, a `graph` a workflow. Without an id it gets one that no other job of this process had.

    >>> job(7, tasks=3, due=2.5).due
    2500000
    """
    form = Workflow if "graph" in terms else Rigid if "width" in terms else Bag
    return form(id=next(_ids) if id is None else id, **_instants(terms))


def node(name: str = "node", **terms: Any) -> NodeSpec:
    """A node of which only the named terms matter; its lease in seconds."""
    return NodeSpec(name, **_instants(terms))


def new_job(tasks: int = 1, argv: tuple[str, ...] = ("true",), **terms: Any) -> wire.NewJob:
    """A job to submit, every task of which runs one command; times in seconds."""
    return wire.NewJob(work=wire.Commands((wire.Command(argv),)), tasks=tasks, **terms)


def submission(*jobs: wire.NewJob, **terms: Any) -> wire.Submission:
    """A submission of these jobs, or of one job with one task."""
    return wire.Submission(jobs or (new_job(),), **terms)


async def hear(driver: Driver, after: int, limit: int, **terms: Any) -> tuple[list[MessageRow], int]:
    """The answer to a caller that wants messages (`MessagesWanted`), and the cursor behind it."""
    caller = _Caller()
    listener = driver.listen(MessagesWanted(after, limit, **terms), caller)
    try:
        await caller.answered.wait()
    finally:
        driver.leave(listener)
    return caller.answer


class _Caller:
    answer: tuple[list[MessageRow], int]

    def __init__(self) -> None:
        self.answered = asyncio.Event()

    def make(self, messages: list[MessageRow], cursor: int) -> None:
        self.answer = (messages, cursor)

    def send(self) -> None:
        self.answered.set()

    def close(self) -> None:
        pass


class ManualClock:
    """A clock that stands still until it is moved.

    Args:
        seconds: where it stands at first.
    """

    def __init__(self, seconds: float = 0) -> None:
        self._now: Instant = from_seconds(seconds)
        self._alarms: list[tuple[Instant, int, Callable[[], object]]] = []
        self._watching: list[Callable[[Step], None]] = []
        self._numbers = count()
        self._off: set[int] = set()

    def now(self) -> Instant:
        """Microseconds."""
        return self._now

    def go_on_from(self, last: Instant) -> Duration:
        """Stand at this instant at least."""
        ahead = max(0, last - self._now)
        self._now += ahead
        return ahead

    def watch(self, stepped: Callable[[Step], None]) -> Callable[[], None]:
        """Call back after each `step`; returns what calls it off."""
        self._watching.append(stepped)
        return lambda: self._watching.remove(stepped)

    def step(self, seconds: float) -> None:
        """The machine's clock is set by this much. Set forward, time jumps with it, and alarms come as long from now on
        as before; set back, time stays.
        """
        by = max(0, from_seconds(seconds))
        self._now += by
        self._alarms = [(at + by, number, callback) for at, number, callback in self._alarms]
        for stepped in tuple(self._watching):
            stepped(Step(by, f"the clock was set by {seconds:g} s"))

    def call_at(self, at: Instant, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back when the clock is moved to this instant or past it; returns what calls it off."""
        number = next(self._numbers)
        heappush(self._alarms, (at, number, callback))
        return lambda: self._off.add(number)

    def advance(self, seconds: float) -> None:
        """Move on, and make the calls that become due on the way, in order."""
        goal = self._now + from_seconds(seconds)
        while self._alarms and self._alarms[0][0] <= goal:
            at, number, callback = heappop(self._alarms)
            if number not in self._off:
                self._now = max(self._now, at)
                callback()
        self._now = goal

    @property
    def watched(self) -> bool:
        """Whether a callback for steps is set."""
        return bool(self._watching)

    @property
    def alarms(self) -> list[float]:
        """The instants of the coming calls in seconds, soonest first."""
        return [at / SECOND for at, number, _ in sorted(self._alarms[:]) if number not in self._off]


class FakeEngine:
    """An engine that runs nothing: a test says how each attempt ends.

    Args:
        found: what it has of an earlier driver's attempts when it is started.
        instant: end every attempt well as soon as it is launched, in the next turn of the event loop.

    Attributes:
        running: what was launched and has not ended, by job, task and attempt.
        launched: everything that was ever launched, in order.
        killed, changed, suspended, acknowledged, forgotten: what was asked for, in order.
        kept: ends that were reported and not acknowledged yet.
        written: what attempts wrote, by names `JOB/...` that a test gives, or that `show` gave.
        nodes: those in service, as they are now; empty before the start.
        files: what it was given at its start.
        unwilling: names of nodes that cannot be started, and what is said of each.
        stopped: whether it was stopped.
    """

    def __init__(self, found: base.Found = base.Found(), *, instant: bool = False) -> None:  # noqa: B008  # frozen
        self.running: dict[base.AttemptKey, base.Assignment] = {}
        self.launched: list[base.Assignment] = []
        self.killed: list[base.AttemptKey] = []
        self.changed: list[tuple[JobId, int, int, Tier]] = []
        self.suspended: list[base.AttemptKey] = []
        self.acknowledged: list[base.AttemptKey] = []
        self.forgotten: list[tuple[JobId, int | None]] = []
        self.kept: list[base.Ended] = list(found.ended)
        self.written: dict[str, bytes] = {}
        self.nodes: tuple[NodeSpec, ...] = ()
        self.files: base.Files | None = None
        self.unwilling: dict[str, EngineError] = {}
        self.stopped = False
        self._found = found
        self._instant = instant
        self._report: Callable[[base.Report], None] | None = None

    async def start(
        self, nodes: Iterable[NodeSpec], report: Callable[[base.Report], None], files: base.Files
    ) -> base.Found:
        """Keep whom to tell, and tell what was found; what was found running runs on, its members unknown."""
        self.nodes, self._report, self.files = tuple(nodes), report, files
        self.running.update(
            (key, base.Assignment(*key, (), tier=Tier(key in self._found.background)))
            for key in sorted(self._found.running)
        )
        return self._found

    def check_fit(self, node: NodeSpec) -> None:
        """Refuse nodes of more than `FAKE_SLOTS_MAX` slots."""
        if node.slots > FAKE_SLOTS_MAX:
            raise InvalidInput("slots", node.slots, f"1 to {FAKE_SLOTS_MAX}")

    async def join(self, node: NodeSpec) -> None:
        """Have one more node."""
        self.check_fit(node)
        await asyncio.sleep(0)
        if node.name in self.unwilling:
            raise self.unwilling[node.name]
        self.nodes += (node,)

    async def leave(self, name: str) -> None:
        """Have it no more, and let go of what runs there."""
        self.nodes = tuple(node for node in self.nodes if node.name != name)
        self._drop(name)
        await asyncio.sleep(0)

    def resize(self, name: str, slots: int, *, at_once: bool = False) -> None:
        """Have other slots there; at once: what runs beyond is killed."""
        self.nodes = tuple(replace(node, slots=slots) if node.name == name else node for node in self.nodes)
        for key, assignment in list(self.running.items()):
            beyond = (member for member in assignment.members if member.node == name and max(member.slots) >= slots)
            if at_once and any(beyond):
                asyncio.get_running_loop().call_soon(self.end, *key, Outcome.KILLED)

    def _drop(self, node: str) -> None:
        for key, assignment in list(self.running.items()):
            if any(member.node == node for member in assignment.members):
                del self.running[key]

    def launch(self, assignment: base.Assignment) -> None:
        """Note it; it runs until the test ends it."""
        self.running[assignment.key] = assignment
        self.launched.append(assignment)
        if self._instant:
            asyncio.get_running_loop().call_soon(self.end, *assignment.key)

    def kill(self, job: JobId, task: int, attempt: int) -> None:
        """Note it; the test says how the attempt ends."""
        self.killed.append((job, task, attempt))

    def change(self, job: JobId, task: int, attempt: int, tier: Tier) -> None:
        """Note it, and the tier with what runs; a test says with `report` what the operating system refuses."""
        key = (job, task, attempt)
        if key in self.running:
            self.running[key] = structs.replace(self.running[key], tier=tier)
        self.changed.append((*key, tier))

    def suspend(self, job: JobId, task: int, attempt: int) -> None:
        """Note it; the test says what was saved, and how the attempt ends."""
        self.suspended.append((job, task, attempt))

    def show(self, job: JobId, task: int, attempt: int, rank: int | None, stream: str) -> str:
        """Have nothing written until the test says what; it stays until it is discarded."""
        if (job, task, attempt) not in self.running:
            return ""
        name = f"{job}/{task}.{attempt}.{'' if rank is None else f'{rank}.'}{stream}"
        self.written.setdefault(name, b"")
        return name

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """A piece of what was written."""
        await asyncio.sleep(0)
        if name not in self.written:
            raise NoSuchOutput(f"there is no output {name!r}")
        return self.written[name][offset : offset + size]

    def locate(self, name: str) -> Path | None:
        """Nothing is in a file."""
        return None

    def discard(self, names: Iterable[str]) -> None:
        """Have it no more."""
        for name in names:
            self.written.pop(name, None)

    def outputs(self, idle: float) -> Iterator[tuple[JobId, Iterator[str]]]:
        """All of it, however new."""
        for number, names in groupby(sorted(self.written), lambda name: name.partition("/")[0]):
            yield int(number), names

    def acknowledge(self, job: JobId, task: int, attempt: int) -> None:
        """Note it, and keep that end no longer."""
        self.acknowledged.append((job, task, attempt))
        self.kept = [ended for ended in self.kept if ended.key != (job, task, attempt)]

    def forget(self, job: JobId, task: int | None = None) -> None:
        """Note it."""
        self.forgotten.append((job, task))

    async def stop(self) -> None:
        """Let go of what runs."""
        self.stopped = True
        self.running.clear()

    # What a test makes happen

    def found(self) -> base.Found:
        """What the next driver would find if this one died now."""
        behind = frozenset(key for key, assignment in self.running.items() if assignment.tier is Tier.BACKGROUND)
        return base.Found(frozenset(self.running), tuple(self.kept), background=behind)

    def report(self, report: base.Report) -> None:
        """Tell the driver something."""
        if self._report is None:
            raise InvalidInput("report", report, "reports of an engine that was started")
        self._report(report)

    def end(
        self, job: JobId, task: int = 0, attempt: int = 1, outcome: Outcome = Outcome.SUCCEEDED, **ending: Any
    ) -> None:
        """An attempt ends; the other fields of its `Ending` by name."""
        self.running.pop((job, task, attempt), None)
        ended = base.Ended(job, task, attempt, base.Ending(outcome, **ending))
        self.kept.append(ended)
        self.report(ended)

    def lose(self, node: str) -> None:
        """A node is lost with all that runs there."""
        self._drop(node)
        self.report(base.NodeLost(node, "the test took it"))
