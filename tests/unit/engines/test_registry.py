"""Kinds of engines by name: what each is told, and those that another package adds."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headway.engines import registry
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.registry import TLS_FILES, EngineKind, EnginePlace, Option, SiteSpec
from headway.errors import HeadwayError, InvalidInput
from headway.testing import FakeEngine


class Told(FakeEngine):
    """An engine that remembers what it was made of."""

    def __init__(self, place: EnginePlace, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.place, self.options = place, dict(options)


FARM = EngineKind(
    "farm",
    "Machines of a farm.",
    Told,
    (
        Option("size", "a whole number", lambda value: type(value) is int, default=3),
        Option("where", "a folder", is_folder=True),
    ),
)


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> dict[str, EngineKind]:
    """The kinds that are known: Headway's own, and what a test adds."""
    known = {**registry.BUILT_IN_ENGINES, "farm": FARM}
    monkeypatch.setattr(registry, "BUILT_IN_ENGINES", known)
    return known


@pytest.fixture
def dask_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_is_there", lambda module: True)


def tls_folder(folder: Path, *without: str) -> Path:
    folder.mkdir()
    for name in TLS_FILES:
        if name not in without:
            folder.joinpath(name).write_text("")
    return folder


def test_the_names_are_known_without_any_engine() -> None:
    assert registry.names()[:3] == ["local", "dask", "slurm"]
    asked = """if True:
        import sys
        from headway.engines import registry
        registry.names()
        print([name for name in sys.modules if name.startswith(("headway.engines.dask", "headway.engines.slurm"))])
    """
    assert subprocess.check_output([sys.executable, "-c", asked], text=True) == "[]\n"
    assert [kind.finds for kind in registry.BUILT_IN_ENGINES.values()] == [False, True, True]
    assert [kind.extra for kind in registry.BUILT_IN_ENGINES.values()] == ["", "headway[dask]", ""]


def test_an_engine_is_made_of_its_options_and_their_defaults(tmp_path: Path, kinds: dict[str, EngineKind]) -> None:
    made = registry.make(registry.site("field", "farm", {"size": 5}), tmp_path)
    assert isinstance(made, Told)
    assert (made.place, made.options) == (EnginePlace("field", tmp_path), {"size": 5, "where": None})
    assert isinstance(registry.make(SiteSpec("here"), tmp_path), LocalEngine)


def test_a_site_keeps_what_is_not_a_default_with_full_paths(tmp_path: Path, kinds: dict[str, EngineKind]) -> None:
    told = {"size": 3, "where": "shared/place"}
    assert registry.site("field", "farm", told, tmp_path).options == {"where": str(tmp_path / "shared" / "place")}
    assert registry.site("field", "farm", {"where": "/shared"}, tmp_path).options == {"where": "/shared"}


@pytest.mark.usefixtures("dask_is_there")
def test_dask_with_tls_is_told_a_folder_of_certificates(tmp_path: Path) -> None:
    tls_folder(tmp_path / "tls")
    told = {"address": "tls://10.0.0.1:8786", "tls": "tls"}
    assert registry.site("cellar", "dask", told, tmp_path).options == {**told, "tls": str(tmp_path / "tls")}
    assert registry.site("cellar", "dask", {"address": "tcp://[::1]:8786"}).options == {"address": "tcp://[::1]:8786"}


@pytest.mark.usefixtures("dask_is_there")
@pytest.mark.parametrize(
    ("engine", "options", "says"),
    [
        ("dsk", {}, r"engine is 'dsk'; allowed: .*dask.*local.*slurm.*\nDid you mean dask\?"),
        ("dask", {}, r"address is None; allowed: tcp://HOST:PORT or tls://HOST:PORT"),
        ("dask", {"address": "10.0.0.1:8786"}, r"address is '10.0.0.1:8786'; allowed: tcp://HOST:PORT"),
        ("dask", {"start": "a package.Cluster"}, r'start is .*; allowed: "local", "ssh", or MODULE.CLASS'),
        ("dask", {"start": "LocalCluster"}, r'start is .*; allowed: "local", "ssh", or MODULE.CLASS'),
        ("dask", {"start": "local", "address": "tcp://h:1"}, r"address is 'tcp://h:1'; allowed: none where `start`"),
        ("dask", {"start": "local", "tls": "whole"}, r"tls is '.*whole'; allowed: none where `start`"),
        ("dask", {"start": "local", "workers": 0}, r"workers is 0; allowed: a whole number from 1"),
        ("dask", {"start": "local", "options": {"a": [{"b": None}]}}, r"options is .*; allowed: a table"),
        ("dask", {"address": "tcp://h:1", "workers": 2}, r"workers is 2; allowed: none unless `start`"),
        ("dask", {"address": "tcp://host:99999"}, r"address is 'tcp://host:99999'"),
        (
            "dask",
            {"address": "tls://host:1"},
            r"tls is None; allowed: a folder with ca.crt, node.crt, node.key, because",
        ),
        (
            "dask",
            {"address": "tls://host:1", "tls": "gone"},
            r"tls is 'gone'; allowed: .*\nThere is no folder .*/gone\.",
        ),
        ("dask", {"address": "tls://host:1", "tls": "half"}, r"tls is 'half'; .*\nThere is no node.key in .*/half\."),
        (
            "dask",
            {"address": "tcp://host:1", "tls": "whole"},
            r"address is 'tcp://host:1'; allowed: an address .* tls:",
        ),
        (
            "dask",
            {"address": "tcp://host:1", "partition": "main"},
            r"partition is 'main'; allowed: an option of engine dask",
        ),
        ("slurm", {}, r"partition is None; allowed: the name of a partition"),
        ("slurm", {"partition": "a b"}, r"partition is 'a b'; allowed: the name of a partition"),
        (
            "slurm",
            {"partition": "main", "foldr": "/x"},
            r"foldr is '/x'; allowed: .*partition, folder, .*\nDid you mean folder\?",
        ),
        ("slurm", {"partition": "main", "folder": 3}, r"folder is 3; allowed: a folder that the server and all nodes"),
        (
            "local",
            {"address": "tcp://host:1"},
            r"address is 'tcp://host:1'; allowed: an option of engine local: it has none",
        ),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, engine: str, options: dict[str, object], says: str) -> None:
    tls_folder(tmp_path / "whole")
    tls_folder(tmp_path / "half", "node.key")
    with pytest.raises(InvalidInput, match=says):
        registry.site("cellar", engine, options, tmp_path)


def test_an_engine_that_is_not_installed_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"address": "tcp://host:1"}
    monkeypatch.setattr(registry, "_is_there", lambda module: module != "distributed")
    says = (
        r"engine is 'dask'; allowed: an engine that is installed\nIt needs distributed. .*pip install 'headway\[dask\]'"
    )
    with pytest.raises(InvalidInput, match=says):
        registry.site("cellar", "dask", told)
    with pytest.raises(InvalidInput, match="engine of site 'cellar' is 'dask'"):
        registry.make(SiteSpec("cellar", "dask", told), tmp_path)


