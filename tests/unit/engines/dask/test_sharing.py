"""Whether a machine shares the server's folders: what it says if it does not."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="it is not installed (pip install headway[dask])")

from headway.engines.dask import sharing, station
from headway.engines.dask.sharing import WORD_FILE, PatientLooks, SharedFolders, offer, trouble
from headway.engines.remote.node import ATTACH_SECONDS


@pytest.fixture
def offered(tmp_path: Path) -> SharedFolders:
    for name in ("engine", "uploads"):
        (tmp_path / name).mkdir()
    return offer(tmp_path / "engine", tmp_path / "uploads")


def test_who_reads_the_word_and_may_write_shares_the_folders(tmp_path: Path, offered: SharedFolders) -> None:
    assert trouble(offered) == ""
    assert [path.name for path in tmp_path.rglob("*")].count(WORD_FILE) == 1
    assert not list((tmp_path / "uploads").iterdir()), "it leaves nothing there"


def test_a_copy_of_the_folder_has_an_old_word(tmp_path: Path, offered: SharedFolders) -> None:
    again = offer(tmp_path / "engine", tmp_path / "uploads")
    assert trouble(again) == ""
    assert trouble(offered) == f"{tmp_path}/engine/word is another file there than here"


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("engine", "{}/engine/word cannot be read there: No such file or directory"),
        ("uploads", "{}/uploads cannot be written to there: No such file or directory"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, offered: SharedFolders, gone: str, said: str) -> None:
    shutil.rmtree(tmp_path / gone)
    assert trouble(offered) == said.format(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_shared_all_the_same(offered: SharedFolders, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", _failing(code))
    monkeypatch.setattr(Path, "write_text", _failing(code))
    assert trouble(offered) == ""
    assert offer(Path(offered.engine), Path(offered.uploads)) == offered
    os.unlink(os.path.join(offered.engine, WORD_FILE))
    with pytest.raises(OSError, match=os.strerror(code)):
        offer(Path(offered.engine), Path(offered.uploads))
    monkeypatch.undo()
    offered = offer(Path(offered.engine), Path(offered.uploads))
    monkeypatch.setattr(tempfile, "TemporaryFile", _failing(errno.EROFS))
    assert trouble(offered) == f"{offered.engine} cannot be written to there: Read-only file system"


def test_a_file_system_without_locks_is_not_enough(offered: SharedFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", _failing(errno.ENOSYS))
    assert trouble(offered) == f"{offered.engine}/word cannot be locked there: Function not implemented"


def test_where_nothing_answers_one_look_waits_and_no_more(
    offered: SharedFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, began = threading.Event(), list[SharedFolders]()

    def hangs(asked: SharedFolders) -> str:
        began.append(asked)
        answers.wait()
        return trouble(asked)

    async def scenario() -> None:
        looks = PatientLooks()
        try:
            for _ in range(3):
                assert await looks.trouble(offered, 0.02) is None
            assert began == [offered]
            coming = asyncio.ensure_future(looks.trouble(offered, 60.0))
            await asyncio.sleep(0)
        finally:
            answers.set()
        assert await coming == ""
        assert began == [offered] * 2, "what the earlier one has seen may not be so any more"

    monkeypatch.setattr(sharing, "trouble", hangs)
    asyncio.run(scenario())


def test_a_station_answers_while_the_server_waits() -> None:
    assert station._LETTING_GO_SECONDS + station._LOOK_SECONDS + station._START_SECONDS < ATTACH_SECONDS


def test_what_a_node_had_before_it_shared_is_removed_unless_another_one_needs_it(tmp_path: Path) -> None:
    node, other = (tmp_path / "nodes" / name for name in ("a", "b"))
    for folder in (node, other):
        folder.mkdir(parents=True)
        (folder / "lock").touch()
    for name in station._OWN_FOLDERS:
        (tmp_path / name / "1").mkdir(parents=True)
    kept = tmp_path / "checkpoints" / "1"
    runs = os.open(other / "lock", os.O_RDWR)
    try:
        fcntl.flock(runs, fcntl.LOCK_EX)
        station.set_aside(tmp_path, node)
        assert kept.exists(), "the other one runs, and shares nothing"
        (other / station._SHARES).touch()
        station.set_aside(tmp_path, node)
        assert not kept.exists()
    finally:
        os.close(runs)
    kept.mkdir()
    station.set_aside(tmp_path, node)
    assert [list((tmp_path / name).iterdir()) for name in station._OWN_FOLDERS] == [[]] * 4


def _failing(code: int) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return fail
