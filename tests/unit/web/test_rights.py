"""Who may ask for what: every route, with the token of every role, about own jobs and those of others."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway import wire
from headway.access.quotas import Quota, Quotas
from headway.access.tokens import Tokens
from headway.engines.base import Output
from headway.errors import Unauthorised
from headway.live.checker import Checker
from headway.live.delay import LoopDelay
from headway.live.driver import Driver
from headway.live.outside import Surroundings
from headway.live.services import BrokerDoor
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.live.tally import REFUSED
from headway.model.outcome import Outcome
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission
from headway.web import line
from headway.web.api import Api
from headway.web.bodies import OTHERS_MAX
from headway.web.epochs import Epochs
from headway.web.line import HEAD_MAX, PIPELINE_MAX, URL_MAX
from headway.web.refusals import PERIOD_ROWS_MAX, Refusals
from headway.web.rights import right_of
from headway.web.serving import BoundedServer, listen
from headway.wire import Role

from ...waiting import LIMIT, becomes

VIEWER, SUBMITTER, OPERATOR, ADMINISTRATOR = Role

# The first role that may ask; the second word says that roles below operators may only about their own jobs.
RIGHTS: dict[wire.Route, tuple[Role | None, str]] = {
    wire.HEALTH: (None, ""),
    **dict.fromkeys(
        (
            *(
                wire.JOBS,
                wire.JOB,
                wire.TASKS,
                wire.EXPLAIN,
                wire.ADVISE_OPEN,
                wire.MESSAGES,
                wire.NODES,
                wire.POLICY,
                wire.METRICS,
            ),
            *(wire.CHECKER, wire.INCIDENTS, wire.ENERGY, wire.PENALTIES, wire.SERVICES, wire.SERVICE),
            *(wire.SITES, wire.RENTALS),
            *(wire.STATISTICS, wire.PROMETHEUS, wire.OPENAPI, wire.MYSELF),
        ),
        (VIEWER, ""),
    ),
    **dict.fromkeys(
        (wire.SUBMIT, wire.ADVISE, wire.UPLOAD, wire.UPLOADED, wire.DOWNLOAD, wire.REQUEST), (SUBMITTER, "")
    ),
    **dict.fromkeys(
        (
            *(wire.CHANGE, wire.CANCEL, wire.CANCEL_TASKS, wire.RETRY, wire.OUTPUT, wire.RESULTS, wire.CLEAR),
            wire.ACKNOWLEDGE,
        ),
        (SUBMITTER, "own"),
    ),
    **dict.fromkeys(
        (
            *(wire.ADD_NODE, wire.DRAIN_NODE, wire.REMOVE_NODE, wire.RESIZE_NODE, wire.SWITCH_NODE_OFF),
            *(wire.SWITCH_NODE_ON, wire.CHOOSE, wire.SET_CHECKER, wire.REQUESTS, wire.AUDIT),
        ),
        (OPERATOR, ""),
    ),
    **dict.fromkeys((wire.SHUTDOWN, wire.TOKENS, wire.CREATE_TOKEN, wire.REVOKE_TOKEN), (ADMINISTRATOR, "")),
}


class Rig:
    """A server with a token for each role, named after it, and one of another submitter."""

    def __init__(self, driver: Driver, engine: FakeEngine, tokens: Tokens, server: BoundedServer, port: int) -> None:
        self.driver, self.engine, self.tokens, self.server, self.port = driver, engine, tokens, server, port
        self.given: dict[str, str] = {"": "", "administrator": "t"}
        self.writers: list[asyncio.StreamWriter] = []

    def make(self, user: str, role: Role, expires: float | None = None) -> str:
        """A token of a user, who is called by it in `ask`; returns its id."""
        made, write = self.tokens.create(wire.NewToken(user, role, expires), "administrator")
        write()
        self.tokens.use()
        self.given[user] = made.token
        return made.about.id

    async def opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    def head(self, user: str, route: wire.Route, size: int = 0, *, query: str = "", **names: Any) -> bytes:
        path = route.path.format(**{"node": "n", "upload": "0" * 64, "service": "s", "token": "0" * 8, **names})
        known = f"Authorization: Bearer {self.given[user]}\r\n" if user else ""
        kind = "" if not size else f"Content-Type: {wire.MSGPACK}\r\nContent-Length: {size}\r\n"
        return f"{route.method} {path}{query} HTTP/1.1\r\n{known}{kind}Accept: {wire.JSON}\r\n\r\n".encode()

    async def ask(
        self, user: str, route: wire.Route, body: Any = None, *, query: str = "", **names: Any
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, body and headers of the answer to a request with a user's token."""
        sent = b"" if body is None else body if isinstance(body, bytes) else wire.encode(body)
        reader, writer = await self.opened()
        writer.write(self.head(user, route, len(sent), query=query, **{"job": 1, **names}) + sent)
        try:
            async with asyncio.timeout(LIMIT):
                first, *rows = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (row.partition(": ") for row in rows)}
                size, is_json = headers.get("content-length"), headers.get("content-type") == wire.JSON
                text = b"null" if size is None or not is_json else await reader.readexactly(int(size))
            return int(first.split()[1]), json.loads(text), headers
        finally:
            writer.transport.abort()


