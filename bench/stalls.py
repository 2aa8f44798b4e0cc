"""How long slow work blocks the event loop of a server, with many open jobs and nodes.

python bench/stalls.py [--jobs N] [--nodes N] [--one]

With --one it measures in this environment and prints the rows as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import msgspec
import uvloop

import measure
from headway import wire
from headway.access.tokens import Tokens
from headway.live.checker import Checker
from headway.live.clock import SystemClock
from headway.live.collecting import spare_collector
from headway.live.delay import LoopDelay
from headway.live.driver import Driver
from headway.live.outside import OtherProcesses
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.policies.registry import find
from headway.testing import FakeEngine, new_job, node, submission
from headway.web.api import Api
from headway.web.serving import BoundedServer, listen

TOKEN: Final = "t0ken"
SLOTS: Final = 4
UPLOAD: Final = 256 << 20
CLEARED: Final = 1000
LARGE: Final = 100_000
"""Tasks of the large workflow."""

WANTED: Final = 20.0


class Stalls:
    """Measures every millisecond how long the loop was blocked, until `stop`.

    Attributes:
        longest: the longest time in seconds of wall time; `busy`: the longest in processor time of the loop.
    """

    def __init__(self) -> None:
        self.longest = self.busy = 0.0
        self._stopped = False
        self._before = (time.perf_counter(), time.thread_time())
        asyncio.get_running_loop().call_later(0.001, self._look)

    def _look(self) -> None:
        now = (time.perf_counter(), time.thread_time())
        self.longest = max(self.longest, now[0] - self._before[0] - 0.001)
        self.busy = max(self.busy, now[1] - self._before[1])
        self._before = now
        if not self._stopped:
            asyncio.get_running_loop().call_later(0.001, self._look)

    def stop(self) -> None:
        """Measure no more."""
        self._look()
        self._stopped = True


class Caller:
    """Sends requests from a thread of its own, like a caller elsewhere."""

    def __init__(self, host: str, port: int) -> None:
        self._place = (host, port)

    async def ask(self, method: str, path: str, body: bytes = b"", form: str = wire.JSON) -> None:
        """Send a request and read the whole answer.

        Raises:
            SystemExit: it is a refusal.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[int, bytes]] = loop.create_future()

        def run() -> None:
            with closing(HTTPConnection(*self._place, timeout=600)) as line:
                line.request(method, path, body, {"Authorization": f"Bearer {TOKEN}", "Content-Type": form})
                answer = line.getresponse()
                said = (answer.status, answer.read())
            loop.call_soon_threadsafe(done.set_result, said)

        threading.Thread(target=run, daemon=True).start()
        status, said = await done
        if status != 200:
            raise SystemExit(f"{method} {path}: {status} {said[:500]!r}")


def workflow(tasks: int) -> wire.NewJob:
    """A workflow of commands in layers of a hundred, each after three of the layer before."""
    plan = tuple(
        wire.PlannedTask(10.0, after=tuple(range(max(0, task - 100), max(0, task - 97)))) for task in range(tasks)
    )
    commands = tuple(wire.Command(("sh", "-c", f"echo {task} > out")) for task in range(tasks))
    names = tuple(f"task-{task}" for task in range(tasks))
    work = wire.Steps(wire.Calls((), ()), commands, tuple(range(tasks)), names=names)
    return wire.NewJob(work, kind="workflow", tasks=tasks, plan=plan)


async def fill(driver: Driver, jobs: int) -> None:
    """Submit this many jobs of one task each."""
    for first in range(0, jobs, 500):
        named = [new_job(name=f"job {number}", due=1e9 + number) for number in range(first, min(jobs, first + 500))]
        await driver.submit("me", submission(*named, client=f"client {first % 7}"))


async def end(driver: Driver, engine: FakeEngine, count: int) -> None:
    """Let this many tasks end, a few at a time."""
    for ended in range(count):
        engine.end(*next(iter(engine.running)))
        if ended % 20 == 19:
            await asyncio.sleep(0.002)
    await asyncio.sleep(0.01)


