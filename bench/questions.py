"""What it costs the others if somebody asks all the time when jobs will be done.

python bench/questions.py [--tasks N] [--trips N] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

import cloudpickle
import psutil

import live
import measure
from headway.client.client import Client
from headway.client.job import Job, Task
from headway.live.clock import SystemClock
from headway.live.forecasts import ForecastProcess, ForecastQuestion
from headway.model.instant import SECOND

OPEN = 100
A_SECOND = 10
FIRST = 3
"""So many answers are waited for before a measurement: the process that makes forecasts has started then."""

SPAWN: Final = get_context("spawn")

Ask = Callable[[Path, int], AbstractContextManager[Callable[[], float | None]]]
"""Ways to ask; an answer is the instant of its forecast, in seconds since the Unix epoch."""


def again_and_again(
    data: Path, job: int, is_on: Event, answers: Synchronized[int], ages: Synchronized[float], ask: Ask
) -> None:
    """Ask ten times a second, or as often as there are answers, while it is wanted."""
    with ask(data, job) as once:
        while True:
            is_on.wait()
            due = time.monotonic() + 1 / A_SECOND
            as_of = once()
            if as_of is not None:
                ages.value = max(ages.value, time.time() - as_of)
                answers.value += 1
            time.sleep(max(0.0, due - time.monotonic()))


@contextmanager
def explain(data: Path, job: int) -> Iterator[Callable[[], float | None]]:
    """Ask the server when a job will be done; an answer without a forecast is none."""
    with Client(data=data) as client:
        yield lambda: client.explain(job).expected_at


@contextmanager
def foresee(data: Path, job: int) -> Iterator[Callable[[], float | None]]:
    """Have the same forecasts made without the server, by a process that follows its journal."""
    forecasts = ForecastProcess((str(measure.COMPILED / "python"), "-m", "headway.forecaster", str(data)))
    try:
        yield lambda: forecasts(ForecastQuestion(0, SystemClock().now()), lambda _: None).forecast.made / SECOND
    finally:
        forecasts.stop()


MEANWHILE: Final = {
    "nothing else": None,
    "ten questions a second": explain,
    "the same forecasts, server not asked": foresee,
}


@dataclass
class Seen:
    """What was measured in some rounds.

    Attributes:
        rates: tasks a second.
        trips: seconds from a task to its result.
        spent: seconds of processor that the server took for a task.
        answers: a second.
        oldest: the greatest age of a forecast that was told, in seconds, of each round.
    """

    rates: list[float] = field(default_factory=list)
    trips: list[float] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    oldest: list[float] = field(default_factory=list)


class Asking:
    """Somebody who asks, in a process of his own; or nobody."""

    def __init__(self, data: Path, job: int, ask: Ask | None, stack: ExitStack) -> None:
        self._ask = ask
        self._is_on = SPAWN.Event()
        self._answers = SPAWN.Value("i", 0)
        self._ages = SPAWN.Value("d", 0.0)
        if ask is not None:
            process = SPAWN.Process(
                target=again_and_again, args=(data, job, self._is_on, self._answers, self._ages, ask)
            )
            process.start()
            stack.callback(process.join)
            stack.callback(process.terminate)

    @contextmanager
    def meanwhile(self, seen: Seen) -> Iterator[None]:
        """Ask while this lasts."""
        self._is_on.set()
        end = self._answers.value + FIRST
        while self._ask is not None and self._answers.value < end:
            time.sleep(0.05)
        self._ages.value = 0.0
        before, began = self._answers.value, time.perf_counter()
        yield
        seen.answers.append((self._answers.value - before) / (time.perf_counter() - began))
        seen.oldest.append(self._ages.value)
        self._is_on.clear()


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--tasks", type=int, default=20_000)
    arguments.add_argument("--trips", type=int, default=300)
    arguments.add_argument("--rounds", type=int, default=8)
    given = arguments.parse_args()
    cloudpickle.register_pickle_by_value(live)  # else each clean process imports it
    measured = {name: Seen() for name in MEANWHILE}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        started = live.server(folder, program=partial(measure.headway, compiled=True))
        client, pid = stack.enter_context(started)
        later = Job("later", [Task(live.same, 1)], release="1h", estimate="1m", due="2h")
        waiters = [client.submit(later) for _ in range(OPEN)]
        way, server = live.headway_way(client), psutil.Process(pid)
        live.run(way, 200, 20)
        job = waiters[-1].job
        asking = {name: Asking(folder / "data", job, ask, stack) for name, ask in MEANWHILE.items()}
        for _ in range(given.rounds):
            for name, seen in measured.items():
                with asking[name].meanwhile(seen):
                    before = server.cpu_times()
                    rate, single = live.run(way, given.tasks, given.trips)
                    after = server.cpu_times()
                seen.rates.append(rate)
                seen.trips += single
                took = after.user + after.system - before.user - before.system
                seen.spent.append(took / (given.tasks + given.trips))
        for waiter in waiters:
            waiter.cancel()
    rows = [
        (
            name,
            measure.rounded(statistics.median(seen.answers)),
            measure.rounded(max(seen.oldest)),
            measure.rounded(statistics.median(seen.rates)),
            measure.rounded(1e3 * statistics.median(seen.trips)),
            measure.rounded(1e3 * measure.percentile(seen.trips, 0.99)),
            measure.rounded(1e6 * statistics.median(seen.spent)),
        )
        for name, seen in measured.items()
    ]
    measure.section(
        "Live: questions beside tasks that do nothing",
        f"""The same as above, while somebody runs `headway explain` about one of {OPEN} open jobs, ten times a second
        or as often as there are answers, and without; in turn, {given.rounds} times each, {given.tasks:,} tasks;
        medians; compiled. A forecast is made by other processes, in what the busy machine leaves idle, and where
        that is nothing, in a bounded share. How old was what was told at most, the second number says; an answer
        without a forecast is not counted. What making forecasts costs a busy server, the last line shows, where a
        process that only reads the journal makes the same forecasts. The last column is the time of processor that a
        task costs the server. What questions cost the server itself is the difference of the last two lines. Wanted:
        within 3 %, which is [less than the rates differ by
        themselves](benchmarks-notes.md#questions-beside-tasks-that-do-nothing).""",
        measure.table(
            (
                "meanwhile",
                "answers/s",
                "oldest, s",
                "tasks/s",
                "one: median ms",
                "99 in 100 below",
                "server: µs a task",
            ),
            rows,
        ),
    )


if __name__ == "__main__":
    main()
