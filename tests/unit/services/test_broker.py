"""Requests, instances and their ends, one rule after the other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from headway.errors import (
    Conflict,
    HandlerFailed,
    InstanceDied,
    Malformed,
    NoSuchService,
    RequestTimedOut,
    ServiceEnded,
    ServiceFull,
    TooLarge,
    Unavailable,
)
from headway.model.instant import SECOND
from headway.services import frames
from headway.services.broker import FRAME_SECONDS, HELLO_SECONDS, STRANGERS_MAX
from headway.services.terms import InstanceId, ServiceAnswer, ServiceSettings

from .acting import KEY, Actor, asked, broker_of, settle, virtual


@virtual
async def test_a_request_is_answered_by_an_instance() -> None:
    broker, noted = broker_of()
    actor = await Actor.started(broker)
    caller = asyncio.create_task(broker.ask("s", b"question", "text/plain"))
    await settle()
    assert actor.got == [frames.Welcome(8 << 20), frames.RequestFrame(1, "text/plain", b"question")]
    actor.send(frames.AnswerFrame(1, "text/html", b"answer", 0.0))
    assert await caller == ServiceAnswer(b"answer", "text/html")
    assert noted.heard == [("ready", actor.id)]


@virtual
async def test_requests_wait_in_the_order_of_their_arrival_and_the_longest_idle_instance_is_next() -> None:
    broker, _ = broker_of()
    callers = [asked(broker, b"%d" % number) for number in range(4)]
    await settle()
    first, second = await Actor.started(broker, 0), await Actor.started(broker, 1)
    assert [first.requests[-1].body, second.requests[-1].body] == [b"0", b"1"]
    second.answer()
    await settle()
    first.answer()
    await settle()
    assert [first.requests[-1].body, second.requests[-1].body] == [b"3", b"2"]
    first.answer()
    second.answer()
    await asyncio.gather(*callers)
    callers = [asked(broker, b"a"), asked(broker, b"b")]
    await settle()
    assert [first.requests[-1].body, second.requests[-1].body] == [b"a", b"b"]
    for actor in (first, second):
        actor.answer()
    await asyncio.gather(*callers)


@virtual
async def test_an_instance_has_one_request_at_a_time() -> None:
    broker, _ = broker_of()
    actor = await Actor.started(broker)
    callers = [asked(broker) for _ in range(3)]
    for count in range(1, 4):
        await settle()
        assert len(actor.requests) == count
        actor.answer()
    await asyncio.gather(*callers)
    assert len(actor.requests) == 3


@virtual
async def test_the_request_of_an_instance_that_dies_goes_to_another_once() -> None:
    broker, noted = broker_of()
    first, second = await Actor.started(broker, 0), await Actor.started(broker, 1)
    caller = asked(broker, b"x")
    await settle()
    first.die()
    await settle()
    assert second.requests[-1].body == b"x"
    second.answer(b"by the second")
    assert (await caller).body == b"by the second"
    assert noted.heard[2:] == [("left", first.id)]

    caller = asked(broker, b"y")
    await settle()
    second.die()
    third = await Actor.started(broker, 2)
    assert third.requests[-1].body == b"y"
    third.die()
    with pytest.raises(InstanceDied, match="2 instances of service 's' died"):
        await caller
    assert len(broker.queue("s")) == 0


@virtual
async def test_requests_that_were_given_back_are_before_all_others_in_the_order_of_arrival() -> None:
    broker, _ = broker_of()
    actors = [await Actor.started(broker, task) for task in range(3)]
    callers = [asked(broker, b"%d" % number) for number in range(5)]
    await settle()
    for task in (1, 0, 2):
        actors[task].die()
        await settle()
    last = await Actor.started(broker, 9)
    for number in range(5):
        assert last.requests[-1].body == b"%d" % number
        last.answer(last.requests[-1].body)
        await settle()
    assert [(await caller).body for caller in callers] == [b"0", b"1", b"2", b"3", b"4"]


@virtual
async def test_only_the_instance_that_holds_a_request_now_can_answer_it() -> None:
    broker, _ = broker_of()
    first = await Actor.started(broker, 0)
    caller = asked(broker)
    await settle()
    again = await Actor.started(broker, 0)  # the same attempt connects again: its old connection counts no more
    first.answer(b"late")
    await settle()
    assert not first.is_open
    assert not caller.done()
    again.answer(b"now")
    assert (await caller).body == b"now"


@virtual
async def test_a_later_attempt_takes_the_place_of_an_earlier_one_and_not_the_other_way_round() -> None:
    broker, noted = broker_of()
    first = await Actor.started(broker, 0, attempt=1)
    second = await Actor.started(broker, 0, attempt=2)
    assert not first.is_open
    late = await Actor.started(broker, 0, attempt=1)
    assert late.let_go
    assert second.is_open
    assert broker.queue("s").instances == [second.id]
    assert noted.heard == [("ready", first.id), ("left", first.id), ("ready", second.id)]


@virtual
async def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    broker, _ = broker_of()
    actor = await Actor.started(broker)
    actor.send(frames.AnswerFrame(1, "", b"", 0.0))
    await settle()
    assert not actor.is_open
    actor = await Actor.started(broker)
    caller = asked(broker)
    await settle()
    actor.send(frames.Failed(2, False, "", 0.0))
    await settle()
    assert not actor.is_open
    assert not caller.done()
    caller.cancel()


@pytest.mark.parametrize("kind", ["text/plain\r\nX: 1", "\x00", "text/pläin"])
def test_an_answer_whose_type_is_none_ends_the_connection_and_another_instance_is_asked(kind: str) -> None:
    async def test() -> None:
        broker, _ = broker_of()
        first = await Actor.started(broker, 0)
        asking = asked(broker)
        await settle()
        first.send(frames.AnswerFrame(first.requests[-1].number, kind, b"", 0.0))
        await settle()
        assert not first.is_open
        second = await Actor.started(broker, 1)
        second.answer()
        assert (await asking).body == b"done"

    virtual(test)()


@virtual
async def test_a_failure_is_told_to_the_caller() -> None:
    """What the caller has sent wrongly, and was told so, is no failure of the service."""
    broker, noted = broker_of()
    actor = await Actor.started(broker)
    for malformed, kind in ((False, HandlerFailed), (True, Malformed)):
        caller = asked(broker)
        await settle()
        actor.send(frames.Failed(actor.requests[-1].number, malformed, "what is wrong", 0.0))
        with pytest.raises(kind, match="what is wrong"):
            await caller
    await asyncio.sleep(1)
    broker.end("s")
    await settle()
    (window,) = noted.windows
    assert (window.arrivals, window.failed, window.answered, window.in_time) == (2, 1, 1, 1)


@virtual
async def test_an_instance_that_works_for_too_long_is_stuck() -> None:
    broker, noted = broker_of(time_limit=3.0)
    actor = await Actor.started(broker)
    began = asyncio.get_running_loop().time()
    caller, waiting = asked(broker), asked(broker, b"next")
    with pytest.raises(RequestTimedOut, match="worked for 3 s"):
        await caller
    assert 3.0 <= asyncio.get_running_loop().time() - began < 3.1
    await settle()
    assert not actor.is_open
    assert noted.heard == [("ready", actor.id), ("stuck", actor.id), ("left", actor.id)]
    again = await Actor.started(broker)  # of the same attempt: it was to be killed
    assert again.let_go
    other = await Actor.started(broker, attempt=2)
    assert other.requests[-1].body == b"next"
    other.answer()
    await waiting


@virtual
async def test_a_request_that_no_instance_takes_is_given_up() -> None:
    broker, _ = broker_of(wait_limit=5.0)
    began = asyncio.get_running_loop().time()
    first = asked(broker)
    await asyncio.sleep(2)
    second = asked(broker)
    with pytest.raises(RequestTimedOut, match="waited for 5 s"):
        await first
    assert not second.done()
    with pytest.raises(RequestTimedOut, match="waited for 5 s"):
        await second
    assert 7.0 <= asyncio.get_running_loop().time() - began < 7.1


@virtual
async def test_a_full_queue_says_at_once_when_to_come_again() -> None:
    broker, _ = broker_of(queue_max=60, queue_bytes_max=1000)
    actor = await Actor.started(broker)
    callers = [asked(broker) for _ in range(61)]
    await settle()
    with pytest.raises(ServiceFull, match=r"60 requests with [0-9]+ bytes wait for service 's'") as full:
        await broker.ask("s", b"")
    assert full.value.retry_after == 10.0  # nothing has been answered so far
    await asyncio.sleep(0.5)
    actor.answer(spent=0.5)
    await callers[0]
    callers.append(asked(broker))
    await settle()
    with pytest.raises(ServiceFull) as full:
        await broker.ask("s", b"")
    assert full.value.retry_after == pytest.approx(60 * 0.5)
    for caller in callers:
        caller.cancel()


@virtual
async def test_the_bytes_of_waiting_requests_are_bounded() -> None:
    broker, _ = broker_of(queue_bytes_max=1000, request_max=600)
    callers = [asked(broker, b"x" * 500), asked(broker, b"x" * 500)]
    await settle()
    with pytest.raises(ServiceFull):
        await broker.ask("s", b"x")
    callers[0].cancel()
    await settle()
    callers.append(asked(broker, b"x" * 500))
    await settle()
    assert len(broker.queue("s")) == 2
    with pytest.raises(TooLarge, match="601 bytes; allowed: at most 600"):
        await broker.ask("s", b"x" * 601)
    for caller in callers:
        caller.cancel()


@virtual
async def test_a_request_whose_caller_has_gone_is_dropped() -> None:
    broker, _ = broker_of()
    actor = await Actor.started(broker)
    working, waiting, last = asked(broker, b"a"), asked(broker, b"b"), asked(broker, b"c")
    await settle()
    working.cancel()
    waiting.cancel()
    await settle()
    actor.answer()
    await settle()
    assert [each.body for each in actor.requests] == [b"a", b"c"]
    actor.answer(b"last")
    assert (await last).body == b"last"


@virtual
async def test_an_instance_that_leaves_or_is_drained_finishes_its_request() -> None:
    broker, noted = broker_of()
    first, second, idle = [await Actor.started(broker, task) for task in range(3)]
    callers = [asked(broker), asked(broker)]
    await settle()
    first.send(frames.Leaving())
    broker.drain("s", second.id)
    broker.drain("s", InstanceId(7, 2, 99))  # another attempt
    await settle()
    assert not first.let_go
    assert not second.let_go
    assert broker.queue("s").instances == [idle.id]
    for actor in (first, second):
        actor.answer()
    await asyncio.gather(*callers)
    await settle()
    assert first.let_go
    assert second.let_go
    broker.drain("s", idle.id)
    await settle()
    assert idle.let_go
    assert [event for event, _ in noted.heard] == ["ready"] * 3 + ["left"] * 3


@virtual
async def test_a_new_version_replaces_the_old_as_soon_as_it_is_ready() -> None:
    broker, _ = broker_of()
    old, idle = await Actor.started(broker, 0), await Actor.started(broker, 1)
    caller = asked(broker, b"x")
    await settle()
    broker.replace("s", "2", broker.queue("s").settings)
    new = Actor(broker, 2, version="2")
    new.hello()
    await settle()
    assert (old.is_open, idle.is_open) == (True, True)  # they go on until the new version can serve
    new.send(frames.Ready())
    await settle()
    assert (old.let_go, idle.let_go) == (False, True)
    after = asked(broker, b"y")
    await settle()
    assert new.requests[-1].body == b"y"
    old.answer(b"old")
    new.answer(b"new")
    assert [(await caller).body, (await after).body] == [b"old", b"new"]
    await settle()
    assert old.let_go
    late = Actor(broker, 3, version="1")
    late.hello()
    await settle()
    assert late.let_go


@virtual
async def test_the_version_that_serves_may_get_other_settings_at_once() -> None:
    broker, noted = broker_of(window=10.0, threshold=2.0)
    actor = await Actor.started(broker)
    caller = asked(broker)
    await asyncio.sleep(1.0)
    actor.answer()
    await caller
    settings = replace(broker.queue("s").settings, threshold=0.5)
    broker.replace("s", "1", settings)
    assert broker.queue("s").settings == settings
    assert [(each.length, each.arrivals, each.in_time) for each in noted.windows] == [(SECOND, 1, 1)]
    caller = asked(broker)
    await asyncio.sleep(1.0)
    actor.answer()
    await caller
    await asyncio.sleep(10.0)
    assert [(each.arrivals, each.in_time) for each in noted.windows] == [(1, 1), (1, 0)]
    assert not actor.let_go


@virtual
async def test_a_version_that_never_gets_ready_replaces_nothing() -> None:
    broker, noted = broker_of()
    old = await Actor.started(broker, 0)
    broker.replace("s", "2", broker.queue("s").settings)
    new = Actor(broker, 1, version="2")
    new.hello()
    new.send(frames.Broken("ImportError: no"))
    await settle()
    assert noted.heard[1:] == [("broken", new.id), ("left", new.id)]
    assert noted.details == ["ImportError: no"]
    caller = asked(broker)
    await settle()
    old.answer()
    await caller
    broker.replace("s", "3", broker.queue("s").settings)
    third = Actor(broker, 2, version="2")
    third.hello()
    await settle()
    assert third.let_go
    broker.replace("s", "1", broker.queue("s").settings)
    assert broker.queue("s").instances == [old.id]


@virtual
async def test_an_instance_that_does_not_load_its_handler_in_time_is_late() -> None:
    broker, noted = broker_of(load_limit=30.0)
    actor = Actor(broker)
    actor.hello()
    await asyncio.sleep(29)
    assert actor.is_open
    await asyncio.sleep(2)
    assert not actor.is_open
    assert noted.heard == [("late", actor.id), ("left", actor.id)]


@virtual
async def test_a_service_that_ends_fails_what_waits_and_lets_instances_finish() -> None:
    broker, noted = broker_of()
    busy, idle = await Actor.started(broker, 0), await Actor.started(broker, 1)
    working = asked(broker)
    await settle()
    broker.drain("s", idle.id)
    waiting = asked(broker)
    await asyncio.sleep(1)
    broker.end("s")
    with pytest.raises(ServiceEnded, match="'s' has ended"):
        await waiting
    with pytest.raises(NoSuchService, match="no service 's'"):
        await broker.ask("s", b"")
    busy.answer(b"still")
    assert (await working).body == b"still"
    await settle()
    assert busy.let_go
    (window,) = noted.windows
    assert (window.arrivals, window.answered, window.failed, window.queued) == (2, 1, 1, 0)


@virtual
async def test_a_broker_that_closes_fails_everything_and_does_not_let_instances_go() -> None:
    broker, _ = broker_of()
    actor = await Actor.started(broker)
    callers = [asked(broker) for _ in range(3)]
    await settle()
    await broker.close()
    for caller in callers:
        with pytest.raises(Unavailable):
            await caller
    await settle()
    assert not actor.is_open
    assert not actor.let_go
    with pytest.raises(Unavailable):
        await broker.ask("s", b"")


@virtual
async def test_strangers_are_refused() -> None:
    broker, noted = broker_of()
    for service, key in (("t", KEY), ("s", "guess"), ("", "")):
        actor = Actor(broker)
        actor.hello(service, key)
        await settle()
        assert isinstance(actor.got[-1], frames.Goodbye)
        assert actor.got[-1].why
        assert not actor.is_open
    assert noted.heard == []
    with pytest.raises(Conflict, match="there is a service 's'"):
        broker.serve("s", "other", "1", ServiceSettings())


JUNK: list[Any] = [
    b"\xff\xff\xff\xff",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x00\x00\x00\x00",
    frames.frame(frames.Ready()),
    frames.frame(["?", 1]),
]


@pytest.mark.parametrize("junk", JUNK)
def test_junk_ends_the_connection(junk: bytes) -> None:
    @virtual
    async def run() -> None:
        broker, _ = broker_of()
        stranger = Actor(broker)
        stranger.send_bytes(junk)
        await settle()
        assert not stranger.is_open
        actor = await Actor.started(broker)
        caller = asked(broker, b"x")
        await settle()
        actor.send_bytes(junk)
        await settle()
        assert not actor.is_open
        other = await Actor.started(broker, 1)
        other.answer()
        await caller

    run()


@virtual
async def test_whoever_is_slow_to_say_something_is_cut_off() -> None:
    broker, _ = broker_of(time_limit=1000.0, wait_limit=1000.0)
    silent = Actor(broker)
    slow = Actor(broker)
    slow.send_bytes(b"\x40\x00")
    actor = await Actor.started(broker)
    caller = asked(broker)
    await asyncio.sleep(HELLO_SECONDS - 1)
    assert (silent.is_open, slow.is_open) == (True, True)
    await asyncio.sleep(2)
    assert (silent.is_open, slow.is_open) == (False, False)
    await asyncio.sleep(100)
    whole = frames.frame(frames.AnswerFrame(1, "", b"x" * 100, 0.0))
    actor.send_bytes(whole[:50])
    await asyncio.sleep(FRAME_SECONDS - 1)
    assert actor.is_open
    await asyncio.sleep(2)
    assert not actor.is_open
    other = await Actor.started(broker, 1)
    whole = frames.frame(frames.AnswerFrame(1, "", b"y", 0.0))
    other.send_bytes(whole[:6])
    await asyncio.sleep(FRAME_SECONDS - 1)
    other.send_bytes(whole[6:])
    assert (await caller).body == b"y"
    await asyncio.sleep(FRAME_SECONDS)
    assert other.is_open


@virtual
async def test_strangers_do_not_pile_up() -> None:
    broker, _ = broker_of()
    strangers = [Actor(broker) for _ in range(STRANGERS_MAX + 1)]
    await settle()
    assert [each.is_open for each in strangers].count(False) == 1
    for each in strangers:
        each.die()
    await settle()
    assert (await Actor.started(broker)).is_open


@virtual
async def test_a_request_of_which_nothing_fits_is_no_arrival() -> None:
    broker, noted = broker_of(window=1.0, threshold=1.0)
    with pytest.raises(TooLarge):
        await broker.ask("s", b"x" * (2 << 20))
    with pytest.raises(NoSuchService, match="Did you mean s\\?"):
        await broker.ask("S", b"")
    await asyncio.sleep(2.1)
    assert noted.windows[0].arrivals == 0
