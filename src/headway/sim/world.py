"""How long work really takes in a simulation: the performance model in place of real machines."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, get_args

import numpy as np

from headway.core.state import State
from headway.errors import InvalidInput
from headway.model.instant import Duration, Instant, from_seconds
from headway.model.job import JobId
from headway.model.node import NodeSpec
from headway.model.renting import Rental
from headway.model.slots import Slots
from headway.model.workload import BagTimes, Workload
from headway.sim.tiers import TWO_TIERS, TwoTiers

COST_MAX: Final = 1e9
"""Delays and costs must be below this number of seconds."""

CpuKnown = Literal["given", "drawn", "unknown"]


@dataclass(frozen=True, slots=True)
class World:
    """The performance model.

    Attributes:
        noise: standard deviation of the natural logarithm of a factor on each attempt's run time; 0: none.
        seed: fixes the noise, >= 0. Each attempt draws its own factor, whatever the order of events.
        decision_time: seconds from a round to the launches that it asks for; None: as long as the policy really took,
            so such a run is not repeatable.
        tiers: what foreground and background of a slot cost each other.
        migration_cost, kill_cost: seconds that an attempt takes before it continues after a migration, or starts again
            after it was killed.
        cpu: what the scheduler knows of the CPU use of processes. "given": what the workload says; "drawn": also the
            drawn values of the other jobs; "unknown": nothing. The actual CPU use is the same in all three.
        spot_life: seconds after which a spot machine is taken back, in the mean; each draws its own, exponentially
            distributed. None: none is.
        machine_start: seconds from asking for a machine until it is a node; None: as its offer says.
    """

    noise: float = 0.0
    seed: int = 0
    decision_time: float | None = 0.0
    tiers: TwoTiers = TWO_TIERS
    migration_cost: float = 20.0
    kill_cost: float = 0.0
    cpu: CpuKnown = "given"
    spot_life: float | None = None
    machine_start: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.noise < 10:
            raise InvalidInput("noise", self.noise, "0 to 10")
        if self.seed < 0:
            raise InvalidInput("seed", self.seed, "0 or more")
        if self.decision_time is not None and not 0 <= self.decision_time < COST_MAX:
            raise InvalidInput(
                "decision_time", self.decision_time, f"seconds, 0 or more, less than {COST_MAX:g}, or none"
            )
        for name in ("migration_cost", "kill_cost"):
            if not 0 <= getattr(self, name) < COST_MAX:
                raise InvalidInput(name, getattr(self, name), f"seconds, 0 or more, less than {COST_MAX:g}")
        if self.spot_life is not None and not 0 < self.spot_life < COST_MAX:
            raise InvalidInput("spot_life", self.spot_life, f"seconds, more than 0, less than {COST_MAX:g}, or none")
        if self.machine_start is not None and not 0 <= self.machine_start < COST_MAX:
            raise InvalidInput(
                "machine_start", self.machine_start, f"seconds, 0 or more, less than {COST_MAX:g}, or none"
            )
        if self.cpu not in get_args(CpuKnown):
            raise InvalidInput("cpu", self.cpu, ", ".join(get_args(CpuKnown)))

    def joins_at(self, rental: Rental) -> Instant:
        """When a rented machine is a node."""
        return rental.ready_at if self.machine_start is None else rental.asked + from_seconds(self.machine_start)

    def life(self, rental: int) -> float | None:
        """Seconds after which this spot machine is taken back; None: never."""
        if self.spot_life is None:
            return None
        return float(np.random.default_rng((self.seed, rental)).exponential(self.spot_life))

    def factor(self, job: int, task: int, attempt: int) -> float:
        """The factor on the run time of one attempt; its median is 1."""
        if not self.noise:
            return 1.0
        draw = np.random.default_rng((self.seed, job, task, attempt)).standard_normal()
        return float(np.exp(self.noise * draw))


class Timing(Protocol):
    """How long the attempts of a simulation run."""

    @property
    def plain(self) -> Sequence[int] | None:
        """The run time of every job, if it depends on nothing but the job."""
        ...

    def run_time(self, job: int, task: int, attempt: int, slots: Slots, state: State) -> Duration:
        """How long this attempt runs.

        Args:
            state: the core's.
        """
        ...


class Stopwatch:
    """Run times of the attempts of one workload on slots of given speeds; a `Timing`.

    Args:
        first_id: the id of its first job.
    """

    def __init__(self, world: World, workload: Workload, first_id: JobId = 0) -> None:
        self._world = world
        self._first_id = first_id
        self._work = array("q", workload.runtime.tobytes())  # numbers of a list take five times the memory
        self._workflows = workload.workflows
        self._bags = workload.bags

    def run_time(self, job: int, task: int, attempt: int, slots: Slots, state: State) -> Duration:
        """How long the attempt runs: its work at the speed of its slowest slot, times its noise.

        Args:
            state: the core's.
        """
        position = job - self._first_id
        if position in self._bags:
            node = state.slot_nodes[slots.bit_length() - 1].spec
            run_time = self._bag_time(self._bags[position], position, task, node)
        else:
            workflow = self._workflows.get(position)
            speed = state.slowest(slots)
            if workflow is None:
                run_time = self._work[position] / speed
            else:
                run_time = -(-workflow[task].estimate // speed)  # as the core rounds it: plans hold to the microsecond
        return round(run_time * self._world.factor(job, task, attempt))

    def _bag_time(self, times: BagTimes, job: int, task: int, node: NodeSpec) -> float:
        usual = self._work[job]
        work = times.tasks[task] if times.tasks else usual
        here = dict(times.classes).get(node.node_class)
        if here is None:
            return work / node.speed
        return here * work / usual if usual else here

    @property
    def plain(self) -> Sequence[int] | None:
        """The run time of every job by its id, where neither noise nor workflows nor unequal bags are; else None."""
        is_plain = not (self._world.noise or self._workflows or self._bags or self._first_id)
        return self._work if is_plain else None


class Estimates:
    """Run times as a core estimates them when attempts start, times the noise of a world; a `Timing`.

    Args:
        given: microseconds that each task of a job takes on a slot of speed factor 1, by job, where it is known better.
    """

    def __init__(self, world: World, given: Mapping[JobId, Duration] | None = None) -> None:
        self._world = world
        self._given = dict(given or {})

    @property
    def plain(self) -> Sequence[int] | None:
        """None: the core learns meanwhile."""
        return None

    def run_time(self, job: int, task: int, attempt: int, slots: Slots, state: State) -> Duration:
        """How long the attempt runs if it continues from no checkpoint."""
        if job in self._given:
            run_time = round(self._given[job] / state.slowest(slots))
        else:
            run_time = state.time_said(state.jobs[job], task, slots)
        return round(run_time * self._world.factor(job, task, attempt)) if self._world.noise else run_time


class Joined:
    """Run times of jobs that are in the system, and of jobs that come later; a `Timing`.

    Args:
        there, later: the two.
        first_id: the id of the first job that comes later.
    """

    def __init__(self, there: Timing, later: Timing, first_id: JobId) -> None:
        self._there = there
        self._later = later
        self._first_id = first_id

    @property
    def plain(self) -> Sequence[int] | None:
        """None: it depends on more than the job."""
        return None

    def run_time(self, job: int, task: int, attempt: int, slots: Slots, state: State) -> Duration:
        """How long the attempt runs."""
        timing = self._there if job < self._first_id else self._later
        return timing.run_time(job, task, attempt, slots, state)
