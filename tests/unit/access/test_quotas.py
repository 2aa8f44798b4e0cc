"""Quotas: what their file says, and how a user is held to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.access.quotas import Meters, Quota, Quotas, read_quotas
from headway.access.tokens import TokenOwner
from headway.errors import HeadwayError, QuotaExceeded, TooOften
from headway.wire import Role

ANN = TokenOwner("ann", Role.SUBMITTER)


def test_a_users_own_table_counts_before_that_of_the_role(tmp_path: Path) -> None:
    file = tmp_path / "quotas.toml"
    file.write_text(
        "[role.submitter]\nopen_jobs = 10\nrequests_per_second = 2.5\n[user.ann]\nopen_jobs = 5\n[user.'b.c']\n"
    )
    quotas = read_quotas(file)
    assert quotas.of("ann", Role.SUBMITTER) == Quota(5, None, None, 2.5)
    assert quotas.of("bob", Role.SUBMITTER) == Quota(10, None, None, 2.5)
    assert quotas.of("ann", Role.OPERATOR) == Quota(5)
    assert quotas.of("b.c", Role.VIEWER) == Quota()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n[roles.submitter]\n", "quotas.toml:2: table is 'roles'"),
        ("role = 1\n", "quotas.toml:1: table is 'role'"),
        ("[role.submiter]\n", "quotas.toml:1: role is 'submiter'; allowed: viewer, submitter"),
        ("[role.viewer]\nopen_job = 1\n", r"quotas.toml:2: role.viewer.open_job is 1; allowed: only open_jobs"),
        ("[user.ann]\n\nopen_jobs = -1\n", r"quotas.toml:3: user.ann.open_jobs is -1; allowed: a whole number"),
        ("[user.ann]\nopen_jobs = 1.5\n", "user.ann.open_jobs is 1.5"),
        ("[user.ann]\nopen_jobs = true\n", "user.ann.open_jobs is True"),
        ("[user.ann]\nrequests_per_second = 0\n", "0.1 or more"),
        ("[user]\nann = 3\n", "user.ann is 3"),
        ("[user.ann]\n[user.'a b']\n", "quotas.toml:2: user is 'a b'; allowed: a name of up to 64 letters"),
        ('[user.""]\n', "quotas.toml:1: user is ''; allowed: a name"),
        ('[user]\n"a/b".open_jobs = 1\n', "quotas.toml: user is 'a/b'; allowed: a name"),
        ("[user.ann]\nslots = 1\n[user.bob]\nslots = -1\n", "quotas.toml:4: user.bob.slots is -1; allowed: a whole"),
        ("[", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "quotas.toml"
    file.write_text(text)
    with pytest.raises(HeadwayError, match=said):
        read_quotas(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match=r"cannot read .*quotas\.toml"):
        read_quotas(tmp_path / "quotas.toml")


def test_requests_are_allowed_at_their_rate_and_after_a_pause_a_few_more() -> None:
    now = [0.0]
    meters = Meters(Quotas({Role.SUBMITTER: Quota(requests_per_second=10)}), lambda user: (0, 0, 0, 0), lambda: now[0])
    assert [meters.may_ask(ANN) for _ in range(20)] == [0.0] * 20
    assert meters.may_ask(ANN) == pytest.approx(0.1)
    with pytest.raises(TooOften) as refused:
        meters.check_rate(ANN)
    assert refused.value.retry_after == pytest.approx(0.1)
    now[0] = 0.5
    assert [meters.may_ask(ANN) for _ in range(5)] == [0.0] * 5
    assert meters.may_ask(ANN) > 0
    assert meters.may_ask(TokenOwner("bob", Role.OPERATOR)) == 0.0


def test_open_jobs_and_tasks_are_bounded() -> None:
    held = {"ann": (2, 8, 0, 0)}
    meters = Meters(Quotas({Role.SUBMITTER: Quota(open_jobs=3, open_tasks=10)}), lambda user: held[user])
    meters.check_more(ANN, 1, 2)
    with pytest.raises(QuotaExceeded, match="open_jobs is 4; allowed: at most 3") as refused:
        meters.check_more(ANN, 2, 2)
    assert (refused.value.field, refused.value.value, refused.value.limit) == ("open_jobs", 4, 3)
    assert refused.value.retry_after == 30.0
    with pytest.raises(QuotaExceeded, match="open_tasks is 11"):
        meters.check_more(ANN, 1, 3)
    with pytest.raises(QuotaExceeded, match="open_tasks is 19") as never:
        meters.check_more(ANN, 1, 11)
    assert never.value.retry_after is None


def test_kept_output_is_looked_at_when_the_next_job_comes() -> None:
    held = {"ann": (0, 0, 1000, 0)}
    meters = Meters(Quotas({}, {"ann": Quota(kept_output=1000)}), lambda user: held[user])
    meters.check_more(ANN, 1, 1)
    held["ann"] = (0, 0, 1001, 0)
    with pytest.raises(QuotaExceeded, match="kept_output is 1001; allowed: at most 1000 for user 'ann'") as refused:
        meters.check_more(ANN, 1, 1)
    assert refused.value.retry_after == 30.0
    assert [(bound.name, bound.used) for bound in meters.bounds(ANN)] == [("kept_output", 1001.0)]
