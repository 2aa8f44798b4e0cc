"""What stands in for the functions of the contract tests on an engine that runs none: what they do, in virtual time."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from inspect import getclosurevars
from itertools import count
from pathlib import Path
from traceback import format_exc
from typing import Any

from headway.engines import base
from headway.model.outcome import Outcome

from ..faults.engine import Doing

STOOD_IN = frozenset(
    {
        "test_a_value_comes_back",
        "test_ends_say_how_long_it_took",
        "test_many_tasks_on_each_slot_in_order",
        "test_killing_what_has_ended_or_never_was_does_nothing",
        "test_killed_at_once_after_its_launch",
        "test_slots_that_are_taken_are_waited_for",
        "test_a_member_may_hold_several_slots",
        "test_starts_are_reported_where_the_node_says_so",
        "test_killing_a_gang_that_runs_and_one_that_waits",
        "test_an_unknown_node_loses_what_is_launched_on_it",
        "test_a_node_that_dies_is_lost_and_comes_back_empty",
        "test_a_node_that_dies_again_and_again_comes_back_each_time",
        "test_a_node_joins_and_runs_what_it_is_given",
        "test_a_node_of_a_name_that_is_served_does_not_join",
        "test_a_node_leaves_with_all_that_runs_there_and_its_name_can_be_used_again",
        "test_a_node_that_grows_can_be_launched_on_at_once",
        "test_a_node_that_shrinks_finishes_what_it_was_given",
        "test_a_node_that_shrinks_at_once_kills_what_runs_beyond",
        "test_a_gang_of_which_a_member_is_on_a_slot_that_goes_at_once_is_killed",
        "test_a_node_that_is_resized_while_it_is_lost_comes_back_of_that_size",
        "test_a_node_leaves_while_it_is_lost",
        "test_what_runs_in_the_background_of_a_slot_does_not_wait_for_its_foreground",
        "test_a_change_restarts_nothing_and_makes_room",
        "test_two_that_exchange_their_places",
        "test_what_waits_for_a_place_waits_for_the_other_one",
        "test_changing_what_has_ended_or_never_was_does_nothing",
        "test_what_is_in_the_background_is_killed_as_any_other",
        "test_a_gang_changes_its_places_on_every_node",
        "test_a_node_that_shrinks_at_once_kills_what_runs_behind_it_too",
        "test_what_ran_behind_is_lost_with_its_node",
        "test_what_has_not_begun_has_nothing_to_save",
        "test_no_member_starts_when_a_node_is_lost_half_way",
        "test_output_is_read_in_pieces_until_it_is_discarded",
        "test_output_is_read_while_it_is_written",
        "test_what_is_not_kept_cannot_be_read",
        "test_members_of_a_gang_have_outputs_of_their_own",
        "test_output_is_there_for_the_next_driver",
        "test_files_of_the_server_are_had_and_given",
        "test_a_file_that_the_server_does_not_keep_is_refused",
        "test_a_time_limit",
        "test_what_waits_behind_a_long_run_is_given_back",
        "test_a_gang_starts_together_and_ends_as_one",
        "test_the_first_member_that_fails_ends_the_others",
        "test_a_member_that_cannot_start_ends_the_others",
        "test_a_function_that_returns_before_it_saves_has_succeeded",
        "test_what_does_not_save_in_time_is_killed",
    }
)
"""The duties towards attempts, nodes and kept files: they need no more of what runs than when it ends, and how.

The others are left out, because what they ask for is made by a process: how its exception, exit code, streams and
checkpoints come back, what its folder, its variables and its memory are, and that it is gone. Of an engine that runs
nothing they would test what stands in.
"""

_numbers = count(1)


def stands_in(assignment: base.Assignment, member: base.Member) -> Doing:
    """What a function of the tests would do, by its name, or a command, by its program."""
    call = member.work
    if isinstance(call, base.Command):
        return _runs(call.argv)
    function, (args, _) = pickle.loads(call.function.pickled), pickle.loads(call.arguments)
    match function.__name__:
        case "add":
            return Doing(0.0, _returns(args[0] + args[1]))
        case "sleep":
            return Doing(args[0], _returns(None))
        case "touch_and_sleep":
            Path(args[0]).touch()
            return Doing(600.0, _returns(None))
        case "say":
            return Doing(0.0, _returns(None), says=args[0])
        case "say_and_wait":
            return Doing(None, _returns(None), _waits(function, args[1]), says=args[0], adds=args[2])
        case "wait_for":
            return Doing(None, _returns(None), _waits(function, args[0]))
        case "fail":
            return Doing(0.0, _raises(function))
        case "listdir":
            return Doing(0.0, _returns(os.listdir(args[0])))
        case "meet":
            (rank,), folder = args, Path(getclosurevars(function).nonlocals["tmp"])
            (folder / str(rank)).touch()
            said = f"rank {rank}\n".encode() + b"x" * base.TAIL_MAX
            met = _returns(10 * rank)
            return Doing(None, met, lambda: met if len(os.listdir(folder)) == 3 else None, says=said)
    raise AssertionError(f"nothing stands in for {function.__name__}")


def _runs(argv: tuple[str, ...]) -> Doing:
    """What a program would do: one sleeps, one is not there, one ignores that it is to end, one copies a file twice."""
    done = base.Ending(Outcome.SUCCEEDED, exit_code=0)
    match argv:
        case ("sleep", seconds):
            return Doing(float(seconds), done)
        case ("no such program",):
            return Doing(0.0, base.Ending(Outcome.REFUSED, detail=f"cannot start {argv[0]!r}: there is none"))
        case ("sh", "-c", script) if script.startswith("trap '' TERM; touch "):
            Path(script.split("; ")[1].removeprefix("touch ")).touch()
            return Doing(None, done)
        case ("sh", *_):
            return Doing(0.0, done, gives=lambda had: {"o": 2 * had["i"]})
    raise AssertionError(f"nothing stands in for {argv}")


def _waits(function: Callable[..., Any], path: str) -> Callable[[], base.Ending | None]:
    """Wait for a file; the one of the tests of tiers tells that it began, and returns the number of its process."""
    if not function.__module__.endswith("test_tiers"):
        return lambda: _returns("found") if Path(path).exists() else None
    number = next(_numbers)
    Path(f"{path}.{number}").touch()
    return lambda: _returns(number) if Path(path).exists() else None


def _raises(function: Callable[[], object]) -> base.Ending:
    try:
        function()
    except Exception as error:  # noqa: BLE001  # whatever it raises, as a slot does
        return base.Ending(Outcome.RAISED, pickle.dumps(error), detail=format_exc())
    raise AssertionError(f"{function.__name__} raises nothing")


def _returns(value: object) -> base.Ending:
    return base.Ending(Outcome.SUCCEEDED, pickle.dumps(value))
