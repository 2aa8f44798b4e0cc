"""The energy of a run: by node, site and job."""

from __future__ import annotations

import numpy as np
import pytest

from headway.config import parse_cluster
from headway.errors import InvalidInput
from headway.metrics import summarise
from headway.metrics.energy import energy_of
from headway.model.instant import SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec, Power
from headway.model.power import Switching
from headway.model.workload import workload_us
from headway.sim.experiment import run

NODES = (
    NodeSpec("a", 2, site="east", power=Power(10.0, 30.0)),
    NodeSpec("b", 2, site="east", power=Power(10.0, 30.0)),
    NodeSpec("c", 1, site="west", power=Power(5.0, 5.0)),
    NodeSpec("d", 4, site="west", power=Power(100.0, 500.0)),
)


def test_a_node_that_is_used_is_on_until_its_site_is_done() -> None:
    # A rigid job on both nodes of the east for 10 s, then one slot for 6 s; the west has nothing to do.
    jobs = workload_us(release=[0, 10 * SECOND], runtime=[10 * SECOND, 6 * SECOND], width=[4, 1], kind=int(Kind.RIGID))
    schedule = run(jobs, NODES, "fcfs")
    energy = energy_of(schedule)
    assert energy is not None
    # Both are on for 16 s at 10 W; busy slots take 10 W each.
    assert energy.nodes == {"a": 160.0 + 260.0, "b": 160.0 + 200.0, "c": 0.0, "d": 0.0}
    assert energy.sites == {"east": 780.0, "west": 0.0}
    # Of a's idle energy the first job has 20 of 26 slot-seconds, and of b's all.
    assert energy.jobs.tolist() == pytest.approx([400 + 160 * 20 / 26 + 160, 60 + 160 * 6 / 26])
    assert summarise(schedule)["energy_joules"] == energy.joules == 780.0


def test_what_runs_over_several_nodes_counts_on_each() -> None:
    jobs = workload_us(release=[0], runtime=[SECOND], width=[9], kind=int(Kind.RIGID))
    energy = energy_of(run(jobs, NODES, "fcfs"))
    assert energy is not None
    assert energy.nodes == {"a": 30.0, "b": 30.0, "c": 5.0, "d": 500.0}


@pytest.mark.parametrize("seed", range(5))
def test_the_energy_of_jobs_is_that_of_the_nodes_and_of_the_sites(seed: int) -> None:
    chance = np.random.default_rng(seed)
    graph = tuple(TaskSpec(int(chance.integers(1, 9)) * SECOND, int(chance.integers(1, 3))) for _ in range(20))
    jobs = workload_us(
        release=[0, 0, 5 * SECOND],
        runtime=[SECOND, 3 * SECOND, 2 * SECOND],
        tasks=[20, 1, 7],
        width=[1, 3, 1],
        kind=[Kind.WORKFLOW, Kind.RIGID, Kind.BAG],
        workflows={0: graph},
    )
    schedule = run(jobs, NODES, "heft")
    energy = energy_of(schedule)
    assert energy is not None
    assert schedule.attempts is not None
    assert energy.jobs.sum() == pytest.approx(energy.joules)
    assert sum(energy.sites.values()) == pytest.approx(energy.joules)
    # Slot by slot, as slowly as can be: the same.
    first = 0
    for node in NODES:
        on_it = [
            (slot, int(start), int(end))
            for begin, count, start, end in zip(
                schedule.attempts.first,
                schedule.attempts.count,
                schedule.attempts.start,
                schedule.attempts.end,
                strict=True,
            )
            for slot in range(begin, begin + count)
        ]
        busy = sum(end - start for slot, start, end in on_it if first <= slot < first + node.slots) / SECOND
        east = [end for slot, _, end in on_it if (slot < 4) == (node.site == "east")]
        on = max(east, default=0) / SECOND if busy else 0.0
        assert node.power is not None
        idle, peak = node.power.idle, node.power.peak
        assert energy.nodes[node.name] == pytest.approx(idle * on + (peak - idle) * busy / node.slots)
        first += node.slots


def test_without_watts_of_every_node_there_is_no_energy() -> None:
    jobs = workload_us(release=[0], runtime=[SECOND])
    schedule = run(jobs, (*NODES, NodeSpec("e")), "fcfs")
    assert energy_of(schedule) is None
    assert "energy_joules" not in summarise(schedule)


def test_a_cluster_file_says_what_nodes_draw() -> None:
    text = '[[node]]\nname = "a"\nidle_watts = 75\npeak_watts = 94.5\ncount = 2\n[[node]]\nname = "b"\n'
    assert [node.power for node in parse_cluster(text)] == [Power(75.0, 94.5), Power(75.0, 94.5), None]


@pytest.mark.parametrize(
    ("lines", "field", "line"),
    [
        ("idle_watts = 75", "peak_watts", 1),
        ("peak_watts = 75", "idle_watts", 1),
        ("idle_watts = -1\npeak_watts = 75", "idle_watts", 3),
        ("idle_watts = 75\npeak_watts = 74", "peak_watts", 4),
        ('idle_watts = 75\npeak_watts = "94"', "peak_watts", 4),
        ("idle_watts = 75\npeak_watts = nan", "peak_watts", 4),
    ],
)
def test_watts_that_cannot_be_are_refused_with_their_line(lines: str, field: str, line: int) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_cluster(f'[[node]]\nname = "a"\n{lines}\n')
    assert (raised.value.field, raised.value.line) == (field, line)


def test_a_node_that_is_off_draws_what_its_site_says() -> None:
    # On a alone: a job of 4 slots until 10 s, then nothing until 100 s, then 4 slots again for 10 s.
    jobs = workload_us(
        release=[0, 100 * SECOND], runtime=[10 * SECOND, 10 * SECOND], width=[4, 4], kind=int(Kind.RIGID)
    )
    rule = Switching("east", 20 * SECOND, 5 * SECOND, 10 * SECOND, off_watts=1.0, switch_joules=7.0)
    schedule = run(jobs, NODES[:2], "fcfs", switching=(rule,))
    words = {"a": 0, "b": 1}
    for node in words.values():
        changes = [(at // SECOND, state.name) for at, number, state in schedule.power if number == node]
        assert changes == [(30, "GOING_OFF"), (35, "OFF"), (100, "COMING_ON"), (110, "ON")]
    energy = energy_of(schedule)
    assert energy is not None
    # Until 120 s: 55 s idle at 10 W, 65 s off at 1 W, 7 J to come on, and 20 s of both slots at 10 W each.
    assert energy.nodes == {"a": 55 * 10.0 + 65.0 + 7.0 + 400.0, "b": 55 * 10.0 + 65.0 + 7.0 + 400.0}
    assert energy.jobs.sum() == pytest.approx(energy.joules)
    assert schedule.end.tolist() == [10 * SECOND, 120 * SECOND]
