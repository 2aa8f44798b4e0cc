"""The client with a real server: values, ends of every kind, gangs, workflows, restarts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from headway import (
    Client,
    HeadwayError,
    HeadwayExecutor,
    InvalidInput,
    Job,
    Refused,
    RemoteTraceback,
    Task,
    TaskFailed,
    Workflow,
    as_completed,
    wire,
)
from headway.client import inbox
from headway.model.actions import JobStatus
from headway.model.events import Outcome

from ..waiting import LIMIT, until


@pytest.fixture(scope="module", autouse=True)
def _carried() -> Iterator[None]:
    """The functions of this file cannot be imported where tasks run, so they are sent by value."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def client(up: Any) -> Iterator[Client]:
    with Client(data=up.data) as client:
        yield client


def square(number: int) -> int:
    return number * number


def boom(text: str) -> None:
    raise LookupError(text)


def set_name(name: str) -> None:
    os.environ["HEADWAY_TEST_NAME"] = name


def name_of_process(_: int) -> str:
    return os.environ.get("HEADWAY_TEST_NAME", "")


def place_of(_: int) -> tuple[str, str | None, int]:
    """The folder, a variable and the process of this task."""
    return os.getcwd(), os.environ.get("HEADWAY_TEST_PASSED"), os.getpid()


def named(client: Client, name: str) -> list[wire.JobReport]:
    return [job for job in client.jobs() if job.name == name]


def until_released(gate: str, value: int) -> int:
    """Report that it runs, and wait until the gate is removed."""
    Path(f"{gate}.{value}").touch()
    while Path(gate).exists():
        time.sleep(0.005)
    return value


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    path.touch()
    return path


def running(gate: Path, *values: int) -> bool:
    return all(Path(f"{gate}.{value}").exists() for value in values)


def filled(size: int) -> bytes:
    return os.urandom(16) + bytes(size)


def first_and_length(value: bytes) -> tuple[bytes, int]:
    return value[:16], len(value)


@pytest.mark.parametrize("size", [200_000, 5 << 20])
def test_large_results_come_whole_and_are_given_on_and_raised(client: Client, size: int) -> None:
    """What is large stays where it has arrived until it is written down; see `Ending.result`."""
    flow = Workflow("large")
    large = flow.task(filled, size, name="large")
    flow.task(first_and_length, large, name="seen")
    waiter = client.submit(flow)
    result = waiter["large"].result(LIMIT)
    assert waiter["seen"].result(LIMIT) == (result[:16], 16 + size) == (result[:16], len(result))
    with pytest.raises(LookupError) as raised:
        client.submit(Job("boom", [Task(boom, "x" * size)])).result(LIMIT)
    assert len(str(raised.value)) == size


def test_lin14_example_code_1(up: Any) -> None:
    with Client(up.url, token=(up.data / "token").read_text().strip()) as client:
        j1 = Job("Job1")
        j1.add_task(Task(square, 1))
        j1.add_task(Task(square, 2))
        j2 = Job("Job2")
        j2.add_task(Task(square, 3))
        j1.due = j2.due = timedelta(seconds=200)
        j12_waiter = client.submit([j1, j2])

        j3 = Job("Job3")
        j3.add_task(Task(square, number=4))
        j3_waiter = client.submit(j3)
        client.wait(j3_waiter, timeout=LIMIT)
        client.wait(j12_waiter, timeout=LIMIT)
        assert [*j12_waiter.result(), j3_waiter.result()] == [[1, 4], [9], [16]]


def test_results_come_in_task_order_and_once(client: Client) -> None:
    waiter = client.submit(Job("squares", [Task(square, number) for number in range(500)]))
    assert list(waiter) == [number * number for number in range(500)]
    results = client.results(waiter.job)
    assert [result.task for result in results] == list(range(500))
    assert {result.attempt for result in results} == {1}


def test_large_and_strange_values(client: Client) -> None:
    values = [b"x" * 300_000, None, float("inf"), {"a": [1, (2,)]}, square, "ü" * 70_000]
    found = client.submit(Job("values", [Task(lambda value: value, value) for value in values])).result(LIMIT)
    assert found[:4] + found[5:] == values[:4] + values[5:]
    assert found[4](7) == 49


