"""One word, one meaning: a class has a name of its own, wherever it is, and so has a constant of a module."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src" / "headway"

# The same thing in two layers: what the core wants or has been told and the message for it, what a user makes and what
# it becomes, an object and the protocol of those who need it.
SAME = {
    *("Advice", "Asking", "Command", "RunTimes", "Service", "SiteEngines", "TierRefused", "Workflow"),
    *("Kill", "Launch", "Saved", "Stalled", "Suspend"),
    *("Frame", "Hello", "Ready", "Splitter", "Welcome"),  # both ways in which processes of ours talk begin alike
}

# What the formats of files call their parts, in the modules that read them, and a caller in memory.
READ = {"Caller", "Execution", "File", "Job", "Task", "Whole"}

# Public names of users and of engines of others: what a task writes to a stream, and a file that it gives.
FIXED = {"Output"}


def test_no_two_classes_with_different_meanings_share_a_name() -> None:
    """Experiments of papers are apart: each has its own runs, samples and statements. Underscores do not count."""
    places = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        if "reproduce" not in path.parts:
            for found in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(found, ast.ClassDef):
                    places[found.name.lstrip("_")].append(str(path.relative_to(SOURCES)))
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert {name: where for name, where in shared.items() if name not in SAME | READ | FIXED} == {}
    assert shared.keys() >= SAME | READ | FIXED, "what is listed here and no longer shared"


# The same constants in parts that do not import one another: the meaning is one, and so is the value.
EQUAL = {"NICE", "STREAMS", "TLS_FILES", "TYPE_CHECKING"}


def constants(module: ast.Module) -> Iterator[tuple[str, str]]:
    """The public constants of a module, each with the member of an enumeration that it stands for, or its value."""
    for line in module.body:
        if isinstance(line, ast.Assign | ast.AnnAssign) and line.value is not None:
            value = ast.unparse(line.value)
            for target in line.targets if isinstance(line, ast.Assign) else [line.target]:
                for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(one, ast.Name) and re.match("[A-Z][A-Z0-9_]+$", one.id):
                        yield one.id, value


def test_no_two_constants_share_a_name() -> None:
    """Members of enumerations that have short names in several modules, because that is fast, are one thing each.

    Experiments of papers are apart, as above. Names with an underscore are those of one module alone.
    """
    places = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        where = str(path.relative_to(SOURCES))
        if "reproduce" not in where:
            for name, value in constants(ast.parse(path.read_text(encoding="utf-8"))):
                is_member = re.fullmatch(r"[A-Z]\w+\.[A-Z_]+", value)
                places[name].append(value if is_member or name in EQUAL else f"{value} in {where}")
    assert {name: found for name, found in places.items() if len(set(found)) > 1} == {}
    assert {name for name in EQUAL if len(places[name]) < 2} == set(), "what is listed here and no longer shared"
