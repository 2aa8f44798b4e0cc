"""Measure one server over many nodes: 64 workers of Dask, 4 and 400 nodes of Slurm, and 10,000 that are off.

    python bench/crowd.py [--tasks N] [--only dask|allocations|few|slurm|cloud]

All of them are on this machine: the workers are in one process, and each has an agent with a slot; each node of the 400
has a slurmd. Of the 10,000 none is ever started: what is measured is what it costs to know so many.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.dask_site import Processes
from tests.slurm import Cluster, lacking

import live
import measure
from headway import Client, Job, Task
from headway.live.store import redeciding
from headway.model.plan import Plan
from headway.model.snapshot import Snapshot
from headway.policies.registry import find

WORKERS = 64
SLURMDS = 400
CLOUD = 10_000

MANY = "MessageTimeout=20\nSlurmdTimeout=60\nTreeWidth=64\nMaxNodeCount=12000"

IN_A_CLOUD = f"""{MANY}
PrivateData=cloud
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=1000000
ResumeTimeout=600
NodeName=e[1-{CLOUD}] NodeAddr=127.0.0.1 CPUs=4 RealMemory=8000 State=CLOUD"""


def nothing() -> None:
    """A task that does nothing."""


@contextmanager
def serving(folder: Path, site: Mapping[str, str]) -> Iterator[tuple[Client, psutil.Process]]:
    """A server with this site alone."""
    file = folder / "sites.toml"
    file.write_text("[[site]]\n" + "".join(f'{key} = "{value}"\n' for key, value in site.items()))
    words = ["up", "--cluster", file, "--data", folder / "data", "--json"]
    with live.started(folder, measure.headway(*words)) as (client, pid):
        yield client, psutil.Process(pid)


def delays(data: Path) -> str:
    """The bound, in ms, that the event loop's delay keeps in 99 of 100 looks."""
    url, token = ((data / name).read_text().strip() for name in ("url", "token"))
    asked = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked) as answer:
        text = answer.read().decode()
    counts = re.findall(r'^headway_loop_delay_seconds_bucket\{le="([^"]+)"\} (\S+)', text, re.MULTILINE)
    total = float(counts[-1][1])
    bound = next(bound for bound, count in counts if float(count) >= 0.99 * total)
    return f"{1000 * float(bound):g}"


def row(
    name: str, wanted: int, folder: Path, site: Mapping[str, str], job: Job | None, alone: str = "-"
) -> tuple[object, ...]:
    """Start a server, wait until all nodes are there, and run a job there.

    Args:
        alone: how many tasks a second there are without Headway.
    """
    began = time.perf_counter()
    with serving(folder, site) as (client, server):
        measure.until(lambda: sum(node.up for node in client.nodes()) >= wanted)
        there = time.perf_counter() - began
        rate = spent = "-"
        if job is not None:
            tasks = len(job.tasks)
            busy, began = server.cpu_times(), time.perf_counter()
            client.submit(job).result(measure.PATIENCE)
            took, after = time.perf_counter() - began, server.cpu_times()
            rate = measure.rounded(tasks / took)
            spent = measure.rounded(1000 * (after.user + after.system - busy.user - busy.system) / tasks)
        else:
            until_known = client.submit(Job("waits", [Task.command("true") for _ in range(WORKERS)]))
            time.sleep(5)
            client.cancel(until_known)
        memory = server.memory_full_info().pss / 1e6
        delay = delays(folder / "data")
    return name, f"{there:.1f}", rate, alone, spent, decisions(folder / "data"), delay, f"{memory:.0f}"


class Timed:
    """A policy, and how long each of its decisions takes."""

    def __init__(self, text: str, times: list[float]) -> None:
        self._policy = find(text)
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def __call__(self, view: Snapshot) -> Plan:
        began = time.perf_counter()
        plan = self._policy(view)
        self._times.append(time.perf_counter() - began)
        return plan


def decisions(data: Path) -> str:
    """How long the policy takes to decide, in ms, median and 99 in 100, when it is asked again what it was asked."""
    times: list[float] = []
    for _ in redeciding.rounds(data, lambda text: Timed(text, times)):
        pass
    return f"{1000 * measure.percentile(times, 0.5):.2f}, {1000 * measure.percentile(times, 0.99):.2f}"


def dask(folder: Path, tasks: int) -> tuple[object, ...]:
    """64 workers of Dask in one process."""
    site = Processes(folder / "dask").one(**{f"w{number}": 1 for number in range(WORKERS)})
    try:
        job = Job("many", [Task(nothing) for _ in range(tasks)])
        options = {"name": "farm", "engine": "dask", "address": site.address}
        return row(f"{WORKERS} workers of Dask, {tasks:,} calls", WORKERS, folder, options, job)
    finally:
        site.end()


def few(folder: Path, tasks: int) -> tuple[object, ...]:
    """Four nodes of Slurm."""
    with Cluster() as cluster, environment(cluster):
        return programs(folder, cluster.names, min(tasks, 300))


def slurm(folder: Path, tasks: int) -> tuple[object, ...]:
    """400 nodes of Slurm, each with its daemon."""
    with Cluster([f"e{number}" for number in range(1, SLURMDS + 1)], MANY) as cluster, environment(cluster):
        return programs(folder, cluster.names, min(tasks, 2 * SLURMDS))


def rate_of_slurm(count: int, submissions: list[tuple[str, ...]]) -> str:
    """How many jobs of Slurm there are a second without Headway, from the first sbatch until none is left."""
    began = time.perf_counter()

    def submit(words: tuple[str, ...]) -> None:
        more = ("--mem=10", "--output=/dev/null", "--wrap", "exit 0")
        subprocess.run(["sbatch", *words, *more], stdout=subprocess.DEVNULL, check=True)

    with ThreadPoolExecutor(4) as submitters:
        list(submitters.map(submit, submissions))
    measure.until(lambda: not subprocess.run(["squeue", "--noheader"], capture_output=True, check=True).stdout.strip())
    return measure.rounded(count / (time.perf_counter() - began))


