"""The client: it submits jobs to a server in the background; one thread receives their messages."""

from __future__ import annotations

import os
import re
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, Self, overload
from weakref import WeakSet

from headway.client import transfer
from headway.client.address import find_server
from headway.client.connection import Server
from headway.client.inbox import Inbox, results_of
from headway.client.job import Job, described
from headway.client.operation import Operation
from headway.client.service import Asker, Service
from headway.client.service import described as described_service
from headway.client.terms import duration, instant, job_id, number, shape_of, whole
from headway.client.waiters import Sink, Waiter, Waiters, still_open
from headway.client.workflow import Flow, Workflow
from headway.errors import HeadwayError, InvalidInput, Refused
from headway.files import Input
from headway.model.job import JobId, PenaltyShape
from headway.times import Span, When
from headway.wire import (
    ACKNOWLEDGE,
    ADVISE,
    ADVISE_OPEN,
    CANCEL,
    CANCEL_TASKS,
    CHANGE,
    CLEAR,
    EXPLAIN,
    JOB,
    JOBS,
    MESSAGES,
    OUTPUT,
    POLICY,
    RETRY,
    SUBMIT,
    TASKS,
    Acknowledgement,
    Advice,
    AdviceWanted,
    ChanceReport,
    Done,
    Explanation,
    JobChange,
    JobDetail,
    JobReport,
    JobsNamed,
    Messages,
    NewJob,
    Retried,
    Retry,
    Submission,
    Submitted,
    TaskList,
    TaskRange,
    TaskResult,
    TasksNamed,
    TaskState,
)
from headway.wire.base import LIMIT_MAX

EXPLAIN_SECONDS: Final = 10.0
"""How long the server takes for a forecast at most, unless it is said how long it may."""

ADVICE_SECONDS: Final = 60.0
"""How long advice may take: it is many simulations."""

PATIENCE_SECONDS: Final = 60.0
"""How long a request is repeated while no server answers, because it may be starting again."""


def _named(message: str, jobs: Sequence[Job]) -> str:
    """What a server says of a job of a submission, in the words with which the job was made here."""
    found = re.match(r"jobs\[(\d+)\]\.(.*)", message, re.DOTALL)
    if found is None:
        return message
    job, said = jobs[int(found[1])], found[2]
    if job.width is None:
        said = re.sub(r"^width is (\d+)", r"together, with \1 tasks, needs \1 slots at once", said)
    return f"job {job.name!r}: {said}"


