"""A `concurrent.futures.Executor` whose calls run on a Headway cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from threading import Condition, Lock, Thread
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar
from uuid import uuid4

from headway.client.client import Client
from headway.client.job import Job, calls_of, new_job, warm_name
from headway.client.pickling import End, ends, pickled_arguments, pickled_function
from headway.errors import HeadwayError
from headway.files import File, naming
from headway.model.actions import JobStatus
from headway.model.job import JobId
from headway.wire import TaskResult, blob_name

BATCH_MAX: Final = 1000
"""Calls that go to the server as one job, at most."""

CLEAR_AT: Final = 100
"""The server is asked to forget the results of ended jobs when there are so many, and at the end."""

log = logging.getLogger("headway.client")

P = ParamSpec("P")
T = TypeVar("T")


class HeadwayExecutor(Executor):
    """Runs each call as a task on a cluster; drop-in for `ProcessPoolExecutor`.

    Calls are sent by a thread of its own: at once if nothing is being sent, else together with all that came meanwhile.
    So one call is fast and many are cheap. What is sent together is one bag, with the terms given. A function is
    carried as it is when its call is sent, arguments as they are at `submit`.

    The processes that run its calls are the executor's own, as those of a process pool are: they begin clean, and what
    a call leaves there (imported modules, variables) the next one finds. With the term `warm` they are shared.

    A future can be cancelled until its result is here. What runs is ended by that only when all calls that were sent
    together are cancelled, as `shutdown(cancel_futures=True)` does: the server cancels jobs, not tasks.

    Args:
        client: whose cluster; default a client of its own, made with `Client()` and closed at the end.
        terms: of the jobs, as for `Job`: `name`, `due` (counted from sending), `priority`, `retries`, `time_limit`, ...

    Raises:
        HeadwayError: no server answers.
        TypeError: there is no such term.
    """

    def __init__(self, client: Client | None = None, **terms: Any) -> None:
        self._terms = Job(**{"name": "executor", "warm": uuid4().hex, **terms})
        self._client = Client() if client is None else client
        self._owns_client = client is None
        self._changed = Condition()
        # Guarded by `_changed`.
        self._calls: list[_Call] = []
        self._sending: list[_Call] = []  # taken from `_calls`, not yet in a batch
        self._open: set[_Batch] = set()
        self._ended: list[JobId] = []
        self._stopping = False
        self._sender: Thread | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Schedule `fn(*args, **kwargs)`. What cannot be pickled becomes the exception of the future."""
        future = _CallFuture()
        try:
            with naming() as files:
                call = _Call(fn, pickled_arguments(args, kwargs, "a call"), future, files)
        except HeadwayError as error:
            future.settle((None, error))
            return future
        with self._changed:
            if self._stopping:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._calls.append(call)
            if len(self._calls) == 1:
                self._changed.notify_all()
            if self._sender is None:
                self._sender = Thread(target=self._send_all, name="headway-executor", daemon=True)
                self._sender.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. Wait until those there are have ended, or first cancel all that have no result yet."""
        with self._changed:
            self._stopping = True
            futures = [call.future for call in self._sending + self._calls]
            futures += [future for batch in self._open for future in batch.futures]
            self._changed.notify_all()
        if cancel_futures:
            for future in futures:
                future.cancel()
        if self._sender is None:
            if self._owns_client:
                self._client.close()
        elif wait:
            self._sender.join()

    def _send_all(self) -> None:
        """The sender's life: send what is there, have ended jobs forgotten, until nothing more can come."""
        while True:
            with self._changed:
                self._changed.wait_for(self._has_duty)
                calls, self._calls = self._calls[:BATCH_MAX], self._calls[BATCH_MAX:]
                self._sending = calls
                ended: list[JobId] = []
                if not calls:
                    ended, self._ended = self._ended, ended
                last = self._stopping and not calls and not self._open
            if calls:
                self._send([call for call in calls if not call.future.done()])
            self._forget(ended)
            if last:
                break
        if self._owns_client:
            self._client.close()

    def _has_duty(self) -> bool:
        return bool(self._calls) or len(self._ended) >= CLEAR_AT or (self._stopping and not self._open)

    def _send(self, calls: Sequence[_Call]) -> None:
        """Send calls as one job; those that cannot be sent get the reason as their exception."""
        blobs: dict[str, bytes] = {}
        places: dict[int, int] = {}
        sent, chosen = [], []
        for call in calls:
            place = places.get(id(call.function))
            if place is None:
                try:
                    blob = pickled_function(call.function, "a call")
                except HeadwayError as error:
                    call.future.settle((None, error))
                    continue
                name = blob_name(blob)
                blobs.setdefault(name, blob)
                place = places[id(call.function)] = list(blobs).index(name)
            chosen.append(place)
            sent.append(call)
        if not sent:
            return
        batch = _Batch([call.future for call in sent], self._client, self._batch_ended)
        with self._changed:
            self._open.add(batch)
            self._sending = []
        files = [file for call in sent for file in call.files]
        work = calls_of(blobs, [call.arguments for call in sent], chosen, files, warm_name(self._terms.warm))
        try:
            self._client.send([new_job(self._terms, work, len(sent), leased=True)], blobs, [batch])
            batch.cancel_if_unwanted()  # all its calls may have been cancelled before it had an id
        except HeadwayError as error:
            batch.broken(error)

    def _batch_ended(self, batch: _Batch) -> None:
        with self._changed:
            self._open.discard(batch)
            if batch.job is not None:
                self._ended.append(batch.job)
            self._changed.notify_all()

    def _forget(self, ended: Sequence[JobId]) -> None:
        if ended:
            try:
                self._client.clear(*ended)
            except HeadwayError as error:
                log.warning("the results of %d jobs were not cleared: %s", len(ended), error.args[0])


