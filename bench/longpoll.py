"""Clients that wait for messages: their cost for a server while nothing happens, and how soon a burst reaches them.

python bench/longpoll.py [--clients N] [--seconds N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import resource
import select
import socket
import statistics
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import cloudpickle
import msgspec

import idle
import live
import measure
from headway import wire
from headway.cli.main import main as headway
from headway.live.store.journal import Batch, Journal
from headway.model.job import JobId

WAIT: Final = 60
"""Seconds that a client waits before it asks again: the most a server allows."""

READ: Final = 1 << 16
"""Bytes that are taken at once."""

FUNCTION: Final = cloudpickle.dumps(abs)
ARGUMENTS: Final = cloudpickle.dumps(((1,), {}))

SERVE: Final = "--serve"
NOTES: Final = "durable"

_messages = msgspec.msgpack.Decoder(wire.Messages)


class Line:
    """A client: its connection, its last job, and how far it has read. It is a bare socket, because that costs least.

    Attributes:
        job: the job that it waits for.
        cursor: the position behind the last message it received.
        heard: when its last answer came, in nanoseconds since the Unix epoch.
        answer: the bytes of that answer; `told`: the messages in it.
    """

    def __init__(self, address: tuple[str, int], token: str, name: str = "") -> None:
        self.name = name
        self.job: JobId = 0
        self.cursor = 0
        self.heard = 0
        self.answer = b""
        self.told: tuple[wire.Message, ...] = ()
        self.socket = socket.create_connection(address)
        self._terms = f"Host: here\r\nAuthorization: Bearer {token}\r\nAccept: {wire.MSGPACK}\r\n"

    def send(self, method: str, target: str, body: bytes = b"") -> None:
        """Ask."""
        self.answer = b""
        size = f"Content-Type: {wire.MSGPACK}\r\nContent-Length: {len(body)}\r\n" if body else ""
        self.socket.sendall(f"{method} {target} HTTP/1.1\r\n{self._terms}{size}\r\n".encode() + body)

    def submit(self, release: float) -> None:
        """Submit a job of one task that does nothing, to be started at an instant."""
        name = wire.blob_name(FUNCTION)
        job = wire.NewJob(wire.Calls((name,), (ARGUMENTS,)), release=release)
        self.send(
            "POST", wire.SUBMIT.path, wire.encode(wire.Submission((job,), client=self.name, blobs={name: FUNCTION}))
        )
        accepted = msgspec.msgpack.decode(self.hear(), type=wire.Submitted)
        [self.job], self.cursor = accepted.jobs, accepted.cursor

    def wait(self, seconds: float = WAIT) -> None:
        """Ask for messages."""
        self.send("GET", f"{wire.MESSAGES.path}?client={self.name}&after={self.cursor}&wait={seconds}&results=65536")

    def listen(self) -> None:
        """Read the part of the answer that has come."""
        self.answer += self.socket.recv(READ)
        self.heard = time.time_ns()

    def body(self) -> bytes | None:
        """The body of the answer; None if it is not complete.

        Raises:
            SystemExit: it is a refusal, or there is none.
        """
        head, end, body = self.answer.partition(b"\r\n\r\n")
        if not self.answer.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"{self.name} was answered {self.answer!r}")
        return body if end and f"content-length: {len(body)}\r\n".encode() in head + b"\r\n" else None

    def read(self) -> bool:
        """Read the answer to `wait` if it is complete. The next question continues behind it."""
        body = self.body()
        if body is not None:
            answer = _messages.decode(body)
            self.told, self.cursor = answer.messages, answer.cursor
        return body is not None

    def hear(self) -> bytes:
        """Wait for an answer and return its body."""
        while True:
            self.listen()
            if (body := self.body()) is not None:
                return body


class Crowd:
    """All clients, in one loop that does little for each, because it shares the processors with the server."""

    def __init__(self, address: tuple[str, int], token: str, count: int) -> None:
        self.lines = [Line(address, token, f"client-{number}") for number in range(count)]
        self.repeated = 0
        self._poll = select.epoll()
        self._by_file = {line.socket.fileno(): line for line in self.lines}
        for file in self._by_file:
            self._poll.register(file, select.EPOLLIN)

    def submit(self, release: float) -> None:
        """Each submits a job."""
        for line in self.lines:
            line.submit(release)

    def wait(self) -> None:
        """Each asks for messages. The first waits differ in length, so that they do not all end at once."""
        for place, line in enumerate(self.lines, 1):
            line.wait(WAIT * place / len(self.lines))

    def hear(self, seconds: float) -> list[Line]:
        """The clients that received a message, within this time at most. Clients whose wait was in vain ask again."""
        heard = [self._by_file[file] for file, _ in self._poll.poll(seconds)]
        for line in heard:
            line.listen()
        told = []
        for line in filter(Line.read, heard):  # only now, when the time of each is known
            if line.told:
                told.append(line)
            else:
                line.wait()
                self.repeated += 1
        return told

    def rest(self, seconds: float) -> None:
        """Wait while nothing happens.

        Raises:
            SystemExit: a client receives a message.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if told := self.hear(left):
                raise SystemExit(f"{told[0].name} was told {told[0].told}")

    def hear_all(self) -> None:
        """Wait until each client has received the end of its job.

        Raises:
            SystemExit: one receives something else, or nothing comes for a minute.
        """
        waiting = set(self.lines)
        end = time.monotonic() + WAIT
        while waiting:
            for line in self.hear(end - time.monotonic()):
                if {message.job for message in line.told} != {line.job} or line.told[-1].status is None:
                    raise SystemExit(f"{line.name} with job {line.job} was told {line.told}")
                waiting.remove(line)
            if time.monotonic() > end:
                raise SystemExit(f"{len(waiting)} clients were told nothing")