async def take(folder: Path, jobs: int, nodes: int) -> list[tuple[str, float, float]]:
    """What was done, and how long it held the loop: milliseconds of processor time and of wall time."""
    rows: list[tuple[str, float, float]] = []

    async def measured(name: str, what: Callable[[], Awaitable[object]]) -> None:
        stalls = Stalls()
        await what()
        stalls.stop()
        rows.append((name, 1e3 * stalls.busy, 1e3 * stalls.longest))

    with closing(Journal(folder)) as journal, listen("127.0.0.1", 0) as listener:
        engine, clock, over = FakeEngine(), SystemClock(), asyncio.Event()
        command = (sys.executable, "-m", "headway.restate")
        driver = Driver(
            journal,
            engine,
            clock,
            find,
            DriverSettings(policy="fcfs", snapshot_every=1 << 40),
            processes=OtherProcesses(restate=command),
        )
        await driver.start(tuple(node(f"n{number}", slots=SLOTS) for number in range(nodes)))
        await fill(driver, jobs)
        await end(driver, engine, CLEARED)
        api = Api(driver, Tokens(TOKEN, "me"), over.set, checker=Checker(driver, clock, {}, dict), delay=LoopDelay())
        serving = asyncio.create_task(BoundedServer(api.app, over).serve([listener]))
        spare_collector()
        caller = Caller(*listener.getsockname()[:2])
        await caller.ask("GET", wire.HEALTH.path)

        async def snapshot() -> None:
            before, driver._ledger._snapshot_due = journal_event(journal), 0
            while journal_event(journal) == before:
                await end(driver, engine, 20)
                await asyncio.sleep(0.05)

        # A snapshot that is not measured, so that the next one has 100,000 jobs to restore and few events to replay.
        await snapshot()
        content = os.urandom(1 << 20) * (UPLOAD >> 20)
        name = hashlib.sha256(content).hexdigest()
        some = json.dumps({"jobs": list(range(1, CLEARED + 1))}).encode()
        all_anew = nodes * SLOTS + 500  # then whatever runs was started by the policy that was chosen
        asked = (
            ("`GET /v1/jobs?status=running`", "GET", f"{wire.JOBS.path}?status=running", b""),
            ("`GET /v1/jobs?status=waiting`", "GET", f"{wire.JOBS.path}?status=waiting", b""),
            ("`GET /v1/jobs?status=failed`", "GET", f"{wire.JOBS.path}?status=failed", b""),
            ("`GET /v1/nodes`", "GET", wire.NODES.path, b""),
            ("an upload of 256 MB", "PUT", wire.UPLOAD.path.format(upload=name), content),
            (f"results of {CLEARED:,} jobs are cleared", "POST", wire.CLEAR.path, some),
            *_growing(jobs),
        )
        await measured("nothing but tasks that end (`fcfs`)", lambda: end(driver, engine, 400))
        await measured("the state is stored", snapshot)
        for what, method, path, body in asked:
            await measured(what, partial(caller.ask, method, path, body))
        await end(driver, engine, all_anew)
        await measured("nothing but tasks that end (`tempo`)", lambda: end(driver, engine, 400))
        last = wire.EXPLAIN.path.format(job=jobs)
        await measured("`GET /v1/jobs/{job}/explain` (`tempo`)", lambda: caller.ask("GET", last))
        for policy in ("deadline", "edf", "easy", "heft"):
            chosen = json.dumps({"policy": policy}).encode()
            await measured(f"`{policy}` is chosen", partial(caller.ask, "PUT", wire.CHOOSE.path, chosen))
            await end(driver, engine, all_anew)
            await measured(f"nothing but tasks that end (`{policy}`)", lambda: end(driver, engine, 200))
        await caller.ask("PUT", wire.CHOOSE.path, b'{"policy": "fcfs"}')
        large = wire.encode(submission(workflow(LARGE), client="client 1", key="large"))
        sending = partial(caller.ask, "POST", wire.SUBMIT.path, large, wire.MSGPACK)
        await measured(f"a workflow of {LARGE:,} tasks is submitted (`fcfs`)", sending)
        over.set()
        driver.take_no_more()
        await serving
        driver._snapshots.stop()
        driver._serving = False
    return rows


