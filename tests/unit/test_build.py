"""The core is compiled while a wheel is built, where that is possible; if not, the wheel says why."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Hook:
    """In the place of the builder's own class: the builder is not installed where tests run."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.config = {"modules": ["src/headway/core/state.py"]}
        self.said: list[str] = []
        self.app = SimpleNamespace(display_warning=self.said.append)

    def __class_getitem__(cls, _: object) -> type[Hook]:
        return cls


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module hatch_build.py, with nothing asked of it."""
    interface = ModuleType("interface")
    interface.BuildHookInterface = Hook  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    monkeypatch.delenv("HEADWAY_COMPILE", raising=False)
    monkeypatch.delenv("CC", raising=False)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(build: Any, folder: Path, version: str = "standard") -> tuple[dict[str, Any], list[str]]:
    """What goes into a wheel, and what is said."""
    hook = build.Compile(folder)
    data: dict[str, Any] = {"force_include": {}}
    hook.initialize(version, data)
    return data, hook.said


def test_without_a_compiler_the_wheel_is_plain_and_says_why(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert build.Compile(tmp_path).dependencies() == []
    data, said = built(build, tmp_path)
    ((source, place),) = data.pop("force_include").items()
    assert (place, data) == ("headway/not-compiled.txt", {})
    why = "the C compiler no-such-compiler is not installed"
    assert Path(source).read_text() == f"{why}\n"
    assert said == [f"Headway is not compiled, so simulations take two to three times as long: {why}"]


def test_what_was_asked_for_and_is_not_possible_is_an_error(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("HEADWAY_COMPILE", "1")
    with pytest.raises(SystemExit, match="cannot be compiled: the C compiler no-such-compiler is not installed"):
        built(build, tmp_path)


def test_it_can_be_left_plain(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_COMPILE", "0")
    assert build.Compile(tmp_path).dependencies() == []
    assert built(build, tmp_path)[1] == [
        "Headway is not compiled, so simulations take two to three times as long: HEADWAY_COMPILE is 0"
    ]


def test_where_compiling_fails_the_wheel_is_plain(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SystemExit("error:\n too little memory")

    monkeypatch.setattr(build, "obstacle", lambda: None)
    monkeypatch.setattr(build, "compiled", fail)
    assert build.Compile(tmp_path).dependencies()
    data, said = built(build, tmp_path)
    assert list(data) == ["force_include"]
    assert said[0].endswith("compiling failed: error: too little memory")
    monkeypatch.setenv("HEADWAY_COMPILE", "1")
    with pytest.raises(SystemExit, match="too little memory"):
        built(build, tmp_path)


def test_of_a_compiler_that_fails_a_short_line_is_said(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler is called with some hundred arguments, and what calls it raises an error of its own."""

    def fail(*_: object) -> None:
        try:
            subprocess.run(["false", *["-fvisibility=hidden"] * 100], check=True)
        except subprocess.CalledProcessError as failed:
            raise RuntimeError(f"command {failed.cmd} failed") from failed

    monkeypatch.setattr(build, "obstacle", lambda: None)
    monkeypatch.setattr(build, "compiled", fail)
    assert built(build, tmp_path)[1][0].endswith(": compiling failed: false ended with exit status 1")
    assert len(build.in_short(ValueError("wrong " * 1000))) <= 200


