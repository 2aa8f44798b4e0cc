"""Policies by name: Headway's own with their parameters, and those that another package adds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError, InvalidInput
from headway.model.events import JobSubmitted, NodeJoined
from headway.model.job import Kind
from headway.model.policy import Policy
from headway.policies import registry
from headway.policies.backfill import Easy, Strict
from headway.policies.heft import Heft, Peft
from headway.policies.lin14 import ByWorkload, Deadline, Fill, Priority, Proportion
from headway.policies.tiered import TieredEasy
from headway.reproduce.standin import standin
from headway.sim.kernel import Simulation
from headway.testing import job, node
from headway.traces import transforms

NAMES = [
    *("anneal", "atc", "conservative", "deadline", "easy", "edf", "fcfs", "greedy", "heft", "hprf", "instances"),
    "keasy",
    *("lst", "lstr", "measy", "peft", "priority", "proportion", "reasy", "services", "sites", "sjf"),
    *("tempo", "workload", "wspt"),
]


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("fcfs", Strict("release")),
        ("sjf", Strict("shortest")),
        ("fcfs:order=weighted", Strict("weighted")),
        ("easy:depth=3,order=due", Easy("due", 3)),
        ("easy:depth=inf", Easy(depth=math.inf)),
        ("fcfs:per_instant=true", Strict("release", per_instant=True)),
        ("easy", Easy()),
        (" easy : order = widest , per_instant=True ", None),
        ("easy:order=widest,per_instant=True", Easy("widest", per_instant=True)),
        ("easy:", Easy()),
        ("keasy", TieredEasy("kill")),
        ("reasy:threshold=1", TieredEasy("wait", threshold=1.0)),
        ("measy:order=due", TieredEasy("migrate", "due")),
        ("conservative", Easy(depth=math.inf)),
        ("edf", Fill("due")),
        ("priority:reserve=0.25,spare=due", Priority(0.25, "due")),
        ("proportion:spare=priority", Proportion("priority")),
        ("workload:period=2.5", ByWorkload(2.5)),
        ("deadline", Deadline("due")),
        ("heft:per_instant=false", Heft(per_instant=False)),
        ("heft:holes=best,order=workflow,average=all", Heft("best", "workflow", "all")),
        ("peft", Peft()),
    ],
)
def test_found_by_text(text: str, policy: Policy | None) -> None:
    if policy is None:
        with pytest.raises(InvalidInput, match="policy is 'easy '"):
            registry.find(text)
    else:
        assert registry.find(text) == policy


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("esay", "policy is 'esay'; allowed: anneal, atc, conservative, ", "Did you mean easy or reasy or measy?"),
        ("EASY", "policy is 'EASY'", "Did you mean easy or reasy or measy?"),
        ("measy:threshold=1.5", "threshold of policy measy is 1.5; allowed: 0 to 1", ""),
        ("keasy:moves=wait", "parameter of policy keasy is 'moves'; allowed: order, threshold, per_instant", ""),
        ("", "policy is ''", "`headway policies` says what each of them does."),
        ("zzz", "policy is 'zzz'", "`headway policies` says what each of them does."),
        (
            "easy:ordre=due",
            "parameter of policy easy is 'ordre'; allowed: order, depth, per_instant",
            "Did you mean order?",
        ),
        ("sjf:order=due", "parameter of policy sjf is 'order'; allowed: per_instant", ""),
        ("easy:order", "parameter of policy easy is 'order'; allowed: order=VALUE", ""),
        ("easy:order=due,order=due", "parameter of policy easy is 'order=due'; allowed: order once", ""),
        (
            "easy:order=duee",
            "order of policy easy is 'duee'; allowed: release, shortest, widest, weighted, due, priority",
            "Did you mean due?",
        ),
        (
            "easy:depth=-1",
            "depth of policy easy is -1.0; allowed: 0, 1, 2, ... or inf",
            "1 is EASY, inf is conservative.",
        ),
        (
            "easy:depth=1.5",
            "depth of policy easy is 1.5; allowed: 0, 1, 2, ... or inf",
            "1 is EASY, inf is conservative.",
        ),
        ("easy:quantile=1.5", "quantile of policy easy is 1.5; allowed: 0 to 1", ""),
        ("easy:quantile=nan", "quantile of policy easy is 'nan'; allowed: a number", ""),
        ("easy:depth=deep", "depth of policy easy is 'deep'; allowed: a number", ""),
        ("easy:per_instant=1", "per_instant of policy easy is '1'; allowed: true or false", ""),
        ("workload:period=soon", "period of policy workload is 'soon'; allowed: a number", ""),
        ("priority:emergency=nan", "emergency of policy priority is 'nan'; allowed: a number", ""),
        ("workload:period=", "period of policy workload is ''; allowed: a number", ""),
    ],
)
def test_what_cannot_be_found_is_said(text: str, words: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        registry.find(text)
    assert str(raised.value.args[0]).startswith(words)
    assert raised.value.hint == hint


def test_what_is_installed_is_told_with_its_parameters() -> None:
    offers = {offer.name: offer for offer in registry.installed()}
    assert [name for name in offers if name in NAMES] == NAMES == sorted(registry.BUILT_IN)
    listed = [("every_task", False), ("per_instant", True)]
    assert {name: [(known.name, known.default) for known in offers[name].parameters] for name in NAMES} == {
        "anneal": [("steps", 5_000), ("first", 1_000_000), ("seed", 0), ("per_instant", True)],
        **dict.fromkeys(("atc", "greedy", "hprf", "lst", "lstr", "wspt"), listed),
        "conservative": [("order", "release"), ("per_instant", False)],
        "deadline": [
            *(("spare", "due"), ("caution", 0.0), ("emergency", math.inf), ("foresight", True)),
            ("per_instant", True),
        ],
        "easy": [("order", "release"), ("depth", 1.0), ("per_instant", False), ("backfill", ""), ("quantile", 0.2)],
        "edf": [("per_instant", True)],
        "fcfs": [("order", "release"), ("per_instant", False)],
        "heft": [
            ("holes", "soonest"),
            ("order", "pooled"),
            ("average", "distinct"),
            ("mend", 100),
            ("improve", 0),
            ("per_instant", True),
        ],
        "peft": [("mend", 100), ("per_instant", True)],
        "keasy": [("order", "release"), ("threshold", 0.96), ("per_instant", False)],
        "measy": [("order", "release"), ("threshold", 0.96), ("per_instant", False)],
        "priority": [("reserve", 0.0), ("spare", "none"), ("emergency", math.inf), ("per_instant", True)],
        "proportion": [("spare", "none"), ("per_instant", True)],
        "reasy": [("order", "release"), ("threshold", 0.96), ("per_instant", False)],
        "instances": [("per_instant", False)],
        "services": [
            *(("top", "dp"), ("batch", "auto"), ("model", "queueing"), ("kill", False)),
            *(("switching", True), ("warm", 0.0), ("on", ""), ("beside", ""), ("keeps", "")),
            ("per_instant", True),
        ],
        "sites": [
            *(("top", "rr"), ("each", "easy"), ("at", ""), ("per_instant", False)),
            *(("estimate", "mean"), ("adaptive", True), ("order", ""), ("check", 0.0), ("queue", "release")),
            *(("rent", "cheapest"), ("spare", 0.25)),
        ],
        "sjf": [("per_instant", False)],
        "tempo": [
            *(("floor", True), ("strict", True), ("kill", True), ("redo", 1.0), ("lookahead", 0.2)),
            ("per_instant", True),
        ],
        "workload": [("period", 60.0), ("spare", "priority"), ("emergency", math.inf), ("per_instant", True)],
    }
    assert all(offers[name].summary.endswith(".") for name in NAMES)
    assert offers["sjf"].summary.endswith("Order: shortest.")
    assert (
        offers["measy"].summary
        == "EASY backfilling whose waiting jobs run in the background meanwhile. Moves: migrate."
    )


MODULE = '''
"""Somebody else's policies."""
from dataclasses import dataclass

