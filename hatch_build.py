"""Compiles the core while a wheel is built, where HEADWAY_COMPILE=1 asks for it.

The same typed sources run as plain Python: a wheel without it decides alike, only slower. Beside each compiled module
its source stays in the wheel, for tracebacks. An editable installation is never compiled, so that no compiled module is
older than its source.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WANTED = "HEADWAY_COMPILE"


class Compile(BuildHookInterface[Any]):
    """Adds compiled modules to the wheel: those of the list `modules` in pyproject.toml."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What compiling takes: mypy brings the compiler, the others the types of what is imported."""
        return ["mypy>=2.4,<3", "setuptools>=65", "numpy>=1.26"] if is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before the files of the wheel are gathered."""
        if not is_wanted() or version == "editable":
            return
        built = Path(self.root, "build", "compiled")
        for path in compiled(Path(self.root), self.config["modules"], built):
            build_data["force_include"][str(path)] = str(path.relative_to(built / "lib"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def is_wanted() -> bool:
    """Whether the one who builds asks for compiled modules."""
    return os.environ.get(WANTED, "") not in ("", "0")


def compiled(root: Path, modules: list[str], built: Path) -> list[Path]:
    """Compile modules, given as paths in the project; the shared libraries, laid out as in the wheel.

    Raises:
        SystemExit: a module does not pass the type checker, or there is no C compiler.
    """
    from mypyc.build import mypycify
    from setuptools import Distribution

    os.chdir(root / "src")
    # `make check` checks the types; here those of what is imported may be missing.
    options = [
        "--config-file=",
        "--follow-imports=silent",
        "--ignore-missing-imports",
        f"--cache-dir={built / 'types'}",
    ]
    paths = [str(Path(module).relative_to("src")) for module in modules]
    extensions = mypycify([*options, *paths], target_dir=str(built / "c"), group_name="headway", strip_asserts=False)
    distribution = Distribution({"name": "headway", "ext_modules": extensions})
    command: Any = distribution.get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(built / "lib"), str(built / "objects")
    command.ensure_finalized()
    command.run()
    return [Path(path) for path in command.get_outputs()]
