"""The files that an attempt on this machine gets and gives, in a folder of its own.

Inputs are fetched into it before the attempt runs. Outputs are written into it, and brought to their places only when
the attempt has succeeded: first beside the place under a name of the attempt's own, then moved, so that each is there
whole or not at all. A fence keeps an attempt from putting anything once a later one of the same task has begun, even if
nobody knew that it still ran. These are steps 4 and 6 of docs/explanation/data-flow.md.

Loaded only into processes of slots that run such attempts.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from headway.engines.local.shared.frames import Launch
from headway.engines.local.shared.terms import NO_ROOM, NoRoomForFiles, dropped_name
from headway.engines.local.slot.fence import Fence
from headway.errors import FileTrouble
from headway.files import KEPT_SCHEME, File, Output, flaw, local_path, scheme, upload_of

_CHUNK: Final = 1 << 20

_MOVES: Final = frozenset({"local", "sftp", "ssh", "ftp"})
"""Schemes of fsspec where a file that is being written is visible, and moving it costs nothing. In an object store a
file appears when it is complete."""


class _WantedOutput(NamedTuple):
    """An output: its name in reports, where it is written, where it is put, and what an error calls it."""

    name: str
    path: str
    url: str
    field: str


class _Staged(NamedTuple):
    """An output that is about to be put: its later URL, how to put it, and how to remove it."""

    url: str
    publish: Callable[[], object]
    discard: Callable[[], object]


def _at_once(step: Callable[[], None]) -> None:
    step()


class AttemptFiles:
    """The files of one attempt.

    Attributes:
        elsewhere: where inputs are that arguments know by another URL.

    Args:
        folder: of the attempt, made here; what an earlier attempt left there is removed.
        fences: folder of the fences.
        launch: the attempt.
        open_kept: opens a file that the server keeps, by its name; None: it is opened in its place.
        dropped: folder for outputs that the server keeps, if another process brings them in; empty: they are put in
            their places.
        with_room: does a step that needs room on the disk: at once, or when there is room.

    Raises:
        FileTrouble: the folder cannot be made.
    """

    def __init__(
        self,
        folder: str,
        fences: str,
        launch: Launch,
        open_kept: Callable[[str], int] | None = None,
        dropped: str = "",
        with_room: Callable[[Callable[[], None]], None] = _at_once,
    ) -> None:
        self._with_room = with_room
        self._open_kept = open_kept
        self._dropped = dropped
        self.folder = folder
        self.elsewhere: dict[str, str] = {}
        self._uploads = launch.uploads
        self._launch = launch
        self._fence = Fence(fences, launch)
        self._answers: dict[File, Path] = {}
        self._outputs: list[_WantedOutput] = []
        self._staged: dict[str, _Staged] = {}
        self._put: dict[str, str] = {}
        self.remove()
        with_room(self._make)

    def _make(self) -> None:
        with _told("the attempt's folder cannot be made"):
            os.makedirs(self.folder, mode=0o700, exist_ok=True)

    def answer(self, file: File) -> Path:
        """The path where a function finds an input or writes an output.

        Raises:
            FileTrouble: as `fetch` and `expect`.
        """
        path = self._answers.get(file)
        if path is None:
            path = Path(self.folder, str(len(self._answers)), _file_name(file.url))
            if isinstance(file, Output):
                self.expect(file.url, str(path), file.url, "Output")
            else:
                self.fetch(file.url, str(path), "Input")
            self._answers[file] = path
        return path

    def fetch(self, url: str, path: str, field: str) -> None:
        """Fetch an input.

        Args:
            path: of the file, in the folder.
            field: what an error calls it.

        Raises:
            FileTrouble: it does not exist, or is not available.
        """
        url = self.elsewhere.get(url, url)
        upload = upload_of(url)
        source: str | None
        source = local_path(url) if upload is None else os.path.join(self._uploads, upload[0])
        read_once = source is not None and upload is None and os.path.exists(source) and not os.path.isfile(source)
        (_at_once if read_once else self._with_room)(lambda: self._fetch(url, upload, source, path, field))

    def _fetch(self, url: str, upload: tuple[str, str] | None, source: str | int | None, path: str, field: str) -> None:
        target = os.path.join(self.folder, path)
        with (
            _told(f"input URL cannot be fetched: {field} is {url!r}", f"input URL not found: {field} is {url!r}"),
            _whole(target),
        ):
            self._made(path)
            if source is None:
                system, place = _system_of(url, output=False)
                system.get_file(place, target)
                if os.path.isdir(target):
                    raise IsADirectoryError("it is a folder; allowed: a file")
                return
            if upload is not None and self._open_kept is not None:
                source = self._open_kept(upload[0])
            elif upload is not None:
                self._check_place(f"{field} is {url!r}")
            with open(source, "rb") as given, open(target, "wb") as copy:  # a pipe is read to its end
                shutil.copyfileobj(given, copy, _CHUNK)

    def expect(self, name: str, path: str, url: str, field: str) -> None:
        """Prepare for an output that will be written.

        Args:
            name: its name in reports when it has been put.
            path: where it is written, in the folder.
            url: where it is put.
            field: what an error calls it.

        Raises:
            FileTrouble: nothing can be put there.
        """
        self._with_room(lambda: self._expect(name, path, url, field))

    def _expect(self, name: str, path: str, url: str, field: str) -> None:
        with _told(f"output URL cannot be used: {field} is {url!r}"):
            if url.startswith(KEPT_SCHEME):
                if not self._dropped:
                    self._check_place(f"{field} is {url!r}")
            elif local_path(url) is None:
                _system_of(url, output=True)
            if not self._outputs:
                self._fence.put_up()
            self._outputs.append(_WantedOutput(name, self._made(path), url, field))

    def _check_place(self, said: str) -> None:
        """See that the files that the server keeps can be reached from here.

        Raises:
            FileTrouble: they cannot.
        """
        if not os.path.isdir(self._uploads):
            raise FileTrouble(
                f"{said}, a file that the server keeps, and their folder is not there: {self._uploads!r}. "
                "This node must share the server's data directory"
            )

    def put(self) -> dict[str, str]:
        """Put the outputs in their places; returns the URL of each by its name.

        Raises:
            FileTrouble: one was not written or cannot be put, or a later attempt has begun.
        """
        try:
            self._with_room(self._put_all)
        except FileTrouble:
            for one in self._staged.values():
                with contextlib.suppress(OSError):  # the first error says what is wrong
                    one.discard()
            raise
        return self._put

    def _put_all(self) -> None:
        """Put the outputs; if there is no room for one, this can be called again, and goes on from there."""
        for wanted in self._outputs:
            if wanted.name in self._staged:
                continue
            said = f"{wanted.field} is {wanted.url!r}"
            if not os.path.isfile(wanted.path):
                raise FileTrouble(f"output was not written: {said}, but there is no file {wanted.path}")
            with _told(f"output cannot be put: {said}"):
                self._own(wanted.path)
                self._staged[wanted.name] = self._stage(wanted)
        if self._staged:
            with _told("outputs cannot be put"), self._fence.passed():
                for name, one in self._staged.items():
                    if name not in self._put:
                        one.publish()
                        self._put[name] = one.url

    def remove(self) -> None:
        """Remove the folder with everything in it, and the fence if no later attempt has moved it."""
        if self._outputs:
            self._fence.take_down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _made(self, path: str) -> str:
        """A path in the folder, with its parent made."""
        whole = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        return whole

    def _own(self, path: str) -> None:
        """Replace an output that is a link by a copy: its target belongs to something else, or will be removed."""
        if os.path.islink(path) or os.stat(path).st_nlink > 1:
            copy = os.path.join(self.folder, f".{secrets.token_hex(8)}")
            with _whole(copy):
                shutil.copy(path, copy)
            os.replace(copy, path)

    def _stage(self, wanted: _WantedOutput) -> _Staged:
        """Bring an output as near to its place as possible without being visible there."""
        target = local_path(wanted.url)
        if wanted.url.startswith(KEPT_SCHEME):
            return self._kept(wanted)
        if target is not None:
            if os.path.exists(target) and not os.path.isfile(target):  # a device would be lost
                raise FileTrouble(f"output cannot be put: {wanted.field} is {wanted.url!r}, which is not a plain file")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            for earlier in range(1, self._launch.attempt):  # killed before they could move theirs
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._draft(target, earlier))
            draft = self._draft(target, self._launch.attempt)
            try:
                shutil.move(wanted.path, draft)
            except OSError:
                if os.path.lexists(wanted.path):  # what there was room for of its copy
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(draft)
                raise
            return _Staged(wanted.url, lambda: os.replace(draft, target), lambda: os.unlink(draft))
        system, place = _system_of(wanted.url, output=True)
        if scheme(wanted.url) not in _MOVES:
            return _Staged(wanted.url, lambda: system.put_file(wanted.path, place), lambda: None)
        draft = self._draft(place, self._launch.attempt)
        system.makedirs(os.path.dirname(place), exist_ok=True)
        system.put_file(wanted.path, draft)
        return _Staged(wanted.url, lambda: system.mv(draft, place), lambda: system.rm_file(draft))

    def _draft(self, path: str, attempt: int) -> str:
        """The path beside a file where an attempt writes it first."""
        folder, _, name = path.rpartition("/")
        return f"{folder}/.{name}.{self._launch.job}.{self._launch.task}.{attempt}.{self._launch.rank}"

    def _kept(self, wanted: _WantedOutput) -> _Staged:
        """An output that the server keeps: its name comes from its bytes, so it may appear in its place at once."""
        with open(wanted.path, "rb") as file:
            name = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        os.chmod(wanted.path, 0o600)
        if self._dropped:
            launch = self._launch
            target = os.path.join(self._dropped, dropped_name(name, launch.job, launch.task, launch.rank))
        else:
            target = os.path.join(self._uploads, name)
        try:
            os.replace(wanted.path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._move_far(wanted.path, target)
        file_name = wanted.url.removeprefix(KEPT_SCHEME)
        return _Staged(
            f"{KEPT_SCHEME}{name}/{file_name}" if file_name else f"{KEPT_SCHEME}{name}", lambda: None, lambda: None
        )

    def _move_far(self, path: str, target: str) -> None:
        """Move a file to another file system, where it appears as a whole."""
        draft = self._draft(target, self._launch.attempt)
        with _whole(draft):
            shutil.copy(path, draft)
            with open(draft, "rb") as file:
                os.fsync(file.fileno())
            os.replace(draft, target)
        os.unlink(path)


def _file_name(url: str) -> str:
    """The name of the file for a function: the one in its URL, because many look at the ending."""
    upload = upload_of(url)
    if upload is not None:
        return upload[1]
    name = url.split("::")[0].partition("?")[0].rstrip("/").rpartition("/")[2].removeprefix(KEPT_SCHEME)
    return name if name not in ("", ".", "..") else "file"


def _system_of(url: str, *, output: bool) -> tuple[Any, str]:
    """fsspec's file system of a URL, and the path there.

    Raises:
        FileTrouble: nothing that is installed here knows the scheme.
    """
    allowed = flaw(url, output=output)
    if allowed is not None:
        raise FileTrouble(f"the URL {url!r} cannot be used here; allowed: {allowed}")
    from fsspec.core import url_to_fs

    fresh = {"skip_instance_cache": True}  # this process lives on: what it remembers of a file may be outdated
    system, place = url_to_fs(url, **fresh, **{scheme(part): fresh for part in url.split("::")[1:]})
    return system, place


@contextlib.contextmanager
def _whole(path: str) -> Iterator[None]:
    """A file that the body writes is there as a whole or not at all: a part of it would take up room."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # there is none yet
            os.unlink(path)
        raise


@contextlib.contextmanager
def _told(trouble: str, not_found: str = "") -> Iterator[None]:
    """Turn whatever a file system raises into a `FileTrouble` that says what it is about."""
    try:
        yield
    except FileTrouble:
        raise
    except FileNotFoundError as error:
        raise FileTrouble(not_found or f"{trouble}: {error}") from error
    except Exception as error:
        is_full = isinstance(error, OSError) and error.errno in NO_ROOM
        kind = NoRoomForFiles if is_full else FileTrouble
        raise kind(f"{trouble}: {str(error) or type(error).__name__}") from error
