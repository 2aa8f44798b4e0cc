"""The jobs of a workload as they are submitted to the core."""

from __future__ import annotations

from headway.config import uniform_cluster
from headway.metrics import summarise
from headway.model.instant import SECOND
from headway.model.job import SHAPES, Bag, Kind, PenaltyShape, Rigid, TaskSpec, Workflow
from headway.model.workload import workload_us
from headway.sim.experiment import run
from headway.sim.specs import specs


def test_every_term_of_a_workload_reaches_the_core() -> None:
    plan = (TaskSpec(3), TaskSpec(4, 2, (0,)))
    workload = workload_us(
        release=[5, 0, 9],
        runtime=[7, 8, 0],
        tasks=[3, 1, 2],
        width=[1, 4, 1],
        estimate=[10, -1, -1],
        due=[50, 2**62, 60],
        priority=[2.5, 0, 1],
        rate=[3, 1, 0],
        user=["ann", "bob", ""],
        kind=[int(Kind.BAG), int(Kind.RIGID), int(Kind.WORKFLOW)],
        workflows={2: plan},
    )
    told = [
        Rigid(0, width=4, user="bob"),
        Bag(1, 5, tasks=3, estimate=10, due=50, priority=2.5, rate=3, user="ann"),
        Workflow(2, 9, due=60, priority=1, rate=0, graph=plan),
    ]
    assert list(specs(workload)) == told
    assert list(specs(workload, chunk=2)) == told


def test_the_penalty_grows_as_the_workload_says_and_policies_see_it() -> None:
    linear, root, square = PenaltyShape
    for shapes, penalty in (
        ((linear, linear), 9 + 2 * 16),
        ((root, root), 3 + 2 * 4),
        ((square, square), 81 + 2 * 256),
        ((root, square), 3 + 2 * 256),
    ):
        places = [SHAPES.index(shape) for shape in shapes]
        jobs = workload_us(release=[0, 0], runtime=[9 * SECOND, 16 * SECOND], due=[0, 0], rate=[1.0, 2.0], shape=places)
        assert tuple(spec.shape for spec in specs(jobs)) == shapes
        assert summarise(run(jobs, uniform_cluster(2), "edf"))["total_penalty"] == penalty
