"""The output of tasks is read only from the engine's files, whatever path a result names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.errors import HeadwayError, NoSuchOutput
from headway.live.output import Wanted, output_of, output_so_far, part_of
from headway.live.store.journal import Batch, Journal, encode
from headway.model.events import Outcome
from headway.wire import TaskEnding, TaskResult


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "data")) as journal:
        (tmp_path / "data" / "engine" / "output" / "1").mkdir(parents=True)
        yield journal


def ended(journal: Journal, task: int, members: tuple[TaskEnding, ...] = (), **terms: object) -> None:
    result = TaskResult(1, task, 1, TaskEnding(Outcome.SUCCEEDED, **terms), members)  # type: ignore[arg-type]
    journal.write(Batch(messages=[(task + 1, 1, 1, task, 5, "succeeded", 0, encode(result))]))


def read(journal: Journal, task: int, stream: str = "stdout", rank: int | None = None) -> bytes:
    with output_of(journal, 1, task, stream, rank) as file:
        return file.read()


def test_the_whole_of_it_is_in_the_file_or_in_the_result(journal: Journal) -> None:
    file = journal.folder / "engine" / "output" / "1" / "0.1.out"
    file.write_bytes(b"all of it")
    ended(journal, 0, stdout=b"it", stdout_path=str(file), stderr=b"short")
    assert (read(journal, 0), read(journal, 0, "stderr")) == (b"all of it", b"short")
    ended(journal, 1, (TaskEnding(Outcome.SUCCEEDED, stdout=b"a"), TaskEnding(Outcome.SUCCEEDED, stdout=b"b")))
    assert [read(journal, 1, rank=rank) for rank in (0, 1)] == [b"a", b"b"]
    with output_of(journal, 1, 0, "stdout", None) as whole:
        parts = [(part_of(whole, offset, limit), whole.read(2)) for offset, limit in ((4, 2), (7, None), (99, 5))]
    assert parts == [(2, b"of"), (2, b"it"), (0, b"")]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "{data}/token",
        "{data}/engine/secret",
        "{data}/engine/output/2/0.1.out",
        "{data}/engine/output/1/../../../token",
        "{data}/engine/output/1/link",
        "{data}/engine/output/1/pipe",
        "{data}/engine/output/1/folder",
        "{data}/engine/output/1/gone",
        "relative",
    ],
)
def test_no_other_file_is_opened(journal: Journal, path: str) -> None:
    data = journal.folder
    folder = data / "engine" / "output" / "1"
    (data / "token").write_text("secret")
    (data / "engine" / "secret").write_text("secret")
    (data / "engine" / "output" / "2").mkdir()
    (data / "engine" / "output" / "2" / "0.1.out").write_text("another job's")
    (folder / "link").symlink_to(data / "token")
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    ended(journal, 0, stdout=b"tail", stdout_path=path.format(data=data))
    with pytest.raises(NoSuchOutput):
        read(journal, 0)


@pytest.mark.parametrize(
    ("task", "stream", "rank", "said"),
    [
        (9, "stdout", None, "there is no result of task 9 of job 1"),
        (0, "stdin", None, "stream is 'stdin'; allowed: stdout or stderr"),
        (0, "stdout", 0, "rank is 0; allowed: none for this job"),
    ],
)
def test_what_there_is_not_is_said(journal: Journal, task: int, stream: str, rank: int | None, said: str) -> None:
    ended(journal, 0)
    with pytest.raises(HeadwayError, match=said):
        read(journal, task, stream, rank)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_a_running_task_put_in_place_of_its_output_is_not_read(tmp_path: Path, make: Any) -> None:
    place = tmp_path / "0.1.out"
    make(place)
    view = SimpleNamespace(width=1, attempts={0: SimpleNamespace(number=1)})
    driver: Any = SimpleNamespace(
        core=SimpleNamespace(state=SimpleNamespace(jobs={1: view})), show=lambda *_: str(place)
    )
    opened = os.listdir("/proc/self/fd")
    with pytest.raises(NoSuchOutput):
        output_so_far(driver, Wanted(1, 0, "stdout"))
    assert os.listdir("/proc/self/fd") == opened
