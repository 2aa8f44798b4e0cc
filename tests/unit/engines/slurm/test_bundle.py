"""The modules of a runner of commands in one file: used only if all is as it was when the file was made."""

from __future__ import annotations

import _imp
import asyncio
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.engines.slurm.bundle import HASH_SIZE
from headway.engines.slurm.folder import SlurmFolder
from headway.engines.slurm.jobs import BUNDLING, RUNNER_PROGRAM
from headway.engines.slurm.settings import SlurmSettings
from headway.engines.slurm.submission import SlurmSubmission

ORIGINS = """start.import_runner(functions=False)
for name, module in sys.modules.items():
    if name.startswith(("headway", "msgspec", "enum", "zlib")):
        print(name, type(module.__spec__.loader).__name__, module.__file__)"""


def bare(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-P", "-S", "-c", code, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


class Site:
    """A folder that a server and runners share, and the Headway that both use.

    Args:
        source: the folder that this Headway is in.
    """

    def __init__(self, folder: Path, source: Path) -> None:
        self.source = source
        self.bundle = folder / "root" / "bundle"
        self.attempt = folder / "root" / "attempts" / "1.2.3.0"
        self.attempt.mkdir(parents=True)
        self.write()

    def here(self, code: str) -> str:
        """A program that uses this Headway."""
        return re.sub(r"sys\.path \+= \(", f"sys.path += ({str(self.source)!r}, ", code)

    def write(self) -> None:
        """What the server does when it starts."""
        done = bare(self.here(BUNDLING), str(self.bundle))
        assert done.returncode == 0, done.stderr

    def origins(self) -> dict[str, tuple[str, str]]:
        """The loader and the file of each module that a runner has imported."""
        done = bare(self.here(RUNNER_PROGRAM).replace("start.end()", ORIGINS), str(self.attempt), "commands")
        assert done.returncode == 0, done.stderr
        found = (line.split() for line in done.stdout.splitlines())
        return {name: (loader, file) for name, loader, file in found}

    def is_used(self) -> bool:
        """Whether the modules of a runner come from the file; without it, it imports the same ones."""
        origins = self.origins()
        assert "headway.engines.slurm.runner" in origins
        loaders = {loader for loader, _ in origins.values()}
        assert loaders in ({"_Finder", "ExtensionFileLoader"}, {"SourceFileLoader", "ExtensionFileLoader"})
        return "_Finder" in loaders


HERE = Path(headway.__file__).parent


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, HERE.parent)


@pytest.fixture
def apart(tmp_path: Path) -> Site:
    """With a Headway of its own."""
    source = tmp_path / "source"
    for part in ("engines", "model"):
        shutil.copytree(HERE / part, source / "headway" / part)
    for part in ("__init__.py", "errors.py", "checkpoints.py"):
        shutil.copy(HERE / part, source / "headway" / part)
    return Site(tmp_path, source)


def test_a_runner_takes_all_its_modules_from_one_file_and_they_know_where_they_come_from(site: Site) -> None:
    bundled = site.origins()
    assert site.is_used()
    site.bundle.unlink()
    usual = site.origins()
    assert {name: file for name, (_, file) in bundled.items() if "bundle" not in name} == {
        name: file for name, (_, file) in usual.items()
    }
    assert usual["headway.engines.slurm.start"][1].startswith(str(site.source))


def damaged(content: bytes) -> bytes:
    at = len(content) // 2
    return content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :]


def of_another_python(content: bytes) -> bytes:
    body = content[HASH_SIZE:].removesuffix(sys.version.encode()) + sys.version.encode().replace(b"3.", b"4.", 1)
    return _imp.source_hash(0, body) + body


def of_no_modules(content: bytes) -> bytes:
    body = b"{0" + sys.version.encode()
    return _imp.source_hash(0, body) + body


@pytest.mark.parametrize(
    "change",
    [
        damaged,
        of_another_python,
        of_no_modules,
        lambda content: content[:-1],
        lambda content: content[:9],
        lambda _: b"",
    ],
)
def test_a_file_that_is_not_whole_or_of_another_python_is_not_used(
    site: Site, change: Callable[[bytes], bytes]
) -> None:
    site.bundle.write_bytes(change(site.bundle.read_bytes()))
    assert not site.is_used()


def test_after_an_upgrade_the_new_modules_are_imported_until_the_next_start_of_a_server(apart: Site) -> None:
    module = apart.source / "headway" / "engines" / "slurm" / "runner.py"
    module.write_text(module.read_text() + "\n# newer\n")
    assert not apart.is_used()
    apart.write()
    assert apart.is_used()
    os.utime(module, ns=(0, 1))
    assert not apart.is_used(), "a module of the same size that is of another time"


def test_modules_that_are_gone_are_not_taken_from_the_file(apart: Site) -> None:
    shutil.rmtree(apart.source)
    done = bare(apart.here(RUNNER_PROGRAM), str(apart.attempt), "commands")
    assert "attempts/1.2.3.0/part is not there" in done.stderr
    assert str(apart.source) not in done.stderr


def test_a_runner_from_the_file_can_start_again_as_one_of_functions(site: Site) -> None:
    code = site.here(RUNNER_PROGRAM).replace("start.end()", "del start._Typing.Protocol; start.end()")
    done = bare(code, str(site.attempt), "commands")
    assert "cannot import name 'Protocol' from 'typing'" in done.stderr
    assert "attempts/1.2.3.0/part is not there" in done.stderr.splitlines()[-1]


def test_a_runner_from_the_file_can_import_what_is_not_in_it(site: Site) -> None:
    code = "start.import_runner(functions=False); from headway.engines.local.slot import calls; print(calls.__file__)"
    done = bare(site.here(RUNNER_PROGRAM).replace("start.end()", code), str(site.attempt), "commands")
    assert done.stdout.strip() == str(HERE / "engines/local/slot/calls.py"), done.stderr


def submission(root: Path, **settings: Any) -> SlurmSubmission:
    folder: Any = SlurmFolder(root)
    nobody: Any = None
    return SlurmSubmission(folder, SlurmSettings("main", **settings), nobody, nobody)


def test_a_server_writes_the_file_for_every_account(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        asyncio.run(submission(tmp_path).bundle())
    finally:
        os.umask(before)
    assert [file.name for file in tmp_path.iterdir()] == ["bundle"]
    assert (tmp_path / "bundle").stat().st_mode & 0o777 == 0o644


def test_the_file_is_not_made_for_another_python(tmp_path: Path) -> None:
    asyncio.run(submission(tmp_path, python="/opt/python").bundle())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("root", ["missing", "."])
def test_a_server_that_cannot_write_the_file_says_so_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, root: str
) -> None:
    (tmp_path / "bundle").mkdir()  # nothing can be moved there
    with caplog.at_level(logging.WARNING):
        asyncio.run(submission(tmp_path / root).bundle())
    assert "runners import their modules one by one: " in caplog.text
    assert [file.name for file in tmp_path.iterdir()] == ["bundle"]
