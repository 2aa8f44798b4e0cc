"""How much of a busy machine forecasts may take, under a clock that only the copies move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from headway.foresight.copies import COPY_LOOK_SECONDS
from headway.foresight.pace import AWAITED_WAIT, LONGEST_WAIT, PACE_SHARE, Pace

T = TypeVar("T")


class Machine:
    """A machine on which everything computes, except for `gaps`: that share of a processor is idle.

    Attributes:
        now: seconds.
        is_idle: whether a gap is taken for an idle processor.
        taken: seconds of processor that copies took from others; `all_taken` also in gaps.
        hurries: when somebody begins to wait for the answer in hand, once each.
        took: for each work that gives way, the seconds of processor it needs.
    """

    def __init__(self, gaps: float, needs: float) -> None:
        self.now = self.taken = self.all_taken = 0.0
        self.gaps = gaps
        self.needs = needs
        self.is_idle = gaps == 1.0
        self.hurries: list[float] = []

    def copies(
        self, works: Sequence[Callable[[], T]], *, gives_way: bool = False, left: Callable[[], float] | None = None
    ) -> dict[int, T]:
        need = self.needs * len(works)
        if not gives_way:
            assert left is None
            self.now += need
            self.taken += need
            self.all_taken += need
            return {place: work() for place, work in enumerate(works)}
        assert left is not None
        seconds = left()
        done = int(seconds * self.gaps / self.needs + 1e-9)
        passed = min(seconds, need / self.gaps if self.gaps else seconds)
        self.now += passed
        self.all_taken += passed * self.gaps
        return {place: work() for place, work in enumerate(works) if place < done}

    def pace(self) -> Pace:
        return Pace(
            lambda: self.now, lambda: self.all_taken, self.copies, lambda: self.is_idle, self.sleep, self.hurried
        )

    def hurried(self) -> bool:
        if self.hurries and self.hurries[0] <= self.now:
            del self.hurries[0]
            return True
        return False

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def asked(machine: Machine, pace: Pace, seconds: float, works: int = 2, *, awaited: bool = False) -> list[float]:
    """Ask again and again for so long; the ages that answers had when the next one came."""
    ages, last, until = [], machine.now, machine.now + seconds
    while machine.now < until:
        began = machine.now
        with pace.question(awaited=awaited):
            assert pace.all([lambda place=place: place for place in range(works)]) == list(range(works))
        ages.append(machine.now - last)
        last = began
        machine.now += 0.001
    return ages


@pytest.mark.parametrize("needs", [0.005, 0.02, 0.04])
def test_without_gaps_questions_take_their_share_and_no_more(needs: float) -> None:
    machine = Machine(gaps=0.0, needs=needs)
    ages = asked(machine, machine.pace(), 1000.0)
    assert machine.taken / machine.now == pytest.approx(PACE_SHARE, rel=0.1)
    assert max(ages) <= 2 * (LONGEST_WAIT + 2 * needs) + 0.01


def test_no_answer_waits_longer_than_that_however_much_it_takes() -> None:
    machine = Machine(gaps=0.0, needs=2.0)
    ages = asked(machine, machine.pace(), 1000.0)
    alone = 4.0
    assert max(ages) <= 2 * (LONGEST_WAIT + alone) + 0.01
    assert machine.taken / machine.now == pytest.approx(alone / (alone + LONGEST_WAIT), rel=0.1)


def test_who_waits_for_an_answer_has_it_sooner() -> None:
    machine = Machine(gaps=0.0, needs=2.0)
    pace = machine.pace()
    asked(machine, pace, 100.0)
    began = machine.now
    with pace.question(awaited=True):
        pace.all([lambda: 1])
    assert machine.now - began == pytest.approx(AWAITED_WAIT + 2.0, abs=0.01)
    assert max(asked(machine, pace, 1000.0, awaited=True)) <= 2 * (AWAITED_WAIT + 4.0) + 0.01


@pytest.mark.parametrize(("after", "waits"), [(1.0, AWAITED_WAIT), (4.0, 4.0)])
def test_who_begins_to_wait_for_the_answer_in_hand_has_it_as_soon_as_if_it_had_been_asked_for(
    after: float, waits: float
) -> None:
    machine = Machine(gaps=0.0, needs=2.0)
    pace = machine.pace()
    asked(machine, pace, 100.0)
    began = machine.now
    machine.hurries = [began + after]
    with pace.question():
        pace.all([lambda: 1])
    assert machine.hurries == []
    assert waits + 2.0 - 0.01 <= machine.now - began <= waits + 2.0 + COPY_LOOK_SECONDS
    began = machine.now
    with pace.question():
        pace.all([lambda: 1])
    assert machine.now - began == pytest.approx(LONGEST_WAIT + 2.0), "nobody waits for the next one"


def test_in_the_long_run_those_who_wait_take_no_more_either() -> None:
    """What a hurried answer took is earned by the one after it."""
    machine = Machine(gaps=0.0, needs=0.12)
    pace = machine.pace()
    while machine.now < 1000.0:
        asked(machine, pace, 0.0005, works=1, awaited=True)
        asked(machine, pace, 0.0005, works=1)
    assert machine.taken / machine.now == pytest.approx(PACE_SHARE, rel=0.1)


def test_where_a_processor_is_idle_nothing_is_taken_from_others_but_the_first_answer() -> None:
    machine = Machine(gaps=1.0, needs=0.04)
    ages = asked(machine, machine.pace(), 100.0)
    assert max(ages) < 0.5
    assert machine.taken / machine.now < PACE_SHARE


def test_short_gaps_are_left_to_those_who_wake_up_in_them() -> None:
    machine = Machine(gaps=0.5, needs=0.04)
    ages = asked(machine, machine.pace(), 1000.0)
    assert machine.all_taken == machine.taken
    assert machine.taken / machine.now == pytest.approx(PACE_SHARE, rel=0.1)
    assert max(ages) <= 2 * (LONGEST_WAIT + 2 * machine.needs) + 0.01


def test_the_first_question_after_a_while_is_answered_at_once() -> None:
    machine = Machine(gaps=0.0, needs=0.1)
    pace = machine.pace()
    for _ in range(3):
        began = machine.now
        with pace.question():
            pace.all([lambda: 1, lambda: 2])
        assert machine.now - began == pytest.approx(0.2)
        machine.now += LONGEST_WAIT


def test_what_was_done_in_gaps_is_not_done_again() -> None:
    """Half of it was ready when the other half was paid for."""
    machine = Machine(gaps=0.0, needs=0.1)
    pace = machine.pace()
    with pace.question():
        pace.all([lambda: 0])
    machine.gaps, machine.is_idle = 0.15 / (0.1 / PACE_SHARE), True
    before = machine.taken
    with pace.question():
        assert pace.all([lambda: 0, lambda: 1]) == [0, 1]
    assert machine.taken - before == pytest.approx(0.1)


def test_a_question_that_fails_is_paid_for() -> None:
    machine = Machine(gaps=0.0, needs=0.1)
    pace = machine.pace()

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), pace.question():
        pace.all([fails])
    assert not pace.is_paid
