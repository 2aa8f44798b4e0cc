"""Instances of a real moto server, made real: asked for, found, joined, given back; and a server that rents them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("boto3", reason="it is not installed (pip install headway[aws])")
pytest.importorskip("moto.server", reason="it is not installed (pip install 'moto[ec2,server]')")

from headway.engines.dask.engine import DaskEngine
from headway.engines.dask.settings import DaskSettings
from headway.live import renting as module
from headway.live.clock import SystemClock
from headway.live.driver import Driver
from headway.live.outside import Surroundings
from headway.live.settings import DriverSettings
from headway.live.store.journal import Journal
from headway.model.instant import SECOND
from headway.model.job import BATCH
from headway.model.node import NodeSpec
from headway.model.plan import Plan
from headway.model.policy import Policy
from headway.model.renting import UNIT, Offer, Renting
from headway.model.snapshot import Snapshot
from headway.policies.backfill import Easy
from headway.policies.registry import find as installed
from headway.renting.provider import NotRented, Provider, RentedMachine, Unsure
from headway.renting.registry import make
from headway.reproduce.children import Children
from headway.reproduce.kim12.dask import worker_words
from headway.reproduce.kim12.ec2 import CREDENTIALS, REGION, Moto
from headway.testing import new_job, submission

from ..dask_site import Processes
from ..effort import one_in
from ..waiting import becomes

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    with Children(tmp_path_factory.mktemp("moto")) as children:
        yield children


@pytest.fixture(scope="module")
def moto(children: Children) -> Iterator[Moto]:
    with Moto(children) as moto:
        yield moto
    assert moto.trouble == []


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in CREDENTIALS.items():
        monkeypatch.setenv(name, text)


def provider(moto: Moto, cluster: str, user_data: str = "sleep 1000") -> Provider:
    options = {"region": REGION, "image": moto.image, "endpoint": moto.endpoint, "user_data": user_data}
    return make("aws", "cloud", options, cluster)


async def ended(ec2: Provider, token: str) -> None:
    while not await ec2.end(token):
        await asyncio.sleep(0.02)


async def test_an_instance_is_one_for_its_token_and_is_found_by_it(moto: Moto) -> None:
    ec2 = provider(moto, "c")
    machine = await ec2.start("c-1", "t3.micro", "cloud-r1")
    assert machine == RentedMachine(machine.name, "c-1", "t3.micro")
    assert await ec2.start("c-1", "t3.micro", "cloud-r1") == machine
    assert moto.alive() == [machine.name]
    other = provider(moto, "d")
    assert await other.machines() == []
    assert await provider(moto, "c").machines() == [machine]
    assert await ec2.reclaimed() == {}
    await ended(ec2, "c-1")
    assert moto.alive() == []
    assert [one for one in await ec2.machines() if not one.ended] == []
    assert (await ec2.start("c-1", "t3.micro", "cloud-r1")).ended, "it was, and is not started again"
    assert await ec2.end("c-never")
    for one in (ec2, other):
        await one.close()


async def test_a_running_instance_runs_its_user_data_and_ends_when_that_does(moto: Moto, children: Children) -> None:
    ec2 = provider(moto, "run", 'echo "{node} {type} {token}"; sleep 0.3')
    machine = await ec2.start("run-1", "t3.micro", "cloud-r1")
    await becomes(lambda: moto.alive() == [])
    assert children.said(machine.name) == "cloud-r1 t3.micro run-1\n"
    assert [one.ended for one in await ec2.machines()] == [True]
    await ec2.close()


async def test_what_ec2_refuses_is_told_in_its_words(moto: Moto) -> None:
    options = {"region": REGION, "image": moto.image, "endpoint": moto.endpoint, "subnet": "subnet-nowhere"}
    ec2 = make("aws", "cloud", options, "c")
    with pytest.raises(NotRented, match=r"EC2 refuses: .*subnet-nowhere.* \(InvalidSubnetID"):
        await ec2.start("c-7", "t3.micro", "cloud-r7")
    await ec2.close()


async def test_a_server_that_does_not_answer_leaves_it_open(tmp_path: Path) -> None:
    options = {"region": REGION, "image": "ami-1", "endpoint": "http://127.0.0.1:9"}
    ec2 = make("aws", "cloud", options, "c")
    for ask in (lambda: ec2.start("c-1", "t3.micro", "cloud-r1"), ec2.machines, lambda: ec2.end("c-1")):
        with pytest.raises(Unsure, match=r"EC2 gave no answer: .*127.0.0.1:9"):
            await ask()
    await ec2.close()


class OneWhileThereIsWork:
    """Rents a machine when jobs wait and none is rented; starts tasks as EASY does."""

    per_instant = task_rounds = True
    serves = BATCH

    def __call__(self, view: Snapshot) -> Plan:
        plan = Easy()(view)
        if view.waiting and not view.market.rentals:
            plan.rent("cloud", "t3.micro", next(iter(view.waiting)).id, "it waits")
        return plan


def find(text: str) -> Policy:
    return OneWhileThereIsWork() if text == "one" else installed(text)


class Cloud:
    """The engine of the cloud finds its nodes by itself."""

    engines: Mapping[str, str] = {"cloud": "dask"}  # never changed
    gone: Mapping[str, str] = {}

    def keeps(self, node: NodeSpec) -> bool:
        return True

    def as_run(self, node: NodeSpec) -> NodeSpec:
        return node

    def disk_of(self, node: NodeSpec) -> str:
        return node.name

    def finds(self, site: str) -> bool:
        return True


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[Processes]:
    site = Processes(tmp_path / "dask").scheduler()
    yield site
    site.end()


@pytest.mark.thorough
@pytest.mark.parametrize("dies", one_in(2, [True, False]), ids=["killed between request and answer", ""])
async def test_an_instance_joins_as_a_worker_of_dask_does_a_job_and_is_given_back(
    moto: Moto, dask: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """The same path as any worker takes: nothing but its name says that it is rented."""
    monkeypatch.setattr(module, "PROVIDERS_LOOK_SECONDS", 0.2)
    words = worker_words(dask.address, "{node}", 1, f"{tmp_path}/{{node}}")
    script = f"exec {sys.executable} {' '.join(words)}"
    offer = Offer("cloud", "t3.micro", 1, 36 * UNIT, minimum=15 * SECOND, start_time=20 * SECOND, limit=2)
    before = set(moto.instances())

    def driver(journal: Journal, run: int) -> Driver:
        settings = DaskSettings(dask.address, site="cloud", folder=str(tmp_path / "there"), period=0.1, gone_after=1.0)
        engine = DaskEngine(tmp_path / f"engine{run}", settings)

        def providers(cluster: str) -> dict[str, Provider]:
            ec2 = provider(moto, cluster, script)
            if dies and run == 1:
                rents = ec2.start

                async def unanswered(*words: str) -> RentedMachine:
                    await rents(*words)
                    await asyncio.Event().wait()
                    raise AssertionError

                monkeypatch.setattr(ec2, "start", unanswered)
            return {"cloud": ec2}

        settled = DriverSettings(policy="one")
        return Driver(journal, engine, SystemClock(), find, settled, surroundings=Surroundings(Cloud(), providers))

    with closing(Journal(tmp_path / "data")) as journal:
        first = driver(journal, 1)
        await first.start((), renting=Renting((offer,), budget_day=UNIT, margin=SECOND))
        await first.submit("me", submission(new_job(argv=("/bin/sh", "-c", "echo done"))))
        if dies:  # the instance is there, its answer is not
            await becomes(lambda: set(moto.instances()) - before)
            await first._renter.close()
            assert not any(one.machine for one in first.core.state.market.rentals.values())
        else:
            await becomes(lambda: not first.core.state.jobs)
            assert "cloud-r1" in first.core.state.nodes
        await first.stop()
    with closing(Journal(tmp_path / "data")) as journal:
        again = driver(journal, 2)
        await again.start(None)
        await becomes(lambda: not again.core.state.jobs)
        await becomes(lambda: not again.core.state.market.rentals)  # idle, and its time is over
        assert 0 < sum(again.core.state.market.spent.values()) <= UNIT
        await again.stop()
    (name,) = set(moto.instances()) - before
    assert moto.instances()[name] == "terminated"
