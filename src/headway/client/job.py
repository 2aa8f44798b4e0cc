"""What a user submits: tasks that call a function or run a program, grouped in jobs with terms."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from msgspec.structs import replace

from headway.client.paths import import_paths
from headway.client.pickling import pickled_arguments, pickled_function
from headway.client.terms import LATER, by_name, duration, sent, whole
from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.files import KEPT_SCHEME, File, Input, Output, naming
from headway.given import result_of, task_file
from headway.model.instant import from_seconds, to_seconds
from headway.model.job import ESTIMATE_DEFAULT, NAME_MAX, JobId, Kind, PenaltyShape, flaw
from headway.times import Span, When
from headway.wire import Calls, Command, Commands, NewJob, PlannedTask, Work, blob_name, check_work

Env = Mapping[str, str] | Iterable[str] | None
"""Variables for tasks: values by name, or names of variables of this process that are passed as they are."""


class Task:
    """One call of a function: `Task(function, *args, **kwargs)`. `Task.command` makes one that runs a program.

    The function and its arguments are pickled with cloudpickle. What the script itself defines is sent with it; what
    comes from an imported module must be importable where the task runs (or be registered with
    `cloudpickle.register_pickle_by_value`). They are read when the job is submitted. What the function returns is the
    task's result; an exception that it raises is raised again when the result is asked for.

    Attributes:
        cores: cores of one node that the task uses while it runs; more than 1 makes its job a workflow.
        estimate: expected run time on a node of speed factor 1, given like that of a job; None: that of the job.
            Workflows only.
        retries: how often it is tried again after a failure of its own; None: as its job says. Workflows only.
        name: what it is called within a `Workflow`; each task has its own.
    """

    def __init__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        if not callable(function):
            raise InvalidInput("function", function, "something that can be called", hint=COMMAND_HINT)
        self.function: Callable[..., Any] | None = function
        self.args = args
        self.kwargs = kwargs
        self.program: Command | None = None
        self.cores = 1
        self.estimate: Span | None = None
        self.before: list[Task] = []
        self.sent: list[int] = []
        self.name = ""
        self.retries: int | None = None
        self.taken: dict[str, TaskFile] = {}

    def file(self, name: str) -> TaskFile:
        """A file that it gives to the server under this name, for tasks of its workflow that come after it.

        Raises:
            InvalidInput: it is a program, and the server keeps no such output of it. Of a function this is known when
                it is submitted.
        """
        file = TaskFile(self, name)
        if self.program is not None:
            check_given(name, self.program.outputs)
        return file

    def __reduce_ex__(self, protocol: Any) -> Any:
        """In the arguments of a task of its workflow it stands for its result."""
        number_of = _numbers.get()
        return super().__reduce_ex__(protocol) if number_of is None else (result_of, (number_of(self),))

    @classmethod
    def command(
        cls,
        *argv: str | os.PathLike[str],
        cwd: str | os.PathLike[str] = "",
        env: Env = None,
        stdin: str | os.PathLike[str] = "",
        stdout: str | os.PathLike[str] = "",
        stderr: str | os.PathLike[str] = "",
        inputs: Mapping[str, str | os.PathLike[str] | Input | TaskFile] | None = None,
        outputs: Mapping[str, str | os.PathLike[str] | Output] | None = None,
    ) -> Task:
        """A task that runs a program; no shell is involved. In `argv`, paths and URLs `{i}` stands for its number.

        Its result is the last part of what it wrote to stdout; an exit status other than 0 is a `TaskFailed`.

        Args:
            argv: program and arguments, at least the program.
            cwd: folder it runs in; default the current one, or with inputs or outputs one of the attempt's own.
            env: variables that it has besides those that all tasks get, and those of its job; as `Job` takes them.
            stdin, stdout, stderr: files, relative to `cwd`. Without them there is nothing to read, and the last part of
                what it writes is kept with the result.
            inputs: files that are fetched before it starts: a path or URL (see `Input`) by the path within the
                attempt's folder, which HEADWAY_SCRATCH names. The program may be one of them (`./NAME`), without `cwd`.
            outputs: files of the attempt's folder that are stored when the program has succeeded (see `Output`):
                a path or URL by the path within the folder.

        Raises:
            InvalidInput: an argument is no text and no path.
        """
        given: Iterable[Any] = argv
        for part in given:
            if not isinstance(part, str | os.PathLike):
                hint = "A result of a task goes to functions; programs get files: inputs={PATH: task.file(NAME)}."
                raise InvalidInput("argv", part, "texts and paths", hint=hint if isinstance(part, Task) else "")
        if not argv:
            raise InvalidInput("argv", argv, "a program and its arguments")
        folder = Path.cwd() / os.fspath(cwd)
        program, *rest = (_text(os.fspath(part), "argv") for part in argv)
        own = bool(inputs or outputs) and not os.fspath(cwd)
        if own and "/" in program and os.path.normpath(program) not in (inputs or {}):
            program = str(folder / program)  # found from here, as it would be without files
        task = cls(cls.command)
        task.function = None
        task.taken = {path: file for path, file in (inputs or {}).items() if isinstance(file, TaskFile)}
        task.program = Command(
            argv=(program, *rest),
            cwd="" if own else str(folder),
            env=variables(env),
            stdin=str(folder / os.fspath(stdin)) if stdin else "",
            stdout=str(folder / os.fspath(stdout)) if stdout else "",
            stderr=str(folder / os.fspath(stderr)) if stderr else "",
            inputs={path: _url(Input, file) for path, file in (inputs or {}).items() if not isinstance(file, TaskFile)},
            outputs={path: _url(Output, file) for path, file in (outputs or {}).items()},
        )
        return task

    def after(self, *tasks: Task, sends: Iterable[int] = ()) -> Task:
        """Start only when these tasks have succeeded; makes the job a workflow. Returns the task itself.

        Args:
            sends: bytes that each of these tasks sends to this one, for policies that know of links; default none.
        """
        sent = list(sends) or [0] * len(tasks)
        if len(sent) != len(tasks):
            raise InvalidInput("sends", sent, f"one for each of the {len(tasks)} tasks before it, or none")
        self.before.extend(tasks)
        self.sent.extend(sent)
        return self

    def __repr__(self) -> str:
        if self.program is not None:
            return f"Task.command({', '.join(map(repr, self.program.argv))})"
        name = getattr(self.function, "__qualname__", None) or repr(self.function)
        words = [repr(arg) for arg in self.args] + [f"{key}={value!r}" for key, value in self.kwargs.items()]
        return f"Task({', '.join([name, *words])})"


class TaskFile:
    """A file that a task gives to the server (`Output("headway:NAME")`), for a later task of the same workflow.

    Attributes:
        task: the one that gives it.
        name: its name.
    """

    __slots__ = ("name", "task")

    def __init__(self, task: Task, name: str) -> None:
        if not name or "\0" in name:
            raise InvalidInput("name", name, "the name of an output, or its path in the folder of a program")
        self.task = task
        self.name = name

    def __repr__(self) -> str:
        return f"{self.task!r}.file({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        number_of = _numbers.get()
        if number_of is None:
            raise InvalidInput("file", self, "an argument, or an input, of a task of its workflow")
        return Input(task_file(number_of(self.task), self.name)).__reduce__()


def check_given(name: str, outputs: Mapping[str, str], number: int | None = None) -> None:
    """Check that a task gives a file to later ones.

    Args:
        outputs: of the task: URLs by the names that later tasks know.
        number: of the task, which `{i}` in names stands for; None: not known yet.

    Raises:
        InvalidInput: it does not.
    """
    kept = [path for path, url in outputs.items() if url.startswith(KEPT_SCHEME)]
    if number is None and any("{i}" in path for path in kept):
        return
    if name in (kept if number is None else [path.replace("{i}", str(number)) for path in kept]):
        return
    none = "the name of a file that the task gives to the server, and it gives none"
    allowed = f"a file that the task gives to the server: {', '.join(kept[:_NAMED])}" if kept else none
    elsewhere = "It puts this one elsewhere: the server keeps `headway:NAME`." if name in outputs else ""
    raise InvalidInput("file", name, allowed, hint=elsewhere or did_you_mean(name, kept))


_NAMED: Final = 8

_numbers: ContextVar[Callable[[Task], int] | None] = ContextVar("numbers", default=None)
"""What says the number of a task that is met while the arguments of another one are pickled."""


@contextmanager
def numbering(number_of: Callable[[Task], int]) -> Iterator[None]:
    """Tasks that are pickled in the body, in this thread, become places for their results."""
    token = _numbers.set(number_of)
    try:
        yield
    finally:
        _numbers.reset(token)


def _url(kind: type[Input | Output], file: str | os.PathLike[str] | Input | Output) -> str:
    """The URL of a file that a user names.

    Raises:
        InvalidInput: it cannot be a URL.
    """
    return file.url if isinstance(file, Input | Output) else kind(file).url


def variables(env: Env, field: str = "env") -> dict[str, str]:
    """Variables by name, in the form in which they are sent.

    Raises:
        InvalidInput: this process does not have one of them.
    """
    if isinstance(env, Mapping):
        return {_text(name, field): _text(value, f"{field}[{name!r}]") for name, value in env.items()}
    if isinstance(env, str):
        raise InvalidInput(field, env, "values by name, or a list of names of variables that are set here")
    for name in (names := tuple(env or ())):
        if name not in os.environ:
            raise InvalidInput(field, name, "the name of a variable that is set here", hint="Or give it a value.")
    return {name: os.environ[name] for name in names}


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, value, "text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(field, value, "text that can be written in UTF-8") from error
    return value


SHARED_PROCESSES: Final = "shared"
"""Name of the processes of jobs that only say that they may be warm."""

COMMAND_HINT: Final = "A program is run by Task.command('PROGRAM', 'ARGUMENT', ...)."


class SubmittedJob(Protocol):
    """What has been submitted: a `Waiter`."""

    @property
    def job(self) -> JobId:
        """Its id."""
        ...


class Job:
    """Tasks to be scheduled together, with their terms. All terms may be changed until submission.

    A job is a bag of independent tasks. It is a workflow as soon as a task comes `after` another or needs several
    cores. With `width` it is rigid: one task on several slots at once.

    Attributes:
        name: for people.
        tasks: in order of their numbers, which is the order of the results.
        due: wanted completion: seconds or `timedelta` from submission on, a `datetime`, or text such as `"1h30m"`,
            `"18:00"` or `"tomorrow 6:00"`; None: no due date.
        priority: higher is more important.
        release: earliest start, given like `due`; None: at once.
        rate, shape: penalty per unit of the penalty shape, >= 0, and how it grows with tardiness: linear, sqrt, square.
        estimate: expected run time of a task on a node of speed factor 1: seconds, a `timedelta`, or text such as
            `"1h30m"`; None: unknown.
        workload: amount of work of the whole job in a unit of the user's own; None: tasks times estimate.
        retries: how often a task is tried again after a failure that it caused itself. One whose node dies is always
            redone.
        time_limit: when a task is ended, given like `estimate`; None: never.
        memory_limit: bytes of memory of a task's process; None: no limit.
        sizes: work of each task of a bag in a unit of the user's own, each 1e-18 to 1e18; empty: all alike. `estimate`
            and `profile` are then of a task of mean size.
        profile: expected run time of a task, given like `estimate`, by class of nodes (`kind`, or for nodes without one
            "speed=1.5"); for other classes `estimate` and the node's speed are used.
        preemptible: whether its running tasks may be killed to make room for another job.
        cpu: the share of a processor, 0 to 1, that its processes would use if they had one for themselves: one number
            for all, or for a rigid job one each; None: unknown. It says what can run behind the job.
        movable: whether its tasks save their work when they are asked to move to other slots: a function with
            `headway.checkpoint`, a program on SIGTERM. Those that have saved before can be moved in any case.
        warm: whether its functions may be called in processes where other jobs' functions ran: True, or a name, for
            jobs that share theirs. Its calls find what those have left there (modules, variables, open files), and
            modules edited since are not read again. Otherwise each process begins clean and runs only the job's own
            calls.
        fresh: whether each call of a function has a process of its own, which nothing ran in before; not with `warm`.
            Programs always have.
        cwd: folder that its functions run in; None: the current one, or the server's where tasks cannot be in that.
            Programs have their own (`Task.command`).
        env: variables that its tasks have besides those that all tasks get: values by name, or names of variables that
            are passed as they are here.
        user: who submits it; empty: the owner of the token.
        together: whether the job is rigid: all its tasks start at once, each on a slot, or none does; the first that
            fails ends the others.
        width: slots of a rigid job with one task, which then runs on each of them; None: one. Implies `together`.
        after: jobs of earlier submissions, by their ids or as their waiters, that must have succeeded before it starts.
            If one of them fails or is cancelled, so is this one.
        features: numbers that describe it, by name, such as the size of a mesh: `headway profile` tells from earlier
            jobs which of them matter, and how long similar ones ran. What is true or false is 1 or 0.
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
        estimate: Span | None = None,
        workload: float | None = None,
        retries: int = 0,
        time_limit: Span | None = None,
        memory_limit: int | None = None,
        sizes: Iterable[float] = (),
        profile: Mapping[str, Span] | None = None,
        preemptible: bool = True,
        cpu: float | Iterable[float] | None = None,
        movable: bool = False,
        warm: bool | str = False,
        fresh: bool = False,
        cwd: str | os.PathLike[str] | None = None,
        env: Env = None,
        user: str = "",
        together: bool = False,
        width: int | None = None,
        after: int | SubmittedJob | Iterable[int | SubmittedJob] = (),
        features: Mapping[str, float] | None = None,
    ) -> None:
        self.name = name
        if not isinstance(tasks, Iterable):
            raise InvalidInput("tasks", tasks, "a list of tasks", hint="Say Job(NAME, [Task(...), ...]).")
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
        self.features = by_name(features)
        self.sizes = tuple(sizes)
        self.profile = dict(profile or {})
        self.preemptible = preemptible
        self.cpu = tuple(cpu) if isinstance(cpu, Iterable) else cpu
        self.movable = movable
        self.warm = warm
        self.fresh = fresh
        self.cwd = cwd
        self.env = env
        self.user = user
        self.together = together
        self.width = width
        self.after = after
        self.check_form()

    def check_form(self) -> None:
        """Check the terms that only some kinds of jobs have.

        Raises:
            InvalidInput: the job has one that does not belong to its kind.
        """

    def add_task(
        self,
        task: Task,
        *,
        after: Iterable[Task] = (),
        sends: Iterable[int] = (),
        cores: int | None = None,
        estimate: Span | None = None,
    ) -> Task:
        """Append a task, with its cores and estimate in a workflow, and return it; `after` and `sends` as in `Task`."""
        task.after(*after, sends=sends)
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

    def work_of_tasks(self, title: str) -> tuple[Work, dict[str, bytes], Sequence[Iterable[int]]]:
        """The work of its tasks as it is sent; its functions, by name; of which tasks each gets something.

        Args:
            title: what errors call the job.

        Raises:
            HeadwayError: something cannot be pickled, or cannot be sent in one job.
        """
        return *_work(self, title), ()

    def __repr__(self) -> str:
        return f"<Job {self.name!r}: {self.kind.name.lower()}, tasks={len(self.tasks)}>"


