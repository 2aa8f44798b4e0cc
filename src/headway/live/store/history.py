"""What a server recorded, as a schedule, for the same measures and pictures as a simulation.

The journal keeps events for a while (`headway up --keep-events`). Fed with them again, the core makes the same plans.
So it need not be recorded which job had which slots when.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from headway.core.lifecycle import ISOLATING
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError
from headway.live.store.decisions import event_of, replay
from headway.live.store.journal import FILE, state_of
from headway.live.store.rows import Rows
from headway.live.store.schema import connect_to_read
from headway.live.store.vouching import GUARDED
from headway.model.actions import Action, ChangeTier, Conclude, Kill, Launch, Suspend
from headway.model.events import JobChanged, JobSubmitted, NodesHeard, TaskEnded, TaskStarted
from headway.model.instant import NEVER, Duration, Instant
from headway.model.job import JobId, JobSpec
from headway.model.outcome import Outcome
from headway.model.schedule import NOT_YET, STATUSES, Schedule, schedule_of
from headway.model.slots import NO_SLOTS, count
from headway.model.snapshot import PolicySource
from headway.model.tier import Tier
from headway.model.workload import workload_us


def history(folder: Path, policies: PolicySource) -> Schedule:
    """What became of every job that a server was given, in order of release; microseconds since the Unix epoch.

    If the first events have been deleted, the schedule has the jobs submitted since then (`known_since`). Slots that
    others had then count as busy.

    The server may run meanwhile: then it is what became of them until now. A job's label is its id, its `runtime` the
    mean run time of the last attempts at its tasks that succeeded. For a job that ran in the background, it is not
    known how long its work takes with its slots to itself (`Schedule.alone`): its slowdown is against the time it took.

    Args:
        folder: the data directory.
        policies: finds a policy by its text.

    Raises:
        HeadwayError: there is no journal, or it has no jobs.
    """
    path = folder / FILE
    with _reading(path) as db:
        seq, body = _first(db, path)
        rows = _rows(db, path, "events", "WHERE seq > ? ORDER BY seq", (seq,))
        told = _History(Scheduler.restore(state_of(body), policies))
        told.read((kind, body) for _, _, kind, body, *_ in rows)
    if not told.specs:
        said = f"{path} has no jobs" + (f" that were submitted after event {seq}, with which it begins" if seq else "")
        raise HeadwayError(said, "`headway up --keep-events none` keeps all events from now on." if seq else "")
    return told.schedule()


def known_since(folder: Path) -> Instant | None:
    """From when on a journal knows what happened; None: from its beginning.

    Raises:
        HeadwayError: there is no journal.
    """
    path = folder / FILE
    with _reading(path) as db:
        seq, body = _first(db, path)
        return state_of(body).now if seq else None


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The file, as it is at this moment."""
    try:
        with closing(connect_to_read(path)) as db:
            db.execute("BEGIN")
            yield db
    except sqlite3.Error as error:
        raise HeadwayError(f"{path} cannot be read: {error}", "Name a data directory of `headway up`.") from error


def _first(db: sqlite3.Connection, path: Path) -> tuple[int, bytes]:
    """The first stored state, and the number of the event after which it was stored."""
    row = next(_rows(db, path, "snapshots", "ORDER BY seq LIMIT 1"), None)
    if row is None:
        raise HeadwayError(f"{path} has no state", "No server has been started on it yet.")
    seq, _, body, *_ = row
    return int(seq), bytes(body)


