"""What `headway explain`, `jobs` and `submit` say about when a job starts and ends."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from headway.cli import reach
from headway.cli.explain import explain, prospect_lines
from headway.cli.live import at, bounds, ends, job, jobs, outlook
from headway.cli.main import INTERRUPTED
from headway.cli.outlook import FORECAST_SECONDS, GLANCE_SECONDS, Wish, advice_lines, foreseen, grant
from headway.cli.submit import promise, submit, told
from headway.client.client import Client
from headway.client.job import Job
from headway.client.waiters import Waiter
from headway.errors import HeadwayError
from headway.live.forecasts import FORECAST_JOBS_MAX
from headway.model.actions import JobStatus
from headway.model.job import PenaltyShape
from headway.model.plan import Reason, Waiting
from headway.wire import (
    Advice,
    AwaitedReport,
    BoundsReport,
    ChanceReport,
    Explanation,
    JobDetail,
    JobReport,
    TaskResult,
)

NOW = 1_000_000.0


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.setattr(time, "time_ns", lambda: int(NOW * 1e9))


def explained(status: JobStatus = JobStatus.WAITING, **terms: Any) -> Explanation:
    return Explanation(2, status, "NO_ROOM_NOW", "not enough slots are free now", None, **terms)


def lines(**terms: Any) -> list[str]:
    return list(prospect_lines(explained(**terms)))


def after(seconds: float) -> str:
    from headway.cli.show import clock

    return f"at {clock(NOW + seconds)}, in {seconds:g} s"


def test_what_is_waited_for_is_named_with_its_slots() -> None:
    awaits = (
        AwaitedReport(1, 3, ("n/0", "n/2"), None, NOW + 60),
        AwaitedReport(2, 0, ("n/1",), None, NOW - 20),
        AwaitedReport(5, 0, ("n/1",), NOW + 60, NOW + 90),
        AwaitedReport(6, 1, ("n/3",), None, None),
        AwaitedReport(7, 1, ("n/3",), NOW + 5, None),
    )
    assert lines(awaits=awaits, expected_start=NOW + 90, expected_end=NOW + 100) == [
        "It waits for job 1, task 3 on n/0, n/2, which is expected to end in 60 s.",
        "It waits for its own task 0 on n/1, which should have ended 20 s ago.",
        "It waits for job 5, task 0 on n/1, which is to start in 60 s and to end in 90 s.",
        "It waits for job 6, task 1 on n/3, for which there is no estimate.",
        "It waits for job 7, task 1 on n/3, which comes before it and for which there is no estimate.",
        f"It is expected to start {after(90)}.",
        f"It is expected to end {after(100)}.",
    ]


def test_what_should_have_happened_may_happen_any_moment() -> None:
    assert lines(expected_start=NOW - 1, expected_end=NOW + 10) == [
        "It is expected to start any moment now.",
        f"It is expected to end {after(10)}.",
    ]


def test_of_a_job_that_runs_it_is_the_next_task_that_starts() -> None:
    (first, _) = lines(status=JobStatus.RUNNING, expected_start=NOW + 10, expected_end=NOW + 20)
    assert first == f"Its next task is expected to start {after(10)}."


def test_without_estimates_it_is_said_whose_are_missing_and_what_to_do() -> None:
    times = {"expected_start": NOW + 10, "expected_end": NOW + 20, "assumed": 600.0}
    advice = "Submit jobs with `--estimate SPAN`, the expected run time of a task, to get a forecast."
    assert lines(**times, assumes=(2,)) == [
        f"It is expected to start {after(10)}.",
        "When it will end is not known, because there is no estimate for it.",
        f"If each such task takes 10 min, it will end {after(20)}.",
        advice,
    ]
    assert lines(**times, assumes=(2, 1, 7), start_assumes=(1, 7)) == [
        "When it will start and end is not known, because there is no estimate for it or for jobs 1, 7.",
        f"If each such task takes 10 min, it will start {after(10)} and end {after(20)}.",
        advice,
    ]
    assert lines(**times, assumes=(1,), start_assumes=(1,))[0].endswith("no estimate for job 1.")


def test_what_was_not_computed_says_why_and_what_never_ends_that_it_will_not() -> None:
    assert lines(lack="900 jobs are open") == ["When it ends is not computed: 900 jobs are open."]
    never = "It is not expected to end: no known event will give it the slots it needs."
    assert lines() == [never]


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"outlook": "on time", "expected_end": NOW}, "on time"),
        ({"outlook": "at risk", "expected_end": NOW}, "at risk"),
        ({"outlook": "late", "late": 90.0, "expected_end": NOW}, "late by about 90 s"),
        ({"outlook": "late", "late": 90.0}, "late by more than 90 s"),
        ({"outlook": "late", "late": 90.0, "expected_end": NOW + 500, "assumes": (7,)}, "late by more than 90 s"),
        ({"outlook": "unknown", "assumes": (1,)}, "not known, no estimate"),
        ({"outlook": "unknown"}, "not known"),
        ({"outlook": "not computed"}, "not computed"),
        ({}, ""),
        ({"status": JobStatus.SUCCEEDED, "outlook": "on time"}, "in time"),
        ({"status": JobStatus.SUCCEEDED, "outlook": "late", "late": 4.0}, "4 s late"),
        ({"status": JobStatus.SUCCEEDED}, ""),
        ({"status": JobStatus.CANCELLED}, ""),
        ({"status": JobStatus.FAILED}, ""),
    ],
)
def test_the_outlook_in_a_list(terms: dict[str, Any], said: str) -> None:
    assert outlook(explained(**terms)) == said


class Adviser:
    """A server that answers each question about a due date with the next of these answers."""

    def __init__(self, *answers: Advice) -> None:
        self.answers = list(answers)

    def advise(self, job: Job, *, sure: float) -> Advice:
        return self.answers.pop(0)


def test_a_date_that_was_found_is_not_asked_about_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Each question takes time, by which the date would be the harder to keep."""
    wanted = Job("render", [])
    grant(cast(Client, Adviser(Advice(0.9, NOW + 3))), wanted, Wish(sure=0.9, only_if=0.8))
    assert wanted.due == NOW + 3
    assert capsys.readouterr().err == f"Due {after(3)}: kept with 90 %.\n"


