"""Workflows with a real server of two sites: results and files travel, branches fail and run again, servers die."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from headway import Client, InvalidInput, Output, Refused, TaskFailed, Workflow, wire
from headway.given import GIVEN_MAX
from headway.model.actions import JobStatus

from ..waiting import LIMIT, until
from .conftest import Up, headway

SITES = """\
[[node]]
name = "e"
slots = 2
site = "east"

[[node]]
name = "w"
slots = 2
site = "west"
"""


@pytest.fixture(scope="module")
def two_sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server of two sites for all tests of this file."""
    server = Up(tmp_path_factory.mktemp("flows"), SITES)
    server.start("--policy", "sites:top=rr,each=heft")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield server
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    server.stop()


@pytest.fixture
def client(two_sites: Up) -> Iterator[Client]:
    with Client(data=two_sites.data) as client:
        yield client


def numbers(count: int) -> list[int]:
    return list(range(count))


def total(parts: dict[str, list[list[int]]]) -> int:
    return sum(map(sum, parts["parts"]))


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return "written"


def read(path: Path, said: str) -> str:
    return path.read_text() + said


def until_there(marker: str, value: Any) -> Any:
    """Fails as long as there is no such file."""
    if not Path(marker).exists():
        raise LookupError(f"there is no {marker}")
    return value


def lazy() -> Iterator[int]:
    yield 1


def flaky(folder: str, fails: int) -> int:
    """Fails so often, and then says how often it was called."""
    calls = len(list(Path(folder).iterdir()))
    (Path(folder) / str(calls)).touch()
    if calls < fails:
        raise ValueError(calls)
    return calls + 1


def test_results_go_into_arguments_of_any_shape_and_files_to_functions_and_programs(client: Client) -> None:
    flow = Workflow("sums", due="1h", estimate="1s")
    parts = [flow.task(numbers, count) for count in (2, 3, 4)]
    added = flow.task(total, {"parts": parts}, name="added")
    wrote = flow.task(write, Output("headway:in.txt"), "b\na\n")
    text = flow.command(["sort", "in.txt"], inputs=[wrote.file("in.txt")], after=added)
    put = flow.command(
        ["sh", "-c", "mkdir out; sort in.txt > out/sorted.txt"],
        inputs={"in.txt": wrote.file("in.txt")},
        outputs=["out/sorted.txt"],
    )
    flow.task(read, put.file("out/sorted.txt"), text, name="read")
    going = client.submit(flow)
    assert going.final(LIMIT) == ["a\nb\na\nb\n"]
    assert [going[task].result() for task in (parts[2], "added", 3)] == [[0, 1, 2, 3], 10, 10]
    assert set(going.states().values()) == {"succeeded"}
    # What ran did not come from here: the client sent a place, and nothing of these results.
    assert client.job(going).job.status is JobStatus.SUCCEEDED
    with pytest.raises(InvalidInput, match="'lost'; allowed: a task of this workflow, its name or its number"):
        going["lost"]


def test_a_workflow_is_awaited_in_an_event_loop(client: Client) -> None:
    async def scenario() -> list[Any]:
        flow = Workflow()
        flow.task(total, {"parts": [flow.task(numbers, 4)]})
        going = await client.submit_async(flow)
        return list(await going)

    assert asyncio.run(scenario()) == [[0, 1, 2, 3], 6]


def test_a_wait_that_is_given_up_cancels_nothing_and_the_loop_goes_on(client: Client, tmp_path: Path) -> None:
    async def scenario() -> list[Any]:
        flow = Workflow()
        door = flow.command(
            ["sh", "-c", f"while [ ! -e {tmp_path}/door ]; do sleep 0.02; done; echo open"], name="door"
        )
        flow.task(str, door, name="after")
        going = await client.submit_async(flow)
        for waits in (going, going[door], asyncio.gather(going)):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waits, 0.05)
        assert not going.done()
        report = await asyncio.to_thread(client.job, going.job)
        assert report.job.status is JobStatus.RUNNING
        (tmp_path / "door").touch()
        assert await going[door] == "open\n"
        return list(await asyncio.wait_for(going, LIMIT))

    assert asyncio.run(scenario()) == ["open\n", "open\n"]


def test_a_job_is_cancelled_from_an_event_loop_that_goes_on(client: Client) -> None:
    async def scenario() -> None:
        flow = Workflow()
        flow.command(["sleep", "600"])
        going = await client.submit_async(flow)
        assert going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert going.cancelled()
        again = await client.submit_async(flow)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(again), 0.05)
        with pytest.raises(asyncio.CancelledError):
            await again

    asyncio.run(scenario())


