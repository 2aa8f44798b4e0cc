"""Simulations as people ask for them, with policies by name. Joins the simulator with the policies."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, cast

from headway import policy_files
from headway.errors import HeadwayError, InvalidInput
from headway.model.instant import from_seconds, to_seconds
from headway.model.job import ESTIMATE_DEFAULT
from headway.model.node import NodeSpec
from headway.model.schedule import Schedule
from headway.model.snapshot import Policy, PolicySource
from headway.model.workload import Workload
from headway.policies import registry
from headway.sim.faults import Outage
from headway.sim.kernel import Decider, Progress, Simulation
from headway.sim.served import ServiceLoad
from headway.sim.world import World
from headway.times import Span, seconds_of

ESTIMATE_SECONDS: Final = to_seconds(ESTIMATE_DEFAULT)


def run(
    workload: Workload,
    nodes: Sequence[NodeSpec],
    policy: str | Policy,
    *,
    world: World | None = None,
    outages: Sequence[Outage] = (),
    estimate_default: Span = ESTIMATE_SECONDS,
    period: Span | None = None,
    decider: str = "",
    record: bool = False,
    progress: Progress | None = None,
    services: Sequence[ServiceLoad] = (),
) -> Schedule:
    """Simulate a workload on a cluster under a policy.

    Args:
        policy: `NAME[:key=value,...]` of an installed policy, `FILE.py:NAME[,key=value,...]`, or the policy itself.
        world: the performance model; default: every task runs as long as the workload says.
        outages: when nodes are down.
        estimate_default: the estimate of tasks that have none: seconds, a `timedelta`, or `"10m"`.
        period: time between rounds that take place even if nothing happens, given likewise; None: no such rounds.
        decider: URL of a decider that makes the plans. It is asked for the plans of `policy`. Empty: no decider.
        record: whether to keep which attempt ran on which slots.
        progress: called now and then with the number of jobs that have ended, and of all jobs.
        services: services beside the jobs, for a policy that serves them, such as `services`; see
            `Schedule.services`.

    Raises:
        InvalidInput: the policy or a parameter is unknown, or a job can never run on this cluster.
        HeadwayError: what was given as a policy is not a policy.
        NoAdvice: the decider gives no plan.
    """
    find, text = (policy_files.find, policy) if isinstance(policy, str) else _only(policy)
    if decider and not isinstance(policy, str):
        raise InvalidInput("policy", text, "the name of a policy that the decider has")
    slots = sum(node.slots for node in nodes)
    with _asked(decider) if decider else nullcontext() as asked:
        simulation = Simulation(
            workload,
            nodes,
            find,
            text,
            world=world,
            outages=outages,
            estimate_default=from_seconds(seconds_of(estimate_default, "estimate_default")),
            period=None if period is None else from_seconds(seconds_of(period, "period")),
            decider=asked,
            record=record,
            services=[load.made(len(workload) + number, slots) for number, load in enumerate(services)],
        )
        return simulation.run(progress)


def _only(policy: object) -> tuple[PolicySource, str]:
    """A source that always finds this one policy, and the policy as text.

    Raises:
        HeadwayError: it is not a policy.
    """
    if isinstance(policy, type):
        hint = f"Give an object of this class: {policy.__name__}()."
        raise HeadwayError(f"policy is the class {policy.__name__}", hint)
    registry.check_policy(policy, "policy")
    given = cast(Policy, policy)
    return lambda text: given, repr(policy)


def _asked(url: str) -> AbstractContextManager[Decider]:
    """The decider at a URL. The HTTP client is imported only here, because that takes a tenth of a second."""
    from headway.sim.decider import decider_at

    return decider_at(url)
