"""Command lines that click refuses: each says what was typed, what is allowed, and what to do next."""

from __future__ import annotations

from typing import Any

import click
import pytest

from headway.cli import main as module
from headway.cli.paths import GivenPath
from headway.cli.submit import submit
from headway.cli.tasks import misplaced


def usage(command: str, words: str) -> str:
    return f"Usage: headway {command} {words}\n`headway {command} --help` says more.\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sumbit", "there is no command 'sumbit'\nDid you mean submit?\n"),
        ("xyzzy", "there is no command 'xyzzy'\n`headway --help` lists the commands.\n"),
        ("node ad x", "there is no command 'ad'\nDid you mean add?\n"),
        ("node xyzzy", "there is no command 'xyzzy'\n`headway node --help` says more.\n"),
        ("submit --dew 9 x", "there is no option --dew\nDid you mean --due?\n"),
        ("nodes --verbose", "there is no option --verbose\n`headway nodes --help` says more.\n"),
        ("submit --due", "--due needs a value\n"),
        ("submit --wait=3 x", "--wait takes no value\n"),
        ("submit", "COMMAND is missing\n" + usage("submit", "[OPTIONS] -- COMMAND ARGUMENT...")),
        ("wait", "ID is missing\n`headway jobs` lists the ids.\n" + usage("wait", "[OPTIONS] ID...")),
        ("node resize n", "--slots is missing\n" + usage("node resize", "[OPTIONS] NAME")),
        ("job seven", "ID is 'seven'; allowed: a whole number\n`headway jobs` lists the ids.\n"),
        ("submit --after a x", "--after is 'a'; allowed: a whole number\n`headway jobs` lists the ids.\n"),
        ("submit --tasks ten x", "--tasks is 'ten'; allowed: a whole number from 1 to 10000000\n"),
        ("submit --tasks 0 x", "--tasks is 0; allowed: a whole number from 1 to 10000000\n"),
        ("submit --retries -1 x", "--retries is -1; allowed: a whole number, 0 or more\n"),
        ("submit --due 1h --only-if 1 x", "--only-if is 1.0; allowed: a number, above 0 and below 1\n"),
        ("submit --due 1h --only-if nan x", "--only-if is nan; allowed: a number, above 0 and below 1\n"),
        ("advise --sure NaN x", "--sure is nan; allowed: a number, above 0 and below 1\n"),
        ("up --alert-below nan", "--alert-below is nan; allowed: a number, above 0 and at most 1\n"),
        ("up --alert-below 0", "--alert-below is 0.0; allowed: a number, above 0 and at most 1\n"),
        ("submit --priority high x", "--priority is 'high'; allowed: a number\n"),
        ("simulate x.swf --as bag", "--as is 'bag'; allowed: rigid, bags\nDid you mean bags?\n"),
        ("checker onn", "SWITCH is 'onn'; allowed: on, off\nDid you mean on?\n"),
        (
            "policy easy depth=2",
            "more words than the command takes: depth=2\n" + usage("policy", "[OPTIONS] [NAME[:KEY=VALUE,...]]"),
        ),
        ("restore nowhere d", "BACKUP: Directory 'nowhere' does not exist\n`headway restore --help` says more.\n"),
        ("cancel 1 2 --task 0", "--task goes with one ID\n"),
        ("up --output-max 3", "--output-max is now --task-output-max\n"),
        ("submit --each -- wc", "--each names no file\n"),
    ],
)
def test_what_was_typed_what_is_allowed_and_what_to_do_next(headway: Any, line: str, said: str) -> None:
    ran = headway(*line.split())
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"Error: {said}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("simulate", "x.swf", "--out", ""), "--out is ''; allowed: the path of a directory\n"),
        (("up", "--data", ""), "--data is ''; allowed: the path of a directory\n"),
        (("profile", "x", "--out="), "--out is ''; allowed: the path of a file\n"),
        (("restore", "", "d"), "BACKUP is ''; allowed: the path of a directory\n"),
    ],
)
def test_a_variable_without_a_value_is_no_path(headway: Any, words: tuple[str, ...], said: str) -> None:
    ran = headway(*words)
    assert (ran.status, ran.out, ran.err) == (2, "", f"Error: {said}")


@pytest.mark.parametrize("name", list(module.COMMANDS))
def test_no_path_of_any_command_may_be_empty(name: str) -> None:
    found = module.headway.get_command(click.Context(module.headway), name)
    assert found is not None
    below = list(found.commands.values()) if isinstance(found, click.Group) else []
    for command in (found, *below):
        for param in command.params:
            assert isinstance(param.type, GivenPath) or not isinstance(param.type, click.Path), param


def test_a_range_may_be_open_on_either_side(headway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.option("--most", type=click.FloatRange(max=3))
    @click.option("--least", type=click.FloatRange(min=3))
    def command(**_: float) -> None:
        raise AssertionError

    monkeypatch.setattr(module.headway, "get_command", lambda *_: command)
    assert headway("jobs", "--most", 4).err == "Error: --most is 4.0; allowed: a number, at most 3\n"
    assert headway("jobs", "--least", "x").err == "Error: --least is 'x'; allowed: a number, 3 or more\n"


def test_a_group_without_a_command_prints_its_help(headway: Any) -> None:
    ran = headway("node")
    assert ran.status == 2
    assert "resize  Give a node more or fewer slots." in ran.err


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("solve --due 10s", "--due"),
        ("solve --name=x", "--name"),
        ("solve --in file --tasks 3", "--tasks"),
        ("solve --speed 3 -v", ""),
        ("-- solve --due 10s", ""),
        ("--due 10s solve now", ""),
        ("--due 10s -- solve --due 10s", ""),
    ],
)
def test_options_behind_the_program_are_pointed_out(line: str, named: str) -> None:
    with submit.make_context("headway submit", line.split()) as ctx:
        said = misplaced(ctx.params["command"], ctx)
    assert said.startswith(named)
    assert bool(said) == bool(named)
    if named:
        assert said.endswith(
            f"-- between them: headway submit {line.split()[-1] if '=' in line else named} ... -- solve"
        )
