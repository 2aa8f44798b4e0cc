"""All five papers in one scenario, on a real server and in the simulator, from the same files under one policy.

On the private machines, a service and rigid jobs share the slots (Chang16), and the rigid jobs are on two tiers
(MEASY14). Two more sites have bags with due dates (Lin14) and a workflow that needs both of them (DN13). A bag comes
that no own machine can do in time, so that machines are rented for it (Kim12). The tasks are processes that sleep: they
take as long as the files say on any machine, so what happens live can be held against the simulation.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from headway.client.client import Client
from headway.client.replay import job_of
from headway.client.service import Service
from headway.client.waiters import Waiter
from headway.config import read_cluster, read_renting
from headway.errors import HeadwayError
from headway.live.store.backup import back_up
from headway.live.store.decisions import event_of
from headway.live.store.history import reading
from headway.live.store.redeciding import rounds
from headway.live.store.verification import BACKUP
from headway.model.actions import JobStatus
from headway.model.events import JobSubmitted, WindowEnded
from headway.model.instant import NEVER, SECOND, Duration, from_seconds, to_seconds
from headway.model.job import Kind, TaskSpec
from headway.model.renting import UNIT
from headway.model.schedule import Schedule, task_runs
from headway.model.window import Window
from headway.model.workload import Workload, workload_us
from headway.policies import registry
from headway.renting.processes import Processes
from headway.reproduce.chang16.live import Callers, Load
from headway.reproduce.children import Children
from headway.reproduce.live import held_on_server, of_server
from headway.reproduce.server import own_server
from headway.reproduce.tables import Table
from headway.sim.experiment import ServiceLoad, run
from headway.sim.tiers import TwoTiers
from headway.sim.world import World
from headway.traces import read_workload, transforms, write_workload
from headway.traces.services import read_services
from headway.wire import AttemptReport

POLICY: Final = "services:top=dp,kill=true,batch=measy,on=private,keeps=rigid,beside=sites:top=prefer"
"""The border between service and batch jobs, two tiers, and other sites by preference, with renting."""

UNRENTED: Final = f"{POLICY};rent=no"

CLUSTER: Final = """\
# The machines of all five papers in one: `headway up` and `headway simulate` read the same file.

[[node]]
name = "east-1"
site = "east"
slots = 2

[[node]]
name = "west-1"
site = "west"
slots = 3

[[node]]
name = "private-1"
site = "private"
slots = 6

[[offer]]
site = "public"
type = "large"
slots = 6
price = 27      # an hour: 0.0075 a second
minimum = 20    # seconds that are billed at least
start = 2
limit = 2

[renting]
budget_job = 5

