"""What an end means: what its runner told, and what Slurm says of its job."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from headway.engines.base import Ended, Ending, Noticed, Saved, Stalled, Started
from headway.engines.local.shared.frames import (
    MemberEnded,
    MemberSaved,
    MemberStalled,
    MemberStarted,
    MemberUnreadable,
    Pong,
    Ready,
    encode,
)
from headway.engines.slurm.attempt import SETTLE_SECONDS, Attempt, NodePart, Remains
from headway.engines.slurm.parsing import Partition, Queued
from headway.engines.slurm.written import Seat, WrittenAttempt
from headway.model.outcome import Outcome

MAIN = Partition("main", 3600.0)
KEY = (1, 2, 3)

WELL = Ending(Outcome.SUCCEEDED, b"result")
RAISED = Ending(Outcome.RAISED, b"error", "ValueError")
BY_TERM = Ending(Outcome.SIGNALLED, None, "signal 15 (SIGTERM)", -15, outside=True)


def attempt(*nodes: str) -> Attempt:
    """An attempt with a member on slot 0 of each of these nodes, whose jobs are 100, 101, ..."""
    numbers = {node: number for number, node in enumerate(dict.fromkeys(nodes))}
    made = Attempt(WrittenAttempt(*KEY, tuple(Seat(node, (0,), numbers[node]) for node in nodes), starts=True))
    for part in made.parts:
        part.job = 100 + part.number
    return made


def tells(attempt: Attempt, rank: int, ending: Ending) -> NodePart:
    """The runner of a member tells its end."""
    part = next(part for part in attempt.parts if rank in part.ranks)
    body = encode(MemberEnded(*KEY, rank, len(attempt.record.seats), Raw(encode(ending))))
    assert attempt.hear(part, body, 0.0) == []
    return part


def finishes(part: NodePart, state: str, at: float = 0.0) -> None:
    """Slurm says how the job of a part ended."""
    part.final, part.final_at = Queued(part.job, state, "None"), at


def end(attempt: Attempt, now: float = 0.0, remains: Remains | None = None) -> Ended | None:
    return attempt.whole(now, MAIN, {} if remains is None else {0: remains})


def test_success_is_believed_at_once() -> None:
    one = attempt("a")
    tells(one, 0, WELL)
    assert end(one) == Ended(*KEY, WELL)


def test_a_failure_is_its_own_once_slurm_says_that_the_job_ended_by_itself() -> None:
    one = attempt("a")
    part = tells(one, 0, RAISED)
    assert one.is_asked_of(part)
    assert end(one) is None
    finishes(part, "COMPLETED")
    assert end(one) == Ended(*KEY, RAISED)


@pytest.mark.parametrize("told", [RAISED, BY_TERM, Ending(Outcome.KILLED)])
@pytest.mark.parametrize(
    ("state", "outcome", "said"),
    [
        ("TIMEOUT", Outcome.OUT_OF_TIME, "it ran longer than partition 'main' allows of at most 3600 s."),
        ("OUT_OF_MEMORY", Outcome.OUT_OF_MEMORY, "it used more memory than Slurm reserved for its slots"),
        ("PREEMPTED", Outcome.LOST, "Slurm ended it for another job (preemption)"),
        ("CANCELLED", Outcome.LOST, "it was cancelled in Slurm, not by Headway"),
        ("NODE_FAIL", Outcome.LOST, "Slurm ended it, because its node failed"),
    ],
)
def test_a_failure_that_slurm_brought_about_is_not_its_own(
    told: Ending, state: str, outcome: Outcome, said: str
) -> None:
    one = attempt("a")
    finishes(tells(one, 0, told), state)
    ended = end(one)
    assert ended is not None
    assert (ended.ending.outcome, ended.ending.result, ended.ending.outside) == (outcome, None, False)
    assert ended.ending.detail.startswith(said)


@pytest.mark.parametrize("told", [RAISED, BY_TERM, Ending(Outcome.KILLED, detail="...")])
def test_what_headway_cancelled_was_killed_however_it_took_that(told: Ending) -> None:
    one = attempt("a")
    one.parts[0].cancelled = True
    tells(one, 0, told)
    assert end(one) == Ended(*KEY, Ending(Outcome.KILLED))


def test_what_succeeded_before_it_could_be_cancelled_has_succeeded() -> None:
    one = attempt("a")
    one.parts[0].cancelled = True
    tells(one, 0, WELL)
    assert end(one) == Ended(*KEY, WELL)


def test_what_was_cancelled_before_it_was_submitted_has_nothing_to_wait_for() -> None:
    one = attempt("a")
    (part,) = one.parts
    part.job, part.submitting, part.cancelled = 0, True, True
    assert end(one) is None, "its job may just be on its way"
    part.submitting = False
    assert end(one) == Ended(*KEY, Ending(Outcome.KILLED))


def test_what_was_cancelled_while_it_waited_tells_nothing() -> None:
    one = attempt("a")
    one.parts[0].cancelled = True
    finishes(one.parts[0], "CANCELLED")
    assert end(one) == Ended(*KEY, Ending(Outcome.KILLED))


def test_last_words_are_waited_for() -> None:
    one = attempt("a")
    finishes(one.parts[0], "COMPLETED", at=10.0)
    assert end(one, 10.0 + SETTLE_SECONDS / 2) is None
    tells(one, 0, WELL)
    assert end(one, 10.0 + SETTLE_SECONDS / 2) == Ended(*KEY, WELL)


def test_a_runner_that_tells_no_end_has_lost_its_attempt() -> None:
    one = attempt("a")
    finishes(one.parts[0], "FAILED")
    ended = end(one, SETTLE_SECONDS, Remains(claimed=True))
    assert ended is not None
    detail = "job 100 of Slurm on node 'a' ended as FAILED (None) and told no more"
    assert ended.ending == Ending(Outcome.LOST, detail=detail)


def test_a_runner_that_never_began_says_what_its_node_needs() -> None:
    one = attempt("a")
    finishes(one.parts[0], "FAILED")
    ended = end(one, SETTLE_SECONDS, Remains(printed="python: not found"))
    assert ended is not None
    assert (ended.ending.outcome, ended.ending.outside) == (Outcome.REFUSED, True)
    assert "it printed: python: not found" in ended.ending.detail
    assert "must share the engine's folder" in ended.ending.detail


def test_what_slurm_has_forgotten_before_it_began_is_lost_and_was_not_in_vain() -> None:
    one = attempt("a")
    finishes(one.parts[0], "FORGOTTEN")
    assert not one.is_in_vain(one.parts[0], Remains())
    ended = end(one, SETTLE_SECONDS, Remains())
    assert ended is not None
    assert (ended.ending.outcome, ended.ending.outside) == (Outcome.LOST, False)


def test_of_a_gang_the_first_that_failed_counts_and_the_others_were_killed() -> None:
    gang = attempt("a", "a", "b")
    finishes(tells(gang, 1, RAISED), "COMPLETED")
    tells(gang, 0, Ending(Outcome.KILLED))
    gang.parts[1].cancelled = True
    assert end(gang) is None
    tells(gang, 2, BY_TERM)
    ended = end(gang)
    assert ended is not None
    assert (ended.ending.outcome, ended.ending.detail) == (Outcome.RAISED, "process 1: ValueError")
    assert [member.outcome for member in ended.members] == [Outcome.KILLED, Outcome.RAISED, Outcome.KILLED]


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "FORGOTTEN"])
def test_what_was_told_to_end_by_nobody_known_is_lost(state: str) -> None:
    """Reported as killed it would be given back for ever, as if Headway had wanted that."""
    one = attempt("a")
    finishes(tells(one, 0, Ending(Outcome.KILLED)), state)
    ended = end(one)
    assert ended is not None
    assert (ended.ending.outcome, ended.ending.detail[:18]) == (Outcome.LOST, "it was told to end")


def test_what_was_ended_with_a_gang_is_not_its_cause() -> None:
    gang = attempt("a", "b")
    finishes(gang.parts[1], "FAILED")
    gang.parts[0].cancelled = True
    tells(gang, 0, Ending(Outcome.KILLED))
    ended = gang.whole(SETTLE_SECONDS, MAIN, {1: Remains(claimed=True)})
    assert ended is not None
    assert (ended.ending.outcome, ended.ending.detail[:11]) == (Outcome.LOST, "process 1: ")


def test_a_gang_has_begun_and_saved_when_all_its_members_have() -> None:
    gang = attempt("a", "b")
    one, other = gang.parts
    assert gang.hear(one, encode(Ready(*KEY, 0)), 5.0) == []
    assert gang.hear(one, encode(MemberStarted(*KEY, 0)), 5.0) == []
    assert gang.hear(other, encode(MemberStarted(*KEY, 1)), 6.0) == [Started(*KEY)]
    assert gang.started_at == 6.0
    assert gang.hear(other, encode(MemberSaved(*KEY, 1)), 7.0) == []
    assert gang.hear(one, encode(MemberSaved(*KEY, 0)), 7.0) == [Saved(*KEY)]
    noticed = gang.hear(one, encode(MemberUnreadable(1, 2, "torn")), 8.0)
    assert noticed == [Noticed("checkpoint_unreadable", "job 1, task 2", "torn")]


def test_a_member_that_waits_for_room_says_on_which_node() -> None:
    one = attempt("a", "b")
    assert one.hear(one.parts[1], encode(MemberStalled(*KEY, "no room")), 0.0) == [Stalled(*KEY, "no room", "b")]


def test_what_no_runner_says_is_not_believed() -> None:
    one = attempt("a", "b")
    with pytest.raises(ValueError, match="no member 1"):
        one.hear(one.parts[0], encode(MemberStarted(*KEY, 1)), 0.0)
    assert one.hear(one.parts[0], encode(Pong()), 0.0) == []
    with pytest.raises(msgspec.DecodeError):
        one.hear(one.parts[0], b"\xff", 0.0)


def test_an_end_that_is_told_twice_counts_once() -> None:
    one = attempt("a")
    tells(one, 0, WELL)
    tells(one, 0, RAISED)
    assert end(one) == Ended(*KEY, WELL)


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("ReqNodeNotAvail, UnavailableNodes:a", "its node is down or drained; `scontrol show node` says why"),
        ("ReqNodeNotAvail, Reserved for maintenance", "others have reserved its node from an instant before its limit"),
        ("Priority", "jobs of others come first"),
    ],
)
def test_why_a_job_waits_is_told_with_its_meaning_once(reason: str, meaning: str) -> None:
    one = attempt("a")
    queued = Queued(100, "PENDING", reason)
    said = one.hear_reason(one.parts[0], queued)
    assert said is not None
    assert said.reason.startswith(f"Slurm says {reason}: {meaning}")
    assert one.hear_reason(one.parts[0], queued) is None
