"""Empty tasks, from submission to result: many at once and one by one, compared with other ways to run them.

python bench/live.py [--tasks N] [--trips N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import measure
from headway.client.client import Client
from headway.client.executor import HeadwayExecutor
from headway.client.job import Job, Task

SLOTS = 2


def same(value: int) -> int:
    """The task: returns its argument."""
    return value


class Way(NamedTuple):
    """One way to run tasks.

    Attributes:
        name: of the way.
        many: runs this many tasks and returns their results in order.
        one: runs one task and returns its result.
        most: the most tasks of a run, so that it ends within seconds.
        durable: whether accepted tasks survive the end of every process.
    """

    name: str
    many: Callable[[int], list[int]]
    one: Callable[[int], int]
    most: int
    durable: str


@contextmanager
def server(
    folder: Path,
    slots: int = SLOTS,
    words: Sequence[object] = (),
    program: Callable[..., list[str]] = measure.headway,
) -> Iterator[tuple[Client, int]]:
    """Run a server on an empty data directory. Yields a client of it, and its process id."""
    with started(folder, program("up", "--slots", slots, "--data", folder / "data", "--json", *words)) as there:
        yield there


@contextmanager
def started(folder: Path, command: list[str]) -> Iterator[tuple[Client, int]]:
    """Run a server by its command, which logs into this folder. Yields the same as `server`."""
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said:
            raise SystemExit(f"headway up did not start:\n{(folder / 'log').read_text()}")
        place = json.loads(said)
        with Client(place["url"], token=Path(place["token_file"]).read_text().strip()) as client:
            yield client, place["pid"]
    finally:
        if process.poll() is not None:
            print(f"headway up ended by itself:\n{(folder / 'log').read_text()}", file=sys.stderr)
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def headway_way(client: Client) -> Way:
    """By jobs: of many tasks, or of one."""

    def many(count: int) -> list[int]:
        return client.submit(Job("many", [Task(same, value) for value in range(count)])).result()

    def one(value: int) -> int:
        [result] = client.submit(Job("one", [Task(same, value)])).result()
        return int(result)

    return Way("Headway, a bag", many, one, sys.maxsize, "yes")


def executor_way(name: str, executor: Executor, durable: str) -> Way:
    """By calls of an executor, each with a future."""

    def many(count: int) -> list[int]:
        return [future.result() for future in [executor.submit(same, value) for value in range(count)]]

    return Way(name, many, lambda value: executor.submit(same, value).result(), sys.maxsize, durable)


@contextmanager
def huey_way(folder: Path) -> Iterator[Way]:
    """By a huey consumer with a process for each slot. Work and results are polled every millisecond."""
    os.environ["HUEY_FILE"] = str(folder / "huey.sqlite")
    consumer = [sys.executable, "-m", "huey.bin.huey_consumer", "huey_tasks.huey", "--quiet", "--no-periodic"]
    options = ["--workers", str(SLOTS), "--worker-type", "process", "--delay", "0.001", "--max-delay", "0.001"]
    task: Any = import_module("huey_tasks").same
    place = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    process = subprocess.Popen([*consumer, *options], env=place, start_new_session=True)

    def result(waiting: Any) -> int:
        return int(waiting.get(blocking=True, max_delay=0.001))

    try:
        yield Way(
            f"huey {version('huey')}, SQLite, fsync",
            lambda count: [result(waiting) for waiting in [task(value) for value in range(count)]],
            lambda value: result(task(value)),
            1000,
            "what waits",
        )
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def timed(work: Callable[[], object]) -> float:
    """Seconds some work takes."""
    began = perf_counter()
    work()
    return perf_counter() - began


def run(way: Way, tasks: int, trips: int) -> tuple[float, list[float]]:
    """Tasks per second of one run, and the seconds of each round trip.

    Raises:
        SystemExit: a result is wrong.
    """
    count = min(tasks, way.most)
    results: list[int] = []
    rate = count / timed(lambda: results.extend(way.many(count)))
    if results != list(range(count)):
        raise SystemExit(f"{way.name}: results are missing or in the wrong order")
    return rate, [timed(lambda: way.one(0)) for _ in range(trips)]


def fsync_seconds(folder: Path) -> float:
    """The median time in which 4 kB reach the disk."""

    def write() -> None:
        file.write(bytes(4096))
        file.flush()
        os.fdatasync(file.fileno())

    with open(folder / "fsync", "wb") as file:
        return statistics.median(timed(write) for _ in range(200))


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--tasks", type=int, default=5000)
    arguments.add_argument("--trips", type=int, default=200)
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        disk = fsync_seconds(folder)
        client, _ = stack.enter_context(server(folder))
        pool = stack.enter_context(ProcessPoolExecutor(SLOTS, get_context("spawn")))
        ways = [
            headway_way(client),
            executor_way("Headway, its executor", stack.enter_context(HeadwayExecutor(client)), "yes"),
            executor_way("ProcessPoolExecutor", pool, "no"),
            stack.enter_context(huey_way(folder)),
        ]
        for way in ways:
            run(way, 100, 20)
        rates: dict[str, list[float]] = {way.name: [] for way in ways}
        times: dict[str, list[float]] = {way.name: [] for way in ways}
        for _ in range(given.rounds):
            for way in ways:
                rate, trips = run(way, given.tasks, given.trips)
                rates[way.name].append(rate)
                times[way.name] += trips
    first = ways[0].name
    fast, trip = statistics.median(rates[first]), statistics.median(times[first])
    rows = []
    for way in ways:
        rate, half = statistics.median(rates[way.name]), statistics.median(times[way.name])
        rows.append(
            (
                way.name,
                way.durable,
                measure.rounded(rate),
                f"{min(rates[way.name]):,.0f} to {max(rates[way.name]):,.0f}",
                measure.rounded(rate / fast),
                measure.rounded(1e3 * half),
                measure.rounded(1e3 * measure.percentile(times[way.name], 0.99)),
                measure.rounded(half / trip),
            )
        )
    measure.section(
        "Live: tasks that do nothing",
        f"""One client and a server with {SLOTS} slots on the same machine; from submission to the last result. A bag of
        {given.tasks:,} tasks ({ways[-1].most:,} for huey), then {given.trips} round trips of one task each. All ways
        run in turn, {given.rounds} times; medians. Durable means that what was accepted is on the disk before anything
        is done about it (writing 4 kB takes {1e3 * disk:.2f} ms here). huey keeps tasks that wait or have ended, and
        loses those that run when it is killed. Wanted: at least 3,000 tasks/s, and a median of at most 3 ms for one
        task; later 10,000 tasks/s and 1 ms. [Where the time
        goes](explanation/live.md#one-call-from-its-submission-to-its-result), and what was [compared in
        turns](benchmarks-notes.md#tasks-that-do-nothing) on other days.""",
        measure.table(
            (
                "way",
                "durable",
                "tasks/s",
                "from ... to",
                "as a ratio",
                "one: median ms",
                "99 in 100 below",
                "as a ratio",
            ),
            rows,
        ),
    )


if __name__ == "__main__":
    main()
