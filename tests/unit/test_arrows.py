"""Imports point inward, and the inner parts use neither a clock nor random numbers nor the outside world.

This is read from the sources, so imports inside functions and imports only for types count too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src"

LEAF = {"model", "errors"}

# Each part of the package, and the parts it may import besides itself.
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "checkpoints": {"errors"},
    "files": {"errors"},
    "given": set(),
    "private": {"errors"},
    "sockets": set(),
    "strict_json": set(),
    "toml_places": set(),
    "times": {"errors"},
    "pool": {"errors"},
    "access": {"errors", "private", "toml_places", "wire"},
    "certificates": {"errors", "private"},
    "model": {"errors"},
    "wire": {"given", "model", "errors", "services"},
    "config": {"engines", "model", "errors", "renting", "times", "toml_places"},
    "core": {"model", "errors"},
    "advice": {"core", "model", "errors", "wire"},
    "policies": LEAF | {"renting"},
    "policy_files": LEAF | {"policies"},
    "engines": LEAF | {"checkpoints", "files", "given", "sockets"},
    "collectors": LEAF,
    "services": {"errors", "model", "sockets", "strict_json"},
    "foresight": {"core", "errors", "history", "live", "model", "policy_files", "private", "sim", "times", "wire"},
    "traces": LEAF | {"times"},
    "workloads": LEAF | {"traces"},
    "renting": LEAF | {"engines", "times", "traces"},
    "metrics": LEAF,
    "pictures": LEAF,
    "client": LEAF | {"certificates", "files", "given", "pool", "strict_json", "times", "wire"},
    "joblib": {"client"},
    "history": {"core", "errors", "model"},
    "sim": {"advice", "core", "history", "model", "errors"},
    "live": {"advice", "core", "files", "history", "given", "model", "errors", "renting", "services", "times", "wire"},
    "web": {"access", "advice", "live", "core", "model", "errors", "services", "times", "wire"},
    "server": LEAF
    | {"access", "advice", "certificates", "collectors", "config", "engines", "live", "policies", "private", "renting"}
    | {"web"},
    "restate": {"core", "live", "policies"},
    "energies": {"live", "metrics", "model", "policies", "wire"},
    "forecaster": {"errors", "foresight", "live", "model", "policies", "wire"},
    "reproduce": LEAF
    | {"history", "sim", "client", "metrics", "pictures", "policies", "policy_files", "traces", "workloads"},
}

# The edge of the program may import any part. No part imports it.
OUTERMOST = {"__main__", "cli", "testing"}

# The modules that join leaves with the rest, and what they may import beyond the arrows of their part.
JOINS = {
    "headway": {"checkpoints", "client", "errors", "files", "metrics", "model", "sim", "traces"},
    "headway.reproduce.children": {"engines"},
    "headway.reproduce.kim12.live": {"config"},
    "headway.reproduce.live": {"engines", "live"},
    "headway.reproduce.together": {"config", "live", "renting", "wire"},
    "headway.sim.experiment": {"policies", "policy_files", "times"},
}

# A driver uses its engines only by their protocol, and the status checker its collectors. The descendants of a process
# are found in one place.
SINGLE = {
    ("headway.live", "headway.engines.base"),
    ("headway.live.checker", "headway.collectors.base"),
    ("headway.collectors.base", "headway.engines.local.shared.processes"),
}

# The engine of this machine: which of its parts knows which. The agent forks the processes of its slots.
PARTS = {"shared": set[str](), "slot": {"shared"}, "agent": {"slot", "shared"}, "driver": {"shared"}}

# What the rest of the live driver may use of the package of everything that shares the journal's file.
STORE = {
    "journal": {
        "Batch",
        "EndedRow",
        "JobRow",
        "Journal",
        "JournalBusy",
        "NotNow",
        "encode",
        "work_body",
        "work_of",
    },
    "checks": {"STATUSES_KEPT", "ROWS_MAX", "MetricRow", "StatusRow", "*"},
    "decisions": {"decided_row"},
    "expiry": {"Walk"},
    "kept": {"opened"},
    "messages": {"MessageRow", "NewMessage", "Page"},
    "mark": {"sync_folder"},
    "retained": {"AFTER_ALL_TASKS"},
    "salvage": {"RECONCILE"},
}

KNOWN_TO_THE_STORE = {
    "headway.live.parts.WorkInParts",
    *(f"headway.live.{name}" for name in ("room.Free", "room.free_on", "uploads.Uploads")),
}
"""What the package with the journal's file knows of the rest of the live system: a data directory also has files."""

