"""Machines that are rented live: providers that fail, answer late or not at all, and servers that die meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from headway.errors import Conflict, EngineError
from headway.foresight.rerun import of_those_run, past, rerun
from headway.live import renting as module
from headway.live.driver import Driver
from headway.live.outside import Surroundings
from headway.live.rented import renting_report, site_list
from headway.live.reports import job_list, job_report, row
from headway.live.settings import DriverSettings
from headway.live.store.history import history
from headway.live.store.journal import Journal
from headway.model.events import Incident, Rented, RentingChosen
from headway.model.instant import HOUR, SECOND
from headway.model.job import BATCH
from headway.model.plan import Plan
from headway.model.policy import Policy
from headway.model.renting import UNIT, Offer, Renting
from headway.model.snapshot import Snapshot
from headway.policies.backfill import Easy
from headway.policies.registry import find as installed
from headway.renting.provider import NotRented, RentedMachine, Unsure
from headway.testing import FakeEngine, ManualClock, new_job, node, submission
from headway.wire import NewNode

from ..waiting import becomes

pytestmark = pytest.mark.anyio

NODES = (node("own"),)
HOURLY = Offer("cloud", "small", 2, 6 * UNIT, period=HOUR, start_time=100 * SECOND, limit=2)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked again is asked again at once."""
    monkeypatch.setattr(module, "ASK_AGAIN_SECONDS", (0.001, 0.01))
    monkeypatch.setattr(module, "PROVIDERS_LOOK_SECONDS", 0.02)


class OneForAll:
    """Rents a machine while more waits than runs, up to one."""

    per_instant = task_rounds = True
    serves = BATCH

    def __call__(self, view: Snapshot) -> Plan:
        plan = Easy()(view)
        placed = {wanted.job for wanted in plan.allocations}
        waits = [job for job in view.waiting if job.id not in placed]
        if waits and not view.market.rentals:
            plan.rent("cloud", "small", waits[0].id, "it waits")
        return plan


def find(text: str) -> Policy:
    return OneForAll() if text == "one-for-all" else installed(text)


class Cloud:
    """A provider whose machines outlive servers. Each request fails by chance, before or after it was carried out.

    Attributes:
        alive: the machines there are, by token; `ever` all there ever were.
        refuses: why nothing can be rented; empty: it can.
        forgotten: tokens of machines that are there, and that it does not list.
    """

    def __init__(self, seed: int = 0, unsure: float = 0.0) -> None:
        self.chance = Random(seed)
        self.unsure = unsure
        self.alive: dict[str, RentedMachine] = {}
        self.ever: list[str] = []
        self.back: dict[str, float] = {}
        self.refuses = ""
        self.forgotten: set[str] = set()

    def _may_fail(self) -> None:
        if self.chance.random() < self.unsure:
            raise Unsure("no answer within 5 s")

    async def start(self, token: str, type: str, node: str) -> RentedMachine:
        await asyncio.sleep(0)
        self._may_fail()
        if self.refuses:
            raise NotRented(self.refuses)
        if token not in self.alive:
            self.ever.append(token)
            self.alive[token] = RentedMachine(f"i-{len(self.ever)}", token, type)
        await asyncio.sleep(0)
        self._may_fail()
        return self.alive[token]

    async def end(self, token: str) -> bool:
        await asyncio.sleep(0)
        self._may_fail()
        was_there = self.alive.pop(token, None) is not None
        self._may_fail()
        return not was_there or self.chance.random() > self.unsure

    async def machines(self) -> list[RentedMachine]:
        await asyncio.sleep(0)
        self._may_fail()
        return [one for token, one in self.alive.items() if token not in self.forgotten]

    async def reclaimed(self) -> dict[str, float]:
        return dict(self.back)

    async def close(self) -> None:
        pass


