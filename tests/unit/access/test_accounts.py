"""As which account the tasks of users run."""

from __future__ import annotations

import pytest

from headway.access.accounts import Accounts
from headway.errors import HeadwayError, InvalidInput


def test_each_user_of_a_submission_is_looked_up_once_and_the_first_that_cannot_run_is_named() -> None:
    asked = []

    def check(account: str) -> None:
        asked.append(account)
        if account == "gone":
            raise HeadwayError("it has left")

    accounts = Accounts(lambda user: {"bob": "robert", "eve": "gone"}.get(user, user), check)
    assert accounts.of("bob") == "robert"
    accounts.check(["ann", "bob", "ann", "bob"])
    assert asked == ["ann", "robert"]
    with pytest.raises(InvalidInput, match=r"jobs\[2\].user is 'eve'; .* 'gone' cannot be that: it has left") as wrong:
        accounts.check(["ann", "ann", "eve"])
    assert "--user eve --account NAME" in wrong.value.hint
