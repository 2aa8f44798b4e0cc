"""A question to a decider over HTTP: one request, and one answer of limited size. The caller limits the time."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import parse_qs, urlsplit

import httptools
import msgspec

from headway.advice.language import PLAN, read_plan, write_question
from headway.core.record import StateRecord
from headway.errors import InvalidInput, NoAdvice
from headway.model.plan import PlanRecord
from headway.wire import JSON, ErrorBody

ANSWER_MAX: Final = 16 << 20
"""The largest answer in bytes."""

TOKEN: Final = "HEADWAY_DECIDER_TOKEN"
"""The environment variable with the token of the operator's decider, if it demands one."""

_READ: Final = 1 << 16

# Not the event loop's own pool: to end that, asyncio needs a further thread.
_pool = ThreadPoolExecutor(2, thread_name_prefix="headway-asking")


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a decider's URL.

    Attributes:
        target: path on its host to which questions are posted.
        policy: the policy to ask for; empty: the one that the snapshot names.
    """

    url: str
    secure: bool
    host: str
    port: int
    target: str
    policy: str


def address_of(url: str) -> Address:
    """The parts of `http://HOST[:PORT][/PATH][?policy=NAME:KEY=VALUE,...]`.

    Raises:
        InvalidInput: it is not such a URL.

    >>> address_of("http://there:8100/?policy=easy:order=due").policy
    'easy:order=due'
    """
    allowed = "http://HOST:PORT or https://HOST:PORT, with ?policy=NAME[:KEY=VALUE,...] for another policy"
    try:
        parts = urlsplit(url)
        port, query = parts.port, parse_qs(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidInput("decider", url, allowed) from None
    known = parts.scheme in ("http", "https") and parts.hostname and not parts.username and not parts.fragment
    if not known or query.keys() - {"policy"} or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidInput("decider", url, allowed)
    secure = parts.scheme == "https"
    target = parts.path.rstrip("/") + PLAN.path
    policy = query.get("policy", [""])[-1]
    return Address(url, secure, parts.hostname or "", port or (443 if secure else 80), target, policy)


class Asking:
    """Asks deciders, and sends a token to one of them.

    Args:
        own: the URL that the operator named; empty: none. Only this decider gets the token from the environment
            variable `TOKEN`. Deciders that others choose do not get it.
    """

    def __init__(self, own: str = "") -> None:
        self._own = _place(address_of(own)) if own else None

    async def __call__(self, url: str, snapshot: StateRecord, *, explain: bool = False) -> PlanRecord:
        """The plan of the decider at a URL, see `ask`."""
        is_own = _place(address_of(url)) == self._own
        return await ask(url, snapshot, explain=explain, token=os.environ.get(TOKEN, "") if is_own else "")


def _place(address: Address) -> tuple[bool, str, int, str]:
    """The address without the policy."""
    return address.secure, address.host, address.port, address.target


async def ask(url: str, snapshot: StateRecord, *, explain: bool = False, token: str = "") -> PlanRecord:
    """The plan of the decider at a URL. A redirection is not accepted as an answer.

    Args:
        token: the token that the decider demands; empty: none.

    Raises:
        InvalidInput: it is not a valid URL.
        NoAdvice: there is no answer, or the answer is not a plan for this snapshot.
    """
    address = address_of(url)
    question = write_question(snapshot, policy=address.policy or snapshot.policy, explain=explain)
    try:
        return read_plan(await _exchange(address, question, token), snapshot)
    except (OSError, ssl.SSLError, UnicodeError) as error:
        raise NoAdvice(f"it does not answer: {str(error) or type(error).__name__}") from error


async def _exchange(address: Address, body: bytes, token: str) -> bytes:
    """Post a question and return the content of the answer if its status is 200.

    Raises:
        NoAdvice: the answer has another status, is not HTTP, is too large, or breaks off.
        OSError: the connection cannot be made, or breaks.
    """
    host = await _resolved(address)
    server_name = address.host if address.secure else None
    reader, writer = await asyncio.open_connection(
        host, address.port, ssl=address.secure or None, server_hostname=server_name
    )
    try:
        writer.write(_head(address, len(body), token) + body)
        reply = _Reply()
        parser = httptools.HttpResponseParser(reply)
        left = ANSWER_MAX
        while not reply.whole and (part := await reader.read(_READ)):
            left -= len(part)
            if left < 0:
                raise NoAdvice(f"its answer has more than {ANSWER_MAX} bytes")
            parser.feed_data(part)
        if not reply.whole and (reply.sized or not reply.begun):
            raise NoAdvice("its answer breaks off")
    except httptools.HttpParserError as error:
        raise NoAdvice(f"its answer is no HTTP: {error}") from error
    finally:
        writer.close()
    status = parser.get_status_code()
    if status != 200:
        raise NoAdvice(f"it answers with status {status}{_said(bytes(reply.content))}")
    return bytes(reply.content)


async def _resolved(address: Address) -> str:
    """The numeric address of a host.

    The event loop could look it up too, but uvloop ends the process if it gets no thread for that.

    Raises:
        NoAdvice: the system gives no thread.
        OSError: there is no such host.
    """
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(address.host))
    look_up = partial(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
    try:
        found = await asyncio.get_running_loop().run_in_executor(_pool, look_up)
    except RuntimeError as error:
        raise NoAdvice(f"its host cannot be looked up: {error}") from error
    return str(found[0][4][0])


def _head(address: Address, length: int, token: str) -> bytes:
    """The head of the request."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = [
        f"POST {address.target} HTTP/1.1",
        f"Host: {host}:{address.port}",
        f"Content-Type: {JSON}",
        f"Accept: {JSON}",
        f"Content-Length: {length}",
        "Connection: close",
    ]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join((*lines, "", "")).encode("ascii")


class _Reply:
    """What the parser finds."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.begun = self.sized = self.whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Record whether the answer says how long it is."""
        self.sized = self.sized or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        """The content follows."""
        self.begun = True

    def on_body(self, part: bytes) -> None:
        """A part of the content."""
        self.content += part

    def on_message_complete(self) -> None:
        """The answer has ended."""
        self.whole = True


def _said(content: bytes) -> str:
    """The text of an error answer."""
    try:
        body = msgspec.json.decode(content, type=ErrorBody)
    except msgspec.MsgspecError:
        return f": {content[:200].decode('utf-8', 'replace')!r}" if content else ""
    return f": {body.error}" + (f" {body.hint}" if body.hint else "")
