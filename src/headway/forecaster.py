"""Makes forecasts in a separate process (`python -m headway.forecaster`), which does not block the event loop.

It reads states from standard input, one after the other, and answers each with a forecast. It ends with its input, or
when no question has come for a while.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress

import msgspec

from headway.errors import HeadwayError
from headway.live.forecasts import CANNOT, read_frame, write_frame
from headway.live.store.journal import state_of
from headway.model.forecast import Forecast
from headway.policies.registry import find
from headway.sim.forecast import forecast

NICE = 5
"""The process gives way to the server, for which callers wait."""

IDLE_SECONDS = 60.0
"""It ends after this time without a question: its memory is worth more than the tenth of a second of a start."""


def answer(body: bytes) -> Forecast:
    """The forecast from a state."""
    record = state_of(body)
    try:
        return forecast(record, find)
    except HeadwayError as error:  # its policy is not installed any more
        return Forecast(record.now, record.now, record.estimate_default, (), f"{CANNOT}: {error.args[0]}")


def main() -> None:
    """Answer until there is no more to answer."""
    os.nice(NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends first, and with it the input
    asked, answers = 0, os.dup(1)
    os.dup2(2, 1)  # whatever a policy prints is no answer
    with suppress(BrokenPipeError):  # the server that asked was killed
        while select.select([asked], [], [], IDLE_SECONDS)[0]:
            body = read_frame(asked)
            if body is None:
                break
            write_frame(answers, msgspec.msgpack.encode(answer(body)))


if __name__ == "__main__":
    main()
