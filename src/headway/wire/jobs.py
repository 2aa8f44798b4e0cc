"""Jobs as they are told of and changed."""

from __future__ import annotations

from typing import Literal

from headway.model.actions import JobStatus
from headway.model.instant import Duration, Instant
from headway.model.job import JobId, PenaltyShape
from headway.wire.base import Answer, Due, Number, Request


class JobReport(Answer, frozen=True):
    """A job and how far it is.

    Attributes:
        done: tasks with a final outcome; `failed` of them without success.
        running: attempts that run.
        started, ended: the first launch and the end; None where that has not come.
        cpu: the share of a processor that its processes use, as far as it was said: one for all, or one each.
        movable: whether it saves what it has done when it is asked to move.
    """

    id: JobId
    name: str
    user: str
    kind: str
    status: JobStatus
    tasks: int
    width: int
    done: int
    failed: int
    running: int
    priority: float
    rate: float
    shape: PenaltyShape
    estimate: Duration | None
    submitted: Instant
    release: Instant
    due: Instant | None
    started: Instant | None
    ended: Instant | None
    cpu: tuple[float, ...] = ()
    movable: bool = False


class AttemptReport(Answer, frozen=True):
    """An attempt that runs: on which slots, as `NODE/SLOT` with slots counted from 0 on each node.

    `expected_end` is None where nobody gave an estimate and none of the job's tasks has ended yet, and in the
    background, where nobody knows how far it comes.

    Attributes:
        slots: in the order of its processes.
        tier: in which of the two places of its slots it runs.
        goal: the slots that it moves to; empty where it stays.
    """

    job: JobId
    task: int
    attempt: int
    slots: tuple[str, ...]
    started: Instant
    expected_end: Instant | None
    tier: Literal["foreground", "background"] = "foreground"
    goal: tuple[str, ...] = ()


class RunTimes(Answer, frozen=True):
    """How long a job's tasks ran on one class of nodes.

    Attributes:
        tasks: how many have ended there.
        mean, spread: recency-weighted; what the user said of the class, if that was anything, counts as one of them.
    """

    node_class: str
    tasks: int
    mean: Duration
    spread: Duration


class JobDetail(Answer, frozen=True):
    """A job with what runs of it, what it holds, the start it is promised, and how its tasks fared.

    Attributes:
        times: of a bag; by class of nodes.
        lost: slot time of attempts that are redone because they were killed or lost, less what checkpoints keep.
        kills: how many were killed for other jobs, or to start anew elsewhere.
        moves: how often it was moved with what it had done, while it is open.
    """

    job: JobReport
    attempts: tuple[AttemptReport, ...]
    slots: tuple[str, ...]
    promise: Instant | None
    times: tuple[RunTimes, ...] = ()
    lost: Duration = 0
    kills: int = 0
    moves: int = 0


class JobList(Answer, frozen=True):
    """Jobs in order of their ids; `more` says whether the limit cut the list."""

    jobs: tuple[JobReport, ...]
    more: bool = False


class JobChange(Request, frozen=True):
    """New terms of a job; None leaves a term as it is."""

    priority: float | None = None
    due: Due | None = None


class JobsNamed(Request, frozen=True):
    """Some jobs by their ids."""

    jobs: tuple[Number, ...]


class TasksNamed(Request, frozen=True):
    """Some tasks of a job by their numbers."""

    tasks: tuple[Number, ...]


class Explanation(Answer, frozen=True):
    """Why a job waits: the reason's name and its words, and the expected start where the policy promises one.

    Attributes:
        by: who says so: the text of the policy, or the URL of the decider; empty where it needs neither.
        note: why it is the policy that says so, where a decider should.
    """

    job: JobId
    status: JobStatus
    reason: str
    text: str
    start: Instant | None
    by: str = ""
    note: str = ""
