"""Every engine's duties to its driver, one by one: `headway.engines.base`."""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from headway.engines.base import (
    TAIL_MAX,
    AttemptKey,
    Call,
    Command,
    Ended,
    Files,
    Function,
    NodeBack,
    NodeLost,
    Output,
    Saved,
    Started,
)
from headway.engines.trial import FilesInFolder, FilesInMemory, Trial, calling
from headway.errors import NameTaken, NoSuchOutput
from headway.model.events import Outcome
from headway.model.node import NodeSpec

from ..small import MIB, fill, mounted
from ..waiting import LIMIT, becomes, gone

pytestmark = pytest.mark.anyio

LONG = 600.0
PYTHON = sys.executable


def add(a: int, b: int) -> int:
    return a + b


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def wait_for(path: str) -> str:
    """Return once the file is there. A test makes it when everything before has happened."""
    import os
    import time

    while not os.path.exists(path):
        time.sleep(0.005)
    return "found"


def touch_and_sleep(path: str) -> None:
    import time

    open(path, "w").close()
    time.sleep(600)


async def there(path: Path) -> None:
    """Wait until a task has made a file."""
    await becomes(path.exists)


# Calls


async def test_a_value_comes_back(trial: Trial) -> None:
    assert (await trial.start()).running == frozenset()
    assert await trial.value(trial.call(add, 1, 2)) == 3


async def test_ends_say_how_long_it_took(trial: Trial) -> None:
    await trial.start()
    ending = (await trial.ended(trial.call(sleep, 0.05))).ending
    assert ending.outcome is Outcome.SUCCEEDED
    assert 0.05 <= ending.seconds < 60
    assert 0 <= ending.cpu_seconds < 60
    assert (ending.stdout, ending.stderr, ending.detail) == (None, None, "")


async def test_many_tasks_on_each_slot_in_order(trial: Trial) -> None:
    await trial.start()
    keys = [trial.call(add, number, 0, slots=(number % 2,)) for number in range(200)]
    assert [await trial.value(key) for key in keys] == list(range(200))


async def test_an_exception_travels_with_its_traceback(trial: Trial) -> None:
    def fail() -> None:
        raise KeyError("missing")

    await trial.start()
    ending = (await trial.ended(trial.call(fail))).ending
    assert ending.outcome is Outcome.RAISED
    assert isinstance(pickle.loads(ending.result or b""), KeyError)
    lines = ending.detail.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert ", in fail" in lines[1]
    assert lines[-1] == "KeyError: 'missing'"


async def test_an_exception_that_cannot_be_pickled_is_told_in_words(trial: Trial) -> None:
    def fail() -> None:
        class Odd(Exception):
            def __init__(self, a: int, b: int) -> None:
                super().__init__(f"{a} and {b}")

        raise Odd(1, 2)

    await trial.start()
    ending = (await trial.ended(trial.call(fail))).ending
    assert (ending.outcome, ending.result) == (Outcome.RAISED, None)
    assert "Odd: 1 and 2" in ending.detail


async def test_a_result_that_cannot_be_pickled(trial: Trial) -> None:
    await trial.start()
    ending = (await trial.ended(trial.call(threading.Lock))).ending
    assert ending.outcome is Outcome.RAISED
    said = "the result of allocate_lock, of type _thread.lock, cannot be pickled: cannot pickle '_thread.lock' object"
    assert ending.detail.endswith(f"PicklingError: {said}\n")
    error = pickle.loads(ending.result or b"")
    assert isinstance(error, pickle.PicklingError)
    assert str(error) == said


async def test_a_call_runs_in_a_folder_with_variables_and_the_next_one_without(trial: Trial, tmp_path: Path) -> None:
    def place() -> tuple[str, str | None]:
        import os

        return os.getcwd(), os.environ.get("GIVEN")

    async def found(**terms: Any) -> tuple[str, str | None]:
        return await trial.value(trial.launch(msgspec.structs.replace(calling(place), **terms)))

    await trial.start()
    plain = await found()
    assert plain[1] is None
    assert await found(cwd=str(tmp_path), env={"GIVEN": "yes"}) == (str(tmp_path), "yes")
    assert await found() == plain
    assert await found(cwd="/no/such/folder", anywhere=True) == plain


async def test_a_call_that_cannot_run_in_its_folder_is_refused(trial: Trial) -> None:
    await trial.start()
    ending = (await trial.ended(trial.launch(msgspec.structs.replace(calling(add, 1, 2), cwd="/no/such")))).ending
    assert (ending.outcome, ending.detail) == (
        Outcome.REFUSED,
        "cannot run in the folder /no/such: No such file or directory on node 'n'",
    )


async def test_a_result_that_is_too_large(trial: Trial) -> None:
    await trial.start()
    ending = (await trial.ended(trial.call(bytes, 10_000, result_max=10_000))).ending
    assert (ending.outcome, ending.result) == (Outcome.TOO_LARGE, None)
    assert "allowed: 10000" in ending.detail
    assert len(await trial.value(trial.call(bytes, 10_000, result_max=11_000))) == 10_000


async def test_a_large_argument_and_a_large_result(trial: Trial) -> None:
    await trial.start()
    large = os.urandom(20 << 20)
    assert await trial.value(trial.call(lambda given: given[::-1], large)) == large[::-1]


