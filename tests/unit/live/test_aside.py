"""Steps beside the event loop: what they return and raise, and what happens if there is no thread for them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headway.advice import posting
from headway.advice.asking import ask
from headway.core.scheduler import Scheduler
from headway.errors import NoAdvice
from headway.live import aside as module
from headway.live.aside import NoThread, aside, gives_threads
from headway.policies.registry import find


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the system gives no threads."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    for pools in (module, posting):  # new pools: those of earlier tests have threads
        monkeypatch.setattr(pools, "_pool", ThreadPoolExecutor(2))
    monkeypatch.setattr(threading.Thread, "start", start)


def test_a_step_is_taken_beside_the_loop() -> None:
    async def main() -> None:
        assert await aside(threading.current_thread) is not threading.current_thread()
        with pytest.raises(ZeroDivisionError):
            await aside(lambda: 1 // 0)
        assert gives_threads()

    asyncio.run(main())


def test_without_threads_it_is_taken_within_the_loop(no_threads: None, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        assert await aside(threading.current_thread) is threading.current_thread()
        with pytest.raises(ZeroDivisionError):
            await aside(lambda: 1 // 0)
        assert not gives_threads()

    asyncio.run(main())
    assert "can't start new thread: the event loop does itself what a thread should do" in caplog.text


def test_a_step_that_takes_long_is_not_taken_within_the_loop(no_threads: None) -> None:
    taken: list[int] = []

    async def main() -> None:
        with pytest.raises(NoThread, match="gives no thread"):
            await aside(lambda: taken.append(1), here=False)

    asyncio.run(main())
    assert not taken


def test_a_step_that_the_pool_has_kept_is_not_taken_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a pool can start no thread for a step, it keeps the step, and runs it when it has a thread."""
    kept: list[Any] = []

    class Pool:
        def submit(self, step: Any) -> None:
            kept.append(step)
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module, "_pool", Pool())
    taken: list[int] = []

    async def main() -> None:
        await aside(lambda: taken.append(1))
        for step in kept:
            step()

    asyncio.run(main())
    assert taken == [1]


def test_a_decider_whose_host_cannot_be_looked_up_gives_no_advice(no_threads: None) -> None:
    """With uvloop's own lookup, that would end the process."""

    async def main() -> None:
        with pytest.raises(NoAdvice, match="its host cannot be looked up: can't start new thread"):
            await ask("http://localhost:1/", Scheduler(find, "fcfs").dump())
        with pytest.raises(NoAdvice, match="it does not answer"):
            await ask("http://127.0.0.1:1/", Scheduler(find, "fcfs").dump())

    asyncio.run(main())
