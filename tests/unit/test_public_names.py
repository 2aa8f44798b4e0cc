"""What `import headway` offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headway


def test_every_public_name_can_be_had() -> None:
    assert set(headway._PLACES) == set(headway.__all__) - {"__version__"}
    for name in headway.__all__:
        assert getattr(headway, name) is not None
        assert name in dir(headway)


def test_no_other_name_is_made_up() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Clinet'"):
        headway.Clinet  # noqa: B018  # the access fails


def test_a_simulation_in_a_few_lines() -> None:
    workload = headway.workload_of(release=[0, 0], runtime=[2, 1], width=[2, 1])
    schedule = headway.simulate(workload, [headway.NodeSpec("cluster", slots=2)], "fcfs")
    assert schedule.seconds("end").tolist() == [2, 3]
    assert headway.summarise(schedule)["makespan"] == 3.0


def test_importing_costs_nothing() -> None:
    code = "import sys, headway; print([name for name in sys.modules if name.startswith('headway.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_command_imports_no_event_loop() -> None:
    code = "import sys, headway.cli.reach; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
