"""Policies from files and policies that are objects, in simulations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headway import HeadwayError, InvalidInput, NodeSpec, Workload, simulate, workload_of
from headway.policies import registry
from headway.policies.backfill import Easy
from headway.policy_files import find

SOURCE = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headway.model.plan import Plan
from headway.model.slots import lowest
from headway.model.snapshot import Snapshot
from beside import WIDEST


@dataclass(frozen=True, slots=True)
class Shortest:
    """Only jobs of a width, in order of release."""

    most: int = WIDEST
    per_instant: ClassVar[bool] = True
    task_rounds: ClassVar[bool] = False

    def __call__(self, view: Snapshot) -> Plan:
        plan, free = view.plan(), view.free
        for job in view.waiting:
            if job.width <= min(self.most, free.bit_count()):
                slots = lowest(free, job.width)
                plan.hold(job.id, slots)
                free &= ~slots
        return plan
'''
OTHER = """

class Other(Shortest):
    per_instant = True
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy in a file of the current folder, with a module beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.py").write_text("WIDEST = 4\n")
    path = tmp_path / "my.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def jobs() -> Workload:
    return workload_of(release=[0, 0], runtime=[5, 5], width=[2, 1])


@pytest.mark.parametrize("text", ["my.py", "my.py:Shortest", " ./my.py:Shortest ", "{folder}/my.py:Shortest"])
def test_a_policy_is_found_in_a_file(file: Path, text: str) -> None:
    assert repr(find(text.format(folder=file.parent))) == "Shortest(most=4)"


@pytest.mark.parametrize("text", ["my.py:Shortest,most=1", "my.py:Shortest:most=1", "my.py:most=1"])
@pytest.mark.usefixtures("file")
def test_it_is_given_parameters(text: str, jobs: Workload) -> None:
    assert repr(find(text)) == "Shortest(most=1)"
    assert simulate(jobs, [NodeSpec("n", slots=2)], text).held_at(0) == {1: 1}
    assert simulate(jobs, [NodeSpec("n", slots=2)], "my.py").held_at(0) == {0: 2}


TOP = """
from headway.model.plan import Plan
from headway.model.snapshot import Snapshot


class Halves:
    per_instant = task_rounds = False

    def __init__(self, left: str = "fcfs", right: str = "fcfs") -> None:
        self.left, self.right = left, right

    def lower(self, pool: str) -> str:
        return (self.left if pool == "left" else self.right).replace(";", ",")

    def __call__(self, view: Snapshot) -> Plan:
        plan = view.plan()
        plan.lend("left", 0b0011)
        plan.lend("right", 0b1100)
        for job in view.waiting:
            plan.deal("right" if job.id % 2 else "left", job.id)
        return plan
"""


@pytest.mark.parametrize("text", ["top.py:Halves,left=", "top.py:Halves:left=", "top.py:left="])
def test_a_top_level_in_a_file_is_told_policies_with_parameters_and_files(file: Path, text: str) -> None:
    file.with_name("top.py").write_text(TOP)
    log = workload_of(
        release=[0] * 6, runtime=[9, 5, 5, 5, 5, 5], width=[1, 2, 2, 1, 1, 1], estimate=[9, 5, 5, 5, 5, 5]
    )
    left, right = "easy:order=release;depth=1", "my.py:Shortest;most=1"
    for given in (f"{text}{left},right={right}", find("top.py:Halves").__class__(left, right)):  # type: ignore[call-arg]
        assert simulate(log, [NodeSpec("n", slots=4)], given).held_at(0) == {0: 1, 3: 1, 5: 1, 4: 1}


def test_a_file_is_read_again_when_it_was_changed(file: Path) -> None:
    assert find("my.py") == find("my.py")
    file.write_text(SOURCE.replace("= WIDEST", "= 7"))
    os.utime(file, (1, 1))
    assert repr(find("my.py")) == "Shortest(most=7)"


def test_of_several_policies_one_is_named(file: Path) -> None:
    file.write_text(SOURCE + OTHER)
    os.utime(file, (2, 2))
    with pytest.raises(InvalidInput, match=r"policies in my\.py is 'Shortest, Other'; allowed: one, or say which"):
        find("my.py")
    assert type(find("my.py:Other")).__name__ == "Other"


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("none.py:Easy", r"cannot read the policy file none\.py: No such file", "FILE.py:NAME"),
        ("my.py:Shortst", r"policy in my\.py is 'Shortst'; allowed: Shortest", "Did you mean Shortest?"),
        ("my.py:Shortest,mst=1", r"parameter of policy my\.py:Shortest is 'mst'; allowed: most", "Did you mean most?"),
        ("my.py:Shortest,most=wide", r"most of policy my\.py:Shortest is 'wide'; allowed: a whole number", ""),
        ("sites:each=my.py:Shortest", r"each of policy sites is 'my\.py'; allowed: anneal", "an installed one"),
        ("my.py:Plan", r"policy my\.py:Plan is Plan, which cannot be called", ""),
        ("beside.py", r"there is no policy in beside\.py", ""),
        ("beside.py:WIDEST", r"policy in beside\.py is 'WIDEST'; allowed: the name of a policy; there is none", ""),
    ],
)
@pytest.mark.usefixtures("file")
def test_what_is_wrong_is_named(text: str, said: str, hint: str) -> None:
    with pytest.raises(HeadwayError, match=said) as caught:
        find(text)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("\n\nx = 1 +\n", r"my\.py:3: SyntaxError"),
        ("import nowhere_at_all\n", r"my\.py:1: ModuleNotFoundError: No module"),
    ],
)
def test_a_file_that_does_not_run_is_named_with_its_line(file: Path, source: str, said: str) -> None:
    file.write_text(source)
    os.utime(file, (3, len(source)))
    with pytest.raises(HeadwayError, match=said):
        find("my.py")


def test_a_server_takes_no_file(file: Path) -> None:
    with pytest.raises(InvalidInput, match="policy is") as caught:
        registry.find(f"{file}:Shortest")
    assert caught.value.hint.startswith("Only simulations take a policy from a file")


def test_a_policy_may_be_an_object(jobs: Workload) -> None:
    cluster = [NodeSpec("n", slots=2)]
    shown = simulate(jobs, cluster, Easy("shortest"), record=True)
    named = simulate(jobs, cluster, "easy:order=shortest", record=True)
    assert (shown.start.tolist(), shown.end.tolist()) == (named.start.tolist(), named.end.tolist())


def nothing(view: Any) -> None:
    """A function that is not a policy."""


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Easy, "policy is the class Easy\nGive an object of this class: Easy()"),
        (nothing, "policy has no per_instant"),
        (7, "policy is int, which cannot be called"),
    ],
)
def test_what_is_no_policy_is_said(policy: Any, said: str, jobs: Workload) -> None:
    with pytest.raises(HeadwayError) as caught:
        simulate(jobs, [NodeSpec("n", slots=2)], policy)
    assert said in str(caught.value)


def test_a_decider_wants_a_name(jobs: Workload) -> None:
    with pytest.raises(InvalidInput, match="the name of a policy that the decider has"):
        simulate(jobs, [NodeSpec("n", slots=2)], Easy(), decider="http://127.0.0.1:9")


def test_a_file_that_ends_the_interpreter_is_said(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(HeadwayError, match=r"the policy file cannot be run: .*leaving\.py:2: SystemExit: 0"):
        find(f"{tmp_path}/leaving.py:Any")
