"""Alerts before a job is late: of which jobs, how often, what they say, and what a bad receiver costs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import shlex
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from headway import Client, Job, Task, wire
from headway.errors import InvalidInput
from headway.live import alerts, forecasts
from headway.live.alerts import LIKELY_LATE, Alerts, AlertSettings
from headway.live.driver import Driver
from headway.live.forecasts import AdviceQuestion, ForecastQuestion, Tell, ToldForecast
from headway.live.outside import OtherProcesses
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.model.forecast import Advice, Bounds, Chance, Expected, Forecast
from headway.model.instant import SECOND
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission

from ..waiting import becomes

SECRET = "s3cret"
NOT_TOLD = "alert_not_told"


class Foretold:
    """Forecasts by which every job ends at `end`, in seconds, with the chances that a test gives by job.

    Attributes:
        is_sure: whether it is found out how sure that is.
        gate: while it is closed, that is still being found out.
        advice: is given of every job.
    """

    def __init__(self, **chances: float | None) -> None:
        self.chances = {int(name[1:]): chance for name, chance in chances.items()}
        self.end = 40
        self.asked = 0
        self.is_sure = True
        self.gate = threading.Event()
        self.gate.set()
        self.advice = Advice(0.9, 50 * SECOND, None, 3)

    def __call__(self, question: ForecastQuestion, told: Tell) -> ToldForecast:
        self.asked += 1
        told(self._made(question, is_sure=False))
        self.gate.wait(20)
        return self._made(question, is_sure=self.is_sure)

    def _made(self, question: ForecastQuestion, *, is_sure: bool) -> ToldForecast:
        end = Bounds(*[self.end * SECOND] * 5)
        made = tuple(
            Expected(
                *(job, None, self.end * SECOND),
                chance=None if on_time is None or not is_sure else Chance(None, end, on_time, 40),
            )
            for job, on_time in self.chances.items()
        )
        return ToldForecast.of(Forecast(question.at, None, 0, made, event=question.event, is_sure=is_sure))

    def advise(self, question: AdviceQuestion) -> Advice:
        return self.advice


class Webhook:
    """Takes what is posted, and answers as it is told; None: never.

    Attributes:
        calls: how many have connected; on a busy machine one may be gone before it has posted anything.
    """

    def __init__(self, *answers: int | None) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.signatures: list[str] = []
        self.calls = 0
        self.open = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        self.open += 1
        try:
            await self._take(reader, writer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
            self.open -= 1

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        self.bodies.append(await reader.readexactly(int(fields["Content-Length"])))
        self.signatures.append(fields[alerts.SIGNATURE])
        status = self.answers.pop(0) if self.answers else 200
        if status is None:
            await reader.read()  # until the caller has gone
        else:
            writer.write(f"HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n".encode())
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def driver(folder: Path, foretold: Foretold, clock: ManualClock | None = None) -> AsyncIterator[Driver]:
    with closing(Journal(folder)) as journal:
        live = Driver(
            *(journal, FakeEngine(), clock or ManualClock(5), find, DriverSettings(policy="edf")),
            processes=OtherProcesses(forecast=foretold, advise=foretold.advise),
        )
        await live.start((node("a", slots=2),))
        try:
            yield live
        finally:
            await live.stop()


@asynccontextmanager
async def heard(webhook: Webhook) -> AsyncIterator[str]:
    server = await asyncio.start_server(webhook.take, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        await becomes(lambda: not webhook.open)
    finally:
        server.close()


def incidents(live: Driver, kind: str) -> list[str]:
    return [f"{one.subject}: {one.detail}" for _, one in live.journal.incidents(100) if one.kind == kind]


async def submitted(live: Driver, *due: float | None) -> None:
    await live.submit("me", submission(*(new_job(name=f"j{date}", estimate=9.0, due=date) for date in due)))


async def look(alerts: Alerts) -> None:
    await alerts.look()
    await alerts.settle()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())


def test_it_is_told_once_of_each_job_that_is_likely_late(tmp_path: Path) -> None:
    async def scenario() -> None:
        foretold, webhook = Foretold(j1=0.4, j2=0.6, j3=None, j4=None), Webhook()
        async with driver(tmp_path, foretold) as live, heard(webhook) as url:
            await submitted(live, 30.0, 30.0, 30.0, None)
            looking = Alerts(live, AlertSettings(url), SECRET)
            await look(looking)
            bodies: list[dict[str, Any]] = [json.loads(body) for body in sorted(webhook.bodies)]
            assert [(body["job"], body["on_time"]) for body in bodies] == [(1, 0.4), (3, None)], "3: by its estimate"
            assert bodies[0] == {
                "alert": "likely_late",
                "job": 1,
                "name": "j30.0",
                "user": "me",
                "at": 5,
                "due": 30,
                "on_time": 0.4,
                "expected_end": 40,
                "helps": {"sure": 0.9, "due": 50, "slots": 3},
            }
            for body, signature in zip(webhook.bodies, webhook.signatures, strict=True):
                known = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
                assert signature == f"sha256={known}"
            foretold.chances[2] = 0.1
            await live.change(4, wire.JobChange(priority=2.0), by="me")
            await look(looking)
            await look(looking)
            assert [json.loads(body)["job"] for body in webhook.bodies] == [1, 3, 2]
            await becomes(lambda: len(incidents(live, LIKELY_LATE)) == 3)
            assert (
                "job 1: due at 1970-01-01 00:00:30, it is on time with 40 %; it would be with 90 %, with"
                in (incidents(live, LIKELY_LATE)[0])
            )
            assert incidents(live, NOT_TOLD) == []

    run(scenario)


async def told_of(live: Driver, looking: Alerts) -> list[str]:
    """Look, and read all that there is then: what is submitted later is written later."""
    await look(looking)
    await submitted(live, None)
    return incidents(live, LIKELY_LATE)


def test_as_long_as_it_may_become_known_how_sure_that_is_the_estimates_do_not_count(tmp_path: Path) -> None:
    """By its estimates the job ends at 40, and it is due at 30."""

    async def scenario() -> None:
        foretold, clock = Foretold(j1=0.99), ManualClock(5)
        foretold.is_sure = False
        async with driver(tmp_path, foretold, clock) as live:
            await submitted(live, 30.0)
            looking = Alerts(live, AlertSettings(), SECRET)
            assert await told_of(live, looking) == []
            foretold.is_sure = True
            assert await told_of(live, looking) == [], "it is on time"
            foretold.chances[1] = 0.1
            (said,) = await told_of(live, looking)
            assert "it is on time with 10 %" in said

    run(scenario)


def test_a_look_waits_until_it_is_known_how_sure_the_forecast_in_hand_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer than who asks waits, and how sure the last one was is too old."""
    monkeypatch.setattr(forecasts, "SURE_FOR", 0.0)

    async def scenario() -> None:
        foretold = Foretold(j1=0.99)
        async with driver(tmp_path, foretold) as live:
            await submitted(live, 30.0)
            looking = Alerts(live, AlertSettings(), SECRET)
            assert await told_of(live, looking) == []
            foretold.gate.clear()
            monkeypatch.setattr(forecasts, "EXACT_PATIENCE", 0.01)
            looks = asyncio.create_task(told_of(live, looking))
            await becomes(lambda: foretold.asked == 2)
            await asyncio.sleep(0.1)
            assert not looks.done()
            assert incidents(live, LIKELY_LATE) == []
            monkeypatch.setattr(forecasts, "SURE_FOR", 15.0)
            foretold.gate.set()
            assert await looks == []

    run(scenario)


