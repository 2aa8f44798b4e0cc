"""The logs for the figures: public ones if they are there, else generated ones of the same size.

Public logs are looked for in the folder that $HEADWAY_DATA names, or else in `../shared/data` beside the project.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.workload import Workload, workload_us
from headway.traces import read_workload, write_workload
from headway.traces.transforms import first, with_load


@dataclass(frozen=True)
class Log:
    """A public log.

    Attributes:
        name, file: its name, and its file below the folder of data.
        slots: the size of its machine.
        jobs: how many jobs of it can be run again.
        load: work divided by capacity.
    """

    name: str
    file: str
    slots: int
    jobs: int
    load: float

    @property
    def path(self) -> Path:
        """The path where it should be."""
        folder = os.environ.get("HEADWAY_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
        return Path(folder) / self.file

    @property
    def title(self) -> str:
        """Its name, with a remark if a generated log replaces it."""
        return self.name if self.path.exists() else f"{self.name} (made: the log is absent)"


HPC2N = Log("HPC2N", "swf/HPC2N-2002-2.2-cln.swf.gz", slots=240, jobs=202_871, load=0.60)
SDSC_SP2 = Log("SDSC-SP2", "swf/SDSC-SP2-1998-4.2-cln.swf.gz", slots=128, jobs=54_044, load=0.83)
CTC = Log("CTC", "swf/CTC-SP2-1996-3.1-cln.swf.gz", slots=338, jobs=77_222, load=0.84)
SDSC_PARAGON = Log("SDSC-Par", "swf/SDSC-Par-1996-3.1-cln.swf.gz", slots=400, jobs=32_135, load=0.75)
EVERY = (
    CTC,
    HPC2N,
    Log("LANL-CM5", "swf/LANL-CM5-1994-4.1-cln.swf.gz", slots=1_024, jobs=122_057, load=0.54),
    Log("LLNL-Atlas", "swf/LLNL-Atlas-2006-2.1-cln.swf.gz", slots=9_216, jobs=39_207, load=0.70),
    Log("LPC-EGEE", "swf/LPC-EGEE-2004-1.2-cln.swf.gz", slots=140, jobs=220_695, load=0.24),
    Log("Lublin-256", "swf/lublin_256.swf.gz", slots=256, jobs=10_000, load=1.06),
    Log("NASA-iPSC", "swf/NASA-iPSC-1993-3.1-cln.swf.gz", slots=128, jobs=18_239, load=0.47),
    Log("SDSC-BLUE", "swf/SDSC-BLUE-2000-4.2-cln.swf.gz", slots=1_152, jobs=232_562, load=0.77),
    SDSC_PARAGON,
    SDSC_SP2,
)
"""All of them; the synthetic one is from the model of Lublin and Feitelson."""


def workload(log: Log) -> Workload:
    """The jobs of a log, or of a generated one in its place."""
    return read_workload(log.path, machine=log.slots) if log.path.exists() else made(log)


def made(log: Log) -> Workload:
    """A workload of the size and load of a log, always the same.

    Run times and gaps are lognormal, widths mostly powers of two up to the machine's, estimates a few times too long.
    """
    chance, jobs = np.random.default_rng(log.jobs), log.jobs
    exponent = chance.beta(1, 3, jobs) * np.log2(log.slots)
    exponent = np.where(chance.random(jobs) < 0.7, np.rint(exponent), exponent)
    width = np.clip(2**exponent, 1, log.slots).astype(np.int64)
    runtime = np.rint(np.clip(chance.lognormal(6.5, 2.2, jobs), 1, 200_000)).astype(np.int64)
    estimate = np.rint(runtime * chance.choice((1, 1.5, 3, 10), jobs) / 60 + 1).astype(np.int64) * 60
    release = np.rint(np.cumsum(chance.lognormal(4, 1.8, jobs))).astype(np.int64)
    plain = workload_us(
        label=np.arange(1, jobs + 1),
        release=release * SECOND,
        width=width,
        runtime=runtime * SECOND,
        estimate=estimate * SECOND,
        user=np.array([str(user) for user in chance.zipf(1.6, jobs) % 300], dtype=object),
        kind=Kind.RIGID,
    )
    loaded = with_load(plain, log.load, log.slots)
    return replace(loaded, release=loaded.release // SECOND * SECOND)


def pieces(wanted: Iterable[tuple[Log, int]], folder: Path) -> list[Path]:
    """Write files to a folder, each with the first jobs of a log, in plain Standard Workload Format.

    Another process writes them, because the peak memory of a process counts for every command that it runs.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        return list(apart.map(_piece, wanted, repeat(folder)))


def _piece(wanted: tuple[Log, int], folder: Path) -> Path:
    log, jobs = wanted
    path = folder / f"{log.name}-{jobs}.swf"
    write_workload(first(repeated(workload(log), jobs), jobs), path)
    return path


def repeated(whole: Workload, jobs: int) -> Workload:
    """A workload of at least this many jobs. If it has fewer, it is repeated."""
    times = -(-jobs // len(whole))
    if times == 1:
        return whole
    rows = np.tile(np.arange(len(whole)), times)
    span = int(whole.release[-1] - whole.release[0]) + SECOND
    later = np.repeat(np.arange(times), len(whole)) * span
    many = whole.take(rows)
    return replace(many, label=np.arange(1, len(many) + 1), release=many.release + later)
