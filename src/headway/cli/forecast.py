"""Forecasts of a simulated log, held against what came."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from headway.cli.paths import GivenPath
from headway.cli.progress import progress
from headway.cli.show import print_table, span
from headway.cli.simulate import nodes_of
from headway.cli.trace import Trace, names_trace
from headway.metrics import to_json

if TYPE_CHECKING:
    from headway.foresight.trial import DatesKept, ForecastQuality, Held, Kept


@click.command()
@names_trace
@click.option("--policy", default="easy", show_default=True, help="NAME[:KEY=VALUE,...], or FILE.py:NAME[,KEY=VALUE].")
@click.option(
    "--slots", type=int, help="One node with this number of slots of speed 1; default: as the header of a log says."
)
@click.option("--cluster", type=GivenPath(dir_okay=False), help="TOML file that declares nodes.")
@click.option(
    "--instants",
    default=100,
    type=click.IntRange(min=1),
    show_default=True,
    help="How often the log is stopped, at random instants.",
)
@click.option(
    "--futures",
    type=click.IntRange(min=2),
    help="How many futures are simulated at each instant; default: as by a server, 40, and fewer with many open jobs.",
)
@click.option(
    "--rehearsals",
    default=200,
    type=click.IntRange(min=0),
    show_default=True,
    help="Forecasts beside them; what came of them corrects the bounds of later ones.",
)
@click.option("--arrivals", is_flag=True, help="Jobs come in the futures too, as they did in the week before.")
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON; times in seconds.")
def forecast(
    trace: Trace,
    policy: str,
    slots: int | None,
    cluster: str | None,
    instants: int,
    futures: int | None,
    rehearsals: int,
    arrivals: bool,
    as_json: bool,
) -> None:
    """Stop a simulated log at random instants, forecast its open jobs, and hold the forecasts against what came.

    A forecast gives bounds between which a job is expected to end, or to start, with a probability of 50 and of 90 %.
    It is made of many futures of the state at that instant, in which run times are drawn from those of similar jobs
    that had ended by then. Good bounds hold as often as they say, and are narrow. The line of due dates tells how many
    jobs ended by the one that `headway advise` would have named with 90 %. Jobs of which nothing was known count
    apart.
    """
    from headway.foresight.learning import RunTimesOfLog
    from headway.foresight.trial import trial
    from headway.policy_files import find

    find(policy)  # a typing mistake is reported before a long run
    nodes = nodes_of(trace.file, slots, cluster)
    held = sum(node.slots for node in nodes)
    workload = trace.read(held)
    if not as_json:
        trace.tell(workload, held, "" if slots or cluster else ", as its header says")
    workload = trace.without_run_times_as_estimates(workload)
    made = [0]

    def told(number: int) -> None:
        made[0] = number

    with progress({"forecasts": instants + rehearsals}, lambda: made):
        found = trial(
            workload,
            nodes,
            policy,
            RunTimesOfLog(workload),
            instants=instants,
            seed=trace.seed,
            futures=futures,
            rehearsals=rehearsals,
            arrivals=arrivals,
            progress=told,
        )
    if as_json:
        told_by = {
            "policy": policy,
            "slots": held,
            "jobs": len(workload),
            "instants": instants,
            "seed": trace.seed,
            **_object(found),
        }
        click.echo(to_json(told_by), nl=False)
        return
    rows = [
        row
        for name, kept, other in (
            ("end", found.end, "by the estimates alone"),
            ("start", found.start, "by past waits alone"),
        )
        for row in _rows(name, kept, other)
    ]
    rows.append(_due_row(found.due_90))
    if found.no_forecast:
        rows.append(("no forecast: run times unknown", f"{found.no_forecast:,}", "", "", "", ""))
    headings = ("forecast of", "asked", "within 50 %", "within 90 %", "+/-", "median width of 90 %")
    print_table(headings, rows, right=headings[1:])


def _due_row(dates: DatesKept) -> tuple[str, ...]:
    """How often due dates were kept: the share of jobs that ended by them is in the column of 90 %."""
    told = ("", "") if not dates.asked else ("", f"{dates.kept:.1%}")
    return "end: by a due date of 90 %", f"{dates.asked:,}", *told, _error(dates.error), ""


def _error(share: float) -> str:
    return "" if np.isnan(share) else f"{share:.1%}"


def _object(found: ForecastQuality) -> dict[str, Any]:
    """The figures for programs."""
    return {
        **_of_bounds(found.end),
        "start": _of_bounds(found.start),
        "due_90": asdict(found.due_90),
        "no_forecast": found.no_forecast,
    }


def _of_bounds(kept: Kept) -> dict[str, Any]:
    """The figures of one sort of bounds."""
    return {
        **asdict(kept.whole),
        "ahead": [{"from": one.since, "to": one.until, **asdict(one.held)} for one in kept.ahead],
        "uncorrected": asdict(kept.uncorrected),
        "others": asdict(kept.other),
    }


def _rows(name: str, kept: Kept, other: str) -> list[tuple[str, ...]]:
    """The figures of one sort of bounds for people."""

    def row(what: str, held: Held) -> tuple[str, ...]:
        if not held.asked:
            return (what, "0", "", "", "", "")
        return (
            *(what, f"{held.asked:,}", f"{held.coverage_50:.1%}", f"{held.coverage_90:.1%}"),
            _error(held.error_90),
            span(held.width_90_median),
        )

    return [
        row(f"{name}: all", kept.whole),
        *(
            row(
                f"{name}: {span(one.since)} to {span(one.until)} ahead"
                if one.until is not None
                else f"{name}: {span(one.since)} ahead or more",
                one.held,
            )
            for one in kept.ahead
            if one.held.asked
        ),
        row(f"{name}: all, uncorrected", kept.uncorrected),
        row(f"{name}: all, {other}", kept.other),
    ]
