"""A service with two instances against the same handler in two workers of plain uvicorn.

python bench/services.py [--rounds N] [--seconds N] [--callers N] [--waits MS...]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

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


class Caller(asyncio.Protocol):
    """A connection on which one request follows the other."""

    def __init__(
        self, request: bytes, begin: float, until: float, times: list[float], over: asyncio.Future[None]
    ) -> None:
        self._request, self._begin, self._until, self._times, self._over = request, begin, until, times, over
        self._got = b""
        self._sent = 0.0

    def connection_made(self, transport: Any) -> None:
        """The first request."""
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """A part of an answer; the next request follows the last part."""
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found or len(body) < len(BODY):
            return
        assert head.startswith(b"HTTP/1.1 200 ")
        assert body == BODY
        self._got = b""
        now = time.perf_counter()
        if self._sent >= self._begin:
            self._times.append(now - self._sent)
        if now < self._until:
            self._send()
        elif not self._over.done():
            self._over.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """The server has ended it."""
        if not self._over.done():
            self._over.set_exception(error or ConnectionError("the server ended a connection"))


async def load(url: str, path: str, token: str, seconds: float, callers: int) -> tuple[float, list[float]]:
    """Requests a second and times of callers who each ask again as soon as they are answered."""
    loop = asyncio.get_running_loop()
    rights = f"authorization: Bearer {token}\r\n".encode() if token else b""
    request = HEAD % (path.encode(), len(BODY), rights) + BODY
    host, _, port = url.removeprefix("http://").partition(":")
    times: list[float] = []
    begin = time.perf_counter() + WARM
    ends = [loop.create_future() for _ in range(callers)]
    for over in ends:
        await loop.create_connection(partial(Caller, request, begin, begin + seconds, times, over), host, int(port))
    await asyncio.gather(*ends)
    return len(times) / seconds, times


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


def one(kind: str, wait: float, seconds: float, callers: int) -> tuple[float, float]:
    """Requests a second, and the 99th percentile of the times of callers, in seconds."""
    with (service if kind == "service" else plain_uvicorn)(wait) as (url, path, token):
        rate, times = uvloop.run(load(url, path, token, seconds, callers))
    return rate, measure.percentile(times, 0.99)


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=3.0)
    arguments.add_argument("--callers", type=int, default=32)
    arguments.add_argument("--waits", type=float, nargs="+", default=[0.0, 1.0, 10.0])
    given = arguments.parse_args()
    rows = []
    for wait in given.waits:
        things = {
            kind: partial(one, kind, wait / 1000, given.seconds, given.callers) for kind in ("uvicorn", "service")
        }
        runs = measure.alternating(things, given.rounds)
        rate = {kind: statistics.median(rate for rate, _ in made) for kind, made in runs.items()}
        slow = {kind: statistics.median(slow for _, slow in made) for kind, made in runs.items()}
        share = statistics.median(
            ours / theirs for (ours, _), (theirs, _) in zip(runs["service"], runs["uvicorn"], strict=True)
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
        uvicorn, which run it in their event loops. {given.callers} callers on this machine ask again as soon as they
        are answered; they use its processors too. The handler decodes and encodes {len(BODY)} bytes of JSON, and in
        between waits for the time in the first column. The server checks the token of each request, has one queue for
        all instances, and measures. Medians of {given.rounds} rounds of {given.seconds:g} s, one after the other in
        turn; the share is that of the service's requests in those of uvicorn, round by round.""",
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
