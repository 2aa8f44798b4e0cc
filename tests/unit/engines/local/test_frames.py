"""Frames arrive complete however the stream is cut. Both ends of a connection have the same functions."""

from __future__ import annotations

import pickle
from random import Random
from select import EPOLLOUT, epoll
from socket import socketpair

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from headway.engines.base import Ending
from headway.engines.local.agent.run import Channel
from headway.engines.local.shared.frames import (
    LARGE_BODY,
    Body,
    CallFrame,
    Launch,
    MemberEnded,
    Shelf,
    Splitter,
    decode_call,
    decode_to_slot,
    encode,
    encoded,
    ending_of,
    framed,
    in_parts,
    joined,
    to_driver_decoder,
)
from headway.engines.local.slot.calls import _pickled
from headway.model.outcome import Outcome


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(1, 12), min_size=1))
def test_frames_arrive_whole_and_in_order_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, bodies))
    splitter, arrived, at, turn = Splitter(), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        arrived += splitter.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert arrived == bodies
    assert splitter.feed(framed(b"next")) == [b"next"]


HUGE = 4 << 20
"""Bytes of a body that gets pages of its own."""

SIZES = (
    0,
    1,
    LARGE_BODY - 5,
    LARGE_BODY - 4,
    LARGE_BODY - 3,
    LARGE_BODY,
    LARGE_BODY + 1,
    3 * LARGE_BODY,
    HUGE - 1,
    HUGE,
    HUGE + 1,
)


@pytest.mark.parametrize("seed", range(8))
def test_large_frames_arrive_whole_too(seed: int) -> None:
    chance = Random(seed)
    bodies = [chance.randbytes(chance.choice(SIZES)) for _ in range(24)]
    stream, splitter, arrived = b"".join(map(framed, bodies)), Splitter(), list[Body]()
    at = 0
    while at < len(stream):
        size = chance.choice((3, 20_000, 1 << 16, LARGE_BODY, 4 * LARGE_BODY))
        arrived += splitter.feed(stream[at : at + size])
        at += size
    assert arrived == bodies
    assert splitter.is_empty


def test_what_does_not_fit_into_a_socket_is_sent_later_in_order() -> None:
    chance, (here, there) = Random(1), socketpair()
    with there, epoll() as waits:
        channel, bodies = Channel(here, waits), [chance.randbytes(chance.choice(SIZES)) for _ in range(100)]
        for body in bodies:
            channel.send(framed(body))
        splitter, arrived = Splitter(), list[Body]()
        while len(arrived) < len(bodies):
            for _, what in waits.poll(0):
                assert what == EPOLLOUT
                channel.resume()
            arrived += splitter.feed(there.recv(chance.choice((1000, 1 << 16, 1 << 20))))
        assert arrived == bodies
        assert waits.poll(0) == [], "nothing is left to send"
        channel.close()


SIZES_OF_PARTS = (0, 1, LARGE_BODY, LARGE_BODY + 1, 1 << 16, 3 * LARGE_BODY)


@pytest.mark.parametrize("size", SIZES_OF_PARTS)
def test_arguments_and_results_arrive_however_large_they_are(size: int) -> None:
    sent = Random(size).randbytes(size)
    work = Raw(encode(CallFrame(1000, cwd="/")))
    launch = Launch(7, 3, 2, 0, 1, (0,), None, None, "f", b"function", work, arguments=memoryview(sent))
    (body,) = Splitter().feed(b"".join(in_parts(launch)))
    arrived = decode_to_slot(body)
    assert isinstance(arrived, Launch)
    assert (arrived.arguments, arrived.pickled, decode_call(arrived.work).cwd) == (sent, b"function", "/")
    assert encode(arrived) == b"".join(encoded(launch)) == encode(launch), "one form, in however many parts"
    ended = MemberEnded(7, 3, 2, 0, 1, Raw(encode(Ending(Outcome.SUCCEEDED))), result=memoryview(sent))
    (body,) = Splitter().feed(b"".join(in_parts(ended)))
    told = to_driver_decoder().decode(body)
    assert isinstance(told, MemberEnded)
    assert ending_of(told) == Ending(Outcome.SUCCEEDED, sent)


def test_what_is_large_is_sent_from_where_it_is() -> None:
    sent = bytes(LARGE_BODY + 1)
    ended = MemberEnded(7, 3, 2, 0, 1, Raw(encode(Ending(Outcome.SUCCEEDED))), result=memoryview(sent))
    assert [part.obj is sent for part in in_parts(ended) if isinstance(part, memoryview)] == [True]
    small = replace(ended, result=memoryview(sent)[:LARGE_BODY])
    assert len(in_parts(small)) == 1 + (len(encode(small)) > LARGE_BODY)


@given(st.lists(st.sampled_from([b"", b"a", b"bcd", bytes(LARGE_BODY), bytes(LARGE_BODY + 1)])))
def test_small_neighbours_are_joined_and_large_parts_are_left_alone(parts: list[Body]) -> None:
    found = joined(parts)
    assert b"".join(found) == b"".join(parts)
    large = [part for part in parts if len(part) > LARGE_BODY]
    assert all(any(part is one for one in found) for part in large)
    assert len(found) <= 2 * len(large) + 1


class SmallShelf(Shelf[bytes]):
    names_max = 3
    bytes_max = 30


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 25))))
def test_the_receiver_holds_whatever_the_sender_does_not_send_again(asked: list[tuple[str, int]]) -> None:
    sender, receiver = SmallShelf(), SmallShelf()
    sizes = dict(asked)
    for name, _ in asked:
        body = name.encode() * sizes[name]
        sent = None if sender.get(name) is not None else body
        if sent is not None:
            sender.put(name, len(sent), b"")
        held = receiver.get(name)
        if held is None:
            assert sent is not None
            receiver.put(name, len(sent), sent)
            held = sent
        assert held == body


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1], [10, 10, 10, 10], [31, 1]])
def test_a_shelf_drops_what_was_not_asked_for_the_longest(sizes: list[int]) -> None:
    shelf = SmallShelf()
    for number, size in enumerate(sizes):
        shelf.put(str(number), size, b"held")
    assert shelf.get("0") is None
    assert shelf.get(str(len(sizes) - 1)) == b"held"


@pytest.mark.parametrize("size", [0, 1, LARGE_BODY, LARGE_BODY + 1, HUGE + 5])
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_what_a_pickler_writes_is_what_it_makes_at_once(kind: type, size: int) -> None:
    value = {"before": [1, "two"], "large": kind(Random(size).randbytes(size)), "after": (None, 3.0)}
    pickled = _pickled(value)
    assert pickled == pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    assert pickle.loads(pickled) == value
