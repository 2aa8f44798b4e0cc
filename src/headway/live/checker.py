"""The status checker (Lin14 3.5.1): it looks at nodes, slots and jobs at regular intervals.

Each period every collector is called in a thread of its own. Its measurements go to the driver, so that policies see
them, and with the statuses of slots and the run times of jobs to the tables of `live.store.checks`. A collector that
raises or gives no answer in time becomes an `Incident`, once for each cause, and is called again at growing intervals.

It may be stopped and started at any time: its measurements stay in the tables, and jobs do not depend on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import Final

from headway.collectors.base import Collector, Node, usable
from headway.core.nodes import slot_statuses
from headway.errors import InvalidInput, in_short
from headway.live.clock import Clock
from headway.live.driver import Driver
from headway.live.store import checks
from headway.live.store.checks import ROWS_MAX, STATUSES_KEPT, MetricRow, StatusRow
from headway.live.store.journal import NotNow
from headway.model.instant import SECOND, Duration, Instant, from_seconds, to_seconds
from headway.model.job import JobId

log = logging.getLogger(__name__)

PERIOD: Final[Duration] = 5 * SECOND
"""The default period."""

PERIOD_RANGE: Final = (0.1, 86_400.0)
"""The range of a period, in seconds."""

COLLECTOR_LIMIT: Final[Duration] = 10 * SECOND
"""How long a collector may take."""

GATHER: Final[Duration] = SECOND // 20
"""Measurements within this time are written together."""

COLLECTOR_PAUSE_MAX: Final[Duration] = 300 * SECOND
"""A collector that fails is called again after two periods, four, eight, at most this."""

CAUSE_REMEMBERED: Final[Duration] = 3600 * SECOND
"""A cause that has not occurred for this long is reported again."""

NO_THREAD: Final = "no thread"
"""The cause if a collector could not be called because the system gives no more threads."""

GONE: Final = "gone"
"""The status of a slot that no longer exists: its node has left, or has fewer slots."""

STATUSES_AGAIN: Final[Duration] = 3600 * SECOND
"""How often the statuses of all slots are written, including unchanged ones."""


@dataclass(slots=True, eq=False)
class WatchedCollector:
    """A collector and its state.

    Attributes:
        name: of the collector.
        make: makes it; called in its thread too, because it may also fail.
        asked: when it was called, if it has not answered yet; None: it is not being called.
        late: whether that took too long.
        answered: when it last answered; None: never.
        failures: in a row.
        again: it is not called before this.
        detail: how it failed last; empty while it works.
        causes: when each cause of a failure was last seen.
    """

    name: str
    make: Callable[[], Collector]
    collector: Collector | None = None
    asked: Instant | None = None
    late: bool = False
    answered: Instant | None = None
    failures: int = 0
    again: Instant = 0
    detail: str = ""
    causes: dict[str, Instant] = field(default_factory=dict)

    @property
    def alarm(self) -> str:
        """What its time limit is called, and its thread."""
        return f"collector {self.name}"

    def ask(self, nodes: Sequence[Node]) -> tuple[dict[str, dict[str, float]], str, str]:
        """Let it measure, in a thread of its own. Returns what is usable, and cause and detail of what is not."""
        try:
            if self.collector is None:
                self.collector = self.make()
            measures, wrong = usable(self.collector(nodes), nodes)
        except BaseException as error:  # noqa: BLE001  # whatever it raises, SystemExit too, is only its own failure
            where = traceback.extract_tb(error.__traceback__)[-1]
            cause = f"{type(error).__name__} at {where.filename}:{where.lineno}"
            said = f"it raised {type(error).__name__}: {in_short(_said(error))} ({where.filename}, line {where.lineno})"
            return {}, cause, said
        return measures, wrong.partition(" is ")[0], in_short(wrong)  # a wrong value is the same cause each time


class Checker:
    """Calls collectors, and keeps what they and the core report.

    Args:
        driver: gets the measurements, and reports of failures.
        clock: the source of time.
        collectors: what makes each, by name.
        pids: the process of each node that is on this machine.
        limit: how long a collector may take.

    Attributes:
        every, on: the period, and whether it runs: the last choice in this journal, at first `PERIOD` and yes.
        watches: the collectors, by name.
        latest: the latest value of each metric, by node and metric.
        tables: earlier measurements.
    """

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        collectors: Mapping[str, Callable[[], Collector]],
        pids: Callable[[], Mapping[str, int]],
        *,
        limit: Duration = COLLECTOR_LIMIT,
    ) -> None:
        kept = driver.journal.noted
        self.every: Duration = kept("check_every") or PERIOD
        self.on = kept("checking") != 0
        self.watches = {name: WatchedCollector(name, make) for name, make in sorted(collectors.items())}
        self.latest: dict[tuple[str, str], MetricRow] = {}
        self.tables = driver.journal.checks
        self._driver = driver
        self._clock = clock
        self._pids = pids
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._running = False
        self._fresh: list[MetricRow] = []
        self._told: dict[JobId, tuple[int, Duration, int]] = {}
        self._statuses: dict[tuple[str, int], str] = {}
        self._statuses_due: Instant = 0
        self._call_off: dict[str, Callable[[], None]] = {}
        self._is_full = False

    def start(self) -> None:
        """Start, if it is on."""
        self._running = self.on
        if self._running:
            self._check()

    def stop(self) -> None:
        """Stop; measurements are written, answers still missing are not waited for."""
        self._running = False
        for call_off in self._call_off.values():
            call_off()
        self._call_off.clear()
        if self._fresh:
            self._write()

    def choose(self, *, on: bool | None = None, every: Duration | None = None) -> None:
        """Switch it on or off, or change its period; also in force after the next start.

        Raises:
            InvalidInput: the period is out of range.
            NotNow: not now; nothing is changed.
        """
        if every is not None:
            every = period(to_seconds(every))
            self._driver.journal.note("check_every", every)
            self.every = every
        if on is not None:
            self._driver.journal.note("checking", int(on))
            self.on = on
        self.stop()
        self.start()

    # A period

    def _check(self) -> None:
        now = self._clock.now()
        self._alarm("check", now + self.every, self._check)
        up = [name for name, view in self._driver.core.state.nodes.items() if view.up]
        pids = self._pids()
        nodes = tuple(
            Node(name, pids.get(name, 0)) for name in up
        )  # so that no collector can change it for the next one
        for watch in self.watches.values():
            is_new = watch.asked is None and watch.again <= now
            if is_new:
                watch.asked, watch.late = now, False
            if watch.asked is not None and not watch.late and watch.alarm not in self._call_off:
                self._alarm(watch.alarm, watch.asked + self._limit, partial(self._miss, watch))
            if is_new:
                self._begin(watch, nodes)
        self._write_soon()

    def _begin(self, watch: WatchedCollector, nodes: Sequence[Node]) -> None:
        """Call it in a thread of its own, if the system gives one."""
        try:
            Thread(target=self._ask, args=(watch, nodes), name=watch.alarm, daemon=True).start()
        except RuntimeError as error:
            self._call_off.pop(watch.alarm)()
            watch.asked = None
            self._fail(watch, NO_THREAD, f"it was not asked: {error}; see the limits of processes (ulimit -u, cgroups)")

    def _ask(self, watch: WatchedCollector, nodes: Sequence[Node]) -> None:
        """In the collector's thread."""
        answer = watch.ask(nodes)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the answer is no longer needed
            self._loop.call_soon_threadsafe(self._take, watch, *answer)

    def _take(
        self, watch: WatchedCollector, measures: Mapping[str, Mapping[str, float]], cause: str, detail: str
    ) -> None:
        """A collector has answered. A late answer is old, and an answer after the stop is ignored."""
        now = self._clock.now()
        was_late, watch.asked, watch.late = watch.late, None, False
        if call_off := self._call_off.pop(watch.alarm, None):
            call_off()
        if was_late or not self._running:
            return
        if cause and not measures:
            self._fail(watch, cause, detail)
            return
        watch.answered, watch.failures, watch.detail = now, 0, detail
        if cause:
            self._tell(watch, cause)
        for node, values in measures.items():
            named = {f"{watch.name}.{metric}": value for metric, value in values.items()}
            self._driver.measure(node, named)
            rows = [MetricRow(now, node, metric, value) for metric, value in named.items()]
            self.latest.update(((row.node, row.metric), row) for row in rows)
            self._fresh += rows
        self._write_soon()

    def _miss(self, watch: WatchedCollector) -> None:
        """A collector has taken too long. It is called again when its thread has come back."""
        del self._call_off[watch.alarm]
        watch.late = True
        self._fail(watch, "no answer", f"it gave no answer within {to_seconds(self._limit):g} s")

    def _fail(self, watch: WatchedCollector, cause: str, detail: str) -> None:
        """Call it again after a growing pause."""
        watch.failures += 1
        watch.detail = detail
        watch.again = self._clock.now() + min(self.every << min(watch.failures, 30), COLLECTOR_PAUSE_MAX)
        self._tell(watch, cause)

    def _tell(self, watch: WatchedCollector, cause: str) -> None:
        """Make an incident of its failure, unless this cause was reported already."""
        now = self._clock.now()
        watch.causes = {other: seen for other, seen in watch.causes.items() if now - seen < CAUSE_REMEMBERED}
        if cause not in watch.causes:
            self._driver.incident("collector_failed", watch.name, watch.detail)
        watch.causes[cause] = now

    # The tables

    def _write_soon(self) -> None:
        if "write" not in self._call_off:
            self._alarm("write", self._clock.now() + GATHER, self._write)

    def _write(self) -> None:
        """Write what is new. On a full disk it is dropped, because jobs do not depend on it."""
        self._call_off.pop("write", None)
        now, state = self._clock.now(), self._driver.core.state
        if now >= self._statuses_due:
            self._statuses.clear()
            self._statuses_due = now + STATUSES_AGAIN
        found = self._slots()
        gone = [StatusRow(now, *place, GONE) for place in self._statuses.keys() - found.keys()]
        changed = [StatusRow(now, *place, word) for place, word in found.items() if self._statuses.get(place) != word]
        running = {attempt.job.id: attempt.job for attempt in state.runs()}
        told = {number: (job.ended, job.lost, job.kills) for number, job in running.items()}
        jobs = [running[number] for number in told if told[number] != self._told.get(number)]
        self.latest = {key: row for key, row in self.latest.items() if row.node in state.nodes}
        try:
            self.tables.write(
                self._fresh,
                gone + changed,
                [row for job in jobs for row in checks.run_times(job, now)],
                [row for job in jobs for row in checks.losses(job, now)],
                metrics_since=now - self._kept(len(self.latest)),
                statuses_since=now - self._kept(len(found)),
            )
        except NotNow as full:
            if not self._is_full:
                log.warning("what the status checker found was not written: %s", full)
            self._is_full, self._statuses_due = True, now
        else:
            self._is_full, self._statuses, self._told = False, found, told
        self._fresh.clear()

    def _slots(self) -> dict[tuple[str, int], str]:
        """The status of each slot by its node and its place there."""
        state = self._driver.core.state
        words = [status.value for status in slot_statuses(state)]
        return {
            (name, index): words[slot]
            for name, node in state.nodes.items()
            for index, slot in enumerate(node.places[: node.spec.slots])
        }

    def _kept(self, rows: int) -> Duration:
        """How long to keep rows, if there are this many per period."""
        return min(STATUSES_KEPT, self.every * ROWS_MAX // max(1, rows))

    def _alarm(self, name: str, at: Instant, callback: Callable[[], None]) -> None:
        part, then = f"the status checker ({name})", "it goes on with the next look"
        self._call_off[name] = self._clock.call_at(at, partial(self._driver.troubles.contain, part, callback, then))


def _said(error: BaseException) -> str:
    """The text of an error, whose class may come from another package."""
    try:
        return str(error)
    except BaseException as worse:  # noqa: BLE001  # whatever it raises
        return f"it cannot be said, {type(worse).__name__}"


def period(seconds: float) -> Duration:
    """A period of this many seconds.

    Raises:
        InvalidInput: it is out of range.
    """
    least, most = PERIOD_RANGE
    if not least <= seconds <= most:
        raise InvalidInput("period of the status checker", seconds, f"{least:g} to {most:g} seconds")
    return from_seconds(seconds)
