"""The sweep for the priority violation rate, compared with a slow twin that visits every job at every instant."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headway.metrics.measures import over_instants, over_time, violated_share
from headway.model.schedule import NOT_YET

UNTIL = 30
Job = tuple[int, int, int, list[tuple[int, int]]]  # priority, enter, leave, changes of (instant, slots)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    enter = draw(st.integers(0, UNTIL))
    leave = draw(st.integers(enter, UNTIL) | st.just(NOT_YET))
    last = UNTIL if leave == NOT_YET else leave
    changes = draw(st.lists(st.tuples(st.integers(enter, last), st.integers(0, 2)), max_size=5))
    return draw(st.integers(0, 4)), enter, leave, sorted(changes, key=lambda change: change[0])


def share_at(some: list[Job], instant: int) -> float | None:
    """The share of violated jobs after everything of an instant has happened; None with no job in the system."""
    present = [job for job in some if job[1] <= instant and (job[2] == NOT_YET or instant < job[2])]
    if not present:
        return None

    def holds(job: Job) -> bool:
        slots = [slots for at, slots in job[3] if at <= instant]
        return bool(slots and slots[-1])

    violated = [
        job for job in present if not holds(job) and any(holds(other) and other[0] < job[0] for other in present)
    ]
    return len(violated) / len(present)


@given(st.lists(jobs(), max_size=7), st.lists(st.integers(0, UNTIL), max_size=8).map(sorted))
def test_the_sweep_agrees_with_looking_at_every_job(some: list[Job], rounds: list[int]) -> None:
    changes = [(at, number, slots) for number, job in enumerate(some) for at, slots in job[3]]
    at, job, slots = np.array(changes, dtype=np.int64).reshape(-1, 3).T
    priority, enter, leave = (np.array([one[column] for one in some], dtype=np.int64) for column in range(3))
    steps = violated_share(priority.astype(float), enter, leave, at, job, slots)

    shares = [share for instant in range(UNTIL) if (share := share_at(some, instant)) is not None]
    assert np.isclose(over_time(steps, UNTIL), np.mean(shares) if shares else 0)
    at_rounds = [share for instant in rounds if (share := share_at(some, instant)) is not None]
    assert np.isclose(over_instants(steps, np.array(rounds, dtype=np.int64)), np.mean(at_rounds) if at_rounds else 0)
