"""Messages of a slot's process: only sealed messages about its own run are passed on."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from headway.engines.base import TAIL_MAX, Ending, Output
from headway.engines.local.shared.frames import (
    LARGE_BODY,
    Body,
    CallFrame,
    CommandFrame,
    Fetched,
    Launch,
    RunEnded,
    Saved,
    encode,
    framed,
)
from headway.engines.local.shared.seal import (
    ALONE_HEAD,
    Forged,
    Reader,
    flaw,
    is_alone,
    new_seal,
    opened,
    read,
    sealed,
    sealed_end,
    size_max,
    to_slot,
)
from headway.model.events import Outcome

CALL = Launch(7, 3, 2, 0, 1, (0,), None, None, "f", None, Raw(encode(CallFrame(1000))))
COMMAND = Launch(7, 3, 2, 0, 1, (0,), None, None, "", None, Raw(encode(CommandFrame(("true",), "", {}, "", "", ""))))

DONE = RunEnded(False, Raw(encode(Ending(Outcome.SUCCEEDED))), True, memoryview(b"x" * 50))


def reader_of(seal: bytes) -> Reader:
    reader = Reader()
    reader.begin(seal, size_max(CALL))
    return reader


def launched(seal: bytes, body: bytes, *, alone: bool = False) -> bytes:
    return b"".join(to_slot(seal, body, alone=alone))


@given(
    st.lists(st.sampled_from([Fetched(), Saved(), DONE])),
    st.lists(st.integers(1, 20)),
)
def test_what_was_sealed_comes_whole_however_it_is_cut(messages: list[Any], cuts: list[int]) -> None:
    seal = new_seal()
    sent, reader, arrived = b"".join(sealed(seal, message) for message in messages), reader_of(seal), list[Any]()
    for cut in [*cuts, len(sent)]:
        arrived += reader.feed(sent[:cut])
        sent = sent[cut:]
    assert arrived == [(True, encode(message)) for message in messages]
    assert not reader.broken


@given(st.binary(min_size=1, max_size=60), st.integers(1, 20))
def test_what_is_not_sealed_is_noticed_at_once_and_nothing_after_it_is_read(written: bytes, cut: int) -> None:
    reader, seal = reader_of(b"\0sealed\0"), b"\0sealed\0"
    if not written.startswith(b"\1"):
        written = b"\1" + written
    sent = sealed(seal, Saved()) + written
    assert [body for at in range(0, len(sent), cut) for _, body in reader.feed(sent[at : at + cut])] == [
        encode(Saved())
    ]
    assert reader.broken
    assert reader.feed(sealed(seal, Saved())) == []


@pytest.mark.parametrize("seed", range(8))
def test_large_frames_come_whole_too(seed: int) -> None:
    chance, seal = Random(seed), b"12345678"
    reader = reader_of(seal)
    sizes = (0, LARGE_BODY - 2, LARGE_BODY + 1, 3 * LARGE_BODY)
    reader.size_max = max(sizes)
    bodies = [chance.randbytes(chance.choice(sizes)) for _ in range(8)]
    stream, arrived = b"".join(seal + framed(body) for body in bodies), list[tuple[bool, Body]]()
    at = 0
    while at < len(stream):
        size = chance.choice((3, 20_000, 1 << 16, LARGE_BODY, 4 * LARGE_BODY))
        arrived += reader.feed(stream[at : at + size])
        at += size
    assert arrived == [(True, body) for body in bodies]
    assert not reader.broken


def test_bytes_before_an_end_do_not_swallow_it() -> None:
    seal = new_seal()
    reader = reader_of(seal)
    assert reader.feed(bytes([seal[0] ^ 1])) == []
    assert reader.broken  # three more bytes need not come


def test_a_frame_longer_than_any_may_be_is_not_waited_for() -> None:
    seal = new_seal()
    longest, longer = ((size_max(CALL) + more).to_bytes(4, "little") for more in (0, 1))
    reader = reader_of(seal)
    assert reader.feed(seal + longest) == []
    assert not reader.broken
    reader = reader_of(seal)
    assert reader.feed(seal + longer) == []
    assert reader.broken


def test_what_is_said_of_the_launch_before_is_told_apart() -> None:
    before, now = new_seal(), new_seal()
    reader = reader_of(before)
    reader.begin(now, size_max(CALL))
    assert reader.feed(sealed(before, Saved()) + sealed(now, Saved())) == [
        (False, encode(Saved())),
        (True, encode(Saved())),
    ]
    reader.begin(new_seal(), size_max(CALL))
    reader.feed(sealed(before, Saved()))
    assert reader.broken


@pytest.mark.parametrize("seed", range(6))
def test_large_results_come_whole_too_however_they_are_cut(seed: int) -> None:
    chance, seal, arrived = Random(seed), new_seal(), list[Any]()
    sizes = (1, LARGE_BODY - 40, LARGE_BODY, 3 * LARGE_BODY, 4 << 20, 5 << 20)
    results = [chance.randbytes(chance.choice(sizes)) for _ in range(8)]
    ends = [RunEnded(False, Raw(encode(Ending(Outcome.SUCCEEDED))), True, memoryview(one)) for one in results]
    sent, reader = b"".join(part for end in ends for part in sealed_end(seal, end)), Reader()
    reader.begin(seal, 6 << 20)
    at = 0
    while at < len(sent):
        part = sent[at : at + min(chance.choice((3, 1000, 1 << 16, 1 << 20, 6 << 20)), max(1, reader.missing) + 7)]
        arrived += reader.feed(part)
        at += len(part)
    assert [is_now for is_now, _ in arrived] == [True] * len(results)
    assert [read(body)[0] for _, body in arrived] == ends
    assert not reader.broken


def test_a_large_frame_that_does_not_end_is_noticed_once_its_launch_is_over() -> None:
    seal, reader = new_seal(), Reader()
    reader.begin(seal, 6 << 20)
    assert reader.feed(seal + (5 << 20).to_bytes(4, "little") + bytes(1000)) == []
    reader.begin(new_seal(), 6 << 20)
    assert reader.feed(bytes(1000)) == []
    assert not reader.broken, "what it left running may still send"
    reader.begin(new_seal(), 6 << 20)
    reader.feed(bytes(1000))
    assert reader.broken


def test_a_process_that_was_given_nothing_has_nothing_to_say() -> None:
    reader = Reader()
    reader.feed(b"\0")
    assert reader.broken


def test_the_seal_goes_with_the_launch() -> None:
    seal, body = new_seal(), encode(CALL)
    assert opened(launched(seal, body)[4:]) == (seal, body)
    assert opened(launched(seal, body, alone=True)[4:]) == (seal, body)


def test_a_call_that_is_alone_is_known_by_its_head() -> None:
    seal, body = new_seal(), encode(CALL)
    assert is_alone(launched(seal, body, alone=True)[:ALONE_HEAD])
    assert not is_alone(launched(seal, body)[:ALONE_HEAD])
    assert not is_alone(launched(seal, body, alone=True)[: ALONE_HEAD - 1])
    assert body[:1] not in launched(seal, body, alone=True)[4 + len(seal) : ALONE_HEAD]


@given(st.binary(max_size=200) | st.recursive(st.none() | st.integers(0, 30), st.lists).map(msgspec.msgpack.encode))
def test_whatever_a_frame_holds_it_is_read_or_said_to_be_forged(body: bytes) -> None:
    try:
        said, ending = read(body)
    except Forged:
        return
    assert (ending is None) != isinstance(said, RunEnded)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        encode(RunEnded(False, Raw(b"\xc1"))),
        encode(RunEnded(False, Raw(encode(["no outcome"])))),
        encode(RunEnded(False, Raw(b"\x91" * 100_000))),
        encode(RunEnded(False, Raw(encode(["succeeded", None, 3])))),
        encode([22, False, ["succeeded", None, ""]])[:-1] + b"\xa1\xff",  # text that is not UTF-8
    ],
)
def test_an_ending_that_cannot_be_read_is_forged(body: bytes) -> None:
    with pytest.raises(Forged, match="not its own"):
        read(body)


def test_an_ending_is_of_its_own_run() -> None:
    own = Output("", 5, b"hello")
    for true in (
        Ending(Outcome.SUCCEEDED, stdout=own, stderr=Output("", 5, b"hello"), seconds=3.5),
        Ending(Outcome.EXITED, exit_code=255),
        Ending(Outcome.SIGNALLED, exit_code=-9, outside=True),
    ):
        assert flaw(true, memoryview(b"x" * 1000), CALL, asked=False) is None
    assert flaw(Ending(Outcome.KILLED), None, CALL, asked=True) is None


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (Ending(Outcome.KILLED), "outcome is 'killed'"),
        (Ending(Outcome.LOST), "outcome is 'lost'"),
        (Ending(Outcome.OUT_OF_TIME), "outcome is 'out of time'"),
        (Ending(Outcome.SUCCEEDED, outside=True), "outside is true"),
        (Ending(Outcome.SUCCEEDED, b"x"), "result is in it"),
        (Ending(Outcome.RAISED, detail="x" * 2_000_000), "detail has 2000000 characters"),
        (Ending(Outcome.SUCCEEDED, seconds=float("nan")), "seconds is nan"),
        (Ending(Outcome.SUCCEEDED, seconds=-1.0), "seconds is -1.0"),
        (Ending(Outcome.SUCCEEDED, cpu_seconds=float("inf")), "cpu_seconds is inf"),
        (Ending(Outcome.EXITED, exit_code=2**40), "exit_code is out of range"),
        (Ending(Outcome.SUCCEEDED, stdout=Output("/etc/passwd", 1, b"")), "stdout is not its own"),
        (Ending(Outcome.SUCCEEDED, stderr=Output("/kept/7/3.2.out", 1, b"")), "stderr is not its own"),
        (Ending(Outcome.SUCCEEDED, stdout=Output("", 9, b"x", 8)), "stdout is not its own"),
        (Ending(Outcome.SUCCEEDED, stdout=Output("", -1, b"")), "stdout is not its own"),
        (Ending(Outcome.SUCCEEDED, stdout=Output("", 1, b"x" * (TAIL_MAX + 1))), "stdout is not its own"),
    ],
)
def test_what_cannot_be_true_of_a_run_is_named(ending: Ending, said: str) -> None:
    assert flaw(ending, None, CALL, asked=False) == said


def test_a_result_is_no_larger_than_its_call_allows() -> None:
    ending = Ending(Outcome.SUCCEEDED)
    assert flaw(ending, memoryview(b"x" * 1000), CALL, asked=False) is None
    assert flaw(ending, memoryview(b"x" * 1001), CALL, asked=False) == "result has 1001 bytes"


def test_a_command_has_no_result() -> None:
    assert flaw(Ending(Outcome.SUCCEEDED), memoryview(b"x"), COMMAND, asked=False) == "result has 1 bytes"
    assert flaw(Ending(Outcome.SUCCEEDED), None, COMMAND, asked=False) is None
