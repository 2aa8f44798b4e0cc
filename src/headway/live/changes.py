"""Which new terms a job may get."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headway import wire
from headway.errors import InvalidInput
from headway.live.driver import Driver
from headway.model.instant import NEVER, to_seconds
from headway.model.job import JobSpec, Service, flaw

OF_SERVICES: Final = ("threshold", "fraction", "least")
"""The terms that only services have, of those that can be changed."""


def _flaw_of_least(driver: Driver, service: JobSpec) -> str | None:
    """Why so many instances as a service is to have can never run."""
    return driver.core.flaw_of_bound(service) or driver.core.flaw_of_fit(service)


def check_change(driver: Driver, spec: JobSpec, change: wire.JobChange) -> None:
    """Check new terms of a job.

    Args:
        spec: its terms as they are.

    Raises:
        InvalidInput: there is none, it has no such term, or the value is not allowed.
    """
    terms = change.terms()
    if not terms:
        raise InvalidInput("change", "empty", "a new term at least, or without_due")
    for name in OF_SERVICES:
        if name in terms and not isinstance(spec, Service):
            raise InvalidInput(name, getattr(change, name), f"none: job {spec.id} is no service")
    if terms.get("due") == NEVER:
        terms["due"] = None
    new = replace(spec, **terms)
    wrong = flaw(new) or (_flaw_of_least(driver, new) if "least" in terms else None)
    if wrong is not None:
        raise InvalidInput.saying(wrong)
    if "threshold" in terms and isinstance(new, Service) and spec.id in driver.open:
        limits = driver.services.work_of(spec.id).limits
        wire.settings_of(to_seconds(new.threshold), to_seconds(new.window), limits)