def test_if_it_is_never_known_how_sure_that_is_it_is_told_after_a_while_by_the_estimates(tmp_path: Path) -> None:
    async def scenario() -> None:
        foretold, clock = Foretold(j1=None), ManualClock(5)
        foretold.is_sure, foretold.end = False, 900
        async with driver(tmp_path, foretold, clock) as live:
            await submitted(live, 800.0)
            looking = Alerts(live, AlertSettings(), SECRET)
            for _ in range(4):
                assert await told_of(live, looking) == []
                clock.advance(30)
            (said,) = await told_of(live, looking)
            assert "by its estimates it is late (no forecast has told for 2 min how sure that is)" in said

    run(scenario)


def test_of_a_job_whose_due_date_has_passed_it_is_told_that_and_what_was_not_known(tmp_path: Path) -> None:
    async def scenario() -> None:
        foretold, clock = Foretold(), ManualClock(5)
        foretold.advice = Advice(0.9, lack="nothing tells how long its tasks run")
        async with driver(tmp_path, foretold, clock) as live:
            await live.submit("me", submission(new_job(due=30.0)))
            looking = Alerts(live, AlertSettings(), SECRET)
            assert await told_of(live, looking) == []
            clock.advance(26)
            (said,) = await told_of(live, looking)
            assert said.endswith("due at 1970-01-01 00:00:30, which has passed; nothing tells how long its tasks run")

    run(scenario)


