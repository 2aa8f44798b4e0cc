"""The environment that tasks on this machine begin with: a documented part of the server's, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from headway.errors import InvalidInput
from headway.model.job import VARIABLE_NAME, is_variable_name

PASSED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"),
    *("LANG", "LANGUAGE", "LC_*", "TZ"),
    *("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
)
"""Names of the variables that tasks get, if the server has them; `*` stands for any text. The last row is what
this Python may need to run at all."""

NEVER_GIVEN: Final = ("HEADWAY_TOKEN", "HEADWAY_DECIDER_TOKEN")
"""Variables with secrets of the server, which tasks never get."""


def passed(environment: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """The part of an environment that tasks get; `more`: further names, with `*` for any text."""
    wanted = (*PASSED, *more)
    return {
        name: text
        for name, text in environment.items()
        if name not in NEVER_GIVEN and any(fnmatchcase(name, pattern) for pattern in wanted)
    }


def check_names(names: Iterable[str]) -> tuple[str, ...]:
    """Check that these can be names of variables that tasks get.

    Raises:
        InvalidInput: one cannot be.
    """
    for name in (given := tuple(names)):
        if not is_variable_name(name):
            hint = "The value is the server's own: set it where `headway up` is started."
            raise InvalidInput("pass_env", name, f"{VARIABLE_NAME}; `*` in it stands for any text", hint=hint)
        if name in NEVER_GIVEN:
            raise InvalidInput("pass_env", name, "a variable that is no secret of the server")
    return given


def of_this_process(more: Iterable[str]) -> dict[str, str]:
    """The part of this process's environment that tasks get."""
    return passed(os.environ, more)
