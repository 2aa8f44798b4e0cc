"""Pictures: they show what the schedule says, everything on them is named, and no texts overlap."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.errors import HeadwayError, InvalidInput
from headway.live.driver import FIRST_POLICY
from headway.model.actions import JobStatus
from headway.model.instant import NEVER, SECOND
from headway.model.job import TaskSpec
from headway.model.node import NodeSpec
from headway.model.schedule import NOT_YET, STATUSES, Course, Schedule, attempts_of, schedule_of
from headway.model.workload import workload_us
from headway.pictures import Mean, Point, allocation, bars, canvas, comparison, gantt, lines, plane, steps, timeline
from headway.pictures.bounds import JobEnds
from headway.pictures.bounds import ends as ends_of_jobs
from headway.pictures.canvas import ALARM, COLOURS, time_unit_for, time_unit_of
from headway.pictures.gantt import _FATES
from headway.policies import registry
from headway.sim.kernel import Simulation
from headway.traces.wfformat_ran import write_wfformat

from ...effort import one_in

pytestmark = pytest.mark.long

pytest.importorskip("matplotlib")


def run(*rows: tuple[int, int, float, float, bool], jobs: int, capacity: int, **terms: Any) -> Schedule:
    """A schedule of rigid jobs from rows of job, slots as a bit set, start and end in seconds, work lost."""
    start, end = [NOT_YET] * jobs, [NOT_YET] * jobs
    width = [1] * jobs
    for job, slots, begins, ends, _ in rows:
        start[job] = round(begins * SECOND) if start[job] == NOT_YET else start[job]
        end[job] = round(ends * SECOND)
        width[job] = slots.bit_count()
    terms = {"release": [0] * jobs} | terms
    workload = workload_us(runtime=[SECOND] * jobs, width=width, kind=1, **terms)
    ran = attempts_of(
        (job, 0, 0, slots, round(begins * SECOND), round(ends * SECOND), wasted, False)
        for job, slots, begins, ends, wasted in rows
    )
    return schedule_of(workload, Course(start, end, slots=width, attempts=ran), capacity)


def simulated(policy: str, slots: int, *, record: bool = True, **columns: Any) -> Schedule:
    """The schedule of jobs under a policy."""
    nodes = [NodeSpec("n", slots=slots)]
    return Simulation(workload_us(**columns), nodes, registry.find, policy, record=record).run()


def texts(drawn: Any) -> list[tuple[str, Any]]:
    """Every visible text, with its extent in pixels. The figure was laid out when it was drawn, as it is for a file."""
    found = [*drawn.texts, *(text for box in drawn.legends for text in box.get_texts())]
    found += [text for text in (drawn._suptitle, drawn._supxlabel) if text is not None and text not in found]
    for axes in drawn.axes:
        if not axes.get_visible():
            continue
        found += [axes.title, axes._left_title, axes._right_title, *axes.texts]
        if axes.get_legend() is not None:
            found += axes.get_legend().get_texts()
        for axis in (axes.xaxis, axes.yaxis):
            found += [axis.label, axis.get_offset_text(), *(tick.label1 for tick in axis._update_ticks())]
    return [
        (text.get_text(), text.get_window_extent())
        for text in dict.fromkeys(found)
        if text.get_visible() and text.get_text().strip()
    ]


def touching(drawn: Any) -> list[tuple[str, str]]:
    """Pairs of texts that overlap, and texts that are cut off by the edge of the figure."""
    seen = [(text, box.padded(-1)) for text, box in texts(drawn)]
    pairs = [(one, other) for (one, box), (other, second) in combinations(seen, 2) if box.overlaps(second)]
    width, height = drawn.canvas.get_width_height()
    beyond = [
        (text, "edge of the figure")
        for text, box in seen
        if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height
    ]
    return pairs + beyond


def words(drawn: Any) -> list[str]:
    """The texts of a figure, lines joined."""
    return [" ".join(text.split()) for text, _ in texts(drawn)]


def field(drawn: Any, title: str) -> Any:
    """The axes with this title."""
    (found,) = [axes for axes in drawn.axes if axes.get_visible() and title in axes.get_title(loc="left")]
    return found


def bar_lengths(axes: Any) -> list[float]:
    """Lengths of horizontal bars, the highest first."""
    return [bar.get_width() for bar in sorted(axes.patches, key=lambda bar: -bar.get_y())]


def bar_colours(axes: Any) -> list[str]:
    """Colours of horizontal bars, the highest first."""
    from matplotlib.colors import to_hex

    return [to_hex(bar.get_facecolor()) for bar in sorted(axes.patches, key=lambda bar: -bar.get_y())]


def bands(axes: Any) -> dict[str, Any]:
    """The corners of each band of a stack: instants and heights from its lower to its upper edge."""
    return {
        str(band.get_label()): np.concatenate([path.vertices for path in band.get_paths()]) for band in axes.collections
    }


def area(axes: Any, name: str) -> float:
    """The area of a band, in the units of its axes."""
    x, y = bands(axes)[name].T
    return float(abs(np.sum(x * np.roll(y, 1) - y * np.roll(x, 1)))) / 2


def courses(axes: Any) -> dict[str, Any]:
    """Values and edges of step patches, by name."""
    return {str(patch.get_label()): patch.get_data() for patch in axes.patches if hasattr(patch, "get_data")}


THREE = run((0, 0b0011, 0, 30, False), (1, 0b1100, 0, 15, False), (2, 0b1100, 15, 30, False), jobs=3, capacity=4)


def many(jobs: int) -> Schedule:
    """Jobs of 1 s in turn on both of two slots, then a long one on the first; every third job is late."""
    rows = [(job, 0b11, job, job + 1, False) for job in range(jobs)]
    due = [(job + (job % 3 != 0) * 2) * SECOND for job in range(jobs)]
    return run(
        *rows,
        (jobs, 0b01, jobs, 2 * jobs, False),
        jobs=jobs + 1,
        capacity=2,
        release=[job * SECOND for job in range(jobs + 1)],
        due=[*due, NEVER],
    )


def waited_for(record: bool) -> Schedule:
    """A bag on both slots. At 1 s an urgent job gets one of them, where a task of the bag runs until 5 s."""
    return simulated(
        "deadline",
        2,
        record=record,
        release=[0, SECOND],
        runtime=[5 * SECOND, 2 * SECOND],
        estimate=[5 * SECOND, 2 * SECOND],
        tasks=[8, 2],
        due=[40 * SECOND, 9 * SECOND],
        priority=[1, 9],
        label=["bag", "urgent"],
    )


# Gantt charts


def boxes(drawn: Any) -> list[tuple[str, float, float, float, float]]:
    """Bars of a Gantt chart: colour, left, right, low, high."""
    from matplotlib.colors import to_hex

    found = []
    for group in drawn.axes[0].collections:
        for face, path in zip(group.get_facecolor(), group.get_paths(), strict=False):
            (left, low), (right, high) = path.vertices.min(axis=0).tolist(), path.vertices.max(axis=0).tolist()
            found.append((to_hex(face), left, right, round(low, 2), round(high, 2)))
    return sorted(found, key=lambda box: (box[1], box[3]))


def test_a_gantt_chart_has_a_bar_an_attempt() -> None:
    drawn = gantt(THREE, title="three")
    assert boxes(drawn) == [
        (COLOURS[0], 0.0, 30.0, 0.06, 1.94),
        (COLOURS[1], 0.0, 15.0, 2.06, 3.94),
        (COLOURS[2], 15.0, 30.0, 2.06, 3.94),
    ]
    assert set(words(drawn)) >= {"three", "0", "1", "2", "3", "slot", "time on the log's clock (s)"}
    assert "job ended late" not in words(drawn)
    assert gantt(THREE, slots=8).axes[0].get_ylim() == (0, 8)


def test_late_jobs_and_lost_work_are_marked_and_named() -> None:
    from matplotlib.colors import to_hex

    late = run((0, 1, 0, 30, False), (1, 2, 0, 20, True), jobs=2, capacity=2, due=[10 * SECOND, NEVER])
    drawn = gantt(late)
    groups = [group for group in drawn.axes[0].collections if len(group.get_paths())]
    assert sorted((to_hex(group.get_edgecolor()[0]), group.get_hatch() or "") for group in groups) == [
        ("#33383f", "////"),
        (ALARM, ""),
    ]
    assert {"job ended late", "work was lost"} <= set(words(drawn))


def test_letters_differ_from_the_colour_of_their_bar() -> None:
    """They are dark on bright bars, white on dark ones; the picture says what they are, and whose bar there is not."""
    rows = [(job, 1 << job, 0, 30, False) for job in range(12)]
    drawn = gantt(run(*rows, jobs=13, capacity=12, label=[f"j{job}" for job in range(13)]))
    ink = {text.get_text(): text.get_color() for text in drawn.axes[0].texts}
    assert len(ink) == 12
    assert (ink["j0"], ink["j1"], ink["j5"]) == ("white", "#33383f", "#33383f"), "on blue, orange, yellow"
    (note,) = [line for line in words(drawn) if line.startswith("Labels in bars are jobs.")]
    assert note.endswith("1 job of 13 never ran.")


def test_tasks_without_a_length_are_seen() -> None:
    drawn = gantt(run((0, 1, 5, 5, False), (1, 2, 0, 9, False), jobs=2, capacity=2))
    (marks,) = [group for group in drawn.axes[0].collections if group.get_label() == "task without a length"]
    assert np.asarray(marks.get_offsets()).tolist() == [[5.0, 0.5]]
    assert "task without a length" in words(drawn)


def test_a_part_of_a_gantt_chart_has_what_ran_then() -> None:
    drawn = gantt(many(10_000), start=100, end=104.5)
    assert [(left, right) for _, left, right, _, _ in boxes(drawn)] == [(at, at + 1) for at in range(100, 105)]
    assert drawn.axes[0].get_xlim() == (100, 104.5)
    assert {str(job) for job in range(100, 105)} <= set(words(drawn))
    assert gantt(many(5), start=3).axes[0].get_xlim() == (3, 10)
    assert gantt(many(5), end=3).axes[0].get_xlim() == (0, 3)
    idle = run((0, 1, 0, 1, False), (1, 1, 8, 9, False), jobs=2, capacity=1)
    assert boxes(gantt(idle, start=2, end=4, slots=1)) == []


def test_a_part_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"start of the picture is '40 s'; allowed: less than .*\n.*from 0 to 30 s"):
        gantt(THREE, start=40)
    with pytest.raises(InvalidInput, match="end of the picture is '5 s'; allowed: more than 7 s"):
        allocation(THREE, start=7, end=5)
    with pytest.raises(InvalidInput, match="start of the picture is nan; allowed: a finite number"):
        timeline(THREE, start=math.nan)


def test_ten_thousand_jobs_are_pixels_that_say_what_became_of_them() -> None:
    """Twelve colours cannot distinguish so many jobs. A third of them ended late."""
    drawn = gantt(many(10_000))
    (image,) = drawn.axes[0].images
    grid = np.asarray(image.get_array())
    late = float((grid[:, :900] == 2).mean())
    assert late > 0.3, "late ones lie on top where several share a pixel"
    assert (grid[0, 905:] == 1).all()
    assert (grid[1, 905:] == 0).all()
    assert [name for name in words(drawn) if "ran" in name] == ["ran", "ran, and its job ended late"]
    wasted = run(*[(job, 1, job, job + 1, job % 2 == 1) for job in range(3000)], jobs=3000, capacity=1)
    assert "work was lost" in words(gantt(wasted))


def in_background(schedule: Schedule, *jobs: int) -> Schedule:
    """The same schedule with these jobs in the background of their slots."""
    assert schedule.attempts is not None
    return replace(schedule, attempts=replace(schedule.attempts, behind=np.isin(schedule.attempts.job, jobs)))


def test_both_places_of_a_slot_are_seen() -> None:
    """One job on both slots; behind it one on the first, for half the time, and later one on both, alone."""
    rows = (0, 0b11, 0, 20, False), (1, 0b01, 0, 10, False), (2, 0b11, 20, 40, False)
    drawn = gantt(in_background(run(*rows, jobs=3, capacity=2), 1, 2))
    assert [(left, right, low, high) for _, left, right, low, high in boxes(drawn)] == [
        (0, 20, 0.06, 1.94),
        (0, 10, 0.06, 0.36),
        (20, 40, 0.06, 0.36),
        (20, 40, 1.06, 1.36),
    ]
    assert "in the background of the slot" in words(drawn)


def test_labels_are_written_over_strips_where_slots_are_thin() -> None:
    wide = run((0, (1 << 90) - 1, 0, 20, False), (1, 0b11, 0, 20, False), jobs=2, capacity=90, label=["wide", "behind"])
    said = words(gantt(in_background(wide, 1), slots=90))
    assert "wide" in said
    assert "behind" not in said


def test_many_jobs_in_the_background_are_rows_of_pixels_below_the_foreground() -> None:
    """They run in turn on two slots, and one job is behind the first all the time."""
    rows = [(job, 0b11, job, job + 1, False) for job in range(3_000)]
    both = run(*rows, (3_000, 1, 0, 3_000, False), jobs=3_001, capacity=2)
    grid = np.asarray(gantt(in_background(both, 3_000)).axes[0].images[0].get_array())
    assert [set(row.tolist()) for row in grid] == [{3}, {1}, {1}, {1}]
    wide = run(*[(job, (1 << 400) - 1, job, job + 1, False) for job in range(2_001)], jobs=2_001, capacity=400)
    grid = np.asarray(gantt(in_background(wide, *range(1_000))).axes[0].images[0].get_array())
    assert set(np.unique(grid[:, :890]).tolist()) == {3}
    assert len(_FATES) == 4


# Allocation


def test_allocation_stacks_the_slots_that_tasks_ran_on() -> None:
    drawn = allocation(THREE, title="three")
    (axes,) = drawn.axes
    assert [area(axes, f"job {job}") for job in range(3)] == [60.0, 30.0, 30.0]
    assert set(words(drawn)) >= {"job 0", "job 1", "job 2", "slots that are up (mean)", "slots that tasks run on"}
    assert axes.get_ylim()[1] >= 4


@pytest.mark.parametrize("record", [True, False])
def test_allocation_agrees_with_the_schedule_where_slots_are_waited_for(record: bool) -> None:
    """The urgent job has its slot from 1 s, but runs there from 5 s to 9 s, as the schedule says."""
    schedule = waited_for(record)
    assert (schedule.start // SECOND).tolist() == [0, 5]
    drawn = allocation(schedule)
    above, below = drawn.axes
    assert area(above, "job urgent") == 4.0
    assert bands(above)["job urgent"][:, 0].min() == 0, "a band of no height until 5 s"
    heights = {x: y for x, y in bands(above)["job urgent"] if x in (4.999, 5.0)}
    assert heights
    assert area(above, "job bag") == 40.0, "all eight tasks of 5 s"
    assert area(below, "job urgent") == 4.0, "held from 1 s to 5 s, waited for"
    assert area(below, "job bag") == 0.0
    assert {"allocated, not used yet"} <= set(words(drawn))


def test_a_run_in_which_nothing_is_waited_for_has_one_field() -> None:
    assert len(allocation(THREE).axes) == 1


def test_allocation_follows_the_records_of_holdings() -> None:
    """The first job has 1 slot for 10 s, then 3 for 10 s; the second has 2 for 20 s, without a record of its end."""
    workload = workload_us(release=[0, 0], runtime=[1, 1], tasks=[9, 9])
    at, job, slots = [0, 0, 10 * SECOND, 20 * SECOND], [0, 1, 0, 0], [1, 2, 3, 0]
    schedule = schedule_of(workload, Course([0, 0], [20 * SECOND] * 2, holdings=(at, job, slots)), 6)
    (axes,) = allocation(schedule).axes
    assert [area(axes, "job 0"), area(axes, "job 1")] == [40.0, 40.0]
    (part,) = allocation(schedule, start=10, end=15).axes
    assert [area(part, "job 0"), area(part, "job 1")] == [15.0, 10.0]


def test_with_many_jobs_the_small_ones_are_one() -> None:
    drawn = allocation(many(5_000))
    (axes,) = drawn.axes
    assert "4,989 other jobs" in words(drawn)
    total = sum(area(axes, name) for name in bands(axes))
    assert total * 60 == pytest.approx(3 * 5_000, rel=1e-3), "minutes"
    assert area(axes, "job 5000") * 60 == pytest.approx(5_000, rel=1e-3)
    colours = [band.get_facecolor()[0].tolist() for band in axes.collections]
    assert len({tuple(colour) for colour in colours}) == len(colours) == 13


def test_few_jobs_have_the_colours_of_the_gantt_chart() -> None:
    from matplotlib.colors import to_hex

    later = run(*[(job, 1, job, job + 1, False) for job in range(12, 15)], jobs=15, capacity=1)
    (axes,) = allocation(later).axes
    assert {to_hex(band.get_facecolor()[0]) for band in axes.collections} == set(COLOURS[:3])
    assert {colour for colour, *_ in boxes(gantt(later))} == set(COLOURS[:3])


# Over time


def medians(axes: Any) -> list[tuple[float, float]]:
    """The beginning of each median, and its height."""
    (found,) = [group for group in axes.collections if group.get_label() == "median"]
    return [tuple(segment[0].tolist()) for segment in found.get_segments() if len(segment)]


def points(axes: Any) -> list[tuple[float, float]]:
    """When each job was released, and its value."""
    (found,) = [group for group in axes.collections if group.get_label() == "a job"]
    return [tuple(at) for at in np.asarray(found.get_offsets()).tolist()]


def test_a_timeline_has_queue_use_wait_and_lateness() -> None:
    """Jobs 0 and 1 run at once. Job 2 waits from 5 s to 10 s, and ends 3 s after its due date."""
    rows = (0, 0b01, 0, 10, False), (1, 0b10, 0, 20, False), (2, 0b01, 10, 13, False)
    due = [20 * SECOND, NEVER, 10 * SECOND]
    schedule = run(*rows, jobs=3, capacity=2, release=[0, 0, 5 * SECOND], due=due)
    drawn = timeline(schedule, title="two slots", slots=2)
    queue, use, wait, late = drawn.axes
    heights, edges, _ = courses(queue)["waiting"]
    assert (heights.tolist(), edges.tolist()) == ([0, 1, 0], [0, 5, 10, 20])
    heights, edges, _ = courses(use)["tasks run"]
    assert (heights.tolist(), edges.tolist()) == ([2, 2, 1], [0, 10, 13, 20])
    assert points(wait) == [(0, 0), (0, 0), (5, 5)]
    assert points(late) == [(0, -10), (5, 3)]
    assert set(words(drawn)) >= {
        "two slots",
        "Jobs waiting to start: at most 1 at once",
        "Slots that tasks run on",
        "slots there are",
        "Wait of the jobs released then: median 0 s, longest 5 s",
        "End minus due date, of the jobs released then: 50 % late",
        "a job",
        "the due date",
        "wait (s)",
        "late (s)",
    }


def test_a_timeline_of_ten_thousand_jobs_shows_means_and_says_so() -> None:
    drawn = timeline(many(10_000))
    queue, use, _, late = drawn.axes
    heights, edges, _ = courses(use)["tasks run"]
    assert len(heights) == 1_500
    assert float((heights * np.diff(edges)).sum()) * 60 == pytest.approx(30_000, rel=1e-6), "minutes"
    assert queue.get_title(loc="left").startswith("Jobs waiting to start: at most 0 at once (means over 13.3 s)")
    assert late.get_title(loc="left").endswith("33.3 % late")
    assert {"5th to 95th percentile", "median"} <= set(words(drawn))


def test_medians_and_bands_are_of_the_jobs_of_a_span_and_very_early_ones_are_cut_off() -> None:
    """Of 300 jobs, one a second, every tenth is 1 s late, and the others are 99 s early."""
    rows = [(job, 1, job, job + 1, False) for job in range(300)]
    due = [(job + (0 if job % 10 == 0 else 100)) * SECOND for job in range(300)]
    release = [job * SECOND for job in range(300)]
    drawn = timeline(run(*rows, jobs=300, capacity=1, release=release, due=due))
    late = drawn.axes[3]
    assert late.get_title(loc="left").endswith("10 % late; early ones are cut off")
    assert {height for _, height in medians(late)} == {-99}
    low, high = late.get_ylim()
    assert low == pytest.approx(-high)


def test_what_ran_in_the_background_does_not_use_slots_where_that_is_known() -> None:
    """Two jobs on one slot, one behind the other. Without a record of that, the picture says that both are counted."""
    alone = replace(run((0, 1, 0, 10, False), (1, 1, 0, 10, False), jobs=2, capacity=1), alone=np.array([10, 5]))
    over_time = timeline(in_background(alone, 1))
    assert courses(over_time.axes[1])["tasks run"][0].tolist() == [1]
    assert "Slots that tasks run on, in the foreground" in words(over_time)
    assert "slots that tasks run on, in the foreground" in words(allocation(in_background(alone, 1)))
    unknown = replace(alone, attempts=None)
    over_time = timeline(unknown)
    assert courses(over_time.axes[1])["tasks run"][0].tolist() == [2]
    assert "Slots that tasks run on, in the background too" in words(over_time)
    assert "slots that tasks run on, in the background too" in words(allocation(unknown))


def test_a_timeline_without_due_dates_leaves_lateness_out() -> None:
    drawn = timeline(THREE)
    assert len(drawn.axes) == 3
    assert not [word for word in words(drawn) if "late" in word]


def test_a_timeline_shows_slots_that_are_held_but_waited_for() -> None:
    use = timeline(waited_for(False)).axes[1]
    heights, edges, _ = courses(use)["allocated, not used yet"]
    assert dict(zip(edges.tolist(), heights.tolist(), strict=False)) == {0: 0, 1: 1, 5: 0}


def test_jobs_that_never_ended_are_late_until_the_end_of_the_run() -> None:
    workload = workload_us(release=[0, 0], runtime=[1, 1], due=[2 * SECOND, NEVER])
    schedule = schedule_of(workload, Course([NOT_YET, 0], [NOT_YET, 60 * SECOND]), 1)
    late = timeline(schedule).axes[3]
    assert late.get_title(loc="left").endswith("100 % late")
    assert points(late) == [(0, 58)]


def test_jobs_that_failed_are_late_and_have_no_lateness() -> None:
    """However early the one that failed ended."""
    workload = workload_us(release=[0, 0, 0], runtime=[1] * 3, due=[90 * SECOND, 90 * SECOND, NEVER])
    became = [STATUSES.index(status) for status in (JobStatus.FAILED, JobStatus.SUCCEEDED, JobStatus.FAILED)]
    end = [1 * SECOND, 60 * SECOND, 1 * SECOND]
    late = timeline(schedule_of(workload, Course([0, 0, 0], end, status=became), 3)).axes[3]
    assert late.get_title(loc="left").endswith("50 % late, with 1 that failed")
    assert points(late) == [(0, -30)]


# Comparisons

METRICS = {
    "fcfs": {"wait_mean": 10.0, "makespan": 100.0, "utilisation": 0.5, "deadline_miss_penalty": 44_641_610.0},
    "edf": {"wait_mean": 5.0, "makespan": math.nan, "utilisation": 0.75, "deadline_miss_penalty": 0.0},
}


def test_every_field_has_the_same_scale_and_says_so() -> None:
    """However far apart its values are: scales are linear from 0, and say their unit and what is better."""
    names = ["deadline_miss_penalty", "utilisation", "wait_mean"]
    drawn = comparison(METRICS, names=names, title="log.swf: 2 jobs on 64 slots, offered load 0.80", note="A note.")
    for axes in drawn.axes:
        assert axes.get_xscale() == "linear"
        assert axes.get_xlim()[0] == 0
        assert axes.get_xlabel().endswith("linear scale from 0")
    said = words(drawn)
    assert not [word for word in said if "did not end" in word or "Hatched" in word]
    assert "log.swf: 2 jobs on 64 slots, offered load 0.80" in said
    assert "A note. Dark bars are the best in their panel." in said
    assert said.count("less is better") == 2
    assert said.count("more is better") == 1
    assert "millions of priority × seconds, linear scale from 0" in said
    assert bar_lengths(field(drawn, "Penalty")) == [pytest.approx(44.64161), 0]
    assert {"44.6", "0"} <= set(said)
    assert bar_lengths(field(drawn, "Utilisation")) == [50, 75]
    assert not [word for word in said if "1e" in word or "10^" in word]


def test_the_best_of_a_field_is_dark_and_the_others_are_pale() -> None:
    drawn = comparison(METRICS | {"sjf": METRICS["edf"]}, names=["utilisation", "deadline_miss_penalty", "wait_mean"])
    for title in ("Utilisation", "Penalty", "Wait"):
        pale, dark, same = bar_colours(field(drawn, title))
        assert dark == same != pale, title
    unknown = {name: told | {"made_up": place} for place, (name, told) in enumerate(METRICS.items())}
    drawn = comparison(unknown, names=["made_up"])
    assert len(set(bar_colours(field(drawn, "Made up")))) == 1
    assert "less is better" not in words(drawn)


def test_times_are_in_a_unit_of_few_digits() -> None:
    told = {"easy": {"wait_mean": 7_421.0, "work_lost": 5_000_000.0}}
    drawn = comparison(told, names=["wait_mean", "work_lost"])
    assert bar_lengths(field(drawn, "Wait")) == [pytest.approx(7_421 / 60)]
    assert "min, linear scale from 0" in words(drawn)
    assert "slot-days, linear scale from 0" in words(drawn)


def test_what_is_no_number_has_no_bar() -> None:
    drawn = comparison(METRICS, names=["makespan"])
    assert bar_lengths(drawn.axes[0]) == [100, 0]
    assert "–" in words(drawn)


def fields(*told: dict[str, float]) -> tuple[list[str], str]:
    """The panels of a comparison of the usual measures, and the line below it."""
    drawn = comparison({f"policy {number}": one for number, one in enumerate(told)})
    (note,) = [line for line in words(drawn) if line.startswith("Dark bars")]
    return [axes.get_title(loc="left") for axes in drawn.axes if axes.get_visible()], note


PLAIN: dict[str, float] = {"jobs": 9, "jobs_due": 0, "wait_mean": 1, "response_mean": 1, "bounded_slowdown_mean": 1}
PLAIN |= {"makespan": 1, "kills": 0, "migrations": 0, "work_lost": 0}
DUE = {"jobs_due": 1, "deadline_miss_rate": 1, "deadline_miss_penalty": 1, "priority_violation_rate": 1}


def test_without_names_what_suits_the_jobs_is_drawn() -> None:
    """Without due dates wait, response, slowdown and makespan; what had to be redone if anything had to be."""
    usual = ["Wait, mean", "Response time, mean", "Slowdown, mean", "Makespan"]
    assert fields(PLAIN)[0] == usual
    assert fields(PLAIN | {"kills": 3, "work_lost": 9})[0] == [*usual, "Tasks killed", "Work that had to be redone"]
    missed = ["Due dates missed", "Penalty of missed due dates", "Jobs passed over by lower priorities"]
    assert fields(PLAIN | DUE)[0] == [*missed, "Wait, mean", "Slowdown, mean", "Makespan"]


def test_what_cannot_tell_policies_apart_is_told_below_and_not_drawn() -> None:
    """Without priorities there is no penalty and nobody is passed over: tardiness says how late jobs are."""
    late = PLAIN | DUE | {"deadline_miss_penalty": 0, "priority_violation_rate": 0, "tardiness_mean": 9}
    panels, note = fields(late, late | {"deadline_miss_rate": 0.5, "wait_mean": 1.00001})
    assert panels == ["Due dates missed", "Tardiness, mean"]
    assert note == (
        "Dark bars are the best in their panel. The same under every policy, so not drawn: penalty of missed due dates "
        "(0); jobs passed over by lower priorities (0 %); wait, mean (1 s); slowdown, mean (1); makespan (1 s)."
    )
    panels, note = fields(PLAIN, PLAIN)
    assert len(panels) == 4
    assert note == "Dark bars are the best in their panel."


def test_a_policy_under_which_jobs_did_not_end_well_is_marked_and_never_the_best() -> None:
    told = {
        "whole": {"jobs": 40, "jobs_failed": 0, "jobs_unfinished": 0, "wait_mean": 9.0},
        "partial": {"jobs": 40, "jobs_failed": 1, "jobs_unfinished": 3, "wait_mean": 2.0},
        "worse": {"jobs": 40, "jobs_failed": 0, "jobs_unfinished": 0, "wait_mean": 10.0},
    }
    drawn = comparison(told, names=["wait_mean"])
    best, partial, worse = bar_colours(drawn.axes[0])
    assert best != partial == worse
    assert [bar.get_hatch() for bar in sorted(drawn.axes[0].patches, key=lambda bar: -bar.get_y())] == [
        None,
        "////",
        None,
    ]
    said = words(drawn)
    assert "partial (1 of 40 jobs failed, 3 of 40 jobs did not end)" in said
    assert {"whole", "worse"} <= set(said)
    assert [line for line in said if "Means leave them out" in line]


# Nothing overlaps

LONG = "deadline:spare=priority,emergency=0.25,lookahead=0.125,another_parameter=a_rather_long_value"
SWEEP = {
    f"load {load}": {
        name: Point(Mean(x * load, 0.01), Mean(y, y / 3))
        for name, x, y in (("priority", 0, 117e3), ("workload", 0, 117.2e3), (LONG, 0, 860), ("edf", 0.03, 13e3))
    }
    for load in (0.2, 0.8, 1.5)
}
METRICS_OF_MANY = {
    f"{LONG}{number}": {
        "jobs_due": 9,
        "deadline_miss_rate": number / 10,
        "deadline_miss_penalty": 10.0 ** (number + 3),
        "priority_violation_rate": 0.0,
        "wait_mean": 123_456.0 * number,
        "bounded_slowdown_mean": math.nan,
        "makespan": 5.0,
        "kills": 0,
        "work_lost": 0.0,
        "migrations": 0,
    }
    for number in range(7)
}
EPOCH = 1_700_000_000
LIVE = run(
    (0, 1, EPOCH, EPOCH + 4_000, False), (1, 2, EPOCH + 60, EPOCH + 90_000, False), jobs=2, capacity=2,
    release=[EPOCH * SECOND] * 2, due=[(EPOCH + 9) * SECOND] * 2,
)  # fmt: skip
ALL_LATE = simulated(
    "edf",
    3,
    release=[at * SECOND for at in range(40)],
    runtime=[7 * SECOND] * 40,
    tasks=[3] * 40,
    due=[at * SECOND for at in range(1, 41)],
)
NO_TIME = run((0, 1, 0, 0, False), (1, 1, 0, 0, False), jobs=2, capacity=1)
ONE = run((0, 1, 0, 5, False), jobs=1, capacity=1, label=["the only one"])
FAR = run((0, 1, 90_000_000, 90_000_400, False), jobs=1, capacity=1, release=[90_000_000 * SECOND])

DRAWINGS: dict[str, Callable[[], Any]] = {
    **{
        f"{draw.__name__} of {name}": lambda draw=draw, schedule=schedule, name=name: draw(
            schedule, title=f"{LONG}: {name * 9}"
        )
        for draw in (gantt, allocation, timeline)
        for name, schedule in {
            "three": THREE,
            "waited for": waited_for(True),
            "a server": LIVE,
            "late ones": ALL_LATE,
            "no time": NO_TIME,
            "one": ONE,
            "a late beginning": FAR,
        }.items()
    },
    "timeline of many": lambda: timeline(many(3_000), title="many"),
    "comparison of many": lambda: comparison(METRICS_OF_MANY, title=LONG * 3, note=LONG * 3),
    "comparison of two": lambda: comparison(METRICS, names=["wait_mean", "utilisation"], title="two"),
    "bars": lambda: bars({LONG[:30]: MEANS, "b": MEANS}, measure="mean slowdown", spread="95 % interval", title="x"),
    "bars, log": lambda: bars({"a": MEANS_FAR}, measure="penalty", spread="standard error", log=True, title="x"),
    "lines": lambda: lines({"a": CURVES, "b": CURVES}, over="load", measure="penalty", spread="error", title="x"),
    "lines, log": lambda: lines({"a": CURVES}, over="load", measure="penalty", log=True, title="x"),
    "plane": lambda: plane(SWEEP, x="average priority violation rate", y="deadline miss penalty", title="plane"),
    "steps": lambda: steps({"normal": {"live": CURVE}}, measure="slots", shaded={"down": (2, 5)}, title="steps"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", one_in(3, [*DRAWINGS]))
def test_no_text_lies_upon_another(name: str) -> None:
    assert touching(DRAWINGS[name]()) == []


def test_touching_is_noticed() -> None:
    drawn = comparison(METRICS, names=["wait_mean"], title="two")
    drawn.axes[0].annotate("on it", (5, 1))
    drawn.axes[0].annotate("on it too", (5, 1))
    assert ("on it", "on it too") in touching(drawn)


def test_a_server_s_times_are_dates() -> None:
    drawn = gantt(LIVE)
    (label,) = [word for word in words(drawn) if word.startswith("time (")]
    assert "clock" not in label
    assert any("2023" in word for word in words(drawn))
    seconds = run((0, 1, EPOCH, EPOCH + 10, False), jobs=1, capacity=1, release=[EPOCH * SECOND])
    assert [word for word in words(gantt(seconds)) if re.fullmatch(r"\d\d:\d\d:\d\d", word)]
    assert time_unit_of(0, 5 * SECOND).dates is False


def test_time_is_shown_in_a_unit_of_few_digits() -> None:
    units = [time_unit_for(seconds * SECOND).name for seconds in (0, 600, 601, 36_000, 36_001, 5 * 86_400, 10**8)]
    assert units == ["s", "s", "min", "min", "h", "h", "days"]


# Many runs

MEANS = {"first": Mean(40.0, 0.0), "second": Mean(20.0, math.nan), LONG: Mean(10.0, 3.0)}
MEANS_FAR = {"first": Mean(4_000_000.0, 500.0), "second": Mean(0.0, 0.0), "third": Mean(10.0, 30.0)}
CURVES = {
    "first": {0.2: Mean(5.0, 1.0), 1.0: Mean(500_000.0, 9.0)},
    "zero": {0.2: Mean(0.0, 0.0), 1.0: Mean(7.0, 9.0)},
}
CURVE = np.array([0.0, 10.0, 20.0]), np.array([4.0, 2.0, 0.0])


def test_bars_are_as_long_as_their_means_and_errors_are_named() -> None:
    drawn = bars({"panel": MEANS}, measure="penalty", spread="standard error")
    assert bar_lengths(drawn.axes[0]) == [40, 20, 10]
    assert drawn.axes[0].get_xlim()[0] == 0
    assert {"penalty linear scale from 0", "Error bars: standard error."} <= set(words(drawn))
    (both,) = bars({"a": {"x": Mean(4, 1), "y": Mean(2, 0)}}, measure="m").axes[0].containers[1].lines[2]
    with_error, without = both.get_segments()
    assert np.asarray(with_error)[:, 0].tolist() == [3, 5]
    assert not np.asarray(without).size


def test_on_a_logarithmic_scale_there_are_points_instead_of_bars() -> None:
    drawn = bars({"one": MEANS}, measure="penalty", log=True)
    (axes,) = drawn.axes
    assert not axes.patches
    assert axes.get_xscale() == "log"
    assert np.asarray(axes.collections[0].get_offsets())[:, 0].tolist() == [40, 20, 10]
    assert "penalty logarithmic scale" in words(drawn)


@pytest.mark.parametrize("most", [2.0, 9.0, 40.0, 7e3, 1e9])
def test_a_logarithmic_scale_names_ticks_however_far_it_reaches(most: float) -> None:
    means = {"low": Mean(1.1, 0.05), "high": Mean(most, 0.0)}
    (axes,) = bars({"panel": means}, measure="penalty", log=True).axes
    low, high = axes.get_xlim()
    named = [
        text for text, box in texts(axes.figure) if text.replace(",", "").replace(".", "").isdigit() and box.y1 < 140
    ]
    assert 2 <= len(named) <= 8
    assert 0.5 < low < 1.1 < most < high


def test_zero_has_its_place_on_a_logarithmic_scale() -> None:
    drawn = bars({"far": MEANS_FAR}, measure="penalty", log=True)
    (axes,) = drawn.axes
    assert "penalty logarithmic scale, 0 set apart" in words(drawn)
    at = axes.transData.transform([(value, 1) for value in (0, 10, 4e6)])[:, 0]
    box = axes.get_window_extent()
    assert box.x0 - 1 <= at[0] < at[1] < at[2] <= box.x1
    assert 0 in axes.get_xticks()
    drawn = lines({"a": CURVES}, over="load", measure="penalty", log=True)
    assert drawn.axes[0].get_ylim()[0] == 0


def test_panels_of_one_measure_have_one_scale() -> None:
    """Bars, lines and planes; only panels that each name a measure of their own have scales of their own."""
    panels = {"low": {"a": Mean(1, 0)}, "high": {"a": Mean(900, 50)}}
    for log in (False, True):
        low, high = bars(panels, measure="penalty", log=log, better="less").axes
        assert low.get_xlim() == high.get_xlim()
        assert low.get_xlabel().endswith(f"{'logarithmic scale' if log else 'linear scale from 0'}, less is better")
    curves = {name: {"a": {0.2: one["a"]}} for name, one in panels.items()}
    low, high = lines(curves, over="load", measure="penalty").axes
    assert low.get_ylim() == high.get_ylim()
    low, high = lines(curves, over="load", measure="", better="less").axes
    assert low.get_ylim()[1] < 10 < high.get_ylim()[1]
    assert low.get_ylabel() == "linear scale from 0, less is better"
    drawn = plane(SWEEP, x="violation", y="penalty", better="less")
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in drawn.axes}) == 1
    assert [axes.get_ylabel() for axes in drawn.axes] == ["penalty\nlogarithmic scale, less is better", "", ""]


def test_errors_are_cut_off_at_0_where_no_mean_is_below_it() -> None:
    (axes,) = bars({"a": {"x": Mean(1, 3)}}, measure="ratio").axes
    assert axes.get_xlim()[0] == 0
    assert axes.get_xlabel() == "ratio\nlinear scale from 0"
    (axes,) = bars({"a": {"x": Mean(-1, 3)}}, measure="gain").axes
    assert axes.get_xlim()[0] < -4


def test_names_stand_where_no_panel_does() -> None:
    drawn = plane({f"load {place}": next(iter(SWEEP.values())) for place in range(7)}, x="violation", y="penalty")
    *panels, names = drawn.axes
    assert len(panels) == 7
    assert names.get_legend().get_texts()[0].get_text() == "priority"
    assert not touching(drawn)


def test_lines_have_bands_as_wide_as_their_errors_and_a_name_for_them() -> None:
    means = {"policy": {0.2: Mean(5, 1), 1.0: Mean(5, 2)}, "other": {0.2: Mean(9, 0), 1.0: Mean(9, 0)}}
    drawn = lines({"panel": means}, over="load", measure="penalty", spread="95 % interval")
    (axes,) = drawn.axes
    corners = axes.collections[0].get_paths()[0].vertices
    assert corners[corners[:, 0] == 1.0][:, 1].min() == 3
    assert corners[corners[:, 0] == 1.0][:, 1].max() == 7
    assert {"policy", "other", "Bands: 95 % interval.", "penalty linear scale from 0"} <= set(words(drawn))


def test_a_line_below_another_is_wider_and_so_are_its_markers() -> None:
    same = {0.2: Mean(5, 0), 1.0: Mean(9, 0)}
    first, second, third = lines({"a": dict.fromkeys("xyz", same)}, over="load", measure="m").axes[0].lines
    assert first.get_linewidth() > second.get_linewidth() > third.get_linewidth()
    assert first.get_markersize() > second.get_markersize() > third.get_markersize()


def test_lines_about_a_level_are_seen_on_both_sides_of_it() -> None:
    panels = {"panel": {"above": {0.0: Mean(3, 0), 1.0: Mean(4, 0)}, "below": {0.0: Mean(-2, 0), 1.0: Mean(-1, 0)}}}
    drawn = lines(panels, over="cost", measure="gain", level=(0, "as before"), better="more")
    low, high = drawn.axes[0].get_ylim()
    assert low < -2 < 4 < high
    assert {"as before", "gain linear scale, more is better"} <= set(words(drawn))


def test_no_point_of_a_plane_is_hidden() -> None:
    """In one place each is smaller than the one before. A single one has the usual size. None is cut off."""
    drawn = plane(SWEEP, x="violation", y="penalty", spread="standard error", title="plane")
    cell = drawn.axes[0]
    sizes = {lines.get_label(): lines.lines[0].get_markersize() for lines in cell.containers}
    assert sizes["priority"] > sizes["workload"] + 3
    assert sizes["edf"] == 6
    assert cell.get_xlim()[0] < 0
    assert all(not lines.lines[0].get_clip_on() for lines in cell.containers)
    assert "Error bars: standard error." in words(drawn)
    with pytest.raises(HeadwayError, match="nothing to draw"):
        plane({}, x="x", y="y")


def test_steps_lie_over_each_other_and_what_is_shaded_is_named() -> None:
    drawn = steps(
        {"normal": {"simulated": CURVE, "live": CURVE}}, measure="slots", shaded={"six slots are down": (5, 15)}
    )
    broad, fine = drawn.axes[0].lines
    assert broad.get_linewidth() > fine.get_linewidth()
    assert broad.get_xydata().tolist() == fine.get_xydata().tolist() == [[0, 4], [10, 2], [20, 0], [20, 0]]
    assert {"normal, simulated", "normal, live", "six slots are down"} <= set(words(drawn))
    with pytest.raises(HeadwayError, match="nothing to draw"):
        steps({"normal": {}}, measure="slots")


# Pages


DOCS = Path(__file__).resolve().parents[3] / "docs"


def python_of(page: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.thorough
def test_the_examples_of_the_how_to_draw_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{job},{5 * job},2,,{8 + job % 5},{8 + job % 5},{5 * job + 40},1,,u\n" for job in range(40))
    Path("jobs.csv").write_text("job,release,tasks,width,runtime,estimate,due,priority,rate,user\n" + rows)
    names: dict[str, Any] = {}
    flow = workload_us(release=[0], runtime=[1], tasks=2, kind=2, workflows={0: (TaskSpec(1), TaskSpec(2, 1, (0,)))})
    write_wfformat(Simulation(flow, [NodeSpec("n")], registry.find, "fcfs", record=True).run(), 0, "montage.json")
    *examples, live = python_of("how-to/draw-pictures.md")
    assert len(examples) == 4
    for example in examples:
        exec(example, names)
    drawn = {name for policy in ("edf", "tempo") for name in (f"gantt-{policy}.png", f"allocation-{policy}.png")}
    drawn |= {
        f"{kind}-{policy}.{end}" for policy in ("edf", "tempo") for kind, end in (("part", "png"), ("timeline", "pdf"))
    }
    drawn |= {"comparison.svg", "due.png", "queue.png", "sweep.png", "montage.svg"}
    assert {path.name for path in tmp_path.iterdir()} == drawn | {"jobs.csv", "montage.json"}
    monkeypatch.setattr("headway.live.store.history.history", lambda *_: waited_for(False))
    exec(live, names)
    assert Path("cluster.png").exists()
    assert Path("allocation.png").exists()


def test_the_picture_of_the_readme_has_the_default_and_our_best_policy() -> None:
    """`make pictures` draws it again."""
    image = pytest.importorskip("PIL.Image")
    with image.open(DOCS / "pictures" / "policies-compared.png") as picture:
        policies = picture.text["Description"].split("; ")
    assert FIRST_POLICY in policies
    assert [policy for policy in policies if policy.startswith("tempo")]


# Files


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_path_is_written_in_the_format_it_ends_in(tmp_path: Path, suffix: str) -> None:
    comparison(METRICS, tmp_path / f"a.{suffix}", names=["wait_mean"])
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert (tmp_path / f"a.{suffix}").read_bytes().startswith(begins)


def test_pictures_that_cannot_be_drawn_say_why(tmp_path: Path) -> None:
    bare = schedule_of(workload_us(release=[0], runtime=[1]), Course([NOT_YET], [NOT_YET]), 1)
    none = schedule_of(workload_us(release=[], runtime=[]), Course([], []), 1)
    with pytest.raises(HeadwayError, match="no attempts to draw"):
        gantt(bare, tmp_path / "a.png")
    with pytest.raises(HeadwayError, match="no task of the schedule ran"):
        allocation(bare, tmp_path / "a.png")
    with pytest.raises(HeadwayError, match="no jobs to draw"):
        timeline(none, tmp_path / "a.png")
    with pytest.raises(HeadwayError, match="nothing to compare"):
        comparison({}, tmp_path / "a.png")
    with pytest.raises(InvalidInput, match=r"measure is 'wait_men'; .*\nDid you mean wait_mean"):
        comparison(METRICS, tmp_path / "a.png", names=["wait_men"])
    with pytest.raises(InvalidInput, match=r"picture is 'a.doc'; allowed: a name that ends in one of .*png"):
        gantt(THREE, tmp_path / "a.doc")
    with pytest.raises(HeadwayError, match="cannot write"):
        gantt(THREE, tmp_path / "absent" / "a.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "draw",
    [
        lambda: gantt(THREE),
        lambda: allocation(THREE),
        lambda: timeline(THREE),
        lambda: comparison(METRICS, names=["wait_mean"]),
    ],
)
def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, draw: Callable[[], None]) -> None:
    monkeypatch.setattr(canvas, "find_spec", lambda name: None)
    with pytest.raises(HeadwayError, match=r"pictures need matplotlib\n.*headway\[plot\]"):
        draw()


@pytest.mark.parametrize(("seconds", "unit"), [(90, "s"), (3000, "min"), (200_000, "h"), (2_000_000, "days")])
def test_the_ends_of_jobs_have_an_axis_in_a_unit_that_fits_them(seconds: float, unit: str) -> None:
    row = JobEnds("job 1", 1.5 * seconds, ((seconds, seconds / 2, None), (None, None, None)))
    (axes,) = ends_of_jobs((row,), ("now", "under edf")).axes
    assert axes.get_xlabel() == f"time from now on ({unit})"
    low, high = axes.get_xlim()
    assert low < 0 < high < 1000, "numbers of few digits"
    (bound, dot, due, *_) = (line.get_xdata() for line in axes.lines)
    assert 0 < bound[0] < dot[0] < due[0] < bound[1] == high, "it may end beyond reach"


def test_due_dates_that_are_far_away_leave_the_ends_readable() -> None:
    day = 86_400
    rows = [JobEnds(f"job {due}", due, ((60, 50, 70), (80, 70, 90))) for due in (-30 * day, 75, 30 * day)]
    drawn = ends_of_jobs(rows, ("now", "under edf"))
    low, high = drawn.axes[0].get_xlim()
    assert -90 < low < 0 < 90 < high < 270
    markers = [line.get_marker() for line in drawn.axes[0].lines]
    assert (markers.count("<"), markers.count(">")) == (1, 1)
    assert "Arrows: due farther away." in drawn.get_supxlabel()
