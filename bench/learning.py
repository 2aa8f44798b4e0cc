"""What it costs to learn run times from jobs that end, and to predict those of the next ones.

python bench/learning.py
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from time import process_time

import logs
import measure
from headway.history import factors, yardstick
from headway.history.bounds import LEVELS, RunTimeBounds
from headway.history.features import COMMAND, NUMBERS_MAX
from headway.history.predictors import LastTwo
from headway.history.trial import PredictedJob
from headway.model.instant import SECOND, Duration
from headway.model.job import JobSpec, Rigid
from headway.traces.transforms import first

JOBS = (1_000, 10_000, 100_000)
FEATURES = 3

Jobs = Sequence[tuple[JobSpec, Duration]]


def main() -> None:
    """Print the section of the report."""
    measure.section(
        "Learning run times",
        f"""The first jobs of {logs.HPC2N.title}, one after the other: how long each will run is predicted, with bounds
        for 50 and 90 %, and then it is learnt how long it ran. Seconds of processor time (wanted: 60 for 100,000 jobs),
        of jobs without features, with {FEATURES}, and with these and {NUMBERS_MAX} numbers of their commands, of which
        half tell something. Beside it the mean of a user's last two jobs, which has no bounds, and gradient boosting
        (scikit-learn), which sees half of the jobs at once and predicts the other half.""",
        measure.table(
            ("jobs", "plain", "with features", "and numbers", "last two", "boosting", "boosting / plain"), rows()
        ),
    )


def rows() -> list[tuple[str, ...]]:
    """The times by number of jobs."""
    found = []
    for count in JOBS:
        plain, described = jobs_of(count, 0), jobs_of(count, FEATURES)
        took = [timed(learnt, plain), timed(learnt, described), timed(learnt, numbered(described))]
        took.append(timed(last_two, plain))
        boosting = timed(boosted, plain) if factors.has_learner() else None
        found.append(
            (
                f"{count:,}",
                *map(measure.rounded, took),
                "" if boosting is None else measure.rounded(boosting),
                "" if boosting is None else measure.rounded(boosting / took[0]),
            )
        )
    return found


def jobs_of(count: int, features: int) -> Jobs:
    """The first jobs of the log; of its own terms, features are told that say something of each."""
    log = first(logs.repeated(logs.workload(logs.HPC2N), count), count)
    made = []
    for place in range(count):
        took, width, asked = int(log.runtime[place]), int(log.width[place]), int(log.estimate[place])
        told = (("size", float(took // SECOND % 97)), ("slots", float(width)), ("steps", asked / SECOND))[:features]
        terms = (place, int(log.release[place]), asked if asked > 0 else None)
        made.append((Rigid(*terms, user=str(log.user[place]), name="job", width=width, features=told), max(1, took)))
    return made


def numbered(jobs: Jobs) -> Jobs:
    """The same jobs with numbers of their commands, every other one of which has to do with how long it ran."""
    chance, made = Random(1), []
    for job, took in jobs:
        numbers = tuple(
            (f"{COMMAND}{place}", took ** (place % 2) * chance.lognormvariate(0, 1)) for place in range(NUMBERS_MAX)
        )
        made.append((replace(job, features=numbers + job.features), took))
    return made


def timed(do: Callable[[Jobs], object], jobs: Jobs) -> float:
    """How long it takes, in seconds of processor time."""
    began = process_time()
    do(jobs)
    return process_time() - began


def learnt(jobs: Jobs) -> None:
    """Predict each job, then learn it."""
    bounds = RunTimeBounds()
    for job, took in jobs:
        bounds.of(job)
        bounds.learn(job, took)


def last_two(jobs: Jobs) -> None:
    """The same by the mean of the last two."""
    known = LastTwo()
    for job, took in jobs:
        known.run_time(job, 0.9)
        known.learn(job, took)


def boosted(jobs: Jobs) -> None:
    """Learn half of them at once, and predict the others."""
    known, asked = LastTwo(), []
    for job, took in jobs:
        user = (job.estimate or took) / SECOND
        mean = (known.run_time(job, 0.5) or took) / SECOND
        asked.append(PredictedJob(job, (user,) * len(LEVELS), user, mean, took / SECOND))
        known.learn(job, took)
    os.environ["OMP_NUM_THREADS"] = "1"  # before it is loaded: threads that wait for each other compute, too
    yardstick.boosted(asked, len(asked) // 2)


if __name__ == "__main__":
    main()
