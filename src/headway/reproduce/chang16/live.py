"""Batch jobs and services on a real server, and in the simulator: does the simulator foresee what they cost?

Bags of tasks that sleep, and two services whose requests sleep, on eight slots of this machine for two minutes. Both
follow stretches of the logs, faster and fewer of them. All of it is drawn from a seed, so the simulator gets the same
jobs and requests. It is told two things of the machine that are measured: how long an instance takes to start,
and how much longer than it sleeps a task holds its slot.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np

from headway.client.client import Client
from headway.client.replay import Replay
from headway.client.service import Service
from headway.errors import HeadwayError
from headway.metrics import summarise
from headway.model.instant import SECOND, from_seconds
from headway.model.node import NodeSpec
from headway.model.workload import FloatArray, Workload
from headway.reproduce.chang16.estimates import Course, Look, draw_jobs, draw_ratios
from headway.reproduce.chang16.experiment import Asked, Experiment
from headway.reproduce.chang16.mixed import OF_EACH, open_logs, services
from headway.reproduce.chang16.samples import Log
from headway.reproduce.experiment import Progress, Result
from headway.reproduce.server import own_server
from headway.reproduce.tables import Table, number_text
from headway.sim.experiment import ServiceLoad, run
from headway.sim.world import World
from headway.traces.columns import workload_of

SLOTS: Final = 8
SECONDS: Final = 120.0
"""How long requests come."""

WINDOW: Final = 4.0
LEAD: Final = 4.0
"""Seconds after the start of the services at which requests and jobs begin to come: by then instances are ready."""

REQUESTS: Final = 25.0
"""So many in a second at most come to each service on average: of its log, every so many-th comes."""

LOAD: Final = 0.2
"""The share of the slots that the requests need on average."""

BAGS: Final = 0.2
"""Batch jobs for each second."""

BATCH_LOAD: Final = 0.6
"""The share of the slots that the batch jobs need on average."""

TASKS_MAX: Final = 24
"""Tasks of a bag: jobs of the log that had more processors have so many."""

MEDIANS_MAX: Final = 5
"""Run times of the log are cut at so many times the median of the stretch, or one job would be most of the work."""

RUN_TIME_MIN: Final = 0.02
"""Seconds; shorter tasks take so long."""

SHARES: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""When the server is asked what it expects, as shares of the time in which requests come: figures 4 and 5, live."""

RATE: Final = 10_000.0
END_SECONDS: Final = 300.0

POLICIES: Final = {top: f"services:top={top},batch=greedy" for top in ("dp", "sf", "pp")}
KINDS: Final = ("services", "batch")


class Load(NamedTuple):
    """The requests of a service: when each comes, in seconds from the first one on, and how long it takes."""

    arrivals: FloatArray
    processing: FloatArray

    @property
    def threshold(self) -> float:
        """As in the third experiment."""
        return round(2 * float(self.processing.mean()), 3)


class Sample(NamedTuple):
    """What runs: batch jobs, and the requests of services, which come for so many seconds."""

    bags: Workload
    loads: Sequence[Load]
    seconds: float


@dataclass(frozen=True, slots=True)
class Twice:
    """What one policy cost live and in the simulator.

    Attributes:
        live, simulated: penalties by kind (`KINDS`).
        warm_up: seconds that an instance took to start, where there was room for it.
        late: seconds by which a task held its slot longer than it slept, on average.
        course: what the server expected of the batch jobs as the run went on, in seconds from its start.
    """

    live: dict[str, float]
    simulated: dict[str, float]
    warm_up: float
    late: float
    course: Course


def draw(log: Log, seed: int, seconds: float = SECONDS) -> Sample:
    """A sample: consecutive jobs of a log from a random start as bags, and one service of either log of requests.

    Bags are due when they would end on a half of the slots, or up to twice as late.
    """
    return Sample(_bags(log, seed, seconds), _loads(seed, seconds), seconds)


