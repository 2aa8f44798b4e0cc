"""Services: their terms as callers give them, and how requests reach them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec
import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError

from headway import strict_json
from headway.client.address import Address
from headway.client.connection import pauses
from headway.client.job import Env, title_of, variables
from headway.client.paths import import_paths
from headway.client.pickling import pickled_function
from headway.client.terms import LATER, sent, whole
from headway.client.trust import context_of, refusal
from headway.errors import InvalidInput, Refused, Unreachable
from headway.model.instant import from_seconds
from headway.model.job import PenaltyShape, flaw
from headway.times import Span
from headway.wire import (
    JSON,
    MSGPACK,
    OCTETS,
    REQUEST,
    ErrorBody,
    Handling,
    NewJob,
    RequestLimits,
    ServiceTerms,
    blob_name,
    check_work,
)

INSTANCES_MAX: Final = 1000
"""How many instances a service may have unless it is said."""

RETRIES: Final = 10
"""How many instances may fail within one window unless it is said."""

REQUESTS_AT_ONCE: Final = 64
"""Requests of `Client.ask_async` that are under way at the same time; more wait for their turn."""

SERVICE_SECONDS: Final = 7200.0
"""A server that says nothing for so long is given up: it ends a request after its own limits."""


class Service:
    """What answers requests: `client.serve(Service("double", double))`, then `client.ask("double", 4)`.

    As many instances of it run as the policy gives it slots. Each loads the handler once, and answers one request at a
    time. It runs until it is cancelled.

    Attributes:
        name: under which it is asked: letters, digits and . _ -
        handler: a function, or the name of one as `"module:function"`. It gets one argument: of a request in JSON the
            value, else bytes. What it returns is the answer: bytes as they are, anything else as JSON.
        command: instead of a handler: a program and its arguments, run anew for each request. It reads the request on
            its stdin; what it writes to its stdout is the answer.
        threshold: a later answer is late: seconds, a `timedelta`, or text such as `"200ms"`.
        fraction: the share of a window's answers that are to be in time, above 0, at most 1.
        rate, shape: what a window costs: `rate` times the shape of what the share in time lacks of `fraction`: linear,
            sqrt, square.
        least, most: how many instances it has at least and at most.
        window: how long a window is, given like `threshold`.
        retries: how many instances may fail within a window of their start before the service is given up.
        time_limit: how long an instance may work on a request. Then the caller gets an error, and it is killed.
        wait_limit: how long a request may wait for an instance.
        load_limit: how long an instance may take to load the handler.
        queue: how many requests may wait; more are refused.
        request_max, answer_max: bytes that a request and an answer may have.
        memory_limit: bytes of memory of an instance; None: no limit.
        priority: higher is more important, to policies that know priorities.
        cwd: folder that instances run in; None: the current one.
        env: variables for instances: values by name, or names of variables that are passed as they are here.
        user: who submits it; empty: the owner of the token.
    """

    def __init__(
        self,
        name: str,
        handler: Callable[..., Any] | str | None = None,
        *,
        command: Sequence[str] = (),
        threshold: Span = 1.0,
        fraction: float = 0.9,
        rate: float = 1.0,
        shape: PenaltyShape | Literal["linear", "sqrt", "square"] = PenaltyShape.LINEAR,
        least: int = 1,
        most: int = INSTANCES_MAX,
        window: Span = 20.0,
        retries: int = RETRIES,
        time_limit: Span | None = None,
        wait_limit: Span | None = None,
        load_limit: Span | None = None,
        queue: int | None = None,
        request_max: int | None = None,
        answer_max: int | None = None,
        memory_limit: int | None = None,
        priority: float = 0.0,
        cwd: str | os.PathLike[str] | None = None,
        env: Env = None,
        user: str = "",
    ) -> None:
        self.name = name
        self.handler = handler
        self.command = command
        self.threshold = threshold
        self.fraction = fraction
        self.rate = rate
        self.shape = shape
        self.least = least
        self.most = most
        self.window = window
        self.retries = retries
        self.time_limit = time_limit
        self.wait_limit = wait_limit
        self.load_limit = load_limit
        self.queue = queue
        self.request_max = request_max
        self.answer_max = answer_max
        self.memory_limit = memory_limit
        self.priority = priority
        self.cwd = cwd
        self.env = env
        self.user = user

    def __repr__(self) -> str:
        return f"<Service {self.name!r}>"


def described(service: Service, *, replace: bool) -> tuple[NewJob, dict[str, bytes]]:
    """A service in the form in which it is sent, and its function as a blob by name.

    Raises:
        HeadwayError: a term is wrong, or its function cannot be pickled.
    """
    now = time.time()
    work, blobs = _handling(service)
    of_service = ServiceTerms(**sent(ServiceTerms, service, now, but=("replace",)), replace=replace)
    of_job = sent(NewJob, service, now, but=("time_limit", "tasks", "width", "leased"))  # it limits requests
    new = NewJob(work, "service", service=of_service, **of_job)
    check_work(new)
    wrong = flaw(new.spec(LATER, from_seconds(now), ""))
    if wrong:
        raise InvalidInput.saying(f"service {service.name!r}: {wrong}")
    return new, blobs


def _handling(service: Service) -> tuple[Handling, dict[str, bytes]]:
    handler, blobs = service.handler, dict[str, bytes]()
    if isinstance(service.command, str):
        raise InvalidInput("command", service.command, "a program and its arguments, as a list")
    if handler is not None and not isinstance(handler, str) and not callable(handler):
        raise InvalidInput("handler", handler, "a function, or the name of one as 'module:function'")
    name = ""
    if handler is not None and not isinstance(handler, str):
        blob = pickled_function(handler, f"service {service.name!r}")
        blobs[blob_name(blob)], name = blob, title_of(handler)
    queue = None if service.queue is None else whole(service.queue, "queue")
    limits = RequestLimits(**sent(RequestLimits, service, 0.0, but=("queue_max",)), queue_max=queue)
    work = Handling(
        handler=handler if isinstance(handler, str) else "",
        function=next(iter(blobs), ""),
        command=tuple(service.command),
        paths=import_paths(),
        cwd=os.path.join(os.getcwd(), os.fspath(service.cwd or "")),
        env=variables(service.env),
        limits=limits,
        name=name,
    )
    return work, blobs


class Asker:
    """Sends requests to services. Each is sent once: whether it may be repeated is for its caller to know.

    Args:
        find: finds the address of the server.
        patience: seconds to try while no server takes the connection.
    """

    def __init__(self, find: Callable[[], Address], patience: float) -> None:
        self._find = find
        self._patience = patience
        self._connections: dict[Address, urllib3.PoolManager] = {}
        self._threads: ThreadPoolExecutor | None = None

    def ask(self, name: str, value: Any, timeout: float | None) -> Any:
        """Send a request and wait for the answer.

        Raises:
            InvalidInput: the request cannot be sent as JSON, or `timeout` is not above 0.
            Refused: there is no answer: the service does not exist or is full, its handler failed, ...
            Unreachable: the server went away; it is not known whether the request was handled.
        """
        if timeout is not None and not 0 < timeout <= threading.TIMEOUT_MAX:
            raise InvalidInput("timeout", timeout, f"seconds above 0, at most {threading.TIMEOUT_MAX:g}")
        is_raw = isinstance(value, bytes | bytearray | memoryview)
        kind, body = (OCTETS, bytes(value)) if is_raw else (JSON, _json(value))
        until = time.monotonic() + self._patience
        for pause in pauses():
            try:
                address = self._find()
                response = self._to(address).request(
                    "POST",
                    address.url + REQUEST.path.format(service=quote(name, safe="")),
                    body=body,
                    headers={"Authorization": f"Bearer {address.token}", "Content-Type": kind, "Accept": JSON},
                    timeout=SERVICE_SECONDS if timeout is None else timeout,
                )
                return _answer(response)
            except (Unreachable, NewConnectionError) as error:  # nothing was sent
                if time.monotonic() + pause > until:
                    raise _silence(error) from error
                time.sleep(pause)
            except HTTPError as error:
                if (refused := refusal(error, address)) is not None:
                    self._connections = {}  # what is trusted may be another file's content next time
                    raise refused from error
                said = f"the server did not answer a request to service {name!r}: {error}"
                raise Unreachable(said, "It may have been handled all the same.") from error
        raise AssertionError("pauses never end")

    async def ask_async(self, *args: Any) -> Any:
        """The same from an event loop, in a thread."""
        import asyncio  # here: a command that does without starts sooner

        if self._threads is None:
            self._threads = ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="headway-ask")
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(self.ask, *args))

    def _to(self, address: Address) -> urllib3.PoolManager:
        """The connections to a server; to one that is elsewhere by now they are let go of."""
        found = self._connections.get(address)
        if found is None:
            terms: dict[str, Any] = {}
            if (context := context_of(address)) is not None:
                terms = {"ssl_context": context, **({"assert_hostname": False} if address.pinned else {})}
            found = urllib3.PoolManager(maxsize=REQUESTS_AT_ONCE, retries=False, **terms)
            self._connections = {address: found}
        return found

    def close(self) -> None:
        """Close what is open."""
        for connections in self._connections.values():
            connections.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    def forked(self) -> None:
        """In a child process: use no connection and no thread of the parent."""
        self._connections, self._threads = {}, None


def _silence(error: Exception) -> Unreachable:
    if isinstance(error, Unreachable):
        return error
    return Unreachable(f"no server answers: {error}", "Start it with `headway up`.")


def _json(value: Any) -> bytes:
    try:
        return strict_json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput("request", value, f"bytes, or what JSON has ({error})") from error


def _answer(response: urllib3.BaseHTTPResponse) -> Any:
    kind, body = response.headers.get("content-type", ""), response.data
    if response.status < 400:
        return msgspec.json.decode(body) if kind == JSON else body
    try:
        decode = msgspec.msgpack.decode if kind == MSGPACK else msgspec.json.decode
        said = decode(body, type=ErrorBody)
    except msgspec.MsgspecError:
        said = ErrorBody(f"status {response.status}, {body[:200]!r}")
    after = response.headers.get("retry-after", "")
    raise Refused(
        *(said.error, said.hint),
        status=response.status,
        code=said.code,
        retry_after=float(after) if after.isdigit() else None,
    )
