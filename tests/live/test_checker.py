"""The status checker with a clock set by hand, a fake engine and collectors that raise, hang and answer nonsense."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from threading import Event as Signal
from typing import Any

import pytest

from headway.collectors.base import Node
from headway.errors import InvalidInput
from headway.live import checker, reports
from headway.live.checker import (
    CAUSE_REMEMBERED,
    COLLECTOR_LIMIT,
    COLLECTOR_PAUSE_MAX,
    GATHER,
    PERIOD,
    STATUSES_AGAIN,
    Checker,
)
from headway.live.driver import Driver
from headway.live.ledger import Ledger
from headway.live.settings import DriverSettings
from headway.live.store import checks
from headway.live.store.journal import Journal
from headway.model.events import NodeMeasured, Outcome
from headway.model.instant import SECOND, to_seconds
from headway.model.seen import JobView, RunTimes
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, job, new_job, node, submission

from ..waiting import becomes

TWO = (node("a"), node("b"))


class Steady:
    """Measures what the test sets."""

    def __init__(self, value: Any = 1.0) -> None:
        self.value = value
        self.asked: list[Sequence[Node]] = []

    def __call__(self, nodes: Sequence[Node]) -> dict[str, dict[str, Any]]:
        self.asked.append(nodes)
        return {node.name: {"level": self.value} for node in nodes}


class Raises(Steady):
    """Raises what the test sets, in one of two places."""

    failure: BaseException | None = OSError("the disk is gone")

    def __call__(self, nodes: Sequence[Node]) -> dict[str, dict[str, Any]]:
        if self.failure is not None:
            self.asked.append(nodes)
            raise self.failure
        return super().__call__(nodes)


class Hangs(Steady):
    """Answers when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = Signal()

    def __call__(self, nodes: Sequence[Node]) -> dict[str, dict[str, Any]]:
        answer = super().__call__(nodes)
        assert self.go_on.wait(60)
        return answer


