"""The HTTP interface, called as by an HTTP server: tokens, bodies of both kinds, every route, every refusal."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import msgspec
import pytest

from headway import __version__, wire
from headway.access.tokens import Tokens
from headway.live import aside
from headway.live.checker import PERIOD, Checker
from headway.live.delay import LoopDelay
from headway.live.driver import Driver
from headway.live.settings import DriverSettings
from headway.live.store.checks import MetricRow
from headway.live.store.journal import FILE, Journal
from headway.model.actions import JobStatus
from headway.model.events import Asked, NodeJoined, Outcome
from headway.model.instant import SECOND, to_seconds
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission
from headway.times import clock_text
from headway.web import api as api_module
from headway.web.api import LIMIT_MAX, Api
from headway.web.bodies import BODY_MAX, JSON_MAX, OTHERS_MAX
from headway.web.openapi import describe

TOKEN = "t0ken"


class Rig:
    """An interface on a driver with a fake engine."""

    def __init__(self, api: Api, driver: Driver, engine: FakeEngine, ended: list[bool]) -> None:
        self.api, self.driver, self.engine, self.ended = api, driver, engine, ended

    async def send(
        self, method: str, target: str, body: bytes | list[bytes] = b"", *, hangs_up: bool = False, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer. A caller that `hangs_up` does not send the end of the body."""
        parts = body if isinstance(body, list) else [body]
        messages = [
            {"type": "http.request", "body": part, "more_body": hangs_up or number < len(parts)}
            for number, part in enumerate(parts, 1)
        ]
        if hangs_up:
            messages.append({"type": "http.disconnect"})
        sent: list[Any] = []
        complete = asyncio.Event()

        async def receive() -> Any:
            if messages:
                return messages.pop(0)
            await complete.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if message["type"] == "http.response.body":
                complete.set()

        url = urlsplit(target)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": url.path,
            "raw_path": url.path.encode(),
            "query_string": url.query.encode(),
            "root_path": "",
            "scheme": "http",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
            "server": ("127.0.0.1", 1),
            "client": ("127.0.0.1", 2),
        }
        await self.api.app(scope, receive, send)
        start = sent[0]
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        return start["status"], found, b"".join(part.get("body", b"") for part in sent[1:])

    async def ask(
        self, route: wire.Route, body: Any = None, *, query: str = "", status: int = 200, **names: int | str
    ) -> Any:
        """The answer in MessagePack, of the route's type or an `ErrorBody`; `names` fill the path."""
        got, headers, content = await self.send(
            route.method,
            route.path.format(**{"job": 0, "node": "", "upload": "", "token": "", **names}) + query,
            b"" if body is None else wire.encode(body),
            authorization=f"Bearer {TOKEN}",
            accept=wire.MSGPACK,
            content_type=wire.MSGPACK,
        )
        assert got == status, content
        assert headers["content-type"] == wire.MSGPACK
        return msgspec.msgpack.decode(content, type=route.answer if status < 400 else wire.ErrorBody)

    async def json(self, route: wire.Route, body: Any = None, *, query: str = "", status: int = 200) -> Any:
        """The answer in JSON, as plain values."""
        got, headers, content = await self.send(
            route.method,
            route.path.format(job=1, node="n") + query,
            b"" if body is None else json.dumps(body).encode(),
            authorization=f"Bearer {TOKEN}",
            content_type=wire.JSON,
        )
        assert got == status, content
        assert headers["content-type"] == wire.JSON
        return json.loads(content)

    async def end(self, *key: int, **ending: Any) -> None:
        self.engine.end(*key, **ending)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def run(folder: Path, scenario: Callable[[Rig], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        with closing(Journal(folder)) as journal:
            engine, ended = FakeEngine(), list[bool]()
            driver = Driver(journal, engine, ManualClock(5), find, DriverSettings(policy="fcfs"))
            await driver.start((node("n", slots=2),))
            checker = Checker(driver, ManualClock(5), {}, dict)
            api = Api(
                driver,
                Tokens(TOKEN, "me"),
                lambda: ended.append(True),
                checker=checker,
                delay=LoopDelay(),
                **settings,
            )
            await scenario(Rig(api, driver, engine, ended))
            if not driver.broken.done():
                await driver.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({}, "no token was sent"),
        ({"authorization": TOKEN}, "no token was sent"),
        ({"authorization": f"Basic {TOKEN}"}, "no token was sent"),
        ({"authorization": "Bearer "}, "no token was sent"),
        ({"authorization": "Bearer wrong"}, "not the one of this server"),
        ({"authorization": f"Bearer {TOKEN}x"}, "not the one of this server"),
        ({"authorization": "Bearer Ünicode"}, "not the one of this server"),
    ],
)
def test_nothing_is_told_or_done_without_the_token(tmp_path: Path, headers: dict[str, str], error: str) -> None:
    async def scenario(rig: Rig) -> None:
        for route in wire.ROUTES:
            if route is wire.HEALTH:
                continue
            status, answered, content = await rig.send(
                route.method,
                route.path.format(job=1, node="n", upload="u", service="s", token="00000000"),
                b'{"jobs": []}',
                **headers,
            )
            assert (status, answered["www-authenticate"]) == (401, "Bearer"), route.name
            assert error in json.loads(content)["error"]
        assert not rig.ended
        assert rig.driver.commits == 1

    run(tmp_path, scenario)


