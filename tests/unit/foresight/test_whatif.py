"""What would be if something were otherwise: by hand, where run times are known; with the same draws, where not."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from headway import NodeSpec, workload_of
from headway.core.record import StateRecord
from headway.foresight.coming import DrawnArrivals
from headway.foresight.futures import Exactly
from headway.foresight.present import Present, RunTimesTold, run_times_known, with_told
from headway.foresight.whatif import WhatIf, added, what_if
from headway.live.store.past import PastJob
from headway.model.events import JobChanged, NodeDrained, NodeJoined
from headway.model.instant import SECOND
from headway.model.job import NAME_MAX, Kind, TaskSpec
from headway.model.workload import BagTimes
from headway.policies.registry import find
from headway.sim.kernel import Simulation
from headway.testing import job

from .test_futures import Evenly
from .test_renting import OFFERED
from .test_renting import state as rentable

RUN_TIMES = {0: 10.0, 1: 20.0, 2: 5.0}


def three(policy: str = "fcfs") -> StateRecord:
    """At 4 s job 0 has run for 4 of 10 s on the only slot; job 1 (20 s, due at 40) and job 2 (5 s, due at 16) wait."""
    log = workload_of(
        release=[0, 0, 0], runtime=[10, 20, 5], estimate=[10, 20, 5], due=[np.nan, 40, 16], rate=[1, 1, 3]
    )
    simulation = Simulation(log, [NodeSpec("a", 1)], find, policy)
    simulation.advance(4 * SECOND)
    return replace(simulation.scheduler.dump(), now=4 * SECOND)


def asked(state: StateRecord, *, told: RunTimesTold = MappingProxyType({}), **how: object) -> WhatIf:
    run_times = with_told(lambda job, task: Exactly(RUN_TIMES[job.id]), told)
    return what_if(state, find, run_times, count=4, **how)  # type: ignore[arg-type]


def medians(found: WhatIf) -> tuple[list[float | None], list[float | None]]:
    return [end.median for end in found.now.end], [end.median for end in found.then.end]


def test_another_policy_lets_the_urgent_job_go_first() -> None:
    found = asked(three(), policy="edf")
    assert medians(found) == ([10, 30, 35], [10, 35, 15])
    assert found.now.on_time[1:] == (1, 0)
    assert found.then.on_time[1:] == (1, 1)
    assert found.now.late.median == 1
    assert found.now.cost.median == 3 * 19  # 19 s late, at 3 a second
    assert found.then.cost == (0, 0, 0)
    assert found.now.over.median == found.then.over.median == 35


def test_one_node_more_runs_what_waits_at_once() -> None:
    assert medians(asked(three(), changes=[NodeJoined(4 * SECOND, NodeSpec("b", 1, speed=2))]))[1] == [10, 14, 15]


def test_on_a_node_that_drains_nothing_starts() -> None:
    found = asked(three(), changes=[NodeDrained(4 * SECOND, "a")])
    assert medians(found)[1] == [10, None, None]
    assert found.then.late.median == 2
    assert found.then.cost.median is None  # late without end


def test_a_job_that_goes_first() -> None:
    assert medians(asked(three("priority"), changes=[JobChanged(4 * SECOND, 2, priority=1)])) == (
        [10, 30, 35],
        [10, 35, 15],
    )


def test_jobs_that_are_added_keep_the_distance_of_their_due_dates() -> None:
    state = three()
    events, known = added(workload_of(release=[100], runtime=[7], estimate=[8], due=[150]), state.now, 2)
    assert [(event.job.id, event.job.release, event.job.due) for event in events] == [(3, 4 * SECOND, 54 * SECOND)]
    assert known == {3: (7 * SECOND,)}
    assert medians(asked(state, told=known, changes=events)) == ([10, 30, 35], [10, 30, 35, 42])


def test_tasks_that_are_added_run_as_long_as_each_of_them_did() -> None:
    """A workflow of two tasks, one after the other, of 3 and 4 s, and a bag of two of 1 and 2 s, behind the others."""
    graph = (TaskSpec(3 * SECOND), TaskSpec(4 * SECOND, after=(0,)))
    jobs = workload_of(release=[0, 0], runtime=[7, 1.5], tasks=[2, 2], kind=[int(Kind.WORKFLOW), int(Kind.BAG)])
    bags = {1: BagTimes(tasks=(SECOND, 2 * SECOND))}
    state = three()
    events, known = added(replace(jobs, workflows={0: graph}, bags=bags), state.now, 2)
    assert known == {3: (3 * SECOND, 4 * SECOND), 4: (SECOND, 2 * SECOND)}
    assert medians(asked(state, told=known, changes=events))[1][3:] == [42, 45]


def test_jobs_that_are_added_have_the_names_of_their_file_and_no_id_of_a_job_that_was_there() -> None:
    jobs = workload_of(release=[0, 0], runtime=[7, 8], label=["tonight", "x" * 2000], after={1: (0,)})
    events, known = added(jobs, 0, 41)
    assert [(event.job.id, event.job.name, event.job.after) for event in events] == [
        (42, "tonight", ()),
        (43, "x" * NAME_MAX, (42,)),
    ]
    assert known == {42: (7 * SECOND,), 43: (8 * SECOND,)}


def test_who_is_not_touched_by_a_change_has_the_same_bounds() -> None:
    state = three()
    events, _ = added(workload_of(release=[0], runtime=[7]), state.now, 2)
    found = what_if(state, find, lambda job, task: Evenly(0, 60), changes=events, seed=3)
    assert found.now.end == found.then.end[:3]
    low, high = found.now.end[0].low, found.now.end[0].high
    assert low is not None
    assert high is not None
    assert 4 < low < high < 60.001


def test_jobs_that_come_are_counted_on_both_sides() -> None:
    """Every 10 s comes a job of 8 s, due 9 s later; then twice as often, which is more than the slot can do."""
    state = replace(three(), jobs=())
    came = workload_of(release=[0, 1, 2, 3], runtime=[8] * 4, estimate=[8] * 4, due=[9, 10, 11, 12], rate=[2] * 4)

    def every(seconds: int) -> DrawnArrivals:
        release = state.now + seconds * SECOND * np.arange(1, 5)
        return lambda rng: replace(came, release=release, due=release + 9 * SECOND)

    idle = replace(state, nodes=tuple(replace(node, spec=node.spec) for node in state.nodes))
    found = asked(idle, arrivals=(every(10), every(5)), within=20 * SECOND)
    now, then = found.now.later, found.then.later
    assert now is not None
    assert then is not None
    assert (now.jobs, now.late, now.cost, now.wait) == ((2, 2, 2), (0, 0, 0), (0, 0, 0), (0, 0, 0))
    assert then.jobs == (4, 4, 4)
    assert then.late == (3, 3, 3), "they wait 0, 3, 6 and 9 s, and may wait 1"
    assert then.cost == (2 * (2 + 5 + 8),) * 3
    assert then.wait.median == 4.5
    assert asked(three(), policy="edf").then.later is None
    seldom = asked(idle, arrivals=(lambda rng: every(5)(rng) if rng.random() < 0.4 else None, None), within=20 * SECOND)
    now, then = seldom.now.later, seldom.then.later
    assert now is not None
    assert then is not None
    assert (now.jobs.low, now.jobs.high) == (0, 4)
    assert now.wait == (4.5, 4.5, 4.5), "where no jobs come, none waits, and none waits for ever"
    assert (then.jobs, then.wait) == ((0, 0, 0), (None, None, None))


def test_what_rented_machines_cost_is_told_beside_what_they_save() -> None:
    """Ten tasks of ten minutes on two slots, due in half an hour: four run on a machine that costs one an hour."""
    found = what_if(rentable(OFFERED), find, lambda *_: Exactly(600.0), policy="sites:top=prefer,rent=no", count=2)
    assert (found.now.money, found.then.money) == ((1, 1, 1), (0, 0, 0))
    assert (found.now.late.median, found.then.late.median) == (0, 1)
    assert asked(three()).now.money is None


def test_run_times_are_learnt_from_what_the_journal_has_deleted_too() -> None:
    past = (PastJob(replace(job(9, estimate=100), name="p"), 5, 10 * SECOND, {}),) * 3
    done = Simulation(workload_of(release=[0], runtime=[1], estimate=[1]), [NodeSpec("a", 1)], find, "fcfs").run()
    known = run_times_known(Present(three(), done, {0: job(0, estimate=1)}, past))
    assert known(replace(job(10, estimate=100), name="p"), 0).quantile(0.3) == 10.0