class Site:
    """A driver with a fake engine and a provider."""

    def __init__(self, folder: Path, cloud: Cloud) -> None:
        self.data = folder / "data"
        self.cloud = cloud
        self.clock = ManualClock()
        self.engine = FakeEngine()
        self.driver: Driver

    @asynccontextmanager
    async def runs(self, renting: Renting | None = None, *, dies: bool = False) -> AsyncIterator[None]:
        with closing(Journal(self.data)) as journal:
            self.engine = FakeEngine()
            settings = DriverSettings(policy="one-for-all")
            lends = Surroundings(providers=lambda _: {"cloud": self.cloud})
            self.driver = Driver(journal, self.engine, self.clock, find, settings, surroundings=lends)
            await self.driver.start(NODES, renting=renting)
            yield
            self.driver.core.check()
            self.events = [event for _, event in journal.events()]
            if dies:
                await self.driver._renter.close()  # as if it were killed: nothing more of it runs
            else:
                await self.driver.stop()

    @property
    def incidents(self) -> list[str]:
        return [event.kind for event in self.events if isinstance(event, Incident)]

    async def submit(self, jobs: int, *, movable: bool = False) -> None:
        await self.driver.submit("me", submission(*(new_job(movable=movable) for _ in range(jobs))))

    async def wait(self, seconds: float) -> None:
        """Let what is due happen, and then time pass."""
        for _ in range(8):
            await asyncio.sleep(0)
        self.clock.advance(seconds)

    def end_all(self) -> None:
        for key in list(self.engine.running):
            self.engine.end(*key)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, Cloud())


async def test_a_machine_is_rented_joins_serves_and_is_given_back(site: Site) -> None:
    async with site.runs(Renting((HOURLY,), budget_day=50 * UNIT)):
        await site.submit(2)
        await becomes(lambda: "cloud-r1" in site.driver.core.state.nodes)
        assert {one.name for one in site.engine.nodes} == {"own", "cloud-r1"}
        report = renting_report(site.driver)
        (rental,) = report.rentals
        assert (rental.node, rental.job, rental.stage, rental.machine, rental.why) == (
            *("cloud-r1", 2, "serves", "i-1"),
            "it waits",
        )
        assert (rental.cost, report.paid_today, report.budget_day) == (6.0, 6.0, 50.0)
        assert [(one.name, one.nodes, one.offers, one.rented) for one in site_list(site.driver).sites] == [
            ("local", 1, 0, 0),
            ("cloud", 1, 1, 1),
        ]
        await becomes(lambda: len(site.engine.running) == 2)
        site.end_all()
        await becomes(lambda: not site.driver.core.state.jobs)
        await site.wait(3541)
        await becomes(lambda: not site.driver.core.state.market.rentals)
        assert not site.cloud.alive
        await becomes(lambda: {one.name for one in site.engine.nodes} == {"own"})
        assert sum(renting_report(site.driver).paid_by_user.values()) == 6.0


async def test_what_a_job_costs_is_told_while_it_runs_and_when_it_has_ended_as_a_simulation_counts_it(
    site: Site,
) -> None:
    """Also after a start, and what its machine costs after its end; the journal's history says the same."""

    def money() -> dict[int, float]:
        return {job: job_report(site.driver, row(site.driver, job)).money for job in (1, 2, 3)}

    async with site.runs(Renting((HOURLY,))):
        await site.submit(3)
        await becomes(lambda: len(site.engine.running) == 3)
        assert money() == {1: 0, 2: 6.0, 3: 0}, "it was rented for job 2"
        await site.wait(3700)
        await becomes(lambda: money()[2] == 12.0)
        site.end_all()
        await becomes(lambda: not site.driver.core.state.jobs)
        assert money() == {1: 0, 2: 12.0, 3: 0}
        assert (await job_list(site.driver, None, None, 0, 9)).jobs[1].money == 12.0
    async with site.runs():
        await site.wait(3445)
        await becomes(lambda: not site.cloud.alive and not site.driver.core.state.market.rentals)
        told = money()
        assert told == {1: 0, 2: 12.0, 3: 0}
        assert sum(site.driver.core.state.market.by_user.values()) / UNIT == 12.0
    async with site.runs():
        assert money() == told
    done = history(site.data, find)
    assert [(str(done.label[rental.job or 0]), rental.cost / UNIT) for rental in done.rentals] == [("2", told[2])]


async def test_another_policy_does_not_have_the_machines_that_were_rented_then(site: Site) -> None:
    """Two tasks of ten seconds ran at once, one on a rented machine; with the own slot alone they take turns."""
    async with site.runs(Renting((HOURLY,))):
        await site.submit(2)
        await becomes(lambda: len(site.engine.running) == 2)
        site.clock.advance(10)
        site.end_all()
        await becomes(lambda: not site.driver.core.state.jobs)
        await site.wait(3531)
        await becomes(lambda: not site.driver.core.state.market.rentals)
    told = past(site.data, find)
    same = rerun(site.data, find, "one-for-all", told)
    assert same.repeated
    assert [row.cost for row in of_those_run(told).rentals] == [row.cost for row in same.done.rentals] == [6 * UNIT]
    other = rerun(site.data, find, "fcfs", told)
    assert sorted((other.done.end - other.done.release).tolist()) == [10 * SECOND, 20 * SECOND]
    assert not other.done.rentals
    assert any("rented machines" in sentence for sentence in told.left_out)


