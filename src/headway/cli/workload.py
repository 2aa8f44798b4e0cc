"""Workloads from published models: how many jobs as wanted, written as a log."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, fields, replace
from typing import Any, Final

import click

from headway.cli.paths import GivenPath, WrittenPath
from headway.cli.show import SpanType, print_json, print_table, seconds_in, span
from headway.config import write_cluster
from headway.errors import InvalidInput
from headway.model.instant import SECOND
from headway.model.workload import Workload
from headway.traces import is_log, read_workload, write_workload
from headway.traces.swf import processors_of
from headway.workloads import dn13 as dn
from headway.workloads import feitelson96 as feitelson
from headway.workloads import jann97 as jann
from headway.workloads import lublin99 as lublin
from headway.workloads import measy14, statistics, with_estimates
from headway.workloads.feitelson96 import PUBLISHED_STYLE
from headway.workloads.generated import Extras
from headway.workloads.jann97 import CTC, Range, fit
from headway.workloads.lublin99 import BATCH_STREAM, INTERACTIVE_STREAM, TYPELESS

Command = Callable[..., Any]

FEITELSON96: Final = {
    "order": "The weight of a width n is n to the power of minus this.",
    "powers": "The weight of each power of two above 1 instead.",
    "small": "How many times more weight narrow jobs have.",
    "small_below": "Processors below which a job is narrow.",
    "short": "Mean of short run times, seconds.",
    "long": "Mean of long run times, seconds.",
    "short_share": "Probability of a short run time, for the narrowest jobs.",
    "short_fall": "By how much it is less for jobs of all processors.",
    "repeat_order": "The probability of k runs of a job falls as k to the power of minus this.",
    "repeat_most": "The most runs of a job.",
    "think": "Mean time between the end of a run and the next, seconds.",
    "arrival_load": "The load for which new jobs arrive.",
}

LUBLIN99: Final = {
    "serial": "Share of jobs of one processor.",
    "powers": "Share of jobs whose processors are a power of two above 1.",
    "low": "Logarithm to base 2 of the least width of parallel jobs.",
    "middle": "The middle width: how far its logarithm is below that of all processors.",
    "high": "The greatest width, likewise.",
    "low_share": "Probability of a width below the middle one.",
    "run_shape1": "Shape of the first distribution of the logarithm of run times.",
    "run_scale1": "Its scale.",
    "run_shape2": "Shape of the second.",
    "run_scale2": "Its scale.",
    "run_slope": "How the probability of the first rises with the width.",
    "run_base": "The probability of the first at width 0.",
    "gap_shape": "Shape of the distribution of the logarithm of gaps.",
    "gap_scale": "Its scale.",
    "gap_all_day": "What the shape is multiplied by for all the day.",
    "day_shape": "Shape of the curve of arrivals over a day.",
    "day_scale": "Its scale, half-hours.",
}


@click.group()
def workload() -> None:
    """Generate a workload from a published model, or estimates for a log. The same seed gives the same bytes."""


def writes(command: Command) -> Command:
    """Give a command the options for the output of its workload."""
    out = click.option(
        *("-o", "--out"),
        type=WrittenPath(".swf", ".swf.gz", ".csv", ".csv.gz"),
        help="Write the workload to this .swf or .csv file, or .swf.gz or .csv.gz.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON; times in seconds.")
    return out(as_json(command))


def _size(model: Command, jobs: int | None = None, processors: int | None = None) -> tuple[int, int]:
    """How many jobs for how many processors: as was said, else as the model has it."""
    own = inspect.signature(model).parameters
    return (
        own["jobs"].default if jobs is None else jobs,
        own["processors"].default if processors is None else processors,
    )


def makes(model: Command, *own: Command) -> Callable[[Command], Command]:
    """Give a command the options that all models have, and its own. None is what was not said.

    The command returns the workload, the processors it is for, and a description of its parameters.
    """
    jobs, processors = _size(model)
    of_preset = f"{jobs}, or the preset's" if preset in own else jobs
    common = [
        click.option("--jobs", type=int, help=f"How many jobs.  [default: {of_preset}]"),
        click.option(
            "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random choices."
        ),
        click.option(
            "--processors", type=int, help=f"Processors of the machine; no job is wider.  [default: {processors}]"
        ),
        *own,
        click.option("--load", type=float, help="Scale the gaps so that the load is this."),
        click.option(
            "--estimates",
            type=click.Choice(["tsafrir", "exact", "none"]),
            help="Estimates by the model of Tsafrir et al., exact ones (the run times), or none.  [default: tsafrir]",
        ),
        click.option(
            "--largest-estimate", type=SpanType(), help="The largest estimate, as 18h; longer run times are cut to it."
        ),
        click.option("--cpu", help="CPU use of processes: drawn (as in MEASY14), a number from 0 to 1, or none."),
        click.option(
            "--cpu-spread", type=float, help="How far the CPU use of a process may be from its job's mean, 0 to 1."
        ),
        writes,
    ]

    def give(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(out: str | None, as_json: bool, **options: Any) -> None:
            made, held, told = command(**options)
            about = {"model": command.__name__, "seed": options["seed"], "estimates": "tsafrir"}
            _finish(made, held, {**about, **told}, out, as_json)

        done: Any = with_options
        for option in reversed(common):
            done = option(done)
        return done

    return give


def option_name(name: str) -> str:
    """How a parameter is said on the command line."""
    return f"--{name.replace('_', '-')}"


def options_of(model: Any, helps: Mapping[str, str]) -> list[Command]:
    """An option for each of these fields of a model, with its default."""
    types = {field.name: int if field.type == "int" else float for field in fields(model)}
    spans = {name for name, text in helps.items() if "seconds" in text}
    return [
        click.option(
            option_name(name),
            type=SpanType() if name in spans else types[name],
            help=f"{text}  [default: {getattr(model, name):g}]",
        )
        for name, text in helps.items()
    ]


def preset(command: Command) -> Command:
    """Give a command the option that takes a paper's workload in place of parameters."""
    return click.option("--preset", type=click.Choice(["measy14"]), help="The workload of a paper.")(command)


