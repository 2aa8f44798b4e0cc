"""How much of a server a user may have at once: what the operator says in a file, by role and by user."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from headway.access.tokens import TokenOwner
from headway.errors import HeadwayError, InvalidInput, QuotaExceeded, TooOften, did_you_mean
from headway.toml_places import first_line
from headway.wire import Bound, Role
from headway.wire.access import USER_PATTERN

ROOM_AGAIN_SECONDS: Final = 30.0
"""After this time there may be room for more jobs: some may have ended."""

BURST_SECONDS: Final = 2.0
"""A user who was silent may send the requests of this time at once."""

USERS_MAX: Final = 10_000
"""For so many users it is known how many requests they have sent lately."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What bounds a user; None: nothing does.

    Attributes:
        open_jobs: jobs that have not ended.
        open_tasks: tasks of these, counted until their job has ended.
        kept_output: bytes of output that are kept with results.
        requests_per_second: requests, on average; for a short while more.
        slots: slots that the user's tasks have at once; other tasks wait.
    """

    open_jobs: float | None = None
    open_tasks: float | None = None
    kept_output: float | None = None
    requests_per_second: float | None = None
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quotas of all users: of a field, what the user's own table says counts before what that of the role says.

    Attributes:
        roles, users: the tables.
    """

    roles: Mapping[Role, Quota] = field(default_factory=dict)
    users: Mapping[str, Quota] = field(default_factory=dict)

    def of(self, user: str, role: Role) -> Quota:
        """What bounds a user."""
        if not (self.roles or self.users):
            return _NONE
        by_role, own = self.roles.get(role, _NONE), self.users.get(user, _NONE)
        said = {name: value for name in _FIELDS if (value := getattr(own, name)) is not None}
        return replace(by_role, **said) if said else by_role

    def slots(self, roles: Mapping[str, Iterable[Role]]) -> dict[str, int]:
        """How many slots each user may have at once who has a bound. Of several roles the one that allows most counts.

        Args:
            roles: those of the tokens of each user.
        """
        found: dict[str, int] = {}
        for user in sorted({*roles, *self.users}):
            said = [self.of(user, role).slots for role in roles.get(user, ())]
            own = self.users.get(user, _NONE).slots
            limits = [most for most in (said if own is None else [own]) if most is not None]
            if limits and len(limits) == len(said if own is None else limits):
                found[user] = max(limits)
        return found


_NONE: Final = Quota()
_HELD: Final = ("open_jobs", "open_tasks", "kept_output", "slots")
_FIELDS: Final = tuple(each.name for each in fields(Quota))
_USERS: Final = "a name of up to 64 letters, digits and _, and after the first of these also . @ and -"


