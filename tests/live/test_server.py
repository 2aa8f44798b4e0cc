"""`headway up` as a process: how it starts, what prevents its start, how it ends, what it costs when idle."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway import wire
from headway.client.client import Client
from headway.client.job import Job, Task
from headway.errors import HeadwayError, InvalidInput
from headway.live.settings import DriverSettings
from headway.live.store.journal import FILE
from headway.server import RunningServer, Settings, run
from headway.testing import node

from ..waiting import LIMIT, free_port, until

NODES = (node("a"),)

SERVE = """
import logging
import sys
from pathlib import Path
from headway.errors import HeadwayError
from headway.live.settings import DriverSettings
from headway.server import Settings, run
from headway.testing import node
logging.basicConfig()
try:
    run(
        Settings(Path(sys.argv[1]), (node("a"),), port=int(sys.argv[2]) if sys.argv[2] != "None" else None),
        lambda running: print(running.url, running.token_file, running.pid, flush=True),
    )
except HeadwayError as error:
    sys.exit(str(error))
"""


def begin(data: Path, port: int | None = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SERVE, str(data), str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@contextmanager
def up(data: Path, port: int | None = 0) -> Iterator[subprocess.Popen[str]]:
    """A server that answers. It is killed at the end if it still runs."""
    process = begin(data, port)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        said = process.stdout.readline()
        assert said, process.stderr.read()
        url, token_file, pid = said.split()
        assert (data / "url").read_text() == f"{url}\n"
        assert (Path(token_file), int(pid)) == (data / "token", process.pid)
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(data: Path, route: wire.Route, body: Any = None) -> Any:
    request = urllib.request.Request(
        (data / "url").read_text().strip() + route.path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {(data / 'token').read_text().strip()}", "Content-Type": wire.JSON},
        method=route.method,
    )
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return json.load(answer)


def left_of(data: Path) -> list[int]:
    """Processes that belong to a server on this directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(data) in " ".join((*process.environ().values(), *process.cmdline())) and process.pid != os.getpid():
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def nap(seconds: float) -> str:
    time.sleep(seconds)
    return "rested"


def test_its_nodes_end_although_a_part_of_it_fails_at_the_end(tmp_path: Path) -> None:
    fails = """
from headway.live.checker import Checker
def fail(checker):
    raise ArithmeticError("the checker cannot end")
Checker.stop = fail
"""
    process = subprocess.Popen(
        [sys.executable, "-c", fails + SERVE, str(tmp_path), "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline()
        nodes = psutil.Process(process.pid).children(recursive=True)
        assert len(nodes) >= 2
        process.terminate()
        _, said = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.communicate()
    assert "the checker cannot end" in said
    assert not [one for one in nodes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, "shutdown"])
def test_it_starts_serves_and_ends_in_order(tmp_path: Path, end: signal.Signals | str) -> None:
    data = tmp_path / "data"
    with up(data) as server:
        assert (data / "token").stat().st_mode & 0o777 == 0o600
        assert re.fullmatch(r"[\w-]{43}\n", (data / "token").read_text())
        with Client(data=data) as client:
            assert client.submit(Job("quick", [Task(nap, 0.0)])).result() == ["rested"]
            waiter = client.submit(Job("slow", [Task(nap, 60.0), Task(nap, 0.0)]))
            until(lambda: ask(data, wire.STATISTICS)["running"])
            if isinstance(end, str):
                ask(data, wire.SHUTDOWN, {})
            else:
                server.send_signal(end)
            # The client waits until it is started again. The stop does not wait for what ran.
            assert server.wait(LIMIT) == 0
            assert not waiter.done()
    assert not (data / "url").exists()
    assert left_of(data) == []
    with closing(sqlite3.connect(data / FILE)) as db:
        assert db.execute("SELECT value FROM meta WHERE name = 'clean'").fetchone() == (1,)
        assert db.execute("SELECT count(*) FROM jobs WHERE ended IS NULL").fetchone() == (1,)


def test_the_token_stays_the_same(tmp_path: Path) -> None:
    with up(tmp_path):
        token = (tmp_path / "token").read_text()
    with up(tmp_path):
        assert (tmp_path / "token").read_text() == token


def refused(data: Path, port: int = 0) -> str:
    """Why a server does not start. It must leave nothing running."""
    process = begin(data, port)
    _, error = process.communicate(timeout=LIMIT)
    assert process.returncode == 1, error
    assert "Traceback" not in error
    return error


def test_a_second_one_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with up(tmp_path) as server:
        assert f"{tmp_path} is in use by the process {server.pid}\n" in refused(tmp_path)
        assert ask(tmp_path, wire.HEALTH)


def test_a_port_in_use_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = refused(tmp_path, port)
    assert f"port {port} of 127.0.0.1 is in use" in error
    assert "--port" in error
    assert not (tmp_path / "engine").exists()


def url_in(data: Path) -> str:
    return (data / "url").read_text().strip()


def test_a_server_keeps_its_port_until_it_is_told_another(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "port").write_text(f"{port}\n")  # as if the server had chosen it
    with up(tmp_path, None):
        assert url_in(tmp_path).endswith(f":{port}")
    with up(tmp_path, None):
        assert url_in(tmp_path).endswith(f":{port}")
    with socket.create_server(("127.0.0.1", port)):
        other = free_port()
    with up(tmp_path, other):
        assert url_in(tmp_path).endswith(f":{other}")
    with up(tmp_path, None):
        assert url_in(tmp_path).endswith(f":{other}")


@pytest.mark.thorough
def test_a_port_that_somebody_took_meanwhile_is_said_and_had_again_later(tmp_path: Path) -> None:
    port = free_port()
    with up(tmp_path, port):
        url = url_in(tmp_path)
    with socket.create_server(("127.0.0.1", port)), up(tmp_path, None) as meanwhile:
        assert url_in(tmp_path) != url
        assert [one["subject"] for one in moved(tmp_path)] == [url_in(tmp_path)]
        os.kill(meanwhile.pid, signal.SIGTERM)
        assert meanwhile.stderr is not None
        assert f"port {port} of 127.0.0.1, which this server had before, is in use" in meanwhile.stderr.read()
    with up(tmp_path, None):
        assert url_in(tmp_path) == url


@pytest.mark.parametrize(
    "text", ["70000", "\xe9", pytest.param("no port", marks=pytest.mark.slow), pytest.param("", marks=pytest.mark.slow)]
)
def test_a_file_of_the_port_that_names_none_is_reported_and_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "port").write_text(text, "latin-1")
    with up(tmp_path, None) as first:
        url = url_in(tmp_path)
        (said,) = moved(tmp_path)
        assert (said["subject"], "allowed: a port, 1 to 65535" in said["detail"]) == (url, True)
        os.kill(first.pid, signal.SIGTERM)
        assert first.stderr is not None
        assert f"the port that this server had before is not known: {tmp_path / 'port'} says" in first.stderr.read()
    with up(tmp_path, None):
        assert url_in(tmp_path) == url
        assert len(moved(tmp_path)) == 1


