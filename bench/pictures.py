"""Draw the pictures of the README, of docs/how-to/draw-pictures.md and of docs/policies/measy.md again, in two minutes.

All but the last show the log that `make demo` generates, as bags with due dates. The title of the first states the
result. The last is the worked example of MEASY14. Run it with `make pictures`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headway import pictures, simulate, summarise
from headway.cli.demo import BAG_FACTOR, LOAD, SLOTS_SIMULATED, synthetic_log
from headway.cli.output import subject
from headway.config import uniform_cluster
from headway.live.driver import FIRST_POLICY
from headway.model.instant import SECOND
from headway.model.node import NodeSpec
from headway.model.schedule import Schedule
from headway.model.workload import Workload, workload_us
from headway.pictures.canvas import number
from headway.sim.tiers import TwoTiers
from headway.sim.world import World
from headway.traces import transforms

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "pictures"
KILLS_NONE: Final = f"{FIRST_POLICY},redo=0"
POLICIES: Final = ("fcfs", "priority", "deadline", "edf", KILLS_NONE, FIRST_POLICY)
NAMES: Final = {FIRST_POLICY: f"{FIRST_POLICY} (default)"}
MEASURES: Final = ("deadline_miss_rate", "deadline_miss_penalty", "priority_violation_rate")
FIGURE_1: Final = (
    *((2, 10), (4, 6), (2, 5), (1, 11), (1, 2), (1, 3), (1, 5), (1, 4), (1, 5)),
    *((1, 8), (5, 2), (1, 6)),
)
"""Width and run time in seconds of J1 to J12, as tests/papers/test_measy14.py reads them from the text."""

FIGURE_1_SLOTS: Final = 5
FIGURE_1_SECONDS: Final = 22
PART: Final = (93.0, 94.0)
"""Hours of the run that are drawn as a Gantt chart."""


def main() -> None:
    """Simulate, and write the five pictures."""
    log = transforms.with_load(synthetic_log(seed=1), LOAD, SLOTS_SIMULATED)
    bags = transforms.due_dates(transforms.priorities_by_user(transforms.as_bags(log)), factor=BAG_FACTOR)
    nodes = uniform_cluster(SLOTS_SIMULATED)
    runs = {policy: simulate(bags, nodes, policy, record=True) for policy in dict.fromkeys(POLICIES)}
    _comparison(runs, bags)
    schedule, about = runs["edf"], subject("edf, a made-up log", bags, SLOTS_SIMULATED)
    pictures.timeline(schedule, FOLDER / "timeline.png", slots=SLOTS_SIMULATED, title=about)
    part = {"start": PART[0] * 3600, "end": PART[1] * 3600}
    title = f"{about}: one hour"
    pictures.gantt(schedule, FOLDER / "gantt-part.png", slots=SLOTS_SIMULATED, title=title, **part)
    pictures.allocation(schedule, FOLDER / "allocation-part.png", title=title, **part)
    _figure_1()


def _comparison(runs: dict[str, Schedule], bags: Workload) -> None:
    found = {policy: summarise(run) for policy, run in runs.items()}
    missed = {policy: f"{number(100 * measured['deadline_miss_rate'])} %" for policy, measured in found.items()}
    redone = found[FIRST_POLICY]["work_lost"] / float(transforms.work(bags).sum())
    title = (
        f"The default, {FIRST_POLICY}, misses {missed[FIRST_POLICY]} of the due dates; edf {missed['edf']}; "
        f"first come, first served {missed['fcfs']}"
    )
    note = (
        f"{subject('A made-up log', bags, SLOTS_SIMULATED)}. Jobs are bags of tasks. "
        f"The default kills tasks and redoes them, {number(100 * redone)} % of all work; the others redo nothing."
    )
    if any(measured["work_lost"] for policy, measured in found.items() if policy != FIRST_POLICY):
        raise SystemExit("the note is wrong: another policy redoes work")
    shown = {NAMES.get(policy, policy): measured for policy, measured in found.items()}
    drawn = pictures.comparison(shown, names=MEASURES, title=title, note=note)
    drawn.savefig(FOLDER / "policies-compared.png", metadata={"Description": "; ".join(found)})


def _figure_1() -> None:
    """One Gantt chart above the other, with the same scale of time."""
    import numpy as np
    from matplotlib.image import imsave

    width, seconds = np.array(FIGURE_1).T
    jobs = workload_us(
        release=[0] * len(width),
        runtime=seconds * SECOND,
        estimate=seconds * SECOND,
        width=width,
        cpu=np.where(width == 1, 1.0, 0.5),
        kind=1,
        label=[f"J{number}" for number in range(1, len(width) + 1)],
    )
    tiers = TwoTiers(loss=(0, 0), single=(0.8, 0.8), several=(0.8, 0, 0.8, 0.8))
    world = World(tiers=tiers, migration_cost=0)
    images = []
    for policy in ("keasy", "measy"):
        done = simulate(jobs, [NodeSpec("n", FIGURE_1_SLOTS)], f"{policy}:per_instant=true", world=world, record=True)
        title = f"{policy}: figure 1 of MEASY14, {len(jobs)} jobs on {FIGURE_1_SLOTS} slots"
        drawn = pictures.gantt(done, slots=FIGURE_1_SLOTS, title=title)
        drawn.axes[0].set_xlim(0, FIGURE_1_SECONDS)
        drawn.canvas.draw()
        images.append(np.asarray(drawn.canvas.buffer_rgba()))  # type: ignore[attr-defined]
    imsave(FOLDER / "measy14-figure1.png", np.concatenate(images))


if __name__ == "__main__":
    main()
