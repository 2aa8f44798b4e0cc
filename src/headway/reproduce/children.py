"""Processes for an experiment that end with it, with all that they have started, however it ends.

    python -m headway.reproduce.children FOLDER [WHOLE]

is their guard: it waits until its standard input ends, because the experiment closes it or is gone, and then kills what
belongs to the folder. If the experiment is gone, it removes the folder WHOLE, too.

Each process has a folder of its own below FOLDER for its temporary files. Whatever it starts has that in its
environment (`TMPDIR`), also an agent of Headway in a session of its own; so all of it is found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headway.engines.local.shared.processes import kill_trees, processes

PLACE: Final = "TMPDIR"
"""The variable that all processes below one have."""

CLOSED: Final = b"closed"
"""What the guard is told by an experiment that goes on without these processes."""

AGAIN_SECONDS: Final = 0.02
LOG_LAST: Final = 4000


class Children:
    """Processes that run until the context ends; none is left when it has.

    Args:
        folder: made if it is not there; each process gets a folder below it, and a file for what it prints.
        whole: a folder that is removed if this process is killed before the context ends; None: none is.

    Attributes:
        folder: the same, without links.
    """

    def __init__(self, folder: Path, whole: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._guard = subprocess.Popen(
            [sys.executable, "-m", __name__, *map(str, (self.folder, whole) if whole else (self.folder,))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # what interrupts the experiment does not interrupt it
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Kill all of them, and wait until they are gone."""
        kill_below(self.folder)
        self._guard.communicate(CLOSED)  # it finds nothing more
        for process in self._started.values():
            process.wait()

    def place(self, name: str) -> Path:
        """The folder of one of them."""
        made = self.folder / name
        made.mkdir(exist_ok=True)
        return made

    def environment(self, name: str) -> dict[str, str]:
        """What a process has in its environment that is one of them."""
        return {PLACE: str(self.place(name))}

    def start(self, name: str, words: Sequence[str | Path], more: Mapping[str, str] | None = None) -> None:
        """Start a program in its folder.

        Args:
            name: which of them it is.
            words: the program and its arguments.
            more: what it has in its environment besides that of this process.
        """
        with self.log_of(name).open("wb") as log:
            self._started[name] = subprocess.Popen(
                words,
                env=os.environ | dict(more or {}) | self.environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.place(name),
                start_new_session=True,
            )

    def has_ended(self, name: str) -> bool:
        """Whether one of them has ended by itself."""
        return self._started[name].poll() is not None

    def log_of(self, name: str) -> Path:
        """The file with what one of them has printed."""
        return self.folder / f"{name}.log"

    def said(self, name: str) -> str:
        """What one of them has printed last."""
        return self.log_of(name).read_text("utf-8", "replace")[-LOG_LAST:]

    def kill(self, name: str) -> None:
        """Kill one of them, with all that it has started."""
        kill_below(self.folder / name)
        self._started.pop(name).wait()


def kill_below(folder: Path) -> None:
    """Kill all processes that have this folder, or one below it, for their temporary files; return when none is left.

    Args:
        folder: without links.
    """
    while there := _below(os.fsencode(folder)):
        kill_trees(there)
        time.sleep(AGAIN_SECONDS)


def _below(folder: bytes) -> list[int]:
    sign = os.fsencode(PLACE) + b"=" + folder
    found = []
    for pid in processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if pid != os.getpid() and any(one == sign or one.startswith(sign + b"/") for one in variables):
            found.append(pid)
    return found


def main() -> None:
    """Be the guard."""
    said = sys.stdin.buffer.read()
    folder, *whole = map(Path, sys.argv[1:])
    kill_below(folder)
    for one in whole if said != CLOSED else ():
        shutil.rmtree(one, ignore_errors=True)  # somebody else may remove it, too


if __name__ == "__main__":
    main()
