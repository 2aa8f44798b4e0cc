"""Times as people write and read them: spans (`1h30m`, `90 s`) and instants (`18:00`, `tomorrow 6:00`, `in 5 min`).

Whatever this module writes it also reads. Everything is in seconds; instants are seconds since the Unix epoch.
"""

from __future__ import annotations

import math
import re
import time
from datetime import date, datetime, timedelta
from typing import Final, Literal

from headway.errors import InvalidInput

When = float | timedelta | datetime | str
"""An instant as people give it: seconds or a `timedelta` from now on, a `datetime` (local without a zone), or text."""

Span = float | timedelta | str
"""A duration as people give it: seconds, a `timedelta`, or text such as `1h30m`."""

SPANS: Final = "a duration such as 90s, 5 min, 1h30m or 2d; a bare number is seconds"
"""What is allowed where a span is wanted."""

INSTANTS: Final = (
    "18:00, tomorrow 6:00, friday 9:30, 2030-01-31T18:00, or a duration from now on, such as 90s, 1h30m or 2d"
)
"""What is allowed where an instant is wanted that lies ahead."""

PAST_INSTANTS: Final = (
    "18:00, yesterday 6:00, friday 9:30, 2030-01-31T18:00, or a duration back from now, such as 90s, 1h30m or 2d"
)
"""What is allowed where an instant is wanted that has passed."""

EPOCH_LEAST: Final = 1e9
"""A bare number is an instant since the Unix epoch from here on (2001); below, it is a span. JSON has instants so."""

TIME_SECONDS_MAX: Final = 4_611_686_018_427
"""No time is so many seconds: about 146,000 years."""

_UNITS: Final = {
    **dict.fromkeys(("us", "µs"), 1e-6),
    "ms": 1e-3,
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
}
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBER: Final = r"(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?"
_NUMBER_WITH_UNIT: Final = re.compile(rf"({_NUMBER})\s*([a-zµ]*)\s*")
_AROUND: Final = re.compile(r"(?:late by )?(?:about |more than )?(.*?)(?: a task| of slot time| late)?")
"""What commands print around a span."""

_DATED: Final = re.compile(
    r"(?:at )?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:,? (?:in .+|.+ ago|.+ late|in time|any moment now))?"
)
"""A date as commands print it, alone or with how far it is off."""

_CLOCK: Final = re.compile(r"(\d{1,2})(?::(\d{2})(?::(\d{2}(?:\.\d{1,6})?))?)?\s*([ap]m)?")


def span_text(seconds: float) -> str:
    """How long, in words.

    >>> span_text(0.25), span_text(42), span_text(900), span_text(4000), span_text(200_000)
    ('0.25 s', '42 s', '15 min', '1 h 06 min', '2 d 07 h')
    """
    if abs(seconds) < 0.000_000_5:  # times are no finer than a microsecond
        return "0 s"
    if abs(seconds) < 0.000995:  # above, it is rounded to 0.001 s
        return f"{1000 * seconds:.2g} ms"
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    for limit, unit, small, large, part in (
        (172_800, 86_400, 3600, "d", "h"),
        (3600, 3600, 60, "h", "min"),
        (120, 60, 1, "min", "s"),
    ):
        if whole >= limit:
            rest = whole % unit // small
            return f"{whole // unit} {large} {rest:02} {part}" if rest else f"{whole // unit} {large}"
    return f"{whole} s"


def away_text(at: float, now: float | None = None) -> str:
    """When, seen from now: `in 5 min`, `3.1 s ago`."""
    away = round(at - (time.time() if now is None else now), 3)  # instants as numbers are no finer than a microsecond
    return f"in {span_text(away)}" if away > 0 else f"{span_text(abs(away))} ago"


def age_text(at: float, now: float | None = None) -> str:
    """How long ago, in one unit, rounded down: shorter than `away_text`.

    >>> age_text(0, 45), age_text(0, 4000), age_text(0, 200_000)
    ('45 s ago', '66 min ago', '2 d ago')
    """
    age = max(0, int((time.time() if now is None else now) - at))
    for seconds, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if age >= 2 * seconds:
            return f"{age // seconds} {unit} ago"
    return f"{age} s ago"


def clock_text(at: float) -> str:
    """Date and time, local; a calendar ends somewhere, instants need not.

    >>> clock_text(1e12), clock_text(-1e12)
    ('after the year 9999', 'before the year 1')
    """
    try:
        return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "after the year 9999" if at > 0 else "before the year 1"


def span_of(text: str, field: str) -> float:
    """Seconds of a span: one number with its unit or several, a bare number being seconds.

    Raises:
        InvalidInput: it is not valid.

    >>> span_of("1h30m", "estimate"), span_of("2 d 07 h", "estimate"), span_of("90", "estimate")
    (5400.0, 198000.0, 90.0)
    """
    seconds = _span(text)
    if seconds is None:
        raise InvalidInput(field, text, SPANS)
    return seconds


