"""How long the tasks of a job run, as a distribution: by the last jobs, of which those count most that are most alike.

    the last 20 of the same user, name, estimate and width      weight 1, 0.85, 0.72, ... from the last one back
    if these are fewer than 20: of any width                    half of that
    if there are still fewer: of any estimate, as shares of it  half of that again
    if there are still fewer: of any name of the user       half of that again
    if there are still fewer: of all users                  half of that again

Jobs that still run tell something, too: they take longer than they have run so far. Without them, of many jobs that a
user has submitted together, only those that failed at once would be known. So what runs counts as observations that are
cut short (Kaplan and Meier 1958), each as much as the jobs that came when it came.

Jobs without an estimate are compared with others of the same user and name that have none: what is known of them is
times, not shares of an estimate.

Of jobs that are described by features only those of the same user and name count whose features were nearest, if there
are enough and they tell anything; see `history.described`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from headway.history.described import Described
from headway.history.features import compared_of
from headway.history.prior import PRIOR, PriorShare
from headway.model.instant import SECOND, Duration
from headway.model.job import JobId, JobSpec

LAST_RUNS: Final = 20
"""So many last jobs of each likeness are remembered, and so many are enough."""

LIKES_MAX: Final = 50_000
"""So many likenesses are remembered; the one that was met longest ago is forgotten first. Every job may have a name."""

DESCRIBED_MAX: Final = 2_000
"""Of so many programs runs with features are remembered; the one that ended longest ago is forgotten first."""

FADES: Final = 0.85
"""How much less each job counts than the one after it."""

WIDER: Final = 0.5
"""How much less jobs of a wider likeness count."""

ALIKE_LEAST: Final = 3
"""So many jobs without an estimate say how long others like them run."""

FEW_OF_NAME: Final = 8
"""What is expected of any job counts, too, if fewer of the same name are known; see `history.prior`."""

RUNNING_JOBS: Final = 40
"""So many of the last jobs of each likeness that still run count."""

STILL_LEVELS: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Levels at which it is said how much longer than all others a job may run that still does."""

TIMES_RUN_MAX: Final = 20.0
"""Nothing is taken to run longer than so many times what it has run, unless its estimate says so."""

Like = tuple[object, ...]

Last = deque[tuple[JobId, float]]
"""The last jobs of a likeness, the newest last, with how long they ran, in its unit."""

Running = Mapping[Like, tuple[tuple[JobId, float], ...]]
"""What still runs of each likeness, and for how long, in the unit of the likeness."""


def runs_on(ran: float, level: float, most: float | None) -> float:
    """How long it runs in all, with a probability, if it has run for longer than anything that is known.

    For as long again in the median, at most for its estimate; if that has passed, for as long again at most.
    """
    return min(
        ran / (1 - level) if level < 1 else TIMES_RUN_MAX * ran,
        TIMES_RUN_MAX * ran if most is None else max(most, 2 * ran),
    )


def running_of(jobs: Iterable[tuple[JobSpec, Duration]]) -> Running:
    """What runs, of each likeness: the last jobs, with how long their tasks have run."""
    found: dict[Like, deque[tuple[JobId, float]]] = {}
    for job, ran in sorted(jobs, key=lambda one: one[0].id):
        for like, unit in _likes(job):
            found.setdefault(like, deque(maxlen=RUNNING_JOBS)).append((job.id, ran / SECOND / unit))
    return {like: tuple(last) for like, last in found.items()}


@dataclass(frozen=True, slots=True)
class Sample:
    """Run times in seconds, rising, and the level of each: the share of all the weight that lies below its middle.

    Attributes:
        seconds, levels: as many of either; levels lie between 0 and 1.
    """

    seconds: tuple[float, ...]
    levels: tuple[float, ...]

    def quantile(self, level: float) -> float:
        """It runs at most so long with this probability."""
        place = bisect_left(self.levels, level)
        if place in (0, len(self.levels)):
            return self.seconds[-1 if place else 0]
        low, high = self.levels[place - 1], self.levels[place]
        below, above = self.seconds[place - 1], self.seconds[place]
        return below + (above - below) * (level - low) / (high - low)

    def below(self, seconds: float) -> float:
        """The probability that it runs at most so long."""
        place = bisect_right(self.seconds, seconds)
        if place in (0, len(self.seconds)):
            return float(place > 0)
        low, high = self.seconds[place - 1], self.seconds[place]
        below, above = self.levels[place - 1], self.levels[place]
        return below + (above - below) * (seconds - low) / (high - low)


EMPTY: Final[Running] = {}

NO_JOBS: Final[Last] = deque()


