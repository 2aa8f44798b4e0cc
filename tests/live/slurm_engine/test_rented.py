"""Allocations of a real Slurm as rented machines: one token is one job, and what was lost on the way is found again."""

from __future__ import annotations

import asyncio

import pytest

from headway.renting.provider import NotRented, Unsure
from headway.renting.slurm import Allocations

from ...slurm import Cluster, tried
from ...waiting import LIMIT

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]

SLEEP = ("sleep", "600")


async def ended(provider: Allocations, token: str) -> bool:
    """Wait until a machine is gone."""
    async with asyncio.timeout(LIMIT):
        while not await provider.end(token):
            await asyncio.sleep(0.1)
    return True


async def test_one_token_is_one_job_and_it_is_found_by_its_name(slurm: Cluster) -> None:
    provider = Allocations("mine", "main", SLEEP, ["--cpus-per-task=2", "--mem=100"])
    first = await provider.start("mine-1", "half", "cloud-r1")
    assert await provider.start("mine-1", "half", "cloud-r1") == first
    await provider.start("mine-2", "half", "cloud-r2")
    other = Allocations("other", "main", SLEEP)
    await other.start("other-1", "half", "cloud-r1")
    again = Allocations("mine", "main", SLEEP)
    assert sorted((one.token, one.type, one.ended) for one in await again.machines()) == [
        ("mine-1", "half", False),
        ("mine-2", "half", False),
    ]
    assert await ended(again, "mine-1")
    assert await again.end("mine-9"), "there never was one"
    assert [one.token for one in await again.machines() if not one.ended] == ["mine-2"]
    assert await ended(again, "mine-2")
    assert await ended(other, "other-1")


async def test_a_machine_is_told_its_node_and_is_gone_when_its_command_ends(slurm: Cluster) -> None:
    path = slurm.folder / "node"
    provider = Allocations("mine", "main", ("sh", "-c", f"echo $HEADWAY_NODE {{type}} > {path}"), ["--mem=100"])
    await provider.start("mine-3", "small", "cloud-r3")
    async with asyncio.timeout(LIMIT):
        while not [one for one in await provider.machines() if one.token == "mine-3" and one.ended]:
            await asyncio.sleep(0.1)
    assert path.read_text() == "cloud-r3 small\n"


async def test_what_slurm_refuses_is_told_and_what_it_does_not_answer_is_unsure(
    slurm: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotRented, match="invalid partition"):
        await Allocations("mine", "nowhere", SLEEP).start("mine-4", "small", "cloud-r4")
    monkeypatch.setattr("headway.renting.slurm.COMMAND_SECONDS", 0.0)
    with pytest.raises(Unsure, match="gave no answer"):
        await Allocations("mine", "main", SLEEP).start("mine-5", "small", "cloud-r5")
    assert tried("squeue", "--noheader", "--name=mine-5") is not None
