"""What a server's past tells of programs: how long their jobs ran, and with which features."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from headway.errors import HeadwayError
from headway.history.bounds import LEVELS
from headway.history.similar import Sample, sample_of
from headway.live.store.journal import work_of
from headway.live.store.past import past_jobs
from headway.live.store.rows import Rows
from headway.live.store.schema import FILE, connect_to_read
from headway.model.instant import SECOND
from headway.model.job import JobSpec
from headway.wire import Commands

HOUR: Final = 3600 * SECOND

WEEK_HOURS: Final = 7 * 24


@dataclass(frozen=True, slots=True)
class Run:
    """A job that has succeeded.

    Attributes:
        took: how long its tasks ran in the mean, in seconds.
        features: numbers that describe it, by name: its own, those in its command, and some of its terms.
    """

    job: JobSpec
    took: float
    features: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Program:
    """The jobs of one name and user.

    Attributes:
        runs: in the order of their ends.
    """

    name: str
    user: str
    runs: tuple[Run, ...]

    @property
    def sample(self) -> Sample:
        """Their run times, each counted alike."""
        return sample_of([(run.took, 1.0) for run in self.runs])

    @property
    def bounds(self) -> tuple[float, ...]:
        """Quantiles of their run times, in seconds, one for each of `LEVELS`."""
        sample = self.sample
        return tuple(sample.quantile(level) for level in LEVELS)

    @property
    def asked(self) -> float | None:
        """The median of how many times the run time their estimates were; None: they had none."""
        known = [run.job.estimate / SECOND / run.took for run in self.runs if run.job.estimate and run.took > 0]
        return median(known) if known else None


def programs(folder: Path) -> list[Program]:
    """The programs of a data directory, those that ran most often first; its server may run.

    Raises:
        HeadwayError: there is no journal, or it cannot be read.
    """
    path = folder / FILE
    found: dict[tuple[str, str], list[Run]] = defaultdict(list)
    try:
        with closing(connect_to_read(path)) as db:
            for spec, took, work in past_jobs(db, Rows(db, path), with_work=True):
                found[spec.name, spec.user].append(Run(spec, took / SECOND, features_of(spec, work)))
    except sqlite3.Error as error:
        raise HeadwayError(f"{path} cannot be read: {error}", "Name a data directory of `headway up`.") from error
    made = [Program(name, user, tuple(runs)) for (name, user), runs in found.items()]
    return sorted(made, key=lambda program: (-len(program.runs), program.name, program.user))


def features_of(job: JobSpec, work: bytes | None) -> dict[str, float]:
    """The numbers that describe a job, by name; those that its user gave count before others of the same name."""
    found = {"tasks": float(job.tasks), "width": float(job.width), "hour of the week": job.release // HOUR % WEEK_HOURS}
    if job.estimate is not None:
        found["estimate"] = job.estimate / SECOND
    known = None if work is None else work_of(work)
    if isinstance(known, Commands):
        found |= numbers_of(known.commands[0].argv)
    return found | dict(job.features)


def numbers_of(argv: Sequence[str]) -> dict[str, float]:
    """The numeric parameters of a command. `--mesh 3`, `--mesh=3` and `mesh=3` are called mesh, others by their place.

    >>> numbers_of(("solve", "wing.cfg", "--mesh", "2e6", "-n", "4", "mach=0.8", "12"))
    {'mesh': 2000000.0, 'n': 4.0, 'mach': 0.8, 'word 7': 12.0}
    """
    found: dict[str, float] = {}
    name = ""
    for place, word in enumerate(argv[1:], 1):
        left, equals, right = word.partition("=")
        if equals and (value := _number(right)) is not None:
            found[left.lstrip("-") or word] = value
        elif (value := _number(word)) is not None:
            found[name or f"word {place}"] = value
        name = word.lstrip("-") if word.startswith("-") and not equals else ""
    return found


def _number(text: str) -> float | None:
    """A finite number; None: it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