def test_how_much_is_optimised_is_a_number_of_the_c_compiler(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_OPTIMISE", raising=False)
    assert build.effort() == "3"
    monkeypatch.setenv("HEADWAY_OPTIMISE", "1")
    assert build.effort() == "1"
    monkeypatch.setenv("HEADWAY_OPTIMISE", "fast")
    with pytest.raises(SystemExit, match="HEADWAY_OPTIMISE is 'fast'; 0, 1, 2 or 3 is allowed"):
        build.effort()


def test_several_files_are_compiled_side_by_side(build: Any) -> None:
    """What each becomes is told in the order of the files; one that fails makes all fail."""

    def compile(sources: list[str], *, output_dir: str) -> list[str]:
        (source,) = sources
        if source == "wrong.c":
            raise ValueError("wrong.c:1: no such word")
        return [f"{output_dir}/{source.removesuffix('.c')}.o"]

    compile_all = build.side_by_side(compile)
    assert compile_all(["core.c", "model.c", "sim.c"], output_dir="build") == [
        "build/core.o",
        "build/model.o",
        "build/sim.o",
    ]
    with pytest.raises(ValueError, match="no such word"):
        compile_all(["core.c", "wrong.c", "sim.c"], output_dir="build")


def test_what_is_compiled_goes_into_the_wheel(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "build/compiled/lib/headway/core/state.so"
    monkeypatch.setattr(build, "obstacle", lambda: None)
    monkeypatch.setattr(build, "compiled", lambda *_: [library])
    data, said = built(build, tmp_path)
    assert data == {
        "force_include": {str(library): "headway/core/state.so"},
        "pure_python": False,
        "infer_tag": True,
    }
    assert said == []


def test_an_editable_installation_is_never_compiled(build: Any, tmp_path: Path) -> None:
    assert built(build, tmp_path, "editable") == ({"force_include": {}}, [])


MODULE = '''"""Facts."""

from __future__ import annotations

from headway.model.value import value


@value
class Fact:
    """Something."""

    at: int
    names: tuple[str, ...] = ()

    @property
    def lasts(self) -> bool:
        return self.at > 0


@value
class Other:
    fact: Fact


LAST = 1
'''


def test_a_value_that_is_written_out_is_the_same_value(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, written = ModuleType("facts"), ModuleType("facts")
    monkeypatch.setitem(sys.modules, "facts", written)
    text = build.written_out(MODULE)
    exec(MODULE, vars(plain))
    exec(compile(text, "facts", "exec"), vars(written))
    for made in (plain, written):
        fact = made.Fact(7, ("a",))
        assert repr(made.Other(fact)) == "Other(fact=Fact(at=7, names=('a',)))"
        assert fact == made.Fact(7, names=("a",)) != made.Fact(at=7)
        assert {fact, made.Fact(7, ("a",))} == {fact}
        assert replace(fact, at=0) == made.Fact(0, ("a",))
        assert fact.lasts
        assert [(field.name, field.type, field.default) for field in fields(made.Fact)][1] == (
            "names",
            "tuple[str, ...]",
            (),
        )
        assert made.Fact.__annotations__ == {"at": "int", "names": "tuple[str, ...]"}
    assert pickle.loads(pickle.dumps(written.Other(written.Fact(1)))) == written.Other(written.Fact(1))
    lines = text.splitlines()
    assert [lines.index(line) for line in ("class Fact:", "class Other:", "LAST = 1")] == [
        MODULE.splitlines().index(line) for line in ("class Fact:", "class Other:", "LAST = 1")
    ], "a traceback names the lines of the source"
    assert build.written_out("LAST = 1\n").splitlines()[0] == "LAST = 1"


HEIRS = '''"""Shapes."""

from __future__ import annotations

from dataclasses import field

from headway.model.value import value


@value
class Shape:
    name: str
    sides: int = 4
    kind: str = field(default="any", init=False)


@value
class Round(Shape):
    radius: float = 1.0
    kind: str = field(default="round", init=False)


LAST = 1
'''


def test_values_that_are_written_out_may_inherit(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, written = ModuleType("shapes"), ModuleType("shapes")
    monkeypatch.setitem(sys.modules, "shapes", written)
    exec(HEIRS, vars(plain))
    exec(compile(build.written_out(HEIRS), "shapes", "exec"), vars(written))
    for made in (plain, written):
        found = made.Round("disc", radius=2.0)
        assert repr(found) == "Round(name='disc', sides=4, kind='round', radius=2.0)"
        assert found == made.Round("disc", 4, 2.0) != made.Round("disc")
        assert (replace(found, sides=0).kind, made.Shape("box").kind) == ("round", "any")
        assert [one.name for one in fields(made.Round) if one.init] == ["name", "sides", "radius"]
        with pytest.raises(TypeError, match="kind"):
            made.Round("disc", kind="square")
    assert pickle.loads(pickle.dumps(written.Round("disc", 3))) == written.Round("disc", 3)
