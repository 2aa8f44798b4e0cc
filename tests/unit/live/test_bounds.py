"""Bounds on the slots of users, live: set at a start, kept over restarts, changed with tokens, and told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from headway import wire
from headway.access.quotas import Quota, Quotas, read_quotas
from headway.errors import InvalidInput
from headway.live.bounds import bounded
from headway.live.delay import LoopDelay
from headway.live.driver import Driver
from headway.live.reports import statistics, tasks_waiting
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.model.events import SlotsBounded
from headway.model.ration import Ration
from headway.policies.registry import find
from headway.testing import FakeEngine, ManualClock, new_job, node, submission
from headway.web.exposition import exposition
from headway.wire import Role

from ...waiting import becomes


def test_the_bound_of_a_user_is_the_own_one_or_the_largest_of_the_roles(tmp_path: Path) -> None:
    file = tmp_path / "quotas.toml"
    file.write_text("[role.submitter]\nslots = 4\n[role.operator]\nslots = 9\n[user.bob]\nslots = 2\n[user.eve]\n")
    roles = {
        "ann": {Role.SUBMITTER, Role.OPERATOR},
        "bob": {Role.OPERATOR},
        "eve": {Role.SUBMITTER},
        "root": {Role.SUBMITTER, Role.ADMINISTRATOR},
        "guest": {Role.VIEWER},
    }
    assert read_quotas(file).slots(roles) == {"ann": 9, "bob": 2, "eve": 4}
    assert Quotas().slots(roles) == {}
    assert Quotas(users={"zoe": Quota(slots=0)}).slots({}) == {"zoe": 0}


def test_only_what_is_new_becomes_an_event() -> None:
    known = {"ann": Ration("ann", 4), "bob": Ration("bob", 2), "eve": Ration("eve", 3)}
    assert bounded(known, {"zoe": 1, "ann": 4, "bob": 5}, 7) == [
        SlotsBounded(7, "eve", None),
        SlotsBounded(7, "bob", 5),
        SlotsBounded(7, "zoe", 1),
    ]


async def started(folder: Path, engine: FakeEngine, bounds: Mapping[str, int] | None) -> Driver:
    driver = Driver(Journal(folder), engine, ManualClock(5), find, DriverSettings(policy="fcfs"))
    await driver.start((node("n", slots=4),), bounds=bounds)
    return driver


def test_a_bound_outlives_restarts_and_adopted_tasks_count(tmp_path: Path) -> None:
    async def main() -> None:
        engine = FakeEngine()
        driver = await started(tmp_path, engine, {"ann": 2})
        await driver.submit("ann", submission(new_job(tasks=5)))
        await driver.submit("bob", submission(new_job(tasks=1)))
        await becomes(lambda: len(engine.running) == 3)
        await driver.stop()
        driver.journal.close()
        for bounds, slots in ((None, 2), ({"ann": 3}, 3), ({}, 3)):
            engine = FakeEngine()
            driver = await started(tmp_path, engine, bounds)
            expected = slots + 1 if bounds != {} else 4
            await becomes(lambda engine=engine, expected=expected: len(engine.running) == expected)
            driver.core.check()
            rations = driver.core.state.rations
            assert {user: one.used for user, one in rations.items()} == ({} if bounds == {} else {"ann": slots})
            await driver.stop()
            driver.journal.close()

    asyncio.run(main())


def test_who_is_at_the_bound_is_told_and_counted(tmp_path: Path) -> None:
    async def main() -> None:
        engine = FakeEngine()
        driver = await started(tmp_path, engine, {"ann": 2})
        with closing(driver.journal):
            with pytest.raises(InvalidInput, match="width is 3; allowed: at most 2, the slots that user 'ann' may"):
                await driver.submit("ann", submission(new_job(kind="rigid", width=3)))
            await driver.submit("ann", submission(new_job(tasks=5), new_job(tasks=2)))
            await becomes(lambda: len(engine.running) == 2)
            said, _, _ = await driver.explain(2)
            assert said.text == "user ann is at the bound of 2 slots at once; it goes on when tasks of this user end"
            assert await tasks_waiting(driver) == 5
            assert (await statistics(driver)).users == {"ann": wire.SlotsOfUser(2, 2)}
            assert driver.held_by("ann")[3] == 2
            told = (await exposition(driver, LoopDelay())).decode()
            assert 'headway_user_slots{user="ann"} 2.0\n' in told
            assert 'headway_user_slots_max{user="ann"} 2.0\n' in told
            await driver.bound({"ann": 3})
            await becomes(lambda: len(engine.running) == 3)
            await driver.stop()

    asyncio.run(main())
