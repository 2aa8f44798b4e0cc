"""What counts against a task that was there when nodes were lost, and the nodes set apart to find out."""

from __future__ import annotations

from typing import Final

from headway.model.instant import Duration, Instant
from headway.model.job import JobId
from headway.model.seen import AttemptView, JobView, NodeView

SUSPECTED_AFTER: Final = 2
"""Losses of nodes at which a task ran beside others, after which its next attempt runs alone."""


Rank = tuple[int, Duration, tuple[Instant, JobId], int]
"""The place of a suspected task among those that wait to run alone; ends in its job's order and its number."""


class Suspicion:
    """What counts against a task.

    Attributes:
        losses: numbers of the losses of nodes at which it ran beside others, since it was last cleared, and which
            nothing else has been found to be the cause of.
        alone: how many nodes were lost since then while it ran alone on them.
        elsewhere: how many others were lost since it first ran alone; they show that nodes are also lost without it.
        age: the longest it had run when a node was lost.
        cleared: how often it was cleared because it had run alone for long enough.
        waits: since when it waits to run alone; valid only while it does.
        let_go: no node was found for it alone, so it runs among others until one is lost again.
        guilty: it is taken for the cause, and given up.
    """

    __slots__ = ("age", "alone", "cleared", "elsewhere", "guilty", "job", "let_go", "losses", "task", "waits")

    def __init__(self, job: JobView, task: int) -> None:
        self.job = job
        self.task = task
        self.losses: list[int] = []
        self.alone = 0
        self.elsewhere = 0
        self.age: Duration = 0
        self.cleared = 0
        self.waits: Instant = 0
        self.let_go = False
        self.guilty = False

    @property
    def runs_alone(self) -> bool:
        """Whether the next attempt is to run alone."""
        return not self.let_go and (self.alone > 0 or len(self.losses) >= SUSPECTED_AFTER)

    @property
    def rank(self) -> Rank:
        """Its place among those that wait: first those that were there most often, among these those that had run
        least.
        """
        return (-len(self.losses) - self.alone, self.age, self.job.order, self.task)

    def clear(self) -> None:
        """Clear the task: nothing counts against it any more, but how long it had run is remembered."""
        self.losses = []
        self.alone = self.elsewhere = 0
        self.let_go = False


class Isolation:
    """Nodes that are set apart for one task.

    Attributes:
        nodes: on which nothing else is started.
        attempt: what runs there alone; None while something else still runs there.
    """

    __slots__ = ("attempt", "job", "nodes", "task")

    def __init__(self, job: JobView, task: int, nodes: list[NodeView]) -> None:
        self.job = job
        self.task = task
        self.nodes = nodes
        self.attempt: AttemptView | None = None
