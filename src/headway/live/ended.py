"""What reports say of a job's work, and of its ended tasks: where they ran, and why they failed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from headway import wire
from headway.live.driver import Driver
from headway.live.tasks import names_of
from headway.model.job import JobId, JobSpec
from headway.model.outcome import Outcome

ENDED_MAX: Final = 20
"""Ended tasks that a job is told with."""

FAILED_MAX: Final = 1000
"""Numbers of failed tasks that it is told with."""

TASKS_AT_ONCE: Final = 2000
"""Tasks that are looked at before others take their turns."""

LINES_MAX: Final = 5
LINES_BYTES: Final = 2000
"""How much of what a failed task wrote is told with its job."""

_NOT_FAILED: Final = frozenset((Outcome.SUCCEEDED.value, Outcome.CANCELLED.value))


async def with_tasks(driver: Driver, detail: wire.JobDetail, spec: JobSpec) -> wire.JobDetail:
    """A job's report with its work and its ended tasks, which are looked for part by part: others take their turns."""
    job, failed, others = detail.job, list[int](), list[int]()
    for first in range(0, spec.tasks, TASKS_AT_ONCE):
        lacks_failed = len(failed) < min(job.failed, FAILED_MAX)
        if not lacks_failed and (len(failed) + len(others) >= min(job.settled, ENDED_MAX)):
            break
        for task, word in driver.journal.outcomes(job.id, first, first + TASKS_AT_ONCE):
            (others if word in _NOT_FAILED else failed).append(task)
        await asyncio.sleep(0)
    shown = [*failed, *others][:ENDED_MAX]
    names = names_of(driver, job.id) if shown else ()
    return msgspec.structs.replace(
        detail,
        ran=ran(driver, job.id),
        ended=tuple(report for task in shown for report in _task_reports(driver, spec, task, names)),
        failed=tuple(failed[:FAILED_MAX]),
    )


def without_words(detail: wire.JobDetail) -> wire.JobDetail:
    """The same report for those who may not read what the job runs, wrote and raised."""
    silent = tuple(msgspec.structs.replace(task, detail="", stderr="") for task in detail.ended)
    return msgspec.structs.replace(detail, ran=None, ended=silent)


def _task_reports(driver: Driver, spec: JobSpec, task: int, names: Sequence[str]) -> list[wire.TaskReport]:
    """What came of a task; nothing where its result has been cleared."""
    bodies, _ = driver.journal.results([wire.TaskRange(spec.id, task, task + 1)], 1)
    found = []
    for body in bodies:
        one = msgspec.msgpack.decode(body, type=wire.TaskResult)
        end = one.ending
        is_failed = end.outcome.value not in _NOT_FAILED
        found.append(
            wire.TaskReport(
                one.task,
                one.attempt,
                end.outcome,
                one.slots,
                end.seconds,
                end.exit_code,
                end.detail if is_failed else "",
                last_lines(end.stderr) if is_failed else "",
                spec.numbers[task] if spec.numbers else task,
                names[task] if names else "",
            )
        )
    return found


def last_lines(output: bytes) -> str:
    """The last lines of what a task wrote, as text, so that they can stand in a table."""
    text = output[-LINES_BYTES:].decode("utf-8", "replace")
    return "\n".join(text.rstrip().splitlines()[-LINES_MAX:])


def ran(driver: Driver, job: JobId) -> wire.Ran | None:
    """What a job runs, as far as that is kept."""
    kept = driver.open.get(job)
    work = kept.work if kept is not None and kept.work is not None else driver.journal.kept_work(job)
    if work is None:
        return None
    if isinstance(work, wire.Calls):
        return wire.Ran(cwd=work.cwd, functions=work.names)
    if isinstance(work, wire.Handling):
        return wire.Ran(work.command, work.cwd, functions=() if work.command else (work.words,))
    if isinstance(work, wire.Steps) and not work.commands:
        return wire.Ran(cwd=work.calls.cwd, functions=work.calls.names)
    first = work.commands[0]
    if isinstance(work, wire.Steps):
        return wire.Ran(first.argv, first.cwd, each=True, functions=work.calls.names)
    return wire.Ran(first.argv, first.cwd, len(work.commands) > 1)
