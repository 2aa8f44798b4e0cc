"""Files in JSON, decoded part by part; what is wrong is told with its place, its value and what is allowed."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

from headway.errors import InvalidInput

_BYTE: Final = re.compile(r" \(byte (\d+)\)$")
_PLACE: Final = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_LOCATED_MAX: Final = 32 << 20
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")

T = TypeVar("T")


class JSONFile:
    """The content of a file in JSON.

    Args:
        text: its bytes.
        source: what errors call it.
    """

    def __init__(self, text: bytes, source: str) -> None:
        self.text = text
        self.source = source

    def refuse(self, field: str, value: object, allowed: str, hint: str = "") -> InvalidInput:
        """The error for a field."""
        return InvalidInput(field, value, allowed, source=self.source, line=line_of(self.text, field), hint=hint)

    def decode(self, decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw | None = None, place: str = "") -> T:
        """A part of the file as what it is to be.

        Args:
            raw: the part; None: all of it.
            place: where it is in the file.

        Raises:
            InvalidInput: it is something else, or no JSON.
        """
        part = self.text if raw is None else raw
        try:
            return decoder.decode(part)
        except msgspec.ValidationError as error:
            said, within = _PLACE.fullmatch(str(error)).groups("")  # type: ignore[union-attr]  # it fits any text
            allowed = said[:1].lower() + said[1:].replace("`", "")
            field = (place + within).removeprefix(".") or "JSON"
            raise self.refuse(field, _value_at(part, within), allowed) from error
        except msgspec.DecodeError as error:
            raise self.malformed(error) from error
        except UnicodeDecodeError as error:
            raise self.refuse(place or "JSON", error.object[:20], "text in utf-8") from error
        except RecursionError as error:
            raise self.refuse(place or "JSON", "something of many layers", "a workflow, which has few") from error

    def malformed(self, error: msgspec.DecodeError) -> InvalidInput:
        """The error for what is no JSON, with its line."""
        said = str(error)
        at = _BYTE.search(said)
        line = None if at is None else self.text.count(b"\n", 0, int(at[1])) + 1
        said = _BYTE.sub("", said).removeprefix("JSON is malformed: ")
        return InvalidInput("JSON", said, "well-formed JSON", source=self.source, line=line)


def line_of(text: bytes, field: str) -> int | None:
    """The line of a field of a file in JSON, or of the part of it that is there; None if the file is too large for it.

    >>> line_of(b'{"a": [1,\\n {"b": 2,\\n "c": 3}]}', "a[1].c")
    3
    """
    if len(text) > _LOCATED_MAX:
        return None
    steps: list[str | int] = [int(index) if index else key for key, index in _STEP.findall(f".{field}")]
    found = 0
    inside: list[_Container] = []
    key: str | None = None
    for token in _TOKEN.finditer(text):
        what = token[0]
        if what in b":":
            continue
        if what == b",":
            if inside:
                inside[-1].position += 1
            continue
        if what in b"}]":
            if not inside or inside.pop().matched == len(steps):
                break
            continue
        if inside and inside[-1].is_object and key is None:
            key = what[1:-1].decode("utf-8", "replace")
            continue
        here = inside[-1] if inside else None
        step = None if here is None else key if here.is_object else here.position
        key = None
        matched = 0 if here is None else -1
        if here is not None and 0 <= here.matched < len(steps) and steps[here.matched] == step:
            matched = here.matched + 1
            found = token.start()
            if matched == len(steps):
                break
        if what in b"{[":
            inside.append(_Container(what == b"{", matched))
    return text.count(b"\n", 0, found) + 1


class _Container:
    """An object or array that is being read: how many steps of a way lead to it, -1: it is not on the way."""

    __slots__ = ("is_object", "matched", "position")

    def __init__(self, is_object: bool, matched: int) -> None:
        self.is_object = is_object
        self.matched = matched
        self.position = 0


def _value_at(raw: bytes | msgspec.Raw, within: str) -> object:
    """The value at a place within a part of the file, for an error."""
    try:
        value: Any = msgspec.json.decode(raw)
        for key, index in _STEP.findall(within):
            value = value[int(index)] if index else value[key]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, KeyError, IndexError, TypeError):
        return "something that cannot be shown"
    return value