@pytest.mark.parametrize("part", ["function", "arguments"])
async def test_what_cannot_be_read_is_refused(trial: Trial, part: str) -> None:
    await trial.start()
    broken = b"cnot_a_module\nat_all\n."
    good = calling(add, 1, 2)
    call = Call(Function.of(broken), good.arguments) if part == "function" else Call(good.function, broken)
    for _ in range(2):
        ending = (await trial.ended(trial.launch(call))).ending
        assert (ending.outcome, ending.result) == (Outcome.REFUSED, None)
        assert "not_a_module" in ending.detail


async def test_what_a_function_writes_is_kept(trial: Trial) -> None:
    def write(size: int) -> int:
        import os
        import sys

        print("p" * size)
        print("to stderr", file=sys.stderr)
        os.write(1, b"from below")
        return size

    await trial.start()
    size = 3 * TAIL_MAX
    ending = (await trial.ended(trial.call(write, size))).ending
    assert ending.outcome is Outcome.SUCCEEDED
    assert ending.stdout is not None
    assert ending.stderr is not None
    whole = b"p" * size + b"\nfrom below"
    assert (ending.stdout.size, ending.stdout.tail) == (len(whole), whole[-TAIL_MAX:])
    assert await trial.output(ending.stdout.name) == whole
    assert ending.stderr.tail == b"to stderr\n"
    after = (await trial.ended(trial.call(add, 1, 1))).ending
    assert (after.stdout, after.stderr) == (None, None)


def say(text: bytes) -> None:
    """Write to stdout."""
    sys.stdout.buffer.write(text)


def say_and_wait(text: bytes, path: str, rest: bytes) -> None:
    """Write to stdout; write the rest when a file is there."""
    sys.stdout.buffer.write(text)
    sys.stdout.flush()
    while not os.path.exists(path):
        time.sleep(0.005)
    sys.stdout.buffer.write(rest)


TEXT = bytes(place % 251 for place in range(3 * TAIL_MAX + 7))


async def so_far(trial: Trial, key: AttemptKey, rank: int | None = None) -> bytes | None:
    """What a running attempt has written; None if it does not run yet."""
    name = trial.engine.show(*key, rank, "stdout")
    return await trial.output(name) if name else None


async def test_output_is_read_in_pieces_until_it_is_discarded(trial: Trial) -> None:
    await trial.start()
    key = trial.call(say, TEXT)
    output = (await trial.ended(key)).ending.stdout
    other = (await trial.ended(trial.call(say, TEXT[::-1]))).ending.stdout
    assert output is not None
    assert other is not None
    assert (output.size, output.tail, output.cut) == (len(TEXT), TEXT[-TAIL_MAX:], 0)
    assert output.sha256 == hashlib.sha256(TEXT).hexdigest()
    for piece in (997, TAIL_MAX, 10 * len(TEXT)):
        assert await trial.output(output.name, piece) == TEXT
    assert await trial.engine.read(output.name, 5, 3) == TEXT[5:8]
    assert await trial.engine.read(output.name, len(TEXT) - 2, 100) == TEXT[-2:]
    assert await trial.engine.read(output.name, len(TEXT) + 100, 100) == b""
    path = trial.engine.locate(output.name)
    assert path is None or path.read_bytes() == TEXT
    assert sorted(names_kept(trial)) == sorted([(key[0], output.name), (key[0], other.name)])

    trial.engine.discard([output.name, "what never was", ""])
    await anyio.sleep(0.01)
    with pytest.raises(NoSuchOutput):
        await trial.engine.read(output.name, 0, 100)
    assert path is None or not path.exists()
    assert names_kept(trial) == [(key[0], other.name)]
    assert await trial.output(other.name) == TEXT[::-1]
    trial.engine.discard([output.name])


def names_kept(trial: Trial) -> list[tuple[int, str]]:
    """Job and name of all that the engine keeps."""
    return [(job, name) for job, names in trial.engine.outputs(-LONG) for name in names]


