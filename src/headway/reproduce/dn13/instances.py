"""DN13, section 5: 25 instances of 1,000 workflows at five sites, under the paper's two schedulers and under ours."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from headway import pictures
from headway.metrics import summarise
from headway.model.instant import SECOND
from headway.model.job import TaskSpec
from headway.model.workload import FloatArray
from headway.pictures import Mean, Point
from headway.reproduce.experiment import Progress, Result, Statement, range_of, ratio
from headway.reproduce.processes import done
from headway.reproduce.tables import Table
from headway.sim.experiment import run
from headway.traces import read_workflows
from headway.workloads import dn13

METHODS: Final[dict[str, str]] = {
    "RR": "sites:top=rr,each=heft:holes=best,per_instant=true",
    "LB": "sites:top=lb,each=heft:holes=best",
    "RR, soonest": "sites:top=rr,each=heft,per_instant=true",
    "RR, due": "sites:top=rr,each=heft:order=due,per_instant=true",
    "fill, soonest": "sites:top=fill,each=heft",
    "fill, due": "sites:top=fill,each=heft:order=due",
}
"""Those of the paper, the first two; then what each idea of ours gives by itself, and last all of them."""

PAPERS: Final = ("RR", "LB")
OURS: Final = "fill, due"
MEASURES: Final = ("makespan", "energy_joules", "total_penalty")
WORDS: Final = {"makespan": "makespan", "energy_joules": "energy", "total_penalty": "penalty"}

PUBLISHED: Final = {"RR": (0.8, 0.8, 0.2), "LB": (11.9, 8.9, 13.8)}
"""Table 1: the mean difference to the best of both per instance, in percent, by measure."""

FIGURE_1: Final = (20.0, 17.0)
"""Of makespan and energy that RR has less than LB, in percent."""

NEAR: Final = 5.0
"""Percentage points: a mean difference this near to the published one counts as the same."""

STANDINS: Final = 40
"""Generated workflows that replace real ones, if there are none: about as many as there would be."""

SEEDS: Final = 5
"""Instances of each kind, as 25 of five kinds."""


class Asked(NamedTuple):
    """What is to be performed.

    Attributes:
        seeds: of the instances of each kind.
        jobs: workflows of an instance.
        sites: how large the sites are, see `dn13.SIZES`.
        kinds: of instances.
        added: policies besides those of the paper and ours.
        processes: how many work at once; None: one for each core.
        data: the folder with real workflows; None: generated ones replace them.
    """

    seeds: range
    jobs: int = dn13.JOBS_OF_INSTANCE
    sites: dn13.Size = "alike"
    kinds: tuple[str, ...] = dn13.NAMES
    added: tuple[str, ...] = ()
    processes: int | None = None
    data: str | None = None

    @property
    def methods(self) -> dict[str, str]:
        """All policies by name."""
        return METHODS | {text: text for text in self.added}


class _Work(NamedTuple):
    """One instance under one policy; `data` is the folder of real workflows, None: generated ones replace them."""

    kind: str
    seed: int
    jobs: int
    sites: dn13.Size
    policy: str
    data: str | None = None


class Ran(NamedTuple):
    """One run: its measures, and the lower bound of the makespan in seconds."""

    measures: tuple[float, ...]
    bound: float


def runs(asked: Asked) -> int:
    """How many simulations it takes."""
    return len(asked.kinds) * len(asked.seeds) * len(asked.methods)


def perform(asked: Asked, progress: Progress) -> Result:
    """Run every instance under every policy."""
    methods = asked.methods
    keys = list(product(asked.kinds, asked.seeds, methods))
    works = [_Work(kind, seed, asked.jobs, asked.sites, methods[name], asked.data) for kind, seed, name in keys]
    found: dict[int, Ran] = {}
    for place, ran in done(_run, works, asked.processes):
        found[place] = ran
        progress(len(found))
    return result({key: found[place] for place, key in enumerate(keys)}, asked)


def _run(work: _Work) -> Ran:
    nodes = dn13.cluster(work.kind, work.seed, work.sites)
    if work.kind == dn13.REAL:
        jobs = dn13.drawn(real_graphs(work.data), work.seed, work.jobs, nodes)
    else:
        jobs = dn13.instance(work.kind, work.seed, work.jobs, nodes)
    graphs = [jobs.workflows[place] for place in range(len(jobs))]
    metrics = summarise(run(jobs, nodes, work.policy))
    return Ran(tuple(float(metrics[name]) for name in MEASURES), dn13.lower_bound(graphs, nodes) / SECOND)


@cache
def real_graphs(data: str | None) -> list[tuple[TaskSpec, ...]]:
    """The workflows in `wfinstances` and `dax` of a folder, by name of file; None: a mix of generated ones."""
    if data is None:
        return list(dn13.instance(dn13.MIX, jobs=STANDINS).workflows.values())
    return list(read_workflows(_files(Path(data))).workflows.values())


def folder_of_workflows() -> str | None:
    """`workflows` in the folder that `HEADWAY_DATA` names; None: there are none."""
    folder = Path(os.environ.get("HEADWAY_DATA") or "-") / "workflows"
    return str(folder) if _files(folder) else None


def _files(folder: Path) -> list[Path]:
    """WfFormat and DAX, plain or gzipped, in order of their names."""
    return sorted(path for name in ("wfinstances", "dax") for path in (folder / name).glob("*.[jx][sm]*"))


Runs = Mapping[tuple[str, int, str], Ran]
"""Each run by kind and seed of its instance, and by method."""


def result(ran: Runs, asked: Asked) -> Result:
    """What the runs say."""
    numbers = {name: _column(ran, asked, name) for name in asked.methods}
    bounds = np.array([ran[kind, seed, OURS].bound for kind, seed in product(asked.kinds, asked.seeds)])
    first = (asked.kinds[0], asked.seeds[0])
    return Result(
        about=(
            f"{len(bounds)} instances of {asked.jobs} workflows at five sites, {dn13.SIZES[asked.sites]}. "
            "RR and LB are the paper's: jobs in turn, or to the site with the fewest, and best holes at each site. "
            "The others show what our ideas give: soonest ends instead of best holes, tasks by latest start (due), the "
            "most efficient site with room first (fill)." + (_about_real(asked) if dn13.REAL in asked.kinds else "")
        ),
        tables=(_differences(numbers), _beside(numbers, bounds, asked), _by_kind(numbers, bounds, asked)),
        statements=(*_statements(numbers), *_figure_1(numbers, asked)),
        columns=("kind", "seed", "method", *MEASURES, "makespan_bound"),
        rows=[(*key, *one.measures, one.bound) for key, one in ran.items()],
        pictures={
            "fig1.png": partial(_draw_instance, {name: ran[*first, name].measures for name in asked.methods}, first),
            "front.png": partial(_draw_front, numbers, asked),
        },
    )


def _about_real(asked: Asked) -> str:
    if asked.data is None:
        return " The real workflows are not there: generated ones replace them. Set HEADWAY_DATA to use real ones."
    return f" Real workflows are drawn from {len(real_graphs(asked.data))}, for ten processors at a site."


def _column(ran: Runs, asked: Asked, name: str) -> FloatArray:
    """The measures of a method, shape (instances, measures)."""
    rows = [ran[kind, seed, name].measures for kind, seed in product(asked.kinds, asked.seeds)]
    return np.array(rows, dtype=np.float64)


def differences(numbers: Mapping[str, FloatArray], among: Sequence[str]) -> dict[str, FloatArray]:
    """By how many percent each of these methods is above the best of them, shape (instances, measures).

    Where the best is 0, a method that is not counts as 100 % above it.
    """
    best = np.minimum.reduce([numbers[name] for name in among])
    return {
        name: 100 * np.divide(numbers[name] - best, best, out=np.where(numbers[name] > best, 1.0, 0.0), where=best > 0)
        for name in among
    }


def _differences(numbers: Mapping[str, FloatArray]) -> Table:
    both = differences(numbers, PAPERS)
    rows = [
        (
            name,
            *(
                f"{published:g} / {ours:.1f}"
                for published, ours in zip(PUBLISHED[name], both[name].mean(0), strict=True)
            ),
        )
        for name in PAPERS
    ]
    columns = ("", *(f"{WORDS[measure]}, %" for measure in MEASURES))
    return Table("Table 1: mean difference to the best of both, published / ours", columns, rows)


def _beside(numbers: Mapping[str, FloatArray], bounds: FloatArray, asked: Asked) -> Table:
    base = numbers["RR"]
    rows = []
    for name in asked.methods:
        relative = ratio(numbers[name], base)
        rows.append(
            (
                name,
                f"{(numbers[name][:, 0] / bounds).mean():.3f}",
                *map(_cell, relative.T),
            )
        )
    columns = ("method", "makespan / bound", *(f"{WORDS[measure]} / RR" for measure in MEASURES))
    return Table("Means over the instances, in brackets the worst one; the bound is a lower one", columns, rows)


def _cell(values: FloatArray, *, worst: bool = True) -> str:
    """The mean, and in brackets the largest, of those that are numbers: a ratio to a penalty of 0 is none."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return "-"
    return f"{finite.mean():.3f}" + (f" ({finite.max():.2f})" if worst else "")