[[provider]]
site = "public"
provider = "processes"
folder = "machines"
command = ["sleep", "600"]
"""

SERVICE: Final = "web"
PROCESSING: Final = 0.15
THRESHOLD: Final = 0.4
FRACTION: Final = 0.9
RATE: Final = 1000.0
WINDOW: Final = 3.0
MOST: Final = 5
WARM_UP: Final = 0.3

QUIET: Final = 3
BUSY: Final = 18
"""Requests in a second, usually and in the rush."""

RUSH: Final = (15.0, 30.0)
FIRST: Final = 3.0
LAST: Final = 42.0
"""When requests come, in seconds since the service came; so long they come."""

LATE: Final = "report"
"""The bag whose due date only rented machines can save."""

END_SECONDS: Final = 150.0
"""A live run fails if it takes longer."""

LOOK_SECONDS: Final = 0.1

SLEEPING: Final = TwoTiers(loss=(0.0, 0.0), single=(1.0, 1.0), several=(1.0, 0.0, 1.0, 1.0))
"""Processes that sleep do not slow each other, so a job in the background is as fast as in the foreground."""

ON_TIERS: Final = ("front", "wide", "third", "fourth")

Tell = Callable[[str], object]


def jobs() -> tuple[Workload, Workload]:
    """The bags and rigid jobs, and the workflow."""
    rows = (  # label, kind, release, tasks, width, run time, due
        ("nightly", Kind.BAG, 3.0, 6, 1, 3.0, 33.0),
        ("front", Kind.RIGID, 3.2, 1, 3, 3.0, 12.0),
        ("wide", Kind.RIGID, 3.5, 1, 4, 6.6, 14.0),
        ("third", Kind.RIGID, 11.2, 1, 2, 12.0, 24.5),
        ("fourth", Kind.RIGID, 11.5, 1, 2, 8.5, 21.0),
        (LATE, Kind.BAG, 25.0, 20, 1, 4.0, 35.5),
    )
    label, kind, release, tasks, width, runtime, due = zip(*rows, strict=True)
    runtimes = list(map(from_seconds, runtime))
    table = workload_us(
        label=label,
        kind=list(map(int, kind)),
        release=list(map(from_seconds, release)),
        tasks=tasks,
        width=width,
        runtime=runtimes,
        estimate=runtimes,
        due=list(map(from_seconds, due)),
        cpu=[0.3 if one is Kind.RIGID else float("nan") for one in kind],
    )
    part = TaskSpec(3 * SECOND, after=(0,))
    graph = (
        *(TaskSpec(2 * SECOND), part, part, part, part),
        *(TaskSpec(3 * SECOND, cores=3, after=(1, 2, 3, 4)), TaskSpec(SECOND, after=(5,))),
    )
    flow = workload_us(
        label=["flow"],
        kind=int(Kind.WORKFLOW),
        release=[7 * SECOND],
        tasks=len(graph),
        runtime=[2 * SECOND],
        estimate=[2 * SECOND],
        due=[48 * SECOND],
        workflows={0: graph},
    )
    return table, flow


def arrivals(seed: int) -> list[float]:
    """When requests come, in seconds since the service came: each at random in its part of a second."""
    chance = np.random.default_rng(seed)
    found: list[float] = []
    for begin, end, rate in ((FIRST, RUSH[0], QUIET), (*RUSH, BUSY), (RUSH[1], LAST, QUIET)):
        number = round((end - begin) * rate)
        found += np.round(begin + (np.arange(number) + chance.uniform(0, 1, number)) / rate, 4).tolist()
    return found


@dataclass(frozen=True, slots=True)
class Files:
    """The files of the scenario, in one folder."""

    folder: Path

    @property
    def cluster(self) -> Path:
        """The machines, what can be rented, and who rents it out."""
        return self.folder / "cluster.toml"

    @property
    def jobs(self) -> tuple[Path, Path]:
        """Bags and rigid jobs; the workflow."""
        return self.folder / "jobs.csv", self.folder / "flow.json"

    @property
    def services(self) -> Path:
        """The table of services, which names the file of requests."""
        return self.folder / "services.csv"

    @property
    def machines(self) -> Path:
        """What the provider of rented machines keeps."""
        return self.folder / "machines"

    @property
    def journal(self) -> Path:
        """A backup of the data directory of the live run, with its journal, when that is over."""
        return self.folder / "journal"

    def write(self, seed: int) -> None:
        """Write those that say what is to run.

        Raises:
            HeadwayError: one cannot be written.
        """
        try:
            self.cluster.write_text(CLUSTER, "utf-8")
            with (self.folder / "requests.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([("arrival",), *((at,) for at in arrivals(seed))])
            columns = ("service", "requests", "processing", "threshold", "fraction", "rate", "min", "max", "window")
            terms = (SERVICE, "requests.csv", PROCESSING, THRESHOLD, FRACTION, RATE, 1, MOST, WINDOW)
            with self.services.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([(*columns, "warm_up"), (*terms, WARM_UP)])
        except OSError as error:
            raise HeadwayError(f"cannot write {error.filename}: {error.strerror}") from error
        for workload, path in zip(jobs(), self.jobs, strict=True):
            write_workload(workload, path)

    def workload(self) -> Workload:
        """All jobs, as the files say."""
        return transforms.together(*map(read_workload, self.jobs))

    def service(self) -> dict[str, Any]:
        """The terms of the service, as the table says: the arguments of `ServiceLoad`."""
        (terms,) = read_services(self.services).terms
        return terms


# What came of it


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a job; times in seconds since the service came.

    Attributes:
        tiers: where it ran, one letter for each stay: f in the foreground, b in the background, x where its work was
            lost.
        nodes: where it ran.
    """

    start: float
    end: float
    late: bool
    tiers: str
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the scenario.

    Attributes:
        jobs: what became of each, by name.
        machines: the nodes that were rented, in order.
        money: what they cost.
        instances: how many instances the service had in each window, on average.
        shares: which share of the answers of each window was in time.
        in_time: that of all windows together.
        schedule: all of it, for pictures.
    """

    jobs: Mapping[str, Fate]
    machines: tuple[str, ...]
    money: float
    instances: tuple[float, ...]
    shares: tuple[float, ...]
    in_time: float
    schedule: Schedule

    @property
    def late(self) -> frozenset[str]:
        """The jobs that were late."""
        return frozenset(name for name, fate in self.jobs.items() if fate.late)

    def sites(self, name: str) -> tuple[str, ...]:
        """The sites where a job ran."""
        return tuple(sorted({node.rpartition("-")[0] for node in self.jobs[name].nodes}))

    def share_in(self, begin: float, end: float) -> float:
        """The least share in time of the windows that lie between two instants."""
        inside = [
            share
            for number, share in enumerate(self.shares)
            if begin <= number * WINDOW and (number + 1) * WINDOW <= end
        ]
        return min(inside)


def outcome(schedule: Schedule, names: list[str], zero: int, windows: tuple[Window, ...]) -> Outcome:
    """What a schedule says, live or simulated.

    Args:
        names: of its jobs, in its order.
        zero: when the service came, on the clock of the schedule.
        windows: of the service.
    """
    assert schedule.attempts is not None
    attempts, found = schedule.attempts, {}
    for place, name in enumerate(names):
        mine = np.flatnonzero(attempts.job == place)
        columns = (attempts.start, attempts.task, attempts.behind, attempts.wasted)
        stays = sorted({tuple(row) for row in zip(*(column[mine].tolist() for column in columns), strict=True)})
        tiers = "".join("x" if lost else "b" if behind else "f" for _, _, behind, lost in stays)
        end, due = int(schedule.end[place]), int(schedule.due[place])
        found[name] = Fate(
            to_seconds(int(schedule.start[place]) - zero),
            to_seconds(end - zero),
            due < NEVER and end > due,
            tiers,
            frozenset(node for run_ in task_runs(schedule, place) for node in run_.nodes),
        )
    came = sum(window.arrivals for window in windows)
    return Outcome(
        found,
        tuple(row.node for row in schedule.rentals),
        sum(row.cost for row in schedule.rentals) / UNIT,
        tuple(window.instances for window in windows),
        tuple(window.share for window in windows),
        sum(window.in_time for window in windows) / came if came else 1.0,
        schedule,
    )


def simulated(files: Files, policy: str = POLICY, *, warm_up: float | None = None, late: float = 0.0) -> Outcome:
    """The scenario in the simulator.

    Args:
        warm_up: how long an instance takes to start, in seconds; None: as the file says.
        late: so much longer than it sleeps a task holds its slot, in seconds.
    """
    workload, terms = files.workload(), files.service()
    if warm_up is not None:
        terms = terms | {"warm_up": warm_up}
    schedule = run(
        workload,
        read_cluster(files.cluster, simulated=True),
        policy,
        services=[ServiceLoad(**terms)],
        renting=read_renting(files.cluster),
        world=World(decision_time=late, tiers=SLEEPING),
        record=True,
    )
    return outcome(schedule, [str(name) for name in schedule.label.tolist()], 0, schedule.services[0].windows)


# Live


@dataclass(frozen=True, slots=True)
class Lived:
    """A live run.

    Attributes:
        warm_up: how long instances took to start on average, in seconds.
        late: by how many seconds a task held its slot longer than it slept, on average.
        rounds: how many rounds are in the journal.
        others: in how many of them the policy, asked again, decides otherwise than it did.
    """

    outcome: Outcome
    warm_up: float
    late: float
    rounds: int
    others: int


def live(files: Files, tell: Tell = lambda sentence: None) -> Lived:
    """The scenario on a server of its own, whose journal is kept among the files.

    Args:
        tell: gets a sentence about each thing as it happens.

    Raises:
        HeadwayError: the server does not start, a request has no answer, a job does not end in time or fails, or
            there is something else where the journal is to be.
    """
    if (files.journal / BACKUP).exists():
        shutil.rmtree(files.journal)  # of an earlier run
    elif files.journal.exists():
        raise HeadwayError(f"{files.journal} is there already, and no backup of a journal", "Name another folder.")
    forget_machines(files.machines)  # of an earlier run that was killed
    with TemporaryDirectory(prefix="headway-together-") as name:
        data = Path(name) / "data"
        data.mkdir()
        try:
            with Children(Path(name) / "processes", Path(name)) as children:
                with (
                    own_server(data, files.cluster, POLICY, children.environment("server")) as server,
                    Client(data=data) as client,
                ):
                    tell(f"A server is up at {server['url']}, with one policy for everything:\n{POLICY}")
                    client.choose_policy(period=0)  # as in the simulation, the policy runs only when something happens
                    _Run(files, client, server["url"], (data / "token").read_text("utf-8").strip(), tell).perform()
                back_up(data, files.journal)
        finally:
            forget_machines(files.machines)
    return recorded(files)


def forget_machines(folder: Path) -> None:
    """End the machines that a server may have left in this folder; what else is there stays."""
    if not folder.is_dir():
        return
    provider = Processes(folder, (), "")
    for file in sorted(folder.glob("*.machine")):
        while not asyncio.run(provider.end(file.stem)):
            time.sleep(LOOK_SECONDS)
    with contextlib.suppress(OSError):  # somebody has other files there
        folder.rmdir()


def recorded(files: Files) -> Lived:
    """What the journal of a live run says of the scenario."""
    data = files.journal
    whole, times = of_server(data, record=True), held_on_server(data)
    windows, service, zero = [], -1, 0
    names: dict[int, str] = {}
    with reading(data) as beginning:
        for kind, body in beginning.rows:
            event = event_of(kind, body)
            if isinstance(event, WindowEnded):
                windows.append(event.window)
            elif isinstance(event, JobSubmitted) and event.job.kind is Kind.SERVICE:
                service, zero = event.job.id, event.at
            elif isinstance(event, JobSubmitted):
                names[event.job.id] = event.job.name
    taken: dict[str, list[Duration]] = {}
    for (job, _), took in times.items():
        if job != service:
            taken.setdefault(names[job], []).append(took)
    late = _lateness(files.workload(), taken)
    labels = [names.get(label, SERVICE) for label in whole.label.tolist()]
    warm_up = next((window.warm_up / SECOND for window in reversed(windows) if window.warm_up), WARM_UP)
    found = outcome(replace(whole, label=np.array(labels)), labels, zero, tuple(windows))
    jobs = {name: fate for name, fate in found.jobs.items() if name != SERVICE}
    again = list(rounds(data, registry.find))
    others = sum(one.difference is not None for one in again)
    return Lived(replace(found, jobs=jobs), warm_up, late, len(again), others)


def _lateness(workload: Workload, taken: Mapping[str, Sequence[Duration]]) -> float:
    """By how many seconds a task held its slot longer than it slept, on average.

    Jobs on two tiers do not count: behind others, they have no slot to themselves.
    """
    late = tasks = 0
    for place, name in enumerate(map(str, workload.label.tolist())):
        if name not in ON_TIERS:
            graph = workload.workflows.get(place, ())
            slept = sum([task.estimate for task in graph]) or int(workload.runtime[place]) * len(taken[name])
            late, tasks = late + sum(taken[name]) - slept, tasks + len(taken[name])
    return max(0.0, to_seconds(late) / tasks)


class _Run:
    """One live run: what is submitted and asked at which time, and what is told of it."""

    def __init__(self, files: Files, client: Client, url: str, token: str, tell: Tell) -> None:
        self._client = client
        self._workload = files.workload()
        self._tell = tell
        self._over = threading.Event()
        self._waiters: dict[str, Waiter] = {}
        self._terms = files.service()
        arrivals = np.asarray(self._terms["arrivals"])
        self._callers = Callers(url, token, SERVICE, Load(arrivals, np.full(len(arrivals), self._terms["processing"])))
        self._last = float(arrivals[-1])
        self._said: set[object] = set()
        self._instances = 0

    def perform(self) -> None:
        """All of it.

        Raises:
            HeadwayError: a request has no answer, or a job does not succeed in time.
        """
        agreed = {name: self._terms[name] for name in ("threshold", "fraction", "rate", "window", "least", "most")}
        begin = time.monotonic()
        served = self._client.serve(Service(SERVICE, time.sleep, **agreed))
        with ThreadPoolExecutor(2) as threads:
            try:
                doing = [threads.submit(self._submit, begin), threads.submit(asyncio.run, self._ask(begin))]
                while not all(one.done() for one in doing) or not self._all_ended():
                    self._look(time.monotonic() - begin)
                    for one in doing:
                        if one.done():
                            one.result()
                    if time.monotonic() - begin > END_SECONDS:
                        raise HeadwayError(f"the jobs did not end within {END_SECONDS:.0f} s")
                    time.sleep(LOOK_SECONDS)
            finally:
                self._over.set()
        if self._callers.failed:
            raise HeadwayError(f"{self._callers.failed} requests had no answer")
        time.sleep(max(0.0, begin + self._last + WINDOW + THRESHOLD - time.monotonic()))  # its window ends
        self._client.cancel(served)
        self._client.wait(served, timeout=END_SECONDS)
        for name, waiter in self._waiters.items():
            if (status := self._client.job(waiter.job).job.status) is not JobStatus.SUCCEEDED:
                raise HeadwayError(f"job {name} has not succeeded: it is {status.value}")
        self._until_given_back()

    def _submit(self, begin: float) -> None:
        for place, name in enumerate(map(str, self._workload.label.tolist())):
            job = job_of(self._workload, place)
            job.name = name
            wait = begin + to_seconds(int(self._workload.release[place])) - time.monotonic()
            if self._over.wait(max(0.0, wait)):
                return
            due = f", due in {job.due:.1f} s" if isinstance(job.due, float) else ""
            self._waiters[name] = self._client.submit(job)
            self._tell(f"Job {name} comes: {FORMS[name]}{due}.")

    async def _ask(self, begin: float) -> None:
        loop = asyncio.get_running_loop()
        asking = loop.create_task(self._callers.run(loop.time() + begin - time.monotonic()))
        while not asking.done():
            if self._over.is_set():
                asking.cancel()
            await asyncio.wait([asking], timeout=LOOK_SECONDS)
        if not asking.cancelled():
            await asking

    def _all_ended(self) -> bool:
        return len(self._waiters) == len(self._workload) and all(waiter.done() for waiter in self._waiters.values())

    def _until_given_back(self) -> None:
        end = time.monotonic() + END_SECONDS
        while self._client.rentals().rentals:
            if time.monotonic() > end:
                raise HeadwayError("rented machines were not given back")
            time.sleep(LOOK_SECONDS)

    # What is told

    def _once(self, key: object, sentence: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self._tell(sentence)

    def _look(self, now: float) -> None:
        """Tell what is new."""
        if RUSH[0] <= now < RUSH[1]:
            self._once(
                "rush", f"A rush: {BUSY} requests a second instead of {QUIET}, each of which takes {PROCESSING} s."
            )
        elif now >= RUSH[1]:
            self._once("calm", "The rush is over.")
        report = self._client.service(SERVICE)
        if now > FIRST and report.running != self._instances:
            self._instances = report.running
            self._tell(f"Chang16: the service {SERVICE} has {report.running} of the 6 private slots.")
        for name, waiter in list(self._waiters.items()):
            if waiter.done():
                ended = self._client.job(waiter.job).job
                if ended.due is not None and ended.ended is not None:
                    spare = ended.due - ended.ended
                    side = "before" if spare >= 0 else "after"
                    self._once((name, "ended"), f"Job {name} has ended, {abs(spare):.1f} s {side} its due date.")
                continue
            runs = self._client.job(waiter.job).attempts
            if name in ON_TIERS and runs:
                self._told_tiers(name, runs[0])
            for site in sorted({slot.partition("-")[0] for run_ in runs for slot in run_.slots}):
                if name == "flow":
                    self._once((name, site), f"DN13: tasks of the workflow run at site {site}.")
                if name == LATE and site == "public":
                    self._once((name, site), f"Kim12: tasks of {name} run on rented machines.")
        for rental in self._client.rentals().rentals:
            self._once(("rented", rental.rental), f"Kim12: machine {rental.node} is rented, {rental.why}.")

    def _told_tiers(self, name: str, run_: AttemptReport) -> None:
        if run_.attempt > 1:
            self._once(
                (name, "again"),
                f"Chang16: job {name} gave its slots to the service, and begins again (MEASY14).",
            )
        if run_.tier == "background":
            self._once((name, run_.attempt, "b"), f"MEASY14: job {name} runs in the background of other jobs' slots.")
        elif (name, run_.attempt, "b") in self._said:
            self._once((name, run_.attempt, "f"), f"MEASY14: job {name} goes on in the foreground, without a restart.")


FORMS: Final = {
    "nightly": "6 tasks of 3 s (Lin14: a bag with a due date)",
    "front": "3 slots at once for 3 s (MEASY14: a rigid job)",
    "wide": "4 slots at once for 6.6 s, more than are free",
    "flow": "a workflow of 7 tasks; one needs 3 cores, which only site west has (DN13)",
    "third": "2 slots at once for 12 s",
    "fourth": "2 slots at once for 8.5 s",
    LATE: "20 tasks of 4 s, too many for the 5 slots of east and west",
}
"""What the jobs are, in words."""


# Both beside each other


def compared(runs: Mapping[str, Outcome]) -> Table:
    """A column for each run: ends, misses, tiers, sites, money and answers.

    Args:
        runs: by what they are, in words.
    """
    some = list(runs.values())
    rows: list[tuple[str, ...]] = []
    for name in some[0].jobs:
        fates = [one.jobs[name] for one in some]
        rows.append((f"{name} ends", *(f"{fate.end:.1f} s{' late' * fate.late}" for fate in fates)))
        if name in ON_TIERS:
            rows.append((f"{name} ran", *(tier_words(fate.tiers) for fate in fates)))
        else:
            rows.append((f"{name} ran at", *(", ".join(one.sites(name)) for one in some)))
    rows.append(("late jobs", *(", ".join(sorted(one.late)) or "none" for one in some)))
    rows.append(("machines rented", *(str(len(one.machines)) for one in some)))
    rows.append(("money", *(f"{one.money:.2f}" for one in some)))
    rows.append(("answers in time", *(f"{one.in_time:.0%}" for one in some)))
    rows.append((f"in time from {STEADY[0]:.0f} s on", *(f"{one.share_in(*STEADY):.0%}" for one in some)))
    rows.append(("slots of the service", *(span_of(one.instances) for one in some)))
    return Table("The same files live and in the simulator", ("", *runs), rows)


def told(found: Outcome) -> dict[str, Any]:
    """An outcome for programs; times in seconds since the service came."""
    return {
        "jobs": {
            name: {
                "start": fate.start,
                "end": fate.end,
                "late": fate.late,
                "stays": tier_words(fate.tiers).split(", ") if name in ON_TIERS else None,
                "sites": found.sites(name),
            }
            for name, fate in found.jobs.items()
        },
        "late": sorted(found.late),
        "machines": found.machines,
        "money": found.money,
        "answers_in_time": found.in_time,
        "windows": [
            {"instances": some, "in_time": share} for some, share in zip(found.instances, found.shares, strict=True)
        ],
    }


STEADY: Final = (RUSH[0] + 2 * WINDOW, LAST)
"""The windows behind the two in which the border follows the rush."""


def tier_words(tiers: str) -> str:
    """Where a job ran, in words.

    >>> tier_words("bf"), tier_words("f"), tier_words("xbf")
    ('behind, in front', 'in front', 'lost, behind, in front')
    """
    words = {"f": "in front", "b": "behind", "x": "lost"}
    return ", ".join(words[tier] for tier in tiers)


def span_of(instances: Sequence[float]) -> str:
    """The least and the greatest number of slots in the windows with requests."""
    there = [round(one) for one in instances[1:]]
    return f"{min(there)} to {max(there)}"


def disagreements(live_: Outcome, simulated_: Outcome) -> list[str]:
    """What should be equal live and simulated, and is not, in sentences."""
    found = []
    if live_.late != simulated_.late:
        found.append(f"late live: {sorted(live_.late)}; simulated: {sorted(simulated_.late)}")
    if live_.machines != simulated_.machines:
        found.append(f"rented live: {live_.machines}; simulated: {simulated_.machines}")
    if live_.money != simulated_.money:
        found.append(f"paid live: {live_.money:.2f}; simulated: {simulated_.money:.2f}")
    for name, fate in simulated_.jobs.items():
        if name in ON_TIERS and live_.jobs[name].tiers != fate.tiers:
            found.append(f"{name} live: {tier_words(live_.jobs[name].tiers)}; simulated: {tier_words(fate.tiers)}")
        if live_.sites(name) != simulated_.sites(name):
            found.append(f"{name} ran live at {live_.sites(name)}; simulated: {simulated_.sites(name)}")
    return found
