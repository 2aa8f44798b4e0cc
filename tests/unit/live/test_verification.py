"""What a check of a data directory sees besides changed rows: definitions, and files that are no files any more."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headway.errors import Damaged, HeadwayError
from headway.live.store.backup import back_up
from headway.live.store.journal import FILE, Journal
from headway.live.store.kept import KeptFile, flaw_of
from headway.live.store.verification import flaws


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DROP TRIGGER meta_added", "the trigger meta_added is missing"),
        ("DROP TRIGGER jobs_changed", "the trigger jobs_changed is missing"),
        ("DROP INDEX messages_once", "the index messages_once is missing"),
        (
            "CREATE TRIGGER theirs AFTER DELETE ON meta BEGIN SELECT 1; END",
            "the trigger theirs was added by another program",
        ),
    ],
)
def test_definitions_that_another_program_changed_are_noticed_before_the_server_writes(
    tmp_path: Path, statement: str, said: str
) -> None:
    Journal(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute(statement)
        db.commit()
    (flaw,) = flaws(tmp_path)
    assert flaw.what.startswith(said)
    with pytest.raises(Damaged, match=said):
        Journal(tmp_path)
    with closing(Journal(tmp_path, accept_loss=True)) as journal:
        journal.note("probe", 1)
    assert list(flaws(tmp_path)) == []


def test_a_trigger_that_counts_nothing_is_noticed(tmp_path: Path) -> None:
    Journal(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.executescript("DROP TRIGGER meta_gone; CREATE TRIGGER meta_gone AFTER DELETE ON meta BEGIN SELECT 1; END;")
    assert [flaw.what for flaw in flaws(tmp_path)] == ["the trigger meta_gone was changed by another program"]


@pytest.mark.parametrize("sha256", ["", "0" * 64])
def test_a_pipe_or_a_link_in_the_place_of_a_file_is_a_flaw_and_not_waited_for(tmp_path: Path, sha256: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    for name in ("pipe", "link"):
        assert flaw_of(KeptFile(tmp_path / name, sha256, "output")).startswith("it cannot be read: ")
    assert flaw_of(KeptFile(tmp_path / "none", sha256, "output")) == "it is missing"


def test_a_backup_does_not_wait_for_a_pipe_either(tmp_path: Path) -> None:
    data = tmp_path / "data"
    Journal(data).close()
    (data / "token").unlink(missing_ok=True)
    os.mkfifo(data / "token")
    with pytest.raises(HeadwayError, match=r"it is no file any more: .*token"):
        back_up(data, tmp_path / "backup")