@workload.command(short_help="Discrete widths, repeated runs, run times that vary a lot.")
@makes(feitelson, preset, *options_of(PUBLISHED_STYLE, FEITELSON96))
def feitelson96(
    jobs: int | None, seed: int, processors: int | None, preset: str | None, **options: Any
) -> tuple[Workload, int, dict[str, Any]]:
    """A workload in the style of Feitelson 1996; --preset measy14 is the FWload of MEASY14, of 200,000 jobs."""
    parameters, extras = _given(options, FEITELSON96), _extras(options)
    if preset:
        _nothing_beside("--preset", processors=processors, **parameters)
        made = measy14.fwload(seed, measy14.FW_JOBS if jobs is None else jobs, **extras)
        return made, measy14.PROCESSORS, {"preset": preset, **asdict(PUBLISHED_STYLE), **measy14.as_in_paper(extras)}
    count, held = _size(feitelson, jobs, processors)
    model = replace(PUBLISHED_STYLE, **parameters)
    made = feitelson(count, seed, held, model=model, **extras)
    return made, held, {**asdict(model), **extras}


@workload.command(short_help="Ranges of widths, each with its own arrivals and run times.")
@makes(
    jann,
    preset,
    click.option("--fit", "log", type=GivenPath(dir_okay=False), help="Fit the ranges to this log or table."),
)
def jann97(
    jobs: int | None, seed: int, processors: int | None, preset: str | None, log: str | None, **options: Any
) -> tuple[Workload, int, dict[str, Any]]:
    """A workload as in Jann et al. 1997; --preset measy14 is the JWload of MEASY14, of 100,000 jobs."""
    extras = _extras(options)
    if preset:
        _nothing_beside("--preset", processors=processors, fit=log)
        made = measy14.jwload(seed, measy14.JW_JOBS if jobs is None else jobs, **extras)
        return made, measy14.PROCESSORS, {"preset": preset, **_ranges(measy14.JW_RANGES), **measy14.as_in_paper(extras)}
    count, held = _size(jann, jobs, processors)
    ranges = fit(read_workload(log, cut_at_estimate=False)) if log else CTC
    made = jann(count, seed, held, ranges=ranges, **extras)
    return made, held, {**({"fit": log} if log else {}), **_ranges(ranges), **extras}


