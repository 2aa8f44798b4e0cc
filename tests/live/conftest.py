"""A real server, as `headway up` starts it, for tests of its clients."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway import Client
from headway.cli.main import main
from headway.engines.local.driver import account as local_account
from headway.engines.local.driver.host import put_down
from headway.engines.local.shared.accounts import account_of
from headway.errors import EngineError, HeadwayError

from ..commands import running_here
from ..waiting import LIMIT, until
from .forking import Forked, can_fork

CLUSTER = """\
[[node]]
name = "n"
slots = 1
count = 2
"""

ONE_NODE = """\
[[node]]
name = "n"
slots = 2
"""

_GUARD = "headway.engines.local.agent.guard"


class Up:
    """A server with two nodes of one slot, or with those of a cluster file. Its data directory outlives it.

    Attributes:
        data: the data directory.
        url, pid: those of the server that runs now.
    """

    def __init__(self, folder: Path, cluster: str = CLUSTER) -> None:
        self.data = folder / "data"
        self.url = ""
        self.pid = 0
        self._cluster = folder / "cluster.toml"
        self._cluster.write_text(cluster)
        self._log = folder / "log"
        self._process: Forked | subprocess.Popen[bytes] | None = None

    def start(self, *words: str, cluster: bool = True) -> None:
        """Start it, and return when it answers; without its cluster file it has the nodes of its last run."""
        named = ("--cluster", str(self._cluster)) if cluster else ()
        command = ["up", "--json", "--data", str(self.data), *named, *words]
        end, out = os.pipe()
        with self._log.open("ab") as log, open(end) as said:
            if can_fork():
                self._process = Forked(command, stdout=out, stderr=log.fileno())
            else:
                self._process = subprocess.Popen([sys.executable, "-m", "headway", *command], stdout=out, stderr=log)
            os.close(out)
            line = said.readline()
        assert line, self._log.read_text()
        place = json.loads(line)
        self.url, self.pid = place["url"], place["pid"]

    def agent(self, node: str) -> psutil.Process:
        """The agent of a node: the only child of its guard."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess):
                words = process.cmdline()
                if _GUARD in words and f'"name":"{node}"' in words[4] and str(self.data) in words[4]:
                    parent = process.parent()
                    if parent is None or parent.cmdline() != words:
                        (agent,) = process.children()
                        return agent
        raise AssertionError(f"node {node} has no guard")

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it in order."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)
            self._process.wait(LIMIT)


def headway(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command within this process, because a process of its own would load everything first."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    status = ended.value.code
    said = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(words, status if isinstance(status, int) else 0, *said)


@contextlib.contextmanager
def python_for(user: str) -> Iterator[None]:
    """Make `sys.executable` a Python that this user can run: this one, or a copy if other users cannot run it."""
    account = account_of(user)
    folder = Path(tempfile.mkdtemp(prefix="headway-python-", dir="/tmp"))
    try:
        with pytest.MonkeyPatch.context() as patch:
            try:
                local_account.attempt(account, ())
            except EngineError:
                _copy_python(folder, patch)
                try:
                    local_account.attempt(account, ())
                except EngineError as error:
                    pytest.skip(f"{error}: neither {sys.executable} nor a copy of it")
            yield
    finally:
        shutil.rmtree(folder)


def _copy_python(folder: Path, patch: pytest.MonkeyPatch) -> None:
    version = "python{}.{}".format(*sys.version_info[:2])
    heavy = shutil.ignore_patterns("test", "tests", "site-packages", "*.opt-?.pyc", "*.a", "idlelib", "config-*")
    shutil.copytree(Path(sysconfig.get_path("stdlib")), folder / "lib" / version, ignore=heavy, symlinks=True)
    for library in Path(sys.base_prefix, "lib").glob("libpython*.so*"):
        shutil.copy(library, folder / "lib")
    (folder / "bin").mkdir()
    shutil.copy(os.path.realpath(sys.executable), folder / "bin" / "python")
    folder.chmod(0o755)
    patch.setattr(sys, "executable", str(folder / "bin" / "python"))
    patch.setenv("LD_LIBRARY_PATH", str(folder / "lib"))
    packages = [str(Path(local_account.__file__).parents[4]), *site.getsitepackages()]
    patch.setenv("PYTHONPATH", os.pathsep.join(packages))


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server for all tests of a file."""
    server = Up(tmp_path_factory.mktemp("up"))
    server.start()
    yield server
    if server._process is not None and server._process.poll() is not None:
        server.start()  # a server that a test killed may have left nodes behind; a new server ends them with itself
    server.stop()


@pytest.fixture(name="headway")
def in_an_empty_folder(
    up: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Any]:
    """Run `headway WORD...` in an empty folder, with the data directory in the environment."""
    monkeypatch.setenv("HEADWAY_DATA_DIR", str(up.data))
    for name in ("HEADWAY_URL", "HEADWAY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield running_here(capfd)
    gate = tmp_path / "gate"
    if gate.exists():  # what waits for it must not be in the way of the tests after it
        gate.unlink()
        with contextlib.suppress(HeadwayError), Client(data=up.data, patience=0) as client:  # a test may end the server
            until(lambda: all(str(gate) not in told for told in running(client)))


@pytest.fixture
def ended_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Agents of workers that are started from now on keep their files in a folder; none of them runs at the end."""
    folder = tmp_path / "there"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield
    for node in folder.glob("headway-*/*/*/nodes/*"):
        put_down(node)


def running(client: Client) -> list[str]:
    """What the jobs that run were submitted as."""
    return [str(client.job(job.id).ran) for job in client.jobs(status="running")]


def submitted(headway: Any, *words: object) -> int:
    ran = headway("submit", *words)
    assert ran.status == 0, ran.err
    return int(ran.out)


def held(headway: Any, tmp_path: Path, *words: object) -> int:
    """A job whose tasks run until the file `gate` is removed."""
    gate = tmp_path / "gate"
    gate.touch()
    return submitted(headway, *words, "--", "sh", "-c", f"touch {gate}.{{i}}; while [ -e {gate} ]; do sleep 0.01; done")
