"""What a server's past tells of programs: how long their jobs ran, and with which features."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from headway.history.bounds import LEVELS
from headway.history.features import ON_CLASS, features_of
from headway.history.similar import Sample, sample_of
from headway.live.store.history import read_past
from headway.live.store.past import PastJob
from headway.model.instant import SECOND
from headway.model.job import JobSpec


@dataclass(frozen=True, slots=True)
class PastRun:
    """A job that has succeeded.

    Attributes:
        took: how long its tasks ran in the mean, in seconds.
        features: numbers that describe it, by name: its own, those in its command, some of its terms, and which share
            of its tasks ran on which class of nodes.
    """

    job: JobSpec
    took: float
    features: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """What is known of a program: the jobs of one name and user.

    Attributes:
        runs: in the order of their ends.
    """

    name: str
    user: str
    runs: tuple[PastRun, ...]

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


def programs(folder: Path) -> list[KnownProgram]:
    """The programs of a data directory, those that ran most often first; its server may run.

    Raises:
        HeadwayError: there is no journal, or it cannot be read.
    """
    found: dict[tuple[str, str], list[PastJob]] = defaultdict(list)
    for past in read_past(folder):
        found[past.job.name, past.job.user].append(past)
    made = [KnownProgram(name, user, tuple(_runs(jobs))) for (name, user), jobs in found.items()]
    return sorted(made, key=lambda program: (-len(program.runs), program.name, program.user))


def _runs(jobs: Iterable[PastJob]) -> list[PastRun]:
    """The runs of a program. All have a share for each class of nodes on which one of them ran."""
    jobs = list(jobs)
    nowhere = {name: 0.0 for past in jobs for name in past.features if name.startswith(ON_CLASS)}
    return [
        PastRun(past.job, past.took / SECOND, features_of(past.job, nowhere | dict(past.features))) for past in jobs
    ]
