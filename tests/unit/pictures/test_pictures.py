"""Pictures: the coloured areas are as large as what they stand for, with few jobs and with many."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.errors import HeadwayError, InvalidInput
from headway.model.instant import NEVER, SECOND
from headway.model.schedule import NOT_YET, Schedule, attempts_of, schedule_of
from headway.model.workload import workload_of
from headway.pictures import Mean, Point, allocation, bars, comparison, gantt, lines, plane, steps
from headway.pictures.canvas import ALARM, COLOURS, FAINT, clock_for

pytestmark = pytest.mark.long

image = pytest.importorskip("matplotlib.image")


def pixels(path: Path, colour: str) -> int:
    """How many pixels of a picture have exactly this colour."""
    wanted = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    shown = np.rint(image.imread(path)[:, :, :3] * 255).astype(int)
    return int((shown == wanted).all(axis=2).sum())


def run(*rows: tuple[int, int, int, int, bool], jobs: int, capacity: int, **terms: Any) -> Schedule:
    """A schedule of rigid jobs from rows of job, slots as a bit set, start and end in seconds, work lost."""
    start, end = [NOT_YET] * jobs, [NOT_YET] * jobs
    width = [1] * jobs
    for job, slots, begins, ends, _ in rows:
        start[job] = begins * SECOND if start[job] == NOT_YET else start[job]
        end[job] = ends * SECOND
        width[job] = slots.bit_count()
    workload = workload_of(release=[0] * jobs, runtime=[SECOND] * jobs, width=width, kind=1, **terms)
    ran = attempts_of(
        (job, slots, begins * SECOND, ends * SECOND, wasted, False) for job, slots, begins, ends, wasted in rows
    )
    return schedule_of(workload, start=start, end=end, slots=width, capacity=capacity, attempts=ran)


THREE = run((0, 0b0011, 0, 30, False), (1, 0b1100, 0, 15, False), (2, 0b1100, 15, 30, False), jobs=3, capacity=4)


def many(jobs: int) -> Schedule:
    """Jobs of 1 s in turn on both of two slots, then a long one on the first."""
    rows = [(job, 0b11, job, job + 1, False) for job in range(jobs)]
    return run(*rows, (jobs, 0b01, jobs, 2 * jobs, False), jobs=jobs + 1, capacity=2)


def test_a_gantt_chart_gives_each_job_its_area(tmp_path: Path) -> None:
    gantt(THREE, tmp_path / "gantt.png", title="three")
    first, second, third = (pixels(tmp_path / "gantt.png", colour) for colour in COLOURS[:3])
    assert first > 20_000
    assert second == pytest.approx(first / 2, rel=0.06)
    assert third == pytest.approx(second, rel=0.06)
    assert pixels(tmp_path / "gantt.png", COLOURS[3]) == 0
    assert pixels(tmp_path / "gantt.png", ALARM) == 0


def test_late_jobs_and_lost_work_are_seen(tmp_path: Path) -> None:
    late = run((0, 1, 0, 30, False), (1, 2, 0, 20, True), jobs=2, capacity=2, due=[10 * SECOND, NEVER])
    gantt(late, tmp_path / "late.png")
    assert pixels(tmp_path / "late.png", ALARM) > 100
    plain = run((0, 1, 0, 30, False), (1, 2, 0, 20, False), jobs=2, capacity=2)
    gantt(plain, tmp_path / "plain.png")
    assert pixels(tmp_path / "late.png", COLOURS[1]) < 0.9 * pixels(tmp_path / "plain.png", COLOURS[1])


def test_a_chart_of_ten_thousand_jobs_is_a_grid_of_pixels(tmp_path: Path) -> None:
    schedule = many(10_000)
    gantt(schedule, tmp_path / "gantt.png")
    colours = {colour: pixels(tmp_path / "gantt.png", colour) for colour in COLOURS}
    last = colours.pop(COLOURS[10_000 % len(COLOURS)])
    assert min(colours.values()) > 0
    assert last > sum(colours.values()) / len(colours) * 5
    wasted = run(*[(job, 1, job, job + 1, job % 2 == 1) for job in range(3000)], jobs=3000, capacity=1)
    gantt(wasted, tmp_path / "wasted.png")
    assert pixels(tmp_path / "wasted.png", "#000000") > 1000


def light(colour: str) -> str:
    """Halfway to white."""
    parts = [(int(colour[place : place + 2], 16) & 0xFE) // 2 + 0x7F for place in (1, 3, 5)]
    return "#" + "".join(f"{part:02x}" for part in parts)


def in_background(schedule: Schedule, *jobs: int) -> Schedule:
    """The same with these jobs in the background of their slots."""
    assert schedule.attempts is not None
    return replace(schedule, attempts=replace(schedule.attempts, behind=np.isin(schedule.attempts.job, jobs)))


def test_both_places_of_a_slot_are_seen(tmp_path: Path) -> None:
    """One job on both slots, behind it one on the first, for half the time, and one on both later, alone."""
    rows = (0, 0b11, 0, 20, False), (1, 0b01, 0, 10, False), (2, 0b11, 20, 40, False)
    gantt(in_background(run(*rows, jobs=3, capacity=2), 1, 2), tmp_path / "gantt.png")
    front, short, alone = (
        pixels(tmp_path / "gantt.png", colour) for colour in (COLOURS[0], light(COLOURS[1]), light(COLOURS[2]))
    )
    assert short > 5_000
    assert alone == pytest.approx(4 * short, rel=0.1), "two slots, twice as long"
    assert front == pytest.approx(4 * short / 0.3 - short, rel=0.1), "all of its slots but for what is before it"
    assert pixels(tmp_path / "gantt.png", COLOURS[1]) == pixels(tmp_path / "gantt.png", COLOURS[2]) == 0
    assert pixels(tmp_path / "gantt.png", FAINT) > 200, "the legend"
    plain = run(*rows[:1], jobs=1, capacity=2)
    gantt(plain, tmp_path / "plain.png")
    assert pixels(tmp_path / "plain.png", light(COLOURS[0])) == 0


def test_many_jobs_in_the_background_are_rows_of_pixels_below_the_foreground(tmp_path: Path) -> None:
    """In turn on two slots, and one job behind the first all the time."""
    schedule = many(3_000)
    both = run(
        *[(job, 0b11, job, job + 1, False) for job in range(3_000)], (3_000, 1, 0, 3_000, False), jobs=3_001, capacity=2
    )
    gantt(schedule, tmp_path / "one.png")
    gantt(in_background(both, 3_000), tmp_path / "two.png")
    behind = pixels(tmp_path / "two.png", light(COLOURS[3_000 % len(COLOURS)]))
    before = sum(pixels(tmp_path / "two.png", colour) for colour in COLOURS)
    assert behind > 20_000
    assert before > behind
    wide = run(*[(job, (1 << 400) - 1, job, job + 1, False) for job in range(2_001)], jobs=2_001, capacity=400)
    gantt(in_background(wide, *range(1_000)), tmp_path / "wide.png")
    assert sum(pixels(tmp_path / "wide.png", light(colour)) for colour in COLOURS) > 100_000


def test_slots_above_the_highest_used_are_shown_when_asked(tmp_path: Path) -> None:
    gantt(THREE, tmp_path / "four.png", slots=8)
    first, second = (pixels(tmp_path / "four.png", colour) for colour in COLOURS[:2])
    assert second == pytest.approx(first / 2, rel=0.06)


def test_allocation_stacks_what_jobs_held(tmp_path: Path) -> None:
    allocation(THREE, tmp_path / "held.png", title="three")
    first, second, third = (pixels(tmp_path / "held.png", colour) for colour in COLOURS[:3])
    assert first > 50_000
    assert second == pytest.approx(first / 2, rel=0.02)
    assert third == pytest.approx(second, rel=0.02)


def test_allocation_follows_the_records_of_holdings(tmp_path: Path) -> None:
    """The first job holds 1 slot for 10 s, then 3 for 10 s; the second 2 for 20 s, without news of its end."""
    workload = workload_of(release=[0, 0], runtime=[1, 1], tasks=[9, 9])
    at, job, slots = [0, 0, 10 * SECOND, 20 * SECOND], [0, 1, 0, 0], [1, 2, 3, 0]
    schedule = schedule_of(workload, start=[0, 0], end=[20 * SECOND] * 2, holdings=(at, job, slots), capacity=6)
    allocation(schedule, tmp_path / "held.png")
    first, second = (pixels(tmp_path / "held.png", colour) for colour in COLOURS[:2])
    assert first == pytest.approx(second, rel=0.02)


def test_with_many_jobs_the_small_ones_are_one(tmp_path: Path) -> None:
    schedule = many(5_000)
    allocation(schedule, tmp_path / "held.png")
    others = pixels(tmp_path / "held.png", FAINT)
    longest = pixels(tmp_path / "held.png", COLOURS[len(COLOURS) - 1])
    assert others == pytest.approx(2 * longest, rel=0.05)


METRICS = {
    "fcfs": {"wait_mean": 10.0, "makespan": 100.0, "utilisation": 0.5, "deadline_miss_penalty": 31_234.0},
    "edf": {"wait_mean": 5.0, "makespan": math.nan, "utilisation": 0.5, "deadline_miss_penalty": 0.0},
}


def test_bars_are_as_long_as_their_values(tmp_path: Path) -> None:
    comparison(METRICS, tmp_path / "bars.png", names=["wait_mean"], title="two")
    first, second = (pixels(tmp_path / "bars.png", colour) for colour in COLOURS[:2])
    assert second == pytest.approx(first / 2, rel=0.05)


def test_what_is_no_number_has_no_bar(tmp_path: Path) -> None:
    comparison(METRICS, tmp_path / "bars.png", names=["makespan"])
    assert pixels(tmp_path / "bars.png", COLOURS[0]) > 1000
    assert pixels(tmp_path / "bars.png", COLOURS[1]) == 0


def test_magnitudes_apart_are_both_seen(tmp_path: Path) -> None:
    told = METRICS | {"sjf": METRICS["edf"] | {"deadline_miss_penalty": 3.0}}
    names = ["deadline_miss_penalty", "utilisation", "makespan", "wait_mean"]
    comparison(told, tmp_path / "all.png", names=names)
    comparison(told, tmp_path / "one.png", names=names[:1])
    assert pixels(tmp_path / "one.png", COLOURS[2]) > pixels(tmp_path / "one.png", COLOURS[0]) / 50


def test_without_names_what_says_nothing_of_the_jobs_is_not_drawn(tmp_path: Path) -> None:
    """Without due dates: wait, response, slowdown and utilisation, and kills if there were any."""
    plain = {"jobs_due": 0, "wait_mean": 1, "response_mean": 1, "bounded_slowdown_mean": 1, "utilisation": 1}
    plain |= {"kills": 0, "migrations": 0}
    due = plain | {"jobs_due": 1, "deadline_miss_rate": 1, "deadline_miss_penalty": 1, "priority_violation_rate": 1}
    bars = {}
    for name, told in {"plain": plain, "killed": plain | {"kills": 3}, "due": due}.items():
        comparison({"easy": told}, tmp_path / f"{name}.png")
        bars[name] = pixels(tmp_path / f"{name}.png", COLOURS[0])
    assert bars["killed"] == pytest.approx(bars["plain"] * 5 / 4, rel=0.05)
    assert bars["due"] == pytest.approx(bars["plain"] * 6 / 4, rel=0.05)


def test_pictures_that_cannot_be_drawn_say_why(tmp_path: Path) -> None:
    bare = schedule_of(workload_of(release=[0], runtime=[1]), start=[NOT_YET], end=[NOT_YET], capacity=1)
    with pytest.raises(HeadwayError, match="no attempts to draw"):
        gantt(bare, tmp_path / "a.png")
    with pytest.raises(HeadwayError, match="ever held a slot"):
        allocation(bare, tmp_path / "a.png")
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
        lambda path: gantt(THREE, path),
        lambda path: allocation(THREE, path),
        lambda path: comparison(METRICS, path, names=["wait_mean"]),
    ],
)
def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, draw: Callable[[Path], None]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(HeadwayError, match=r"pictures need matplotlib\n.*headway\[plot\]"):
        draw(tmp_path / "a.png")


def test_time_is_shown_in_a_unit_of_few_digits() -> None:
    units = [clock_for(seconds * SECOND).unit for seconds in (0, 600, 601, 36_000, 36_001, 5 * 86_400, 10**8)]
    assert units == ["s", "s", "min", "min", "h", "h", "days"]


MEANS = {"first": Mean(40.0, 0.0), "second": Mean(20.0, math.nan), "third": Mean(10.0, 3.0)}


def test_bars_are_as_long_as_their_means(tmp_path: Path) -> None:
    bars({"panel": MEANS}, tmp_path / "bars.png", measure="penalty")
    first, second, third = (pixels(tmp_path / "bars.png", colour) for colour in COLOURS[:3])
    assert first > 10_000
    assert second == pytest.approx(first / 2, rel=0.05)
    assert third == pytest.approx(first / 4, rel=0.1)


def test_bars_on_a_scale_of_magnitudes_differ_less(tmp_path: Path) -> None:
    bars({"one": MEANS, "other": MEANS}, tmp_path / "bars.png", measure="penalty", log=True, title="both")
    first, third = (pixels(tmp_path / "bars.png", COLOURS[place]) for place in (0, 2))
    assert 0 < third < first < 20 * third


def test_lines_have_bands_as_wide_as_their_errors(tmp_path: Path) -> None:
    def area(error: float) -> int:
        """Pixels that are neither paper nor ink."""
        lines(
            {
                "panel": {
                    "policy": {0.2: Mean(5, error), 1.0: Mean(5, error)},
                    "other": {0.2: Mean(9, 0), 1.0: Mean(9, 0)},
                }
            },
            tmp_path / "lines.png",
            over="load",
            measure="penalty",
        )
        shown = image.imread(tmp_path / "lines.png")[:, :, :3]
        return int(((shown.max(axis=2) - shown.min(axis=2)) > 0.05).sum())

    none, narrow, wide = area(0), area(1), area(2)
    assert narrow - none > 5_000
    assert wide - none == pytest.approx(2 * (narrow - none), rel=0.1)
    assert pixels(tmp_path / "lines.png", COLOURS[1]) > 0


def test_lines_about_a_level_are_seen_on_both_sides_of_it(tmp_path: Path) -> None:
    def drawn(level: float | None) -> int:
        """Pixels of the line that is below 0 throughout."""
        below = {0.0: Mean(-2, 0), 1.0: Mean(-1, 0)}
        panels = {"panel": {"above": {0.0: Mean(3, 0), 1.0: Mean(4, 0)}, "below": below}}
        lines(panels, tmp_path / "lines.png", over="cost", measure="gain", level=level)
        return pixels(tmp_path / "lines.png", COLOURS[1])

    assert drawn(0.0) > 2 * drawn(None) > 0  # without a level it is in the legend only


def test_a_plane_has_a_point_a_policy(tmp_path: Path) -> None:
    points = {"first": Point(Mean(0.0, 0.0), Mean(1e3, 10)), "second": Point(Mean(0.3, 0.1), Mean(1e5, math.nan))}
    plane({"load 1": points, "load 2": points}, tmp_path / "plane.png", x="violation", y="penalty", title="plane")
    assert tmp_path.joinpath("plane.png").stat().st_size > 5_000
    with pytest.raises(HeadwayError, match="nothing to draw"):
        plane({}, tmp_path / "none.png", x="x", y="y")


def test_steps_lie_over_each_other(tmp_path: Path) -> None:
    curve = np.array([0.0, 10.0, 20.0]), np.array([4.0, 2.0, 0.0])
    steps({"normal": {"live": curve}}, tmp_path / "one.png", measure="slots")
    steps({"normal": {"simulated": curve, "live": curve}}, tmp_path / "two.png", measure="slots", shaded=(5, 15))
    assert pixels(tmp_path / "one.png", COLOURS[0]) > 100
    assert pixels(tmp_path / "two.png", COLOURS[0]) > 100
    sizes = [image.imread(tmp_path / name)[:, :, :3].min(axis=2) < 0.98 for name in ("one.png", "two.png")]
    assert sizes[1].sum() > 2 * sizes[0].sum()
    with pytest.raises(HeadwayError, match="nothing to draw"):
        steps({"normal": {}}, tmp_path / "none.png", measure="slots")
