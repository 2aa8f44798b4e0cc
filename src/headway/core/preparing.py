"""Sorts the open jobs for a policy that is to be chosen, part by part, while the core goes on.

A policy's first round asks for the jobs in its orders (`Snapshot.in_order`, `waiting_by`), and they are sorted then.
With 100,000 jobs that takes a third of a second. So a driver may have them sorted before. Nothing that is decided
depends on it: the orders are the same, however they came about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, Final

from headway.core.state import State
from headway.model.queue import Key, Queue
from headway.model.snapshot import JobView, Policy, Snapshot

SORTED_AT_ONCE: Final = 2_000
"""Jobs that are sorted in one go, in a few milliseconds; then they are merged, pair by pair."""

ADDED_AT_ONCE: Final = 50
"""Jobs that have changed meanwhile and are added one by one at the end."""


_by_key: Final = itemgetter(0)


class Sorting(Queue):
    """An order in the making. The core tells it of changes, as it tells every other one; it is itself always empty."""

    __slots__ = ("_changed", "_sorted")

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self._changed: dict[JobView, bool] = {}
        self._sorted: list[tuple[Any, JobView]] = []

    def add(self, job: JobView) -> None:
        """A job is to be in the order, in its new place."""
        self._changed[job] = True

    def discard(self, job: JobView) -> None:
        """A job is not to be in the order."""
        self._changed[job] = False

    def steps(self, jobs: list[JobView]) -> Iterator[None]:
        """Sort the jobs of a list, less those that are changed meanwhile."""
        runs: list[list[tuple[Any, JobView]]] = []
        for first in range(0, len(jobs), SORTED_AT_ONCE):
            runs.append(self._run(jobs[first : first + SORTED_AT_ONCE]))
            yield
        while len(runs) > 1:
            merged = []
            for place in range(0, len(runs), 2):
                run = [*runs[place], *runs[place + 1]] if place + 1 < len(runs) else runs[place]
                run.sort(key=_by_key)  # of two sorted runs: they are merged
                merged.append(run)
                yield
            runs = merged
        self._sorted = runs[0] if runs else []
        while len(self._changed) > ADDED_AT_ONCE:
            changed, self._changed = self._changed, {}
            self._sorted = [entry for entry in self._sorted if entry[1] not in changed]
            yield
            self._sorted += self._run([job for job, is_there in changed.items() if is_there])
            self._sorted.sort(key=_by_key)
            yield

    def result(self) -> Queue:
        """The order."""
        queue, changed = Queue(self.key), self._changed
        queue.extend([job for _, job in self._sorted if job not in changed])
        for job, is_there in changed.items():
            if is_there:
                queue.add(job)
        return queue

    def _run(self, jobs: Iterable[JobView]) -> list[tuple[Any, JobView]]:
        return sorted([(self.key(job), job) for job in jobs], key=_by_key)


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
            jobs = [job for job in state.jobs.values() if job.release <= state.now and not job.cancelled]
            yield from _keep(state.orders, key, jobs)
        state.prepared_orders.add(key)
    for key in asked.queues:
        if key not in state.queues:
            yield from _keep(state.queues, key, [*state.waiting])
        state.prepared_queues.add(key)


def _keep(orders: dict[Key, Queue], key: Key, jobs: list[JobView]) -> Iterator[None]:
    """Sort jobs by a key and add the order to those that the core keeps up to date."""
    under_way = Sorting(key)
    its_key = partial(key)  # an equal function, but another key: the order is not used before it is whole
    orders[its_key] = under_way
    try:
        yield from under_way.steps(jobs)
    finally:
        orders.pop(its_key, None)
    if key not in orders:
        orders[key] = under_way.result()
