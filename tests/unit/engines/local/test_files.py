"""The files of attempts: fetched, stored completely or not at all, and only by the latest attempt."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from msgspec import Raw

from headway.engines.local.shared.frames import Launch
from headway.engines.local.shared.terms import NoRoomForFiles
from headway.engines.local.slot.files import AttemptFiles
from headway.errors import FileTrouble
from headway.files import Input, Output

from ....waiting import LIMIT


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with one for uploads and one for fences."""
    for name in ("uploads", "fences"):
        (tmp_path / name).mkdir()
    return tmp_path


def at_once(step: Callable[[], None]) -> None:
    step()


def files_of(
    place: Path,
    attempt: int = 1,
    *,
    task: int = 0,
    rank: int = 0,
    with_room: Callable[[Callable[[], None]], None] = at_once,
) -> AttemptFiles:
    """The files of an attempt, each with a slot of its own."""
    launch = Launch(7, task, attempt, rank, 2, (0,), None, None, "", None, Raw(b""), str(place / "uploads"), True)
    folder = str(place / f"slot-{task}-{attempt}-{rank}")
    return AttemptFiles(folder, str(place / "fences"), launch, with_room=with_room)


def give(files: AttemptFiles, url: str | Path, content: str) -> None:
    """Write an output like a function."""
    files.answer(Output(url)).write_text(content)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_input_is_a_copy_under_its_own_name(place: Path) -> None:
    original = place / "data.csv"
    original.write_text("a,b")
    files = files_of(place)
    path = files.answer(Input(original))
    assert (path.name, path.read_text()) == ("data.csv", "a,b")
    path.write_text("changed")
    assert original.read_text() == "a,b"
    assert files.answer(Input(original)) == path
    files.remove()
    assert not Path(files.folder).exists()


def test_an_upload_is_read_where_it_lies(place: Path) -> None:
    name = sha256(b"up").hexdigest()
    (place / "uploads" / name).write_bytes(b"up")
    files = files_of(place)
    assert files.answer(Input(f"headway:{name}/up.txt")).name == "up.txt"
    assert files.answer(Input(f"headway:{name}")).read_bytes() == b"up"
    files.fetch(f"headway:{name}", "deep/er.txt", "inputs")
    assert Path(files.folder, "deep/er.txt").read_bytes() == b"up"


def test_what_fsspec_can_open_is_fetched(place: Path) -> None:
    """A file in an archive, written with the standard library."""
    with zipfile.ZipFile(place / "z.zip", "w") as archive:
        archive.writestr("inner/a.txt", "zipped")
    files = files_of(place)
    path = files.answer(Input(f"zip://inner/a.txt::file://{place}/z.zip"))
    assert (path.name, path.read_text()) == ("a.txt", "zipped")


class Remembering(LocalFileSystem):
    """A file system that caches what it has read, as some do with listings."""

    protocol = "remembering"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.read: dict[str, bytes] = {}

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        path = self._strip_protocol(rpath)
        content = self.read.setdefault(path, Path(path).read_bytes())
        Path(lpath).write_bytes(content)


def test_a_file_that_has_changed_is_fetched_again(place: Path) -> None:
    """The process of a slot lives on, and fsspec keeps file systems as long as their process lives."""
    fsspec.register_implementation("remembering", Remembering, clobber=True)
    for content in ("one", "two"):
        (place / "a").write_text(content)
        path = files_of(place).answer(Input(f"remembering://{place}/a"))
        assert path.read_text() == content


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("{place}/nope", r"^input URL not found: Input is '.*/nope'$"),
        ("file://{place}/nope", r"^input URL not found: Input is 'file:.*/nope'$"),
        ("local://{place}/nope", r"^input URL not found: Input is 'local:.*/nope'$"),
        ("zip://a::file://{place}/nope.zip", r"^input URL not found: Input is 'zip:"),
        (f"headway:{'0' * 64}", r"^input URL not found: Input is 'headway:0"),
        ("{place}", r"^input URL cannot be fetched: Input is '.*': .*[Ii]s a directory"),
        ("local://{place}/uploads", r"^input URL cannot be fetched: .*: it is a folder; allowed: a file"),
        ("nowhere://a", r"^the URL 'nowhere://a' cannot be used here; allowed: .*\bhttp\b"),
    ],
)
def test_an_input_that_cannot_be_had_is_told_with_its_url(place: Path, url: str, error: str) -> None:
    with pytest.raises(FileTrouble, match=error):
        files_of(place).answer(Input(url.format(place=place)))


@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
def test_outputs_are_put_when_all_is_well(place: Path, scheme: str) -> None:
    target = place / "new" / "one.txt"
    files = files_of(place)
    give(files, f"{scheme}{target}", "one")
    assert not target.exists()
    assert files.put() == {f"{scheme}{target}": f"{scheme}{target}"}
    files.remove()
    assert target.read_text() == "one"
    assert names(target.parent) == ["one.txt"]
    assert names(place / "fences") == []


