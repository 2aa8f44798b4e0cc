"""Batch jobs: how long it takes to find orders, and how much penalty they leave (Chang16).

python bench/batch.py
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import fmean

import numpy as np

import logs
import measure
from headway import NodeSpec, simulate, workload_of
from headway.cli.main import is_compiled
from headway.metrics.collect import summarise
from headway.model.instant import SECOND
from headway.model.workload import Workload
from headway.policies.anneal import annealed
from headway.policies.listing import SlotTimes, ends, penalties, total_penalty
from headway.policies.sequence import SEQUENCES, Load

FIRST = 1_000_000
"""The steps of the first round of `anneal`."""

LONG = 2_000_000
"""The steps of the searches that it is compared with."""

SAMPLES, JOBS, SCALE = 10, 313, 0.001
"""As in the paper: samples of the log, jobs of a sample, and the factor of their times."""

POLICIES = (
    "edf",
    "greedy",
    "greedy:every_task=true",
    "lst",
    "lstr",
    "hprf",
    "wspt",
    "atc",
    "tempo",
    "anneal:first=200000",
)


def main() -> None:
    """Print the section of the report."""
    if not is_compiled():  # as Headway is where it is installed beside a C compiler
        compiled = [measure.COMPILED / "python", *sys.argv]
        raise SystemExit(subprocess.run(compiled, check=False).returncode)
    tables = [
        measure.table(("to find", "milliseconds"), [(what, f"{1e3 * took(do):.1f}") for what, do in tasks()]),
        measure.table(
            ("`anneal`, its first round", "penalty: mean", "at most", "seconds: mean", "at most"),
            [*(single_machine(jobs, best) for jobs, best in BEST.items()), many_slots()],
        ),
    ]
    if logs.SDSC_PARAGON.path.exists():
        tables.append(by_policy())
    measure.section(
        "Batch jobs: orders and their penalty",
        f"""With the [compiled core](how-to/compile.md). First, orders of random bags on 64 slots, and the penalty for
        each number of slots from 0 to 1,000. Wanted: 20 ms for 1,000 jobs, 1 s for 10,000, and 1 s for 300 jobs on all
        numbers of slots. Then what `anneal` leaves after {FIRST:,} steps: of OR-Library's instances with one machine,
        relative to the best known, and of bags on 2 to 64 slots, relative to the best of two searches
        with {LONG:,} steps. Wanted: 1.005 on average with one machine; with many 1.02, at most 1.10; at most 10 s.
        Last, the total penalty on {SAMPLES} samples of {logs.SDSC_PARAGON.title} as in the paper, relative to `edf`:
        {JOBS} consecutive jobs as bags on 64 slots, times multiplied by {SCALE}, due when they ended in the log.""",
        *tables,
    )


def bags(chance: Random, jobs: int, slots: int, tightness: float = 1.0) -> list[Load]:
    """Bags with tasks of lognormal length; due dates are spread over `tightness` times the time of all."""
    loads = [
        Load(
            chance.choice((1, 1, 2, 3, 5, 8, 16, 32)),
            int(min(500.0, chance.lognormvariate(2, 1)) * SECOND) + 1,
            rate=float(chance.randint(1, 100)),
        )
        for _ in range(jobs)
    ]
    span = sum(load.tasks * load.run_time for load in loads) * tightness / slots
    return [Load(load.tasks, load.run_time, int(chance.random() * span), load.rate) for load in loads]


def took(do: Callable[[], object]) -> float:
    """The median seconds of 5 times."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        do()
        times.append(time.perf_counter() - began)
    return measure.percentile(times, 0.5)


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """What is to be found, and how."""
    chance = Random(1)
    for jobs in (1_000, 10_000):
        loads = bags(chance, jobs, 64)
        for order in ("greedy", "atc"):
            yield f"`{order}`, {jobs:,} jobs", lambda order=order, loads=loads: list(SEQUENCES[order](loads, 64, 0))
    loads = bags(chance, 300, 64)
    yield "penalty by number of slots, 300 jobs", lambda: penalties(loads, 1_000, SEQUENCES["greedy"])


BEST = {40: "wtopt40.txt", 100: "wtbest100b.txt"}


