"""Where the time of an EASY simulation goes, part by part, compared with the textbook loop.

    python bench/shares.py [--interval MILLISECONDS]

A timer interrupts a run at regular intervals and records in which of Headway's functions it is. Python's own functions
count for their caller.
"""

from __future__ import annotations

import argparse
import signal
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from types import FrameType

import headway
import logs
import measure
import textbook
from headway.model.node import NodeSpec
from headway.model.workload import Workload
from headway.sim.experiment import run

ROOT = str(Path(headway.__file__).parent)
VALUES = "<string>"
"""The file that methods of dataclasses seem to be in."""

ROOMS = {
    "policies": "the policy: shadow time, scan of the queue, choice of slots",
    "core/rounds.py": "the plan checked and committed",
    "core/state.py": "the state and its indexes: queue, running by expected end, free slots",
    "core": "the entry point and one function for each event: `handle`, rounds due, wakes, fencing",
    "sim/kernel.py": "the event heap, and what becomes of each job",
    "values": "events, actions, allocations, promises and job terms made as values",
    "model": "views of jobs and attempts, empty plans, slot arithmetic",
}
ELSE = "everything else"


def room(frame: FrameType | None) -> str:
    """The part of Headway to which a frame belongs."""
    made = False
    while frame is not None:
        file = frame.f_code.co_filename
        made = made or file == VALUES
        if file.startswith(ROOT):
            if made:
                return "values"
            inside = file[len(ROOT) + 1 :]
            return next((name for name in ROOMS if inside == name or inside.startswith(name + "/")), ELSE)
        frame = frame.f_back
    return ELSE


def simulate(workload: Workload, slots: int) -> None:
    """Run the simulation that is measured."""
    run(workload, [NodeSpec("all", slots)], "easy")


def sampled(workload: Workload, slots: int, interval: float) -> Counter[str]:
    """How often a run was in each part, sampled every `interval` seconds."""
    found: Counter[str] = Counter()
    signal.signal(signal.SIGALRM, lambda _, frame: found.update((room(frame),)))
    signal.setitimer(signal.ITIMER_REAL, interval, interval)
    simulate(workload, slots)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return found


def stopwatch(work: Callable[[], object]) -> float:
    """The seconds that some work takes: the median of three runs."""
    took = []
    for _ in range(3):
        began = perf_counter()
        work()
        took.append(perf_counter() - began)
    return statistics.median(took)


def column(log: logs.Log, interval: float) -> dict[str, str]:
    """The figures of one log, by row: microseconds per job, and the share of the simulation."""
    workload = logs.workload(log)
    columns = (workload.release, workload.label, workload.width, workload.runtime, workload.estimate)
    plain = list(zip(*(column.tolist() for column in columns), strict=True))
    loop = stopwatch(lambda: textbook.easy(plain, log.slots))
    whole = stopwatch(lambda: simulate(workload, log.slots))
    reading = stopwatch(lambda: logs.workload(log))
    found = sampled(workload, log.slots, interval)
    parts = {name: whole * found[name] / found.total() for name in (*ROOMS, ELSE)}

    def figure(seconds: float) -> str:
        return f"{1e6 * seconds / len(workload):.2f} ({seconds / whole:.0%})"

    rows = {"**the simulation**": figure(whole)}
    rows |= {f"{ROOMS[name]} (`{name}`)" if name in ROOMS else ELSE: figure(seconds) for name, seconds in parts.items()}
    return rows | {
        "for comparison: reading the log": figure(reading),
        "for comparison: the textbook loop": figure(loop),
    }


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--interval", type=float, default=1.0)
    interval = arguments.parse_args().interval / 1e3
    columns = {log.title: column(log, interval) for log in (logs.HPC2N, logs.SDSC_SP2)}
    rows = [(name, *(figures[name] for figures in columns.values())) for name in next(iter(columns.values()))]
    measure.section(
        "Where the time goes",
        f"""EASY on whole logs, in microseconds per job and as a share of the simulation, without start-up and reading.
        A timer interrupts a run every {1e3 * interval:g} ms and notes which part of Headway is at work. The times are
        those of runs without the timer, medians of 3. The textbook loop on the same jobs shows the cost of the
        decisions alone. The rest is the cost of a core whose state can be asked, checked and replayed, and whose plans
        are checked.""",
        measure.table(("part", *columns), rows),
    )


if __name__ == "__main__":
    main()
