"""Checking the files that belong to a journal leaves time to others, unless one waits for it."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import pytest

from headway.live.store import kept
from headway.live.store.kept import KeptFile, flaws_of_files

CONTENT = b"as it was written"


@pytest.mark.parametrize(("hurry", "share"), [(True, 0.0), (False, 3.0)])
def test_a_damaged_file_is_found_and_three_quarters_of_the_time_are_left_unless_in_a_hurry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hurry: bool, share: float
) -> None:
    right = hashlib.sha256(CONTENT).hexdigest()
    files = [KeptFile(tmp_path / name, right, "an upload") for name in ("whole", "changed")]
    files[0].path.write_bytes(CONTENT)
    files[1].path.write_bytes(CONTENT.upper())
    instants, slept = iter(range(100)), list[float]()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(instants)))
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(kept, "_files", lambda folder: files)
    assert [file for file, _ in flaws_of_files(tmp_path, hurry=hurry)] == files[1:]
    assert slept == ([share] * 2 if share else [])