@workload.command(short_help="A daily cycle, run times that go with widths.")
@makes(
    lublin,
    click.option("--types", is_flag=True, help="Two streams, interactive and batch jobs, in place of one."),
    *options_of(TYPELESS, LUBLIN99),
)
def lublin99(
    jobs: int | None, seed: int, processors: int | None, types: bool, **options: Any
) -> tuple[Workload, int, dict[str, Any]]:
    """A workload as in Lublin and Feitelson 1999; the constants of a single stream can be changed here."""
    parameters, extras = _given(options, LUBLIN99), _extras(options)
    if types:
        _nothing_beside("--types", **parameters)
    streams = (INTERACTIVE_STREAM, BATCH_STREAM) if types else (replace(TYPELESS, **parameters),)
    count, held = _size(lublin, jobs, processors)
    made = lublin(count, seed, held, streams=streams, **extras)
    constants = {"types": True} if types else asdict(streams[0])
    return made, held, {**constants, **extras}


@workload.command(short_help="Give the jobs of a log estimates as users give them.")
@click.argument("log", type=GivenPath(dir_okay=False))
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random choices.")
@click.option("--processors", type=click.IntRange(min=1), help="Of the machine.  [default: as the log's header says]")
@click.option(
    "--largest-estimate", type=SpanType(), help="The largest estimate, as 18h; longer run times are cut to it."
)
@click.option(
    "--hint", "hints", multiple=True, metavar="ESTIMATE=JOBS", help="How many jobs have an estimate, if known."
)
@writes
def tsafrir(
    log: str,
    seed: int,
    processors: int | None,
    largest_estimate: float | None,
    hints: tuple[str, ...],
    out: str | None,
    as_json: bool,
) -> None:
    """Replace the estimates of a log or table by those of the model of Tsafrir, Etsion and Feitelson 2005."""
    known: dict[int, int] = {}
    for text in hints:
        estimate, count = _hint(text)
        if estimate in known:
            raise InvalidInput("--hint", text, "ESTIMATE=JOBS, each ESTIMATE once")
        known[estimate] = count
    jobs = read_workload(log, machine=processors, cut_at_estimate=False)
    made = with_estimates(jobs, largest=largest_estimate, hints=known, seed=seed)
    told = {"model": "tsafrir", "seed": seed, "log": log, "largest_estimate": largest_estimate, "hints": known}
    _finish(made, processors or _machine(log, made), told, out, as_json)