def _growing(jobs: int) -> Iterator[tuple[str, str, str, bytes]]:
    """Requests whose work could grow with the open jobs or the nodes."""
    last = {"job": jobs}
    yield "`GET /v1/jobs/{job}/explain` (`fcfs`)", "GET", wire.EXPLAIN.path.format(**last), b""
    yield "`GET /v1/jobs/{job}`", "GET", wire.JOB.path.format(**last), b""
    yield "`GET /v1/jobs?limit=10000`", "GET", f"{wire.JOBS.path}?limit=10000", b""
    yield "`GET /v1/messages?limit=10000`", "GET", f"{wire.MESSAGES.path}?limit=10000", b""
    yield "`GET /v1/messages?client=...`", "GET", f"{wire.MESSAGES.path}?client=client%201&limit=10000", b""
    yield "`GET /v1/incidents`", "GET", f"{wire.INCIDENTS.path}?limit=10000", b""
    yield "`GET /v1/requests`", "GET", f"{wire.REQUESTS.path}?limit=10000", b""
    yield "`GET /v1/statistics`", "GET", wire.STATISTICS.path, b""
    yield "`GET /metrics`", "GET", wire.PROMETHEUS.path, b""
    yield "a job gets another due date", "PATCH", wire.CHANGE.path.format(**last), b'{"due": 5e9}'
    yield "a job is cancelled", "POST", wire.CANCEL.path, json.dumps({"jobs": [jobs - 1]}).encode()
    some = json.dumps({"jobs": list(range(jobs - 2001, jobs - 1))}).encode()
    yield "2,000 jobs are cancelled", "POST", wire.CANCEL.path, some
    new = msgspec.json.encode(submission(*[new_job(name="one more")] * 2000, client="client 1"))
    yield "2,000 jobs are submitted", "POST", wire.SUBMIT.path, new
    yield "a node is drained", "POST", wire.DRAIN_NODE.path.format(node="n5"), b""
    yield "a node is removed", "DELETE", wire.REMOVE_NODE.path.format(node="n6"), b""
    yield "`tempo` is chosen", "PUT", wire.CHOOSE.path, b'{"policy": "tempo:strict=false"}'


def journal_event(journal: Journal) -> int:
    """The event that the last snapshot follows."""
    return int(journal._db.execute("SELECT max(seq) FROM snapshots").fetchone()[0])


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--jobs", type=int, default=100_000)
    arguments.add_argument("--nodes", type=int, default=1000)
    arguments.add_argument("--one", action="store_true")
    given = arguments.parse_args()
    if given.one:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(uvloop.run(take(Path(name), given.jobs, given.nodes))))
        return
    compiled, plain = (
        json.loads(
            subprocess.run(
                [python, __file__, "--one", f"--jobs={given.jobs}", f"--nodes={given.nodes}"],
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
        )
        for python in (measure.COMPILED / "python", sys.executable)
    )
    measure.section(
        "Live: how long the loop is held",
        f"""A server with {given.jobs:,} open jobs on {given.nodes:,} nodes of {SLOTS} slots, and one caller. Its engine
        runs nothing; everything else is as usual. The longest time in milliseconds in which its event loop served
        no other caller: processor time of the loop itself, and elapsed time, which includes the disk and whatever else
        runs on the machine. Wanted: {WANTED:g} ms. Rounds of `tempo`, `deadline` and `edf` look at each busy slot, and
        those of `heft` at each job; whatever runs was started by the policy that is named. Once with the
        [compiled core](how-to/compile.md), as it is where it is installed beside a C compiler, and once without.""",
        measure.table(
            ("while", "compiled: processor, ms", "wall, ms", "plain: processor, ms", "wall, ms"),
            [
                (name, *(measure.rounded(figure) for figure in (*taken, *without)))
                for (name, *taken), (_, *without) in zip(compiled, plain, strict=True)
            ],
        ),
    )


if __name__ == "__main__":
    main()
