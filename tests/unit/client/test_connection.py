"""Requests: if something cannot be sent, the error names it before anything is sent."""

from __future__ import annotations

import msgspec
import pytest

from headway.client.address import Address
from headway.client.connection import Connection
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
