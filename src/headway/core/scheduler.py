"""The scheduler: the one object that a driver has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, assert_never

from headway.core import audit, leases, lifecycle, preparing, reactor, suspects, tiers
from headway.core.nodes import Extent
from headway.core.record import StateRecord, isolation_record, job_record, node_record, restore_state, suspicion_record
from headway.core.rounds import ask, carry_out, carry_out_again, check_types, promised
from headway.core.state import State
from headway.errors import HeadwayError
from headway.model.actions import Action, Consult, JobStatus, Wake
from headway.model.events import (
    Advised,
    ClockStepped,
    DeciderBack,
    DeciderChosen,
    DeciderFailed,
    Event,
    Incident,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeMeasured,
    NodeResized,
    NodesHeard,
    NodeUp,
    PeriodChosen,
    PolicyChosen,
    RulesChosen,
    TaskEnded,
    TaskSaved,
    TasksCancelled,
    TaskStarted,
    TaskStruck,
    TierRefused,
    Woke,
)
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import ESTIMATE_DEFAULT, JobId, JobSpec, Kind, flaw
from headway.model.plan import Decision, Plan, Reason, Waiting
from headway.model.snapshot import Policy, PolicySource, Snapshot, is_added, uses_tiers
from headway.model.tier import Tier

_RareEvent = (
    Woke
    | TaskStarted
    | TaskSaved
    | TaskStruck
    | RulesChosen
    | TierRefused
    | JobCancelled
    | TasksCancelled
    | JobChanged
    | PolicyChosen
    | NodeJoined
    | NodeDown
    | NodeUp
    | NodeDrained
    | NodeLeft
    | NodeResized
    | NodeMeasured
    | PeriodChosen
    | DeciderChosen
    | Advised
    | DeciderFailed
    | DeciderBack
    | Incident
    | ClockStepped
)
"""All of `Event` except what comes for every task and heartbeat."""

_OF_JOBS: Final = (JobCancelled, TasksCancelled, JobChanged, TaskStarted, TaskSaved, TaskStruck, TierRefused, Incident)
"""Rare events that shorten no lease: thousands of them may come together, and each lease would be looked at."""


class Scheduler:
    """Decides, event by event, which job gets which slots. Drivers perform the actions that it returns.

    Args:
        policies: finds a policy by its text; called at the start and at every `PolicyChosen`.
        policy: the text of the first policy.
        estimate_default: the assumed run time of a task without an estimate.
        period: the policy runs at least this often while jobs are in the system (adaptive adjustment, Lin14 4.4);
            None: only when something happens.
        restores: for `restore`: a policy that cannot be found is `absent`, not an error.

    Attributes:
        state: what policies see; drivers read it, only the core writes it.
        policy: the text of the current policy.
        rounds: how many rounds there were.
        refusals: parts of plans that were refused, by rule.
        ignored: answers and requests that came too late or twice.
        failure: what the policy raised in the last round; None if it gave a plan. A policy that raises changes nothing.
        period: as given, or chosen since.
        decider: the URL of the decider that makes the plans instead of the policy; empty: none.
        decider_failed: whether the policy runs because the decider has failed.
        question: the number of the question the decider has not answered yet.
        decided: what the round of the last event decided; None: there was no round, and no question to the decider.
        today: what the policy would decide now in the round that was replayed last, if `replay` was told to ask.
        absent: why the current policy cannot be found; None: it was found. Without it, running tasks continue, and
            nothing new starts until another is chosen.
    """

    def __init__(
        self,
        policies: PolicySource,
        policy: str,
        *,
        estimate_default: Duration = ESTIMATE_DEFAULT,
        period: Duration | None = None,
        restores: bool = False,
    ) -> None:
        self.state = State(estimate_default)
        self.rounds = 0
        self.refusals: Counter[str] = Counter()
        self.ignored = 0
        self._policies = policies
        self.period = period
        self.failure: Exception | None = None
        self._wake_at: Instant = NEVER
        self._round_at: Instant = NEVER
        self.decider = ""
        self.decider_failed = False
        self.question: int | None = None
        self._questions = 0
        self.decided: Decision | None = None
        self.absent: Exception | None = None
        self._replays = False
        self._again: Decision | None = None
        self._compares = False
        self.today: Decision | None = None
        self._replays = restores
        self._choose(policy)
        self._replays = False

    def handle(self, event: Event) -> list[Action]:
        """Handle an event and return what is to be done about it: the only entry point.

        The driver's duties, in order: make the event durable; perform the actions in sequence; feed back the outcome of
        each. Events are fed in the order of their instants. An event dated before the one before it counts as of that
        one's instant.

        Returns:
            The actions, newly made: the list is the caller's.
        """
        state = self.state
        if event.at > state.now:
            state.now = event.at
        actions: list[Action] = []
        state.actions = actions
        self.decided = None
        if state.release_queue:
            state.release_due_jobs()  # whatever the event is: a wake may come after others of its instant
        expiry = NEVER
        if isinstance(event, TaskEnded):
            taken = reactor.on_task_ended(state, event)
        elif isinstance(event, JobSubmitted):
            taken = reactor.on_job_submitted(state, event)
        elif isinstance(event, NodesHeard):
            taken = reactor.on_nodes_heard(state, event)
        else:
            taken = self._on_rare(event)
            if not isinstance(event, _OF_JOBS):
                expiry = leases.next_expiry(state)  # between these events leases only grow longer
        if not taken:
            self.ignored += 1
        if state.suspects or state.isolations:
            suspects.advance(state)
        if self._again is not None:
            if self._again.consults:
                self._consult()
            else:
                self._hold_again(self._again)
        elif state.round_due:
            consults = bool(self.decider) and not self.decider_failed
            if consults and self.question is not None:
                pass  # the next question follows the answer
            elif not isinstance(event, Woke) and (consults or self._per_instant or self._replays):
                self._ask_to_wake(state.now)
            elif self._replays:
                pass  # there was no round, whatever the policy's traits are now
            elif consults:
                self._consult()
            else:
                self._round()
        at = self._round_at if self._round_at < expiry else expiry
        if state.release_queue:
            at = min(at, state.next_release())
        if state.suspects or state.isolations:
            at = min(at, suspects.next_look(state))
        if at < self._wake_at:
            self._ask_to_wake(at)
        return actions

    def replay(self, event: Event, decision: Decision | None, *, compare: bool = False) -> list[Action]:
        """Handle an event again as it was handled: do what its round decided then, if there was one; ask no policy.

        Args:
            decision: what its round decided.
            compare: ask the policy too, for `today`; the answer changes nothing.

        Returns:
            As `handle`.
        """
        self._replays, self._again, self._compares, self.today = True, decision, compare, None
        try:
            return self.handle(event)
        finally:
            self._replays, self._again = False, None

    def prepare(self, text: str) -> Iterator[None]:
        """Sort the jobs for a policy before it is chosen, part by part; between the parts, events may be handled.

        It changes no decision. Without it, the sorting is a part of the event `PolicyChosen`.
        """
        policy = self._policies(text)
        return iter(()) if is_added(policy) else preparing.prepare(self.state, policy)

    def objection(self, job: JobSpec) -> str | None:
        """Why a job cannot be accepted: what is wrong with its terms, or that the cluster can never run it.

        Slots that are down count: they may come back. Ask before feeding `JobSubmitted`.
        """
        wrong = flaw(job)
        if wrong is not None:
            return wrong
        if job.id in self.state.jobs:
            return f"id is {job.id}; allowed: one that no other job has"
        return self.misfit(job)

    def misfit(self, job: JobSpec) -> str | None:
        """Why the cluster, as it is now, can never run a job; None if it can. Nodes that drain do not count."""
        return None if job.kind is Kind.BAG else self.extent().misfit(job)

    def extent(self) -> Extent:
        """What the cluster, as it is now, can hold."""
        return Extent(self.state.nodes.values())

    def status(self, job: JobId) -> JobStatus:
        """The status of a job in the system.

        Raises:
            KeyError: no such job is in the system.
        """
        return lifecycle.status(self.state.jobs[job], self.state.now)

    def explain(self, job: JobId) -> Waiting:
        """Why a job waits and when it is expected to start: the policy's own answer, from a round that changes nothing.

        Raises:
            KeyError: no such job is in the system.
        """
        known = self.known_reason(job)
        if known is not None:
            return known
        state = self.state
        arrived = state.arrived
        state.arrived, state.recording, state.about = None, True, job
        try:
            plan = self._policy(state)
            check_types(plan)
        finally:
            state.arrived, state.recording, state.about = arrived, False, None
        return self.reason_in(plan, job)

    def known_reason(self, job: JobId) -> Waiting | None:
        """Why a job waits, if no policy is needed to tell; None if its plan tells."""
        view = self.state.jobs[job]
        if view.after:
            return Waiting(job, Reason.AFTER_JOBS, jobs=tuple(sorted(view.after)))
        if view.release > self.state.now:
            return Waiting(job, Reason.NOT_RELEASED, view.release)
        if view.apart and not view.ready and not view.attempts:
            times = max(view.losses.get(task, 0) for task in view.apart)
            return Waiting(job, Reason.RUNS_ALONE_NEXT, None, times)
        if not view.ready:
            if any(view.missing):
                return Waiting(job, Reason.TASKS_DEPEND)
            is_behind = {attempt.tier for attempt in view.attempts.values()} == {Tier.BACKGROUND}
            return Waiting(job, Reason.RUNS_BEHIND if is_behind else Reason.RUNS)
        if self.misfit(view.spec) is not None:  # a node it needs has left since it was accepted
            return Waiting(job, Reason.NEVER_FITS)
        return None

    def reason_in(self, plan: Plan, job: JobId) -> Waiting:
        """Why a job waits according to a plan that was made for an explanation (`Plan.recording`)."""
        state, view = self.state, self.state.jobs[job]
        starts = min((kept.start for kept in plan.promises if kept.job == job and kept.start < NEVER), default=None)
        for answer in plan.waiting:
            if answer.job == job:
                return Waiting(job, answer.reason, starts if answer.start is None else answer.start)
        wanted = [wanted.slots for wanted in plan.allocations if wanted.job == job]
        if any(wanted):
            if job in state.refused:
                return Waiting(job, Reason.REFUSED)
            if not view.attempts or any(slots & state.free & ~view.held for slots in wanted):
                return Waiting(job, Reason.STARTS_NOW, state.now)
        if view.holds:
            return Waiting(job, Reason.RUNS if view.attempts else Reason.SLOTS_BUSY, starts)
        return Waiting(job, Reason.NOT_CONSIDERED if starts is None else Reason.NO_ROOM_NOW, starts)

    def dump(self) -> StateRecord:
        """The whole state as plain values: to be stored, and to be compared."""
        state = self.state
        return StateRecord(
            now=state.now,
            policy=self.policy,
            estimate_default=state.estimate_default,
            period=self.period,
            wake_at=self._wake_at,
            round_at=self._round_at,
            round_due=state.round_due,
            arrived=None if state.arrived is None else tuple(job.id for job in state.arrived),
            jobs=tuple(job_record(job) for job in state.jobs.values()),
            nodes=tuple(node_record(node) for node in state.nodes.values()),
            departed=tuple(node_record(node) for node in state.departed),
            rounds=self.rounds,
            ignored=self.ignored,
            refusals=tuple(sorted(self.refusals.items())),
            decider=self.decider,
            decider_failed=self.decider_failed,
            questions=self._questions,
            question=self.question,
            rules=state.rules,
            node_losses=state.node_losses,
            suspicions=tuple(suspicion_record(suspicion) for _, suspicion in sorted(state.suspicions.items())),
            isolations=tuple(isolation_record(isolation) for isolation in state.isolations),
        )

    @classmethod
    def restore(cls, record: StateRecord, policies: PolicySource) -> Scheduler:
        """A scheduler that continues from a dumped state exactly as the dumped one would.

        The wake that it had requested must be arranged again: the driver feeds `Woke` at `record.wake_at`.
        """
        scheduler = cls(
            policies, record.policy, estimate_default=record.estimate_default, period=record.period, restores=True
        )
        task_rounds = scheduler.state.task_rounds
        scheduler.state = restore_state(record)
        scheduler.state.task_rounds = task_rounds
        scheduler._wake_at, scheduler._round_at = record.wake_at, record.round_at
        scheduler.rounds, scheduler.ignored = record.rounds, record.ignored
        scheduler.refusals = Counter(dict(record.refusals))
        scheduler.decider, scheduler.decider_failed = record.decider, record.decider_failed
        scheduler._questions, scheduler.question = record.questions, record.question
        return scheduler

    def check(self) -> None:
        """Derive every index again and compare.

        Raises:
            AssertionError: an index disagrees with the state; the message names it.
        """
        audit.check(self.state)

    def _on_rare(self, event: _RareEvent) -> bool:
        """Everything but submissions and ends."""
        state = self.state
        match event:
            case Woke():
                self._woke()
                return True
            case TaskStarted():
                return reactor.on_task_started(state, event)
            case TaskSaved():
                return reactor.on_task_saved(state, event)
            case TaskStruck():
                return reactor.on_task_struck(state, event)
            case RulesChosen():
                state.rules = event.rules
                return True
            case TierRefused():
                return reactor.on_tier_refused(state, event)
            case JobCancelled():
                return reactor.on_job_cancelled(state, event)
            case TasksCancelled():
                return reactor.on_tasks_cancelled(state, event)
            case JobChanged():
                return reactor.on_job_changed(state, event)
            case PolicyChosen():
                self._choose(event.policy)
                return True
            case NodeJoined():
                return reactor.on_node_joined(state, event)
            case NodeDown():
                return reactor.on_node_down(state, event)
            case NodeUp():
                return reactor.on_node_up(state, event)
            case NodeDrained():
                return reactor.on_node_drained(state, event)
            case NodeLeft():
                return reactor.on_node_left(state, event)
            case NodeResized():
                return reactor.on_node_resized(state, event)
            case NodeMeasured():
                return reactor.on_node_measured(state, event)
            case PeriodChosen():
                self.period = event.period
                state.look_at_everything()
                return True
            case DeciderChosen():
                self._decide_at(event.url)
                return True
            case Advised():
                return self._advised(event)
            case DeciderFailed():
                return self._do_without(event)
            case DeciderBack():
                return self._welcome_back()
            case Incident():
                return True
            case ClockStepped():
                return reactor.on_clock_stepped(state, event)
            case _:
                assert_never(event)

    def _woke(self) -> None:
        state = self.state
        if state.now >= self._wake_at:
            self._wake_at = NEVER
        leases.expire(state)
        if self._round_at <= state.now:
            state.look_at_everything()

    def _choose(self, text: str) -> None:
        self._policy: Policy
        try:
            self._policy, self.absent = self._policies(text), None
        except HeadwayError as error:
            if not self._replays:
                raise
            self._policy, self.absent = _Absent(error), error
        self._added = is_added(self._policy)
        self.policy = text
        self.question = None  # it was asked of another policy
        self._per_instant = self._policy.per_instant
        state = self.state
        state.task_rounds = self._policy.task_rounds
        self._tiers = uses_tiers(self._policy)
        state.forget_orders()
        for job in list(state.promised.values()):
            state.promise(job, None)
        for _, job in sorted({job.id: job for job in state.owners.values()}.items()):
            state.give_up(job, job.held)  # what runs continues; the new policy decides about its slots
        state.look_at_everything()

    def _round(self) -> None:
        state = self.state
        forward = bool(state.background) and not self._tiers
        if forward:
            tiers.bring_forward(state)
        plan, self.failure = ask(state, self._policy, added=self._added)
        promises, raised = [], "" if self.failure is None else type(self.failure).__name__
        if raised:
            self.refusals[f"policy_raised_{raised}"] += 1
        else:
            state.arrived = []
            if plan.allocations or plan.promises or state.refused:
                promises = carry_out(state, plan, self.refusals)
        self.decided = Decision(tuple(plan.allocations), tuple(promises), plan.wake, raised, forward)
        self._end_round(plan.wake)

    def _hold_again(self, decision: Decision) -> None:
        state = self.state
        if decision.forward:
            tiers.bring_forward(state)
        if self._compares:
            plan, failure = ask(state, self._policy, added=self._added)
            raised = "" if failure is None else type(failure).__name__
            self.today = Decision(
                tuple(plan.allocations), tuple(promised(plan).items()), plan.wake, raised, decision.forward
            )
        self.failure = None
        if decision.raised:
            self.refusals[f"policy_raised_{decision.raised}"] += 1
        else:
            state.arrived = []
            carry_out_again(state, decision, self.refusals)
        self.decided = decision
        self._end_round(decision.wake)

    def _end_round(self, wake: Instant | None) -> None:
        self.rounds += 1
        self.state.round_due = False
        self._set_next_round(wake)

    def _set_next_round(self, wake: Instant | None) -> None:
        state = self.state
        self._round_at = NEVER if wake is None else max(wake, state.now + 1)
        if self.period is not None and state.jobs:
            self._round_at = min(self._round_at, state.now + self.period)

    # A decider instead of the policy

    def _decide_at(self, url: str) -> None:
        self.decider, self.decider_failed, self.question = url, False, None
        self.state.look_at_everything()

    def _consult(self) -> None:
        self._questions += 1
        self.question = self._questions
        self.decided = _CONSULTS
        self.state.round_due = False
        self._round_at = NEVER
        self.state.actions.append(Consult(self.question))

    def _advised(self, event: Advised) -> bool:
        if event.question != self.question:
            return False
        if event.plan.flaw(len(self.state.slot_nodes)) is not None:
            self.refusals["slot_unknown"] += 1
            return self._do_without(event)
        plan = event.plan.plan()
        self.question = None
        self.rounds += 1
        state = self.state
        news = state.round_due  # since the question; what follows from the plan itself needs no new question
        state.arrived = None if news else []
        carry_out(state, plan, self.refusals)
        state.round_due, self.failure = news, None
        self._set_next_round(plan.wake)
        return True

    def _do_without(self, event: Advised | DeciderFailed) -> bool:
        if event.question != self.question:
            return False
        self.question, self.decider_failed = None, True
        self.state.look_at_everything()
        return True

    def _welcome_back(self) -> bool:
        if not self.decider_failed:
            return False
        self.decider_failed = False
        self.state.look_at_everything()
        return True

    @property
    def wake_at(self) -> Instant:
        """When it wants a `Woke`, as its `Wake` said last; never if no such event is outstanding."""
        return self._wake_at

    def _ask_to_wake(self, at: Instant) -> None:
        if at < self._wake_at:
            self._wake_at = at
            self.state.actions.append(Wake(at))


_CONSULTS: Final = Decision(consults=True)


class _Absent:
    """In the place of a policy that cannot be found."""

    per_instant = False
    task_rounds = False

    def __init__(self, why: Exception) -> None:
        self.why = why

    def __call__(self, view: Snapshot) -> Plan:
        raise self.why
