"""Callers of a service who misbehave: they hang up, come by thousands, or do not read what they asked for."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from headway import Client, Service
from headway.client.address import Address, find_server
from headway.errors import HeadwayError

FULL = "full"
"""A service whose queue is filled."""

LARGE = 4_000_000
"""Bytes of an answer that is not read."""

WAITING = 10_000
BEYOND = 100
"""So many requests wait, and so many more come."""

BODY = b'"' + b"x" * 1022 + b'"'
GROWTH_MAX = 200 << 20
"""Bytes by which the server may grow: 62 MB for those that wait and as much for their connections, and some air."""

ANSWER_SECONDS = 90.0
SEND_SECONDS = 5.0
"""A caller that takes longer from its connection to its request is itself too slow: a server waits for 10 s at most."""

_AT_ONCE = 200
"""Connections that are made at a time; more than that a socket does not let wait."""


@dataclass(slots=True)
class Filled:
    """What became of a queue that was filled.

    Attributes:
        waited: requests that had no answer when the queue was full.
        statuses: of the answers, how many.
        grown: bytes by which the server had grown then.
        silent: requests that got neither an answer nor an error, though they were sent in time.
        how: when these were sent, and what became of all.
    """

    waited: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    grown: int = 0
    silent: int = 0
    how: str = ""


def go_away(data: Path, name: str, times: int) -> None:
    """Callers who hang up before they are answered."""
    address = find_server(data=data)
    for _ in range(times):
        with contextlib.suppress(OSError), socket.create_connection(_place(address), 5) as line:
            line.sendall(_request(address, name, b"-5"))


def fill(data: Path, memory: Any) -> Filled | None:
    """Fill the queue of a service whose instances do not answer, and let it end; None: it cannot be started now.

    Args:
        memory: tells how many bytes the server has.
    """
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    waiting = min(WAITING, files * 3 // 5)  # the server may have as many files open, and others are connected
    handler = lambda number: time.sleep(3600)  # noqa: E731 - sent by value, unlike a function of a module
    with Client(data=data, patience=60.0) as client:
        try:
            client.serve(Service(FULL, handler, cwd="/", most=1, queue=waiting, time_limit=3600, wait_limit=3600))
        except HeadwayError:  # the disk is full
            return None
        before = memory()
        try:
            return asyncio.run(_fill(find_server(data=data), waiting, lambda: memory() - before, client))
        finally:
            _end(client)


def _end(client: Client) -> None:
    client.cancel(*(job.id for job in client.jobs(status="open") if job.kind == "service" and job.name == FULL))


async def _fill(address: Address, waiting: int, grown: Any, client: Client) -> Filled:
    found, gate = Filled(), asyncio.Semaphore(_AT_ONCE)
    request = _request(address, FULL, BODY)
    unheard: dict[int, float] = {}
    """What was sent and has no answer: how long after it began to connect."""

    async def ask(number: int) -> None:
        async with gate:
            began = time.monotonic()
            reader, writer = await asyncio.open_connection(*_place(address))
            writer.write(request)
            unheard[number] = time.monotonic() - began
            await writer.drain()
        if line := await reader.readline():
            del unheard[number]
            found.statuses[int(line.split()[1])] += 1
        writer.close()

    asked = [asyncio.create_task(ask(number)) for number in range(waiting + BEYOND)]
    until = time.monotonic() + ANSWER_SECONDS
    while found.statuses.total() < BEYOND - 1 and time.monotonic() < until:  # an instance has one, if there is one
        await asyncio.sleep(0.05)
    found.waited, found.grown = len(asked) - found.statuses.total(), grown()
    await asyncio.to_thread(_end, client)
    done, open_ = await asyncio.wait(asked, timeout=ANSWER_SECONDS)
    in_time = [seconds for seconds in unheard.values() if seconds < SEND_SECONDS]
    errors = Counter(type(error).__name__ for each in done if (error := each.exception()) is not None)
    found.silent = len(in_time)
    if in_time:
        found.how = (
            f"sent {min(in_time):.1f} to {max(in_time):.1f} s after they began to connect; of all, {len(open_)} still "
            f"wait or were not sent, {len(unheard)} have no answer, and errors were {dict(errors)}"
        )
    for each in open_:
        each.cancel()
    return found


def do_not_read(data: Path, name: str, callers: int, seconds: float) -> list[str]:
    """Callers who ask for large answers and do not read for a while; then they read them. What is wrong with those."""
    address, wrong = find_server(data=data), list[str]()
    with contextlib.ExitStack() as held:
        lines = []
        for _ in range(callers):
            with contextlib.suppress(OSError):
                line = held.enter_context(socket.create_connection(_place(address), 5))
                line.sendall(_request(address, name, b"%d" % -LARGE))
                lines.append(line)
        time.sleep(seconds)
        for line in lines:
            line.settimeout(ANSWER_SECONDS)
            with contextlib.suppress(ConnectionError):  # the server hung up: that is an error its caller sees
                wrong += _read(line)
    return wrong


def _read(line: socket.socket) -> list[str]:
    try:
        head, body = b"", b""
        while b"\r\n\r\n" not in head and (part := line.recv(1 << 16)):
            head += part
        head, _, body = head.partition(b"\r\n\r\n")
        left = LARGE - len(body)
        if not head.startswith(b"HTTP/1.1 %d " % HTTPStatus.OK):
            return []
        while left > 0 and (part := line.recv(1 << 20)):
            body += part
            left -= len(part)
    except TimeoutError:
        return ["a large answer stopped half-way"]
    return [] if left or body == b"x" * LARGE else ["a large answer has other bytes"]


def _place(address: Address) -> tuple[str, int]:
    host, _, port = address.url.removeprefix("http://").partition(":")
    return host, int(port)


def _request(address: Address, name: str, body: bytes) -> bytes:
    head = f"POST /v1/services/{name}/requests HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {address.token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
