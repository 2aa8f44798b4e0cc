"""The simulation of Lin14 6.3: seconds for one sample, with each of its policies.

python bench/lin14.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path

import logs
import measure

POLICIES = (
    "priority",
    "priority:reserve=0.2,spare=priority",
    "proportion",
    "workload",
    "deadline",
    "deadline:spare=due",
    "edf",
)
SLOTS = 20


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=3)
    rounds = arguments.parse_args().rounds
    log = logs.SDSC_PARAGON
    with tempfile.TemporaryDirectory() as folder:
        [file] = logs.pieces([(log, log.jobs)], Path(folder))
        start = ("simulate", file, "--recipe", "lin14", "--seed", 1, "--slots", SLOTS, "--json")
        commands = {policy: measure.headway(*start, "--policy", policy) for policy in POLICIES}
        runs = measure.alternating({name: partial(measure.run, it) for name, it in commands.items()}, rounds)
    rows = []
    for policy, several in runs.items():
        [outcome] = json.loads(several[0].output)
        rows.append((f"`{policy}`", outcome["jobs"], f"{measure.seconds(several):.2f}"))
    measure.section(
        "Lin14's policies",
        f"""`headway simulate FILE --recipe lin14 --seed 1 --slots {SLOTS} --policy POLICY --json` as a whole process:
        one sample of {log.title} as in Lin14 6.3: 1 % of the log, its processors as tasks. Medians of {rounds}.""",
        measure.table(("policy", "jobs", "seconds a run"), rows),
    )


if __name__ == "__main__":
    main()
