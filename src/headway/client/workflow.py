"""Workflows: tasks that get what earlier ones of the same job gave, functions and programs together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import PurePath
from typing import Any

from msgspec.structs import replace

from headway.client.job import (
    Env,
    Job,
    Task,
    TaskFile,
    calls_of_tasks,
    check_apart,
    check_given,
    numbering,
    title_of,
    variables,
)
from headway.client.waiters import TaskFuture, Waiter, still_open
from headway.errors import InvalidInput, TaskFailed
from headway.files import KEPT_SCHEME, File, Input, Output
from headway.given import task_file, task_file_of
from headway.model.job import JobId, Kind
from headway.times import Span
from headway.wire import ChanceReport, Command, Steps, Work

Given = str | os.PathLike[str] | Input | TaskFile
"""A file for a program."""


class Workflow(Job):
    """A job whose tasks come after one another: `flow.task` and `flow.command` add them.

    A task that is an argument of another one stands for its result, wherever in the arguments it is: in lists, dicts,
    or objects of your own. Results and files go from where a task ran to the server, and from there to where the next
    one runs; the client does not see them before it asks. Terms are those of `Job`.

    >>> flow = Workflow("sums", due="1h")
    >>> parts = [flow.task(sum, [number, 1]) for number in range(3)]
    >>> total = flow.task(sum, parts, slots=1, estimate="2s", name="total")
    >>> [task.name for task in flow.tasks]
    ['sum-0', 'sum-1', 'sum-2', 'total']
    """

    @property
    def kind(self) -> Kind:
        """It is a workflow, whatever its tasks are."""
        return Kind.WORKFLOW

    def check_form(self) -> None:
        """Check that it has no terms of rigid jobs and bags.

        Raises:
            InvalidInput: it has.
        """
        several = "Give a task that uses several cores of a node slots=N."
        if self.width is not None:
            raise InvalidInput("width", self.width, "none in a Workflow", hint=several)
        if self.together:
            raise InvalidInput("together", self.together, "False in a Workflow", hint=several)
        if self.sizes:
            hint = "Give each task an estimate."
            raise InvalidInput("sizes", self.sizes, "none in a Workflow", hint=hint)

    def task(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        after: Task | Iterable[Task] = (),
        slots: int = 1,
        estimate: Span | None = None,
        retries: int | None = None,
        name: str = "",
        **kwargs: Any,
    ) -> Task:
        """Add a call of a function, and return its task, which stands for the result in arguments of later tasks.

        Args:
            function, args, kwargs: as `Task` has them. For a keyword argument named as one of those below, add a `Task`
                with `add_task`.
            after: tasks that must have succeeded before it starts, besides those whose results it gets.
            slots: cores of one node that it uses.
            estimate: expected run time on a node of speed factor 1; None: that of the workflow.
            retries: how often it is tried again after a failure of its own; None: as the workflow says.
            name: within the workflow, for people; default: the function's name and the task's number.
        """
        return self._added(Task(function, *args, **kwargs), after, slots, estimate, retries, name)

    def command(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        inputs: Mapping[str, Given] | Iterable[Given] = (),
        outputs: Mapping[str, str | os.PathLike[str] | Output] | Iterable[str] = (),
        after: Task | Iterable[Task] = (),
        slots: int = 1,
        estimate: Span | None = None,
        retries: int | None = None,
        name: str = "",
        cwd: str | os.PathLike[str] = "",
        env: Env = None,
        stdin: str | os.PathLike[str] = "",
        stdout: str | os.PathLike[str] = "",
        stderr: str | os.PathLike[str] = "",
    ) -> Task:
        """Add a program, and return its task. In arguments of later tasks it stands for the text that it wrote last.

        Args:
            argv: the program and its arguments; no shell is involved.
            inputs: files that it finds in its folder, by their paths there, or alone under their own names: paths,
                URLs, or files of earlier tasks (`task.file(NAME)`).
            outputs: files that it leaves there: URLs by their paths, or paths alone, whose files the server keeps for
                later tasks and for `Client.download`.
            after, slots, estimate, retries, name: as of `task`.
            cwd, env, stdin, stdout, stderr: as of `Task.command`.
        """
        if isinstance(argv, str) or not isinstance(argv, Sequence):
            raise InvalidInput("argv", argv, "a list: the program and its arguments")
        taken = inputs if isinstance(inputs, Mapping) else {_name_of(file): file for file in inputs}
        if isinstance(outputs, Mapping):
            put = outputs
        else:
            put = {path: f"{KEPT_SCHEME}{PurePath(path).name}" for path in outputs}
        task = Task.command(
            *argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, inputs=taken, outputs=put
        )
        return self._added(task, (after, *(file.task for file in task.taken.values())), slots, estimate, retries, name)

    def _added(
        self,
        task: Task,
        after: Any,
        slots: int,
        estimate: Span | None,
        retries: int | None,
        name: str,
    ) -> Task:
        task.retries = retries
        task.name = name or f"{_title_of(task)}-{len(self.tasks)}"
        return self.add_task(task, after=_flat(after), cores=slots, estimate=estimate)

    def names(self) -> tuple[str, ...]:
        """What its tasks are called; those without a name have their function's or program's, and their number."""
        return tuple(task.name or f"{_title_of(task)}-{number}" for number, task in enumerate(self.tasks))

    def work_of_tasks(self, title: str) -> tuple[Work, dict[str, bytes], Sequence[Iterable[int]]]:
        """The work of its tasks as it is sent; its functions, by name; of which tasks each gets something."""
        numbers = {id(task): number for number, task in enumerate(self.tasks)}
        needs: list[set[int]] = [set() for _ in self.tasks]
        now = 0

        def number_of(task: Task) -> int:
            number = numbers.get(id(task), now)
            if number >= now:
                raise InvalidInput("argument", task, "a task that was added to the same workflow before")
            needs[now].add(number)
            return number

        def begin(number: int) -> None:
            nonlocal now
            now = number

        gives: dict[int, dict[str, str]] = {}
        taken: list[tuple[int, int, str]] = []

        def end(number: int, files: Sequence[File]) -> None:
            urls = [file.url for file in files if isinstance(file, Output)]
            gives[number] = {url.removeprefix(KEPT_SCHEME): url for url in urls}
            named = (task_file_of(file.url) for file in files if isinstance(file, Input))
            taken.extend((number, *one) for one in named if one is not None)

        with numbering(number_of):
            called = [(number, task) for number, task in enumerate(self.tasks) if task.function is not None]
            calls, functions = calls_of_tasks(self, called, title, begin, end)
            programs = []
            for number, task in enumerate(self.tasks):
                begin(number)
                if task.program is not None:
                    inputs = {path: task_file(number_of(file.task), file.name) for path, file in task.taken.items()}
                    programs.append(replace(task.program, inputs={**task.program.inputs, **inputs}))
                    gives[number] = task.program.outputs
                    taken.extend((number, numbers[id(file.task)], file.name) for file in task.taken.values())
        for number, giver, name in taken:
            try:
                check_given(name, gives[giver], giver)
            except InvalidInput as error:
                field = f"file of {self.names()[giver]}, for {self.names()[number]}"
                raise InvalidInput(field, name, error.allowed, hint=error.hint) from None
        places = tuple(number for number, task in enumerate(self.tasks) if task.program is not None)
        check_apart(programs, len(programs))
        commands = self._with_variables(programs)
        all_needs = tuple(tuple(sorted(some)) for some in needs)
        steps = Steps(calls, commands, places, all_needs if any(needs) else (), self.names())
        return steps, functions, all_needs

    def _with_variables(self, programs: Sequence[Command]) -> tuple[Command, ...]:
        common = variables(self.env)
        return (
            tuple(replace(program, env={**common, **program.env}) for program in programs)
            if common
            else tuple(programs)
        )


def _title_of(task: Task) -> str:
    if task.program is not None:
        return PurePath(task.program.argv[0]).name
    return title_of(task.function)


def _name_of(file: Given) -> str:
    """The name under which a file is found that is given alone."""
    if isinstance(file, TaskFile):
        return file.name
    return PurePath(file.url if isinstance(file, Input) else os.fspath(file)).name


def _flat(after: Any) -> list[Task]:
    """Tasks that are given as they are, or in lists.

    Raises:
        InvalidInput: something is no task.
    """
    if isinstance(after, Task):
        return [after]
    if isinstance(after, str) or not isinstance(after, Iterable):
        raise InvalidInput("after", after, "tasks of the workflow, which `task` and `command` return")
    return list({id(task): task for one in after for task in _flat(one)}.values())


class Flow(Waiter):
    """The future of a workflow; its result is the list of its tasks' results, in the order of the tasks.

    `flow[task]` is the future of one task. In errors tasks have their names, and a task that never ran says which one
    failed.
    """

    def __init__(
        self,
        workflow: Workflow,
        cancel: Callable[[JobId], bool],
        chance: Callable[[JobId], ChanceReport | None] = lambda job: None,
    ) -> None:
        super().__init__(workflow.name, len(workflow.tasks), cancel, chance)
        self.names = workflow.names()
        self._numbers = {id(task): number for number, task in enumerate(workflow.tasks)}
        self._given = tuple(workflow.tasks)
        self._named = {name: number for number, name in reversed(tuple(enumerate(self.names)))}
        self._before: list[tuple[int, ...]] = [()] * len(workflow.tasks)
        self._causes: dict[int, int | None] = {}

    def comes_after(self, before: Sequence[tuple[int, ...]]) -> None:
        """Which tasks each one comes after."""
        self._before = list(before)

    def __getitem__(self, task: Task | str | int) -> TaskFuture:
        """The future of one task: the task itself, its name or its number.

        Raises:
            InvalidInput: the workflow has no such task.
        """
        if isinstance(task, Task):
            number = self._numbers.get(id(task))
        elif isinstance(task, str):
            number = self._named.get(task)
        else:
            number = task if 0 <= task < len(self) else None
        if number is None:
            raise InvalidInput("task", task, "a task of this workflow, its name or its number")
        return self.tasks[number]

    def final(self, timeout: float | None = None) -> list[Any]:
        """Wait for the end; then return the results of the tasks that no other one comes after, in order.

        Raises:
            TimeoutError: the workflow did not end within `timeout` seconds.
            Exception: a task failed, as of `result`.
        """
        if still_open([self], timeout):
            raise TimeoutError(f"job {self.job} did not end within {timeout} s")
        found = self.result()
        inner = {number for before in self._before for number in before}
        return [value for number, value in enumerate(found) if number not in inner]

    def states(self) -> dict[str, str]:
        """How far each task is, by name: open, succeeded, failed, cancelled, or never ran.

        `Client.tasks` asks the server for more: which of the open ones run, where, and what the others wait for.
        """
        return dict(zip(self.names, map(_state_of, self.ended()), strict=True))

    def _never_ran(self, task: int) -> TaskFailed:
        cause = self._cause_of(task)
        said = "a task before it failed"
        if cause is not None:
            end = self.ended()[cause]
            word = "was cancelled" if end is not None and isinstance(end[1], CancelledError) else "failed"
            said = f"task {cause} ({self.names[cause]}) {word}"
        return TaskFailed(
            f"task {task} ({self.names[task]}) of job {self.job} did not run, because {said}", job=self.job, task=task
        )

    def _cause_of(self, task: int) -> int | None:
        """The first task before this one that failed or was cancelled. It is asked for in order of the tasks."""
        causes = (self._causes.get(before, before) for before in self._before[task])
        found = min((cause for cause in causes if cause is not None and self._has_failed(cause)), default=None)
        self._causes[task] = found
        return found

    def _has_failed(self, task: int) -> bool:
        end = self._ends[task]
        return end is not None and end[1] is not None

    def _told(self, task: int, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, CancelledError):
            error.add_note(f"It is task {task} ({self.names[task]}) of job {self.job} {self.name!r}.")


def _state_of(end: Any) -> str:
    if end is None:
        return "open"
    error = end[1]
    if error is None:
        return "succeeded"
    if isinstance(error, CancelledError):
        return "cancelled"
    return "never ran" if isinstance(error, TaskFailed) and error.ending is None else "failed"
