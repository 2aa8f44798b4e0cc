"""What a server's past tells of programs: how their jobs ended, how long they ran, and with which features."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from headway.history.bounds import LEVELS
from headway.history.features import ON_CLASS, features_of
from headway.history.similar import Sample, sample_of
from headway.live.store.history import read_past
from headway.live.store.past import OF_PROGRAM, PastJob
from headway.model.actions import JobStatus
from headway.model.instant import SECOND
from headway.model.job import JobSpec


@dataclass(frozen=True, slots=True)
class PastRun:
    """A job that has ended.

    Attributes:
        took: how long its tasks ran in the mean, in seconds; 0 if it never started.
        features: numbers that describe it, by name: its own, those in its command, some of its terms, and which share
            of its tasks ran on which class of nodes.
        status, why: as of `PastJob`.
    """

    job: JobSpec
    took: float
    features: Mapping[str, float]
    status: JobStatus
    why: str


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """What is known of a program: the jobs of one name and user.

    Attributes:
        runs: those that succeeded, in the order of their ends.
        others: those that failed or were cancelled.
    """

    name: str
    user: str
    runs: tuple[PastRun, ...]
    others: tuple[PastRun, ...]

    @property
    def ended(self) -> Counter[JobStatus]:
        """How many of its last jobs ended in which way: since the first one from which on all are kept."""
        full = [[run.job.id for run in kind] for kind in (self.runs, self.others) if len(kind) >= OF_PROGRAM]
        since = max(map(min, full), default=0)
        return Counter(run.status for run in (*self.runs, *self.others) if run.job.id >= since)

    @property
    def failed_share(self) -> float | None:
        """The share that failed of its last jobs that nobody cancelled; None: there are none."""
        ended = self.ended
        ran = ended[JobStatus.SUCCEEDED] + ended[JobStatus.FAILED]
        return ended[JobStatus.FAILED] / ran if ran else None

    @property
    def failed_with(self) -> Counter[str]:
        """How many of the others failed how, where that is known: by the word of the outcome."""
        return Counter(run.why for run in self.others if run.why)

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
    """The programs of a data directory, those that succeeded most often first; its server may run.

    Raises:
        HeadwayError: there is no journal, or it cannot be read.
    """
    found: dict[tuple[str, str], list[PastJob]] = defaultdict(list)
    for past in read_past(folder):
        found[past.job.name, past.job.user].append(past)
    made = [_program(name, user, _runs(jobs)) for (name, user), jobs in found.items()]
    return sorted(made, key=lambda program: (-len(program.runs), program.name, program.user))


def _program(name: str, user: str, runs: list[PastRun]) -> KnownProgram:
    done = tuple([run for run in runs if run.status is JobStatus.SUCCEEDED])
    return KnownProgram(name, user, done, tuple([run for run in runs if run.status is not JobStatus.SUCCEEDED]))


def _runs(jobs: Iterable[PastJob]) -> list[PastRun]:
    """The runs of a program. All have a share for each class of nodes on which one of them ran."""
    jobs = list(jobs)
    nowhere = {name: 0.0 for past in jobs for name in past.features if name.startswith(ON_CLASS) and past.succeeded}
    return [
        PastRun(
            *(past.job, past.took / SECOND, features_of(past.job, nowhere | dict(past.features))),
            *(past.status, past.why),
        )
        for past in jobs
    ]
