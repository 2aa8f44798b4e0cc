"""Headway schedules jobs on machines so that they meet their due dates."""

from __future__ import annotations

TYPE_CHECKING = False  # as far as a type checker knows, it is true: a job of Slurm does without `typing`

if TYPE_CHECKING:
    from typing import Any, Final

    from headway.checkpoints import checkpoint, resumed
    from headway.client.client import Client
    from headway.client.executor import HeadwayExecutor
    from headway.client.job import Job, Task
    from headway.client.pickling import RemoteTraceback
    from headway.client.service import Service
    from headway.client.waiters import Waiter, Waiters, as_completed
    from headway.client.workflow import Flow, Workflow
    from headway.errors import HeadwayError, InvalidInput, NotPicklable, NotTrusted, OtherEpoch, Refused, TaskFailed
    from headway.files import Input, Output
    from headway.metrics.collect import frame, summarise, write_schedule
    from headway.model.node import NodeSpec
    from headway.model.schedule import Schedule
    from headway.model.workload import Workload
    from headway.sim.experiment import ServiceLoad
    from headway.sim.experiment import run as simulate
    from headway.traces import read_workload, write_workload
    from headway.traces.columns import workload_of

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "Client",
    "Job",
    "Task",
    "Workflow",
    "Flow",
    "Service",
    "Input",
    "Output",
    "Waiter",
    "Waiters",
    "as_completed",
    "HeadwayExecutor",
    "checkpoint",
    "resumed",
    "TaskFailed",
    "RemoteTraceback",
    "HeadwayError",
    "InvalidInput",
    "NotPicklable",
    "NotTrusted",
    "OtherEpoch",
    "Refused",
    "simulate",
    "ServiceLoad",
    "read_workload",
    "write_workload",
    "workload_of",
    "Workload",
    "NodeSpec",
    "Schedule",
    "summarise",
    "frame",
    "write_schedule",
]

_PLACES: Final = {
    "Client": "headway.client.client",
    "Job": "headway.client.job",
    "Task": "headway.client.job",
    "Workflow": "headway.client.workflow",
    "Flow": "headway.client.workflow",
    "Service": "headway.client.service",
    "Input": "headway.files",
    "Output": "headway.files",
    "Waiter": "headway.client.waiters",
    "Waiters": "headway.client.waiters",
    "as_completed": "headway.client.waiters",
    "HeadwayExecutor": "headway.client.executor",
    "checkpoint": "headway.checkpoints",
    "resumed": "headway.checkpoints",
    "TaskFailed": "headway.errors",
    "RemoteTraceback": "headway.client.pickling",
    "HeadwayError": "headway.errors",
    "InvalidInput": "headway.errors",
    "NotPicklable": "headway.errors",
    "NotTrusted": "headway.errors",
    "OtherEpoch": "headway.errors",
    "Refused": "headway.errors",
    "simulate": "headway.sim.experiment:run",
    "ServiceLoad": "headway.sim.experiment",
    "read_workload": "headway.traces",
    "write_workload": "headway.traces",
    "workload_of": "headway.traces.columns",
    "Workload": "headway.model.workload",
    "NodeSpec": "headway.model.node",
    "Schedule": "headway.model.schedule",
    "summarise": "headway.metrics.collect",
    "frame": "headway.metrics.collect",
    "write_schedule": "headway.metrics.collect",
}
"""Where each public name is: the module, and after a colon its name there if that is another."""


def __getattr__(name: str) -> Any:
    """A public name, loaded when it is first asked for, so that importing the package costs nothing."""
    import importlib

    if name not in _PLACES:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    module, _, there = _PLACES[name].partition(":")
    value = globals()[name] = getattr(importlib.import_module(module), there or name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