def test_a_date_before_its_own_is_no_offer(tmp_path: Path) -> None:
    async def scenario() -> None:
        foretold, webhook = Foretold(j1=0.1), Webhook()
        foretold.advice = Advice(0.9, 29 * SECOND, None, 3)
        async with driver(tmp_path, foretold) as live, heard(webhook) as url:
            await submitted(live, 30.0)
            (said,) = await told_of(live, Alerts(live, AlertSettings(url), SECRET))
            assert said.endswith("it is on time with 10 %; it would be with 90 %, with 3 more slots")
            assert json.loads(webhook.bodies[0])["helps"] == {"sure": 0.9, "due": None, "slots": 3}

    run(scenario)


def test_after_a_restart_it_is_not_told_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        for told in (1, 0):
            webhook = Webhook()
            async with driver(tmp_path, Foretold(j1=0.1)) as live, heard(webhook) as url:
                if told:
                    await submitted(live, 30.0)
                looking = Alerts(live, AlertSettings(url), SECRET)
                looking.start()
                await look(looking)
                looking.stop()
                assert len(webhook.bodies) == told
                await becomes(lambda: len(incidents(live, LIKELY_LATE)) == 1)

    run(scenario)


def test_where_nothing_is_due_no_forecast_is_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        foretold = Foretold(j1=0.1)
        async with driver(tmp_path, foretold) as live:
            await submitted(live, None)
            await look(Alerts(live, AlertSettings(), SECRET))
            assert foretold.asked == 0

    run(scenario)


