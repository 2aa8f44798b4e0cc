"""Services: what a submission says of one, and what is reported of it."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from headway.errors import InvalidInput
from headway.services.terms import ServiceSettings
from headway.wire.base import Answer, Bytes1, Count, JobText, Least1, Request, Share, Span

SERVICE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a service may be called: its name stands in a path of the HTTP interface."""

ServiceName = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{SERVICE_NAME.pattern}$"})]


class ServiceTerms(Request, frozen=True):
    """The terms that only services have, see `headway.model.job.Service`; times in seconds.

    Attributes:
        replace: whether it takes the place of the service of its name, if there is one: when its first instance is
            ready, the other service is cancelled. Requests that wait stay; those that are worked on are finished.
    """

    most: Least1 = 1
    least: Count = 0
    threshold: Span = 1.0
    fraction: Share = 0.9
    window: Span = 20.0
    replace: bool = False


class RequestLimits(Request, frozen=True):
    """Limits for the requests of a service, see `headway.services.terms.ServiceSettings`; None: as there."""

    time_limit: Span | None = None
    wait_limit: Span | None = None
    load_limit: Span | None = None
    queue_max: Count | None = None
    queue_bytes_max: Bytes1 | None = None
    request_max: Bytes1 | None = None
    answer_max: Bytes1 | None = None


class Handling(Request, frozen=True, tag="handler"):
    """What answers the requests of a service: a function of a module, a pickled function, or a program.

    Attributes:
        handler: `module:function`.
        function: name (`blob_name`) of the blob that contains the function, made by cloudpickle.
        command: a program and its arguments, run anew for each request.
        paths: folders that modules are imported from, ahead of the server's own.
        cwd: folder that instances run in; empty: the one the server was started in.
        env: variables added to those that all tasks get.
        limits: for requests.
        name: what a pickled function is called, for people.
    """

    handler: str = ""
    function: str = ""
    command: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    cwd: str = ""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    limits: RequestLimits = RequestLimits()
    name: JobText = ""

    @property
    def words(self) -> str:
        """What answers, for people."""
        return self.handler or self.name or " ".join(self.command)


def settings_of(threshold: float, window: float, limits: RequestLimits) -> ServiceSettings:
    """What a service's queue is told.

    Raises:
        InvalidInput: one of them is not allowed.
    """
    given = {name: value for name, value in msgspec.structs.asdict(limits).items() if value is not None}
    return ServiceSettings(threshold=threshold, window=window, **given)


def check_service(name: str, terms: ServiceTerms, limits: RequestLimits, field: str) -> None:
    """Check that there can be a service of this name with these terms.

    Raises:
        InvalidInput: its name cannot stand in a path, or a term or a limit is not allowed.
    """
    if not SERVICE_NAME.fullmatch(name):
        raise InvalidInput(
            "name",
            name,
            "letters, digits and . _ - in the name of a service, at most 100, the first a letter or a digit",
        )
    try:
        settings_of(terms.threshold, terms.window, limits)
    except InvalidInput as flaw:
        where = "service" if flaw.field in ("threshold", "window") else f"{field}.limits"
        raise InvalidInput(f"{where}.{flaw.field}", flaw.value, flaw.allowed) from None


class WindowReport(Answer, frozen=True):
    """What a service did in a while, see `headway.model.window.Window`; times in seconds.

    Attributes:
        share: of the requests that came, those that were answered in time; 1 without requests.
        response: mean response time of the requests that were answered in it; 0: there were none.
        warm_up: how long instances took from their launch until they answered, on average so far; 0: not known.
        penalty: what the window costs by the terms of now.
    """

    start: float
    length: float
    arrivals: int
    rejected: int
    in_time: int
    answered: int
    failed: int
    timed_out: int
    gone: int
    queued: int
    instances: float
    share: float
    processing: float
    processing_variation: float
    arrival_variation: float
    response: float
    responses: tuple[int, ...]
    warm_up: float
    penalty: float


class ServiceReport(Answer, frozen=True):
    """A service.

    Attributes:
        name: under which it is asked.
        job: the job whose instances answer now.
        next: the job that takes its place as soon as one of its instances is ready; None: there is none.
        user, status, least, most, threshold, fraction, rate, window: the terms of the job, and how far it is.
        handler: what answers, in words.
        ready: instances that are ready.
        running: instances that run, those included that still load their handler.
        queued: requests that wait now.
        penalty: what its windows have cost so far.
        trouble: why an instance could not load the handler, of the latest that could not; empty: none.
        windows: the last that have ended, at most 16, in order.
    """

    name: str
    job: int
    next: int | None
    user: str
    status: str
    least: int
    most: int
    threshold: float
    fraction: float
    rate: float
    window: float
    handler: str
    ready: int
    running: int
    queued: int
    penalty: float
    trouble: str
    windows: tuple[WindowReport, ...]


class ServiceList(Answer, frozen=True):
    """All services, by name; and the upper bounds of the histograms of response times, in seconds."""

    services: tuple[ServiceReport, ...]
    bounds: tuple[float, ...]
