"""EASY backfilling compared with others in the same run: a textbook loop in plain Python, and AccaSim.

python bench/peers.py [--rounds N]
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

import logs
import measure

BENCH = Path(__file__).parent
FEW, MANY = 10_000, 200_000
SEVERAL = 85_000
"""So many jobs of the longer logs are measured on their own: their queue is not as long as that of the whole log."""

LOADS = (0.6, 0.7, 0.8)
"""Generated logs of so many jobs (Lublin and Feitelson 1999) have these loads: the higher, the longer the queue."""

GENERATED_SLOTS = 128

HEADWAY, COMPILED, LOOP = "Headway", "Headway, compiled", "textbook loop"

Starts = dict[str, float]
"""When each job starts, in seconds, by its number in the log."""


def read_starts(schedule: Path) -> Starts:
    """The starts in a table with columns `job` and `start`."""
    with schedule.open(encoding="utf-8", newline="") as rows:
        return {row["job"]: float(row["start"]) for row in csv.DictReader(rows)}


def read_accasim_starts(folder: Path) -> Starts:
    """The starts in AccaSim's list: `job;user;queued__slots__start;...`, times as dates."""
    starts = {}
    for line in next(folder.glob("sched-*")).read_text(encoding="utf-8").splitlines():
        start = line.split("__")[2].partition(";")[0]
        starts[line.partition(";")[0]] = datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp()
    return starts


def ways(path: Path, slots: int) -> dict[str, list[str]]:
    """The commands that simulate the jobs of a file; each can be told `--schedule OUT.csv`."""
    words = ("simulate", path, "--policy", "easy", "--slots", slots, "--json")
    return {
        HEADWAY: measure.headway(*words),
        COMPILED: measure.headway(*words, compiled=True),
        LOOP: [sys.executable, str(BENCH / "textbook.py"), str(path), str(slots)],
    }


def same_starts(title: str, commands: Mapping[str, list[str]], folder: Path) -> Starts:
    """The starts of all jobs. They are compared in runs of their own, because to write them down takes time.

    Raises:
        SystemExit: two of the commands start a job at different times.
    """
    schedule = folder / "schedule.csv"
    found = {}
    for name, command in commands.items():
        measure.run([*command, "--schedule", str(schedule)])
        found[name] = read_starts(schedule)
    (first, starts), *others = found.items()
    for name, theirs in others:
        if theirs != starts:
            raise SystemExit(f"{title}: {first} and {name} do not start the same jobs at the same times")
    return starts


def compare(log: logs.Log, folder: Path, rounds: int) -> list[tuple[object, ...]]:
    """The rows of one log."""
    few, many = logs.pieces([(log, FEW), (log, MANY)], folder)
    accasim = folder / "accasim"
    accasim.mkdir()
    commands = ways(few, log.slots)
    starts = same_starts(log.title, commands, folder)
    peer = [sys.executable, str(BENCH / "accasim_easy.py"), str(few), str(log.slots), str(accasim)]
    rows = run(commands | {f"AccaSim {version('accasim')}": peer}, FEW, log, rounds)
    theirs = read_accasim_starts(accasim)
    same = sum(theirs[job] == start for job, start in starts.items())
    rows[-1] = (*rows[-1][:-1], f"{same / FEW:.0%}")
    if log.jobs >= MANY:
        commands = ways(many, log.slots)
        same_starts(log.title, commands, folder)
        rows += run(commands, MANY, log, rounds)
    return rows


def run(commands: Mapping[str, list[str]], jobs: int, log: logs.Log, rounds: int) -> list[tuple[object, ...]]:
    """Run commands in turn that give the same starts; a row for each, with its speed relative to the first one's."""
    things = {name: partial(measure.run, command) for name, command in commands.items()}
    runs = measure.alternating(things, rounds)
    first = measure.seconds(next(iter(runs.values())))
    rows: list[tuple[object, ...]] = []
    for name, several in runs.items():
        took = measure.seconds(several)
        rate, ratio = measure.rounded(jobs / took), measure.rounded(first / took)
        rows.append((f"{log.title}, {jobs:,} jobs", name, f"{took:.2f}", rate, ratio, "all"))
    return rows


