"""The settings of the engine for Slurm."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headway.engines.local.driver.environment import check_names
from headway.engines.local.driver.settings import OUTPUT_RANGE
from headway.errors import InvalidInput

SLURM_SLOTS_MAX: Final = 1000
"""How many slots a node may have."""

_NO_SUBMISSION: Final = {"--array", "--help", "--test-only", "--usage", "--version", "--wait", "--wrap"}
_RANGES: Final = (
    ("poll", 0.1, 60.0, "seconds"),
    ("command_limit", 1.0, 600.0, "seconds"),
    ("task_output_max", *OUTPUT_RANGE, "bytes"),
)


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """The settings of a `SlurmEngine`.

    Attributes:
        partition: whose nodes it uses.
        slots: of each node that it finds; None: one for each core. Each gets an equal share of the node's CPUs.
        memory: MiB that Slurm reserves for each slot; None: an equal share of the node's memory; 0: nothing is said, so
            the partition's default counts.
        find: whether it finds all nodes of the partition by itself; otherwise it uses those that are named.
        site: of the nodes that it finds.
        options: more options of sbatch, such as `--account=NAME` or `--qos=NAME`.
        python: the Python with Headway on the nodes.
        commands: folder of Slurm's commands; None: they are on the PATH.
        address: of this machine as the nodes see it, for news of attempts; empty: as seen from Slurm's controller.
        poll: the longest pause between two looks at Slurm's queue, in seconds. Without news from the nodes, ends are
            seen so late.
        command_limit: seconds that one of Slurm's commands may take.
        task_output_max: bytes that are kept of each stream of an attempt.
        read_ahead: 1: the next job of each slot waits in Slurm's own queue, if jobs are short; 0: none does. Where
            users may have only so many jobs in the queue, those that wait count too.
        accounts, run_as_owner, allow_root: see `headway.engines.local.driver.settings.LocalSettings`.
        pass_env: names of variables of this process that tasks get besides `environment.PASSED`.

    Raises:
        InvalidInput: one of them is not allowed.
    """

    partition: str
    slots: int | None = None
    memory: int | None = None
    find: bool = True
    site: str = "slurm"
    options: tuple[str, ...] = ()
    python: str = field(default=sys.executable)
    commands: Path | None = None
    address: str = ""
    poll: float = 5.0
    command_limit: float = 20.0
    task_output_max: int = 64 << 20
    read_ahead: int = 1
    pass_env: tuple[str, ...] = ()
    accounts: bool = False
    run_as_owner: bool = False
    allow_root: bool = False

    @property
    def has_accounts(self) -> bool:
        """Whether jobs run as accounts of their users, all or some."""
        return self.accounts or self.run_as_owner

    def __post_init__(self) -> None:
        if not self.partition or not self.partition.isprintable() or set(self.partition) & set(" ,"):
            raise InvalidInput("partition", self.partition, "the name of one partition of Slurm (`sinfo` lists them)")
        if self.slots is not None and not 1 <= self.slots <= SLURM_SLOTS_MAX:
            raise InvalidInput("slots", self.slots, f"1 to {SLURM_SLOTS_MAX}, or none: one for each core")
        if self.memory is not None and self.memory < 0:
            raise InvalidInput("memory", self.memory, "MiB for each slot, 0 or more, or none: an equal share")
        for option in self.options:
            if not option.startswith("--"):
                hint = "Write an option and its value as one word."
                raise InvalidInput("options", option, "options of sbatch such as --account=NAME", hint=hint)
            if option.split("=")[0] in _NO_SUBMISSION:
                hint = "With this one sbatch does not submit a job that is a task, and say its number at once."
                raise InvalidInput("options", option, "options of sbatch such as --account=NAME", hint=hint)
        for name, least, most, unit in _RANGES:
            value = getattr(self, name)
            if not least <= value <= most:
                raise InvalidInput(name, value, f"{least:.15g} to {most:.15g} {unit}")
        if self.read_ahead not in (0, 1):
            raise InvalidInput("read_ahead", self.read_ahead, "0 or 1")
        check_names(self.pass_env)
