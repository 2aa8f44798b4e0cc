"""Makes forecasts in a separate process (`python -m headway.forecaster DATA [--arrivals]`), beside a server.

It follows the server's journal, reads questions from standard input, one after the other, and answers them. Between
them it may be told that somebody has begun to wait for the answer in hand. It ends with its input, or when no question
has come for a while.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from headway.errors import HeadwayError
from headway.foresight.advice import Adviser
from headway.foresight.follower import Follower
from headway.foresight.pace import Pace, nobody_waits
from headway.live.forecasts import HURRY, AdviceQuestion, ForecastQuestion, message_of, read_frame, write_frame
from headway.model.forecast import CANNOT, Advice, Forecast
from headway.policies.registry import find
from headway.wire.reading import any_form

log = logging.getLogger(__name__)

NICE = 5
"""The process gives way to the server, for which callers wait. What it does with this priority is bounded by a pace."""

ARRIVALS = "--arrivals"
"""With this word behind the folder, jobs come in the futures as they did in the past."""

UNASKED_SECONDS = 60.0
"""It ends after this time without a question: its memory is worth more than the time of a start."""

REMEMBER_EVERY = 60.0
"""Seconds after which it writes again what it has learnt of its bounds; what a process that is killed has learnt since
is lost. Bounds that are told in so short a time are mostly the same."""

_question = msgspec.msgpack.Decoder(ForecastQuestion | AdviceQuestion, dec_hook=any_form)
_encode = msgspec.msgpack.encode


class Forecaster:
    """Answers questions about the server of a data directory."""

    def __init__(self, folder: Path, *, arrivals: bool, hurried: Callable[[], bool] = nobody_waits) -> None:
        self._folder = folder
        self._arrivals = arrivals
        self._follower: Follower | None = None
        self._pace = Pace(hurried=hurried)
        self._remembered = -REMEMBER_EVERY

    def answers_to(self, body: bytes) -> Iterator[bytes]:
        """The answers to a question; what cannot be answered is told as one."""
        question = _question.decode(body)
        with self._pace.question(awaited=isinstance(question, AdviceQuestion) or question.awaited):
            yield from self._answers(question)

    def _answers(self, question: ForecastQuestion | AdviceQuestion) -> Iterator[bytes]:
        if isinstance(question, AdviceQuestion):
            yield _encode(self._advice(question))
            return
        try:
            follower = self._caught_up(question.event)
            origin = follower.origin(question.at)
            expected = follower.expected(origin)
        except Exception as error:  # noqa: BLE001  # the journal is damaged, or a policy, maybe a third party's, raises
            yield from [message_of(Forecast(question.at, question.at, 0, (), self._failed(error)))] * 2
            return
        yield message_of(expected)
        try:
            expected = follower.with_chances(origin, expected)
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(error)
        yield message_of(expected)

    def _advice(self, question: AdviceQuestion) -> Advice:
        job = question.job if question.number is None else question.number
        assert job is not None
        try:
            follower = self._caught_up(question.event)
            adviser = Adviser(follower, find, question.waited)
            return adviser.of(follower.state(question.at), job, question.sure)
        except Exception as error:  # noqa: BLE001  # as above
            return Advice(question.sure, lack=self._failed(error))

    def _failed(self, error: Exception) -> str:
        """Why there is no answer. The next question begins anew."""
        self._follower = None
        is_known = isinstance(error, HeadwayError)
        log.warning("no forecast was made: %s", error, exc_info=None if is_known else error)
        return f"{CANNOT}: {error.args[0] if is_known else repr(error)}"

    def _caught_up(self, event: int) -> Follower:
        if self._follower is None:
            self._follower = Follower(self._folder, find, arrivals=self._arrivals, pace=self._pace, remembers=True)
        self._follower.catch_up(event)
        return self._follower

    def remember(self, *, every: float = 0.0) -> None:
        """Write what has been learnt of bounds, unless that was done less than so many seconds ago."""
        if self._follower is None or time.monotonic() - self._remembered < every:
            return
        self._remembered = time.monotonic()
        try:
            self._follower.remember()
        except HeadwayError as error:
            log.warning("what was learnt of bounds is not kept: %s", error)


def hurried(asked: int) -> bool:
    """Whether the word has come that somebody waits. While a question is in hand, nothing else comes."""
    return bool(select.select([asked], [], [], 0)[0]) and read_frame(asked) == HURRY


def main() -> None:
    """Answer until there is no more to answer."""
    os.nice(NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends first, and with it the input
    asked, told = 0, os.dup(1)
    forecaster = Forecaster(Path(sys.argv[1]), arrivals=ARRIVALS in sys.argv[2:], hurried=partial(hurried, asked))
    os.dup2(2, 1)  # whatever a policy prints is no answer
    with suppress(BrokenPipeError):  # the server that asked was killed
        while select.select([asked], [], [], UNASKED_SECONDS)[0]:
            body = read_frame(asked)
            if body is None:  # the server was killed: what is written from now on is for the process of the next one
                break
            if body == HURRY:  # the answer was on its way already
                continue
            for answer in forecaster.answers_to(body):
                write_frame(told, answer)
            forecaster.remember(every=REMEMBER_EVERY)
        else:
            forecaster.remember()


if __name__ == "__main__":
    main()