def _span(text: str) -> float | None:
    around = _AROUND.fullmatch(" ".join(text.lower().split()))
    text = around[1] if around else ""
    total, place, seen = 0.0, 0, set[float]()
    while place < len(text):
        part = _NUMBER_WITH_UNIT.match(text, place)
        if part is None:
            return None
        alone = part.end() == len(text) and not place
        unit = 1.0 if not part[2] and alone else _UNITS.get(part[2])
        if unit is None or unit in seen:
            return None
        seen.add(unit)
        total += float(part[1].replace(",", "")) * unit
        place = part.end()
    return total if text and total < TIME_SECONDS_MAX else None


def seconds_of(given: Span, field: str) -> float:
    """Seconds of a span as people give it.

    Raises:
        InvalidInput: it is not a number, or not finite.
    """
    if isinstance(given, str):
        return span_of(given, field)
    try:
        seconds = given.total_seconds() if isinstance(given, timedelta) else float(given + 0.0)
        if not math.isfinite(seconds) or abs(seconds) >= TIME_SECONDS_MAX:
            raise ValueError
        return seconds
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(field, given, f"a finite number of seconds, a timedelta, or {SPANS}") from error


def instant_of(
    text: str, field: str, now: float | None = None, *, towards: Literal["future", "past"] = "future"
) -> float:
    """An instant, in seconds since the Unix epoch, that people write.

    Args:
        now: what a span and a time of day count from; None: the present.
        towards: where a span without `in` or `ago` leads, and which of the days a time of day is of that names none.

    Raises:
        InvalidInput: it is not valid.
    """
    now = time.time() if now is None else now
    words = " ".join(text.lower().split()).removeprefix("ends ")
    ahead = towards == "future"
    try:
        found = _instant(words, now, ahead=ahead)
    except (ValueError, OverflowError, OSError):
        found = None
    if found is None:
        raise InvalidInput(field, text, INSTANTS if ahead else PAST_INSTANTS)
    return found


def _instant(words: str, now: float, *, ahead: bool) -> float | None:
    if words in ("now", "any moment now"):
        return now
    if re.fullmatch(_NUMBER, words) and (seconds := _span(words) or 0.0) >= EPOCH_LEAST:
        return seconds
    for prefix, suffix, sign in (("in ", "", 1), ("", " ago", -1), ("", "", 1 if ahead else -1)):
        if words.startswith(prefix) and words.endswith(suffix):
            length = _span(words[len(prefix) : len(words) - len(suffix)])
            if length is not None:
                return now + sign * length
    day, _, rest = words.partition(" ")
    if day in ("today", "tomorrow", "yesterday") and rest:
        offset = {"today": 0, "tomorrow": 1, "yesterday": -1}[day]
        return _at(datetime.fromtimestamp(now).date() + timedelta(offset), rest)
    if len(day) >= 3 and rest:
        for number, name in enumerate(_DAYS):
            if name.startswith(day):
                return _nearest(rest, now, ahead, number)
    if _CLOCK.fullmatch(words):
        return _nearest(words, now, ahead)
    if dated := _DATED.fullmatch(words):
        words = dated[1]
    return datetime.fromisoformat(words.upper()).timestamp() if "-" in words else None


def _nearest(clock: str, now: float, ahead: bool, weekday: int | None = None) -> float | None:
    """The next or the last time at which it is this time of day; on that day of the week, if one is named."""
    today = datetime.fromtimestamp(now).date()
    for days in range(9) if ahead else range(0, -9, -1):
        day = today + timedelta(days)
        if weekday in (None, day.weekday()):
            at = _at(day, clock)
            if at is None or (at > now if ahead else at <= now):
                return at
    return None


def _at(day: date, clock: str) -> float | None:
    """A time of day, which has minutes or `am` or `pm`."""
    match = _CLOCK.fullmatch(clock)
    if match is None or not (match[2] or match[4]):
        return None
    hour = int(match[1])
    if hour == 24 and not match[4] and not int(match[2]) and not float(match[3] or 0):
        return _at(day + timedelta(1), "0:00")
    if match[4]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (match[4] == "pm")
    seconds = float(match[3] or 0)
    begin = datetime(day.year, day.month, day.day, hour, int(match[2] or 0), int(seconds))
    return begin.timestamp() + seconds % 1


def when_of(given: When, field: str, now: float) -> float:
    """An instant, in seconds since the Unix epoch, as people give it.

    A number of a billion or more is taken as seconds since the Unix epoch, which is how reports have instants.

    Raises:
        InvalidInput: it is not valid.
    """
    if isinstance(given, str):
        return instant_of(given, field, now)
    try:
        if isinstance(given, datetime):
            return given.timestamp()
        if isinstance(given, bool):
            raise TypeError
        seconds = given.total_seconds() if isinstance(given, timedelta) else float(given + 0.0)
        if not -EPOCH_LEAST <= seconds < TIME_SECONDS_MAX:
            raise ValueError
    except (TypeError, ValueError, OverflowError, OSError) as error:
        allowed = f"seconds from now on, a timedelta, a datetime, or text: {INSTANTS}"
        raise InvalidInput(field, given, allowed) from error
    return seconds if seconds >= EPOCH_LEAST and not isinstance(given, timedelta) else now + seconds
