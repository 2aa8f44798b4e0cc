"""Several engines as one: each node belongs to one of them, as a function of its spec says.

An engine that is gone takes down only its own nodes. It is gone if it cannot be made or started, or raises
`EngineError` where it should launch, kill or do anything else with what it runs. The router then reports its nodes as
lost, starts it again from time to time, and reports them as back. What it still runs then is killed, because the driver
has it redone.

An attempt runs within one engine. So a node that an engine finds does not span (`Capabilities.spans`), and the core
puts members beside it on no others; a gang with members on nodes of several engines is refused. What a task saves is
there for later attempts only on nodes of the same engine, unless the engines share a folder for it.

The name of an output begins with that of its engine: `ENGINE:NAME`. One engine may be `plain`: its names stay as they
are, so they are the same with and without a router. A name that begins with none of the others is one of these; if no
engine is plain, it was given before there was a router, so each is asked for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import structs

from headway.engines.base import (
    Assignment,
    AttemptKey,
    Ended,
    Ending,
    Engine,
    Files,
    FindsNodes,
    Found,
    NodeBack,
    NodeFound,
    NodeGone,
    NodeLost,
    NodeShut,
    Noticed,
    Report,
    UsesAnother,
)
from headway.errors import EngineError, HeadwayError, InvalidInput, NameTaken, NoSuchOutput
from headway.model.job import JobId
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.tier import Tier

log = logging.getLogger(__name__)

_ONE_ENGINE: Final = (
    "What starts together runs within one engine. Of a node that was off when an earlier version of Headway was "
    "replaced, policies know that from the next start of the server on"
)

ENGINE_PAUSES: Final = (0.5, 30.0)
"""The least and the greatest pause, in seconds, before an engine that is gone is started again."""


def by_site(node: NodeSpec) -> str:
    """The engine of a node is named by its site."""
    return node.site


class _EnginePart:
    """One of the engines, and its nodes by name.

    Args:
        engine: it, or what makes it; that is called at each start until it does.

    Attributes:
        lives: how often it was started; reports of an earlier life are dropped.
        why: why it is gone, if it is.
        unwanted: what it still ran or had when it came back, whose ends nobody waits for.
    """

    def __init__(self, name: str, engine: Engine | Callable[[], Engine]) -> None:
        self.name = name
        self._engine = engine
        self.nodes: dict[str, NodeSpec] = {}
        self.up = False
        self.lives = 0
        self.why = ""
        self.unwanted: set[AttemptKey] = set()

    @property
    def is_made(self) -> bool:
        """Whether there is an engine, up or not."""
        return not callable(self._engine)

    def make(self) -> None:
        """Make the engine, if it is not made yet.

        Raises:
            HeadwayError: it cannot be made.
        """
        if callable(self._engine):
            self._engine = self._engine()

    @property
    def engine(self) -> Engine:
        """The engine.

        Raises:
            EngineError: it could not be made so far.
        """
        if callable(self._engine):
            raise EngineError(f"engine {self.name!r} is gone: {self.why}")
        return self._engine


class Router:
    """One engine made of several.

    Args:
        engines: by name; or what makes one when it starts, where it may be that this cannot be done yet.
        which: the name of the engine that a node belongs to, by its spec. A node that an engine finds is of the site
            that has the engine's name.
        plain: the engine whose names of outputs stay as they are; empty: none.
        patient: whether it starts also if no engine does, and takes an engine for gone that refuses what it was told:
            what it refuses now, it once took.
        pauses: see `ENGINE_PAUSES`.

    Attributes:
        engines: as they were given.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine | Callable[[], Engine]],
        which: Callable[[NodeSpec], str] = by_site,
        *,
        plain: str = "",
        patient: bool = False,
        pauses: tuple[float, float] = ENGINE_PAUSES,
    ) -> None:
        self._parts = {name: _EnginePart(name, engine) for name, engine in engines.items()}
        self.engines = engines
        self._which = which
        self._plain = plain
        self._patient = patient
        self._pauses = pauses
        self._serving: dict[str, _EnginePart] = {}
        self._attempts: dict[AttemptKey, tuple[_EnginePart, frozenset[str]]] = {}
        self._returning: dict[str, asyncio.Task[None]] = {}
        self._report: Callable[[Report], None]
        self._files: Files

    @property
    def gone(self) -> dict[str, str]:
        """The engines that can do nothing now, or whose system does not answer, by name, and why."""
        found = {}
        for part in self._parts.values():
            why = part.why or (part.engine.silence if part.up and isinstance(part.engine, UsesAnother) else "")
            if why:
                found[part.name] = why
        return found

    # Called by the driver

    async def start(self, nodes: Iterable[NodeSpec], report: Callable[[Report], None], files: Files) -> Found:
        """Start every engine with its nodes. If only some of them start, the nodes of the others are absent.

        Unless it is patient, it does not start if none of them does, or if one refuses what it was told.

        Raises:
            InvalidInput: one refuses it; the field says of which site.
            HeadwayError: an engine does not start.
        """
        self._report, self._files = report, files
        for node in nodes:
            part = self._part_of(node)
            part.nodes[node.name] = node
            self._serving[node.name] = part
        parts = list(self._parts.values())
        answers = await asyncio.gather(*(self._begin(part) for part in parts), return_exceptions=True)
        failed = [
            (part, answer) for part, answer in zip(parts, answers, strict=True) if isinstance(answer, BaseException)
        ]
        for _, error in failed:
            none_starts = len(failed) == len(parts) and not self._patient
            if none_starts or isinstance(error, NameTaken) or not isinstance(error, _passing(patient=self._patient)):
                raise error
        found = list[Found]()
        for part, answer in zip(parts, answers, strict=True):
            if isinstance(answer, Found):
                answer = structs.replace(answer, ended=tuple(self._renamed(part, ended) for ended in answer.ended))
                found.append(answer)
                for key in (*answer.running, *(ended.key for ended in answer.ended)):
                    self._attempts[key] = part, frozenset()
        loop = asyncio.get_running_loop()
        for part, error in failed:
            log.warning("engine %s does not start: %s", part.name, error)
            part.why = _said(error)
            loop.call_soon(report, _noticed(part, error))
            self._returning[part.name] = loop.create_task(self._bring_back(part))
        absent = [frozenset(part.nodes) for part, _ in failed]
        return Found(
            frozenset[AttemptKey]().union(*(one.running for one in found)),
            tuple(ended for one in found for ended in one.ended),
            frozenset[JobId]().union(*(one.saved for one in found)),
            frozenset[AttemptKey]().union(*(one.background for one in found)),
            frozenset[str]().union(*absent, *(one.absent for one in found)),
            frozenset[str]().union(*(one.closed for one in found)),
        )

    def check_fit(self, node: NodeSpec) -> None:
        """As the engine of the node does."""
        self._part_of(node).engine.check_fit(node)

    async def join(self, node: NodeSpec) -> None:
        """Let the engine of the node take it into service."""
        if node.name in self._serving:
            raise NameTaken(node.name, f"a node of engine {self._serving[node.name].name!r}")
        part = self._part_of(node)
        if not part.up:
            part.engine.check_fit(node)
            raise EngineError(f"engine {part.name!r}, to which node {node.name!r} belongs, is gone")
        self._serving[node.name], part.nodes[node.name] = part, node
        try:
            await part.engine.join(node)
        except BaseException:
            self._strike(part, node.name)
            raise

    def kept_out(self, name: str) -> list[str]:
        """The engines that would find a node of this name, and were told to leave it, also if it was let in since."""
        parts = [part for part in self._parts.values() if part.is_made]
        return [one.name for one in parts if isinstance(one.engine, FindsNodes) and name in one.engine.kept_out]

    async def let_in(self, engine: str, name: str, slots: int | None = None) -> bool:
        """Let an engine find a node again; returns whether it was kept out until now.

        Raises:
            InvalidInput: the engine says that it has another number of slots.
            EngineError: the engine is gone.
        """
        part = self._parts[engine]
        if not part.up or not isinstance(part.engine, FindsNodes):
            raise EngineError(f"engine {engine!r}, to which node {name!r} belongs, is gone")
        return await part.engine.let_in(name, slots)

    async def leave(self, name: str) -> None:
        """Let its engine end it; an engine that is gone comes back without it."""
        part = self._serving.get(name)
        if part is not None:
            self._strike(part, name)
            if part.up:
                await part.engine.leave(name)

    def resize(self, name: str, slots: int, *, at_once: bool = False) -> None:
        """Let its engine resize it; an engine that is gone comes back with this size."""
        part = self._serving.get(name)
        if part is not None:
            part.nodes[name] = replace(part.nodes[name], slots=slots)
            self._ask(part, lambda: part.engine.resize(name, slots, at_once=at_once))

    def launch(self, assignment: Assignment) -> None:
        """Let the engine of its nodes start it."""
        names = frozenset(member.node for member in assignment.members)
        parts = {part.name: part for name in names if (part := self._serving.get(name)) is not None}
        ending = None
        if len(parts) > 1:
            detail = f"its members are on nodes of several engines: {', '.join(sorted(parts))}. {_ONE_ENGINE}"
            ending = Ending(Outcome.REFUSED, detail=detail)
        elif not names <= self._serving.keys() or not all(part.up for part in parts.values()):
            ending = Ending(Outcome.LOST, detail="its node was lost before it started")
        if ending is not None:
            asyncio.get_running_loop().call_soon(self._report, Ended(*assignment.key, ending))
            return
        (part,) = parts.values()
        self._attempts[assignment.key] = part, names
        self._ask(part, partial(part.engine.launch, assignment))

    def kill(self, job: JobId, task: int, attempt: int) -> None:
        """Let its engine end it."""
        if (part := self._runs((job, task, attempt))) is not None:
            self._ask(part, partial(part.engine.kill, job, task, attempt))

    def change(self, job: JobId, task: int, attempt: int, tier: Tier) -> None:
        """Let its engine change it."""
        if (part := self._runs((job, task, attempt))) is not None:
            self._ask(part, partial(part.engine.change, job, task, attempt, tier))

    def suspend(self, job: JobId, task: int, attempt: int) -> None:
        """Let its engine ask it to save and end."""
        if (part := self._runs((job, task, attempt))) is not None:
            self._ask(part, partial(part.engine.suspend, job, task, attempt))

    def show(self, job: JobId, task: int, attempt: int, rank: int | None, stream: str) -> str:
        """What its engine calls it; empty if that is gone."""
        part, shown = self._runs((job, task, attempt)), [""]
        if part is not None:
            engine = part.engine
            self._ask(part, lambda: shown.append(engine.show(job, task, attempt, rank, stream)))
            return self._named(part, shown[-1])
        return ""

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """Let its engine read it. That it cannot now is no sign that the engine is gone: perhaps a node is."""
        parts = self._which_have(name)
        for part, there in parts:
            try:
                return await part.engine.read(there, offset, size)
            except NoSuchOutput:
                if len(parts) == 1:
                    raise
        if gone := [part.name for part, _ in self._which_may_have(name) if not part.up]:
            raise EngineError(f"output {name!r} cannot be read now: engine {', '.join(gone)} is gone")
        raise NoSuchOutput(f"no engine has an output {name!r}")

    def locate(self, name: str) -> Path | None:
        """Where its engine has it; of several, the first that has a file."""
        found = [path for part, there in self._which_have(name) if (path := part.engine.locate(there)) is not None]
        return next((path for path in found if path.exists()), found[0] if found else None)

    def discard(self, names: Iterable[str]) -> None:
        """Let their engines delete them; an engine that is gone names them again later (`outputs`)."""
        wanted: dict[_EnginePart, list[str]] = {}
        for name in names:
            for part, there in self._which_have(name):
                wanted.setdefault(part, []).append(there)
        for part, some in wanted.items():
            self._ask(part, partial(part.engine.discard, some))

    def outputs(self, idle: float) -> Iterator[tuple[JobId, Iterator[str]]]:
        """What each engine has, one after the other."""
        for part in self._parts.values():
            for job, names in part.engine.outputs(idle) if part.up else ():
                yield job, map(partial(self._named, part), names)

    def acknowledge(self, job: JobId, task: int, attempt: int) -> None:
        """Let its engine forget it."""
        part, _ = self._attempts.pop((job, task, attempt), (None, None))
        if part is not None and part.up:
            self._ask(part, partial(part.engine.acknowledge, job, task, attempt))

    def forget(self, job: JobId, task: int | None = None) -> None:
        """Let every engine delete what was saved: it may have run anywhere."""
        for part in self._parts.values():
            if part.up:
                self._ask(part, partial(part.engine.forget, job, task))

    async def stop(self) -> None:
        """Stop every engine, also one that is gone: something of it may be left."""
        for returning in self._returning.values():
            returning.cancel()
        if self._returning:
            await asyncio.wait(list(self._returning.values()))
        parts = [part for part in self._parts.values() if part.is_made]
        for part in parts:
            part.up, part.lives = False, part.lives + 1
        stopped = await asyncio.gather(*(part.engine.stop() for part in parts), return_exceptions=True)
        for part, error in zip(parts, stopped, strict=True):
            if isinstance(error, EngineError):
                log.warning("engine %s may not have ended: %s", part.name, error)
            elif isinstance(error, BaseException):
                raise error

    # Internal

    def _part_of(self, node: NodeSpec) -> _EnginePart:
        name = self._which(node)
        if name not in self._parts:
            raise InvalidInput(f"site of node {node.name!r}", name, f"one of {', '.join(self._parts)}")
        return self._parts[name]

    def _runs(self, key: AttemptKey) -> _EnginePart | None:
        part, _ = self._attempts.get(key, (None, None))
        return part if part is not None and part.up else None

    def _which_have(self, name: str) -> list[tuple[_EnginePart, str]]:
        """The engines that may have an output and can be asked, and what each calls it."""
        return [(part, there) for part, there in self._which_may_have(name) if part.up]

    def _which_may_have(self, name: str) -> list[tuple[_EnginePart, str]]:
        """The engines that may have an output, and what each calls it."""
        first, colon, rest = name.partition(":")
        part = self._parts.get(first) if colon and first != self._plain else None
        if part is not None:
            return [(part, rest)]
        return [(part, name) for part in self._parts.values() if self._plain in ("", part.name)]

    def _named(self, part: _EnginePart, name: str) -> str:
        """The router's name of an engine's output."""
        return f"{part.name}:{name}" if name and part.name != self._plain else name

    def _renamed(self, part: _EnginePart, ended: Ended) -> Ended:
        """An end whose outputs have the router's names."""
        if part.name == self._plain:
            return ended

        def renamed(ending: Ending) -> Ending:
            named = {
                stream: structs.replace(output, name=self._named(part, output.name))
                for stream, output in (("stdout", ending.stdout), ("stderr", ending.stderr))
                if output is not None and output.name
            }
            return structs.replace(ending, **named) if named else ending

        ending, members = renamed(ended.ending), tuple(map(renamed, ended.members))
        same = ending is ended.ending and not members
        return ended if same else structs.replace(ended, ending=ending, members=members)

    def _strike(self, part: _EnginePart, node: str) -> None:
        """A node is no longer served."""
        self._serving.pop(node, None)
        part.nodes.pop(node, None)
        self._drop(node)

    def _drop(self, node: str) -> None:
        """Forget what had a member on a node: no end of it is reported."""
        for key in [key for key, (_, names) in self._attempts.items() if node in names]:
            del self._attempts[key]

    async def _begin(self, part: _EnginePart) -> Found:
        part.make()
        part.lives += 1
        take = partial(self._take, part, part.lives)
        try:
            found = await part.engine.start(tuple(part.nodes.values()), take, self._files)
        except InvalidInput as wrong:
            if part.name == self._plain:
                raise
            field = f"{wrong.field} of site {part.name!r}"
            raise InvalidInput(field, wrong.value, wrong.allowed, hint=wrong.hint) from None
        part.up, part.why = True, ""
        return found

    def _take(self, part: _EnginePart, life: int, report: Report) -> None:
        """An engine reports something."""
        if life != part.lives:
            return
        match report:
            case Ended() if report.key in part.unwanted:
                part.unwanted.discard(report.key)
                self._ask(part, partial(part.engine.acknowledge, *report.key))
                return
            case Ended():
                report = self._renamed(part, report)
            case NodeFound(node=node):
                node = replace(node, site=part.name, capabilities=replace(node.capabilities, spans=False))
                report = NodeFound(node)
                other = self._serving.get(node.name)
                if other not in (None, part):
                    said = f"engine {part.name!r} finds a node with this name: it is not used"
                    self._report(Noticed("name_taken", node.name, said))
                    return
                self._serving[node.name], part.nodes[node.name] = part, node
            case NodeGone(node=name):
                self._strike(part, name)
            case NodeLost(node=name):
                self._drop(name)
            case _:
                pass
        self._report(report)

    def _ask(self, part: _EnginePart, ask: Callable[[], None]) -> None:
        """Ask an engine for something; if it can do nothing any more, its nodes are lost."""
        if not part.up:
            return
        try:
            ask()
        except EngineError as error:
            self._lose(part, error)

    def _lose(self, part: _EnginePart, error: EngineError) -> None:
        """An engine can do nothing any more: its nodes are lost until it is back."""
        if not part.up:
            return
        log.warning("engine %s is gone: %s", part.name, error)
        part.up, part.lives, part.why = False, part.lives + 1, _said(error)
        part.unwanted.clear()
        loop = asyncio.get_running_loop()
        loop.call_soon(self._report, _noticed(part, error))
        for name in part.nodes:
            self._drop(name)
            loop.call_soon(self._report, NodeLost(name, f"its engine {part.name!r} is gone"))
        self._attempts = {key: held for key, held in self._attempts.items() if held[0] is not part}
        self._returning[part.name] = loop.create_task(self._bring_back(part))

    async def _bring_back(self, part: _EnginePart) -> None:
        """Start an engine again until it starts."""
        pause, most = self._pauses
        while True:
            await asyncio.sleep(pause)
            try:
                found = await self._begin(part)
                break
            except HeadwayError as error:
                log.warning("engine %s is not back: %s", part.name, error)
                part.why = _said(error)
                pause = min(2 * pause, most)
        del self._returning[part.name]
        log.info("engine %s is back", part.name)
        part.unwanted.update(found.running)
        for key in found.running:
            self._ask(part, partial(part.engine.kill, *key))
        for ended in found.ended:
            self._ask(part, partial(part.engine.acknowledge, *ended.key))
        for name in part.nodes.keys() - found.absent if part.up else ():
            self._report(NodeBack(name))
            if name in found.closed:
                self._report(NodeShut(name))


def _passing(*, patient: bool) -> type[HeadwayError]:
    """The errors of engines that start later, perhaps."""
    return HeadwayError if patient else EngineError


def _said(error: BaseException) -> str:
    return str(error.args[0] if error.args else error) or type(error).__name__


def _noticed(part: _EnginePart, error: BaseException) -> Noticed:
    return Noticed("engine_gone", part.name, _said(error))
