"""Requests: if something cannot be sent, the error names it before anything is sent."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException, InvalidURL
from threading import Event, Thread

import msgspec
import pytest

from headway.client.address import Address
from headway.client.connection import Connection, Server
from headway.client.exchange import JOINED_MAX, HTTPAnswer, exchange, lines_of
from headway.errors import InvalidInput
from headway.wire import Command, Commands, Done, JobsNamed, NewJob, Submission
from headway.wire.routes import CANCEL, DRAIN_NODE, JOBS, SUBMIT


def nowhere() -> Address:
    raise AssertionError("it was to be refused before anything is sent")


def submission(command: Command) -> Submission:
    return Submission((NewJob(Commands((command,))),))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (JobsNamed((1, 10**20)), "jobs[1] is 100000000000000000000; allowed: a number of at most 18 digits"),
        (submission(Command(("a",), cwd="/\udcff")), r"cwd is '/\udcff'; allowed: text that can be written in UTF-8"),
        (submission(Command(("a", "\udcff"))), r"argv[1] is '\udcff'; allowed: text that can be written in UTF-8"),
        (submission(Command(("a",), inputs={"\udcff": "x"})), r"inputs[0] is '\udcff'; allowed: text that"),
    ],
)
def test_a_value_that_cannot_be_written_down_is_named(body: msgspec.Struct, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Connection(nowhere).ask(CANCEL if isinstance(body, JobsNamed) else SUBMIT, body=body)
    assert str(caught.value).startswith(message)


def test_a_name_that_cannot_be_written_down_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"user is '\\udcff'; allowed: text"):
        Connection(nowhere).ask(JOBS, query=[("user", "\udcff")])
    with pytest.raises(InvalidInput, match=r"node is '\\udcff'; allowed: text"):
        Connection(nowhere).ask(DRAIN_NODE, node="\udcff")


class Line:
    """Both ends of a connection: what the server says is there before it is asked."""

    def __init__(self, *said: bytes, closed: bool = False) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.settimeout(5)
        for part in said:
            self.theirs.sendall(part)
        if closed:
            self.theirs.shutdown(socket.SHUT_WR)

    def ask(self, method: str = "GET", target: str = "/jobs?user=me", body: bytes | None = None) -> HTTPAnswer:
        return exchange(self.ours, method, target, lines_of({"Host": "there", "Accept": "x"}), body)

    def heard(self) -> bytes:
        """What was sent so far."""
        return self.theirs.recv(1 << 20)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def line() -> Iterator[Callable[..., Line]]:
    made: list[Line] = []

    def make(*said: bytes, closed: bool = False) -> Line:
        made.append(Line(*said, closed=closed))
        return made[-1]

    yield make
    for each in made:
        each.close()


Make = Callable[..., Line]


@pytest.mark.parametrize("body", [b"", b"short", b"x" * JOINED_MAX])
def test_a_request_is_sent_in_one_piece(line: Make, body: bytes) -> None:
    there = line(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    there.ask("POST", "/jobs", body)
    head = b"POST /jobs HTTP/1.1\r\nHost: there\r\nAccept: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert there.heard() == head + body


def test_a_request_without_a_body_announces_none(line: Make) -> None:
    there = line(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    there.ask()
    assert there.heard() == b"GET /jobs?user=me HTTP/1.1\r\nHost: there\r\nAccept: x\r\n\r\n"


WHOLE = b"HTTP/1.1 409 Conflict\r\nHeadway-Epoch: abc\r\nContent-Length: 5\r\n\r\nwhole"
ODD = [
    b"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\nheadway-epoch: abc\r\n\r\n5\r\nwhole\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
    b"HTTP/1.1 409 Conflict\r\nX: 1\r\nX: 2\r\n" + WHOLE.partition(b"\r\n")[2],
    WHOLE.replace(b" Conflict", b""),
]


@pytest.mark.parametrize("said", [WHOLE, *ODD])
@pytest.mark.parametrize("cut", [1, 7, 30, 75, 10_000])
def test_an_answer_is_the_same_however_it_comes(line: Make, said: bytes, cut: int) -> None:
    there = line(said[:cut])
    later = Thread(target=lambda: (time.sleep(0.01), there.theirs.sendall(said[cut:])))
    later.start()
    answer = there.ask()
    later.join()
    assert (answer.status, bytes(answer.body), answer.headers["headway-epoch"], answer.stays) == (
        *(409, b"whole", "abc"),
        True,
    )


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\n\r\nwhole",
        WHOLE.replace(b"Head", b"Connection: close\r\nHead"),
        b"HTTP/1.0 200 OK\r\n\r\nwhole",
    ],
)
def test_a_connection_that_the_server_ends_with_its_answer_is_not_used_again(line: Make, said: bytes) -> None:
    answer = line(said, closed=True).ask()
    assert (bytes(answer.body), answer.stays) == (b"whole", False)


@pytest.mark.parametrize("cut", [0, 10, len(WHOLE) - 1])
def test_half_an_answer_is_none(line: Make, cut: int) -> None:
    with pytest.raises((HTTPException, OSError)):
        line(WHOLE[:cut], closed=True).ask()


@pytest.mark.parametrize("said", [b"\r\n\r\n", b"ICY 200 OK\r\n\r\n", b"x" * 100_000, WHOLE + b"more"])
def test_what_is_no_answer_is_none(line: Make, said: bytes) -> None:
    with pytest.raises((HTTPException, OSError)):
        line(said, closed=True).ask()


def test_a_long_answer_comes_whole(line: Make) -> None:
    body = random.Random(5).randbytes(3_000_000)
    there = line()
    sending = Thread(target=there.theirs.sendall, args=(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + body,))
    sending.start()
    assert there.ask().body == body
    sending.join()


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: 1", "/\xe4", ""])
def test_a_target_that_would_say_something_else_is_refused(line: Make, target: str) -> None:
    with pytest.raises(InvalidURL):
        line().ask("GET", target)


def test_a_header_that_would_say_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="Authorization"):
        lines_of({"Authorization": "Bearer a\r\nX: 1"})


def test_after_an_interruption_the_next_request_gets_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for number in (1, 2):
                line, _ = listener.accept()
                line.recv(1 << 16)
                body = msgspec.msgpack.encode(Done(number))
                line.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
                lines.append(line)

        lines: list[socket.socket] = []
        server = Thread(target=serve, daemon=True)
        server.start()
        host, port = listener.getsockname()
        connection = Connection(lambda: Address(f"http://{host}:{port}", "token"))

        def interrupted(sock: socket.socket, *given: object) -> HTTPAnswer:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("headway.client.connection.exchange", interrupted)
            with pytest.raises(KeyboardInterrupt):
                connection.ask(CANCEL, body=JobsNamed((1,)))
        assert connection.ask(CANCEL, body=JobsNamed((2,))) == Done(2)
        connection.hang_up()
        server.join(5)
        for line in lines:
            line.close()


def test_a_request_that_ends_while_the_server_is_closed_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    class ClosedJustAfter(Event):
        """It is asked whether the server is closed, and closed before anything is made of the answer."""

        def is_set(self) -> bool:
            was = super().is_set()
            server.close()
            return was

    server = Server(nowhere)
    connection = server.connection()
    hung_up = list[Connection]()
    monkeypatch.setattr(server, "_closed", ClosedJustAfter())
    monkeypatch.setattr(Connection, "ask", lambda *_, **__: Done(1))
    monkeypatch.setattr(Connection, "hang_up", lambda it: hung_up.append(it))
    monkeypatch.setattr(server, "connection", lambda: connection)
    assert server.ask(CANCEL, body=JobsNamed((1,))) == Done(1)
    assert hung_up == [connection]
