"""The live driver: sole owner of the clock. It feeds the core, makes durable what happened, then acts.

What arrives (reports of the engine, requests, submissions) is collected and handled in one turn of the driver:

1. each becomes an event of this instant and is handled by the core, `Woke` last if it is due;
2. the events and everything that follows from them (results, messages, ended jobs) are made durable in one transaction;
3. only then the actions are performed, ends acknowledged, requests answered and waiting callers told.

The event loop does nothing else during a turn. Only a large submission has a turn of its own, and this is in parts:
between them others read what they ask for, and what they want changed waits for the next turn. While many slots are
busy, rounds have turns of their own too.

If the disk is full, reports are kept and the transaction is tried again; requests are refused, and the core is loaded
again from the journal, as if they had never been made. So the journal and the core never disagree.

No request, report or caller, and no failure beside the turn, ends the driver: the cause is set apart (`arrivals`),
tried again (`performing`) or reported and left (`troubles`). The driver stops only if going on would break a promise,
and says which (`CannotGoOn`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from headway import wire
from headway.core.cancelling import open_tasks
from headway.core.lifecycle import RULES
from headway.core.scheduler import Scheduler
from headway.engines import base
from headway.errors import CannotGoOn, HeadwayError, NameTaken, Unavailable, in_short
from headway.live import consultant
from headway.live.arrivals import Came, Thing, TurnMaker
from headway.live.bounds import bounded
from headway.live.clock import CLOCK_STEP_LEAST, Alarm, Clock, Step
from headway.live.collecting import Collecting
from headway.live.forecasts import Forecasts
from headway.live.from_engine import FromEngine
from headway.live.full_disks import FullDisks
from headway.live.intake import CheckedSubmission
from headway.live.leases import CANCELLED_AT_ONCE, Leases
from headway.live.ledger import Ledger, OpenJob
from headway.live.listeners import Caller, Listener, Listeners, MessagesWanted
from headway.live.nodes import Nodes, changes_since
from headway.live.outside import OtherProcesses, Surroundings
from headway.live.parts import WorkInParts
from headway.live.performing import Performer, left_undone
from headway.live.renting import Renter
from headway.live.retention import Retention
from headway.live.room import Room
from headway.live.services import LiveServices
from headway.live.settings import DriverSettings
from headway.live.snapshots import Snapshots
from headway.live.store.journal import Batch, Journal, JournalBusy, NotNow
from headway.live.store.messages import Page
from headway.live.submissions import Allow, Submissions, allow_all
from headway.live.switches import Switches
from headway.live.tally import Tally
from headway.live.troubles import Troubles, raised_by, said
from headway.live.turn import Turn, TurnRequest, answer, refuse
from headway.live.work import LaunchTerms
from headway.model.actions import JobStatus, RentMachine, ReturnMachine, SwitchOff, SwitchOn
from headway.model.events import (
    Event,
    Incident,
    JobCancelled,
    JobChanged,
    NetworkChosen,
    NodeDown,
    RentingChosen,
    RulesChosen,
    SitesChosen,
    SwitchingChosen,
    TaskEnded,
    TasksCancelled,
)
from headway.model.instant import NEVER, SECOND, Duration, Instant, to_seconds
from headway.model.job import JobId, Workflow
from headway.model.network import Network
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.plan import Waiting
from headway.model.policy import PolicySource
from headway.model.power import Switching
from headway.model.renting import Renting
from headway.model.seen import AttemptView
from headway.model.site import SiteTerms, check_sites
from headway.model.slots import count, numbers

log = logging.getLogger(__name__)

RETRY_AFTER: Final[Duration] = SECOND
"""How long to wait before a full disk is tried again."""

BUSY_AGAIN: Final[Duration] = SECOND // 50
"""How long to wait before a journal that another program has locked is tried again."""

BUSY_MAX: Final[Duration] = 2 * SECOND
"""How long to wait for a lock before requests are refused."""

MANY_BUSY: Final = 1000
"""While so many slots are busy, a round has a turn of its own: some policies look at each of them."""

CLUSTER_FACT: Final = "cluster"
"""Under this name the journal has what the tokens of this cluster's machines begin with."""

NO_FACTS: Final[Mapping[str, str]] = {}

STOPPED_FACT: Final = "stopped"
"""The name under which the journal has the instant of the last orderly stop."""

FIRST_POLICY: Final = "tempo:strict=false"
"""The default policy: of all that we have it misses the fewest due dates, at the least penalty."""


