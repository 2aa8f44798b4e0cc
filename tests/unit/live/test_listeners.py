"""What each listener receives and when, without a driver: rows go in, answers come out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from headway.live.listeners import GATHER_SECONDS, Listener, Listeners, MessagesWanted
from headway.live.store.messages import MessageRow, NewMessage, Page

CLIENT = -7


class Caller:
    """Records the steps in which it is answered. One of them may fail."""

    def __init__(self, room: Room, fails_to: str = "") -> None:
        self.room, self.fails_to = room, fails_to

    def _step(self, name: str) -> None:
        self.room.steps.append((name, self))
        if name == self.fails_to:
            raise OSError("the line is cut")

    def make(self, messages: list[MessageRow], cursor: int) -> None:
        self._step("make")
        self.answer = (messages, cursor)

    def send(self) -> None:
        self._step("send")
        self.room.told.append(self.answer)

    def close(self) -> None:
        self._step("close")


class Room:
    """Listeners, what they received, and the jobs and clients that have work left."""

    def __init__(self) -> None:
        self.busy: set[int] = set()
        self.listeners = Listeners(self.busy.__contains__)
        self.told: list[tuple[list[MessageRow], int]] = []
        self.steps: list[tuple[str, Caller]] = []

    def wait(
        self, *keys: int, found: tuple[MessageRow, ...] = (), caller: Caller | None = None, **wanted: Any
    ) -> Listener:
        terms = MessagesWanted(**{"wait_seconds": 60.0} | wanted)
        page = Page(terms.limit, terms.size_max)
        for row in found:
            page.add(row)
        return self.listeners.add(terms, keys, page, caller or Caller(self))

    @property
    def numbers(self) -> list[list[int]]:
        return [[row.number for row in rows] for rows, _ in self.told]


def message(
    number: int, job: int = 1, client: int = 7, task: int | None = 0, result: bytes | None = None
) -> NewMessage:
    return (number, client, job, task, 0, "succeeded", 0, result)


def run(scenario: Callable[[Room], Awaitable[None]]) -> None:
    async def main() -> None:
        room = Room()
        await scenario(room)
        room.listeners.release()
        assert room.listeners.count == 0

    asyncio.run(main())


def test_each_is_told_of_his_own_and_of_nothing_else() -> None:
    async def scenario(room: Room) -> None:
        for key in (CLIENT, 1, 0, 2, -8):
            room.wait(key)
        room.listeners.tell([message(5), message(6, task=None)])
        assert (
            room.told == [([MessageRow(5, 1, 0, "succeeded", None), MessageRow(6, 1, None, "succeeded", None)], 6)] * 3
        )
        assert room.listeners.count == 2
        room.listeners.tell([message(7)])
        assert len(room.told) == 3

    run(scenario)


def test_nobody_is_told_of_nothing() -> None:
    async def scenario(room: Room) -> None:
        room.wait(CLIENT)
        room.listeners.tell([])
        assert (room.told, room.listeners.told) == ([], 0)

    run(scenario)


def test_a_wait_ends_with_the_cursor_that_stands_behind_everything() -> None:
    async def scenario(room: Room) -> None:
        room.wait(CLIENT, wait_seconds=0.02)
        room.listeners.tell([message(9, job=3, client=4)])
        while not room.told:
            await asyncio.sleep(0.001)
        assert room.told == [([], 9)]
        room.wait(CLIENT, after=12, wait_seconds=0.0)
        assert room.told[1:] == [([], 12)]

    run(scenario)


def test_messages_are_gathered_while_more_are_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(room: Room) -> None:
        loop = asyncio.get_running_loop()
        now = [loop.time()]
        monkeypatch.setattr(loop, "time", lambda: now[0])
        room.busy.add(CLIENT)
        room.wait(CLIENT)
        room.listeners.tell([message(1)])
        now[0] += 0.9 * GATHER_SECONDS
        room.listeners.tell([message(2)])
        await asyncio.sleep(0)
        assert room.told == []
        now[0] += 0.2 * GATHER_SECONDS
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert room.numbers == [[1, 2]]
        room.wait(CLIENT)
        room.listeners.tell([message(3)])
        room.busy.clear()
        room.listeners.tell([message(4)])
        assert room.numbers[1:] == [[3, 4]], "the last is told at once"

    run(scenario)


def test_a_caller_who_has_waited_long_gathers_no_more() -> None:
    async def scenario(room: Room) -> None:
        room.busy.add(CLIENT)
        listener = room.wait(CLIENT)
        listener.gather_until = 0.0
        room.listeners.tell([message(1)])
        assert room.numbers == [[1]]

    run(scenario)


@pytest.mark.parametrize(
    ("wanted", "numbers", "results"),
    [
        ({"limit": 2}, [1, 2], [None, None]),
        ({"result_max": 3}, [1, 2, 3], [b"aaa", None, b"c"]),
        ({"result_max": 9, "size_max": 4}, [1, 2], [b"aaa", b"bbbb"]),
        ({"result_max": 9, "size_max": 3}, [1], [b"aaa"]),
    ],
)
def test_one_answer_holds_no_more_than_it_may(wanted: Any, numbers: list[int], results: list[bytes | None]) -> None:
    """The next question finds the rest, because the cursor is before it."""

    async def scenario(room: Room) -> None:
        room.wait(CLIENT, **wanted)
        room.listeners.tell([message(1, result=b"aaa"), message(2, result=b"bbbb"), message(3, result=b"c")])
        [(rows, cursor)] = room.told
        assert [row.number for row in rows] == numbers
        assert [row.result for row in rows] == results
        assert cursor == numbers[-1]

    run(scenario)


def test_what_was_found_already_counts() -> None:
    async def scenario(room: Room) -> None:
        room.busy.add(CLIENT)
        found = (MessageRow(1, 1, 0, "succeeded", b"x" * 10),)
        room.wait(CLIENT, found=found, size_max=10)
        assert room.numbers == [[1]], "full"
        room.wait(CLIENT, found=found, limit=2)
        room.listeners.tell([message(2), message(3)])
        assert room.numbers[1:] == [[1, 2]]
        room.busy.clear()
        room.wait(CLIENT, found=found)
        assert room.numbers[2:] == [[1]], "nothing more is to come"

    run(scenario)


@pytest.mark.parametrize(
    ("wanted", "pages"),
    [
        ({"limit": 2}, [[1], [2, 3], [4], [5, 6]]),
        ({"limit": 3}, [[1, 2, 3], [4, 5, 6]]),
        ({"limit": 1}, [[1], [2], [3], [4], [5], [6]]),
        ({"size_max": 15}, [[1, 2, 3], [4, 5, 6]]),
        ({"size_max": 10}, [[1], [2, 3], [4], [5, 6]]),
    ],
)
def test_no_answer_ends_between_the_last_result_of_a_job_and_its_end(wanted: Any, pages: list[list[int]]) -> None:
    """Else a client that acknowledges the result would not be told of the end: the job may be cleared before."""
    came = [message(number, job=(number + 2) // 3, task=number % 3 or None, result=b"x" * 10) for number in range(1, 7)]
    came = [(*row[:7], None) if row[3] is None else row for row in came]

    async def scenario(room: Room) -> None:
        while sum(map(len, room.numbers)) < len(came):
            left = came[sum(map(len, room.numbers)) :]
            room.wait(CLIENT, result_max=10, **wanted)
            room.listeners.tell(left)
        assert room.numbers == pages

    run(scenario)


def test_a_page_of_the_journal_that_was_cut_is_answered_at_once() -> None:
    async def scenario(room: Room) -> None:
        room.busy.add(CLIENT)
        found = (
            MessageRow(1, 1, 0, "succeeded", None),
            MessageRow(2, 1, 1, "succeeded", None),
            MessageRow(3, 1, None, "succeeded", None),
        )
        room.wait(CLIENT, found=found, limit=2)
        assert room.numbers == [[1]], "else a later message would stand where the second one is left out"

    run(scenario)


def test_a_job_named_twice_is_told_of_once_and_leaves_nothing() -> None:
    async def scenario(room: Room) -> None:
        room.wait(1, 1, 2)
        room.listeners.tell([message(1), message(2, job=2)])
        assert room.numbers == [[1, 2]]
        assert room.listeners._waiting == {}

    run(scenario)


def test_who_leaves_is_not_told_and_may_leave_twice() -> None:
    async def scenario(room: Room) -> None:
        listener = room.wait(CLIENT)
        other = room.wait(CLIENT)
        for _ in range(2):
            room.listeners.leave(listener)
        assert room.listeners.count == 1
        room.listeners.tell([message(1)])
        assert room.numbers == [[1]]
        room.listeners.leave(other)
        assert (room.listeners.count, room.listeners._waiting) == (0, {})

    run(scenario)


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("wait", [1e-9, 0.0004, 0.0005, 0.001])
def test_who_waits_for_less_than_a_loop_can_tell_apart_is_answered(loop: Callable[..., None], wait: float) -> None:
    """uvloop rounds short delays to 0 ms, and the handle then has no time."""

    async def main() -> None:
        room = Room()
        room.busy.add(CLIENT)
        for number in range(1, 20):
            room.wait(CLIENT, wait_seconds=wait)
            room.listeners.tell([message(number)])
            await asyncio.sleep(0)
        while room.listeners.count:
            await asyncio.sleep(0.001)
        assert [numbers[0] for numbers in room.numbers] == list(range(1, 20))
        assert all(numbers == list(range(numbers[0], numbers[-1] + 1)) for numbers in room.numbers)

    loop(main())


def test_each_step_is_taken_for_all_before_the_next() -> None:
    async def scenario(room: Room) -> None:
        callers = [Caller(room) for _ in range(3)]
        for caller in callers:
            room.wait(CLIENT, caller=caller)
        room.listeners.tell([message(1)])
        assert room.steps == [(step, caller) for step in ("make", "send", "close") for caller in callers]

    run(scenario)


@pytest.mark.parametrize("step", ["make", "send", "close"])
def test_one_who_cannot_be_answered_harms_nobody(caplog: pytest.LogCaptureFixture, step: str) -> None:
    async def scenario(room: Room) -> None:
        broken = Caller(room, fails_to=step)
        room.wait(CLIENT, caller=broken)
        room.wait(CLIENT)
        room.listeners.tell([message(1)])
        assert room.numbers == ([[1], [1]] if step == "close" else [[1]])
        assert room.listeners.count == 0
        assert ("close", broken) in room.steps
        assert "the line is cut" in caplog.text

    run(scenario)


def test_after_the_release_nobody_waits() -> None:
    async def scenario(room: Room) -> None:
        room.busy.add(CLIENT)
        room.wait(CLIENT)
        room.wait(CLIENT, after=4)
        room.listeners.tell([message(3)])
        room.listeners.release()
        room.wait(CLIENT, after=5)
        assert [([row.number for row in rows], cursor) for rows, cursor in room.told] == [([3], 3), ([3], 3), ([], 5)]

    run(scenario)
