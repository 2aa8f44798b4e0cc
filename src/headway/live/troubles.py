"""Errors in a part of the server that end nothing: each is logged, and reported to operators once in a while."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Final

from headway.errors import in_short
from headway.live.clock import Clock
from headway.model.instant import SECOND, Duration, Instant

log = logging.getLogger(__name__)

TOLD_AGAIN: Final[Duration] = 600 * SECOND
"""The same trouble of the same part becomes an incident again after this time."""

_KEPT: Final = 1000


class Troubles:
    """Reports exceptions that end nothing.

    Args:
        incident: records something that an operator should know, see `Driver.incident`.
        clock: the source of time.
    """

    def __init__(self, incident: Callable[[str, str, str], None], clock: Clock) -> None:
        self._incident = incident
        self._clock = clock
        self._told: dict[tuple[str, str], Instant] = {}

    def incident(self, kind: str, subject: str, error: BaseException, then: str) -> None:
        """Log an exception; with its traceback and an incident, unless the same was reported shortly before.

        Args:
            kind: of the incident.
            subject: what it happened to.
            then: what is done about it.
        """
        cause = (kind, _place(error))
        now = self._clock.now()
        if now - self._told.get(cause, -TOLD_AGAIN) < TOLD_AGAIN:
            log.warning("%s: %s: %s; %s", kind, subject, said(error), then)
            return
        log.error("%s: %s: %s", kind, subject, then, exc_info=error)
        if len(self._told) >= _KEPT:
            self._told.clear()
        self._told[cause] = now
        self._incident(kind, subject, f"{said(error)}; {then}")

    def contain(self, subject: str, step: Callable[[], object], then: str) -> Exception | None:
        """Run a step of a part that others do not depend on; returns what it raised, None if nothing."""
        error = raised_by(step)
        if error is not None:
            self.incident("step_failed", subject, error, then)
        return error


def raised_by(step: Callable[[], object]) -> Exception | None:
    """The unexpected exception that a step raised; None if it raised nothing."""
    try:
        step()
    except Exception as error:  # noqa: BLE001  # whatever it is, the caller handles it
        return error
    return None


def said(error: BaseException) -> str:
    """An exception in one line."""
    return in_short(f"{type(error).__name__}: {error}")


def _place(error: BaseException) -> str:
    """Where it was raised, and its type."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__} {where}"
