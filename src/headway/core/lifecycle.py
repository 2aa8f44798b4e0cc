"""Theory of operation, and the rules for what becomes of a job and its tasks.

**A job** is held until its release date, waits while none of its tasks has slots, runs while one has, and ends as
succeeded, failed or cancelled. When it has ended, the core drops it: the driver keeps what must be kept.

A job that comes *after* others is held until the last of them has succeeded; that instant is its release date, if its
own is not later. As soon as one of them has failed or was cancelled it ends as cancelled, and so does what comes after
it in turn. So no policy ever sees it before it can start. The core does not remember jobs that have ended: one that is
not in the system when its successor is submitted counts as succeeded, and the driver cancels the successor if it knows
otherwise.

**A task** is ready (it could start), placed (an attempt has slots for it) or settled (it has its final outcome).
Tasks of a bag and the one task of a rigid job are ready from the start; a workflow's task is ready when all tasks
before it have succeeded. `verdict` says what follows the end of an attempt:

====================  =============================================================================
the attempt           the task
====================  =============================================================================
succeeded             is settled
failed by itself      is ready again while the job's `retries` last, then settled as failed
struck from outside   is ready again, `STRIKES_MAX` times; then that counts as failed by itself
killed by the core    is ready again, and starts at its goal if it moves
lost with its node    is ready again, or waits to run alone; settled as lost if it is what kills the nodes
====================  =============================================================================

A task that is cancelled, itself or with its job, is settled as cancelled: at once, or when its attempt has ended in
whatever way, unless it succeeded first. A task that comes after it in a workflow never starts, as after a failure. A
job with cancelled tasks, and no failed ones, ends as cancelled.

What runs on a node that is removed, or on a slot that is taken away at once, counts as killed, because that was
requested.

**A slot** is in exactly one of these conditions, whatever a policy wants (Lin14 3.5.1):

- *down*: its node is down or gone (or drains and runs nothing there);
- *busy*: an attempt runs on it;
- *occupied*: no attempt runs on it, but it is allocated: its job waits for the rest of its slots; or an
  attempt was launched there that its node has not reported as started;
- *available*: none of these.

The job to which a slot is allocated (`allocated`, `owners`) and what runs on it (`busy`, attempts) are two things. They
differ between the round that gives a slot to another job and the end of the task that still runs there (claim `AFTER`,
Lin14 figure 3.2). When an attempt ends, each of its slots goes to its owner, if it has one: a bag launches its next
ready task, a rigid job starts with the last of its slots, and a bag with nothing ready gives the slot back. So a plan
is carried out without asking the policy again. Rigid jobs that have started and tasks placed one by one have no
allocation any more: they have their slots by running there.

**Two places.** Every slot has a foreground and a background place, each for one attempt; an attempt has the same place,
its *tier*, on all its slots (MEASY14). Everything said about slots above is about the foreground. What runs in the
background does not block it, belongs to no allocation of a whole job, and is in `behind` and `background`. Two things
change where an attempt is:

- *Its tier* (`ChangeTier`), on the slots it has: where the other place is vacant, or by a *swap*: the attempts that
  have that place take the place that it leaves, all or none. Nothing is restarted. If the engine cannot do it
  (`TierRefused`) the attempt is put back, or, if that place has been taken, ends and is redone; it does not change its
  tier again.
- *A move* to other slots, which is an end and a start: the attempt is asked to end, killed (`Kill`) or saved
  (`Suspend`). The places where it is to go are its *goal*: they are free now and kept for it until it has ended, in the
  foreground as slots that are allocated to its job. Then the next attempt starts there, before any other use of its
  slots; if the task is settled by then, they are free again. A goal is given up when one of its slots closes and, in
  the foreground, when its job is cancelled, a plan gives the job other slots, or another policy comes; the task then
  waits as any other. Attempts that save nothing (`AttemptView.movable`) are never suspended. Attempts that are not
  `preemptible` are not killed to move.

What a node cannot do (`NodeSpec.capabilities`) is not asked of it: nothing is placed in the background of slots without
tiers, and nothing is suspended where nothing moves.

Under a policy without a background (it has no `tiers`), the core itself brings attempts there to the foreground of
their slots, if it is free at a round.

It is unknown how much an attempt does in the background. So time there counts neither as done nor as lost. No run time
is observed from it, nor from what continues from a checkpoint after a move or a kill. After a change of its tier an
attempt is expected to run as if it had just started.

**Suspects.** What runs on a node when it is lost (queued, in the foreground or behind; of a gang one slot suffices) may
be what killed it. From the second such loss on a task is *suspected*: its next attempt runs alone on its nodes, and
until it can it is `apart` from ready tasks. Policies and plans do not influence this: to them, nodes that are *set
apart* for a suspect are not up, and what runs alone does not move. A suspect is cleared when its attempt has ended by
itself or has run alone for long enough, and when something else is found to be the cause of its losses; it is given up
when it was lost alone `ALONE_MAX` times, or more if nodes were lost elsewhere meanwhile. What was lost with a driver,
without a `NodeDown`, counts against no task. `suspects` says how nodes are found for suspects without stopping the
others. All this belongs to `rules` 2; under rules 1 a task was settled as lost after `LOSSES_MAX` losses, whatever ran
beside it.

**Services.** An instance is a task that never ends by itself. It runs only on a slot that is allocated to its service:
when the slot is not any more, and all rounds of the event have been held, the instance is asked to end as if it moved
(`Suspend`), so that it can answer the request that it has; and likewise when its service is cancelled. Whatever it
ended by, the task is ready again. But an instance that ends without being asked has failed. If it had run for a window,
all failures before count no more. If instances have failed more often than `retries` says, the service has failed, and
what still runs of it is killed.

**Bounds of users.** The tasks of a user with a bound (`SlotsBounded`) have at most so many slots at once, in the
foreground and behind; a rigid job counts from the moment slots are kept for it. Policies see only as many ready tasks
as there is room for (`ready`; `all_ready` are all): in each pool those of the first jobs by priority, due date and
release, see `headway.model.ration`. They see others as soon as there is room: within the event, before slots go to
their owners.

**Fetching.** An attempt whose start is reported (it fetches inputs, or its node reports starts) runs from then on: its
run time, what is expected of it and what is learnt from it count from there, not from its launch.

**Reading ahead.** Between the end of a task and the launch of the next lies a trip to the driver and to its disk. On
nodes that allow it (`read_ahead`), short tasks of a bag are launched behind the one that runs on the same slot: as many
as run `read_ahead` times `short`, going by the mean so far, but no more than each slot's share of what is left
(under rules 1 and 2: `read_ahead` tasks). Such an attempt is *queued*: it has no slot of its own and begins to run when
the one before it ends. It is asked to end when its job loses the slot. An engine gives it back, killed, if the one
before it turns out to be long.

**Deciders.** Plans may come from a decider elsewhere instead of from the policy. When a round is due, the core then
asks for a wake at the same instant and, woken, asks a numbered question (`Consult`): once per instant, like a policy
with `per_instant`. At most one question is open. Until it is answered no round runs: allocations stay, their tasks go
on, and a round that falls due waits. The answer (`Advised`) is checked and committed like a policy's plan, although the
state may have changed: what contradicts it by now is refused, and if anything has happened since the question, the next
one follows. An answer to any other question than the open one is ignored and counted: late ones, and those to questions
that a new policy or decider has cancelled. `DeciderFailed` ends the open question; from then on the policy makes the
plans, until `DeciderBack` or until a decider is chosen again.

**Ties.** Events of one instant are handled in the order given: a driver feeds ends before nodes' coming and going
before submissions, and `Woke` last. Everything else ends in the job id, then the task number.

**Fencing.** Attempts of a task are numbered from 1. An answer for an attempt that is not the current one is ignored and
counted, however late it comes and whatever it says.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from headway.model.actions import JobStatus
from headway.model.instant import Instant
from headway.model.job import Service
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.seen import NONE_COUNTED, AttemptView, JobView

LOSSES_MAX: Final = 10
"""Under rules 1: a task whose attempts were lost this often is settled as lost."""


ISOLATING: Final = 2
"""The first of the `rules` under which what may kill nodes runs alone, and run times count from the start."""

READING_BY_TIME: Final = 3
"""The first of the `rules` under which more tasks are launched ahead of their turn the shorter they are."""

KEEPING_OFF: Final = 4
"""The first of the `rules` under which nodes that were lost stay kept off, and none is lost while it is switched."""

REUSING_WITHIN_SITES: Final = 5
"""The first of the `rules` under which a node takes over the numbers of slots only from a departed one of its site."""

LOOKING_WHEN_LEFT: Final = 5
"""The first of the `rules` under which the top level may deal again when a node leaves, whether or not it was up."""

RULES: Final = 5
"""The rules of a new scheduler, see `RulesChosen`."""

STRIKES_MAX: Final = 3
"""So many attempts at a task may be struck (`TaskStruck`) before this counts as its own failure."""


JOB_SUCCEEDED: Final = JobStatus.SUCCEEDED  # found once, not for every job

SHORTER_MAX: Final = 8
"""At most so many tasks are launched ahead instead of one that is just short (`NodeSpec.short`)."""

SHORT_AFTER: Final = 4
"""So many tasks of a bag must have ended before the core decides whether its tasks are short."""


def ahead_of_turn(job: JobView, node: NodeSpec, rules: int) -> int:
    """How many tasks of a job may be queued on a slot of a node; none unless those that have ended were short."""
    if not node.read_ahead or job.ended < SHORT_AFTER or job.spent >= job.ended * node.short:
        return 0
    if rules < READING_BY_TIME:
        return node.read_ahead
    return node.read_ahead * min(SHORTER_MAX, job.ended * node.short // max(1, job.spent))


def end_of_instance(job: JobView, attempt: AttemptView, outcome: Outcome, now: Instant) -> Outcome:
    """What the end of an instance counts as; failures from before are forgotten if it ran for long."""
    spec = job.spec
    assert isinstance(spec, Service)
    if now - attempt.start >= spec.window:
        job.failures = job.strikes = NONE_COUNTED
    if attempt.ending and outcome is not Outcome.LOST:
        return Outcome.KILLED
    return Outcome.EXITED if outcome is Outcome.SUCCEEDED else outcome


class Verdict(Enum):
    """The state of a task after its attempt has ended."""

    REDO = "ready again"
    SETTLE = "settled"


def verdict(job: JobView, task: int, outcome: Outcome, *, guilty: bool = False) -> Verdict:
    """Whether the task is settled; the attempt is already counted in `tries`, `failures` or `losses`.

    Args:
        guilty: if it was lost: whether it is taken for the cause of the loss.
    """
    if outcome is Outcome.SUCCEEDED or job.cancelled or task in job.dropped:
        return Verdict.SETTLE
    if job.endless and outcome is not Outcome.LOST:
        return Verdict.SETTLE if sum(job.failures.values()) > job.spec.retries else Verdict.REDO
    if outcome is Outcome.KILLED:
        return Verdict.REDO
    if outcome is Outcome.LOST:
        return Verdict.SETTLE if guilty else Verdict.REDO
    failures = job.failures.get(task, 0)
    return Verdict.REDO if failures <= job.spec.retries_of(task) else Verdict.SETTLE


def final_status(job: JobView) -> JobStatus | None:
    """How a job ended if nothing more can happen to it; None while something can."""
    stuck = (job.failed or bool(job.dropped)) and is_stuck(job)
    if job.unfinished == 0 or (job.cancelled and not job.attempts) or stuck:
        if job.failed and not job.cancelled:
            return JobStatus.FAILED
        return JobStatus.CANCELLED if job.cancelled or job.dropped else JOB_SUCCEEDED
    return None


def status(job: JobView, now: Instant) -> JobStatus:
    """The status of a job in the system; its final status once nothing of it is unfinished."""
    final = final_status(job)
    if final is not None:
        return final
    if job.attempts:
        return JobStatus.RUNNING
    return JobStatus.HELD if job.release > now else JobStatus.WAITING


def is_stuck(job: JobView) -> bool:
    """Whether nothing of the job runs or can start: the tasks left depend on one that failed or was cancelled."""
    return not job.all_ready and not job.attempts and not job.apart
