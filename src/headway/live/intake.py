"""Checks before a submission is accepted: its work, its terms, its functions, its key."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from headway import files, wire
from headway.core.scheduler import Scheduler
from headway.core.views import view_of
from headway.errors import Conflict, InvalidInput, MissingBlobs, NoSuchJob
from headway.given import task_file_of
from headway.history.features import INPUTS, NOT_OWN, is_own, numbers_of, of_commands, with_found, without_numbers
from headway.live.aside import aside
from headway.live.parts import WorkInParts
from headway.live.store.journal import Journal, encode, work_body
from headway.model.actions import JobStatus
from headway.model.instant import Duration, Instant
from headway.model.job import JobId, JobSpec, Kind, flaw
from headway.model.seen import JobView
from headway.wire.base import array_head
from headway.wire.by_parts import by_parts
from headway.wire.reading import packed

CHECKED_AT_ONCE: Final = 100
"""Jobs of a submission that are checked in one go; then other requests are served."""

TAKEN_AT_ONCE: Final = 100
"""Jobs that the core takes in one go. A submission of more has a turn of its own, in parts."""

DIGESTED_AT_ONCE: Final = 1_000
"""The same, where only their digest is computed."""

TASKS_ASIDE: Final = 2_000
"""A job of more tasks is checked beside the event loop."""

ASIDE_LEAST: Final = 1 << 20
"""A blob of this many bytes is hashed beside the event loop."""

URLS_AT_ONCE: Final = 500
"""URLs of a job's files that are checked in one go."""

T = TypeVar("T")

Pausing = Generator[Callable[[], object] | None, Any, T]
"""Work that pauses wherever others may be served: at None, or at a step that is long, whose result it wants."""

_UPLOAD_AGAIN: Final = "Upload it again: what no open job names is deleted after `headway up --keep-uploads`."


@dataclass(frozen=True, slots=True)
class LargeJob:
    """A job of many tasks, with what takes time done before it is accepted.

    Attributes:
        view: the job as the core will have it.
        work: as its launches need it.
        names_files: whether it has inputs or outputs.
        spec: its terms as rows have them.
    """

    view: JobView
    work: wire.Work
    names_files: bool
    spec: bytes


@dataclass(frozen=True, slots=True)
class _Looked:
    """What was found out of a large job beside the event loop: also what is wrong with it, its URLs, and its work."""

    job: LargeJob
    flaw: str | None
    urls: tuple[Collection[str], Collection[str]]
    body: bytes


@dataclass(slots=True)
class CheckedSubmission:
    """A checked submission: its jobs and their rows, complete except for the instant.

    Attributes:
        client: the number of the client in the journal.
        works: of each job the names of its functions and uploads, with spaces between them, and its encoded work.
        replaces: ids of services that take the place of one of their name.
        key: caller, idempotency key, digest of the jobs.
        answer: where the answer goes.
        large: jobs of many tasks.
    """

    specs: list[JobSpec]
    client: int
    works: list[tuple[str, bytes]]
    blobs: dict[str, bytes]
    functions: set[str]
    uploads: set[str]
    replaces: set[JobId]
    key: tuple[str, str, bytes]
    answer: asyncio.Future[wire.Submitted]
    large: dict[JobId, LargeJob] = field(default_factory=dict)

    @property
    def is_large(self) -> bool:
        """Whether it is accepted part by part."""
        return len(self.specs) > TAKEN_AT_ONCE or bool(self.large)


async def with_pauses(work: Pausing[T]) -> T:
    """Do work that pauses: meanwhile others are served, and its long steps are done beside the event loop."""
    go_on = partial(work.send, None)
    while True:
        try:
            step = go_on()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            found = await (asyncio.sleep(0) if step is None else aside(step))
        except BaseException as error:  # noqa: BLE001 - it is the work's
            go_on = partial(work.throw, error)
        else:
            go_on = partial(work.send, found)


def at_once(work: Pausing[T]) -> T:
    """Do work that pauses without any pause: for work that is short. Errors of its steps are raised within it."""
    go_on = partial(work.send, None)
    while True:
        try:
            step = go_on()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            found = None if step is None else step()
        except BaseException as error:  # noqa: BLE001 - it is the work's
            go_on = partial(work.throw, error)
        else:
            go_on = partial(work.send, found)


def is_short(submission: wire.Submission) -> bool:
    """Whether checking it takes a few milliseconds at most."""
    return (
        len(submission.jobs) <= CHECKED_AT_ONCE
        and not any(_is_aside(job) for job in submission.jobs)
        and all(len(blob) < ASIDE_LEAST for blob in submission.blobs.values())
    )


