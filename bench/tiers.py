"""What two tiers cost and gain on this machine: the loss of the foreground, and the gain of the background.

    python bench/tiers.py [--window SECONDS] [--rounds N]

One node has two slots, each pinned to a processor. Also measured: how long a change of the tier takes, and a move.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pickle
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import measure
from headway.engines.base import AttemptKey
from headway.engines.local.agent.priorities import threads
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.shared.processes import tree
from headway.engines.trial import Trial, calling
from headway.model.node import NodeSpec
from headway.model.tier import Tier

SLOTS = 2
PIECE_SECONDS = 0.005
"""Processor time of one step of every job."""

CHANGES, MOVES = 40, 10
STATE_BYTES = 100_000_000
FULL = 0.96
"""Use of the foreground above which nothing is placed behind it (MEASY14)."""


def steps(door: str, piece: int, pause: float) -> tuple[float, float]:
    """Steps per second of one process, and its share of a processor. Each step computes a piece and pauses."""
    import time

    begin, end = starting(door)
    cpu, count = 0.0, 0
    while (now := time.monotonic()) < end:
        if not count and now >= begin:
            begin, cpu, count = now, time.process_time(), 1
        for _ in range(piece):
            pass
        if pause:
            time.sleep(pause)
        count += count > 0
    seconds = time.monotonic() - begin
    return max(0, count - 1) / seconds, (time.process_time() - cpu) / seconds


def exchanging(door: str, piece: int, pause: float) -> tuple[float, float]:
    """The same for one of two processes that wait for each other after each piece, with the pause between."""
    import os
    import socket
    import time

    rank = int(os.environ["HEADWAY_RANK"])
    link = socket.socket(socket.AF_UNIX)
    if rank == 0:
        link.bind(f"{door}.link")
        link.listen()
        link, _ = link.accept()
    else:
        while link.connect_ex(f"{door}.link"):
            time.sleep(0.001)
    begin, end = starting(door)
    cpu, count = 0.0, 0
    while (now := time.monotonic()) < end:
        if not count and now >= begin:
            begin, cpu, count = now, time.process_time(), 1
        for _ in range(piece):
            pass
        time.sleep(pause)
        try:
            link.sendall(b"x")
        except OSError:  # the other one has ended
            break
        if not link.recv(1):
            break
        count += count > 0
    seconds = time.monotonic() - begin
    return max(0, count - 1) / seconds, (time.process_time() - cpu) / seconds


def starting(door: str) -> tuple[float, float]:
    """Report that this process has started, and wait for the span of time that counts."""
    import os
    import time

    open(f"{door}.{os.getpid()}", "w").close()
    while not os.path.exists(door):
        time.sleep(0.001)
    with open(door) as file:
        begin, end = map(float, file.read().split())
    return begin, end


def napping(path: str) -> None:
    """Do nothing; the process writes down its id."""
    import os
    import time

    with open(f"{path}.draft", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{path}.draft", path)
    time.sleep(600)


def saving(door: str, size: int) -> None:
    """Save a state of this size again and again. Records when it began, and with which state."""
    import os
    import time

    import headway

    state = headway.resumed(b"")
    with open(f"{door}.draft", "w") as file:
        file.write(f"{time.monotonic()} {len(state)}")
    os.rename(f"{door}.draft", door)
    state = b"x" * size
    while True:
        headway.checkpoint(state)
        time.sleep(0.001)


@dataclass(frozen=True)
class Kind:
    """A kind of job.

    Attributes:
        width: processes, each on a slot of its own.
        pause: seconds that each step waits in addition.
    """

    name: str
    width: int
    pause: float


SPINS = Kind("one process that always computes", 1, 0.0)
HALF = Kind("one process, half idle", 1, PIECE_SECONDS)
TWO = Kind("two processes that exchange messages", 2, PIECE_SECONDS / 2)
PAIRS = ((SPINS, SPINS), (HALF, SPINS), (HALF, HALF), (TWO, SPINS), (HALF, TWO), (TWO, TWO))


class Bench:
    """An engine with two slots, and jobs that fill one or both tiers of both slots."""

    def __init__(self, trial: Trial, folder: Path, window: float) -> None:
        self.trial = trial
        self.folder = folder
        self.window = window
        self.piece = piece()
        self.runs = 0

    def launch(self, kind: Kind, tier: Tier, door: Path) -> list[AttemptKey]:
        """Fill a tier with jobs of a kind."""
        if kind.width == 1:
            work = calling(steps, str(door), self.piece, kind.pause)
            return [self.trial.launch(work, slots=(slot,), tier=tier) for slot in range(SLOTS)]
        name = f"{door}.{tier.name}"
        os.symlink(door, name)  # each job has a link name of its own
        works = [calling(exchanging, name, self.piece, kind.pause)] * kind.width
        return [self.trial.launch(*works, slots=range(SLOTS), tier=tier)]

    async def run(self, *kinds: Kind) -> list[tuple[float, float]]:
        """Fill the foreground, and with two kinds the background. Returns mean steps per second and CPU use of each."""
        self.runs += 1
        door = self.folder / f"door{self.runs}"
        keys = [self.launch(kind, tier, door) for kind, tier in zip(kinds, Tier, strict=False)]
        while len(list(self.folder.glob(f"{door.name}.*[0-9]"))) < SLOTS * len(kinds):
            await asyncio.sleep(0.001)
        begin = time.monotonic() + 0.1
        draft = self.folder / "draft"
        draft.write_text(f"{begin} {begin + self.window}")
        draft.rename(door)
        return [await self.results(each) for each in keys]

    async def results(self, keys: Iterable[AttemptKey]) -> tuple[float, float]:
        """Mean steps per second and CPU use of the processes of some attempts."""
        found: list[tuple[float, float]] = []
        for key in keys:
            ended = await self.trial.ended(key)
            found += [pickle.loads(one.result or b"") for one in ended.members or (ended.ending,)]
        return statistics.mean(rate for rate, _ in found), statistics.mean(use for _, use in found)


def piece() -> int:
    """How many turns of an empty loop take the processor time of a step."""
    count = 100_000
    best = min(_spin(count) for _ in range(20))
    return round(count * PIECE_SECONDS / best)


def _spin(count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        pass
    return time.process_time() - began


async def tiers(bench: Bench, rounds: int) -> list[tuple[object, ...]]:
    """A row for each pair of kinds: use of the foreground, its loss, the use that the background makes of the rest."""
    alone: dict[Kind, list[tuple[float, float]]] = {kind: [] for kind in (SPINS, HALF, TWO)}
    together: dict[tuple[Kind, Kind], list[list[tuple[float, float]]]] = {pair: [] for pair in PAIRS}
    for _ in range(rounds):
        for kind in alone:
            alone[kind] += await bench.run(kind)
        for pair in PAIRS:
            together[pair].append(await bench.run(*pair))
    rate = {kind: statistics.median(one for one, _ in found) for kind, found in alone.items()}
    use = {kind: statistics.median(one for _, one in found) for kind, found in alone.items()}
    rows = []
    for front, behind in PAIRS:
        kept = statistics.median(one[0][0] for one in together[front, behind]) / rate[front]
        came = statistics.median(one[1][0] for one in together[front, behind]) / rate[behind]
        found = min(1.0, max(0.0, 1 - use[front]) / use[behind])
        gain = f"{came / found:.0%}" if use[front] <= FULL else "-"
        rows.append((front.name, behind.name, f"{use[front]:.0%}", f"{1 - kept:.1%}", f"{came:.0%}", gain))
    return rows


def are(pid: int, policy: int) -> bool:
    """Whether every thread of a process and of those below it has a scheduling policy."""
    return all(os.sched_getscheduler(thread) == policy for one in tree(pid) for thread in threads(one))


async def change_seconds(trial: Trial, key: AttemptKey, pid: int) -> list[float]:
    """Seconds until an attempt has changed its tier, in both directions."""
    took = []
    for number in range(CHANGES):
        tier, policy = ((Tier.BACKGROUND, os.SCHED_IDLE), (Tier.FOREGROUND, os.SCHED_OTHER))[number % 2]
        began = time.perf_counter()
        trial.engine.change(*key, tier)
        while not are(pid, policy):
            await asyncio.sleep(0)
        took.append(time.perf_counter() - began)
    return took


async def move_seconds(trial: Trial, folder: Path, size: int) -> list[float]:
    """Seconds from the request to move until the next attempt has the saved state, in both directions."""
    took = []
    door = folder / f"move{size}"
    job, began = 1_000_000 + size, 0.0
    trial.call(saving, str(door), size, key=(job, 0, 1))
    for number in range(1, MOVES + 2):
        while not door.exists():
            await asyncio.sleep(0.001)
        at, found = door.read_text().split()
        door.unlink()
        if number > 1:
            took.append(float(at) - began)
            if int(found) != size:
                raise SystemExit(f"{found} bytes of {size} were found where a task went on")
        began = time.monotonic()
        trial.engine.suspend(job, 0, number)
        await trial.ended((job, 0, number))
        trial.unread.clear()
        trial.call(saving, str(door), size, key=(job, 0, number + 1), slots=(number % SLOTS,))
    trial.engine.kill(job, 0, MOVES + 2)
    await trial.ended((job, 0, MOVES + 2))
    trial.unread.clear()
    return took


async def changes(trial: Trial, folder: Path) -> list[tuple[object, ...]]:
    """A row for each kind of change and move."""
    script = 'for i in 1 2 3 4 5 6 7 8 9; do sleep 600 & done; echo $$ > "$0.draft"; mv "$0.draft" "$0"; wait'
    paths = folder / "function", folder / "program"
    keys = trial.call(napping, str(paths[0])), trial.command("sh", "-c", script, str(paths[1]), slots=(1,))
    found = []
    for name, path, key in zip(("tier of a function", "tier of a program of 10 processes"), paths, keys, strict=True):
        while not path.exists():
            await asyncio.sleep(0.001)
        found.append((name, await change_seconds(trial, key, int(path.read_text()))))
        trial.engine.kill(*key)
        await trial.ended(key)
    found.append(("move, state of 100 bytes", await move_seconds(trial, folder, 100)))
    found.append(("move, state of 100 MB", await move_seconds(trial, folder, STATE_BYTES)))
    return [
        (name, *(measure.rounded(1e3 * value) for value in (statistics.median(took), max(took))))
        for name, took in found
    ]


async def main(window: float, rounds: int) -> None:
    """Print the section of the report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Trial(LocalEngine(folder / "engine", LocalSettings(pin=True))) as trial:
            await trial.start(NodeSpec("n", slots=SLOTS))
            rows = await tiers(Bench(trial, folder, window), rounds)
            times = await changes(trial, folder)
    measure.section(
        "Live: two tiers",
        f"""Jobs in both places of two slots, each slot pinned to a processor (`headway up --pin`). Each step of a job
        computes for {PIECE_SECONDS * 1e3:g} ms. A half idle job then sleeps as long. Of two processes that exchange
        messages, each waits for the other's message, which takes {TWO.pause * 1e3:g} ms to arrive. Progress is a number
        of steps; medians of {rounds} runs of {window:g} s. The use of what was left is the background's progress, as a
        share of its progress alone, divided by what the foreground leaves of the processor (at most what the background
        wants). MEASY14 measured a loss of 0.5 to 4 % in the foreground, and a use of 80 to 92 % by one process in the
        background, of 19.8 to 76.6 % by several. It places nothing behind a use above {FULL:.0%}.""",
        measure.table(
            ("in the foreground", "in the background", "use alone", "loss", "progress behind", "use of what was left"),
            rows,
        ),
        measure.paragraph(
            """Milliseconds from the wish until it is so: every thread has the other scheduling policy; a function that
            saves at each of its steps has saved, ended and gone on with its state on the other slot."""
        ),
        measure.table(("", "median", "longest"), times),
    )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--window", type=float, default=1.5)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    asyncio.run(main(given.window, given.rounds))
