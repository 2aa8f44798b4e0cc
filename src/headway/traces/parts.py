"""Files in JSON, decoded part by part; what is wrong is told with its place, its value and what is allowed."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

from headway.errors import InvalidInput

_BYTE: Final = re.compile(r" \(byte (\d+)\)$")
_PLACE: Final = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
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
        return InvalidInput(field, value, allowed, source=self.source, hint=hint)

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


def _value_at(raw: bytes | msgspec.Raw, within: str) -> object:
    """The value at a place within a part of the file, for an error."""
    try:
        value: Any = msgspec.json.decode(raw)
        for key, index in _STEP.findall(within):
            value = value[int(index)] if index else value[key]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, KeyError, IndexError, TypeError):
        return "something that cannot be shown"
    return value
