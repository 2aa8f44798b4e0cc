"""Where tasks ran: how many at each site, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.model.instant import SECOND
from headway.model.schedule import Schedule


@dataclass(frozen=True, slots=True)
class SiteUse:
    """What ran at a site.

    Attributes:
        tasks: how many tasks ended there with success or otherwise, not redone; one that went on elsewhere counts at
            each site.
        jobs: of how many jobs these are.
        slot_seconds: how long they held slots, with what was redone.
    """

    tasks: int
    jobs: int
    slot_seconds: float


def site_uses(schedule: Schedule) -> dict[str, SiteUse] | None:
    """What ran at each site, in the order of the nodes; None if attempts were not recorded, or there is one site.

    >>> from headway import NodeSpec, simulate, workload_of
    >>> nodes = [NodeSpec("a", site="one"), NodeSpec("b", site="two")]
    >>> site_uses(simulate(workload_of(release=[0], tasks=[3], runtime=[5]), nodes, "edf", record=True))["one"].tasks
    2
    """
    ran = schedule.attempts
    names = list(dict.fromkeys(node.site for node, _ in schedule.nodes))
    if ran is None or len(names) < 2:
        return None
    site_of = np.array([names.index(node.site) for node, _ in schedule.nodes])
    sites = site_of[ran.node]
    time = (ran.end - ran.start) * ran.count / SECOND
    kept = ~ran.wasted
    places = np.unique(np.stack((sites[kept], ran.job[kept], ran.task[kept])), axis=1)
    jobs = np.unique(places[:2], axis=1)
    return {
        name: SiteUse(
            int(np.count_nonzero(places[0] == number)),
            int(np.count_nonzero(jobs[0] == number)),
            float(time[sites == number].sum()),
        )
        for number, name in enumerate(names)
    }
