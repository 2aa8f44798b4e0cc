"""Submissions and requests for messages over real connections, on both event loops: taken, or left to the rest."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import uvloop

from headway import wire
from headway.access.tokens import Tokens
from headway.live.checker import Checker
from headway.live.delay import LoopDelay
from headway.live.driver import Driver
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission
from headway.web import heads, line
from headway.web.api import Api
from headway.web.calls import Desks, Listening, Submitting
from headway.web.epochs import Epochs
from headway.web.serving import BoundedServer, listen

from ...waiting import LIMIT, becomes

KNOWN = b"Authorization: Bearer t\r\n"
PACKED = b"Accept: application/msgpack\r\n"
MESSAGES = b"/v1/messages"


def submitting(
    sent: wire.Submission | bytes | None = None, extra: bytes = b"Content-Type: application/msgpack\r\n"
) -> bytes:
    body = sent if isinstance(sent, bytes) else wire.encode(sent or submission(new_job(), client="c"))
    return b"POST /v1/jobs HTTP/1.1\r\nHost: h\r\n%b%b%bContent-Length: %d\r\n\r\n%b" % (
        *(KNOWN, PACKED, extra, len(body), body),
    )


def asking(query: bytes = b"?client=c&after=0&wait=0", extra: bytes = b"") -> bytes:
    return b"GET %b%b HTTP/1.1\r\nHost: h\r\n%b%b%b\r\n" % (MESSAGES, query, KNOWN, PACKED, extra)


class Rig:
    """A server on a driver with a fake engine.

    Attributes:
        taken: kinds of the requests that a desk has taken.
    """

    def __init__(self, driver: Driver, engine: FakeEngine, journal: Journal, address: tuple[str, int]) -> None:
        self.driver, self.engine, self.journal, self.address = driver, engine, journal, address
        self.taken: list[type] = []
        self.desks: Desks
        self.callers: list[asyncio.StreamWriter] = []

    async def caller(self) -> Caller:
        caller = Caller(*await asyncio.open_connection(*self.address))
        self.callers.append(caller.writer)
        return caller


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        async with asyncio.timeout(LIMIT):
            first, *rows = (await self.reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (row.partition(": ") for row in rows)}
            return int(first.split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))

    async def asked(self, text: bytes) -> tuple[int, dict[str, str], bytes]:
        self.writer.write(text)
        return await self.answer()


def _noting(rig: Rig, take: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*arguments: Any) -> Any:
        taken = take(*arguments)
        if taken is not None:
            rig.taken.append(type(taken))
        return taken

    return noting


@asynccontextmanager
async def serving(folder: Path, with_desk: bool = True) -> AsyncIterator[Rig]:
    with closing(Journal(folder)) as journal, listen("127.0.0.1", 0) as listener:
        engine, clock, end = FakeEngine(), ManualClock(5), asyncio.Event()
        driver = Driver(journal, engine, clock, find, DriverSettings(policy="fcfs"))
        await driver.start((node("n", slots=2),))
        checker = Checker(driver, clock, {}, dict)
        api = Api(driver, Tokens("t", "me"), end.set, checker=checker, delay=LoopDelay())
        rig = Rig(driver, engine, journal, listener.getsockname()[:2])
        desks = rig.desks = api.front(journal.epoch)
        for name in ("take", "take_again"):
            setattr(desks, name, _noting(rig, getattr(desks, name)))
        server = BoundedServer(Epochs(api.app, journal.epoch), end, desks if with_desk else None)
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield rig
        finally:
            for writer in rig.callers:
                writer.transport.abort()
            end.set()
            driver.take_no_more()
            await task
            await driver.stop()
        assert driver.listeners == 0


Test = Callable[[Rig], Awaitable[None]]
Run = Callable[..., None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    count = iter(range(10))

    async def within(test: Test, with_desk: bool) -> None:
        async with serving(tmp_path / str(next(count)), with_desk) as rig:
            await test(rig)

    def run(test: Test, with_desk: bool = True) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(within(test, with_desk))

    return run


JSON = b"Content-Type: application/json\r\n"


CASES: list[tuple[bytes, int, bytes, type | None]] = [
    (submitting(), 200, b"jobs", Submitting),
    (submitting(extra=b""), 200, b"jobs", Submitting),
    (submitting().replace(PACKED, b""), 200, b'{"jobs":[', Submitting),
    (submitting(wire.encode({"jobs": 5})), 400, b"the body of submit is not valid", Submitting),
    (submitting(wire.Submission(())), 422, b"at least one job", Submitting),
    (submitting(submission(new_job(after=(9,)))), 404, b"there is no job 9", Submitting),
    (submitting(b"{", JSON), 400, b"is not valid", None),
    (submitting(extra=b"Headway-Epoch: 0\r\n"), 409, b"is not the one that this client knows", None),
    (submitting(extra=b"X: 1\r\nX: 2\r\n"), 200, b"jobs", None),
    (submitting(extra=b"Connection: close\r\n"), 200, b"jobs", None),
    (submitting().replace(b"Bearer t", b"Bearer u"), 401, b"not the one of this server", None),
    (submitting().replace(b"/v1/jobs", b"/v1/jobs?a=1"), 400, b"parameter", None),
    (asking(), 200, b"cursor", Listening),
    (asking(b""), 200, b"cursor", Listening),
    (asking().replace(PACKED, b""), 200, b'"cursor":0', Listening),
    (asking(b"?job=7"), 404, b"there is no job 7", None),
    (asking(b"?after=x"), 400, b"after is 'x'", None),
    (asking(b"?what=1"), 400, b"parameter", None),
    (asking(extra=b"Headway-Epoch: 0\r\n"), 409, b"is not the one that this client knows", None),
    (asking(extra=b"Content-Length: 1\r\n") + b"x", 200, b"cursor", None),
    (asking().replace(b"HTTP/1.1", b"HTTP/1.0"), 200, b"cursor", None),
    (asking().replace(KNOWN, b""), 401, b"no token was sent", None),
    (asking().replace(b"GET", b"POST"), 405, b"Method Not Allowed", None),
]


def test_what_is_usual_is_taken_and_everything_is_answered_alike(run: Run) -> None:
    answers: dict[bool, list[tuple[int, dict[str, str], bytes]]] = {True: [], False: []}
    taken = []

    async def test(rig: Rig) -> None:
        with_desk = not answers[True]
        for text, *_ in CASES:
            before = len(rig.taken)
            got, headers, body = await (await rig.caller()).asked(text)
            assert headers.pop("headway-epoch", rig.journal.epoch) == rig.journal.epoch
            answers[with_desk].append((got, headers, body))
            taken.append(rig.taken[before:])

    for with_desk in (True, False):
        run(test, with_desk=with_desk)
    for (text, status, said, kind), took, answer, other in zip(
        CASES, taken[: len(CASES)], answers[True], answers[False], strict=True
    ):
        assert (took, answer[0], said in answer[2]) == ([kind] if kind else [], status, True), (text, answer)
        assert answer == other, text
    assert not any(taken[len(CASES) :])


def test_a_submission_is_answered_with_the_epoch_when_it_is_durable(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        status, headers, body = await caller.asked(submitting())
        assert (status, headers["headway-epoch"]) == (200, rig.journal.epoch)
        answer = msgspec.msgpack.decode(body, type=wire.Submitted)
        assert rig.journal.open_jobs() == set(answer.jobs) == {1}

    run(test)


def test_the_same_key_is_answered_as_before_also_when_both_come_at_once(run: Run) -> None:
    async def test(rig: Rig) -> None:
        callers = [await rig.caller() for _ in range(3)]
        text = submitting(submission(new_job(), client="c", key="k"))
        for caller in callers[:2]:
            caller.writer.write(text)
        bodies = [(await caller.answer())[2] for caller in callers[:2]] + [(await callers[2].asked(text))[2]]
        assert [msgspec.msgpack.decode(body, type=wire.Submitted).jobs for body in bodies] == [(1,)] * 3
        other = submitting(submission(new_job(name="other"), client="c", key="k"))
        assert (await callers[0].asked(other))[0] == 409
        assert rig.journal.open_jobs() == {1}

    run(test)


def test_a_head_is_known_again_and_one_letter_of_another_token_is_another(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        parsed = []
        take = rig.desks.take
        monkeypatch.setattr(rig.desks, "take", lambda *words: parsed.append(words) or take(*words))
        for number in range(1, 5):
            sent = submitting(submission(new_job(name=f"n{number}"), client="c"))
            status, _, body = await caller.asked(sent)
            assert (status, msgspec.msgpack.decode(body, type=wire.Submitted).jobs) == (200, (number,))
            kept = rig.journal.job(number)
            assert kept is not None
            assert kept.spec.name == f"n{number}"
        assert (rig.taken, len(parsed)) == ([Submitting] * 4, 1)
        assert (await caller.asked(submitting().replace(b"Bearer t", b"Bearer u")))[0] == 401

    run(test)


def test_heads_are_forgotten_when_there_are_many(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEADS_MAX", 3)

    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        for number in range(6):
            assert (await caller.asked(submitting(extra=b"X: %d\r\n" % number)))[0] == 200
        long = submitting(extra=b"X: " + b"y" * 2000 + b"\r\n")
        assert [(await caller.asked(long))[0] for _ in range(2)] == [200, 200]
        assert len(rig.desks._calls._heads) == 3

    run(test)


async def waited(rig: Rig, caller: Caller, query: bytes, extra: bytes = b"") -> list[tuple[int, int | None]]:
    """Wait for messages; a job of client c is submitted and ends meanwhile."""
    other, job = await rig.caller(), rig.driver.last_job + 1
    caller.writer.write(asking(query, extra))
    await becomes(lambda: rig.driver.listeners == 1)
    await other.asked(submitting())
    await becomes(lambda: (job, 0, 1) in rig.engine.running)
    rig.engine.end(job, 0)
    status, _, body = await caller.answer()
    assert status == 200
    return [(told.job, told.task) for told in msgspec.msgpack.decode(body, type=wire.Messages).messages]


def test_a_request_for_messages_is_known_again_with_other_numbers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        parsed = []
        take = rig.desks.take
        monkeypatch.setattr(rig.desks, "take", lambda *words: parsed.append(words[2]) or take(*words))
        for job, (after, wait) in enumerate([(0, b"60"), (2, b"59.5"), (4, b"1.0")], 1):
            query = b"?client=c&after=%d&wait=%b&results=9" % (after, wait)
            assert await waited(rig, caller, query) == [(job, 0), (job, None)]
        again = msgspec.msgpack.decode(
            (await caller.asked(asking(b"?client=c&after=4&wait=9&results=9")))[2], type=wire.Messages
        )
        assert [(told.job, told.task) for told in again.messages] == [(3, 0), (3, None)]
        assert [url for url in parsed if url.startswith(MESSAGES)] == [
            b"/v1/messages?client=c&after=0&wait=60&results=9"
        ]
        late = await caller.asked(asking(b"?client=c&after=8&wait=61&results=9"))
        assert (late[0], b"wait" in late[2]) == (400, True)
        other = asking(b"?client=c&after=8&wait=0&results=9").replace(b"Bearer t", b"Bearer u")
        assert (await caller.asked(other))[0] == 401

    run(test)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"?client=c&after=0&wait=9&after=0", b"?client=c&after=5&wait=9&after=0"),
        (b"?client=c&after=0&wait=9&%61fter=0", b"?client=c&after=5&wait=9&%61fter=0"),
        (b"?job=1&after=0&wait=9", b"?job=1&after=0&wait=8"),
        (b"?client=c&wait=9&after=0", b"?client=c&wait=8&after=0"),
    ],
)
def test_one_that_is_written_in_another_way_is_read_each_time(run: Run, first: bytes, then: bytes) -> None:
    async def test(rig: Rig) -> None:
        caller, other = await rig.caller(), await rig.caller()
        await other.asked(submitting())
        caller.writer.write(asking(first))
        await becomes(lambda: rig.driver.listeners == 1)
        rig.engine.end(1, 0)
        before = await caller.answer()
        assert await caller.asked(asking(then)) == before
        assert len(rig.desks._calls._questions) == 0

    run(test)


def test_a_submission_may_come_byte_by_byte(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        text = submitting()
        for place in range(0, len(text), 3):
            caller.writer.write(text[place : place + 3])
            await asyncio.sleep(0)
        assert (await caller.answer())[0] == 200

    run(test)


def test_a_submission_whose_caller_has_gone_is_accepted_all_the_same(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller, other = await rig.caller(), await rig.caller()
        caller.writer.write(submitting())
        await caller.writer.drain()
        caller.writer.close()
        await becomes(lambda: rig.journal.open_jobs() == {1})
        assert (await other.asked(submitting()))[0] == 200

    run(test)


def test_a_caller_gets_the_message_that_it_has_waited_for(run: Run) -> None:
    async def test(rig: Rig) -> None:
        waiting, other = await rig.caller(), await rig.caller()
        await other.asked(submitting())
        waiting.writer.write(asking(b"?client=c&after=0&wait=60&results=1000"))
        await becomes(lambda: rig.driver.listeners == 1)
        await becomes(lambda: rig.engine.running)
        rig.engine.end(1, 0)
        status, _, body = await waiting.answer()
        messages = msgspec.msgpack.decode(body, type=wire.Messages)
        assert (status, [(told.job, told.task) for told in messages.messages]) == (200, [(1, 0), (1, None)])
        assert rig.driver.listeners == 0
        assert (await waiting.asked(asking()))[0] == 200  # the connection goes on

    run(test)


def test_a_caller_that_hangs_up_is_forgotten_at_once(run: Run) -> None:
    async def test(rig: Rig) -> None:
        waiting = await rig.caller()
        waiting.writer.write(asking(b"?client=c&wait=60"))
        await becomes(lambda: rig.driver.listeners == 1)
        waiting.writer.transport.abort()
        await becomes(lambda: rig.driver.listeners == 0)

    run(test)


def test_an_answer_that_cannot_be_made_is_an_error_and_no_silence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise ValueError("a mistake of ours")

    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        monkeypatch.setattr(Api, "messages", broken)
        assert (await caller.asked(asking()))[0] == 500
        monkeypatch.undo()
        assert (await caller.asked(asking()))[0] == 200

    run(test)


def test_a_server_that_ends_answers_those_who_wait_and_closes_their_connections(run: Run) -> None:
    async def test(rig: Rig) -> None:
        caller = await rig.caller()
        caller.writer.write(asking(b"?client=c&wait=60"))
        await becomes(lambda: rig.driver.listeners == 1)
        for connection in [each for each in gc.get_objects() if isinstance(each, line.HttpConnection)]:
            cast(Any, connection).shutdown()
        rig.driver.take_no_more()
        status, headers, _ = await caller.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert await caller.reader.read() == b""

    run(test)
