"""Files that tasks get and give, by URL: what a user writes, and which URLs are allowed.

A URL is a path, `file:///PATH`, `headway:...` (a file that the server keeps: what a client uploaded or a task gave), or
any that fsspec (https://filesystem-spec.readthedocs.io) can open where tasks run. Only the last kind needs fsspec,
which is imported when it is needed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from headway.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

KEPT_SCHEME: Final = "headway:"
"""How the URL of a file that the server keeps begins."""

_SCHEME: Final = r"([A-Za-z][A-Za-z0-9+.-]*):"
_UPLOAD: Final = r"headway:([0-9a-f]{64})(?:/([^/\0]+))?"
_OUTPUT: Final = r"headway:([^/\0]*)"


class File:
    """A URL in the arguments of a task. It is pickled as a question, which is answered where the task runs."""

    __slots__ = ("url",)

    def __init__(self, url: str | os.PathLike[str]) -> None:
        text = os.fspath(url)
        self.url = text if scheme(text) else os.path.abspath(text)
        wrong = flaw(self.url, output=isinstance(self, Output), known_here=False)
        if wrong is not None:
            raise InvalidInput("url", text, wrong)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and type(other) is type(self) and other.url == self.url

    def __hash__(self) -> int:
        return hash((type(self), self.url))

    def __reduce__(self) -> tuple[Any, ...]:
        named = _named.get()
        if named is not None:
            named.append(self)
        return _found, (type(self), self.url)


class Input(File):
    """A file that a task gets, anywhere in its arguments: `Task(function, Input("s3://bucket/data.csv"))`.

    Before the function is called the file is fetched into a folder of the attempt's own, and the function gets its
    `pathlib.Path` there: a copy, which it may change. `Client.upload` makes one of a file that only the client has.

    Attributes:
        url: a path (a relative one is taken from the current folder), or a URL.

    Raises:
        InvalidInput: this cannot be a URL.
    """

    __slots__ = ()


class Output(File):
    """A file that a task gives, anywhere in its arguments: `Task(function, Output("results/one.csv"))`.

    The function gets a `pathlib.Path` to write to. When it has returned, the file is put to the URL, whole or not at
    all; an attempt that failed, was killed or was overtaken by a later one puts nothing.

    Attributes:
        url: a path (a relative one is taken from the current folder) or a URL; `headway:NAME` for a file that the
            server shall keep with the result, see `Client.download`.

    Raises:
        InvalidInput: this cannot be a URL.
    """

    __slots__ = ()


Answer = Callable[[File], "Path"]

_named: ContextVar[list[File] | None] = ContextVar("named", default=None)
_answer: ContextVar[Answer | None] = ContextVar("answer", default=None)


@contextmanager
def naming() -> Iterator[list[File]]:
    """Collects the inputs and outputs that are pickled in the body, in this thread."""
    named: list[File] = []
    token = _named.set(named)
    try:
        yield named
    finally:
        _named.reset(token)


@contextmanager
def answering(answer: Answer) -> Iterator[None]:
    """What is unpickled in the body, in this thread, has paths instead of inputs and outputs."""
    token = _answer.set(answer)
    try:
        yield
    finally:
        _answer.reset(token)


def _found(kind: type[File], url: str) -> File | Path:
    """What replaces an input or output: its path where a task's arguments are read, else itself."""
    file = object.__new__(kind)
    file.url = url
    answer = _answer.get()
    return file if answer is None else answer(file)


def scheme(url: str) -> str:
    """The word before the first colon, in lower case; empty for a path."""
    match = re.match(_SCHEME, url)
    return match[1].lower() if match else ""


def local_path(url: str) -> str | None:
    """The path that a path or a `file:` URL means; None for every other URL."""
    match scheme(url):
        case "":
            return url
        case "file":
            from urllib.parse import unquote  # this module is in every process of a slot

            return unquote(re.sub(r"^file:(//(localhost)?(?=/))?", "", url, flags=re.IGNORECASE))
        case _:
            return None


def upload_of(url: str) -> tuple[str, str] | None:
    """Name (the SHA-256 of its bytes) and file name of a file that the server keeps; None for every other URL."""
    match = re.fullmatch(_UPLOAD, url)
    return match and (match[1], match[2] or "file")


def flaw(url: str, *, output: bool, known_here: bool = True) -> str | None:
    """What would be allowed instead of this URL; None if it is right as far as can be known.

    Args:
        output: whether something is put there.
        known_here: whether tasks run with what is installed here, so that schemes unknown here are wrong.
    """
    path = local_path(url)
    if path is not None:
        return None if path.startswith("/") and "\0" not in path else "an absolute path, or a URL"
    if url.startswith(KEPT_SCHEME):
        if output:
            return None if re.fullmatch(_OUTPUT, url) else f"{KEPT_SCHEME}NAME, a name without a slash"
        printed = f"{KEPT_SCHEME}SHA256, as `headway upload` and `headway result` print it"
        return None if re.fullmatch(_UPLOAD, url) else printed
    return _unknown(url) if known_here else None


def _unknown(url: str) -> str | None:
    """Which schemes there are, if one that the URL is made of is not; URLs may be chained (`zip://a.csv::s3://...`)."""
    from fsspec.registry import known_implementations, registry

    if all(_is_installed(scheme(part) or part) for part in url.split("::")):
        return None
    known = sorted({"file", "headway", *filter(_is_installed, (*known_implementations, *registry))})
    return f"a path, or a URL of a file system that is installed: {', '.join(known)}"


def _is_installed(protocol: str) -> bool:
    """Whether the package with this file system is installed; what else it needs shows when it is used."""
    from importlib.util import find_spec

    from fsspec.registry import known_implementations, registry

    place = known_implementations.get(protocol)
    if protocol in registry or place is None:
        return protocol in registry
    package = place["class"].partition(".")[0]
    return package in sys.modules or find_spec(package) is not None
