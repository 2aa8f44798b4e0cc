"""The scheduler: the one object that a driver has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from headway.core import audit, dealing, leases, lifecycle, moving, preparing, reactor, renting, suspects, switching
from headway.core.nodes import Extent
from headway.core.pool import Pool, pool_of
from headway.core.rounds import Planned, ask, carry_out, carry_out_again, check_types, planned_by, promised
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
    NetworkChosen,
    NodeClosed,
    NodeDown,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeMeasured,
    NodeOff,
    NodeOn,
    NodeOpened,
    NodeResized,
    NodesHeard,
    NodeSwitched,
    NodeUp,
    PeriodChosen,
    PolicyChosen,
    Reclaimed,
    Rented,
    RentFailed,
    RentingChosen,
    Returned,
    RulesChosen,
    SitesChosen,
    SlotsBounded,
    SwitchFailed,
    SwitchingChosen,
    TaskEnded,
    TaskSaved,
    TasksCancelled,
    TaskStarted,
    TaskStruck,
    TierRefused,
    WindowEnded,
    Woke,
)
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import ESTIMATE_DEFAULT, JobId, JobSpec, Kind, flaw
from headway.model.node import NodeSpec
from headway.model.plan import (
    ANY_SITE,
    ANYWHERE,
    CLUSTER,
    Deal,
    Decision,
    Lend,
    Plan,
    Reason,
    RentalRuling,
    Switch,
    Waiting,
)
from headway.model.policy import Policy, PolicySource, is_added, is_top_level, serves_of
from headway.model.power import PowerState
from headway.model.ration import wider_than
from headway.model.renting import MarketRecord
from headway.model.seen import JobView, NodeView
from headway.model.slots import count
from headway.model.snapshot import Snapshot
from headway.model.tier import Tier

if TYPE_CHECKING:  # a simulation from the start neither restores nor dumps, and loads nothing for it
    from headway.core.fleet import Fleet
    from headway.core.record import StateRecord

_RareEvent = (
    Woke
    | RentingChosen
    | Rented
    | RentFailed
    | Reclaimed
    | Returned
    | TaskStarted
    | TaskSaved
    | TaskStruck
    | RulesChosen
    | WindowEnded
    | TierRefused
    | JobCancelled
    | TasksCancelled
    | JobChanged
    | PolicyChosen
    | NodeJoined
    | NodeDown
    | NodeUp
    | NodeClosed
    | NodeOpened
    | NodeDrained
    | NodeLeft
    | NodeResized
    | NodeSwitched
    | NodeOff
    | NodeOn
    | SwitchFailed
    | SwitchingChosen
    | SlotsBounded
    | NodeMeasured
    | NetworkChosen
    | SitesChosen
    | PeriodChosen
    | DeciderChosen
    | Advised
    | DeciderFailed
    | DeciderBack
    | Incident
    | ClockStepped
)
"""All of `Event` except what comes for every task and heartbeat."""

_FOR_NODES: Final = frozenset(
    (Reason.NO_ROOM_NOW, Reason.NEVER_FITS, Reason.BEHIND_OTHERS, Reason.WOULD_DELAY, Reason.NOT_CONSIDERED)
)
"""Reasons that are none any more when nodes have come on."""

NOTHING: Final = Decision()
"""What most rounds decide."""

_OF_JOBS: Final = (
    JobCancelled,
    TasksCancelled,
    JobChanged,
    TaskStarted,
    TaskSaved,
    TaskStruck,
    TierRefused,
    WindowEnded,
    Incident,
)
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
        self._plain = True
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
            for pool in state.others:
                pool.now = event.at
        actions: list[Action] = []
        state.actions = actions
        self.decided = None
        if state.release_queue:
            state.release_due_jobs()  # whatever the event is: a wake may come after others of its instant
        if state.troubled:
            switching.try_again(state)
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
        if taken and state.predictions and state.predictions[0][0] < state.now:
            state.correct_predictions()
        if state.suspects or state.isolations:
            suspects.advance(state)
        if state.unsettled:
            dealing.settle(state)
        if state.stale:
            state.share_all()
        if self._again is not None:
            if self._again.consults:
                self._consult(self._again)
            else:
                self._hold_all_again(self._again, event)
        elif state.round_due and self._plain and not (state.others or self._replays):  # nearly always
            if state.per_instant and not isinstance(event, Woke):
                self._ask_to_wake(state.now)
            else:
                self._round(state)
                if state.due:  # it has made pools
                    self._hold_rounds(event)
        elif state.round_due or state.due:
            self._hold_rounds(event)
        elif taken and (state.switches or state.rents) and self._obeys(event):
            if state.switches:
                switching.prepare(state)
            self._obey_rules()
        if state.stale:
            state.share_all()
            if state.round_due or state.due:
                self._ask_to_wake(state.now)
        if state.displaced and not (state.round_due or state.due):
            state.let_instances_leave()
        at = expiry
        if self._round_at < expiry and self.question is None:  # else the next round follows the answer
            at = self._round_at
        if state.release_queue:
            at = min(at, state.next_release())
        if state.suspects or state.isolations:
            at = min(at, suspects.next_look(state))
        if state.troubled:
            at = min(at, switching.next_try(state))
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
        is_alike = serves_of(policy) == self.state.serves
        is_plain = is_alike and not (is_added(policy) or is_top_level(policy) or self.state.others)
        return preparing.prepare(self.state, policy) if is_plain else iter(())

    def expect(self, job: JobView) -> None:
        """Say what the next event, `JobSubmitted`, would make of its job (`view_of`): of a large one that takes time.

        It changes no decision.
        """
        self.state.expected = job

    def flaw_of(self, job: JobSpec) -> str | None:
        """Why a job cannot be accepted: what is wrong with its terms, or that the cluster can never run it.

        Slots that are down count: they may come back. Ask before feeding `JobSubmitted`.
        """
        wrong = flaw(job)
        if wrong is not None:
            return wrong
        if job.id in self.state.jobs:
            return f"id is {job.id}; allowed: one that no other job has"
        return self.flaw_of_bound(job) or self.flaw_of_fit(job)

    def flaw_of_bound(self, job: JobSpec) -> str | None:
        """Why the bound of its user would never let a job run; None if it would."""
        ration = self.state.rations.get(job.user)
        nodes = (node.spec for node in self.state.nodes.values())
        return None if ration is None else wider_than(job, ration.user, ration.most, nodes)

    def flaw_of_fit(self, job: JobSpec) -> str | None:
        """Why the cluster, as it is now, can never run a job; None if it can. Nodes that drain do not count."""
        return None if job.kind is Kind.BAG else self.extent().flaw_of_fit(job)

    def extent(self) -> Extent:
        """What the cluster, as it is now, can hold: if there are pools between which no slots move, what one can.

        Nodes that drain do not count; slots that are down do.
        """
        state, part = self.state, getattr(self.state.policy, "part", str)
        parts: dict[str, dict[str, NodeView]] = {}
        one_site = set[str]()
        for pool in state.others or [state]:
            name = part(pool.name)
            parts.setdefault(name, {}).update(pool.nodes)
            if getattr(getattr(pool.policy, "policy", pool.policy), "needs_one_site", False):
                one_site.add(name)
        if len(parts) == 1:
            parts = dict.fromkeys(parts, state.nodes)  # also nodes that came just now and are in no pool yet
        groups, for_rigid = list[list[NodeSpec]](), list[list[NodeSpec]]()
        for name, nodes in parts.items():
            group = [node.spec for node in nodes.values() if not node.draining]
            groups.append(group)
            together: dict[str, list[NodeSpec]] = {}
            for node in group:
                together.setdefault(node.site if name in one_site else node.together, []).append(node)
            for_rigid += together.values() or [group]
        return Extent(groups, for_rigid)

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
        pool = pool_of(self.state.jobs[job])
        if self.state.switches:
            switching.show(self.state)
        arrived = pool.arrived
        pool.arrived, pool.recording, pool.about = None, True, job
        try:
            plan = pool.policy(pool)
            check_types(plan)
        finally:
            pool.arrived, pool.recording, pool.about = arrived, False, None
            pool.given.clear()
        return self.reason_in(plan, job)

    def why_there(self, job: JobId) -> str:
        """Why a job is in its pool, by the top level's own words now; empty: it is in none, or that does not say.

        Raises:
            KeyError: no such job is in the system.
            Exception: whatever the policy raises.
        """
        view, says = self.state.jobs[job], getattr(self.state.policy, "why", None)
        if not callable(says) or (pool_of(view) is self.state and is_top_level(self.state.policy)):
            return ""
        if self.decider and not self.decider_failed:
            return f"it is at site {view.pool.name}, because the decider at {self.decider} says so"
        return str(says(self.state, view))

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
        if view.ration is not None and view.all_ready and not view.ready:
            ration = view.ration
            return Waiting(job, Reason.USER_AT_BOUND, user=ration.user, most=ration.most, used=ration.used)
        if not view.ready:
            if any(view.missing):
                return Waiting(job, Reason.TASKS_DEPEND)
            is_behind = {attempt.tier for attempt in view.attempts.values()} == {Tier.BACKGROUND}
            return Waiting(job, Reason.RUNS_BEHIND if is_behind else Reason.RUNS)
        if self.flaw_of_fit(view.spec) is not None:  # a node it needs has left since it was accepted
            where = ANYWHERE if self.state.others else CLUSTER
            return Waiting(job, Reason.NEVER_FITS, where=where, nodes=self._down_for(job))
        pool = pool_of(view)
        usable = pool.up | pool.off
        if view.rigid and self.state.limits.most_together(usable) < view.width <= count(usable):
            return Waiting(job, Reason.NEVER_FITS, where=ANY_SITE, nodes=self._down_for(job))
        if view.kind not in pool.serves and (not self.decider or self.decider_failed):
            return Waiting(job, Reason.NOT_SERVED)
        return None

    def reason_in(self, plan: Plan, job: JobId) -> Waiting:
        """Why a job waits according to a plan that was made for an explanation (`Plan.recording`)."""
        found, view, pool = self._reason_in(plan, job), self.state.jobs[job], pool_of(self.state.jobs[job])
        if found.reason is Reason.NO_ROOM_NOW and view.rigid and view.width > count(pool.up | pool.off):
            found = replace(found, reason=Reason.NEVER_FITS)  # the policy did not look
        if found.reason is Reason.NEVER_FITS:
            found = replace(found, where=self._where(job), nodes=self._down_for(job))
        if found.reason not in _FOR_NODES:
            return found
        if nodes := self._coming_for(job):
            return replace(found, reason=Reason.NODES_COME_ON, nodes=nodes)
        stuck = self._stuck_for(job)
        return replace(found, reason=Reason.NODES_STUCK, nodes=stuck) if stuck else found

    def _where(self, job: JobId) -> str:
        """In which part of the cluster a job may run, in words."""
        pool = pool_of(self.state.jobs[job])
        if not self.state.others:
            return CLUSTER
        if pool is self.state:
            return ANYWHERE
        is_site = any(node.spec.site == pool.name for node in pool.nodes.values())
        return f"its site {pool.name}" if is_site else f"its part of the cluster, {pool.name},"

    def _coming_for(self, job: JobId) -> tuple[str, ...]:
        """The nodes that are being switched on where a job waits."""
        pool, dark = pool_of(self.state.jobs[job]), self.state.dark
        return tuple(
            name
            for name, node in dark.items()
            if node.slots & pool.off and (node.power is PowerState.COMING_ON or node.comes_back)
        )

    def _down_for(self, job: JobId) -> tuple[str, ...]:
        """The nodes that are down where a job waits."""
        return tuple(name for name, node in pool_of(self.state.jobs[job]).nodes.items() if not node.up)

    def _stuck_for(self, job: JobId) -> tuple[str, ...]:
        """The nodes that could not be switched on where a job waits."""
        slots = pool_of(self.state.jobs[job]).slots
        stuck = (node for node in self.state.dark.values() if node.trouble is not None and not node.kept_off)
        return tuple(node.spec.name for node in stuck if node.power is PowerState.COMING_ON and node.slots & slots)

    def _reason_in(self, plan: Plan, job: JobId) -> Waiting:
        view = self.state.jobs[job]
        pool = pool_of(view)
        starts = min((kept.start for kept in plan.promises if kept.job == job and kept.start < NEVER), default=None)
        if view.rigid and view.held and not view.attempts:
            return Waiting(job, Reason.SLOTS_BUSY, starts)
        for answer in plan.waiting:
            if answer.job == job:
                return Waiting(job, answer.reason, starts if answer.start is None else answer.start)
        wanted = [wanted.slots for wanted in plan.allocations if wanted.job == job]
        if any(wanted):
            if job in pool.refused:
                return Waiting(job, Reason.REFUSED)
            if not view.attempts or any(slots & pool.free & ~view.held for slots in wanted):
                return Waiting(job, Reason.STARTS_NOW, self.state.now)
        if view.holds:
            return Waiting(job, Reason.RUNS if view.attempts else Reason.SLOTS_BUSY, starts)
        return Waiting(job, Reason.NOT_CONSIDERED if starts is None else Reason.NO_ROOM_NOW, starts)

    def plan(self, *, explain: bool = False) -> Plan:
        """What the policies want of the pools that are asked about, as one plan. What a top level deals is dealt: ask a
        copy of the state.

        Args:
            explain: whether reasons are wanted.

        Raises:
            Exception: whatever a policy raises, or what is wrong with its plan.
        """
        whole = Plan(explain)
        done: list[Pool] = []
        while len(done) < len(self.state.each()):
            pool = self.state.each()[len(done)]
            done.append(pool)
            if self.state.switches:
                switching.show(self.state)
            if explain:
                pool.arrived, pool.recording = None, True
            elif not (pool.consulted or pool.round_due):
                continue
            part = pool.policy(pool)
            check_types(part)
            pool.recording = False
            if part.lends or part.deals:
                whole.lends, whole.deals = part.lends, part.deals
                self._deal(pool, part.lends, part.deals)
            whole.allocations += part.allocations
            whole.promises += part.promises
            whole.waiting += part.waiting
            whole.switches = [*whole.switches, *part.switches]
            whole.rents, whole.returns = [*whole.rents, *part.rents], [*whole.returns, *part.returns]
            wakes = [wake for wake in (whole.wake, part.wake) if wake is not None]
            whole.wake = min(wakes) if wakes else None
        return whole

    def dump(self) -> StateRecord:
        """The whole state as plain values: to be stored, and to be compared."""
        from headway.core import record

        state = self.state
        return record.StateRecord(
            now=state.now,
            policy=self.policy,
            estimate_default=state.estimate_default,
            period=self.period,
            wake_at=self._wake_at,
            round_at=state.round_at,
            round_due=state.round_due,
            arrived=None if state.arrived is None else tuple(job.id for job in state.arrived),
            jobs=tuple(record.job_record(job) for job in state.jobs.values()),
            nodes=tuple(record.node_record(node) for node in state.nodes.values()),
            departed=tuple(record.node_record(node) for node in state.departed),
            rounds=self.rounds,
            ignored=self.ignored,
            refusals=tuple(sorted(self.refusals.items())),
            decider=self.decider,
            decider_failed=self.decider_failed,
            questions=self._questions,
            question=self.question,
            rules=state.rules,
            node_losses=state.node_losses,
            suspicions=tuple(record.suspicion_record(suspicion) for _, suspicion in sorted(state.suspicions.items())),
            isolations=tuple(record.isolation_record(isolation) for isolation in state.isolations),
            pools=tuple(map(record.pool_record, state.others)),
            consulted=state.consulted,
            leaving=record.leaving_record(state),
            departing=record.departing_record(state),
            last=state.last,
            network=state.routes.network,
            sites=tuple(state.sites.values()),
            switching=tuple(state.switching.values()),
            was_taken=record.taken_record(state),
            strayed=state.strayed,
            switches=state.switches,
            switched=state.switched,
            market=MarketRecord.of(state.market),
            rations=tuple([record.RationRecord(one.user, one.most) for one in state.rations.values()]),
        )

    @classmethod
    def restore(cls, record: StateRecord, policies: PolicySource, fleet: Fleet | None = None) -> Scheduler:
        """A scheduler that continues from a dumped state exactly as the dumped one would.

        The wake that it had requested must be arranged again: the driver feeds `Woke` at `record.wake_at`.

        Args:
            fleet: the nodes of the record, where several begin with it; see `headway.core.record.fleet_of`.
        """
        from headway.core.record import restore_state

        scheduler = cls(
            policies, record.policy, estimate_default=record.estimate_default, period=record.period, restores=True
        )
        policy = scheduler.state.policy
        scheduler.state = restore_state(record, fleet)
        scheduler._replays = True  # a policy that cannot be found is absent, not an error
        for pool in scheduler.state.each():
            pool.obey(policy if pool is scheduler.state else scheduler._found(pool.text), pool.text or record.policy)
        scheduler._replays = False
        scheduler.state.stale.update(scheduler.state.rations)
        scheduler.state.share_all(is_restored=True)
        scheduler._wake_at = record.wake_at
        scheduler._round_at = min([pool.round_at for pool in scheduler.state.each()])
        scheduler.rounds, scheduler.ignored = record.rounds, record.ignored
        scheduler.refusals = Counter(dict(record.refusals))
        scheduler.decider, scheduler.decider_failed = record.decider, record.decider_failed
        scheduler._look_what_is_plain()
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
            case WindowEnded():
                return reactor.on_window_ended(state, event)
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
            case NodeClosed():
                return reactor.on_node_closed(state, event)
            case NodeOpened():
                return reactor.on_node_opened(state, event)
            case NodeDrained():
                return reactor.on_node_drained(state, event)
            case NodeLeft():
                return reactor.on_node_left(state, event)
            case NodeResized():
                return reactor.on_node_resized(state, event)
            case NodeSwitched():
                switched = reactor.on_node_switched(state, event)
                self._look_what_is_plain()
                return switched
            case NodeOff():
                return reactor.on_node_off(state, event)
            case NodeOn():
                return reactor.on_node_on(state, event)
            case SwitchFailed():
                return reactor.on_switch_failed(state, event)
            case SwitchingChosen():
                chosen = reactor.on_switching_chosen(state, event)
                self._look_what_is_plain()
                return chosen
            case RentingChosen():
                chosen = reactor.on_renting_chosen(state, event)
                self._look_what_is_plain()
                return self._look_if(chosen)
            case Rented():
                return self._look_if(reactor.on_rented(state, event))
            case RentFailed():
                return self._look_if(reactor.on_rent_failed(state, event))
            case Reclaimed():
                return self._look_if(reactor.on_reclaimed(state, event))
            case Returned():
                return self._look_if(reactor.on_returned(state, event))
            case SlotsBounded():
                return reactor.on_slots_bounded(state, event)
            case NodeMeasured():
                return reactor.on_node_measured(state, event)
            case NetworkChosen():
                return reactor.on_network_chosen(state, event)
            case SitesChosen():
                return reactor.on_sites_chosen(state, event)
            case PeriodChosen():
                self.period = event.period
                self._look_everywhere()
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
            for pool in state.each():
                if pool.round_at <= state.now:
                    pool.look_at_everything()

    def _choose(self, text: str) -> None:
        self.absent = None
        state, policy = self.state, self._found(text)
        self.policy = text
        self.question = None  # it was asked of another policy
        if state.others:
            for pool in state.others:
                pool.disobey()
            dealing.merge(state)
            self._round_at = state.round_at
        state.obey(policy, text)
        state.forget_orders()
        state.disobey()
        state.look_at_everything()

    def _found(self, text: str) -> Policy:
        """The policy of a text. When something is replayed that cannot be found, a stand-in."""
        try:
            return self._policies(text)
        except HeadwayError as error:
            if not self._replays:
                raise
            self.absent = error
            return _Absent(error)

    def _make_pool(self, name: str) -> Pool:
        """An empty pool with the policy that the top level wants there."""
        state = self.state
        pool = Pool(name)
        pool.state, pool.now = state, state.now
        pool.slot_nodes, pool.speeds, pool.limits = state.slot_nodes, state.speeds, state.limits
        pool.routes, pool.switching = state.routes, state.switching
        pool.market, pool.sites, pool.predicts = state.market, state.sites, state.predicts
        lower: Callable[[str], str] | None = getattr(state.policy, "lower", None)
        text = ""
        try:
            if lower is None:
                top = state.policy
                raise top.why if isinstance(top, _Absent) else HeadwayError(f"{self.policy} names no policy for {name}")
            text = str(lower(name))
            policy = self._policies(text)
        except Exception as error:  # noqa: BLE001  a top level, maybe a third party's, must not take the cluster down
            self.absent, policy = error, _Absent(error)
        pool.obey(policy, text)
        return pool

    def _hold_rounds(self, event: Event) -> None:
        """Hold the rounds that are due, or have the scheduler woken for them when all of the instant has happened."""
        state, woken = self.state, isinstance(event, Woke)
        consults = bool(self.decider) and not self.decider_failed
        if state.switches:
            switching.prepare(state)
        if consults and self.question is not None:
            return  # the next question follows the answer
        if consults or self._replays:
            if not woken:
                self._ask_to_wake(state.now)
            elif consults and not self._replays:
                about = tuple([pool.name for pool in state.each() if pool.round_due]) if state.others else ()
                self._consult(Decision(consults=True, about=about))
            return  # if it is replayed there was no round, whatever the policy's traits are now
        if state.round_due and (woken or not state.per_instant):
            self._round(state)
        if state.due:
            if len(state.due) > 1:
                state.due.sort(key=state.others.index)
            for pool in list(state.due):
                if woken or not pool.per_instant:
                    self._round(pool)
            self._forget_held()
        if self.decided is not None:
            self._obey_rules()
        if state.round_due or state.due:
            self._ask_to_wake(state.now)

    def _obey_rules(self) -> None:
        """After the rounds of an event: do what the rules for idle nodes and for rented machines want."""
        state = self.state
        if self._replays or not (state.switches or state.rents):
            return
        wanted, rulings, look = list[Switch](), list[RentalRuling](), NEVER
        if state.switches:
            switching.note_idle(state)
            wanted, look = switching.look(state)
        if state.rents:
            rulings, soon = renting.look(state)
            look = min(look, soon)
        again = look if look < NEVER else None
        if wanted or rulings or again is not None:
            decided = self.decided or NOTHING
            self.decided = replace(decided, ruled=tuple(wanted), ruled_rentals=tuple(rulings), look=again)
        elif self.decided is None:
            self.decided = NOTHING
        self._rule(wanted, rulings, again)

    def _rule(self, wanted: Sequence[Switch], rulings: Sequence[RentalRuling], look: Instant | None) -> None:
        """Do what the rules beneath the policies want, and hold a round when they want to look again."""
        state = self.state
        switching.carry_out(state, wanted, self.refusals)
        renting.obey(state, rulings)
        if look is not None:
            state.round_at = min(state.round_at, max(look, state.now + 1))
            self._round_at = min(self._round_at, state.round_at)

    def _round(self, pool: Pool) -> None:
        state = self.state
        if state.stale:
            state.share_all()
        forward = bool(pool.background) and not pool.tiers
        if forward:
            moving.bring_forward(pool)
        plan, failure = ask(pool, pool.policy, added=pool.added)
        if failure is not None or self.decided is None:
            self.failure = failure
        promises: list[tuple[JobId, Instant | None]] = []
        planned: list[Planned] = []
        raised = "" if failure is None else type(failure).__name__
        if raised:
            self.refusals[f"policy_raised_{raised}"] += 1
        else:
            pool.arrived = []
            if plan.lends or plan.deals:
                self._deal(pool, plan.lends, plan.deals)
            if plan.allocations or plan.promises or pool.refused:
                promises, planned = carry_out(pool, plan, self.refusals)
            if plan.switches:
                switching.carry_out(state, plan.switches, self.refusals)
            if plan.rents or plan.returns:
                renting.carry_out(state, plan.rents, plan.returns, self.refusals)
        if plan.allocations or promises or planned or plan.wake is not None or raised or forward:
            # Term by term, because compiled code then makes no tuple and dictionary of them.
            decision = Decision(
                tuple(plan.allocations),
                tuple(promises),
                plan.wake,
                raised,
                forward,
                planned=tuple(planned),
            )
        else:
            decision = NOTHING
        if plan.switches or plan.rents or plan.returns:
            words = tuple(plan.switches), tuple(plan.rents), tuple(plan.returns)
            decision = replace(decision, switches=words[0], rents=words[1], returns=words[2])
        if state.others or plan.lends or plan.deals:
            decision = replace(decision, pool=pool.name, lends=tuple(plan.lends), deals=tuple(plan.deals))
            self._note(decision)
        else:
            self.decided = decision
        self._end_round(pool, plan.wake)

    def _note(self, decision: Decision) -> None:
        """Record what a round decided."""
        if self.decided is None:
            self.decided = decision
        else:
            self.decided = replace(self.decided, then=(*self.decided.then, decision))

    def _deal(self, pool: Pool, lends: Sequence[Lend], deals: Sequence[Deal]) -> None:
        if pool is self.state and is_top_level(self.state.policy):
            dealing.carry_out(self.state, lends, deals, self._make_pool, self.refusals)
            self.state.share_all()
        else:
            self.refusals["only_a_top_level_deals"] += 1

    def _hold_all_again(self, decision: Decision, event: Event) -> None:
        """Do what the rounds of an event decided when they were held."""
        state = self.state
        if state.switches:
            switching.prepare(state)
        pools = {pool.name: pool for pool in state.each()}
        for held in (decision, *decision.then):
            if held.pool not in pools:
                pools = {pool.name: pool for pool in state.each()}  # the round before has made it
            if not self._obeys(event):
                self._hold_again(pools[held.pool], held)
        self._forget_held()
        if state.switches:
            switching.note_idle(state)
        if state.switches or state.rents:
            self._rule(decision.ruled, decision.ruled_rentals, decision.look)
        if state.round_due or state.due:
            self._ask_to_wake(state.now)

    def _forget_held(self) -> None:
        """Only pools whose rounds are still to be held are due."""
        self.state.due = [pool for pool in self.state.due if pool.round_due]

    def _hold_again(self, pool: Pool, decision: Decision) -> None:
        if self.state.stale:
            self.state.share_all()
        if decision.forward:
            moving.bring_forward(pool)
        if self._compares:
            plan, failure = ask(pool, pool.policy, added=pool.added)
            raised = "" if failure is None else type(failure).__name__
            today = Decision(
                *(tuple(plan.allocations), tuple(promised(pool, plan).items()), plan.wake, raised, decision.forward),
                pool=decision.pool,
                lends=tuple(plan.lends),
                deals=tuple(plan.deals),
                planned=planned_by(plan),
                switches=tuple(plan.switches),
                rents=tuple(plan.rents),
                returns=tuple(plan.returns),
            )
            self.today = today if self.today is None else replace(self.today, then=(*self.today.then, today))
        self.failure = None
        if decision.raised:
            self.refusals[f"policy_raised_{decision.raised}"] += 1
        else:
            pool.arrived = []
            if decision.lends or decision.deals:
                dealing.carry_out(self.state, decision.lends, decision.deals, self._make_pool, self.refusals)
                self.state.share_all()
            carry_out_again(pool, decision, self.refusals)
            switching.carry_out(self.state, decision.switches, self.refusals)
            renting.carry_out(self.state, decision.rents, decision.returns, self.refusals)
        self._note(decision if not decision.then else replace(decision, then=()))
        self._end_round(pool, decision.wake)

    def _end_round(self, pool: Pool, wake: Instant | None) -> None:
        self.rounds += 1
        pool.round_due = pool.measured = False
        self._set_next_round(pool, wake)

    def _set_next_round(self, pool: Pool, wake: Instant | None) -> None:
        state, before = self.state, pool.round_at
        pool.round_at = NEVER if wake is None else max(wake, state.now + 1)
        if self.period is not None and pool.jobs:
            pool.round_at = min(pool.round_at, state.now + self.period)
        if not state.others or pool.round_at < self._round_at:
            self._round_at = pool.round_at
        elif before == self._round_at < pool.round_at:
            self._round_at = min([one.round_at for one in state.each()])

    # A decider instead of the policy

    def _decide_at(self, url: str) -> None:
        self.decider, self.decider_failed, self.question = url, False, None
        self._look_what_is_plain()
        self._look_everywhere()

    def _consult(self, decision: Decision) -> None:
        self._questions += 1
        self.question = self._questions
        self.decided = decision
        pools, about = self.state.each(), decision.about or ("",)
        for pool in pools:
            pool.consulted = pool.name in about
            if pool.consulted:
                pool.round_due, pool.round_at = False, NEVER
        self._forget_held()
        self._round_at = min([pool.round_at for pool in pools])
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
        due = [pool for pool in state.each() if pool.round_due]  # something has happened since the question
        if plan.lends or plan.deals:
            self._deal(state, plan.lends, plan.deals)
        dealt_to = {*(lend.pool for lend in plan.lends), *(deal.pool for deal in plan.deals)}
        for pool in state.each():
            # What follows from the plan itself needs no new question, if nothing has happened where that came from.
            is_dealt_to = pool.name in dealt_to
            news = pool in due or (is_dealt_to and state in due)
            if pool.consulted or is_dealt_to:
                pool.arrived = None if news else []
                carry_out(pool, self._part_of(plan, pool) if state.others else plan, self.refusals)
                if not news:
                    pool.round_due = pool.measured = False
                elif not pool.round_due:
                    pool.need_round()
                self._set_next_round(pool, plan.wake)
        switching.carry_out(state, plan.switches, self.refusals)
        renting.carry_out(state, plan.rents, plan.returns, self.refusals)
        self.failure = None
        self._forget_held()
        return True

    def _obeys(self, event: Event) -> bool:
        """Whether an event was an answer that took the place of a round."""
        return isinstance(event, Advised) and not self.decider_failed

    def _look_what_is_plain(self) -> None:
        """Note whether rounds are only those of policies."""
        self._plain = not (self.decider or self.state.switches or self.state.rents)

    def _part_of(self, plan: Plan, pool: Pool) -> Plan:
        """What a plan wants of one pool. What it wants of jobs that nobody knows is of the first one."""
        jobs, part = self.state.jobs, Plan()
        for wanted in plan.allocations:
            if (jobs[wanted.job].pool if wanted.job in jobs else self.state) is pool:
                part.allocations.append(wanted)
        for kept in plan.promises:
            if kept.job in jobs and jobs[kept.job].pool is pool:
                part.promises.append(kept)
        return part

    def _look_if(self, changed: bool) -> bool:
        """What is rented has changed, or not: all pools look at everything, because plans may depend on it."""
        if changed:
            self._look_everywhere()
        return changed

    def _do_without(self, event: Advised | DeciderFailed) -> bool:
        if event.question != self.question:
            return False
        self.question, self.decider_failed = None, True
        self._look_everywhere()
        return True

    def _welcome_back(self) -> bool:
        if not self.decider_failed:
            return False
        self.decider_failed = False
        self._look_everywhere()
        return True

    def _look_everywhere(self) -> None:
        self.state.measured = bool(self.state.others)
        for pool in self.state.each():
            pool.look_at_everything()

    @property
    def wake_at(self) -> Instant:
        """When it wants a `Woke`, as its `Wake` said last; never if no such event is outstanding."""
        return self._wake_at

    def _ask_to_wake(self, at: Instant) -> None:
        if at < self._wake_at:
            self._wake_at = at
            self.state.actions.append(Wake(at))


class _Absent:
    """In the place of a policy that cannot be found."""

    per_instant = False
    task_rounds = False

    def __init__(self, why: Exception) -> None:
        self.why = why

    def __call__(self, view: Snapshot) -> Plan:
        raise self.why
