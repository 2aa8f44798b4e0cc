"""What an engine does whose nodes are on other machines: it brings files there, and brings what attempts wrote here.

A file of the server goes to a node when a run there first wants it, in pieces over the line of its agent. What an
attempt wrote is fetched when it has ended, before its end is reported. From then on it is a file of the engine's
folder, as with the engine of this machine, whatever becomes of the node.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import os
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

from msgspec import Raw, structs

from headway.engines.base import Assignment, AttemptKey, Ended, Ending, Files, Found, Noticed, Output, Report
from headway.engines.local.agent.porter import named
from headway.engines.local.driver.attached import AgentNode
from headway.engines.local.driver.gang import Gang
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.driver.supervising import AgentEngine
from headway.engines.local.driver.written import attempt_of
from headway.engines.local.shared.frames import (
    CheckpointTaken,
    Discard,
    FilePiece,
    Frame,
    MemberEnded,
    MemberSaved,
    Read,
    ReadPart,
    Standing,
    Welcome,
    decode_ending,
    encode,
    frame,
)
from headway.engines.local.shared.output import OUTPUT_FOLDER, why_lost
from headway.engines.local.shared.stores import PIECE_MAX, TRIES, Store
from headway.engines.remote.node import RemoteNode
from headway.engines.remote.saved import SavedElsewhere
from headway.errors import Damaged, EngineError, HeadwayError, InvalidInput, NoRoom, NoSuchOutput
from headway.model.job import JobId
from headway.model.outcome import Outcome
from headway.model.tier import Tier

log = logging.getLogger(__name__)

_ASK_SECONDS: Final = 60.0

_SHARE: Final = 10
"""What is saved again and again is fetched so seldom that fetching takes a tenth of the time."""


class _Pull:
    """How far what a member saves has been fetched.

    Attributes:
        is_due: it has saved since.
        is_running: it is being fetched.
        is_told: it was said that it cannot be.
        not_before: when it may be fetched again, unless it has ended.
    """

    def __init__(self) -> None:
        self.is_due = False
        self.is_running = False
        self.is_told = False
        self.not_before = -math.inf
        self.lock = asyncio.Lock()


class RemoteEngine(AgentEngine[RemoteNode]):
    """What engines of other machines have in common. See `headway.engines.base.Engine` for their duties.

    Args:
        root: folder of what attempts wrote; made if it does not exist.
        settings: see there; `run_as`, `ground` and `pin` mean nothing on other machines.
    """

    def __init__(self, root: Path, settings: LocalSettings) -> None:
        super().__init__(root, settings)
        self._files: Files
        self._asked: dict[int, tuple[RemoteNode, asyncio.Future[Any]]] = {}
        self._numbers = count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._packing: dict[str, asyncio.Lock] = {}
        self._saved = SavedElsewhere(root / "checkpoints")
        self._pulls: dict[tuple[AttemptKey, int], _Pull] = {}
        self._owed: dict[str, list[str]] = {}
        self._bringing: dict[AttemptKey, tuple[Assignment, asyncio.Task[None]]] = {}

    # Called by the driver

    def launch(self, assignment: Assignment) -> None:
        """What earlier attempts saved on other nodes is sent first."""
        job, _, attempt = assignment.key
        if attempt > 1 and job in self._saving and (packed := self._packed_for(assignment)):
            bringing = self._loop.create_task(self._bring_and_launch(assignment.key, packed))
            self._bringing[assignment.key] = assignment, bringing
            self._tasks.add(bringing)
            bringing.add_done_callback(self._done)
        else:
            super().launch(assignment)
        if attempt > 1:
            self._saving.add(job)  # the attempt before may have saved something, and not told

    def kill(self, job: JobId, task: int, attempt: int) -> None:
        """One that waits for what was saved elsewhere has not begun."""
        self._saving.add(job)  # it may have saved something, and not told
        if not self._stop_bringing((job, task, attempt)):
            super().kill(job, task, attempt)

    def suspend(self, job: JobId, task: int, attempt: int) -> None:
        """One that waits for what was saved elsewhere has nothing new to save."""
        if not self._stop_bringing((job, task, attempt)):
            super().suspend(job, task, attempt)

    def change(self, job: JobId, task: int, attempt: int, tier: Tier) -> None:
        """One that waits for what was saved elsewhere begins in the other tier."""
        key = (job, task, attempt)
        if key in self._bringing:
            assignment, bringing = self._bringing[key]
            self._bringing[key] = structs.replace(assignment, tier=tier), bringing
        else:
            super().change(job, task, attempt, tier)

    def _begin(self, report: Callable[[Report], None], files: Files) -> None:
        """What every start begins with.

        Raises:
            EngineError: its folder cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self._report = report
        self._files = files
        try:
            (self._root / OUTPUT_FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._root.chmod(0o700)
        except OSError as error:
            raise EngineError(f"the folder {self._root} cannot be used: {error}") from error

    def _open_up(self) -> None:
        """What every start ends with: reports begin, and nodes are listened to."""
        self._listening = self._loop.create_task(self._listen())
        early, self._early = self._early or [], None
        for told in early:
            self._loop.call_soon(self._tell, told)

    async def leave(self, name: str) -> None:
        """End its agent; members of its gangs on other nodes are killed, and nothing is reported of them."""
        node = self._nodes.pop(name, None)
        self._owed.pop(name, None)
        if node is not None:
            self._drop(node)
            self._hang_up(node)
            await node.stop()

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """Read the file; of a running attempt, ask its node."""
        try:
            return self._written.read(name, offset, size)
        except FileNotFoundError:
            held = self._attempts.get(attempt_of(name) or (-1, -1, -1))
            if held is None:
                raise NoSuchOutput(f"{name} is not kept any more") from None
        node = self._remote(held.parts[_rank_of(name)] if isinstance(held, Gang) else held)
        if node.shares:
            return b""  # it has written nothing yet
        try:
            return (await self._ask(node, Store.OUTPUT, _short(name), offset, min(size, PIECE_MAX))).data
        except FileNotFoundError:
            return b""

    def locate(self, name: str) -> Path | None:
        """The file, once it has been fetched."""
        path = self._written.locate(name)
        return path if path is not None and attempt_of(name) not in self._attempts else None

    def forget(self, job: JobId, task: int | None = None) -> None:
        """Each node removes what was saved there, if anything may have been; one that is lost, when it is back."""
        if job not in self._saving:  # as nearly all: nothing is asked of hundreds of nodes
            if task is None and self._saved.has(job):  # of a node that shares this folder and was lost
                self._do(asyncio.to_thread(self._saved.forget, job))
            return
        if task is None:
            self._saving.discard(job)
        self._do(asyncio.to_thread(self._saved.forget, job, task))
        name = str(job) if task is None else f"{job}/{task}"
        for node in self._nodes.values():
            if node.up and node.shares:
                continue
            if node.up:
                node.send(frame(Discard(Store.CHECKPOINT, [name])))
            elif task is None:
                self._owed.setdefault(node.spec.name, []).append(name)

    async def stop(self) -> None:
        """End every node with all its processes."""
        self._early = []
        tasks = [*self._tasks, *((self._listening,) if self._listening else ())]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._listening = None
        await asyncio.gather(*(node.stop() for node in self._nodes.values()))
        self._nodes.clear()
        self._attempts.clear()
        self._bringing.clear()
        self._pulls.clear()

    # Called by nodes

    def on_lost(self, node: AgentNode, detail: str) -> None:
        """What was asked of it is not answered any more."""
        self._hang_up(node)
        super().on_lost(node, detail)
        self._pulls = {which: pull for which, pull in self._pulls.items() if which[0] in self._attempts}

    def on_ended(self, node: AgentNode, message: MemberEnded) -> None:
        """A member has ended: what it wrote and cannot come with its ending is fetched first."""
        key, remote = (message.job, message.task, message.attempt), self._remote(node)
        pull = self._pulls.get((key, message.rank))
        if key in self._attempts and (_needs_fetching(remote, message) or pull is not None):
            self._do(self._fetch_first(remote, message))
        else:
            super().on_ended(node, message)

    def on_saved(self, node: AgentNode, message: MemberSaved) -> None:
        """What a member has saved is fetched, so that it survives the node."""
        key = (message.job, message.task, message.attempt)
        if key in self._attempts and not self._remote(node).shares:
            pull = self._pulls.setdefault((key, message.rank), _Pull())
            pull.is_due = True
            if not pull.is_running and self._loop.time() >= pull.not_before:
                self._do(self._pull(self._remote(node), key, message.rank, pull))
        super().on_saved(node, message)

    def on_wanted(self, node: AgentNode, name: str) -> None:
        """A run on the node waits for this file."""
        self._do(self._provide(self._remote(node), name))

    def on_answer(self, node: AgentNode, answer: ReadPart | CheckpointTaken) -> None:
        """The answer to a question."""
        _, awaited = self._asked.pop(answer.number, (None, None))
        if awaited is not None and not awaited.done():
            awaited.set_result(answer)

    # Internal

    def _adopt(self, welcomes: Mapping[RemoteNode, Welcome]) -> Found:
        """What has ended and is still to be fetched counts as running until it is here."""
        later: list[tuple[RemoteNode, MemberEnded]] = []
        sorted_out: dict[RemoteNode, Welcome] = {}
        for node, welcome in welcomes.items():
            fetched = [one for one in welcome.ended if _needs_fetching(node, one)]
            later += ((node, one) for one in fetched)
            standing = [
                Standing(*(one.job, one.task, one.attempt, one.rank, one.width), True, True, False, Tier(0), False)
                for one in fetched
            ]
            ended = [one for one in welcome.ended if not _needs_fetching(node, one)]
            sorted_out[node] = structs.replace(welcome, standing=[*welcome.standing, *standing], ended=ended)
        saved = self._saved.jobs()
        self._saving.update(saved)
        found = structs.replace(super()._adopt(sorted_out), saved=saved)
        for node, one in later:
            self._loop.call_soon(self.on_ended, node, one)
        return found

    def _tell_owed(self, node: RemoteNode) -> None:
        """Let a node that is back remove what is not needed any more since it was lost."""
        if names := self._owed.pop(node.spec.name, None):
            node.send(frame(Discard(Store.CHECKPOINT, names)))

    def _remote(self, node: AgentNode) -> RemoteNode:
        assert isinstance(node, RemoteNode)
        return node

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a transfer failed", exc_info=error)

    def _hang_up(self, node: AgentNode) -> None:
        """Nothing that was asked of this node will be answered."""
        for number, (asked, answer) in tuple(self._asked.items()):
            if asked is node:
                del self._asked[number]
                if not answer.done():
                    answer.set_exception(EngineError(f"node {node.spec.name!r} is gone"))

    async def _answer(self, node: RemoteNode, number: int, question: Frame) -> Any:
        """What a node answers to a question with this number.

        Raises:
            EngineError: the node is gone, or does not answer.
        """
        if not node.up:
            raise EngineError(f"node {node.spec.name!r} is gone")
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._asked[number] = node, answer
        node.send(frame(question))
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                return await answer
        except TimeoutError:
            raise EngineError(f"node {node.spec.name!r} does not answer") from None
        finally:
            self._asked.pop(number, None)

    async def _ask(self, node: RemoteNode, store: Store, name: str, offset: int, size: int = PIECE_MAX) -> ReadPart:
        """A part of a file of a node.

        Raises:
            FileNotFoundError: there is no such file.
            EngineError: the node is gone, or does not answer.
        """
        number = next(self._numbers)
        part: ReadPart = await self._answer(node, number, Read(number, store, name, offset, size))
        if part.detail:
            raise FileNotFoundError(part.detail)
        return part

    async def _parts(self, node: RemoteNode, store: Store, name: str) -> AsyncIterator[bytes]:
        """A whole file of a node."""
        offset = 0
        while data := (await self._ask(node, store, name, offset)).data:
            yield data
            offset += len(data)

    async def _archive(self, node: RemoteNode, name: str) -> bytes:
        """A checkpoint of a node.

        Raises:
            Damaged: other bytes have arrived than the node has, each time.
            FileNotFoundError: there is none.
            EngineError: the node is gone, or does not answer.
        """
        for _ in range(TRIES):
            packed, digest = bytearray(), hashlib.sha256()
            while (part := await self._ask(node, Store.CHECKPOINT, name, len(packed))).data:
                packed += part.data
                digest.update(part.data)
            if digest.hexdigest() == part.sha256:
                return bytes(packed)
        raise Damaged(_differed(node))

    async def _pull(self, node: RemoteNode, key: AttemptKey, rank: int, pull: _Pull) -> None:
        """Fetch what a member has saved, and keep it here."""
        job, task, attempt = key
        async with pull.lock:
            if not pull.is_due:
                return
            pull.is_running, pull.is_due = True, False
            began = self._loop.time()
            try:
                async with self._packing.setdefault(node.spec.name, asyncio.Lock()):
                    packed = await self._archive(node, f"{job}/{task}/{rank}.{attempt}")
                await asyncio.to_thread(self._saved.put, job, task, rank, attempt, packed)
            except Damaged as error:
                if not pull.is_told:
                    pull.is_told = True
                    self._cannot_bring(key, f"what it has saved cannot be fetched: {error}")
            except (OSError, EngineError) as error:  # it is there, on its node, and may be fetched the next time
                log.info("what job %d, task %d has saved is not fetched: %s", job, task, error)
            finally:
                pull.is_running = False
                now = self._loop.time()
                pull.not_before = now + _SHARE * (now - began)

    def _cannot_bring(self, key: AttemptKey, why: str) -> None:
        """A checkpoint stays where it is: the next attempt continues from an earlier one, or begins anew."""
        self._tell(Noticed("checkpoint_unreadable", f"job {key[0]}, task {key[1]}", why))

    def _packed_for(self, assignment: Assignment) -> list[tuple[RemoteNode, str, Path]]:
        """What earlier attempts saved and is not where its node looks: for which node, its name, and where it is."""
        job, task, attempt = assignment.key
        found = []
        for rank, member in enumerate(assignment.members):
            node, saved = self._nodes.get(member.node), self._saved.before(job, task, rank, attempt)
            if node is not None and node.up and saved is not None and not (node.shares and saved[1].is_dir()):
                found.append((node, f"{job}/{task}/{rank}.{saved[0]}", saved[1]))
        return found

    async def _bring_and_launch(self, key: AttemptKey, packed: list[tuple[RemoteNode, str, Path]]) -> None:
        try:
            for node, name, path in packed:
                if node.shares:
                    await asyncio.to_thread(self._saved.lay_out, path)
                else:
                    await self._bring(node, name, path)
        except (OSError, ValueError, Damaged) as error:
            self._cannot_bring(key, f"what it had saved cannot be brought to node {node.spec.name!r}: {error}")
        except EngineError as error:
            log.info("what was saved of task %d of job %d is not brought: %s", key[1], key[0], error)
        assignment, _ = self._bringing.pop(key)
        super().launch(assignment)

    async def _bring(self, node: RemoteNode, name: str, path: Path) -> None:
        """Send a checkpoint to a node.

        Raises:
            Damaged: other bytes have arrived than were sent, each time.
            OSError: it cannot be read here, or cannot be unpacked there.
            EngineError: the node is gone, or does not answer.
        """
        packed, sha256 = await asyncio.to_thread(self._packed_and_hashed, path)
        for _ in range(TRIES):
            number = next(self._numbers)
            for at in range(0, len(packed), PIECE_MAX):
                piece = FilePiece(name, packed[at : at + PIECE_MAX], False, store=Store.CHECKPOINT, number=number)
                node.send(frame(piece))
                await node.way.drained()
            end = FilePiece(name, b"", True, store=Store.CHECKPOINT, sha256=sha256, number=number)
            taken: CheckpointTaken = await self._answer(node, number, end)
            if not taken.is_damaged:
                break
        else:
            raise Damaged(_differed(node))
        if taken.detail:
            raise OSError(taken.detail)

    def _packed_and_hashed(self, path: Path) -> tuple[bytes, str]:
        packed = self._saved.packed(path)
        return packed, hashlib.sha256(packed).hexdigest()

    def _stop_bringing(self, key: AttemptKey) -> bool:
        """End an attempt that waits for what was saved elsewhere; returns whether it did."""
        if key not in self._bringing:
            return False
        self._bringing.pop(key)[1].cancel()
        self._loop.call_soon(self._tell, Ended(*key, Ending(Outcome.KILLED)))
        return True

    async def _provide(self, node: RemoteNode, name: str) -> None:
        """Send a file of the server to a node."""
        offset = 0
        try:
            while data := await self._files.read(name, offset, PIECE_MAX):
                node.send(frame(FilePiece(name, data, False)))
                offset += len(data)
                await node.way.drained()
                if not node.up:
                    return
            node.send(frame(FilePiece(name, b"", True)))
        except HeadwayError as error:
            node.send(frame(FilePiece(name, b"", True, str(error) or type(error).__name__)))

    async def _fetch_first(self, node: RemoteNode, message: MemberEnded) -> None:
        """Bring here what a member wrote, then report its end. If its node is lost meanwhile, so is the attempt."""
        key = (message.job, message.task, message.attempt)
        try:
            whole = await self._fetched_of(node, key, message)
        except Exception as error:  # whatever a node sends affects that node at most
            if not isinstance(error, EngineError):
                log.exception("node %s: what an attempt wrote cannot be fetched", node.spec.name)
            if node.up:
                node.give_up(f"what an attempt wrote cannot be fetched: {error}")
            return
        if key in self._attempts:
            super().on_ended(node, whole)

    async def _fetched_of(self, node: RemoteNode, key: AttemptKey, message: MemberEnded) -> MemberEnded:
        """An end, with what the member saved and wrote here."""
        pull = self._pulls.pop((key, message.rank), None)
        if pull is not None and decode_ending(message.ending).outcome is not Outcome.SUCCEEDED:
            await self._pull(node, key, message.rank, pull)
        stdout = await self._fetched(node, key, message.stdout)
        stderr = await self._fetched(node, key, message.stderr)
        ended = structs.replace(message, stdout=stdout, stderr=stderr)
        for name in named(decode_ending(message.ending).outputs.values()):
            try:
                await self._put(node, name)
            except EngineError:
                raise
            except (HeadwayError, FileNotFoundError) as error:
                why = f"outputs cannot be kept: {error}"
                refused = Ending(Outcome.REFUSED, detail=why, outside=isinstance(error, NoRoom))
                return structs.replace(ended, ending=Raw(encode(refused)), result=None)
        return ended

    async def _fetched(self, node: RemoteNode, key: AttemptKey, output: Output | None) -> Output | None:
        """An output whose file is here; without a name if it cannot be kept.

        Raises:
            EngineError: the node is gone, or names what is of another attempt.
        """
        if output is None or not output.name:
            return output
        path = self._written.locate(output.name)
        if path is None or attempt_of(output.name) != key:
            raise EngineError(f"its agent says that an attempt wrote {output.name!r}")
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if not (path.exists() and await asyncio.to_thread(_has_digest, path, output.sha256)):
                await self._copy(node, output, draft)
                draft.replace(path)
        except OSError as error:
            log.warning("output %s of node %s is not kept: %s", output.name, node.spec.name, error)
            draft.unlink(missing_ok=True)
            lost = why_lost(error, "the server")
            return structs.replace(output, name="", sha256="", cut=output.size - len(output.tail), lost=lost)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        node.send(frame(Discard(Store.OUTPUT, [_short(output.name)])))
        return structs.replace(output, name=str(path))

    async def _copy(self, node: RemoteNode, output: Output, draft: Path) -> None:
        """Write here what an attempt wrote on a node.

        Raises:
            OSError: it is not there, cannot be written here, or other bytes have arrived than it wrote, each time.
            EngineError: the node is gone, or does not answer.
        """
        for _ in range(TRIES):
            digest = hashlib.sha256()
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                async for data in self._parts(node, Store.OUTPUT, _short(output.name)):
                    digest.update(data)
                    file.write(data)
            if digest.hexdigest() == output.sha256:
                return
        raise OSError(_differed(node))

    async def _put(self, node: RemoteNode, name: str) -> None:
        """Give the server an output that it shall keep.

        Raises:
            Damaged: other bytes have arrived than the node has, each time.
            HeadwayError: the server cannot keep it.
            FileNotFoundError: it is not there.
            EngineError: the node is gone, or does not answer.
        """
        for _ in range(TRIES):
            try:
                await self._files.put(name, self._parts(node, Store.UPLOAD, name))
            except InvalidInput:
                continue
            return
        raise Damaged(_differed(node))


def _differed(node: RemoteNode) -> str:
    """What is said of bytes with another SHA-256 than they should have."""
    return f"its bytes on node {node.spec.name!r}, or on their way, were changed ({TRIES} tries)"


def _has_digest(path: Path, sha256: str) -> bool:
    """Whether a file has these bytes: it was fetched before the server was killed, which its node need not know."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _needs_fetching(node: RemoteNode, message: MemberEnded) -> bool:
    """Whether a member wrote what neither comes with its ending nor is here already."""
    if node.shares:
        return False
    if any(output is not None and output.name for output in (message.stdout, message.stderr)):
        return True
    outputs = decode_ending(message.ending).outputs
    return bool(outputs) and bool(named(outputs.values()))


def _short(name: str) -> str:
    """`JOB/FILE` of the path of an output."""
    return "/".join(name.rsplit("/", 2)[-2:])


def _rank_of(name: str) -> int:
    """The rank of the member of a gang whose output has this path."""
    return int(name.rpartition("/")[2].split(".")[2])
