"""Nodes that are switched by commands which work, fail or hang: what is tried again, what is kept, what is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from headway import wire
from headway.errors import Conflict
from headway.live.driver import Driver
from headway.live.ledger import WAKE_IDLE
from headway.live.reports import node_list
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.model.events import Incident, NodeDown, NodeOff
from headway.model.instant import SECOND, to_seconds
from headway.model.node import NodeSpec
from headway.model.power import Switching
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission

from ..waiting import becomes

pytestmark = pytest.mark.anyio

NODES = (node("a"), node("b"))

IDLE = to_seconds(WAKE_IDLE)
"""Without jobs, the core is woken by so many seconds later."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Site:
    """A driver with a fake engine, and commands that write down what they did, if they may do it."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.log = folder / "log"
        self.log.touch()
        self.may = folder / "may"
        self.may.touch()
        self.clock = ManualClock()
        self.engine = FakeEngine()
        self.driver: Driver

    def rule(self, off: str = "", on: str = "") -> tuple[Switching, ...]:
        """Both commands write down that they are run; then they do this."""
        commands = {
            f"{word}_command": ("sh", "-c", f"echo $0 $1 >> {self.log}; {then or 'true'}", word)
            for word, then in (("off", off), ("on", on))
        }
        return (Switching("", limit=60 * SECOND, **commands),)  # type: ignore[arg-type]  # fields by name

    @asynccontextmanager
    async def runs(
        self, switching: Sequence[Switching] | None, nodes: Sequence[NodeSpec] | None = None, *, dies: bool = False
    ) -> AsyncIterator[None]:
        with closing(Journal(self.data)) as journal:
            self.engine = FakeEngine()
            self.driver = Driver(journal, self.engine, self.clock, find, DriverSettings(policy="fcfs"))
            await self.driver.start(nodes, switching=switching)
            yield
            self.driver.core.check()
            self.events = [event for _, event in journal.events()]
            if not dies:
                await self.driver.stop()

    @property
    def done(self) -> list[str]:
        return self.log.read_text().splitlines()

    @property
    def incidents(self) -> list[str]:
        return [event.kind for event in self.events if isinstance(event, Incident)]

    async def seen(self) -> wire.NodeReport:
        return {one.name: one for one in (await node_list(self.driver)).nodes}["b"]

    async def is_(self, power: str, *, up: bool, failures: int = 0) -> None:
        def found() -> bool:
            view = self.driver.core.state.nodes["b"]
            times = view.trouble.times if view.trouble is not None else 0
            return times == failures and (not failures or view.is_put_off)

        await becomes(found)
        report = await becomes_shown(self, power)
        assert (report.power, report.up, report.failures) == (power, up, failures)

    async def wait(self, seconds: float) -> None:
        """Let what is due happen, and then time pass."""
        for _ in range(8):
            await asyncio.sleep(0)
        self.clock.advance(seconds)

    async def switch(self, word: str, **how: bool) -> wire.NodeChange:
        return await self.driver.nodes.switch("b", on=word == "on", **how)


async def becomes_shown(site: Site, power: str) -> wire.NodeReport:
    await becomes(lambda: _word(site) == power)
    return await site.seen()


def _word(site: Site) -> str:
    return site.driver.core.state.nodes["b"].power.name.lower().replace("_", " ")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("dies", [False, True])
async def test_a_node_that_did_not_come_on_comes_by_its_command_after_a_restart(site: Site, dies: bool) -> None:
    rule = site.rule(on=f"test -e {site.may}")
    async with site.runs(rule, NODES, dies=dies):
        await site.switch("off")
        await site.is_("off", up=False)
        site.may.unlink()
        assert (await site.switch("on")).power == "coming on"
        await site.is_("coming on", up=False, failures=1)
        assert "ended with exit code 1" in (await site.seen()).trouble
    site.may.touch()
    async with site.runs(None):
        assert [known.name for known in site.engine.nodes] == ["a"]
        await site.is_("coming on", up=False, failures=1)
        await site.wait(60 + IDLE)
        await site.is_("on", up=True)
        assert {known.name for known in site.engine.nodes} == {"a", "b"}
    assert site.done == ["off b", "on b", "on b"]
    assert not [event for event in site.events if isinstance(event, NodeDown) and event.name == "b"] or not dies


async def test_without_power_in_the_file_nodes_come_on_by_the_command_with_which_they_went_off(site: Site) -> None:
    rule = (*site.rule(), Switching("other"))
    async with site.runs(rule, NODES):
        await site.switch("off")
        await site.is_("off", up=False)
    async with site.runs((), NODES):  # an operator keeps it off: it stays so
        await site.is_("off", up=False)
        await site.switch("on")
        await site.is_("on", up=True)
    assert site.done == ["off b", "on b"]
    idle = (site.rule()[0],)
    async with site.runs(tuple(replace_after(one) for one in idle), NODES):
        await site.driver.submit("me", submission(new_job(tasks=1)))
        await site.wait(10)
        await becomes(lambda: _word(site) == "off")
    async with site.runs((), NODES):
        await site.is_("on", up=True)
    assert site.done == ["off b", "on b", "off b", "on b"]


def replace_after(rule: Switching) -> Switching:
    """The same, for nodes that are idle for 5 s."""
    return Switching("", 5 * SECOND, off_command=rule.off_command, on_command=rule.on_command)


async def test_a_command_that_fails_is_tried_less_and_less_often_and_told_once_each_time(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with site.runs(site.rule(off=f"test -e {site.may} || {{ echo no plug; exit 3; }}"), NODES):
        site.may.unlink()
        await site.switch("off")
        await site.is_("going off", up=True, failures=1)
        assert {known.name for known in site.engine.nodes} == {"a", "b"}
        assert (await site.seen()).again == 60
        await site.wait(59)
        assert len(site.done) == 1
        await site.wait(1 + IDLE)
        await site.is_("going off", up=True, failures=2)
        assert (await site.seen()).again == 60 + IDLE + 120
        report = await site.seen()
        assert report.kept_off
        assert report.trouble == "sh ended with exit code 3: no plug"
        told = [record.message for record in caplog.records if "no plug" in record.message]
        assert (
            told
            == ["node_not_off: b: sh ended with exit code 3: no plug; it is in service, and it is tried again later"]
            * 2
        )
        site.may.touch()
        await site.switch("off")  # now
        await site.is_("off", up=False)
        assert len(site.done) == 3
    assert site.incidents == ["node_not_off", "node_not_off"]


async def test_an_operator_frees_a_node_by_hand(site: Site) -> None:
    async with site.runs(site.rule(off="sleep 60", on="sleep 60"), NODES):
        await site.switch("off")
        await becomes(lambda: site.done == ["off b"])
        assert (await site.switch("off", by_hand=True)).changed
        await site.is_("off", up=False)
        await site.switch("on")
        await becomes(lambda: site.done == ["off b", "on b"])
        await site.switch("on", by_hand=True)
        await site.is_("on", up=True)
        assert not (await site.switch("on", by_hand=True)).changed
        await site.driver.submit("me", submission(new_job(tasks=2)))
        await becomes(lambda: len(site.engine.running) == 2)
        with pytest.raises(Conflict, match="1 attempts run"):
            await site.switch("off", by_hand=True)
    assert not site.incidents
    assert [event.switch for event in site.events if isinstance(event, NodeOff)] == [2]


async def test_what_a_node_is_that_was_lost_is_said(site: Site) -> None:
    async with site.runs(site.rule(), NODES):
        site.engine.lose("b")
        await becomes(lambda: not site.driver.core.state.nodes["b"].up)
        with pytest.raises(Conflict, match="node 'b' is down"):
            await site.switch("on")
        assert (await site.switch("off")).changed
        await site.is_("off", up=False)
        change = await site.switch("off")
        assert (change.changed, change.power) == (False, "off")
