"""Chang16 live: a short run with real services beside real jobs, and the same in the simulator."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.model.instant import SECOND
from headway.reproduce.chang16.live import (
    BATCH_LOAD,
    LOAD,
    POLICIES,
    SHARES,
    SLOTS,
    TASKS_MAX,
    Watcher,
    draw,
    result,
    twice,
)
from headway.reproduce.chang16.samples import Log
from headway.reproduce.standin import standin
from headway.traces import transforms

pytestmark = pytest.mark.thorough

LOG = Log(transforms.as_bags(transforms.first(standin(), 200)), "generated", is_standin=True)


def test_a_sample_needs_the_share_of_the_slots_that_is_said_and_is_the_same_for_the_same_seed() -> None:
    sample, again, other = draw(LOG, 3), draw(LOG, 3), draw(LOG, 4)
    work = sum(float(load.processing.sum()) for load in sample.loads)
    assert work == pytest.approx(LOAD * SLOTS * sample.seconds, rel=0.2)  # no request takes longer than 2 s
    assert [load.arrivals.tolist() for load in sample.loads] == [load.arrivals.tolist() for load in again.loads]
    assert sample.bags.runtime.tolist() == again.bags.runtime.tolist() != other.bags.runtime.tolist()
    assert all(0 <= load.arrivals.min() <= load.arrivals.max() <= sample.seconds for load in sample.loads)
    assert (sample.bags.due >= sample.bags.release + sample.bags.runtime).all()
    assert sample.bags.release.max() <= 0.7 * sample.seconds * SECOND
    assert sample.bags.tasks @ sample.bags.runtime / SECOND == pytest.approx(
        BATCH_LOAD * SLOTS * sample.seconds, rel=0.1
    )
    assert sample.bags.tasks.max() <= TASKS_MAX


@pytest.mark.slow
def test_every_request_is_answered_and_every_job_ends_and_the_simulator_says_what_it_costs(tmp_path: Path) -> None:
    sample = draw(LOG, 1, seconds=6.0)
    found = twice(POLICIES["dp"], sample)  # raises if a request had no answer
    assert set(found.live) == set(found.simulated) == {"services", "batch"}
    assert all(cost >= 0 for one in (found.live, found.simulated) for cost in one.values())
    assert found.warm_up > 0
    assert [look.share for look in found.course.looks] == list(SHARES)
    # A busy machine may foresee nothing in these seconds; that what it foresees is kept is asked below.
    assert all(end > look.at - 1 for look in found.course.looks for end in look.ends.values())
    assert (found.course.ends > sample.bags.release / SECOND).all()
    assert found.course.penalties.sum() == pytest.approx(found.live["batch"])
    told = result({"dp": found}, sample, "requests")
    assert [row[:2] for row in told.rows] == [("dp", "services"), ("dp", "batch")]
    assert "2 bags" in told.about
    for name, draw_it in told.pictures.items():
        draw_it(tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {"fig4-live.png", "fig5-live.png"}


def test_what_the_server_foresees_of_open_jobs_is_kept_by_their_places_in_the_sample() -> None:
    began, since_1970 = time.monotonic(), time.time()
    foreseen = SimpleNamespace(id=8, expected_end=since_1970 + 60, penalty_expected=2.5)
    unknown = SimpleNamespace(id=9, expected_end=None, penalty_expected=None)
    client: Any = SimpleNamespace(jobs=lambda status: [unknown, foreseen] if status == "open" else [])
    replay: Any = SimpleNamespace(waiters=[SimpleNamespace(job=number) for number in (7, 8, 9)])  # 7 has ended
    watcher = Watcher(client, replay, began, 0.0)
    watcher.watch()
    course = watcher.course([since_1970 + 1, since_1970 + 61, None], [0.0, 3.0, 0.0])
    assert [look.share for look in course.looks] == list(SHARES)
    for look in course.looks:
        assert look.ends == {1: pytest.approx(60, abs=1)}
        assert look.penalties == {1: 2.5}
    assert course.ends[:2] == pytest.approx([1, 61], abs=1)