# Parts without a clock, random numbers, files or waiting, and what each may use from outside the standard library.
PURE = {"model": {"numpy"}, "core": set[str](), "policies": {"numpy"}}
WORLD = {
    *("asyncio", "multiprocessing", "select", "selectors", "signal", "socket", "subprocess", "threading"),
    *("ctypes", "http", "logging", "os", "pathlib", "pickle", "shutil", "sqlite3", "tempfile", "urllib"),
    *("random", "secrets", "time", "uuid"),
}


def room(module: str) -> str:
    """The first part of a module's name below `headway`; empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted((SOURCES / "headway").rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def imports(module: str, source: str, *, package: bool = False) -> tuple[tuple[int, str], ...]:
    """Line and full dotted name of everything imported, relative names made absolute.

    `from a import b` gives `a.b`, because `b` may be a module.
    """
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = module.split(".")
                up = here[: len(here) - node.level + package]
                base = ".".join([*up, base] if base else up)
            found += ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
    return tuple(found)


def within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def wrong_arrows(module: str, source: str, *, package: bool = False) -> list[str]:
    """Imports of a source from parts of Headway that it must not use."""
    here = room(module)
    if here in OUTERMOST:
        return []
    if here and here not in ARROWS:
        return [f"{module}: no room of this name; give it its arrows in this test"]
    wrong = []
    for line, name in imports(module, source, package=package):
        if not within(name, "headway") or name == "headway.__version__":
            continue
        there = room(name)
        allowed = (
            there == here
            or there in ARROWS.get(here, ())
            or there in JOINS.get(module, ())
            or any(within(module, inner) and within(name, outer) for inner, outer in SINGLE)
        )
        if not allowed:
            wrong.append(f"{module}:{line} imports {name}")
    return wrong


def impurities(module: str, source: str, *, package: bool = False) -> list[str]:
    """What a source of a pure part uses from outside: clock, random numbers, files, waiting."""
    if room(module) not in PURE:
        return []
    known = (sys.stdlib_module_names - WORLD) | PURE[room(module)] | {"headway"}
    found = [
        f"{module}:{line} imports {name}"
        for line, name in imports(module, source, package=package)
        if name.split(".")[0] not in known
    ]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith):
            found.append(f"{module}:{node.lineno} waits")
        elif isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id="open" | "print" | "input" as call):
                    found.append(f"{module}:{node.lineno} calls {call}")
                case ast.Attribute(attr="now" | "utcnow" | "today" as call, value=ast.Name(id="datetime" | "date")):
                    found.append(f"{module}:{node.lineno} calls {call}")
    return found


def test_imports_point_inward() -> None:
    found = [
        line
        for module, path in modules()
        for line in wrong_arrows(module, path.read_text("utf-8"), package=path.name == "__init__.py")
    ]
    assert found == []


def test_the_parts_of_the_local_engine_know_only_what_they_share() -> None:
    """What runs in the driver's process must not load what runs in a node's, nor the other way round."""
    local, wrong = "headway.engines.local", []
    for module, path in modules():
        if not within(module, local) or module == local:
            continue
        here = module.split(".")[3]
        for line, name in imports(module, path.read_text("utf-8"), package=path.name == "__init__.py"):
            if within(name, local) and name.split(".")[3] not in {here, *PARTS[here]}:
                wrong.append(f"{module}:{line} imports {name}")
    assert wrong == []


def test_the_store_is_used_by_few_names_and_knows_nothing_of_the_rest() -> None:
    """The other direction is a cycle: what a turn does must not be known to what it is written by."""
    live, store, wrong = "headway.live", "headway.live.store", []
    used: set[tuple[str, str]] = set()
    for module, path in modules():
        if not within(module, live):
            continue
        for line, name in imports(module, path.read_text("utf-8"), package=path.name == "__init__.py"):
            words = name.split(".")
            if within(module, store):
                if within(name, live) and not within(name, store) and name not in KNOWN_TO_THE_STORE:
                    wrong.append(f"{module}:{line} imports {name}")
            elif within(name, store):
                used.add((words[3], words[4] if len(words) > 4 else "*"))
    assert wrong == []
    assert used == {(module, name) for module, names in STORE.items() for name in names}


def acyclic(module: str, known: dict[str, set[str]], above: tuple[str, ...] = ()) -> list[str]:
    """The first cycle of imports that leads back to one of the modules above; empty if there is none."""
    if module in above:
        return [*above[above.index(module) :], module]
    return next((found for one in sorted(known[module]) if (found := acyclic(one, known, (*above, module)))), [])


@pytest.mark.parametrize("package", ["headway.live.store", "headway.engines.local"])
def test_no_module_imports_itself_by_others(package: str) -> None:
    names = {module for module, _ in modules() if within(module, package)}
    known = {
        module: {
            max((one for one in names if within(name, one)), key=len)
            for _, name in imports(module, path.read_text("utf-8"), package=path.name == "__init__.py")
            if any(within(name, one) for one in names)
        }
        - {package}
        for module, path in modules()
        if module in names
    }
    assert [cycle for module in sorted(known) if (cycle := acyclic(module, known))] == []


def test_every_join_is_needed() -> None:
    """A permission that nothing uses any more would let in a new arrow unnoticed."""
    used = {
        (module, room(name))
        for module, path in modules()
        for _, name in imports(module, path.read_text("utf-8"), package=path.name == "__init__.py")
        if within(name, "headway")
    }
    assert {(module, there) for module, rooms in JOINS.items() for there in rooms} <= used


def test_pure_rooms_touch_nothing_outside() -> None:
    found = [
        line
        for module, path in modules()
        for line in impurities(module, path.read_text("utf-8"), package=path.name == "__init__.py")
    ]
    assert found == []


def test_importing_headway_imports_nothing_of_ours() -> None:
    """Public names are loaded at their first use, so that a command starts quickly."""
    tree = ast.parse((SOURCES / "headway" / "__init__.py").read_text("utf-8"))
    eager = ast.Module(
        body=[node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], type_ignores=[]
    )
    assert [name for _, name in imports("headway", ast.unparse(eager), package=True) if within(name, "headway")] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("headway.model.job", "from headway.core import state"),
        ("headway.core.state", "from ..policies.order import fcfs"),
        ("headway.core.state", "from headway import policies"),
        ("headway.core.state", "def late():\n    import headway.live.driver"),
        ("headway.policies.easy", "from headway.core.rounds import Draft"),
        ("headway.metrics.measures", "from headway.traces import swf"),
        ("headway.sim.kernel", "from headway.policies import easy"),
        ("headway.live.driver", "from headway.engines.local.driver.engine import LocalEngine"),
        ("headway.live.driver", "from headway.web.api import app"),
        ("headway.client.client", "from headway.live import driver"),
        ("headway.server", "import headway.cli.main"),
        ("headway.sim.experiment", "from headway.live import driver"),
        ("headway.sim.experiment", "from headway.traces import swf"),
        ("headway.policies.easy", "from headway.wire import NewJob"),
        ("headway.sim.world", "from headway.testing import task"),
        ("headway.errors", "import headway"),
        ("headway.unheard.of", ""),
    ],
)
def test_a_wrong_arrow_is_seen(module: str, source: str) -> None:
    assert len(wrong_arrows(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("headway.core.state", "import heapq\nfrom headway.model.job import Job\nfrom . import leases"),
        ("headway.sim.experiment", "from headway.policies import easy\nfrom ..core.state import State"),
        ("headway.live.driver", "from headway.engines.base import Engine"),
        ("headway.server", "from headway.web.api import app"),
        ("headway.web.api", "from headway.live.driver import Driver\nfrom headway import __version__"),
        ("headway.cli.main", "from headway.pictures import gantt"),
    ],
)
def test_a_right_arrow_is_let_through(module: str, source: str) -> None:
    assert wrong_arrows(module, source) == []


def test_relative_imports_in_a_package_start_at_the_package() -> None:
    assert list(imports("headway.core", "from .state import State\nfrom ..model import job", package=True)) == [
        (1, "headway.core.state.State"),
        (2, "headway.model.job"),
    ]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("headway.core.state", "from time import monotonic"),
        ("headway.core.state", "import numpy as np"),
        ("headway.model.job", "import msgspec"),
        ("headway.policies.lin14", "import random"),
        ("headway.core.reactor", "async def on_task_ended(): pass"),
        ("headway.core.reactor", "log = open('log')"),
        (
            "headway.model.instant",
            "import datetime as dt\nfrom datetime import datetime\nnow = datetime.now()",
        ),
    ],
)
def test_an_impurity_is_seen(module: str, source: str) -> None:
    assert len(impurities(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "headway.core.state",
            "from heapq import heappush\nfrom headway.model.job import Job\nfrom . import leases",
        ),
        ("headway.policies.lin14", "import numpy as np"),
        ("headway.sim.world", "import time, random"),
    ],
)
def test_purity_is_let_through(module: str, source: str) -> None:
    assert impurities(module, source) == []
