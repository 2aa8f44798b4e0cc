"""Turns an engine's reports into events for the core, and keeps on which nodes its attempts run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from msgspec import structs

from headway.engines import base
from headway.errors import in_short
from headway.live import work
from headway.live.full_disks import FullDisks, RoomTried
from headway.live.ledger import Ledger
from headway.live.turn import Turn
from headway.model.actions import Kill
from headway.model.events import (
    Incident,
    NodeClosed,
    NodeDown,
    NodeJoined,
    NodeLeft,
    NodeOpened,
    NodeResized,
    NodesHeard,
    NodeUp,
    TaskEnded,
    TaskSaved,
    TaskStarted,
    TaskStruck,
    TierRefused,
)
from headway.model.instant import SECOND, Duration, Instant, to_seconds
from headway.model.job import JobId
from headway.model.node import NodeSpec, node_flaw
from headway.model.outcome import Outcome

log = logging.getLogger(__name__)

_NAMED_MAX = 4

_Rare = base.Started | base.Saved | base.Stalled | base.Pending | base.TierRefused | base.Heard | base.Noticed

_FULL_AGAIN: Final[Duration] = 600 * SECOND
"""That a task waits for room on a disk is an incident again after this time."""


class FromEngine:
    """Brings an engine's reports into turns.

    Args:
        ledger: feeds the core.
        keeps: whether there is room for this many bytes of output.
        serves: told of each node that the engine has found.
        disks: closes nodes whose disk is full.

    Attributes:
        where: names of the nodes of each attempt that the engine runs.
    """

    def __init__(
        self,
        ledger: Ledger,
        keeps: Callable[[int], bool],
        serves: Callable[[Iterable[NodeSpec]], None],
        disks: FullDisks,
    ) -> None:
        self.where: dict[base.AttemptKey, tuple[str, ...]] = {}
        self._ledger = ledger
        self._keeps = keeps
        self._serves = serves
        self._disks = disks
        self._stalled: dict[base.AttemptKey, str] = {}
        self._pending: dict[base.AttemptKey, str] = {}
        self._full_told: Instant = -_FULL_AGAIN
        self._heard: dict[str, Instant] = {}
        self._lost: set[str] = set()

    def take(self, turn: Turn, report: base.Report) -> None:
        """Tell the core what is reported."""
        if isinstance(report, base.Ended):
            self._take_ended(turn, report)
        elif isinstance(report, base.NodeReport):
            self._take_node(turn, report)
        else:
            self._take_rare(turn, report)

    def begin(self, absent: Iterable[str], closed: Iterable[str]) -> None:
        """These nodes cannot be used since the start, or take nothing new."""
        self._lost.update(absent)
        for name in closed:
            self._disks.shut(name)

    def joined(self, name: str) -> None:
        """A node has been taken into service."""
        self._lost.discard(name)

    def _take_ended(self, turn: Turn, ended: base.Ended) -> None:
        nodes = self.where.pop(ended.key, ())
        keeps = not (size := work.kept_bytes(ended)) or self._keeps(turn.files + size)
        told = ended if keeps else work.without_files(ended)
        event: TaskEnded | TaskStruck = TaskEnded(turn.now, *ended.key, ended.ending.outcome)
        waited = self._stalled.pop(ended.key, "")
        self._pending.pop(ended.key, None)
        if ended.ending.outside and ended.ending.outcome.is_own_doing:
            event, told = TaskStruck(turn.now, *ended.key, ended.ending.outcome), self._counted(told)
            said = told.ending.detail.rpartition("\n")[2]  # of a traceback what was raised
            log.warning("job %d, task %d, attempt %d: %s", *ended.key, in_short(said))
            for node in self._disks.met(turn, nodes[0]) if waited and len(nodes) == 1 else ():
                self._incident(turn, "node_closed", node, f"for a minute, because its disk is full: {waited}")
        kept = self._ledger.feed(turn, event, told)
        turn.acknowledged.append(ended.key)
        turn.spent += work.spent_files(ended, kept=kept and keeps)

    def _counted(self, ended: base.Ended) -> base.Ended:
        """An end by what need not be its task's doing; its detail says how often that has happened to its task.

        Callers see it only if it settles the task, so not the first time.
        """
        job = self._ledger.core.state.jobs.get(ended.job)
        if job is None:
            return ended
        detail = ended.ending.detail.rstrip().removesuffix(".")
        said = f"{detail}. Its attempts ended so {job.strikes.get(ended.task, 0) + 1} times"
        return structs.replace(ended, ending=structs.replace(ended.ending, detail=said))

    def _take_rare(self, turn: Turn, report: _Rare) -> None:
        now = turn.now
        match report:
            case base.Saved():
                self._ledger.feed(turn, TaskSaved(now, report.job, report.task, report.attempt))
            case base.Started():
                self._pending.pop((report.job, report.task, report.attempt), None)
                self._ledger.feed(turn, TaskStarted(now, report.job, report.task, report.attempt))
            case base.Stalled():
                self._take_stalled(turn, report)
            case base.Pending():
                key = (report.job, report.task, report.attempt)
                if self._ledger.core.state.current(*key) is not None:
                    self._pending[key] = in_short(report.reason)
            case base.TierRefused():
                subject = f"job {report.job}, task {report.task}"
                said = in_short(f"it is not let into the {report.tier.name.lower()}: {report.detail}")
                log.warning("tier_refused: %s: %s", subject, said)
                self._ledger.feed(turn, TierRefused(now, report.job, report.task, report.attempt, report.tier))
                self._ledger.feed(turn, Incident(now, "tier_refused", subject, said))
            case base.Heard():
                self._take_heard(turn, report.nodes)
            case base.Noticed():
                subject, detail = in_short(report.subject), in_short(report.detail)
                log.warning("%s: %s: %s", report.kind, subject, detail)
                self._ledger.feed(turn, Incident(now, report.kind, subject, detail, report.by))

    def stalled(self, job: JobId, task: int, attempt: int) -> str:
        """What an attempt that runs waits for on the disk of its node; empty: it does not."""
        return self._stalled.get((job, task, attempt), "")

    def pending(self, job: JobId, task: int, attempt: int) -> str:
        """Why an attempt that was launched waits in the queue of its engine's system; empty: that is not known."""
        return self._pending.get((job, task, attempt), "")

    def _of_current(self, said: dict[base.AttemptKey, str]) -> dict[base.AttemptKey, str]:
        """What was said of attempts that have not ended."""
        current = self._ledger.core.state.current
        return {key: text for key, text in said.items() if current(*key) is not None}

    def _take_stalled(self, turn: Turn, report: base.Stalled) -> None:
        """An attempt waits for room, or goes on; many may do so at once, which is one incident."""
        key = (report.job, report.task, report.attempt)
        if not report.detail:
            self._stalled.pop(key, None)
            return
        self._stalled = self._of_current(self._stalled)
        if self._ledger.core.state.current(*key) is None:
            return
        self._stalled[key] = in_short(report.detail)
        where = f"on node {report.node}: " if report.node else ""
        log.warning("job %d, task %d, attempt %d waits for room on a disk: %s%s", *key, where, self._stalled[key])
        if turn.now - self._full_told >= _FULL_AGAIN:
            self._full_told = turn.now
            subject = f"job {report.job}, task {report.task}"
            self._ledger.feed(turn, Incident(turn.now, "disk_full", subject, in_short(f"{where}{report.detail}")))

    def _take_node(self, turn: Turn, report: base.NodeReport) -> None:
        now = turn.now
        match report:
            case base.NodeLost():
                log.warning("node %s is lost: %s", report.node, report.detail or "no reason known")
                self._lost.add(report.node)
                there = self._there(report.node)
                self._ledger.feed(turn, NodeDown(now, report.node, excused=report.excused))
                self.end_gangs(turn, report.node, Outcome.KILLED if report.excused else Outcome.LOST)
                self._pending = self._of_current(self._pending)
                self._ledger.feed(turn, Incident(now, "node_lost", report.node, report.detail))
                if not report.excused:
                    self._name_suspects(turn, report.node, there)
            case base.NodeBack():
                self._disks.ready(report.node)
                log.info("node %s is back", report.node)
                self._lost.discard(report.node)
                self._ledger.feed(turn, NodeUp(now, report.node))
            case base.NodeShut():
                self._disks.shut(report.node)
                self._ledger.feed(turn, NodeClosed(now, report.node))
                self._incident(turn, "node_closed", report.node, report.detail or "no reason known")
            case RoomTried():
                self._disks.tried(turn, report.node)
            case base.NodeReady():
                self._disks.ready(report.node)
                log.info("node %s is open again", report.node)
                self._ledger.feed(turn, NodeOpened(now, report.node))
            case base.NodeFound():
                self._take_found(turn, replace(report.node, found=True))
            case base.NodeGone():
                log.info("node %s has left: %s", report.node, report.detail or "no reason known")
                self._lost.discard(report.node)
                self._leave(turn, report.node)

    def _take_found(self, turn: Turn, node: NodeSpec) -> None:
        """A node is there that the engine found: it joins, or it is the one that was known."""
        now, known = turn.now, self._ledger.core.state.nodes.get(node.name)
        wrong = node_flaw(node)
        if wrong is not None:
            self._incident(turn, "node_refused", in_short(node.name), f"the engine found it, but {wrong}")
            return
        if known is not None and not known.spec.found:
            said = f"the name {node.name!r} is taken by a node that was added"
            self._incident(turn, "name_taken", node.name, f"{said}: the one that the engine found is not used")
            return
        self._lost.discard(node.name)
        self._serves((node,))
        if known is not None and replace(node, slots=known.spec.slots) != known.spec:
            self._leave(turn, node.name)
            known = None
        if known is None:
            log.info("node %s is found, with %d slots", node.name, node.slots)
            self._ledger.feed(turn, NodeJoined(now, node))
            return
        if known.spec.slots != node.slots:
            self._ledger.feed(turn, NodeResized(now, node.name, node.slots))
        if not known.up:
            log.info("node %s is found again", node.name)
            self._ledger.feed(turn, NodeUp(now, node.name))

    def _leave(self, turn: Turn, name: str) -> None:
        """A node leaves the core; what ran there is redone, which counts against no task."""
        self._ledger.feed(turn, NodeLeft(turn.now, name))
        self._disks.ready(name)
        self.end_gangs(turn, name, Outcome.KILLED)
        self._pending = self._of_current(self._pending)

    def _there(self, node: str) -> list[tuple[base.AttemptKey, bool]]:
        """What runs on a node, and whether alone."""
        state = self._ledger.core.state
        view = state.nodes.get(node)
        found = [] if view is None else [one for one in state.attempts() if one.slots & view.slots]
        return [((one.job.id, one.task, one.number), one.alone) for one in found]

    def _name_suspects(self, turn: Turn, node: str, there: list[tuple[base.AttemptKey, bool]]) -> None:
        """Say which tasks may be the cause of the node's loss: those that run alone from now on, or did."""
        state = self._ledger.core.state
        suspects = []
        for (job, task, _), alone in there:
            suspicion, view = state.suspicions.get((job, task)), state.jobs.get(job)
            if alone and (suspicion is None or suspicion.guilty):
                said = f"job {job}, task {task} ran there alone, as often before: it is given up as the cause"
                self._incident(turn, "task_given_up", node, said)
            elif suspicion is not None and suspicion.runs_alone and view is not None:
                suspects.append(f"job {job}, task {task} ({view.losses.get(task, 0)} times)")
        if suspects:
            more = f" and {len(suspects) - _NAMED_MAX} more" if len(suspects) > _NAMED_MAX else ""
            said = f"it was lost again with {', '.join(suspects[:_NAMED_MAX])}{more}: each is tried alone on a node"
            self._incident(turn, "tasks_suspected", node, said)

    def _incident(self, turn: Turn, kind: str, subject: str, detail: str) -> None:
        log.warning("%s: %s: %s", kind, subject, detail)
        self._ledger.feed(turn, Incident(turn.now, kind, subject, in_short(detail)))

    def end_gangs(self, turn: Turn, node: str, outcome: Outcome) -> None:
        """End the reports about gangs with a member on a node that is gone: those with other members have ended."""
        for key in [key for key, places in self.where.items() if node in places]:
            turn.gone.append(key)
            if self._ledger.core.state.current(*key) is not None:
                self._ledger.feed(turn, TaskEnded(turn.now, *key, outcome))

    def _take_heard(self, turn: Turn, names: tuple[str, ...]) -> None:
        """Renew leases, each at most every quarter of it; a node whose lease ended while it lived on is back."""
        renewed = []
        for name in names:
            node = self._ledger.core.state.nodes.get(name)
            if node is None or node.spec.lease is None or name in self._lost:
                continue
            if not node.up:
                for key, places in self.where.items():
                    if name in places:
                        turn.actions.append(Kill(*key))
                self._ledger.feed(turn, NodeUp(turn.now, name))
                said = f"it was silent for longer than its lease of {to_seconds(node.spec.lease):g} s, and lived on"
                self._ledger.feed(turn, Incident(turn.now, "node_silent", name, said))
            elif turn.now - self._heard.get(name, 0) >= node.spec.lease // 4:
                renewed.append(name)
                self._heard[name] = turn.now
        if renewed:
            self._ledger.feed(turn, NodesHeard(turn.now, tuple(renewed)))
