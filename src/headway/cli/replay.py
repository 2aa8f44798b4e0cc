"""A trace on a running server, as tasks that sleep, compared with its simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import click

from headway.cli.main import INTERRUPTED
from headway.cli.progress import progress
from headway.cli.reach import Reach, asks_server
from headway.cli.show import counted, print_table
from headway.cli.trace import Trace, names_trace
from headway.errors import InvalidInput
from headway.metrics import summarise, to_json
from headway.metrics.collect import Metrics
from headway.model.node import NodeSpec

COMPARED_MEASURES: Final = (
    *("wait_mean", "response_mean", "response_p95", "bounded_slowdown_mean", "makespan"),
    *("deadline_miss_rate", "tardiness_mean", "deadline_miss_penalty"),
)
"""What is compared. Who held how many slots when is known to the server alone, so the rate of violations is not."""


@click.command()
@names_trace
@click.option("--scale", default=1.0, show_default=True, help="Multiply all times; 0.1 is ten times as fast.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object; times in seconds.")
@asks_server
def replay(reach: Reach, trace: Trace, scale: float, as_json: bool) -> int:
    """Submit the jobs of a log or a table to a server, each at its time. Their tasks sleep for the job's run time.

    When all have ended, the command compares them with a simulation of the same jobs, under the policy of the server
    and on a cluster like its own.
    """
    from headway.client.replay import Replay
    from headway.sim.experiment import run
    from headway.traces.transforms import from_zero, scale_times

    if not scale > 0:
        raise InvalidInput("--scale", scale, "a number above 0")
    with reach() as client:
        nodes = client.nodes()
        slots = sum(len(node.slots) for node in nodes)
        workload = scale_times(from_zero(trace.read(slots, drop_wider=False)), scale)
        deciding, others = client.deciding(), client.statistics().jobs
        if not as_json:
            trace.tell(workload, slots)
        if others:
            click.echo(f"The server has {others} other jobs; the simulation does not have them.", err=True)
        if deciding.decider:
            click.echo(
                f"The decider at {deciding.decider} decides; in the simulation {deciding.policy} does.", err=True
            )
        if any(node.speed != 1 for node in nodes):
            click.echo("Tasks sleep as long on any node; the speeds of the nodes make them no shorter.", err=True)
        replayed = Replay(client, workload)
        try:
            totals = {"submitted": len(workload), "ended": len(workload)}
            with progress(totals, lambda: (len(replayed.waiters), replayed.ended)):
                replayed.submit()
                replayed.wait()
        except KeyboardInterrupt:
            click.echo(
                f"\nAt least {len(replayed.waiters)} of {counted(len(workload), 'job')} were submitted; those that "
                "have not ended go on: `headway jobs --status open` lists them, `headway cancel ID...` ends them.",
                err=True,
            )
            return INTERRUPTED
        live = summarise(replayed.schedule(slots))
    policy = deciding.policy
    # Nodes that are down or drain may come back; a job that ran had a node that was up.
    cluster = [NodeSpec(node.name, len(node.slots)) for node in nodes]
    simulated = summarise(run(workload, cluster, policy, period=deciding.period))
    if as_json:
        told = {
            name: {key: metrics[key] for key in COMPARED_MEASURES} for name, metrics in both(live, simulated).items()
        }
        click.echo(to_json({"policy": policy, "jobs": len(workload), "scale": scale, **told}), nl=False)
    else:
        click.echo(
            f"{counted(len(workload), 'job')} ended under {policy}. Times are in seconds, as the server had them."
        )
        print_differences(live, simulated, COMPARED_MEASURES)
        failed = live["jobs"] - live["jobs_succeeded"]
        if failed:
            click.echo(f"{failed} did not succeed; their response times are in no mean.")
    return 0 if live["jobs_succeeded"] == live["jobs"] else 1


def both(live: Metrics, simulated: Metrics) -> dict[str, Metrics]:
    """Both by their names."""
    return {"live": live, "simulated": simulated}


def print_differences(live: Mapping[str, float], simulated: Mapping[str, float], measures: Sequence[str]) -> None:
    """Print measures of a live run beside those of its simulation, and how far they are apart."""
    rows = []
    for measure in measures:
        one, other = live[measure], simulated[measure]
        if not (math.isnan(one) and math.isnan(other)):
            rows.append((measure, f"{one:,.4g}", f"{other:,.4g}", difference(one, other)))
    print_table(("measure", "live", "simulated", "difference"), rows, right=("live", "simulated", "difference"))


def difference(live: float, simulated: float) -> str:
    """How much more the first is, in percent of the second."""
    if live == simulated:
        return "0"
    return f"{(live - simulated) / simulated:+.1%}" if simulated else "–"
