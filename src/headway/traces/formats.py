"""Which formats can be read, and how files of other formats are recognised."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

from headway.errors import HeadwayError, NotReadable
from headway.traces.files import GZIP_MAGIC

READABLE: Final = (
    "a log in the Standard Workload Format (.swf, .swf.gz), or a table with a heading (.csv, .csv.gz), "
    "such as job,release,width,runtime,due"
)
"""The formats that can be read, in words."""

_BOM: Final = b"\xef\xbb\xbf"

_SIGNS: Final = (
    (b"\x80\x04\x95", "a pickle of Python"),
    (b"\x80\x05\x95", "a pickle of Python"),
    (b"PK\x03\x04", "a ZIP archive or a spreadsheet"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x89HDF", "an HDF5 file"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ", "compressed with xz"),
    (b"(\xb5/\xfd", "compressed with Zstandard"),
    (b"%PDF", "a PDF file"),
    (b"\x7fELF", "a program"),
    (b"{", "JSON"),
    (b"[", "JSON"),
    (b"<", "XML or HTML"),
    (b"---", "YAML"),
)
"""First bytes of files in other formats."""

_INSIDE: Final = (
    (b"<adag", "XML, a workflow of Pegasus (DAX)"),
    (b'"schemaVersion"', "JSON, a workflow of WfCommons"),
)
"""What workflow files of other formats contain near their beginning."""

_ENOUGH: Final = 4096
"""How many bytes of a file are examined."""

_CONTROLS: Final = frozenset(range(32)) - frozenset(b"\t\n\r\f")
_CONTROLS_MAX: Final = 0.05
"""A file with a larger share of control characters is not text. Headers of public logs have a few."""

HINT: Final = f"What can be read: {READABLE}."


def not_readable(path: Path, kind: str, why: str = "") -> NotReadable:
    """The error for a file of a kind that cannot be read; empty: of an unknown one."""
    said = f"{kind}, which cannot be read" if kind else "in no format that can be read"
    return NotReadable(f"{path} is {said}", f"{HINT} {why}".rstrip())


def check_format(path: Path) -> None:
    """Check that a file is in no known other format, and that its name fits its content.

    Raises:
        NotReadable: it is in another format; the message names the format.
        HeadwayError: it is a log with the name of a table, or a table with that of a log.
    """
    first = b""
    with suppress(OSError, EOFError, zlib.error):  # the reader reports that
        with path.open("rb") as file:
            first = file.read(_ENOUGH)
        if first.startswith(GZIP_MAGIC):
            with gzip.open(path) as unzipped:
                first = unzipped.read(_ENOUGH)
    if kind := _foreign(first):
        raise not_readable(path, kind)
    _check_name(path, first.removeprefix(_BOM).lstrip().partition(b"\n")[0].decode("latin-1"))


def _foreign(first: bytes) -> str:
    """The format of a file by its first bytes; empty if it may be a log or a table."""
    bare = first.removeprefix(_BOM).lstrip()
    for sign, kind in _SIGNS:
        if first.startswith(sign) or bare.startswith(sign):
            inside = (named for mark, named in _INSIDE if named.startswith(kind.split()[0]) and mark in first)
            return next(inside, kind)
    if first[257:262] == b"ustar":
        return "a tar archive"
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "text in UTF-16, not UTF-8"
    if sum(byte in _CONTROLS for byte in first) > _CONTROLS_MAX * len(first):
        return "a binary file"
    return ""


def _check_name(path: Path, line: str) -> None:
    """Check that the name of a file fits its first line."""
    bare = path.name.lower().removesuffix(".gz")
    columns = {cell.strip().lower() for cell in line.split(",")}
    if bare.endswith(".csv") and line.startswith(";"):
        raise HeadwayError(f"{path} has the name of a table, but is a log", "Give it a name that ends in .swf.")
    if bare.endswith(".swf") and columns & {"runtime", "estimate"}:
        raise HeadwayError(f"{path} has the name of a log, but is a table", "Give it a name that ends in .csv.")
    if bare.endswith(".swf") or line.startswith(";") or "," in line or not any(map(str.isalpha, line)):
        return
    for sign, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if sign in line:
            raise not_readable(path, f"a table with {name} between its columns", "Write commas between the columns.")
