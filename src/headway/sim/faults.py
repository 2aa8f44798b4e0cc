"""Nodes that go down and come back: at given times, or drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.errors import InvalidInput
from headway.model.instant import from_seconds, to_seconds
from headway.model.node import NodeSpec


@dataclass(frozen=True, slots=True)
class Outage:
    """A node is down from one instant to another, in seconds. If `until` is None, it never comes back."""

    node: str
    at: float
    until: float | None = None


def drawn_outages(
    nodes: Sequence[NodeSpec],
    *,
    mean_up_seconds: float,
    mean_down_seconds: float,
    begin: float,
    until: float,
    seed: int,
) -> list[Outage]:
    """Independent outages of every node. Times up and times down are drawn from exponential distributions.

    Args:
        mean_up_seconds, mean_down_seconds: > 0.
        begin, until: outages begin within this span, seconds.

    Returns:
        The outages, ordered by their begin, then by the node's name.

    Raises:
        InvalidInput: a mean is not above 0, or the seed is below 0.
    """
    for name, value in (("mean_up_seconds", mean_up_seconds), ("mean_down_seconds", mean_down_seconds)):
        if not value > 0:
            raise InvalidInput(name, value, "a number of seconds greater than 0")
    if seed < 0:
        raise InvalidInput("seed", seed, "0 or more")
    outages = []
    for position, node in enumerate(nodes):
        chance = np.random.default_rng((seed, position))
        at = from_seconds(begin) + from_seconds(chance.exponential(mean_up_seconds))
        while at < from_seconds(until):
            back = at + max(1, from_seconds(chance.exponential(mean_down_seconds)))
            outages.append(Outage(node.name, to_seconds(at), to_seconds(back)))
            at = back + max(1, from_seconds(chance.exponential(mean_up_seconds)))
    return sorted(outages, key=lambda outage: (outage.at, outage.node))
