"""The folder of the engine of this machine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headway.engines.local.driver.host import SECRET_BYTES, secret_in


def test_a_secret_that_was_cut_is_replaced_and_a_whole_one_stays(tmp_path: Path) -> None:
    """A power failure may leave an empty file; everybody knows the empty secret."""
    secret = secret_in(tmp_path)
    assert len(secret) == SECRET_BYTES
    assert secret_in(tmp_path) == secret
    (tmp_path / "secret").write_bytes(b"")
    again = secret_in(tmp_path)
    assert len(again) == SECRET_BYTES
    assert again != secret
    assert (tmp_path / "secret").read_bytes() == again
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_all_who_ask_at_once_get_the_same_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        for turn in range(20):
            root = tmp_path / str(turn)
            root.mkdir()
            assert len(set(pool.map(secret_in, [root] * 16))) == 1