def described(job: Job, now: float | None = None) -> tuple[NewJob, dict[str, bytes]]:
    """A job in the form in which it is sent, and its functions as blobs by name.

    Raises:
        HeadwayError: the job has no tasks, a wrong term, or something that cannot be pickled.
    """
    title = f"job {job.name!r}" if job.name else "the job"
    job.check_form()
    if not job.tasks:
        raise InvalidInput.saying(f"{title} has no tasks", "Give it at least one with add_task.")
    for place, task in enumerate(job.tasks):
        if not isinstance(task, Task):
            raise InvalidInput(f"tasks[{place}] of {title}", task, "a Task", hint="Say Task(FUNCTION, ARGUMENT, ...).")
    if job.kind is Kind.RIGID:
        if any(task.before or task.cores != 1 for task in job.tasks):
            raise InvalidInput.saying(f"{title} is rigid, but a task comes after another or wants several cores")
        if job.width is not None and len(job.tasks) not in (1, job.width):
            raise InvalidInput(
                "width", job.width, f"the number of tasks, which is {len(job.tasks)}, or any with one task"
            )
    work, blobs, needs = job.work_of_tasks(title)
    return new_job(job, work, len(job.tasks), _plan(job, title, needs), now), blobs


def new_job(
    job: Job,
    work: Work,
    tasks: int,
    plan: tuple[PlannedTask, ...] = (),
    now: float | None = None,
    *,
    leased: bool = False,
) -> NewJob:
    """The terms and work of a job in the form in which they are sent; `leased`: only this client can use its results.

    Raises:
        HeadwayError: a term is wrong.
    """
    now = time.time() if now is None else now
    rigid = job.kind is Kind.RIGID
    of_form = {"tasks": 1 if rigid else tasks, "plan": plan}
    if rigid:
        of_form["width"] = tasks if job.width is None else whole(job.width, "width")
    terms = sent(NewJob, job, now, but=("tasks", "width", "leased")) | of_form
    new = NewJob(work, job.kind.name.lower(), leased=leased, **terms)  # type: ignore[arg-type] # names of the kinds
    try:
        wrong = flaw(new.spec(LATER, from_seconds(now), ""))
    except InvalidInput as error:
        wrong = str(error)
    if wrong:
        raise InvalidInput.saying(f"job {job.name!r}: {wrong}")
    check_work(new)
    return new


