"""What attempts elsewhere have saved, in a folder that some nodes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.engines.local.shared.archives import pack
from headway.engines.remote.saved import SavedElsewhere


@pytest.fixture
def packed(tmp_path: Path) -> bytes:
    """An archive with one file."""
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "1").write_text("half")
    return pack(str(tmp_path / "given"))


def test_a_folder_with_nothing_in_it_does_not_hide_what_an_earlier_attempt_saved(tmp_path: Path, packed: bytes) -> None:
    saved, folder = SavedElsewhere(tmp_path / "saved"), tmp_path / "saved" / "7" / "0"
    saved.put(7, 0, 0, 1, packed)
    for name in ("0.2", "0.4"):
        (folder / name).mkdir()
    assert saved.before(7, 0, 0, 4) == (1, folder / "0.1.tar")
    assert sorted(path.name for path in folder.iterdir()) == ["0.1.tar", "0.4"]
    (folder / "0.2").mkdir()
    (folder / "0.2" / "1").touch()
    assert saved.before(7, 0, 0, 4) == (2, folder / "0.2")


def test_what_a_killed_server_left_half_written_is_in_nobodys_way(tmp_path: Path, packed: bytes) -> None:
    saved, folder = SavedElsewhere(tmp_path / "saved"), tmp_path / "saved" / "7" / "0"
    (folder / "0.1.draft").mkdir(parents=True)
    (folder / "0.1.tar.draft").write_text("ha")
    assert saved.before(7, 0, 0, 2) is None
    saved.put(7, 0, 0, 1, packed)
    (folder / "0.1.tar.draft").write_text("ha")
    saved.lay_out(folder / "0.1.tar")
    assert (folder / "0.1" / "1").read_text() == "half"
    (folder / "0.1.draft").mkdir()
    saved.put(7, 0, 0, 2, packed)
    assert sorted(path.name for path in folder.iterdir()) == ["0.1", "0.2.tar"]
