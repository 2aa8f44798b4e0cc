"""What a submission brings: jobs, their terms, and the work of their tasks."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from headway.errors import InvalidInput
from headway.given import TASK_SCHEME, task_file_of
from headway.model.instant import Instant
from headway.model.job import (
    FORMS,
    VARIABLE_NAME,
    JobId,
    JobSpec,
    Kind,
    PenaltyShape,
    Service,
    TaskSpec,
    flaw_of_form,
    is_variable_name,
)
from headway.services.terms import check_handler
from headway.wire.base import (
    Amount,
    Answer,
    Bytes,
    Bytes1,
    CoresOfOne,
    Count,
    Date,
    Due,
    Features,
    JobText,
    Least1,
    Number,
    Numeral,
    Probability,
    Request,
    Sent,
    Share,
    Size,
    Span,
    Time,
)
from headway.wire.services import Handling, ServiceTerms, check_service
from headway.wire.terms import Part, inward, outward

OURS: Final = frozenset(
    f"HEADWAY_{name}" for name in ("NODE", "JOB", "TASK", "ATTEMPT", "RANK", "WIDTH", "CHECKPOINT", "SCRATCH", "MARK")
)
"""Variables that Headway sets for each task."""


class Calls(Request, frozen=True, tag="calls"):
    """Python functions to be called, one call a task; of a rigid job one a slot, by rank, or one for all its slots.

    Attributes:
        functions: names (`blob_name`) of the blobs that contain the functions, made by cloudpickle.
        args: per call, `(args, kwargs)` made by cloudpickle.
        chosen: per call, which of `functions` it is; empty: always the first.
        inputs, outputs: URLs that the arguments name, as `headway.Input` and `headway.Output`, each once.
        warm: name of processes that jobs of one user share, with all that earlier calls have left in them (modules,
            variables); empty: each process of the job begins clean and runs only the job's own calls.
        paths: folders that modules are imported from, ahead of the server's own; those after an empty text come after.
        cwd: folder they run in; empty: the one the server was started in.
        anywhere: where a task cannot be in `cwd`, it runs in the server's folder. Otherwise it is refused.
        env: variables added to those that all tasks get.
        fresh: each call has a process of its own. Not with `warm`.
        names: what the functions are called, for people.
    """

    functions: Annotated[tuple[str, ...], msgspec.Meta(extra_json_schema={"minItems": 1})]
    args: tuple[Bytes, ...]
    chosen: tuple[Count, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    warm: str = ""
    paths: tuple[str, ...] = ()
    cwd: str = ""
    anywhere: bool = False
    env: dict[str, str] = msgspec.field(default_factory=dict)
    fresh: bool = False
    names: tuple[JobText, ...] = ()


class Command(Request, frozen=True):
    """A program to be run. In `argv`, paths and URLs `{i}` stands for the task's number, of a rigid job for the rank.

    Attributes:
        argv: program and arguments; no shell is involved.
        cwd: folder it runs in; empty: the one the server was started in, or, where it has inputs or outputs, a folder
            of the attempt's own (which HEADWAY_SCRATCH names in any case).
        env: variables added to those that all tasks get.
        stdin, stdout, stderr: paths of files; empty: nothing to read, output kept (its last part) with the result.
        inputs: files that are fetched before it starts: the URL of each by its path within the attempt's folder.
        outputs: files of the attempt's folder that are stored when it has succeeded: URLs by path.
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


class Gift(Request, frozen=True):
    """What a task gave to those that come after it.

    Attributes:
        value: its result, pickled: what its function returned, or as a text what its program wrote last.
        outputs: where the server keeps each of its outputs, by name.
    """

    value: Bytes
    outputs: dict[str, str] = msgspec.field(default_factory=dict)


