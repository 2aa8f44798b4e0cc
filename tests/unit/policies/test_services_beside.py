"""Services on some sites, and another policy for the sites beside: which pool each slot and each job goes to."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.model.events import JobSubmitted, NodeDrained, NodeJoined, PolicyChosen, TaskEnded, WindowEnded, Woke
from headway.model.instant import SECOND
from headway.model.job import Bag, JobSpec, Kind, Rigid, Service, TaskSpec, Workflow
from headway.model.outcome import Outcome
from headway.model.plan import Reason
from headway.model.slots import count
from headway.model.window import Window
from headway.policies import registry
from headway.testing import node

W = 20 * SECOND
POLICY = "services:batch=measy,on=private,keeps=rigid,beside=sites:top=prefer"


def scheduler(policy: str, *jobs: JobSpec, east: int = 2) -> Scheduler:
    """Six private slots, and two at the site east, with these jobs."""
    core = Scheduler(registry.find, policy)
    core.handle(NodeJoined(0, node("private-1", slots=6, site="private")))
    core.handle(NodeJoined(0, node("east-1", slots=east, site="east")))
    return fed(core, *(JobSubmitted(0, one) for one in jobs))


def fed(core: Scheduler, *events: Any) -> Scheduler:
    """After these events, and what follows at once."""
    for event in events:
        core.handle(event)
    core.handle(Woke(core.state.now))
    core.check()
    return core


def pools(core: Scheduler) -> dict[int, str]:
    """The pool of each job."""
    return {number: job.pool.name for number, job in core.state.jobs.items()}


def slots(core: Scheduler) -> dict[str, int]:
    """How many slots each pool has that can be used."""
    return {pool.name: count(pool.up) for pool in core.state.others}


def service(number: int = 1) -> Service:
    return Service(number, most=99, threshold=SECOND // 10, window=W)


def flow(number: int, cores: int = 1) -> Workflow:
    return Workflow(number, graph=(TaskSpec(SECOND), TaskSpec(SECOND, cores=cores, after=(0,))))


def test_each_form_of_job_goes_where_it_is_kept_or_beside() -> None:
    core = scheduler(POLICY, service(), Rigid(2, width=2, estimate=SECOND), Bag(3, tasks=3, estimate=SECOND), flow(4))
    assert pools(core) == {1: "service 1", 2: "batch", 3: "beside", 4: "beside"}
    assert slots(core)["beside"] == 2
    assert sum(slots(core).values()) == 8
    ran = {attempt.job.id: attempt.slots for attempt in core.state.attempts()}
    beside = core.state.nodes["east-1"].slots
    assert not ran[2] & beside
    assert not ran[3] & ~beside


def test_a_job_that_does_not_fit_where_it_is_kept_goes_beside_and_the_other_way() -> None:
    core = scheduler(POLICY, Rigid(1, width=7), flow(2, cores=4), east=8)
    assert pools(core) == {1: "beside", 2: "beside"}
    core = scheduler(POLICY, Rigid(1, width=3), flow(2, cores=4))
    assert pools(core) == {1: "batch", 2: "batch"}, "no node of east has four slots"


def test_what_no_pool_can_hold_is_refused_although_all_slots_together_would_do() -> None:
    core = scheduler(POLICY)
    assert core.flaw_of(Rigid(1, width=7)) == "width is 7; allowed: at most 6, the slots of the largest site"
    assert core.flaw_of(Rigid(1, width=6)) is None
    without = scheduler("services:batch=measy")
    assert without.flaw_of(Rigid(1, width=8)) is None, "the border is between all slots"


def test_a_rigid_job_that_no_single_site_beside_can_hold_goes_to_the_sites_of_the_services() -> None:
    """By preference a job needs one site: two sites of two and three slots have no room for four."""
    for beside, pool in (("sites:top=prefer", "batch"), ("fcfs", "beside")):
        core = scheduler(f"services:batch=measy,on=private,beside={beside}")
        fed(core, NodeJoined(0, node("west-1", slots=3, site="west")))
        fed(core, JobSubmitted(0, Rigid(1, width=4)), JobSubmitted(0, Rigid(2, width=3)))
        assert pools(core) == {1: pool, 2: "beside"}
        assert core.state.jobs[1].attempts, "it runs"


def test_a_rigid_job_that_no_single_site_can_hold_is_refused() -> None:
    """Also where the sites are no parts of a top level. The tasks of a workflow may be at several sites."""
    for policy in ("services:batch=measy,on=private,beside=sites:top=prefer", "sites:top=prefer"):
        core = scheduler(policy)
        west = (node("west-1", slots=5, site="west"), node("west-2", slots=2, site="west"))
        fed(core, *(NodeJoined(0, one) for one in west))
        assert core.flaw_of(Rigid(1, width=8)) == "width is 8; allowed: at most 7, the slots of the largest site"
        assert core.flaw_of(Rigid(1, width=7)) is None
        assert core.flaw_of(flow(1, cores=5)) is None


def test_what_fits_no_more_waits_and_says_why() -> None:
    core = scheduler(POLICY, Rigid(1, width=6, estimate=SECOND), Rigid(2, width=6, estimate=SECOND))
    fed(core, NodeDrained(SECOND, "private-1"), JobSubmitted(SECOND, Rigid(3, width=6)))
    assert pools(core)[3] == ""
    assert core.explain(3).reason is Reason.NEVER_FITS


def test_a_form_that_neither_policy_serves_says_so() -> None:
    core = scheduler("services:batch=easy,on=private,beside=instances", service(1), Bag(2, tasks=1))
    assert pools(core) == {1: "service 1", 2: "batch"}, "instances serve no bags"
    core = scheduler("services:batch=instances,on=private,beside=instances", Bag(1, tasks=1))
    assert pools(core) == {1: ""}
    assert core.explain(1).reason is Reason.NOT_SERVED


def test_the_border_does_not_reach_the_sites_beside() -> None:
    core = scheduler(POLICY, service(), Rigid(2, width=1, estimate=100 * SECOND), Bag(3, tasks=9, estimate=SECOND))
    busy = Window(0, W, 4000, 0, 4000, 1.0, 40_000.0, 1.0, 1.0)
    fed(core, WindowEnded(W, 1, busy))
    assert slots(core) == {"service 1": 5, "batch": 1, "beside": 2}


def test_slots_that_come_later_go_where_their_site_belongs() -> None:
    core = scheduler(POLICY)
    fed(core, NodeJoined(SECOND, node("public-r1", slots=4, site="public")))
    assert slots(core) == {"batch": 6, "beside": 6}
    fed(core, NodeJoined(2 * SECOND, node("private-2", slots=1, site="private")))
    assert slots(core) == {"batch": 7, "beside": 6}


def test_what_runs_when_the_policy_is_chosen_goes_on_and_what_spans_both_parts_ends_first() -> None:
    jobs = [Rigid(1, width=1, estimate=SECOND), Bag(2, tasks=1, estimate=SECOND), Rigid(3, width=6, estimate=SECOND)]
    core = scheduler("fcfs", *jobs)
    assert len(list(core.state.attempts())) == 3
    spans = next(iter(core.state.jobs[3].attempts.values()))
    assert spans.slots & core.state.nodes["east-1"].slots
    fed(core, PolicyChosen(SECOND, POLICY))
    assert pools(core) == {1: "batch", 2: "batch", 3: ""}, "where they run"
    assert len(list(core.state.attempts())) == 3
    fed(core, TaskEnded(2 * SECOND, 3, 0, 1, Outcome.SUCCEEDED))
    assert slots(core) == {"batch": 6, "beside": 2}


def test_what_shares_a_slot_with_a_job_that_goes_elsewhere_goes_when_it_has_ended() -> None:
    core = Scheduler(registry.find, "measy")
    core.handle(NodeJoined(0, node("private-1", slots=2, site="private")))
    core.handle(NodeJoined(0, node("east-1", slots=2, site="east")))
    front, behind = Rigid(1, width=2, estimate=SECOND), Rigid(2, width=4, estimate=SECOND)
    fed(core, JobSubmitted(0, front), JobSubmitted(0, behind))
    assert core.state.jobs[1].slots & core.state.jobs[2].slots, "on two tiers"
    fed(core, PolicyChosen(1, POLICY))
    assert core.state.jobs[1].goes_to == "batch"
    fed(core, JobSubmitted(1, Rigid(3, width=1, estimate=SECOND)))
    assert not core.state.jobs[3].attempts, "no slot has arrived yet"
    fed(core, TaskEnded(2, 2, 0, 1, Outcome.SUCCEEDED), TaskEnded(2, 1, 0, 1, Outcome.SUCCEEDED))
    assert slots(core) == {"batch": 2, "beside": 2}
    assert core.state.jobs[3].attempts
    assert not core.refusals


def test_why_a_job_is_where_it_is() -> None:
    core = scheduler(POLICY, Rigid(1, width=2), Bag(2, tasks=2), Rigid(3, width=6), flow(4, cores=4), service(5))
    here = "the sites of the services (private)"
    assert core.why_there(1) == f"it is on {here}, because rigid jobs are kept there"
    assert core.why_there(3) == core.why_there(4) == f"it is on {here}, because no other can hold it"
    beside = f"it is on the sites beside those of the services, because bags are not kept on {here}"
    assert core.why_there(2) == f"{beside}; 2 tasks run at site east. Sites by preference: east"
    assert core.why_there(5) == ""
    assert scheduler("services:batch=easy", Bag(1, tasks=1)).why_there(1) == "", "there are no sites beside"


def test_why_a_job_that_ran_already_is_where_it_is() -> None:
    core = fed(scheduler("fcfs", Bag(1, tasks=1, estimate=SECOND)), PolicyChosen(SECOND, POLICY))
    assert core.why_there(1).endswith("it ran there when this policy was chosen, or the others could not hold it then")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("services:on=private", "beside of policy services is ''; allowed: a policy of the other sites"),
        ("services:beside=easy", "beside of policy services is 'easy'; allowed: only with on=SITE"),
        ("services:keeps=rigid", "keeps of policy services is 'rigid'; allowed: only with on=SITE"),
        ("services:on=a//b,beside=easy", "on of policy services is 'a//b'; allowed: names of sites, each once"),
        ("services:on=a/a,beside=easy", "on of policy services is 'a/a'; allowed: names of sites, each once"),
        ("services:on=a,beside=services", "beside of policy services is 'services'; allowed: a policy for one pool"),
        (
            "services:on=a,beside=sites:top=rr",
            "'sites:top=rr'; allowed: a policy for one pool",
        ),
        ("services:on=a,beside=easi", "beside of policy services is 'easi'; allowed: anneal, atc"),
        (
            "services:on=a,beside=easy,keeps=rigid/bags",
            "'rigid/bags'; allowed: some of bag, rigid, workflow",
        ),
        ("services:on=a,beside=easy,keeps=rigid/rigid", "each once"),
    ],
)
def test_wrong_parameters_are_named(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        registry.find(text)
    assert words in str(raised.value)


def test_what_it_names_and_serves() -> None:
    policy: Any = registry.find("services:batch=easy,on=private/desk,beside=sites:top=prefer;order=west;estimate=0.9")
    assert policy.named_sites == ("private", "desk", "west")
    assert policy.quantile == 0.9
    assert policy.serves == frozenset(Kind)
    alone: Any = registry.find("services:batch=easy")
    assert alone.named_sites == ()
    assert alone.quantile == 0.75
