"""Pictures of workflows: their graphs, and Gantt charts by site and node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.errors import InvalidInput
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.sim.kernel import Simulation

pytestmark = pytest.mark.long

pytest.importorskip("matplotlib")

from headway.pictures import gantt, workflow  # noqa: E402
from headway.pictures.canvas import ALARM  # noqa: E402
from headway.pictures.workflow import TASKS_DRAWN_MAX, places  # noqa: E402

S = SECOND
FORK = (TaskSpec(S), TaskSpec(9 * S, 1, (0,)), TaskSpec(2 * S, 1, (0,)), TaskSpec(S, 1, (1, 2)))
NODES = (NodeSpec("a", 2, site="here"), NodeSpec("b", 1, site="there"), NodeSpec("c", 1, site="here"))


def flows(*graphs: tuple[TaskSpec, ...], labels: tuple[str, ...] = ()) -> Workload:
    return workload_us(
        release=[0] * len(graphs),
        runtime=[0] * len(graphs),
        tasks=[len(graph) for graph in graphs],
        kind=[Kind.WORKFLOW] * len(graphs),
        workflows=dict(enumerate(graphs)),
        task_labels={0: labels} if labels else {},
    )


def words(drawn: Any) -> list[str]:
    (axes,) = drawn.axes
    return [text.get_text() for text in axes.texts]


def test_the_critical_path_is_red() -> None:
    from matplotlib.colors import to_rgba

    drawn = workflow(FORK, labels=("split", "long", "short", "join"))
    (axes,) = drawn.axes
    lines, red, marks = axes.collections
    assert (len(lines.get_segments()), len(red.get_segments())) == (2, 2)
    faces = [tuple(face) == to_rgba(ALARM) for face in marks.get_facecolors()]
    assert faces == [True, True, False, True]
    assert words(drawn) == ["split", "long", "short", "join"]
    assert drawn._supxlabel.get_text().startswith("4 tasks and 4 edges. Red: the critical path, 11 s of 13 s of work")


def test_tasks_stand_by_level_and_none_on_another() -> None:
    across, up = places(FORK)
    assert across.tolist() == [0, 1, 1, 2]
    assert len({*zip(across.tolist(), up.tolist(), strict=True)}) == 4


def test_chains_side_by_side_do_not_cross() -> None:
    width, length = 6, 4
    order = np.random.default_rng(1).permutation(width)
    tasks = [TaskSpec(S) for _ in range(width)]
    for level in range(1, length):
        shuffled = np.random.default_rng(level).permutation(width)
        where = {int(chain): number for number, chain in enumerate(order)}
        tasks += [TaskSpec(S, 1, ((level - 1) * width + where[int(chain)],)) for chain in shuffled]
        order = shuffled
    _, up = places(tasks)
    for number, task in enumerate(tasks):
        for before in task.after:
            assert up[number] == up[before]


def test_long_labels_are_cut_and_many_are_left_out() -> None:
    drawn = workflow(FORK, labels=("x" * 30, "b", "c", "d"))
    assert words(drawn)[0] == f"xxxx…{'x' * 13}"
    assert words(workflow([TaskSpec(S)] * 100)) == []


@pytest.mark.parametrize("tasks", [0, TASKS_DRAWN_MAX + 1])
def test_too_many_tasks_are_refused(tasks: int) -> None:
    with pytest.raises(InvalidInput, match=f"number of tasks to draw is {tasks}; allowed: 1 to {TASKS_DRAWN_MAX}"):
        workflow([TaskSpec(S)] * tasks)


def test_a_picture_is_written(tmp_path: Path) -> None:
    workflow(FORK, tmp_path / "graph.svg", title="a fork")
    assert "<svg" in (tmp_path / "graph.svg").read_text()


def chart(workload: Workload, nodes: tuple[NodeSpec, ...] = NODES) -> Any:
    done = Simulation(workload, nodes, registry.find, "fcfs", record=True).run()
    (axes,) = gantt(done, slots=sum(node.slots for node in nodes)).axes
    return axes


def test_slots_stand_by_site_and_node() -> None:
    axes = chart(flows((TaskSpec(S),) * 4, (TaskSpec(S),) * 4))
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "c", "b"]
    assert axes.get_yticks().tolist() == [1, 2.5, 3.5]
    assert [(text.get_text(), text.xy[1]) for text in axes.texts if text.get_rotation()] == [
        ("here", 1.5),
        ("there", 3.5),
    ]
    assert axes.get_ylabel() == "node"


def bars_of(axes: Any) -> list[tuple[float, float]]:
    """Left edges and lower edges of all bars."""
    paths = [path for collection in axes.collections for path in collection.get_paths() if len(path.vertices) > 4]
    return sorted((round(float(path.vertices[0][0]), 2), round(float(path.vertices[0][1]) - 0.06)) for path in paths)


def test_bars_are_where_their_nodes_are() -> None:
    """The task with two cores fits on `a` alone, the others fill `b`, which is drawn above `c`, and `c`."""
    axes = chart(flows((TaskSpec(5 * S, 2), TaskSpec(5 * S), TaskSpec(5 * S), TaskSpec(S, 1, (1, 2)))))
    assert bars_of(axes) == [(0, 0), (0, 2), (0, 3), (5, 0)]


def test_nodes_of_one_site_need_no_site() -> None:
    axes = chart(flows((TaskSpec(S),) * 4), (NodeSpec("a", 2), NodeSpec("b", 1)))
    assert axes.get_ylabel() == "node of local"
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]


def test_of_one_workflow_the_tasks_are_named() -> None:
    axes = chart(flows(FORK, labels=("split", "long", "short", "join")))
    shown = {text.get_text() for text in axes.texts}
    assert {"split", "long", "short", "join"} <= shown
    axes = chart(flows(FORK, FORK))
    assert "long" not in {text.get_text() for text in axes.texts}
