"""Executors in typical use: single calls through joblib, memory of many large results, what a dropped one leaves.

    python bench/executor.py

Each figure is measured in a process of its own, with all executors in turn. `make bench` installs the other packages.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import live
import measure

WAYS = ("headway", "pool", "loky")
CALLS = 5000
RESULTS, RESULT_BYTES = 200, 1_000_000
DROPPED = 20


def same(value: int) -> int:
    """What joblib calls."""
    return value


def large(number: int) -> bytes:
    """A large result that is not one repeated value."""
    return os.urandom(1000) * (RESULT_BYTES // 1000 - number % 2)


def made(way: str) -> Executor:
    """An executor of this kind."""
    if way == "headway":
        from headway import HeadwayExecutor

        return HeadwayExecutor()
    if way == "loky":
        from joblib.externals import loky

        found: Executor = loky.get_reusable_executor(live.SLOTS)
        return found
    return ProcessPoolExecutor(live.SLOTS, get_context("spawn"))


def calls(way: str) -> None:
    """Print the seconds of single calls through joblib, after a warm-up."""
    import joblib

    importlib.import_module("headway.joblib")
    terms = {"backend": "headway"} if way == "headway" else {"n_jobs": live.SLOTS}
    with joblib.parallel_config(**terms):
        joblib.Parallel()(joblib.delayed(same)(value) for value in range(10))
        began = time.perf_counter()
        found = joblib.Parallel(batch_size=1)(joblib.delayed(same)(value) for value in range(CALLS))
        print(time.perf_counter() - began)
        if found != list(range(CALLS)):
            raise SystemExit("results are missing or in the wrong order")


def memory(way: str) -> None:
    """Wait for many large results, then take them one by one and keep none."""
    with made(way) as executor:
        waiting = [executor.submit(large, number) for number in range(RESULTS)]
        wait(waiting)
        total = 0
        while waiting:
            total += len(waiting.pop().result())
        if total < RESULTS * (RESULT_BYTES - 1000):
            raise SystemExit("results are missing")


def dropped(way: str) -> None:
    """Print the threads and descriptors that are left by executors which were used and not shut down."""
    made(way).submit(same, 1).result()
    gc.collect()
    time.sleep(1)
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for value in range(DROPPED):
        made(way).submit(same, value).result()
    gc.collect()
    end = time.monotonic() + 10
    while threading.active_count() > before[0] and time.monotonic() < end:
        time.sleep(0.05)
    print(threading.active_count() - before[0], len(os.listdir("/proc/self/fd")) - before[1])


def taken(what: str, way: str) -> measure.Run:
    """Measure one figure in a process of its own."""
    return measure.run([sys.executable, __file__, "--take", what, way])


def main() -> None:
    """Print the section of the report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--take", nargs=2, metavar=("WHAT", "WAY"))
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    if given.take:
        what, way = given.take
        {"calls": calls, "memory": memory, "dropped": dropped}[what](way)
        return
    with tempfile.TemporaryDirectory() as name:
        os.environ["HEADWAY_DATA_DIR"] = str(Path(name) / "data")
        with live.server(Path(name)):
            seconds: dict[str, list[float]] = {way: [] for way in ("headway", "loky")}
            megabytes: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(given.rounds):
                for way in seconds:
                    seconds[way].append(float(taken("calls", way).output.split()[0]))
                for way in megabytes:
                    megabytes[way].append(taken("memory", way).megabytes)
            left = {way: taken("dropped", way).output.split() for way in ("headway", "pool")}
    names = {"headway": "Headway", "pool": "ProcessPoolExecutor", "loky": f"loky, of joblib {version('joblib')}"}
    rows = [
        (
            names[way],
            measure.rounded(statistics.median(seconds[way])) if way in seconds else "",
            measure.rounded(statistics.median(megabytes[way])),
            " and ".join(left[way]) if way in left else "",
        )
        for way in WAYS
    ]
    measure.section(
        "Live: executors as others use them",
        f"""A server with {live.SLOTS} slots on the same machine; medians of {given.rounds} runs, all ways in turn.
        Times are of {CALLS:,} calls that do nothing, through joblib, each sent by itself (`batch_size=1`, the rest as
        joblib has it; wanted: at most 2 s). Memory is the most that the calling process had when all of {RESULTS}
        results of {RESULT_BYTES / 1e6:g} MB had come before the first was taken. The last column says what is left of
        {DROPPED} executors that were used once and forgotten without `shutdown`.""",
        measure.table(("executor", f"{CALLS:,} calls, s", "large results, MB", "threads and descriptors left"), rows),
    )


if __name__ == "__main__":
    main()
