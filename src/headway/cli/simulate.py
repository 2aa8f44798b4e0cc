"""Simulations: a workload, a cluster, one or more policies; tables, files and pictures of the results."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, get_args

import click
import numpy as np

from headway.cli.comparing import undecided, unserved, without_due_dates
from headway.cli.output import output_to, subject
from headway.cli.paths import GivenPath
from headway.cli.show import energy_text, print_table, seconds_in, span
from headway.cli.trace import Trace, names_trace
from headway.cli.written import FilesWanted, names_files
from headway.errors import HeadwayError, InvalidInput
from headway.metrics import penalty_by_service, penalty_by_user, service_measures, summarise, to_json
from headway.metrics.batches import BATCHES, WARM_UP, Interval, means_of_batches
from headway.metrics.collect import intervals
from headway.metrics.energy import energy_of
from headway.metrics.places import site_uses
from headway.model.actions import JobStatus
from headway.model.instant import NEVER, to_seconds
from headway.model.network import NO_NETWORK
from headway.model.node import NodeSpec
from headway.model.renting import UNIT
from headway.model.schedule import NOT_YET, Schedule
from headway.model.workload import Workload
from headway.sim.world import CpuKnown, World

SHOWN_COLUMNS: Final = {
    "failed": "jobs_failed",
    "not ended": "jobs_unfinished",
    "wait": "wait_mean",
    "response": "response_mean",
    "slowdown": "bounded_slowdown_mean",
    "missed": "deadline_miss_rate",
    "tardiness": "tardiness_mean",
    "miss penalty": "deadline_miss_penalty",
    "penalty": "total_penalty",
    "service penalty": "services_penalty",
    "violation": "priority_violation_rate",
    "utilisation": "utilisation",
    "makespan": "makespan",
    "energy": "energy_joules",
    "money": "money",
    "kills": "kills",
    "migrations": "migrations",
    "round": "decision_ms_mean",
}
"""What the table shows, by heading."""

COUNTS: Final = ("failed", "not ended", "kills", "migrations")
"""Columns that are left out where all of it is 0."""

QUIET_SECONDS: Final = 0.5
"""A run that takes no longer shows no progress."""


@click.command()
@click.option(
    "--policy",
    "texts",
    multiple=True,
    help="NAME[:KEY=VALUE,...], or FILE.py:NAME[,KEY=VALUE,...]; may be given many times; default easy.",
)
@click.option("--decider", help="URL of a decider that is asked for the plans of these policies.")
@click.option(
    "--slots", type=int, help="One node with this number of slots of speed 1; default: as the header of a log says."
)
@click.option("--cluster", type=GivenPath(dir_okay=False), help="TOML file that declares nodes.")
@click.option(
    "--slots-of",
    "bounds",
    metavar="USER=N",
    multiple=True,
    help="The tasks of a user may have N slots at once; may be given many times; *=N: those of each other user.",
)
@click.option("--services", type=GivenPath(dir_okay=False), help="Table of services (.csv) that run beside the jobs.")
@names_trace
@click.option(
    "--cpu",
    type=click.Choice(get_args(CpuKnown)),
    default="drawn",
    show_default=True,
    help="What policies know of the CPU use of processes. given: what the file says; drawn: also random values "
    "for the other jobs; unknown: nothing.",
)
@click.option(
    "--migration-cost", default="20s", show_default=True, help="Time that a job loses when it moves with its work."
)
@click.option(
    "--kill-cost", default="0s", show_default=True, help="Time that a job loses when it is killed, besides its work."
)
@click.option(
    "--noise",
    default=0.0,
    show_default=True,
    help="Standard deviation of the logarithm of a random factor on run times; 0: none.",
)
@click.option(
    "--spot-life", metavar="TIME", help="Spot machines are taken back after this time, in the mean; default: never."
)
@click.option(
    "--estimates",
    type=click.Choice(["user", "last-two", "predicted", "exact"]),
    default="user",
    show_default=True,
    help="What policies know of run times. user: the estimates of the file; last-two: the mean of the last two jobs of "
    "the same user; predicted: a quantile of the last jobs that were alike; exact: the run times themselves.",
)
@click.option(
    "--batches", type=int, help=f"Show means with 95 % intervals from this many batches of jobs; default {BATCHES}."
)
@click.option(
    "--warm-up", type=float, help=f"Share of the jobs, from the start, that such means leave out; default {WARM_UP}."
)
@names_files
@click.option("--out", type=GivenPath(file_okay=False), help="Write schedules, metrics and pictures to this folder.")
@click.option("--from", "start", metavar="TIME", help="Draw schedules from this time on the log's clock, as 50h or 2d.")
@click.option("--to", "end", metavar="TIME", help="Draw schedules up to this time on the log's clock.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: a list with an object for each policy; times in seconds."
)
def simulate(
    trace: Trace,
    files: FilesWanted,
    texts: tuple[str, ...],
    decider: str | None,
    slots: int | None,
    cluster: str | None,
    bounds: tuple[str, ...],
    services: str | None,
    cpu: CpuKnown,
    migration_cost: str,
    kill_cost: str,
    noise: float,
    spot_life: str | None,
    estimates: str,
    batches: int | None,
    warm_up: float | None,
    out: str | None,
    start: str | None,
    end: str | None,
    as_json: bool,
) -> None:
    """Run a log (.swf, .swf.gz), a table of jobs (.csv), or workflows under one or more policies.

    Workflows are files of WfFormat (.json), DAX (.xml) or STG (.stg), plain or gzipped, or a .tar.gz of them. The jobs
    of several tables and workflows are on one clock.

    Several policies get the same jobs on the same cluster. With several, --schedule, --schedule-tasks and --wfformat
    write a file for each, with the policy's name before its ending; --wfformat writes one for each workflow, with the
    workflow's name there if there are several. CPU use and the costs of migrations and kills matter only to policies
    that put jobs in the background (keasy, reasy, measy). With --batches or --warm-up, means of wait, response and
    slowdown are shown with the half width of their confidence interval, without the jobs of the warm-up. --services
    needs a policy that serves them, such as services:batch=tempo.

    The pictures in --out are Gantt charts if there are few jobs. For many jobs they show queue, use, wait and lateness
    over time; --from and --to draw Gantt charts of a part.
    """
    from headway.config import read_network, read_renting, read_switching, read_terms
    from headway.sim.experiment import ServiceLoad, run
    from headway.traces.services import read_services

    policies = _policies(texts)
    nodes = nodes_of(trace.file, slots, cluster)
    network = NO_NETWORK if cluster is None else read_network(cluster)
    switching = () if cluster is None else read_switching(cluster)
    renting = None if cluster is None else read_renting(cluster)
    slots_of = _slots_of(bounds)
    sites = () if cluster is None else read_terms(cluster)
    held = sum(node.slots for node in nodes)
    world = World(
        noise=noise,
        seed=trace.seed,
        cpu=cpu,
        migration_cost=seconds_in(migration_cost, "--migration-cost"),
        kill_cost=seconds_in(kill_cost, "--kill-cost"),
        spot_life=None if spot_life is None else seconds_in(spot_life, "--spot-life"),
    )
    workload = trace.read(held)
    if estimates == "exact":
        workload = replace(workload, estimate=np.maximum(workload.runtime, 1))  # 0 would be none
    if not as_json:
        trace.tell(workload, held, "" if slots or cluster else ", as its header says")
    if hint := without_due_dates(workload, policies):
        click.echo(hint, err=True)
    loads = []
    if services is not None:
        told = read_services(services)
        loads = [ServiceLoad(**terms) for terms in told.terms]
        for note in told.notes:
            click.echo(note, err=True)
    for hint in unserved(workload, policies, services=len(loads)):
        click.echo(hint, err=True)
    # Errors are reported now, not after a long run.
    asked = batches is not None or warm_up is not None
    batches, warm_up = BATCHES if batches is None else batches, WARM_UP if warm_up is None else warm_up
    if asked:
        means_of_batches(workload.release, batches, warm_up)
    if out is None and (start is not None or end is not None):
        raise HeadwayError("--from and --to are for pictures, and none is drawn", "Say where to with --out FOLDER.")
    to = None if out is None else output_to(out, subject(trace.name, workload, held), held, workload, start, end)
    files.check(workload)
    schedules = {}
    for text in policies:
        with RunProgress(text) as progress:
            schedules[text] = run(
                workload,
                nodes,
                text,
                world=world,
                decider=decider or "",
                record=files.by_task or (to is not None and to.records(text)) or len({node.site for node in nodes}) > 1,
                progress=progress,
                network=network,
                switching=switching,
                renting=renting,
                slots_of=slots_of,
                sites=sites,
                estimates="user" if estimates == "exact" else estimates,
                services=loads,
            )
    metrics = {text: summarise(done) for text, done in schedules.items()}
    within = {text: intervals(done, batches, warm_up=warm_up) if asked else {} for text, done in schedules.items()}
    paths = [path for text, done in schedules.items() for path in files.write(done, text if len(schedules) > 1 else "")]
    written = [f"Written: {', '.join(map(str, paths))}."] if paths else []
    if to is not None:
        written += to.write(schedules, metrics)
    if as_json:
        dropped = sum(workload.dropped.values())
        click.echo(
            to_json(
                [
                    {"policy": text, "jobs": len(workload), "dropped": dropped, "metrics": told}
                    | {"penalty_by_user": penalty_by_user(schedules[text]), "energy": energy_told(schedules[text])}
                    | (services_told(schedules[text]) if loads else {})
                    | (renting_told(schedules[text]) if renting is not None else {})
                    | sites_told(schedules[text])
                    | ({"intervals": {name: asdict(one) for name, one in within[text].items()}} if asked else {})
                    for text, told in metrics.items()
                ]
            ),
            nl=False,
        )
    else:
        print_metrics(metrics, schedules, within)
        if loads:
            print_services(schedules)
        print_sites(schedules)
        if any(done.alone is not None for done in schedules.values()):
            click.echo(of_cpu_use(workload, world))
        for line in written:
            click.echo(line)
    for sentence in undecided(workload, schedules, held):
        click.echo(sentence, err=True)


def energy_told(done: Schedule) -> dict[str, Any] | None:
    """The joules of a run by node, site and job, and by node what is of no job; None: some nodes do not say theirs."""
    energy = energy_of(done)
    if energy is None:
        return None
    jobs = dict(zip(map(str, done.label.tolist()), energy.jobs.tolist(), strict=True))
    return {"nodes": energy.nodes, "sites": energy.sites, "jobs": jobs, "idle": energy.idle}


def renting_told(done: Schedule) -> dict[str, Any]:
    """What was rented, and what it cost by job and by user."""
    labels = [str(label) for label in done.label.tolist()]
    by_job, by_user = dict[str, float](), dict[str, float]()
    machines = list[dict[str, Any]]()
    for row in done.rentals:
        job = None if row.job is None else labels[row.job]
        cost = row.cost / UNIT
        by_user[row.user] = by_user.get(row.user, 0.0) + cost
        if job is not None:
            by_job[job] = by_job.get(job, 0.0) + cost
        told = {
            "rental": row.number,
            "node": row.node,
            "site": row.site,
            "type": row.type,
            "job": job,
            "cost": cost,
            "why": row.why,
        }
        times = {"asked": row.asked, "since": row.since, "until": row.until}
        machines.append(told | {name: None if value >= NEVER else to_seconds(value) for name, value in times.items()})
    return {"money_by_job": by_job, "money_by_user": by_user, "rented": machines}


def sites_told(done: Schedule) -> dict[str, Any]:
    """What ran at each site; nothing if there is only one."""
    uses = site_uses(done)
    return {} if uses is None else {"sites": {name: asdict(use) for name, use in uses.items()}}


def print_sites(schedules: Mapping[str, Schedule]) -> None:
    """Print what ran at each site under each policy, if there are several."""
    rows = []
    for text, done in schedules.items():
        uses = site_uses(done) or {}
        total = sum(use.slot_seconds for use in uses.values()) or 1.0
        rows += [
            (text, name, f"{use.jobs:,}", f"{use.tasks:,}", f"{use.slot_seconds / total:.1%}")
            for name, use in uses.items()
        ]
    headings = ("policy", "site", "jobs", "tasks", "of all slot time")
    if rows:
        print_table(headings, rows, right=headings[2:], title="Sites")


def services_told(done: Schedule) -> dict[str, Any]:
    """What became of the services."""
    return {"penalty_by_service": penalty_by_service(done), "services": [*map(service_measures, done.services)]}


def print_services(schedules: Mapping[str, Schedule]) -> None:
    """Print what became of each service under each policy."""
    rows = [
        (
            *(text, told["service"], f"{told['arrivals']:,}", _cell("missed", told["share_in_time"])),
            *(f"{told['instances']:.2f}", _cell("penalty", told["penalty"])),
        )
        for text, done in schedules.items()
        for told in map(service_measures, done.services)
    ]
    headings = ("policy", "service", "requests", "in time", "instances", "penalty")
    print_table(headings, rows, right=headings[2:], title="Services")


def of_cpu_use(workload: Workload, world: World) -> str:
    """Where the CPU use comes from that sets the speed of processes on two tiers, and whether policies know it."""
    unsaid = int(np.isnan(workload.cpu).sum())
    low, high = world.tiers.cpu
    whence = (
        f"{unsaid:,} of {len(workload):,} jobs do not say their CPU use: it is drawn from {low:.0%} to {high:.0%}, and "
        f"that of one process is 100% (--seed {world.seed})."
        if unsaid
        else "All jobs say their CPU use."
    )
    told = {"given": "what the file says", "drawn": "all of it", "unknown": "nothing of it"}[world.cpu]
    return f"{whence} Policies know {told} (--cpu {world.cpu})."


def nodes_of(file: str, slots: int | None, cluster: str | None) -> tuple[NodeSpec, ...]:
    """The cluster: the one given, or else one of the size that the header of a log says.

    Raises:
        HeadwayError: both options are given, or neither and the file does not say the size.
    """
    from headway.config import read_cluster, uniform_cluster

    if slots is not None and cluster is not None:
        raise HeadwayError(
            "give either --slots or --cluster, not both",
            "--slots 128 is one node with 128 slots of speed 1; --cluster FILE.toml declares nodes.",
        )
    if cluster is not None:
        return read_cluster(cluster, simulated=True)
    return uniform_cluster(_processors_of(file) if slots is None else slots)


def _processors_of(file: str) -> int:
    from headway.traces import processors_of, read_workload

    found = processors_of(file)
    if found is not None:
        return found
    workload = read_workload(file)
    if workload.workflows:
        widest = max(task.cores for graph in workload.workflows.values() for task in graph)
        raise HeadwayError(
            f"{file} does not say on what it is to run",
            f"Say it with --slots N, at least {widest} for its widest task, or with --cluster FILE.toml.",
        )
    widest = int(workload.width.max())
    raise HeadwayError(
        f"{file} does not say how large its machine is",
        f"Say it with --slots N, at least {widest} for its widest job, or with --cluster FILE.toml. "
        "Logs say it in their header, as MaxProcs or MaxNodes.",
    )


def _slots_of(bounds: Sequence[str]) -> dict[str, int]:
    """The bounds of users.

    Raises:
        InvalidInput: one is no bound, or a user has two.
    """
    found = {}
    for bound in bounds:
        user, _, most = bound.rpartition("=")
        if not user or not most.isdecimal() or int(most) < 1:
            raise InvalidInput(
                "--slots-of", bound, "USER=N, where N is a whole number, 1 or more; *=N: all other users"
            )
        if user in found:
            raise InvalidInput("--slots-of", bound, "USER=N, each USER once")
        found[user] = int(most)
    return found


def _policies(texts: Sequence[str]) -> tuple[str, ...]:
    """The policies asked for, each once. They are found now, so that a typing mistake is reported before a long run."""
    from headway.policy_files import find

    policies = tuple(dict.fromkeys(texts)) or ("easy",)
    for text in policies:
        find(text)
    return policies


def print_metrics(
    metrics: Mapping[str, Mapping[str, Any]],
    schedules: Mapping[str, Schedule],
    within: Mapping[str, Mapping[str, Interval]] | None = None,
) -> None:
    """Print the main measures, a row for each policy, or a column if rows are too wide for the terminal.

    Measures that do not apply to this workload are left out. If there is an interval for a mean, it is shown instead.
    Below comes what means do not show: jobs that did not succeed, work that was lost, parts of plans that were refused,
    and intervals that are likely to be too narrow.
    """
    within = within or {}
    told = list(metrics.values())
    has_due = any(one["jobs_due"] for one in told)
    ranked = any(one["priority_violation_rate"] for one in told)
    hidden = set() if has_due else {"missed", "tardiness", "miss penalty"}
    hidden |= set() if ranked else {"violation"}
    # Jobs are late, but none has a priority above 0 that would weigh it.
    is_priced = any((done.rate != 1).any() or done.shape.any() for done in schedules.values())
    hidden |= set() if has_due and is_priced else {"penalty"}
    is_weighed = any(one["deadline_miss_penalty"] for one in told) or not any(one["deadline_miss_rate"] for one in told)
    hidden |= set() if is_weighed else {"miss penalty"}
    hidden |= set() if any(done.services for done in schedules.values()) else {"service penalty"}
    hidden |= set() if all("energy_joules" in one for one in told) else {"energy"}
    hidden |= set() if any("money" in one for one in told) else {"money"}
    hidden |= {heading for heading in COUNTS if not any(one[SHOWN_COLUMNS[heading]] for one in told)}
    headings = [heading for heading in SHOWN_COLUMNS if heading not in hidden]

    def cell(text: str, heading: str) -> str:
        found = within.get(text, {}).get(SHOWN_COLUMNS[heading])
        if found is None:
            return _cell(heading, metrics[text].get(SHOWN_COLUMNS[heading], 0.0))
        return f"{_cell(heading, found.mean)} ± {_cell(heading, found.half_width).removesuffix(' s')}"

    rows = [(text, *(cell(text, heading) for heading in headings)) for text in metrics]
    print_table(("policy", *headings), rows, right=headings, turn=True)
    for text, done in schedules.items():
        for remark in (*_remarks(done), *_doubts(within.get(text, {}))):
            click.echo(f"{text}: {remark}")


def _remarks(done: Schedule) -> Iterator[str]:
    failed, cancelled = done.has(JobStatus.FAILED), done.has(JobStatus.CANCELLED)
    unfinished, started = ~(failed | cancelled | done.has(JobStatus.SUCCEEDED)), done.start != NOT_YET
    for which, one, many, missing in (
        (unfinished & ~started, "did not end", "did not end", "wait"),
        (unfinished & started, "started but did not end", "started but did not end", "response time"),
        (failed, "failed", "failed", "response time"),
        (cancelled, "was cancelled", "were cancelled", "response time"),
    ):
        jobs = int(np.count_nonzero(which))
        if jobs == 1:
            yield f"1 job {one}; its {missing} is in no mean."
        elif jobs:
            yield f"{jobs:,} jobs {many}; their {missing}s are in no mean."
    if done.kills:
        attempts = "1 attempt was" if done.kills == 1 else f"{done.kills:,} attempts were"
        lost = f"; the utilisation includes {span(to_seconds(done.lost))} of work that was lost" if done.lost else ""
        yield f"{attempts} killed and redone{lost}."
    if done.refusals:
        rules = ", ".join(f"{rule}: {count:,}" for rule, count in sorted(done.refused.items()))
        parts = "1 part of its plans was" if done.refusals == 1 else f"{done.refusals:,} parts of its plans were"
        yield f"{parts} refused ({rules})."


def _doubts(within: Mapping[str, Interval]) -> Iterator[str]:
    alike = [heading for heading, name in SHOWN_COLUMNS.items() if name in within and within[name].is_correlated]
    if alike:
        yield f"neighbouring batches are alike ({', '.join(alike)}): the intervals are too narrow; try fewer batches."


def _cell(heading: str, value: float) -> str:
    if math.isnan(value):
        return "–"
    if heading in ("missed", "violation", "utilisation"):
        return f"{value:.1%}"
    if heading in COUNTS:
        return f"{value:,.0f}"
    if heading == "money":
        return f"{value:,.2f}"
    if heading == "energy":
        return energy_text(value)
    if heading == "round":
        return f"{value:.3f} ms"
    if heading in ("slowdown", "miss penalty", "penalty", "service penalty"):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


class RunProgress:
    """A line on the terminal with the progress of a long run."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._begin = time.monotonic()
        self._width = 0

    def __enter__(self) -> Callable[[int, int], None] | None:
        return self._say if sys.stderr.isatty() else None

    def __exit__(self, *_: object) -> None:
        if self._width:
            sys.stderr.write(f"\r{' ' * self._width}\r")
            sys.stderr.flush()

    def _say(self, ended: int, jobs: int) -> None:
        spent = time.monotonic() - self._begin
        if spent < QUIET_SECONDS or not ended:
            return
        left = span(spent * (jobs - ended) / ended)
        line = f"{self._policy}: {ended:,} of {jobs:,} jobs ended, about {left} left"
        sys.stderr.write(f"\r{line:<{self._width}}")
        sys.stderr.flush()
        self._width = max(self._width, len(line))
