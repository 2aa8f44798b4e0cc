"""Threads that take messages from the server and pass them to the sinks of a client's jobs."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from threading import Condition, Event, Thread, current_thread, get_ident
from typing import Any, Final

from headway.client.connection import PAUSES, Connection, Query, Server, pauses
from headway.client.receipts import Receipts
from headway.client.threads import join
from headway.client.waiters import Sink
from headway.errors import HeadwayError, Refused, Unreachable
from headway.model.job import JobId
from headway.wire import (
    ACKNOWLEDGE,
    JOB,
    MESSAGES,
    RESULTS,
    Acknowledgement,
    Message,
    ResultsWanted,
    Submitted,
    TaskRange,
    TaskResult,
)

POLL_SECONDS: Final = 30.0
"""How long the server may delay its answer if there is no message."""

ENDS_WITHIN: Final = 5.0
"""So long `close` waits for a thread, in seconds. Ctrl-C within a program's own `concurrent.futures.wait` may leave a
future locked for ever, and then a thread that is to fulfil it never ends."""

INLINE_MAX: Final = 64 << 10
"""Results up to this many bytes come with their messages; larger ones are fetched."""

FEW_MESSAGES: Final = 8
"""Where so few messages come at once, somebody probably waits for each."""

GIVE_WAY_SECONDS: Final = 1e-6
"""How long a thread sleeps when it has woken another one; the system adds enough for that one to go on."""

log = logging.getLogger("headway.client")


class _MessageTaker:
    """One thread that takes messages.

    Attributes:
        whose: about which jobs.
        cursor: number of the last message received.
        sinks: the receivers, by job.
        connection: its own.
        forgotten: messages up to this number may be missing; the jobs they may be about have been looked up.
        missed: jobs that have ended without a message so far. When all messages left have been passed on, these
            jobs will have none.
    """

    def __init__(self, whose: Query, cursor: int, sinks: dict[JobId, Sink], connection: Connection) -> None:
        self.whose = whose
        self.cursor = cursor
        self.sinks = sinks
        self.connection = connection
        self.thread: Thread | None = None
        self.forgotten = 0
        self.missed = list[JobId]()


class Inbox:
    """Takes messages about jobs and passes them to their sinks, one after the other.

    Its threads have a reference to the inbox and not to the client. So an unused client can be garbage-collected, and
    they end with it. No error in a sink, or in a callback of a future, ends a thread.

    Args:
        server: whose messages.
        name: of the client that submits.
        acknowledge: whether results that sinks have received are acknowledged.
    """

    def __init__(self, server: Server, name: str, *, acknowledge: bool) -> None:
        self.name = name
        self._server = server
        self._acknowledges = acknowledge
        self._closing = Event()
        self._abandoned = False
        self._begin()

    def _begin(self) -> None:
        self._receipts = Receipts() if self._acknowledges else None  # the listening thread's
        self._changed = Condition()
        # Guarded by `_changed`.
        self._sinks: dict[JobId, Sink] = {}
        self._takers: list[_MessageTaker] = []
        self._sending = 0
        self._listening = False
        # The thread that passes on messages about what its client has submitted, while it does, and what is to
        # be done after that.
        self._telling: int | None = None
        self._afterwards: dict[Callable[[], None], None] = {}

    @property
    def sinks(self) -> list[Sink]:
        """The sinks of the jobs that were submitted here."""
        with self._changed:
            return list(self._sinks.values())

    def after_telling(self, do: Callable[[], None]) -> bool:
        """Run something when all that has just come has been passed on; called from a callback.

        So what many callbacks want is done at once. Returns False if this thread passes nothing on now; then it is not
        run.
        """
        if get_ident() != self._telling:
            return False
        self._afterwards[do] = None
        return True

    @contextmanager
    def submitting(self, sinks: Sequence[Sink]) -> Iterator[Callable[[Submitted], None]]:
        """Use while jobs are submitted, with a sink for each job; call what it gives with the server's answer.

        Raises:
            HeadwayError: the client is closed.
        """
        with self._changed:
            if self._closing.is_set():
                raise HeadwayError("the client is closed", "Make another one.")
            self._sending += 1
        answers: list[Submitted] = []
        try:
            yield answers.append
        finally:
            with self._changed:
                self._sending -= 1
                for answer in answers:
                    for job, sink in zip(answer.jobs, sinks, strict=True):
                        sink.accepted(job)
                        self._sinks[job] = sink
                self._changed.notify_all()
                start = bool(answers) and not self._listening
                self._listening |= start
        if start:
            self._listen((("client", self.name),), answers[0].cursor, self._sinks)

    def attach(self, job: JobId, sink: Sink) -> None:
        """Pass messages about a job, also of another client, to this sink."""
        self._listen((("job", job),), 0, {job: sink})

    def abandon(self) -> None:
        """The client is no longer used: stop with the last job that is waited for. May be called at any
        moment.
        """
        self._abandoned = True
        for taker in tuple(self._takers):
            if not taker.sinks:
                taker.connection.interrupt()

    def close(self) -> None:
        """Stop listening. Waiting sinks get an error that says so; one that takes longer gets it later."""
        if self._closing.is_set():
            return
        self._closing.set()
        with self._changed:
            takers = tuple(self._takers)
            self._changed.notify_all()
        for taker in takers:
            taker.connection.interrupt()
            if taker.thread is not None and taker.thread is not current_thread():  # a callback may close it
                join(taker.thread, ENDS_WITHIN)
        self._acknowledge_last()

    def forked(self, name: str) -> None:
        """In a child process, where none of the threads exist: start fresh, under this name."""
        left = [sink for sinks in (self._sinks, *(one.sinks for one in self._takers)) for sink in sinks.values()]
        is_closed = self._closing.is_set()
        self._closing = Event()
        if is_closed:
            self._closing.set()
        self.name = name
        self._begin()
        error = HeadwayError(
            f"this was submitted by process {os.getppid()}, which forked this one: only there it is heard of",
            "Client.attach(JOB) gives a waiter here.",
        )
        for sink in dict.fromkeys(left):
            sink.orphaned(error)

    def _listen(self, whose: Query, cursor: int, sinks: dict[JobId, Sink]) -> None:
        """Start a thread that takes messages and passes them to the sinks."""
        taker = _MessageTaker(whose, cursor, sinks, self._server.connection())
        thread = Thread(target=self._live, args=(taker,), name="headway-messages", daemon=True)
        taker.thread = thread
        with self._changed:
            self._takers.append(taker)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads, or the interpreter ends
            self._over(taker, HeadwayError(f"no thread can be started that takes messages: {error}"))

    def _live(self, taker: _MessageTaker) -> None:
        """The life of a taker. However it ends, no sink is left waiting for it."""
        error: BaseException
        try:
            error = self._take_all(taker)
        except BaseException as trouble:  # waiting sinks must get it, whatever it is
            log.critical("messages are not taken any more", exc_info=trouble)
            error = HeadwayError(
                f"messages are not taken any more: {trouble!r}", "The job goes on: Client.attach(JOB)."
            )
        self._over(taker, error)

    def _over(self, taker: _MessageTaker, error: BaseException) -> None:
        taker.connection.hang_up()
        with self._changed:
            self._takers.remove(taker)
            left = list(taker.sinks.values())
            taker.sinks.clear()
            if taker.sinks is self._sinks:
                self._listening = False  # the next submission starts another taker
        for sink in left:
            _tell(sink.broken, error)
        if self._abandoned and not self._closing.is_set() and not self._takers:
            self._acknowledge_last()
            self._server.close()

    def _take_all(self, taker: _MessageTaker) -> HeadwayError:
        """Listen until the client is closed or abandoned or, if it is about one job only, that job has ended.
        Says why.
        """
        tries = pauses()
        own = taker.sinks is self._sinks
        receipts = self._receipts if own else None
        while not self._closing.is_set() and (taker.sinks or (own and not self._abandoned)):
            try:
                self._take(taker, receipts)
            except Unreachable as silence:
                pause = next(tries)
                if pause == PAUSES[-1]:
                    log.warning("still waiting for the server: %s", silence.args[0])
                self._closing.wait(pause)
            except HeadwayError as refusal:
                return refusal
            else:
                tries = pauses()
        return HeadwayError("the client was closed; the job goes on")

    def _take(self, taker: _MessageTaker, receipts: Receipts | None) -> None:
        """Ask once, and pass on what came. What was passed on is not asked for again, even if this fails half-way."""
        connection = taker.connection
        wait = POLL_SECONDS if receipts is None else min(POLL_SECONDS, self._acknowledge(connection, receipts))
        wait, after = 0.0 if taker.missed else wait, taker.cursor
        query = (*taker.whose, ("after", after), ("wait", wait), ("results", INLINE_MAX))
        answer = connection.ask(MESSAGES, query=query, wait=wait)
        cursor, messages, forgotten = answer.cursor, deque[Message](answer.messages), answer.forgotten
        del answer  # so that each result is freed when it has been passed on
        if not messages:
            self._give_up_missed(taker)
        if forgotten > max(after, taker.forgotten):
            taker.missed = [job for job in tuple(taker.sinks) if self._has_ended(connection, job)]
            taker.forgotten = forgotten
        own = taker.sinks is self._sinks
        if own:
            self._telling = get_ident()
        try:
            self._tell_all(taker, messages, receipts)
        finally:
            if own:
                self._telling = None
                self._do_afterwards()
        taker.cursor = cursor

    def _has_ended(self, connection: Connection, job: JobId) -> bool:
        """Whether nothing more will happen to a job, or it is not even known any more."""
        try:
            return bool(connection.ask(JOB, job=job).job.status.is_final)
        except Refused as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            return True

    def _give_up_missed(self, taker: _MessageTaker) -> None:
        """All messages left have been passed on: no more will come about the jobs that had ended before."""
        missed, taker.missed = taker.missed, []
        for job in missed:
            with self._changed:
                sink = taker.sinks.pop(job, None)
            if sink is not None:
                error = f"job {job} has ended, but its results were not fetched while the server kept them"
                _tell(sink.broken, HeadwayError(error, "`headway up --keep-unacknowledged` says for how long."))

    def _do_afterwards(self) -> None:
        afterwards, self._afterwards = self._afterwards, {}
        for do in afterwards:
            do()

    def _tell_all(self, taker: _MessageTaker, messages: deque[Message], receipts: Receipts | None) -> None:
        fetched: dict[tuple[JobId, int], TaskResult] = {}
        last_wanted = _last_wanted(messages, taker.sinks)
        while messages:
            message = messages[0]
            sink = taker.sinks.get(message.job) or self._expected(message.job, taker.sinks)
            if sink is not None:
                result = message.result
                if message.task is not None and result is None:
                    if (message.job, message.task) not in fetched:
                        self._do_afterwards()
                        fetched = self._fetch(messages, taker.sinks)
                    result = fetched.pop((message.job, message.task), None)
                self._pass_on(message, result, sink, taker, receipts)
                del result
            taker.cursor = messages.popleft().number
            if taker.cursor == last_wanted:
                # The thread that waits for it is awake, but cannot go on while this one has the interpreter.
                time.sleep(GIVE_WAY_SECONDS)

    def _fetch(self, messages: Iterable[Message], sinks: Mapping[JobId, Sink]) -> dict[tuple[JobId, int], TaskResult]:
        """As many of the results that did not come with their messages, from the first on, as one answer can
        contain.
        """
        large = tuple(
            TaskRange(message.job, message.task, message.task + 1)
            for message in messages
            if message.task is not None and message.result is None and message.job in sinks
        )
        answer = self._server.ask(RESULTS, body=ResultsWanted(large))
        return {(result.job, result.task): result for result in answer.results}

    def _pass_on(
        self, message: Message, result: TaskResult | None, sink: Sink, taker: _MessageTaker, receipts: Receipts | None
    ) -> None:
        if message.task is not None and result is not None:
            _tell(sink.settled, result)
            if receipts is not None:
                receipts.took(message.job, result.task)
            return
        with self._changed:
            taker.sinks.pop(message.job, None)
        if message.task is not None:
            _tell(sink.broken, HeadwayError(f"the results of job {message.job} have been cleared"))
            return
        if message.status is not None:
            _tell(sink.concluded, message.status)
        if receipts is not None:
            receipts.ended(message.job)

    def _expected(self, job: JobId, sinks: Mapping[JobId, Sink]) -> Sink | None:
        """The sink of a job whose submission is still being answered; None if there is no such submission."""
        with self._changed:
            self._changed.wait_for(lambda: job in sinks or not self._sending or self._closing.is_set())
            return sinks.get(job)

    def _acknowledge(self, connection: Connection, receipts: Receipts, *, last: bool = False) -> float:
        """Acknowledge received results, if that is due or nothing comes after; returns seconds until more may
        be due.
        """
        wait = receipts.wait(time.monotonic())
        if wait is None:
            return POLL_SECONDS
        if wait > 0 and not last:
            return wait
        try:
            connection.ask(ACKNOWLEDGE, body=Acknowledgement(self.name, receipts.ranges()))
        except Refused as refusal:
            log.warning("the server keeps results that are not needed any more: %s", refusal.args[0])
        receipts.clear()
        return POLL_SECONDS

    def _acknowledge_last(self) -> None:
        if self._receipts is None:
            return
        last = self._server.connection()
        try:
            self._acknowledge(last, self._receipts, last=True)
        except HeadwayError as silence:
            log.info("what was received last is not acknowledged: %s", silence.args[0])
        last.hang_up()


def _last_wanted(messages: Sequence[Message], sinks: Mapping[JobId, Sink]) -> int:
    """The number of the last of few messages for which a caller may wait; 0 if there is none, or there are many."""
    if len(messages) > FEW_MESSAGES:
        return 0
    wanted = 0
    for message in messages:
        sink = sinks.get(message.job)
        if sink is not None and sink.by_task is (message.task is not None):
            wanted = message.number
    return wanted


def _tell(tell: Callable[..., None], *what: Any) -> None:
    """Call a sink. An error in it does not keep others from being called."""
    try:
        tell(*what)
    except BaseException:
        log.exception("a callback of a job raised an exception")


def results_of(server: Server, wanted: Sequence[TaskRange]) -> list[TaskResult]:
    """The results that exist, in the order asked for, in as many answers as they need."""
    found: list[TaskResult] = []
    while True:
        answer = server.ask(RESULTS, body=ResultsWanted(tuple(wanted)))
        found += answer.results
        if not answer.more:
            return found
        if not answer.results:
            raise HeadwayError("the server has results left but sends none")
        wanted = _rest(wanted, answer.results[-1])


def _rest(wanted: Sequence[TaskRange], last: TaskResult) -> list[TaskRange]:
    """What is wanted beyond the last result that came, in the order asked for."""
    for place, part in enumerate(wanted):
        if part.job == last.job and part.first <= last.task and (part.last is None or last.task < part.last):
            return [TaskRange(part.job, last.task + 1, part.last), *wanted[place + 1 :]]
    raise HeadwayError(f"the server sent the result of task {last.task} of job {last.job}, which was not requested")
