"""Heads of requests that were parsed and taken: a caller sends nearly the same one with each request."""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

HEADS_MAX: Final = 1_000
"""Heads that are remembered."""

REMEMBERED_HEAD_MAX: Final = 1 << 10
"""Bytes of a head that is remembered."""

_END: Final = b"\r\n\r\n"


class Sized(Protocol):
    """What is known of a head."""

    @property
    def size(self) -> int:
        """Bytes of the body that follows it."""


H = TypeVar("H", bound=Sized)


class Heads(Generic[H]):
    """Remembers heads as they are, with the token in them: the same bytes mean the same."""

    def __init__(self) -> None:
        self._known: dict[bytes, H] = {}  # the oldest first

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def get(self, its: bytes) -> H | None:
        """What is known of a head, or of what is the same in many; None: nothing is."""
        return self._known.get(its)

    def keep(self, its: bytes, head: H) -> None:
        """Remember it, unless it is long."""
        if len(its) <= REMEMBERED_HEAD_MAX:
            if len(self._known) >= HEADS_MAX:
                del self._known[next(iter(self._known))]
            self._known[its] = head

    def find(self, data: bytes) -> tuple[H, bytes] | None:
        """The head and the body of a request that is whole; None: the head is not known, or it is not whole."""
        end = data.find(_END) + len(_END)
        head = self.get(data[:end])
        return None if head is None or len(data) != end + head.size else (head, data[end:])

    def learn(self, head: H, data: bytes) -> None:
        """Remember the head of a request that came whole."""
        end = data.find(_END) + len(_END)
        if end == len(data) - head.size:
            self.keep(data[:end], head)
