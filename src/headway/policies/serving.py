"""How many requests of a service are answered in time, by the number of its units, and what it costs (Chang16 IV.B).

Two models give the share of the requests of a window that are answered within a threshold. `fluid` is the paper's:
requests flow in and out evenly. It is blind near saturation, where chance makes queues. `queueing` accounts for chance;
docs/explanation/services-model.md explains it and compares both with exact simulations.

Source: T.-W. Chang et al., "Resource Provision for Batch and Interactive Workloads in Data Centers", HPCC 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headway.model.instant import SECOND, Duration
from headway.model.value import value


@value
class Traffic:
    """What a service has to answer in a window, as far as it is known.

    Attributes:
        rate: requests that arrive in a second, >= 0.
        processing: mean processing time of a request, in microseconds, >= 0.
        queued: requests that wait at the start of the window, >= 0.
        arrival_scv: squared coefficient of variation of the times between arrivals, >= 0; 1: Poisson.
        processing_scv: the same of processing times; 0: all take equally long, 1: exponential.
    """

    rate: float
    processing: Duration
    queued: int = 0
    arrival_scv: float = 1.0
    processing_scv: float = 1.0

    def load(self) -> float:
        """How many units are busy on average if there are enough."""
        return self.rate * self.processing / SECOND


@value
class Agreement:
    """The share of requests that a service must answer in time, and what it costs to answer fewer.

    Attributes:
        threshold: a request is in time if it is answered this soon after it came, in microseconds.
        fraction: the share of requests that must be in time, 0 to 1.
        rate: penalty of a window in which no request is in time, for a fraction of 1.
    """

    threshold: Duration
    fraction: float = 0.9
    rate: float = 1.0

    def penalty(self, share: float) -> float:
        """The penalty of a window with this share of requests in time (equations 2 and 6)."""
        return self.rate * max(0.0, self.fraction - share)


Share = Callable[[Traffic, Duration, Duration, int], float]
"""The share of requests within a threshold, in a window that is so long, with so many units: 0 to 1."""


def fluid(traffic: Traffic, threshold: Duration, window: Duration, units: int) -> float:
    """f(j, m) of equations 3 to 5: requests come and go evenly, and each takes the mean processing time.

    Readings: without requests the share is 1, with requests and no units 0, and 0 if processing takes longer than the
    threshold. The waiting time falls with time if units answer faster than requests come. Where t* is outside the
    window, it counts as the window's nearer end.
    """
    if traffic.rate <= 0 and not traffic.queued:
        return 1.0
    if units < 1 or traffic.processing > threshold:
        return 0.0
    if not traffic.processing:
        return 1.0
    seconds = window / SECOND
    room = units * (threshold - traffic.processing) / traffic.processing - traffic.queued
    growth = traffic.rate - units * SECOND / traffic.processing
    if growth == 0:
        return 1.0 if room >= 0 else 0.0
    crossing = min(1.0, max(0.0, room / growth / seconds))
    return crossing if growth > 0 else 1 - crossing


SAME_SHARE: Final = 1e-6
"""Shares that differ by no more are the same."""

RELAXED: Final = 10.0
"""After so many times of relaxation a queue is as likely to be long as it will ever be."""

CERTAIN: Final = 400.0
"""If the drift of a queue has become so many times its variance in the window, chance changes nothing."""

ROOT_OF_2: Final = math.sqrt(2)

# Nodes and weights of Gauss and Legendre for 0 to 1, with 4 and 8 points.
FOUR: Final = (
    (0.06943184420297371, 0.17392742256872692),
    (0.33000947820757187, 0.32607257743127307),
    (0.6699905217924281, 0.32607257743127307),
    (0.9305681557970262, 0.17392742256872692),
)
EIGHT: Final = (
    (0.019855071751231856, 0.05061426814518813),
    (0.10166676129318664, 0.11119051722668724),
    (0.2372337950418355, 0.15685332293894363),
    (0.4082826787521751, 0.1813418916891810),
    (0.5917173212478249, 0.1813418916891810),
    (0.7627662049581645, 0.15685332293894363),
    (0.8983332387068134, 0.11119051722668724),
    (0.9801449282487681, 0.05061426814518813),
)


def queueing(traffic: Traffic, threshold: Duration, window: Duration, units: int) -> float:
    """The share in time where arrivals and processing times vary, and requests may wait from before.

    The waiting time is a Brownian motion that is reflected at 0. Its drift is that of the fluid model, and its variance
    that of arrivals and processing. In the steady state it is 0 but for the probability of Erlang's formula C, with the
    load and the units divided by the peakedness of the arrivals (Hayward), and falls off exponentially with the mean of
    Allen and Cunneen. So it is exact for M/M/m. Processing times are a constant and an exponential part, or of two
    exponential kinds, with their mean and variance.
    """
    if traffic.rate <= 0 and not traffic.queued:
        return 1.0
    if units < 1:
        return 0.0
    if not traffic.processing:
        return 1.0
    return _WaitingTimes(traffic, window, units).share(threshold / SECOND)


def shares(
    traffic: Traffic, agreement: Agreement, window: Duration, most: int, share: Share = queueing, *, least: int = 0
) -> list[float]:
    """The share in time with 0, 1, ... units, until nothing is left to pay for or more units do not help.

    A share is never below that with fewer units: more units do not harm, whatever a model's approximations say.
    """
    found: list[float] = []
    best = 0.0
    enough = min(agreement.fraction, share(traffic, agreement.threshold, window, most) - SAME_SHARE)
    for units in range(most + 1):
        best = max(best, share(traffic, agreement.threshold, window, units))
        found.append(best)
        if units >= least and best >= enough:
            break
    return found


def with_late(
    traffic: Traffic, threshold: Duration, window: Duration, units: int, *, share: Share, has: int, late: Duration
) -> float:
    """The share within a threshold if units beyond those that it has begin to serve so long after the window's start.

    Until then those that it has serve, and a queue grows or shrinks as the fluid model has it.
    """
    if units <= has or not late:
        return share(traffic, threshold, window, units)
    before = share(traffic, threshold, min(late, window), has)
    if late >= window:
        return before
    grown = late / SECOND * traffic.rate - has * late / max(1, traffic.processing)
    then = replace(traffic, queued=max(0, round(traffic.queued + grown)))
    part = late / window
    return part * before + (1 - part) * share(then, threshold, window - late, units)


def erlang_c(units: float, load: float) -> float:
    """The probability that a request waits if this many units are busy on average; 1 if there are too few units.

    Exact for whole numbers of units. Between them 1/B is continued from its values at no unit and at one, in
    logarithms, by the recursion that it has anyway.

    >>> round(erlang_c(2, 1.0), 6)
    0.333333
    """
    if load >= units:
        return 1.0
    if load <= 0:
        return 0.0
    whole = int(units)
    at = units - whole
    inverse = math.pow(1 + 1 / load, at)  # 1/B, with B of Erlang's formula of loss
    for _ in range(whole):
        at += 1
        inverse = 1 + at / load * inverse
        if inverse > 1e18:
            return 0.0
    return 1 / (load / units + (1 - load / units) * inverse)


class _WaitingTimes:
    """How long the requests wait that come during a window, all in seconds."""

    def __init__(self, traffic: Traffic, window: Duration, units: int) -> None:
        mean = traffic.processing / SECOND
        busy = traffic.load() / units
        self.window = window / SECOND
        self.start = traffic.queued * mean / units
        self.drift = busy - 1
        varying = max(1.0, busy) * traffic.arrival_scv + traffic.processing_scv
        self.variance = max(1e-9, varying) * mean / units  # in a second
        spread = math.sqrt(traffic.processing_scv)
        # What the peakedness is 1 for, and grows by with the variability of arrivals: exact for batches of requests.
        held = 1 - spread / 2 if spread <= 1 else 1 / (1 + spread)
        peaked = max(0.05, 1 + (traffic.arrival_scv - 1) * held)
        self.waits = erlang_c(units / peaked, traffic.load() / peaked)
        # Probability, constant part and mean of the exponential part of each kind of processing time.
        if spread <= 1:
            self.kinds = [(1.0, mean * (1 - spread), mean * spread)]
        else:
            rare = (1 - math.sqrt((traffic.processing_scv - 1) / (traffic.processing_scv + 1))) / 2
            self.kinds = [(rare, 0.0, mean / (2 * rare)), (1 - rare, 0.0, mean / (2 * (1 - rare)))]

    def share(self, threshold: float) -> float:
        """The share of requests whose waiting and processing take at most this long."""
        late = 0.0
        for chance, constant, mean in self.kinds:
            left = threshold - constant
            late += chance * (1.0 if left < 0 else self._late(left, mean))
        return min(1.0, max(0.0, 1 - late))

    def _late(self, left: float, mean: float) -> float:
        """The share for which waiting and an exponential part with this mean take longer than what is left."""
        changing = self.window
        if self.drift < 0:
            changing = min(changing, self.start / -self.drift + RELAXED * self.variance / self.drift**2)
        late = 0.0
        if changing < self.window:
            late = (self.window - changing) / self.window * self._late_at_last(left, mean)
        if mean < 1e-9 * left or not left:
            return late + (1.0 if mean and not left else self._waits_longer(left, changing)) * changing / self.window
        # Beyond 12 means there is nothing; what is left of the probability is late by itself.
        reach = min(left, 12 * mean)
        sooner = 0.0
        for half in (0.0, 0.5):
            for node, weight in FOUR:
                part = reach * (half + node / 2)
                sooner += weight / 2 * reach / mean * math.exp(-part / mean) * self._waits_longer(left - part, changing)
        return late + (sooner + math.exp(-reach / mean)) * changing / self.window

    def _late_at_last(self, left: float, mean: float) -> float:
        """The same in the steady state."""
        falling = -2 * self.drift / self.variance
        tail = math.exp(-falling * left)
        if not mean:
            return self.waits * tail
        alone = math.exp(-left / mean)
        apart = 1 - falling * mean
        if abs(apart) < 1e-6:
            return alone + self.waits * left / mean * alone
        return alone + self.waits * (tail - alone) / apart

    def _waits_longer(self, wait: float, until: float) -> float:
        """The share of the requests from 0 to `until` that wait longer than this."""
        crossing = until
        if self.drift:
            crossing = min(until, max(0.0, (wait - self.start) / self.drift))
        elif self.start > wait:
            crossing = 0.0
        if self.drift**2 * until > CERTAIN * self.variance and self.drift > 0:
            return 1 - crossing / until
        drift, variance, less, more = self.drift, self.variance, wait - self.start, wait + self.start
        rising = 2 * drift * wait / variance
        factor = math.exp(min(700.0, rising))
        found = 0.0
        for begin, length in ((0.0, crossing), (crossing, until - crossing)):
            if length <= 0:
                continue
            for node, weight in EIGHT:  # the probability that a request of this time waits longer than so long
                at = begin + node * length
                scale = math.sqrt(variance * at)
                longer = math.erfc((less - drift * at) / (scale * ROOT_OF_2)) / 2
                if longer < 1:
                    beyond = (more + drift * at) / scale
                    if beyond > 8:  # the tail of the normal distribution, multiplied before it is too small
                        mirrored = math.exp(rising - beyond * beyond / 2) / (beyond * math.sqrt(2 * math.pi))
                    else:
                        mirrored = factor * math.erfc(beyond / ROOT_OF_2) / 2
                    longer = min(1.0, longer + self.waits * mirrored)
                found += weight * length / until * longer
        return found
