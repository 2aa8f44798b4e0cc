"""Predicted run times of a simulated log, held against what came."""

from __future__ import annotations

from dataclasses import asdict

import click

from headway.cli.paths import GivenPath
from headway.cli.show import print_table, span
from headway.cli.simulate import RunProgress, nodes_of
from headway.cli.trace import Trace, names_trace
from headway.errors import HeadwayError
from headway.metrics import to_json


@click.command()
@names_trace
@click.option("--policy", default="easy", show_default=True, help="NAME[:KEY=VALUE,...], or FILE.py:NAME[,KEY=VALUE].")
@click.option(
    "--slots", type=int, help="One node with this number of slots of speed 1; default: as the header of a log says."
)
@click.option("--cluster", type=GivenPath(dir_okay=False), help="TOML file that declares nodes.")
@click.option(
    "--yardstick",
    is_flag=True,
    help="Compare with gradient boosting that sees the first half of the jobs at once, on the second half.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON; times in seconds.")
def predict(trace: Trace, policy: str, slots: int | None, cluster: str | None, yardstick: bool, as_json: bool) -> None:
    """Predict the run time of each job of a log when it comes, and hold the predictions against what came.

    Predictions are learnt on the way, from the jobs that had ended by then under the policy. They have bounds between
    which a job is expected to run with a probability of 50 and of 90 %. Beside them are the user's own estimate and the
    mean of the user's last two jobs, each taken for every bound. Where users gave no estimates, they have no
    line.
    """
    from headway.history.factors import check_learner
    from headway.history.trial import Watched, compared
    from headway.history.yardstick import boosted
    from headway.policy_files import find
    from headway.sim.kernel import Simulation

    if yardstick:
        check_learner()
    find(policy)  # a typing mistake is reported before a long run
    nodes = nodes_of(trace.file, slots, cluster)
    held = sum(node.slots for node in nodes)
    workload = trace.read(held)
    if not as_json:
        trace.tell(workload, held, "" if slots or cluster else ", as its header says")
    if len(workload.workflows) == len(workload):
        raise HeadwayError(
            f"{trace.name} has only workflows",
            "Predictions are of whole jobs; the tasks of workflows keep their estimates.",
        )
    workload = trace.without_run_times_as_estimates(workload)
    said = workload.estimate >= 0
    watched = Watched(cut=bool(said.any()) and bool((workload.runtime <= workload.estimate)[said].all()))
    with RunProgress(policy) as progress:
        Simulation(workload, nodes, find, policy, predictor=watched).run(progress)
    asked = watched.asked
    if not asked:
        raise HeadwayError(f"no job of {trace.name} has succeeded", "There is nothing to hold predictions against.")
    if yardstick:
        half = len(asked) // 2
        if not half:
            raise HeadwayError(f"one job of {trace.name} has succeeded", "--yardstick needs two: it learns of half.")
        bounds, asked = boosted(asked, half), asked[half:]
    found = compared(asked, (lambda _: {"boosting": bounds}) if yardstick else None)
    if as_json:
        told = {"policy": policy, "slots": held, "jobs": len(asked)}
        click.echo(to_json(told | {"predictors": {name: asdict(one) for name, one in found.items()}}), nl=False)
        return
    rows = [
        (
            name,
            "" if one.within_50 is None else f"{one.within_50:.1%}",
            "" if one.within_90 is None else f"{one.within_90:.1%}",
            "" if one.width_90 is None else span(one.width_90),
            span(one.error),
            span(one.pinball),
        )
        for name, one in found.items()
    ]
    headings = ("predictor", "within 50 %", "within 90 %", "median width of 90 %", "mean error", "pinball loss")
    print_table(headings, rows, right=headings[1:])
