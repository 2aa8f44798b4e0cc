"""The engine for a Slurm cluster: each attempt is a job of Slurm on the node that the driver named.

    driver --sbatch, scancel--> Slurm --> job on a node: runner (the agent of `engines.local`) -- commands, functions
       |                                      |
       +---------- the shared folder ---------+        and a datagram: there is something to read

What a runner is told and what it tells are files of a folder that server and nodes share (`folder`), so nothing depends
on a connection. A datagram says that there is something to read. If it is lost, the engine sees it when it looks by
itself: `squeue` lists all its jobs in one call, after longer and longer pauses.

An attempt on several nodes has a job on each (its parts), because of a job with several nodes Slurm alone chooses how
many CPUs of each it gets. Their runners meet before they begin.

Who knows what:
- Whether a member ended, how, and what it wrote: its runner.
- Whether a job waits, runs or has ended, and whether Slurm ended it (limit, preemption, failure of a node): Slurm. So
  members that failed are not reported before Slurm has said how their job ended.
- Which slots are free: this engine (`places`). Slurm is told how many CPUs a job needs, not which.

The name of a job has the identity of the folder, and the numbers of attempt and part. So jobs that a dead server left
behind are found: those whose attempt is in the folder are taken over, the others are cancelled. What a lost node may
still run finds its folder gone, and ends.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from headway.engines.base import (
    BEHIND_SECONDS,
    Assignment,
    AttemptKey,
    Ended,
    Ending,
    Files,
    Found,
    Report,
    Saved,
    Started,
    TierRefused,
)
from headway.engines.kept_out import KeptOut
from headway.engines.local.driver.gang import end_of
from headway.engines.local.driver.written import OutputsInFiles, Written, attempt_of
from headway.engines.local.shared import checkpoints
from headway.engines.local.shared.accounts import account_of, check_root
from headway.engines.local.shared.output import SUFFIXES, file_of
from headway.engines.local.shared.terms import NO_ROOM
from headway.engines.slurm.adoption import left_behind
from headway.engines.slurm.answers import SlurmRefused, SlurmUnavailable
from headway.engines.slurm.attempt import FORGOTTEN, UNFINISHED, Attempt, NodePart, Remains, untold
from headway.engines.slurm.carrying import Carrier
from headway.engines.slurm.commands import SlurmCommands
from headway.engines.slurm.folder import SlurmFolder
from headway.engines.slurm.hearing import fresh, hear
from headway.engines.slurm.nodes import NodesInService
from headway.engines.slurm.parsing import Queued, SlurmJobKey
from headway.engines.slurm.places import SlotQueues
from headway.engines.slurm.settings import SlurmSettings
from headway.engines.slurm.submission import SUBMIT_AGAIN_SECONDS, SlurmSubmission
from headway.engines.slurm.written import Seat, WrittenAttempt
from headway.errors import EngineError, HeadwayError, InvalidInput, NameTaken, NoRoom, NoSuchOutput
from headway.model.job import JobId
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.tier import Tier

log = logging.getLogger(__name__)

T = TypeVar("T")

_PAUSES: Final = (0.1, 0.5)
"""The first pause between two looks, and the greatest after one of Slurm's jobs has ended or is to end."""

_LINGER_SECONDS: Final = 5.0
"""A job that has nothing to do any more is cancelled when it is still there after so long."""

_JOIN_SECONDS: Final = 5.0
"""So long a node that is to join may take nothing new: after it was down, Slurm waits for its answer."""

_FIND_SECONDS: Final = 0.02
"""Between two lots of nodes that are reported."""

_NEWS_SECONDS: Final = 2.0
"""News of what was seen by looking may be so long on their way."""

_LEAVE_SECONDS: Final = 40.0
"""The longest wait for the end of jobs that were cancelled. Slurm kills after 30 seconds, as a rule."""


@dataclass(slots=True)
class _Grave:
    """A job that has nothing to do any more, or that Slurm was told to end, and that has not left its queue yet."""

    nodes: frozenset[str]
    since: float


