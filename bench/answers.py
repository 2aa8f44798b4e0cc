"""How long it takes to say when all open jobs end, and how sure that is.

python bench/answers.py
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import live
import measure
from headway import Job, NodeSpec, Task
from headway.core.record import StateRecord
from headway.forecaster import NICE
from headway.foresight.chances import Chances
from headway.foresight.futures import draw_futures, futures_for
from headway.foresight.learning import RunTimesKnown
from headway.foresight.pace import Pace, spent
from headway.live.forecasts import OLDEST_SECONDS
from headway.model.instant import SECOND
from headway.model.job import ESTIMATE_DEFAULT
from headway.policies.registry import find
from headway.reproduce.standin import standin
from headway.sim.forecast import forecast
from headway.sim.kernel import Simulation
from headway.traces import transforms

SLOTS = 128
POLICIES = ("easy", "edf", "tempo:strict=false")
OPEN = (100, 2_000)
NODES = (80, 800, 8_000)
OF_SLOTS = 16
BUSY_SECONDS = 60.0

SERVED_SLOTS = 8
ASKED = 6
EVERY = 6.0
"""Seconds between two questions of one user, so that the processor's time that one takes has been earned."""

PATIENCE = 60.0

FORK = get_context("fork")

WORK = 40_000
"""Each future ends after so many events, as beside a server."""


