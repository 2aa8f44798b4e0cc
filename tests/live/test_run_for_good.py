"""The how-to of a permanent server: its units are right, and its commands work for a new account."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from configparser import RawConfigParser
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..waiting import LIMIT, free_port, until
from .conftest import python_for

pytestmark = pytest.mark.thorough

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "run-a-server-for-good.md").read_text()

UNITS = dict(re.findall(r"`/etc/systemd/system/([a-z.-]+)`:\n\n```ini\n(.*?)```", PAGE, re.DOTALL))

PROGRAM = "/opt/headway/bin/headway"

root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("useradd") is None, reason="only root can make an account (useradd)"
)


def line_of(unit: str) -> str:
    """The command that a unit starts."""
    parsed = RawConfigParser(strict=False)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their capitals
    parsed.read_string(UNITS[unit])
    return parsed["Service"]["ExecStart"].replace("%%", "%")


def shell_lines(program: str) -> list[str]:
    """Lines of the page's shell blocks that begin with this program."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith(program)]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("changed", [("", ""), ("Restart=on-failure", "Restrat=on-failure")])
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path, changed: tuple[str, str]) -> None:
    assert sorted(UNITS) == ["headway-backup.service", "headway-backup.timer", "headway.service"]
    program = tmp_path / "headway"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name, text in UNITS.items():
        (tmp_path / name).write_text(text.replace(PROGRAM, str(program)).replace(*changed))
    done = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / name) for name in UNITS)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if changed[0]:  # an error would be found
        assert "Restrat" in done.stderr
    else:
        assert (done.returncode, done.stderr) == (0, "")


class Account:
    """A new account, and what the page does with it."""

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.home = home
        self.port = free_port()

    def words(self, line: str) -> list[str]:
        """A command of the page as words, for this account, its home and a free port."""
        line = line.replace("/var/lib/headway", str(self.home)).replace("8421", str(self.port))
        return shlex.split(line.replace(PROGRAM, shlex.join([sys.executable, "-m", "headway"])))

    def start(self, line: str, **how: Any) -> subprocess.Popen[str]:
        """Start a command as systemd would: as the account, in its home, with hardly any environment."""
        found = pwd.getpwnam(self.name)
        passed = ("LD_LIBRARY_PATH", "PYTHONPATH", "LANG")  # so that the Python of this test finds its packages
        environment = {name: os.environ[name] for name in passed if name in os.environ}
        environment |= {"PATH": os.defpath, "HOME": str(self.home), "USER": self.name, "LOGNAME": self.name}
        return subprocess.Popen(
            self.words(line),
            user=found.pw_uid,
            group=found.pw_gid,
            extra_groups=[],
            cwd=self.home,
            env=environment,
            text=True,
            **how,
        )

    def run(self, line: str) -> str:
        """Run a command that must succeed. Returns what it prints."""
        process = self.start(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, err
        return out

    @contextmanager
    def server(self) -> Iterator[str]:
        """The server of the unit, stopped as systemd does it. Gives its URL when it answers."""
        with (self.home.parent / "log").open("a+") as log:
            process = self.start(line_of("headway.service"), stdout=log, stderr=log)
            try:
                url = f"http://127.0.0.1:{self.port}"

                def answers_or_ended() -> bool:
                    log.seek(0)
                    assert process.poll() is None, log.read()
                    return answers(url)

                until(answers_or_ended)
                yield url
                process.send_signal(signal.SIGTERM)
                assert process.wait(LIMIT) == 0
            finally:
                process.kill()
                process.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=LIMIT) as answer:
            return bool(json.load(answer)["version"])
    except OSError:
        return False


@pytest.fixture
def account() -> Iterator[Account]:
    """An account made with the page's own command, and removed completely afterwards."""
    place = Path(tempfile.mkdtemp(prefix="headway-account-", dir="/tmp"))
    place.chmod(0o755)
    name, home = f"headway-t{os.getpid()}", place / "home"
    (line,) = shell_lines("useradd")
    words = shlex.split(line.replace("/var/lib/headway", str(home)))
    assert words[-1] == "headway"
    subprocess.run([*words[:-1], name], check=True, timeout=LIMIT)
    try:
        with python_for(name):
            yield Account(name, home)
    finally:
        subprocess.run(["userdel", name], check=True, timeout=LIMIT)
        if name in {group.gr_name for group in grp.getgrall()}:
            subprocess.run(["groupdel", name], check=True, timeout=LIMIT)
        shutil.rmtree(place)


@root
def test_the_lines_of_the_page_work_as_an_account_that_was_just_made(account: Account) -> None:
    data = account.home / "data"
    with account.server() as url:
        assert (data / "url").read_text().strip() == url
        assert data.stat().st_mode & 0o777 == 0o700
        assert (data / "token").stat().st_uid == pwd.getpwnam(account.name).pw_uid
        said = account.run(f"{PROGRAM} submit --data /var/lib/headway/data --wait -- sh -c 'id -un; pwd'")
        assert said == f"{account.name}\n{account.home}\n"
        (making,) = (line for line in shell_lines("runuser") if "mkdir" in line)
        account.run(making.partition(" -- ")[2])
        account.run(line_of("headway-backup.service"))
        (backup,) = (account.home / "backups").iterdir()
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", backup.name)
        account.run(f"{PROGRAM} check {backup}")
    with account.server() as again:
        assert again == url
        for line in shell_lines("runuser"):
            if "mkdir" not in line:
                account.run(line.partition(" -- ")[2])
        (job,) = json.loads(account.run(f"{PROGRAM} jobs --json --data /var/lib/headway/data"))
        assert job["status"] == "succeeded"
