"""The command `headway` itself: what it lists, how it fails, and that it starts quickly."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import click
import pytest

from headway import HeadwayError, __version__
from headway.cli import main as module
from headway.cli.main import BLAS_THREADS, COMMANDS, INTERRUPTED, CommandGroup
from headway.core import scheduler
from headway.live.driver import FIRST_POLICY


def test_help_lists_every_command(headway: Any) -> None:
    ran = headway("--help")
    assert ran.status == 0
    for name, (_, line) in COMMANDS.items():
        assert f"{name} " in ran.out
        assert line in ran.out


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(headway: Any, name: str) -> None:
    ran = headway(name, "--help")
    assert (ran.status, ran.err) == (0, "")
    assert f"headway {name}" in ran.out


@pytest.mark.parametrize("page", ["cli.md", "../policies/tempo.md", "../decisions/tempo-by-default.md"])
def test_the_first_policy_of_a_server_is_named_where_it_is_explained(headway: Any, page: str) -> None:
    assert f"at first {FIRST_POLICY}." in " ".join(headway("up", "--help").out.split())
    docs = Path(__file__).parents[3] / "docs" / "reference"
    assert f"`{FIRST_POLICY}`" in (docs / page).read_text(encoding="utf-8")


def test_help_loads_nothing_that_takes_long() -> None:
    code = (
        "import sys\nfrom headway.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for heavy in ("numpy", "rich", "starlette", "uvicorn", "urllib3", "msgspec", "cloudpickle", "matplotlib"):
        assert f"'{heavy}'" not in done.stderr


def test_a_simulation_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    log.write_text("1 0 -1 10 2 -1 -1 2 20 -1 1 1 -1 -1 -1 -1 -1 -1\n")
    code = (
        "import sys\nfrom headway.cli.main import main\n"
        f"try: main(['simulate', {str(log)!r}, '--slots', '4', '--json'])\n"
        "except SystemExit as end: assert not end.code\n"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'headway.policies.backfill'" in done.stderr
    for idle in ("msgspec", "tomllib", "headway.wire", "headway.core.record", "headway.policies.tempo"):
        assert f"'{idle}'" not in done.stderr


@pytest.mark.parametrize("own", [None, "2"])
def test_what_holds_while_a_command_is_loaded_does_not_hold_later(
    monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    """Programs that a server starts see the threads that their user wants, or none."""
    monkeypatch.delenv(BLAS_THREADS, raising=False)
    if own is not None:
        monkeypatch.setenv(BLAS_THREADS, own)
    command = CommandGroup().get_command(click.Context(module.headway), "simulate")
    assert command is not None
    assert os.environ.get(BLAS_THREADS) == own
    assert gc.isenabled()


def test_version(headway: Any) -> None:
    compiled = ", compiled" if Path(scheduler.__file__).suffix != ".py" else ""
    assert headway("--version").out == f"headway, version {__version__}{module.build_text()}\n"
    assert module.build_text().startswith(compiled)


def test_the_version_says_why_the_core_is_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "headway" / "cli" / "main.py"))
    (tmp_path / "headway").mkdir()
    assert module.build_text() == ""
    (tmp_path / "headway" / "not-compiled.txt").write_text("the C compiler cc is not installed\n")
    assert module.build_text() == ", not compiled: the C compiler cc is not installed"


def test_an_unknown_command_is_answered_with_a_near_one(headway: Any) -> None:
    ran = headway("simualte")
    assert ran.status == 2
    assert "Did you mean simulate" in ran.err


def failing(error: BaseException) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (HeadwayError("it is broken", "mend it"), 2, "Error: it is broken\nmend it\n"),
        (HeadwayError("it is broken"), 2, "Error: it is broken\n"),
        (KeyboardInterrupt(), INTERRUPTED, "\nInterrupted.\n"),
    ],
)
def test_errors_have_no_traceback(
    headway: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, said: str
) -> None:
    monkeypatch.setattr(module.headway, "get_command", lambda *_: failing(error))
    ran = headway("jobs")
    assert (ran.status, ran.out, ran.err) == (status, "", said)


def test_what_fails_on_the_way_out_after_ctrl_c_is_ctrl_c(headway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-c may come anywhere, also while a lock is being taken, which is then released although it is not locked."""
    lock = threading.Lock()

    @click.command()
    def command() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            lock.release()

    monkeypatch.setattr(module.headway, "get_command", lambda *_: command)
    ran = headway("jobs")
    assert (ran.status, ran.out, ran.err) == (INTERRUPTED, "", "Interrupted.\n")
    monkeypatch.setattr(module.headway, "get_command", lambda *_: failing(RuntimeError("of our own")))
    with pytest.raises(RuntimeError, match="of our own"):
        headway("jobs")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m headway policies | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert "policy" in done.stdout
    assert done.stderr == ""


def test_no_server(headway: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv("HEADWAY_URL", raising=False)
    ran = headway("jobs", "--data", tmp_path)
    assert (ran.status, ran.out) == (2, "")
    assert "no server is known" in ran.err
    assert "headway up" in ran.err


def test_policies(headway: Any) -> None:
    assert "conservative" in headway("policies").out
    told = {one["policy"]: one["parameters"] for one in json.loads(headway("policies", "--json").out)}
    assert told["deadline"]["spare"] == "due"
    assert told["workload"]["period"] == 60, "in its own unit, as it is given"
