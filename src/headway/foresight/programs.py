"""What a server's past tells of programs: how long their jobs ran, and with which features."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from headway.errors import HeadwayError
from headway.history.bounds import LEVELS
from headway.history.similar import Sample, sample_of
from headway.live.store.past import past_run_times
from headway.live.store.rows import Rows
from headway.live.store.schema import FILE, connect_to_read
from headway.model.instant import SECOND
from headway.model.job import JobSpec


@dataclass(frozen=True, slots=True)
class Run:
    """A job that has succeeded.

    Attributes:
        took: how long its tasks ran in the mean, in seconds.
    """

    job: JobSpec
    took: float


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
            for spec, took in past_run_times(db, Rows(db, path)):
                found[spec.name, spec.user].append(Run(spec, took / SECOND))
    except sqlite3.Error as error:
        raise HeadwayError(f"{path} cannot be read: {error}", "Name a data directory of `headway up`.") from error
    made = [Program(name, user, tuple(runs)) for (name, user), runs in found.items()]
    return sorted(made, key=lambda program: (-len(program.runs), program.name, program.user))


def with_features(runs: Sequence[Run]) -> tuple[list[dict[str, float]], list[float]]:
    """The features and run times of those runs that have features."""
    known = [run for run in runs if run.job.features]
    return [dict(run.job.features) for run in known], [run.took for run in known]
