"""What starts a Dask cluster: a class or an argument that is wrong is named as the table of the site names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.engines.dask.keeper import Start, made
from headway.errors import InvalidInput


@pytest.mark.parametrize(
    ("start", "options", "says"),
    [
        (
            "json.no_such.Cluster",
            {},
            r"start is .*\njson.no_such cannot be imported: ModuleNotFoundError: No module .*h'$",
        ),
        ("dask_no_such.Cluster", {}, r"ModuleNotFoundError: .* Install it .*: pip install dask-no-such"),
        ("concurrent.futures.Cluster", {}, r"start is .*\nconcurrent.futures has no class Cluster\.$"),
        ("json.decoder", {}, r"start is 'json.decoder'; allowed: MODULE.CLASS .*\njson has no class decoder\."),
        ("fractions.Fraction", {}, r"start is .*\nThat is something else: it says no scheduler_address\."),
        ("fractions.Fraction", {"cores": 2}, r"options is \{'cores': 2\}; allowed: the arg.*\nTypeError: .*'cores'"),
        ("fractions.Fraction", {"numerator": "a"}, r"options is .* fractions.Fraction\nValueError: Invalid literal"),
    ],
)
def test_the_field_that_is_wrong_is_named(tmp_path: Path, start: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        made(Start(start, options), tmp_path)


def test_a_class_is_looked_for_among_those_of_its_module(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="it is not installed (pip install headway[dask])")
    with pytest.raises(InvalidInput, match=r"distributed has no class LocalClustr\. Did you mean LocalCluster\?"):
        made(Start("distributed.LocalClustr"), tmp_path)


def test_what_may_be_another_time_is_no_wrong_field(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        made(Start("io.FileIO", {"file": str(tmp_path / "absent")}), tmp_path)
