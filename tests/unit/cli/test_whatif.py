"""How changes that are asked about are read: of which site a node is that is not there yet."""

from __future__ import annotations

import pytest

from headway.cli.whatif import _node_in
from headway.core.record import StateRecord
from headway.core.scheduler import Scheduler
from headway.errors import InvalidInput
from headway.model.events import NodeJoined
from headway.policies.registry import find
from headway.testing import node


def with_sites(*sites: str) -> StateRecord:
    """A cluster with a node of each of these sites."""
    core = Scheduler(find, "fcfs")
    for number, site in enumerate(sites):
        core.handle(NodeJoined(0, node(f"n{number}", site=site)))
    return core.dump()


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


@pytest.mark.parametrize("text", ["b slots=2", "slots=2", "b slots=2,speed=2"])
def test_a_term_that_no_comma_parts_from_the_name_is_no_name(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"name of --add-node is '.*slots=2'; allowed: one without =, as in NAME\["):
        _node_in(text, with_sites())


def test_of_several_sites_one_must_be_named_where_none_is_this_machine() -> None:
    with pytest.raises(InvalidInput, match="--add-node is 'b'; allowed: with site=, one of dask, slurm"):
        _node_in("b", with_sites("dask", "slurm"))
