"""`headway logs` with a real server: it prints what tasks write, also while they run, each byte once."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway import Client
from headway.errors import Refused

from ..commands import Ran
from ..waiting import LIMIT, until
from .conftest import submitted


def gated(headway: Any, gate: Path, before: str, after: str, *words: object) -> int:
    """A job whose tasks write, wait until the file `gate` is gone, and write again."""
    gate.touch()
    loop = f"touch {gate}.{{i}}; while [ -e {gate} ]; do sleep 0.01; done"
    return submitted(headway, *words, "--", "sh", "-c", f"{before}; {loop}; {after}")


def following(up: Any, *words: object) -> subprocess.Popen[str]:
    """`headway logs -f` in a process of its own."""
    command = [sys.executable, "-m", "headway", "logs", "--data", str(up.data), "-f", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_what_has_ended_is_printed_as_it_was_written(headway: Any) -> None:
    number = submitted(headway, "sh", "-c", "printf 'out\\nno end'; echo err >&2")
    assert headway("wait", number).status == 0
    assert headway("logs", number) == Ran(0, "out\nno end", "err\n")
    assert headway("logs", number, "--stream", "stderr") == Ran(0, "", "err\n")
    assert headway("logs", number, "-f") == Ran(0, "out\nno end", "err\n")


def test_lines_of_several_tasks_begin_with_their_numbers(headway: Any) -> None:
    number = submitted(
        headway, "--tasks", 3, "--", "sh", "-c", "echo {i} a; printf '{i} b'; [ {i} = 1 ] && echo no >&2"
    )
    headway("wait", number)
    ran = headway("logs", number)
    assert ran.out == "0: 0 a\n0: 0 b\n1: 1 a\n1: 1 b\n2: 2 a\n2: 2 b\n"
    assert ran.err == "1: no\n"
    assert headway("logs", number, "--task", 1) == Ran(0, "1 a\n1 b", "no\n")


def test_little_output_is_seen_while_the_task_runs(headway: Any, up: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    number = gated(headway, gate, "echo begun", "echo over")
    until(lambda: Path(f"{gate}.0").exists())
    until(lambda: headway("logs", number) == Ran(0, "begun\n", ""))
    folder = up.data / "engine" / "output" / str(number)
    assert [path.name for path in folder.iterdir()] == ["0.1.out"]
    gate.unlink()
    assert headway("wait", number).status == 0
    assert headway("logs", number) == Ran(0, "begun\nover\n", "")
    assert list(folder.iterdir()) == []  # what fits into the result has no file


def test_following_prints_what_comes_until_the_end(headway: Any, up: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    number = gated(headway, gate, "seq 3", "seq 4 20000; echo err >&2")
    until(lambda: Path(f"{gate}.0").exists())
    reader = following(up, number)
    assert reader.stdout is not None
    assert [reader.stdout.readline() for _ in range(3)] == ["1\n", "2\n", "3\n"]  # before the task has ended
    assert gate.exists()
    gate.unlink()
    out, err = reader.communicate(timeout=LIMIT)
    assert (reader.returncode, err) == (0, "err\n")
    assert out == "".join(f"{line}\n" for line in range(4, 20001))


def test_following_a_job_of_many_tasks_misses_and_repeats_nothing(headway: Any, up: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    number = gated(headway, gate, "echo {i} first", "echo {i} last", "--tasks", 7)
    reader = following(up, number)
    until(lambda: Path(f"{gate}.1").exists())
    gate.unlink()
    out, err = reader.communicate(timeout=LIMIT)
    assert (reader.returncode, err) == (0, "")
    assert sorted(out.splitlines()) == sorted(f"{i}: {i} {word}" for i in range(7) for word in ("first", "last"))


def test_processes_of_a_gang_are_told_apart(headway: Any, up: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    number = gated(headway, gate, "echo {i} first", "echo {i} last", "--tasks", 2, "--together")
    reader = following(up, number)
    until(lambda: Path(f"{gate}.1").exists())
    until(lambda: sorted(headway("logs", number).out.splitlines()) == ["0: 0 first", "1: 1 first"])
    gate.unlink()
    out, _ = reader.communicate(timeout=LIMIT)
    assert sorted(out.splitlines()) == ["0: 0 first", "0: 0 last", "1: 1 first", "1: 1 last"]


def test_a_task_that_is_tried_again_is_told_from_its_beginning(headway: Any, up: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    number = gated(headway, gate, 'echo "try $HEADWAY_ATTEMPT"', "[ $HEADWAY_ATTEMPT = 2 ]", "--retries", 1)
    reader = following(up, number)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "try 1\n"
    gate.unlink()
    out, _ = reader.communicate(timeout=LIMIT)
    assert (reader.returncode, out) == (0, "try 2\n")


def test_bad_input_and_a_job_that_waits_are_said(headway: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = gated(headway, gate, "true", "true", "--tasks", 2)
    waiting = submitted(headway, "--after", first, "true")
    assert headway("logs", waiting) == Ran(0, "", f"Job {waiting} is held: nothing of it has run yet.\n")
    wrong = headway("logs", waiting, "--task", 1)
    assert (wrong.status, wrong.err) == (2, f"Error: --task is 1; allowed: 0, the only task of job {waiting}\n")
    assert "there is no job 9999" in headway("logs", 9999).err
    gate.unlink()
    assert headway("wait", waiting).status == 0


def test_from_python_as_bytes_from_an_offset_on(headway: Any, up: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    number = gated(headway, gate, "echo begun", "exit 0")
    until(lambda: Path(f"{gate}.0").exists())
    with Client(data=up.data) as client:

        def read(**how: Any) -> bytes:
            file = io.BytesIO()
            client.output(number, file, **how)
            return file.getvalue()

        until(lambda: read() == b"begun\n")
        assert read(offset=2, attempt=1) == b"gun\n"
        with pytest.raises(Refused, match="there is no result of task 0"):
            read(attempt=2)
        with pytest.raises(Refused, match="rank"):
            read(rank=0)
        os.unlink(gate)
        client.wait(client.attach(number), timeout=LIMIT)
        assert read(offset=2, attempt=1) == b"gun\n"
        with pytest.raises(Refused, match=f"attempt 2 at task 0 of job {number} is over"):
            read(attempt=2)
