"""What Slurm's commands print, as recorded from Slurm 22.05.8 unless a test says something else."""

from __future__ import annotations

import pytest

from headway.engines.slurm.parsing import (
    NodeStanding,
    Partition,
    Queued,
    SlurmNode,
    controller,
    job_name,
    jobs,
    nodes,
    partition,
    seconds,
    standing_of,
    version,
)

READY, CLOSED, DOWN = NodeStanding.READY, NodeStanding.CLOSED, NodeStanding.DOWN

SINFO = """\
n|up|mixed|4|4|1|8000|none
a|up|down|4|4|1|8000|Not responding
b|up|drained|4|4|1|8000|disk | fan
m|up|draining|4|4|1|8000|test
big|up|idle|64|2|16|1|none
"""


def test_nodes_of_a_partition() -> None:
    assert nodes(SINFO) == {
        "n": SlurmNode("n", READY, "mixed", 4, 4, 8000, ""),
        "a": SlurmNode("a", DOWN, "down", 4, 4, 8000, "Not responding"),
        "b": SlurmNode("b", DOWN, "drained", 4, 4, 8000, "disk | fan"),
        "m": SlurmNode("m", CLOSED, "draining", 4, 4, 8000, "test"),
        "big": SlurmNode("big", READY, "idle", 64, 32, 1, ""),
    }
    assert nodes("") == {}


@pytest.mark.parametrize(
    ("state", "standing"),
    [
        ("idle", READY),
        ("mixed", READY),
        ("allocated", READY),
        ("completing", READY),
        ("planned", READY),
        ("mixed-", READY),
        ("idle~", READY),
        ("idle#", READY),
        ("idle*", CLOSED),
        ("mixed*", CLOSED),
        ("mixed@", CLOSED),
        ("idle%", CLOSED),
        ("draining", CLOSED),
        ("draining*", CLOSED),
        ("maint", CLOSED),
        ("mixed$", CLOSED),
        ("reserved", CLOSED),
        ("drained", DOWN),
        ("drained*", DOWN),
        ("down", DOWN),
        ("down*", DOWN),
        ("down~", DOWN),
        ("error", DOWN),
        ("fail", DOWN),
        ("failing", DOWN),
        ("unknown", NodeStanding.UNKNOWN),
        ("unknown*", NodeStanding.UNKNOWN),
        ("inval", DOWN),
        ("", DOWN),
    ],
)
def test_what_a_node_can_be_used_for(state: str, standing: NodeStanding) -> None:
    assert standing_of(state, "up") is standing


@pytest.mark.parametrize("availability", ["down", "drain", "inact"])
def test_nothing_starts_in_a_partition_that_is_not_up(availability: str) -> None:
    assert standing_of("idle", availability) is CLOSED
    assert standing_of("down*", availability) is DOWN


SQUEUE = """\
17|RUNNING|None|headway-0a1b2c-3.1.2.0
18|PENDING|Resources|headway-0a1b2c-3.1.2.1
19|PENDING|ReqNodeNotAvail, May be reserved for other job|headway-0a1b2c-3.1.2.1
20|COMPLETING|None|headway-ffffff-3.1.2.0
21_[1-4]|PENDING|JobArrayTaskLimit|headway-0a1b2c-9.9.9.0
22|RUNNING|None|somebody's | job
23|RUNNING|None|headway-0a1b2c-3.1.2
"""


def test_jobs_of_a_server_are_found_by_their_names() -> None:
    assert job_name("0a1b2c", (3, 1, 2), 1) == "headway-0a1b2c-3.1.2.1"
    assert jobs(SQUEUE, "0a1b2c") == {
        ((3, 1, 2), 0): [Queued(17, "RUNNING", "None")],
        ((3, 1, 2), 1): [
            Queued(18, "PENDING", "Resources"),
            Queued(19, "PENDING", "ReqNodeNotAvail, May be reserved for other job"),
        ],
    }


PARTITION = (
    "PartitionName=brief AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A "
    "DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=00:01:00 "
    "MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=m PriorityJobFactor=1 PriorityTier=10 RootOnly=NO ReqResv=NO "
    "OverSubscribe=NO OverTimeLimit=NONE PreemptMode=REQUEUE State=UP TotalCPUs=4 TotalNodes=1 "
    "SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED "
    "TRES=cpu=4,mem=8000M,node=1,billing=4\n"
)


def test_a_partition_and_its_limit() -> None:
    assert partition(PARTITION) == Partition("brief", 60.0)
    assert partition(PARTITION.replace("00:01:00", "UNLIMITED")) == Partition("brief", None)


@pytest.mark.parametrize(("text", "value"), [("7-00:00:00", 604800.0), ("12:00:00", 43200.0), ("INFINITE", None)])
def test_lengths_of_time(text: str, value: float | None) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("slurm-wlm 22.05.8", (22, 5)), ("slurm 24.11.0-rc1", (24, 11)), ("slurm 20.11.9", (20, 11)), ("none", None)],
)
def test_versions(text: str, value: tuple[int, int] | None) -> None:
    assert version(text) == value


def test_the_machine_of_the_controller() -> None:
    assert controller("SlurmctldDebug          = info\nSlurmctldHost[0]        = localhost(127.0.0.1)\n") == "127.0.0.1"
    assert controller("SlurmctldHost[0]        = head\nSlurmctldHost[1]        = spare\n") == "head"
    assert controller("") == ""