def test_health_needs_no_token(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        status, _, content = await rig.send("GET", "/health")
        assert (status, json.loads(content)) == (200, {"version": __version__, "accepts": True})

    run(tmp_path, scenario)


def test_a_job_by_messagepack(tmp_path: Path) -> None:
    blob = b"function"
    name = wire.blob_name(blob)

    async def scenario(rig: Rig) -> None:
        call = wire.NewJob(wire.Calls((name,), (b"0", b"1")), tasks=2, name="bills", priority=5.0)
        missing = await rig.ask(wire.SUBMIT, wire.Submission((call,)), status=422)
        assert missing.missing == (name,)
        answer = await rig.ask(wire.SUBMIT, wire.Submission((call,), client="c", blobs={name: blob}))
        assert answer == wire.Submitted((1,), 0)
        detail = await rig.ask(wire.JOB, job=1)
        assert (detail.job.name, detail.job.user, detail.job.status) == ("bills", "me", JobStatus.RUNNING)
        assert detail.slots == ("n/0", "n/1")
        assert [(a.task, a.slots) for a in detail.attempts] == [(0, ("n/0",)), (1, ("n/1",))]
        await rig.end(1, 0, result=b"zero")
        await rig.end(1, 1, outcome=Outcome.RAISED, result=b"large" * 100, detail="Traceback")
        told = await rig.ask(wire.MESSAGES, query="?client=c&results=200&wait=1")
        assert [(m.number, m.task, m.outcome, m.status) for m in told.messages] == [
            (1, 0, Outcome.SUCCEEDED, None),
            (2, 1, Outcome.RAISED, None),
            (3, None, None, JobStatus.FAILED),
        ]
        assert [m.result and m.result.ending.value for m in told.messages] == [b"zero", None, None]
        assert told.cursor == 3
        results = await rig.ask(wire.RESULTS, wire.ResultsWanted((wire.TaskRange(1, 1), wire.TaskRange(7))))
        assert [(r.task, r.ending.detail) for r in results.results] == [(1, "Traceback")]
        assert await rig.ask(wire.CLEAR, wire.JobsNamed((1,))) == wire.Done(1)
        assert (await rig.ask(wire.RESULTS, wire.ResultsWanted((wire.TaskRange(1),)))).results == ()

    run(tmp_path, scenario)


def test_a_job_by_json(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        work = {"type": "commands", "commands": [{"argv": ["echo", "{i}"]}]}
        answer = await rig.json(wire.SUBMIT, {"jobs": [{"work": work, "kind": "rigid", "width": 2}]})
        assert answer["jobs"] == [1]
        await rig.end(1, 0, result=b"\0")
        told = await rig.json(wire.MESSAGES, query="?job=1&results=1000")
        value = told["messages"][0]["result"]["ending"]["value"]
        assert base64.b64decode(value) == b"\0"
        assert (await rig.json(wire.JOB))["job"]["kind"] == "rigid"
        results = await rig.json(wire.RESULTS, {"wanted": [{"job": 1}]})
        assert [result["task"] for result in results["results"]] == [0]

    run(tmp_path, scenario)


def test_what_runs_and_waits_is_told_and_changed(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.SUBMIT, submission(new_job(tasks=2), new_job(user="you"), new_job(release=100.0)))
        assert [job.id for job in (await rig.ask(wire.JOBS)).jobs] == [1, 2, 3]
        for query, ids in [
            ("?status=open", [1, 2, 3]),
            ("?status=running", [1]),
            ("?status=held", [3]),
            ("?status=succeeded", []),
            ("?user=you", [2]),
            ("?after=1", [2, 3]),
        ]:
            assert [job.id for job in (await rig.ask(wire.JOBS, query=query)).jobs] == ids, query
        assert (await rig.ask(wire.JOBS, query=f"?after={2**63 - 1}")).jobs == ()
        cut = await rig.ask(wire.JOBS, query="?limit=2")
        assert ([job.id for job in cut.jobs], cut.more) == ([1, 2], True)
        nodes = (await rig.ask(wire.NODES)).nodes
        assert [(n.name, n.slots, len(n.attempts)) for n in nodes] == [("n", ("busy", "busy"), 2)]
        why = await rig.ask(wire.EXPLAIN, job=2)
        assert (why.status, why.reason, bool(why.text)) == (JobStatus.WAITING, "NO_ROOM_NOW", True)
        assert await rig.ask(wire.CHANGE, wire.JobChange(due=9), job=2) == wire.Done(1)
        assert (await rig.ask(wire.JOB, job=2)).job.due == 9
        assert await rig.ask(wire.CHOOSE, wire.PolicyChoice("edf")) == wire.PolicyText("edf")
        assert await rig.ask(wire.POLICY) == wire.PolicyText("edf")
        assert await rig.ask(wire.CANCEL_TASKS, wire.TasksNamed((1, 1)), job=1) == wire.Done(1)
        assert await rig.ask(wire.CANCEL_TASKS, wire.TasksNamed((1,)), job=1) == wire.Done(0)
        answer = await rig.ask(wire.CANCEL_TASKS, wire.TasksNamed((0, 2)), job=1, status=422)
        assert answer.error == "tasks is 2; allowed: numbers of tasks of job 1, 0 to 1"
        assert await rig.ask(wire.CANCEL, wire.JobsNamed((2, 3))) == wire.Done(2)
        why = await rig.ask(wire.EXPLAIN, job=2)
        assert (why.reason, why.text) == ("ENDED", "it has ended: cancelled")
        told = await rig.ask(wire.STATISTICS)
        assert (told.policy, told.jobs, told.running, told.slots, told.full) == ("edf", 1, 2, 2, "")

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("status", "route", "body", "query", "error"),
    [
        (400, wire.SUBMIT, {}, "", "Object missing required field `jobs`"),
        (422, wire.SUBMIT, {"jobs": [{"work": {"type": "commands", "commands": []}}]}, "", "work.commands is 0"),
        (400, wire.SUBMIT, {"jobs": [{"work": {"type": "shell"}}]}, "", "Invalid value 'shell'"),
        (400, wire.SUBMIT, {"jobs": [], "job": 1}, "", "unknown field `job`"),
        (422, wire.SUBMIT, {"jobs": []}, "", "jobs is []; allowed: at least one job"),
        (400, wire.CHANGE, {"priority": "high"}, "", "Expected `float | null`, got `str` 'high' - at `$.priority`"),
        (422, wire.CHANGE, {}, "", "allowed: a new term at least, or without_due"),
        (422, wire.CHANGE, {"rate": -1}, "", "rate is -1.0; allowed: a finite number, 0 or more"),
        (400, wire.CHANGE, {"shape": "cubic"}, "", "cubic"),
        (422, wire.CHANGE, {"threshold": 1}, "", "threshold is 1.0; allowed: none: job 1 is no service"),
        (422, wire.CHANGE, {"due": 10**30}, "", "due is 1e+30"),
        (400, wire.CANCEL, {"jobs": [10**30]}, "", "$.jobs[0]"),
        (400, wire.CLEAR, {"jobs": [-1]}, "", "Expected `int` >= 0, got -1 - at `$.jobs[0]`"),
        (400, wire.RESULTS, {"wanted": [{"job": 1, "last": 10**30}]}, "", "$.wanted[0].last"),
        (400, wire.JOBS, None, "?after=100000000000000000000", "after is '1"),
        (400, wire.MESSAGES, None, "?job=100000000000000000000", "job is '1"),
        (422, wire.CHOOSE, {"policy": "easi"}, "", "'easi'"),
        (422, wire.CHOOSE, {"policy": "easy:dept=1"}, "", "dept"),
        (400, wire.JOBS, None, "?status=runing", "status is 'runing'; allowed: open, held"),
        (400, wire.JOBS, None, "?stat=open", "parameter is 'stat'; allowed: one of status"),
        (400, wire.JOBS, None, "?limit=0", "limit is 0; allowed: 1 to 10000"),
        (400, wire.JOBS, None, "?limit=many", "limit is 'many'"),
        (400, wire.MESSAGES, None, "?wait=61", "wait is 61.0; allowed: 0.0 to 60.0"),
        (400, wire.MESSAGES, None, "?wait=nan", "wait is nan"),
        (400, wire.MESSAGES, None, "?job=" + "&job=".join(["1"] * 1001), "job is '1001 jobs'; allowed: at most 1000"),
        (400, wire.NODES, None, "?x=1", "parameter is 'x'; allowed: none"),
        *(
            (400, route, None, f"?by={by}", f"by is '{by}'; allowed: hand")
            for route in (wire.SWITCH_NODE_OFF, wire.SWITCH_NODE_ON)
            for by in ("foot", "", "Hand")
        ),
    ],
)
def test_bad_questions_are_answered_clearly_and_change_nothing(
    tmp_path: Path, status: int, route: wire.Route, body: Any, query: str, error: str
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.SUBMIT, submission())
        before = rig.driver.core.dump()
        answer = await rig.json(route, body, query=query, status=status)
        assert error in answer["error"]
        assert rig.driver.core.dump() == before

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "terms",
    [
        *({name: 10**30} for name in ("tasks", "release", "estimate", "due", "retries", "time_limit", "memory_limit")),
        {"due": -(2**62)},
        {"tasks": 1, "kind": "workflow", "plan": [{"estimate": 10**30}]},
    ],
)
def test_numbers_that_the_journal_cannot_hold_are_refused_at_submission(tmp_path: Path, terms: dict[str, Any]) -> None:
    async def scenario(rig: Rig) -> None:
        job = {"work": {"type": "commands", "commands": [{"argv": ["true"]}]}, **terms}
        assert "allowed: " in (await rig.json(wire.SUBMIT, {"jobs": [job]}, status=422))["error"]
        assert await rig.ask(wire.SUBMIT, submission()) == wire.Submitted((1,), 0)

    run(tmp_path, scenario)


