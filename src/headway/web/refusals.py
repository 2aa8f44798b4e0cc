"""What was refused to whom: counted at once, and soon after logged and made durable, alike ones together.

Everybody who can connect can be refused without end. So a line of the log, or a row, is not for each request, and there
are only so many of them in a period.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from headway.errors import HeadwayError, in_short
from headway.live.store.journal import NotNow
from headway.live.store.refusals import RefusalRow, RefusalTable
from headway.model.instant import Instant

PERIOD_SECONDS: Final = 5.0
"""So long after the first of them, refusals are written; a crash loses no older ones."""

PERIOD_ROWS_MAX: Final = 50
"""Rows of a period; the rest are counted together."""

ACCESS: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
"""Refusals that say that somebody may not: only these are made durable. Others are slips, and are logged."""

log = logging.getLogger(__name__)

_Key = tuple[str, str, str, int, str]
_REST: Final = "others"
_UNREAD: Final = "a request"


@dataclass(slots=True)
class _Seen:
    """How often something was refused, when last, and with which words."""

    at: Instant
    detail: str
    times: int = 0


class Refusals:
    """Notes refused requests.

    Args:
        table: where they are made durable.
        counts: of refused requests, by status.
        now: the time.
    """

    def __init__(self, table: RefusalTable, counts: Counter[str], now: Callable[[], Instant]) -> None:
        self._table = table
        self._counts = counts
        self._now = now
        self._seen: dict[_Key, _Seen] = {}
        self._unwritten: list[RefusalRow] = []
        self._timer: asyncio.TimerHandle | None = None

    def note(self, request: str, status: HTTPStatus, error: HeadwayError, user: str, peer: str) -> None:
        """Note a request that is refused.

        Args:
            request: the name of its route.
            user: who sent it; empty: nobody who is known.
            peer: from which address.
        """
        self._add((user, peer, request, int(status), error.code), str(error.args[0]))

    def note_unread(self, status: HTTPStatus, why: str, peer: str) -> None:
        """Note a request that is refused before anybody knows who sends it, and for which route.

        Args:
            peer: from which address; empty: from here.
        """
        self._add(("", peer, _UNREAD, int(status), ""), why)

    def _add(self, key: _Key, why: str) -> None:
        status = key[3]
        self._counts[str(status)] += 1
        if key not in self._seen and len(self._seen) >= PERIOD_ROWS_MAX:
            key = ("", _REST, _REST, status, "")
        seen = self._seen.setdefault(key, _Seen(self._now(), ""))
        seen.at, seen.detail, seen.times = self._now(), in_short(why), seen.times + 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PERIOD_SECONDS, self.write)

    def write(self) -> None:
        """Log what was noted since the last time, and make it durable; where that is not possible now, later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for (user, peer, request, status, code), seen in self._seen.items():
            row = RefusalRow(seen.at, user, peer, request, status, code, seen.detail, seen.times)
            is_access = status in ACCESS
            log.log(
                logging.WARNING if is_access else logging.INFO,
                "refused %s%s: %d, %s",
                _whose(request, user, peer),
                f", {seen.times} times" if seen.times > 1 else "",
                status,
                seen.detail,
            )
            if is_access:
                self._unwritten.append(row)
        self._seen.clear()
        if not self._unwritten:
            return
        try:
            self._table.write(self._unwritten)
            self._unwritten = []
        except NotNow as reason:
            self._unwritten = self._unwritten[-10 * PERIOD_ROWS_MAX :]
            log.warning("refused requests are made durable later: %s", reason.args[0])
            self._timer = asyncio.get_running_loop().call_later(PERIOD_SECONDS, self.write)


def _whose(request: str, user: str, peer: str) -> str:
    """What was refused, and to whom."""
    if request == _REST:
        return _REST
    who = "" if request == _UNREAD else f" of user {user}" if user else " of a caller without a valid token"
    return f"{request}{who} from {peer or 'here'}"
