"""The machine's clock is set back and forward, and stands still while the machine sleeps. Time never goes back."""

from __future__ import annotations

import asyncio
import time

import pytest

from headway.live import clock as module
from headway.live.clock import CATCH_UP, Alarm, Step, SystemClock
from headway.model.instant import SECOND
from headway.testing import ManualClock

from ...waiting import becomes

START = 1_700_000_000 * SECOND


class Machine:
    """The clocks of the system, in microseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.ran, self.slept = START, 50 * SECOND, 0
        monkeypatch.setattr(module.time, "time_ns", lambda: self.wall * 1000)
        monkeypatch.setattr(module.time, "monotonic_ns", lambda: self.ran * 1000)
        monkeypatch.setattr(module.time, "CLOCK_BOOTTIME", 7, raising=False)
        monkeypatch.setattr(module.time, "clock_gettime_ns", lambda which: (self.ran + self.slept) * 1000)

    def run(self, seconds: float) -> None:
        self.wall += round(seconds * SECOND)
        self.ran += round(seconds * SECOND)

    def sleep(self, seconds: int) -> None:
        self.wall += seconds * SECOND
        self.slept += seconds * SECOND

    def set(self, seconds: float) -> None:
        self.wall += round(seconds * SECOND)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_time_is_the_machines_while_nobody_sets_it(machine: Machine) -> None:
    clock = SystemClock()
    for _ in range(5):
        machine.run(1000.5)
        assert (clock.now(), clock.look()) == (machine.wall, None)


def test_set_back_time_goes_on_and_comes_nearer(machine: Machine) -> None:
    clock = SystemClock()
    machine.run(10)
    before = clock.now()
    machine.set(-3600)
    assert clock.now() == before
    machine.run(5)
    assert clock.now() == before + 5 * SECOND, "before it was looked, too"
    step = clock.look()
    assert step == Step(0, "the clock was set back by 3600.0 s: time goes on, and is 3600.0 s ahead of it")
    assert clock.look() is None, "told once"
    last = clock.now()
    for _ in range(5000):
        machine.run(1)
        assert 0 < clock.now() - last <= SECOND
        last = clock.now()
    assert clock.now() - machine.wall == 3600 * SECOND - 5000 * SECOND // CATCH_UP
    assert clock.look() is None
    machine.run(3600 * CATCH_UP)
    assert clock.now() == machine.wall, "they agree again"
    machine.run(100)
    assert clock.now() == machine.wall


def test_set_forward_time_jumps_when_it_is_noticed(machine: Machine) -> None:
    clock = SystemClock()
    machine.run(10)
    machine.set(100)
    machine.run(1)
    assert clock.now() == machine.wall - 100 * SECOND
    assert clock.look() == Step(100 * SECOND, "the clock was set forward by 100.0 s: time has jumped to it")
    assert clock.now() == machine.wall


def test_set_forward_while_it_is_ahead_it_is_less_ahead(machine: Machine) -> None:
    clock = SystemClock()
    machine.set(-100)
    clock.look()
    before = clock.now()
    machine.set(60)
    assert clock.look() == Step(0, "the clock was set forward by 60.0 s: time goes on, and is 40.0 s ahead of it")
    assert clock.now() == before
    machine.set(60)
    assert clock.look() == Step(20 * SECOND, "the clock was set forward by 60.0 s: time has jumped to it")
    assert clock.now() == machine.wall


def test_a_machine_that_slept_is_told_apart(machine: Machine) -> None:
    clock = SystemClock()
    machine.sleep(7200)
    assert clock.look() == Step(7200 * SECOND, "the machine slept for 7200.0 s: time has jumped to it")
    assert clock.look() is None


def test_what_is_small_is_no_step(machine: Machine) -> None:
    clock = SystemClock()
    machine.set(0.3)
    assert clock.look() is None
    machine.set(0.3)
    assert clock.look() is not None, "many small ones are one"


def test_time_goes_on_from_the_last_instant_of_before(machine: Machine) -> None:
    clock = SystemClock()
    assert clock.go_on_from(START - 5) == 0
    assert clock.go_on_from(START + 90 * SECOND) == 90 * SECOND
    machine.run(1)
    assert START + 91 * SECOND - 1000 <= clock.now() <= START + 91 * SECOND
    assert clock.look() is None


def test_the_loop_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOCK_LOOK_SECONDS", 0.01)
    told: list[Step] = []

    async def main() -> None:
        clock, off = SystemClock(), [0]
        wall = time.time_ns
        monkeypatch.setattr(module.time, "time_ns", lambda: wall() + off[0])
        call_off = clock.watch(told.append)
        off[0] = -60_000_000_000
        await becomes(lambda: told)
        call_off()
        off[0] = 0
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert len(told) == 1
    assert "set back by 60.0 s" in told[0].detail


def test_an_alarm_rings_once_at_the_instant_it_was_set_to_last() -> None:
    clock, rung = ManualClock(), list[float]()
    alarm = Alarm(clock, lambda: rung.append(clock.now() / SECOND))
    alarm.set(5 * SECOND)
    alarm.set(3 * SECOND)
    assert (alarm.at, clock.alarms) == (3 * SECOND, [3.0])
    clock.advance(10)
    assert (alarm.at, rung) == (None, [3.0])


def test_an_alarm_that_is_off_does_not_ring_and_one_that_is_stopped_never_again() -> None:
    clock, rung = ManualClock(), list[float]()
    alarm = Alarm(clock, lambda: rung.append(clock.now() / SECOND))
    alarm.set(1 * SECOND)
    alarm.off()
    clock.advance(2)
    assert (rung, clock.alarms) == ([], [])
    alarm.set(4 * SECOND)
    alarm.stop()
    alarm.set(5 * SECOND)
    clock.advance(10)
    assert (rung, alarm.at, clock.alarms) == ([], None, [])
