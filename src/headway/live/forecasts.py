"""What is expected of the open jobs: forecasts, made by another process and kept while they are valid.

A forecast is made on request, if something has happened since the last one. The process that makes it follows the
journal (`headway.forecaster`), so the event loop only asks. It answers twice: first what is expected by the estimates,
then the same with how sure it is. No caller waits for ever: after a limited time, the answer is the previous forecast,
or that nothing is known yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec

from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError, NoForecast
from headway.live.aside import aside
from headway.live.troubles import said
from headway.model.forecast import CANNOT, Advice, Expected, Forecast
from headway.model.instant import NEVER, SECOND, Duration, Instant
from headway.model.job import AnyJob, JobId

log = logging.getLogger(__name__)

FORECAST_JOBS_MAX: Final = 3000
"""With more open jobs there is no forecast: to take in the answer would block the event loop too long."""

EXACT_PATIENCE: Final = 10.0
"""Seconds that a request for an exact forecast waits while it is made: where the machine is busy and others ask, until
their question is answered, which it hurries, and then its own; see `foresight.pace`."""

PATIENCE_ADVICE: Final = 45.0
"""The same for advice, which is many simulations, and is given to one caller at a time."""

PATIENCE_NEWS: Final = 2.0
"""The same for a request about a job with a due date of which nothing is known yet."""

PATIENCE_LIST: Final = 0.3
"""The same for all other requests, which get the previous forecast."""

FRESH_TIMES: Final = 10
"""A forecast counts as young for so many times the time that it took to make."""

PATIENCE_YOUNG: Final = 0.3
"""The same for a request for an exact forecast while the last one is no older than `OLDEST_SECONDS`: where the machine
is busy, it is told at once what was expected a moment ago, and of when that is."""

OLDEST_SECONDS: Final = 15.0
"""Seconds by which a forecast may be older than what it is told for."""

SURE_FOR: Final = 15.0
"""For so many seconds it is told how sure it was, while it is not known yet how sure it is now."""

NO_FORECASTS: Final = "this server makes no forecasts"

OTHERS_ASK: Final = "others ask, and it takes too long; ask again when fewer ask"

TOO_LONG: Final = f"it takes longer than {PATIENCE_ADVICE:g} s; ask again later"

HANGS: Final = 5.0
"""Seconds after which it is told for how long a forecast has been made."""

STILL_MADE: Final = "the forecast is still being made; ask again in a moment"

STOPPED: Final = (
    "the process that makes forecasts was stopped by a signal, and was ended; the next question starts it anew"
)

FORECAST_SECONDS_MAX: Final = 60.0
"""A process that has not answered after so many seconds hangs."""

PROCESS_LOOK_SECONDS: Final = 0.25
"""Every so many seconds it is looked whether the process that is to answer was stopped by a signal, and whether it is
to hurry."""

STOPPED_LOOKS: Final = 20
"""One that is found so this many times in a row makes no forecasts, and is ended."""


HURRY: Final = b""
"""Instead of a question, while one is in hand: somebody has begun to wait for its answer."""


class ForecastQuestion(msgspec.Struct, array_like=True, frozen=True, tag="forecast"):
    """What is expected of the open jobs.

    Attributes:
        event: the number of the last event that is to be included.
        at: what time it is.
        awaited: somebody waits for the answer, because the last forecast is too old or does not do.
    """

    event: int
    at: Instant
    awaited: bool = False


class AdviceQuestion(msgspec.Struct, array_like=True, frozen=True, tag="advice"):
    """Which due date can be kept.

    Attributes:
        event, at: as of `ForecastQuestion`.
        sure: with which probability, between 0 and 1.
        job: the terms of a job that could be submitted; None: it is about an open one.
        number: the id of that one; None: it is about `job`.
        asked: when it was asked, in seconds of the machine's monotonic clock, which its processes share: a job that
            could be submitted begins later by as long as the answer takes.
    """

    event: int
    at: Instant
    sure: float
    job: AnyJob | None = None
    number: JobId | None = None
    asked: float = msgspec.field(default_factory=time.monotonic)

    def waited(self) -> Duration:
        """How long ago it was asked."""
        return round((time.monotonic() - self.asked) * SECOND)


@dataclass(frozen=True, slots=True)
class ToldForecast:
    """A forecast as its process tells it.

    Attributes:
        forecast: without the jobs.
        jobs: what is expected of each.
    """

    forecast: Forecast
    jobs: Mapping[JobId, Expected]

    @classmethod
    def of(cls, made: Forecast) -> ToldForecast:
        """The same of a forecast with its jobs."""
        return cls(replace(made, jobs=()), {one.job: one for one in made.jobs})


class Unread(Mapping[JobId, Expected]):
    """What is expected of jobs, each read from its part of a message when it is wanted: most are not."""

    def __init__(self, parts: Mapping[JobId, msgspec.Raw]) -> None:
        self._parts = parts
        self._read: dict[JobId, Expected] = {}

    def __getitem__(self, job: JobId) -> Expected:
        found = self._read.get(job)
        if found is None:
            found = self._read[job] = _expected.decode(self._parts[job])
        return found

    def __contains__(self, job: object) -> bool:
        return job in self._parts

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


class _AsSureAs(Mapping[JobId, Expected]):
    """What is expected of jobs, as sure as it was in another forecast."""

    def __init__(self, jobs: Mapping[JobId, Expected], sure: Mapping[JobId, Expected]) -> None:
        self._jobs = jobs
        self._sure = sure

    def __getitem__(self, job: JobId) -> Expected:
        known = self._sure.get(job)
        return replace(self._jobs[job], chance=None if known is None else known.chance)

    def __contains__(self, job: object) -> bool:
        return job in self._jobs

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)


Tell = Callable[[ToldForecast], None]
"""Is told a forecast."""

Advise = Callable[[AdviceQuestion], Advice]
"""Gives advice; called in a thread."""

Ask = Callable[[ForecastQuestion, Tell], ToldForecast]
"""Makes a forecast; called in a thread, one call at a time. It tells the second argument what is expected by the
estimates as soon as it knows that, and returns the same with how sure it is."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected of open jobs, and why that is not known for all.

    Attributes:
        forecast: the source; None: there is no forecast.
        jobs: what is expected of each.
        lack: why there is no forecast, or why it does not reach the end of all jobs; empty: nothing is lacking.
        behind: how many events have happened that it does not include.
    """

    forecast: Forecast | None = None
    jobs: Mapping[JobId, Expected] = field(default_factory=dict)
    lack: str = ""
    behind: int = 0


NO_OUTLOOK: Final = Outlook()
"""Nothing is expected of any job."""


class Forecasts:
    """Keeps the last forecast.

    Args:
        core: the scheduler as it is now.
        recorded: the number of the last event.
        now: what time it is.
        ask: makes forecasts; None: there are none.
        advise: gives advice; None: there is none.
        hurry: is called if somebody waits for a forecast that was begun when nobody did; None: that changes nothing.
    """

    def __init__(
        self,
        core: Callable[[], Scheduler],
        recorded: Callable[[], int],
        now: Callable[[], Instant],
        ask: Ask | None,
        advise: Advise | None = None,
        hurry: Callable[[], None] | None = None,
    ) -> None:
        self._core = core
        self._recorded = recorded
        self._now = now
        self._ask = ask
        self._advise = advise
        self._hurry = hurry
        self._is_awaited = False
        self._last = Outlook()
        self._event = self._whole = -1
        self._of: Scheduler | None = None
        self._made = self._took = self._began = 0.0
        self._sure_at = -SURE_FOR
        self._making: asyncio.Task[None] | None = None
        self._soon: asyncio.Future[None] | None = None
        self._advising = asyncio.Lock()

    async def advice(self, sure: float, job: AnyJob | JobId) -> Advice:
        """Which due date can be kept.

        Args:
            sure: with which probability, between 0 and 1.
            job: the terms of a job that could be submitted, or the id of an open one.
        """
        lack = self._lack()
        if self._advise is None or lack:
            return Advice(sure, lack=lack or NO_FORECASTS)
        about = {"number": job} if isinstance(job, int) else {"job": job}
        until = time.monotonic() + PATIENCE_ADVICE
        try:
            async with asyncio.timeout(PATIENCE_ADVICE):
                await self._advising.acquire()
        except TimeoutError:
            return Advice(sure, lack=OTHERS_ASK)
        question = AdviceQuestion(self._recorded(), self._now(), sure, **about)
        making = asyncio.ensure_future(aside(partial(self._advise, question), here=False))
        making.add_done_callback(self._advised)  # also if this caller has gone: the thread is taken until then
        if not (await asyncio.wait((making,), timeout=until - time.monotonic()))[0]:
            return Advice(sure, lack=TOO_LONG)
        try:
            return making.result()
        except (HeadwayError, OSError) as error:
            log.warning("no advice was given: %s", said(error))
            return Advice(sure, lack=f"{CANNOT}: {error}")

    def _advised(self, making: asyncio.Future[Advice]) -> None:
        self._advising.release()
        if not making.cancelled():
            making.exception()  # looked at, so that asyncio does not log it where nobody waits any more

    async def outlook(self, job: JobId | None = None, *, exact: bool = False, patience: float | None = None) -> Outlook:
        """What is expected now, or was expected a moment ago.

        Args:
            job: the job in question; None: all, including the newest.
            exact: include everything that has happened until now; the caller can wait.
            patience: seconds for which it waits at most; None: as long as such requests usually do.
        """
        lack = self._lack()
        if lack:
            return Outlook(lack=lack)
        jobs, asked = self._core().state.jobs, self._recorded()
        job = next(reversed(jobs), None) if job is None else job
        is_news = job is not None and job not in self._last.jobs and jobs[job].due < NEVER
        is_hurried = exact and patience is None  # who says how long to wait wants the new one
        is_awaited = (exact and not is_hurried) or not self._is_young(job)
        if patience is None:
            for_exact = PATIENCE_YOUNG if self._is_young(job) else EXACT_PATIENCE
            patience = for_exact if exact else PATIENCE_NEWS if is_news else PATIENCE_LIST
        end = time.monotonic() + patience
        whole = exact or not (is_news or self._is_recent())
        began = time.monotonic()
        while not (self._covers(asked, whole=whole) or (not exact and self._is_fresh(job))):
            if is_hurried and time.monotonic() - began > PATIENCE_YOUNG and self._is_young(job):
                break  # one was made meanwhile, and as much happens as can be read
            if self._making is None:
                self._began = time.monotonic()
                self._soon = asyncio.get_running_loop().create_future()
                self._is_awaited = is_awaited
                self._making = asyncio.create_task(self._make(self._soon, awaited=is_awaited))
                self._making.add_done_callback(self._done)
            elif exact and is_awaited and not self._is_awaited:  # others do not wait longer than it may take to hurry
                self._is_awaited = True
                if self._hurry is not None:
                    self._hurry()
            assert self._soon is not None
            wanted = self._making if whole or self._soon.done() else self._soon
            # One that has taken longer than this caller would wait may hang: only the first callers wait for it.
            left = min(end, self._began + patience) - time.monotonic()
            if left <= 0 or not (await asyncio.wait((wanted,), timeout=left))[0]:
                is_enough = not exact or self._covers(asked, whole=False) or (is_hurried and self._is_young(job))
                is_known = self._last.forecast and is_enough
                return self._as_of_now(self._recently()) if is_known else Outlook(lack=self._still_made())
        return self._as_of_now(self._last)

    async def sure(self) -> Outlook:
        """What is expected, once it is known how sure that is: it waits for the forecast in hand, if there is one.

        If that is not found out, the answer is not sure either, or there is no forecast.
        """
        if self._making is not None:
            await asyncio.wait((self._making,), timeout=FORECAST_SECONDS_MAX)
        return self._as_of_now(self._recently())

    def stop(self) -> None:
        """Make no more forecasts."""
        if self._making is not None:
            self._making.cancel()

    def _lack(self) -> str:
        """Why nothing can be forecast now."""
        state = self._core().state
        if self._ask is None:
            return NO_FORECASTS
        if len(state.jobs) > FORECAST_JOBS_MAX:
            return (
                f"{len(state.jobs):,} jobs are open, and forecasts are made for up to {FORECAST_JOBS_MAX:,}; "
                "a job of many tasks counts as one"
            )
        return ""

    def _covers(self, event: int, *, whole: bool) -> bool:
        """Whether the last forecast includes this event; not if the core was loaded again since.

        Args:
            whole: and also how sure it is.
        """
        return (self._whole if whole else self._event) >= event and self._of is self._core()

    def _still_made(self) -> str:
        """That a forecast is being made, and for how long if that is long."""
        since = time.monotonic() - self._began
        if since < HANGS:
            return STILL_MADE
        return f"a forecast has been made for {since:.0f} s and is not ready; if it hangs, another one is begun"

    def _recently(self) -> Outlook:
        """The last forecast; how sure it was only if that was a moment ago."""
        made = self._last.forecast
        if made is None or self._is_recent():
            return self._last
        return replace(self._last, forecast=replace(made, is_sure=False), jobs=_AsSureAs(self._last.jobs, {}))

    def _is_recent(self) -> bool:
        """Whether it was known a moment ago how sure it is."""
        return time.monotonic() - self._sure_at < SURE_FOR

    def _is_fresh(self, job: JobId | None) -> bool:
        """Whether the last forecast is young, and has the job."""
        return time.monotonic() - self._made <= FRESH_TIMES * self._took and (job is None or job in self._last.jobs)

    def _is_young(self, job: JobId | None) -> bool:
        """Whether the last forecast, with the job, may be told to those who want an exact one."""
        made = self._last.forecast
        return (
            made is not None
            and self._of is self._core()
            and self._now() - made.made <= OLDEST_SECONDS * SECOND
            and (job is None or job in self._last.jobs)
        )

    def _as_of_now(self, outlook: Outlook) -> Outlook:
        """The same, with the number of events that it does not include by now."""
        return outlook if outlook.forecast is None else replace(outlook, behind=max(0, self._recorded() - self._event))

    async def _make(self, soon: asyncio.Future[None], *, awaited: bool) -> None:
        ask, loop = self._ask, asyncio.get_running_loop()
        assert ask is not None
        question, core, began = ForecastQuestion(self._recorded(), self._now(), awaited), self._core(), time.monotonic()
        before = self._last

        def told(made: ToldForecast) -> None:
            """In the thread: how sure it was a moment ago is told until it is known how sure it is now."""
            jobs = _AsSureAs(made.jobs, before.jobs if self._is_recent() else {})
            outlook = _outlook_of(replace(made, jobs=jobs), question.event)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(keep, outlook)

        def keep(outlook: Outlook) -> None:
            reached = question.event - outlook.behind
            self._last, self._event, self._of, self._made = outlook, reached, core, time.monotonic()
            self._took = self._made - began
            if not soon.done():
                soon.set_result(None)

        try:
            keep(await aside(lambda: _outlook_of(ask(question, told), question.event), here=False))
            self._sure_at = time.monotonic()
        except Exception as error:  # whatever it is, callers get an answer
            is_known = isinstance(error, HeadwayError | OSError)
            log.warning("no forecast was made: %s", said(error), exc_info=None if is_known else error)
            keep(Outlook(lack=f"{CANNOT}: {error}"))
        self._whole = self._event

    def _done(self, _: asyncio.Task[None]) -> None:
        self._making = None


def _outlook_of(told: ToldForecast, event: int) -> Outlook:
    """What a forecast says that was to include this event."""
    made = told.forecast
    behind = max(0, event - made.event) if made.event and not made.failure else 0
    lack = made.failure or ("" if made.until is None else "that is further ahead than the forecast goes")
    if behind and not lack:
        lack = f"the forecast does not include what happened last ({_counted(behind)}); ask again in a moment"
    return Outlook(made, told.jobs, lack, behind)


def _counted(events: int) -> str:
    """How many events they are, in words."""
    return "1 event" if events == 1 else f"{events:,} events"


class ForecastProcess:
    """Lets a process make forecasts; it is started at the first request, and again when it has ended.

    Args:
        command: starts it.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = self._is_hurried = False
        self._lock = threading.Lock()

    def __call__(self, question: ForecastQuestion, tell: Tell) -> ToldForecast:
        """What is expected; `tell` gets it without how sure it is, as soon as that is known.

        Raises:
            NoForecast: the process cannot be started, or does not answer.
        """
        with self._lock:
            if question.awaited:  # else it may have been hurried already, while it waited for another
                self._is_hurried = False
            answers = self._answers(msgspec.msgpack.encode(question), 2)
            tell(_told(next(answers)))
            return _told(next(answers))

    def advise(self, question: AdviceQuestion) -> Advice:
        """What is advised. Raises as a call."""
        self.hurry()
        with self._lock:
            self._is_hurried = False
            return _advice.decode(next(self._answers(msgspec.msgpack.encode(question), 1)))

    def hurry(self) -> None:
        """Somebody waits until the question in hand is answered. May be called in any thread; it does not block."""
        self._is_hurried = True

    def _answers(self, body: bytes, count: int) -> Iterator[bytes]:
        """So many answers to a question."""
        process = self._process
        if process is not None:
            answer = self._exchange(process, body)
            if answer is None:
                self._end(process)  # it had ended because it was not asked for long; ask a new one
                process = None
        if process is None:
            process = self._started()
            answer = self._exchange(process, body)
        for number in range(count):
            if number:
                answer = self._exchange(process)
            if answer is None:
                raise NoForecast(f"{' '.join(self._command)} ended with status {self._end(process)}, see the log")
            yield answer

    def stop(self) -> None:
        """End the process; callers that wait for its answer get none."""
        self._is_over = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:  # callers that wait for its answer see at once that there is none
            if self._process is not None:
                self._end(self._process)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._is_over:
            raise NoForecast("the server is about to end")
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, close_fds=True
            )
        except OSError as error:
            raise NoForecast(f"{' '.join(self._command)} cannot be started: {error}") from error
        return self._process

    def _exchange(self, process: subprocess.Popen[bytes], body: bytes = b"") -> bytes | None:
        """Ask the process, or let it go on; None: it has ended.

        Raises:
            NoForecast: it was ended because it hangs, or because a signal has stopped it.
        """
        assert process.stdin is not None
        assert process.stdout is not None
        until = time.monotonic() + FORECAST_SECONDS_MAX

        def wait(file: int, event: int) -> None:
            ready = select.poll()  # `select` cannot handle more than 1,024 files
            ready.register(file, event)
            stopped = 0
            while not ready.poll(1000 * max(0.0, min(PROCESS_LOOK_SECONDS, until - time.monotonic()))):
                stopped = stopped + 1 if _is_stopped(process) else 0
                if self._is_hurried and event == select.POLLIN:
                    self._is_hurried = not _told_to_hurry(process)
                if stopped >= STOPPED_LOOKS:
                    self._end(process)
                    raise NoForecast(STOPPED)
                if time.monotonic() >= until:
                    self._end(process)
                    raise NoForecast(f"it took more than {FORECAST_SECONDS_MAX:g} s")

        try:
            if body:
                write_frame(process.stdin.fileno(), body, wait)
            return read_frame(process.stdout.fileno(), wait)
        except BrokenPipeError:
            return None

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        self._process = None
        process.kill()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        return process.wait()


