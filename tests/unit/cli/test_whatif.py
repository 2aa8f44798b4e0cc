"""How changes that are asked about are read and done: of which site a node is, and what is said if one is refused."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.cli import whatif
from headway.cli.whatif import Supposition, _apply, _check_possible, _node_in, _of_later
from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import HeadwayError, InvalidInput, Refused
from headway.foresight.whatif import Later, Quantiles, WhatIf
from headway.model.events import NodeJoined
from headway.model.instant import SECOND
from headway.model.node import Capabilities
from headway.policies.registry import find
from headway.testing import node


def with_sites(*sites: str) -> StateRecord:
    """A cluster with a node of each of these sites."""
    core = Scheduler(find, "fcfs")
    for number, site in enumerate(sites):
        core.handle(NodeJoined(0, node(f"n{number}", site=site)))
    return core.dump()


def test_where_no_jobs_come_it_is_not_said_how_long_they_wait() -> None:
    none, some = Quantiles(0, 0, 0), Quantiles(2, 1, 3)
    now = SimpleNamespace(later=Later(none, none, none, Quantiles(None, None, None)))
    then = SimpleNamespace(later=Later(some, none, none, Quantiles(4, 4, 5)))
    rows = _of_later(cast("WhatIf", SimpleNamespace(now=now, then=then)), 60 * SECOND)
    assert rows[0] == ("jobs that come within 60 s", "0", "2 (1 to 3)")
    assert rows[-1] == ("mean wait of these", "", "4 s (4 s to 5 s)")


@pytest.mark.parametrize(
    ("sites", "text", "site"),
    [
        ((), "b", "local"),
        (("local",), "b,slots=2", "local"),
        (("dask",), "b,slots=2", "dask"),
        (("dask",), "b,site=far", "far"),
        (("dask", "local"), "b", "local"),
        (("dask", "slurm"), "b,site=slurm", "slurm"),
    ],
)
def test_a_node_is_of_the_only_site_unless_another_is_named(sites: tuple[str, ...], text: str, site: str) -> None:
    assert _node_in(text, with_sites(*sites)).site == site


def test_on_a_node_more_can_be_done_what_can_be_at_its_site() -> None:
    state = with_sites("dask", "local")
    far = replace(state.nodes[0], spec=replace(state.nodes[0].spec, capabilities=Capabilities(spans=False)))
    state = replace(state, nodes=(far, *state.nodes[1:]))
    assert [_node_in(text, state).capabilities.spans for text in ("b", "b,site=dask")] == [True, False]


@pytest.mark.parametrize("text", ["b slots=2", "slots=2", "b slots=2,speed=2"])
def test_a_term_that_no_comma_parts_from_the_name_is_no_name(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"name of --add-node is '.*slots=2'; allowed: one without =, as in NAME\["):
        _node_in(text, with_sites())


def test_of_several_sites_one_must_be_named_where_none_is_this_machine() -> None:
    with pytest.raises(InvalidInput, match="--add-node is 'b'; allowed: with site=, one of dask, slurm"):
        _node_in("b", with_sites("dask", "slurm"))


class Server:
    """Does what it is told, but what `refuses` names; jobs 7, of priority 3, and 8 are open.

    Attributes:
        told: what it was told.
    """

    def __init__(self, *refuses: str) -> None:
        self.refuses = refuses
        self.told: list[tuple[Any, ...]] = []

    def _take(self, *words: Any) -> None:
        if words[0] in self.refuses:
            raise Refused("not now", "Ask again.", status=409)
        self.told.append(words)

    def jobs(self, *, status: str) -> list[Any]:
        return [SimpleNamespace(id=7, priority=3.0), SimpleNamespace(id=8, priority=0.0)]

    def add_node(self, name: str, slots: int, **terms: Any) -> None:
        self._take("add", name, slots, terms["speed"], terms["site"])

    def drain_node(self, name: str) -> None:
        self._take("drain", name)

    def change(self, job: int, *, priority: float) -> bool:
        self._take("change", job, priority)
        return job in (7, 8)

    def choose_policy(self, policy: str) -> str:
        self._take("choose", policy)
        return f"{policy}:all=yes"


ALL = Supposition("edf", ("b,slots=2,speed=1.5",), ("a",), (7, 8), None, None)


def applied(monkeypatch: pytest.MonkeyPatch, server: Server, wanted: Supposition) -> None:
    monkeypatch.setattr(whatif, "reached", lambda *_: nullcontext(server))
    _apply(None, wanted, with_sites("dask"), quiet=False)


def test_what_was_asked_about_is_done_in_one_order_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    applied(monkeypatch, server, ALL)
    assert server.told == [
        ("add", "b", 2, 1.5, "dask"),
        ("drain", "a"),
        ("change", 8, 4.0),
        ("change", 7, 5.0),
        ("choose", "edf"),
    ]
    assert capsys.readouterr().out == (
        "Done: node b is in service, node a drains, job 8 has priority 4, job 7 has priority 5, "
        "the policy is edf:all=yes.\n"
    )


def test_a_job_that_has_ended_meanwhile_is_not_said_to_have_a_priority(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    applied(monkeypatch, Server(), Supposition(None, (), (), (9,), None, None))
    assert capsys.readouterr().out == "Done: job 9 has ended meanwhile.\n"


@pytest.mark.parametrize(
    ("refused", "hint"),
    [
        ("add", "Done: nothing. Failed: node b,slots=2,speed=1.5 more. Not tried: without node a, job 8 first, "),
        (
            "drain",
            "Done: node b is in service. Failed: without node a. Not tried: job 8 first, job 7 first, policy edf.",
        ),
        ("choose", "job 8 has priority 4, job 7 has priority 5. Failed: policy edf."),
    ],
)
def test_if_a_part_is_refused_it_is_said_what_was_done_and_what_was_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refused: str, hint: str
) -> None:
    with pytest.raises(HeadwayError, match="not now") as error:
        applied(monkeypatch, Server(refused), ALL)
    assert error.value.hint.startswith("Ask again. Done: ")
    assert hint in error.value.hint
    assert ("Not tried" in error.value.hint) == (refused != "choose")
    assert capsys.readouterr().out == ""


def test_of_one_change_that_is_refused_it_is_only_said_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HeadwayError, match="not now") as error:
        applied(monkeypatch, Server("choose"), Supposition("edf", (), (), (), None, None))
    assert error.value.hint == "Ask again."


@pytest.mark.parametrize(
    ("wanted", "at", "said"),
    [
        (Supposition(None, (), (), (), None, 1.2), None, "--apply cannot do --load"),
        (Supposition("edf", (), (), (), None, None), "1h ago", "--apply cannot do --at"),
        (
            Supposition(None, (), (), (), "tonight.csv", None),
            None,
            "--apply cannot submit tonight.csv: it does not say what its tasks run",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(wanted: Supposition, at: str | None, said: str) -> None:
    with pytest.raises(HeadwayError) as error:
        _check_possible(wanted, at)
    assert error.value.args[0] == said
    assert error.value.hint
