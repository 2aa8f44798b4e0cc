"""A service with two instances against the same handler in two workers of plain uvicorn.

python bench/services.py [--rounds N] [--seconds N] [--callers N] [--waits MS...]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

import measure
from headway import Client, Service

BENCH: Final = Path(__file__).resolve().parent
WORKERS: Final = 2
WAIT: Final = "BENCH_HANDLER_SECONDS"
SECONDS: Final = float(os.environ.get(WAIT, "0"))
BODY: Final = msgspec.json.encode({"values": list(range(20)), "name": "a request"})
JSON: Final = "application/json"
HEAD: Final = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n"
WARM: Final = 0.5
"""Seconds of load that are not measured."""


def handler(value: Any) -> Any:
    """Waits, and returns what it got."""
    if SECONDS:
        time.sleep(SECONDS)
    return value


async def body_of(receive: Any) -> bytes:
    """The body of a request."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def reply(send: Any, status: int, body: bytes, kind: str) -> None:
    """Send an answer."""
    headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def plain(scope: Any, receive: Any, send: Any) -> None:
    """The handler as an application of its own."""
    if scope["type"] == "http":
        value = handler(msgspec.json.decode(await body_of(receive)))
        await reply(send, 200, msgspec.json.encode(value), JSON)


@dataclass(frozen=True)
class Load:
    """What callers have found.

    Attributes:
        rate: answers a second.
        slow: the 99th percentile of their times, in seconds.
        busy: how much of one processor the callers themselves used.
    """

    rate: float
    slow: float
    busy: float


def load(url: str, path: str, token: str, seconds: float, callers: int) -> Load:
    """Callers who each ask again as soon as they are answered. One loop does it for all: it must not be the limit."""
    rights = f"authorization: Bearer {token}\r\n".encode() if token else b""
    request = HEAD % (path.encode(), len(BODY), rights) + BODY
    host, _, port = url.removeprefix("http://").partition(":")
    lines = [socket.create_connection((host, int(port))) for _ in range(callers)]
    by_number = {line.fileno(): line for line in lines}
    sent, got = dict.fromkeys(by_number, 0.0), dict.fromkeys(by_number, b"")
    times: list[float] = []
    begin = time.perf_counter() + WARM
    until, used = begin + seconds, 0.0
    with select.epoll() as poll, contextlib.ExitStack() as open_lines:
        for line in lines:
            open_lines.enter_context(line)
            poll.register(line, select.EPOLLIN)
            sent[line.fileno()] = time.perf_counter()
            line.sendall(request)
        asking = len(lines)
        while asking:
            for number, _ in poll.poll():
                line = by_number[number]
                answer = got[number] + line.recv(1 << 16)
                if not answer.endswith(b"\r\n\r\n" + BODY):
                    assert len(answer) > len(got[number]), "the server ended a connection"
                    got[number] = answer
                    continue
                assert answer.startswith(b"HTTP/1.1 200 "), answer
                got[number], now = b"", time.perf_counter()
                if sent[number] >= begin:
                    times.append(now - sent[number])
                    used = used or time.process_time()
                if now < until:
                    sent[number] = now
                    line.sendall(request)
                else:
                    asking -= 1
        return Load(len(times) / seconds, measure.percentile(times, 0.99), (time.process_time() - used) / seconds)


@contextlib.contextmanager
def plain_uvicorn(wait: float) -> Iterator[tuple[str, str, str]]:
    """The handler in workers of uvicorn: URL, path and token."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    command = [
        *(sys.executable, "-m", "uvicorn", "services:plain", "--workers", str(WORKERS), "--port", str(port)),
        *("--loop", "uvloop", "--http", "httptools", "--lifespan", "off", "--ws", "none"),
        *("--no-access-log", "--log-level", "warning"),
    ]
    process = subprocess.Popen(command, env={**os.environ, WAIT: str(wait)}, cwd=BENCH)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", BODY, timeout=5).read()
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit("uvicorn has ended") from None
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", "/", ""
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def service(wait: float) -> Iterator[tuple[str, str, str]]:
    """The handler as a service of a server: URL, path and token."""
    with tempfile.TemporaryDirectory() as data:
        up = measure.headway("up", "--data", data, "--slots", WORKERS, "--policy", "services", "--port", 0, "--json")
        process = subprocess.Popen(up, stdout=subprocess.PIPE, cwd=BENCH)
        try:
            assert process.stdout is not None
            place = json.loads(process.stdout.readline())
            with Client(data=data) as client:
                os.chdir(BENCH)
                client.serve(Service("s", "services:handler", least=WORKERS, most=WORKERS, env={WAIT: str(wait)}))
                while client.service("s").ready < WORKERS:
                    time.sleep(0.05)
            yield place["url"], "/v1/services/s/requests", (Path(data) / "token").read_text().strip()
        finally:
            process.terminate()
            process.wait()


def one(kind: str, wait: float, seconds: float, callers: int) -> Load:
    """What callers find."""
    with (service if kind == "service" else plain_uvicorn)(wait) as (url, path, token):
        return load(url, path, token, seconds, callers)


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=3.0)
    arguments.add_argument("--callers", type=int, default=32)
    arguments.add_argument("--waits", type=float, nargs="+", default=[0.0, 1.0, 10.0])
    given = arguments.parse_args()
    rows, busy = [], 0.0
    for wait in given.waits:
        things = {
            kind: partial(one, kind, wait / 1000, given.seconds, given.callers) for kind in ("uvicorn", "service")
        }
        runs = measure.alternating(things, given.rounds)
        rate = {kind: statistics.median(run.rate for run in made) for kind, made in runs.items()}
        slow = {kind: statistics.median(run.slow for run in made) for kind, made in runs.items()}
        busy = max(busy, *(run.busy for made in runs.values() for run in made))
        share = statistics.median(
            ours.rate / theirs.rate for ours, theirs in zip(runs["service"], runs["uvicorn"], strict=True)
        )
        cells = [
            cell
            for kind in ("uvicorn", "service")
            for cell in (measure.rounded(rate[kind]), measure.rounded(1000 * slow[kind]))
        ]
        rows.append((f"{wait:g} ms", *cells, f"{share:.0%}"))
    measure.section(
        "Services: requests through the queue",
        f"""A service with {WORKERS} instances of a real server, and the same handler in {WORKERS} workers of plain
        uvicorn (uvloop, httptools, no log), which run it in their event loops as an ASGI application of its own:
        without tokens, a queue or measures, and a caller's requests all go to the worker that has its connection.
        {given.callers} callers on this machine ask again as soon as they are answered. One process does that for all
        of them, the same for both, and uses at most {busy:.0%} of a processor, of the {os.cpu_count()} that all share.
        The handler decodes and encodes {len(BODY)} bytes of JSON, and in between waits for the time in the first
        column. The service's server checks the token of each request, has one queue for all instances, and measures.
        Medians of {given.rounds} rounds of {given.seconds:g} s, one after the other in turn; the share is that of the
        service's requests in those of uvicorn, round by round.""",
        measure.table(
            (
                "handler",
                *("uvicorn, requests/s", "p99, ms"),
                *("service, requests/s", "p99, ms"),
                "service / uvicorn",
            ),
            rows,
        ),
    )


if __name__ == "__main__":
    main()
