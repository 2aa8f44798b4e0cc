"""What every test may use: public logs if they are there; property tests without a clock; ctrl-c."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

from .slurm import Cluster, lacking

ROOT = Path(__file__).resolve().parents[1]

# Programs that a shell without job control starts with `&` ignore ctrl-c. So would everything that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest-xdist sets the terminal width to 80 columns, but tests do not print to a terminal.
os.environ.pop("COLUMNS", None)

# Tests start hundreds of processes. If no byte code may be written, each of them compiles all that it loads.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Threads of scikit-learn that wait for each other compute meanwhile: for 30 s instead of 1 s where others compute, too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The number of examples of a property, by how much time there is (`make quick`, `make test`, `make slow`).
EXAMPLES = {"quick": 10, "usual": 12, "slow": 2000}

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

# The files of these folders take longest. Some wait most of the time, for processes and clocks, and others compute.
# Where tests run in several processes, files of both kinds begin by turns, so that the processors always have something
# to do, and the files of units fill the gaps at the end (`make test`).
WAITING = ("live", "contract", "peers", "unit/web", "unit/client")
COMPUTING = ("faults", "papers", "simulation", "properties")


# Tests of these names connect to Dask, with TLS or without; Slurm's allocations have workers of Dask. Where it gives up
# while it connects, on a busy machine, it drops the connection and the garbage collector closes it, in whatever test
# comes then.
DASK = ("dask", "slurm", "routed", "test_found_nodes", "test_rented_ec2", "test_sites_found")
DROPPED = r"ignore:Exception ignored in. <(socket\.socket|ssl\.SSLSocket):pytest.PytestUnraisableExceptionWarning"
connected_to_dask = False


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """From the first test on that connects to Dask, connections it may have dropped are no failure."""
    global connected_to_dask
    connected_to_dask = connected_to_dask or any(name in item.nodeid for name in DASK)
    if connected_to_dask:
        item.add_marker(pytest.mark.filterwarnings(DROPPED))
    return (yield)


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


@pytest.fixture(scope="session")
def slurm_daemons() -> Iterator[Cluster]:
    """A Slurm of our own; tests of it are skipped where Slurm is not installed."""
    if missing := lacking():
        pytest.skip(missing)
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_daemons: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The same, with idle nodes, for a test whose commands find it. At the end no job is left."""
    monkeypatch.setenv("SLURM_CONF", str(slurm_daemons.conf))
    yield slurm_daemons
    slurm_daemons.mend()


def pytest_configure(config: pytest.Config) -> None:
    """Each of several processes begins to read all files elsewhere: one finds compiled what another has read before."""
    worker = getattr(config, "workerinput", None)
    if worker is not None and config.args_source is config.ArgsSource.TESTPATHS:
        files = sorted(map(str, (ROOT / "tests").rglob("test_*.py")))
        begin = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args = [*files[begin:], *files[:begin]]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays, so the garbage collector looks at it neither meanwhile nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses public logs, so that `-m "not data"` leaves them all out, and put long tests first."""
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker("data")
    items.sort(key=lambda item: item.path)
    order = _order(dict.fromkeys(item.path for item in items))
    items.sort(key=lambda item: order[item.path])


def pytest_collection_finish() -> None:
    """What was collected stays until the end; the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


def _order(files: Iterable[Path]) -> dict[Path, float]:
    """When the tests of each file begin, from 0 on; those of 1 at the end. Among equals the order stays."""
    order = dict.fromkeys(files, 1.0)
    for folders in (WAITING, COMPUTING):
        inside = [Path(folder) for folder in folders]
        places: dict[Path, int] = {}
        for file in order:
            folder = file.relative_to(ROOT / "tests").parent
            among = (folder, *folder.parents)
            place = next((place for place, one in enumerate(inside) if one in among), None)
            if place is not None:
                places[file] = place
        for number, file in enumerate(sorted(places, key=places.__getitem__)):
            order[file] = number / len(places)
    return order
