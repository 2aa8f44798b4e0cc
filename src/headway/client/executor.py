"""A `concurrent.futures.Executor` whose calls run on a Headway cluster."""

from __future__ import annotations

import inspect
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from itertools import chain, islice
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from headway.client.client import Client
from headway.client.job import Job
from headway.client.pickling import pickled_arguments
from headway.client.sender import CallFuture, Preparation, Sender, UnsentCall
from headway.errors import HeadwayError, did_you_mean
from headway.files import naming
from headway.pool import Chunk

P = ParamSpec("P")
T = TypeVar("T")


class HeadwayExecutor(Executor):
    """Runs each call as a task on a cluster; drop-in for `ProcessPoolExecutor`.

    A thread of the executor sends the calls: at once if nothing is being sent, otherwise together with all that came in
    the meantime. So one call is fast and many are cheap. What is sent together is one bag, with the given terms. A
    function is pickled when its call is sent, arguments at `submit`.

    The processes that run its calls are the executor's own, as those of a process pool are: they begin clean, and later
    calls find what earlier ones leave there (imported modules, variables). With the term `warm` they are shared.

    A future can be cancelled until its result is here; a running call is killed. Submitted calls run, even if the
    executor is garbage-collected, was shut down without waiting, or the program ends: its end waits for them. Calls
    that cannot be sent then are logged as a warning. In a process forked from this one the executor starts fresh.

    Args:
        max_workers: how many calls may be on the cluster at a time, >= 1; default: no limit. With a limit, each call
            waits for the answer to the one before it. A `Client` given here counts as `client`.
        mp_context: refused: the cluster's nodes start the processes.
        initializer, initargs: called in each process before its first call, as `initializer(*initargs)`. If it raises,
            every call ends with that error and no more are accepted.
        max_tasks_per_child: refused: nodes replace processes when needed.
        client: the client of the cluster; default: a client of its own, made with `Client()` and closed at the end.
        terms: of the jobs, as for `Job`: `name`, `due` (counted from sending), `priority`, `retries`, `time_limit`, ...

    Raises:
        HeadwayError: no server answers.
        TypeError: there is no such term, or an argument is of the wrong kind.
        ValueError: `max_workers` is less than 1.
    """

    def __init__(
        self,
        max_workers: int | Client | None = None,
        mp_context: None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: None = None,
        client: Client | None = None,
        **terms: Any,
    ) -> None:
        if isinstance(max_workers, Client):
            if client is not None:
                raise TypeError("two clients are given: HeadwayExecutor(client, ...) or HeadwayExecutor(client=...)")
            max_workers, client = None, max_workers
        if client is not None and not isinstance(client, Client):
            raise TypeError(f"client is {client!r}; allowed: a headway.Client, or None for one of its own")
        if mp_context is not None:
            raise TypeError("mp_context cannot be chosen: the nodes of the cluster start the processes")
        if max_tasks_per_child is not None:
            raise TypeError(
                "max_tasks_per_child cannot be chosen: processes stay warm for this executor's calls; "
                "a call that must have a clean one is submitted as a job of its own (Client.submit)"
            )
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._at_once = None if max_workers is None else _count(max_workers)
        name = uuid4().hex
        _check_terms(terms)
        job = Job(**{"name": "executor", "warm": name, **terms})
        self._client = Client() if client is None else client
        self._sender = Sender(
            self._client,
            owns=client is None,
            terms=job,
            at_once=self._at_once,
            preparation=None if initializer is None else Preparation(name, initializer, tuple(initargs)),
        )
        weakref.finalize(self, self._sender.stop).atexit = False

    @property
    def _max_workers(self) -> int:
        """How many calls run at a time at most, under the name that others use (Dask): the slots of the cluster now,
        or fewer by `max_workers`.
        """
        slots = sum(len(node.slots) for node in self._client.nodes())
        return max(1, slots if self._at_once is None else min(slots, self._at_once))

    @property
    def _broken(self) -> BaseException | None:
        """Why no more calls are accepted, under the name that process pools use; None while they are."""
        return self._sender.broken

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Schedule `fn(*args, **kwargs)`. What cannot be pickled becomes the exception of the future.

        Raises:
            RuntimeError: it was shut down, or the interpreter ends; `BrokenExecutor` if its initializer failed.
        """
        future = CallFuture()
        try:
            with naming() as files:
                call = UnsentCall(fn, pickled_arguments(args, kwargs, "a call"), future, files)
        except HeadwayError as error:
            self._sender.check_open()
            future.settle((None, error))
            return future
        self._sender.take(call)
        return future

    def map(  # type: ignore[override]  # typeshed lets the function be named
        self,
        fn: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **more: Any,
    ) -> Iterator[T]:
        """The results of `fn` called with elements of the iterables, in order.

        Args:
            timeout: seconds from now after which waiting for a result raises `TimeoutError`.
            chunksize: this many calls run as one, one after the other, >= 1.
            more: what else `Executor.map` of this Python takes.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout, **more)
        chunks = _chunks(zip(*iterables, strict=False), chunksize)
        return chain.from_iterable(super().map(Chunk(fn), chunks, timeout=timeout, **more))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. Wait until the existing ones have ended, or first cancel all that have no
        result yet.
        """
        self._sender.stop(cancel=cancel_futures)
        if wait:
            self._sender.join()


def _count(workers: object) -> int:
    try:
        count = operator.index(workers)  # type: ignore[arg-type]  # that is what is looked at
    except TypeError:
        raise TypeError(f"max_workers is {workers!r}; allowed: a whole number, or None") from None
    if count < 1:
        raise ValueError(f"max_workers must be greater than 0, and is {count}")
    return count


def _check_terms(terms: Mapping[str, Any]) -> None:
    known = {*inspect.signature(HeadwayExecutor).parameters, *inspect.signature(Job).parameters} - {"terms"}
    for name in terms:
        if name not in known:
            allowed = did_you_mean(name, known) or f"Allowed: {', '.join(sorted(known))}."
            raise TypeError(f"HeadwayExecutor has no keyword {name!r}. {allowed}")


def _chunks(calls: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := list(islice(calls, size)):
        yield chunk