class Similar:
    """What the jobs that have ended tell of others; see the module."""

    def __init__(self) -> None:
        self._last: dict[Like, Last] = {}
        self._described: dict[tuple[str, str], Described] = {}
        self._prior = PriorShare()

    def learn(self, job: JobSpec, took: Duration) -> None:
        """The tasks of a job have run so long in the mean."""
        if job.estimate and (SAME_NAME, job.user, job.name) not in self._last and (OTHERS,) in self._last:
            others = [one for _, unit, weight, last in self._counting(job) for one in faded(last, unit, weight)]
            self._prior.learn(took / job.estimate, [(run * SECOND / job.estimate, weight) for run, weight in others])
        for like, unit in _likes(job):
            last = self._last.pop(like, None) or deque(maxlen=LAST_RUNS)
            last.append((job.id, took / SECOND / unit))
            self._last[like] = last
        while len(self._last) > LIKES_MAX:
            del self._last[next(iter(self._last))]
        if job.features:
            program = job.user, job.name
            described = self._described.pop(program, None) or Described()
            described.learn(compared_of(job), took / SECOND)
            self._described[program] = described
            while len(self._described) > DESCRIBED_MAX:
                del self._described[next(iter(self._described))]

    def sample(self, job: JobSpec, *, guess: bool = True, running: Running = EMPTY) -> Sample | None:
        """The run times of a task of a job; None: nothing is known.

        Args:
            guess: where few jobs of its name are known, count what is expected of any job, too.
            running: what runs now.
        """
        described = self._described.get((job.user, job.name)) if job.features else None
        nearest = [] if described is None else described.nearest(compared_of(job), LAST_RUNS)
        if nearest:
            return sample_of([(took, FADES**rank) for rank, took in enumerate(nearest)])
        found: list[tuple[float, float]] = []
        still: list[tuple[float, float]] = []
        of_name = 0
        for like, unit, weight, last in self._counting(job):
            for number, ran in running.get(like, ()):
                newer = sum(other > number for other, _ in last)
                if newer < LAST_RUNS:
                    still.append((ran * unit, weight * FADES**newer))
            found += faded(last, unit, weight)
            if like[0] is SAME_NAME:
                of_name = len(found)
        if guess and job.estimate and of_name < FEW_OF_NAME:
            others = max(1.0, sum(counts for _, counts in found))
            each = others * self._prior.share / (1 - self._prior.share) / len(PRIOR)
            found += [(job.estimate / SECOND * part, each) for part in PRIOR]
        if found and still:
            found = with_running(found, still, job.estimate / SECOND if job.estimate else None)
        return sample_of(found) if found else None

    def _counting(self, job: JobSpec) -> Iterator[tuple[Like, float, float, Last]]:
        """The likenesses that count for a job: what each is counted in, what its last job weighs, and its last jobs."""
        weight, jobs = 1.0, 0
        for like, unit in _likes(job):
            if jobs >= LAST_RUNS:
                return
            last = self._last.get(like, NO_JOBS)
            yield like, unit, weight, last
            if last:
                jobs += len(last)
                weight *= WIDER

    def run_time(self, job: JobSpec, quantile: float) -> Duration | None:
        """How long a task of a job runs at most, with this probability; None: nothing but its estimate is known."""
        found = self.sample(job, guess=False)
        return None if found is None else round(found.quantile(quantile) * SECOND)

    def knows(self, job: JobSpec) -> bool:
        """Whether anything is known of the run times of a job: an estimate, or the past."""
        return bool(job.estimate) or any(len(self._last.get(like, ())) >= ALIKE_LEAST for like, _ in _likes(job))


SAME_NAME: Final = "name"
OTHERS: Final = "others"


def _likes(job: JobSpec) -> Iterator[tuple[Like, float]]:
    """What jobs have in common, the narrowest first, and what their run times are counted in, in seconds."""
    user, name, estimate = job.user, job.name, job.estimate
    yield (SAME_NAME, user, name, estimate, job.width), 1.0
    yield (SAME_NAME, user, name, estimate), 1.0
    if estimate:
        unit = estimate / SECOND
        yield (SAME_NAME, user, name), unit
        yield (OTHERS, user), unit
        yield (OTHERS,), unit


def faded(last: Last, unit: float, weight: float) -> list[tuple[float, float]]:
    """The run times of jobs in seconds, the newest first, each with its weight.

    Args:
        last: jobs, the newest last, with their run times in this unit.
        weight: what the newest weighs.
    """
    return [(took * unit, weight * FADES**newer) for newer, (_, took) in enumerate(reversed(last))]


def with_running(
    ended: list[tuple[float, float]], still: list[tuple[float, float]], most: float | None
) -> list[tuple[float, float]]:
    """Run times with their weights, where those that still run take as long as others that have run longer do.

    Args:
        ended: run times in seconds, and what each weighs.
        still: the same of what still runs.
        most: the estimate; None: there is none.
    """
    last = max(took for took, _ in ended)
    at_risk = sum(weight for _, weight in ended) + sum(weight for _, weight in still)
    found, left = list[tuple[float, float]](), 1.0
    longer = [(ran, weight) for ran, weight in still if ran >= last]
    points = [(took, 0, weight) for took, weight in ended] + [(ran, 1, weight) for ran, weight in still if ran < last]
    for seconds, runs, weight in sorted(points):
        if not runs:
            ends = left * weight / at_risk
            found.append((seconds, ends))
            left -= ends
        at_risk -= weight
    whole = sum(weight for _, weight in longer)
    for ran, weight in longer:
        share = left * weight / whole / len(STILL_LEVELS)
        found += [(runs_on(ran, level, most), share) for level in STILL_LEVELS]
    return found


def sample_of(weighted: list[tuple[float, float]]) -> Sample:
    """A sample of run times in seconds, each with its weight."""
    found = sorted(weighted)
    whole, below, levels = sum(weight for _, weight in found), 0.0, []
    for _, weight in found:
        levels.append((below + weight / 2) / whole)
        below += weight
    return Sample(tuple(took for took, _ in found), tuple(levels))
