"""What one decision costs with 1,000 jobs queued.

python bench/decision.py [--queued N] [--events N]
"""

from __future__ import annotations

import argparse
import gc
from heapq import heappop, heappush
from time import perf_counter

import logs
import measure
from headway.core.scheduler import Scheduler
from headway.model.actions import Launch
from headway.model.events import JobSubmitted, NodeJoined, TaskEnded
from headway.model.node import NodeSpec
from headway.policies import registry
from headway.sim.kernel import TimedPolicy, specs

LIGHT = ("easy", "easy:order=shortest", "fcfs")
POLICIES = (*LIGHT, "conservative")


def times(text: str, queued: int, events: int) -> dict[str, list[float]]:
    """Seconds of each decision, with as many jobs queued before each of them.

    The jobs are those of a log, fed as fast as they leave the queue; the earliest end comes next, so the slots are as
    full as the policy can make them. Jobs that came while the queue was filled are not counted.
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
    arguments.add_argument("--queued", type=int, default=1000)
    arguments.add_argument("--events", type=int, default=20_000)
    given = arguments.parse_args()
    rows = []
    for text in POLICIES:
        took = times(text, given.queued, given.events if text in LIGHT else given.events // 100)
        for kind, word in (("submission", "a submission"), ("end", "an end")):
            whole, share = took[kind], took[f"policy at {word}"]
            figures = [measure.percentile(values, part) for values in (whole, share) for part in (0.5, 0.99)]
            rows.append((f"`{text}`, {word}", *(f"{1e3 * figure:.3f}" for figure in figures)))
    measure.section(
        f"A decision with {given.queued:,} jobs queued",
        f"""`handle(event)` from the event to the actions, and what of it the policy takes, in milliseconds. The jobs of
        {logs.HPC2N.title} on its {logs.HPC2N.slots} slots come as fast as the queue lets them in, so each decision
        finds the same number of jobs waiting. Wanted for EASY: at most 0.2 ms.""",
        measure.table(("policy, event", "median", "99 in 100 below", "policy: median", "99 in 100 below"), rows),
    )


if __name__ == "__main__":
    main()
