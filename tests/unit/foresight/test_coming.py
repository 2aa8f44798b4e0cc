"""Jobs that come later are like those that came."""

from __future__ import annotations

import numpy as np
import pytest

from headway import workload_of
from headway.foresight.coming import COUNTED, COUNTED_SPAN, coming, counted_for, workload_of_past
from headway.live.store.past import past_job
from headway.model.actions import JobStatus
from headway.model.instant import NEVER, SECOND
from headway.model.job import SHAPES, Bag, Kind, PenaltyShape, Rigid
from headway.sim.specs import specs


def test_more_load_draws_the_jobs_of_the_recent_past_more_often() -> None:
    past = workload_of(
        release=[100 * place for place in range(10)], runtime=[30] * 10, due=[100 * n + 50 for n in range(10)]
    )
    draw = coming(1000 * SECOND, past, 2.0)
    assert draw is not None
    drawn = draw(np.random.default_rng(1))
    assert drawn is not None
    assert len(drawn) == 10
    assert drawn.release[0] >= 1000 * SECOND
    assert set(np.diff(drawn.release).tolist()) == {50 * SECOND}  # twice as often
    assert set((drawn.due - drawn.release).tolist()) == {50 * SECOND}


@pytest.mark.parametrize(("load", "come", "come_as_before"), [(2.0, 10, 5), (1.0, 10, 10), (0.5, 5, 10)])
def test_a_short_past_is_counted_no_longer_than_it_lasts(load: float, come: int, come_as_before: int) -> None:
    """A job each 100 s for 1,000 s: were it counted for longer, as many would come at every load."""
    at, past = 1000 * SECOND, workload_of(release=[100 * place for place in range(10)], runtime=[30] * 10)
    until = at + counted_for(at, past, load)
    for factor, counted in ((load, come), (1.0, come_as_before)):
        draw = coming(at, past, factor)
        assert draw is not None
        drawn = draw(np.random.default_rng(1))
        assert drawn is not None
        assert (drawn.release <= until + 1).sum() == counted


def test_of_many_jobs_some_are_counted_and_those_of_a_day_at_most() -> None:
    busy = workload_of(release=list(range(2 * COUNTED)), runtime=[1] * 2 * COUNTED)
    assert counted_for(2 * COUNTED * SECOND, busy) == COUNTED * SECOND
    assert counted_for(6 * COUNTED_SPAN, workload_of(release=[0, 9], runtime=[1, 1])) == COUNTED_SPAN


def test_nothing_is_known_where_nothing_came() -> None:
    assert coming(0, workload_of(release=[0], runtime=[1])) is None


def test_jobs_that_failed_come_too_and_those_that_never_started_do_not() -> None:
    ended = ((1, 7 * SECOND, JobStatus.FAILED), (2, 5 * SECOND, JobStatus.CANCELLED), (3, 0, JobStatus.CANCELLED))
    made = workload_of_past(
        [past_job(Bag(job, job * SECOND), 90 * SECOND, took, status=status) for job, took, status in ended]
    )
    assert made.label.tolist() == [1, 2]
    assert made.runtime.tolist() == [7 * SECOND, 5 * SECOND]


def test_jobs_of_the_past_are_a_workload_in_order_of_release() -> None:
    late = Rigid(7, 20 * SECOND, width=3, due=90 * SECOND, rate=2.0, shape=PenaltyShape.SQUARE, user="ann")
    early = Bag(9, 10 * SECOND, tasks=4, estimate=60 * SECOND, priority=1.5)
    made = workload_of_past([past_job(late, 50 * SECOND, 5 * SECOND), past_job(early, 60 * SECOND, 6 * SECOND)])
    assert made.label.tolist() == [9, 7]
    assert made.runtime.tolist() == [6 * SECOND, 5 * SECOND]
    assert made.kind.tolist() == [Kind.BAG, Kind.RIGID]
    assert made.due.tolist() == [NEVER, 90 * SECOND]
    assert SHAPES[made.shape[1]] is PenaltyShape.SQUARE
    first, second = specs(made)
    assert (first.tasks, first.estimate, first.priority) == (4, 60 * SECOND, 1.5)
    assert (second.width, second.estimate, second.rate, second.user) == (3, None, 2.0, "ann")
