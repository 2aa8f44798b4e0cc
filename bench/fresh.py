"""Jobs of one short call each: in clean processes, as they are by default, and in warm ones (`warm=True`).

python bench/fresh.py [--jobs N] [--trips N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

import psutil

import live
import measure
from headway.client.client import Client
from headway.client.job import Job, Task


def same(value: int) -> int:
    """The task: returns its argument. It is sent by value, because it is in this script. So nothing is imported."""
    return value


def processor_seconds(pid: int) -> float:
    """Processor time of this process, and of a server with all processes that it started, also ended ones."""
    server = psutil.Process(pid)
    spent = sum(os.times()[:2])
    for process in [server, *server.children(recursive=True)]:
        try:
            spent += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return spent


def job(value: int, warm: bool) -> Job:
    """A job of one call."""
    return Job("one", [Task(same, value)], warm=warm)


def at_once(client: Client, jobs: int, warm: bool) -> None:
    """Submit many, then wait for all."""
    submitted = [client.submit(job(value, warm)) for value in range(jobs)]
    assert [each.result() for each in submitted] == [[value] for value in range(jobs)]


def one_by_one(client: Client, jobs: int, warm: bool) -> None:
    """Submit each when the one before it has ended."""
    for value in range(jobs):
        assert client.submit(job(value, warm)).result() == [value]


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--jobs", type=int, default=500)
    arguments.add_argument("--trips", type=int, default=150)
    arguments.add_argument("--rounds", type=int, default=3)
    chosen = arguments.parse_args()
    ways = [(one_by_one, chosen.trips), (at_once, chosen.jobs)]
    taken: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, live.server(Path(folder)) as (client, pid):
        for warm in (True, False):
            one_by_one(client, 20, warm)
        for _ in range(chosen.rounds):
            for way, jobs in ways:
                for warm in (True, False):
                    before, began = processor_seconds(pid), perf_counter()
                    way(client, jobs, warm)
                    wall = (perf_counter() - began) / jobs
                    spent = (processor_seconds(pid) - before) / jobs
                    taken.setdefault((way.__name__, warm), []).append((1e3 * wall, 1e3 * spent))
    rows = []
    for way, _ in ways:
        medians = {
            warm: [statistics.median(one) for one in zip(*taken[way.__name__, warm], strict=True)]
            for warm in (True, False)
        }
        for warm in (True, False):
            (wall, spent), (least, _) = medians[warm], medians[True]
            name = f"{way.__name__.replace('_', ' ')}, {'warm' if warm else 'clean'}"
            rows.append((name, f"{wall:.1f}", f"{1e3 / wall:.0f}", f"{spent:.1f}", f"{wall / least:.2f}"))
    measure.section(
        "Live: jobs of one call",
        f"""`headway up --slots {live.SLOTS}` with jobs of one call that does nothing: {chosen.trips} one after the
        other, and {chosen.jobs} at once, {chosen.rounds} times in turn; medians. Processor time is that of the client,
        the server and all its processes. Load of the machine: {os.getloadavg()[0]:.1f}. Wanted: clean processes take
        at most 1.5 times as long as warm ones.""",
        measure.table(("way", "ms a job", "jobs a second", "processor, ms a job", "time against warm"), rows),
    )


if __name__ == "__main__":
    main()
