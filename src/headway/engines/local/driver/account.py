"""Tasks as another user, on the driver's side: which user, whether it works, and the ground prepared for it."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from headway.engines.local.driver.environment import of_this_process
from headway.engines.local.shared.terms import Account
from headway.errors import EngineError, HeadwayError, InvalidInput

GROUNDS: Final = Path("/var/tmp")
"""Where grounds are made by default: it survives a restart of the machine, and every user can get there."""

_TRIED_SECONDS: Final = 60.0
_STALE_SECONDS: Final = 3600.0

_TRY = """
import os, sys
for path in sys.argv[1:]:
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        sys.exit(f"it cannot use {path}")
import headway.engines.local.slot.slot, headway.engines.local.slot.files
"""


def account_of(name: str) -> Account:
    """The account that tasks run as.

    Raises:
        HeadwayError: this process does not run as root, and cannot become another user.
        InvalidInput: there is no such user, or it is root.
    """
    if os.geteuid() != 0:
        hint = "Start it as root, or leave --run-as out: tasks then run as who starts the server."
        raise HeadwayError(f"tasks cannot run as {name!r}: the server does not run as root", hint)
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise InvalidInput("run_as", name, "the name of a user of this machine, not root") from None
    if found.pw_uid == 0:
        raise InvalidInput("run_as", name, "the name of a user of this machine, not root")
    groups = set(os.getgrouplist(name, found.pw_gid))
    if 0 in groups:
        hint = "Tasks could then read what is for root's group alone."
        raise InvalidInput("run_as", name, f"a user that is not in the group {grp.getgrgid(0).gr_name}", hint=hint)
    return Account(name, found.pw_uid, found.pw_gid, tuple(sorted(groups)), found.pw_dir, found.pw_shell)


def ground_of(root: Path, account: Account) -> Path:
    """Where the ground of an engine is made by default."""
    digest = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]
    return GROUNDS / f"headway-{digest}-{account.uid}"


def prepare(ground: Path, account: Account, folders: tuple[str, ...]) -> None:
    """Make a ground that belongs to root, with folders in it that belong to the account.

    Raises:
        EngineError: it belongs to another user, or cannot be made.
    """
    try:
        ground.mkdir(mode=0o711, parents=True, exist_ok=True)
        _check_own(ground)
        ground.chmod(0o711)
        (ground / "nodes").mkdir(mode=0o711, exist_ok=True)
        for name in folders:
            hand_over(ground / name, account)
        _sweep(ground / "dropped")
    except OSError as error:
        raise EngineError(f"the folder {ground}, for what tasks are given and save, cannot be used: {error}") from error


def _sweep(dropped: Path) -> None:
    """Remove outputs of attempts that were killed before they were brought in; only those too old to be needed."""
    with os.scandir(dropped) as entries:
        for entry in entries:
            is_old = time.time() - entry.stat(follow_symlinks=False).st_ctime > _STALE_SECONDS
            if is_old and not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)


def hand_over(folder: Path, account: Account) -> None:
    """Make a folder that belongs to the account, within one that belongs to root.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchown(fd, account.uid, account.gid)
    finally:
        os.close(fd)


def _check_own(ground: Path) -> None:
    """Check that only root can put anything into a folder, or replace it by another."""
    status = ground.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != 0 or status.st_mode & 0o022:
        hint = "Remove it, or name another one (--ground)."
        raise EngineError(f"{ground} must be a folder that only root can write to", hint)


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
