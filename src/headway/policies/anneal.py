"""Simulated annealing of an order of jobs for list scheduling: the least penalty within a bounded number of steps.

An order is changed by moving a job, or by swapping two, and what follows is scheduled again, from the first job that
changed until the slots are free as they were before, or until it is clear that the change is refused. What is drawn
depends on a seed alone, and the effort is counted in steps, so every machine finds the same order.

Source: S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, "Optimization by simulated annealing", Science 220, 1983.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from headway.model.instant import NEVER
from headway.policies.chance import RandomNumbers
from headway.policies.listing import SlotTimes, ends, total_penalty
from headway.policies.sequence import Load, by_due_date, by_tardiness_cost, by_weight, greedy

HOT: Final = 0.1
"""The first temperature of a new search, in parts of what a job costs more if it waits for one more job."""

WARM: Final = 0.01
"""The same of a search that begins with a good order."""

COLD: Final = 1e-4
"""The last temperature."""

STEPS_PER_PAIR_MAX: Final = 400
"""More steps than this for each pair of jobs are not worth their time."""

DIRECT: Final = 100
"""With so many steps for each pair of jobs the real slots are searched from the start."""

TRIED_PLACES: Final = 64
"""At so many places, evenly apart, a new job is tried in an order."""


def annealed(loads: Sequence[Load], free: SlotTimes, steps: int, seed: int, before: Sequence[int] = ()) -> list[int]:
    """An order of some jobs with little penalty.

    Without new jobs it is the order from before. New jobs are put where they cost least, and the search begins there.

    Without an order from before, it begins with the best of the orders `atc`, `wspt`, `greedy` and `edf`. Of many jobs,
    the first half of the steps is then done with one slot as fast as all together. There a change concerns only the
    jobs between its two places, so it is tried at a small part of the cost, and the order found is close to a good one.

    Args:
        loads: the jobs; those without tasks get no place in the order.
        free: the slots, at least one.
        steps: how many jobs are placed in trials, at most; less are enough for few jobs.
        seed: what is drawn in the search.
        before: positions in `loads`, first come first.
    """
    jobs = sum([1 for load in loads if load.tasks])
    steps = min(steps, STEPS_PER_PAIR_MAX * jobs * jobs)
    now = free.times[0]
    if before:
        search = Annealing(loads, free, before)
        there = set(before)
        if all(place in there or not load.tasks for place, load in enumerate(loads)):
            return search.order  # nothing new: the order was searched for when the last job came
        for place in by_tardiness_cost(loads, free.slots, now):
            if place not in there and loads[place].tasks:
                search.insert(place)
        return search.improve(steps, seed, WARM)
    if free.slots == 1 or steps >= DIRECT * jobs * jobs:
        return Annealing(loads, free, _best_of_rules(loads, free)).improve(steps, seed, HOT)
    together = SlotTimes([(sum([at * count for at, count in free.items()]) // free.slots, 1)])
    flat = [flattened(load, free.slots) for load in loads]
    found = Annealing(flat, together, _best_of_rules(flat, together)).improve(steps // 2, seed, HOT)
    rules = _best_of_rules(loads, free)
    search, other = Annealing(loads, free, found), Annealing(loads, free, rules)
    if other.cost < search.cost:
        search = other
    return search.improve(steps - steps // 2, seed, WARM)


def flattened(load: Load, slots: int) -> Load:
    """The job as one task on one slot that is as fast as all together.

    It would take the same work there. What it takes longer on many, because its last task cannot be divided, is taken
    from its due date.
    """
    if not load.tasks:
        return load
    tail = load.run_time - load.run_time // slots
    due = load.due - tail if load.due < NEVER else NEVER
    return Load(1, max(1, load.tasks * load.run_time // slots), due, load.rate, load.shape, load.until)


def _best_of_rules(loads: Sequence[Load], free: SlotTimes) -> list[int]:
    best, least = list[int](), math.inf
    for rule in (by_tardiness_cost, by_weight, greedy, by_due_date):
        order = list(rule(loads, free.slots, free.times[0]))
        cost = total_penalty(loads, ends(loads, order, free.copy()))
        if cost < least:
            best, least = order, cost
    return best


class Annealing:
    """The order of some loads on some slots, and how it is improved.

    Args:
        loads: the jobs; those without tasks cost what their running tasks cost.
        free: the slots.
        order: positions in `loads`, each that has tasks once.

    Attributes:
        order: the present order.
        cost: its penalty.
        best, least: the best order found, and its penalty.
        steps: how many jobs have been placed in trials.
    """

    def __init__(self, loads: Sequence[Load], free: SlotTimes, order: Iterable[int]) -> None:
        self.loads = loads
        self.order = [place for place in order if loads[place].tasks]
        started = [load for load in loads if not load.tasks]
        self._tasks = [load.tasks for load in loads]
        self._run_times = [load.run_time for load in loads]
        self._until = [load.until for load in loads]
        self._states = [free]
        self._costs = [math.fsum([load.penalty(load.until) for load in started])]
        self.steps = 0
        self._unit = self._penalty_of_a_step()
        for place in self.order:
            state = self._states[-1].copy()
            self._costs.append(self._costs[-1] + self._run(state, place))
            self._states.append(state)
        self.cost = self._costs[-1]
        self.best, self.least = self.order[:], self.cost

    def insert(self, place: int) -> None:
        """Put a job that is not in the order yet where it costs least, of about `TRIED_PLACES` places."""
        order, jobs = self.order, len(self.order)
        chosen, least = jobs, math.inf
        for at in range(0, jobs + 1, 1 + jobs // TRIED_PLACES):
            state, cost = self._states[at].copy(), self._costs[at] + 0.0
            cost += self._run(state, place)
            for after in order[at:]:
                cost += self._run(state, after)
                if cost >= least:
                    break
            if cost < least:
                chosen, least = at, cost
        order.insert(chosen, place)
        self._states.append(self._states[-1])
        self._costs.append(self._costs[-1])
        self._accept(chosen, len(order), least)
        self.best, self.least = order[:], self.cost

    def improve(self, steps: int, seed: int, heat: float) -> list[int]:
        """Search until so many jobs have been placed; the best order found so far.

        Args:
            heat: the first temperature, as `HOT`.
        """
        jobs = len(self.order)
        if jobs < 2:
            return self.best
        chance = RandomNumbers(seed)
        end = self.steps + steps
        hot = heat * self._unit
        cooling = math.log(COLD / heat)
        while self.steps < end and self.least > 0.0:
            temperature = hot * math.exp(cooling * (1.0 - (end - self.steps) / steps))
            first = int(chance.draw() * jobs)
            way = chance.draw()
            distance = 1 + int((jobs - 1) * way * way * way)
            second = first + distance if chance.draw() < 0.5 else first - distance
            if not 0 <= second < jobs:
                continue
            limit = self.cost - temperature * math.log(1.0 - chance.draw())
            self._try(first, second, chance.draw() < 0.5, limit)
        return self.best

    def _penalty_of_a_step(self) -> float:
        """What a job costs more if it waits for one more job, on average: the unit of temperatures."""
        jobs, slots = len(self.order), self._states[0].slots
        if not jobs:
            return 0.0
        work = sum([self._tasks[place] * self._run_times[place] for place in self.order])
        step = work // (jobs * slots)
        return math.fsum([self.loads[place].penalty_of(step) for place in self.order]) / jobs

    def _run(self, state: SlotTimes, place: int) -> float:
        end = state.run(self._tasks[place], self._run_times[place])
        until = self._until[place]
        return self.loads[place].penalty(end if end > until else until)

    def _try(self, first: int, second: int, is_swap: bool, limit: float) -> None:
        """Move a job, or swap two; take that back if the penalty would be above the limit."""
        order = self.order
        self._change(first, second, is_swap)
        low, high = (first, second) if first < second else (second, first)
        state = self._states[low].copy()
        cost = self._costs[low]
        position, jobs = low, len(order)
        after = 0.0
        while position < jobs:
            cost += self._run(state, order[position])
            self.steps += 1
            position += 1
            if cost > limit:
                break
            if position > high and state.equals(self._states[position]):
                after = self.cost - self._costs[position]
                break
        if cost + after > limit:
            self._change(first if is_swap else second, second if is_swap else first, is_swap)
            return
        self._accept(low, position, cost)

    def _change(self, first: int, second: int, is_swap: bool) -> None:
        order = self.order
        if is_swap:
            order[first], order[second] = order[second], order[first]
        else:
            order.insert(second, order.pop(first))

    def _accept(self, low: int, until: int, cost: float) -> None:
        """Keep the order; what it costs is new from `low` on, and what is free is new there up to `until`."""
        order, states, costs = self.order, self._states, self._costs
        shift = cost - costs[until]
        for position in range(low, until):
            state = states[position].copy()
            costs[position + 1] = costs[position] + self._run(state, order[position])
            states[position + 1] = state
        for position in range(until + 1, len(costs)):
            costs[position] += shift
        self.cost = costs[-1]
        if self.cost < self.least:
            self.least, self.best = self.cost, order[:]
