"""How long short commands take, as whole processes.

python bench/startup.py [--rounds N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import logs
import measure


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=11)
    rounds = arguments.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        [file] = logs.pieces([(logs.HPC2N, 1000)], Path(folder))
        commands = {
            ("`headway --help`", "0.3"): measure.headway("--help"),
            ("`headway policies`", ""): measure.headway("policies"),
            ("`headway simulate FILE --policy easy --slots 240` of 1,000 jobs", "0.7"): measure.headway(
                "simulate", file, "--policy", "easy", "--slots", 240
            ),
            ("for comparison: `python -c pass`", ""): [sys.executable, "-c", "pass"],
            ("for comparison: `python -c 'import numpy'`", ""): [sys.executable, "-c", "import numpy"],
        }
        runs = measure.alternating({name: partial(measure.run, it) for name, it in commands.items()}, rounds)
    rows = [
        (name, f"{measure.seconds(several):.3f}", f"{max(run.seconds for run in several):.3f}", wanted)
        for (name, wanted), several in runs.items()
    ]
    measure.section(
        "Start-up",
        f"Whole processes, in turn, {rounds} times; seconds. FILE holds the first 1,000 jobs of {logs.HPC2N.title}.",
        measure.table(("command", "median", "longest", "wanted: at most"), rows),
    )


if __name__ == "__main__":
    main()
