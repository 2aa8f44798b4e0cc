"""Measure Headway on a real cluster of four workers of Dask with TLS, beside what Dask does by itself.

    python bench/dask_engine.py [--tasks N] [--json]

Dask's own tasks run in threads of the workers. Ours are processes that can be killed, with limits and output of their
own, and each end is acknowledged. The engine alone is measured, and a server as a user has it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pickle
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

import cloudpickle
import psutil
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.dask_site import Processes, certificates, security

import live
import measure
from headway import Client, Job, Task
from headway.engines.base import Assignment, Call, Ended, Function, Member, NodeFound, Report
from headway.engines.dask.engine import DaskEngine
from headway.engines.dask.settings import DaskSettings
from headway.engines.trial import FilesInMemory
from headway.model.outcome import Outcome

WORKERS = ("a", "b", "c", "d")
THREADS = 2
LARGE = 64 << 20
ROUNDS = 21
"""So often 64 MB go there and back, in turn with Dask."""

TRIPS = 100
"""So many round trips of one task are made, one after the other."""

LOSSES = 5
"""So many workers die, and so many fall silent, one after the other."""

LEASE = 3.0
"""Seconds for which a worker may be silent."""


def nothing() -> None:
    """A task that does nothing."""


def sleeps() -> None:
    """A task that is killed."""
    time.sleep(600)


def same(value: bytes) -> bytes:
    """A task that gives back what it is given."""
    return value


class Ends:
    """Launches attempts and waits for their ends."""

    def __init__(self, engine: DaskEngine) -> None:
        self.engine = engine
        self.found: dict[str, int] = {}
        self.waiting: dict[tuple[int, int, int], asyncio.Future[Ended]] = {}
        self.next = 0

    def take(self, report: Report) -> None:
        """What the engine reports."""
        if isinstance(report, NodeFound):
            self.found[report.node.name] = report.node.slots
        elif isinstance(report, Ended):
            self.engine.acknowledge(*report.key)
            self.waiting.pop(report.key).set_result(report)

    def launch(self, node: str, slot: int, call: Call) -> asyncio.Future[Ended]:
        """Launch a call; the future has its end."""
        key = (1, self.next, 1)
        self.next += 1
        ended = self.waiting[key] = asyncio.get_running_loop().create_future()
        self.engine.launch(Assignment(*key, (Member(node, (slot,), call),), result_max=2 * LARGE))
        return ended

    async def bag(self, tasks: int, ahead: int) -> float:
        """Tasks per second of a bag, with so many at each slot."""
        call = Call(Function.of(cloudpickle.dumps(nothing)), pickle.dumps(((), {})))
        left = iter(range(tasks))

        async def slot(node: str, number: int) -> None:
            for _ in left:
                await self.launch(node, number, call)

        began = time.perf_counter()
        await asyncio.gather(*(slot(node, i) for node in WORKERS for i in range(THREADS) for _ in range(ahead)))
        return tasks / (time.perf_counter() - began)


def worked() -> float:
    """Seconds of processor time that this process and all below it have taken."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            taken = process.cpu_times()
            total += taken.user + taken.system
    return total


