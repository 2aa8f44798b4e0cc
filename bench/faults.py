"""How many crashes of a simulated server are gone through in a minute: the seeds of `make faults`.

python bench/faults.py [--seeds N] [--processes N]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.faults.run import Sum, one

import measure


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seeds", type=int, default=50)
    arguments.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = arguments.parse_args()
    whole, began = Sum(), time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        for seed, told, wrong in pool.imap_unordered(one, range(1, given.seeds + 1)):
            if told is None:
                raise SystemExit(f"seed {seed} failed: {wrong}")
            whole.add(told)
        took = time.perf_counter() - began
        pool.close()
        pool.join()
    used, crashes = resource.getrusage(resource.RUSAGE_CHILDREN), whole.crashes.total()
    worked = used.ru_utime + used.ru_stime
    figures = (f"{given.seeds:,}", f"{crashes:,}", f"{whole.numbers['events']:,}", f"{took:.0f}")
    measure.section(
        "Crashes of a simulated server",
        f"""The real driver, journal and core under virtual time, with an engine and a disk that lose, repeat, delay and
        reorder, crash by seed and start again (`make faults`). After each crash nothing accepted is lost, each result
        has come once, and the state equals its replay. In {given.processes} processes on {os.cpu_count()} processors;
        they begin in that time, too. Load of the machine: {os.getloadavg()[0]:.1f}. Wanted: at least 1,000 crashes a
        minute ([with 200 seeds](benchmarks-notes.md#crashes-of-a-simulated-server)).""",
        measure.table(
            (
                "seeds",
                "crashes",
                "events",
                "seconds",
                "crashes a minute",
                "seconds of processor",
                "crashes a minute of it",
            ),
            [(*figures, measure.rounded(60 * crashes / took), f"{worked:.0f}", measure.rounded(60 * crashes / worked))],
        ),
    )


if __name__ == "__main__":
    main()
