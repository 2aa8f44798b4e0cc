"""The output of tasks comes from the engine: from its file on this machine, or piece by piece."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.engines.base import Outputs
from headway.engines.local.driver.engine import LocalEngine
from headway.errors import HeadwayError, NoSuchOutput
from headway.live import output
from headway.live.output import OutputPart, OutputWanted, output_of, output_so_far
from headway.live.store.journal import Batch, Journal, encode
from headway.live.store.layout import ENGINE
from headway.model.events import Outcome
from headway.testing import FakeEngine
from headway.wire import TaskEnding, TaskResult

from ...opened import descriptors


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "data")) as journal:
        (tmp_path / "data" / "engine" / "output" / "1").mkdir(parents=True)
        yield journal


def ended(journal: Journal, task: int, members: tuple[TaskEnding, ...] = (), **terms: object) -> None:
    result = TaskResult(1, task, 1, TaskEnding(Outcome.SUCCEEDED, **terms), members)  # type: ignore[arg-type]
    journal.write(Batch(messages=[(task + 1, 1, 1, task, 5, "succeeded", 0, encode(result))]))


def read(journal: Journal, wanted: OutputWanted, outputs: Outputs | None = None) -> tuple[int | None, bytes]:
    """The size that is told, and all that comes."""
    outputs = outputs or LocalEngine(journal.folder / ENGINE)

    async def whole() -> tuple[int | None, bytes]:
        return await all_of(await output_of(journal, outputs, wanted))

    return asyncio.run(whole())


async def all_of(part: OutputPart) -> tuple[int | None, bytes]:
    return part.size, b"".join([piece async for piece in part.pieces])


def test_the_whole_of_it_is_in_the_file_or_in_the_result(journal: Journal) -> None:
    file = journal.folder / "engine" / "output" / "1" / "0.1.out"
    file.write_bytes(b"all of it")
    ended(journal, 0, stdout=b"it", stdout_path=str(file), stderr=b"short")
    assert read(journal, OutputWanted(1, 0, "stdout")) == (9, b"all of it")
    assert read(journal, OutputWanted(1, 0, "stderr")) == (5, b"short")
    ended(journal, 1, (TaskEnding(Outcome.SUCCEEDED, stdout=b"a"), TaskEnding(Outcome.SUCCEEDED, stdout=b"b")))
    assert [read(journal, OutputWanted(1, 1, "stdout", rank)) for rank in (0, 1)] == [(1, b"a"), (1, b"b")]
    parts = [OutputWanted(1, 0, "stdout", offset=offset, limit=limit) for offset, limit in ((4, 2), (7, None), (99, 5))]
    assert [read(journal, part) for part in parts] == [(2, b"of"), (2, b"it"), (0, b"")]


def test_an_engine_elsewhere_is_asked_piece_by_piece(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "ASKED_BYTES", 4)
    engine, asked = FakeEngine(), list[tuple[int, int]]()
    engine.written["1/whole"] = b"0123456789"
    ask = engine.read

    async def asks(name: str, offset: int, size: int) -> bytes:
        asked.append((offset, size))
        return await ask(name, offset, size)

    monkeypatch.setattr(engine, "read", asks)
    ended(journal, 0, stdout=b"89", stdout_path="1/whole", stderr=b"e", stderr_path="1/gone")
    assert read(journal, OutputWanted(1, 0, "stdout"), engine) == (None, b"0123456789")
    assert asked == [(0, 4), (4, 4), (8, 4), (10, 4)]
    assert read(journal, OutputWanted(1, 0, "stdout", offset=3, limit=6), engine) == (None, b"345678")
    assert asked[4:] == [(3, 4), (7, 2)]
    assert read(journal, OutputWanted(1, 0, "stdout", offset=11), engine) == (None, b"")
    with pytest.raises(NoSuchOutput, match="there is no output '1/gone'"):
        read(journal, OutputWanted(1, 0, "stderr"), engine)


@pytest.mark.parametrize("runs", [True, False])
def test_what_goes_while_it_is_read(journal: Journal, monkeypatch: pytest.MonkeyPatch, runs: bool) -> None:
    """Of what runs it goes at its end, and the caller asks again; of what has ended, the answer must not look whole."""
    monkeypatch.setattr(output, "ASKED_BYTES", 4)

    async def scenario() -> None:
        engine = FakeEngine()
        engine.running[(1, 0, 1)] = None  # type: ignore[assignment]
        name = engine.show(1, 0, 1, None, "stdout")
        engine.written[name] = b"0123456789"
        ended(journal, 0, stdout=b"89", stdout_path=name)
        view = SimpleNamespace(width=1, attempts={0: SimpleNamespace(number=1)} if runs else {})
        jobs = {1: view}
        driver: Any = SimpleNamespace(
            core=SimpleNamespace(state=SimpleNamespace(jobs=jobs)), outputs=engine, journal=journal
        )
        pieces: AsyncIterator[bytes] = (await output_so_far(driver, OutputWanted(1, 0, "stdout"))).pieces
        assert await anext(pieces) == b"0123"
        engine.discard([name])
        if runs:
            assert [piece async for piece in pieces] == []
        else:
            with pytest.raises(NoSuchOutput):
                await anext(pieces)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "{data}/token",
        "{data}/engine/secret",
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
    (folder / "link").symlink_to(data / "token")
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    ended(journal, 0, stdout=b"tail", stdout_path=path.format(data=data))
    with pytest.raises(NoSuchOutput):
        read(journal, OutputWanted(1, 0, "stdout"))


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
        read(journal, OutputWanted(1, task, stream, rank))


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_a_running_task_put_in_place_of_its_output_is_not_read(tmp_path: Path, make: Any) -> None:
    place = tmp_path / "0.1.out"
    make(place)
    view = SimpleNamespace(width=1, attempts={0: SimpleNamespace(number=1)})
    outputs = SimpleNamespace(show=lambda *_: "it", locate=lambda _: place)
    driver: Any = SimpleNamespace(core=SimpleNamespace(state=SimpleNamespace(jobs={1: view})), outputs=outputs)

    async def scenario() -> None:
        opened = descriptors()
        with pytest.raises(NoSuchOutput):
            await output_so_far(driver, OutputWanted(1, 0, "stdout"))
        assert descriptors() == opened

    asyncio.run(scenario())