class Burst(NamedTuple):
    """The times of a burst, in nanoseconds since the Unix epoch.

    Attributes:
        asked: the request that caused it was sent, or its planned instant came.
        durable: for each client, its message was durable.
        heard: for each client, its message had come.
    """

    asked: int
    durable: list[int]
    heard: list[int]


def cancel(crowd: Crowd, control: Line, data: Path) -> Burst:
    """Cancel the held jobs of all clients by one request: one transaction, and a message for each client."""
    crowd.submit(release=time.time() + 3600)
    crowd.wait()
    crowd.rest(2)  # until the submissions have been cleaned up
    body = wire.encode(wire.JobsNamed(tuple(line.job for line in crowd.lines)))
    asked = time.time_ns()
    control.send("POST", wire.CANCEL.path, body)
    crowd.hear_all()
    control.hear()
    return burst(crowd, data, asked)


def end(crowd: Crowd, data: Path) -> Burst:
    """Release an empty task for each client at one instant. The messages come as fast as the tasks run."""
    release = time.time() + 20
    crowd.submit(release)
    crowd.wait()
    if time.time() > release:
        raise SystemExit("the jobs were not submitted within 20 s")
    crowd.hear_all()
    return burst(crowd, data, round(1e9 * release))


def burst(crowd: Crowd, data: Path, asked: int) -> Burst:
    """The times of a burst that has reached all clients."""
    noted = [tuple(map(int, line.split())) for line in (data / NOTES).read_text().splitlines()]
    numbers, times = [number for number, _ in noted], [at for _, at in noted]
    durable = [times[bisect_left(numbers, line.told[-1].number)] for line in crowd.lines]
    return Burst(asked, durable, [line.heard for line in crowd.lines])


def noting_headway(*words: object) -> list[str]:
    """The command of `serve`."""
    return [sys.executable, __file__, SERVE, *map(str, words)]