def _work(job: Job, title: str) -> tuple[Work, dict[str, bytes]]:
    programs = [task.program for task in job.tasks if task.program is not None]
    if len(programs) == len(job.tasks):
        return _commands(job, programs), {}
    if programs:
        raise HeadwayError(
            f"{title} has tasks that call functions and tasks that run programs",
            "Make it a Workflow, or submit them as two jobs.",
        )
    with numbering(_no_number):
        return calls_of_tasks(job, enumerate(job.tasks), title)


def _no_number(task: Task) -> int:
    raise InvalidInput("argument", task, "no task: its result can be an argument in a Workflow")


def calls_of_tasks(
    job: Job,
    tasks: Iterable[tuple[int, Task]],
    title: str,
    begin: Callable[[int], object] = lambda number: None,
    end: Callable[[int, Sequence[File]], object] = lambda number, files: None,
) -> tuple[Calls, dict[str, bytes]]:
    """The calls of tasks in the form in which they are sent, and their functions, by name.

    Args:
        tasks: with their numbers, for people.
        begin: told the number of each task before its arguments are pickled.
        end: told the number of each task afterwards, and the files that its arguments name.

    Raises:
        NotPicklable: one of them cannot be sent.
    """
    numbers: dict[int, int] = {}
    functions: dict[str, bytes] = {}
    places: dict[str, int] = {}
    args, chosen = [], []
    tasks = tuple(tasks)
    for number, task in tasks:
        assert task.function is not None
        key = id(task.function)
        if key not in numbers:
            blob = pickled_function(task.function, f"task {number} of {title}")
            name = blob_name(blob)
            functions.setdefault(name, blob)
            numbers[key] = places.setdefault(name, len(places))
        chosen.append(numbers[key])
    with naming() as files:
        for number, task in tasks:
            begin(number)
            count = len(files)
            args.append(pickled_arguments(task.args, task.kwargs, f"task {number} of {title}"))
            end(number, files[count:])
    names = {id(task.function): title_of(task.function) for _, task in tasks}
    calls = calls_of(functions, args, chosen, files, job)
    return replace(calls, names=tuple(dict.fromkeys(names.values()))), functions


