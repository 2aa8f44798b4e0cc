"""Files that come to a node: whole, or not at all, and what a full disk does to them."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from headway.engines.local.agent.shelf import Arrived, NodeShelf
from headway.engines.local.shared.archives import pack
from headway.engines.local.shared.frames import CheckpointTaken, FilePiece
from headway.engines.local.shared.stores import Store
from headway.engines.local.shared.terms import Terms

BODY = b"x" * 1000
NAME = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def shelf(tmp_path: Path) -> NodeShelf:
    return NodeShelf(Terms("n", "", "", "", 1, 60.0, 0, uploads=str(tmp_path), apart=True))


def taken(shelf: NodeShelf, body: bytes = BODY, name: str = NAME) -> list[Arrived | None]:
    """In three pieces."""
    parts = [body[:300], body[300:600], body[600:]]
    return [shelf.take(FilePiece(name, part, number == 2)) for number, part in enumerate(parts)]


def test_a_file_is_there_with_its_last_piece(shelf: NodeShelf, tmp_path: Path) -> None:
    assert taken(shelf) == [None, None, Arrived.HERE]
    assert (tmp_path / NAME).read_bytes() == BODY
    file = shelf.open(NAME)
    assert file is not None
    os.close(file)


def test_a_file_with_other_bytes_is_asked_for_again_and_nothing_of_it_stays(shelf: NodeShelf, tmp_path: Path) -> None:
    for told in (Arrived.AGAIN, Arrived.AGAIN, Arrived.NOT, Arrived.AGAIN):
        assert taken(shelf, BODY[:-1] + b"y")[-1] is told
        assert list(tmp_path.iterdir()) == []
    assert taken(shelf)[-1] is Arrived.HERE


def test_of_a_checkpoint_whose_attempt_was_killed_half_way_nothing_is_in_the_way_of_the_next(tmp_path: Path) -> None:
    shelf = NodeShelf(Terms("n", "", "", str(tmp_path / "there"), 1, 60.0, 0, apart=True))
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "1").write_bytes(b"half")
    packed = pack(str(tmp_path / "saved"))
    sha256 = hashlib.sha256(packed).hexdigest()

    def piece(data: bytes, number: int, sha256: str = "") -> CheckpointTaken | None:
        return shelf.take_checkpoint(FilePiece("1/0/0.1", data, bool(sha256), "", Store.CHECKPOINT, sha256, number))

    assert piece(packed[:99], 7) is None
    assert piece(packed[:99], 8) is None
    assert piece(packed[99:], 8, sha256) == CheckpointTaken(8)
    assert (tmp_path / "there" / "checkpoints" / "1" / "0" / "0.1" / "1").read_bytes() == b"half"


def test_on_a_full_disk_nothing_stays_and_the_same_file_may_come_again(
    shelf: NodeShelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk is full at the second piece: only with the last one it is told, and the next stream is another one."""
    write, written = os.write, list[int]()

    def full(file: int, data: Any) -> int:
        written.append(len(data))
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "full")
        return write(file, data)

    monkeypatch.setattr(os, "write", full)
    assert taken(shelf) == [None, None, Arrived.NO_ROOM]
    assert list(tmp_path.iterdir()) == []
    assert len(written) == 2, "what comes behind it is not written"
    assert taken(shelf) == [None, None, Arrived.HERE]
    assert capsys.readouterr().out == ""


def test_a_log_on_a_full_disk_ends_nothing(shelf: NodeShelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("builtins.print", full)
    assert shelf.take(FilePiece("../x", BODY, True)) is Arrived.NOT
