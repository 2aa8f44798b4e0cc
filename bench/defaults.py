"""Which policy is the best default: due dates missed, penalty, violated priorities and work redone, side by side.

python bench/defaults.py [--samples N] [--policy POLICY ...] [--live]

With --live one sample also runs on a real server, a minute for each policy. All random choices are seeded. Logs, and
instances with a best known penalty, are looked for as in `logs.py`. A missing log is replaced by a generated one. If
the instances are missing, their table is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, median

import numpy as np

import logs
import measure
from headway.metrics import summarise
from headway.metrics.collect import Metrics
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.workload import Workload
from headway.reproduce import live
from headway.reproduce.samples import WORKERS, Log, open_log
from headway.reproduce.sweep import Row, sweep
from headway.sim.experiment import run
from headway.traces import transforms
from headway.traces.columns import workload_of

POLICIES = (
    *("deadline", "deadline:foresight=false", "edf", "tempo:kill=false", "tempo"),
    *("tempo:floor=false", "tempo:strict=false,redo=0", "tempo:strict=false"),
)
LOADS = (0.6, 1.0, 1.5)
LOG_JOBS = 1000
LOG_LOAD = 0.8
DUE_FACTOR = 4.0
"""Jobs of logs are due so many run times after their release."""
AT_ONCE_SLOTS = 4
AT_ONCE_EVERY = 5
MEASURES = ("missed", "penalty", "violated", "redone")


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samples", type=int, default=6)
    arguments.add_argument("--policy", action="append", help="instead of the usual ones; many times")
    arguments.add_argument("--live", action="store_true", help="also on a real server, a minute a policy")
    given = arguments.parse_args()
    policies = tuple(given.policy or POLICIES)
    log = open_log(logs.SDSC_PARAGON.path if logs.SDSC_PARAGON.path.exists() else None)
    tables = [
        *of_the_sweep(log, policies, given.samples),
        *(of_a_log(known, kind, policies) for known in (logs.CTC, logs.HPC2N) for kind in ("bags", "rigid")),
        of_bags_at_once(policies),
        *([of_a_live_run(log, policies)] if given.live else []),
    ]
    measure.section(
        "Policies to begin with",
        """Missed: share of the due dates. Penalty: priority times seconds of tardiness, summed. Violated: share of the
        jobs, over time, that held no slot while one of lower priority held one. Redone: work of killed tasks, to all
        other work.""",
        *filter(None, tables),
    )


def shares(found: Iterable[tuple[Metrics, float]]) -> tuple[str, str, str, str]:
    """Means of the four measures as text, from the metrics and the slot-seconds of all work."""
    metrics, works = zip(*found, strict=True)
    means = [
        fmean(each[name] for each in metrics)
        for name in ("deadline_miss_rate", "deadline_miss_penalty", "priority_violation_rate", "work_lost")
    ]
    redone = means[3] / fmean(works)
    return f"{means[0]:.1%}", f"{means[1]:,.0f}", f"{means[2]:.2%}", f"{redone:.1%}"


def shown(title: str, found: Iterable[tuple[str, Sequence[str]]], names: Sequence[str] = MEASURES) -> str:
    """A table with a row for each policy."""
    rows = [(f"`{policy}`", *values) for policy, values in found]
    return f"{title}\n\n{measure.table(('policy', *names), rows)}"


def of_the_sweep(log: Log, policies: Sequence[str], samples: int) -> list[str]:
    """Samples as in Lin14 6.3 at several loads, with and without estimates."""
    tables = []
    for estimates in ("known", "learnt"):
        rows = sweep(log, policies, LOADS, samples, heterogeneous=(False,), estimates=estimates)  # type: ignore[arg-type]
        for load in LOADS:
            mine = [row for row in rows if row.load == load]
            title = f"{samples} samples of {log.name} as bags (Lin14 6.3), load {load}, run times {estimates}:"
            tables.append(shown(title, ((policy, shares(_of(mine, policy))) for policy in policies)))
    return tables


def _of(rows: Iterable[Row], policy: str) -> list[tuple[Metrics, float]]:
    return [(row.metrics, _busy(row.metrics) - row.metrics["work_lost"]) for row in rows if row.policy == policy]


def _busy(metrics: Metrics) -> float:
    return metrics["utilisation"] * metrics["makespan"] * WORKERS


def of_a_log(log: logs.Log, kind: str, policies: Sequence[str]) -> str:
    """Jobs from the middle of a log, with generated due dates."""
    whole = logs.workload(log)
    start = min(10_000, len(whole) - LOG_JOBS)
    jobs = transforms.from_zero(whole.take(slice(start, start + LOG_JOBS)))
    jobs = transforms.as_bags(jobs) if kind == "bags" else jobs
    jobs = transforms.due_dates(transforms.priorities_by_user(jobs), factor=DUE_FACTOR)
    jobs = transforms.with_load(jobs, LOG_LOAD, log.slots)
    work = float(transforms.work(jobs).sum())
    nodes = [NodeSpec("n", slots=log.slots)]
    title = (
        f"{LOG_JOBS} jobs of {log.title} as {kind}, load {LOG_LOAD}, due {DUE_FACTOR:g} run times after release, "
        "run times as users estimated them:"
    )
    policies = (*policies, "easy:order=due") if kind == "rigid" else policies
    return shown(title, ((policy, shares([(summarise(run(jobs, nodes, policy)), work)])) for policy in policies))


def of_bags_at_once(policies: Sequence[str]) -> str:
    """The weighted tardiness instances of the OR-Library: 40 bags that are all released at once.

    A job of p seconds on one machine becomes a bag of p tasks; each runs one second for each slot. So the best known
    penalty on one machine is a lower bound here.
    """
    folder = Path(logs.CTC.path).parents[1] / "wt"
    if not (folder / "wt40.txt").exists():
        return ""
    instances = np.array((folder / "wt40.txt").read_text().split(), dtype=int).reshape(-1, 3, 40)
    best = [int(text) for text in (folder / "wtopt40.txt").read_text().split()]
    chosen = range(2, len(instances), AT_ONCE_EVERY)
    found = []
    for policy in policies:
        told = [
            summarise(run(_at_once(*instances[one]), [NodeSpec("n", slots=AT_ONCE_SLOTS)], policy)) for one in chosen
        ]
        penalties = [metrics["deadline_miss_penalty"] for metrics in told]
        ratios = [penalty / best[one] for penalty, one in zip(penalties, chosen, strict=True) if best[one]]
        whole = sum(penalties) / sum(best[one] for one in chosen)
        missed, _, violated, redone = shares((metrics, 1.0) for metrics in told)
        found.append(
            (policy, (missed, f"{whole:.3f}", f"{median(ratios):.3f}", f"{max(ratios):.2f}", violated, redone))
        )
    title = (
        f"{len(chosen)} instances wt40 of 40 bags released at once, {AT_ONCE_SLOTS} slots; penalty to the best known:"
    )
    return shown(title, found, ("missed", "all together", "median", "largest", "violated", "redone"))


def _at_once(times: Sequence[int], weights: Sequence[int], due: Sequence[int]) -> Workload:
    lasts = [AT_ONCE_SLOTS] * len(times)
    return workload_of(
        release=[0] * len(times), tasks=times, runtime=lasts, estimate=lasts, due=due, priority=weights, kind=Kind.BAG
    )


def of_a_live_run(log: Log, policies: Sequence[str]) -> str:
    """One sample on a server with real processes; in brackets the results of its simulation."""
    _, jobs = live.sample(log)
    work = float(transforms.work(jobs).sum())
    found = []
    for twice in live.replayed(log, policies):
        real, simulated = (shares([(metrics, work)]) for metrics in (twice.live, twice.simulated))
        found.append((twice.policy, [f"{one} ({other})" for one, other in zip(real, simulated, strict=True)]))
    title = f"{len(jobs)} jobs of {log.name} live on {live.SLOTS} slots, in brackets simulated:"
    return shown(title, found)


if __name__ == "__main__":
    main()
