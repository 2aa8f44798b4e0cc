"""What every test may ask for: public logs where they are at hand; property tests without a clock; ctrl-c."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# A shell without job control has what it starts with `&` ignore ctrl-c, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest-xdist says that terminals have 80 columns; what tests print goes to no terminal.
os.environ.pop("COLUMNS", None)

# How many examples a property is asked for, by how much time there is (`make quick`, `make test`, `make slow`).
EXAMPLES = {"quick": 10, "usual": 60, "slow": 2000}

# A loaded machine must not turn a true property into a failure, so time is no part of one.
for effort, examples in EXAMPLES.items():
    settings.register_profile(
        effort,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
settings.load_profile(os.environ.get("HEADWAY_EFFORT", "usual"))


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Give the path of a public log or workload by its name; the test is skipped where the file is absent.

    Looked for in the folder $HEADWAY_DATA names, else in `../shared/data` beside the project.
    """
    folder = Path(os.environ.get("HEADWAY_DATA") or ROOT.parent / "shared" / "data")

    def find(name: str) -> Path:
        path = folder / name
        if not path.exists():
            pytest.skip(f"{path} is absent; set HEADWAY_DATA to the folder that holds {name}")
        return path

    return find


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that asks for public logs, so `-m "not data"` leaves them all out."""
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker("data")