def test_a_branch_fails_the_others_go_on_and_only_what_lacks_is_run_again(client: Client, tmp_path: Path) -> None:
    marker = tmp_path / "there"
    flow = Workflow("branches")
    first = flow.task(numbers, 3, name="first")
    flow.task(total, {"parts": [first]}, name="good")
    bad = flow.task(until_there, str(marker), first, name="bad")
    flow.task(total, {"parts": [bad, first]}, name="after")
    flow.command(["echo", "end"], after=bad, name="end")
    going = client.submit(flow)
    values, ends = going.outcomes(LIMIT)[:2], going.outcomes()[2:]
    assert values == [[0, 1, 2], 3]
    assert isinstance(ends[0], LookupError)
    assert ends[0].__notes__ == [f"It is task 2 (bad) of job {going.job} 'branches'."]
    assert str(ends[1]) == f"task 3 (after) of job {going.job} did not run, because task 2 (bad) failed"
    assert isinstance(ends[2], TaskFailed)
    states = {"first": "succeeded", "good": "succeeded", "bad": "failed", "after": "never ran", "end": "never ran"}
    assert going.states() == states
    assert {one.name: one.state for one in client.tasks(going)} == states

    marker.touch()
    again = client.retry(going, trust=True)
    assert [again.result(LIMIT)[place] for place in (0, 1)] == [[0, 1, 2], 6]
    assert [(one.name, one.number) for one in client.tasks(again)] == [("bad", 2), ("after", 3), ("end", 4)]
    assert again.result()[2] == "end\n"


def test_what_failed_twice_is_run_again_twice(client: Client, tmp_path: Path) -> None:
    """The second retry takes what the first one had been given."""
    marker = tmp_path / "there"
    flow = Workflow()
    wrote = flow.task(write, Output("headway:in.txt"), "text ")
    flow.task(until_there, str(marker), wrote, name="bad")
    flow.task(read, wrote.file("in.txt"), flow.tasks[1])
    going = client.submit(flow)
    client.wait(going, timeout=LIMIT)
    client.clear(client.retry(going).job)
    again = client.retry(going, trust=True)
    client.wait(again, timeout=LIMIT)
    client.clear(going.job)  # what is given is the new job's own
    marker.touch()
    assert client.retry(again, trust=True).result(LIMIT) == ["written", "text written"]