def single_machine(jobs: int, best: str) -> Sequence[str]:
    """How close `anneal` comes to the best known of OR-Library's instances."""
    folder = Path(logs.SDSC_PARAGON.path).parents[1] / "wt"
    if not folder.exists():
        return f"{jobs} jobs, OR-Library (absent)", "", "", "", ""
    numbers = [int(word) for word in (folder / f"wt{jobs}.txt").read_text().split()]
    known = [int(word) for word in (folder / best).read_text().split()]
    ratios, seconds = [], []
    for instance in range(len(known)):
        run, rate, due = (numbers[(3 * instance + row) * jobs :][:jobs] for row in range(3))
        loads = [Load(1, p * SECOND, d * SECOND, float(w)) for p, w, d in zip(run, rate, due, strict=True)]
        began = time.perf_counter()
        found = round(cost(loads, SlotTimes([(0, 1)]), FIRST, 0))
        seconds.append(time.perf_counter() - began)
        ratios.append(found / known[instance] if known[instance] else 1.0 + found)
    return spread(f"{jobs} jobs, one machine", ratios, seconds)


def many_slots() -> Sequence[str]:
    """The same of bags on many slots."""
    ratios, seconds = [], []
    for seed, (jobs, slots) in enumerate([(20, 2), (50, 4), (50, 16), (100, 8), (100, 64), (200, 16)] * 2):
        loads, free = bags(Random(seed), jobs, slots, 0.8 + 0.4 * (seed % 3)), SlotTimes([(0, slots)])
        began = time.perf_counter()
        found = cost(loads, free, FIRST, 0)
        seconds.append(time.perf_counter() - began)
        best = min(found, *(cost(loads, free, LONG, other) for other in (1, 2)))
        ratios.append(found / best if best else 1.0 + found)
    return spread("20 to 200 bags, 2 to 64 slots", ratios, seconds)


def cost(loads: Sequence[Load], free: SlotTimes, steps: int, seed: int) -> float:
    """The penalty that is left."""
    return total_penalty(loads, ends(loads, annealed(loads, free, steps, seed), free.copy()))


def spread(what: str, ratios: Sequence[float], seconds: Sequence[float]) -> Sequence[str]:
    """A row of the table."""
    return what, f"{fmean(ratios):.4f}", f"{max(ratios):.4f}", f"{fmean(seconds):.2f}", f"{max(seconds):.2f}"


def by_policy() -> str:
    """The penalties of the paper's second experiment."""
    with gzip.open(logs.SDSC_PARAGON.path, "rt") as lines:
        fields = [line.split() for line in lines if line.strip() and not line.startswith(";")]
    every = np.array([[float(row[1]), max(0.0, float(row[2])), float(row[3]), float(row[4])] for row in fields])
    every = every[(every[:, 2] > 0) & (every[:, 3] > 0)]
    rows = []
    columns = [(rates, arrival) for rates in ("equal", "random") for arrival in ("logged", "start")]
    found = {column: [samples(every, *column, policy) for policy in POLICIES] for column in columns}
    for place, policy in enumerate(POLICIES):
        rows.append((f"`{policy}`", *(f"{found[column][place] / found[column][0]:.3f}" for column in columns)))
    head = [
        f"{rates} rates, {'as logged' if arrival == 'logged' else 'all at the start'}" for rates, arrival in columns
    ]
    return measure.table(("policy", *head), rows)


def samples(every: np.ndarray, rates: str, arrival: str, policy: str) -> float:
    """The mean penalty over the samples."""
    nodes = [NodeSpec(f"n{number}", slots=16) for number in range(4)]
    return fmean(
        summarise(simulate(sample(every, seed, rates, arrival), nodes, policy))["total_penalty"]
        for seed in range(SAMPLES)
    )


def sample(every: np.ndarray, seed: int, rates: str, arrival: str) -> Workload:
    """One sample of the log; a job waits, runs and ends on its clock, which begins with the sample."""
    chance = np.random.default_rng(seed)
    begin = chance.integers(0, len(every) - JOBS)
    submitted, waited, ran, processors = every[begin : begin + JOBS].T
    submitted = submitted - submitted[0]
    return workload_of(
        release=submitted * SCALE if arrival == "logged" else np.zeros(JOBS),
        tasks=processors.astype(int),
        runtime=ran * SCALE,
        estimate=ran * SCALE,
        due=(submitted + waited + ran) * SCALE,
        rate=chance.integers(1, 1001, JOBS).astype(float) if rates == "random" else 1.0,
    )


if __name__ == "__main__":
    main()
