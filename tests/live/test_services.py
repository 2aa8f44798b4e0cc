"""Services on a real server: requests of many kinds of callers, while instances and servers come and go."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway import Client, HeadwayError, InvalidInput, Job, Refused, Service, Task
from headway.model.actions import JobStatus
from headway.model.outcome import Outcome

from ..waiting import gone, paths_below, until
from .conftest import Up, headway

POLICY = "services:batch=tempo"

HANDLERS = """
import os, time

def double(value):
    return 2 * value

def who(value):
    return os.getpid()

def nap(seconds):
    time.sleep(seconds)
    return os.getpid()

def do(what):
    if what == "die":
        os.kill(os.getpid(), 9)
    if what == "hang":
        time.sleep(1000)
    if what == "much":
        return b"x" * 100_000_000
    if what == "odd":
        return object()
    if what == "raise":
        raise ValueError("as it was told")
    return what

def variable(name):
    return os.environ.get(name)
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server with 4 slots for the tests of this file."""
    folder = tmp_path_factory.mktemp("up")
    server = Up(folder, '[[node]]\nname = "n"\nslots = 4\n')
    server.start("--policy", POLICY)
    (folder / "handlers_of_services.py").write_text(HANDLERS)
    yield server
    if server._process is not None and server._process.poll() is not None:
        server.start()
    server.stop()


@pytest.fixture
def client(up: Up) -> Iterator[Client]:
    """A client; the services of a test end with it."""
    with Client(data=up.data, patience=30.0) as made:
        yield made
        for service in made.services():
            made.cancel(*filter(None, (service.job, service.next)))
        until(lambda: not made.jobs(status="open"))


def of(up: Up, handler: str, name: str = "s", **terms: Any) -> Service:
    """A service with a handler of this file."""
    return Service(name, f"handlers_of_services:{handler}", cwd=up.data.parent, **{"window": 1.0, **terms})


def ready(client: Client, count: int = 1, name: str = "s") -> None:
    """Wait until so many instances are ready."""
    until(lambda: client.service(name).ready >= count)


def test_everyone_who_asks_gets_the_answer(up: Up, client: Client) -> None:
    client.serve(of(up, "double", "double"))
    assert client.ask("double", 21) == 42, "the request waits for the first instance"
    assert client.ask("double", "ab") == "abab"
    assert client.ask("double", b"\x00\xff") == b"\x00\xff\x00\xff"

    async def many() -> list[Any]:
        return await asyncio.gather(*(client.ask_async("double", number) for number in range(200)))

    assert asyncio.run(many()) == [2 * number for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda number: client.ask("double", number), range(200))) == list(range(0, 400, 2))
    assert json.loads(headway("ask", "double", "[1]", "--data", up.data).stdout) == [1, 1]


def test_a_function_and_a_program_answer_as_well(client: Client, tmp_path: Path) -> None:
    factor = 3
    client.serve(Service("times", lambda value: factor * value))
    client.serve(Service("count", command=["wc", "-c"]))
    client.serve(Service("env", lambda name: os.environ[name], env={"OF_SERVICE": "set"}, cwd=tmp_path))
    assert client.ask("times", 5) == 15
    assert client.ask("count", b"hello").split() == [b"5"]
    assert client.ask("env", "OF_SERVICE") == "set"
    told = client.job(client.service("times").job)
    assert told.ran is not None
    assert "lambda" in told.ran.functions[0]


def test_an_instance_that_dies_gives_its_request_to_another(up: Up, client: Client) -> None:
    client.serve(of(up, "nap", least=2))
    ready(client, 2)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(client.ask, "s", 1.0)
        pid = until(lambda: busy(client))
        os.kill(pid, signal.SIGKILL)
        assert first.result(30) != pid
    ready(client, 2)


def busy(client: Client) -> int:
    """The process of an instance that works on a request that takes a second."""
    for attempt in client.job(client.service("s").job).attempts:
        for process in psutil.process_iter(["environ", "cmdline"]):
            environ, words = process.info["environ"] or {}, process.info["cmdline"] or []
            if "headway.services.instance" in words and environ.get("HEADWAY_JOB") == str(attempt.job):
                with open(f"/proc/{process.pid}/wchan") as file:
                    if "nanosleep" in file.read():
                        return process.pid
    return 0


def test_what_a_handler_does_harms_nobody_else(up: Up, client: Client) -> None:
    client.serve(of(up, "do", least=1, most=1, answer_max=1000, retries=50))
    client.serve(of(up, "do", "impatient", least=1, most=1, time_limit=0.5, retries=50))
    for service, what, code, said in (
        ("s", "raise", "handler_failed", "the handler raised ValueError: as it was told"),
        ("s", "much", "handler_failed", "the answer has 100000000 bytes; allowed: at most 1000"),
        ("s", "odd", "handler_failed", "which cannot be sent as JSON"),
        ("impatient", "hang", "request_timed_out", "has worked for 0.5 s"),
        ("s", "die", "instance_died", "2 instances of service 's' died while they had this request"),
    ):
        with pytest.raises(Refused, match=said) as refused:
            client.ask(service, what)
        assert refused.value.code == code
        assert client.ask("s", "x") == "x"
    assert client.ask("impatient", "x") == "x"
    kinds = {one.kind for one in client.incidents()}
    assert "instance_stuck" in kinds


def test_a_server_that_was_killed_finds_its_instances_again(up: Up, client: Client) -> None:
    client.serve(of(up, "who", least=2, most=2))
    ready(client, 2)
    pids = {client.ask("s", 0) for _ in range(20)}
    assert len(pids) == 2
    up.kill()
    up.start()
    ready(client, 2)
    assert {client.ask("s", 0) for _ in range(20)} == pids, "they go on, and nothing is loaded again"
    assert client.job(client.service("s").job).lost == 0
    up.stop()
    assert all(gone(pid) for pid in pids)
    up.start()
    assert client.ask("s", 0) not in pids


def test_requests_under_way_are_told_when_the_server_stops(up: Up, client: Client) -> None:
    client.serve(of(up, "nap", least=1, most=1))
    ready(client)
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(client.ask, "s", 20.0) for _ in range(4)]
        until(lambda: client.service("s").queued == 3)
        up.stop()
        for one in asked:
            assert isinstance(one.exception(30), HeadwayError)
    up.start()
    assert client.ask("s", 0.0)


def test_a_new_handler_takes_over_without_losing_a_request(up: Up, client: Client) -> None:
    old = client.serve(Service("v", lambda _: 1, window=1.0, least=2))
    ready(client, 2, "v")
    answers: list[list[int]] = [[], [], []]
    stop = threading.Event()

    def ask(mine: list[int]) -> None:
        while not stop.is_set():
            mine.append(client.ask("v", 0))

    with ThreadPoolExecutor(3) as threads:
        callers = [threads.submit(ask, mine) for mine in answers]
        with pytest.raises(Refused, match="service 'v': name is 'v', which is the name of a service, job"):
            client.serve(Service("v", lambda _: 2))
        new = client.serve(Service("v", lambda _: 2, window=1.0), replace=True)
        until(lambda: all(mine[-1:] == [2] for mine in answers))
        stop.set()
        for caller in callers:
            caller.result(30)  # no request failed
    for mine in answers:
        assert sorted(mine) == mine, "whoever was answered by the new handler is not answered by the old one again"
    until(old.done)
    assert client.job(old).job.status is JobStatus.CANCELLED
    assert [(one.job, one.next) for one in client.services()] == [(new.job, None)]


def test_a_handler_that_cannot_be_loaded_replaces_nothing(up: Up, client: Client) -> None:
    old = client.serve(of(up, "double"))
    assert client.ask("s", 1) == 2
    new = client.serve(Service("s", "handlers_of_services:nothing", cwd=up.data.parent, retries=1), replace=True)
    with pytest.raises(HeadwayError):
        new.result(60)
    assert client.ask("s", 1) == 2
    assert client.service("s").job == old.job
    assert client.job(new).job.status is JobStatus.FAILED
    assert "nothing" in client.job(new).ended[0].stderr
    assert any(one.kind == "handler_broken" and "nothing" in one.detail for one in client.incidents())
    broken = headway("serve", "t", "--handler", "no_module:f", "--retries", 0, "--wait", "--data", up.data)
    assert broken.returncode == 1
    assert broken.stderr.count("No module named 'no_module'") == 1, "it is said once, and where to find more"
    assert "`headway logs" in broken.stderr


def test_a_handler_that_takes_too_long_to_load_counts_as_a_failure(up: Up, client: Client) -> None:
    (up.data.parent / "slow_to_load.py").write_text("import time\ntime.sleep(600)\n")
    words = ("--handler", "slow_to_load:f", "--load-limit", "1s", "--retries", 0, "--cwd", up.data.parent)
    late = headway("serve", "s", *words, "--wait", "--data", up.data)
    assert late.returncode == 1
    assert "it did not load its handler in 1 s" in late.stderr
    assert "service s has ended, failed" in late.stderr
    (job,) = [job for job in client.jobs(status="failed") if job.name == "s"][-1:]
    assert client.job(job.id).ended[0].outcome is Outcome.OUT_OF_TIME
    assert any(one.kind == "handler_broken" and "in 1 s" in one.detail for one in client.incidents())


def test_what_is_asked_and_answered_is_nowhere_in_the_data_directory(up: Up, client: Client) -> None:
    """Requests enter neither the core nor the journal."""
    client.serve(of(up, "double"))
    asked = "a marker of this test that is nowhere else, "
    assert client.ask("s", asked) == 2 * asked
    until(lambda: sum(window.answered for window in client.service("s").windows) == 1)
    read = {}
    for file in paths_below(up.data):
        with suppress(FileNotFoundError):  # it has just been removed
            if file.is_file():
                read[file.name] = file.read_bytes()
    assert "journal.sqlite" in read
    assert not any(asked.encode() in content for content in read.values())


def test_a_service_that_is_cancelled_finishes_what_it_has(up: Up, client: Client) -> None:
    waiter = client.serve(of(up, "nap", least=1, most=1))
    ready(client)
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(client.ask, "s", 1.0) for _ in range(2)]
        until(lambda: client.service("s").queued == 1)
        client.cancel(waiter)
        errors = [one.exception(30) for one in asked]
    assert [type(error) for error in errors].count(type(None)) == 1, "the one that an instance had"
    refused = next(error for error in errors if error is not None)
    assert isinstance(refused, Refused)
    assert refused.code == "service_ended"
    with pytest.raises(Refused, match="there is no service 's'"):
        client.ask("s", 0)


def test_whoever_finds_the_queue_full_is_told_when_to_come_again(up: Up, client: Client) -> None:
    client.serve(of(up, "nap", least=1, most=1, queue=2))
    ready(client)
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(client.ask, "s", 0.5) for _ in range(3)]
        until(lambda: client.service("s").queued == 2)
        with pytest.raises(Refused, match=r"2 requests with [0-9]+ bytes wait for service 's'") as refused:
            client.ask("s", 0)
        assert (refused.value.status, refused.value.code) == (503, "service_full")
        assert refused.value.retry_after is not None
        assert refused.value.retry_after >= 1
        for one in asked:
            one.result(30)


def test_a_request_that_is_wrong_is_refused(up: Up, client: Client) -> None:
    client.serve(of(up, "double", request_max=100))
    ready(client)
    with pytest.raises(Refused, match="more than 100 bytes") as refused:
        client.ask("s", b"x" * 101)
    assert refused.value.status == 413
    with pytest.raises(Refused, match="there is no service 't'"):
        client.ask("t", 1)
    with pytest.raises(InvalidInput, match="bytes, or what JSON has"):
        client.ask("s", object())
    with pytest.raises(InvalidInput, match=r"nan at `\$\['x'\]`"):
        client.ask("s", {"x": float("nan")})
    assert told(up, b"{", {"Content-Type": "application/json"})[:2] == (400, "malformed")
    assert told(up, b"1", {"Authorization": "Bearer x"})[:2] == (401, "unauthorised")


def told(up: Up, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """Status and code of the answer to a request without our client."""
    host = up.url.removeprefix("http://")
    token = (up.data / "token").read_text().strip()
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.request("POST", "/v1/services/s/requests", body, {"Authorization": f"Bearer {token}", **headers})
    answer = connection.getresponse()
    said = json.loads(answer.read()) if answer.headers["content-type"] == "application/json" else {}
    connection.close()
    return answer.status, said.get("code", "") if isinstance(said, dict) else ""


def test_a_caller_who_goes_away_is_not_waited_for(up: Up, client: Client) -> None:
    client.serve(of(up, "nap", least=1, most=1))
    ready(client)
    host = up.url.removeprefix("http://")
    token = (up.data / "token").read_text().strip()
    callers = [http.client.HTTPConnection(host) for _ in range(2)]
    for caller in callers:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        caller.request("POST", "/v1/services/s/requests", b"2.0", headers)
    until(lambda: client.service("s").queued == 1)
    for caller in callers:
        caller.close()
    until(lambda: client.service("s").queued == 0)
    assert client.ask("s", 0.0), "the instance goes on with the next one"
    until(lambda: sum(window.gone for window in client.service("s").windows) == 2)


def test_windows_are_measured_and_cost_what_was_agreed(up: Up, client: Client) -> None:
    client.serve(of(up, "nap", least=1, most=1, threshold=0.2, fraction=0.9, rate=100.0))
    ready(client)
    others = client.costs()
    client.ask("s", 0.0)
    client.ask("s", 0.5)
    until(lambda: sum(window.answered for window in client.service("s").windows) == 2)
    report = client.service("s")
    seen = [window for window in report.windows if window.arrivals]
    assert sum(window.in_time for window in seen) == 1
    assert all(0 < window.warm_up < 30 for window in seen), "its process started and loaded the handler"
    assert sum(map(sum, (window.responses for window in seen))) <= 2
    cost = sum(100.0 * max(0.0, 0.9 - window.in_time / window.arrivals) for window in seen)
    assert report.penalty == pytest.approx(cost)
    assert cost > 0
    assert client.job(report.job).job.penalty == pytest.approx(cost)
    assert client.costs().total.penalty >= cost * 0.999
    page = text_string_to_metric_families(scraped(up))
    samples = {
        (one.name, one.labels.get("service"), one.labels.get("result")): one.value for f in page for one in f.samples
    }
    assert samples["headway_service_arrivals_total", "s", None] >= 2
    assert samples["headway_service_requests_total", "s", "answered"] >= 2
    assert samples["headway_service_penalty", "s", None] == pytest.approx(cost)
    assert samples["headway_service_response_seconds_count", "s", None] >= 2
    assert samples["headway_service_instances", "s", None] == 1
    before = report.penalty
    up.kill()
    up.start()
    assert client.service("s").penalty >= before
    table = headway("services", "s", "--data", up.data).stdout
    assert "wanted: 90% within 0.2 s" in table
    client.cancel(report.job)
    until(lambda: client.job(report.job).job.status.is_final)
    ended = client.job(report.job).job
    assert ended.status is JobStatus.CANCELLED
    assert ended.penalty == ended.penalty_expected >= before
    costs = client.costs()
    assert costs.services["s"].jobs == others.services["s"].jobs
    assert costs.services["s"].penalty - others.services["s"].penalty == pytest.approx(ended.penalty)
    assert costs.total.penalty - others.total.penalty == pytest.approx(ended.penalty)
    assert costs.services["s"].expected == costs.services["s"].penalty
    assert f"{costs.total.penalty:.4g} so far" in headway("status", "--data", up.data).stdout
    total = {one.name: one.value for f in text_string_to_metric_families(scraped(up)) for one in f.samples}
    assert total["headway_penalty_total"] == pytest.approx(ended.penalty), "counted since the start"
    up.kill()
    up.start()
    assert client.costs() == costs


def test_terms_of_a_service_change_while_it_answers(up: Up, client: Client) -> None:
    client.serve(of(up, "nap", least=1, most=2, threshold=3.0, window=3.0, rate=100.0, fraction=1.0))
    ready(client)
    job = client.service("s").job
    client.ask("s", 0.05)
    assert client.change(job, rate=7.0, threshold="10ms", fraction=0.5, shape="sqrt", least=2)
    report = client.service("s")
    assert (report.rate, report.threshold, report.fraction, report.least) == (7.0, 0.01, 0.5, 2)
    assert report.penalty == 0
    ready(client, 2)
    client.ask("s", 0.05)
    until(lambda: client.service("s").penalty > 0)
    assert client.service("s").penalty == pytest.approx(7.0 * 0.5**0.5), "one answer of one was late"
    up.kill()
    up.start()
    report = client.service("s")
    assert (report.rate, report.threshold, report.fraction, report.least) == (7.0, 0.01, 0.5, 2)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"least": 3}, "least is 3; allowed: 0 to 2, its most instances"),
        ({"least": -1}, "least is -1; allowed: 0 to 2"),
        ({"fraction": 0.0}, "fraction is 0.0; allowed: more than 0, at most 1"),
        ({"threshold": 0.0}, "threshold is 0.0; allowed: more than 0"),
        ({"threshold": 0.0001}, "threshold is 0.0001; allowed: 0.001 to 86400 seconds"),
        ({"threshold": "-1s"}, "threshold"),
        ({"rate": -1.0}, "rate is -1.0; allowed: a finite number, 0 or more"),
        ({"rate": "much"}, "rate is 'much'; allowed: a finite number"),
        ({"shape": "cubic"}, "shape is 'cubic'; allowed: linear, sqrt or square"),
        ({"due": 2e9}, "due is 2000000000.0; allowed: none: a service runs until it is cancelled"),
        ({}, "change is 'empty'; allowed: a new term at least, or without_due"),
    ],
)
def test_changes_that_are_not_allowed_are_named(client: Client, terms: dict[str, Any], said: str) -> None:
    client.serve(Service("s", lambda value: value, least=1, most=2))
    before = client.service("s")
    with pytest.raises(HeadwayError) as refused:
        client.change(before.job, **terms)
    assert said in str(refused.value)
    after = client.service("s")
    assert (after.rate, after.threshold, after.fraction, after.least) == (
        *(before.rate, before.threshold, before.fraction),
        before.least,
    )


def scraped(up: Up) -> str:
    host = up.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host)
    connection.request(
        "GET", "/metrics", headers={"Authorization": "Bearer " + (up.data / "token").read_text().strip()}
    )
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_a_service_and_another_job_cannot_have_one_name(client: Client) -> None:
    client.serve(Service("one", lambda value: value))
    with pytest.raises(Refused, match="which is the name of a service"):
        client.submit(Job("one", [Task(len, "x")]))
    waiter = client.submit(Job("two", [Task.command("sleep", "30")]))
    with pytest.raises(
        Refused, match=f"service 'two': name is 'two', which is the name of job {waiter.job}, no service"
    ):
        client.serve(Service("two", lambda value: value))
    client.cancel(waiter)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"least": 3, "most": 2}, "least is 3; allowed: 0 to 2, its most instances"),
        ({"least": 5}, "least is 5; allowed: at most 4, the slots of the whole cluster"),
        ({"fraction": 1.01}, "fraction is 1.01; allowed: more than 0, at most 1"),
        ({"fraction": 0.0}, "fraction is 0.0"),
        ({"threshold": 0.0}, "threshold is 0.0; allowed: 0.001 to 86400 seconds"),
        ({"threshold": "-1s"}, "threshold"),
        ({"rate": -1.0}, "rate is -1.0"),
        ({"shape": "cubic"}, "shape is 'cubic'; allowed: linear, sqrt or square"),
        ({"window": 0.0}, "window is 0.0"),
        ({"window": 0.5, "threshold": "1s"}, "window is 0.5; allowed: 1 seconds or more, the threshold"),
        ({"handler": None}, "a handler, a function or a command, one of them"),
        ({"handler": 5}, "handler is 5; allowed: a function, or the name of one"),
        ({"handler": "no function"}, "module:function"),
        ({"command": "wc -c"}, "command is 'wc -c'; allowed: a program and its arguments, as a list"),
        ({"queue": 0}, "queue_max is 0"),
        ({"name": "a b"}, "letters, digits and"),
    ],
)
def test_terms_that_are_not_allowed_are_named(client: Client, terms: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"name": "s", "handler": "a:b", **terms}
    with pytest.raises(HeadwayError) as refused:
        client.serve(Service(given.pop("name"), given.pop("handler"), **given))
    assert said in str(refused.value)
    assert client.services() == []


def test_slots_follow_the_requests_and_batch_jobs_get_the_others(up: Up, client: Client) -> None:
    client.serve(of(up, "nap", least=1, rate=1e6, threshold=0.1))
    ready(client)
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            client.ask("s", 0.05)

    with ThreadPoolExecutor(3) as threads:
        job = client.submit(Job("batch", [Task.command("sleep", "0.1") for _ in range(20)]))
        callers = [threads.submit(ask) for _ in range(3)]
        until(lambda: client.service("s").ready >= 3)
        stop.set()
        for caller in callers:
            caller.result(30)
    job.result(60)


def test_a_policy_that_serves_no_services_is_named(up: Up, client: Client, tmp_path: Path) -> None:
    client.choose_policy("tempo")
    try:
        said = headway("serve", "s", "--handler", "os:getpid", "--data", up.data)
        assert said.returncode == 0
        assert "Hint: the policy tempo gives services no slots" in said.stderr
        job = int(said.stdout)
        assert client.explain(job).reason == "NOT_SERVED"
    finally:
        client.choose_policy(POLICY)
    ready(client)


@pytest.mark.thorough
def test_services_that_want_more_instances_than_there_are_slots_are_told(up: Up, client: Client) -> None:
    client.serve(of(up, "double", "first", least=2, most=2))
    ready(client, 2, "first")
    said = headway("serve", "s", "--handler", "os:getpid", "--min", 3, "--data", up.data)
    assert "Hint: all services together are to have 5 instances at least, and the cluster has 4 slots" in said.stderr
    job = int(said.stdout)
    until(lambda: client.service("s").running == 2)
    found = client.explain(job)
    assert found.text.startswith("it has 2 of the 3 instances that it is to have at least: all services together")
    assert (found.kind, found.awaits, found.expected_end) == ("service", (), None)
    words = headway("explain", job, "--data", up.data).stdout
    assert words.endswith("It is a service: it runs until it is cancelled.\n")
    first = client.service("first").job
    assert "it has" not in headway("explain", first, "--data", up.data).stdout, "it has all that it may have"


def test_a_service_whose_sites_have_lost_their_slots_says_so(up: Up, client: Client) -> None:
    headway("node", "add", "attic-1", "--slots", 1, "--site", "attic", "--data", up.data)
    client.choose_policy("services:on=attic,beside=fcfs")
    try:
        job = client.serve(of(up, "double", "attic", least=1, most=2))
        ready(client, 1, "attic")
        assert headway("node", "remove", "attic-1", "--data", up.data).returncode == 0
        until(lambda: client.service("attic").running == 0)
        assert client.explain(job).text.startswith(
            "it has 0 of the 1 instances that it is to have at least: all services together are to have 1, "
            "and the sites that services may have (attic) have 0 slots. Add slots"
        )
    finally:
        client.cancel(job)
        client.choose_policy(POLICY)


def test_options_are_named_as_they_were_typed(up: Up, client: Client) -> None:
    for words, said in (
        (("--min", 5, "--max", 2), "--min is 5; allowed: 0 to 2"),
        (("--min", 5), "--min is 5; allowed: at most 4"),
        (("--threshold", "2d"), "--threshold is '2d'; allowed: 0.001 to 86400 seconds"),
        (("--fraction", 1.5), "--fraction is 1.5; allowed: more than 0, at most 1"),
        (("--queue", 0), "--queue is 0; allowed: 1 to"),
        (
            ("--request-max", "10"),
            "--request-max is '10'; allowed: a number with K or M, as 100K or 2M, of 1K at least",
        ),
        (("--window", "1s", "--threshold", "2s"), "--window is '1s'; allowed: 2 seconds or more, the threshold"),
    ):
        refused = headway("serve", "s", "--handler", "os:getpid", *words, "--data", up.data)
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"Error: {said}")
    assert client.services() == []


def test_the_table_of_services_shows_each(up: Up, client: Client) -> None:
    assert "There are no services" in headway("services", "--data", up.data).stdout
    said = headway("serve", "c", "--command", "wc -c", "--min", 1, "--max", 2, "--wait", "--json", "--data", up.data)
    assert json.loads(said.stdout)["ready"] is True
    command = [sys.executable, "-m", "headway", "ask", "c", "--data", str(up.data)]
    assert subprocess.run(command, input=b"hello", capture_output=True, check=True).stdout.split() == [b"5"]
    table = headway("services", "--data", up.data).stdout
    assert "wc -c" in table
    assert "1–2" in table
    assert json.loads(headway("services", "c", "--json", "--data", up.data).stdout)["most"] == 2
