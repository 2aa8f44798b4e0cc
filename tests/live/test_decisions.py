"""What rounds decided is in the journal: a start repeats it, whatever has become of the policies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError
from headway.live import reports
from headway.live.snapshots import fingerprint
from headway.live.store.history import history
from headway.live.store.journal import Batch, Journal
from headway.live.store.redeciding import _promised, _said, rounds
from headway.model.events import Incident, JobSubmitted, NodeJoined, Outcome, PolicyChosen, TaskEnded, Woke
from headway.model.policy import Policy
from headway.model.snapshot import Plan, Snapshot
from headway.policies import registry
from headway.policies.registry import find
from headway.restate import restate
from headway.testing import FakeEngine, job, new_job, node

from ..rows import event_row
from .test_driver import Rig, crash, rig, run

TWO = (node("a", slots=1), node("b", slots=1))


class Last:
    """Serves the last job first, and takes all slots from the others: the opposite of what is wanted of a policy."""

    per_instant = False
    task_rounds = True

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        if view.waiting:
            last = max(view.waiting, key=lambda job: job.id)
            for job in view.jobs.values():
                if job.held and job is not last:
                    plan.hold(job.id, 0)
            if view.free:
                plan.hold(last.id, view.free & -view.free)
        return plan


def changed(text: str) -> Policy:
    """What an upgrade may have made of every policy."""
    return Last()


def gone(text: str) -> Policy:
    """As when the package of a policy is not installed any more."""
    if text == "mine":
        raise HeadwayError("no policy is called 'mine'", "Did you mean yours?")
    return find(text)


def mine(text: str) -> Policy:
    return find("edf" if text == "mine" else text)


async def work(live: Rig) -> None:
    """Some jobs of which one runs, one has ended and others wait."""
    await live.submit(*(new_job(tasks=2, estimate=5.0, due=100.0 - number, name=str(number)) for number in range(4)))
    await live.advance(3)
    await live.end(*live.running[0])


@pytest.mark.parametrize("policy", ["deadline", "tempo", "edf", "easy"])
def test_a_changed_policy_neither_kills_nor_redoes_what_runs(tmp_path: Path, policy: str) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO, policy=policy) as live:
            await work(live)
            before, number = live.driver.core.dump(), live.journal.last()[0]
            found = crash(live)
        assert len(found.running) == 2
        assert restate(tmp_path, number).fingerprint == fingerprint(Scheduler.restore(before, find))
        async with rig(tmp_path, TWO, engine=FakeEngine(found), at=3, policies=changed) as live:
            assert live.engine.launched == live.engine.killed == []
            assert live.running == sorted(found.running)
            assert len(live.driver.open) == 4
            while live.running:
                await live.end(*live.running[0])
            order = [one.job for one in live.engine.launched]
            assert order == sorted(order, reverse=True), "from now on the changed policy decides"
            assert not live.driver.open

    run(scenario)


def test_without_its_policy_a_server_starts_and_what_runs_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO, policy="mine", policies=mine) as live:
            await work(live)
            found = crash(live)
        async with rig(tmp_path, TWO, engine=FakeEngine(found), at=3, policies=gone) as live:
            assert live.engine.launched == live.engine.killed == []
            (told,) = live.events(Incident)
            assert isinstance(told, Incident)
            assert (told.kind, told.subject) == ("policy_absent", "mine")
            assert "no policy is called 'mine'; nothing new starts" in told.detail
            assert told.detail in caplog.messages
            assert [record for record in caplog.records if record.exc_info] == [], "nothing is broken"
            await live.submit(new_job())
            assert "no policy is called 'mine'" in (await reports.explanation(live.driver, 5)).note
            await live.driver.choose("edf")
            await live.settle()
            assert [event.policy for event in live.events(PolicyChosen) if isinstance(event, PolicyChosen)] == ["edf"]
            while live.running:
                await live.end(*live.running[0])
            assert not live.driver.open

    run(scenario)


def decided(folder: Path, policies: Callable[[str], Policy]) -> list[tuple[str, str]]:
    """How today's policies differ from the record, round by round."""
    found = list(rounds(folder, policies))
    assert found
    assert all(held.recorded for held in found)
    return [held.difference[-2:] for held in found if held.difference is not None]