def serve(words: list[str]) -> None:
    """Run `headway` with these arguments. Records the time and the last number whenever messages become durable."""
    write = Journal.write

    def noting(journal: Journal, batch: Batch) -> None:
        write(journal, batch)
        if batch.messages:
            os.write(notes, f"{batch.messages[-1][0]} {time.time_ns()}\n".encode())

    data = Path(words[words.index("--data") + 1])
    data.mkdir()
    notes = os.open(data / NOTES, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    Journal.write = noting  # type: ignore[method-assign]
    headway(words)


def allow_files(count: int) -> None:
    """Allow this process at least this many open files.

    Raises:
        SystemExit: the system does not allow it.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if count > most:
        raise SystemExit(f"{count} files are to be open at once, {most} may be (ulimit -Hn); ask for fewer --clients")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def cost(pid: int, rest: Callable[[float], None], seconds: float) -> list[str]:
    """The processor time and memory that a server and its processes take while nothing happens."""
    processes = idle.family(pid)
    before, began = idle.processor_seconds(processes), time.perf_counter()
    rest(seconds)
    load = (idle.processor_seconds(processes) - before) / (time.perf_counter() - began)
    return [f"{100 * load:.1f} %", *(f"{each:.0f}" for each in idle.megabytes(processes))]


def figures(bursts: list[Burst]) -> list[str]:
    """Medians of several bursts: the time until the first and the last message were durable, how long messages took
    from there, and the time from the cause until nearly all had come. For the wanted figure also least and most.
    """
    first = statistics.median(min(each.durable) - each.asked for each in bursts)
    last = statistics.median(max(each.durable) - each.asked for each in bursts)
    taken = [[heard - durable for heard, durable in zip(each.heard, each.durable, strict=True)] for each in bursts]
    most = [measure.percentile(values, 0.99) for values in taken]
    whole = statistics.median(measure.percentile(each.heard, 0.99) - each.asked for each in bursts)
    middle, longest = statistics.median(map(statistics.median, taken)), statistics.median(map(max, taken))
    return [
        *(f"{value / 1e6:,.0f}" for value in (first, last)),
        *(f"{value / 1e6:,.1f}" for value in (middle, statistics.median(most))),
        f"{min(most) / 1e6:.1f} to {max(most) / 1e6:.1f}",
        *(f"{value / 1e6:,.1f}" for value in (longest, whole)),
    ]


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--clients", type=int, default=2000)
    arguments.add_argument("--seconds", type=float, default=30.0)
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    allow_files(given.clients + 100)
    with tempfile.TemporaryDirectory() as name, live.server(Path(name), program=noting_headway) as (client, pid):
        data = Path(name) / "data"
        url, token = urlsplit((data / "url").read_text().strip()), (data / "token").read_text().strip()
        address = (url.hostname or "", url.port or 0)
        control = Line(address, token, "control")
        costs = [cost(pid, time.sleep, min(10.0, given.seconds))]
        crowd = Crowd(address, token, given.clients)
        cancel(crowd, control, data)  # a warm-up that does not count
        crowd.submit(release=time.time() + 3600)
        crowd.wait()
        crowd.rest(5)
        crowd.repeated = 0
        costs.append(cost(pid, crowd.rest, given.seconds))
        repeated = crowd.repeated
        client.cancel(*[line.job for line in crowd.lines])
        crowd.hear_all()
        cancelled = [cancel(crowd, control, data) for _ in range(given.rounds)]
        run = [end(crowd, data) for _ in range(given.rounds)]
    measure.section(
        "Live: clients that wait",
        f"""{given.clients:,} clients, each with a connection and a job, wait for messages (long poll) at `headway up
        --slots {live.SLOTS}`. One more process plays all of them on the same machine. Idle, for {given.seconds:g} s: in
        this time {repeated:,} waits of {WAIT} s ended and were repeated. Processor time as a share of one processor,
        and memory in MB, of all processes of the server. Wanted: less than 5 % and 150 MB.""",
        measure.table(
            ("waiting clients", "processor", "MB, PSS", "MB, RSS"),
            [(count, *each) for count, each in zip((0, f"{given.clients:,}"), costs, strict=True)],
        ),
    )
    measure.section(
        "Live: a burst of messages",
        f"""The same clients. Either one request cancels all {given.clients:,} jobs in one transaction; or a task that
        does nothing is released for every client at the same time, and the tasks run. In milliseconds, medians of
        {given.rounds} times: from the request, or the release, until the first and until the last message is durable;
        from then until a message has reached its client; from the request until 99 in 100 clients have theirs. Wanted:
        99 in 100 within 50 ms.""",
        measure.table(
            (
                "burst",
                "first durable",
                "last durable",
                "durable to client: median",
                "99 in 100 below",
                "from ... to",
                "longest",
                "request to client: 99 in 100",
            ),
            [("a cancel of all jobs", *figures(cancelled)), ("a task for each", *figures(run))],
        ),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == [SERVE]:
        serve(sys.argv[2:])
    else:
        main()
