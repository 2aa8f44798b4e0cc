"""Files that commands write: their names and folders are seen to before anything is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.pictures import canvas

WRITERS = [
    ("whatif", "--policy", "edf", "--out", "a.svg"),
    ("profile", "x", "--out", "a.svg"),
    ("history", "--schedule", "a.csv"),
    ("rerun", "--policy", "edf", "--schedule-tasks", "a.csv"),
    ("workload", "lublin99", "--out", "a.swf"),
    ("workload", "dn13", "--cluster", "a.toml"),
    ("download", "headway:x", "a"),
]
"""Commands that end with the name of the file. None has what it needs besides, so each would fail later otherwise."""


@pytest.mark.parametrize("words", WRITERS, ids=lambda words: " ".join(words[:2]))
def test_a_folder_that_does_not_exist_is_told_first(headway: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    path = tmp_path / "no" / words[-1]
    ran = headway(*words[:-1], path)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == f"Error: cannot write {path}: there is no folder {path.parent}\nMake it, or name another.\n"


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (("whatif", "--policy", "edf", "--out"), ".png, .svg, .pdf"),
        (("profile", "x", "--out"), ".png, .svg, .pdf"),
        (("workload", "lublin99", "-o"), ".swf, .swf.gz, .csv, .csv.gz"),
        (("workload", "dn13", "--out"), ".json, .json.gz"),
    ],
    ids=lambda words: " ".join(words[:2]) if isinstance(words, tuple) else "",
)
def test_so_is_a_name_of_which_no_format_is_made(
    headway: Any, tmp_path: Path, words: tuple[str, ...], allowed: str
) -> None:
    path = tmp_path / "a.gif"
    ran = headway(*words, path)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("Error: --out is '")
    assert ran.err.endswith(f"allowed: a name that ends in one of {allowed}\n")
    assert not path.exists()


def test_so_is_that_there_is_nothing_to_draw_with(
    headway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canvas, "find_spec", lambda name: None)
    ran = headway("whatif", "--policy", "edf", "--out", tmp_path / "a.PNG")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("Error: pictures need matplotlib\n")
