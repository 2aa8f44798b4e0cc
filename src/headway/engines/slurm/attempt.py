"""What a server knows of an attempt: its parts, one job of Slurm each, and what became of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from headway.engines.base import AttemptKey, Ended, Ending, Noticed, Pending, Report, Saved, Stalled, Started
from headway.engines.local.agent.porter import named
from headway.engines.local.driver.gang import end_of
from headway.engines.local.shared.frames import (
    FileWanted,
    MemberEnded,
    MemberSaved,
    MemberStalled,
    MemberStarted,
    MemberUnreadable,
    decode_ending,
    ending_of,
    to_driver_decoder,
)
from headway.engines.local.shared.terms import WANTED_MAX, Account
from headway.engines.slurm.parsing import Partition, PartKey, Queued
from headway.engines.slurm.written import WrittenAttempt
from headway.model.outcome import Outcome

SETTLE_SECONDS: Final = 2.0
"""So long after the end of a job its runner's last words may still be on their way through a network file system."""

UNFINISHED: Final = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "STAGE_OUT"})
"""States of Slurm in which something of a job may still come."""

FORGOTTEN: Final = "FORGOTTEN"
"""Our word for the state of a job of which Slurm knows nothing any more: if it is killed, it forgets some seconds."""

_NOT_ITS_OWN: Final = {
    "PREEMPTED": "Slurm ended it for another job (preemption)",
    "CANCELLED": "it was cancelled in Slurm, not by Headway",
    "REVOKED": "Slurm has revoked its job",
    "DEADLINE": "Slurm ended it at its deadline",
    "NODE_FAIL": "Slurm ended it, because its node failed",
    "BOOT_FAIL": "its node did not start",
}
"""Ends that Slurm, or somebody else, has brought about."""

_NO_REASONS: Final = ("", "None", "Dependency")
"""A job was just submitted, or waits for the end of another one of ours."""

_IN_QUEUE: Final = {
    "UnavailableNodes": "its node is down or drained; `scontrol show node` says why",
    "ReqNodeNotAvail": "others have reserved its node from an instant before its limit of time on; "
    "a job with a shorter limit, `--time-limit`, may begin before",
    "Priority": "jobs of others come first",
    "Resources": "jobs of others have its node",
    "JobHeldUser": "`scontrol release` lets it go on",
    "JobHeldAdmin": "an administrator has held it",
    "PartitionTimeLimit": "the partition lets no job run for so long",
}
"""By a word of Slurm's reason: what it means, and what may help. Of several words the first of these counts."""

_decode = to_driver_decoder().decode


class Remains(NamedTuple):
    """What is left of a job that has told no end.

    Attributes:
        claimed: its runner had begun.
        printed: by the job itself.
    """

    claimed: bool = False
    printed: str = ""


class NodePart:
    """What of an attempt runs on one node.

    Attributes:
        ranks: of its members.
        job: number of Slurm's job; 0: it has none yet.
        offset: what of its file `told` has been read.
        left: how many members have not told their end.
        began: a member has begun, or Slurm says that the job runs.
        cancelled: this engine does not want it any more; `told_slurm`: Slurm has been, or is being, asked to end it.
        submitting: its job is just being given to Slurm.
        reason: why Slurm has not started its job, as last reported.
        final: the last state of its job.
        final_at: when it was seen.
    """

    def __init__(self, number: int, node: str, ranks: tuple[int, ...]) -> None:
        self.number = number
        self.node = node
        self.ranks = ranks
        self.job = 0
        self.offset = 0
        self.left = len(ranks)
        self.began = False
        self.cancelled = self.told_slurm = False
        self.submitting = False
        self.reason = ""
        self.final: Queued | None = None
        self.final_at = 0.0


