"""The real driver, journal and core under faults by the hundred; and that the checks notice what they are for.

`make faults SEEDS=1000` runs longer ones. Run one again: `World(SEED, faulty_seconds=SHORT).run()`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from headway.engines import base
from headway.live.driver import Driver
from headway.live.store.journal import Batch
from headway.model.outcome import Outcome

from .disk import SimDisk
from .engine import SimEngine
from .virtual import Died, LoopClock, Stopped, VirtualLoop
from .world import World, Wrong

SHORT = 6.0
"""Seconds of faults in each of the runs here."""

SEEDS = 45
CHUNK = 5

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_nothing_accepted_is_lost_and_each_result_comes_once(first: int) -> None:
    crashes = 0
    for seed in range(first, first + CHUNK):
        told = World(seed, faulty_seconds=SHORT).run()
        crashes += sum(told.crashes.values())
        assert told.done["states compared"] >= 1
    assert crashes >= 2 * CHUNK


def noticed(seeds: int = 12, **broken: Any) -> str:
    """What the checks say of something broken; empty if they let it pass on every seed."""
    for seed in range(1, seeds + 1):
        try:
            World(seed, faulty_seconds=SHORT, **broken).run()
        except Wrong as wrong:
            return str(wrong)
    return ""


class Forgetful(SimDisk):
    """Loses what it has acknowledged: each crash takes it back to the one before."""

    _before: bytes | None = None

    def crash(self) -> None:
        had = self._db is not None
        super().crash()
        if had:
            self._before, self._bytes = self._bytes, self._before or self._bytes


class ForgetfulWithItsMark(Forgetful):
    """The same, and nothing outside the journal tells how far it had come."""

    def open(self, *, accept_loss: bool) -> Any:
        self._mark = None
        return super().open(accept_loss=accept_loss)


def test_a_disk_that_loses_what_it_acknowledged_is_noticed() -> None:
    assert "the end of the journal is missing" in noticed(disk_type=Forgetful)


def test_what_was_accepted_and_lost_is_noticed_without_a_mark() -> None:
    said = noticed(disk_type=ForgetfulWithItsMark)
    assert "is lost" in said or "accepted twice" in said


class WithoutKeys(Driver):
    """Does not keep the keys of submissions."""

    def _write(self, batch: Batch) -> Generator[None, None, Exception | None]:
        batch.submissions.clear()
        return super()._write(batch)


def test_a_driver_that_forgets_the_keys_of_submissions_is_noticed() -> None:
    said = noticed(driver_type=WithoutKeys)
    assert "is lost" in said or "accepted twice" in said


class Hasty(Driver):
    """Acts on what it has not written, now and then."""

    turns = 0

    def _write(self, batch: Batch) -> Generator[None, None, Exception | None]:
        Hasty.turns += 1
        if Hasty.turns % 7 == 0:
            return None
        return (yield from super()._write(batch))


def test_a_driver_that_acts_before_it_writes_is_noticed() -> None:
    assert noticed(driver_type=Hasty)


class Silent(SimEngine):
    """Forgets every third end."""

    ends = 0

    def _hand_over(self, report: Any) -> None:
        if isinstance(report, base.Ended):
            Silent.ends += 1
            if Silent.ends % 3 == 0:
                self.site.kept.pop(report.key, None)
                return
        super()._hand_over(report)


def test_an_engine_that_forgets_an_end_is_noticed_as_a_job_that_is_stuck() -> None:
    assert "stuck" in noticed(engine_type=Silent)


class Boasting(SimEngine):
    """Reports failures as successes."""

    def _hand_over(self, report: Any) -> None:
        if isinstance(report, base.Ended) and report.ending.outcome is Outcome.EXITED:
            report = base.Ended(*report.key, base.Ending(Outcome.SUCCEEDED))
        super()._hand_over(report)


def test_a_result_that_tells_what_did_not_happen_is_noticed() -> None:
    assert "is reported as a success" in noticed(engine_type=Boasting)


class TellingTwice(Driver):
    """Tells each client its last message again."""

    def listen(self, wanted: Any, caller: Any) -> Any:
        return super().listen(wanted._replace(after=max(0, wanted.after - 1)), caller)


def test_a_message_that_is_told_twice_is_noticed() -> None:
    assert "was told twice" in noticed(driver_type=TellingTwice)


# A seed fixes a run

_RUN = "from tests.faults.world import World; print(World({seed}, faulty_seconds=6.0).run().digest)"


def digest(seed: int, hash_seed: str) -> str:
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    script = [sys.executable, "-c", _RUN.format(seed=seed)]
    return subprocess.run(script, env=env, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    first, again, other = digest(11, "1"), digest(11, "2"), digest(12, "1")
    assert len(first) == 64
    assert first == again
    assert first != other


_ALONE = """
import os, sys, threading, time, importlib
import headway.web.decider, headway.policies.registry as registry
from tests.faults.world import World
for text in ("easy", "tempo:strict=false"):
    registry.find(text)