def test_a_task_has_retries_of_its_own(client: Client, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    flow = Workflow("flaky", retries=1)
    flow.task(flaky, str(tmp_path / "a"), 2, retries=2)
    flow.task(flaky, str(tmp_path / "b"), 1, retries=0)
    ends = client.submit(flow).outcomes(LIMIT)
    assert ends[0] == 3
    assert isinstance(ends[1], ValueError)


def test_results_that_cannot_be_given_say_why(client: Client) -> None:
    flow = Workflow()
    large = flow.task(bytes, GIVEN_MAX + 1)
    flow.task(len, large)
    flow.task(lazy)
    none = flow.command(["true"], outputs=["x"])
    flow.command(["cat", "x"], inputs={"x": none.file("x")})
    ends = client.submit(flow).outcomes(LIMIT)
    assert len(ends[0]) == GIVEN_MAX + 1
    assert "the results that it gets are 83886" in str(ends[1])
    assert f"bytes; allowed: {GIVEN_MAX}. Give large ones as files" in str(ends[1])
    assert "the result of lazy, of type generator, cannot be pickled" in str(ends[2])
    assert "output was not written" in str(ends[3])
    assert "did not run, because task 3 (true-3) failed" in str(ends[4])


def test_a_server_that_is_killed_in_the_middle_goes_on(two_sites: Up, client: Client, tmp_path: Path) -> None:
    marker = tmp_path / "there"
    flow = Workflow("long")
    first = flow.task(numbers, 3)
    waits = flow.command(["sh", "-c", f"while [ ! -e {marker} ]; do sleep 0.02; done; echo waited"], after=first)
    flow.task(total, {"parts": [first, first]}, after=waits, name="sum")
    going = client.submit(flow)
    until(lambda: [one.state for one in client.tasks(going)] == ["succeeded", "running", "waits"])
    two_sites.kill()
    two_sites.start()
    marker.touch()
    assert going.result(LIMIT) == [[0, 1, 2], "waited\n", 6]
    assert client.results(going.job)[1].attempt in (1, 2)


def test_what_no_node_can_hold_is_refused(client: Client) -> None:
    flow = Workflow("wide")
    flow.task(numbers, 1, slots=3)
    with pytest.raises(Refused, match=r"plan\[0\].cores is 3; allowed: at most 2"):
        client.submit(flow)


YAML = """\
name: files
due: 1h
estimate: 1s
tasks:
  sort:
    command: [sh, -c, "sort raw.txt > sorted.txt; cat given.txt"]
    inputs: [raw.txt, given.txt]
    outputs: [sorted.txt]
  make:
    command: [sh, -c, "printf 'b\\na\\n' > raw.txt"]
    outputs: [raw.txt]
  wait:
    estimate: 10m
    command: [sh, -c, "while [ ! -e $MARK ]; do sleep 0.02; done; exit $CODE"]
    after: make
  end:
    command: cat sorted.txt
    inputs: [sorted.txt]
    after: [wait]
"""


def test_a_file_is_submitted_and_looked_at_task_by_task(two_sites: Up, client: Client, tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("given\n")
    (tmp_path / "flow.yaml").write_text(YAML)
    mark, data = tmp_path / "mark", ("--data", two_sites.data)
    said = headway("submit", *data, "--env", f"MARK={mark}", "--env", "CODE=1", "--workflow", tmp_path / "flow.yaml")
    assert said.returncode == 0, said.stderr
    job = int(said.stdout)
    until(lambda: client.tasks(job, task=3)[0].after == (2,) and client.tasks(job, task=2)[0].state == "running")
    listed = json.loads(headway("job", *data, job, "--tasks", "--json").stdout)
    by_name = {one["name"]: one for one in listed}
    assert by_name["end"]["state"] == "waits"
    assert by_name["end"]["node"] in ("e", "w")  # promised there
    told = headway("explain", *data, job, "--task", "end").stdout
    assert f"Task {by_name['end']['task']} end of job {job} waits for {by_name['wait']['task']} wait (running)." in told
    assert f"Its start on {by_name['end']['node']} is promised " in told
    assert headway("change", *data, job, "--due", "2h").returncode == 0
    assert client.results(job, task=by_name["sort"]["task"])[0].ending.stdout == b"given\n"
    unknown = headway("logs", *data, job, "--task", "sord")
    assert unknown.returncode == 2
    assert "Did you mean sort?" in unknown.stderr
    after = headway("submit", *data, "--after", job, "--workflow", tmp_path / "flow.yaml", "--json")
    assert json.loads(after.stdout)["job"] == job + 1
    (tmp_path / "wide.yaml").write_text(YAML.replace("    after: make", "    after: make\n    slots: 99"))
    wide = headway("submit", *data, "--workflow", tmp_path / "wide.yaml")
    line = YAML[: YAML.index("    after: make")].count("\n") + 2
    assert f"{tmp_path}/wide.yaml:{line}: tasks.wait.slots is 99; allowed: at most" in wide.stderr
    mark.touch()
    assert headway("wait", *data, job, job + 1).returncode == 1
    assert "never ran" in headway("job", *data, job, "--tasks").stdout
    told = headway("explain", *data, job, "--task", "end").stdout
    because = f"end of job {job} never ran, because task {by_name['wait']['task']} (wait) failed.\n"
    assert told.endswith(because)
    assert headway("logs", *data, job, "--task", "end").stderr.endswith(because)
    assert headway("explain", *data, job, "--task", "wait").stdout.endswith(" has failed: exit status 1.\n")
    again = headway("retry", *data, job)
    assert again.returncode == 0, again.stderr
    assert client.job(job + 1).job.status is JobStatus.CANCELLED


def test_the_interface_refuses_what_no_workflow_is(client: Client) -> None:
    call = wire.Calls((wire.blob_name(b"f"),), (b"", b""))
    plan = (wire.PlannedTask(1.0), wire.PlannedTask(1.0, after=(0,)))
    for work, words in (
        (wire.Steps(call, needs=((), (1,))), r"needs\[1\] is 1; allowed: the number of a task that it comes after"),
        (wire.Steps(call, needs=((),)), r"needs is 1; allowed: none, or one a task \(2\)"),
        (wire.Steps(call, names=("a", "a")), "names is 'a'; allowed: a name that no other task has"),
        (wire.Steps(call, (wire.Command(("true",)),), (2,)), "calls.args is 2; allowed: one for each of 1 tasks"),
    ):
        with pytest.raises(Refused, match=words):
            client.send(
                [wire.NewJob(work, kind="workflow", tasks=2, plan=plan)], {}, [client._waiter_of(_two(), _new())]
            )


def _two() -> Workflow:
    flow = Workflow()
    flow.task(numbers, 1)
    flow.task(numbers, 1)
    return flow


def _new() -> wire.NewJob:
    plan = (wire.PlannedTask(1.0), wire.PlannedTask(1.0))
    return wire.NewJob(wire.Commands((wire.Command(("true",)),)), kind="workflow", tasks=2, plan=plan)
