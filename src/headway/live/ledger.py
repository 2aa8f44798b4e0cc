"""Keeps the core and the journal in agreement: what the core makes of each event becomes rows to be made durable."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from headway import wire
from headway.core.scheduler import Scheduler
from headway.engines import base
from headway.errors import HeadwayError, NoSuchJob, in_short
from headway.history.predictions import Predictions
from headway.history.predictors import USER, predictor
from headway.live import reconciling, work
from headway.live.intake import TAKEN_AT_ONCE, CheckedSubmission, check_after, check_names
from headway.live.store import checks
from headway.live.store.decisions import decided_row
from headway.live.store.journal import Batch, Journal, NotNow, encode
from headway.live.store.salvage import RECONCILE
from headway.live.tally import Tally
from headway.model.actions import (
    Action,
    ChangeTier,
    Conclude,
    Consult,
    JobStatus,
    Kill,
    Launch,
    RentMachine,
    ReturnMachine,
    Settle,
    Suspend,
    SwitchOff,
    SwitchOn,
    Wake,
)
from headway.model.events import (
    Event,
    Incident,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    RentFailed,
    Returned,
    TaskStarted,
    Woke,
)
from headway.model.instant import NEVER, SECOND, Duration, Instant
from headway.model.job import JobId, JobSpec
from headway.model.outcome import Outcome
from headway.model.policy import PolicySource
from headway.model.renting import Rental
from headway.model.seen import JobView
from headway.model.slots import numbers

log = logging.getLogger(__name__)

WAKE_IDLE: Final[Duration] = SECOND // 20
"""How long the core may have to wait until it is woken while there is no job: the next submission comes before that,
if calls follow each other, and one round does for both.
"""

_DETAIL: Final = {
    Outcome.LOST: "its node was lost each time it ran, at last while nothing else ran there: it is taken for the cause",
    Outcome.CANCELLED: work.CANCELLED_DETAIL,
}
"""The detail of a task that no attempt has settled."""

_USED_AGAIN: Final[Duration] = 600 * SECOND
_USED_MAX: Final = 10_000

ESTIMATES: Final = "estimates"
"""Under this name the journal has what policies knew of run times in the last run."""

ToPerform = Launch | Kill | ChangeTier | Suspend | SwitchOff | SwitchOn | RentMachine | ReturnMachine
"""What is done when it is durable."""

T = TypeVar("T")


@dataclass(slots=True)
class OpenJob:
    """What is known here of a job until it ends; the rest is in the core and in the journal.

    Attributes:
        spec: its terms as they are now.
        client: the number of the client that submitted it.
        started: when its first task began to run, with its inputs there; None before.
        done: number of tasks that have succeeded or failed; `failed` of them have failed.
        cancelled: number of tasks that were cancelled.
        timed: number of tasks that have succeeded since the server was started, and `spent` how long all of these would
            have run on slots of speed factor 1.
        is_converted: whether one of them ran on others.
        work: None until one of its tasks is launched.
        names_files: whether it has inputs or outputs; known with `work`.
        view: the job as the core has it.
        needs: names of the functions and uploads that it needs, with spaces between them.
        places: of its tasks by their numbers, where these are others; made when they are first looked for.
    """

    spec: JobSpec
    client: int
    submitted: Instant
    started: Instant | None = None
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    timed: int = 0
    spent: Duration = 0
    is_converted: bool = False
    work: wire.Work | None = None
    names_files: bool = False
    view: JobView | None = None
    needs: str = ""
    places: dict[int, int] = field(default_factory=dict)

    def place(self, number: int) -> int:
        """Which of its tasks has this number for its work; see `JobSpec.numbers`."""
        if not self.spec.numbers:
            return number
        if not self.places:
            self.places = {each: place for place, each in enumerate(self.spec.numbers)}
        return self.places[number]


class _EndedAttempt(NamedTuple):
    """An attempt that has ended.

    Attributes:
        slots: in the order of its processes.
        took: how long it ran, with what it had kept of earlier attempts.
        speed: the speed factor of its slowest slot.
    """

    slots: tuple[str, ...]
    took: Duration
    speed: float


@dataclass(slots=True)
class Entry:
    """What happened at one instant: the rows to be made durable, and what is to be done and counted after that.

    Attributes:
        concluded: jobs that ended, with their terms then, and what the windows of a service have cost.
        incidents: their kinds.
        files: bytes of output files that are kept with results.
    """

    now: Instant
    batch: Batch = field(default_factory=Batch)
    actions: list[ToPerform] = field(default_factory=list)
    concluded: list[tuple[JobSpec, JobStatus, float]] = field(default_factory=list)
    incidents: list[str] = field(default_factory=list)
    files: int = 0


class Ledger:
    """Feeds the core and records what follows.

    Args:
        journal: what the core is loaded from.
        policies: finds a policy by its text.
        policy: the text of the policy that a new journal starts with.
        snapshot_every: how many events there are between two stored snapshots, at least.
        keep_events: how long events are kept for replay, see `Expiry.drop_snapshots`.
        size_of: the size of a file that tasks gave, by its name.
        estimates: what policies know of run times, see `DriverSettings`.

    Attributes:
        core: the scheduler; what was fed to it may not be durable yet.
        open: the open jobs, by id.
        needed: how many open jobs need each function and upload, by name.
        jobs_of, tasks_of: how many open jobs each user has, and how many tasks these have.
        services: open services that are not cancelled: their jobs by name, rising; several where one replaces another.
            It is another mapping after each change.
        leased: jobs that end with their client (`JobSpec.leased`) and were not cancelled, by its number; in order.
        event, message, job: the last numbers given.
        tally: what has happened since the start.
    """

    core: Scheduler

    def __init__(
        self,
        journal: Journal,
        policies: PolicySource,
        policy: str,
        snapshot_every: int,
        keep_events: Duration | None = None,
        size_of: Callable[[str], int] = lambda name: 0,
        estimates: str | None = None,
    ) -> None:
        self.journal = journal
        self.open: dict[JobId, OpenJob] = {}
        self.leased: dict[int, dict[JobId, None]] = {}
        self.services: dict[str, tuple[JobId, ...]] = {}
        self.event = self.message = self.job = 0
        self.tally = Tally()
        self.needed: Counter[str] = Counter()
        self.jobs_of: Counter[str] = Counter()
        self.tasks_of: Counter[str] = Counter()
        self._keep_events = keep_events
        self._size_of = size_of
        self._estimates = estimates
        self._predictions: Predictions | None = None
        self._policies = policies
        self._policy = policy
        self._snapshot_every = snapshot_every
        self._snapshot_due = 0
        self._started: list[JobId] = []
        self._taking = range(0)
        self._clients: Counter[int] = Counter()
        self._used: dict[str, Instant] = {}
        self._failure: Exception | None = None

    def load(self, now: Instant = 0) -> None:
        """Load everything from the journal; a new journal gets its first snapshot. Numbers of jobs are not given again.

        Args:
            now: the instant at which lost things are given up, if it is later than everything in the journal.

        Raises:
            HeadwayError: the policy is not installed, or the journal contradicts itself.
        """
        stored = self.journal.snapshot()
        if stored is None:
            stored = (0, Scheduler(self._policies, self._policy).dump())
            self.journal.store_snapshot(*stored, ())
        seq, record = stored
        self.core = Scheduler.restore(record, self._policies)
        self.event, self.message, last_job = self.journal.last()
        self.job = max(self.job, last_job)  # submissions that are still to be accepted have their numbers
        self._snapshot_due = seq + self._snapshot_every
        started: dict[JobId, Instant] = {}
        for event, actions in self.journal.replay(self.core, seq):
            for action in actions:
                if isinstance(action, Launch) and not self.core.state.jobs[action.job].spec.fetches:
                    started.setdefault(action.job, event.at)
            if isinstance(event, TaskStarted) and self._runs(event):
                started.setdefault(event.job, event.at)
        if self.journal.noted(RECONCILE) or (self.journal.accept_loss and self._contradiction()):
            self._reconcile(started, max(now, self.core.state.now))
        progress = self.journal.progress()
        self.open = {
            row.id: OpenJob(
                row.spec,
                row.client,
                row.submitted,
                row.started or started.get(row.id),
                *progress.get(row.id, (0, 0, 0)),
            )
            for row in self.journal.jobs(open_only=True)
        }
        self._started, self._taking = [job for job in started if job in self.open], range(0)
        self.leased, self.services = {}, {}
        self._predictions = self._predictions_of_past()
        for job, kept in sorted(self.open.items()):
            kept.view = self.core.state.jobs.get(job)
            if self._predictions is not None:
                self._predictions.follow(kept.view)
            if kept.spec.endless and not (kept.view and kept.view.cancelled):
                self._add_service(kept.spec)
            if kept.spec.leased and not (kept.view and kept.view.cancelled):
                self.leased.setdefault(kept.client, {})[job] = None
        self._clients = Counter(kept.client for kept in self.open.values())
        self.jobs_of, self.tasks_of = Counter(), Counter()
        for kept in self.open.values():
            self._hold(kept.spec)
        self.needed = Counter()
        for job, names in self.journal.needs():
            self._need(self.open[job], names)
        self._used = {}
        odd = self._contradiction()
        if odd:
            raise HeadwayError(
                f"{self.journal.folder} contradicts itself: its events and its table of jobs differ in the jobs {odd}",
                "It was changed by hand, or this Headway decides differently from the one that wrote it."
                f" `headway up --data {self.journal.folder} --accept-loss` ends these jobs and goes on.",
            )

    def _predictions_of_past(self) -> Predictions | None:
        """Predictions by what the journal tells of the past; None: the estimates of users count."""
        chosen = self._estimates or self.journal.fact(ESTIMATES) or USER
        if chosen != (self.journal.fact(ESTIMATES) or USER):
            self.journal.note(ESTIMATES, chosen)
        made = predictor(chosen)
        if made is None:
            return None
        for past in self.journal.past.jobs():
            if past.succeeded:
                made.learn(past.job, past.took)
        return Predictions(made)

    def _contradiction(self) -> list[JobId]:
        """The first few jobs that are open in the table but not in the core, or the other way round."""
        return sorted(self.journal.open_jobs() ^ self.core.state.jobs.keys())[:5]

    def _reconcile(self, started: dict[JobId, Instant], now: Instant) -> None:
        """Bring the core and the tables into agreement after something was lost."""
        batch, told = Batch(), list[str]()

        def feed(event: Event) -> None:
            self.event += 1
            told.extend([event.kind] if isinstance(event, Incident) else ())
            actions = self.core.handle(event)
            batch.events.append(decided_row(self.event, event.at, event, self.core.decided))
            for action in actions:
                if isinstance(action, Launch):
                    started.setdefault(action.job, event.at)

        for said in self.journal.given_up:
            feed(Incident(now, "loss_accepted", "the journal", in_short(said)))
        rows = {row.id: row for row in self.journal.jobs(open_only=True)}
        made = reconciling.reconcile(
            self.core, now, feed, rows, self.journal.progress(), self.journal.lacking(), self.message
        )
        batch.ended, batch.messages = made.ended, made.messages
        if batch:
            self.journal.write(batch)
            self.tally.incidents.update(told)
        self.message += len(made.messages)
        self.journal.note(RECONCILE, 0)

    def has_work(self, key: int) -> bool:
        """Whether more messages about a key of `Listeners` will come."""
        if key > 0:
            return key in self.open
        return self._clients[-key] > 0 if key else bool(self.open)

    def end_of(self, job: JobId, entry: Entry | None = None) -> JobStatus | None:
        """How a job has ended, as far as that is durable, or follows from what happened since in `entry`.

        Returns:
            None if it has not ended.

        Raises:
            NoSuchJob: there is no job with this id.
        """
        if entry is not None:
            for word, *_, ended in entry.batch.ended:
                if ended == job:
                    return JobStatus(word)
        if job in self.open:
            return None
        found = self.journal.end_of(job)
        if found is None:
            raise NoSuchJob(job)
        return found[0]

    def check(self, entry: Entry, checked: CheckedSubmission) -> None:
        """Check a submission beside what is there at the last moment: names, and that no job comes after one that has
        ended badly.

        Raises:
            HeadwayError: one does, or a service would have the name of another job.
        """
        check_names(checked, self.services, (kept.spec for kept in self.open.values()))
        for place, spec in enumerate(checked.specs):
            check_after(spec, f"jobs[{place}]", lambda job: self.end_of(job, entry))

    def accept(self, entry: Entry, checked: CheckedSubmission) -> Generator[None, None, wire.Submitted]:
        """Accept a submission, part by part; returns the answer."""
        batch, now = entry.batch, entry.now
        caller, key, digest = checked.key
        answer = wire.Submitted(tuple(spec.id for spec in checked.specs), self.message)
        self._taking = range(answer.jobs[0], answer.jobs[-1] + 1)
        for place, (spec, (functions, body)) in enumerate(zip(checked.specs, checked.works, strict=True), 1):
            kept = self.open[spec.id] = OpenJob(spec, checked.client, now)
            self._clients[checked.client] += 1
            self._hold(spec)
            large = checked.large.get(spec.id)
            terms = encode(spec) if large is None else large.spec
            self._need(kept, functions)
            if spec.leased:
                self.leased.setdefault(checked.client, {})[spec.id] = None
            batch.jobs.append((spec.id, checked.client, spec.name, spec.user, now, terms, functions, body))
            if large is not None:
                kept.work, kept.names_files = large.work, large.names_files
                self.journal.specs.remember(terms, spec)
                yield
                self.core.expect(large.view)
            self.feed(entry, JobSubmitted(now, spec, caller), job=terms)
            kept.view = self.core.state.jobs.get(spec.id)
            if spec.endless:
                self._add_service(spec)
            if place % TAKEN_AT_ONCE == 0 and place < len(checked.specs):
                yield
        batch.blobs += [(name, now, blob) for name, blob in checked.blobs.items()]
        for name in checked.functions:
            if now - self._used.get(name, 0) > _USED_AGAIN:
                if len(self._used) >= _USED_MAX:
                    self._used.clear()
                batch.used.append((now, name))
                self._used[name] = now
        batch.uploads += [(name, now, 0) for name in checked.uploads]
        batch.clients += self.journal.clients.to_record(checked.client)
        if key:
            batch.submissions.append((caller, key, digest, answer.jobs[0], len(answer.jobs), answer.cursor, now))
        return answer

    def feed(self, entry: Entry, event: Event, ended: base.Ended | None = None, job: bytes = b"") -> bool:
        """Let the core handle an event and record what follows; returns whether it settled a task.

        Args:
            ended: what a `TaskEnded` was made from; kept as the result if it settles the task.
            job: the job of a `JobSubmitted` as rows have it, where it was encoded before.
        """
        batch, now, predictions = entry.batch, entry.now, self._predictions
        self.event += 1
        settled = False
        ran = None if ended is None else self._ran(ended, now)
        if predictions is not None:
            event = predictions.told(event, self.core)
        rental = self._rental_over(event)
        actions = self._handle(event)
        if rental is not None and rental.number not in self.core.state.market.rentals:
            batch.money += checks.money(rental, now)
        if predictions is not None:
            predictions.note(event, actions, self.core)
        batch.events.append(decided_row(self.event, now, event, self.core.decided, job))
        for action in actions:
            match action:
                case Launch():
                    kept = self.open[action.job]
                    if kept.started is None and not kept.spec.fetches:
                        self._start(action.job, kept, now)
                    entry.actions.append(action)
                case Settle():
                    settled = True
                    self._settle(entry, action, ended, ran)
                case Conclude():
                    kept = self.open.pop(action.job)
                    cost = 0.0 if kept.view is None else kept.view.cost
                    entry.concluded.append((kept.spec, action.status, cost))
                    self._let_go(kept)
                    self._end_lease(kept, action.job)
                    self._end_service(kept.spec)
                    ends = (action.status.value, kept.started, now, kept.done, kept.failed)
                    batch.ended.append((*ends, kept.failed > 0, self._shown(action.job, kept), action.job))
                    if kept.view is not None:
                        batch.statistics += checks.run_times(kept.view, now)
                        batch.losses += checks.losses(kept.view, now)
                        batch.costs += checks.costs(kept.view, now)
                    if kept.is_converted:
                        batch.work.append(checks.WorkRow(action.job, now, kept.spent // kept.timed))
                    self._tell(entry, kept, action.job, None, action.status.value)
                case Kill() | ChangeTier() | Suspend() | SwitchOff() | SwitchOn() | RentMachine() | ReturnMachine():
                    entry.actions.append(action)
                case Wake() | Consult():
                    pass  # `wake_at` says when; the consultant sees in the core's state that a question is open
        if isinstance(event, TaskStarted) and self._runs(event):
            kept = self.open[event.job]
            if kept.started is None:
                self._start(event.job, kept, now)
        elif isinstance(event, JobCancelled) and event.job in self.open:
            self._end_lease(self.open[event.job], event.job)
            self._end_service(self.open[event.job].spec)
        elif isinstance(event, JobChanged) and event.job in self.open:
            kept = self.open[event.job]
            kept.spec = work.with_terms(self.core.state.jobs[event.job])
            batch.terms.append((encode(kept.spec), event.job))
            if kept.spec.endless:
                self.services = dict(self.services)  # another object: something has changed
        elif isinstance(event, Incident):
            entry.incidents.append(event.kind)
        return settled

    def _rental_over(self, event: Event) -> Rental | None:
        """The machine that this event may give back."""
        if not isinstance(event, Returned | RentFailed):
            return None
        return self.core.state.market.rentals.get(event.rental)

    def count(self, entry: Entry) -> None:
        """Count what happened, once it is durable."""
        tally, batch, self._taking = self.tally, entry.batch, range(0)
        tally.submitted += len(batch.jobs)
        tally.told(batch.messages)
        tally.incidents.update(entry.incidents)
        for spec, status, cost in entry.concluded:
            tally.ended(spec, status, entry.now, cost)

    def _runs(self, started: TaskStarted) -> bool:
        """Whether the reported attempt is the one that runs."""
        return self.core.state.current(started.job, started.task, started.attempt) is not None

    def _hold(self, spec: JobSpec) -> None:
        self.jobs_of[spec.user] += 1
        self.tasks_of[spec.user] += spec.tasks

    def _need(self, kept: OpenJob, names: str) -> None:
        kept.needs = sys.intern(names)  # thousands of jobs may need the same
        self.needed.update(names.split())

    def _let_go(self, kept: OpenJob) -> None:
        """An open job has ended: remove it here."""
        _count_down(self._clients, kept.client)
        _count_down(self.jobs_of, kept.spec.user)
        _count_down(self.tasks_of, kept.spec.user, kept.spec.tasks)
        for name in kept.needs.split():
            _count_down(self.needed, name)

    def _start(self, job: JobId, kept: OpenJob, now: Instant) -> None:
        kept.started = now
        self._started.append(job)

    def _end_lease(self, kept: OpenJob, job: JobId) -> None:
        jobs = self.leased.get(kept.client) if kept.spec.leased else None
        if jobs is not None:
            jobs.pop(job, None)
            if not jobs:
                del self.leased[kept.client]

    def _add_service(self, spec: JobSpec) -> None:
        self.services = {**self.services, spec.name: (*self.services.get(spec.name, ()), spec.id)}

    def _end_service(self, spec: JobSpec) -> None:
        """A job has ended, or was cancelled; if it is a service, there is none of it any more."""
        if spec.endless and spec.id in self.services.get(spec.name, ()):
            left = tuple(job for job in self.services[spec.name] if job != spec.id)
            self.services = {name: jobs for name, jobs in self.services.items() if name != spec.name}
            if left:
                self.services[spec.name] = left

    @property
    def wake_at(self) -> Instant:
        """When the core wants to be woken; never if it does not."""
        return self.core.wake_at

    @property
    def wake_by(self) -> Instant:
        """When the core is woken at the latest; never if it does not want to be.

        Without a job, and without a decider that is to be asked, nothing depends on a little while.
        """
        wake_at = self.wake_at
        idle = wake_at < NEVER and not self.core.state.jobs and not self.core.decider
        return wake_at + WAKE_IDLE if idle else wake_at

    def wake(self, entry: Entry, *, always: bool = False) -> None:
        """Wake the core if it wanted to be woken by now; after every other event of the instant."""
        if always or self.wake_by <= entry.now:
            self.feed(entry, Woke(entry.now))

    def _handle(self, event: Event) -> list[Action]:
        actions = self.core.handle(event)
        if self.core.failure is not self._failure:
            before, self._failure = self._failure, self.core.failure
            if self._failure is None or self._failure is self.core.absent:  # that is told when the server starts
                return actions
            if repr(before) != repr(self._failure):
                log.error("policy %s raised; the last plan holds", self.core.policy, exc_info=self._failure)
        return actions

    def _ran(self, ended: base.Ended, now: Instant) -> _EndedAttempt | None:
        """Where an attempt that has ended ran, and for how long; None: the core does not wait for it."""
        state = self.core.state
        attempt = state.current(*ended.key)
        if attempt is None:
            return None
        nodes, places = state.slot_nodes, attempt.seats or numbers(attempt.slots)
        names = tuple(f"{nodes[slot].spec.name}/{nodes[slot].index_of(slot)}" for slot in places)
        took = now - attempt.start + attempt.job.kept.get(attempt.task, 0)
        return _EndedAttempt(names, took, state.slowest(attempt.slots))

    def _shown(self, job: JobId, kept: OpenJob) -> bytes | None:
        """What is kept of the work of an ended job without failed tasks."""
        if kept.failed or (kept.work is None and kept.started is None):
            return None
        return encode(work.in_short(kept.work or self.journal.work(job)))

    def _settle(self, entry: Entry, settle: Settle, ended: base.Ended | None, ran: _EndedAttempt | None) -> None:
        """Keep the result of the attempt that settled the task, and of no other.

        Args:
            ran: what `ended` tells of, as the core had it before.
        """
        kept, files = self.open[settle.job], 0
        is_cancelled = settle.outcome is Outcome.CANCELLED
        kept.cancelled += is_cancelled
        kept.done += not is_cancelled
        kept.failed += not is_cancelled and settle.outcome is not Outcome.SUCCEEDED
        if ended is not None and ended.key == (settle.job, settle.task, settle.attempt):
            result, files = work.result(ended, settle.outcome, () if ran is None else ran.slots), work.kept_bytes(ended)
            if ran is not None and settle.outcome is Outcome.SUCCEEDED:
                kept.timed += 1
                kept.spent += ran.took if ran.speed == 1.0 else round(ran.took * ran.speed)
                kept.is_converted |= ran.speed != 1.0
        else:
            ending = wire.TaskEnding(settle.outcome, detail=_DETAIL.get(settle.outcome, ""))
            result = wire.TaskResult(settle.job, settle.task, settle.attempt, ending)
        for upload in work.outputs_kept(result):
            entry.batch.uploads.append((upload, entry.now, self._size_of(upload)))
            entry.batch.outputs.append((settle.job, settle.task, upload))
        self._tell(entry, kept, settle.job, settle.task, settle.outcome.value, encode(result), files)

    def _tell(
        self,
        entry: Entry,
        kept: OpenJob,
        job: JobId,
        task: int | None,
        word: str,
        result: bytes | None = None,
        files: int = 0,
    ) -> None:
        self.message += 1
        entry.files += files
        entry.batch.messages.append((self.message, kept.client, job, task, entry.now, word, files, result))

    # Snapshots

    @property
    def snapshot_is_due(self) -> bool:
        """Whether enough has happened since the last one."""
        return self.event >= self._snapshot_due

    def snapshot_begins(self) -> None:
        """A snapshot of the current state is made; the next is due after as many events as a start may replay."""
        self._snapshot_due = self.event + max(self._snapshot_every, 2 * len(self.open))

    def store_snapshot(self) -> None:
        """Store the current state; only while everything that was fed is durable."""
        self.snapshot_begins()
        try:
            self.note_started(len(self._started))
            self.journal.store_snapshot(self.event, self.core.dump(), ())
            self.drop_snapshots()
        except NotNow as full:
            log.warning("no snapshot was stored: %s", full)

    def note_started(self, most: int) -> bool:
        """Store first launches of open jobs that are not stored yet, up to a limit. Returns whether there may be more.

        Raises:
            NotNow: not now.
        """
        first = self._started[:most]
        later = [job for job in first if job in self._taking]  # they have no row yet
        some = [
            (kept.started, job)
            for job in first
            if job not in self._taking and (kept := self.open.get(job)) and kept.started
        ]
        if some:
            self.journal.note_started(some)
        self._started[:most] = later
        return len(self._started) > len(later)

    def drop_snapshots(self) -> None:
        """Delete what the last snapshot makes unnecessary.

        Raises:
            NotNow: not now.
        """
        self.journal.expiry.drop_snapshots(self._keep_events, self.core.state.now)


def _count_down(counts: Counter[T], key: T, by: int = 1) -> None:
    counts[key] -= by
    if not counts[key]:
        del counts[key]