def _is_aside(job: wire.NewJob) -> bool:
    """Whether a job is made ready beside the event loop: there is something to look at for each of many tasks."""
    work = job.work
    commands = () if isinstance(work, wire.Calls | wire.Handling) else work.commands
    return max(len(job.plan), len(commands)) > TASKS_ASIDE


def digest(submission: wire.Submission) -> Pausing[bytes]:
    """A digest that says whether two submissions with one key are the same; empty without a key.

    It is that of their encoded jobs. Of many jobs it is computed part by part.
    """
    if not submission.key:
        return b""
    jobs = submission.jobs
    found = hashlib.sha256(array_head(len(jobs)))
    for first in range(0, len(jobs), DIGESTED_AT_ONCE):
        if first:
            yield None
        some = jobs[first : first + DIGESTED_AT_ONCE]
        if any(map(_is_aside, some)):
            for job in some:
                body = memoryview((yield from by_parts(job)))
                for start in range(0, len(body), ASIDE_LEAST):
                    yield None
                    found.update(body[start : start + ASIDE_LEAST])
        else:
            found.update(b"".join(map(encode, some)))
    return found.digest()


def answered(journal: Journal, caller: str, submission: wire.Submission, digest: bytes) -> wire.Submitted | None:
    """The answer to a submission that was accepted before under its key.

    Raises:
        Conflict: the key was used for another submission.
    """
    before = journal.accepted(caller, submission.key) if submission.key else None
    if before is None:
        return None
    check_same(submission, digest, before.digest)
    return wire.Submitted(tuple(range(before.first, before.first + before.jobs)), before.cursor, True)


def check_same(submission: wire.Submission, digest: bytes, before: bytes) -> None:
    """Check that a submission is the same as the earlier one with its key.

    Raises:
        Conflict: it is another one.
    """
    if digest != before:
        raise Conflict(
            f"key {submission.key!r} was used for another submission",
            "A key stands for one submission: repeat that one unchanged, or use a new key.",
        )


def _uploads(
    work: wire.Work, urls: tuple[Collection[str], Collection[str]], field: str, journal: Journal
) -> Pausing[dict[str, int]]:
    """Check that tasks can open the URLs that work names, as far as is known now; returns the uploads among them, with
    their sizes in bytes.

    Raises:
        InvalidInput: nothing here knows the scheme of a URL, or an upload is not here.
    """
    names, alike = dict[str, int](), dict[tuple[str, ...], str | None]()
    if isinstance(work, wire.Steps):
        names.update(_given(work, field, journal))
    for kind, named in zip(("inputs", "outputs"), urls, strict=True):
        for place, url in enumerate(named, 1):
            if place % URLS_AT_ONCE == 0:
                yield None
            if isinstance(work, wire.Steps) and task_file_of(url) is not None:
                continue  # known when that task has ended
            schemes = tuple(map(files.scheme, url.split("::")))  # looked for once, among what is installed
            if schemes not in alike or schemes[0] in ("", "file", "headway"):
                alike[schemes] = files.flaw(url, output=kind == "outputs")
            allowed = alike[schemes]
            if allowed is not None:
                raise InvalidInput(f"{field}.{kind}", url, allowed)
            upload = files.upload_of(url)
            if upload is None or kind == "outputs":
                continue
            size = journal.retained.upload_size(upload[0])
            if size is None:
                raise InvalidInput(f"{field}.inputs", url, "an upload that the server keeps", hint=_UPLOAD_AGAIN)
            names[upload[0]] = size
    return names


def with_uploads(spec: JobSpec, job: wire.NewJob, journal: Journal) -> Pausing[JobSpec]:
    """The terms of a job that could be submitted, with what `look_at` adds: the size of its uploads, as far as they are
    here.
    """
    sizes = dict[str, int]()
    for place, url in enumerate(() if _is_aside(job) else wire.urls_of(job.work)[0], 1):
        if place % URLS_AT_ONCE == 0:
            yield None
        upload = files.upload_of(url)
        if upload is not None:
            sizes[upload[0]] = journal.retained.upload_size(upload[0]) or 0
    return _with_inputs(spec, sizes)


def _with_inputs(spec: JobSpec, sizes: Mapping[str, int]) -> JobSpec:
    """The terms of a job with the size of its uploads as a feature."""
    return with_found(spec, {INPUTS: float(sum(sizes.values()))}) if any(sizes.values()) else spec