@asynccontextmanager
async def serving(folder: Path, *, with_desk: bool = True, quotas: Quotas | None = None) -> AsyncIterator[Rig]:
    with closing(Journal(folder)) as journal, listen("127.0.0.1", 0) as listener:
        engine, clock, end = FakeEngine(), ManualClock(5), asyncio.Event()
        door = BrokerDoor(folder / "services", b"secret")
        driver = Driver(
            journal, engine, clock, find, DriverSettings(policy="fcfs"), surroundings=Surroundings(door=door)
        )
        await driver.start((node("n", slots=4),))
        tokens = Tokens("t", "administrator", folder / "tokens.json")
        refusals = Refusals(journal.refusals, driver.tally.refused, driver.now)
        api = Api(
            driver,
            tokens,
            lambda: None,
            checker=Checker(driver, clock, {}, dict),
            delay=LoopDelay(),
            quotas=quotas or Quotas(),
            refusals=refusals,
        )
        front = api.front(journal.epoch) if with_desk else None
        app = Epochs(api.app, journal.epoch, refusals.note_unread)
        server = BoundedServer(app, end, front, refused=refusals.note_unread)
        api.drop = server.drop
        task = asyncio.create_task(server.serve([listener]))
        rig = Rig(driver, engine, tokens, server, listener.getsockname()[1])
        try:
            yield rig
        finally:
            for writer in rig.writers:
                writer.transport.abort()
            end.set()
            driver.take_no_more()
            await task
            await driver.stop()


@pytest.fixture(params=[True, False], ids=["desks", "application"])
def with_desk(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def bodies(job: int) -> dict[wire.Route, Any]:
    """A body for each route that has one."""
    named = wire.JobsNamed((job,))
    return {
        wire.SUBMIT: submission(),
        wire.ADVISE: wire.AdviceWanted(new_job()),
        wire.CHANGE: wire.JobChange(priority=1.0),
        wire.CANCEL: named,
        wire.CANCEL_TASKS: wire.TasksNamed((0,)),
        wire.RETRY: wire.Retry(),
        wire.RESULTS: wire.ResultsWanted((wire.TaskRange(job),)),
        wire.CLEAR: named,
        wire.ACKNOWLEDGE: wire.Acknowledgement("", (wire.TaskRange(job),)),
        wire.UPLOAD: b"x",
        wire.REQUEST: b"{}",
        wire.ADD_NODE: wire.NewNode("n", slots=4),
        wire.RESIZE_NODE: wire.NodeSize(4),
        wire.CHOOSE: wire.PolicyChoice("fcfs"),
        wire.SET_CHECKER: wire.CheckerChange(every=5.0),
        wire.CREATE_TOKEN: wire.NewToken("x", VIEWER),
    }


def test_of_every_route_it_is_said_who_may_ask() -> None:
    assert RIGHTS.keys() == set(wire.ROUTES)
    for route, (least, own) in RIGHTS.items():
        assert route.right == wire.Right(least, bool(own)), route.name


def test_the_page_on_the_interface_says_the_same() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "http-api.md").read_text("utf-8")
    words = {None: "all", VIEWER: "V", SUBMITTER: "S", OPERATOR: "O", ADMINISTRATOR: "A"}
    rows = dict(re.findall(r"^\| `([A-Z]+ /\S*)` \| (\w+) \|", page, re.MULTILINE))
    said = {f"{route.method} {route.path}": own or words[least] for route, (least, own) in RIGHTS.items()}
    assert rows == said