def state_of(policy: str, jobs: int, nodes: int = 1, slots: int = SLOTS) -> StateRecord:
    """So many jobs, all there at once; the first of them run. They are as much wider as the machine is larger."""
    log = transforms.first(standin(), jobs)
    log = replace(log, release=np.zeros_like(log.release), width=log.width * (nodes * slots // SLOTS))
    log = transforms.due_dates(log, factor=3.0)
    simulation = Simulation(log, [NodeSpec(f"n{number}", slots) for number in range(nodes)], find, policy)
    simulation.advance(60 * SECOND)
    return simulation.scheduler.dump()


def row(policy: str, state: StateRecord) -> tuple[object, ...]:
    """The seconds of both answers."""
    known = RunTimesKnown(ESTIMATE_DEFAULT)
    began = time.perf_counter()
    forecast(state, find)
    first = time.perf_counter() - began
    count = futures_for(state)
    futures = draw_futures(
        *(state, find, known.at(state)), count=count, work_max=WORK, processes=len(os.sched_getaffinity(0))
    )
    Chances().of(futures, {})
    whole = time.perf_counter() - began
    return f"`{policy}`", f"{len(state.jobs):,}", f"{first:.2f}", f"{whole:.2f}", count


def hog() -> None:
    """Compute for ever."""
    while True:
        pass


@contextmanager
def hogs() -> Iterator[None]:
    """On each processor a process that always computes."""
    there = [FORK.Process(target=hog, daemon=True) for _ in os.sched_getaffinity(0)]
    for one in there:
        one.start()
    try:
        yield
    finally:
        for one in there:
            one.kill()


def busy_row(policy: str, state: StateRecord) -> tuple[object, ...]:
    """How long answers take, and what they take, while somebody asks again and again."""
    known, pace, took, before = RunTimesKnown(ESTIMATE_DEFAULT), Pace(), list[float](), spent()
    began = time.perf_counter()
    while time.perf_counter() - began < BUSY_SECONDS:
        asked = time.perf_counter()
        with pace.question(awaited=bool(took) and took[-1] > OLDEST_SECONDS):
            pace.one(partial(forecast, state, find))
            draw_futures(
                *(state, find, known.at(state)),
                count=futures_for(state),
                work_max=WORK,
                processes=len(os.sched_getaffinity(0)),
                copies=pace.all,
            )
        took.append(time.perf_counter() - asked)
    share = (spent() - before) / (time.perf_counter() - began)
    oldest = max((one + other for one, other in pairwise(took)), default=took[0])
    return f"`{policy}`", f"{len(state.jobs):,}", f"{took[0]:.2f}", f"{oldest:.1f}", f"{share:.1%}"


def sleep(seconds: float) -> None:
    """A task that leaves the processor alone."""
    time.sleep(seconds)


def compute(seconds: float) -> None:
    """A task that always computes."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def asked(policy: str, jobs: int, task: Callable[[float], None]) -> list[float]:
    """Seconds from the submission of a job to its bounds, as a client of a server sees them, time after time."""
    took = list[float]()
    with tempfile.TemporaryDirectory() as folder:
        program = partial(measure.headway, compiled=True)
        with live.server(Path(folder), SERVED_SLOTS, ("--policy", policy), program) as (client, _):
            for number in range(jobs):
                seconds = 30.0 + number % 60
                client.submit(Job(f"program {number % 7}", [Task(task, seconds)], estimate=f"{seconds}s", due="2h"))
            for _ in range(ASKED):
                began = time.perf_counter()
                waiter = client.submit(Job("new", [Task(task, 40.0)], estimate="40s", due="2h"))
                while waiter.forecast() is None and time.perf_counter() - began < PATIENCE:
                    time.sleep(0.01)
                took.append(time.perf_counter() - began)
                time.sleep(max(0.0, EVERY - took[-1]))
    return took


def asked_row(policy: str, jobs: int, task: Callable[[float], None]) -> tuple[object, ...]:
    """The first answer, which starts the process, and the others."""
    first, *others = asked(policy, jobs, task)
    median, most = statistics.median(others), max(others)
    return f"`{policy}`", f"{jobs:,}", task.__name__, f"{first:.2f}", f"{median:.2f}", f"{most:.2f}"


def main() -> None:
    """Print the section of the report."""
    measure.section(
        "Forecasts: the first answer",
        f"""How long it takes a server's forecaster to say when all open jobs end: by their estimates, and with bounds
        from so many futures on {len(os.sched_getaffinity(0))} processors. Rigid jobs on {SLOTS} slots, all submitted
        at once, with estimates and due dates; compiled, on {measure.machine()}. To start the process takes about a
        second more, once. Wanted with bounds: 0.3 s for 100 jobs, 3 s for 2,000.""",
        measure.table(
            ("policy", "open jobs", "by estimates, s", "with bounds, s", "futures"),
            [row(policy, state_of(policy, jobs)) for jobs in OPEN for policy in POLICIES],
        ),
    )

    measure.section(
        "Forecasts: many nodes",
        f"""The same for {OPEN[0]} jobs on more and more nodes of {OF_SLOTS} slots; the jobs are as much wider.
        Wanted: 0.3 s, however many nodes there are.""",
        measure.table(
            ("nodes", "policy", "open jobs", "by estimates, s", "with bounds, s", "futures"),
            [
                (f"{nodes:,}", *row(policy, state_of(policy, OPEN[0], nodes, OF_SLOTS)))
                for nodes in NODES
                for policy in POLICIES
            ],
        ),
    )

    measure.section(
        "Forecasts: from a submission to its bounds",
        f"""How long a user waits who submits a job to a server where so many jobs are open, and asks for its bounds
        (`waiter.forecast()`): the first time, when the process that makes forecasts starts, and {ASKED - 1} times later
        every {EVERY:g} s. {SERVED_SLOTS} slots, bags of one task of 30 to 90 s, estimates, due dates; the tasks sleep,
        or always compute. Who asks more often where all processors compute waits for
        [up to 3 s](explanation/live.md#what-is-expected-of-jobs). Wanted: 0.3 s for 100 jobs, 3 s for 2,000.""",
        measure.table(
            ("policy", "open jobs", "its tasks", "first time, s", "later, s", "longest, s"),
            [
                asked_row(policy, jobs, task)
                for jobs, task in ((OPEN[0], sleep), (OPEN[0], compute), (OPEN[1], sleep))
                for policy in POLICIES
            ],
        ),
    )

    states = [(policy, state_of(policy, jobs)) for jobs in OPEN for policy in POLICIES]
    with hogs():
        os.nice(NICE)
        measure.section(
            "Forecasts: where everything computes",
            f"""The same forecasts beside one process on each processor that always computes, while somebody asks again
            and again for {BUSY_SECONDS:g} s: how long the first answer takes, how old an answer gets at most before the
            next is there, and how much of one processor all that takes. Wanted: a few seconds for the first, and at
            most 15 s ([what limits it with many jobs](benchmarks-notes.md#forecasts-where-everything-computes)).""",
            measure.table(
                ("policy", "open jobs", "first answer, s", "oldest, s", "of one processor"),
                [busy_row(policy, state) for policy, state in states],
            ),
        )


if __name__ == "__main__":
    main()