CHANCE = ChanceReport(None, None, 1.0, 40)


def test_no_more_is_promised_than_the_futures_tell(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = Job("render", [])
    found = Advice(40 / 41, NOW + 3, CHANCE)
    assert grant(cast(Client, Adviser(found)), wanted, Wish(sure=0.9999)) == 40 / 41
    less = "97 %, the most that 40 futures tell (99.99 % was asked for)"
    assert capsys.readouterr().err == f"Due {after(3)}: kept with {less}.\n"
    assert list(advice_lines(found, None, 0.9999)) == [
        f"A due date {after(3)} is kept with 97 %.",
        "97 % is the most that 40 futures tell; 99.99 % was asked for.",
    ]


OF_40 = "97 % is the most that 40 futures tell: --only-if 0.97 asks for that."
OF_9 = "90 % is the most that 9 futures tell: --only-if 0.9 asks for that. With fewer open jobs there are more futures."


@pytest.mark.parametrize(
    ("futures", "on_time", "said", "hint"),
    [
        (40, 1.0, "it cannot be told whether", OF_40),
        (9, 1.0, "it cannot be told whether", OF_9),
        (40, 0.98, "is not kept with 99 %: it is kept with 98 %", OF_40),
        (
            *(9, 0.5, "is not kept with 99 %: it is kept with 50 %"),
            f"With 90 % it would be kept with a due date {after(30)}. {OF_9}",
        ),
    ],
)
def test_who_asks_for_more_than_the_futures_tell_is_refused_and_told_what_to_ask_for(
    futures: int, on_time: float, said: str, hint: str
) -> None:
    found = Advice(futures / (futures + 1), NOW + 30, ChanceReport(None, None, on_time, futures))
    with pytest.raises(HeadwayError, match=said) as refusal:
        grant(cast(Client, Adviser(found)), Job("render", [], due=NOW + 9), Wish(only_if=0.99))
    assert refusal.value.hint == hint


def report(number: int, **terms: Any) -> JobReport:
    return JobReport(
        *(number, "bills", "me", "bag", JobStatus.WAITING, 3, 1, 0, 0, 0, 0.0, 1.0, PenaltyShape.LINEAR),
        **{"estimate": None, "submitted": NOW, "release": NOW, "due": None, "started": None, "ended": None, **terms},
    )


@pytest.mark.parametrize(("expected", "said"), [(-3.0, "ends any moment now"), (7190.0, "ends in 1 h 59 min")])
def test_what_runs_longer_than_expected_ends_any_moment(expected: float, said: str) -> None:
    assert ends(report(1, expected_end=time.time() + expected)) == said


@pytest.mark.parametrize("width", [80, 200])
def test_jobs_and_a_job_name_the_site_where_there_are_several(
    width: int, server: list[JobReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    terms: dict[str, Any] = {"due": NOW + 60, "outlook": "on time", "expected_end": NOW + 9, "penalty": 7.5}
    server += [report(1, pool="frankfurt", **terms), report(2, pool="dublin", **terms)]
    header, _, *rows = CliRunner().invoke(jobs).output.splitlines()
    assert max(map(len, (header, *rows))) <= width
    assert "pool" in header
    assert sum("frankfurt" in row for row in rows) == sum("dublin" in row for row in rows) == 1
    assert "pool          dublin" in CliRunner().invoke(job, ["2"]).output


def test_explain_says_why_a_job_is_at_its_site(server: list[JobReport]) -> None:
    server += [report(1), report(2, pool="dublin")]
    without, said = (CliRunner().invoke(explain, [number]).output for number in "12")
    assert "\nIt is at site dublin, because no other site can hold it.\n" in said
    assert "It is at" not in without


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> list[JobReport]:
    """What a server's jobs are, for commands that show some."""
    found: list[JobReport] = []

    class Server:
        def jobs(self, **_: Any) -> list[JobReport]:
            return found

        def job(self, number: int) -> JobDetail:
            return JobDetail(found[number - 1], (), (), None)

        def explain(self, number: int) -> Explanation:
            pool = found[number - 1].pool
            why = f"it is at site {pool}, because no other site can hold it" if pool else ""
            return explained(pool=pool, why_pool=why, due=found[number - 1].due, chance=found[number - 1].chance)

        def advise(self, job: int, *, sure: float) -> Advice:
            return Advice(sure, due=NOW + 3600, slots=2)

    @contextmanager
    def reached(url: str | None, data: str | None, tls_ca: str | None, patience: float = 0.0) -> Iterator[Server]:
        yield Server()

    monkeypatch.setattr(reach, "reached", reached)
    return found


def test_the_start_that_is_expected_of_a_job_that_runs_is_that_of_its_next_task(server: list[JobReport]) -> None:
    server += [report(1, expected_start=NOW + 9), report(2, expected_start=NOW + 9, started=NOW)]
    first, second = (CliRunner().invoke(job, [number]).output for number in "12")
    assert "expected start" in first
    assert "next task" not in first
    assert "next task" in second
    assert "expected start" not in second


def test_a_list_and_a_job_say_why_there_is_no_forecast(server: list[JobReport]) -> None:
    most = f"{FORECAST_JOBS_MAX:,}; many tasks count as one"
    lack = f"{FORECAST_JOBS_MAX + 1:,} jobs are open, and forecasts are made for up to {most}"
    dated = report(2, due=NOW + 60, outlook="not computed", lack=lack)
    server += [report(1, lack=lack), dated, report(3, expected_end=NOW + 9)]
    listed = CliRunner().invoke(jobs).output.splitlines()
    assert [line.count("not computed") for line in listed[2:5]] == [1, 1, 0]
    assert listed[5:] == [f"Not computed: {lack}."]
    for number in (1, 2):
        assert f"expected end  not computed: {lack}" in CliRunner().invoke(job, [str(number)]).output
    assert "not computed" not in CliRunner().invoke(job, ["3"]).output


def test_without_a_due_date_a_list_shows_the_end() -> None:
    assert ends(report(1, expected_end=NOW + 40)) == "ends in 40 s"
    assert ends(report(1, expected_end=NOW + 40, assumes=(3,))) == ends(report(1)) == ""


START = BoundsReport(NOW + 2, NOW + 3, NOW + 4, NOW + 5, NOW + 6)
END = BoundsReport(NOW + 20, NOW + 30, NOW + 40, NOW + 50, NOW + 90)
WAITS = ChanceReport(START, END, None, 40)
STARTS, ENDS = "in 2 s to 6 s (90 %), in 3 s to 5 s (50 %)", "in 20 s to 90 s (90 %), in 30 s to 50 s (50 %)"


def test_a_list_shows_of_a_job_without_a_due_date_when_it_ends_with_90_percent(server: list[JobReport]) -> None:
    server += [
        report(1, chance=WAITS, expected_end=NOW + 40),
        report(2, chance=ChanceReport(None, BoundsReport(NOW, NOW, NOW + 5, NOW + 9, NOW + 30), None, 40)),
        report(3, chance=ChanceReport(None, BoundsReport(NOW + 20, NOW + 90, None, None, None), None, 40)),
        report(4, chance=ChanceReport(START, END, 0.25, 40), due=NOW + 30, outlook="on time"),
    ]
    listed = CliRunner().invoke(jobs).output.splitlines()[2:]
    for line, said in zip(
        listed,
        ("ends in 20 s to 90 s (90 %)", "ends within 30 s (90 %)", "ends not before in 20 s (95 %)", "25 % on time"),
        strict=True,
    ):
        assert said in line
        assert "50 %" not in line


def test_a_job_shows_when_it_starts_and_ends_with_90_and_50_percent(server: list[JobReport]) -> None:
    server += [
        report(1, chance=WAITS),
        report(2, chance=ChanceReport(None, END, None, 40)),
    ]
    waits, runs = (dict(map(named, CliRunner().invoke(job, [number]).output.splitlines())) for number in "12")
    assert (waits["start within"], waits["end within"]) == (STARTS, ENDS)
    assert ("start within" in runs, runs["end within"]) == (False, ENDS)


def named(line: str) -> tuple[str, str]:
    """A line of two columns."""
    name, _, text = line.partition("  ")
    return name.strip(), text.strip()


def test_explain_says_when_a_job_starts_and_ends_as_run_times_have_been() -> None:
    starts, ends = f"As run times have been, it starts {STARTS}.", f"As run times have been, it ends {ENDS}."
    assert lines(expected_end=NOW + 40, chance=WAITS)[1:] == [starts, ends]
    assert lines(expected_end=NOW + 40, chance=ChanceReport(None, END, None, 40))[1:] == [ends]
    assert lines(expected_end=NOW + 40, chance=ChanceReport(START, None, None, 40))[1:] == [starts]


NO_ESTIMATE = (
    "there is no estimate for its tasks. `headway submit --estimate SPAN` gives one: the expected run time of a task."
)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (
            {"chance": WAITS},
            f"As run times have been, it starts {STARTS}; it ends {ENDS}.",
        ),
        ({"chance": ChanceReport(None, END, 0.5, 40), "due": NOW + 9}, f"As run times have been, it ends {ENDS}."),
        (
            {"expected_start": NOW + 4, "expected_end": NOW + 40},
            "It is expected to start in 4 s and to end in 40 s.",
        ),
        ({"expected_start": NOW + 4, "expected_end": NOW + 40, "due": NOW + 9}, ""),
        (
            {"expected_start": NOW + 4, "expected_end": NOW + 40, "assumes": (2,)},
            f"It is expected to start in 4 s. When it ends is not known: {NO_ESTIMATE}",
        ),
        (
            {"expected_start": NOW + 4, "expected_end": NOW + 40, "status": JobStatus.RUNNING},
            "It is expected to end in 40 s.",
        ),
        (
            {"expected_end": NOW + 600, "assumes": (2,), "start_assumes": (2,)},
            f"When it ends is not known: {NO_ESTIMATE}",
        ),
        ({"assumes": (2,), "due": NOW + 9}, ""),
        ({"lack": "900 jobs are open"}, "When it ends is not known: 900 jobs are open."),
    ],
)
def test_what_is_foreseen_of_a_job_that_is_waited_for(terms: dict[str, Any], said: str) -> None:
    assert foreseen(explained(**terms)) == said


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (
            {"outlook": "late", "late": 290.0, "expected_end": NOW + 300},
            "Job 2 is expected to end in 5 min, about 4 min 50 s after its due date: it will be late.",
        ),
        ({"outlook": "on time", "expected_end": NOW + 9}, "Job 2 is expected to end in 9 s, before its due date."),
        (
            {"outlook": "at risk", "expected_end": NOW + 9},
            "Job 2 is expected to end in 9 s, only just before its due date.",
        ),
        ({"outlook": "late", "late": 5.0}, "Job 2 will be late, by more than 5 s."),
        (
            {"outlook": "unknown", "expected_end": NOW, "assumes": (2,)},
            (
                "Whether job 2 will be on time is not known: there is no estimate for its tasks. "
                "`headway submit --estimate SPAN` gives one: the expected run time of a task."
            ),
        ),
        (
            {"outlook": "unknown", "expected_end": NOW, "assumes": (1,)},
            (
                "Whether job 2 will be on time is not known: there is no estimate for job 1, which comes before it. "
                "`headway submit --estimate SPAN` gives one: the expected run time of a task."
            ),
        ),
        (
            {"outlook": "not computed", "lack": "900 jobs are open"},
            "Whether job 2 will be on time is not known: 900 jobs are open.",
        ),
    ],
)
def test_what_is_said_at_submission(terms: dict[str, Any], said: str) -> None:
    assert promise(explained(**terms)) == said


