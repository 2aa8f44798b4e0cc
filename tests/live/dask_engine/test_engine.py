"""The engine for Dask under what happens to real clusters: deaths, silence, restarts, other servers, certificates."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway import __version__
from headway.engines.base import TAIL_MAX, Ended, NodeBack, NodeFound, NodeGone, NodeLost, Noticed, Saved
from headway.engines.dask.engine import APART, DaskEngine, node_name
from headway.engines.dask.settings import DaskSettings
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.trial import FilesInMemory, Trial, calling
from headway.errors import EngineError, InvalidInput, NameTaken
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome

from ...dask_site import Processes, certificates
from ...small import MIB, fill, mounted
from ...waiting import LIMIT, becomes, paths_below
from .conftest import LEASE

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]

Make = Callable[..., DaskEngine]


def add(a: int, b: int) -> int:
    return a + b


def wait_for(path: str) -> int:
    import os
    import time

    with open(path + ".waits", "a") as file:
        file.write(f"{os.getpid()}\n")
    while not os.path.exists(path):
        time.sleep(0.005)
    return os.getpid()


def waiting(door: Path) -> list[int]:
    """The processes that wait for a file: none until they have written it."""
    file = Path(f"{door}.waits")
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def found(trial: Trial, *names: str) -> None:
    """Start without known nodes; these are found."""
    await trial.engine.start((), trial._take, trial._files)
    for name in names:
        assert (await trial.told(NodeFound, lambda told, name=name: told.node.name == name)).node.site == "dask"  # type: ignore[misc]


def let_go(engine: DaskEngine) -> None:
    """The server dies: its connections close, and it does nothing more."""
    for task in (*engine._tasks, *engine._attaching.values(), engine._watching, engine._listening):
        if task is not None:
            task.cancel()
    for node in engine._nodes.values():
        node.up = False
        node.let_go()


async def test_a_worker_that_somebody_adds_is_not_found_meanwhile(
    site: Processes, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.one(a=2)
    engine = make()
    attached = engine._attached

    async def look_and_attach(*node: Any, **how: Any) -> Any:
        engine._compare(await engine._workers())
        return await attached(*node, **how)

    async with Trial(engine, LIMIT) as trial:
        await engine.start((), trial._take, trial._files)
        monkeypatch.setattr(engine, "_attached", look_and_attach)
        await engine.join(NodeSpec("a", slots=2))
        assert not engine._attaching
        assert await trial.value(trial.call(add, 1, 1, node="a")) == 2
        with pytest.raises(NameTaken):
            await engine.join(NodeSpec("a", slots=2))


async def test_every_worker_is_a_node_with_a_slot_for_each_thread(site: Processes, make: Make) -> None:
    site.one(a=2, b=3)
    async with Trial(make(), LIMIT) as trial:
        await trial.engine.start((), trial._take, trial._files)
        told = [(await trial.told(NodeFound)).node for _ in range(2)]
        assert sorted((node.name, node.slots) for node in told) == [("a", 2), ("b", 3)]
        assert not told[0].capabilities.shares_files
        assert await trial.value(trial.call(add, 1, 2, node="b", slots=(2,))) == 3
        gang = trial.launch(calling(add, 1, 1), calling(add, 2, 2), node=("a", "b"), slots=(0, 0))
        assert (await trial.ended(gang)).ending.outcome is Outcome.SUCCEEDED


async def test_over_tls_with_certificates_of_one_authority_alone(
    tmp_path: Path, there: Path, site: Processes, make: Make
) -> None:
    site.tls = certificates(tmp_path / "tls")
    site.one(a=1)
    assert site.address.startswith("tls://")
    async with Trial(make(), LIMIT) as trial:
        await found(trial, "a")
        assert await trial.value(trial.call(add, 1, 2, node="a")) == 3
    others = certificates(tmp_path / "others")
    stranger = DaskEngine(tmp_path / "stranger", DaskSettings(site.address, others, folder=str(there)))
    with pytest.raises(EngineError, match="no Dask scheduler answers at tls:"):
        await stranger.start((), lambda _: None, FilesInMemory())


WITHOUT_HEADWAY = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "headway":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""

OTHER_PYTHON = """
import types
from headway.engines.dask import station

