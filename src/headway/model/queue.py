"""Jobs in a chosen order, kept so that jobs that could start are found without looking at each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headway.model.instant import Duration
from headway.model.value import python_class

if TYPE_CHECKING:
    from headway.model.seen import JobView

Key: TypeAlias = "Callable[[JobView], Any]"
"""A sort key of jobs. It ends in `JobView.order`, so that no two jobs have the same."""

Steps: TypeAlias = Sequence[tuple[int, Duration]]
"""What may start now: a job no wider than one of these widths and no longer than the time that goes with it."""

by_order: Final = attrgetter("order")
"""First come, first served."""

BLOCK: Final = 128
"""Number of jobs in a block when it is cut."""

SHORT_QUEUE: Final = 2 * BLOCK
"""A queue of this length is searched as fast without blocks."""


@python_class
class Queue(list["JobView"]):
    """Jobs sorted by a key: a list to read, changed only by `add` and `discard`.

    Once jobs that fit are asked for, a long queue is also kept in blocks of about `BLOCK` jobs. Each block has
    its *stairs*: for each width, rising, how short the shortest job is that is no wider. They show whether a block has
    any job that fits. So finding the few that could start among 10,000 takes a hundred looks.

    Args:
        key: what it is sorted by; a job's key may change only while the job is not in the queue.
        jobs: in any order.
    """

    __slots__ = ("_blocks", "_keys", "_stairs", "key")

    def __init__(self, key: Key, jobs: Iterable[JobView] = ()) -> None:
        super().__init__(sorted(jobs, key=key))
        self.key = key
        self._keys = [key(job) for job in self]  # beside the jobs: a search that asks each for its key takes longer
        self._blocks: list[list[JobView]] = []
        self._stairs: list[tuple[list[int], list[Duration]] | None] = []  # None: computed when it is read

    def add(self, job: JobView) -> None:
        """Put a job that is not in the queue in its place."""
        key, keys = _key_of(job, self.key), self._keys
        if not keys or keys[-1] < key:
            self.append(job)
            keys.append(key)
        else:
            place = bisect_right(keys, key)
            self.insert(place, job)
            keys.insert(place, key)
        if self._blocks:
            self._add_to_block(job)

    def follow(self, jobs: list[JobView]) -> None:
        """Put jobs, in their order, behind all that are in the queue."""
        self.extend(jobs)
        self._keys += [self.key(job) for job in jobs]

    def discard(self, job: JobView) -> None:
        """Take a job out, if it is in the queue."""
        place = _place_of(job, self, self._keys, self.key)
        if place < 0:
            return
        del self[place], self._keys[place]
        if self._blocks:
            self._drop_from_block(job)

    def place(self, job: JobView) -> int | None:
        """The place of a job, counted from 0; None if it is not in the queue."""
        place = _place_of(job, self, self._keys, self.key)
        return None if place < 0 else place

    def fitting(self, steps: Steps, begin: int = 0) -> Iterable[JobView]:
        """The jobs that could start, in order: all that fit the steps, and some others, so check each.

        Args:
            steps: the list may become stricter while the jobs are read; later jobs are compared with its new content.
            begin: the place of the first job that counts.
        """
        if len(self) <= SHORT_QUEUE:
            return self[begin:] if begin else self
        if not any(width for width, _ in steps):
            return ()  # there is no room at all
        return self._sift(steps, begin)

    def check(self) -> None:
        """Derive the blocks again and compare.

        Raises:
            AssertionError: they disagree with the list.
        """
        assert [self.key(job) for job in self] == self._keys, "keys of a queue"
        assert not self._blocks or [job for block in self._blocks for job in block] == self, "blocks of a queue"
        for block, stairs in zip(self._blocks, self._stairs, strict=True):
            assert stairs is None or stairs == _stairs(block), "stairs of a block"

    def _sift(self, steps: Steps, begin: int) -> Iterator[JobView]:
        if not self._blocks:
            self._blocks = [self[first : first + BLOCK] for first in range(0, len(self), BLOCK)]
            self._stairs = [None] * len(self._blocks)
        for number, block in enumerate(self._blocks):
            if begin >= len(block):
                begin -= len(block)
                continue
            stairs = self._stairs[number]
            if stairs is None:
                stairs = self._stairs[number] = _stairs(block)
            widths, lengths = stairs
            for width, duration in steps:
                step = bisect_right(widths, width)
                if step and lengths[step - 1] <= duration:
                    yield from block[begin:] if begin else block
                    break
            begin = 0

    def _block_of(self, job: JobView) -> int:
        """The block that has a job, or is to get it."""
        key, blocks = self.key, self._blocks
        wanted, first, last = key(job), 0, len(blocks) - 1
        while first < last:
            middle = (first + last) // 2
            if key(blocks[middle][-1]) < wanted:
                first = middle + 1
            else:
                last = middle
        return first

    def _add_to_block(self, job: JobView) -> None:
        number = self._block_of(job)
        block, stairs = self._blocks[number], self._stairs[number]
        insort(block, job, key=self.key)
        if len(block) > SHORT_QUEUE:
            self._blocks[number : number + 1] = block[:BLOCK], block[BLOCK:]
            self._stairs[number : number + 1] = None, None
        elif stairs is not None:
            widths, lengths = stairs
            step = bisect_right(widths, job.width)
            if not step or lengths[step - 1] > _length(job):
                self._stairs[number] = None

    def _drop_from_block(self, job: JobView) -> None:
        if len(self) < BLOCK:
            self._blocks, self._stairs = [], []
            return
        number = self._block_of(job)
        block, stairs = self._blocks[number], self._stairs[number]
        del block[bisect_left(block, self.key(job), key=self.key)]
        if stairs is not None:
            widths, lengths = stairs
            step = bisect_left(widths, job.width)
            if step < len(widths) and (widths[step], lengths[step]) == (job.width, _length(job)):
                self._stairs[number] = None
        for left in (number, number - 1):  # many small blocks are as expensive to look at as many large ones
            pair = self._blocks[left : left + 2] if left >= 0 else []
            if len(pair) == 2 and (not block or len(pair[0]) + len(pair[1]) <= BLOCK):
                self._blocks[left : left + 2] = [pair[0] + pair[1]]
                self._stairs[left : left + 2] = [None]
                return


# Functions instead of methods, because compiled code calls those of a Python class as Python does.
def _key_of(job: JobView, key: Key) -> Any:
    return job.order if key is by_order else key(job)


def _place_of(job: JobView, queue: list[JobView], keys: list[Any], key: Key) -> int:
    """The place of a job in a queue with these keys; -1 if it is not there."""
    if queue and queue[0] is job:
        return 0
    place = bisect_left(keys, _key_of(job, key))
    return place if place < len(queue) and queue[place] is job else -1


def _length(job: JobView) -> Duration:
    """The shortest time that a job may take: tasks of bags and workflows differ in length, and estimates change."""
    return job.estimate if job.rigid else 0


def _stairs(block: list[JobView]) -> tuple[list[int], list[Duration]]:
    shortest: dict[int, Duration] = {}
    for job in block:
        length = _length(job)
        if length < shortest.get(job.width, length + 1):
            shortest[job.width] = length
    widths: list[int] = []
    lengths: list[Duration] = []
    for width in sorted(shortest):
        if not lengths or shortest[width] < lengths[-1]:
            widths.append(width)
            lengths.append(shortest[width])
    return widths, lengths
