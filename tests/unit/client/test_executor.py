"""The executor keeps the promises of `concurrent.futures`."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import Any

import pytest

from headway import Client, HeadwayError, HeadwayExecutor, wire

from ...waiting import LIMIT, until


def fail() -> None:
    raise KeyError("missing")


def test_submit_and_map(client: Client) -> None:
    with HeadwayExecutor(client, name="squares", priority=3) as executor:
        assert executor.submit(pow, 2, 10).result(LIMIT) == 1024
        assert list(executor.map(abs, range(-50, 0), timeout=LIMIT)) == list(range(50, 0, -1))
        with pytest.raises(KeyError):
            executor.submit(fail).result(LIMIT)
    assert client.policy() == "fcfs"


def test_terms_go_with_each_job(server: Any, client: Client) -> None:
    with HeadwayExecutor(client, name="urgent", priority=3, retries=2) as executor:
        executor.submit(pow, 2, 2).result(LIMIT)
    job = server.submissions[0].jobs[0]
    assert (job.name, job.priority, job.retries) == ("urgent", 3, 2)
    with pytest.raises(TypeError, match=r"no keyword 'colour'\. Allowed: after, "):
        HeadwayExecutor(client, colour="red")


def test_calls_that_come_together_go_together(server: Any, client: Client) -> None:
    with HeadwayExecutor(client) as executor, server._news:
        # The server is slow with the first one; all others go with the second submission.
        futures = [executor.submit(pow, 2, exponent) for exponent in range(500)]
    assert [future.result(LIMIT) for future in futures] == [2**exponent for exponent in range(500)]
    assert len(server.submissions) <= 3
    assert sum(job.tasks for submission in server.submissions for job in submission.jobs) == 500


def test_results_are_cleared(server: Any, client: Client) -> None:
    with HeadwayExecutor(client) as executor:
        for _ in range(3):
            executor.submit(pow, 2, 2).result(LIMIT)
    assert server.cleared == [1, 2, 3]


def test_what_cannot_be_pickled_is_the_exception_of_its_future(client: Client) -> None:
    lock = threading.Lock()
    with HeadwayExecutor(client) as executor:
        with pytest.raises(HeadwayError, match=r"argument 0, of type _thread\.lock"):
            executor.submit(print, lock).result(LIMIT)
        with pytest.raises(HeadwayError, match=r"it uses 'lock', of type _thread\.lock"):
            executor.submit(lambda: lock).result(LIMIT)
        assert executor.submit(pow, 2, 2).result(LIMIT) == 4


def test_a_refusal_reaches_every_future(server: Any, client: Client) -> None:
    server.refuse = (507, wire.ErrorBody("the disk is full"))
    with HeadwayExecutor(client) as executor:
        with pytest.raises(HeadwayError, match="disk is full"):
            executor.submit(pow, 2, 2).result(LIMIT)
        assert executor.submit(pow, 2, 2).result(LIMIT) == 4


def test_shutdown_takes_no_more_and_waits(server: Any, client: Client) -> None:
    executor = HeadwayExecutor(client)
    future = executor.submit(pow, 2, 2)
    executor.shutdown()
    assert future.done()
    with pytest.raises(RuntimeError):
        executor.submit(pow, 2, 2)
    executor.shutdown()


def test_cancel_futures_cancels_the_jobs(server: Any, client: Client) -> None:
    server.held = True
    executor = HeadwayExecutor(client)
    futures = [executor.submit(pow, 2, 2) for _ in range(20)]
    executor.shutdown(cancel_futures=True)
    assert concurrent.futures.wait(futures, LIMIT).not_done == set()
    assert all(future.cancelled() for future in futures)
    assert server.cancelled_tasks == server.tasks


def test_shutdown_cancels_a_call_that_is_being_pickled(server: Any, client: Client) -> None:
    reached, go_on = threading.Event(), threading.Event()

    class Slow:
        def __call__(self) -> None: ...

        def __reduce__(self) -> tuple[Any, ...]:
            reached.set()
            assert go_on.wait(LIMIT)
            return int, ()

    server.held = True
    executor = HeadwayExecutor(client)
    future = executor.submit(Slow())
    assert reached.wait(LIMIT)
    executor.shutdown(wait=False, cancel_futures=True)
    go_on.set()
    assert future.cancelled()
    executor.shutdown()
    assert server.cancelled_tasks == server.tasks


def test_a_call_that_is_cancelled_while_it_is_sent_is_cancelled_at_the_server(server: Any, client: Client) -> None:
    server.held = True
    executor = HeadwayExecutor(client)
    with server._news:  # the server takes its time to answer
        future = executor.submit(pow, 2, 2)
        until(lambda: server.asked["submit"])
        assert future.cancel()
    executor.shutdown()
    assert server.cancelled_tasks == [(1, 0)]


def test_one_cancelled_call_does_not_end_its_neighbours(server: Any, client: Client) -> None:
    server.held = True
    with HeadwayExecutor(client) as executor, server._news:
        executor.submit(pow, 2, 0)
        futures = [executor.submit(pow, 2, exponent) for exponent in range(10)]
        assert futures[3].cancel()
        assert futures[3].cancel()
        server.run_held()
    with pytest.raises(concurrent.futures.CancelledError):
        futures[3].result(LIMIT)
    assert [f.result(LIMIT) for n, f in enumerate(futures) if n != 3] == [2**n for n in range(10) if n != 3]
    assert not futures[0].cancel()
    assert server.cancelled == []


def test_an_executor_of_its_own_client(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_URL", server.url)
    monkeypatch.setenv("HEADWAY_TOKEN", "right")
    with HeadwayExecutor() as executor:
        assert executor.submit(pow, 2, 3).result(LIMIT) == 8
    with HeadwayExecutor():
        pass  # never used