def title_of(function: Any) -> str:
    """What a function is called, for people."""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)
    return str(name)[:NAME_MAX]


def _commands(job: Job, programs: Sequence[Command]) -> Commands:
    if job.cwd is not None:
        raise InvalidInput("cwd", os.fspath(job.cwd), "none in a job of programs: say Task.command(..., cwd=FOLDER)")
    alike = all(program == programs[0] for program in programs)
    kept = (programs[0],) if alike else tuple(programs)
    check_apart(kept, max(len(programs), job.width or 1))
    common = variables(job.env)
    return Commands(tuple(replace(program, env={**common, **program.env}) for program in kept) if common else kept)


def check_apart(programs: Sequence[Command], count: int) -> None:
    """Check that no two processes of a job write the same file: the one that begins last would empty it.

    Args:
        programs: one for all processes, or one each.
        count: how many processes there are.

    Raises:
        InvalidInput: two of them do.
    """
    allowed = "a file for each task: {i} in it stands for the number of the task"
    seen = set[tuple[str, str]]()
    for number, program in enumerate(programs):
        written = [("stdout", program.stdout), ("stderr", program.stderr)]
        written += [("output", url) for url in program.outputs.values()]
        for field, path in written:
            if not path or path.startswith(("/dev/", KEPT_SCHEME)):
                continue
            whole = path.replace("{i}", str(number))
            if (field, whole) in seen or (len(programs) < count and "{i}" not in path):
                raise InvalidInput(field, whole, allowed)
            seen.add((field, whole))


