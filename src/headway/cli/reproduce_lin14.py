"""The experiments of Lin14, repeated: published figures beside ours, pictures, and every run as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headway import policy_files
from headway.cli.output import make_folder
from headway.cli.paths import GivenPath
from headway.cli.progress import progress
from headway.cli.replay import print_differences
from headway.cli.report import Report

if TYPE_CHECKING:
    from headway.reproduce.failure import Curve
    from headway.reproduce.published import Statement
    from headway.reproduce.samples import Log
    from headway.reproduce.sweep import Row

FIGURES: Final = ("fig6.2", "fig6.3", "fig6.4", "fig6.5")
EXPERIMENTS: Final = ("fig6.1", *FIGURES, "sweep", "live")

SAMPLES_LEAST: Final = 5
"""As many as the thesis has; figures are shown for them and for all."""

SWEPT_UNASKED: Final = 10
"""Samples of the sweep where it was not asked for by name, so that all of it takes minutes."""

AIM: Final = 0.03
"""How far the mean response of a live run may be from its simulation's."""

LIVE_MEASURES: Final = (
    *("wait_mean", "response_mean", "response_p95", "makespan", "utilisation"),
    *("deadline_miss_rate", "tardiness_mean", "deadline_miss_penalty", "priority_violation_rate"),
)


