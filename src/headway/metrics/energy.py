"""The energy that a run took, by a model: what nodes draw idle and at their peak."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headway.model.instant import SECOND
from headway.model.node import NodeSpec
from headway.model.schedule import Attempts, Energy, Schedule
from headway.model.workload import IntArray


def energy_of(schedule: Schedule, nodes: Sequence[NodeSpec]) -> Energy | None:
    """The energy of a run whose attempts were recorded; None if not all nodes say what they draw.

    A node on which something ran is on from the begin of the run to the last end at its site. It draws its idle power
    all the time, and in proportion to its busy slots the rest up to its peak. What runs in the background counts as
    what the foreground leaves, so as nothing. Switching takes no energy.

    Args:
        nodes: as the run began, in the order in which they joined.

    Raises:
        ValueError: the schedule has no attempts.

    Source: DN13, section 3. Its model is cited from Nesmachnow et al., Journal of Grid Computing 11(4), 2013; the
    linear form is a reading.
    """
    if schedule.attempts is None:
        raise ValueError("energy needs the attempts of a run: record them")
    if not nodes or any(node.power is None for node in nodes):
        return None
    slots = np.array([node.slots for node in nodes], dtype=np.int64)
    first = np.concatenate(([0], np.cumsum(slots)))
    job, node, busy, end = _parts(schedule.attempts, first)
    seconds = busy / SECOND
    used = np.bincount(node, seconds, len(nodes))
    idle = np.array([node.power.idle for node in nodes if node.power is not None])
    span = np.array([node.power.peak for node in nodes if node.power is not None]) - idle
    sites = list(dict.fromkeys(one.site for one in nodes))
    site = np.array([sites.index(one.site) for one in nodes])
    last = np.full(len(sites), schedule.begin, dtype=np.int64)
    np.maximum.at(last, site[node], end)
    on = np.where(used > 0, (last[site] - schedule.begin) / SECOND, 0.0)
    joules = idle * on + span * used / slots
    share = np.divide(idle * on, used, out=np.zeros(len(nodes)), where=used > 0) + span / slots
    of_site = np.bincount(site, joules, len(sites))
    return Energy(
        dict(zip([one.name for one in nodes], joules.tolist(), strict=True)),
        dict(zip(sites, of_site.tolist(), strict=True)),
        np.bincount(job, seconds * share[node], len(schedule)).astype(np.float64),
    )


def _parts(attempts: Attempts, first: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """What ran in the foreground, a row for each node on which a run of slots was: job, node, slot time and end.

    Args:
        first: of each node the number of its first slot, and behind the last node the number of slots.
    """
    ahead = ~attempts.behind
    job, start, end = attempts.job[ahead], attempts.start[ahead], attempts.end[ahead]
    begin, until = attempts.first[ahead], attempts.first[ahead] + attempts.count[ahead]
    low, high = np.searchsorted(first, begin, "right") - 1, np.searchsorted(first, until, "left") - 1
    counts = np.minimum(until, first[low + 1]) - begin
    for row in np.flatnonzero(high > low).tolist():  # runs over several nodes
        more = np.arange(low[row] + 1, high[row] + 1)
        counts = np.append(counts, np.minimum(until[row], first[more + 1]) - first[more])
        job, start, end = (np.append(column, np.full(len(more), column[row])) for column in (job, start, end))
        low = np.append(low, more)
    return job, low, counts * (end - start), end