def warm_name(warm: object) -> str:
    """The name of the processes that a job shares with others; empty if it shares none.

    Raises:
        InvalidInput: it is not a valid name.
    """
    if isinstance(warm, str):
        return warm
    if warm in (False, None):
        return ""
    if warm is True:
        return SHARED_PROCESSES
    raise InvalidInput("warm", warm, "True, False, or a name")


def calls_of(
    functions: Iterable[str], args: Sequence[bytes], chosen: Sequence[int], files: Iterable[File], job: Job
) -> Calls:
    """Calls in the form in which they are sent, with the folders from which this program imports modules.

    Args:
        functions: names of the functions.
        args: arguments of each call, pickled.
        chosen: per call, which of the functions it is.
        files: inputs and outputs that the arguments name.
        job: says which processes they have: `warm`, `fresh`, `cwd`, `env`.
    """
    names = tuple(functions)
    urls = {kind: tuple({file.url: None for file in files if isinstance(file, kind)}) for kind in (Input, Output)}
    several = tuple(chosen) if len(names) > 1 else ()
    return Calls(
        names,
        tuple(args),
        several,
        urls[Input],
        urls[Output],
        warm_name(job.warm),
        import_paths(),
        *_folder(job.cwd),
        variables(job.env),
        bool(job.fresh),
    )


