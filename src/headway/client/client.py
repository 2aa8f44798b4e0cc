"""The client: submits jobs to a server in the background and is told, in one thread, what becomes of them."""

from __future__ import annotations

import concurrent.futures
import os
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, overload
from weakref import WeakSet

from headway.client import transfer
from headway.client.address import find_server
from headway.client.connection import Refused, Server
from headway.client.inbox import Inbox, results_of
from headway.client.job import Job, When, described, instant
from headway.client.operation import Operation
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
    OUTPUT,
    POLICY,
    SUBMIT,
    Acknowledgement,
    Done,
    Explanation,
    JobChange,
    JobDetail,
    JobReport,
    JobsNamed,
    NewJob,
    Submission,
    Submitted,
    TaskRange,
    TaskResult,
    TasksNamed,
)

PATIENCE_SECONDS: Final = 60.0
"""How long a question is repeated while no server answers, for it may be being started again."""


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
        self._is_named = bool(name)
        self._inbox = Inbox(self._server, name or uuid.uuid4().hex, acknowledge=acknowledge)
        weakref.finalize(self, self._inbox.abandon).atexit = False
        _clients.add(self)
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
            waiters = tuple(sink for sink in self._inbox.sinks if isinstance(sink, Future))
        open_ = concurrent.futures.wait(waiters, timeout).not_done
        if open_:
            raise TimeoutError(f"{len(open_)} of {len(waiters)} have not ended within {timeout} s")

    def attach(self, job: JobId, *, trust: bool = False) -> Waiter:
        """A waiter of a job submitted by another client, or earlier, as if it had just been submitted here.

        Args:
            trust: what its functions returned or raised is unpickled, which runs code of whoever submitted the job.
                Otherwise values are `NotTrusted` errors; what programs wrote is had in any case.

        Raises:
            HeadwayError: there is no such job, or it has ended and its results have been cleared.
        """
        report = self.job(job).job
        waiter = Waiter(report.name, max(report.tasks, report.width), self._cancel_one, trusted=trust)
        waiter.accepted(job)
        if not report.status.is_final:
            self._inbox.attach(job, waiter)
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
        return results_of(self._server, [TaskRange(job)])

    def output(
        self, job: JobId, into: BinaryIO, *, task: int = 0, stream: str = "stdout", rank: int | None = None
    ) -> None:
        """Write all that a task wrote to a file that can be sought; `rank` of a member of a rigid job on several slots.

        Raises:
            Refused: the task has no result, or not any more.
        """
        query = (("task", task), ("stream", stream), ("rank", rank))
        self._server.ask(OUTPUT, job=job, query=query, into=into)

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
        self._server.ask(ACKNOWLEDGE, body=Acknowledgement(self._inbox.name, tuple(map(TaskRange, jobs))))

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
        self._inbox.close()
        self._server.close()

    def send(self, jobs: Sequence[NewJob], blobs: Mapping[str, bytes], sinks: Sequence[Sink]) -> None:
        """Submit jobs as they go over the wire, one sink for each.

        `blobs` are the functions they name; those the server has already are not sent again.

        Raises:
            HeadwayError: the server refuses them; nothing was accepted.
        """
        with self._inbox.submitting(sinks) as accepted:
            accepted(self._accepted(jobs, blobs))

    def _accepted(self, jobs: Sequence[NewJob], blobs: Mapping[str, bytes]) -> Submitted:
        key = uuid.uuid4().hex
        carried = {name: blob for name, blob in blobs.items() if name not in self._sent_blobs}
        while True:
            body = Submission(tuple(jobs), key, self._inbox.name, carried)
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

    def after_telling(self, do: Callable[[], None]) -> bool:
        """For who submits from callbacks: see `Inbox.after_telling`."""
        return self._inbox.after_telling(do)

    def _cancel_one(self, job: JobId) -> bool:
        return self.cancel(job) > 0

    def _forked(self) -> None:
        """In a child process: a client like a new one, for connections and threads are the parent's."""
        self._server.renew()
        self._inbox.forked(self._inbox.name if self._is_named else uuid.uuid4().hex)


_clients: WeakSet[Client] = WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


os.register_at_fork(after_in_child=_after_fork)
