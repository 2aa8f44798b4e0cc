"""The policy of a service's own pool: it runs as many instances as the pool has slots."""

from __future__ import annotations

from headway.model.job import Kind
from headway.model.plan import Claim, Plan, Reason
from headway.model.queue import by_order
from headway.model.seen import JobView
from headway.model.slots import NO_SLOTS, Slots, count, lowest
from headway.model.snapshot import Snapshot
from headway.model.value import value


@value
class Instances:
    """Services get all slots, first come, first served, each up to its most instances. Batch jobs get none.

    Args:
        per_instant: one round for all events of an instant, instead of one after each event.
    """

    per_instant: bool = False

    @property
    def task_rounds(self) -> bool:
        """No: a slot continues with the next instance of its service."""
        return False

    @property
    def serves(self) -> tuple[Kind, ...]:
        """Services."""
        return (Kind.SERVICE,)

    def __call__(self, view: Snapshot) -> Plan:
        plan, left = view.plan(), view.up
        for job in view.in_order(by_order):
            slots = _instances(view, job, left)
            left ^= slots
            if slots != job.held:
                plan.hold(job.id, slots, Claim.AFTER)
            if job.ready:
                plan.pass_over(job.id, Reason.NO_SHARE)
        return plan


def _instances(view: Snapshot, job: JobView, left: Slots) -> Slots:
    """The slots of a service: those where it runs, because they are warm, then others for what has not started."""
    slots = NO_SLOTS
    for attempt in job.attempts.values():
        if not attempt.ending and not attempt.alone:
            slots |= attempt.slots & left
    ready = job.ready
    for more in (job.held & left & ~slots, view.free & left & ~slots):
        number = min(count(more), ready)
        slots |= lowest(more, number)
        ready -= number
    return slots
