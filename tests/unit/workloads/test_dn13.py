"""Instances of DN13: kinds of workflows, sites, due dates and the lower bound of the makespan."""

from __future__ import annotations

from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest

from headway.config import read_cluster, write_cluster
from headway.errors import InvalidInput
from headway.metrics import summarise
from headway.model.graph import length_of, levels
from headway.model.instant import SECOND
from headway.model.job import SHAPES, TaskSpec
from headway.model.node import NodeSpec
from headway.sim.experiment import run
from headway.workloads import dn13

from ...effort import one_in


@pytest.mark.parametrize("kind", dn13.NAMES)
def test_an_instance_is_fixed_by_its_seed_and_within_the_papers_bounds(kind: str) -> None:
    one, same, other = (dn13.instance(kind, seed, jobs=60) for seed in (1, 1, 2))
    assert dict(one.workflows) == dict(same.workflows)
    assert dict(one.workflows) != dict(other.workflows)
    assert np.array_equal(one.due, same.due)
    for graph in one.workflows.values():
        assert len(graph) == 1 or 3 <= len(graph) <= 132
        assert all(1 <= task.cores <= 6 and 10 * SECOND <= task.estimate <= 7200 * SECOND for task in graph)
    assert (one.release == 0).all()
    assert {SHAPES[place] for place in one.shape.tolist()} == set(SHAPES)


def test_kinds_are_what_their_names_say() -> None:
    for graph in dn13.instance("single-task", jobs=20).workflows.values():
        assert len(graph) == 1
    for kind in ("heterogeneous-parallel", "homogeneous-parallel"):
        for graph in dn13.instance(kind, jobs=20).workflows.values():
            inner = graph[1:-1]
            assert levels(graph) == [0, *[1] * len(inner), 2]
            assert (len(set(inner)) == 1) == (kind == "homogeneous-parallel" or len(inner) == 1)
    for graph in dn13.instance("series-parallel", jobs=20).workflows.values():
        at = levels(graph)
        assert all(at.count(level) <= dn13.BRANCHES for level in set(at))
        assert all(at.count(level) == 1 for level in set(at) if level % 2 == 0 and at.count(level - 1) > 1)


def test_due_dates_are_one_and_a_half_critical_paths_and_a_share_of_the_bound() -> None:
    made = dn13.instance("mix", 5, jobs=50)
    graphs = [made.workflows[place] for place in range(50)]
    bound = dn13.lower_bound(graphs, dn13.cluster("mix", 5))
    beyond = made.due - np.array([1.5 * length_of(graph) for graph in graphs])
    assert (beyond >= -1).all()
    assert (beyond <= 1.2 * bound + 1).all()


def test_sites_have_the_processors_of_the_paper() -> None:
    nodes = dn13.cluster("mix")
    assert len(nodes) == 500
    assert {node.site: node.slots for node in nodes} == {model.name: model.cores for model in dn13.MARKET}
    reference = next(node for node in nodes if node.site == "core-i7-870")
    assert reference.speed == pytest.approx(1.0)
    assert len(dn13.cluster("single-task")) == 50
    drawn = {seed: len(dn13.cluster("mix", seed, "drawn")) for seed in range(3)}
    assert len(set(drawn.values())) == 3
    capacity: dict[str, float] = {}
    for node in dn13.cluster("mix", 0, "equal"):
        capacity[node.site] = capacity.get(node.site, 0.0) + node.slots * node.speed
    assert max(capacity.values()) < 1.1 * min(capacity.values())


def test_a_cluster_that_is_written_is_read_again(tmp_path: Path) -> None:
    nodes = (*dn13.cluster("mix", 1, "drawn"), NodeSpec("one", 2, cores=4, kind="k", lease=3 * SECOND), NodeSpec("x-7"))
    write_cluster(nodes, tmp_path / "sites.toml")
    read = read_cluster(tmp_path / "sites.toml")
    assert tuple(getattr(read, "nodes", read)) == nodes


