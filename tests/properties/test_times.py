"""Times that people write: every time that a command prints can be typed back and means the same."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headway import InvalidInput
from headway.cli.live import due, ends, expected, outlook
from headway.cli.show import clock, plain, span, when
from headway.cli.simulate import _cell
from headway.model.actions import JobStatus
from headway.model.job import PenaltyShape
from headway.times import TIME_SECONDS_MAX, age_text, away_text, clock_text, instant_of, span_of, span_text, when_of
from headway.wire import JobReport

SPANS = st.floats(0, 1e9, exclude_max=True) | st.integers(0, 10**7) | st.integers(0, 10**6).map(lambda us: us / 1e6)
INSTANTS = st.floats(1.2e9, 4e9)
"""2008 to 2096."""


@pytest.fixture(scope="module", params=["UTC", "Europe/Berlin", "Australia/Lord_Howe"], autouse=True)
def zone(request: pytest.FixtureRequest) -> Iterator[None]:
    """A time zone, with or without summer time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@given(SPANS)
def test_a_span_is_read_as_it_is_printed(seconds: float) -> None:
    text = span_text(seconds)
    assert span_text(span_of(text, "span")) == text
    assert span_of(text, "span") == pytest.approx(seconds, rel=0.06, abs=1e-9)


@given(SPANS)
def test_what_simulate_prints_is_read(seconds: float) -> None:
    text = _cell("wait", seconds)
    assert _cell("wait", span_of(text, "span")) == text
    text = _cell("round", 1000 * seconds)
    assert _cell("round", 1000 * span_of(text, "span")) == text


@given(INSTANTS, SPANS)
def test_an_instant_seen_from_now_is_read_as_it_is_printed(now: float, away: float) -> None:
    for at in (now + away, now - away):
        text = away_text(at, now)
        for towards in ("future", "past"):
            assert away_text(instant_of(text, "at", now, towards=towards), now) == text  # type: ignore[arg-type]


@given(INSTANTS, SPANS)
def test_an_age_is_read_as_it_is_printed(now: float, age: float) -> None:
    text = age_text(now - age, now)
    assert age_text(instant_of(text, "at", now, towards="past"), now) == text


@given(INSTANTS, INSTANTS)
def test_a_date_is_read_as_it_is_printed(at: float, now: float) -> None:
    assert clock_text(instant_of(clock_text(at), "at", now)) == clock_text(at)
    assert instant_of(datetime.fromtimestamp(at).isoformat() + "+00:00", "at", now) is not None


@given(INSTANTS, INSTANTS)
def test_an_instant_in_json_is_read_as_it_is_printed(at: float, now: float) -> None:
    assert instant_of(json.dumps(at), "at", now) == at
    assert when_of(at, "at", now) == at


@given(INSTANTS, SPANS)
def test_times_of_a_job_are_read_as_they_are_printed(submitted: float, length: float) -> None:
    report = JobReport(
        *(1, "bills", "me", "bag", JobStatus.SUCCEEDED, 3, 1, 3, 0, 0, 0.0, 1.0, PenaltyShape.LINEAR),
        estimate=length,
        submitted=submitted,
        release=submitted,
        due=submitted + 1,
        started=submitted,
        ended=submitted + 2 + length,
        late=1 + length,
    )
    told = plain(report)
    assert (told["estimate"], told["submitted"]) == (length, submitted), "seconds, as they are in Python"
    goes_on = replace(report, status=JobStatus.RUNNING, ended=None, outlook="late", expected_end=report.ended)
    for job in (report, goes_on, replace(goes_on, expected_end=None)):
        late = outlook(job)
        assert span(span_of(late, "span")) == span(1 + length), late
    assert span_of(f"{span(length)} a task", "estimate") == span_of(f"{span(length)} of slot time", "lost")
    assert clock(instant_of(expected(report.ended, ()), "due")) == clock(report.ended)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.times.time.time", lambda: submitted)
        for text in (due(goes_on), ends(goes_on)):
            assert when(instant_of(text, "due")) == text.removeprefix("ends ")


