"""What every test may use: public logs if they are there; property tests without a clock; ctrl-c."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# Programs that a shell without job control starts with `&` ignore ctrl-c. So would everything that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest-xdist sets the terminal width to 80 columns, but tests do not print to a terminal.
os.environ.pop("COLUMNS", None)

# Tests start hundreds of processes. If no byte code may be written, each of them compiles all that it loads.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The number of examples of a property, by how much time there is (`make quick`, `make test`, `make slow`).
EXAMPLES = {"quick": 10, "usual": 40, "slow": 2000}

# On a busy machine a true property must not fail, so there are no limits of time. The examples of `make test` are the
# same each time: whoever changes nothing sees nothing fail. `make slow` draws others.
for effort, examples in EXAMPLES.items():
    settings.register_profile(
        effort,
        max_examples=examples,
        deadline=None,
        derandomize=effort != "slow",
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
settings.load_profile(os.environ.get("HEADWAY_EFFORT", "usual"))

# The files of these folders take longest. Where tests run in several processes, they come first and those of units fill
# the gaps at the end (`make test`).
LONGEST_FIRST = ("papers", "live", "contract", "peers", "simulation", "properties", "unit/web", "unit/client")


@pytest.fixture
def lines_run() -> Callable[[Callable[[], object]], int]:
    """Count the lines of Python that something runs: how much work it is, the same on every machine."""

    def of(work: Callable[[], object]) -> int:
        lines = 0

        def count(frame: FrameType, event: str, argument: object) -> Callable[..., object]:
            nonlocal lines
            lines += event == "line"
            return count

        before = sys.gettrace()
        gc.collect()
        gc.disable()  # what it finds would run lines that are not of this work
        sys.settrace(count)
        try:
            work()
        finally:
            sys.settrace(before)
            gc.enable()
        return lines

    return of


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Give the path of a public log or workload by its name. The test is skipped if the file is absent.

    Files are looked for in the folder that $HEADWAY_DATA names, or else in `../shared/data` beside the project.
    """
    folder = Path(os.environ.get("HEADWAY_DATA") or ROOT.parent / "shared" / "data")

    def find(name: str) -> Path:
        path = folder / name
        if not path.exists():
            pytest.skip(f"{path} is absent; set HEADWAY_DATA to the folder that holds {name}")
        return path

    return find


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses public logs, so that `-m "not data"` leaves them all out, and put long tests first."""
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker("data")
    items.sort(key=lambda item: _place(item.path))


@cache
def _place(file: Path) -> int:
    """Where the folder of a test stands in `LONGEST_FIRST`; within a folder the order stays."""
    folder = file.relative_to(ROOT / "tests").parent
    among = [folder, *folder.parents]
    return next((place for place, first in enumerate(LONGEST_FIRST) if Path(first) in among), len(LONGEST_FIRST))
