"""All five papers in one, in the simulator: what must hold, and what each part of the policy is needed for."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pytest

from headway.config import read_cluster, read_renting
from headway.core.scheduler import Scheduler
from headway.model.instant import NEVER, SECOND
from headway.model.job import Kind, TaskSpec
from headway.model.node import NodeSpec
from headway.model.renting import UNIT, Offer, Renting
from headway.model.schedule import STATUSES
from headway.model.workload import workload_us
from headway.policies import registry
from headway.reproduce import together
from headway.reproduce.together import LATE, POLICY, STEADY, UNRENTED, Files, Outcome, simulated
from headway.sim.experiment import ServiceLoad
from headway.sim.faults import Outage
from headway.sim.kernel import Simulation
from headway.sim.world import World

from ..effort import seeds

SITES: Final = ("private", "east", "west")

SEEDS = (1, 2, 3)
OVERHEADS = (0.0, 0.02, 0.08)
"""Seconds that a task holds its slot longer than it sleeps, as they are found live."""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found = Files(tmp_path)
    found.write(seed=1)
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("late", OVERHEADS)
def test_under_one_policy_each_paper_does_its_part(tmp_path: Path, seed: int, late: float) -> None:
    files = Files(tmp_path)
    files.write(seed)
    found = simulated(files, late=late)
    rush = round(together.RUSH[0] / together.WINDOW)
    assert found.instances[rush] == 2, "Chang16: the border has not moved yet"
    assert found.instances[rush + 1 : rush + 4] == (4, 4, 4), "it follows the rush"
    assert found.share_in(*STEADY) == 1.0, "and the answers are in time"
    assert found.jobs["fourth"].tiers == "xbf", "a rigid job gave way, and went on in the tier that was left"
    assert found.jobs["wide"].tiers == "bf", "MEASY14: suspended behind another job, and resumed"
    assert found.sites("flow") == ("east", "west"), "DN13"
    assert found.sites("nightly") == ("east",), "Kim12: the preferred site, as long as that is in time"
    assert found.sites(LATE) == ("east", "public", "west")
    assert found.machines == ("public-r1", "public-r2")
    assert found.money == pytest.approx(0.3)
    assert found.late == {"fourth"}, "its penalty is less than that of late answers"


@pytest.mark.parametrize("late", OVERHEADS)
def test_only_rented_machines_save_the_due_date(files: Files, late: float) -> None:
    without = simulated(files, UNRENTED, late=late)
    assert without.machines == ()
    assert without.late == {"fourth", LATE}
    assert without.jobs[LATE].end - simulated(files, late=late).jobs[LATE].end > 5


def test_if_the_border_could_not_follow_answers_would_be_late_and_no_job_would_give_way(files: Files) -> None:
    table = files.services.read_text()
    files.services.write_text(table.replace(",1,5,", ",1,2,"))
    kept = simulated(files)
    assert kept.share_in(*together.RUSH) < 0.1
    assert kept.jobs["fourth"].tiers == "f"
    assert kept.late == frozenset()


def test_without_tiers_rigid_jobs_wait(files: Files) -> None:
    one_tier = simulated(files, POLICY.replace("measy", "easy"))
    both = simulated(files)
    assert one_tier.jobs["wide"].tiers == "f"
    assert one_tier.jobs["wide"].end > both.jobs["wide"].end
    assert one_tier.jobs["fourth"].end > both.jobs["fourth"].end


def test_without_preferred_sites_beside_nothing_is_rented(files: Files) -> None:
    alone = simulated(files, "services:top=dp,kill=true,batch=tempo")
    assert alone.machines == ()
    assert LATE in alone.late


def test_the_state_is_sound_after_every_event(files: Files) -> None:
    def audit(core: Scheduler) -> None:
        core.check()

    simulation = Simulation(
        files.workload(),
        read_cluster(files.cluster, simulated=True),
        registry.find,
        POLICY,
        services=[ServiceLoad(**files.service()).made(7, 11)],
        renting=read_renting(files.cluster),
        world=World(tiers=together.SLEEPING),
        audit=audit,
    )
    done = simulation.run()
    assert not done.refused
    assert np.isin(done.status, done.status[0]).all()


@pytest.mark.parametrize("seed", seeds(range(4), range(4, 40)))
def test_whatever_comes_and_whichever_node_fails_every_job_ends(seed: int) -> None:
    """Jobs of all forms and a service, on sites whose nodes go down and come back; the state is sound throughout."""
    chance = Random(seed)
    nodes = [NodeSpec(f"{site}-{n}", chance.randint(2, 4), site=site) for site in SITES for n in range(2)]
    kinds = [chance.choice([Kind.BAG, Kind.RIGID, Kind.WORKFLOW]) for _ in range(40)]
    releases = sorted(chance.randint(0, 60) for _ in kinds)
    runtimes = [chance.randint(1, 9) * SECOND for _ in kinds]
    graph = (TaskSpec(2 * SECOND), TaskSpec(SECOND, cores=2, after=(0,)), TaskSpec(SECOND, after=(0,)))
    workload = workload_us(
        release=[at * SECOND for at in releases],
        runtime=runtimes,
        estimate=runtimes,
        kind=list(map(int, kinds)),
        tasks=[{Kind.BAG: chance.randint(1, 6), Kind.RIGID: 1, Kind.WORKFLOW: 3}[kind] for kind in kinds],
        width=[chance.randint(1, 4) if kind is Kind.RIGID else 1 for kind in kinds],
        due=[(at + chance.randint(5, 40)) * SECOND if chance.random() < 0.7 else NEVER for at in releases],
        workflows={place: graph for place, kind in enumerate(kinds) if kind is Kind.WORKFLOW},
    )
    outages = [
        Outage(node.name, begin, begin + chance.randint(1, 20))
        for node in nodes
        for begin in [chance.randint(0, 60)]
        if chance.random() < 0.7
    ]
    web = ServiceLoad("web", sorted(chance.uniform(0, 80) for _ in range(900)), 0.1, 0.4, window=5.0, least=1)
    policy = chance.choice([POLICY, POLICY.replace("kill=true,", ""), POLICY.replace("keeps=rigid", "keeps=bag/rigid")])
    offer = Offer("public", "small", 2, UNIT, start_time=2 * SECOND, limit=3)

    def audit(core: Scheduler) -> None:
        core.check()

    total = sum(node.slots for node in nodes)
    done = Simulation(
        *(workload, nodes, registry.find, policy),
        outages=outages,
        services=[web.made(len(workload), total)],
        renting=Renting((offer,)),
        audit=audit,
    ).run()
    assert [STATUSES[status].value for status in done.status.tolist()] == ["succeeded"] * len(workload)
    assert sum(window.arrivals for window in done.services[0].windows) == 900
    assert not {rule for rule in done.refused if rule.startswith("policy_raised")}


def test_the_files_say_what_is_run(files: Files) -> None:
    workload, terms = files.workload(), files.service()
    assert sorted(workload.label.tolist()) == ["flow", "fourth", "front", "nightly", LATE, "third", "wide"]
    assert set(together.FORMS) == set(workload.label.tolist())
    assert terms["arrivals"].tolist() == together.arrivals(1)
    again = simulated(files)
    assert again.jobs == simulated(files).jobs, "the same files, the same run"


def outcome(**terms: Any) -> Outcome:
    base: dict[str, Any] = {"machines": ("r1",), "money": 0.2, "instances": (1.0,), "shares": (1.0,), "in_time": 1.0}
    fates = {name: together.Fate(0.0, 1.0, name in terms.get("late", ()), "f", frozenset({"east-1"})) for name in "ab"}
    fates["wide"] = together.Fate(0.0, 1.0, False, terms.get("tiers", "bf"), frozenset({"private-1"}))
    schedule: Any = None
    given = {name: value for name, value in terms.items() if name in base}
    return Outcome(jobs=fates, schedule=schedule, **base | given)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({}, []),
        ({"late": ("a",)}, ["late live: ['a']; simulated: []"]),
        ({"machines": ()}, ["rented live: (); simulated: ('r1',)"]),
        ({"money": 0.4}, ["paid live: 0.40; simulated: 0.20"]),
        ({"tiers": "f"}, ["wide live: in front; simulated: behind, in front"]),
    ],
)
def test_what_should_be_equal_and_is_not_is_told(terms: dict[str, Any], said: list[str]) -> None:
    assert together.disagreements(outcome(**terms), outcome()) == said
