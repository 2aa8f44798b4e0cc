"""How an executor's calls reach the server, and how their results reach their futures."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from threading import Condition, Lock, RLock, Thread
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from msgspec import structs

from headway.client.client import Client
from headway.client.job import Job, calls_of, new_job
from headway.client.pickling import TRAVEL_HINT, End, ends, pickled_function
from headway.client.threads import join
from headway.client.waiters import orphan
from headway.errors import HeadwayError, NotPicklable
from headway.files import File
from headway.model.actions import JobStatus
from headway.model.job import JobId, Kind
from headway.pool import InitializerFailed, Prepared
from headway.wire import Calls, NewJob, TaskResult, blob_name

BATCH_MAX: Final = 1000
"""How many calls go to the server as one job, at most."""

CLEAR_AT: Final = 100
"""The server is asked to delete the results of ended jobs when there are this many, and at the end."""

log = logging.getLogger("headway.client")


class CallFuture(Future[Any]):
    """The future of one call. It is ended once: by a cancel or by the result, whichever comes first."""

    def __init__(self) -> None:
        super().__init__()
        self._batch: tuple[CallBatch, int] | None = None
        self._ending = RLock()  # callbacks may ask again

    def cancel(self) -> bool:
        """Cancel the call; a running one is killed. False if its end has arrived."""
        with self._ending:
            if self.done():
                return self.cancelled()
            try:
                if not super().cancel():
                    return False
            finally:  # also if a callback raises
                batch, self._batch = self._batch, None
                if super().cancelled():
                    self.set_running_or_notify_cancel()
                    if batch is not None:
                        batch[0].unwanted(batch[1])
        return True

    def join(self, batch: CallBatch, task: int) -> bool:
        """Send the call as this task of the batch, which gets a later cancel. Returns whether it was cancelled
        before.
        """
        with self._ending:
            if self.done():
                return True
            self._batch = batch, task
            return False

    def settle(self, end: End) -> None:
        """End with a value or an exception, unless it was cancelled."""
        with self._ending:
            self._batch = None
            if self.done():
                return
            if not isinstance(end[1], CancelledError):
                self.set_running_or_notify_cancel()
        try:
            if isinstance(end[1], CancelledError):
                self.cancel()
            elif end[1] is None:
                self.set_result(end[0])
            else:
                self.set_exception(end[1])
        except BaseException:
            # A callback raised something that `Future` lets through, such as SystemExit; others wait for
            # this thread.
            log.exception("a callback of %r failed", self)

    def orphaned(self, error: BaseException) -> None:
        """This is a forked process: nothing more will be heard about the call here."""
        self._ending = RLock()
        self._batch = None
        orphan(self, error)


class UnsentCall(NamedTuple):
    """A call that is not sent yet; its arguments are pickled, its function is not."""

    function: Callable[..., Any]
    arguments: bytes
    future: CallFuture
    files: list[File]


class Preparation(NamedTuple):
    """What must be called once in each process: see `headway.pool.Prepared`."""

    executor: str
    initializer: Callable[..., object]
    initargs: tuple[Any, ...]


class CallBatch:
    """Calls that went to the server as one job (`Sink`).

    Attributes:
        job: its id, once it has one.
        by_task: each call has a future.
    """

    by_task: Final = True

    def __init__(self, futures: Sequence[CallFuture], sender: Sender) -> None:
        self.job: JobId | None = None
        self._sender = sender
        self._lock = Lock()
        self._left = len(futures)
        self._futures: list[CallFuture | None] = list(futures)  # None: its end has arrived and is not kept here
        self._unwanted = [task for task, future in enumerate(futures) if future.join(self, task)]

    def __len__(self) -> int:
        """How many of the calls have not ended on the server."""
        return self._left

    @property
    def futures(self) -> list[CallFuture]:
        """Those that have not ended."""
        return [future for future in self._futures if future is not None]

    def accepted(self, job: JobId) -> None:
        """It has this id (`Sink`)."""
        with self._lock:
            self.job = job
            unwanted, self._unwanted = self._unwanted, []
        if unwanted:
            self._sender.drop(job, unwanted)

    def unwanted(self, task: int) -> None:
        """A call is not wanted any more."""
        with self._lock:
            job = self.job
            if job is None:
                self._unwanted.append(task)
        if job is not None:
            self._sender.drop(job, [task])

    def settled(self, result: TaskResult) -> None:
        """A call has ended (`Sink`)."""
        future = self._futures[result.task]
        self._futures[result.task] = None
        end = ends(result)[0]
        self._left -= 1
        self._sender.one_ended()
        if isinstance(end[1], InitializerFailed):
            self._sender.break_off(end[1])
        if future is not None:
            future.settle(end)

    def concluded(self, status: JobStatus) -> None:
        """Nothing more will happen to it (`Sink`)."""
        error = HeadwayError(f"job {self.job} was {status.value} before this call ended")
        self.broken(error)

    def broken(self, error: BaseException) -> None:
        """Nothing more will be heard about it (`Sink`)."""
        left, self._left = self._left, 0
        futures, self._futures = self.futures, []
        self._sender.batch_ended(self, left)
        for future in futures:
            future.settle((None, error))

    def give_up(self, error: BaseException) -> None:
        """None of its calls is wanted any more: each ends with this error here, and is cancelled on the server."""
        for task, future in enumerate(self._futures):
            if future is not None:
                future.settle((None, error))
                self.unwanted(task)

    def orphaned(self, error: BaseException) -> None:
        """This is a forked process (`Sink`)."""
        self._lock = Lock()
        for future in self.futures:
            future.orphaned(error)
        self._futures = []


class Sender:
    """Sends calls in a thread of its own: at once if nothing is being sent, otherwise with all that came meanwhile.

    It has no reference to its executor, so that an unused one can be garbage-collected. The thread ends when it was
    stopped and every call has ended. It is not a daemon thread: at the end of the program, submitted calls are still
    sent and waited for, as with a process pool.

    Args:
        client: sends the calls; `owns` says whether it is closed at the end.
        terms: of the jobs.
        at_once: how many calls may be on the server at a time; None: any number.
        preparation: what each process must do first.

    Attributes:
        broken: why it accepts no more calls, if something went wrong.
    """

    def __init__(
        self, client: Client, *, owns: bool, terms: Job, at_once: int | None, preparation: Preparation | None
    ) -> None:
        self._client = client
        self._owns_client = owns
        self._terms = terms
        self._at_once = at_once
        self._preparation = preparation
        self._alike: NewJob | None = None
        self._begin()
        _senders.add(self)

    def _begin(self) -> None:
        self._changed = Condition()
        # Guarded by `_changed`.
        self._calls: deque[UnsentCall] = deque()
        self._sending: list[CallFuture] = []  # taken from `_calls`, not yet in a batch
        self._open: set[CallBatch] = set()
        self._under_way = 0
        self._dropped: dict[JobId, list[int]] = {}
        self._ended: list[JobId] = []
        self._stopping = False
        self.broken: BaseException | None = None
        self._thread: Thread | None = None

    def take(self, call: UnsentCall) -> None:
        """Send a call.

        Raises:
            BrokenExecutor: it accepts no more, because something went wrong.
            RuntimeError: it accepts no more, because it was stopped, or the interpreter ends.
        """
        with self._changed:
            self.check_open()
            if self._thread is None:
                self._thread = Thread(target=self._live, name="headway-executor", daemon=False)
                try:
                    self._thread.start()
                except RuntimeError:  # the system has no more threads; if Ctrl-C interrupts this, the thread starts
                    self._thread = None
                    raise
            self._calls.append(call)
            # A callback that submits is rarely alone: what the callbacks of all results that just came
            # submit is sent together.
            if len(self._calls) == 1 and not self._client.after_telling(self._wake):
                self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def check_open(self) -> None:
        """Check that calls are accepted; raises as `take`."""
        if self.broken is not None:
            raise BrokenExecutor(f"the executor can run no calls any more: {self.broken}") from self.broken
        if _ending:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        if self._stopping:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def stop(self, *, cancel: bool = False) -> None:
        """Accept no more calls; stop when every call has ended. On request, first cancel those that have no
        result yet.
        """
        with self._changed:
            self._stopping = True
            futures = [*self._sending, *(call.future for call in self._calls)]
            futures += [future for batch in self._open for future in batch.futures]
            never_used = self._thread is None
            self._changed.notify_all()
        if cancel:
            for future in futures:
                future.cancel()
        if never_used and self._owns_client:
            self._client.close()

    def join(self) -> None:
        """Wait until it has ended."""
        if self._thread is not None:
            join(self._thread)

    def drop(self, job: JobId, tasks: Sequence[int]) -> None:
        """Ask the server to cancel these calls."""
        with self._changed:
            self._dropped.setdefault(job, []).extend(tasks)
            self._changed.notify_all()

    def one_ended(self) -> None:
        """A call has ended on the server."""
        if self._at_once is not None:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def batch_ended(self, batch: CallBatch, left: int) -> None:
        """A batch has ended; for this many of its calls no end was reported."""
        with self._changed:
            self._open.discard(batch)
            if self._at_once is not None:
                self._under_way -= left
            if batch.job is not None:
                self._ended.append(batch.job)
            self._changed.notify_all()

    def break_off(self, error: BaseException) -> None:
        """No call can run: every one ends with this error, and no more are accepted."""
        with self._changed:
            if self.broken is not None:
                return
            self.broken = error
            calls, self._calls = self._calls, deque()
            futures = [*self._sending, *(call.future for call in calls)]
            batches = list(self._open)
            self._changed.notify_all()
        for future in futures:
            future.settle((None, error))
        for batch in batches:
            batch.give_up(error)

    def forked(self) -> None:
        """In a child process: start fresh; what was submitted before belongs to the parent."""
        error = HeadwayError(f"this call was submitted by process {os.getppid()}, which forked this one")
        futures = [*self._sending, *(call.future for call in self._calls)]
        batches, stopping = list(self._open), self._stopping
        self._begin()
        self._stopping = stopping
        for future in futures:
            future.orphaned(error)
        for batch in batches:
            batch.orphaned(error)

    # The thread

    def _live(self) -> None:
        """Send calls until no more can come. However it ends, no future is left waiting for it."""
        try:
            while self._step():
                pass
        except BaseException as trouble:  # waiting futures must get it, whatever it is
            log.critical("calls are not sent any more", exc_info=trouble)
            error = BrokenExecutor(f"calls are not sent any more: {trouble!r}")
            error.__cause__ = trouble
            self.break_off(error)
        finally:
            if self._owns_client:
                self._client.close()

    def _step(self) -> bool:
        """One pass over what is to be done; returns whether there will be more. It keeps nothing between two passes."""
        with self._changed:
            self._changed.wait_for(self._has_duty)
            room = BATCH_MAX if self._at_once is None else min(BATCH_MAX, self._at_once - self._under_way)
            calls = [self._calls.popleft() for _ in range(min(room, len(self._calls)))]
            self._sending = [call.future for call in calls]
            dropped, self._dropped = self._dropped, {}
            ended: list[JobId] = []
            if not calls and (len(self._ended) >= CLEAR_AT or self._is_done()):
                ended, self._ended = self._ended, ended
            last = not calls and self._is_done()
        self._drop(dropped)
        if calls:
            self._send([call for call in calls if not call.future.done()])
        self._forget(ended)
        return not last

    def _has_room(self) -> bool:
        return self._at_once is None or self._under_way < self._at_once

    def _is_done(self) -> bool:
        return (self._stopping or self.broken is not None) and not self._calls and not self._open

    def _has_duty(self) -> bool:
        return (
            (bool(self._calls) and self._has_room())
            or bool(self._dropped)
            or len(self._ended) >= CLEAR_AT
            or self._is_done()
        )

    def _send(self, calls: Sequence[UnsentCall]) -> None:
        """Send calls as one job; those that cannot be sent get the reason as their exception."""
        blobs: dict[str, bytes] = {}
        places: dict[int, int | BaseException] = {}
        sent, chosen = [], []
        for call in calls:
            place = places.get(id(call.function))
            if place is None:
                place = places[id(call.function)] = self._pickled(call.function, blobs)
            if isinstance(place, BaseException):
                call.future.settle((None, place))
                continue
            chosen.append(place)
            sent.append(call)
        if not sent:
            return
        batch = CallBatch([call.future for call in sent], self)
        with self._changed:
            self._open.add(batch)
            self._under_way += len(sent)
            self._sending = []
        files = [file for call in sent for file in call.files]
        try:
            work = calls_of(blobs, [call.arguments for call in sent], chosen, files, self._terms)
            self._client.send([self._job(work, len(sent))], blobs, [batch])
        except HeadwayError as error:
            log.warning("%d calls of an executor were not sent: %s", len(sent), error.args[0])
            batch.broken(error)
        except BaseException as error:
            batch.broken(error)
            raise

    def _job(self, work: Calls, calls: int) -> NewJob:
        """A job of calls. Terms that say the same at any time are checked once."""
        terms = self._terms
        if self._alike is not None:
            return structs.replace(self._alike, work=work, tasks=calls)
        job = new_job(terms, work, calls, leased=True)
        if terms.kind is Kind.BAG and terms.release is None and terms.due is None and not terms.sizes:
            self._alike = job
        return job

    def _pickled(self, function: Callable[..., Any], blobs: dict[str, bytes]) -> int | BaseException:
        """The position of a function among those that are sent, or why it cannot be sent."""
        if self._preparation is not None:
            function = Prepared(*self._preparation, function)
        try:
            blob = pickled_function(function, "a call")
        except HeadwayError as error:
            return error
        except KeyboardInterrupt:  # not ctrl-c, which interrupts only the main thread: the function raised it
            return NotPicklable("a call: the function cannot be pickled (it raised KeyboardInterrupt)", TRAVEL_HINT)
        name = blob_name(blob)
        blobs.setdefault(name, blob)
        return list(blobs).index(name)

    def _drop(self, dropped: dict[JobId, list[int]]) -> None:
        for job, tasks in dropped.items():
            try:
                self._client.cancel_task(job, *tasks)
            except HeadwayError as error:
                log.warning("%d calls of job %d were not cancelled: %s", len(tasks), job, error.args[0])

    def _forget(self, ended: Sequence[JobId]) -> None:
        if ended:
            try:
                self._client.clear(*ended)
            except HeadwayError as error:
                log.warning("the results of %d jobs were not cleared: %s", len(ended), error.args[0])


_senders: WeakSet[Sender] = WeakSet()
_ending = False


def _at_exit() -> None:
    """The program ends: submitted calls are still sent and waited for; no more are accepted."""
    global _ending
    _ending = True
    for sender in list(_senders):
        sender.stop()


def _after_fork() -> None:
    for sender in list(_senders):
        sender.forked()


# Before threads that are no daemons are waited for, as `concurrent.futures` does it; `atexit` comes after.
threading._register_atexit(_at_exit)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_after_fork)
