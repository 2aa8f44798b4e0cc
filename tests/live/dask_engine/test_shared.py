"""The engine for Dask where its site says that paths mean the same on the workers' machines as on the server's."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headway import Client, Job, Task
from headway.engines.base import NodeFound, NodeLost, Noticed, Saved, Started
from headway.engines.dask.engine import DaskEngine
from headway.engines.dask.settings import DaskSettings
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.trial import FilesInFolder, Trial
from headway.errors import EngineError
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome

from ...dask_site import Processes
from ...waiting import LIMIT, becomes, paths_below, until
from ..conftest import Up
from .conftest import LEASE
from .test_engine import add, let_go, runs, saves_and_waits, wait_for, waiting

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]

Make = Callable[..., DaskEngine]


SLOW = """
import os
import time
from headway.engines.dask import sharing, station

station._LOOK_SECONDS = 2.0
looks = sharing.__dict__.setdefault("looks", sharing.trouble)  # a worker may load this twice

def trouble(offered):
    while os.path.exists({0!r}):
        time.sleep(0.05)
    return looks(offered)

sharing.trouble = trouble
"""
"""A worker whose look at the shared folders takes as long as a file is there."""


class InPlace(FilesInFolder):
    """Files of a server of which none may be sent."""

    async def read(self, name: str, offset: int, size: int) -> bytes:
        raise AssertionError(f"{name} is sent to a node")

    async def put(self, name: str, parts: AsyncIterator[bytes]) -> None:
        raise AssertionError(f"{name} is fetched from a node")


class Blind:
    """Where a worker sees an empty folder instead of the server's: a machine that does not share it."""

    def __init__(self, hidden: Path) -> None:
        self.far = "127.0.0.1"
        self._hidden = hidden
        made = subprocess.run(self.within("true"), capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"a mount namespace can be made by root alone, with CAP_SYS_ADMIN: {made.stderr.strip()}")

    def within(self, *words: str) -> list[str]:
        """A command that runs this one there."""
        hides = 'mount -t tmpfs headway-test "$0" && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", hides, str(self._hidden), *words]


@pytest.fixture
def make(tmp_path: Path, there: Path, site: Processes) -> Make:
    """An engine for this cluster; the next one is that of a server that was started again."""
    (tmp_path / "engine").mkdir()

    def make(name: str = "engine", *, shared: bool = True, orphaned_after: float = 2.0) -> DaskEngine:
        agents = LocalSettings(lease=LEASE, orphaned_after=orphaned_after)
        return DaskEngine(
            tmp_path / name,
            DaskSettings(site.address, shared=shared, folder=str(there), period=0.1, agents=agents),
        )

    return make


async def found(trial: Trial, *names: str) -> dict[str, NodeSpec]:
    """Start without known nodes; these are found."""
    await trial.engine.start((), trial._take, trial._files)
    nodes = [(await trial.told(NodeFound)).node for _ in names]
    assert sorted(node.name for node in nodes) == sorted(names)
    return {node.name: node for node in nodes}


async def test_files_and_output_are_used_in_place(tmp_path: Path, there: Path, site: Processes, make: Make) -> None:
    site.one(a=2)
    files = InPlace(tmp_path / "uploads")
    given = os.urandom(3_000_000)
    name = files.add(given)
    async with Trial(make(), LIMIT, files=files) as trial:
        node = (await found(trial, "a"))["a"]
        assert node.capabilities.lacking == ()
        assert await trial.value(trial.call(add, 1, 2, node="a")) == 3
        work = tmp_path / "work"
        work.mkdir()
        key = trial.command(
            *("sh", "-c", "pwd > here; cat i i > o; cat o"),
            node="a",
            inputs={"i": f"headway:{name}/i"},
            outputs={"o": "headway:o", "here": work.joinpath("here").as_uri()},
            files=True,
            fetches=True,
        )
        ending = (await trial.ended(key)).ending
        assert ending.outcome is Outcome.SUCCEEDED, ending
        kept = hashlib.sha256(given + given).hexdigest()
        assert ending.outputs["o"] == f"headway:{kept}/o"
        assert files.folder.joinpath(kept).read_bytes() == given + given, "the task has put it there"
        assert work.joinpath("here").read_text().strip().startswith(str(there)), "what it gets is on its own disk"
        assert ending.stdout is not None
        assert ending.stdout.name.startswith(str(tmp_path / "engine" / "output")), "and what it writes is here"
        assert await trial.output(ending.stdout.name) == given + given
        cwd = trial.command("sh", "-c", "echo it > was; pwd", node="a", cwd=str(work), stdout="said")
        assert (await trial.ended(cwd)).ending.outcome is Outcome.SUCCEEDED
        assert (work / "was").read_text() == "it\n"
        assert (work / "said").read_text() == f"{work}\n"
        assert paths_below(there, "*/uploads/*") == []
        assert paths_below(there, "*/output/*") == []
        trial.disregard(Started)


