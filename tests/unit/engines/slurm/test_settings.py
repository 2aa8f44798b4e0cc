"""Settings that are not allowed are named, with what is."""

from __future__ import annotations

from typing import Any

import pytest

from headway.engines.slurm.settings import SlurmSettings
from headway.errors import InvalidInput


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("partition", "", "the name of one partition of Slurm"),
        ("partition", "main,urgent", "the name of one partition of Slurm"),
        ("slots", 0, "1 to 1000, or none: one for each core"),
        ("memory", -1, "MiB for each slot, 0 or more, or none: an equal share"),
        ("options", ("-A", "me"), "options of sbatch such as --account=NAME"),
        ("options", ("--qos=x", "--wait"), "options of sbatch such as --account=NAME"),
        ("options", ("--array=1-3",), "options of sbatch such as --account=NAME"),
        ("poll", 0.0, "0.1 to 60 seconds"),
        ("command_limit", 1000.0, "1 to 600 seconds"),
        ("read_ahead", 2, "0 or 1"),
        ("task_output_max", 1, "65536 to 1099511627776 bytes"),
        ("pass_env", ("HEADWAY_TOKEN",), "a variable that is no secret of the server"),
    ],
)
def test_a_setting_out_of_its_range(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(InvalidInput) as error:
        SlurmSettings(**{"partition": "main", field: value})
    assert allowed in error.value.allowed