def test_an_exception_comes_with_its_traceback(client: Client) -> None:
    with pytest.raises(LookupError, match="not here") as caught:
        client.submit(Job("bad", [Task(boom, "not here")])).result(LIMIT)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in boom" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("task", "terms", "outcome", "said"),
    [
        (Task(os._exit, 3), {}, Outcome.EXITED, "3"),
        (Task(lambda: os.kill(os.getpid(), signal.SIGSEGV)), {}, Outcome.SIGNALLED, "SEGV"),
        (Task(time.sleep, 60), {"time_limit": 0.05}, Outcome.OUT_OF_TIME, "longer than 0.05 s"),
        (Task(threading.Lock), {}, None, "pickle"),
        (Task.command("no-such-program"), {}, Outcome.REFUSED, "no-such-program"),
        (Task.command("sh", "-c", "echo lost the key >&2; exit 4"), {}, Outcome.EXITED, "4"),
    ],
)
def test_ends_that_are_no_results(
    client: Client, task: Task, terms: dict[str, Any], outcome: Outcome | None, said: str
) -> None:
    waiter = client.submit(Job("bad", [task], **terms))
    error = waiter.exception(LIMIT)
    assert said in str(error) + str(error.__cause__)
    assert waiter.status is JobStatus.FAILED
    if outcome is not None:
        assert isinstance(error, TaskFailed)
        assert error.ending is not None
        assert error.ending.outcome is outcome
    assert client.submit(Job("good", [Task(square, 3)])).result(LIMIT) == [9]


def test_what_a_failed_program_wrote_is_in_its_error(client: Client) -> None:
    error = client.submit(Job("bad", [Task.command("sh", "-c", "echo lost the key >&2; exit 4")])).exception(LIMIT)
    assert isinstance(error, TaskFailed)
    assert "lost the key" in error.hint


def test_retries(client: Client, tmp_path: Path) -> None:
    script = f"test -e {tmp_path}/tried || {{ touch {tmp_path}/tried; exit 1; }}; echo done"
    waiter = client.submit(Job("again", [Task.command("sh", "-c", script)], retries=1))
    assert waiter.result(LIMIT) == ["done\n"]
    assert client.results(waiter.job)[0].attempt == 2


def test_commands_read_and_write_files(client: Client, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"in{number}").write_text(f"line {number}\n")
    task = Task.command("tr", "a-z", "A-Z", cwd=tmp_path, stdin="in{i}", stdout="out{i}")
    assert client.submit(Job("upper", [task] * 3)).result(LIMIT) == [f"LINE {n}\n" for n in range(3)]
    assert [(tmp_path / f"out{number}").read_text() for number in range(3)] == [f"LINE {n}\n" for n in range(3)]


def test_a_gang_starts_together_and_has_a_result_a_rank(client: Client, tmp_path: Path) -> None:
    def meet(rank: int) -> int:
        (tmp_path / f"{rank}").touch()
        while not (tmp_path / f"{1 - rank}").exists():
            time.sleep(0.005)
        return rank

    assert client.submit(Job("gang", [Task(meet, 0), Task(meet, 1)], together=True)).result(LIMIT) == [0, 1]
    ranks = Job("ranks", [Task.command("sh", "-c", "echo {i} of $HEADWAY_WIDTH, $HEADWAY_RANK")], width=2)
    assert client.submit(ranks).result(LIMIT) == ["0 of 2, 0\n", "1 of 2, 1\n"]


def test_one_rank_that_fails_ends_the_gang(client: Client) -> None:
    waiter = client.submit(Job("gang", [Task(time.sleep, 60), Task(boom, "rank 1")], together=True))
    with pytest.raises(LookupError, match="rank 1"):
        waiter.result(LIMIT)
    assert [type(error) for error in waiter.outcomes()] == [LookupError, LookupError]


def test_a_workflow_keeps_its_order(client: Client, tmp_path: Path) -> None:
    def note(name: str) -> list[str]:
        before = sorted(path.name for path in tmp_path.iterdir())
        (tmp_path / name).touch()
        return before

    job = Job("diamond", estimate=1)
    top = job.add_task(Task(note, "a"))
    sides = [job.add_task(Task(note, name).after(top)) for name in "bc"]
    job.add_task(Task(note, "d"), after=sides)
    found = client.submit(job).result(LIMIT)
    assert found[0] == []
    assert all("a" in side for side in found[1:3])
    assert found[3] == ["a", "b", "c"]


def test_what_comes_after_a_failure_does_not_run(client: Client) -> None:
    job = Job("broken chain")
    first = job.add_task(Task(boom, "first"))
    job.add_task(Task(square, 2).after(first))
    first_end, second_end = client.submit(job).outcomes(LIMIT)
    assert isinstance(first_end, LookupError)
    assert "did not run" in str(second_end)


