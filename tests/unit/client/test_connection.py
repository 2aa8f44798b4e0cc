"""Requests: if something cannot be sent, the error names it before anything is sent."""

from __future__ import annotations

import io
import socket
from typing import cast

import msgspec
import pytest

from headway.client.address import Address
from headway.client.connection import JOINED_MAX, Connection, Joined
from headway.errors import InvalidInput
from headway.wire import Command, Commands, JobsNamed, NewJob, Submission
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


class Wire:
    """The socket of a server that answers at once; `sent` has each piece that came."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self.sent.append(data)

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def settimeout(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("body", "pieces"), [(None, 1), (b"", 1), (b"short", 1), (b"x" * JOINED_MAX, 1), (b"x" * (JOINED_MAX + 1), 2)]
)
def test_a_request_is_sent_in_one_piece_unless_it_is_long(body: bytes | None, pieces: int) -> None:
    wire, connection = Wire(), Joined("there")
    connection.sock = cast(socket.socket, wire)
    for _ in range(2):
        connection.request("POST", "/", body)
        assert connection.getresponse().status == 200
    assert len(wire.sent) == 2 * pieces
    whole = b"".join(wire.sent)
    assert whole.startswith(b"POST / HTTP/1.1\r\n")
    assert whole.endswith(b"\r\n\r\n" + (body or b""))


def test_the_head_of_a_request_that_was_given_up_is_not_sent_with_the_next_one() -> None:
    wire, connection = Wire(), Joined("there")
    connection.sock = cast(socket.socket, wire)
    connection.request("GET", "/first")
    connection.close()
    connection.sock = cast(socket.socket, wire)
    connection.request("GET", "/second")
    connection.getresponse()
    (sent,) = wire.sent
    assert sent.startswith(b"GET /second ")