station.sys = types.SimpleNamespace(version_info=types.SimpleNamespace(major=3, minor=9))
"""

OTHER_VERSION = """
from headway.engines.dask import station

station.__version__, station.VERSION = "0.0.1", 0
"""

MUCH_OLDER = """
from headway.engines.dask import station

station.install = lambda dask_worker: {"version": "0.0.1"}
"""


@pytest.mark.parametrize(
    ("preload", "said", "todo"),
    [
        (WITHOUT_HEADWAY, "its worker has no Headway that works: No module named 'headway", "pip install headway=="),
        (OTHER_PYTHON, "its worker has Python 3.9, here is {python}.", "start the worker with this one"),
        (
            OTHER_VERSION,
            "its worker has Headway 0.0.1, whose messages have format 0; here is {headway}",
            "pip install headway==",
        ),
        (MUCH_OLDER, "its worker has another version of Headway, here is {headway}", "pip install headway=="),
    ],
)
async def test_a_worker_that_cannot_be_used_says_why_and_the_others_are(
    site: Processes, make: Make, preload: str, said: str, todo: str
) -> None:
    site.scheduler()
    site.worker("other", preload=preload)
    site.worker("a")
    async with Trial(make(), LIMIT) as trial:
        await found(trial, "a")
        noticed = await trial.told(Noticed)
        assert (noticed.kind, noticed.subject) == ("node_not_started", "other")
        python = "{}.{}".format(*sys.version_info[:2])
        assert said.format(python=python, headway=__version__) in noticed.detail
        assert todo in noticed.detail
        assert await trial.value(trial.call(add, 1, 2, node="a")) == 3
        assert trial.unread == [], "it is said once"


async def test_a_worker_that_dies_is_lost_at_once_and_back_with_its_name(
    tmp_path: Path, site: Processes, make: Make
) -> None:
    site.scheduler()
    for name in ("a", "b"):
        site.worker(name)
    async with Trial(make(lease=LIMIT), LIMIT) as trial:
        await found(trial, "a", "b")
        door = tmp_path / "door"
        trial.call(wait_for, str(door), node="a")
        await becomes(lambda: bool(waiting(door)))
        (orphan,) = waiting(door)
        began = time.monotonic()
        site.kill("a")
        assert (await trial.told(NodeLost)).node == "a"
        assert time.monotonic() - began < LIMIT / 2, "long before its lease would be over"
        assert await trial.value(trial.call(add, 1, 2, node="b")) == 3
        site.worker("a")
        assert (await trial.told(NodeBack)).node == "a"
        assert not runs(orphan), "what ran there has ended before the node is back"
        assert await trial.value(trial.call(add, 2, 2, node="a")) == 4


async def test_a_worker_that_was_told_to_leave_stays_out_until_it_is_let_in(site: Processes, make: Make) -> None:
    """Also when it, or the server, is started again."""
    site.scheduler()
    for name in ("a", "b"):
        site.worker(name)
    engine = make()
    async with Trial(engine, LIMIT) as trial:
        await found(trial, "a", "b")
        await engine.leave("a")
        site.kill("a")
        await becomes_without(engine, "a")
        with pytest.raises(InvalidInput, match=r"slots of node 'a' is 2; allowed: none: its engine says how many"):
            await engine.let_in("a", 2)
        site.worker("a")
        told = await trial.told(Noticed)
        assert (told.kind, told.subject) == ("node_kept_out", "a")
        with pytest.raises(InvalidInput, match=r"slots of node 'a' is 3; allowed: 2, or none"):
            await engine.let_in("a", 3)
        assert trial.unread == []
    async with Trial(again := make(), LIMIT) as trial:
        known = NodeSpec("b", slots=2, site="dask", capabilities=APART, found=True)
        await again.start((known,), trial._take, trial._files)
        assert (await trial.told(Noticed)).kind == "node_kept_out"
        assert await again.let_in("a", 2)
        assert (await trial.told(NodeFound)).node.name == "a"
        assert await trial.value(trial.call(add, 1, 2, node="a")) == 3
        assert trial.unread == []


async def becomes_without(engine: DaskEngine, name: str) -> None:
    """Dask's scheduler has seen that a worker is gone."""
    while name in await engine._workers():
        await asyncio.sleep(0.05)