@dataclass(frozen=True)
class Last:
    """The last that came goes first."""
    most: int = 2
    per_instant = False
    task_rounds = False

    def __call__(self, view):
        plan, free = view.plan(), view.free
        for job in view.waiting[: -self.most - 1 : -1]:
            if free:
                plan.hold(job.id, free & -free)
                free &= free - 1
        return plan

def demanding(wanted):
    return Last(int(wanted))

def careless():
    return lambda view: view.plan()

def failing():
    raise RuntimeError("no disk")

number = 5
'''


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is installed beside Headway and names policies under its entry point."""
    (tmp_path / "elsewhere_policies.py").write_text(MODULE)
    metadata = tmp_path / "elsewhere-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[headway.policies]\n"
        "last = elsewhere_policies:Last\n"
        "demanding = elsewhere_policies:demanding\n"
        "broken = elsewhere_policies.not_there:Policy\n"
        "careless = elsewhere_policies:careless\n"
        "failing = elsewhere_policies:failing\n"
        "number = elsewhere_policies:number\n"
        "easy = elsewhere_policies:Last\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("added")
class TestAdded:
    def test_a_policy_of_another_package_is_found_and_decides(self) -> None:
        scheduler = Scheduler(registry.find, "last:most=1")
        for number in (1, 2, 3):
            scheduler.handle(JobSubmitted(0, job(number, width=1)))
        scheduler.handle(NodeJoined(0, node(slots=2)))
        assert [number for number, view in scheduler.state.jobs.items() if view.attempts] == [3]

    def test_it_is_offered_with_its_parameters(self) -> None:
        offers = {offer.name: offer for offer in registry.installed()}
        assert offers["last"].summary == "The last that came goes first."
        assert offers["last"].parameters == (registry.Parameter("most", 2),)

    def test_its_values_are_checked_by_the_type_of_the_default(self) -> None:
        with pytest.raises(InvalidInput, match="most of policy last is 'two'; allowed: a whole number"):
            registry.find("last:most=two")
        with pytest.raises(InvalidInput, match="parameter of policy last is 'least'"):
            registry.find("last:least=1")

    def test_its_name_is_offered_where_it_is_near(self) -> None:
        with pytest.raises(InvalidInput, match="Did you mean last") as raised:
            registry.find("lastt")
        assert "last" in raised.value.allowed

    def test_headways_own_names_win(self) -> None:
        assert registry.find("easy") == Easy()
        assert [offer.name for offer in registry.installed()].count("easy") == 1

    def test_a_parameter_that_has_to_be_given_is_asked_for(self) -> None:
        with pytest.raises(InvalidInput, match="parameter of policy demanding is ''; allowed: wanted=VALUE"):
            registry.find("demanding")
        assert registry.find("demanding:wanted=3")

    def test_one_that_cannot_be_loaded_is_said_and_harms_no_other(self) -> None:
        with pytest.raises(HeadwayError, match=r"policy broken cannot be loaded: .*not_there"):
            registry.find("broken")
        offers = {offer.name: offer.summary for offer in registry.installed()}
        assert offers["broken"].startswith("cannot be loaded: ")
        assert offers["number"] == "cannot be loaded: 5 is not a callable object"
        assert offers["last"] == "The last that came goes first."

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("number", "policy number cannot be loaded: 5 is not a callable object"),
            ("failing", "policy failing cannot be made: RuntimeError: no disk"),
            ("careless", "policy careless has no per_instant"),
        ],
    )
    def test_what_is_no_policy_is_refused_before_it_is_to_decide(self, name: str, said: str) -> None:
        with pytest.raises(HeadwayError, match=said):
            registry.find(name)


@pytest.mark.parametrize("caution", [-0.1, math.inf, math.nan])
def test_caution_is_a_number_from_zero(caution: float) -> None:
    with pytest.raises(InvalidInput, match="caution"):
        Deadline(caution=caution)


@pytest.mark.parametrize("name", sorted(registry.BUILT_IN.keys() - {"instances", "services"}))
def test_it_is_known_which_policies_decide_by_priorities(name: str) -> None:
    """Bags and rigid jobs of equal priority, and the same with priorities by chance: is anything decided otherwise?"""
    log = transforms.due_dates(transforms.first(standin(), 120), factor=3.0)
    chance = np.random.default_rng(3)
    bags, width = chance.random(len(log)) < 0.5, np.minimum(log.width, 16)
    log = replace(
        log,
        release=log.release // 20,
        kind=np.where(bags, int(Kind.BAG), int(Kind.RIGID)).astype(np.int8),
        tasks=np.where(bags, width, 1),
        width=np.where(bags, 1, width),
    )
    same, drawn = (
        Simulation(replace(log, priority=priority), [node(slots=32)], registry.find, name).run()
        for priority in (np.ones(len(log)), chance.integers(1, 9, len(log)).astype(float))
    )
    assert registry.ignores_priorities(name) == (same.start == drawn.start).all()


@pytest.mark.parametrize("name", sorted(name for name in registry.BUILT_IN if registry.ignores_priorities(name)))
def test_what_is_named_instead_decides_by_them(name: str) -> None:
    instead = registry.by_priority_instead(name)
    registry.find(instead)
    assert not registry.ignores_priorities(instead)
