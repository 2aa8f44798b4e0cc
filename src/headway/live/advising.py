"""Advice to callers: which due date a job keeps, if it is submitted now, or as it is."""

from __future__ import annotations

from headway import wire
from headway.errors import InvalidInput
from headway.live import intake, reports
from headway.live.driver import Driver
from headway.live.prospects import chance_report, seconds
from headway.model.forecast import Advice
from headway.model.job import JobId


def check_sure(field: str, sure: float) -> None:
    """Check a probability.

    Raises:
        InvalidInput: it is none that can be kept.
    """
    if not 0 < sure < 1:
        raise InvalidInput(field, sure, "a probability above 0 and below 1")


async def on_new(driver: Driver, wanted: wire.AdviceWanted, user: str) -> wire.Advice:
    """What is advised for a job that could be submitted now.

    Args:
        user: whose it would be, unless it says that itself.

    Raises:
        InvalidInput: the job could not be accepted, or is a service, which has no end.
        NoSuchJob: it comes after a job that is not known.
    """
    check_sure("sure", wanted.sure)
    spec = intake.spec_of(wanted.job, driver.last_job + 1, "job", driver.now(), user)
    if spec.endless:
        raise InvalidInput("job.kind", "service", "bag, rigid or workflow: a service has no end")
    intake.check_after(spec, "job", driver.end_of)
    wrong = driver.core.flaw_of(spec)
    if wrong is not None:
        raise InvalidInput.saying(f"job.{wrong}")
    spec = await intake.with_pauses(intake.with_uploads(spec, wanted.job, driver.journal))
    return _told(await driver.forecasts.advice(wanted.sure, spec))


async def on_open(driver: Driver, job: JobId, sure: float) -> wire.Advice:
    """What is advised for a job as it is.

    Raises:
        NoSuchJob: no job with this id was accepted.
        InvalidInput: it is a service.
    """
    check_sure("sure", sure)
    row = reports.row(driver, job)
    if row.spec.endless:
        raise InvalidInput("job", job, "a bag, a rigid job or a workflow: a service has no end")
    if job not in driver.open:
        return wire.Advice(sure, lack=f"job {job} has ended")
    return _told(await driver.forecasts.advice(sure, job))


def _told(advice: Advice) -> wire.Advice:
    chance = chance_report(advice.chance)
    return wire.Advice(advice.sure, seconds(advice.due), chance, advice.slots, advice.lack)
