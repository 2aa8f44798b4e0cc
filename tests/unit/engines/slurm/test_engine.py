"""The engine beside a Slurm that a test plays: what comes late, in another order, or not at all."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from headway.engines.base import (
    AttemptKey,
    Command,
    Ended,
    Ending,
    NodeBack,
    NodeFound,
    NodeGone,
    NodeLost,
    NodeReady,
    NodeShut,
    Noticed,
    Stalled,
    Started,
)
from headway.engines.local.shared.frames import FileWanted, MemberEnded, MemberStarted, encode
from headway.engines.slurm import attempt, nodes, submission
from headway.engines.slurm import engine as module
from headway.engines.slurm.answers import SlurmRefused, SlurmUnavailable
from headway.engines.slurm.engine import SlurmEngine
from headway.engines.slurm.parsing import NodeStanding, Partition, PartKey, Queued, SlurmNode
from headway.engines.slurm.settings import SlurmSettings
from headway.engines.slurm.written import append
from headway.engines.trial import FilesInMemory, Trial
from headway.errors import EngineError, InvalidInput, NoRoom
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome

from ....waiting import becomes

pytestmark = pytest.mark.anyio

READY, CLOSED, DOWN = NodeStanding.READY, NodeStanding.CLOSED, NodeStanding.DOWN

WELL, FAILED = Ending(Outcome.SUCCEEDED), Ending(Outcome.EXITED, None, "exit status 3", 3)

TWO = tuple(NodeSpec(name, slots=2, found=True, reports_start=True) for name in ("a", "b"))


class PlayedSlurm:
    """Slurm, as a test wants it.

    Attributes:
        states: of the nodes.
        jobs: all of them, by number: what they run, and their state.
        submitted: the arguments of sbatch, in order.
        silent: it answers nothing.
        swallows: so many answers of sbatch are lost, although the job was accepted.
        refuses: why it accepts nothing.
        given: the number of the last job; less if its controller was killed and has forgotten some.
        held: while it is clear, the list of nodes is not answered.
    """

    def __init__(self) -> None:
        self.states = {"a": READY, "b": READY}
        self.jobs: dict[int, tuple[PartKey, str]] = {}
        self.submitted: list[tuple[str, ...]] = []
        self.silent = False
        self.swallows = 0
        self.refuses = ""
        self.given = 0
        self.held = asyncio.Event()
        self.held.set()
        self.asks_for_nodes = False

    def _answers(self) -> None:
        if self.silent:
            raise SlurmUnavailable("it is silent")

    async def check(self) -> None:
        pass

    async def try_options(self) -> None:
        pass

    async def partition(self) -> Partition:
        self._answers()
        return Partition("main", None)

    async def controller(self) -> str:
        return "127.0.0.1"

    async def nodes(self) -> dict[str, SlurmNode]:
        self._answers()
        self.asks_for_nodes = True
        await self.held.wait()
        return {name: SlurmNode(name, state, state.value, 2, 2, 0, "") for name, state in self.states.items()}

    def _listed(self, which: Iterable[int]) -> dict[PartKey, list[Queued]]:
        found: dict[PartKey, list[Queued]] = {}
        for job in which:
            key, state = self.jobs[job]
            found.setdefault(key, []).append(Queued(job, state, "None"))
        return found

    async def queue(self, identity: str) -> dict[PartKey, list[Queued]]:
        self._answers()
        return self._listed(job for job, (_, state) in self.jobs.items() if state in ("PENDING", "RUNNING"))

    async def ended(self, identity: str, numbers: Iterable[int]) -> dict[PartKey, list[Queued]]:
        self._answers()
        return self._listed(job for job in numbers if job in self.jobs)

    async def named(self, identity: str, names: Iterable[str]) -> dict[PartKey, list[Queued]]:
        return self._listed(self.jobs)

    async def submit(self, *words: str, environment: Mapping[str, str]) -> int:
        self._answers()
        if self.refuses:
            raise SlurmRefused(self.refuses)
        if after(words) == [str(self.given + 1)]:
            raise SlurmRefused("Job dependency problem")
        self.given += 1
        self.submitted.append(words)
        job, task, tried, number = map(int, words[0].rpartition("-")[2].split("."))
        self.jobs[self.given] = (((job, task, tried), number), "PENDING")
        if self.swallows:
            self.swallows -= 1
            raise SlurmUnavailable("the answer was lost")
        return self.given

    async def cancel(self, numbers: Iterable[int]) -> None:
        self._answers()
        for number in numbers:
            self.moves(number, "CANCELLED")

    def moves(self, number: int, state: str) -> None:
        """A job changes its state."""
        self.jobs[number] = (self.jobs[number][0], state)


class Played:
    """An engine beside it, and what its runners would tell.

    Attributes:
        news: whether their datagrams come.
    """

    def __init__(self, trial: Trial, slurm: PlayedSlurm, root: Path) -> None:
        self.news = True
        self.trial = trial
        self.slurm = slurm
        self.root = root

    @property
    def engine(self) -> SlurmEngine:
        assert isinstance(self.trial.engine, SlurmEngine)
        return self.trial.engine

    def launches(self, node: str = "a", slot: int = 0) -> AttemptKey:
        """Launch something."""
        return self.trial.command("true", node=node, slots=(slot,))

    async def runs(self, **where: Any) -> int:
        """Launch something, and let its job run; returns the job's number."""
        number = len(self.slurm.submitted) + 1
        key = self.launches(**where)
        await becomes(lambda: number in self.slurm.jobs)
        self.slurm.moves(number, "RUNNING")
        self.tells(number, MemberStarted(*key, 0))
        assert await self.trial.told(Started) == Started(*key)
        return number

    def tells(self, number: int, message: object) -> None:
        """The runner of a job tells something."""
        ((job, task, tried), part), _ = self.slurm.jobs[number]
        fd = os.open(self.root / "attempts" / f"{job}.{task}.{tried}.{part}" / "told", os.O_WRONLY | os.O_APPEND)
        append(fd, [encode(message)])
        os.close(fd)
        if self.news:
            word = (self.root / "secret").read_text()
            self.engine.on_news([word, str(job), str(task), str(tried), str(part)])

    def ends(self, number: int, ending: Ending) -> None:
        """The runner of a job tells its end."""
        key = self.slurm.jobs[number][0][0]
        self.tells(number, MemberEnded(*key, 0, 1, Raw(encode(ending))))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Played]:
    slurm = PlayedSlurm()
    monkeypatch.setattr(module, "SlurmCommands", lambda _: slurm)
    for where in (module, submission):
        monkeypatch.setattr(where, "SUBMIT_AGAIN_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(attempt, "SETTLE_SECONDS", 0.1)
    async with Trial(SlurmEngine(tmp_path / "shared", SlurmSettings("main", poll=0.1)), 10) as trial:
        yield Played(trial, slurm, tmp_path / "shared")
        for number in slurm.jobs:
            slurm.moves(number, "COMPLETED")


async def test_a_success_is_told_before_slurm_has_seen_it_and_a_failure_after(played: Played) -> None:
    await played.trial.start(*TWO)
    well, badly = await played.runs(), await played.runs(slot=1)
    played.ends(well, WELL)
    played.ends(badly, FAILED)
    assert (await played.trial.told(Ended)).ending == WELL
    await asyncio.sleep(0.3)
    assert played.trial.unread == []
    played.slurm.moves(badly, "COMPLETED")
    assert (await played.trial.told(Ended)).ending == FAILED


async def test_the_loss_of_a_node_stands_for_an_end_that_is_just_being_told(played: Played) -> None:
    """Slurm kills what runs there, and its runner tells so before the engine has seen the node."""
    await played.trial.start(*TWO)
    number = await played.runs(node="a")
    played.slurm.states["a"], played.slurm.asks_for_nodes = DOWN, False
    played.slurm.held.clear()
    played.slurm.moves(number, "NODE_FAIL")
    played.ends(number, Ending(Outcome.KILLED))
    await becomes(lambda: played.slurm.asks_for_nodes)
    played.engine.on_news([(played.root / "secret").read_text(), "1", "0", "1", "0"])
    await asyncio.sleep(0.2)
    played.slurm.held.set()
    assert (await played.trial.told(NodeLost)).node == "a"
    await asyncio.sleep(0.2)
    assert played.trial.unread == []


async def test_a_node_that_fails_and_is_back_before_anybody_looked_has_lost_its_attempts(played: Played) -> None:
    await played.trial.start(*TWO)
    number = await played.runs(node="a")
    played.slurm.moves(number, "NODE_FAIL")
    ended = await played.trial.told(Ended)
    assert (ended.ending.outcome, ended.ending.detail) == (Outcome.LOST, "Slurm ended it, because its node failed")


async def test_an_answer_of_sbatch_that_is_lost_leads_to_one_job(played: Played) -> None:
    await played.trial.start(*TWO)
    played.slurm.swallows = 1
    number = await played.runs()
    played.ends(number, WELL)
    await played.trial.told(Ended)
    assert len(played.slurm.submitted) == 1


async def test_while_slurm_is_silent_launches_wait_and_can_be_killed(played: Played) -> None:
    await played.trial.start(*TWO)
    played.slurm.silent = True
    waits, unwanted = played.launches(), played.launches(slot=1)
    await asyncio.sleep(0.1)
    played.engine.kill(*unwanted)
    assert (await played.trial.ended(unwanted)).ending.outcome is Outcome.KILLED
    assert played.trial.unread == []
    played.slurm.silent = False
    await becomes(lambda: [key for (key, _), _ in played.slurm.jobs.values()] == [waits])
    played.ends(1, WELL)
    await played.trial.ended(waits)


async def test_what_slurm_refuses_is_refused(played: Played) -> None:
    await played.trial.start(*TWO)
    played.slurm.refuses = "Invalid account"
    ending = (await played.trial.ended(played.launches())).ending
    assert (ending.outcome, ending.detail) == (Outcome.REFUSED, "Slurm refuses it: Invalid account")


async def test_a_closed_node_begins_nothing_until_it_is_ready_again(played: Played) -> None:
    await played.trial.start(*TWO)
    number = await played.runs(node="a")
    played.slurm.states["a"] = CLOSED
    closed = await played.trial.told(NodeShut)
    assert (closed.node, closed.detail.startswith("it is ")) == ("a", True)
    kept_back = played.launches(slot=1)
    unwanted = played.launches(slot=1)
    played.engine.kill(*unwanted)
    assert (await played.trial.ended(unwanted)).ending.outcome is Outcome.KILLED
    assert len(played.slurm.submitted) == 1
    played.slurm.states["a"] = READY
    assert (await played.trial.told(NodeReady)).node == "a"
    await becomes(lambda: len(played.slurm.submitted) == 2)
    played.ends(2, WELL)
    await played.trial.ended(kept_back)
    played.ends(number, WELL)
    await played.trial.told(Ended)


async def test_what_waits_on_a_node_that_is_drained_has_not_brought_its_loss_about(played: Played) -> None:
    await played.trial.start(*TWO)
    number = await played.runs(node="a")
    played.slurm.states["a"] = CLOSED
    await played.trial.told(NodeShut)
    played.launches(slot=1)
    played.ends(number, WELL)
    await played.trial.told(Ended)
    assert (await played.trial.told(NodeLost)).excused
    await played.runs(node="b")
    played.slurm.states["b"] = DOWN
    assert not (await played.trial.told(NodeLost)).excused, "what ran there may have"


def after(words: tuple[str, ...]) -> list[str]:
    """Which job a job waits for in Slurm."""
    return [word.partition(":")[2] for word in words if word.startswith("--dependency=afterany:")]


async def test_what_is_next_on_a_slot_waits_in_slurm_for_the_job_before_it(played: Played) -> None:
    """One at a time; what comes after it waits here."""
    await played.trial.start(*TWO)
    await played.runs()
    keys = [(1, 0, 1), *(played.launches() for _ in range(3))]
    for number, key in enumerate(keys, 1):
        seen = min(number + 1, len(keys))
        await becomes(lambda seen=seen: len(played.slurm.jobs) == seen)  # type: ignore[misc]
        await asyncio.sleep(0.15)
        assert [key for (key, _), _ in played.slurm.jobs.values()] == keys[:seen]
        played.ends(number, WELL)
        assert (await played.trial.told(Ended)).key == key
    assert [after(words) for words in played.slurm.submitted] == [[], ["1"], ["2"], ["3"]]


async def test_a_job_that_gets_the_number_of_the_one_before_it_need_not_wait_for_that_in_slurm(played: Played) -> None:
    """Slurm's controller was killed, and has forgotten the one before it."""
    await played.trial.start(*TWO)
    number = await played.runs()
    played.slurm.given = 0
    key = played.launches()
    await becomes(lambda: len(played.slurm.submitted) == 2)
    assert [after(words) for words in played.slurm.submitted] == [[], []]
    ended = await played.trial.told(Ended)
    assert (ended.key, ended.ending.outcome) == ((1, 0, 1), Outcome.LOST)
    played.ends(number, WELL)
    assert (await played.trial.told(Ended)).key == key


async def test_without_reading_ahead_nothing_waits_in_slurm_for_a_slot(played: Played) -> None:
    played.trial.engine = SlurmEngine(played.root, SlurmSettings("main", poll=0.1, read_ahead=0))
    await played.trial.engine.start((), played.trial._take, played.trial._files)
    assert [(await played.trial.told(NodeFound)).node.read_ahead for _ in TWO] == [0, 0]
    first, key = await played.runs(), played.launches()
    await asyncio.sleep(0.3)
    assert len(played.slurm.submitted) == 1
    played.ends(first, WELL)
    await played.trial.told(Ended)
    await becomes(lambda: 2 in played.slurm.jobs)
    assert after(played.slurm.submitted[1]) == []
    played.ends(2, WELL)
    await played.trial.ended(key)


async def test_what_slurm_has_begun_is_heard_after_the_end_of_what_had_its_slot(played: Played) -> None:
    """News and files may come in another order than they were written."""
    await played.trial.start(*TWO)
    first, key = await played.runs(), played.launches()
    await becomes(lambda: 2 in played.slurm.jobs)
    played.slurm.moves(2, "RUNNING")
    played.tells(2, MemberStarted(*key, 0))
    await asyncio.sleep(0.2)
    played.ends(2, WELL)
    played.slurm.moves(2, "COMPLETED")
    await asyncio.sleep(0.3)
    assert played.trial.unread == []
    played.ends(first, WELL)
    assert (await played.trial.told(Ended)).key == (1, 0, 1)
    assert await played.trial.told(Started) == Started(*key)
    assert await played.trial.told(Ended) == Ended(*key, WELL)


async def test_what_follows_a_job_that_ends_without_a_word_is_heard_when_slurm_has_said_so(played: Played) -> None:
    await played.trial.start(*TWO)
    first, key = await played.runs(), played.launches()
    await becomes(lambda: 2 in played.slurm.jobs)
    (played.root / "attempts" / "1.0.1.0" / "claim").touch()
    played.slurm.moves(first, "FAILED")
    played.slurm.moves(2, "COMPLETED")
    played.tells(2, MemberStarted(*key, 0))
    played.ends(2, WELL)
    ended = await played.trial.told(Ended)
    assert (ended.key, ended.ending.outcome) == ((1, 0, 1), Outcome.LOST)
    assert await played.trial.told(Started) == Started(*key)
    assert await played.trial.told(Ended) == Ended(*key, WELL)


async def test_what_waits_in_slurm_is_killed_or_given_back_alone(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    await played.trial.start(*TWO)
    first, unwanted, waits = await played.runs(), played.launches(), played.launches()
    await becomes(lambda: 2 in played.slurm.jobs)
    played.engine.kill(*unwanted)
    assert (await played.trial.ended(unwanted)).ending.outcome is Outcome.KILLED
    assert played.slurm.jobs[2][1] == "CANCELLED"
    await becomes(lambda: 3 in played.slurm.jobs)
    assert after(played.slurm.submitted[2]) == [str(first)]
    monkeypatch.setattr(module, "BEHIND_SECONDS", 0.0)
    assert (await played.trial.ended(waits)).ending.outcome is Outcome.KILLED
    assert (played.slurm.jobs[3][1], played.slurm.jobs[first][1]) == ("CANCELLED", "RUNNING")
    played.ends(first, WELL)
    assert (await played.trial.told(Ended)).ending == WELL


async def test_with_its_node_is_lost_what_waits_in_slurm_for_a_slot_there(played: Played) -> None:
    await played.trial.start(*TWO)
    await played.runs()
    played.launches()
    await becomes(lambda: 2 in played.slurm.jobs)
    played.slurm.states["a"] = DOWN
    assert (await played.trial.told(NodeLost)).node == "a"
    await becomes(lambda: [state for _, state in played.slurm.jobs.values()] == ["CANCELLED"] * 2)


async def test_a_node_is_back_only_when_nothing_of_ours_is_left_there(played: Played) -> None:
    await played.trial.start(*TWO)
    number = await played.runs(node="a")
    played.slurm.states["a"] = DOWN
    assert (await played.trial.told(NodeLost)).node == "a"
    played.slurm.moves(number, "RUNNING")  # the daemon of the node has not answered yet
    played.slurm.states["a"] = READY
    await asyncio.sleep(0.3)
    assert played.trial.unread == []
    played.slurm.moves(number, "NODE_FAIL")
    assert (await played.trial.told(NodeBack)).node == "a"


async def test_a_node_that_slurm_drains_for_a_second_copy_of_a_job_loses_that_one_and_ends_the_others(
    played: Played,
) -> None:
    """After its controller was killed, Slurm starts a job again; the first copy still runs, so it ends both."""
    await played.trial.start(*TWO)
    twice, other = await played.runs(node="a"), await played.runs(node="a", slot=1)
    played.slurm.states["a"] = CLOSED
    played.ends(twice, Ending(Outcome.KILLED))
    played.slurm.moves(twice, "CANCELLED")
    assert (await played.trial.told(Ended)).ending.outcome is Outcome.LOST
    assert (await played.trial.told(NodeShut)).node == "a"
    await asyncio.sleep(0.3)
    assert played.trial.unread == []
    played.ends(other, WELL)
    assert (await played.trial.told(Ended)).ending == WELL
    assert (await played.trial.told(NodeLost)).node == "a"
    played.slurm.moves(other, "COMPLETED")
    played.slurm.states["a"] = READY
    assert (await played.trial.told(NodeBack)).node == "a"


async def test_a_node_that_leaves_the_partition_is_gone_and_a_new_one_is_found(played: Played) -> None:
    await played.trial.start(*TWO)
    del played.slurm.states["b"]
    gone = await played.trial.told(NodeGone)
    assert (gone.node, gone.detail) == ("b", "it has left partition 'main'")
    played.slurm.states["c"] = READY
    assert (await played.trial.told(NodeFound)).node.name == "c"


async def test_what_slurm_has_forgotten_is_lost(played: Played) -> None:
    await played.trial.start(*TWO)
    number = await played.runs()
    (played.root / "attempts" / "1.0.1.0" / "claim").touch()
    del played.slurm.jobs[number]
    ended = await played.trial.told(Ended)
    assert ended.ending.outcome is Outcome.LOST
    assert "ended as FORGOTTEN (Slurm knows nothing of it any more)" in ended.ending.detail


async def test_a_job_whose_number_slurm_has_given_to_another_is_lost_and_the_other_goes_on(played: Played) -> None:
    """Its controller was killed. That the number is in the queue again, and how that job ends, says nothing of it."""
    await played.trial.start(*TWO)
    number = await played.runs()
    played.slurm.given = 0
    other = played.launches(slot=1)
    await becomes(lambda: len(played.slurm.submitted) == 2)
    played.slurm.moves(number, "RUNNING")
    ended = await played.trial.told(Ended)
    assert (ended.key, ended.ending.outcome) == ((1, 0, 1), Outcome.LOST)
    assert "ended as FORGOTTEN" in ended.ending.detail
    played.ends(number, WELL)
    assert (await played.trial.told(Ended)).key == other
    assert played.engine.up == {"a", "b"}


async def test_what_is_killed_is_cancelled_again_if_slurm_has_forgotten_that(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its controller was killed just after it had been told."""
    monkeypatch.setattr(module, "_LINGER_SECONDS", 0.1)
    await played.trial.start(*TWO)
    number = await played.runs()
    with monkeypatch.context() as patch:
        forgot = asyncio.Event()

        async def forgets(numbers: Iterable[int]) -> None:
            forgot.set()

        patch.setattr(played.slurm, "cancel", forgets)
        played.engine.kill(1, 0, 1)
        await forgot.wait()
    await becomes(lambda: played.slurm.jobs[number][1] == "CANCELLED")
    assert (await played.trial.told(Ended)).ending.outcome is Outcome.KILLED


async def test_a_job_that_gets_the_number_of_one_that_was_told_to_end_is_left_alone(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's controller was killed, and has forgotten the one before it."""
    monkeypatch.setattr(module, "_LINGER_SECONDS", 0.1)
    await played.trial.start(*TWO)
    number = await played.runs()
    played.ends(number, WELL)
    await played.trial.told(Ended)
    played.slurm.given = 0
    key = played.launches()
    await becomes(lambda: len(played.slurm.submitted) == 2)
    played.slurm.moves(number, "RUNNING")
    await asyncio.sleep(0.5)
    assert played.slurm.jobs[number] == ((key, 0), "RUNNING")
    played.ends(number, WELL)
    assert (await played.trial.told(Ended)).key == key


async def test_jobs_that_slurm_has_forgotten_are_lost_and_say_nothing_of_their_node(played: Played) -> None:
    """Its controller was killed, and knows nothing of the last seconds: they may never have been started."""
    await played.trial.start(*TWO)
    for number in range(1, 2 * nodes.IN_VAIN_MOST):
        key = played.launches()
        await becomes(lambda number=number: number in played.slurm.jobs)  # type: ignore[misc]
        del played.slurm.jobs[number]
        ending = (await played.trial.ended(key)).ending
        assert (ending.outcome, ending.outside) == (Outcome.LOST, False)
    assert played.trial.unread == []
    assert played.engine.up == {"a", "b"}


async def test_a_job_that_goes_on_after_its_end_was_told_is_cancelled(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LINGER_SECONDS", 0.1)
    await played.trial.start(*TWO)
    number = await played.runs()
    played.ends(number, WELL)
    await played.trial.told(Ended)
    await becomes(lambda: played.slurm.jobs[number][1] == "CANCELLED")


async def test_a_gang_ends_when_a_job_of_it_ends_without_a_word(played: Played) -> None:
    trial = played.trial
    await trial.start(*TWO)
    key = trial.launch(Command(("true",)), Command(("true",)), node=("a", "b"), slots=(0, 0))
    await becomes(lambda: 2 in played.slurm.jobs)
    played.slurm.moves(1, "RUNNING")
    played.slurm.moves(2, "FAILED")
    ended = await trial.ended(key)
    assert ended.ending.outcome is Outcome.REFUSED
    assert ended.ending.detail.startswith("process 1: job 2 of Slurm on node 'b' ended as FAILED")
    assert [member.outcome for member in ended.members] == [Outcome.KILLED, Outcome.REFUSED]
    assert played.slurm.jobs[1][1] == "CANCELLED"


async def test_news_without_the_word_are_ignored(played: Played) -> None:
    await played.trial.start(*TWO)
    played.engine.on_news(["not the word", "1", "0", "1", "0"])
    played.engine.on_news([(played.root / "secret").read_text(), "1", "0", "x", "0"])
    played.engine.on_news([])
    played.engine.on_news([(played.root / "secret").read_text(), "7", "7", "7", "0"])


async def test_a_lease_is_refused(played: Played) -> None:
    await played.trial.start(*TWO)
    with pytest.raises(InvalidInput, match=r"lease of node 'x' is 1.0; allowed: none: Slurm says when it is lost"):
        played.engine.check_fit(NodeSpec("x", lease=1_000_000))


async def test_a_node_that_was_found_gets_no_more_slots_than_it_has_cpus(played: Played) -> None:
    await played.trial.start(*TWO)
    most = played.engine._nodes.seen["a"].cpus
    played.engine.check_fit(replace(TWO[0], slots=most))
    with pytest.raises(InvalidInput, match=f"slots of node 'a' is {most + 1}; allowed: 1 to {most}: Slurm has {most}"):
        played.engine.check_fit(replace(TWO[0], slots=most + 1))


async def test_a_node_that_was_down_a_moment_ago_joins_when_it_answers(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine sees that it answers before the one who adds it, and does not report it as found."""
    monkeypatch.setattr(module, "_PAUSES", (0.01, 0.5))
    await played.trial.start(*TWO)
    played.slurm.states["c"] = CLOSED
    joining = asyncio.ensure_future(played.engine.join(NodeSpec("c", slots=2)))
    await asyncio.sleep(0.1)
    assert not joining.done()
    played.slurm.states["c"] = READY
    await joining
    monkeypatch.setattr(module, "_JOIN_SECONDS", 0.1)
    played.slurm.states["d"] = CLOSED
    with pytest.raises(EngineError, match="node 'd' is closed in Slurm"):
        await played.engine.join(NodeSpec("d", slots=2))


async def test_a_node_that_was_told_to_leave_is_found_again_when_it_is_let_in(played: Played) -> None:
    await played.trial.start(*TWO)
    await played.engine.leave("a")
    assert played.engine.kept_out == {"a"}
    played.slurm.states["a"] = DOWN
    await becomes(lambda: played.engine._nodes.seen["a"].standing is DOWN)
    played.slurm.states["a"] = READY
    told = await played.trial.told(Noticed)
    assert (told.kind, told.subject) == ("node_kept_out", "a")
    with pytest.raises(InvalidInput, match=r"slots of node 'a' is 3; allowed: 2, or none"):
        await played.engine.let_in("a", 3)
    assert await played.engine.let_in("a", 2)
    found = await played.trial.told(NodeFound)
    assert (found.node.name, found.node.slots) == ("a", 2)
    assert not await played.engine.let_in("a"), "it is in service"
    assert played.trial.unread == []


async def test_a_node_that_was_told_to_leave_stays_out_when_the_server_is_started_again(played: Played) -> None:
    await played.trial.start(*TWO)
    await played.engine.leave("a")
    await dies(played)
    await played.trial.start(TWO[1])
    assert (await played.trial.told(Noticed)).kind == "node_kept_out"
    assert await played.engine.let_in("a")
    assert (await played.trial.told(NodeFound)).node.name == "a"


# After a server that died


async def dies(played: Played) -> Trial:
    """The server dies, with everything that it has in memory; the next one has not begun."""
    engine = played.engine
    for task in tuple(engine._tasks):
        task.cancel()
    await asyncio.gather(*engine._tasks, return_exceptions=True)
    assert engine._door is not None
    engine._door.close()
    engine._folder.close()
    played.trial.engine = SlurmEngine(played.root, SlurmSettings("main", poll=0.1))
    return played.trial


async def test_the_next_server_takes_over_what_runs_waits_or_has_ended(played: Played) -> None:
    await played.trial.start(*TWO)
    runs, ended, out_of_time = await played.runs(), await played.runs(slot=1), await played.runs(node="b")
    waits = played.launches(node="b", slot=1)
    await becomes(lambda: 4 in played.slurm.jobs)
    trial = await dies(played)
    played.ends(ended, WELL)
    played.ends(out_of_time, Ending(Outcome.KILLED))
    for number, state in ((ended, "COMPLETED"), (out_of_time, "TIMEOUT")):
        played.slurm.moves(number, state)
    found = await trial.start(*TWO)
    assert found.running == {(1, 0, 1), waits}
    assert [one.ending.outcome for one in found.ended] == [Outcome.SUCCEEDED, Outcome.OUT_OF_TIME]
    assert await trial.told(Started) == Started(1, 0, 1)
    behind = played.launches()
    played.ends(runs, WELL)
    assert (await trial.told(Ended)).key == (1, 0, 1)
    await becomes(lambda: 5 in played.slurm.jobs)
    played.ends(5, WELL)
    assert (await trial.told(Ended)).key == behind
    played.ends(4, WELL)
    assert (await trial.told(Ended)).key == waits


async def test_the_next_server_takes_over_what_runs_on_a_slot_and_what_follows_it(played: Played) -> None:
    """Also if it finds the folder of what follows first."""
    await played.trial.start(*TWO)
    played.trial._task = 9
    first, following = await played.runs(), played.launches()
    await becomes(lambda: 2 in played.slurm.jobs)
    assert sorted(path.name for path in (played.root / "attempts").iterdir()) == ["1.10.1.0", "1.9.1.0"]
    trial = await dies(played)
    assert (await trial.start(*TWO)).running == {(1, 9, 1), following}
    assert await trial.told(Started) == Started(1, 9, 1)
    later = played.launches()
    played.ends(2, WELL)
    await asyncio.sleep(0.3)
    assert trial.unread == []
    played.ends(first, WELL)
    assert [(await trial.told(Ended)).key for _ in range(2)] == [(1, 9, 1), following]
    await becomes(lambda: 3 in played.slurm.jobs)
    played.ends(3, WELL)
    assert (await trial.told(Ended)).key == later


async def test_what_ran_on_a_node_that_is_down_now_is_dropped(played: Played) -> None:
    await played.trial.start(*TWO)
    number = await played.runs()
    trial = await dies(played)
    played.slurm.states["a"] = DOWN
    found = await trial.start(*TWO)
    assert (found.running, found.ended, found.absent) == (frozenset(), (), {"a"})
    await becomes(lambda: played.slurm.jobs[number][1] == "CANCELLED")
    await becomes(lambda: not list((played.root / "attempts").iterdir()))


async def test_what_succeeded_on_a_node_before_it_was_drained_counts_although_no_server_was_there(
    played: Played,
) -> None:
    await played.trial.start(*TWO)
    well, badly, runs = await played.runs(), await played.runs(slot=1), await played.runs(node="b")
    trial = await dies(played)
    played.ends(well, WELL)
    played.slurm.moves(well, "COMPLETED")
    played.ends(badly, FAILED)
    played.slurm.states["a"] = DOWN
    found = await trial.start(*TWO)
    assert [(one.key, one.ending.outcome) for one in found.ended] == [((1, 0, 1), Outcome.SUCCEEDED)]
    assert (len(found.running), found.absent) == (1, {"a"})
    await becomes(lambda: played.slurm.jobs[badly][1] == "CANCELLED")
    assert played.slurm.jobs[runs][1] == "RUNNING"
    assert await trial.told(Started) == Started(1, 2, 1)
    played.engine.acknowledge(1, 0, 1)
    await becomes(lambda: len(list((played.root / "attempts").iterdir())) == 1)


async def test_what_was_never_submitted_or_cannot_be_read_is_removed(played: Played) -> None:
    await played.trial.start(*TWO)
    never, torn = await played.runs(), await played.runs(slot=1)
    trial = await dies(played)
    del played.slurm.jobs[never]
    (played.root / "attempts" / "1.1.1.0" / "part").write_bytes(b"half of")
    assert (await trial.start(*TWO)).running == frozenset()
    assert played.slurm.jobs[torn][1] == "CANCELLED"
    await becomes(lambda: not list((played.root / "attempts").iterdir()))


async def test_a_gang_of_which_a_member_failed_without_a_server_ends_with_the_next(played: Played) -> None:
    await played.trial.start(*TWO)
    trial = played.trial
    key = trial.launch(Command(("true",)), Command(("true",)), node=("a", "b"), slots=(0, 0))
    await becomes(lambda: 2 in played.slurm.jobs)
    for rank in (0, 1):
        played.slurm.moves(rank + 1, "RUNNING")
        played.tells(rank + 1, MemberStarted(*key, rank))
    await trial.told(Started)
    await dies(played)
    played.tells(2, MemberEnded(*key, 1, 2, Raw(encode(FAILED))))
    played.slurm.moves(2, "COMPLETED")
    assert (await trial.start(*TWO)).running == {key}
    await trial.told(Started)
    ended = await trial.told(Ended)
    assert (ended.ending.outcome, ended.ending.detail) == (Outcome.EXITED, "process 1: exit status 3")
    assert [member.outcome for member in ended.members] == [Outcome.KILLED, Outcome.EXITED]
    assert played.slurm.jobs[1][1] == "CANCELLED"


async def test_while_the_disk_of_the_folder_is_full_launches_wait_and_that_is_said(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "_ROOM_AGAIN_SECONDS", 0.01)
    give, full = played.engine._folder.give, [True]

    def given(*order: Any) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        give(*order)

    monkeypatch.setattr(played.engine._folder, "give", given)
    await played.trial.start(*TWO)
    waits, unwanted = played.launches(), played.launches(slot=1)
    for _ in range(2):
        assert "No space left" in (await played.trial.told(Stalled)).detail
    played.engine.kill(*unwanted)
    assert (await played.trial.ended(unwanted)).ending.outcome is Outcome.KILLED
    assert played.slurm.submitted == []
    full.clear()
    assert (await played.trial.told(Stalled)).detail == ""
    await becomes(lambda: [key for (key, _), _ in played.slurm.jobs.values()] == [waits])
    played.ends(1, WELL)
    await played.trial.ended(waits)


async def test_a_disk_that_stays_full_strikes_the_attempt(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "ROOM_SECONDS", 0.0)

    def given(*order: Any) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(played.engine._folder, "give", given)
    await played.trial.start(*TWO)
    ending = (await played.trial.ended(played.launches())).ending
    assert (ending.outcome, ending.outside) == (Outcome.REFUSED, True)
    assert "Disk quota exceeded" in ending.detail


async def test_a_node_on_which_nothing_begins_is_said_and_left_alone_for_a_while(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without Python there: two jobs end before our program has begun. What runs elsewhere goes on."""
    monkeypatch.setattr(nodes, "_PAUSES", (0.5, 0.5))
    await played.trial.start(*TWO)
    well = await played.runs(node="b")
    for _ in range(2):
        number = await played.runs(node="a")
        played.slurm.moves(number, "FAILED")
        ended = await played.trial.told(Ended)
        assert (ended.ending.outcome, ended.ending.outside) == (Outcome.REFUSED, True)
    noticed = await played.trial.told(Noticed)
    assert (noticed.kind, noticed.subject) == ("node_not_started", "a")
    assert "the same Python with Headway" in noticed.detail
    assert (await played.trial.told(NodeLost)).node == "a"
    played.ends(well, WELL)
    await played.trial.told(Ended)
    assert (await played.trial.told(NodeBack)).node == "a"
    number = await played.runs(node="a")
    played.ends(number, WELL)
    await played.trial.told(Ended)
    number = await played.runs(node="a")
    played.slurm.moves(number, "FAILED")
    await played.trial.told(Ended)
    await asyncio.sleep(0.3)
    assert played.trial.unread == [], "one alone says nothing of the node"


async def test_what_runs_on_a_node_on_which_nothing_more_begins_goes_on(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes nothing new for a while, and is not lost for it."""
    monkeypatch.setattr(nodes, "_PAUSES", (0.5, 0.5))
    await played.trial.start(*TWO)
    well = await played.runs(node="a", slot=1)
    for _ in range(2):
        number = await played.runs(node="a")
        played.slurm.moves(number, "FAILED")
        assert (await played.trial.told(Ended)).ending.outside
    assert (await played.trial.told(Noticed)).kind == "node_not_started"
    shut = await played.trial.told(NodeShut)
    assert (shut.node, shut.detail.partition(";")[0]) == ("a", "our program does not begin there")
    assert (await played.trial.told(NodeReady)).node == "a"
    played.ends(well, WELL)
    assert (await played.trial.told(Ended)).ending == WELL
    assert played.trial.unread == []


async def test_a_file_that_a_task_asks_for_while_no_server_runs_is_given_by_the_next(
    played: Played, tmp_path: Path
) -> None:
    kept = FilesInMemory()
    name = kept.add(b"mesh")
    await played.engine.start(TWO, played.trial._take, kept)
    key = played.trial.command("true", node="a", slots=(0,), files=True)
    await becomes(lambda: 1 in played.slurm.jobs)
    played.slurm.moves(1, "RUNNING")
    for task in played.engine._tasks:
        task.cancel()
    await played.engine._close()  # as if it were killed
    played.engine._attempts.clear()
    played.tells(1, MemberStarted(*key, 0))
    played.tells(1, FileWanted(name))
    async with Trial(SlurmEngine(played.root, SlurmSettings("main", poll=0.1)), 10, files=kept) as later:
        assert (await later.engine.start(TWO, later._take, kept)).running == {key}
        place = played.root / "files" / "1.0.1.0"
        await becomes(lambda: (place / name).exists() and (place / "answers").stat().st_size > 0)
        assert (place / name).read_bytes() == b"mesh"
        played.slurm.moves(1, "COMPLETED")
        assert await later.told(Started) == Started(*key)


def without_room(monkeypatch: pytest.MonkeyPatch) -> FilesInMemory:
    """Files of a server that can keep no more."""
    kept = FilesInMemory()

    async def full(name: str, parts: object) -> None:
        raise NoRoom("the disk is full", "")

    monkeypatch.setattr(kept, "put", full)
    return kept


async def test_an_output_for_which_the_server_has_no_room_strikes_the_attempt(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = without_room(monkeypatch)
    await played.engine.start(TWO, played.trial._take, kept)
    key = played.trial.command("true", node="a", slots=(0,), files=True)
    await becomes(lambda: 1 in played.slurm.jobs)
    content = b"result"
    name = hashlib.sha256(content).hexdigest()
    (played.root / "attempts" / "1.0.1.0" / "kept" / name).write_bytes(content)
    played.slurm.moves(1, "RUNNING")
    played.tells(1, MemberStarted(*key, 0))
    played.ends(1, Ending(Outcome.SUCCEEDED, outputs={"o": f"headway:{name}/o"}))
    ending = (await played.trial.ended(key)).ending
    assert (ending.outcome, ending.outside) == (Outcome.REFUSED, True)
    assert "outputs cannot be kept: the disk is full" in ending.detail
    played.trial.disregard(Started)


async def test_if_an_output_of_a_gang_cannot_be_kept_each_of_its_members_was_refused(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = without_room(monkeypatch)
    await played.engine.start(TWO, played.trial._take, kept)
    key = played.trial.launch(Command(("true",)), Command(("true",)), node=("a", "b"), slots=(0, 0), files=True)
    await becomes(lambda: 2 in played.slurm.jobs)
    name = hashlib.sha256(b"result").hexdigest()
    (played.root / "attempts" / "1.0.1.0" / "kept" / name).write_bytes(b"result")
    gave = Ending(Outcome.SUCCEEDED, outputs={"o": f"headway:{name}/o"})
    for number, ending in ((1, gave), (2, WELL)):
        played.slurm.moves(number, "RUNNING")
        played.tells(number, MemberStarted(*key, number - 1))
        played.tells(number, MemberEnded(*key, number - 1, 1, Raw(encode(ending))))
    ended = await played.trial.ended(key)
    assert (ended.ending.outcome, ended.ending.outside) == (Outcome.REFUSED, True)
    assert [member.outcome for member in ended.members] == [Outcome.REFUSED, Outcome.REFUSED]
    played.trial.disregard(Started)


@pytest.mark.parametrize("some", [False, True])
async def test_that_no_news_come_from_the_nodes_is_said_once(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, some: bool
) -> None:
    monkeypatch.setattr(module, "_NEWS_SECONDS", 0.05)
    await played.trial.start(*TWO)
    for played.news in (some, False, False):
        number = await played.runs()
        played.ends(number, WELL)
        assert (await played.trial.told(Ended)).ending == WELL
    await asyncio.sleep(0.2)
    warned = [one.getMessage() for one in caplog.records if "no news" in one.getMessage()]
    assert len(warned) == (0 if some else 1)
    for said in warned:
        assert "reported up to 0.1 s late. Can they reach 127.0.0.1, UDP port" in said
        assert "`address` of the site" in said


async def test_an_address_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^address is 'no such host'; allowed: a name or an address of this mach"):
        await asyncio.to_thread(module._check_address, "no such host")
    await asyncio.to_thread(module._check_address, "127.0.0.1")
