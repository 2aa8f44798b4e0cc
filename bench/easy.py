"""EASY and MEASY on whole logs: jobs per second and memory, plain and compiled, from 10,000 jobs to 300,000.

python bench/easy.py [--rounds N]
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import logs
import measure

FEW = 10
"""Jobs of a run that is nearly nothing but start-up."""

SIZES = [("easy", logs.SDSC_SP2, FEW), ("easy", logs.SDSC_SP2, logs.SDSC_SP2.jobs), ("easy", logs.CTC, logs.CTC.jobs)]
SIZES += [("easy", logs.HPC2N, jobs) for jobs in (10_000, 50_000, 100_000, 200_000, 300_000)]
SIZES += [("measy", log, log.jobs) for log in (logs.SDSC_SP2, logs.CTC)]


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=3)
    rounds = arguments.parse_args().rounds
    pieces = dict.fromkeys((log, jobs) for _, log, jobs in SIZES)
    with tempfile.TemporaryDirectory() as folder:
        files = dict(zip(pieces, logs.pieces(pieces, Path(folder)), strict=True))
        things = {
            (policy, log, jobs, compiled): measure.headway(
                *("simulate", files[log, jobs], "--policy", policy, "--slots", log.slots, "--json"), compiled=compiled
            )
            for policy, log, jobs in SIZES
            for compiled in (False, True)
        }
        runs = measure.alternating({size: partial(measure.run, it) for size, it in things.items()}, rounds)
    rows = []
    for policy, log, jobs in SIZES:
        plain, compiled = (runs[policy, log, jobs, which] for which in (False, True))
        figures = []
        for several in (plain, compiled):
            took = measure.seconds(several)
            figures += [f"{took:.2f}", measure.rounded(jobs / took) if jobs > FEW else ""]
        name = f"`{policy}`, {log.title}, {log.slots} slots"
        rows.append((name, f"{jobs:,}", *figures, f"{measure.megabytes([*plain, *compiled]):.0f}"))
    measure.section(
        "EASY and MEASY through the core",
        f"""`headway simulate FILE --policy POLICY --slots N --json` as a whole process: start-up, reading, simulation,
        measures. Each file holds the first jobs of the log; the one with 300,000 jobs repeats the log from its
        beginning. Plain Python and the [compiled core](how-to/compile.md) run in turn. Times are medians of {rounds}
        runs, memory is the most of any run. Wanted: EASY 43,000 jobs/s on SDSC-SP2 or CTC, and no slower with 300,000
        jobs; MEASY 10,000 jobs/s; at most 150 MB for 200,000 jobs.""",
        measure.table(
            ("policy, log", "jobs", "plain: seconds", "jobs/s", "compiled: seconds", "jobs/s", "MB at most"), rows
        ),
    )


if __name__ == "__main__":
    main()
