"""What Slurm and a runner are told of a part of an attempt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from headway.engines.base import Assignment, Call
from headway.engines.local.shared.frames import encode, launch_of
from headway.engines.local.shared.terms import Terms
from headway.engines.slurm import bundle
from headway.engines.slurm.attempt import Attempt, NodePart
from headway.engines.slurm.bundle import HASH_SIZE
from headway.engines.slurm.folder import BUNDLE, KEPT_FOLDER, SlurmFolder
from headway.engines.slurm.parsing import Partition, SlurmNode, job_name
from headway.engines.slurm.settings import SlurmSettings
from headway.engines.slurm.start import COMMANDS_ONLY
from headway.engines.slurm.written import Order
from headway.model.instant import to_seconds
from headway.model.tier import Tier

_ORPHANED_SECONDS: Final = 3600.0
"""Longer than any pause between two looks of a runner, which is its own driver."""

_MARGIN_MINUTES: Final = 2
"""Slurm's limit of time is so much greater than that of the attempt, which its runner watches over."""

_MEMORY_MARGIN: Final = 128
"""MiB for the runner itself, beside a task with a limit of memory."""

IMPORT_PLACES: Final = tuple(
    dict.fromkeys(str(place) for place in (Path(__file__).parents[3], Path(msgspec.__file__).parents[1]))
)
_BEGINNING: Final = f"""import gc, sys
gc.disable()
had = set(sys.modules)
sys.path += {IMPORT_PLACES!r}
"""
RUNNER_PROGRAM: Final = f"""{_BEGINNING}
try:
    import _imp, marshal
    with open(sys.argv[1].rsplit("/", 2)[0] + "/{BUNDLE}", "rb") as file:
        found = memoryview(file.read())
    version = sys.version.encode()
    if found[-len(version):] == version and _imp.source_hash(0, found[{HASH_SIZE}:]) == found[:{HASH_SIZE}]:
        known, here = marshal.loads(found[{HASH_SIZE}:]), {{"__name__": {bundle.__name__!r}}}
        exec(known[{bundle.__name__!r}][-1], here)
        here["install"](known)
except (OSError, EOFError, LookupError, TypeError, ValueError):
    pass
try:
    from headway.engines.slurm import start
except ImportError:
    import site
    site.main()
    from headway.engines.slurm import start
start.end()"""
"""A program that starts a runner without looking through all that is installed beside this Python, where Headway is in
the same place as here. Its modules come from one file (`bundle`). Where that is missing or damaged, it imports as
usual."""

BUNDLING: Final = f"""{_BEGINNING}
from headway.engines.slurm import start
start.import_runner(functions=False)
from headway.engines.slurm import bundle
bundle.write(sys.argv[1], had)"""
"""A program that writes this file."""


def cpus_of_slot(node: SlurmNode, settings: SlurmSettings) -> int:
    """How many of Slurm's CPUs a slot of a node has."""
    return max(1, node.cpus // (settings.slots or node.cores))


def slots_of(node: SlurmNode, settings: SlurmSettings) -> int:
    """How many slots a node can have."""
    return node.cpus // cpus_of_slot(node, settings)


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A part of an attempt, as a job.

    Attributes:
        node: as Slurm described it last; None: it did not.
        after: the job after whose end it may begin; 0: at once.
    """

    folder: SlurmFolder
    settings: SlurmSettings
    partition: Partition
    node: SlurmNode | None
    attempt: Attempt
    part: NodePart
    assignment: Assignment
    after: int = 0

    def order(self) -> Order:
        """What its runner is told."""
        key, part = self.attempt.key, self.part
        plain = structs.replace(self.assignment, tier=Tier.FOREGROUND, account="")
        places = (part.node, str(self.folder.of(key, part.number)), str(self.folder.output))
        ground = str(self.folder.ground(self.attempt.account))
        limits = (len(part.ranks), _ORPHANED_SECONDS, self.settings.task_output_max)
        terms = Terms(*places, ground, *limits, asks=self.assignment.files)
        launches = []
        for place, rank in enumerate(part.ranks):
            work = plain.members[rank].work
            pickled = work.function.pickled if isinstance(work, Call) else None
            launch = launch_of(plain, rank, pickled, str(self.folder.of(key, part.number) / KEPT_FOLDER), ())
            launches.append(encode(structs.replace(launch, slots=(place,))))
        return Order(self.attempt.record, part.number, terms, tuple(launches))

    def words(self) -> tuple[str, ...]:
        """The arguments of sbatch."""
        key, part, settings = self.attempt.key, self.part, self.settings
        folder = self.folder.of(key, part.number)
        slots = sum(len(self.attempt.record.seats[rank].slots) for rank in part.ranks)
        return (
            f"--job-name={job_name(self.folder.identity, key, part.number)}",
            f"--partition={self.partition.name}",
            f"--nodelist={part.node}",
            "--nodes=1",
            "--ntasks=1",
            f"--cpus-per-task={slots * (1 if self.node is None else cpus_of_slot(self.node, settings))}",
            "--no-requeue",
            "--open-mode=append",
            f"--output={str(folder / 'log').replace('%', '%%')}",
            *self._as_account(),
            *self._memory(slots),
            *self._time(),
            *((f"--dependency=afterany:{self.after}",) if self.after else ()),
            *settings.options,
            str(self.folder.script),
            *(settings.python, "-P", *self._runner(), str(folder), *((COMMANDS_ONLY,) if self._is_plain() else ())),
        )

    def _is_plain(self) -> bool:
        """Whether no member of the part is a function, which may use whatever is installed."""
        return not any(isinstance(self.assignment.members[rank].work, Call) for rank in self.part.ranks)

    def _runner(self) -> tuple[str, ...]:
        """How Python starts a runner."""
        if self._is_plain() and self.settings.python == sys.executable:
            return ("-S", "-c", RUNNER_PROGRAM)
        return ("-m", "headway.engines.slurm.start")

    def _as_account(self) -> Iterator[str]:
        """As whom Slurm runs it."""
        if (account := self.attempt.account) is not None:
            yield from (f"--uid={account.uid}", f"--gid={account.gid}", "--chdir=/")

    def _memory(self, slots: int) -> Iterator[str]:
        """How much memory Slurm reserves."""
        share = self.settings.memory
        if share is None:
            share = 0 if self.node is None else self.node.memory // slots_of(self.node, self.settings)
        if share:
            wanted = share * slots
            if self.assignment.memory_limit is not None:
                limit = len(self.part.ranks) * self.assignment.memory_limit
                wanted = max(wanted, (limit >> 20) + _MEMORY_MARGIN)
            yield f"--mem={wanted if self.node is None else min(wanted, self.node.memory)}M"

    def _time(self) -> Iterator[str]:
        """How long Slurm lets it run: longer than the attempt itself may, or as long as the partition allows."""
        most, limit = self.partition.seconds_max, self.assignment.time_limit
        minutes = None if most is None else max(1, int(most // 60))
        if limit is not None and not self.assignment.fetches:
            wanted = int(to_seconds(limit) // 60) + 1 + _MARGIN_MINUTES
            minutes = wanted if minutes is None else min(wanted, minutes)
        yield "--time=UNLIMITED" if minutes is None else f"--time={minutes}"
