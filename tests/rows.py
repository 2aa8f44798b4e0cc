"""Rows of a journal, as older versions of Headway wrote them."""

from __future__ import annotations

from headway.live.store.decisions import EventRow
from headway.live.store.journal import encode
from headway.model.events import Event
from headway.model.instant import Instant


def event_row(seq: int, at: Instant, event: Event) -> EventRow:
    """An event without what its round decided: the policy is asked when it is replayed."""
    return (seq, at, type(event).__name__, encode(event))
