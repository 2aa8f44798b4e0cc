"""The energy that a run took, by a model: what nodes draw idle and at their peak."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headway.model.instant import SECOND
from headway.model.node import NodeSpec
from headway.model.power import AT_ONCE, PowerState, settings_of
from headway.model.schedule import Schedule
from headway.model.workload import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules that a run took.

    Attributes:
        nodes: by name of the node, in their order; 0 for a node on which nothing ran: it was never switched on.
        sites: by name of the site.
        jobs: of each job, shape (jobs,): what its tasks drew above idle, and of what their nodes drew idle a part, in
            proportion to the slot time that they had there. Their sum is that of the nodes.
    """

    nodes: Mapping[str, float]
    sites: Mapping[str, float]
    jobs: FloatArray

    @property
    def joules(self) -> float:
        """Of all nodes."""
        return math.fsum(self.nodes.values())


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
    powers = [node.power for node in nodes if node.power is not None]
    if ran is None or not nodes or len(powers) < len(nodes):
        return None
    ahead = ~ran.behind
    job, node, end = ran.job[ahead], ran.node[ahead], ran.end[ahead]
    seconds = ran.count[ahead] * (end - ran.start[ahead]) / SECOND
    slots = np.array([node.slots for node in nodes], dtype=np.int64)
    used = np.bincount(node, seconds, len(nodes))
    idle = np.array([power.idle for power in powers])
    span = np.array([power.peak for power in powers]) - idle
    sites = list(dict.fromkeys(one.site for one in nodes))
    site = np.array([sites.index(one.site) for one in nodes])
    last = np.full(len(sites), schedule.begin, dtype=np.int64)
    np.maximum.at(last, site[node], end)
    on = np.where(used > 0, (last[site] - schedule.begin) / SECOND, 0.0)
    base = idle * on + _switched(schedule, nodes, idle, np.where(used > 0, last[site], schedule.begin))
    joules = base + span * used / slots
    share = np.divide(base, used, out=np.zeros(len(nodes)), where=used > 0) + span / slots
    return Energy(
        dict(zip([one.name for one in nodes], joules.tolist(), strict=True)),
        dict(zip(sites, np.bincount(site, joules, len(sites)).tolist(), strict=True)),
        np.bincount(job, seconds * share[node], len(schedule)).astype(np.float64),
    )


def _switched(schedule: Schedule, nodes: Sequence[NodeSpec], idle: FloatArray, last: IntArray) -> FloatArray:
    """What switching nodes off and on adds to the joules that they draw idle, by node; less than 0 where it saves.

    Args:
        last: until when each node counts, in microseconds.
    """
    found = np.zeros(len(nodes))
    since: dict[int, int] = {}

    def is_on_again(node: int, at: int) -> None:
        settings = settings_of(nodes[node].site, schedule.switching) or AT_ONCE
        seconds = (min(at, int(last[node])) - max(since.pop(node), schedule.begin)) / SECOND
        found[node] += max(0.0, seconds) * (settings.off_watts - idle[node])

    for at, node, state in schedule.power:
        if node in since:
            is_on_again(node, at)
        if state is PowerState.OFF:
            since[node] = at
        elif state is PowerState.COMING_ON and at < last[node]:
            found[node] += (settings_of(nodes[node].site, schedule.switching) or AT_ONCE).switch_joules
    for node in list(since):
        is_on_again(node, int(last[node]))
    return found
