"""Clusters that a server starts: real ones of Dask, on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from headway.engines.base import NodeBack, NodeFound, NodeLost, Noticed
from headway.engines.dask import started
from headway.engines.dask.engine import DaskEngine
from headway.engines.dask.keeper import KEEPER_LOG, ClusterPlace, Start, class_of
from headway.engines.dask.settings import DaskSettings
from headway.engines.dask.started import StartedCluster
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.trial import FilesInMemory, Trial
from headway.errors import EngineError, InvalidInput

from ...waiting import LIMIT, becomes, free_port, until
from .test_engine import add, let_go

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]

OPTIONS = {"threads_per_worker": 2}


def keepers(folder: Path) -> list[psutil.Process]:
    """The processes that keep clusters of this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "headway.engines.dask.keeper" in words and words[-1].startswith(str(folder)):
            found.append(process)
    return found


def runs(process: psutil.Process) -> bool:
    """Whether this is still there, and not only its status."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.fixture
def make(tmp_path: Path, there: Path) -> Iterator[Callable[..., DaskEngine]]:
    """An engine that starts a cluster; nothing of it is left at the end."""

    def make(start: str = "local", options: dict[str, Any] = OPTIONS, workers: int = 1, **agents: float) -> DaskEngine:
        terms = LocalSettings(**agents)  # type: ignore[arg-type]
        settings = DaskSettings(
            start=start, options=options, workers=workers, folder=str(there), period=0.1, agents=terms
        )
        return DaskEngine(tmp_path / "engine", settings)

    yield make
    for process in keepers(tmp_path):
        for one in (*process.children(recursive=True), process):
            with suppress(psutil.NoSuchProcess):
                one.kill()


async def found(trial: Trial, count: int) -> list[str]:
    await trial.engine.start((), trial._take, trial._files)
    return sorted([(await trial.told(NodeFound)).node.name for _ in range(count)])


async def die(server: StartedCluster) -> None:
    """The server dies, and its connection with it. What it started goes on."""
    await server._hang_up()
    assert server._process is not None
    server._process.returncode = 0  # nobody waits for it
    server._process = None


async def test_it_starts_over_tls_runs_tasks_and_ends_with_the_server(tmp_path: Path, make: Any) -> None:
    async with Trial(make(workers=2), LIMIT) as trial:
        assert await found(trial, 2) == ["worker-0", "worker-1"]
        assert trial.engine._address.startswith("tls://127.0.0.1:")
        assert await trial.value(trial.call(add, 1, 2, node="worker-1", slots=(1,))) == 3
        (keeper,) = keepers(tmp_path)
        workers = keeper.children(recursive=True)
        assert len(workers) >= 2
    assert keepers(tmp_path) == []
    await becomes(lambda: not any(runs(worker) for worker in workers))  # the last ones end when they see that it has


async def test_a_server_that_was_killed_finds_it_again(tmp_path: Path, make: Any) -> None:
    first = make()
    before = Trial(first, LIMIT)
    assert await found(before, 1) == ["worker-0"]
    node = first._nodes["worker-0"].spec
    (keeper,) = keepers(tmp_path)
    let_go(first)
    await die(first._started)
    async with Trial(make(), LIMIT) as trial:
        adopted = await trial.engine.start((node,), trial._take, trial._files)
        assert adopted.absent == frozenset()
        assert keepers(tmp_path) == [keeper]
        assert await trial.value(trial.call(add, 1, 2, node="worker-0")) == 3


async def test_one_that_dies_is_started_again(tmp_path: Path, make: Any) -> None:
    async with Trial(make(), LIMIT) as trial:
        assert await found(trial, 1) == ["worker-0"]
        (keeper,) = keepers(tmp_path)
        for one in (*keeper.children(recursive=True), keeper):
            with suppress(psutil.NoSuchProcess):  # those below one that was killed end by themselves
                one.send_signal(signal.SIGKILL)
        assert (await trial.told(NodeLost)).node == "worker-0"
        assert (await trial.told(NodeBack)).node == "worker-0"
        trial.unread[:] = [one for one in trial.unread if not isinstance(one, Noticed)]  # asked in between, perhaps
        assert keepers(tmp_path) not in ([], [keeper])
        assert await trial.value(trial.call(add, 1, 2, node="worker-0")) == 3


async def test_one_with_other_terms_replaces_it(tmp_path: Path) -> None:
    one = StartedCluster(tmp_path / "c", Start("local", OPTIONS, 1))
    before = await one.place()
    (keeper,) = keepers(tmp_path)
    await die(one)
    other = StartedCluster(tmp_path / "c", Start("local", OPTIONS, 2))
    after = await other.place()
    assert (after.start.workers, before.start.workers) == (2, 1)
    assert keeper not in keepers(tmp_path)
    await other.end()
    assert keepers(tmp_path) == []


async def test_without_a_server_it_ends_by_itself(tmp_path: Path) -> None:
    one = StartedCluster(tmp_path / "c", Start("local", OPTIONS, 1, orphaned_after=0.5))
    await one.place()
    assert one.is_there
    assert len(keepers(tmp_path)) == 1
    await die(one)
    await becomes(lambda: keepers(tmp_path) == [])


async def test_why_it_does_not_start_is_told(tmp_path: Path, make: Any) -> None:
    engine = make(options={"no_such_argument": 1})
    said = (
        r"options is \{'no_such_argument': 1\}; allowed: the arguments of distributed.LocalCluster\nTypeError: .*'no_s"
    )
    with pytest.raises(InvalidInput, match=said) as told:
        await engine.start((), lambda _: None, FilesInMemory())
    assert str(tmp_path / "engine" / "cluster" / KEEPER_LOG) in str(told.value.hint)
    assert "no_such_argument" in (tmp_path / "engine" / "cluster" / KEEPER_LOG).read_text()
    await becomes(lambda: keepers(tmp_path) == [])


async def test_a_process_that_ends_at_once_is_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(started, "_AGAIN_SECONDS", 0.01)
    with pytest.raises(EngineError, match="ends with status 1"):
        await StartedCluster(tmp_path, Start("local")).place()


async def test_a_cluster_of_another_class_is_scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of dask-jobqueue: without workers at first, over TCP unless they are told otherwise."""
    (tmp_path / "clusters_of_ours.py").write_text(
        "from distributed import LocalCluster\n"
        "class Queue(LocalCluster):\n"
        "    def __init__(self, cores):\n"
        "        super().__init__(n_workers=0, threads_per_worker=cores, dashboard_address=None)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    one = StartedCluster(tmp_path / "c", Start("clusters_of_ours.Queue", {"cores": 3}, 2))
    place = await one.place()
    assert place.address.startswith("tcp://127.0.0.1:")
    assert place.tls == ""
    engine = DaskEngine(tmp_path / "e", DaskSettings(place.address, folder=str(tmp_path / "t"), period=0.1))
    async with Trial(engine, LIMIT) as trial:
        await trial.engine.start((), trial._take, trial._files)
        told = [(await trial.told(NodeFound)).node.slots for _ in range(2)]
        assert told == [3, 3]
    await one.end()


def test_names_of_classes() -> None:
    assert class_of("local") == ("distributed", "LocalCluster")
    assert class_of("dask_jobqueue.SLURMCluster") == ("dask_jobqueue", "SLURMCluster")
    assert msgspec.json.decode(msgspec.json.encode(ClusterPlace(Start("local"))), type=ClusterPlace).start == Start(
        "local"
    )


def test_an_address_and_a_start_contradict_each_other() -> None:
    with pytest.raises(InvalidInput, match="none where a cluster is started"):
        DaskSettings("tcp://a:1", start="local")


def test_notices_name_what_is_started(make: Any) -> None:
    engine = make()
    assert engine._whose == "local"
    assert Noticed("engine_gone", engine._whose, "").subject == "local"


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """How this machine is connected to through its own daemon of SSH, with keys made for it."""
    pytest.importorskip("asyncssh", reason="it is not installed (pip install asyncssh)")
    daemon = shutil.which("sshd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if daemon is None:
        pytest.skip("sshd is not installed; on Debian: apt-get install openssh-server")
    folder, port = tmp_path / "ssh", free_port()
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    lines = (
        *(f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/host", f"PidFile {folder}/pid"),
        *(f"AuthorizedKeysFile {folder}/user.pub", "StrictModes no", "UsePAM no", "PermitRootLogin yes"),
    )
    (folder / "conf").write_text("\n".join(lines) + "\n")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it separates its privileges
    with subprocess.Popen([daemon, "-D", "-e", "-f", folder / "conf"], stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: listens(port))
            yield {"port": port, "known_hosts": None, "client_keys": [str(folder / "user")]}
        finally:
            process.terminate()


def listens(port: int) -> bool:
    """Whether somebody accepts connections at a port of this machine."""
    with socket.socket() as there:
        return there.connect_ex(("127.0.0.1", port)) == 0


async def test_it_starts_over_ssh(make: Any, ssh: dict[str, Any]) -> None:
    options = {
        "hosts": ["127.0.0.1"] * 3,
        "connect_options": ssh,
        "worker_options": {"nthreads": 2, "dashboard": False},
        "scheduler_options": {"dashboard": False},
        "remote_python": sys.executable,
    }
    async with Trial(make("ssh", options, workers=0), LIMIT) as trial:
        await trial.engine.start((), trial._take, trial._files)
        nodes = [(await trial.told(NodeFound)).node for _ in range(2)]
        assert [node.slots for node in nodes] == [2, 2]
        keys = [trial.call(add, 1, number, node=node.name) for number, node in enumerate(nodes)]
        assert [await trial.value(key) for key in keys] == [1, 2]