async def test_what_ran_where_only_rented_machines_had_room_is_left_out_under_another_policy(site: Site) -> None:
    async with site.runs(Renting((HOURLY,))):
        await site.submit(2)
        await becomes(lambda: len(site.engine.running) == 2)
        await site.driver.submit("me", submission(new_job(kind="rigid", width=3)))
        site.clock.advance(10)
        site.end_all()
        await becomes(lambda: len(site.engine.running) == 1)
        site.clock.advance(10)
        site.end_all()
        await becomes(lambda: not site.driver.core.state.jobs)
    told = past(site.data, find)
    assert sorted(told.done.width.tolist()) == [1, 1, 3]
    assert sorted(rerun(site.data, find, "fcfs", told).done.label.tolist()) == [1, 2]
    assert any(sentence.startswith("1 job,") and "rented machines" in sentence for sentence in told.left_out)


@pytest.mark.parametrize("seed", range(25))
async def test_one_rental_is_one_machine_whatever_fails_and_whenever_the_server_dies(tmp_path: Path, seed: int) -> None:
    """Between the request and its answer, between that and the node, and while it is given back."""
    chance, cloud = Random(seed), Cloud(seed, unsure=0.3)
    site = Site(tmp_path, cloud)
    renting: Renting | None = Renting((HOURLY,))
    for _ in range(4):
        async with site.runs(renting, dies=True):
            renting = None
            if not site.driver.core.state.jobs:
                await site.submit(2)
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
    async with site.runs():
        assert len(cloud.alive) <= 1
        await becomes(lambda: len(site.engine.running) == 2)
        assert len(cloud.ever) == len(set(cloud.ever)) == 1
        site.end_all()
        await becomes(lambda: not site.driver.core.state.jobs)
        await site.wait(3600)
        await becomes(lambda: not site.driver.core.state.market.rentals and not cloud.alive)
    rented = [event for event in site.events if isinstance(event, Rented)]
    assert len(rented) == 1


async def test_what_the_provider_refuses_is_told_and_asked_for_again_later(site: Site) -> None:
    site.cloud.refuses = "the credential is wrong"
    async with site.runs(Renting((HOURLY,))):
        await site.submit(2)
        await becomes(lambda: bool(site.driver.core.state.market.troubles))
        (offer,) = renting_report(site.driver).offers
        assert (offer.trouble, offer.again is not None, offer.left) == ("the credential is wrong", True, 2)
        assert renting_report(site.driver).paid_today == 0
        site.cloud.refuses = ""
        await site.wait(61)
        await becomes(lambda: "cloud-r2" in site.driver.core.state.nodes)
    assert site.incidents.count("rental_failed") == 1


async def test_a_site_without_a_provider_rents_nothing_and_says_so(site: Site) -> None:
    async with site.runs(Renting((Offer("elsewhere", "small", 1, UNIT), HOURLY))):
        market = site.driver.core.state.market
        assert market.offer("elsewhere", "small") is not None
    other = Renting((Offer("cloud", "small", 1, UNIT),))
    with closing(Journal(site.data)) as journal:
        driver = Driver(journal, FakeEngine(), site.clock, find, DriverSettings(policy="one-for-all"))
        await driver.start(NODES, renting=other)
        await driver.submit("me", submission(new_job(), new_job()))
        await becomes(lambda: bool(driver.core.state.market.troubles))
        (offer,) = renting_report(driver).offers
        assert offer.trouble == "no provider is declared for this site"
        await driver.stop()


