"""The figures of MEASY14 from artificial runs: settings, tables, statements; and how runs are performed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.errors import HeadwayError, InvalidInput
from headway.model.schedule import NOT_YET, Course, Schedule, schedule_of
from headway.model.workload import Workload, workload_us
from headway.reproduce.measy14 import published, runs
from headway.reproduce.measy14.drawn import draw
from headway.reproduce.measy14.figures import COSTS, FIGURES, STAR, Figure, Runs, mean_text, share_text, tables
from headway.reproduce.measy14.published import STATEMENTS, always, gains, pays_up_to, told
from headway.reproduce.measy14.runs import COST, LOADS, LOGS, Run, Setting, data_folder, perform

SHAPE = (0.9, 1.1, 0.9, 1.1)
"""Of the batches about their mean: neighbours are not alike."""

BASE = {"easy": 1000.0, "keasy": 800.0, "reasy": 1200.0, "measy": 700.0}


def ran(setting: Setting, response: float, migrations: int = 0) -> Run:
    """A run whose slowdown is a hundredth of its response."""
    batches = tuple(response * part for part in SHAPE)
    return Run(setting, 100, batches, tuple(value / 100 for value in batches), migrations, 0, 0.5, 0.0, 1.0)


def made(*names: str, **responses: float) -> dict[Setting, Run]:
    """Runs of these figures: each policy with one response at all loads."""
    return {
        setting: ran(setting, {**BASE, **responses}[setting.policy])
        for name in names
        for setting in FIGURES[name].settings()
    }


def answer(words: str, found: Runs) -> published.Answer:
    (statement,) = (statement for statement in STATEMENTS if words in statement.words)
    return statement.judge(found)


# Settings


def test_figures_are_made_of_every_policy_at_every_load() -> None:
    assert list(FIGURES) == [*(f"fig{number}" for number in range(6, 15)), "logs"]
    assert len(set(FIGURES["fig6"].settings())) == 4 * len(LOADS)
    assert {setting.use for setting in FIGURES["fig9"].settings()} == {"untold"}
    assert {setting.use for setting in FIGURES["fig12"].settings()} == {"full"}
    assert {setting.source for setting in FIGURES["fig12"].settings()} == {"JWload"}
    assert {setting.cost for setting in FIGURES["fig13"].settings() if setting.policy == "measy"} == set(COSTS)
    assert {setting.cost for setting in FIGURES["fig13"].settings() if setting.policy != "measy"} == {COST}
    assert {setting.source for setting in FIGURES["logs"].settings()} == set(LOGS)


def test_runs_that_figures_share_are_one() -> None:
    def plain(*names: str) -> set[Setting]:
        return {setting.plain for name in names for setting in FIGURES[name].settings()}

    assert Setting("FWload", 0.9, "easy", "full", 900).plain == Setting("FWload", 0.9, "easy")
    assert Setting("FWload", 0.9, "keasy", "full", 900).plain == Setting("FWload", 0.9, "keasy", "full")
    assert Setting("FWload", 0.9, "measy", "full", 900).plain == Setting("FWload", 0.9, "measy", "full", 900)
    assert plain("fig6", "fig7", "fig8") == plain("fig6", "fig7")
    assert len(plain("fig9", "fig6") - plain("fig6")) == 2 * len(LOADS)
    assert len(plain("fig13", "fig6") - plain("fig6")) == 3 * (len(COSTS) - 1)


# Tables


def test_a_figure_has_a_table_a_measure_with_the_gain_of_measy() -> None:
    response, slowdown = tables(FIGURES["fig6"], made("fig6"))
    assert response.columns == ("load", "EASY", "KEASY", "REASY", "MEASY", "MEASY to EASY")
    assert [row[0] for row in response.rows] == [f"{load:g}" for load in LOADS]
    # Four batches of 0.9, 1.1, 0.9 and 1.1: half of the interval is 3.182 * 0.1155 / 2.
    assert response.rows[0][1:] == (
        *("1,000 ± 184", "800 ± 147", "1,200 ± 220", "700 ± 129"),
        "+30.0% ± 5.5%",
    )
    assert slowdown.rows[-1][1] == "10 ± 1.84"
    assert "slowdown" in slowdown.title
    assert "Figure 6" in slowdown.title


def test_the_table_of_costs_holds_measy_to_keasy() -> None:
    found = made("fig13")
    for load in FIGURES["fig13"].loads:
        setting = Setting("FWload", load, "measy", cost=1800.0)
        found[setting] = ran(setting, 900.0)
    table, _ = tables(FIGURES["fig13"], found)
    assert table.columns == ("cost", "load 0.5", "load 0.7", "load 0.9")
    names = [row[0] for row in table.rows]
    assert names == ["EASY", "KEASY", *(f"MEASY, {cost:g} s" for cost in COSTS)]
    assert table.rows[names.index("MEASY, 20 s")][1] == "700 (+12.5% ± 2.3%)"
    assert table.rows[-1][1] == "900 (-12.5% ± 2.3%)"


def test_migrations_are_a_job() -> None:
    found = {setting: ran(setting, 1.0, migrations=30) for setting in FIGURES["fig8"].settings()}
    (table,) = tables(FIGURES["fig8"], found)
    assert table.columns == ("load", "FWload", "JWload")
    assert set(table.rows) == {(f"{load:g}", "0.300", "0.300") for load in LOADS}


def test_logs_have_a_row_a_load() -> None:
    table, _ = tables(FIGURES["logs"], made("logs"))
    assert [row[0] for row in table.rows[:3]] == ["CTC, as logged", "CTC, 0.9", "SDSC-SP2, as logged"]


def test_a_table_is_markdown() -> None:
    lines = next(tables(FIGURES["fig6"], made("fig6"))).markdown().splitlines()
    assert lines[0].startswith("**Figure 6")
    assert lines[2] == "| load | EASY | KEASY | REASY | MEASY | MEASY to EASY |"
    assert lines[3] == "| --- | ---: | ---: | ---: | ---: | ---: |"
    assert len(lines) == 4 + len(LOADS)


def test_an_interval_that_is_too_narrow_has_a_star() -> None:
    alike = Run(Setting("FWload", 0.9, "easy"), 9, (1, 2, 3, 4, 5, 6, 7, 8), (1,) * 8, 0, 0, 0, 0, 0)
    assert mean_text(alike.mean("response")).endswith("*")
    assert not mean_text(alike.mean("slowdown")).endswith("*")
    assert share_text(alike.gain(alike, "response")) == "+0.0% ± 0.0%"
    assert STAR.startswith("*")


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES.values(), ids=lambda figure: figure.name)
def test_every_figure_is_drawn(figure: Figure, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(figure, made(figure.name), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


# Statements


def test_a_gain_is_taken_batch_by_batch() -> None:
    """Both runs vary by 10 %, but together. So their difference is known far better than either."""
    found = made("fig6")
    one, other = (found[Setting("FWload", 0.9, policy)] for policy in ("measy", "easy"))
    gain = one.gain(other, "response")
    assert gain.mean == pytest.approx(0.3)
    assert gain.half_width == pytest.approx(0.3 * 0.1837, abs=0.0001)
    assert other.gain(one, "response").mean == pytest.approx(-300 / 700)


def test_published_improvements_are_held_to_ours() -> None:
    found = made("fig6", "fig7")
    setting = Setting("JWload", 0.8, "measy")
    found[setting] = ran(setting, 500.0)
    most = answer("improves the mean response time of EASY by up to", found)
    assert (most.ours, most.verdict) == ("50.0% (JWload at 0.8)", "holds")
    mean = answer("improves the mean response time of EASY on average", found)
    assert (mean.ours, mean.verdict) == ("31.0%", "holds")
    slow = answer("improves the mean bounded slowdown of EASY on average", found)
    assert (slow.ours, slow.verdict) == ("31.0%", "holds in part")
    assert answer("slowdown of EASY by up to", made("fig6", "fig7", measy=1100)).verdict == "does not hold"


def test_who_is_better_is_counted_over_points() -> None:
    found = made("fig6", "fig7")
    assert answer("MEASY is better than the other three", found).ours == "at 120 of 120 points, by 28.1% on average"
    assert answer("REASY is worse than KEASY and MEASY", found).verdict == "holds"
    assert answer("REASY is even worse than EASY", found).verdict == "holds"
    assert answer("REASY is better than EASY", found).verdict == "does not hold"
    setting = Setting("FWload", 0.5, "measy")
    found[setting] = ran(setting, 1300.0)
    contrary = answer("MEASY is better than the other three", found)
    assert contrary.verdict == "holds in part"
    assert "at 114 of 120 points" in contrary.ours
    assert contrary.ours.endswith("; at 6 a loss beyond the interval")


def test_what_is_within_its_interval_is_not_contrary() -> None:
    found = made("fig7", reasy=1000.0)
    setting = Setting("JWload", 0.9, "reasy")
    found[setting] = Run(setting, 100, (2000, 1, 2000, 10), (10,) * 4, 0, 0, 0, 0, 0)
    (response,) = (gain for gain in gains(found, ["fig7"], "reasy", "easy", ["response"]) if "0.9" in gain.where)
    assert response.by.low < 0 < response.by.high
    assert always([response]).verdict == "does not hold"  # on average there is no gain
    assert always([response, *gains(made("fig7"), ["fig7"], "measy", "easy")]).verdict == "holds"


def test_migrations_depend_on_load() -> None:
    found = {
        setting: ran(setting, 1.0, migrations=10 if (setting.source == "JWload") == (setting.load == 0.9) else 5)
        for setting in FIGURES["fig8"].settings()
    }
    said = answer("JWload has fewer migrations", found)
    assert (said.ours, said.verdict) == ("0.050 to 0.100 a job at 0.45, 0.100 to 0.050 at 0.9", "holds")
    assert answer("JWload has fewer migrations", made("fig8")).verdict == "does not hold"


@pytest.mark.parametrize(("limit", "best"), [(0.0, 1800.0), (900.0, 720.0), (480.0, 240.0), (20.0, 0.0)])
def test_the_cost_up_to_which_a_migration_pays(limit: float, best: float) -> None:
    """MEASY is better than KEASY below a cost of `limit`, and worse from there on; 0: always better."""
    found = made("fig13")
    for setting in [setting for setting in found if setting.policy == "measy" and limit and setting.cost >= limit]:
        found[setting] = ran(setting, 810.0)
    assert pays_up_to(found, "fig13") == best
    below = answer("on FWload a migration pays below", found)
    assert (below.verdict == "holds") == (limit in (0.0, 900.0))
    assert f"up to {best:g} s" in below.ours
    assert (answer("on FWload KEASY is a little better", found).verdict == "holds") == (limit > 0)


def test_only_statements_of_figures_that_were_run_are_told() -> None:
    assert told(["fig6"]) == [statement for statement in STATEMENTS if statement.figures == ("fig6",)]
    assert told(FIGURES) == list(STATEMENTS)
    table = published.table([(STATEMENTS[0], published.Answer("40.0%", "holds"))])
    assert table.rows == [(STATEMENTS[0].words, "41.1%", "40.0%", "holds")]


# Runs


def small(seed: int, jobs: int) -> Workload:
    draw = np.random.default_rng(seed)
    return workload_us(
        release=np.cumsum(draw.integers(1, 10**9, jobs)),
        runtime=draw.integers(1, 10**9, jobs),
        width=draw.integers(1, 200, jobs),
        estimate=10**9,
        cpu=0.5,
        kind=1,
    )


@pytest.fixture
def small_models(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Jobs of a small model. The cache is cleared, so no later test of this process gets them."""
    monkeypatch.setattr(runs, "fwload", small)
    monkeypatch.setattr(runs, "jwload", small)
    runs._jobs.cache_clear()
    yield
    runs._jobs.cache_clear()