class SlurmEngine(OutputsInFiles):
    """Runs attempts as jobs of Slurm. See `headway.engines.base.Engine` for its duties.

    Args:
        folder: on a file system that this machine and the nodes share; made if it does not exist. One server at a time.
        settings: see there.

    Raises:
        HeadwayError: jobs are to run as their users, and this process cannot submit them for others.
    """

    def __init__(self, folder: Path, settings: SlurmSettings) -> None:
        if settings.has_accounts:
            check_root()
        self._folder = SlurmFolder(folder.absolute(), accounts=settings.has_accounts)
        self._settings = settings
        self._commands = SlurmCommands(settings)
        super().__init__(Written(self._folder.output))
        self._kept_out = KeptOut(self._folder.root)
        self._nodes = NodesInService(settings, self, self._kept_out)
        self._places = SlotQueues()
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._assignments: dict[AttemptKey, Assignment] = {}
        self._saving: set[JobId] = set()
        self._graves: dict[SlurmJobKey, _Grave] = {}
        self._to_cancel: set[int] = set()
        self._cancelling: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._submission = SlurmSubmission(self._folder, settings, self._commands, self)
        self._reading = asyncio.Lock()
        self._soon = asyncio.Event()
        self._pause = settings.poll
        self._silence = ""
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="headway-slurm")
        self._carriers = ThreadPoolExecutor(2, thread_name_prefix="headway-slurm-files")
        self._carrier: Carrier
        self._early: list[Report] | None = []
        self._door: asyncio.DatagramTransport | None = None
        self._place = ""
        self._is_heard = True
        self._report: Callable[[Report], None]
        self._loop: asyncio.AbstractEventLoop

    @property
    def silence(self) -> str:
        """Why Slurm does not answer now; empty: it does."""
        return self._silence

    @property
    def kept_out(self) -> frozenset[str]:
        """The nodes that were told to leave, also those that were let in since."""
        return self._kept_out.known

    @property
    def up(self) -> frozenset[str]:
        """The nodes that can be launched on."""
        return self._nodes.up

    # Called by the driver

    async def start(self, nodes: Iterable[NodeSpec], report: Callable[[Report], None], files: Files) -> Found:
        """Look which nodes are there, and take over what an earlier server left."""
        self._loop = asyncio.get_running_loop()
        self._report = report
        self._carrier = Carrier(self._folder, files, self._carried)
        self._early = []
        await self._commands.check()
        self._folder.open()
        nodes = tuple(nodes)
        self._kept_out.load(spec.name for spec in nodes)
        try:
            self._submission.partition = await self._commands.partition()
            await self._commands.try_options()
            self._nodes.seen = await self._commands.nodes()
            self._nodes.begin(nodes)
            await self._open_door()
            found = await self._adopt()
        except SlurmUnavailable as error:
            await self._close()
            raise _unanswered(error) from error
        except OSError as error:
            await self._close()
            raise EngineError(f"the folder {self._folder.root} cannot be used: {error}") from error
        except BaseException:
            await self._close()
            raise
        self._do(self._look_forever())
        self._do(self._submission.bundle())
        early, self._early = self._early, None
        for told in early:
            self._loop.call_soon(self.tell, told)
        return found

    def check_fit(self, node: NodeSpec) -> None:
        """By the CPUs that Slurm has for it."""
        self._nodes.check_fit(node)

    async def join(self, node: NodeSpec) -> None:
        """Take a node of the partition into service."""
        if node.name in self._nodes.by_name:
            raise NameTaken(node.name, "a node of this engine")
        until = self._loop.time() + _JOIN_SECONDS
        self._nodes.joining.add(node.name)
        try:
            while True:
                try:
                    self._nodes.seen = await self._commands.nodes()
                except SlurmUnavailable as error:
                    raise _unanswered(error) from error
                if self._loop.time() >= until or not self._nodes.may_open(node.name):
                    break
                await asyncio.sleep(_PAUSES[1])
            self._nodes.add(node)
        finally:
            self._nodes.joining.discard(node.name)

    async def leave(self, name: str) -> None:
        """Cancel what runs there, with all parts on other nodes, and wait until it is gone."""
        if not self._nodes.remove(name):
            return
        self.drop_all(name)
        until = self._loop.time() + _LEAVE_SECONDS
        while any(name in grave.nodes for grave in self._graves.values()):
            if self._loop.time() > until:
                log.warning("jobs on node %s do not end; their runners see that nobody wants them any more", name)
                break
            self._look_soon()
            await asyncio.sleep(_PAUSES[0])

    async def let_in(self, name: str, slots: int | None = None) -> bool:
        """Find a node of the partition again that was told to leave."""
        was_out = self._nodes.let_in(name, slots)
        self._look_soon()
        return was_out

    def resize(self, name: str, slots: int, *, at_once: bool = False) -> None:
        """Launch on other slots from now on; Slurm need not know."""
        node = self._nodes.by_name.get(name)
        if node is None:
            return
        node.spec = replace(node.spec, slots=slots)
        if at_once:
            for attempt in tuple(self._attempts.values()):
                if any(place == name and slot >= slots for place, slot in attempt.places):
                    self.kill(*attempt.key)

    def launch(self, assignment: Assignment) -> None:
        """Submit a job for each node of the attempt, now or when its slots are free."""
        key, members = assignment.key, assignment.members
        numbers = {node: number for number, node in enumerate(dict.fromkeys(member.node for member in members))}
        seats = tuple(Seat(member.node, member.slots, numbers[member.node]) for member in members)
        nodes = [self._nodes.by_name.get(name) for name in numbers]
        starts = assignment.fetches or any(node is not None and node.spec.reports_start for node in nodes)
        attempt = self._attempts[key] = Attempt(WrittenAttempt(*key, seats, starts))
        if not all(node is not None and node.up for node in nodes):
            self._end_unbegun(attempt, Ending(Outcome.LOST, detail="its node was lost before it started"))
        elif any(slot >= self._nodes.by_name[node].spec.slots for node, slot in attempt.places):
            self._end_unbegun(attempt, Ending(Outcome.LOST, detail="its node does not have this slot any more"))
        elif refused := self._know_account(attempt, assignment):
            self._end_unbegun(attempt, Ending(Outcome.REFUSED, detail=refused))
        else:
            self._assignments[key] = assignment
            if self._places.ask(key, attempt.places):
                self._begin(attempt)
            elif (holder := self._places.holder(attempt.places[0])) is not None:
                self._line_up(self._attempts[holder])

    def _know_account(self, attempt: Attempt, assignment: Assignment) -> str:
        """Find the account that an attempt runs as, if it names one; returns why it cannot run."""
        if not assignment.account and not self._settings.run_as_owner:
            return ""
        if not self._settings.has_accounts:
            return (
                f"to run it as {assignment.account!r}, the site needs a folder of its own: --slurm-folder, or `folder`"
            )
        try:
            attempt.account = account_of(assignment.account, "account", allow_root=self._settings.allow_root)
        except HeadwayError as error:
            return str(error)
        return ""

    def kill(self, job: JobId, task: int, attempt: int) -> None:
        """Let Slurm end its jobs."""
        held = self._attempts.get((job, task, attempt))
        if held is None or held.ended is not None:
            return
        self._withdraw(held)

    def _withdraw(self, attempt: Attempt, detail: str = "") -> None:
        """End an attempt as killed: at once if Slurm does not know it, else when that has ended it."""
        if not attempt.submitted:
            self._end_unbegun(attempt, Ending(Outcome.KILLED, detail=detail))
        else:
            self._cancel(attempt)
            self._loop.call_soon(self._judge, attempt)

    def change(self, job: JobId, task: int, attempt: int, tier: Tier) -> None:
        """There is no background."""
        held = self._attempts.get((job, task, attempt))
        if held is not None and held.ended is None and tier is not Tier.FOREGROUND:
            detail = "nodes of Slurm have no background place"
            self._loop.call_soon(self.tell, TierRefused(job, task, attempt, tier, detail))

    def suspend(self, job: JobId, task: int, attempt: int) -> None:
        """It cannot be asked to save: it is killed, and what it has saved is there for its next attempt."""
        self.kill(job, task, attempt)

    def show(self, job: JobId, task: int, attempt: int, rank: int | None, stream: str) -> str:
        """Everything is written to files at once."""
        held = self._attempts.get((job, task, attempt))
        if held is None or held.ended is not None:
            return ""
        return file_of(str(self._folder.output), job, task, attempt, rank, SUFFIXES[stream == "stderr"])

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """Read the file; what has written nothing yet has none."""
        try:
            return await self.aside(self._written.read, name, offset, size)
        except FileNotFoundError:
            held = self._attempts.get(key) if (key := attempt_of(name)) is not None else None
            if held is not None and held.ended is None:
                return b""
            raise NoSuchOutput(f"{name} is not kept any more") from None

    def acknowledge(self, job: JobId, task: int, attempt: int) -> None:
        """Remove what is in the folder of it."""
        held = self._attempts.pop((job, task, attempt), None)
        if held is not None:
            self._remove(held)

    def forget(self, job: JobId, task: int | None = None) -> None:
        """Remove what was saved; that of a task without known checkpoints goes with its job's."""
        if task is not None and job not in self._saving:
            return
        if task is None:
            self._saving.discard(job)
        for ground in self._folder.grounds():
            path = ground / "checkpoints" / str(job)
            self._later(checkpoints.remove, str(path if task is None else path / str(task)))

    async def stop(self) -> None:
        """Cancel all jobs, and wait until they are gone."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._early = []
        attempts = tuple(self._attempts.values())
        self._attempts.clear()
        for attempt in attempts:
            self._remove(attempt)
        if self._folder.is_open:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await self._clear()
            await self._close()

    # Called by its nodes and by what submits

    def tell(self, report: Report) -> None:
        """Report something, or keep it until the engine has started."""
        if self._early is None:
            self._report(report)
        else:
            self._early.append(report)

    async def aside(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Do something in a thread that may wait for a network file system."""
        return await self._loop.run_in_executor(self._pool, step, *arguments)

    async def _carried(self, step: Callable[..., T], *arguments: Any) -> T:
        """The same for files, which may be large or many: what is told of attempts does not wait for them."""
        return await self._loop.run_in_executor(self._carriers, step, *arguments)

    def drop_all(self, name: str) -> None:
        """Forget every attempt that has a part on a node, and end its other parts."""
        there = [one for one in self._attempts.values() if name in one.nodes and one.ended is None]
        for attempt in there:
            del self._attempts[attempt.key]
            self._cancel(attempt)
            self._remove(attempt)
        for attempt in there:
            self._give_up_places(attempt)

    # Attempts

    def _begin(self, attempt: Attempt, after: int = 0) -> None:
        """Submit it, unless a node takes nothing new just now; `after`: the job that has its slot until it ends."""
        known = self._nodes.by_name
        if not any(known[name].closed for name in attempt.nodes if name in known):
            attempt.submitted = True
            self._do(self._submit(attempt, self._assignments.pop(attempt.key), after))

    def _line_up(self, attempt: Attempt) -> None:
        """Give Slurm what comes next on the slots of an attempt: it starts it as soon as that one's job has ended.

        One for each slot. What waits for several slots, or behind that one, is kept here until it has its slots.
        """
        jobs = {part.node: part.job for part in attempt.parts}
        for key, (node, _) in self._places.next_after(attempt.key) if self._settings.read_ahead else ():
            if key in self._assignments and jobs[node]:
                self._begin(self._attempts[key], jobs[node])

    def _begin_kept_back(self) -> None:
        """Submit what waited for a node that takes new work again."""
        for key in [key for key in self._assignments if not self._places.waits(key)]:
            if (attempt := self._attempts.get(key)) is not None and attempt.ended is None:
                self._begin(attempt)

    async def _submit(self, attempt: Attempt, assignment: Assignment, after: int) -> None:
        """Give its jobs to Slurm, and see what became of it meanwhile."""
        try:
            await self._submission.submit(attempt, assignment, self._nodes.seen, after)
        except OSError as error:
            self._refuse(attempt, f"{self._folder.root} cannot be written to: {error}", outside=True)
        except EngineError as error:
            self._refuse(attempt, str(error), outside=True)
        except SlurmRefused as error:
            self._refuse(attempt, f"Slurm refuses it: {error}")
        if attempt.key not in self._attempts:  # dropped meanwhile, and its jobs may have come later
            self._cancel(attempt)
            self._remove(attempt)
        elif attempt.ended is None:
            if any(part.cancelled for part in attempt.parts):
                self._cancel(attempt)
            self._judge(attempt)
            self._line_up(attempt)
        self._pause = min(self._pause, 2 * _PAUSES[1])

    def _refuse(self, attempt: Attempt, detail: str, *, outside: bool = False) -> None:
        """It cannot be submitted, or cannot be given a file: end it, with the parts that were submitted."""
        self._cancel(attempt)
        if attempt.ended is None and attempt.key in self._attempts:
            self._end_unbegun(attempt, Ending(Outcome.REFUSED, detail=detail, outside=outside))

    def _end_unbegun(self, attempt: Attempt, ending: Ending) -> None:
        """An attempt ends of which nothing has run; reported with the next turn of the loop."""
        attempt.ended = _ended_alike(attempt, ending)
        self._assignments.pop(attempt.key, None)
        self._loop.call_soon(self._finish, attempt)

    def _is_early(self, attempt: Attempt) -> bool:
        """Whether Slurm may have begun it before the end of the one that had its slot was heard: first that one's."""
        return self._places.waits(attempt.key) and not attempt.parts[0].cancelled

    def _judge(self, attempt: Attempt) -> None:
        """Report the end of an attempt if all is known of it; end the other parts of a gang that has failed."""
        if attempt.ended is not None or self._attempts.get(attempt.key) is not attempt or self._is_early(attempt):
            return
        now, key = self._loop.time(), attempt.key
        silent = [part for part in attempt.parts if part.left and attempt.is_over(part, now)]
        if attempt.failed is not None or any(not part.cancelled for part in silent):
            self._cancel(attempt, but=attempt.failed)  # in the part of that member, its runner has ended the others
        remains = {
            part.number: Remains(self._folder.is_claimed(key, part.number), self._folder.said(key, part.number))
            for part in silent
        }
        if attempt.whole(now, self._submission.partition, remains):
            in_vain = [part for part in silent if attempt.is_in_vain(part, remains[part.number])]
            for part in attempt.parts:
                if part.left < len(part.ranks):
                    self._nodes.works(part.node, attempt.as_account)
            if attempt.given():
                self._do(self._collect(attempt))
            else:
                self._finish(attempt)
            for part in in_vain:
                said = untold(part, self._submission.partition, remains[part.number], attempt.as_account)
                self._nodes.in_vain(part.node, attempt.as_account, said.detail, now, self._working())

    async def _collect(self, attempt: Attempt) -> None:
        """Let the server have what its tasks give it, and report its end."""
        await self._take_in(attempt)
        self._finish(attempt)

    async def _take_in(self, attempt: Attempt) -> None:
        """Let the server have what the tasks of an attempt give it; if it cannot, the attempt was refused."""
        try:
            for number, names in attempt.given().items():
                await self._carrier.collect(attempt.key, number, names)
        except (HeadwayError, OSError) as error:
            outside = isinstance(error, NoRoom) or (isinstance(error, OSError) and error.errno in NO_ROOM)
            ending = Ending(Outcome.REFUSED, detail=f"outputs cannot be kept: {error}", outside=outside)
            attempt.ended = _ended_alike(attempt, ending)

    def _give_wanted(self, attempt: Attempt) -> None:
        """Give its tasks the files that they have asked for."""
        while attempt.wanted:
            self._do(self._give(attempt, *attempt.wanted.pop()))

    async def _give(self, attempt: Attempt, number: int, name: str) -> None:
        try:
            await self._carrier.give(attempt.key, number, name)
        except (HeadwayError, OSError) as error:
            if self._attempts.get(attempt.key) is attempt and attempt.ended is None:
                log.warning("job %d, task %d, attempt %d cannot be given a file: %s", *attempt.key, error)
                self._refuse(attempt, f"it cannot be given a file: {error}", outside=True)

    def _finish(self, attempt: Attempt) -> None:
        """Report an end, free the slots, and see to it that its jobs leave the queue."""
        if attempt.ended is None or self._attempts.get(attempt.key) is not attempt:
            return
        self._bury(attempt)
        self.tell(attempt.ended)
        self._give_up_places(attempt)

    def _give_up_places(self, attempt: Attempt) -> None:
        """Its slots are free; what waited for them begins, or is heard from now on if Slurm has begun it."""
        self._assignments.pop(attempt.key, None)
        before = dict.fromkeys(self._places.holder(place) for place in attempt.places)
        for key in self._places.leave(attempt.key):
            if (lucky := self._attempts.get(key)) is None or lucky.ended is not None:
                continue
            if not lucky.submitted:
                self._begin(lucky)
            else:
                self._do(self._on_told(lucky))
                self._line_up(lucky)
        for holder in [self._attempts[key] for key in before if key in self._attempts]:
            self._line_up(holder)  # it was the next one on a slot of that

    def _give_back(self) -> None:
        """Give back what waits for one slot by itself, behind an attempt that takes long."""
        for key, holder in self._places.behind():
            waiting, before = self._attempts.get(key), self._attempts.get(holder)
            if waiting is None or waiting.ended is not None or len(waiting.record.seats) > 1 or before is None:
                continue
            if before.started_at is not None and self._loop.time() - before.started_at >= BEHIND_SECONDS:
                self._withdraw(waiting, "it had not begun: what runs before it takes long")

    # Ends of jobs

    def _cancel(self, attempt: Attempt, but: int | None = None) -> None:
        """Let Slurm end those parts that have not ended by themselves; `but`: not that of this member."""
        for part in attempt.parts:
            if part.left and part.final is None and but not in part.ranks:
                part.cancelled = True
                if part.job and not part.told_slurm:
                    part.told_slurm = True
                    self._to_cancel.add(part.job)
        if self._to_cancel and (self._cancelling is None or self._cancelling.done()):
            self._cancelling = self._do(self._cancel_jobs())
        self._bury(attempt)

    async def _cancel_jobs(self) -> None:
        """Cancel jobs; while Slurm does not answer, try again."""
        pause = SUBMIT_AGAIN_SECONDS[0]
        while self._to_cancel:
            now, self._to_cancel = self._to_cancel, set()
            try:
                await self._commands.cancel(now)
                self._look_soon()
            except SlurmUnavailable as error:
                log.warning("jobs %s of Slurm are not cancelled yet: %s", sorted(now), error)
                self._to_cancel |= now
                await asyncio.sleep(pause)
                pause = min(2 * pause, SUBMIT_AGAIN_SECONDS[1])

    def _bury(self, attempt: Attempt) -> None:
        """Those of its jobs should leave the queue soon that nobody wants any more."""
        is_over = attempt.ended is not None or attempt.key not in self._attempts
        for part in attempt.parts:
            if part.job and part.final is None and (is_over or part.told_slurm):
                grave = _Grave(frozenset((part.node,)), self._loop.time())
                self._graves.setdefault(((attempt.key, part.number), part.job), grave)

    def _remove(self, attempt: Attempt) -> None:
        """Remove what is in the folder of an attempt."""
        numbers = tuple(part.number for part in attempt.parts)
        self._later(self._folder.remove, attempt.key, numbers)

    # Looking

    def _look_soon(self) -> None:
        """Something is expected to be seen in the queue."""
        self._pause = min(self._pause, _PAUSES[0])
        self._soon.set()

    async def _find(self) -> None:
        """Report nodes that are not known yet; many of them one lot after the other, so that others have their turn."""
        while self._nodes.find():
            await asyncio.sleep(_FIND_SECONDS)

    async def _look_forever(self) -> None:
        """Look at Slurm's queue and nodes, seldomer the longer nothing happens."""
        await self._find()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await self._soon.wait()
            if self._soon.is_set():
                self._soon.clear()
                await asyncio.sleep(_PAUSES[0] / 4)  # what else happens in this moment
            self._pause = min(2 * self._pause, self._settings.poll)
            try:
                await self._look()
                if self._silence:
                    log.info("Slurm answers again")
                self._silence = ""
            except (SlurmUnavailable, SlurmRefused) as error:
                if not self._silence:
                    log.warning("Slurm does not answer; what runs goes on: %s", error)
                self._silence = f"Slurm does not answer; what runs goes on: {error}"
                await self._read_all()
            except Exception:  # whatever went wrong, there is another look
                log.exception("the look at Slurm's queue failed")

    async def _look(self) -> None:
        """See what has become of all jobs and nodes.

        Raises:
            SlurmUnavailable, SlurmRefused: Slurm does not answer.
        """
        before = [(one, part) for one in self._attempts.values() if one.ended is None for part in one.parts if part.job]
        graves = set(self._graves)
        queue = await self._commands.queue(self._folder.identity)
        listed = {(part, queued.job): queued for part, some in queue.items() for queued in some}
        for gone in graves - listed.keys():
            self._graves.pop(gone, None)
        shown = [(one, part, queued) for one, part in before if (queued := one.job_of(part, queue)) is not None]
        for _, part, queued in shown:
            if queued.state in ("RUNNING", "SUSPENDED"):
                part.began = True
        for one, part, queued in shown:
            if (said := one.hear_reason(part, queued)) is not None:
                self.tell(said)
        await self._read_all()
        missing = [(one, part) for one, part in before if one.job_of(part, queue) is None]
        open_ = [(one, part) for one, part in missing if one.ended is None and part.final is None]
        asked = [(one, part) for one, part in open_ if part.left or one.is_asked_of(part)]
        ends = await self._ends_of(asked) if asked else []
        seen = await self._commands.nodes()
        haunted = frozenset(node for grave in self._graves.values() for node in grave.nodes)
        self._nodes.take(seen, self._working(), haunted, self._loop.time())
        await self._find()
        self._begin_kept_back()
        now = self._loop.time()
        for part, final in ends:  # not before the nodes: if one is lost, that stands for the ends there
            if final.state not in UNFINISHED:
                part.final, part.final_at = final, now
        self._cancel_lingering(listed)
        self._give_back()
        for attempt in tuple(self._attempts.values()):
            self._judge(attempt)
        parts = [(one, part) for one in self._attempts.values() if one.ended is None for part in one.parts]
        if any(part.final is not None or part.cancelled or one.is_asked_of(part) for one, part in parts):
            self._pause = min(self._pause, _PAUSES[1])  # something is expected

    def _working(self) -> frozenset[str]:
        """Nodes where something of ours has begun and not ended."""
        open_ = [one for one in self._attempts.values() if one.ended is None]
        return frozenset(part.node for one in open_ for part in one.parts if part.began and part.left)

    async def _ends_of(self, asked: list[tuple[Attempt, NodePart]]) -> list[tuple[NodePart, Queued]]:
        """How the jobs of parts ended that are no longer in the queue.

        Raises:
            SlurmUnavailable: Slurm does not answer.
        """
        answer = await self._commands.ended(self._folder.identity, [part.job for _, part in asked])
        return [
            (part, one.job_of(part, answer) or Queued(part.job, FORGOTTEN, "Slurm knows nothing of it any more"))
            for one, part in asked
        ]

    def _cancel_lingering(self, listed: dict[SlurmJobKey, Queued]) -> None:
        """Cancel again what should have left the queue; also jobs that belong to no attempt.

        A controller that was killed has forgotten what it was told in its last seconds.
        """
        now = self._loop.time()
        for key, grave in self._graves.items():
            if now - grave.since > _LINGER_SECONDS and key in listed and listed[key].state != "COMPLETING":
                grave.since = now
                self._to_cancel.add(listed[key].job)
        if self._to_cancel and (self._cancelling is None or self._cancelling.done()):
            self._cancelling = self._do(self._cancel_jobs())

    async def _read_all(self) -> None:
        """Read what has been told of all attempts."""
        for attempt in tuple(self._attempts.values()):
            if attempt.submitted and attempt.ended is None and not self._is_early(attempt):
                had = len(attempt.endings)
                await self._read(attempt)
                if len(attempt.endings) > had and not self._is_heard:
                    self._loop.call_later(_NEWS_SECONDS, self._miss_news)
                self._judge(attempt)

    async def _read(self, attempt: Attempt) -> None:
        """Read what has been told of an attempt, and report it."""
        async with self._reading:
            told = await self.aside(fresh, self._folder, attempt)
            for report in hear(attempt, told, self._loop.time()):
                if self._attempts.get(attempt.key) is attempt and attempt.ended is None:
                    if isinstance(report, Saved):
                        self._saving.add(report.job)
                    self.tell(report)
            self._give_wanted(attempt)

    async def _on_told(self, attempt: Attempt) -> None:
        """A runner has told something: read it at once, but not before the end of what had its slot."""
        if self._is_early(attempt):
            before = self._places.holder(attempt.places[0])
            if before is not None and not self._places.waits(before):
                await self._on_told(self._attempts[before])
            if self._is_early(attempt):
                self._look_soon()
                return
        await self._read(attempt)
        self._judge(attempt)
        if attempt.ended is None and any(attempt.is_asked_of(part) for part in attempt.parts):
            self._look_soon()

    # News

    async def _open_door(self) -> None:
        """Listen for news of attempts; without it, the engine looks by itself.

        Raises:
            InvalidInput: the address of the settings is unknown here.
        """
        if self._settings.address:
            await self.aside(_check_address, self._settings.address)
        try:
            host = self._settings.address or await self.aside(_address_towards, await self._commands.controller())
            self._door, _ = await self._loop.create_datagram_endpoint(lambda: _News(self), ("0.0.0.0", 0))
            port = self._door.get_extra_info("sockname")[1]
            await self.aside(self._folder.hang_up_plate, host, port)
            self._is_heard, self._place = False, f"{host}, UDP port {port}"
        except (OSError, SlurmRefused) as error:
            log.warning("there are no news of attempts, so their ends are seen later: %s", error)

    def _miss_news(self) -> None:
        """An end was seen by looking, some time ago. Say once if no news have come until now."""
        if not self._is_heard and self._door is not None:
            self._is_heard = True
            log.warning(
                "no news come from the nodes, so ends are reported up to %g s late. Can they reach %s? "
                "`address` of the site says where they find this machine.",
                self._settings.poll,
                self._place,
            )

    def on_news(self, words: list[str]) -> None:
        """A runner says that there is something to read."""
        if len(words) != 5 or words[0] != self._folder.word or not all(map(str.isdecimal, words[1:])):
            return
        self._is_heard = True
        job, task, number, _ = map(int, words[1:])
        attempt = self._attempts.get((job, task, number))
        if attempt is not None and attempt.ended is None:
            self._do(self._on_told(attempt))

    # Starting and stopping

    async def _adopt(self) -> Found:
        """Take over what an earlier server left; what is not known, or not whole, is cancelled.

        Raises:
            SlurmUnavailable, OSError: Slurm does not answer, the folder cannot be read.
        """
        now = self._loop.time()
        left = await left_behind(self._folder, self._commands, self, now)
        running, ended = [], []
        for attempt in left.whole:
            if not attempt.nodes <= self.up and not attempt.succeeded:
                left.broken.append(attempt)
                continue
            key = attempt.key
            self._attempts[key] = attempt
            if attempt.has_saved:
                self._saving.add(attempt.record.job)
            if whole := attempt.whole(now, self._submission.partition, {}):
                await self._take_in(attempt)
                ended.append(attempt.ended or whole)
                self._bury(attempt)
                continue
            self._give_wanted(attempt)
            running.append(key)
            self._places.ask(key, attempt.places)
            if attempt.started_at is not None and attempt.record.starts:
                self.tell(Started(*key))
        for attempt in left.broken:
            self._cancel(attempt)
            self._remove(attempt)
        for stray in left.strays:
            self._graves[stray] = _Grave(frozenset(self._nodes.by_name), now)
            self._to_cancel.add(stray[1])
        if self._to_cancel:
            await self._commands.cancel(self._to_cancel)
            self._to_cancel = set()
        self._sweep_fences(running)
        grounds = await self.aside(self._folder.grounds)
        saved = frozenset().union(*(checkpoints.jobs(str(ground / "checkpoints")) for ground in grounds))
        self._saving.update(saved)
        absent = frozenset(self._nodes.by_name) - self.up
        closed = frozenset(name for name, node in self._nodes.by_name.items() if node.closed)
        self._look_soon()
        return Found(frozenset(running), tuple(ended), saved, frozenset(), absent, closed)

    def _sweep_fences(self, running: list[AttemptKey]) -> None:
        """Remove fences of tasks that ended while no server could take them down."""
        for fence in (fence for ground in self._folder.grounds() for fence in (ground / "fences").iterdir()):
            if not any(fence.name.startswith(f"{job}.{task}.") for job, task, _ in running):
                fence.unlink(missing_ok=True)

    async def _clear(self) -> None:
        """Cancel every job of this engine, and wait until none is left."""
        while True:
            try:
                queue = await self._commands.queue(self._folder.identity)
                left = [queued for some in queue.values() for queued in some]
                if not left:
                    return
                if jobs := [queued.job for queued in left if queued.state != "COMPLETING"]:
                    await self._commands.cancel(jobs)
            except (SlurmUnavailable, SlurmRefused) as error:
                log.warning("jobs are not cancelled; their runners see that nobody wants them any more: %s", error)
                return
            await asyncio.sleep(_PAUSES[0])

    async def _close(self) -> None:
        """Let go of everything."""
        if self._door is not None:
            self._door.close()
            self._door = None
        await self._carried(lambda: None)  # what is to be removed is removed
        self._folder.close()
        self._nodes.clear()
        self._graves.clear()
        self._assignments.clear()
        self._places = SlotQueues()

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside everything else."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _later(self, step: Callable[..., object], *arguments: Any) -> None:
        """Remove something, without waiting for it."""
        try:
            self._loop.run_in_executor(self._carriers, step, *arguments)
        except RuntimeError as error:  # no thread for it
            log.warning("something stays in %s until the next start: %s", self._folder.root, error)


class _News(asyncio.DatagramProtocol):
    """Takes the datagrams of runners."""

    def __init__(self, engine: SlurmEngine) -> None:
        self._engine = engine

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._engine.on_news(data.decode("ascii", "replace").split())


def _ended_alike(attempt: Attempt, ending: Ending) -> Ended:
    """The end of an attempt whose members have all ended in one way."""
    width = len(attempt.record.seats)
    return Ended(*attempt.key, ending) if width == 1 else end_of(attempt.key, (ending,) * width, 0)


def _unanswered(error: SlurmUnavailable) -> EngineError:
    return EngineError(f"Slurm does not answer: {error}", "Is its controller running? `sinfo` shows it.")


def _check_address(address: str) -> None:
    """Check that an address can be resolved here.

    Raises:
        InvalidInput: it cannot.
    """
    try:
        socket.getaddrinfo(address, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        hint = f"{why}. Without it, the engine takes the address of this machine as seen from Slurm's controller."
        raise InvalidInput("address", address, "a name or an address of this machine", hint=hint) from None


def _address_towards(controller: str) -> str:
    """The address of this machine that others reach who reach Slurm's controller."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((controller or socket.gethostname(), 1))
        return str(probe.getsockname()[0])
    return socket.gethostname()
