"""Better orders of tasks for a list scheduler: justified from both ends, and drawn near the best one found so far.

Every step lays all tasks out once more, in another order. The number of steps bounds the work, and what is drawn is
fixed by a seed, so the same state gives the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from headway.policies.chance import RandomNumbers
from headway.policies.holes import Fit, Holes, Times
from headway.policies.layout import Draft, Layout

Named = tuple[int, int]
"""A task: the position of its workflow among those that are laid out, and its number."""

Find = Callable[[int, Times, Times], Fit]
"""Where a task goes: of how many cores it needs, how long it takes and when it may start."""

MOVED: Final = 3
FARTHEST: Final = 0.5
"""When an order is drawn, so many tasks of the best one are moved, at most so far: a share of the whole time."""


class Improving:
    """Lays out the same tasks again and again; the best layout counts.

    Args:
        drafts: the workflows of the tasks that need places.
        find: where a task goes, in the holes that are given.
        line: mean latency, and mean time for a byte, of sending.
        minds_due: whether the tardiness of the workflows counts first; else the last end does, then the sum of ends.
    """

    def __init__(
        self,
        layout: Layout,
        drafts: Sequence[Draft],
        find: Callable[[Holes], Find],
        line: tuple[float, float],
        *,
        minds_due: bool,
    ) -> None:
        self._layout, self._drafts, self._find, self._line, self._minds_due = layout, drafts, find, line, minds_due
        self._holes, self._placed = layout.holes, layout.placed
        self._tasks = [(place, task) for place, draft in enumerate(drafts) for task in sorted(draft.missing)]
        self._after = {one: [(one[0], other) for other in self._follow(one)] for one in self._tasks}
        self._before: dict[Named, list[Named]] = {one: [] for one in self._tasks}
        self._sizes: dict[Named, dict[int, int]] = {}
        for one, others in self._after.items():
            for other in others:
                self._before[other].append(one)

    def run(self, order: Sequence[Named], steps: int, bound: float) -> None:
        """Lay the tasks out in an order, then in so many others; keep the best.

        Args:
            order: what comes before a task stands before it.
            bound: no layout ends before this instant.

        Source: justification from both ends as in Valls, Ballestin and Quintanilla, "Justification and RCPSP: a
        technique that pays", European Journal of Operational Research 165(2), 2005.
        """
        chance = RandomNumbers(0)
        best, fits = self._lay_out(order)
        latest = fits
        justifies = True
        for _ in range(steps):
            if best[0] <= 0 and best[1] <= bound:
                break
            if justifies:
                keys = self._justified(latest)
            else:
                span = FARTHEST * (best[1] - self._layout.begin)
                keys = {one: float(fits[one][1]) for one in self._tasks}
                for _ in range(MOVED):
                    one = self._tasks[int(chance.draw() * len(self._tasks))]
                    keys[one] += span * (2 * chance.draw() - 1)
            found, latest = self._lay_out(self._in_order(keys, self._before, self._after))
            justifies = not justifies or found < best
            if found <= best:
                best, fits = found, latest
        self._layout.holes, self._layout.placed = self._holes, self._placed
        for (place, task), fit in fits.items():
            self._layout.put(self._drafts[place], task, fit)

    def _follow(self, one: Named) -> list[int]:
        draft = self._drafts[one[0]]
        return [other for other in draft.job.followers[one[1]] if other in draft.missing]

    def _lay_out(self, order: Sequence[Named]) -> tuple[tuple[float, int, int], dict[Named, Fit]]:
        """Give all tasks places in this order; returns how good that is, less is better, and the places."""
        layout, fits = self._layout, dict[Named, Fit]()
        layout.holes = self._holes.copy()
        layout.placed = {}
        find = self._find(layout.holes)
        for place, task in order:
            draft = self._drafts[place]
            spec = draft.job.graph[task]
            fit = fits[place, task] = find(spec.cores, layout.lasts(spec.estimate), layout.ready(draft, task))
            layout.put(draft, task, fit)
        ends = [max(draft.end[task] for task in draft.missing) for draft in self._drafts if draft.missing]
        late = 0.0
        if self._minds_due:
            late = sum(
                max(0.0, max(draft.end[task] for task in draft.missing) - draft.job.due)
                for draft in self._drafts
                if draft.missing
            )
        return (late, max(ends, default=0), sum(ends)), fits

    def _justified(self, fits: dict[Named, Fit]) -> dict[Named, float]:
        """Keys by which tasks start as late as they can: laid out from the last one on, as if nothing else ran."""
        layout, (latency, byte) = self._layout, self._line
        holes = layout.empty()
        done: dict[Named, int] = {}
        keys = {one: float(-fit[2]) for one, fit in fits.items()}
        for place, task in self._in_order(keys, self._after, self._before):
            job = self._drafts[place].job
            spec, ready = job.graph[task], 0
            for after in self._after[place, task]:
                other = job.graph[after[1]]
                size = self._sizes_of(after)[task] if other.sends else 0
                ready = max(ready, done[after] + (round(latency + size * byte) if size else 0))
            fit = holes.soonest(spec.cores, layout.lasts(spec.estimate), ready)
            layout.take(holes, fit, spec.cores)
            done[place, task] = fit[2]
        return {one: float(-end) for one, end in done.items()}

    def _sizes_of(self, one: Named) -> dict[int, int]:
        """What a task gets of each task before it, in bytes."""
        sizes = self._sizes.get(one)
        if sizes is None:
            place, task = one
            spec = self._drafts[place].job.graph[task]
            sizes = self._sizes[one] = {}
            for before, size in zip(spec.after, spec.sends, strict=True):
                sizes.setdefault(before, size)
        return sizes

    def _in_order(
        self, keys: dict[Named, float], before: dict[Named, list[Named]], after: dict[Named, list[Named]]
    ) -> list[Named]:
        """The tasks by their keys, the least first, each when all before it have come."""
        left = {one: len(before[one]) for one in self._tasks}
        ready = [(keys[one], one) for one in self._tasks if not left[one]]
        heapify(ready)
        order: list[Named] = []
        while ready:
            _, one = heappop(ready)
            order.append(one)
            for other in after[one]:
                left[other] -= 1
                if not left[other]:
                    heappush(ready, (keys[other], other))
        return order