async def test_what_a_task_writes_can_be_read_while_it_runs(tmp_path: Path, site: Processes, make: Make) -> None:
    site.one(a=1)
    async with Trial(make(), LIMIT, files=InPlace(tmp_path / "uploads")) as trial:
        await found(trial, "a")
        key = trial.command("sh", "-c", "echo begun; exec sleep 600", node="a")
        name = trial.engine.show(*key, None, "stdout")
        assert await trial.engine.read(name, 0, 100) in (b"", b"begun\n")
        await becomes(lambda: any(path.read_bytes() for path in paths_below(tmp_path / "engine" / "output", "*.out")))
        assert await trial.engine.read(name, 0, 100) == b"begun\n"
        trial.engine.kill(*key)
        await trial.ended(key)


async def test_what_was_saved_is_there_for_the_next_attempt_elsewhere_without_being_sent(
    tmp_path: Path, there: Path, site: Processes, make: Make
) -> None:
    site.scheduler()
    for name in ("a", "b"):
        site.worker(name)
    async with Trial(make(), LIMIT, files=InPlace(tmp_path / "uploads")) as trial:
        await found(trial, "a", "b")
        door, saved = tmp_path / "door", tmp_path / "engine" / "checkpoints"
        key = trial.call(saves_and_waits, str(door), node="a")
        await trial.told(Saved)
        orphan = trial.engine.pids()["a"]  # type: ignore[attr-defined]
        site.kill("a")
        await trial.told(NodeLost)
        await becomes(lambda: not runs(orphan))
        door.touch()
        again = trial.call(saves_and_waits, str(door), node="b", key=(*key[:2], 2))
        assert await trial.value(again) == "half of it"
        assert not paths_below(tmp_path, "*.tar")
        assert not paths_below(there, "checkpoints/*")
        assert list(saved.iterdir()) == [saved / str(key[0])]
        trial.engine.forget(key[0])
        await becomes(lambda: not list(saved.iterdir()))


async def test_a_worker_that_does_not_see_the_folder_says_so_and_has_files_sent(
    tmp_path: Path, there: Path, site: Processes, make: Make
) -> None:
    files = FilesInFolder(tmp_path / "uploads")
    site.scheduler()
    site.worker("a")
    site.worker("blind", apart=Blind(tmp_path / "engine"))  # type: ignore[arg-type]
    name = files.add(b"given")
    async with Trial(make(), LIMIT, files=files) as trial:
        nodes = await found(trial, "a", "blind")
        assert {name: node.capabilities.lacking for name, node in nodes.items()} == {
            "a": (),
            "blind": ("shares_files",),
        }
        noticed = await trial.told(Noticed)
        assert (noticed.kind, noticed.subject) == ("node_not_sharing", "blind")
        assert f"{tmp_path}/engine/word cannot be read there: No such file or directory" in noticed.detail
        key = trial.command(
            *("sh", "-c", "cat i i > o; cat i"),
            node="blind",
            inputs={"i": f"headway:{name}/i"},
            outputs={"o": "headway:o"},
            files=True,
            fetches=True,
        )
        ending = (await trial.ended(key)).ending
        assert ending.outcome is Outcome.SUCCEEDED, ending
        assert paths_below(there, f"uploads/{name}"), "it was sent"
        assert files.folder.joinpath(hashlib.sha256(b"givengiven").hexdigest()).read_bytes() == b"givengiven"
        trial.disregard(Started)
        assert trial.unread == [], "it is said once"
        assert set(trial.engine._not_sharing) == {"blind"}  # type: ignore[attr-defined]
        site.kill("blind")
        await trial.told(NodeLost)
        site.worker("blind")
        assert (await trial.told(NodeFound)).node.capabilities.lacking == (), "its folder is mounted now"
        assert trial.engine._not_sharing == {}  # type: ignore[attr-defined]
        await becomes(lambda: not paths_below(there, f"uploads/{name}"))


