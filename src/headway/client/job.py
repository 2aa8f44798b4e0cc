"""What a user says: tasks that call a function or run a program, gathered in jobs with terms."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from headway.client.paths import import_paths
from headway.client.pickling import pickled_arguments, pickled_function
from headway.errors import HeadwayError, InvalidInput
from headway.files import File, Input, Output, naming
from headway.model.instant import Duration, Instant, from_seconds
from headway.model.job import ESTIMATE_DEFAULT, Kind, PenaltyShape, TaskSpec, flaw
from headway.wire import Calls, Command, Commands, NewJob, Work, blob_name, check_work

When = float | timedelta | datetime
"""An instant: seconds or a `timedelta` from submission on, or a `datetime` (local time if it has no zone)."""


class Task:
    """One call of a function: `Task(function, *args, **kwargs)`. `Task.command` makes one that runs a program.

    The function and its arguments are carried by cloudpickle: what is defined in the script itself travels with it,
    what comes from an imported module must be importable where the task runs (or be registered with
    `cloudpickle.register_pickle_by_value`). They are read when the job is submitted. What the function returns is the
    task's result; an exception it raises is raised again by who asks for the result.

    Attributes:
        cores: cores of one node that the task holds while it runs; more than 1 makes its job a workflow.
        estimate: expected run time in seconds on a node of speed factor 1; None: that of the job. Workflows only.
    """

    def __init__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        if not callable(function):
            raise InvalidInput("function", function, "something that can be called", hint=COMMAND_HINT)
        self.function: Callable[..., Any] | None = function
        self.args = args
        self.kwargs = kwargs
        self.program: Command | None = None
        self.cores = 1
        self.estimate: float | None = None
        self.before: list[Task] = []

    @classmethod
    def command(
        cls,
        *argv: str | os.PathLike[str],
        cwd: str | os.PathLike[str] = "",
        env: Mapping[str, str] | None = None,
        stdin: str | os.PathLike[str] = "",
        stdout: str | os.PathLike[str] = "",
        stderr: str | os.PathLike[str] = "",
        inputs: Mapping[str, str | os.PathLike[str] | Input] | None = None,
        outputs: Mapping[str, str | os.PathLike[str] | Output] | None = None,
    ) -> Task:
        """A task that runs a program; no shell is involved. In `argv`, paths and URLs `{i}` stands for its number.

        Its result is what it wrote to stdout, the last part of it; an exit status other than 0 is a `TaskFailed`.

        Args:
            argv: program and arguments, at least the program.
            cwd: folder it runs in; default the current one, or with inputs or outputs one of the attempt's own.
            env: variables added to the node's environment.
            stdin, stdout, stderr: files, relative to `cwd`. Without them there is nothing to read, and the last part of
                what it writes is kept with the result.
            inputs: files that are fetched before it starts: a path or URL (see `Input`) by the path within the
                attempt's folder, which HEADWAY_SCRATCH names.
            outputs: files of the attempt's folder that are put somewhere when the program has succeeded (see `Output`):
                a path or URL by the path within the folder.
        """
        if not argv:
            raise InvalidInput("argv", argv, "a program and its arguments")
        folder = Path.cwd() / os.fspath(cwd)
        program, *rest = (os.fspath(part) for part in argv)
        own = bool(inputs or outputs) and not os.fspath(cwd)
        if own and "/" in program:  # found from here, as it would be without files
            program = str(folder / program)
        task = cls(cls.command)
        task.function = None
        task.program = Command(
            argv=(program, *rest),
            cwd="" if own else str(folder),
            env=dict(env or {}),
            stdin=str(folder / os.fspath(stdin)) if stdin else "",
            stdout=str(folder / os.fspath(stdout)) if stdout else "",
            stderr=str(folder / os.fspath(stderr)) if stderr else "",
            inputs={path: _url(Input, file) for path, file in (inputs or {}).items()},
            outputs={path: _url(Output, file) for path, file in (outputs or {}).items()},
        )
        return task

    def after(self, *tasks: Task) -> Task:
        """Start only when these tasks have succeeded; makes the job a workflow. Returns the task itself."""
        self.before.extend(tasks)
        return self

    def __repr__(self) -> str:
        if self.program is not None:
            return f"Task.command({', '.join(map(repr, self.program.argv))})"
        name = getattr(self.function, "__qualname__", None) or repr(self.function)
        words = [repr(arg) for arg in self.args] + [f"{key}={value!r}" for key, value in self.kwargs.items()]
        return f"Task({', '.join([name, *words])})"


def _url(kind: type[Input | Output], file: str | os.PathLike[str] | Input | Output) -> str:
    """The URL of a file as a user names it.

    Raises:
        InvalidInput: it cannot be one.
    """
    return file.url if isinstance(file, Input | Output) else kind(file).url


SHARED: Final = "shared"
"""Name of the processes of jobs that say just that they may be warm."""

COMMAND_HINT: Final = "A program is run by Task.command('PROGRAM', 'ARGUMENT', ...)."


class Job:
    """Tasks to be scheduled together, with the terms they are scheduled by. All terms may be changed until submission.

    A job is a bag of independent tasks; it is a workflow as soon as a task comes `after` another or wants several
    cores; and it is rigid, one task that holds several slots at once, with `width`.

    Attributes:
        name: for people.
        tasks: in order of their numbers, which is the order of the results.
        due: wanted completion: seconds or `timedelta` from submission on, or a `datetime`; None: it may take its time.
        priority: higher is more important.
        release: earliest start, given like `due`; None: at once.
        rate, shape: penalty per unit of the penalty shape, >= 0, and how it grows with tardiness: linear, sqrt, square.
        estimate: expected run time of a task in seconds on a node of speed factor 1; None: nobody knows.
        workload: amount of work of the whole job in a unit of the user's own; None: tasks times estimate.
        retries: how often a task that fails by its own doing is tried again. One whose node dies is always redone.
        time_limit: seconds after which a task is ended; None: never.
        memory_limit: bytes of memory of a task's process; None: no limit.
        sizes: work of each task of a bag in a unit of the user's own, each 1e-18 to 1e18; empty: all alike. `estimate`
            and `profile` are then of a task of mean size.
        profile: expected run time of a task in seconds by class of nodes (`kind`, or for nodes without one
            "speed=1.5"); elsewhere `estimate` and the node's speed count.
        preemptible: whether its running tasks may be killed to make room for another job.
        cpu: the share of a processor, 0 to 1, that its processes would use on one of their own: one number for all of
            them, or for a rigid job one each; None: unknown. What can run behind it is judged by that.
        movable: whether its tasks save what they have done when they are asked to move to other slots: a function with
            `headway.checkpoint`, a program on SIGTERM. Those that have saved before can be moved in any case.
        warm: whether its functions may be called in processes where other jobs' functions ran: True, or a name, for
            jobs that share theirs. What those have left there (modules, variables, files open) is found again, modules
            that were edited since are not read anew. Otherwise each process begins clean, and only the job's own calls
            follow one another in it.
        user: who submits it; empty: the owner of the token.
        together: whether the job is rigid: all its tasks start at once, each on a slot, or none does; the first that
            fails ends the others.
        width: slots of a rigid job with one task, which then runs on each of them; None: one. Implies `together`.
    """

    def __init__(
        self,
        name: str = "",
        tasks: Iterable[Task] = (),
        *,
        due: When | None = None,
        priority: float = 0.0,
        release: When | None = None,
        rate: float = 1.0,
        shape: PenaltyShape | Literal["linear", "sqrt", "square"] = PenaltyShape.LINEAR,
        estimate: float | None = None,
        workload: float | None = None,
        retries: int = 0,
        time_limit: float | None = None,
        memory_limit: int | None = None,
        sizes: Iterable[float] = (),
        profile: Mapping[str, float] | None = None,
        preemptible: bool = True,
        cpu: float | Iterable[float] | None = None,
        movable: bool = False,
        warm: bool | str = False,
        user: str = "",
        together: bool = False,
        width: int | None = None,
    ) -> None:
        self.name = name
        self.tasks: list[Task] = list(tasks)
        self.due = due
        self.priority = priority
        self.release = release
        self.rate = rate
        self.shape = shape
        self.estimate = estimate
        self.workload = workload
        self.retries = retries
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.sizes = tuple(sizes)
        self.profile = dict(profile or {})
        self.preemptible = preemptible
        self.cpu = tuple(cpu) if isinstance(cpu, Iterable) else cpu
        self.movable = movable
        self.warm = warm
        self.user = user
        self.together = together
        self.width = width

    def add_task(
        self, task: Task, *, after: Iterable[Task] = (), cores: int | None = None, estimate: float | None = None
    ) -> Task:
        """Append a task, with what a workflow may say of it, and return it."""
        task.after(*after)
        if cores is not None:
            task.cores = cores
        if estimate is not None:
            task.estimate = estimate
        self.tasks.append(task)
        return task

    @property
    def kind(self) -> Kind:
        """Bag, rigid or workflow, as its tasks are now."""
        if self.together or self.width is not None:
            return Kind.RIGID
        return Kind.WORKFLOW if any(task.before or task.cores != 1 for task in self.tasks) else Kind.BAG

    def __repr__(self) -> str:
        return f"<Job {self.name!r}: {self.kind.name.lower()}, tasks={len(self.tasks)}>"


def instant(when: When | None, field: str, now: Instant) -> Instant | None:
    """An instant as people give it, in microseconds since the epoch.

    Raises:
        InvalidInput: not a time at all, or more than 30 years off.
    """
    if when is None:
        return None
    try:
        if isinstance(when, datetime):
            return from_seconds(when.timestamp())
        seconds = when.total_seconds() if isinstance(when, timedelta) else when
        if isinstance(seconds, bool) or abs(seconds) > 1e9:
            raise ValueError
        return now + from_seconds(seconds)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(
            field,
            when,
            "seconds from submission on, a timedelta, or a datetime",
            hint="An absolute time in seconds is given as datetime.fromtimestamp(SECONDS).",
        ) from error


def duration(seconds: float | None, field: str) -> Duration | None:
    """Seconds as microseconds.

    Raises:
        InvalidInput: not a finite number.
    """
    return None if seconds is None else _duration(seconds, field)


def _duration(seconds: float, field: str) -> Duration:
    try:
        return from_seconds(seconds)
    except (TypeError, ValueError) as error:
        raise InvalidInput(field, seconds, "a finite number of seconds") from error


def _number(value: Any, field: str) -> float:
    """A number of whatever kind, NumPy's among them, as it can be sent."""
    try:
        return float(value + 0.0)  # text, which float() alone would read, is none
    except (TypeError, OverflowError) as error:
        raise InvalidInput(field, value, "a finite number") from error


