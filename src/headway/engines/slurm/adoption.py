"""What an earlier server left: attempts in the shared folder, and jobs in Slurm. Both are needed to take one over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from headway.engines.base import AttemptKey
from headway.engines.slurm.attempt import FORGOTTEN, UNFINISHED, Attempt
from headway.engines.slurm.commands import SlurmCommands
from headway.engines.slurm.folder import SlurmFolder
from headway.engines.slurm.hearing import fresh, hear
from headway.engines.slurm.parsing import PartKey, Queued, SlurmJobKey, job_name
from headway.engines.slurm.written import WrittenAttempt


class AdoptionOwner(Protocol):
    """The engine that takes over."""

    async def aside(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Do something in a thread that may wait for a network file system."""


@dataclass(slots=True)
class Leftovers:
    """What is left.

    Attributes:
        whole: attempts that can be taken over, in the order in which their jobs were submitted: of two that have the
            same slot, the second one waits for the first.
        broken: those that cannot: a part of them has no job and has not told its end.
        strays: jobs that belong to no attempt.
    """

    whole: list[Attempt] = field(default_factory=list)
    broken: list[Attempt] = field(default_factory=list)
    strays: list[SlurmJobKey] = field(default_factory=list)


async def left_behind(folder: SlurmFolder, commands: SlurmCommands, owner: AdoptionOwner, now: float) -> Leftovers:
    """Find what is left. What of it was saved, and began, is known to the attempts.

    Raises:
        SlurmUnavailable, OSError: Slurm does not answer, the folder cannot be read.
    """
    identity = folder.identity
    by_key: dict[AttemptKey, list[WrittenAttempt]] = {}
    for record in await owner.aside(lambda: list(folder.given())):
        by_key.setdefault(record.key, []).append(record)
    attempts = {key: Attempt(some[0]) for key, some in by_key.items()}
    queue = await commands.queue(identity)
    for attempt in attempts.values():
        attempt.submitted = True
        for _ in hear(attempt, await owner.aside(fresh, folder, attempt), now):
            pass  # who takes it over tells that
    unclear = [
        (attempt.key, part.number)
        for attempt in attempts.values()
        for part in attempt.parts
        if (attempt.key, part.number) not in queue and (part.left or attempt.is_asked_of(part))
    ]
    if unclear:
        names = [job_name(identity, *one) for one in unclear]
        queue = {**await commands.named(identity, names), **queue}
    left = Leftovers()
    for key, attempt in attempts.items():
        is_whole = _know_jobs(attempt, queue, now) and len(by_key[key]) == len(attempt.parts)
        (left.whole if is_whole else left.broken).append(attempt)
    left.whole.sort(key=lambda attempt: min(part.job for part in attempt.parts))
    known = {part.job for attempt in attempts.values() for part in attempt.parts}
    listed = [(part, queued) for part, some in queue.items() for queued in some]
    left.strays = [(part, one.job) for part, one in listed if one.job not in known and one.state in UNFINISHED]
    return left


def _know_jobs(attempt: Attempt, queue: dict[PartKey, list[Queued]], now: float) -> bool:
    """Find the jobs of an attempt; False if one of its parts has none and has not told its end."""
    is_whole = True
    for part in attempt.parts:
        some = queue.get((attempt.key, part.number), [])
        for queued in some:
            part.job = queued.job
            if queued.state not in UNFINISHED:
                part.final, part.final_at = queued, now
            else:
                part.final, part.began = None, part.began or queued.state == "RUNNING"
                break
        if not some and part.left:
            is_whole = False
        elif not some:
            part.final, part.final_at = Queued(0, FORGOTTEN, ""), now
    return is_whole
