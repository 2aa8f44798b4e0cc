"""Tells before a job is late, once a job: what would help, to a webhook, to a command, and as an incident.

Every `LOOK_AT_JOBS_SECONDS` seconds, if jobs with due dates are open, forecasts say with which probability each is on
time. Of one for which that falls below a bound, the operator is told, and whoever holds the webhook. One that does not
answer delays nobody else: each alert is sent by itself.

It is told once, so it must be right. As long as it is not known yet how sure a forecast is, that is waited for. What
the estimates say counts for jobs of which nothing else will ever be known, or after `UNSURE_FOR`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec

from headway.advice.posting import Endpoint, NoReply, place_in, post
from headway.errors import HeadwayError, InvalidInput
from headway.live.commands import CommandFailed, run_command
from headway.live.driver import Driver
from headway.live.forecasts import FORECAST_SECONDS_MAX, Outlook
from headway.live.prospects import of_open, seconds
from headway.live.troubles import said
from headway.model.forecast import SURE, Advice
from headway.model.instant import NEVER, SECOND, Duration, Instant, to_seconds
from headway.model.job import JobId
from headway.model.seen import JobView
from headway.times import clock_text, span_text

log = logging.getLogger(__name__)

LOOK_AT_JOBS_SECONDS: Final = 30.0
"""Seconds between two looks at the open jobs."""

BELOW: Final = 0.5
"""It is told of a job that is on time with less than this probability, unless another is named."""

LIKELY_LATE: Final = "likely_late"
"""The kind of the incident."""

SIGNATURE: Final = "X-Headway-Signature"
"""The header with the HMAC-SHA256 of the body under the secret, as `sha256=HEX`."""

ALERT_LIMIT: Final[Duration] = 10 * SECOND
"""A webhook, or a command, has failed after so long."""

WEBHOOK_PAUSES: Final = (2.0, 10.0)
"""Seconds after which a webhook that failed is tried again."""

REMEMBERED_INCIDENTS: Final = 10_000
"""So many of the last incidents say at a start of which jobs it was told."""

UNSURE_FOR: Final[Duration] = round(2 * FORECAST_SECONDS_MAX * SECOND)
"""Of a job that is late by its estimates it is told if it has not been known for so long how sure that is. In this time
a forecast that hangs is given up, and the next one, too."""

TOLD_AT_ONCE: Final = 20
"""Of so many jobs it is told in one look; of the others in later ones."""


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Whom to tell, and when.

    Attributes:
        url: where alerts are posted; empty: nowhere.
        command: gets each as JSON on its input; empty: there is none.
        below: it is told of a job that is on time with less than this probability, above 0 and at most 1.

    Raises:
        InvalidInput: one of them is not allowed.
    """

    url: str = ""
    command: tuple[str, ...] = ()
    below: float = BELOW

    def __post_init__(self) -> None:
        if not 0 < self.below <= 1:
            raise InvalidInput("alert_below", self.below, "a probability above 0 and at most 1")
        if self.url:
            self.place()

    def place(self) -> Endpoint:
        """Where alerts are posted.

        Raises:
            InvalidInput: the URL is none.
        """
        return place_in(self.url, "alert_url", "http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH]")


class Finding(NamedTuple):
    """Why a job is likely to be late.

    Attributes:
        on_time: with which probability it is on time, 0 to 1; None: only its estimates are known.
        has_passed: its due date has passed.
        unsure: for so long it has not been known how sure its estimates are; 0: nothing else will ever be known.
    """

    on_time: float | None
    has_passed: bool = False
    unsure: Duration = 0