def _uses(cpu: Any) -> tuple[float, ...]:
    """The CPU use of a job's processes as it is sent."""
    if cpu is None:
        return ()
    if isinstance(cpu, Iterable):
        return tuple(_number(use, f"cpu[{place}]") for place, use in enumerate(cpu))
    return (_number(cpu, "cpu"),)


def _whole(value: Any, field: str) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise InvalidInput(field, value, "a whole number") from error


def described(job: Job, now: Instant | None = None) -> tuple[NewJob, dict[str, bytes]]:
    """A job as it is sent, and its functions as blobs by name.

    Raises:
        HeadwayError: the job has no tasks, a wrong term, or something that cannot be pickled.
    """
    title = f"job {job.name!r}" if job.name else "the job"
    if not job.tasks:
        raise HeadwayError(f"{title} has no tasks", "Give it at least one with add_task.")
    for place, task in enumerate(job.tasks):
        if not isinstance(task, Task):
            raise InvalidInput(f"tasks[{place}] of {title}", task, "a Task", hint="Say Task(FUNCTION, ARGUMENT, ...).")
    if job.kind is Kind.RIGID:
        if any(task.before or task.cores != 1 for task in job.tasks):
            raise HeadwayError(f"{title} is rigid, but a task comes after another or wants several cores")
        if job.width is not None and len(job.tasks) not in (1, job.width):
            raise InvalidInput(
                "width", job.width, f"the number of tasks, which is {len(job.tasks)}, or any with one task"
            )
    work, blobs = _work(job, title)
    return new_job(job, work, len(job.tasks), _plan(job, title), now), blobs


