"""The cheapest machines against an exact twin that tries everything, and against chance."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from math import ceil
from statistics import fmean

import pytest
from tests.effort import seeds

from headway.model.instant import HOUR, NEVER, SECOND, Duration, Instant
from headway.model.renting import Money, Offer
from headway.renting.choosing import Choice, OpenTask, cheapest, cheapest_each
from headway.renting.packing import AtHand, Packing, PackingPiece

MINUTE = 60 * SECOND
Case = tuple[list[PackingPiece], list[Offer], list[int], list[AtHand]]


def case(seed: int) -> Case:
    """A few pieces, offers and machines."""
    draw = random.Random(seed)
    period = HOUR if draw.random() < 0.5 else SECOND
    offers = []
    for kind in range(draw.randint(1, 3)):
        slots, speed = draw.choice([1, 1, 2, 4]), draw.choice([0.5, 1.0, 1.0, 2.0])
        price = int(slots * speed * 50_000 * draw.uniform(0.7, 1.3))
        start = draw.choice([0, 90, 200]) * SECOND
        offers.append(Offer("cloud", f"t{kind}", slots, price, speed, period=period, start_time=start))
    machines = []
    for _ in range(draw.choice([0, 0, 1, 2])):
        offer, since = draw.choice(offers), -draw.randint(0, 50) * MINUTE
        paid = since + offer.billed(-since + draw.randint(1, 30) * MINUTE)
        free = tuple(draw.choice([0, 0, draw.randint(1, 30) * MINUTE]) for _ in range(offer.slots))
        machines.append(AtHand(offer, since, paid, free, draw.choice([NEVER, paid])))
    pieces = []
    for _ in range(draw.randint(1, 7)):
        time = draw.randint(1, 90) * MINUTE
        pieces.append(PackingPiece(int(time * draw.uniform(0.9, 4)) + draw.choice([0, 200]) * SECOND, time))
    return pieces, offers, [draw.choice([1, 2, 9]) for _ in offers], machines


def exact(pieces: Sequence[PackingPiece], offers: Sequence[Offer], left: Sequence[int], machines: Sequence[AtHand]) -> tuple[int, Money]:  # fmt: skip  # noqa: E501
    """How many pieces must miss their due dates, and what the others cost at least: every way is tried."""
    whole = (1 << len(pieces)) - 1

    def costs(offer: Offer, free: Sequence[Instant], since: Instant, sunk: Money, until: Instant) -> list[Money | None]:
        """For each set of pieces what they cost on one machine; None: they do not end in time."""
        found: list[Money | None] = []
        for chosen in range(whole + 1):
            order = sorted((one for one in range(len(pieces)) if chosen >> one & 1), key=lambda one: pieces[one].due)
            ways = {tuple(free)}
            for one in order:
                time = ceil(pieces[one].time / offer.speed)
                ways = {
                    tuple(sorted((*way[:slot], end + time, *way[slot + 1 :])))
                    for way in ways
                    for slot, end in enumerate(way)
                    if end + time <= min(pieces[one].due, until)
                }
            # Sorted ways do not tell which slots are used; the latest end is that of a piece, or of what ran before.
            ends = [max(_latest(way, free), since) for way in ways]
            found.append(min((max(0, offer.bill(end - since) - sunk) for end in ends), default=None) if order else 0)
        return found

    best: dict[int, Money] = {0: 0}

    def with_one_more(of: Sequence[Money | None]) -> None:
        for done, spent in list(best.items()):
            chosen = rest = whole & ~done
            while chosen:
                cost = of[chosen]
                if cost is not None:
                    best[done | chosen] = min(spent + cost, best.get(done | chosen, spent + cost))
                chosen = (chosen - 1) & rest

    for one in machines:
        with_one_more(costs(one.offer, one.free, one.since, one.offer.bill(one.paid - one.since), one.until))
    for offer, most in zip(offers, left, strict=True):
        of = costs(offer, [offer.start_time] * offer.slots, 0, 0, NEVER)
        for _ in range(min(most, len(pieces))):
            with_one_more(of)
    return min((len(pieces) - done.bit_count(), cost) for done, cost in best.items())


def _latest(way: Sequence[Instant], free: Sequence[Instant]) -> Instant:
    """The latest end that is not only when a slot becomes free."""
    idle = list(free)
    changed = []
    for end in way:
        if end in idle:
            idle.remove(end)
        else:
            changed.append(end)
    return max(changed, default=0)


def packed(pieces: list[PackingPiece], offers: list[Offer], left: list[int], machines: list[AtHand]) -> Packing:
    packing = Packing(pieces, offers, left, machines, 0)
    packing.run()
    return packing


def check(packing: Packing, pieces: list[PackingPiece], left: list[int]) -> None:
    """All pieces are somewhere once, in time, and cost what is said; no limit is exceeded."""
    put = [piece for load in packing.loads for piece in load.pieces]
    assert sorted([*put, *packing.missed]) == list(range(len(pieces)))
    taken = defaultdict[int, int](int)
    for load in packing.loads:
        last = 0
        for at, slot in zip(load.free, load.slots, strict=True):
            for piece in slot:
                at += ceil(pieces[piece].time / load.offer.speed)
                assert at <= min(pieces[piece].due, load.until)
                last = max(last, at)
        before = 0 if load.machine is None else load.offer.bill(load.machine.paid - load.machine.since)
        assert load.cost == max(0, load.offer.bill(last - load.since) - before)
        if load.machine is None:
            taken[load.kind] += 1
    assert all(count <= left[kind] for kind, count in taken.items())


@pytest.mark.long
@pytest.mark.parametrize("first", seeds(range(0, 120, 40), range(1_000, 2_000, 40)))
def test_small_cases_cost_little_more_than_they_must_and_miss_nothing_more(first: int) -> None:
    ratios = []
    for seed in range(first, first + 40):
        pieces, offers, left, machines = case(seed)
        missed, least = exact(pieces, offers, left, machines)
        packing = packed(pieces, offers, left, machines)
        check(packing, pieces, left)
        assert len(packing.missed) == missed, seed
        assert packing.cost >= least, seed
        if least:
            ratios.append(packing.cost / least)
    assert len(ratios) > 30
    assert fmean(ratios) <= 1.05


def test_the_twin_shares_an_hour_and_uses_what_is_paid() -> None:
    hourly = Offer("cloud", "a", 1, 600, period=HOUR)
    half = [PackingPiece(NEVER, HOUR // 2)] * 2
    assert exact(half, [hourly], [9], []) == (0, 600)
    assert exact(half, [hourly], [9], [AtHand(hourly, 0, HOUR, (HOUR // 2,), NEVER)]) == (0, 600)
    assert exact(half, [hourly], [0], [AtHand(hourly, 0, HOUR, (0,), HOUR)]) == (0, 0)
    assert exact([*half, *half], [hourly], [1], [AtHand(hourly, 0, HOUR, (0,), HOUR)]) == (0, 600)
    assert exact([PackingPiece(HOUR, HOUR)] * 2, [hourly], [1], []) == (1, 600)


@pytest.mark.parametrize("seed", seeds(range(3), range(3, 40)))
def test_large_cases_are_right_and_repairing_only_helps(seed: int) -> None:
    draw = random.Random(seed)
    offers = [Offer("cloud", f"t{kind}", draw.choice([1, 2, 4, 8]), draw.randint(40_000, 400_000),
                    draw.uniform(0.5, 2), period=draw.choice([SECOND, HOUR]), start_time=90 * SECOND)
              for kind in range(20)]  # fmt: skip
    pieces = []
    for _ in range(300):
        time = draw.randint(1, 90) * MINUTE
        pieces.append(PackingPiece(int(time * draw.uniform(0.5, 4)) + 5 * MINUTE, time))
    left = [draw.randint(0, 30) for _ in offers]
    greedy = Packing(pieces, offers, left, [], 0, effort=0)
    greedy.run()
    packing = packed(pieces, offers, left, [])
    for one in (greedy, packing):
        check(one, pieces, left)
    assert (len(packing.missed), packing.cost) <= (len(greedy.missed), greedy.cost)
    again = packed(pieces, offers, left, [])
    assert [load.slots for load in again.loads] == [load.slots for load in packing.loads]


# Chance


def ran(choice: Choice, drawn: dict[tuple[int, int], Duration], jobs: dict[int, Instant]) -> dict[int, bool]:
    """Which jobs are in time on hired machines that are asked for as late as they may be, with these run times.

    A slot takes the next task, in order of due dates, when it is free: no worse than the order that was planned.
    """
    good = dict.fromkeys(jobs, True)
    for hire in choice.hires:
        free = [hire.at + hire.offer.start_time] * hire.offer.slots
        for key in sorted(hire.tasks, key=lambda key: (jobs[key[0]], key)):
            slot = min(range(len(free)), key=free.__getitem__)
            free[slot] += ceil(drawn[key] / hire.offer.speed)
            good[key[0]] &= free[slot] <= jobs[key[0]]
    for job, _ in choice.missed:
        good[job] = False
    return good


@pytest.mark.parametrize("sure", [0.6, 0.9, 1.0])
def test_due_dates_are_kept_as_surely_as_is_wanted(sure: float) -> None:
    """In the futures that the run times are of, each job is; in others that are drawn alike, nearly so on average."""
    draw = random.Random(5)
    offers = [Offer("cloud", "one", 1, 60_000), Offer("cloud", "four", 4, 200_000, start_time=90 * SECOND, limit=9)]
    offers = [offers[0], offers[1]]

    def length(scale: float) -> Duration:
        return int(draw.lognormvariate(0, 0.5) * scale * MINUTE)

    scales = {(job, task): draw.uniform(5, 30) for job in range(8) for task in range(draw.randint(1, 5))}
    jobs = {job: draw.randint(120, 400) * MINUTE for job in range(8)}
    tasks = [OpenTask(job, task, jobs[job], tuple(length(scale) for _ in range(200)))
             for (job, task), scale in scales.items()]  # fmt: skip
    choice = cheapest(tasks, offers, now=0, sure=sure, left=[99, 99])
    assert not choice.missed
    assert min(choice.chance.values()) >= sure
    kept = []
    for _ in range(300):
        drawn = {key: length(scale) for key, scale in scales.items()}
        kept += ran(choice, drawn, jobs).values()
    assert fmean(kept) >= sure - 0.05
    if sure < 1:
        assert choice.cost < cheapest(tasks, offers, now=0, sure=1.0, left=[99, 99]).cost


@pytest.mark.parametrize("seed", range(20))
def test_it_costs_no_more_than_the_rule_of_the_paper_and_misses_no_more(seed: int) -> None:
    pieces, offers, left, _ = case(seed)
    tasks = [OpenTask(one, 0, piece.due, (piece.time,)) for one, piece in enumerate(pieces)]
    ours, papers = (rule(tasks, offers, now=0, left=left) for rule in (cheapest, cheapest_each))
    assert (len(ours.missed), ours.cost) <= (len(papers.missed), papers.cost)
