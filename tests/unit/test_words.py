"""One word, one meaning: a class has a name of its own, wherever it is."""

from __future__ import annotations

import ast
from collections import defaultdict
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
