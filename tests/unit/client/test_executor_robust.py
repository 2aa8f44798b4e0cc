"""The executor when something fails or is cut short: calls that were submitted run, or their futures say why not."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any

import pytest

from headway import Client, HeadwayError, HeadwayExecutor, Job, Task

from ...waiting import LIMIT, until

_others: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """Threads that were there before a test, from earlier tests in this process and from the parts they used."""
    _others.clear()
    _others.update(threading.enumerate())


def threads() -> list[str]:
    """Names of the client's threads that were started during the test and are alive."""
    started = set(threading.enumerate()) - _others
    return sorted(thread.name for thread in started if thread.name.startswith("headway"))


@pytest.fixture
def elsewhere(server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The default server, for code that names none."""
    monkeypatch.setenv("HEADWAY_URL", server.url)
    monkeypatch.setenv("HEADWAY_TOKEN", "right")
    return server


class Exits:
    """Raises when it is pickled or read."""

    def __init__(self, error: type[BaseException] = SystemExit) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error("on the way")


def exits(*_: object) -> None:
    raise SystemExit(3)


class ReadBack:
    """An object whose pickle ends the thread that reads it."""

    def __reduce__(self) -> Any:
        return exits, ()


class Value:
    """An object that can be observed to be gone."""

    def __call__(self) -> Value:
        return Value()


# What is submitted runs


PROGRAM = """
import sys, time
from headway import HeadwayExecutor
executor = HeadwayExecutor()
futures = [executor.submit(pow, 2, number) for number in range({calls})]
{end}
"""


@pytest.mark.parametrize(
    "end", ["", "executor.shutdown(wait=False)", "del executor, futures", "raise ValueError", "sys.exit(3)"]
)
def test_at_the_end_of_a_program_everything_is_sent(elsewhere: Any, end: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(calls=2500, end=end)], capture_output=True, text=True, timeout=LIMIT
    )
    assert len(elsewhere.tasks) == 2500, ran.stderr
    assert "never" not in ran.stderr
    assert ran.returncode == {"raise ValueError": 1, "sys.exit(3)": 3}.get(end, 0), ran.stderr


@pytest.mark.long
@pytest.mark.parametrize("end", ["", "futures[0].result()"])
def test_ctrl_c_ends_the_wait_for_a_server_that_never_comes_back(elsewhere: Any, end: str) -> None:
    """At the end of a program. If it waits itself, the first ctrl-c only brings it to its end."""
    elsewhere.held = True
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(calls=3, end=f"print('ends', flush=True)\n{end}")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stderr is not None
    try:
        assert program.stdout.readline() == "ends\n"
        until(lambda: len(elsewhere.submissions) > 0)
        elsewhere.stop()
        if end:
            time.sleep(0.3)
            program.send_signal(signal.SIGINT)
            assert "KeyboardInterrupt\n" in iter(program.stderr.readline, "")
        with pytest.raises(subprocess.TimeoutExpired):  # its calls were accepted, so it waits for them
            program.wait(1.0)
        for _ in range(10):  # a busy machine may let it come to its wait after the first of them
            program.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(LIMIT / 10)
                break
        assert program.poll() is not None
    finally:
        program.kill()
        program.communicate()


def test_what_cannot_be_sent_at_the_end_is_said_with_its_number(elsewhere: Any) -> None:
    code = PROGRAM.format(calls=1, end="futures[0].result(); executor._client.close()") + (
        "futures = [executor.submit(pow, 2, number) for number in range(20)]\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT)
    said = [int(line.split()[0]) for line in ran.stderr.splitlines() if "calls of an executor were not sent" in line]
    assert sum(said) == 20, ran.stderr
    assert ran.returncode == 0


def test_no_call_is_taken_when_the_interpreter_ends(elsewhere: Any) -> None:
    code = """
import threading, time
from headway import HeadwayExecutor
executor = HeadwayExecutor()
def late():
    threading.main_thread().join()
    while True:
        try:
            executor.submit(pow, 2, 2)
        except RuntimeError as error:
            print(error)
            return
        time.sleep(0.001)
threading.Thread(target=late).start()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT)
    assert ran.stdout == "cannot schedule new futures after interpreter shutdown\n", ran.stderr


