"""Accounts as which tasks run, and the grounds that are prepared for them."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import time
from pathlib import Path
from typing import Final

from headway.engines.local.shared.terms import Account, Terms
from headway.errors import EngineError, HeadwayError, InvalidInput

GROUND_FOLDERS: Final = ("checkpoints", "fences", "dropped")
"""The folders of a ground that belong to its account."""

_STALE_SECONDS: Final = 3600.0


def check_root() -> None:
    """Check that this process can become another user.

    Raises:
        HeadwayError: it does not run as root.
    """
    if os.geteuid() != 0:
        hint = "Start it as root, or leave that option out: tasks then run as who starts the server."
        raise HeadwayError("tasks cannot run as other users: the server does not run as root", hint)


def is_account(name: str) -> bool:
    """Whether this machine has an account of this name."""
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        return False
    return True


def account_of(name: str, field: str = "run_as", *, allow_root: bool = False) -> Account:
    """The account that tasks run as.

    Args:
        field: what an error calls it.
        allow_root: root may be that, and so may users in its group.

    Raises:
        HeadwayError: this process does not run as root, and cannot become another user.
        InvalidInput: there is no such user, or it is root, or in root's group.
    """
    check_root()
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise InvalidInput(field, name, "the name of a user of this machine, not root") from None
    if found.pw_uid == 0 and not allow_root:
        raise InvalidInput(field, name, "the name of a user of this machine, not root")
    groups = set(os.getgrouplist(name, found.pw_gid))
    if 0 in groups and not allow_root:
        hint = "Tasks could then read what is for root's group alone."
        raise InvalidInput(field, name, f"a user that is not in the group {grp.getgrgid(0).gr_name}", hint=hint)
    return Account(name, found.pw_uid, found.pw_gid, tuple(sorted(groups)), found.pw_dir, found.pw_shell)


def prepare(terms: Terms, account: Account) -> None:
    """Make the ground of one of several accounts, which belongs to root, with folders that belong to the account.

    Raises:
        EngineError: it belongs to another user, or cannot be made.
    """
    prepare_ground(Path(terms.accounts), None)
    own = terms.of(account)
    prepare_ground(Path(own.ground), account)
    try:
        hand_over(Path(own.scratch), account)
    except OSError as error:
        raise _unusable(Path(own.ground), error) from error


def prepare_ground(ground: Path, account: Account | None) -> None:
    """Make a ground that belongs to root, with folders in it that belong to the account, if it is that of one.

    Raises:
        EngineError: it belongs to another user, or cannot be made.
    """
    try:
        ground.mkdir(mode=0o711, parents=True, exist_ok=True)
        _check_own(ground)
        ground.chmod(0o711)
        if account is not None:
            (ground / "nodes").mkdir(mode=0o711, exist_ok=True)
            for name in GROUND_FOLDERS:
                hand_over(ground / name, account)
            _sweep(ground / "dropped")
    except OSError as error:
        raise _unusable(ground, error) from error


def _unusable(ground: Path, error: OSError) -> EngineError:
    return EngineError(f"the folder {ground}, for what tasks are given and save, cannot be used: {error}")


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