class Rig:
    """A checker of a running driver."""

    def __init__(self, journal: Journal, engine: FakeEngine, clock: ManualClock, **collectors: Any) -> None:
        self.journal, self.engine, self.clock = journal, engine, clock
        self.driver = Driver(journal, engine, clock, find, DriverSettings(policy="fcfs"))
        self.collectors = collectors
        makers = {name: (lambda made=made: made) for name, made in collectors.items()}
        self.checker = Checker(self.driver, clock, makers, lambda: {"a": 17})

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for the pending work of threads and of the loop."""
        await becomes(condition)

    async def settle(self) -> None:
        """Wait until every collector that does not hang has answered, and the driver has the answers."""
        await self.until(lambda: all(watch.asked is None or self.hangs(watch.name) for watch in self.watches))
        for _ in range(4):
            await asyncio.sleep(0)

    async def advance(self, duration: int) -> None:
        """Move the clock on from one alarm to the next, as slowly as threads need it."""
        await self.settle()
        goal = to_seconds(self.clock.now() + duration)
        while self.clock.alarms and self.clock.alarms[0] <= goal:
            self.clock.advance(max(0.0, self.clock.alarms[0] - to_seconds(self.clock.now())))
            await self.settle()
        self.clock.advance(goal - to_seconds(self.clock.now()))

    def hangs(self, name: str) -> bool:
        collector = self.collectors[name]
        return isinstance(collector, Hangs) and not collector.go_on.is_set()

    @property
    def watches(self) -> list[checker.WatchedCollector]:
        return list(self.checker.watches.values())

    @property
    def incidents(self) -> list[tuple[str, str]]:
        return [(event.subject, event.detail) for _, event in self.journal.incidents(1000)]

    def metrics(self, **wanted: Any) -> list[tuple[float, str, str, float]]:
        rows, more = self.journal.checks.metrics(0, 1000, **wanted)
        assert not more
        return [(to_seconds(row.at), *row[1:]) for row in rows]

    def table(self, name: str) -> list[tuple[Any, ...]]:
        import sqlite3

        with closing(sqlite3.connect(f"file:{self.journal.folder}/journal.sqlite?mode=ro", uri=True)) as other:
            return other.execute(f"SELECT * FROM {name}").fetchall()


@asynccontextmanager
async def rig(folder: Path, nodes: Sequence[Any] = TWO, **collectors: Any) -> Any:
    with closing(Journal(folder)) as journal:
        live = Rig(journal, FakeEngine(), ManualClock(100), **collectors)
        await live.driver.start(nodes)
        live.checker.start()
        try:
            yield live
            live.driver.core.check()
        finally:
            for collector in collectors.values():
                if isinstance(collector, Hangs):
                    collector.go_on.set()
            live.checker.stop()
            await live.driver.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())


def test_what_collectors_find_is_in_the_table_each_period(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, one=Steady(1.5), two=Steady(2)) as live:
            await live.advance(GATHER)
            assert live.collectors["one"].asked == [(Node("a", 17), Node("b", 0))]
            live.collectors["one"].value = 2.5
            await live.advance(PERIOD)
            assert live.metrics(node="b", metric="one.level") == [
                (100, "b", "one.level", 1.5),
                (105, "b", "one.level", 2.5),
            ]
            assert len(live.metrics()) == 8
            last = reports.metrics(live.checker, None, "one.level", None, 10)
            assert [(one.node, one.value) for one in last.metrics] == [("a", 2.5), ("b", 2.5)]
            assert live.incidents == []
            assert [one.status for one in reports.checker_report(live.checker).collectors] == ["works", "works"]

    run(scenario)


def test_collectors_that_get_no_thread_are_told_of_and_asked_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", start)
            async with rig(tmp_path, one=Steady(1), two=Steady(2)) as live:
                await live.advance(PERIOD)
                assert [subject for subject, _ in live.incidents] == ["one", "two"]
                assert "it was not asked: can't start new thread" in live.incidents[0][1]
                assert [one.status for one in reports.checker_report(live.checker).collectors] == ["fails", "fails"]
                await live.driver.submit("me", submission())
                limited.undo()
                for _ in range(4):
                    await live.advance(PERIOD)
                assert {row[3] for row in live.metrics()} == {1, 2}

    run(scenario)


def test_policies_see_what_was_measured_when_they_decide_and_a_replay_sees_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, io=Steady(0.25)) as live:
            await live.advance(GATHER)
            await live.advance(PERIOD)
            view = live.driver.core.state.nodes["a"]
            assert view.measures == {}, "the journal does not grow while there are no jobs"
            assert live.driver.recorded == 3
            await live.driver.submit("me", submission(new_job(tasks=5)))
            assert view.measures == {"io.level": 0.25}
            kinds = [type(event).__name__ for _, event in live.journal.events()][3:]
            assert kinds == ["NodeMeasured", "NodeMeasured", "JobSubmitted"]
            live.collectors["io"].value = 0.75
            await live.advance(PERIOD)
            assert view.measures == {"io.level": 0.25}, "nothing has been decided since"
            live.engine.end(1, 0)
            await live.until(lambda: view.measures == {"io.level": 0.75})
            measured = [event for _, event in live.journal.events() if isinstance(event, NodeMeasured)]
            assert [event.values for event in measured] == [(("io.level", 0.25),)] * 2 + [(("io.level", 0.75),)] * 2
            replayed = Ledger(live.journal, find, "fcfs", 10_000)
            replayed.load()
            assert replayed.core.dump() == live.driver.core.dump()

    run(scenario)


def test_statuses_of_slots_are_written_when_they_have_changed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node("a", slots=2), node("b"))) as live:
            await live.advance(GATHER)
            places = [("a", 0), ("a", 1), ("b", 0)]
            assert [row[1:] for row in live.table("slot_statuses")] == [(*place, "available") for place in places]
            await live.advance(PERIOD)
            assert len(live.table("slot_statuses")) == 3
            await live.driver.submit("me", submission(new_job(tasks=1)))
            live.engine.lose("b")
            await live.advance(PERIOD)
            assert [row[1:] for row in live.table("slot_statuses")][3:] == [("a", 0, "busy"), ("b", 0, "down")]
            live.clock.advance(to_seconds(STATUSES_AGAIN))
            await live.advance(GATHER)
            assert len(live.table("slot_statuses")) == 8

    run(scenario)


def test_run_times_and_losses_of_jobs_are_written_while_they_run_and_when_they_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, (node("a", kind="old"), node("b", kind="new"))) as live:
            await live.driver.submit("me", submission(new_job(tasks=4)))
            await live.advance(2 * SECOND)
            live.engine.end(1, 0)
            await live.advance(PERIOD)
            now = live.clock.now()
            assert [(row[0], row[1], row[3], row[4]) for row in live.table("job_statistics")] == [
                (1, "old", 1, pytest.approx(2 * SECOND, abs=SECOND))
            ]
            live.engine.end(1, 1, outcome=Outcome.LOST)
            await live.advance(PERIOD)
            detail = reports.job_detail(live.driver, 1)
            ((job, _, lost, kills),) = live.table("job_losses")
            assert (job, kills, detail.lost) == (1, 0, to_seconds(lost))
            assert lost > 5 * SECOND
            for task, attempt in ((1, 2), (2, 1), (3, 1)):
                await live.until(lambda task=task, attempt=attempt: (1, task, attempt) in live.engine.running)
                live.engine.end(1, task, attempt)
            await live.until(lambda: not live.driver.core.state.jobs)
            ended = reports.job_detail(live.driver, 1)
            assert [(known.node_class, known.tasks) for known in ended.times] == [("new", 2), ("old", 2)]
            assert ended.lost == to_seconds(lost)
            assert all(row[2] >= now for row in live.table("job_statistics"))

    run(scenario)


def test_what_the_user_said_of_a_class_is_not_counted_as_a_task() -> None:
    view = JobView(job(7, tasks=3, profile=(("old", SECOND), ("new", SECOND))), SECOND)
    view.times = {"old": RunTimes(SECOND, count=1), "new": RunTimes(SECOND, count=1)}
    view.times["old"].add(3 * SECOND)
    assert checks.run_times(view, 5) == [(7, "old", 5, 1, 2 * SECOND, view.times["old"].spread)]


def test_a_collector_that_raises_is_told_of_once_and_asked_later_and_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, bad=Raises(), good=Steady()) as live:
            bad, good = live.collectors["bad"], live.collectors["good"]
            await live.advance(16 * PERIOD + GATHER)
            assert len(good.asked) == 17
            assert len(bad.asked) == 4  # after 0, 2, 6 and 14 periods
            ((subject, detail),) = live.incidents
            assert subject == "bad"
            assert detail.startswith("it raised OSError: the disk is gone (")
            shown, other = reports.checker_report(live.checker).collectors
            assert (shown.status, shown.answered, shown.detail) == ("fails", None, detail)
            assert other.status == "works"
            bad.failure = SystemExit("enough")
            await live.advance(COLLECTOR_PAUSE_MAX)
            assert [text.partition(" (")[0] for _, text in live.incidents][1:] == ["it raised SystemExit: enough"]
            bad.failure = None
            await live.advance(COLLECTOR_PAUSE_MAX)
            assert reports.checker_report(live.checker).collectors[0].status == "works"
            assert live.metrics(metric="bad.level")
            assert len(live.incidents) == 2

    run(scenario)


@pytest.mark.thorough
def test_a_cause_is_told_again_when_it_had_been_gone_for_long(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, bad=Raises()) as live:
            bad = live.collectors["bad"]
            await live.advance(GATHER)
            for _ in range(3):  # it is there and gone by turns
                bad.failure = None
                await live.advance(COLLECTOR_PAUSE_MAX)
                bad.failure = OSError("the disk is gone")
                await live.advance(PERIOD)
            assert len(live.incidents) == 1
            bad.failure = None
            await live.advance(CAUSE_REMEMBERED)
            bad.failure = OSError("the disk is gone")
            await live.advance(PERIOD)
            assert len(live.incidents) == 2

    run(scenario)


def test_a_collector_that_hangs_keeps_nobody_waiting_and_is_asked_again_when_it_is_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, good=Steady(), hung=Hangs()) as live:
            good, hung = live.collectors["good"], live.collectors["hung"]
            await live.advance(GATHER)
            assert len(live.metrics(metric="good.level")) == 2
            assert live.incidents == []
            await live.advance(10 * PERIOD)
            assert len(good.asked) == 11
            assert len(hung.asked) == 1, "a call that has not come back is not joined by others"
            assert live.incidents == [("hung", f"it gave no answer within {to_seconds(COLLECTOR_LIMIT):g} s")]
            assert reports.checker_report(live.checker).collectors[1].status == "hangs"
            hung.go_on.set()
            await live.until(lambda: live.checker.watches["hung"].asked is None)
            assert live.metrics(metric="hung.level") == [], "what is told so late is old"
            await live.advance(PERIOD)
            assert len(hung.asked) == 2
            assert [at > 150 for at, *_ in live.metrics(metric="hung.level")] == [True, True]
            assert reports.checker_report(live.checker).collectors[1].status == "works"
            assert len(live.incidents) == 1

    run(scenario)


def test_what_a_collector_says_when_it_fails_is_one_short_line(tmp_path: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    async def scenario() -> None:
        async with rig(tmp_path, bad=Raises()) as live:
            for failure, told in (
                (LookupError("\x1b[31m\n" + "x" * 1_000_000), "it raised LookupError: \\x1b[31m\\nxxx"),
                (Mute(), "it raised Mute: it cannot be said, ValueError ("),
            ):
                live.collectors["bad"].failure = failure
                await live.advance(COLLECTOR_PAUSE_MAX)
                assert live.incidents[-1][1].startswith(told)
                assert len(live.incidents[-1][1]) < 800

    run(scenario)


def test_a_collector_that_takes_the_nodes_away_takes_them_from_nobody_else(tmp_path: Path) -> None:
    class Grasping(Steady):
        def __call__(self, nodes: Any) -> dict[str, dict[str, Any]]:
            found = super().__call__(nodes)
            nodes.clear()
            return found

    async def scenario() -> None:
        async with rig(tmp_path, bad=Grasping(), good=Steady()) as live:
            await live.advance(PERIOD + GATHER)
            assert len(live.metrics(metric="good.level")) == 4
            assert [subject for subject, _ in live.incidents] == ["bad"]

    run(scenario)


def test_of_an_answer_that_is_wrong_in_part_the_rest_is_kept_and_no_time_is_lost(tmp_path: Path) -> None:
    class Partly(Steady):
        def __call__(self, nodes: Sequence[Node]) -> dict[str, dict[str, Any]]:
            return {"a": {"heat": float("nan"), "fans": 3}} | super().__call__(nodes[1:])

    async def scenario() -> None:
        async with rig(tmp_path, partly=Partly()) as live:
            await live.advance(PERIOD + GATHER)
            assert live.incidents == [("partly", "heat of node a is nan; allowed: a finite number")]
            assert len(live.metrics(metric="partly.fans")) == len(live.metrics(metric="partly.level")) == 2
            (shown,) = reports.checker_report(live.checker).collectors
            assert (shown.status, shown.detail) == ("fails", "heat of node a is nan; allowed: a finite number")

    run(scenario)


def test_it_is_switched_off_and_on_without_loss_and_a_restart_keeps_what_was_chosen(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, good=Steady()) as live:
            await live.driver.submit("me", submission(new_job(tasks=4)))
            await live.advance(GATHER)
            before = live.metrics()
            live.checker.choose(on=False)
            await live.advance(10 * PERIOD)
            assert live.metrics() == before
            live.engine.end(1, 0)
            await live.until(lambda: reports.job_detail(live.driver, 1).times)
            live.checker.choose(every=2 * SECOND)
            assert not live.checker.on
            live.checker.choose(on=True)
            await live.advance(2 * SECOND + GATHER)
            assert len(live.metrics()) == len(before) + 4
            assert live.table("job_statistics"), "what jobs did meanwhile is not missed"
            live.checker.choose(on=False)
        async with rig(tmp_path, good=Steady()) as live:
            assert (live.checker.on, live.checker.every) == (False, 2 * SECOND)
            await live.advance(10 * SECOND)
            assert live.collectors["good"].asked == []
            assert len(live.metrics()) == len(before) + 4

    run(scenario)


def test_what_hangs_when_it_is_switched_off_and_on_is_still_noticed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, hung=Hangs()) as live:
            live.checker.choose(on=False)
            live.checker.choose(on=True)
            await live.advance(COLLECTOR_LIMIT)
            assert [subject for subject, _ in live.incidents] == ["hung"]
            assert len(live.collectors["hung"].asked) == 1

    run(scenario)


@pytest.mark.parametrize("every", [0, SECOND // 100, 100_000 * SECOND])
def test_a_period_out_of_range_is_refused(every: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            with pytest.raises(
                InvalidInput, match=r"period of the status checker is .*; allowed: 0\.1 to 86400 seconds"
            ):
                live.checker.choose(every=every)
            assert live.checker.every == PERIOD

    run(scenario)


def test_on_a_full_disk_the_checker_goes_on_and_policies_are_still_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, big=Steady()) as live:
            await live.advance(GATHER)
            live.collectors["big"].__class__ = Many
            live.journal.limit_pages(1)
            await live.advance(PERIOD)
            await live.advance(PERIOD)
            assert caplog.text.count("what the status checker found was not written") == 1
            live.journal.limit_pages(1 << 30)
            kept = len(live.metrics(node="a"))
            await live.advance(PERIOD)
            assert len(live.metrics(node="a")) == kept + 100
            assert len(live.checker.latest) == 202

    run(scenario)


class Many(Steady):
    """Measures a hundred things."""

    def __call__(self, nodes: Sequence[Node]) -> dict[str, dict[str, Any]]:
        return {node.name: {f"{'long' * 12}{number}": number for number in range(100)} for node in nodes}


def test_the_tables_keep_to_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "ROWS_MAX", 40)

    async def scenario() -> None:
        async with rig(tmp_path, good=Steady(), other=Steady()) as live:
            await live.advance(50 * PERIOD + GATHER)
            rows = live.metrics()
            assert 36 <= len(rows) <= 48  # four a period
            assert rows[-1][0] == 350
            live.driver.incident("test", "told", "nothing of the journal itself goes")
            await live.advance(GATHER)
            assert len(live.incidents) == 1

    run(scenario)


def test_nodes_that_left_are_no_longer_among_the_latest(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, good=Steady()) as live:
            await live.advance(GATHER)
            assert {row.node for row in live.checker.latest.values()} == {"a", "b"}
            live.engine.lose("b")
            await live.advance(PERIOD)
            assert [seen.name for seen in live.collectors["good"].asked[-1]] == ["a"]
            assert len(live.metrics(node="b")) == 1
            assert len(live.metrics(node="a")) == 2

    run(scenario)


def test_incidents_are_listed_the_latest_last(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path) as live:
            for number in range(5):
                live.driver.incident("test", str(number), "")
            await live.advance(GATHER)
            found = await reports.incidents(live.driver, 0, 3)
            assert [(one.subject, one.kind) for one in found.incidents] == [("2", "test"), ("3", "test"), ("4", "test")]
            assert found.more
            rest = await reports.incidents(live.driver, found.incidents[0].number, 3)
            assert ([one.subject for one in rest.incidents], rest.more) == (["3", "4"], False)
            assert len(list(live.journal.events())) > 5, "there are other events"
            assert [one.subject for _, one in live.journal.incidents(10)] == ["0", "1", "2", "3", "4"]

    run(scenario)
