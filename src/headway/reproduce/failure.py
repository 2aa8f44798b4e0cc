"""Lin14 6.2, figure 6.1: one job with a due date loses six of its eight workers and catches up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from headway.errors import HeadwayError
from headway.model.instant import SECOND, from_seconds
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.schedule import Schedule
from headway.model.workload import BagTimes, FloatArray, Workload, workload_us
from headway.sim.experiment import run
from headway.sim.faults import Outage

POLICY: Final = "deadline:spare=none,foresight=false"
"""The policy of the figure. Leftover slots stay free, because a single job would otherwise always have all eight."""

MACHINES: Final = 4
PER_MACHINE: Final = 2
"""Eight workers, two on a machine (Lin14 6.1)."""

LIGHT: Final = (16, 3.0)
HEAVY: Final = (64, 12.0)
"""How many tasks, and how many seconds each: light ones first, then heavy ones.

reading: the trace is not published. These make 816 s of work for eight workers within 240 s.
"""

ESTIMATE: Final = 11.5
"""Estimate of a task in seconds, before any has ended: 80 tasks x 11.5 s / 240 s are 4 workers, as in the thesis."""

DUE: Final = 240.0
DOWN: Final = (55.0, 115.0)
PERIOD: Final = 5.0
"""Seconds between two rounds (Lin14 4.4); the thesis gives no number."""


class Curve(NamedTuple):
    """How many slots were allocated to the job over time.

    Attributes:
        at: seconds from its submission, rising.
        slots: how many slots it has from each of these times on.
        ended: seconds from its submission to its end.
    """

    at: FloatArray
    slots: FloatArray
    ended: float

    def sampled(self, every: float, until: float) -> FloatArray:
        """Slots at 0, `every`, ... up to `until`, in seconds."""
        step = np.searchsorted(self.at, np.arange(0.0, until, every), side="right")
        return np.concatenate(([0.0], self.slots))[step]


def bag(scale: float = 1.0) -> Workload:
    """The job, with all its times multiplied by `scale`."""
    times = [LIGHT[1]] * LIGHT[0] + [HEAVY[1]] * HEAVY[0]
    return workload_us(
        release=[0],
        runtime=[from_seconds(ESTIMATE * scale)],
        estimate=[from_seconds(ESTIMATE * scale)],
        tasks=[len(times)],
        due=[from_seconds(DUE * scale)],
        priority=[1.0],
        kind=int(Kind.BAG),
        bags={0: BagTimes(tasks=tuple(from_seconds(time * scale) for time in times))},
    )


def machines() -> tuple[NodeSpec, ...]:
    """The cluster of the figure."""
    return tuple(NodeSpec(f"machine-{number}", PER_MACHINE) for number in range(1, MACHINES + 1))


def failing() -> tuple[str, ...]:
    """The machines that go down: all but the first."""
    return tuple(node.name for node in machines()[1:])


def simulated() -> dict[str, Curve]:
    """The job without and with the failure, simulated: `normal` and `failure`."""
    outages = [Outage(name, *DOWN) for name in failing()]
    return {
        name: curve(run(bag(), machines(), POLICY, outages=lost, period=PERIOD))
        for name, lost in (("normal", []), ("failure", outages))
    }


def curve(schedule: Schedule, scale: float = 1.0) -> Curve:
    """The slots that were allocated to the only job of a run, with its times divided by `scale`.

    Raises:
        HeadwayError: the run has several jobs, or its job has not ended.
    """
    if len(schedule) != 1 or schedule.holdings is None or schedule.end[0] < 0:
        raise HeadwayError("this is not a single job that has ended")
    begin, unit = int(schedule.release[0]), SECOND * scale
    # If there are several entries for one instant, the last counts.
    at, last = np.unique(schedule.holdings.at[::-1], return_index=True)
    slots = schedule.holdings.slots[::-1][last].astype(np.float64)
    return Curve((at - begin) / unit, slots, float(schedule.end[0] - begin) / unit)


def apart(one: Curve, other: Curve, every: float = 0.1) -> float:
    """How far two curves are apart: mean absolute difference in slots, from 0 to the end of the later one."""
    until = max(one.ended, other.ended)
    return float(np.abs(one.sampled(every, until) - other.sampled(every, until)).mean())


def remarks(curves: Mapping[str, Curve]) -> list[str]:
    """What the thesis says of the figure, compared with the curves `normal` and `failure`; one sentence each."""
    normal, failure = curves["normal"], curves["failure"]
    first, least = normal.slots[0], normal.slots[normal.at < DOWN[0]].min()

    def most(curve: Curve, begin: float, end: float) -> float:
        return float(curve.sampled(0.1, end)[round(begin / 0.1) :].max(initial=0))

    later, after = (most(curve, PERIOD + DOWN[1], DUE) for curve in (normal, failure))
    # Machines do not all go down in one instant, so the curve counts from the next periodic round on.
    down = most(failure, DOWN[0] + PERIOD, DOWN[1])
    ended = f"{normal.ended:.0f} s, with the failure after {failure.ended:.0f} s"
    return [
        _said(first == 4, f"4 workers at first, because no run time is known yet: {first:.0f}"),
        _said(least < first, f"fewer when light tasks have ended: {least:.0f}"),
        _said(later > least, f"more again when heavy tasks slow it down: {later:.0f}"),
        _said(down == PER_MACHINE, f"2 workers while six are down: {down:.0f}"),
        _said(after > later, f"more workers than without the failure once they are back: {after:.0f}"),
        _said(max(normal.ended, failure.ended) <= DUE, f"done by the due date of {DUE:.0f} s: after {ended}"),
    ]


def _said(holds: bool, sentence: str) -> str:
    return f"{'holds' if holds else 'does not hold'}: {sentence}"
