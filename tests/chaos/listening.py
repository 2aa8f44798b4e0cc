"""Reads every message of the server once, by its cursor, and records what comes twice or out of order."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from headway.client.address import find_server
from headway.client.connection import Server
from headway.errors import HeadwayError
from headway.wire import MESSAGES


class Listening(threading.Thread):
    """Reads until it is stopped.

    Attributes:
        heard: how many messages came about each task (job, task), and about the end of each job (job, None).
        failed: tasks that ended without success, by job.
        odd: what should not have happened.
    """

    def __init__(self, data: Path) -> None:
        super().__init__(name="listening", daemon=True)
        self.heard: Counter[tuple[int, int | None]] = Counter()
        self.odd: list[str] = []
        self._server = Server(lambda: find_server(data=data), patience=600.0)
        self._stopping = threading.Event()
        self._cursor = 0

    def run(self) -> None:
        """Ask, with waits from none to many seconds, until stopped."""
        waits = (0.0004, 0.001, 0.02, 1.0)
        while not self._stopping.is_set():
            for wait in waits:
                try:
                    self.ask(wait)
                except HeadwayError as error:
                    self.odd.append(f"messages after {self._cursor}: {error}")
                    self._stopping.wait(0.5)

    def ask(self, wait: float = 0.0) -> int:
        """Read once. Returns how many messages there were."""
        answer = self._server.ask(MESSAGES, query=(("after", self._cursor), ("wait", wait)), wait=wait)
        for message in answer.messages:
            self.heard[message.job, message.task] += 1
        if answer.cursor < self._cursor:
            self.odd.append(f"the cursor went back from {self._cursor} to {answer.cursor}")
        self._cursor = max(self._cursor, answer.cursor)
        return len(answer.messages)

    def stop(self) -> None:
        """Read what is left, then no more."""
        self._stopping.set()
        self.join(90)
        while self.ask():
            continue
