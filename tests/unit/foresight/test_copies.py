"""Copies of a process that share work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from headway.errors import HeadwayError
from headway.foresight.copies import begun_in_copies, in_copies


def left_of(seconds: float) -> Callable[[], float]:
    """Tells how much is left of so many seconds from now on."""
    until = time.monotonic() + seconds
    return lambda: until - time.monotonic()


def test_each_work_has_a_copy_of_its_own_and_all_come_back_in_order() -> None:
    found = in_copies([lambda place=place: (place, os.getpid()) for place in range(3)])
    assert [place for place, _ in found] == [0, 1, 2]
    assert len({pid for _, pid in found} | {os.getpid()}) == 4


def test_what_gives_way_has_the_lowest_priority_and_this_process_keeps_its_own() -> None:
    def priority() -> tuple[int, int]:
        return os.sched_getscheduler(0), os.getsid(0)

    before = priority()
    found = begun_in_copies([priority, priority], gives_way=True)
    assert {policy for policy, _ in found.values()} == {os.SCHED_IDLE}
    assert len({session for _, session in found.values()} | {before[1]}) == 3
    assert priority() == before


def test_what_is_not_ready_in_time_is_left_out_and_ended() -> None:
    began = time.monotonic()
    assert begun_in_copies([lambda: time.sleep(1000)], left=left_of(0.05)) == {}
    assert time.monotonic() - began < 100
    assert begun_in_copies([lambda: 7], left=left_of(1000)) == {0: 7}


def test_the_time_that_is_left_may_become_less() -> None:
    left = iter((1000.0, 1000.0))
    assert begun_in_copies([lambda: time.sleep(1000)], left=lambda: next(left, 0.0)) == {}


def test_a_work_that_raises_is_said() -> None:
    with pytest.raises(HeadwayError, match=r"raised ZeroDivisionError: .*test_copies.py, line "):
        in_copies([lambda: 1 // 0])
