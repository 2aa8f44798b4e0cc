"""A demonstration: real work with due dates on this machine, then the same policies compared on a log."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from headway.cli.paths import GivenPath
from headway.cli.show import as_json, print_json, print_table
from headway.errors import HeadwayError
from headway.model.node import NodeSpec

DEMO_NODES: Final = ("left", "right")
SLOTS: Final = 2
"""Slots of each node."""

DEMO_TASKS: Final = 64
PRIMES_BELOW: Final = 8_000_000
PRIMES: Final = 539_777
TWINS_BELOW: Final = 1_600_000
TWINS: Final = 12_260
"""Pairs of primes that differ by 2, the first below `TWINS_BELOW`; with `PRIMES`, what the results are held to."""

TWIN_TASKS: Final = 8

END_SECONDS: Final = 300.0
"""A demo that takes longer has failed."""

JOBS_SIMULATED: Final = 2000
SLOTS_SIMULATED: Final = 64
LOAD: Final = 0.8
BAG_FACTOR: Final = 4.0
"""A bag is due so many times its run time after its release."""

KILLS_NONE: Final = "tempo:strict=false,redo=0"

BAG_POLICIES: Final = ("priority", "proportion", "workload", "deadline", "edf", KILLS_NONE)
"""The default of `headway up` is compared with them, if it is none of them."""

GAVE_UP_NONE: Final = "The bag gave up no running task for it."

RIGID_POLICIES: Final = ("fcfs", "easy", "conservative", "measy")


@click.command()
@click.argument("what", required=False, type=click.Choice(["papers"]))
@click.option(
    "--out",
    default="headway-demo",
    show_default=True,
    type=GivenPath(file_okay=False),
    help="Folder for pictures and tables.",
)
@click.option(
    "--seed", default=1, show_default=True, type=click.IntRange(min=0), help="Seed of the simulated log, or requests."
)
@as_json
def demo(what: str | None, out: str, seed: int, as_json: bool) -> None:
    """Show what Headway does, in a minute or two: real work with due dates, then policies compared on a log.

    It asks nothing, uses two nodes with two slots each on this machine, and ends by itself. Its exit status says
    whether every result came back and was right. Pictures and tables go to a folder.

    `headway demo papers` shows all five papers in one: a service, jobs on two tiers, a workflow over two sites, a due
    date that only rented machines save, under one policy; then the same files in the simulator. It takes a minute.
    With --json it prints what came of it for programs, and what it tells meanwhile goes to stderr.
    """
    if what == "papers":
        all_papers(Path(out), seed, as_json)
        return
    if as_json:
        raise HeadwayError("--json is for `headway demo papers`", "The other demo writes tables to its folder.")
    tell = Narrator()
    tell.chapter("Real work with due dates")
    live(tell)
    tell.chapter("The same core on a log")
    compare(tell, Path(out), seed)
    tell(f"That was Headway. What was drawn and written is in {out}.\nMore, in a minute: headway demo papers")


def all_papers(out: Path, seed: int, as_json: bool) -> None:
    """The demonstration of all five papers in one."""
    from headway.cli.demo_papers import papers
    from headway.reproduce.tables import Table

    tell = Narrator(err=as_json)

    def show(table: Table) -> None:
        if not as_json:
            print_table(table.columns, table.rows, right=table.columns[1:], title=table.title)

    tell.chapter("All five papers in one")
    told = papers(tell, show, out, seed)
    if as_json:
        print_json(told)


class Narrator:
    """Prints sentences with the seconds since the beginning.

    Args:
        err: to stderr instead of stdout.
    """

    def __init__(self, *, err: bool = False) -> None:
        self._begin = time.monotonic()
        self._echo = partial(click.echo, err=err)

    def chapter(self, title: str) -> None:
        """Print a heading."""
        self._echo(f"\n{title}\n{'=' * len(title)}")

    def __call__(self, sentence: str) -> None:
        """Print a sentence. Its further lines are indented like the first."""
        first, *others = sentence.splitlines()
        self._echo(f"{time.monotonic() - self._begin:6.1f} s  {first}")
        for line in others:
            self._echo(f"{'':10}{line}")


def live(tell: Narrator) -> None:
    """A bag with a due date, an urgent job, a node that dies; every result is compared with the right one.

    Raises:
        HeadwayError: a result is missing or wrong, or something that had to happen did not.
    """
    from headway.client.client import Client
    from headway.live.driver import FIRST_POLICY
    from headway.reproduce.server import own_server

    nodes = [NodeSpec(name, SLOTS) for name in DEMO_NODES]
    with (
        tempfile.TemporaryDirectory(prefix="headway-demo-") as folder,
        own_server(Path(folder), nodes, FIRST_POLICY) as running,
    ):
        with Client(data=folder) as client:
            total = len(DEMO_NODES) * SLOTS
            tell(
                f"A server is up at {running['url']}, with {len(DEMO_NODES)} nodes of {SLOTS} slots, "
                "each node a process of its own."
            )
            tell(
                f"Its policy is {client.policy()}, as of any new server: slots go where waiting costs most,\n"
                "and tasks are killed and redone where that saves more than it costs."
            )
            bag, urgent = submit_work(tell, client, total)
            kill_node(tell, client, running["pid"], bag)
            check(tell, client, bag, urgent)
        tell("The server ends cleanly.")


def submit_work(tell: Narrator, client: Any, total: int) -> tuple[Any, Any]:
    """A bag that takes all slots, and an urgent job that comes when it runs."""
    from headway.client.job import Job, Task

    begin = time.perf_counter()
    count_primes(PRIMES_BELOW // 2, PRIMES_BELOW // 2 + PRIMES_BELOW // DEMO_TASKS)
    estimate = (time.perf_counter() - begin) * max(1.0, total / (os.cpu_count() or 1))
    due = 3 * estimate * DEMO_TASKS / total + 20
    step = PRIMES_BELOW // DEMO_TASKS
    bag = client.submit(
        Job(
            "primes",
            [Task(count_primes, low, low + step) for low in range(0, PRIMES_BELOW, step)],
            due=due,
            priority=1,
            estimate=estimate,
        )
    )
    tell(
        f'Job {bag.job}, "primes": {DEMO_TASKS} tasks of about {estimate:.1f} s, due in {due:.0f} s. '
        f"It is alone, so it takes all {total} slots:"
    )
    until(lambda: bag.progress[0] >= total, "the first tasks did not end")
    tell(slots_text(client))

    step = TWINS_BELOW // TWIN_TASKS
    soon = max(4.0, 2.5 * TWIN_TASKS / total * estimate)
    urgent = client.submit(
        Job(
            "urgent",
            [Task(count_twins, low, low + step) for low in range(0, TWINS_BELOW, step)],
            due=soon,
            priority=9,
            estimate=estimate,
        )
    )
    submitted = time.monotonic()
    tell(f'Job {urgent.job}, "urgent", comes in: {TWIN_TASKS} tasks, due in {soon:.0f} s, priority 9 instead of 1.')
    until(lambda: slots_text(client).count("urgent") > 1 or urgent.done(), "the urgent job got no slots")
    tell(
        f"{time.monotonic() - submitted:.1f} s later it has taken slots where tasks of the bag ended or gave way:\n"
        f"{slots_text(client)}"
    )
    client.wait(urgent, timeout=END_SECONDS)
    report = client.job(urgent.job).job
    spare = report.due - report.ended
    tell(f"The urgent job has ended, {abs(spare):.1f} s {'before' if spare >= 0 else 'after'} its due date.")
    kills = client.job(bag.job).kills
    tell(f"For it the bag gave up {kills} running task{'s' * (kills != 1)}, to be redone." if kills else GAVE_UP_NONE)
    return bag, urgent


def kill_node(tell: Callable[[str], None], client: Any, server_pid: int, bag: Any) -> None:
    """End a node with SIGKILL while it runs tasks, and wait until it is lost and back."""
    from headway.engines.local.driver.host import agent_of

    name = DEMO_NODES[0]
    until(lambda: len(runs_on(client, name)) == SLOTS, f"node {name} has nothing to run")
    agent = agent_of(server_pid, name)
    lost = runs_on(client, name)
    os.kill(agent, signal.SIGKILL)
    tell(f"kill -9 {agent}: node {name} dies, and with it {in_words(lost)} of the bag.")
    until(lambda: redone_now(client, bag, lost) or bag.done(), "no lost task was started again")
    again = redone_now(client, bag, lost)
    up = [node.name for node in client.nodes() if node.up]
    tell(f"The server has noticed. It starts {in_words(again)} again; nodes that are up: {' and '.join(up)}.")
    until(lambda: all(node.up for node in client.nodes()), f"node {name} did not come back")
    tell(f"Node {name} is back:\n{slots_text(client)}")


def check(tell: Narrator, client: Any, bag: Any, urgent: Any) -> None:
    """Compare every result with the right one."""
    found = bag.result(END_SECONDS), urgent.result(END_SECONDS)
    report = client.job(bag.job).job
    spare = report.due - report.ended
    tell(f"The bag has ended, {abs(spare):.1f} s {'before' if spare >= 0 else 'after'} its due date.")
    redone = [result.task for result in client.results(bag.job) if result.attempt > 1]
    if not redone:
        raise HeadwayError("no task was redone although a node was killed")
    for name, results, tasks, total, known in (
        ("primes", found[0], DEMO_TASKS, sum(found[0]), PRIMES),
        ("urgent", found[1], TWIN_TASKS, sum(found[1]), TWINS),
    ):
        if len(results) != tasks or total != known:
            raise HeadwayError(f"{name}: {len(results)} results of {tasks}, sum {total:,} instead of {known:,}")
    tell(
        f"All {DEMO_TASKS + TWIN_TASKS} results are here and right: {PRIMES:,} primes below {PRIMES_BELOW:,}, "
        f"{TWINS:,} twins below {TWINS_BELOW:,}.\n"
        f"{in_words(redone).capitalize()} took more than one attempt; each result counted once."
    )


def compare(tell: Narrator, out: Path, seed: int) -> None:
    """One log, as bags with due dates and as rigid jobs, under the policies made for each.

    Raises:
        HeadwayError: a file cannot be written, or a job did not end.
    """
    from headway.cli.output import make_folder, output_to, subject
    from headway.cli.simulate import RunProgress, of_cpu_use, print_metrics
    from headway.config import uniform_cluster
    from headway.live.driver import FIRST_POLICY
    from headway.metrics import summarise
    from headway.sim.experiment import run
    from headway.sim.world import World
    from headway.traces import transforms, write_workload

    make_folder(out)
    log = transforms.with_load(synthetic_log(seed), LOAD, SLOTS_SIMULATED)
    bags = transforms.due_dates(transforms.priorities_by_user(transforms.as_bags(log)), factor=BAG_FACTOR)
    nodes, world = uniform_cluster(SLOTS_SIMULATED), World(cpu="drawn")
    for file, workload, policies, kind in (
        (
            "bags.csv",
            bags,
            tuple(dict.fromkeys((*BAG_POLICIES, FIRST_POLICY))),
            "bags of tasks with due dates and priorities",
        ),
        ("rigid.swf", log, RIGID_POLICIES, "rigid jobs, which need all their slots at once"),
    ):
        write_workload(workload, out / file, header(seed))
        tell(f"{len(workload):,} jobs of a made-up log on {SLOTS_SIMULATED} slots, as {kind}:")
        to = output_to(str(out / Path(file).stem), subject(file, workload, SLOTS_SIMULATED), SLOTS_SIMULATED, workload)
        begin = time.perf_counter()
        schedules = {}
        for policy in policies:
            with RunProgress(policy) as progress:
                schedules[policy] = run(
                    workload, nodes, policy, world=world, record=to.records(policy), progress=progress
                )
        spent = time.perf_counter() - begin
        metrics = {policy: summarise(schedule) for policy, schedule in schedules.items()}
        for policy, measured in metrics.items():
            if measured["jobs_succeeded"] != len(workload):
                raise HeadwayError(f"under {policy} only {measured['jobs_succeeded']} of {len(workload)} jobs ended")
        print_metrics(metrics, schedules)
        if any(schedule.alone is not None for schedule in schedules.values()):
            tell(of_cpu_use(workload, world))
        *remarks, _ = to.write(schedules, metrics)
        for remark in remarks:
            tell(remark)
        if KILLS_NONE in policies:
            tell(f"{KILLS_NONE} never kills a task, so no work is done twice; {FIRST_POLICY}, the default, may.")
        chosen = " ".join(f"--policy {policy}" for policy in policies)
        tell(
            f"{len(policies)} policies took {spent:.1f} s. The same again:\n"
            f"headway simulate {out / file} --slots {SLOTS_SIMULATED} {chosen}"
        )


def header(seed: int) -> list[tuple[str, object]]:
    """What the header of the log says: the size of the machine, and that all of it is made up."""
    size = [("MaxNodes", SLOTS_SIMULATED), ("MaxProcs", SLOTS_SIMULATED)]
    return [("Computer", "made up by headway demo"), *size, ("UnixStartTime", 0), ("Note", f"seed {seed}")]


def synthetic_log(seed: int) -> Any:
    """A log like that of a small cluster: days and nights, few users with most jobs, many short jobs and few long."""
    import numpy as np

    from headway.model.instant import SECOND
    from headway.model.workload import workload_us

    chance = np.random.default_rng(seed)
    hours = np.cumsum(chance.exponential(1.0, JOBS_SIMULATED))
    release = hours / hours[-1] * 10 * 86_400
    release += 2.5 * 3600 * np.sin(2 * np.pi * release / 86_400)  # days are busier than nights
    runtime = np.clip(chance.lognormal(6.6, 1.5, JOBS_SIMULATED), 1, 12 * 3600).round()
    width = 2 ** np.clip(chance.geometric(0.42, JOBS_SIMULATED) - 1, 0, 5)
    return workload_us(
        release=(np.sort(release - release.min()).round() * SECOND).astype(np.int64),
        runtime=(runtime * SECOND).astype(np.int64),
        width=width.astype(np.int64),
        estimate=(runtime * chance.choice([1, 1.5, 2, 4], JOBS_SIMULATED) * SECOND).astype(np.int64),
        user=np.minimum(chance.zipf(1.7, JOBS_SIMULATED), 12).astype(str),
        kind=1,
        label=np.arange(1, JOBS_SIMULATED + 1),
    )


def count_primes(low: int, high: int) -> int:
    """Primes in [low, high), by trial division: work that takes a while."""
    return sum(map(is_prime, range(low, high)))


def count_twins(low: int, high: int) -> int:
    """Pairs of primes p and p + 2 with p in [low, high)."""
    return sum(is_prime(number) and is_prime(number + 2) for number in range(low, high))


def is_prime(number: int) -> bool:
    """Whether a number is a prime."""
    if number < 4:
        return number > 1
    if not number % 2 or not number % 3:
        return False
    divisor = 5
    while divisor * divisor <= number:
        if not number % divisor or not number % (divisor + 2):
            return False
        divisor += 6
    return True


def slots_text(client: Any) -> str:
    """Which job runs on each slot of each node."""
    names = {job.id: job.name for job in client.jobs()}
    lines = []
    for node in client.nodes():
        held = {slot: names[run.job] for run in node.attempts for slot in run.slots}
        slots = (held.get(f"{node.name}/{slot}", status) for slot, status in enumerate(node.slots))
        lines.append(f"{node.name:>6}: {'  '.join(f'[{text:^9}]' for text in slots)}")
    return "\n".join(lines)


def runs_on(client: Any, name: str) -> dict[int, int]:
    """Which attempt of which task runs on a node, by the number of the task."""
    return {run.task: run.attempt for node in client.nodes() if node.name == name for run in node.attempts}


def redone_now(client: Any, waiter: Any, lost: dict[int, int]) -> list[int]:
    """Numbers of the lost tasks that run again, in a later attempt than the one that was lost."""
    return [run.task for run in client.job(waiter.job).attempts if run.attempt > lost.get(run.task, run.attempt)]


def in_words(tasks: Collection[int]) -> str:
    """Numbers of tasks, as `task 3`, `tasks 3 and 4`."""
    if not tasks:
        return "no task"
    *first, last = map(str, tasks)
    return f"tasks {', '.join(first)} and {last}" if first else f"task {last}"


def until(true: Any, complaint: str) -> None:
    """Check twenty times a second until something is true.

    Raises:
        HeadwayError: it did not become true in time.
    """
    end = time.monotonic() + END_SECONDS
    while not true():
        if time.monotonic() > end:
            raise HeadwayError(f"{complaint} within {END_SECONDS:.0f} s")
        time.sleep(0.05)
