"""Errors in typed arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import headway as command
from headway.cli.tasks import too_wide
from headway.cli.typed import in_words_typed
from headway.errors import HeadwayError


@pytest.mark.parametrize(
    ("words", "message", "typed"),
    [
        (
            "up --lease 0s",
            "lease is 0.0; allowed: 0.5 to 3600 seconds",
            "--lease is '0s'; allowed: 0.5 to 3600 seconds",
        ),
        ("up --lease=0s", "lease is 0.0; allowed: more", "--lease is '0s'; allowed: more"),
        (
            "up --check-every 1ms",
            "period of the status checker is 0.001; allowed: 1",
            "--check-every is '1ms'; allowed: 1",
        ),
        ("up --pass-env A --pass-env =", "pass_env is '='; allowed: a name", "--pass-env is '='; allowed: a name"),
        ("submit --cpu 0.5,2 x", "job 'x': cpu[1] is 2.0; allowed: 0 to 1", "--cpu is '0.5,2'; allowed: 0 to 1"),
        ("submit --cpu 1,1 x", 'job "it\'s": cpu has 2 values; allowed: one', "--cpu is '1,1'; allowed: one"),
        ("submit --stdout o x", "jobs[0].stdout is '/a/o'; allowed: one", "--stdout is 'o'; allowed: one"),
        ("submit --output a=b x", "output is '/b'; allowed: one", "--output is 'a=b'; allowed: one"),
        ("submit --input a=b x", "jobs[0].work.inputs is 'b'; allowed: a path", "--input is 'a=b'; allowed: a path"),
        (
            "submit --name " + "x" * 1001,
            "name is '1001 characters'; allowed: less",
            "--name is '1001 characters'; allowed: less",
        ),
        ("simulate t.csv --policy eazy", "policy is 'eazy'; allowed: easy", "--policy is 'eazy'; allowed: easy"),
        ("advise --job -1", "job is -1; allowed: an id", "--job is -1; allowed: an id"),
        ("workload lublin99 --run-shape1 0", "run_shape1 is 0.0; allowed: more", "--run-shape1 is 0; allowed: more"),
        ("node resize n --slots 0", "slots is 0; allowed: 1", "--slots is 0; allowed: 1"),
    ],
)
def test_a_field_is_named_by_its_option(words: str, message: str, typed: str) -> None:
    assert in_words_typed(message, command, words.split()) == typed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("up --cluster c.toml --slots 1", "c.toml:3: slots is 0; allowed: 1"),
        ("up --policy priority:reserve=3 --reserve 1", "reserve of policy priority is 3.0; allowed: 0 to 1"),
        ("up", "lease is 0.0; allowed: 1"),
        ("submit -- x --cpu 2", "cpu is 2; allowed: 1"),
        ("job 7", "there is no job 7"),
        ("node", "slots is 0; allowed: 1"),
        ("", "slots is 0; allowed: 1"),
        ("nothing", "slots is 0; allowed: 1"),
    ],
)
def test_what_is_no_option_is_left_as_it_is(words: str, message: str) -> None:
    assert in_words_typed(message, command, words.split()) == message


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        ((3, 0, None), "--tasks 3 --together"),
        ((None, 0, 3), "--width 3"),
        ((None, 3, None), "--each with 3 files --together"),
    ],
)
def test_a_job_that_is_too_wide(given: Any, typed: str) -> None:
    for place, name in (("whole cluster", "cluster"), ("largest site", "largest site")):
        needs = "width is 3" if given[2] else "together, with 3 tasks, needs 3 slots at once"
        refusal = HeadwayError(f"job 'x: y': {needs}; allowed: at most 2, the slots of the {place}")
        said = too_wide(refusal, *given)
        assert said is not None
        assert said.args[0] == f"{typed} needs 3 slots at once; the {name} has 2"
    assert too_wide(HeadwayError("job 'x': tasks is 0; allowed: 1"), *given) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--keep-keys", "1s"), "--keep-keys is '1s'; allowed: 120 seconds or more, or none"),
        (("--policy", "priority:reserve=3"), "reserve of policy priority is 3.0; allowed: 0 to 1"),
        (("--output-max", "3"), "--output-max is now --task-output-max\n"),
        (("--outputs-max", "3"), "--outputs-max is now --storage-max\n"),
    ],
)
def test_a_server_says_which_option_is_wrong(headway: Any, tmp_path: Path, words: tuple[str, str], said: str) -> None:
    ran = headway("up", "--data", tmp_path / "data", *words)
    assert ran.status == 2
    assert said in ran.err
    assert not (tmp_path / "data").exists()
