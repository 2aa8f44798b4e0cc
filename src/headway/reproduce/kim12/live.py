"""Kim12 live: real tasks with due dates on this machine, with Dask and on rented machines, and the same simulated.

A server has one cluster file with three sites: the grid is this machine, the private cloud a Dask of two workers, and
the public cloud rents instances of a real `moto` server. Each instance that runs is a process, which joins a second
Dask as a worker. Bags of tasks that sleep come for half a minute. Two of the tasks take four times as long as expected.

The simulator gets the same bags, with the run times that they really have, and the same cluster file. It is asked a
second time with what was measured live: when each job came, how long each task had its slot, and how long a machine
took to join; the policy knows no more than live. And it is asked 20 more times with run times that are off by 1 %: how
much hangs on milliseconds?

An hour of EC2 takes 20 seconds here, so that what is billed by the hour is billed in whole periods of 20 s.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np

from headway.client.client import Client
from headway.client.replay import Replay
from headway.config import read_renting, read_terms
from headway.errors import HeadwayError
from headway.model.instant import HOUR, NEVER, SECOND, from_seconds, to_seconds
from headway.model.job import Kind
from headway.model.node import NodeSpec
from headway.model.renting import UNIT, Offer, Renting
from headway.model.schedule import RentalRow, Schedule
from headway.model.site import SiteTerms
from headway.model.workload import BagTimes, Workload, workload_us
from headway.reproduce.children import Children
from headway.reproduce.experiment import Progress, Result
from headway.reproduce.kim12 import dask
from headway.reproduce.kim12.ec2 import CREDENTIALS, REGION, Moto
from headway.reproduce.kim12.sites import GRID, INITIAL, METHODS, OURS, PAPER, PRIVATE, PUBLIC
from headway.reproduce.live import as_held, held_on_server, of_server
from headway.reproduce.server import own_server, table
from headway.reproduce.tables import Table
from headway.sim.experiment import run
from headway.sim.world import World
from headway.traces.transforms import with_load

METHODS_OF: Final = {"initial": INITIAL, "adaptive": PAPER, "ours": OURS}
"""The methods that rent, by short names."""

TASKS: Final = 100
DELAYED: Final = 2
"""So many tasks are delayed on purpose, of as many jobs."""

DELAY: Final = 4.0
"""Such a task takes so many times as long as expected."""

TOGETHER: Final = 10
"""A bag has at most so many tasks."""

SECONDS: Final = (1.0, 4.0)
"""The mean run time of a bag's tasks is drawn from this range."""

APART: Final = 0.3
"""A task's run time is off its bag's mean by at most such a share; how much is known."""

TIGHT: Final = (3.0, 6.0)
"""Due dates are so many times as long after the release as the bag takes on an empty grid."""

LOAD: Final = 2.0
"""The work of all bags divided by what the grid can do while they come: so that one site is not enough."""

OWN: Final = (NodeSpec("g1", 2, site=GRID), NodeSpec("g2", 2, site=GRID))
WORKERS: Final = ("p1", "p2")
"""Of the private cloud, with one slot each."""

SITES: Final = (GRID, PRIVATE, PUBLIC)

PERIOD: Final = 20.0
"""Seconds that stand for an hour of EC2."""

TYPES: Final = {"c5.large": (2, 0.096), "c5.xlarge": (4, 0.192)}
"""Slots, and the price of an hour in that region."""

START: Final = 6.0
STARTUP: Final = 0.02
"""Seconds that the cluster file says: until a machine has joined, and until a task begins, at each site."""

MARGIN: Final = 3.0
"""Seconds before the end of a period at which an idle machine is given back."""

MACHINES_AT_ONCE: Final = 3
"""Machines of a type at once: each is a process of this machine, after all."""

FIND_SECONDS: Final = 60.0
END_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 0.2

NEAR: Final = 20
NOISE: Final = 0.01
"""So many simulations with run times that are off by so much: about what a run time on a real machine is off by."""

