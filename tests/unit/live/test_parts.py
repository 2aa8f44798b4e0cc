"""Work that is done part by part."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from headway.live.parts import Dropped, WorkInParts


def counting(to: int, done: list[int], error: BaseException | None = None) -> Generator[None, None, str]:
    try:
        for number in range(to):
            done.append(number)
            yield
        if error is not None:
            raise error
        return "done"
    finally:
        done.append(-1)


def test_each_step_does_a_part_and_the_last_one_says_so() -> None:
    done: list[int] = []
    work = WorkInParts(counting(2, done))
    assert [work.step() for _ in range(4)] == [False, False, True, True]
    assert done == [0, 1, -1]
    assert work.is_done
    assert work.whole() == "done"


def test_the_rest_can_be_done_at_once() -> None:
    done: list[int] = []
    work = WorkInParts(counting(3, done))
    work.step()
    work.do_rest()
    assert (done, work.is_done, work.whole()) == ([0, 1, 2, -1], True, "done")


def test_what_the_work_raises_is_raised_by_each_step_and_not_by_who_does_the_rest() -> None:
    work = WorkInParts(counting(2, [], KeyError("k")))
    work.do_rest()
    assert work.is_done
    for ask in (work.step, work.step, work.whole):
        with pytest.raises(KeyError):
            ask()


def test_an_end_of_the_program_is_raised_at_once() -> None:
    work = WorkInParts(counting(0, [], KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        work.do_rest()
    with pytest.raises(KeyboardInterrupt):
        work.step()


def test_work_that_is_dropped_is_told() -> None:
    done: list[int] = []
    work = WorkInParts(counting(3, done))
    work.step()
    work.drop()
    assert done == [0, -1]
    for ask in (work.step, work.whole):
        with pytest.raises(Dropped):
            ask()


def test_what_is_done_already_stays_done_when_it_is_dropped() -> None:
    work = WorkInParts(counting(1, []))
    work.do_rest()
    work.drop()
    assert work.whole() == "done"
