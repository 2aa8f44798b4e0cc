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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import structs

from headway.engines.base import (
    Assignment,
    Files,
    Found,
    Member,
    NodeBack,
    Noticed,
    Report,
)
from headway.engines.local.driver.account import attempt, ground_of
from headway.engines.local.driver.host import node_folder, put_down, secret_in
from headway.engines.local.driver.node import EngineFolders, LocalNode
from headway.engines.local.driver.pins import Pins
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.driver.supervising import AgentEngine
from headway.engines.local.driver.written import attempt_of
from headway.engines.local.shared import checkpoints
from headway.engines.local.shared.accounts import GROUND_FOLDERS, account_of, check_root, prepare_ground
from headway.engines.local.shared.frames import (
    Kill,
    frame,
)
from headway.errors import EngineError, NameTaken, NoSuchOutput
from headway.model.job import JobId
from headway.model.node import NodeSpec

log = logging.getLogger(__name__)

_BACKOFF_SECONDS = (0.05, 10.0)
_SETTLED_SECONDS = 10.0


class LocalEngine(AgentEngine[LocalNode]):
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
        super().__init__(root, settings)
        self._account = account_of(settings.run_as) if settings.run_as else None
        if settings.has_accounts:
            check_root()
        apart = settings.ground or ground_of(root, self._account)
        self._ground = root if self._account is None else apart
        self._accounts = apart if settings.has_accounts else None
        self._uploads: Path | None = None
        self._pins = Pins(os.sched_getaffinity(0) if settings.pin else ())
        self._tending: dict[str, asyncio.Task[None]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="headway-engine")
        self._secret: bytes

    @property
    def ground(self) -> Path:
        """A folder that tasks can get to that name no account; there from the start of the engine on."""
        return self._ground

    @property
    def accounts(self) -> Path | None:
        """A folder that tasks can get to that name an account; None: none does."""
        return self._accounts

    @property
    def owner(self) -> tuple[int, int] | None:
        """User and group of tasks that name no account, if these are not those of this process."""
        return None if self._account is None else (self._account.uid, self._account.gid)

    def prepare_accounts(self) -> None:
        """Make the folder of what is given to tasks that name an account, and is saved by them.

        Raises:
            EngineError: it belongs to another user, or cannot be made.
        """
        assert self._accounts is not None
        prepare_ground(self._accounts, None)

    # Called by the driver

    async def start(self, nodes: Iterable[NodeSpec], report: Callable[[Report], None], files: Files) -> Found:
        """Start an agent for each node, or find the one that an earlier driver started."""
        self._loop = asyncio.get_running_loop()
        self._report = report
        self._uploads = files.folder
        try:
            self._prepare()
            self._secret = secret_in(self._root)
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
        for ground in self._grounds():
            self._take_down_fences(Path(ground), found.running)
        saved = frozenset().union(*(checkpoints.jobs(f"{ground}/checkpoints") for ground in self._grounds()))
        self._saving.update(saved)
        found = structs.replace(found, saved=saved)
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
        """The processors of its slots are given again."""
        super().resize(name, slots, at_once=at_once)
        if (node := self._nodes.get(name)) is not None:
            self._pins.give(node.spec)

    def launch(self, assignment: Assignment) -> None:
        """Tasks open the server's files in their folder."""
        if assignment.files and self._uploads is None:
            raise EngineError("its tasks open the server's files in their folder, and there is none")
        super().launch(assignment)

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """Read the file; what has written nothing yet has none."""
        try:
            return self._written.read(name, offset, size)
        except FileNotFoundError:
            if attempt_of(name) in self._attempts:
                return b""
            raise NoSuchOutput(f"{name} is not kept any more") from None

    def forget(self, job: JobId, task: int | None = None) -> None:
        """Remove a folder, if it exists; that of a task without known checkpoints goes with its job's."""
        if task is not None and job not in self._saving:
            return
        if task is None:
            self._saving.discard(job)
        for ground in self._grounds():
            path = f"{ground}/checkpoints/{job}" if task is None else f"{ground}/checkpoints/{job}/{task}"
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

    # Internal

    def _node(self, spec: NodeSpec) -> LocalNode:
        self.check_fit(spec)
        places = EngineFolders(self._root, self._ground, self._accounts, self._uploads)
        return LocalNode(spec, self, self._secret, self._settings, places, self._account)

    def _prepare(self) -> None:
        """Make the folder, for its owner only."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root.chmod(0o700)
        (self._root / "nodes").mkdir(mode=0o700, exist_ok=True)
        if self._settings.run_as_owner:
            self.prepare_accounts()
        elif self._account is None:
            (self._root / "fences").mkdir(mode=0o700, exist_ok=True)
        else:
            prepare_ground(self._ground, self._account)
            attempt(self._account, tuple(self._ground / name for name in GROUND_FOLDERS))

    def _grounds(self) -> list[str]:
        """The folders of what tasks are given and save: one, and that of each account."""
        own = [] if self._settings.run_as_owner else [str(self._ground)]
        if self._accounts is None or not self._accounts.exists():
            return own
        with os.scandir(self._accounts) as entries:
            return own + [entry.path for entry in entries if entry.name.isdecimal()]

    def _retire(self) -> None:
        """End nodes of an earlier driver that this one does not have."""
        wanted = {node_folder(self._root, name) for name in self._nodes}
        for folder in (self._root / "nodes").iterdir():
            if folder not in wanted:
                put_down(folder)

    def _processors(self, member: Member) -> tuple[int, ...]:
        return self._pins.of(member.node, member.slots)

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
