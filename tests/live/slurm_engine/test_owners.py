"""Attempts as jobs of Slurm that run as the accounts of their users: root submits them for others."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway import Client, Input, Job, Task
from headway.engines.base import Saved, Started
from headway.engines.local.shared.accounts import account_of
from headway.engines.slurm.engine import SlurmEngine
from headway.engines.trial import FilesInMemory, Trial, calling
from headway.errors import HeadwayError, TaskFailed
from headway.model.outcome import Outcome

from ...accounts import lacking, two_accounts
from ...slurm import Cluster
from ...waiting import LIMIT, becomes, paths_below
from ..conftest import Up
from .conftest import FOUR, SETTINGS

pytestmark = [pytest.mark.anyio, pytest.mark.thorough, pytest.mark.skipif(bool(lacking()), reason=lacking())]


@pytest.fixture(scope="module")
def users() -> Iterator[tuple[str, str]]:
    with two_accounts() as made:
        yield made


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that every user can get to, unlike pytest's own."""
    place = Path(tempfile.mkdtemp(prefix="headway-test-", dir="/tmp"))
    place.chmod(0o711)
    yield place / "shared"
    shutil.rmtree(place)


@pytest.fixture
async def trial(slurm: Cluster, root: Path, users: tuple[str, str]) -> AsyncIterator[Trial]:
    import sys

    for conf in (slurm.folder, slurm.conf):  # what runs a job reads it as the job's user
        conf.chmod(0o755 if conf.is_dir() else 0o644)
    settings = replace(SETTINGS, run_as_owner=True, python=sys.executable)
    async with Trial(SlurmEngine(root, settings), LIMIT) as trial:
        await trial.start(*FOUR)
        yield trial


async def value(trial: Trial, user: str, function: Any, *args: Any, **terms: Any) -> Any:
    return await trial.value(trial.launch(calling(function, *args), account=user, **terms))


def who() -> tuple[str, list[int], list[int]]:
    import os

    return os.environ["USER"], [*os.getresuid(), *os.getresgid()], os.getgroups()


async def test_jobs_of_slurm_run_as_their_users(trial: Trial, users: tuple[str, str]) -> None:
    for user in users:
        account = account_of(user)
        ids = [account.uid] * 3 + [account.gid] * 3
        assert await value(trial, user, who) == (user, ids, list(account.groups))
        ending = (await trial.ended(trial.command("sh", "-c", "id -un; echo $HOME", account=user))).ending
        assert ending.stdout is not None
        assert ending.stdout.tail.decode() == f"{user}\n{account.home}\n"


async def test_nothing_of_anothers_can_be_read(trial: Trial, users: tuple[str, str], root: Path) -> None:
    ann, bob = users

    def save(path: str) -> None:
        import time

        import headway

        headway.checkpoint("ann's state")
        print("x" * 20_000, flush=True)
        while not os.path.exists(path):
            time.sleep(0.01)

    door = root.parent / "door"
    key = trial.launch(calling(save, str(door)), account=ann)
    checkpoints = root / "accounts" / str(account_of(ann).uid) / "checkpoints"
    await becomes(lambda: paths_below(checkpoints, "0.1*") and paths_below(root / "output", "*.out"))
    paths = [str(path) for path in paths_below(root) if path.is_file() and path.name not in ("run", "door")]
    assert {"part", "told", "secret"} <= {Path(path).name for path in paths}
    script = 'for f in "$@"; do if cat "$f" > /dev/null 2>&1; then echo "$f"; fi; done | grep -v "/1.0.2\\|/2.0.1"'
    spy = (await trial.ended(trial.command("sh", "-c", script, "sh", *paths, account=bob))).ending
    assert spy.stdout is None
    door.touch()
    assert (await trial.ended(key)).ending.outcome is Outcome.SUCCEEDED
    assert stat.S_IMODE(checkpoints.stat().st_mode) == 0o700
    trial.disregard(Saved, Started)
    trial.engine.forget(key[0])
    await becomes(lambda: not (checkpoints / str(key[0])).exists())


async def test_what_a_user_puts_in_place_of_a_file_is_not_followed(
    trial: Trial, users: tuple[str, str], root: Path
) -> None:
    """The server is root, and reads what the job has told and printed: links must not lead it elsewhere."""
    script = 'cd "$0"/attempts/*; ln -sf /etc/shadow log; rm told; mkfifo told; kill -9 -1'
    ending = (await trial.ended(trial.command("sh", "-c", script, str(root), account=users[0]))).ending
    assert ending.outcome is not Outcome.SUCCEEDED
    assert "root:" not in ending.detail


