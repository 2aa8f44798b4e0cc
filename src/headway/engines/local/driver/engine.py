"""The engine of this machine. Each node is a separate process, so that it can really die.

    driver --socket-- agent (one a node) --socket-- process of a slot (warm) -- commands, and all that tasks start
                        |
                                            guard: outlives the agent until nothing of the node remains

An agent is not part of the driver: it listens on a socket in the engine's folder, runs on without a driver, and the
next driver connects to it (`agent.agent`). Only the owner can use the folder (mode 0700), and the agent only accepts
drivers that know the secret in it. A lock, held by guard and agent, allows one agent for each node.

What is in the folder: `secret`; `nodes/NODE/` with `lock`, `socket`, `log` and the files of what the slots run
(`slot.files`); `output/JOB/` with the output of attempts (`agent.streams`); `checkpoints/JOB/TASK/` with what they
have saved (`shared.checkpoints`); `fences/` of tasks that put outputs. Where tasks run as another user, the files of
what runs, checkpoints and fences lie on a ground of their own (`shared.terms`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headway.engines.base import (
    Assignment,
    AttemptKey,
    Call,
    Ended,
    Ending,
    Files,
    Found,
    Heard,
    NodeBack,
    NodeLost,
    Noticed,
    Report,
    Saved,
    Stalled,
    Started,
    TierRefused,
)
from headway.engines.local.driver.account import account_of, attempt, ground_of, prepare
from headway.engines.local.driver.gang import Gang
from headway.engines.local.driver.node import LocalNode, Places, node_folder, put_down
from headway.engines.local.driver.pins import Pins
from headway.engines.local.driver.settings import LEASE_RANGE, LocalSettings
from headway.engines.local.driver.written import Written, attempt_of
from headway.engines.local.shared import checkpoints
from headway.engines.local.shared.frames import (
    Change,
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
    Ready,
    Show,
    Standing,
    Suspend,
    Welcome,
    ending_of,
    frame,
    launch_of,
)
from headway.engines.local.shared.output import OUTPUT_FOLDER, SUFFIXES, file_of
from headway.errors import EngineError, InvalidInput, NameTaken, NoSuchOutput
from headway.model.instant import to_seconds
from headway.model.job import JobId
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.tier import Tier

log = logging.getLogger(__name__)

SLOTS_MAX = 1000
"""How many slots a node may have: each is a process."""

SECRET_BYTES = 32

_PINGS_A_LEASE = 3
_BACKOFF_SECONDS = (0.05, 10.0)
_SETTLED_SECONDS = 10.0


class LocalEngine:
    """Runs attempts in processes of this machine. See `headway.engines.base.Engine` for its duties.

    Args:
        root: the engine's folder; made if it does not exist. One driver at a time.
        settings: see there.

    Raises:
        HeadwayError: tasks cannot run as this user; the message says why.
    """

    def __init__(
        self,
        root: Path,
        settings: LocalSettings = LocalSettings(),  # noqa: B008  # frozen
    ) -> None:
        self._root = root
        self._settings = settings
        self._account = account_of(settings.run_as) if settings.run_as else None
        self._ground = (settings.ground or ground_of(root, self._account)) if self._account else root
        self._uploads: Path | None = None
        self._written = Written(root / OUTPUT_FOLDER)
        self._pins = Pins(os.sched_getaffinity(0) if settings.pin else ())
        self._checkpoints = str(self._ground / "checkpoints")
        self._nodes: dict[str, LocalNode] = {}
        self._attempts: dict[AttemptKey, LocalNode | Gang] = {}
        self._saving: set[JobId] = set()
        self._tending: dict[str, asyncio.Task[None]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="headway-engine")
        self._listening: asyncio.Task[None] | None = None
        self._early: list[Report] | None = []
        self._report: Callable[[Report], None]
        self._loop: asyncio.AbstractEventLoop
        self._secret: bytes

    @property
    def ground(self) -> Path:
        """A folder that tasks can get to; there from the start of the engine on."""
        return self._ground

    @property
    def owner(self) -> tuple[int, int] | None:
        """User and group of tasks, if these are not those of this process."""
        return None if self._account is None else (self._account.uid, self._account.gid)

    # Called by the driver

    async def start(self, nodes: Iterable[NodeSpec], report: Callable[[Report], None], files: Files) -> Found:
        """Start an agent for each node, or find the one that an earlier driver started."""
        self._loop = asyncio.get_running_loop()
        self._report = report
        self._uploads = files.folder
        try:
            self._secret = self._prepare()
        except OSError as error:
            raise EngineError(f"the folder {self._root} cannot be used: {error}") from error
        self._nodes = {spec.name: self._node(spec) for spec in nodes}
        for node in self._nodes.values():
            self._pins.give(node.spec)
        try:
            async with asyncio.TaskGroup() as group:
                attaching = {node: group.create_task(node.attach()) for node in self._nodes.values()}
        except* (EngineError, OSError) as errors:
            await asyncio.gather(*(node.let_go() for node in self._nodes.values()))
            self._nodes.clear()
            first = next(_leaves(errors))
            raise first if isinstance(first, EngineError) else EngineError(str(first)) from first
        self._retire()
        found = self._adopt({node: task.result() for node, task in attaching.items()})
        self._tending = {name: self._loop.create_task(self._tend(node)) for name, node in self._nodes.items()}
        self._listening = self._loop.create_task(self._listen())
        early, self._early = self._early or [], None
        for told in early:
            self._loop.call_soon(self._tell, told)
        return found

    async def join(self, node: NodeSpec) -> None:
        """Start an agent for it; if an earlier driver left one under its name, that one is killed first."""
        if node.name in self._nodes:
            raise NameTaken(node.name, "a node of this engine")
        joining = self._nodes[node.name] = self._node(node)
        self._pins.give(node)
        try:
            welcome = await joining.attach()
        except BaseException as error:
            self._nodes.pop(node.name, None)
            await joining.let_go()
            if isinstance(error, OSError):
                raise EngineError(f"node {node.name!r} does not start: {error}") from error
            raise
        for member in welcome.standing:
            joining.send(frame(Kill(member.job, member.task, member.attempt)))
        for ended in welcome.ended:
            joining.acknowledge((ended.job, ended.task, ended.attempt))
        self._tending[node.name] = self._loop.create_task(self._tend(joining))
        if node.lease is not None and self._listening is not None:  # signs of life may be needed more often
            await _ended(self._listening)
            self._listening = self._loop.create_task(self._listen())

    async def leave(self, name: str) -> None:
        """Stop its agent; members of its gangs on other nodes are killed, and nothing is reported of them."""
        node = self._nodes.pop(name, None)
        if node is None:
            return
        self._drop(node)
        if (tending := self._tending.pop(name, None)) is not None:
            await _ended(tending)
        await node.stop()

    def resize(self, name: str, slots: int, *, at_once: bool = False) -> None:
        """Let the agent fork processes for more slots, or end those that are idle."""
        node = self._nodes.get(name)
        if node is not None:
            node.resize(slots, at_once=at_once)
            self._pins.give(node.spec)

    def launch(self, assignment: Assignment) -> None:
        """Send each member to its node."""
        key, members = assignment.key, assignment.members
        if assignment.files and self._uploads is None:
            raise EngineError("its tasks open the server's files in their folder, and there is none")
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
        """Let each node write the output of its members into files; the name is the path of one."""
        held = self._attempts.get((job, task, attempt))
        if held is None:
            return ""
        self._all(held, Show(job, task, attempt))
        suffix = SUFFIXES[stream == "stderr"]
        return file_of(str(self._root / OUTPUT_FOLDER), job, task, attempt, rank, suffix)

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """Read the file; what has written nothing yet has none."""
        try:
            return self._written.read(name, offset, size)
        except FileNotFoundError:
            if attempt_of(name) in self._attempts:
                return b""
            raise NoSuchOutput(f"{name} is not kept any more") from None

    def locate(self, name: str) -> Path | None:
        """Every output is in a file."""
        return self._written.locate(name)

    def discard(self, names: Iterable[str]) -> None:
        """Delete files."""
        self._written.discard(names)

    def outputs(self, idle: float) -> Iterator[tuple[JobId, Iterator[str]]]:
        """Look through the folders of the jobs."""
        return self._written.outputs(idle)

    def acknowledge(self, job: JobId, task: int, attempt: int) -> None:
        """Let the nodes forget the end."""
        held = self._attempts.pop((job, task, attempt), None)
        if held is not None:
            for node in held.nodes if isinstance(held, Gang) else (held,):
                node.acknowledge((job, task, attempt))

    def forget(self, job: JobId, task: int | None = None) -> None:
        """Remove a folder, if it exists; that of a task without known checkpoints goes with its job's."""
        if task is not None and job not in self._saving:
            return
        if task is None:
            self._saving.discard(job)
        path = f"{self._checkpoints}/{job}" if task is None else f"{self._checkpoints}/{job}/{task}"
        if os.path.exists(path):
            try:
                self._loop.run_in_executor(self._pool, checkpoints.remove, path)
            except RuntimeError as error:  # no thread for it
                log.warning("%s stays until the next start: %s", path, error)

    async def stop(self) -> None:
        """End every node with all its processes."""
        for task in (*self._tending.values(), *((self._listening,) if self._listening else ())):
            await _ended(task)
        self._tending, self._listening = {}, None
        self._early = []
        await asyncio.gather(*(node.stop() for node in self._nodes.values()))
        self._nodes.clear()
        self._attempts.clear()

    def pids(self) -> dict[str, int]:
        """The agent's process of each node that is up: killing it has the effect of a machine's death."""
        return {name: node.pid for name, node in self._nodes.items() if node.up}

    # Called by nodes

    def on_ended(self, node: LocalNode, message: MemberEnded) -> None:
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

    def on_started(self, node: LocalNode, message: MemberStarted) -> None:
        """A member runs; a gang runs when all its members do."""
        key = (message.job, message.task, message.attempt)
        held = self._attempts.get(key)
        if isinstance(held, Gang):
            held.started.add(message.rank)
            if len(held.started) < len(held.parts):
                return
        if held is not None:
            self._tell(Started(*key))

    def on_saved(self, node: LocalNode, message: MemberSaved) -> None:
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

    def on_stalled(self, message: MemberStalled) -> None:
        """The attempt keeps its slots, and what it has done."""
        key = (message.job, message.task, message.attempt)
        if key in self._attempts:
            self._tell(Stalled(*key, message.detail))

    def on_refused(self, node: LocalNode, message: MembersRefused) -> None:
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

    def on_limited(self, node: LocalNode, message: Limited) -> None:
        """Reported before the first refusal."""
        self._tell(Noticed("tier_refused", node.spec.name, message.detail))

    def on_ready(self, node: LocalNode, message: Ready) -> None:
        """A member of a gang has its slots; with the last one, all start."""
        held = self._attempts.get((message.job, message.task, message.attempt))
        if isinstance(held, Gang):
            held.ready.add(message.rank)
            self._go(held)

    def on_lost(self, node: LocalNode, detail: str) -> None:
        """A node is lost, and with it every attempt that had a member there."""
        self._drop(node)
        if self._nodes.get(node.spec.name) is node:
            log.warning("node %s is lost: %s", node.spec.name, detail)
            self._tell(NodeLost(node.spec.name, detail))

    # Internal

    def check_fit(self, node: NodeSpec) -> None:
        """A slot is a process, and a node is asked for signs of life several times in each lease."""
        if node.slots > SLOTS_MAX:
            hint = "Each slot is a process of this machine; more nodes may have as many each."
            raise InvalidInput(f"slots of node {node.name!r}", node.slots, f"1 to {SLOTS_MAX}", hint=hint)
        least, most = LEASE_RANGE
        if node.lease is not None and not least <= to_seconds(node.lease) <= most:
            allowed = f"{least:g} to {most:g} seconds, or none"
            raise InvalidInput(f"lease of node {node.name!r}", to_seconds(node.lease), allowed)

    def _node(self, spec: NodeSpec) -> LocalNode:
        self.check_fit(spec)
        places = Places(self._root, self._ground, self._uploads)
        return LocalNode(spec, self, self._secret, self._settings, places, self._account)

    def _drop(self, node: LocalNode) -> None:
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

    def _send(self, node: LocalNode, assignment: Assignment, rank: int) -> None:
        """Send one member."""
        member, pickled = assignment.members[rank], None
        if isinstance(member.work, Call):
            function = member.work.function
            if node.functions.get(function.name) is None:
                pickled = function.pickled
                node.functions.put(function.name, len(pickled), True)
        pins = self._pins.of(member.node, member.slots)
        node.send(frame(launch_of(assignment, rank, pickled, str(self._uploads or ""), pins)))

    def _kill(self, key: AttemptKey, held: LocalNode | Gang) -> None:
        self._all(held, Kill(*key))

    def _all(self, held: LocalNode | Gang, message: Kill | Change | Suspend | Show) -> None:
        """Send the same message to each node of an attempt."""
        for node in held.nodes if isinstance(held, Gang) else (held,):
            node.send(frame(message))

    def _forget(self, key: AttemptKey, gang: Gang) -> None:
        """Let nodes forget the ends of a lost gang; the other members are handled when they end."""
        for rank in gang.endings:
            gang.parts[rank].acknowledge(key)

    def _go(self, gang: Gang) -> None:
        if len(gang.ready) == len(gang.parts):
            for node in gang.nodes:
                node.send(frame(Go(*gang.key)))

    def _prepare(self) -> bytes:
        """Make the folder, for its owner only, and the secret in it."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root.chmod(0o700)
        (self._root / "nodes").mkdir(mode=0o700, exist_ok=True)
        if self._account is None:
            (self._root / "fences").mkdir(mode=0o700, exist_ok=True)
        else:
            folders = ("checkpoints", "fences", "dropped")
            prepare(self._ground, self._account, folders)
            attempt(self._account, tuple(self._ground / name for name in folders))
        path = self._root / "secret"
        secret = path.read_bytes() if path.exists() else b""
        if len(secret) != SECRET_BYTES:  # none yet, or the power failed before it was on the disk
            secret = secrets.token_bytes(SECRET_BYTES)
            draft = path.with_suffix(".draft")
            draft.touch(mode=0o600)
            draft.write_bytes(secret)
            draft.replace(path)
        return secret

    def _retire(self) -> None:
        """End nodes of an earlier driver that this one does not have."""
        wanted = {node_folder(self._root, name) for name in self._nodes}
        for folder in (self._root / "nodes").iterdir():
            if folder not in wanted:
                put_down(folder)

    def _adopt(self, welcomes: dict[LocalNode, Welcome]) -> Found:
        """Take over what an earlier driver left."""
        members: dict[AttemptKey, dict[int, tuple[LocalNode, Standing | MemberEnded]]] = {}
        for node, welcome in welcomes.items():
            found: list[Standing | MemberEnded] = [*welcome.standing, *welcome.ended]
            for member in found:
                key = (member.job, member.task, member.attempt)
                members.setdefault(key, {})[member.rank] = (node, member)
        running, ended, behind = [], [], set()
        for key, parts in members.items():
            node, member = parts[min(parts)]
            if member.width == 1:
                self._attempts[key] = node
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
                for node in gang.nodes:
                    node.acknowledge(key)
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
        for fence in (self._ground / "fences").iterdir():  # of tasks that ended while no driver could take it down
            if not any(fence.name.startswith(f"{job}.{task}.") for job, task, _ in running):
                fence.unlink()
        saved = checkpoints.jobs(self._checkpoints)
        self._saving.update(saved)
        return Found(frozenset(running), tuple(ended), saved, frozenset(behind))

    async def _tend(self, node: LocalNode) -> None:
        """Start a node again each time it is lost: at once, or after a while if it keeps dying."""
        least, most = _BACKOFF_SECONDS
        pause = least
        while True:
            since = self._loop.time()
            await node.lost.wait()
            pause = least if self._loop.time() - since > _SETTLED_SECONDS else min(2 * pause, most)
            await node.gone()
            told = False
            while True:
                await asyncio.sleep(pause)
                try:
                    await node.attach()
                    break
                except Exception as error:  # noqa: BLE001  # no fork, no file, ...: it may start another time
                    log.warning("node %s is not back: %s", node.spec.name, error)
                    if not told:
                        told = True
                        said = str(error.args[0] if error.args else repr(error))
                        taken = isinstance(error, NameTaken)
                        name = node.spec.name
                        self._tell(
                            Noticed("name_taken", name, said) if taken else Noticed("node_not_started", name, said)
                        )
                    pause = min(2 * pause, most)
            self._tell(NodeBack(node.spec.name))

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


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task of ours and wait until it has ended."""
    task.cancel()
    await asyncio.wait((task,))


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