async def test_a_silent_worker_is_lost_after_its_lease_and_reports_nothing_twice(
    tmp_path: Path, site: Processes, make: Make
) -> None:
    site.scheduler()
    site.worker("a")
    async with Trial(make(), LIMIT) as trial:
        await found(trial, "a")
        door = tmp_path / "door"
        trial.call(wait_for, str(door), node="a")
        await becomes(lambda: bool(waiting(door)))
        site.kill("a", signal.SIGSTOP)
        assert "silent for 3 s" in (await trial.told(NodeLost)).detail
        door.touch()  # it goes on meanwhile, and ends: nobody asks it any more
        site.kill("a", signal.SIGCONT)
        assert (await trial.told(NodeBack)).node == "a"
        again = trial.call(add, 2, 2, node="a", key=(1, 0, 2))
        assert await trial.value(again) == 4


async def test_a_server_that_is_started_again_adopts_what_runs_and_what_has_ended(
    tmp_path: Path, site: Processes, make: Make
) -> None:
    site.one(a=3)
    first = make()
    before = Trial(first, LIMIT)
    await found(before, "a")
    doors = [tmp_path / "one", tmp_path / "two"]
    running, ends = (before.call(wait_for, str(door), node="a", slots=(slot,)) for slot, door in enumerate(doors))
    wrote = before.command("sh", "-c", "yes | head -c 300000", node="a", slots=(2,))
    await before.told(Ended)
    await becomes(lambda: all(waiting(door) for door in doors))
    let_go(first)
    doors[1].touch()
    async with Trial(make(), LIMIT) as trial:
        adopted = await trial.start(NodeSpec("a", slots=3))
        assert running in adopted.running
        assert {running, ends, wrote} == adopted.running | {ended.key for ended in adopted.ended}
        assert adopted.absent == frozenset()
        doors[0].touch()
        assert isinstance(await trial.value(running), int)
        told = [one for one in adopted.ended if one.key == ends]
        ended = told[0] if told else await trial.ended(ends)
        assert ended.ending.outcome is Outcome.SUCCEEDED
        output = (await trial.ended(wrote)).ending.stdout
        assert output is not None
        assert hashlib.sha256(await trial.output(output.name)).hexdigest() == output.sha256
        for key in (running, ends, wrote):
            trial.engine.acknowledge(*key)


async def test_what_another_server_left_is_ended_and_a_node_has_one_server(
    tmp_path: Path, site: Processes, make: Make
) -> None:
    site.one(a=1)
    first = make("first")
    before = Trial(first, LIMIT)
    await found(before, "a")
    door = tmp_path / "door"
    before.call(wait_for, str(door), node="a")
    await becomes(lambda: bool(waiting(door)))
    (pid,) = waiting(door)
    async with Trial(make("second"), LIMIT) as trial:
        await trial.engine.start((), trial._take, trial._files)
        assert "taken by another server of Headway" in (await trial.told(Noticed)).detail
        assert runs(pid)
        let_go(first)
        await trial.told(NodeFound)
        assert not runs(pid)
        assert await trial.value(trial.call(add, 1, 2, node="a")) == 3


