"""The text for Prometheus, read with the parser of its official client."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway import __version__
from headway.live import reports
from headway.live.delay import LoopDelay
from headway.live.driver import Driver
from headway.live.services import ServiceTotals
from headway.live.settings import DriverSettings
from headway.live.store.journal import FILE, Journal
from headway.live.tally import INCIDENT_KINDS
from headway.model.events import Outcome
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission
from headway.web import exposition as exposition_module
from headway.web.exposition import _rules, exposition

from .test_api import TOKEN, Rig, run

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

LABELS = {"file", "kind", "le", "outcome", "result", "rule", "stage", "status", "tier", "user", "version"}


def read(text: bytes) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


async def asked(rig: Rig) -> Samples:
    status, headers, body = await rig.send("GET", "/metrics", authorization=f"Bearer {TOKEN}")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return read(body)


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"headway_{name}", tuple(sorted(labels.items()))]


def test_what_happens_is_told(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        before = await asked(rig)
        assert value(before, "build_info", version=__version__) == 1
        assert value(before, "start_time_seconds") == 5
        assert value(before, "slots", status="available") == 2
        assert value(before, "incidents_total", kind="node_lost") == 0
        late = new_job(name="late", due=-7.0, priority=3.0, rate=2.0, user="ann")
        await rig.driver.submit("me", submission(late, new_job(name="good", due=1000.0), new_job(name="waits")))
        await rig.driver.submit("me", submission(new_job(name="held", release=100.0), new_job(name="bag", tasks=4)))
        found = await asked(rig)
        assert value(found, "jobs_submitted_total") == 5
        assert [value(found, "jobs", status=word) for word in ("held", "waiting", "running")] == [1, 2, 2]
        assert (value(found, "tasks_waiting"), value(found, "tasks_running", tier="foreground")) == (5, 2)
        assert (value(found, "slots", status="busy"), value(found, "slots", status="available")) == (2, 0)
        assert (value(found, "rounds_total"), value(found, "commits_total")) == (rig.driver.core.rounds, 3)
        assert value(found, "user_penalty_open", user="ann") == value(found, "penalty_open") == 24
        assert value(found, "user_penalty_expected", user="ann") == value(found, "penalty_expected")
        await rig.driver.cancel([3])
        await rig.end(1)
        await rig.end(2)
        rig.driver.incident("shut_down", "a subject", "a detail")
        await rig.end(5, outcome=Outcome.EXITED)
        found = await asked(rig)
        assert [value(found, "due_dates_total", result=word) for word in ("met", "missed")] == [1, 1]
        assert value(found, "tardiness_seconds_total") == 12
        assert value(found, "penalty_total") == 24
        assert value(found, "deadline_miss_penalty_total") == 36
        assert value(found, "jobs_ended_total", status="succeeded") == 2
        assert value(found, "jobs_ended_total", status="cancelled") == 1
        assert value(found, "tasks_ended_total", outcome="exited") == 1
        assert value(found, "incidents_total", kind="shut_down") == 1
        assert value(found, "journal_size_bytes", file="database") == (tmp_path / FILE).stat().st_size
        assert found.keys() == before.keys(), "a label value came that was not there from the beginning"

    run(tmp_path, scenario)


def test_names_follow_the_conventions_and_labels_are_few(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        _, _, body = await rig.send("GET", "/metrics", authorization=f"Bearer {TOKEN}")
        for family in text_string_to_metric_families(body.decode()):
            assert re.fullmatch("(headway|process)(_[a-z]+)+", family.name), family.name
            assert family.documentation, family.name
            for sample in family.samples:
                assert sample.labels.keys() <= LABELS, sample
                assert sample.name.endswith("_total") == (family.type == "counter"), sample
        assert len(read(body)) < 150, "samples are to stay few"

    run(tmp_path, scenario)


def test_rules_that_a_policy_makes_up_are_one() -> None:
    raised = {f"policy_raised_Error{number}": 1 for number in range(1000)}
    assert _rules({**raised, "job_unknown": 3}) == {"policy_raised": 1000, "job_unknown": 3}
    many = _rules({f"rule{number:04}": 1 for number in range(1000)})
    assert (len(many), many["other"]) == (exposition_module.RULES_MAX + 1, 1000 - exposition_module.RULES_MAX)


def test_every_name_has_its_line_on_the_page(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "prometheus.md").read_text("utf-8")

    async def scenario(rig: Rig) -> None:
        rig.driver.services.totals["s"] = ServiceTotals()
        _, _, body = await rig.send("GET", "/metrics", authorization=f"Bearer {TOKEN}")
        told = {
            family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
            for family in text_string_to_metric_families(body.decode())
            if family.name.startswith("headway_")
        }
        assert sorted(told) == sorted(re.findall(r"^\| `(headway_\w+)", page, re.MULTILINE))

    run(tmp_path, scenario)


def test_every_kind_of_incident_has_a_value() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "incidents.md").read_text("utf-8")
    assert sorted(INCIDENT_KINDS) == sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


@pytest.mark.long
def test_many_open_jobs_do_not_make_it_dear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting jobs are counted in parts, with turns for others between them. Nothing else depends on their number."""
    monkeypatch.setattr(reports, "COUNTED_AT_ONCE", 1000)

    async def looked(folder: Path, jobs: int) -> tuple[int, int]:
        """Count the lines that run, except those that count waiting jobs, and the turns of other tasks."""
        lines = turns = 0
        counting = ("tasks_waiting", "open_costs", "Forecasts")  # there are none of 10,000 jobs

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal lines
            if not frame.f_globals["__name__"].startswith("headway.") or any(
                map(frame.f_code.co_qualname.count, counting)
            ):
                return None
            lines += event == "line"
            return trace

        with closing(Journal(folder)) as journal:
            driver = Driver(
                journal, FakeEngine(), ManualClock(5), find, DriverSettings(policy="fcfs", snapshot_every=10**9)
            )
            await driver.start((node("n", slots=16),))
            await driver.submit("me", submission(*[new_job(tasks=2)] * jobs))
            asking = asyncio.ensure_future(exposition(driver, LoopDelay()))
            before = sys.gettrace()
            sys.settrace(trace)
            try:
                while not asking.done():
                    turns += 1
                    await asyncio.sleep(0)
            finally:
                sys.settrace(before)
            found = read(asking.result())
            assert value(found, "jobs", status="waiting") == jobs - 16 / 2
            assert value(found, "tasks_waiting") == 2 * jobs - 16
            await driver.stop()
        return lines, turns

    async def main() -> None:
        (few, _), (many, turns) = await looked(tmp_path / "few", 500), await looked(tmp_path / "many", 10_000)
        assert 100 < many < few + 100
        assert turns >= 10

    asyncio.run(main())
