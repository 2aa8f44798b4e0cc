"""Tasks of a real server that save their state, are ended early, and continue from what they saved."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway import Client, Job, Task
from headway.live.store.journal import FILE, Journal
from headway.model.events import Incident, TaskSaved

from ..waiting import LIMIT, until

if TYPE_CHECKING:
    Up = Any

STEPS = 60


def in_steps(steps: int, log: str, door: str) -> int:
    """Work in steps, write each down, and save after every fifth. Returns the sum of all step numbers.

    The last step begins when a file is there.
    """
    import os
    import time

    import headway

    number, total = headway.resumed((0, 0))
    while number < steps:
        while number == steps - 1 and not os.path.exists(door):
            time.sleep(0.01)
        with open(log, "a") as file:
            file.write(f"{number}\n")
        time.sleep(0.02)
        number, total = number + 1, total + number
        if number % 5 == 0:
            headway.checkpoint((number, total))
    return total


def saved_twice(door: str) -> object:
    """Save twice and wait. If there was a checkpoint, return it."""
    import os
    import time

    import headway

    found = headway.resumed()
    if found is None:
        headway.checkpoint("early")
        headway.checkpoint("late")
        open(door, "w").close()
        time.sleep(600)
    return found, os.environ.get("HEADWAY_NODE")


def lines(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def incidents(up: Up) -> list[tuple[str, str]]:
    with closing(Journal(up.data)) as journal:
        return [(event.kind, event.subject) for _, event in journal.events() if isinstance(event, Incident)]


def saved_at(up: Up) -> list[int]:
    """When checkpoints were saved, by the journal of a running server."""
    with closing(sqlite3.connect(f"file:{up.data / FILE}?mode=ro", uri=True)) as table:
        return [at for (at,) in table.execute("SELECT at FROM events WHERE kind = 'TaskSaved' ORDER BY seq")]


def saves(up: Up, job: int) -> int:
    with closing(Journal(up.data)) as journal:
        return sum(isinstance(event, TaskSaved) and event.job == job for _, event in journal.events())


def test_a_task_whose_node_dies_goes_on_from_its_last_checkpoint(up: Up, tmp_path: Path) -> None:
    log, door = tmp_path / "log", tmp_path / "door"
    with Client(data=up.data) as client:
        waiter = client.submit(Job("long", [Task(in_steps, STEPS, str(log), str(door))]))
        until(lambda: len(lines(log)) > STEPS // 2)
        (attempt,) = client.job(waiter.job or 0).attempts
        up.agent(attempt.slots[0].partition("/")[0]).kill()
        door.touch()
        assert waiter.result(LIMIT) == [sum(range(STEPS))]
    done = lines(log)
    assert sorted(set(done)) == list(range(STEPS))
    assert STEPS <= len(done) <= STEPS + 6, "only what came after the last checkpoint is done again"
    kept = up.data / "engine" / "checkpoints" / str(waiter.job)
    until(lambda: not kept.exists())


def test_only_work_after_the_last_checkpoint_is_counted_as_lost(up: Up, tmp_path: Path) -> None:
    with Client(data=up.data) as client:
        before = len(saved_at(up))
        job = client.submit(Job("saves", [Task(saves_late)])).job or 0
        (saved,) = until(lambda: saved_at(up)[before:])
        (attempt,) = client.job(job).attempts
        until(lambda: time.time() > saved / 1e6 + 1)
        up.agent(attempt.slots[0].partition("/")[0]).kill()
        until(lambda: client.job(job).lost > 0)
        lost, passed = client.job(job).lost, time.time() - attempt.started
        assert 0.9 <= lost <= passed - 2, "two seconds had passed before it saved"
        client.cancel(job)


def saves_late() -> None:
    """Save after two seconds, and continue."""
    import time

    import headway

    time.sleep(2)
    headway.checkpoint("state")
    time.sleep(600)


def test_a_checkpoint_that_cannot_be_read_is_left_out_and_said_to_be(up: Up, tmp_path: Path) -> None:
    with Client(data=up.data) as client:
        door = tmp_path / "door"
        waiter = client.submit(Job("twice", [Task(saved_twice, str(door))]))
        until(door.exists)
        job = waiter.job or 0
        up.stop()
        (late,) = (up.data / "engine" / "checkpoints" / str(job)).glob("0/0.1/2")
        late.write_bytes(late.read_bytes()[:25])
        up.start()
        assert waiter.result(LIMIT)[0][0] == "early"
        (result,) = client.results(job)
        assert b"checkpoint 2 cannot be read: " in result.ending.stderr
        up.stop()
        assert ("checkpoint_unreadable", f"job {job}, task 0") in incidents(up)
        up.start()


def test_a_command_finds_its_folder_as_it_left_it(up: Up, tmp_path: Path) -> None:
    door = tmp_path / "door"
    script = (
        'if [ -e "$HEADWAY_CHECKPOINT/half" ]; then cat "$HEADWAY_CHECKPOINT/half"; exit; fi; '
        'echo done so far > "$0.draft"; mv "$0.draft" "$HEADWAY_CHECKPOINT/half"; touch "$0"; exec sleep 600'
    )
    before = saved_at(up)
    with Client(data=up.data) as client:
        waiter = client.submit(Job("command", [Task.command("sh", "-c", script, str(door))], preemptible=False))
        until(door.exists)
        job = waiter.job or 0
        until(lambda: len(saved_at(up)) > len(before))
        up.kill()
        up.start()
        (attempt,) = client.job(job).attempts
        up.agent(attempt.slots[0].partition("/")[0]).kill()
        assert waiter.result(LIMIT) == ["done so far\n"]
        assert 0 < client.job(job).lost <= time.time() - saved_at(up)[-1] / 1e6
    up.stop()
    assert saves(up, job) == 1
    with closing(Journal(up.data)) as journal:
        row = journal.job(job)
        assert row is not None
        assert not row.spec.preemptible
    up.start()