def test_wider_than_the_cluster_is_refused_with_the_reason(client: Client) -> None:
    with pytest.raises(HeadwayError, match="width is 3"):
        client.submit([Job("fits", [Task(square, 1)]), Job("wide", [Task(square, 1)], width=3)])
    assert [job for job in client.jobs() if job.name == "fits"] == []


def test_cancelling_kills_what_runs(client: Client, gate: Path) -> None:
    waiter = client.submit(Job("long", [Task(until_released, str(gate), number) for number in range(10)]))
    until(lambda: running(gate, 0, 1))
    assert waiter.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        waiter.result(LIMIT)
    until(lambda: client.job(waiter.job).job.status is JobStatus.CANCELLED)
    assert client.submit(Job("next", [Task(square, 5)])).result(LIMIT) == [25]
    assert not running(gate, 2)


def test_a_job_is_named_by_its_waiter_as_by_its_id(client: Client, gate: Path) -> None:
    waiter = client.submit(
        Job("waits", [Task.command("sh", "-c", f"while test -e {gate}; do sleep 0.05; done; exit 3")])
    )
    assert client.explain(waiter).job == client.job(waiter).job.id == waiter.job
    assert client.change(waiter, priority=7)
    assert client.job(waiter).job.priority == 7
    gate.unlink()
    client.wait(waiter, timeout=LIMIT)
    assert [result.task for result in client.results(waiter)] == [0]
    again = client.retry(waiter)
    assert client.cancel(waiter) == 0
    client.wait(again, timeout=LIMIT)
    for verb in (client.job, client.results, client.explain, client.cancel, client.change, client.retry):
        with pytest.raises(
            InvalidInput, match="job is 'seven'; allowed: ids of jobs that were submitted, or their waiters"
        ):
            verb("seven")


def test_when_a_job_ends_and_which_due_date_it_keeps_is_asked_of_the_server(client: Client, gate: Path) -> None:
    waits = Task.command("sh", "-c", f"while test -e {gate}; do sleep 0.05; done")
    known = client.submit(Job("known", [waits], estimate=600, due=time.time() + 3600))
    unknown = client.submit(Job("nobody knows", [waits]))
    chance = until(known.forecast)
    assert chance.end is not None
    assert chance.on_time is not None
    assert 0 <= chance.on_time <= 1
    assert unknown.forecast() is None
    now, before = time.time(), len(client.jobs())
    for asked in (known, known.job, Job("planned", [Task.command("true")], estimate=600)):
        advice = client.advise(asked, sure=0.8)
        assert advice.sure == 0.8
        assert advice.due is not None, advice.lack
        assert advice.due >= now
    assert "neither an estimate" in client.advise(Job("never seen", [Task.command("true")])).lack
    with pytest.raises(Refused, match=r"sure is 1\.0"):
        client.advise(known, sure=1.0)
    assert len(client.jobs()) == before
    gate.unlink()
    client.wait(known, unknown, timeout=LIMIT)
    assert known.forecast() is None


def test_an_urgent_job_goes_before_under_a_policy_chosen_while_jobs_wait(client: Client, gate: Path) -> None:
    client.choose_policy("fcfs")
    first = client.submit(Job("first", [Task(until_released, str(gate), number) for number in range(2)]))
    until(lambda: running(gate, 0, 1))
    slow = client.submit(Job("slow", [Task(square, number) for number in range(20)], priority=1))
    urgent = client.submit(Job("urgent", [Task(square, 9)], priority=9))
    assert client.explain(urgent.job).status is JobStatus.WAITING
    assert client.explain(urgent.job).text
    assert client.choose_policy("priority") == client.policy()
    assert client.change(slow.job, priority=2)
    gate.unlink()
    client.wait(first, slow, urgent, timeout=LIMIT)
    assert client.job(urgent.job).job.started < client.job(slow.job).job.ended
    assert not client.change(slow.job, priority=3)
    client.choose_policy("fcfs")


def test_as_completed_gives_the_first_end_first(client: Client, gate: Path) -> None:
    waiters = client.submit([Job("slow", [Task(until_released, str(gate), 1)]), Job("quick", [Task(square, 2)])])
    ends = as_completed(waiters, LIMIT)
    assert next(ends) is waiters[1]
    gate.unlink()
    assert next(ends) is waiters[0]


