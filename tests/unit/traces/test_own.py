"""Workflows with their terms: what is written is read again, and what is wrong is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.errors import HeadwayError, InvalidInput
from headway.model.job import SHAPES, PenaltyShape, TaskSpec
from headway.model.workload import workload_us
from headway.traces import read_workload, write_workload
from headway.workloads import dn13


def given(path: Path, job: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"headway": "workflows", "jobs": [job]}))
    return path


@pytest.mark.parametrize("name", ["flows.json", "flows.json.gz"])
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    made = dn13.instance("mix", 3, jobs=40)
    write_workload(made, tmp_path / name)
    read = read_workload(tmp_path / name)
    for column in ("release", "tasks", "due", "priority", "rate", "shape", "kind"):
        assert np.array_equal(getattr(read, column), getattr(made, column)), column
    assert dict(read.workflows) == dict(made.workflows)
    assert read.user.tolist() == [""] * 40


def test_only_run_times_must_be_there(tmp_path: Path) -> None:
    read = read_workload(given(tmp_path / "a.json", {"tasks": [{"runtime": 5}, {"runtime": 1.5, "after": [0]}]}))
    assert read.workflows[0] == (TaskSpec(5_000_000), TaskSpec(1_500_000, after=(0,)))
    assert (read.label.tolist(), read.rate.tolist(), SHAPES[read.shape[0]]) == (["0"], [1.0], PenaltyShape.LINEAR)
    assert np.isnan(read.seconds("due")[0])


def test_all_terms_are_read(tmp_path: Path) -> None:
    job = {
        "name": "a",
        "release": 2,
        "due": 100.25,
        "priority": 3,
        "rate": 0.5,
        "shape": "square",
        "user": "ann",
        "tasks": [{"runtime": 1}, {"runtime": 2, "cores": 4, "after": [0], "sends": [4096]}],
    }
    read = read_workload(given(tmp_path / "a.json", job))
    assert read.workflows[0][1] == TaskSpec(2_000_000, 4, (0,), (4096,))
    told = (read.label[0], read.seconds("release")[0], read.seconds("due")[0], read.priority[0], read.rate[0])
    assert told == ("a", 2.0, 100.25, 3.0, 0.5)
    assert (SHAPES[read.shape[0]], read.user[0]) == (PenaltyShape.SQUARE, "ann")


@pytest.mark.parametrize(
    ("job", "field", "value"),
    [
        ({"tasks": []}, "jobs[0].tasks", 0),
        ({"tasks": [{"runtime": -1}]}, "jobs[0].tasks[0].runtime", -1),
        ({"tasks": [{"runtime": 1, "cores": 0}]}, "jobs[0].tasks[0].cores", 0),
        ({"tasks": [{"runtime": 1, "cores": 1.5}]}, "jobs[0].tasks[0].cores", 1.5),
        ({"tasks": [{"runtime": 1, "after": [0]}]}, "jobs[0].tasks[0].after", (0,)),
        ({"tasks": [{"runtime": 1}, {"runtime": 1, "after": [0, 0]}]}, "jobs[0].tasks[1].after", (0, 0)),
        ({"tasks": [{"runtime": 1}, {"runtime": 1, "after": [0], "sends": []}]}, "", None),
        ({"tasks": [{"runtime": 1}, {"runtime": 1, "after": [0], "sends": [1, 2]}]}, "jobs[0].tasks[1].sends", [1, 2]),
        ({"tasks": [{"runtime": 1}, {"runtime": 1, "after": [0], "sends": [-1]}]}, "jobs[0].tasks[1].sends", [-1]),
        ({"tasks": [{"runtime": 1}], "rate": -1}, "jobs[0].rate", -1),
        ({"tasks": [{"runtime": 1}], "due": -1}, "jobs[0].due", -1),
        ({"tasks": [{"runtime": 1}], "shape": "cube"}, "jobs[0].shape", "cube"),
        ({"tasks": [{"runtime": 1, "time": 1}]}, "jobs[0].tasks[0]", {"runtime": 1, "time": 1}),
        ({"tasks": [{"cores": 1}]}, "jobs[0].tasks[0]", {"cores": 1}),
        ({"name": "a"}, "jobs[0]", {"name": "a"}),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path: Path, job: dict[str, Any], field: str, value: Any) -> None:
    path = given(tmp_path / "a.json", job)
    if not field:
        assert len(read_workload(path)) == 1
        return
    with pytest.raises(InvalidInput) as raised:
        read_workload(path)
    assert (raised.value.field, raised.value.value, str(raised.value.source)) == (field, value, str(path))


@pytest.mark.parametrize(
    "text", ['{"headway": "workflows", "jobs": [', '{"headway": 1, "jobs": []}', '{"headway": "workflows"}']
)
def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(HeadwayError, match=r"a\.json"):
        read_workload(path)


def test_jobs_of_other_forms_have_no_place_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="kind is 'bag'; allowed: workflow"):
        write_workload(workload_us(release=[0], runtime=[1]), tmp_path / "a.json")