@pytest.mark.long
def test_a_dropped_executor_sends_what_it_took_and_leaves_nothing(elsewhere: Any) -> None:
    elsewhere.held = True
    sockets = len(elsewhere._sockets)
    executor = HeadwayExecutor()
    client = weakref.ref(executor._client)
    futures = [executor.submit(pow, 2, number) for number in range(5)]
    until(lambda: len(elsewhere.tasks) == 5)
    del executor
    gc.collect()
    assert not any(future.done() for future in futures)
    elsewhere.run_held()
    assert [future.result(LIMIT) for future in futures] == [1, 2, 4, 8, 16]
    until(lambda: not threads())
    until(lambda: client() is None)
    until(lambda: len(elsewhere._sockets) == sockets)


def test_a_dropped_client_goes_when_nobody_waits_any_more(server: Any) -> None:
    server.held = True
    client = Client(server.url, token="right")
    gone = weakref.ref(client)
    waiter = client.submit(Job("one", [Task(pow, 2, 5)]))
    del client
    gc.collect()
    server.run_held()
    assert waiter.result(LIMIT) == [32]
    del waiter
    gc.collect()
    until(lambda: gone() is None)
    until(lambda: not threads())
    until(lambda: server.acknowledged)


def test_an_idle_executor_keeps_neither_functions_nor_results(client: Client) -> None:
    with HeadwayExecutor(client) as executor:
        function = Value()
        kept = weakref.ref(function)
        future = executor.submit(function)
        result = weakref.ref(future.result(LIMIT))
        del function, future
        until(lambda: gc.collect() is not None and kept() is None and result() is None)


def test_a_batch_keeps_no_result_that_was_taken(server: Any, client: Client) -> None:
    server.held = True
    with HeadwayExecutor(client) as executor:
        futures = [executor.submit(Value) for number in range(3)]
        until(lambda: len(server.tasks) == 3)
        server.run_one(1, 0)
        kept = weakref.ref(futures.pop(0).result(LIMIT))
        until(lambda: gc.collect() is not None and kept() is None)  # the thread that brought it lets go of it, too
        assert not futures[0].done()
        server.run_held()


# Arguments of the executor


@pytest.mark.parametrize(
    ("arguments", "terms", "error"),
    [
        ((0,), {}, ValueError),
        ((-3,), {}, ValueError),
        (("four",), {}, TypeError),
        ((2.5,), {}, TypeError),
        ((), {"client": 4}, TypeError),
        ((), {"mp_context": "fork"}, TypeError),
        ((), {"max_tasks_per_child": 5}, TypeError),
        ((), {"initializer": 7}, TypeError),
        ((), {"no_such_term": 1}, TypeError),
    ],
)
def test_arguments_that_cannot_be_had_are_refused(
    elsewhere: Any, arguments: tuple[Any, ...], terms: dict[str, Any], error: type[Exception]
) -> None:
    before = threads()
    with pytest.raises(error):
        HeadwayExecutor(*arguments, **terms)
    assert threads() == before


def test_max_workers_bounds_the_calls_on_the_server(server: Any, client: Client) -> None:
    server.held = True
    with HeadwayExecutor(3, client=client) as executor:
        futures = [executor.submit(pow, 2, number) for number in range(10)]
        until(lambda: len(server.tasks) == 3)
        time.sleep(0.05)
        assert len(server.tasks) == 3
        assert futures[0].cancel()  # the next call is sent when the server has finished it
        until(lambda: len(server.tasks) == 4)
        server.run_held()
        assert [future.result(LIMIT) for future in futures[1:]] == [2**number for number in range(1, 10)]
    assert executor._max_workers == 1  # the server has no slots


def test_chunks(server: Any, client: Client) -> None:
    with HeadwayExecutor(client) as executor:
        assert list(executor.map(pow, range(10), [2] * 7, chunksize=3, timeout=LIMIT)) == [n * n for n in range(7)]
        assert len(server.tasks) == 3
        with pytest.raises(ValueError, match="chunksize"):
            executor.map(pow, [1], [2], chunksize=0)


BEGUN: list[int] = []


def begin(number: int) -> None:
    BEGUN.append(number)


def begun() -> list[int]:
    return BEGUN


