"""Values: the type checker forbids changes; otherwise they are data classes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import is_dataclass, replace
from pathlib import Path

import msgspec
import pytest

from headway.model import actions, events, job, plan
from headway.model.events import TaskEnded
from headway.model.job import TaskSpec, Workflow
from headway.model.value import value

VALUES = [made for room in (actions, events, job, plan) for made in vars(room).values() if is_dataclass(made)]


@value
class Pair:
    first: int
    second: tuple[int, ...] = ()


def test_equal_values_are_one_in_a_set_and_print_their_fields() -> None:
    assert Pair(1, (2,)) == Pair(1, (2,)) != Pair(1)
    assert {Pair(1), Pair(1), Pair(2)} == {Pair(1), Pair(2)}
    assert repr(Pair(1)) == "Pair(first=1, second=())"


def test_a_value_holds_nothing_but_its_fields() -> None:
    with pytest.raises(AttributeError):
        Pair(1).third = 3  # type: ignore[attr-defined]
    assert len(VALUES) > 30
    assert not [made for made in VALUES if made.__dictoffset__]


def test_replaced_pickled_and_written_down_it_is_a_value_again() -> None:
    spec = Workflow(3, graph=(TaskSpec(5), TaskSpec(7, after=(0,))), cpu=(0.5,))
    assert replace(spec, retries=4) == Workflow(3, retries=4, graph=spec.graph, cpu=(0.5,))
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert msgspec.json.decode(msgspec.json.encode(spec), type=Workflow) == spec
    ended = TaskEnded(1, 2, 3, 4)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(ended), type=TaskEnded) == ended


@pytest.mark.long
def test_the_type_checker_refuses_an_assignment(tmp_path: Path) -> None:
    module = tmp_path / "careless.py"
    module.write_text("from headway.model.window import Window\n\nwindow = Window(0, 1, 0, 0, 0)\nwindow.start = 2\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent", "--cache-dir", tmp_path, module],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert checked.stdout.count(" error: ") == 1
    assert 'careless.py:4: error: Property "start" defined in "Window" is read-only' in checked.stdout
