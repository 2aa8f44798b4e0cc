"""A server of an ordinary user of the site: nothing of it needs root, and all of it runs as this user."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.engines.local.shared.accounts import account_of

from ...accounts import lacking, two_accounts
from ...slurm import Cluster
from ...waiting import LIMIT, until

pytestmark = [pytest.mark.thorough, pytest.mark.skipif(bool(lacking()), reason=lacking())]


class Person:
    """Somebody with an account at the site, and a folder that its nodes share.

    Attributes:
        server: the process of the server that was started last.
    """

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.home = home
        self.server: subprocess.Popen[bytes] | None = None
        known = {key: os.environ[key] for key in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if key in os.environ}
        self._environment = {**known, "HOME": str(home), "HEADWAY_DATA_DIR": str(home / "data"), "USER": name}

    def headway(self, *words: object) -> str:
        """What a command prints."""
        done = subprocess.run(self._command(words), **self._terms(), capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def up(self) -> None:
        """Start the server, and return when it answers."""
        words = ("up", "--json", "--slurm", "main", "--slurm-folder", self.home / "shared")
        with (self.home / "log").open("ab") as log:
            self.server = subprocess.Popen(self._command(words), **self._terms(), stdout=subprocess.PIPE, stderr=log)
        assert self.server.stdout is not None
        with self.server.stdout as said:
            assert said.readline(), (self.home / "log").read_text()

    def end(self, number: int) -> None:
        """End the server."""
        if self.server is not None and self.server.poll() is None:
            self.server.send_signal(number)
            self.server.wait(LIMIT)

    def _command(self, words: tuple[object, ...]) -> list[str]:
        return [sys.executable, "-m", "headway", *map(str, words)]

    def _terms(self) -> dict[str, object]:
        account = account_of(self.name)
        return {
            "user": account.uid,
            "group": account.gid,
            "extra_groups": [],
            "cwd": self.home,
            "env": {**self._environment, "SLURM_CONF": os.environ["SLURM_CONF"]},
        }


@pytest.fixture
def ann(slurm: Cluster) -> Iterator[Person]:
    for conf in (slurm.folder, slurm.conf):  # every user of a site can read it
        conf.chmod(0o755 if conf.is_dir() else 0o644)
    home = Path(tempfile.mkdtemp(prefix="headway-test-", dir="/tmp"))
    with two_accounts() as (name, _):
        account = account_of(name)
        os.chown(home, account.uid, account.gid)
        person = Person(name, home)
        yield person
        person.end(signal.SIGTERM)
    shutil.rmtree(home)


def test_a_user_runs_a_server_and_its_jobs_run_as_the_user(ann: Person) -> None:
    ann.up()
    assert ann.server is not None
    assert Path(f"/proc/{ann.server.pid}").stat().st_uid == account_of(ann.name).uid
    assert ann.headway("submit", "--wait", "--", "id", "-un") == f"{ann.name}\n"
    wide = ("submit", "--wait", "--together", "--tasks", 6, "--", "sh", "-c", "id -un; echo $SLURM_JOB_USER")
    assert ann.headway(*wide).split() == [ann.name] * 12


def test_what_runs_when_the_server_dies_is_adopted_by_the_next_one_and_can_be_cancelled(ann: Person) -> None:
    ann.up()
    door = ann.home / "door"
    waits = f"touch {door}.{{i}}; while [ ! -e {door} ]; do sleep 0.05; done; echo done"
    job = int(ann.headway("submit", "--tasks", 2, "--", "sh", "-c", waits))
    other = int(ann.headway("submit", "--", "sleep", 600))
    until(lambda: (ann.home / "door.0").exists() and (ann.home / "door.1").exists())
    ann.end(signal.SIGKILL)
    ann.up()
    door.touch()
    assert ann.headway("result", job, "--wait") == "done\ndone\n"
    told = json.loads(ann.headway("job", job, "--json"))["job"]
    assert (told["status"], told["failed"]) == ("succeeded", 0)
    ann.headway("cancel", other)
    until(lambda: json.loads(ann.headway("job", other, "--json"))["job"]["status"] == "cancelled")
