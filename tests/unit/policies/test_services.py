"""The border between services and batch jobs: who gets how many slots, and which."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest

from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.model.events import JobSubmitted, NodeDown, NodeDrained, NodeJoined, NodeUp, TaskEnded, WindowEnded, Woke
from headway.model.instant import SECOND
from headway.model.job import JobSpec, Service
from headway.model.outcome import Outcome
from headway.model.slots import count
from headway.model.window import Window
from headway.policies import registry
from headway.policies.listing import SlotTimes, ends, total_penalty
from headway.policies.sequence import Load, greedy
from headway.policies.serving import Traffic, fluid
from headway.testing import job, node

W = 20 * SECOND


def core(policy: str, slots: int, *jobs: JobSpec) -> Scheduler:
    """A cluster on which these jobs wait or run, and all that follows at once has followed."""
    scheduler = Scheduler(registry.find, policy)
    scheduler.handle(NodeJoined(0, node("n", slots=slots)))
    for each in jobs:
        scheduler.handle(JobSubmitted(0, each))
    fed(scheduler)
    return scheduler


def fed(scheduler: Scheduler, *events: Any) -> dict[str, int]:
    """How many slots each pool has or is about to get, when these have happened."""
    for event in events:
        scheduler.handle(event)
    scheduler.handle(Woke(scheduler.state.now))
    scheduler.check()
    found = {pool.name: count(pool.up) for pool in scheduler.state.others}
    usable = sum(known.slots for known in scheduler.state.nodes.values() if not known.draining)
    for pool in scheduler.state.others:
        for name, leaving in pool.leaving.items():
            found[name] += count(leaving & usable)
    return found


def service(number: int, **terms: Any) -> Service:
    return Service(number, **{"most": 99, "threshold": SECOND // 10, "window": W, **terms})


def window(arrivals: int, in_time: int = 0, *, queued: int = 0, ended: int = 1) -> Window:
    """The window that ends as this one in order; requests take 40 ms."""
    return Window(W * (ended - 1), W, arrivals, in_time, queued, 1.0, 40_000.0, 1.0, 1.0)


@pytest.mark.parametrize("seed", range(12))
def test_dp_finds_the_least_penalty_of_all_splits(seed: int) -> None:
    """Equations 7, 8 and 13, against every split of the units in turn. The batch jobs are brought to the window."""
    chance = Random(seed)
    slots = 9
    bags = [
        job(
            number,
            tasks=chance.randint(1, 6),
            estimate=chance.randint(5, 60),
            due=chance.randint(1, 300),
            rate=float(chance.randint(1, 40)),
        )
        for number in range(1, 6)
    ]
    services = [service(number, rate=float(chance.choice([100, 3_000]))) for number in (7, 8)]
    scheduler = core("services:top=dp,model=fluid,batch=edf", slots, *bags, *services)
    came = [window(chance.randint(0, 3_000), queued=chance.randint(0, 50)) for _ in services]
    last = came[-1]
    scheduler.handle(WindowEnded(W, 7, came[0]))
    found = fed(scheduler, WindowEnded(W, 8, last))

    left = [scheduler.state.jobs[bag.id] for bag in bags if bag.id in scheduler.state.jobs]
    loads = [
        Load(each.ready + len(each.attempts), each.estimate, each.due, each.spec.rate, each.spec.shape) for each in left
    ]

    def batch(units: int) -> tuple[float, int]:
        """The penalty of the batch jobs, and when the last one ends."""
        done = ends(loads, list(greedy(loads, units, W)), SlotTimes([(W, units)]))
        return total_penalty(loads, done), max(done)

    whole = batch(slots)[1] - W

    def cost(split: tuple[int, ...]) -> float:
        share = [
            fluid(Traffic(one.arrivals * SECOND / W, 40_000, one.queued), SECOND // 10, W, some)
            for one, some in zip(came, split, strict=True)
        ]
        late = batch(slots - sum(split))[0]
        late *= min(1.0, W / whole)
        return late + sum(spec.penalty(one) for spec, one in zip(services, share, strict=True))

    costs = {split: cost(split) for split in product(range(slots), repeat=2) if sum(split) < slots}
    ours = found["service 1"], found["service 2"]
    assert costs[ours] == pytest.approx(min(costs.values()))
    assert found["batch"] == slots - sum(ours)


def test_halves_and_shares_of_penalties() -> None:
    """8 of 16 slots; then 30 of 40 parts of the penalty; at most nine tenths."""
    late = job(1, tasks=99, estimate=1000, due=10, rate=1.0)
    web = service(2, rate=100.0)
    assert fed(core("services:top=sf", 16, late, web))["service 1"] == 8
    scheduler = core("services:top=pp", 16, late, web)
    assert fed(scheduler)["service 1"] == 8, "neither has paid yet"
    assert fed(scheduler, WindowEnded(W, 2, window(100, 60)))["service 1"] == 12, "30 of 40: late by 10 s"
    later = WindowEnded(2 * W, 2, window(100, 90, ended=2))
    assert fed(scheduler, later)["service 1"] == 1, "a tenth, rounded down"


def test_with_nothing_else_to_do_services_have_all() -> None:
    assert fed(core("services", 8, service(1)))["service 1"] == 8
    assert fed(core("services", 8, service(1, most=3))) == {"service 1": 3, "batch": 5}


def test_free_slots_change_hands_at_once_and_busy_ones_when_their_tasks_end() -> None:
    tasks = job(1, tasks=3, estimate=100, due=900)
    scheduler = core("services:top=sf,batch=edf", 4, tasks)
    assert scheduler.state.pools["batch"].busy == 0b111
    fed(scheduler, JobSubmitted(1, service(2, most=2)))
    assert scheduler.state.pools["service 1"].up == 0b1000, "the free one"
    leaving = scheduler.state.pools["batch"].leaving["service 1"]
    assert count(leaving) == 1
    assert scheduler.state.totals().up == 0b1111, "one that changes hands is up"
    assert fed(scheduler, TaskEnded(2, 1, leaving.bit_length() - 1, 1))["service 1"] == 2
    assert len(scheduler.state.jobs[2].attempts) == 2


def test_with_kill_what_may_be_killed_makes_room_at_once() -> None:
    bag, rigid = job(1, tasks=2, estimate=100, due=900), job(3, width=2, estimate=100, preemptible=False)
    scheduler = core("services:top=sf,batch=edf,kill=true", 4, bag, rigid)
    fed(scheduler, JobSubmitted(1, service(2)))
    ending = [attempt.job.id for attempt in scheduler.state.runs() if attempt.ending]
    assert set(ending) <= {1}, "the other one must not be killed"
    for task in (0, 1):
        fed(scheduler, TaskEnded(2, 1, task, 1, Outcome.KILLED))
    assert scheduler.state.jobs[2].attempts


def test_a_wide_job_gets_its_width_and_a_node_that_drains_counts_no_more() -> None:
    scheduler = core("services:top=dp,batch=easy", 4, service(1))
    scheduler.handle(NodeJoined(0, node("m", slots=4)))
    assert fed(scheduler)["service 1"] == 8
    found = fed(scheduler, JobSubmitted(1, job(2, width=7, estimate=10, due=20)))
    assert (found["service 1"], found["batch"]) == (1, 7)
    assert sum(fed(scheduler, NodeDrained(2, "m"), WindowEnded(W, 1, window(10))).values()) == 4


def test_the_shortest_backlog_is_answered_first() -> None:
    """20,000 and 9,000 requests of 40 ms wait, and 12 slots answer 6,000 in a window. By itself it is lost for both."""
    found = {}
    for top in ("dp", "ahead"):
        scheduler = core(f"services:top={top}", 12, service(1, rate=10_000.0), service(2, rate=10_000.0))
        scheduler.handle(WindowEnded(W, 1, window(500, queued=20_000)))
        pools = fed(scheduler, WindowEnded(W, 2, window(500, queued=9_000)))
        found[top] = [pools["service 1"], pools["service 2"]]
    assert found == {"dp": [6, 6], "ahead": [0, 12]}


def test_with_kill_slots_are_taken_where_least_work_is_lost() -> None:
    """One job has run for 60 s of 100, the other one for 10 s of 200: this one loses less, that one ends sooner."""
    older, younger = job(1, tasks=2, estimate=100, due=900), job(3, tasks=2, release=50, estimate=200, due=900)
    for policy, taken in (("services:top=sf,batch=edf,kill=true", 3), ("services:top=sf,batch=edf", 1)):
        scheduler = core(policy, 4, older)
        fed(scheduler, JobSubmitted(50 * SECOND, younger))
        fed(scheduler, JobSubmitted(60 * SECOND, service(2)))
        leaving = scheduler.state.pools["batch"].leaving["service 1"]
        assert {one.job.id for one in scheduler.state.runs() if one.slots & leaving} == {taken}


@pytest.mark.parametrize(
    ("policy", "measured", "slots"),
    [
        ("services:top=ahead", 0.0, 11),
        ("services:top=ahead,warm=19", 0.0, 3),
        ("services:top=ahead", 19.0, 3),
        ("services:top=ahead,warm=19", 0.001, 11),
        ("services:top=ahead,warm=19,switching=false", 19.0, 11),
        ("services:top=ahead,kill=true", 0.0, 4),
        ("services:top=ahead,kill=true,switching=false", 0.0, 11),
    ],
)
def test_ahead_moves_slots_if_that_is_worth_what_it_costs(policy: str, measured: float, slots: int) -> None:
    """New instances warm up for most of a window, if that was measured or is expected; or tasks that have run for a
    window are redone. Otherwise the service would get 11 slots.
    """
    late = job(1, tasks=400, estimate=10, due=1, rate=10.0)
    scheduler = core(policy, 16, late, service(2, rate=10_000.0, least=1))
    found = fed(scheduler, WindowEnded(W, 2, replace(window(1_000), warm_up=measured * SECOND)))
    assert found["service 1"] == slots


def test_ahead_lets_batch_jobs_go_by_tardiness_cost() -> None:
    assert registry.find("services:top=ahead").lower("batch") == "atc:per_instant=true"
    assert registry.find("services").lower("batch") == "greedy:per_instant=true"
    assert registry.find("services:top=ahead,batch=wspt").lower("batch") == "wspt:per_instant=true"


def test_the_border_moves_when_a_node_is_lost_and_when_it_is_back() -> None:
    """Half and half: of 8 slots, of the 4 that are left, and of 8 again; not only when the next window ends."""
    scheduler = core("services:top=sf,batch=edf", 4)
    scheduler.handle(NodeJoined(0, node("m", slots=4)))
    scheduler.handle(JobSubmitted(0, job(1, tasks=99, estimate=1000, due=900)))
    assert fed(scheduler, JobSubmitted(0, service(2))) == {"batch": 4, "service 1": 4}
    pools = scheduler.state.pools
    assert (pools["batch"].up, pools["service 1"].up) == (0b1111, 0b11110000), "the service is on the second node"
    assert fed(scheduler, NodeDown(1, "m")) == {"batch": 2, "service 1": 2}
    assert fed(scheduler, NodeUp(2, "m")) == {"batch": 4, "service 1": 4}


def test_instances_that_are_warm_stay_and_those_that_started_last_end() -> None:
    """Two instances, then all of ten slots while nothing else is there, then half of them beside a batch job."""
    scheduler = core("services:top=sf,batch=edf", 2, service(1))
    warm = {attempt.slots for attempt in scheduler.state.jobs[1].attempts.values()}
    fed(scheduler, NodeJoined(5 * SECOND, node("m", slots=8)))
    fed(scheduler, WindowEnded(W, 1, window(10)))
    runs = scheduler.state.jobs[1].attempts.values()
    assert len(warm) == 2
    assert len(runs) == 10
    assert fed(scheduler, JobSubmitted(W, job(2, tasks=9, estimate=100, due=900)))["service 1"] == 5
    leaving = scheduler.state.pools["service 1"].leaving["batch"]
    assert count(leaving) == 5
    assert not any(slots & leaving for slots in warm)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("services:top=rr", "top of policy services is 'rr'; allowed: dp, sf, pp, ahead"),
        ("services:model=erlang", "model of policy services is 'erlang'; allowed: queueing, fluid"),
        ("services:warm=-1", "warm of policy services is -1.0; allowed: seconds, 0 or more"),
        ("services:warm=inf", "warm of policy services is inf; allowed: seconds, 0 or more"),
        ("services:batch=sites", "batch of policy services is 'sites'; allowed: a policy for one pool"),
        ("services:batch=nosuch", "batch of policy services is 'nosuch'; allowed: auto, anneal"),
        ("sites:each=services", "each of policy sites is 'services'; allowed: a policy for one site"),
    ],
)
def test_wrong_parameters_are_named(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        registry.find(text)
