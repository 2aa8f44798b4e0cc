"""EASY backfilling as in a textbook: a loop over ends and submissions, in plain Python, and nothing else.

It has no core, no state that anything else could read, no bit sets, and no policies to choose from. This is what
is left of a simulator for one algorithm and one kind of job. It follows the same rules as
`headway simulate --policy easy` (the queue by release, then number; ends before submissions; a full pass after each)
and gives the same starts. So the difference in time is the price of everything else.

    python bench/textbook.py LOG SLOTS [--first N] [--schedule OUT.csv]
"""

from __future__ import annotations

import argparse
import gzip
import json
from bisect import insort
from heapq import heappop, heappush
from time import process_time

Job = tuple[float, int, int, float, float]
"""Release, number, width, run time, estimate; in seconds."""


def read(path: str, slots: int) -> list[Job]:
    """The jobs of a log in order of (release, number), cleaned as Headway cleans them."""
    jobs = []
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="latin-1") as lines:
        for line in lines:
            if line.startswith(";"):
                continue
            fields = line.split()
            width = int(fields[7]) if int(fields[7]) > 0 else int(fields[4])
            runtime = float(fields[3])
            if runtime < 0 or not 0 < width <= slots:
                continue
            asked = float(fields[8])
            estimate = asked if asked > 0 else runtime
            jobs.append((float(fields[1]), int(fields[0]), width, min(runtime, estimate), estimate))
    jobs.sort()
    return jobs


def easy(jobs: list[Job], slots: int) -> list[float]:
    """When each job starts, in the order of the jobs."""
    starts = [-1.0] * len(jobs)
    ends: list[tuple[float, int]] = []  # a heap of (end, job)
    running: list[tuple[float, int, int]] = []  # (end by estimate, job, width), soonest first
    queue: list[int] = []
    free, submitted = slots, 0

    def start(job: int) -> None:
        nonlocal free
        _, _, width, runtime, estimate = jobs[job]
        starts[job] = now
        free -= width
        heappush(ends, (now + runtime, job))
        insort(running, (now + estimate, job, width))

    while ends or submitted < len(jobs):
        if ends and (submitted == len(jobs) or ends[0][0] <= jobs[submitted][0]):
            now, ended = heappop(ends)
            _, _, width, _, estimate = jobs[ended]
            free += width
            running.remove((starts[ended] + estimate, ended, width))
        else:
            now = jobs[submitted][0]
            queue.append(submitted)
            submitted += 1
        while queue and jobs[queue[0]][2] <= free:
            start(queue.pop(0))
        if not queue or not free:
            continue
        needed, available = jobs[queue[0]][2], free
        shadow = now
        for end, _, width in running:
            if available >= needed and end > shadow:
                break
            shadow = end
            available += width
        extra = available - needed
        for job in queue[1:]:
            _, _, width, _, estimate = jobs[job]
            if width <= free and (now + estimate <= shadow or width <= extra):
                if now + estimate > shadow:
                    extra -= width
                queue.remove(job)
                start(job)
    return starts


def main() -> None:
    """Run a log and print how long reading and the loop took, in seconds of processor time, as JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("log")
    arguments.add_argument("slots", type=int)
    arguments.add_argument("--first", type=int)
    arguments.add_argument("--schedule", help="write job,start here")
    given = arguments.parse_args()
    began = process_time()
    jobs = read(given.log, given.slots)[: given.first]
    read_by = process_time()
    starts = easy(jobs, given.slots)
    print(json.dumps({"jobs": len(jobs), "read": read_by - began, "loop": process_time() - read_by}))
    if given.schedule:
        with open(given.schedule, "w", encoding="ascii") as out:
            out.write("job,start\n")
            out.writelines(f"{job[1]},{start}\n" for job, start in zip(jobs, starts, strict=True))


if __name__ == "__main__":
    main()
