"""Which formats can be read, and how those of files are recognised."""

from __future__ import annotations

import re
from contextlib import suppress
from enum import Enum
from pathlib import Path, PurePath
from typing import Final

from headway.errors import HeadwayError, NotReadable
from headway.traces.files import opened

READABLE: Final = (
    "a log in the Standard Workload Format (.swf, .swf.gz), a table with a heading (.csv, .csv.gz), such as "
    "job,release,width,runtime,due, or workflows: WfFormat or Headway's own (.json), DAX (.xml), STG (.stg), each also "
    "as .gz, or many of them in a .tar.gz"
)
"""The formats that can be read, in words."""


class Format(Enum):
    """The formats that can be read."""

    LOG = "a log"
    TABLE = "a table"
    OWN = "workflows with their terms"
    WFFORMAT = "a workflow of WfCommons"
    DAX = "a workflow of Pegasus"
    STG = "a task graph of the Standard Task Graph Set"
    TAR = "an archive of workflows"


_ENDINGS: Final = {
    ".swf": Format.LOG,
    ".csv": Format.TABLE,
    ".json": Format.WFFORMAT,
    ".xml": Format.DAX,
    ".dax": Format.DAX,
    ".stg": Format.STG,
    ".tar": Format.TAR,
    ".tgz": Format.TAR,
}

_BOM: Final = b"\xef\xbb\xbf"

_OWN: Final = re.compile(rb'\{\s*"headway"\s*:')
"""How a file with workflows and their terms begins."""

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
    (b"[", "JSON"),
    (b"---", "YAML"),
)
"""First bytes of files in other formats."""

_ENOUGH: Final = 4096
"""How many bytes of a file are examined."""

_CONTROLS: Final = frozenset(range(32)) - frozenset(b"\t\n\r\f")
_CONTROLS_MAX: Final = 0.05
"""A file with a larger share of control characters is not text. Headers of public logs have a few."""

READABLE_HINT: Final = f"What can be read: {READABLE}."


def not_readable(path: Path, kind: str, why: str = "") -> NotReadable:
    """The error for a file of a kind that cannot be read; empty: of an unknown one."""
    said = f"{kind}, which cannot be read" if kind else "in no format that can be read"
    return NotReadable(f"{path} is {said}", f"{READABLE_HINT} {why}".rstrip())


def format_of(path: Path) -> Format:
    """The format of a file, by its first bytes, or else by its name, or else by its first line.

    Raises:
        NotReadable: it is in another format; the message names the format.
        HeadwayError: it is a log with the name of a table, or a table with that of a log; or its name says nothing, and
            it cannot be read.
    """
    first = b""
    with suppress(HeadwayError), opened(path) as file:  # the reader reports that
        first = file.read(_ENOUGH)
    bare = first.removeprefix(_BOM).lstrip()
    if first[257:262] == b"ustar":
        return Format.TAR
    if _OWN.match(bare):
        return Format.OWN
    for sign, found in ((b"{", Format.WFFORMAT), (b"<", Format.DAX)):
        if bare.startswith(sign):
            return found
    if kind := _foreign(first):
        raise not_readable(path, kind)
    line = bare.partition(b"\n")[0].decode("latin-1").strip()
    _check_name(path, line)
    named = named_format(path.name)
    if named is not None:
        return named
    with opened(path):  # it is there
        pass
    if line.isdigit():
        return Format.STG
    return Format.LOG if line.startswith(";") or "," not in line else Format.TABLE


def named_format(name: str) -> Format | None:
    """The format that the name of a file promises; None if it says nothing.

    >>> named_format("jobs.SWF.gz")
    <Format.LOG: 'a log'>
    """
    return _ENDINGS.get(PurePath(name.lower().removesuffix(".gz")).suffix)


def _foreign(first: bytes) -> str:
    """The format of a file that cannot be read, by its first bytes; empty if it may be readable."""
    bare = first.removeprefix(_BOM).lstrip()
    for sign, kind in _SIGNS:
        if first.startswith(sign) or bare.startswith(sign):
            return kind
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
