"""Requests within hours of which only the number is known: whole hours of another log, superposed, or drawn evenly."""

from __future__ import annotations

import numpy as np

from headway.errors import InvalidInput
from headway.model.instant import HOUR
from headway.model.workload import IntArray


def superposed(counts: IntArray, instants: IntArray, sizes: IntArray, seed: int) -> tuple[IntArray, IntArray]:
    """Requests with these numbers per hour, each hour made of whole hours of a log.

    For an hour, hours of the log are drawn, and their requests put over each other until there are enough; of the last
    one as many are taken, at random, as are still needed. So the bursts of the log stay.

    Args:
        counts: requests of each hour, >= 0.
        instants: when requests of the log came, in order, from the start of an hour on, in microseconds.
        sizes: of each request of the log, its size.

    Returns:
        Instants from the start of the first hour on, in order, and sizes.

    Raises:
        InvalidInput: the log has no request, or a count is negative.
    """
    _check(counts)
    if not len(instants):
        raise InvalidInput("instants", [], "one request or more")
    rng = np.random.default_rng(seed)
    bounds = np.searchsorted(instants, np.arange(int(instants[-1]) // HOUR + 2) * HOUR)
    filled = np.flatnonzero(np.diff(bounds))
    chosen: list[IntArray] = []
    at: list[IntArray] = []
    for hour, count in enumerate(counts.tolist()):
        while count:
            place = int(rng.choice(filled))
            within = np.arange(bounds[place], bounds[place + 1])
            if len(within) > count:
                within = rng.choice(within, count, replace=False)
            count -= len(within)
            chosen.append(within)
            at.append(instants[within] % HOUR + hour * HOUR)
    found = np.concatenate(at) if at else np.zeros(0, dtype=np.int64)
    places = np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.int64)
    order = np.argsort(found, kind="stable")
    return found[order], sizes[places[order]]


def even(counts: IntArray, sizes: IntArray, seed: int) -> tuple[IntArray, IntArray]:
    """Requests with these numbers per hour, each at any time of its hour alike (Poisson, given the number).

    Args:
        counts: requests of each hour, >= 0.
        sizes: those from which each request's is drawn.

    Returns:
        Instants from the start of the first hour on, in order, and sizes.

    Raises:
        InvalidInput: there are no sizes, or a count is negative.
    """
    _check(counts)
    if not len(sizes):
        raise InvalidInput("sizes", [], "one size or more")
    rng = np.random.default_rng(seed)
    hours = np.repeat(np.arange(len(counts)), counts)
    found = np.sort(hours * HOUR + rng.integers(0, HOUR, len(hours)))
    return found, rng.choice(sizes, len(found))


def _check(counts: IntArray) -> None:
    if np.any(counts < 0):
        raise InvalidInput("counts", int(counts.min()), "0 or more")
