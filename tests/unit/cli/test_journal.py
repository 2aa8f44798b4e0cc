"""What `headway check` says of folders that are not data directories, and of one whose journal is gone."""

from __future__ import annotations

from pathlib import Path

from headway.live.store.journal import FILE, Journal

from ...commands import Headway


def test_a_folder_that_no_server_has_used_is_not_called_damaged(headway: Headway, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for folder, said in ((tmp_path, "no server has used"), (tmp_path / "none", "there is no folder")):
        ran = headway("check", folder)
        assert (ran.status, ran.out) == (2, "")
        assert f"{said} {folder}" in ran.err
        assert "Name the data directory of a server, or a backup." in ran.err
        assert "--accept-loss" not in ran.err


def test_a_journal_that_is_gone_is_missing(headway: Headway, tmp_path: Path) -> None:
    Journal(tmp_path).close()
    assert headway("check", tmp_path).status == 0
    (tmp_path / FILE).unlink()
    ran = headway("check", tmp_path)
    assert (ran.status, ran.out) == (1, f"{tmp_path / FILE}: it is missing\n")
    assert f"`headway up --data {tmp_path} --accept-loss`" in ran.err
