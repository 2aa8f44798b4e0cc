"""Privacy: which token files are accepted, and what other users cannot read of a data directory."""

from __future__ import annotations

import getpass
import logging
import os
import re
import socket
from pathlib import Path

import pytest

from headway.client.address import data_directory
from headway.errors import HeadwayError, InvalidInput
from headway.private import TOKEN_MAX, account, tighten, token_of
from headway.web.serving import listen


def test_a_token_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = token_of(path)
    assert re.fullmatch(r"[\w-]{43}", token)
    assert path.stat().st_mode & 0o777 == 0o600
    assert token_of(path) == token
    path.chmod(0o400)
    assert token_of(path) == token


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o666])
def test_a_token_that_others_may_know_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    token_of(path)
    path.chmod(mode)
    with pytest.raises(
        HeadwayError, match=rf"token has the mode {mode:04o}: its token may be known to others\n.*chmod"
    ):
        token_of(path)
    assert path.stat().st_mode & 0o777 == mode


def test_a_token_of_another_account_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    token_of(path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(HeadwayError, match="token belongs to the account"):
        token_of(path)


def test_only_a_plain_file_holds_a_token(tmp_path: Path) -> None:
    real = tmp_path / "real"
    token_of(real)
    link, dangling, pipe, folder = (tmp_path / name for name in ("link", "dangling", "pipe", "folder"))
    link.symlink_to(real)
    dangling.symlink_to(tmp_path / "nothing")
    os.mkfifo(pipe, 0o600)
    folder.mkdir(0o700)
    for path in (link, dangling, pipe):
        with pytest.raises(HeadwayError, match=f"{path.name} is not a plain file"):
            token_of(path)
    with pytest.raises(HeadwayError, match="folder"):
        token_of(folder)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("text", ["two words", "a\0b", "x" * (TOKEN_MAX + 1), "\n"])
def test_what_is_no_token_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(HeadwayError, match=r"token (holds no token|is empty)"):
        token_of(path)


def test_a_data_directory_is_closed_to_others_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for folder in (data, data / "uploads", data / "engine", data / "mine", elsewhere):
        folder.mkdir()
        folder.chmod(0o755)
    for file in (
        data / "journal.sqlite",
        data / "journal.sqlite-wal",
        data / "url",
        data / "track-record",
        data / "note",
        elsewhere / "far",
    ):
        file.write_text("")
        file.chmod(0o644)
    (data / "lock").symlink_to(elsewhere / "far")
    with caplog.at_level(logging.WARNING):
        tighten(data)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (data, *data.iterdir())}
    assert modes == {
        "data": 0o700,
        "uploads": 0o700,
        "engine": 0o700,
        "mine": 0o755,
        "lock": 0o644,
        "journal.sqlite": 0o600,
        "journal.sqlite-wal": 0o600,
        "url": 0o600,
        "track-record": 0o600,
        "note": 0o644,
    }
    [said] = caplog.messages
    assert str(data) in said
    assert "now they cannot" in said
    caplog.clear()
    tighten(data)
    tighten(tmp_path / "not there")
    assert caplog.messages == []


def test_who_has_no_entry_in_the_list_of_accounts_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert account() == getpass.getuser()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME", "HEADWAY_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)

    def nobody(_: object) -> object:
        raise KeyError("uid not found")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert account() == f"uid-{os.geteuid()}"
    with pytest.raises(InvalidInput, match="no home directory: name the data directory with --data"):
        data_directory()
    assert data_directory("/there") == Path("/there")


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_listening_to_others_is_warned_of(host: str, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), listen(host, 0) as listener:
        assert isinstance(listener, socket.socket)
    assert [f"listening on {host}: " in message for message in caplog.messages] == [True] * warned
