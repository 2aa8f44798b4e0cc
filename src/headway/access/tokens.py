"""The tokens of users, by their hashes: the file of the data directory that has them, and who owns which.

A token has 256 random bits, so a plain SHA-256 of it tells nobody what it is. The file is written whole, before
anything that follows from it is answered. The administrator's own token is in a file of its own, see
`headway.private`, and cannot be revoked.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from headway.access.accounts import AccountsByName
from headway.errors import HeadwayError, InvalidInput, NoSuchToken
from headway.private import write_private
from headway.wire import MadeToken, NewToken, Role, TokenReport

TOKENS_MAX: Final = 10_000
"""Tokens that there may be; the file is written whole with each change."""

EXPIRED_KEPT: Final = 30 * 86_400.0
"""Seconds for which a token that has expired is still listed."""

_BEGIN: Final = "hw_"
"""How each token begins, so that one is recognised where it should not be."""


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token as the file has it; `hash` is the SHA-256 of the token in hexadecimal digits."""

    id: str
    hash: str
    user: str
    role: Role
    created: float
    expires: float | None = None
    by: str = ""


class _TokenFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file. `format` changes when an older Headway could not read it.

    Attributes:
        accounts: of users whose account of the system was said or found, by user; also of those without a token now,
            because their jobs may still wait.
    """

    tokens: tuple[_Row, ...]
    format: int = 1
    accounts: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class TokenOwner:
    """The owner of a token, with the rights that it gives.

    Attributes:
        name: of the user, for the journal.
        role: what the token allows.
        token: the id of the token; empty: it is the administrator's, in a file of its own.
        until: when the token expires, in seconds since the Unix epoch; None: never.
        revoked: whether it has been revoked.
        scope: what stands before the texts of the user's clients, so that no other user can name them.
    """

    __slots__ = ("_now", "name", "revoked", "role", "scope", "token", "until")

    def __init__(
        self,
        name: str,
        role: Role,
        token: str = "",
        until: float | None = None,
        *,
        scope: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.role = role
        self.token = token
        self.until = until
        self.revoked = False
        self.scope = f"{name}/" if scope is None else scope
        self._now = now

    @property
    def is_valid(self) -> bool:
        """Whether the token can be used."""
        return not self.revoked and (self.until is None or self._now() < self.until)

    @property
    def title(self) -> str:
        """The role in words.

        >>> TokenOwner("ann", Role.OPERATOR).title
        'an operator'
        """
        return f"{'an' if self.role in (Role.OPERATOR, Role.ADMINISTRATOR) else 'a'} {self.role.value}"

    def owns(self, user: str) -> bool:
        """Whether the token gives all rights to the jobs of a user."""
        return user == self.name or self.role.covers(Role.OPERATOR)


class Tokens:
    """All tokens of a server.

    Args:
        token, user: the administrator's token and name.
        file: has the others; None: they are kept in memory alone.
        now: the time in seconds since the Unix epoch.
        by_name: finds the accounts of users of whom none was said; None: each has the one of the same name.

    Raises:
        HeadwayError: the file cannot be read, or is none of these.
    """

    def __init__(
        self,
        token: str,
        user: str,
        file: Path | None = None,
        *,
        now: Callable[[], float] = time.time,
        by_name: AccountsByName | None = None,
    ) -> None:
        self._file = file
        self._by_name = by_name
        self._now = now
        self._own = _hash(token.encode())
        self._owners = {self._own: TokenOwner(user, Role.ADMINISTRATOR, scope="")}
        self._rows: dict[str, _Row] = {}
        found = _read(file) if file is not None else _TokenFile(())
        self._accounts = self._accounts_written = found.accounts or {}
        self._follow(found.tokens)

    def owner(self, token: bytes) -> TokenOwner | None:
        """Whose token it is; None: it is not known, or has expired."""
        found = self._owners.get(_hash(token))
        return found if found is not None and found.is_valid else None

    def account(self, user: str) -> str:
        """The account of the system that is a user's: that of the same name, unless another one was said; empty: none
        was found.
        """
        return self._accounts.get(user) or self._other(user)

    def _other(self, user: str) -> str:
        """The account of a user of whom none was said or kept."""
        return user if self._by_name is None else self._by_name.of(user)

    @property
    def finds(self) -> bool:
        """Whether accounts were found that are not kept yet."""
        return self._by_name is not None and not self._by_name.found.keys() <= self._accounts.keys()

    def keep(self) -> Callable[[], None]:
        """The step that keeps the accounts that were found; after it, `use` is called."""
        return self._writing(self._rows.values(), self._accounts)

    def why_not(self, token: bytes) -> str:
        """Why a token is not taken."""
        found = self._owners.get(_hash(token))
        if found is None:
            return "the token is not the one of this server, nor one that it has made and that is still valid"
        return f"token {found.token} of user {found.name!r} has expired"

    def reports(self) -> tuple[TokenReport, ...]:
        """All but the administrator's own, in the order in which they were made."""
        now = self._now()
        return tuple(
            TokenReport(
                row.id,
                row.user,
                row.role,
                row.created,
                row.expires,
                row.by,
                row.expires is None or now < row.expires,
                self.account(row.user),
            )
            for row in self._rows.values()
        )

    def create(self, new: NewToken, by: str) -> tuple[MadeToken, Callable[[], None]]:
        """A new token, and the step that makes it durable; after that, and not before, `use` makes it valid.

        Raises:
            InvalidInput: there are too many.
        """
        now = self._now()
        kept = [row for row in self._rows.values() if row.expires is None or now < row.expires + EXPIRED_KEPT]
        if len(kept) >= TOKENS_MAX:
            raise InvalidInput("tokens", len(kept) + 1, f"at most {TOKENS_MAX}", hint="Revoke some.")
        token = f"{_BEGIN}{secrets.token_urlsafe(32)}"
        taken = self._rows.keys()
        number = next(found for found in iter(lambda: secrets.token_hex(4), "") if found not in taken)
        expires = None if new.expires is None else now + new.expires
        row = _Row(number, _hash(token.encode()).hex(), new.user, new.role, now, expires, by)
        rows = (*kept, row)
        if self._by_name is not None and new.user not in self._accounts:
            self._by_name.look(new.user)  # it may have been made since
        accounts = {**self._accounts, new.user: new.account} if new.account else self._accounts
        account = accounts.get(new.user) or self._other(new.user)
        about = TokenReport(row.id, row.user, row.role, row.created, row.expires, row.by, account=account)
        return MadeToken(token, about), self._writing(rows, accounts)

    def revoke(self, token: str) -> Callable[[], None]:
        """The step that makes it durable that a token is revoked; after that `use` ends it.

        Raises:
            NoSuchToken: there is none with this id.
        """
        if token not in self._rows:
            raise NoSuchToken(token, self._rows)
        return self._writing(tuple(row for row in self._rows.values() if row.id != token), self._accounts)

    def use(self) -> list[TokenOwner]:
        """What was written last is valid from now on; returns the owners of tokens that were revoked by it."""
        self._accounts = self._accounts_written
        return self._follow(self._written)

    def roles(self) -> dict[str, set[Role]]:
        """The roles of each user's tokens that are valid now."""
        found: dict[str, set[Role]] = {}
        for owner in self._owners.values():
            if owner.is_valid:
                found.setdefault(owner.name, set()).add(owner.role)
        return found

    def report(self, token: str) -> TokenReport:
        """One token.

        Raises:
            NoSuchToken: there is none with this id.
        """
        if token not in self._rows:
            raise NoSuchToken(token, self._rows)
        return next(report for report in self.reports() if report.id == token)

    def _writing(self, rows: Iterable[_Row], accounts: dict[str, str]) -> Callable[[], None]:
        rows = tuple(rows)
        if self._by_name is not None:
            accounts = {**self._by_name.found, **accounts}

        def write() -> None:
            if self._file is not None:
                text = msgspec.json.format(
                    msgspec.json.encode(_TokenFile(rows, 2, accounts) if accounts else _TokenFile(rows))
                )
                write_private(self._file, text.decode())
            self._written, self._accounts_written = rows, accounts

        return write

    def _follow(self, rows: Iterable[_Row]) -> list[TokenOwner]:
        self._written = tuple(rows)
        self._rows = {row.id: row for row in self._written}
        owners: dict[bytes, TokenOwner] = {self._own: self._owners[self._own]}
        for row in self._written:
            key = bytes.fromhex(row.hash)
            if key != self._own:
                owners[key] = self._owners.get(key) or TokenOwner(
                    row.user, row.role, row.id, row.expires, now=self._now
                )
        gone = [owner for key, owner in self._owners.items() if key not in owners]
        for owner in gone:
            owner.revoked = True
        self._owners = owners
        return gone