@pytest.mark.usefixtures("small_models")
def test_every_setting_has_its_run_and_equal_ones_are_run_once() -> None:
    settings = [Setting("FWload", 0.8, "easy", use) for use in ("told", "untold", "full")]
    ended: list[tuple[int, int]] = []
    found = perform(settings, share=0.004, processes=1, progress=lambda done, of: ended.append((done, of)))
    assert list(found) == settings
    assert ended == [(1, 1)]
    run = found[settings[2]]
    assert run.setting == settings[0]
    assert run.jobs == 800
    assert run.mean("slowdown").mean > 1
    assert 0 < run.utilisation < 1
    assert perform(settings, share=0.004, processes=2)[settings[0]].response == run.response
    assert perform(settings, share=0.004, processes=1, seed=3)[settings[0]].response != run.response


@pytest.mark.usefixtures("small_models")
def test_the_use_of_processors_and_the_cost_reach_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []
    real = runs.run

    def watched(jobs: Workload, nodes: Any, policy: str, world: Any) -> Schedule:
        seen.append(
            (world.cpu, world.migration_cost, world.seed, float(jobs.cpu[0]), sum(node.slots for node in nodes))
        )
        return real(jobs, nodes, "easy", world=world)

    monkeypatch.setattr(runs, "run", watched)
    settings = [
        *(Setting("JWload", 0.8, "measy", use) for use in ("told", "untold", "full")),
        Setting("JWload", 0.8, "measy", cost=900.0),
    ]
    perform(settings, share=0.004, processes=1, seed=2)
    assert sorted(seen) == [
        ("given", 20, 2, 0.5, 320),
        ("given", 20, 2, 1.0, 320),
        ("given", 900, 2, 0.5, 320),
        ("unknown", 20, 2, 0.5, 320),
    ]


