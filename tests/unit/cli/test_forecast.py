"""How forecasts of a simulated log are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.cli.forecast import _rows
from headway.foresight.trial import Held, Horizon, Kept


def held(asked: int) -> Held:
    return Held(asked, 2, 0.5, 0.9, 0.01, 60.0)


def test_only_horizons_in_which_something_was_asked_have_a_row() -> None:
    ahead = (Horizon(0.0, 900.0, held(3)), Horizon(900.0, 3600.0, held(0)), Horizon(3600.0, None, held(2)))
    kept = Kept(held(5), ahead, held(5), held(0))
    assert [(row[0], row[1]) for row in _rows("end", kept, "by the estimates alone")] == [
        ("end: all", "5"),
        ("end: 0 s to 15 min ahead", "3"),
        ("end: 1 h ahead or more", "2"),
        ("end: all, uncorrected", "5"),
        ("end: all, by the estimates alone", "0"),
    ]
    assert _rows("end", kept, "")[0][2:] == ("50.0%", "90.0%", "1.0%", "60 s")


@pytest.mark.parametrize(("option", "value", "least"), [("instants", 0, 1), ("futures", 1, 2), ("rehearsals", -1, 0)])
def test_too_few_are_refused_before_the_log_is_read(
    headway: Any, tmp_path: Path, option: str, value: int, least: int
) -> None:
    log = tmp_path / "log.swf"
    log.write_text("no log at all\n")
    ran = headway("forecast", log, f"--{option}", value, "--slots", 4)
    assert ran.status == 2
    assert f"--{option} is {value}; allowed: " in ran.err
    assert f"{least} or more" in ran.err
