"""Callers that wait for messages, and when each is answered.

A waiting caller has read all earlier messages, so those for it are in the turns since then. They are passed on as they
were written: the journal is not read again, and a turn costs nothing for callers without messages in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from headway.live.store.messages import MessageRow, NewMessage, Page
from headway.model.job import JobId

log = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.010
"""A caller with messages is answered so long after it asked, unless nothing more is to come for now, or a slot stands
idle, for which it may have something: then at once.

So the ends of many short tasks come many at a time, and that of a single task without delay.
"""


class Caller(Protocol):
    """A caller that waits for an answer; it gets one answer, in three steps that do not wait.

    Each step is taken for all that a turn concerns before the next one is: to wake the process that gets an answer is
    the most expensive part of sending it, and it stays awake while one follows the other closely.
    """

    def make(self, messages: list[MessageRow], cursor: int) -> None:
        """Make the answer: the messages and the cursor that stands behind them."""

    def send(self) -> None:
        """Send it."""

    def close(self) -> None:
        """Do what is left to do, also where there could be no answer."""


class MessagesWanted(NamedTuple):
    """Which messages a caller wants: those with numbers greater than `after` of a client's jobs, of these jobs, or all.

    Attributes:
        limit: the most messages that it takes, >= 1.
        result_max: results of at most this many bytes come along.
        size_max: it is answered when it has this many bytes of results.
        wait_seconds: how long to wait if there is no message.
    """

    after: int = 0
    limit: int = 1000
    client: str | None = None
    jobs: Sequence[JobId] = ()
    result_max: int = 0
    size_max: int = 32 << 20
    wait_seconds: float = 0.0


class Listener:
    """A caller that waits.

    Attributes:
        page: the messages for it so far. It waits only while these are all there are behind `wanted.after`.
        gather_until: when it is answered if there are messages, in seconds of the event loop's clock.
        timer: what answers it in any case; None while it does not wait.
        due: when that is, in the same seconds. An event loop need not tell this of its handles: uvloop's have no time
            where the delay is less than half a millisecond.
    """

    __slots__ = ("caller", "due", "gather_until", "keys", "page", "timer", "wanted")

    def __init__(self, wanted: MessagesWanted, keys: Sequence[int], page: Page, caller: Caller) -> None:
        self.wanted = wanted
        self.keys = keys
        self.page = page
        self.caller = caller
        self.gather_until = 0.0
        self.due = 0.0
        self.timer: asyncio.Handle | None = None

    def take(self, number: int, job: JobId, task: int | None, word: str, result: bytes | None) -> None:
        """A message for it has become durable; what is too much for one answer it asks for with the next."""
        if result is not None and len(result) > self.wanted.result_max:
            result = None
        self.page.add(MessageRow(number, job, task, word, result))


class Listeners:
    """The callers that wait, by key. A key is a job's id, the negative number of a client, or 0 for everything.

    Args:
        gains: whether a caller with messages about a key should wait a little for more. More must come without new
            submissions, and no slot may be idle meanwhile.

    Attributes:
        told: the number of the last message that is durable.
        count: how many callers wait.
    """

    def __init__(self, gains: Callable[[int], bool]) -> None:
        self.told = self.count = 0
        self._gains = gains
        self._waiting: dict[int, dict[Listener, None]] = {}
        self._released = False

    def add(self, wanted: MessagesWanted, keys: Sequence[int], page: Page, caller: Caller) -> Listener:
        """Answer a caller: now if there is reason to, else when there is.

        Args:
            keys: what its messages are about; no message is about two of them.
            page: those that the journal has at this moment.
        """
        now = asyncio.get_running_loop().time()
        listener = Listener(wanted, tuple(dict.fromkeys(keys)), page, caller)
        listener.gather_until = now + GATHER_SECONDS
        if wanted.wait_seconds <= 0 or self._released or (page.rows and self._is_due(listener, now)):
            self._answer((listener,))
            return listener
        for key in keys:
            self._waiting.setdefault(key, {})[listener] = None
        self.count += 1
        until = now + wanted.wait_seconds
        self._wait(listener, min(until, listener.gather_until) if page.rows else until)
        return listener

    def waits(self, key: int) -> bool:
        """Whether a caller waits for messages about this."""
        return key in self._waiting

    def leave(self, listener: Listener) -> None:
        """A caller no longer waits; drop everything about it."""
        if listener.timer is None:
            return
        listener.timer.cancel()
        listener.timer = None
        self.count -= 1
        for key in listener.keys:
            others = self._waiting[key]
            del others[listener]
            if not others:
                del self._waiting[key]

    def tell(self, messages: Sequence[NewMessage]) -> None:
        """These messages have become durable, in order; callers that have waited for them are answered."""
        if not messages:
            return
        self.told = messages[-1][0]
        waiting, concerned = self._waiting, dict[Listener, None]()
        if not waiting:
            return
        for number, client, job, task, _, word, _, result in messages:
            for key in (job, -client, 0):
                for listener in waiting.get(key, ()):
                    listener.take(number, job, task, word, result)
                    concerned[listener] = None
        now = asyncio.get_running_loop().time()
        due = [listener for listener in concerned if self._is_due(listener, now)]
        self._answer(due)
        for listener in concerned:
            if listener.timer is not None:
                self._wait(listener, listener.gather_until)

    def start_over(self) -> None:
        """The messages here may be incomplete: waiting callers ask again from where they were."""
        for listener in {listener: None for others in self._waiting.values() for listener in others}:
            listener.page.rows.clear()
            told, self.told = self.told, 0
            self._answer((listener,))
            self.told = told

    def release(self) -> None:
        """Answer every waiting caller with what there is; from now on none waits."""
        self._released = True
        self._answer(list({listener: None for others in self._waiting.values() for listener in others}))

    def _is_due(self, listener: Listener, now: float) -> bool:
        """Whether a caller with messages is answered at once: no more of them are to come, or it has waited enough."""
        return now >= listener.gather_until or listener.page.is_full or not any(map(self._gains, listener.keys))

    def _wait(self, listener: Listener, until: float) -> None:
        """Answer a caller at this time, unless it is to be answered sooner in any case."""
        if listener.timer is not None:
            if listener.due <= until:
                return
            listener.timer.cancel()
        listener.due = until
        listener.timer = asyncio.get_running_loop().call_at(until, self._answer, (listener,))

    def _answer(self, listeners: Sequence[Listener]) -> None:
        """Answer them. A caller that cannot be answered must not affect the others or the turn; it asks again."""
        for listener in listeners:
            found = listener.page.rows
            cursor = found[-1].number if found else max(listener.wanted.after, self.told)
            _step(partial(listener.caller.make, found, cursor), "made")
        for listener in listeners:
            _step(listener.caller.send, "sent")
        for listener in listeners:
            self.leave(listener)
            _step(listener.caller.close, "closed")


def _step(step: Callable[[], None], what: str) -> None:
    try:
        step()
    except Exception:
        log.exception("the answer to a caller that waited for messages could not be %s", what)