async def test_output_that_a_full_disk_cannot_take_is_lost_for_that_reason(
    case: Any, kept: FilesInFolder | FilesInMemory, tmp_path: Path
) -> None:
    with mounted(tmp_path / "small") as small:
        async with Trial(case.make(small, LIMIT), files=kept) as trial:
            await trial.start()
            fill(small / "ballast", MIB)
            output = (await trial.ended(trial.command("sh", "-c", "yes | head -c 5000000"))).ending.stdout
            assert output == Output("", 5_000_000, b"y\n" * (TAIL_MAX // 2), 5_000_000 - TAIL_MAX, "", output.lost)
            assert output.lost == "the disk of its node was full"
            (small / "ballast").unlink()
            again = (await trial.ended(trial.command("sh", "-c", "yes | head -c 5000000"))).ending.stdout
            assert (again.size, again.cut, again.lost) == (5_000_000, 0, "")


async def test_output_is_read_while_it_is_written(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    engine, door = trial.engine, tmp_path / "door"
    key = trial.call(say_and_wait, b"so far", str(door), b", and " + TEXT)
    quiet = trial.call(wait_for, str(door), slots=(1,))
    with anyio.fail_after(LONG):
        while await so_far(trial, key) != b"so far":
            await anyio.sleep(0.01)
    name = engine.show(*key, None, "stdout")
    path = engine.locate(name)
    assert path is None or path.read_bytes() == b"so far"
    assert await engine.read(name, 3, 2) == b"fa"
    assert await so_far(trial, quiet) == b""
    assert engine.show(1, 99, 1, None, "stdout") == "", "it does not run"
    door.touch()
    output = (await trial.ended(key)).ending.stdout
    assert output is not None
    assert await trial.output(output.name) == b"so far, and " + TEXT
    assert (await trial.ended(quiet)).ending.stdout is None
    assert names_kept(trial) == [(key[0], output.name)], "the rest is in the endings"


async def test_what_is_not_kept_cannot_be_read(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    secret = tmp_path / "secret"
    secret.write_text("secret")
    short = (await trial.ended(trial.call(say, b"a line"))).ending.stdout
    assert short is not None
    assert (short.name, short.size, short.tail, short.sha256) == ("", 6, b"a line", "")
    for name in ("", "nothing", "1/0.1.out", f"{tmp_path}/engine/output/1/0.1.out", str(secret), "../secret", "/"):
        with pytest.raises(NoSuchOutput):
            await trial.engine.read(name, 0, 100)
        path = trial.engine.locate(name)
        assert path is None or not path.exists()
    trial.engine.discard([str(secret), "../secret", "/"])
    assert secret.exists()
    assert names_kept(trial) == []


async def test_members_of_a_gang_have_outputs_of_their_own(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    door = tmp_path / "door"
    says = [calling(say_and_wait, text, str(door), TEXT) for text in (b"first", b"second")]
    key = trial.launch(*says, slots=(0, 1))
    with anyio.fail_after(LONG):
        while [await so_far(trial, key, rank) for rank in (0, 1)] != [b"first", b"second"]:
            await anyio.sleep(0.01)
    door.touch()
    outputs = [member.stdout for member in (await trial.ended(key)).members]
    assert [await trial.output(output.name) for output in outputs if output] == [b"first" + TEXT, b"second" + TEXT]


async def test_output_is_there_for_the_next_driver(trial: Trial, kept: Files) -> None:
    """Of an engine that was stopped, in order; its later process knows what the journal names."""
    await trial.start()
    output = (await trial.ended(trial.call(say, TEXT))).ending.stdout
    assert output is not None
    await trial.engine.stop()
    await trial.engine.start([NodeSpec("n")], trial.unread.append, kept)
    assert await trial.output(output.name) == TEXT


async def test_files_of_the_server_are_had_and_given(trial: Trial, kept: FilesInFolder | FilesInMemory) -> None:
    await trial.start()
    name = kept.add(TEXT)
    where = {"inputs": {"i": f"headway:{name}/i"}, "outputs": {"o": "headway:o"}}
    key = trial.command("sh", "-c", "cat i i > o", **where, files=True, fetches=True)
    assert await trial.told(Started) == Started(*key)
    ending = (await trial.ended(key)).ending
    given = hashlib.sha256(2 * TEXT).hexdigest()
    assert (ending.outcome, ending.outputs) == (Outcome.SUCCEEDED, {"o": f"headway:{given}/o"})
    assert await kept.read(given, 0, 10 * len(TEXT)) == 2 * TEXT


async def test_a_file_that_the_server_does_not_keep_is_refused(trial: Trial) -> None:
    await trial.start()
    inputs = {"i": f"headway:{'0' * 64}/i"}
    ending = (await trial.ended(trial.command("sh", "-c", "cat i", inputs=inputs, files=True, fetches=True))).ending
    assert ending.outcome is Outcome.REFUSED
    assert "0" * 64 in ending.detail


async def test_a_function_may_do_to_its_streams_what_it_likes(trial: Trial) -> None:
    def close() -> str:
        import os
        import sys

        sys.stdout.close()
        sys.stderr = None
        os.close(1)
        return "done"

    await trial.start()
    assert await trial.value(trial.call(close)) == "done"
    ending = (await trial.ended(trial.call(print, "as before"))).ending
    assert ending.stdout is not None
    assert ending.stdout.tail == b"as before\n"


# Kinds of ends


def _os_exit(code: int) -> None:
    import os

    print("last words")
    os._exit(code)


def _die(number: int) -> None:
    import os

    print("last words")
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("function", "argument", "outcome", "exit_code", "said"),
    [
        (sys.exit, 3, Outcome.EXITED, 3, "exit status 3"),
        (sys.exit, 0, Outcome.EXITED, 0, "exit status 0, before it returned"),
        (_os_exit, 7, Outcome.EXITED, 7, "exit status 7, before it returned"),
        (_die, signal.SIGKILL, Outcome.SIGNALLED, -9, "signal 9 (SIGKILL): sent by another program"),
        (_die, signal.SIGSEGV, Outcome.SIGNALLED, -11, "signal 11 (SIGSEGV)"),
    ],
)
async def test_a_function_that_ends_its_process(
    trial: Trial, function: Any, argument: int, outcome: Outcome, exit_code: int, said: str
) -> None:
    await trial.start()
    ending = (await trial.ended(trial.call(function, argument))).ending
    assert (ending.outcome, ending.exit_code, ending.result) == (outcome, exit_code, None)
    assert ending.detail.startswith(said)
    if function is not sys.exit:
        assert ending.stdout is not None
        assert ending.stdout.tail == b"last words\n"
    assert await trial.value(trial.call(add, 1, 1)) == 2


async def test_a_function_that_forks_and_returns_twice_ends_once(trial: Trial) -> None:
    def fork() -> int:
        import os

        return os.fork() and 1

    await trial.start()
    assert await trial.value(trial.call(fork)) == 1
    assert await trial.value(trial.call(add, 1, 1)) == 2


async def test_a_time_limit(trial: Trial) -> None:
    await trial.start()
    late = trial.call(sleep, LONG, time_limit=0.2)
    command = trial.command("sleep", str(LONG), time_limit=0.2, slots=(1,))
    soon = trial.call(sleep, 0, time_limit=LONG)
    for key in (late, command):
        ending = (await trial.ended(key)).ending
        assert (ending.outcome, ending.exit_code) == (Outcome.OUT_OF_TIME, None)
        assert ending.detail == "ran longer than 0.2 s"
        assert ending.seconds >= 0.2
    assert (await trial.ended(soon)).ending.outcome is Outcome.SUCCEEDED


def _fill(megabytes: int, seconds: float = 0.0) -> int:
    """Use memory bit by bit, as numpy does when it fills an array, and hold it for a while."""
    held = [bytearray(os.urandom(1) * (1 << 20)) for _ in range(megabytes)]
    time.sleep(seconds)
    return len(held)


FILL = "import time; held = [bytearray(b'x' * (1 << 20)) for _ in range(400)]; time.sleep(600)"


async def test_a_memory_limit(trial: Trial) -> None:
    await trial.start()
    limit = 200 << 20
    greedy = trial.call(_fill, 400, LONG, memory_limit=limit)
    command = trial.command(PYTHON, "-c", FILL, memory_limit=limit, slots=(1,))
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    family = trial.command(PYTHON, "-c", child, FILL, memory_limit=limit)
    for key in (greedy, command, family):
        ending = (await trial.ended(key)).ending
        assert ending.outcome is Outcome.OUT_OF_MEMORY
        assert "allowed: 200 MiB" in ending.detail
    assert await trial.value(trial.call(_fill, 50, memory_limit=limit)) == 50


async def test_memory_that_is_not_to_be_had(trial: Trial) -> None:
    await trial.start()
    ending = (await trial.ended(trial.call(bytes, 1 << 60))).ending
    assert ending.outcome is Outcome.OUT_OF_MEMORY
    assert ending.detail.splitlines()[-1] == "MemoryError"


# Commands


async def test_a_command_and_its_output(trial: Trial) -> None:
    await trial.start()
    key = trial.command("sh", "-c", "echo out; echo err >&2; exit 3")
    ended = await trial.ended(key)
    ending = ended.ending
    assert (ending.outcome, ending.exit_code, ending.detail) == (Outcome.EXITED, 3, "exit status 3")
    assert ending.stdout is not None
    assert ending.stderr is not None
    assert (ending.stdout.tail, ending.stderr.tail) == (b"out\n", b"err\n")
    assert (ended.members, ending.result) == ((), None)
    well = (await trial.ended(trial.command("true"))).ending
    assert (well.outcome, well.exit_code, well.stdout) == (Outcome.SUCCEEDED, 0, None)


async def test_a_command_with_files_folder_and_environment(trial: Trial, case: Any, tmp_path: Path) -> None:
    if not case.files:
        pytest.skip("commands do not see this machine's files")
    (tmp_path / "in").write_text("given")
    await trial.start()
    key = trial.command(
        *("sh", "-c", 'cat; echo " $WORD $HEADWAY_JOB.$HEADWAY_TASK.$HEADWAY_ATTEMPT $HEADWAY_NODE"; pwd >&2'),
        cwd=str(tmp_path),
        env={"WORD": "word"},
        stdin="in",
        stdout="out",
        stderr=str(tmp_path / "err"),
    )
    ending = (await trial.ended(key)).ending
    assert ending.outcome is Outcome.SUCCEEDED
    assert (tmp_path / "out").read_text() == "given word 1.0.1 n\n"
    assert (tmp_path / "err").read_text() == f"{tmp_path}\n"
    assert ending.stdout is not None
    assert (ending.stdout.name, ending.stdout.tail) == ("", b"given word 1.0.1 n\n")


@pytest.mark.parametrize(
    "command",
    [
        Command(("no such program",)),
        Command(("true",), cwd="/no/such/folder"),
        Command(("true",), stdin="/no/such/file"),
        Command(("true",), stdout="/no/such/folder/out"),
        Command(("a\0b",)),
    ],
    ids=["program", "folder", "input", "output", "name"],
)
async def test_a_command_that_cannot_start_is_refused(trial: Trial, command: Command) -> None:
    await trial.start()
    ending = (await trial.ended(trial.launch(command))).ending
    assert (ending.outcome, ending.exit_code) == (Outcome.REFUSED, None)
    assert ending.detail.startswith(f"cannot start {command.argv[0]!r}: ")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (Command(("nosuch",), env={"PATH": "/bin"}), "there is no such program on the PATH of tasks, /bin; --env PATH"),
        (Command(("cat a | wc",)), "there is no program of this name; a line for a shell is run by sh -c 'cat a | wc'"),
        (Command(("true",), cwd="/no/such/folder"), "it cannot run in the folder /no/such/folder: No such file"),
        (Command(("/dev/null",)), "Permission denied; is it a program that may be executed (chmod +x)?"),
        (Command(("./nosuch",)), "No such file or directory, or the program that its first line names is not there"),
    ],
)
async def test_why_a_command_cannot_start_and_what_may_help(trial: Trial, command: Command, said: str) -> None:
    await trial.start()
    assert said in (await trial.ended(trial.launch(command))).ending.detail


async def test_a_command_that_dies_by_a_signal(trial: Trial) -> None:
    await trial.start()
    ending = (await trial.ended(trial.command("sh", "-c", "kill -TERM $$"))).ending
    assert (ending.outcome, ending.exit_code) == (Outcome.SIGNALLED, -15)
    assert ending.detail == "signal 15 (SIGTERM)"


# Killing


async def test_killing_what_runs_and_what_waits(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    running = trial.call(touch_and_sleep, str(tmp_path / "running"))
    shell = "echo x; touch command; exec sleep 600"
    command = trial.command("sh", "-c", shell, slots=(1,), cwd=str(tmp_path), stdout="out")
    waiting = trial.call(add, 1, 2)
    await there(tmp_path / "running")
    await there(tmp_path / "command")
    for key in (waiting, running, command):
        trial.engine.kill(*key)
    for key in (waiting, running, command):
        ending = (await trial.ended(key)).ending
        assert (ending.outcome, ending.result, ending.exit_code) == (Outcome.KILLED, None, None)
    assert ending.stdout is not None
    assert (ending.stdout.name, ending.stdout.tail) == ("", b"x\n"), "the file is its user's"
    assert await trial.value(trial.call(add, 1, 1)) == 2


async def test_killing_what_has_ended_or_never_was_does_nothing(trial: Trial) -> None:
    await trial.start()
    key = trial.call(add, 1, 2)
    await trial.ended(key, acknowledge=False)
    trial.engine.kill(*key)
    trial.engine.kill(7, 7, 7)
    trial.engine.acknowledge(*key)
    trial.engine.kill(*key)
    trial.engine.acknowledge(*key)
    assert await trial.value(trial.call(add, 1, 1)) == 2


async def test_killed_at_once_after_its_launch(trial: Trial) -> None:
    await trial.start()
    for _ in range(20):
        key = trial.call(add, 1, 2)
        trial.engine.kill(*key)
        assert (await trial.ended(key)).ending.outcome in (Outcome.KILLED, Outcome.SUCCEEDED)
    assert await trial.value(trial.call(add, 1, 1)) == 2


# Slots


async def test_slots_that_are_taken_are_waited_for(trial: Trial, tmp_path: Path) -> None:
    await trial.start(NodeSpec("n", slots=3))
    door = tmp_path / "door"
    first = trial.call(wait_for, str(door))
    both = trial.call(add, 1, 2, slots=(0, 1))
    behind = trial.call(add, 3, 4, slots=(1,))
    other = trial.call(add, 5, 6, slots=(2,))
    assert (await trial.told(Ended)).key == other
    door.touch()
    assert [(await trial.told(Ended)).key for _ in range(3)] == [first, both, behind]


async def test_what_waits_behind_a_long_run_is_given_back(trial: Trial, tmp_path: Path) -> None:
    """It was launched there because all before it were short; now it may run elsewhere."""
    await trial.start(NodeSpec("n", slots=2))
    door = tmp_path / "door"
    long = trial.call(wait_for, str(door), slots=(0,))
    waiting = [trial.call(add, number, 1, slots=(0,)) for number in range(3)]
    wide = trial.call(add, 3, 4, slots=(0, 1))
    for key in waiting:
        assert (await trial.ended(key)).ending.outcome is Outcome.KILLED
    again = trial.call(add, 5, 6, slots=(0,))
    door.touch()
    assert (await trial.ended(long)).ending.outcome is Outcome.SUCCEEDED
    assert await trial.value(wide) == 7, "what needs several slots has been promised all of them"
    assert await trial.value(again) == 11, "the long one has ended in time"


async def test_a_member_may_hold_several_slots(trial: Trial, tmp_path: Path) -> None:
    await trial.start(NodeSpec("n", slots=3))
    door = tmp_path / "door"
    wide = trial.call(wait_for, str(door), slots=(0, 2))
    assert await trial.value(trial.call(add, 1, 2, slots=(1,))) == 3
    door.touch()
    ended = await trial.ended(wide)
    assert (ended.ending.outcome, ended.members) == (Outcome.SUCCEEDED, ())


async def test_starts_are_reported_where_the_node_says_so(trial: Trial) -> None:
    await trial.start(NodeSpec("n", slots=2, reports_start=True))
    for key in (trial.call(add, 1, 2), trial.launch(calling(add, 1, 2), calling(add, 3, 4), slots=(0, 1))):
        started, ended = await trial.told(Started), await trial.told(Ended)
        assert (started.job, started.task, started.attempt) == ended.key == key


# Gangs

TWO = (NodeSpec("a", slots=2), NodeSpec("b", slots=2))


async def test_a_gang_starts_together_and_ends_as_one(trial: Trial, tmp_path: Path) -> None:
    def meet(rank: int) -> int:
        """Every member sees all others."""
        import os
        import time

        open(f"{tmp}/{rank}", "w").close()
        while len(os.listdir(tmp)) < 3:
            time.sleep(0.005)
        print("rank", rank)
        print("x" * TAIL_MAX)
        return rank * 10

    tmp = str(tmp_path / "meet")
    os.mkdir(tmp)
    await trial.start(*TWO)
    busy = trial.call(wait_for, str(tmp_path / "door"), node="b", slots=(1,))
    gang = trial.launch(*(calling(meet, rank) for rank in range(3)), node=("a", "a", "b"), slots=(0, 1, 1))
    later = trial.call(os.listdir, tmp, node="a")
    assert await trial.value(trial.call(os.listdir, tmp, node="b", slots=(0,))) == []
    (tmp_path / "door").touch()
    assert await trial.value(busy) == "found"
    ended = await trial.ended(gang)
    assert (ended.ending.outcome, ended.ending.result) == (Outcome.SUCCEEDED, None)
    assert [pickle.loads(member.result or b"") for member in ended.members] == [0, 10, 20]
    whole = [await trial.output(member.stdout.name) for member in ended.members if member.stdout]
    assert [text.decode().split("\n")[0] for text in whole] == ["rank 0", "rank 1", "rank 2"]
    assert len(await trial.value(later)) == 3


async def test_the_first_member_that_fails_ends_the_others(trial: Trial) -> None:
    def fail() -> None:
        raise ValueError("no")

    await trial.start(*TWO)
    sleeping = [calling(sleep, LONG) for _ in range(3)]
    gang = trial.launch(*sleeping[:2], calling(fail), sleeping[2], node=("a", "a", "b", "b"), slots=(0, 1, 0, 1))
    ended = await trial.ended(gang)
    assert ended.ending.outcome is Outcome.RAISED
    assert ended.ending.detail.startswith("process 2: Traceback")
    killed = Outcome.KILLED
    assert [member.outcome for member in ended.members] == [killed, killed, Outcome.RAISED, killed]
    for place in ({"node": "a"}, {"node": "b"}):
        assert await trial.value(trial.call(add, 1, 1, **place)) == 2


async def test_a_gang_of_commands_knows_its_ranks(trial: Trial) -> None:
    await trial.start(*TWO)
    command = Command(("sh", "-c", "echo $HEADWAY_RANK of $HEADWAY_WIDTH on $HEADWAY_NODE"))
    ended = await trial.ended(trial.launch(command, command, node=("a", "b"), slots=(1, 1)))
    tails = [member.stdout and member.stdout.tail for member in ended.members]
    assert tails == [b"0 of 2 on a\n", b"1 of 2 on b\n"]


async def test_killing_a_gang_that_runs_and_one_that_waits(trial: Trial, tmp_path: Path) -> None:
    await trial.start(*TWO)
    path = tmp_path / "running"
    running = trial.launch(calling(sleep, LONG), calling(touch_and_sleep, str(path)), node=("a", "b"), slots=(0, 0))
    waiting = trial.launch(calling(add, 1, 2), calling(add, 1, 2), node=("a", "b"), slots=(1, 0))
    await there(path)
    for key in (waiting, running):
        trial.engine.kill(*key)
        ended = await trial.ended(key)
        assert ended.ending.outcome is Outcome.KILLED
        assert ended.ending.detail in ("process 0: killed", "process 1: killed")  # the one that ended first
        assert [member.outcome for member in ended.members] == [Outcome.KILLED] * 2
    assert await trial.value(trial.call(add, 1, 1, node="b")) == 2


# Nodes


async def test_an_unknown_node_loses_what_is_launched_on_it(trial: Trial) -> None:
    await trial.start()
    keys = [trial.call(add, 1, 2, node="x")]
    keys.append(trial.launch(calling(add, 1, 2), calling(add, 1, 2), node=("n", "x"), slots=(0, 0)))
    assert trial.unread == []
    for key in keys:
        assert (await trial.ended(key)).ending.outcome is Outcome.LOST


async def test_a_node_that_dies_is_lost_and_comes_back_empty(trial: Trial, case: Any, tmp_path: Path) -> None:
    if case.kill_node is None:
        pytest.skip("its nodes cannot be killed by a test")
    await trial.start(*TWO)
    names = [str(tmp_path / name) for name in ("lost", "gang")]
    trial.call(touch_and_sleep, names[0], node="a", slots=(0,))
    trial.call(add, 1, 2, node="a", slots=(0,))
    trial.launch(calling(touch_and_sleep, names[1]), calling(sleep, LONG), node=("b", "a"), slots=(0, 1))
    spared = trial.call(wait_for, str(tmp_path / "door"), node="b", slots=(1,))
    for name in names:
        await there(Path(name))
    case.kill_node(trial.engine, "a")
    assert (await trial.told(NodeLost)).node == "a"
    behind = trial.call(add, 2, 2, node="b", slots=(0,))
    assert await trial.value(behind) == 4, "the gang's member on the other node must make room"
    assert (await trial.told(NodeBack)).node == "a"
    assert await trial.value(trial.call(add, 1, 1, node="a", slots=(0,))) == 2
    assert await trial.value(trial.call(add, 1, 1, node="a", slots=(1,))) == 2
    (tmp_path / "door").touch()
    assert await trial.value(spared) == "found"


async def test_a_node_that_dies_again_and_again_comes_back_each_time(trial: Trial, case: Any) -> None:
    if case.kill_node is None:
        pytest.skip("its nodes cannot be killed by a test")
    await trial.start(*TWO)
    for _ in range(3):
        case.kill_node(trial.engine, "a")
        assert (await trial.told(NodeLost)).node == "a"
        assert (await trial.ended(trial.call(add, 1, 1, node="a"))).ending.outcome is Outcome.LOST
        assert await trial.value(trial.call(add, 1, 1, node="b")) == 2
        assert (await trial.told(NodeBack)).node == "a"
        assert await trial.value(trial.call(add, 1, 1, node="a")) == 2


# Nodes that come, go and change


async def test_a_node_joins_and_runs_what_it_is_given(trial: Trial) -> None:
    await trial.start()
    await trial.engine.join(NodeSpec("m", slots=2))
    keys = [trial.call(add, 1, slot, node="m", slots=(slot,)) for slot in (0, 1)]
    assert [await trial.value(key) for key in keys] == [1, 2]
    gang = trial.launch(calling(add, 1, 1), calling(add, 2, 2), node=("n", "m"), slots=(1, 1))
    assert (await trial.ended(gang)).ending.outcome is Outcome.SUCCEEDED


async def test_a_node_of_a_name_that_is_served_does_not_join(trial: Trial) -> None:
    await trial.start()
    with pytest.raises(NameTaken, match="the name 'n' is taken"):
        await trial.engine.join(NodeSpec("n", slots=4))
    assert await trial.value(trial.call(add, 1, 1)) == 2


async def test_a_node_leaves_with_all_that_runs_there_and_its_name_can_be_used_again(
    trial: Trial, tmp_path: Path
) -> None:
    await trial.start(*TWO)
    names = [tmp_path / name for name in ("single", "gang")]
    trial.call(touch_and_sleep, str(names[0]), node="a")
    trial.call(add, 1, 1, node="a")
    trial.launch(calling(touch_and_sleep, str(names[1])), calling(sleep, LONG), node=("b", "a"), slots=(0, 1))
    for name in names:
        await there(name)
    await trial.engine.leave("a")
    assert trial.unread == []
    assert await trial.value(trial.call(add, 2, 2, node="b")) == 4, "the gang's member must make room"
    assert (await trial.ended(trial.call(add, 1, 1, node="a"))).ending.outcome is Outcome.LOST
    await trial.engine.leave("a")
    await trial.engine.join(NodeSpec("a", slots=3))
    assert await trial.value(trial.call(add, 1, 1, node="a", slots=(2,))) == 2


async def test_a_node_that_grows_can_be_launched_on_at_once(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    door = tmp_path / "door"
    waiting = trial.call(wait_for, str(door))
    trial.engine.resize("n", 4)
    assert await trial.value(trial.call(add, 1, 2, slots=(3,))) == 3
    door.touch()
    assert await trial.value(waiting) == "found"


async def test_a_node_that_shrinks_finishes_what_it_was_given(trial: Trial, tmp_path: Path) -> None:
    await trial.start(NodeSpec("n", slots=3))
    door = tmp_path / "door"
    runs = trial.call(wait_for, str(door), slots=(2,))
    waits = trial.call(add, 1, 2, slots=(2,))
    trial.engine.resize("n", 1)
    refused = trial.call(add, 1, 2, slots=(1,))
    assert (await trial.ended(refused)).ending.outcome is Outcome.LOST
    assert await trial.value(trial.call(add, 3, 4)) == 7
    door.touch()
    assert await trial.value(runs) == "found"
    assert await trial.value(waits) == 3
    trial.engine.resize("n", 3)
    assert await trial.value(trial.call(add, 5, 6, slots=(2,))) == 11


async def test_a_node_that_shrinks_at_once_kills_what_runs_beyond(trial: Trial, tmp_path: Path) -> None:
    await trial.start(NodeSpec("n", slots=3))
    door, began = tmp_path / "door", tmp_path / "began"
    beyond = trial.call(touch_and_sleep, str(began), slots=(2,))
    waits = trial.call(add, 1, 2, slots=(2,))
    stays = trial.call(wait_for, str(door))
    await there(began)
    trial.engine.resize("n", 1, at_once=True)
    for key in (beyond, waits):
        assert (await trial.ended(key)).ending.outcome is Outcome.KILLED
    door.touch()
    assert await trial.value(stays) == "found"
    trial.engine.resize("n", 3)
    assert await trial.value(trial.call(add, 5, 6, slots=(2,))) == 11


async def test_a_gang_of_which_a_member_is_on_a_slot_that_goes_at_once_is_killed(trial: Trial, tmp_path: Path) -> None:
    await trial.start(*TWO)
    began = [tmp_path / name for name in ("a", "b")]
    gang = trial.launch(*(calling(touch_and_sleep, str(path)) for path in began), node=("a", "b"), slots=(0, 1))
    for path in began:
        await there(path)
    trial.engine.resize("b", 1, at_once=True)
    ended = await trial.ended(gang)
    assert ended.ending.outcome is Outcome.KILLED
    assert await trial.value(trial.call(add, 1, 1, node="a")) == 2


async def test_a_node_that_is_resized_while_it_is_lost_comes_back_of_that_size(trial: Trial, case: Any) -> None:
    if case.kill_node is None:
        pytest.skip("its nodes cannot be killed by a test")
    await trial.start(NodeSpec("n", slots=2))
    case.kill_node(trial.engine, "n")
    assert (await trial.told(NodeLost)).node == "n"
    trial.engine.resize("n", 3)
    assert (await trial.told(NodeBack)).node == "n"
    assert await trial.value(trial.call(add, 1, 1, slots=(2,))) == 2


async def test_a_node_leaves_while_it_is_lost(trial: Trial, case: Any) -> None:
    if case.kill_node is None:
        pytest.skip("its nodes cannot be killed by a test")
    await trial.start(*TWO)
    case.kill_node(trial.engine, "a")
    assert (await trial.told(NodeLost)).node == "a"
    await trial.engine.leave("a")
    assert await trial.value(trial.call(add, 1, 1, node="b")) == 2
    await trial.engine.join(TWO[0])
    assert await trial.value(trial.call(add, 1, 1, node="a")) == 2


# Checkpoints


def save_and_sleep(state: str, path: str) -> None:
    import time

    import headway

    print("resumed:", headway.resumed())
    for _ in range(3):
        assert headway.checkpoint(state)
    open(path, "w").close()
    time.sleep(600)


def resume() -> object:
    import headway

    return headway.resumed("nothing")


async def test_what_a_function_saved_is_there_for_its_next_attempt_on_any_node(trial: Trial, tmp_path: Path) -> None:
    await trial.start(*TWO)
    first = trial.call(save_and_sleep, "half way", str(tmp_path / "saved"), node="a", key=(1, 0, 1))
    other = trial.call(resume, node="a", slots=(1,), key=(1, 1, 1))
    await there(tmp_path / "saved")
    saved = await trial.told(Saved)
    assert (saved.job, saved.task, saved.attempt) == first
    assert await trial.value(other) == "nothing"
    trial.engine.kill(*first)
    ending = (await trial.ended(first)).ending
    assert ending.stdout is not None
    assert ending.stdout.tail == b"resumed: None\n"
    assert await trial.value(trial.call(resume, node="b", key=(1, 0, 2))) == "half way"
    trial.disregard(Saved)
    with anyio.fail_after(60):  # it takes a moment, in which nothing of the task should run
        for attempt in count(3):
            trial.engine.forget(1, 0)
            await anyio.sleep(0.02)
            if await trial.value(trial.call(resume, node="b", key=(1, 0, attempt))) == "nothing":
                break


async def test_what_a_command_leaves_in_its_folder_is_there_for_its_next_attempt(trial: Trial, tmp_path: Path) -> None:
    await trial.start(*TWO)
    door = tmp_path / "saved"
    script = 'ls $HEADWAY_CHECKPOINT; echo $HEADWAY_ATTEMPT >> $HEADWAY_CHECKPOINT/tries; touch "$0"; exec sleep 600'
    first = trial.command("sh", "-c", script, str(door), node="a", key=(1, 0, 1))
    await there(door)
    saved = await trial.told(Saved)
    assert (saved.job, saved.task, saved.attempt) == first
    trial.engine.kill(*first)
    assert (await trial.ended(first)).ending.stdout is None
    script = "ls $HEADWAY_CHECKPOINT; echo $HEADWAY_ATTEMPT >> $HEADWAY_CHECKPOINT/tries; cat $HEADWAY_CHECKPOINT/tries"
    second = await trial.ended(trial.command("sh", "-c", script, node="b", key=(1, 0, 2)))
    assert second.ending.stdout is not None
    assert second.ending.stdout.tail == b"tries\n1\n2\n"
    trial.disregard(Saved)
    with anyio.fail_after(60):
        for attempt in count(3):
            trial.engine.forget(1)
            await anyio.sleep(0.02)
            look = trial.command("sh", "-c", "ls $HEADWAY_CHECKPOINT", node="b", key=(1, 0, attempt))
            if (await trial.ended(look)).ending.stdout is None:
                break


async def test_a_gang_has_saved_when_all_its_members_have(trial: Trial, tmp_path: Path) -> None:
    def save_when(path: str, rank: int) -> object:
        import os
        import time

        import headway

        found = headway.resumed()
        if found is None:
            while not os.path.exists(path):
                time.sleep(0.005)
            headway.checkpoint(rank)
            time.sleep(600)
        return found

    await trial.start(*TWO)
    doors = [tmp_path / str(rank) for rank in range(2)]
    works = [calling(save_when, str(door), rank) for rank, door in enumerate(doors)]
    gang = trial.launch(*works, node=("a", "b"), slots=(0, 0), key=(1, 0, 1))
    doors[0].touch()
    assert await trial.value(trial.call(add, 1, 1, node="b", slots=(1,), key=(2, 0, 1))) == 2
    assert trial.unread == []
    doors[1].touch()
    saved = await trial.told(Saved)
    assert (saved.job, saved.task, saved.attempt) == gang
    trial.engine.kill(*gang)
    await trial.ended(gang)
    ended = await trial.ended(trial.launch(*works, node=("b", "a"), slots=(0, 0), key=(1, 0, 2)))
    assert [pickle.loads(member.result or b"") for member in ended.members] == [0, 1]


async def test_stopping_ends_what_runs_and_reports_nothing(trial: Trial, tmp_path: Path) -> None:
    await trial.start()
    path = tmp_path / "pid"
    trial.command("sh", "-c", 'echo $$ > draft; mv draft "$0"; exec sleep 600', str(path), cwd=str(tmp_path))
    await there(path)
    await trial.engine.stop()
    assert trial.unread == []
    assert gone(int(path.read_text()))