class Alerts:
    """Looks at the open jobs from time to time.

    Args:
        secret: with which what is posted is signed.
        pauses: as `WEBHOOK_PAUSES`.
    """

    def __init__(
        self, driver: Driver, settings: AlertSettings, secret: str, pauses: Sequence[float] = WEBHOOK_PAUSES
    ) -> None:
        self._driver = driver
        self._settings = settings
        self._secret = secret
        self._pauses = pauses
        self._told: set[JobId] = set()
        self._unsure: dict[JobId, Instant] = {}  # late by their estimates, and since when nothing more is known
        self._task: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Look from now on, in the running event loop."""
        for _, incident in self._driver.journal.incidents(REMEMBERED_INCIDENTS):
            word, _, number = incident.subject.partition(" ")
            if incident.kind == LIKELY_LATE and word == "job" and number.isdecimal():
                self._told.add(int(number))
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Look no more."""
        for task in (self._task, *self._telling):
            if task is not None:
                task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AT_JOBS_SECONDS)
            try:
                await self.look()
            except Exception as error:  # whatever it is, jobs and later looks do not depend on it
                known = isinstance(error, HeadwayError)
                log.warning("no look for late jobs: %s", said(error), exc_info=None if known else error)

    async def look(self) -> None:
        """Look once, and tell of what is likely to be late."""
        driver = self._driver
        self._told &= driver.open.keys()
        if not any(job.due < NEVER and job.id not in self._told for job in driver.core.state.jobs.values()):
            return
        outlook = await driver.forecasts.outlook(exact=True)
        if outlook.forecast is None or not outlook.forecast.is_sure:
            outlook = await driver.forecasts.sure()
        now, late, unsure = driver.now(), [], self._unsure
        self._unsure = {}
        for view in list(driver.core.state.jobs.values()):
            if view.id in self._told or view.endless or view.cancelled or view.due >= NEVER:
                continue
            found = self._found(view, outlook, now, unsure.get(view.id, now))
            if found is not None:
                late.append((view.id, found))
        for job, found in late[:TOLD_AT_ONCE]:
            await self._alert(job, found, outlook)

    def _found(self, view: JobView, outlook: Outlook, now: Instant, since: Instant) -> Finding | None:
        """Why a job is likely to be late; None: it is not, or that is not known yet.

        Args:
            since: when it began to be unknown how sure its estimates are.
        """
        if view.due < now:
            return Finding(0.0, has_passed=True)
        found = of_open(view, outlook, now)
        on_time = None if found.chance is None else found.chance.on_time
        if on_time is not None:
            return Finding(on_time) if on_time < self._settings.below else None
        if found.outlook != "late":
            return None
        if outlook.forecast is not None and outlook.forecast.is_sure:
            return Finding(None)
        self._unsure[view.id] = since
        return Finding(None, unsure=now - since) if now - since >= UNSURE_FOR else None

    async def _alert(self, job: JobId, found: Finding, outlook: Outlook) -> None:
        driver = self._driver
        advice = await driver.forecasts.advice(SURE, job)
        view = driver.core.state.jobs.get(job)
        if view is None:
            return  # it has ended meanwhile
        if advice.due is not None and advice.due <= view.due:
            advice = replace(advice, due=None)  # an earlier date helps nobody
        self._told.add(job)
        now = driver.now()
        told = {
            "alert": LIKELY_LATE,
            "job": job,
            "name": view.spec.name,
            "user": view.spec.user,
            "at": to_seconds(now),
            "due": to_seconds(view.due),
            "on_time": found.on_time,
            "expected_end": seconds(of_open(view, outlook, now).expected_end),
            "helps": {"sure": SURE, "due": seconds(advice.due), "slots": advice.slots},
        }
        driver.incident("likely_late", f"job {job}", in_words(found, view.due, advice))
        telling = asyncio.create_task(self._tell(told))
        self._telling.add(telling)
        telling.add_done_callback(self._has_told)

    async def settle(self) -> None:
        """Wait until everything that is being told is told, or has failed."""
        if self._telling:
            await asyncio.wait(self._telling)

    def _has_told(self, telling: asyncio.Task[None]) -> None:
        self._telling.discard(telling)
        if not telling.cancelled() and (error := telling.exception()) is not None:
            log.error("an alert was not told", exc_info=error)

    async def _tell(self, told: dict[str, Any]) -> None:
        """Post an alert and give it to the command, both at once; if that is cancelled, it ends when both have."""
        body = msgspec.json.encode(told)
        async with asyncio.TaskGroup() as group:
            ways = [group.create_task(way) for way in (self._posted(body), self._commanded(told["job"], body))]
        failed = [text for text in (way.result() for way in ways) if text]
        if failed:
            self._driver.incident("alert_not_told", f"job {told['job']}", "; ".join(failed))

    async def _posted(self, body: bytes) -> str:
        """Post an alert; why that failed, empty: it did not."""
        if self._settings.url:
            try:
                await self._post(body)
            except NoReply as error:
                return f"{self._settings.url}: {error.args[0]}"
        return ""

    async def _commanded(self, job: JobId, body: bytes) -> str:
        """Give an alert to the command; why that failed, empty: it did not."""
        if self._settings.command:
            try:
                await run_command(self._settings.command, f"job {job}", ALERT_LIMIT, body)
            except CommandFailed as error:
                return str(error.args[0])
        return ""

    async def _post(self, body: bytes) -> None:
        """Post an alert, and try that again.

        Raises:
            NoReply: the webhook has not answered with a status below 300.
        """
        place = self._settings.place()
        signature = hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
        for pause in (*self._pauses, None):
            try:
                async with asyncio.timeout(to_seconds(ALERT_LIMIT)):
                    answer = await post(place, body, {SIGNATURE: f"sha256={signature}"})
                if answer.status < 300:
                    return
                error = NoReply(f"it answers with status {answer.status}")
            except NoReply as none:
                error = none
            except TimeoutError:
                error = NoReply(f"it has not answered within {to_seconds(ALERT_LIMIT):g} s")
            if pause is None:
                raise error
            await asyncio.sleep(pause)


def in_words(found: Finding, due: Instant, advice: Advice) -> str:
    """What an incident says of a job that is likely to be late."""
    if found.has_passed:
        known = f"which has passed{f'; {advice.lack}' if advice.lack else ''}"
    elif found.on_time is None:
        known = "by its estimates it is late"
        if found.unsure:
            known += f" (no forecast has told for {span_text(to_seconds(found.unsure))} how sure that is)"
    else:
        known = f"it is on time with {100 * found.on_time:.0f} %"
    ways = []
    if advice.due is not None:
        ways.append(f"a due date at {clock_text(to_seconds(advice.due))}")
    if advice.slots is not None:
        ways.append(f"{advice.slots} more slots" if advice.slots > 1 else "one more slot")
    be = "be on time" if found.on_time is None or found.has_passed else "be"
    helps = f"; it would {be} with {100 * advice.sure:.0f} %, with {' or '.join(ways)}" if ways else ""
    return f"due at {clock_text(to_seconds(due))}, {known}{helps}"
