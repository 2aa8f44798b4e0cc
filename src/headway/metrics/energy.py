"""The energy that a run took, by a model: what nodes draw idle and at their peak."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.model.instant import SECOND, Instant
from headway.model.node import NodeSpec, Power
from headway.model.power import AT_ONCE, PowerState, settings_of
from headway.model.schedule import Schedule
from headway.model.workload import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules that a run took. What jobs took and what nodes drew for none of them is all that there is.

    Attributes:
        nodes: by name of the node, in their order; 0 for a node that was never on.
        sites: by name of the site.
        jobs: of each job, shape (jobs,): while a task has slots of a node, their part of what the node draws at its
            peak. So it depends on no other job, and does not grow when the job has ended.
        idle: by name of the node, what is of no job: what it drew for slots on which nothing ran, while it was off,
            and while it was switched.
        unknown: nodes that do not say what they draw; they count as 0.
    """

    nodes: Mapping[str, float]
    sites: Mapping[str, float]
    jobs: FloatArray
    idle: Mapping[str, float]
    unknown: tuple[str, ...] = ()

    @property
    def joules(self) -> float:
        """Of all nodes: of all jobs, and of none."""
        return math.fsum(self.nodes.values())

    @property
    def idle_joules(self) -> float:
        """What is of no job, of all nodes."""
        return math.fsum(self.idle.values())


def energy_of(schedule: Schedule) -> Energy | None:
    """The energy of a run; None if its attempts were not recorded, or not all nodes say what they draw.

    A node on which something ran is on from the begin of the run to the last end at its site. It draws its idle power
    all the time, and in proportion to its busy slots the rest up to its peak. What runs in the background counts as
    what the foreground leaves, so as nothing.

    Where nodes are switched off and on (`Schedule.power`), a node that is off draws what its site says. While it goes
    off or comes on it draws its idle power, and each time that it comes on what its site says beyond that.

    Source: DN13, section 3. Its model is cited from Nesmachnow et al., Journal of Grid Computing 11(4), 2013; the
    linear form is a reading.
    """
    ran, nodes = schedule.attempts, [spec for spec, _ in schedule.nodes]
    if ran is None or not nodes or any(node.power is None for node in nodes):
        return None
    ahead = ~ran.behind
    site, sites = _sites(nodes)
    last = np.full(len(sites), schedule.begin, dtype=np.int64)
    np.maximum.at(last, site[ran.node[ahead]], ran.end[ahead])
    used = np.bincount(ran.node[ahead], ran.count[ahead] * (ran.end[ahead] - ran.start[ahead]), len(nodes)) > 0
    on = [(node, schedule.begin, int(last[site[node]])) for node in np.flatnonzero(used).tolist()]
    return _energy(schedule, nodes, on)


def energy_between(schedule: Schedule, since: Instant, until: Instant) -> Energy | None:
    """The energy of a cluster from one instant to another; None if what ran where was not recorded.

    The same as `energy_of`, but that every node is on as long as it was up (`Schedule.present`), whether something ran
    there or not, but for when it was switched off.

    Args:
        since, until: microseconds, in order.
    """
    if schedule.attempts is None:
        return None
    nodes = [spec for spec, _ in schedule.nodes]
    on = [(node, max(first, since), min(last, until)) for node, first, last, _ in schedule.present]
    return _energy(schedule, nodes, [(node, first, last) for node, first, last in on if first < last])


def _energy(schedule: Schedule, nodes: Sequence[NodeSpec], on: Sequence[tuple[int, Instant, Instant]]) -> Energy:
    """The energy of nodes that are on at these times, each with a first and a last instant."""
    ran = schedule.attempts
    assert ran is not None
    first, last = np.full(len(nodes), 0, dtype=np.int64), np.full(len(nodes), 0, dtype=np.int64)
    on_time = np.zeros(len(nodes))
    for place, begin, end in on:
        first[place] = begin if not on_time[place] else min(begin, first[place])
        last[place] = max(end, last[place])
        on_time[place] += (end - begin) / SECOND
    ahead = ~ran.behind
    job, node = ran.job[ahead], ran.node[ahead]
    took: Any = np.minimum(ran.end[ahead], last[node]) - np.maximum(ran.start[ahead], first[node])
    seconds: FloatArray = (
        ran.count[ahead] * np.maximum(took, 0) / SECOND / np.array([spec.slots for spec in nodes])[node]
    )
    for place, sizes in _resized(schedule).items():
        mine = node == place
        begin, end = np.maximum(ran.start[ahead][mine], first[place]), np.minimum(ran.end[ahead][mine], last[place])
        seconds[mine] = sum(
            ran.count[ahead][mine] * np.maximum(np.minimum(end, until) - np.maximum(begin, since), 0) / SECOND / size
            for since, until, size in sizes
        )
    used: Any = np.bincount(node, seconds, len(nodes))  # seconds of the whole node
    powers = [spec.power or Power(0.0, 0.0) for spec in nodes]
    idle = np.array([power.idle for power in powers])
    span = np.array([power.peak for power in powers]) - idle
    site, sites = _sites(nodes)
    base = idle * on_time + _switched(schedule, nodes, idle, first, last)
    joules = base + span * used
    names = [spec.name for spec in nodes]
    return Energy(
        dict(zip(names, joules.tolist(), strict=True)),
        dict(zip(sites, np.bincount(site, joules, len(sites)).tolist(), strict=True)),
        np.bincount(job, seconds * (idle + span)[node], len(schedule)).astype(np.float64),
        dict(zip(names, (base - idle * used).tolist(), strict=True)),
        tuple([spec.name for spec in nodes if spec.power is None]),
    )


def _resized(schedule: Schedule) -> dict[int, list[tuple[Instant, Instant, int]]]:
    """By node that had other numbers of slots before: from when and until when it had how many."""
    found: dict[int, list[tuple[Instant, Instant, int]]] = {}
    for node, first, last, size in schedule.present:
        found.setdefault(node, []).append((first, last, size))
    return {node: sizes for node, sizes in found.items() if len({size for _, _, size in sizes}) > 1}


def _sites(nodes: Sequence[NodeSpec]) -> tuple[IntArray, list[str]]:
    """The place of the site of each node among the sites, and these."""
    sites = list(dict.fromkeys(spec.site for spec in nodes))
    return np.array([sites.index(spec.site) for spec in nodes], dtype=np.int64), sites


def _switched(
    schedule: Schedule, nodes: Sequence[NodeSpec], idle: FloatArray, first: IntArray, last: IntArray
) -> FloatArray:
    """What switching nodes off and on adds to the joules that they draw idle, by node; less than 0 where it saves.

    Args:
        first, last: from when and until when each node counts, in microseconds.
    """
    found = np.zeros(len(nodes))
    since: dict[int, int] = {}

    def is_on_again(node: int, at: int) -> None:
        settings = settings_of(nodes[node].site, schedule.switching) or AT_ONCE
        seconds = (min(at, int(last[node])) - max(since.pop(node), int(first[node]))) / SECOND
        found[node] += max(0.0, seconds) * (settings.off_watts - idle[node])

    for at, node, state in schedule.power:
        if node in since:
            is_on_again(node, at)
        if state is PowerState.OFF:
            since[node] = at
        elif state is PowerState.COMING_ON and first[node] <= at < last[node]:
            found[node] += (settings_of(nodes[node].site, schedule.switching) or AT_ONCE).switch_joules
    for node in list(since):
        is_on_again(node, int(last[node]))
    return found
