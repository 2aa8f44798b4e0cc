"""What every call through a client asks: that its work is accepted, and for its messages. No task, nothing in between.

A call that is waited for passes the server twice, and most of its time there went into the ways of an application: a
task, a scope, a router, an answer in parts. So a desk takes these two requests from their connections, as `asking` does
those to services. What is unusual about them, or wrong, is left to the application, where every error is told: JSON, a
large submission, another epoch, an unknown parameter.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from starlette.datastructures import QueryParams
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from headway import wire
from headway.access.tokens import TokenOwner
from headway.errors import HeadwayError
from headway.live.listeners import Listener, MessagesWanted
from headway.live.store.messages import MessageRow
from headway.web.asking import ServiceDesk, ServiceRequest
from headway.web.bodies import WHOLE_MAX, ArrivingBody, Owners, in_form, owner_of
from headway.web.heads import Heads
from headway.web.line import HttpConnection, Taken
from headway.wire.base import WAIT_MAX
from headway.wire.epoch import EPOCH
from headway.wire.reading import decoder

_ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n%b"
_CLOSE: Final = b"connection: close\r\n"
_SUBMIT: Final = wire.SUBMIT.path.encode()
_MESSAGES: Final = wire.MESSAGES.path.encode()
_EPOCH: Final = EPOCH.lower().encode()
_PACKED: Final = wire.MSGPACK.encode()
_BODIES: Final = (b"content-length", b"transfer-encoding")

_COUNTED: Final = re.compile(
    rb"(GET %b\?[^ ]*&after=)(?P<after>\d{1,18})(&wait=)(?P<wait>\d{1,2}(?:\.\d{1,17})?)([& ].*)"
    % re.escape(_MESSAGES),
    re.DOTALL,
)
"""A request for messages as clients send it; only the two numbers change from one to the next."""

_ESCAPES: Final = frozenset(b"%+")
"""With these in a query, a parameter may be written in another way."""

_END: Final = b"\r\n\r\n"

_submission = decoder(wire.Submission, is_json=False)


class NeededByCalls(Protocol):
    """What answers calls."""

    def may(self, route: wire.Route, caller: TokenOwner) -> bool:
        """Whether a caller may ask for something now; then it counts as a request."""
        ...

    def hand_in(self, caller: TokenOwner, submission: wire.Submission) -> asyncio.Future[wire.Submitted]:
        """See `Driver.hand_in`."""
        ...

    def wanted(self, query: QueryParams, caller: TokenOwner) -> MessagesWanted:
        """Which messages a query asks for.

        Raises:
            HeadwayError: it is wrong.
        """
        ...

    def listen(self, wanted: MessagesWanted, caller: Listening) -> Listener:
        """See `Driver.listen`."""
        ...

    def leave(self, listener: Listener) -> None:
        """See `Driver.leave`."""
        ...

    def messages(self, rows: list[MessageRow], cursor: int, *, packed: bool) -> bytes:
        """The body of an answer with messages."""
        ...

    def refused(
        self, route: wire.Route, error: Exception, caller: TokenOwner, line: HttpConnection, *, packed: bool
    ) -> Response:
        """The answer to an error, which is noted."""
        ...


def _uncounted(found: re.Match[bytes]) -> bytes:
    """A request for messages without its numbers."""
    return b"\0".join(found.group(1, 3, 5))


class _SubmissionHead(NamedTuple):
    """What is to be known of the head of a submission.

    Attributes:
        caller: who submits.
        size: bytes of the body.
        packed: whether the answer is MessagePack.
    """

    caller: TokenOwner
    size: int
    packed: bool


class _MessagesHead(NamedTuple):
    """What is to be known of a request for messages.

    Attributes:
        caller: who asks.
        packed: whether the answer is MessagePack.
        size: bytes of the body: it has none.
    """

    caller: TokenOwner
    wanted: MessagesWanted
    packed: bool
    size: int = 0


class CallDesk:
    """Takes small submissions and requests for messages.

    Heads that were parsed and taken are remembered as they are, as those of `ServiceDesk` are: calls whose arguments
    alone differ are sent with the same. Those of requests for messages are remembered without the two numbers that
    change from one to the next: the last message that the caller has, and how long it waits.

    Args:
        answers: answers them.
        owners: of the tokens.
        epoch: of the journal.
        body_max: bytes that a submission may have.
    """

    def __init__(self, answers: NeededByCalls, owners: Owners[TokenOwner], epoch: str, body_max: int) -> None:
        self.answers = answers
        self.epoch_line = b"%b: %b\r\n" % (_EPOCH, epoch.encode())
        self._owners = owners
        self._epoch = epoch.encode()
        self._body_max = min(WHOLE_MAX, body_max)
        self._heads = Heads[_SubmissionHead]()
        self._questions = Heads[_MessagesHead]()

    def take_again(self, line: HttpConnection, data: bytes) -> Submitting | Listening | None:
        """Take a request that is whole, and whose head is one that was taken before."""
        if data.startswith(b"GET "):
            return self._listening_again(line, data)
        found = self._heads.find(data)
        if found is None:
            return None
        caller = found[0].caller
        if not (caller.is_valid and self.answers.may(wire.SUBMIT, caller)):
            return None
        line.owner = caller
        return Submitting(self, line, *found)

    def _listening_again(self, line: HttpConnection, data: bytes) -> Listening | None:
        found = _COUNTED.fullmatch(data)
        question = None if found is None else self._questions.get(_uncounted(found))
        if found is None or question is None:
            return None
        wanted = question.wanted._replace(after=int(found["after"]), wait_seconds=float(found["wait"]))
        if wanted.wait_seconds > WAIT_MAX:
            return None
        if not (question.caller.is_valid and self.answers.may(wire.MESSAGES, question.caller)):
            return None
        line.owner = question.caller
        return Listening(self, line, question._replace(wanted=wanted))

    def learn(self, taken: Submitting | Listening, data: bytes) -> None:
        """Remember the head of a request."""
        if isinstance(taken, Submitting):
            self._heads.learn(taken.head, data)
            return
        found = _COUNTED.fullmatch(data)
        if found is None or taken.question.wanted.jobs:  # rights on jobs are looked up each time
            return
        target = data[: data.index(b" HTTP/")]
        is_plain = target.count(b"after=") == target.count(b"wait=") == 1 and not _ESCAPES.intersection(target)
        if is_plain and data.count(_END) == 1:  # the numbers are those of the pattern, and nothing follows
            self._questions.keep(_uncounted(found), taken.question)

    def take(
        self, line: HttpConnection, method: str, url: bytes, headers: list[tuple[bytes, bytes]]
    ) -> Submitting | Listening | None:
        """Take a request whose head is read; None: it is for the application."""
        path, _, query = url.partition(b"?")
        if method == wire.SUBMIT.method and url == _SUBMIT:
            return self._submitting(line, headers)
        if method == wire.MESSAGES.method and path == _MESSAGES and b"#" not in query:
            return self._listening(line, query, headers)
        return None

    def _owner(self, given: Mapping[bytes, bytes]) -> TokenOwner | None:
        """Who asks; None: that is not known, or another epoch is meant."""
        return owner_of(given.get(b"authorization", b""), self._owners) if self._is_ours(given) else None

    def _is_ours(self, given: Mapping[bytes, bytes]) -> bool:
        return given.get(_EPOCH, self._epoch) == self._epoch

    def _submitting(self, line: HttpConnection, headers: list[tuple[bytes, bytes]]) -> Submitting | None:
        given = dict(headers)
        size, owner = given.get(b"content-length", b""), self._owner(given)
        if owner is None or len(given) < len(headers) or not size.isdigit() or int(size) > self._body_max:
            return None
        if given.get(b"content-type", _PACKED) != _PACKED:
            return None
        if not self.answers.may(wire.SUBMIT, owner):
            return None
        line.owner = owner
        return Submitting(self, line, _SubmissionHead(owner, int(size), _PACKED in given.get(b"accept", b"")))

    def _listening(self, line: HttpConnection, query: bytes, headers: list[tuple[bytes, bytes]]) -> Listening | None:
        given = dict(headers)
        owner = self._owner(given)
        if owner is None or len(given) < len(headers) or any(name in given for name in _BODIES):
            return None
        try:
            wanted = self.answers.wanted(QueryParams(query), owner)
        except HeadwayError:
            return None
        if not self.answers.may(wire.MESSAGES, owner):
            return None
        line.owner = owner
        return Listening(self, line, _MessagesHead(owner, wanted, _PACKED in given.get(b"accept", b"")))


class _TakenCall:
    """A request that was taken, from its head to its answer.

    Attributes:
        keep_alive: whether its connection goes on after the answer.
        response_complete: False, for uvicorn.
    """

    __slots__ = ("_caller", "_desk", "_line", "_packed", "keep_alive")

    response_complete: Final = False

    def __init__(self, desk: CallDesk, line: HttpConnection, caller: TokenOwner, *, packed: bool) -> None:
        self._desk = desk
        self._caller = caller
        self._line = line
        self._packed = packed
        self.keep_alive = True

    @property
    def _end(self) -> bytes:
        return b"" if self.keep_alive else _CLOSE

    def _error(self, route: wire.Route, error: Exception) -> bytes:
        response = self._desk.answers.refused(route, error, self._caller, self._line, packed=self._packed)
        head = b"".join([b"%b: %b\r\n" % header for header in response.raw_headers])
        first = STATUS_LINE[response.status_code]
        return b"".join((first, head, self._desk.epoch_line, self._end, b"\r\n", bytes(response.body)))


class Submitting(_TakenCall):
    """A submission.

    Attributes:
        head: of it.
    """

    __slots__ = ("_body", "_is_gone", "head")

    def __init__(self, desk: CallDesk, line: HttpConnection, head: _SubmissionHead, body: bytes = b"") -> None:
        super().__init__(desk, line, head.caller, packed=head.packed)
        self.head = head
        self._body = ArrivingBody(body)
        self._is_gone = False

    def more(self, part: bytes) -> None:
        """A part of its body."""
        self._body.more(part)

    def whole(self) -> None:
        """Its body is complete."""
        body = self._body.take()
        try:
            answer = self._desk.answers.hand_in(self.head.caller, _submission(body))
        except Exception as error:  # noqa: BLE001 - the caller is told of it, and the log
            self._line.reply(self, self._error(wire.SUBMIT, error))
        else:
            answer.add_done_callback(self._answered)

    def gone(self) -> None:
        """Nobody waits for the answer any more: it is accepted all the same."""
        self._is_gone = True

    def _answered(self, answer: asyncio.Future[wire.Submitted]) -> None:
        error = answer.exception()
        if self._is_gone:
            return
        if error is not None:
            assert isinstance(error, Exception)
            self._line.reply(self, self._error(wire.SUBMIT, error))
            return
        body, form = in_form(answer.result(), packed=self._packed)
        self._line.reply(self, _ANSWER % (form.encode(), len(body), self._desk.epoch_line + self._end, body))


class Listening(_TakenCall):
    """A request for messages: the caller of a listener.

    Attributes:
        question: what it asks for.
    """

    __slots__ = ("_is_over", "_listener", "_whole", "question")

    def __init__(self, desk: CallDesk, line: HttpConnection, question: _MessagesHead) -> None:
        super().__init__(desk, line, question.caller, packed=question.packed)
        self.question = question
        self._listener: Listener | None = None
        self._whole = b""
        self._is_over = False

    # For the connection

    def more(self, part: bytes) -> None:
        """It has no body."""

    def whole(self) -> None:
        """It is complete."""
        try:
            self._listener = self._desk.answers.listen(self.question.wanted, self)
        except Exception as error:  # noqa: BLE001 - the caller is told of it, and the log
            self._is_over = True
            self._line.reply(self, self._error(wire.MESSAGES, error))
        else:
            if self._is_over:
                self._leave()

    def gone(self) -> None:
        """Nobody waits for the answer any more."""
        self._is_over = True
        self._leave()

    # For the listener

    def make(self, messages: list[MessageRow], cursor: int) -> None:
        """Make the answer."""
        body = self._desk.answers.messages(messages, cursor, packed=self._packed)
        form = wire.MSGPACK if self._packed else wire.JSON
        self._whole = _ANSWER % (form.encode(), len(body), self._end, body)

    def send(self) -> None:
        """Write it."""
        self._line.write(self._whole)

    def close(self) -> None:
        """Let the connection go on."""
        self._is_over = True
        if not self._whole:
            self._line.write(self._error(wire.MESSAGES, RuntimeError("the answer could not be made")))
        self._line.over(self)
        self._leave()

    def _leave(self) -> None:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            self._desk.answers.leave(listener)


class Desks:
    """All desks of a server.

    Args:
        services: takes requests to services.
        calls: takes what calls ask.
    """

    def __init__(self, services: ServiceDesk, calls: CallDesk) -> None:
        self._services = services
        self._calls = calls

    def take(
        self, line: HttpConnection, method: str, url: bytes, headers: list[tuple[bytes, bytes]]
    ) -> ServiceRequest | Submitting | Listening | None:
        """Take a request whose head is read; None: it is for the application."""
        return self._calls.take(line, method, url, headers) or self._services.take(line, method, url, headers)

    def take_again(self, line: HttpConnection, data: bytes) -> ServiceRequest | Submitting | Listening | None:
        """Take a request that is whole, and whose head is one that was taken before."""
        return self._services.take_again(line, data) or self._calls.take_again(line, data)

    def learn(self, taken: Taken, data: bytes) -> None:
        """Remember the head of a request."""
        if isinstance(taken, ServiceRequest):
            self._services.learn(taken, data)
        elif isinstance(taken, Submitting | Listening):
            self._calls.learn(taken, data)