def beside_the_loop(title: str, path: Path, slots: int, jobs: int, rounds: int) -> tuple[object, ...]:
    """Headway, compiled, beside the textbook loop on the jobs of a file; a row."""
    commands = ways(path, slots)
    del commands[HEADWAY]
    same_starts(title, commands, path.parent)
    runs = measure.alternating({it: partial(measure.run, command) for it, command in commands.items()}, rounds)
    ours, loop = (min(run.processor for run in runs[name]) for name in commands)
    metrics = json.loads(runs[COMPILED][0].output)[0]["metrics"]
    queue = metrics["wait_mean"] * metrics["jobs"] / metrics["makespan"]
    per_job = min(json.loads(run.output)["loop"] for run in runs[LOOP]) / jobs * 1e6
    figures = (f"{queue:.1f}", f"{per_job:.1f}", f"{ours:.2f}", f"{loop:.2f}", f"{ours / loop:.1f}")
    return (title, f"{jobs:,}", *figures)


def all_beside_the_loop(rounds: int) -> list[tuple[object, ...]]:
    """The rows of all logs, and of generated ones."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for log in logs.EVERY:
            for jobs in (log.jobs, SEVERAL):
                if jobs <= log.jobs:
                    (path,) = logs.pieces([(log, jobs)], Path(folder))
                    rows.append(beside_the_loop(log.title, path, log.slots, jobs, rounds))
        path = Path(folder) / "generated.swf"
        for load in LOADS:
            generate = ("workload", "lublin99", "--jobs", SEVERAL, "--processors", GENERATED_SLOTS, "--seed", 1)
            measure.run(measure.headway(*generate, "--load", load, "--out", path))
            rows.append(beside_the_loop(f"generated, load {load:g}", path, GENERATED_SLOTS, SEVERAL, rounds))
    return rows


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=3)
    rounds = arguments.parse_args().rounds
    rows: list[tuple[object, ...]] = []
    for log in (logs.HPC2N, logs.SDSC_SP2):
        with tempfile.TemporaryDirectory() as folder:
            rows += compare(log, Path(folder), rounds)
    measure.section(
        "EASY, against others",
        f"""Whole processes that read the same file, in turn; medians of {rounds}. `bench/textbook.py` is the shortest
        plain Python that gives the same schedule, which is checked start by start, in runs of their own. It is one
        algorithm for rigid jobs on equal slots: nothing in it can be asked, explained, journalled or replayed. AccaSim
        is the only simulator of batch systems we found that pip installs and that reads such logs.
        `bench/accasim_easy.py` gives it one node with all cores, which is fastest for it. Its backfilling reserves no
        slots for the head of the queue, so its schedule differs.""",
        measure.table(("log", "simulator", "seconds", "jobs/s", "speed, Headway = 1", "starts as Headway's"), rows),
        measure.paragraph(
            f"""Headway, compiled, beside the loop on every log: whole processes, processor seconds, the least of
            {rounds}. The loop looks at each job that waits, so its time depends on the queue, whose mean length is that
            of Headway's run. Headway's depends less on it. Generated logs are of the model of Lublin and
            Feitelson (1999), for {GENERATED_SLOTS} slots, with estimates as users give them. All starts are equal,
            which is checked in runs of their own. Wanted: at most 1.7 times the loop, which is reached only [where
            queues are long](decisions/beside-a-textbook-loop.md)."""
        ),
        measure.table(
            ("log", "jobs", "jobs waiting", "µs/job in the loop", "Headway, compiled", "textbook loop", "times"),
            all_beside_the_loop(rounds),
        ),
    )


if __name__ == "__main__":
    main()