@pytest.mark.parametrize("policy", ["deadline", "tempo", "edf", "conservative", "heft", "measy"])
def test_it_is_said_whether_policies_would_decide_the_same(tmp_path: Path, policy: str) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO, policy=policy) as live:
            await work(live)
            await live.submit(new_job(kind="rigid", width=2, estimate=9.0))
            await live.advance(1)
            while live.running:
                await live.advance(1)
                await live.end(*live.running[0])
        assert decided(tmp_path, find) == []
        differences = decided(tmp_path, changed)
        assert differences
        assert any(then != today for then, today in differences)
        assert all("a policy that is not there" in today for _, today in decided(tmp_path, absent))

    def absent(text: str) -> Policy:
        raise HeadwayError("a policy that is not there")

    run(scenario)


def test_what_happened_is_told_without_the_policy(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO, policy="mine", policies=mine) as live:
            await work(live)
            while live.running:
                await live.advance(1)
                await live.end(*live.running[0])
        with_it, without = history(tmp_path, mine), history(tmp_path, gone)
        assert with_it.end.tolist() == without.end.tolist()
        assert with_it.start.tolist() == without.start.tolist()

    run(scenario)


def status(words: list[str]) -> object:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


def test_the_command_says_what_would_be_decided_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with rig(tmp_path, TWO, policy="edf") as live:
            await work(live)

    run(scenario)
    assert status(["check", str(tmp_path), "--decide"]) == 0
    assert "The policies would decide the same today in 3 rounds." in capsys.readouterr().out
    monkeypatch.setattr(registry, "find", changed)
    assert status(["check", str(tmp_path), "--decide"]) == 1
    out = capsys.readouterr().out
    assert "Event 8 (Woke, 1970-01-01" in out
    assert "  then   job 4: a/0, b/0, claim after\n  today  job 4: a/0\n" in out
    assert "2 of 3 rounds would be decided otherwise today." in out
    assert status(["check", str(tmp_path), "--decide", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["flaws"], told["rounds"], told["unrecorded"]) == ([], 3, 0)
    assert told["differences"][0]["policy"] == "edf"


def test_the_command_names_the_site_and_when_a_start_was_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        sites = (node("a", slots=2, site="cellar"), node("b", slots=2, site="attic"))
        async with rig(tmp_path, sites, policy="sites:top=rr,each=easy") as live:
            wide = new_job(kind="rigid", width=2, estimate=9.5)
            await live.submit(*(wide for _ in range(4)))

    run(scenario)
    monkeypatch.setattr(registry, "find", lambda text: find(text) if text.startswith("sites") else Last())
    assert status(["check", str(tmp_path), "--decide"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^Event \d+ \(\w+, 1970-01-01 \S+\) in pool cellar, under easy:$", out, re.MULTILINE), out
    assert re.search(r"^  then .*job \d: a start promised for 1970-01-01 \d\d:\d\d:\d\d(;|$)", out, re.MULTILINE), out
    assert not re.search(r"\d{6}", out), out
    assert status(["check", str(tmp_path), "--decide", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["differences"]
    assert {(each["pool"], each["policy"]) for each in told} == {("cellar", "easy"), ("attic", "easy")}

    def absent(text: str) -> Policy:
        raise HeadwayError(f"no policy is called {text!r}")

    monkeypatch.setattr(registry, "find", absent)
    assert status(["check", str(tmp_path), "--decide"]) == 1
    out = capsys.readouterr().out
    assert re.search(
        r"\) in pool cellar:\n  then   .*\n  today  no policy is called 'sites:top=rr,each=easy'$", out, re.MULTILINE
    )
    assert all(0 <= each["at"] < 60 for each in told), "seconds"


def test_promises_that_differ_by_less_than_a_second_are_told_apart() -> None:
    whole, later, other = [_promised(job, at) for job, at in ((7, 2_000_000), (7, 2_000_001), (8, 5_000_000))]
    then, today = _said({whole, other}, {later}), _said({later}, {whole, other})
    assert then.partition("; ")[0].endswith(":02.000000")
    assert then.endswith(":05"), "only where it matters"
    assert today.endswith(":02.000001")


def test_rounds_of_an_older_headway_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [JobSubmitted(2, job(1)), Woke(2), TaskEnded(5, 1, 0, 1, Outcome.SUCCEEDED)]
    with closing(Journal(tmp_path)) as journal:
        core = Scheduler(find, "edf")
        core.handle(NodeJoined(1, node("a")))
        journal.store_snapshot(0, core.dump(), ())
        rows = [event_row(number, event.at, event) for number, event in enumerate(events, 1)]
        journal.write(Batch(rows))
    assert status(["check", str(tmp_path), "--decide"]) == 0
    assert "Not compared, because an older Headway did not record them: 1 round." in capsys.readouterr().out
