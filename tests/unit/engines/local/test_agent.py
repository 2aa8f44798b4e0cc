"""The agent's logic, with a driver in memory: what it is told by frames, and what it says in frames.

Each test has a process of its own, because an agent owns all children of its process. The slots' processes are real.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import select
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from headway.engines.base import Ending
from headway.engines.local.agent import agent as agent_module
from headway.engines.local.agent.agent import Agent
from headway.engines.local.agent.transport import Line
from headway.engines.local.shared.frames import (
    VERSION,
    Acknowledge,
    CommandFrame,
    FilePiece,
    FileWanted,
    Frame,
    HasDriver,
    Hello,
    Kill,
    Launch,
    MemberEnded,
    Ping,
    Pong,
    Resize,
    Standing,
    Stop,
    Welcome,
    encode,
    ending_of,
    to_driver_decoder,
)
from headway.engines.local.shared.processes import adopt_orphans
from headway.engines.local.shared.terms import Terms
from headway.model.outcome import Outcome

SECRET = b"s" * 32


class MemoryLine:
    """Both ends of a connection in memory: the agent's, and that of the driver of a test."""

    def __init__(self, epoll: select.epoll) -> None:
        self.closed = False
        self.told: list[Any] = []
        self.hung_up = False
        self._epoll = epoll
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._bodies: deque[bytes] = deque()
        self._decode = to_driver_decoder().decode
        epoll.register(self._event, select.EPOLLIN)

    # The driver's end

    def say(self, *messages: Frame) -> None:
        self._bodies += map(encode, messages)
        os.eventfd_write(self._event, 1)

    def go(self) -> None:
        """The driver dies."""
        self.hung_up = True
        os.eventfd_write(self._event, 1)

    # The agent's end

    def fileno(self) -> int:
        return self._event

    def receive(self) -> list[bytes]:
        if select.select([self._event], [], [], 0)[0]:
            os.eventfd_read(self._event)
        bodies = list(self._bodies)
        self._bodies.clear()
        self.closed = self.hung_up
        return bodies

    def send(self, sent: bytes) -> None:
        while sent:
            size = int.from_bytes(sent[:4], "little")
            self.told.append(self._decode(sent[4 : 4 + size]))
            sent = sent[4 + size :]

    def resume(self) -> None:
        raise AssertionError("everything fits")

    def drop(self) -> None:
        os.close(self._event)

    def close(self) -> None:
        self._epoll.unregister(self._event)
        os.close(self._event)
        self.closed = True


class MemoryDoor:
    """Lets in the drivers of a test."""

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.lines: deque[MemoryLine] = deque()

    def fileno(self) -> int:
        return self._event

    def accept(self, epoll: select.epoll) -> Line | None:
        os.eventfd_read(self._event)
        line = MemoryLine(epoll)
        self.lines.append(line)
        return line

    def knock(self) -> None:
        os.eventfd_write(self._event, 1)

    def close(self) -> None:
        os.close(self._event)


class Rig:
    """An agent of two slots, whose turns a test makes one by one.

    Args:
        apart: it has no disk in common with its driver.
    """

    def __init__(self, root: Path, *, apart: bool) -> None:
        folder, uploads = root / "nodes" / "n", root / "uploads"
        folder.mkdir(parents=True)
        uploads.mkdir()
        terms = Terms("n", str(folder), str(root / "output"), str(root), 2, 60.0, 1 << 20, None, str(uploads), apart)
        self.door = MemoryDoor()
        self.agent = Agent(terms, self.door, os.open(root / "lock", os.O_CREAT | os.O_RDWR), SECRET)

    def connect(self, secret: bytes = SECRET) -> MemoryLine:
        """A driver that says hello."""
        self.door.knock()
        self.agent.turn()
        line = self.door.lines[-1]
        line.say(Hello(secret, VERSION, False))
        self.agent.turn()
        return line

    def heard(self, line: MemoryLine, kind: type[Any]) -> Any:
        """Make turns until the agent has said something of this kind."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for message in line.told:
                if isinstance(message, kind):
                    line.told.remove(message)
                    return message
            self.agent.turn()
        raise AssertionError(f"no {kind.__name__} came, but {line.told}")

    def ended(self, line: MemoryLine) -> tuple[int, Ending]:
        """The task of the next end, and how it ended."""
        message = self.heard(line, MemberEnded)
        return message.task, ending_of(message)


def shell(task: int, script: str, slot: int = 0, **terms: Any) -> Launch:
    """A program on one slot."""
    return running(CommandFrame(("sh", "-c", script), "", {}, "", "", ""), task, slot, **terms)


def running(command: CommandFrame, task: int = 0, slot: int = 0, **terms: Any) -> Launch:
    """A command on one slot."""
    more = {"time_limit": None, "memory_limit": None} | terms
    return Launch(1, task, 1, 0, 1, (slot,), function="", pickled=None, work=Raw(encode(command)), **more)


def alone(tmp_path: Path, test: Callable[[Rig], None], *, apart: bool = False) -> None:
    """Run a test in a process that has no other children."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = b""
        try:
            adopt_orphans()
            rig = Rig(tmp_path / "engine", apart=apart)
            test(rig)
            rig.agent.end()
        except BaseException:  # noqa: BLE001  # it is told to the test
            said = pickle.dumps(traceback.format_exc())
        finally:
            os.write(writing, said)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        said = told.read()
    os.waitpid(child, 0)
    assert said == b"", pickle.loads(said)