LIVE, SIMULATED, MEASURED = "live", "simulated", "simulated, as measured"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for.

    Attributes:
        tasks: how many run, `DELAYED` or more.
        seed: fixes them.
        methods: of `METHODS`, one after the other.
    """

    tasks: int = TASKS
    seed: int = 0
    methods: tuple[str, ...] = tuple(METHODS_OF.values())


class TaskRow(NamedTuple):
    """A task that has ended; times in seconds since the first job came."""

    job: int
    task: int
    site: str
    start: float
    end: float


@dataclass(frozen=True)
class Ran:
    """What came of the jobs, live or simulated."""

    schedule: Schedule

    @property
    def _begin(self) -> int:
        return int(self.schedule.release[0])

    def since(self, instant: int) -> float:
        """Seconds since the first job came."""
        return to_seconds(instant - self._begin)

    @cached_property
    def tasks(self) -> list[TaskRow]:
        """Each task once, by job and number: where it ran in the end."""
        ran = self.schedule.attempts
        assert ran is not None
        kept = np.flatnonzero(~ran.wasted)
        columns = (ran.job[kept], ran.task[kept], ran.node[kept], ran.start[kept], ran.end[kept])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return sorted(
            TaskRow(job, task, self.schedule.nodes[node][0].site, self.since(start), self.since(end))
            for job, task, node, start, end in rows
        )

    def due(self, job: int) -> float:
        """When a job is due."""
        return self.since(int(self.schedule.due[job]))

    @property
    def late_tasks(self) -> list[TaskRow]:
        """Tasks that ended after their job was due."""
        return [one for one in self.tasks if one.end > self.due(one.job)]

    @property
    def late_jobs(self) -> dict[int, float]:
        """The jobs that ended after they were due, and how many seconds after."""
        late = to_seconds(1) * (self.schedule.end - self.schedule.due)
        return {int(job): float(late[job]) for job in np.flatnonzero(late > 0)}

    @property
    def at_sites(self) -> Counter[str]:
        """How many tasks ran at each site."""
        return Counter(one.site for one in self.tasks)

    @property
    def rentals(self) -> tuple[RentalRow, ...]:
        """The machines that were rented."""
        return self.schedule.rentals

    @property
    def money(self) -> float:
        """What they cost."""
        return sum(one.cost for one in self.rentals) / UNIT

    def joined_after(self) -> list[float]:
        """For each machine that has joined, seconds from asking for it until then."""
        asked = {one.node: one.asked for one in self.rentals}
        first: dict[str, int] = {}
        for node, since, _, _ in self.schedule.present:
            first.setdefault(self.schedule.nodes[node][0].name, since)
        return [to_seconds(first[name] - at) for name, at in asked.items() if name in first]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured live.

    Attributes:
        took: by the id of its job and its number, how long each task had its slot beyond what the cluster file says.
        longer: by site, seconds by which a task had its slot longer than it slept, in the mean.
        start: seconds from asking for a machine until it had joined, in the mean; those of the cluster file if none was
            rented.
    """

    took: Mapping[tuple[int, int], int]
    longer: Mapping[str, float]
    start: float


@dataclass(frozen=True, slots=True)
class Twice:
    """The same jobs under one method.

    Attributes:
        runs: `LIVE`, `SIMULATED` and `MEASURED`.
        measured: what the last one was told.
        near: simulations like that one, with run times that are a little off.
    """

    runs: Mapping[str, Ran]
    measured: Measured
    near: Sequence[Ran]


