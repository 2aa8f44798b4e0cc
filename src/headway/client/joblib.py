"""Headway as a backend of joblib, and so of scikit-learn: `with headway_backend(): GridSearchCV(...).fit(x, y)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

import joblib
from joblib.parallel import ParallelBackendBase, register_parallel_backend

from headway.client.executor import HeadwayExecutor

NAME: Final = "headway"

AHEAD: Final = 256
"""Calls that joblib has under way at least, unless it was told how many: so that they are sent many at a time."""

_DEFAULT: Final = ("2 * n_jobs", "2*n_jobs")


class HeadwayBackend(ParallelBackendBase):
    """What joblib asks of a backend.

    Args:
        executor: runs the calls.
    """

    supports_inner_max_num_threads = False
    supports_retrieve_callback = True
    supports_return_generator = True
    uses_threads = False
    supports_sharedmem = False
    default_n_jobs = -1

    def __init__(self, executor: HeadwayExecutor | None = None, **terms: Any) -> None:
        super().__init__(**terms)
        if executor is None:
            raise ValueError("the backend needs an executor: use `with headway_backend(executor): ...`")
        self._executor = executor

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many calls may run at a time: what the executor may, or with `n_jobs` > 0 no more than that."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        slots = self._executor._max_workers
        return slots if n_jobs is None or n_jobs < 0 else min(n_jobs, slots)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **terms: Any) -> int:
        """A computation begins. Where the user left it to joblib, more calls are sent ahead than it does by itself."""
        found = self.effective_n_jobs(n_jobs)
        if parallel.pre_dispatch in _DEFAULT and found == self._executor._max_workers:
            parallel.pre_dispatch = max(2 * found, AHEAD)
        self.parallel = parallel
        return found

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], Any] | None = None) -> Future[Any]:
        """Run a batch of calls."""
        future = self._executor.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """What a batch gave; raises what it raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """A call failed: joblib drops what it has not sent, and takes no notice of the rest."""
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)


@contextmanager
def headway_backend(executor: HeadwayExecutor, n_jobs: int = -1) -> Iterator[None]:
    """Within it joblib's `Parallel`, and what uses that, runs on Headway.

    Args:
        executor: runs the calls; it is not shut down here.
        n_jobs: calls at a time; -1: as many as the executor may.
    """
    register_parallel_backend(NAME, HeadwayBackend)
    with joblib.parallel_config(backend=NAME, n_jobs=n_jobs, executor=executor):
        yield
