"""Users of a real server: tokens by commands, over restarts and backups, and jobs of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import Client, HeadwayExecutor, Job, Service, Task
from headway.errors import HeadwayError, Refused

from ..waiting import LIMIT, until
from .conftest import ONE_NODE, Up, headway


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """A server for one test."""
    server = Up(tmp_path, ONE_NODE)
    server.start()
    yield server
    server.stop()


def made(up: Up, user: str, role: str, *words: str) -> str:
    ran = headway("token", "create", "--user", user, "--role", role, *words, "--data", up.data)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_tokens_are_made_listed_and_revoked_by_commands(up: Up) -> None:
    assert "There are no tokens" in headway("token", "list", "--data", up.data).stdout
    token = made(up, "ann", "submitter", "--expires", "30d")
    assert token.startswith("hw_")
    table = headway("token", "list", "--data", up.data)
    assert "ann" in table.stdout
    assert token not in table.stdout
    [listed] = json.loads(headway("token", "list", "--json", "--data", up.data).stdout)
    assert (listed["user"], listed["role"], listed["valid"]) == ("ann", "submitter", True)
    assert listed["expires"] - listed["created"] == pytest.approx(30 * 86_400)
    with Client(up.url, token=token) as client:
        assert client.myself().user == "ann"
        ran = headway("token", "revoke", listed["id"], "--data", up.data)
        assert (ran.returncode, ran.stdout) == (0, f"Revoked: {listed['id']}.\n")
        with pytest.raises(Refused, match="not the one of this server"):
            client.jobs()
    again = headway("token", "revoke", listed["id"], "--data", up.data)
    assert (again.returncode, "there is no token" in again.stderr) == (2, True)
    for words, said in [
        (("--user", "a b", "--role", "viewer"), "user is 'a b'"),
        (("--user", "ann", "--role", "king"), "king"),
        (("--user", "ann", "--role", "viewer", "--expires", "0"), "--expires"),
    ]:
        ran = headway("token", "create", *words, "--data", up.data)
        assert (ran.returncode, said in ran.stderr) == (2, True), ran.stderr


def test_tokens_outlive_a_restart_and_a_backup_but_not_their_revocation(up: Up, tmp_path: Path) -> None:
    token, other = made(up, "ann", "submitter"), made(up, "bob", "viewer")
    assert headway("backup", tmp_path / "backup", "--data", up.data).returncode == 0
    up.stop()
    up.start()
    with Client(up.url, token=token) as client:
        assert client.jobs() == []
    [number] = [one["id"] for one in json.loads(headway("token", "list", "--json", "--data", up.data).stdout)][:1]
    assert headway("token", "revoke", number, "--data", up.data).returncode == 0
    up.stop()
    assert headway("restore", tmp_path / "backup", up.data).returncode == 0
    up.start()
    with pytest.raises(HeadwayError, match="not the one of this server"):
        Client(up.url, token=token)
    with Client(up.url, token=other) as client:
        assert client.myself().user == "bob"
    up.stop()
    elsewhere = tmp_path / "elsewhere"
    assert headway("restore", tmp_path / "backup", elsewhere).returncode == 0
    up.data = elsewhere
    up.start()
    with Client(up.url, token=token) as client:  # as of the backup
        assert client.myself().user == "ann"


def test_users_work_side_by_side_and_the_audit_says_who_did_what(up: Up) -> None:
    ann, bob, eve = made(up, "ann", "submitter"), made(up, "bob", "submitter"), made(up, "eve", "viewer")
    with Client(up.url, token=ann) as client, Client(up.url, token=bob) as other, Client(up.url, token=eve) as viewer:
        waiter = client.submit(Job("hers", [Task(pow, 2, 5)]))
        assert waiter.result(LIMIT) == [32]
        job = waiter.job
        assert job is not None
        assert client.job(job).job.user == "ann"
        with HeadwayExecutor(client) as executor:
            assert executor.submit(pow, 3, 2).result(LIMIT) == 9
        assert other.job(job).job.name == "hers"  # what there is everybody sees
        service = client.serve(Service("hers-too", pow))
        for caller, handler in ((client, "pow"), (viewer, "")):
            [listed] = caller.services()
            assert (listed.user, listed.handler, caller.service("hers-too").handler) == ("ann", handler, handler)
        client.cancel(service)
        for forbidden in (
            lambda: other.results(job),
            lambda: other.clear(job),
            lambda: other.cancel(job),
            lambda: viewer.submit(Job("his", [Task(pow, 1, 1)])),
            lambda: client.drain_node("n"),
            lambda: client.tokens(),
        ):
            with pytest.raises(Refused) as refused:
                forbidden()
            assert (refused.value.status, refused.value.code) == (403, "forbidden")
        assert [task.ending.outcome.value for task in client.results(job)] == ["succeeded"]
    told = json.loads(headway("audit", "--json", "--data", up.data).stdout)
    assert {(one["by"], one["subject"], one["status"]) for one in told if one["kind"] == "refused"} == {
        ("bob", "results", 403),
        ("bob", "clear", 403),
        ("bob", "cancel", 403),
        ("eve", "submit", 403),
        ("ann", "drain_node", 403),
        ("ann", "tokens", 403),
    }
    hers = json.loads(headway("audit", "--json", "--user", "ann", "--since", "1h", "--data", up.data).stdout)
    assert {one["by"] for one in hers} == {"ann"}
    assert "job_submitted" in {one["kind"] for one in hers}
    table = headway("audit", "--data", up.data).stdout
    assert "refused 403" in table
    assert "token_created" in table


def test_quotas_of_a_file_bound_users(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("[role.submitter]\nopen_jobs = 2\nrequests_per_second = 200\n")
    server = Up(tmp_path, ONE_NODE)
    server.start("--quotas", str(quotas))
    try:
        with Client(server.url, token=made(server, "ann", "submitter")) as client:
            held = [client.submit(Job("held", [Task(pow, 2, 5)], release=3600.0)) for _ in range(2)]
            with pytest.raises(Refused, match=r"open_jobs is 3; allowed: at most 2") as refused:
                client.submit(Job("more", [Task(pow, 2, 5)]))
            assert (refused.value.code, refused.value.retry_after) == ("quota_exceeded", 30.0)
            held[0].cancel()
            until(held[0].done)
            assert client.submit(Job("more", [Task(pow, 2, 5)])).result(LIMIT) == [32]
            bounds = {bound.name: (bound.most, bound.used) for bound in client.myself().quotas}
            assert bounds == {"open_jobs": (2, 1), "requests_per_second": (200, None)}
    finally:
        server.stop()
