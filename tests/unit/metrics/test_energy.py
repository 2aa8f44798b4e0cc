"""The energy of a run: by node, site and job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from headway.config import parse_cluster
from headway.core.recorder import Recorder
from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.metrics import summarise
from headway.metrics.energy import energy_between, energy_of
from headway.model.events import (
    Event,
    JobSubmitted,
    NodeDown,
    NodeJoined,
    NodeOff,
    NodeResized,
    NodeUp,
    SwitchingChosen,
    TaskEnded,
    Woke,
)
from headway.model.instant import NEVER, SECOND
from headway.model.job import Bag, Kind, TaskSpec
from headway.model.node import NodeSpec, Power
from headway.model.outcome import Outcome
from headway.model.power import Switching
from headway.model.schedule import Schedule
from headway.model.workload import workload_us
from headway.policies.registry import find
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
    # A slot in use takes 15 W, half of the peak, whatever else runs; 5 W of an idle one are of no job.
    assert energy.jobs.tolist() == pytest.approx([40 * 15.0, 6 * 15.0])
    assert energy.idle == {"a": 6 * 5.0, "b": 2 * 6 * 5.0, "c": 0.0, "d": 0.0}
    assert summarise(schedule)["energy_joules"] == energy.joules == 780.0


def test_what_runs_over_several_nodes_counts_on_each() -> None:
    jobs = workload_us(release=[0], runtime=[SECOND], width=[9], kind=int(Kind.RIGID))
    energy = energy_of(run(jobs, NODES, "fcfs"))
    assert energy is not None
    assert energy.nodes == {"a": 30.0, "b": 30.0, "c": 5.0, "d": 500.0}


@pytest.mark.parametrize("seed", range(5))
def test_the_energy_of_jobs_and_of_none_is_that_of_the_nodes_and_of_the_sites(seed: int) -> None:
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
    assert energy.jobs.sum() + energy.idle_joules == pytest.approx(energy.joules)
    assert min(energy.idle.values()) > -1e-6
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
    # Each job has all slots for 10 s; the rest is of none, with what was drawn off and to come on.
    assert energy.jobs.tolist() == [2 * 300.0, 2 * 300.0]
    assert energy.idle == {"a": 35 * 10.0 + 65.0 + 7.0, "b": 35 * 10.0 + 65.0 + 7.0}
    assert energy.jobs.sum() + energy.idle_joules == pytest.approx(energy.joules)
    assert schedule.end.tolist() == [10 * SECOND, 120 * SECOND]


def recorded(events: Sequence[Event], until: int) -> Schedule:
    """What a recorder told of a core that was fed with these events, and woken after each."""
    core = Scheduler(find, "fcfs")
    recorder = Recorder(core, attempts=True, run_times=True)
    for event in events:
        for one in (event, Woke(event.at)):
            recorder.note(one, list(core.handle(one)), event.at)
            core.check()
    jobs = {event.job.id: event.job for event in events if isinstance(event, JobSubmitted)}
    return recorder.schedule_by_release(
        jobs, dict.fromkeys(jobs, NEVER), dict.fromkeys(jobs, 0.0), until=until * SECOND
    )


def ended(at: int, job: int, task: int = 0) -> Event:
    return TaskEnded(at * SECOND, job, task, 1, Outcome.SUCCEEDED)


def test_the_energy_of_a_job_stops_at_its_end_and_what_is_of_none_goes_on() -> None:
    events = [NodeJoined(0, NODES[0]), NodeJoined(0, NODES[1]), JobSubmitted(0, Bag(1)), ended(10, 1)]
    found = []
    for until in (10, 100):
        energy = energy_between(recorded(events, until), 0, until * SECOND)
        assert energy is not None
        assert energy.jobs.tolist() == [10 * 15.0]
        assert energy.jobs.sum() + energy.idle_joules == pytest.approx(energy.joules)
        found.append(energy.idle)
    # One slot of a was idle for 10 s, and all of b; then everything.
    assert found == [{"a": 50.0, "b": 100.0}, {"a": 50.0 + 900.0, "b": 1000.0}]


def test_the_energy_of_a_node_that_is_resized_follows_the_slots_that_it_had() -> None:
    a = NODES[0]
    events = [
        NodeJoined(0, a),
        JobSubmitted(0, Bag(1, tasks=2)),
        NodeResized(10 * SECOND, "a", 1),  # the second slot goes when its task has ended
        ended(20, 1, 1),
        ended(30, 1),
        NodeResized(30 * SECOND, "a", 4),
        JobSubmitted(30 * SECOND, Bag(2)),
        ended(40, 2),
    ]
    energy = energy_between(recorded(events, 40), 0, 40 * SECOND)
    assert energy is not None
    assert energy.nodes == {"a": 30 * 30.0 + 10 * (10 + 20 / 4)}
    assert energy.jobs.tolist() == [30 * 30.0, 10 * 30 / 4]
    assert energy.idle == {"a": pytest.approx(10 * 10 * 3 / 4)}


def test_what_jobs_take_and_what_is_of_none_is_everything_also_where_nodes_are_switched_and_lost() -> None:
    rule = Switching("", 5 * SECOND, SECOND, 2 * SECOND, off_watts=1.0, switch_joules=7.0)
    events = [
        NodeJoined(0, NODES[0]),
        NodeJoined(0, NODES[1]),
        SwitchingChosen(0, (rule,)),
        JobSubmitted(0, Bag(1)),
        NodeDown(3 * SECOND, "a"),
        NodeUp(4 * SECOND, "a"),
        Woke(9 * SECOND),
        NodeOff(10 * SECOND, "b", 1),
        Woke(11 * SECOND),
        ended(12, 1),
        Woke(20 * SECOND),
    ]
    for since, until in ((0, 30), (2, 11), (10, 10)):
        energy = energy_between(recorded(events, 30), since * SECOND, until * SECOND)
        assert energy is not None
        assert energy.jobs.sum() + energy.idle_joules == pytest.approx(energy.joules)
        assert min(energy.idle.values()) >= 0