def sample(tasks: int = TASKS, seed: int = 0) -> Workload:
    """Bags with due dates. The longest task of two of them is delayed: a third and two thirds on their way."""
    chance = np.random.default_rng((seed, tasks))
    counts = list[int]()
    while (left := tasks - sum(counts)) > 0:
        counts.append(min(left, int(chance.integers(1, TOGETHER + 1))))
    many, grid = len(counts), sum(node.slots for node in OWN)
    means = chance.uniform(*SECONDS, many)
    sizes = [1 + chance.uniform(-APART, APART, number) for number in counts]
    expected = [
        np.round(mean * size / size.mean() * SECOND).astype(np.int64) for mean, size in zip(means, sizes, strict=True)
    ]
    really = [one.copy() for one in expected]
    for number in range(1, DELAYED + 1):
        job = number * many // (DELAYED + 1) if many > DELAYED else (number - 1) % many
        longest = int(expected[job].argmax())
        really[job][longest] = round(DELAY * int(expected[job][longest]))
    mean_times = [round(float(one.mean())) for one in expected]
    gaps = chance.exponential(1.0, many)
    plain = workload_us(
        release=np.round((gaps.cumsum() - gaps[0]) * SECOND).astype(np.int64),
        runtime=mean_times,
        estimate=mean_times,
        tasks=counts,
        kind=int(Kind.BAG),
        bags={
            job: BagTimes(tuple(times.tolist()), sizes=tuple((known / mean).tolist()))
            for job, (times, known, mean) in enumerate(zip(really, expected, mean_times, strict=True))
        },
    )
    loaded = with_load(plain, LOAD, grid) if many > 1 else plain
    alone = np.array([max(int(one.max()), int(one.sum()) // grid) for one in expected])
    due = loaded.release + np.round(alone * chance.uniform(*TIGHT, many)).astype(np.int64)
    return replace(loaded, due=due)


def delayed(jobs: Workload) -> list[str]:
    """The tasks that take much longer than expected, as job and number."""
    return [
        f"{job}.{task}"
        for job, bag in jobs.bags.items()
        for task, (time_, size) in enumerate(zip(bag.tasks, bag.sizes, strict=True))
        if time_ > (1 + DELAY) / 2 * size * int(jobs.runtime[job])
    ]


def offers() -> tuple[Offer, ...]:
    """What can be rented."""
    return tuple(
        Offer(
            PUBLIC,
            kind,
            slots,
            round(price * UNIT * HOUR / from_seconds(PERIOD)),
            period=from_seconds(PERIOD),
            minimum=from_seconds(PERIOD),
            start_time=from_seconds(START),
            limit=MACHINES_AT_ONCE,
        )
        for kind, (slots, price) in TYPES.items()
    )


def _user_data(address: str) -> str:
    """The script that an instance runs: it is a worker of Dask with as many slots as its type has."""
    threads = " ".join(f"{kind}) threads={slots};;" for kind, (slots, _) in TYPES.items())
    quiet = "".join(f"export {name}={text}\n" for name, text in dask.QUIET.items())
    worker = " ".join([sys.executable, *dask.worker_words(address, "{node}", "$threads", "$TMPDIR")])
    return f"#!/bin/sh\n{quiet}case {{type}} in {threads} esac\nexec {worker}\n"


def _tables(words: str, fields: Mapping[str, object]) -> str:
    return f"[{words}]\n" + "".join(f"{name} = {json.dumps(told)}\n" for name, told in fields.items())


def cluster_text(addresses: Mapping[str, str], moto: Moto, folder: Path) -> str:
    """The cluster file: the sites in order of preference, the nodes of this machine, and what can be rented."""
    parts = [_tables("[site]", {"name": GRID, "startup": STARTUP})]
    parts += [
        _tables(
            "[site]",
            {"name": name, "engine": "dask", "address": address, "folder": str(folder), "startup": STARTUP},
        )
        for name, address in addresses.items()
    ]
    parts += map(table, OWN)
    parts += [
        _tables(
            "[offer]",
            {
                "site": one.site,
                "type": one.type,
                "slots": one.slots,
                "price": one.price / UNIT,
                "billed": to_seconds(one.period),
                "minimum": to_seconds(one.minimum),
                "start": to_seconds(one.start_time),
                "limit": one.limit,
            },
        )
        for one in offers()
    ]
    parts.append(_tables("renting", {"margin": MARGIN}))
    rented_out = {"site": PUBLIC, "provider": "aws", "region": REGION, "image": moto.image, "endpoint": moto.endpoint}
    parts.append(_tables("[provider]", {**rented_out, "user_data": _user_data(addresses[PUBLIC])}))
    return "\n".join(parts)


def twice(method: str, jobs: Workload, ended: Progress = lambda tasks: None) -> Twice:
    """Run jobs live under a method, and then in the simulator.

    Args:
        ended: told how many tasks have ended live.

    Raises:
        HeadwayError: something does not start, or a job does not succeed.
    """
    policy = METHODS[method][0]
    with TemporaryDirectory(prefix="headway-reproduce-") as name:
        data = Path(name) / "data"
        with Children(Path(name) / "machines", Path(name)) as children, Moto(children) as moto:
            addresses = {PRIVATE: dask.started(children, PRIVATE, WORKERS), PUBLIC: dask.started(children, PUBLIC)}
            file = Path(name) / "cluster.toml"
            file.write_text(cluster_text(addresses, moto, children.place("agents")), "utf-8")
            data.mkdir()
            environment = CREDENTIALS | children.environment("server")
            with own_server(data, file, policy, environment), Client(data=data) as client:
                client.choose_policy(period=0)  # as in the simulation, the policy runs only when something happens
                nodes = _found(client, children)
                _run(client, jobs, ended)
            if moto.trouble:
                raise HeadwayError(f"the instances were not run: {moto.trouble[0]}", children.said("moto"))
        live = Ran(of_server(data, record=True))
        if len(live.tasks) < int(jobs.tasks.sum()):
            raise HeadwayError(f"only {len(live.tasks)} of {int(jobs.tasks.sum())} tasks succeeded under {policy}")
        terms, renting = read_terms(file), read_renting(file)
        assert renting is not None
        measured = _measured(live, jobs, held_on_server(data))
    begin = live.schedule.release[0]
    as_came = replace(
        as_held(jobs, live.schedule, measured.took),
        release=live.schedule.release - begin,
        due=live.schedule.due - begin,
    )
    foreseen = {
        SIMULATED: simulated(jobs, nodes, method, terms, renting),
        MEASURED: simulated(as_came, nodes, method, terms, renting, World(machine_start=measured.start)),
    }
    worlds = [World(machine_start=measured.start, noise=NOISE, seed=seed) for seed in range(NEAR)]
    near = [simulated(as_came, nodes, method, terms, renting, world) for world in worlds]
    return Twice({LIVE: live, **foreseen}, measured, near)


def simulated(
    jobs: Workload,
    nodes: Sequence[NodeSpec],
    method: str,
    terms: Sequence[SiteTerms],
    renting: Renting,
    world: World | None = None,
) -> Ran:
    """Jobs under a method in the simulator."""
    return Ran(run(jobs, nodes, METHODS[method][0], world=world, sites=terms, renting=renting, record=True))


def _found(client: Client, children: Children) -> tuple[NodeSpec, ...]:
    """The nodes, when those of Dask are there too.

    Raises:
        HeadwayError: they are not in time.
    """
    end, wanted = time.monotonic() + FIND_SECONDS, len(OWN) + len(WORKERS)
    while True:
        nodes = [NodeSpec(one.name, len(one.slots), one.speed, site=one.site) for one in client.nodes() if one.up]
        if len(nodes) == wanted:
            return tuple(sorted(nodes, key=lambda one: (SITES.index(one.site), one.name)))
        if time.monotonic() > end:
            raise HeadwayError(f"{len(nodes)} of {wanted} nodes are there", children.said(WORKERS[0]))
        time.sleep(LOOK_SECONDS)


def _run(client: Client, jobs: Workload, ended: Progress) -> None:
    """Submit the jobs, and wait until they have ended and every machine is given back.

    Raises:
        HeadwayError: that takes too long.
    """
    replay = Replay(client, jobs)
    replay.submit()
    end = time.monotonic() + END_SECONDS
    while replay.ended < len(jobs) or client.rentals().rentals:
        ended(sum(waiter.progress[0] for waiter in replay.waiters))
        if time.monotonic() > end:
            raise HeadwayError(f"the live run did not end within {END_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)


def _measured(live: Ran, jobs: Workload, held: Mapping[tuple[int, int], int]) -> Measured:
    took: dict[tuple[int, int], int] = {}
    longer: dict[str, list[float]] = {}
    for one in live.tasks:
        key = int(live.schedule.label[one.job]), one.task
        longer.setdefault(one.site, []).append(to_seconds(held[key] - jobs.bags[one.job].tasks[one.task]))
        took[key] = max(1, held[key] - from_seconds(STARTUP))
    taken = live.joined_after()
    return Measured(
        took,
        {site: sum(some) / len(some) for site, some in sorted(longer.items())},
        sum(taken) / len(taken) if taken else START,
    )


def runs(asked: Asked) -> int:
    """How many tasks run live."""
    return asked.tasks * len(asked.methods)


def perform(asked: Asked, progress: Progress) -> Result:
    """Run it under each method, and say what came of it.

    Raises:
        HeadwayError: something does not start, or a job does not succeed.
    """
    jobs = sample(asked.tasks, asked.seed)
    found: dict[str, Twice] = {}
    for method in asked.methods:
        before = len(found) * asked.tasks
        found[method] = twice(method, jobs, partial(_told, progress, before))
    progress(runs(asked))
    return result(found, jobs)


def _told(progress: Progress, before: int, tasks: int) -> None:
    progress(before + tasks)


def result(found: Mapping[str, Twice], jobs: Workload) -> Result:
    """What the runs say."""
    every = [(method, name, ran) for method, one in found.items() for name, ran in one.runs.items()]
    return Result(
        about=(
            f"{int(jobs.tasks.sum())} tasks of {len(jobs)} bags, which sleep {jobs.runtime.mean() / SECOND:.1f} s on "
            f"average; tasks {' and '.join(delayed(jobs))} take {DELAY:g} times as long as expected. The grid is this "
            f"machine, with {sum(node.slots for node in OWN)} slots, the private cloud a Dask of {len(WORKERS)} slots. "
            f"Machines are rented from moto, and join another Dask; an hour of EC2 takes {PERIOD:g} s. The simulator "
            "has the same cluster file; as measured: with what was measured live, once as it is and "
            f"{NEAR} times with run times that are off by {NOISE:.0%}."
        ),
        tables=(
            _outcome(found),
            _places(every),
            _late(every),
            _rented(every),
            _overheads(found),
        ),
        statements=(),
        columns=("method", "run", "what", "name", "site", "since", "until", "due", "late", "paid"),
        rows=_rows(every),
    )


_Every = Sequence[tuple[str, str, Ran]]


def _outcome(found: Mapping[str, Twice]) -> Table:
    rows = []
    for method, one in found.items():
        told = {name: [ran] for name, ran in one.runs.items()} | {f"{len(one.near)} with {NOISE:.0%} off": one.near}
        rows += [
            (
                *(method, name, _range([len(ran.late_jobs) for ran in some])),
                *(_range([len(ran.late_tasks) for ran in some]), _range([ran.money for ran in some], "{:.3f}")),
                _range([len(ran.rentals) for ran in some]),
            )
            for name, some in told.items()
        ]
    columns = ("method", "", "jobs late", "tasks late", "money", "machines")
    return Table("Due dates missed and money, live and simulated", columns, rows)


def _range(values: Sequence[float], form: str = "{}") -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def _places(every: _Every) -> Table:
    rows = [(method, name, *(str(ran.at_sites[site]) for site in SITES)) for method, name, ran in every]
    return Table("Where the tasks ran", ("method", "", *SITES), rows)


def _late(every: _Every) -> Table:
    rows = [
        (method, name, ", ".join(f"{job} by {late:.1f} s" for job, late in ran.late_jobs.items()) or "none")
        for method, name, ran in every
    ]
    return Table("The late jobs", ("method", "", "late"), rows)


def _rented(every: _Every) -> Table:
    columns = ("method", "", "machine", "from", "until", "paid")
    rows = [
        (
            *(method, name, f"{one.node}, {one.type}", f"{ran.since(one.asked):.1f} s"),
            *(f"{ran.since(one.until):.1f} s" if one.until < NEVER else "", f"{one.cost / UNIT:.3f}"),
        )
        for method, name, ran in every
        for one in ran.rentals
    ]
    return Table("What was rented", columns, rows)


def _overheads(found: Mapping[str, Twice]) -> Table:
    rows = []
    for method, one in found.items():
        each = [f"{1000 * one.measured.longer[site]:.0f} ms" if site in one.measured.longer else "" for site in SITES]
        joined = f"{one.measured.start:.1f} s" if one.runs[LIVE].joined_after() else ""
        rows.append((method, *each, joined))
    told = [f"{1000 * STARTUP:.0f} ms"] * len(SITES)
    rows.append(("the cluster file says", *told, f"{START:.1f} s"))
    return Table(
        "What was measured: how much longer than it slept a task had its slot, and until a machine had joined",
        ("method", *SITES, "machine"),
        rows,
    )


def _rows(every: _Every) -> list[tuple[object, ...]]:
    """Every task, and every machine."""
    rows = list[tuple[object, ...]]()
    for method, name, ran in every:
        for one in ran.tasks:
            due = ran.due(one.job)
            told = (one.site, one.start, one.end, due, int(one.end > due), "")
            rows.append((method, name, "task", f"{one.job}.{one.task}", *told))
        for rented in ran.rentals:
            until = ran.since(rented.until) if rented.until < NEVER else ""
            rows.append(
                (
                    *(method, name, "machine", f"{rented.node} {rented.type}", rented.site, ran.since(rented.asked)),
                    *(until, "", "", rented.cost / UNIT),
                )
            )
    return rows
