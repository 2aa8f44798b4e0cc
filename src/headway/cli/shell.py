"""Recognises arguments that are meant for a shell: pipes, redirections, variables, whole command lines."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from typing import Final

OPERATOR: Final = re.compile(r"\|\|?|\|&|&&?|;|\d*(?:>>?|<<?|>\||<>)(?:&\d|[^&<>|;\s]+)?|&>>?[^&<>|;\s]*")
"""Words that a shell takes for itself, where they stand alone."""

FOR_SHELL: Final = re.compile(r"[\s|&;<>]")
"""What the name of a program hardly has in it, but a line for a shell."""

VARIABLE: Final = re.compile(r"[A-Za-z_]\w*=")
"""What a shell takes as a variable for the command behind it."""

BUILTINS: Final = frozenset(
    ("alias", "cd", "eval", "exec", "export", "for", "if", "set", "source", ".", "ulimit", "while")
)
"""What only a shell can run."""


def hint(command: Sequence[str]) -> str:
    """A hint for a command that seems to be meant for a shell; empty if it does not."""
    program = command[0]
    if len(command) == 1 and FOR_SHELL.search(program) and not os.path.lexists(program):
        return (
            f"{shlex.quote(program)} is taken as the name of a program. Give its arguments as words of their own, "
            f"or have a shell run the line: headway submit -- sh -c {shlex.quote(program)}"
        )
    if VARIABLE.match(program) and not os.path.lexists(program):
        rest = shlex.join(command[1:]) or "COMMAND"
        return (
            f"{shlex.quote(program)} is taken as the name of a program. "
            f"Give tasks a variable with --env: headway submit --env {shlex.quote(program)} -- {rest}"
        )
    if program in BUILTINS and shutil.which(program) is None:
        return f"{program} is part of a shell: headway submit -- sh -c {_line(command)}"
    ends_of_find = (";", "+") if os.path.basename(program) == "find" else ()
    for word in command[1:]:
        if OPERATOR.fullmatch(word) and word not in ends_of_find:
            return (
                f"{shlex.quote(word)} goes to {program} as an argument, because no shell reads the line. "
                f"To have one read it: headway submit -- sh -c {_line(command)}"
            )
    if "/" not in program and shutil.which(program) is None:
        return f"there is no program {shlex.quote(program)} on the PATH here. Tasks look for it on the server's PATH."
    return ""


def _line(command: Sequence[str]) -> str:
    words = [word if OPERATOR.fullmatch(word) else shlex.quote(word) for word in command]
    return shlex.quote(" ".join(words))