def test_attach_from_another_client(up: Any, client: Client, gate: Path) -> None:
    mine = client.submit(Job("mine", [Task(until_released, str(gate), number) for number in range(2)]))
    with Client(data=up.data) as other:
        theirs = other.attach(mine.job, trust=True)
        gate.unlink()
        assert theirs.result(LIMIT) == mine.result(LIMIT) == [0, 1]
        assert other.attach(mine.job, trust=True).result(LIMIT) == [0, 1]
        assert other.clear(mine.job) == 1
        with pytest.raises(HeadwayError, match="have been cleared"):
            other.attach(mine.job, trust=True)


def test_the_executor(client: Client) -> None:
    with HeadwayExecutor(client, name="by executor") as executor:
        assert list(executor.map(square, range(300), timeout=LIMIT)) == [number * number for number in range(300)]
        assert isinstance(executor.submit(boom, "again").exception(LIMIT), LookupError)
    jobs = named(client, "by executor")
    assert sum(job.tasks for job in jobs) == 301
    assert [client.results(job.id) for job in jobs] == [[]] * len(jobs)


def test_cancel_futures_kills_what_runs(client: Client, gate: Path) -> None:
    executor = HeadwayExecutor(client, name="given up")
    futures = [executor.submit(until_released, str(gate), number) for number in range(10)]
    until(lambda: running(gate, 0))
    until(lambda: sum(job.tasks for job in named(client, "given up")) == 10)  # what was not sent yet is just dropped
    executor.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    jobs = named(client, "given up")
    assert sum(job.tasks for job in jobs) == 10
    assert {job.status for job in jobs} == {JobStatus.CANCELLED}


def test_calls_are_cancelled_though_others_of_their_batch_have_ended(client: Client, gate: Path) -> None:
    executor = HeadwayExecutor(client, name="given up later")
    futures = [executor.submit(until_released, str(gate), number) for number in range(2)]
    until(lambda: running(gate, 0, 1))
    batch = [executor.submit(square, number) for number in range(50)]  # they wait, so they go together
    batch += [executor.submit(until_released, f"{gate}2", number) for number in range(2)]
    Path(f"{gate}2").touch()
    assert futures[1].cancel()  # a running call is killed, and the others continue on its slot
    assert [future.result(LIMIT) for future in batch[:50]] == [number * number for number in range(50)]
    until(lambda: Path(f"{gate}2.0").exists())
    executor.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in (*futures, *batch[50:]))
    assert client.submit(Job("next", [Task(square, 5)], due=0)).result(LIMIT) == [25]
    until(lambda: all(not node.attempts for node in client.nodes()))


def test_an_initializer_and_max_workers(client: Client) -> None:
    with HeadwayExecutor(1, client=client, initializer=set_name, initargs=("mine",), name="narrow") as executor:
        assert set(executor.map(name_of_process, range(20), timeout=LIMIT)) == {"mine"}
        assert executor._max_workers == 1
    jobs = sorted(named(client, "narrow"), key=lambda job: job.id)
    assert len(jobs) == 20
    for before, after in itertools.pairwise(jobs):
        assert before.ended <= after.submitted
    with HeadwayExecutor(client=client) as executor:
        assert executor._max_workers == 2
        assert set(executor.map(name_of_process, range(20), timeout=LIMIT)) == {""}
    with HeadwayExecutor(client=client, initializer=boom, initargs=("no licence",)) as executor:
        with pytest.raises(concurrent.futures.BrokenExecutor, match="no licence"):
            executor.submit(square, 2).result(LIMIT)
        with pytest.raises(concurrent.futures.BrokenExecutor):
            executor.submit(square, 2)


class OwnError(Exception):
    """An error that cannot be unpickled, because its arguments are not those of its constructor."""

    def __init__(self, code: int, *, where: str) -> None:
        super().__init__(f"code {code} in {where}")


def raise_own() -> None:
    raise OwnError(3, where="there")


def test_everyday_use_of_futures(client: Client, gate: Path) -> None:
    with HeadwayExecutor(client=client) as executor:
        error = executor.submit(raise_own).exception(LIMIT)
        assert isinstance(error, TaskFailed)
        assert "code 3 in there" in str(error)
        large = os.urandom(5 << 20)
        assert executor.submit(bytes, large).result(LIMIT) == large
        held = executor.submit(until_released, str(gate), 0)
        with pytest.raises(TimeoutError):
            held.result(0.01)
        with pytest.raises(TimeoutError):
            list(executor.map(until_released, [str(gate)] * 2, [1, 2], timeout=0.2))
        gate.unlink()
        assert held.result(LIMIT) == 0
        assert list(executor.map(square, range(100), chunksize=7, timeout=LIMIT)) == [n * n for n in range(100)]
        futures = {executor.submit(square, number): number for number in range(1000)}
        for future in concurrent.futures.as_completed(futures, LIMIT):
            assert future.result() == futures.pop(future) ** 2
        assert futures == {}
        others = [HeadwayExecutor(client=client) for _ in range(3)]
        assert [one.submit(square, 3).result(LIMIT) for one in others] == [9] * 3
        for one in others:
            one.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 2)


