"""The first process of a job of Slurm: the guard of the runner (`runner`), which it forks before it imports anything.

Started by the job as `python -P -m headway.engines.slurm.start FOLDER`, or in a bare Python if it only runs commands
(`jobs`). A job needs a Python of its own, and most of the time that a short one takes goes into imports. So here only
those are made that every job needs: modules that few jobs need are imported when something of them is used. What runs
commands finds them in one file (`bundle`).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headway.engines.local.agent.guard import watched

TYPE_CHECKING = False  # as far as a type checker knows, it is true: see `_Typing`
if TYPE_CHECKING:
    from typing import Any, Final, NoReturn

COMMANDS_ONLY: Final = "commands"
"""The argument that says that no member of the part is a function."""

_STOOD_IN_FOR: Final = (
    *("decimal", "re", "typing", "uuid"),
    *("msgspec._json_schema", "msgspec.inspect", "msgspec.toml", "msgspec.yaml"),
)
"""What msgspec imports for values, types, patterns and formats that a runner of commands does not have."""

_WITH_THIS_HEADWAY: Final = """import sys
place = sys.argv.pop(1)
sys.path.insert(0, place)
import headway
del sys.path[0]
sys.path.append(place)
from headway.engines.slurm import start
start.end()"""
"""A program that starts a runner of functions with this Headway, though another one may be installed too."""


class _Text(str):
    """An annotation that is text."""

    def __new__(cls, text: str, **_: object) -> _Text:
        """It, whatever else is known of it."""
        return super().__new__(cls, text)


def _meant(annotation: object, names: dict[str, Any], others: dict[str, Any], *_: object) -> object:
    """The type that an annotation stands for."""
    return eval(annotation, others, names) if isinstance(annotation, _Text) else annotation


class _StandIn(type(sys)):  # type: ignore[misc]
    """A module that has a class of any name."""

    ForwardRef = _Text  # of `typing`, as the next one
    _eval_type = staticmethod(_meant)

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"unknown": None})  # `uuid.SafeUUID` has it
        setattr(self, name, made)
        return made


class _Any:
    """Any type of `_Typing`: it can be subscribed, and be a base class."""

    def __class_getitem__(cls, _: object) -> type[_Any]:
        return cls


class _Typing(type(sys)):  # type: ignore[misc]
    """Stands in for `typing`, whose import takes as long as all our modules: what these take from it when they run."""

    TYPE_CHECKING = False
    Any = BinaryIO = Final = Generic = NoReturn = Protocol = _Any
    TypeVar = staticmethod(lambda _: _Any)
    cast = staticmethod(lambda _, value: value)
    runtime_checkable = staticmethod(lambda kind: kind)


@contextmanager
def _instead(modules: dict[str, Any]) -> Iterator[None]:
    """While the context lasts, these are imported instead of the real ones, unless those are there."""
    absent = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def import_runner(*, functions: bool) -> Callable[[list[str]], int]:
    """Import the runner with as little else as it needs; returns its `main`.

    What it reads is compiled here too: msgspec looks at the fields of a type only when it first makes a decoder.

    Of `typing_extensions` msgspec would only take what this Python has by itself.

    Args:
        functions: this process may run functions, which may use all of msgspec. Else it knows no numbers of `decimal`,
            no UUIDs, no schemas, and no types that are not Python's own.
    """
    absent: dict[str, Any] = {"typing_extensions": None}
    if not functions:
        import _datetime  # what msgspec needs of `datetime` is in C; the rest of that is the same in Python

        absent |= {name: _StandIn(name) for name in _STOOD_IN_FOR} | {"datetime": _datetime}
    with _instead(absent):
        import msgspec  # noqa: F401
    with _instead({} if functions else {"typing": _Typing("typing"), "_pickle": _StandIn("_pickle")}):
        from headway.engines.slurm import runner

        runner.make_decoders()
    return runner.main


def _place() -> str:
    """The folder that this Headway is in."""
    place = os.path.abspath(__file__)
    for _ in ("start", "slurm", "engines", "headway"):
        place = os.path.dirname(place)
    return place


def _complain() -> None:
    """Print the exception that is handled."""
    import traceback  # large, and rarely needed

    traceback.print_exc()
    sys.stderr.flush()


def main(arguments: list[str]) -> int:
    """Be the guard of a runner; returns the exit status of the job."""

    def serve() -> NoReturn:
        gc.disable()
        functions = COMMANDS_ONLY not in arguments[1:]
        try:
            run = import_runner(functions=functions)
        except Exception:  # noqa: BLE001 - another msgspec may need more than what stands in for other modules
            _complain()
            if functions:
                os._exit(1)
            os.execv(sys.executable, (sys.executable, "-P", "-c", _WITH_THIS_HEADWAY, _place(), *arguments[:1]))
        gc.freeze()
        gc.enable()
        try:
            status = run(arguments)
        except BaseException:  # noqa: BLE001 - the process ends here in any case
            _complain()
            status = 1
        sys.stderr.flush()
        os._exit(status)

    return 0 if watched(serve, ignored=(signal.SIGTERM,)) == 0 else 1


def end() -> NoReturn:
    """Be the whole process."""
    os._exit(main(sys.argv[1:]))


if __name__ == "__main__":
    end()
