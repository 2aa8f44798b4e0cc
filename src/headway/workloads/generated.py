"""What all generated workloads share: estimates, CPU use and a load, besides what a model draws; and statistics."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final, Literal, TypedDict

import numpy as np

from headway.errors import InvalidInput
from headway.model.instant import SECOND
from headway.model.job import Kind
from headway.model.workload import FloatArray, Workload, workload_us
from headway.traces.swf import LARGEST
from headway.traces.transforms import offered_load, with_load, work
from headway.workloads.tsafrir05 import with_estimates

CPU_LEAST: Final = 0.4
"""The least mean CPU use of a job of several processes (MEASY14 3.1)."""

MOST_JOBS: Final = 10_000_000

MOST_PROCESSES: Final = 20_000_000
"""The most processes, of all jobs together, that may each have a CPU use of their own."""


class Extras(TypedDict, total=False):
    """Parameters of all models, besides their own.

    Keys:
        load: gaps are scaled so that the load is this; None: the load that the model gives.
        estimates: "tsafrir" (the default): by the model of Tsafrir et al.; "exact": the run times; None: no estimates.
        largest_estimate: seconds, for "tsafrir". Longer run times are cut to it. None: the longest run time, rounded
            up to a full hour.
        cpu: "drawn": jobs of one process use a whole processor, the mean of other jobs is uniform in 0.4..1; a number,
            0 to 1: this mean for all; None (the default): not known.
        cpu_spread: how far the CPU use of a process may be from its job's mean, 0 to 1; 0 (the default): all are alike.
    """

    load: float | None
    estimates: Literal["tsafrir", "exact"] | None
    largest_estimate: float | None
    cpu: Literal["drawn"] | float | None
    cpu_spread: float


def chances(seed: int) -> tuple[np.random.Generator, np.random.Generator, np.random.Generator]:
    """Random generators for the jobs, their estimates and their CPU use. Each is independent of the others.

    Raises:
        InvalidInput: the seed is not a whole number of 0 or more.
    """
    check_whole("seed", seed, 0)
    jobs, estimates, cpu = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(3))
    return jobs, estimates, cpu


def check_size(jobs: int, processors: int) -> None:
    """Refuse a workload without jobs or processors.

    Raises:
        InvalidInput: either is below 1 or absurd.
    """
    check_whole("jobs", jobs, 1, MOST_JOBS)
    check_whole("processors", processors, 1, 2**31 - 1)


def check_whole(name: str, value: Any, least: int, most: float = math.inf) -> None:
    """Refuse a value that is not a whole number from `least` to `most`.

    Raises:
        InvalidInput: it is not one; the message names the field.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        allowed = f"from {least} to {most}" if math.isfinite(most) else f"{least} or more"
        raise InvalidInput(name, value, f"a whole number, {allowed}")


def check_number(name: str, value: Any, least: float, most: float = math.inf, *, above: bool = False) -> None:
    """Refuse a value that is not a finite number from `least` (or above it, if `above`) to `most`.

    Raises:
        InvalidInput: it is not one; the message names the field.
    """
    fits = isinstance(value, int | float | np.number) and math.isfinite(value) and least <= value <= most
    if not fits or (above and value == least):
        low = f"above {least:g}" if above else f"from {least:g}" if math.isfinite(most) else f"{least:g} or more"
        raise InvalidInput(name, value, f"a number {low}" + (f" to {most:g}" if math.isfinite(most) else ""))


def generated(
    release: FloatArray,
    width: Any,
    runtime: FloatArray,
    *,
    seed: int,
    processors: int,
    extras: Extras,
) -> Workload:
    """A workload of rigid jobs from the columns that a model has drawn. Times become whole seconds.

    Args:
        release, runtime: seconds, shape (jobs,), releases in order.
        width: processors, shape (jobs,).
        seed: fixes estimates and CPU use.
        extras: what is left out has its default.

    Raises:
        InvalidInput: one of these is not allowed.
        TypeError: there is no such extra.
    """
    for unknown in extras.keys() - Extras.__annotations__.keys():
        raise TypeError(f"a model of workloads has no parameter {unknown!r}")
    _, for_estimates, for_cpu = chances(seed)
    estimates, load = extras.get("estimates", "tsafrir"), extras.get("load")
    if estimates not in ("tsafrir", "exact", None):
        raise InvalidInput("estimates", estimates, "tsafrir, exact or none")
    if release[-1] > LARGEST:
        raise InvalidInput("last release", float(release[-1]), f"at most {LARGEST:g} s", hint="Take fewer jobs.")
    ran = np.rint(runtime).astype(np.int64) * SECOND
    plain = workload_us(
        release=np.floor(release).astype(np.int64) * SECOND,
        runtime=ran,
        width=width,
        estimate=ran if estimates == "exact" else -1,
        kind=int(Kind.RIGID),
        label=np.arange(1, len(ran) + 1),
    )
    workload = plain
    if estimates == "tsafrir":
        workload = with_estimates(plain, largest=extras.get("largest_estimate"), rng=for_estimates)
    workload = with_cpu(workload, extras.get("cpu"), extras.get("cpu_spread", 0.0), for_cpu)
    if load is not None:
        workload = in_whole_seconds(with_load(workload, load, processors))
    return workload


