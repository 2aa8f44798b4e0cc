"""Runs the failed tasks of an ended job again: as a new job with just these tasks, which names the old one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headway import wire
from headway.errors import Conflict, HeadwayError, MissingBlobs
from headway.files import upload_of
from headway.live.driver import Driver
from headway.live.store.journal import JobRow, Journal
from headway.live.submissions import Allow, allow_all
from headway.live.work import gift_of
from headway.model.job import JobSpec, Rigid, Service, Workflow
from headway.model.outcome import Outcome

RETRIED_AT_ONCE: Final = 5_000
"""After this many tasks, other requests are served."""

GIFTS_AT_ONCE: Final = 20
"""The same for results that are read."""


async def retry(driver: Driver, caller: str, row: JobRow, wanted: wire.Retry, allow: Allow = allow_all) -> wire.Retried:
    """Submit the failed tasks of a job as a new job; when this returns the new job is durable.

    Args:
        allow: as of `Driver.submit`.

    Raises:
        Conflict: the job has not ended, or none of its tasks failed.
        HeadwayError: what is needed is no longer kept, or the server accepts nothing.
    """
    if row.status is None:
        hint = f"`headway wait {row.id}` waits for its end. `headway submit --retries N` has failed tasks tried again."
        raise Conflict(f"job {row.id} has not ended, so nothing of it can be run again yet", hint)
    if isinstance(row.spec, Service):
        raise Conflict(f"job {row.id} is a service", f"Start it again with `headway serve {row.spec.name}`.")
    if not row.failed:
        raise Conflict(f"job {row.id} has no failed tasks: it has ended, {row.status.value}")
    tasks = await failed_tasks(driver.journal, row)
    work = driver.journal.kept_work(row.id)
    if not tasks or work is None:
        why = "its results have been cleared" if not tasks else "it ended before such work was kept"
        hint = "What is needed to run tasks again goes with the results that say which failed. Submit it again."
        raise HeadwayError(f"job {row.id} cannot be run again: {why}", hint)
    assert not isinstance(work, wire.Handling), "it is no service"
    job = again(row.spec, work, tasks, wanted)
    if isinstance(work, wire.Steps):
        job = msgspec.structs.replace(job, work=await _some_steps(driver, row, work, tasks))
    try:
        answer = await driver.submit(caller, wire.Submission((job,), wanted.key, wanted.client), allow)
    except MissingBlobs as missing:
        raise HeadwayError(
            f"job {row.id} cannot be run again: its functions are not kept any more", "Submit it again."
        ) from missing
    return wire.Retried(answer.jobs[0], tuple(tasks), answer.cursor)


async def failed_tasks(journal: Journal, row: JobRow) -> list[int]:
    """The tasks of an ended job that failed; of a workflow also those that did not run because of that. In order.

    None of them if they are not all known any more, because results have been cleared.
    """
    if isinstance(row.spec, Workflow):
        words: dict[int, str] = {}
        for first in range(0, row.spec.tasks, RETRIED_AT_ONCE):
            words |= journal.outcomes(row.id, first, first + RETRIED_AT_ONCE)
            await asyncio.sleep(0)
        known = sum(word != Outcome.CANCELLED.value for word in words.values())
        return _with_followers(row.spec, words) if known == row.done else []
    found: list[int] = []
    for first in range(0, row.spec.tasks, RETRIED_AT_ONCE):
        rows = journal.outcomes(row.id, first, first + RETRIED_AT_ONCE, unsuccessful=True)
        found += [task for task, word in rows if word != Outcome.CANCELLED.value]
        await asyncio.sleep(0)
    return found if len(found) == row.failed else []


def _with_followers(spec: Workflow, words: dict[int, str]) -> list[int]:
    """Failed tasks of a workflow, and those after them that never ran, except those that wait for a cancelled task."""
    over = {Outcome.SUCCEEDED.value, Outcome.CANCELLED.value}
    found: dict[int, None] = {}
    for task, planned in enumerate(spec.graph):
        if task in words:
            if words[task] not in over:
                found[task] = None
        elif planned.after and all(
            before in found or words.get(before) == Outcome.SUCCEEDED.value for before in planned.after
        ):
            found[task] = None
    return list(found)


async def _some_steps(driver: Driver, row: JobRow, work: wire.Steps, tasks: list[int]) -> wire.Steps:
    """The steps of these tasks, with what they get of tasks that are not run again.

    Raises:
        HeadwayError: what one of those gave is not kept any more.
    """
    spec, calls, commands = row.spec, list[int](), list[int]()
    for task in tasks:
        is_program, place = work.place(task)
        (commands if is_program else calls).append(place)
    needs = tuple(work.needs[task] for task in tasks) if work.needs else ()
    numbers = spec.numbers or range(spec.tasks)
    missing = {number for some in needs for number in some} - {numbers[task] for task in tasks}
    calling = (some for task, some in zip(tasks, needs, strict=False) if not work.place(task)[0])
    called_with = {number for some in calling for number in some}  # programs get files, and no results
    given, places = dict[str, wire.Gift](), {number: place for place, number in enumerate(numbers)}
    for looked, number in enumerate(sorted(missing)):
        name = str(number)
        if name in work.given:
            given[name] = work.given[name]
            continue
        found, _ = driver.journal.results([wire.TaskRange(spec.id, places[number], places[number] + 1)], 1)
        if not found:
            raise HeadwayError(
                f"job {spec.id} cannot be run again: what its task {number} gave is not kept any more",
                "Submit it again.",
            )
        gift = gift_of(msgspec.msgpack.decode(found[0], type=wire.TaskResult))
        given[name] = gift if number in called_with else msgspec.structs.replace(gift, value=b"")
        if looked % GIFTS_AT_ONCE == 0:
            await asyncio.sleep(0)
    _keep_files(driver, given)
    chosen = tuple(work.calls.chosen[call] for call in calls) if work.calls.chosen else ()
    args = tuple(work.calls.args[call] for call in calls)
    return wire.Steps(
        msgspec.structs.replace(work.calls, args=args, chosen=chosen),
        tuple(work.commands[command] for command in commands),
        tuple(place for place, task in enumerate(tasks) if work.place(task)[0]),
        needs,
        tuple(work.names[task] for task in tasks) if work.names else (),
        given,
    )


def _keep_files(driver: Driver, given: Mapping[str, wire.Gift]) -> None:
    """Keep the files of what is given as long as the new job needs them, whatever becomes of the old one's results."""
    for gift in given.values():
        for upload in filter(None, map(upload_of, gift.outputs.values())):
            size = driver.retention.uploads.size(upload[0])
            driver.journal.retained.keep_upload(upload[0], driver.now(), size)