def new_job(
    job: Job,
    work: Work,
    tasks: int,
    plan: tuple[TaskSpec, ...] = (),
    now: Instant | None = None,
    *,
    leased: bool = False,
) -> NewJob:
    """The terms of a job as they are sent, with its work; `leased`: its results are of use to this client alone.

    Raises:
        HeadwayError: a term is wrong.
    """
    now = time.time_ns() // 1000 if now is None else now
    try:
        shape = PenaltyShape(job.shape)
    except ValueError as error:
        raise InvalidInput("shape", job.shape, "linear, sqrt or square") from error
    rigid = job.kind is Kind.RIGID
    new = NewJob(
        work,
        kind=job.kind.name.lower(),  # type: ignore[arg-type]  # the three names are the three kinds
        tasks=1 if rigid else tasks,
        width=(tasks if job.width is None else _whole(job.width, "width")) if rigid else 1,
        release=instant(job.release, "release", now),
        estimate=duration(job.estimate, "estimate"),
        due=instant(job.due, "due", now),
        priority=_number(job.priority, "priority"),
        rate=_number(job.rate, "rate"),
        shape=shape,
        user=job.user,
        name=job.name,
        workload=None if job.workload is None else _number(job.workload, "workload"),
        retries=_whole(job.retries, "retries"),
        time_limit=duration(job.time_limit, "time_limit"),
        memory_limit=None if job.memory_limit is None else _whole(job.memory_limit, "memory_limit"),
        plan=plan,
        sizes=tuple(_number(size, f"sizes[{place}]") for place, size in enumerate(job.sizes)),
        profile={kind: _duration(seconds, f"profile[{kind!r}]") for kind, seconds in job.profile.items()},
        preemptible=job.preemptible,
        cpu=_uses(job.cpu),
        movable=job.movable,
        leased=leased,
    )
    wrong = flaw(new.spec(0, now, ""))
    if wrong:
        raise HeadwayError(f"job {job.name!r}: {wrong}")
    check_work(new)
    return new


