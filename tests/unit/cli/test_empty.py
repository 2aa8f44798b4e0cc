"""What lists say if there is nothing to list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import pytest
from click.testing import CliRunner

from headway.cli import reach
from headway.cli.check import checker, incidents, requests
from headway.cli.live import jobs, nodes
from headway.wire import CheckerReport, SiteDetail

COME = "are found as they come"
GONE = "; `headway status` says whether an engine is gone"


DESK = SiteDetail("desk", "local", "", 0, 0, 0, 0, 0, 0)
HALL = SiteDetail("hall", "dask", "", 0, 0, 0, 0, 0, 0, finds=True)

found_sites: list[SiteDetail] = []


class Empty:
    """A client of a server on which nothing has happened."""

    def jobs(self, **_: Any) -> list[object]:
        return []

    def nodes(self) -> list[object]:
        return []

    def sites(self) -> list[SiteDetail]:
        return found_sites

    def incidents(self, **_: Any) -> list[object]:
        return []

    def requests(self, **_: Any) -> list[object]:
        return []

    def checker(self) -> CheckerReport:
        return CheckerReport(on=True, every=5.0, collectors=())


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def reached(url: str | None, data: str | None, tls_ca: str | None, patience: float = 0.0) -> Iterator[Empty]:
        yield Empty()

    monkeypatch.setattr(reach, "reached", reached)


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        (jobs, "", "There are no jobs. `headway submit` submits one."),
        (jobs, "--status open", "No job is open. `headway jobs` lists all jobs."),
        (jobs, "--status held", "No job is held. `headway jobs` lists all jobs."),
        (jobs, "--status cancelled", "No job was cancelled. `headway jobs` lists all jobs."),
        (jobs, "--status failed --user ann", "No job of user ann has failed. `headway jobs` lists all jobs."),
        (jobs, "--user \x1b[31m", "There is no job of user \\x1b[31m. `headway jobs` lists all jobs."),
        (nodes, "", f"There are no nodes. `headway node add NAME` adds one{GONE}."),
        (incidents, "", "There are no incidents."),
        (requests, "", "There are no requests."),
        (checker, "", "It is on, with a period of 5 s.\nThere are no collectors."),
    ],
)
def test_an_empty_list_is_a_sentence(command: click.Command, words: str, said: str) -> None:
    assert CliRunner().invoke(command, words.split()).output == f"{said}\n"


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        ([DESK], f"There are no nodes. `headway node add NAME` adds one{GONE}."),
        ([HALL], f"There are no nodes. Those of site hall (dask) {COME}{GONE}."),
        (
            [DESK, HALL],
            f"There are no nodes. `headway node add NAME` adds one; those of site hall (dask) {COME}{GONE}.",
        ),
    ],
)
def test_how_nodes_come_depends_on_the_sites(
    sites: list[SiteDetail], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.found_sites", sites)
    assert CliRunner().invoke(nodes, []).output == f"{said}\n"


@pytest.mark.parametrize("command", [jobs, nodes, incidents, requests])
def test_in_json_it_is_an_empty_list(command: click.Command) -> None:
    assert json.loads(CliRunner().invoke(command, ["--json"]).output) == []
