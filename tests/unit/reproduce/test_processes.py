"""Work in several processes: its results, and that no process outlives the one that started the work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from headway.reproduce.processes import done

from ...waiting import LIMIT

pytestmark = pytest.mark.long

ENDLESS = """
import os, signal
from headway.reproduce.processes import done

signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run, ctrl-c may be ignored

def work(number):
    os.write(1, f"{os.getpid()}\\n".encode())  # whole, whoever else writes
    while True:
        pass

try:
    list(done(work, range(4), 2))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def halve(number: int) -> float:
    return 1 / number


def fail_or_sleep(number: int) -> None:
    if number:
        time.sleep(600)
    raise ValueError("no")


@pytest.mark.parametrize("processes", [1, 2])
def test_every_work_is_told_of_with_its_place(processes: int) -> None:
    assert sorted(done(halve, [4, 2, 1], processes)) == [(0, 0.25), (1, 0.5), (2, 1.0)]


def test_a_work_that_fails_ends_the_others() -> None:
    with pytest.raises(ValueError, match="no"):
        list(done(fail_or_sleep, range(3), 2))


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGINT, "interrupted\n"), (signal.SIGTERM, ""), (signal.SIGKILL, "")]
)
def test_workers_end_with_who_began_them(number: signal.Signals, said: str) -> None:
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        workers = [psutil.Process(int(first.stdout.readline())) for _ in range(2)]
        os.kill(first.pid, number)
        _, left = psutil.wait_procs(workers, LIMIT)
        assert not left
        assert first.stdout.read() == said
