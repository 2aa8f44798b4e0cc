"""EASY backfilling of whole logs: jobs per second and memory, from 10,000 jobs to 200,000.

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

SIZES = [(logs.HPC2N, jobs) for jobs in (FEW, 10_000, 50_000, 100_000, 200_000)]
SIZES += [(logs.SDSC_SP2, jobs) for jobs in (FEW, 10_000, 50_000)]


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    rounds = arguments.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            size: measure.headway("simulate", file, "--policy", "easy", "--slots", size[0].slots, "--json")
            for size, file in zip(SIZES, logs.pieces(SIZES, Path(folder)), strict=True)
        }
        runs = measure.alternating({size: partial(measure.run, it) for size, it in commands.items()}, rounds)
    rows = []
    for (log, jobs), several in runs.items():
        took, startup = measure.seconds(several), measure.seconds(runs[log, FEW])
        rates = [jobs / took, (jobs - FEW) / (took - startup)] if jobs > FEW else []
        rows.append(
            (
                f"{log.title}, {log.slots} slots",
                f"{jobs:,}",
                f"{took:.2f}",
                *(map(measure.rounded, rates) if rates else ("", "")),
                f"{measure.megabytes(several):.0f}",
            )
        )
    measure.section(
        "EASY through the core",
        f"""`headway simulate FILE --policy easy --slots N --json` as a whole process: start, reading, simulation,
        measures. The files hold the first jobs of the log and no more. Medians of {rounds} runs; the most memory
        of any. Beyond start-up: less the time of a run of 10 jobs. Wanted: 15,000 jobs/s, flat from 10,000 to
        200,000 jobs, at most 150 MB.""",
        measure.table(("log", "jobs", "seconds", "jobs/s", "jobs/s beyond start-up", "MB at most"), rows),
    )


if __name__ == "__main__":
    main()