@pytest.mark.parametrize(("first", "second"), [("a", "blind"), ("blind", "a")])
async def test_what_was_saved_reaches_nodes_that_share_and_others(
    tmp_path: Path, site: Processes, make: Make, first: str, second: str
) -> None:
    site.scheduler()
    site.worker("a")
    site.worker("blind", apart=Blind(tmp_path / "engine"))  # type: ignore[arg-type]
    async with Trial(make(), LIMIT, files=InPlace(tmp_path / "uploads")) as trial:
        await found(trial, "a", "blind")
        door = tmp_path / "door"
        key = trial.call(saves_and_waits, str(door), node=first)
        await trial.told(Saved)
        if first == "blind":
            await becomes(lambda: paths_below(tmp_path / "engine" / "checkpoints", "*.tar"))
        trial.engine.kill(*key)
        await trial.ended(key)
        door.touch()
        again = trial.call(saves_and_waits, str(door), node=second, key=(*key[:2], 2))
        assert await trial.value(again) == "half of it"
        trial.disregard(Noticed, Saved)


async def reads(trial: Trial, name: str) -> None:
    """Node a opens a file that the server keeps."""
    key = trial.command("cat", "i", node="a", inputs={"i": f"headway:{name}/i"}, files=True, fetches=True)
    assert (await trial.ended(key)).ending.outcome is Outcome.SUCCEEDED
    trial.disregard(Started)


async def test_a_restart_keeps_what_runs_and_that_its_node_shares(tmp_path: Path, site: Processes, make: Make) -> None:
    site.one(a=2)
    first, files = make(), InPlace(tmp_path / "uploads")
    before = Trial(first, LIMIT, files=files)
    known = [_as_known(node) for node in (await found(before, "a")).values()]
    door = tmp_path / "door"
    key = before.call(wait_for, str(door), node="a")
    wrote = before.command("sh", "-c", "yes | head -c 300000", node="a", slots=(1,))
    await becomes(lambda: bool(waiting(door)))
    await before.ended(wrote)
    let_go(first)
    async with Trial(make(), LIMIT, files=files) as trial:
        adopted = await trial.start(*known)
        assert (adopted.running, adopted.absent) == (frozenset({key}), frozenset())
        (ended,) = adopted.ended
        assert ended.ending.stdout is not None
        assert len(await trial.output(ended.ending.stdout.name)) == 300_000
        door.touch()
        assert isinstance(await trial.value(key), int)
        await reads(trial, files.add(b"given"))


@pytest.mark.parametrize("shared", [True, False])
async def test_a_node_whose_site_says_otherwise_after_a_restart_is_another_one(
    tmp_path: Path, site: Processes, make: Make, shared: bool
) -> None:
    site.one(a=1)
    first, files = make(shared=shared), FilesInFolder(tmp_path / "uploads")
    before = Trial(first, LIMIT, files=files)
    known = [_as_known(node) for node in (await found(before, "a")).values()]
    door = tmp_path / "door"
    before.call(wait_for, str(door), node="a")
    await becomes(lambda: bool(waiting(door)))
    let_go(first)
    async with Trial(make(shared=not shared), LIMIT, files=files) as trial:
        adopted = await trial.start(*known)
        assert (adopted.running, adopted.absent) == (frozenset(), frozenset({"a"}))
        node = (await trial.told(NodeFound)).node
        assert node.capabilities.shares_files is not shared
        assert await trial.value(trial.call(add, 1, 2, node="a")) == 3