def _work(job: Job, title: str) -> tuple[Work, dict[str, bytes]]:
    programs = [task.program for task in job.tasks if task.program is not None]
    if len(programs) == len(job.tasks):
        alike = all(program == programs[0] for program in programs)
        return Commands(commands=(programs[0],) if alike else tuple(programs)), {}
    if programs:
        raise HeadwayError(
            f"{title} has tasks that call functions and tasks that run programs", "Submit them as two jobs."
        )
    numbers: dict[int, int] = {}
    functions: dict[str, bytes] = {}
    args, chosen = [], []
    for number, task in enumerate(job.tasks):
        assert task.function is not None
        key = id(task.function)
        if key not in numbers:
            blob = pickled_function(task.function, f"task {number} of {title}")
            name = blob_name(blob)
            functions.setdefault(name, blob)
            numbers[key] = list(functions).index(name)
        chosen.append(numbers[key])
    with naming() as files:
        for number, task in enumerate(job.tasks):
            args.append(pickled_arguments(task.args, task.kwargs, f"task {number} of {title}"))
    return calls_of(functions, args, chosen, files, warm_name(job.warm)), functions


def warm_name(warm: object) -> str:
    """The name of the processes that a job shares with others; empty where it shares none.

    Raises:
        InvalidInput: it is no name.
    """
    if isinstance(warm, str):
        return warm
    if warm in (False, None):
        return ""
    if warm is True:
        return SHARED
    raise InvalidInput("warm", warm, "True, False, or a name")


def calls_of(
    functions: Iterable[str], args: Sequence[bytes], chosen: Sequence[int], files: Iterable[File], warm: str
) -> Calls:
    """Calls as they are sent, with where this program imports modules from.

    Args:
        functions: names of the functions.
        args: arguments of each call, pickled.
        chosen: per call, which of the functions it is.
        files: inputs and outputs that the arguments name.
        warm: as in `headway.wire.Calls`.
    """
    names = tuple(functions)
    urls = {kind: tuple({file.url: None for file in files if isinstance(file, kind)}) for kind in (Input, Output)}
    several = tuple(chosen) if len(names) > 1 else ()
    return Calls(names, tuple(args), several, urls[Input], urls[Output], warm, import_paths())


def _plan(job: Job, title: str) -> tuple[TaskSpec, ...]:
    if job.kind is not Kind.WORKFLOW:
        return ()
    numbers = {id(task): number for number, task in enumerate(job.tasks)}
    common = duration(job.estimate, "estimate")
    plan = []
    for number, task in enumerate(job.tasks):
        before = [numbers.get(id(other), number) for other in task.before]
        if any(other >= number for other in before):
            raise HeadwayError(
                f"task {number} of {title} comes after a task that is not added before it",
                "Add the tasks of a workflow to their job in an order in which they could run.",
            )
        own = duration(task.estimate, f"estimate of task {number}")
        estimate = own if own is not None else common if common is not None else ESTIMATE_DEFAULT
        plan.append(TaskSpec(estimate, task.cores, tuple(sorted(set(before)))))
    return tuple(plan)
