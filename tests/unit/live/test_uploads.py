"""The folder of uploads: when its files are on the disk."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.errors import HeadwayError, InvalidInput, NoSuchUpload
from headway.live.uploads import Uploads

CONTENT = b"some bytes"
NAME = hashlib.sha256(CONTENT).hexdigest()


async def parts() -> AsyncIterator[bytes]:
    yield CONTENT


def test_when_an_upload_is_taken_its_bytes_and_its_name_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a loss of power could remove a file that the journal names."""
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def see(file: int) -> None:
        synced.append((os.path.basename(os.readlink(f"/proc/self/fd/{file}")), (tmp_path / "up" / NAME).exists()))
        fsync(file)

    monkeypatch.setattr(os, "fsync", see)
    assert asyncio.run(Uploads(tmp_path / "up", 100).take(NAME, 0, parts())) == len(CONTENT)
    (file, before), (folder, after) = synced
    assert file.startswith(f".{NAME}")
    assert (before, folder, after) == (False, "up", True)


def test_files_are_read_in_pieces_and_put_for_engines_elsewhere(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "up", 100)

    async def scenario() -> None:
        await uploads.put(NAME, parts())
        assert uploads.folder.joinpath(NAME).read_bytes() == CONTENT
        pieces = [await uploads.read(NAME, place, 4) for place in range(0, 16, 4)]
        assert pieces == [b"some", b" byt", b"es", b""]
        with pytest.raises(NoSuchUpload):
            await uploads.read("0" * 64, 0, 4)
        with pytest.raises(InvalidInput):
            await uploads.read("../token", 0, 4)
        with pytest.raises(InvalidInput, match="the SHA-256 of the bytes that were sent"):
            await uploads.put("0" * 64, parts())
        (uploads.folder / ("1" * 64)).mkdir()
        with pytest.raises(HeadwayError, match="cannot be read: Is a directory"):
            await uploads.read("1" * 64, 0, 4)

    asyncio.run(scenario())