T = TypeVar("T")


class Known(Generic[T]):
    """Owners by their tokens, where these never change."""

    def __init__(self, owners: Mapping[bytes, T]) -> None:
        self._owners = {_hash(token): owner for token, owner in owners.items()}

    def owner(self, token: bytes) -> T | None:
        """Whose token it is; None: it is not known."""
        return self._owners.get(_hash(token))

    def why_not(self, token: bytes) -> str:
        """Why a token is not taken."""
        return "the token is not the one of this server"


def _hash(token: bytes) -> bytes:
    return sha256(token).digest()


def _read(file: Path) -> _TokenFile:
    """What is in the file of tokens; nothing where there is none.

    Raises:
        HeadwayError: it cannot be read, or is no such file.
    """
    hint = "Put the file of a backup in its place; or remove it, and make new tokens with `headway token create`."
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_TokenFile)
        for row in found.tokens:
            if len(bytes.fromhex(row.hash)) != 32:
                raise ValueError(f"the hash of token {row.id} is none of SHA-256")
    except FileNotFoundError:
        return _TokenFile(())
    except OSError as error:
        raise HeadwayError(f"the tokens in {file} cannot be read: {error.strerror or error}", hint) from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise HeadwayError(f"{file} has no tokens that can be read: {error}", hint) from error
    return found