def test_a_program_runs_and_its_end_is_kept_until_it_is_acknowledged(tmp_path: Path) -> None:
    def test(rig: Rig) -> None:
        driver = rig.connect()
        welcome = rig.heard(driver, Welcome)
        assert (welcome.standing, welcome.ended) == ([], [])
        driver.say(shell(0, "echo said; exit 3"))
        task, ending = rig.ended(driver)
        assert (task, ending.outcome, ending.exit_code) == (0, Outcome.EXITED, 3)
        assert ending.stdout is not None
        assert ending.stdout.tail == b"said\n"

        driver.go()
        rig.agent.turn()
        later = rig.connect()
        (kept,) = rig.heard(later, Welcome).ended
        assert (kept.task, ending_of(kept).exit_code) == (0, 3)
        later.say(Acknowledge([(1, 0, 1)]))
        later.go()
        rig.agent.turn()
        assert rig.heard(rig.connect(), Welcome).ended == []

    alone(tmp_path, test)


def test_what_runs_goes_on_without_a_driver_and_the_next_one_can_kill_it(tmp_path: Path) -> None:
    def test(rig: Rig) -> None:
        driver = rig.connect()
        driver.say(shell(0, "sleep 600"), shell(1, "sleep 600", slot=0))
        rig.agent.turn()
        driver.go()
        rig.agent.turn()
        later = rig.connect()
        standing: list[Standing] = rig.heard(later, Welcome).standing
        assert sorted(one.task for one in standing) == [0, 1]
        later.say(Kill(1, 1, 1))
        assert rig.ended(later)[1].outcome is Outcome.KILLED
        later.say(Kill(1, 0, 1))
        assert rig.ended(later)[1].outcome is Outcome.KILLED

    alone(tmp_path, test)


def test_a_limit_ends_a_run_and_the_next_one_gets_its_slot(tmp_path: Path) -> None:
    def test(rig: Rig) -> None:
        driver = rig.connect()
        driver.say(shell(0, "sleep 600", time_limit=0.2), shell(1, "true"))
        assert [(task, ending.outcome) for task, ending in (rig.ended(driver), rig.ended(driver))] == [
            (0, Outcome.OUT_OF_TIME),
            (1, Outcome.SUCCEEDED),
        ]

    alone(tmp_path, test)


def test_a_program_comes_to_a_node_apart_as_an_input_and_again_if_it_was_changed_on_its_way(tmp_path: Path) -> None:
    script = b"#!/bin/sh\necho rendered $1\n"
    name = hashlib.sha256(script).hexdigest()

    def test(rig: Rig) -> None:
        driver = rig.connect()
        command = CommandFrame(("./render", "7"), "", {}, "", "", "", {"render": f"headway:{name}/render"})
        driver.say(running(command, uploads=rig.agent.terms.uploads))
        for sent in (script[:-1] + b"\r", script):
            assert rig.heard(driver, FileWanted) == FileWanted(name)
            driver.say(FilePiece(name, sent[:9], False), FilePiece(name, sent[9:], True))
        _, ending = rig.ended(driver)
        assert (ending.outcome, ending.detail) == (Outcome.SUCCEEDED, "")
        assert ending.stdout is not None
        assert ending.stdout.tail == b"rendered 7\n"

    alone(tmp_path, test, apart=True)


