"""The folder of uploads: what it promises about the disk."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.live.uploads import Uploads

CONTENT = b"some bytes"
NAME = hashlib.sha256(CONTENT).hexdigest()


async def parts() -> AsyncIterator[bytes]:
    yield CONTENT


def test_when_an_upload_is_taken_its_bytes_and_its_name_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a loss of power could take a file that the journal names."""
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
