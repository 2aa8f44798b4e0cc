"""What an idle server costs: processor time and memory of all its processes.

python bench/idle.py [--seconds N]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import psutil

import live
import measure
from headway.client.job import Job, Task


def family(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def processor_seconds(processes: list[psutil.Process]) -> float:
    """The processor time that they have taken so far, in user and system mode."""
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


def megabytes(processes: list[psutil.Process]) -> tuple[float, float]:
    """Their memory, with shared pages counted once (PSS) and as often as they are mapped (RSS)."""
    memory = [process.memory_full_info() for process in processes]
    return sum(each.pss for each in memory) / 1e6, sum(each.rss for each in memory) / 1e6


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=20.0)
    seconds = arguments.parse_args().seconds
    rows = []
    with tempfile.TemporaryDirectory() as folder, live.server(Path(folder)) as (client, pid):
        for state in ("just started, one client connected", "after 5,000 tasks"):
            if rows:
                client.submit(Job("many", [Task(abs, value) for value in range(5000)])).result()
            time.sleep(2)  # until the last work has been cleaned up
            processes = family(pid)
            before, began = processor_seconds(processes), time.perf_counter()
            time.sleep(seconds)
            load = (processor_seconds(processes) - before) / (time.perf_counter() - began)
            shared, resident = megabytes(processes)
            rows.append((state, f"{100 * load:.2f} %", f"{shared:.0f}", f"{resident:.0f}", len(processes)))
    measure.section(
        "Live: idle",
        f"""`headway up --slots {live.SLOTS}` with all its processes, for {seconds:g} s: processor time as a share of
        one processor, and memory in MB, where shared memory counts once (PSS) or once per process (RSS). Wanted: less
        than 1 % and 120 MB.""",
        measure.table(("state", "processor", "MB, PSS", "MB, RSS", "processes"), rows),
    )


if __name__ == "__main__":
    main()
