"""Measure all figures and write them to docs/benchmarks.md (`make bench`), or print some of them.

    python bench/run.py [--into] [NAME...]

With --into the sections replace those of the report. Each name is a script of this folder that prints one section:
easy, decision, ... If a figure cannot be measured, everything ends with an error, and the report stays as it was.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import psutil

import measure

BENCH = Path(__file__).resolve().parent
REPORT = BENCH.parent / "docs" / "benchmarks.md"
SECTIONS = (
    "easy",
    "peers",
    "shares",
    "decision",
    "size",
    "batch",
    "foresight",
    "learning",
    "renting",
    "workflows",
    "services",
    "decider",
    "lin14",
    "startup",
    "live",
    "questions",
    "answers",
    "dask_engine",
    "crowd",
    "faults",
    "executor",
    "fresh",
    "tiers",
    "idle",
    "longpoll",
    "notice",
    "soak",
    "stalls",
)


def main(names: list[str]) -> None:
    """Run the scripts and write the report."""
    into, names = "--into" in names, [name for name in names if name != "--into"]
    parts = [""]
    began, busy = time.perf_counter(), processor_seconds()
    for name in names or SECTIONS:
        print(f"{time.perf_counter() - began:4.0f} s  {name}", file=sys.stderr, flush=True)
        done = subprocess.run([sys.executable, BENCH / f"{name}.py"], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"bench/{name}.py ended with {done.returncode}; {REPORT.name} was not written")
        parts += re.split(r"\n\n(?=## )", done.stdout.strip())
    others = max(0.0, processor_seconds() - busy) / (time.perf_counter() - began)
    parts[0] = HEAD.format(machine=measure.machine(), others=others)
    report = "\n\n".join(parts) + "\n"
    if into:
        REPORT.write_text(with_sections(REPORT.read_text(encoding="utf-8"), parts[1:]), encoding="utf-8")
    elif names:
        print(report)
    else:
        REPORT.write_text(report, encoding="utf-8")


def with_sections(report: str, parts: list[str]) -> str:
    """The report with these sections. Each replaces the one with its heading, or else is added at the end."""
    head, *sections = report.strip().split("\n\n## ")
    for part in parts:
        title, _, body = part.removeprefix("## ").partition("\n")
        places = [place for place, section in enumerate(sections) if section.partition("\n")[0] == title]
        place = places[0] if places else len(sections)
        sections[place : place + 1] = [f"{title}\n{body}"]
    return "\n\n## ".join([head, *sections]) + "\n"


def processor_seconds() -> float:
    """The processor time of all other programs so far: without this one and those that it ran."""
    machine = psutil.cpu_times()
    own = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(machine) - machine.idle - machine.iowait - machine.guest - machine.guest_nice - own


HEAD = """# Figures

`make bench` writes this page: do not edit it, run the command again. Each section names the command that takes only its
figures, and the day on which it did. What was compared on one day alone is in the [notes](benchmarks-notes.md). Public
logs are expected in the folder that `$HEADWAY_DATA` names, or in `../shared/data`. Where they are missing, generated
logs of the same size and load replace them, and the tables say so.

Machine, where a section names no other: {machine}.
Other programs used {others:.1f} of its processors during the measurements."""

if __name__ == "__main__":
    main(sys.argv[1:])
