"""The checkpoint folders of programs: taken over completely, out of reach of earlier attempts, removed if empty."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec import Raw

from headway.engines.local.shared import checkpoints as local
from headway.engines.local.shared.frames import Launch


def launch(attempt: int, rank: int = 0) -> Launch:
    return Launch(7, 3, attempt, rank, 1, (0,), None, None, "", None, Raw(b""))


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoints")


def test_the_next_attempt_has_the_folder_and_the_one_before_has_none(root: str, tmp_path: Path) -> None:
    first = Path(local.begin(root, launch(1)))
    assert first == tmp_path / "checkpoints" / "7" / "3" / "0.1"
    (first / "model").write_text("half")
    (first / "draft").write_text("more")
    third = Path(local.begin(root, launch(3)))
    assert (third / "model").read_text() == "half"
    with pytest.raises(FileNotFoundError):  # it still runs somewhere, and writes where it should
        os.replace(first / "draft", first / "model")
    with pytest.raises(FileNotFoundError):
        (first / "model").write_text("late")
    assert (third / "model").read_text() == "half"


def test_each_rank_has_its_own(root: str) -> None:
    folders = [Path(local.begin(root, launch(1, rank))) for rank in (0, 1)]
    (folders[1] / "state").write_text("one")
    assert os.listdir(local.begin(root, launch(2, 0))) == []
    assert os.listdir(local.begin(root, launch(2, 1))) == ["state"]


@pytest.mark.long
def test_a_rank_may_begin_while_another_ends(root: str) -> None:
    def others() -> None:
        for _ in range(2000):
            local.end(local.begin(root, launch(1, 1)))

    with ThreadPoolExecutor() as pool:
        done = pool.submit(others)
        while not done.done():
            folder = local.begin(root, launch(1, 0))
            assert os.path.isdir(folder)
            local.end(folder)
        done.result()


def test_nothing_is_left_of_what_saved_nothing(root: str, tmp_path: Path) -> None:
    local.end(local.begin(root, launch(1)))
    assert not os.listdir(root), "the folder of the job has gone, too"
    folder = local.begin(root, launch(2))
    Path(folder, "state").touch()
    local.end(folder)
    assert os.listdir(folder) == ["state"]
    assert local.jobs(root) == {7}
    local.remove(f"{root}/7")
    assert local.jobs(root) == frozenset()


def test_when_it_was_changed_last(root: str) -> None:
    folder = local.begin(root, launch(1))
    assert local.latest(folder) == 0
    Path(folder, "state").touch()
    os.utime(folder, ns=(5, 5))
    for at in (7, 3):
        os.utime(f"{folder}/state", ns=(at, at))
        assert local.latest(folder) == max(at, 5)
    local.remove(folder)
    assert local.latest(folder) == 0
