"""A site of nodes in memory, and an engine on it: messages between them are lost, repeated, delayed and reordered.

The site outlives the engine, as agents outlive their driver. What an attempt does, and for how long, follows from its
number alone, or from what a test says (`Does`).
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from random import Random

from msgspec import structs

from headway.engines import base
from headway.errors import InvalidInput, NameTaken, NoSuchOutput, NoSuchUpload
from headway.files import KEPT_SCHEME, upload_of
from headway.model.job import JobId
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.tier import Tier

from .virtual import Life

GAP = 1e-6
"""Seconds between two messages of which the second may not come first."""

PIECE = 1000
"""Bytes that are sent at once."""

Place = tuple[str, int, Tier]
"""Node, slot, tier."""

OutputKey = tuple[JobId, int, int, int]
"""Job, task, attempt, rank."""


def name_of(key: OutputKey) -> str:
    """What the engine calls an output."""
    return "stdout of {}, {}, {}, {}".format(*key)


def key_of(name: str) -> OutputKey | None:
    """The output of this name; None if there can be none."""
    numbers = name.removeprefix("stdout of ").split(", ")
    if not name.startswith("stdout of ") or len(numbers) != 4 or not all(map(str.isdecimal, numbers)):
        return None
    job, task, attempt, rank = map(int, numbers)
    return (job, task, attempt, rank)


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for place in range(0, len(content), PIECE):
        yield content[place : place + PIECE]


def after(seconds: float, step: Callable[..., object], *args: object) -> asyncio.TimerHandle:
    """Call something later, as a matter of the world: it does not die with the process that caused it."""
    return asyncio.get_running_loop().call_later(seconds, step, *args, context=contextvars.Context())


@dataclass
class Doing:
    """What one member of an attempt does once it runs.

    Attributes:
        poll: says its ending when it has ended.
        says: what it writes to stdout when it begins.
        adds: what it writes at its end.
        gives: its outputs that the server keeps, by their paths in the folder of a command, made of its inputs.
    """

    seconds: float | None
    ending: base.Ending
    poll: Callable[[], base.Ending | None] | None = None
    saves: bool = False
    says: bytes = b""
    adds: bytes = b""
    gives: Callable[[Mapping[str, bytes]], dict[str, bytes]] | None = None


Does = Callable[[base.Assignment, base.Member], Doing]


@dataclass
class Run:
    """An attempt on the site."""

    assignment: base.Assignment
    tier: Tier
    began: float | None = None
    timers: list[asyncio.Handle] = field(default_factory=list)
    endings: dict[int, base.Ending] = field(default_factory=dict)
    saves: bool = False
    doings: dict[int, Doing] = field(default_factory=dict)

    @property
    def places(self) -> set[Place]:
        return {(member.node, slot, self.tier) for member in self.assignment.members for slot in member.slots}

    @property
    def nodes(self) -> set[str]:
        return {member.node for member in self.assignment.members}


@dataclass
class Node:
    """A node of the site."""

    spec: NodeSpec
    alive: bool = True
    life: int = 1
    slots: int = 0
    cut: bool = False


class Site:
    """The nodes and what runs on them.

    Attributes:
        nodes: by name.
        runs: what runs or waits, in order of its arrival.
        kept: ends that were not acknowledged.
        written: what attempts wrote, by job, task, attempt and rank.
        fetched: the inputs of commands, by their paths.
        gives: what attempts gave the server to keep, by their paths.
        endings: how each attempt ended, as often as it did: for the checks.
        engine: the one that is connected.
        grace: seconds that an attempt has to save.
    """

    def __init__(self, does: Does, *, grace: float = 1.0) -> None:
        self.does = does
        self.grace = grace
        self.nodes: dict[str, Node] = {}
        self.runs: dict[base.AttemptKey, Run] = {}
        self.kept: dict[base.AttemptKey, base.Ended] = {}
        self.written: dict[OutputKey, bytes] = {}
        self.fetched: dict[base.AttemptKey, dict[str, bytes]] = {}
        self.gives: dict[base.AttemptKey, dict[str, bytes]] = {}
        self.endings: dict[base.AttemptKey, list[Outcome]] = {}
        self.launches: Counter[base.AttemptKey] = Counter()
        self.engine: SimEngine | None = None

    # Asked by the engine

    def launch(self, assignment: base.Assignment, lives: dict[str, int]) -> None:
        """Start an attempt when its places are free; one that was started before is not started again."""
        key = assignment.key
        self.launches[key] += 1
        if self.launches[key] > 1:
            return
        for member in assignment.members:
            node = self.nodes.get(member.node)
            if node is not None and (not node.alive or node.life != lives.get(member.node)):
                return  # its loss stands for the end
        for member in assignment.members:
            node = self.nodes.get(member.node)
            if node is None or max(member.slots) >= node.spec.slots:
                self._over(Run(assignment, assignment.tier), base.Ending(Outcome.LOST, detail="no such node or slot"))
                return
        run = self.runs[key] = Run(assignment, assignment.tier)
        self._start_what_can()
        if run.began is None and len(run.places) == 1:
            run.timers.append(after(base.BEHIND_SECONDS, self._give_back, run))

    def _start_what_can(self) -> None:
        taken: set[Place] = set()
        for run in list(self.runs.values()):
            if run.began is not None:
                taken |= run.places
        for run in list(self.runs.values()):
            if run.began is None:
                if not run.places & taken:
                    self._begin(run)
                taken |= run.places

    def _give_back(self, run: Run) -> None:
        """Give back what still waits behind a run that takes long."""
        if run.began is None:
            since = [
                other.began for other in self.runs.values() if other.began is not None and other.places & run.places
            ]
            now = asyncio.get_running_loop().time()
            if since and now - min(since) >= base.BEHIND_SECONDS:
                self._over(run, base.Ending(Outcome.KILLED))
            else:
                run.timers.append(after(base.BEHIND_SECONDS, self._give_back, run))

    def _begin(self, run: Run) -> None:
        loop = asyncio.get_running_loop()
        run.began = loop.time()
        reports = any(self.nodes[member.node].spec.reports_start for member in run.assignment.members)
        if reports or run.assignment.fetches:
            self._tell(base.Started(*run.assignment.key))
        limit = run.assignment.time_limit
        if limit is not None:
            ending = base.Ending(Outcome.OUT_OF_TIME, detail=f"ran longer than {limit / 1e6:g} s", seconds=limit / 1e6)
            run.timers.append(after(limit / 1e6, self._member_ended, run, 0, ending))
        for rank, member in enumerate(run.assignment.members):
            doing = run.doings[rank] = self.does(run.assignment, member)
            self._write(run, rank, doing.says)
            run.saves = run.saves or doing.saves
            if doing.poll is not None:
                self._poll(run, rank, doing)
            elif doing.seconds is not None:
                timer = after(doing.seconds, self._member_ended, run, rank, doing.ending)
                run.timers.append(timer)
                if doing.saves:
                    run.timers.append(after(doing.seconds / 2, self._tell, base.Saved(*run.assignment.key)))

    def _poll(self, run: Run, rank: int, doing: Doing) -> None:
        assert doing.poll is not None
        ending = doing.poll()
        if ending is not None:
            run.timers.append(after(0.0, self._member_ended, run, rank, ending))
        else:
            run.timers.append(after(0.005, self._poll, run, rank, doing))

    def _member_ended(self, run: Run, rank: int, ending: base.Ending) -> None:
        assert run.began is not None
        if not ending.seconds:
            ending = structs.replace(ending, seconds=asyncio.get_running_loop().time() - run.began)
        doing, key = run.doings[rank], run.assignment.key
        self._write(run, rank, doing.adds)
        if doing.gives is not None and ending.outcome is Outcome.SUCCEEDED:
            self.gives[key] = doing.gives(self.fetched.pop(key, {}))
        ending = run.endings[rank] = structs.replace(ending, stdout=self._output(run, rank))
        width = len(run.assignment.members)
        if ending.outcome is not Outcome.SUCCEEDED or len(run.endings) == width:
            self._over(run, ending, rank)

    def _write(self, run: Run, rank: int, text: bytes) -> None:
        if text:
            key = (*run.assignment.key, rank)
            self.written[key] = self.written.get(key, b"") + text

    def _output(self, run: Run, rank: int) -> base.Output | None:
        """What a member has written; little of it is not kept, because it is in the ending."""
        key = (*run.assignment.key, rank)
        whole = self.written.get(key, b"")
        if len(whole) <= base.TAIL_MAX:
            self.written.pop(key, None)
            return base.Output("", len(whole), whole) if whole else None
        tail = whole[-base.TAIL_MAX :]
        return base.Output(name_of(key), len(whole), tail, sha256=hashlib.sha256(whole).hexdigest())

    def _over(self, run: Run, ending: base.Ending, rank: int = 0) -> None:
        """An attempt has ended; of a gang the others end with this member."""
        key, width = run.assignment.key, len(run.assignment.members)
        self._drop(run)
        members: tuple[base.Ending, ...] = ()
        if width > 1:
            other = ending.outcome if ending.outcome is Outcome.LOST else Outcome.KILLED
            members = tuple(run.endings.get(each, base.Ending(other)) for each in range(width))
            if ending.outcome is Outcome.SUCCEEDED:
                ending = base.Ending(Outcome.SUCCEEDED, seconds=ending.seconds)
            else:
                detail = ending.detail or ending.outcome.value
                ending = structs.replace(ending, detail=f"process {rank}: {detail}")
        self.endings.setdefault(key, []).append(ending.outcome)
        ended = self.kept[key] = base.Ended(*key, ending, members)
        self._tell(ended)
        self._start_what_can()

    def _drop(self, run: Run) -> None:
        for timer in run.timers:
            timer.cancel()
        self.runs.pop(run.assignment.key, None)
        for rank in run.doings.keys() - run.endings.keys():
            self.written.pop((*run.assignment.key, rank), None)

    def kill(self, key: base.AttemptKey) -> None:
        """End an attempt."""
        run = self.runs.get(key)
        if run is not None:
            self._over(run, base.Ending(Outcome.KILLED))

    def change(self, key: base.AttemptKey, tier: Tier) -> None:
        """Let an attempt and those in its new places exchange them."""
        run = self.runs.get(key)
        if run is None or run.tier is tier:
            return
        run.tier = tier
        if run.began is not None:
            for other in self.runs.values():
                if other is not run and other.began is not None and other.places & run.places:
                    other.tier = Tier(1 - other.tier)
        self._start_what_can()

    def suspend(self, key: base.AttemptKey) -> None:
        """Let an attempt save and end."""
        run = self.runs.get(key)
        if run is None:
            return
        if run.began is None:
            self._over(run, base.Ending(Outcome.KILLED))
        elif run.saves:
            self._tell(base.Saved(*key))
            self._over(run, base.Ending(Outcome.KILLED))
        else:
            late = base.Ending(Outcome.KILLED, detail=f"did not save and end within {self.grace:g} s")
            run.timers.append(after(self.grace, self._over, run, late))

    def resize(self, name: str, slots: int, at_once: bool) -> None:
        """Give a node another size."""
        node = self.nodes.get(name)
        if node is None:
            return
        node.spec = replace(node.spec, slots=slots)
        if at_once:
            for run in list(self.runs.values()):
                if any(member.node == name and max(member.slots) >= slots for member in run.assignment.members):
                    self._over(run, base.Ending(Outcome.KILLED))

    def leave(self, name: str) -> None:
        """End a node with all that runs there."""
        if self.nodes.pop(name, None) is not None:
            self._lose(name)

    def _lose(self, name: str) -> None:
        for run in [run for run in self.runs.values() if name in run.nodes]:
            self._drop(run)
        self._start_what_can()

    # What happens to it

    def die(self, name: str) -> None:
        """A node dies, with all that runs there."""
        node = self.nodes.get(name)
        if node is not None and node.alive:
            node.alive = False
            self._lose(name)
            if self.engine is not None:
                self.engine.noticed(name, node.life)

    def revive(self, name: str) -> None:
        """A node is there again, running nothing."""
        node = self.nodes.get(name)
        if node is not None and not node.alive:
            node.alive, node.life, node.cut = True, node.life + 1, False
            if self.engine is not None:
                self.engine.is_back(name, node.life)

    def _tell(self, report: base.Started | base.Saved | base.Ended | base.TierRefused) -> None:
        if self.engine is not None:
            self.engine.from_site(report)


class Link:
    """Messages between an engine and its site.

    Args:
        random: decides what happens to each.
        loss: how likely a message is lost and sent again later.
        repeat: how likely it comes twice.
        delay: the most seconds that it takes, as a rule.
    """

    def __init__(self, random: Random, loss: float = 0.0, repeat: float = 0.0, delay: float = 0.0) -> None:
        self._random = random
        self.loss = loss
        self.repeat = repeat
        self.delay = delay
        self.counts: Counter[str] = Counter()

    def calm(self) -> None:
        """Nothing happens to messages any more."""
        self.loss = self.repeat = 0.0
        self.delay = min(self.delay, 0.001)

    def times(self) -> list[float]:
        """After how many seconds a message arrives: once, or twice."""
        seconds = self._random.random() * self.delay if self.delay else 0.0
        while self.loss and self._random.random() < self.loss:
            self.counts["lost"] += 1
            seconds += 0.2 + self._random.random()
        found = [seconds]
        if self.repeat and self._random.random() < self.repeat:
            self.counts["repeated"] += 1
            found.append(seconds + self._random.random() * 2)
        return found


class SimEngine:
    """An engine of a site. It dies with its driver.

    Args:
        site: where attempts run.
        link: what happens to messages on their way.
        life: the process that it belongs to; None: it never dies.

    Attributes:
        site: as given.
    """

    def __init__(self, site: Site, link: Link, life: Life | None = None) -> None:
        self.site = site
        self._link = link
        self._life = life
        self._report: Callable[[base.Report], None] | None = None
        self._known: dict[str, int] = {}
        self._lost: set[str] = set()
        self._lost_there: set[base.AttemptKey] = set()
        self._where: dict[base.AttemptKey, tuple[str, ...]] = {}
        self._last = 0.0
        self._news: dict[str, float] = {}
        self._beats: asyncio.Handle | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._stopped = False

    @property
    def _is_dead(self) -> bool:
        return self._stopped or (self._life is not None and self._life.dead)

    # The way down, in order

    def _send(self, step: Callable[..., None], *args: object) -> None:
        if self._is_dead:
            return
        now = asyncio.get_running_loop().time()
        first, *again = self._link.times()
        self._last = max(self._last + GAP, now + first)
        after(self._last - now, self._deliver, step, args)
        if again and step == self.site.launch:
            after(again[0] + self._last - now, self._deliver, step, args)

    def _deliver(self, step: Callable[..., None], args: tuple[object, ...]) -> None:
        if self.site.engine is self and not self._stopped:
            step(*args)

    # The way up, in any order

    def from_site(self, report: base.Started | base.Saved | base.Ended | base.TierRefused) -> None:
        """The site tells something about an attempt."""
        for seconds in self._link.times():
            self._later(seconds, self._arrive, report)

    def _later(self, seconds: float, step: Callable[..., None], *args: object) -> None:
        if not self._is_dead:
            after(seconds, *(step, *args) if self._life is None else (self._life.call, step, *args))

    def _arrive(self, report: base.Started | base.Saved | base.Ended | base.TierRefused) -> None:
        """Hand over what the site tells; what an attempt gives the server comes before its end."""
        if isinstance(report, base.Ended) and (gives := self.site.gives.get(report.key)):
            self._begin(self._give(report, gives))
        else:
            self._hand_over(report)

    def _hand_over(self, report: base.Started | base.Saved | base.Ended | base.TierRefused) -> None:
        key = (report.job, report.task, report.attempt)
        if not self._is_dead and self._report is not None and key not in self._lost_there:
            self._report(report)

    def noticed(self, name: str, life: int) -> None:
        """A node died; the engine notices after a while."""
        self._news_of(name, self._is_lost, name, life)

    def is_back(self, name: str, life: int) -> None:
        """A node is back; the engine notices after a while, and after its loss."""
        self._news_of(name, self._is_found, name, life)

    def _news_of(self, name: str, step: Callable[..., None], *args: object) -> None:
        now = asyncio.get_running_loop().time()
        at = max(self._news.get(name, 0.0) + GAP, now + self._link.times()[0])
        self._news[name] = at
        self._later(at - now, step, *args)

    def _is_lost(self, name: str, life: int) -> None:
        if self._known.get(name) == life and not self._is_dead and self._report is not None:
            self._lost.add(name)
            self._lost_there |= {key for key, nodes in self._where.items() if name in nodes}
            self._report(base.NodeLost(name, "it died"))

    def _is_found(self, name: str, life: int) -> None:
        if name in self._lost and not self._is_dead and self._report is not None:
            self._lost.discard(name)
            self._known[name] = life
            self._report(base.NodeBack(name))

    def _beat(self) -> None:
        if self._is_dead or self._report is None:
            return
        heard = tuple(
            name
            for name, node in self.site.nodes.items()
            if node.spec.lease is not None and node.alive and not node.cut and name not in self._lost
        )
        if heard and not (self._link.loss and self._link._random.random() < self._link.loss):
            self._report(base.Heard(heard))
        leases = [node.spec.lease for node in self.site.nodes.values() if node.spec.lease is not None]
        self._beats = asyncio.get_running_loop().call_later(min(leases, default=3_000_000) / 4e6, self._beat)

    # Files that the server keeps: sent in pieces, to the site before an attempt starts, and from there at its end

    def _begin(self, sending: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _fetch(self, assignment: base.Assignment, lives: dict[str, int]) -> None:
        """Launch an attempt when its inputs are at the site."""
        commands = (member.work for member in assignment.members if isinstance(member.work, base.Command))
        inputs = {path: url for command in commands for path, url in command.inputs.items()}
        there = self.site.fetched[assignment.key] = dict[str, bytes]()
        for path, url in inputs.items():
            there[path], upload = b"", upload_of(url)
            assert upload is not None
            try:
                while piece := await self._files.read(upload[0], len(there[path]), PIECE):
                    there[path] += piece
            except NoSuchUpload as error:
                ended = base.Ended(*assignment.key, base.Ending(Outcome.REFUSED, detail=str(error)))
                self._later(0.0, self._hand_over, ended)
                return
        self._send(self.site.launch, assignment, lives)

    async def _give(self, ended: base.Ended, contents: dict[str, bytes]) -> None:
        """Report an end when its outputs are kept."""
        urls = {}
        for path, content in contents.items():
            name = hashlib.sha256(content).hexdigest()
            await self._files.put(name, _pieces(content))
            urls[path] = f"{KEPT_SCHEME}{name}/{path}"
        self._hand_over(structs.replace(ended, ending=structs.replace(ended.ending, outputs=urls)))

    # The protocol

    async def start(
        self, nodes: Iterable[NodeSpec], report: Callable[[base.Report], None], files: base.Files
    ) -> base.Found:
        """Connect to the site, and find what an earlier engine has left there."""
        self._files = files
        site, wanted = self.site, {node.name: node for node in nodes}
        await asyncio.sleep(self._link.times()[0])
        site.engine = self
        for name in [name for name in site.nodes if name not in wanted]:
            site.leave(name)
        for name, spec in wanted.items():
            node = site.nodes.get(name)
            if node is None:
                site.nodes[name] = Node(spec)
                continue
            if not node.alive:
                node.alive, node.life = True, node.life + 1
            was, node.spec = node.spec, replace(spec, slots=node.spec.slots)
            if was.slots != spec.slots:
                site.resize(name, spec.slots, False)
        self._known = {name: node.life for name, node in site.nodes.items()}
        self._report = report
        self._beat()
        running = list(site.runs.values())
        for run in running:
            self._where[run.assignment.key] = tuple(run.nodes)
        return base.Found(
            frozenset(run.assignment.key for run in running),
            tuple(site.kept.values()),
            background=frozenset(run.assignment.key for run in running if run.tier is Tier.BACKGROUND),
        )

    def check_fit(self, node: NodeSpec) -> None:
        """Allow 64 slots."""
        if node.slots > 64:
            raise InvalidInput("slots", node.slots, "1 to 64")

    async def join(self, node: NodeSpec) -> None:
        """Have one more node."""
        self.check_fit(node)
        if node.name in self.site.nodes:
            raise NameTaken(node.name, "this site")
        await asyncio.sleep(self._link.times()[0])
        if node.name in self.site.nodes:
            raise NameTaken(node.name, "this site")
        self.site.nodes[node.name] = Node(node)
        self._known[node.name] = 1
        self._lost.discard(node.name)

    async def leave(self, name: str) -> None:
        """Have it no more."""
        self._known.pop(name, None)
        self._lost.discard(name)
        self._lost_there |= {key for key, nodes in self._where.items() if name in nodes}
        self.site.leave(name)
        await asyncio.sleep(self._link.times()[0])

    def resize(self, name: str, slots: int, *, at_once: bool = False) -> None:
        """Give a node another size."""
        self._send(self.site.resize, name, slots, at_once)

    def launch(self, assignment: base.Assignment) -> None:
        """Start an attempt."""
        nodes = tuple(dict.fromkeys(member.node for member in assignment.members))
        self._where[assignment.key] = nodes
        if any(name in self._lost or name not in self._known for name in nodes):
            ended = base.Ended(*assignment.key, base.Ending(Outcome.LOST, detail="its node is lost or unknown"))
            self._later(0.0, self._hand_over, ended)
            return
        lives = {name: self._known[name] for name in nodes}
        if assignment.files:
            self._begin(self._fetch(assignment, lives))
        else:
            self._send(self.site.launch, assignment, lives)

    def kill(self, job: JobId, task: int, attempt: int) -> None:
        """End an attempt."""
        self._send(self.site.kill, (job, task, attempt))

    def change(self, job: JobId, task: int, attempt: int, tier: Tier) -> None:
        """Change its tier."""
        self._send(self.site.change, (job, task, attempt), tier)

    def suspend(self, job: JobId, task: int, attempt: int) -> None:
        """Let it save and end."""
        self._send(self.site.suspend, (job, task, attempt))

    def show(self, job: JobId, task: int, attempt: int, rank: int | None, stream: str) -> str:
        """Its name at the site."""
        run, key = self.site.runs.get((job, task, attempt)), (job, task, attempt, rank or 0)
        return "" if run is None or stream == "stderr" else name_of(key)

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """Have a piece sent."""
        await asyncio.sleep(0.001)
        key = key_of(name)
        if key is None or (key not in self.site.written and key[:3] not in self.site.runs):
            raise NoSuchOutput(f"the site has no output {name!r}")
        return self.site.written.get(key, b"")[offset : offset + size]

    def locate(self, name: str) -> Path | None:
        """It is not on this machine."""
        return None

    def discard(self, names: Iterable[str]) -> None:
        """Have the site delete it."""
        for key in map(key_of, names):
            if key is not None:
                self._send(self.site.written.pop, key, None)  # type: ignore[arg-type]

    def outputs(self, idle: float) -> Iterator[tuple[JobId, Iterator[str]]]:
        """All that is there, however new."""
        for job, keys in groupby(sorted(self.site.written), lambda key: key[0]):
            yield job, map(name_of, keys)

    def acknowledge(self, job: JobId, task: int, attempt: int) -> None:
        """Keep an end no longer."""
        self._where.pop((job, task, attempt), None)
        self._send(self.site.kept.pop, (job, task, attempt), None)  # type: ignore[arg-type]

    def forget(self, job: JobId, task: int | None = None) -> None:
        """Nothing was kept."""

    async def stop(self) -> None:
        """End everything."""
        self._stopped = True
        for sending in self._sending:
            sending.cancel()
        if self._beats is not None:
            self._beats.cancel()
        for run in list(self.site.runs.values()):
            self.site._drop(run)
        if self.site.engine is self:
            self.site.engine = None
        await asyncio.sleep(0)