World(11, faulty_seconds=2.0).run()  # what is imported late is there then
used = set()
def see(event, args):
    if event == "open" and isinstance(args[0], str) and args[0].endswith((".py", ".pyc")):
        return  # a module that is imported, or the source of a traceback
    if event == "sqlite3.connect" and args[0] == ":memory:":
        return
    if event == "sqlite3.connect/handle":
        return
    if event.partition(".")[0] in ("open", "os", "socket", "subprocess", "sqlite3", "_thread", "shutil"):
        used.add((event, repr(args)[:80]))
sys.addaudithook(see)
def clock(*args):
    used.add(("clock", sys._getframe(1).f_code.co_filename))
    return 0
for name in ("time", "time_ns", "monotonic", "monotonic_ns", "sleep"):
    setattr(time, name, clock)
threading.Thread.start = lambda self: used.add(("thread", self.name))
World(11, faulty_seconds=6.0).run()
print(sorted(used))
"""


def test_a_run_uses_no_clock_thread_file_or_socket_of_the_machine() -> None:
    script = [sys.executable, "-c", _ALONE]
    assert subprocess.run(script, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip() == "[]"


# Virtual time


def test_time_jumps_to_the_next_timer_and_to_no_other() -> None:
    loop, heard = VirtualLoop(), list[tuple[str, float]]()

    async def sleeps(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        heard.append((name, loop.time()))

    async def both() -> None:
        await asyncio.gather(sleeps("later", 3600.0), sleeps("sooner", 0.5))

    loop.run_until_complete(both())
    loop.close()
    assert heard == [("sooner", 0.5), ("later", 3600.0)]


def test_when_nothing_can_happen_any_more_the_loop_says_so() -> None:
    loop = VirtualLoop()
    with pytest.raises(Stopped, match="nothing is left to happen"):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_nothing_of_a_process_runs_after_its_death() -> None:
    loop, done = VirtualLoop(), list[str]()

    async def works() -> None:
        try:
            while True:
                done.append("step")
                await asyncio.sleep(1.0)
        finally:
            done.append("cleanup")

    async def world() -> None:
        life = loop.new_life("a driver")
        life.spawn(works())
        await asyncio.sleep(2.5)
        life.die()
        await asyncio.sleep(10.0)
        assert done == ["step"] * 3

    loop.run_until_complete(world())
    loop.clear()
    loop.close()


def test_a_clock_that_is_set_forward_jumps_and_one_that_is_set_back_stays() -> None:
    loop = VirtualLoop()
    clock, steps = LoopClock(loop), list[int]()
    clock.watch(lambda step: steps.append(step.by))
    began = clock.now()
    clock.step(5_000_000)
    clock.step(-3_000_000)
    assert clock.now() - began == 5_000_000
    assert steps == [5_000_000, 0]
    loop.close()


def test_a_death_cannot_be_handled() -> None:
    assert not issubclass(Died, Exception)
