"""What `headway up` makes of its options for sites and nodes; no server is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway import server
from headway.engines import registry
from headway.engines.registry import SiteSpec
from headway.errors import InvalidInput
from headway.live.alerts import AlertSettings
from headway.model.network import NO_NETWORK


@pytest.fixture
def chosen(headway: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """What a server is started with, by its options."""
    monkeypatch.setattr(registry, "_is_there", lambda module: True)

    def settings(*words: object) -> server.Settings:
        given: list[server.Settings] = []
        monkeypatch.setattr(server, "run", lambda settings, say: given.append(settings))
        ran = headway("up", "--data", tmp_path / "data", *words)
        assert ran.status == 0, ran.err
        return given[0]

    return settings


def test_without_options_it_is_as_before(chosen: Any) -> None:
    found = chosen()
    assert (found.nodes, found.sites, found.network, found.switching) == (None, None, None, None)


def test_dask_alone_is_one_site_and_this_machine_has_no_node(chosen: Any) -> None:
    found = chosen("--dask", "tcp://10.0.0.1:8786")
    assert found.sites == (SiteSpec("dask", "dask", {"address": "tcp://10.0.0.1:8786"}),)
    assert (found.nodes, found.network, found.switching) == ((), NO_NETWORK, ())


def test_a_cluster_of_dask_can_be_started(chosen: Any) -> None:
    assert chosen("--dask", "local").sites == (SiteSpec("dask", "dask", {"start": "local"}),)
    shared = {"start": "local", "shared": True}
    assert chosen("--dask", "local", "--dask-shared").sites == (SiteSpec("dask", "dask", shared),)


def test_several_engines_and_nodes_of_this_machine_are_asked_for_together(
    chosen: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = chosen("--slots", 3, "--slurm", "main", "--slurm-folder", "shared", "--dask", "tcp://h:1")
    assert found.sites == (
        SiteSpec("dask", "dask", {"address": "tcp://h:1"}),
        SiteSpec("slurm", "slurm", {"partition": "main", "folder": str(tmp_path / "shared")}),
    )
    assert [(node.name, node.slots, node.site) for node in found.nodes] == [("cluster", 3, "local")]


def test_a_cluster_file_names_sites_and_nodes(chosen: Any, tmp_path: Path) -> None:
    file = tmp_path / "sites.toml"
    file.write_text('[[site]]\nname = "hpc"\nengine = "slurm"\npartition = "main"\n[[node]]\nname = "a"\n')
    found = chosen("--cluster", file)
    assert found.sites == (SiteSpec("hpc", "slurm", {"partition": "main"}),)
    assert [node.name for node in found.nodes] == ["a"]


def test_nodes_of_this_machine_alone_end_what_an_earlier_run_had(chosen: Any) -> None:
    assert chosen("--slots", 2).sites == ()


def test_whom_to_tell_before_a_job_is_late(chosen: Any) -> None:
    assert chosen().alerts is None, "nobody, and nothing is looked for"
    assert chosen("--alert-below", 0.7).alerts == AlertSettings("", (), 0.7)
    command = "sh -c 'cat >> alerts'"
    found = chosen("--alert-url", "https://chat.example.org/hooks/7f3", "--alert-command", command).alerts
    assert found == AlertSettings("https://chat.example.org/hooks/7f3", ("sh", "-c", "cat >> alerts"), 0.5)


def test_whether_forecasts_count_on_jobs_that_will_come(chosen: Any) -> None:
    assert [chosen(*words).arrivals for words in ((), ("--forecast-arrivals",))] == [False, True]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--dask", "10.0.0.1"], "--dask is '10.0.0.1'; allowed: tcp://HOST:PORT or tls://HOST:PORT"),
        (["--dask", ""], "--dask is ''; allowed: tcp://HOST:PORT"),
        (["--dask", "ssh"], "where the scheduler listens; or local, which starts a cluster here"),
        (["--dask", "tls://h:1"], "--dask-tls is None; allowed: a folder with ca.crt, node.crt, node.key, because"),
        (["--dask-tls", "x"], "--dask-tls was given without --dask"),
        (["--dask-shared"], "--dask-shared was given without --dask"),
        (["--dask", "tls://h:1", "--dask-tls", "/no/such"], "--dask-tls is '/no/such'; allowed: a folder with ca.crt"),
        (["--slurm", "a b"], "--slurm is 'a b'; allowed: the name of a partition"),
        (["--slurm-folder", "x"], "--slurm-folder was given without --slurm"),
        (["--alert-url", "ftp://there/"], "--alert-url is 'ftp://there/'; allowed: http://HOST"),
        (["--alert-command", "'"], '--alert-command is "\'"; allowed: words as a shell reads them'),
        (
            ["--alert-command", "no-such-program x"],
            "--alert-command is 'no-such-program x'; allowed: a program",
        ),
        (["--alert-below", "0"], "--alert-below is 0"),
        (["--cluster", "x", "--slots", "1"], "--slots and --cluster were both given"),
        (["--cluster", "x", "--slurm", "main"], "--slurm and --cluster were both given"),
    ],
)
def test_wrong_options_are_named(headway: Any, chosen: Any, tmp_path: Path, words: list[str], says: str) -> None:
    ran = headway("up", "--data", tmp_path / "data", *words)
    assert ran.status == 2
    assert says in ran.err


def test_an_engine_that_is_not_installed_is_said_with_its_extra(
    headway: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry, "_is_there", lambda module: False)
    ran = headway("up", "--data", tmp_path / "data", "--dask", "tcp://h:1")
    assert ran.status == 2
    assert "pip install 'headway[dask]'" in ran.err


@pytest.mark.parametrize(
    ("field", "file", "says"),
    [
        ("partition of site 'hpc'", True, "sites.toml:9: partition is 'mian'; allowed: main\n"),
        ("slots of node 'a' of site 'hpc'", True, "sites.toml:6: slots of node 'a' is 'mian'; allowed: main\n"),
        ("decider", True, "Error: decider is 'mian'; allowed: main\n"),
        ("partition of site 'slurm'", False, "Error: --slurm is 'mian'; allowed: main\n"),
        ("slots of site 'slurm'", False, "Error: slots of site 'slurm' is 'mian'; allowed: main\n"),
    ],
)
def test_what_an_engine_refuses_is_named_where_it_was_said(
    headway: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, field: str, file: bool, says: str
) -> None:
    def refuse(_settings: object, _say: object) -> None:
        raise InvalidInput(field, "mian", "main", hint="Did you mean main?")

    monkeypatch.setattr(server, "run", refuse)
    sites = tmp_path / "sites.toml"
    sites.write_text(
        '[[site]]\nname = "other"\nengine = "slurm"\npartition = "urgent"\n\n'
        '[[site]]\nname = "hpc"\nengine = "slurm"\npartition = "mian"\n'
    )
    ran = headway("up", "--data", tmp_path / "data", *(["--cluster", sites] if file else ["--slurm", "mian"]))
    assert ran.status == 2
    assert says in ran.err
    assert "Did you mean main?" in ran.err
