"""How the jobs of an attempt come to Slurm: what their runners are told, then sbatch; both again while they fail."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

from headway.engines.base import Assignment, Report, Stalled
from headway.engines.local.driver.environment import of_this_process
from headway.engines.local.shared.terms import NO_ROOM, ROOM_SECONDS
from headway.engines.slurm.answers import SlurmRefused, SlurmUnavailable
from headway.engines.slurm.attempt import Attempt
from headway.engines.slurm.calling import called
from headway.engines.slurm.commands import NO_MORE, SlurmCommands
from headway.engines.slurm.folder import SlurmFolder
from headway.engines.slurm.jobs import BUNDLING, SlurmJob
from headway.engines.slurm.parsing import Partition, SlurmNode
from headway.engines.slurm.settings import SlurmSettings

log = logging.getLogger(__name__)

SUBMIT_AGAIN_SECONDS: Final = (0.5, 10.0)
"""The first and the longest pause before something is submitted or cancelled again."""

_SUBMITTERS: Final = 4
_ROOM_AGAIN_SECONDS: Final = 0.5
"""The pause before something is written again to a full disk."""


class SubmissionOwner(Protocol):
    """The engine whose attempts are submitted."""

    def tell(self, report: Report) -> None:
        """Report something to the driver."""

    async def aside(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Do something in a thread that may wait for a network file system."""


class SlurmSubmission:
    """Gives attempts to Slurm, some at once. What has to be tried again keeps nothing else waiting.

    Attributes:
        partition: as Slurm described it.
    """

    def __init__(
        self, folder: SlurmFolder, settings: SlurmSettings, commands: SlurmCommands, owner: SubmissionOwner
    ) -> None:
        self.partition = Partition(settings.partition, None)
        self._folder = folder
        self._settings = settings
        self._commands = commands
        self._owner = owner
        self._free = asyncio.Semaphore(_SUBMITTERS)

    async def bundle(self) -> None:
        """Keep the modules of runners in one file; without it, they import one by one."""
        if self._settings.python != sys.executable:
            return
        words = ("-P", "-S", "-c", BUNDLING, str(self._folder.bundle))
        environment = of_this_process(self._settings.pass_env)
        try:
            done = await called(sys.executable, words, environment, self._settings.command_limit)
            failed = (done.complained.strip() or f"status {done.code}") if done.code else ""
        except OSError as error:
            failed = str(error)
        if failed:
            log.warning("runners import their modules one by one: %s", failed)

    async def submit(
        self, attempt: Attempt, assignment: Assignment, seen: Mapping[str, SlurmNode], after: int = 0
    ) -> None:
        """Submit the jobs of all parts that are not cancelled meanwhile.

        Args:
            seen: the nodes, as Slurm described them last.
            after: the job after whose end they may begin, whatever its end is; 0: at once.

        Raises:
            OSError: what the runners are told cannot be written.
            EngineError: the ground of its account cannot be used.
            SlurmRefused: Slurm does not want it.
        """
        jobs = [
            SlurmJob(
                self._folder,
                self._settings,
                self.partition,
                seen.get(part.node),
                attempt,
                part,
                assignment,
                after,
            )
            for part in attempt.parts
        ]
        for part in attempt.parts:
            part.submitting = True
        try:
            for job in jobs:
                await self._give(job)
            for job in jobs:
                await self._submit(job)
        finally:
            for part in attempt.parts:
                part.submitting = False

    async def _give(self, job: SlurmJob) -> None:
        """Write what the runner of a part is told; while the disk of the folder is full, wait for room.

        Raises:
            OSError: it cannot be written, or there was no room for `ROOM_SECONDS`.
        """
        clock, attempt, part = asyncio.get_running_loop().time, job.attempt, job.part
        until, told = clock() + ROOM_SECONDS, False
        while not part.cancelled:
            try:
                async with self._free:
                    await self._owner.aside(self._folder.give, job.order(), attempt.account)
                break
            except OSError as error:
                if error.errno not in NO_ROOM or clock() >= until:
                    raise
                if not told:
                    self._owner.tell(Stalled(*attempt.key, f"{self._folder.root} cannot be written to: {error}"))
                told = True
            await asyncio.sleep(_ROOM_AGAIN_SECONDS)
        if told and not part.cancelled:
            self._owner.tell(Stalled(*attempt.key))

    async def _submit(self, job: SlurmJob) -> None:
        """Give a job to Slurm; while that does not answer, try again.

        A controller that was killed forgets its last jobs, and gives their numbers to others. So Slurm may refuse a job
        because of the one after which it is to begin, which may even have its own number. It need not wait then.

        Raises:
            SlurmRefused: Slurm does not want it.
        """
        attempt, part, words = job.attempt, job.part, job.words()
        variables = NO_MORE if attempt.account is None else attempt.account.environment
        pause = SUBMIT_AGAIN_SECONDS[0]
        while not part.cancelled:
            try:
                async with self._free:
                    if not part.cancelled:
                        part.job = await self._commands.submit(*words, environment=variables)
                return
            except SlurmRefused:
                if not job.after:
                    raise
                job = replace(job, after=0)
                words = job.words()
                continue
            except SlurmUnavailable as error:
                log.warning("job %d, task %d, attempt %d is not submitted yet: %s", *attempt.key, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, SUBMIT_AGAIN_SECONDS[1])
            with suppress(SlurmUnavailable, SlurmRefused):  # perhaps it was accepted, and only the answer was lost
                queue = await self._commands.queue(self._folder.identity)
                if mine := queue.get((attempt.key, part.number)):
                    part.job = mine[0].job
                    return
