"""Which bounds on the slots of users are new."""

from __future__ import annotations

from collections.abc import Mapping

from headway.model.events import SlotsBounded
from headway.model.instant import Instant
from headway.model.ration import Ration


def bounded(known: Mapping[str, Ration], bounds: Mapping[str, int], now: Instant) -> list[SlotsBounded]:
    """The events after which exactly these users have bounds.

    Args:
        known: those that there are.
        bounds: by user, how many slots this user may have at once.
    """
    lifted = [SlotsBounded(now, user, None) for user in known if user not in bounds]
    changed = [user for user, most in bounds.items() if user not in known or known[user].most != most]
    return lifted + [SlotsBounded(now, user, bounds[user]) for user in sorted(changed)]
