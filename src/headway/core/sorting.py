"""An order of jobs in the making: sorted part by part, while the core goes on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from operator import itemgetter
from typing import Any, Final

from headway.model.queue import Key, Queue
from headway.model.seen import JobView
from headway.model.value import python_class

SORTED_AT_ONCE: Final = 2_000
"""Jobs that are sorted in one go, in a few milliseconds. Then they are merged, of two lists at most so many at once."""

ADDED_AT_ONCE: Final = 50
"""Jobs that have changed meanwhile and are added one by one at the end."""


Run = list[tuple[Any, JobView]]
"""Jobs with their keys, sorted by these."""

_by_key: Final = itemgetter(0)


def _merge_all(runs: list[Run]) -> Generator[None, None, Run]:
    """Merge sorted lists, pair by pair, and empty the list of them."""
    while len(runs) > 1:
        merged = yield from _merge(runs.pop(0), runs.pop(0))
        runs.append(merged)
    return runs.pop() if runs else []


def _merge(one: Run, other: Run) -> Generator[None, None, Run]:
    """Merge two sorted lists, part by part."""
    merged: Run = []
    at_one = at_other = 0
    while at_one < len(one) and at_other < len(other):
        last = min(_ahead(one, at_one), _ahead(other, at_other))
        to_one, to_other = (
            bisect_right(one, last, at_one, key=_by_key),
            bisect_right(other, last, at_other, key=_by_key),
        )
        part = one[at_one:to_one] + other[at_other:to_other]
        part.sort(key=_by_key)
        merged += part
        at_one, at_other = to_one, to_other
        yield
    merged += one[at_one:]
    merged += other[at_other:]
    return merged


def _ahead(run: Run, place: int) -> Any:
    """The key of the last entry that may be merged in one go."""
    return run[min(place + SORTED_AT_ONCE, len(run)) - 1][0]


@python_class
class Sorting(Queue):
    """An order in the making. The core tells it of changes, as it tells every other one; it is itself always empty."""

    __slots__ = ("_changed", "_made", "_sorted")

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self._changed: dict[JobView, bool] = {}
        self._sorted: Run = []
        self._made = Queue(key)

    def add(self, job: JobView) -> None:
        """A job is to be in the order, in its new place."""
        self._changed[job] = True

    def discard(self, job: JobView) -> None:
        """A job is not to be in the order. Its key is still that under which it was sorted."""
        self._changed[job] = False
        self._made.discard(job)

    def steps(self, jobs: list[JobView], is_in: Callable[[JobView], bool]) -> Iterator[None]:
        """Sort those jobs of a list that are in the order, less those that are changed meanwhile."""
        runs: list[Run] = []
        for first in range(0, len(jobs), SORTED_AT_ONCE):
            runs.append(self._run(filter(is_in, jobs[first : first + SORTED_AT_ONCE])))
            yield
        self._sorted = yield from _merge_all(runs)
        while len(self._changed) > ADDED_AT_ONCE:
            changed, self._changed = self._changed, {}
            self._sorted = [entry for entry in self._sorted if entry[1] not in changed]
            yield
            self._sorted += self._run([job for job, is_there in changed.items() if is_there])
            self._sorted.sort(key=_by_key)
            yield
        self._sorted.reverse()
        while self._sorted:
            part = self._sorted[: -SORTED_AT_ONCE - 1 : -1]
            del self._sorted[-SORTED_AT_ONCE:]
            self._made.follow([job for _, job in part if job not in self._changed])
            yield

    def result(self) -> Queue:
        """The order."""
        for job, is_there in self._changed.items():
            if is_there:
                self._made.add(job)
        return self._made

    def _run(self, jobs: Iterable[JobView]) -> Run:
        return sorted([(self.key(job), job) for job in jobs], key=_by_key)