class Steps(Request, frozen=True, tag="steps"):
    """The work of a workflow of which some tasks call functions and some run programs, and get what earlier ones gave.

    Tasks are known by their numbers, or by those of `NewJob.numbers`. In the arguments of a call, a result is
    `headway.given.result_of(NUMBER)`. A file that an earlier task gave to the server has the URL `task:NUMBER/NAME`.

    Attributes:
        calls: of those tasks that call functions, in order of the tasks.
        commands: of the others, in their order.
        programs: places of those others among all tasks, rising.
        needs: for each task, which tasks' results or files it gets, each of them one that it comes after; empty: none.
        names: what the tasks are called, for people, each once; empty: nothing.
        given: what tasks gave that are not run again, by their numbers; only of a job that runs tasks again.
    """

    calls: Calls
    commands: tuple[Command, ...] = ()
    programs: tuple[Count, ...] = ()
    needs: tuple[tuple[Count, ...], ...] = ()
    names: tuple[JobText, ...] = ()
    given: dict[Numeral, Gift] = msgspec.field(default_factory=dict)

    def place(self, task: int) -> tuple[bool, int]:
        """Whether a task runs a program, and its place among those that do, or do not.

        >>> steps = Steps(Calls(("f",), (b"", b"")), (Command(("true",)),), programs=(1,))
        >>> [steps.place(task) for task in range(3)]
        [(False, 0), (True, 0), (False, 1)]
        """
        before = bisect_left(self.programs, task)
        is_program = before < len(self.programs) and self.programs[before] == task
        return is_program, before if is_program else task - before


Work = Calls | Commands | Steps | Handling


class PlannedTask(Part, frozen=True):
    """One task of a workflow: the terms of `headway.model.job.TaskSpec`, its estimate in seconds."""

    form: ClassVar[type] = TaskSpec

    estimate: Time
    cores: CoresOfOne = 1
    after: tuple[Number, ...] = ()
    sends: tuple[Sent, ...] = ()
    retries: Count | None = None
    assumed: bool = False


class NewJob(Request, frozen=True):
    """A job to be accepted: the terms of `headway.model.job.JobSpec` and the work of its tasks.

    Times are seconds, `release` and `due` since the Unix epoch. `release` None means at once; `user` empty means the
    owner of the token; `profile` has run times by class of nodes; `cpu` is the share of a processor that its processes
    would use, one for all or one each; `leased` means that only the client can fetch its results, so that it is
    cancelled when the client has been silent for a while; `after` names jobs that must have succeeded before it starts:
    if one fails or is cancelled, so is this one. `retry_of` is the job whose failed tasks it runs again, and `numbers`
    what stands for `{i}` and HEADWAY_TASK in each of its tasks, where that is not the task's own number. `features` are
    numbers that describe it, for estimates from history. `service` has the terms of a service; its `work` is a
    `Handling`.
    """

    work: Work
    kind: Literal["bag", "rigid", "workflow", "service"] = "bag"
    tasks: Least1 = 1
    width: Least1 = 1
    release: Date | None = None
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
    memory_limit: Bytes1 | None = None
    plan: tuple[PlannedTask, ...] = ()
    sizes: tuple[Size, ...] = ()
    profile: dict[str, Time] = msgspec.field(default_factory=dict)
    preemptible: bool = True
    cpu: tuple[Share, ...] = ()
    movable: bool = False
    leased: bool = False
    after: tuple[Number, ...] = ()
    retry_of: Number | None = None
    numbers: tuple[Count, ...] = ()
    features: Features = msgspec.field(default_factory=dict)
    service: ServiceTerms | None = None

    def spec(self, job: JobId, now: Instant, user: str) -> JobSpec:
        """The job as the core learns of it.

        Raises:
            InvalidInput: a time is none that the core can count, or jobs of its form have not such terms.
        """
        kind = Kind[self.kind.upper()]
        form = FORMS[kind]
        wrong = flaw_of_form(kind, self.tasks, self.width, len(self.plan), len(self.sizes))
        if wrong is not None:
            raise InvalidInput(*wrong)
        if form is Service and self.tasks != 1:
            raise InvalidInput("tasks", self.tasks, "1 for a service: `service.most` bounds its instances")
        if (self.service is not None) != (form is Service):
            raise InvalidInput("service", self.service, "the terms of a service, none for the other kinds")
        terms = inward(self, form)
        if self.service is not None:
            terms |= inward(self.service, form, "service.")
        terms |= {"id": job, "user": self.user or user, "after": tuple(dict.fromkeys(self.after))}
        terms["fetches"] = bool(urls_of(self.work)[0])
        if self.release is None:
            terms["release"] = now
        return form(**terms)

    @classmethod
    def of(cls, spec: JobSpec, work: Work, **other: Any) -> NewJob:
        """A job to be accepted with the terms of another one, but for some; at once, and after no other job."""
        terms = outward(spec, cls) | {"release": None, "after": ()}
        if isinstance(spec, Service):
            terms["service"] = ServiceTerms(**outward(spec, ServiceTerms))
        else:
            terms["tasks"] = spec.tasks
        terms |= other
        return cls(work, spec.kind.name.lower(), **terms)  # type: ignore[arg-type] # the names are those of the kinds


