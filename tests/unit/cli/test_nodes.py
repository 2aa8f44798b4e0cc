"""What `headway nodes` says of what runs where."""

from __future__ import annotations

from typing import Literal

from headway.cli.live import behind, in_tier
from headway.wire.operation import AttemptReport, NodeReport


def attempt(job: int, *slots: str, tier: Literal["foreground", "background"] = "foreground") -> AttemptReport:
    return AttemptReport(job=job, task=0, attempt=1, slots=slots, started=0, expected_end=None, tier=tier)


def test_what_runs_stands_in_order_of_its_slots_on_the_node() -> None:
    """Slot 10 comes after slot 9. Slots of other nodes do not count."""
    attempts = (attempt(1, "n/10"), attempt(2, "m/0", "n/9"), attempt(3, "n/2", "n/1", tier="background"))
    node = NodeReport(
        name="n", site="s", speed=1, cores=None, up=True, draining=False, slots=("busy",) * 11, attempts=attempts
    )
    assert [one.job for one in in_tier(node, "foreground")] == [2, 1]
    assert [behind(one, node) for one in in_tier(node, "background")] == ["3.0 on 1 2"]
