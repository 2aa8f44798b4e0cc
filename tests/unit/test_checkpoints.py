"""What tasks save: completely or not at all, the last readable state, and never over the state of a later attempt."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import headway
from headway import checkpoints
from headway.checkpoints import Checkpoints
from headway.errors import HeadwayError


class Heard:
    """Records what it is told."""

    def __init__(self) -> None:
        self.times = 0
        self.details: list[str] = []

    def saved(self) -> None:
        self.times += 1

    def unreadable(self, detail: str) -> None:
        self.details.append(detail)


def attempt(folder: Path, number: int = 1, heard: Heard | None = None) -> Checkpoints:
    return Checkpoints(str(folder / "0"), number, heard or Heard())


def numbers(folder: Path, attempt: int) -> list[str]:
    return sorted(os.listdir(folder / f"0.{attempt}"))


class Leaves:
    """An object whose unpickling ends the process."""

    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, (3,)


def test_outside_a_task_both_are_harmless() -> None:
    assert headway.checkpoint({"at": 1}) is False
    assert headway.resumed() is None
    assert headway.resumed(7) == 7


def test_within_a_task_they_are_those_of_its_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "current", attempt(tmp_path))
    assert headway.resumed("nothing") == "nothing"
    assert headway.checkpoint([1, 2]) is True
    assert headway.resumed("nothing") == [1, 2]


def test_the_next_attempt_goes_on_from_the_last_state(tmp_path: Path) -> None:
    heard = Heard()
    first = attempt(tmp_path, 1, heard)
    for number in range(5):
        assert first.save(number)
    assert heard.times == 5
    assert numbers(tmp_path, 1) == ["4", "5"], "the last, and the one before"
    third = attempt(tmp_path, 3)  # the second was lost before it tried to read
    assert third.load(None) == 4
    assert third.save("more")
    assert numbers(tmp_path, 3) == ["5", "6"]
    assert attempt(tmp_path, 4).load(None) == "more"


def test_a_state_may_be_of_a_class_that_is_nowhere_to_be_imported(tmp_path: Path) -> None:
    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

    attempt(tmp_path).save((Local(3), lambda: 4))
    local, four = attempt(tmp_path, 2).load(None)
    assert (local.value, four()) == (3, 4)


def test_what_cannot_be_pickled_is_the_tasks_own_error_and_leaves_the_last_one(tmp_path: Path) -> None:
    own = attempt(tmp_path)
    own.save(1)
    with pytest.raises(TypeError, match="cannot pickle"):
        own.save(sys._getframe())
    assert own.load(None) == 1


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def of_another_python(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"\n", b" python 2.7\n", 1))


def of_a_class_that_is_gone(path: Path) -> None:
    path.write_bytes(b"headway checkpoint\ncno_such_module\nState\n.")


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [truncate, of_another_python, of_a_class_that_is_gone, empty])
def test_one_that_cannot_be_read_is_left_out_for_the_one_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: Any
) -> None:
    first = attempt(tmp_path)
    first.save("early")
    first.save("late")
    harm(tmp_path / "0.1" / "2")
    heard = Heard()
    second = attempt(tmp_path, 2, heard)
    assert second.load("start") == "early"
    assert len(heard.details) == 1
    assert heard.details[0].startswith("checkpoint 2 cannot be read: ")
    assert heard.details[0] in capsys.readouterr().err
    harm(tmp_path / "0.2" / "1")
    assert attempt(tmp_path, 3, heard).load("start") == "start"
    assert len(heard.details) == 2


def test_one_that_ends_its_reader_is_left_out_too(tmp_path: Path) -> None:
    heard = Heard()
    first = attempt(tmp_path, 1)
    first.save("good")
    first.save(Leaves())
    assert attempt(tmp_path, 2, heard).load(None) == "good"
    assert heard.details == ["checkpoint 2 cannot be read: SystemExit: 3"]
    assert numbers(tmp_path, 2) == ["1"]


def test_what_is_in_the_folder_and_is_no_checkpoint_is_in_nobodys_way(tmp_path: Path) -> None:
    heard = Heard()
    attempt(tmp_path, 1).save("good")
    (tmp_path / "0.1" / "5").mkdir()
    for name in ("007", "\u0663", "9" * 30):
        (tmp_path / "0.1" / name).touch()
    second = attempt(tmp_path, 2, heard)
    assert second.load(None) == "good"
    assert [detail.partition(":")[0] for detail in heard.details] == ["checkpoint 5 cannot be read"]
    assert all(second.save(state) for state in ("fine", "finer", "better"))
    assert attempt(tmp_path, 3).load(None) == "better"


def test_a_folder_that_is_a_file_is_as_good_as_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "0.1").touch()
    second = attempt(tmp_path, 2)
    assert second.load("nothing") == "nothing"
    assert second.save("state") is False
    assert capsys.readouterr().err.startswith("The checkpoint could not be saved: ")


def test_an_attempt_that_was_overtaken_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heard = Heard()
    first, second = attempt(tmp_path, 1, heard), attempt(tmp_path, 2)
    first.save("first")
    assert second.load(None) == "first"
    assert not first.save("late")
    assert "A later attempt of this task has begun" in capsys.readouterr().err
    second.save("second")
    assert not first.save("later")
    assert heard.times == 1
    assert second.load(None) == "second"
    assert attempt(tmp_path, 3).load(None) == "second"


def test_one_that_saves_for_the_first_time_when_it_is_overtaken_changes_nothing_either(tmp_path: Path) -> None:
    first, second = attempt(tmp_path, 1), attempt(tmp_path, 2)
    second.save("second")
    first.save("late")
    assert second.load(None) == "second"
    assert attempt(tmp_path, 3).load(None) == "second"


def test_a_full_disk_loses_nothing_that_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = attempt(tmp_path)
    own.save("kept")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert not own.save("lost")
    assert "could not be saved: [Errno 28] No space left" in capsys.readouterr().err
    assert os.listdir(tmp_path / "0.1") == ["1"], "what was half written would keep the disk full"
    assert own.load(None) == "kept"
    assert own.save("again")
    assert attempt(tmp_path, 2).load(None) == "again"


def test_a_folder_is_made_although_those_above_it_are_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An other task of the job ends, and takes away the folder of the job, which is empty."""
    made, mkdir, removed = tmp_path / "7" / "3" / "0.1", os.mkdir, list[str]()

    def and_lose_the_first(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        if not removed:
            removed.append(path)
            os.rmdir(path)

    monkeypatch.setattr(os, "mkdir", and_lose_the_first)
    checkpoints.make_folder(str(made))
    assert removed == [str(tmp_path / "7")]
    assert made.is_dir()


def test_a_draft_that_was_left_behind_is_not_a_checkpoint(tmp_path: Path) -> None:
    attempt(tmp_path).save("whole")
    (tmp_path / "0.1" / ".draft").write_bytes(b"ha")
    second = attempt(tmp_path, 2)
    assert second.load(None) == "whole"
    assert second.save("next")
    assert numbers(tmp_path, 2) == ["1", "2"]


def test_a_process_that_the_task_started_cannot_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = attempt(tmp_path)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for ask in (own.save, own.load):
        with pytest.raises(HeadwayError, match="by a process that the task started"):
            ask(1)
