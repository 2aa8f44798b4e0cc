"""The chain of transactions: it is kept as long as configured, and not shortened at each of them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from headway.live.store import vouching
from headway.live.store.journal import Journal


def test_the_chain_is_cut_back_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vouching, "CHAIN_KEPT", 10)
    monkeypatch.setattr(vouching, "_PRUNE_EVERY", 8)
    lengths = []
    with closing(Journal(tmp_path)) as journal:
        for number in range(50):
            journal.note("number", number)
            lengths.append(journal._db.execute("SELECT count(*) FROM chain").fetchone()[0])
    assert lengths[:10] == list(range(lengths[0], lengths[0] + 10))
    assert min(lengths[20:]) == 10
    assert max(lengths[20:]) == 17