def test_in_asyncio(client: Client) -> None:
    async def scenario() -> list[int]:
        loop = asyncio.get_running_loop()
        with HeadwayExecutor(client=client) as executor:
            with pytest.raises(LookupError, match="not here"):
                await loop.run_in_executor(executor, boom, "not here")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(loop.run_in_executor(executor, time.sleep, 600), 0.1)  # it is killed
            return await asyncio.gather(*[loop.run_in_executor(executor, square, n) for n in range(50)])

    assert asyncio.run(scenario()) == [n * n for n in range(50)]
    until(lambda: all(not node.attempts for node in client.nodes()))


INTERRUPTED = """
import sys
from headway import Client, HeadwayExecutor
import time
with Client(data=sys.argv[1]) as client, HeadwayExecutor(client=client) as executor:
    future = executor.submit(time.sleep, 600)
    try:
        print("waits", flush=True)
        future.result()
    except KeyboardInterrupt:
        print("interrupted", future.cancel(), flush=True)
"""


def test_ctrl_c_while_waiting_for_a_result(up: Any) -> None:
    ran = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(up.data)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert ran.stdout is not None
    assert ran.stdout.readline() == "waits\n"
    time.sleep(0.3)
    ran.send_signal(signal.SIGINT)
    out, err = ran.communicate(timeout=LIMIT)
    assert (out, ran.returncode) == ("interrupted True\n", 0), err


def test_a_server_that_is_killed_and_started_again_loses_nothing(up: Any, client: Client, gate: Path) -> None:
    done = client.submit(Job("done", [Task(square, number) for number in range(50)]))
    done.result(LIMIT)
    half = client.submit(Job("half", [Task(until_released, str(gate), number) for number in range(6)]))
    until(lambda: running(gate, 0, 1))
    told: list[int] = []
    for number, future in enumerate(half.tasks):
        future.add_done_callback(lambda _, number=number: told.append(number))  # type: ignore[misc]
    up.kill()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        # Submitted while no server runs: it is sent until one does, and accepted once.
        meanwhile = pool.submit(client.submit, Job("meanwhile", [Task(square, 6)]))
        up.start()
        gate.unlink()
        assert meanwhile.result(LIMIT).result(LIMIT) == [36]
    assert half.result(LIMIT) == list(range(6))
    assert sorted(told) == list(range(6))
    assert [job.name for job in client.jobs()].count("meanwhile") == 1
    assert [result.task for result in client.results(done.job)] == list(range(50))


def test_a_node_that_dies_has_its_task_redone(up: Any, client: Client, gate: Path) -> None:
    waiter = client.submit(Job("survives", [Task(until_released, str(gate), number) for number in range(2)]))
    until(lambda: running(gate, 0, 1))
    (lost,) = [run.task for node in client.nodes() if node.name == "n-1" for run in node.attempts]
    up.agent("n-1").kill()
    until(lambda: any(result_attempt > 1 for result_attempt in attempts(client, waiter.job)))
    gate.unlink()
    assert waiter.result(LIMIT) == [0, 1]
    assert client.results(waiter.job)[lost].attempt > 1


def attempts(client: Client, job: int) -> list[int]:
    return [run.attempt for run in client.job(job).attempts]


def test_a_wrong_token_is_refused(up: Any) -> None:
    with pytest.raises(HeadwayError, match="token"):
        Client(up.url, token="guessed")


