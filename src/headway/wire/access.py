"""Tokens of users, and the record of who did what."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from headway.wire.base import Answer, Request
from headway.wire.roles import Role

USER_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}$"
"""Names of users. They have no slash: the texts of clients are kept behind the name of their user and one."""

UserName = Annotated[str, Meta(pattern=USER_PATTERN)]
AccountName = Annotated[str, Meta(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.@-]{0,63})?$")]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]


class NewToken(Request, frozen=True):
    """A token to be made for a user.

    Attributes:
        expires: in how many seconds it ends; None: never.
        account: the account of the system that is the user's from now on; empty: the one that it is now.
    """

    user: UserName
    role: Role
    expires: Seconds | None = None
    account: AccountName = ""


class TokenReport(Answer, frozen=True):
    """A token, without itself: the server keeps only its hash.

    Attributes:
        id: names it.
        created, expires: instants; it never expires if that is None.
        by: who made it.
        valid: whether it can be used; not if it has expired.
        account: as which the user's tasks run, where tasks run as accounts of their users; empty: as the server.
    """

    id: str
    user: str
    role: Role
    created: float
    expires: float | None = None
    by: str = ""
    valid: bool = True
    account: str = ""


class MadeToken(Answer, frozen=True):
    """A new token. It is told this once; the server keeps only its hash."""

    token: str
    about: TokenReport


class TokenList(Answer, frozen=True):
    """The tokens in the order in which they were made, without the one in the file of the data directory."""

    tokens: tuple[TokenReport, ...]


class Bound(Answer, frozen=True):
    """How much of something a user may have at once; `used` is what there is now, None if that is no amount."""

    name: str
    most: float
    used: float | None = None


class Myself(Answer, frozen=True):
    """Whose token came with the request.

    Attributes:
        token: its id; empty: it is the one in the data directory.
        expires: when it ends; never if that is None.
        quotas: what bounds this user.
    """

    user: str
    role: Role
    token: str = ""
    expires: float | None = None
    quotas: tuple[Bound, ...] = ()


class AuditEntry(Answer, frozen=True):
    """Something that a caller did, or was not allowed to do.

    Attributes:
        at: when; of several refused requests alike, the last of them.
        by: the user; empty: the caller is not known, because it had no valid token.
        kind: a word such as `job_submitted`, or `refused`.
        subject: what it was about; of a refused request its route.
        detail: for people.
        peer: where a refused request came from.
        status: of the answer to it; 0: it was not refused.
        code: of its error.
        times: how many alike there were within a minute.
    """

    at: float
    by: str
    kind: str
    subject: str
    detail: str
    peer: str = ""
    status: int = 0
    code: str = ""
    times: int = 1


class Audit(Answer, frozen=True):
    """The latest entries, in order; `more` says whether the limit left earlier ones out."""

    entries: tuple[AuditEntry, ...]
    more: bool = False
