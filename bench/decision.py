"""What one round costs with 1,000 and with 10,000 waiting jobs.

python bench/decision.py [--events N]
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
from heapq import heappop, heappush
from statistics import fmean as mean
from time import perf_counter

import logs
import measure
from headway.cli.main import is_compiled
from headway.core.scheduler import Scheduler
from headway.model.actions import Launch
from headway.model.events import JobSubmitted, NodeJoined, TaskEnded
from headway.model.node import NodeSpec
from headway.policies import registry
from headway.policies.order import ORDERS
from headway.sim.specs import specs
from headway.sim.timed import TimedPolicy

QUEUES = {
    1_000: ("easy", "easy:order=shortest", "fcfs", "conservative"),
    10_000: (
        "easy",
        *(f"easy:order={order}" for order in list(ORDERS)[1:]),
        "easy:depth=0",
        "easy:depth=10",
        "reasy",
        "fcfs",
    ),
}
"""Policies by how many jobs are queued."""

HEAVY = ("conservative",)
"""Policies of which a hundredth of the events are enough."""


def times(text: str, queued: int, events: int) -> dict[str, list[float]]:
    """The seconds of each round. Before each, this many jobs are waiting.

    Jobs of a log are submitted as fast as others start. The earliest end comes next, so the slots are as full as the
    policy can make them. Rounds that took place while the queue was filled are not counted.
    """
    log = logs.HPC2N
    policy = TimedPolicy(registry.find(text))
    scheduler = Scheduler(lambda _: policy, text)
    workload = logs.workload(log)
    submissions, runtimes = specs(workload), workload.runtime.tolist()
    ends: list[tuple[int, int, int]] = []
    now = 0
    took: dict[str, list[float]] = {"submission": [], "end": [], "policy at a submission": [], "policy at an end": []}

    def feed(event: JobSubmitted | TaskEnded, kind: str) -> None:
        thought, began = policy.seconds, perf_counter()
        actions = scheduler.handle(event)
        seconds = perf_counter() - began
        for action in actions:
            if isinstance(action, Launch):
                heappush(ends, (now + runtimes[action.job], action.job, action.attempt))
        if full:
            took[kind].append(seconds)
            took[f"policy at {'an' if kind == 'end' else 'a'} {kind}"].append(policy.seconds - thought)

    full = False
    scheduler.handle(NodeJoined(now, NodeSpec("all", log.slots)))
    gc.disable()
    while len(took["end"]) < events:
        while len(scheduler.state.waiting) < queued:
            job = next(submissions)
            now = max(now, job.release)
            feed(JobSubmitted(now, job), "submission")
        full = True
        now = max(now, ends[0][0])
        _, job_id, attempt = heappop(ends)
        feed(TaskEnded(now, job_id, 0, attempt), "end")
    gc.enable()
    return took


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--events", type=int, default=20_000)
    events = arguments.parse_args().events
    if not is_compiled():  # as Headway is where it is installed beside a C compiler
        compiled = [measure.COMPILED / "python", *sys.argv]
        raise SystemExit(subprocess.run(compiled, check=False).returncode)
    tables = []
    for queued, policies in QUEUES.items():
        rows = []
        for text in policies:
            took = times(text, queued, events // 100 if text in HEAVY else events)
            for kind, word in (("submission", "a submission"), ("end", "an end")):
                whole, share = took[kind], took[f"policy at {word}"]
                figures = [measure.percentile(whole, 0.5), mean(whole), measure.percentile(whole, 0.99)]
                figures += [measure.percentile(share, 0.5), mean(share)]
                rows.append((f"`{text}`, {word}", *(f"{1e3 * figure:.3f}" for figure in figures)))
        head = (f"{queued:,} queued: policy, event", "median", "mean", "99 in 100 below", "policy: median", "mean")
        tables.append(measure.table(head, rows))
    measure.section(
        "A round with 1,000 and with 10,000 jobs queued",
        f"""`handle(event)` from the event to the actions, and what of it the policy takes, in milliseconds. The jobs of
        {logs.HPC2N.title} on its {logs.HPC2N.slots} slots come as fast as the queue lets them in, so each round
        finds the same number of jobs waiting. With the [compiled core](how-to/compile.md). Wanted for EASY: at most
        0.2 ms with 1,000, 0.3 ms with 10,000, in any order; for `conservative` 1 ms with 1,000.""",
        *tables,
    )


if __name__ == "__main__":
    main()
