"""Every public name has a docstring, and every example in one runs."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import headway

SOURCES = Path(__file__).resolve().parents[2] / "src" / "headway"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def public(name: str) -> bool:
    return not name.startswith("_")


def decorators(function: Function) -> set[str]:
    """The last part of each decorator's name: `overload`, `setter`, `command`."""
    names = (node.func if isinstance(node, ast.Call) else node for node in function.decorator_list)
    return {ast.unparse(name).rsplit(".", 1)[-1] for name in names}


def classes(trees: dict[str, ast.Module]) -> dict[str, ast.ClassDef]:
    return {node.name: node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def promised(name: str, owner: ast.ClassDef, known: dict[str, ast.ClassDef]) -> bool:
    """Whether a class of ours above `owner` already says what its method `name` does."""
    above = (known.get(ast.unparse(base).split("[")[0].rsplit(".", 1)[-1]) for base in owner.bases)
    return any(
        any(isinstance(node, Function) and node.name == name and ast.get_docstring(node) for node in base.body)
        or promised(name, base, known)
        for base in above
        if base is not None and base is not owner
    )


def silent(trees: dict[str, ast.Module]) -> Iterator[str]:
    """All modules, public classes, functions and methods without a docstring; `trees` is by file name."""
    known = classes(trees)
    for file, tree in trees.items():
        if not ast.get_docstring(tree):
            yield f"{file}: module"
        for node in tree.body:
            if not isinstance(node, Function | ast.ClassDef) or not public(node.name):
                continue
            if not ast.get_docstring(node) and not (isinstance(node, Function) and "overload" in decorators(node)):
                yield f"{file}:{node.lineno} {node.name}"
            if not isinstance(node, ast.ClassDef):
                continue
            for method in node.body:
                if (
                    isinstance(method, Function)
                    and public(method.name)
                    and not ast.get_docstring(method)
                    and not decorators(method) & {"overload", "setter", "deleter"}
                    and not promised(method.name, node, known)
                ):
                    yield f"{file}:{method.lineno} {node.name}.{method.name}"


def test_public_names_of_the_sources_are_documented() -> None:
    trees = {str(path.relative_to(SOURCES)): ast.parse(path.read_text("utf-8")) for path in SOURCES.rglob("*.py")}
    assert "__init__.py" in trees
    assert sorted(silent(trees)) == []


def with_examples() -> list[str]:
    """The modules whose docstrings contain examples."""
    paths = (path for path in SOURCES.rglob("*.py") if ">>> " in path.read_text("utf-8"))
    return sorted(".".join(path.relative_to(SOURCES.parent).with_suffix("").parts) for path in paths)


@pytest.mark.parametrize("module", with_examples())
def test_the_examples_of_the_docstrings_run(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert failed == 0
    assert tried > 0


def test_the_public_interface_is_there_and_documented() -> None:
    """`headway.__all__` is the whole public interface. Each name can be imported and has a docstring."""
    assert len(set(headway.__all__)) == len(headway.__all__)
    for name in headway.__all__:
        value = getattr(headway, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert inspect.getdoc(value), name


PROTOCOL = '"""M."""\nclass P:\n    """P."""\n    def m(self):\n        """Do."""\n'


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("", ["a.py: module"]),
        ('"""M."""\ndef f(): ...', ["a.py:2 f"]),
        ('"""M."""\nclass C:\n    def m(self): ...', ["a.py:2 C", "a.py:3 C.m"]),
        ('"""M."""\nclass C:\n    """C."""\n    async def m(self): ...', ["a.py:4 C.m"]),
        ('"""M."""\nclass C(Exception):\n    """C."""\n    def m(self): ...', ["a.py:4 C.m"]),
        ('"""M."""\nclass C:\n    """C."""\n    def _m(self): ...\n    def __call__(self): ...', []),
        ('"""M."""\ndef _f(): ...', []),
        ('"""M."""\n@typing.overload\ndef f(): ...', []),
        (PROTOCOL + 'class C(P):\n    """C."""\n    def m(self): ...', []),
        (PROTOCOL + 'class C(P):\n    """C."""\n    def other(self): ...', ["a.py:8 C.other"]),
    ],
)
def test_a_missing_docstring_is_seen(source: str, missing: list[str]) -> None:
    assert list(silent({"a.py": ast.parse(source)})) == missing
