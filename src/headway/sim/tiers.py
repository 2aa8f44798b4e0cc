"""How fast work goes on two tiers: the performance model of MEASY14, integrated exactly from event to event.

Rates are whole numbers of millionths, and work is counted in millionths of microseconds, so nothing is rounded between
two events: the progress of an attempt does not depend on how many events there were.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headway.errors import InvalidInput
from headway.model.instant import Duration, Instant
from headway.model.job import TaskKey
from headway.model.slots import NO_SLOTS, Slots, end_of_shared, numbers
from headway.model.tier import Tier
from headway.model.value import value
from headway.model.workload import FloatArray, Workload

FULL: Final = 1_000_000
"""The rate of an attempt that has its processors for itself."""

RATE_UNKNOWN: Final = -1
"""The rate of an attempt that has just entered; it is computed next."""


@value
class TwoTiers:
    """What the two places of a slot cost each other.

    Attributes:
        loss: the least and the greatest share of its progress that a job in the foreground loses while anything runs
            in the background of its slots; drawn once for each job.
        single: the least and the greatest share of the idle processor that a job of one process can use in the
            background; drawn once for each job.
        several: mean and standard deviation of that share for a job of several processes, then its least and greatest
            value.
        cpu: the least and the greatest CPU use of the processes of a job if it is not given and the job has several;
            that of a single process is 1.
        alone: whether a job in the background runs at full rate if the foreground of its slots is empty, as job J8 of
            the paper's figure 1 does; else it can use no more of an idle processor than of the idle time of a busy one.

    Source: MEASY14 2.1 and 3.2 (reading: mean and deviation of `several` are lost; ours).
    """

    loss: tuple[float, float] = (0.005, 0.04)
    single: tuple[float, float] = (0.80, 0.92)
    several: tuple[float, float, float, float] = (0.43, 0.14, 0.198, 0.766)
    cpu: tuple[float, float] = (0.4, 1.0)
    alone: bool = True

    def __post_init__(self) -> None:
        for name, (low, high) in (
            ("loss", self.loss),
            ("single", self.single),
            ("several", self.several[2:]),
            ("cpu", self.cpu),
        ):
            if not 0 <= low <= high <= 1:
                raise InvalidInput(f"tiers.{name}", (low, high), "two shares from 0 to 1, the lesser one first")
        mean, deviation, low, high = self.several
        if not (low <= mean <= high and deviation >= 0):
            raise InvalidInput("tiers.several", self.several, "a mean from the least to the greatest, a deviation >= 0")

    def losses(self, jobs: int, seed: int) -> list[float]:
        """For each job the share of its progress that it loses in the foreground of another."""
        drawn: list[float] = _draws(seed, 1).uniform(*self.loss, jobs).tolist()
        return drawn

    def gains(self, width: np.ndarray, seed: int) -> list[float]:
        """For each job, by its width, the share of the idle processor that it can use in the background."""
        chance = _draws(seed, 2)
        single = chance.uniform(*self.single, len(width))
        mean, deviation, low, high = self.several
        several = chance.normal(mean, deviation, len(width))
        while (outside := (several < low) | (several > high)).any() and deviation:
            several[outside] = chance.normal(mean, deviation, int(outside.sum()))
        gains: list[float] = np.where(width == 1, single, several).tolist()
        return gains

    def cpu_use(self, workload: Workload, seed: int) -> FloatArray:
        """The mean CPU use of each job's processes, shape (jobs,): what the workload says, or else a drawn value."""
        drawn = _draws(seed, 3).uniform(*self.cpu, len(workload))
        return np.where(np.isnan(workload.cpu), np.where(workload.width == 1, 1.0, drawn), workload.cpu)


TWO_TIERS: Final = TwoTiers()
"""As the paper measured it."""


def _draws(seed: int, what: int) -> np.random.Generator:
    return np.random.default_rng((seed, what, 0x2714))


NONE_BESIDE: Final[dict[TaskKey, SimulatedAttempt]] = {}
"""Nothing is beside an attempt before it enters its place; all share it, and it stays empty."""


