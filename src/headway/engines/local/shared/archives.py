"""A folder as one piece of bytes, so that it can travel: what an attempt has saved.

Only plain files and folders travel. What is unpacked can lie nowhere but in its folder.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
from typing import Final

from headway.checkpoints import make_folder

ARCHIVE_MAX: Final = 256 << 20
"""Bytes of the files of a folder that travels: an agent packs them at once, and does nothing else meanwhile."""


def pack(folder: str) -> bytes:
    """The files of a folder.

    Raises:
        OSError: it is not there, is changed just now, or is too large.
    """
    packed, left = io.BytesIO(), ARCHIVE_MAX
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for place, folders, files in os.walk(folder, onerror=_raised):
            for name in sorted((*folders, *files)):
                path = os.path.join(place, name)
                status = os.lstat(path)
                if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                    continue
                left -= status.st_size if stat.S_ISREG(status.st_mode) else 0
                if left < 0:
                    raise OSError(f"{folder} has more than {ARCHIVE_MAX >> 20} MB")
                archive.add(path, os.path.relpath(path, folder), recursive=False)
    return packed.getvalue()


def unpack(packed: bytes, folder: str) -> None:
    """Make a folder with these files: whole, or not at all. One that is there already stays as it is.

    Raises:
        OSError: it cannot be made.
        ValueError: this is not what `pack` made.
    """
    if os.path.lexists(folder):
        return
    draft = f"{folder}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    make_folder(draft)
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            for member in archive:
                path = os.path.normpath(os.path.join(draft, member.name))
                if os.path.commonpath((draft, path)) != draft or path == draft:
                    raise ValueError(f"{member.name} lies outside")
                if member.isdir():
                    os.makedirs(path, mode=0o700, exist_ok=True)
                    continue
                content = archive.extractfile(member) if member.isreg() else None
                if content is None:
                    raise ValueError(f"{member.name} is no plain file")
                mode = 0o600 | (member.mode & 0o111)
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
        os.rename(draft, folder)
    except tarfile.TarError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise ValueError(f"not an archive: {error}") from error
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _raised(error: OSError) -> None:
    raise error
