"""The folder of uploads: when its files are on the disk."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headway.errors import HeadwayError, InvalidInput, NoSuchUpload
from headway.live.uploads import WRITTEN_AT_ONCE, Uploads

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
