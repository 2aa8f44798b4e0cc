"""The text of a cluster file, its tables, and where in it something is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.toml_places import first_line

CLUSTER_FILE_MAX: Final = 1 << 20
"""Bytes of a cluster file."""

LINE_MAX: Final = 2000
"""Characters of one of its lines: no value is that long, and TOML takes its time with thousands of brackets or dots."""

KEYS: Final = ("site", "node", "power", "network", "link", "offer", "prices", "renting", "provider")
"""The names of all tables."""


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """What a cluster file says, not yet checked.

    Attributes:
        text: of the file.
        content: its tables, by name.
        source: what errors call it.
        base: where relative folders count from.
    """

    text: str
    content: Mapping[str, Any]
    source: str
    base: Path

    def tables(self, name: str, *, or_one: bool = False, least: int = 0) -> list[Mapping[str, Any]]:
        """All `[[name]]` tables.

        Args:
            or_one: there may be one `[name]` table instead.
            least: so many there must be, 0 or 1.

        Raises:
            InvalidInput: there is something else of this name.
        """
        given = self.content.get(name)
        found = [given] if or_one and isinstance(given, dict) else [] if given is None else given
        if not isinstance(found, list) or len(found) < least or not all(isinstance(table, dict) for table in found):
            allowed = f"one [{name}] table, or [[{name}]] tables" if or_one else f"[[{name}]] tables"
            raise InvalidInput(
                name,
                given,
                f"one [[{name}]] table or more" if least else allowed,
                source=self.source,
                line=self.top(name),
            )
        return found

    def table(self, name: str) -> Mapping[str, Any]:
        """The `[name]` table; empty if there is none.

        Raises:
            InvalidInput: there is something else of this name.
        """
        found = self.content.get(name, {})
        if not isinstance(found, dict):
            raise InvalidInput(name, found, f"one [{name}] table", source=self.source, line=self.top(name))
        return found

    @contextmanager
    def reading(self, name: str, number: int = 0) -> Iterator[None]:
        """While this lasts, one table of this name is read, counted from 0: what is wrong there is told with its line.

        Raises:
            InvalidInput: something is wrong there. If it is in another file, that one is told.
        """
        try:
            yield
        except InvalidInput as flaw:
            if flaw.source:
                raise
            line = self.line(name, number, flaw.field)
            raise InvalidInput(
                flaw.field, flaw.value, flaw.allowed, source=self.source, line=line, hint=flaw.hint
            ) from None

    def top(self, name: str) -> int | None:
        """The first line that names a table, or a key outside all tables; None: there is none."""
        return first_line(self.text, name)

    def line(self, name: str, number: int, field: str) -> int | None:
        """The line of a field of a table, of its heading if the field is not there; None for inline tables."""
        field, _, _ = field.partition(".")
        seen = -1
        heading = None
        for place, line in enumerate(self.text.splitlines(), 1):
            if line.lstrip().startswith("["):
                if seen == number:
                    break
                if re.match(rf"\s*\[\[?\s*[\"']?{name}[\"']?\s*\]", line):
                    seen += 1
                    heading = place if seen == number else None
            elif heading and re.match(rf"\s*[\"']?{re.escape(field)}[\"']?\s*=", line):
                return place
        return heading


def cluster_file(path: str | Path) -> ClusterFile:
    """A cluster file, whose relative folders count from where it is.

    Raises:
        InvalidInput, HeadwayError: as `of_text`, or it cannot be read.
    """
    return of_text(_text(path), str(path), Path(path).parent)


def of_text(text: str, source: str, base: Path = Path()) -> ClusterFile:
    """The text of a cluster file.

    Raises:
        InvalidInput: a line is too long, or a table has another name than those of `KEYS`.
        HeadwayError: it is not TOML.
    """
    import tomllib  # seldom wanted: a simulation may be told its slots

    for place, row in enumerate(text.splitlines(), 1):
        if len(row) > LINE_MAX:
            field, _, value = row.partition("=")
            allowed = f"a value within a line of {LINE_MAX} characters"
            raise InvalidInput(field.strip() or "line", value.strip(), allowed, source=source, line=place)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise HeadwayError(f"{source} is not TOML: {error}") from error
    except RecursionError as error:
        raise HeadwayError(
            f"{source} is not TOML of nodes: it is nested too deeply", "Write one [[node]] each."
        ) from error
    for key in (key for key in content if key not in KEYS):
        line, hint = first_line(text, key), did_you_mean(key, KEYS)
        raise InvalidInput("key", key, ", ".join(KEYS), source=source, line=line, hint=hint)
    return ClusterFile(text, content, source, base)


def _text(path: str | Path) -> str:
    """What a cluster file says."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(CLUSTER_FILE_MAX + 1)
        if len(content) > CLUSTER_FILE_MAX:
            raise HeadwayError(f"{path} has more than {CLUSTER_FILE_MAX} bytes, too many for a cluster file")
        return content.decode("utf-8")
    except OSError as error:
        raise HeadwayError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise HeadwayError(f"{path} is not text in utf-8: {error.reason} at byte {error.start}") from error
