"""The process of a slot: how the end of a program is reported, at any time."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from headway.engines import local_slot
from headway.engines.local_frames import (
    CommandFrame,
    Done,
    Launch,
    Suspend,
    decode_ending,
    decode_from_slot,
    encode,
)
from headway.engines.local_seal import Reader, new_seal, size_max, to_slot
from headway.engines.local_terms import Terms
from headway.model.events import Outcome

from ...waiting import LIMIT


class Ended(subprocess.Popen[bytes]):
    """A program that has ended before its start was noticed."""

    def __init__(self, *words: Any, **how: Any) -> None:
        super().__init__(*words, **how)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("status", [0, 3])
def test_a_program_that_ends_just_as_it_is_asked_to_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(subprocess, "Popen", Ended)
    work = CommandFrame(("sh", "-c", f"exit {status}"), "", {}, "", "", "")
    launch = Launch(1, 0, 1, 0, 1, (0,), None, None, "", None, Raw(encode(work)))
    terms = Terms("n", str(tmp_path), str(tmp_path), str(tmp_path), 1, 60.0, 1 << 20)
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(LIMIT)
        seal = new_seal()
        ours.sendall(to_slot(seal, encode(launch)) + to_slot(seal, encode(Suspend(1, 0, 1, 10.0))))
        parent = os.getpid()
        slot = os.fork()
        if slot == 0:
            ours.close()
            try:
                local_slot.serve(theirs, parent, str(tmp_path / "0"), terms)
            finally:
                os._exit(70)
        theirs.close()
        reader, said = Reader(), list[Any]()
        reader.begin(seal, size_max(launch))
        while not said:
            chunk = ours.recv(10_000)
            assert chunk, "the slot's process went on"
            said = [decode_from_slot(body) for _, body in reader.feed(chunk)]
    os.waitpid(slot, 0)
    (done,) = said
    assert isinstance(done, Done)
    assert decode_ending(done.ending).outcome is Outcome.KILLED
