"""What a server's past tells of programs: features are kept with jobs, and `headway profile` reads them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headway import Client, Job, Task
from headway.cli.main import main
from headway.errors import HeadwayError, InvalidInput
from headway.foresight import programs as programs_module
from headway.foresight.follower import Follower
from headway.foresight.learning import RunTimesKnown
from headway.foresight.present import present, run_times_known
from headway.foresight.programs import KnownProgram, PastRun, programs
from headway.history import factors
from headway.history.features import INPUTS
from headway.live.driver import Driver
from headway.live.settings import DriverSettings
from headway.live.store.expiry import Walk
from headway.live.store.journal import Journal
from headway.model.actions import JobStatus
from headway.model.instant import SECOND
from headway.model.job import Bag
from headway.model.outcome import Outcome
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission

RUNS = [(1.0, 3), (2.0, 5), (4.0, 9), (8.0, 17), (3.0, 7), (6.0, 13)]
"""Mesh sizes, and how many seconds such runs take."""


@asynccontextmanager
async def served(
    folder: Path, speed: float = 1.0, **settings: Any
) -> AsyncIterator[tuple[Driver, FakeEngine, ManualClock]]:
    engine, clock = FakeEngine(), ManualClock(5)
    with closing(Journal(folder)) as journal:
        driver = Driver(journal, engine, clock, find, DriverSettings(**({"policy": "easy"} | settings)))
        await driver.start((node("a", slots=1, speed=speed),))
        try:
            yield driver, engine, clock
        finally:
            await driver.stop()


@contextmanager
def both(
    folder: Path, driver: Driver, by_events: Follower, *, is_taken_over: bool
) -> Iterator[tuple[Follower, Follower]]:
    """One that learns from the events of a driver, and one that learns from rows: of past jobs if these are taken over,
    else of jobs.
    """
    if is_taken_over:
        for _ in driver.journal.past.take_over(1000, 50):
            pass
    by_events.catch_up(driver.recorded)
    with closing(Follower(folder, find)) as by_rows:
        yield by_events, by_rows


@pytest.fixture
def past(tmp_path: Path) -> Path:
    """A data directory whose server has run a program with features, one without, and one that never succeeds."""

    async def scenario() -> None:
        async with served(tmp_path) as (driver, engine, clock):

            async def ran(seconds: float, outcome: Outcome = Outcome.SUCCEEDED, **terms: Any) -> None:
                job = (await driver.submit("ann", submission(new_job(**terms)))).jobs[0]
                clock.advance(seconds)
                engine.end(job, outcome=outcome)
                while job in driver.core.state.jobs:
                    await asyncio.sleep(0)

            for number, (mesh, seconds) in enumerate(RUNS):
                features = {"mesh": mesh, "seed": float(number % 2)}
                await ran(seconds, name="flow", estimate=60.0, features=features)
            await ran(1000, Outcome.EXITED, name="flow", features={"mesh": 1.0, "seed": 0.0})
            for seconds in (2, 4):
                await ran(seconds, name="plain")
            await ran(3, name="once")
            await ran(30, Outcome.OUT_OF_TIME, name="broken")
            await ran(1, Outcome.EXITED, name="broken")
            await ran(30, Outcome.OUT_OF_TIME, name="broken")
            (job,) = (await driver.submit("ann", submission(new_job(name="broken")))).jobs
            await driver.cancel([job])
            engine.end(job, outcome=Outcome.KILLED)
            while driver.open:
                await asyncio.sleep(0)

    asyncio.run(scenario())
    return tmp_path


def profile(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["profile", *map(str, words)])
    assert ended.value.code in (None, 0, 2)
    return int(ended.value.code or 0), *capfd.readouterr()


def test_a_program_is_the_jobs_of_a_name_and_user_that_succeeded(past: Path) -> None:
    flow, plain, _, broken = programs(past)
    assert (flow.name, flow.user, [run.took for run in flow.runs]) == ("flow", "ann", [took for _, took in RUNS])
    assert flow.bounds[2] == pytest.approx(8)
    assert flow.asked == pytest.approx((60 / 7 + 60 / 9) / 2)
    assert (plain.name, len(plain.runs), plain.asked) == ("plain", 2, None)
    assert [(run.features["mesh"], run.took) for run in flow.runs] == RUNS
    assert (flow.ended, flow.failed_with) == ({JobStatus.SUCCEEDED: 6, JobStatus.FAILED: 1}, {"exited": 1})
    assert (broken.runs, broken.ended) == ((), {JobStatus.FAILED: 3, JobStatus.CANCELLED: 1})
    assert broken.failed_with == {"out of time": 2, "exited": 1}
    assert [(run.took, run.features["mesh"], run.features["on speed=1"]) for run in flow.others] == [(1000, 1, 0)]
    of_terms = {"tasks", "width", "estimate", "hour of the week"}
    assert flow.runs[0].features.keys() == {"mesh", "seed", *of_terms, "on speed=1"}


def test_what_is_known_of_a_program_stays_when_its_jobs_are_deleted(past: Path) -> None:
    before = programs(past)
    with closing(Journal(past)) as journal:
        for _ in journal.past.take_over(1000, 3):
            pass
        ended = [row.id for row in journal.jobs()]
        for job in ended:
            journal._db.execute("DELETE FROM messages WHERE job = ?", (job,))
        assert len(journal.expiry.drop_jobs(10**18, 1000, Walk())) == len(ended)
        assert list(journal.jobs()) == []
    after = programs(past)
    assert after == before


@pytest.mark.parametrize(
    ("succeeded", "failed", "share"),
    [
        ((), (), None),
        ((1, 5), (3, 7, 9), 3 / 5),
        ((6, 7, 9, 10), (2, 5, 8), 1 / 5),
        ((1, 2, 21), (20, 22, 23, 24), 4 / 5),
    ],
    ids=["none", "all are kept", "the last that succeeded", "the last that failed"],
)
def test_the_share_that_failed_counts_from_when_on_all_jobs_are_kept(
    monkeypatch: pytest.MonkeyPatch, succeeded: tuple[int, ...], failed: tuple[int, ...], share: float | None
) -> None:
    """Four of either are kept."""
    monkeypatch.setattr(programs_module, "OF_PROGRAM", 4)

    def runs(jobs: tuple[int, ...], status: JobStatus) -> tuple[PastRun, ...]:
        return tuple(PastRun(Bag(job), 1.0, {}, status, "") for job in jobs)

    assert (
        KnownProgram("", "", runs(succeeded, JobStatus.SUCCEEDED), runs(failed, JobStatus.FAILED)).failed_share == share
    )


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_run_times_are_learnt_from_jobs_that_succeeded_and_all_that_ran_come_again(
    tmp_path: Path, *, is_taken_over: bool
) -> None:
    """Others fail after 1,000 s, or are cancelled after 500 or before they start: predictions do not know of them."""
    ends = (Outcome.SUCCEEDED, 20), (Outcome.EXITED, 1000), (Outcome.CANCELLED, 500)

    async def scenario() -> None:
        async with served(tmp_path) as (driver, engine, clock):
            with closing(Follower(tmp_path, find)) as by_events:
                for outcome, seconds in ends * 5:
                    first, second = (
                        await driver.submit("ann", submission(new_job(name="p", estimate=2000.0), new_job(name="p")))
                    ).jobs
                    await driver.cancel([second])
                    clock.advance(seconds)
                    if outcome is Outcome.CANCELLED:
                        await driver.cancel([first])
                    engine.end(first, outcome=Outcome.KILLED if outcome is Outcome.CANCELLED else outcome)
                    while driver.open:
                        await asyncio.sleep(0)
                with both(tmp_path, driver, by_events, is_taken_over=is_taken_over) as followers:
                    for follower in followers:
                        assert [past.took / SECOND for past in follower._came] == [took for _, took in ends] * 5
                        check(follower.run_times)
            check(run_times_known(present(tmp_path, find)))
        async with served(tmp_path, policy="easy:quantile=0.75", estimates="predicted") as (driver, _, _):
            (job,) = (await driver.submit("ann", submission(new_job(name="p", estimate=2000.0)))).jobs
            assert driver.core.state.jobs[job].estimate == 20 * SECOND

    def check(found: RunTimesKnown) -> None:
        known, job = RunTimesKnown(SECOND), Bag(1, name="p", user="ann", estimate=2000 * SECOND)
        for _ in range(5):
            known.learn(job, 20 * SECOND)
        assert [found(job, 0).quantile(level / 10) for level in range(1, 10)] == [
            known(job, 0).quantile(level / 10) for level in range(1, 10)
        ]

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["bag", "rigid"])
@pytest.mark.parametrize("is_taken_over", [False, True])
def test_run_times_on_a_fast_node_count_as_on_one_of_speed_1(tmp_path: Path, kind: str, *, is_taken_over: bool) -> None:
    """By whatever they are learnt: the running server, one after a restart, forecasts by events and by rows."""
    terms = {"name": "p", "kind": kind, "estimate": 100.0}
    predicting = {"policy": "easy:quantile=0.5", "estimates": "predicted"}

    async def submitted(driver: Driver) -> int:
        return (await driver.submit("ann", submission(new_job(**terms)))).jobs[0]

    async def scenario() -> None:
        async with served(tmp_path, speed=2.0, **predicting) as (driver, engine, clock):
            with closing(Follower(tmp_path, find)) as by_events:
                for _ in range(10):
                    job = await submitted(driver)
                    clock.advance(10)
                    engine.end(job)
                    while driver.open:
                        await asyncio.sleep(0)
                with both(tmp_path, driver, by_events, is_taken_over=is_taken_over) as followers:
                    for follower in followers:
                        assert [past.took / SECOND for past in follower._came] == [20] * 10
            assert [past.took / SECOND for past in present(tmp_path, find).past] == [20] * 10
            assert driver.core.state.jobs[await submitted(driver)].estimate == 20 * SECOND
        async with served(tmp_path, speed=2.0, **predicting) as (driver, _, _):
            assert driver.core.state.jobs[await submitted(driver)].estimate == 20 * SECOND

    asyncio.run(scenario())


def test_how_large_uploads_are_is_a_feature(up: Any, tmp_path: Path) -> None:
    with Client(data=up.data) as client:
        for size in (10, 2000):
            (tmp_path / "given").write_bytes(b"x" * size)
            url = client.upload(tmp_path / "given")
            assert client.submit(Job("reads", [Task.command("cat", "in", inputs={"in": url})])).result(60)
    (reads,) = (one for one in programs(up.data) if one.name == "reads")
    assert [run.features[INPUTS] for run in reads.runs] == [10, 2000]


@pytest.mark.parametrize(
    "name", ["width", "tasks", "estimate", "hour of the week", INPUTS, "on speed=1", "command n", "word 1"]
)
def test_a_feature_that_is_found_of_a_job_cannot_be_given(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        async with served(tmp_path) as (driver, _, _):
            with pytest.raises(InvalidInput, match="allowed: a name that Headway does not use itself") as refused:
                await driver.submit("ann", submission(new_job(features={"mesh": 1.0, name: 3.0})))
            assert (refused.value.field, refused.value.value) == (f"jobs[0].features[{name}]", 3.0)
            assert not driver.core.state.jobs

    asyncio.run(scenario())


def test_what_some_runs_lack_is_said_where_nothing_else_differs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="it is not installed (pip install headway[predict])")

    async def scenario() -> None:
        async with served(tmp_path) as (driver, engine, clock):
            for number in range(5):
                features = {"mesh": float(number)} if number else {}
                job = (await driver.submit("ann", submission(new_job(name="flow", features=features)))).jobs[0]
                clock.advance(1 + number)
                engine.end(job)
                while job in driver.core.state.jobs:
                    await asyncio.sleep(0)

    asyncio.run(scenario())
    told = profile(capfd, "flow", "--data", tmp_path)[1].splitlines()
    assert told[1:] == [
        "Its 5 runs differ in nothing that all of them have.",
        "Nothing can be told of mesh: 1 of 5 runs do not have it.",
    ]


def test_programs_are_listed(past: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = profile(capfd, "--data", past)
    assert status == 0
    flow, plain, _, broken = (line.split() for line in out.splitlines()[2:])
    assert (flow[:5], plain[:3]) == (["flow", "ann", "6", "1", "(14%)"], ["plain", "ann", "2"])
    assert broken == ["broken", "ann", "0", "3", "(100%)", "1"]
    told = json.loads(profile(capfd, "--data", past, "--json")[1])["programs"]
    assert [(one["program"], one["runs"]) for one in told] == [("flow", 6), ("plain", 2), ("once", 1), ("broken", 0)]
    assert [one["ended"] for one in told] == [
        {"succeeded": succeeded, "failed": failed, "cancelled": cancelled}
        for succeeded, failed, cancelled in ((6, 1, 0), (2, 0, 0), (1, 0, 0), (0, 3, 1))
    ]
    assert [one["failed_share"] for one in told] == [pytest.approx(1 / 7), 0, 0, 1]
    assert told[3]["failed_with"] == {"out of time": 2, "exited": 1}
    assert (told[3]["run_time"], told[3]["estimate_ratio"]) == (None, None)


def test_of_one_program_it_is_said_how_its_jobs_ended(past: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = "Of the last 7 jobs: 6 succeeded, 1 failed; 14% of those that were not cancelled failed. Why: exited (1)."
    assert said in profile(capfd, "flow", "--data", past)[1]
    assert "Of the last" not in profile(capfd, "plain", "--data", past)[1]
    assert profile(capfd, "once", "--data", past)[1] == "1 job named once of ann ran for 3 s.\n"
    assert profile(capfd, "broken", "--data", past)[1] == (
        "No job named broken of ann has succeeded. Of the last 4 jobs: 3 failed, 1 cancelled; 100% of those that were "
        "not cancelled failed. Why: out of time (2), exited (1).\n"
    )
    told = json.loads(profile(capfd, "broken", "--data", past, "--json")[1])
    assert (told["runs"], told["features"]) == (0, None)
    assert "no job named broken has succeeded" in profile(capfd, "broken", "--data", past, "--feature", "width=1")[2]


def test_what_matters_is_told_and_what_a_planned_run_will_take(past: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="it is not installed (pip install headway[predict])")
    words = "flow", "--data", past, "--feature", "mesh=5", "--feature", "seed=0"
    told = json.loads(profile(capfd, *words, "--json")[1])
    assert next(iter(told["features"]["influence"])) == "mesh"
    assert {one["mesh"] for one in told["similar"][:2]} == {4.0, 6.0}
    assert 7 <= told["expected"]["0.5"] <= 13
    status, out, _ = profile(capfd, *words, "--out", past / "what.png")
    assert status == 0
    assert "How much each feature matters, by 6 runs:" in out
    assert "It is expected to run for" in out
    assert (past / "what.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("flw",), "Did you mean flow?"),
        (("plain", "--feature", "mesh=1"), "--feature is 'mesh'; allowed: a feature of its earlier runs"),
        (("plain", "--feature", "tasks=1"), "there are 2 runs; at least 5 are needed"),
        (("flow", "--feature", "mash=1"), "Did you mean mesh?"),
        (("flow", "--feature", "mesh=1"), "feature seed is missing"),
        (("flow", "--user", "nobody-here"), "--user is 'nobody-here'; allowed: one of whom a job has ended"),
        (("--user", "nobody-here"), "Jobs of "),
        (("--feature", "mesh=1"), "headway profile NAME"),
        (("flow", "--feature", "mesh=large"), "allowed: NAME=NUMBER"),
        (("flow", "--feature", "mesh=nan"), "allowed: NAME=NUMBER"),
        (("flow", "--feature", "mesh=1", "--feature", "mesh=2"), "each NAME once"),
    ],
)
def test_what_cannot_be_told_is_refused(
    past: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    pytest.importorskip("sklearn", reason="it is not installed (pip install headway[predict])")
    status, _, err = profile(capfd, *words, "--data", past)
    assert status == 2
    assert said in err


def test_numbers_in_a_command_are_features_too(up: Any, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="it is not installed (pip install headway[predict])")
    with Client(data=up.data) as client:
        for number in range(6):
            took = f"0.0{number}"
            client.submit(Job("naps", [Task.command("sh", "-c", "sleep $1", "--nap", took, f"of={number}")])).result(60)
    told = json.loads(profile(capfd, "naps", "--data", up.data, "--json")[1])
    assert {"nap", "of"} <= set(told["features"]["influence"])
    (naps,) = (one for one in programs(up.data) if one.name == "naps")
    assert [run.features["nap"] for run in naps.runs] == [number / 100 for number in range(6)]


def test_without_scikit_learn_run_times_are_shown(
    past: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factors, "find_spec", lambda name: None)
    status, out, _ = profile(capfd, "flow", "--data", past)
    assert status == 0
    assert "6 jobs named flow of ann ran for" in out
    assert 'pip install "headway[predict]"' in out
    assert profile(capfd, "flow", "--feature", "mesh=1", "--data", past)[0] == 2


def test_without_a_journal_it_says_what_to_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, _, err = profile(capfd, "--data", tmp_path)
    assert status == 2
    assert "Name a data directory" in err


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ({"mesh": float("nan")}, "features[mesh] is nan; allowed: a finite number"),
        ({"mesh": "large"}, "features['mesh']"),
        ({"": 1.0}, "features has a name of 0 characters"),
        ({str(number): 1.0 for number in range(65)}, "features is '65 of them'; allowed: at most 64"),
    ],
)
def test_features_that_are_no_numbers_are_refused(features: dict[str, Any], said: str) -> None:
    from headway.client.job import new_job as made

    with pytest.raises((HeadwayError, InvalidInput)) as refused:
        made(Job("flow", [Task(print)], features=features), new_job().work, 1)
    assert said in str(refused.value)


def test_features_go_with_the_job(up: Any) -> None:
    with Client(data=up.data) as client:
        waiter = client.submit(Job("flow", [Task.command("true")], features={"mesh": 3.0}))
        assert waiter.result(60)
    assert any(dict(run.job.features) == {"mesh": 3.0} for one in programs(up.data) for run in one.runs)


def test_a_retry_has_the_features_of_the_job_before(up: Any, tmp_path: Path) -> None:
    with Client(data=up.data) as client:
        there, given = tmp_path / "there", tmp_path / "given"
        given.write_bytes(b"seven B")
        task = Task.command("cat", "in", str(there), inputs={"in": client.upload(given)})
        first = client.submit(Job("twice", [task], features={"mesh": 4.0}))
        assert first.exception(60) is not None
        there.write_text("now")
        assert client.retry(first.job).result(60)
    assert [dict(run.job.features) for one in programs(up.data) if one.name == "twice" for run in one.runs] == [
        {"mesh": 4.0, INPUTS: 7.0}
    ]
