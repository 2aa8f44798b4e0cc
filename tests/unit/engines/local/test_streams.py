"""What is kept of a stream: all of it up to the bound, or else its first and its last part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec import Raw

from headway.engines.base import TAIL_MAX, Output
from headway.engines.local.agent.streams import OutputStream
from headway.engines.local.shared.frames import Launch

BOUND = 64 << 10
LAUNCH = Launch(7, 3, 1, 0, 1, (0,), None, None, "", None, Raw(b""))


class Pipe:
    """A stream and its writer."""

    def __init__(self, kept: Path, bound: int = BOUND) -> None:
        reading, self.writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(self.writing, False)
        self.stream = OutputStream(reading, 1, str(kept), bound)

    def write(self, written: bytes) -> None:
        """Write like a process that waits while the pipe is full."""
        while written:
            try:
                written = written[os.write(self.writing, written) :]
            except BlockingIOError:
                while self.stream.pump():
                    pass

    def output(self, written: bytes) -> Output | None:
        self.stream.begin(LAUNCH)
        self.write(written)
        return self.stream.end()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path / "output")
    yield pipe
    os.close(pipe.writing)
    pipe.stream.close()


def numbered(size: int) -> bytes:
    """Bytes in which every part can be recognised."""
    return b"".join(b"%7d\n" % number for number in range(size // 8 + 1))[:size]


@pytest.mark.parametrize("size", [1, TAIL_MAX - 1, TAIL_MAX])
def test_what_an_ending_can_hold_costs_no_file(pipe: Pipe, tmp_path: Path, size: int) -> None:
    assert pipe.output(numbered(size)) == Output("", size, numbered(size), 0)
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("size", [TAIL_MAX + 1, 2 * TAIL_MAX, BOUND - TAIL_MAX - 256, BOUND - TAIL_MAX, BOUND - 256])
def test_up_to_the_bound_a_file_has_all_of_it(pipe: Pipe, tmp_path: Path, size: int) -> None:
    written = numbered(size)
    path = tmp_path / "output" / "7" / "3.1.out"
    assert pipe.output(written) == Output(str(path), size, written[-TAIL_MAX:], 0, sha256(written).hexdigest())
    assert path.read_bytes() == written
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("size", [BOUND - 255, BOUND, BOUND + 1, 3 * BOUND, 100 * BOUND])
def test_beyond_the_bound_the_first_and_the_last_part_are_kept_and_it_is_said_what_is_left_out(
    pipe: Pipe, size: int
) -> None:
    written = numbered(size)
    found = pipe.output(written)
    assert found is not None
    assert (found.size, found.tail) == (size, written[-TAIL_MAX:])
    kept = Path(found.name).read_bytes()
    assert len(kept) <= BOUND
    mark = f"\n[{found.cut} of {size} bytes are left out here]\n".encode()
    head, _, tail = kept.partition(mark)
    assert found.cut > 0
    assert len(head) + len(tail) + found.cut == size
    assert (head, tail) == (written[: len(head)], written[-TAIL_MAX:])


def test_each_member_has_its_own(pipe: Pipe) -> None:
    """Nothing is left of the one before. What comes while nothing runs belongs to none."""
    assert pipe.output(numbered(3 * BOUND)) is not None
    pipe.write(b"of a thread that was left")
    while pipe.stream.pump():
        pass
    assert pipe.output(b"") is None
    assert pipe.output(b"its own") == Output("", 7, b"its own", 0)


def test_where_it_cannot_be_kept_its_last_part_still_comes(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("no folder")
    pipe = Pipe(tmp_path / "output")
    written = numbered(3 * BOUND)
    why = "its node could not keep it: Not a directory"
    assert pipe.output(written) == Output("", len(written), written[-TAIL_MAX:], len(written) - TAIL_MAX, lost=why)


def test_a_file_that_the_disk_has_no_room_for_is_removed_and_that_is_said(
    pipe: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.write

    def write(fd: int, part: bytes) -> int:
        if fd != pipe.writing and os.fstat(fd).st_size > BOUND // 4:
            raise OSError(28, "No space left on device")
        return whole(fd, part)

    monkeypatch.setattr(os, "write", write)
    written = numbered(3 * BOUND)
    why = "the disk of its node was full"
    assert pipe.output(written) == Output("", len(written), written[-TAIL_MAX:], len(written) - TAIL_MAX, lost=why)
    assert not (tmp_path / "output" / "7" / "3.1.out").exists()
    monkeypatch.undo()
    assert pipe.output(b"little") == Output("", 6, b"little"), "nothing of it is left"


def test_a_stream_that_nobody_can_write_to_is_closed(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    os.close(pipe.writing)
    assert not pipe.stream.closed
    assert not pipe.stream.pump()
    assert pipe.stream.closed
    pipe.stream.close()


def test_who_reads_along_finds_a_file_that_goes_with_the_end(tmp_path: Path) -> None:
    pipe, file = Pipe(tmp_path), tmp_path / "7" / "3.1.out"
    pipe.stream.show()  # of none: nothing runs
    pipe.stream.begin(LAUNCH)
    pipe.write(b"a")
    pipe.stream.drop()
    assert not file.exists()
    pipe.stream.show()
    assert file.read_bytes() == b"a"
    pipe.write(b"bc")
    pipe.stream.drop()
    assert file.read_bytes() == b"abc"
    pipe.stream.show()  # again, and nothing is written twice
    assert pipe.stream.end() == Output("", 3, b"abc")
    assert not file.exists()
    pipe.stream.begin(LAUNCH)
    pipe.stream.show()
    assert pipe.stream.end() is None
    pipe.stream.begin(LAUNCH)
    pipe.write(b"d")
    assert pipe.stream.end() == Output("", 1, b"d")  # the output is no longer followed
    assert not file.exists()


def test_much_output_that_was_read_along_is_kept_as_ever(tmp_path: Path) -> None:
    pipe, written = Pipe(tmp_path), bytes(range(256)) * 100
    pipe.stream.begin(LAUNCH)
    pipe.stream.show()
    pipe.write(written)
    found = pipe.stream.end()
    assert found is not None
    assert (found.size, found.tail, found.cut) == (len(written), written[-TAIL_MAX:], 0)
    assert Path(found.name).read_bytes() == written
    assert found.sha256 == sha256(written).hexdigest()
