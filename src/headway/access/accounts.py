"""Which account of the system the tasks of a user run as, where each task runs as that of its job's user."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headway.errors import HeadwayError, InvalidInput


class Accounts:
    """The accounts of users.

    Args:
        name_of: the name of a user's account.
        check: raises a `HeadwayError` if tasks cannot run as the account of this name.
    """

    def __init__(self, name_of: Callable[[str], str], check: Callable[[str], object]) -> None:
        self._name_of = name_of
        self._check = check

    def of(self, user: str) -> str:
        """The name of a user's account."""
        return self._name_of(user)

    def check(self, users: Iterable[str]) -> None:
        """Check that tasks of these users can run: users of the jobs of a submission, in order.

        Raises:
            InvalidInput: they cannot.
        """
        checked = set[str]()
        for place, user in enumerate(users):
            if user in checked:
                continue
            checked.add(user)
            account = self.of(user)
            try:
                self._check(account)
            except HeadwayError as error:
                allowed = f"a user whose tasks can run as an account of their own; {account!r} cannot be that: {error}"
                hint = f"`headway token create --user {user} --account NAME` says which account is theirs."
                raise InvalidInput(f"jobs[{place}].user", user, allowed, hint=hint) from error