NO_FOLDER = "it cannot run in the folder /no/such: No such file or directory on node 'n'"
NO_PROGRAM = "No such file or directory, or the program that its first line names is not there"
APART = "which has no files in common with the server"


@pytest.mark.parametrize(
    ("apart", "cwd", "said"),
    [
        (False, "/no/such", f"{NO_FOLDER}; --cwd names another one"),
        (True, "/no/such", f"{NO_FOLDER}, {APART}; --cwd names a folder that is there, --input gives"),
        (False, "/", NO_PROGRAM),
        (True, "/", f"{NO_PROGRAM}, on node 'n', {APART}; it comes there as an input: --input NAME=URL -- ./NAME"),
    ],
)
def test_what_is_missing_and_where_and_what_can_be_done(tmp_path: Path, apart: bool, cwd: str, said: str) -> None:
    def test(rig: Rig) -> None:
        driver = rig.connect()
        driver.say(running(CommandFrame(("./render",), cwd, {}, "", "", "")))
        _, ending = rig.ended(driver)
        assert ending.outcome is Outcome.REFUSED
        assert ending.detail.startswith(f"cannot start './render': {said}")
        assert "\n" not in ending.detail, "lists show one line"

    alone(tmp_path, test, apart=apart)


def test_one_driver_that_knows_the_secret_and_no_other(tmp_path: Path) -> None:
    def test(rig: Rig) -> None:
        stranger = rig.connect(b"x" * 32)
        assert (stranger.told, stranger.closed) == ([], True)
        driver = rig.connect()
        second = rig.connect()
        assert second.closed
        assert [type(message) for message in second.told] == [HasDriver]
        driver.say(Ping())
        rig.heard(driver, Pong)

    alone(tmp_path, test)


def one_ended_of_twenty(rig: Rig) -> MemoryLine:
    """A driver of programs that wait for one slot, when the first of them has ended."""
    driver = rig.connect()
    rig.heard(driver, Welcome)
    driver.say(*(shell(task, "true") for task in range(20)))
    while not rig.agent.ended:
        rig.agent.turn()
    return driver


def test_an_agent_that_is_stopped_tells_the_ends_that_waited_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "ENDS_WAIT_SECONDS", 3600.0)

    def test(rig: Rig) -> None:
        driver = one_ended_of_twenty(rig)
        assert driver.told == []
        driver.say(Stop())
        rig.agent.turn()
        assert rig.agent.stopping
        assert {message.task for message in driver.told} >= {0}

    alone(tmp_path, test, apart=True)


@pytest.mark.parametrize("apart", [True, False])
def test_on_a_node_apart_ends_are_told_together_while_the_slots_have_more_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    monkeypatch.setattr(agent_module, "ENDS_WAIT_SECONDS", 3600.0)

    def test(rig: Rig) -> None:
        driver = one_ended_of_twenty(rig)
        assert len(driver.told) == (0 if apart else 1)
        driver.say(Ping())
        rig.heard(driver, Pong)
        assert len(driver.told) > 0, "what cannot wait takes them along"
        assert [rig.ended(driver)[0] for _ in range(20)] == list(range(20)), "the last ones do not wait"

    alone(tmp_path, test, apart=apart)


def test_ends_wait_for_others_only_so_long(tmp_path: Path) -> None:
    def test(rig: Rig) -> None:
        driver = rig.connect()
        rig.heard(driver, Welcome)
        driver.say(shell(0, "true"), *(shell(task, "sleep 600") for task in range(1, 20)))
        assert rig.ended(driver)[0] == 0
        assert len(rig.agent.waiting) == 18

    alone(tmp_path, test, apart=True)


def test_a_slot_that_goes_at_once_ends_what_runs_there(tmp_path: Path) -> None:
    def test(rig: Rig) -> None:
        driver = rig.connect()
        driver.say(shell(0, "sleep 600", slot=1), Resize(1, True))
        task, ending = rig.ended(driver)
        assert (task, ending.outcome) == (0, Outcome.KILLED)
        driver.say(Stop())
        rig.agent.turn()
        assert rig.agent.stopping

    alone(tmp_path, test)
