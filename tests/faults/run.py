"""Run many seeds of `tests/faults/world.py`, several at a time (`make faults`).

    python -m tests.faults.run [--seeds 1000] [--first 1] [--jobs 2] [--renting]

A failure prints its seed; that seed alone gives the same run again. The exit status is 0 only if all runs were right.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field

from .renting import RentingWorld
from .world import Told, World

SHOWN = 4_000


@dataclass
class Sum:
    """What all runs together did."""

    seeds: int = 0
    crashes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    numbers: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, told: Told) -> None:
        """One more run."""
        self.crashes += told.crashes
        self.faults += told.faults
        self.done += told.done
        for name in ("accepted", "jobs", "results", "events"):
            self.numbers[name] += getattr(told, name)
        self.numbers["hours"] += round(told.virtual_seconds)

    def __str__(self) -> str:
        numbers = self.numbers
        rows = [
            ("submissions accepted", numbers["accepted"]),
            ("jobs of these", numbers["jobs"]),
            ("results told once", numbers["results"]),
            ("states equal to a replay", self.done["states compared"]),
            ("events", numbers["events"]),
            ("virtual hours", round(numbers["hours"] / 3600)),
        ]
        rows += [(f"crashes {cause}", count) for cause, count in sorted(self.crashes.items())]
        rows += [(f"faults: {name}", count) for name, count in sorted(self.faults.items())]
        rows += [(name, count) for name, count in sorted(self.done.items()) if name != "states compared"]
        return "\n".join(f"{count:>12,}  {name}" for name, count in rows)


def one_that_rents(seed: int) -> tuple[int, Told | None, str]:
    """The same where machines are rented."""
    return one(seed, RentingWorld)


def one(seed: int, world: type[World] = World) -> tuple[int, Told | None, str]:
    """Run a seed; what it did, or what went wrong."""
    try:
        return seed, world(seed).run(), ""
    except Exception as error:  # noqa: BLE001  # whatever it is, the seed is to be printed
        said = "".join(traceback.format_exception(error))
        return seed, None, f"{str(error)[:SHOWN]}\n{said[-SHOWN:]}"


def main() -> int:
    """Run them, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--renting", action="store_true", help="machines are rented, too")
    asked = parser.parse_args()
    again = "make faults SEEDS=1" + (" RENTING=1" if asked.renting else "")
    whole, began, shown = Sum(), time.monotonic(), time.monotonic()
    seeds = range(asked.first, asked.first + asked.seeds)
    with multiprocessing.get_context("spawn").Pool(asked.jobs) as pool:
        for seed, told, wrong in pool.imap_unordered(one_that_rents if asked.renting else one, seeds):
            whole.seeds += 1
            if told is None:
                whole.failed.append(seed)
                print(f"seed {seed} FAILED: {wrong}\nagain: {again} FIRST={seed}\n", flush=True)
            else:
                whole.add(told)
            if time.monotonic() - shown >= 5:
                shown = time.monotonic()
                crashes, minutes = sum(whole.crashes.values()), (shown - began) / 60
                print(f"{whole.seeds} of {len(seeds)} seeds, {crashes:,} crashes, {crashes / minutes:,.0f} a minute")
    minutes, crashes = (time.monotonic() - began) / 60, sum(whole.crashes.values())
    print(whole)
    print(f"{whole.seeds:,} seeds in {minutes:.1f} minutes, {crashes:,} crashes, {crashes / minutes:,.0f} a minute")
    for seed in whole.failed:
        print(f"seed {seed} failed; again: {again} FIRST={seed}")
    if not whole.failed:
        print("nothing accepted was lost, no result came twice, every state equals its replay, everything ended")
    return 1 if whole.failed else 0


if __name__ == "__main__":
    sys.exit(main())
