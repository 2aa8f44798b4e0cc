"""The processors' counters of energy, read from a tree that looks like the system's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.live.rapl import Rapl
from headway.model.instant import SECOND
from headway.testing import ManualClock


def zone(root: Path, place: str, name: str, microjoules: int, most: int = 1_000_000) -> Path:
    """A zone of the tree; returns its counter."""
    folder = root / place
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{most}\n")
    counter = folder / "energy_uj"
    counter.write_text(f"{microjoules}\n")
    return counter


def test_packages_and_memory_count_once_and_counters_go_round(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", 900_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 5)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 10)
    other = zone(tmp_path, "intel-rapl:1", "package-1", 0)
    zone(tmp_path, "intel-rapl:2", "psys", 0)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 900_000)
    clock = ManualClock()
    begin = clock.now()
    rapl = Rapl(clock, tmp_path)
    assert not rapl.why_not
    rapl.read()
    first.write_text("100000\n")  # it has gone round
    memory.write_text("500010\n")
    clock.advance(10)
    rapl.read()
    other.write_text("250000\n")
    clock.advance(10)
    assert rapl.total() == pytest.approx({"package-0": 0.2, "dram-0": 0.5, "package-1": 0.25})
    counted = rapl.between(begin + 5 * SECOND, begin + 60 * SECOND)
    assert counted is not None
    assert (counted.since, counted.until) == (begin + 10 * SECOND, begin + 20 * SECOND)
    assert counted.joules == pytest.approx({"package-0": 0.0, "dram-0": 0.0, "package-1": 0.25})
    assert rapl.between(begin, begin) is None
    first.unlink()
    rapl.read()
    assert "cannot be read any more: No such file" in rapl.why_not


def test_it_is_said_why_nothing_is_counted(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in Rapl(ManualClock(), tmp_path / "none").why_not
    assert "no processor with such counters" in Rapl(ManualClock(), tmp_path).why_not
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    counter.write_text("much\n")
    assert "much" in Rapl(ManualClock(), tmp_path).why_not
    counter.chmod(0)
    if os.geteuid():
        assert "energy_uj cannot be read: Permission denied" in Rapl(ManualClock(), tmp_path).why_not
