"""Cluster files: the nodes that they declare, and the messages about wrong ones."""

from __future__ import annotations

import doctest
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from headway import config
from headway.config import (
    CLUSTER_FILE_MAX,
    parse_cluster,
    parse_network,
    parse_renting,
    parse_sites,
    parse_switching,
    parse_terms,
    read_cluster,
    read_network,
    read_providers,
    read_renting,
    read_sites,
    read_switching,
    reading,
    uniform_cluster,
)
from headway.engines import registry
from headway.engines.registry import SiteSpec
from headway.errors import HeadwayError, InvalidInput
from headway.model.instant import HOUR, SECOND
from headway.model.network import NO_NETWORK, Link, LinkTerms, Network
from headway.model.node import Capabilities, NodeSpec
from headway.model.power import Switching
from headway.model.renting import MARGIN, UNIT, Offer, Renting
from headway.model.site import SiteTerms
from headway.renting.registry import ProviderSpec

LESS = Capabilities(tiers=False, adopts=False)


def test_a_node_has_what_its_file_says() -> None:
    nodes = parse_cluster(
        """
        [[node]]
        name = "big"
        slots = 8
        speed = 2
        cores = 16
        site = "cellar"
        kind = "xeon"
        cannot = ["tiers", "adopts"]
        lease = "1.5s"

        [[node]]
        name = "small"
        """
    )
    assert nodes == (
        NodeSpec(
            "big", slots=8, speed=2.0, cores=16, site="cellar", lease=3 * SECOND // 2, kind="xeon", capabilities=LESS
        ),
        NodeSpec("small"),
    )


def test_nodes_alike_are_counted_and_numbered() -> None:
    nodes = parse_cluster('[[node]]\nname = "n"\nslots = 2\ncount = 3\n[[node]]\nname = "one"\ncount = 1')
    assert [(node.name, node.slots) for node in nodes] == [("n-1", 2), ("n-2", 2), ("n-3", 2), ("one-1", 1)]


def test_the_example_of_the_docstring_is_a_cluster() -> None:
    assert config.__doc__
    example = config.__doc__.split("```toml")[1].split("```")[0]
    assert [node.name for node in parse_cluster(example)] == ["big-1", "big-2", "big-3"]
    assert parse_sites(example) == (SiteSpec("cellar"),)
    found = doctest.testmod(reading)
    assert (found.attempted > 0, found.failed) == (True, 0)


