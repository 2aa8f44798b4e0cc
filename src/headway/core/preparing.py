"""Sorts the open jobs for a policy that is to be chosen, part by part, while the core goes on.

A policy's first round asks for the jobs in its orders (`Snapshot.in_order`, `waiting_by`), and they are sorted then.
With 100,000 jobs that takes a third of a second. So a driver may have them sorted before. Nothing that is decided
depends on it: the orders are the same, however they came about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from headway.core.sorting import Sorting
from headway.core.state import State
from headway.model.policy import Policy
from headway.model.queue import Key, Queue
from headway.model.seen import JobView
from headway.model.snapshot import Snapshot


def prepare(state: State, policy: Policy) -> Iterator[None]:
    """Sort what one of Headway's policies asks for; the choice of this policy then finds it. Pauses between the parts.

    What the policy asks for is found by asking it about an empty cluster. Whatever else it asks for is sorted in its
    round.
    """
    state.prepared_orders.clear()  # of a choice that was not made
    state.prepared_queues.clear()
    asked = Snapshot()
    policy(asked)
    for key in asked.orders:
        if key not in state.orders:
            jobs = list(state.jobs.values())
            yield from _keep(state.orders, key, jobs, lambda job: job.release <= state.now and not job.cancelled)
        state.prepared_orders.add(key)
        yield
    for key in asked.queues:
        if key not in state.queues:
            yield from _keep(state.queues, key, [*state.waiting], lambda job: True)
        state.prepared_queues.add(key)
        yield


def _keep(orders: dict[Key, Queue], key: Key, jobs: list[JobView], is_in: Callable[[JobView], bool]) -> Iterator[None]:
    """Sort jobs by a key and add the order to those that the core keeps up to date."""
    under_way = Sorting(key)
    its_key = partial(key)  # an equal function, but another key: the order is not used before it is whole
    orders[its_key] = under_way
    try:
        yield from under_way.steps(jobs, is_in)
    finally:
        orders.pop(its_key, None)
    if key not in orders:
        orders[key] = under_way.result()
