"""The folder of uploads: when its files are on the disk."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headway.live.store.layout import OUTPUT
from headway.live.uploads import WRITTEN_AT_ONCE, Uploads, remove_outputs

CONTENT = b"some bytes"
NAME = hashlib.sha256(CONTENT).hexdigest()
LONG_PART = bytes(WRITTEN_AT_ONCE)
LONG_NAME = hashlib.sha256(3 * LONG_PART).hexdigest()


async def parts() -> AsyncIterator[bytes]:
    yield CONTENT


async def long_parts() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield LONG_PART


@pytest.mark.parametrize(("name", "sent"), [(NAME, parts), (LONG_NAME, long_parts)])
def test_when_an_upload_is_taken_its_bytes_and_its_name_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sent: Callable[[], AsyncIterator[bytes]]
) -> None:
    """Otherwise a loss of power could remove a file that the journal names. Each is brought there once, at its end."""
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def see(file: int) -> None:
        synced.append((os.path.basename(os.readlink(f"/proc/self/fd/{file}")), (tmp_path / "up" / name).exists()))
        fsync(file)

    monkeypatch.setattr(os, "fsync", see)
    size = asyncio.run(Uploads(tmp_path / "up", 4 * WRITTEN_AT_ONCE).take(name, 0, sent()))
    assert size == (tmp_path / "up" / name).stat().st_size > 0
    (file, before), (folder, after) = synced
    assert file.startswith(f".{name}")
    assert (before, folder, after) == (False, "up", True)


def test_output_is_removed_where_it_is_now_and_nowhere_else(tmp_path: Path) -> None:
    """In a copy of a data directory results name the files of the original."""
    copy, original = tmp_path / "copy", tmp_path / "original"
    files = [data / OUTPUT / "7" / "0.1.out" for data in (copy, original)]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    token = copy / "token"
    token.touch()
    remove_outputs(copy, [str(files[1]), str(copy / OUTPUT / ".." / "token"), str(token), "token", "", "/"])
    assert not files[0].parent.exists()
    assert files[1].exists()
    assert token.exists()
