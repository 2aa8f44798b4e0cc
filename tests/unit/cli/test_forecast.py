"""How forecasts of a simulated log are told."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from headway.cli.forecast import _due_row, _object, _rows
from headway.foresight.trial import DatesKept, ForecastQuality, Held, Horizon, Kept
from headway.metrics import to_json


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


def test_how_many_due_dates_were_kept_is_told_beside_the_bounds() -> None:
    kept = Kept(held(5), (Horizon(0.0, None, held(5)),), held(5), held(0))
    told = _object(ForecastQuality(2, kept, kept, DatesKept(5, 0.8, math.nan)))
    figures = {"asked", "at_instants", "coverage_50", "coverage_90", "error_90", "width_90_median"}
    assert told.keys() == figures | {"ahead", "uncorrected", "others", "start", "due_90"}
    assert json.loads(to_json(told["due_90"])) == {"asked": 5, "kept": 0.8, "error": None}
    assert _due_row(DatesKept(5, 0.8, 0.05)) == ("end: by a due date of 90 %", "5", "", "80.0%", "5.0%", "")
    assert _due_row(DatesKept(0, math.nan, math.nan))[1:] == ("0", "", "", "", "")


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