class TestWhereFunctionsRun:
    def test_in_the_submitters_folder_with_the_variables_that_are_named(
        self, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HEADWAY_TEST_PASSED", "unnamed")
        (tmp_path / "sub").mkdir()
        tasks = [Task(place_of, 0)]
        ((folder, variable, _),) = client.submit(Job("plain", tasks)).result(LIMIT)
        assert (folder, variable) == (str(tmp_path), None)
        terms: dict[str, Any] = {"cwd": "sub", "env": ["HEADWAY_TEST_PASSED"]}
        ((folder, variable, _),) = client.submit(Job("named", tasks, **terms)).result(LIMIT)
        assert (folder, variable) == (str(tmp_path / "sub"), "unnamed")

    def test_nothing_of_it_is_left_for_warm_jobs_after_it(self, client: Client, tmp_path: Path) -> None:
        terms: dict[str, Any] = {"warm": "places", "cwd": tmp_path, "env": {"HEADWAY_TEST_PASSED": "yes"}}
        first = client.submit(Job("first", [Task(place_of, n) for n in range(4)], **terms)).result(LIMIT)
        assert {place[:2] for place in first} == {(str(tmp_path), "yes")}
        second = client.submit(Job("second", [Task(place_of, n) for n in range(4)], warm="places")).result(LIMIT)
        assert {place[:2] for place in second} == {(os.getcwd(), None)}
        assert {place[2] for place in second} <= {place[2] for place in first}

    def test_a_folder_that_is_not_there_is_said_if_it_was_named(
        self, client: Client, up: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        waiter = client.submit(Job("named", [Task(place_of, 0)], cwd=gone / "nowhere"))
        with pytest.raises(TaskFailed, match=f"cannot run in the folder {gone}/nowhere: No such file or directory"):
            waiter.result(LIMIT)
        gone.rmdir()
        ((folder, _, _),) = client.submit(Job("from nowhere", [Task(place_of, 0)])).result(LIMIT)
        assert folder == os.readlink(f"/proc/{up.pid}/cwd")

    def test_fresh_calls_have_a_process_each(self, client: Client) -> None:
        pids = [pid for _, _, pid in client.submit(Job("kept", [Task(place_of, n) for n in range(6)])).result(LIMIT)]
        assert len(set(pids)) <= 2
        tasks = [Task(place_of, n) for n in range(6)]
        pids = [pid for _, _, pid in client.submit(Job("fresh", tasks, fresh=True)).result(LIMIT)]
        assert len(set(pids)) == 6

    def test_an_executor_runs_calls_so_too(self, client: Client, tmp_path: Path) -> None:
        with HeadwayExecutor(client=client, cwd=tmp_path, env={"HEADWAY_TEST_PASSED": "yes"}) as executor:
            assert executor.submit(place_of, 0).result(LIMIT)[:2] == (str(tmp_path), "yes")


def test_what_the_server_refuses_is_said_in_the_words_of_the_job(client: Client) -> None:
    many = [Task(square, number) for number in range(99)]
    with pytest.raises(
        Refused, match=r"job 'wide': together, with 99 tasks, needs 99 slots at once; allowed"
    ) as refused:
        client.submit([Job("well", [Task(square, 1)]), Job("wide", many, together=True)])
    assert refused.value.code == "invalid_input"
    with pytest.raises(Refused, match="job 'wide': width is 99; allowed: at most "):
        client.submit(Job("wide", [Task.command("true")], width=99))
    gone = client.submit(Job("gone", [Task(boom, "gone")]))
    client.wait(gone)
    with pytest.raises(Refused, match=rf"job 'next': after is {gone.job}; allowed: .* this one has ended: failed"):
        client.submit(Job("next", [Task(square, 1)], after=gone))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda client: client.wait(9999), "waiters is 9999; allowed: waiters of jobs, or futures"),
        (lambda client: client.submit("p"), "jobs is 'p'; allowed: a Job, or several"),
        (lambda client: Job("p", Task(square, 1)), "tasks is .*; allowed: a list of tasks"),
        (lambda client: client.submit(Job("p", [Task(square, 1)], after="first")), "after is 'first'; allowed: "),
        (lambda client: client.submit(Job("p")), "job 'p' has no tasks"),
        (lambda client: client.submit(Job("p", [Task(square, 1)], memory_limit=-1)), "memory_limit is -1; allowed: "),
    ],
)
def test_what_is_no_job_or_no_waiter_is_invalid_input(client: Client, wrong: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        wrong(client)


def test_a_client_is_closed_though_an_interrupted_wait_left_a_future_locked(
    up: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at the wrong moment within `concurrent.futures.wait` does that."""
    monkeypatch.setattr(inbox, "ENDS_WITHIN", 0.1)
    client = Client(data=up.data)
    waiter = client.submit(Job("waits", [Task.command("sleep", "60")]))
    with waiter._condition:
        client.close()
        assert not waiter.done()
    with pytest.raises(HeadwayError, match="the client was closed; the job goes on"):
        waiter.result(LIMIT)
    with Client(data=up.data) as other:
        other.attach(waiter.job).cancel()