def _by_kind(numbers: Mapping[str, FloatArray], bounds: FloatArray, asked: Asked) -> Table:
    rows = []
    for place, kind in enumerate(asked.kinds):
        part = slice(place * len(asked.seeds), (place + 1) * len(asked.seeds))
        ours, base = numbers[OURS][part], numbers["RR"][part]
        rows.append(
            (
                kind,
                *(f"{(numbers[name][part, 0] / bounds[part]).mean():.3f}" for name in (*PAPERS, OURS)),
                *(_cell(values, worst=False) for values in ratio(ours, base).T[1:]),
            )
        )
    columns = ("kind", *(f"{name}: makespan / bound" for name in (*PAPERS, OURS)), "energy / RR", "penalty / RR")
    return Table("By kind of workflows; the last two of ours", columns, rows)


def _statements(numbers: Mapping[str, FloatArray]) -> tuple[Statement, ...]:
    both = differences(numbers, PAPERS)
    chance = np.random.default_rng(0)
    again = chance.integers(0, len(both["RR"]), (2000, len(both["RR"])))
    told = []
    for name, (place, measure) in product(PAPERS, enumerate(MEASURES)):
        values = both[name][:, place]
        low, high = range_of(values[again].mean(axis=1))
        told.append(
            Statement(
                f"{name} is above the best of both in {WORDS[measure]} by",
                *(PUBLISHED[name][place], float(values.mean()), low, high, NEAR),
                form="{:.1f} %",
            )
        )
    lead = both["LB"].mean(axis=0) - both["RR"].mean(axis=0)
    for place, measure in enumerate(MEASURES):
        draws = (both["LB"] - both["RR"])[:, place][again].mean(axis=1)
        low, high = range_of(draws)
        published = PUBLISHED["LB"][place] - PUBLISHED["RR"][place]
        told.append(
            Statement(
                f"RR is ahead of LB in {WORDS[measure]} by",
                *(published, float(lead[place]), low, high, NEAR),
                neutral=0.0,
                form="{:.1f} points",
            )
        )
    return tuple(told)


