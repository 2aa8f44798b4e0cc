"""A real server is scraped as Prometheus does, and read with the parser of its official client."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway import Client, Job, Task, wire
from headway.private import token_of

from ..waiting import LIMIT, until
from .conftest import Up


def scraped(up: Up, token: str) -> dict[str, float]:
    """The samples in the text, by name and labels."""
    asked = urllib.request.Request(
        up.url + wire.PROMETHEUS.path,
        headers={
            "Authorization": f"Bearer {token}",
            "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
        },
    )
    with urllib.request.urlopen(asked, timeout=LIMIT) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = answer.read().decode()
    return {
        sample.name + "".join(f"[{word}]" for word in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_server_is_scraped(tmp_path: Path) -> None:
    up = Up(tmp_path)
    before = time.time()
    up.start()
    try:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            scraped(up, "wrong")
        token = token_of(up.data / "token")
        first = scraped(up, token)
        assert first["headway_slots[available]"] == 2
        assert before - 1 < first["headway_start_time_seconds"] <= time.time()
        assert first["headway_accepts"] == 1
        with Client(data=up.data) as client:
            waiters = client.submit(
                [
                    Job("in time", [Task(abs, -1)] * 3, due=1000),
                    Job("late", [Task(abs, -1)], due=-2, rate=3),
                    Job("fails", [Task(int, "x")], due=1000),
                ]
            )
            client.wait(*waiters, timeout=LIMIT)
        until(lambda: scraped(up, token)["headway_loop_delay_seconds_count"])
        found = scraped(up, token)
        assert found["headway_jobs_submitted_total"] == 3
        assert (found["headway_due_dates_total[met]"], found["headway_due_dates_total[missed]"]) == (1, 2)
        assert found["headway_tardiness_seconds_total"] >= 2
        assert found["headway_penalty_total"] == pytest.approx(3 * found["headway_tardiness_seconds_total"])
        assert (found["headway_tasks_ended_total[succeeded]"], found["headway_tasks_ended_total[raised]"]) == (4, 1)
        assert found["headway_jobs[waiting]"] == found["headway_jobs[running]"] == 0
        assert found["headway_rounds_total"] > first["headway_rounds_total"]
        assert found["headway_journal_size_bytes[database]"] > 0
        assert found["process_resident_memory_bytes"] > 1_000_000
        assert found.keys() == first.keys()
    finally:
        up.stop()
