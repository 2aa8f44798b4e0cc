"""Files that the server keeps, on their way through the shared folder."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway.engines.local.shared.terms import Terms
from headway.engines.slurm.carrying import CARRIED_AT_ONCE, Carrier
from headway.engines.slurm.folder import KEPT_FOLDER, SlurmFolder
from headway.engines.slurm.written import FileAnswer, Order, Seat, WrittenAttempt, records, write
from headway.engines.trial import FilesInFolder, FilesInMemory
from headway.errors import HeadwayError, InvalidInput

pytestmark = pytest.mark.anyio

KEY = (1, 0, 1)
LARGE = os.urandom(CARRIED_AT_ONCE + 1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Place:
    """The folder of a part whose task names files."""

    def __init__(self, root: Path) -> None:
        self.folder = SlurmFolder(root)
        self.folder.open()
        self.part, self.files = self.folder.of(KEY, 0), self.folder.files_of(KEY, 0)
        for path in (self.part / KEPT_FOLDER, self.files):
            path.mkdir(parents=True)
        (self.files / "answers").touch()

    def carrier(self, files: FilesInFolder | FilesInMemory) -> Carrier:
        async def aside(step: Callable[..., Any], *arguments: Any) -> Any:
            return await asyncio.to_thread(step, *arguments)

        return Carrier(self.folder, files, aside)

    @property
    def answers(self) -> list[FileAnswer]:
        bodies, _ = records(self.files / "answers", 0)
        return [msgspec.msgpack.decode(body, type=FileAnswer) for body in bodies]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "shared")
    yield place
    place.folder.close()


@pytest.fixture(params=["folder", "memory"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> FilesInFolder | FilesInMemory:
    """The server's folder can be linked from, or nobody can open it."""
    return FilesInFolder(tmp_path / "kept") if request.param == "folder" else FilesInMemory()


async def test_a_file_is_there_before_that_is_said(place: Place, kept: FilesInFolder | FilesInMemory) -> None:
    name = kept.add(LARGE)
    await place.carrier(kept).give(KEY, 0, name)
    assert place.answers == [FileAnswer(name, True)]
    assert (place.files / name).read_bytes() == LARGE
    await place.carrier(kept).give(KEY, 0, name)
    assert place.answers == 2 * [FileAnswer(name, True)], (
        "who asks again, as the next server does for it, is told again"
    )
    assert sorted(path.name for path in place.files.iterdir()) == sorted([name, "answers"])


async def test_that_a_file_is_not_kept_is_said(place: Place, kept: FilesInFolder | FilesInMemory) -> None:
    await place.carrier(kept).give(KEY, 0, "0" * 64)
    assert place.answers == [FileAnswer("0" * 64, False)]


async def test_a_file_with_other_bytes_than_its_name_says_is_not_given(place: Place) -> None:
    kept = FilesInMemory()
    name = kept.add(LARGE)
    kept.contents[name] = LARGE[:-1] + b"?"
    await place.carrier(kept).give(KEY, 0, name)
    assert place.answers == [FileAnswer(name, False)]
    assert os.listdir(place.files) == ["answers"]


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "", "a" * 63, "A" * 64, "0" * 64 + "\n"])
async def test_what_is_no_name_of_a_file_is_neither_given_nor_taken(
    place: Place, kept: FilesInFolder | FilesInMemory, name: str
) -> None:
    """An account wrote it: it must not lead anywhere else."""
    before = sorted(place.folder.root.rglob("*"))
    await place.carrier(kept).give(KEY, 0, name)
    with pytest.raises(HeadwayError, match="is not the name of a file"):
        await place.carrier(kept).collect(KEY, 0, [name])
    assert sorted(place.folder.root.rglob("*")) == before
    assert place.answers == []


async def test_an_output_is_kept_once_even_if_two_servers_bring_it_in(
    place: Place, kept: FilesInFolder | FilesInMemory
) -> None:
    name = hashlib.sha256(LARGE).hexdigest()
    (place.part / KEPT_FOLDER / name).write_bytes(LARGE)
    await place.carrier(kept).collect(KEY, 0, [name, name])
    assert await kept.read(name, 0, 2 * CARRIED_AT_ONCE) == LARGE
    (place.part / KEPT_FOLDER / name).unlink(missing_ok=True)
    await place.carrier(kept).collect(KEY, 0, [name])


async def test_an_output_that_is_not_there_is_said(place: Place, kept: FilesInFolder | FilesInMemory) -> None:
    with pytest.raises(FileNotFoundError, match="it is not there any more"):
        await place.carrier(kept).collect(KEY, 0, ["0" * 64])


async def test_an_output_that_was_changed_after_it_got_its_name_is_refused(place: Place) -> None:
    name = hashlib.sha256(LARGE).hexdigest()
    (place.part / KEPT_FOLDER / name).write_bytes(b"something else")
    with pytest.raises(InvalidInput, match="SHA-256"):
        await place.carrier(FilesInMemory()).collect(KEY, 0, [name])


@pytest.mark.parametrize("which", ["link", "folder", "pipe"])
async def test_what_an_account_puts_in_place_of_an_output_is_not_followed(
    place: Place, tmp_path: Path, which: str
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    name = hashlib.sha256(LARGE).hexdigest()
    (secret / name).write_bytes(LARGE)
    if which == "link":
        (place.part / KEPT_FOLDER / name).symlink_to(secret / name)
    elif which == "folder":
        (place.part / KEPT_FOLDER).rmdir()
        (place.part / KEPT_FOLDER).symlink_to(secret)
    else:
        os.mkfifo(place.part / KEPT_FOLDER / name)
    kept = FilesInMemory()
    with pytest.raises((OSError, HeadwayError)):
        await place.carrier(kept).collect(KEY, 0, [name])
    assert kept.contents == {}


def test_what_no_attempt_has_asked_for_is_removed(place: Place) -> None:
    stray = place.folder.files / "9.0.1.0"
    stray.mkdir()
    record = WrittenAttempt(*KEY, (Seat("n", (0,), 0),), False)
    write(place.part / "part", Order(record, 0, Terms("n", "", "", "", 1, 1.0, 1), ()))
    assert [*place.folder.given()] == [record]
    assert not stray.exists()
    assert place.files.exists()
