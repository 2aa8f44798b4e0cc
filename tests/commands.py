"""Runs `headway WORD...` as a shell does, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from headway.cli.main import main


class Ran(NamedTuple):
    """The outcome of a command."""

    status: int
    out: str
    err: str


Headway = Callable[..., Ran]


def running_here(capfd: pytest.CaptureFixture[str]) -> Headway:
    """What runs a command, and returns its status and what it printed."""

    def run(*words: object) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        status = ended.value.code
        return Ran(status if isinstance(status, int) else 0, *capfd.readouterr())

    return run
