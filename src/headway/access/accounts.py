"""Which account of the system the tasks of a user run as, where tasks run as those of their jobs' users."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headway.errors import HeadwayError, InvalidInput


class AccountsByName:
    """Finds the account of a user of whom none was said: the one of the same name, if the system has it.

    What was found first counts until the process ends, so that an account that is removed meanwhile does not let its
    user's tasks run as the server.

    Args:
        own: the user whose tasks run as the server itself.
        has: whether the system has an account of this name.

    Attributes:
        found: those that were found, by user, of all but the server's own user.
    """

    def __init__(self, own: str, has: Callable[[str], bool]) -> None:
        self.found: dict[str, str] = {}
        self._without = {own}
        self._own = own
        self._has = has

    def of(self, user: str) -> str:
        """The name of the account; empty: the user's tasks run as the server."""
        if user in self._without:
            return ""
        return self.found.get(user) or self.look(user)

    def look(self, user: str) -> str:
        """The same; if none was found before, look again."""
        if user not in self.found and user != self._own:
            if self._has(user):
                self.found[user] = user
                self._without.discard(user)
            else:
                self._without.add(user)
        return self.found.get(user, "")


class Accounts:
    """The accounts of users.

    Args:
        name_of: the name of a user's account; empty: the user's tasks run as the server.
        check: raises a `HeadwayError` if tasks cannot run as the account of this name.
        prepare: called before the first task runs as an account; raises a `HeadwayError` if none can.
    """

    def __init__(
        self, name_of: Callable[[str], str], check: Callable[[str], object], prepare: Callable[[], None] = lambda: None
    ) -> None:
        self._name_of = name_of
        self._check = check
        self._prepare = prepare
        self._is_prepared = False

    def of(self, user: str) -> str:
        """The name of a user's account; empty: the user's tasks run as the server."""
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
            if not account:
                continue
            try:
                self._check(account)
                if not self._is_prepared:
                    self._prepare()
                    self._is_prepared = True
            except HeadwayError as error:
                allowed = f"a user whose tasks can run as an account of their own; {account!r} cannot be that: {error}"
                hint = f"`headway token create --user {user} --account NAME` says which account is theirs."
                raise InvalidInput(f"jobs[{place}].user", user, allowed, hint=hint) from error
