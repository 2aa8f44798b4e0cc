"""What a driver has outside itself: processes that do things for it, and where it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headway.advice.asking import ask
from headway.live.consultant import Asking
from headway.live.forecasts import Advise, Ask
from headway.live.services import NO_DOOR, BrokerDoor
from headway.live.sites import ONE_ENGINE, SiteEngines
from headway.model.node import NodeSpec
from headway.renting.provider import Provider


@dataclass(frozen=True, slots=True)
class OtherProcesses:
    """What other processes do for a driver.

    Attributes:
        asking: how a decider is asked.
        restate: the command of a process that finds the state beside the event loop, see `snapshots`; None: it is
            stored as it is here.
        forecast, advise: make forecasts and give advice, see `forecasts`; None: there are none.
        hurry_forecast: is called if somebody has begun to wait for a forecast; None: that changes nothing.
    """

    asking: Asking = ask
    restate: Sequence[str] | None = None
    forecast: Ask | None = None
    advise: Advise | None = None
    hurry_forecast: Callable[[], None] | None = None


def no_providers(cluster: str) -> Mapping[str, Provider]:
    """Nobody rents machines out."""
    return {}


def as_the_engine(user: str, node: NodeSpec) -> str:
    """The tasks of all users run as the account of the engine."""
    return ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a driver is.

    Attributes:
        sites: what the engine is made of.
        providers: who rents machines out, by site, to the cluster with this mark (`live.driver.CLUSTER_FACT`).
        door: where instances of services find this server; or why it has no services.
        account_of: as which account the tasks of a user run on a node; empty: as that of its engine.
    """

    sites: SiteEngines = ONE_ENGINE
    providers: Callable[[str], Mapping[str, Provider]] = no_providers
    door: BrokerDoor | str = NO_DOOR
    account_of: Callable[[str, NodeSpec], str] = as_the_engine
