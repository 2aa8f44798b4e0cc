"""More than eight parameters are a value, except where a keyword is a word that people type; see the decision on it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "headway"
DECISION = ROOT / "docs" / "decisions" / "many-parameters-are-a-value.md"
MOST = 8

# Each is named in the decision. Commands and experiments (`cli`, `reproduce`) mirror the options that are typed.
KNOWN = {
    *("Job", "Service", "Workflow.command", "Client.change"),  # what users of the client say
    *("run", "Simulation", "Simulation.from_state", "workload_of", "workload_us", "lines"),  # of the simulator
    *("draw_futures", "what_if", "trial", "_made", "cheapest"),  # of forecasts and renting
    *("sites", "EC2"),  # made from a text or a table with these words
    *("Connection.ask", "Server.ask"),  # what the path of a request may hold
    *("AttemptView", "Performer", "Api"),
}


def taken(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many parameters it has, without `self` and `cls`."""
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_functions_of_more_than_eight_parameters_are_those_of_the_decision() -> None:
    found = set()
    for path in sorted(SOURCES.rglob("*.py")):
        if path.relative_to(SOURCES).parts[0] in ("cli", "reproduce"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for scope in ast.walk(tree):
            for one in getattr(scope, "body", ()) if isinstance(scope, ast.Module | ast.ClassDef) else ():
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and taken(one) > MOST:
                    within = scope.name if isinstance(scope, ast.ClassDef) else ""
                    found.add(within if one.name == "__init__" else f"{within}.{one.name}".lstrip("."))
    assert found == KNOWN
    text = DECISION.read_text(encoding="utf-8")
    assert [name for name in sorted(KNOWN) if name not in text] == [], "the decision says why"
