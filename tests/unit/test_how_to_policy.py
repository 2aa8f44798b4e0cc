"""The how-to on own policies, followed word for word in a new folder and a new virtual environment."""

from __future__ import annotations

import json
import os
import re
import shlex
import site
import subprocess
import venv
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "add-a-policy.md").read_text("utf-8")
JOBS = "".join(
    f"{job} {job} -1 100 {width} -1 -1 {width} 100 -1 1 1 1 -1 -1 -1 -1 -1\n"
    for job, width in enumerate((64, 100, 32, 65, 128, 1), 1)
)

pytestmark = pytest.mark.long


def block(marker: str, language: str = "") -> str:
    """The first fenced block of the page that contains these words."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return next(text for known, text in blocks if known == language and marker in text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the page tells to write, and an environment with Headway in `.venv`."""
    folder = tmp_path_factory.mktemp("how-to")
    venv.create(folder / ".venv", with_pip=False, symlinks=True)
    (own,) = (folder / ".venv").glob("lib/python*/site-packages")
    (own / "development.pth").write_text("".join(f"{path}\n" for path in (*site.getsitepackages(), ROOT / "src")))
    (folder / "my_policies.py").write_text(block("# my_policies.py", "python"))
    (folder / "pyproject.toml").write_text(block("[build-system]", "toml"))
    (folder / "log.swf").write_text(f"; MaxProcs: 128\n{JOBS}")
    return folder


def follow(folder: Path, line: str) -> str:
    """Run a line of the page. Nothing is downloaded."""
    program, *words = shlex.split(line)
    env = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")},
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "false",  # which means: none
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    python = folder / ".venv" / "bin" / "python"
    done = subprocess.run(
        [python, "-m", program, *words], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_policy_is_tried_from_its_file(folder: Path) -> None:
    (line,) = block("my_policies.py:WidestFit").splitlines()
    (easy, mine) = json.loads(follow(folder, f"{line} --json"))
    assert mine["policy"] == "my_policies.py:WidestFit,most=64"
    assert (easy["metrics"]["jobs_succeeded"], mine["metrics"]["jobs_succeeded"]) == (6, 3), "three are wider than 64"


def test_it_is_passed_as_an_object(folder: Path) -> None:
    (folder / "try.py").write_text(block("from my_policies import", "python"))
    python = folder / ".venv" / "bin" / "python"
    done = subprocess.run([python, "try.py"], cwd=folder, capture_output=True, text=True, check=True, timeout=300)
    assert float(done.stdout) >= 0


@pytest.mark.thorough
@pytest.mark.skipif(int(version("setuptools").split(".")[0]) < 71, reason="an older setuptools builds nothing alone")
def test_it_is_installed_and_used_by_name(folder: Path) -> None:
    (line,) = block("pip install").splitlines()
    follow(folder, line)
    listing, comparison, live = block("headway policies").splitlines()
    told = {one["policy"]: one for one in json.loads(follow(folder, f"{listing} --json"))}
    assert told["widest_fit"]["parameters"] == {"most": 0}
    assert told["widest_fit"]["summary"].startswith("Start the rigid jobs that fit now, widest first")
    (_, mine) = json.loads(follow(folder, f"{comparison} --json"))
    assert (mine["policy"], mine["metrics"]["jobs_succeeded"]) == ("widest_fit:most=64", 3)
    assert live == "headway policy widest_fit"
