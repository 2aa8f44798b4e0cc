"""A generated log that replaces SDSC-Par96 if that is missing: the same main statistics, but none of its jobs."""

from __future__ import annotations

from typing import Final

import numpy as np

from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.workload import FloatArray, IntArray, Workload, workload_us

JOBS: Final = 32_000
USERS: Final = 60
GAP_SECONDS: Final = 1_000
"""Mean time between two submissions."""
RUN_SECONDS_MAX: Final = 450_000
WIDTHS: Final = {1: 8, 2: 8, 4: 18, 8: 20, 16: 19, 32: 8, 64: 11, 128: 2, 256: 0.1}
"""Widths that are powers of two, and the share of each in percent. The rest of the jobs has any width up to 32."""
LONG: Final = (0.10, 0.05, 0.20, 0.20, 0.55, 0.30, 0.60, 0.90, 0.10)
"""Share of sessions with long jobs, for each width in `WIDTHS`. Wide jobs are mostly long."""
SESSION: Final = 3.0
"""Mean number of jobs in a session: one user submits them in a row, with one width and similar run times."""
HOURS: Final = 0.45
"""By which share of its mean the rate of jobs varies over a day."""


def standin(seed: int = 0) -> Workload:
    """A log of 32,000 rigid jobs within a year, on 256 processors at most; its notes say that it is made up.

    As in SDSC-Par96:

    - Half of the jobs run a few minutes at most, and some run for days.
    - Widths are mostly powers of two.
    - There are 60 users; two of them submit 40 % of the jobs. Jobs that a user submits in a row are alike.
    - Gaps have a long tail, and days differ from nights.

    Estimates are the run times.

    Args:
        seed: fixes the log, >= 0.
    """
    chance = np.random.default_rng(seed)
    session = np.cumsum(chance.random(JOBS) < 1 / SESSION)
    sessions = int(session[-1]) + 1

    users = chance.choice(USERS, sessions, p=_zipf(USERS, 1.2)) + 1
    shares = np.array([*WIDTHS.values()]) / 100
    column = chance.choice(len(shares) + 1, sessions, p=[*shares, 1 - shares.sum()])
    odd = column == len(shares)
    width = np.where(odd, chance.integers(3, 33, sessions), np.array([*WIDTHS, 0])[column])
    long = chance.random(sessions) < np.array([*LONG, 0.2])[column]
    typical = np.where(long, chance.lognormal(9.85, 0.6, sessions), chance.lognormal(3.6, 1.5, sessions))
    runtime = np.clip(typical[session] * chance.lognormal(0, 0.7, JOBS), 1, RUN_SECONDS_MAX)

    gaps = chance.weibull(0.5, JOBS)
    hours = np.cumsum(gaps) * GAP_SECONDS / gaps.mean() / 3600
    release = hours + HOURS * 24 / (2 * np.pi) * np.sin(2 * np.pi * hours / 24)
    return workload_us(
        release=_microseconds((release - release[0]) * 3600),
        runtime=_microseconds(runtime),
        estimate=_microseconds(runtime),
        width=width[session],
        user=users[session].astype(str),
        kind=int(Kind.RIGID),
        label=np.arange(1, JOBS + 1),
        notes=(
            f"These jobs are made up from seed {seed}, with the main statistics of SDSC-Par96; none is of that log.",
        ),
    )


def _zipf(values: int, exponent: float) -> FloatArray:
    weights = np.arange(1, values + 1, dtype=np.float64) ** -exponent
    shares: FloatArray = weights / weights.sum()
    return shares


def _microseconds(seconds: FloatArray) -> IntArray:
    whole: IntArray = np.rint(seconds).astype(np.int64) * SECOND
    return whole