FIRST = '[[node]]\nname = "a"\n\n'


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ("slots = 0", r"c.toml:6: slots is 0; allowed: a whole number from 1 to 1000000"),
        ("slots = 1.5", r"c.toml:6: slots is 1.5; allowed: a whole number"),
        ("slots = true", r"c.toml:6: slots is True; allowed: a whole number"),
        ('slots = "4"', r"c.toml:6: slots is '4'; allowed: a whole number"),
        ("'speed' = 0", r"c.toml:6: speed is 0; allowed: a number from 1e-09 to 1e.09"),
        ("speed = nan", r"c.toml:6: speed is nan; allowed: a number from 1e-09 to 1e.09"),
        ("speed = inf", r"c.toml:6: speed is inf; allowed: a number from 1e-09 to 1e.09"),
        ("cores = -1", r"c.toml:6: cores is -1; allowed: a whole number"),
        ('site = ""', r"c.toml:6: site is ''; allowed: a name"),
        ("lease = 0.0", r"c.toml:6: lease is 0.0; allowed: seconds, more than 0, or a duration in quotes"),
        ('lease = "soon"', r"c.toml:6: lease is 'soon'; allowed: seconds, more than 0, or a duration in quotes"),
        ("count = 0", r"c.toml:6: count is 0; allowed: a whole number"),
        ("slotz = 3", r"c.toml:6: slotz is 3; allowed: only name, slots, .*\nDid you mean slots\?"),
    ],
)
def test_a_wrong_field_is_named_with_its_line(tmp_path: Path, second: str, says: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f'{FIRST}[[node]]\nname = "b"\n{second}\n')
    with pytest.raises(InvalidInput, match=says):
        read_cluster(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (FIRST + "[[node]]\nslots = 1", r"cluster:4: name is None; allowed: a name, in quotes"),
        (FIRST + FIRST, r"cluster:5: name is 'a'; allowed: a name that no other node has"),
        (FIRST + '[[node]]\nname = "a-1"\n[[node]]\nname = "a"\ncount = 1', r"cluster:7: name is 'a-1'"),
        ('node = [{name = "a", slots = 0}]', r"cluster: slots is 0"),
        (
            "[[nodes]]\nname = 'a'",
            r"cluster:1: key is 'nodes'; allowed: site, node, .*, offer, .*provider\nDid you mean node\?",
        ),
        ("", r"cluster: node is None; allowed: one \[\[node\]\] table or more"),
        ("node = []", r"cluster:1: node is \[\]"),
        ("[node]\nname = 'a'", r"cluster:1: node is \{'name': 'a'\}; allowed: one \[\[node\]\] table or more"),
        ("[[node]\n", r"cluster is not TOML: .*line 1"),
    ],
)
def test_a_wrong_file_is_refused(text: str, says: str) -> None:
    with pytest.raises(HeadwayError, match=says):
        parse_cluster(text)


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match=r"cannot read .*absent.toml: No such file"):
        read_cluster(tmp_path / "absent.toml")
    (tmp_path / "odd.toml").write_bytes(b"\xff")
    with pytest.raises(HeadwayError, match=r"odd.toml is not text in utf-8"):
        read_cluster(tmp_path / "odd.toml")


def test_a_uniform_cluster_is_one_node() -> None:
    assert [(node.slots, node.speed) for node in uniform_cluster(128)] == [(128, 1.0)]
    with pytest.raises(InvalidInput, match="slots is 0; allowed: a whole number from 1 to 1000000"):
        uniform_cluster(0)


NODE = '[[node]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{NODE}slots = {'9' * 5000}", "cluster:3: slots is '999"),
        (f"{NODE}slots = 0x{'f' * 5000}", "cluster:3: slots is '0xfff"),
        (f"{NODE}slots = {'9' * 1900}", "cluster:3: slots is 999"),
        (f"{NODE}speed = {'9' * 5000}.0", "cluster:3: speed is '999"),
        (f"{NODE}{'9' * 1900} = 1", "cluster:3: 999"),
        (f"node = {'[' * 20_000}", "cluster:1: node is '[[["),
        ("node = [\n" + "[\n" * 20_000, "nested too deeply"),
        (
            f"{NODE}cannot = ['fly']",
            "cluster:3: cannot is ['fly']; allowed: a list of some of tiers, moves, read_ahead",
        ),
        (f"{NODE}cannot = 'tiers'", "cluster:3: cannot is 'tiers'; allowed: a list"),
        (f"{NODE}kind = {'{a = ' * 20_000}", "cluster:3: kind is '{a = {"),
        (f"a{'.a' * 20_000} = 1", "cluster:1: a.a.a"),
        (f"{NODE}count = 1000000", "cluster:3: count is 1000000; allowed: a whole number from 1 to 100000"),
        (f"{NODE}count = 100000\n[[node]]\nname = 'b'", "cluster:4: count is 1; allowed: no more than 100000 nodes"),
        (f"{NODE}slots = 1000000\ncount = 100", "cluster:3: slots is 1000000; allowed: no more than 16777216 slots"),
        (f"{NODE}speed = nan", "cluster:3: speed is nan"),
        (f"{NODE}lease = inf", "cluster:3: lease is inf"),
        ('[[node]]\nname = "a\0"', "Illegal character '\\x00' (at line 2"),
    ],
)
def test_absurd_values_are_refused_by_name_at_once(text: str, said: str) -> None:
    began = time.process_time()
    with pytest.raises(HeadwayError) as error:
        parse_cluster(text)
    assert said in str(error.value)
    assert len(str(error.value)) < 1000
    assert time.process_time() - began < 5


