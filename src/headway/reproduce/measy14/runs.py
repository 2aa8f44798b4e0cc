"""The simulations behind the figures of MEASY14: what determines each, and how they are run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np

from headway.errors import HeadwayError, InvalidInput
from headway.metrics.batches import Interval, interval, means_of_batches
from headway.metrics.collect import stays
from headway.model.actions import JobStatus
from headway.model.node import NodeSpec
from headway.model.workload import Workload
from headway.reproduce.processes import done
from headway.sim.experiment import run
from headway.sim.world import World
from headway.traces import read_workload, transforms
from headway.workloads.measy14 import FW_JOBS, JW_JOBS, PROCESSORS, fwload, jwload

JOBS: Final = {"FWload": FW_JOBS, "JWload": JW_JOBS}
"""The workload models, and the number of jobs of each in the paper."""

LOGS: Final = {
    "CTC": ("CTC-SP2-1996-3.1-cln.swf.gz", 338),
    "SDSC-SP2": ("SDSC-SP2-1998-4.2-cln.swf.gz", 128),
    "SDSC-BLUE": ("SDSC-BLUE-2000-4.2-cln.swf.gz", 1152),
    "HPC2N": ("HPC2N-2002-2.2-cln.swf.gz", 240),
}
"""Logs of real machines by name: the file below `swf`, and the processors of the machine."""

POLICIES: Final = ("easy", "keasy", "reasy", "measy")
LOADS: Final = (0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
COST: Final = 20.0
"""Seconds that a migration takes by default (MEASY14 3)."""

JOBS_LEAST: Final = 400
"""The fewest jobs that a share may leave: estimates are drawn for 200 or more."""

Measure = Literal["response", "slowdown"]
Use = Literal["told", "untold", "full"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What determines a run, besides the seed and the share of the jobs.

    Attributes:
        source: a key of `JOBS` or `LOGS`.
        load: the load to which gaps are scaled; None: the gaps are those of the log.
        policy: one of `POLICIES`.
        use: whether the scheduler knows the CPU use of processes or not, or every process uses a whole processor.
        cost: seconds that a migration takes.
    """

    source: str
    load: float | None
    policy: str
    use: Use = "told"
    cost: float = COST

    @property
    def plain(self) -> Setting:
        """The setting without what does not matter to its policy, so that equal runs are run once."""
        if self.policy == "easy":
            return Setting(self.source, self.load, self.policy)
        return self if self.policy == "measy" else replace(self, cost=COST)


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a setting.

    Attributes:
        setting: the setting.
        jobs: how many there were.
        response, slowdown: means of batches of jobs, in seconds and as ratios without unit. All settings of a source
            have the same jobs in each batch, so they can be compared batch by batch.
        migrations, kills: how many there were.
        utilisation: slot time in which jobs were in the foreground, divided by all slot time.
        lost: the share of that time whose work was lost.
        seconds: how long the simulation took.
    """

    setting: Setting
    jobs: int
    response: tuple[float, ...]
    slowdown: tuple[float, ...]
    migrations: int
    kills: int
    utilisation: float
    lost: float
    seconds: float

    def mean(self, measure: Measure) -> Interval:
        """The mean of a measure with its confidence interval."""
        return interval(np.array(getattr(self, measure)))

    def gain(self, other: Run, measure: Measure) -> Interval:
        """By which share this mean is smaller than the other, with its interval; below 0 if it is greater.

        Both are compared batch by batch, because the batches have the same jobs.
        """
        mine, others = np.array(getattr(self, measure)), np.array(getattr(other, measure))
        return interval(others - mine).times(1 / float(others.mean()))


Progress = Callable[[int, int], None]
"""Called with the number of runs that have ended, and of all runs."""


class _Work(NamedTuple):
    setting: Setting
    seed: int
    share: float
    folder: Path | None


def data_folder(path: str | Path | None = None, *, needed: bool = False) -> Path | None:
    """The folder with the logs: the one given, or else the one that `HEADWAY_DATA` names.

    Returns:
        None if neither is set, or if the folder of `HEADWAY_DATA` lacks a log.

    Raises:
        HeadwayError: the given folder lacks a log; or no folder with the logs is found although they are `needed`.
    """
    folder = path or os.environ.get("HEADWAY_DATA")
    absent = [Path(folder or "") / "swf" / file for file, _ in LOGS.values()]
    absent = [log for log in absent if not folder or not log.is_file()]
    if absent and (path or needed):
        raise HeadwayError(
            f"there is no {absent[0]}", "Set HEADWAY_DATA, or give --data, to the folder that holds swf/."
        )
    return None if absent or not folder else Path(folder)


def perform(
    settings: Iterable[Setting],
    *,
    seed: int = 0,
    share: float = 1.0,
    folder: Path | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
) -> dict[Setting, Run]:
    """Run every setting once, however often it is named. Settings with the same `plain` setting share one run.

    Args:
        seed: of the workload models and the performance model, >= 0. All settings of a source get the same jobs.
        share: of the jobs of each source, in (0, 1]; 1 is the size of the paper.
        folder: the folder with the logs, as from `data_folder`; needed if a setting names a log.
        processes: how many at once; default one for each core.
        progress: called after each run.

    Raises:
        InvalidInput: `share` is not in (0, 1] or leaves too few jobs.
        HeadwayError: a log cannot be read, or a job never ended.
    """
    wanted = dict.fromkeys(settings)
    plain = sorted(dict.fromkeys(setting.plain for setting in wanted), key=_order)
    for source in {setting.source for setting in plain} & set(JOBS):
        if not JOBS_LEAST <= share * JOBS[source] <= JOBS[source]:
            least = max(JOBS_LEAST / jobs for jobs in JOBS.values())
            raise InvalidInput("scale", share, f"a share of the jobs from {least:g} to 1")
    found: dict[Setting, Run] = {}
    for place, ran in done(_run, [_Work(setting, seed, share, folder) for setting in plain], processes):
        found[plain[place]] = ran
        if progress is not None:
            progress(len(found), len(plain))
    return {setting: found[setting.plain] for setting in wanted}


def _order(setting: Setting) -> tuple[object, ...]:
    """A sort key: one source after the other, because a process keeps its jobs; within a source, long runs first."""
    sources = ("FWload", "SDSC-BLUE", "HPC2N", "JWload", "CTC", "SDSC-SP2")
    policy = -POLICIES.index(setting.policy)
    return sources.index(setting.source), policy, -(setting.load or 0.0), setting.use, setting.cost


def _run(work: _Work) -> Run:
    setting = work.setting
    jobs, processors = _jobs(setting.source, work.seed, work.share, work.folder)
    if setting.load is not None:
        jobs = transforms.with_load(jobs, setting.load, processors)
    if setting.use == "full":
        jobs = replace(jobs, cpu=np.ones(len(jobs)), uses={})
    world = World(
        seed=work.seed,
        migration_cost=setting.cost,
        cpu="unknown" if setting.use == "untold" else "given",
    )
    begin = time.perf_counter()
    schedule = run(jobs, [NodeSpec("machine", processors)], setting.policy, world=world)
    seconds = time.perf_counter() - begin
    never = int((~schedule.has(JobStatus.SUCCEEDED)).sum())
    if never:
        raise HeadwayError(f"{never} jobs of {len(schedule)} did not succeed: {setting}")
    response, slowdown = (
        tuple(means_of_batches(stays(schedule)[name]).tolist()) for name in ("response", "bounded_slowdown")
    )
    return Run(
        setting,
        len(jobs),
        response,
        slowdown,
        schedule.migrations,
        schedule.kills,
        schedule.busy / schedule.offered,
        schedule.lost / schedule.busy,
        seconds,
    )


@lru_cache(maxsize=1)
def _jobs(source: str, seed: int, share: float, folder: Path | None) -> tuple[Workload, int]:
    """The jobs of a source and the processors they run on. They are cached, because many settings need them."""
    if source in JOBS:
        model = {"FWload": fwload, "JWload": jwload}[source]
        return model(seed, round(share * JOBS[source])), PROCESSORS
    if folder is None:
        raise HeadwayError(f"the log {source} is not there", "Name the folder that holds swf/ by HEADWAY_DATA.")
    file, processors = LOGS[source]
    log = read_workload(folder / "swf" / file, machine=processors, as_kind="rigid")
    return transforms.first(log, round(share * len(log))), processors