@given(INSTANTS, st.integers(0, 23), st.integers(0, 59))
def test_a_time_of_day_is_the_next_one_or_the_last(now: float, hour: int, minute: int) -> None:
    text = f"{hour}:{minute:02}"
    ahead, back = instant_of(text, "at", now), instant_of(text, "at", now, towards="past")
    assert back <= now < ahead <= now + 90_001
    assert back > now - 90_001
    # When clocks are set forward, a time of day is skipped.
    here = datetime.fromtimestamp(ahead)
    skipped = here.utcoffset() != datetime.fromtimestamp(ahead - 7200).utcoffset()
    assert skipped or (here.hour, here.minute) == (hour, minute) or abs(here.hour - hour) <= 1


NOW = datetime(2030, 1, 31, 12, 0, 0)
"""A Thursday."""


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", NOW),
        ("18:00", datetime(2030, 1, 31, 18)),
        ("6:00", datetime(2030, 2, 1, 6)),
        ("12:00", datetime(2030, 2, 1, 12)),
        ("18:00:30", datetime(2030, 1, 31, 18, 0, 30)),
        ("6 pm", datetime(2030, 1, 31, 18)),
        ("12am", datetime(2030, 2, 1, 0)),
        ("6:30pm", datetime(2030, 1, 31, 18, 30)),
        ("today 11:00", datetime(2030, 1, 31, 11)),
        ("tomorrow 6:00", datetime(2030, 2, 1, 6)),
        ("Tomorrow  6:00", datetime(2030, 2, 1, 6)),
        ("yesterday 6:00", datetime(2030, 1, 30, 6)),
        ("friday 9:30", datetime(2030, 2, 1, 9, 30)),
        ("Thu 11:00", datetime(2030, 2, 7, 11)),
        ("thursday 13:00", datetime(2030, 1, 31, 13)),
        ("2030-02-01", datetime(2030, 2, 1)),
        ("2030-02-01T18:00", datetime(2030, 2, 1, 18)),
        ("2030-02-01 18:00:00.5", datetime(2030, 2, 1, 18, 0, 0, 500_000)),
        ("1h30m", datetime(2030, 1, 31, 13, 30)),
        ("in 5 min 00 s", datetime(2030, 1, 31, 12, 5)),
        ("about 5 min", datetime(2030, 1, 31, 12, 5)),
        ("1 h ago", datetime(2030, 1, 31, 11)),
        ("2 h 00 min ago", datetime(2030, 1, 31, 10)),
    ],
)
def test_instants(text: str, at: datetime) -> None:
    assert instant_of(text, "--due", NOW.timestamp()) == at.timestamp()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("18:00", datetime(2030, 1, 30, 18)),
        ("12:00", NOW),
        ("10m", datetime(2030, 1, 31, 11, 50)),
        ("friday 9:30", datetime(2030, 1, 25, 9, 30)),
        ("2030-01-01", datetime(2030, 1, 1)),
    ],
)
def test_instants_that_have_passed(text: str, at: datetime) -> None:
    assert instant_of(text, "--since", NOW.timestamp(), towards="past") == at.timestamp()


def test_zones_that_are_named_count() -> None:
    assert instant_of("2030-01-31T18:00:00Z", "due") == instant_of("2030-01-31 19:00+01:00", "due") == 1_896_112_800


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90", 90), ("90s", 90), ("1h30m", 5400), ("1 h 06 min", 3960), ("1d12h", 129_600), ("2 weeks", 1_209_600)),
        *(("1,234 s", 1234), ("0.25 ms", 0.00025), ("5 minutes", 300), ("1.5H", 5400), ("about 5 min", 300), ("0", 0)),
    ],
)
def test_spans(text: str, seconds: float) -> None:
    assert span_of(text, "--estimate") == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "h", "1h1h", "5 parsecs", "1h30", "-5s", "18:00", "nan", "inf", f"{TIME_SECONDS_MAX}s"]
)
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--estimate is .*1h30m"):
        span_of(text, "--estimate")


@pytest.mark.parametrize(
    "text", ["", "soon", "tomorrow", "tomorrow 6", "25:00", "18:60", "13 pm", "2030-13-01", "monday", "to 6:00", "1e99"]
)
def test_what_is_no_instant(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--due is .*18:00, tomorrow 6:00"):
        instant_of(text, "--due")


@pytest.mark.parametrize("given", [True, float("nan"), float("inf"), -2e9, 1e300, [], "soon"])
def test_what_is_no_instant_in_python(given: object) -> None:
    with pytest.raises(InvalidInput, match="due is"):
        when_of(given, "due", 0.0)  # type: ignore[arg-type]