class SimulatedAttempt:
    """An attempt that runs in a simulation.

    Attributes:
        job, task, number, slots, tier: which attempt, and where.
        total: microseconds that its work takes on these slots at full rate.
        left: what is left of it, in millionths of microseconds at full rate.
        rate: its rate in millionths, from `since` on; `RATE_UNKNOWN` at first if others run there.
        end: when it ends if nothing changes; -1: never.
        uses: CPU use of its processes by slot, if they differ; None: all as its job's.
        bounds: the `bounds` of its slots, if the core knows them, as on large machines; else None.
        beside: the attempts in the other place of any of its slots, by job and task. So an attempt that comes or goes
            looks at those that it affects, and not at the slots of all that runs.
    """

    __slots__ = (
        *(
            "beside",
            "bounds",
            "end",
            "job",
            "left",
            "number",
            "rate",
            "since",
            "slots",
            "task",
            "tier",
            "total",
            "uses",
        ),
    )

    def __init__(
        self, job: int, task: int, number: int, slots: Slots, tier: Tier, start: Instant, total: Duration
    ) -> None:
        self.job = job
        self.task = task
        self.number = number
        self.slots = slots
        self.tier = tier
        self.since = start
        self.total = total
        self.left = total * FULL
        self.rate = FULL
        self.end: Instant = start + total
        self.uses: dict[int, float] | None = None
        self.bounds: list[int] | None = None
        self.beside: dict[TaskKey, SimulatedAttempt] = NONE_BESIDE

    def go_on(self, now: Instant, rate: int) -> None:
        """Count its progress until now, and run at this rate from now on."""
        if now > self.since:
            self.left = max(0, self.left - self.rate * (now - self.since))
            self.since = now
        self.rate = rate
        if rate:
            self.end = self.since - -self.left // rate
        else:
            self.end = -1 if self.left else self.since


ByJob = list[float] | dict[int, float]
"""A value for each job, by its id."""


class Occupancy:
    """Which attempt runs in which place of the slots, and how fast each is because of that.

    Args:
        cpu: CPU use of the processes of each job, 0 to 1.
        losses, gains: as of `TwoTiers`, one value for each job.
        alone: as of `TwoTiers`.
    """

    def __init__(self, cpu: ByJob, losses: ByJob, gains: ByJob, *, alone: bool = True) -> None:
        self._alone = alone
        self._cpu = cpu
        self._losses = losses
        self._gains = gains
        self._front: dict[TaskKey, SimulatedAttempt] = {}
        self._back: dict[TaskKey, SimulatedAttempt] = {}
        self.busy = self.behind = NO_SLOTS
        self._changed: dict[TaskKey, SimulatedAttempt] = {}

    def enter(self, running: SimulatedAttempt) -> None:
        """An attempt has arrived in its place."""
        key, slots = (running.job, running.task), running.slots
        running.beside = {}
        if running.tier is Tier.FOREGROUND:
            self._front[key] = running
            self.busy |= slots
            others = self._back if slots & self.behind else None
        else:
            self._back[key] = running
            self.behind |= slots
            others = self._front if slots & self.busy else None
        if others is not None:
            for other_key, other in others.items():
                if _meet(running, other):
                    running.beside[other_key] = other
                    other.beside[key] = running
            self._changed.update(running.beside)
        self._changed[key] = running

    def leave(self, running: SimulatedAttempt) -> None:
        """An attempt has left its place."""
        key = running.job, running.task
        if running.tier is Tier.FOREGROUND:
            del self._front[key]
            self.busy ^= self.busy & running.slots
        else:
            del self._back[key]
            self.behind ^= self.behind & running.slots
        for other in running.beside.values():
            del other.beside[key]
        self._changed.update(running.beside)
        self._changed.pop(key, None)
        running.beside = {}

    def changed(self, now: Instant) -> list[SimulatedAttempt]:
        """Set the rate of every attempt from now on; returns those whose end has changed."""
        changed, self._changed = self._changed, {}
        moved = []
        for running in changed.values():
            rate = self.rate(running)
            if rate != running.rate:
                running.go_on(now, rate)
                moved.append(running)
        return moved

    def rate(self, running: SimulatedAttempt) -> int:
        """The rate of an attempt in millionths: that of its slowest process (MEASY14 3.2)."""
        job, beside = running.job, running.beside
        if running.tier is Tier.FOREGROUND:
            return FULL - int(self._losses[job] * FULL) if beside else FULL
        if not beside and self._alone:
            return FULL
        least = min([1.0, *[self._share(front, running) for front in beside.values()]])
        return int(self._gains[job] * least * FULL)

    def _share(self, front: SimulatedAttempt, back: SimulatedAttempt) -> float:
        """The idle share of what its processes want, on the slot where it is least: 0 to 1."""
        if front.uses is None and back.uses is None:
            return _found(1.0 - self._cpu[front.job], self._cpu[back.job])
        least = 1.0
        for slot in numbers(front.slots & back.slots):
            used = self._cpu[front.job] if front.uses is None else front.uses[slot]
            wanted = self._cpu[back.job] if back.uses is None else back.uses[slot]
            least = min(least, _found(1.0 - used, wanted))
        return least


def _meet(one: SimulatedAttempt, other: SimulatedAttempt) -> bool:
    """Whether two attempts have a slot in common."""
    here, there = one.bounds, other.bounds
    if here is None or there is None:
        return bool(one.slots & other.slots)
    return here[0] < there[-1] and there[0] < here[-1] and end_of_shared(here, there) > 0


def _found(idle: float, wanted: float) -> float:
    return 1.0 if idle >= wanted else idle / wanted
