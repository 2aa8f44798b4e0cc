"""A client of the server under attack. It submits work of every form, checks each result, and records all answers.

    python tests/chaos/load.py DATA RECORD SEED TASKS_A_SECOND

Each line of the record is a JSON object with `what` of: `accepted` (a job by its name, id and tasks), `told` (the right
result of a task), `call` (that of a call of the executor), `wrong` (anything else), `ended` (a job). On SIGTERM it
submits nothing more, waits for what is open, writes `done` and ends.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import cloudpickle
import work

from headway import Client, HeadwayExecutor, Job, Output, Task, Workflow
from headway.engines.local.shared.processes import die_with_parent
from headway.errors import HeadwayError, Unreachable

cloudpickle.register_pickle_by_value(work)

OPEN_MAX = 400
"""Tasks that a client has open at once, at most: so that the load follows what an attacked server can do."""


class Load:
    """One client's work.

    Args:
        record: the file of its record, to which each line is written at once.
        name: the beginning of the names of its jobs.
    """

    def __init__(self, data: str, record: Path, name: str, seed: int, rate: float) -> None:
        self._client = connected(data)
        self._executor = HeadwayExecutor(self._client, name=f"{name}-calls")
        self._record = record.open("a", buffering=1)
        self._writing = threading.Lock()
        self._name = name
        self._chance = random.Random(seed)
        self._rate = rate
        self._open = threading.Semaphore(OPEN_MAX)
        self._left: list[Future[Any]] = []
        self.ending = threading.Event()

    def run(self) -> None:
        """Submit until SIGTERM, then wait for the rest."""
        began, sent = time.monotonic(), 0
        for number in itertools.count():
            if self.ending.is_set():
                break
            sent += self._one(f"{self._name}-{number}")
            self._left = [future for future in self._left if not future.done()]
            ahead = sent / self._rate - (time.monotonic() - began)
            if ahead > 0:
                self.ending.wait(ahead)
        for future in self._left:
            future.exception(timeout=600)
        self._executor.shutdown()
        self._client.close()
        self._say("done")

    def _one(self, name: str) -> int:
        """Submit something. Returns how many tasks it has."""
        chance = self._chance.random()
        if chance < 0.2:
            return self._calls()
        job, wanted = Job(name, priority=self._chance.choice([0, 1, 5])), list[Any]()
        if self._chance.random() < 0.5:
            job.due = self._chance.uniform(1, 60)
        if chance < 0.7:
            for number in range(self._chance.randint(1, 20)):
                job.add_task(Task(work.squared, number, self._chance.choice([0, 0, 0.01, 0.1])))
                wanted.append(number * number)
        elif chance < 0.8:
            for number in range(3):
                # Without exec, an attack could kill the sleep alone, and the command would truly have failed.
                job.add_task(Task.command("sh", "-c", f"echo {name} {number}; exec sleep 0.02"))
                wanted.append(f"{name} {number}\n")
        elif chance < 0.9:
            job.width = 2
            job.add_task(Task(work.ranked, name))
            wanted = [(name, "0"), (name, "1")]
        else:
            job, wanted = self._workflow(job)
        for _ in wanted:
            self._open.acquire()
        try:
            waiter = self._client.submit(job)
        except HeadwayError as refusal:
            if getattr(refusal, "status", 0) != 507:
                self._say("wrong", name=name, text=f"refused: {refusal}")
            for _ in wanted:
                self._open.release()
            self.ending.wait(0.2)
            return 0
        self._say("accepted", name=name, job=waiter.job, tasks=len(wanted))
        for number, (task, right) in enumerate(zip(waiter.tasks, wanted, strict=True)):
            task.add_done_callback(lambda ended, number=number, right=right: self._told(name, number, ended, right))
        waiter.add_done_callback(lambda ended: self._say("ended", name=name, job=waiter.job))
        self._left.append(waiter)
        return len(wanted)

    def _workflow(self, terms: Job) -> tuple[Job, list[Any]]:
        """Functions and a program that get what others gave, and what each gives."""
        flow = Workflow(terms.name, priority=terms.priority, due=terms.due)
        squares = [flow.task(work.squared, number, 0.01) for number in (2, 3)]
        added = flow.task(work.added, {"of": squares}, Output("headway:sum"))
        read = flow.command(["cat", "sum"], inputs=[added.file("sum")])
        flow.task(work.joined, [squares[0], read])
        return flow, [4, 9, 13, "13", "413"]

    def _told(self, name: str, task: int, ended: Future[Any], right: object) -> None:
        self._open.release()
        if ended.cancelled() or (error := ended.exception()) is not None:
            text = "cancelled" if ended.cancelled() else f"{type(error).__name__}: {error}"
            self._say("wrong", name=name, task=task, text=text)
        elif (given := ended.result()) != right and str(given) != right:
            self._say("wrong", name=name, task=task, text=f"{given!r} instead of {right!r}")
        else:
            self._say("told", name=name, task=task)

    def _calls(self) -> int:
        numbers = [self._chance.randrange(1000) for _ in range(self._chance.randint(1, 10))]
        for number in numbers:
            self._open.acquire()
            call = self._executor.submit(work.squared, number, 0.0)
            call.add_done_callback(lambda ended, number=number: self._told_call(ended, number))
            self._left.append(call)
        return len(numbers)

    def _told_call(self, ended: Future[Any], number: int) -> None:
        self._open.release()
        if ended.cancelled() or ended.exception() is not None or ended.result() != number * number:
            refused = not ended.cancelled() and getattr(ended.exception(), "status", 0) == 507
            if not refused:
                text = "cancelled" if ended.cancelled() else repr(ended.exception() or ended.result())
                self._say("wrong", name="calls", text=f"call of {number}: {text}")
        else:
            self._say("call")

    def _say(self, what: str, **more: object) -> None:
        with self._writing:
            self._record.write(json.dumps({"what": what, **more}) + "\n")


def connected(data: str) -> Client:
    """A client, as soon as a server answers. It sends its first request only once."""
    while True:
        try:
            return Client(data=data, patience=600.0)
        except Unreachable:
            time.sleep(0.1)


def told(record: Path) -> Iterator[dict[str, Any]]:
    """The lines of a record. The last may be cut off if its client was killed."""
    for line in record.read_text().splitlines():
        if line.endswith("}"):
            yield json.loads(line)


if __name__ == "__main__":
    die_with_parent(os.getppid())
    load = Load(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[2]).stem, int(sys.argv[3]), float(sys.argv[4]))
    signal.signal(signal.SIGTERM, lambda *_: load.ending.set())
    load.run()
