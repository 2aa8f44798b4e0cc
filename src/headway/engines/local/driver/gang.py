"""An attempt with several members on nodes with agents, as seen by the driver."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headway.engines.base import AttemptKey, Ended, Ending
from headway.engines.local.driver.attached import AgentNode
from headway.engines.local.shared.frames import MemberEnded, Standing, ending_of
from headway.model.outcome import Outcome
from headway.model.tier import Tier


class Gang:
    """The members of an attempt and the state of each.

    Attributes:
        parts: the node of each member, by rank.
        nodes: each of these nodes once.
        ready: ranks that have their slots.
        started: ranks that run.
        saved: ranks that have saved a checkpoint since all had last saved one.
        endings: of members that have ended.
        failed: the first rank that ended without success.
        tier: of its places.
        asked: its members have been asked to save and end, each for itself.
    """

    def __init__(self, key: AttemptKey, parts: list[AgentNode], tier: Tier) -> None:
        self.key = key
        self.parts = parts
        self.nodes = tuple(dict.fromkeys(parts))
        self.ready: set[int] = set()
        self.started: set[int] = set()
        self.saved: set[int] = set()
        self.endings: dict[int, Ending] = {}
        self.failed: int | None = None
        self.tier = tier
        self.asked = False

    def take(self, rank: int, ending: Ending) -> bool:
        """A member has ended; returns whether the others must be killed because of it."""
        self.endings[rank] = ending
        if self.failed is None and ending.outcome is not Outcome.SUCCEEDED:
            self.failed = rank
            return not self.asked and len(self.endings) < len(self.parts)
        return False

    def adopt(self, members: Iterable[Standing | MemberEnded]) -> None:
        """Take over the states that its members reached without a driver."""
        for member in members:
            if isinstance(member, MemberEnded):
                self.take(member.rank, ending_of(member))
                self.ready.add(member.rank)
                self.started.add(member.rank)
                continue
            self.asked |= member.asked
            if member.ready or member.begun:
                self.ready.add(member.rank)
            if member.started:
                self.started.add(member.rank)

    def whole(self) -> Ended | None:
        """The end of the attempt, once all members have ended."""
        if len(self.endings) < len(self.parts):
            return None
        members = tuple(self.endings[rank] for rank in range(len(self.parts)))
        return end_of(self.key, members, self.failed, asked=self.asked)


def end_of(key: AttemptKey, members: tuple[Ending, ...], failed: int | None, *, asked: bool = False) -> Ended:
    """The end of an attempt whose members have all ended.

    Args:
        failed: the first rank that ended without success; None: all have succeeded.
        asked: they have been asked to save and end, each for itself.
    """
    if failed is None:
        ending = Ending(
            Outcome.SUCCEEDED,
            seconds=max(member.seconds for member in members),
            cpu_seconds=sum(member.cpu_seconds for member in members),
        )
    else:
        first = members[failed]
        ending = msgspec.structs.replace(first, detail=f"process {failed}: {first.detail or first.outcome.value}")
        if asked:  # a member may fail because another has ended
            ending = msgspec.structs.replace(ending, outcome=Outcome.KILLED, result=None, exit_code=None)
    return Ended(*key, ending, members)
