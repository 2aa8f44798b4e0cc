"""Files and folders that are for the account of this process alone: secrets, and the data directory."""

from __future__ import annotations

import errno
import logging
import os
import pwd
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from headway.errors import HeadwayError

log = logging.getLogger(__name__)

TOKEN_MAX: Final = 4096
"""Bytes of a file with a token."""

_OTHERS: Final = 0o077
_OURS: Final = re.compile(r"journal|lock$|url$|port$|accepted$|engine$|uploads$|tokens\.json$|tls.*\.pem$|track-record")


def account() -> str:
    """The name of the account of this process; of one that has none, as in some containers, its number."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid-{os.geteuid()}"


def token_of(path: Path) -> str:
    """The token in a file that only this account may read and change; made the first time.

    Raises:
        HeadwayError: the file belongs to another user, others may read it, it is not a plain file, or is empty; or it
            cannot be read or made.
    """
    try:
        if not os.path.lexists(path):
            write_private(path, f"{secrets.token_urlsafe(32)}\n")
        token = _read(path).decode("ascii").strip()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _not_plain(path) from error
        raise HeadwayError(f"the token in {path} cannot be read or made: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise HeadwayError(f"{path} holds no token: {error}", "Remove it, and a new token is made.") from error
    if not token:
        raise HeadwayError(f"{path} is empty", "Remove it, and a new token is made.")
    if not token.isprintable() or " " in token:
        raise HeadwayError(f"{path} holds no token: it has more than one word", "Remove it, and a new token is made.")
    return token


def _read(path: Path) -> bytes:
    # Measure and read the same file, even if its name changes meanwhile. A pipe must not block.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise _not_plain(path)
        if found.st_uid != os.geteuid():
            raise HeadwayError(
                f"{path} belongs to the account {found.st_uid}, this server runs as {os.geteuid()}: "
                "its token may be known to others",
                "Remove it, and a new token is made; or change its owner, if the token is a secret.",
            )
        mode = stat.S_IMODE(found.st_mode)
        if mode & _OTHERS:
            raise HeadwayError(
                f"{path} has the mode {mode:04o}: its token may be known to others",
                f"Remove it, and a new token is made; or `chmod 600 {path}`, if no one else has read it.",
            )
        text = file.read(TOKEN_MAX + 1)
    if len(text) > TOKEN_MAX:
        raise HeadwayError(f"{path} holds no token: it has more than {TOKEN_MAX} bytes")
    return text


def _not_plain(path: Path) -> HeadwayError:
    return HeadwayError(f"{path} is not a plain file, so it cannot hold a token", "Remove it; a new one is made.")


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that only its owner may read, whole or not at all.

    Raises:
        HeadwayError: the disk is full, or the folder takes no files.
    """
    draft = path.with_name(f".{path.name}")
    try:
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise HeadwayError(f"cannot write {path}: {error.strerror or error}") from error


def tighten(folder: Path) -> None:
    """Make sure that no other user can read a data directory or its entries. If one could, the log says so.

    Folders below its entries are not checked, because other users cannot enter them any more. Files besides Headway's
    own are left alone.

    Raises:
        HeadwayError: it belongs to another user, so it cannot be changed.
    """
    try:
        if not folder.is_dir():
            return
        ours = (path for path in folder.iterdir() if _OURS.match(path.name))
        loose = [path for path in (folder, *ours) if _is_loose(path)]
        for path in loose:
            path.chmod(0o700 if path.is_dir() else 0o600)
    except OSError as error:
        raise HeadwayError(
            f"{error.filename} can be read by others, and that cannot be changed: {error.strerror}",
            "Make the account of the server its owner, or choose another data directory (--data).",
        ) from error
    if loose:
        names = ", ".join(str(path) for path in loose[:10])
        log.warning("others could read or enter %s%s; now they cannot", names, ", ..." if len(loose) > 10 else "")


def _is_loose(path: Path) -> bool:
    """Whether others may do something with a file or folder; links are left alone: what they lead to is elsewhere."""
    found = path.lstat()
    kind = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
    return kind and bool(stat.S_IMODE(found.st_mode) & _OTHERS)
