"""The first process of a job of Slurm: the guard of the runner (`runner`), which it forks before it imports anything.

Started by the job as `python -P -m headway.engines.slurm.start FOLDER`. A job needs a Python of its own, and most of
the time that a short one takes goes into imports. So here only those are made that every job needs: modules that few
jobs need are imported when something of them is used.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any, Final, NoReturn

from headway.engines.local.agent.guard import watched

COMMANDS: Final = "commands"
"""The argument that says that no member of the part is a function."""

_STOOD_IN_FOR: Final = ("decimal", "msgspec.inspect", "textwrap", "uuid")
"""What msgspec imports for values that a runner of commands does not have."""


class _StandIn(type(sys)):  # type: ignore[misc]
    """A module that has a class of any name."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"unknown": None})  # `uuid.SafeUUID` has it
        setattr(self, name, made)
        return made


def import_msgspec(*, functions: bool) -> None:
    """Import msgspec without `typing_extensions`, of which it takes what this Python has by itself.

    Args:
        functions: this process may run functions, which may use all of msgspec. Else it knows no numbers of `decimal`,
            no UUIDs and no schemas.
    """
    absent: dict[str, Any] = {"typing_extensions": None}
    if not functions:
        import _datetime  # what msgspec needs of `datetime` is in C; the rest of that is the same in Python

        absent |= {name: _StandIn(name) for name in _STOOD_IN_FOR} | {"datetime": _datetime}
    absent = {name: stand_in for name, stand_in in absent.items() if name not in sys.modules}
    sys.modules.update(absent)
    import msgspec  # noqa: F401

    for name in absent:
        del sys.modules[name]


def main(arguments: list[str]) -> int:
    """Be the guard of a runner; returns the exit status of the job."""

    def serve() -> NoReturn:
        gc.disable()
        import_msgspec(functions=COMMANDS not in arguments[1:])
        from headway.engines.slurm import runner

        gc.enable()
        try:
            status = runner.main(arguments)
        except BaseException:  # noqa: BLE001 - the process ends here in any case
            import traceback

            traceback.print_exc()
            status = 1
        sys.stderr.flush()
        os._exit(status)

    return 0 if watched(serve, ignored=(signal.SIGTERM,)) == 0 else 1


def end() -> NoReturn:
    """Be the whole process."""
    os._exit(main(sys.argv[1:]))


if __name__ == "__main__":
    end()