class Attempt:
    """An attempt and its parts.

    Attributes:
        endings: of the members that have told theirs, by rank.
        failed: the first of them that did not succeed.
        started_at: when all its members had begun; None: they have not.
        has_saved: it has told that it saved.
        submitted: its jobs were, or are being, given to Slurm.
        ended: its end, once that is known.
        wanted: files of the server that were asked for, by the number of the part; taken out as they are given.
        account: as which it runs, where there are several; None also if it was adopted.
    """

    def __init__(self, record: WrittenAttempt) -> None:
        self.record = record
        self.parts = [
            NodePart(number, record.seats[ranks[0]].node, ranks) for number, ranks in sorted(record.parts.items())
        ]
        self.endings: dict[int, Ending] = {}
        self.failed: int | None = None
        self.started_at: float | None = None
        self.has_saved = False
        self.submitted = False
        self.ended: Ended | None = None
        self.wanted: list[tuple[int, str]] = []
        self.account: Account | None = None
        self._asked = 0
        self._started: set[int] = set()
        self._saved: set[int] = set()

    @property
    def key(self) -> AttemptKey:
        """Job, task, attempt."""
        return self.record.key

    @property
    def as_account(self) -> str:
        """The name of the account that it runs as; empty: that of the server, or it was adopted."""
        return "" if self.account is None else self.account.name

    @property
    def places(self) -> list[tuple[str, int]]:
        """The slots that it has."""
        return [(seat.node, slot) for seat in self.record.seats for slot in seat.slots]

    @property
    def nodes(self) -> set[str]:
        """The nodes of its parts."""
        return {part.node for part in self.parts}

    @property
    def succeeded(self) -> bool:
        """Whether all its members have told that they succeeded."""
        return self.failed is None and len(self.endings) == len(self.record.seats)

    def given(self) -> dict[int, list[str]]:
        """What its members have given to the server, by the number of the part: names of files."""
        found: dict[int, list[str]] = {}
        if self.ended is not None and self.succeeded:
            for part in self.parts:
                endings = [self.endings[rank] for rank in part.ranks if self.endings[rank].outputs]
                for ending in endings:
                    found.setdefault(part.number, []).extend(named(ending.outputs.values()))
        return {number: names for number, names in found.items() if names}

    def hear(self, part: NodePart, body: bytes, now: float) -> list[Report]:
        """Take a record of a part's file `told`; returns what is to be reported of it."""
        message = _decode(body)
        width = len(self.record.seats)
        if getattr(message, "rank", part.ranks[0]) not in part.ranks:
            raise ValueError(f"it has no member {message.rank}")  # type: ignore[union-attr]
        part.began = True
        match message:
            case MemberStarted():
                self._started.add(message.rank)
                if len(self._started) == width and self.started_at is None:
                    self.started_at = now
                    return [Started(*self.key)] if self.record.starts else []
            case MemberSaved():
                self.has_saved = True
                self._saved.add(message.rank)
                if len(self._saved) == width:
                    self._saved.clear()
                    return [Saved(*self.key)]
            case MemberUnreadable():
                job, task, _ = self.key
                return [Noticed("checkpoint_unreadable", f"job {job}, task {task}", message.detail)]
            case FileWanted():
                self._asked += 1
                if self._asked <= WANTED_MAX:
                    self.wanted.append((part.number, message.name))
            case MemberStalled():
                return [Stalled(*self.key, message.detail, part.node)]
            case MemberEnded() if message.rank not in self.endings:
                decode_ending(message.ending)
                self.endings[message.rank] = ending = ending_of(message)
                part.left -= 1
                if self.failed is None and ending.outcome is not Outcome.SUCCEEDED:
                    self.failed = message.rank
        return []

    def job_of(self, part: NodePart, among: Mapping[PartKey, Sequence[Queued]]) -> Queued | None:
        """The job of a part among those that Slurm has told of; None: it is not one of them.

        Its number alone does not say so: a controller that was killed gives the numbers of its last jobs to others.
        """
        told = among.get((self.key, part.number), ())
        return next((queued for queued in told if queued.job == part.job), None)

    def hear_reason(self, part: NodePart, queued: Queued) -> Pending | None:
        """Take why Slurm has not started the job of a part; returns what is to be reported of it."""
        if queued.state != "PENDING" or part.began or queued.reason in (*_NO_REASONS, part.reason):
            return None
        part.reason = queued.reason
        words = set(re.findall("[A-Za-z]+", queued.reason))
        meaning = next((meaning for word, meaning in _IN_QUEUE.items() if word in words), "")
        return Pending(*self.key, f"Slurm says {queued.reason}" + (f": {meaning}" if meaning else ""))

    def is_asked_of(self, part: NodePart) -> bool:
        """Whether only Slurm can say what a part's end means: members failed, perhaps because Slurm ended the job."""
        if part.final is not None or part.cancelled or part.left:
            return False
        return any(self.endings[rank].outcome is not Outcome.SUCCEEDED for rank in part.ranks)

    def is_over(self, part: NodePart, now: float) -> bool:
        """Whether everything is known of a part's end."""
        if part.left == 0:
            return not self.is_asked_of(part)
        if part.final is None:
            return part.cancelled and not part.job and not part.submitting
        return now - part.final_at >= SETTLE_SECONDS or (part.cancelled and not part.began)

    def is_in_vain(self, part: NodePart, remains: Remains) -> bool:
        """Whether a part that is over and told no end has ended before our program had begun, and not by Slurm.

        A job that Slurm has forgotten may never have been started.
        """
        if part.cancelled or part.final is None or remains.claimed or part.left < len(part.ranks):
            return False
        return part.final.state not in ("TIMEOUT", "OUT_OF_MEMORY", FORGOTTEN, *_NOT_ITS_OWN)

    def whole(self, now: float, partition: Partition, remains: dict[int, Remains]) -> Ended | None:
        """The end of the attempt; None if it is not known yet.

        Args:
            remains: of parts that are over and have told no end, by number.
        """
        if not all(self.is_over(part, now) for part in self.parts):
            return None
        members = list[Ending]()
        by_rank = {rank: part for part in self.parts for rank in part.ranks}
        for rank in range(len(self.record.seats)):
            part = by_rank[rank]
            told = self.endings.get(rank)
            members.append(
                untold(part, partition, remains.get(part.number, Remains()), self.as_account)
                if told is None
                else meant(told, part, partition)
            )
        without = [rank for rank, one in enumerate(members) if one.outcome is not Outcome.SUCCEEDED]
        causes = [rank for rank in without if not by_rank[rank].cancelled]
        if causes:
            failed: int | None = self.failed if self.failed in causes else causes[0]
            assert failed is not None
            if members[failed].outcome is Outcome.KILLED:
                detail = "it was told to end, neither by Headway nor for a reason that Slurm knows"
                members[failed] = msgspec.structs.replace(members[failed], outcome=Outcome.LOST, detail=detail)
        else:
            failed = self.failed if self.failed in without else next(iter(without), None)
        single = len(members) == 1
        self.ended = Ended(*self.key, members[0]) if single else end_of(self.key, tuple(members), failed)
        return self.ended