async def test_machines_without_a_provider_are_told_at_the_start_and_given_back_when_there_is_one_again(
    site: Site,
) -> None:
    """The tables of what can be rented were taken out of the cluster file while a machine was rented."""
    async with site.runs(Renting((HOURLY,))):
        await site.submit(2)
        await becomes(lambda: len(site.engine.running) == 2)
    with closing(Journal(site.data)) as journal:
        engine = FakeEngine()
        driver = Driver(journal, engine, site.clock, find, DriverSettings(policy="one-for-all"))
        await driver.start(NODES, renting=Renting())
        await becomes(lambda: len(engine.running) == 2)
        await becomes(lambda: driver.tally.incidents["rental_failed"] == 1)
        await driver.nodes.drain("cloud-r1")
        for key in list(engine.running):
            engine.end(*key)
        await becomes(lambda: driver.tally.incidents["rental_failed"] == 2)
        (rental,) = renting_report(driver).rentals
        assert rental.stage == "returns"
        assert site.cloud.alive, "it is billed"
        assert ("cloud", 0, 1) in [(one.name, one.offers, one.rented) for one in site_list(driver).sites]
        await driver.stop()
        told = [event.detail for _, event in journal.events() if isinstance(event, Incident)]
    assert [one.partition(":")[0] for one in told] == [
        "1 machine is rented here, and no provider is declared for this site",
        "machine cloud-r1 is not given back, because no provider is declared for this site",
    ]
    async with site.runs(Renting((replace(HOURLY, limit=0),))):
        await becomes(lambda: not site.driver.core.state.market.rentals and not site.cloud.alive)


async def test_a_limit_of_zero_rents_nothing_more_and_keeps_what_there_is(site: Site) -> None:
    async with site.runs(Renting((HOURLY,))):
        await site.submit(2)
        await becomes(lambda: len(site.engine.running) == 2)
    async with site.runs(Renting((replace(HOURLY, limit=0),))):
        await becomes(lambda: len(site.engine.running) == 2)
        (offer,) = renting_report(site.driver).offers
        assert (offer.limit, offer.left, len(site.driver.core.state.market.rentals)) == (0, 0, 1)
        site.end_all()
        await becomes(lambda: not site.driver.core.state.jobs)


async def test_no_node_of_somebody_else_is_taken_for_a_machine(site: Site) -> None:
    """One that had the name before, and one that is to get it: an operator's node stays, whatever is rented."""
    async with site.runs():
        await site.driver.nodes.add(NewNode("cloud-r1"))
        await site.driver.nodes.add(NewNode("cloud-rx"))
        await site.driver.request(lambda now: [RentingChosen(now, Renting((HOURLY,)))])
        with pytest.raises(Conflict, match=r"'cloud-r2' is kept for a machine that is rented"):
            await site.driver.nodes.add(NewNode("cloud-r2"))
        await site.driver.nodes.add(NewNode("cloud-r1"))
        await site.submit(4)
        await becomes(lambda: len(site.engine.running) == 4)
        assert [one.node for one in renting_report(site.driver).rentals] == ["cloud-r2"]
        assert {"cloud-r1", "cloud-r2", "cloud-rx"} <= set(site.driver.core.state.nodes)
        site.end_all()
        await becomes(lambda: not site.driver.core.state.jobs)
        await site.wait(3600)
        await becomes(lambda: not site.cloud.alive)
        assert set(site.driver.core.state.nodes) == {"own", "cloud-r1", "cloud-rx"}
    assert site.incidents == ["name_taken"]


async def test_the_last_node_may_be_given_back_if_it_is_rented(site: Site) -> None:
    async with site.runs(Renting((HOURLY,))):
        await site.submit(2)
        await becomes(lambda: len(site.engine.running) == 2)
        await site.driver.nodes.drain("own")
        assert (await site.driver.nodes.drain("cloud-r1")).changed
        site.end_all()
        await becomes(lambda: not site.cloud.alive)


async def test_a_trouble_is_told_once_and_again_when_it_is_another_one_or_has_lasted(site: Site) -> None:
    site.cloud.refuses = "none is left"
    async with site.runs(Renting((HOURLY,))):
        market = site.driver.core.state.market
        await site.submit(2)
        for number, refuses in enumerate(["none is left", "none is left", *["wrong"] * 5, ""], 1):
            await becomes(lambda number=number: market.count == number and not market.rentals)
            site.cloud.refuses = refuses
            await site.wait(60 * 2 ** (number - 1) + 1)
        await becomes(lambda: bool(site.cloud.alive))
    told = [event.detail.partition(": ")[2] for event in site.events if isinstance(event, Incident)]
    assert told == ["none is left", "wrong", "wrong"], "at first, when it is another one, and an hour later"


