"""What became of the services of a run: over all windows, and window by window."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError
from headway.model.instant import to_seconds
from headway.model.schedule import Schedule, ServiceRecord


def penalty_by_service(schedule: Schedule) -> dict[str, float]:
    """What the windows of each service cost, by name."""
    return {service.terms.name: service.penalty for service in schedule.services}


def service_measures(service: ServiceRecord) -> dict[str, Any]:
    """What became of a service; times in seconds.

    - `service`, its name; `arrivals`, how many requests came.
    - `share_in_time`: which part of them was answered within the threshold; NaN if none came.
    - `instances`: how many it had on average; NaN if no window has ended.
    - `penalty`: what its windows cost in all (Chang16, equation 2).
    - `windows`: of each, `start`, `length`, `arrivals`, `in_time`, `queued` at its end, `instances` and `penalty`.
    """
    windows = list(_windows(service))
    arrivals, in_time = (sum([window[name] for window in windows]) for name in ("arrivals", "in_time"))
    long = math.fsum([window["length"] for window in windows])
    return {
        "service": service.terms.name,
        "arrivals": arrivals,
        "share_in_time": in_time / arrivals if arrivals else math.nan,
        "instances": math.fsum([one["instances"] * one["length"] for one in windows]) / long if long else math.nan,
        "penalty": service.penalty,
        "windows": windows,
    }


def _windows(service: ServiceRecord) -> Iterator[dict[str, Any]]:
    for window in service.windows:
        yield {
            "start": to_seconds(window.start),
            "length": to_seconds(window.length),
            "arrivals": window.arrivals,
            "in_time": window.in_time,
            "queued": window.queued,
            "instances": window.instances,
            "penalty": service.terms.penalty(window.share),
        }


def write_services(schedule: Schedule, path: str | Path) -> None:
    """Write a CSV file with `service` and what `service_measures` says of each window, a line for each.

    Raises:
        HeadwayError: the file cannot be written.
    """
    path = Path(path)
    columns = ("service", "start", "length", "arrivals", "in_time", "queued", "instances", "penalty")
    try:
        with path.open("w", encoding="utf-8", newline="") as text:
            lines = csv.DictWriter(text, columns, lineterminator="\n")
            lines.writeheader()
            for service in schedule.services:
                lines.writerows({"service": service.terms.name, **window} for window in _windows(service))
    except OSError as error:
        raise HeadwayError(f"cannot write {path}: {error.strerror or error}") from error
