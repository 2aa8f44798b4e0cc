"""The HTTP interface: every route of `headway.wire`, answered from the driver.

docs/reference/http-api.md describes it for callers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from headway import __version__, wire
from headway.access.accounts import Accounts
from headway.access.quotas import Meters, Quotas
from headway.access.tokens import TokenOwner, Tokens
from headway.errors import (
    Forbidden,
    HeadwayError,
    InvalidInput,
    Malformed,
    MissingBlobs,
    NoSuchUpload,
    Unavailable,
    did_you_mean,
)
from headway.live import advising, ended, output, rented, reports, requests, retry, served, tasks
from headway.live.aside import aside, gives_threads
from headway.live.changes import check_change
from headway.live.checker import Checker
from headway.live.checker import period as checker_period
from headway.live.delay import LoopDelay
from headway.live.driver import Driver
from headway.live.listeners import Caller, Listener, MessagesWanted
from headway.live.meter import EnergyMeter
from headway.live.store.messages import MessageRow
from headway.model.actions import JobStatus
from headway.model.forecast import SURE
from headway.model.instant import from_seconds, to_seconds
from headway.model.job import JobId, JobSpec
from headway.times import clock_text
from headway.web.answers import (
    answer_to_fault,
    answer_to_trouble,
    messages_of,
    refuse,
    respond,
    result_of,
    status_to,
    unanswered,
)
from headway.web.asking import ServiceDesk, answered, service_of
from headway.web.bodies import (
    BODY_MAX,
    JSON_MAX,
    OTHERS_MAX,
    in_form_by_parts,
    malformed,
    methods_at,
    owner_of_token,
    peer_of,
    read_body,
    read_submission,
    unknown,
)
from headway.web.calls import CallDesk, Desks
from headway.web.line import HttpConnection
from headway.web.openapi import describe
from headway.web.refusals import Refusals
from headway.web.reply import Reply
from headway.web.rights import MORE_RIGHTS, NOBODY, check_owner, check_right, is_allowed, jobs_in, right_of
from headway.wire.base import ANSWER_MAX, JOBS_MAX, LIMIT_MAX, WAIT_MAX
from headway.wire.reading import decoder

log = logging.getLogger(__name__)

MESSAGES_AT_ONCE: Final = 1_000
"""More messages do not come in one answer, which is made in one go: the caller asks for the rest with its cursor."""

JOBS_AT_ONCE: Final = 5_000
"""More jobs do not come in one answer, which is encoded in one go: the caller asks for the rest."""

CUT_MAX: Final = 4 << 20
"""Bytes of results after which an answer is cut, because it is made in one go; one result is never cut."""

USERS_LOOKED_AT_ONCE: Final = 250
"""After so many jobs whose users are looked up, other requests are served."""

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})
_MESSAGES: Final = {name: kind for name, kind, _ in wire.MESSAGES.query}
_TOKEN: Final = "the file `token` of the data directory; an administrator makes others, with `headway token create`"
_LARGE: Final = "Submit fewer jobs at once, in MessagePack, or hand large inputs over as files."
_MANY: Final = "Ask about fewer at once."


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """One request: its caller, the job, node, upload, service or token it is about, its parameters and its body.

    The body of a file is the request itself, which gives it part by part.
    """

    caller: TokenOwner
    job: JobId
    query: Mapping[str, Any]
    body: Any
    packed: bool
    node: str = ""
    upload: str = ""
    service: str = ""
    token: str = ""


Answerer = Callable[[RouteRequest], Awaitable[Any]]


class Api:
    """The routes and their answers.

    Args:
        driver: answers every request.
        tokens: of the users.
        shut_down: ends the server in order, soon after it is called.
        checker: the status checker.
        delay: how late the event loop was.
        body_max: bytes that a submission in MessagePack may bring; no other body is ever larger.
        meter: measures the energy of the nodes; None: it is not measured.
        quotas: what bounds users.
        accounts: as which tasks run, if those of each user run as an account of their own.
        refusals: where refused requests are noted; None: nowhere.

    Attributes:
        desk: takes requests to services from their connections.
        drop: ends the connections of these owners of tokens.
    """

    def __init__(
        self,
        driver: Driver,
        tokens: Tokens,
        shut_down: Callable[[], None],
        *,
        checker: Checker,
        delay: LoopDelay,
        body_max: int = BODY_MAX,
        meter: EnergyMeter | None = None,
        quotas: Quotas = Quotas(),  # noqa: B008  # frozen
        accounts: Accounts | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._driver = driver
        self._tokens = tokens
        self._changing = asyncio.Lock()
        self._quotas = quotas
        self._accounts = accounts
        self._keeping: asyncio.Task[None] | None = None
        self._meters = Meters(quotas, lambda user: driver.held_by(user))
        self._refusals = refusals
        self.drop: Callable[[Iterable[TokenOwner]], None] = _drop_none
        self._shut_down = shut_down
        self._checker = checker
        self._delay = delay
        self._body_max = body_max
        self._meter = meter
        self.desk = ServiceDesk(driver.services, tokens, self._unanswered, self.may)
        answerers: dict[wire.Route, Answerer] = {
            wire.SUBMIT: self._submit,
            wire.JOBS: self._jobs,
            wire.JOB: self._job,
            wire.TASKS: self._tasks,
            wire.CHANGE: self._change,
            wire.CANCEL: self._cancel,
            wire.CANCEL_TASKS: self._cancel_tasks,
            wire.RETRY: self._retry,
            wire.EXPLAIN: self._explain,
            wire.ADVISE: self._advise,
            wire.ADVISE_OPEN: self._advise_open,
            wire.OUTPUT: self._output,
            wire.RESULTS: self._results,
            wire.CLEAR: self._clear,
            wire.ACKNOWLEDGE: self._acknowledge,
            wire.UPLOAD: self._upload,
            wire.UPLOADED: self._uploaded,
            wire.DOWNLOAD: self._download,
            wire.NODES: self._nodes,
            wire.ADD_NODE: self._add_node,
            wire.DRAIN_NODE: self._drain_node,
            wire.REMOVE_NODE: self._remove_node,
            wire.RESIZE_NODE: self._resize_node,
            wire.SWITCH_NODE_OFF: self._switch_node_off,
            wire.SWITCH_NODE_ON: self._switch_node_on,
            wire.POLICY: self._policy,
            wire.CHOOSE: self._choose,
            wire.METRICS: self._metrics,
            wire.CHECKER: self._show_checker,
            wire.SET_CHECKER: self._set_checker,
            wire.INCIDENTS: self._incidents,
            wire.REQUESTS: self._requests,
            wire.AUDIT: self._audit,
            wire.TOKENS: self._list_tokens,
            wire.CREATE_TOKEN: self._create_token,
            wire.REVOKE_TOKEN: self._revoke_token,
            wire.MYSELF: self._myself,
            wire.ENERGY: self._energy,
            wire.PENALTIES: self._penalties,
            wire.SITES: self._sites,
            wire.RENTALS: self._rentals,
            wire.SERVICES: self._services,
            wire.SERVICE: self._service,
            wire.STATISTICS: self._statistics,
            wire.PROMETHEUS: self._prometheus,
            wire.SHUTDOWN: self._shutdown,
            wire.HEALTH: self._health,
            wire.OPENAPI: self._openapi,
        }
        self._router = Starlette(
            routes=[
                *(
                    Route(_pattern(route), _not_so, methods=_METHODS - {route.method})
                    for route in wire.ROUTES
                    if "{node}/" in route.path  # a node of this name is not meant
                ),
                *(
                    Route(_pattern(route), self._endpoint(route, answerers[route]), methods=[route.method])
                    for route in wire.ROUTES
                    if route not in (wire.MESSAGES, wire.REQUEST)
                ),
            ],
            exception_handlers={HTTPException: self._unknown},
        )

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """All of it as an ASGI application.

        Nothing is between callers that wait for messages and the driver.
        """
        if scope["path"] == wire.MESSAGES.path:
            await self._wait(scope, receive, send)
        elif (service := service_of(scope["path"])) is not None:
            await self._ask(service, scope, receive, send)
        else:
            await self._router(scope, receive, send)

    # Every question

    def may(self, route: wire.Route, caller: TokenOwner) -> bool:
        """Whether a caller may ask for something now; then it counts as a request (`NeededByCalls`)."""
        return is_allowed(route, caller) and not self._meters.may_ask(caller)

    def _caller(self, request: Request, route: wire.Route) -> TokenOwner:
        """Who asks.

        Raises:
            Unauthorised: there is no token, or none that is valid.
        """
        return NOBODY if right_of(route).least is None else owner_of_token(request, self._tokens, _TOKEN)

    def _check(self, route: wire.Route, caller: TokenOwner) -> None:
        """Check that a caller may ask for something now; then it counts as a request.

        Raises:
            Forbidden: the caller's role does not allow it.
            TooOften: the caller has sent too many requests.
        """
        check_right(route, caller)
        self._meters.check_rate(caller)

    async def _check_own(self, route: wire.Route, caller: TokenOwner, jobs: Iterable[JobId]) -> None:
        """Check that a caller has a right to these jobs; those that are not known are not looked at.

        Raises:
            Forbidden: one is another user's.
        """
        if caller.role.covers(wire.Role.OPERATOR):
            return
        for place, job in enumerate(dict.fromkeys(jobs), 1):
            self._check_job(route, caller, job)
            if place % USERS_LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _check_job(self, route: wire.Route, caller: TokenOwner, job: JobId) -> None:
        if caller.role.covers(wire.Role.OPERATOR):
            return
        user = reports.user_of(self._driver, job)
        if user is not None:
            check_owner(route, caller, job, user)

    def _note(self, route: wire.Route, error: Exception, line: Any, caller: TokenOwner | None) -> None:
        """Note a request that is refused: for a reason of its caller's, not of ours."""
        if self._refusals is None or not isinstance(error, HeadwayError | msgspec.MsgspecError | RecursionError):
            return
        headway = error if isinstance(error, HeadwayError) else Malformed(str(error))
        status = status_to(headway)
        if isinstance(error, MissingBlobs) or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return
        if route is wire.UPLOADED and isinstance(error, NoSuchUpload):
            return  # whether the file is kept was the question, and the answer is no
        peer = getattr(line, "client", None)
        self._refusals.note(route.name, status, headway, "" if caller is None else caller.name, peer[0] if peer else "")

    def _endpoint(self, route: wire.Route, answerer: Answerer) -> Callable[[Request], Awaitable[Response]]:
        has_body = route.body not in (None, bytes)
        unpack, parse = (decoder(route.body if has_body else Any, is_json=is_json) for is_json in (False, True))
        kinds = {name: kind for name, kind, _ in route.query}
        is_own = right_of(route).own

        async def endpoint(request: Request) -> Response:
            packed = wire.MSGPACK in request.headers.get("accept", "")
            caller: TokenOwner | None = None
            try:
                caller = self._caller(request, route)
                self._check(route, caller)
                query = _query(request.query_params, kinds)
                job = _job_id(request.path_params.get("job", "0"))
                if is_own:
                    self._check_job(route, caller, job)
                body: Any = None
                if route.body is bytes:
                    body = request
                elif has_body:
                    is_json = wire.JSON in request.headers.get("content-type", "")
                    if route is wire.SUBMIT:
                        most = min(JSON_MAX, self._body_max) if is_json else self._body_max
                        body = await read_submission(await read_body(request, most, _LARGE), is_json=is_json)
                    else:
                        most = min(OTHERS_MAX, self._body_max)
                        body = (parse if is_json else unpack)(await read_body(request, most, _MANY))
                if is_own:
                    await self._check_own(route, caller, jobs_in(body))
                names = (request.path_params.get(name, "") for name in ("node", "upload", "service", "token"))
                answer = await answerer(RouteRequest(caller, job, query, body, packed, *names))
            except ClientDisconnect:
                log.info("%s: the caller hung up", route.name)
                return Response(status_code=HTTPStatus.BAD_REQUEST)
            except Exception as error:  # noqa: BLE001 - the caller is told of it, and the log
                self._note(route, error, request, caller)
                return answer_to_trouble(route, error, packed, request.headers.get("content-type", wire.MSGPACK))
            if isinstance(answer, Response):
                return answer
            content, form = await in_form_by_parts(answer, packed=packed)
            return Response(content, media_type=form)

        return endpoint

    async def _unknown(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        told, status = unknown(request, error), HTTPStatus(error.status_code)
        if self._refusals is not None:
            self._refusals.note_unread(status, told.error, peer_of(request.scope))
        response = respond(told, wire.MSGPACK in request.headers.get("accept", ""), status)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            response.headers["Allow"] = ", ".join(methods_at(request.url.path, wire.ROUTES))
        return response

    # Answers

    async def _submit(self, asked: RouteRequest) -> wire.Submitted:
        return await self._driver.submit(*self._submission(asked.caller, asked.body))

    def _submission(
        self, caller: TokenOwner, submission: wire.Submission
    ) -> tuple[str, wire.Submission, Callable[[Sequence[JobSpec]], None]]:
        """What is handed in for a caller.

        Raises:
            Forbidden: jobs would be another user's, or take the place of another user's service.
            InvalidInput: tasks of a user cannot run as an account of their own.
        """
        if not caller.role.covers(wire.Role.OPERATOR):
            for place, job in enumerate(submission.jobs):
                if job.user and job.user != caller.name:
                    said = f"jobs[{place}].user is {job.user!r}; allowed: {caller.name!r}, or none, for {caller.title}"
                    raise Forbidden(said, f"Operators submit for others. {MORE_RIGHTS}")
                if job.service is not None and job.service.replace:
                    for other in self._driver.services_named(job.name):
                        self._check_job(wire.SUBMIT, caller, other)
        if self._accounts is not None:
            self._check_accounts(caller, submission, self._accounts)
        if caller.scope:
            submission = msgspec.structs.replace(submission, client=f"{caller.scope}{submission.client}")
        return caller.name, submission, partial(self._allow, caller)

    def _check_accounts(self, caller: TokenOwner, submission: wire.Submission, accounts: Accounts) -> None:
        """Check that the tasks of the users can run as their accounts, and keep the accounts that were found.

        Raises:
            Forbidden: tasks would run as the server, for a caller whose own do not, and who is no administrator.
            InvalidInput: tasks of a user cannot run as an account of their own.
        """
        accounts.check(job.user or caller.name for job in submission.jobs)
        if accounts.of(caller.name) and not caller.role.covers(wire.Role.ADMINISTRATOR):
            for place, job in enumerate(submission.jobs):
                if job.user and not accounts.of(job.user):
                    said = f"jobs[{place}].user is {job.user!r}, whose tasks run as the server's own account; allowed"
                    raise Forbidden(f"{said}: a user with another account, for {caller.title}", MORE_RIGHTS)
        if self._tokens.finds and self._keeping is None:
            self._keeping = asyncio.create_task(self._keep_accounts())

    async def _keep_accounts(self) -> None:
        """Keep which accounts were found: if one is removed, the tasks of its user are not to run as the server."""
        try:
            async with self._changing:
                await aside(self._tokens.keep())
                self._tokens.use()
        except HeadwayError as error:
            log.error("the accounts of users are not kept: %s", error)
        finally:
            self._keeping = None

    def _allow(self, caller: TokenOwner, jobs: Sequence[JobSpec]) -> None:
        own = [job.tasks for job in jobs if job.user == caller.name]
        if own:
            self._meters.check_more(caller, len(own), sum(own))

    async def _jobs(self, asked: RouteRequest) -> wire.JobList:
        status = asked.query.get("status")
        allowed = ["open", *(known.value for known in JobStatus)]
        if status is not None and status not in allowed:
            raise malformed("status", status, ", ".join(allowed), did_you_mean(status, allowed))
        limit = min(JOBS_AT_ONCE, _within("limit", asked.query.get("limit", 1000), 1, LIMIT_MAX))
        return await reports.job_list(self._driver, status, asked.query.get("user"), asked.query.get("after", 0), limit)

    async def _job(self, asked: RouteRequest) -> wire.JobDetail:
        outlook = await reports.outlook_of(self._driver, asked.job)
        detail = reports.job_detail(self._driver, asked.job, outlook)
        spec = reports.row(self._driver, asked.job).spec
        detail = await ended.with_tasks(self._driver, detail, spec)
        return detail if asked.caller.owns(spec.user) else ended.without_words(detail)

    async def _tasks(self, asked: RouteRequest) -> wire.TaskList:
        limit = min(JOBS_AT_ONCE, _within("limit", asked.query.get("limit", 1000), 1, LIMIT_MAX))
        return await tasks.task_list(
            self._driver, reports.row(self._driver, asked.job), asked.query.get("first", 0), limit
        )

    async def _change(self, asked: RouteRequest) -> wire.Done:
        check_change(self._driver, reports.row(self._driver, asked.job).spec, asked.body)
        return wire.Done(await self._driver.change(asked.job, asked.body, by=asked.caller.name))

    async def _cancel(self, asked: RouteRequest) -> wire.Done:
        self._check_known(asked.body.jobs)
        return wire.Done(await self._driver.cancel(asked.body.jobs, by=asked.caller.name))

    async def _cancel_tasks(self, asked: RouteRequest) -> wire.Done:
        tasks: tuple[int, ...] = asked.body.tasks
        kept = self._driver.open.get(asked.job)
        last = (reports.row(self._driver, asked.job) if kept is None else kept).spec.tasks - 1
        for task in tasks:
            if task > last:
                raise InvalidInput("tasks", task, f"numbers of tasks of job {asked.job}, 0 to {last}")
        return wire.Done(await self._driver.cancel_tasks(asked.job, tasks, by=asked.caller.name))

    async def _retry(self, asked: RouteRequest) -> wire.Retried:
        caller, wanted = asked.caller, asked.body
        if caller.scope:
            wanted = msgspec.structs.replace(wanted, client=f"{caller.scope}{wanted.client}")
        row = reports.row(self._driver, asked.job)
        return await retry.retry(self._driver, caller.name, row, wanted, partial(self._allow, caller))

    async def _explain(self, asked: RouteRequest) -> wire.Explanation:
        wait = asked.query.get("wait")
        patience = None if wait is None else _within("wait", wait, 0.0, WAIT_MAX)
        return await reports.explanation(self._driver, asked.job, patience)

    async def _advise(self, asked: RouteRequest) -> wire.Advice:
        return await advising.on_new(self._driver, asked.body, asked.caller.name)

    async def _advise_open(self, asked: RouteRequest) -> wire.Advice:
        return await advising.on_open(self._driver, asked.job, asked.query.get("sure", SURE))

    async def _results(self, asked: RouteRequest) -> wire.Results:
        found, more = self._driver.journal.results(asked.body.wanted, CUT_MAX)
        return wire.Results(tuple(result_of(body, packed=asked.packed) for body in found), more)

    async def _output(self, asked: RouteRequest) -> Response:
        self._check_known((asked.job,))
        query = asked.query
        task, stream = query.get("task", 0), query.get("stream", "stdout")
        part = (query.get("offset", 0), query.get("limit"))
        wanted = output.OutputWanted(asked.job, task, stream, query.get("rank"), query.get("attempt"), *part)
        size, pieces = await output.output_so_far(self._driver, wanted)
        headers = {} if size is None else {"Content-Length": str(size)}
        return StreamingResponse(pieces, media_type=wire.OCTETS, headers=headers)

    async def _clear(self, asked: RouteRequest) -> wire.Done:
        return wire.Done(await self._driver.retention.clear(asked.body.jobs))

    async def _acknowledge(self, asked: RouteRequest) -> wire.Done:
        client = f"{asked.caller.scope}{asked.body.client}"
        await self._driver.retention.acknowledge(client, asked.body.results, by=asked.caller.name)
        return wire.Done(len({tasks.job for tasks in asked.body.results}))

    async def _upload(self, asked: RouteRequest) -> wire.Upload:
        announced = asked.body.headers.get("content-length", "")
        size = int(announced) if announced.isdigit() else 0
        return wire.Upload(asked.upload, await self._driver.retention.upload(asked.upload, size, asked.body.stream()))

    async def _uploaded(self, asked: RouteRequest) -> wire.Upload:
        return wire.Upload(asked.upload, self._driver.retention.uploaded(asked.upload))

    async def _download(self, asked: RouteRequest) -> Response:
        self._driver.retention.uploaded(asked.upload)
        path = self._driver.retention.uploads.path(asked.upload)
        if gives_threads():
            return _Download(path, asked.caller, self._refusals)
        return StreamingResponse(
            output.pieces_of(path.open("rb"), path.stat().st_size),
            media_type=wire.OCTETS,
            headers={"Content-Length": str(path.stat().st_size)},
        )

    def _check_known(self, jobs: Iterable[JobId]) -> None:
        for job in jobs:
            if job not in self._driver.open:
                reports.row(self._driver, job)

    async def _wait(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        packed = wire.MSGPACK in request.headers.get("accept", "")
        retained = self._driver.journal.retained
        reply = Reply(
            wire.MSGPACK if packed else wire.JSON,
            lambda rows, cursor: messages_of(rows, cursor, forgotten=retained.forgotten, packed=packed),
            scope,
            receive,
            send,
        )
        caller: TokenOwner | None = None
        try:
            if request.method != wire.MESSAGES.method:
                raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)
            caller = self._caller(request, wire.MESSAGES)
            self._check(wire.MESSAGES, caller)
            listener = self._driver.listen(self.wanted(request.query_params, caller), reply)
        except HTTPException as error:
            refusal = await self._unknown(request, error)
        except HeadwayError as error:
            self._note(wire.MESSAGES, error, request, caller)
            refusal = refuse(error, packed)
        except Exception as error:
            log.exception("%s failed", wire.MESSAGES.name)
            refusal = answer_to_fault(wire.MESSAGES, error, packed)
        else:
            try:
                await reply.over()
            finally:
                self._driver.leave(listener)
            return
        await refusal(scope, receive, send)

    # For the desk of calls

    def front(self, epoch: str) -> Desks:
        """All desks, of a server with a journal of this epoch."""
        return Desks(self.desk, CallDesk(self, self._tokens, epoch, self._body_max))

    def hand_in(self, caller: TokenOwner, submission: wire.Submission) -> asyncio.Future[wire.Submitted]:
        """Accept a submission (`NeededByCalls`)."""
        return self._driver.hand_in(*self._submission(caller, submission))

    def listen(self, wanted: MessagesWanted, caller: Caller) -> Listener:
        """Answer a caller when there are messages for it (`NeededByCalls`)."""
        return self._driver.listen(wanted, caller)

    def leave(self, listener: Listener) -> None:
        """Forget a caller (`NeededByCalls`)."""
        self._driver.leave(listener)

    def messages(self, rows: list[MessageRow], cursor: int, *, packed: bool) -> bytes:
        """The body of an answer (`NeededByCalls`)."""
        return messages_of(rows, cursor, forgotten=self._driver.journal.retained.forgotten, packed=packed)

    def refused(
        self, route: wire.Route, error: Exception, caller: TokenOwner, line: HttpConnection, *, packed: bool
    ) -> Response:
        """The answer to an error, which is noted (`NeededByCalls`)."""
        self._note(route, error, line, caller)
        return answer_to_trouble(route, error, packed)

    def _unanswered(self, error: Exception, caller: TokenOwner, line: HttpConnection, packed: bool) -> Response:
        """The answer to an error of a request that the desk has taken, which is noted."""
        self._note(wire.REQUEST, error, line, caller)
        return unanswered(error, packed)

    async def _ask(self, service: str, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        caller: TokenOwner | None = None
        try:
            if scope["method"] != wire.REQUEST.method:
                raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)
            caller = self._caller(request, wire.REQUEST)
            self._check(wire.REQUEST, caller)
            _query(request.query_params, {})
            got = await answered(self._driver.services, service, request, receive)
            answer = Response(got.body, headers={"content-type": got.kind})
        except HTTPException as error:
            answer = await self._unknown(request, error)
        except ClientDisconnect:
            log.debug("%s: the caller hung up", wire.REQUEST.name)
            answer = Response(status_code=HTTPStatus.BAD_REQUEST)
        except Exception as error:  # noqa: BLE001 - the caller is told of it, and the log
            self._note(wire.REQUEST, error, request, caller)
            answer = unanswered(error, wire.MSGPACK in request.headers.get("accept", ""))
        await answer(scope, receive, send)

    def wanted(self, query: QueryParams, caller: TokenOwner) -> MessagesWanted:
        """Which messages a query asks for (`NeededByCalls`).

        Everybody may learn how jobs fare; results are their users'.

        Raises:
            Forbidden: it asks for results of others.
            HeadwayError: it is wrong.
        """
        found = _query(query, _MESSAGES)
        jobs = tuple(found.get("job", ()))
        if len(jobs) > JOBS_MAX:
            raise malformed("job", f"{len(jobs)} jobs", f"at most {JOBS_MAX}; or one `client`")
        self._check_known(jobs)
        client, results = found.get("client"), _within("results", found.get("results", 0), 0, ANSWER_MAX)
        if results and client is None and not caller.role.covers(wire.Role.OPERATOR):
            if not jobs:
                said = f"results is {results}; allowed: 0, or for {caller.title} with `client`, or with own `job`s"
                raise Forbidden(said, MORE_RIGHTS)
            for job in jobs:
                self._check_job(wire.RESULTS, caller, job)
        return MessagesWanted(
            found.get("after", 0),
            min(MESSAGES_AT_ONCE, _within("limit", found.get("limit", 1000), 1, LIMIT_MAX)),
            None if client is None else f"{caller.scope}{client}",
            jobs,
            results,
            CUT_MAX,
            _within("wait", found.get("wait", 0.0), 0.0, WAIT_MAX),
        )

    async def _nodes(self, asked: RouteRequest) -> wire.NodeList:
        return await reports.node_list(self._driver)

    async def _add_node(self, asked: RouteRequest) -> wire.NodeChange:
        return await self._driver.nodes.add(asked.body, by=asked.caller.name)

    async def _drain_node(self, asked: RouteRequest) -> wire.NodeChange:
        return await self._driver.nodes.drain(asked.node, by=asked.caller.name)

    async def _remove_node(self, asked: RouteRequest) -> wire.NodeChange:
        return await self._driver.nodes.remove(asked.node, by=asked.caller.name)

    async def _switch_node_off(self, asked: RouteRequest) -> wire.NodeChange:
        by_hand = _is_by_hand(asked.query.get("by"))
        return await self._driver.nodes.switch(asked.node, on=False, by_hand=by_hand, by=asked.caller.name)

    async def _switch_node_on(self, asked: RouteRequest) -> wire.NodeChange:
        by_hand = _is_by_hand(asked.query.get("by"))
        return await self._driver.nodes.switch(asked.node, on=True, by_hand=by_hand, by=asked.caller.name)

    async def _resize_node(self, asked: RouteRequest) -> wire.NodeChange:
        return await self._driver.nodes.resize(asked.node, asked.body, by=asked.caller.name)

    async def _policy(self, asked: RouteRequest) -> wire.PolicyText:
        return reports.deciding(self._driver)

    async def _choose(self, asked: RouteRequest) -> wire.PolicyText:
        choice: wire.PolicyChoice = asked.body
        if choice == wire.PolicyChoice():
            raise InvalidInput("choice", "empty", "a policy, a decider, a period, or several of them")
        period = wire.optional_microseconds(choice.period, "period")
        if choice.period and not period:  # less than the core counts, and not what turns it off
            raise InvalidInput("period", choice.period, "0.1 seconds or more, or 0 for none")
        await self._driver.choose(choice.policy, decider=choice.decider, period=period, by=asked.caller.name)
        return reports.deciding(self._driver)

    async def _metrics(self, asked: RouteRequest) -> wire.Metrics:
        query = asked.query
        limit = _within("limit", query.get("limit", 1000), 1, LIMIT_MAX)
        since = wire.optional_microseconds(query.get("since"), "since")
        return reports.metrics(self._checker, query.get("node"), query.get("metric"), since, limit)

    async def _show_checker(self, asked: RouteRequest) -> wire.CheckerReport:
        return reports.checker_report(self._checker)

    async def _set_checker(self, asked: RouteRequest) -> wire.CheckerReport:
        every = asked.body.every
        self._checker.choose(on=asked.body.on, every=None if every is None else checker_period(every))
        said = f"{'on' if self._checker.on else 'off'}, every {to_seconds(self._checker.every):g} s"
        self._driver.incident("checker_chosen", "the status checker", said, asked.caller.name)
        return reports.checker_report(self._checker)

    async def _incidents(self, asked: RouteRequest) -> wire.Incidents:
        limit = _within("limit", asked.query.get("limit", 1000), 1, LIMIT_MAX)
        return await reports.incidents(self._driver, asked.query.get("after", 0), limit)

    async def _requests(self, asked: RouteRequest) -> wire.Requests:
        limit = _within("limit", asked.query.get("limit", 1000), 1, LIMIT_MAX)
        return await requests.report(self._driver.journal, asked.query.get("after", 0), limit)

    async def _audit(self, asked: RouteRequest) -> wire.Audit:
        limit = _within("limit", asked.query.get("limit", 1000), 1, LIMIT_MAX)
        since = wire.optional_microseconds(asked.query.get("since"), "since")
        if self._refusals is not None:
            self._refusals.write()
        return await requests.audit(self._driver.journal, asked.query.get("user"), since, limit)

    # Tokens

    async def _list_tokens(self, asked: RouteRequest) -> wire.TokenList:
        return wire.TokenList(self._tokens.reports())

    async def _create_token(self, asked: RouteRequest) -> wire.MadeToken:
        async with self._changing:
            made, write = self._tokens.create(asked.body, asked.caller.name)
            roles = self._tokens.roles()
            roles.setdefault(made.about.user, set()).add(made.about.role)
            await self._driver.bound(self._quotas.slots(roles))  # first: if that fails, there is no token
            await aside(write)
            self._tokens.use()
        about = made.about
        until = "" if about.expires is None else f", until {clock_text(about.expires)}"
        said = f"role {about.role.value}{until}"
        self._driver.incident("token_created", _named(about), said, asked.caller.name)
        return made

    async def _revoke_token(self, asked: RouteRequest) -> wire.Done:
        async with self._changing:
            about = self._tokens.report(asked.token)
            await aside(self._tokens.revoke(asked.token))
            gone = self._tokens.use()
            await self._driver.bound(self._quotas.slots(self._tokens.roles()))
        self.drop([owner for owner in gone if owner is not asked.caller])  # who asks this is still to be answered
        self._driver.incident("token_revoked", _named(about), f"role {about.role.value}", asked.caller.name)
        return wire.Done(len(gone))

    async def _myself(self, asked: RouteRequest) -> wire.Myself:
        caller = asked.caller
        return wire.Myself(caller.name, caller.role, caller.token, caller.until, self._meters.bounds(caller))

    async def _energy(self, asked: RouteRequest) -> wire.EnergyReport:
        if self._meter is None:
            raise Unavailable("this server measures no energy")
        since, until = asked.query.get("since"), asked.query.get("until")
        if since is not None and until is not None and until < since:
            raise InvalidInput("until", until, f"not before since, which is {since}")
        return await self._meter.report(
            None if since is None else from_seconds(since), None if until is None else from_seconds(until)
        )

    async def _penalties(self, asked: RouteRequest) -> wire.Costs:
        return await reports.costs(self._driver)

    async def _sites(self, asked: RouteRequest) -> wire.SiteList:
        return rented.site_list(self._driver)

    async def _rentals(self, asked: RouteRequest) -> wire.RentingReport:
        return rented.renting_report(self._driver)

    async def _services(self, asked: RouteRequest) -> wire.ServiceList:
        found = served.report(self._driver)
        shown = tuple(_shown(asked.caller, one) for one in found.services)
        return msgspec.structs.replace(found, services=shown)

    async def _service(self, asked: RouteRequest) -> wire.ServiceReport:
        return _shown(asked.caller, served.service_report(self._driver, asked.service))

    async def _statistics(self, asked: RouteRequest) -> wire.Statistics:
        return await reports.statistics(self._driver)

    async def _prometheus(self, asked: RouteRequest) -> Response:
        # Importing it takes a twentieth of a start, and most servers are never asked.
        pages = await aside(partial(import_module, "headway.web.exposition"))
        return Response(await pages.exposition(self._driver, self._delay, self._meter), media_type=pages.CONTENT_TYPE)

    async def _shutdown(self, asked: RouteRequest) -> wire.Done:
        self._driver.incident("shut_down", "the server", "its end was requested", asked.caller.name)
        self._shut_down()
        return wire.Done(0)

    async def _health(self, asked: RouteRequest) -> wire.Health:
        return wire.Health(__version__, self._driver.accepts)

    async def _openapi(self, asked: RouteRequest) -> Any:
        return describe(wire.ROUTES, __version__)


def _query(given: QueryParams, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the query string, each of its kind; a list's may come many times."""
    found: dict[str, Any] = {}
    for name in given:
        if name not in kinds:
            allowed = f"one of {', '.join(kinds)}" if kinds else "none"
            raise malformed("parameter", name, allowed, did_you_mean(name, kinds))
        values = given.getlist(name)
        kind = kinds[name]
        try:
            many = get_origin(get_args(kind)[0] if get_origin(kind) is Annotated else kind) is list
            found[name] = msgspec.convert(values if many else values[-1], kind, strict=False)
        except msgspec.ValidationError as error:
            raise malformed(name, ", ".join(values), f"a value of another kind ({error})") from None
    return found


def _is_by_hand(by: str | None) -> bool:
    """Whether a node has been switched already."""
    if by not in (None, "hand"):
        raise malformed("by", by, "hand")
    return by is not None


class _Download(FileResponse):
    """The answer with a file that is kept, or with a part of it; a part that it does not have is refused, and noted."""

    def __init__(self, path: Path, caller: TokenOwner, refusals: Refusals | None) -> None:
        super().__init__(path, media_type=wire.OCTETS)
        self._caller = caller
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""

        async def say(message: Message) -> None:
            status = message.get("status", HTTPStatus.OK)
            if status >= HTTPStatus.BAD_REQUEST and self._refusals is not None:
                asked = Headers(scope=scope).get("range", "")
                why = HeadwayError(f"the range {asked!r} is not one of the file")
                self._refusals.note(wire.DOWNLOAD.name, HTTPStatus(status), why, self._caller.name, peer_of(scope))
            await send(message)

        await super().__call__(scope, receive, say)


def _drop_none(owners: Iterable[TokenOwner]) -> None:
    """Where there are no connections."""


def _shown(caller: TokenOwner, report: wire.ServiceReport) -> wire.ServiceReport:
    """As much of a report as a caller may read."""
    return report if caller.owns(report.user) else served.without_words(report)


def _named(about: wire.TokenReport) -> str:
    return f"token {about.id} of user {about.user}"


async def _not_so(request: Request) -> Response:
    raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)


def _pattern(route: wire.Route) -> str:
    """The path in Starlette's form; a node's name may contain anything."""
    return route.path.replace("{node}", "{node:path}")


def _job_id(text: str) -> JobId:
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise malformed("job", text, "the id of a job, a whole number of at most 18 digits")
    return int(text)


N = TypeVar("N", int, float)


def _within(name: str, value: N, least: N, most: N) -> N:
    if not least <= value <= most:
        raise malformed(name, value, f"{least} to {most}")
    return value
