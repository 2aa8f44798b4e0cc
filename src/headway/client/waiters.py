"""What a submission returns: futures of jobs and of their tasks, filled by the client as messages come."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from threading import Condition
from typing import Any, Protocol, TypeVar

from headway.client.pickling import End, ends
from headway.errors import HeadwayError, TaskFailed
from headway.model.actions import JobStatus
from headway.model.job import JobId
from headway.wire import ChanceReport, TaskResult

log = logging.getLogger("headway.client")

T = TypeVar("T")


class Sink(Protocol):
    """A receiver of the messages of a job; its methods are called in order."""

    @property
    def by_task(self) -> bool:
        """Whether callers wait for single tasks, and not for the whole job."""
        ...

    def accepted(self, job: JobId) -> None:
        """The job has this id. Called before anything else, while the client is locked."""
        ...

    def settled(self, result: TaskResult) -> None:
        """A task has its final outcome."""
        ...

    def concluded(self, status: JobStatus) -> None:
        """Nothing more will happen to the job."""
        ...

    def broken(self, error: BaseException) -> None:
        """Nothing more will be heard about it."""
        ...

    def orphaned(self, error: BaseException) -> None:
        """This is a child process, forked while it waited: nothing more will be heard about it here.

        No callbacks are called: that is the parent's task. Locks may be held by threads that do not exist here.
        """
        ...


def awaited(future: Future[T]) -> Generator[Any, None, T]:
    """Wait for a future in an event loop. Who gives up waiting cancels nothing, unlike with `asyncio.wrap_future`."""
    import asyncio  # here: a command that does without starts sooner

    loop = asyncio.get_running_loop()
    here: asyncio.Future[T] = loop.create_future()

    def end() -> None:
        if here.done():
            return
        if future.cancelled():
            here.cancel()
            return
        error = future.exception()
        if error is None:
            here.set_result(future.result())
        elif isinstance(error, StopIteration):  # a coroutine cannot raise it
            here.set_exception(_caused(RuntimeError(f"the task raised {error!r}"), error))
        else:
            here.set_exception(error)

    def tell(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            loop.call_soon_threadsafe(end)

    future.add_done_callback(tell)
    try:
        return (yield from here)
    finally:  # a wait that is given up, perhaps one of many, leaves nothing behind
        with contextlib.suppress(ValueError):
            future._done_callbacks.remove(tell)  # type: ignore[attr-defined]  # typeshed keeps it to itself


def _caused(error: RuntimeError, cause: BaseException) -> RuntimeError:
    error.__cause__ = cause
    return error


class TaskFuture(Future[Any]):
    """The future of one task of a job."""

    def __await__(self) -> Generator[Any, None, Any]:
        """In an event loop: wait for the result, without stopping the loop."""
        return awaited(self)

    def cancel(self) -> bool:
        """Nothing is cancelled, and nothing is said to be: the task goes on."""
        return self.cancelled()


class Waiter(Future[list[Any]]):
    """The future of a job; its result is the list of its tasks' results, in the order of the tasks.

    A rigid job's result is the list of the results on each of its slots, by rank.

    It is a `concurrent.futures.Future` in all respects. If tasks failed, `result()` raises the exception of the first
    of them; `outcomes()` and `tasks` have what the others returned. A cancelled job raises `CancelledError`. Iterating
    gives the results one by one, each as soon as it and those before it are there.

    Attributes:
        job: the job's id.
        name: the job's name.
        status: how the job ended; None until it has, or if nothing more can be heard about it.
    """

    def __init__(
        self,
        name: str,
        tasks: int,
        cancel: Callable[[JobId], bool],
        chance: Callable[[JobId], ChanceReport | None] = lambda job: None,
        *,
        trusted: bool = True,
    ) -> None:
        super().__init__()
        self._trusted = trusted
        self._chance = chance
        self.job: JobId = 0
        self.name = name
        self.status: JobStatus | None = None
        self._ask_cancel = cancel
        self._news = Condition()
        # Guarded by `_news`. The code that writes an end fulfils its future, so that it is fulfilled once.
        self._ends: list[End | None] = [None] * tasks
        self._left = tasks
        self._failed = 0
        self._concluded = False
        self._futures: tuple[TaskFuture, ...] = ()

    def __len__(self) -> int:
        """How many tasks the job has; for a rigid job, how many slots."""
        return len(self._ends)

    def __iter__(self) -> Iterator[Any]:
        """The results in order of the tasks, each as soon as it is there; a failed task's exception is raised."""
        for task in range(len(self)):
            with self._news:
                while (end := self._ends[task]) is None:
                    self._news.wait()
            if end[1] is not None:
                raise end[1]
            yield end[0]

    def __repr__(self) -> str:
        done = self.status.value if self.status else f"{self.progress[0]} of {len(self)} tasks have ended"
        return f"<Waiter of job {self.job} {self.name!r}: {done}>"

    @property
    def by_task(self) -> bool:
        """Whether somebody has asked for the futures of its tasks (`Sink`)."""
        return bool(self._futures)

    @property
    def progress(self) -> tuple[int, int]:
        """How many tasks have ended, in whatever way, and how many of these failed."""
        return len(self._ends) - self._left, self._failed

    @property
    def tasks(self) -> tuple[TaskFuture, ...]:
        """A future for each task, in their order. `Client.cancel_task` cancels single tasks; these futures do not."""
        with self._news:
            if not self._futures:
                self._futures = tuple(TaskFuture() for _ in self._ends)
                for future, end in zip(self._futures, self._ends, strict=True):
                    if end is not None:
                        fulfil(future, end)
            return self._futures

    def outcomes(self, timeout: float | None = None) -> list[Any]:
        """Wait for the end; then return each task's result, or its exception, in the order of the tasks.

        Raises:
            TimeoutError: the job did not end within `timeout` seconds.
        """
        if still_open([self], timeout):
            raise TimeoutError(f"job {self.job} did not end within {timeout} s")
        return [value if error is None else error for value, error in filter(None, self._ends)]

    def ended(self) -> list[End | None]:
        """The end of each task as far as it is here, in order of the tasks; None: it has none yet."""
        with self._news:
            return list(self._ends)

    def __await__(self) -> Generator[Any, None, list[Any]]:
        """In an event loop: wait for the result, without stopping the loop.

        To give up waiting (`asyncio.wait_for`, a cancelled asyncio task) does not cancel the job.
        """
        return awaited(self)

    def cancel(self) -> bool:
        """Ask the server to end the job and to kill its running tasks; returns whether it was still open.

        Results that have arrived are kept. In a thread with a running event loop the server is asked in another thread,
        so that the loop goes on, and this returns at once whether the job was not known to have ended.
        """
        if self.done():
            return self.cancelled()
        if not _in_event_loop():
            self.ask_to_cancel()
            return self.cancelled()
        return _cancel_aside([self])

    def forecast(self) -> ChanceReport | None:
        """Ask the server when the job will start and end, how sure that is, and with which probability it is on time.

        Returns:
            None if it has ended, if neither an estimate nor earlier jobs tell how long it runs, or if the forecast is
            not ready yet; `Client.explain(waiter.job).lack` says which.

        Raises:
            HeadwayError: the server does not answer, or does not know the job any more.
        """
        return None if self.done() else self._chance(self.job)

    def ask_to_cancel(self) -> None:
        """Ask the server, and end with its answer if the job was still open."""
        if self._ask_cancel(self.job):
            self.concluded(JobStatus.CANCELLED)

    def accepted(self, job: JobId) -> None:
        """The job has this id (`Sink`)."""
        self.job = job

    def settled(self, result: TaskResult) -> None:
        """A task has its final outcome (`Sink`)."""
        found = ends(result, trusted=self._trusted)  # several for the one task of a rigid job, which is number 0
        places = range(result.task, result.task + len(found))
        self._told(result.task, found[0][1])
        with self._news:
            if self._ends[result.task] is not None:
                return
            self._ends[places.start : places.stop] = found
            self._left -= len(found)
            self._failed += sum(not isinstance(error, CancelledError | None) for _, error in found)
            self._news.notify_all()
            futures = self._futures[places.start : places.stop]
        for future, end in zip(futures, found, strict=False):
            fulfil(future, end)

    def concluded(self, status: JobStatus) -> None:
        """Nothing more will happen to the job (`Sink`)."""
        if status is JobStatus.CANCELLED:
            self._conclude(status, lambda _: CancelledError())
        else:
            self._conclude(status, self._never_ran)

    def broken(self, error: BaseException) -> None:
        """Nothing more will be heard about the job (`Sink`)."""
        self._conclude(None, lambda _: error)

    def orphaned(self, error: BaseException) -> None:
        """Nothing more will be heard about the job in this process, a forked one (`Sink`)."""
        for callback in self._done_callbacks:  # type: ignore[attr-defined]  # typeshed keeps it to itself
            group = getattr(callback, "__self__", None)
            if isinstance(group, Waiters):
                orphan(group, error)
        self._news = Condition()
        self._concluded = True
        self._ends = [(None, error) if end is None else end for end in self._ends]
        self._left = 0
        for future in (*self._futures, self):
            orphan(future, error)

    def _told(self, task: int, error: BaseException | None) -> None:
        """A task has ended, perhaps with an error; before that is seen by others."""

    def _never_ran(self, task: int) -> TaskFailed:
        return TaskFailed(
            f"task {task} of job {self.job} did not run, because a task before it failed", job=self.job, task=task
        )

    def _conclude(self, status: JobStatus | None, lack: Callable[[int], BaseException]) -> None:
        """Give an end to each task that has none, then one to the job."""
        with self._news:
            if self._concluded:
                return
            self._concluded = True
            self.status = status
            missing = [task for task, end in enumerate(self._ends) if end is None]
            for task in missing:
                self._ends[task] = (None, lack(task))
            self._news.notify_all()
            all_ends, futures = [end for end in self._ends if end is not None], self._futures
        if futures:
            for task in missing:
                fulfil(futures[task], all_ends[task])
        cancelled = CancelledError() if status is JobStatus.CANCELLED else None
        error = cancelled or next((error for _, error in all_ends if error is not None), None)
        fulfil(self, ([value for value, _ in all_ends], error))