async def test_without_a_scheduler_dask_ends_its_workers_and_all_is_well_when_they_are_back(
    tmp_path: Path, site: Processes, make: Make
) -> None:
    site.scheduler()
    port = int(site.address.rpartition(":")[2])
    site.worker("a")
    async with Trial(make(), LIMIT) as trial:
        await found(trial, "a")
        trial.call(wait_for, str(tmp_path / "door"), node="a")
        await becomes(lambda: bool(waiting(tmp_path / "door")))
        (pid,) = waiting(tmp_path / "door")
        site.kill("scheduler")
        assert (await trial.told(NodeLost)).node == "a"
        assert "no Dask scheduler answers" in (await trial.told(Noticed)).detail
        site.scheduler(port)
        site.worker("a")
        assert (await trial.told(NodeBack)).node == "a"
        assert not runs(pid)
        assert await trial.value(trial.call(add, 1, 2, node="a", slots=(1,))) == 3


async def test_a_worker_that_stays_away_has_left_for_good_and_its_agent_ends(
    tmp_path: Path, there: Path, site: Processes
) -> None:
    site.scheduler()
    site.worker("a")
    agents = LocalSettings(lease=LEASE, orphaned_after=2.0)
    settings = DaskSettings(site.address, folder=str(there), period=0.1, gone_after=1.0, agents=agents)
    async with Trial(DaskEngine(tmp_path / "engine", settings), LIMIT) as trial:
        await found(trial, "a")
        (agent,) = trial.engine.pids().values()  # type: ignore[attr-defined]
        site.kill("a")
        assert (await trial.told(NodeLost)).node == "a"
        assert (await trial.told(NodeGone)).node == "a"
        await becomes(lambda: not runs(agent))


async def test_files_of_the_server_reach_a_node_and_outputs_come_back_in_pieces(site: Processes, make: Make) -> None:
    site.one(a=1)
    files = FilesInMemory()
    given = os.urandom(5_000_000)
    name = files.add(given)
    async with Trial(make(), LIMIT, files=files) as trial:
        await found(trial, "a")
        key = trial.command(
            *("sh", "-c", "cat i i > o"),
            node="a",
            inputs={"i": f"headway:{name}/i"},
            outputs={"o": "headway:o"},
            files=True,
            fetches=True,
        )
        ending = (await trial.ended(key)).ending
        assert ending.outcome is Outcome.SUCCEEDED, ending
        kept = ending.outputs["o"].removeprefix("headway:").split("/")[0]
        assert files.contents[kept] == given + given
        missing = trial.command("true", node="a", inputs={"i": f"headway:{'0' * 64}"}, files=True, fetches=True)
        ending = (await trial.ended(missing)).ending
        assert (ending.outcome, "not found" in ending.detail) == (Outcome.REFUSED, True)
        trial.unread.clear()


async def test_output_that_the_full_disk_of_the_server_cannot_take_is_lost_for_that_reason(
    tmp_path: Path, there: Path, site: Processes
) -> None:
    site.one(a=1)
    with mounted(tmp_path / "small") as small:
        settings = DaskSettings(site.address, folder=str(there), period=0.1, agents=LocalSettings(lease=LEASE))
        async with Trial(DaskEngine(small / "engine", settings), LIMIT) as trial:
            await found(trial, "a")
            fill(small / "ballast", MIB)
            output = (await trial.ended(trial.command("sh", "-c", "yes | head -c 5000000", node="a"))).ending.stdout
            assert output is not None
            assert (output.name, output.cut) == ("", 5_000_000 - TAIL_MAX)
            assert output.lost == "the disk of the server was full"


def saves_and_waits(path: str) -> object:
    import os
    import time

    import headway

    begun = headway.resumed(default="nothing")
    if not os.path.exists(path):
        headway.checkpoint("half of it")
        open(path + ".saved", "w").close()
        while not os.path.exists(path):
            time.sleep(0.005)
    return begun


