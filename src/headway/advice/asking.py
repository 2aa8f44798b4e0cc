"""A question to a decider over HTTP: one request, and one answer of limited size. The caller limits the time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from headway.advice.language import PLAN, read_plan, write_question
from headway.advice.posting import NoReply, post
from headway.core.record import StateRecord
from headway.errors import InvalidInput, NoAdvice
from headway.model.plan import PlanRecord
from headway.wire import ErrorBody

TOKEN: Final = "HEADWAY_DECIDER_TOKEN"
"""The environment variable with the token of the operator's decider, if it demands one."""


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
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = await post(address.secure, address.host, address.port, address.target, question, headers)
    except NoReply as error:
        raise NoAdvice(str(error.args[0])) from error
    if answer.status != 200:
        raise NoAdvice(f"it answers with status {answer.status}{_said(answer.content)}")
    return read_plan(answer.content, snapshot)


def _said(content: bytes) -> str:
    """The text of an error answer."""
    try:
        body = msgspec.json.decode(content, type=ErrorBody)
    except msgspec.MsgspecError:
        return f": {content[:200].decode('utf-8', 'replace')!r}" if content else ""
    return f": {body.error}" + (f" {body.hint}" if body.hint else "")
