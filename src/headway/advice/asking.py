"""A question to a decider over HTTP: one request, and one answer of limited size. The caller limits the time."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import parse_qs

import msgspec

from headway.advice.language import PLAN, read_plan, write_question
from headway.advice.posting import Endpoint, NoReply, place_in, post
from headway.core.record import StateRecord
from headway.errors import InvalidInput, NoAdvice
from headway.model.plan import PlanRecord
from headway.wire import ErrorBody

DECIDER_TOKEN: Final = "HEADWAY_DECIDER_TOKEN"
"""The environment variable with the token of the operator's decider, if it demands one."""


@dataclass(frozen=True, slots=True)
class DeciderAddress:
    """The parts of a decider's URL.

    Attributes:
        place: where questions are posted.
        policy: the policy to ask for; empty: the one that the snapshot names.
    """

    place: Endpoint
    policy: str


def address_of(url: str) -> DeciderAddress:
    """The parts of `http://HOST[:PORT][/PATH][?policy=NAME:KEY=VALUE,...]`.

    Raises:
        InvalidInput: it is not such a URL.

    >>> address_of("http://there:8100/?policy=easy:order=due").policy
    'easy:order=due'
    """
    allowed = "http://HOST:PORT or https://HOST:PORT, with ?policy=NAME[:KEY=VALUE,...] for another policy"
    place = place_in(url, "decider", allowed)
    try:
        query = parse_qs(place.query, strict_parsing=bool(place.query))
    except ValueError:
        raise InvalidInput("decider", url, allowed) from None
    if query.keys() - {"policy"}:
        raise InvalidInput("decider", url, allowed)
    asked = replace(place, path=place.path.rstrip("/") + PLAN.path, query="")
    return DeciderAddress(asked, query.get("policy", [""])[-1])


class Asking:
    """Asks deciders, and sends a token to one of them.

    Args:
        own: the URL that the operator named; empty: none. Only this decider gets the token from the environment
            variable `DECIDER_TOKEN`. Deciders that others choose do not get it.
    """

    def __init__(self, own: str = "") -> None:
        self._own = address_of(own).place if own else None

    async def __call__(self, url: str, snapshot: StateRecord, *, explain: bool = False) -> PlanRecord:
        """The plan of the decider at a URL, see `ask`."""
        is_own = address_of(url).place == self._own
        return await ask(url, snapshot, explain=explain, token=os.environ.get(DECIDER_TOKEN, "") if is_own else "")


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
        answer = await post(address.place, question, headers)
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