class Driver:
    """Performs what the core asks for, and feeds it the outcome.

    Args:
        journal: where everything is made durable.
        engine: runs the attempts.
        clock: the only source of time.
        policies: finds a policy by its text.
        settings, processes, surroundings: see there.

    Attributes:
        forecasts: what is expected of the open jobs.
        nodes: takes nodes into service and out of it.
        broken: fails with what broke the driver, should anything; then nothing is done any more.
        full: why the journal took no more when that was last tried; None while it takes all.
        commits: transactions since the start.
        started: when this driver was made.
        retention: what is kept for callers, and until when.
        room: what there is room for on the disk.
        services: the services and their requests.
        sites: what the engine is made of.
        troubles: receives failures that end nothing.
    """

    def __init__(
        self,
        journal: Journal,
        engine: base.Engine,
        clock: Clock,
        policies: PolicySource,
        settings: DriverSettings = DriverSettings(),  # noqa: B008  # frozen
        *,
        processes: OtherProcesses = OtherProcesses(),  # noqa: B008  # frozen
        surroundings: Surroundings = Surroundings(),  # noqa: B008  # frozen
    ) -> None:
        self.journal = journal
        self.sites = surroundings.sites
        self.full: NotNow | None = None
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.commits = 0
        self.started: Instant = clock.now()
        self._ledger = Ledger(
            journal,
            policies,
            settings.policy or FIRST_POLICY,
            settings.snapshot_every,
            settings.keep.events,
            self._size_of,
            settings.estimates,
        )
        self._collecting = Collecting()
        self._engine = engine
        self.nodes = Nodes(self, engine, self.sites, settings.read_ahead)
        self._clock = clock
        self._policies = policies
        period = None if settings.period is None else to_seconds(settings.period)
        self._choice = wire.PolicyChoice(settings.policy or "", settings.decider, period)
        consultant.check_choice(self._choice, policies)
        self._consultant = consultant.Consultant(
            lambda: self.core,
            clock,
            self.request,
            self.incident,
            answer_time=settings.answer_time,
            asking=processes.asking,
        )
        self.room = Room(
            journal.folder,
            settings.bounds,
            journal,
            self.incident,
            clock,
            lambda: bool(self.open),
            journal.disk.free_on,
        )
        self.retention = Retention(self, journal, engine, clock, settings.keep, self.room)
        self.forecasts = Forecasts(
            lambda: self.core,
            lambda: self.recorded,
            self.now,
            processes.forecast,
            processes.advise,
            processes.hurry_forecast,
        )
        self._listeners = Listeners(self._gains_by_waiting)
        self._leases = Leases(
            self, lambda: self._ledger.leased, self._listeners.waits, journal.clients.name, clock, settings.call_lease
        )
        self.services: LiveServices
        self._submissions = Submissions(
            self._ledger,
            journal,
            self.room,
            check_open=self._check_open,
            check_services=lambda: self.services.check(),
            heard=self._leases.heard,
            now=self.now,
            ask_for_turn=self._ask_for_turn,
        )
        self._alarm = Alarm(clock, self._ask_for_turn)
        self._serving = False
        self._stopping = False
        self._turn_due = False
        self._reports: list[base.Report] = []
        self._requests: list[TurnRequest] = []
        self._choosing = asyncio.Lock()
        self._steps: list[Step] = []
        self._unwatch: Callable[[], object] = lambda: None
        self._came = Came()
        self._under_way: WorkInParts[None] | None = None
        self._wakes_next = False
        self._pending: Turn | None = None
        self._unfollowed: list[Turn] = []
        self._singly: list[Thing] = []
        self._stuck_since: Instant | None = None
        disks = FullDisks(self._ledger, surroundings.sites.disk_of, self._report, clock.call_at)
        self._from_engine = FromEngine(self._ledger, self.room.keeps, self.nodes.serve, disks)
        self._measured: dict[str, dict[str, float]] = {}
        self.troubles = Troubles(self.incident, clock)
        self._snapshots = Snapshots(self._ledger, str(journal.folder), self.troubles, clock, processes.restate)
        self._arrivals = TurnMaker(self._ledger, self._from_engine, self.troubles, lambda: self._listeners.told)
        self.services = LiveServices(self, self._ledger, journal, clock, surroundings.door, surroundings.account_of)
        self._switches = Switches(self, engine)
        self._cluster = journal.fact(CLUSTER_FACT) or secrets.token_hex(6)
        self._renter = Renter(
            self,
            engine,
            surroundings.providers(self._cluster),
            self._cluster,
            finds=self.sites.finds,
            served=self.nodes.serve,
            read_ahead=settings.read_ahead,
        )
        self._performer = Performer(
            self._ledger,
            journal,
            engine,
            self._from_engine,
            self._report,
            self.troubles,
            clock,
            self._switches,
            self._renter,
            LaunchTerms(self.services.terms, settings.result_max, surroundings.account_of),
        )

    @property
    def core(self) -> Scheduler:
        """The scheduler: to be read, never to be fed."""
        return self._ledger.core

    @property
    def open(self) -> Mapping[JobId, OpenJob]:
        """What is kept about each open job, by id."""
        return self._ledger.open

    @property
    def accepts(self) -> bool:
        """Whether anything new is accepted."""
        return self.full is None and not self.room.short and not self.room.held

    @property
    def recorded(self) -> int:
        """The number of the last event."""
        return self._ledger.event

    @property
    def tally(self) -> Tally:
        """What has happened since the start."""
        return self._ledger.tally

    # Start and end

    async def start(
        self,
        nodes: Iterable[NodeSpec] | None = None,
        *,
        first: Iterable[NodeSpec] = (),
        network: Network | None = None,
        switching: Sequence[Switching] | None = None,
        renting: Renting | None = None,
        bounds: Mapping[str, int] | None = None,
        sites: Sequence[SiteTerms] | None = None,
        facts: Mapping[str, str] = NO_FACTS,
    ) -> None:
        """Load the journal, take nodes into service, and take on or redo what ran before.

        Args:
            nodes: exactly these are in service from now on, besides those that the engine finds; None: those that
                were before.
            first: where `nodes` is None and none was in service before.
            network: the lines between the nodes from now on; None: those that were before.
            switching: how nodes are switched off and on from now on; None: as before.
            renting: what can be rented from now on; None: as before.
            bounds: by user, how many slots the tasks of this user may have at once from now on; None: as before.
            sites: what is known of sites from now on, the preferred one first; None: as before.
            facts: become durable with all that, for the next start (`Journal.fact`).

        Raises:
            HeadwayError: the journal or an engine's node cannot be used, or a policy is not installed.
        """
        last_seen = self.journal.away.last_seen()
        self._ledger.load(self._clock.now())
        self._listeners.told = self._ledger.message
        ahead = self._clock.go_on_from(self.core.state.now)
        if ahead >= CLOCK_STEP_LEAST:
            said = f"it is {to_seconds(ahead):.1f} s behind the last instant of the journal: time goes on from there"
            self._steps.append(Step(0, said))
        if last_seen is not None:
            self.journal.away.note(last_seen, self._clock.now())
        was_clean = self.journal.mark_clean(False)
        state = self.core.state
        named = None if nodes is None and state.nodes else tuple(first if nodes is None else nodes)
        known = tuple(view.spec for view in state.nodes.values())
        served = self._to_serve(named)
        dark = self._dark_of(served)
        found = await self._started(served, dark)
        running = {
            (attempt.job.id, attempt.task, attempt.number): tuple(
                {state.slot_nodes[slot].spec.name for slot in numbers(attempt.slots)}
            )
            for attempt in state.attempts()
        }
        self._from_engine.begin(found.absent, found.closed)
        self._from_engine.where |= {key: places for key, places in running.items() if key in found.running}
        came, feed = Came(list(found.ended), steps=self._steps, wakes=False), self._ledger.feed
        turn = WorkInParts(self._arrivals.take(came, self.now)).whole()
        state = self.core.state  # it may have been loaded again
        if state.rules < RULES:
            feed(turn, RulesChosen(turn.now, RULES))
        for new in () if bounds is None else bounded(state.rations, bounds, turn.now):
            feed(turn, new)  # first, so that what is redone is within the bounds
        # What an orderly stop killed or a crash lost is redone. After a crash of everything, the cause is not
        # known.
        outcome = Outcome.KILLED if was_clean else Outcome.LOST
        specs = {node.name: node for node in known}
        for name in sorted(specs.keys() & found.absent):  # first, so that nothing that is redone starts there
            if name in state.nodes and state.nodes[name].up:
                feed(turn, NodeDown(turn.now, name, excused=True))
        stopped = self.journal.noted(STOPPED_FACT) if was_clean else None
        if stopped is not None and not (found.running or found.ended):  # the nodes were down for as long as the server
            for name in [name for name, view in state.nodes.items() if view.up and name not in dark]:
                feed(turn, NodeDown(min(stopped, turn.now), name, excused=True))
        else:
            for key in running.keys() - found.running - {ended.key for ended in found.ended}:
                adopts = all(specs[name].capabilities.adopts for name in running[key])
                feed(turn, TaskEnded(turn.now, *key, outcome if adopts else Outcome.KILLED))
        served = self._to_serve(named)  # what ends may have been the last on a node that drains
        for event in changes_since(state.nodes, served, turn.now, found.absent, found.closed):
            feed(turn, event)
        if network is not None and network != self.core.state.routes.network:
            feed(turn, NetworkChosen(turn.now, network))
        if switching is not None and tuple(switching) != tuple(self.core.state.switching.values()):
            feed(turn, SwitchingChosen(turn.now, tuple(switching)))
        if renting is not None and renting != self.core.state.market.renting:
            feed(turn, RentingChosen(turn.now, renting))
        if sites is not None and tuple(sites) != tuple(self.core.state.sites.values()):
            feed(turn, SitesChosen(turn.now, tuple(sites)))
        for chosen in consultant.chosen(self._choice, turn.now):
            if consultant.is_new(chosen, self.core):
                feed(turn, chosen)
        if self.core.absent is not None:
            why, _, _ = str(self.core.absent).partition("\n")  # without its hint, which is another line
            absent = f"{in_short(why)}; nothing new starts until another policy is chosen"
            feed(turn, Incident(turn.now, "policy_absent", self.core.policy, absent))
            log.error("%s", absent)
        self._ledger.wake(turn, always=True)
        attempts = {(one.job.id, one.task, one.number): one for one in state.attempts()}
        turn.actions[:0] = left_undone(found, attempts)
        turn.batch.facts += {**facts, CLUSTER_FACT: self._cluster}.items()
        self.journal.write(turn.batch)
        for job in found.saved - self.open.keys():
            self._engine.forget(job)
        asked_now = {action.node for action in turn.actions if isinstance(action, SwitchOff | SwitchOn)}
        rented_now = {action.rental for action in turn.actions if isinstance(action, RentMachine | ReturnMachine)}
        self._perform(turn)
        self._follow()
        self._switches.go_on(asked_now)
        self._renter.go_on(rented_now)
        self.journal.hurry()
        self._steps = []
        self._unwatch = self._clock.watch(self._stepped)
        self._serving = True
        self.retention.start()
        self._ask_for_turn()

    def _to_serve(self, named: tuple[NodeSpec, ...] | None) -> tuple[NodeSpec, ...]:
        """The nodes that are to be in service: those that are named, else all; in any case the found and rented ones.

        Those of sites that there are no longer are not. What an earlier version did not say of a node, it says from now
        on, unless it drains or is off, which it would forget.
        """
        state = self.core.state
        known = [view for view in state.nodes.values() if self.sites.keeps(view.spec)]
        as_before = {view.spec.name for view in known if view.draining} | state.dark.keys()
        kept = [view.spec if view.spec.name in as_before else self.sites.as_run(view.spec) for view in known]
        if named is None:
            return tuple(kept)
        names = {node.name for node in named}
        rented = state.market.nodes
        others = (node for node in kept if node.name not in names and (node.found or node.name in rented))
        return (*named, *others)

    def _dark_of(self, nodes: Iterable[NodeSpec]) -> set[str]:
        """Those of these nodes that are off, or going off or coming on: the engine does not start them."""
        dark = self.core.state.dark
        return {
            node.name
            for node in nodes
            if node.name in dark
            and not dark[node.name].waits_to_go_off
            and replace(node, slots=dark[node.name].spec.slots) == dark[node.name].spec
        }

    async def _started(self, nodes: tuple[NodeSpec, ...], dark: set[str]) -> base.Found:
        """Start the engine. If a node's name is taken, this is recorded before the start fails."""
        lit = tuple(node for node in nodes if node.name not in dark)
        try:
            found = await self._engine.start(lit, self._report, self.retention.uploads)
        except NameTaken as taken:
            turn = Turn(self.now())
            self._ledger.feed(turn, Incident(turn.now, "name_taken", taken.name, str(taken.args[0])))
            self.journal.write(turn.batch)
            raise
        self.nodes.serve(nodes)
        return found

    def take_no_more(self) -> None:
        """From now on every request is refused; callers that wait for messages are answered."""
        self._stopping = True
        self._listeners.release()
        self.services.refuse()

    async def stop(self) -> None:
        """Stop in order: accept no more, end running tasks (they are redone at the next start), store a snapshot."""
        self.take_no_more()
        self.retention.stop()
        self.room.stop()
        self._leases.stop()
        try:
            if self._under_way is not None:
                self._run_whole_turn()
            for _ in range(3):  # a round that is due by itself, a large submission, and everything else
                if self._pending is None:
                    self._run_whole_turn()
            self._follow()
        finally:
            self._unfollowed.clear()
            is_whole = self._serving and self._pending is None and not self._singly and not self.broken.done()
            self._serving = False
            self._alarm.stop()
            self._performer.stop()
            self._snapshots.stop()
            self._unwatch()
            self._consultant.put_down()
            self.forecasts.stop()
            await self._switches.close()
            await self._renter.close()
            await self.services.close()
            await self.nodes.settle()
            await self._engine.stop()
        self._refuse_all(Unavailable("the server has ended"))
        if is_whole:
            self._ledger.store_snapshot()
            try:
                self.journal.note(STOPPED_FACT, self._clock.now())
                self.journal.mark_clean(True)
            except NotNow as reason:
                log.warning("the next start takes this end for a crash: %s", reason)

    # What arrives

    def _report(self, report: base.Report) -> None:
        self._reports.append(self.services.judged(report))
        self._ask_for_turn()

    def incident(self, kind: str, subject: str, detail: str, by: str = "") -> None:
        """Log what an operator should know and record it as an `Incident`; a full disk only delays that.

        Args:
            by: the caller who asked for what led to it.
        """
        self._report(base.Noticed(kind, subject, detail, by))

    def measure(self, node: str, values: Mapping[str, float]) -> None:
        """Record what was measured on a node. While there are jobs, the core learns it before the next event.

        So policies see it whenever they run, and the journal does not grow while nothing happens.
        """
        self._measured.setdefault(node, {}).update(values)

    async def request(
        self,
        events: Callable[[Instant], Sequence[Event]],
        acknowledged: Sequence[tuple[JobId, int, int]] = (),
        *,
        by: str = "",
    ) -> int:
        """Make events durable at the instant at which they are handled; returns how many of them counted.

        Args:
            by: the caller who asks for them: each event says so; empty: the server itself wants them.

        Raises:
            NotNow: nothing was recorded; the journal cannot be written now.
            Unavailable: the server is about to stop.
        """
        self._check_open()
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._requests.append(TurnRequest(events, acknowledged, answer, by))
        self._ask_for_turn()
        return await answer

    def feed(self, events: Callable[[Instant], Sequence[Event]]) -> None:
        """Make events durable for which nobody waits. If that is not possible now, they are forgotten."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(asyncio.Future.exception)  # read here: asyncio logs one that nobody reads
        self._requests.append(TurnRequest(events, (), answer))
        self._ask_for_turn()

    def kill(self, job: JobId, task: int, attempt: int) -> None:
        """Let the engine end an attempt that the core does not want to end."""
        self._performer.kill((job, task, attempt))

    async def cancel(self, jobs: Iterable[JobId], *, by: str = "") -> int:
        """Cancel jobs; returns how many of them were open. Of many, part by part: others need not wait for all.

        Raises:
            NotNow, Unavailable: those that were not reached go on.
        """
        jobs, counted = tuple(jobs), 0
        for first in range(0, len(jobs), CANCELLED_AT_ONCE):
            some = jobs[first : first + CANCELLED_AT_ONCE]
            counted += await self.request(partial(_cancelled, some), by=by)
        return counted

    async def cancel_tasks(self, job: JobId, tasks: tuple[int, ...], *, by: str = "") -> int:
        """Cancel tasks of a job; returns how many of them had not ended."""
        counted: list[int] = []

        def events(now: Instant) -> list[Event]:
            view = self.core.state.jobs.get(job)
            counted[:] = [] if view is None else open_tasks(view, tasks)
            return [TasksCancelled(now, job, tuple(counted))] if counted else []

        await self.request(events, by=by)
        return len(counted)

    async def change(self, job: JobId, change: wire.JobChange, *, by: str = "") -> int:
        """Give a job new terms; 0 if it has ended.

        Raises:
            InvalidInput: the due date is none that the core can count, or is given and taken back.
        """
        terms = change.terms()
        return await self.request(lambda now: [JobChanged(now, job, **terms)], by=by)

    async def choose(
        self, policy: str = "", *, decider: str | None = None, period: Duration | None = None, by: str = ""
    ) -> None:
        """Choose policy, decider or period from now on, see `wire.PolicyChoice`.

        Raises:
            InvalidInput: no such policy, or not with these parameters; it names a site that is not there; the URL is no
                URL.
        """
        choice = wire.PolicyChoice(policy, decider, None if period is None else to_seconds(period))
        consultant.check_choice(choice, self._policies)
        if policy:
            state = self.core.state
            check_sites(self._policies(policy), [*state.sites, *(node.spec.site for node in state.nodes.values())])
        async with self._choosing:
            if policy:
                await self._prepare(policy)
            await self.request(lambda now: consultant.chosen(choice, now), by=by)

    async def bound(self, bounds: Mapping[str, int]) -> None:
        """From now on exactly these users have bounds on their slots."""
        if bounded(self.core.state.rations, bounds, self.now()):
            await self.request(lambda now: bounded(self.core.state.rations, bounds, now))

    async def _prepare(self, policy: str) -> None:
        """Have the jobs sorted for a policy, part by part: others need not wait for all of it."""
        core = self.core
        for _ in core.prepare(policy):
            await asyncio.sleep(0)
            if core is not self.core:
                return  # it was loaded again

    async def explain(self, job: JobId) -> tuple[Waiting, str, str]:
        """Why a job of the core waits; who says so; and why that is not the decider, if it should be.

        Raises:
            KeyError: it is not in the core, or no longer.
        """
        return await self._consultant.explain(job)

    def stalled(self, attempt: AttemptView) -> str:
        """What an attempt waits for on the disk of its node; empty: nothing."""
        return self._from_engine.stalled(attempt.job.id, attempt.task, attempt.number)

    def pending(self, attempt: AttemptView) -> str:
        """Why an attempt waits in the queue of its engine's system; empty: it does not, or that is not known."""
        return self._from_engine.pending(attempt.job.id, attempt.task, attempt.number)

    @property
    def outputs(self) -> base.Outputs:
        """What attempts wrote."""
        return self._engine

    async def submit(self, caller: str, submission: wire.Submission, allow: Allow = allow_all) -> wire.Submitted:
        """Accept jobs, all or none; when this returns they are durable.

        Args:
            caller: the owner of the token, for whom idempotency keys count.
            allow: is called with the jobs at the last moment, and raises if the caller may not have them.

        Raises:
            InvalidInput, HeadwayError: a job cannot be accepted; the message says which and why.
            Conflict: the key was used for another submission.
            MissingBlobs: named functions are not here.
            NoRoom: the disk has no more than its reserve.
            NoSuchJob: a job comes after one that is not known.
            NotNow, Unavailable: not now.
        """
        return await self._submissions.submit(caller, submission, allow)

    def hand_in(
        self, caller: str, submission: wire.Submission, allow: Allow = allow_all
    ) -> asyncio.Future[wire.Submitted]:
        """The same without a task, where the submission is short; what is wrong with it may be raised at once."""
        return self._submissions.hand_in(caller, submission, allow)

    def services_named(self, name: str) -> tuple[JobId, ...]:
        """The open services of this name that are not cancelled."""
        return self._ledger.services.get(name, ())

    @property
    def last_job(self) -> JobId:
        """The highest number that a job was given."""
        return self._ledger.job

    def end_of(self, job: JobId) -> JobStatus | None:
        """How a job has ended; None: it has not.

        Raises:
            NoSuchJob: no job with this id was accepted.
        """
        return self._ledger.end_of(job)

    def held_by(self, user: str) -> tuple[int, int, int, int]:
        """How many open jobs a user has, and how many tasks these have, with what is about to be accepted; how many
        bytes of output are kept with results of the user's jobs; and how many slots the user has, if there is a bound.
        """
        ledger = self._ledger
        soon = [spec for checked in self._accepting for spec in checked.specs if spec.user == user]
        new = [spec.tasks for spec in soon if spec.id not in ledger.open]
        kept = self.journal.retained.stored_of[user]
        ration = self.core.state.rations.get(user)
        slots = 0 if ration is None else ration.used
        return ledger.jobs_of[user] + len(new), ledger.tasks_of[user] + sum(new), kept, slots

    def _check_open(self) -> None:
        if self.broken.done():
            raise Unavailable("the server is broken", "See its log; start it again.")
        if self._stopping:
            raise Unavailable("the server is about to end", "Start it again with `headway up`.")
        if self.full is not None:
            raise self.full

    # The turn

    def now(self) -> Instant:
        """The instant that an event would be of."""
        return max(self._clock.now(), self.core.state.now)

    def _ask_for_turn(self) -> None:
        if self._serving and not self._turn_due and self._pending is None and self._under_way is None:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._run_turn)

    def _run_turn(self) -> None:
        self._turn_due = False
        if not self._serving or self.broken.done():
            return
        if error := raised_by(self._go_on):
            self._break(error)

    def _run_whole_turn(self) -> None:
        self._run_turn()
        while self._under_way is not None and self._serving and not self.broken.done():
            self._run_turn()

    def _go_on(self) -> None:
        """Do a turn, or its next part."""
        self._follow()
        if self._under_way is None:
            self._under_way = WorkInParts(self._turn())
        if not self._under_way.step():
            asyncio.get_running_loop().call_soon(self._run_turn)
            return
        self._under_way = None
        if self._reports or self._requests or self._submissions or self._singly or self._steps or self._wakes_next:
            self._ask_for_turn()

    def _break(self, error: Exception) -> None:
        """Stop here: the journal is right, but this process may not be. A start continues from the journal."""
        if not isinstance(error, CannotGoOn):
            why = f"{said(error)}, which was not foreseen"
            unforeseen, error = error, CannotGoOn("what is done follows from what is recorded", why)
            error.__cause__ = unforeseen
        log.critical("the driver stops: %s", error.args[0], exc_info=error)
        self.broken.set_exception(error)
        self._refuse_all(Unavailable("the server broke", "Ask again when it has been started again."))
        self._listeners.release()
        self.services.refuse()

    def _turn(self) -> Generator[None, None, None]:
        if self._pending is None:
            self._came = self._take_what_came()
            self._pending = yield from self._arrivals.take(self._came, self.now)
        turn = self._pending
        error = (yield from self._write(turn.batch)) if turn.batch else None
        if error is not None:
            # One of the things that came cannot be written, or the journal cannot be written any more, or
            # not now.
            if isinstance(error, NotNow):
                self._put_off(error)
            else:
                self._take_singly(error)
            return
        if self.full is not None:
            log.info("the journal takes more again")
        self._pending = self.full = self._stuck_since = None
        self._arrivals.durable(self._came)
        self._perform(turn)
        self._came = Came()
        self.troubles.contain("snapshot", self._snapshots.follow, "the next state is stored later")

    def _write(self, batch: Batch) -> Generator[None, None, Exception | None]:
        """Make a batch durable, in parts if it is of a large submission; returns why it could not be."""
        if not any(checked.is_large for checked in self._came.submissions):
            return raised_by(partial(self.journal.write, batch))
        writing = self.journal.writing(batch)
        while (error := raised_by(writing.step)) is None and not writing.is_done:
            yield
        return error

    def _take_what_came(self) -> Came:
        """Everything together, but a large submission by itself, and a round that may be long.

        While something that came cannot be written, one thing after the other.
        """
        if self._singly:
            return Came.of(self._singly.pop(0))
        many_busy = count(self.core.state.totals().busy) >= MANY_BUSY
        if many_busy and self._wakes_next:
            self._wakes_next = False
            return Came()
        large = self._submissions.take_large(bool(self._reports or self._requests or self._steps))
        if large is not None:
            # Its rounds are held in the next turn: what they decide is of that instant, and durable at once.
            came, self._measured = Came(submissions=[large], measured=self._measured, wakes=False), {}
            self._wakes_next = True
            return came
        came = Came(self._reports, self._requests, self._submissions.take_small(), self._measured, self._steps)
        self._wakes_next = many_busy and bool(came)
        came.wakes = not self._wakes_next
        self._reports, self._requests, self._measured, self._steps = [], [], {}, []
        return came

    def _put_off(self, reason: NotNow) -> None:
        """The journal cannot be written now: try again. Callers wait for another program's lock, but not for ever."""
        now, again = self._clock.now(), BUSY_AGAIN if isinstance(reason, JournalBusy) else RETRY_AFTER
        if self._stuck_since is None:
            self._stuck_since = now
        if not isinstance(reason, JournalBusy) or now - self._stuck_since >= BUSY_MAX:
            if self.full is None:
                log.error("%s", reason)
            self.full = reason
            was_asked = bool(self._came.asked)
            self._refuse_all(reason)
            if was_asked:
                self._take_again()
        self._clock.call_at(now + again, self._run_turn)

    def _refuse_all(self, error: HeadwayError) -> None:
        """Refuse all requests that wait for an answer."""
        queued = [each for each in self._singly if isinstance(each, TurnRequest | CheckedSubmission)]
        refuse((*self._came.asked, *queued, *self._requests), error)
        self._submissions.refuse_all(error)
        self._singly = [each for each in self._singly if not isinstance(each, TurnRequest | CheckedSubmission)]
        self._came.requests, self._came.submissions, self._requests = [], [], []

    def _take_singly(self, error: Exception) -> None:
        """Something that came cannot be written: handle one thing after the other, to find it and set it apart.

        Raises:
            CannotGoOn: nothing can be written, or a promise would be broken without what cannot.
        """
        broken = raised_by(partial(self.journal.note, "probe", self.recorded))
        if isinstance(broken, NotNow):
            self._put_off(broken)
            return
        if broken is not None:
            raise CannotGoOn("what happens is recorded", f"the journal cannot be written: {said(broken)}") from error
        things = self._came.things()
        if len(things) > 1:
            log.error("one of %d things cannot be written, they are taken one by one", len(things), exc_info=error)
            self._singly[:0] = things
            self._came = Came(wakes=False)
        else:
            self._arrivals.set_apart(self._came, things[0] if things else None, error)
        self._take_again()
        asyncio.get_running_loop().call_soon(self._run_turn)

    def _take_again(self) -> None:
        """Load the core again from the journal, and let it handle the rest of what came."""
        self._arrivals.reload()
        self._pending = WorkInParts(self._arrivals.take(self._came, self.now)).whole()

    def _perform(self, turn: Turn) -> None:
        """What follows a durable turn."""
        self.commits += bool(turn.batch)
        self._performer.perform(turn)
        contain = self.troubles.contain
        for waiting, submitted in turn.submitted:
            answer(waiting, submitted)
        for asked, taken in turn.answers:
            answer(asked, taken)
        tell, ask_again = partial(self._listeners.tell, turn.batch.messages), "callers who wait ask again"
        if contain("messages to callers", tell, ask_again) is not None:
            self._listeners.start_over()
        if turn.batch.acknowledged:
            contain("retention", self.retention.acknowledged, "it looks again later")
        self._unfollowed.append(turn)
        asyncio.get_running_loop().call_soon(self._follow_soon)

    def _follow_soon(self) -> None:
        """As `_follow`, in a step of its own. An error that is not foreseen ends the driver here as in a turn: without
        the alarm that is set at the end, it would stand still.
        """
        if not self.broken.done() and (error := raised_by(self._follow)):
            self._break(error)

    def _follow(self) -> None:
        """What follows a turn and nobody waits for: it comes when launches and answers have been sent."""
        while self._unfollowed:
            self._follow_turn(self._unfollowed.pop(0))

    def _follow_turn(self, turn: Turn) -> None:
        contain = self.troubles.contain
        self._performer.let_go(turn)
        contain("the tally", partial(self._ledger.count, turn), "these events are not counted")
        contain("services", self.services.follow, "they are looked at again after the next change")
        contain("nodes that leave", self.nodes.follow, "they are looked at again after the next turn")
        self._collecting.follow(len(turn.batch.events))
        self._consult()
        contain("leases of calls", self._leases.follow, "they are looked at again after the next turn")
        contain("the look at the disk", self.room.follow, "it is looked at later")
        self._set_alarm()

    def _consult(self) -> None:
        """Let the consultant follow; if it cannot, the policy makes the plans."""
        error = self.troubles.contain("the decider", self._consultant.follow, "the policy decides")
        question = self.core.question
        if error is not None and question is not None:
            url, detail = self.core.decider, said(error)
            self.feed(partial(consultant.failed, url, question, detail))

    def _set_alarm(self) -> None:
        if self._ledger.wake_by < NEVER:
            self._alarm.set(self._ledger.wake_by)
        else:
            self._alarm.off()

    def _stepped(self, step: Step) -> None:
        """The clock was set: timers ring sooner or later than expected."""
        log.warning("%s", step.detail)
        now = self._clock.now()
        self.journal.away.note(now - step.by, now)
        self._alarm.off()
        self._steps.append(step)
        self._ask_for_turn()

    # Messages

    def listen(self, wanted: MessagesWanted, caller: Caller) -> Listener:
        """Have a caller answered: at once, before this returns, or as soon as there are messages for it."""
        client, jobs = wanted.client, wanted.jobs
        keys = [-self.journal.clients.number(client)] if client is not None else list(jobs) or [0]
        if client is not None:
            self._leases.heard(-keys[0])
        if wanted.after >= self._ledger.message:  # it has read everything, so there is nothing to be read
            page = Page(wanted.limit, wanted.size_max)
        else:
            page = self.journal.messages(
                wanted.after,
                wanted.limit,
                client=client,
                jobs=jobs,
                result_max=wanted.result_max,
                size_max=wanted.size_max,
            )
        return self._listeners.add(wanted, keys, page, caller)

    def _gains_by_waiting(self, key: int) -> bool:
        """Whether a caller with messages may get more by waiting a little, at no cost.

        If a slot is idle, waiting costs something: the caller's next job may be what it could run.
        """
        return not self.core.state.totals().free and self._ledger.has_work(key)

    def _size_of(self, upload: str) -> int:
        return self.retention.uploads.size_of(upload)

    def needs(self, name: str) -> bool:
        """Whether an open job, or a submission that is being accepted, needs a function or an upload."""
        return name in self._ledger.needed or any(
            name in checked.functions or name in checked.uploads for checked in self._accepting
        )

    def is_workflow(self, job: JobId) -> bool:
        """Whether a job is an open workflow: its tasks may still get the results of others."""
        kept = self._ledger.open.get(job)
        return kept is not None and isinstance(kept.spec, Workflow)

    @property
    def _accepting(self) -> list[CheckedSubmission]:
        """The submissions that are being accepted."""
        singly = [one for one in self._singly if isinstance(one, CheckedSubmission)]
        return [*self._submissions.waiting, *self._came.submissions, *singly]

    def listens(self, client: int) -> bool:
        """Whether a caller waits for messages of a client, or a submission of it is being accepted."""
        return self._listeners.waits(-client) or any(checked.client == client for checked in self._accepting)

    @property
    def listeners(self) -> int:
        """How many callers wait."""
        return self._listeners.count

    def leave(self, listener: Listener) -> None:
        """Forget a caller that has gone away, or has been answered."""
        self._listeners.leave(listener)
        if listener.wanted.client is not None:
            self._leases.heard(-listener.keys[0])


def _cancelled(jobs: Sequence[JobId], now: Instant) -> list[Event]:
    return [JobCancelled(now, job) for job in jobs]
