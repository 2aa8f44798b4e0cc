"""The client: submits jobs to a server in the background and is told, in one thread, what becomes of them."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Condition, Event, Thread, current_thread
from typing import Any, Final, Self, overload

from headway.client import transfer
from headway.client.address import Unreachable, find_server
from headway.client.connection import PAUSES, Line, Query, Refused, Server, pauses
from headway.client.job import Job, When, described, instant
from headway.client.operation import Operation
from headway.client.receipts import Receipts
from headway.client.waiters import Sink, Waiter, Waiters
from headway.errors import HeadwayError
from headway.files import Input
from headway.model.job import JobId
from headway.wire import (
    ACKNOWLEDGE,
    CANCEL,
    CANCEL_TASKS,
    CHANGE,
    CLEAR,
    EXPLAIN,
    JOB,
    JOBS,
    MESSAGES,
    POLICY,
    RESULTS,
    SUBMIT,
    Acknowledgement,
    Done,
    Explanation,
    JobChange,
    JobDetail,
    JobReport,
    JobsNamed,
    Message,
    NewJob,
    ResultsWanted,
    Submission,
    Submitted,
    TaskRange,
    TaskResult,
    TasksNamed,
)

POLL_SECONDS: Final = 30.0
"""How long the server may hold back its answer where there is no message."""

INLINE_MAX: Final = 64 << 10
"""Results up to so many bytes come with their messages; larger ones are fetched."""

PATIENCE_SECONDS: Final = 60.0
"""How long a question is repeated while no server answers, for it may be being started again."""

log = logging.getLogger("headway.client")


class Client(Operation):
    """A connection to a server: `with Client() as client: waiter = client.submit(job)`.

    Everything runs in the background; any number of threads may use one client. It outlives restarts of the server:
    questions are repeated, a submission is accepted once however often it had to be sent, and the messages it gets
    carry numbers, so that it misses none and takes none twice. Jobs go on when the client is closed.

    Args:
        url: of the server; default $HEADWAY_URL, else the file `url` in the data directory.
        token: default $HEADWAY_TOKEN, else the file `token` in the data directory.
        data: the server's data directory, instead of both variables; default $HEADWAY_DATA_DIR, else
            `~/.local/share/headway`.
        patience: seconds to go on asking while no server answers; the first question is asked once.
        name: under which it submits; default one that nobody else has. Who comes back under the name of an earlier
            client may acknowledge what that one submitted.
        acknowledge: acknowledge results that waiters have received, so that the server may let go of them when its
            retention is over.

    Raises:
        HeadwayError: no server answers, or it does not accept the token.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        data: str | Path | None = None,
        patience: float = PATIENCE_SECONDS,
        name: str | None = None,
        acknowledge: bool = True,
    ) -> None:
        super().__init__(Server(partial(find_server, url, token, data), patience))
        first = self._server.line()
        try:
            first.ask(POLICY)
        finally:
            first.hang_up()
        self._name = name or uuid.uuid4().hex
        self._receipts = Receipts() if acknowledge else None  # the listening thread's
        self._closing = Event()
        self._listeners: list[tuple[Thread, Line]] = []
        self._changed = Condition()
        # Guarded by `_changed`.
        self._sinks: dict[JobId, Sink] = {}
        self._sending = 0
        self._listening = False
        # Only saves sending what the server has; it says so where it has not.
        self._sent_blobs: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    def submit(self, jobs: Job) -> Waiter: ...

    @overload
    def submit(self, jobs: Iterable[Job]) -> Waiters: ...

    def submit(self, jobs: Job | Iterable[Job]) -> Waiter | Waiters:
        """Submit a job, or several that are accepted all or none, and return at once with their waiter.

        Raises:
            HeadwayError: something cannot be pickled, a term is wrong, or the server refuses a job (it is wider than
                the cluster, the disk is full); nothing was accepted then.
        """
        given = [jobs] if isinstance(jobs, Job) else list(jobs)
        now = time.time_ns() // 1000
        blobs: dict[str, bytes] = {}
        bodies = []
        for job in given:
            body, functions = described(job, now)
            bodies.append(body)
            blobs |= functions
        waiters = [
            Waiter(job.name, max(new.tasks, new.width), self._cancel_one)
            for job, new in zip(given, bodies, strict=True)
        ]
        if bodies:
            self.send(bodies, blobs, waiters)
        return waiters[0] if isinstance(jobs, Job) else Waiters(waiters)

    def wait(self, *waiters: Future[Any], timeout: float | None = None) -> None:
        """Wait until all of these have ended, however they did; default: everything this client has submitted.

        Raises:
            TimeoutError: some have not ended within `timeout` seconds.
        """
        if not waiters:
            with self._changed:
                waiters = tuple(sink for sink in self._sinks.values() if isinstance(sink, Future))
        open_ = concurrent.futures.wait(waiters, timeout).not_done
        if open_:
            raise TimeoutError(f"{len(open_)} of {len(waiters)} have not ended within {timeout} s")

    def attach(self, job: JobId) -> Waiter:
        """A waiter of a job submitted by another client, or earlier, as if it had just been submitted here.

        Raises:
            HeadwayError: there is no such job, or it has ended and its results have been cleared.
        """
        report = self.job(job).job
        waiter = Waiter(report.name, max(report.tasks, report.width), self._cancel_one)
        waiter.accepted(job)
        if not report.status.is_final:
            self._listen((("job", job),), 0, {job: waiter})
            return waiter
        results = self.results(job)
        if len(results) < report.done:
            raise HeadwayError(f"the results of job {job} have been cleared")
        for result in results:
            waiter.settled(result)
        waiter.concluded(report.status)
        return waiter

    def jobs(self, *, status: str | None = None, user: str | None = None, last: int | None = None) -> list[JobReport]:
        """Jobs in order of their ids.

        Args:
            status: only those of this status; `open`: those that are not ended.
            user: only those of this user.
            last: only so many with the highest ids.
        """
        found: list[JobReport] = []
        while True:
            after = found[-1].id if found else None
            part = self._server.ask(JOBS, query=(("status", status), ("user", user), ("after", after)))
            found += part.jobs
            if not part.more:
                return found if last is None else found[max(0, len(found) - last) :]

    def job(self, job: JobId) -> JobDetail:
        """One job, what runs of it and what it holds."""
        answer: JobDetail = self._server.ask(JOB, job=job)
        return answer

    def results(self, job: JobId) -> list[TaskResult]:
        """The results of a job that exist, in order of the tasks, as they are stored."""
        return self._results([TaskRange(job)])

    def explain(self, job: JobId) -> Explanation:
        """Why a job waits, and its expected start where the policy promises one."""
        answer: Explanation = self._server.ask(EXPLAIN, job=job)
        return answer

    def cancel(self, *jobs: JobId) -> int:
        """End these jobs and kill what runs of them; how many of them still went on."""
        answer: Done = self._server.ask(CANCEL, body=JobsNamed(jobs))
        return answer.changed

    def cancel_task(self, job: JobId, *tasks: int) -> int:
        """End these tasks of a job and kill what runs of them; the others go on. How many were not done with.

        What comes after them in a workflow does not start. A job of which tasks were cancelled, and of which none
        failed, ends as cancelled.

        Raises:
            HeadwayError: there is no such job, or it has no such task.
        """
        answer: Done = self._server.ask(CANCEL_TASKS, job=job, body=TasksNamed(tasks))
        return answer.changed

    def change(self, job: JobId, *, priority: float | None = None, due: When | None = None) -> bool:
        """Give a job new terms; whether it still went on."""
        due_at = instant(due, "due", time.time_ns() // 1000)
        answer: Done = self._server.ask(CHANGE, job=job, body=JobChange(priority, due_at))
        return answer.changed > 0

    def acknowledge(self, *jobs: JobId) -> None:
        """Say that the results of these jobs have been received; waiters' results are acknowledged without this.

        Raises:
            HeadwayError: another client submitted one of them; nothing is acknowledged then.
        """
        self._server.ask(ACKNOWLEDGE, body=Acknowledgement(self._name, tuple(map(TaskRange, jobs))))

    def upload(self, source: str | os.PathLike[str] | bytes, name: str | None = None) -> Input:
        """Have the server keep a file, or bytes, for tasks: `Task(function, client.upload("data.csv"))`.

        It is kept while an open job names it, and an hour after its last use; the same bytes are sent once.

        Args:
            name: that a task finds it under; default that of the file.

        Raises:
            HeadwayError: it cannot be read, or the server does not take it: it is too large, the disk is full.
        """
        return transfer.upload(self._server, source, name)

    def download(self, url: str | Input, path: str | os.PathLike[str]) -> Path:
        """Write a file that the server keeps to a path: an `Output("headway:NAME")`, an upload. Returns the path.

        Args:
            url: `headway:...`, as in the `outputs` of a result's ending.

        Raises:
            HeadwayError: the server does not keep it, or it cannot be written.
        """
        return transfer.download(self._server, url.url if isinstance(url, Input) else url, path)

    def clear(self, *jobs: JobId) -> int:
        """Let the server forget the results of these ended jobs; of how many it did."""
        answer: Done = self._server.ask(CLEAR, body=JobsNamed(jobs))
        return answer.changed

    def close(self) -> None:
        """Stop listening. Jobs go on; waiters that have not ended get an exception that says so."""
        if self._closing.is_set():
            return
        self._closing.set()
        with self._changed:
            listeners, self._listeners = self._listeners, []
            self._changed.notify_all()
        for thread, line in listeners:
            line.interrupt()
            if thread is not current_thread():  # a waiter's callback may close the client
                thread.join()
        if self._receipts is not None:
            last = self._server.line()
            try:
                self._acknowledge(last, self._receipts, last=True)
            except HeadwayError as silence:
                log.info("what was received last is not acknowledged: %s", silence.args[0])
            last.hang_up()
        self._server.close()

    def send(self, jobs: Sequence[NewJob], blobs: Mapping[str, bytes], sinks: Sequence[Sink]) -> None:
        """Submit jobs as they go over the wire, one sink for each.

        `blobs` are the functions they name; those the server has already are not sent again.

        Raises:
            HeadwayError: the server refuses them; nothing was accepted.
        """
        with self._changed:
            if self._closing.is_set():
                raise HeadwayError("the client is closed")
            self._sending += 1
        answer = None
        try:
            answer = self._accepted(jobs, blobs)
        finally:
            with self._changed:
                self._sending -= 1
                if answer is not None:
                    for job, sink in zip(answer.jobs, sinks, strict=True):
                        sink.accepted(job)
                        self._sinks[job] = sink
                self._changed.notify_all()
                start = answer is not None and not self._listening
                self._listening |= start
        if start:
            self._listen((("client", self._name),), answer.cursor, self._sinks)

    def _accepted(self, jobs: Sequence[NewJob], blobs: Mapping[str, bytes]) -> Submitted:
        key = uuid.uuid4().hex
        carried = {name: blob for name, blob in blobs.items() if name not in self._sent_blobs}
        while True:
            body = Submission(tuple(jobs), key, self._name, carried)
            try:
                answer: Submitted = self._server.ask(SUBMIT, body=body)
            except Refused as refusal:
                missing = {name: blobs[name] for name in refusal.missing if name in blobs and name not in carried}
                if not missing:
                    raise
                carried |= missing
            else:
                self._sent_blobs.update(carried)
                return answer

    def _cancel_one(self, job: JobId) -> bool:
        return self.cancel(job) > 0

    def _listen(self, whose: Query, cursor: int, sinks: dict[JobId, Sink]) -> None:
        """Start a thread that takes messages and tells the sinks."""
        line = self._server.line()
        thread = Thread(target=self._take_all, args=(line, whose, cursor, sinks), name="headway-messages", daemon=True)
        with self._changed:
            self._listeners.append((thread, line))
        thread.start()

    def _take_all(self, line: Line, whose: Query, cursor: int, sinks: dict[JobId, Sink]) -> None:
        """A listener's life: until the client is closed or, if it listens for one job only, that job has ended."""
        error = HeadwayError("the client was closed; the job goes on")
        tries = pauses()
        receipts = self._receipts if sinks is self._sinks else None
        while not self._closing.is_set() and (sinks or sinks is self._sinks):
            try:
                wait = POLL_SECONDS if receipts is None else min(POLL_SECONDS, self._acknowledge(line, receipts))
                query = (*whose, ("after", cursor), ("wait", wait), ("results", INLINE_MAX))
                answer = line.ask(MESSAGES, query=query, wait=wait)
                self._deliver(answer.messages, sinks, receipts)
            except Unreachable as silence:
                pause = next(tries)
                if pause == PAUSES[-1]:
                    log.warning("still waiting for the server: %s", silence.args[0])
                self._closing.wait(pause)
            except HeadwayError as refusal:
                error = refusal
                break
            else:
                cursor = answer.cursor
                tries = pauses()
        line.hang_up()
        with self._changed:
            left = list(sinks.values())
            sinks.clear()
            if sinks is self._sinks:
                self._listening = False  # the next submission starts another listener
        for sink in left:
            sink.broken(error)

    def _acknowledge(self, line: Line, receipts: Receipts, *, last: bool = False) -> float:
        """Acknowledge what has been received, if that is due or nothing will come after; seconds until more may be."""
        wait = receipts.wait(time.monotonic())
        if wait is None:
            return POLL_SECONDS
        if wait > 0 and not last:
            return wait
        try:
            line.ask(ACKNOWLEDGE, body=Acknowledgement(self._name, receipts.ranges()))
        except Refused as refusal:
            log.warning("the server keeps results that are not needed any more: %s", refusal.args[0])
        receipts.clear()
        return POLL_SECONDS

    def _deliver(self, messages: Sequence[Message], sinks: dict[JobId, Sink], receipts: Receipts | None) -> None:
        """Tell the sinks; first fetch what has to be fetched, so that when that fails nobody was told anything yet."""
        large = [
            TaskRange(message.job, message.task, message.task + 1)
            for message in messages
            if message.task is not None and message.result is None
        ]
        fetched = {(result.job, result.task): result for result in self._results(large)} if large else {}
        for message in messages:
            sink = sinks.get(message.job) or self._expected(message.job, sinks)
            if sink is None:
                continue
            if message.task is None:
                with self._changed:
                    sinks.pop(message.job, None)
                if message.status is not None:
                    sink.concluded(message.status)
                if receipts is not None:
                    receipts.ended(message.job)
            elif result := message.result or fetched.get((message.job, message.task)):
                sink.settled(result)
                if receipts is not None:
                    receipts.took(message.job, result.task)
            else:
                with self._changed:
                    sinks.pop(message.job, None)
                sink.broken(HeadwayError(f"the results of job {message.job} have been cleared"))

    def _expected(self, job: JobId, sinks: dict[JobId, Sink]) -> Sink | None:
        """The sink of a job whose submission is still being answered; None if there is no such submission."""
        with self._changed:
            self._changed.wait_for(lambda: job in sinks or not self._sending or self._closing.is_set())
            return sinks.get(job)

    def _results(self, wanted: Sequence[TaskRange]) -> list[TaskResult]:
        found: list[TaskResult] = []
        while True:
            answer = self._server.ask(RESULTS, body=ResultsWanted(tuple(wanted)))
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
    raise HeadwayError(f"the server sent the result of task {last.task} of job {last.job}, which nobody asked for")
