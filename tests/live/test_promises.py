"""Will my job be on time? What the commands say, of a server that has seen no other tasks than those of this file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from headway.live.forecasts import STILL_MADE

from ..commands import Ran
from ..waiting import LIMIT, until


def is_still_made(said: str) -> bool:
    """Whether there is no forecast yet: not for a moment, or not for seconds."""
    return STILL_MADE in said or "a forecast has been made for" in said


@pytest.fixture(autouse=True)
def leaves_nothing(headway: Any) -> Iterator[None]:
    """Whatever a test leaves behind, the next one finds no open job and both slots free."""
    yield
    for job in json.loads(headway("jobs", "--status", "open", "--json").out):
        headway("cancel", job["id"])
    until(lambda: not json.loads(headway("jobs", "--status", "open", "--json").out))
    headway("policy", "tempo:strict=false")


def test_a_job_that_cannot_be_is_told_so_at_once(headway: Any) -> None:
    words = ("submit", "--due", "50s", "--estimate", "60s", "--tasks", 10)
    late = promised(headway, *words, "--", "sleep", "60")
    number = int(late.out)
    span = r"[45] min( \d\d s)?"
    will_be = rf"Job {number} is expected to end in {span}, about {span} after its due date: it will be late\."
    assert re.match(will_be, late.err), late.err
    (job,) = json.loads(headway("jobs", "--status", "open", "--json").out)
    assert (job["id"], job["outlook"]) == (number, "late")
    assert 249 < job["late"] < 250 + LIMIT, "later by what submitting took"
    assert re.search(r"late by about [45] min( \d\d s)?", headway("jobs", "--status", "open").out)
    assert re.search(r"outlook +late by about [45] min( \d\d s)?", headway("job", number).out)
    explained = explanation_of(headway, number)
    assert f"Job {number} is running.\nIt waits for its own task 0 on n-1/0, which is expected to end in" in explained
    assert re.search(r"late by about [45] min( \d\d s)?", explained)
    told = json.loads(headway(*words, "--json", "--", "sleep", "60").out)
    assert told["outlook"] == "late"
    assert 550 - LIMIT < told["late"] < 551, "the first job has begun by then"
    assert headway("cancel", number, told["job"]).status == 0
    is_gone(headway, number)


def test_the_penalty_of_a_job_is_told_and_summed_up_by_user(headway: Any) -> None:
    """A job of 80 s that is due in 30 s is expected to be 50 s late; at rate 3 and squared that is 7,500."""
    before = json.loads(headway("status", "--json").out)["penalties"]["total"]
    words = ("submit", "--due", "30s", "--estimate", "80s", "--rate", "3", "--shape", "square")
    number = int(promised(headway, *words, "--", "sleep", "80").out)

    def listed() -> Any:
        (job,) = json.loads(headway("jobs", "--status", "open", "--json").out)
        return job if job["penalty_expected"] is not None else None

    job = until(listed)  # a list does not wait long for a forecast, and on a busy machine one takes long
    assert (job["rate"], job["shape"], job["penalty"]) == (3.0, "square", 0.0)
    assert 3 * 50**2 - 1 < job["penalty_expected"] < 3 * (50 + LIMIT) ** 2
    assert job["penalty_expected"] == pytest.approx(3 * job["late"] ** 2)
    cost = f"{job['penalty_expected']:.4g}"
    assert f"{cost} expected" in headway("job", number).out
    assert f"Its penalty: 0 so far, {cost} expected." in headway("explain", number).out
    assert "penalty" in headway("jobs", "--status", "open").out
    after = json.loads(headway("status", "--json").out)["penalties"]
    assert after["total"]["expected"] == pytest.approx(before["expected"] + job["penalty_expected"])
    assert after["total"]["jobs"] == before["jobs"] + 1
    assert sum(one["expected"] for one in after["users"].values()) == pytest.approx(after["total"]["expected"])
    assert f"{after['total']['expected']:.4g} expected" in headway("status").out
    assert headway("cancel", number).status == 0
    is_gone(headway, number)
    until(lambda: json.loads(headway("status", "--json").out)["penalties"]["total"]["expected"] == before["expected"])
    wrong = headway("submit", "--rate", "-1", "--", "true")
    assert wrong.status == 2
    assert "--rate is -1; allowed: a finite number, 0 or more" in wrong.err
    assert "--shape is 'tall'; allowed: linear, sqrt, square" in headway("submit", "--shape", "tall", "--", "true").err


def promised(headway: Any, *words: object) -> Ran:
    """Submit a job of which it is told at once when it will end.

    A busy machine may take longer over the first forecast than a submission waits for it; then another is made.
    """

    def told() -> Ran | None:
        ran: Ran = headway(*words)
        if not is_still_made(ran.err):
            return ran
        headway("cancel", int(ran.out))
        return None

    found = until(told)
    assert found is not None
    return found


def explanation_of(headway: Any, number: int) -> str:
    """What is said of a job once there is a forecast: on a busy machine the command asks to be run again."""

    def told() -> str:
        said: str = headway("explain", number).out
        return "" if is_still_made(said) else said

    return until(told)


def is_gone(headway: Any, number: int) -> None:
    """A cancelled job has neither kept nor missed its due date."""
    until(lambda: json.loads(headway("job", number, "--json").out)["job"]["status"] == "cancelled")
    job = json.loads(headway("job", number, "--json").out)["job"]
    assert (job["outlook"], job["late"], job["failed"]) == (None, None, 0)
    for shown in (headway("job", number).out, headway("jobs", "--status", "cancelled").out):
        assert "cancelled" in shown
        assert not re.search("in time|late|failed", shown)


def test_a_job_that_will_be_is_told_when(headway: Any) -> None:
    ran = promised(headway, "submit", "--due", "1h", "--estimate", "20s", "--", "sleep", "20")
    assert re.search(r"is expected to end in (20|1?\d) s, before its due date\.", ran.err), ran.err
    assert re.search(r"in (1 h|5\d min( \d\d s)?) +on time", headway("jobs", "--status", "open").out)


def test_without_an_estimate_it_is_told_what_to_do(headway: Any) -> None:
    ran = promised(headway, "submit", "--due", "1h", "--", "sleep", "20")
    assert "there is no estimate for its tasks. `headway submit --estimate SPAN`" in ran.err
    number = int(ran.out)
    explained = explanation_of(headway, number)
    assert "When it will end is not known, because there is no estimate for it." in explained
    assert "If each such task takes 10 min, it will end at" in explained
    assert "--estimate SPAN" in explained
    assert "not known, no estimate" in headway("jobs", "--status", "open").out


def test_a_date_that_is_kept_is_taken_and_what_is_not_kept_is_not_submitted(headway: Any) -> None:
    headway("submit", "--tasks", 4, "--name", "first", "--estimate", "60s", "--", "sleep", "60")
    words = ("--name", "second", "--estimate", "60s", "--", "sleep", "60")
    said = headway("advise", "--due", "20s", *words)
    assert re.search(r"^The due date at .* is kept with .* %\.$", said.out, re.M)
    assert "With 90 % it would be kept with a due date at" in said.out
    advice = json.loads(headway("advise", "--json", *words).out)
    assert advice["due"] == advice["due"] // 1
    before = headway("jobs", "--status", "open", "--json").out
    refused = headway("submit", "--due", "1s", "--only-if", "0.9", *words)
    assert refused.status == 2
    assert "nothing was submitted" in refused.err
    assert len(json.loads(headway("jobs", "--status", "open", "--json").out)) == len(json.loads(before)) == 1
    taken = headway("submit", "--due", "auto", "--sure", "0.8", *words)
    assert re.search(r"^Due at .*: kept with 80 %\.$", taken.err, re.M)
    (job,) = (one for one in json.loads(headway("jobs", "--status", "open", "--json").out) if one["due"])
    assert job["id"] == int(taken.out)
    open_one = json.loads(headway("advise", "--json", "--job", taken.out.strip()).out)
    assert open_one["chance"]["on_time"] > 0.2  # it was 0.8; since then a slow machine may have lost much time
    unknown = headway("advise", "--name", "never seen", "--", "true")
    assert unknown.status == 1
    assert unknown.out.startswith("No due date can be told: neither an estimate nor earlier jobs")
    assert "--only-if was given without a due date" in headway("submit", "--only-if", "0.5", "--", "true").err
    for due in ((), ("--due", "5m")):
        unused = headway("submit", *due, "--sure", "0.8", *words)
        assert unused.status == 2
        assert unused.err.startswith("Error: --sure was given without --due auto\nAdd --due auto; --only-if 0.8 ")


@pytest.mark.parametrize("policy", ["edf", "priority", "tempo", "fcfs", "measy", "deadline"])
def test_under_every_policy_it_is_said_what_is_waited_for_and_how_long(headway: Any, policy: str) -> None:
    headway("policy", policy)
    wide = ("--tasks", 2, "--together", "--due", "30s", "--estimate", "150s", "--", "sleep", "150")
    first, second, third = (int(headway("submit", *wide).out) for _ in range(3))
    waits = max(number for number in (first, second, third) if status(headway, number) == "waiting")
    explained = explanation_of(headway, waits)
    assert re.search(rf"^Job {waits} is waiting: ", explained)
    assert re.search(r"^It waits for job \d+, task 0 on n-1/0, n-2/0, which is expected to end in", explained, re.M)
    assert re.search(r"^It is expected to start at 20\d\d-", explained, re.M)
    assert re.search(r"^It is expected to end at 20\d\d-", explained, re.M)
    assert re.search(r"^It is due at .*: late by about \d+ (s|min( \d\d s)?)( \(.* on time\))?\.$", explained, re.M)


def status(headway: Any, number: int) -> str:
    found: str = json.loads(headway("job", number, "--json").out)["job"]["status"]
    return found
