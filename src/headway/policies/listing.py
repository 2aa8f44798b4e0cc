"""List scheduling: when jobs end that go to the slots in a given order, and at what penalty (Chang16 V.B.2b).

Whenever a slot is free, it takes a task of the first job that has one left. Slots that differ in nothing but when they
are free are counted, not listed: a job costs steps for the times at which slots become free, not for its tasks.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from headway.model.instant import NEVER, Duration, Instant
from headway.policies.sequence import Load, Order

MANY_INSTANTS: Final = 6
"""Tasks that are expected to need the slots of more instants are listed together, others instant by instant."""


class SlotTimes:
    """How many slots become free when.

    Args:
        free: instants and how many slots are free from then on, in any order.

    Attributes:
        times: the instants, rising.
        counts: of each, how many slots.
        slots: how many there are in all.
    """

    __slots__ = ("counts", "slots", "times")

    def __init__(self, free: Iterable[tuple[Instant, int]] = ()) -> None:
        self.times: list[Instant] = []
        self.counts: list[int] = []
        self.slots = 0
        for at, count in free:
            if count > 0:
                self._add(at, count)
                self.slots += count

    def copy(self) -> SlotTimes:
        """The same slots, to go on with separately."""
        other = SlotTimes()
        other.times, other.counts, other.slots = self.times[:], self.counts[:], self.slots
        return other

    def items(self) -> list[tuple[Instant, int]]:
        """The instants and how many slots become free then, soonest first."""
        return list(zip(self.times, self.counts, strict=True))

    def equals(self, other: SlotTimes) -> bool:
        """Whether as many slots become free at each instant."""
        return self.times == other.times and self.counts == other.counts

    def run(self, tasks: int, run_time: Duration) -> Instant:
        """Let tasks of this length run, each on the slot that is free first; when the last one ends.

        Raises:
            ValueError: there are no slots, or no tasks.
        """
        if not self.slots or tasks < 1:
            raise ValueError(f"{tasks} tasks cannot run on {self.slots} slots")
        times, counts = self.times, self.counts
        if run_time <= 0:
            return times[0]
        end = times[0]
        if tasks >= self.slots:
            many = bisect_right(times, times[-1] - run_time)  # instants of slots that can run a task before the last
            first = sum([counts[place] * ((times[-1] - times[place]) // run_time) for place in range(many)])
            if first <= tasks:
                if many:
                    end = self._level(many, run_time)
                rounds, tasks = divmod(tasks - first, self.slots)
                if rounds:
                    return self._run_behind(rounds, tasks, run_time)
            elif tasks > 4 * self.slots:
                tasks -= self._run_most(tasks - self.slots, run_time)
                times, counts = self.times, self.counts
        elif tasks * len(times) > MANY_INSTANTS * self.slots and end + run_time >= times[-1]:
            return self._run_behind(0, tasks, run_time)
        gone, place = 0, 0  # `gone` instants have no slot left; the ends rise, and so do their places
        while tasks:
            end, taken = times[gone] + run_time, counts[gone]
            if taken > tasks:
                counts[gone] -= tasks
                taken = tasks
            else:
                gone += 1
            tasks -= taken
            place = bisect_left(times, end, place)
            if place < len(times) and times[place] == end:
                counts[place] += taken
            else:
                times.insert(place, end)
                counts.insert(place, taken)
        del times[:gone]
        del counts[:gone]
        return end

    def _add(self, at: Instant, count: int) -> None:
        times = self.times
        place = bisect_left(times, at)
        if place < len(times) and times[place] == at:
            self.counts[place] += count
        else:
            times.insert(place, at)
            self.counts.insert(place, count)

    def _run_behind(self, rounds: int, tasks: int, run_time: Duration) -> Instant:
        """Let a task run on each slot, so many times, and then less tasks than there are slots; when they end.

        Of those that run one behind the other on different slots, none ends before the last slot is free.
        """
        times, counts = self.times, self.counts
        gone, shift = 0, rounds * run_time
        while tasks >= counts[gone]:
            tasks -= counts[gone]
            gone += 1
        later, taken = [at + shift + run_time for at in times[:gone]], counts[:gone]
        if tasks:
            counts[gone] -= tasks
            later.append(times[gone] + shift + run_time)
            taken.append(tasks)
        before = [at + shift for at in times[gone:]] if shift else times[gone:]
        counts = counts[gone:]
        end, met = later[-1] if later else before[-1], 0
        if later and later[0] == before[-1]:
            counts[-1] += taken[0]
            met = 1
        times[:] = before + later[met:]
        self.counts[:] = counts + taken[met:]
        return end

    def _level(self, many: int, run_time: Duration) -> Instant:
        """Let tasks run on each slot until less than one more fits before the last slot is free; when they end.

        These are the tasks that start first, if there are as many. Behind them each slot takes one task in turn, so
        that a round of tasks is later than the one before by their run time, and nothing else changes.

        Args:
            many: at so many of the instants there are slots that can run one.
        """
        times, counts = self.times, self.counts
        last = times[-1]
        pieces = [(at + (last - at) // run_time * run_time, counts[place]) for place, at in enumerate(times[:many])]
        del times[:many]
        del counts[:many]
        for until, count in pieces:
            self._add(until, count)
        return max(pieces)[0]

    def _run_most(self, most: int, run_time: Duration) -> int:
        """Let all tasks run that start before some instant, which is as late as `most` tasks allow; how many they are.

        A slot that is free from `f` on starts `ceil((T - f) / run_time)` tasks before `T`.
        """
        free = self.items()
        low = free[0][0]
        high = low + run_time * most
        while low < high:
            middle = (low + high + 1) // 2
            if sum([count * -(-(middle - at) // run_time) for at, count in free if at < middle]) <= most:
                low = middle
            else:
                high = middle - 1
        done = 0
        self.times, self.counts = [], []
        for at, count in free:
            each = -(-(low - at) // run_time) if at < low else 0
            done += each * count
            self._add(at + each * run_time, count)
        return done


def ends(loads: Sequence[Load], order: Iterable[int], free: SlotTimes) -> list[Instant]:
    """When each job ends if the jobs go in this order to the slots, which are then taken. In the order of `loads`.

    Raises:
        ValueError: a job has tasks left, and there are no slots.
    """
    found = [load.until for load in loads]
    for place in order:
        load = loads[place]
        if load.tasks:
            end = free.run(load.tasks, load.run_time)
            if end > found[place]:
                found[place] = end
    return found


def total_penalty(loads: Sequence[Load], found: Sequence[Instant]) -> float:
    """The penalty of all jobs that end so."""
    return sum([load.penalty(end) for load, end in zip(loads, found, strict=True)])


class Outcomes:
    """The penalty of all jobs and when the last of them ends, by the number of slots that are free from `now` on.

    This is c_B(m) of Chang16, not yet brought to a window. The order depends on the number of slots only by how many
    tasks of each job run one after the other. It is made again where one of these numbers is another one.
    """

    def __init__(self, loads: Sequence[Load], order: Order, now: Instant = 0) -> None:
        self._loads, self._order, self._now = loads, order, now
        self._tasks = sum([load.tasks for load in loads])
        self._orders: dict[tuple[int, ...], list[int]] = {}
        self._known: dict[int, tuple[float, Instant]] = {}

    def of(self, slots: int) -> tuple[float, Instant]:
        """With so many slots. Without any, both are infinite (`NEVER`) while tasks are left."""
        slots = min(slots, self._tasks)
        found = self._known.get(slots)
        if found is None:
            found = self._known[slots] = self._listed(slots)
        return found

    def _listed(self, slots: int) -> tuple[float, Instant]:
        loads = self._loads
        if not slots:
            return (math.inf, NEVER) if self._tasks else self._outcome([load.until for load in loads])
        in_turn = tuple([-(-load.tasks // slots) for load in loads])
        chosen = self._orders.get(in_turn)
        if chosen is None:
            chosen = self._orders[in_turn] = list(self._order(loads, slots, self._now))
        return self._outcome(ends(loads, chosen, SlotTimes([(self._now, slots)])))

    def _outcome(self, found: Sequence[Instant]) -> tuple[float, Instant]:
        return total_penalty(self._loads, found), max(found, default=self._now)


def penalties(loads: Sequence[Load], most: int, order: Order, now: Instant = 0) -> list[tuple[float, Instant]]:
    """The penalty of all jobs and when the last of them ends, with 0, 1, ... `most` slots; see `Outcomes`."""
    outcomes = Outcomes(loads, order, now)
    return [outcomes.of(slots) for slots in range(most + 1)]
