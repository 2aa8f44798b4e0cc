"""What the experiments of Chang16 run: samples of SDSC-Par96 whose jobs are due when they ended in the log."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np

from headway.errors import HeadwayError
from headway.model.instant import SECOND
from headway.model.node import NodeSpec
from headway.model.workload import IntArray, Workload
from headway.reproduce.samples import LOG
from headway.reproduce.standin import standin
from headway.sim.experiment import run
from headway.traces import read_workload, transforms
from headway.traces.files import reading

JOBS: Final = 313
"""Consecutive jobs of a sample."""

SCALE: Final = 0.001
"""The factor on all times of the log."""

RATE_MAX: Final = 1000
"""Random penalty rates are whole numbers from 1 to this."""

MACHINES: Final = 4
PER_MACHINE: Final = 16
"""Processing units of one machine."""

PARAGON: Final = 400
"""Processors of the machine of the log; the stand-in gets its completions on as many."""

Rates = Literal["equal", "random"]
Arrival = Literal["logged", "start"]

ARRIVALS: Final[dict[Arrival, str]] = {"logged": "as logged", "start": "all at the start"}
"""When the jobs of a sample come. The paper says that all are there at the start for its first experiment only."""


@dataclass(frozen=True, slots=True)
class Log:
    """A log to take samples of.

    Attributes:
        workload: bags, a task for each processor; each is due when it ended in the log.
        name: what to call it.
        is_standin: whether it is generated.
    """

    workload: Workload
    name: str
    is_standin: bool


def open_log(folder: str | Path | None = None) -> Log:
    """The paper's log in a folder that holds `swf/`; without a folder, in the one that `HEADWAY_DATA` names.

    If the log is not in `HEADWAY_DATA`, a generated one takes its place.

    Raises:
        InvalidInput: the content is wrong.
        HeadwayError: a folder is given, and there is no log in it.
    """
    found = folder or os.environ.get("HEADWAY_DATA")
    path = None if not found else Path(found) / LOG
    if path is None or not path.is_file():
        if folder:
            raise HeadwayError(
                f"there is no {path}", "Set HEADWAY_DATA, or give --data, to the folder that holds swf/."
            )
        return Log(completed_standin(), "made-up stand-in for SDSC-Par96", is_standin=True)
    jobs = read_workload(path, as_kind="bags")
    return Log(_due(jobs, jobs.release + _waits(path, jobs) + jobs.runtime), path.name, is_standin=False)


def completed_standin() -> Workload:
    """The generated log, its jobs completed as EASY does it on a machine of the log's size."""
    made = standin()
    schedule = run(made, [NodeSpec("machine", PARAGON)], "easy")
    return _due(transforms.as_bags(made), schedule.end)


def _waits(path: Path, jobs: Workload) -> IntArray:
    """How long each job waited, in microseconds; a wait that is not known counts as 0."""
    with reading(path, "latin-1") as text:
        label, wait = np.loadtxt(text, comments=";", usecols=(0, 2), ndmin=2, unpack=True)
    known = dict(zip(label.astype(np.int64).tolist(), np.rint(wait * SECOND).astype(np.int64).tolist(), strict=True))
    return np.array([max(0, known[job]) for job in jobs.label.tolist()], dtype=np.int64)


def _due(jobs: Workload, completion: IntArray) -> Workload:
    """The jobs that have work, due at their completion."""
    return replace(jobs, due=completion).take(np.flatnonzero(jobs.runtime > 0))


def draw(log: Log, seed: int, rates: Rates, arrival: Arrival) -> Workload:
    """One sample: consecutive jobs from a random start, on a clock that is 0 at the first submission.

    reading: a job is due when it ended in the log, counted from the first submission, also if all jobs are there at the
    start.

    Args:
        seed: fixes where the sample starts, and its rates, >= 0.
    """
    chance = np.random.default_rng(seed)
    begin = int(chance.integers(0, len(log.workload) - JOBS + 1))
    jobs = transforms.from_zero(log.workload.take(slice(begin, begin + JOBS)))
    jobs = transforms.scale_times(jobs, SCALE)
    if rates == "random":
        jobs = replace(jobs, rate=chance.integers(1, RATE_MAX + 1, JOBS).astype(np.float64))
    return jobs if arrival == "logged" else replace(jobs, release=np.zeros_like(jobs.release))


def cluster() -> tuple[NodeSpec, ...]:
    """The machines of the paper: 64 processing units."""
    return tuple(NodeSpec(f"machine-{number}", PER_MACHINE) for number in range(1, MACHINES + 1))
