"""The Collector protocol: what the status checker asks of a plug-in that measures nodes, and what it does with it.

A collector runs in a thread beside the server's own, one call at a time. It must answer within a time limit; one that
raises or hangs is called again after a while, longer each time, and does not disturb the others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headway.engines.local.shared.processes import tree

NAMES_MAX: Final = 100
"""Metrics that one collector may measure on one node."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")

Measures = Mapping[str, Mapping[str, float]]
"""What was measured: by name of the node, by name of the metric."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is up, as collectors see it.

    Attributes:
        name: of the node.
        pid: the process, on this machine, below which everything of the node runs; 0: it is on another machine.
    """

    name: str
    pid: int

    def processes(self) -> list[int]:
        """All its processes on this machine, as they are now, tasks among them."""
        return tree(self.pid) if self.pid else []


class Collector(Protocol):
    """Measures nodes whenever it is called. It may keep what it needs to tell rates from one call to the next."""

    def __call__(self, nodes: Sequence[Node]) -> Measures:
        """Measure now.

        Args:
            nodes: those that are up.

        Returns:
            Finite numbers by node and metric. Nodes and metrics may be missing. Names have letters, digits and `_.-`,
            and end in their unit: `_share` (0 to 1), `_bytes`, `_bytes_per_second`, `_seconds`; else they are counts.
        """
        ...


CollectorFactory = Callable[[], Collector]
"""Makes a collector."""


def usable(measures: Any, nodes: Sequence[Node]) -> tuple[dict[str, dict[str, float]], str]:
    """The usable part of an answer, and what is wrong with the rest; empty if nothing is.

    >>> usable({"a": {"load": 1, "heat": float("nan")}, "b": {}}, [Node("a", 0)])
    ({'a': {'load': 1.0}}, 'heat of node a is nan; allowed: a finite number')
    """
    known = {node.name for node in nodes}
    kept: dict[str, dict[str, float]] = {}
    wrong = ""
    if not isinstance(measures, Mapping):
        return kept, f"it answered {type(measures).__name__}; allowed: a mapping of nodes to metrics"
    for node, values in measures.items():
        if node not in known:
            continue  # it went meanwhile, or the collector knows more machines than there are nodes
        if not isinstance(values, Mapping):
            wrong = wrong or f"of node {node} it answered {type(values).__name__}; allowed: a mapping of metrics"
            continue
        kept[node] = {}
        for metric, value in values.items():
            if not isinstance(metric, str) or not _NAME.fullmatch(metric):
                allowed = "1 to 60 letters, digits and _.-"
                wrong = wrong or f"a metric of node {node} is called {metric!r}; allowed: {allowed}"
            elif not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
                wrong = wrong or f"{metric} of node {node} is {value!r}; allowed: a finite number"
            elif len(kept[node]) == NAMES_MAX:
                wrong = wrong or f"node {node} has more than {NAMES_MAX} metrics of this collector"
            else:
                kept[node][metric] = float(value)
    return kept, wrong