def meant(told: Ending, part: NodePart, partition: Partition) -> Ending:
    """What a member's end means, by what Slurm says of its job: it may have ended because Slurm ended the job."""
    if told.outcome is Outcome.SUCCEEDED:
        return told
    by_slurm: tuple[Outcome, str] | None = None
    if part.cancelled:
        by_slurm = Outcome.KILLED, ""
    elif part.final is not None:
        by_slurm = _by_slurm(part.final.state, partition)
    if by_slurm is None:
        return told
    outcome, detail = by_slurm
    return msgspec.structs.replace(told, outcome=outcome, detail=detail, result=None, exit_code=None, outside=False)


def untold(part: NodePart, partition: Partition, remains: Remains, account: str = "") -> Ending:
    """The end of a member that told none, by what Slurm says of its job.

    Args:
        account: which it was to run as; empty: that of the server.
    """
    if part.cancelled:
        return Ending(Outcome.KILLED)
    assert part.final is not None
    by_slurm = _by_slurm(part.final.state, partition)
    if by_slurm is not None:
        return Ending(by_slurm[0], detail=by_slurm[1])
    ended = f"ended as {part.final.state} ({part.final.reason})"
    what = f"job {part.job} of Slurm on node {part.node!r} {ended} and told no more"
    if remains.printed:
        what = f"{what}; it printed: {remains.printed}"
    if remains.claimed or part.final.state == FORGOTTEN:
        return Ending(Outcome.LOST, detail=what)
    hint = "The node must share the engine's folder, and have the same Python with Headway."
    if account:
        hint = f"{hint} Account {account} must exist there, and be able to use both."
    return Ending(Outcome.REFUSED, detail=f"{what}\n{hint}", outside=True)


def _by_slurm(state: str, partition: Partition) -> tuple[Outcome, str] | None:
    """Outcome and detail of what Slurm has ended by itself; None: it has not."""
    if state == "TIMEOUT":
        most = "" if partition.seconds_max is None else f" of at most {partition.seconds_max:g} s"
        hint = "Submit it with a time limit below that, or use a partition with another one"
        return Outcome.OUT_OF_TIME, f"it ran longer than partition {partition.name!r} allows{most}. {hint}."
    if state == "OUT_OF_MEMORY":
        return Outcome.OUT_OF_MEMORY, "it used more memory than Slurm reserved for its slots"
    detail = _NOT_ITS_OWN.get(state)
    return None if detail is None else (Outcome.LOST, detail)
