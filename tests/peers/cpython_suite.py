"""CPython's own tests of executors with `HeadwayExecutor` in their place; run by a Python that has them.

They are not copied: their classes get a mixin, as for CPython's own executors. This prints a line of JSON for each
test: its name, its outcome (`ok`, `failed`, `skipped`), and the last line of the reason.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
import unittest
from concurrent import futures
from contextlib import nullcontext
from typing import Any

from headway import HeadwayExecutor

PRELUDE = "import concurrent.futures, headway; concurrent.futures.HeadwayExecutor = headway.HeadwayExecutor\n"
"""What programs of the tests need, which take the executor from `concurrent.futures`."""

TEST_SECONDS = 90


class Executor(HeadwayExecutor):
    """An executor that is made as the tests make a process pool. It ignores how they want processes to be started."""

    def __init__(self, *args: Any, mp_context: object = None, **terms: Any) -> None:
        super().__init__(*args, **terms)


class HeadwayMixin:
    """Like CPython's own mixins: names the executor that the tests make."""

    executor_type = HeadwayExecutor

    def _assert_logged(self, message: str) -> Any:
        """Check nothing: Headway does not log what an initializer raised, but puts it in the error of each call."""
        return nullcontext()


class ContextMixin(HeadwayMixin):
    """For tests that need a context of `multiprocessing`."""

    executor_type = Executor
    ctx = "forkserver"

    def get_context(self) -> Any:
        return multiprocessing.get_context(self.ctx)


def suite() -> unittest.TestSuite:
    """All tests that CPython has for both of its executors, and those for the one with processes."""
    from test import support
    from test.test_concurrent_futures import (
        executor,
        test_as_completed,
        test_deadlock,
        test_init,
        test_process_pool,
        test_shutdown,
        test_wait,
        util,
    )

    support.use_resources, support.verbose = ["walltime"], 0
    run = test_shutdown.assert_python_ok
    test_shutdown.assert_python_ok = lambda flag, code, **env: run(flag, PRELUDE + code, **env)
    named: list[tuple[str, Any]] = [
        ("executor", executor.ExecutorTest),
        ("process_pool", test_process_pool.ProcessPoolExecutorTest),
        ("wait", test_wait.WaitTests),
        ("as_completed", test_as_completed.AsCompletedTests),
        ("shutdown", test_shutdown.ExecutorShutdownTest),
        ("init", test_init.InitializerMixin),
        ("failing_init", test_init.FailingInitializerMixin),
        ("deadlock", test_deadlock.ExecutorDeadlockTest),
    ]
    found = unittest.TestSuite()
    for name, tests in named:
        mixin = ContextMixin if name in ("process_pool", "deadlock") else HeadwayMixin
        own = type(f"Headway_{name}", (mixin, tests, util.ExecutorMixin, util.BaseTestCase), {})
        names = list(unittest.defaultTestLoader.getTestCaseNames(own))
        if name == "process_pool":  # the tests that it shares with threads are above
            names = [test for test in names if test not in dir(executor.ExecutorTest)]
        found.addTests(own(test) for test in names)
    return found


class Told(unittest.TestResult):
    """Prints the result of each test when it comes."""

    def _tell(self, test: unittest.TestCase, what: str, why: str = "") -> None:
        name = f"{type(test).__name__.removeprefix('Headway_')}.{getattr(test, '_testMethodName', test)}"
        print(json.dumps([name, what, why.strip().splitlines()[-1:] or [""]]), flush=True)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        signal.alarm(TEST_SECONDS)

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        signal.alarm(0)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._tell(test, "ok")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._tell(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._tell(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure


def too_long(*_: object) -> None:
    raise futures.TimeoutError(f"it did not end within {TEST_SECONDS} s")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, too_long)
    suite().run(Told())
    sys.stdout.flush()
