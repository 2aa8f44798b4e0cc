"""A real server on a small file system that fills up: what is accepted, refused, kept and reported."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import msgspec
import pytest

from headway import HeadwayError, Output, Workflow
from headway.client.client import Client
from headway.client.job import Job, Task

from ..small import MIB, fill, mounted
from ..waiting import LIMIT, until
from .conftest import Up, headway


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small") as place:
        yield place


def say(size: int) -> int:
    print("x" * size)
    return size


def wait_and_say(door: str, size: int) -> int:
    """Write this much once a file is there."""
    while not os.path.exists(door):
        time.sleep(0.01)
    return say(size)


def kinds(client: Client) -> list[str]:
    return [told.kind for told in client.incidents() if told.kind.startswith(("disk", "outputs"))]


def accepts(client: Client) -> bool:
    statistics = client.statistics()
    assert statistics.short or statistics.free_bytes >= statistics.reserve_bytes
    return not statistics.short


def health(up: Up) -> dict[str, object]:
    with urlopen(f"{up.url}/health") as answer:
        return msgspec.json.decode(answer.read(), type=dict[str, object])


def test_below_the_reserve_what_was_accepted_goes_on_and_nothing_new_is_taken_on(small: Path, tmp_path: Path) -> None:
    up, door = Up(small), tmp_path / "door"
    up.start("--reserve", "24", "--storage-max", "1000")
    ballast = small / "ballast"
    try:
        with Client(data=up.data) as client:
            assert client.submit(Job("before", [Task(abs, -1)])).result(LIMIT) == [1]
            tasks = [Task(wait_and_say, str(door), size) for size in (10, 100_000)] * 3
            accepted = client.submit(Job("accepted", tasks))
            fill(ballast, 12 * MIB)
            with pytest.raises(HeadwayError, match=r"has 1\d\.\d MiB free, its reserve is 24\.0 MiB: no submission is"):
                client.submit(Job("refused", [Task(abs, -2)]))
            with pytest.raises(HeadwayError, match=r"an upload of 0\.0 MiB is not taken on"):
                client.upload(b"small", "small")
            assert not accepts(client)
            door.touch()
            # Everything that was accepted succeeds. Its results are here, and the last part of its output.
            assert accepted.result(LIMIT) == [10, 100_000] * 3
            results = client.results(accepted.job)
            assert [len(result.ending.stdout) for result in results] == [11, 8192] * 3
            assert [result.ending.stdout_path for result in results] == [""] * 6
            ending = results[1].ending
            assert (ending.detail, ending.stdout_cut) == ("", 100_001 - 8192)
            assert ending.stdout_lost == "the server had no room for more"
            said = headway("result", accepted.job, "--data", up.data).stderr
            assert "Task 1: 91809 bytes of its stdout were not kept: the server had no room for more.\n" in said
            up.kill()  # and it starts again, with all of it
            up.start("--reserve", "24", "--storage-max", "1000")
            assert len(client.results(accepted.job)) == 6
            with pytest.raises(HeadwayError, match="no submission is taken on"):
                client.submit(Job("refused", [Task(abs, -2)]))
            ballast.unlink()
            until(lambda: accepts(client))
            assert client.submit(Job("after", [Task(say, 100_000)])).result(LIMIT) == [100_000]
            [result] = client.results(client.jobs(last=1)[0].id)
            assert Path(result.ending.stdout_path).stat().st_size == 100_001
            assert [job.name for job in client.jobs()] == ["before", "accepted", "after"]
            assert kinds(client) == ["disk_short", "disk_short", "disk_enough"]
    finally:
        ballast.unlink(missing_ok=True)
        up.stop()


def test_a_disk_that_others_fill_to_the_last_byte_loses_nothing(small: Path, tmp_path: Path) -> None:
    up, door = Up(small), tmp_path / "door"
    up.start("--reserve", "4")
    ballast = small / "ballast"
    try:
        with Client(data=up.data) as client:
            waiter = client.submit(Job("accepted", [Task(wait_and_say, str(door), 1000) for _ in range(8)]))
            fill(ballast, MIB)
            with (small / "more").open("wb", buffering=0) as file, contextlib.suppress(OSError):  # no space left
                while True:
                    file.write(bytes(4096))
            until(lambda: not health(up)["accepts"])
            door.touch()
            # There is no room for their results, except in pages that the journal already has.
            until(lambda: client.statistics().full or client.job(waiter.job).job.status.is_final)
            ballast.unlink()
            (small / "more").unlink()
            assert waiter.result(LIMIT) == [1000] * 8
            until(lambda: accepts(client))
            assert client.submit(Job("after", [Task(abs, -1)])).result(LIMIT) == [1]
            assert [len(client.results(job.id)) for job in client.jobs()] == [8, 1]
    finally:
        ballast.unlink(missing_ok=True)
        (small / "more").unlink(missing_ok=True)
        up.stop()


def test_a_task_whose_files_find_a_full_disk_waits_for_room_and_says_so(small: Path, tmp_path: Path) -> None:
    up, door = Up(small), tmp_path / "door"
    up.start("--reserve", "4")
    ballast = small / "ballast"
    (tmp_path / "input").write_bytes(bytes(8 * MIB))
    try:
        with Client(data=up.data) as client:
            flow = Workflow("files", time_limit=30)
            opens = flow.task(wait_and_say, str(door), 1)
            copies = flow.command(
                ["cp", "input", "output"], inputs=[tmp_path / "input"], outputs=["output"], after=opens, name="copies"
            )
            flow.command(["wc", "-c", "output"], inputs=[copies.file("output")])
            waiter = client.submit(flow)
            fill(ballast, 6 * MIB)
            door.touch()
            until(lambda: client.tasks(waiter.job, task=1)[0].hindered)
            (copying,) = client.tasks(waiter.job, task=1)
            assert "No space left on device" in copying.hindered
            assert client.explain(waiter.job).hindered == (f"task 1: {copying.hindered}",)
            (told,) = [told for told in client.incidents() if told.kind == "disk_full"]
            assert (told.subject, told.detail.startswith("on node ")) == ("job 1, task 1", True)
            ballast.unlink()
            assert waiter.result(LIMIT) == [1, "", f"{8 * MIB} output\n"]
            assert client.tasks(waiter.job, task=1)[0].hindered == ""
    finally:
        ballast.unlink(missing_ok=True)
        up.stop()


def write(path: Path, size: int) -> int:
    return path.write_bytes(bytes(size))


def test_a_task_that_writes_to_a_full_disk_is_run_again_when_there_is_room(small: Path) -> None:
    up = Up(small)
    up.start("--reserve", "4")
    ballast = small / "ballast"
    try:
        with Client(data=up.data) as client:
            tasks = [
                Task(write, Output("headway:big"), 8 * MIB),
                Task.command("sh", "-c", f"head -c {8 * MIB} /dev/zero >big", outputs={"big": "headway:big"}),
            ]
            waits = "the disk was full when it wrote something"
            fill(ballast, 6 * MIB)
            for task in tasks:
                waiter = client.submit(Job("writes", [task]))
                # The list of tasks answers at once; an explanation may wait long for a forecast.
                until(lambda job=waiter.job: waits in client.tasks(job)[0].hindered)
                time.sleep(1.5)  # there is as much room as when it began, which was not enough: it is not run in vain
                assert waits in client.tasks(waiter.job)[0].hindered
                assert client.tasks(waiter.job)[0].attempt == 1
                ballast.unlink()
                assert not waiter.exception(LIMIT)
                fill(ballast, 6 * MIB)
    finally:
        ballast.unlink(missing_ok=True)
        up.stop()


def test_output_has_a_bound_that_ends_when_it_is_let_go_of(tmp_path: Path) -> None:
    up = Up(tmp_path)
    up.start("--storage-max", "1")
    try:
        with Client(data=up.data) as client:
            first = client.submit(Job("first", [Task(say, 300_000) for _ in range(6)]))
            assert first.result(LIMIT) == [300_000] * 6
            kept = [bool(result.ending.stdout_path) for result in client.results(first.job)]
            assert sorted(kept) == [False] * 3 + [True] * 3
            assert client.statistics().stored_bytes == 3 * 300_001
            with pytest.raises(
                HeadwayError, match=r"output and uploads take 0\.9 MiB, allowed are 1\.0 MiB: an upload"
            ):
                client.upload(bytes(300_000), "large")
            assert client.clear(first.job) == 1
            assert client.statistics().stored_bytes == 0
            assert list((up.data / "engine" / "output").iterdir()) == []
            client.upload(bytes(300_000), "large")
            assert client.statistics().stored_bytes == 300_000
    finally:
        up.stop()
