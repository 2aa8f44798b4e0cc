"""A file system that is small enough to fill up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MIB = 1 << 20


@contextmanager
def mounted(place: Path, size: int = 64 * MIB) -> Iterator[Path]:
    """A file system in memory while the context lasts; where none can be mounted, the test is skipped."""
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "headway-test", str(place)]
    mount = subprocess.run(words, capture_output=True, text=True, check=False)
    if mount.returncode:
        pytest.skip(f"a file system can be mounted by root alone, with CAP_SYS_ADMIN: {mount.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(path: Path, leave: int) -> None:
    """Make a file that leaves this many bytes free."""
    found = os.statvfs(path.parent)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - leave)