@pytest.mark.parametrize("role", ["", *(role.value for role in Role)])
def test_every_route_answers_those_who_may_ask_and_refuses_all_others(
    tmp_path: Path, role: str, with_desk: bool
) -> None:
    async def main() -> None:
        async with serving(tmp_path, with_desk=with_desk) as rig:
            for one in (VIEWER, SUBMITTER, OPERATOR):
                rig.make(one.value, one)
            rig.make("other", SUBMITTER)
            last = {wire.REMOVE_NODE: 1, wire.DRAIN_NODE: 1}
            for route in sorted(wire.ROUTES, key=lambda route: (last.get(route, 0), route.name)):
                whose = (role or "submitter", "other") if "job" in route.path or route in bodies(1) else (role,)
                for user in whose:
                    status, answer, _ = await rig.ask("administrator", wire.SUBMIT, submission(new_job(user=user)))
                    assert status == 200, answer
                    [job] = answer["jobs"]
                    least, own = RIGHTS[route]
                    status, answer, headers = await rig.ask(role, route, bodies(job).get(route), job=job)
                    case = (route.name, role, user, status, answer)
                    if least is None:
                        assert status == 200, case
                    elif not role:
                        assert (status, headers["www-authenticate"]) == (401, "Bearer"), case
                    elif not Role(role).covers(least) or (own and role == SUBMITTER and user != role):
                        assert (status, answer["code"]) == (403, "forbidden"), case
                        assert repr(role) in answer["error"], case
                    elif own and route is wire.ACKNOWLEDGE:
                        assert answer.get("code") != "forbidden", case  # it names another client
                    else:
                        assert status not in (400, 401, 403, 429), case
                        assert status < 500 or route is wire.ENERGY, case  # it is not measured here

    asyncio.run(main())


def test_messages_with_results_are_for_the_user_of_the_jobs_and_operators(tmp_path: Path, with_desk: bool) -> None:
    async def main() -> None:
        async with serving(tmp_path, with_desk=with_desk) as rig:
            for user in ("ann", "bob"):
                rig.make(user, SUBMITTER)
            rig.make("operator", OPERATOR)
            rig.make("viewer", VIEWER)
            for user in ("ann", "bob"):
                assert (await rig.ask(user, wire.SUBMIT, submission(client="c")))[0] == 200
            for job in (1, 2):
                rig.engine.end(job, 0, result=b"secret")
            await becomes(lambda: not rig.driver.open)
            for user, query, jobs, has_results in [
                ("ann", "?client=c&results=999", {1}, True),  # each user has its own clients
                ("bob", "?client=c&results=999", {2}, True),
                ("operator", "?client=c&results=999", set(), False),
                ("viewer", "?client=ann/c&results=999", set(), False),
                ("administrator", "?client=ann/c&results=999", {1}, True),
                ("ann", "?job=1&results=999", {1}, True),
                ("ann", "?job=1&job=2", {1, 2}, False),
                ("viewer", "", {1, 2}, False),
                ("operator", "?results=999", {1, 2}, True),
            ]:
                status, answer, _ = await rig.ask(user, wire.MESSAGES, query=query)
                assert status == 200, (user, query)
                assert {message["job"] for message in answer["messages"]} == jobs, (user, query)
                assert any(message.get("result") for message in answer["messages"]) == has_results, (user, query)
            for user, query in [
                ("ann", "?results=999"),
                ("ann", "?job=1&job=2&results=999"),
                ("viewer", "?job=1&results=1"),
            ]:
                status, answer, _ = await rig.ask(user, wire.MESSAGES, query=query)
                assert (status, answer["code"]) == (403, "forbidden"), (user, query)

    asyncio.run(main())


