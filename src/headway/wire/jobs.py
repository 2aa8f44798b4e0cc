"""Reports about jobs, and changes of jobs."""

from __future__ import annotations

from typing import Any, Literal

from headway.errors import InvalidInput
from headway.model.actions import JobStatus
from headway.model.instant import NEVER
from headway.model.job import JobId, PenaltyShape
from headway.model.outcome import Outcome
from headway.wire.base import Amount, Answer, Count, Due, Number, Request, Share, Span, optional_microseconds

OutlookWord = Literal["on time", "at risk", "late", "unknown", "not computed"]
"""Whether a job keeps its due date.

By its estimates it does (`on time`), only just (`at risk`: not if all that is left takes a tenth longer) or not
(`late`). `unknown`: an estimate is missing, or no known event will let it end. `not computed`: too many jobs are open,
or it is too far ahead.
"""


class BoundsReport(Answer, frozen=True):
    """Between which instants something happens, with which probability; None: later than was looked ahead.

    Attributes:
        low_90, high_90: with 90 %.
        low_50, high_50: with 50 %.
        median: it is as likely sooner as later.
    """

    low_90: float | None
    low_50: float | None
    median: float | None
    high_50: float | None
    high_90: float | None


class ChanceReport(Answer, frozen=True):
    """When a job starts and ends over many simulated futures, whose run times differ as they did in the past.

    Attributes:
        start: its first start; None: it has started, or it starts in none of them.
        end: when it ends; None: it ends in none of them.
        on_time: the share of futures in which it keeps its due date, 0 to 1; None: it has none.
        futures: how many there were.
    """

    start: BoundsReport | None
    end: BoundsReport | None
    on_time: float | None
    futures: int


class Advice(Answer, frozen=True):
    """Which due date of a job can be kept.

    Attributes:
        sure: the probability that is told of: the one that was asked for; or the most that the futures tell, if that is
            less: n of them tell n / (n + 1).
        due: the earliest due date that is kept with it, by a job that is submitted within a second after the answer;
            None: that is not known.
        chance: when the job starts and ends; and with which probability it keeps the due date that it has, if any.
        slots: how many more slots would keep that date with the probability asked for; None: none are needed, or no
            number up to as many as there are would do.
        lack: why no date is known; empty: one is.
    """

    sure: float
    due: float | None = None
    chance: ChanceReport | None = None
    slots: int | None = None
    lack: str = ""


