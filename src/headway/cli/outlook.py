"""Whether a job will be on time: what commands say that submit one, or change its terms."""

from __future__ import annotations

import contextlib
from typing import Final

from headway.cli.show import share, span, until
from headway.client.client import Client
from headway.errors import HeadwayError
from headway.wire import Explanation

FORECAST_SECONDS: Final = 2.0
"""How long a command waits for the forecast of a job."""


def outlook_of(client: Client, job: int) -> Explanation | None:
    """The outlook of a job with new terms; None if it has ended, or if the server does not answer."""
    with contextlib.suppress(HeadwayError):  # what was asked for is done, whatever the outlook
        found = client.explain(job, wait=FORECAST_SECONDS)
        return None if found.status.is_final else found
    return None


def promise(job: Explanation) -> str:
    """Whether a job will be on time, as far as that is known, and how sure that is."""
    known = None if job.chance is None else job.chance.on_time
    if known is not None and job.assumes:
        return f"Job {job.job} will be on time with {share(known)}, as long as its like have run."
    return _promise(job) + ("" if known is None else f" As run times have been, it is on time with {share(known)}.")


def _promise(job: Explanation) -> str:
    if job.expected_end is None or job.assumes:
        if job.outlook == "late":
            return f"Job {job.job} will be late, by more than {span(job.late or 0)}."
        if job.assumes:
            others = [other for other in job.assumes if other != job.job]
            named = ", ".join(map(str, others))
            before = (
                f"job {named}, which comes before it" if len(others) == 1 else f"jobs {named}, which come before it"
            )
            lacks = ["its tasks"] * (job.job in job.assumes or not others) + [before] * bool(others)
            return (
                f"Whether job {job.job} will be on time is not known: "
                f"there is no estimate for {' or for '.join(lacks)}. "
                "`headway submit --estimate SPAN` gives one: the expected run time of a task."
            )
        why = job.lack or "no known event will give it the slots it needs"
        return f"Whether job {job.job} will be on time is not known: {why}."
    end = f"Job {job.job} is expected to end {until(job.expected_end)}"
    if job.outlook == "late":
        return f"{end}, about {span(job.late or 0)} after its due date: it will be late."
    return f"{end}, {'only just ' if job.outlook == 'at risk' else ''}before its due date."