@click.command(short_help="Job dispatching and scheduling under heterogeneous clusters (2014), chapter 6.")
@click.argument("what", metavar="[WHAT]...", nargs=-1, type=click.Choice(EXPERIMENTS))
@click.option("--samples", type=click.IntRange(min=SAMPLES_LEAST), help="Samples of the log; default 50.")
@click.option("--policy", "added", multiple=True, help="One more policy: NAME[:KEY=VALUE,...]; any number of times.")
@click.option(
    "--log",
    "file",
    type=GivenPath(dir_okay=False),
    help="The log; default: the one in $HEADWAY_DATA, else a generated one.",
)
@click.option(
    "--estimates",
    type=click.Choice(["known", "learnt"]),
    default="known",
    show_default=True,
    help="Whether policies know run times, or learn them.",
)
@click.option(
    "--processes", type=click.IntRange(min=1), help="How many processes work at once; default: one for each processor."
)
@click.option(
    "--cluster",
    type=GivenPath(exists=True, dir_okay=False, path_type=Path),
    help="For live: a cluster file with eight slots; default: eight slots of this machine.",
)
@click.option("--out", type=GivenPath(file_okay=False), help="Write pictures and every run to this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object.")
def lin14(
    what: tuple[str, ...],
    samples: int | None,
    added: tuple[str, ...],
    file: str | None,
    estimates: Any,
    processes: int | None,
    cluster: Path | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Repeat the experiments of the thesis Lin14 (chapter 6), and compare its published figures with ours.

    fig6.1, a job that loses six of its eight workers and catches up, simulated and live; fig6.2
    to fig6.5, its policies on samples of SDSC-Par96; sweep, the same over loads up to overload; live, one sample on a
    live cluster and in the simulator. By default: all that is simulated, the sweep with few samples. Live runs take
    one minute (fig6.1) and three (live).
    """
    from headway.reproduce.samples import open_log
    from headway.reproduce.sweep import BEYOND, POLICIES

    for text in added:
        policy_files.find(text)
    folder = None if out is None else Path(out)
    if folder is not None:
        make_folder(folder)
    log = open_log(file)
    policies = tuple(dict.fromkeys((*POLICIES, *added)))
    report = Lin14Report("lin14", folder, as_json, log=log)
    wanted = what or EXPERIMENTS[:-1]
    if "fig6.1" in wanted:
        report.failure(live=bool(what))
    if figures := [name for name in FIGURES if name in wanted]:
        report.figures(figures, policies, samples or 50, estimates, processes)
    if "sweep" in wanted:
        swept = tuple(dict.fromkeys((*policies, BEYOND)))
        report.sweep(swept, samples or (50 if what else SWEPT_UNASKED), estimates, processes)
    if "live" in wanted:
        report.live(cluster)
    report.end({"log": {"name": log.name, "made_up": log.is_standin}})


@dataclass
class Lin14Report(Report):
    """Results of the experiments of Lin14.

    Attributes:
        log: the log that is sampled.
    """

    log: Log = field(kw_only=True)
    _log_was_told: bool = False

    def failure(self, *, live: bool) -> None:
        """Figure 6.1."""
        from headway.reproduce import failure

        self.heading("Figure 6.1: one job due after 240 s; six of eight workers are down from 55 s to 115 s")
        found = {"simulated": failure.simulated()}
        if live:
            from headway.reproduce.live import failure_live

            self.say("Live, with both runs at once and all times divided by five: 48 s.")
            found["live"] = failure_live(self.aside)
        remarks = {run: failure.remarks(curves) for run, curves in found.items()}
        for run, sentences in remarks.items():
            self.say(f"{run.capitalize()}:")
            for sentence in sentences:
                self.say(f"  {sentence}")
        apart = {
            name: failure.apart(found["simulated"][name], found["live"][name])
            for name in found["simulated"]
            if "live" in found
        }
        for name, slots in apart.items():
            self.say(f"Live and simulated are {slots:.2f} slots apart on average, {name}.")
        self.told["fig6.1"] = {
            "runs": {run: {name: _curve(curve) for name, curve in curves.items()} for run, curves in found.items()},
            "remarks": remarks,
            "slots_apart": apart,
        }
        if folder := self.drawing():
            from headway.reproduce import drawn

            drawn.failure(found, folder / "fig6.1.png")
            self.written.append("fig6.1.png")

    def figures(
        self, names: Sequence[str], policies: Sequence[str], samples: int, estimates: Any, processes: int | None
    ) -> None:
        """Figures 6.2 to 6.5, on as many samples as in the thesis, and on all."""
        from headway.reproduce.published import FIGURES as MEASURES
        from headway.reproduce.published import told
        from headway.reproduce.samples import SPEED_STEPS

        self._tell_log()
        kinds = sorted({MEASURES[name][1] for name in names})
        rows = self._run("figures", policies, [None], samples, kinds, estimates, processes)
        few = [row for row in rows if row.seed < SAMPLES_LEAST]
        if True in kinds:
            steps = ", ".join(f"{step:g}" for step in SPEED_STEPS)
            self.say(f"Different speeds: 1 + x and 1 - x for each pair of machines, x drawn by the seed from {steps}.")
        for name in names:
            measure, differ = MEASURES[name]
            title = "deadline miss penalty" if "penalty" in measure else "average priority violation rate"
            cluster = "workers of different speeds" if differ else "workers alike"
            self.heading(f"Figure {name.removeprefix('fig')}: {title}, {cluster}; mean ± standard error")
            parts = {len({row.seed for row in part}): part for part in (few, rows)}
            headings = [f"{count} samples" for count in parts]
            cells = [
                (policy, *(_mean(part, measure, policy, None, differ) for part in parts.values()))
                for policy in policies
            ]
            self.table(("policy", *headings), cells, right=headings)
            judged = [_judged(statement, parts) for statement in told([name])]
            for one in judged:
                ours = ", ".join(f"{_number(value)} with {count} samples" for count, value in one["ours"].items())
                self.say(f"{one['verdict']}: {one['words']}")
                self.say(
                    f"    published {_number(one['published'])}; ours {ours} "
                    f"(90 %: {_number(one['low'])} to {_number(one['high'])})"
                )
            self.told[name] = {"means": _means(rows, policies, [None], [differ]), "statements": judged}
            if folder := self.drawing():
                from headway.reproduce import drawn

                drawn.figure(name, rows, policies, self.log, folder / f"{name}.png")
                self.written.append(f"{name}.png")
        self._every("figures.csv", rows)

    def sweep(self, policies: Sequence[str], samples: int, estimates: Any, processes: int | None) -> None:
        """The same policies over loads."""
        from headway.reproduce.published import PENALTY, VIOLATION
        from headway.reproduce.sweep import LOADS

        self._tell_log()
        rows = self._run("sweep", policies, LOADS, samples, [False, True], estimates, processes)
        for differ in (False, True):
            for measure, title in ((VIOLATION, "Violation rate"), (PENALTY, "Penalty, in thousands")):
                cluster = "workers of different speeds" if differ else "workers alike"
                self.heading(f"{title}, by load; {cluster}, means of {samples} samples")
                cells = [
                    (policy, *(_short(rows, measure, policy, load, differ) for load in LOADS)) for policy in policies
                ]
                headings = tuple(f"{load:g}" for load in LOADS)
                self.table(("policy", *headings), cells, right=headings)
        self.told["sweep"] = _means(rows, policies, LOADS, [False, True])
        if folder := self.drawing():
            from headway.reproduce import drawn

            self.written += drawn.sweep(rows, policies, self.log, folder)
        self._every("sweep.csv", rows)

    def live(self, cluster: Path | None) -> None:
        """One sample live and simulated."""
        from headway.reproduce.live import replayed

        self._tell_log()
        self.heading("One sample of 60 jobs on eight slots, live and simulated")
        found = replayed(self.log, tell=self.aside, cluster=cluster)
        for twice in found:
            if not self.as_json:
                click.echo(f"{twice.policy}:")
                print_differences(twice.live, twice.simulated, LIVE_MEASURES)
        for twice in found:
            away, delayed, held = twice.differences("response_mean")
            verdict = "within the 3 % aimed at" if abs(away) <= AIM else "more than the 3 % aimed at"
            self.say(
                f"{twice.policy}: mean response {away:+.1%} live, {verdict}; {delayed:+.1%} to the simulation\n"
                f"    with launches {twice.late / 1000:.1f} ms late, as a task held its slot longer than it slept;\n"
                f"    {held:+.1%} to the simulation in which each task has its slot as long as live."
            )
        self.told["live"] = [asdict(twice) for twice in found]

    def _run(
        self,
        name: str,
        policies: Sequence[str],
        loads: Sequence[float | None],
        samples: int,
        kinds: Sequence[bool],
        estimates: Any,
        processes: int | None,
    ) -> list[Row]:
        from headway.reproduce.sweep import sweep

        ended = [0]
        total = len(policies) * len(loads) * samples * len(kinds)
        with progress({name: total}, lambda: ended):
            return sweep(
                self.log,
                policies,
                loads,
                samples,
                heterogeneous=kinds,
                estimates=estimates,
                processes=processes,
                progress=lambda runs, _: ended.__setitem__(0, runs),
            )

    def _tell_log(self) -> None:
        """Say once which log is used."""
        if not self._log_was_told:
            self._log_was_told = True
            hint = " Set HEADWAY_DATA, or give --log, to use the real one." if self.log.is_standin else ""
            click.echo(f"Log: {self.log.name}, {len(self.log.workload):,} jobs.{hint}", err=self.as_json)

    def _every(self, name: str, rows: Sequence[Row]) -> None:
        """Write every run, one per line."""
        lines = ((row.policy, row.load, row.seed, row.heterogeneous, *row.metrics.values()) for row in rows)
        self.rows(name, ("policy", "load", "seed", "heterogeneous", *rows[0].metrics), lines)


def _curve(curve: Curve) -> dict[str, Any]:
    return {"at": curve.at.tolist(), "slots": curve.slots.tolist(), "ended": curve.ended}


def _judged(statement: Statement, parts: Mapping[int, Sequence[Row]]) -> dict[str, Any]:
    """A statement with our numbers, for JSON; the last part has all samples."""
    from headway.reproduce.published import found, verdict

    ours = {count: found(statement, rows) for count, rows in parts.items()}
    last = ours[max(ours)]
    return {
        "words": statement.words,
        "published": statement.published,
        "ours": {count: one.value for count, one in ours.items()},
        "low": last.low,
        "high": last.high,
        "verdict": verdict(statement, last),
    }


def _means(
    rows: Sequence[Row], policies: Sequence[str], loads: Sequence[float | None], kinds: Sequence[bool]
) -> list[dict[str, Any]]:
    """Both measures of each policy at each load on each cluster, for JSON."""
    from headway.reproduce.published import PENALTY, VIOLATION
    from headway.reproduce.sweep import column, spread

    def told(policy: str, load: float | None, differ: bool) -> Iterator[tuple[str, Any]]:
        yield from (("policy", policy), ("load", load), ("heterogeneous", differ))
        for measure in (VIOLATION, PENALTY):
            found = spread(column(rows, measure, policy, load, differ))
            yield measure, {"mean": found.mean, "deviation": found.deviation, "samples": found.samples}

    return [dict(told(policy, load, differ)) for differ in kinds for load in loads for policy in policies]


def _mean(rows: Sequence[Row], measure: str, policy: str, load: float | None, differ: bool) -> str:
    from headway.reproduce.sweep import column, spread

    found = spread(column(rows, measure, policy, load, differ))
    if "rate" in measure:
        return f"{found.mean:.3%} ± {found.error:.3%}"
    return f"{found.mean:,.0f} ± {found.error:,.0f}"


def _short(rows: Sequence[Row], measure: str, policy: str, load: float, differ: bool) -> str:
    from headway.reproduce.sweep import column, spread

    mean = spread(column(rows, measure, policy, load, differ)).mean
    return f"{mean:.2%}" if "rate" in measure else f"{mean / 1000:,.1f}"


def _number(value: float) -> str:
    """A number with three digits; very small ones as less than a bound."""
    if value and abs(value) < 0.001:
        return "less than 0.001"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
