"""What a schedule is worth: measures of arrays, and their summary for a whole run."""

from __future__ import annotations

from headway.metrics.batches import Interval, batch_means
from headway.metrics.collect import (
    frame,
    intervals,
    penalties,
    penalty_by_user,
    summarise,
    to_json,
    write_schedule,
    write_tasks,
)
from headway.metrics.energy import Energy, energy_between, energy_of
from headway.metrics.services import penalty_by_service, service_measures, write_services

__all__ = [
    "summarise",
    "intervals",
    "batch_means",
    "Interval",
    "write_schedule",
    "write_tasks",
    "to_json",
    "frame",
    "penalties",
    "penalty_by_user",
    "penalty_by_service",
    "service_measures",
    "write_services",
    "energy_between",
    "energy_of",
    "Energy",
]