def _figure_1(numbers: Mapping[str, FloatArray], asked: Asked) -> list[Statement]:
    """By how much RR is below LB on an instance of series-parallel workflows; the range is over all of them."""
    if asked.kinds[0] != dn13.NAMES[0]:
        return []
    less = 100 * (1 - numbers["RR"] / numbers["LB"])[: len(asked.seeds)]
    return [
        Statement(
            f"figure 1: RR has less {WORDS[measure]} than LB by",
            *(published, float(less[0, place]), float(less[:, place].min()), float(less[:, place].max()), NEAR),
            neutral=0.0,
            form="{:.1f} %",
        )
        for place, (measure, published) in enumerate(zip(MEASURES, FIGURE_1, strict=False))
    ]


def _draw_instance(measures: Mapping[str, tuple[float, ...]], which: tuple[str, int], path: Path) -> None:
    points = {name: Point(Mean(one[0] / 3600, 0.0), Mean(one[1] / 3.6e6, 0.0)) for name, one in measures.items()}
    pictures.plane(
        {f"{which[0]}, seed {which[1]}": points},
        path,
        x="makespan, hours",
        y="energy, kWh",
        better="less",
        log=False,
        title="Figure 1 of DN13: energy and makespan on one instance",
    )


def _draw_front(numbers: Mapping[str, FloatArray], asked: Asked, path: Path) -> None:
    seeds = len(asked.seeds)

    def mean(values: FloatArray) -> Mean:
        return Mean(float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0)

    panels = {}
    for place, kind in enumerate(asked.kinds):
        part = slice(place * seeds, (place + 1) * seeds)
        relative = {name: numbers[name][part, :2] / numbers["RR"][part, :2] for name in asked.methods}
        panels[kind] = {name: Point(mean(one[:, 0]), mean(one[:, 1])) for name, one in relative.items()}
    pictures.plane(
        panels,
        path,
        x="makespan, RR = 1",
        y="energy, RR = 1",
        spread="standard error",
        better="less",
        log=False,
        title=f"Energy against makespan: means over {seeds} instances" + (" of each kind" if len(panels) > 1 else ""),
    )
