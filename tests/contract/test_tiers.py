"""Every engine's duties for the two tiers of a slot, and for attempts that continue elsewhere."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import anyio
import pytest

from headway.engines.base import AttemptKey, Command, Ended, NodeBack, NodeLost, Saved
from headway.engines.trial import Trial, calling
from headway.model.events import Outcome
from headway.model.node import NodeSpec
from headway.model.tier import Tier

pytestmark = pytest.mark.anyio

FG, BG = Tier.FOREGROUND, Tier.BACKGROUND
TWO = (NodeSpec("a", slots=2), NodeSpec("b", slots=2))


def add(a: int, b: int) -> int:
    return a + b


def wait_for(path: str) -> int:
    """Wait until the file is there, then return the id of this process."""
    import os
    import time

    open(f"{path}.{os.getpid()}", "w").close()
    while not os.path.exists(path):
        time.sleep(0.005)
    return os.getpid()


def count_up(path: str) -> int:
    """Count up and save each number until the file is there. The number it began with is in a file beside it."""
    import os
    import time

    import headway

    number = int(headway.resumed(0))
    open(f"{path}.{number}", "w").close()
    while not os.path.exists(path):
        number += 1
        headway.checkpoint(number)
        time.sleep(0.005)
    return number


async def beside(path: Path, count: int = 1) -> list[str]:
    """What this many tasks have written to files that begin with this name."""
    with anyio.fail_after(60):
        while (
            len(found := [one.name.removeprefix(path.name + ".") for one in path.parent.glob(f"{path.name}.*")]) < count
        ):
            await anyio.sleep(0.005)
    return found


# Places


async def test_what_runs_in_the_background_of_a_slot_does_not_wait_for_its_foreground(
    trial: Trial, tmp_path: Path
) -> None:
    await trial.start()
    door = tmp_path / "door"
    front = trial.call(wait_for, str(door))
    behind = trial.call(wait_for, str(door), tier=BG)
    assert len(await beside(door, 2)) == 2
    waits = [trial.call(add, 1, 2), trial.call(add, 3, 4, tier=BG)]
    assert await trial.value(trial.call(add, 5, 6, slots=(1,), tier=BG)) == 11
    assert trial.unread == []
    door.touch()
    pids = {await trial.value(key) for key in (front, behind)}
    assert len(pids) == 2
    assert [await trial.value(key) for key in waits] == [3, 7]


async def test_a_change_restarts_nothing_and_makes_room(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    door = tmp_path / "door"
    moved = trial.call(wait_for, str(door), tier=BG)
    (pid,) = await beside(door)
    trial.engine.change(*moved, FG)
    assert await trial.value(trial.call(add, 1, 2, tier=BG)) == 3
    waits = trial.call(add, 3, 4)
    trial.engine.change(*moved, BG)
    assert await trial.value(waits) == 7
    door.touch()
    assert await trial.value(moved) == int(pid)
    assert [await trial.value(trial.call(add, 1, tier, tier=tier)) for tier in Tier] == [1, 2]


@pytest.mark.parametrize("first", [FG, BG])
async def test_two_that_exchange_their_places(trial: Trial, tmp_path: Path, first: Tier) -> None:
    await trial.start(NodeSpec("n", slots=3))
    doors = [tmp_path / name for name in ("wide", "narrow")]
    wide = trial.call(wait_for, str(doors[0]), slots=(0, 1), tier=BG)
    narrow = trial.call(wait_for, str(doors[1]), slots=(0,))
    for door in doors:
        await beside(door)
    for tier, key in ((FG, wide), (BG, narrow))[:: 1 if first is FG else -1]:
        trial.engine.change(*key, tier)
    late = [trial.call(add, 1, 1, slots=(1,)), trial.call(add, 2, 2, slots=(0,), tier=BG)]
    assert await trial.value(trial.call(add, 3, 3, slots=(1,), tier=BG)) == 6
    assert trial.unread == []
    doors[1].touch()
    await trial.value(narrow)
    assert await trial.value(late[1]) == 4
    doors[0].touch()
    await trial.value(wide)
    assert await trial.value(late[0]) == 2


async def test_what_waits_for_a_place_waits_for_the_other_one(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    door = tmp_path / "door"
    front = trial.call(wait_for, str(door))
    waits = trial.call(add, 1, 2)
    trial.engine.change(*waits, BG)
    assert await trial.value(waits) == 3
    door.touch()
    await trial.value(front)


async def test_changing_what_has_ended_or_never_was_does_nothing(trial: Trial) -> None:
    await trial.start()
    key = trial.call(add, 1, 2)
    await trial.ended(key, acknowledge=False)
    trial.engine.change(*key, BG)
    trial.engine.change(7, 7, 7, BG)
    trial.engine.suspend(*key)
    trial.engine.suspend(7, 7, 7)
    trial.engine.acknowledge(*key)
    assert await trial.value(trial.call(add, 1, 1)) == 2


async def test_what_is_in_the_background_is_killed_as_any_other(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    front, behind = (trial.call(wait_for, str(tmp_path / "door"), tier=tier) for tier in Tier)
    await beside(tmp_path / "door", 2)
    trial.engine.kill(*behind)
    assert (await trial.ended(behind)).ending.outcome is Outcome.KILLED
    assert await trial.value(trial.call(add, 1, 1, tier=BG)) == 2
    (tmp_path / "door").touch()
    await trial.value(front)


async def test_a_gang_changes_its_places_on_every_node(trial: Trial, tmp_path: Path) -> None:
    await trial.start(*TWO)
    door = tmp_path / "door"
    works = [calling(wait_for, str(door)) for _ in range(3)]
    gang = trial.launch(*works, node=("a", "b", "b"), slots=(0, 0, 1), tier=BG)
    await beside(door, 3)
    trial.engine.change(*gang, FG)
    for node in ("a", "b"):
        assert await trial.value(trial.call(add, 1, 1, node=node, tier=BG)) == 2
    waits = trial.call(add, 1, 1, node="b", slots=(1,))
    assert trial.unread == []
    door.touch()
    ended = await trial.ended(gang)
    assert len({pickle.loads(member.result or b"") for member in ended.members}) == 3
    assert await trial.value(waits) == 2


async def test_a_node_that_shrinks_at_once_kills_what_runs_behind_it_too(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    behind = trial.call(wait_for, str(tmp_path / "door"), slots=(1,), tier=BG)
    await beside(tmp_path / "door")
    trial.engine.resize("n", 1, at_once=True)
    assert (await trial.ended(behind)).ending.outcome is Outcome.KILLED
    trial.engine.resize("n", 2)
    assert await trial.value(trial.call(add, 1, 1, slots=(1,), tier=BG)) == 2


async def test_what_ran_behind_is_lost_with_its_node(trial: Trial, case: Any, tmp_path: Path) -> None:
    if case.kill_node is None:
        pytest.skip("its nodes cannot be killed by a test")
    await trial.start(*TWO)
    trial.call(wait_for, str(tmp_path / "door"), node="a", tier=BG)
    await beside(tmp_path / "door")
    case.kill_node(trial.engine, "a")
    assert (await trial.told(NodeLost)).node == "a"
    assert await trial.value(trial.call(add, 1, 1, node="b", tier=BG)) == 2
    await trial.told(NodeBack)


# Continuing elsewhere


async def suspended(trial: Trial, key: AttemptKey, *, saves: bool = True) -> Ended:
    """Let an attempt save and end, and check that both are reported in this order."""
    trial.engine.suspend(*key)
    if saves:
        ended = await trial.told(Ended)
        assert not [one for one in trial.unread if not isinstance(one, Saved)], "nothing else is told"
        assert trial.unread, "that it saved is told, and before its end"
        trial.unread.clear()
    else:
        ended = await trial.told(Ended)
    assert ended.key == key
    trial.engine.acknowledge(*key)
    return ended


@pytest.mark.parametrize("tier", Tier)
async def test_a_function_saves_ends_and_goes_on_elsewhere(trial: Trial, tmp_path: Path, tier: Tier) -> None:
    await trial.start(*TWO)
    door = tmp_path / "door"
    first = trial.call(count_up, str(door), node="a", key=(1, 0, 1), tier=tier)
    await beside(door)
    await trial.told(Saved)
    ending = (await suspended(trial, first)).ending
    assert (ending.outcome, ending.result, ending.exit_code) == (Outcome.KILLED, None, None)
    second = trial.call(count_up, str(door), node="b", key=(1, 0, 2), tier=BG)
    began, resumed = sorted(map(int, await beside(door, 2)))
    assert began == 0 < resumed
    await trial.told(Saved)
    door.touch()
    assert await trial.value(second) >= resumed
    trial.disregard(Saved)


async def test_a_function_that_returns_before_it_saves_has_succeeded(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    door = tmp_path / "door"
    key = trial.call(wait_for, str(door))
    await beside(door)
    trial.engine.suspend(*key)
    door.touch()
    assert isinstance(await trial.value(key), int)
    assert await trial.value(trial.call(add, 1, 1)) == 2


async def test_a_function_cannot_keep_what_it_made_after_it_was_to_end(trial: Trial, tmp_path: Path) -> None:
    def stubborn(path: str) -> str:
        import headway

        open(f"{path}.0", "w").close()
        try:
            while True:
                headway.checkpoint("half")
        except BaseException:  # noqa: BLE001
            return "whole"

    await trial.start()
    key = trial.call(stubborn, str(tmp_path / "began"))
    await beside(tmp_path / "began")
    await trial.told(Saved)
    ending = (await suspended(trial, key)).ending
    assert (ending.outcome, ending.result) == (Outcome.KILLED, None)


SAVES = """
trap 'echo $HEADWAY_ATTEMPT >> "$HEADWAY_CHECKPOINT/tries"; exit 0' TERM
cat "$HEADWAY_CHECKPOINT/tries" 2>/dev/null
touch "$0.$HEADWAY_ATTEMPT"
while true; do sleep 0.01; done
"""


async def test_a_program_saves_when_it_is_told_to_end_whatever_its_exit_status(trial: Trial, tmp_path: Path) -> None:
    await trial.start(*TWO)
    began = tmp_path / "began"
    for attempt, node in ((1, "a"), (2, "b")):
        key = trial.command("sh", "-c", SAVES, str(began), node=node, key=(1, 0, attempt), tier=BG)
        await beside(began, attempt)
        ending = (await suspended(trial, key)).ending
        assert (ending.outcome, ending.exit_code) == (Outcome.KILLED, None)
    assert ending.stdout is not None
    assert ending.stdout.tail == b"1\n"


async def test_a_program_whose_child_saves_is_given_the_time(trial: Trial, tmp_path: Path) -> None:
    script = 'sh -c "$1" "$0" & wait'  # this shell dies of the signal, the other one saves
    trap = "trap 'sleep 0.2; echo late > $HEADWAY_CHECKPOINT/state; exit 0' TERM"
    saves = f"{trap}; touch $0.1; while true; do sleep 0.01; done"
    await trial.start()
    began = tmp_path / "began"
    key = trial.command("sh", "-c", script, str(began), saves, key=(1, 0, 1))
    await beside(began)
    assert (await suspended(trial, key)).ending.outcome is Outcome.KILLED
    after = (await trial.ended(trial.command("sh", "-c", "cat $HEADWAY_CHECKPOINT/state", key=(1, 0, 2)))).ending
    assert after.stdout is not None
    assert after.stdout.tail == b"late\n"


async def test_what_does_not_save_in_time_is_killed(hasty: Trial, tmp_path: Path) -> None:
    await hasty.start()
    door = tmp_path / "door"
    function = hasty.call(wait_for, str(door))
    program = hasty.command("sh", "-c", f"trap '' TERM; touch {door}.x; while true; do sleep 0.01; done", slots=(1,))
    await beside(door, 2)
    for key in (function, program):
        hasty.engine.suspend(*key)
    for key in (function, program):
        ending = (await hasty.ended(key)).ending
        assert ending.outcome is Outcome.KILLED
        assert "did not save and end within" in ending.detail


async def test_what_has_not_begun_has_nothing_to_save(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    door = tmp_path / "door"
    runs, waits = trial.call(wait_for, str(door)), trial.call(add, 1, 2)
    ending = (await suspended(trial, waits, saves=False)).ending
    assert (ending.outcome, ending.detail) == (Outcome.KILLED, ""), "it was not given time to save"
    door.touch()
    await trial.value(runs)


async def test_each_member_of_a_gang_saves_for_itself(trial: Trial, tmp_path: Path) -> None:
    def count_up_as_one_of_many(path: str) -> int:
        import os
        import time

        import headway

        rank, number = int(os.environ["HEADWAY_RANK"]), int(headway.resumed(0))
        open(f"{path}.{rank}.{number}", "w").close()
        while not os.path.exists(path):
            number += 1
            headway.checkpoint(number)
            time.sleep(0.005)
        return rank

    await trial.start(*TWO)
    door = tmp_path / "door"
    works = [calling(count_up_as_one_of_many, str(door)) for _ in range(3)]
    gang = trial.launch(*works, node=("a", "a", "b"), slots=(0, 1, 0), key=(1, 0, 1))
    await beside(door, 3)
    await trial.told(Saved)
    ended = await suspended(trial, gang)
    assert ended.ending.outcome is Outcome.KILLED
    assert [member.outcome for member in ended.members] == [Outcome.KILLED] * 3
    door.touch()
    again = await trial.ended(trial.launch(*works, node=("b", "a", "b"), slots=(1, 1, 0), key=(1, 0, 2)))
    assert [pickle.loads(member.result or b"") for member in again.members] == [0, 1, 2]
    resumed = [name for name in await beside(door, 6) if not name.endswith(".0")]
    assert sorted(name.split(".")[0] for name in resumed) == ["0", "1", "2"], "each from what it saved itself"


# A rigid job's tasks start together or not at all


async def test_a_member_that_cannot_start_ends_the_others(trial: Trial, tmp_path: Path) -> None:
    await trial.start(*TWO)
    waits = calling(wait_for, str(tmp_path / "door"))
    gang = trial.launch(waits, Command(("no such program",)), waits, node=("a", "a", "b"), slots=(0, 1, 0))
    ended = await trial.ended(gang)
    assert ended.ending.outcome is Outcome.REFUSED
    assert ended.ending.detail.startswith("process 1: cannot start 'no such program'")
    assert [member.outcome for member in ended.members] == [Outcome.KILLED, Outcome.REFUSED, Outcome.KILLED]
    for place in ({"node": "a"}, {"node": "a", "slots": (1,)}, {"node": "b"}):
        assert await trial.value(trial.call(add, 1, 1, **place)) == 2


@pytest.mark.parametrize("tier", Tier)
async def test_no_member_starts_when_a_node_is_lost_half_way(
    trial: Trial, case: Any, tmp_path: Path, tier: Tier
) -> None:
    if case.kill_node is None:
        pytest.skip("its nodes cannot be killed by a test")
    await trial.start(*TWO)
    door, began = tmp_path / "door", tmp_path / "began"
    busy = trial.call(wait_for, str(door), node="b", tier=tier)
    await beside(door)
    works = [calling(wait_for, str(began)) for _ in range(2)]
    trial.launch(*works, node=("a", "b"), slots=(0, 0), tier=tier)
    case.kill_node(trial.engine, "a")
    assert (await trial.told(NodeLost)).node == "a"
    door.touch()
    await trial.value(busy)
    assert await trial.value(trial.call(add, 1, 1, node="b", tier=tier)) == 2
    assert list(tmp_path.glob("began*")) == []
    await trial.told(NodeBack)


async def test_functions_of_a_gang_know_their_rank_and_its_width(trial: Trial) -> None:
    def seat() -> tuple[str | None, ...]:
        import os

        return tuple(os.environ.get(f"HEADWAY_{name}") for name in ("RANK", "WIDTH", "NODE"))

    await trial.start(*TWO)
    ended = await trial.ended(trial.launch(calling(seat), calling(seat), node=("b", "a"), slots=(0, 1)))
    assert [pickle.loads(member.result or b"") for member in ended.members] == [("0", "2", "b"), ("1", "2", "a")]
    assert (await trial.value(trial.call(seat, node="b")))[:2] == (None, None)
