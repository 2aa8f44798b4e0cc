"""All five papers in one, in the simulator: what must hold, and what each part of the policy is needed for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.config import read_cluster, read_renting
from headway.core.scheduler import Scheduler
from headway.policies import registry
from headway.reproduce import together
from headway.reproduce.together import LATE, POLICY, STEADY, UNRENTED, Files, Outcome, simulated
from headway.sim.experiment import ServiceLoad
from headway.sim.kernel import Simulation
from headway.sim.world import World

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
