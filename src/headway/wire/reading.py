"""Bodies as values of their types, and jobs of any form from what they were written as."""

from __future__ import annotations

import dataclasses
import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, get_type_hints

import msgspec

from headway.errors import in_short
from headway.model.job import FORMS, AnyJob, JobSpec, Kind, TaskSpec
from headway.wire.work import Command, Commands, NewJob, PlannedTask, Steps, Work

Decode = Callable[[bytes], Any]

SEARCHED_MAX: Final = 64 << 10
"""Bytes of a body in which the entry that is wrong is looked for: it is decoded some ten times."""

_PATH: Final = re.compile(r" - at `\$((?:\.\w+|\[\d+\]|\[\.\.\.\])+)`$")
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]|\[\.\.\.\]")
"""The path of an error; and a step of it, without groups into an entry of a map."""

_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def decoder(kind: Any, *, is_json: bool) -> Decode:
    """A decoder of bodies into values of this type. In JSON 2.0 is a whole number too, as in JSON Schema.

    The decoder raises `msgspec.MsgspecError` if the body is not valid, and `RecursionError` if it is too deep.
    """
    decode = msgspec.json.Decoder(kind).decode if is_json else msgspec.msgpack.Decoder(kind).decode
    plain = msgspec.json.decode if is_json else msgspec.msgpack.decode

    def lenient(body: bytes) -> Any:
        try:
            return decode(body)
        except msgspec.ValidationError as error:
            wrong = error
        except UnicodeDecodeError:  # what msgspec before 0.23 raises
            raise msgspec.DecodeError("Invalid UTF-8 encoded string") from None
        is_number = is_json and "got `float`" in str(wrong)
        is_long = len(memoryview(body)) > SEARCHED_MAX
        if is_long and not is_number:
            raise wrong
        try:
            whole = plain(body)
        except _UNREADABLE:  # what comes after that which is wrong
            raise wrong from None
        if is_number:
            try:
                return msgspec.convert(with_whole_numbers(whole), kind)
            except msgspec.ValidationError as error:
                wrong = error
        raise (wrong if is_long else _told(wrong, whole, kind)) from None

    return lenient


def _told(error: msgspec.ValidationError, body: Any, kind: Any) -> msgspec.ValidationError:
    """The error, with the keys of entries where its path has `[...]`, and the value that is not what was expected."""
    text = str(error)
    path = _PATH.search(text)
    if path is None:
        return error
    whole: dict[str, Any] = {"": body}
    holder: Any = whole
    key: Any = ""
    told = ""
    try:
        for step in _STEP.finditer(path[1]):
            name, number = step.groups()
            if name or number:
                found = name or int(number)
                told += step[0]
            else:
                found = _wrong_key(holder, key, partial(_is_wrong, whole, kind, text[: path.start(1) + step.start()]))
                told += f"[{in_short(str(found))}]"
            holder, key = holder[key], found
        value = holder[key]
    except (AttributeError, LookupError, TypeError):  # a field is given twice, and this is the last of the two
        return error
    what = text[: path.start()]
    if what.startswith("Expected") and isinstance(value, str | int | float):
        what += f"{'' if ', got `' in what else ', got'} {in_short(repr(value))}"
    return msgspec.ValidationError(f"{what} - at `${told}`")


def _wrong_key(holder: Any, key: Any, is_wrong: Callable[[], bool]) -> Any:
    """The key of the first entry of `holder[key]` with which the body is wrong.

    Raises:
        LookupError: there is none.
    """
    entries = list(holder[key].items())

    def is_wrong_with(count: int) -> bool:
        holder[key] = dict(entries[:count])
        return is_wrong()

    first = bisect_left(range(len(entries)), True, key=lambda place: is_wrong_with(place + 1))
    holder[key] = dict(entries)
    return entries[first][0]


def _is_wrong(whole: dict[str, Any], kind: Any, said: str) -> bool:
    """Whether the error of the body begins so."""
    try:
        msgspec.convert(with_whole_numbers(whole[""]), kind)
    except msgspec.ValidationError as found:
        return str(found).startswith(said)
    return False


