"""How jobs are dealt to sites: in turn, by numbers of jobs, or by the work that a site can do in time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.model.events import DeciderChosen, JobSubmitted, NodeDown, NodeJoined, NodeUp, Woke
from headway.model.instant import SECOND
from headway.model.job import BATCH, JobSpec, Rigid, TaskSpec, Workflow
from headway.model.node import NodeSpec, Power
from headway.model.policy import ALL_KINDS, serves_of
from headway.policies import deals, registry
from headway.testing import job

THIRSTY = NodeSpec("t", 4, site="thirsty", power=Power(100.0, 400.0))
SPARING = NodeSpec("s", 4, site="sparing", power=Power(20.0, 100.0))
SMALL = NodeSpec("o", 1, 2.0, site="small", power=Power(10.0, 20.0))


def flow(number: int, *tasks: tuple[int, int, tuple[int, ...]], due: int | None = None) -> Workflow:
    """A workflow of tasks (seconds, cores, tasks before it)."""
    return Workflow(number, graph=tuple(TaskSpec(time * SECOND, *rest) for time, *rest in tasks), due=due)


def dealt(top: str, nodes: Sequence[NodeSpec], jobs: Sequence[JobSpec]) -> dict[int, str]:
    """To which site each of some jobs is dealt that come at once."""
    core = Scheduler(registry.find, f"sites:top={top},each=fcfs,per_instant=true")
    for spec in nodes:
        core.handle(NodeJoined(0, spec))
    for spec in jobs:
        core.handle(JobSubmitted(0, spec))
    core.handle(Woke(0))
    core.check()
    return {number: view.pool.name for number, view in core.state.jobs.items()}


def test_lb_deals_those_that_need_most_cores_first_to_the_site_with_the_fewest_jobs() -> None:
    jobs = [flow(0, (1, 1, ())), flow(1, (1, 1, ())), flow(2, (1, 4, ())), flow(3, (1, 1, ()), (1, 3, (0,)))]
    # 2 and 3 go to the two sites that can hold them, then 0 to the one without jobs, and 1 to the first of three.
    assert dealt("lb", [THIRSTY, SPARING, SMALL], jobs) == {2: "thirsty", 3: "sparing", 0: "small", 1: "thirsty"}


def test_fill_prefers_the_site_that_takes_the_least_energy_while_it_has_room() -> None:
    jobs = [flow(number, (10, 1, ())) for number in range(16)]
    found = dealt("fill", [THIRSTY, SPARING], jobs)
    # The horizon is 160 slot-seconds over 8 slots, 20 s. In that time the sparing site can do 8 of the 16 jobs.
    assert [found[number] for number in range(16)] == ["sparing"] * 8 + ["thirsty"] * 8


def test_fill_leaves_a_tenth_to_workflows_whose_tasks_wait_for_one_another() -> None:
    jobs = [flow(number, (5, 1, ()), (5, 1, (0,))) for number in range(20)]
    found = dealt("fill", [THIRSTY, SPARING], jobs)
    # The horizon is 25 s. Of the 10 jobs that a site can do until then, 9 go to the sparing one at first, and 9 to the
    # other; the last two go where they are done soonest.
    assert [found[number] for number in range(18)] == ["sparing"] * 9 + ["thirsty"] * 9
    assert {found[18], found[19]} == {"sparing", "thirsty"}


def test_fill_without_watts_deals_to_the_site_that_is_done_soonest() -> None:
    nodes = [NodeSpec("a", 1, site="slow"), NodeSpec("b", 1, 3.0, site="fast")]
    found = dealt("fill", nodes, [flow(number, (10, 1, ())) for number in range(8)])
    assert sorted(found.values()) == ["fast"] * 6 + ["slow"] * 2


def test_fill_sends_a_long_critical_path_to_a_fast_site() -> None:
    nodes = [NodeSpec("a", 9, site="many"), NodeSpec("b", 1, 3.0, site="fast")]
    long = flow(0, *((10, 1, (before - 1,) if before else ()) for before in range(9)))
    found = dealt("fill", nodes, [long, *(flow(number, (10, 1, ())) for number in range(1, 4))])
    assert found[0] == "fast"


def test_a_task_blocks_what_no_equal_task_can_use() -> None:
    core = Scheduler(registry.find, "fcfs")
    core.handle(NodeJoined(0, NodeSpec("a", 4)))
    core.handle(NodeJoined(0, NodeSpec("b", 6)))
    four, six = (deals.Site(name, [core.state.nodes[name]], None) for name in "ab")
    assert [four.blocks(cores) for cores in (1, 2, 3, 4, 5)] == [1.0, 2.0, 4.0, 4.0, 5.0], "5 do not fit: all they need"
    assert [six.blocks(cores) for cores in (1, 2, 3, 4, 5, 6)] == [1.0, 2.0, 3.0, 6.0, 6.0, 6.0]


def test_weights_beside_each_size() -> None:
    core = Scheduler(registry.find, "fcfs")
    core.handle(NodeJoined(0, NodeSpec("a", 4)))
    core.handle(NodeJoined(0, NodeSpec("b", 6)))
    four, six = (deals.Site(name, [core.state.nodes[name]], None) for name in "ab")
    assert [four.weights(cores) for cores in (1, 2, 3, 4)] == [(1, 0), (1, 1), (1, 4 / 3), (1, 1)]
    assert [six.weights(cores)[1:] for cores in (1, 2, 3, 4, 5, 6)] == [
        *[(0, 0), (0, 1), (1, 1), (6 / 4, 1), (6 / 5, 6 / 5), (1, 1)]
    ], "beside tasks of 3, then of 2"
    assert six.weights(7) == (1.0,), "it does not fit"


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 6, 7, 16, 64])
def test_what_fits_on_a_node_at_once_weighs_no_more_than_the_node(slots: int) -> None:
    core = Scheduler(registry.find, "fcfs")
    core.handle(NodeJoined(0, NodeSpec("a", slots)))
    site = deals.Site("a", [core.state.nodes["a"]], None)
    chance = Random(slots)
    for _ in range(200):
        left, weighed = slots, [0.0] * len(site.weighed)
        while left:
            cores = chance.randint(1, left)
            left -= cores
            weighed = [one + cores * more for one, more in zip(weighed, site.weights(cores), strict=True)]
        assert max(weighed) <= slots + 1e-9


def test_cores_that_share_a_slot_count_as_slots() -> None:
    core = Scheduler(registry.find, "fcfs")
    core.handle(NodeJoined(0, NodeSpec("a", 2, cores=8)))
    site = deals.Site("a", [core.state.nodes["a"]], None)
    assert (site.blocks(1), site.blocks(4), site.blocks(8)) == (1.0, 1.0, 2.0)


def test_a_site_is_dealt_only_what_its_policy_serves() -> None:
    policy = "sites:each=fcfs,at=b/instances"
    core = Scheduler(registry.find, policy)
    for name in "ab":
        core.handle(NodeJoined(0, NodeSpec(name, 2, site=name)))
    for number in range(3):
        core.handle(JobSubmitted(0, job(number)))
    core.handle(Woke(0))
    assert [view.pool.name for view in core.state.jobs.values()] == ["a"] * 3
    assert serves_of(registry.find(policy)) == ALL_KINDS
    assert serves_of(registry.find("sites")) == BATCH
    core.check()


def test_the_horizon_is_a_lower_bound() -> None:
    wide, narrow = [(100, 4, ())], [(600, 1, ())]
    for graphs, expected in (
        ([wide], 100),
        ([narrow], 300),
        ([wide, narrow], 300),
        ([wide] * 4, 400),
        ([narrow] * 6, 600),
    ):
        core = Scheduler(registry.find, "fcfs")
        for spec in (THIRSTY, SMALL):
            core.handle(NodeJoined(0, spec))
        for number, graph in enumerate(graphs):
            core.handle(JobSubmitted(0, flow(number, *graph)))
        sites = [deals.Site(name, [core.state.nodes[node]], None) for name, node in (("thirsty", "t"), ("small", "o"))]
        demands = [deals.Demand(core.state.jobs[number]) for number in range(len(graphs))]
        allowed = [deals.candidates(demand.job, demand.cores, sites) for demand in demands]
        assert deals.horizon(demands, allowed, sites) == expected * SECOND


def test_rigid_jobs_and_bags_are_dealt_too() -> None:
    jobs = [Rigid(0, estimate=9 * SECOND, width=4), job(1, tasks=3, estimate=9), job(2, width=2, estimate=9)]
    for top in deals.DEAL_RULES:
        found = dealt(top, [THIRSTY, SPARING, SMALL], jobs)
        assert set(found) == {0, 1, 2}
        assert found[0] in ("thirsty", "sparing")
        assert all(found.values())


@pytest.mark.parametrize("top", sorted(deals.DEAL_RULES))
def test_a_wide_job_goes_where_enough_slots_are_up(top: str) -> None:
    core = Scheduler(registry.find, f"sites:top={top},each=fcfs")
    for name, site, slots in (("a", "west", 2), ("b", "west", 2), ("c", "east", 3)):
        core.handle(NodeJoined(0, NodeSpec(name, slots, site=site)))
    core.handle(NodeDown(1, "b"))
    for number, width in enumerate((3, 3, 4)):
        core.handle(JobSubmitted(2, Rigid(number, estimate=9 * SECOND, width=width)))
    core.handle(Woke(2))
    assert [view.pool.name for view in core.state.jobs.values()] == ["east", "east", "west"]
    assert "west: too few of its slots are up" in core.why_there(1)
    core.handle(NodeUp(3, "b"))
    core.handle(Woke(3))
    assert [view.pool.name for view in core.state.jobs.values()] == ["east", "east", "west"], "they stay"
    core.check()


def test_an_unknown_rule_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="top of policy sites is 'best'; allowed: rr, lb, fill"):
        registry.find("sites:top=best")


def explained(top: str, nodes: Sequence[NodeSpec], jobs: Sequence[JobSpec]) -> Scheduler:
    """A core that has dealt these jobs, which come at once."""
    core = Scheduler(registry.find, f"sites:top={top},each=fcfs,per_instant=true")
    for spec in nodes:
        core.handle(NodeJoined(0, spec))
    for spec in jobs:
        core.handle(JobSubmitted(0, spec))
    core.handle(Woke(0))
    return core


def test_in_turn_and_fewest_jobs_say_why_a_job_is_where_it_is() -> None:
    jobs = [flow(number, (10, 1, ())) for number in range(3)] + [flow(3, (10, 4, ()))]
    core = explained("rr", [THIRSTY, SMALL], jobs)
    said = "because jobs go to the sites in turn. Now: thirsty: was dealt 3; small: was dealt 1"
    assert core.why_there(0) == f"it is at site thirsty, {said}"
    assert core.why_there(1) == f"it is at site small, {said}"
    assert core.why_there(3) == "it is at site thirsty, because no other site can hold it"
    core = explained("lb", [THIRSTY, SPARING, SMALL], [*jobs, flow(4, (10, 4, ()))])
    core.handle(NodeDown(1, "s"))
    core.handle(Woke(1))
    assert core.why_there(4) == (
        "it is at site thirsty, because site sparing, where it was before, could not run it any more, so it was dealt "
        "again: a job goes to the site that was dealt the fewest jobs so far. "
        "Now: thirsty: was dealt 3; sparing: is down; small: cannot hold it"
    )


def test_fill_says_energy_and_load_of_each_site_as_if_the_job_were_dealt_now() -> None:
    core = explained("fill", [THIRSTY, SPARING], [flow(number, (10, 1, ())) for number in range(4)])
    before = core.dump()
    # The horizon is a critical path, 10 s. A job fills a quarter of a site until then, and takes 10 s of a quarter of
    # 100 W or 400 W.
    assert [core.state.jobs[number].pool.name for number in range(4)] == ["sparing"] * 4
    assert core.why_there(0).endswith("Now: thirsty: 1e+03 J, load 25%; sparing: 250 J, load 100%")
    assert "the least energy of those that have room (load with it up to 102%" in core.why_there(0)
    assert core.dump() == before, "an explanation changes nothing"


def test_why_a_job_is_where_it_is_does_not_concern_what_is_nowhere_or_dealt_by_a_decider() -> None:
    core = explained("fill", [THIRSTY], [flow(0, (10, 9, ())), flow(1, (10, 1, ()))])
    assert core.why_there(0) == ""
    core.handle(DeciderChosen(1, "http://there"))
    assert core.why_there(1) == "it is at site thirsty, because the decider at http://there says so"
    with pytest.raises(KeyError):
        core.why_there(7)