async def test_an_agent_that_shares_keeps_what_it_runs_if_its_folder_is_slow_and_a_new_one_does_without(
    tmp_path: Path, site: Processes, make: Make
) -> None:
    slow = tmp_path / "slow"
    site.scheduler()
    site.worker("a", preload=SLOW.format(str(slow)))
    first, files = make(orphaned_after=LIMIT), FilesInFolder(tmp_path / "uploads")
    before = Trial(first, LIMIT, files=files)
    known = [_as_known(node) for node in (await found(before, "a")).values()]
    assert known[0].capabilities.shares_files
    door = tmp_path / "door"
    key = before.call(wait_for, str(door), node="a")
    await becomes(lambda: bool(waiting(door)))
    let_go(first)
    slow.touch()
    async with Trial(make(), LIMIT, files=files) as trial:
        adopted = await trial.start(*known)
        assert (adopted.running, adopted.absent) == (frozenset({key}), frozenset())
        door.touch()
        assert isinstance(await trial.value(key), int)
        await reads(trial, files.add(b"given"))
        assert trial.unread == [], "it still shares"
        site.kill("a")
        await trial.told(NodeLost)
        site.worker("a", preload=SLOW.format(str(slow)))
        noticed = await trial.told(Noticed)
        assert noticed.detail.endswith(f": {tmp_path}/engine does not answer there within 2 s")
        assert (await trial.told(NodeFound)).node.capabilities.lacking == ("shares_files",)
        assert await trial.value(trial.call(add, 1, 2, node="a")) == 3


async def test_a_node_that_uses_the_folder_of_before_a_move_is_another_one(
    tmp_path: Path, site: Processes, make: Make
) -> None:
    site.one(a=1)
    first, files = make(), InPlace(tmp_path / "uploads")
    before = Trial(first, LIMIT, files=files)
    known = [_as_known(node) for node in (await found(before, "a")).values()]
    door = tmp_path / "door"
    before.call(wait_for, str(door), node="a")
    await becomes(lambda: bool(waiting(door)))
    let_go(first)
    (tmp_path / "engine").rename(tmp_path / "moved")
    async with Trial(make("moved"), LIMIT, files=files) as trial:
        adopted = await trial.start(*known)
        assert (adopted.running, adopted.absent) == (frozenset(), frozenset())
        ending = (await trial.ended(trial.command("sh", "-c", "yes | head -c 300000", node="a"))).ending
        assert ending.stdout is not None
        assert ending.stdout.name.startswith(str(tmp_path / "moved" / "output"))
        assert len(await trial.output(ending.stdout.name)) == 300_000
        assert not (tmp_path / "engine").exists()
        trial.disregard(Started)


async def test_a_server_whose_files_are_in_no_folder_shares_nothing(site: Processes, make: Make) -> None:
    site.address = "tcp://127.0.0.1:1"
    with pytest.raises(EngineError, match="the files that the server keeps are in no folder"):
        await Trial(make(), LIMIT).start()


def _as_known(node: NodeSpec) -> NodeSpec:
    """A node as the journal has it when an engine has found it."""
    return replace(node, found=True)


@pytest.mark.usefixtures("ended_agents")
def test_a_server_keeps_over_a_restart_which_nodes_share(tmp_path: Path) -> None:
    up, site = Up(tmp_path), Processes(tmp_path / "dask")
    up.data.mkdir(mode=0o700)
    site.scheduler()
    site.worker("a")
    site.worker("blind", apart=Blind(up.data))  # type: ignore[arg-type]

    def cannot() -> dict[str, tuple[str, ...]]:
        with Client(data=up.data) as client:
            return {node.name: tuple(node.cannot) for node in client.nodes() if node.up}

    try:
        for words in (("--dask", site.address, "--dask-shared"), ()):
            up.start(*words, cluster=False)
            until(lambda: cannot() == {"a": ("spans",), "blind": ("shares_files", "spans")})
            with Client(data=up.data) as client:
                noticed = [one for one in client.incidents() if one.kind == "node_not_sharing"]
                assert {one.subject for one in noticed} == {"blind"}
                assert "/word cannot be read there: No such file or directory" in noticed[0].detail
                given = client.upload(__file__)
                puts = Task.command("sh", "-c", "cat i > o; sleep 0.2", inputs={"i": given}, outputs={"o": "headway:o"})
                waiter = client.submit(Job("puts", [puts] * 8))
                waiter.result(LIMIT)
                kept = {result.ending.outputs["o"] for result in client.results(waiter.job)}
                assert kept == {given.url.rpartition("/")[0] + "/o"}
            up.kill()
    finally:
        up.kill()
        site.end()
