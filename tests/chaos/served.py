"""A real server under attack: it is started, examined, killed, and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from threading import RLock
from urllib.parse import urlsplit

import psutil

HERE = Path(__file__).resolve().parent
START_SECONDS = 120.0
"""A server that has not said where it is after so long does not start."""

CLUSTER = """\
[[node]]
name = "n"
slots = 2
count = 3
"""


class Served:
    """The server of one data directory, with three nodes of two slots.

    Attributes:
        data: the data directory.
        starts: how often it was started; `ended`: how often it ended by itself.
    """

    def __init__(self, folder: Path, data: Path, loop: str, words: list[str]) -> None:
        self.data = data
        self.starts = self.ended = 0
        self.log = folder / "server.log"
        self.lock = RLock()
        self._cluster = folder / "cluster.toml"
        self._cluster.write_text(CLUSTER)
        self._offset = folder / "clock"
        self._offset.write_bytes(bytes(8))
        self._words = [loop, "--json", "--data", str(data), "--cluster", str(self._cluster), *words]
        self._process: subprocess.Popen[str] | None = None
        self._url = ""
        self._meant_down = True

    def start(self) -> None:
        """Start it, and return when it answers.

        Raises:
            RuntimeError: it does not start.
        """
        command = [sys.executable, str(HERE / "up.py"), str(self._offset), *self._words]
        with self.lock, self.log.open("ab") as log:
            began = time.monotonic()
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            assert self._process.stdout is not None
            with self._process.stdout as said:
                line = said.readline()
            if not line or time.monotonic() - began > START_SECONDS:
                raise RuntimeError(f"the server does not start; the end of {self.log} says why:\n{self.tail()}")
            self._url = json.loads(line)["url"]
            self.starts += 1
            self._meant_down = False

    def check_alive(self) -> None:
        """Start it again if it ended by itself, and count that."""
        with self.lock:
            if self._process is not None and self._process.poll() is not None and not self._meant_down:
                self.ended += 1
                self.start()

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    def memory(self) -> int:
        """Bytes that the server has in memory."""
        return int(psutil.Process(self.pid).memory_info().rss)

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self._url)
        return parts.hostname or "", parts.port or 0

    def kill(self) -> None:
        """kill -9 of the server alone; the nodes continue."""
        with self.lock:
            assert self._process is not None
            self._meant_down = True
            self._process.kill()
            self._process.wait()

    def end(self) -> int:
        """Stop it in order. Returns its exit status."""
        with self.lock:
            assert self._process is not None
            self._meant_down = True
            self._process.send_signal(signal.SIGTERM)
            return self._process.wait(START_SECONDS)

    def agents(self) -> list[psutil.Process]:
        """The agents of its nodes: each a child of a guard, which is the first process of its node.

        All processes of a node are forks of the guard and have its command line, which contains the folder.
        """
        mark = str(self.data.resolve())
        of_nodes = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if "headway.engines.local.agent.guard" in words and any(mark in word for word in words):
                    of_nodes[process.pid] = process
        parents = dict[int, int]()
        for process in of_nodes.values():
            with contextlib.suppress(psutil.Error):
                parents[process.pid] = process.ppid()
        guards = {pid for pid, parent in parents.items() if parent not in of_nodes}
        return [of_nodes[pid] for pid, parent in parents.items() if parent in guards]

    def below(self, agents: list[psutil.Process]) -> list[psutil.Process]:
        """Processes of slots, and everything that they have started."""
        found = []
        for agent in agents:
            with contextlib.suppress(psutil.Error):
                found += agent.children(recursive=True)
        return found

    def set_clock(self, seconds: float) -> None:
        """Set the server's wall clock to this distance from the machine's."""
        with self._offset.open("r+b") as file:  # in place: the server has it mapped
            file.write(int(seconds * 1e9).to_bytes(8, "little", signed=True))

    def health_seconds(self) -> float:
        """How long it takes to answer `/health` on a new connection; 60 if it does not."""
        began = time.monotonic()
        try:
            with socket.create_connection(self.place, 60) as line:
                line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                line.recv(4096)
        except OSError:
            return 60.0
        return time.monotonic() - began


def signal_all(processes: list[psutil.Process], number: int) -> None:
    """Send a signal to those that still exist."""
    for process in processes:
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            os.kill(process.pid, number)
