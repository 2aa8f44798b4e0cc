"""The tasks that the arguments of `headway submit` describe: a program, run once, N times, or once for each file."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from headway.client.job import Task
from headway.errors import HeadwayError, InvalidInput
from headway.wire import check_env

FILE_PLACES: Final = re.compile(r"\{(file|stem)\}")
"""What stands for the file of a task: its path as it was typed, and its name without folder and last suffix."""

NEVER_SO_WIDE: Final = re.compile(
    r"job .*: (?:width is|together, with \d+ tasks, needs) (\d+)(?: slots at once)?; "
    r"allowed: at most (\d+), the slots of the (?:whole )?(.+)"
)
"""What a server says of a job that no cluster of its size can run."""

HOW: Final = "Such as: headway submit --each *.csv --stdout {stem}.txt -- wc {file}"


class WithFiles(click.Command):
    """A command whose option `--each` takes all words up to the next option, as a shell makes them from `*.csv`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of a command line."""
        ctx.obj = "--" in args
        return super().parse_args(ctx, spread(self, args))


@dataclass(frozen=True, slots=True)
class TaskProgram:
    """What each task runs, in the words of the command line; {file} and {stem} in them stand for its file.

    Attributes:
        places: the options `cwd`, `stdin`, `stdout`, `stderr`; empty if not given.
        inputs, outputs: URLs by path.
    """

    command: Sequence[str]
    places: Mapping[str, str]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    env: Mapping[str, str]

    @property
    def texts(self) -> list[str]:
        """All words that may contain a placeholder for the file or the number of a task."""
        files = (*self.inputs.items(), *self.outputs.items())
        return [*self.command, *self.places.values(), *(text for pair in files for text in pair)]

    def tasks(self, count: int | None, files: Sequence[str], width: int | None) -> list[Task]:
        """The tasks of `--tasks COUNT`, of `--each FILES`, or of neither.

        Raises:
            InvalidInput, HeadwayError: options contradict each other, or a file is not there.
        """
        if files and count is not None:
            raise HeadwayError("--each and --tasks were both given", "--each gives a task for each file.")
        if width is not None and (files or count not in (None, 1, width)):
            hint = "Several programs that start together: --tasks N --together. Several such jobs: submit each."
            raise InvalidInput("--width", width, "one task alone, without --tasks and --each", hint=hint)
        if files:
            found = files_of(files)
            check_named(found, self.texts, self.command[0])
            return [self.task(file) for file in found]
        for name in ("{file}", "{stem}"):
            if any(name in text for text in self.texts):
                raise InvalidInput("--each", "missing", f"files, because {name} stands for one", hint=HOW)
        self._check_apart(max(count or 1, width or 1))
        return [self.task()] * (count or 1)

    def task(self, file: str | None = None) -> Task:
        """A task. Its file is the path as typed, or the whole path if the task does not run in the current folder."""
        is_elsewhere = bool(self.places["cwd"] or self.inputs or self.outputs)
        put = _as_it_is if file is None else replaced(os.path.abspath(file) if is_elsewhere else file)
        return Task.command(
            *map(put, self.command),
            **{name: put(text) for name, text in self.places.items()},
            env=self.env,
            inputs={put(path): put(url) for path, url in self.inputs.items()},
            outputs={put(path): put(url) for path, url in self.outputs.items()},
        )

    def _check_apart(self, count: int) -> None:
        """Check that tasks do not write the same file.

        Raises:
            InvalidInput: they do.
        """
        for name in ("stdout", "stderr"):
            path = self.places[name]
            if count > 1 and path and "{i}" not in path + self.places["cwd"] and not path.startswith("/dev/"):
                typed = f"a path with {{i}} in it, for each of {count} tasks would overwrite the file"
                stem, dot, suffix = path.rpartition(".")
                near = f"{stem}{{i}}.{suffix}" if dot and "/" not in suffix else f"{path}.{{i}}"
                raise InvalidInput(
                    f"--{name}", path, typed, hint=f"Such as --{name} '{near}'; {{i}} is the task's number."
                )


def too_wide(refusal: HeadwayError, tasks: int | None, files: int, width: int | None) -> HeadwayError | None:
    """The error if a server refuses a job because no cluster of its size can run it; None for other refusals."""
    found = NEVER_SO_WIDE.match(str(refusal.args[0]))
    if found is None:
        return None
    several = f"--each with {found[1]} files" if files else f"--tasks {tasks}"
    typed = f"--width {width}" if width is not None else f"{several} --together"
    hint = "Start fewer at once, or give a node more slots: headway node resize NAME --slots N"
    return HeadwayError(f"{typed} needs {found[1]} slots at once; the {found[3]} has {found[2]}", hint)


def absent(folder: str) -> str:
    """A hint if a folder for tasks does not exist here; empty if it does."""
    if not folder or "{" in folder or os.path.isdir(folder):
        return ""
    return f"there is no folder {folder} here. Tasks are refused unless it is there where they run."


def misplaced(command: Sequence[str], ctx: click.Context) -> str:
    """What to say where options of the command seem to follow its program; empty where they do not, or after a `--`."""
    known = {name for param in ctx.command.params if isinstance(param, click.Option) for name in param.opts}
    found = [word for word in command[1:] if word.startswith("--") and word.partition("=")[0] in known]
    if not found or ctx.obj:
        return ""
    program = shlex.quote(command[0])
    return (
        f"{found[0]} goes to {program} as an argument. Options of {ctx.command_path} come before the program, "
        f"and -- between them: {ctx.command_path} {found[0]} ... -- {program}"
    )


def _as_it_is(text: str) -> str:
    return text


def spread(command: click.Command, words: list[str]) -> list[str]:
    """The same words with `--each` before every file.

    Files end where the next option begins, or `--`. Without a `--` each `--each` has one file, because it
    would be unclear where the files end and the program begins.
    """
    if "--" not in words:
        return words
    end = words.index("--")
    options = [option for option in command.params if isinstance(option, click.Option)]
    valued = {name for option in options if not option.is_flag for name in option.opts}
    found: list[str] = []
    place = 0
    while place < end:
        word = words[place]
        place += 1
        if not word.startswith("-"):
            return words  # the program's own words
        if word == "--each":
            first = place
            while place < end and not words[place].startswith("-"):
                found += ["--each", words[place]]
                place += 1
            if place == first:
                raise HeadwayError("--each names no file", HOW)
            continue
        found.append(word)
        if word in valued and place < end:
            found.append(words[place])
            place += 1
    return found + words[end:]


def files_of(words: Iterable[str]) -> list[str]:
    """The files that words name: a path, or a pattern such as `data/*.csv`; each once, in the order given.

    Raises:
        InvalidInput: there is no such file, or none that the pattern matches; or its name cannot be sent.
    """
    found: dict[str, None] = {}
    for word in words:
        if os.path.lexists(word):
            found[word] = None
            continue
        is_pattern = glob.has_magic(word)
        matches = sorted(glob.glob(word, recursive=True)) if is_pattern else []
        if not matches:
            allowed = "a pattern that matches a file here" if is_pattern else "a file that is here, or a pattern"
            raise InvalidInput("--each", word, allowed, hint=HOW)
        found.update(dict.fromkeys(matches))
    for name in found:
        if "{i}" in name or not _is_text(name):
            raise InvalidInput("--each", name, "names in UTF-8, without {i}", hint="Rename the file.")
    return list(found)


def check_named(file_words: Sequence[str], texts: Iterable[str], program: str) -> None:
    """See that words say where the file of each task goes, and that what is taken for the program is no file.

    Raises:
        InvalidInput: they do not.
    """
    if not any(FILE_PLACES.search(text) for text in texts):
        allowed = "a command in which {file} or {stem} stands for the file of each task"
        raise InvalidInput("--each", file_words[0], allowed, hint=HOW)
    if os.path.isfile(program) and not os.access(program, os.X_OK) and "/" not in program:
        hint = f"{program} is a file, no program: put `--` between the files and the command. {HOW}"
        raise InvalidInput("--each", file_words[0], "files, then --, then the command", hint=hint)


def replaced(file: str) -> Callable[[str], str]:
    """A function that puts a file in its places in a text, in one pass."""
    texts = {"file": file, "stem": Path(file).stem}
    return lambda text: FILE_PLACES.sub(lambda place: texts[place[1]], text)


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def variables_in(words: Sequence[str], option: str) -> dict[str, str]:
    """Variables for tasks, of words `NAME=VALUE` and `NAME`, which has the value it has here.

    Raises:
        InvalidInput: one is not set here, is given twice, or cannot be given to tasks.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals and name not in os.environ:
            allowed = "NAME=VALUE, or the name of a variable that is set here"
            raise InvalidInput(option, word, allowed)
        if name in found:
            raise InvalidInput(option, word, "NAME=VALUE or NAME, each NAME once")
        found[name] = text if equals else os.environ[name]
    check_env(found, option)
    return found
