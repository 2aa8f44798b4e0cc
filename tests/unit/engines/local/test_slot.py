"""The process of a slot: how the end of a program is reported, at any time."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import Raw

from headway.engines.base import Ending
from headway.engines.local.shared.frames import (
    CommandFrame,
    Launch,
    RunEnded,
    Stalled,
    Suspend,
    decode_ending,
    decode_from_slot,
    encode,
)
from headway.engines.local.shared.seal import Reader, flaw, new_seal, size_max, to_slot
from headway.engines.local.shared.terms import Terms
from headway.engines.local.slot import slot as local_slot
from headway.model.events import Outcome

from ....waiting import LIMIT


class Ended(subprocess.Popen[bytes]):
    """A program that has ended before its start was noticed."""

    def __init__(self, *words: Any, **how: Any) -> None:
        super().__init__(*words, **how)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)


class Crowded(subprocess.Popen[bytes]):
    """A program on a machine that has too many processes, at the first tries."""

    tries = 3

    def __init__(self, *words: Any, **how: Any) -> None:
        Crowded.tries -= 1
        if Crowded.tries >= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        super().__init__(*words, **how)


@pytest.mark.parametrize("status", [0, 3])
def test_a_program_that_ends_just_as_it_is_asked_to_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(subprocess, "Popen", Ended)
    assert ran(tmp_path, status, suspended=True)[0].outcome is Outcome.KILLED


@pytest.mark.parametrize("status", [0, 3])
def test_where_there_is_no_room_for_a_process_a_program_starts_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(subprocess, "Popen", Crowded)
    ending, _ = ran(tmp_path, status)
    assert ending.outcome is (Outcome.EXITED if status else Outcome.SUCCEEDED)
    assert ending.exit_code == status


def test_a_program_that_waits_for_room_can_be_asked_to_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", Crowded)
    monkeypatch.setattr(Crowded, "tries", 10**9)
    ending, _ = ran(tmp_path, 0, suspended=True)
    assert (ending.outcome, ending.detail) == (Outcome.KILLED, local_slot.LEFT)


def test_another_reason_is_not_waited_for() -> None:
    def missing() -> None:
        raise FileNotFoundError(errno.ENOENT, "no such program")

    with pytest.raises(FileNotFoundError):
        local_slot.when_there_is_room(missing, lambda: False)


class Full:
    """A disk that is full the first so many times that a folder is made there."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.begin = local_slot.places.begin

    def __call__(self, root: str, launch: Launch) -> str:
        if self.left:
            self.left -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), root)
        return self.begin(root, launch)


def test_a_task_waits_for_room_on_the_disk_and_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_slot.places, "begin", Full(3))
    ending, said = ran(tmp_path, 0)
    assert ending.outcome is Outcome.SUCCEEDED
    stalled, resumed = said
    assert "No space left on device" in stalled.detail
    assert resumed == Stalled("")


def test_where_there_is_no_room_for_long_a_task_is_given_back_as_not_its_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_slot, "ROOM_SECONDS", 0.2)
    monkeypatch.setattr(local_slot.places, "begin", Full(10**9))
    ending, said = ran(tmp_path, 0)
    assert (ending.outcome, ending.outside, len(said)) == (Outcome.REFUSED, True, 1)
    assert "No space left on device" in ending.detail
    assert ending.detail.endswith("there was no room for it for 0.2 s")
    assert flaw(ending, None, cast(Launch, None), asked=False) is None, "its agent believes that"


def test_a_task_that_waits_for_room_on_the_disk_can_be_asked_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_slot.places, "begin", Full(10**9))
    ending, _ = ran(tmp_path, 0, suspended=True)
    assert (ending.outcome, ending.detail, ending.outside) == (Outcome.KILLED, local_slot.LEFT, False)


def ran(tmp_path: Path, status: int, *, suspended: bool = False) -> tuple[Ending, list[Any]]:
    """How a program with this exit status ends in the process of a slot, and what that said before.

    It may be asked at once to save and end.
    """
    work = CommandFrame(("sh", "-c", f"exit {status}"), "", {}, "", "", "")
    launch = Launch(1, 0, 1, 0, 1, (0,), None, None, "", None, Raw(encode(work)))
    terms = Terms("n", str(tmp_path), str(tmp_path), str(tmp_path), 1, 60.0, 1 << 20)
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(LIMIT)
        seal = new_seal()
        suspend = to_slot(seal, encode(Suspend(1, 0, 1, 10.0))) if suspended else ()
        ours.sendall(b"".join((*to_slot(seal, encode(launch)), *suspend)))
        parent = os.getpid()
        slot = os.fork()
        if slot == 0:
            ours.close()
            try:
                local_slot.serve(theirs, socket.socketpair()[1], parent, str(tmp_path / "0"), terms)
            finally:
                os._exit(70)
        theirs.close()
        reader, said = Reader(), list[Any]()
        reader.begin(seal, size_max(launch))
        while not any(isinstance(one, RunEnded) for one in said):
            chunk = ours.recv(10_000)
            assert chunk, "the slot's process went on"
            said += [decode_from_slot(body) for _, body in reader.feed(chunk)]
    os.waitpid(slot, 0)
    *before, done = said
    assert isinstance(done, RunEnded)
    return decode_ending(done.ending), before
