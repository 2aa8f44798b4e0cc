"""Tasks as another user, on the driver's side: where its ground is, and whether it works."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from headway.engines.local.driver.environment import of_this_process
from headway.engines.local.shared.terms import Account
from headway.errors import EngineError

GROUNDS: Final = Path("/var/tmp")
"""Where grounds are made by default: it survives a restart of the machine, and every user can get there."""

_TRIED_SECONDS: Final = 60.0

_TRY = """
import os, sys
for path in sys.argv[1:]:
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        sys.exit(f"it cannot use {path}")
import headway.engines.local.slot.slot, headway.engines.local.slot.files
"""


def ground_of(root: Path, account: Account | None) -> Path:
    """Where the ground of an engine is made by default; without an account, for several."""
    digest = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]
    return GROUNDS / f"headway-{digest}-{'owners' if account is None else account.uid}"


def attempt(account: Account, paths: tuple[Path, ...]) -> None:
    """Check that the account can run this Python with Headway, and use these folders.

    Raises:
        EngineError: it cannot; the message says what.
    """
    command = [sys.executable, "-P", "-s", "-c", _TRY, *map(str, paths)]
    hint = f"Install Headway where {account.name} can read it, and keep the ground (--ground) where it can get to."
    try:
        tried = subprocess.run(
            command,
            user=account.uid,
            group=account.gid,
            extra_groups=account.groups,
            env=of_this_process(()),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=_TRIED_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(f"tasks cannot run as {account.name!r}: {error}", hint) from error
    if tried.returncode != 0:
        said = (tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"])[-1]
        raise EngineError(f"tasks cannot run as {account.name!r}: {said}", hint)
