"""What an experiment of Chang16 is: a module that performs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headway.reproduce.chang16.samples import Log
from headway.reproduce.experiment import Progress, Result


class Asked(NamedTuple):
    """What is to be performed.

    Attributes:
        log: the log that is sampled.
        seeds: of the samples.
        added: policies that are compared besides those of the experiment.
        processes: how many work at once; None: one for each core.
    """

    log: Log
    seeds: range
    added: tuple[str, ...] = ()
    processes: int | None = None


class Experiment(NamedTuple):
    """One experiment.

    Attributes:
        name: its name in commands.
        title: what it shows.
        runs: how many runs it takes.
        perform: does it.
    """

    name: str
    title: str
    runs: Callable[[Asked], int]
    perform: Callable[[Asked, Progress], Result]
