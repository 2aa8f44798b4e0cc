"""The mark: two slots are written in turn, so if one is cut off, the one before remains."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from headway.live.store.mark import Mark, Reached, make, read


def reached(number: int) -> Reached:
    return Reached("ab" * 16, number, bytes([number]) * 16, number + 1, number + 2, number + 3)


def test_the_last_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "accepted"
    make(path, reached(1))
    assert read(path) == reached(1)
    assert path.stat().st_mode & 0o777 == 0o600
    with closing(Mark(path)) as mark:
        for number in range(2, 6):
            mark.write(reached(number))
            assert read(path) == reached(number)


@pytest.mark.parametrize("number", range(6))
def test_it_may_begin_with_any_number(tmp_path: Path, number: int) -> None:
    make(tmp_path / "accepted", reached(number))
    assert read(tmp_path / "accepted") == reached(number)


@pytest.mark.parametrize("place", [0, 1])
def test_a_slot_that_was_cut_off_leaves_the_one_before(tmp_path: Path, place: int) -> None:
    path = tmp_path / "accepted"
    make(path, reached(6 + place))
    with closing(Mark(path)) as mark:
        mark.write(reached(7 + place))
        mark.write(reached(8 + place))
    content = bytearray(path.read_bytes())
    content[4096 * place + 20 : 4096 * place + 60] = bytes(40)
    path.write_bytes(content)
    assert read(path) == reached(7 + place)
    content[4096 * (1 - place) + 9] ^= 1
    path.write_bytes(content)
    assert read(path) is None


def test_a_file_that_was_cut_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "accepted"
    with pytest.raises(FileNotFoundError):
        read(path)
    path.write_bytes(b"")
    assert read(path) is None
