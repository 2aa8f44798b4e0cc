"""Between what was submitted and what an engine runs: a task's work as an assignment, an ending as a result."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, cast

import msgspec

from headway import wire
from headway.engines import base
from headway.errors import HeadwayError
from headway.files import KEPT_SCHEME, upload_of
from headway.given import task_file, task_file_of
from headway.model.actions import Launch
from headway.model.instant import NEVER
from headway.model.job import JobSpec, Rigid
from headway.model.node import NodeSpec
from headway.model.outcome import Outcome
from headway.model.seen import JobView, NodeView
from headway.model.slots import numbers
from headway.services.terms import ARGV, InstanceTerms

CANCELLED_DETAIL: Final = "it was cancelled"

_SHORT: Final = "the server had no room for more"
"""What is said of a task that was not to start, or not to go on."""


@dataclass(frozen=True, slots=True)
class LaunchTerms:
    """What is the same for all launches of a server.

    Attributes:
        instance: what the instances of a service are told on a node.
        result_max: the most bytes that a result may have.
        account_of: as which account the tasks of a user run on a node; empty: as that of its engine.
    """

    instance: Callable[[JobSpec, wire.Handling, NodeSpec], InstanceTerms]
    result_max: int
    account_of: Callable[[str, NodeSpec], str]


def assignment(
    launch: Launch,
    spec: JobSpec,
    work: wire.Work,
    nodes: list[NodeView],
    function: Callable[[str], base.Function],
    terms: LaunchTerms,
    files: bool,
    gifts: Mapping[int, wire.Gift],
) -> base.Assignment:
    """What an engine is asked to run.

    Args:
        work: of the whole job.
        nodes: the node of each slot, by slot number.
        function: finds a function by its name.
        files: whether the work names files.
        gifts: what the task gets from others, by their numbers.
    """
    places = [(nodes[slot], nodes[slot].index_of(slot)) for slot in launch.seats or numbers(launch.slots)]
    family = family_of(spec, work, launch)
    if isinstance(work, wire.Handling):
        members: tuple[base.Member, ...] = (_instance(places, work, terms.instance(spec, work, places[0][0].spec)),)
    elif isinstance(spec, Rigid):
        assert not isinstance(work, wire.Steps), "it is no workflow"
        members = tuple(
            base.Member(node.spec.name, (slot,), task_work(work, rank, function, family))
            for rank, (node, slot) in enumerate(places)
        )
    else:
        number = spec.numbers[launch.task] if spec.numbers else None
        if isinstance(work, wire.Steps):
            task = step(work, launch.task, function, family, launch.task if number is None else number, gifts)
        else:
            task = task_work(work, launch.task, function, family, number)
        members = (base.Member(places[0][0].spec.name, tuple(slot for _, slot in places), task),)
    limits = (spec.time_limit, spec.memory_limit, terms.result_max)
    key, account = (launch.job, launch.task, launch.attempt), terms.account_of(spec.user, places[0][0].spec)
    return base.Assignment(*key, members, *limits, files, spec.fetches, launch.tier, account)


def _instance(places: list[tuple[NodeView, int]], work: wire.Handling, terms: InstanceTerms) -> base.Member:
    (node, slot) = places[0]
    return base.Member(node.spec.name, (slot,), base.Command(ARGV, work.cwd, {**work.env, **terms.environment()}))


def with_terms(job: JobView) -> JobSpec:
    """A job's terms as they are now."""
    return replace(job.spec, priority=job.priority, due=None if job.due >= NEVER else job.due)


def family_of(spec: JobSpec, work: wire.Work, launch: Launch) -> str:
    """Which calls may find in their process what others left there: those of one job, or of jobs that ask to share it.

    A call that asks for a fresh process has a family of its own.
    """
    if isinstance(work, wire.Steps):
        work = work.calls
    if isinstance(work, wire.Calls) and work.fresh:
        return f"job {spec.id} task {launch.task} attempt {launch.attempt}"
    if isinstance(work, wire.Calls) and work.warm:
        return f"warm {len(spec.user)} {spec.user} {work.warm}"
    return f"job {spec.id}"


