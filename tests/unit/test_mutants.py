"""What `make mutants` changes in a source, and what it leaves unchanged."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).resolve().parents[1] / "mutants.py"


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module  # data classes look their module up
    spec.loader.exec_module(module)
    return module


def changes(mutants: ModuleType, source: str) -> list[str]:
    found = mutants.changed("core/a.py", ast.parse(source))
    return [f"{change.before} -> {change.after}" for change in found]


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("return a < b", ["return a <= b"]),
        ("return a and b", ["return a or b"]),
        ("return a and b and c", ["return a or b or c", "return b and c", "return a and c", "return a and b"]),
        ("return not a", ["return not not a"]),
        ("return a - 3", ["return a + 3", "return a - 4"]),
        ("return b if a else c", ["return b if not a else c"]),
        ("return min(a, b)", ["return max(a, b)"]),
        ("a.b = c", ["pass"]),
        ("a += b", ["pass", "a -= b"]),
        ("a.append(b)", ["pass"]),
        ("a = 'left' + b", []),
        ("raise ValueError(1 + 1)", []),
        ("assert a < b", []),
        ("log.info('so many: %d', 1 + a)", []),
        ("a = f'{b + 1} more'", []),
        ("a: Literal[1] = b", []),
    ],
)
def test_what_can_be_changed_of_a_line(mutants: ModuleType, line: str, changed: list[str]) -> None:
    source = f"def f(a, b, c):\n    {line}\n"
    assert changes(mutants, source) == [f"{line} -> {one}" for one in changed]


def test_a_condition_is_negated_and_its_body_let_be(mutants: ModuleType) -> None:
    source = "def f(a):\n    if a:\n        return g(a)\n"
    assert changes(mutants, source) == ["if a: ... -> if not a: ..."]


def test_defaults_are_changed_and_constants_of_a_module_and_docstrings_are_not(mutants: ModuleType) -> None:
    source = 'LIMIT = 7\n"""So many."""\n\ndef f(a, b=2):\n    """1 + 1."""\n    return a\n'
    assert changes(mutants, source) == ["def f(a, b=2): ... -> def f(a, b=3): ..."]


@pytest.mark.slow
def test_every_change_of_a_module_can_be_made_alone_and_leaves_the_tree_as_it_was(mutants: ModuleType) -> None:
    source = (mutants.PACKAGE / "core" / "rounds.py").read_text("utf-8")
    tree = ast.parse(source)
    whole = ast.unparse(tree)
    found = list(mutants.changed("core/rounds.py", tree))
    assert ast.unparse(tree) == whole
    assert len(found) > 100
    for change in found[::10]:
        text = mutants.text_of(change, ast.parse(source))
        compile(text, "rounds.py", "exec")
        assert text != whole
        first = source.splitlines()[change.lines[0] - 1].strip().replace("elif ", "if ")  # a tree has no elif
        assert first.split()[0].split("[")[0] == change.before.split()[0].split("[")[0]


def test_how_long_tests_took_is_known_by_the_names_that_pytest_takes(mutants: ModuleType, tmp_path: Path) -> None:
    case = '<testcase classname="{}" name="test_a[1.5]" time="0.25"{}'
    cases = (
        case.format("tests.unit.test_mutants", "/>"),
        case.format("tests.unit.test_mutants.TestOne", "/>"),
        case.format("tests.unit.test_wire", "><failure/></testcase>"),
    )
    (tmp_path / "junit").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    assert mutants.seconds(tmp_path / "junit") == {
        "tests/unit/test_mutants.py::test_a[1.5]": 0.25,
        "tests/unit/test_mutants.py::TestOne::test_a[1.5]": 0.25,
    }
