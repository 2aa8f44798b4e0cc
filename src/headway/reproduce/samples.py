"""What the trace-based experiments of Lin14 run: a log or its stand-in, samples of it, clusters of 20 workers."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np

from headway.model.node import NodeSpec
from headway.model.workload import Workload
from headway.reproduce.standin import standin
from headway.traces import read_workload, transforms

LOG: Final = Path("swf") / "SDSC-Par-1996-3.1-cln.swf.gz"
"""Path of the thesis's log below the folder that `HEADWAY_DATA` names."""

WORKERS: Final = 20
PER_MACHINE: Final = 2
"""Workers on one machine (Lin14 6.1)."""
SPEED_STEPS: Final = (0.0, 0.25, 0.5)
"""Machines come in pairs of speeds 1 + x and 1 - x, where x is one of these. So the total speed does not change."""

Estimates = Literal["known", "learnt"]


@dataclass(frozen=True, slots=True)
class Log:
    """A log to take samples of.

    Attributes:
        workload: rigid jobs.
        name: what to call it.
        is_standin: whether it is generated.
    """

    workload: Workload
    name: str
    is_standin: bool


def open_log(path: str | Path | None = None) -> Log:
    """The log at `path`. Without one, the thesis's log if `HEADWAY_DATA` has it, or else the generated stand-in.

    Raises:
        InvalidInput: the content is wrong.
        HeadwayError: a path is given, and the file cannot be read.
    """
    if path is None:
        folder = os.environ.get("HEADWAY_DATA")
        path = Path(folder) / LOG if folder else None
        if path is None or not path.exists():
            return Log(standin(), "made-up stand-in for SDSC-Par96", is_standin=True)
    return Log(read_workload(path, as_kind="rigid"), Path(path).name, is_standin=False)


def draw(log: Log, seed: int, *, estimates: Estimates = "known") -> Workload:
    """One sample by the recipe of Lin14 6.3.

    Args:
        seed: fixes where the sample starts, >= 0.
        estimates: "known": the estimate is the run time of the job's tasks; "learnt": the estimate starts from the
            default and is corrected by what is observed.
    """
    drawn = transforms.lin14(log.workload, seed=seed)
    return drawn if estimates == "known" else replace(drawn, estimate=np.full_like(drawn.estimate, -1))


def cluster(seed: int | None = None) -> tuple[NodeSpec, ...]:
    """Twenty workers, two on a machine; all alike, or of speeds drawn from a seed.

    reading: the thesis does not give its speeds. Each pair of machines gets the speeds 1 + x and 1 - x with x drawn
    from 0, 0.25 and 0.5, so that the mean is 1 and a load means the same on both clusters.

    >>> sum(node.slots * node.speed for node in cluster(seed=3))
    20.0
    """
    machines = WORKERS // PER_MACHINE
    if seed is None:
        speeds = [1.0] * machines
    else:
        away = np.random.default_rng(seed).choice(SPEED_STEPS, machines // 2)
        speeds = [*(1 + away).tolist(), *(1 - away).tolist()]
    return tuple(NodeSpec(f"machine-{number}", PER_MACHINE, speed) for number, speed in enumerate(speeds, 1))
