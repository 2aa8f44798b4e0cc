"""An engine whose nodes have agents: what it does the same way wherever these are.

It sends members to the agents of their nodes, joins what these say of a gang to what the gang does, keeps ends until
they are acknowledged, adopts what an earlier driver left, and listens for signs of life.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Generic, TypeVar

from headway.engines.base import (
    Assignment,
    AttemptKey,
    Call,
    Ended,
    Ending,
    Found,
    Heard,
    Member,
    NodeLost,
    Noticed,
    Report,
    Saved,
    Stalled,
    Started,
    TierRefused,
)
from headway.engines.fit import check_most
from headway.engines.local.driver.attached import AgentNode
from headway.engines.local.driver.gang import Gang
from headway.engines.local.driver.settings import LEASE_RANGE, LocalSettings
from headway.engines.local.driver.written import OutputsInFiles, Written
from headway.engines.local.shared.frames import (
    Change,
    CheckpointTaken,
    Go,
    Kill,
    Limited,
    MemberEnded,
    MemberSaved,
    MembersRefused,
    MemberStalled,
    MemberStarted,
    MemberUnreadable,
    Ping,
    ReadPart,
    Ready,
    Show,
    Standing,
    Suspend,
    Welcome,
    ending_of,
    frame,
    in_parts,
    launch_of,
)
from headway.engines.local.shared.output import OUTPUT_FOLDER, SUFFIXES, file_of
from headway.errors import InvalidInput
from headway.model.instant import to_seconds
from headway.model.job import JobId
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.tier import Tier

log = logging.getLogger(__name__)

NODE_SLOTS_MAX: Final = 1000
"""How many slots a node may have: each is a process."""

_PINGS_A_LEASE = 3


NodeT = TypeVar("NodeT", bound=AgentNode)


class AgentEngine(OutputsInFiles, Generic[NodeT]):
    """What engines have in common whose nodes have agents. See `headway.engines.base.Engine` for their duties.

    Args:
        root: the engine's folder on the driver's machine.
        settings: how agents treat what runs.
    """

    def __init__(self, root: Path, settings: LocalSettings) -> None:
        self._root = root
        super().__init__(Written(root / OUTPUT_FOLDER))
        self._settings = settings
        self._nodes: dict[str, NodeT] = {}
        self._attempts: dict[AttemptKey, AgentNode | Gang] = {}
        self._saving: set[JobId] = set()
        self._listening: asyncio.Task[None] | None = None
        self._early: list[Report] | None = []
        self._report: Callable[[Report], None]
        self._loop: asyncio.AbstractEventLoop

    # Called by the driver

    def check_fit(self, node: NodeSpec) -> None:
        """A slot is a process, and a node is asked for signs of life several times in each lease."""
        hint = "Each slot is a process of this machine; more nodes may have as many each."
        check_most(node, NODE_SLOTS_MAX, hint=hint)
        least, most = LEASE_RANGE
        if node.lease is not None and not least <= to_seconds(node.lease) <= most:
            allowed = f"{least:g} to {most:g} seconds, or none"
            raise InvalidInput(f"lease of node {node.name!r}", to_seconds(node.lease), allowed)

    def resize(self, name: str, slots: int, *, at_once: bool = False) -> None:
        """Let the agent fork processes for more slots, or end those that are idle."""
        node = self._nodes.get(name)
        if node is not None:
            node.resize(slots, at_once=at_once)

    def launch(self, assignment: Assignment) -> None:
        """Send each member to its node."""
        key, members = assignment.key, assignment.members
        if len(members) == 1:
            node = self._nodes.get(members[0].node)
            if node is not None and node.up:
                self._attempts[key] = node
                self._send(node, assignment, 0)
                return
        else:
            parts = [self._nodes.get(member.node) for member in members]
            if all(node is not None and node.up for node in parts):
                self._attempts[key] = Gang(key, [node for node in parts if node], assignment.tier)
                for rank, node in enumerate(parts):
                    assert node is not None
                    self._send(node, assignment, rank)
                return
        ended = Ended(*key, Ending(Outcome.LOST, detail="its node was lost before it started"))
        self._loop.call_soon(self._tell, ended)

    def kill(self, job: JobId, task: int, attempt: int) -> None:
        """Let each node end its members."""
        held = self._attempts.get((job, task, attempt))
        if held is not None:
            self._kill((job, task, attempt), held)

    def change(self, job: JobId, task: int, attempt: int, tier: Tier) -> None:
        """Let each node change its members; if one cannot, the others change back."""
        key = (job, task, attempt)
        held = self._attempts.get(key)
        if isinstance(held, Gang):
            held.tier = tier
        if held is not None:
            self._all(held, Change(*key, tier))

    def suspend(self, job: JobId, task: int, attempt: int) -> None:
        """Let each node tell its members."""
        key = (job, task, attempt)
        held = self._attempts.get(key)
        if isinstance(held, Gang):
            held.asked = True
        if held is not None:
            self._all(held, Suspend(*key, self._settings.grace))

    def show(self, job: JobId, task: int, attempt: int, rank: int | None, stream: str) -> str:
        """Let each node write the output of its members into files; the name is the path that one has here."""
        held = self._attempts.get((job, task, attempt))
        if held is None:
            return ""
        self._all(held, Show(job, task, attempt))
        suffix = SUFFIXES[stream == "stderr"]
        return file_of(str(self._root / OUTPUT_FOLDER), job, task, attempt, rank, suffix)

    def acknowledge(self, job: JobId, task: int, attempt: int) -> None:
        """Let the nodes forget the end."""
        held = self._attempts.pop((job, task, attempt), None)
        if held is not None:
            for node in held.nodes if isinstance(held, Gang) else (held,):
                node.acknowledge((job, task, attempt))

    def pids(self) -> dict[str, int]:
        """The agent's process of each node that is up: killing it has the effect of a machine's death."""
        return {name: node.pid for name, node in self._nodes.items() if node.up}

    # Called by nodes

    def on_ended(self, node: AgentNode, message: MemberEnded) -> None:
        """A member has ended."""
        key = (message.job, message.task, message.attempt)
        held = self._attempts.get(key)
        if held is None:  # part of a gang that is lost
            node.acknowledge(key)
        elif isinstance(held, Gang):
            if held.take(message.rank, ending_of(message)):
                self._kill(key, held)
            if whole := held.whole():
                self._tell(whole)
        else:
            self._tell(Ended(*key, ending_of(message)))

    def on_started(self, node: AgentNode, message: MemberStarted) -> None:
        """A member runs; a gang runs when all its members do."""
        key = (message.job, message.task, message.attempt)
        held = self._attempts.get(key)
        if isinstance(held, Gang):
            held.started.add(message.rank)
            if len(held.started) < len(held.parts):
                return
        if held is not None:
            self._tell(Started(*key))

    def on_saved(self, node: AgentNode, message: MemberSaved) -> None:
        """A member has saved a checkpoint; a gang has saved one when all its members have."""
        key = (message.job, message.task, message.attempt)
        held = self._attempts.get(key)
        self._saving.add(message.job)
        if isinstance(held, Gang):
            held.saved.add(message.rank)
            if len(held.saved) < len(held.parts):
                return
            held.saved.clear()
        if held is not None:
            self._tell(Saved(*key))

    def on_unreadable(self, message: MemberUnreadable) -> None:
        """The task continues from an earlier checkpoint, or from its start."""
        self._tell(Noticed("checkpoint_unreadable", f"job {message.job}, task {message.task}", message.detail))

    def on_stalled(self, node: AgentNode, message: MemberStalled) -> None:
        """The attempt keeps its slots, and what it has done."""
        key = (message.job, message.task, message.attempt)
        if key in self._attempts:
            self._tell(Stalled(*key, message.detail, node.spec.name))

    def on_refused(self, node: AgentNode, message: MembersRefused) -> None:
        """The whole attempt stays where it was; this is reported once."""
        key = (message.job, message.task, message.attempt)
        held = self._attempts.get(key)
        if isinstance(held, Gang):
            if held.tier is not message.tier:
                return
            held.tier = Tier(1 - message.tier)
            self._all(held, Change(*key, held.tier))
        if held is not None:
            self._tell(TierRefused(*key, message.tier, f"node {node.spec.name!r}: {message.detail}"))

    def on_limited(self, node: AgentNode, message: Limited) -> None:
        """Reported before the first refusal."""
        self._tell(Noticed("tier_refused", node.spec.name, message.detail))

    def on_ready(self, node: AgentNode, message: Ready) -> None:
        """A member of a gang has its slots; with the last one, all start."""
        held = self._attempts.get((message.job, message.task, message.attempt))
        if isinstance(held, Gang):
            held.ready.add(message.rank)
            self._go(held)

    def on_lost(self, node: AgentNode, detail: str) -> None:
        """A node is lost, and with it every attempt that had a member there."""
        self._drop(node)
        if self._nodes.get(node.spec.name) is node:
            log.warning("node %s is lost: %s", node.spec.name, detail)
            self._tell(NodeLost(node.spec.name, detail))

    def on_wanted(self, node: AgentNode, name: str) -> None:
        """A node of this machine opens the server's files itself."""

    def on_answer(self, node: AgentNode, answer: ReadPart | CheckpointTaken) -> None:
        """Nothing is asked of a node of this machine: its files can be opened."""

    # Internal

    def _drop(self, node: AgentNode) -> None:
        """Forget every attempt that has a member on a node, and kill the other members."""
        for key, held in tuple(self._attempts.items()):
            if isinstance(held, Gang):
                if node in held.nodes:
                    del self._attempts[key]
                    self._kill(key, held)
                    self._forget(key, held)
            elif held is node:
                del self._attempts[key]

    def _tell(self, report: Report) -> None:
        if self._early is None:
            self._report(report)
        else:
            self._early.append(report)

    def _send(self, node: AgentNode, assignment: Assignment, rank: int) -> None:
        """Send one member."""
        member, pickled = assignment.members[rank], None
        if isinstance(member.work, Call):
            function = member.work.function
            if node.functions.get(function.name) is None:
                pickled = function.pickled
                node.functions.put(function.name, len(pickled), True)
        node.send(*in_parts(launch_of(assignment, rank, pickled, node.uploads, self._processors(member))))

    def _processors(self, member: Member) -> tuple[int, ...]:
        """The only processors of its node that a member may use; none: any."""
        return ()

    def _kill(self, key: AttemptKey, held: AgentNode | Gang) -> None:
        self._all(held, Kill(*key))

    def _all(self, held: AgentNode | Gang, message: Kill | Change | Suspend | Show) -> None:
        """Send the same message to each node of an attempt."""
        for node in held.nodes if isinstance(held, Gang) else (held,):
            node.send(frame(message))

    def _forget(self, key: AttemptKey, gang: Gang) -> None:
        """Let nodes forget the ends of a lost gang; the other members are handled when they end."""
        for rank in gang.endings:
            gang.parts[rank].acknowledge(key)

    @staticmethod
    def _take_down_fences(ground: Path, running: Iterable[AttemptKey]) -> None:
        """Remove the fences of tasks that ended while no driver could."""
        there = {f"{job}.{task}" for job, task, _ in running}
        for fence in (ground / "fences").iterdir():
            if fence.name.rpartition(".")[0] not in there:
                fence.unlink(missing_ok=True)

    def _go(self, gang: Gang) -> None:
        if len(gang.ready) == len(gang.parts):
            for node in gang.nodes:
                node.send(frame(Go(*gang.key)))

    def _adopt(self, welcomes: Mapping[NodeT, Welcome]) -> Found:
        """Take over what an earlier driver left."""
        members: dict[AttemptKey, dict[int, tuple[NodeT, Standing | MemberEnded]]] = {}
        for node, welcome in welcomes.items():
            found: list[Standing | MemberEnded] = [*welcome.standing, *welcome.ended]
            for member in found:
                key = (member.job, member.task, member.attempt)
                members.setdefault(key, {})[member.rank] = (node, member)
        running, ended, behind = [], [], set()
        for key, parts in members.items():
            first, member = parts[min(parts)]
            if member.width == 1:
                self._attempts[key] = first
                if isinstance(member, MemberEnded):
                    ended.append(Ended(*key, ending_of(member)))
                else:
                    running.append(key)
                    if member.tier is Tier.BACKGROUND:
                        behind.add(key)
                    if member.started:
                        self._tell(Started(*key))
                continue
            gang = Gang(key, [parts[rank][0] for rank in sorted(parts)], Tier.FOREGROUND)
            if len(parts) < member.width:  # a node is gone, and the gang with it
                self._kill(key, gang)
                for part in gang.nodes:
                    part.acknowledge(key)
                ended.append(Ended(*key, Ending(Outcome.LOST, detail="one of its nodes was lost")))
                continue
            self._attempts[key] = gang
            gang.adopt(part for _, part in parts.values())
            tiers = {part.tier for _, part in parts.values() if isinstance(part, Standing)}
            if len(tiers) > 1:  # half of it was changed when the driver died
                self._all(gang, Change(*key, Tier.FOREGROUND))
            elif Tier.BACKGROUND in tiers:
                gang.tier = Tier.BACKGROUND
                behind.add(key)
            if whole := gang.whole():
                ended.append(whole)
                continue
            running.append(key)
            if len(gang.started) == len(gang.parts):
                self._tell(Started(*key))
            if gang.failed is not None and not gang.asked:
                self._kill(key, gang)
            else:
                self._go(gang)
        return Found(frozenset(running), tuple(ended), background=frozenset(behind))

    async def _listen(self) -> None:
        """Ask each node for signs of life, and give up those that gave none.

        A node that is not asked for long takes its driver for dead, so leases alone do not say how often to ask.
        """
        while True:
            leases = (node.lease for node in self._nodes.values())
            pause = min([self._settings.lease, self._settings.orphaned_after, *leases]) / _PINGS_A_LEASE
            await asyncio.sleep(pause)
            heard = []
            for node in self._nodes.values():
                if not node.up:
                    continue
                if node.missed >= round(node.lease / pause):
                    node.give_up(f"silent for {node.lease:g} s")
                    continue
                if node.heard and node.spec.lease is not None:
                    heard.append(node.spec.name)
                node.heard = False
                node.missed += 1
                node.send(frame(Ping()))
            if heard:
                self._tell(Heard(tuple(heard)))