def test_why_a_job_that_needs_more_than_is_up_may_be_late_is_said_at_submission() -> None:
    text = Waiting(2, Reason.NEVER_FITS, nodes=("m1", "m2")).text
    assert promise(structs.replace(explained(outlook="unknown"), reason="NEVER_FITS", text=text)) == (
        "Whether job 2 will be on time is not known: "
        "it needs more slots than the cluster has now, while nodes m1, m2 are down."
    )


@pytest.mark.parametrize(
    ("word", "on_time", "said"),
    [
        ("late", 0.85, "By estimates, job 2 ends in 60 s, about 9 s after its due date."),
        ("late", 0.05, "Job 2 is expected to end in 60 s, about 9 s after its due date: it will be late."),
        ("on time", 0.9, "Job 2 is expected to end in 60 s, before its due date."),
        ("at risk", 0.2, "By estimates, job 2 ends in 60 s, before its due date."),
    ],
)
def test_it_will_not_be_late_by_its_estimate_and_in_time_by_earlier_runs(word: Any, on_time: float, said: str) -> None:
    late = 9.0 if word == "late" else None
    found = explained(outlook=word, late=late, expected_end=NOW + 60, chance=ChanceReport(None, None, on_time, 40))
    assert promise(found) == f"{said} As run times have been, it is on time with {on_time:.0%}.".replace("%", " %")