def _with_numbers(spec: JobSpec, work: wire.Work) -> JobSpec:
    """The terms of a job with the numbers of its commands as features; not of a workflow, whose tasks differ."""
    if not isinstance(work, wire.Commands) or spec.kind is Kind.WORKFLOW:
        return spec
    first, last = work.commands[0].argv, work.commands[-1].argv
    numbers = numbers_of(first)
    return with_found(without_numbers(spec), of_commands(numbers, numbers if first is last else numbers_of(last)))


def _given(work: wire.Steps, field: str, journal: Journal) -> Iterator[tuple[str, int]]:
    """The uploads among what tasks get of others that are not run again, with their sizes.

    Raises:
        InvalidInput: one is not here.
    """
    for number, gift in work.given.items():
        for name, url in gift.outputs.items():
            upload = files.upload_of(url)
            size = None if upload is None else journal.retained.upload_size(upload[0])
            if upload is None or size is None:
                allowed = "an upload that the server keeps"
                raise InvalidInput(f"{field}.given[{number}].outputs[{name!r}]", url, allowed, hint=_UPLOAD_AGAIN)
            yield upload[0], size


def gives_uploads(work: wire.Work) -> bool:
    """Whether tasks give files that the server is to keep."""
    return any(url.startswith(files.KEPT_SCHEME) for url in wire.urls_of(work)[1])


def check_after(spec: JobSpec, field: str, end_of: Callable[[JobId], JobStatus | None]) -> None:
    """Check that the jobs that a job comes after have succeeded or may still succeed.

    Args:
        field: what the job is called in a message.
        end_of: how a job has ended; None where it has not.

    Raises:
        NoSuchJob: `end_of` does not know one.
        InvalidInput: one has failed or was cancelled.
    """
    for job in spec.after:
        status = end_of(job)
        if status not in (None, JobStatus.SUCCEEDED):
            assert status is not None
            hint = (
                f"Name a job that may still succeed; `headway retry {job}` runs its failed tasks again, as a new job."
            )
            if status is JobStatus.CANCELLED:
                hint = "Name a job that may still succeed."
            allowed = f"a job that has succeeded or may still succeed; this one has ended: {status.value}"
            raise InvalidInput(f"{field}.after", job, allowed, hint=hint)


def check_retried(spec: JobSpec, field: str, end_of: Callable[[JobId], JobStatus | None]) -> None:
    """Check that the job whose tasks a job runs again is known.

    Raises:
        InvalidInput: it is not.
    """
    if spec.retry_of is None:
        return
    try:
        end_of(spec.retry_of)
    except NoSuchJob as unknown:
        allowed = "the id of a job that the server knows, or none"
        raise InvalidInput(f"{field}.retry_of", spec.retry_of, allowed, hint=unknown.hint) from unknown


def check_names(
    checked: CheckedSubmission, services: Mapping[str, tuple[JobId, ...]], others: Iterable[JobSpec]
) -> None:
    """Check that no service would have the name of another job, unless it is to replace that.

    Args:
        services: the open services by name.
        others: all open jobs; asked for only if there are new services.

    Raises:
        Conflict: one would.
    """
    new = {spec.name for spec in checked.specs if spec.endless}
    if not new and not services:
        return
    named = {name: f"job {jobs[-1]}" for name, jobs in services.items()}
    jobs = {spec.name: f"job {spec.id}" for spec in (others if new else ()) if not spec.endless}
    for place, spec in enumerate(checked.specs):
        field = f"jobs[{place}].name"
        if not spec.endless:
            if spec.name in named:
                said = f"{field} is {spec.name!r}, which is the name of a service, {named[spec.name]}"
                raise Conflict(said, "Requests are sent to a service by its name: give the job another one.")
            jobs[spec.name] = f"jobs[{place}]"
            continue
        if spec.name in jobs:
            said = f"{field} is {spec.name!r}, which is the name of {jobs[spec.name]}, no service"
            raise Conflict(said, "Give the service another name.")
        if spec.name in named and spec.id not in checked.replaces:
            said = f"{field} is {spec.name!r}, which is the name of a service, {named[spec.name]}"
            raise Conflict(said, f"`headway serve {spec.name} --replace` replaces it; `headway cancel` ends it.")
        named[spec.name] = f"jobs[{place}]"


class NeededByIntake(Protocol):
    """What the check of a submission needs of the ledger."""

    @property
    def core(self) -> Scheduler:
        """Knows what there can be room for."""
        ...

    def end_of(self, job: JobId) -> JobStatus | None:
        """How a job has ended, see `Ledger.end_of`."""
        ...


