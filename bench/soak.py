"""A server under a long steady load: whether memory, descriptors, threads, files, disk or latency grow.

python bench/soak.py [--minutes X] [--rate N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import cloudpickle
import psutil

import live
import measure
from headway.client.client import Client
from headway.client.executor import HeadwayExecutor
from headway.client.job import Job, Task
from headway.client.waiters import Waiter
from headway.files import Input

KEPT = "15s"
"""How long everything is kept that has ended: much less than a run takes, so that as much goes as comes."""

KEPT_LONGER = "2m"
"""The same for results that nobody acknowledges, for a client on a busy machine may be late, and for keys of
submissions and uploads, where it is the least."""

RAMP_SECONDS = 60.0
"""At the beginning everything fills, for the time that it is kept and somewhat more; not more than a third of a run."""

BEHIND_SECONDS = 2.0
"""Where tasks come back as late as this they pile up, and everything grows with them: that is no leak."""

BAG = 5
"""Tasks of a job that is submitted."""

PRINTED = 20_000
"""Bytes that a task prints now and then: more than fits into its result, so that a file is kept."""


class Quantity(NamedTuple):
    """One quantity that is measured.

    Attributes:
        unit: the unit of its figures.
        slack: growth of up to this much within the run does not count. Nor does growth of up to 5 % of its level.
    """

    name: str
    unit: str
    slack: float


QUANTITIES = (
    Quantity("server", "MB", 3.0),
    Quantity("nodes", "MB", 6.0),
    Quantity("clients", "MB", 6.0),
    Quantity("descriptors", "", 8.0),
    Quantity("threads", "", 4.0),
    Quantity("files", "", 60.0),
    Quantity("disk", "MB", 3.0),
    Quantity("p50", "ms", 2.0),
    Quantity("p99", "ms", 20.0),
)


class Look(NamedTuple):
    """The values at one time, in the order of `QUANTITIES`; the time in seconds, and how many tasks had come back."""

    at: float
    tasks: int
    found: tuple[float, ...]


# Clients, each in a process of its own


def same(value: int) -> int:
    """A task: returns its argument."""
    return value


def chatty(value: int) -> int:
    """A task that prints more than its result keeps."""
    print("x" * PRINTED)
    return value


def length(path: str) -> int:
    """A task with an input file: returns its length."""
    return os.stat(path).st_size


def carry_tasks() -> None:
    """Send the functions of this script with their calls, because other processes have another main module."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Tally:
    """How long each task took from submission to result, since the last time this was taken."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._times: list[float] = []
        self._done = 0
        self._wrong = 0

    def watch(self, future: Future[object], expected: object, tasks: int = 1) -> None:
        """Start the clock for a call or job of this many tasks."""
        future.add_done_callback(partial(self._ended, time.perf_counter(), expected, tasks))

    def _ended(self, began: float, expected: object, tasks: int, future: Future[object]) -> None:
        took = time.perf_counter() - began
        right = not future.cancelled() and future.exception() is None and future.result() == expected
        with self._lock:
            self._times += [took] * tasks
            self._done += tasks
            self._wrong += 0 if right else tasks

    def take(self) -> tuple[list[float], int, int]:
        """The times since the last take; how many tasks came back in all, and how many with a wrong result."""
        with self._lock:
            times, self._times = self._times, []
            return times, self._done, self._wrong


def pace(rate: float, until: float, step: Callable[[int], None]) -> int:
    """Run this many steps a second, late ones at once. Returns how many it ran."""
    began, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < until:
        if count < (now - began) * rate:
            step(count)
            count += 1
        else:
            time.sleep(min(0.005, 1 / rate))
    return count


def call(url: str, token: str, rate: float, seconds: float, report: Connection) -> None:
    """A client of an executor: single calls, each as its own future."""
    carry_tasks()
    tally = Tally()
    with Client(url, token=token) as client, HeadwayExecutor(client) as executor:
        teller = Teller(tally, report)

        def step(number: int) -> None:
            tally.watch(executor.submit(same, number), number)
            teller.tell()

        count = pace(rate, time.perf_counter() + seconds, step)
        executor.shutdown()
    teller.end(count)


def submit(url: str, token: str, rate: float, seconds: float, report: Connection) -> None:
    """A client that submits bags, some with output, a file or a program, or under another name."""
    carry_tasks()
    tally = Tally()
    with Client(url, token=token) as client:
        teller = Teller(tally, report)

        def bag(number: int) -> None:
            function = chatty if number % 20 == 7 else same
            values = list(range(number, number + BAG))
            tally.watch(client.submit(Job("bag", [Task(function, value) for value in values])), values, BAG)

        def fetch(number: int) -> None:
            content = number.to_bytes(1000, "big")
            file: Input = client.upload(content, "file")
            tally.watch(client.submit(Job("file", [Task(length, file)] * BAG)), [1000] * BAG, BAG)

        def run(number: int) -> None:
            tally.watch(client.submit(Job("program", [Task.command("true")] * BAG)), [""] * BAG, BAG)

        others: list[tuple[Client, Waiter]] = []

        def other(number: int) -> None:
            another = Client(url, token=token)
            waiter = another.submit(Job("other", [Task(same, number)] * BAG))
            tally.watch(waiter, [number] * BAG, BAG)
            others.append((another, waiter))

        def leave(*, all_: bool = False) -> None:
            for another, waiter in [each for each in others if all_ or each[1].done()]:
                waiter.exception(120)
                another.close()
                others.remove((another, waiter))

        def step(number: int) -> None:
            kinds = {33: fetch, 66: run, 99: other}
            kinds.get(number % 100, bag)(number)
            leave()
            teller.tell()

        count = pace(rate / BAG, time.perf_counter() + seconds, step)
        client.wait(timeout=120)
        leave(all_=True)
    teller.end(count * BAG)


class Teller:
    """Reports the progress of a client once a second, and at the end how many tasks it submitted."""

    def __init__(self, tally: Tally, report: Connection) -> None:
        self._tally = tally
        self._report = report
        self._next = 0.0

    def tell(self) -> None:
        """Report, if a report is due."""
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + 1
            self._report.send((*self._tally.take(), None))

    def end(self, submitted: int) -> None:
        """The end."""
        self._report.send((*self._tally.take(), submitted))
        self._report.close()


# What is measured


class Ward:
    """The processes and the folder that are measured."""

    def __init__(self, pid: int, clients: Sequence[int], folder: Path) -> None:
        self._server = psutil.Process(pid)
        self._clients = [psutil.Process(client) for client in clients]
        self._folder = folder

    def look(self, times: Sequence[float]) -> tuple[float, ...]:
        """Measure all quantities now, and how long recent tasks took."""
        nodes = self._server.children(recursive=True)
        descriptors = threads = 0
        sizes = []
        for group in ([self._server], nodes, self._clients):
            size = 0
            for process in group:
                with suppress(psutil.NoSuchProcess), process.oneshot():
                    size += process.memory_info().rss
                    descriptors += process.num_fds()
                    threads += process.num_threads()
            sizes.append(size / 1e6)
        files, disk = usage(self._folder)
        slow = [1e3 * measure.percentile(times, share) for share in (0.5, 0.99)] if times else [0.0, 0.0]
        return (*sizes, descriptors, threads, files, disk / 1e6, *slow)


def usage(folder: Path) -> tuple[int, int]:
    """Files in a folder, and the bytes that they take of the disk."""
    files = size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                files += 1
                size += os.lstat(os.path.join(place, name)).st_blocks * 512
    return files, size


# A run


def soak(minutes: float, rate: float) -> tuple[list[Look], int, int, int]:
    """The values of each period; how many tasks were submitted, came back, and came back with a wrong result."""
    seconds = 60 * minutes
    period = max(2.0, min(60.0, seconds / 30))
    looks: list[Look] = []
    spawn = get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = (
            "--retention",
            "--keep-jobs",
            "--keep-events",
            "--keep-incidents",
        )
        kept_longer = ("--keep-unacknowledged", "--keep-keys", "--keep-uploads")
        short = (word for option in kept for word in (option, KEPT))
        longer = (word for option in kept_longer for word in (option, KEPT_LONGER))
        words = (*short, *longer, "--period", "none")
        with live.server(folder, live.SLOTS, words) as (client, pid):
            url = (folder / "data" / "url").read_text().strip()
            token = (folder / "data" / "token").read_text().strip()
            ends, processes = [], []
            for life in (call, submit):
                end, other = spawn.Pipe(duplex=False)
                process = spawn.Process(target=life, args=(url, token, rate / 2, seconds, other), daemon=True)
                process.start()
                other.close()
                ends.append(end)
                processes.append(process)
            ward = Ward(pid, [process.pid for process in processes if process.pid], folder / "data")
            began = time.perf_counter()
            times: list[float] = []
            done, wrong, submitted = [0] * len(ends), [0] * len(ends), dict[int, int]()
            due = began + period
            while len(submitted) < len(ends):
                if not psutil.pid_exists(pid):
                    raise SystemExit(f"the server ended by itself after {time.perf_counter() - began:.0f} s")
                for number, end in enumerate(ends):
                    while number not in submitted and end.poll(0.05):
                        took, done[number], wrong[number], last = end.recv()
                        times += took
                        if last is not None:
                            submitted[number] = last
                if time.perf_counter() >= due and time.perf_counter() <= began + seconds:
                    looks.append(Look(time.perf_counter() - began, sum(done), ward.look(times)))
                    times.clear()
                    due += period
            for process in processes:
                process.join(60)
            left = [job.id for job in client.jobs(status="open")]
            if left:
                raise SystemExit(f"{len(left)} jobs never ended, the first is {left[0]}")
    return looks, sum(submitted.values()), sum(done), sum(wrong)


def growth(looks: Sequence[Look], place: int) -> tuple[float, float]:
    """The level of a quantity after the ramp, and its growth an hour: the median slope between pairs (Theil and Sen).

    A few outliers, when the machine was busy with something else, do not matter.
    """
    values = [(look.at, look.found[place]) for look in looks]
    slopes = [
        (later - value) / (after - at)
        for number, (at, value) in enumerate(values)
        for after, later in values[number + 1 :]
        if after - at > (values[-1][0] - values[0][0]) / 3
    ]
    return statistics.median(value for _, value in values), 3600 * statistics.median(slopes)


def verdicts(looks: Sequence[Look]) -> list[tuple[str, ...]]:
    """For each quantity its name, level, growth per hour and per thousand tasks, and a verdict."""
    rows = []
    hours = (looks[-1].at - looks[0].at) / 3600
    tasks = (looks[-1].tasks - looks[0].tasks) / 1000
    for place, quantity in enumerate(QUANTITIES):
        level, hourly = growth(looks, place)
        grown = hourly * hours
        word = "grows" if grown > max(quantity.slack, 0.05 * level) else "flat"
        unit = f" {quantity.unit}" if quantity.unit else ""
        each = f"{1000 * grown / tasks:+.2f} kB" if quantity.unit == "MB" else f"{grown / tasks:+.3f}{unit}"
        rows.append((quantity.name, f"{level:,.1f}{unit}", f"{grown:+,.1f}{unit}", each, word))
    return rows


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--minutes", type=float, default=float(os.environ.get("MINUTES") or 3))
    arguments.add_argument("--rate", type=float, default=float(os.environ.get("RATE") or 200))
    given = arguments.parse_args()
    looks, submitted, done, wrong = soak(given.minutes, given.rate)
    ramp = min(RAMP_SECONDS, 20 * given.minutes)
    settled = [look for look in looks if look.at >= ramp]
    step = max(1, len(looks) // 15)
    rows = [
        (f"{look.at / 60:.1f}", f"{look.tasks:,}", *(measure.rounded(value) for value in look.found))
        for look in looks[step - 1 :: step]
    ]
    judged = verdicts(settled)
    grows = [row[0] for row in judged if row[-1] != "flat"]
    outcome = f"{', '.join(grows)} grew" if grows else "nothing grew"
    if statistics.median(look.found[-2] for look in settled) > 1e3 * BEHIND_SECONDS:
        outcome = f"none, for the server got more than it and this machine could do ({outcome})"
    measure.section(
        "Live: soak",
        f"""A server with {live.SLOTS} slots for {given.minutes:g} minutes at {given.rate:g} tasks/s. Half of the tasks
        are calls of an executor, half are in bags of {BAG}. Some print {PRINTED // 1000} kB, are given an upload, run
        a program, or are submitted by a client of their own. What has ended is kept for {KEPT}; results that nobody
        acknowledged, keys of submissions, and uploads are kept for {KEPT_LONGER}. Of {submitted:,} tasks {done:,} came
        back, {wrong} of them with a wrong result. Memory is the resident memory of the server, of its nodes with their
        slots, and of the two clients. Descriptors and threads are those of all of them; files and disk are those of
        the data directory. Times are from submission to result, within each period. Growth is the median slope after
        the first {ramp:.0f} s. It counts as none if it is less than 5 % of the level, or within the noise of so small
        a figure. Verdict: {outcome}. The load average of the machine, which has {os.cpu_count()} processors, was
        {os.getloadavg()[1]:.0f} at the end.""",
        measure.table(("quantity", "level", "growth in the run", "a 1,000 tasks", "verdict"), judged),
        measure.table(
            ("minute", "tasks", *(f"{each.name}, {each.unit}" if each.unit else each.name for each in QUANTITIES)), rows
        ),
    )
    if done != submitted or wrong:
        raise SystemExit(f"of {submitted} tasks {done} came back, {wrong} with a wrong result")


if __name__ == "__main__":
    main()
