"""`tempo` is no worse than any policy of Lin14 in both measures at once; `docs/policies/tempo.md` says where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.reproduce.samples import LOG, Log, open_log
from headway.reproduce.standin import standin
from headway.reproduce.sweep import column, sweep

DEADLINE = tuple(f"deadline:spare={rule},foresight=false" for rule in ("none", "priority", "due"))
THESIS = ("priority", "proportion", "workload", *DEADLINE, "edf")


def hold_against_the_thesis(log: Log, load: float, heterogeneous: bool, samples: int) -> None:
    rows = sweep(log, (*THESIS, "tempo"), [load], samples, heterogeneous=[heterogeneous], processes=1)
    assert not column(rows, "priority_violation_rate", "tempo", load, heterogeneous).any()
    ours = column(rows, "deadline_miss_penalty", "tempo", load, heterogeneous).mean()
    for policy in THESIS:
        assert ours <= column(rows, "deadline_miss_penalty", policy, load, heterogeneous).mean(), policy


@pytest.mark.slow
@pytest.mark.parametrize("samples", [1, 5])
def test_no_worse_than_any_policy_of_the_thesis_on_the_standin(samples: int) -> None:
    hold_against_the_thesis(Log(standin(), "made up", is_standin=True), 0.8, heterogeneous=True, samples=samples)


@pytest.mark.slow
def test_no_worse_than_any_policy_of_the_thesis_on_the_log(shared_data: Callable[[str], Path]) -> None:
    hold_against_the_thesis(open_log(shared_data(str(LOG))), 0.8, heterogeneous=False, samples=5)