def test_what_programs_are_told_at_submission() -> None:
    assert told(2, None) == {"job": 2}
    late = explained(outlook="late", late=290.0, expected_end=NOW + 300)
    known = {
        "job": 2,
        "outlook": "late",
        "expected_start": None,
        "expected_end": NOW + 300,
        "late": 290.0,
        "assumes": [],
        "chance": None,
    }
    assert told(2, late) == known
    bounds = BoundsReport(NOW, NOW + 1, NOW + 2, NOW + 3, None)
    sure = told(2, explained(chance=ChanceReport(None, bounds, 0.25, 40)))["chance"]
    assert (sure["on_time"], sure["end"]["low_50"], sure["end"]["high_90"]) == (0.25, NOW + 1, None)


@pytest.mark.parametrize(
    ("word", "on_time", "said"),
    [
        ("on time", 0.9, "on time (90 % on time)"),
        ("on time", 1.0, "on time"),
        ("late", 0.001, "late by about 9 s"),
        ("late", 0.2, "late by about 9 s (20 % on time)"),
        ("late", 1.0, "> 99 % on time"),
        ("on time", 0.03, "3 % on time"),
        ("at risk", 0.3, "30 % on time"),
        ("unknown", 0.2, "20 % on time"),
        ("on time", None, "on time"),
    ],
)
def test_the_word_is_followed_by_how_sure_it_is_where_that_says_more(word: Any, on_time: float, said: str) -> None:
    late = 9.0 if word == "late" else None
    found = explained(outlook=word, late=late, expected_end=NOW + 9, chance=ChanceReport(None, None, on_time, 40))
    assert outlook(found) == said