def test_an_initializer_is_called_once_in_a_process_and_before_any_call(client: Client) -> None:
    BEGUN.clear()  # the server of these tests runs calls in this process
    with HeadwayExecutor(client=client, initializer=begin, initargs=(7,)) as executor:
        assert executor.submit(begun).result(LIMIT) == [7]
        assert executor.submit(begun).result(LIMIT) == [7]
    with HeadwayExecutor(client=client, initializer=begin, initargs=(8,)) as executor:
        assert executor.submit(begun).result(LIMIT) == [7, 8]


# A thread never ends before its futures


@pytest.mark.parametrize("error", [OSError, SystemExit, KeyboardInterrupt])
def test_an_initializer_that_fails_breaks_the_executor(server: Any, client: Client, error: type[BaseException]) -> None:
    def fail() -> None:
        raise error("no licence")

    server.held = True
    executor = HeadwayExecutor(2, client=client, initializer=fail)
    futures = [executor.submit(pow, 2, number) for number in range(5)]
    until(lambda: len(server.tasks) == 2)
    server.run_held()
    for future in futures:
        with pytest.raises(BrokenExecutor, match="no licence"):
            future.result(LIMIT)
    with pytest.raises(BrokenExecutor, match="no licence"):
        executor.submit(pow, 2, 2)
    executor.shutdown()


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, RecursionError])
def test_what_cannot_be_pickled_is_a_pickling_error(client: Client, error: type[BaseException]) -> None:
    with HeadwayExecutor(client) as executor:
        for future in (executor.submit(abs, Exits(error)), executor.submit(Exits(error).__reduce__)):
            with pytest.raises(pickle.PicklingError):
                future.result(LIMIT)
            assert isinstance(future.exception(), HeadwayError)
        assert executor.submit(pow, 2, 3).result(LIMIT) == 8


def test_a_function_that_raises_an_interrupt_when_it_is_pickled_ends_its_call_alone(client: Client) -> None:
    with HeadwayExecutor(client) as executor:
        with pytest.raises(pickle.PicklingError, match="KeyboardInterrupt"):
            executor.submit(Exits(KeyboardInterrupt).__reduce__).result(LIMIT)
        assert executor.submit(pow, 2, 3).result(LIMIT) == 8


def test_a_value_that_raises_when_it_is_read_is_the_error_of_its_call(client: Client) -> None:
    with HeadwayExecutor(client) as executor:
        future = executor.submit(ReadBack)
        with pytest.raises(HeadwayError, match="cannot be read here: SystemExit"):
            future.result(LIMIT)
        assert executor.submit(pow, 2, 3).result(LIMIT) == 8
    assert client.submit(Job("after", [Task(pow, 2, 4)])).result(LIMIT) == [16]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError])