def in_whole_seconds(workload: Workload) -> Workload:
    """Releases rounded down to full seconds, as in logs."""
    return replace(workload, release=workload.release // SECOND * SECOND)


def with_cpu(
    workload: Workload, cpu: Literal["drawn"] | float | None, spread: float, rng: np.random.Generator
) -> Workload:
    """Give jobs a CPU use, as in `Extras`.

    The use of a process is uniform between mean - spread and mean + spread of its job. The spread is smaller where it
    would exceed 0..1. The job's mean is then that of its processes.

    Raises:
        InvalidInput: `cpu` is neither "drawn" nor in 0..1, `spread` is not in 0..1, there is a spread without `cpu`, or
            there are too many processes for a spread.
    """
    check_number("cpu_spread", spread, 0, 1)
    if cpu is None:
        if spread:
            raise InvalidInput("cpu_spread", spread, "0 where no CPU use is given", hint="Give `cpu` too.")
        return workload
    width = workload.width
    if spread and (processes := int(width.sum())) > MOST_PROCESSES:
        hint = "Take fewer jobs, fewer processors or no spread."
        raise InvalidInput("processes of all jobs", processes, f"at most {MOST_PROCESSES} for `cpu_spread`", hint=hint)
    if isinstance(cpu, str):
        if cpu != "drawn":
            raise InvalidInput("cpu", cpu, "drawn, a number from 0 to 1, or none")
        mean = np.where(width == 1, 1.0, rng.uniform(CPU_LEAST, 1.0, len(workload)))
    else:
        check_number("cpu", cpu, 0, 1)
        mean = np.full(len(workload), float(cpu))
    if not spread:
        return replace(workload, cpu=mean)
    reach = np.minimum(spread, np.minimum(mean, 1 - mean))
    first = np.cumsum(width) - width
    each = np.repeat(mean, width) + np.repeat(reach, width) * rng.uniform(-1, 1, int(width.sum()))
    differ = np.flatnonzero((width > 1) & (reach > 0)).tolist()
    shares = each.tolist()
    uses = {
        job: tuple(shares[at : at + wide]) for job, at, wide in zip(differ, first[differ], width[differ], strict=True)
    }
    return replace(workload, cpu=np.add.reduceat(each, first) / width, uses=uses)


def statistics(workload: Workload, processors: int) -> dict[str, float | None]:
    """Statistics of a workload: numbers by name, with times in seconds and shares of all jobs.

    None: the load if all jobs have the same release, and means of values that are known of no job.
    """
    width, runtime = workload.width * workload.tasks, workload.runtime / SECOND
    span = int(workload.release[-1] - workload.release[0]) / SECOND
    powers = (width > 1) & (width & (width - 1) == 0)
    estimate, cpu = workload.estimate[workload.estimate >= 0], workload.cpu[~np.isnan(workload.cpu)]
    return {
        "jobs": len(workload),
        "processors": processors,
        "width_mean": float(width.mean()),
        "width_max": int(width.max()),
        "serial_share": float((width == 1).mean()),
        "power_of_two_share": float(powers.mean()),
        "runtime_mean": float(runtime.mean()),
        "runtime_max": float(runtime.max()),
        "runtime_cv": float(runtime.std() / runtime.mean()) if runtime.any() else 0.0,
        "gap_mean": span / max(1, len(workload) - 1),
        "load": offered_load(workload, processors) if span else None,
        "work": float(work(workload).sum()),
        "estimate_mean": float(estimate.mean()) / SECOND if len(estimate) else None,
        "cpu_mean": float(cpu.mean()) if len(cpu) else None,
    }
