"""Compiles the core while a wheel is built, where a C compiler is.

The same typed sources run as plain Python: a wheel without it decides alike, only slower. Beside each compiled module
its source stays in the wheel, for tracebacks. An editable installation is never compiled, so that no compiled module is
older than its source.

HEADWAY_COMPILE=1 refuses to build where it cannot compile, HEADWAY_COMPILE=0 does not compile. HEADWAY_OPTIMISE=1 (0
to 3, usually 3) has the C compiler done sooner, with code that is slower and does the same.
"""

from __future__ import annotations

import ast
import os
import shutil
import sysconfig
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CalledProcessError
from textwrap import shorten
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WANTED = "HEADWAY_COMPILE"
EFFORT = "HEADWAY_OPTIMISE"

PLAIN = "headway/not-compiled.txt"
"""The file of the wheel that says why nothing is compiled; `headway --version` prints it."""


class Compile(BuildHookInterface[Any]):
    """Adds compiled modules to the wheel: those of the list `modules` in pyproject.toml."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What compiling takes: mypy brings the compiler, the others the types of what is imported."""
        return ["mypy>=2.4,<3", "setuptools>=65", "numpy>=1.26"] if obstacle() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before the files of the wheel are gathered.

        Raises:
            SystemExit: it was asked for and is not possible.
        """
        if version == "editable":
            return
        built = Path(self.root, "build", "compiled")
        found = obstacle()
        if found is None:
            try:
                for path in compiled(Path(self.root), self.config["modules"], built):
                    build_data["force_include"][str(path)] = str(path.relative_to(built / "lib"))
                build_data["pure_python"] = False
                build_data["infer_tag"] = True
                return
            except (Exception, SystemExit) as failure:
                if is_asked():
                    raise
                found = f"compiling failed: {in_short(failure)}"
        if is_asked():
            raise SystemExit(f"Headway cannot be compiled: {found}")
        self.app.display_warning(f"Headway is not compiled, so simulations take two to three times as long: {found}")
        (built / PLAIN).parent.mkdir(parents=True, exist_ok=True)
        (built / PLAIN).write_text(f"{found}\n", encoding="utf-8")
        build_data["force_include"][str(built / PLAIN)] = PLAIN


VALUE = "from headway.model.value import value"
"""What a module imports that defines values; of compiled modules, those of `headway.model` are written out."""

WRITTEN_OUT = "from dataclasses import dataclass; from headway.model.value import with_shared_methods"


def written_out(source: str) -> str:
    """A module whose values mypyc compiles: data classes with an `__init__` of their own, instead of a made one.

    A class with a decorator that mypyc does not know, such as `value`, would stay a class of Python. Lines keep their
    numbers: what is added stands in the two empty lines behind a class, and at the end.
    """
    lines, last = [*source.splitlines(), "", ""], list[str]()
    values: dict[str, dict[str, ast.AnnAssign]] = {}
    for cls in ast.parse(source).body:
        if not isinstance(cls, ast.ClassDef) or [ast.unparse(one) for one in cls.decorator_list] != ["value"]:
            continue
        own = {ast.unparse(one.target): one for one in cls.body if isinstance(one, ast.AnnAssign)}
        types = {name: ast.unparse(field.annotation) for name, field in own.items()}
        inherited = [values[name] for name in map(ast.unparse, cls.bases) if name in values]
        fields = values[cls.name] = {name: field for some in (*inherited, own) for name, field in some.items()}
        fixed = {name: found for name, field in fields.items() if (found := _fixed(field.value)) is not None}
        open_fields = {name: field for name, field in fields.items() if name not in fixed}
        taken = ", ".join(ast.unparse(field) for field in open_fields.values())
        stored = "; ".join(f"self.{name} = {fixed.get(name, name)}" for name in fields)
        given = "".join(f"self.{name}, " for name in open_fields)
        lines[cls.decorator_list[0].lineno - 1] = "@dataclass(init=False, eq=False, repr=False)"
        assert cls.end_lineno is not None
        assert lines[cls.end_lineno : cls.end_lineno + 2] == ["", ""], f"two empty lines follow {cls.name}"
        lines[cls.end_lineno : cls.end_lineno + 2] = (
            f"    def __init__(self, {taken}) -> None: {stored}",
            f"    def __reduce__(self) -> tuple[object, ...]: return {cls.name}, ({given})",
        )
        last.append(f"setattr({cls.name}, '__annotations__', {types})")  # mypyc leaves words of them out
        last.append(f"with_shared_methods({cls.name})")
    if last:
        lines[lines.index(VALUE)] = WRITTEN_OUT
    return "\n".join([*lines, *last, ""])


FLAGS = ("-fno-semantic-interposition", "-fvisibility=hidden")
"""Nothing replaces a function of the library, so that calls within it are direct: a tenth of the time."""


def _fixed(default: ast.expr | None) -> str | None:
    """The only content of a field that cannot be given: `field(default=..., init=False)`; None for any other."""
    if not (isinstance(default, ast.Call) and ast.unparse(default.func) == "field"):
        return None
    said = {word.arg: ast.unparse(word.value) for word in default.keywords}
    assert said.keys() == {"default", "init"}, "what else a field may say is not written out"
    assert said["init"] == "False", "a field that can be given says its default alone"
    return said["default"]


def is_asked() -> bool:
    """Whether to refuse to build what is not compiled."""
    return os.environ.get(WANTED, "") not in ("", "0")


def obstacle() -> str | None:
    """Why nothing can be compiled here; None if nothing is known against it."""
    if os.environ.get(WANTED) == "0":
        return f"{WANTED} is 0"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"the C compiler {compiler} is not installed"
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return None if headers.exists() else f"the headers of Python are not installed ({headers})"


def effort() -> str:
    """How much the C compiler is to optimise, 0 to 3.

    Raises:
        SystemExit: something else was asked for.
    """
    asked = os.environ.get(EFFORT, "3")
    if asked not in ("0", "1", "2", "3"):
        raise SystemExit(f"{EFFORT} is {asked!r}; 0, 1, 2 or 3 is allowed")
    return asked


def in_short(failure: BaseException) -> str:
    """What failed, in one short line: of a program its name and status, without its hundreds of arguments."""
    cause: BaseException | None = failure
    while cause is not None and not isinstance(cause, CalledProcessError):
        cause = cause.__cause__ or cause.__context__
    if cause is not None:
        return f"{cause.cmd[0]} ended with exit status {cause.returncode}"
    return shorten(str(failure), 200, placeholder=" ...") or type(failure).__name__


def side_by_side(compile: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """What a compiler does with several files, done on all processors."""

    def compile_all(sources: list[str], **words: Any) -> list[str]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [path for paths in pool.map(lambda source: compile([source], **words), sources) for path in paths]

    return compile_all


def compiled(root: Path, modules: list[str], built: Path) -> list[Path]:
    """Compile modules, given as paths in the project; the shared libraries, laid out as in the wheel.

    Raises:
        SystemExit: a module does not pass the type checker.
        Exception: the C compiler fails, or what compiling takes is not installed.
    """
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    class Build(build_ext):  # type: ignore[misc, unused-ignore]
        def build_extensions(self) -> None:
            self.compiler.compile = side_by_side(self.compiler.compile)
            super().build_extensions()

    before, sources = Path.cwd(), built / "src"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(root / "src", sources)
    for module in modules:
        if module.startswith("src/headway/model/"):  # policies are values too, whose parameters can be read
            path = built / module
            path.write_text(written_out(path.read_text(encoding="utf-8")), encoding="utf-8")
    os.chdir(sources)
    try:
        # `make check` checks the types; here those of what is imported may be missing.
        options = [
            "--config-file=",
            "--follow-imports=silent",
            "--ignore-missing-imports",
            f"--cache-dir={built / 'types'}",
        ]
        paths = [str(Path(module).relative_to("src")) for module in modules]
        # One file of C for all modules takes the C compiler three times as long.
        extensions = mypycify(
            [*options, *paths],
            target_dir=str(built / "c"),
            group_name="headway",
            strip_asserts=False,
            multi_file=True,
            debug_level="0",
            opt_level=effort(),
        )
        for extension in extensions:
            extension.extra_compile_args = [*extension.extra_compile_args, *FLAGS]  # they share one list
        command = Build(Distribution({"name": "headway", "ext_modules": extensions}))
        command.build_lib, command.build_temp = str(built / "lib"), str(built / "objects")
        command.ensure_finalized()
        command.run()
        return [Path(path) for path in command.get_outputs()]
    finally:
        os.chdir(before)
