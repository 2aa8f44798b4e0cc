"""What it costs the others if somebody asks all the time when jobs will be done.

python bench/questions.py [--tasks N] [--trips N] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path

import cloudpickle
import psutil

import live
import measure
from headway.client.client import Client
from headway.client.job import Job, Task

OPEN = 100
A_SECOND = 10


def ask(data: Path, job: int, is_over: Event, asked: list[int]) -> None:
    """Ask when a job will be done, ten times a second."""
    with Client(data=data) as client:
        due = time.monotonic()
        while not is_over.is_set():
            client.explain(job)
            asked.append(job)
            due += 1 / A_SECOND
            is_over.wait(max(0.0, due - time.monotonic()))


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--tasks", type=int, default=5000)
    arguments.add_argument("--trips", type=int, default=300)
    arguments.add_argument("--rounds", type=int, default=8)
    given = arguments.parse_args()
    cloudpickle.register_pickle_by_value(live)  # else each clean process imports it
    spawn = get_context("spawn")
    rates: dict[bool, list[float]] = {False: [], True: []}
    trips: dict[bool, list[float]] = {False: [], True: []}
    spent: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as name, live.server(Path(name)) as (client, pid), spawn.Manager() as manager:
        later = Job("later", [Task(live.same, 1)], release="1h", estimate="1m", due="2h")
        waiters = [client.submit(later) for _ in range(OPEN)]
        way, asked, server = live.headway_way(client), manager.list(), psutil.Process(pid)
        place = (Path(name) / "data", waiters[-1].job)
        live.run(way, 200, 20)
        began = time.perf_counter()
        for number in range(2 * given.rounds):
            with_questions = number % 2 == 1
            is_over = spawn.Event()
            asking = spawn.Process(target=ask, args=(*place, is_over, asked))
            if with_questions:
                asking.start()
                known = len(asked)
                while len(asked) < known + 3:  # the process that makes forecasts has started
                    time.sleep(0.05)
            before = server.cpu_times().user + server.cpu_times().system
            rate, single = live.run(way, given.tasks, given.trips)
            after = server.cpu_times().user + server.cpu_times().system
            is_over.set()
            if with_questions:
                asking.join()
            rates[with_questions].append(rate)
            trips[with_questions] += single
            spent[with_questions].append((after - before) / (given.tasks + given.trips))
        took, answers = time.perf_counter() - began, len(asked)
        for waiter in waiters:
            waiter.cancel()
    rows = [
        (
            "ten questions a second" if asks else "no question",
            measure.rounded(statistics.median(rates[asks])),
            measure.rounded(1e3 * statistics.median(trips[asks])),
            measure.rounded(1e3 * measure.percentile(trips[asks], 0.99)),
            measure.rounded(1e6 * statistics.median(spent[asks])),
        )
        for asks in (False, True)
    ]
    measure.section(
        "Live: questions beside tasks that do nothing",
        f"""The same as above, without questions and with ten runs a second of `headway explain` about one of
        {OPEN} open jobs, in turn, {given.rounds} times each; medians. A forecast is made by other processes,
        which have less priority. So the last column should not change: it is what a task costs the server. If all
        processors are busy, the other columns do, because processors are shared. There were {answers} answers in
        {took:.0f} s. Wanted: within 3 %.""",
        measure.table(
            ("meanwhile", "tasks/s", "one: median ms", "99 in 100 below", "server: µs of processor a task"), rows
        ),
    )


if __name__ == "__main__":
    main()
