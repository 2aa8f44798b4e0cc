"""Collectors by name: Headway's own, and those that packages add under the entry point `headway.collectors`."""

from __future__ import annotations

from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from headway.collectors.base import Collector, CollectorFactory
from headway.collectors.machine import MachineUse, NodeProcesses

COLLECTORS_GROUP: Final = "headway.collectors"
"""Entry point under which a package offers collectors: name = a callable that makes one."""

BUILT_IN_COLLECTORS: Final[dict[str, CollectorFactory]] = {"machine": MachineUse, "node": NodeProcesses}


def installed() -> dict[str, CollectorFactory]:
    """What makes each installed collector, by name; an added one is loaded only then. Built-in names win."""
    found: dict[str, CollectorFactory] = {
        entry.name: partial(_made, entry) for entry in entry_points(group=COLLECTORS_GROUP)
    }
    return found | BUILT_IN_COLLECTORS


def _made(entry: EntryPoint) -> Collector:
    factory: CollectorFactory = entry.load()
    return factory()
