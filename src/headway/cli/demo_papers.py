"""The second demonstration: all five papers in one cluster, live, and then the same files in the simulator."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headway.errors import HeadwayError
from headway.model.slots import count

PICTURE: Final = "papers.svg"

STORY: Final = """\
On six private slots run a service and rigid jobs. When requests rush in, the border between
them moves (Chang16), and the rigid jobs share what is left on two tiers (MEASY14).
Five slots at the sites east and west have bags with due dates (Lin14), and a workflow that
needs both sites (DN13). Then a bag comes that these cannot do in time: machines are rented
for it, no more than it needs (Kim12)."""

DIFFERENCES: Final = """\
What still differs: live, a rented machine joins as soon as its process runs, which is sooner
than the cluster file says. And where slots pass between the service and the jobs, processes
must start or end first, which takes longer the more this machine has to do."""


def papers(tell: Callable[[str], None], table: Callable[[Any], None], out: Path, seed: int) -> dict[str, Any]:
    """Run it.

    Args:
        tell: prints a sentence.
        table: prints a table.
        out: folder for the files of the scenario, the journal and the picture.

    Returns:
        What came of it, for programs.

    Raises:
        HeadwayError: a job failed, a file cannot be written, or renting has not saved the due date that it is to save.
            Where live and simulated runs disagree is told, and no error.
    """
    from headway.cli.output import make_folder
    from headway.reproduce import together

    make_folder(out)
    files = together.Files(out)
    files.write(seed)
    tell(STORY)
    tell(f"What runs is in {out}: cluster.toml, jobs.csv, flow.json, services.csv and requests.csv.")
    lived = together.live(files, tell)
    tell("The server has ended, and its machines are given back.")
    tell(
        f"All of it is in one journal, of {lived.rounds} rounds: {files.journal}.\n"
        f"It was replayed, and the policy was asked again: it decides {_words(lived.others)}."
    )
    runs = {
        "live": lived.outcome,
        "simulated": together.simulated(files, warm_up=lived.warm_up, late=lived.late),
        "nothing rented": together.simulated(files, together.UNRENTED, warm_up=lived.warm_up, late=lived.late),
    }
    tell(
        f"The same files in the simulator. It is told that a task holds its slot {1000 * lived.late:.0f} ms longer\n"
        f"than it sleeps, and that an instance of the service takes {lived.warm_up:.2f} s to start:"
    )
    table(together.compared(runs))
    tell(DIFFERENCES)
    found = together.disagreements(runs["live"], runs["simulated"])
    picture = _drawn(runs["live"].schedule, out / PICTURE)
    tell(f"Picture of the live run: {picture}." if picture else "No picture is drawn without headway[plot].")
    for sentence in found:
        tell(f"It should be equal: {sentence}.")
    saved = together.LATE in runs["nothing rented"].late - runs["live"].late
    if not saved:
        raise HeadwayError(f"renting has not saved the due date of {together.LATE}")
    tell(
        f"Machines for {runs['live'].money:.2f} have saved the due date of {together.LATE}. It would have\n"
        f"ended {_later(runs['nothing rented'], runs['live'], together.LATE):.1f} s later without, too late. "
        f"Late on purpose: {', '.join(sorted(runs['live'].late)) or 'nothing'}; late answers cost more."
    )
    return {
        "policy": together.POLICY,
        "seed": seed,
        "journal": str(files.journal),
        "rounds": lived.rounds,
        "decided_otherwise": lived.others,
        "picture": picture,
        "warm_up": lived.warm_up,
        "task_overhead": lived.late,
        "runs": {name: together.told(one) for name, one in runs.items()},
        "disagreements": found,
    }


def _words(others: int) -> str:
    return f"otherwise in {others} of them" if others else "the same in each of them"


def _later(one: Any, other: Any, job: str) -> float:
    """By how many seconds a job ended later in one run than in another."""
    return float(one.jobs[job].end - other.jobs[job].end)


def _drawn(schedule: Any, path: Path) -> str | None:
    """Draw the live run, if that can be done here."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from headway.pictures import gantt

    slots = sum(count(held) for _, held in schedule.nodes)  # also those of which none was used, so that nodes are named
    gantt(schedule, path, slots=slots, title="All five papers in one, live")
    return str(path)