def programs(folder: Path, names: Sequence[str], count: int) -> tuple[object, ...]:
    """Programs that do nothing: an array of Slurm's own, then a job of Slurm each; and a job each through Headway."""
    names = [f"--nodelist={name}" for name in names]
    array = rate_of_slurm(count, [(f"--array=1-{count}",)])
    each = rate_of_slurm(count, [(names[number % len(names)],) for number in range(count)])
    alone = f"{array} / {each}"
    nodes = len(names)
    job = Job("programs", [Task.command("true") for _ in range(count)])
    options = {"name": "hpc", "engine": "slurm", "partition": "main"}
    return row(f"{nodes} nodes of Slurm, {count:,} programs", nodes, folder, options, job, alone)


def cloud(folder: Path, tasks: int) -> tuple[object, ...]:
    """10,000 nodes that Slurm would start."""
    del tasks
    with Cluster(["n"], IN_A_CLOUD) as cluster, environment(cluster):
        options = {"name": "hpc", "engine": "slurm", "partition": "main"}
        return row(f"{CLOUD:,} nodes of Slurm that are off", CLOUD, folder, options, None)


def allocations(folder: Path, tasks: int) -> tuple[object, ...]:
    """Four jobs of Slurm that are workers of Dask: what Slurm has allocated, as nodes."""
    with Cluster() as cluster, environment(cluster):
        site = Processes(folder / "dask").scheduler()
        try:
            for number, node in enumerate(cluster.names):
                words = [
                    sys.executable,
                    "-m",
                    "dask",
                    "worker",
                    site.address,
                    "--name",
                    f"a{number}",
                    "--nthreads",
                    "4",
                ]
                words += ["--no-dashboard", "--no-nanny", "--memory-limit", "0", "--local-directory", str(folder)]
                wanted = ("-w", node, "--exclusive", "--output=/dev/null", "--wrap", " ".join(words))
                subprocess.run(["sbatch", *wanted], stdout=subprocess.DEVNULL, check=True)
            count = min(tasks, 10_000)
            job = Job("calls", [Task(nothing) for _ in range(count)])
            options = {"name": "farm", "engine": "dask", "address": site.address}
            return row(f"4 allocations of Slurm, {count:,} calls", len(cluster.names), folder, options, job)
        finally:
            site.end()


def cancels(folder: Path) -> str:
    """How long it takes from a cancel of a job of Slurm until its end is told, in ms: the median of ten."""
    with Cluster() as cluster, environment(cluster):
        options = {"name": "hpc", "engine": "slurm", "partition": "main"}
        with serving(folder, options) as (client, _):
            measure.until(lambda: sum(node.up for node in client.nodes()) >= len(cluster.names))
            times = []
            for _ in range(10):
                waiter = client.submit(Job("sleeps", [Task.command("sleep", "600")]))
                measure.until(lambda waiter=waiter: client.job(waiter).job.running > client.job(waiter).job.starting)
                began = time.perf_counter()
                client.cancel(waiter)
                client.wait(waiter, timeout=measure.PATIENCE)
                times.append(1000 * (time.perf_counter() - began))
    return f"{measure.percentile(times, 0.5):.0f}"


@contextmanager
def environment(cluster: Cluster) -> Iterator[None]:
    """Commands of Slurm find this cluster."""
    os.environ["SLURM_CONF"] = str(cluster.conf)
    try:
        yield
    finally:
        del os.environ["SLURM_CONF"]


KINDS = {"dask": dask, "allocations": allocations, "few": few, "slurm": slurm, "cloud": cloud}


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--tasks", type=int, default=100_000)
    arguments.add_argument("--only", choices=KINDS, action="append")
    options = arguments.parse_args()
    rows = []
    for name in options.only or KINDS:
        if name != "dask" and lacking():
            print(f"without {name}: {lacking()}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows.append(KINDS[name](Path(folder), options.tasks))
    with tempfile.TemporaryDirectory() as folder:
        cancelled = "-" if lacking() else cancels(Path(folder))
    head = (
        *(
            "nodes",
            "all are there after, s",
            "tasks/s",
            "Slurm alone: array / a job each",
            "server's processor, ms a task",
        ),
        *("a decision, ms: median, 99 in 100", "loop's delay, ms", "MB"),
    )
    measure.section(
        "Many nodes",
        f"""One server over many nodes, all of them on this machine: {measure.machine()}. The workers of Dask are in one
        process, and each has an agent and a slot of its own. Nodes of Slurm have a daemon each, and 4 processors; each
        program is a job of Slurm that starts a runner, a Python that takes most of the time. The {CLOUD:,} nodes are
        known to Slurm and off: {WORKERS} jobs wait for them for five seconds. Decisions are timed afterwards: the
        policy is asked again what it was asked, as `headway check --decide` does. The loop's delay is the bound that 99
        of 100 looks keep; memory is the server's own (PSS). Wanted: 25 jobs of Slurm a second, and 500 calls a second
        in allocations. The next job of each slot waits in Slurm's own queue. A cancel, until the end of the job of
        Slurm is told, takes {cancelled} ms in the median of ten on four nodes (wanted: 100). How fast jobs of Slurm are
        [depends on how fast Slurm is](benchmarks-notes.md#many-nodes) on the machine.""",
        measure.table(head, rows),
    )


if __name__ == "__main__":
    main()