@pytest.mark.parametrize("on_time", [1.0, 0.4])
def test_a_due_date_that_has_passed_is_missed_whatever_was_told_before(on_time: float) -> None:
    terms: dict[str, Any] = {"outlook": "late", "late": 9.0, "expected_end": NOW + 4, "due": NOW - 5}
    assert outlook(explained(**terms, chance=ChanceReport(None, None, on_time, 40))) == "late by about 9 s"


def test_bounds_of_one_value_are_told_as_one() -> None:
    assert bounds(BoundsReport(*[NOW + 25] * 5)) == "in 25 s (90 %)"
    assert bounds(BoundsReport(NOW + 2, *[NOW + 4] * 3, NOW + 6)) == "in 2 s to 6 s (90 %), in 4 s (50 %)"


def test_bounds_that_were_not_reached_are_told_as_far_as_they_were() -> None:
    assert (
        bounds(BoundsReport(NOW + 2, NOW + 3, NOW + 4, NOW + 5, NOW + 6))
        == "in 2 s to 6 s (90 %), in 3 s to 5 s (50 %)"
    )
    assert bounds(BoundsReport(NOW, NOW + 3, NOW + 4, NOW + 5, NOW + 6)) == "within 6 s (90 %), in 3 s to 5 s (50 %)"
    assert bounds(BoundsReport(NOW + 2, None, None, None, None)) == "not before in 2 s (95 %)"