def test_a_file_that_is_no_cluster_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b"#" * (CLUSTER_FILE_MAX + 1))
    with pytest.raises(HeadwayError, match="too many for a cluster file"):
        read_cluster(tmp_path / "huge")
    with pytest.raises(HeadwayError, match="too many for a cluster file"):
        read_cluster("/dev/zero")


LINKED = """
[[node]]
name = "a"
site = "s"
[[node]]
name = "b"
site = "t"
"""


def test_lines_between_nodes_and_sites() -> None:
    text = '[network]\nwithin = {latency = "50us"}\nbetween = {bandwidth = 125e6}\n[[link]]\nbetween = ["s", "t"]\n'
    network = parse_network(f"{LINKED}{text}bandwidth = 5\nlatency = 0.1")
    assert network == Network(LinkTerms(50), LinkTerms(0, 125e6), (Link("s", "t", LinkTerms(100_000, 5.0)),))
    assert parse_network(LINKED) == NO_NETWORK
    assert [node.name for node in parse_cluster(f"{LINKED}{text}")] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[link]]\nbetween = ["s", "x"]', "c:9: between is 'x'; allowed: two nodes or two sites of this file"),
        ('[[link]]\nbetween = ["a", "t"]', "c:9: between is 't'; allowed: two nodes or two sites"),
        ('[[link]]\nbetween = ["a", "a"]', "c:9: between is ['a', 'a']; allowed: two different ones"),
        ('[[link]]\nbetween = "a"', "c:9: between is 'a'; allowed: two nodes or two sites, in quotes"),
        ("[[link]]\nlatency = 1", "c:8: between is None; allowed: two nodes"),
        (
            '[[link]]\nbetween = ["a", "b"]\nbandwidth = -1',
            "c:10: bandwidth is -1; allowed: bytes per second, a number",
        ),
        ('[[link]]\nbetween = ["a", "b"]\nbandwidth = 0', "c:10: bandwidth is 0; allowed: bytes per second"),
        ('[[link]]\nlatency = "soon"\nbetween = ["a", "b"]', "c:9: latency is 'soon'; allowed: seconds, 0 to 1e9"),
        ('[[link]]\nbetween = ["a", "b"]\nspeed = 1', "c:10: speed is 1; allowed: only bandwidth, latency"),
        (
            '[[link]]\nbetween = ["a", "b"]\n[[link]]\nlatency = 1\nbetween = ["b", "a"]',
            "c:12: between is ['b', 'a']; allowed: a pair that no other [[link]] names",
        ),
        ("[network]\nwithin = {latency = -1}", "c:9: within.latency is -1; allowed: seconds"),
        ("[network]\nwithout = {}", "c:9: without is {}; allowed: only within, between"),
        ("[network]\nbetween = 5", "c:9: between is 5; allowed: { bandwidth = ..., latency = ... }"),
    ],
)
def test_wrong_lines_are_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        parse_network(f"{LINKED}{text}", source="c")


POWERED = '[[node]]\nname = "a"\nsite = "east"\n[[node]]\nname = "b"\nsite = "west"\n'


