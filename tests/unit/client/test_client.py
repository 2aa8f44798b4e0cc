"""What a client promises, with a server that fails on request."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from headway import Client, HeadwayError, InvalidInput, Job, RemoteTraceback, Task, TaskFailed, as_completed, wire
from headway.client.waiters import Waiter

from ...waiting import LIMIT


def double(number: int) -> int:
    return 2 * number


def fail(number: int) -> None:
    raise ValueError(f"no {number}")


def bag(*numbers: int, name: str = "doubles") -> Job:
    return Job(name, [Task(double, number) for number in numbers])


def test_lin14_example_code_1(server: Any) -> None:
    with Client(server.url, token="right") as client:
        j1 = Job("Job1", due=200)
        j1.add_task(Task(double, 1))
        j1.add_task(Task(double, number=2))
        j2 = Job("Job2", [Task(double, 3)], due=200)
        j12_waiter = client.submit([j1, j2])

        j3 = Job("Job3", [Task(double, 4)])
        j3_waiter = client.submit(j3)
        client.wait(j3_waiter, timeout=LIMIT)
        client.wait(j12_waiter, timeout=LIMIT)

        assert j3_waiter.result() == [8]
        assert j12_waiter.result() == [[2, 4], [6]]
    assert [len(submission.jobs) for submission in server.submissions] == [2, 1]


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), float("inf")])
def test_a_request_to_a_service_is_not_sent_with_a_timeout_that_cannot_be(client: Client, timeout: float) -> None:
    with pytest.raises(InvalidInput, match=r"timeout is .*; allowed: seconds above 0"):
        client.ask("greet", timeout=timeout)


def test_submission_does_not_wait_and_results_come_in_task_order(server: Any, client: Client) -> None:
    server.held = True
    waiter = client.submit(bag(*range(100)))
    assert not waiter.done()
    assert waiter.progress == (0, 0)
    server.run_held()
    assert waiter.result(LIMIT) == [2 * number for number in range(100)]
    assert waiter.progress == (100, 0)
    assert len(waiter) == 100
    assert list(waiter) == waiter.result()


def test_the_function_travels_once(server: Any, client: Client) -> None:
    client.submit(bag(1, 2, 3)).result(LIMIT)
    client.submit(bag(4, 5)).result(LIMIT)
    first, second = server.submissions
    assert len(first.blobs) == 1
    assert second.blobs == {}
    assert second.jobs[0].work.functions == tuple(first.blobs)


def test_a_job_may_call_many_functions(client: Client) -> None:
    job = Job("mixed", [Task(double, 1), Task(len, "four"), Task(double, 2), Task(lambda: "made here")])
    assert client.submit(job).result(LIMIT) == [2, 4, 4, "made here"]


def test_a_server_that_lost_the_functions_is_given_them_again(server: Any, client: Client) -> None:
    client.submit(bag(1)).result(LIMIT)
    server.forgets_blobs = True
    assert client.submit(bag(2)).result(LIMIT) == [4]
    assert len(server.submissions) == 3


def test_commands(client: Client) -> None:
    job = Job("commands", [Task.command("echo", "part {i}") for _ in range(3)])
    assert client.submit(job).result(LIMIT) == ["part 0", "part 1", "part 2"]


def test_commands_that_are_alike_are_sent_once(server: Any, client: Client) -> None:
    client.submit(Job("commands", [Task.command("echo", "{i}") for _ in range(50)])).result(LIMIT)
    assert len(server.submissions[0].jobs[0].work.commands) == 1


def test_a_rigid_job_gives_what_each_rank_gave(client: Client) -> None:
    assert client.submit(Job("gang", [Task(double, 2)], width=3)).result(LIMIT) == [4, 4, 4]


def test_an_exception_is_raised_here_with_its_traceback(client: Client) -> None:
    waiter = client.submit(Job("mixed", [Task(double, 1), Task(fail, 7), Task(fail, 8)]))
    with pytest.raises(ValueError, match="no 7") as caught:
        waiter.result(LIMIT)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "it was there" in str(caught.value.__cause__)
    first, second, third = waiter.outcomes()
    assert (first, str(second), str(third)) == (2, "no 7", "no 8")
    assert waiter.progress == (3, 2)
    assert waiter.tasks[0].result() == 2
    assert isinstance(waiter.tasks[2].exception(), ValueError)


def test_the_future_of_a_task_does_not_say_that_it_cancels(client: Client) -> None:
    waiter = client.submit(Job("waits", [Task(double, 1), Task(double, 2)]))
    assert not waiter.tasks[1].cancel()
    assert waiter.result(LIMIT) == [2, 4]
    assert waiter.tasks[1].result(LIMIT) == 4


def test_a_failed_command_says_what_it_wrote(client: Client) -> None:
    with pytest.raises(TaskFailed, match="exit status 1") as caught:
        client.submit(Job("bad", [Task.command("false", "no such file")])).result(LIMIT)
    assert "no such file" in caught.value.hint
    assert caught.value.ending is not None
    assert caught.value.ending.exit_code == 1


def test_waiters_are_futures(server: Any, client: Client) -> None:
    server.held = True
    waiters = client.submit([bag(1), bag(2), bag(3)])
    called = threading.Event()
    waiters[1].add_done_callback(lambda waiter: called.set())
    with pytest.raises(TimeoutError):
        waiters.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        client.wait(waiters, timeout=0.01)
    with pytest.raises(TimeoutError):
        waiters[0].outcomes(timeout=0.01)
    server.run_held()
    assert concurrent.futures.wait(list(waiters), LIMIT).not_done == set()
    assert called.wait(LIMIT)
    assert {waiter.result()[0] for waiter in as_completed(waiters, LIMIT)} == {2, 4, 6}
    assert {future.result() for future in as_completed(waiters[0].tasks, LIMIT)} == {2}
    assert waiters.outcomes(LIMIT) == [[2], [4], [6]]


def test_waiting_for_many_locks_one_at_a_time(client: Client) -> None:
    """A thread that ctrl-C interrupts within `concurrent.futures.wait` may leave all of them locked for ever."""
    held, most = 0, 0

    class Watched(threading.Condition):
        def __enter__(self) -> bool:
            nonlocal held, most
            entered = super().__enter__()
            held += 1
            most = max(most, held)
            return entered

        def __exit__(self, *trouble: Any) -> None:
            nonlocal held
            held -= 1
            super().__exit__(*trouble)

    open_: list[Future[int]] = [Future() for _ in range(3)]
    for future in open_:
        future._condition = Watched()
    open_[0].set_result(1)
    open_[1].cancel()
    with pytest.raises(TimeoutError, match=r"1 of 3 have not ended within 0\.01 s"):
        client.wait(*open_, timeout=0.01)
    assert most == 1


def test_task_futures_asked_for_early_are_fulfilled(server: Any, client: Client) -> None:
    server.held = True
    waiter = client.submit(Job("mixed", [Task(double, 1), Task(fail, 2)]))
    futures = waiter.tasks
    server.run_held()
    assert futures[0].result(LIMIT) == 2
    assert isinstance(futures[1].exception(LIMIT), ValueError)
    assert waiter.tasks is futures


def test_no_jobs_is_no_question(server: Any, client: Client) -> None:
    assert client.submit([]).result(LIMIT) == []
    assert server.asked["submit"] == 0


def test_cancelling_a_job(server: Any, client: Client) -> None:
    server.held = True
    waiter = client.submit(bag(1, 2))
    futures = waiter.tasks
    assert waiter.cancel()
    assert waiter.cancelled()
    assert all(future.cancelled() for future in futures)
    with pytest.raises(CancelledError):
        waiter.result(LIMIT)
    assert server.cancelled == [waiter.job]
    done = client.submit(bag(1))
    server.run_held()
    done.result(LIMIT)
    assert not done.cancel()
    assert server.cancelled == [waiter.job]


def test_a_server_that_is_slow_to_cancel_does_not_stop_an_event_loop() -> None:
    asked, answer = threading.Event(), threading.Event()

    def ask(job: int) -> bool:
        asked.set()
        return answer.wait(LIMIT)

    async def scenario() -> None:
        waiter = Waiter("slow", 1, ask)
        assert waiter.cancel()
        assert await asyncio.to_thread(asked.wait, LIMIT)
        assert not waiter.done(), "nothing is said before the server has answered"
        answer.set()
        with pytest.raises(asyncio.CancelledError):
            await waiter

    asyncio.run(scenario())


def test_given_up_waits_leave_nothing_behind() -> None:
    waiter = Waiter("waits", 1, lambda job: pytest.fail("nobody asked to cancel it"))

    async def scenario() -> None:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waiter, 0.001)

    asyncio.run(scenario())
    assert not waiter.done()
    assert waiter._done_callbacks == []  # type: ignore[attr-defined]


def test_a_callback_may_submit(client: Client) -> None:
    second: Future[Any] = Future()
    client.submit(bag(1)).add_done_callback(
        lambda _: client.submit(bag(2)).add_done_callback(lambda w: second.set_result(w.result()))
    )
    assert second.result(LIMIT) == [4]


def test_large_results_are_fetched(server: Any, client: Client) -> None:
    server.inline_max = 100
    waiter = client.submit(Job("large", [Task(bytes, 1000 if i % 2 else 1) for i in range(9)]))
    assert [len(value) for value in waiter.result(LIMIT)] == [1, 1000] * 4 + [1]


def test_many_messages_come_in_pages(server: Any, client: Client) -> None:
    server.page = 7
    assert client.submit(bag(*range(50))).result(LIMIT) == [2 * i for i in range(50)]


@pytest.mark.parametrize("route", ["submit", "messages", "results", "policy"])
def test_an_answer_that_is_lost_loses_and_repeats_nothing(server: Any, client: Client, route: str) -> None:
    server.inline_max = 0
    server.held = True
    client.submit(bag(0))
    server.drop += [route] * 3
    waiter = client.submit(bag(*range(20)))
    futures = waiter.tasks
    calls: list[int] = []
    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, number=number: calls.append(number))  # type: ignore[misc]
    server.run_held()
    assert waiter.result(LIMIT) == [2 * i for i in range(20)]
    assert client.policy() == "fcfs"
    assert sorted(calls) == list(range(20))
    assert len({submission.key for submission in server.submissions}) == 2
    assert server.drop == []


def test_a_server_that_is_started_again_is_found_again(server: Any, client: Client) -> None:
    server.held = True
    before = client.submit(bag(1, 2))
    server.stop()
    started = threading.Event()

    def submit() -> Any:
        started.set()
        return client.submit(bag(3))

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        during = pool.submit(submit)
        assert started.wait(LIMIT)
        server.start()
        server.run_held()
        assert during.result(LIMIT).result(LIMIT) == [6]
    assert before.result(LIMIT) == [2, 4]


def test_a_server_that_comes_back_elsewhere_is_found_by_its_data_directory(server: Any, tmp_path: Any) -> None:
    (tmp_path / "token").write_text("right\n")
    (tmp_path / "url").write_text(server.url)
    with Client(data=tmp_path) as client:
        server.held = True
        waiter = client.submit(bag(1))
        (tmp_path / "url").unlink()  # as a server that stops in order
        server.stop()
        with pytest.raises(HeadwayError, match="no server is known"), Client(data=tmp_path):
            pass
        server.port = 0
        server.start()
        (tmp_path / "url").write_text(server.url)
        server.run_held()
        assert waiter.result(LIMIT) == [2]


def test_patience_ends(server: Any) -> None:
    with Client(server.url, token="right", patience=0) as client:
        server.stop()
        with pytest.raises(HeadwayError, match="no server answers"):
            client.policy()
        server.start()
        assert client.policy() == "fcfs"


def test_a_refused_submission_says_why_and_nothing_is_left(server: Any, client: Client) -> None:
    server.refuse = (422, wire.ErrorBody("width is 9; allowed: 2 at most", "Take fewer."))
    with pytest.raises(HeadwayError, match="width is 9") as caught:
        client.submit(Job("wide", [Task(double, 1)], width=9))
    assert caught.value.hint == "Take fewer."
    assert client.submit(bag(1)).result(LIMIT) == [2]


def test_a_wrong_token_is_said_at_once(server: Any) -> None:
    with pytest.raises(HeadwayError, match="wrong token"):
        Client(server.url, token="wrong")


def test_something_else_on_the_port_is_said(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "answer", lambda *_: ("policy", 400, "not ours"))
    with pytest.raises(HeadwayError, match="does not answer as Headway does"):
        Client(server.url, token="right")


def test_attach_to_a_job_of_another_client(server: Any, client: Client) -> None:
    server.held = True
    theirs = client.submit(bag(1, 2, name="theirs"))
    with Client(server.url, token="right") as other:
        waiting = other.attach(theirs.job, trust=True)
        assert (waiting.name, len(waiting)) == ("theirs", 2)
        server.run_held()
        assert waiting.result(LIMIT) == [2, 4]
        assert other.attach(theirs.job, trust=True).result(LIMIT) == [2, 4]
        with pytest.raises(HeadwayError, match="no job 99"):
            other.attach(99, trust=True)


def test_a_job_whose_results_were_cleared_says_so(server: Any, client: Client) -> None:
    waiter = client.submit(bag(1))
    waiter.result(LIMIT)
    server._results.clear()
    with pytest.raises(HeadwayError, match="results of job 1 have been cleared"):
        client.attach(waiter.job, trust=True)
    server.held, server.inline_max = True, 0
    waiter = client.submit(bag(2))
    server._on_results = lambda *_: (200, wire.Results(()))
    server.run_held()
    with pytest.raises(HeadwayError, match="results of job 2 have been cleared"):
        waiter.result(LIMIT)


def test_a_server_of_another_version_is_said(server: Any, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(server, "_on_messages", lambda *_: (200, {"messages": 7, "cursor": 1}))
        patch.setattr(server, "_on_policy", lambda *_: (200, wire.Done(1)))
        with pytest.raises(HeadwayError, match="cannot be read"):
            client.policy()
        with pytest.raises(HeadwayError, match="cannot be read"):
            client.submit(bag(1)).result(LIMIT)
    assert client.submit(bag(2)).result(LIMIT) == [4]


def test_close_ends_waiters_and_says_that_jobs_go_on(server: Any) -> None:
    server.held = True
    client = Client(server.url, token="right")
    waiter = client.submit(bag(1))
    client.close()
    with pytest.raises(HeadwayError, match="the job goes on"):
        waiter.result(LIMIT)
    with pytest.raises(HeadwayError, match="client is closed"):
        client.submit(bag(1))
    client.close()


def test_wait_for_everything(server: Any, client: Client) -> None:
    waiters = [client.submit(bag(number)) for number in range(5)]
    client.wait(timeout=LIMIT)
    assert all(waiter.done() for waiter in waiters)


def test_lists_come_in_pages(client: Client) -> None:
    client.submit([bag(1) for _ in range(5)]).result(LIMIT)
    assert [job.id for job in client.jobs()] == [1, 2, 3, 4, 5]
    assert [job.id for job in client.jobs(last=2)] == [4, 5]
    assert [result.task for result in client.results(1)] == [0]
    assert client.clear(1, 2) == 2


def test_results_come_in_pages(client: Client) -> None:
    waiter = client.submit(bag(*range(5)))
    waiter.result(LIMIT)
    assert [result.task for result in client.results(waiter.job)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Job("empty"), "no tasks"),
        (Job("late", [Task(double, 1)], due="tomorrow"), "due is 'tomorrow'; allowed: 18:00, tomorrow 6:00"),
        (Job("late", [Task(double, 1)], due=-1.8e9), "allowed: seconds from now on"),
        (Job("due", [Task(double, 1)], due=float("nan")), "due is nan"),
        (Job("long", [Task(double, 1)], estimate=float("inf")), "estimate is inf"),
        (Job("negative", [Task(double, 1)], retries=-1), "retries is -1"),
        (Job("shape", [Task(double, 1)], shape="cube"), "shape is 'cube'"),  # type: ignore[arg-type]
        (Job("both", [Task(double, 1), Task.command("echo")]), "call functions and tasks that run programs"),
        (Job("gang", [Task(double, 1), Task(double, 2)], width=3), "the number of tasks, which is 2"),
        (Job("gang", [Task(double, 1), Task(double, 2).after(Task(double, 1))], together=True), "is rigid, but"),
        (Job("flow", [Task(double, 1).after(Task(double, 2))]), "not added before it"),
    ],
)
def test_what_cannot_be_submitted(server: Any, client: Client, job: Job, message: str) -> None:
    with pytest.raises(HeadwayError, match=message):
        client.submit([bag(1), job])
    assert server.submissions == []


def test_what_is_no_task() -> None:
    with pytest.raises(InvalidInput, match="can be called"):
        Task("echo")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="a program"):
        Task.command()
