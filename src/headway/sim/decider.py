"""Asks a decider for plans during a simulation. Virtual time stands still until it has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Final

from headway.advice.asking import Asking, address_of
from headway.core.record import StateRecord
from headway.errors import NoAdvice
from headway.model.plan import PlanRecord

DECIDER_SECONDS: Final = 600.0
"""If a decider has not answered after this time, the simulation ends with an error."""


class HTTPDecider:
    """The decider at a URL, asked in a thread of its own; see `decider_at`.

    Attributes:
        url: its address.
    """

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self._ask = Asking(url)
        self._loop = loop

    def __call__(self, snapshot: StateRecord) -> PlanRecord:
        """Its plan for this snapshot.

        Raises:
            NoAdvice: it gives no plan.
        """
        waiting = asyncio.wait_for(self._ask(self.url, snapshot), DECIDER_SECONDS)
        try:
            return asyncio.run_coroutine_threadsafe(waiting, self._loop).result()
        except TimeoutError:
            raise NoAdvice(f"the decider at {self.url} gave no answer within {DECIDER_SECONDS:g} s") from None
        except NoAdvice as silent:
            raise NoAdvice(
                f"the decider at {self.url} gave no plan: {silent.args[0]}", silent.hint or "Is it `headway decider`?"
            ) from silent


@contextmanager
def decider_at(url: str) -> Iterator[HTTPDecider]:
    """The decider at a URL, for as long as a simulation runs.

    Raises:
        InvalidInput: it is not a valid URL.
    """
    address_of(url)
    loop = asyncio.new_event_loop()  # in a thread: the caller may have a loop already, as notebooks do
    thread = Thread(target=loop.run_forever, name="headway-decider", daemon=True)
    thread.start()
    try:
        yield HTTPDecider(url, loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