def test_a_forecast_that_is_not_new_says_how_old_it_is() -> None:
    now = time.time()
    old = explained(expected_end=now + 60, expected_at=now - 4.2, behind=12345)
    assert re.fullmatch(r"That was expected [45].* s ago; 12,345 events came since\.", list(prospect_lines(old))[-1])
    for young in (explained(expected_end=now + 60, expected_at=now - 4), explained(expected_at=now, behind=9)):
        assert not any("came since" in line for line in prospect_lines(young))


def test_a_job_and_a_list_say_how_old_their_forecasts_are(server: list[JobReport]) -> None:
    now = time.time()
    old = {"expected_end": now + 60, "expected_at": now - 4.2, "behind": 3}
    server += [report(1, expected_end=now + 9, expected_at=now, behind=9), report(2, **old)]
    assert re.search(r"forecast +[45].* s ago; 3 events came since\n", CliRunner().invoke(job, ["2"]).output)
    assert "forecast" not in CliRunner().invoke(job, ["1"]).output
    last = CliRunner().invoke(jobs).output.splitlines()[-1]
    assert re.fullmatch(r"Outlooks are those of [45].* s ago; 3 events came since\.", last)
    server.pop()
    assert "Outlooks" not in CliRunner().invoke(jobs).output


@pytest.mark.parametrize(("on_time", "helps"), [(0.2, True), (0.95, False), (None, False)])
def test_explain_says_what_would_help_where_a_due_date_is_likely_to_be_missed(
    server: list[JobReport], on_time: float | None, helps: bool
) -> None:
    server.append(report(1, due=NOW + 60, chance=ChanceReport(None, None, on_time, 40)))
    said = CliRunner().invoke(explain, ["1"]).output.splitlines()[-1]
    offered = said.startswith("With 90 % it would be kept with a due date ") and said.endswith("or with 2 more slots.")
    assert offered == helps, said


class Submitted:
    """A server that takes a job as 7, says this when it is asked about it, and ends it when it is waited for.

    Attributes:
        found: what it says.
        asked: how long it might take for that.
        is_quick: whether the job has ended soon.
    """

    def __init__(self, found: Explanation, *, is_quick: bool = False) -> None:
        self.found = found
        self.asked: list[float] = []
        self.is_quick = is_quick

    def submit(self, job: Job) -> Waiter:
        waiter = Waiter(job.name, 1, lambda number: False)
        waiter.accepted(7)
        return waiter

    def explain(self, job: int, *, wait: float) -> Explanation:
        click.echo("asked for a forecast", err=True)
        self.asked.append(wait)
        return self.found

    def advise(self, job: int, *, sure: float) -> Advice:
        return Advice(sure, slots=2)

    def wait(self, waiter: Waiter, timeout: float | None = None) -> None:
        if timeout is not None and not self.is_quick:
            raise TimeoutError
        waiter.concluded(JobStatus.SUCCEEDED)

    def results(self, job: int) -> list[TaskResult]:
        return []

    def acknowledge(self, job: int) -> None:
        """Nothing is kept here."""