class Waiters(Future[list[list[Any]]]):
    """The future of several jobs submitted together; its result is the list of their results, in their order.

    Iterating gives the `Waiter` of each job.
    """

    def __init__(self, waiters: Iterable[Waiter]) -> None:
        super().__init__()
        self._jobs = tuple(waiters)
        self._left = len(self._jobs)
        self._news = Condition()
        if not self._jobs:
            self.set_result([])
        for waiter in self._jobs:
            waiter.add_done_callback(self._one_ended)

    def __len__(self) -> int:
        """How many jobs."""
        return len(self._jobs)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._jobs)

    def __getitem__(self, number: int) -> Waiter:
        return self._jobs[number]

    def __repr__(self) -> str:
        return f"<Waiters of {len(self)} jobs, {self._left} not ended>"

    def outcomes(self, timeout: float | None = None) -> list[list[Any]]:
        """Wait for the end of all jobs; then `Waiter.outcomes` of each.

        Raises:
            TimeoutError: a job did not end within `timeout` seconds.
        """
        if still_open([self], timeout):
            raise TimeoutError(f"{self._left} of {len(self)} jobs did not end within {timeout} s")
        return [waiter.outcomes() for waiter in self]

    def __await__(self) -> Generator[Any, None, list[list[Any]]]:
        """In an event loop: wait for all results. To give up waiting cancels nothing."""
        return awaited(self)

    def cancel(self) -> bool:
        """Cancel each job that is still open, as `Waiter.cancel`; returns whether any was cancelled."""
        if not _in_event_loop():
            cancelled = [waiter.cancel() for waiter in self]
            return any(cancelled)
        return _cancel_aside([waiter for waiter in self if not waiter.done()])

    def _one_ended(self, _: Future[Any]) -> None:
        with self._news:
            self._left -= 1
            if self._left:
                return
        errors = (CancelledError() if waiter.cancelled() else waiter.exception() for waiter in self)
        error = next(filter(None, errors), None)
        fulfil(self, ([] if error else [waiter.result() for waiter in self], error))


