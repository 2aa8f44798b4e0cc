"""Transforms of workloads, one by one and as the recipe of Lin14 6.3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.errors import InvalidInput
from headway.model.instant import NEVER, SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.workload import COLUMNS, Workload, workload_us
from headway.traces import read_swf, transforms


def jobs(release: list[float], runtime: float | list[float] = 1, **columns: Any) -> Workload:
    """Jobs released at these seconds, with run times in seconds."""
    runtimes = runtime if isinstance(runtime, list) else [runtime] * len(release)
    return workload_us(
        release=[round(at * SECOND) for at in release],
        runtime=[round(time * SECOND) for time in runtimes],
        **columns,
    )


def seconds(column: np.ndarray) -> list[float]:
    return (column / SECOND).tolist()


def untouched(before: Workload, after: Workload, *changed: str) -> bool:
    pairs = ((getattr(before, name), getattr(after, name)) for name in COLUMNS if name not in changed)
    return all(np.array_equal(one, other, equal_nan=one.dtype.kind == "f") for one, other in pairs)


def test_the_first_jobs_are_those_released_first() -> None:
    three = jobs([5, 1, 3])
    assert transforms.first(three, 2).label.tolist() == [1, 2]
    assert len(transforms.first(three, 9)) == 3
    with pytest.raises(InvalidInput, match="first is 0; allowed: 1 job or more"):
        transforms.first(three, 0)


def test_a_slice_in_time_holds_its_start_but_not_its_end() -> None:
    some = transforms.between(jobs([1, 2, 2, 3]), 2 * SECOND, 3 * SECOND)
    assert seconds(some.release) == [2, 2]
    with pytest.raises(InvalidInput, match="slice is"):
        transforms.between(jobs([1, 2]), 3 * SECOND, 9 * SECOND)


def test_run_times_and_estimates_are_scaled_and_nothing_else() -> None:
    before = jobs([1, 2], 3, estimate=[4 * SECOND, -1], due=[5 * SECOND, NEVER])
    after = transforms.scale_runtimes(before, 0.5)
    assert seconds(after.runtime) == [1.5, 1.5]
    assert after.estimate.tolist() == [2 * SECOND, -1]
    assert untouched(before, after, "runtime", "estimate")


def test_the_tasks_of_a_workflow_are_scaled_with_it() -> None:
    flow = jobs([0], kind=Kind.WORKFLOW, tasks=2, workflows={0: (TaskSpec(10), TaskSpec(4, cores=2, after=(0,)))})
    scaled = transforms.scale_runtimes(flow, 0.5)
    assert scaled.workflows[0] == (TaskSpec(5), TaskSpec(2, cores=2, after=(0,)))


def test_gaps_are_scaled_from_the_first_release_and_due_dates_move_along() -> None:
    before = jobs([10, 20, 40], due=[11 * SECOND, NEVER, 45 * SECOND])
    after = transforms.scale_gaps(before, 0.1)
    assert seconds(after.release) == [10, 11, 13]
    assert after.due.tolist() == [11 * SECOND, NEVER, 18 * SECOND]
    assert untouched(before, after, "release", "due")


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize(
    "transform",
    [
        transforms.scale_gaps,
        transforms.scale_runtimes,
        lambda workload, factor: transforms.due_dates(workload, factor=factor),
        lambda workload, factor: transforms.with_load(workload, factor, slots=1),
    ],
)
def test_a_factor_is_a_number_above_zero(transform: Callable[..., Workload], factor: float) -> None:
    with pytest.raises(InvalidInput, match="allowed: a number above 0"):
        transform(jobs([0, 1]), factor)


def test_a_batch_reaches_one_second_from_its_first_job() -> None:
    together = transforms.batches(jobs([0, 0.5, 1, 1.4, 2.3, 9]))
    assert seconds(together.release) == [0, 0, 0, 1.4, 1.4, 9]


def test_processors_become_tasks_and_tasks_processors() -> None:
    mixed = jobs([0, 1, 2], tasks=[1, 3, 2], width=[4, 1, 1], kind=[Kind.RIGID, Kind.BAG, Kind.WORKFLOW])
    bags, rigid = transforms.as_bags(mixed), transforms.as_rigid(mixed)
    assert (bags.tasks.tolist(), bags.width.tolist()) == ([4, 3, 2], [1, 1, 1])
    assert bags.kind.tolist() == [Kind.BAG, Kind.BAG, Kind.WORKFLOW]
    assert (rigid.tasks.tolist(), rigid.width.tolist()) == ([1, 1, 2], [4, 3, 1])
    assert rigid.kind.tolist() == [Kind.RIGID, Kind.RIGID, Kind.WORKFLOW]
    assert bags.kind.dtype == rigid.kind.dtype == np.int8


def priorities(*users: str) -> dict[str, float]:
    workload = transforms.priorities_by_user(jobs([0] * len(users), user=list(users)))
    return dict(zip(workload.user.tolist(), workload.priority.tolist(), strict=True))


def test_tasks_of_what_was_a_rigid_job_have_the_mean_of_its_processes() -> None:
    rigid = jobs([1, 2], width=[2, 3], cpu=[0.5, 0.9], uses={0: (0.25, 0.75)})
    bags = transforms.as_bags(rigid)
    assert (bags.cpu.tolist(), dict(bags.uses)) == ([0.5, 0.9], {})
    assert dict(transforms.first(rigid, 1).uses) == {0: (0.25, 0.75)}


def test_the_fewer_jobs_a_user_has_the_higher_their_priority() -> None:
    assert priorities("a", "a", "a", "b", "c", "c") == {"a": 1, "c": 50, "b": 100}


def test_users_with_equally_many_jobs_stand_in_order_of_their_ids() -> None:
    assert priorities("10", "9", "x", "") == {"9": 100, "10": 67, "": 34, "x": 1}


def test_a_user_alone_has_the_highest_priority() -> None:
    assert priorities("a", "a") == {"a": 100}


def test_more_users_than_priorities_share_them_in_order() -> None:
    given = priorities(*(str(user) for user in range(250)))
    values = [given[str(user)] for user in range(250)]
    assert values == sorted(values, reverse=True)
    assert set(values) == set(range(1, 101))


def test_due_dates_are_multiples_of_the_run_time() -> None:
    due = transforms.due_dates(jobs([10, 10], [3, 5], tasks=[1, 8]), factor=1.5)
    assert seconds(due.due) == [14.5, 17.5]


def test_lin14_gives_jobs_with_many_tasks_more_time() -> None:
    """Lin14 6.3.1: twice the run time with less than 4 tasks, else 2 x run time x tasks / 4."""
    due = transforms.due_dates(jobs([1] * 4, 10, tasks=[3, 4, 6, 40]), shared_by=4)
    assert seconds(due.due) == [21, 21, 31, 201]
    with pytest.raises(InvalidInput, match="shared_by is 0"):
        transforms.due_dates(due, shared_by=0)


def test_work_counts_tasks_widths_and_the_cores_of_a_workflow() -> None:
    plan = (TaskSpec(2 * SECOND), TaskSpec(3 * SECOND, cores=2))
    mixed = jobs([0, 0, 0], 5, tasks=[2, 1, 2], width=[1, 3, 1], kind=[0, 1, 2], workflows={2: plan})
    assert transforms.work(mixed).tolist() == [10, 15, 8]


def test_gaps_are_scaled_to_the_load_that_is_wanted() -> None:
    calm = jobs([0, 50, 100], 10, tasks=2)
    assert transforms.offered_load(calm, 4) == pytest.approx(0.15)
    busy = transforms.with_load(calm, 0.75, 4)
    assert transforms.offered_load(busy, 4) == pytest.approx(0.75)
    assert seconds(busy.release) == [0, 10, 20]


@pytest.mark.parametrize("load", [1e-300, 1e-14])
def test_a_load_that_takes_longer_than_the_calendar_is_refused(load: float) -> None:
    with pytest.raises(InvalidInput, match=r"load is .*; allowed: 2.6e-11 or more, or the last job is released beyond"):
        transforms.with_load(jobs([0, 50, 100], 10, tasks=2), load, 1)
    with pytest.raises(InvalidInput, match="times must fit the calendar"):
        transforms.scale_runtimes(jobs([0], 10), 1e300)


def test_without_gaps_work_or_slots_there_is_no_load() -> None:
    with pytest.raises(InvalidInput, match="time between the first and the last release is 0"):
        transforms.offered_load(jobs([1, 1]), 4)
    with pytest.raises(InvalidInput, match="slots is 0"):
        transforms.offered_load(jobs([1, 2]), 0)
    with pytest.raises(InvalidInput, match="work of all jobs is 0"):
        transforms.with_load(jobs([1, 2], 0), 0.5, 1)


def test_a_sample_is_consecutive_drawn_and_the_same_for_the_same_seed() -> None:
    whole = jobs([float(at) for at in range(1000)])
    starts = set()
    for seed in range(20):
        some = transforms.sample(whole, 0.01, seed)
        assert len(some) == 10
        assert np.diff(some.label).tolist() == [1] * 9
        assert transforms.sample(whole, 0.01, seed).label.tolist() == some.label.tolist()
        starts.add(int(some.label[0]))
    assert len(starts) > 10
    assert len(transforms.sample(jobs([0, 1]), 0.01, 1)) == 1
    assert len(transforms.sample(whole, 1, 1)) == 1000
    for share in (0, -1, 1.1, float("nan")):
        with pytest.raises(InvalidInput, match="sample is"):
            transforms.sample(whole, share, 1)


def test_the_recipe_of_lin14_by_hand() -> None:
    """Lin14 6.3.1 on a whole log of three jobs."""
    log = jobs(
        [100, 105, 200],
        [1000, 3000, 2000],
        width=[2, 8, 3],
        user=["a", "a", "b"],
        estimate=[9000 * SECOND] * 3,
    )
    done = transforms.lin14(log, seed=1, share=1)
    assert (done.tasks.tolist(), done.width.tolist(), set(done.kind)) == ([2, 8, 3], [1, 1, 1], {Kind.BAG})
    assert seconds(done.runtime) == [1, 3, 2]
    assert seconds(done.estimate) == [9, 9, 9]
    assert seconds(done.release) == [0, 0, 10]  # the second came 0.5 s after the first
    assert seconds(done.due) == [2, 12, 14]
    assert done.priority.tolist() == [1, 1, 100]
    assert done.label.tolist() == log.label.tolist()


def test_a_recipe_is_found_by_its_name() -> None:
    log = jobs([0, 10, 20])
    by_name, direct = transforms.by_recipe(log, "lin14", seed=3), transforms.lin14(log, seed=3)
    assert untouched(by_name, direct)
    with pytest.raises(InvalidInput, match=r"recipe is 'lin41'; allowed: lin14\nDid you mean lin14\?"):
        transforms.by_recipe(log, "lin41", seed=3)


def test_lin14_samples_of_the_log_it_used(shared_data: Callable[[str], Path]) -> None:
    """Lin14 6.3.1: one percent of SDSC-Par96; the heaviest jobs run for some hundred seconds once scaled."""
    log = read_swf(shared_data("swf/SDSC-Par-1996-3.1-cln.swf.gz"))
    samples = [transforms.lin14(log, seed=seed) for seed in range(5)]
    for workload in samples:
        assert len(workload) == 321
        assert workload.release[0] == 0
        assert workload.priority.min() == 1
        assert workload.priority.max() == 100
        assert (workload.due > workload.release).any()
        assert workload.runtime.max() < 1000 * SECOND
    assert len({workload.label[0] for workload in samples}) == 5


def test_all_times_are_scaled_and_due_dates_keep_their_share() -> None:
    workload = workload_us(
        release=[10 * SECOND, 30 * SECOND],
        runtime=[4 * SECOND, 2 * SECOND],
        estimate=[8 * SECOND, -1],
        due=[30 * SECOND, NEVER],
    )
    done = transforms.scale_times(workload, 0.5)
    assert seconds(done.release) == [10, 20]
    assert seconds(done.runtime) == [2, 1]
    assert done.estimate.tolist() == [4 * SECOND, -1]
    assert done.due.tolist() == [20 * SECOND, NEVER]
    with pytest.raises(InvalidInput, match="factor is 0"):
        transforms.scale_times(workload, 0)


def test_jobs_end_at_their_estimate_where_somebody_gave_one() -> None:
    before = jobs([0, 1, 2, 3], [10, 10, 10, 0], estimate=[4 * SECOND, -1, 10 * SECOND, 0], notes=("made up",))
    after = transforms.cut_at_estimates(before)
    assert seconds(after.runtime) == [4, 10, 10, 0]
    assert after.notes == ("made up", "jobs that ran longer than their estimate, and are cut there: 1")
    assert untouched(before, after, "runtime")
    assert transforms.cut_at_estimates(after) is after
