"""How forecasts of a simulated log are told."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headway.cli.forecast import _due_row, _object, _rows
from headway.core.record import StateRecord
from headway.foresight import futures as futures_module
from headway.foresight import trial as foresight_trial
from headway.foresight.futures import Futures, futures_for
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
    told = _object(ForecastQuality(2, 3, kept, kept, DatesKept(5, 0.8, math.nan)))
    figures = {"asked", "at_instants", "coverage_50", "coverage_90", "error_90", "width_90_median"}
    assert told.keys() == figures | {"ahead", "uncorrected", "others", "start", "due_90", "no_forecast"}
    assert told["no_forecast"] == 3
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


HELD = {"asked", "at_instants", "coverage_50", "coverage_90", "error_90", "width_90_median"}
FIGURES = HELD | {"ahead", "uncorrected", "others"}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty jobs of three users on four slots, each estimated by the same limit, that wait for each other."""
    chance, at, lines = Random(1), 0, ["; MaxProcs: 4"]
    for number in range(1, 41):
        at += chance.randint(0, 60)
        user, width = chance.randint(1, 3), chance.choice([1, 2, 4])
        runs = user * 20 + chance.randint(0, 50)
        lines.append(f"{number} {at} -1 {runs} {width} -1 -1 {width} 300 -1 1 {user} 1 1 1 -1 -1 -1")
    path = tmp_path_factory.mktemp("log") / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forecasts are made in this process: to start others takes seconds."""
    monkeypatch.setattr(foresight_trial, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))


def test_json_has_what_was_asked_and_how_it_held_for_ends_and_starts(headway: Any, log: Path, in_threads: None) -> None:
    words = ("forecast", log, "--policy", "easy:order=shortest", "--instants", 12, "--futures", 4, "--rehearsals", 2)
    ran = headway(*words, "--seed", 7, "--json")
    assert (ran.status, ran.err) == (0, "")
    told = json.loads(ran.out)
    known = {"policy": "easy:order=shortest", "slots": 4, "jobs": 40, "instants": 12, "seed": 7}
    assert {name: told.get(name) for name in known} == known
    assert told.keys() >= known.keys() | FIGURES | {"start"}
    assert told["start"].keys() == FIGURES
    for found in (told, told["start"]):
        assert 12 <= found["asked"] == sum(one["asked"] for one in found["ahead"])
        assert 10 <= found["at_instants"] <= 12
        assert 0 < found["coverage_50"] <= found["coverage_90"] <= 1
        assert found["error_90"] >= 0
        assert found["width_90_median"] > 0
        assert found["uncorrected"].keys() == found["others"].keys() == HELD
        assert all(one.keys() == HELD | {"from", "to"} for one in found["ahead"])
    came = json.loads(headway(*words, "--seed", 7, "--arrivals", "--json").out)
    assert came["asked"] == told["asked"]
    assert came["start"]["uncorrected"]["width_90_median"] > told["start"]["uncorrected"]["width_90_median"]


def test_people_get_a_table(headway: Any, log: Path, in_threads: None) -> None:
    ran = headway("forecast", log, "--instants", 2, "--futures", 2, "--rehearsals", 0)
    assert ran.status == 0
    assert ran.out.splitlines()[0].startswith("40 jobs released within")
    assert "end: all, by the estimates alone" in ran.out
    assert "start: all, by past waits alone" in ran.out
    assert "no forecast" not in ran.out


def test_jobs_of_which_nothing_is_known_have_a_row(headway: Any, log: Path, in_threads: None, tmp_path: Path) -> None:
    """Without estimates, and each of a user of its own."""
    strangers = tmp_path / "strangers.swf"
    rows = [line.split() for line in log.read_text().splitlines()]
    strangers.write_text("\n".join(" ".join([*row[:8], "-1 -1 1", *row[:1], *row[12:]]) for row in rows[1:]) + "\n")
    ran = headway("forecast", strangers, "--slots", 4, "--instants", 2, "--futures", 2, "--rehearsals", 0)
    (line,) = (line for line in ran.out.splitlines() if line.startswith("no forecast: run times unknown "))
    assert int(line.split()[-1]) > 0


def test_as_many_futures_are_drawn_as_beside_a_server(
    headway: Any, log: Path, in_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, int]] = []
    real = foresight_trial.draw_futures

    def noted(state: StateRecord, *arguments: Any, count: int, **others: Any) -> Futures:
        drawn.append((count, futures_for(state)))
        return real(state, *arguments, count=count, **others)

    monkeypatch.setattr(foresight_trial, "draw_futures", noted)
    monkeypatch.setattr(futures_module, "TASKS_DRAWN", 60)  # so that 6 open jobs are many
    ran = headway("forecast", log, "--instants", 9, "--rehearsals", 0)
    assert ran.status == 0
    wanted = [pair for pair in drawn if pair[0] > 1]  # one is drawn by the estimates
    assert len({count for count, _ in wanted}) > 1
    assert all(count == most for count, most in wanted)