def test_what_a_job_runs_and_wrote_is_for_its_user_and_operators(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as rig:
            for user in ("ann", "bob"):
                rig.make(user, SUBMITTER)
            rig.make("operator", OPERATOR)
            assert (await rig.ask("ann", wire.SUBMIT, submission(new_job(argv=("run", "--password", "x")))))[0] == 200
            rig.engine.end(1, 0, outcome=Outcome.EXITED, exit_code=3, detail="said", stderr=Output("", 5, b"wrote"))
            await becomes(lambda: not rig.driver.open)
            for user, sees in (("ann", True), ("operator", True), ("bob", False)):
                detail = (await rig.ask(user, wire.JOB))[1]
                [task] = detail["ended"]
                assert (detail["job"]["status"], detail["failed"], task["exit_code"]) == ("failed", [0], 3)
                assert (detail["ran"] is not None, task["detail"], task["stderr"]) == (
                    (True, "said", "wrote") if sees else (False, "", "")
                ), user

    asyncio.run(main())


def test_the_user_of_a_job_is_whose_token_submitted_it(tmp_path: Path, with_desk: bool) -> None:
    async def main() -> None:
        async with serving(tmp_path, with_desk=with_desk) as rig:
            rig.make("ann", SUBMITTER)
            rig.make("operator", OPERATOR)
            assert (await rig.ask("ann", wire.SUBMIT, submission(new_job(user="ann"), new_job())))[0] == 200
            status, answer, _ = await rig.ask("ann", wire.SUBMIT, submission(new_job(), new_job(user="bob")))
            assert (status, answer["error"]) == (403, "jobs[1].user is 'bob'; allowed: 'ann', or none, for a submitter")
            assert (await rig.ask("operator", wire.SUBMIT, submission(new_job(user="bob"))))[0] == 200
            listed = (await rig.ask("ann", wire.JOBS))[1]["jobs"]
            assert [job["user"] for job in listed] == ["ann", "ann", "bob"]

    asyncio.run(main())


def test_no_user_takes_the_place_of_anothers_service(tmp_path: Path, with_desk: bool) -> None:
    def service(replace: bool) -> wire.Submission:
        terms = wire.ServiceTerms(most=1, least=0, threshold=1.0, replace=replace)
        job = wire.NewJob(wire.Handling("m:f"), kind="service", name="s", service=terms)
        return wire.Submission((job,))

    async def main() -> None:
        async with serving(tmp_path, with_desk=with_desk) as rig:
            for user in ("ann", "bob"):
                rig.make(user, SUBMITTER)
            status, answer, _ = await rig.ask("ann", wire.SUBMIT, service(replace=False))
            assert status == 200, answer
            status, answer, _ = await rig.ask("bob", wire.SUBMIT, service(replace=True))
            assert (status, answer["code"]) == (403, "forbidden"), answer
            assert "job 1 is of user 'ann'" in answer["error"]
            assert (await rig.ask("ann", wire.SUBMIT, service(replace=True)))[0] == 200

    asyncio.run(main())


def test_a_revoked_token_is_refused_at_once_and_what_is_under_way_with_it_ends(tmp_path: Path, with_desk: bool) -> None:
    async def main() -> None:
        async with serving(tmp_path, with_desk=with_desk) as rig:
            number = rig.make("ann", SUBMITTER)
            rig.make("bob", SUBMITTER)
            kept, others = await rig.opened(), await rig.opened()
            body = wire.encode(submission())
            head = rig.head("ann", wire.SUBMIT, len(body)) + body
            for _ in range(3):  # so that the desk knows the head by heart
                kept[1].write(head)
                text = await kept[0].readuntil(b"}")
                assert text.startswith(b"HTTP/1.1 200"), text
            waiting = await rig.opened()
            for user, (_, writer) in (("ann", waiting), ("bob", others)):
                writer.write(rig.head(user, wire.MESSAGES, query="?client=c&wait=60"))
            await becomes(lambda: rig.driver.listeners == 2)
            status, answer, _ = await rig.ask("administrator", wire.REVOKE_TOKEN, token=number)
            assert (status, answer) == (200, {"changed": 1})
            async with asyncio.timeout(LIMIT):
                for reader, _ in (kept, waiting):
                    with contextlib.suppress(ConnectionError):
                        await reader.read()
                    assert reader.at_eof() or reader.exception()
            await becomes(lambda: rig.driver.listeners == 1)
            again = await rig.opened()
            again[1].write(head)
            assert (await again[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401")
            assert (await rig.ask("bob", wire.JOBS))[0] == 200
            assert not others[0].at_eof()
            status, answer, _ = await rig.ask("administrator", wire.REVOKE_TOKEN, token=number)
            assert (status, answer["code"]) == (404, "no_such_token")

    asyncio.run(main())


def test_whoever_revokes_his_own_token_is_told_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as rig:
            number = rig.make("root", ADMINISTRATOR)
            assert (await rig.ask("root", wire.REVOKE_TOKEN, token=number))[0] == 200
            assert (await rig.ask("root", wire.TOKENS))[0] == 401

    asyncio.run(main())


def test_quotas_bound_open_jobs_tasks_and_requests_and_say_which(tmp_path: Path, with_desk: bool) -> None:
    bounds = Quotas({SUBMITTER: Quota(open_jobs=3, open_tasks=10)}, {"bob": Quota(open_jobs=1)})

    async def main() -> None:
        async with serving(tmp_path, with_desk=with_desk, quotas=bounds) as rig:
            rig.make("ann", SUBMITTER)
            rig.make("bob", SUBMITTER)
            rig.make("operator", OPERATOR)
            asked = await asyncio.gather(*(rig.ask("ann", wire.SUBMIT, submission()) for _ in range(6)))
            assert sorted(status for status, *_ in asked) == [200] * 3 + [429] * 3  # also where they come at once
            status, answer, headers = await rig.ask("ann", wire.SUBMIT, submission())
            assert (status, answer["code"], headers["retry-after"]) == (429, "quota_exceeded", "30")
            assert answer["error"] == "open_jobs is 4; allowed: at most 3 for user 'ann', a submitter"
            status, answer, headers = await rig.ask("ann", wire.SUBMIT, submission(new_job(tasks=11)))
            assert (status, answer["error"]) == (429, answer["error"])  # the jobs alone would do later
            assert (await rig.ask("bob", wire.SUBMIT, submission()))[0] == 200
            assert (await rig.ask("bob", wire.SUBMIT, submission()))[0] == 429
            status, answer, headers = await rig.ask("bob", wire.SUBMIT, submission(new_job(), new_job()))
            assert (status, "retry-after" in headers) == (403, False)
            assert (await rig.ask("operator", wire.SUBMIT, submission(*[new_job(user="ann")] * 5)))[0] == 200
            running = list(rig.engine.running)
            await rig.driver.cancel(list(rig.driver.open))
            for key in running:
                rig.engine.end(*key, outcome=Outcome.KILLED)
            await becomes(lambda: rig.driver.held_by("ann") == (0, 0, 0, 0))
            assert (await rig.ask("ann", wire.SUBMIT, submission()))[0] == 200
            myself = (await rig.ask("ann", wire.MYSELF))[1]
            assert (myself["user"], myself["role"]) == ("ann", "submitter")
            assert [(one["name"], one["most"], one["used"]) for one in myself["quotas"]] == [
                ("open_jobs", 3, 1),
                ("open_tasks", 10, 1),
            ]

    asyncio.run(main())


def test_tokens_bring_bounds_on_slots_and_take_them_away(tmp_path: Path, with_desk: bool) -> None:
    async def main() -> None:
        bounds = Quotas({SUBMITTER: Quota(slots=1), OPERATOR: Quota(slots=3)})
        async with serving(tmp_path, with_desk=with_desk, quotas=bounds) as rig:
            rig.make("boss", Role.ADMINISTRATOR)

            async def make(role: Role) -> str:
                answer = (await rig.ask("boss", wire.CREATE_TOKEN, wire.NewToken("ann", role)))[1]
                rig.given["ann"] = answer["token"]
                return str(answer["about"]["id"])

            await make(SUBMITTER)
            assert (await rig.ask("ann", wire.SUBMIT, submission(new_job(tasks=4))))[0] == 200
            await becomes(lambda: len(rig.engine.running) == 1)
            token = await make(OPERATOR)
            await becomes(lambda: len(rig.engine.running) == 3)
            myself = (await rig.ask("ann", wire.MYSELF))[1]
            assert [(one["name"], one["most"], one["used"]) for one in myself["quotas"]] == [("slots", 3, 3)]
            assert (await rig.ask("boss", wire.REVOKE_TOKEN, token=token))[0] == 200
            assert rig.driver.core.state.rations["ann"].most == 1

    asyncio.run(main())


def test_requests_that_come_too_often_are_to_come_again_later(tmp_path: Path, with_desk: bool) -> None:
    async def main() -> None:
        bounds = Quotas({SUBMITTER: Quota(requests_per_second=0.5)})
        async with serving(tmp_path, with_desk=with_desk, quotas=bounds) as rig:
            rig.make("ann", SUBMITTER)
            assert (await rig.ask("ann", wire.SUBMIT, submission()))[0] == 200
            for route, body in ((wire.SUBMIT, submission()), (wire.JOBS, None), (wire.MESSAGES, None)):
                status, answer, headers = await rig.ask("ann", route, body)
                assert (status, answer["code"], headers["retry-after"]) == (429, "too_often", "2"), route.name
                assert answer["error"].endswith("allowed: at most 0.5 for user 'ann', a submitter")
            assert (await rig.ask("administrator", wire.JOBS))[0] == 200

    asyncio.run(main())


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "headway.web.refusals"):
        yield caplog


def test_what_was_refused_is_counted_logged_and_in_the_audit(
    tmp_path: Path, with_desk: bool, logged: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving(tmp_path, with_desk=with_desk) as rig:
            rig.make("viewer", VIEWER)
            rig.make("ann", SUBMITTER)
            rig.given["stranger"] = "guessed"
            for _ in range(3):
                assert (await rig.ask("viewer", wire.SUBMIT, submission()))[0] == 403
            assert (await rig.ask("stranger", wire.JOBS))[0] == 401
            assert (await rig.ask("ann", wire.SUBMIT, wire.Submission(())))[0] == 422
            assert (await rig.ask("ann", wire.SUBMIT, submission()))[0] == 200
            status, answer, _ = await rig.ask("administrator", wire.AUDIT)
            assert status == 200
            told = [
                (one["by"], one["kind"], one["subject"], one["status"], one["code"], one["times"], one["peer"])
                for one in answer["entries"]
                if one["subject"] != "node n"
            ]
            assert sorted(told) == [
                ("", "refused", "jobs", 401, "unauthorised", 1, "127.0.0.1"),
                ("ann", "job_submitted", "job 1", 0, "", 1, ""),
                ("viewer", "refused", "submit", 403, "forbidden", 3, "127.0.0.1"),
            ]
            for query, users in [
                ("?user=ann", ["ann"]),
                ("?user=viewer", ["viewer"]),
                ("?user=", [""]),
                ("?since=999999", []),
                ("?limit=1", None),
            ]:
                entries = (await rig.ask("administrator", wire.AUDIT, query=query))[1]["entries"]
                assert len(entries) == 1 if users is None else [one["by"] for one in entries] == users, query
            assert rig.driver.tally.refused == {"401": 1, "403": 3, "422": 1}
            text = logged.text
            assert "refused submit of user viewer from 127.0.0.1, 3 times: 403, the role of user 'viewer'" in text
            assert "refused jobs of a caller without a valid token from 127.0.0.1: 401" in text
            assert "refused submit of user ann" in text

    asyncio.run(main())
    with closing(Journal(tmp_path)) as journal:  # it outlives the server
        assert [(row.user, row.request, row.times) for row in journal.refusals.latest(None, 0, 10)] == [
            ("viewer", "submit", 3),
            ("", "jobs", 1),
        ]


def test_every_refusal_is_counted_shown_and_logged(
    tmp_path: Path, with_desk: bool, logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, end = b"Authorization: Bearer t\r\n", b"\r\n\r\n"
    kept = hashlib.sha256(b"x").hexdigest()

    async def main() -> None:
        bounds = Quotas({}, {"often": Quota(requests_per_second=0.001)})
        async with serving(tmp_path, with_desk=with_desk, quotas=bounds) as rig:
            rig.make("viewer", VIEWER)
            rig.make("often", SUBMITTER)
            assert (await rig.ask("often", wire.JOBS))[0] == 200
            assert (await rig.ask("administrator", wire.UPLOAD, b"x", upload=kept))[0] == 200
            empty = wire.encode(wire.Submission(()))
            examples = {
                "400": (b"no HTTP at all" + end, "a request from 127.0.0.1: 400, this is no HTTP/1.1 request"),
                "401": (
                    rig.head("", wire.JOBS),
                    "jobs of a caller without a valid token from 127.0.0.1: 401, no token",
                ),
                "403": (rig.head("viewer", wire.SHUTDOWN), "shutdown of user viewer from 127.0.0.1: 403, the role"),
                "404": (b"GET /none HTTP/1.1" + end, "a request from 127.0.0.1: 404, GET /none: Not Found"),
                "405": (b"TRACE /v1/jobs HTTP/1.1" + end, "a request from 127.0.0.1: 405, TRACE /v1/jobs: Method Not"),
                "409": (
                    b"GET /v1/jobs HTTP/1.1\r\nHeadway-Epoch: 0\r\n" + known + b"\r\n",
                    "a request from 127.0.0.1: 409, the server's journal",
                ),
                "413": (
                    rig.head("administrator", wire.CANCEL, OTHERS_MAX + 1),
                    "cancel of user administrator from 127.0.0.1: 413, the body has more",
                ),
                "414": (b"GET /" + URL_MAX * b"x", "a request from 127.0.0.1: 414, the URL has more than"),
                "416": (
                    rig.head("administrator", wire.DOWNLOAD, upload=kept)[:-2] + b"Range: bytes=7-9" + end,
                    "download of user administrator from 127.0.0.1: 416, the range 'bytes=7-9'",
                ),
                "422": (
                    rig.head("administrator", wire.SUBMIT, len(empty)) + empty,
                    "submit of user administrator from 127.0.0.1: 422, ",
                ),
                "429": (rig.head("often", wire.JOBS), "jobs of user often from 127.0.0.1: 429, "),
                "431": (
                    b"GET / HTTP/1.1\r\nA: " + HEAD_MAX * b"x" + end,
                    "a request from 127.0.0.1: 431, the head of the request has more than",
                ),
                "503": (
                    (PIPELINE_MAX + 1) * rig.head("administrator", wire.MESSAGES, query="?wait=60"),
                    "a request from 127.0.0.1: 503, more than 16 requests at once",
                ),
                "408": (b"GET / HT", "a request from 127.0.0.1: 408, the head of the request was not here"),
            }
            assert examples.keys() == set(REFUSED)
            for status, (text, _) in examples.items():
                if status == "408":
                    monkeypatch.setattr(line, "HEAD_SECONDS", 0.1)
                reader, writer = await rig.opened()
                writer.write(text)
                if status != "503":  # it is not answered: what came before it is, or nothing
                    async with asyncio.timeout(LIMIT):
                        assert (await reader.readline()).split()[1].decode() == status
                await becomes(lambda status=status: rig.driver.tally.refused[status] == 1)  # type: ignore[misc]
            assert (await rig.ask("administrator", wire.AUDIT))[0] == 200  # writes the log
            for status, (_, said) in examples.items():
                assert f"refused {said}" in logged.text, status
            reader, writer = await rig.opened()
            writer.write(rig.head("administrator", wire.PROMETHEUS)[:-2] + b"Connection: close" + end)
            shown = (await reader.read()).decode()
            for status in examples:
                assert f'headway_requests_refused_total{{status="{status}"}} 1.0' in shown, status

    asyncio.run(main())


def test_a_file_that_is_not_kept_yet_is_no_refusal(tmp_path: Path, logged: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(tmp_path) as rig:
            kept = hashlib.sha256(b"x").hexdigest()
            for status in (404, 200):  # as a client does that uploads a file
                assert (await rig.ask("administrator", wire.UPLOADED, upload=kept))[0] == status
                assert (await rig.ask("administrator", wire.UPLOAD, b"x", upload=kept))[0] == 200
            assert (await rig.ask("administrator", wire.AUDIT))[0] == 200  # writes the log
            assert (rig.driver.tally.refused, logged.text) == ({}, "")
            other = hashlib.sha256(b"y").hexdigest()
            assert (await rig.ask("administrator", wire.DOWNLOAD, upload=other))[0] == 404
            assert (await rig.ask("", wire.UPLOADED, upload=other))[0] == 401
            assert rig.driver.tally.refused == {"404": 1, "401": 1}

    asyncio.run(main())


def test_no_status_of_a_refusal_is_left_out() -> None:
    text = "".join(path.read_text("utf-8") for path in Path(line.__file__).parent.glob("*.py"))
    named = {HTTPStatus[name] for name in re.findall(r"HTTPStatus\.([A-Z_]{3,})", text)}
    assert {str(int(status)) for status in named if 400 <= status < 500} <= set(REFUSED)


def test_requests_that_are_refused_unread_are_one_line_of_the_log(
    tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as rig:
            noted = Refusals(rig.driver.journal.refusals, rig.driver.tally.refused, rig.driver.now)
            for number in range(1000):
                noted.note_unread(HTTPStatus.NOT_FOUND, f"GET /{number}: Not Found", "10.0.0.1")
            for number in range(1000):
                noted.note_unread(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request", f"10.0.1.{number}")
            noted.write()
            lines = [record.getMessage() for record in logged.records]
            assert lines[0] == "refused a request from 10.0.0.1, 1000 times: 404, GET /999: Not Found"
            assert lines[-1] == f"refused others, {1001 - PERIOD_ROWS_MAX} times: 400, this is no HTTP/1.1 request"
            assert len(lines) == PERIOD_ROWS_MAX + 1
            assert not rig.driver.journal.refusals.latest(None, 0, 10)

    asyncio.run(main())


def test_a_flood_of_refusals_has_few_rows_and_is_counted_in_full(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as rig:
            noted = Refusals(rig.driver.journal.refusals, rig.driver.tally.refused, rig.driver.now)
            for number in range(1000):
                noted.note("jobs", HTTPStatus.UNAUTHORIZED, Unauthorised("no token was sent"), "", f"10.0.0.{number}")
            noted.write()
            rows = rig.driver.journal.refusals.latest(None, 0, 10_000)
            assert len(rows) == PERIOD_ROWS_MAX + 1
            assert sum(row.times for row in rows) == rig.driver.tally.refused["401"] == 1000

    asyncio.run(main())


def test_tokens_are_made_listed_and_kept_as_hashes(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as rig:
            status, made, _ = await rig.ask("administrator", wire.CREATE_TOKEN, wire.NewToken("ann", SUBMITTER, 3600.0))
            assert status == 200
            assert made["token"].startswith("hw_")
            rig.given["ann"] = made["token"]
            assert (await rig.ask("ann", wire.JOBS))[0] == 200
            [listed] = (await rig.ask("administrator", wire.TOKENS))[1]["tokens"]
            assert listed == made["about"]
            assert (listed["user"], listed["role"], listed["by"]) == ("ann", "submitter", "administrator")
            assert made["token"] not in (tmp_path / "tokens.json").read_text()
            assert (tmp_path / "tokens.json").stat().st_mode & 0o077 == 0
            kinds = [one["kind"] for one in (await rig.ask("administrator", wire.AUDIT))[1]["entries"]]
            assert kinds[-1] == "token_created"
            for body in ({"user": "a/b", "role": "viewer"}, {"user": "ann", "role": "king"}, {"user": "ann"}):
                assert (await rig.ask("administrator", wire.CREATE_TOKEN, msgspec.msgpack.encode(body)))[0] == 400
            assert len((await rig.ask("administrator", wire.TOKENS))[1]["tokens"]) == 1

    asyncio.run(main())


def test_an_unstated_right_keeps_a_route_from_being_offered() -> None:
    with pytest.raises(LookupError, match="'new'"):
        right_of(wire.Route("new", "GET", "/v1/new", wire.Done))


def test_outcome_of_a_fetched_result_is_there_for_its_user(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as rig:
            rig.make("ann", SUBMITTER)
            await rig.ask("ann", wire.SUBMIT, submission())
            rig.engine.end(1, 0, outcome=Outcome.SUCCEEDED, result=b"x")
            await becomes(lambda: not rig.driver.open)
            status, answer, _ = await rig.ask("ann", wire.RESULTS, wire.ResultsWanted((wire.TaskRange(1),)))
            assert (status, [one["job"] for one in answer["results"]]) == (200, [1])

    asyncio.run(main())