def look_at(
    submission: wire.Submission,
    caller: str,
    digest: bytes,
    *,
    first: JobId,
    now: Instant,
    ledger: NeededByIntake,
    journal: Journal,
    answer: asyncio.Future[wire.Submitted],
) -> Pausing[CheckedSubmission]:
    """Check a whole submission and number its jobs from `first` on, with pauses if there are many.

    Raises:
        HeadwayError: a job cannot be accepted; the message says which and why.
        NoSuchJob: one comes after a job that is not known.
        MissingBlobs: functions are named that are not here.
    """
    if not submission.jobs:
        raise InvalidInput("jobs", [], "at least one job")
    estimate_default = ledger.core.state.estimate_default
    specs: list[JobSpec] = []
    works: list[tuple[str, bytes]] = []
    functions: set[str] = set()
    uploads: set[str] = set()
    replaces: set[JobId] = set()
    large: dict[JobId, LargeJob] = {}
    for place, job in enumerate(submission.jobs):
        if place and place % CHECKED_AT_ONCE == 0:
            yield None
        look = partial(spec_of, job, first + place, f"jobs[{place}]", now, caller)
        body = b""
        if _is_aside(job):
            fit = ledger.core.extent().flaw_of_fit
            looked = yield partial(_look_at_large, job, look, fit, estimate_default)
            spec, wrong, urls, body = looked.job.view.spec, looked.flaw, looked.urls, looked.body
            large[spec.id] = looked.job
        else:
            spec = look()
            wrong, urls = ledger.core.flaw_of(spec), wire.urls_of(job.work)
        check_after(spec, f"jobs[{place}]", ledger.end_of)
        check_retried(spec, f"jobs[{place}]", ledger.end_of)
        if wrong is not None:
            raise InvalidInput.saying(f"jobs[{place}].{wrong}")
        if job.service is not None and job.service.replace:
            replaces.add(spec.id)
        names = wire.functions_of(job.work)
        given = yield from _uploads(job.work, urls, f"jobs[{place}].work", journal)
        if spec.id not in large:
            spec = _with_inputs(spec, given)
        functions.update(names)
        uploads |= given.keys()
        specs.append(spec)
        works.append((" ".join((*names, *given)), body or encode(job.work)))
    for name, blob in submission.blobs.items():
        step = partial(wire.blob_name, blob)
        if (step() if len(blob) < ASIDE_LEAST else (yield step)) != name:
            raise InvalidInput("blobs", name, "the SHA-256 of the blob's bytes, in hexadecimal")
    for name in uploads if len(specs) > CHECKED_AT_ONCE else ():
        if not journal.retained.has_upload(name):  # any more
            raise InvalidInput("jobs.work.inputs", name, "an upload that the server keeps", hint=_UPLOAD_AGAIN)
    missing = [name for name in functions if name not in submission.blobs and not journal.has_blob(name)]
    if missing:
        raise MissingBlobs(tuple(sorted(missing)))
    client, key = journal.clients.number(submission.client), (caller, submission.key, digest)
    return CheckedSubmission(specs, client, works, submission.blobs, functions, uploads, replaces, key, answer, large)


def spec_of(job: wire.NewJob, number: JobId, field: str, now: Instant, caller: str) -> JobSpec:
    """A job as the core learns of it, with its work checked; the numbers of its commands are among its features.

    Args:
        field: what it is called in what was sent.

    Raises:
        InvalidInput: there is something wrong with it.
    """
    wire.check_work(job, field=f"{field}.work")
    for name, value in job.features.items():
        if is_own(name) and job.retry_of is None:  # a retry also has what was found of the job before
            raise InvalidInput(f"{field}.features[{name}]", value, NOT_OWN)
    try:
        return _with_numbers(job.spec(number, now, caller), job.work)
    except InvalidInput as flaw:
        raise InvalidInput(f"{field}.{flaw.field}", flaw.value, flaw.allowed) from None


def _look_at_large(
    job: wire.NewJob, look: Callable[[], JobSpec], fit: Callable[[JobSpec], str | None], estimate_default: Duration
) -> _Looked:
    """Look at a job of many tasks. Nothing takes long at a time here: the event loop waits for whatever does."""
    spec = look()
    wrong = flaw(spec) or (None if spec.kind is Kind.BAG else fit(spec))
    urls = wire.urls_of(job.work)
    terms = packed(WorkInParts(by_parts(spec)).whole())
    large = LargeJob(view_of(spec, estimate_default), job.work, any(urls), terms)
    return _Looked(large, wrong, urls, work_body(WorkInParts(by_parts(job.work)).whole()))