def test_how_nodes_are_switched_off_is_said_once_or_by_site() -> None:
    said = """[power]
off_after = "10m"
off_seconds = 30
on_seconds = "2m"
off_watts = 5
switch_joules = 900
min_on = 1
off_command = ["ssh", "off"]
limit = 60
"""
    assert parse_switching(POWERED + said) == (
        Switching("", 600 * SECOND, 30 * SECOND, 120 * SECOND, 5.0, 900.0, 1, ("ssh", "off"), limit=60 * SECOND),
    )
    both = '[[power]]\nsite = "east"\noff_after = 0\n[[power]]\non_seconds = 1\n'
    assert parse_switching(POWERED + both) == (Switching("east", 0), Switching(on_time=SECOND))
    assert parse_switching(POWERED) == ()


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("[power]\noff_after = -1", r"off_after in line 8 of c|off_after .*-1"),
        ("[power]\nmin_on = -1", "min_on"),
        ("[power]\noff_wats = 1", "off_watts"),
        ('[power]\non_command = "wake"', "a list of words"),
        ('[[power]]\nsite = "north"', "a site of this file"),
        ('[[power]]\nsite = "east"\n[[power]]\nsite = "east"', "no other"),
        ("power = 3", r"\[power\] table"),
        ("[power]\noff_after = 5\nmin_on = 2", "c:9: min_on is 2; allowed: 0 to 1, the nodes of site 'east'"),
        ('[[power]]\nsite = "west"\nmin_on = 2', "c:9: min_on is 2; allowed: 0 to 1, the nodes of site 'west'"),
        ('[[power]]\nsite = "west"\n[[power]]\nmin_on = 2', "c:10: min_on is 2; .*'east'\nSites that differ"),
    ],
)
def test_what_is_wrong_about_switching_is_named(said: str, wrong: str) -> None:
    text = f"{said}\n{POWERED}" if said.startswith("power") else POWERED + said
    with pytest.raises(InvalidInput, match=wrong):
        parse_switching(text, source="c")


def test_a_node_that_is_off_draws_no_more_than_one_that_is_idle() -> None:
    east, west = POWERED.replace('"west"\n', '"west"\nidle_watts = 5\npeak_watts = 9\n'), '[[power]]\nsite = "west"\n'
    assert parse_switching(f"{east}[power]\noff_watts = 5\n")[0].off_watts == 5
    with pytest.raises(InvalidInput, match=r"c:10: off_watts is 5\.5; allowed: 0 to 5, the idle_watts of node 'b'"):
        parse_switching(f"{east}[power]\noff_watts = 5.5\n", source="c")
    assert parse_switching(f"{east}[[power]]\noff_watts = 5.5\n{west}", source="c")[0].off_watts == 5.5


@pytest.fixture
def dask_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_is_there", lambda module: True)


DASK = '[[site]]\nname = "attic"\nengine = "dask"\naddress = "tcp://10.0.0.1:8786"\n'
SLURM = '[[site]]\nname = "hpc"\nengine = "slurm"\npartition = "main"\n'
CELLAR = '[[site]]\nname = "cellar"\n'


@pytest.mark.usefixtures("dask_is_there")
def test_sites_have_engines_and_those_of_this_machine_have_their_nodes_listed(tmp_path: Path) -> None:
    file = tmp_path / "sites.toml"
    file.write_text(
        f'{DASK}{SLURM}folder = "shared"\n{CELLAR}[[node]]\nname = "a"\nsite = "cellar"\n[[node]]\nname = "b"\n'
    )
    assert read_sites(file) == (
        SiteSpec("attic", "dask", {"address": "tcp://10.0.0.1:8786"}),
        SiteSpec("hpc", "slurm", {"partition": "main", "folder": str(tmp_path / "shared")}),
        SiteSpec("cellar"),
    )
    assert [(node.name, node.site) for node in read_cluster(file)] == [("a", "cellar"), ("b", "local")]


@pytest.mark.usefixtures("dask_is_there")
def test_a_site_of_dask_may_say_that_its_machines_share_files() -> None:
    told = {"address": "tcp://10.0.0.1:8786"}
    assert parse_sites(f"{DASK}shared = true") == (SiteSpec("attic", "dask", told | {"shared": True}),)
    assert parse_sites(f"{DASK}shared = false") == (SiteSpec("attic", "dask", told),)


