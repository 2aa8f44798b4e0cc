"""Files, plain or gzipped. System errors become readable messages."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from headway.errors import HeadwayError

GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file. It is decompressed if it begins like a gzip file, whatever its name is.

    Raises:
        HeadwayError: it cannot be read, or is not a complete gzip file.
    """
    try:
        with path.open("rb") as raw:
            yield unzipped(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise HeadwayError(f"{path} is not a whole gzip file: {error}", "Fetch it again.") from error
    except OSError as error:
        raise HeadwayError(f"cannot read {path}: {error.strerror or error}") from error


def unzipped(raw: BinaryIO) -> BinaryIO:
    """The content of a file that can seek: decompressed if it begins like a gzip file."""
    zipped = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    raw.seek(0)
    return cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if zipped else raw


@contextmanager
def reading(path: Path, encoding: str) -> Iterator[TextIO]:
    """The text of a file. It is decompressed if it begins like a gzip file, whatever its name is.

    Raises:
        HeadwayError: it cannot be read, is not a complete gzip file, or is not in the encoding.
    """
    with opened(path) as whole, decoded(whole, path, encoding) as text:
        yield text


@contextmanager
def decoded(whole: BinaryIO, source: str | Path, encoding: str) -> Iterator[TextIO]:
    """The text in bytes.

    Args:
        source: what errors call the file.

    Raises:
        HeadwayError: it is not in the encoding.
    """
    try:
        with io.TextIOWrapper(whole, encoding=encoding, newline="") as text:
            yield text
    except UnicodeDecodeError as error:
        raise HeadwayError(f"{source} is not text in {encoding}: {error.reason} at byte {error.start}") from error


class Bounded(io.RawIOBase):
    """The content of a file, as long as it is not too large: a small file may decompress to any size.

    Args:
        most: bytes.
        source: what errors call the file.
    """

    def __init__(self, whole: BinaryIO, most: int, source: str) -> None:
        self._whole = whole
        self._most = self._left = most
        self._source = source

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer.

        Raises:
            HeadwayError: the file is too large.
        """
        piece = self._whole.read(len(buffer))
        self._left -= len(piece)
        if self._left < 0:
            raise HeadwayError(f"{self._source} has more than {self._most:,} bytes", "Split it into several files.")
        buffer[: len(piece)] = piece
        return len(piece)


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """A file to write text to, compressed if its name ends in .gz. Equal text gives equal bytes.

    Raises:
        HeadwayError: it cannot be written.
    """
    try:
        with path.open("wb") as raw:
            whole = gzip.GzipFile("", "wb", 6, raw, mtime=0) if path.suffix == ".gz" else raw
            with io.TextIOWrapper(whole, encoding="utf-8", newline="") as text:
                yield text
    except OSError as error:
        raise HeadwayError(f"cannot write {path}: {error.strerror or error}") from error
