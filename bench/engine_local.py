"""Measure the local engine alone: empty tasks per second, round trip, killing, memory and load when idle.

    python bench/engine_local.py [--tasks N] [--slots N] [--uvloop] [--json]

As with a driver, each slot gets its next task when its last one has ended, and each end is acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pickle
import statistics
import tempfile
import time
from pathlib import Path

import cloudpickle
import psutil
import uvloop

from headway.engines.base import Assignment, Call, Ended, Function, Member, Report
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.trial import FilesInMemory
from headway.model.node import NodeSpec

IDLE_SECONDS = 5.0


def nothing() -> None:
    """A task that does nothing."""


class Feed:
    """Keeps `ahead` attempts at each slot until `tasks` have ended."""

    def __init__(self, engine: LocalEngine, slots: int, tasks: int, ahead: int = 1) -> None:
        self.engine = engine
        self.work = Call(Function.of(cloudpickle.dumps(nothing)), pickle.dumps(((), {})))
        self.tasks = tasks
        self.slots = slots
        self.ahead = ahead
        self.next = 0
        self.left = tasks
        self.sent: dict[int, float] = {}
        self.latencies: list[float] = []
        self.over = asyncio.get_running_loop().create_future()
        self.slot_of: dict[int, int] = {}

    def run(self) -> asyncio.Future[None]:
        """Start, and wait until all have ended."""
        for _ in range(self.ahead):
            for slot in range(self.slots):
                self.launch(slot)
        return self.over

    def launch(self, slot: int) -> None:
        """Launch the next task on a slot, if there is one."""
        if self.next < self.tasks:
            number, self.next = self.next, self.next + 1
            self.slot_of[number] = slot
            self.sent[number] = time.perf_counter()
            self.engine.launch(Assignment(1, number, 1, (Member("n", (slot,), self.work),)))

    def report(self, report: Report) -> None:
        """Acknowledge an end, and launch the next task."""
        if isinstance(report, Ended):
            self.latencies.append(time.perf_counter() - self.sent.pop(report.task))
            self.engine.acknowledge(report.job, report.task, report.attempt)
            self.launch(self.slot_of.pop(report.task))
            self.left -= 1
            if self.left == 0:
                self.over.set_result(None)


async def measure(tasks: int, slots: int) -> dict[str, float]:
    """All figures, by name."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(Path(folder))
        feed: list[Feed] = []
        start = time.perf_counter()
        await engine.start([NodeSpec("n", slots=slots)], lambda report: feed[-1].report(report), FilesInMemory())
        figures["start_seconds"] = time.perf_counter() - start

        async def run(slots: int, tasks: int, ahead: int = 1) -> tuple[float, list[float]]:
            feed.append(Feed(engine, slots, tasks, ahead))
            begin = time.perf_counter()
            await feed[-1].run()
            return tasks / (time.perf_counter() - begin), sorted(feed[-1].latencies)

        await run(slots, 1000)
        rate, _ = await run(slots, tasks)
        figures["tasks_per_second"] = rate
        figures["tasks_per_second_4_ahead"], _ = await run(slots, tasks, 4)
        _, latencies = await run(1, 2000)
        figures["round_trip_p50_ms"] = 1e3 * statistics.median(latencies)
        figures["round_trip_p99_ms"] = 1e3 * latencies[int(0.99 * len(latencies))]

        kills = []
        sleep = Call(Function.of(cloudpickle.dumps(time.sleep)), pickle.dumps(((600,), {})))
        for task in range(100):
            feed.append(Feed(engine, 1, 1))
            feed[-1].slot_of[task], feed[-1].sent[task] = 0, time.perf_counter()
            engine.launch(Assignment(2, task, 1, (Member("n", (0,), sleep),)))
            await asyncio.sleep(0.005)
            feed[-1].next, begin = 1, time.perf_counter()
            engine.kill(2, task, 1)
            await feed[-1].over
            kills.append(time.perf_counter() - begin)
        figures["kill_p50_ms"] = 1e3 * statistics.median(kills)

        guard = psutil.Process(engine.pids()["n"]).parent()
        family = [guard, *guard.children(recursive=True)]
        figures["processes"] = len(family)
        figures["rss_mb"] = sum(process.memory_info().rss for process in family) / 2**20
        figures["pss_mb"] = sum(process.memory_full_info().pss for process in family) / 2**20
        before = sum(sum(process.cpu_times()[:2]) for process in family)
        await asyncio.sleep(IDLE_SECONDS)
        after = sum(sum(process.cpu_times()[:2]) for process in family)
        figures["idle_cpu_percent"] = 100 * (after - before) / IDLE_SECONDS
        start = time.perf_counter()
        await engine.stop()
        figures["stop_seconds"] = time.perf_counter() - start
    return figures


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--uvloop", action="store_true", help="with uvloop instead of asyncio's own loop")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if chosen.uvloop else None) as runner:
        figures = runner.run(measure(chosen.tasks, chosen.slots))
    if chosen.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:26} {value:12,.3f}")


if __name__ == "__main__":
    main()
