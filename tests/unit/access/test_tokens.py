"""Tokens as their file has them: hashes, roles, ends; and what becomes of a file that is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.access.accounts import AccountsByName
from headway.access.tokens import EXPIRED_KEPT, Tokens
from headway.errors import HeadwayError, NoSuchToken
from headway.wire import NewToken, Role


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(tokens: Tokens, user: str, role: Role = Role.SUBMITTER, expires: float | None = None) -> tuple[bytes, str]:
    made, write = tokens.create(NewToken(user, role, expires), "root")
    write()
    tokens.use()
    return made.token.encode(), made.about.id


def test_a_token_outlives_a_restart_and_is_stored_as_a_hash(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    token, number = make(Tokens("t", "root", file), "ann")
    again = Tokens("t", "root", file)
    owner = again.owner(token)
    assert owner is not None
    assert (owner.name, owner.role, owner.token, owner.scope) == ("ann", Role.SUBMITTER, number, "ann/")
    assert token not in file.read_bytes()
    assert again.owner(token[:-1]) is None
    own = again.owner(b"t")
    assert own is not None
    assert (own.name, own.role, own.scope) == ("root", Role.ADMINISTRATOR, "")


def test_a_token_is_valid_only_when_it_is_durable(tmp_path: Path) -> None:
    tokens = Tokens("t", "root", tmp_path / "tokens.json")
    made, write = tokens.create(NewToken("ann", Role.VIEWER), "root")
    assert tokens.owner(made.token.encode()) is None
    write()
    tokens.use()
    assert tokens.owner(made.token.encode()) is not None


def test_a_token_ends_at_its_time_and_is_forgotten_later(tmp_path: Path) -> None:
    clock = Clock()
    tokens = Tokens("t", "root", tmp_path / "tokens.json", now=clock)
    token, number = make(tokens, "ann", expires=60.0)
    owner = tokens.owner(token)
    assert owner is not None
    assert owner.is_valid
    clock.now += 60.0
    assert tokens.owner(token) is None
    assert not owner.is_valid
    assert tokens.why_not(token) == f"token {number} of user 'ann' has expired"
    assert [(one.user, one.valid) for one in tokens.reports()] == [("ann", False)]
    clock.now += EXPIRED_KEPT
    make(tokens, "bob")
    assert [one.user for one in tokens.reports()] == ["bob"]


def test_a_revoked_token_is_unknown_and_its_owner_knows(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    tokens = Tokens("t", "root", file)
    token, number = make(tokens, "ann")
    other, _ = make(tokens, "ann")
    owner = tokens.owner(token)
    assert owner is not None
    tokens.revoke(number)()
    assert tokens.use() == [owner]
    assert not owner.is_valid
    assert tokens.owner(token) is None
    assert tokens.owner(other) is not None
    assert Tokens("t", "root", file).owner(token) is None
    with pytest.raises(NoSuchToken, match=number):
        tokens.revoke(number)


@pytest.mark.parametrize(
    "text", ["", "{", '{"tokens": [{"id": "1"}]}', '{"tokens": [], "more": 1}', '{"tokens": "x"}', "\udcff"]
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(HeadwayError, match=r"tokens\.json has no tokens that can be read"):
        Tokens("t", "root", file)


def test_a_hash_of_another_length_is_no_hash(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    make(Tokens("t", "root", file), "ann")
    text = file.read_text()
    begin = text.index('"hash": "') + len('"hash": "')
    file.write_text(text[:begin] + "00" + text[begin + 64 :])
    with pytest.raises(HeadwayError, match="is none of SHA-256"):
        Tokens("t", "root", file)


def test_the_account_of_a_user_outlives_the_token_that_named_it(tmp_path: Path) -> None:
    """Jobs of that user may still wait, and must not run as whoever has the user's name."""
    file = tmp_path / "tokens.json"
    tokens = Tokens("t", "root", file)
    make(tokens, "ann")
    assert tokens.account("ann") == "ann"
    assert "accounts" not in file.read_text()  # so that an older Headway can read it
    made, write = tokens.create(NewToken("ann", Role.VIEWER, account="guest"), "root")
    assert tokens.account("ann") == "ann"  # not before it is written
    write()
    tokens.use()
    assert (made.about.account, tokens.account("ann"), tokens.account("bob")) == ("guest", "guest", "bob")
    assert [report.account for report in tokens.reports()] == ["guest", "guest"]
    for report in tokens.reports():
        tokens.revoke(report.id)()
        tokens.use()
    assert Tokens("t", "root", file).account("ann") == "guest"
    assert '"format": 2' in file.read_text()
    make(tokens, "ann")
    assert tokens.account("ann") == "guest"


# Accounts of users of whom none was said


def test_an_account_that_was_found_stays_its_users_when_the_system_has_it_no_more(tmp_path: Path) -> None:
    """Else what waits of a user whose account is removed would run as the server."""
    file, there = tmp_path / "tokens.json", {"ann", "root"}
    tokens = Tokens("t", "root", file, by_name=AccountsByName("root", there.__contains__))
    make(tokens, "ann")
    assert not tokens.finds
    there.clear()
    again = Tokens("t", "root", file, by_name=AccountsByName("root", there.__contains__))
    assert [again.account(user) for user in ("ann", "bob", "root")] == ["ann", "", ""]


def test_an_account_that_was_found_at_a_submission_is_kept_on_request(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    tokens = Tokens("t", "root", file, by_name=AccountsByName("root", {"ann"}.__contains__))
    assert tokens.account("bob") == ""
    assert not tokens.finds
    assert tokens.account("ann") == "ann"
    assert tokens.finds
    tokens.keep()()
    tokens.use()
    assert not tokens.finds
    assert Tokens("t", "root", file).account("ann") == "ann"


def test_an_account_that_was_made_later_counts_from_the_next_token_on(tmp_path: Path) -> None:
    there = set[str]()
    tokens = Tokens("t", "root", tmp_path / "tokens.json", by_name=AccountsByName("root", there.__contains__))
    make(tokens, "ann")
    there.add("ann")
    assert [one.account for one in tokens.reports()] == [""]
    make(tokens, "ann")
    assert [one.account for one in tokens.reports()] == ["ann", "ann"]


def test_an_account_that_was_said_counts_before_that_of_the_same_name(tmp_path: Path) -> None:
    tokens = Tokens("t", "root", tmp_path / "tokens.json", by_name=AccountsByName("root", {"ann"}.__contains__))
    _, write = tokens.create(NewToken("ann", Role.SUBMITTER, account="physics"), "root")
    write()
    tokens.use()
    assert tokens.account("ann") == "physics"
