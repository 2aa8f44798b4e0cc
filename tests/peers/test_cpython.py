"""CPython's own tests of executors, run with ours: all pass except those that the documentation names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import serving

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "executor-tests.md"


def python() -> str | None:
    """A Python that has both CPython's tests and Headway."""
    made = ROOT / ".venv-cpython" / "bin" / "python"
    for found in (os.environ.get("HEADWAY_CPYTHON"), str(made) if made.exists() else None, sys.executable):
        question = "import test.test_concurrent_futures.executor, headway"
        if found and not subprocess.run([found, "-c", question], capture_output=True).returncode:
            return found
    return None


@pytest.mark.peers
@pytest.mark.timeout(900)
def test_cpythons_own_tests_pass_but_those_that_cannot(tmp_path: Path) -> None:
    interpreter = python()
    if interpreter is None:
        pytest.skip(
            "no Python 3.12 or later with its tests has Headway: `make peers` looks for one, or HEADWAY_CPYTHON"
        )
    with serving(tmp_path, 5, interpreter) as data:
        environment = {**os.environ, "HEADWAY_DATA_DIR": str(data)}
        for name in ("HEADWAY_URL", "HEADWAY_TOKEN"):
            environment.pop(name, None)
        ran = subprocess.run(
            [interpreter, str(Path(__file__).with_name("cpython_suite.py"))],
            env=environment,
            capture_output=True,
            text=True,
            timeout=800,
        )
    told = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]
    ends = {name: (what, why) for name, what, why in told}
    named = set(re.findall(r"^\| `(\w+\.test_\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert len(ends) >= 55, ran.stderr[-2000:]
    failed = {name: why for name, (what, why) in ends.items() if what == "failed"}
    assert {name: why for name, why in failed.items() if name not in named} == {}
    assert {name for name in named if ends.get(name, ("failed",))[0] == "ok"} == set(), "they pass, and are named"
