"""Reports to callers about services."""

from __future__ import annotations

import msgspec

from headway import wire
from headway.errors import NoSuchService
from headway.live.driver import Driver
from headway.model.instant import SECOND, to_seconds
from headway.model.job import JobId, Service
from headway.model.seen import JobView
from headway.model.site import of_services
from headway.model.slots import count
from headway.model.window import RESPONSE_BOUNDS, Window


def report(driver: Driver) -> wire.ServiceList:
    """All services, by name."""
    names = driver.services.names
    return wire.ServiceList(tuple(_of(driver, name, names[name]) for name in sorted(names)), RESPONSE_BOUNDS)


def service_report(driver: Driver, name: str) -> wire.ServiceReport:
    """A service.

    Raises:
        NoSuchService: there is none of this name.
    """
    names = driver.services.names
    if name not in names:
        raise NoSuchService(name, names)
    return _of(driver, name, names[name])


def without_words(report: wire.ServiceReport) -> wire.ServiceReport:
    """The same report for those who may not read what the service runs, and what was wrong with that."""
    return msgspec.structs.replace(report, handler="", trouble="")


def _of(driver: Driver, name: str, jobs: tuple[JobId, ...]) -> wire.ServiceReport:
    services, job = driver.services, jobs[0]
    queue, view, spec = services.queue(name), driver.core.state.jobs[job], driver.open[job].spec
    assert isinstance(spec, Service)
    return wire.ServiceReport(
        name=name,
        job=job,
        next=jobs[-1] if len(jobs) > 1 else None,
        user=spec.user,
        status=driver.core.status(job).value,
        least=spec.least,
        most=spec.most,
        threshold=to_seconds(spec.threshold),
        fraction=spec.fraction,
        rate=spec.rate,
        window=to_seconds(spec.window),
        handler=services.work_of(job).words,
        ready=len(queue.instances),
        running=sum(len(driver.core.state.jobs[one].attempts) for one in jobs),
        queued=len(queue),
        penalty=view.cost,
        trouble=_trouble(driver, jobs),
        windows=tuple(_window(spec, window) for window in view.windows),
    )


def short_of(driver: Driver, job: JobView) -> str:
    """How many instances a service has, and why not more; empty if it waits for a reason of its own."""
    spec = job.spec
    assert isinstance(spec, Service)
    runs = sum(not attempt.ending for attempt in job.attempts.values())
    if runs >= spec.most:
        return ""
    if runs >= spec.least:
        return f"it has {runs} of at most {spec.most} instances; more of them are not expected to lower the penalties"
    has = f"it has {runs} of the {spec.least} instances that it is to have at least"
    state = driver.core.state
    latest = [state.jobs[jobs[-1]].spec for jobs in driver.services.names.values()]
    wanted = sum(one.least for one in latest if isinstance(one, Service))
    sites = of_services(state.policy)
    nodes = [node for node in state.nodes.values() if node.may_start]
    slots = sum([count(node.slots) for node in nodes if not sites or node.spec.site in sites])
    if wanted <= slots:
        return f"{has}, and gets more slots when tasks that run there have ended"
    there = f"sites that services may have ({', '.join(sites)}) have" if sites else "cluster has"
    return (
        f"{has}: all services together are to have {wanted}, and the {there} {slots} slots. "
        "Add slots, or end a service, or replace one with fewer at least"
    )


def _trouble(driver: Driver, jobs: tuple[JobId, ...]) -> str:
    known = driver.services.troubles
    return next((known[job] for job in reversed(jobs) if job in known), "")


def _window(spec: Service, window: Window) -> wire.WindowReport:
    return wire.WindowReport(
        start=to_seconds(window.start),
        length=to_seconds(window.length),
        arrivals=window.arrivals,
        rejected=window.rejected,
        in_time=window.in_time,
        answered=window.answered,
        failed=window.failed,
        timed_out=window.timed_out,
        gone=window.gone,
        queued=window.queued,
        instances=window.instances,
        share=window.share,
        processing=window.processing / SECOND,
        processing_variation=window.processing_variation,
        arrival_variation=window.arrival_variation,
        response=window.response / SECOND,
        responses=window.responses,
        warm_up=window.warm_up / SECOND,
        penalty=spec.penalty(window.share),
    )
