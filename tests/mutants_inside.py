"""The first pass of `mutants.py`: a pytest that collects once, and forks for each change.

To start Python, import everything and collect tests takes seconds, while a test that notices a change takes
milliseconds. So one process collects all the tests that may be run, and each change is made in a fork of it, by
replacing the code of the functions concerned. Changes outside functions (defaults, fields of classes) cannot be made in
this way and are left to the second pass. Processes that tests start do not have the change.

This is a pytest plugin. `HEADWAY_MUTANTS` names a file with the changes and the tests to run. Each line of the file
beside it, `.said`, has the number of a change and what noticed it: "" for nothing, null for a change that cannot be
made here.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from mutants import MEMORY_MAX, PACKAGE, SECONDS_MAX, changed

CO_OPTIMIZED = 1
"""Flag of the code of functions; that of classes and modules has it not."""


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and all code objects in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def key(code: CodeType) -> tuple[str, int]:
    """What identifies a code object in a file."""
    return code.co_qualname, code.co_firstlineno


def own(code: CodeType) -> tuple[Any, ...]:
    """The content of a code object, without the code objects in it."""
    constants = tuple((type(one), one) for one in code.co_consts if not isinstance(one, CodeType))
    return code.co_code, repr(constants), code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


def make(file: str, number: int) -> bool:
    """Make a change of a file, by its number among all changes of that file. Returns whether it can be made here."""
    path = PACKAGE / file
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    old = compile(ast.parse(text), str(path), "exec", dont_inherit=True)
    possible = changed(file, tree)
    for _ in range(number + 1):
        next(possible)
    new = compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)
    before, after = ({key(code): code for code in codes(one)} for one in (old, new))
    differ = {place for place, code in after.items() if place not in before or own(code) != own(before[place])}
    if not differ or any(not after[place].co_flags & CO_OPTIMIZED for place in differ):
        return False
    importlib.import_module(f"headway.{file.removesuffix('.py').replace('/', '.')}")
    made = False
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename == str(path):
            code = after.get(key(function.__code__))
            if code is not None and any(key(one) in differ for one in codes(code)):
                function.__code__ = code
                made = True
    return made


class Failures:
    """The first test that failed."""

    def __init__(self) -> None:
        self.first = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test was run (hook of pytest)."""
        if report.failed and not self.first:
            self.first = report.nodeid


def first_failure(session: pytest.Session, items: Sequence[pytest.Item], folder: str) -> str:
    """Run tests until one fails. Returns its name; empty if all pass."""
    failures = Failures()
    session.config.pluginmanager.register(failures)
    factory: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]  # each fork has its own
    factory._given_basetemp, factory._basetemp = Path(folder) / "base", None
    for place, item in enumerate(items):
        following = items[place + 1] if place + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failures.first:
            break
    with contextlib.suppress(Exception):  # only to end what the tests have started
        session._setupstate.teardown_exact(None)
    return failures.first


class Fork:
    """A process that tries one change; `change` None: no change, to check that a test passes without one."""

    def __init__(
        self, session: pytest.Session, question: dict[str, Any], items: Sequence[pytest.Item], change: int | None
    ) -> None:
        self.question = question
        self.items = items
        self.change = change
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.deadline = time.monotonic() + SECONDS_MAX
        self.pid = os.fork()
        if not self.pid:
            self._live(session)

    def _live(self, session: pytest.Session) -> None:
        said: str | None = "the process ended"
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
            if self.change is None or make(self.question["file"], self.change):
                said = first_failure(session, self.items, self.folder.name)
            else:
                said = None
        except BaseException as error:  # noqa: BLE001  # a change that breaks pytest itself is noticed
            said = f"{type(error).__name__} ended pytest"
        finally:
            Path(self.folder.name, "said").write_text(json.dumps(said))
            os._exit(0)

    def ended(self) -> bool:
        """Whether it is over, also because its time is."""
        if os.waitpid(self.pid, os.WNOHANG)[0]:
            return True
        if time.monotonic() < self.deadline:
            return False
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return True

    def said(self) -> str | None:
        """The outcome."""
        with contextlib.suppress(ProcessLookupError):  # all its processes may have ended
            os.killpg(self.pid, signal.SIGKILL)
        told = Path(self.folder.name, "said")
        words: str | None = json.loads(told.read_text()) if told.exists() else "it did not end, or crashed"
        self.folder.cleanup()
        return words


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Fork for each change, in place of pytest's own loop."""
    path = Path(os.environ["HEADWAY_MUTANTS"])
    wanted = json.loads(path.read_text())
    known = {item.nodeid: item for item in session.items}
    waiting, running = list(reversed(wanted["questions"])), list[Fork]()
    with path.with_suffix(".said").open("a", encoding="utf-8") as told:

        def tell(question: dict[str, Any], said: str | None) -> None:
            told.write(json.dumps([question["number"], said]) + "\n")
            told.flush()

        while waiting or running:
            while waiting and len(running) < wanted["jobs"]:
                question = waiting.pop()
                items = [known[name] for name in question["tests"] if name in known]
                if items:
                    running.append(Fork(session, question, items, question["change"]))
                else:
                    tell(question, "")
            time.sleep(0.01)
            for fork in [fork for fork in running if fork.ended()]:
                running.remove(fork)
                said, names = fork.said(), [item.nodeid for item in fork.items]
                if fork.change is None and said:  # it fails without the change too: run the tests after it
                    rest = fork.question["tests"][fork.question["tests"].index(names[0]) + 1 :]
                    waiting.append(fork.question | {"tests": rest})
                elif fork.change is None:
                    tell(fork.question, names[0])
                elif said in names:
                    running.append(Fork(session, fork.question, [known[said]], None))
                else:
                    tell(fork.question, said)
    return True