class AdviceWanted(Request, frozen=True):
    """Which due date would be kept if this job were submitted now.

    Attributes:
        sure: with which probability.
    """

    job: NewJob
    sure: Probability = 0.9


class Submission(Request, frozen=True):
    """Jobs to be accepted all together or not at all.

    Attributes:
        key: idempotency key; a submission with a key that this caller used before is not accepted again but answered
            as the first time. Empty: none.
        client: a text of the caller's choice under which it asks for the messages about these jobs; see `MESSAGES`.
        blobs: functions by `blob_name`; those that the server has may be left out (it reports missing ones).
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
    if isinstance(work, Handling):
        return (), ()
    inputs = {url for command in work.commands if command.inputs for url in command.inputs.values()}
    outputs = {url for command in work.commands if command.outputs for url in command.outputs.values()}
    return (
        (inputs | {*work.calls.inputs}, outputs | {*work.calls.outputs})
        if isinstance(work, Steps)
        else (inputs, outputs)
    )


def functions_of(work: Work) -> tuple[str, ...]:
    """Names of the blobs that work needs."""
    if isinstance(work, Handling):
        return (work.function,) if work.function else ()
    if isinstance(work, Steps):
        return work.calls.functions
    return work.functions if isinstance(work, Calls) else ()


def check_env(env: Mapping[str, str], field: str) -> None:
    """Check that tasks can get these variables.

    Raises:
        InvalidInput: a name cannot be one, Headway sets it itself, or a value cannot be one.
    """
    for name, text in env.items():
        if not is_variable_name(name):
            raise InvalidInput(field, name, VARIABLE_NAME)
        if name in OURS:
            raise InvalidInput(field, name, "any variable but those that Headway sets for each task")
        check_text(text, f"{field}[{name!r}]")


def check_text(text: str, field: str) -> None:
    """Check that a program can be given a text: an argument, a path, the value of a variable.

    Raises:
        InvalidInput: it has a zero byte, with which the system ends texts.
    """
    if "\0" in text:
        raise InvalidInput(field, text, "text without a zero byte")


def check_work(job: NewJob, *, field: str = "work") -> None:
    """Check that there is work for each task of a job, or for each slot of a rigid one.

    Raises:
        InvalidInput: too few or too many calls or commands, an empty command, an unknown function, or a variable that
            no task can be given.
    """
    work = job.work
    if isinstance(work, Handling) or job.service is not None:
        _check_handling(job, field)
        return
    rigid = job.kind == "rigid"
    each, count = ("slot", job.width) if rigid else ("task", job.tasks)
    if isinstance(work, Steps):
        _check_steps(job, work, field)
    elif isinstance(work, Commands):
        if len(work.commands) not in (1, count):
            raise InvalidInput(f"{field}.commands", len(work.commands), f"one, or one a {each} ({count})")
        _check_commands(work.commands, field)
    else:
        _check_calls(work, field)
        if len(work.args) != count and not (rigid and len(work.args) == 1):
            raise InvalidInput(f"{field}.args", len(work.args), f"one a {each} ({count})")
        if not work.functions:
            raise InvalidInput(f"{field}.functions", work.functions, "at least one name of a blob")


def _check_commands(commands: tuple[Command, ...], field: str) -> None:
    for number, command in enumerate(commands):
        if not command.argv or not command.argv[0]:
            raise InvalidInput(f"{field}.commands[{number}].argv", command.argv, "a program and its arguments")
        if "\0" in "".join((*command.argv, command.cwd, command.stdin, command.stdout, command.stderr)):
            for text in command.argv:
                check_text(text, f"{field}.commands[{number}].argv")
            for name in ("cwd", "stdin", "stdout", "stderr"):
                check_text(getattr(command, name), f"{field}.commands[{number}].{name}")
        if command.env:
            check_env(command.env, f"{field}.commands[{number}].env")
        files = (("inputs", command.inputs), ("outputs", command.outputs))
        for name, paths in files if command.inputs or command.outputs else ():
            for path in paths:
                if not path or path.startswith("/") or "\0" in path or {"", ".", ".."} & set(path.split("/")):
                    allowed = "a path within the attempt's folder, such as data/one.csv"
                    raise InvalidInput(f"{field}.commands[{number}].{name}", path, allowed)
        if len(command.outputs) > 1:
            urls = Counter(url for url in command.outputs.values() if not url.startswith("headway:"))
            for url in (url for url, times in urls.items() if times > 1):
                raise InvalidInput(f"{field}.commands[{number}].outputs", url, "one output at each URL")


def _check_calls(work: Calls, field: str) -> None:
    check_env(work.env, f"{field}.env")
    check_text(work.cwd, f"{field}.cwd")
    for path in work.paths:
        check_text(path, f"{field}.paths")
    if work.fresh and work.warm:
        raise InvalidInput(f"{field}.fresh", work.fresh, "false with warm: a process is shared or it is not")
    if work.chosen and len(work.chosen) != len(work.args):
        raise InvalidInput(f"{field}.chosen", len(work.chosen), f"none, or one a call ({len(work.args)})")
    for number in work.chosen:
        if not 0 <= number < len(work.functions):
            raise InvalidInput(f"{field}.chosen", number, f"0 to {len(work.functions) - 1}")


def _check_steps(job: NewJob, work: Steps, field: str) -> None:
    """Check the work of a workflow: that each task has some, and gets things only of tasks that it comes after."""
    count, numbers = job.tasks, job.numbers or range(job.tasks)
    if job.kind != "workflow":
        raise InvalidInput(field, "steps", "calls or commands, for a job that is no workflow")
    if len(job.plan) != count or len(numbers) != count:
        raise InvalidInput("plan", len(job.plan), f"one entry a task ({count}), and a number each, or none")
    _check_commands(work.commands, field)
    _check_calls(work.calls, f"{field}.calls")
    for name, there, wanted in (
        ("programs", len(work.programs), len(work.commands)),
        ("calls.args", len(work.calls.args), count - len(work.commands)),
    ):
        if there != wanted:
            raise InvalidInput(f"{field}.{name}", there, f"one for each of {wanted} tasks")
    if work.calls.args and not work.calls.functions:
        raise InvalidInput(f"{field}.calls.functions", work.calls.functions, "at least one name of a blob")
    if any(not before < task < count for before, task in zip((-1, *work.programs), work.programs, strict=False)):
        raise InvalidInput(f"{field}.programs", work.programs, f"places of tasks, 0 to {count - 1}, rising")
    for name, values in (("needs", work.needs), ("names", work.names)):
        if len(values) not in (0, count):
            raise InvalidInput(f"{field}.{name}", len(values), f"none, or one a task ({count})")
    if len(set(work.names)) < len(work.names):
        twice = next(name for name, times in Counter(work.names).items() if times > 1)
        raise InvalidInput(f"{field}.names", twice, "a name that no other task has")
    for task, needs in enumerate(work.needs):
        known = {numbers[before] for before in job.plan[task].after if before < count} if needs else set()
        for number in needs:
            if number not in known and str(number) not in work.given:
                raise InvalidInput(f"{field}.needs[{task}]", number, "the number of a task that it comes after")
    for number, command in enumerate(work.commands):
        for path, url in command.inputs.items():
            named = task_file_of(url)
            if named is None and url.startswith(TASK_SCHEME):
                raise InvalidInput(f"{field}.commands[{number}].inputs[{path!r}]", url, f"{TASK_SCHEME}NUMBER/NAME")
            if named is not None and not (work.needs and named[0] in work.needs[work.programs[number]]):
                allowed = "a file of a task that it needs"
                raise InvalidInput(f"{field}.commands[{number}].inputs[{path!r}]", url, allowed)


def _check_handling(job: NewJob, field: str) -> None:
    work = job.work
    if not isinstance(work, Handling) or job.service is None:
        raise InvalidInput(field, work.__struct_config__.tag, "a handler for a service, and only for one")
    check_service(job.name, job.service, work.limits, field)
    if len([one for one in (work.handler, work.function, work.command) if one]) != 1:
        raise InvalidInput(f"{field}.handler", work.handler, "a handler, a function or a command, one of them")
    check_handler(work.handler, f"{field}.handler")
    if work.command and not work.command[0]:
        raise InvalidInput(f"{field}.command", work.command, "a program and its arguments")
    for name, texts in (("command", work.command), ("paths", work.paths), ("cwd", (work.cwd,))):
        for text in texts:
            check_text(text, f"{field}.{name}")
    check_env(work.env, f"{field}.env")