async def test_files_of_the_server_are_for_the_user_who_names_them(
    trial: Trial, users: tuple[str, str], root: Path
) -> None:
    """Their names are secrets; who does not know them can neither list nor open what others were given."""
    ann, bob = users
    assert isinstance(trial._files, FilesInMemory)
    name = trial._files.add(b"for ann")
    files = {"inputs": {"i": f"headway:{name}/i"}, "outputs": {"o": "headway:o"}}
    script = 'cat i > o; while [ ! -e "$0" ]; do sleep 0.05; done'
    door = root.parent / "door"
    key = trial.command("sh", "-c", script, str(door), **files, account=ann, files=True, fetches=True)
    await trial.told(Started)
    (place,) = (root / "files").iterdir()
    given = place / name
    assert (stat.S_IMODE(place.stat().st_mode), stat.S_IMODE(given.stat().st_mode)) == (0o711, 0o400)
    assert given.stat().st_uid == account_of(ann).uid
    spies = f"ls {root}/files {place}; cat {given} {place}/*; ls {root}/attempts/*/kept"
    spy = (await trial.ended(trial.command("sh", "-c", spies, account=bob))).ending
    assert spy.stdout is None
    door.touch()
    ending = (await trial.ended(key)).ending
    assert ending.outcome is Outcome.SUCCEEDED
    digest = hashlib.sha256(b"for ann").hexdigest()
    assert ending.outputs == {"o": f"headway:{digest}/o"}
    ground = root / "accounts" / str(account_of(ann).uid)
    await becomes(lambda: not [*(root / "files").iterdir(), *(ground / "nodes").iterdir()])
    trial.disregard(Started)


async def test_what_has_no_account_of_its_own_is_refused(trial: Trial) -> None:
    ending = (await trial.ended(trial.command("true", account="root"))).ending
    assert (ending.outcome, "account is 'root'; allowed:" in ending.detail) == (Outcome.REFUSED, True)


def test_only_root_submits_for_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HeadwayError, match="does not run as root"):
        SlurmEngine(root, replace(SETTINGS, run_as_owner=True))


def test_uploads_and_results_of_users_go_through_a_server_whose_data_nobody_else_can_read(
    slurm: Cluster, root: Path, users: tuple[str, str]
) -> None:
    """From `headway token create` and an upload to a file that a later job of the same user takes up."""
    for conf in (slurm.folder, slurm.conf):
        conf.chmod(0o755 if conf.is_dir() else 0o644)
    up = Up(root.parent)
    up.start("--run-as-owner", "--slurm", "main", "--slurm-folder", str(root), cluster=False)
    try:
        with Client(data=up.data) as admin:
            token = admin.create_token(users[0], "submitter").token
        with Client(up.url, token=token, patience=30.0) as ann:
            mesh = ann.upload(b"mesh")
            double = Task.command("sh", "-c", "cat i i > o; id -un", inputs={"i": mesh}, outputs={"o": "headway:o"})
            job = ann.submit(Job("double", [double]))
            assert job.result(LIMIT) == [f"{users[0]}\n"]
            (result,) = ann.results(job.job)
            later = Task(lambda given: Path(given).read_bytes(), Input(result.ending.outputs["o"]))
            assert ann.submit(Job("later", [later], cwd="/")).result(LIMIT) == [b"meshmesh"]
    finally:
        up.stop()


def test_a_server_of_root_runs_jobs_of_users_who_have_an_account_as_that(
    slurm: Cluster, root: Path, users: tuple[str, str]
) -> None:
    """Without an option; their jobs never run as root, also where the folder that they need was not named."""
    for conf in (slurm.folder, slurm.conf):
        conf.chmod(0o755 if conf.is_dir() else 0o644)

    def who(user: str = "") -> Job:
        return Job("who", [Task.command("sh", "-c", "id -un | tee o", outputs={"o": "headway:o"})], user=user)

    up = Up(root.parent)
    try:
        for folder in (("--slurm-folder", str(root)), ()):
            up.start("--slurm", "main", *folder, cluster=False)
            with Client(data=up.data, patience=30.0) as admin:
                for user, account in (("", "root"), (users[0], users[0]), ("nobody-here", "root"), ("", "root")):
                    job = admin.submit(who(user))
                    if folder or account == "root":
                        assert job.result(LIMIT) == [f"{account}\n"]
                        (result,) = admin.results(job.job)
                        assert (
                            admin.download(result.ending.outputs["o"], root.parent / "got").read_text()
                            == f"{account}\n"
                        )
                        continue
                    with pytest.raises(
                        TaskFailed, match=f"to run it as '{account}', the site needs a folder of its own"
                    ):
                        job.result(LIMIT)
            up.stop()
    finally:
        up.stop()