class Large:
    """Figures of what is large: wall clock and processor time of everything that has to do with it."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.worked: list[float] = []

    async def add(self, there_and_back: Awaitable[object]) -> None:
        """One time there and back."""
        began, before = time.perf_counter(), worked()
        assert await there_and_back == LARGE
        self.took.append(time.perf_counter() - began)
        self.worked.append(worked() - before)

    def figures(self) -> dict[str, float]:
        return {"large_seconds": statistics.median(self.took), "large_worked": statistics.median(self.worked)}


async def large(ends: Ends, site: Processes) -> tuple[dict[str, float], dict[str, float]]:
    """64 MB there and back, from value to value, by the engine and by Dask in turn."""
    from distributed import Client

    value, function = os.urandom(LARGE), Function.of(cloudpickle.dumps(same))
    client = await asyncio.to_thread(Client, site.address, security=security(site.tls))

    async def by_engine() -> int:
        ended = await ends.launch("c", 0, Call(function, pickle.dumps(((value,), {}), pickle.HIGHEST_PROTOCOL)))
        assert ended.ending.outcome is Outcome.SUCCEEDED
        assert ended.ending.result is not None
        return len(pickle.loads(ended.ending.result))

    def by_dask() -> int:
        given = client.scatter(value, hash=False)
        return len(client.submit(same, given, pure=False).result())

    engine, dask = Large(), Large()
    for _ in range(ROUNDS):
        await dask.add(asyncio.to_thread(by_dask))
        await engine.add(by_engine())
    await asyncio.to_thread(client.close)
    return engine.figures(), dask.figures()


async def ours(site: Processes, folder: Path, tasks: int) -> tuple[dict[str, float], dict[str, float]]:
    """The figures of the engine, and those of Dask that were measured in turn with it."""
    engine = DaskEngine(folder / "engine", DaskSettings(site.address, site.tls, folder=str(folder / "there")))
    ends = Ends(engine)
    await engine.start((), ends.take, FilesInMemory())
    while set(ends.found) != set(WORKERS):
        await asyncio.sleep(0.01)
    await ends.bag(200, 1)
    figures = {"tasks_per_second": await ends.bag(tasks, 16)}
    call = Call(Function.of(cloudpickle.dumps(nothing)), pickle.dumps(((), {})))
    trips = []
    for _ in range(TRIPS):
        began = time.perf_counter()
        await ends.launch("a", 0, call)
        trips.append(1000 * (time.perf_counter() - began))
    figures["round_trip_ms"] = statistics.median(trips)
    sleeping = Call(Function.of(cloudpickle.dumps(sleeps)), pickle.dumps(((), {})))
    kills = []
    for _ in range(10):
        ended = ends.launch("b", 0, sleeping)
        await asyncio.sleep(0.3)
        began = time.perf_counter()
        engine.kill(1, ends.next - 1, 1)
        assert (await ended).ending.outcome is Outcome.KILLED
        kills.append(1000 * (time.perf_counter() - began))
    figures["kill_ms"] = statistics.median(kills)
    by_engine, by_dask = await large(ends, site)
    figures |= by_engine
    await engine.stop()
    return figures, by_dask


def served(site: Processes, folder: Path, tasks: int) -> dict[str, float]:
    """The figures of a server that has the workers: durable, by HTTP, as its users have it."""
    words = ["up", "--dask", site.address, "--dask-tls", site.tls, "--lease", f"{LEASE:g}s"]
    command = measure.headway(*words, "--data", folder / "data", "--json", compiled=True)
    with live.started(folder, command) as (client, pid):
        measure.until(lambda: up(client) == set(WORKERS))

        def bag(count: int) -> float:
            began = time.perf_counter()
            client.submit(Job("many", [Task(nothing) for _ in range(count)])).result(measure.PATIENCE)
            return count / (time.perf_counter() - began)

        bag(200)
        busy = sum(psutil.Process(pid).cpu_times()[:2])
        figures = {"tasks_per_second": bag(tasks)}
        figures["server_ms"] = 1000 * (sum(psutil.Process(pid).cpu_times()[:2]) - busy) / tasks
        trips = []
        for _ in range(TRIPS):
            began = time.perf_counter()
            client.submit(Job("one", [Task(nothing)])).result(measure.PATIENCE)
            trips.append(1000 * (time.perf_counter() - began))
        figures["round_trip_ms"] = statistics.median(trips)
        dead, silent = [], []
        for number in range(LOSSES):
            worker = WORKERS[number % len(WORKERS)]
            dead.append(1000 * lost_after(client, site, worker, signal.SIGKILL))
            site.worker(worker, THREADS)
            measure.until(lambda: up(client) == set(WORKERS))
            silent.append(lost_after(client, site, worker, signal.SIGSTOP))
            site.kill(worker, signal.SIGCONT)
            measure.until(lambda: up(client) == set(WORKERS))
    figures |= {"dead_ms": statistics.median(dead), "dead_ms_most": max(dead)}
    return figures | {"silent_seconds": statistics.median(silent), "silent_seconds_most": max(silent)}


def lost_after(client: Client, site: Processes, worker: str, number: signal.Signals) -> float:
    """Seconds from a signal to a worker until the loss of its node is in the journal."""
    known, began = len(losses(client, worker)), time.time()
    site.kill(worker, number)
    measure.until(lambda: len(losses(client, worker)) > known)
    return losses(client, worker)[-1] - began


def losses(client: Client, worker: str) -> list[float]:
    """When the node of a worker was lost, in seconds of the clock."""
    told = client.incidents(last=1000)
    return [one.at for one in told if one.kind == "node_lost" and one.subject == worker]


def up(client: Client) -> set[str]:
    """The nodes that can be used."""
    return {node.name for node in client.nodes() if node.up}


def theirs(site: Processes, tasks: int) -> dict[str, float]:
    """The same of Dask by itself."""
    from distributed import Client

    with Client(site.address, security=security(site.tls)) as client:
        client.gather(client.map(lambda _: None, range(200), pure=False))
        began = time.perf_counter()
        client.gather(client.map(lambda _: None, range(tasks), pure=False))
        figures = {"tasks_per_second": tasks / (time.perf_counter() - began)}
        trips = []
        for _ in range(TRIPS):
            began = time.perf_counter()
            client.submit(nothing, pure=False).result()
            trips.append(1000 * (time.perf_counter() - began))
        figures["round_trip_ms"] = statistics.median(trips)
    return figures


def main() -> None:
    """Print the section of the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = Processes(folder / "dask", certificates(folder / "tls")).scheduler()
        try:
            for worker in WORKERS:
                site.worker(worker, THREADS)
            dask = theirs(site, given.tasks // 5)
            engine, in_turn = uvloop.run(ours(site, folder, given.tasks))
            dask |= in_turn
            server = served(site, folder, given.tasks)
        finally:
            site.end()
    if given.json:
        print(json.dumps({"engine": engine, "server": server, "dask": dask}))
        return
    rows: list[tuple[str, str, str]] = [
        ("no-op tasks per second", "tasks_per_second", "{:,.0f}"),
        ("processor time of the server, ms a task", "server_ms", "{:.2f}"),
        ("round trip of one, median ms", "round_trip_ms", "{:.1f}"),
        ("64 MB argument and result, seconds", "large_seconds", "{:.2f}"),
        ("the same, seconds of processor", "large_worked", "{:.2f}"),
        ("kill, median ms", "kill_ms", "{:.0f}"),
        ("a dead worker (SIGKILL) is noticed, median ms", "dead_ms", "{:.0f}"),
        ("the same, the longest", "dead_ms_most", "{:.0f}"),
        ("a silent worker (SIGSTOP) is lost, median seconds", "silent_seconds", "{:.2f}"),
        ("the same, the longest", "silent_seconds_most", "{:.2f}"),
    ]
    columns = (engine, server, dask)
    measure.section(
        "Dask",
        f"""Four workers of Dask with two threads each and TLS, on one machine: {measure.machine()}. The engine alone
        has no journal and no core. The server is `headway up --dask tls://... --dask-tls` with the [compiled
        core](how-to/compile.md): a bag of {given.tasks:,} tasks and {TRIPS} jobs of one, submitted by HTTP and durable.
        Beside them Dask's own tasks, which run in threads and cannot be killed. {LOSSES} workers are killed, and
        {LOSSES} stopped while the lease is {LEASE:g} s: from the signal until the loss is in the journal. Wanted: at
        least 2,000 tasks/s where Dask by itself makes 470, at most 30 ms for one, a kill and a dead worker within 100
        ms, a silent one after its lease, and 64 MB not slower than Dask: from value to value, the engine and Dask in
        turn, the median of {ROUNDS}, and the processor time of all their processes. Load of the machine:
        {os.getloadavg()[1]:.0f}. The rows about 64 MB [depend on the machine](benchmarks-notes.md#dask).""",
        measure.table(
            ("", "engine", "server", "Dask by itself"),
            (
                (label, *(text.format(found[key]) if key in found else "" for found in columns))
                for label, key, text in rows
            ),
        ),
    )


if __name__ == "__main__":
    main()