def _told_to_hurry(process: subprocess.Popen[bytes]) -> bool:
    """Tell the process, unless it has not read what it was asked; returns whether it was told."""
    assert process.stdin is not None
    writable = select.poll()
    writable.register(process.stdin.fileno(), select.POLLOUT)
    if not writable.poll(0):
        return False
    write_frame(process.stdin.fileno(), HURRY)
    return True


def _is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Whether a signal has stopped a child: it does nothing until another one lets it go on."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # it has ended
        return False


class _WrittenForecast(msgspec.Struct, array_like=True):
    """A forecast without its jobs, and what is expected of each, written."""

    forecast: Forecast
    jobs: dict[JobId, msgspec.Raw]


_message: Final = msgspec.msgpack.Decoder(_WrittenForecast)
_expected: Final = msgspec.msgpack.Decoder(Expected)


def message_of(made: Forecast) -> bytes:
    """A forecast as its process tells it: what is expected of a job can be read without the others."""
    told = ToldForecast.of(made)
    return msgspec.msgpack.encode((told.forecast, told.jobs))


def _told(body: bytes) -> ToldForecast:
    message = _message.decode(body)
    return ToldForecast(message.forecast, Unread(message.jobs))


_advice: Final = msgspec.msgpack.Decoder(Advice)
_LENGTH: Final = 8


Wait = Callable[[int, int], None]
"""Waits until a file is ready for an event of `select.poll`."""


def _at_once(file: int, event: int) -> None:
    """Let the system wait."""


def write_frame(file: int, body: bytes, wait: Wait = _at_once) -> None:
    """Write a body into a pipe, preceded by its length; `wait` is called before each part."""
    left = memoryview(len(body).to_bytes(_LENGTH, "big") + body)
    while left:
        wait(file, select.POLLOUT)
        left = left[os.write(file, left[: select.PIPE_BUF]) :]  # no more: a pipe that is ready takes so much at once


def read_frame(file: int, wait: Wait = _at_once) -> bytes | None:
    """Read a body; None if there is none left, or it breaks off. `wait` is called before each part."""
    length = _read(file, _LENGTH, wait)
    return None if length is None else _read(file, int.from_bytes(length, "big"), wait)


def _read(file: int, count: int, wait: Wait) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        wait(file, select.POLLIN)
        part = os.read(file, count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)
