"""What the arguments of `headway submit` mean for its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway import HeadwayError, InvalidInput
from headway.cli.submit import submit
from headway.cli.tasks import TaskProgram, files_of, replaced, spread, variables_in
from headway.model.job import VARIABLE_NAME

PLACES = {"cwd": "", "stdin": "", "stdout": "", "stderr": ""}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(*names: str) -> None:
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def program(*command: str, inputs: dict[str, str] | None = None, **places: str) -> TaskProgram:
    return TaskProgram(command, PLACES | places, inputs or {}, {}, {})


@pytest.mark.parametrize(
    ("words", "parsed"),
    [
        ("--each a b --wait -- wc {file}", "--each a --each b --wait -- wc {file}"),
        ("--due 5m --each a b -- wc", "--due 5m --each a --each b -- wc"),
        ("--each a --each b c -- wc", "--each a --each b --each c -- wc"),
        ("--each a wc {file}", "--each a wc {file}"),
        ("--each=a wc", "--each=a wc"),
        ("tool --each a b -- c", "tool --each a b -- c"),
        ("--wait tool --each a b -- c", "--wait tool --each a b -- c"),
        ("--stdout --each -- wc", "--stdout --each -- wc"),
        ("-- tool --each a b", "-- tool --each a b"),
        ("--together --each a b --fresh -- wc", "--together --each a --each b --fresh -- wc"),
    ],
)
def test_each_takes_the_words_up_to_the_next_option(words: str, parsed: str) -> None:
    assert spread(submit, words.split()) == parsed.split()


def test_each_without_a_file_is_refused() -> None:
    with pytest.raises(HeadwayError, match="--each names no file"):
        spread(submit, ["--each", "--wait", "--", "wc"])


def test_files_are_named_or_matched_each_once() -> None:
    touch("b.csv", "a.csv", "c.txt", "sub/d.csv", "[1].csv", "1.csv")
    assert files_of(["b.csv", "*.csv"]) == ["b.csv", "1.csv", "[1].csv", "a.csv"]
    assert files_of(["**/*.csv"]) == ["1.csv", "[1].csv", "a.csv", "b.csv", "sub/d.csv"]
    assert files_of(["[1].csv"]) == ["[1].csv"]


@pytest.mark.parametrize(
    ("word", "allowed"),
    [
        ("none.csv", "a file that is here, or a pattern"),
        ("*.csv", "a pattern that matches a file here"),
        ("{i}.txt", "names in UTF-8, without {i}"),
    ],
)
def test_files_that_cannot_be_are_refused(word: str, allowed: str) -> None:
    touch("{i}.txt")
    with pytest.raises(InvalidInput) as caught:
        files_of([word])
    assert (caught.value.field, caught.value.value, caught.value.allowed) == ("--each", word, allowed)


def test_a_file_is_put_in_its_places_once() -> None:
    assert replaced("in/{stem}.tar.gz")("{file} {stem} {i} {x}") == "in/{stem}.tar.gz {stem}.tar {i} {x}"


def test_a_task_for_each_file(folder: Path) -> None:
    touch("data/a.csv", "data/b.csv")
    tasks = program("wc", "{file}", stdin="{file}", stdout="{stem}-{i}.txt").tasks(None, ["data/*.csv"], None)
    found = [task.program for task in tasks]
    assert [one.argv for one in found if one] == [("wc", "data/a.csv"), ("wc", "data/b.csv")]
    assert [(one.stdin, one.stdout) for one in found if one] == [
        (str(folder / "data/a.csv"), str(folder / "a-{i}.txt")),
        (str(folder / "data/b.csv"), str(folder / "b-{i}.txt")),
    ]


@pytest.mark.parametrize("where", [{"cwd": "sub"}, {"inputs": {"in": "{file}"}}])
def test_a_program_that_runs_elsewhere_gets_the_whole_path(folder: Path, where: Any) -> None:
    touch("a.csv")
    (task,) = program("wc", "{file}", **where).tasks(None, ["a.csv"], None)
    assert task.program
    assert task.program.argv == ("wc", str(folder / "a.csv"))
    assert task.program.inputs == ({"in": str(folder / "a.csv")} if "inputs" in where else {})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((3, ["a.csv"], None), "--each and --tasks were both given"),
        ((None, ["a.csv"], 2), "--width is 2; allowed: one task alone, without --tasks and --each"),
        ((3, [], 2), "--width is 2; allowed: one task alone"),
    ],
)
def test_options_that_contradict_each_other(given: Any, said: str) -> None:
    touch("a.csv")
    with pytest.raises(HeadwayError, match=said):
        program("wc", "{file}").tasks(*given)


def test_files_of_which_nothing_is_said_in_the_command() -> None:
    touch("a.csv", "b.csv")
    with pytest.raises(InvalidInput, match=r"a command in which \{file\} or \{stem\} stands for the file of each task"):
        program("wc", "{i}").tasks(None, ["a.csv"], None)
    with pytest.raises(InvalidInput) as caught:  # headway submit --each *.csv wc {file}
        program("b.csv", "wc", "{file}").tasks(None, ["a.csv"], None)
    assert caught.value.hint.startswith("b.csv is a file, no program: put `--` between the files and the command.")


@pytest.mark.parametrize(
    ("stream", "given", "path", "near"),
    [
        ("stdout", (3, [], None), "o.txt", "o{i}.txt"),
        ("stderr", (2, [], None), "errors", "errors.{i}"),
        ("stdout", (None, [], 2), "run.1/out", "run.1/out.{i}"),
    ],
)
def test_tasks_that_would_write_one_file_are_refused(stream: str, given: Any, path: str, near: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        program("true", **{stream: path}).tasks(*given)
    assert (caught.value.field, caught.value.value) == (f"--{stream}", path)
    assert caught.value.hint.startswith(f"Such as --{stream} '{near}'")


@pytest.mark.parametrize("places", [{"stdout": "o{i}.txt"}, {"stdout": "o", "cwd": "run{i}"}, {"stdout": "/dev/null"}])
def test_tasks_that_write_a_file_each(places: dict[str, str]) -> None:
    assert len(program("true", **places).tasks(3, [], None)) == 3


def test_variables_are_given_or_taken_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "is = this")
    monkeypatch.delenv("NOWHERE", raising=False)
    assert variables_in(["HERE", "A=b=c", "EMPTY="], "--env") == {"HERE": "is = this", "A": "b=c", "EMPTY": ""}
    for word, allowed in (
        ("NOWHERE", "NAME=VALUE, or the name of a variable that is set here"),
        ("=x", VARIABLE_NAME),
        ("A B=1", VARIABLE_NAME),
        ("HEADWAY_MARK=1", "any variable but those that Headway sets for each task"),
    ):
        with pytest.raises(InvalidInput) as caught:
            variables_in([word], "--env")
        assert (caught.value.field, caught.value.allowed) == ("--env", allowed)
    for words in (["A=1", "A=2"], ["HERE", "HERE=1"]):
        with pytest.raises(InvalidInput) as caught:
            variables_in(words, "--env")
        assert (caught.value.value, caught.value.allowed) == (words[1], "NAME=VALUE or NAME, each NAME once")