@pytest.mark.usefixtures("dask_is_there")
def test_a_relative_folder_counts_from_the_file_whatever_is_read_of_it(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    for name in registry.TLS_FILES:
        (tmp_path / "tls" / name).touch()
    file = tmp_path / "sites.toml"
    file.write_text(f'{DASK.replace("tcp:", "tls:")}tls = "tls"\n')
    assert read_sites(file)[0].options["tls"] == str(tmp_path / "tls")
    assert (read_cluster(file), read_network(file), read_switching(file)) == ((), NO_NETWORK, ())


def test_a_file_may_have_no_nodes_where_an_engine_finds_them() -> None:
    assert parse_cluster(SLURM) == ()
    assert parse_sites(SLURM) == (SiteSpec("hpc", "slurm", {"partition": "main"}),)
    cellar = f'{CELLAR}[[node]]\nname = "a"\nsite = "cellar"\n'
    assert parse_network(f'{SLURM}{cellar}[[link]]\nbetween = ["hpc", "cellar"]\nlatency = 1').links == (
        Link("hpc", "cellar", LinkTerms(SECOND)),
    )


TWO_SITES = """\
[[site]]
name = "cellar"
startup = "2m"

[[site]]
name = "attic"

[[node]]
name = "a"
site = "attic"

[[node]]
name = "b"
site = "cellar"
"""


def test_sites_are_preferred_in_the_order_of_their_tables() -> None:
    assert parse_terms(TWO_SITES) == (SiteTerms("cellar", 120 * SECOND), SiteTerms("attic"))
    assert parse_sites(TWO_SITES) == (SiteSpec("cellar"), SiteSpec("attic"))
    assert parse_terms(NODE) == ()


@pytest.mark.parametrize("startup", ["-1", '"soon"', "true", "1e10"])
def test_the_time_until_a_task_begins_is_a_span(startup: str) -> None:
    with pytest.raises(InvalidInput, match=r"c:3: startup is .*; allowed: seconds, 0 to 1e9, or a duration"):
        parse_terms(TWO_SITES.replace('"2m"', startup), source="c")


def test_a_file_of_nodes_alone_has_no_sites() -> None:
    assert parse_sites(NODE) == ()


TLS = "ca.crt, node.crt, node.key"


@pytest.mark.usefixtures("dask_is_there")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{SLURM}{SLURM}", "c:6: name is 'hpc'; allowed: a name that no other site has"),
        (
            f"{SLURM}{SLURM.replace('hpc', 'two')}",
            "c:8: partition is 'main'; allowed: one that no other site has; site 'hpc' has it",
        ),
        (
            f"{DASK}{DASK.replace('attic', 'two')}",
            "c:8: address is 'tcp://10.0.0.1:8786'; allowed: one that no other site has; site 'attic' has it",
        ),
        ("[[site]]\nengine = 'slurm'\n", "c:1: name is None; allowed: a name, in quotes"),
        ("[[site]]\nname = 'a'\nengine = 'slrum'\n", "c:3: engine is 'slrum'; allowed: dask, local, slurm"),
        ("[[site]]\nname = 'a'\nengine = 3\n", "c:3: engine is 3; allowed: one of local, dask, slurm"),
        (
            "[[site]]\nname = 'local'\nengine = 'slurm'\npartition = 'p'\n",
            "c:2: name is 'local'; allowed: another name than",
        ),
        (
            "[[site]]\nname = 'a:b'\nengine = 'slurm'\npartition = 'p'\n",
            "c:2: name is 'a:b'; allowed: another name than",
        ),
        (
            f"{SLURM}tls = '/etc/tls'",
            "c:5: tls is '/etc/tls'; allowed: an option of engine slurm: partition, folder",
        ),
        (f"{CELLAR}partition = 'p'\n{NODE}", "c:3: partition is 'p'; allowed: an option of engine local: it has none"),
        (f"{DASK}partition = 'p'", "c:5: partition is 'p'; allowed: an option of engine dask: address, start"),
        ("[[site]]\nname = 'a'\nengine = 'slurm'\n", "c:1: partition is None; allowed: the name of a partition"),
        (f"{DASK}shared = 'yes'", "c:5: shared is 'yes'; allowed: true or false, without quotes"),
        (f"{DASK}shared = 1", "c:5: shared is 1; allowed: true or false, without quotes"),
        (f"{SLURM}shared = true", "c:5: shared is True; allowed: an option of engine slurm: partition"),
        (
            DASK.replace("tcp:", "udp:"),
            "c:4: address is 'udp://10.0.0.1:8786'; allowed: tcp://HOST:PORT or tls://HOST:PORT",
        ),
        (
            f"{DASK.replace('tcp:', 'tls:')}tls = '/no/such'",
            f"c:5: tls is '/no/such'; allowed: a folder with {TLS}, in quotes",
        ),
        (f"{CELLAR}{NODE}", "c:2: name is 'cellar'; allowed: a site that a [[node]] of this file is at"),
        (f"{SLURM}{NODE}site = 'hpc'", "c:7: site is 'hpc'; allowed: a site whose nodes are listed: local"),
        (
            f"{CELLAR}{NODE}site = 'celar'",
            "c:5: site is 'celar'; allowed: a site of this file: cellar, local\nDid you mean cellar?",
        ),
        (f"{SLURM}{NODE}{NODE}", "c:8: name is 'a'; allowed: a name that no other node has"),
        (f"{SLURM}[[power]]\nsite = 'hpc'\n", "c:6: site is 'hpc'; allowed: a site whose nodes are listed"),
        ("[site]\nname = 'a'\n", "c:1: site is {'name': 'a'}; allowed: [[site]] tables"),
        (
            CELLAR,
            "c:2: name is 'cellar'; allowed: a site that a [[node]] of this file is at\nWrite site = \"cellar\" in",
        ),
        ("", "c: node is None; allowed: one [[node]] table or more"),
    ],
)
def test_what_is_wrong_about_sites_is_named(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        parse_sites(text, source="c")


def test_a_site_whose_engine_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_is_there", lambda module: False)
    with pytest.raises(InvalidInput, match=r"c:3: engine is 'dask'; .* installed\n.*pip install 'headway\[dask\]'"):
        parse_sites(DASK, source="c")


def test_a_simulation_has_only_the_nodes_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "c"
    file.write_text(f"{CELLAR}{NODE}site = 'cellar'\n")
    assert [node.site for node in read_cluster(file, simulated=True)] == ["cellar"]
    file.write_text(f"{SLURM}{NODE}")
    with pytest.raises(
        InvalidInput, match=r"c:3: engine is 'slurm'; allowed: one whose nodes the file lists, in a sim"
    ):
        read_cluster(file, simulated=True)


NODE = "[[node]]\nname = 'own'\n"
OFFER = """
[[offer]]
site = "public"
type = "large"
slots = 4
price = 0.17
"""


def test_offers_say_what_can_be_rented_and_budgets_what_it_may_cost(tmp_path: Path) -> None:
    assert parse_renting(NODE) is None
    file = tmp_path / "c.toml"
    file.write_text(
        NODE + OFFER + 'speed = 2\ncores = 8\nkind = "xeon"\nbilled = "1h"\nminimum = 0\nstart = "90s"\nlimit = 20\n'
        "spot = true\n[renting]\nbudget_day = 20.5\nbudget_job = 0\nlimit = '5m'\n"
    )
    offer = Offer("public", "large", 4, 170_000, 2.0, 8, "xeon", HOUR, 0, 90 * SECOND, 20, spot=True)
    assert read_renting(file) == Renting((offer,), 20 * UNIT + UNIT // 2, 0, 300 * SECOND, MARGIN)
    assert read_cluster(file) == (NodeSpec("own"),)
    plain = parse_renting(NODE + OFFER)
    assert plain is not None
    assert plain.offers == (Offer("public", "large", 4, 170_000),)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (OFFER.replace("0.17", "-0.17"), r"c:8: price is -0.17; allowed: of an hour: a number from 0 to 1000000"),
        (OFFER.replace("price = 0.17\n", ""), "c:4: price is None; allowed: of an hour"),
        (OFFER.replace("0.17", '"cheap"'), "c:8: price is 'cheap'"),
        (OFFER.replace("0.17", "nan"), "c:8: price is nan"),
        (OFFER + 'billed = "25h"', "c:9: billed is '25h'; allowed: seconds, at most a day"),
        (OFFER + "billed = 0", "c:9: billed is 0; .*at least a second"),
        (OFFER + "limit = -1", "c:9: limit is -1; allowed: a whole number from 0"),
        (OFFER + "spot = 1", "c:9: spot is 1; allowed: true or false"),
        (OFFER + "prize = 1", "c:9: prize is 1; allowed: only site, type"),
        (OFFER + OFFER, "c:12: type is 'large'; allowed: one that no other offer of site 'public' has"),
        ("[renting]\nbudget_day = 1", "there is nothing to rent"),
        (OFFER + "[renting]\nbudget_day = -1", "c:10: budget_day is -1; allowed: an amount, 0 or more"),
        (OFFER + "[renting]\nbudget = 1", "budget is 1; allowed: only budget_day"),
        ("offer = 3", r"offer is 3; allowed: \[\[offer\]\] tables"),
        (NODE.replace("own", "public-r7") + OFFER, "site is 'public'; .*not named as node 'public-r7'"),
    ],
)
def test_offers_that_make_no_sense_are_refused_with_their_line(said: str, message: str) -> None:
    text = f"{said}\n{NODE}" if said.startswith("offer") else NODE + said
    with pytest.raises(InvalidInput, match=message):
        parse_renting(text, source="c")