def test_what_has_gone_since_a_site_was_chosen_is_said_with_its_site(
    tmp_path: Path, kinds: dict[str, EngineKind]
) -> None:
    kinds["farm"] = EngineKind("farm", "", Told, (Option("tls", "a folder", files=TLS_FILES),))
    folder = tls_folder(tmp_path / "tls")
    chosen = registry.site("field", "farm", {"tls": "tls"}, tmp_path)
    folder.joinpath("ca.crt").unlink()
    with pytest.raises(InvalidInput, match=r"tls of site 'field' is .*\nThere is no ca.crt in "):
        registry.make(chosen, tmp_path)


def test_a_part_that_cannot_be_imported_is_an_error_for_people(tmp_path: Path, kinds: dict[str, EngineKind]) -> None:
    def broken(place: EnginePlace, options: Mapping[str, Any]) -> FakeEngine:
        raise ModuleNotFoundError("No module named 'distributed.core'")

    kinds["farm"] = EngineKind("farm", "", broken, extra="headway[farm]")
    with pytest.raises(HeadwayError, match=r"(?s)engine farm of site 'field' is not installed: .*headway\[farm\]"):
        registry.make(SiteSpec("field", "farm"), tmp_path)


class Entry:
    """What another package says under `[project.entry-points."headway.engines"]`."""

    name, value = "meadow", "elsewhere:kind"

    def __init__(self, found: object) -> None:
        self._found = found

    def load(self) -> object:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def offer(monkeypatch: pytest.MonkeyPatch, found: object) -> None:
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [Entry(found)] if group == registry.ENGINES_GROUP else []
    )


def test_a_package_adds_a_kind_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, FARM)
    assert registry.names() == ["local", "dask", "slurm", "meadow"]
    made = registry.make(registry.site("field", "meadow", {"size": 1}), tmp_path)
    assert isinstance(made, Told)
    assert made.options["size"] == 1


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (ValueError("no"), "engine meadow cannot be loaded: no\nIt is elsewhere:kind"),
        (FakeEngine, "engine meadow is type, and not headway.engines.registry.EngineKind"),
    ],
)
def test_an_entry_point_that_gives_no_kind_is_named(monkeypatch: pytest.MonkeyPatch, found: object, says: str) -> None:
    offer(monkeypatch, found)
    with pytest.raises(HeadwayError, match=says):
        registry.kind("meadow")


@pytest.mark.parametrize("site", [SiteSpec("far", "dask", {"address": "tcp://head:8786"}), SiteSpec("field", "farm")])
def test_a_site_that_has_one_account_for_all_is_refused_where_tasks_run_as_their_users(
    tmp_path: Path, kinds: dict[str, EngineKind], site: SiteSpec
) -> None:
    with pytest.raises(HeadwayError, match=f"site '{site.name}' cannot run each task as the account of its user"):
        registry.make(site, tmp_path, LocalSettings(run_as_owner=True))


def test_the_accounts_of_users_need_a_folder_that_is_not_in_the_data_directory(tmp_path: Path) -> None:
    site = SiteSpec("hpc", "slurm", {"partition": "main"})
    with pytest.raises(InvalidInput, match="folder of site 'hpc' is None; allowed: a folder that the server and all"):
        registry.make(site, tmp_path, LocalSettings(run_as_owner=True))


@pytest.mark.parametrize(
    "site",
    [
        SiteSpec("far", "dask", {"address": "tcp://head:8786"}),
        SiteSpec("hpc", "slurm", {"partition": "main"}),
        SiteSpec("field", "farm"),
    ],
)
def test_a_site_whose_tasks_would_run_as_another_account_than_the_one_that_is_chosen_is_refused(
    tmp_path: Path, kinds: dict[str, EngineKind], site: SiteSpec
) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    with pytest.raises(HeadwayError, match=f"site '{site.name}' cannot run tasks as {me}: engine {site.engine} has"):
        registry.make(site, tmp_path, LocalSettings(run_as=me))
