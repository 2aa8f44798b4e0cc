"""The contract of `headway predict`, and of `--estimates`."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headway.history import factors


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three users with jobs of one or two sorts, all estimated too long."""
    chance, at, lines = Random(1), 0, ["; MaxProcs: 16"]
    for number in range(1, 401):
        at += chance.randint(0, 60)
        user = chance.randint(1, 3)
        runs = user * 20 if chance.random() < 0.7 else user * 100 + chance.randint(0, 50)
        lines.append(f"{number} {at} -1 {runs} {chance.choice([1, 4, 8])} -1 -1 -1 1000 -1 1 {user} 1 1 1 -1 -1 -1")
        lines[-1] = lines[-1].replace(" -1 -1 -1 1000", f" -1 -1 {lines[-1].split()[4]} 1000")
    path = tmp_path / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_json_is_one_object_with_each_predictor(headway: Any, log: Path) -> None:
    ran = headway("predict", log, "--json")
    assert (ran.status, ran.err) == (0, "")
    told = json.loads(ran.out)
    assert (told["policy"], told["slots"], told["jobs"]) == ("easy", 16, 400)
    assert list(told["predictors"]) == ["predicted", "last-two", "user"]
    ours, two, user = told["predictors"].values()
    assert ours["within_90"] >= 0.85  # the queue is long, and bounds are wider then
    assert ours["pinball"] < two["pinball"] < user["pinball"]
    assert (two["within_90"], user["width_90"]) == (None, None)


def test_people_get_a_table(headway: Any, log: Path) -> None:
    ran = headway("predict", log, "--first", 100, "--policy", "fcfs")
    assert ran.status == 0
    assert ran.out.splitlines()[0].startswith("100 jobs released within")
    assert [line.split()[0] for line in ran.out.splitlines()[-3:]] == ["predicted", "last-two", "user"]


def test_a_yardstick_sees_half_of_the_jobs_and_is_asked_of_the_others(headway: Any, log: Path) -> None:
    pytest.importorskip("sklearn", reason="it is not installed (pip install headway[predict])")
    told = json.loads(headway("predict", log, "--yardstick", "--json").out)
    assert told["jobs"] == 200
    assert 0 < told["predictors"]["boosting"]["pinball"] < told["predictors"]["user"]["pinball"]


def test_a_yardstick_that_would_see_no_job_is_refused(headway: Any, log: Path) -> None:
    pytest.importorskip("sklearn", reason="it is not installed (pip install headway[predict])")
    ran = headway("predict", log, "--first", 1, "--yardstick")
    assert ran.status == 2
    assert "--yardstick needs two" in ran.err


def test_without_scikit_learn_there_is_no_yardstick(headway: Any, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factors, "find_spec", lambda name: None)
    ran = headway("predict", log, "--yardstick")
    assert ran.status == 2
    assert 'pip install "headway[predict]"' in ran.err


def test_a_log_of_which_no_job_can_run_is_refused(headway: Any, tmp_path: Path) -> None:
    path = tmp_path / "empty.swf"
    path.write_text("; MaxProcs: 4\n")
    ran = headway("predict", path)
    assert ran.status == 2
    assert "empty" in ran.err


@pytest.fixture
def bare(log: Path) -> Path:
    """The same log, but its users gave no estimates."""
    path = log.with_name("bare.swf")
    path.write_text(log.read_text().replace(" 1000 -1 1 ", " -1 -1 1 "))
    return path


def test_where_users_gave_no_estimates_predictions_stand_beside_the_last_two_jobs(headway: Any, bare: Path) -> None:
    """Readers take the run times for estimates: to predict these would be no feat."""
    ran = headway("predict", bare, "--json")
    assert ran.status == 0
    assert ran.err == (
        "No job of bare.swf has an estimate of its own: its estimates are the run times. They are left out, and "
        "policies assume 10 min for each job.\n"
    )
    told = json.loads(ran.out)["predictors"]
    assert list(told) == ["predicted", "last-two"]
    assert told["predicted"]["within_90"] >= 0.85
    assert 0 < told["predicted"]["pinball"] < told["last-two"]["pinball"]
    pytest.importorskip("sklearn", reason="it is not installed (pip install headway[predict])")
    boosted = json.loads(headway("predict", bare, "--yardstick", "--json").out)["predictors"]
    assert 0 < boosted["boosting"]["error"] < boosted["last-two"]["error"]


def test_people_get_no_line_of_users_then(headway: Any, bare: Path) -> None:
    assert [line.split()[0] for line in headway("predict", bare).out.splitlines()[-2:]] == ["predicted", "last-two"]


def test_a_table_without_estimates_is_the_same(headway: Any, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("release,runtime,user\n" + "".join(f"{at},2000,ann\n" for at in range(0, 40_000, 4000)))
    ran = headway("predict", path, "--slots", 2, "--json")
    assert ran.err.startswith("No job of jobs.csv has an estimate of its own: ")
    two = json.loads(ran.out)["predictors"]["last-two"]
    assert two["error"] == pytest.approx(2 * 1400 / 10), "the default counts twice, and bounds no mean of last ones"


def test_workflows_are_not_predicted(headway: Any, tmp_path: Path) -> None:
    path = tmp_path / "flow.stg"
    path.write_text("1\n0 0 0\n1 5 1 0\n2 0 1 1\n")
    ran = headway("predict", path, "--slots", 2)
    assert ran.status == 2
    assert "flow.stg has only workflows" in ran.err


def test_a_typing_mistake_is_told_before_the_run(headway: Any, log: Path) -> None:
    ran = headway("predict", log, "--policy", "esy")
    assert ran.status == 2
    assert "easy" in ran.err


def test_estimates_are_those_of_users_of_history_or_of_the_future(headway: Any, log: Path) -> None:
    """What is known of run times changes what is backfilled; with no queue that looks at them it changes nothing."""
    waits = {}
    for estimates in ("user", "last-two", "predicted", "exact"):
        words = "simulate", log, "--estimates", estimates, "--json", "--policy", "easy:backfill=shortest"
        waits[estimates] = json.loads(headway(*words).out)[0]["metrics"]["wait_mean"]
    assert len(set(waits.values())) == 4
    plain = [
        json.loads(headway("simulate", log, "--estimates", estimates, "--json", "--policy", "fcfs").out)[0]["metrics"]
        for estimates in ("user", "predicted")
    ]
    assert plain[0]["wait_mean"] == plain[1]["wait_mean"]


def test_there_are_no_other_estimates(headway: Any, log: Path) -> None:
    for words in (("simulate", log), ("up",)):
        ran = headway(*words, "--estimates", "best")
        assert ran.status == 2
        assert "last-two" in ran.err