class Client(Operation):
    """A connection to a server: `with Client() as client: waiter = client.submit(job)`.

    Everything runs in the background; any number of threads may use one client. It outlives restarts of the server:
    requests are repeated, a submission is accepted once however often it had to be sent, and messages are numbered, so
    that the client misses none and handles none twice. Jobs continue when the client is closed.

    Args:
        url: of the server; default $HEADWAY_URL, else the file `url` in the data directory.
        token: default $HEADWAY_TOKEN, else the file `token` in the data directory.
        data: the server's data directory, instead of both variables; default $HEADWAY_DATA_DIR, else
            `~/.local/share/headway`.
        tls_ca: file with the certificates to trust if the server speaks HTTPS; default: the server's own, in its data
            directory; else those in $HEADWAY_TLS_CA, else those that the system trusts.
        patience: seconds to repeat requests while no server answers; the first request is sent once.
        name: under which it submits; default: a unique name. A client with the name of an earlier one may acknowledge
            results of that one's jobs.
        acknowledge: acknowledge results that waiters have received, so that the server may delete them when its
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
        tls_ca: str | Path | None = None,
        patience: float = PATIENCE_SECONDS,
        name: str | None = None,
        acknowledge: bool = True,
    ) -> None:
        find = partial(find_server, url, token, data, tls_ca)
        super().__init__(Server(find, patience))
        self._asking = Asker(find, patience)
        first = self._server.connection()
        try:
            first.ask(POLICY)
        finally:
            first.hang_up()
        self._is_named = bool(name)
        self._inbox = Inbox(self._server, name or uuid.uuid4().hex, acknowledge=acknowledge)
        weakref.finalize(self, self._inbox.abandon).atexit = False
        _clients.add(self)
        # This only saves sending functions that the server already has; it reports missing ones.
        self._sent_blobs: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    def submit(self, jobs: Workflow) -> Flow: ...

    @overload
    def submit(self, jobs: Job) -> Waiter: ...

    @overload
    def submit(self, jobs: Iterable[Job]) -> Waiters: ...

    def submit(self, jobs: Job | Iterable[Job]) -> Waiter | Waiters:
        """Submit a job, or several of which all or none are accepted, and return at once with their waiter.

        Raises:
            HeadwayError: something cannot be pickled, a term is wrong, or the server refuses a job (it is wider than
                the cluster, the disk is full); nothing was accepted then.
        """
        given: list[Any] = [jobs] if isinstance(jobs, Job) else list(jobs)
        for one in given:
            if not isinstance(one, Job):
                raise InvalidInput("jobs", one, "a Job, or several", hint="Say Job(NAME, [Task(FUNCTION), ...]).")
        now = time.time()
        blobs: dict[str, bytes] = {}
        bodies = []
        for job in given:
            body, functions = described(job, now)
            bodies.append(body)
            blobs |= functions
        waiters = [self._waiter_of(job, new) for job, new in zip(given, bodies, strict=True)]
        if bodies:
            try:
                self.send(bodies, blobs, waiters)
            except Refused as refusal:
                refusal.args = (_named(str(refusal.args[0]), given),)
                raise
        return waiters[0] if isinstance(jobs, Job) else Waiters(waiters)

    async def submit_async(self, jobs: Any) -> Any:
        """The same as `submit` from an event loop, which goes on meanwhile; `await` its waiter for the result."""
        import asyncio  # here: a command that does without starts sooner

        return await asyncio.to_thread(self.submit, jobs)

    def _waiter_of(self, job: Job, new: NewJob) -> Waiter:
        if not isinstance(job, Workflow):
            return Waiter(job.name, max(new.tasks, new.width), self._cancel_one, self._chance_of)
        flow = Flow(job, self._cancel_one, self._chance_of)
        flow.comes_after([task.after for task in new.plan])
        return flow

    def serve(self, service: Service, *, replace: bool = False) -> Waiter:
        """Start a service; its waiter ends when the service does. Return at once: requests wait for its instances.

        Args:
            replace: whether it takes the place of the service of its name, if there is one. That one goes on until an
                instance of the new one is ready; no request is lost.

        Raises:
            HeadwayError: a term is wrong, or another job has its name; nothing was started then.
        """
        if not isinstance(service, Service):
            raise InvalidInput("service", service, "a Service", hint="Say Service(NAME, FUNCTION).")
        body, blobs = described_service(service, replace=replace)
        assert body.service is not None
        waiter = Waiter(service.name, body.service.most, self._cancel_one)
        try:
            self.send([body], blobs, [waiter])
        except Refused as refusal:
            refusal.args = (str(refusal.args[0]).replace("jobs[0].", f"service {service.name!r}: "),)
            raise
        return waiter

    def ask(self, name: str, request: Any = b"", *, timeout: float | None = None) -> Any:
        """Have a service answer a request, and wait for it.

        It is sent once. If the connection breaks while it waits, nobody knows whether it was handled.

        Args:
            request: bytes are sent as they are, anything else as JSON.
            timeout: seconds to wait for the answer; None: as long as the service's own limits let it.

        Returns:
            The answer: of JSON the value, else bytes.

        Raises:
            Refused: there is no answer. Its `code` says why: `no_such_service`, `service_full` (then `retry_after` says
                when to come again), `handler_failed`, `request_timed_out`, `instance_died`, `service_ended`,
                `too_large`, `malformed`.
            Unreachable: the server went away, or did not answer in time.
        """
        return self._asking.ask(name, request, timeout)

    async def ask_async(self, name: str, request: Any = b"", *, timeout: float | None = None) -> Any:
        """The same as `ask` from an event loop, which goes on meanwhile; at most 64 at the same time."""
        return await self._asking.ask_async(name, request, timeout)

    def wait(self, *waiters: Any, timeout: float | None = None) -> None:
        """Wait until all of these have ended, in whatever way; default: everything this client has submitted.

        Raises:
            TimeoutError: some have not ended within `timeout` seconds.
            InvalidInput: one is no waiter and no future.
        """
        for waiter in waiters:
            if not isinstance(waiter, Future):
                hint = "`submit` and `attach(ID)` return waiters."
                raise InvalidInput("waiters", waiter, "waiters of jobs, or futures", hint=hint)
        if not waiters:
            waiters = tuple(sink for sink in self._inbox.sinks if isinstance(sink, Future))
        late = still_open(waiters, timeout)
        if late:
            raise TimeoutError(f"{len(late)} of {len(waiters)} have not ended within {timeout} s")

    def attach(self, job: JobId, *, trust: bool = False) -> Waiter:
        """A waiter of a job submitted by another client, or earlier, as if it had just been submitted here.

        Args:
            trust: unpickle what its functions returned or raised; this runs code of the person who submitted the job.
                Otherwise values are `NotTrusted` errors. What programs wrote is available in any case.

        Raises:
            HeadwayError: there is no such job, or it has ended and its results have been cleared.
        """
        report = self.job(job).job
        waiter = Waiter(report.name, max(report.tasks, report.width), self._cancel_one, self._chance_of, trusted=trust)
        waiter.accepted(job)
        if not report.status.is_final:
            self._inbox.attach(job, waiter)
            return waiter
        results = self.results(job)
        if len(results) < report.done + report.failed:
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
            last: only this many, with the highest ids.
        """
        found: list[JobReport] = []
        while True:
            after = found[-1].id if found else None
            part = self._server.ask(JOBS, query=(("status", status), ("user", user), ("after", after)))
            found += part.jobs
            if not part.more:
                return found if last is None else found[max(0, len(found) - last) :]

    def job(self, job: JobId | Waiter) -> JobDetail:
        """One job, its running attempts and its slots."""
        answer: JobDetail = self._server.ask(JOB, job=job_id(job))
        return answer

    def tasks(self, job: JobId | Waiter, *, task: int | None = None) -> list[TaskState]:
        """The tasks of a job, or one of them: how far each is, what it waits for, and where it runs or will run."""
        found: list[TaskState] = []
        first = task or 0
        while True:
            query = (("first", first + len(found)), ("limit", LIMIT_MAX if task is None else 1))
            part: TaskList = self._server.ask(TASKS, job=job_id(job), query=query)
            found += part.tasks
            if task is not None or not part.more:
                return found

    def messages(self, *jobs: JobId, after: int = 0, wait: float = 0.0) -> Messages:
        """Messages about these jobs, or about all, with greater numbers than `after`; in order.

        Args:
            after: a cursor: of the last answer, or of `JobDetail`.
            wait: seconds to wait for a message if there is none yet, 0 to 60.
        """
        query = (("after", after), ("wait", wait), *(("job", job) for job in jobs))
        answer: Messages = self._server.ask(MESSAGES, query=query, wait=wait)
        return answer

    def results(self, job: JobId | Waiter, *, task: int | None = None) -> list[TaskResult]:
        """The results of a job, or of one task of it, that exist, in order of the tasks, as they are stored."""
        number = job_id(job)
        return results_of(self._server, [TaskRange(number) if task is None else TaskRange(number, task, task + 1)])

    def output(
        self,
        job: JobId,
        into: BinaryIO,
        *,
        task: int = 0,
        stream: str = "stdout",
        rank: int | None = None,
        attempt: int | None = None,
        offset: int = 0,
    ) -> None:
        """Write the output of a task to a seekable file; of one that runs, what it has written until now.

        Args:
            rank: of a member of a rigid job on several slots.
            attempt: only of this attempt.
            offset: only from this byte on.

        Raises:
            Refused: the task has not begun, or its result has been cleared; or it is another attempt by now.
        """
        query = (("task", task), ("stream", stream), ("rank", rank), ("attempt", attempt), ("offset", offset))
        self._server.ask(OUTPUT, job=job, query=query, into=into)

    def explain(self, job: JobId | Waiter, *, wait: float | None = None) -> Explanation:
        """Why a job waits, and its expected start if the policy promises one.

        Args:
            wait: seconds, 0 to 60, that the server may take for a new forecast; after that it answers without. None:
                a moment if there is a young one, which it then answers with, else `EXPLAIN_SECONDS`.
        """
        limit = EXPLAIN_SECONDS if wait is None else wait
        answer: Explanation = self._server.ask(EXPLAIN, job=job_id(job), query=(("wait", wait),), wait=limit)
        return answer

    def advise(self, job: Job | JobId | Waiter, *, sure: float = 0.9) -> Advice:
        """Which due date is kept with some probability: by a job if it were submitted now, or by an open one.

        Args:
            job: its terms, or its id, or its waiter.
            sure: the probability, above 0 and below 1. The answer has a lower one if the server cannot tell that much.

        Raises:
            HeadwayError: it is no job that could be accepted.
        """
        answer: Advice
        if isinstance(job, Job):
            body, _ = described(job, time.time())
            try:
                answer = self._server.ask(ADVISE, body=AdviceWanted(body, sure), wait=ADVICE_SECONDS)
            except Refused as refusal:
                refusal.args = (str(refusal.args[0]).replace("job.", f"job {job.name!r}: ", 1),)
                raise
            return answer
        answer = self._server.ask(ADVISE_OPEN, job=job_id(job), query=(("sure", sure),), wait=ADVICE_SECONDS)
        return answer

    def cancel(self, *jobs: JobId | Waiter) -> int:
        """End these jobs and kill their running tasks; returns how many were still open."""
        answer: Done = self._server.ask(CANCEL, body=JobsNamed(tuple(map(job_id, jobs))))
        return answer.changed

    def cancel_task(self, job: JobId, *tasks: int) -> int:
        """End these tasks of a job, killing those that run; the others continue. Returns how many had not ended.

        Tasks after them in a workflow never start. A job with cancelled tasks, and no failed ones, ends as cancelled.

        Raises:
            HeadwayError: there is no such job, or it has no such task.
        """
        answer: Done = self._server.ask(CANCEL_TASKS, job=job, body=TasksNamed(tasks))
        return answer.changed

    def change(
        self,
        job: JobId | Waiter,
        *,
        priority: float | None = None,
        due: When | None = None,
        without_due: bool = False,
        rate: float | None = None,
        shape: PenaltyShape | Literal["linear", "sqrt", "square"] | None = None,
        threshold: Span | None = None,
        fraction: float | None = None,
        least: int | None = None,
    ) -> bool:
        """Give a job new terms; returns whether it was still open.

        Args:
            without_due: whether it is to have no due date any more.
            rate, shape: of its penalty, as in `Job` and `Service`. They count from now on: windows of a service that
                have ended keep what they cost.
            threshold, fraction, least: of a service. With another threshold a new window begins.

        Raises:
            HeadwayError: there is no such job, it has no such term, or the value is not allowed.
        """
        change = JobChange(
            priority=priority,
            due=instant(due, "due", time.time()),
            without_due=without_due,
            rate=None if rate is None else number(rate, "rate"),
            shape=None if shape is None else shape_of(shape),
            threshold=duration(threshold, "threshold"),
            fraction=None if fraction is None else number(fraction, "fraction"),
            least=None if least is None else whole(least, "least"),
        )
        answer: Done = self._server.ask(CHANGE, job=job_id(job), body=change)
        return answer.changed > 0

    def retry(
        self, job: JobId | Waiter, *, priority: float | None = None, due: When | None = None, trust: bool = False
    ) -> Waiter:
        """Run the failed tasks of an ended job again, as a new job with its terms; its waiter. Nothing else is redone.

        Of a workflow the tasks run, too, that could not because of a failure. In programs `{i}` stands for the number
        that a task had before.

        Args:
            priority, due: other terms than those of the old job.
            trust: as of `attach`.

        Raises:
            HeadwayError: there is no such job, it has not ended, nothing of it failed, or its results were cleared.
        """
        body = Retry(priority, instant(due, "due", time.time()), uuid.uuid4().hex)
        answer: Retried = self._server.ask(RETRY, job=job_id(job), body=body)
        return self.attach(answer.job, trust=trust)

    def acknowledge(self, *jobs: JobId) -> None:
        """Confirm that the results of these jobs have arrived; results of waiters are acknowledged without this.

        Raises:
            HeadwayError: another client submitted one of them; nothing is acknowledged then.
        """
        self._server.ask(ACKNOWLEDGE, body=Acknowledgement(self._inbox.name, tuple(map(TaskRange, jobs))))

    def upload(self, source: str | os.PathLike[str] | bytes, name: str | None = None) -> Input:
        """Send a file, or bytes, to the server, which keeps it for tasks: `Task(function, client.upload("data.csv"))`.

        It is kept while an open job names it, and for an hour (`headway up --keep-uploads`) after its last use. The
        same bytes are sent once.

        Args:
            name: under which a task finds it; default: that of the file.

        Raises:
            HeadwayError: it cannot be read, or the server refuses it: it is too large, the disk is full.
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
        """Let the server delete the results of these ended jobs; returns for how many it did."""
        answer: Done = self._server.ask(CLEAR, body=JobsNamed(jobs))
        return answer.changed

    def close(self) -> None:
        """Stop listening. Jobs continue; waiters that have not ended get an exception that says so."""
        self._inbox.close()
        self._server.close()
        self._asking.close()

    def send(self, jobs: Sequence[NewJob], blobs: Mapping[str, bytes], sinks: Sequence[Sink]) -> None:
        """Submit jobs in the form in which they are sent, with one sink for each.

        `blobs` are the functions they name; those that the server already has are not sent again.

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
        """For code that submits from callbacks: see `Inbox.after_telling`."""
        return self._inbox.after_telling(do)

    def _chance_of(self, job: JobId) -> ChanceReport | None:
        return self.explain(job).chance

    def _cancel_one(self, job: JobId) -> bool:
        return self.cancel(job) > 0

    def _forked(self) -> None:
        """In a child process: make this client like a new one, because connections and threads are the parent's."""
        self._server.renew()
        self._asking.forked()
        self._inbox.forked(self._inbox.name if self._is_named else uuid.uuid4().hex)


_clients: WeakSet[Client] = WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


os.register_at_fork(after_in_child=_after_fork)
