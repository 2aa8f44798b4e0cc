"""Numbers that describe a job, by which history tells how long jobs like it run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from headway.model.instant import HOUR, SECOND
from headway.model.job import FEATURES_MAX, NAME_MAX, SIZE_RANGE, JobSpec

WEEK_HOURS: Final = 7 * 24

INPUTS: Final = "input bytes"
"""The feature that a server adds: how large the uploads are that a job reads."""


ON_CLASS: Final = "on "
"""How features begin that say which share of the tasks ran on a class of nodes."""

WORD: Final = "word "
"""How features begin that are bare numbers of a command; behind it stands their place."""

COMMAND: Final = "command "
"""How features begin that a server adds to the terms of a job: the numbers of its command. Features that users name may
have the names of these numbers."""

TASK_COUNT: Final = "tasks"

WIDTH: Final = "width"

ESTIMATE: Final = "estimate"

HOUR_OF_WEEK: Final = "hour of the week"

OWN_FEATURES: Final = (TASK_COUNT, WIDTH, ESTIMATE, HOUR_OF_WEEK, INPUTS)
"""Features that are found of a job."""

_PATTERNS: Final = f"{ON_CLASS}CLASS, {COMMAND}NAME and {WORD}NUMBER"

NOT_OWN: Final = f"a name that Headway does not use itself, as it does {', '.join(OWN_FEATURES)}, {_PATTERNS}"

NUMBERS_MAX: Final = 8
"""So many numbers of a command are among a job's terms, the first ones: each costs time with each prediction."""

WORDS_MAX: Final = 200
"""So many words of a command are looked at: a pattern may stand for a whole folder of files."""

DIGITS_MAX: Final = 100
"""A number is written with so many characters at most."""

LAST_OF_NUMBER: Final = frozenset("0123456789.")
"""A number ends with one of these; most words do not."""


def is_own(name: str) -> bool:
    """Whether a feature of this name may be found of a job, so that its user cannot give another one.

    >>> [is_own(name) for name in ("width", "on speed=2", "command mesh", "word 3", "words", "mesh")]
    [True, True, True, True, False, False]
    """
    if name in OWN_FEATURES or name.startswith((ON_CLASS, COMMAND)):
        return True
    return name.startswith(WORD) and name[len(WORD) :].isdecimal()


def features_of(job: JobSpec, others: Mapping[str, float]) -> dict[str, float]:
    """The numbers that describe a job, by name; those that its user gave count before others of the same name.

    A number of the command may have the same name. What is found of any job did so only before `is_own` was asked.

    Args:
        others: what is known beyond its terms, such as `numbers_of` its command, which count before those among its
            terms.
    """
    found = {TASK_COUNT: float(job.tasks), WIDTH: float(job.width), HOUR_OF_WEEK: job.release // HOUR % WEEK_HOURS}
    if job.estimate is not None:
        found[ESTIMATE] = job.estimate / SECOND
    numbers = {name.removeprefix(COMMAND): value for name, value in job.features if name.startswith(COMMAND)}
    named = {name: value for name, value in job.features if not name.startswith(COMMAND)}
    return {**found, **numbers, **others, **named}


def compared_of(job: JobSpec) -> dict[str, float]:
    """The numbers by which a job is compared with earlier ones: its features, its width and its estimate."""
    found = {WIDTH: float(job.width)}
    if job.estimate is not None:
        found[ESTIMATE] = job.estimate / SECOND
    return {**found, **dict(job.features)}


def with_found(job: JobSpec, found: Mapping[str, float]) -> JobSpec:
    """The terms of a job with what is found of it as features: those that it has, as a retry does, stay as they are.

    If they would be too many, nothing is added.
    """
    features = {**found, **dict(job.features)}
    is_room = len(job.features) < len(features) <= FEATURES_MAX
    return replace(job, features=tuple(sorted(features.items()))) if is_room else job


def without_numbers(job: JobSpec) -> JobSpec:
    """The terms of a job without numbers of commands: a retry has those of another one, and may run others."""
    kept = tuple([feature for feature in job.features if not feature[0].startswith(COMMAND)])
    return job if len(kept) == len(job.features) else replace(job, features=kept)


def of_commands(first: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
    """Features among the terms of a job: the numbers that its commands have in common, `NUMBERS_MAX` at most.

    Args:
        first, last: `numbers_of` the first and of the last of its commands.

    >>> of_commands({"mesh": 3.0, "seed": 1.0, "word 4": 1.0}, {"mesh": 3.0, "seed": 9.0, "word 4": 1.0})
    {'command mesh': 3.0, 'command word 4': 1.0}
    """
    common = [name for name, value in first.items() if last.get(name) == value and len(name) < NAME_MAX - len(COMMAND)]
    return {f"{COMMAND}{name}": first[name] for name in common[:NUMBERS_MAX]}


def numbers_of(argv: Sequence[str]) -> dict[str, float]:
    """The numeric parameters of a command. `--mesh 3`, `--mesh=3` and `mesh=3` are called mesh, others by their place.

    There are at most `FEATURES_MAX` of them, and none is larger than a size may be (`SIZE_RANGE`).

    >>> numbers_of(("solve", "wing.cfg", "--mesh", "2e6", "-n", "4", "mach=0.8", "12"))
    {'mesh': 2000000.0, 'n': 4.0, 'mach': 0.8, 'word 7': 12.0}
    """
    found: dict[str, float] = {}
    name = ""
    for place, word in enumerate(argv[1:WORDS_MAX], 1):
        left, equals, right = word.partition("=")
        if equals and (value := _number(right)) is not None:
            found[left.lstrip("-") or word] = value
        elif (value := _number(word)) is not None:
            found[name or f"{WORD}{place}"] = value
        if len(found) == FEATURES_MAX:
            break
        name = word.lstrip("-") if word.startswith("-") and not equals else ""
    return found


def _number(text: str) -> float | None:
    """A number; None: it is none, or a larger one than those that count anything."""
    if text[-1:] not in LAST_OF_NUMBER or len(text) > DIGITS_MAX:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= SIZE_RANGE[1] else None