async def test_a_machine_that_ends_by_itself_is_paid_no_longer_and_its_tasks_run_again(site: Site) -> None:
    async with site.runs(Renting((HOURLY,))):
        await site.submit(2)
        await becomes(lambda: len(site.engine.running) == 2)
        site.cloud.alive.clear()
        await becomes(lambda: "cloud-r2" in site.driver.core.state.nodes)
        await becomes(lambda: len(site.engine.running) == 2)
        assert len(site.driver.core.state.market.rentals) == 1
    assert "rental_failed" in site.incidents


async def test_machines_that_end_by_themselves_again_and_again_are_not_rented_again_and_again(site: Site) -> None:
    """Each has become a node, as one does whose command ends when it has just begun."""
    async with site.runs(Renting((HOURLY,))):
        market = site.driver.core.state.market
        await site.submit(2)
        for number, seconds in enumerate([0, 60, 120], 1):
            await becomes(lambda number=number: f"cloud-r{number}" in site.driver.core.state.nodes)
            began = site.clock.now()
            await site.submit(1)  # another one: a task that is lost again and again is suspected
            site.cloud.alive.clear()
            await becomes(lambda number=number: number not in market.rentals)
            if seconds:
                (trouble,) = market.troubles.values()
                assert (trouble.again - began) / SECOND == seconds
                await site.wait(seconds + 1)
        await becomes(lambda: "cloud-r4" in site.driver.core.state.nodes)
        (offer,) = renting_report(site.driver).offers
        assert (offer.trouble, offer.again) == ("", None), "one has come"
        await site.driver.nodes.remove("cloud-r4")
        await becomes(lambda: 4 not in market.rentals)
        assert not any(trouble.times for trouble in market.troubles.values())


async def test_of_why_a_machine_is_rented_not_everything_is_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decider may say a lot."""
    rent = Plan.rent

    def wordy(plan: Plan, site: str, type: str, job: int | None, why: str) -> None:
        rent(plan, site, type, job, why * 10_000)

    monkeypatch.setattr(Plan, "rent", wordy)
    async with site.runs(Renting((HOURLY,))):
        await site.submit(2)
        await becomes(lambda: bool(site.driver.core.state.market.rentals))
        (rental,) = renting_report(site.driver).rentals
        assert rental.why == ("it waits" * 100)[:500]


async def test_a_machine_whose_node_does_not_start_is_given_back_at_once(site: Site) -> None:
    async with site.runs(Renting((HOURLY,))):
        site.engine.unwilling["cloud-r1"] = EngineError("no room")
        await site.submit(2)
        await becomes(lambda: bool(site.driver.core.state.market.troubles))
        (offer,) = renting_report(site.driver).offers
        assert offer.trouble == "its node does not start: no room"
        assert not site.cloud.alive
        assert not site.driver.core.state.market.rentals


async def test_a_machine_that_its_provider_has_forgotten_is_ended_too(site: Site) -> None:
    """Its list is gone, as if somebody had deleted its folder; the machine runs."""
    async with site.runs(Renting((HOURLY,))):
        await site.submit(2)
        await becomes(lambda: len(site.engine.running) == 2)
        (token,) = site.cloud.alive
        site.cloud.forgotten.add(token)
        await becomes(lambda: token not in site.cloud.alive)
        await becomes(lambda: "cloud-r2" in site.driver.core.state.nodes)


async def test_a_machine_that_the_provider_takes_back_gets_no_more_tasks(site: Site) -> None:
    async with site.runs(Renting((HOURLY,))):
        await site.submit(2, movable=True)
        await becomes(lambda: len(site.engine.running) == 2)
        (token,) = site.cloud.alive
        site.cloud.back[token] = (site.clock.now() + 120 * SECOND) / SECOND
        nodes = site.driver.core.state.nodes
        await becomes(lambda: nodes["cloud-r1"].draining)
        assert site.engine.suspended, "what runs there is asked to save its work"
        site.end_all()
        await becomes(lambda: token not in site.cloud.alive)


async def test_what_nobody_knows_is_given_back(site: Site) -> None:
    """A machine of an earlier life of the same cluster; those of other clusters stay."""
    async with site.runs(Renting((HOURLY,))):
        mine = site.driver._renter.token(77)
        site.cloud.alive |= {
            mine: RentedMachine("i-7", mine, "small"),
            "other-1": RentedMachine("i-8", "other-1", "small"),
        }
        await becomes(lambda: mine not in site.cloud.alive)
        await asyncio.sleep(0.05)
        assert list(site.cloud.alive) == ["other-1"]
    assert site.incidents.count("rental_orphaned") == 1
