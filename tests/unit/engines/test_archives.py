"""Folders that travel: what is packed is what is unpacked, and nothing lands outside."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from headway.engines.local.shared import archives
from headway.engines.local.shared.archives import pack, unpack


def test_files_and_folders_are_as_they_were(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    (saved / "deep" / "empty").mkdir(parents=True)
    (saved / "deep" / "large").write_bytes(os.urandom(3_000_000))
    (saved / "program").write_text("true")
    (saved / "program").chmod(0o755)
    (saved / "link").symlink_to("/etc/passwd")
    os.mkfifo(saved / "pipe")
    unpack(pack(str(saved)), str(tmp_path / "again"))
    again = tmp_path / "again"
    assert (again / "deep" / "large").read_bytes() == (saved / "deep" / "large").read_bytes()
    assert (again / "deep" / "empty").is_dir()
    assert os.access(again / "program", os.X_OK)
    assert sorted(path.name for path in again.iterdir()) == ["deep", "program"], "neither links nor pipes travel"


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    packed = pack(str(tmp_path / "saved"))
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "newer").touch()
    unpack(packed, str(tmp_path / "there"))
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["newer"]


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "."])
def test_nothing_lands_outside(tmp_path: Path, name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(ValueError, match="lies outside"):
        unpack(packed.getvalue(), str(tmp_path / "folder"))
    assert list(tmp_path.iterdir()) == []


def test_links_and_nonsense_are_refused(tmp_path: Path) -> None:
    packed, link = io.BytesIO(), tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(link)
    with pytest.raises(ValueError, match="no plain file"):
        unpack(packed.getvalue(), str(tmp_path / "folder"))
    with pytest.raises(ValueError, match="not an archive"):
        unpack(b"nonsense" * 200, str(tmp_path / "folder"))
    assert list(tmp_path.iterdir()) == []


def test_more_than_travels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "ARCHIVE_MAX", 1 << 20)
    (tmp_path / "large").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(OSError, match="more than 1 MB"):
        pack(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        pack(str(tmp_path / "missing"))
