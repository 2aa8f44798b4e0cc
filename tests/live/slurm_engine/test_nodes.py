"""Nodes of Slurm: found, lost, drained, back, gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headway.engines.base import NodeBack, NodeFound, NodeLost, NodeShut
from headway.engines.slurm.engine import SlurmEngine
from headway.engines.slurm.nodes import SHORT, SLURM_CAPABLE
from headway.engines.slurm.settings import SlurmSettings
from headway.engines.trial import Trial
from headway.errors import EngineError, InvalidInput
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome

from ...slurm import CPUS, NODES, Cluster, mark
from ...waiting import LIMIT, becomes, gone
from .conftest import FOUR, SETTINGS, add, found, note_and_wait

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]


async def test_each_node_of_the_partition_is_found_and_runs_what_it_is_given(trial: Trial) -> None:
    specs = await found(trial)
    assert sorted(spec.name for spec in specs) == sorted(NODES)
    spec = next(spec for spec in specs if spec.name == "a")
    assert spec == NodeSpec(
        "a", CPUS, site="slurm", reports_start=True, read_ahead=1, capabilities=SLURM_CAPABLE, short=SHORT
    )
    assert spec.capabilities.lacking == ("tiers", "moves")
    names = await trial.ended(trial.command("sh", "-c", "echo $HEADWAY_NODE $SLURMD_NODENAME", node="a"))
    assert names.ending.stdout is not None
    assert names.ending.stdout.tail == b"a a\n"
    trial.unread.clear()


async def test_a_drained_node_finishes_what_it_has_and_is_lost_then(trial: Trial, tmp_path: Path) -> None:
    await trial.start(*FOUR)
    runs = trial.call(note_and_wait, str(tmp_path / "pid"), node="a")
    await becomes((tmp_path / "pid").exists)
    mark("a", "drain")
    assert (await trial.told(NodeShut)).node == "a"
    waits = trial.call(add, 1, 2, node="a", slots=(1,))
    assert await trial.value(trial.call(add, 1, 1, node="b")) == 2
    assert trial.unread == []
    (tmp_path / "door").touch()
    assert await trial.value(runs) == "through"
    lost = await trial.told(NodeLost)
    assert lost.node == "a"
    assert lost.detail in ("it is drained in Slurm: test", "it is draining in Slurm: test"), "sinfo may be late"
    mark("a", "resume")
    assert (await trial.told(NodeBack)).node == "a"
    assert await trial.value(trial.call(add, 1, 1, node="a")) == 2
    assert trial.unread == [], f"its loss stands for the end of {waits}"


@pytest.mark.parametrize("how", ["maintenance", "reservation", "partition"])
async def test_a_node_that_others_hold_finishes_what_it_has_and_is_lost_once(
    slurm: Cluster, trial: Trial, tmp_path: Path, how: str
) -> None:
    """By a reservation of its node for maintenance or for another user, or because its partition takes nothing new."""
    reserve = ("scontrol", "create", "reservation", "ReservationName=gold", "Users=nobody", "StartTime=now", "Nodes=a")
    hold, free = {
        "maintenance": ((*reserve, "Duration=60", "Flags=MAINT,IGNORE_JOBS"), ("delete", "ReservationName=gold")),
        "reservation": ((*reserve, "Duration=60", "Flags=IGNORE_JOBS"), ("delete", "ReservationName=gold")),
        "partition": (
            ("scontrol", "update", "PartitionName=main", "State=DRAIN"),
            ("update", "PartitionName=main", "State=UP"),
        ),
    }[how]
    lost = {"partition": set(NODES)}.get(how, {"a"})
    await trial.start(*FOUR)
    runs = trial.call(note_and_wait, str(tmp_path / "pid"), node="a")
    await becomes((tmp_path / "pid").exists)
    slurm.run(*hold)
    try:
        for name in sorted(lost - {"a"}):
            await trial.told(NodeLost, lambda told, name=name: told.node == name)  # type: ignore[misc]
        if how != "reservation":  # of a node that runs something Slurm says that only when it is idle
            assert (await trial.told(NodeShut)).node == "a"
        waits = trial.call(add, 1, 2, node="a", slots=(1,))
        if how != "partition":
            assert await trial.value(trial.call(add, 1, 1, node="b")) == 2
        assert trial.unread == []
        (tmp_path / "door").touch()
        assert await trial.value(runs) == "through"
        assert (await trial.told(NodeLost)).node == "a"
    finally:
        slurm.run("scontrol", *free)
    for name in sorted(lost):
        await trial.told(NodeBack, lambda told, name=name: told.node == name)  # type: ignore[misc]
    assert await trial.value(trial.call(add, 1, 1, node="a")) == 2
    assert trial.unread == [], f"its loss stands for the end of {waits}"


async def test_a_node_that_is_down_at_the_start_is_absent_and_back_later(slurm: Cluster, trial: Trial) -> None:
    mark("b", "down")
    assert (await trial.start(*FOUR)).absent == {"b"}
    assert (await trial.ended(trial.call(add, 1, 1, node="b"))).ending.outcome is Outcome.LOST
    mark("b", "resume")
    assert (await trial.told(NodeBack)).node == "b"


async def test_a_node_whose_daemon_dies_is_lost_and_what_it_still_runs_ends(
    slurm: Cluster, trial: Trial, tmp_path: Path
) -> None:
    """As if the network had lost it: Slurm sees it after some seconds, and what runs there goes on at first."""
    await trial.start(*FOUR)
    path = tmp_path / "pid"
    trial.call(note_and_wait, str(path), node="m")
    await becomes(path.exists)
    slurm.kill_node("m")
    lost = await trial.told(NodeLost)
    assert lost.node == "m"
    trial.unread[:] = [told for told in trial.unread if told != NodeShut("m", "it is mixed* in Slurm")]  # or not seen
    assert await trial.value(trial.call(add, 1, 1, node="a")) == 2
    await becomes(lambda: gone(int(path.read_text())))
    slurm.start_node("m")
    assert (await trial.told(NodeBack)).node == "m"
    assert await trial.value(trial.call(add, 1, 1, node="m")) == 2


async def test_a_node_that_cannot_be_had_does_not_join(slurm: Cluster, root: Path) -> None:
    async with Trial(SlurmEngine(root, replace(SETTINGS, find=False)), LIMIT) as trial:
        await trial.start(NodeSpec("n", slots=2))
        with pytest.raises(EngineError, match=r"partition 'main' has no node 'x'; it has: a, b, m, n"):
            await trial.engine.join(NodeSpec("x"))
        with pytest.raises(InvalidInput, match=r"slots of node 'a' is 5; allowed: 1 to 4: Slurm has 4 CPUs for it"):
            await trial.engine.join(NodeSpec("a", slots=5))
        mark("a", "down")
        with pytest.raises(EngineError, match=r"node 'a' is down in Slurm \(test\)"):
            await trial.engine.join(NodeSpec("a", slots=4))


async def test_nodes_with_too_few_processors_are_named(slurm: Cluster, root: Path) -> None:
    async with Trial(SlurmEngine(root, replace(SETTINGS, slots=8)), LIMIT) as trial:
        with pytest.raises(
            InvalidInput, match=r"slots is 8; allowed: 1 to 4: node '\w' of partition 'main' has no more"
        ):
            await trial.start(*FOUR)


async def test_a_partition_that_does_not_exist_is_named(slurm: Cluster, root: Path) -> None:
    async with Trial(SlurmEngine(root, SlurmSettings("mian")), LIMIT) as trial:
        with pytest.raises(InvalidInput, match=r"partition is 'mian'; allowed: .*: brief, main, urgent") as error:
            await trial.start(*FOUR)
        assert error.value.hint == "Did you mean main?"


async def test_a_folder_has_one_server(trial: Trial, root: Path) -> None:
    await trial.start(*FOUR)
    async with Trial(SlurmEngine(root, SETTINGS), LIMIT) as other:
        with pytest.raises(EngineError, match="is used by another server"):
            await other.start(*FOUR)


async def test_a_found_node_with_fewer_processors_than_before_is_resized(trial: Trial) -> None:
    await trial.start(NodeSpec("n", slots=6, found=True))
    assert {(told.node.name, told.node.slots) for told in [await trial.told(NodeFound) for _ in NODES]} == {
        (name, CPUS) for name in NODES
    }


async def test_why_a_job_waits_in_slurms_queue_is_told_with_what_helps(slurm: Cluster, trial: Trial) -> None:
    """A node is to be maintained in an hour: what has no limit of time would run into that."""
    reserve = ("scontrol", "create", "reservation", "ReservationName=gold", "Users=root", "Nodes=a")
    await trial.start(*FOUR)
    slurm.run(*reserve, "StartTime=now+1hour", "Duration=60", "Flags=MAINT")
    try:
        waits = trial.call(add, 1, 2, node="a")
        await becomes(lambda: bool(trial.pending))
        (said,) = trial.pending
        assert (said.job, said.task, said.attempt) == waits
        assert said.reason.startswith("Slurm says ReqNodeNotAvail")
        assert "`--time-limit`, may begin before" in said.reason
        assert await trial.value(trial.call(add, 1, 1, node="a", slots=(1,), time_limit=60)) == 2
    finally:
        slurm.run("scontrol", "delete", "ReservationName=gold")
    assert await trial.value(waits) == 3
