"""Real accounts of this machine, for tests that run tasks as their users."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from .live.conftest import python_for


def lacking() -> str:
    """Why there can be none; empty if there can be."""
    if os.geteuid() != 0:
        return "only root can have tasks run as their users"
    return "" if shutil.which("useradd") else "useradd makes the accounts, and is not installed"


@contextmanager
def two_accounts() -> Iterator[tuple[str, str]]:
    """Two accounts, and a `sys.executable` that they can run, while the context lasts."""
    first, second = (f"hw{secrets.token_hex(4)}" for _ in range(2))
    try:
        for name in (first, second):
            subprocess.run(["useradd", "--no-create-home", "--user-group", name], check=True)
        with python_for(first):
            yield first, second
    finally:
        for name in (first, second):
            subprocess.run(["userdel", name], check=False, capture_output=True)
