"""Times of commands, figures in the form of the report, and the machine that they are from."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import psutil

COMPILED = Path(__file__).resolve().parents[1] / ".venv-compiled" / "bin"
"""Where `make compiled` puts the commands."""

PATIENCE = 600.0
"""So many seconds something may take that is waited for."""

Name = TypeVar("Name")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Run:
    """One run of a command as a whole process.

    Attributes:
        seconds: from before the process was made until it had ended.
        processor: seconds of processor time that it and the system spent for it.
        megabytes: the most memory it had resident, in millions of bytes.
        output: what it printed.
    """

    seconds: float
    processor: float
    megabytes: float
    output: str


def run(command: Sequence[str]) -> Run:
    """Run a command to its end.

    Raises:
        SystemExit: it failed; with its output.
    """
    # As in an installation: Python keeps compiled modules.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as complaint:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=complaint, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        complaint.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{complaint.read()}")
        processor = usage.ru_utime + usage.ru_stime
        return Run(seconds, processor, usage.ru_maxrss * 1024 / 1e6, output.read())


def headway(*arguments: object, compiled: bool = False) -> list[str]:
    """The command `headway` with these arguments, from this environment or from the one with the compiled core."""
    folder = COMPILED if compiled else Path(sys.executable).parent
    return [str(folder / "headway"), *map(str, arguments)]


def alternating(things: Mapping[Name, Callable[[], Made]], rounds: int) -> dict[Name, list[Made]]:
    """Run all of them in turn, round after round, so that a busy moment of the machine affects all alike."""
    runs: dict[Name, list[Made]] = {name: [] for name in things}
    for _ in range(rounds):
        for name, thing in things.items():
            runs[name].append(thing())
    return runs


def until(true: Callable[[], bool]) -> None:
    """Wait until something is so; looks five times a second.

    Raises:
        SystemExit: it is not so after `PATIENCE`.
    """
    end = time.perf_counter() + PATIENCE
    while not true():
        if time.perf_counter() > end:
            raise SystemExit(f"after {PATIENCE:g} s it is not so")
        time.sleep(0.2)


def seconds(runs: Iterable[Run]) -> float:
    """The median time of some runs."""
    return statistics.median(run.seconds for run in runs)


def megabytes(runs: Iterable[Run]) -> float:
    """The most memory that any of some runs had."""
    return max(run.megabytes for run in runs)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; every column but the first is of numbers."""
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def paragraph(text: str) -> str:
    """A text in lines of the report's width; addresses with hyphens stay whole."""
    return textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False, break_long_words=False)


def section(title: str, text: str, *tables: str) -> None:
    """Print a section of the report: what was done, the tables, the day, and the command that measures it again.

    What holds for every run belongs into the text. What tells of one day belongs into docs/benchmarks-notes.md, because
    the next run replaces the section.
    """
    today, script = datetime.now(UTC), os.path.basename(sys.argv[0])
    measured = f"Measured on {today.day} {today:%B %Y} by"
    for part in (f"## {title}", paragraph(text), *tables, measured, f"    python bench/{script}"):
        print(part, end="\n\n")


def rounded(value: float) -> str:
    """A figure with three significant digits and thousands separators."""
    if value >= 100:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def machine() -> str:
    """The machine on which the figures were measured, without its name."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = models[0] if models else platform.machine()
    return (
        f"{psutil.cpu_count()} x {processor}, {psutil.virtual_memory().total / 1e9:.0f} GB of memory, "
        f"{platform.system()} {platform.release().partition('-')[0]}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )
