"""What a submission brings: jobs, their terms, and the work of their tasks."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection
from typing import Annotated, Literal

import msgspec

from headway.errors import InvalidInput
from headway.model.instant import Instant
from headway.model.job import JobId, JobSpec, Kind, PenaltyShape, TaskSpec
from headway.wire.base import (
    Amount,
    Answer,
    Bytes,
    Count,
    Due,
    JobText,
    Least1,
    Request,
    Share,
    Size,
    Span,
    Time,
)


class Calls(Request, frozen=True, tag="calls"):
    """Python functions to be called, one call a task; of a rigid job one a slot, by rank, or one for all its slots.

    Attributes:
        functions: names (`blob_name`) of the blobs that hold the functions, made by cloudpickle.
        args: per call, `(args, kwargs)` made by cloudpickle.
        chosen: per call, which of `functions` it is; empty: always the first.
        inputs, outputs: URLs that the arguments name, as `headway.Input` and `headway.Output`, each once.
        warm: name of processes that jobs of one user share, with all that earlier calls have left in them (modules,
            variables); empty: each process of the job begins clean, and only the job's own calls follow one another.
        paths: folders that modules are imported from, ahead of the server's own; those after an empty text come after.
    """

    functions: Annotated[tuple[str, ...], msgspec.Meta(extra_json_schema={"minItems": 1})]
    args: tuple[Bytes, ...]
    chosen: tuple[Count, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    warm: str = ""
    paths: tuple[str, ...] = ()


class Command(Request, frozen=True):
    """A program to be run. In `argv`, paths and URLs `{i}` stands for the task's number, of a rigid job for the rank.

    Attributes:
        argv: program and arguments; no shell is involved.
        cwd: folder it runs in; empty: the one the server was started in, or, where it has inputs or outputs, a folder
            of the attempt's own (which HEADWAY_SCRATCH names in any case).
        env: variables added to the node's environment.
        stdin, stdout, stderr: paths of files; empty: nothing to read, output kept (its last part) with the result.
        inputs: files that are fetched before it starts: the URL of each by its path within the attempt's folder.
        outputs: files of the attempt's folder that are put somewhere when it has succeeded: URLs by path.
    """

    argv: Annotated[tuple[str, ...], msgspec.Meta(extra_json_schema={"minItems": 1})]
    cwd: str = ""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    inputs: dict[str, str] = msgspec.field(default_factory=dict)
    outputs: dict[str, str] = msgspec.field(default_factory=dict)


class Commands(Request, frozen=True, tag="commands"):
    """Programs to be run: one for every task alike, or one each; of a rigid job one for every slot, or one each."""

    commands: Annotated[tuple[Command, ...], msgspec.Meta(extra_json_schema={"minItems": 1})]


Work = Calls | Commands


class NewJob(Request, frozen=True):
    """A job to be accepted: the terms of `headway.model.job.JobSpec` and the work of its tasks.

    `release` None means at once; `user` empty means the owner of the token; `profile` has run times by class of nodes;
    `cpu` is the share of a processor that its processes would use, one for all or one each; `leased` means that nobody
    but the client can fetch its results, so that it is cancelled when the client has not been heard of for a while.
    """

    work: Work
    kind: Literal["bag", "rigid", "workflow"] = "bag"
    tasks: Least1 = 1
    width: Least1 = 1
    release: Time | None = None
    estimate: Time | None = None
    due: Due | None = None
    priority: float = 0.0
    rate: Amount = 1.0
    shape: PenaltyShape = PenaltyShape.LINEAR
    user: JobText = ""
    name: JobText = ""
    workload: Amount | None = None
    retries: Count = 0
    time_limit: Span | None = None
    memory_limit: Span | None = None
    plan: tuple[TaskSpec, ...] = ()
    sizes: tuple[Size, ...] = ()
    profile: dict[str, Time] = msgspec.field(default_factory=dict)
    preemptible: bool = True
    cpu: tuple[Share, ...] = ()
    movable: bool = False
    leased: bool = False

    def spec(self, job: JobId, now: Instant, user: str) -> JobSpec:
        """The job as the core is told of it."""
        return JobSpec(
            id=job,
            kind=Kind[self.kind.upper()],
            release=now if self.release is None else self.release,
            tasks=self.tasks,
            width=self.width,
            estimate=self.estimate,
            due=self.due,
            priority=self.priority,
            rate=self.rate,
            shape=self.shape,
            user=self.user or user,
            name=self.name,
            workload=self.workload,
            retries=self.retries,
            time_limit=self.time_limit,
            memory_limit=self.memory_limit,
            plan=self.plan,
            sizes=self.sizes,
            profile=tuple(sorted(self.profile.items())),
            preemptible=self.preemptible,
            fetches=bool(urls_of(self.work)[0]),
            cpu=self.cpu,
            movable=self.movable,
            leased=self.leased,
        )


class Submission(Request, frozen=True):
    """Jobs to be accepted all together or not at all.

    Attributes:
        key: idempotency key; a submission with a key that this caller used before is not accepted again but answered
            as the first time. Empty: none.
        client: who wants the messages about these jobs, a text of the caller's choice; see `MESSAGES`.
        blobs: functions by `blob_name`; those that the server has may be left out (it says so if it has not).
    """

    jobs: Annotated[tuple[NewJob, ...], msgspec.Meta(extra_json_schema={"minItems": 1})]
    key: str = ""
    client: str = ""
    blobs: dict[str, Bytes] = msgspec.field(default_factory=dict)


class Submitted(Answer, frozen=True):
    """The ids of the accepted jobs, in order; messages about them have numbers greater than `cursor`."""

    jobs: tuple[JobId, ...]
    cursor: int
    repeated: bool = False


def blob_name(blob: bytes) -> str:
    """The name of a blob: the SHA-256 of its bytes, in hexadecimal."""
    return hashlib.sha256(blob).hexdigest()


def urls_of(work: Work) -> tuple[Collection[str], Collection[str]]:
    """URLs that work names: of inputs, of outputs. Those of commands may have `{i}` in them."""
    if isinstance(work, Calls):
        return work.inputs, work.outputs
    inputs = {url for command in work.commands for url in command.inputs.values()}
    return inputs, {url for command in work.commands for url in command.outputs.values()}


def check_work(job: NewJob, *, field: str = "work") -> None:
    """See that there is work for each task of a job, or for each slot of a rigid one.

    Raises:
        InvalidInput: too few or too many calls or commands, an empty command, an unknown function.
    """
    work = job.work
    rigid = job.kind == "rigid"
    each, count = ("slot", job.width) if rigid else ("task", job.tasks)
    if isinstance(work, Commands):
        if len(work.commands) not in (1, count):
            raise InvalidInput(f"{field}.commands", len(work.commands), f"one, or one a {each} ({count})")
        for number, command in enumerate(work.commands):
            if not command.argv or not command.argv[0]:
                raise InvalidInput(f"{field}.commands[{number}].argv", command.argv, "a program and its arguments")
            for name, paths in (("inputs", command.inputs), ("outputs", command.outputs)):
                for path in paths:
                    if not path or path.startswith("/") or "\0" in path or {"", ".", ".."} & set(path.split("/")):
                        allowed = "a path within the attempt's folder, such as data/one.csv"
                        raise InvalidInput(f"{field}.commands[{number}].{name}", path, allowed)
            if len(command.outputs) > 1:
                urls = Counter(url for url in command.outputs.values() if not url.startswith("headway:"))
                for url in (url for url, times in urls.items() if times > 1):
                    raise InvalidInput(f"{field}.commands[{number}].outputs", url, "one output at each URL")
        return
    if len(work.args) != count and not (rigid and len(work.args) == 1):
        raise InvalidInput(f"{field}.args", len(work.args), f"one a {each} ({count})")
    if not work.functions:
        raise InvalidInput(f"{field}.functions", work.functions, "at least one name of a blob")
    if work.chosen and len(work.chosen) != len(work.args):
        raise InvalidInput(f"{field}.chosen", len(work.chosen), f"none, or one a call ({len(work.args)})")
    for number in work.chosen:
        if not 0 <= number < len(work.functions):
            raise InvalidInput(f"{field}.chosen", number, f"0 to {len(work.functions) - 1}")