@pytest.mark.usefixtures("small_models")
def test_a_job_that_did_not_end_is_no_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    def unended(jobs: Workload, nodes: Any, policy: str, world: Any) -> Schedule:
        ends = np.where(np.arange(len(jobs)) == 7, NOT_YET, jobs.release + jobs.runtime)
        return schedule_of(jobs, Course(jobs.release, ends), 320)

    monkeypatch.setattr(runs, "run", unended)
    with pytest.raises(HeadwayError, match="1 jobs of 800 did not succeed"):
        perform([Setting("FWload", 0.8, "easy")], share=0.004, processes=1)


@pytest.mark.parametrize("share", [0.0, 0.001, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(InvalidInput, match="scale is"):
        perform([Setting("JWload", 0.5, "easy")], share=share, processes=1)


def test_the_logs_are_found_or_their_absence_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_DATA", raising=False)
    assert data_folder() is None
    with pytest.raises(HeadwayError, match="HEADWAY_DATA"):
        data_folder(needed=True)
    with pytest.raises(HeadwayError, match="there is no"):
        data_folder(tmp_path)
    (tmp_path / "swf").mkdir()
    for file, _ in LOGS.values():
        (tmp_path / "swf" / file).touch()
    assert data_folder(tmp_path) == tmp_path
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path))
    assert data_folder(needed=True) == tmp_path
    with pytest.raises(HeadwayError, match="the log CTC is not there"):
        perform([Setting("CTC", None, "easy")], processes=1)
