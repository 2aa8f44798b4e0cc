"""Nodes that are switched off while nothing runs there: what state they are in, and the settings of a site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, Literal

from headway.model.instant import SECOND, Duration, Instant
from headway.model.value import value


class PowerState(IntEnum):
    """Whether a node has power. Only a node that is on can have slots that are up."""

    ON = 0
    GOING_OFF = 1
    OFF = 2
    COMING_ON = 3


PowerWord = Literal["on", "going off", "off", "coming on"]

POWER_WORDS: Final[dict[PowerState, PowerWord]] = {
    PowerState.ON: "on",
    PowerState.GOING_OFF: "going off",
    PowerState.OFF: "off",
    PowerState.COMING_ON: "coming on",
}
"""How the states are written."""

POWER_STATES: Final = {word: state for state, word in POWER_WORDS.items()}
"""The states by their words."""


SWITCH_LIMIT: Final[Duration] = 600 * SECOND
"""How long a node may take to be off, or on, unless the settings say otherwise."""


@value
class Switching:
    """How the nodes of a site are switched off and on.

    Attributes:
        site: the site; empty: all those that have no settings of their own.
        off_after: an idle node that nothing needs is switched off after this time; None: only a plan or an operator
            switches nodes.
        off_time, on_time: how long it takes until a node is off, and until it is on, by estimate.
        off_watts: what a node draws that is off.
        switch_joules: what switching a node on takes beyond its idle power, each time.
        min_on: so many nodes of the site stay on.
        off_command, on_command: what an operator's machine runs to switch a node, with the node's name as the last
            argument; empty: nothing but what the engine does itself.
        limit: a node that is not off, or not on, after this time counts as stuck.
    """

    site: str = ""
    off_after: Duration | None = None
    off_time: Duration = 0
    on_time: Duration = 0
    off_watts: float = 0.0
    switch_joules: float = 0.0
    min_on: int = 0
    off_command: tuple[str, ...] = ()
    on_command: tuple[str, ...] = ()
    limit: Duration = SWITCH_LIMIT


AT_ONCE: Final = Switching()
"""Of a site without settings."""


@value
class Trouble:
    """A node could not be switched.

    Attributes:
        detail: why, for people.
        times: how often in a row.
        again: when it is tried again; `NEVER`: that is under way.
    """

    detail: str
    times: int
    again: Instant


AGAIN_FIRST: Final[Duration] = 60 * SECOND
"""A switch that has failed is tried again after this time, or after the limit of its site if that is shorter."""

AGAIN_MAX: Final[Duration] = 3600 * SECOND
"""Each time that it fails again the time is doubled, up to this."""


def again_after(times: int, limit: Duration) -> Duration:
    """How long to wait before a switch is tried again that has failed so often in a row.

    >>> [again_after(times, 600 * SECOND) // SECOND for times in (1, 2, 3, 9)]
    [60, 120, 240, 3600]
    """
    return min(AGAIN_MAX, max(1, min(AGAIN_FIRST, limit)) << min(times - 1, 16))


def by_site(settings: Iterable[Switching]) -> dict[str, Switching]:
    """The settings by the name of their site."""
    return {one.site: one for one in settings}


def settings_of(site: str, settings: Mapping[str, Switching]) -> Switching | None:
    """The settings that count for a site; None: there are none."""
    return settings.get(site) or settings.get("")