def _bags(log: Log, seed: int, seconds: float) -> Workload:
    chance = np.random.default_rng(seed)
    number = math.ceil(BAGS * seconds)
    begin = int(chance.integers(0, len(log.workload) - number + 1))
    part = log.workload.take(slice(begin, begin + number))
    tasks, runtime = np.minimum(part.tasks, TASKS_MAX), part.runtime / SECOND
    runtime = np.minimum(runtime, MEDIANS_MAX * float(np.median(runtime)))
    runtime = runtime * (BATCH_LOAD * SLOTS * seconds / float(tasks @ runtime))
    runtime = np.maximum(runtime, RUN_TIME_MIN).round(3)
    came = (part.release - part.release[0]).astype(np.float64)
    release = np.round(came * (0.7 * seconds / max(1.0, float(came[-1]))), 3)
    alone = np.ceil(tasks / (SLOTS / 2)) * runtime
    due = release + alone * chance.uniform(1.0, 2.0, number)
    rate = chance.integers(1, 1001, number).astype(np.float64)
    return workload_of(release=release, tasks=tasks, runtime=runtime, estimate=runtime, due=due, rate=rate)


def _loads(seed: int, seconds: float) -> list[Load]:
    both = services(open_logs(), seed, None)
    found = []
    for one in (both[0], both[OF_EACH]):
        some = slice(None, None, math.ceil(len(one.arrivals) / (REQUESTS * seconds)))
        arrivals = one.arrivals[some] - one.arrivals[0]
        arrivals = arrivals * (seconds / max(1e-9, float(arrivals[-1]) + 1e-3))
        processing = one.processing[some]
        factor = LOAD / 2 * SLOTS * seconds / float(processing.sum())
        found.append(Load(arrivals, np.minimum(processing * factor, 2.0)))
    return found


