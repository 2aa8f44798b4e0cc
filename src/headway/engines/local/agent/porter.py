"""Brings in outputs that the server keeps, if tasks run as a user that may not write to its folder.

The attempt puts such an output into a folder of the account. A process that runs as root copies it, because the process
that wrote it may still have it open. It checks everything: that it is a file, and that its name is that of its bytes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from headway.errors import FileTrouble

_CHUNK = 1 << 20


def named(urls: Iterable[str]) -> list[str]:
    """Names of those of these outputs that the server keeps."""
    from headway.files import KEPT_SCHEME, upload_of  # few runs name files

    return [
        upload[0]
        for upload in map(upload_of, (url for url in urls if url.startswith(KEPT_SCHEME)))
        if upload is not None
    ]


def bring_in(source: str, uploads: str, name: str) -> None:
    """Copy a file to the uploads if its name is right, and remove the original.

    Raises:
        FileTrouble: its name is wrong.
        OSError: it does not exist, or cannot be copied.
    """
    draft = os.path.join(uploads, f".{name}.{os.urandom(8).hex()}")
    given = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(given).st_mode):
            raise FileTrouble("output cannot be kept: it is not a plain file")
        import hashlib  # it loads OpenSSL, and few runs keep outputs

        digest = hashlib.sha256()
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as copy:
            while chunk := os.read(given, _CHUNK):
                digest.update(chunk)
                copy.write(chunk)
            copy.flush()
            os.fsync(copy.fileno())
        if digest.hexdigest() != name:
            raise FileTrouble("output cannot be kept: it was changed while it was put")
        os.rename(draft, os.path.join(uploads, name))
        os.unlink(source)
    except BaseException:
        with suppress(OSError):  # it was not made yet; or it stays, and is removed later as a stray
            os.unlink(draft)
        raise
    finally:
        os.close(given)