def read_quotas(path: Path) -> Quotas:
    """The quotas of a file: TOML with tables [role.NAME] and [user.NAME].

    Raises:
        InvalidInput: a table or a field is not allowed; the error names it.
        HeadwayError: the file cannot be read.
    """
    try:
        text = path.read_text("utf-8")
        found = tomllib.loads(text)
    except OSError as error:
        raise HeadwayError(f"cannot read {path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise HeadwayError(f"{path} is not TOML: {error}") from error
    tables: dict[str, dict[str, Quota]] = {"role": {}, "user": {}}
    for name, table in found.items():
        if name not in tables or not isinstance(table, dict):
            allowed = "tables [role.NAME] and [user.NAME]"
            line = first_line(text, name)
            raise InvalidInput("table", name, allowed, source=str(path), line=line, hint=did_you_mean(name, tables))
        for whose, terms in table.items():
            line = _line_of(text, name, whose)
            if name == "role" and whose not in list(Role):
                allowed, hint = ", ".join(Role), did_you_mean(whose, list(Role))
                raise InvalidInput("role", whose, allowed, source=str(path), line=line, hint=hint)
            if name == "user" and not re.fullmatch(USER_PATTERN, whose):
                raise InvalidInput("user", whose, _USERS, source=str(path), line=line)
            tables[name][whose] = _quota(terms, name, whose, str(path), text)
    return Quotas({Role(role): quota for role, quota in tables["role"].items()}, tables["user"])


def _line_of(text: str, table: str, whose: str, term: str = "") -> int | None:
    """The line of a file on which the table [TABLE.WHOSE] begins, or of a term in it; None: it has none of its own."""
    inside = False
    for number, row in enumerate(text.splitlines(), 1):
        if row.lstrip().startswith("["):
            inside = _is_head(row, table, whose)
            if inside and not term:
                return number
        elif inside and row.split("=")[0].strip() == term:
            return number
    return None


def _is_head(row: str, table: str, whose: str) -> bool:
    try:
        found = tomllib.loads(row).get(table)
    except tomllib.TOMLDecodeError:  # a line of a list
        return False
    return isinstance(found, dict) and whose in found


def _quota(terms: Any, kind: str, whose: str, source: str, text: str) -> Quota:
    table = f"{kind}.{whose}"
    if not isinstance(terms, dict):
        raise InvalidInput(table, terms, f"a table [{table}]", source=source)
    for name, value in terms.items():
        line = _line_of(text, kind, whose, name)
        if name not in _FIELDS:
            allowed = f"only {', '.join(_FIELDS)}"
            raise InvalidInput(
                f"{table}.{name}", value, allowed, source=source, line=line, hint=did_you_mean(name, _FIELDS)
            )
        is_rate = name == "requests_per_second"
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
        if not is_number or (isinstance(value, float) and not is_rate) or (is_rate and value < 0.1):
            allowed = "a number, 0.1 or more" if is_rate else "a whole number, 0 or more"
            raise InvalidInput(f"{table}.{name}", value, allowed, source=source, line=line)
    return Quota(**terms)


@dataclass(slots=True)
class _Bucket:
    """How many requests a user may still send at once, as of an instant."""

    left: float
    at: float


class Meters:
    """Holds users to their quotas.

    Args:
        quotas: of all users.
        held: how many open jobs, and tasks of these, a user has, how many bytes of kept output, and how many slots.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        quotas: Quotas,
        held: Callable[[str], tuple[int, int, int, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quotas = quotas
        self._held = held
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._rates = any(
            quota.requests_per_second is not None for quota in (*quotas.roles.values(), *quotas.users.values())
        )

    def may_ask(self, owner: TokenOwner) -> float:
        """Count a request; returns 0, or the seconds after which it would be allowed: then it does not count."""
        if not self._rates:
            return 0.0
        rate = self._quotas.of(owner.name, owner.role).requests_per_second
        if rate is None:
            return 0.0
        now, most = self._clock(), max(1.0, rate * BURST_SECONDS)
        bucket = self._buckets.get(owner.name)
        if bucket is None:
            if len(self._buckets) >= USERS_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[owner.name] = _Bucket(most, now)
        bucket.left, bucket.at = min(most, bucket.left + (now - bucket.at) * rate), now
        if bucket.left < 1.0:
            return (1.0 - bucket.left) / rate
        bucket.left -= 1.0
        return 0.0

    def check_rate(self, owner: TokenOwner) -> None:
        """Count a request.

        Raises:
            TooOften: it is one too many.
        """
        wait = self.may_ask(owner)
        if wait:
            rate = self._quotas.of(owner.name, owner.role).requests_per_second or 0.0
            raise TooOften("requests_per_second", rate + 1.0, rate, _whose(owner), wait)

    def check_more(self, owner: TokenOwner, jobs: int, tasks: int) -> None:
        """Check that a user may have so many more jobs, with so many tasks.

        Raises:
            QuotaExceeded: there would be too much.
        """
        quota = self._quotas.of(owner.name, owner.role)
        if quota.open_jobs is None and quota.open_tasks is None and quota.kept_output is None:
            return
        held = self._held(owner.name)
        for name, most, new, there in (
            ("open_jobs", quota.open_jobs, jobs, held[0]),
            ("open_tasks", quota.open_tasks, tasks, held[1]),
        ):
            if most is None or there + new <= most:
                continue
            if new > most:
                hint = "Submit less at once; the operator of the server sets this (`headway up --quotas`)."
                raise QuotaExceeded(name, there + new, most, _whose(owner), hint)
            hint = f"There is room when some of the {there:,} that are open have ended, or are cancelled."
            raise QuotaExceeded(name, there + new, most, _whose(owner), hint, retry_after=ROOM_AGAIN_SECONDS)
        if quota.kept_output is not None and held[2] > quota.kept_output:
            hint = "There is room when results have been acknowledged and their time is over, or are cleared."
            limit, whose = quota.kept_output, _whose(owner)
            raise QuotaExceeded("kept_output", held[2], limit, whose, hint, retry_after=ROOM_AGAIN_SECONDS)

    def bounds(self, owner: TokenOwner) -> tuple[Bound, ...]:
        """What bounds a user, and how much of it there is."""
        quota = self._quotas.of(owner.name, owner.role)
        used = dict(zip(_HELD, map(float, self._held(owner.name)), strict=True))
        said = ((name, getattr(quota, name)) for name in _FIELDS)
        return tuple(Bound(name, most, used.get(name)) for name, most in said if most is not None)


def _whose(owner: TokenOwner) -> str:
    return f"user {owner.name!r}, {owner.title}"
