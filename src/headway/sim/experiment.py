"""Simulations as people ask for them, with policies by name. Joins the simulator with the policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from numpy.typing import ArrayLike

from headway import policy_files
from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.history.predictors import USER, predictor
from headway.model.instant import SECOND, from_seconds, to_seconds
from headway.model.job import ESTIMATE_DEFAULT, JobId, PenaltyShape, Service, flaw
from headway.model.network import NO_NETWORK, Network
from headway.model.node import NodeSpec
from headway.model.policy import Policy, PolicySource
from headway.model.power import Switching
from headway.model.renting import Renting
from headway.model.schedule import Schedule
from headway.model.site import SiteTerms, check_sites
from headway.model.workload import Workload
from headway.policies import registry
from headway.sim.faults import Outage
from headway.sim.kernel import NOBODY_BOUNDED, Progress, RemoteDecider, Simulation
from headway.sim.served import KnownRequests
from headway.sim.world import World
from headway.times import Span, seconds_of

ALL: Final = "*"
"""Every user without a bound of their own."""

ESTIMATE_SECONDS: Final = to_seconds(ESTIMATE_DEFAULT)


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """A service for a simulation, with its requests.

    Args:
        name: for people.
        arrivals: when each request comes, in order, in seconds on the clock of the workload.
        processing: how long an instance takes for each, in seconds: one time for all, or one for each.
        threshold: an answer later than this is late; seconds, or a text such as `"200ms"`.
        fraction: which share of the answers of a window are to be in time, above 0 and at most 1.
        rate, shape: penalty of a window per unit of the shape of what its share lacks of the fraction.
        least, most: how many instances it is to have, and may have; most None: as many as there are slots.
        window: how long a window is.
        begin: when the service comes, and its first window begins; no request comes earlier.
        warm_up: how long a new instance takes until it serves.
    """

    name: str
    arrivals: ArrayLike
    processing: ArrayLike
    threshold: Span
    fraction: float = 0.9
    rate: float = 1.0
    shape: PenaltyShape = PenaltyShape.LINEAR
    least: int = 0
    most: int | None = None
    window: Span = 20.0
    begin: Span = 0.0
    warm_up: Span = 0.0

    def made(self, number: JobId, slots: int) -> tuple[Service, KnownRequests]:
        """The job, and its requests.

        Raises:
            InvalidInput: a term is wrong.
        """
        arrivals = np.round(np.asarray(self.arrivals, dtype=np.float64) * SECOND).astype(np.int64)
        each = np.broadcast_to(np.asarray(self.processing, dtype=np.float64), arrivals.shape)
        spec = Service(
            number,
            release=from_seconds(seconds_of(self.begin, "begin")),
            name=self.name,
            rate=self.rate,
            shape=self.shape,
            most=slots if self.most is None else self.most,
            least=self.least,
            threshold=from_seconds(seconds_of(self.threshold, "threshold")),
            fraction=self.fraction,
            window=from_seconds(seconds_of(self.window, "window")),
        )
        wrong = flaw(spec)
        if wrong is not None:
            raise HeadwayError(f"service {self.name}: {wrong}")
        end = int(arrivals[-1]) + 1 if len(arrivals) else spec.release
        processing = np.round(each * SECOND).astype(np.int64)
        warm_up = from_seconds(seconds_of(self.warm_up, "warm_up"))
        return spec, KnownRequests(spec, arrivals, processing, end, warm_up=warm_up)


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
    network: Network = NO_NETWORK,
    switching: Sequence[Switching] = (),
    renting: Renting | None = None,
    slots_of: Mapping[str, int] = NOBODY_BOUNDED,
    sites: Sequence[SiteTerms] = (),
    estimates: str = USER,
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
        network: the lines between the nodes, see `read_network`; default: sending costs nothing.
        switching: how idle nodes are switched off and on, see `read_switching`; default: they stay on.
        renting: what can be rented, see `read_renting`; default: nothing. Policies that do not rent ignore it.
        slots_of: by user of the workload, how many slots the tasks of this user may have at once; `"*"`: of all others.
        sites: the sites in order of preference, and how long tasks take there before they begin, see `read_terms`;
            default: in the order of the nodes, and no time.
        estimates: `user`, those of the workload; `last-two` or `predicted`, predictions from the jobs that have ended,
            see `headway.history.predictors`; a job for which there is none has its own estimate.

    Raises:
        InvalidInput: the policy, a parameter or the predictor is unknown, or a job can never run on this cluster.
        HeadwayError: what was given as a policy is not a policy.
        NoAdvice: the decider gives no plan.
    """
    find, text = (policy_files.find, policy) if isinstance(policy, str) else _only(policy)
    if decider and not isinstance(policy, str):
        raise InvalidInput("policy", text, "the name of a policy that the decider has")
    check_sites(find(text), [*(node.site for node in nodes), *(one.name for one in sites)])
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
            record=record or all(node.power is not None for node in nodes),  # for their energy
            services=[load.made(len(workload) + number, slots) for number, load in enumerate(services)],
            network=network,
            switching=switching,
            renting=renting,
            slots_of=_bounds(workload, slots_of),
            sites=sites,
            predictor=predictor(estimates),
        )
        return simulation.run(progress)


def _bounds(workload: Workload, slots_of: Mapping[str, int]) -> Mapping[str, int]:
    """The bound of each user who has one.

    Raises:
        InvalidInput: a user has no job in the workload.
    """
    if not slots_of:
        return slots_of
    users = sorted({str(user) for user in workload.user.tolist()} - {""})
    for user in slots_of:
        if user != ALL and user not in users:
            raise InvalidInput("slots_of", user, "a user of the workload, or *", hint=did_you_mean(user, users))
    most = slots_of.get(ALL)
    return {user: slots_of.get(user, most or 0) for user in users if user in slots_of or most is not None}


def _only(policy: object) -> tuple[PolicySource, str]:
    """A source that finds this policy, and those that it names for its pools if it is a top level; and it as text.

    Raises:
        HeadwayError: it is not a policy.
    """
    if isinstance(policy, type):
        hint = f"Give an object of this class: {policy.__name__}()."
        raise HeadwayError(f"policy is the class {policy.__name__}", hint)
    registry.check_policy(policy, "policy")
    given, name = cast(Policy, policy), repr(policy)
    return lambda text: given if text == name else policy_files.find(text), name


def _asked(url: str) -> AbstractContextManager[RemoteDecider]:
    """The decider at a URL. The HTTP client is imported only here, because that takes a tenth of a second."""
    from headway.sim.decider import decider_at

    return decider_at(url)
