"""Simulations as people ask for them, policies by name; joins the simulator with the policies."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from headway.model.instant import Duration
from headway.model.job import ESTIMATE_DEFAULT
from headway.model.node import NodeSpec
from headway.model.schedule import Schedule
from headway.model.workload import Workload
from headway.policies import registry
from headway.sim.faults import Outage
from headway.sim.kernel import Decider, Progress, Simulation
from headway.sim.world import World


def run(
    workload: Workload,
    nodes: Sequence[NodeSpec],
    policy: str,
    *,
    world: World | None = None,
    outages: Sequence[Outage] = (),
    estimate_default: Duration = ESTIMATE_DEFAULT,
    period: Duration | None = None,
    decider: str = "",
    record: bool = False,
    progress: Progress | None = None,
) -> Schedule:
    """Simulate a workload on a cluster under a policy.

    Args:
        policy: `NAME[:key=value,...]`, any installed policy.
        world: the performance model; default: every task runs as long as the workload says.
        outages: when nodes are down.
        estimate_default: microseconds a task is believed to run where nobody said.
        period: microseconds between rounds held even if nothing happens; None: none.
        decider: URL of a decider where plans come from instead of from the policy, which it is asked for; empty: none.
        record: whether to keep which attempt ran on which slots.
        progress: told now and then how many jobs have ended, of how many.

    Raises:
        InvalidInput: the policy or a parameter is unknown, or a job can never run on this cluster.
        NoAdvice: the decider gives no plan.
    """
    with _asked(decider) if decider else nullcontext() as asked:
        simulation = Simulation(
            workload,
            nodes,
            registry.find,
            policy,
            world=world,
            outages=outages,
            estimate_default=estimate_default,
            period=period,
            decider=asked,
            record=record,
        )
        return simulation.run(progress)


def _asked(url: str) -> AbstractContextManager[Decider]:
    """The decider at a URL; what asking takes is loaded only where one is asked, for it takes a tenth of a second."""
    from headway.sim.decider import decider_at

    return decider_at(url)