PROVIDER = "[[provider]]\nsite = 'public'\nprovider = 'processes'\nfolder = 'machines'\ncommand = ['sleep', '{node}']\n"


AWS = "[[provider]]\nsite = 'public'\nprovider = 'aws'\nregion = 'eu-west-1'\nimage = 'ami-1'\n"


def test_a_provider_rents_machines_out_at_a_site_with_offers(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(NODE + OFFER + PROVIDER)
    folder = str(tmp_path / "machines")
    options = {"folder": folder, "command": ["sleep", "{node}"]}
    assert read_providers(file) == (ProviderSpec("public", "processes", options),)
    file.write_text(NODE + OFFER)
    assert read_providers(file) == ()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (PROVIDER.replace("public", "privat"), "c.toml:10: site is 'privat'; allowed: a site with .*: public"),
        (PROVIDER.replace("processes", "proceses"), "c.toml:11: provider is 'proceses'; allowed: processes or slurm"),
        (PROVIDER + PROVIDER, "c.toml:15: site is 'public'; allowed: a site that no other"),
        (PROVIDER + "color = 1\n", "c.toml:14: color is 1; allowed: an option of provider processes: folder, command"),
        (PROVIDER.replace("folder = 'machines'\n", ""), "folder is None"),
        (PROVIDER.replace("'machines'", "3"), "c.toml:12: folder is 3"),
        (f"spot = true\n{AWS}", "type is 'large'; allowed: of offers of AWS, a type that ends in /spot"),
        (PROVIDER.replace("['sleep', '{node}']", "'sleep'"), "c.toml:13: command is 'sleep'; allowed: a list of words"),
    ],
)
def test_a_provider_that_makes_no_sense_is_refused_with_its_line(tmp_path: Path, said: str, message: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(NODE + OFFER + said)
    with pytest.raises(InvalidInput, match=message):
        read_providers(file)


LIST = """region,type,cores,memory,price,spot_price,start,limit
here,small,2,4,0.096,0.035,90s,20
here,large,8,16,0.4,,90s,20
there,huge,64,128,3.2,,,
"""
PRICES = """
[[prices]]
site = "public"
file = "list.csv"
region = "here"
"""


def listed(folder: Path, prices: str = PRICES, rows: str = LIST) -> Renting | None:
    (folder / "list.csv").write_text(rows)
    (folder / "c.toml").write_text(NODE + prices)
    return read_renting(folder / "c.toml")


def test_a_price_list_offers_what_it_has_of_a_region(tmp_path: Path) -> None:
    """As many [[offer]] tables would, with which it goes together; a relative path counts from the cluster file."""
    small = Offer("public", "small", 2, 96_000, 1.0, 2, "small", start_time=90 * SECOND, limit=20)
    large = Offer("public", "large", 8, 400_000, 1.0, 8, "large", start_time=90 * SECOND, limit=20)
    assert listed(tmp_path) == Renting((small, large))
    assert listed(tmp_path, PRICES + 'types = ["large"]\n[renting]\nbudget_day = 1\n') == Renting((large,), UNIT)
    more = PRICES + 'types = ["small"]\nspot = true\nreference = "large"\nstart = "2m"\nlimit = 0\n'
    terms = {"start_time": 120 * SECOND, "limit": 0}
    spot = replace(small, type="small/spot", price=35_000, spot=True, **terms)
    assert listed(tmp_path, more) == Renting((replace(small, **terms), spot))
    both = listed(tmp_path, PRICES + OFFER.replace("large", "own-rate"))
    assert both is not None
    assert [offer.type for offer in both.offers] == ["own-rate", "small", "large"]


def test_a_price_list_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    before, after = listed(tmp_path), listed(tmp_path, rows=LIST.replace("0.096", "0.0961"))
    assert before is not None
    assert after is not None
    assert [after.offers[0].price, before.offers[0].price] == [96_100, 96_000]


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        (PRICES.replace("list.csv", "lost.csv"), r"c.toml:6: file is 'lost.csv'; .*No such file"),
        (PRICES.replace('file = "list.csv"\n', ""), r"c.toml:4: file is None; allowed: the path of a price list"),
        (PRICES.replace("list.csv", "."), r"c.toml:6: file is '\.'; allowed: a price list, which is a regular file"),
        (
            PRICES.replace("here", "hera"),
            r"c.toml:7: region is 'hera'; allowed: one of here, there, by .*list.csv\n.*here",
        ),
        (PRICES + 'types = ["smal"]', r"c.toml:8: types is 'smal'; allowed: one of the 2 types of region here"),
        (PRICES + 'types = ["huge"]', r"c.toml:8: types is 'huge'; (.|\n)*It can be had in there"),
        (PRICES + "types = []", r"c.toml:8: types is \[\]; allowed: a list of names of types"),
        (PRICES + 'reference = "big"', r"c.toml:8: reference is 'big'; allowed: one of the 2 types"),
        (PRICES + 'start = "2d"', r"c.toml:8: start is '2d'; allowed: seconds, at most a day"),
        (PRICES + "price = 1", r"c.toml:8: price is 1; allowed: only site, file, region"),
        (
            PRICES + OFFER.replace("large", "small"),
            r"c.toml:4: type is 'small'; .* no other offer of site 'public' has",
        ),
        (PRICES + PRICES, r"c.toml:9: type is 'small'; .* no other offer"),
    ],
)
def test_a_price_list_that_does_not_fit_is_refused_with_the_line_that_names_it(
    tmp_path: Path, prices: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        listed(tmp_path, prices)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("here,cheap,2,4,-0.1,,,", r"list.csv:5: price is '-0.1'; allowed: a number from 0"),
        ("here,holed,2,4,,,,", r"list.csv:5: price is ''; allowed: a number from 0"),
        ("here,none,0,4,1,,,", r"list.csv:5: cores is '0'; allowed: a whole number from 1"),
    ],
)
def test_what_is_wrong_in_a_price_list_is_named_with_its_own_line(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        listed(tmp_path, rows=f"{LIST}{row}\n")


def test_a_provider_may_rent_out_what_a_price_list_offers(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(LIST)
    (tmp_path / "c.toml").write_text(
        NODE + PRICES + "spot = true\n[[provider]]\nsite = 'public'\nprovider = 'aws'\n"
        "region = 'eu-west-1'\nimage = 'ami-1'\n"
    )
    assert [one.kind for one in read_providers(tmp_path / "c.toml")] == ["aws"]
