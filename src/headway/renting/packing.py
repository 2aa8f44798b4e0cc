"""The cheapest machines on which tasks of known length end in time: a greedy choice that looks ahead, then repaired.

Theory. A machine of an offer costs what is billed from when it is asked for until its last task ends, however many of
its slots are used. So what counts is what a machine costs for each second of work that it takes on. **Greedy**: for
each offer the next machine is filled in thought, in order of due dates, and the fill is cut where the cost of its work,
in relation to what it would cost on machines of its own, is lowest; the best of all offers is taken, until nothing is
left. Where whole hours are billed, fills of one hour, of two, and so on are tried. **Repair**: some machines are
emptied, and their tasks put where each costs least, in one order or another; what is cheaper is kept. The number of
slots that are looked at is bounded, not the time, so every computer decides alike.

On one slot tasks run in order of their due dates, which is the best order for those that are all there. An offer of
which another one is never worse is left out at the beginning: machines of two slots, billed alike, are never worse than
half as many of four slots at twice the price.

Nothing here knows of jobs or chances: `headway.renting.choosing` asks with the times that it wants to be sure of.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import ceil, inf
from typing import Final

import numpy as np

from headway.model.instant import HOUR, NEVER, SECOND, Duration, Instant
from headway.model.renting import Money, Offer
from headway.model.value import value

EFFORT: Final = 15_000
"""So many slots the repair looks at, at most."""

MISFITS_MAX: Final = 24
"""A fill ends when so many tasks in a row do not fit."""

FILL: Final = (64, 16)
"""A fill has so many pieces at most, or so many for each slot."""

HOURS: Final = (1, 2, 4, 8)
"""Fills of so many periods are tried, where periods are long."""

ROUNDED_DOWN: Final = 1 - 1e-9
"""What a cost is multiplied with that is only a bound, so that no rounding makes it greater than the cost."""

LONG_PERIOD: Final[Duration] = 600 * SECOND
"""Periods that are tried so."""


@value
class PackingPiece:
    """A task of known length.

    Attributes:
        due: when it must have ended.
        time: how long it takes on a slot of speed 1.
        redo: how long before its due date it must have ended on a machine that may be taken back, so that it can still
            be done again; -1: it must not run on one.
    """

    due: Instant
    time: Duration
    redo: Duration = -1


@value
class AtHand:
    """A machine that there is: rented, or one's own at the price 0.

    Attributes:
        since: from when on it is billed.
        paid: until when its cost cannot be avoided any more.
        free: for each slot, from when on it is.
        until: when it goes, whatever runs there.
    """

    offer: Offer
    since: Instant
    paid: Instant
    free: tuple[Instant, ...]
    until: Instant


class LoadedMachine:
    """A machine with what is to run there.

    Attributes:
        machine: None: it is to be rented.
        slots: for each slot the pieces, in order of their due dates.
        ends: for each slot, when the last of them ends.
        cost: what they cost that is not to be paid anyway.
    """

    __slots__ = ("cost", "ends", "free", "kind", "machine", "offer", "since", "slots", "sunk", "until")

    def __init__(self, offer: Offer, kind: int, now: Instant, machine: AtHand | None, until: Instant) -> None:
        self.offer = offer
        self.kind = kind
        self.machine = machine
        if machine is None:
            self.since, self.sunk, self.until = now, 0, until
            self.free = [now + offer.start_time] * offer.slots
        else:
            self.since, self.sunk, self.until = machine.since, offer.bill(machine.paid - machine.since), machine.until
            self.free = list(machine.free)
        self.slots: list[list[int]] = [[] for _ in self.free]
        self.ends = list(self.free)
        self.cost = 0

    @property
    def pieces(self) -> list[int]:
        """All of them."""
        return [piece for slot in self.slots for piece in slot]

    def copy(self) -> LoadedMachine:
        """The same, for changes."""
        made = object.__new__(LoadedMachine)
        made.offer, made.kind, made.machine, made.since = self.offer, self.kind, self.machine, self.since
        made.sunk, made.until, made.free, made.cost = self.sunk, self.until, self.free, self.cost
        made.slots, made.ends = [list(slot) for slot in self.slots], list(self.ends)
        return made


class Packing:
    """Puts pieces on machines.

    Args:
        pieces: what is to be done; the place of one in here is its name.
        offers: what can be rented.
        left: how many more of each can be.
        machines: what there is.
        now: all can begin.
        risk: how often a machine is taken back in an hour that may be.
        effort: so many slots the repair looks at.
        worth: the places of the offers of which no other is never worse; None: they are looked for.

    After `run`, `loads` has the machines on which something is to run, and `missed` what does not end in time;
    `offered` is how many offers there are: those of `machines` come after them in `offers`.
    """

    def __init__(
        self,
        pieces: Sequence[PackingPiece],
        offers: Sequence[Offer],
        left: Sequence[int],
        machines: Sequence[AtHand],
        now: Instant,
        *,
        risk: float = 0.05,
        effort: int = EFFORT,
        worth: Sequence[int] | None = None,
    ) -> None:
        self._now, self._effort = now, effort
        self._machines = machines
        self._due = [piece.due for piece in pieces]
        self._spot_due = [piece.due - piece.redo if piece.redo >= 0 else -1 for piece in pieces]
        self._times = [piece.time for piece in pieces]
        self._by_speed: dict[float, list[Duration]] = {}
        self._order = sorted(range(len(pieces)), key=lambda one: (pieces[one].due, -pieces[one].time, one))
        self._rank = [0] * len(pieces)
        for rank, one in enumerate(self._order):
            self._rank[one] = rank
        self.offered = len(offers)
        self.offers = [*offers, *(machine.offer for machine in machines)]
        self._left = list(left)
        self._kinds = undominated(offers, left, len(pieces)) if worth is None else worth
        firm = [offer.price / (offer.slots * offer.speed) for offer in offers if not offer.spot]
        rate = risk * min(firm, default=0.0) / (2 * HOUR * HOUR)
        self._lost = [rate * one.slots * one.speed if one.spot else 0.0 for one in self.offers]
        self._alone, self._alone_kind = self._costs_alone()
        self._seed = 1
        self.loads: list[LoadedMachine] = []
        self.missed: list[int] = []

    @property
    def cost(self) -> Money:
        """What the machines cost, above what is paid anyway."""
        return sum(load.cost for load in self.loads)

    def run(self) -> None:
        """Put them all."""
        self.loads = [
            LoadedMachine(machine.offer, self.offered + place, self._now, machine, machine.until)
            for place, machine in enumerate(self._machines)
        ]
        rest = [one for one in self._order if not self._is_put_on_paid(one)]
        self._greedy(rest)
        self._split()
        self._repair()
        self.loads = [load for load in self.loads if any(load.slots)]

    # Times and costs

    def _lasts(self, kind: int) -> list[Duration]:
        speed = self.offers[kind].speed
        known = self._by_speed.get(speed)
        if known is None:
            times = self._times
            known = times if speed == 1 else np.ceil(np.array(times) / speed).astype(np.int64).tolist()
            self._by_speed[speed] = known
        return known

    def _dues(self, kind: int) -> list[Instant]:
        return self._spot_due if self.offers[kind].spot else self._due

    def _bill(self, kind: int, span: Duration) -> int:
        """What is billed for a span, with what is lost on the average when the machine is taken back."""
        offer = self.offers[kind]
        period = offer.period
        billed = max(offer.minimum, -(-span // period) * period)
        plain = -(-offer.price * billed // HOUR)
        lost = self._lost[kind]
        return plain + ceil(lost * span * span) if lost else plain

    def _cost(self, load: LoadedMachine, end: Instant) -> int:
        """What a machine costs whose last piece ends then."""
        return max(0, self._bill(load.kind, end - load.since) - load.sunk)

    def end(self, load: LoadedMachine) -> Instant:
        """When the last piece of a machine ends that has one."""
        return max([end for end, slot in zip(load.ends, load.slots, strict=True) if slot])

    def slack(self, load: LoadedMachine) -> Duration:
        """How much later all on a machine could end, and still be in time."""
        lasts, dues, least = self._lasts(load.kind), self._dues(load.kind), NEVER
        for at, pieces in zip(load.free, load.slots, strict=True):
            for piece in pieces:
                at += lasts[piece]
                least = min(least, dues[piece] - at)
        return least

    def _costs_alone(self) -> tuple[list[float], list[int]]:
        """What each piece costs on a machine of its own where its due date can be kept, and of which offer that is.

        Offers are tried by what a second of work costs there at least; when that alone is too much, so are the others.
        """
        costs, found = [inf] * len(self._due), [-1] * len(self._due)
        ways = []
        for kind in self._kinds:
            offer = self.offers[kind]
            ways.append((offer.price / offer.speed / HOUR * ROUNDED_DOWN, kind, self._now + offer.start_time))
        ways.sort()
        ready = [(rate, kind, at, self._lasts(kind), self._dues(kind)) for rate, kind, at in ways]
        for one, time in enumerate(self._times):
            best, which = inf, -1
            for rate, kind, at, lasts, dues in ready:
                if rate * time > best:
                    break
                end = at + lasts[one]
                if end <= dues[one]:
                    cost = self._bill(kind, end - self._now)
                    if cost < best or (cost == best and kind < which):
                        best, which = cost, kind
            costs[one], found[one] = best, which
        return costs, found

    # Greedy

    def _is_put_on_paid(self, one: int) -> bool:
        """Put a piece at the end of a slot that is paid for anyway, where it ends first."""
        best: tuple[Instant, int, int] | None = None
        for place, load in enumerate(self.loads):
            slot = min(range(len(load.ends)), key=load.ends.__getitem__)
            end = load.ends[slot] + self._lasts(load.kind)[one]
            if end <= self._dues(load.kind)[one] and end <= load.until and not self._cost(load, end):
                best = min(best, (end, place, slot)) if best else (end, place, slot)
        if best is None:
            return False
        load = self.loads[best[1]]
        load.slots[best[2]].append(one)
        load.ends[best[2]] = best[0]
        return True

    def _greedy(self, rest: list[int]) -> None:
        """Rent machines for pieces in order of their due dates."""
        left = [one for one in rest if self._alone[one] < inf]
        self.missed = [one for one in rest if self._alone[one] == inf]
        best = [(0.0, kind) for kind in self._kinds if self._left[kind] > 0]
        heapify(best)
        while left and best:
            ratio, kind = heappop(best)
            ratio, taken = self._fill(kind, left)
            if not taken:
                continue  # nothing fits any more, nor will it
            if best and (ratio, kind) > best[0]:
                heappush(best, (ratio, kind))
                continue
            self._rent(kind, taken)
            gone = set(taken)
            last = self._rank[taken[-1]]
            place = bisect(left, last, key=self._rank.__getitem__)
            left = [one for one in left[:place] if one not in gone] + left[place:]
            if self._left[kind] > 0:
                heappush(best, (ratio, kind))
        self.missed += left

    def _split(self) -> None:
        """Machines that cost more than one for each of their pieces are replaced by these."""
        loads, self.loads = self.loads, []
        for load in loads:
            pieces = load.pieces
            kinds = Counter(self._alone_kind[one] for one in pieces)
            if (
                load.machine is None
                and load.cost > sum(self._alone[one] for one in pieces)
                and all(count <= self._left[kind] for kind, count in kinds.items())
            ):
                self._left[load.kind] += 1
                for one in pieces:
                    self._rent(self._alone_kind[one], [one])
            else:
                self.loads.append(load)

    def _rent(self, kind: int, taken: Sequence[int]) -> None:
        """One more machine, with pieces in order of due dates, each on the slot that is free first."""
        load = LoadedMachine(self.offers[kind], kind, self._now, None, NEVER)
        self.loads.append(load)
        self._left[kind] -= 1
        lasts = self._lasts(load.kind)
        free = [(end, slot) for slot, end in enumerate(load.ends)]
        heapify(free)
        for one in taken:
            end, slot = free[0]
            heapreplace(free, (end + lasts[one], slot))
            load.slots[slot].append(one)
            load.ends[slot] = end + lasts[one]
        load.cost = self._cost(load, self.end(load))

    def _fill(self, kind: int, left: Sequence[int]) -> tuple[float, list[int]]:
        """The best fill of one machine: its cost in relation to that of a machine for each piece, and these."""
        offer = self.offers[kind]
        best, found, last = self._fill_until(kind, left, NEVER)
        if offer.period >= LONG_PERIOD:
            for hours in HOURS:
                until = self._now + hours * offer.period
                if until >= last:
                    break
                ratio, taken, _ = self._fill_until(kind, left, until)
                if taken and (not found or (ratio, -len(taken)) < (best, -len(found))):
                    best, found = ratio, taken
        return best, found

    def _fill_until(self, kind: int, left: Sequence[int], until: Instant) -> tuple[float, list[int], Instant]:
        """The same of a fill that ends by then, and when it ends before it is cut."""
        offer, lasts, dues, alone = self.offers[kind], self._lasts(kind), self._dues(kind), self._alone
        now = self._now
        free = [now + offer.start_time] * offer.slots
        taken, gained, last, refused = list[int](), 0.0, 0, 0
        best, cut, cost = inf, 0, 0
        most = max(FILL[0], FILL[1] * offer.slots)
        for one in left:
            end = free[0] + lasts[one]
            if end > until or end > dues[one]:
                refused += 1
                if refused > MISFITS_MAX:
                    break
                continue
            refused = 0
            heapreplace(free, end)
            taken.append(one)
            gained += alone[one]
            if end > last:
                last = end
                cost = self._bill(kind, end - now)
            if cost <= best * gained:
                best, cut = cost / gained if gained else inf, len(taken)
            if len(taken) >= most:
                break
        self._effort -= 5 + len(taken) + refused
        return best, taken[:cut], last

    # Repair

    def _random(self, below: int) -> int:
        """A number that is the same on every computer."""
        self._seed = self._seed * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        return (self._seed >> 33) % below

    def _repair(self) -> None:
        """Empty some machines, and put what was there elsewhere, as long as effort is left."""
        known = len(self._machines)
        while self._effort > 0 and (len(self.loads) > known or self.missed):
            before = len(self.missed), self.cost
            kept = self.loads, self.missed, list(self._left)
            out, self.missed = self._emptied(), []
            self._effort -= 20 + len(self.loads) // 4 + 2 * len(out)
            out.sort(key=self._rank.__getitem__)
            way = self._random(4)
            if way == 0:
                self._greedy(out)
                out, self.missed = self.missed, []
            elif way == 1:
                out = self._begin_with_any(out)
            elif way == 2:
                out.sort(key=lambda one: (-self._times[one], one))
            for one in out:
                if not self._put_cheapest(one):
                    self.missed.append(one)
            if (len(self.missed), self.cost) > before:
                self.loads, self.missed, self._left = kept

    def _emptied(self) -> list[int]:
        """Take pieces off some machines. Returns those that are to be put again, and those that were missed."""
        loads, out, known = list(self.loads), list(self.missed), len(self._machines)
        for _ in range(min(len(loads), 1 + self._random(3))):
            place = self._random(len(loads))
            load = loads[place] = loads[place].copy()
            every = self._random(3) > 0
            for slot, pieces in enumerate(load.slots):
                if pieces and (every or self._random(2)):
                    out += pieces
                    load.slots[slot], load.ends[slot] = [], load.free[slot]
            load.cost = self._cost(load, self.end(load)) if any(load.slots) else 0
            if place >= known and not load.cost and not any(load.slots):
                self._left[load.kind] += 1
                del loads[place]
        self.loads = loads
        return out

    def _begin_with_any(self, out: list[int]) -> list[int]:
        """Fill a machine of any offer. Returns what is left."""
        kinds = [kind for kind in self._kinds if self._left[kind] > 0]
        if not kinds:
            return out
        kind = kinds[self._random(len(kinds))]
        taken = self._fill(kind, [one for one in out if self._alone[one] < inf])[1]
        if not taken:
            return out
        self._rent(kind, taken)
        gone = set(taken)
        return [one for one in out if one not in gone]

    def _put_cheapest(self, one: int) -> bool:
        """Put a piece where it costs least, maybe on one more machine."""
        best: tuple[int, int, int, int] | None = None
        rank = self._rank[one]
        for place, load in enumerate(self.loads):
            last, due = self._lasts(load.kind)[one], self._dues(load.kind)[one]
            top, empty = self.end(load) if any(load.slots) else 0, -1
            self._effort -= len(load.ends)
            for slot, end in enumerate(load.ends):
                pieces = load.slots[slot]
                if not pieces:
                    if end == empty:
                        continue
                    empty = end
                new = end + last
                if new > load.until or (best is not None and best[0] == 0 and new >= best[1]):
                    continue
                if not self._has_room(load, slot, one) if pieces and self._rank[pieces[-1]] > rank else new > due:
                    continue
                more = 0 if new <= top else self._cost(load, new) - load.cost
                choice = (more, new, place, slot)
                best = choice if best is None or choice < best else best
        fresh: tuple[int, int, int] | None = None
        self._effort -= len(self._kinds)
        for kind in self._kinds:
            span = self.offers[kind].start_time + self._lasts(kind)[one]
            if self._left[kind] > 0 and self._now + span <= self._dues(kind)[one]:
                offer = (self._bill(kind, span), span, kind)
                fresh = offer if fresh is None or offer < fresh else fresh
        if fresh is not None and (best is None or fresh[0] < best[0]):
            self._rent(fresh[2], [one])
            return True
        if best is None:
            return False
        load = self.loads[best[2]] = self.loads[best[2]].copy()
        pieces = load.slots[best[3]]
        pieces.insert(bisect(pieces, rank, key=self._rank.__getitem__), one)
        load.ends[best[3]] += self._lasts(load.kind)[one]
        load.cost = self._cost(load, self.end(load))
        return True

    def _has_room(self, load: LoadedMachine, slot: int, one: int) -> bool:
        """Whether all on a slot end in time with one more, in order of due dates."""
        lasts, dues, at = self._lasts(load.kind), self._dues(load.kind), load.free[slot]
        pieces = load.slots[slot]
        place = bisect(pieces, self._rank[one], key=self._rank.__getitem__)
        self._effort -= len(pieces)
        for piece in (*pieces[:place], one, *pieces[place:]):
            at += lasts[piece]
            if at > dues[piece]:
                return False
        return True


def undominated(offers: Sequence[Offer], left: Sequence[int], pieces: int) -> list[int]:
    """The offers of which no other is never worse; of those that are alike, the first."""
    some = [place for place in range(len(offers)) if left[place] > 0]
    many = [place for place in some if left[place] >= pieces]
    return [
        place
        for place in some
        if not any(
            _is_never_worse(offers[other], offers[place])
            and (other < place or left[place] < pieces or not _is_never_worse(offers[place], offers[other]))
            for other in many
            if other != place
        )
    ]


def _is_never_worse(one: Offer, other: Offer) -> bool:
    """Whether some machines of one offer can always replace one of another."""
    return (
        one.spot == other.spot
        and one.speed >= other.speed
        and one.start_time <= other.start_time
        and one.minimum <= other.minimum
        and other.period % one.period == 0
        and -(-other.slots // one.slots) * one.price <= other.price
    )