@pytest.fixture
def submits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`headway submit` with these words, to that server."""

    def run(server: Submitted, *words: str) -> Result:
        monkeypatch.setattr(reach, "reached", lambda *_, **__: nullcontext(server))
        return CliRunner().invoke(submit, [*words, "true"], standalone_mode=False)

    return run


MADE = "the forecast is still being made; ask again in a moment"


def test_the_id_of_a_job_is_printed_before_its_forecast_is_waited_for(submits: Callable[..., Result]) -> None:
    server = Submitted(explained(outlook="not computed", lack=MADE, due=NOW + 3600))
    said = submits(server, "--due", "1h")
    assert said.output.splitlines()[:2] == ["7", "asked for a forecast"], said.output
    assert f"is not known: {MADE}" in said.output
    assert server.asked == [FORECAST_SECONDS]


def test_a_job_without_a_due_date_that_nobody_waits_for_is_not_forecast(submits: Callable[..., Result]) -> None:
    server = Submitted(explained())
    assert submits(server).output == "7\n"
    assert json.loads(submits(server, "--json").output) == {"job": 7}
    assert server.asked == []


def test_of_a_job_that_is_waited_for_it_is_said_first_when_it_starts_and_ends(submits: Callable[..., Result]) -> None:
    server = Submitted(explained(chance=WAITS))
    said = submits(server, "--wait")
    assert said.stdout == "", "that is for what its tasks wrote"
    assert said.stderr.splitlines() == [
        "Job 7 is submitted.",
        "asked for a forecast",
        f"As run times have been, it starts {STARTS}; it ends {ENDS}.",
    ]
    assert server.asked == [GLANCE_SECONDS]
    late = submits(Submitted(explained(due=NOW + 9, chance=ChanceReport(START, END, 0.2, 40))), "--wait", "--due", "9s")
    promised, foretold, helps = late.stderr.splitlines()[2:]
    assert promised.endswith("As run times have been, it is on time with 20 %.")
    assert foretold.startswith("As run times have been, it starts")
    assert helps == "With 90 % it would be kept with 2 more slots."


def test_programs_that_wait_for_a_job_get_what_was_foreseen_with_its_results(submits: Callable[..., Result]) -> None:
    said = json.loads(submits(Submitted(explained(chance=WAITS)), "--wait", "--json").stdout)
    assert (said["job"], said["status"], said["results"]) == (7, "succeeded", [])
    assert (said["chance"]["start"]["low_90"], said["chance"]["end"]["high_50"]) == (NOW + 2, NOW + 50)


def test_if_it_cannot_be_foreseen_when_a_job_ends_that_is_waited_for_it_is_said_why(
    submits: Callable[..., Result],
) -> None:
    said = submits(Submitted(explained(lack=MADE)), "--wait").stderr.splitlines()
    assert said[-1] == f"When it ends is not known: {MADE}."


def test_of_a_job_that_ends_soon_nothing_is_said(submits: Callable[..., Result]) -> None:
    said = submits(Submitted(explained(), is_quick=True), "--wait").stderr.splitlines()
    assert set(said) - {"asked for a forecast"} == {"Job 7 is submitted."}


def test_a_job_that_has_ended_when_its_forecast_is_there_is_not_foretold(submits: Callable[..., Result]) -> None:
    ended = explained(JobStatus.SUCCEEDED, chance=WAITS)
    assert list(json.loads(submits(Submitted(ended), "--wait", "--json").stdout)) == ["job", "status", "results"]


def test_ctrl_c_while_a_forecast_is_waited_for_says_how_to_follow_the_job(submits: Callable[..., Result]) -> None:
    class Interrupted(Submitted):
        def explain(self, job: int, *, wait: float) -> Explanation:
            raise KeyboardInterrupt

    said = submits(Interrupted(explained()), "--wait")
    assert "Job 7 goes on: `headway result 7 --wait`" in said.stderr
    assert said.return_value == INTERRUPTED


def test_advice_says_which_end_is_meant_where_a_due_date_would_change_it() -> None:
    end = BoundsReport(NOW + 25, NOW + 30, NOW + 35, NOW + 40, NOW + 45)
    without, promised = advice_lines(Advice(0.9, NOW + 22, ChanceReport(None, end, None, 50)), None)
    assert without.startswith("As run times have been, it ends without a due date in 25 s to 45 s (90 %)")
    assert re.fullmatch(r"A due date .*in 22 s is kept with 90 %\.", promised)
    within, kept = advice_lines(Advice(0.9, NOW + 22, ChanceReport(None, end, 0.95, 50)), NOW + 60)
    assert within.startswith("As run times have been, it ends in 25 s to 45 s (90 %)")
    assert re.fullmatch(r"The due date .*in 60 s is kept with 95 %\.", kept)


def test_of_a_due_date_that_has_passed_no_probability_is_told() -> None:
    advice = Advice(0.9, NOW + 60, ChanceReport(START, END, 0.0, 40))
    assert f"The due date {at(NOW - 9)}, has passed." in list(advice_lines(advice, NOW - 9))
    assert f"The due date {at(NOW + 9)} is kept with < 1 %." in list(advice_lines(advice, NOW + 9))