class Callers:
    """Sends requests at their times, each on a connection of its own while it waits.

    Attributes:
        failed: how many had no answer.
    """

    def __init__(self, url: str, token: str, name: str, load: Load) -> None:
        self.failed = 0
        host, _, port = url.removeprefix("http://").partition(":")
        self._place = host, int(port)
        self._head = (
            f"POST /v1/services/{name}/requests HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\n"
        )
        self._load = load
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def run(self, begin: float) -> None:
        """Send all of them, the first at this instant of the event loop; return when all are answered."""
        loop = asyncio.get_running_loop()
        waiting = []
        try:
            for arrival, seconds in zip(self._load.arrivals.tolist(), self._load.processing.tolist(), strict=True):
                await asyncio.sleep(max(0.0, begin + arrival - loop.time()))
                waiting.append(loop.create_task(self._ask(seconds)))
            await asyncio.gather(*waiting)
        finally:
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            for _, writer in self._idle:
                writer.close()

    async def _ask(self, seconds: float) -> None:
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(*self._place)
        body = json.dumps(seconds)
        writer.write(f"{self._head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(size)
        self.failed += not head.startswith(b"HTTP/1.1 200 ")
        self._idle.append((reader, writer))


class Watcher:
    """Asks a server in the middle of a run when the open batch jobs are expected to end, and what they cost then.

    Args:
        begin: when the run begins, by `time.monotonic()`.
    """

    def __init__(self, client: Client, replay: Replay, begin: float, seconds: float) -> None:
        self._client = client
        self._replay = replay
        self._begin = begin
        self._seconds = seconds
        self._epoch = time.time() + begin - time.monotonic()
        self._looks: list[Look] = []

    def watch(self) -> None:
        """Ask at all `SHARES` of the time in which requests come."""
        for share in SHARES:
            time.sleep(max(0.0, self._begin + share * self._seconds - time.monotonic()))
            open_ = {job.id: job for job in self._client.jobs(status="open")}
            at = time.monotonic() - self._begin
            ends, penalties = dict[int, float](), dict[int, float]()
            for place, waiter in enumerate(list(self._replay.waiters)):
                job = open_.get(waiter.job)
                if job is not None and job.expected_end is not None and job.penalty_expected is not None:
                    ends[place], penalties[place] = job.expected_end - self._epoch, job.penalty_expected
            self._looks.append(Look(share, at, ends, penalties))

    def course(self, ended: Iterable[float | None], penalties: Iterable[float]) -> Course:
        """What was expected, beside what came of all jobs: when they ended, in seconds since 1970, and their costs."""
        ends = np.array([math.nan if at is None else at - self._epoch for at in ended])
        return Course(ends, np.array(list(penalties)), tuple(self._looks))


def live(policy: str, sample: Sample) -> tuple[dict[str, float], float, float, Course]:
    """Run a sample on a server of its own.

    Returns penalties, the warm-up of an instance, how late tasks are, and what was expected on the way.

    Raises:
        HeadwayError: the server does not start, a request had no answer, or a job does not succeed.
    """
    workload, requests, seconds = sample
    with TemporaryDirectory(prefix="headway-reproduce-") as folder:
        with own_server(Path(folder), machines(), policy) as server, Client(data=folder) as client:
            client.choose_policy(period=0)
            token = (Path(folder) / "token").read_text().strip()
            warm_up = _warm_up(client)
            names = [f"service-{number}" for number in range(len(requests))]
            began = time.monotonic()
            for name, load in zip(names, requests, strict=True):
                client.serve(_service(name, load.threshold))
            replay = Replay(client, workload)

            def submit() -> None:
                time.sleep(max(0.0, began + LEAD + float(workload.release[0]) / 1e6 - time.monotonic()))
                replay.submit()

            watcher = Watcher(client, replay, began + LEAD, seconds)
            with ThreadPoolExecutor(2) as threads:
                submitting, watching = threads.submit(submit), threads.submit(watcher.watch)
                callers = [
                    Callers(server["url"], token, name, load) for name, load in zip(names, requests, strict=True)
                ]
                asyncio.run(_called(callers, began + LEAD - time.monotonic()))
                submitting.result()
                watching.result()
            if failed := sum(one.failed for one in callers):
                raise HeadwayError(f"{failed} requests had no answer")
            end = began + LEAD + seconds
            time.sleep(max(0.0, end + WINDOW + max(load.threshold for load in requests) + 0.5 - time.monotonic()))
            reports = [client.service(name) for name in names]
            client.cancel(*(report.job for report in reports))
            client.wait(*replay.waiters, timeout=END_SECONDS)
            jobs = [client.job(waiter).job for waiter in replay.waiters]
            held = sum(result.ending.seconds for waiter in replay.waiters for result in client.results(waiter.job))
            late = (held - float(workload.tasks @ workload.runtime) / 1e6) / int(workload.tasks.sum())
        penalties = {
            "services": sum(report.penalty for report in reports),
            "batch": sum(job.penalty for job in jobs),
        }
        return (
            penalties,
            warm_up,
            max(0.0, late),
            watcher.course((job.ended for job in jobs), (job.penalty for job in jobs)),
        )


def _service(name: str, threshold: float) -> Service:
    return Service(name, time.sleep, threshold=threshold, rate=RATE, window=WINDOW, least=1, most=SLOTS)


def _warm_up(client: Client) -> float:
    """How long an instance takes to start: of the second of two services, so that the server has started one before."""
    taken = 0.0
    for name in ("first", "second"):
        began = time.monotonic()
        waiter = client.serve(_service(name, 1.0))
        while not client.service(name).ready:
            time.sleep(0.005)
        taken = time.monotonic() - began
        client.cancel(waiter)
        client.wait(waiter, timeout=END_SECONDS)
    return taken


async def _called(callers: Sequence[Callers], wait: float) -> None:
    begin = asyncio.get_running_loop().time() + wait
    await asyncio.gather(*(one.run(begin) for one in callers))


def simulated(policy: str, sample: Sample, warm_up: float, late: float) -> dict[str, float]:
    """The same in the simulator."""
    workload, requests, _ = sample
    moved = replace(workload, release=workload.release + from_seconds(LEAD), due=workload.due + from_seconds(LEAD))
    offered = [
        ServiceLoad(
            f"service-{number}",
            load.arrivals + LEAD,
            load.processing,
            load.threshold,
            rate=RATE,
            least=1,
            window=WINDOW,
            warm_up=warm_up,
        )
        for number, load in enumerate(requests)
    ]
    metrics = summarise(run(moved, machines(), policy, world=World(decision_time=late), services=offered))
    return {"services": float(metrics["services_penalty"]), "batch": float(metrics["total_penalty"])}


def twice(policy: str, sample: Sample) -> Twice:
    """Live, and then in the simulator with what was measured."""
    penalties, warm_up, late, course = live(policy, sample)
    return Twice(penalties, simulated(policy, sample, warm_up, late), warm_up, late, course)


def machines() -> tuple[NodeSpec, ...]:
    """The cluster."""
    return (NodeSpec("machine", SLOTS),)


def runs(asked: Asked) -> int:
    """How many live runs it takes."""
    return len(POLICIES)


def perform(asked: Asked, progress: Progress) -> Result:
    """Run the first sample under each policy."""
    sample = draw(asked.log, asked.seeds[0])
    found: dict[str, Twice] = {}
    for top, policy in POLICIES.items():
        found[top] = twice(policy, sample)
        progress(len(found))
    return result(found, sample, open_logs().name)


def result(found: dict[str, Twice], sample: Sample, name: str) -> Result:
    """What the runs say."""
    rows = [
        (top, kind, one.live[kind], one.simulated[kind], one.warm_up, one.late)
        for top, one in found.items()
        for kind in KINDS
    ]
    many = " and ".join(f"{len(load.arrivals):,}" for load in sample.loads)
    return Result(
        about=(
            f"{len(sample.bags)} bags and two services with {many} requests in {sample.seconds:.0f} s on {SLOTS} slots "
            f"of this machine, once under each policy; requests: {name}. The simulator is told how long an instance "
            f"took to start ({_range(one.warm_up for one in found.values())} s) and how much longer than it sleeps a "
            f"task held its slot ({_range(1000 * one.late for one in found.values())} ms)."
        ),
        tables=(_table(found), _expected(found)),
        statements=(),
        columns=("method", "kind", "live", "simulated", "warm_up", "late"),
        rows=rows,
        pictures={
            "fig4-live.png": partial(
                draw_jobs, found["dp"].course, "Figure 4 of Chang16, live: what is expected of single jobs, dp"
            ),
            "fig5-live.png": partial(
                draw_ratios,
                {top: [one.course] for top, one in found.items()},
                SHARES,
                "Figure 5 of Chang16, live: how well the penalty of batch jobs is foreseen",
                {},
            ),
        },
    )


def _expected(found: dict[str, Twice]) -> Table:
    rows = []
    for top, one in found.items():
        looks = [(one.course.ratio(look), len(look.penalties)) for look in one.course.looks]
        rows.append((top, *("" if math.isnan(ratio) else f"{ratio:.2f} ({many})" for ratio, many in looks)))
    columns = ("method", *(f"{share:.0%}" for share in SHARES))
    return Table(
        "Live: expected to final penalty of the open batch jobs, by share of the run (open jobs)", columns, rows
    )


def _table(found: dict[str, Twice]) -> Table:
    columns = (
        "method",
        *(f"{kind}, {where}" for kind in ("total", *KINDS) for where in ("live", "simulated")),
        "live is",
    )
    rows = []
    for top, one in found.items():
        pairs = [(sum(one.live.values()), sum(one.simulated.values()))]
        pairs += [(one.live[kind], one.simulated[kind]) for kind in KINDS]
        cells = [number_text(value) for pair in pairs for value in pair]
        total, foreseen = pairs[0]
        rows.append((top, *cells, f"{total / foreseen - 1:+.1%}" if foreseen else ""))
    return Table("Penalties live and as the simulator foresees them", columns, rows)


def _range(values: Iterable[float]) -> str:
    low, high = min(some := list(values)), max(some)
    return number_text(low) if number_text(low) == number_text(high) else f"{number_text(low)} to {number_text(high)}"


EXPERIMENT: Final = Experiment("live", "Batch jobs and services on this machine, and in the simulator", runs, perform)
