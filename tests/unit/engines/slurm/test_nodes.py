"""The nodes that Slurm has, as they are reported."""

from __future__ import annotations

from pathlib import Path

from headway.engines.base import NodeFound, Report
from headway.engines.kept_out import KeptOut
from headway.engines.slurm.nodes import FOUND_AT_ONCE, NodesInService
from headway.engines.slurm.parsing import NodeStanding, SlurmNode
from headway.engines.slurm.settings import SlurmSettings


class Owner:
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.told: list[Report] = []

    def tell(self, report: Report) -> None:
        self.told.append(report)

    def drop_all(self, name: str) -> None:
        raise AssertionError(name)


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