class LargeJobs:
    """Decodes jobs of many tasks a piece at a time: their plans, and their commands, one by one."""

    def __init__(self, *, is_json: bool) -> None:
        self._job = decoder(_raw(NewJob, ("plan", "work")), is_json=is_json)
        self._array = decoder(tuple[msgspec.Raw, ...], is_json=is_json)
        self._tag = decoder(_Tagged, is_json=is_json)
        self._task = decoder(PlannedTask, is_json=is_json)
        self._command = decoder(Command, is_json=is_json)
        self._work = decoder(Work, is_json=is_json)
        self._of_commands = {kind.__struct_config__.tag: kind for kind in (Commands, Steps)}
        self._parts = {kind: decoder(_raw(kind, kind.__struct_fields__), is_json=is_json) for kind in (Commands, Steps)}
        self._fields = {
            kind: {field.name: decoder(field.type, is_json=is_json) for field in msgspec.structs.fields(kind)}
            for kind in (Commands, Steps)
        }

    def read(self, body: Any) -> Generator[bool, None, NewJob]:
        """A job; yields after each piece, whether the next one is long: it looks at all tasks, though not closely.

        Raises:
            msgspec.MsgspecError: it is none.
        """
        given = _given(self._job(body))
        yield True
        if isinstance(given["plan"], msgspec.Raw):
            given["plan"] = yield from self._each(".plan", given["plan"], self._task)
        with _within(".work"):
            tag = self._tag(given["work"]).type
        yield True
        kind = self._of_commands.get(tag)
        if kind is None:
            with _within(".work"):
                given["work"] = self._work(given["work"])
        else:
            given["work"] = yield from self._read_work(kind, given["work"])
        return NewJob(**given)

    def _read_work(self, kind: type[Commands | Steps], body: msgspec.Raw) -> Generator[bool, None, Commands | Steps]:
        with _within(".work"):
            given = _given(self._parts[kind](body))
        for name, decode in self._fields[kind].items():
            yield True
            if not isinstance(given[name], msgspec.Raw):
                continue  # it is not given
            place = f".work.{name}"
            if name == "commands":
                given[name] = yield from self._each(place, given[name], self._command)
                continue
            with _within(place):
                given[name] = decode(given[name])
        return kind(**given)

    def _each(self, where: str, body: msgspec.Raw, decode: Decode) -> Generator[bool, None, tuple[Any, ...]]:
        with _within(where):
            raws = self._array(body)
        yield True
        found = []
        for place, raw in enumerate(raws):
            with _within(f"{where}[{place}]"):
                found.append(decode(raw))
            yield False
        return tuple(found)


class _Tagged(msgspec.Struct):
    type: str = ""


def _raw(kind: type[msgspec.Struct], names: Collection[str]) -> type[msgspec.Struct]:
    """A type whose fields of these names are not decoded yet."""
    fields: list[Any] = []
    for known in msgspec.structs.fields(kind):
        default = (
            msgspec.field(default_factory=known.default_factory)
            if known.default_factory is not msgspec.NODEFAULT
            else known.default
        )
        named = (known.name, msgspec.Raw if known.name in names else known.type)
        fields.append(named if known.required else (*named, default))
    config = kind.__struct_config__
    return msgspec.defstruct(kind.__name__, fields, tag=config.tag, forbid_unknown_fields=True)


def _given(found: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__}


@contextmanager
def _within(place: str) -> Iterator[None]:
    """Errors of the body say their place within the whole."""
    try:
        yield
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise msgspec.ValidationError(f"{what} - at `${place}{where or '`'}") from None


def packed(body: bytes) -> bytes:
    """An encoded job of many tasks, as it is written: as bytes, compressed to about a tenth."""
    return msgspec.msgpack.encode(zlib.compress(body, 1))


def is_packed(body: bytes) -> bool:
    """Whether a job was written compressed."""
    return body[:1] in (b"\xc4", b"\xc5", b"\xc6")  # how bytes begin


def any_form(kind: Any, plain: Any) -> JobSpec:
    """The job of a record or an event: what decoders call for the type `AnyJob`, as their `dec_hook`.

    A job of many tasks is written compressed (`packed`). Before jobs had forms, each was written with the terms of all
    kinds, and the graph of a workflow as `plan`.
    """
    if kind is AnyJob and isinstance(plain, bytes):
        body = zlib.decompress(plain)
        form = _kind.decode(body).kind
        return _job_of(form, _TERMS_OF[form].decode(body))
    if kind is not AnyJob:
        raise NotImplementedError(f"{kind} cannot be read")
    if not isinstance(plain, dict):
        raise ValueError(f"a job is written as {type(plain).__name__}")
    written = Kind(plain.get("kind", Kind.BAG))
    if "plan" in plain:
        plain = {**plain, "graph": plain["plan"]}
    return _job_of(written, msgspec.convert(plain, _TERMS[written]))


def _job_of(kind: Kind, terms: msgspec.Struct) -> JobSpec:
    given = {name: getattr(terms, name) for name in terms.__struct_fields__}
    if "graph" in given:
        given["graph"] = tuple(TaskSpec(*msgspec.structs.astuple(task)) for task in given["graph"])
    return FORMS[kind](**given)


class _Form(msgspec.Struct):
    """What form a job has."""

    kind: Kind


def _terms_of(form: type) -> type[msgspec.Struct]:
    """What a value of these fields is decoded to, before it is made.

    A decoder makes a data class without its `__init__`. Where jobs are compiled, that is no whole job, and fields that
    are absent do not have their defaults.
    """
    hints = get_type_hints(form)
    if "graph" in hints:
        hints["graph"] = tuple[_terms_of(TaskSpec), ...]  # type: ignore[misc]  # it is made now
    told = [field for field in dataclasses.fields(form) if field.init]
    fields = [
        (field.name, hints[field.name])
        if field.default is dataclasses.MISSING
        else (field.name, hints[field.name], field.default)
        for field in told
    ]
    return msgspec.defstruct(form.__name__, fields)


_TERMS: Final = {kind: _terms_of(form) for kind, form in FORMS.items()}
_TERMS_OF: Final = {kind: msgspec.msgpack.Decoder(terms) for kind, terms in _TERMS.items()}
_kind: Final = msgspec.msgpack.Decoder(_Form)


def with_whole_numbers(value: Any) -> Any:
    """What JSON was decoded to, 2.0 as 2."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [with_whole_numbers(each) for each in value]
        case dict():
            return {name: with_whole_numbers(each) for name, each in value.items()}
    return value
