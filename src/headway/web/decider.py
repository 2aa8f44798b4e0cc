"""A decider: any installed policy behind HTTP, for Headway and for everybody else. It keeps nothing between questions.

docs/reference/decider.md describes it for callers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

import msgspec
import uvloop
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headway import __version__, wire
from headway.access.tokens import Known
from headway.advice import language
from headway.advice.language import PLAN, POLICIES, PlanText, Policies, PolicyOffer, plan_text, read_question
from headway.advice.snapshots import check_snapshot
from headway.core.scheduler import Scheduler
from headway.errors import Contradiction, HeadwayError, Malformed, PolicyRaised, TooLarge, Unauthorised
from headway.model.job import AnyJob
from headway.model.plan import Plan
from headway.model.policy import PolicySource
from headway.web.bodies import broken, methods_at, owner_of_token, read_body, status_of, unknown
from headway.web.openapi import describe
from headway.web.serving import BoundedServer, listen, signals, url_of

log = logging.getLogger(__name__)

DECIDER_ROUTES: Final = (PLAN, POLICIES, wire.HEALTH, wire.OPENAPI)

QUESTION_MAX: Final = 64 << 20
"""Bytes of a question: about the snapshot of 100,000 jobs."""

_LARGE: Final = "Leave out fields that have their defaults, and departed nodes."


_STATUS: Final[tuple[tuple[type[HeadwayError], HTTPStatus], ...]] = (
    (Unauthorised, HTTPStatus.UNAUTHORIZED),
    (TooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (PolicyRaised, HTTPStatus.INTERNAL_SERVER_ERROR),
    (Malformed, HTTPStatus.BAD_REQUEST),
    (HeadwayError, HTTPStatus.UNPROCESSABLE_ENTITY),
)


def decide(question: language.Question, policies: PolicySource, default: str) -> Plan:
    """The plan of the policy that is asked for, or else of the default one.

    Raises:
        InvalidInput: no such policy, or not with these parameters.
        Contradiction: no core could be in the state that the snapshot describes, or a pool's policy is not here.
        PolicyRaised: the policy failed, or wants what does not exist.
    """
    text = question.policy or default
    policies(text)  # it is there
    check_snapshot(question.snapshot)
    for number, pool in enumerate(question.snapshot.pools):
        try:
            policies(pool.policy)
        except HeadwayError as error:
            raise Contradiction(f"snapshot.pools[{number}].{error.args[0]}", error.hint) from error
    scheduler = Scheduler.restore(replace(question.snapshot, policy=text), policies)
    try:
        plan = scheduler.plan(explain=question.explain)
    except Exception as raised:
        log.exception("policy %s raised", text)
        raise PolicyRaised(
            f"policy {text} raised {type(raised).__name__}: {raised}", "The log has the traceback."
        ) from raised
    if any(wanted.slots < 0 or wanted.slots >> len(scheduler.state.slot_nodes) for wanted in plan.allocations):
        raise PolicyRaised(f"policy {text} wants slots that do not exist", "Its allocations are wrong.")
    return plan


class DeciderRoutes:
    """The routes and their answers.

    Args:
        policies: finds a policy by its text.
        offers: the policies that can be asked for.
        default: the text of the policy for questions that name none.
        token: what every request but `GET /health` must carry; empty: nothing.
        token_file: the file with the token, named in the error if it is missing.
        body_max: bytes that a question may have.
    """

    def __init__(
        self,
        policies: PolicySource,
        offers: tuple[PolicyOffer, ...],
        default: str,
        *,
        token: str = "",
        token_file: str = "",
        body_max: int = QUESTION_MAX,
    ) -> None:
        self._policies = policies
        self._offers = offers
        self._default = default
        self._tokens = Known({token.encode(): True}) if token else None
        self._token_file = token_file
        self._body_max = body_max
        answerers: dict[wire.Route, Callable[[Request], Awaitable[Any]]] = {
            PLAN: self._plan,
            POLICIES: self._list,
            wire.HEALTH: self._health,
            wire.OPENAPI: self._openapi,
        }
        self.app = Starlette(
            routes=[
                Route(route.path, self._endpoint(route, answerer), methods=[route.method])
                for route, answerer in answerers.items()
            ],
            exception_handlers={HTTPException: _unknown},
        )

    def _endpoint(
        self, route: wire.Route, answerer: Callable[[Request], Awaitable[Any]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                if self._tokens is not None and route is not wire.HEALTH:
                    owner_of_token(request, self._tokens, f"the file {self._token_file} of the decider")
                return _response(await answerer(request))
            except HeadwayError as error:
                body = wire.ErrorBody(str(error.args[0]), error.hint, code=error.code)
                return _response(body, status_of(error, _STATUS))
            except Exception as error:
                log.exception("%s failed", route.name)
                return _response(broken(route, error, "the decider's log"), HTTPStatus.INTERNAL_SERVER_ERROR)

        return endpoint

    async def _plan(self, request: Request) -> PlanText:
        body = await read_body(request, self._body_max, _LARGE)
        return await run_in_threadpool(self._answer, body)

    def _answer(self, body: bytes) -> PlanText:
        try:
            question = read_question(body)
        except Contradiction:
            raise
        except HeadwayError as error:
            raise Malformed(str(error.args[0]), error.hint) from error
        return plan_text(decide(question, self._policies, self._default), question.snapshot.now)

    async def _list(self, _: Request) -> Policies:
        return Policies(self._default, self._offers)

    async def _health(self, _: Request) -> wire.Health:
        return wire.Health(__version__)

    async def _openapi(self, _: Request) -> dict[str, Any]:
        about = language.__doc__ or ""
        written = {AnyJob: language.JobTerms}
        found = describe(
            DECIDER_ROUTES, __version__, title="Headway's decider", about=about, media=(wire.JSON,), written=written
        )
        for record in language.RECORDS:
            found["components"]["schemas"][record.__name__]["additionalProperties"] = False
        return found


def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _response(unknown(request, error), HTTPStatus(error.status_code))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        response.headers["Allow"] = ", ".join(methods_at(request.url.path, DECIDER_ROUTES))
    return response


def _response(answer: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else None
    return Response(msgspec.json.encode(answer), status, headers, media_type=wire.JSON)


def run(decider: DeciderRoutes, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        port: 0 takes any that is free.
        say: called with the URL when the decider answers.

    Raises:
        HeadwayError: the host or the port cannot be used.
    """
    uvloop.run(_serve(decider, host, port, say))


async def _serve(decider: DeciderRoutes, host: str, port: int, say: Callable[[str], None]) -> None:
    end = asyncio.Event()
    with listen(host, port) as listener, signals(end):
        serving = asyncio.create_task(BoundedServer(decider.app, end).serve([listener]))
        say(url_of(listener))
        await serving