def task_work(
    work: wire.Calls | wire.Commands,
    task: int,
    function: Callable[[str], base.Function],
    family: str,
    known_as: int | None = None,
) -> base.Work:
    """The work of one task; of a rigid job, of one rank.

    Args:
        known_as: the number by which its work knows the task, if it is another one.
    """
    if isinstance(work, wire.Calls):
        return _call(work, task if len(work.args) > 1 else 0, function, family)
    command = work.commands[task if len(work.commands) > 1 else 0]
    if known_as is None:
        return _command(command, str(task), command.env)
    return _command(command, str(known_as), {**command.env, "HEADWAY_TASK": str(known_as)})


def step(
    work: wire.Steps,
    task: int,
    function: Callable[[str], base.Function],
    family: str,
    number: int,
    gifts: Mapping[int, wire.Gift],
) -> base.Work:
    """The work of a task that gets something from others.

    Args:
        number: by which its work knows the task.
        gifts: what it gets, by the numbers of the others.

    Raises:
        NotGiven: one of them gave no file of a name that the task names.
    """
    is_program, place = work.place(task)
    if not is_program:
        call = _call(work.calls, place, function, family)
        files = {task_file(other, name): url for other, gift in gifts.items() for name, url in gift.outputs.items()}
        results = {other: gift.value for other, gift in gifts.items()}
        return msgspec.structs.replace(call, results=results, files=files)
    command = work.commands[place]
    inputs = {path: _of_task(url, gifts) for path, url in command.inputs.items()}
    known = {**command.env, "HEADWAY_TASK": str(number)}
    return _command(msgspec.structs.replace(command, inputs=inputs), str(number), known)


def _of_task(url: str, gifts: Mapping[int, wire.Gift]) -> str:
    """Where a file is, if it is that of another task."""
    named = task_file_of(url)
    if named is None:
        return url
    task, name = named
    there = gifts[task].outputs
    if name not in there:
        given = ", ".join(sorted(there)) or "none"
        raise NotGiven(f"task {task} gave the server no file {name!r}; it gave: {given}")
    return there[name]


class NeverLaunched(HeadwayError):
    """An attempt cannot be launched. This does not change, so it is not tried again."""


class NotGiven(NeverLaunched):
    """A task cannot get what it names of another one."""


class NotThere(NeverLaunched):
    """A task cannot run on the node that was chosen for it."""


def gift_of(result: wire.TaskResult) -> wire.Gift:
    """What a task gave to others: of a program the text that it wrote last."""
    ending = result.ending
    value = ending.value
    if value is None:
        value = pickle.dumps(ending.stdout.decode("utf-8", "replace"), pickle.DEFAULT_PROTOCOL)
    kept = ((name, url) for name, url in ending.outputs.items() if upload_of(url) is not None)
    return wire.Gift(bytes(value), {name.removeprefix(KEPT_SCHEME): url for name, url in kept})


def _call(work: wire.Calls, call: int, function: Callable[[str], base.Function], family: str) -> base.Call:
    named = function(work.functions[work.chosen[call] if work.chosen else 0])
    alone = work.fresh or (len(work.args) == 1 and not work.warm)
    return base.Call(named, work.args[call], family, work.paths, alone, work.cwd, work.anywhere, work.env)


def _command(command: wire.Command, number: str, env: dict[str, str]) -> base.Command:
    return base.Command(
        argv=tuple(part.replace("{i}", number) for part in command.argv),
        cwd=command.cwd.replace("{i}", number),
        env=env,
        stdin=command.stdin.replace("{i}", number),
        stdout=command.stdout.replace("{i}", number),
        stderr=command.stderr.replace("{i}", number),
        inputs=_numbered(command.inputs, number),
        outputs=_numbered(command.outputs, number),
    )


def _numbered(files: dict[str, str], number: str) -> dict[str, str]:
    return {path.replace("{i}", number): url.replace("{i}", number) for path, url in files.items()}


