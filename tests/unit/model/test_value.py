"""Values: the type checker forbids changes; otherwise they are data classes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass, field, is_dataclass, replace
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


class Named:
    """Fields of which one is not compared and one is not shown."""

    name: str
    seen: int = field(default=0, compare=False)
    key: int = field(default=0, repr=False)


class Single:
    only: int


class Empty:
    pass


class Own:
    at: int

    def __repr__(self) -> str:
        return "own"


@pytest.mark.parametrize(
    ("made", "arguments"),
    [
        *((Named, given) for given in (("a",), ("a", 1), ("a", 0, 2), ("b", 1, 2))),
        *((Single, (number,)) for number in (0, 1)),
        (Empty, ()),
        (Own, (1,)),
    ],
)
def test_a_value_is_like_a_data_class(made: type, arguments: tuple[object, ...]) -> None:
    """Compared with data classes of the same fields."""
    ours, twin = value(_copy(made)), dataclass(slots=True, unsafe_hash=True)(_copy(made))
    assert hash(ours(*arguments)) == hash(twin(*arguments))
    assert repr(ours(*arguments)) == repr(twin(*arguments))
    others = [("a",), ("a", 1), ("a", 0, 2), ("b", 1, 2)] if made is Named else [arguments]
    for other in others:
        assert (ours(*arguments) == ours(*other)) == (twin(*arguments) == twin(*other))
    assert ours(*arguments) != twin(*arguments)


def _copy(made: type) -> type:
    """A class that can be made into another one: the decorator changes the one it is given."""
    return type(made.__name__, made.__bases__, {name: of for name, of in vars(made).items() if name[:7] != "__dict_"})


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


@pytest.mark.slow  # `make check` asks the type checker of the sources
def test_the_type_checker_refuses_an_assignment(tmp_path: Path) -> None:
    module = tmp_path / "careless.py"
    module.write_text("from headway.model.window import Window\n\nwindow = Window(0, 1, 0, 0, 0)\nwindow.start = 2\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent", "--cache-dir", tmp_path, module],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert checked.stdout.count(" error: ") == 1
    assert 'careless.py:4: error: Property "start" defined in "Window" is read-only' in checked.stdout
