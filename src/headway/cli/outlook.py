"""Whether a job will be on time: what commands say that submit one, or change its terms."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from math import floor
from typing import Final, NamedTuple

import click

from headway.cli.live import at, bounds
from headway.cli.show import LIKELY, asked_for, at_least, counted, share, span, until
from headway.client.client import Client
from headway.client.job import Job
from headway.errors import HeadwayError
from headway.model.actions import JobStatus
from headway.model.forecast import SURE
from headway.wire import Advice, ChanceReport, Explanation

DUE_AUTO: Final = "auto"
"""As a due date: the earliest that will be kept."""

FORECAST_SECONDS: Final = 10.0
"""How long a command waits for the forecast of a job, as `live.forecasts.EXACT_PATIENCE`. Mostly it is there in a
tenth; where the machine is busy, two forecasts may have to be made, each after up to `foresight.pace.AWAITED_WAIT`."""

GLANCE_SECONDS: Final = 2.0
"""The same where nobody asked, because the job has no due date."""


class Wish(NamedTuple):
    """What is asked before a job is submitted.

    Attributes:
        sure: the probability with which the due date, still to be found, is to be kept; None: it is not to be found.
        only_if: the probability with which it must be kept for the job to be submitted; None: it is, whatever.
    """

    sure: float | None = None
    only_if: float | None = None


def grant(client: Client, job: Job, wish: Wish) -> float | None:
    """Find the due date of a job, and see whether it is to be submitted.

    Returns:
        The probability with which the date that was found is kept; None: none was to be found.

    Raises:
        HeadwayError: no date can be told, or its due date is not kept with the probability that is asked for.
    """
    sure = None
    if wish.sure is not None:
        job.due = None
        found = client.advise(job, sure=wish.sure)
        if found.due is None:
            raise HeadwayError(f"no due date can be told: {found.lack}", "Name one with --due.")
        job.due, sure = found.due, found.sure
        click.echo(f"Due {at(found.due)}: kept with {at_least(sure)}{_short_of(wish.sure, found)}.", err=True)
    if wish.only_if is None or (sure is not None and wish.only_if <= sure):
        return sure  # a date that was found is kept with that; to ask again would let it pass
    if job.due is None:
        raise HeadwayError("--only-if was given without a due date", "Add --due, or --due auto.")
    found = client.advise(job, sure=wish.only_if)
    known = None if found.chance is None else found.chance.on_time
    wanted = asked_for(wish.only_if)
    if known is None or known < wish.only_if:
        how = found.lack if known is None else f"it is kept with {share(known)}"
        ways = (offer(found) if (known or 0.0) < found.sure else "", _less(found, wish.only_if))
        raise HeadwayError(
            f"nothing was submitted, because its due date is not kept with {wanted}: {how}",
            " ".join(filter(None, ways)),
        )
    if less := _less(found, wish.only_if):
        raise HeadwayError(
            f"nothing was submitted, because it cannot be told whether its due date is kept with {wanted}", less
        )
    return sure


def _less(found: Advice, wanted: float) -> str:
    """What to ask for where the futures do not tell as much as is wanted, and what makes them tell more; else empty."""
    if found.sure >= wanted or found.chance is None:
        return ""
    from headway.foresight.futures import FUTURES  # takes long to load, and is rarely needed

    more = " With fewer open jobs there are more futures." if found.chance.futures < FUTURES else ""
    told = floor(100 * found.sure + 1e-9) / 100
    return f"{at_least(found.sure)} is {_most(found)}: --only-if {told:g} asks for that.{more}"


def _most(found: Advice) -> str:
    """That no more can be promised."""
    futures = "" if found.chance is None else f"{found.chance.futures} "
    return f"the most that {futures}futures tell"


def _short_of(wanted: float, found: Advice) -> str:
    """Why less is promised than was asked for; empty if it is not."""
    return f", {_most(found)} ({asked_for(wanted)} was asked for)" if found.sure < wanted else ""


def offer(found: Advice) -> str:
    """What would keep a due date with the probability that was asked for; empty if nothing is known."""
    ways = []
    if found.due is not None:
        ways.append(f"a due date {at(found.due)}")
    if found.slots is not None:
        ways.append(counted(found.slots, "more slot"))
    return f"With {at_least(found.sure)} it would be kept with {' or with '.join(ways)}." if ways else ""


def advice_lines(found: Advice, due: float | None, sure: float = SURE) -> Iterator[str]:
    """What is advised, in sentences.

    Args:
        due: the due date that was asked about; None: none was.
        sure: the probability that was asked for.
    """
    if found.chance is not None and found.chance.end is not None:
        without = " without a due date" if due is None else ""
        yield f"As run times have been, it ends{without} {bounds(found.chance.end)}."
    known = None if found.chance is None else found.chance.on_time
    if due is not None and known is not None:
        passed = due < time.time()
        yield f"The due date {at(due)}{', has passed' if passed else f' is kept with {share(known)}'}."
        if known < found.sure and offer(found):
            yield offer(found)
    elif found.due is not None:
        yield f"A due date {at(found.due)} is kept with {at_least(found.sure)}."
    if found.sure < sure:
        yield f"{at_least(found.sure)} is {_most(found)}; {asked_for(sure)} was asked for."
    if found.due is None:
        yield f"No due date can be told: {found.lack}."


def counter_offer(client: Client, job: Explanation) -> Iterator[str]:
    """What would keep the due date of an open job that is likely to miss it."""
    known = None if job.chance is None else job.chance.on_time
    if known is not None and known < SURE:
        with contextlib.suppress(HeadwayError):  # the job is submitted, whatever would help
            if said := offer(client.advise(job.job, sure=SURE)):
                yield said


def outlook_of(client: Client, job: int, wait: float = FORECAST_SECONDS) -> Explanation | None:
    """The outlook of a job with new terms; None if it has ended, or if the server does not answer.

    Args:
        wait: seconds, for how long its forecast is waited for.
    """
    with contextlib.suppress(HeadwayError):  # what was asked for is done, whatever the outlook
        found = client.explain(job, wait=wait)
        return None if found.status.is_final else found
    return None


def by_run_times(chance: ChanceReport | None) -> list[str]:
    """Between which instants a job starts, if it has not, and ends, as run times have been."""
    if chance is None:
        return []
    known = (("starts", chance.start), ("ends", chance.end))
    return [f"{does} {bounds(found)}" for does, found in known if found is not None]


def foreseen(job: Explanation) -> str:
    """When a job starts and ends, in a sentence, or why that is not known; empty if `promise` says all."""
    if told := by_run_times(job.chance):
        return f"As run times have been, it {'; it '.join(told)}."
    instants = (
        ("start", None if job.status is JobStatus.RUNNING or job.start_assumes else job.expected_start),
        ("end", None if job.assumes else job.expected_end),
    )
    if job.due is not None:
        return ""
    times = [f"to {what} {until(instant)}" for what, instant in instants if instant is not None]
    known = [f"It is expected {' and '.join(times)}."] if times else []
    if instants[-1][1] is None:
        known.append(f"When it ends is not known: {_why_unknown(job)}.")
    return " ".join(known)


def promise(job: Explanation) -> str:
    """Whether a job will be on time, as far as that is known, and how sure that is."""
    known = None if job.chance is None else job.chance.on_time
    if known is not None and job.assumes:
        return f"Job {job.job} will be on time with {share(known)}, as long as its like have run."
    if known is None:
        return _promise(job)
    said = _by_estimates(job) if (known >= LIKELY) == (job.outlook == "late") else _promise(job)
    return f"{said} As run times have been, it is on time with {share(known)}."


def _by_estimates(job: Explanation) -> str:
    """The same where earlier run times tell otherwise."""
    if job.expected_end is None:
        return _promise(job)
    when = f"about {span(job.late or 0)} after" if job.outlook == "late" else "before"
    return f"By estimates, job {job.job} ends {until(job.expected_end)}, {when} its due date."


def _promise(job: Explanation) -> str:
    if job.expected_end is None or job.assumes:
        if job.outlook == "late":
            return f"Job {job.job} will be late, by more than {span(job.late or 0)}."
        return f"Whether job {job.job} will be on time is not known: {_why_unknown(job)}."
    end = f"Job {job.job} is expected to end {until(job.expected_end)}"
    if job.outlook == "late":
        return f"{end}, about {span(job.late or 0)} after its due date: it will be late."
    return f"{end}, {'only just ' if job.outlook == 'at risk' else ''}before its due date."


def _why_unknown(job: Explanation) -> str:
    """Why it is not known when a job ends."""
    if not job.assumes:
        return job.lack or (
            job.text if job.reason == "NEVER_FITS" else "no known event will give it the slots it needs"
        )
    others = [other for other in job.assumes if other != job.job]
    named = ", ".join(map(str, others))
    before = f"job {named}, which comes before it" if len(others) == 1 else f"jobs {named}, which come before it"
    lacks = ["its tasks"] * (job.job in job.assumes or not others) + [before] * bool(others)
    return (
        f"there is no estimate for {' or for '.join(lacks)}. "
        "`headway submit --estimate SPAN` gives one: the expected run time of a task"
    )