def _rows(
    db: sqlite3.Connection, path: Path, table: str, which: str, values: tuple[int, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """Rows of a table; compared with their checksums, which formats before 3 do not have."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'chain'").fetchone():
        return Rows(db, path).of(table, which, values)
    return iter(db.execute(f"SELECT {GUARDED[table]} FROM {table} {which}", values))


class _Run:
    """An attempt under way; since when it is in its tier, and for how long it was in the foreground before."""

    def __init__(self, number: int, start: Instant, slots: int, tier: Tier) -> None:
        self.number, self.start, self.slots = number, start, slots
        self.tier, self.since, self.spent = tier, start, 0
        self.has_begun = True

    def come_to(self, tier: Tier, now: Instant) -> None:
        """From now on it is in this tier."""
        self.spent = self.in_foreground(now)
        self.tier, self.since = tier, now

    def in_foreground(self, now: Instant) -> Duration:
        """For how long it was in the foreground."""
        return self.spent + (now - self.since if self.tier is Tier.FOREGROUND else 0)


class _History:
    """Feeds events to a core and records what follows."""

    def __init__(self, core: Scheduler) -> None:
        self.core = core
        self.specs: dict[JobId, JobSpec] = {}
        self.due: dict[JobId, Instant] = {}
        self.priority: dict[JobId, float] = {}
        self.start: dict[JobId, Instant] = {}
        self.end: dict[JobId, Instant] = {}
        self.status: dict[JobId, int] = {}
        self.runs: dict[tuple[JobId, int], _Run] = {}
        self.spent: dict[JobId, tuple[int, int]] = {}
        self.held: dict[JobId, tuple[int, int]] = {}
        self.most: dict[JobId, int] = {}
        self.holdings: tuple[list[int], list[JobId], list[int], list[int]] = ([], [], [], [])
        self.rounds: list[Instant] = []
        self.busy = self.offered = self.lost = self.kills = self.migrations = 0
        self.saving: set[tuple[JobId, int]] = set()
        # Slot time after the last end of a job belongs to no job's story.
        self.told = (0, 0)

    def read(self, rows: Iterator[tuple[str, bytes]]) -> None:
        """Take all events in: the kinds and bodies of their rows."""
        state = self.core.state
        state.touched = []
        for kind, body in rows:
            event = event_of(kind, body)
            before, rounds = state.now, self.core.rounds
            busy, up = count(state.totals().busy), sum(count(node.slots) for node in state.nodes.values() if node.up)
            is_begun = bool(self.specs)
            if isinstance(event, JobSubmitted):
                self._submitted(event.job)
            actions = replay(self.core, event, body)
            if is_begun:
                self.busy += busy * (state.now - before)
                self.offered += up * (state.now - before)
            if not isinstance(event, JobSubmitted | NodesHeard):
                self._swept(event if isinstance(event, TaskEnded) else None)
            if isinstance(event, TaskStarted) and event.job in self.specs:
                self._started(event)
            if isinstance(event, JobChanged) and event.job in state.jobs and event.job in self.specs:
                view = state.jobs[event.job]
                self.due[event.job], self.priority[event.job] = view.due, view.priority
            self._asked(actions)
            self._note_holdings()
            if self.core.rounds != rounds:
                self.rounds.append(state.now)

    def _started(self, event: TaskStarted) -> None:
        """It runs only now. After a restart, starts of running attempts are reported again."""
        run = self.runs.get((event.job, event.task))
        if run is not None and run.number == event.attempt and not run.has_begun:
            now = self.core.state.now
            run.has_begun, run.start, run.since, run.spent = True, now, now, 0
            self.start.setdefault(event.job, now)

    def _submitted(self, spec: JobSpec) -> None:
        self.specs[spec.id] = spec
        self.due[spec.id] = NEVER if spec.due is None else spec.due
        self.priority[spec.id] = spec.priority

    def _swept(self, ended: TaskEnded | None) -> None:
        """Close the attempt that ended, or whatever the core has given up."""
        state = self.core.state
        keys = list(self.runs) if ended is None else [(ended.job, ended.task)]
        for key in keys:
            run = self.runs.get(key)
            view = state.jobs.get(key[0])
            now = None if view is None else view.attempts.get(key[1])
            if run is None or (now is not None and now.number == run.number):
                continue
            del self.runs[key]
            moves = key in self.saving
            self.saving.discard(key)
            if ended is not None and ended.outcome is Outcome.SUCCEEDED:
                tasks, spent = self.spent.get(key[0], (0, 0))
                self.spent[key[0]] = (tasks + 1, spent + state.now - run.start)
            elif ended is not None and ended.outcome is Outcome.KILLED and moves:
                self.migrations += 1
            else:
                self.lost += run.in_foreground(state.now) * count(run.slots)
                self.kills += ended is not None and ended.outcome is Outcome.KILLED

    def _asked(self, actions: list[Action]) -> None:
        now = self.core.state.now
        for action in actions:
            if isinstance(action, Launch | ChangeTier | Suspend | Kill | Conclude) and action.job not in self.specs:
                continue  # submitted before the first event there is
            if isinstance(action, Launch):
                run = self.runs[action.job, action.task] = _Run(action.attempt, now, action.slots, action.tier)
                if self.core.state.rules >= ISOLATING:
                    run.has_begun = self.core.state.jobs[action.job].attempts[action.task].running
                if not self.specs[action.job].fetches or run.has_begun:
                    self.start.setdefault(action.job, now)
            elif isinstance(action, ChangeTier):
                self.runs[action.job, action.task].come_to(action.tier, now)
            elif isinstance(action, Suspend):
                self.saving.add((action.job, action.task))
            elif isinstance(action, Kill):
                self.saving.discard((action.job, action.task))
            elif isinstance(action, Conclude):
                self.end[action.job] = now
                self.status[action.job] = STATUSES.index(action.status)
                self.told = (self.busy, self.offered)

    def _note_holdings(self) -> None:
        state = self.core.state
        touched, state.touched = state.touched or [], []
        for view in dict.fromkeys(touched):
            if view.id not in self.specs:
                continue
            slots, used = view.held, NO_SLOTS
            for attempt in view.attempts.values():
                if not attempt.fed:
                    slots |= attempt.slots
                if attempt.tier is Tier.FOREGROUND:
                    used |= attempt.slots
            counts = count(slots), count(used)
            if counts != self.held.get(view.id, (0, 0)):
                self.held[view.id] = counts
                self.most[view.id] = max(self.most.get(view.id, 0), counts[0])
                for column, value in zip(self.holdings, (state.now, view.id, *counts), strict=True):
                    column.append(value)

    def _known_before(self, job: JobId, place: Mapping[JobId, int]) -> tuple[int, ...]:
        """The jobs that one comes after, by their places, as far as the journal knows them."""
        return tuple(place[before] for before in self.specs[job].after if before in place)

    def schedule(self) -> Schedule:
        """All of it as columns."""
        # Stable order of release, as a workload has it; ids break ties.
        release = {job: spec.release for job, spec in sorted(self.specs.items())}
        for job, spec in sorted(self.specs.items()):  # it could not start before what it comes after was released
            release[job] = max([release[job], *(release[before] for before in spec.after if before in release)])
        jobs = sorted(self.specs, key=lambda job: (release[job], job))
        place = {job: position for position, job in enumerate(jobs)}
        specs = [self.specs[job] for job in jobs]
        for job in self.core.state.jobs.keys() & self.specs.keys():
            self.status[job] = STATUSES.index(self.core.status(job))
        is_over = not self.core.state.jobs.keys() & self.specs.keys()
        workload = workload_us(
            release=[release[job] for job in jobs],
            runtime=[spent // tasks for tasks, spent in (self.spent.get(job, (1, 0)) for job in jobs)],
            tasks=[spec.tasks for spec in specs],
            width=[spec.width for spec in specs],
            estimate=[-1 if spec.estimate is None else spec.estimate for spec in specs],
            due=[self.due[job] for job in jobs],
            priority=[self.priority[job] for job in jobs],
            rate=[spec.rate for spec in specs],
            user=[spec.user for spec in specs],
            kind=[int(spec.kind) for spec in specs],
            label=jobs,
            after={place[job]: before for job in jobs if (before := self._known_before(job, place))},
        )
        at, who, slots, used = self.holdings
        busy, offered = self.told if is_over else (self.busy, self.offered)
        return schedule_of(
            workload,
            start=[self.start.get(job, NOT_YET) for job in jobs],
            end=[self.end.get(job, NOT_YET) for job in jobs],
            capacity=0,
            slots=[self.most.get(job, 0) for job in jobs],
            status=[self.status[job] for job in jobs],
            holdings=(at, [place[job] for job in who], slots, used),
            rounds=self.rounds,
            until=None if is_over else self.core.state.now,
            busy=busy,
            offered=offered,
            lost=self.lost,
            kills=self.kills,
            migrations=self.migrations,
            decisions=self.core.rounds,
            refused=self.core.refusals,
        )
