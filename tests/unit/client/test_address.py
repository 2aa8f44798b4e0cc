"""Where a server is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.client.address import Address, find_server
from headway.errors import HeadwayError


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HEADWAY_URL", "HEADWAY_TOKEN", "HEADWAY_TLS_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADWAY_DATA_DIR", str(tmp_path / "default"))


def running(directory: Path, url: str, token: str) -> Path:
    directory.mkdir()
    (directory / "url").write_text(f"{url}\n")
    (directory / "token").write_text(f"{token}\n")
    return directory


def test_what_is_given_counts_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_URL", "http://b")
    monkeypatch.setenv("HEADWAY_TOKEN", "tb")
    assert find_server("http://a/", "ta") == Address("http://a", "ta")
    assert find_server("http://a") == Address("http://a", "tb")
    assert find_server() == Address("http://b", "tb")
    data = running(tmp_path / "data", "http://c", "tc")
    assert find_server(data=data) == Address("http://c", "tc")
    assert find_server("http://a", data=data) == Address("http://a", "tc")


def test_the_default_directory_counts_last(tmp_path: Path) -> None:
    running(tmp_path / "default", "http://d", "td")
    assert find_server() == Address("http://d", "td")


def test_the_token_is_not_shown(tmp_path: Path) -> None:
    assert "secret" not in repr(find_server("http://a", "secret"))


@pytest.mark.parametrize(
    ("url", "message"),
    [(None, "no server is known"), ("http://a", "no token"), ("localhost:80", "url is 'localhost:80'")],
)
def test_what_is_missing_is_said(url: str | None, message: str) -> None:
    with pytest.raises(HeadwayError, match=message):
        find_server(url)


def test_the_very_certificate_of_a_directory_is_trusted_with_its_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = running(tmp_path / "data", "https://c", "tc")
    monkeypatch.setenv("HEADWAY_TLS_CA", "/of/the/environment")
    assert find_server(data=data) == Address("https://c", "tc", Path("/of/the/environment"))
    (data / "tls.pem").write_text("certificate")
    assert find_server(data=data) == Address("https://c", "tc", data / "tls.pem", pinned=True)
    assert find_server("https://d", data=data) == Address("https://d", "tc", data / "tls.pem", pinned=True)
    assert find_server("http://d", data=data) == Address("http://d", "tc")
    assert find_server(data=data, tls_ca="/given") == Address("https://c", "tc", Path("/given"))
    running(tmp_path / "default", "https://d", "td")
    (tmp_path / "default" / "tls.pem").write_text("certificate")
    assert find_server() == Address("https://d", "td", tmp_path / "default" / "tls.pem", pinned=True)
    assert find_server("https://e") == Address("https://e", "td", Path("/of/the/environment"))  # another server
    monkeypatch.delenv("HEADWAY_TLS_CA")
    assert find_server("https://e") == Address("https://e", "td")
