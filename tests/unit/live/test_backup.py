"""A backup: each of its files is on the disk before it appears, and files that were deleted meanwhile are named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from headway.errors import Damaged, HeadwayError
from headway.live.store import backup
from headway.live.store.backup import BACKUP, Manifest, _below, back_up, restore
from headway.live.store.journal import Journal
from headway.live.store.layout import TOKEN_FILE, UPLOADS_FOLDER
from headway.live.store.schema import FILE

CONTENTS = (b"one", b"another")


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory with two uploads and a token, in use."""
    folder = tmp_path / "data"
    with closing(Journal(folder)) as journal:
        (folder / UPLOADS_FOLDER).mkdir()
        (folder / TOKEN_FILE).write_text("secret")
        for content in CONTENTS:
            name = sha256(content).hexdigest()
            (folder / UPLOADS_FOLDER / name).write_bytes(content)
            journal.retained.keep_upload(name, 0, len(content))
        yield folder


def manifest_of(folder: Path) -> Manifest:
    return msgspec.json.decode((folder / BACKUP).read_bytes(), type=Manifest)


def test_a_file_that_has_gone_meanwhile_is_said_and_the_rest_is_whole(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = data / UPLOADS_FOLDER / sha256(CONTENTS[0]).hexdigest()
    copied = backup._copy_file

    def copy(source: Path, goal: Path) -> None:
        first.unlink(missing_ok=True)
        copied(source, goal)

    monkeypatch.setattr(backup, "_copy_file", copy)
    back_up(data, tmp_path / "backup")
    made = manifest_of(tmp_path / "backup")
    assert made.gone == [f"{UPLOADS_FOLDER}/{first.name}"]
    assert set(made.files) == {TOKEN_FILE, f"{UPLOADS_FOLDER}/{sha256(CONTENTS[1]).hexdigest()}"}


def test_the_current_folder_is_not_replaced(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for goal in (Path(), Path("."), here):
        with pytest.raises(HeadwayError, match="is the current folder"):
            back_up(data, goal)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("step", ["backup", "restore"])
def test_every_byte_is_on_the_disk_before_it_counts(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    goal, elsewhere = tmp_path / "backup", tmp_path / "elsewhere"
    if step == "restore":
        back_up(data, goal)
    synced: dict[int, int] = {}
    fsync = os.fsync

    def see(file: int) -> None:
        found = os.fstat(file)
        synced[found.st_ino] = found.st_size
        fsync(file)

    monkeypatch.setattr(os, "fsync", see)
    if step == "backup":
        back_up(data, goal)
        files = [goal / name for name in (FILE, *manifest_of(goal).files)]
    else:
        restore(goal, elsewhere)
        files = [elsewhere / name for name in manifest_of(goal).files]
    assert len(files) >= len(CONTENTS) + 1
    for path in files:
        assert synced.get(path.stat().st_ino) == path.stat().st_size, path


@pytest.mark.parametrize("place", ["../outside", "uploads/../../outside", "/{outside}", ""])
def test_a_backup_that_names_a_file_outside_of_it_is_not_restored(data: Path, tmp_path: Path, place: str) -> None:
    goal, outside = tmp_path / "backup", tmp_path / "outside"
    made = back_up(data, goal)
    outside.write_bytes(b"planted")
    place = place.format(outside=outside)
    named = msgspec.structs.replace(made, files={**made.files, place: sha256(b"planted").hexdigest()})
    (goal / BACKUP).write_bytes(msgspec.json.encode(named))
    with pytest.raises(Damaged, match="no path in it"):
        restore(goal, tmp_path / "deep" / "restored")
    assert not (tmp_path / "deep").exists()


def test_folders_of_checkpoints_that_are_removed_meanwhile_are_passed_over(tmp_path: Path) -> None:
    for attempt in "12":
        (tmp_path / "7" / attempt).mkdir(parents=True)
        (tmp_path / "7" / attempt / "state").touch()
    found = _below(tmp_path / "7")
    first = next(found)
    shutil.rmtree(tmp_path / "7")
    assert (first.name, list(found)) == ("state", [])
    assert list(_below(tmp_path / "7")) == []
