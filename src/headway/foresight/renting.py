"""What would be rented for the open jobs, and what for: the future of a state by its estimates, with and without."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.model.actions import JobStatus
from headway.model.events import RentingChosen
from headway.model.instant import NEVER
from headway.model.job import JobId
from headway.model.policy import PolicySource
from headway.model.renting import Renting
from headway.model.schedule import RentalRow, Schedule
from headway.sim.kernel import Simulation


@dataclass(frozen=True, slots=True)
class WouldRent:
    """What would be rented.

    Attributes:
        machines: those that would be asked for from now on, in this order.
        jobs: the open jobs for which they would be, by machine; None: for no one job.
        late, late_without: the jobs that would be late with these machines, and if none could be rented.
    """

    machines: tuple[RentalRow, ...]
    jobs: tuple[JobId | None, ...]
    late: tuple[JobId, ...]
    late_without: tuple[JobId, ...]


def would_rent(
    state: StateRecord, policies: PolicySource, *, renting: Renting | None = None, policy: str | None = None
) -> WouldRent:
    """Simulate the open jobs to their ends: tasks run as long as they are expected to, and nothing is really rented.

    Args:
        renting: what could be rented; None: what the state says.
        policy: the policy from now on; None: that of the state.

    Raises:
        HeadwayError: there is no such policy.
    """
    before = 0 if state.market is None else state.market.count
    found = _future(state, policies, renting, policy)
    without = _future(state, policies, Renting(), policy)
    machines = tuple(row for row in found.rentals if row.number > before)
    labels = found.label.tolist()
    return WouldRent(
        machines,
        tuple(None if row.job is None else int(labels[row.job]) for row in machines),
        _late(found),
        _late(without),
    )


def _future(state: StateRecord, policies: PolicySource, renting: Renting | None, policy: str | None) -> Schedule:
    if renting is not None:
        core = Scheduler.restore(state, policies)
        core.handle(RentingChosen(state.now, renting))
        state = core.dump()
    return Simulation.from_state(state, policies, policy).run()


def _late(done: Schedule) -> tuple[JobId, ...]:
    late = (done.due < NEVER) & (~done.has(JobStatus.SUCCEEDED) | (done.end > done.due))
    return tuple(int(label) for label in done.label[late].tolist())