class JobReport(Answer, frozen=True):
    """A job and how far it is.

    Attributes:
        done: tasks that have succeeded. The others have `failed`, were `cancelled`, or have not ended yet.
        failed: tasks that have failed.
        cancelled: tasks that were cancelled, alone or with their job.
        running: attempts that have their slots; `starting` of them have not begun: they fetch their inputs, or wait in
            the queue of their site.
        started, ended: the first launch and the end; None if it has not come yet.
        cpu: the share of a processor that its processes use, as far as known: one for all, or one each.
        movable: whether it saves its work when it is asked to move.
        outlook: whether it keeps, or has kept, its due date; None if it has none, or ended without success.
        expected_start: when the next of its tasks is expected to start, while it is open; None if that is not known.
        expected_end: when it is expected to end, while it is open.
        late: by how much it is expected to be late, or was; if its end is not known, at least this much.
        assumes: jobs without an estimate on whose run times `expected_end` depends, at most 8: a task of them was
            assumed to run for the server's default (10 min). Then `expected_end` is only an example.
        lack: why no end was found, while it is open; empty if one was.
        penalty: what its lateness has cost, or costs if it ends now: rate times shape of the tardiness in seconds. A
            cancelled job costs nothing.
        penalty_expected: what it costs if it ends as expected; None: that is not known, or it has no due date.
        money: what the machines have cost that were rented for it, and cost if they are given back now.
        pool: the pool that a top level has dealt it to (a site), while it is open; empty: none.
        chance: how sure its start and its end are, while it is open; None: that is not known (yet).
        expected_at: as of which instant all that is expected; None: nothing is. On a busy machine it is some seconds
            ago.
        behind: how many events have happened since that it does not include.
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
    estimate: float | None
    submitted: float
    release: float
    due: float | None
    started: float | None
    ended: float | None
    cancelled: int = 0
    cpu: tuple[float, ...] = ()
    movable: bool = False
    outlook: OutlookWord | None = None
    expected_start: float | None = None
    expected_end: float | None = None
    late: float | None = None
    assumes: tuple[JobId, ...] = ()
    lack: str = ""
    pool: str = ""
    penalty: float = 0.0
    penalty_expected: float | None = None
    chance: ChanceReport | None = None
    starting: int = 0
    money: float = 0.0
    expected_at: float | None = None
    behind: int = 0

    @property
    def settled(self) -> int:
        """How many tasks have ended: they are done, have failed, or were cancelled."""
        return self.done + self.failed + self.cancelled


class AttemptReport(Answer, frozen=True):
    """A running attempt; its slots are `NODE/SLOT`, with slots counted from 0 on each node.

    `expected_end` is None if there is no estimate and none of the job's tasks has ended yet, and in the background,
    because the progress there is not known.

    Attributes:
        slots: in the order of its processes.
        tier: in which of the two places of its slots it runs.
        goal: the slots that it moves to; empty if it stays.
        hindered: what keeps it from its work that is no fault of its own, such as a full disk; empty: nothing.
    """

    job: JobId
    task: int
    attempt: int
    slots: tuple[str, ...]
    started: float
    expected_end: float | None
    tier: Literal["foreground", "background"] = "foreground"
    goal: tuple[str, ...] = ()
    hindered: str = ""


class RunTimes(Answer, frozen=True):
    """How long a job's tasks ran on one class of nodes.

    Attributes:
        tasks: how many have ended there.
        mean, spread: recency-weighted; the user's estimate for the class, if any, counts as one of them.
    """

    node_class: str
    tasks: int
    mean: float
    spread: float


class Retry(Request, frozen=True):
    """The failed tasks of an ended job are to be run again, with its terms but for those that are named here.

    Attributes:
        key, client: as of `Submission`.
    """

    priority: float | None = None
    due: Due | None = None
    key: str = ""
    client: str = ""


class Retried(Answer, frozen=True):
    """The id of the new job, and which tasks of the old one it runs, in the order of its own.

    Messages about it have numbers greater than `cursor`.
    """

    job: JobId
    tasks: tuple[int, ...]
    cursor: int


class Ran(Answer, frozen=True):
    """What a job runs.

    Attributes:
        argv: a program and its arguments, with `{i}` where the number of the task stands; of the first task where each
            has a program of its own.
        cwd: the folder that it, or the calls, run in; of the first task as well; empty where each attempt has its own.
        each: whether each task has a program of its own.
        functions: of calls, what the functions are called, as far as that is known.
    """

    argv: tuple[str, ...] = ()
    cwd: str = ""
    each: bool = False
    functions: tuple[str, ...] = ()


class TaskReport(Answer, frozen=True):
    """A task that has its final outcome: where it ran and how it ended.

    Attributes:
        slots: as `NODE/SLOT`; empty where no attempt settled it.
        detail: why it failed, for people: the traceback of a function, or a line such as `exit status 3`.
        stderr: the last lines that it wrote there, of one that failed.
        number: what it was called in the job whose failed tasks this one runs again; else `task`.
        name: what it is called in its workflow; empty: nothing.
    """

    task: int
    attempt: int
    outcome: Outcome
    slots: tuple[str, ...]
    seconds: float
    exit_code: int | None = None
    detail: str = ""
    stderr: str = ""
    number: int = 0
    name: str = ""


TaskStateWord = Literal["waits", "ready", "running", "succeeded", "failed", "cancelled", "never runs", "never ran"]


class TaskState(Answer, frozen=True):
    """How far a task is.

    Attributes:
        state: `waits` for other tasks of its job; `ready` to start, as soon as it gets slots; `never runs`, in an open
            job, or `never ran`, because a task before it failed or was cancelled.
        name: what it is called in its workflow; empty: nothing.
        number: by which its work knows it: that of the job whose failed tasks this one runs again; else `task`.
        after: the tasks that it waits for; or because of which it never runs.
        slots: where it runs, as `NODE/SLOT`.
        attempt: which attempt runs; 0: none.
        node: on which node its start is promised; empty: on none, or on any.
        start: when the attempt that runs began; or the promised start; None: there is none.
        hindered: as in `AttemptReport`; and how often attempts at it were ended so.
        why: of a task that never runs, or never ran: why, such as `task 0 (fetch) failed`; empty otherwise.
    """

    task: int
    state: TaskStateWord
    name: str = ""
    number: int = 0
    after: tuple[int, ...] = ()
    slots: tuple[str, ...] = ()
    attempt: int = 0
    node: str = ""
    start: float | None = None
    hindered: str = ""
    why: str = ""


class TaskList(Answer, frozen=True):
    """Tasks of a job in order of their numbers; `more` says whether the limit cut the list."""

    tasks: tuple[TaskState, ...]
    more: bool = False


class Predecessor(Answer, frozen=True):
    """A job that another one comes after; `status` is None if nothing is known of it any more."""

    job: JobId
    status: JobStatus | None


class JobDetail(Answer, frozen=True):
    """A job with its running attempts, its slots, its promised start, and its tasks' run times and losses.

    Attributes:
        times: of a bag; by class of nodes.
        lost: slot time of attempts that are redone because they were killed or lost, less what checkpoints keep.
        kills: how many were killed for other jobs, or to start again elsewhere.
        moves: how often it moved and kept its work, while it is open.
        after: the jobs that must have succeeded before it starts.
        ran: what it runs; None if that is not kept.
        ended: tasks that have their final outcome and whose results are kept, the first twenty: those that failed
            first, then others.
        failed: the numbers of the tasks that failed, the first thousand.
        retry_of: the job whose failed tasks it runs again.
        predicted: as how long policies count a task, while it is open and that is predicted; None: as its user said.
        cursor: messages about what happens to it after this report have greater numbers.
    """

    job: JobReport
    attempts: tuple[AttemptReport, ...]
    slots: tuple[str, ...]
    promise: float | None
    times: tuple[RunTimes, ...] = ()
    lost: float = 0
    kills: int = 0
    moves: int = 0
    cursor: int = 0
    after: tuple[Predecessor, ...] = ()
    ran: Ran | None = None
    ended: tuple[TaskReport, ...] = ()
    failed: tuple[int, ...] = ()
    retry_of: JobId | None = None
    predicted: float | None = None


class JobList(Answer, frozen=True):
    """Jobs in order of their ids; `more` says whether the limit cut the list."""

    jobs: tuple[JobReport, ...]
    more: bool = False


class Cost(Answer, frozen=True):
    """What jobs cost because they are late, each job's rate times the shape of its tardiness, and windows of services.

    Attributes:
        jobs: how many they are, with those that cost nothing.
        penalty: what it is so far: of ended jobs what they cost, of the others what they cost if they end now.
        expected: what it will be at the end; of jobs whose end is not known what it is so far.
        unknown: how many open jobs with a due date have an end that is not known.
    """

    jobs: int = 0
    penalty: float = 0.0
    expected: float = 0.0
    unknown: int = 0


class Costs(Answer, frozen=True):
    """What all jobs cost that the server knows, open and ended.

    Attributes:
        users: by user.
        services: of the services, by name: a name's jobs are its versions and those that had it before.
    """

    total: Cost
    users: dict[str, Cost]
    services: dict[str, Cost]


class JobChange(Request, frozen=True):
    """New terms of a job; None leaves a term as it is.

    Attributes:
        without_due: whether it is to have no due date any more; then `due` is None.
        rate, shape: of its penalty.
        threshold, fraction, least: of services only; the threshold in seconds.
    """

    priority: float | None = None
    due: Due | None = None
    without_due: bool = False
    rate: Amount | None = None
    shape: PenaltyShape | None = None
    threshold: Span | None = None
    fraction: Share | None = None
    least: Count | None = None

    def terms(self) -> dict[str, Any]:
        """The new terms by name, as the core has them, without those that stay.

        Raises:
            InvalidInput: a time is none that the core can count, or a due date is given and taken back.
        """
        if self.without_due and self.due is not None:
            raise InvalidInput("without_due", True, "false where there is a new due date")
        terms = {
            "priority": self.priority,
            "due": NEVER if self.without_due else optional_microseconds(self.due, "due"),
            "rate": self.rate,
            "shape": self.shape,
            "threshold": optional_microseconds(self.threshold, "threshold"),
            "fraction": self.fraction,
            "least": self.least,
        }
        return {name: term for name, term in terms.items() if term is not None}


class JobsNamed(Request, frozen=True):
    """Some jobs by their ids."""

    jobs: tuple[Number, ...]


class TasksNamed(Request, frozen=True):
    """Some tasks of a job by their numbers."""

    tasks: tuple[Number, ...]


class AwaitedReport(Answer, frozen=True):
    """A task that a job waits for, because it has slots that the job is expected to get, or comes before it.

    Attributes:
        slots: where it runs, as `NODE/SLOT`.
        start: when it is expected to start; None: it runs.
        end: when it is expected to leave them; None: not known.
    """

    job: JobId
    task: int
    slots: tuple[str, ...]
    start: float | None
    end: float | None


class Explanation(Answer, frozen=True):
    """Why a job waits, what for, and how long by the estimates.

    Attributes:
        reason, text: its name and its words.
        start: the start that the policy promises, if it does.
        by: who says so: the text of the policy, or the URL of the decider; empty if the core itself does.
        note: why it is the policy that says so, where a decider should; or why the policy says nothing.
        awaits: what runs until then on the slots where its next task is expected to start, at most 8; the ones that
            end last.
        outlook, expected_start, expected_end, late, assumes, penalty, penalty_expected, chance: as in `JobReport`.
        expected_at, behind: the same.
        start_assumes: the same as `assumes`, of `expected_start`.
        assumed: how long a task without an estimate is assumed to run.
        due: its due date.
        lack: why there is no forecast for it, or only a part; empty if there is a full one.
        kind: as in `JobReport`; empty of an ended job.
        pool: as in `JobReport`.
        why_pool: why it is there, by the top level's rule and its numbers as they are now; empty: that does not say.
        starting: it has slots, and nothing of it has begun there.
        hindered: what keeps its tasks from their work that is no fault of theirs, as in `TaskState`; of 8 at most.
    """

    job: JobId
    status: JobStatus
    reason: str
    text: str
    start: float | None
    by: str = ""
    note: str = ""
    awaits: tuple[AwaitedReport, ...] = ()
    outlook: OutlookWord | None = None
    expected_start: float | None = None
    expected_end: float | None = None
    late: float | None = None
    assumes: tuple[JobId, ...] = ()
    start_assumes: tuple[JobId, ...] = ()
    assumed: float = 0.0
    due: float | None = None
    lack: str = ""
    penalty: float = 0.0
    penalty_expected: float | None = None
    kind: str = ""
    pool: str = ""
    why_pool: str = ""
    hindered: tuple[str, ...] = ()
    chance: ChanceReport | None = None
    starting: bool = False
    expected_at: float | None = None
    behind: int = 0
