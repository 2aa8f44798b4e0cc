"""Text files, plain or gzipped. System errors become readable messages."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from headway.errors import HeadwayError

GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def reading(path: Path, encoding: str) -> Iterator[TextIO]:
    """The text of a file. It is decompressed if it begins like a gzip file, whatever its name is.

    Raises:
        HeadwayError: it cannot be read, is not a complete gzip file, or is not in the encoding.
    """
    try:
        with path.open("rb") as raw:
            zipped = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            raw.seek(0)
            whole = gzip.GzipFile(fileobj=raw) if zipped else raw
            with io.TextIOWrapper(whole, encoding=encoding, newline="") as text:
                yield text
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise HeadwayError(f"{path} is not a whole gzip file: {error}", "Fetch it again.") from error
    except OSError as error:
        raise HeadwayError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise HeadwayError(f"{path} is not text in {encoding}: {error.reason} at byte {error.start}") from error


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