def test_a_callback_that_raises_ends_nothing(
    server: Any, client: Client, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise error("in a callback")

    server.held = True
    with HeadwayExecutor(client) as executor, caplog.at_level(logging.ERROR):
        futures = [executor.submit(pow, 2, number) for number in range(4)]
        until(lambda: len(server.tasks) == 4)
        futures[0].add_done_callback(fail)
        waiter = client.submit(Job("waited for", [Task(pow, 2, 4), Task(pow, 2, 5)]))
        waiter.tasks[0].add_done_callback(fail)
        waiter.add_done_callback(fail)
        server.run_held()
        assert [future.result(LIMIT) for future in futures] == [1, 2, 4, 8]
        assert waiter.tasks[1].result(LIMIT) == 32
        assert waiter.result(LIMIT) == [16, 32]
        assert executor.submit(pow, 2, 6).result(LIMIT) == 64
    assert "in a callback" in caplog.text


def test_a_callback_may_cancel_and_submit(client: Client) -> None:
    with HeadwayExecutor(client) as executor:
        again: list[Any] = []

        def more(future: concurrent.futures.Future[Any]) -> None:
            future.cancel()
            again.append(executor.submit(pow, 2, 5))

        first = executor.submit(pow, 2, 2)
        first.add_done_callback(more)
        assert first.result(LIMIT) == 4
        until(lambda: again)
        assert again[0].result(LIMIT) == 32


def test_a_sender_that_breaks_fails_its_futures(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(client, "send", broken)
    executor = HeadwayExecutor(client)
    future = executor.submit(pow, 2, 2)
    assert isinstance(future.exception(LIMIT), MemoryError | BrokenExecutor)
    until(lambda: executor._broken)
    with pytest.raises(BrokenExecutor, match="no room"):
        executor.submit(pow, 2, 2)
    executor.shutdown()


def test_a_thread_that_cannot_be_started_is_the_error_of_submit(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = HeadwayExecutor(client)

    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("headway"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        executor.submit(pow, 2, 2)
    waiter = client.submit(Job("one", [Task(pow, 2, 2)]))
    monkeypatch.undo()
    with pytest.raises(HeadwayError, match="no thread can be started"):
        waiter.result(LIMIT)
    assert executor.submit(pow, 2, 2).result(LIMIT) == 4
    executor.shutdown()


def test_ctrl_c_while_a_thread_starts_leaves_one_thread_that_can_be_ended(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = threading.Thread.start
    held, interrupted = threading.Event(), list[str]()

    def interrupt(thread: threading.Thread) -> None:
        """As when the interrupt comes while the new thread has not run yet."""
        if not thread.name.startswith("headway") or thread.name in interrupted:
            starting(thread)
            return
        interrupted.append(thread.name)
        late = threading.Thread(target=lambda: (held.wait(LIMIT), starting(thread)))
        starting(late)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupt)
    executor = HeadwayExecutor(client)
    for _ in range(2):
        with contextlib.suppress(KeyboardInterrupt):
            executor.submit(pow, 2, 2)
    executor.shutdown(wait=False)
    with pytest.raises(KeyboardInterrupt):
        client.submit(Job("one", [Task(pow, 2, 2)]))
    assert interrupted == ["headway-executor", "headway-messages"]
    client.close()
    held.set()
    until(lambda: threads() == [])


# Single calls are cancelled


def test_a_cancelled_call_is_cancelled_on_the_server_though_others_of_its_batch_have_ended(
    server: Any, client: Client
) -> None:
    server.held = True
    executor = HeadwayExecutor(client)
    executor.submit(pow, 2, 0)
    futures = [executor.submit(pow, 2, number) for number in range(1, 6)]
    until(lambda: len(server.tasks) == 6)
    server.run_one(*server.tasks[-1])
    assert futures[-1].result(LIMIT) == 32
    executor.shutdown(cancel_futures=True)
    assert sorted(server.cancelled_tasks) == server.tasks[:-1]
    assert all(future.cancelled() for future in futures[:-1])


# Forks


def in_child(of_it: Callable[[], None]) -> None:
    """Run a function in a forked child, and check that it succeeds."""
    child = os.fork()
    if not child:
        status = 1
        try:
            of_it()
            status = 0
        except BaseException:  # noqa: BLE001  # the child must not continue as if it were the parent
            traceback.print_exc()
        finally:
            os._exit(status)
    end = time.monotonic() + 3 * LIMIT
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("busy", [False, True])
def test_client_and_executor_are_usable_in_a_forked_process(server: Any, client: Client, busy: bool) -> None:
    told: list[int] = []
    with HeadwayExecutor(client) as executor:
        assert executor.submit(pow, 2, 2).result(LIMIT) == 4
        server.held = busy
        waiter = client.submit(Job("the parent's", [Task(pow, 2, 3)]))
        both = client.submit([Job("the parent's too", [Task(pow, 2, 3)])])
        call = executor.submit(pow, 2, 4)
        until(lambda: len(server.tasks) == 4 and (busy or (call.done() and both.done())))
        for future in (waiter.tasks[0], both, call):
            future.add_done_callback(lambda _: told.append(os.getpid()))
        server.held = False  # what the child submits is run

        def child() -> None:
            for inherited in (waiter, waiter.tasks[0], both, call) if busy else ():
                with pytest.raises(HeadwayError, match="forked"):
                    inherited.result(LIMIT)
            assert os.getpid() not in told
            assert client.submit(Job("the child's", [Task(pow, 2, 5)])).result(LIMIT) == [32]
            assert executor.submit(pow, 2, 6).result(LIMIT) == 64
            executor.shutdown()
            client.close()

        in_child(child)
        server.run_held()
        assert (waiter.result(LIMIT), both.result(LIMIT), call.result(LIMIT)) == ([8], [[8]], 16)
        assert executor.submit(pow, 2, 7).result(LIMIT) == 128
        assert told == [os.getpid()] * 3
