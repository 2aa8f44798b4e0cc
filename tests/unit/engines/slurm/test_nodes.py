"""The nodes that Slurm has, as they are reported."""

from __future__ import annotations

from pathlib import Path

from headway.engines.base import NodeFound, NodeLost, NodeShut, Report
from headway.engines.kept_out import KeptOut
from headway.engines.slurm.nodes import FOUND_AT_ONCE, NodesInService
from headway.engines.slurm.parsing import NodeStanding, SlurmNode
from headway.engines.slurm.settings import SlurmSettings


class Owner:
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.told: list[Report] = []
        self.dropped: list[str] = []

    def tell(self, report: Report) -> None:
        self.told.append(report)

    def drop_all(self, name: str) -> None:
        self.dropped.append(name)


def test_many_nodes_are_found_one_lot_after_the_other(tmp_path: Path) -> None:
    owner = Owner()
    nodes = NodesInService(SlurmSettings("main"), owner, KeptOut(tmp_path))
    names = [f"e{number}" for number in range(2 * FOUND_AT_ONCE + 1)]
    nodes.seen = {name: SlurmNode(name, NodeStanding.READY, "idle", 4, 4, 8000, "") for name in names}
    assert nodes.find()
    assert len(owner.told) == FOUND_AT_ONCE
    assert nodes.find()
    assert not nodes.find()
    assert [report.node.name for report in owner.told if isinstance(report, NodeFound)] == names
    assert not nodes.find()
    assert len(owner.told) == len(names)
    assert owner.dropped == []


class Shared:
    """Two nodes on which tasks run as their users; `in_vain` says which take nothing new after these failures."""

    def __init__(self, tmp_path: Path) -> None:
        self.owner = Owner()
        self.nodes = NodesInService(SlurmSettings("main", run_as_owner=True), self.owner, KeptOut(tmp_path))
        self.nodes.seen = {name: SlurmNode(name, NodeStanding.READY, "idle", 4, 4, 8000, "") for name in ("n1", "n2")}
        self.nodes.find()

    def fails(self, node: str, *accounts: str, working: frozenset[str] = frozenset()) -> list[Report]:
        """One job of each account ends there before it has begun; what is reported."""
        self.owner.told.clear()
        for account in accounts:
            self.nodes.in_vain(node, account, "it printed: no such user", 100.0, working)
        return [report for report in self.owner.told if isinstance(report, NodeLost | NodeShut)]


def test_an_account_that_can_begin_nowhere_takes_no_node_from_the_others(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    assert shared.fails("n1", *["ann"] * 9) == []
    assert shared.fails("n2", *["ann"] * 9) == []
    assert shared.nodes.up == {"n1", "n2"}


def test_a_node_is_left_alone_where_jobs_of_two_accounts_fail_one_after_the_other(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    (lost,) = shared.fails("n1", "ann", "bob")
    assert isinstance(lost, NodeLost)
    assert (lost.node, lost.excused) == ("n1", True)
    assert shared.nodes.up == {"n2"}


def test_a_node_is_left_alone_by_an_account_whose_jobs_begin_elsewhere(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    shared.nodes.works("n2", "ann")
    assert shared.fails("n1", "ann") == []
    assert len(shared.fails("n1", "ann")) == 1


def test_that_a_job_of_another_account_begins_there_clears_a_node(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    assert shared.fails("n1", "ann") == []
    shared.nodes.works("n1", "bob")
    assert shared.fails("n1", "ann", "ann") == []


def test_a_node_where_something_runs_is_shut_not_lost(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    (shut,) = shared.fails("n1", "ann", "bob", working=frozenset({"n1"}))
    assert isinstance(shut, NodeShut)
    assert shared.owner.dropped == []