def _in_event_loop() -> bool:
    """Whether this thread has a running event loop. Where `asyncio` was never imported, none has."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def _cancel_aside(waiters: Iterable[Waiter]) -> bool:
    """Cancel these jobs in another thread; returns whether there are any."""
    wanted = tuple(waiters)

    def cancel() -> None:
        for waiter in wanted:
            try:
                waiter.ask_to_cancel()
            except HeadwayError as error:
                log.warning("job %d was not cancelled: %s", waiter.job, error)

    if wanted:
        threading.Thread(target=cancel, name="cancels jobs").start()
    return bool(wanted)


def fulfil(future: Future[Any], end: End) -> None:
    """End a future that no other code ends: with a value, an exception, or as cancelled."""
    value, error = end
    try:
        if isinstance(error, CancelledError):
            Future.cancel(future)
        if future.set_running_or_notify_cancel():
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
    except BaseException:
        # A callback raised something that `Future` lets through, such as SystemExit; others wait for this
        # thread.
        log.exception("a callback of %r failed", future)


def orphan(future: Future[Any], error: BaseException) -> None:
    """In a child process: end a future that was copied by the fork, without calling any callback."""
    future._condition = Condition()
    future._done_callbacks.clear()  # type: ignore[attr-defined]  # typeshed keeps it to itself
    if not future.done():
        Future.set_exception(future, error)


def still_open(futures: Iterable[Future[Any]], timeout: float | None) -> list[Future[Any]]:
    """Wait until futures have ended; those that have not within `timeout` seconds.

    One after another: `concurrent.futures.wait` holds the locks of all, and ctrl-C may leave them held for ever.
    """
    until = None if timeout is None else time.monotonic() + timeout
    late = []
    for future in futures:
        try:
            future.exception(None if until is None else max(0.0, until - time.monotonic()))
        except TimeoutError:
            late.append(future)
        except CancelledError:
            continue
    return late


def as_completed(waiters: Future[Any] | Iterable[Future[Any]], timeout: float | None = None) -> Iterator[Future[Any]]:
    """Waiters, or futures of tasks, in the order in which they end; those of a `Waiters` one by one.

    Raises:
        TimeoutError: some have not ended within `timeout` seconds.
    """
    single: list[Future[Any]] = []
    for waiter in [waiters] if isinstance(waiters, Future) else waiters:
        single += waiter if isinstance(waiter, Waiters) else [waiter]
    return concurrent.futures.as_completed(single, timeout)
