"""The engines of a server's sites: which there are, which nodes are theirs, and which nodes of an earlier run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headway.engines import registry
from headway.engines.base import NodeBack, Report
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.registry import EngineKind, EnginePlace, SiteSpec
from headway.engines.router import Router
from headway.engines.sites import SiteEngines, folder_of
from headway.engines.trial import FilesInMemory
from headway.errors import EngineError, HeadwayError, InvalidInput
from headway.testing import FakeEngine, node

pytestmark = pytest.mark.anyio

made_in: list[Path] = []


def made(place: EnginePlace, options: Mapping[str, Any]) -> FakeEngine:
    made_in.append(place.folder)
    return FakeEngine()


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    farms = {"farm": EngineKind("farm", "", made), "yard": EngineKind("yard", "", made, finds=False)}
    monkeypatch.setattr(registry, "BUILT_IN_ENGINES", {**registry.BUILT_IN_ENGINES, **farms})
    made_in.clear()


HERE, FARM, YARD = SiteSpec("cellar"), SiteSpec("field", "farm"), SiteSpec("corner", "yard")


def sites(folder: Path, *specs: SiteSpec) -> SiteEngines:
    return SiteEngines(specs, lambda: LocalEngine(folder / "engine"), folder / "sites")


def test_a_server_of_this_machine_alone_has_no_router(tmp_path: Path) -> None:
    for one in (sites(tmp_path), sites(tmp_path, HERE)):
        assert isinstance(one.engine, LocalEngine)
        assert one.engine is one.own
        assert (one.others, one.gone, one.pids()) == ([], {}, {})
        assert one.keeps(node("a", site="anywhere"))
        assert not one.keeps(node("a", found=True)), "its engine finds none"


def test_each_other_site_has_an_engine_with_a_folder_of_its_own(tmp_path: Path) -> None:
    one = sites(tmp_path, HERE, FARM, YARD)
    assert isinstance(one.engine, Router)
    assert list(one.engine.engines) == ["local", "field", "corner"]
    assert made_in == [folder_of(tmp_path / "sites", "field"), folder_of(tmp_path / "sites", "corner")]
    assert folder_of(tmp_path, "../x").parent == tmp_path
    assert one.engines == {"cellar": "local", "field": "farm", "corner": "yard"}
    assert (one.others, one.own is one.engine.engines["local"]) == (["field", "corner"], True)


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        (node("a", site="cellar"), True),
        (node("a", site="anywhere"), True),
        (node("a", site="field", found=True), True),
        (node("a", site="field"), False),
        (node("a", site="cellar", found=True), False),
        (node("a", site="gone", found=True), False),
        (node("a", site="corner"), True),
    ],
)
def test_nodes_stay_where_their_engine_still_is(tmp_path: Path, spec: Any, kept: bool) -> None:
    assert sites(tmp_path, HERE, FARM, YARD).keeps(spec) is kept


def test_nodes_are_added_only_where_somebody_adds_them(tmp_path: Path) -> None:
    both = sites(tmp_path, HERE, FARM, YARD).engine
    both.check_fit(node("a", site="cellar"))
    both.check_fit(node("a", site="anywhere"))
    both.check_fit(node("a", site="corner"))
    both.check_fit(node("a", site="field", found=True))
    says = (
        r"site of node 'a' is 'field'; allowed: a site whose nodes are added: cellar, corner, local\nEngine farm finds"
    )
    with pytest.raises(InvalidInput, match=says):
        both.check_fit(node("a", site="field"))


def test_without_an_engine_of_this_machine_nothing_is_added_here(tmp_path: Path) -> None:
    farm = sites(tmp_path, FARM)
    assert farm.own is None
    assert farm.pids() == {}
    assert not farm.keeps(node("a")), "a node of an earlier run, on this machine"
    says = r"site of node 'a' is 'local'; allowed: .*there is none\nThis server has no engine of its own machine"
    with pytest.raises(InvalidInput, match=says):
        farm.engine.check_fit(node("a"))


async def test_a_restart_does_without_a_site_whose_engine_cannot_be_made_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"

    def locked(place: EnginePlace, options: Mapping[str, Any]) -> FakeEngine:
        if not keys.exists():
            raise InvalidInput("tls", str(keys), "a folder")
        return FakeEngine()

    safe = EngineKind("safe", "", locked, finds=False)
    monkeypatch.setattr(registry, "BUILT_IN_ENGINES", {**registry.BUILT_IN_ENGINES, "safe": safe})
    vault = SiteSpec("vault", "safe")
    with pytest.raises(InvalidInput, match="tls of site 'vault'"):
        sites(tmp_path, YARD, vault)
    makers = (YARD, vault), lambda: LocalEngine(tmp_path / "engine"), tmp_path / "sites"
    one = SiteEngines(*makers, patient=True, pauses=(0.0, 0.0))
    told: list[Report] = []
    found = await one.engine.start([node("a", site="corner"), node("b", site="vault")], told.append, FilesInMemory())
    assert found.absent == {"b"}
    assert one.gone == {"vault": f"tls of site 'vault' is '{keys}'; allowed: a folder"}
    with pytest.raises(EngineError, match="engine 'vault' is gone: tls of site"):
        one.engine.check_fit(node("c", site="vault"))
    one.engine.resize("b", 7)
    keys.mkdir()
    for _ in range(12):
        await asyncio.sleep(0)
    assert one.gone == {}
    assert NodeBack("b") in told
    await one.engine.stop()


async def test_a_restart_that_never_could_make_an_engine_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(place: EnginePlace, options: Mapping[str, Any]) -> FakeEngine:
        raise InvalidInput("tls", "keys", "a folder")

    monkeypatch.setattr(
        registry, "BUILT_IN_ENGINES", {**registry.BUILT_IN_ENGINES, "safe": EngineKind("safe", "", locked)}
    )
    one = SiteEngines((SiteSpec("vault", "safe"),), lambda: LocalEngine(tmp_path / "engine"), tmp_path, patient=True)
    assert (await one.engine.start([], lambda report: None, FilesInMemory())).absent == set()
    await one.engine.stop()


def test_a_restart_refuses_accounts_that_a_site_cannot_give(tmp_path: Path) -> None:
    here = partial(LocalEngine, tmp_path / "engine")
    with pytest.raises(HeadwayError, match="cannot run each task as the account of its user"):
        SiteEngines((FARM,), here, tmp_path, LocalSettings(run_as_owner=True), patient=True)


def test_an_engine_of_one_account_is_not_asked_to_run_tasks_as_others(tmp_path: Path) -> None:
    sites = SiteEngines((FARM, SiteSpec("desk", "local")), partial(LocalEngine, tmp_path / "engine"), tmp_path)
    assert [
        sites.has_accounts(node(name, site=site)) for name, site in (("a", FARM.name), ("b", "desk"), ("c", ""))
    ] == [
        False,
        True,
        True,
    ]


def test_which_nodes_have_one_disk(tmp_path: Path) -> None:
    """Those of this machine, and those of Slurm, whose tasks have their files in the folder that all of them share."""
    specs = (FARM, SiteSpec("desk", "local"), SiteSpec("hall", "slurm", {"partition": "main"}))
    sites = SiteEngines(specs, partial(LocalEngine, tmp_path / "engine"), tmp_path)
    here = {sites.disk_of(node("a", site="desk")), sites.disk_of(node("b", site=""))}
    hall = {sites.disk_of(node(name, site="hall")) for name in "ab"}
    farm = {sites.disk_of(node(name, site=FARM.name)) for name in "ab"}
    assert [len(here), len(hall), len(farm), len(here | hall | farm)] == [1, 1, 2, 4]
