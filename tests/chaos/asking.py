"""A service of the server under attack, and callers who ask it all the time and check each answer."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import cloudpickle
import work
from load import connected

from headway import Client, Refused, Service
from headway.errors import HeadwayError, Unreachable
from headway.services.queue import REQUEST_TRIES

cloudpickle.register_pickle_by_value(work)

NAME = "squares"
POLICY = "services:batch=tempo"
CALLERS = 4
PAUSE_SECONDS = 0.03
ANSWER_SECONDS = 150.0
"""A request that has neither an answer nor an error after so long is lost: the service's own limits are 60 s."""

FORESEEN = {
    *("service_full", "service_ended", "no_such_service", "request_timed_out", "instance_died"),
    *("unavailable", "journal_full", "no_room", "not_now", "unreachable"),
}
"""Codes of errors that a caller may get while instances and servers are killed."""


class Asking:
    """Callers of a service.

    Attributes:
        answered: how many requests were answered.
        errors: how many ended with an error, by code.
        wrong: answers that were wrong, and errors that were not foreseen. One that came twice would be taken for the
            answer to the next request of its caller, and be wrong there.
        lost: requests that had neither in time.
        doubled: requests that the handler was given more often than twice: again only if an instance died.
    """

    def __init__(self, data: Path, folder: Path) -> None:
        self.answered = 0
        self.errors: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.lost: list[str] = []
        self.doubled: list[str] = []
        self._data = data
        self._handled = folder / "handled"
        self._over = threading.Event()
        self._version = 0
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CALLERS)]

    def start(self) -> None:
        """Start the service and its callers."""
        with connected(str(self._data)) as client:
            client.choose_policy(POLICY)
            self.serve(client)
        for thread in self._threads:
            thread.start()

    def serve(self, client: Client) -> None:
        """Let the next version of the handler answer."""
        self._version += 1
        handler = work.answering(str(self._handled), self._version)
        terms: dict[str, Any] = {"window": 2.0, "threshold": 0.2, "rate": 50.0, "retries": 100_000, "most": 3}
        client.serve(Service(NAME, handler, cwd="/", **terms), replace=True)

    def _ask(self, number: int) -> None:
        with connected(str(self._data)) as client:
            while not self._over.is_set():
                number += CALLERS
                began = time.monotonic()
                try:
                    answer = client.ask(NAME, number, timeout=ANSWER_SECONDS)
                    if answer[0] != number * number:
                        self.wrong.append(f"request {number} was answered with {answer}")
                    self.answered += 1
                except Unreachable:
                    if time.monotonic() - began >= ANSWER_SECONDS:
                        self.lost.append(f"request {number} had no answer")
                    self.errors["unreachable"] += 1
                except Refused as refused:
                    self.errors[refused.code] += 1
                    if refused.code not in FORESEEN:
                        self.wrong.append(f"request {number}: {refused.code}: {refused}")
                self._over.wait(PAUSE_SECONDS)

    def stop(self) -> None:
        """When everything is calm: it must answer. Then it is cancelled."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        with connected(str(self._data)) as client:
            client.choose_policy(POLICY)
            try:
                if client.ask(NAME, 2, timeout=ANSWER_SECONDS)[0] != 4:
                    self.wrong.append("in calm, request 2 was answered wrongly")
            except HeadwayError as error:
                self.wrong.append(f"in calm: {error}")
            jobs = client.jobs(status="open")
            client.cancel(*(job.id for job in jobs if job.kind == "service"))
        times = Counter(self._handled.read_text().split())
        self.doubled = [
            f"request {number} was handled {many} times" for number, many in times.items() if many > REQUEST_TRIES
        ]
