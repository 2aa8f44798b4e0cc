"""Files that server and nodes share: whole or not there at all."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from headway.engines.slurm import written
from headway.engines.slurm.folder import SlurmFolder
from headway.engines.slurm.written import DoorPlate, Torn, append, read, records, write
from headway.errors import EngineError


@pytest.fixture
def told(tmp_path: Path) -> Path:
    path = tmp_path / "told"
    path.touch()
    return path


def add(path: Path, *bodies: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    append(fd, list(bodies))
    os.close(fd)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    plate = DoorPlate("head", 17, "word")
    write(tmp_path / "door", plate)
    assert read(tmp_path / "door", DoorPlate) == plate
    assert os.listdir(tmp_path) == ["door"]


@pytest.mark.parametrize("place", [0, 31, 32, -1])
def test_a_changed_byte_is_seen(tmp_path: Path, place: int) -> None:
    path = tmp_path / "door"
    write(path, DoorPlate("head", 17, "word"))
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(Torn, match="its checksum is wrong"):
        read(path, DoorPlate)


def test_records_are_read_once_and_in_order(told: Path) -> None:
    assert records(told, 0) == ([], 0)
    add(told, b"one", b"")
    assert records(told, 0) == ([b"one", b""], 19)
    add(told, b"three")
    assert records(told, 19) == ([b"three"], 32)


@pytest.mark.parametrize("size", range(13))
def test_a_record_of_which_a_part_is_missing_has_not_arrived(told: Path, size: int) -> None:
    add(told, b"first")
    add(told, b"other")
    whole = told.read_bytes()
    told.write_bytes(whole[: 13 + size])
    assert records(told, 0) == ([b"first"], 13)
    told.write_bytes(whole[: 13 + size] + bytes(13 - size))
    assert records(told, 0) == ([b"first"], 13), "a network file system may show zeros first"
    told.write_bytes(whole)
    assert records(told, 13) == ([b"other"], 26)


def test_a_record_waits_for_room_on_the_disk(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really, answers = os.write, [2, errno.ENOSPC, 0]

    def write_some(fd: int, content: bytes) -> int:
        answer = answers.pop(0) if answers else 0
        if answer == errno.ENOSPC:
            raise OSError(answer, os.strerror(answer))
        return really(fd, content[:answer] if answer else content)

    monkeypatch.setattr(written, "_ROOM_AGAIN_SECONDS", 0)
    monkeypatch.setattr(os, "write", write_some)
    add(told, b"one", b"two")
    assert records(told, 0)[0] == [b"one", b"two"]


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=r"the folder .*/file/shared cannot be used: .*Not a directory") as error:
        SlurmFolder(tmp_path / "file" / "shared").open()
    assert (
        error.value.hint
        == "Name a folder that you may write to, on a file system that all nodes of the partition share."
    )


def test_a_folder_keeps_its_identity(tmp_path: Path) -> None:
    one, other = SlurmFolder(tmp_path), SlurmFolder(tmp_path)
    one.open()
    with pytest.raises(EngineError, match="is used by another server"):
        other.open()
    one.close()
    other.open()
    other.close()
    assert (one.identity, one.word) == (other.identity, other.word)
    assert len(one.identity) == 12


def test_what_tasks_leave_goes_with_their_attempt_and_with_the_next_start_if_the_server_died(tmp_path: Path) -> None:
    folder = SlurmFolder(tmp_path)
    folder.open()
    parts = {
        (job, 0, 1): [tmp_path / place / f"{job}.0.1.0" for place in ("attempts", "files", "nodes")] for job in (1, 2)
    }
    for place in (place for places in parts.values() for place in places):
        (place / "fetched").mkdir(parents=True)
    folder.remove((1, 0, 1), (0,))
    assert [place.exists() for places in parts.values() for place in places] == 3 * [False] + 3 * [True]
    assert [*folder.given()] == [], "it was never wholly written"
    assert not any(place.exists() for places in parts.values() for place in places)
    folder.close()


def test_a_job_that_begins_while_its_folder_is_removed_leaves_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SlurmFolder(tmp_path)
    folder.open()
    part = folder.of((1, 0, 1), 0)
    part.mkdir()
    remove = shutil.rmtree

    def begins(place: Path, **terms: bool) -> None:
        """Slurm opens the file for what the job prints just after the last file was removed."""
        for path in place.iterdir() if place.exists() else ():
            path.unlink()
        with suppress(FileNotFoundError):
            (part / "log").touch()
        with suppress(OSError):
            place.rmdir()

    monkeypatch.setattr(shutil, "rmtree", begins)
    folder.remove((1, 0, 1), (0,))
    monkeypatch.setattr(shutil, "rmtree", remove)
    assert [*folder.attempts.iterdir()] == []
    folder.close()