def test_an_output_replaces_what_was_there(place: Path) -> None:
    for scheme in ("", "local://"):
        (place / "one").write_text("before")
        files = files_of(place)
        give(files, f"{scheme}{place}/one", "after")
        files.put()
        assert (place / "one").read_text() == "after"


def test_an_output_for_the_server_is_named_by_its_bytes(place: Path) -> None:
    files = files_of(place)
    give(files, "headway:table.csv", "t")
    name = sha256(b"t").hexdigest()
    assert files.put() == {"headway:table.csv": f"headway:{name}/table.csv"}
    assert (place / "uploads" / name).read_bytes() == b"t"
    again = files_of(place, task=1)
    give(again, "headway:", "t")
    assert again.put() == {"headway:": f"headway:{name}"}


def test_an_output_for_the_server_may_come_from_another_file_system(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of(place)
    give(files, "headway:out.bin", "made")
    replace, far = os.replace, [True]

    def replaces(source: str, target: str) -> None:
        if far.pop() if far else False:
            raise OSError(errno.EXDEV, "Invalid cross-device link", source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", replaces)
    (url,) = files.put().values()
    name = sha256(b"made").hexdigest()
    assert url == f"headway:{name}/out.bin"
    assert [path.name for path in (place / "uploads").iterdir()] == [name], "and no draft"
    assert (place / "uploads" / name).read_text() == "made"


@pytest.mark.parametrize(
    "ask",
    [lambda files: files.fetch(f"headway:{'0' * 64}/a", "a", "Input"), lambda files: files.answer(Output("headway:b"))],
)
def test_a_node_that_does_not_share_what_the_server_keeps_says_so_before_the_work(
    place: Path, ask: Callable[[AttemptFiles], object]
) -> None:
    files = files_of(place)
    (place / "uploads").rmdir()
    with pytest.raises(FileTrouble, match="This node must share the server's data directory"):
        ask(files)


def test_where_one_output_is_missing_none_is_put(place: Path) -> None:
    files = files_of(place)
    give(files, place / "one", "one")
    path = files.answer(Output(place / "two"))
    with pytest.raises(FileTrouble, match=rf"^output was not written: Output is '.*two', but there is no file {path}$"):
        files.put()
    files.remove()
    assert names(place) == ["fences", "uploads"]
    assert names(place / "fences") == []


def test_an_output_that_cannot_be_put_is_told_with_its_url(place: Path) -> None:
    (place / "folder").mkdir()
    os.mkfifo(place / "pipe")
    (place / "file").write_text("")
    for url, error in (
        (place / "folder", r"^output cannot be put: Output is '.*/folder', which is not a plain file$"),
        (place / "pipe", r"^output cannot be put: Output is '.*/pipe', which is not a plain file$"),
        (place / "file" / "below", r"^output cannot be put: Output is '.*/file/below': "),
    ):
        files = files_of(place)
        give(files, url, "")
        with pytest.raises(FileTrouble, match=error):
            files.put()
        files.remove()
    assert names(place) == ["fences", "file", "folder", "pipe", "uploads"]
    assert (place / "pipe").is_fifo()


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("url", ["headway:", "{place}/one"])
def test_an_output_that_is_a_link_is_put_as_what_it_leads_to(place: Path, url: str, link: Any) -> None:
    others = place / "others"
    others.write_text("theirs")
    others.chmod(0o644)
    files = files_of(place)
    link(others, files.answer(Output(url.format(place=place))))
    (put,) = files.put().values()
    files.remove()
    there = place / "uploads" / put.removeprefix("headway:") if put.startswith("headway:") else place / "one"
    assert (there.is_symlink(), there.stat().st_nlink, there.read_text()) == (False, 1, "theirs")
    assert (others.stat().st_mode & 0o777, others.stat().st_nlink, others.read_text()) == (0o644, 1, "theirs")


def test_an_attempt_that_was_overtaken_puts_nothing(place: Path) -> None:
    first, second = files_of(place, 1), files_of(place, 2)
    give(first, place / "one", "first")
    give(second, place / "one", "second")
    with pytest.raises(FileTrouble, match="a later attempt of this task has begun"):
        first.put()
    first.remove()
    assert names(place / "fences") == ["7.0.0"]
    second.put()
    assert (place / "one").read_text() == "second"
    late = files_of(place, 1)  # it began before the second, but only now comes to this
    late._outputs = first._outputs
    for wanted in late._outputs:
        os.makedirs(os.path.dirname(wanted.path), exist_ok=True)
        Path(wanted.path).write_text("late")
    with pytest.raises(FileTrouble, match="a later attempt"):
        late.put()
    assert (place / "one").read_text() == "second"
    assert [name for name in names(place) if not name.startswith("slot")] == ["fences", "one", "uploads"]


def test_an_older_attempt_that_begins_late_does_not_stop_the_later_one(place: Path) -> None:
    second, first = files_of(place, 2), files_of(place, 1)
    give(second, place / "one", "second")
    give(first, place / "one", "first")
    with pytest.raises(FileTrouble, match="a later attempt"):
        first.put()
    second.put()
    assert (place / "one").read_text() == "second"


def test_tasks_and_ranks_are_fenced_apart(place: Path) -> None:
    all_files = [files_of(place, task, task=task, rank=rank) for task in (0, 1) for rank in (0, 1)]
    for number, files in enumerate(all_files):
        give(files, place / f"out-{number}", str(number))
    for files in all_files:
        files.put()
    assert [(place / f"out-{number}").read_text() for number in range(4)] == ["0", "1", "2", "3"]


PUTTING = """
import sys
from pathlib import Path
from headway.engines.local.slot import files as local_files
from headway.engines.local.shared.frames import Launch
from msgspec import Raw
from headway.files import Output

place = Path(sys.argv[1])
launch = Launch(7, 0, 1, 0, 1, (0,), None, None, "", None, Raw(b""), str(place / "uploads"), True)
files = local_files.AttemptFiles(str(place / "slot"), str(place / "fences"), launch)
files.answer(Output(place / "one")).write_text("first")
with files._fence.passed():
    print("passing", flush=True)
    sys.stdin.read()
    (place / "one").write_text("first")
"""


@pytest.mark.parametrize("killed", [False, True])
def test_a_later_attempt_waits_for_one_that_is_just_putting(place: Path, killed: bool) -> None:
    """Another process is stopped while it stores. The later attempt begins when that one has finished or died."""
    with subprocess.Popen(
        [sys.executable, "-c", PUTTING, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "passing\n"
        second = files_of(place, 2)
        begun = threading.Event()

        def begin() -> None:
            give(second, place / "one", "second")
            begun.set()

        thread = threading.Thread(target=begin)
        thread.start()
        assert not begun.wait(0.2)
        if killed:
            first.kill()
        else:
            first.stdin.close()
        assert begun.wait(LIMIT)
        thread.join()
        first.wait(LIMIT)
    assert (place / "one").exists() != killed
    second.put()
    assert (place / "one").read_text() == "second"


def test_what_a_killed_attempt_left_beside_its_target_goes(place: Path) -> None:
    first, second = files_of(place, 1), files_of(place, 2)
    give(first, place / "one", "first")
    first._stage(first._outputs[0])  # and then it is killed
    assert ".one.7.0.1.0" in names(place)
    give(second, place / "one", "second")
    second.put()
    assert [name for name in names(place) if "one" in name] == ["one"]


# A full disk


class Full:
    """A disk that is full the first so many times that something is written; then there is room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: Path, name: str, times: int) -> None:
        self.left = times
        self.waited = 0
        self._place = place
        real = getattr(shutil, name)

        def write(source: Any, target: Any, *more: Any) -> Any:
            if self.left:
                self.left -= 1
                if isinstance(target, str):
                    Path(target).write_text("a part")
                else:
                    target.write(b"a part")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(source, target, *more)

        monkeypatch.setattr(shutil, name, write)

    def wait(self, step: Callable[[], None]) -> None:
        """Try again as often as needed."""
        while True:
            try:
                return step()
            except NoRoomForFiles:
                self.waited += 1
                parts = [path for path in self._place.rglob("*") if path.is_file() and path.read_text() == "a part"]
                assert parts == [], "what there was room for is removed"


def test_an_input_is_fetched_when_there_is_room(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "data").write_text("all of it")
    full = Full(monkeypatch, place, "copyfileobj", 2)
    files = files_of(place, with_room=full.wait)
    assert files.answer(Input(place / "data")).read_text() == "all of it"
    assert full.waited == 2


@pytest.mark.parametrize("name", ["move", "copy"])
def test_outputs_are_put_when_there_is_room_each_once(place: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    full = Full(monkeypatch, place, name, 2)
    files = files_of(place, with_room=full.wait)
    give(files, place / "one", "first")
    give(files, place / "two", "second")
    os.link(files.answer(Output(place / "two")), place / "elsewhere")  # so that it is copied first
    assert set(files.put()) == {Output(place / name).url for name in ("one", "two")}
    assert [(place / name).read_text() for name in ("one", "two")] == ["first", "second"]
    assert full.waited == 2
    assert not [path for path in names(place) if path.startswith(".")]


def test_without_room_nothing_is_put_and_nothing_left(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Full(monkeypatch, place, "move", 10)
    files = files_of(place)
    give(files, place / "one", "first")
    with pytest.raises(NoRoomForFiles, match=r"output cannot be put: .*No space left on device"):
        files.put()
    files.remove()
    assert names(place) == ["fences", "uploads"]


def test_what_can_be_read_only_once_is_not_read_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Full(monkeypatch, place, "copyfileobj", 1)
    os.mkfifo(place / "pipe")

    def write() -> None:
        with suppress(BrokenPipeError):  # it is closed before anything is read
            (place / "pipe").write_text("all of it")

    writing = threading.Thread(target=write)
    writing.start()
    files = files_of(place, with_room=full.wait)
    with pytest.raises(NoRoomForFiles):
        files.answer(Input(place / "pipe"))
    writing.join(LIMIT)
    assert full.waited == 0
