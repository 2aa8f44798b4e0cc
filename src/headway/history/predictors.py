"""How long the tasks of a job will run, by those of earlier jobs."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, Protocol

from headway.errors import InvalidInput
from headway.history.similar import Similar
from headway.model.instant import Duration
from headway.model.job import JobSpec


class Predictor(Protocol):
    """Predicts run times, and learns from those of jobs that have ended. Times are of a task, in microseconds."""

    def learn(self, job: JobSpec, took: Duration) -> None:
        """The tasks of a job have run so long in the mean."""
        ...

    def run_time(self, job: JobSpec, quantile: float) -> Duration | None:
        """How long a task of a job runs at most, with this probability; None: nothing is known.

        Args:
            quantile: between 0 and 1. A predictor that knows no distribution does without.
        """
        ...


class LastTwo:
    """The mean of the last two jobs of the same user that have ended.

    Source: Tsafrir, Etsion, Feitelson, "Backfilling using system-generated predictions rather than user runtime
    estimates", IEEE TPDS 18(6), 2007.
    """

    def __init__(self) -> None:
        self._last: dict[str, deque[Duration]] = defaultdict(lambda: deque(maxlen=2))

    def learn(self, job: JobSpec, took: Duration) -> None:
        """The tasks of a job have run so long in the mean."""
        self._last[job.user].append(took)

    def run_time(self, job: JobSpec, quantile: float) -> Duration | None:
        """The mean; the quantile does not matter."""
        last = self._last.get(job.user, ())
        return sum(last) // 2 if len(last) == 2 else None


PREDICTORS: Final[dict[str, Callable[[], Predictor]]] = {"last-two": LastTwo, "predicted": Similar}
"""The predictors by the names that users give."""

USER: Final = "user"
"""The users' own estimates, without any predictor."""


def predictor(name: str) -> Predictor | None:
    """A new predictor that has learnt nothing yet; None for `USER`.

    Raises:
        InvalidInput: there is none of this name.
    """
    if name == USER:
        return None
    made = PREDICTORS.get(name)
    if made is None:
        raise InvalidInput("estimates", name, f"one of {', '.join((USER, *PREDICTORS))}")
    return made()
