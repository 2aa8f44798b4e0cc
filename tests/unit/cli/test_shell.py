"""Hints about words that are meant for a shell."""

from __future__ import annotations

import pytest

from headway.cli.shell import hint


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["cat", "a b.txt", "|", "wc"], "sh -c 'cat '\"'\"'a b.txt'\"'\"' | wc'"),
        (["make", ">", "out.txt"], "sh -c 'make > out.txt'"),
        (["make", ">out.txt"], "sh -c 'make >out.txt'"),
        (["make", "2>&1"], "sh -c 'make 2>&1'"),
        (["make", "&&", "ls"], "sh -c 'make && ls'"),
        (["sleep", "9", "&"], "sh -c 'sleep 9 &'"),
        (["cat a.txt | wc"], "sh -c 'cat a.txt | wc'"),
        (["ls|wc"], "sh -c 'ls|wc'"),
        (["cd", "sub"], "sh -c 'cd sub'"),
        (["source", "venv/bin/activate"], "sh -c 'source venv/bin/activate'"),
    ],
)
def test_a_line_for_a_shell_is_answered_with_sh_c(command: list[str], line: str) -> None:
    assert hint(command).endswith(f"headway submit -- {line}")


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "cat a | wc > b"],
        ["find", ".", "-exec", "ls", "{}", ";"],
        ["grep", "a|b", "x>y", "<tag/>x"],
        ["python", "-c", "print(1); print(2)"],
        ["./not-here-but-perhaps-there"],
        ["true"],
    ],
)
def test_other_commands_are_left_alone(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert hint(command) == ""


def test_a_variable_before_the_command_is_answered_with_env() -> None:
    assert hint(["A=x y", "make", "all"]).endswith("headway submit --env 'A=x y' -- make all")


def test_a_program_that_is_not_found_here_is_said() -> None:
    said = "there is no program no-such-program on the PATH here. Tasks look for it on the server's PATH."
    assert hint(["no-such-program", "x"]) == said
