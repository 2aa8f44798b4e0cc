"""The output files of this machine's engine: which are found, read and deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.engines.local.driver.written import Written, attempt_of
from headway.errors import NoSuchOutput

from ....opened import descriptors


def made(folder: Path, *names: str) -> list[Path]:
    paths = [folder / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("said")
    return paths


def test_output_is_found_and_deleted_where_it_is_now_and_nowhere_else(tmp_path: Path) -> None:
    """In a copy of a data directory results name the files of the original."""
    copy, original = tmp_path / "copy" / "output", tmp_path / "original" / "output"
    (here,), (there,) = made(copy, "7/0.1.out"), made(original, "7/0.1.out")
    token = tmp_path / "copy" / "token"
    token.touch()
    written = Written(copy)
    assert written.locate(str(there)) == here
    assert written.read(str(there), 1, 2) == b"ai"
    written.discard([str(there), str(copy / ".." / "token"), str(token), "token", "", "/", f"{copy}/7/.."])
    assert not here.parent.exists()
    assert there.exists()
    assert token.exists()


def test_a_file_that_cannot_be_deleted_stays_and_the_rest_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (path,), folder = made(tmp_path, "1/2.1.out"), tmp_path / "1" / "1.1.out"
    folder.mkdir()
    Written(tmp_path).discard([str(folder), str(path)])
    assert [folder.exists(), path.exists()] == [True, False]
    assert f"{folder} stays: Is a directory" in caplog.text


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_files_are_read(tmp_path: Path, kind: str) -> None:
    (secret, place) = *made(tmp_path, "secret"), tmp_path / "1" / "0.1.out"
    place.parent.mkdir()
    {"link": lambda: place.symlink_to(secret), "pipe": lambda: os.mkfifo(place), "folder": place.mkdir}[kind]()
    opened = descriptors()
    with pytest.raises(NoSuchOutput):
        Written(tmp_path).read(str(place), 0, 100)
    assert descriptors() == opened


def test_all_that_is_kept_is_named_once_it_was_left_alone(tmp_path: Path) -> None:
    old = made(tmp_path, "1/0.1.out", "1/0.1.err", "20/7.2.0.out")
    made(tmp_path, "3/0.1.out", "lost+found/what")
    (tmp_path / "4").mkdir()
    for job in ("1", "20", "4", "lost+found"):
        os.utime(tmp_path / job, (0, 0))
    found = {job: sorted(names) for job, names in Written(tmp_path).outputs(3600)}
    assert found == {1: sorted(map(str, old[:2])), 20: [str(old[2])], 4: []}
    assert not (tmp_path / "4").exists(), "it was empty"
    assert list(Written(tmp_path / "none").outputs(0)) == []


def test_what_goes_while_it_is_named_is_passed_over(tmp_path: Path) -> None:
    (path,) = made(tmp_path, "1/0.1.out")
    ((_, names),) = Written(tmp_path).outputs(-1)
    path.unlink()
    path.parent.rmdir()
    assert list(names) == []


@pytest.mark.parametrize(
    ("name", "attempt"),
    [
        ("/data/engine/output/7/3.2.out", (7, 3, 2)),
        ("/data/engine/output/7/3.2.0.err", (7, 3, 2)),
        ("7/3.2", (7, 3, 2)),
        ("7/3", None),
        ("x/3.2.out", None),
        ("", None),
    ],
)
def test_a_name_tells_this_engine_which_attempt_it_is_of(name: str, attempt: object) -> None:
    assert attempt_of(name) == attempt
