"""The cost of a decider over HTTP, compared with a policy in the server's process.

python bench/decider.py [--questions N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from time import perf_counter

import measure
from headway.advice.asking import ask
from headway.advice.language import write_question
from headway.core.scheduler import Scheduler
from headway.model.events import JobSubmitted, NodeJoined
from headway.model.instant import SECOND
from headway.model.job import Bag, Rigid
from headway.model.node import NodeSpec
from headway.policies import registry

SLOTS = 64
POLICIES = ("easy", "deadline")
JOBS = (100, 1000)


def crowded(policy: str, jobs: int) -> Scheduler:
    """A core with this many jobs, rigid ones and bags in turn, of which a few run."""
    core = Scheduler(registry.find, policy)
    core.handle(NodeJoined(0, NodeSpec("a", SLOTS)))
    for number in range(jobs):
        size = 1 + number % 7
        terms = (number, 0, (60 + number % 50) * SECOND, number * 60 * SECOND)
        spec = Rigid(*terms, width=size) if number % 2 else Bag(*terms, tasks=size)
        core.handle(JobSubmitted(number, spec))
    return core


def times(url: str, policy: str, jobs: int, questions: int) -> tuple[dict[str, list[float]], int]:
    """The seconds of each part of this many questions, and the bytes of one question."""
    core = crowded(policy, jobs)
    decides = registry.find(policy)
    took: dict[str, list[float]] = {"in process": [], "written": [], "whole": []}
    size = 0

    async def all_of_them() -> None:
        nonlocal size
        for _ in range(questions):
            began = perf_counter()
            core.state.arrived = None
            decides(core.state)
            decided = perf_counter()
            size = len(write_question(core.dump(), policy=policy))
            written = perf_counter()
            await ask(url, core.dump())
            took["in process"].append(decided - began)
            took["written"].append(written - decided)
            took["whole"].append(perf_counter() - written)

    asyncio.run(all_of_them())
    return took, size


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--questions", type=int, default=100)
    given = arguments.parse_args()
    command = [sys.executable, "-m", "headway", "decider", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = json.loads(process.stdout.readline())["url"]
            rows = []
            for policy in POLICIES:
                for jobs in JOBS:
                    took, size = times(url, policy, jobs, given.questions)
                    figures = [
                        f"{1e3 * measure.percentile(took[part], share):.2f}"
                        for part, share in (("in process", 0.5), ("written", 0.5), ("whole", 0.5), ("whole", 0.99))
                    ]
                    rows.append((f"`{policy}`, {jobs:,} jobs", f"{size / 1e3:,.0f}", *figures))
        finally:
            process.terminate()
    measure.section(
        "A question to a decider",
        f"""`headway decider` in a process of its own on this machine is asked about {SLOTS} slots and a number of jobs,
        a few of which run. Times in milliseconds: of the same policy in process; of writing the state down, which is
        all that the server's loop does; of the whole question, until the plan has been read and checked. The size of a
        question is in thousands of bytes.""",
        measure.table(
            ("policy", "size", "in process: median", "written: median", "whole: median", "99 in 100 below"), rows
        ),
    )


if __name__ == "__main__":
    main()