def test_a_file_of_the_port_that_can_be_neither_read_nor_replaced_keeps_no_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "port" / "within").mkdir(parents=True)
    with up(tmp_path, None):
        (said,) = moved(tmp_path)
        assert "port cannot be read" in said["detail"]


def moved(data: Path) -> list[dict[str, Any]]:
    """What the server says of ports that it had to change."""
    return [one for one in ask(data, wire.INCIDENTS)["incidents"] if one["kind"] == "port_changed"]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"port": 70000}, "port is 70000; allowed: 0"),
        ({"host": "no such host"}, "cannot listen on no such host"),
        ({"host": "192.0.2.1"}, "Name an address of this machine with --host"),
        ({"driver": DriverSettings("easi")}, "'easi'"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, settings: dict[str, Any], error: str) -> None:
    said: list[RunningServer] = []
    with pytest.raises(HeadwayError, match=re.escape(error)):
        run(Settings(tmp_path / "data", NODES, **settings), said.append)
    assert said == []


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    (tmp_path / "token").chmod(0o600)
    with pytest.raises(HeadwayError, match=r"token is empty"):
        run(Settings(tmp_path, NODES))
    assert issubclass(InvalidInput, HeadwayError)


def test_a_token_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    (tmp_path / "token").chmod(0o600)
    with pytest.raises(HeadwayError, match=r"token holds no token"):
        run(Settings(tmp_path, NODES))


def test_a_token_that_others_may_know_keeps_it_from_starting_and_its_directory_is_closed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "token").chmod(0o644)
    tmp_path.chmod(0o755)
    error = refused(tmp_path)
    assert "token has the mode 0644: its token may be known to others" in error
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_what_cannot_be_written_at_the_start_is_said(tmp_path: Path) -> None:
    (tmp_path / ".url").mkdir()
    with pytest.raises(HeadwayError, match=r"cannot write .*url: Is a directory"):
        run(Settings(tmp_path, NODES))


def test_a_journal_with_a_broken_page_is_refused(tmp_path: Path) -> None:
    with up(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as db:
        (size,) = db.execute("PRAGMA page_size").fetchone()
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'snapshots'").fetchone()
    with open(tmp_path / "journal.sqlite", "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with pytest.raises(
        HeadwayError, match=r"the journal in .* is damaged: journal.sqlite: .*the table snapshots cannot be read"
    ):
        run(Settings(tmp_path, NODES))


def test_idle_it_does_nothing(tmp_path: Path) -> None:
    """Measures processor time of all its processes, which does not depend on how busy the machine is."""
    with up(tmp_path) as server, Client(data=tmp_path) as client:
        client.submit(Job("first", [Task(nap, 0.0)])).result()
        waiter = client.submit(Job("second", [Task(nap, 600.0)]))
        until(lambda: client.job(waiter.job).attempts)

        def used() -> float:
            total = 0.0
            for pid in {server.pid, *left_of(tmp_path)}:
                with suppress(psutil.NoSuchProcess):
                    total += sum(psutil.Process(pid).cpu_times()[:2])
            return total

        def idle() -> bool:
            before = used()
            time.sleep(2)
            return used() - before <= 0.05

        until(idle)  # once the work of the start and of the new task is done
        waiter.cancel()
