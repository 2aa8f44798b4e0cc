"""Draw the pictures of the README and of docs/how-to/draw-pictures.md again (`make pictures`), in two minutes.

They show the log that `make demo` generates, as bags with due dates. The title of the first states the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headway import pictures, simulate, summarise
from headway.cli.demo import BAG_FACTOR, LOAD, SLOTS_SIMULATED, synthetic_log
from headway.cli.output import subject
from headway.config import uniform_cluster
from headway.live.driver import FIRST_POLICY
from headway.model.schedule import Schedule
from headway.model.workload import Workload
from headway.traces import transforms

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "pictures"
POLICIES: Final = ("fcfs", "priority", "edf", "deadline", FIRST_POLICY)
MEASURES: Final = ("deadline_miss_rate", "deadline_miss_penalty", "priority_violation_rate")
PART: Final = (93.0, 94.0)
"""Hours of the run that are drawn as a Gantt chart."""


def main() -> None:
    """Simulate, and write the four pictures."""
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


def _comparison(runs: dict[str, Schedule], bags: Workload) -> None:
    found = {
        f"{policy} (default)" if policy == FIRST_POLICY else policy: summarise(run) for policy, run in runs.items()
    }
    missed = {policy: measured["deadline_miss_rate"] for policy, measured in found.items()}
    best, second = sorted(missed, key=missed.__getitem__)[:2]
    title = (
        f"{best} misses {missed[best]:.1%} of the due dates; the next best, {second}, {missed[second]:.1%}; "
        f"first come, first served {missed['fcfs']:.0%}"
    )
    about = subject("A made-up log", bags, SLOTS_SIMULATED)
    drawn = pictures.comparison(found, names=MEASURES, title=title, note=f"{about}. Jobs are bags of tasks.")
    drawn.savefig(FOLDER / "policies-compared.png", metadata={"Description": ", ".join(found)})


if __name__ == "__main__":
    main()
