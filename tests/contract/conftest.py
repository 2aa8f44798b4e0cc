"""The engines that the contract tests run on. A new engine adds its line to `ENGINES`."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headway.engines.base import Engine, Files, Found
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.router import Router
from headway.engines.slurm.engine import SlurmEngine
from headway.engines.slurm.settings import SlurmSettings
from headway.engines.trial import FilesInFolder, FilesInMemory, Trial
from headway.model.node import NodeSpec

from ..dask_site import Processes, certificates
from ..faults.engine import Link, SimEngine, Site, after
from ..faults.virtual import VirtualLoop
from ..slurm import mark
from ..waiting import LIMIT, becomes, let_the_background_run
from .stand_ins import STOOD_IN, stands_in


@dataclass(frozen=True)
class Case:
    """An engine, how to make it in a folder, and which parts of the contract apply to it.

    Attributes:
        make: what makes one in a folder, where attempts that are to save have so many seconds for it.
        kill_node: make a node die, without telling the engine; None: its nodes cannot be killed by a test.
        files: commands see this machine's files.
        runs: it runs what it is given; otherwise something stands in for it (`stand_ins`), in virtual time, and nothing
            it keeps is a file of this machine, nor does it open any.
        usual: the only duties that are asked of it before a change is made; all of them if empty. The others are asked
            by continuous integration (`make thorough`).
        lacks: the duties that it has not, because its nodes lack a capability.
        needs: the fixture of what it runs on.
    """

    name: str
    make: Callable[[Path, float], Engine]
    kill_node: Callable[[Any, str], None] | None = None
    files: bool = True
    runs: bool = True
    usual: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    needs: str = ""


def kill_local_node(engine: LocalEngine, node: str) -> None:
    os.kill(engine.pids()[node], signal.SIGKILL)


def make_local(folder: Path, grace: float) -> Engine:
    return LocalEngine(folder / "engine", LocalSettings(grace=grace))


def routed(make: Callable[[Path, float], Engine]) -> Callable[[Path, float], Engine]:
    """A router of two such engines; the nodes that tests use together belong to the same one."""

    def make_router(folder: Path, grace: float) -> Engine:
        engines = {name: make(folder / name, grace) for name in ("one", "two")}
        return Router(engines, lambda node: "two" if node.name in ("a", "b") else "one")

    return make_router


def kill_routed_node(router: Router, node: str) -> None:
    (pid,) = (pids[node] for engine in router.engines.values() if node in (pids := engine.pids()))  # type: ignore[attr-defined]
    os.kill(pid, signal.SIGKILL)


def kill_node_routed_to_simulated(router: Router, node: str) -> None:
    kill_simulated_node(router.engines["two" if node in ("a", "b") else "one"], node)  # type: ignore[arg-type]


def kill_simulated_node(engine: SimEngine, node: str) -> None:
    engine.site.die(node)
    after(0.05, engine.site.revive, node)


def make_simulated(folder: Path, grace: float) -> Engine:
    return SimEngine(Site(stands_in, grace=grace), Link(Random(1)))


@cache
def dask_of_all_tests() -> Processes:
    """Four workers, one for each node that a test may name, with mutual TLS; they end with this process."""
    folder = Path(tempfile.mkdtemp(prefix="headway-dask-"))
    site = Processes(folder, certificates(folder / "tls"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(site.end)
    return site.one(n=4, a=4, b=4, m=4)


def make_dask(folder: Path, grace: float, *, shared: bool = False) -> Engine:
    """The nodes are only those workers that the test names."""
    pytest.importorskip("distributed", reason="it is not installed (pip install headway[dask])")
    from headway.engines.dask.engine import DaskEngine
    from headway.engines.dask.settings import DaskSettings

    class Named(DaskEngine):
        async def start(self, nodes: Iterable[NodeSpec], report: Any, files: Files) -> Found:
            named = list(nodes)
            self.named = {node.name for node in named}
            return await super().start(named, report, files)

        def _compare(self, workers: dict[str, tuple[str, int]]) -> None:
            super()._compare({name: worker for name, worker in workers.items() if name in self.named})

    site = dask_of_all_tests()
    agents = LocalSettings(grace=grace)
    terms = DaskSettings(site.address, site.tls, shared=shared, folder=str(folder / "there"), period=0.1, agents=agents)
    return Named(folder / "engine", terms)


def make_slurm(folder: Path, grace: float) -> Engine:
    return SlurmEngine(folder / "engine", SlurmSettings("main", find=False, poll=0.5))


def kill_slurm_node(engine: SlurmEngine, node: str) -> None:
    """It is down until the engine has seen that. Slurm kills what runs there."""
    mark(node, "down")

    async def revive() -> None:
        await becomes(lambda: node not in engine.up)
        mark(node, "resume")

    engine.reviving = asyncio.create_task(revive())  # type: ignore[attr-defined]


ENGINES = [
    Case("local", make_local, kill_node=kill_local_node),
    Case("simulated", make_simulated, kill_node=kill_simulated_node, runs=False),
    Case("router", routed(make_simulated), kill_node=kill_node_routed_to_simulated, runs=False),
    # Its agents are those of this machine: what they do with what they are given is seen above.
    Case(
        "dask",
        make_dask,
        kill_node=kill_local_node,
        usual=frozenset(
            {
                "test_a_command_and_its_output",
                "test_a_gang_starts_together_and_ends_as_one",
                "test_a_member_that_cannot_start_ends_the_others",
                "test_a_node_joins_and_runs_what_it_is_given",
                "test_a_node_leaves_with_all_that_runs_there_and_its_name_can_be_used_again",
                "test_a_node_that_dies_is_lost_and_comes_back_empty",
                "test_a_time_limit",
                "test_an_exception_travels_with_its_traceback",
                "test_each_member_of_a_gang_saves_for_itself",
                "test_files_of_the_server_are_had_and_given",
                "test_killing_what_runs_and_what_waits",
                "test_many_tasks_on_each_slot_in_order",
                "test_output_is_read_in_pieces_until_it_is_discarded",
                "test_output_is_read_while_it_is_written",
                "test_output_that_a_full_disk_cannot_take_is_lost_for_that_reason",
                "test_stopping_ends_what_runs_and_reports_nothing",
                "test_the_first_member_that_fails_ends_the_others",
                "test_two_that_exchange_their_places",
                "test_what_a_function_saved_is_there_for_its_next_attempt_on_any_node",
            }
        ),
    ),
    # How files come and go is all that differs.
    Case(
        "dask-shared",
        partial(make_dask, shared=True),
        kill_node=kill_local_node,
        usual=frozenset(
            {
                "test_each_member_of_a_gang_saves_for_itself",
                "test_files_of_the_server_are_had_and_given",
                "test_output_is_read_in_pieces_until_it_is_discarded",
                "test_output_is_read_while_it_is_written",
                "test_output_that_a_full_disk_cannot_take_is_lost_for_that_reason",
                "test_what_a_function_saved_is_there_for_its_next_attempt_on_any_node",
            }
        ),
    ),
    # What a process does is not the router's concern, and what it passes on is seen above.
    Case(
        "routed",
        routed(make_local),
        kill_node=kill_routed_node,
        usual=frozenset(
            {
                "test_a_node_that_dies_is_lost_and_comes_back_empty",
                "test_each_member_of_a_gang_saves_for_itself",
                "test_output_is_read_in_pieces_until_it_is_discarded",
                "test_stopping_ends_what_runs_and_reports_nothing",
                "test_what_a_function_saved_is_there_for_its_next_attempt_on_any_node",
            }
        ),
    ),
    Case(
        "slurm",
        make_slurm,
        kill_node=kill_slurm_node,
        needs="slurm",
        lacks=frozenset(
            {
                "test_a_change_restarts_nothing_and_makes_room",
                "test_a_function_cannot_keep_what_it_made_after_it_was_to_end",
                "test_a_function_saves_ends_and_goes_on_elsewhere",
                "test_a_function_that_returns_before_it_saves_has_succeeded",
                "test_a_gang_changes_its_places_on_every_node",
                "test_a_node_that_shrinks_at_once_kills_what_runs_behind_it_too",
                "test_a_program_saves_when_it_is_told_to_end_whatever_its_exit_status",
                "test_a_program_whose_child_saves_is_given_the_time",
                "test_each_member_of_a_gang_saves_for_itself",
                "test_two_that_exchange_their_places",
                "test_what_does_not_save_in_time_is_killed",
                "test_what_is_in_the_background_is_killed_as_any_other",
                "test_what_ran_behind_is_lost_with_its_node",
                "test_what_runs_in_the_background_of_a_slot_does_not_wait_for_its_foreground",
                "test_what_waits_for_a_place_waits_for_the_other_one",
                "test_many_tasks_on_each_slot_in_order",  # it would read ahead: each is a job, and takes a second
            }
        ),
        # A job takes a second. How a runner runs what it is given is seen above: its agent is that of one machine.
        usual=frozenset(
            {
                "test_a_command_and_its_output",
                "test_a_gang_starts_together_and_ends_as_one",
                "test_a_member_that_cannot_start_ends_the_others",
                "test_a_node_leaves_with_all_that_runs_there_and_its_name_can_be_used_again",
                "test_a_node_that_dies_is_lost_and_comes_back_empty",
                "test_a_time_limit",
                "test_an_exception_travels_with_its_traceback",
                "test_files_of_the_server_are_had_and_given",
                "test_killing_what_runs_and_what_waits",
                "test_output_is_read_while_it_is_written",
                "test_output_that_a_full_disk_cannot_take_is_lost_for_that_reason",
                "test_stopping_ends_what_runs_and_reports_nothing",
                "test_the_first_member_that_fails_ends_the_others",
                "test_what_a_function_saved_is_there_for_its_next_attempt_on_any_node",
            }
        ),
    ),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An engine that runs no programs has the duties of which `STOOD_IN` is the list; what is not usual is thorough."""
    kept = []
    for item in items:
        case = getattr(getattr(item, "callspec", None), "params", {}).get("case")
        if isinstance(case, Case) and isinstance(item, pytest.Function):
            if (not case.runs and item.originalname not in STOOD_IN) or item.originalname in case.lacks:
                continue
            if case.usual and item.originalname not in case.usual:
                item.add_marker("thorough")
        kept.append(item)
    items[:] = kept


@pytest.fixture
def anyio_backend(case: Case) -> str | tuple[str, dict[str, Any]]:
    return "asyncio" if case.runs else ("asyncio", {"loop_factory": VirtualLoop})


@pytest.fixture(autouse=True)
def _background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_the_background_run(tmp_path / "site", monkeypatch)


@pytest.fixture(params=ENGINES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    case: Case = request.param
    if case.needs:
        request.getfixturevalue(case.needs)
    return case


@pytest.fixture
def kept(case: Case, tmp_path: Path) -> FilesInFolder | FilesInMemory:
    """The files that the server keeps."""
    return FilesInFolder(tmp_path / "kept") if case.runs else FilesInMemory()


@pytest.fixture
async def trial(case: Case, tmp_path: Path, kept: Files) -> AsyncIterator[Trial]:
    """The engine, not yet started. At the end no report may be unread."""
    async with Trial(case.make(tmp_path, LIMIT), files=kept) as trial:
        yield trial


@pytest.fixture
async def hasty(case: Case, tmp_path: Path, kept: Files) -> AsyncIterator[Trial]:
    """The same, with hardly any time to save."""
    async with Trial(case.make(tmp_path, 0.5), files=kept) as trial:
        yield trial
