"""Headway as a backend of joblib, and so of scikit-learn. Importing this module registers it as `headway`:

import headway.joblib

with joblib.parallel_config(backend="headway", due=3600):
    GridSearchCV(SVC(), grid).fit(x, y)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from headway.client.executor import HeadwayExecutor

try:
    from joblib.parallel import ParallelBackendBase, register_parallel_backend
except ModuleNotFoundError as error:
    raise ImportError("headway.joblib needs joblib; install it with: pip install 'headway[joblib]'") from error

__all__ = ["NAME", "HeadwayBackend"]

NAME: Final = "headway"
"""What joblib knows the backend by."""

CALLS_AHEAD: Final = 256
"""Calls that joblib has under way at least, unless it was told how many: so that they are sent many at a time."""

_DEFAULT: Final = ("2 * n_jobs", "2*n_jobs")
_OF_JOBLIB: Final = {"context", "max_nbytes", "mmap_mode", "prefer", "require", "temp_folder", "verbose"}


def _run(batch: Callable[[], Any]) -> Any:
    """What is called: the same function each time, which the server keeps once, with the batch as its argument."""
    return batch()


class HeadwayBackend(ParallelBackendBase):
    """What joblib asks of a backend; `joblib.parallel_config(backend="headway", ...)` makes one.

    By default all slots of the cluster are used (`n_jobs=-1`). When a call raises, those that have no result yet are
    cancelled, and end if they run.

    Args:
        executor: runs the calls and is not shut down here; None: one of the backend's own, made with `terms`.
        nesting_level: joblib's own.
        terms: what `HeadwayExecutor` takes: `client`, and the terms of its jobs, such as `due` and `priority`.

    Raises:
        HeadwayError: no server answers.
        TypeError: there is no such term, or an executor was given that has terms already.
    """

    supports_inner_max_num_threads = False
    supports_retrieve_callback = True
    supports_return_generator = True
    uses_threads = False
    supports_sharedmem = False
    default_n_jobs = -1

    def __init__(
        self, executor: HeadwayExecutor | None = None, *, nesting_level: int | None = None, **terms: Any
    ) -> None:
        super().__init__(nesting_level=nesting_level)
        if executor is not None and terms:
            raise TypeError(f"{', '.join(sorted(terms))}: the executor has its terms; give them to HeadwayExecutor")
        self._executor = HeadwayExecutor(**{"name": "joblib", **terms}) if executor is None else executor
        self._open: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many calls may run at a time: with `n_jobs` > 0 this many, if the executor may have them; with -1 or None
        as many as it may, with -2 one less, and so on.
        """
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        slots = self._executor._max_workers
        if n_jobs is None:
            return slots
        return max(1, slots + 1 + n_jobs) if n_jobs < 0 else min(n_jobs, slots)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **given: Any) -> int:
        """A computation begins. Where the user left it to joblib, more calls are sent ahead than it does by itself."""
        unknown = sorted(given.keys() - _OF_JOBLIB)
        if unknown:
            raise TypeError(
                f"Parallel cannot pass on {', '.join(unknown)}; "
                f"give terms of the jobs to joblib.parallel_config(backend={NAME!r}, ...)"
            )
        found = self.effective_n_jobs(n_jobs)
        if parallel.pre_dispatch in _DEFAULT and found == self._executor._max_workers:
            parallel.pre_dispatch = max(2 * found, CALLS_AHEAD)
        self.parallel = parallel
        return found

    def terminate(self) -> None:
        """A computation has ended. It refers to the backend, which refers to it no longer: so both go when unused."""
        self.parallel = None

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], Any] | None = None) -> Future[Any]:
        """Run a batch of calls."""
        future = self._executor.submit(_run, func)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """What a batch gave; raises what it raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """A call failed: cancel those that have no result yet, which frees their slots."""
        for future in tuple(self._open):
            future.cancel()


register_parallel_backend(NAME, HeadwayBackend)