@workload.command(short_help="Workflows with due dates, for five sites of many-core machines.")
@click.option(
    "--kind", type=click.Choice(dn.NAMES), default=dn.MIX, show_default=True, help="What the workflows are like."
)
@click.option("--jobs", type=int, default=dn.JOBS_OF_INSTANCE, show_default=True, help="How many workflows.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random choices.")
@click.option(
    "--sites", type=click.Choice(tuple(dn.SIZES)), default="alike", show_default=True, help="How large the sites are."
)
@click.option("--processors", type=int, help="The most processors of a site.  [default: 100, for single tasks 10]")
@click.option("--cluster", type=WrittenPath(".toml"), help="Write the sites to this TOML file.")
@click.option(
    "-o", "--out", type=WrittenPath(".json", ".json.gz"), help="Write the workflows to this .json or .json.gz file."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; times in seconds.")
def dn13(
    kind: str,
    jobs: int,
    seed: int,
    sites: dn.Size,
    processors: int | None,
    cluster: str | None,
    out: str | None,
    as_json: bool,
) -> None:
    """An instance of DN13: 1,000 workflows with due dates and penalties, and the five sites that they are for."""
    nodes = dn.cluster(kind, seed, sites, processors)
    made = dn.instance(kind, seed, jobs, nodes)
    if out is not None:
        write_workload(made, out)
    if cluster is not None:
        write_cluster(nodes, cluster, about=dn.FROM_MEMORY)
    tasks = made.workflows.values()
    bound = dn.lower_bound(list(tasks), nodes) / SECOND
    told: dict[str, Any] = {
        "model": "dn13",
        "kind": kind,
        "seed": seed,
        "jobs": len(made),
        "tasks": int(made.tasks.sum()),
        "tasks_max": int(made.tasks.max()),
        "cores_max": max(task.cores for graph in tasks for task in graph),
        "critical_path_max": float(made.seconds("runtime").max()),
        "due_max": float(made.seconds("due").max()),
        "makespan_bound": bound,
    }
    if as_json:
        print_json({**told, "sites": sites, "written": out, "cluster": cluster})
        return
    shown = [
        ("workflows", f"{told['jobs']:,}, {kind}"),
        ("tasks", f"{told['tasks']:,}"),
        ("most tasks of one", f"{told['tasks_max']}"),
        ("most cores of a task", f"{told['cores_max']}"),
        ("longest critical path", span(told["critical_path_max"])),
        ("last due date", span(told["due_max"])),
        ("makespan, at least", span(bound)),
    ]
    print_table(("", "dn13"), shown, right=("dn13",))
    for path in (out, cluster):
        if path is not None:
            click.echo(f"Written: {path}.")


def _machine(log: str, jobs: Workload) -> int:
    return (processors_of(log) if is_log(log) else None) or int((jobs.width * jobs.tasks).max())


def _hint(text: str) -> tuple[int, int]:
    try:
        estimate, jobs = text.split("=")
        return int(seconds_in(estimate, "--hint")), int(jobs)
    except ValueError:
        raise InvalidInput("--hint", text, "ESTIMATE=JOBS, as 1h=250 or 3600=250") from None


def _given(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Those of these options that were given."""
    return {name: options[name] for name in names if options[name] is not None}


def _nothing_beside(option: str, **others: Any) -> None:
    for name, value in others.items():
        if value is not None:
            raise InvalidInput(option_name(name), value, f"nothing beside {option}", hint="Leave one of them out.")


def _extras(options: Mapping[str, Any]) -> Any:
    """What was said of load, estimates and CPU use, as the models take it."""
    extras = {name: options[name] for name in Extras.__annotations__ if options[name] is not None}
    if extras.get("estimates") == "none":
        extras["estimates"] = None
    if "cpu" in extras and extras["cpu"] != "drawn":
        try:
            extras["cpu"] = None if extras["cpu"] == "none" else float(extras["cpu"])
        except ValueError:
            raise InvalidInput("--cpu", extras["cpu"], "drawn, none or a number from 0 to 1") from None
    return extras


def _ranges(ranges: Sequence[Range]) -> dict[str, str]:
    """The description of ranges: stages, rates and share of the gaps and of the run times."""
    return {
        f"range {one.widths[0]}-{one.widths[-1]}": " ".join(
            f"{value:.5g}" for value in (*astuple(one.gap), *astuple(one.runtime))
        )
        for one in ranges
    }


def _finish(made: Workload, held: int, told: Mapping[str, Any], out: str | None, as_json: bool) -> None:
    """Write the workload where that is wanted, and print what it is like."""
    if out is not None:
        machine = [("Computer", f"model {told['model']}"), ("MaxNodes", held), ("MaxProcs", held), ("UnixStartTime", 0)]
        write_workload(
            made,
            out,
            [*machine, *(("Note", f"{name} {'none' if value is None else value}") for name, value in told.items())],
        )
    like = statistics(made, held)
    if as_json:
        print_json({**told, **like, "notes": list(made.notes), "written": out})
        return
    shown = [
        ("jobs", f"{len(made):,}"),
        ("processors", f"{held:,}"),
        ("mean width", f"{like['width_mean']:.2f}"),
        ("greatest width", f"{like['width_max']:,}"),
        ("one-process jobs", f"{like['serial_share']:.1%}"),
        ("powers of two above 1", f"{like['power_of_two_share']:.1%}"),
        ("mean run time", f"{like['runtime_mean']:,.1f} s"),
        ("longest run time", span(like["runtime_max"] or 0)),
        ("variation of run times", f"{like['runtime_cv']:.2f}"),
        ("mean gap", f"{like['gap_mean']:,.1f} s"),
        ("load", "" if like["load"] is None else f"{like['load']:.3f}"),
        ("mean estimate", "" if like["estimate_mean"] is None else f"{like['estimate_mean']:,.1f} s"),
        ("mean CPU use", "" if like["cpu_mean"] is None else f"{like['cpu_mean']:.3f}"),
    ]
    print_table(("", told["model"]), [row for row in shown if row[1]], right=(told["model"],))
    for note in made.notes:
        click.echo(note)
    if out is not None:
        click.echo(f"Written: {out}.")
