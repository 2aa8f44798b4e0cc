"""Lin14 chapter 6: what its figures say of the policies, on few samples of a generated log, and of the real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.model.instant import SECOND
from headway.reproduce import failure
from headway.reproduce.failure import DOWN, DUE, apart, curve, simulated
from headway.reproduce.published import PENALTY, STATEMENTS, VIOLATION, Found, found, verdict
from headway.reproduce.samples import LOG, Log, open_log
from headway.reproduce.standin import standin
from headway.reproduce.sweep import SPARE_DUE, SPARE_PRIORITY, Row, column, sweep
from headway.sim.experiment import run

POLICIES = ("priority", SPARE_PRIORITY, SPARE_DUE, "edf")
"""Those of the figures."""

SAMPLES = 1


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return sweep(Log(standin(), "made up", is_standin=True), POLICIES, [None], SAMPLES, processes=1)


def judged(rows: list[Row]) -> dict[tuple[str, ...], tuple[str, Found]]:
    answers = {}
    for statement in STATEMENTS:
        ours = found(statement, rows)
        answers[statement.figure, statement.policy, *statement.against] = verdict(statement, ours), ours
    return answers


def hold_what_holds(rows: list[Row]) -> None:
    """Check those statements of 6.3.2 that our runs confirm for any samples."""
    answers = judged(rows)
    for figure in ("fig6.2", "fig6.3"):
        assert answers[figure, "priority"][0] == "holds"
        assert answers[figure, SPARE_PRIORITY][0] == "holds"
        # Our rate is much lower than a quarter, the value of the thesis.
        word, ours = answers[figure, SPARE_DUE, "edf"]
        assert (word, ours.value < 0.05) == ("holds in part", True)
    for figure in ("fig6.4", "fig6.5"):
        word, ours = answers[figure, "priority", "edf"]
        assert (word, ours.value > 1.5) == ("holds in part", True)
        assert answers[figure, SPARE_DUE, "edf"][0] == "holds"
        # We do not find the gap of two to three magnitudes between the rules for leftover slots.
        assert answers[figure, SPARE_DUE, SPARE_PRIORITY][0] == "does not hold"


@pytest.mark.thorough
def test_on_the_standin(rows: list[Row]) -> None:
    """6.3.2 and figures 6.2 to 6.5."""
    hold_what_holds(rows)


@pytest.mark.slow
def test_on_the_log(shared_data: Callable[[str], Path]) -> None:
    """6.3.2 and figures 6.2 to 6.5, on five samples as in the thesis."""
    hold_what_holds(sweep(open_log(shared_data(str(LOG))), POLICIES, [None], 5, processes=1))


def test_no_job_of_the_log_is_as_long_as_the_thesis_says(shared_data: Callable[[str], Path]) -> None:
    """6.3.2 has jobs of "500 to 800 seconds" after scaling; in the cleaned log none has more than 448."""
    log = open_log(shared_data(str(LOG)))
    assert len(log.workload) == 32135  # 6.3
    assert 448 < log.workload.runtime.max() / SECOND * 0.001 < 449


def test_every_policy_sees_the_same_jobs(rows: list[Row]) -> None:
    """6.3.2: "All of the policies used identical sample set"."""
    for policy in POLICIES:
        for differ in (False, True):
            assert column(rows, "jobs_due", policy, None, differ).tolist() == [320] * SAMPLES
    assert (column(rows, VIOLATION, "edf", None, False) > 0).any()
    assert (column(rows, PENALTY, "edf", None, False) > 0).all()


class TestFigure61:
    """6.2: eight workers, one job due in four minutes, six workers down from 0:55 to 1:55."""

    def test_all_that_is_said_of_it_holds_in_the_simulator(self) -> None:
        sentences = failure.remarks(simulated())
        assert len(sentences) == 6
        assert all(sentence.startswith("holds: ") for sentence in sentences), sentences

    def test_the_curves_part_when_the_workers_go_down(self) -> None:
        curves = simulated()
        normal, failed = (curves[name].sampled(1.0, DUE) for name in ("normal", "failure"))
        down, back = map(round, DOWN)
        assert normal[:down].tolist() == failed[:down].tolist()
        assert set(failed[down:back]) == {2}
        assert failed[back] > normal[back]
        assert 0.5 < apart(curves["normal"], curves["failure"]) < 2
        assert apart(curves["normal"], curves["normal"]) == 0

    def test_a_remark_that_is_not_so_says_so(self) -> None:
        curves = simulated()
        assert [
            sentence.partition(":")[0] for sentence in failure.remarks({**curves, "failure": curves["normal"]})
        ] == [
            *("holds", "holds", "holds"),
            *("does not hold", "does not hold", "holds"),
        ]

    def test_scaled_it_is_the_same(self) -> None:
        """So that live runs can take less than a minute."""
        whole, scaled = (
            curve(
                run(failure.bag(scale), failure.machines(), failure.POLICY, period=failure.PERIOD * scale),
                scale,
            )
            for scale in (1.0, 0.2)
        )
        assert apart(whole, scaled) < 0.01

    def test_without_rounds_in_between_the_statistics_change_nothing(self) -> None:
        """4.4: rounds also take place periodically, so that the statistics are used."""
        never = curve(run(failure.bag(), failure.machines(), failure.POLICY))
        assert set(never.slots[never.at < 200]) == {4}
