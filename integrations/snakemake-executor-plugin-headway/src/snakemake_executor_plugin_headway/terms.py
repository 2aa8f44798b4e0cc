"""What a Snakemake job is called on the cluster, and by which terms it is scheduled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headway.errors import HeadwayError, InvalidInput
from headway.times import seconds_of, when_of

if TYPE_CHECKING:
    from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

NAME_MAX: Final = 120
"""Characters of a job's name; what is longer is cut."""

PASSED: Final = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR", "LANG", "TZ", "MODULEPATH")
PASSED_PREFIXES: Final = ("APPTAINER_", "CONDA_", "LC_", "MAMBA_", "SINGULARITY_", "XDG_")
"""Variables that jobs get as they are here, so that rules find the programs that they find on this machine."""


def name_of(job: JobExecutorInterface, workflow: str) -> str:
    """The workflow, the rule or group, and the wildcards, as they are shown by `headway jobs`."""
    wildcards: Mapping[str, Any] = getattr(job, "wildcards_dict", {})  # groups have none
    words = [f"{workflow}:", job.name, *(f"{name}={value}" for name, value in wildcards.items())]
    name = " ".join(words)
    return name if len(name) <= NAME_MAX else f"{name[: NAME_MAX - 3]}..."


def terms_of(job: JobExecutorInterface, *, started: float, now: float, due: float | None = None) -> dict[str, Any]:
    """The terms of a job, as `headway.Job` takes them.

    Args:
        started: when the workflow began: `18:00` is the first one after that.
        now: when the job is submitted.
        due: of jobs that have no due date of their own, in seconds since 1970.

    Raises:
        InvalidInput: a resource cannot be read.
    """
    given = job.resources
    own = given.get("due")
    when = due if own is None else due_of(own, started=started, now=now)
    runtime = given.get("runtime")
    limit = given.get("time_limit")
    priority = given.get("priority", getattr(job, "priority", 0))
    return {
        "due": None if when is None else when - now,
        "priority": _number(priority, "priority"),
        "estimate": None if not runtime else _number(runtime, "runtime") * 60,
        "time_limit": None if limit is None else seconds_of(limit, "time_limit"),
    }


def due_of(due: Any, *, started: float, now: float) -> float:
    """When a job is due, in seconds since 1970: after a span from now on, or at a time of the clock.

    Raises:
        InvalidInput: it is neither.
    """
    try:
        return now + seconds_of(due, "due")
    except InvalidInput:
        return when_of(due, "due", started)


def slots_of(job: JobExecutorInterface) -> int:
    """How many slots of one node the job holds.

    Raises:
        InvalidInput: the resource `slots` is no whole number above 0.
    """
    slots = job.resources.get("slots", job.threads)
    if not isinstance(slots, int) or slots < 1:
        raise InvalidInput("slots", slots, "a whole number, 1 or more")
    return slots


def environment(more: tuple[str, ...] = ()) -> dict[str, str]:
    """The variables that jobs get.

    Raises:
        HeadwayError: one of `more` is not set here.
    """
    missing = [name for name in more if name not in os.environ]
    if missing:
        raise HeadwayError(f"--headway-env: {', '.join(missing)} is not set here", "Set it, or leave it out.")
    return {
        name: value
        for name, value in os.environ.items()
        if name in PASSED or name in more or name.startswith(PASSED_PREFIXES)
    }


def _number(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(field, value, "a number")
    return float(value)
