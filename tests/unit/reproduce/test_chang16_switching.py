"""The experiment with costs of moving the border: what its runs say."""

from __future__ import annotations

import numpy as np

from headway import workload_of
from headway.reproduce.chang16 import switching
from headway.reproduce.chang16.mixed import Requests
from headway.reproduce.chang16.switching import BORDERS, TOPS, WARM_UPS

COSTS = {"dp": (60.0, 40.0), "ahead, costs not counted": (70.0, 20.0), "ahead": (30.0, 42.0)}


def test_both_ways_to_look_ahead_stand_beside_dp_and_each_other() -> None:
    rows = [
        (seed, border, warm_up, top, *COSTS[top])
        for border in BORDERS
        for warm_up in WARM_UPS
        for seed in range(3)
        for top in TOPS
    ]
    found = switching.result(rows, "made up")
    assert len(found.tables) == len(BORDERS)
    for table in found.tables:
        assert [row[0] for row in table.rows] == ["0 s", "5 s", "20 s"]
        values = ["100", *(f"{value} ({value} to {value})" for value in ("0.900", "0.720", "0.800"))]
        assert [list(row[1:]) for row in table.rows] == [values] * 3


def test_each_run_gets_the_warm_up_and_the_border_that_are_asked_for() -> None:
    """A job has most of the units when the second of two services begins to be asked."""
    jobs = workload_of(release=[0], tasks=[500], runtime=[37], estimate=[37], due=[10], rate=[5.0])
    both = (
        Requests(np.arange(0.0, 160.0, 0.5), np.full(320, 1.0)),
        Requests(np.arange(90.0, 160.0, 0.05), np.full(1400, 1.0)),
    )

    def penalties(border: str, warm_up: float) -> list[float]:
        """Of services, and of batch jobs, under dp."""
        dp, *_ = switching._measured(switching._Work(jobs, both, border, warm_up))
        return list(dp)

    slowly, at_once = penalties("when tasks end", 0.0), penalties("at once", 0.0)
    assert slowly[0] > at_once[0], "units come later"
    assert slowly[1] < at_once[1], "tasks are redone"
    assert penalties("at once", 20.0)[0] > at_once[0], "instances warm up"