def in_short(work: wire.Work) -> wire.Work:
    """The part of the work of a successful job that is kept: what can be shown of it, not what is needed to run it.

    Variables are left out: they may contain secrets.
    """
    if isinstance(work, wire.Calls):
        return wire.Calls((), (), names=work.names, cwd=work.cwd)
    if isinstance(work, wire.Steps):
        calls = wire.Calls((), (), names=work.calls.names, cwd=work.calls.cwd)
        return wire.Steps(calls, _briefly(work.commands), work.programs[:2], names=work.names)
    if isinstance(work, wire.Handling):
        return wire.Handling(work.handler, command=work.command, cwd=work.cwd, name=work.name)
    return wire.Commands(_briefly(work.commands))


def _briefly(commands: tuple[wire.Command, ...]) -> tuple[wire.Command, ...]:
    return tuple(wire.Command(command.argv, command.cwd) for command in commands[:2])


def result(ended: base.Ended, outcome: Outcome, on: tuple[str, ...] = ()) -> wire.TaskResult:
    """What is kept of an attempt that settled its task with this outcome, on these slots."""
    ending, members = _ending(ended.ending), tuple(map(_ending, ended.members))
    if outcome is Outcome.CANCELLED:
        ending, members = msgspec.structs.replace(ending, outcome=outcome, value=None, detail=CANCELLED_DETAIL), ()
    return wire.TaskResult(ended.job, ended.task, ended.attempt, ending, members, on)


def _ending(ending: base.Ending) -> wire.TaskEnding:
    out, err = ending.stdout, ending.stderr
    return wire.TaskEnding(
        outcome=ending.outcome,
        value=cast("bytes | None", ending.result),  # what is large stays where it has arrived until this is encoded
        detail=ending.detail,
        exit_code=ending.exit_code,
        stdout=out.tail if out else b"",
        stderr=err.tail if err else b"",
        stdout_path=out.name if out and _is_longer(out) else "",
        stderr_path=err.name if err and _is_longer(err) else "",
        seconds=ending.seconds,
        cpu_seconds=ending.cpu_seconds,
        outputs=ending.outputs,
        stdout_cut=out.cut if out else 0,
        stderr_cut=err.cut if err else 0,
        stdout_sha256=out.sha256 if out and _is_longer(out) else "",
        stderr_sha256=err.sha256 if err and _is_longer(err) else "",
        stdout_lost=out.lost if out else "",
        stderr_lost=err.lost if err else "",
    )


def outputs_kept(result: wire.TaskResult) -> set[str]:
    """Names of the files that the server keeps with a result."""
    urls = (url for ending in result.endings for url in ending.outputs.values())
    return {upload[0] for upload in map(upload_of, urls) if upload is not None}


def _is_longer(output: base.Output) -> bool:
    return output.size > len(output.tail)


def kept_bytes(ended: base.Ended) -> int:
    """Bytes of the outputs that the engine keeps with the result of an attempt."""
    return sum(output.size - output.cut for output in _files(ended) if _is_longer(output))


def without_files(ended: base.Ended) -> base.Ended:
    """The same end, with only that part of its output that fits into the result."""
    return msgspec.structs.replace(
        ended, ending=_without_files(ended.ending), members=tuple(map(_without_files, ended.members))
    )


def _without_files(ending: base.Ending) -> base.Ending:
    cut = {
        name: msgspec.structs.replace(output, name="", cut=output.size - len(output.tail), lost=_SHORT)
        for name, output in (("stdout", ending.stdout), ("stderr", ending.stderr))
        if output is not None and output.name and _is_longer(output)
    }
    return msgspec.structs.replace(ending, **cut) if cut else ending


def _files(ended: base.Ended) -> list[base.Output]:
    """What the engine keeps of the output of an attempt."""
    return [
        output
        for ending in (ended.ending, *ended.members)
        for output in (ending.stdout, ending.stderr)
        if output is not None and output.name
    ]


def spent_files(ended: base.Ended, *, kept: bool) -> list[str]:
    """Outputs of an ended attempt that are not needed: all if its result is not kept, else those that fit in it."""
    return [output.name for output in _files(ended) if not (kept and _is_longer(output))]
