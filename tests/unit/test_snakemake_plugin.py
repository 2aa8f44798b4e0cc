"""Names and terms of Snakemake's jobs on the cluster, and which of them are open; without Snakemake."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from headway.errors import HeadwayError, InvalidInput

PLUGIN = Path(__file__).resolve().parents[2] / "integrations" / "snakemake-executor-plugin-headway"
HOUR = 3600.0
NOON = 1_800_014_400.0
"""An instant; what the clock shows then depends on the zone."""


def loaded(name: str) -> ModuleType:
    """A module of the plugin that works without Snakemake."""
    place = PLUGIN / "src" / "snakemake_executor_plugin_headway" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"headway_plugin_{name}", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module


terms, remembered = loaded("terms"), loaded("remembered")


def job(threads: int = 1, of_rule: float = 0, wildcards: Any = (), **resources: Any) -> Any:
    """A job of a rule that has the priority `of_rule`."""
    return SimpleNamespace(
        name="align", threads=threads, priority=of_rule, wildcards_dict=dict(wildcards), resources=resources
    )


def found(of: Any, due: float | None = None) -> dict[str, Any]:
    return dict(terms.terms_of(of, started=NOON, now=NOON + HOUR, due=due))


def test_nothing_said_nothing_known() -> None:
    assert found(job()) == {"due": None, "priority": 0, "estimate": None, "time_limit": None}


def test_resources_become_terms() -> None:
    of = job(runtime=20, due="2h", priority=5, time_limit="90s")
    assert found(of) == {"due": 2 * HOUR, "priority": 5, "estimate": 1200, "time_limit": 90}
    assert found(job(due=60))["due"] == 60
    assert found(job(of_rule=7, priority=0))["priority"] == 0
    assert found(job(of_rule=7))["priority"] == 7


def test_due_dates_of_the_workflow_are_for_jobs_without_one() -> None:
    assert found(job(), due=NOON + 3 * HOUR)["due"] == 2 * HOUR
    assert found(job(due="30 min"), due=NOON + 3 * HOUR)["due"] == HOUR / 2


def test_a_time_of_the_clock_is_the_first_after_the_start_of_the_workflow() -> None:
    """A job that is submitted after this time is late already, and not due a day later."""
    import time

    half_past = time.strftime("%H:%M", time.localtime(NOON + HOUR / 2))
    assert terms.due_of(half_past, started=NOON, now=NOON + HOUR) == NOON + HOUR / 2


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({"due": "tomorow"}, "due is 'tomorow'"),
        ({"runtime": "later"}, "runtime is 'later'; allowed: a number"),
        ({"time_limit": "long"}, "time_limit is 'long'"),
    ],
)
def test_a_wrong_resource_is_named(resources: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        found(job(**resources))


def test_threads_are_slots_of_one_node_unless_slots_are_named() -> None:
    assert terms.slots_of(job(threads=4)) == 4
    assert terms.slots_of(job(threads=4, slots=1)) == 1
    for slots in (0, "two"):
        with pytest.raises(InvalidInput, match=r"slots is .*; allowed: a whole number"):
            terms.slots_of(job(slots=slots))


def test_names_say_workflow_rule_and_wildcards_and_are_not_too_long() -> None:
    assert terms.name_of(job(wildcards={"sample": "a", "unit": 1}), "atlas") == "atlas: align sample=a unit=1"
    name = terms.name_of(job(wildcards={"sample": "a" * 500}), "atlas")
    assert (len(name), name[-3:]) == (terms.NAME_MAX, "...")


def test_jobs_get_what_they_need_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONDA_PREFIX", "MY_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, f"the {name}")
    got = terms.environment(("MY_KEY",))
    assert (got["CONDA_PREFIX"], got["MY_KEY"]) == ("the CONDA_PREFIX", "the MY_KEY")
    assert "PATH" in got
    assert "AWS_SECRET_ACCESS_KEY" not in got
    with pytest.raises(HeadwayError, match="--headway-env: NO_SUCH is not set here"):
        terms.environment(("MY_KEY", "NO_SUCH"))


def test_open_jobs_are_found_again_and_no_others(tmp_path: Path) -> None:
    """By now there may be another server, whose jobs have the same numbers."""
    jobs = remembered.OpenJobs(tmp_path / "jobs")

    def report(number: int, name: str, submitted: float) -> Any:
        return SimpleNamespace(id=number, name=name, submitted=submitted)

    class Answers:
        def __init__(self, *reports: Any) -> None:
            self.reports = reports

        def jobs(self, *, status: str) -> list[Any]:
            assert status == "open"
            return list(self.reports)

    assert jobs.still_open(Answers(report(1, "a", NOON))) == {}
    kept = [remembered.Remembered(number, f"wf: {number}", f"rule {number}", "log", NOON) for number in range(1, 6)]
    for job_ in kept:
        jobs.keep(job_)
    jobs.forget(5)
    (tmp_path / "jobs" / "6.json").write_text('{"num')
    answers = Answers(
        report(1, "wf: 1", NOON + 1),
        report(2, "other", NOON),
        report(3, "wf: 3", NOON + HOUR),
        report(5, "wf: 5", NOON),
    )
    assert jobs.still_open(answers) == {"rule 1": kept[0]}
    assert sorted(path.name for path in (tmp_path / "jobs").glob("[1-5].json")) == ["1.json"]
