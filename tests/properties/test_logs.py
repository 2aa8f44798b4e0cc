"""Logs in Standard Workload Format: lines are read together, or one by one beside a broken one, with one result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.errors import InvalidInput
from headway.model.workload import Workload
from headway.traces import read_swf
from headway.traces.swf import _CPU_TIME, _END, _POINT, _RUN, BROKEN

ODD = (
    *("+", "-", ".", "1-5", "--5", "-0", "-0.5", "-00.25", "-1.5", ".5", "5.", "-5.", "1.2.3", "1..2", "3.-1", "1.+5"),
    *("+4", "1e3", "nan", "-inf", "0x10", "1,5", "1;5", "007", "1 .5", "1. 5", "- 5", "1\t-1", "1\x0b-1", "1\x1c-1"),
    *("\xa05", "1\x005", "0.1000000000000000055511", "9007199254740993", "9007199254740.993", "0.30000000000000004"),
    *("9" * 25, "0." + "9" * 25, str(_END), str(_POINT), f"7 {_POINT} 15", f"7 {_END}"),
)
DECIMALS = st.builds(lambda digits, places: Decimal(digits).scaleb(-places), st.integers(0, 10**17), st.integers(0, 17))
LONG = 2**40
"""Seconds; a division by it is exact."""

PLACES = (0, 3, 5, 10, 17)
JOB = ["7", "20", "3", "40", "5", "6.25", "-1", "8", "90", "-1", "1", "12", "13", "14", "15", "16", "17", "18"]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Workload | None]:
    return partial(jobs_in, tmp_path_factory.mktemp("logs") / "log.swf")


def jobs_in(path: Path, text: str) -> Workload | None:
    """None: the log has no job."""
    path.write_text(text, "latin-1")
    try:
        return read_swf(path)
    except InvalidInput:
        return None


@pytest.mark.parametrize("odd", ODD)
def test_lines_are_read_the_same_beside_a_broken_one(read: Callable[[str], Workload | None], odd: str) -> None:
    """The word takes the place of one, of two, or of none; so a line with words of a wrong number is tried too."""
    for place, ousted, number in product(PLACES, (0, 1, 2), (1, 2)):
        words = [*JOB[:place], odd, *JOB[place + ousted :]]
        text = (" ".join(words) + "\n") * number + "8 " + " ".join(JOB[1:]) + "\n"
        together, one_by_one = read(text), read(text + "broken\n")
        assert together is not None
        assert one_by_one is not None
        for column in fields(Workload):
            ours, theirs = getattr(together, column.name), getattr(one_by_one, column.name)
            if isinstance(ours, np.ndarray):
                np.testing.assert_array_equal(ours, theirs, err_msg=f"{column.name}: {words}")
        assert one_by_one.dropped[BROKEN] == together.dropped.get(BROKEN, 0) + 1


def test_words_that_one_line_has_too_many_and_the_next_too_few_stay_in_their_lines(
    read: Callable[[str], Workload | None],
) -> None:
    jobs = read(" ".join([*JOB, "1"]) + "\n" + " ".join(JOB[1:]) + "\n" + " ".join(JOB) + "\n")
    assert jobs is not None
    assert (jobs.label.tolist(), dict(jobs.dropped)) == ([7], {BROKEN: 2})


@given(DECIMALS)
@example(Decimal("0.0000000000000001"))
@example(Decimal("3926.4877875414550"))
def test_a_decimal_is_the_nearest_float(read: Callable[[str], Workload | None], written: Decimal) -> None:
    words = [*JOB]
    words[_RUN], words[_CPU_TIME] = str(LONG), f"{written:f}"
    jobs = read(" ".join(words) + "\n")
    assert jobs is not None
    assert jobs.cpu[0] == min(float(words[_CPU_TIME]) / LONG, 1.0)