@pytest.mark.parametrize("priority", [float("nan"), float("inf")])
def test_a_priority_that_has_no_order_is_refused(tmp_path: Path, priority: float) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.SUBMIT, submission())
        refused = await rig.ask(wire.CHANGE, wire.JobChange(priority=priority), job=1, status=422)
        assert "priority is" in refused.error
        assert (await rig.ask(wire.JOB, job=1)).job.priority == 0

    run(tmp_path, scenario)


def test_json_without_its_content_type_is_told_what_it_lacks(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        form = "application/x-www-form-urlencoded"
        token = f"Bearer {TOKEN}"
        status, _, content = await rig.send("POST", wire.SUBMIT.path, b"{}", authorization=token, content_type=form)
        assert (status, json.loads(content)["hint"]) == (400, "JSON wants Content-Type: application/json.")

    run(tmp_path, scenario)


def test_near_names_are_offered(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        assert "easy" in (await rig.json(wire.CHOOSE, {"policy": "easi"}, status=422))["hint"]
        assert "running" in (await rig.json(wire.JOBS, query="?status=runing", status=400))["hint"]

    run(tmp_path, scenario)


def test_jobs_that_never_were_are_not_found(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.SUBMIT, submission())
        for route, body, query in [
            (wire.JOB, None, ""),
            (wire.EXPLAIN, None, ""),
            (wire.ADVISE_OPEN, None, ""),
            (wire.CHANGE, wire.JobChange(priority=1.0), ""),
            (wire.CANCEL, wire.JobsNamed((1, 7)), ""),
            (wire.CANCEL_TASKS, wire.TasksNamed((0,)), ""),
            (wire.MESSAGES, None, "?job=7"),
        ]:
            answer = await rig.ask(route, body, job=7, query=query, status=404)
            assert answer.error == "there is no job 7"
        assert rig.engine.killed == []
        status, _, content = await rig.send("GET", "/v1/jobs/x", authorization=f"Bearer {TOKEN}")
        assert (status, json.loads(content)["error"]) == (
            400,
            "job is 'x'; allowed: the id of a job, a whole number of at most 18 digits",
        )
        unknown = [("GET", "/v1/nothing", 404, "not_found"), ("DELETE", "/v1/jobs", 405, "method_not_allowed")]
        for method, path, expected, code in unknown:
            status, _, content = await rig.send(method, path, authorization=f"Bearer {TOKEN}")
            assert status == expected
            assert f"{method} {path}" in json.loads(content)["error"]
            assert json.loads(content)["code"] == code

    run(tmp_path, scenario)


def test_bodies_that_are_too_large_or_broken_are_refused(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        path, token = wire.SUBMIT.path, f"Bearer {TOKEN}"
        for body, extra in [(b"", {"content_length": "1001"}), ([b"x" * 600, b"x" * 600], {})]:
            status, _, content = await rig.send("POST", path, body, authorization=token, **extra)
            assert status == 413
            assert "more than 1000 bytes" in json.loads(content)["error"]
        for body in (b"", b"\xc1", b"{", b"\x81"):
            status, _, content = await rig.send("POST", path, body, authorization=token)
            assert status == 400, body
            assert "the body of submit is not valid" in json.loads(content)["error"]

    run(tmp_path, scenario, body_max=1000)


def test_only_submissions_in_messagepack_may_be_large(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        for route, kind, most in (
            (wire.SUBMIT, wire.JSON, JSON_MAX),
            (wire.SUBMIT, wire.MSGPACK, BODY_MAX),
            (wire.CANCEL, wire.JSON, OTHERS_MAX),
            (wire.CANCEL, wire.MSGPACK, OTHERS_MAX),
        ):
            for size, expected in ((most, 400), (most + 1, 413)):
                status, _, content = await rig.send(
                    *("POST", route.path, b"\xc1"),
                    authorization=f"Bearer {TOKEN}",
                    content_type=kind,
                    content_length=str(size),
                )
                assert status == expected, content

    run(tmp_path, scenario)


def test_every_event_that_a_request_caused_has_its_caller(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        jobs = (new_job(tasks=3, name="one"), new_job(name="two", user="you"))
        accepted = await rig.ask(wire.SUBMIT, submission(*jobs))
        first, second = accepted.jobs
        await rig.ask(wire.CHANGE, wire.JobChange(priority=2.0, due=7), job=first)
        await rig.ask(wire.CANCEL_TASKS, wire.TasksNamed((2,)), job=first)
        await rig.ask(wire.CANCEL, wire.JobsNamed((second,)))
        await rig.ask(wire.ADD_NODE, wire.NewNode("m", slots=2))
        await rig.ask(wire.RESIZE_NODE, wire.NodeSize(1, at_once=True), node="m")
        await rig.ask(wire.DRAIN_NODE, node="m")
        await rig.ask(wire.ADD_NODE, wire.NewNode("o"))
        await rig.ask(wire.REMOVE_NODE, node="o")
        await rig.ask(wire.REMOVE_NODE, node="n", status=409)
        await rig.ask(wire.CHOOSE, wire.PolicyChoice("easy", "http://127.0.0.1:9", 3.0))
        await rig.ask(wire.SET_CHECKER, wire.CheckerChange(on=False))
        await rig.ask(wire.SHUTDOWN)
        await asyncio.sleep(0)
        told = await rig.ask(wire.REQUESTS)
        assert {one.by for one in told.requests} == {"me"}
        assert [(one.kind, one.subject, one.detail) for one in told.requests] == [
            ("job_submitted", "job 1", "one"),
            ("job_submitted", "job 2", "two, for you"),
            ("job_changed", "job 1", f"priority 2.0, due {clock_text(7)}"),
            ("tasks_cancelled", "job 1", "tasks 2"),
            ("job_cancelled", "job 2", ""),
            ("node_joined", "node m", "slots 2, speed 1"),
            ("node_resized", "node m", "slots 1, at once"),
            ("node_drained", "node m", ""),
            ("node_joined", "node o", "slots 1, speed 1"),
            ("node_left", "node o", ""),
            ("last_node", "n", "node 'n' is the last one"),
            ("decider_chosen", "what decides", "http://127.0.0.1:9"),
            ("period_chosen", "what decides", "period 3 s"),
            ("policy_chosen", "what decides", "easy"),
            ("checker_chosen", "the status checker", "off, every 5 s"),
            ("shut_down", "the server", "its end was requested"),
        ]
        last = await rig.ask(wire.REQUESTS, query="?limit=2")
        assert (last.requests, last.more) == (told.requests[-2:], True)
        after = await rig.ask(wire.REQUESTS, query=f"?after={told.requests[-3].number}")
        assert (after.requests, after.more) == (told.requests[-2:], False)
        asked = [event for _, event in rig.driver.journal.events() if isinstance(event, get_args(Asked))]
        by_itself = [event for event in asked if not event.by]
        assert [type(event) for event in by_itself] == [NodeJoined], "the start"

    run(tmp_path, scenario)


def test_other_refusals_have_a_status_of_their_own(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.SUBMIT, submission(key="k"))
        again = await rig.ask(wire.SUBMIT, submission(new_job(name="other"), key="k"), status=409)
        assert "'k' was used" in again.error
        rig.driver.journal.limit_pages(1)
        full = await rig.ask(wire.SUBMIT, submission(new_job(argv=("x" * 100_000,))), status=507)
        assert "cannot grow" in full.error
        assert "Make room" in full.hint
        rig.driver.take_no_more()
        assert "about to end" in (await rig.ask(wire.SUBMIT, submission(), status=503)).error

    run(tmp_path, scenario)


def test_a_failure_of_ours_is_told_and_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.SUBMIT, submission())
        rig.driver.journal.jobs = None  # type: ignore[assignment,method-assign]
        answer = await rig.ask(wire.JOBS, status=500)
        assert "jobs failed: TypeError" in answer.error
        assert "Traceback" in caplog.text
        assert (await rig.ask(wire.POLICY)).policy == "fcfs"

    run(tmp_path, scenario)


def test_shutting_down_is_asked_for(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        assert await rig.ask(wire.SHUTDOWN) == wire.Done(0)
        assert rig.ended == [True]

    run(tmp_path, scenario)


def test_the_description_is_whole() -> None:
    found = json.loads(msgspec.json.encode(describe(wire.ROUTES, "1")))
    assert {(path, method) for path, methods in found["paths"].items() for method in methods} == {
        (route.path, route.method.lower()) for route in wire.ROUTES
    }
    named = set(found["components"]["schemas"])

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"].rsplit("/", 1)[-1]} if "$ref" in value else set()
            return own.union(*map(references, value.values()))
        return set().union(*map(references, value)) if isinstance(value, list) else set()

    assert references(found) <= named
    assert {"Submission", "ErrorBody", "TaskResult"} <= named
    submit = found["paths"]["/v1/jobs"]["post"]
    assert submit["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/Submission")
    assert found["paths"]["/health"]["get"]["security"] == []
    assert found["paths"]["/v1/jobs/{job}"]["get"]["parameters"][0]["in"] == "path"
    assert {"name": "limit", "in": "query"}.items() <= next(
        p for p in found["paths"]["/v1/jobs"]["get"]["parameters"] if p["name"] == "limit"
    ).items()
    assert LIMIT_MAX == 10_000


def test_nodes_are_added_resized_drained_and_removed(tmp_path: Path) -> None:
    async def scenario(live: Rig) -> None:
        first = (await live.ask(wire.NODES)).nodes[0].name
        assert await live.ask(wire.ADD_NODE, wire.NewNode("a/b", 2, kind="new")) == wire.NodeChange("a/b", True)
        added = (await live.ask(wire.NODES)).nodes[-1]
        assert (added.name, added.kind, len(added.slots), added.closing) == ("a/b", "new", 2, 0)
        assert await live.ask(wire.RESIZE_NODE, wire.NodeSize(3), node="a/b") == wire.NodeChange("a/b", True)
        assert await live.ask(wire.DRAIN_NODE, node="a/b") == wire.NodeChange("a/b", True)
        await live.driver.nodes.settle()
        await live.ask(wire.ADD_NODE, wire.NewNode("c"))
        assert await live.ask(wire.REMOVE_NODE, node="c") == wire.NodeChange("c", True)
        assert [node.name for node in live.engine.nodes] == [node.name for node in (await live.ask(wire.NODES)).nodes]
        for name in [known.name for known in live.engine.nodes if known.name != first]:
            await live.ask(wire.REMOVE_NODE, node=name)
        assert (await live.ask(wire.REMOVE_NODE, node=first, status=409)).error == f"node '{first}' is the last one"
        assert (await live.ask(wire.DRAIN_NODE, node="x", status=404)).error == "there is no node 'x'"
        await live.ask(wire.ADD_NODE, wire.NewNode(first, 99), status=409)
        assert "slots is 0" in (await live.ask(wire.RESIZE_NODE, wire.NodeSize(0), node=first, status=422)).error

    run(tmp_path, scenario)


def test_every_route_and_table_has_its_page(tmp_path: Path) -> None:
    pages = Path(__file__).resolve().parents[3] / "docs" / "reference"
    routes = (pages / "http-api.md").read_text("utf-8")
    assert [route.name for route in wire.ROUTES if f"| `{route.method} {route.path}` |" not in routes] == []
    tables = (pages / "journal.md").read_text("utf-8")
    Journal(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            (line,) = [line for line in tables.splitlines() if line.startswith(f"| `{table}` |")]
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            assert [column for column in columns if f"`{column}`" not in line] == []


@pytest.mark.parametrize("threads", [True, False])
def test_a_file_goes_up_and_comes_down_as_it_is(tmp_path: Path, threads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    if not threads:
        monkeypatch.setattr(aside, "_pool", ThreadPoolExecutor(1))
        monkeypatch.setattr(threading.Thread, "start", start)
    content = b"some bytes \x00\xff" * 1000
    name = hashlib.sha256(content).hexdigest()
    headers = {"authorization": f"Bearer {TOKEN}", "content_type": wire.OCTETS}

    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.UPLOADED, upload=name, status=404)
        path = wire.UPLOAD.path.format(upload=name)
        for _ in range(2):
            status, _, body = await rig.send("PUT", path, [content[:7], content[7:]], **headers)
            assert (status, json.loads(body)) == (200, {"name": name, "size": len(content)})
        assert await rig.ask(wire.UPLOADED, upload=name) == wire.Upload(name, len(content))
        status, told, body = await rig.send("GET", wire.DOWNLOAD.path.format(upload=name), **headers)
        assert (status, told["content-type"], body) == (200, wire.OCTETS, content)

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("name", "content", "length", "status", "error"),
    [
        ("0" * 64, b"12", "2", 422, "allowed: the SHA-256 of the bytes that were sent"),
        ("short", b"12", "2", 422, "64 digits in hexadecimal"),
        ("0" * 64, b"12345", "5", 413, "the upload has 5 bytes or more; allowed: 4"),
        ("0" * 64, b"12345", "", 413, "the upload has 5 bytes or more; allowed: 4"),
    ],
)
def test_a_file_that_is_not_as_announced_is_refused(
    tmp_path: Path, name: str, content: bytes, length: str, status: int, error: str
) -> None:
    async def scenario(rig: Rig) -> None:
        rig.driver.retention.uploads._size_max = 4
        path = wire.UPLOAD.path.format(upload=name)
        got, _, body = await rig.send("PUT", path, content, authorization=f"Bearer {TOKEN}", content_length=length)
        assert got == status
        assert error in json.loads(body)["error"]
        for route in (wire.UPLOADED, wire.DOWNLOAD):
            await rig.ask(route, upload="0" * 64, status=404)

    run(tmp_path, scenario)


def test_who_hangs_up_within_a_file_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        path = wire.UPLOAD.path.format(upload="0" * 64)
        status, _, _ = await rig.send("PUT", path, [b"part"], hangs_up=True, authorization=f"Bearer {TOKEN}")
        assert status == 400
        assert list(rig.driver.retention.uploads.folder.iterdir()) == []

    run(tmp_path, scenario)


def test_only_who_submitted_a_job_acknowledges_its_results(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.SUBMIT, submission(new_job(tasks=2), client="mine"))
        await rig.end(1, 0)
        refusal = await rig.ask(wire.ACKNOWLEDGE, wire.Acknowledgement("other", (wire.TaskRange(1),)), status=403)
        assert refusal.error == "client 'other' acknowledges results of job 1, which another client submitted"
        await rig.ask(wire.ACKNOWLEDGE, wire.Acknowledgement("mine", (wire.TaskRange(9),)), status=404)
        answer = await rig.ask(wire.ACKNOWLEDGE, wire.Acknowledgement("mine", (wire.TaskRange(1, 0, 1),)))
        assert answer == wire.Done(1)
        assert rig.driver.journal.retained.oldest() == 5_000_000

    run(tmp_path, scenario)


def test_the_status_checker_is_shown_and_changed_and_what_was_found_is_told(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        assert await rig.ask(wire.CHECKER) == wire.CheckerReport(True, to_seconds(PERIOD), ())
        assert (await rig.ask(wire.SET_CHECKER, wire.CheckerChange(on=False))).on is False
        changed = await rig.ask(wire.SET_CHECKER, wire.CheckerChange(every=2))
        assert (changed.on, changed.every) == (False, 2)
        refused = await rig.ask(wire.SET_CHECKER, wire.CheckerChange(on=True, every=5e-6), status=422)
        assert refused.error == "period of the status checker is 5e-06; allowed: 0.1 to 86400 seconds"
        assert (await rig.ask(wire.CHECKER)).on is False, "all of a change or nothing"
        found = [MetricRow(at * SECOND, "n", "x.y", float(at)) for at in (1, 2)]
        rig.driver.journal.checks.write(found, (), (), (), metrics_since=0, statuses_since=0)
        assert (await rig.ask(wire.METRICS)) == wire.Metrics(()), "nothing was found since the start"
        page = await rig.ask(wire.METRICS, query="?since=0&limit=1&node=n&metric=x.y")
        assert page == wire.Metrics((wire.Metric(1, "n", "x.y", 1.0),), True)
        assert (await rig.ask(wire.METRICS, query="?since=2")) == wire.Metrics((wire.Metric(2, "n", "x.y", 2.0),))
        assert (await rig.ask(wire.METRICS, query="?since=0&node=m")) == wire.Metrics(())
        for query in ("?since=-1", "?limit=0", "?nodes=n"):
            assert (await rig.ask(wire.METRICS, query=query, status=400)).error
        await asyncio.sleep(0)
        chosen = await rig.ask(wire.INCIDENTS)
        assert [(one.kind, one.detail, one.by) for one in chosen.incidents] == [
            ("checker_chosen", "off, every 5 s", "me"),
            ("checker_chosen", "off, every 2 s", "me"),
        ]
        for number in range(3):
            rig.driver.incident("test_kind", f"subject {number}", "detail")
        await asyncio.sleep(0)
        told = await rig.ask(wire.INCIDENTS, query="?limit=2")
        assert [one.subject for one in told.incidents] == ["subject 1", "subject 2"]
        assert told.more
        assert told.incidents[0] == wire.IncidentReport(
            told.incidents[1].number - 1, 5, "test_kind", "subject 1", "detail"
        )
        assert (await rig.ask(wire.INCIDENTS, query=f"?after={told.incidents[1].number}")) == wire.Incidents(())

    run(tmp_path, scenario)


def test_a_row_that_was_changed_on_the_disk_is_an_error_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.SUBMIT, submission(new_job(), key="k"))
        await rig.end(1, 0, 1, result=b"r")
        wanted = wire.ResultsWanted((wire.TaskRange(1),))
        assert len((await rig.ask(wire.RESULTS, wanted)).results) == 1
        cases = (
            (wire.JOB, None, "jobs with id 1"),
            (wire.RESULTS, wanted, "messages with number 1"),
            (wire.MESSAGES, None, "messages with number 1"),
            (wire.SUBMIT, submission(new_job(), key="k"), "submissions with caller 'me'"),
        )
        with monkeypatch.context() as patched:
            patched.setattr("headway.live.store.rows.row_sum", lambda *values: 0)
            for route, body, named in cases:
                said = await rig.ask(route, body, job=1, status=500)
                assert f"journal.sqlite is damaged: the row of {named} is not as it was written" in said.error
                assert "headway check" in said.hint

    run(tmp_path, scenario)


def test_one_answer_has_only_so_many_jobs_and_says_that_there_are_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "JOBS_AT_ONCE", 3)

    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.SUBMIT, submission(*[new_job()] * 5))
        first = await rig.ask(wire.JOBS, query="?limit=10000")
        assert ([one.id for one in first.jobs], first.more) == ([1, 2, 3], True)
        rest = await rig.ask(wire.JOBS, query="?limit=10000&after=3")
        assert ([one.id for one in rest.jobs], rest.more) == ([4, 5], False)

    run(tmp_path, scenario)


def test_one_answer_has_only_so_many_messages_and_the_cursor_leads_to_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "MESSAGES_AT_ONCE", 3)

    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.SUBMIT, submission(new_job(tasks=4), client="c"))
        for task in range(4):
            await rig.end(1, task)
        first = await rig.ask(wire.MESSAGES, query="?client=c&limit=10000")
        assert len(first.messages) == 3
        rest = await rig.ask(wire.MESSAGES, query=f"?client=c&limit=10000&after={first.cursor}")
        assert [one.number for one in (*first.messages, *rest.messages)] == [1, 2, 3, 4, 5]

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"work": wire.Commands((wire.Command(("echo", "a\0b")),))}, "jobs[0].work.commands[0].argv is 'a\\x00b'"),
        ({"work": wire.Commands((wire.Command(("ls",), cwd="\0"),))}, "jobs[0].work.commands[0].cwd is '\\x00'"),
        ({"work": wire.Commands((wire.Command(("ls",), stdin="\0"),))}, "jobs[0].work.commands[0].stdin is '\\x00'"),
        ({"work": wire.Commands((wire.Command(("ls",), env={"A": "\0"}),))}, "jobs[0].work.commands[0].env['A'] is"),
        (
            {"work": wire.Commands((wire.Command(("ls",), env={"A B": ""}),))},
            "jobs[0].work.commands[0].env is 'A B'; allowed: the name of a variable, not empty, without spaces",
        ),
        ({"work": wire.Calls((wire.blob_name(b""),), (b"",), cwd="/a\0")}, "jobs[0].work.cwd is '/a\\x00'"),
        ({"work": wire.Calls((wire.blob_name(b""),), (b"",), paths=("/a\0",))}, "jobs[0].work.paths is '/a\\x00'"),
        ({"work": wire.Commands((wire.Command(("ls",)),)), "retry_of": 7}, "jobs[0].retry_of is 7; allowed: the id of"),
    ],
)
def test_what_no_program_can_be_given_and_jobs_that_are_not_known_are_refused_by_name(
    tmp_path: Path, terms: dict[str, Any], field: str
) -> None:
    async def scenario(rig: Rig) -> None:
        refusal = await rig.ask(
            wire.SUBMIT, wire.Submission((wire.NewJob(**terms),), blobs={wire.blob_name(b""): b""}), status=422
        )
        assert field in refusal.error
        assert not rig.driver.open

    run(tmp_path, scenario)


def test_a_job_may_run_again_the_tasks_of_any_job_that_is_known(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.SUBMIT, submission())
        await rig.ask(wire.SUBMIT, submission(new_job(retry_of=1)))
        assert (await rig.ask(wire.JOB, job=2)).retry_of == 1

    run(tmp_path, scenario)


def test_how_long_an_explanation_waits_for_a_forecast_is_bounded(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.ask(wire.SUBMIT, submission())
        assert (await rig.ask(wire.EXPLAIN, job=1, query="?wait=0")).job == 1
        assert "wait is 61" in (await rig.ask(wire.EXPLAIN, job=1, query="?wait=61", status=400)).error

    run(tmp_path, scenario)
