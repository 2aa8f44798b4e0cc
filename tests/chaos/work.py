"""The functions of the load's tasks and of poisonous tasks. They are sent with their jobs, by value."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path


def squared(number: int, seconds: float) -> int:
    """Honest work."""
    time.sleep(seconds)
    return number * number


def added(numbers: dict[str, list[int]], path: Path) -> int:
    """The sum of results of other tasks, also in a file."""
    total = sum(numbers["of"])
    path.write_text(str(total))
    return total


def joined(given: list[object]) -> str:
    """The results of a function and of a program, as texts."""
    return "".join(map(str, given))


def ranked(name: str) -> tuple[str, str]:
    """A member of a rigid job returns its number."""
    time.sleep(0.01)
    return name, os.environ["HEADWAY_RANK"]


def answering(handled: str, version: int) -> Callable[[int], object]:
    """A handler: it squares numbers and writes down each, in this file; for -n it gives n bytes."""

    def answer(number: int) -> object:
        if number < 0:
            return b"x" * -number
        with open(handled, "a") as file:
            file.write(f"{number}\n")
        return [number * number, version]

    return answer


def kills_its_agent() -> None:
    """Poison: the agent dies, the process between the driver and those of the slots."""
    ancestors = [os.getpid()]
    while b"engines.local.agent.guard" in Path(f"/proc/{ancestors[-1]}/cmdline").read_bytes():
        ancestors.append(int(Path(f"/proc/{ancestors[-1]}/stat").read_text().rpartition(")")[2].split()[1]))
    os.kill(ancestors[-3], 9)  # the last is not a part of the node; the one before it is the guard
    time.sleep(10)


def kills_itself() -> None:
    """Poison: the slot's process dies as if it had been killed from outside."""
    os.kill(os.getpid(), 9)


def writes_everywhere(seed: int) -> None:
    """Poison: garbage into every descriptor that it has."""
    chance = random.Random(seed)
    rubbish = [b"\xff" * 4, chance.randbytes(64), (1 << 20).to_bytes(4, "little") + b"x", bytes(9)]
    for number in [number for number in map(int, os.listdir("/proc/self/fd")) if number > 2]:
        try:
            os.set_blocking(number, False)
            os.write(number, chance.choice(rubbish))
        except OSError:
            continue
    time.sleep(0.2)


def leaves_much_behind(seed: int) -> int:
    """Rude, but not wrong: an alarm, another `math.sqrt`, another folder, a lot of output."""
    import math
    import signal

    signal.setitimer(signal.ITIMER_REAL, 0.5)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    math.sqrt = lambda _: float("nan")
    os.chdir("/")
    sys.stdout.write("x" * (1 << 20))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    return seed
