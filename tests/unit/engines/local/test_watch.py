"""What an agent checks of its runs: time for which a run waits for room on the disk does not count."""

from __future__ import annotations

import time

import pytest
from msgspec import Raw

from headway.engines.local.agent.run import MemberRun
from headway.engines.local.agent.watch import Watch
from headway.engines.local.shared.frames import Launch
from headway.engines.local.shared.terms import ROOM_SECONDS
from headway.model.outcome import Outcome


@pytest.mark.parametrize("waits", [5.0, ROOM_SECONDS])
def test_waiting_for_room_does_not_count_as_run_time(monkeypatch: pytest.MonkeyPatch, waits: float) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watch = Watch()
    run = MemberRun(Launch(1, 0, 1, 0, 1, (0,), 10.0, None, "f", None, Raw(b"")), b"", None)
    run.since, run.started = now, True
    watch.begin(run)
    now += 8.0
    run.stalled = True
    watch.stall(run)
    now += waits
    assert list(watch.exceeded(now)) == []
    run.stalled = False
    watch.stall(run)
    assert list(watch.exceeded(now + 1.9)) == []
    assert list(watch.exceeded(now + 2.1)) == [(run, Outcome.OUT_OF_TIME, "ran longer than 10 s")]


def test_a_run_that_says_it_waits_and_never_goes_on_has_a_minute_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    watch = Watch()
    run = MemberRun(Launch(1, 0, 1, 0, 1, (0,), 10.0, None, "f", None, Raw(b"")), b"", None)
    run.since, run.started, run.stalled = 1000.0, True, True
    watch.begin(run)
    watch.stall(run)
    assert list(watch.exceeded(1009.0 + ROOM_SECONDS)) == []
    assert [one for one, _, _ in watch.exceeded(1011.0 + ROOM_SECONDS)] == [run]