async def test_what_was_saved_on_a_machine_that_is_gone_is_there_for_the_next_attempt_elsewhere(
    tmp_path: Path, there: Path, site: Processes, make: Make
) -> None:
    site.scheduler()
    for name in ("a", "b"):
        site.worker(name)
    async with Trial(make(orphaned_after=2.0), LIMIT) as trial:
        await found(trial, "a", "b")
        door = tmp_path / "door"
        key = trial.call(saves_and_waits, str(door), node="a")
        await trial.told(Saved)
        await becomes(lambda: paths_below(tmp_path / "engine" / "checkpoints", "*.tar"))
        orphan = trial.engine.pids()["a"]  # type: ignore[attr-defined]
        site.kill("a")
        await trial.told(NodeLost)
        await becomes(lambda: not runs(orphan))
        for folder in paths_below(there, "checkpoints"):  # as on another machine
            shutil.rmtree(folder)
        door.touch()
        again = trial.call(saves_and_waits, str(door), node="b", key=(*key[:2], 2))
        assert await trial.value(again) == "half of it"
        trial.engine.forget(key[0])
        await becomes(lambda: not paths_below(tmp_path / "engine" / "checkpoints", "*.tar"))
        trial.disregard(Noticed)


async def test_nothing_of_a_job_is_left_on_a_worker_when_it_is_settled(
    tmp_path: Path, there: Path, site: Processes, make: Make
) -> None:
    """Neither of one that saved nothing, nor of one that was killed before that was told."""
    site.one(a=2)
    async with Trial(make(), LIMIT) as trial:
        await found(trial, "a")
        await trial.ended(trial.command("true", node="a"))
        assert not paths_below(there, "checkpoints/*"), "it saved nothing"
        begun = tmp_path / "begun"
        killed = trial.command("sh", "-c", 'touch $HEADWAY_CHECKPOINT/s "$0"; exec sleep 600', str(begun), node="a")
        await becomes(begun.exists)
        trial.engine.kill(*killed)
        await trial.ended(killed)
        trial.engine.forget(killed[0])
        await becomes(lambda: not paths_below(there, "checkpoints/*"))
        trial.disregard(Saved)


async def test_a_connection_that_is_given_up_is_closed_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Made:
        aborted = False

        def abort(self) -> None:
            self.aborted = True

    async def slowly(address: str, **_: object) -> Made:
        asked.set()
        await shaken.wait()
        return made

    made, asked, shaken = Made(), asyncio.Event(), asyncio.Event()
    monkeypatch.setattr("headway.engines.dask.engine.connect", slowly)
    engine = DaskEngine(tmp_path / "engine", DaskSettings("tcp://127.0.0.1:1"))
    waiting = asyncio.ensure_future(engine.connected("tcp://127.0.0.1:1"))
    await asked.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert not made.aborted
    shaken.set()
    await becomes(lambda: made.aborted)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"address": "127.0.0.1:8786"}, "tcp://HOST:PORT or tls://HOST:PORT"),
        ({"address": "tcp://:8786"}, "tcp://HOST:PORT or tls://HOST:PORT"),
        ({"address": "tcp://h:99999"}, "tcp://HOST:PORT or tls://HOST:PORT"),
        ({"address": "tls://h:1"}, "a folder of certificates with tls://"),
        ({"address": "tcp://h:1", "tls": Path("/there")}, "none with tcp://"),
        ({"address": "tls://h:1", "tls": Path("/nowhere")}, "there is no ca.crt"),
        ({"address": "tcp://h:1", "period": 0}, "0.05 to 60 seconds"),
        ({"address": "tcp://h:1", "folder": "here"}, "a full path on the workers' machines"),
    ],
)
def test_settings_that_cannot_be_are_refused(terms: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match="allowed: ") as refused:
        DaskSettings(**terms)  # type: ignore[arg-type]
    assert said in str(refused.value)


def test_names_of_nodes() -> None:
    assert node_name("gpu-1") == "gpu-1"
    assert node_name(3) == "worker-3"
    assert node_name(3, "far") == "far-3"
    assert node_name("gpu-1", "far") == "gpu-1"
    assert node_name("tls://10.0.0.1:4000") == "tls://10.0.0.1:4000"
    assert node_name("a b\n") == "a_b_"
    assert node_name("") == "worker"