def _folder(cwd: str | os.PathLike[str] | None) -> tuple[str, bool]:
    """The folder in which calls run, and whether the server's will do if they cannot enter it."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it has been removed meanwhile
        here = ""
    return (here, True) if cwd is None else (os.path.join(here, os.fspath(cwd)), False)


def _plan(job: Job, title: str, needs: Sequence[Iterable[int]] = ()) -> tuple[PlannedTask, ...]:
    if job.kind is not Kind.WORKFLOW:
        return ()
    numbers = {id(task): number for number, task in enumerate(job.tasks)}
    common = duration(job.estimate, "estimate")
    plan = []
    for number, task in enumerate(job.tasks):
        before = [numbers.get(id(other), number) for other in task.before]
        before += needs[number] if needs else ()
        if any(other >= number for other in before):
            raise HeadwayError(
                f"task {number} of {title} comes after a task that is not added before it",
                "Add the tasks of a workflow to their job in an order in which they could run.",
            )
        own = duration(task.estimate, f"estimate of task {number}")
        said = common if own is None else own
        estimate = to_seconds(ESTIMATE_DEFAULT) if said is None else said
        sent: dict[int, int] = {}
        for other, sends in zip_longest(before, task.sent, fillvalue=0):
            sent[other] = sent.get(other, 0) + sends
        after = tuple(sorted(sent))
        sends_all = tuple(sent[other] for other in after) if any(task.sent) else ()
        retries = None if task.retries is None else whole(task.retries, f"retries of task {number}")
        cores = whole(task.cores, f"cores of task {number}")
        plan.append(PlannedTask(estimate, cores, after, sends_all, retries, assumed=said is None))
    return tuple(plan)
