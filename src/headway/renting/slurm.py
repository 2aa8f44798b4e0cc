"""Allocations of Slurm as rented machines: a batch job is one, and what it runs joins as a node.

The name of the job is the token. So before a job is submitted it is asked whether there is one of this name, and what
was submitted by a request whose answer was lost is found again.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from headway.engines.slurm.answers import SlurmFull, SlurmRefused, SlurmUnavailable, number_of, printed_by
from headway.errors import HeadwayError
from headway.renting.provider import NotRented, RentedMachine, Unsure

COMMAND_SECONDS: Final = 20.0
"""So long may a command of Slurm take."""

ENDED: Final = frozenset(
    {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
)
"""States in which nothing of a job runs any more."""

SQUEUE_FORMAT: Final = "%i|%j|%k|%T"


class Allocations:
    """Rents the nodes of a partition.

    Args:
        cluster: what the tokens of this cluster begin with.
        partition: of Slurm.
        command: words that are run in the allocation, in which `{node}`, `{type}` and `{token}` are replaced. The
            machine is there as long as it runs.
        options: words for sbatch, likewise, such as `--cpus-per-task=4` or `--constraint={type}`.
    """

    def __init__(self, cluster: str, partition: str, command: Sequence[str], options: Sequence[str] = ()) -> None:
        self._cluster = cluster
        self._partition = partition
        self._command = tuple(command)
        self._options = tuple(options)
        for name in ("sbatch", "squeue", "scancel"):
            if shutil.which(name) is None:
                hint = "Start the server where Slurm's commands are installed (Debian: slurm-client)."
                raise HeadwayError(f"allocations of Slurm need {name}, which is not on the PATH", hint)

    async def start(self, token: str, type: str, node: str) -> RentedMachine:
        """Submit a job; see `Provider`."""
        for known in await self._jobs(f"--name={token}"):
            return known
        words = [_replaced(word, node, type, token) for word in self._command]
        script = f"#!/bin/sh\nexec {shlex.join(words)}\n"
        arguments = (
            *("--parsable", "--no-requeue", f"--job-name={token}", f"--comment={type}"),
            *(f"--partition={self._partition}", "--output=/dev/null", f"--export=ALL,HEADWAY_NODE={node}"),
            *(_replaced(word, node, type, token) for word in self._options),
        )
        printed = await self._run("sbatch", *arguments, given=script)
        with _answered():
            return RentedMachine(str(number_of(printed)), token, type)

    async def end(self, token: str) -> bool:
        """Cancel a job; see `Provider`."""
        alive = [job for job in await self._jobs(f"--name={token}") if not job.ended]
        if alive:
            await self._run("scancel", "--quiet", *(job.name for job in alive))
            alive = [job for job in await self._jobs(f"--name={token}") if not job.ended]
        return not alive

    async def machines(self) -> list[RentedMachine]:
        """The jobs of this cluster; see `Provider`."""
        return [job for job in await self._jobs() if job.token.startswith(f"{self._cluster}-")]

    async def reclaimed(self) -> dict[str, float]:
        """None: Slurm tells nothing beforehand."""
        return {}

    async def close(self) -> None:
        """Nothing is open."""

    async def _jobs(self, *more: str) -> list[RentedMachine]:
        """Jobs of this account, those that have ended too, as long as Slurm remembers them."""
        printed = await self._run("squeue", "--me", "--noheader", "--states=all", f"--format={SQUEUE_FORMAT}", *more)
        rows = (line.strip().split("|") for line in printed.splitlines() if line.count("|") == SQUEUE_FORMAT.count("|"))
        return [RentedMachine(number, name, kind, ended=state in ENDED) for number, name, kind, state in rows]

    async def _run(self, name: str, *arguments: str, given: str = "") -> str:
        """What a command prints.

        Raises:
            NotRented: Slurm has refused it.
            Unsure: it is not known what has become of it.
        """
        program = shutil.which(name)
        if program is None:
            raise Unsure(f"{name} is not on the PATH any more")
        others = {key: value for key, value in os.environ.items() if not key.startswith("SBATCH_")}
        with _answered():
            return await printed_by(program, arguments, others, COMMAND_SECONDS, given)


@contextmanager
def _answered() -> Iterator[None]:
    """What Slurm said, in the words of a provider."""
    try:
        yield
    except (SlurmRefused, SlurmFull) as error:
        raise NotRented(str(error)) from error
    except SlurmUnavailable as error:
        raise Unsure(str(error)) from error


def _replaced(word: str, node: str, type: str, token: str) -> str:
    return word.replace("{node}", node).replace("{type}", type).replace("{token}", token)
