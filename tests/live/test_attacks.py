"""Callers without a token send endless data to a real server: others are answered, and its memory does not grow."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from headway import wire
from headway.client.client import Client
from headway.client.job import Job, Task

from ..waiting import LIMIT
from .conftest import Up

QUESTIONS = 60
"""How many are answered while each attack goes on."""

CALLERS = 4

PIECE = 64 << 10


def post(*headers: str) -> bytes:
    return "\r\n".join(("POST /v1/jobs HTTP/1.1", "Host: x", *headers, "", "")).encode()


ATTACKS: dict[str, tuple[bytes, bytes]] = {
    "a header without end": (b"GET / HTTP/1.1\r\nHost: ", b"x" * PIECE),
    "headers without end": (b"GET / HTTP/1.1\r\n", b"A: b\r\n" * (PIECE // 6)),
    "a url without end": (b"GET /", b"x" * PIECE),
    "empty lines": (b"", b"\r\n" * (PIECE // 2)),
    "a body nobody wants": (post("Content-Length: 99999999999"), b"x" * PIECE),
    "chunks of a byte": (post("Transfer-Encoding: chunked"), b"1\r\nx\r\n" * (PIECE // 6)),
    "an extension without end": (post("Transfer-Encoding: chunked") + b"1;", b"x" * PIECE),
    "trailers without end": (post("Transfer-Encoding: chunked") + b"0\r\n", b"A: b\r\n" * (PIECE // 6)),
    "a pipeline": (b"", b"GET /health HTTP/1.1\r\n\r\n" * (PIECE // 26)),
    "a pipeline behind a body": (post("Content-Length: 1"), b"GET /v1/jobs HTTP/1.1\r\n\r\n" * (PIECE // 27)),
    "garbage": (b"", b"\x16\x03\x01\x02\x00" * (PIECE // 5)),
}


def attack(address: tuple[str, int], first: bytes, then: bytes, over: threading.Event) -> None:
    """Send, and connect again whenever the server hangs up."""
    while not over.is_set():
        with contextlib.suppress(OSError), socket.create_connection(address, LIMIT) as line:
            line.settimeout(0.2)
            line.sendall(first)
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    line.sendall(then)


def address_of(server: Up) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


@contextlib.contextmanager
def under(task: Callable[[threading.Event], None], callers: int = CALLERS) -> Iterator[None]:
    over = threading.Event()
    threads = [threading.Thread(target=task, args=(over,)) for _ in range(callers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def answers(server: Up, questions: int) -> None:
    """See that so many requests in a row are answered within a minute. With the defect each took seconds."""
    end = time.monotonic() + LIMIT
    for _ in range(questions):
        assert time.monotonic() < end
        with urllib.request.urlopen(server.url + wire.HEALTH.path, timeout=LIMIT) as answer:
            assert json.load(answer)["version"]
        time.sleep(0.01)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ATTACKS)
def test_callers_without_a_token_do_not_delay_others(up: Up, name: str) -> None:
    process = psutil.Process(up.pid)
    answers(up, 10)
    before = process.memory_info().rss
    with under(lambda over: attack(address_of(up), *ATTACKS[name], over)):
        answers(up, QUESTIONS)
        most = process.memory_info().rss
    assert most - before < 40 << 20


def test_a_large_body_of_somebody_with_a_token_is_refused_before_it_is_read(up: Up) -> None:
    token = (up.data / "token").read_text().strip()
    body = b'{"jobs": [' + b"1," * (100 << 20)

    head = post(f"Authorization: Bearer {token}", f"Content-Type: {wire.JSON}", f"Content-Length: {len(body)}")

    def send(over: threading.Event) -> None:
        with socket.create_connection(address_of(up), LIMIT) as line:
            line.sendall(head + body)
            assert line.recv(100).startswith(b"HTTP/1.1 413 ")

    before = psutil.Process(up.pid).memory_info().rss
    with under(send, 1):
        answers(up, QUESTIONS)
    assert psutil.Process(up.pid).memory_info().rss - before < 40 << 20


def test_idle_connections_leave_room_for_callers(tmp_path: Path) -> None:
    """There are as many as the process may have files, and more. Callers with a token are served."""
    command = [sys.executable, "-m", "headway", "up", "--slots", "1", "--json", "--data", str(tmp_path / "data")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", 'ulimit -n 300 && exec "$@"', "sh", *command], stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        with process.stdout as output:
            place = json.loads(output.readline())
        host, port = place["url"].removeprefix("http://").split(":")
        token = Path(place["token_file"]).read_text().strip()
        with ExitStack() as stack:
            for text in (b"", b"GET /health HTTP/1.1\r\nHo"):
                for _ in range(200):
                    stack.enter_context(socket.create_connection((host, int(port)), LIMIT)).sendall(text)
            with Client(place["url"], token=token) as client:
                assert client.submit(Job("served", [Task(abs, -1)])).result(timeout=LIMIT) == [1]
            with urllib.request.urlopen(place["url"] + wire.HEALTH.path, timeout=LIMIT) as answer:
                assert answer.status == 200
    finally:
        process.terminate()
        process.wait(LIMIT)