def side_by_side(cores: list[int], slots: int) -> int:
    """How many units of time tasks of one unit take on one machine, by trying all."""
    left, taken = sorted(cores, reverse=True), 0
    while left:
        best: tuple[int, ...] = ()
        for many in range(1, slots + 1):
            for some in combinations_with_replacement(sorted(set(left)), many):
                fits = sum(some) <= slots and all(some.count(one) <= left.count(one) for one in some)
                if fits and (sum(some), len(some)) > (sum(best), len(best)):
                    best = some
        for one in best:
            left.remove(one)
        taken += 1
    return taken


def test_the_bound_knows_what_fits_side_by_side() -> None:
    node = [NodeSpec("a", 6, site="s")]
    fives = [[TaskSpec(SECOND, 5)] for _ in range(10)]
    assert dn13.lower_bound(fives, node) == 10 * SECOND, "work over capacity would say 8.3 s"
    threes = [[TaskSpec(SECOND, 3)] for _ in range(10)]
    assert dn13.lower_bound(threes, [NodeSpec("a", 4, site="s")]) == 10 * SECOND
    assert dn13.lower_bound(threes, node) == 5 * SECOND


@pytest.mark.parametrize("seed", range(8))
def test_tasks_side_by_side_are_not_below_the_bound(seed: int) -> None:
    cores = np.random.default_rng(seed).integers(1, 7, 7).tolist()
    node = [NodeSpec("a", 6, site="s")]
    assert dn13.lower_bound([[TaskSpec(SECOND, one)] for one in cores], node) <= side_by_side(cores, 6) * SECOND


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_no_schedule_is_below_the_bound(seed: int) -> None:
    for kind in dn13.NAMES:
        nodes = dn13.cluster(kind, seed, processors=2)
        made = dn13.instance(kind, seed, 12, nodes)
        graphs = [made.workflows[place] for place in range(12)]
        bound = dn13.lower_bound(graphs, nodes) / SECOND
        for top in ("rr", "lb", "fill"):
            assert summarise(run(made, nodes, f"sites:top={top},each=heft:order=due"))["makespan"] >= bound - 1e-5


def test_what_cannot_be_is_refused() -> None:
    for call, field in (
        (lambda: dn13.instance("mixed"), "kind"),
        (lambda: dn13.instance("mix", -1), "seed"),
        (lambda: dn13.instance("mix", 0, 0), "jobs"),
        (lambda: dn13.cluster("mix", processors=0), "processors"),
        (lambda: dn13.cluster("mix", size="large"), "size"),  # type: ignore[arg-type]  # that is tested
        (lambda: dn13.lower_bound([[TaskSpec(1, 7)]], dn13.cluster("mix")), "cores"),
    ):
        with pytest.raises(InvalidInput) as raised:
            call()
        assert raised.value.field == field


def test_workflows_are_drawn_from_given_ones() -> None:
    """Tasks too wide for the largest processor get as many cores as it has, and nothing is sent."""
    graphs = [(TaskSpec(5 * SECOND, 9), TaskSpec(7 * SECOND, 1, (0,), (100,))), (TaskSpec(60 * SECOND),)]
    nodes = dn13.cluster(dn13.REAL)
    one, same, other = (dn13.drawn(graphs, seed, 30, nodes) for seed in (1, 1, 2))
    assert dict(one.workflows) == dict(same.workflows) != dict(other.workflows)
    plain = {(TaskSpec(5 * SECOND, 6), TaskSpec(7 * SECOND, 1, (0,))), (TaskSpec(60 * SECOND),)}
    assert {*one.workflows.values()} == plain
    assert (one.due >= np.array([1.5 * length_of(graph) - 1 for graph in one.workflows.values()])).all()
    with pytest.raises(InvalidInput, match="workflows"):
        dn13.drawn([], 1, 1, nodes)
