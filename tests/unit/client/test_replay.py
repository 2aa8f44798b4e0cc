"""Jobs of a trace as a client submits them."""

from __future__ import annotations

import numpy as np

from headway.client.replay import job_of
from headway.model.instant import SECOND
from headway.model.job import SHAPES, Kind, PenaltyShape
from headway.model.workload import workload_us


def test_the_use_of_processors_goes_along_as_far_as_it_is_known() -> None:
    workload = workload_us(
        release=[0, 0, 0],
        runtime=[SECOND] * 3,
        width=[1, 2, 1],
        kind=[Kind.RIGID] * 3,
        cpu=[0.5, 0.6, np.nan],
        uses={1: (0.9, 0.3)},
    )
    assert [job_of(workload, position).cpu for position in range(3)] == [0.5, (0.9, 0.3), None]


def test_each_job_keeps_its_rate_and_its_shape() -> None:
    workload = workload_us(
        release=[0, 0], runtime=[SECOND] * 2, rate=[2, 3], shape=[0, SHAPES.index(PenaltyShape.SQUARE)]
    )
    jobs = [job_of(workload, position) for position in range(2)]
    assert [(job.rate, job.shape) for job in jobs] == [(2, PenaltyShape.LINEAR), (3, PenaltyShape.SQUARE)]