def again(
    spec: JobSpec, work: wire.Calls | wire.Commands | wire.Steps, tasks: list[int], wanted: wire.Retry
) -> wire.NewJob:
    """A job with these tasks of another job, and its terms."""
    terms: dict[str, Any] = {
        "workload": None if spec.workload is None else spec.workload * len(tasks) / spec.tasks,
        "leased": False,
        "retry_of": spec.id,
    }
    terms |= {name: value for name in ("due", "priority") if (value := getattr(wanted, name)) is not None}
    if isinstance(spec, Rigid):
        return wire.NewJob.of(spec, work, **terms | {"numbers": ()})

    def some(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(values[task] for task in tasks) if len(values) == spec.tasks else values

    if isinstance(work, wire.Calls):
        args, chosen = some(work.args), some(work.chosen)
        work = msgspec.structs.replace(work, args=args, chosen=chosen)
    elif isinstance(work, wire.Commands) and len(work.commands) > 1:
        work = msgspec.structs.replace(work, commands=some(work.commands))
    new = wire.NewJob.of(spec, work, **terms | {"tasks": len(tasks), "numbers": some(spec.numbers) or tuple(tasks)})
    place = {task: number for number, task in enumerate(tasks)}
    return msgspec.structs.replace(
        new, sizes=some(new.sizes), plan=tuple(_among(task, place) for task in some(new.plan))
    )


def _among(task: wire.PlannedTask, place: Mapping[int, int]) -> wire.PlannedTask:
    """A task after those others that are run again too; `place`: their new numbers."""
    sends = zip(task.after, task.sends, strict=False)
    return msgspec.structs.replace(
        task,
        after=tuple(place[before] for before in task.after if before in place),
        sends=tuple(sent for before, sent in sends if before in place),
    )
