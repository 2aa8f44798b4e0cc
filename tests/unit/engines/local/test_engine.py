"""The folder of the engine of this machine."""

from __future__ import annotations

from pathlib import Path

from headway.engines.local.driver.engine import LocalEngine


def test_a_secret_that_was_cut_is_replaced_and_a_whole_one_stays(tmp_path: Path) -> None:
    """A power failure may leave an empty file; everybody knows the empty secret."""
    secret = LocalEngine(tmp_path)._prepare()
    assert len(secret) == SECRET_BYTES
    assert LocalEngine(tmp_path)._prepare() == secret
    (tmp_path / "secret").write_bytes(b"")
    again = LocalEngine(tmp_path)._prepare()
    assert len(again) == SECRET_BYTES
    assert again != secret
    assert (tmp_path / "secret").read_bytes() == again
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