@pytest.mark.parametrize(
    ("answers", "posts", "said"),
    [
        ((500, 302, 200), 3, []),
        ((500, 500, 404), 3, ["answers with status 404"]),
        ((None, None, None), 3, ["has not answered within 0.05 s"]),
    ],
)
def test_a_webhook_that_fails_or_hangs_is_tried_three_times_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: tuple[int | None, ...], posts: int, said: list[str]
) -> None:
    if None in answers:
        monkeypatch.setattr(alerts, "ALERT_LIMIT", SECOND // 20)

    async def scenario() -> None:
        webhook = Webhook(*answers)
        async with driver(tmp_path, Foretold(j1=0.1)) as live, heard(webhook) as url:
            await submitted(live, 30.0)
            await look(Alerts(live, AlertSettings(url), SECRET, pauses=(0, 0)))
            await becomes(lambda: webhook.calls == posts)
            await becomes(lambda: len(incidents(live, NOT_TOLD)) == len(said))
            assert all(text in incidents(live, NOT_TOLD)[0] for text in said)

    run(scenario)


def test_a_webhook_that_hangs_delays_no_incident_and_no_command(tmp_path: Path) -> None:
    kept = tmp_path / "told"
    writes = f"import sys; open({str(kept)!r}, 'a').write(sys.stdin.read() + chr(10))"

    async def scenario() -> None:
        webhook = Webhook(None, None)
        async with driver(tmp_path / "data", Foretold(j1=0.1, j2=0.1)) as live, heard(webhook) as url:
            await submitted(live, 30.0, 30.0)
            looking = Alerts(live, AlertSettings(url, (sys.executable, "-c", writes)), SECRET)
            await looking.look()
            await becomes(lambda: len(incidents(live, LIKELY_LATE)) == 2)
            await becomes(lambda: kept.exists() and len(kept.read_text().splitlines()) == 2)
            await becomes(lambda: webhook.open == 2)
            looking.stop()
            await looking.settle()

    run(scenario)


def test_a_command_that_runs_is_ended_before_the_telling_is(tmp_path: Path) -> None:
    """Beside a webhook that hangs, whose end does not stand for the command's."""
    begun = tmp_path / "begun"
    waits = f"import os, time; open({str(begun)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    async def scenario() -> None:
        async with driver(tmp_path / "data", Foretold(j1=0.1)) as live, heard(Webhook(None)) as url:
            await submitted(live, 30.0)
            looking = Alerts(live, AlertSettings(url, (sys.executable, "-c", waits)), SECRET)
            await looking.look()
            await becomes(lambda: begun.exists() and begun.read_text() != "")
            looking.stop()
            await looking.settle()
            assert not psutil.pid_exists(int(begun.read_text()))

    run(scenario)


def test_a_webhook_that_is_not_there_is_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with driver(tmp_path, Foretold(j1=0.1)) as live:
            await submitted(live, 30.0)
            with socket.socket() as taken:  # nobody listens there, and nobody else gets the port
                taken.bind(("127.0.0.1", 0))
                url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
                await look(Alerts(live, AlertSettings(url), SECRET, pauses=(0, 0)))
            await becomes(lambda: any("does not answer" in text for text in incidents(live, NOT_TOLD)))

    run(scenario)


def test_a_command_gets_the_alert_on_its_input(tmp_path: Path) -> None:
    kept = tmp_path / "alert.json"
    writes = f"import sys; open({str(kept)!r}, 'w').write(sys.stdin.read())"

    async def scenario() -> None:
        async with driver(tmp_path / "data", Foretold(j1=0.1)) as live:
            await submitted(live, 30.0)
            await look(Alerts(live, AlertSettings(command=(sys.executable, "-c", writes)), SECRET))
            assert msgspec.json.decode(kept.read_bytes())["job"] == 1
            await submitted(live, 31.0)
            live.forecasts._ask = Foretold(j2=0.1)
            failing = AlertSettings(command=(sys.executable, "-c", "raise SystemExit('no room')"))
            await look(Alerts(live, failing, SECRET))
            await becomes(lambda: any("exit code 1: no room" in text for text in incidents(live, NOT_TOLD)))

    run(scenario)


SERVER = """
from headway.cli.main import main
from headway.live import alerts
alerts.LOOK_AT_JOBS_SECONDS = 0.2  # seconds between two looks
main()
"""


def words_of(process: psutil.Process) -> list[str]:
    """How a process was started; nothing of one that has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


@pytest.mark.long
def test_a_server_is_told_by_its_options_whom_to_tell(tmp_path: Path) -> None:
    """Of a job whose due date has passed the command and the webhook get one alert, signed with the server's secret.

    The process that makes its forecasts has been told to count on jobs that will come.
    """
    kept, data = tmp_path / "alert.json", tmp_path / "data"
    writes = f"import sys; open({str(kept)!r}, 'a').write(sys.stdin.read() + chr(10))"
    words = ["up", "--json", "--data", str(data), "--slots", "1", "--forecast-arrivals"]
    words += ["--alert-command", shlex.join((sys.executable, "-c", writes))]

    def submit() -> None:
        with Client(data=data) as client:
            client.submit(Job("bills", [Task.command("sleep", "600")], due="2020-01-01 12:00"))

    async def scenario() -> None:
        webhook = Webhook()
        async with heard(webhook) as url:
            server = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", SERVER, *words, "--alert-url", url), stdout=asyncio.subprocess.PIPE
            )
            try:
                assert server.stdout is not None
                assert await server.stdout.readline(), "it is up"
                await asyncio.to_thread(submit)
                await becomes(lambda: webhook.bodies and kept.exists() and kept.read_text().endswith("\n"))
                ran = list(map(words_of, psutil.Process(server.pid).children(recursive=True)))
            finally:
                server.terminate()
                await server.wait()
        (body,), (signature,) = webhook.bodies, webhook.signatures
        assert kept.read_bytes() == body + b"\n"
        told = json.loads(body)
        assert (told["job"], told["name"], told["on_time"]) == (1, "bills", 0.0)
        secret = (data / "alert-secret").read_text().strip()
        assert signature == f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
        (forecaster,) = [words for words in ran if "headway.forecaster" in words]
        assert forecaster[-2:] == [str(data), "--arrivals"]

    run(scenario)


@pytest.mark.parametrize("below", [0.0, -1.0, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(below: float) -> None:
    with pytest.raises(InvalidInput, match="alert_below"):
        AlertSettings(below=below)


@pytest.mark.parametrize(
    "url", ["ftp://there/", "there", "http://", "http://u:p@there/", "http://there:99999/", "http://there/ x"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="alert_url"):
        AlertSettings(url)
