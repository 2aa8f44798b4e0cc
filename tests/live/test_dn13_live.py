"""DN13 live: short workflows of real commands over two sites, and the same in the simulator."""

from __future__ import annotations

from headway.model.graph import length_of, levels
from headway.model.instant import to_seconds
from headway.reproduce.dn13.live import Asked, montage, perform


def test_a_workflow_has_the_shape_of_montage_whatever_its_size() -> None:
    for commands in (12, 30, 200):
        graph, names = montage(commands, seed=1)
        assert len(graph) == len(names) == len(set(names)) == commands
        assert max(levels(graph)) == 7  # project, compare, fit, model, correct, table, add, view
        images = sum(name.startswith("project") for name in names)
        assert sum(name.startswith("correct") for name in names) == images
        assert sum(not any(number in task.after for task in graph) for number in range(commands)) == 1
    assert montage(30, seed=1) == montage(30, seed=1) != montage(30, seed=2)


def test_each_site_runs_a_workflow_and_the_makespan_is_about_what_the_simulator_says() -> None:
    """The bounds are wide, because the machine may be busy: a run takes at least as long as its commands sleep."""
    asked = Asked(commands=30, seconds=0.15)
    counted: list[int] = []
    result = perform(asked, counted.append)
    live, simulated, delayed = (row[1] for row in result.rows)
    graphs = [montage(30, number, 0.15)[0] for number in range(2)]
    assert live >= max(to_seconds(length_of(graph)) for graph in graphs)
    assert simulated <= delayed <= 1.5 * live
    assert counted[-1] == 60