class _CallFuture(Future[Any]):
    """The future of one call. It is ended once: by whoever comes first of the canceller and the result."""

    def __init__(self) -> None:
        super().__init__()
        self.batch: _Batch | None = None
        self._ending = Lock()

    def cancel(self) -> bool:
        if self.done():
            return self.cancelled()
        with self._ending:
            if not super().cancel():
                return False
            self.set_running_or_notify_cancel()
            batch = self.batch
        if batch is not None:
            batch.one_cancelled()
        return True

    def join(self, batch: _Batch) -> bool:
        """It goes with this batch, which is told if it is cancelled from now on; whether it was before."""
        with self._ending:
            self.batch = batch
            return self.cancelled()

    def settle(self, end: End) -> None:
        """End with a value or an exception, unless it was cancelled."""
        with self._ending:
            if self.done() or not self.set_running_or_notify_cancel():
                return
        value, error = end
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)


class _Call(NamedTuple):
    function: Callable[..., Any]
    arguments: bytes
    future: _CallFuture
    files: list[File]


class _Batch:
    """Calls that went to the server as one job (`Sink`)."""

    def __init__(self, futures: Sequence[_CallFuture], client: Client, ended: Callable[[_Batch], None]) -> None:
        self.futures = futures
        self.job: JobId | None = None
        self._client = client
        self._tell_ended = ended
        self._counting = Lock()
        self._cancelled = 0
        before = sum([future.join(self) for future in futures])
        with self._counting:
            self._cancelled += before

    def accepted(self, job: JobId) -> None:
        self.job = job

    def settled(self, result: TaskResult) -> None:
        self.futures[result.task].settle(ends(result)[0])

    def concluded(self, status: JobStatus) -> None:
        self.broken(HeadwayError(f"job {self.job} was {status.value} before this call ended"))

    def broken(self, error: BaseException) -> None:
        for future in self.futures:
            future.settle((None, error))
        self._tell_ended(self)

    def one_cancelled(self) -> None:
        """A call is not wanted any more."""
        with self._counting:
            self._cancelled += 1
        self.cancel_if_unwanted()

    def cancel_if_unwanted(self) -> None:
        """When none of its calls is wanted any more, neither is the job."""
        if self._cancelled == len(self.futures) and self.job is not None:
            self._client.cancel(self.job)
