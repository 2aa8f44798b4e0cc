"""Numbers that describe a job, by which history tells how long jobs like it run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from headway.model.instant import SECOND
from headway.model.job import JobSpec

HOUR: Final = 3600 * SECOND

WEEK_HOURS: Final = 7 * 24

INPUTS: Final = "input bytes"
"""The feature that a server adds: how large the uploads are that a job reads."""


ON_CLASS: Final = "on "
"""How features begin that say which share of the tasks ran on a class of nodes."""

WORD: Final = "word "
"""How features begin that are bare numbers of a command; behind it stands their place."""

OWN: Final = ("tasks", "width", "estimate", "hour of the week", INPUTS)
"""Features that are found of a job."""

NOT_OWN: Final = f"a name that Headway does not use itself, as it does {', '.join(OWN)}, on CLASS and word NUMBER"


def is_own(name: str) -> bool:
    """Whether a feature of this name may be found of a job, so that its user cannot give another one.

    >>> is_own("width"), is_own("on speed=2"), is_own("word 3"), is_own("words"), is_own("mesh")
    (True, True, True, False, False)
    """
    return name in OWN or name.startswith(ON_CLASS) or (name.startswith(WORD) and name[len(WORD) :].isdecimal())


def features_of(job: JobSpec, others: Mapping[str, float]) -> dict[str, float]:
    """The numbers that describe a job, by name; those that its user gave count before others of the same name.

    A number of the command may have the same name. What is found of any job did so only before `is_own` was asked.

    Args:
        others: what is known beyond its terms, such as `numbers_of` its command.
    """
    found = {"tasks": float(job.tasks), "width": float(job.width), "hour of the week": job.release // HOUR % WEEK_HOURS}
    if job.estimate is not None:
        found["estimate"] = job.estimate / SECOND
    return {**found, **others, **dict(job.features)}


def numbers_of(argv: Sequence[str]) -> dict[str, float]:
    """The numeric parameters of a command. `--mesh 3`, `--mesh=3` and `mesh=3` are called mesh, others by their place.

    >>> numbers_of(("solve", "wing.cfg", "--mesh", "2e6", "-n", "4", "mach=0.8", "12"))
    {'mesh': 2000000.0, 'n': 4.0, 'mach': 0.8, 'word 7': 12.0}
    """
    found: dict[str, float] = {}
    name = ""
    for place, word in enumerate(argv[1:], 1):
        left, equals, right = word.partition("=")
        if equals and (value := _number(right)) is not None:
            found[left.lstrip("-") or word] = value
        elif (value := _number(word)) is not None:
            found[name or f"{WORD}{place}"] = value
        name = word.lstrip("-") if word.startswith("-") and not equals else ""
    return found


def _number(text: str) -> float | None:
    """A finite number; None: it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
